/**
 * The inspector: an activity's content, its ids, and its envelopes, as the log has them for this audience.
 */

import { createBadge, formatCount, define, element, updateChildren, setText, toText } from "../surfaces/base.js";
import { describe } from "../surfaces/describe.js";
import { setFacts } from "../surfaces/lane.js";
import { isMadeBy, typesOf } from "./made-by.js";

/** @typedef {import("../client/types.js").Activity} Activity */
/** @typedef {import("../client/types.js").Envelope} Envelope */
/** @typedef {import("../surfaces/base.js").View} View */

/** The page size, and the number of envelopes scanned before a click continues. */
const PAGE_EVENTS = 500;
const SCANNED_MAX = 5000;
/** Envelopes drawn at first. */
const DRAWN_MAX = 50;
/** The maximum length of JSON on the page, in characters. */
const JSON_CHARS_MAX = 100_000;
/** The classification members of an envelope, in display order. */
const DIMENSIONS = ["owner", "scope", "phase", "surface", "audience", "persistence", "topology", "control"];
/** The id members of envelopes and activities. */
const IDS = ["runId", "sessionId", "threadId", "turnId", "messageId", "partId", "toolCallId", "actionId", "taskId", "agentId", "artifactId", "evidenceId", "parentSessionId", "parentThreadId", "eventId"];

export class Inspector extends HTMLElement {
  /** @type {View | undefined} */
  #view;
  /** @type {Activity | undefined} */
  #activity;
  /** @type {Envelope[]} */
  #events = [];
  #scanned = 0;
  #limit = DRAWN_MAX;
  /** @type {number | string | null} The cursor of the next page; null at the end. */
  #cursor = null;
  /** Aborts the current scan. */
  #abort = new AbortController();
  #status = "";
  /** Whether compaction has removed events from the scanned range. */
  #isCompacted = false;

  /** @param {View} view The view. Another one closes the inspector. */
  set view(view) {
    this.#view = view;
    this.close();
  }

  connectedCallback() {
    this.classList.add("inspector");
    this.setAttribute("role", "complementary");
    this.setAttribute("aria-label", "Inspector");
    if (this.childElementCount === 0) this.hidden = true;
  }

  /** Whether an activity is open. */
  get isOpen() {
    return this.#activity !== undefined;
  }

  close() {
    const wasOpen = this.#activity !== undefined;
    this.#abort.abort();
    this.#activity = undefined;
    this.hidden = true;
    this.replaceChildren();
    if (wasOpen) this.dispatchEvent(new CustomEvent("close"));
  }

  /**
   * Opens an activity.
   * @param {Activity} activity
   * @returns {Promise<void>} Resolves when the first envelopes are loaded.
   */
  async show(activity) {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#activity = activity;
    this.#events = [];
    this.#scanned = 0;
    this.#limit = DRAWN_MAX;
    // The first envelope is the one that opened the activity.
    this.#cursor = activity.runId ? activity.opened - 1 : null;
    this.#isCompacted = false;
    this.#status = activity.runId ? "" : "This activity belongs to a session's own log. Its events are not available here.";
    this.hidden = false;
    this.#build(activity);
    if (activity.runId) await this.#scan();
  }

  /** @param {Activity} activity */
  #build(activity) {
    const description = describe(activity);
    const head = element("header", "spread");
    const close = element("button", "button", "Close");
    close.type = "button";
    close.dataset.kind = "quiet";
    close.addEventListener("click", () => this.close());
    const title = element("h2", "", `${description.label}: ${description.title}`);
    title.tabIndex = -1;
    head.append(title, close);
    const facts = element("dl", "facts");
    setFacts(facts, [
      ["Type", activity.activityType],
      ["Id", activity.activityId],
      ["Run", activity.runId],
      ["Session", activity.sessionId],
      ["Surface", activity.surface],
      ["Agent", activity.agentId],
      ["Opened by", `event ${activity.opened}`],
      ["Changed by", `event ${activity.sequence}`],
      ["Audience", this.#view?.audience],
      ["As of", this.#view?.at ? `event ${this.#view.at}` : undefined],
    ]);
    const content = element("details", "content");
    content.append(element("summary", "", "Content"), createJson(activity.content, "Content"));
    this.note = element("p", "note");
    this.note.setAttribute("role", "status");
    this.list = element("ol", "envelopes");
    this.list.setAttribute("aria-label", "Events, oldest first");
    this.more = element("button", "button", "More");
    this.more.type = "button";
    this.more.addEventListener("click", () => this.#more());
    this.replaceChildren(head, facts, content, element("h3", "label", "events"), this.list, this.note, this.more);
    this.#draw();
    // A keyboard user comes from another part of the page.
    title.focus();
  }

  #more() {
    if (this.#limit < this.#events.length) {
      this.#limit += DRAWN_MAX;
      return this.#draw();
    }
    this.#limit += DRAWN_MAX;
    return this.#scan();
  }

  /** Scans pages until enough envelopes are found, or the scan limit is reached. */
  async #scan() {
    const [view, activity, { signal }] = [this.#view, this.#activity, this.#abort];
    if (!view || !activity) return;
    const scanLimit = this.#scanned + SCANNED_MAX;
    this.#status = "Loading…";
    this.#draw();
    try {
      while (this.#cursor !== null && this.#events.length < this.#limit && this.#scanned < scanLimit) {
        const types = typesOf(activity);
        const page = await view.hydration.events(activity.runId, { after: this.#cursor, ...this.#range(), limit: PAGE_EVENTS, audience: view.audience, signal, ...(types.length > 0 ? { type: types } : {}) });
        if (signal.aborted) return;
        this.#scanned += Math.max(1, page.events.length);
        this.#addEvents(page.events.filter((event) => isMadeBy(activity, event)));
        this.#cursor = page.nextCursor;
        if (page.holes?.length) this.#isCompacted = true;
      }
      if (this.#cursor === null) await this.#loadLastEvent(view, activity, signal);
      this.#status = "";
    } catch (error) {
      if (signal.aborted) return;
      this.#status = `The events could not be loaded: ${error instanceof Error ? error.message : error}`;
    }
    this.#draw();
  }

  /** At a past moment, later events are irrelevant. */
  #range() {
    const at = this.#view?.at;
    return at ? { before: at + 1 } : {};
  }

  /**
   * Loads the last event that changed the activity. It may be of another subject: the end of a run closes open
   * activities.
   * @param {View} view
   * @param {Activity} activity
   * @param {AbortSignal} signal
   */
  async #loadLastEvent(view, activity, signal) {
    if (this.#events.some((event) => event.sequence === activity.sequence)) return;
    const { events } = await view.hydration.events(activity.runId, { after: activity.sequence - 1, before: activity.sequence + 1, audience: view.audience, signal });
    if (!signal.aborted) this.#addEvents(events);
  }

  /** @param {Envelope[]} events */
  #addEvents(events) {
    const known = new Set(this.#events.map((event) => event.sequence));
    this.#events = [...this.#events, ...events.filter((event) => !known.has(event.sequence))].sort((a, b) => a.sequence - b.sequence);
  }

  #draw() {
    if (!this.list || !this.more || !this.note) return;
    updateChildren(this.list, this.#events.slice(0, this.#limit), (event) => String(event.sequence), createEnvelope, () => {});
    const rest = this.#events.length - this.#limit;
    this.more.hidden = rest <= 0 && (this.#cursor === null || this.#events.length === 0 && this.#status !== "");
    setText(this.more, rest > 0 ? `Show ${Math.min(rest, DRAWN_MAX)} more of ${formatCount(rest)}` : "Continue search");
    const none = this.#events.length === 0 ? "This audience sees none of its events." : "";
    const compacted = this.#isCompacted ? "The log was compacted: transient events have been removed." : "";
    setText(this.note, this.#status || none || compacted);
    this.note.hidden = this.note.textContent === "";
    this.note.dataset.state = this.#status.startsWith("The events") ? "failed" : "unknown";
  }
}

/** @param {Envelope} event */
function createEnvelope(event) {
  const item = element("li", "envelope");
  item.dataset.sequence = String(event.sequence);
  const head = element("div", "spread");
  const name = element("div", "row");
  name.append(element("span", "hint mono", `#${event.sequence}`), element("span", "card-title mono", event.type));
  const time = element("time", "hint", timeOf(event));
  time.dateTime = event.timestamp ?? event.receivedAt ?? "";
  head.append(name, time);
  const chips = element("div", "row dimensions");
  for (const dimension of DIMENSIONS) {
    const value = toText(/** @type {any} */ (event)[dimension]);
    if (!value) continue;
    const chip = element("span", "chip");
    chip.dataset.dimension = dimension;
    chip.append(element("span", "chip-label", dimension), value.replaceAll("_", " "));
    chips.append(chip);
  }
  if (event.payload?.withheld === true) chips.append(createBadge("unavailable", "the rest is withheld from this audience"));
  const ids = element("dl", "facts ids");
  setFacts(ids, IDS.map((id) => [id, /** @type {any} */ (event)[id]]));
  const raw = element("details");
  const summary = element("summary", "", "Raw JSON");
  raw.append(summary);
  // Most envelopes are never expanded, so their JSON is created on demand.
  raw.addEventListener("toggle", () => raw.open && raw.childElementCount === 1 && raw.append(copyButton(event), createJson(event, `Event ${event.sequence} as JSON`)));
  item.append(head, chips, ids, raw);
  return item;
}

/** @param {Envelope} event */
const timeOf = (event) => toText(event.timestamp ?? event.receivedAt) || "time unknown";

/**
 * @param {unknown} value
 * @param {string} label
 */
function createJson(value, label) {
  const text = JSON.stringify(value, null, 2) ?? "";
  const node = element("pre", "preview", text.length > JSON_CHARS_MAX ? `${text.slice(0, JSON_CHARS_MAX)}…` : text);
  node.tabIndex = 0;
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", label);
  return node;
}

/** @param {Envelope} event */
function copyButton(event) {
  const button = element("button", "button", "Copy");
  button.type = "button";
  button.dataset.kind = "quiet";
  button.setAttribute("aria-label", `Copy event ${event.sequence} as JSON`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(JSON.stringify(event, null, 2));
      setText(button, "Copied");
    } catch {
      setText(button, "The browser denied access to the clipboard");
    }
  });
  return button;
}

define("ps-inspector", Inspector);

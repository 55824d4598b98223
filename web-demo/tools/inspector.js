/**
 * Looks behind anything on the screen: its content, its ids, and the envelopes that made it, as the log has them for this audience.
 */

import { createBadge, formatCount, define, element, updateChildren, setText, toText } from "../surfaces/base.js";
import { describe } from "../surfaces/describe.js";
import { setFacts } from "../surfaces/lane.js";
import { isMadeBy, typesOf } from "./made-by.js";

/** @typedef {import("../client/types.js").Activity} Activity */
/** @typedef {import("../client/types.js").Envelope} Envelope */
/** @typedef {import("../surfaces/base.js").View} View */

/** Envelopes that are asked for at a time, and that are looked at before somebody asks for more. */
const PAGE_EVENTS = 500;
const SCANNED_MAX = 5000;
/** Envelopes that are drawn before somebody asks for more. */
const DRAWN_MAX = 50;
/** Characters of an envelope, or of a content, that are put on the page. */
const JSON_CHARS_MAX = 100_000;
/** The classification of an envelope, in the order in which it is said. */
const DIMENSIONS = ["owner", "scope", "phase", "surface", "audience", "persistence", "topology", "control"];
/** Ids of an envelope or an activity. */
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
  /** @type {number | string | null} Where the next page begins; null at the end. */
  #cursor = null;
  /** What is being asked for; another question ends it. */
  #abort = new AbortController();
  #status = "";
  /** Whether some of what was looked through is gone from the log. */
  #isCompacted = false;

  /** @param {View} view What it looks into. A new one closes it. */
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

  /** Whether it shows anything. */
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
   * Shows what is behind this.
   * @param {Activity} activity
   * @returns {Promise<void>} When the first of its envelopes are there.
   */
  async show(activity) {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#activity = activity;
    this.#events = [];
    this.#scanned = 0;
    this.#limit = DRAWN_MAX;
    // The first of them is the one with which it appeared.
    this.#cursor = activity.runId ? activity.opened - 1 : null;
    this.#isCompacted = false;
    this.#status = activity.runId ? "" : "It is of a session's own log, whose events have no address of their own: they are unavailable here.";
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
      ["Seen as", this.#view?.audience],
      ["As of", this.#view?.at ? `event ${this.#view.at}` : undefined],
    ]);
    const content = element("details", "content");
    content.append(element("summary", "", "Content"), createJson(activity.content, "Content"));
    this.note = element("p", "note");
    this.note.setAttribute("role", "status");
    this.list = element("ol", "envelopes");
    this.list.setAttribute("aria-label", "Events that made this, oldest first");
    this.more = element("button", "button", "More");
    this.more.type = "button";
    this.more.addEventListener("click", () => this.#more());
    this.replaceChildren(head, facts, content, element("h3", "label", "events that made this"), this.list, this.note, this.more);
    this.#draw();
    // Whoever uses the keyboard came from another place of the page.
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

  /** Looks through pages until there is enough to draw, or enough was looked at. */
  async #scan() {
    const [view, activity, { signal }] = [this.#view, this.#activity, this.#abort];
    if (!view || !activity) return;
    const scanLimit = this.#scanned + SCANNED_MAX;
    this.#status = "Looking …";
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
      this.#status = `The events could not be read: ${error instanceof Error ? error.message : error}`;
    }
    this.#draw();
  }

  /** In the past nothing of what came later made it. */
  #range() {
    const at = this.#view?.at;
    return at ? { before: at + 1 } : {};
  }

  /**
   * What changed it last may be none of its own: a run's end closes what is open.
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
    setText(this.more, rest > 0 ? `Show ${Math.min(rest, DRAWN_MAX)} more of ${formatCount(rest)}` : "Look further");
    const none = this.#events.length === 0 ? "No event of it is seen by this audience." : "";
    const compacted = this.#isCompacted ? "Some of the log was compacted: events that were of use only while the run was live are gone." : "";
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
  // Its text is made when somebody looks: most are never looked at.
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
      setText(button, "Copying was refused by the browser");
    }
  });
  return button;
}

define("ps-inspector", Inspector);

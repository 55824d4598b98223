/**
 * The transcript of one teammate, opened on demand: the newest entries first, more on request. A message written here
 * goes to this teammate only.
 */

import { Surface, define, element, inspectButton, joinText, updateChildren, setBadge, setText, humanize, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { describe } from "./describe.js";
import { controlButton } from "./submitted-controls.js";
import { ENDED_STATUSES, addHeading, findActivity, controlTarget, formatValue, setFacts } from "./lane.js";
import { waitReason } from "./tool.js";

/** @typedef {import("./base.js").Activity} Activity */

/** Entries drawn at first, and entries per request for more. */
const ENTRIES_MAX = 40;
/** The maximum length of an entry, in characters. */
const TEXT_CHARS_MAX = 20_000;
/** Activity types of a transcript. */
const ENTRY_TYPES = ["message", "reasoning", "plan", "tool-call-progress", "action"];

export class TeammateTranscript extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType, agentId, content }) {
    return activityType === "agent" || (ENTRY_TYPES.includes(activityType) && (agentId ?? content.agentId) !== undefined);
  }

  /** @type {{ id: string, runId?: string } | null} The teammate; null while closed. */
  #target = null;
  #limit = ENTRIES_MAX;
  /** @type {Activity[]} Entries loaded from the teammate's session. */
  #history = [];
  /** The id of the newest load. The result of an older one is dropped. */
  #requestId = 0;
  /** @type {string | null} */
  #cursor = null;
  #hasRead = false;
  #error = "";

  /**
   * Opens the transcript of a teammate.
   * @param {string} id
   * @param {string} [runId] The teammate's run; needed if several runs have this agent id.
   */
  open(id, runId) {
    this.#target = { id, runId };
    this.#reset();
    if (this.isConnectedToView) this.update(null);
  }

  /** Closes the transcript. */
  close() {
    this.#target = null;
    this.#reset();
    this.hidden = true;
    this.dispatchEvent(new CustomEvent("close"));
  }

  #reset() {
    this.#requestId += 1;
    this.#limit = ENTRIES_MAX;
    this.#history = [];
    this.#cursor = null;
    this.#hasRead = false;
    this.#error = "";
  }

  build() {
    this.#reset();
    this.head = addHeading(this, "Transcript");
    const close = element("button", "button", "Close transcript");
    close.type = "button";
    close.dataset.kind = "quiet";
    close.addEventListener("click", () => this.close());
    this.heading = element("div", "spread who");
    const name = element("div", "row");
    name.append(element("span", "card-title"), element("span", "badge"));
    this.heading.append(name, close);
    this.facts = element("dl", "facts");
    this.earlier = element("button", "button", "Load earlier");
    this.earlier.type = "button";
    this.earlier.dataset.kind = "quiet";
    this.earlier.addEventListener("click", () => this.#loadEarlier());
    this.note = element("p", "note");
    this.note.setAttribute("role", "status");
    this.list = element("ol", "entries");
    this.append(this.heading, this.facts, this.earlier, this.note, this.list, this.#composer());
  }

  #composer() {
    const form = element("form", "row write");
    const feedback = element("p", "hint told");
    feedback.setAttribute("role", "status");
    const input = element("input", "input");
    input.setAttribute("aria-label", "Message to this teammate");
    input.placeholder = "Message this teammate only";
    const send = controlButton("Send", () => this.view, () => {
      const agent = this.#agent();
      const text = input.value.trim();
      if (!agent || !text) return setText(feedback, "Enter a message."), null;
      return { control: "continue_agent", ...controlTarget(agent), agentId: agent.activityId, value: { text } };
    }, { feedback, sent: () => (input.value = "") });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send.click();
    });
    form.append(input, send, feedback);
    this.form = form;
    return form;
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    this.hidden = this.#target === null;
    if (!this.#target || !this.list || !this.heading || !this.facts || !this.note || !this.earlier || !this.form) return;
    const agent = this.#agent();
    const name = toText(agent?.content.agentName) || this.#target.id;
    setText(/** @type {HTMLElement} */ (this.head?.querySelector("h2")), `Transcript of ${name}`);
    const [, badge] = [...(this.heading.firstElementChild?.children ?? [])];
    setText(/** @type {HTMLElement} */ (this.heading.querySelector(".card-title")), name);
    setBadge(/** @type {HTMLElement} */ (badge), agent?.content.status);
    setFacts(this.facts, [
      ["Session", agent?.content.sessionId],
      ["Thread", agent?.content.threadId],
      ["Parent session", agent?.content.parentSessionId],
      ["Parent thread", agent?.content.parentThreadId],
      ["Task", agent?.content.taskId],
      ["Queued turns", agent?.content.queuedTurnCount],
    ]);
    const all = this.#entries();
    const shown = all.slice(-this.#limit);
    const session = toText(agent?.content.sessionId);
    const canRead = session !== "" && (!this.#hasRead || this.#cursor !== null);
    this.earlier.hidden = shown.length === all.length && !canRead;
    this.earlier.disabled = false;
    setText(this.earlier, shown.length < all.length ? `Show ${Math.min(ENTRIES_MAX, all.length - shown.length)} earlier` : this.#hasRead ? "Load earlier" : "Load session");
    const missing = this.#error || (all.length > 0 ? "" : session ? "No messages yet." : "Transcript unavailable: the source gave no session.");
    this.note.hidden = missing === "";
    this.note.dataset.state = this.#error ? "failed" : "unknown";
    setText(this.note, missing);
    updateChildren(this.list, shown, keyOf, (it) => this.#createEntry(it), (item, it) => this.#updateEntry(item, it));
    this.form.hidden = !this.view.isLive || !agent || ENDED_STATUSES.includes(toText(agent.content.status));
  }

  /** The activity of the teammate. */
  #agent() {
    const target = this.#target;
    if (!target) return undefined;
    return findActivity(this.view, /** @type {Activity} */ ({ runId: target.runId ?? "" }), "agent", target.id);
  }

  /** The entries in order: those loaded from its session, then those of the store. */
  #entries() {
    const id = this.#target?.id;
    const session = this.#agent()?.content.sessionId;
    const live = this.activities().filter((it) => ENTRY_TYPES.includes(it.activityType) && (it.agentId ?? it.content.agentId) === id);
    const known = new Set(live.map(keyOf));
    return [...this.#history.filter((it) => session !== undefined && !known.has(keyOf(it))), ...live];
  }

  async #loadEarlier() {
    const session = toText(this.#agent()?.content.sessionId);
    if (this.#entries().length > this.#limit) {
      this.#limit += ENTRIES_MAX;
      return this.update(null);
    }
    if (!session || !this.earlier) return;
    const requestId = ++this.#requestId;
    this.earlier.disabled = true;
    try {
      const { audience } = this.view;
      const page = await this.view.hydration.window(session, { messages: ENTRIES_MAX, audience, ...(this.#cursor ? { cursor: this.#cursor } : {}) });
      if (requestId !== this.#requestId) return;
      this.#history = [...page.messages, ...this.#history];
      this.#cursor = page.nextCursor ?? null;
      this.#hasRead = true;
      this.#limit += ENTRIES_MAX;
      this.#error = "";
    } catch (error) {
      if (requestId !== this.#requestId) return;
      this.#error = `The session could not be loaded: ${error instanceof Error ? error.message : error}`;
    }
    this.update(null);
  }

  /** @type {WeakMap<Element, Activity>} */
  #drawnActivities = new WeakMap();

  /** @param {Activity} activity */
  #createEntry(activity) {
    const item = element("li", "entry");
    const head = element("div", "spread");
    const target = element("div", "row");
    target.append(element("span", "label"), element("span", "title"));
    const side = element("div", "row");
    side.append(element("span", "badge"), inspectButton(() => this.view, () => this.#drawnActivities.get(item) ?? activity));
    head.append(target, side);
    item.append(head, element("p", "text"));
    return item;
  }

  /**
   * @param {HTMLElement} item
   * @param {Activity} activity
   */
  #updateEntry(item, activity) {
    const description = describe(activity);
    const waiting = activity.activityType === "tool-call-progress" ? waitReason(this.view, activity) : undefined;
    const state = /** @type {HTMLElement} */ (item.querySelector(".badge"));
    if (waiting) setBadge(state, "waiting", `waiting for ${waiting}`);
    else setBadge(state, description.status);
    if (this.#drawnActivities.get(item)?.content === activity.content) return;
    this.#drawnActivities.set(item, activity);
    const { content } = activity;
    item.dataset.key = keyOf(activity);
    item.dataset.kind = activity.activityType;
    item.dataset.role = toText(content.role);
    setText(/** @type {HTMLElement} */ (item.querySelector(".label")), activity.activityType === "message" ? humanize(content.role) : description.label);
    setText(/** @type {HTMLElement} */ (item.querySelector(".title")), activity.activityType === "message" ? "" : description.title);
    const text = activity.activityType === "message" ? (content.parts ?? []).map((/** @type {any} */ part) => joinText(part.text)).join("\n") : content.text ? joinText(content.text) : description.text;
    setText(/** @type {HTMLElement} */ (item.querySelector(".text")), text.length > TEXT_CHARS_MAX ? `…${text.slice(-TEXT_CHARS_MAX)}` : text || formatValue(content.withheld === true ? "withheld from this audience" : ""));
  }
}

define("ps-teammate-transcript", TeammateTranscript);

/**
 * What one teammate says and does, opened on demand: the newest of it, more on request. It is read like a conversation, under the
 * teammate's name, and what is written to it goes to it alone.
 */

import { Surface, define, element, inspectButton, joined, keyed, mark, say, spoken, words } from "./base.js";
import { keyOf } from "../client/store.js";
import { describe } from "./describe.js";
import { controlButton } from "./handed.js";
import { OVER, face, headed, ofType, ownerOf, phrase, tell } from "./lane.js";
import { waitsFor } from "./tool.js";

/** @typedef {import("./base.js").Activity} Activity */

/** Entries that are drawn at once, and how many more are asked for at a time. */
const ENTRIES_MAX = 40;
/** Characters of one entry. */
const TEXT_CHARS_MAX = 20_000;
/** What a teammate says and does. */
const KINDS = ["message", "reasoning", "plan", "tool-call-progress", "action"];

export class TeammateTranscript extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType, agentId, content }) {
    return activityType === "agent" || (KINDS.includes(activityType) && (agentId ?? content.agentId) !== undefined);
  }

  /** @type {{ id: string, runId?: string } | null} Whose it is; null for nobody's. */
  #who = null;
  #drawn = ENTRIES_MAX;
  /** @type {Activity[]} What was read from the teammate's own session. */
  #read = [];
  /** The newest question; an answer to an older one is dropped. */
  #asked = 0;
  /** @type {string | null} */
  #cursor = null;
  #hasRead = false;
  #why = "";

  /**
   * Shows this teammate's.
   * @param {string} id
   * @param {string} [runId] The run whose teammate it is, where several may have one of that name.
   */
  open(id, runId) {
    this.#who = { id, runId };
    this.#forget();
    if (this.isConnectedToView) this.update(null);
  }

  /** Shows nobody's. */
  close() {
    this.#who = null;
    this.#forget();
    this.hidden = true;
    this.dispatchEvent(new CustomEvent("close"));
  }

  #forget() {
    this.#asked += 1;
    this.#drawn = ENTRIES_MAX;
    this.#read = [];
    this.#cursor = null;
    this.#hasRead = false;
    this.#why = "";
  }

  build() {
    this.#forget();
    this.head = headed(this, "Transcript");
    const close = element("button", "button", "Close transcript");
    close.type = "button";
    close.dataset.kind = "quiet";
    close.addEventListener("click", () => this.close());
    this.who = element("div", "spread who");
    const name = element("div", "row");
    name.append(element("span", "card-title"), element("span", "badge"));
    this.who.append(name, close);
    this.facts = element("dl", "facts");
    this.earlier = element("button", "button", "Earlier");
    this.earlier.type = "button";
    this.earlier.dataset.kind = "quiet";
    this.earlier.addEventListener("click", () => this.#more());
    this.note = element("p", "note");
    this.note.setAttribute("role", "status");
    this.list = element("ol", "entries");
    this.append(this.who, this.facts, this.earlier, this.note, this.list, this.#composer());
  }

  #composer() {
    const form = element("form", "row write");
    const told = element("p", "hint told");
    told.setAttribute("role", "status");
    const input = element("input", "input");
    input.setAttribute("aria-label", "Message to this teammate");
    input.placeholder = "Message this teammate only";
    const send = controlButton("Send", () => this.view, () => {
      const agent = this.#agent();
      const text = input.value.trim();
      if (!agent || !text) return say(told, "Enter a message."), null;
      return { control: "continue_agent", ...ownerOf(agent), agentId: agent.activityId, value: { text } };
    }, { told, sent: () => (input.value = "") });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send.click();
    });
    form.append(input, send, told);
    this.form = form;
    return form;
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    this.hidden = this.#who === null;
    if (!this.#who || !this.list || !this.who || !this.facts || !this.note || !this.earlier || !this.form) return;
    const agent = this.#agent();
    const name = words(agent?.content.agentName) || this.#who.id;
    say(/** @type {HTMLElement} */ (this.head?.querySelector("h2")), `Transcript of ${name}`);
    const [, badge] = [...(this.who.firstElementChild?.children ?? [])];
    say(/** @type {HTMLElement} */ (this.who.querySelector(".card-title")), name);
    mark(/** @type {HTMLElement} */ (badge), agent?.content.status);
    tell(this.facts, [
      ["Session", agent?.content.sessionId],
      ["Thread", agent?.content.threadId],
      ["Parent session", agent?.content.parentSessionId],
      ["Parent thread", agent?.content.parentThreadId],
      ["Task", agent?.content.taskId],
      ["Waiting turns", agent?.content.queuedTurnCount],
    ]);
    const all = this.#entries();
    const shown = all.slice(-this.#drawn);
    const session = words(agent?.content.sessionId);
    const canRead = session !== "" && (!this.#hasRead || this.#cursor !== null);
    this.earlier.hidden = shown.length === all.length && !canRead;
    this.earlier.disabled = false;
    say(this.earlier, shown.length < all.length ? `Show ${Math.min(ENTRIES_MAX, all.length - shown.length)} earlier` : this.#hasRead ? "Load earlier" : "Load its session");
    const missing = this.#why || (all.length > 0 ? "" : session ? "No messages yet." : "Its transcript is unavailable: no fact says where it is.");
    this.note.hidden = missing === "";
    this.note.dataset.state = this.#why ? "failed" : "unknown";
    say(this.note, missing);
    keyed(this.list, shown, keyOf, (it) => this.#make(it), (item, it) => this.#change(item, it));
    this.form.hidden = !this.view.isLive || !agent || OVER.includes(words(agent.content.status));
  }

  /** The facts of whose it is. */
  #agent() {
    const who = this.#who;
    if (!who) return undefined;
    return ofType(this.view, /** @type {Activity} */ ({ runId: who.runId ?? "" }), "agent", who.id);
  }

  /** What it said and did, in order: what was read from its session, and then what the run shows. */
  #entries() {
    const id = this.#who?.id;
    const session = this.#agent()?.content.sessionId;
    const live = this.activities().filter((it) => KINDS.includes(it.activityType) && (it.agentId ?? it.content.agentId) === id);
    const known = new Set(live.map(keyOf));
    return [...this.#read.filter((it) => session !== undefined && !known.has(keyOf(it))), ...live];
  }

  async #more() {
    const session = words(this.#agent()?.content.sessionId);
    if (this.#entries().length > this.#drawn) {
      this.#drawn += ENTRIES_MAX;
      return this.update(null);
    }
    if (!session || !this.earlier) return;
    const asked = ++this.#asked;
    this.earlier.disabled = true;
    try {
      const { audience } = this.view;
      const answer = await this.view.hydration.window(session, { messages: ENTRIES_MAX, audience, ...(this.#cursor ? { cursor: this.#cursor } : {}) });
      if (asked !== this.#asked) return;
      this.#read = [...answer.messages, ...this.#read];
      this.#cursor = answer.nextCursor ?? null;
      this.#hasRead = true;
      this.#drawn += ENTRIES_MAX;
      this.#why = "";
    } catch (why) {
      if (asked !== this.#asked) return;
      this.#why = `Its session could not be read: ${why instanceof Error ? why.message : why}`;
    }
    this.update(null);
  }

  /** @type {WeakMap<Element, Activity>} */
  #of = new WeakMap();

  /** @param {Activity} activity */
  #make(activity) {
    const item = element("li", "entry");
    const head = element("div", "spread");
    const who = element("div", "row");
    who.append(face(this.#who?.id ?? ""), element("span", "label"), element("span", "title"));
    const side = element("div", "row");
    side.append(element("span", "badge"), inspectButton(() => this.view, () => this.#of.get(item) ?? activity));
    head.append(who, side);
    item.append(head, element("p", "text"));
    return item;
  }

  /**
   * @param {HTMLElement} item
   * @param {Activity} activity
   */
  #change(item, activity) {
    const told = describe(activity);
    const waits = activity.activityType === "tool-call-progress" ? waitsFor(this.view, activity) : undefined;
    const state = /** @type {HTMLElement} */ (item.querySelector(".badge"));
    if (waits) mark(state, "waiting", `waiting for ${waits}`);
    else mark(state, told.status);
    if (this.#of.get(item)?.content === activity.content) return;
    this.#of.set(item, activity);
    const { content } = activity;
    item.dataset.key = keyOf(activity);
    item.dataset.kind = activity.activityType;
    item.dataset.role = words(content.role);
    say(/** @type {HTMLElement} */ (item.querySelector(".label")), activity.activityType === "message" ? spoken(content.role) : told.label);
    say(/** @type {HTMLElement} */ (item.querySelector(".title")), activity.activityType === "message" ? "" : told.title);
    const text = activity.activityType === "message" ? (content.parts ?? []).map((/** @type {any} */ part) => joined(part.text)).join("\n") : content.text ? joined(content.text) : told.text;
    say(/** @type {HTMLElement} */ (item.querySelector(".text")), text.length > TEXT_CHARS_MAX ? `…${text.slice(-TEXT_CHARS_MAX)}` : text || phrase(content.withheld === true ? "withheld from this audience" : ""));
  }
}

define("ps-teammate-transcript", TeammateTranscript);

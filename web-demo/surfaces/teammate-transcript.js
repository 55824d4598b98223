/**
 * The transcript of one teammate, opened on demand: the newest entries first, more on request. A message written here
 * goes to this teammate only.
 */

import { TemplateSurface, define, element, humanize, joinText, stateOf, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { describe } from "./describe.js";
import { controlButton } from "./control-button.js";
import { ENDED_STATUSES, controlTarget, findActivity } from "./facts.js";
import { factsTemplate } from "./links.js";
import { waitReason } from "./tool.js";
import { html, nothing, repeat } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */

/** Entries drawn at first, and entries per request for more. */
const ENTRIES_MAX = 40;
/** The maximum length of an entry, in characters. */
const TEXT_CHARS_MAX = 20_000;
/** Activity types of a transcript. */
const ENTRY_TYPES = ["message", "reasoning", "plan", "tool-call-progress", "action"];

export class TeammateTranscript extends TemplateSurface {
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
  #isReading = false;
  #error = "";
  /** The field, its button and what became of the last message. @type {HTMLElement[]} */
  #writing = [];

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
    this.#hasRead = this.#isReading = false;
    this.#error = "";
  }

  build() {
    this.#reset();
    this.setAttribute("role", "region");
    const field = element("input", "input");
    field.setAttribute("aria-label", "Message to this teammate");
    field.placeholder = "Message this teammate only";
    const feedback = element("p", "hint told");
    feedback.setAttribute("role", "status");
    const send = controlButton("Send", () => this.view, () => {
      const agent = this.#agent();
      const text = field.value.trim();
      if (!agent || !text) return (feedback.textContent = "Enter a message."), null;
      return { control: "continue_agent", ...controlTarget(agent), agentId: agent.activityId, value: { text } };
    }, { feedback, sent: () => (field.value = "") });
    this.#writing = [field, send, feedback];
  }

  template() {
    this.hidden = this.#target === null;
    if (!this.#target) return nothing;
    const agent = this.#agent();
    const name = toText(agent?.content.agentName) || this.#target.id;
    const { sessionId, threadId, parentSessionId, parentThreadId, taskId, queuedTurnCount, status } = agent?.content ?? {};
    const all = this.#entries();
    const shown = all.slice(-this.#limit);
    const session = toText(sessionId);
    const canRead = session !== "" && (!this.#hasRead || this.#cursor !== null);
    const missing = this.#error || (all.length > 0 ? "" : session ? "No messages yet." : "Transcript unavailable: the source gave no session.");
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      /** @type {HTMLElement} */ (this.#writing[1]).click();
    };
    this.setAttribute("aria-label", `Transcript of ${name}`);
    return html`<header class="lane-head"><div class="spread"><h2>Transcript of ${name}</h2></div></header>
      <div class="spread who"><div class="row"><span class="card-title">${name}</span>${badge(status)}</div><button type="button" class="button" data-kind="quiet" @click=${() => this.close()}>Close transcript</button></div>
      ${factsTemplate([["Session", sessionId], ["Thread", threadId], ["Parent session", parentSessionId], ["Parent thread", parentThreadId], ["Task", taskId], ["Queued turns", queuedTurnCount]])}
      ${shown.length === all.length && !canRead ? nothing : html`<button type="button" class="button" data-kind="quiet" ?disabled=${this.#isReading} @click=${() => this.#loadEarlier()}>${shown.length < all.length ? `Show ${Math.min(ENTRIES_MAX, all.length - shown.length)} earlier` : this.#hasRead ? "Load earlier" : "Load session"}</button>`}
      <p class="note" role="status" data-state=${this.#error ? "failed" : "unknown"} ?hidden=${missing === ""}>${missing}</p>
      <ol class="entries">${repeat(shown, keyOf, (activity) => this.#entry(activity))}</ol>
      <form class="row write" ?hidden=${!this.view.isLive || !agent || ENDED_STATUSES.includes(toText(status))} @submit=${submit}>${this.#writing}</form>`;
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
    if (!session || this.#isReading) return;
    const requestId = ++this.#requestId;
    this.#isReading = true;
    this.update(null);
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
    this.#isReading = false;
    this.update(null);
  }

  /** @param {Activity} activity */
  #entry(activity) {
    const { activityType: type, content } = activity;
    const { label, title, status } = describe(activity);
    const waiting = type === "tool-call-progress" ? waitReason(this.view, activity) : undefined;
    return html`<li class="entry" data-key=${keyOf(activity)} data-kind=${type} data-role=${toText(content.role)}>
      <div class="spread"><div class="row"><span class="label">${type === "message" ? humanize(content.role) : label}</span><span class="title">${type === "message" ? "" : title}</span></div>
        <div class="row">${waiting ? badge("waiting", `waiting for ${waiting}`) : badge(status)}<button type="button" class="inspect" title="Show events" aria-label="Show events" @click=${() => this.view.inspect(activity)}>i</button></div></div>
      <p class="text" dir="auto">${textOf(activity)}</p></li>`;
  }
}

/**
 * @param {unknown} status
 * @param {string} [text] The text, if it is not the status.
 */
const badge = (status, text = humanize(status)) => html`<span class="badge" data-state=${stateOf(status)} data-status=${toText(status) || "unknown"}>${text}</span>`;

/** The texts of entries: an unchanged activity is the same object. @type {WeakMap<Activity, string>} */
const texts = new WeakMap();

/** @param {Activity} activity */
function textOf(activity) {
  const known = texts.get(activity);
  if (known !== undefined) return known;
  const { activityType, content } = activity;
  const text = activityType === "message" ? (content.parts ?? []).map((/** @type {any} */ part) => joinText(part.text)).join("\n") : content.text ? joinText(content.text) : describe(activity).text;
  const shown = text.length > TEXT_CHARS_MAX ? `…${text.slice(-TEXT_CHARS_MAX)}` : text || (content.withheld === true ? "withheld from this audience" : "");
  texts.set(activity, shown);
  return shown;
}

define("ps-teammate-transcript", TeammateTranscript);

/**
 * `ps-again`: try it again, under a message. A person edits a question or asks for another answer, which begins a branch.
 * Where there are several ways on, `‹ 2 of 3 ›` leads from one to the next.
 */

import { pathSegment, request } from "../client/http.js";
import { waysAt } from "../branches.js";
import { joinText, toText } from "./base.js";
import { failureOf, showToast } from "../toasts.js";
import { drawn } from "../ui/glyphs.js";
import { html, nothing, render, svg } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */
/** @typedef {import("../branches.js").Ways} Ways */

const PENCIL = drawn(svg`<path d="m3 13 .8-3.2L10.5 3.1a1 1 0 0 1 1.4 0l1 1a1 1 0 0 1 0 1.4L6.2 12.2z"/>`);
const AGAIN = drawn(svg`<path d="M12.5 6A5 5 0 1 0 13 9M13 3v3.5H9.5"/>`);
const CHANGES = { method: "POST", headers: { "content-type": "application/json", "x-proscenium-client": "page" } };

/** The files of a message, as a control names them. @param {Activity} activity */
function filesOf({ content }) {
  return (content.attachments ?? []).map((/** @type {any} */ file) => {
    const [url, mediaType, name] = [toText(file.url ?? file.source?.value), toText(file.mimeType ?? file.source?.mimeType), toText(file.filename)];
    const inline = /^data:([^;,]*);base64,(.*)$/s.exec(url);
    if (!inline && !url.startsWith("/v1/blobs/")) throw new Error("The message has a file that the server does not keep. Write it again, and attach the file.");
    return { ...(inline ? { data: inline[2], mediaType: inline[1] } : { href: url, mediaType }), ...(name && { name }) };
  });
}

/** Whether the token permits controls. */
const canControl = () => document.body.dataset.control !== "false";

/** @param {Activity} activity */
const wordsOf = ({ content }) => content.parts.map((/** @type {any} */ part) => joinText(part.text)).join("\n");

class TryAgain extends HTMLElement {
  /** @type {View | undefined} */
  #view;
  /** @type {Activity | undefined} */
  #activity;
  /** @type {Ways | undefined} */
  #ways;
  #isEditing = false;
  #isBusy = false;

  /**
   * @param {View} view
   * @param {Activity} activity A message of a run of a session.
   */
  show(view, activity) {
    [this.#view, this.#activity, this.#ways] = [view, activity, this.#waysBefore(view, activity)];
    this.#draw();
  }

  /** The ways on from the point before a message. @param {View} view @param {Activity} activity @returns {Ways | undefined} */
  #waysBefore({ tree, store, runs }, activity) {
    const { runId, opened } = activity;
    if (!tree || tree.branches.length === 0 || runId === undefined) return undefined;
    const sessions = new Map(store.sorted(({ activityType }) => activityType === "run").map((run) => [run.runId, toText(run.content.sessionId)]));
    const session = sessions.get(runId) ?? "";
    const before = store.sorted((one) => one.activityType === "message" && one.runId === runId && one.opened < opened).at(-1);
    return waysAt(tree, { session, runId, isFirstRun: runs.find((run) => sessions.get(run) === session) === runId, from: before?.opened ?? 0, opened });
  }

  get #isOfUser() {
    return this.#activity?.content.role === "user";
  }

  /** The question that the message answers, or that it is: the last one of the user before it in its run. */
  get #question() {
    const { store } = /** @type {View} */ (this.#view);
    const activity = /** @type {Activity} */ (this.#activity);
    if (this.#isOfUser) return activity;
    return store.sorted((one) => one.activityType === "message" && one.runId === activity.runId && one.content.role === "user" && one.opened <= activity.opened).at(-1);
  }

  #draw() {
    const [view, ways] = [this.#view, this.#ways];
    const canChange = view?.isLive === true && canControl() && this.#question !== undefined;
    const offers = !canChange || this.#isEditing ? nothing : this.#isOfUser
      ? html`<button type="button" class="button small icon-button" data-kind="quiet" aria-label="Edit the message" title="Edit the message: the conversation goes on from there in a branch" ?disabled=${this.#isBusy} @click=${() => this.#edit()}>${PENCIL}</button>`
      : html`<button type="button" class="button small icon-button" data-kind="quiet" aria-label="Try again" title="Ask for another answer, in a branch" ?disabled=${this.#isBusy} @click=${() => this.#begin(() => wordsOf(/** @type {Activity} */ (this.#question)))}>${AGAIN}</button>`;
    /** @param {number} step @param {string} label @param {string} sign */
    const step = (step, label, sign) => {
      const to = ways?.sessions[ways.at + step];
      return html`<button type="button" class="button small" data-kind="quiet" aria-label=${label} ?disabled=${to === undefined || this.#isBusy} @click=${() => to && this.#go(to)}>${sign}</button>`;
    };
    render(html`${ways ? html`<span class="ways" role="group" aria-label="Ways on from here">${step(-1, "The way before", "‹")}<span>${ways.at + 1} of ${ways.sessions.length}</span>${step(1, "The next way", "›")}</span>` : nothing}${offers}${this.#isEditing ? html`
      <form @submit=${(/** @type {SubmitEvent} */ event) => this.#send(event)} @keydown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && (event.stopPropagation(), this.#close())}>
        <label>Your message <textarea name="words" rows="3" .value=${wordsOf(/** @type {Activity} */ (this.#activity))}></textarea></label>
        <button class="button small" ?disabled=${this.#isBusy}>Send</button><button type="button" class="button small" data-kind="quiet" @click=${() => this.#close()}>Cancel</button>
      </form>` : nothing}`, this);
    this.toggleAttribute("data-open", ways !== undefined || this.#isEditing);
  }

  #edit() {
    this.#isEditing = true;
    this.#draw();
    this.querySelector("textarea")?.focus();
  }

  #close() {
    this.#isEditing = false;
    this.#draw();
    /** @type {HTMLElement | null} */ (this.querySelector("button"))?.focus();
  }

  /** @param {SubmitEvent} event */
  async #send(event) {
    event.preventDefault();
    const text = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get("words") ?? "").trim();
    if (text && await this.#begin(() => text)) this.#isEditing = false;
  }

  /**
   * Begins a branch before the question, sends the question there, and opens it.
   * @param {() => string} words
   */
  async #begin(words) {
    const [view, question] = [/** @type {View} */ (this.#view), /** @type {Activity} */ (this.#question)];
    const runId = /** @type {string} */ (question.runId);
    const run = view.store.sorted((one) => one.activityType === "run" && one.runId === runId).at(0);
    const earlier = view.store.sorted((one) => one.runId === runId && one.activityType !== "run" && one.opened < question.opened && one.content.role !== "user");
    return this.#attempt("The branch was not begun", async () => {
      const attachments = filesOf(question);
      const after = { runId, sequence: earlier.length > 0 ? question.opened - 1 : 0 };
      const { sessionId } = await this.#post(`/v1/sessions/${pathSegment(toText(view.sessionId))}/branches?audience=${view.audience}`, CHANGES, { after });
      const agentId = toText(run?.content.agentId);
      await view.act({ control: "send", session: sessionId, ...(agentId && { agentId }), value: { text: words(), ...(attachments.length > 0 && { attachments }) } });
      await this.#open(sessionId);
    });
  }

  /** @param {string} session */
  #go(session) {
    return this.#attempt("The other way was not opened", () => this.#open(session));
  }

  /** Opens a session of the tree, and lets existing clients follow. @param {string} session */
  async #open(session) {
    const view = /** @type {View} */ (this.#view);
    const root = view.tree?.root ?? view.sessionId;
    if (canControl()) await this.#post(`/v1/sessions/${pathSegment(toText(root))}`, { ...CHANGES, method: "PATCH" }, { head: session === root ? null : session });
    view.open({ kind: "session", id: session });
  }

  /** @param {string} path @param {RequestInit} how @param {object} body */
  async #post(path, how, body) {
    return (await request(/** @type {import("../client/http.js").Server} */ (this.#view?.server), path, { ...how, body: JSON.stringify(body) })).json();
  }

  /** @param {string} what @param {() => Promise<void>} work @returns {Promise<boolean>} */
  async #attempt(what, work) {
    this.#isBusy = true;
    this.#draw();
    try {
      await work();
      return true;
    } catch (error) {
      showToast({ text: `${what}: ${failureOf(error)}`, isFailure: true });
      return false;
    } finally {
      this.#isBusy = false;
      this.#draw();
    }
  }
}

customElements.define("ps-again", TryAgain);

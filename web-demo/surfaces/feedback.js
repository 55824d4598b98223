/**
 * `ps-feedback`: the thumbs under an answer, and words about it.
 *
 * The server knows whose feedback is whose. A content has it without its giver, so the element asks for its own.
 */

import { pathSegment, request } from "../client/http.js";
import { failureOf, showToast } from "../toasts.js";
import { drawn } from "../ui/glyphs.js";
import { html, nothing, render, svg } from "../vendor/lit.js";

/** @typedef {{ messageId?: string, thumb: "up" | "down" | null, text?: string, own: boolean }} Feedback */

const THUMB = svg`<path d="M5.5 7 8 2.5c1 0 1.6.8 1.4 1.8L9 6.5h3.3c.8 0 1.4.7 1.2 1.5l-.9 4.3c-.1.7-.7 1.2-1.4 1.2H5.5zM5.5 7h-3v6.5h3"/>`;
const ICONS = { up: drawn(THUMB), down: drawn(svg`<g transform="rotate(180 8 8)">${THUMB}</g>`) };
const LABELS = { up: "Good answer", down: "Bad answer" };
const WORDS_CHARS_MAX = 4096;

/** The feedback of runs, by the content for which it was read. @type {WeakMap<object, Promise<Feedback[]>>} */
const known = new WeakMap();

class FeedbackThumbs extends HTMLElement {
  /** @type {import("../client/http.js").Server | undefined} */
  #server;
  /** @type {import("./base.js").Activity | undefined} */
  #activity;
  /** @type {unknown} */
  #shown;
  /** @type {Feedback | undefined} */
  #own;
  #isAsking = false;

  /**
   * @param {import("./base.js").View} view
   * @param {import("./base.js").Activity} activity A message of a run.
   */
  show(view, activity) {
    [this.#server, this.#activity] = [view.server, activity];
    const { feedback } = activity.content;
    if (feedback === this.#shown && this.hasChildNodes()) return;
    this.#shown = feedback;
    if (feedback === undefined) this.#own = undefined;
    else void this.#read(feedback);
    this.#draw();
  }

  get #path() {
    return `/v1/runs/${pathSegment(/** @type {string} */ (this.#activity?.runId))}/feedback`;
  }

  /** @param {object} feedback */
  async #read(feedback) {
    const server = /** @type {import("../client/http.js").Server} */ (this.#server);
    let reading = known.get(feedback);
    if (!reading) known.set(feedback, reading = request(server, this.#path).then((answer) => answer.json()).then((answer) => answer.feedback));
    try {
      const all = await reading;
      if (this.#shown !== feedback) return;
      this.#own = all.find(({ own, messageId }) => own && messageId === this.#activity?.activityId);
      this.#draw();
    } catch (error) {
      known.delete(feedback);
      console.warn("The feedback of the run is unknown:", error);
    }
  }

  #draw() {
    const thumb = this.#own?.thumb;
    /** @param {"up" | "down"} which */
    const button = (which) => html`<button type="button" class="button small icon-button" data-kind="quiet" aria-label=${LABELS[which]} title=${LABELS[which]} aria-pressed=${thumb === which} @click=${() => this.#press(which)}>${ICONS[which]}</button>`;
    render(html`${button("up")}${button("down")}${this.#isAsking ? html`
      <form @submit=${(/** @type {SubmitEvent} */ event) => this.#send(event)} @keydown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && (event.stopPropagation(), this.#close())}>
        <label>What was wrong? <textarea name="words" rows="2" maxlength=${WORDS_CHARS_MAX} .value=${this.#own?.text ?? ""}></textarea></label>
        <button class="button small">Send</button><button type="button" class="button small" data-kind="quiet" @click=${() => this.#close()}>Skip</button>
      </form>` : nothing}`, this);
    this.toggleAttribute("data-open", this.#isAsking || thumb !== undefined && thumb !== null);
  }

  /** @param {"up" | "down"} which */
  async #press(which) {
    const isSame = this.#own?.thumb === which;
    this.#isAsking = which === "down" && !isSame;
    await this.#give(isSame ? { thumb: null } : { thumb: which });
    this.querySelector("textarea")?.focus();
  }

  /** @param {SubmitEvent} event */
  async #send(event) {
    event.preventDefault();
    const text = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get("words") ?? "");
    if (await this.#give({ thumb: "down", text })) this.#close();
  }

  #close() {
    this.#isAsking = false;
    this.#draw();
    /** @type {HTMLElement | null} */ (this.querySelector("[aria-pressed=true]"))?.focus();
  }

  /** @param {{ thumb: "up" | "down" | null, text?: string }} opinion @returns {Promise<boolean>} Whether the server has it. */
  async #give(opinion) {
    const body = JSON.stringify({ messageId: this.#activity?.activityId, ...opinion });
    try {
      const answer = await request(/** @type {import("../client/http.js").Server} */ (this.#server), this.#path, { method: "POST", headers: { "content-type": "application/json", "x-proscenium-client": "page" }, body });
      this.#own = await answer.json();
      this.#draw();
      return true;
    } catch (error) {
      this.#isAsking = false;
      this.#draw();
      showToast({ text: `The feedback was not saved: ${failureOf(error)}`, isFailure: true });
      return false;
    }
  }
}

customElements.define("ps-feedback", FeedbackThumbs);

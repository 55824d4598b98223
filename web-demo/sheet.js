/**
 * A dialog with a title, whose content is drawn again after each piece of work, and which says what came of that.
 */

import { failureOf } from "./toasts.js";
import { html, render } from "./vendor/lit.js";

export class Sheet {
  #dialog = document.createElement("dialog");
  #note = "";
  #isFailure = false;
  #title;
  #content;

  /** Whether work is under way: buttons wait for it. */
  isBusy = false;

  /**
   * @param {string} id
   * @param {string} title
   * @param {() => unknown} content
   */
  constructor(id, title, content) {
    this.#title = title;
    this.#content = content;
    Object.assign(this.#dialog, { className: "sheet", id });
    this.#dialog.setAttribute("aria-label", title);
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    this.#dialog.addEventListener("close", () => this.#dialog.remove());
  }

  open() {
    document.body.append(this.#dialog);
    this.draw();
    this.#dialog.showModal();
  }

  close() {
    this.#dialog.close();
  }

  /** @param {() => Promise<string>} work Its result is the note; empty for none. */
  async attempt(work) {
    [this.isBusy, this.#note] = [true, ""];
    this.draw();
    try {
      [this.#note, this.#isFailure] = [await work(), false];
    } catch (error) {
      [this.#note, this.#isFailure] = [failureOf(error), true];
    }
    this.isBusy = false;
    this.draw();
  }

  draw() {
    render(html`
      <div class="spread"><h2>${this.#title}</h2><button type="button" class="button" @click=${() => this.#dialog.close()}>Close</button></div>
      ${this.#content()}
      <p class="note" role="status" dir="auto" data-state=${this.#isFailure ? "failed" : "idle"} ?hidden=${this.#note === ""}>${this.#note}</p>`, this.#dialog);
  }
}

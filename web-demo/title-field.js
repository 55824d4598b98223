/**
 * The field that renames a session, in place of its title. Enter, and leaving the field, save; Escape restores. If the
 * server refuses the title, the field says why and keeps the text.
 */

import { TITLE_ORIGINS } from "./session-list.js";
import { failureOf } from "./toasts.js";
import { html, nothing } from "./vendor/lit.js";

/** @typedef {import("./session-entry.js").Entry} Entry */

export class TitleField {
  /**
   * @param {string} id Unique in the page.
   * @param {() => void} redraw
   * @param {(entry: Entry, title: string) => Promise<void>} save
   * @param {(entry: Entry) => void} closed Called after the field has closed by a key: takes the focus.
   */
  constructor(id, redraw, save, closed) {
    this.#id = id;
    this.#redraw = redraw;
    this.#save = save;
    this.#closed = closed;
  }

  #id;
  #redraw;
  #save;
  #closed;
  /** @type {Entry | undefined} */
  #entry;
  #text = "";
  #error = "";
  #isBusy = false;

  /** The key of the entry that is being renamed; empty for none. */
  get key() {
    return this.#entry?.key ?? "";
  }

  /** @param {Entry} entry */
  begin(entry) {
    [this.#entry, this.#text, this.#error, this.#isBusy] = [entry, entry.title, "", false];
    this.#redraw();
    const input = this.#input;
    input?.focus();
    input?.select();
  }

  /** Closes the field and saves nothing. */
  cancel() {
    this.#entry = undefined;
    this.#redraw();
  }

  get #input() {
    return /** @type {HTMLInputElement | null} */ (document.getElementById(this.#id));
  }

  template() {
    const entry = this.#entry;
    if (!entry) return nothing;
    return html`<form class="title-field" data-busy=${this.#isBusy} @submit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      void this.#finish(true);
    }} @keydown=${(/** @type {KeyboardEvent} */ event) => this.#handleKey(event)}>
      <input class="input" id=${this.#id} dir="auto" autocomplete="off" aria-label=${`Title of ${entry.title || entry.id}`} aria-invalid=${this.#error !== ""} aria-describedby=${`${this.#id}-note`} .value=${this.#text}
        @input=${(/** @type {InputEvent} */ { target }) => (this.#text = /** @type {HTMLInputElement} */ (target).value)} @blur=${() => document.hasFocus() && void this.#finish(false)}>
      <p id=${`${this.#id}-note`} data-failure=${this.#error !== ""} role=${this.#error ? "alert" : nothing} dir="auto">${this.#error || TITLE_ORIGINS[entry.titleFrom] || "No title yet"}</p>
    </form>`;
  }

  /** @param {KeyboardEvent} event */
  #handleKey(event) {
    // The keys of the page are not for a person who writes.
    event.stopPropagation();
    if (event.key !== "Escape") return;
    event.preventDefault();
    const entry = this.#entry;
    this.cancel();
    if (entry) this.#closed(entry);
  }

  /** @param {boolean} isByKey Whether the focus is to go back to the title. */
  async #finish(isByKey) {
    const entry = this.#entry;
    if (!entry || this.#isBusy) return;
    const title = this.#text;
    this.#error = "";
    if (title !== entry.title) {
      this.#isBusy = true;
      this.#redraw();
      try {
        await this.#save(entry, title);
      } catch (error) {
        this.#error = failureOf(error);
      }
      this.#isBusy = false;
    }
    // Meanwhile a person may rename another one.
    if (this.#entry !== entry) return;
    if (this.#error) return this.#redraw();
    this.cancel();
    if (isByKey) this.#closed(entry);
  }
}

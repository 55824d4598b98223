/**
 * The approving buttons of a decision: the narrowest yes, and a menu with those that reach further. One click in the
 * menu sends what its item says, so the button and its key never mean more than they did before.
 */

import { focusedBeside } from "./base.js";
import { WIDTHS } from "./decision.js";
import { chevron } from "../ui/glyphs.js";
import { t } from "../ui/texts.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./decision.js").Option} Option */

export class AllowMenu {
  #host;
  #redraw;
  #isOpen = false;

  /**
   * @param {HTMLElement} host The card.
   * @param {() => void} redraw
   */
  constructor(host, redraw) {
    this.#host = host;
    this.#redraw = redraw;
  }

  close() {
    this.#isOpen = false;
  }

  /**
   * @param {unknown} main The button of the narrowest yes; `nothing` if a person must choose.
   * @param {Option[]} wider
   * @param {boolean} isDisabled
   * @param {(option: Option) => void} send
   */
  template(main, wider, isDisabled, send) {
    const blur = (/** @type {FocusEvent} */ { currentTarget, relatedTarget }) => {
      if (!this.#isOpen || (relatedTarget instanceof Node && /** @type {Element} */ (currentTarget).contains(relatedTarget))) return;
      this.#isOpen = false;
      this.#redraw();
    };
    const isAlone = main === nothing;
    return html`<span class="split" @focusout=${blur}>${main}
      <button type="button" class="button split-more" data-kind=${isAlone ? "plain" : "primary"} aria-label=${t("Allow more")} title=${t("Allow more")} aria-haspopup="menu" aria-expanded=${this.#isOpen} ?disabled=${isDisabled} @click=${() => this.#toggle()}>${isAlone ? t("Allow…") : nothing}${chevron("down")}</button>
      ${this.#isOpen ? this.#items(wider, send) : nothing}</span>`;
  }

  #toggle() {
    this.#isOpen = !this.#isOpen;
    this.#redraw();
    /** @type {HTMLElement | null} */ (this.#host.querySelector(this.#isOpen ? '[role="menuitem"]' : ".split-more"))?.focus();
  }

  /**
   * @param {Option[]} options
   * @param {(option: Option) => void} send
   */
  #items(options, send) {
    // A press must not move the focus out of the menu, which would close it before the click.
    const hold = (/** @type {Event} */ event) => event.preventDefault();
    const click = (/** @type {Option} */ option) => {
      this.#isOpen = false;
      send(option);
    };
    const item = (/** @type {Option} */ option) => html`<button type="button" role="menuitem" data-width=${option.width ?? "unknown"} @click=${() => click(option)}>
      <b dir="auto">${option.label.slice(0, 1).toUpperCase()}${option.label.slice(1)}</b><span dir="auto">${option.description || t(WIDTHS[option.width ?? "unknown"])}</span></button>`;
    return html`<span class="split-menu" role="menu" aria-label=${t("Allow more")} @mousedown=${hold} @keydown=${(/** @type {KeyboardEvent} */ event) => this.#handleKey(event)}>${options.map(item)}</span>`;
  }

  /** @param {KeyboardEvent} event */
  #handleKey(event) {
    if (event.key === "Escape") this.#toggle();
    else if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    event.stopPropagation();
    const items = /** @type {HTMLElement[]} */ ([...this.#host.querySelectorAll('[role="menuitem"]')]);
    const at = items.indexOf(/** @type {HTMLElement} */ (focusedBeside(this.#host)));
    items[(at + (event.key === "ArrowDown" ? 1 : items.length - 1)) % items.length]?.focus();
  }
}

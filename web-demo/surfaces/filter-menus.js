/**
 * The menus of a filter: for each facet the values that the list has, to show or to hide.
 */

import { icon } from "../ui/icons.js";
import { html, nothing } from "../vendor/lit.js";
import { formatCount } from "./base.js";

/**
 * @template {string} Name
 * @typedef {import("./filter-terms.js").Term<Name>} Term
 */

/** Values that a menu lists. */
const VALUES_MAX = 200;

/** @template {string} Facet */
export class FilterMenus {
  /** The terms of the filter that the menus made. @type {Term<Facet>[]} */
  terms = [];
  /** The facet whose menu is open. @type {Facet | undefined} */
  #open;
  #labels;
  #changed;
  #redraw;

  /**
   * @param {Record<Facet, string>} labels The facets.
   * @param {() => void} changed Called with other terms.
   * @param {() => void} redraw Called after a menu opened or closed.
   */
  constructor(labels, changed, redraw) {
    this.#labels = labels;
    this.#changed = changed;
    this.#redraw = redraw;
  }

  /** @param {Facet} _facet @returns {Iterable<[string, number]>} The values of a facet, and how many rows have each. */
  valuesOf(_facet) {
    return [];
  }

  /** @param {Term<Facet>[]} terms */
  set(terms) {
    this.terms = terms;
    this.#changed();
  }

  /**
   * The menus.
   * @param {Facet[]} facets
   * @param {(facet: Facet, value: string) => string} nameOf Returns the text for a value.
   */
  menus(facets, nameOf) {
    return html`<div class="filter-menus">${facets.map((facet) => this.#menu(facet, nameOf))}</div>`;
  }

  /**
   * A chip that removes terms of one facet.
   * @param {Term<Facet>[]} terms All excluded, or none.
   * @param {string} [words] What it says.
   */
  chip(terms, words = this.nameOf(terms)) {
    return html`<button type="button" class="tag term" aria-label="Remove the filter ${words}" title="Remove" @click=${() => this.set(this.terms.filter((one) => !terms.includes(one)))}><span class="truncate">${words}</span>${icon("close")}</button>`;
  }

  /** @param {Term<Facet>[]} terms Of one facet. */
  nameOf(terms) {
    const [{ facet, isExcluded }] = terms;
    return `${this.#labels[/** @type {Facet} */ (facet)]}: ${isExcluded ? "not " : ""}${terms.map(({ pattern }) => pattern).join(", ")}`;
  }

  /**
   * @param {Facet} facet
   * @param {(facet: Facet, value: string) => string} nameOf
   */
  #menu(facet, nameOf) {
    const label = this.#labels[facet];
    // A closed menu is empty: it would be drawn with each new row.
    const values = this.#open === facet ? [...this.valuesOf(facet)].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, VALUES_MAX) : [];
    const own = this.terms.filter((term) => term.facet === facet);
    const others = this.terms.filter((term) => term.facet !== facet);
    const included = own.filter(({ isExcluded }) => !isExcluded).map(({ pattern }) => pattern);
    const isShown = (/** @type {string} */ value) => (included.length === 0 || included.includes(value)) && !own.some(({ pattern, isExcluded }) => isExcluded && pattern === value);
    const without = (/** @type {string} */ value) => this.terms.filter((term) => term.facet !== facet || term.pattern !== value);
    const toggle = (/** @type {string} */ value) => {
      const isListed = included.length > 0 ? included.includes(value) : !isShown(value);
      this.set(isListed ? without(value) : [...this.terms, { facet, pattern: value, isExcluded: included.length === 0 }]);
    };
    const handleToggle = (/** @type {ToggleEvent} */ { newState }) => {
      if (newState === "open") this.#open = facet;
      else if (this.#open === facet) this.#open = undefined;
      this.#redraw();
    };
    const handleKey = (/** @type {KeyboardEvent} */ event) => {
      const menu = /** @type {HTMLDetailsElement} */ (event.currentTarget);
      if (event.key !== "Escape" || !menu.open) return;
      event.stopPropagation();
      menu.open = false;
      menu.querySelector("summary")?.focus();
    };
    return html`<details class="filter-menu" name="filter-menu" @toggle=${handleToggle} @keydown=${handleKey}><summary class="button small" ?data-active=${own.length > 0}>${label}${icon("chevron-down")}</summary>
      <div class="filter-values" role="group" aria-label=${label}>${values.map(([value, count]) => html`<div><label><input type="checkbox" .checked=${isShown(value)} @change=${() => toggle(value)}><span class="truncate" title=${value}>${nameOf(facet, value)}</span><span class="count">${formatCount(count)}</span></label><button type="button" class="link" aria-label="Only ${value}" @click=${() => this.set([...others, { facet, pattern: value, isExcluded: false }])}>only</button></div>`)}
        ${own.length > 0 ? html`<button type="button" class="button small" data-kind="quiet" @click=${() => this.set(others)}>Show all</button>` : nothing}</div></details>`;
  }
}

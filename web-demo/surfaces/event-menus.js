/**
 * The menus of the events' filter: for each facet the values of the loaded events, to show or to hide.
 */

import { icon } from "../ui/icons.js";
import { html, nothing } from "../vendor/lit.js";
import { formatCount } from "./base.js";
import { FACETS } from "./event-filter.js";

/** @typedef {import("./event-filter.js").Facet} Facet */
/** @typedef {import("./event-filter.js").Term} Term */
/** @typedef {import("./event-log.js").Row} Row */

/** Values that a menu lists. */
const VALUES_MAX = 200;

/** @type {Record<Facet, string>} */
const LABELS = { type: "Type", owner: "Owner", audience: "Audience", agent: "Agent", run: "Run" };

export class EventMenus {
  /** The terms of the filter that the menus made. @type {Term[]} */
  terms = [];
  /** How many loaded rows have each value, by facet. @type {Map<Facet, Map<string, number>>} */
  #counts = new Map();
  /** The facet whose menu is open. @type {Facet | undefined} */
  #open;
  #changed;
  #redraw;

  /**
   * @param {() => void} changed Called with other terms.
   * @param {() => void} redraw Called after a menu opened or closed.
   */
  constructor(changed, redraw) {
    this.#changed = changed;
    this.#redraw = redraw;
  }

  /** Counts the values of a loaded row. @param {Row} row */
  count(row) {
    for (const facet of FACETS) {
      if (row[facet] === "") continue;
      const values = this.#counts.get(facet) ?? new Map();
      this.#counts.set(facet, values.set(row[facet], (values.get(row[facet]) ?? 0) + 1));
    }
  }

  /** Forgets the counted rows. */
  clear() {
    this.#counts.clear();
  }

  /** @param {Term[]} terms */
  #set(terms) {
    this.terms = terms;
    this.#changed();
  }

  /** @param {(facet: Facet, value: string) => string} nameOf Returns the text for a value. */
  template(nameOf) {
    return html`<div class="events-menus">${FACETS.filter((facet) => facet !== "run" || (this.#counts.get("run")?.size ?? 0) > 1).map((facet) => this.#menu(facet, nameOf))}</div>
      ${this.terms.length > 0 ? html`<div class="events-terms">${this.terms.map((term) => this.#chip(term))}</div>` : nothing}`;
  }

  /** @param {Term} term */
  #chip(term) {
    const words = `${LABELS[/** @type {Facet} */ (term.facet)]}: ${term.isExcluded ? "not " : ""}${term.pattern}`;
    return html`<button type="button" class="tag term" aria-label="Remove the filter ${words}" @click=${() => this.#set(this.terms.filter((one) => one !== term))}>${words}${icon("close")}</button>`;
  }

  /**
   * @param {Facet} facet
   * @param {(facet: Facet, value: string) => string} nameOf
   */
  #menu(facet, nameOf) {
    // A closed menu is empty: it would be drawn with each new row.
    const values = this.#open === facet ? [...(this.#counts.get(facet) ?? [])].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, VALUES_MAX) : [];
    const own = this.terms.filter((term) => term.facet === facet);
    const others = this.terms.filter((term) => term.facet !== facet);
    const included = own.filter(({ isExcluded }) => !isExcluded).map(({ pattern }) => pattern);
    const isShown = (/** @type {string} */ value) => (included.length === 0 || included.includes(value)) && !own.some(({ pattern, isExcluded }) => isExcluded && pattern === value);
    const without = (/** @type {string} */ value) => this.terms.filter((term) => term.facet !== facet || term.pattern !== value);
    const toggle = (/** @type {string} */ value) => {
      const isListed = included.length > 0 ? included.includes(value) : !isShown(value);
      this.#set(isListed ? without(value) : [...this.terms, { facet, pattern: value, isExcluded: included.length === 0 }]);
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
    return html`<details class="events-menu" name="events-menu" @toggle=${handleToggle} @keydown=${handleKey}><summary class="button small" ?data-active=${own.length > 0}>${LABELS[facet]}${icon("chevron-down")}</summary>
      <div class="events-values" role="group" aria-label=${LABELS[facet]}>${values.map(([value, count]) => html`<div><label><input type="checkbox" .checked=${isShown(value)} @change=${() => toggle(value)}><span class="truncate" title=${value}>${nameOf(facet, value)}</span><span class="count">${formatCount(count)}</span></label><button type="button" class="link" aria-label="Only ${value}" @click=${() => this.#set([...others, { facet, pattern: value, isExcluded: false }])}>only</button></div>`)}
        ${own.length > 0 ? html`<button type="button" class="button small" data-kind="quiet" @click=${() => this.#set(others)}>Show all</button>` : nothing}</div></details>`;
  }
}

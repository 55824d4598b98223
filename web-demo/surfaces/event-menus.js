/**
 * The menus of the events' filter: for each facet the values of the loaded events.
 */

import { html, nothing } from "../vendor/lit.js";
import { FACETS } from "./event-filter.js";
import { FilterMenus } from "./filter-menus.js";

/** @typedef {import("./event-filter.js").Facet} Facet */
/** @typedef {import("./event-log.js").Row} Row */

/** @type {Record<Facet, string>} */
const LABELS = { type: "Type", owner: "Owner", audience: "Audience", agent: "Agent", run: "Run" };

/** @extends {FilterMenus<Facet>} */
export class EventMenus extends FilterMenus {
  /** How many loaded rows have each value, by facet. @type {Map<Facet, Map<string, number>>} */
  #counts = new Map();

  /**
   * @param {() => void} changed Called with other terms.
   * @param {() => void} redraw Called after a menu opened or closed.
   */
  constructor(changed, redraw) {
    super(LABELS, changed, redraw);
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

  /** @param {Facet} facet */
  valuesOf(facet) {
    return this.#counts.get(facet) ?? [];
  }

  /** @param {(facet: Facet, value: string) => string} nameOf Returns the text for a value. */
  template(nameOf) {
    const facets = FACETS.filter((facet) => facet !== "run" || (this.#counts.get("run")?.size ?? 0) > 1);
    return html`${this.menus(facets, nameOf)}
      ${this.terms.length > 0 ? html`<div class="filter-terms">${this.terms.map((term) => this.chip([term]))}</div>` : nothing}`;
  }
}

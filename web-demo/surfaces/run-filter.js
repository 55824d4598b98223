/**
 * The filter of the runs: chips for its terms, a text for its words, and a range of time. The server reads its text.
 */

import { formatTerm, parseTerms } from "./filter-terms.js";
import { FilterMenus } from "./filter-menus.js";

/** @typedef {"status" | "agent" | "source" | "owner"} Facet A member of which the server counts the values. */
/** @typedef {Facet | "cost" | "duration" | "tokens" | "since" | "session" | "run"} Name */
/** @typedef {import("./filter-terms.js").Term<Name>} Term */

/** @type {Facet[]} */
const FACETS = ["status", "agent", "source", "owner"];
/** @type {Record<Name, string>} */
const LABELS = { status: "Status", agent: "Agent", source: "Source", cost: "Cost", duration: "Duration", tokens: "Tokens", since: "Since", session: "Session", run: "Run", owner: "Owner" };
const NAMES = /** @type {Name[]} */ (Object.keys(LABELS));

/** The ranges of time, by their value in the filter. @type {[string, string, string][]} */
export const RANGES = [["", "Any time", "of all time"], ["1h", "1 hour", "in the last hour"], ["24h", "24 hours", "in the last 24 hours"], ["7d", "7 days", "in the last 7 days"], ["30d", "30 days", "in the last 30 days"]];

/** @extends {FilterMenus<Name>} */
export class RunFilter extends FilterMenus {
  /** The words that are typed. */
  text = "";
  /** The range of time; empty for any. */
  since = "";
  /** @type {(facet: string) => Record<string, number>} */
  #counts;

  /**
   * @param {(facet: string) => Record<string, number>} counts Returns how many runs have each value.
   * @param {() => void} changed
   * @param {() => void} redraw
   */
  constructor(counts, changed, redraw) {
    super(LABELS, changed, redraw);
    this.#counts = counts;
  }

  /** @param {Name} facet @returns {[string, number][]} */
  valuesOf(facet) {
    // What is chosen stays on the list, also if no run has it.
    const chosen = this.terms.filter((term) => term.facet === facet).map(({ pattern }) => /** @type {[string, number]} */ ([pattern, 0]));
    return Object.entries({ ...Object.fromEntries(chosen), ...this.#counts(facet) });
  }

  /** The facets that have a menu: a server without owners has none of them. */
  get facets() {
    return FACETS.filter((facet) => facet !== "owner" || this.valuesOf(facet).length > 0);
  }

  /** The filter as the server reads it. */
  get value() {
    return this.valueWith(this.terms);
  }

  /** The same with other terms. @param {Term[]} terms */
  valueWith(terms) {
    const words = parseTerms(this.text, NAMES);
    const since = this.since ? [{ facet: /** @type {const} */ ("since"), pattern: this.since, isExcluded: false }] : [];
    return [...terms, ...since, ...words].map(formatTerm).join(" ");
  }

  set value(text) {
    const all = parseTerms(text, NAMES);
    this.since = all.find(({ facet }) => facet === "since")?.pattern ?? "";
    this.terms = all.filter(({ facet }) => facet !== "text" && facet !== "since");
    this.text = all.filter(({ facet }) => facet === "text").map(formatTerm).join(" ");
  }

  /** @param {Term[]} terms Of one name. A comparison reads as one: `Cost > 1`. */
  nameOf(terms) {
    return super.nameOf(terms).replace(/: ([<>]=?)\s*/, " $1 ");
  }

  /** The words that a row marks. */
  get words() {
    return parseTerms(this.text, NAMES).filter(({ facet, isExcluded }) => facet === "text" && !isExcluded).map(({ pattern }) => pattern);
  }

  /** Makes chips of the terms that are typed. @returns {boolean} Whether there were any. */
  takeTerms() {
    const typed = parseTerms(this.text, NAMES);
    const terms = typed.filter(({ facet }) => facet !== "text");
    if (terms.length === 0) return false;
    this.since = terms.findLast(({ facet }) => facet === "since")?.pattern ?? this.since;
    this.terms = [...this.terms, ...terms.filter(({ facet }) => facet !== "since")];
    this.text = typed.filter(({ facet }) => facet === "text").map(formatTerm).join(" ");
    return true;
  }

  /** Whether anything besides the range of time is filtered. */
  get isNarrow() {
    return this.terms.length > 0 || this.text.trim() !== "";
  }

  /** Whether the counts of statuses are those of all runs of the range: a facet is counted without its own terms. */
  get hasAllStatuses() {
    return this.text.trim() === "" && this.terms.every(({ facet }) => facet === "status");
  }

  clear() {
    [this.text, this.since] = ["", ""];
    this.set([]);
  }

  /** The chips: one for all alternatives of a name. */
  chips() {
    /** @type {Map<string, Term[]>} */
    const groups = new Map();
    for (const term of this.terms) {
      const key = `${term.isExcluded} ${term.facet}`;
      groups.set(key, [...(groups.get(key) ?? []), term]);
    }
    return [...groups.values()].map((terms) => this.chip(terms));
  }
}

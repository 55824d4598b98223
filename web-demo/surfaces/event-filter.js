/**
 * The filter of the events: a text with words and `name:pattern` terms.
 *
 * Terms of one name are alternatives (`type:text.* type:plan.*`), other terms must all hold. A minus excludes
 * (`-type:text.delta`). `*` stands for any characters. A pattern with spaces stands in quotation marks.
 */

import { parseTerms } from "./filter-terms.js";

/** @typedef {import("./event-log.js").Row} Row */
/** @typedef {"type" | "owner" | "audience" | "agent" | "run"} Facet A member by which rows are filtered. */
/** @typedef {import("./filter-terms.js").Term<Facet>} Term */

/** @type {Facet[]} */
export const FACETS = ["type", "owner", "audience", "agent", "run"];

/** @param {string} text @returns {Term[]} */
export const parseFilter = (text) => parseTerms(text, FACETS);

/** @param {string} text */
const escape = (text) => text.replace(/[.+?^${}()|[\]\\]/g, "\\$&");

/**
 * Makes a predicate.
 * @param {Term[]} terms
 * @returns {(row: Row) => boolean}
 */
export function matcherOf(terms) {
  /** @type {((row: Row) => boolean)[]} */
  const tests = [];
  for (const { pattern, isExcluded } of terms.filter(({ facet }) => facet === "text")) {
    const found = new RegExp(escape(pattern).replaceAll("*", ".*"), "i");
    tests.push(({ json }) => found.test(json) !== isExcluded);
  }
  for (const facet of FACETS) {
    const whole = (/** @type {Term} */ { pattern }) => new RegExp(`^${escape(pattern).replaceAll("*", ".*")}$`, "i");
    const own = terms.filter((term) => term.facet === facet);
    const [wanted, unwanted] = [own.filter((term) => !term.isExcluded).map(whole), own.filter((term) => term.isExcluded).map(whole)];
    if (wanted.length > 0) tests.push((row) => wanted.some((pattern) => pattern.test(row[facet])));
    if (unwanted.length > 0) tests.push((row) => !unwanted.some((pattern) => pattern.test(row[facet])));
  }
  return (row) => tests.every((test) => test(row));
}

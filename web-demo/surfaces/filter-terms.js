/**
 * The terms of a filter's text: words, and `name:pattern` for the names that the list has.
 *
 * The events are filtered here by these terms, the runs by the server, which reads the same language.
 */

/**
 * @template {string} [Name=string]
 * @typedef {{ facet: Name | "text", pattern: string, isExcluded: boolean }} Term
 */

/**
 * @template {string} Name
 * @param {string} text
 * @param {readonly Name[]} names The names of terms. Another name is a word.
 * @returns {Term<Name>[]}
 */
export function parseTerms(text, names) {
  const term = new RegExp(`(-)?(?:(${names.join("|")}):)?("[^"]*"|\\S+)`, "g");
  return [...text.matchAll(term)]
    .map(([, minus, facet = "text", pattern]) => ({ facet: /** @type {Name | "text"} */ (facet), pattern: pattern.replace(/^"(.*)"$/, "$1"), isExcluded: minus !== undefined }))
    .filter(({ pattern }) => pattern !== "");
}

/** @param {Term} term @returns {string} Its text, which `parseTerms` reads. */
export const formatTerm = ({ facet, pattern, isExcluded }) => `${isExcluded ? "-" : ""}${facet === "text" ? "" : `${facet}:`}${/[\s:]/.test(pattern) || (facet === "text" && pattern.startsWith("-")) ? `"${pattern}"` : pattern}`;

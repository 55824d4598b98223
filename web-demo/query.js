/**
 * Elements of the page's own markup.
 */

/**
 * Returns an element that the page must have.
 * @template {HTMLElement} T
 * @param {string} selector
 * @param {new () => T} kind
 * @returns {T}
 */
export function query(selector, kind) {
  const found = document.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`The page has no element ${selector}.`);
  return found;
}

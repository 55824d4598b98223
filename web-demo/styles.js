/**
 * Style sheets that load with the parts that need them.
 */

/** The style sheets that have begun to load, by path. @type {Map<string, Promise<void>>} */
const sheets = new Map();

/** Adds a sheet to the page. @type {(path: string) => Promise<void>} */
let load = (path) => new Promise((resolve) => {
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL(path, import.meta.url).href, onload: () => resolve(), onerror: () => resolve() }));
});

/**
 * Loads sheets in another way: on a page of others they belong into shadow roots.
 * @param {(path: string) => Promise<void>} other
 */
export function loadStylesBy(other) {
  load = other;
}

/**
 * Loads a style sheet once.
 * @param {string} path Relative to the page's folder.
 * @returns {Promise<void>} Resolves when it applies, or has failed to load: an element without styles is better than none.
 */
export function loadStyle(path) {
  let pending = sheets.get(path);
  if (!pending) {
    pending = load(path);
    sheets.set(path, pending);
  }
  return pending;
}

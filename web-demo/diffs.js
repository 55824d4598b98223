/**
 * Loads what draws diffs: no first screen needs it.
 */

import { loadStyle } from "./styles.js";

/** @returns {Promise<typeof import("./ui/diff.js")>} */
export async function loadDiffs() {
  const [module] = await Promise.all([import("./ui/diff.js"), loadStyle("ui/diff.css")]);
  return module;
}

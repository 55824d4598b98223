/** The text of an A2UI surface: an interface that an agent generated. */

import { toText } from "./base.js";

/** Members of a component of A2UI that hold its words. */
const WORDS = ["text", "label", "title", "name", "url"];

/**
 * Lists the components of an A2UI surface with their words. Nothing of the surface runs.
 * @param {Record<string, any>} content
 */
export function describeSurface({ components = {}, dataModel, status }) {
  const words = (/** @type {any} */ value) => {
    const bound = typeof value?.path === "string" ? value.path.split("/").filter(Boolean).reduce((/** @type {any} */ at, /** @type {string} */ name) => at?.[name], dataModel) : value;
    return ["string", "number", "boolean"].includes(typeof bound) ? String(bound) : "";
  };
  const lines = Object.values(components).map((one) => [toText(one?.component), ...WORDS.map((member) => words(one?.[member]))].filter(Boolean).join(": "));
  return [status === "ready" ? "" : toText(status), ...lines].filter(Boolean).join("\n");
}

/**
 * Values of a content that the server moved to blobs, read back for a person who decides about them.
 */

import { parseJson } from "../client/json.js";
import { toText } from "./base.js";

/** @typedef {import("./base.js").CardView} CardView */

/** A content with whole values in the places of their previews, once the bodies are loaded. */
export class WholeContent {
  #redraw;
  /** The locations of the bodies that are loaded or being loaded. A response for others is dropped. */
  #key = "";
  /** The loaded values, by their pointers. @type {[string, unknown][] | undefined} */
  #values;
  /** The last content and its whole. @type {[Record<string, any>, Record<string, any>] | undefined} */
  #last;
  /** Why a body was not loaded. */
  problem = "";

  /** @param {() => void} redraw Called when the values are loaded. */
  constructor(redraw) {
    this.#redraw = redraw;
  }

  /**
   * Returns the content; it has no member `bodies` if all of its values are whole.
   * @param {CardView} view
   * @param {Record<string, any>} content
   * @returns {Record<string, any>}
   */
  of(view, content) {
    if (content.bodies === undefined) return content;
    const key = JSON.stringify(content.bodies);
    if (key !== this.#key) {
      this.#key = key;
      this.#values = undefined;
      this.problem = "";
      void this.#load(view, content.bodies, key);
    }
    if (this.#values === undefined) return content;
    if (this.#last?.[0] !== content) this.#last = [content, withValues(content, this.#values)];
    return this.#last[1];
  }

  /**
   * @param {CardView} view
   * @param {Record<string, any>} bodies
   * @param {string} key
   */
  async #load(view, bodies, key) {
    try {
      const reads = await view.reads();
      const loads = Object.entries(bodies).map(async ([pointer, link]) => {
        const { blob } = await reads.blob(toText(link?.href), { audience: view.audience });
        const text = await blob.text();
        return /** @type {[string, unknown]} */ ([pointer, link.mediaType === "application/json" ? parseJson(text) : text]);
      });
      const values = await Promise.all(loads);
      if (key !== this.#key) return;
      this.#values = values;
    } catch (error) {
      if (key !== this.#key) return;
      this.problem = error instanceof Error ? error.message : String(error);
    }
    this.#last = undefined;
    this.#redraw();
  }
}

/**
 * Returns a content with these values at their JSON pointers.
 * @param {Record<string, any>} content
 * @param {[string, unknown][]} values
 */
function withValues(content, values) {
  const { bodies: _, clipped: __, ...whole } = structuredClone(content);
  for (const [pointer, value] of values) {
    const path = pointer.slice(1).split("/").map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
    const name = /** @type {string} */ (path.pop());
    const holder = path.reduce((/** @type {any} */ inner, token) => inner?.[token], whole);
    if (typeof holder?.[name] === "string") holder[name] = value;
  }
  return whole;
}

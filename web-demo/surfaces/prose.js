/**
 * Text that grows: appending costs what is appended, not what is there.
 *
 * It stands in paragraphs. Only the last one changes while text streams, so that the browser lays out that one anew.
 */

import { element } from "./base.js";

/** A paragraph is not made longer than this, in characters, where it has a line's end to be cut at. */
const PARAGRAPH_MAX = 4000;

export class Prose {
  #root;
  #text = "";
  /** @type {Text | undefined} */
  #last;

  /** @param {HTMLElement} root Its children are this object's alone. */
  constructor(root) {
    this.#root = root;
  }

  /** @param {string} text The whole of it, as it now is. */
  set(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) this.#clear();
    const chunk = text.slice(this.#text.length);
    this.#text = text;
    this.#append(chunk);
  }

  #clear() {
    this.#root.replaceChildren();
    this.#text = "";
    this.#last = undefined;
  }

  /** @param {string} chunk */
  #append(chunk) {
    if (!this.#last) this.#begin();
    const paragraph = /** @type {Text} */ (this.#last);
    paragraph.appendData(chunk);
    for (;;) {
      const now = /** @type {Text} */ (this.#last);
      const cut = endOfParagraph(now.data);
      if (cut < 0) return;
      const rest = now.data.slice(cut);
      // What separates two paragraphs stays with the first: whoever copies the text gets it whole.
      now.data = now.data.slice(0, cut);
      this.#begin();
      this.#last?.appendData(rest);
    }
  }

  #begin() {
    const paragraph = element("p");
    this.#last = document.createTextNode("");
    paragraph.append(this.#last);
    this.#root.append(paragraph);
  }
}

/**
 * Where the first paragraph of a text ends: behind its empty line, or its last line end before it gets too long.
 * @param {string} text
 * @returns {number} -1, while it goes on.
 */
function endOfParagraph(text) {
  const empty = text.indexOf("\n\n");
  if (empty >= 0 && empty + 2 < text.length) return empty + 2;
  if (text.length <= PARAGRAPH_MAX) return -1;
  const line = text.lastIndexOf("\n", PARAGRAPH_MAX);
  return line > 0 ? line + 1 : -1;
}

/**
 * Who the page says it is, where the server asks: a token that somebody pasted.
 *
 * It is kept for as long as the tab is there (`sessionStorage`), and goes out in a header and in nothing else. What stands in a
 * stream's address is a ticket, which is good once, for that stream; the client makes it.
 */

const KEY = "proscenium.token";

export class Token {
  #text = sessionStorage.getItem(KEY) ?? "";

  /** Whether there is one. */
  get isGiven() {
    return this.#text !== "";
  }

  /** For whoever asks the server. @returns {string | undefined} */
  get text() {
    return this.#text || undefined;
  }

  /** @param {string} text Nothing, to forget the one that there is. */
  give(text) {
    this.#text = text;
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  }
}

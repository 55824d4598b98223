/**
 * The bearer token that a person enters, where the server requires one.
 *
 * The page keeps it in `sessionStorage`, until the tab closes, and sends it only in a header. The address of a stream
 * contains a ticket instead, which is valid once, for that stream. The client fetches the ticket.
 */

const KEY = "proscenium.token";

export class Token {
  #text = sessionStorage.getItem(KEY) ?? "";

  /** Whether a token is set. */
  get hasToken() {
    return this.#text !== "";
  }

  /** The token for requests. @returns {string | undefined} */
  get value() {
    return this.#text || undefined;
  }

  /** @param {string} text Empty to remove the token. */
  set(text) {
    this.#text = text;
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  }
}

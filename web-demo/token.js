/**
 * Who the page says it is, where the server asks: a token that somebody pasted.
 *
 * It is kept for as long as the tab is there (`sessionStorage`), and goes out in a header and in nothing else. What stands in a
 * stream's address is a ticket, which is good once, for that run.
 */

const KEY = "proscenium.token";

export class Token {
  #text = sessionStorage.getItem(KEY) ?? "";

  /** Whether there is one. */
  get isGiven() {
    return this.#text !== "";
  }

  /** @param {string} text Nothing, to forget the one that there is. */
  give(text) {
    this.#text = text;
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  }

  /**
   * @param {string} path
   * @param {RequestInit} [init]
   */
  fetch(path, init = {}) {
    const headers = new Headers(init.headers);
    if (this.#text) headers.set("authorization", `Bearer ${this.#text}`);
    return fetch(path, { ...init, headers });
  }

  /**
   * For a stream of this run; nothing, where there is no token to make one with.
   * @param {string} run
   * @returns {Promise<string>}
   */
  async ticket(run) {
    if (!this.#text) return "";
    const body = JSON.stringify({ for: "stream", run });
    const answer = await this.fetch("/v1/tickets", { method: "POST", headers: { "content-type": "application/json" }, body });
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.detail);
    return told.ticket;
  }
}

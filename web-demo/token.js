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

/** The form for a token, shown where the server requires one. */
export class TokenForm {
  /**
   * @param {Token} token
   * @param {() => void} onChange Called after a person entered another token.
   */
  constructor(token, onChange) {
    this.#token = token;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      const entered = new FormData(this.#form).get("token");
      this.#form.reset();
      token.set(typeof entered === "string" ? entered.trim() : "");
      onChange();
    });
  }

  #token;
  #form = /** @type {HTMLFormElement} */ (document.getElementById("token"));
  #note = /** @type {HTMLElement} */ (document.getElementById("token-note"));

  get isShown() {
    return !this.#form.hidden;
  }

  /** The server answers. One without authentication needs no form. */
  accept() {
    this.#form.hidden = !this.#token.hasToken;
    this.#note.hidden = true;
  }

  /**
   * Shows why the server rejects the token, or that it requires one.
   * @param {{ status: number, detail: string }} problem
   * @returns {string} The text on display.
   */
  reject({ status, detail }) {
    const { hasToken } = this.#token;
    const text = status === 403 ? `The token does not permit this: ${detail}` : hasToken ? "The server rejected this token. Check that it is complete and has not expired, then paste another." : "This server requires a token. Paste one to see its sessions.";
    this.#form.hidden = this.#note.hidden = false;
    this.#note.textContent = text;
    this.#note.dataset.state = hasToken ? "failed" : "waiting";
    return text;
  }
}

/**
 * The bearer token that a person enters, where the server requires one.
 *
 * The page keeps it in `sessionStorage`, until the tab closes, and sends it only in a header. The address of a stream
 * contains a ticket instead, which is valid once, for that stream. The client fetches the ticket.
 */

import { AUDIENCES } from "./route.js";

/** @typedef {import("./route.js").Audience} Audience */

/**
 * What `GET /v1/me` says.
 * @typedef {{ sub?: string, name?: string, audience: Audience, can: string[], sessions: string[], runs: string[], agents: string[], owner?: string, owners?: string[], expiresAt?: string }} Me
 */

const KEY = "proscenium.token";

/**
 * Reads what a token says of its rights, so that the page offers nothing that the server would refuse. The server alone
 * decides: another token may say nothing here.
 * @param {string} token
 * @returns {{ audience?: string, can?: string[] }}
 */
function rightsOf(token) {
  try {
    const payload = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    return JSON.parse(atob(payload)).proscenium ?? {};
  } catch {
    return {};
  }
}

export class Token {
  #text = sessionStorage.getItem(KEY) ?? "";

  /** Whether it is of a share link, which leads to one session or run, and to no list. See link.js. */
  isOfLink = false;

  /** What the server says that the token permits, once it has said so. @type {Me | undefined} */
  rights;

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
    this.rights = undefined;
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  }

  /** The widest audience that the token permits. @returns {Audience} */
  get audience() {
    const { audience, can } = this.rights ?? rightsOf(this.#text);
    const isStated = can !== undefined || audience !== undefined;
    return AUDIENCES.find((name) => name === audience) ?? (isStated ? "user" : "internal");
  }

  /** Whether the token permits to erase; not before the server has said so. */
  get canErase() {
    return this.rights?.can.includes("erase") ?? false;
  }

  /** Whether the token permits controls. */
  get canControl() {
    const { can } = this.rights ?? rightsOf(this.#text);
    return !Array.isArray(can) || can.includes("control") || can.includes("admin");
  }
}

/** The form for a token, shown where the server requires one. The rest of the account loads with it, or after it. */
export class TokenForm {
  /**
   * @param {import("./client/http.js").Server} server
   * @param {Token} token
   * @param {() => void} onChange Called after a person entered another token.
   * @param {() => void} onRights Called when the server has said what the token permits.
   */
  constructor(server, token, onChange, onRights) {
    this.#token = token;
    this.#load = async () => {
      const { Account } = await import("./account.js");
      // After the wait: two answers may ask for it at once.
      return (this.#account ??= new Account(server, token, onRights));
    };
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      const entered = new FormData(this.#form).get("token");
      this.#form.reset();
      token.set(typeof entered === "string" ? entered.trim() : "");
      this.#isEntered = true;
      onChange();
    });
  }

  #token;
  #load;
  /** @type {import("./account.js").Account | undefined} */
  #account;
  #form = /** @type {HTMLFormElement} */ (document.getElementById("token"));
  #note = /** @type {HTMLElement} */ (document.getElementById("token-note"));
  /** Whether a person has just entered the token. */
  #isEntered = false;
  /** The token that the server has accepted last. @type {string | undefined | null} */
  #accepted = null;

  get isShown() {
    return !this.#form.hidden;
  }

  /** The server accepts the token, or needs none. */
  accept() {
    this.#form.hidden = this.#note.hidden = true;
    // The next keys of the person are not for the field of the token.
    if (this.#isEntered) document.getElementById("stage")?.focus();
    this.#isEntered = false;
    if (this.#accepted === this.#token.value) return;
    this.#accepted = this.#token.value;
    void this.#load().then((account) => account.show());
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
    this.#accepted = null;
    this.#note.textContent = text;
    this.#note.dataset.state = hasToken ? "failed" : "waiting";
    void this.#load().then((account) => account.ask());
    return text;
  }
}

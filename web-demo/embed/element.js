/**
 * The base class of the elements for other pages: a shadow root with a surface of the workbench, attributes that say
 * where it reads, a notice, and events.
 */

import { t } from "../ui/texts.js";
import { oncePerFrame } from "../surfaces/base.js";
import { adoptSheets, dropSheets } from "./sheets.js";

/** @typedef {import("../client/types.js").State} State */
/** @typedef {import("../client/types.js").Token} Token */
/** @typedef {import("../surfaces/base.js").Target} Target */
/** @typedef {import("./source.js").Place} Place */

/**
 * What `ps-error` reports. `code`: that of a problem document, `unreachable`, or `incomplete` (an attribute is missing).
 * @typedef {{ code: string, status?: number, reason?: string, detail: string }} EmbedError
 */

/** The server that served this script; for a script of another kind, such as a bundle of the page, the page's own. */
const OWN_SERVER = (() => {
  const { origin, pathname } = new URL(import.meta.url);
  return /\/assets\/[0-9a-f]+\/embed\/embed\.js$/.test(pathname) ? origin : location.origin;
})();

/** The elements that are in a document: each draws itself again with other texts. @type {Set<EmbeddedElement>} */
const connected = new Set();

/** Draws all elements again. */
export const redrawAll = () => connected.forEach((one) => one.restart());

export class EmbeddedElement extends HTMLElement {
  static observedAttributes = ["server", "token", "audience", "transport", "run", "session", "action", "readonly"];

  #shadow = this.attachShadow({ mode: "open" });
  #root = document.createElement("div");
  #notice = Object.assign(document.createElement("p"), { className: "notice note", hidden: true });
  /** What the page shows where there is nothing. */
  #empty = Object.assign(document.createElement("slot"), { name: "empty", hidden: true });
  #isEmpty = false;
  /** Where the surface is. */
  content = Object.assign(document.createElement("div"), { className: "content" });
  /** @type {string | Token | undefined} */
  #token;
  #isOpen = false;
  /** The error that was reported last. */
  #reported = "";
  /** Attributes change one after another; the element begins again once. */
  #isDue = false;
  /** Draws once per animation frame. */
  schedule = oncePerFrame(() => this.#isOpen && this.draw());

  constructor() {
    super();
    const slot = (/** @type {string} */ name) => Object.assign(document.createElement("slot"), { name });
    this.#root.className = "root";
    this.#notice.setAttribute("role", "status");
    for (const [part, element] of Object.entries({ root: this.#root, notice: this.#notice, content: this.content })) element.setAttribute("part", part);
    this.#root.append(slot("header"), this.#notice, this.#empty, this.content, slot("footer"));
    this.#empty.addEventListener("slotchange", () => this.showEmpty(this.#isEmpty));
    this.#shadow.append(this.#root);
  }

  /** The token, or a function that returns one; it may return a promise. It wins over the attribute. @returns {string | Token | undefined} */
  get token() {
    return this.#token ?? this.getAttribute("token") ?? undefined;
  }

  set token(token) {
    const before = this.#token;
    if (token === before) return;
    this.#token = token;
    // Frameworks make another function at each drawing. It is called from now on, and what is open goes on.
    const isSameKind = typeof before === "function" && typeof token === "function";
    if (!isSameKind || this.#reported !== "") this.#plan();
  }

  /** @type {Token} */
  #getToken = () => {
    const { token } = this;
    return typeof token === "function" ? token() : token;
  };

  /** The attribute of this name; `undefined` for none. @param {string} name */
  attribute(name) {
    return this.getAttribute(name) || undefined;
  }

  /** @returns {Place} */
  get place() {
    const base = (this.attribute("server") ?? OWN_SERVER).replace(/\/+$/, "");
    const audience = /** @type {Place["audience"]} */ (this.attribute("audience") ?? "user");
    return { base, token: this.token, getToken: this.#getToken, audience, transport: this.attribute("transport") === "websocket" ? "websocket" : "sse" };
  }

  connectedCallback() {
    // A property that was set before the class was known hides the accessor.
    if (Object.hasOwn(this, "token")) {
      const { token } = this;
      Reflect.deleteProperty(this, "token");
      this.#token = token;
    }
    adoptSheets(this.#shadow);
    connected.add(this);
    this.#plan();
  }

  disconnectedCallback() {
    dropSheets(this.#shadow);
    connected.delete(this);
    this.#end();
  }

  attributeChangedCallback() {
    this.#plan();
  }

  #plan() {
    if (this.#isDue || !this.isConnected) return;
    this.#isDue = true;
    queueMicrotask(() => {
      this.#isDue = false;
      if (this.isConnected) this.restart();
    });
  }

  #end() {
    if (this.#isOpen) this.close();
    this.#isOpen = false;
  }

  /** Reads and draws from the beginning. */
  restart() {
    this.#end();
    this.#reported = "";
    this.content.replaceChildren();
    this.notify("");
    this.showEmpty(false);
    this.#isOpen = true;
    this.open();
  }

  /** Opens what it shows. */
  open() {}

  /** Ends what it opened. */
  close() {}

  /** Draws the current state. */
  draw() {}

  /**
   * Shows a sentence above the surface.
   * @param {string} text Empty for none.
   * @param {"idle" | "failed"} [state]
   */
  notify(text, state = "idle") {
    this.#notice.hidden = text === "";
    this.#notice.dataset.state = state;
    if (this.#notice.textContent !== text) this.#notice.textContent = text;
  }

  /**
   * Says whether there is anything to show. If there is nothing, what the page has in the slot `empty` stands there.
   * @param {boolean} isEmpty
   */
  showEmpty(isEmpty) {
    this.#isEmpty = isEmpty;
    const isReplaced = isEmpty && this.#empty.assignedNodes().length > 0;
    this.#empty.hidden = !isReplaced;
    this.content.toggleAttribute("data-empty", isReplaced);
  }

  /**
   * Shows an error and reports it, once.
   * @param {EmbedError} error
   */
  fail(error) {
    this.notify(error.detail, "failed");
    const stamp = JSON.stringify(error);
    if (stamp !== this.#reported) this.emit("ps-error", error);
    this.#reported = stamp;
  }

  /** Says how the connection is. @param {State} state */
  showConnection({ kind, problem, frames }) {
    if (kind === "refused") return this.fail(errorOf(problem));
    if (kind !== "away") {
      this.#reported = "";
      return this.notify("");
    }
    // A browser does not tell a server that is down from one that does not admit this page.
    if (frames === 0 && !problem) return this.fail({ code: "unreachable", detail: t("The server does not answer, or does not admit pages of {origin}.", { origin: location.origin }) });
    this.notify(t("The connection is lost. Connecting again…"));
  }

  /**
   * @param {string} type
   * @param {unknown} detail
   */
  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { bubbles: true, composed: true, detail }));
  }

  /** Reports what a person wants to open. @param {Target} target */
  report = (target) => this.emit("ps-open", target);
}

/**
 * Says why the server refuses a connection.
 * @param {import("../client/types.js").ProblemDocument | undefined} problem
 * @returns {EmbedError}
 */
export function errorOf(problem) {
  const { code = "unknown", status, reason, detail = "" } = problem ?? {};
  const said = reason === "expired" ? t("Your access has expired. Sign in again.") : status === 401 ? t("The server rejects the token: {detail}", { detail }) : t("The server refuses the connection: {detail}", { detail });
  return { code, status, reason, detail: said };
}

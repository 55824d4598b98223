/**
 * `<ps-conversation session>`: the messages, work and decisions of a session or a run, with a composer unless it is
 * `readonly`. `<ps-trace run>`: the steps of a run or a session on a time axis. What draws them loads with the first of
 * these elements.
 */

import { loadStyle } from "../styles.js";
import { t } from "../ui/texts.js";
import { EmbeddedElement } from "./element.js";
import { closeSource } from "./source.js";

/** @typedef {import("../surfaces/base.js").View} View */
/** @typedef {import("./parts.js").Parts} Parts */

/** The base class of an element with surfaces of the open session or run. */
class SurfacesElement extends EmbeddedElement {
  /** The style sheets that only its surfaces use. @type {string[]} */
  static styles = [];

  /** @type {import("../view-model.js").ViewModel | undefined} */
  #model;
  /** @type {Parts | undefined} */
  #parts;
  #unsubscribe = () => {};
  /** Counts the openings: what loads for an earlier one is not needed any longer. */
  #opening = 0;

  constructor() {
    super();
    this.content.addEventListener("decided", (event) => this.emit("ps-answered", { .../** @type {any} */ (event.target).reference, .../** @type {CustomEvent} */ (event).detail }));
    this.content.addEventListener("keydown", (event) => this.#parts?.handleKey(event) && event.preventDefault());
  }

  /**
   * Loads what makes the surfaces.
   * @returns {Promise<(view: View) => Parts>}
   */
  async loadParts() {
    throw new Error(`${this.localName} has no surfaces`);
  }

  open() {
    const [run, session] = [this.attribute("run"), this.attribute("session")];
    if (run === undefined && session === undefined) return this.fail({ code: "incomplete", detail: t("This element needs an attribute “session” or “run”.") });
    this.notify(t("Loading…"));
    void this.#show({ run, session }, (this.#opening += 1));
  }

  /**
   * @param {{ run?: string, session?: string }} of
   * @param {number} opening
   */
  async #show(of, opening) {
    try {
      const { styles } = /** @type {typeof SurfacesElement} */ (this.constructor);
      const [{ openHistory }, partsOf] = await Promise.all([import("./history.js"), this.loadParts(), ...styles.map(loadStyle)]);
      if (opening !== this.#opening) return;
      const model = openHistory(this.place, of);
      this.#model = model;
      this.#unsubscribe = model.connection.subscribe(() => this.schedule());
      const parts = partsOf(Object.assign(Object.create(model.view()), { open: this.report }));
      this.#parts = parts;
      this.content.replaceChildren(...parts.elements);
      this.draw();
      await model.hydrate();
      if (opening === this.#opening) parts.updateAll((isEmpty) => this.showEmpty(isEmpty));
    } catch (error) {
      if (opening === this.#opening) this.fail({ code: "unreachable", detail: t("This did not load: {reason}", { reason: error instanceof Error ? error.message : error }) });
    }
  }

  close() {
    this.#opening += 1;
    this.#unsubscribe();
    this.#parts?.close();
    this.#parts = undefined;
    if (this.#model) closeSource(this.#model);
    this.#model = undefined;
  }

  draw() {
    if (this.#model && this.#parts) this.showConnection(this.#model.connection.state);
  }
}

export class ConversationElement extends SurfacesElement {
  static styles = ["surfaces/conversation.css"];

  async loadParts() {
    const { conversationParts } = await import("./conversation-parts.js");
    return (/** @type {View} */ view) => conversationParts(view, this.hasAttribute("readonly"));
  }
}

export class TraceElement extends SurfacesElement {
  static styles = ["tools/tools.css", "surfaces/trace.css"];

  async loadParts() {
    const { traceParts } = await import("./trace-parts.js");
    return traceParts;
  }
}

/**
 * `<ps-conversation session>`: the messages, work and decisions of a session or a run, with a composer unless it is
 * `readonly`. `<ps-trace run>`: the steps of a run or a session on a time axis. What draws them loads with the first of
 * these elements.
 */

import { loadStyle } from "../styles.js";
import { t } from "../ui/texts.js";
import { EmbeddedElement } from "./element.js";
import { closeSource, openSource } from "./source.js";

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

  constructor() {
    super();
    this.content.addEventListener("decided", (event) => this.emit("ps-answered", { .../** @type {any} */ (event.target).reference, .../** @type {CustomEvent} */ (event).detail }));
    this.content.addEventListener("keydown", (event) => this.#parts?.handleKey(event) && event.preventDefault());
  }

  /**
   * Loads and makes the surfaces.
   * @param {View} _view
   * @returns {Promise<Parts>}
   */
  async loadParts(_view) {
    throw new Error(`${this.localName} has no surfaces`);
  }

  open() {
    const [run, session] = [this.attribute("run"), this.attribute("session")];
    if (run === undefined && session === undefined) return this.fail({ code: "incomplete", detail: t("This element needs an attribute “session” or “run”.") });
    const model = openSource(this.place, { run, session });
    this.#model = model;
    this.#unsubscribe = model.connection.subscribe(() => this.schedule());
    this.notify(t("Loading…"));
    void this.#show(model);
  }

  /** @param {import("../view-model.js").ViewModel} model */
  async #show(model) {
    try {
      const view = Object.assign(Object.create(model.view()), { open: this.report });
      const { styles } = /** @type {typeof SurfacesElement} */ (this.constructor);
      const [parts] = await Promise.all([this.loadParts(view), ...styles.map(loadStyle)]);
      if (model !== this.#model) return parts.close();
      this.#parts = parts;
      this.content.replaceChildren(...parts.elements);
      this.draw();
      await model.hydrate();
      if (model === this.#model) parts.updateAll((isEmpty) => this.showEmpty(isEmpty));
    } catch (error) {
      this.fail({ code: "unreachable", detail: t("This did not load: {reason}", { reason: error instanceof Error ? error.message : error }) });
    }
  }

  close() {
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

  /** @param {View} view */
  async loadParts(view) {
    const { conversationParts } = await import("./conversation-parts.js");
    return conversationParts(view, this.hasAttribute("readonly"));
  }
}

export class TraceElement extends SurfacesElement {
  static styles = ["tools/tools.css", "surfaces/trace.css"];

  /** @param {View} view */
  async loadParts(view) {
    const { traceParts } = await import("./trace-parts.js");
    return traceParts(view);
  }
}

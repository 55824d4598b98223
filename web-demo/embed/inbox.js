/**
 * `<ps-inbox>`: the pending decisions of all sessions, each decided in place. What draws them loads with the first of
 * these elements.
 */

import { t } from "../ui/texts.js";
import { EmbeddedElement } from "./element.js";

/** @typedef {import("./inbox-parts.js").InboxParts} InboxParts */

export class InboxElement extends EmbeddedElement {
  /** @type {InboxParts | undefined} */
  #parts;
  /** Counts the openings: what loads for an earlier one is not needed any longer. */
  #opening = 0;

  constructor() {
    super();
    this.content.addEventListener("decided", (event) => this.emit("ps-answered", { .../** @type {any} */ (event.target).reference, .../** @type {CustomEvent} */ (event).detail }));
    this.content.addEventListener("keydown", (event) => this.#parts?.handleKey(event) && event.preventDefault());
  }

  open() {
    this.notify(t("Loading the decisions…"));
    void this.#show((this.#opening += 1));
  }

  /** @param {number} opening */
  async #show(opening) {
    try {
      const { InboxParts } = await import("./inbox-parts.js");
      if (opening !== this.#opening) return;
      this.#parts = new InboxParts(this);
      this.draw();
    } catch (error) {
      this.fail({ code: "unreachable", detail: t("This did not load: {reason}", { reason: error instanceof Error ? error.message : error }) });
    }
  }

  close() {
    this.#opening += 1;
    this.#parts?.close();
    this.#parts = undefined;
  }

  draw() {
    this.#parts?.draw();
  }
}

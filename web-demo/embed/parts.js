/**
 * Surfaces in an element for other pages, and what passes changes to them.
 */

import { Feeder } from "../feeder.js";
import { isDecisionKey } from "../surfaces/decision-keys.js";

/** A surface that says whether it has anything to show. @typedef {import("../surfaces/base.js").Surface & { isEmpty: boolean }} MainSurface */

export class Parts {
  #feeder = new Feeder();
  #hydrated;

  /**
   * @param {import("../surfaces/base.js").View} view
   * @param {[MainSurface, ...import("../surfaces/base.js").Surface[]]} elements
   * @param {() => void} [hydrated] Called when the history has arrived.
   */
  constructor(view, elements, hydrated = () => {}) {
    this.elements = elements;
    this.#hydrated = hydrated;
    for (const element of elements) this.#feeder.add(element);
    this.#feeder.show(view);
  }

  /** Draws everything: the history has arrived. @param {(isEmpty: boolean) => void} drawn Called after this and each later change. */
  updateAll(drawn) {
    this.#feeder.onDrawn = () => drawn(this.elements[0].isEmpty);
    this.#feeder.updateAll();
    this.#hydrated();
  }

  close() {
    this.#feeder.close();
  }

  /** Handles a key for the decision that has the focus. @param {KeyboardEvent} event @returns {boolean} Whether it has a meaning here. */
  handleKey(event) {
    const card = event.target instanceof Element ? event.target.closest("ps-action") : null;
    return card !== null && isDecisionKey(event) && /** @type {import("../surfaces/action.js").Action} */ (card).handleKey(event.key);
  }
}

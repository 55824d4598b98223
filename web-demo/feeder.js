/**
 * Brings a store's changes to the surfaces: once an animation frame, to each only what it shows.
 *
 * A surface that nobody sees is not drawn. When it comes into view, it draws everything once.
 */

import { Surface } from "./surfaces/base.js";

/** @typedef {import("./client/store.js").Store} Store */
/** @typedef {import("./surfaces/base.js").View} View */

/** How often a hidden page draws, in milliseconds: it gets no animation frames, and must not pile changes up meanwhile. */
const HIDDEN_MS = 500;

export class Feeder {
  /** @type {Set<Surface>} */
  #surfaces = new Set();
  /** Surfaces that have missed something. @type {Set<Surface>} */
  #behind = new Set();
  /** @type {View | undefined} */
  #view;
  /** @type {Set<string>} */
  #changed = new Set();
  #isAll = false;
  #isDue = false;
  /** @type {() => void} */
  #end = () => {};
  /** Told after each drawing. */
  drawn = () => {};

  /**
   * Gives all surfaces another view, of another store.
   * @param {View} view
   */
  show(view) {
    this.#end();
    this.#view = view;
    this.#changed.clear();
    this.#isAll = false;
    this.#end = view.store.subscribe(({ keys, reset }) => {
      this.#isAll ||= reset;
      for (const key of keys) this.#changed.add(key);
      this.soon();
    });
    for (const surface of this.#surfaces) this.#attach(surface);
    this.soon();
  }

  /** @param {Surface} surface */
  add(surface) {
    this.#surfaces.add(surface);
    this.#attach(surface);
  }

  /** @param {Surface} surface */
  #attach(surface) {
    if (!this.#view) return;
    surface.view = this.#view;
    this.#behind.delete(surface);
  }

  /** Everything is to be drawn again: something beside the store changed. */
  all() {
    this.#isAll = true;
    this.soon();
  }

  soon() {
    if (this.#isDue) return;
    this.#isDue = true;
    const draw = () => {
      this.#isDue = false;
      this.#draw();
    };
    if (document.hidden) setTimeout(draw, HIDDEN_MS);
    else requestAnimationFrame(draw);
  }

  #draw() {
    const store = this.#view?.store;
    if (!store) return;
    const [keys, isAll] = [this.#changed, this.#isAll];
    this.#changed = new Set();
    this.#isAll = false;
    /** @type {[string, import("./client/types.js").Activity][]} */
    const activities = [...keys].flatMap((key) => {
      const activity = store.get(key);
      return activity ? [[key, activity]] : [];
    });
    for (const surface of this.#surfaces) this.#feed(surface, activities, isAll);
    this.drawn();
  }

  /**
   * @param {Surface} surface
   * @param {[string, import("./client/types.js").Activity][]} activities
   * @param {boolean} isAll
   */
  #feed(surface, activities, isAll) {
    const { shows } = /** @type {typeof Surface} */ (surface.constructor);
    const mine = isAll ? null : new Set(activities.filter(([, activity]) => shows(activity)).map(([key]) => key));
    if (mine?.size === 0 && !this.#behind.has(surface)) return;
    // One that has nothing to show yet is drawn wherever it is: its tab says that there is something.
    if (!surface.hidden && surface.closest(".panel[hidden]")) {
      this.#behind.add(surface);
      return;
    }
    surface.update(this.#behind.delete(surface) ? null : mine);
  }
}

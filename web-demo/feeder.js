/**
 * Passes a store's changes to the surfaces once per animation frame. Each surface gets only the activities that it
 * shows.
 *
 * A surface in a hidden panel is not updated. It draws everything once when its panel appears.
 */

import { Surface } from "./surfaces/base.js";

/** @typedef {import("./client/store.js").Store} Store */
/** @typedef {import("./surfaces/base.js").View} View */

/** The draw interval of a hidden page, in milliseconds. It gets no animation frames, but changes must not pile up. */
const HIDDEN_DRAW_MS = 500;

export class Feeder {
  /** @type {Set<Surface>} */
  #surfaces = new Set();
  /** Hidden surfaces that have missed changes. @type {Set<Surface>} */
  #stale = new Set();
  /** @type {View | undefined} */
  #view;
  /** @type {Set<string>} */
  #changed = new Set();
  #isFullUpdate = false;
  #isScheduled = false;
  /** @type {() => void} */
  #unsubscribe = () => {};
  /** Called after each update. */
  onDrawn = () => {};

  /**
   * Gives all surfaces another view.
   * @param {View} view
   */
  show(view) {
    this.#unsubscribe();
    this.#view = view;
    this.#changed.clear();
    this.#isFullUpdate = false;
    this.#unsubscribe = view.store.subscribe(({ keys, reset }) => {
      this.#isFullUpdate ||= reset;
      for (const key of keys) this.#changed.add(key);
      this.schedule();
    });
    for (const surface of this.#surfaces) this.#attach(surface);
    this.schedule();
  }

  /** Ends the updates. */
  close() {
    this.#unsubscribe();
    this.#view = undefined;
  }

  /** @param {Surface} surface */
  add(surface) {
    if (this.#surfaces.has(surface)) return;
    this.#surfaces.add(surface);
    this.#attach(surface);
  }

  /** @param {Surface} surface */
  #attach(surface) {
    if (!this.#view) return;
    surface.view = this.#view;
    this.#stale.delete(surface);
  }

  /** Updates everything: something outside the store changed. */
  updateAll() {
    this.#isFullUpdate = true;
    this.schedule();
  }

  schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const draw = () => {
      this.#isScheduled = false;
      this.#draw();
    };
    if (document.hidden) setTimeout(draw, HIDDEN_DRAW_MS);
    else requestAnimationFrame(draw);
  }

  #draw() {
    const store = this.#view?.store;
    if (!store) return;
    const [keys, isFullUpdate] = [this.#changed, this.#isFullUpdate];
    this.#changed = new Set();
    this.#isFullUpdate = false;
    /** @type {[string, import("./client/types.js").Activity][]} */
    const activities = [...keys].flatMap((key) => {
      const activity = store.get(key);
      return activity ? [[key, activity]] : [];
    });
    for (const surface of this.#surfaces) this.#updateSurface(surface, activities, isFullUpdate);
    this.onDrawn();
  }

  /**
   * @param {Surface} surface
   * @param {[string, import("./client/types.js").Activity][]} activities
   * @param {boolean} isFullUpdate
   */
  #updateSurface(surface, activities, isFullUpdate) {
    const { shows } = /** @type {typeof Surface} */ (surface.constructor);
    const changed = isFullUpdate ? null : new Set(activities.filter(([, activity]) => shows(activity)).map(([key]) => key));
    if (changed?.size === 0 && !this.#stale.has(surface)) return;
    if (surface.parentElement?.closest("[hidden]")) {
      this.#stale.add(surface);
      return;
    }
    surface.update(this.#stale.delete(surface) ? null : changed);
  }
}

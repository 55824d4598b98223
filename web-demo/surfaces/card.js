/**
 * The base class of an element for one activity: built once, then updated with each change.
 */

import { keyOf, surfaceName } from "./base.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").CardView} CardView */

export class Card extends HTMLElement {
  /** @type {CardView | undefined} */
  #view;
  /** @type {Activity | undefined} */
  #activity;

  get view() {
    if (!this.#view) throw new Error(`${this.localName} has no view yet`);
    return this.#view;
  }

  /** Whether it shows an activity. */
  get isShown() {
    return this.#activity !== undefined;
  }

  get activity() {
    if (!this.#activity) throw new Error(`${this.localName} has no activity yet`);
    return this.#activity;
  }

  /** What it shows, as events name it. */
  get reference() {
    const { runId, sessionId, activityId } = this.activity;
    return { runId: runId || undefined, sessionId, actionId: activityId };
  }

  /** @returns {Record<string, any>} */
  get content() {
    return /** @type {Record<string, any>} */ (this.activity.content);
  }

  /**
   * @param {CardView} view
   * @param {Activity} activity
   */
  show(view, activity) {
    const isNew = !this.#activity;
    this.#view = view;
    this.#activity = activity;
    if (isNew) {
      this.classList.add(surfaceName(this));
      this.build();
    }
    this.dataset.key = keyOf(activity);
    this.draw();
  }

  /** Draws the static parts. */
  build() {}

  /** Draws the current activity. */
  draw() {}

  /**
   * Returns an agent's name from the roster of this activity's run; its id if no fact names it.
   * @param {string} id
   */
  nameOf(id) {
    return agentName(this.view, this.activity, id);
  }

  /**
   * Returns another activity of the same run.
   * @param {string} activityType
   * @param {string} activityId
   */
  sibling(activityType, activityId) {
    return siblingOf(this.view, this.activity, activityType, activityId);
  }
}

/**
 * Returns another activity of the same run.
 * @param {CardView} view
 * @param {Activity} activity
 * @param {string} activityType
 * @param {string} activityId
 */
export function siblingOf(view, activity, activityType, activityId) {
  return view.store.get(keyOf({ ...activity, activityType, activityId }));
}

/**
 * Returns an agent's name from the roster of this activity's run; its id if no fact names it.
 * @param {CardView} view
 * @param {Activity} activity
 * @param {string} id
 * @returns {string}
 */
export function agentName(view, activity, id) {
  const name = siblingOf(view, activity, "agent", id)?.content.agentName;
  return typeof name === "string" && name ? name : id;
}

/**
 * One activity's own element: built once, then told each time that it changed.
 */

import { keyOf } from "./base.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

export class Card extends HTMLElement {
  /** @type {View | undefined} */
  #view;
  /** @type {Activity | undefined} */
  #activity;

  get view() {
    if (!this.#view) throw new Error(`${this.localName} has no view yet`);
    return this.#view;
  }

  get activity() {
    if (!this.#activity) throw new Error(`${this.localName} shows nothing yet`);
    return this.#activity;
  }

  /** @returns {Record<string, any>} */
  get content() {
    return /** @type {Record<string, any>} */ (this.activity.content);
  }

  /**
   * @param {View} view
   * @param {Activity} activity
   */
  show(view, activity) {
    const isNew = !this.#activity;
    this.#view = view;
    this.#activity = activity;
    if (isNew) {
      this.classList.add(this.localName.replace(/^ps-/, ""));
      this.build();
    }
    this.dataset.key = keyOf(activity);
    this.draw();
  }

  /** Makes what is there whatever the activity says. */
  build() {}

  /** Says what the activity says now. */
  draw() {}

  /**
   * The name of an agent, as its roster has it; its id, where nobody named it.
   * @param {string} id
   */
  nameOf(id) {
    return agentName(this.view, this.activity, id);
  }

  /**
   * Another activity of the same run.
   * @param {string} activityType
   * @param {string} activityId
   */
  beside(activityType, activityId) {
    return beside(this.view, this.activity, activityType, activityId);
  }
}

/**
 * Another activity of the same run.
 * @param {View} view
 * @param {Activity} activity
 * @param {string} activityType
 * @param {string} activityId
 */
export function beside(view, activity, activityType, activityId) {
  return view.store.get(keyOf({ ...activity, activityType, activityId }));
}

/**
 * The name of an agent of this activity's run, as the roster has it; its id, where nobody named it.
 * @param {View} view
 * @param {Activity} activity
 * @param {string} id
 * @returns {string}
 */
export function agentName(view, activity, id) {
  const name = beside(view, activity, "agent", id)?.content.agentName;
  return typeof name === "string" && name ? name : id;
}

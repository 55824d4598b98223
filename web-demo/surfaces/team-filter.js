/**
 * The filter and the order of a large team. It loads with the first one.
 */

import { toText } from "./base.js";
import { usageOf } from "./spans.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */

/** @param {Activity} activity */
const nameOf = ({ activityId, content }) => toText(content.agentName) || activityId;

/** The orders; the first is that of the roster. @type {Record<string, [string, ((a: Activity, b: Activity) => number)?]>} */
const ORDERS = {
  work: ["At work first"],
  name: ["By name", (a, b) => nameOf(a).localeCompare(nameOf(b), undefined, { numeric: true })],
  news: ["Last change", (a, b) => toText(b.updatedAt).localeCompare(toText(a.updatedAt))],
  tokens: ["Most tokens", (a, b) => (usageOf(b.content).tokens ?? -1) - (usageOf(a.content).tokens ?? -1)],
};

export class TeamFilter {
  /** @param {() => void} changed */
  constructor(changed) {
    this.#changed = changed;
  }

  #changed;
  #words = "";
  #order = "work";

  /**
   * The teammates that match, in the chosen order.
   * @param {Activity[]} teammates In the order of the roster.
   */
  apply(teammates) {
    const words = this.#words.toLowerCase().split(/\s+/);
    const shown = teammates.filter(({ activityId, content }) => {
      const text = [activityId, content.agentName, content.role, content.status, content.taskId, content.message, content.summary].map(toText).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const [, compare] = ORDERS[this.#order];
    return compare ? shown.sort(compare) : shown;
  }

  /** @param {Activity[]} teammates */
  template(teammates) {
    return html`<div class="team-bar"><input class="input" type="search" placeholder="Name, role, status or task" aria-label="Filter teammates" autocomplete="off" spellcheck="false" .value=${this.#words} @input=${(/** @type {Event} */ { target }) => {
      this.#words = /** @type {HTMLInputElement} */ (target).value;
      this.#changed();
    }}><select class="input" aria-label="Order of teammates" @change=${(/** @type {Event} */ { target }) => {
      this.#order = /** @type {HTMLSelectElement} */ (target).value;
      this.#changed();
    }}>${Object.entries(ORDERS).map(([name, [label]]) => html`<option value=${name} ?selected=${name === this.#order}>${label}</option>`)}</select></div>
    ${this.apply(teammates).length === 0 ? html`<p class="hint" role="status">No teammate matches.</p>` : nothing}`;
  }
}

/**
 * The views of the runs: a view is a filter, an order, a group and the columns. Four are always there, others are saved
 * in this browser.
 */

import { store, stored } from "../marks.js";
import { icon } from "../ui/icons.js";
import { html, nothing } from "../vendor/lit.js";
import { USUAL_COLUMNS } from "./run-columns.js";

/** @typedef {{ filter: string, sort: string, group: string, columns: string }} View `columns`: their names, with commas between. */
/** Those of an older page have neither group nor columns. @typedef {Partial<View> & { name: string, filter: string, sort: string }} SavedView */

const SAVED_MAX = 20;
const NAME_CHARS_MAX = 40;
export const NEWEST = "-started";

/** The views that are always there: the name, the terms, and the statuses that they count. @type {[string, string, string[]][]} */
const VIEWS = [["All", "", []], ["Needs you", "status:waiting", ["waiting"]], ["Running", "status:accepted status:running", ["accepted", "running"]], ["Failed", "status:failed", ["failed"]]];

export class RunViews {
  /**
   * @param {(view: View) => void} open
   * @param {() => void} redraw
   */
  constructor(open, redraw) {
    this.#open = open;
    this.#redraw = redraw;
  }

  #open;
  #redraw;
  /** Whether a person names the view that they save. */
  #isNaming = false;

  /** @returns {(View & { name: string })[]} */
  get #saved() {
    const saved = stored("views", /** @type {SavedView[]} */ ([]));
    return Array.isArray(saved) ? saved.map((view) => ({ group: "", columns: USUAL_COLUMNS, ...view })) : [];
  }

  /** Asks for the name of a view. */
  begin() {
    this.#isNaming = true;
    this.#redraw();
    /** @type {HTMLElement | null} */ (document.querySelector(".run-view-name input"))?.focus();
  }

  /**
   * @param {View} current
   * @param {string} since The term of the range of time, which the views keep.
   * @param {Record<string, number>} counts How many runs of the range have each status.
   */
  template(current, since, counts) {
    const isCurrent = (/** @type {View} */ { filter, sort, group, columns }) => filter === current.filter && sort === current.sort && group === current.group && columns === current.columns;
    const saved = this.#saved;
    return html`<div class="run-views" role="group" aria-label="Views">
      ${VIEWS.map(([name, terms, statuses]) => {
        const filter = [terms, since].filter(Boolean).join(" ");
        const values = Object.entries(counts).filter(([status]) => statuses.length === 0 || statuses.includes(status));
        const count = values.reduce((sum, [, number]) => sum + number, 0);
        return html`<button type="button" class="filter" aria-pressed=${filter === current.filter} @click=${() => this.#open({ ...current, filter })}>${name}${count > 0 ? html`<i>${count}</i>` : nothing}</button>`;
      })}
      ${saved.length > 0 ? html`<span class="run-views-line" aria-hidden="true"></span>` : nothing}
      ${saved.map((view) => html`<span class="run-view"><button type="button" class="filter" dir="auto" aria-pressed=${isCurrent(view)} @click=${() => this.#open(view)}>${view.name}</button>${isCurrent(view) ? html`<button type="button" class="button small icon-button" data-kind="quiet" aria-label="Remove the view ${view.name}" title="Remove the view" @click=${() => this.#keep(saved.filter((one) => one !== view))}>${icon("close")}</button>` : nothing}</span>`)}
      ${this.#isNaming ? this.#nameField(current) : nothing}
    </div>`;
  }

  /** @param {View} current */
  #nameField(current) {
    const close = () => {
      this.#isNaming = false;
      this.#redraw();
    };
    const save = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      const name = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get("name")).trim();
      if (name === "") return;
      this.#isNaming = false;
      this.#keep([...this.#saved.filter((one) => one.name !== name), { name, ...current }].slice(-SAVED_MAX));
    };
    return html`<form class="run-view-name" @submit=${save} @keydown=${(/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close();
    }}><input class="input" name="name" aria-label="Name of the view" placeholder="Name of the view" autocomplete="off" maxlength=${NAME_CHARS_MAX}><button type="submit" class="button small">Save</button><button type="button" class="button small" data-kind="quiet" @click=${close}>Cancel</button></form>`;
  }

  /** @param {SavedView[]} views */
  #keep(views) {
    store("views", views.map(({ name, filter, sort, group, columns }) => ({ name, filter, sort, group, columns })));
    this.#redraw();
  }
}

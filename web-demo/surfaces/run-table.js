/**
 * The table of the runs: its heading, the rows near the viewport, the selection, and the keys.
 */

import { icon } from "../ui/icons.js";
import { html, nothing } from "../vendor/lit.js";
import { FixedHeightList } from "./fixed-height-list.js";
import { fittingColumns, tracksOf } from "./run-columns.js";
import { isHead, runOf } from "./run-groups.js";
import { durationOf, fillEmpty, fillHead, fillRow, makeRow } from "./run-row.js";

/** @typedef {import("../client/hydration.js").RunLine} RunLine */
/** @typedef {import("./run-groups.js").RunRow} RunRow */
/** @typedef {import("./run-pages.js").RunPages | import("./run-groups.js").RunGroups} RunList The runs of a filter in an order, or the same in groups. */

/**
 * What the table needs of the screen.
 * @typedef {object} TableHost
 * @property {() => RunList | undefined} list The runs on display.
 * @property {() => { audience: import("../route.js").Audience, columns: string, words: string[], titleOf: (session: string) => string | undefined }} view
 * @property {(run: RunLine) => void} open
 * @property {(column: string) => void} sort
 * @property {() => void} changed The selection changed.
 */

/** The heights of a row in pixels, as in the style sheet: of a table, and of cards. */
const [ROW_PX, CARD_PX] = [36, 64];
/** From this width on, the rows are a table. As in the style sheet. */
const TABLE_PX = 560;
/** Rows that are read before a person scrolls to them. */
const AHEAD_ROWS = 200;
/** The share of the runs whose bars are not full: a few long ones would make all others short. */
const BAR_SHARE = 0.95;

export class RunTable {
  /** @param {TableHost} host */
  constructor(host) {
    this.#host = host;
    this.#rows.root.addEventListener("scroll", () => {
      this.#scrollTop = this.#rows.root.scrollTop;
      this.#readOn();
    }, { passive: true });
  }

  #host;
  /** The selected runs by id. @type {Map<string, RunLine>} */
  selected = new Map();
  /** @type {import("./run-columns.js").Column[]} */
  #columns = [];
  /** The index of the row that has the focus, or gets it. */
  #active = 0;
  /** The index of the row from which a range is selected. */
  #anchor = 0;
  /** The duration of a full bar, and the rows of which it was made. */
  #longest = { rows: 0, duration: 1 };
  /** Where the list was scrolled to before something else was shown, in pixels. */
  #scrollTop = 0;
  /** @type {FixedHeightList<RunRow>} */
  #rows = new FixedHeightList({
    height: ROW_PX, label: "Runs", startsAtTop: true, isRecycled: true, activeRow: () => this.#active,
    keyOf, make: makeRow, change: (row, run, at) => this.#fillRow(row, run, at),
  });

  /** Draws the visible rows again: ages and durations grow. */
  redraw() {
    this.#rows.redraw();
  }

  /** @param {number} width In pixels. */
  resize(width) {
    this.#rows.rowHeight = width < TABLE_PX ? CARD_PX : ROW_PX;
    // An element that was hidden is scrolled to its top.
    this.#rows.root.scrollTop = this.#scrollTop;
  }

  /** Begins at the top: other runs are on display. */
  reset() {
    [this.#active, this.#anchor, this.#scrollTop] = [0, 0, 0];
    this.#longest = { rows: 0, duration: 1 };
    this.#rows.root.scrollTop = 0;
  }

  /** Shows the rows, after the template is in the document. */
  show() {
    const list = this.#host.list();
    this.#rows.root.hidden = !list || list.total === 0;
    if (!list) return;
    if (this.#longest.rows !== list.loaded) {
      const now = Date.now();
      const sorted = list.read.map((run) => durationOf(run, now)).filter(Number.isFinite).sort((a, b) => a - b);
      this.#longest = { rows: list.loaded, duration: sorted[Math.floor((sorted.length - 1) * BAR_SHARE)] || 1 };
    }
    this.#rows.show(list.rows);
    this.#readOn();
  }

  /** The width of the scrollbar in pixels, which the heading has not. */
  get scrollbar() {
    const { offsetWidth, clientWidth } = this.#rows.root;
    return offsetWidth - clientWidth;
  }

  /** Reads what is in view, and what comes before and after it. */
  #readOn() {
    const [from, to] = this.#rows.range;
    void this.#host.list()?.need(from - AHEAD_ROWS, to + AHEAD_ROWS);
  }

  /** @param {number} at */
  #runAt(at) {
    return runOf(this.#host.list()?.rows[at]);
  }

  /* ── drawing ── */

  /**
   * @param {string} order The order of the runs.
   * @param {number} width In pixels.
   * @param {boolean} isBusy Whether other runs are being read.
   */
  template(order, width, isBusy) {
    const list = this.#host.list();
    this.#columns = fittingColumns(this.#host.view().columns, width);
    return html`<div class="runs-table" role="grid" aria-label="Runs" aria-multiselectable="true" aria-rowcount=${(list?.rows.length ?? 0) + 1} aria-colcount=${this.#columns.length} aria-busy=${isBusy} @keydown=${(/** @type {KeyboardEvent} */ event) => this.#handleKey(event)} @click=${(/** @type {MouseEvent} */ event) => this.#handleClick(event)} @focusin=${(/** @type {FocusEvent} */ event) => this.#handleFocus(event)}>
      <div class="run-head run-grid" role="row" aria-rowindex="1" @keydown=${handleHeadKey}>${this.#columns.map((column) => this.#headTemplate(column, order))}</div>
      ${this.#rows.root}
      ${!list && isBusy ? html`<div class="loading" role="status" aria-label="Loading runs">${Array.from({ length: 9 }, () => html`<i></i>`)}</div>` : nothing}
    </div>`;
  }

  /** The tracks of the grid. @param {number} width Of the table, in pixels. */
  tracks(width) {
    return tracksOf(this.#columns, width);
  }

  /**
   * @param {import("./run-columns.js").Column} column
   * @param {string} order
   */
  #headTemplate({ name, label, sort }, order) {
    if (!sort) return html`<span role="columnheader" class="run-${name}">${label || html`<span class="visually-hidden">Selected</span>`}</span>`;
    const isSorted = order.replace("-", "") === sort;
    const isDescending = order.startsWith("-");
    return html`<span role="columnheader" class="run-${name}" aria-sort=${isSorted ? (isDescending ? "descending" : "ascending") : "none"}><button type="button" tabindex=${isSorted ? 0 : -1} @click=${() => this.#host.sort(sort)}>${label}${isSorted ? html`<span class="run-order" data-down=${isDescending}>${icon("up")}</span>` : nothing}</button></span>`;
  }

  /**
   * @param {HTMLElement} row
   * @param {RunRow} shown
   * @param {number} at
   */
  #fillRow(row, shown, at) {
    row.tabIndex = at === this.#active ? 0 : -1;
    if (isHead(shown)) return fillHead(row, shown, { columns: this.#columns.length, toggle: () => this.#toggle(shown.group) });
    if (!shown) return fillEmpty(row);
    const { audience, words, titleOf } = this.#host.view();
    fillRow(row, shown.title || !shown.sessionId ? shown : { ...shown, title: titleOf(shown.sessionId) }, {
      columns: this.#columns, audience, words, isSelected: this.selected.has(shown.runId), longest: this.#longest.duration,
      select: (isRange) => this.#select(this.#host.list()?.indexOf(shown.runId) ?? -1, isRange),
    });
  }

  /** @param {string} group */
  #toggle(group) {
    const list = this.#host.list();
    if (list && "toggle" in list) list.toggle(group);
  }

  /* ── focus, selection and keys ── */

  /** Gives the focus to the row that had it. */
  takeFocus() {
    this.#activate(this.#active);
  }

  /** Moves the focus to another row. @param {number} step */
  move(step) {
    this.#activate(this.#active + (this.#rows.root.contains(document.activeElement) ? step : 0));
  }

  /** @param {number} at */
  #activate(at) {
    const count = this.#host.list()?.rows.length ?? 0;
    if (count === 0) return;
    const before = this.#active;
    this.#active = Math.min(count - 1, Math.max(0, at));
    this.#rows.scrollIntoView(this.#active);
    const row = this.#rowAt(this.#active);
    const last = this.#rowAt(before);
    if (last && last !== row) last.tabIndex = -1;
    if (row) row.tabIndex = 0;
    row?.focus({ preventScroll: true });
    this.#readOn();
  }

  /** @param {number} at */
  #rowAt(at) {
    return this.#rows.row(keyOf(this.#host.list()?.rows[at], at));
  }

  /**
   * Selects a row, or takes it out.
   * @param {number} at
   * @param {boolean} isRange Whether all rows from the one before take its state.
   */
  #select(at, isRange) {
    const run = this.#runAt(at);
    if (!run) return;
    const isSelected = !this.selected.has(run.runId);
    const [from, to] = isRange ? [Math.min(this.#anchor, at), Math.max(this.#anchor, at)] : [at, at];
    for (let index = from; index <= to; index += 1) {
      const one = this.#runAt(index);
      if (one && isSelected) this.selected.set(one.runId, one);
      else if (one) this.selected.delete(one.runId);
    }
    this.#anchor = at;
    this.#host.changed();
  }

  clearSelection() {
    this.selected.clear();
    this.#host.changed();
  }

  /** @param {KeyboardEvent} event */
  #handleKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!(/** @type {HTMLElement} */ (event.target).closest(".run-row"))) return;
    const page = Math.max(1, this.#rows.range[1] - this.#rows.range[0] - 2);
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    const row = this.#host.list()?.rows[this.#active];
    const run = runOf(row);
    if (step !== undefined) {
      if (event.shiftKey && this.#anchor === this.#active && run && !this.selected.has(run.runId)) this.#select(this.#active, false);
      this.#activate(this.#active + step);
      if (event.shiftKey) this.#select(this.#active, true);
    } else if (isHead(row) && this.#opens(event.key, row.isOpen)) this.#toggle(row.group);
    else if (event.key === "Enter" && run) this.#host.open(run);
    else if (event.key === "x" || event.key === "X" || event.key === " ") this.#select(this.#active, event.shiftKey);
    else if (event.key === "Escape" && this.selected.size > 0) this.clearSelection();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Whether a key opens a group, or closes it. @param {string} key @param {boolean} isOpen */
  #opens(key, isOpen) {
    return key === "Enter" || key === " " || key === (isOpen ? "ArrowLeft" : "ArrowRight");
  }

  /** @param {MouseEvent} event */
  #handleClick(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const row = /** @type {HTMLElement | null} */ (target.closest(".run-row"));
    const id = row?.dataset.run;
    if (!id || target.closest(".run-check")) return;
    // The browser opens a link elsewhere by itself.
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    const list = this.#host.list();
    const run = list?.get(id);
    this.#active = list?.indexOf(id) ?? 0;
    if (run) this.#host.open(run);
  }

  /** @param {FocusEvent} event */
  #handleFocus({ target }) {
    const row = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (target).closest(".run-row"));
    const at = Number(row?.getAttribute("aria-rowindex")) - 2;
    if (!row || at === this.#active) return;
    const last = this.#rowAt(this.#active);
    if (last) last.tabIndex = -1;
    this.#active = at;
    row.tabIndex = 0;
  }
}

/** The key of a row, which keeps its element while others come and go. @param {RunRow} row @param {number} at */
const keyOf = (row, at) => (isHead(row) ? `group ${row.group}` : row ? `run ${row.runId}` : `row ${at}`);

/** Moves between the headings by which the table can be sorted. @param {KeyboardEvent} event */
function handleHeadKey(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined) return;
  const buttons = [.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("button")].filter((button) => button.offsetParent !== null);
  const at = buttons.findIndex((button) => button === document.activeElement);
  event.preventDefault();
  buttons[(at + step + buttons.length) % buttons.length]?.focus();
}

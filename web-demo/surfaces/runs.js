/**
 * All runs in one table, with the filter's language of the events, an order by each column, groups, views, figures, and
 * actions for those that are selected.
 *
 * The address has the filter, the order, the group, the columns and what is compared. The server filters and sorts.
 */

import { define, oncePerFrame } from "./base.js";
import { opened } from "../dialogs.js";
import { loadStyle } from "../styles.js";
import { html, nothing, render } from "../vendor/lit.js";
import { copyLink, displayButtons, emptyTable, filterBar, notice, rangeOf, selectionBar } from "./run-bar.js";
import { COLUMNS, USUAL_COLUMNS, groupNamed } from "./run-columns.js";
import { figuresTemplate, readFigures } from "./run-figures.js";
import { RunFilter } from "./run-filter.js";
import { RunGroups } from "./run-groups.js";
import { RunPages } from "./run-pages.js";
import { followRuns } from "./run-stream.js";
import { RunTable } from "./run-table.js";
import { NEWEST, RunViews } from "./run-views.js";

/** @typedef {import("../client/hydration.js").RunLine} RunLine */
/** @typedef {import("../route.js").Route} Route */
/** @typedef {import("./run-table.js").RunList} RunList */
/** @typedef {Pick<Route, "filter" | "sort" | "pair" | "group" | "columns">} Place Where in the runs a person is. */

/**
 * What the runs need of the shell.
 * @typedef {object} RunsHost
 * @property {import("../client/http.js").Server} server
 * @property {import("../client/hydration.js").Hydration} hydration Another one with another audience or token.
 * @property {import("../route.js").Audience} audience
 * @property {boolean} canChange Whether the token permits to change what all see.
 * @property {import("../pending.js").PendingItem[]} waiting
 * @property {(session: string) => string | undefined} titleOf The title of a session that the page lists.
 * @property {(run: RunLine) => void} open
 * @property {(place: Place, isStep: boolean) => void} moved Puts the place into the address; `isStep`: as a step of the history.
 */

/** The filter of an address that has none. */
const RECENT = "since:24h";
/** Below this width the figures scroll sideways. As in the style sheet. */
const STRIP_PX = 760;
/** Runs of the first page. */
const FIRST_RUNS = 100;
/** The delay between a key and the search, in milliseconds. */
const SEARCH_MS = 200;
/** The interval at which ages and durations grow, in milliseconds. */
const GROW_MS = 1000;
/** The least time between two readings of the first runs, where the server does not push their changes, in milliseconds. */
const REFRESH_MS = 5000;

export class Runs extends HTMLElement {
  /** @type {RunsHost | undefined} */
  #host;
  #sort = NEWEST;
  #group = "";
  #columns = USUAL_COLUMNS;
  #filter = new RunFilter((facet) => this.#list?.facets[facet] ?? {}, () => this.#moved(true), () => this.#draw());
  #views = new RunViews((view) => {
    this.#take(view);
    this.#moved(true);
  }, () => this.#draw());
  #table = new RunTable({
    list: () => this.#list,
    view: () => ({ audience: this.#host?.audience ?? "user", columns: this.#columns, words: this.#filter.words, titleOf: (session) => this.#host?.titleOf(session) }),
    open: (run) => this.#host?.open(run),
    sort: (column) => this.#sortBy(this.#sort === `-${column}` ? column : `-${column}`),
    changed: () => this.#draw(),
  });
  /** The runs on display. @type {RunList | undefined} */
  #list;
  /** Ends the stream of their changes. */
  #unfollow = () => {};
  /** Whether the server pushes their changes. */
  #isLive = false;
  #refreshedAt = 0;
  /** Those that replace them once they have arrived. @type {RunList | undefined} */
  #next;
  /** How many runs of the range of time have each status. @type {{ since: string, counts: Record<string, number> }} */
  #statuses = { since: "", counts: {} };
  /** @type {{ since: string, value?: import("./run-figures.js").Figures }} */
  #figures = { since: "unknown" };
  /** @type {import("./run-compare.js").RunComparison | undefined} */
  #comparison;
  /** The ids that are compared: `<run>,<run>`, each encoded. */
  #pair = "";
  /** Whether the focus goes to the first row when it arrives. */
  #isAwaited = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #searchTimer;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #growTimer;
  #scheduleDraw = oncePerFrame(() => this.#draw());

  connectedCallback() {
    this.classList.add("runs");
    document.addEventListener("keydown", this.#handlePageKey);
    this.#growTimer = setInterval(() => this.checkVisibility() && this.#table.redraw(), GROW_MS);
    this.#resized.observe(this);
  }

  disconnectedCallback() {
    this.close();
    document.removeEventListener("keydown", this.#handlePageKey);
    clearInterval(this.#growTimer);
    this.#resized.disconnect();
  }

  #resized = new ResizeObserver(() => {
    if (this.clientWidth === 0) return;
    this.#table.resize(this.clientWidth);
    this.#scheduleDraw();
  });

  /* ── what is on display ── */

  /**
   * @param {RunsHost} host
   * @param {Place} place
   */
  show(host, { filter = RECENT, sort = NEWEST, pair = "", group = "", columns = USUAL_COLUMNS }) {
    const isOther = host.hydration !== this.#host?.hydration;
    this.#host = host;
    if (isOther) {
      this.#list?.close();
      this.#list = undefined;
      this.#table.selected.clear();
      this.#figures = { since: "unknown" };
    }
    const isMoved = filter !== this.#filter.value || sort !== this.#sort || group !== this.#group;
    if (isMoved || columns !== this.#columns) this.#take({ filter, sort, group, columns });
    if (isOther || isMoved || !this.#list) this.#read();
    else if (!this.#isLive) {
      this.#follow(this.#list);
      void this.#list.refresh();
    }
    void this.#compare(pair);
    this.#draw();
  }

  /** The lists of the page changed. @param {RunsHost} host */
  update(host) {
    this.#host = host;
    if (!this.#isLive && this.#list && !this.#next && performance.now() - this.#refreshedAt > REFRESH_MS) {
      this.#refreshedAt = performance.now();
      void this.#list.refresh();
    }
    this.#draw();
  }

  /** Ends the stream: something else is on display. */
  close() {
    this.#unfollow();
    this.#unfollow = () => {};
    this.#isLive = false;
  }

  /** Goes back from a comparison. @returns {boolean} Whether there was one. */
  back() {
    if (this.#pair === "") return false;
    this.#closeComparison();
    return true;
  }

  /** Moves the focus to another row. @param {number} step */
  move(step) {
    this.#table.move(step);
  }

  /** Gives the focus to the row that had it; once rows are there, if none are. */
  takeFocus() {
    this.#isAwaited = !this.#list;
    if (this.#list?.total === 0 || this.#pair) /** @type {HTMLElement | null} */ (this.querySelector("button:not([hidden] *)"))?.focus();
    else this.#table.takeFocus();
  }

  /** What is shown, and how. @returns {import("./run-views.js").View} */
  get #view() {
    return { filter: this.#filter.value, sort: this.#sort, group: this.#group, columns: this.#columns };
  }

  /** @param {import("./run-views.js").View} view */
  #take({ filter, sort, group, columns }) {
    [this.#filter.value, this.#sort, this.#group, this.#columns] = [filter, sort, group, columns];
  }

  /** The same as the address has it: without what is usual. @returns {Place} */
  get #place() {
    const { filter, sort, group, columns } = this.#view;
    return { filter, sort, group: group || undefined, columns: columns === USUAL_COLUMNS ? undefined : columns };
  }

  /** Reads the runs of the filter. Those on display stay until others have arrived. */
  #read() {
    const host = this.#host;
    if (!host) return;
    this.#next?.close();
    const query = { filter: this.#filter.value, sort: this.#sort, isInTexts: this.#filter.text.trim() !== "" };
    const group = groupNamed(this.#group);
    const changed = () => {
      if (list === this.#next && list.isRead) this.#swap(list);
      this.#scheduleDraw();
    };
    /** @type {RunList} */
    const list = group ? new RunGroups(host.hydration, { ...query, terms: this.#filter.terms, rest: (terms) => this.#filter.valueWith(terms) }, group, changed) : new RunPages(host.hydration, query, changed);
    this.#next = list;
    this.#follow(list);
    void list.need(0, FIRST_RUNS);
    void this.#readFigures(host);
  }

  /** Follows the changes of runs; those of a search in texts come with the changes of the page's lists. @param {RunList} list */
  #follow(list) {
    this.close();
    const host = this.#host;
    if (!host || list.query.isInTexts) return;
    this.#unfollow = followRuns(host.server, host.audience, list, {
      live: (isLive) => (this.#isLive = isLive),
      totals: (facets) => {
        list.facets = facets;
        if (list === this.#list) this.#takeStatuses(list);
        this.#scheduleDraw();
      },
    });
  }

  /** @param {RunList} list */
  #takeStatuses(list) {
    if (this.#filter.hasAllStatuses) this.#statuses = { since: this.#filter.since, counts: list.facets.status ?? {} };
  }

  /** @param {RunList} list */
  #swap(list) {
    this.#list?.close();
    [this.#list, this.#next] = [list, undefined];
    this.#takeStatuses(list);
    this.#table.reset();
  }

  /** @param {RunsHost} host */
  async #readFigures(host) {
    const { since } = this.#filter;
    if (this.#figures.since === since) return;
    this.#figures = { since };
    try {
      const [value, statuses] = await Promise.all([
        readFigures(host.server, since, host.audience),
        this.#statuses.since !== since && !this.#filter.hasAllStatuses ? host.hydration.runs({ filter: since ? `since:${since}` : undefined, limit: 1 }) : undefined,
      ]);
      if (this.#figures.since !== since || host.hydration !== this.#host?.hydration) return;
      this.#figures = { since, value };
      if (statuses) this.#statuses = { since, counts: statuses.facets?.status ?? {} };
    } catch (error) {
      // The table says why the server does not answer. The next reading asks again.
      console.warn("The figures did not load:", error);
      this.#figures = { since: "unknown" };
    }
    this.#scheduleDraw();
  }

  /** The filter, the order or the group is another one. @param {boolean} isStep Whether the browser can go back from there. */
  #moved(isStep) {
    clearTimeout(this.#searchTimer);
    this.#host?.moved({ group: undefined, columns: undefined, ...this.#place, pair: this.#pair || undefined }, isStep);
    this.#read();
    this.#draw();
  }

  /* ── comparison ── */

  /** @param {string} pair */
  async #compare(pair) {
    if (pair === this.#pair) return;
    this.#pair = pair;
    const ids = pair.split(",").map(decodeURIComponent);
    if (ids.length !== 2) return this.#comparison?.close();
    await opened("The comparison", async () => {
      const [{ RunComparison }] = await Promise.all([import("./run-compare.js"), loadStyle("tools/tools.css")]);
      this.#comparison ??= new RunComparison({ close: () => this.#closeComparison(), open: (run) => this.#host?.open(run) });
      if (this.#pair === pair && this.#host) void this.#comparison.open(this.#host.hydration, ids, (id) => this.#table.selected.get(id) ?? this.#list?.get(id));
    });
    this.#draw();
    /** @type {HTMLElement | null} */ (this.querySelector(".compare-bar button"))?.focus();
  }

  #closeComparison() {
    void this.#compare("");
    this.#host?.moved(this.#place, true);
    this.#draw();
    this.takeFocus();
  }

  #openComparison() {
    const pair = [...this.#table.selected.keys()].map(encodeURIComponent).join(",");
    this.#host?.moved({ ...this.#place, pair }, true);
    void this.#compare(pair);
  }

  /* ── acts of a person ── */

  #clearSelection() {
    const hadFocus = this.querySelector(".runs-selected")?.contains(document.activeElement);
    this.#table.clearSelection();
    if (hadFocus) this.takeFocus();
  }

  /** `/` moves to the filter. @param {KeyboardEvent} event */
  #handlePageKey = (event) => {
    if (event.defaultPrevented || event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !this.checkVisibility() || this.#pair) return;
    if (event.target instanceof HTMLElement && event.target.closest("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    this.querySelector("input")?.focus();
  };

  /** @param {KeyboardEvent} event */
  #handleFieldKey(event) {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if (event.key === "Enter") {
      this.#filter.takeTerms();
      this.#moved(true);
      this.takeFocus();
    } else if (event.key === "ArrowDown") this.takeFocus();
    else if (event.key === "Backspace" && field.value === "" && this.#filter.terms.length > 0) this.#filter.set(this.#filter.terms.slice(0, -1));
    else if (event.key === "Escape" && field.value !== "") {
      this.#filter.text = "";
      this.#moved(true);
    } else if (event.key === "Escape") this.takeFocus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {string} text */
  #type(text) {
    this.#filter.text = text;
    clearTimeout(this.#searchTimer);
    // A term is complete with the space behind it.
    if (/\s$/.test(text) && this.#filter.takeTerms()) return this.#moved(true);
    this.#searchTimer = setTimeout(() => this.#moved(false), SEARCH_MS);
  }

  /** @param {string} order */
  #sortBy(order) {
    this.#sort = order;
    this.#moved(true);
  }

  /** @param {"group" | "columns"} name @param {Event} event */
  #openMenu(name, { currentTarget }) {
    const opener = /** @type {HTMLElement} */ (currentTarget);
    void opened("The menu", async () => {
      const [{ openColumnsMenu, openGroupMenu }] = await Promise.all([import("./run-menus.js"), loadStyle("ui/menu.css")]);
      if (name === "group") openGroupMenu(opener, this.#group, (group) => {
        this.#group = group;
        this.#moved(true);
      });
      else openColumnsMenu(opener, () => this.#columns, (columns) => {
        this.#columns = columns;
        this.#host?.moved({ columns: undefined, ...this.#place }, false);
        this.#draw();
      });
    });
  }

  /* ── drawing ── */

  #draw() {
    const host = this.#host;
    if (!host) return;
    const [list, width] = [this.#list, this.clientWidth];
    const isComparing = this.#pair !== "";
    const order = COLUMNS.some(({ sort }) => sort && this.#sort.replace("-", "") === sort) ? this.#sort : NEWEST;
    render(html`
      <div class="runs-main" ?hidden=${isComparing}>
        ${figuresTemplate(this.#figures.value, host.waiting, rangeOf(this.#filter), width < STRIP_PX)}
        <div class="runs-top">${this.#views.template(this.#view, this.#filter.since ? `since:${this.#filter.since}` : "", this.#statuses.counts)}${displayButtons(this.#group, (name, event) => this.#openMenu(name, event))}</div>
        ${filterBar(this.#filter, this.#sort, {
          type: (text) => this.#type(text), key: (event) => this.#handleFieldKey(event), sort: (value) => this.#sortBy(value), save: () => this.#views.begin(), copy: () => void copyLink({ ...this.#place, audience: host.audience }),
          since: (value) => {
            this.#filter.since = value;
            this.#moved(true);
          },
        })}
        ${notice(list, this.#next, this.#group !== "", () => {
          this.#figures = { since: "unknown" };
          this.#read();
        })}
        ${this.#table.template(order, width, this.#next !== undefined && !this.#next.problem)}
        ${list?.total === 0 ? emptyTable(this.#filter) : nothing}
        ${selectionBar(this.#table.selected, host, { compare: () => this.#openComparison(), clear: () => this.#clearSelection() })}
      </div>
      ${isComparing && this.#comparison ? this.#comparison.root : nothing}`, this);
    this.style.setProperty("--run-tracks", this.#table.tracks(width));
    this.#table.show();
    if (list && this.#isAwaited) this.takeFocus();
    this.style.setProperty("--scrollbar", `${this.#table.scrollbar}px`);
  }
}

define("ps-runs", Runs);

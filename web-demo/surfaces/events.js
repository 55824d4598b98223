/**
 * The events: all envelopes of the session or run as dense rows, live, with filters and a detail pane. Opened from an
 * item, it shows only the envelopes that made the item.
 */

import { formatBytes } from "../ui/format.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { downloadIcon } from "../ui/lazy-icons.js";
import { html, nothing, render } from "../vendor/lit.js";
import { Surface, define, element, formatCount, keyOf, oncePerFrame } from "./base.js";
import { describe } from "./describe.js";
import { copyEvent, exportRows } from "./event-copy.js";
import { changesOf, eventDetail, itemDetail } from "./event-detail.js";
import { matcherOf, parseFilter } from "./event-filter.js";
import { EventLog, rowOf } from "./event-log.js";
import { EventMenus } from "./event-menus.js";
import { COLUMNS, agentName, fillRow, makeRow } from "./event-row.js";
import { FixedHeightList } from "./fixed-height-list.js";
import { isLiveRun } from "./live-run.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */
/** @typedef {import("./event-detail.js").Change} Change */
/** @typedef {import("./event-log.js").Row} Row */
/** @typedef {import("./event-row.js").Line} Line */

/** The height of a row in pixels: `--row-dense`. A finger needs more. */
const ROW_PX = matchMedia("(pointer: coarse)").matches ? 40 : 26;
/** Older envelopes that one request of the viewer loads. */
const MORE_EVENTS = 10_000;
/** How long filtering may block the page, in milliseconds. */
const SLICE_MS = 8;
/** The delay before the changes of a selected envelope are read: keys move over many envelopes. */
const CHANGES_DELAY_MS = 150;
/** The maximum length of streamed text in a line, in characters. */
const TEXT_CHARS_MAX = 200;
export class Events extends Surface {
  static shows() {
    return true;
  }

  /** @type {EventLog | undefined} */
  #log;
  /** The activity whose envelopes are on display; all if undefined. @type {Activity | undefined} */
  #activity;
  /** The text of the filter's field. */
  #text = "";
  #menus = new EventMenus(() => void this.#refilter(), () => this.#draw());
  #isCompact = false;
  #isPaused = false;
  /** The matching rows. @type {Row[]} */
  #shown = [];
  #shownBytes = 0;
  /** @type {Line[]} */
  #lines = [];
  /** Matching rows that arrived during a pause. */
  #held = 0;
  /** Identifies the newest filtering. An older one stops. */
  #filtering = 0;
  /** @type {(row: Row) => boolean} */
  #matches = () => true;
  /** The past moment on display, as of the last filtering. @type {number | null} */
  #at = null;
  /** @type {Row | undefined} */
  #selected;
  /** The envelope to select once it is loaded. @type {{ run: string | undefined, sequence: number } | undefined} */
  #wanted;
  /** @type {"json" | "changes" | "refs"} */
  #tab = "json";
  /** @type {Change[] | undefined} */
  #changes;
  #changesProblem = "";
  #feedback = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #changesTimer;
  #scheduleDraw = oncePerFrame(() => this.#draw());

  connectedCallback() {
    // From within, the key is handled before another visible surface takes it.
    this.addEventListener("keydown", this.#handlePageKey);
    document.addEventListener("keydown", this.#handlePageKey);
    document.addEventListener("pointerdown", this.#closeMenus);
    this.#resized.observe(this);
  }

  disconnectedCallback() {
    this.removeEventListener("keydown", this.#handlePageKey);
    document.removeEventListener("keydown", this.#handlePageKey);
    document.removeEventListener("pointerdown", this.#closeMenus);
    this.#resized.disconnect();
  }

  /** A hidden panel loads nothing; it begins when it is first shown. */
  #resized = new ResizeObserver(() => this.#start());

  build() {
    // Times on the page change; envelopes do not. The log of the live view stays while a past moment is shown.
    if (this.#log && (this.#logSource !== this.view.hydration || this.#activity)) this.#reset();
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Events");
    this.bar = element("div", "events-bar");
    this.main = element("div", "events-main");
    this.head = element("div", "event-row events-head");
    this.head.setAttribute("aria-hidden", "true");
    for (const [name, label] of COLUMNS) this.head.append(element("span", name, label));
    this.notice = element("div", "events-notice");
    this.foot = element("p", "events-foot hint");
    this.foot.setAttribute("role", "status");
    this.detail = element("aside", "event-detail");
    this.detail.setAttribute("aria-label", "Event");
    this.detail.hidden = true;
    /** @type {FixedHeightList<Line>} */
    this.list = new FixedHeightList({
      height: ROW_PX, label: "Events, oldest first", isListbox: true, isRecycled: true,
      keyOf: ({ first }) => first.key, make: makeRow, change: (row, line) => fillRow(this.view, row, line, this.#selected),
    });
    this.list.root.addEventListener("keydown", (event) => this.#handleListKey(event));
    this.list.root.addEventListener("click", (event) => {
      const row = /** @type {HTMLElement} */ (event.target).closest(".event-row");
      const line = row instanceof HTMLElement ? this.#lines.find(({ first }) => first.key === row.dataset.key) : undefined;
      if (line) this.#select(line.last);
    });
    this.list.root.addEventListener("scroll", () => this.#loadAtStart(), { passive: true });
    this.main.append(this.notice, this.head, this.list.root, this.foot);
    this.append(this.bar, this.main, this.detail);
  }

  /** Where the log was read. @type {unknown} */
  #logSource;

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    this.#start();
    if (this.#at !== this.view.at) void this.#refilter();
    else if (_changed === null) {
      this.#draw();
      this.#drawDetail();
    }
  }

  /* ── what is on display ── */

  /**
   * Shows the envelopes of an activity.
   * @param {Activity} activity
   * @returns {Promise<void>} Resolves when they are loaded.
   */
  async show(activity) {
    this.#reset();
    this.#activity = activity;
    await this.#open();
    this.list?.root.focus({ preventScroll: true });
  }

  /** Gives the focus to the list. */
  takeFocus() {
    this.list?.root.focus({ preventScroll: true });
  }

  /** Shows all envelopes again. */
  close() {
    if (!this.#activity) return;
    this.#reset();
    this.#start();
  }

  /** Whether it shows the envelopes of one activity. */
  get isOpen() {
    return this.#activity !== undefined;
  }

  /**
   * Selects an envelope.
   * @param {string} id `<sequence>` of the focused run, or `<run>:<sequence>`; of the session's own log `:<sequence>`.
   */
  openEvent(id) {
    const colon = id.lastIndexOf(":");
    const sequence = Number(id.slice(colon + 1));
    if (!Number.isSafeInteger(sequence) || sequence < 1) return;
    this.close();
    this.#wanted = { run: colon < 0 ? undefined : id.slice(0, colon), sequence };
    if (this.isConnectedToView) this.#findWanted();
  }

  #reset() {
    this.#log?.close();
    this.#log = undefined;
    this.#activity = undefined;
    this.#menus.clear();
    this.#setRows([]);
    this.#selected = undefined;
    if (this.list) this.list.isHeld = false;
    this.#isPaused = false;
    this.#message = "";
  }

  #start() {
    if (!this.#log && this.isConnectedToView && this.offsetParent !== null) void this.#open();
  }

  async #open() {
    this.#log?.close();
    this.#logSource = this.view.hydration;
    const log = new EventLog(this.view, this.#activity, (added) => {
      if (log === this.#log) this.#take(added);
    });
    this.#log = log;
    void this.#refilter();
    this.#drawDetail();
    this.list?.toEnd();
    await log.open();
  }

  /** @param {{ before: Row[], after: Row[] }} added */
  #take({ before, after }) {
    for (const row of [...before, ...after]) this.#menus.count(row);
    if (before.length > 0) {
      const added = before.filter(this.#matches);
      const lines = this.#lines.length;
      this.#setRows([...added, ...this.#shown]);
      this.list?.show(this.#lines, this.#lines.length - lines);
    }
    if (after.length > 0) {
      const added = after.filter(this.#matches);
      if (this.#isPaused) this.#held += added.length;
      else for (const row of added) this.#append(row);
    }
    if (this.#wanted) this.#findWanted();
    this.#scheduleDraw();
  }

  /** @param {Row[]} rows */
  #setRows(rows) {
    this.#shown = [];
    this.#lines = [];
    this.#shownBytes = 0;
    this.#held = 0;
    for (const row of rows) this.#append(row);
  }

  /** @param {Row} row */
  #append(row) {
    this.#shown.push(row);
    this.#shownBytes += row.size;
    const last = this.#isCompact ? this.#lines.at(-1) : undefined;
    if (last && last.last.subject === row.subject) {
      last.last = row;
      last.count += 1;
      last.size += row.size;
      if (!row.type.endsWith(".delta")) last.text = row.summary;
      else if (last.text.length < TEXT_CHARS_MAX) last.text += row.summary;
    } else {
      this.#lines.push({ first: row, last: row, count: 1, size: row.size, text: row.summary });
    }
  }

  /**
   * Filters all rows, in slices: the page stays usable with a hundred thousand of them.
   * @returns {Promise<void>}
   */
  async #refilter() {
    const id = ++this.#filtering;
    const matches = matcherOf([...parseFilter(this.#text), ...this.#menus.terms]);
    this.#at = this.view.at;
    const isEarlier = this.#isEarlier();
    this.#matches = (row) => isEarlier(row) && matches(row);
    const rows = this.#log?.rows ?? [];
    /** @type {Row[]} */
    const found = [];
    let until = performance.now() + SLICE_MS;
    for (let at = 0; at < rows.length; at += 1) {
      if (this.#matches(rows[at])) found.push(rows[at]);
      if (at % 64 !== 0 || performance.now() < until) continue;
      await new Promise((resolve) => setTimeout(resolve));
      if (id !== this.#filtering) return;
      // Rows that arrived meanwhile changed the array only at its ends.
      if (rows !== this.#log?.rows) return this.#refilter();
      until = performance.now() + SLICE_MS;
    }
    const wasAtEnd = this.list?.isAtEnd ?? true;
    this.#setRows(found);
    this.list?.show(this.#lines);
    if (wasAtEnd) this.list?.toEnd();
    this.#draw();
  }

  /** At a past moment, later events do not exist yet. @returns {(row: Row) => boolean} */
  #isEarlier() {
    const { at, isLive, sessionId } = this.view;
    if (isLive || at === null) return () => true;
    // The position of a session counts the events of all its logs, and not only of those on display.
    if (sessionId === undefined) return ({ sequence }) => sequence <= at;
    const moment = this.view.now();
    return ({ time }) => !(time > moment);
  }

  /** Loads older events when the viewer scrolls to the first one. */
  #loadAtStart() {
    const { list } = this;
    if (list && this.#log && !this.#log.isWhole && !this.#log.isLoading && !this.#log.activity && !this.#log.problem && this.#lines.length > 0 && list.root.scrollTop < ROW_PX) void this.#log.loadMore(MORE_EVENTS / 10);
  }

  /* ── selection ── */

  /**
   * @param {Row | undefined} row
   */
  #select(row) {
    this.#selected = row;
    if (this.list) this.list.isHeld = row !== undefined;
    this.#feedback = "";
    this.#changes = undefined;
    this.#changesProblem = "";
    clearTimeout(this.#changesTimer);
    if (row) this.#changesTimer = setTimeout(() => void this.#loadChanges(row), CHANGES_DELAY_MS);
    this.#draw();
    this.#drawDetail();
    if (row) {
      const at = this.#lineOf(row);
      if (at >= 0) this.list?.scrollIntoView(at);
    }
  }

  /** @param {Row} row */
  async #loadChanges(row) {
    const rows = this.#log?.rows ?? [];
    const at = rows.indexOf(row);
    try {
      const changes = await changesOf(this.view, row, rows[at - 1]?.cursor ?? "");
      if (row === this.#selected) this.#changes = changes;
    } catch (error) {
      if (row === this.#selected) this.#changesProblem = error instanceof Error ? error.message : String(error);
    }
    if (row === this.#selected) this.#drawDetail();
  }

  /**
   * Returns the index of the line with this row; -1 if there is none.
   * @param {Row | undefined} row
   */
  #lineOf(row) {
    if (!row) return -1;
    return this.#lines.findIndex(({ first, last }) => first === row || last === row || (first.subject === row.subject && first.sequence <= row.sequence && row.sequence <= last.sequence));
  }

  /** @param {number} step */
  #step(step) {
    const at = this.#lineOf(this.#selected);
    const next = at < 0 ? (step > 0 ? 0 : this.#lines.length - 1) : Math.min(this.#lines.length - 1, Math.max(0, at + step));
    const line = this.#lines[next];
    if (line) this.#select(line.last);
  }

  /** Selects the envelope of the address, once it is loaded. */
  #findWanted() {
    const [wanted, log] = [this.#wanted, this.#log];
    if (!wanted || !log) return;
    const run = wanted.run ?? this.view.runId;
    const row = log.rows.find((one) => one.sequence === wanted.sequence && one.run === run);
    if (row) {
      this.#wanted = undefined;
      this.#select(row);
      this.list?.reveal(({ first, last }) => first === row || last === row);
    } else if (!log.isLoading && run) {
      this.#wanted = undefined;
      void this.#fetchWanted(run, wanted.sequence);
    }
  }

  /**
   * Reads an envelope that is older than the loaded ones.
   * @param {string} run
   * @param {number} sequence
   */
  async #fetchWanted(run, sequence) {
    try {
      const { events } = await this.view.hydration.events(run, { after: sequence - 1, before: sequence + 1, audience: this.view.audience });
      if (events[0]) this.#select(rowOf(events[0]));
      else this.#setNotice(`Event ${sequence} does not exist, or is withheld from this audience.`);
    } catch (error) {
      this.#setNotice(`Event ${sequence} could not be loaded: ${error instanceof Error ? error.message : error}`);
    }
  }

  /** A sentence above the list. */
  #message = "";

  /** @param {string} text */
  #setNotice(text) {
    this.#message = text;
    this.#draw();
  }

  /* ── keys ── */

  /** @param {KeyboardEvent} event */
  #handleListKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    switch (event.key) {
      case "j": case "ArrowDown": this.#step(1); break;
      case "k": case "ArrowUp": this.#step(-1); break;
      case "Home": this.#step(-Infinity); break;
      case "End": this.#step(Infinity); break;
      case "Enter":
        if (!this.#selected) this.#step(1);
        /** @type {HTMLElement | null | undefined} */ (this.detail?.querySelector(".event-panel"))?.focus();
        break;
      case "Escape":
        if (this.#selected) this.#select(undefined);
        else if (this.#activity) this.close();
        else return;
        break;
      default: return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** `/` moves to the filter of a visible list. @param {KeyboardEvent} event */
  #handlePageKey = (event) => {
    if (event.defaultPrevented || event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || this.offsetParent === null) return;
    const { target } = event;
    if (target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    this.bar?.querySelector("input")?.focus();
  };

  /** @param {Event} event */
  #closeMenus = (event) => {
    for (const menu of this.querySelectorAll("details[open].filter-menu")) if (event.type === "keydown" || !menu.contains(/** @type {Node} */ (event.target))) /** @type {HTMLDetailsElement} */ (menu).open = false;
  };

  /* ── drawing ── */

  #draw() {
    const { bar, foot, notice, list } = this;
    if (!bar || !foot || !notice || !list) return;
    render(this.#barTemplate(), bar);
    render(this.#noticeTemplate(), notice);
    list.show(this.#lines);
    const at = this.#lineOf(this.#selected);
    if (at >= 0) list.root.setAttribute("aria-activedescendant", rowId(this.#lines[at]));
    else list.root.removeAttribute("aria-activedescendant");
    render(this.#footTemplate(), foot);
  }

  /** Draws the detail: its JSON is long, so that it is not drawn with each new row. */
  #drawDetail() {
    const { detail, list } = this;
    if (!detail || !list) return;
    const row = this.#selected;
    const activity = this.#activity;
    detail.hidden = !row && !activity;
    this.toggleAttribute("data-detail", !detail.hidden);
    render(row
      ? eventDetail({
        view: this.view, row, tab: this.#tab, changes: this.#changes, problem: this.#changesProblem, feedback: this.#feedback,
        onTab: (tab) => {
          this.#tab = tab;
          this.#drawDetail();
        },
        onStep: (step) => this.#step(step), onCopy: (what) => this.#copy(what),
        onClose: () => {
          this.#select(undefined);
          list.root.focus();
        },
      })
      : activity ? itemDetail(this.view, activity) : nothing, detail);
    detail.onkeydown = (event) => {
      if (event.key !== "Escape" || !row) return;
      event.stopPropagation();
      this.#select(undefined);
      list.root.focus();
    };
  }

  #barTemplate() {
    const log = this.#log;
    const [shown, all] = [this.#shown.length, log?.rows.length ?? 0];
    const size = formatBytes(this.#shownBytes);
    return html`
      <label class="filter-field">${icon("filter")}<span class="visually-hidden">Filter events</span>
        <input type="search" placeholder="Text, or type:tool.* agent:writer" autocomplete="off" spellcheck="false" .value=${this.#text} @input=${(/** @type {Event} */ event) => {
          this.#text = /** @type {HTMLInputElement} */ (event.target).value;
          void this.#refilter();
        }} @keydown=${(/** @type {KeyboardEvent} */ event) => this.#handleFieldKey(event)}><kbd>/</kbd></label>
      ${this.#menus.template((facet, value) => (facet === "agent" ? agentName(this.view, value) : value))}
      <div class="events-side">
        <span class="events-count hint" role="status">${shown === all ? formatCount(all) : `${formatCount(shown)} of ${formatCount(all)}`} ${all === 1 ? "event" : "events"}${size && shown > 0 ? ` · ${size}` : ""}</span>
        <div class="segments" role="group" aria-label="Rows"><button type="button" aria-pressed=${!this.#isCompact} title="A row for each event" @click=${() => this.#setCompact(false)}>Full</button><button type="button" aria-pressed=${this.#isCompact} title="A row for consecutive events of the same item" @click=${() => this.#setCompact(true)}>Compact</button></div>
        <button type="button" class="button small" data-kind="quiet" aria-label=${this.#isPaused ? "Resume" : "Pause"} ?hidden=${!log?.isLive} @click=${() => this.#togglePause()}>${icon(this.#isPaused ? "play" : "pause")}<span>${this.#isPaused ? "Resume" : "Pause"}</span></button>
        <button type="button" class="button small" data-kind="quiet" aria-label="Export" title="Download the filtered events as NDJSON" ?disabled=${shown === 0} @click=${() => exportRows(this.view, this.#shown)}>${downloadIcon}<span>Export</span></button>
      </div>`;
  }

  #noticeTemplate() {
    const [log, activity] = [this.#log, this.#activity];
    const item = activity ? describe(activity) : undefined;
    return html`
      ${item ? html`<p class="events-item"><span class="truncate">Events of <strong>${item.label}: ${item.title}</strong></span><button type="button" class="button small" data-kind="quiet" @click=${() => this.close()}>Show all events</button></p>` : nothing}
      ${this.#message ? html`<p class="hint">${this.#message}</p>` : nothing}
      ${log?.problem ? html`<p class="events-problem" role="alert"><span>The events could not be loaded: ${log.problem}</span><button type="button" class="button small" @click=${() => void this.#open()}>Retry</button></p>` : nothing}
      ${log && !log.isAvailable ? html`<p class="hint">This activity belongs to a session's own log. Its events are not available here.</p>` : nothing}
      ${log?.isCompacted ? html`<p class="hint">The log was compacted: transient events have been removed.</p>` : nothing}
      ${log && !log.isWhole && !log.isLoading && log.isAvailable && !log.problem ? html`<p class="events-older"><span class="hint">${activity ? "Later events are not searched yet." : "Older events are not loaded."}</span>
        <button type="button" class="button small" data-kind="quiet" @click=${() => void log.loadMore(MORE_EVENTS)}>${activity ? "Continue search" : `Load ${formatCount(MORE_EVENTS)} more`}</button>
        ${activity ? nothing : html`<button type="button" class="button small" data-kind="quiet" @click=${() => void log.loadMore(Infinity)}>Load all</button>`}</p>` : nothing}`;
  }

  #footTemplate() {
    const log = this.#log;
    if (!log) return nothing;
    if (log.isLoading) return html`${glyph("running")}Loading events…`;
    if (log.rows.length > 0 && this.#shown.length === 0) return "No event matches the filter.";
    if (log.rows.length === 0) return log.problem || !log.isAvailable ? nothing : this.#activity ? "This audience sees none of its events." : "No events yet.";
    if (this.#isPaused) return html`Paused${this.#held > 0 ? ` · ${formatCount(this.#held)} new` : ""}`;
    if (!this.view.isLive) return "Later events are hidden at a past moment.";
    if (!log.isLive) return nothing;
    const { runId = "", store } = this.view;
    const run = store.get(keyOf({ runId, activityType: "run", activityId: runId }));
    return run && isLiveRun(run) ? html`${glyph("running")}Following live events` : "No run is active. New events appear here.";
  }

  /* ── actions ── */

  /** @param {KeyboardEvent} event */
  #handleFieldKey(event) {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      this.list?.root.focus();
      if (!this.#selected) this.#step(1);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      if (this.#text === "") return this.list?.root.focus();
      this.#text = "";
      void this.#refilter();
    }
  }

  /** @param {boolean} isCompact */
  #setCompact(isCompact) {
    this.#isCompact = isCompact;
    this.#setRows(this.#shown);
    this.#draw();
  }

  #togglePause() {
    this.#isPaused = !this.#isPaused;
    if (!this.#isPaused) void this.#refilter();
    this.#draw();
  }

  /** @param {import("./event-copy.js").CopyForm} form */
  async #copy(form) {
    const row = this.#selected;
    if (!row) return;
    const rows = this.#log?.rows ?? [];
    this.#feedback = await copyEvent(this.view, row, form, rows[rows.indexOf(row) - 1]?.cursor);
    this.#drawDetail();
  }
}

/** @param {Line} line */
const rowId = ({ first }) => `event-${first.key}`;

define("ps-events", Events);

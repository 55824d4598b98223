/**
 * The trace: what each agent did and when, as rows with bars on the time axis that the scrubber shares.
 *
 * In the pane a lane is one row that opens to its steps. In full width all lanes are open, with a column for details.
 * Older steps of the session are loaded by page.
 */

import { Surface, element, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { FixedHeightList } from "./fixed-height-list.js";
import { controlTarget } from "./facts.js";
import { controlButton } from "./control-button.js";
import { barsOf, busyTime, firstStart, groupedLanes, isStep, lanesIn, lastEnd, sumUsage, timesOf } from "./spans.js";
import { kindOf } from "./row-model.js";
import { stepDetail } from "./step-detail.js";
import { waitReason } from "./tool.js";
import { html, nothing, render, svg } from "../vendor/lit.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { t } from "../ui/texts.js";
import { formatCost, formatShortCount, formatSpan } from "../ui/format.js";
import { axisBreaks } from "../ui/axis-breaks.js";
import { formatElapsed, pageAxis } from "../ui/time-axis.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./spans.js").Grouping} Grouping */
/** @typedef {import("./spans.js").Lane} Lane */
/** @typedef {import("./spans.js").Span} Span */
/** @typedef {import("./spans.js").SpanKind} SpanKind */
/** @typedef {{ key: string, lane: Lane, span?: Span, depth: number, isOpen: boolean, isOpenable: boolean }} Row */

/** The height of a row in pixels, as in the style sheet. */
const ROW_PX = 28;
/** From this width on, the full form: all lanes are open, and the details have a column. As in the style sheet. */
const WIDE_PX = 860;
/** The page size, and the maximum number of pages read until one has new entries. */
const PAGE_ITEMS = 500;
const PAGES_MAX = 50;
/** The maximum number of loaded entries. Beyond it the newest are dropped, which the store usually has. */
const HISTORY_MAX = 20_000;
/** Steps in the list of the longest ones. */
const LONGEST_MAX = 5;
/** The width of a bar's label, at most, and the narrowest bar, in pixels. */
const LABEL_PX = 110;
const BAR_MIN_PX = 3;
/** A shorter step is a moment, which has no duration, in milliseconds. */
const MOMENT_MS = 50;
/** The interval at which open bars grow, in milliseconds. */
const GROW_MS = 1000;
/** @type {[SpanKind, import("../ui/texts.js").Text][]} */
const LEGEND = [["message", "Message"], ["thinking", "Thinking"], ["tool", "Tool"], ["waiting", "Waiting"], ["failed", "Failed"], ["turn", "Turn"], ["other", "Other"]];
/** @type {[Grouping, import("../ui/texts.js").Text, import("../ui/texts.js").Text][]} */
const GROUPINGS = [["agents", "Agents", "A lane per agent"], ["runs", "Runs", "A lane per run"], ["work", "Work", "A lane per task"]];
/** The heading of the steps, by what they are grouped by. */
const HEADS = /** @type {const} */ ({ agents: "Agent and step", runs: "Run and step", work: "Task and step" });

/** @type {WeakMap<Element, Row>} */
const shownRows = new WeakMap();
let traces = 0;

export class Trace extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return isStep(activity) || ["run", "agent", "task", "metrics"].includes(activity.activityType);
  }

  #id = ++traces;
  /** @type {Grouping} */
  #grouping = "agents";
  #text = "";
  /** @type {Set<SpanKind>} Kinds on display; empty for all. */
  #kinds = new Set();
  /** Lanes and turns that the viewer opened or closed, against the default. @type {Set<string>} */
  #toggled = new Set();
  /** @type {string | undefined} The key of the selected row. */
  #selected;
  /** @type {Activity[]} Loaded entries that the store does not have. */
  #history = [];
  /** @type {string | null} */
  #cursor = null;
  #hasRead = false;
  #isReading = false;
  #problem = "";
  /** Whether the newly loaded entries were prepended. */
  #isPrepended = false;
  /** The id of the newest load. The result of an older one is dropped. */
  #requestId = 0;
  /** @type {Row[]} */
  #rows = [];
  /** @type {Activity[]} The store's activities with the history, while they are unchanged. */
  #merged = [];
  #mergedFrom = {};
  #barsWidth = 0;
  #isWide = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;
  /** Where keys reach it from: the document, or the shadow root around it. @type {Document | undefined} */
  #keys;
  /** Whether another surface shows this activity's details, so that the trace does not. @type {(key: string) => boolean} */
  isExpandedElsewhere = () => false;

  connectedCallback() {
    pageAxis.addEventListener("change", this.#redraw);
    this.#keys = /** @type {Document} */ (this.getRootNode());
    this.#keys.addEventListener("keydown", this.#handlePageKey);
    this.#resized.observe(this);
    this.#timer = setInterval(() => this.isConnectedToView && this.view.isLive && this.checkVisibility() && this.#hasOpenSpan() && this.#draw(), GROW_MS);
  }

  disconnectedCallback() {
    pageAxis.removeEventListener("change", this.#redraw);
    this.#keys?.removeEventListener("keydown", this.#handlePageKey);
    this.#resized.disconnect();
    clearInterval(this.#timer);
  }

  /** Whether there is no step. */
  get isEmpty() {
    return this.#rows.length === 0 && this.#text === "" && this.#kinds.size === 0;
  }

  #redraw = () => this.isConnectedToView && this.checkVisibility() && this.#draw();
  #resized = new ResizeObserver(() => {
    if (!this.isConnectedToView || this.clientWidth === 0) return;
    const isWide = this.clientWidth >= WIDE_PX;
    if (isWide !== this.#isWide) {
      this.#isWide = isWide;
      this.#toggled.clear();
    }
    this.#draw();
  });

  build() {
    this.#requestId += 1;
    this.#history = [];
    this.#cursor = null;
    this.#hasRead = false;
    this.#isReading = false;
    this.#problem = "";
    this.#isWide = this.clientWidth >= WIDE_PX;
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", t("Trace"));
    this.bar = element("div", "trace-bar");
    this.head = element("div", "trace-head trace-grid");
    this.main = element("div", "trace-main");
    this.now = element("div", "trace-now");
    this.below = element("div", "trace-below");
    this.detail = element("section", "trace-detail");
    this.detail.setAttribute("aria-label", "Step");
    /** @type {FixedHeightList<Row>} */
    this.list = new FixedHeightList({
      height: ROW_PX, label: "Steps", isListbox: true, isRecycled: true, startsAtTop: true,
      keyOf: ({ key }) => key,
      make: () => element("div", "trace-row trace-grid"),
      change: (row, item, at) => this.#fillRow(row, item, at),
    });
    this.list.root.setAttribute("role", "tree");
    this.list.root.addEventListener("keydown", (event) => this.#handleListKey(event));
    this.list.root.addEventListener("click", (event) => this.#handleClick(/** @type {HTMLElement} */ (event.target)));
    this.list.root.addEventListener("wheel", (event) => this.#handleWheel(event), { passive: false });
    this.main.append(this.head, this.list.root, this.now);
    this.append(this.bar, this.main, this.detail, this.below);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    this.#draw();
  }

  /* ── data ── */

  /** @returns {Lane[]} */
  #lanes() {
    if (this.#history.length === 0) return lanesIn(this.view.store, this.#grouping);
    const live = this.view.store.sorted();
    const isSame = live.length === this.#merged.length - this.#history.length && this.#mergedFrom === this.#history && live.every((one, at) => one === this.#merged[at + this.#history.length]);
    if (!isSame) {
      const known = new Set(live.map(keyOf));
      this.#history = this.#history.filter((one) => !known.has(keyOf(one)));
      this.#mergedFrom = this.#history;
      this.#merged = [...this.#history, ...live];
    }
    return groupedLanes(this.#merged, this.#grouping);
  }

  #hasOpenSpan() {
    return this.#lanes().some((lane) => [...lane.spans, ...lane.turns].some((span) => Number.isNaN(span.end)));
  }

  /** @param {Span} span */
  #matches({ kind, name, detail }) {
    return (this.#kinds.size === 0 || this.#kinds.has(kind)) && (this.#text === "" || `${name} ${detail}`.toLowerCase().includes(this.#text));
  }

  /**
   * Whether a step is shown without a filter: momentary items of other kinds would hide the work between them.
   * @param {Span} span
   */
  #isMain({ key, kind, start, end, tokens }) {
    return kind !== "other" || Number.isNaN(end) || end - start >= MOMENT_MS || tokens !== undefined || key === this.#selected;
  }

  /** @param {Lane[]} lanes */
  #rowsOf(lanes) {
    /** @type {Row[]} */
    const rows = [];
    const isFiltered = this.#text !== "" || this.#kinds.size > 0;
    const opensByDefault = this.#isWide || isFiltered;
    for (const lane of lanes) {
      const key = `lane ${lane.id}`;
      const isLaneMatched = this.#kinds.size === 0 && this.#text !== "" && `${lane.name} ${lane.role}`.toLowerCase().includes(this.#text);
      const spans = lane.spans.filter((span) => (isFiltered && !isLaneMatched ? this.#matches(span) : this.#isMain(span)));
      if (isFiltered && !isLaneMatched && spans.length === 0) continue;
      const isOpen = opensByDefault !== this.#toggled.has(key);
      rows.push({ key, lane, depth: 0, isOpen, isOpenable: spans.length > 0 });
      if (!isOpen) continue;
      // The runs of a lane that has several are rows of their own.
      if (lane.turns.length < 2) this.#addSpans(rows, lane, spans, 1);
      else {
        const known = new Set(lane.turns.map(({ activity }) => activity.runId));
        this.#addSpans(rows, lane, spans.filter(({ activity }) => !known.has(activity.runId)), 1);
        for (const turn of lane.turns) {
          const own = spans.filter(({ activity }) => activity.runId === turn.activity.runId);
          if (isFiltered && own.length === 0) continue;
          const isTurnOpen = !this.#toggled.has(turn.key);
          rows.push({ key: turn.key, lane, span: turn, depth: 1, isOpen: isTurnOpen, isOpenable: own.length > 0 });
          if (isTurnOpen) this.#addSpans(rows, lane, own, 2);
        }
      }
    }
    return rows;
  }

  /**
   * Adds steps; a call that another one made is below that.
   * @param {Row[]} rows
   * @param {Lane} lane
   * @param {Span[]} spans
   * @param {number} depth
   */
  #addSpans(rows, lane, spans, depth) {
    /** @type {Map<string, number>} */
    const depths = new Map();
    for (const span of spans) {
      const own = span.parent ? (depths.get(span.parent) ?? depth - 1) + 1 : depth;
      depths.set(span.key, own);
      rows.push({ key: span.key, lane, span, depth: own, isOpen: false, isOpenable: false });
    }
  }

  /** The session of the view; empty if unknown. */
  #session() {
    if (this.view.sessionId) return this.view.sessionId;
    const run = this.view.store.sorted((it) => it.activityType === "run")[0];
    return toText(run?.content.sessionId);
  }

  async #loadEarlier() {
    const session = this.#session();
    if (!session || this.#isReading) return;
    const requestId = ++this.#requestId;
    this.#isReading = true;
    this.#draw();
    try {
      const known = new Set([...this.#history, ...this.view.store.sorted()].map(keyOf));
      // The newest pages may contain only entries that the store has. Read on until a page has another.
      for (let pages = 0; pages < PAGES_MAX; pages += 1) {
        const page = await this.view.hydration.timeline(session, { limit: PAGE_ITEMS, audience: this.view.audience, ...(this.#cursor ? { cursor: this.#cursor } : {}) });
        if (requestId !== this.#requestId) return;
        const unknown = page.items.filter((it) => !known.has(keyOf(it)));
        this.#history = [...unknown, ...this.#history].slice(0, HISTORY_MAX);
        this.#cursor = page.nextCursor ?? null;
        this.#hasRead = true;
        if (unknown.length > 0 || this.#cursor === null) break;
      }
      this.#isPrepended = true;
      this.#problem = "";
    } catch (error) {
      if (requestId !== this.#requestId) return;
      this.#problem = `Earlier steps could not be loaded: ${error instanceof Error ? error.message : error}`;
    }
    this.#isReading = false;
    this.#draw();
  }

  /* ── selection ── */

  /**
   * Selects a step and scrolls to it.
   * @param {string} activityType
   * @param {string} id
   * @param {string} [runId]
   * @returns {boolean} Whether the step exists.
   */
  open(activityType, id, runId) {
    for (const lane of this.#lanes()) {
      const span = lane.spans.find(({ activity }) => activity.activityType === activityType && activity.activityId === id && activity.runId === (runId ?? activity.runId));
      if (!span) continue;
      this.#text = "";
      this.#kinds.clear();
      const key = `lane ${lane.id}`;
      if (this.#isWide === this.#toggled.has(key)) this.#toggle(key);
      this.#toggled.delete(keyOf({ ...span.activity, activityType: "run", activityId: span.activity.runId }));
      this.#selected = span.key;
      this.#draw();
      this.list?.reveal((row) => row.key === this.#selected);
      return true;
    }
    return false;
  }

  /** Gives the focus to the list of steps; while there are none, to the panel. */
  takeFocus() {
    (this.hidden ? /** @type {HTMLElement | null} */ (this.closest(".panel")) : this.list?.root)?.focus({ preventScroll: true });
  }

  /** Draws the details again after another surface expanded or collapsed an activity. */
  refresh() {
    if (this.#selected !== undefined && this.isConnectedToView) this.#drawDetail();
  }

  /** @param {string} key */
  #toggle(key) {
    if (!this.#toggled.delete(key)) this.#toggled.add(key);
  }

  /** @param {string | undefined} key */
  #select(key) {
    this.#selected = key;
    this.#draw();
    const at = this.#rows.findIndex((row) => row.key === key);
    if (at >= 0) this.list?.scrollIntoView(at);
  }

  /** @param {HTMLElement} target */
  #handleClick(target) {
    const row = shownRows.get(target.closest(".trace-row") ?? this);
    if (!row) return;
    if (row.isOpenable && (!row.span || target.closest(".trace-chevron"))) {
      this.#toggle(row.key);
      return this.#select(row.key);
    }
    this.#select(this.#selected === row.key && !this.#isWide ? undefined : row.key);
  }

  /** @param {KeyboardEvent} event */
  #handleListKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.#rows.findIndex((row) => row.key === this.#selected);
    const row = this.#rows[at];
    const page = Math.max(1, Math.floor((this.list?.root.clientHeight ?? 0) / ROW_PX) - 1);
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (step !== undefined) {
      const next = this.#rows[Math.min(this.#rows.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
      this.#select(next?.key);
    } else if (event.key === "Enter" && row) {
      if (row.span) this.#reveal(row.span.activity);
      else if (row.isOpenable) this.#toggle(row.key), this.#draw();
    } else if (event.key === "ArrowRight" && row?.isOpenable && !row.isOpen) this.#toggle(row.key), this.#draw();
    else if (event.key === "ArrowLeft" && row) {
      if (row.isOpenable && row.isOpen) this.#toggle(row.key), this.#draw();
      else this.#select(this.#rows.findLast((one, n) => n < at && one.depth < row.depth)?.key ?? row.key);
    } else if (event.key === "Escape" && row?.span) this.#select(undefined);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {KeyboardEvent} event */
  #handlePageKey = (event) => {
    if (event.key !== "/" || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !this.checkVisibility()) return;
    if (/** @type {HTMLElement} */ (event.target).closest("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    /** @type {HTMLElement | null} */ (this.querySelector(".trace-search input"))?.focus();
  };

  /** @param {WheelEvent} event */
  #handleWheel(event) {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    const { left, width } = this.#barsArea();
    if (event.shiftKey) pageAxis.pan(Math.sign(event.deltaY || event.deltaX) * 0.1);
    else pageAxis.zoom(event.deltaY < 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - left) / width)));
  }

  #barsArea() {
    return /** @type {HTMLElement} */ (this.head?.querySelector(".trace-bars")).getBoundingClientRect();
  }

  /** Whether the conversation has it: a teammate's process is in its transcript. @param {Activity} activity */
  #isOwn({ runId, agentId, activityType, content }) {
    const run = this.view.store.get(keyOf({ runId, activityType: "run", activityId: runId }));
    return activityType === "action" || !agentId || (this.view.runs.includes(runId) && (run?.content.agentId === undefined || run.content.agentId === (agentId ?? content.agentId)));
  }

  /** Shows a step in the conversation, or in its teammate's transcript. @param {Activity} activity */
  #reveal(activity) {
    if (kindOf(activity) === undefined) return;
    if (!this.#isOwn(activity)) return this.view.open({ kind: "teammate", id: toText(activity.agentId), runId: activity.runId });
    this.dispatchEvent(new CustomEvent("reveal", { bubbles: true, detail: keyOf(activity) }));
  }

  /* ── drawing ── */

  #draw() {
    const { bar, head, list, now, below } = this;
    if (!bar || !head || !list || !now || !below) return;
    const lanes = this.#lanes();
    this.hidden = lanes.length === 0;
    if (this.hidden) return;
    const time = this.view.now();
    const all = lanes.flatMap((lane) => [...lane.spans, ...lane.turns]);
    if (this.view.isLive) pageAxis.setTimes(timesOf(lanes, time));
    const before = this.#rows.length;
    this.#rows = this.#rowsOf(lanes);
    render(this.#barTemplate(lanes, all, time), bar);
    render(this.#headTemplate(), head);
    const area = this.#barsArea();
    if (area.width > 0 && area.width !== this.#barsWidth) {
      this.#barsWidth = area.width;
      render(this.#headTemplate(), head);
    }
    const prepended = this.#isPrepended ? this.#rows.length - before : 0;
    this.#isPrepended = false;
    list.show(this.#rows, Math.max(0, prepended));
    list.redraw();
    if (this.#rows.some((row) => row.key === this.#selected)) list.root.setAttribute("aria-activedescendant", this.#rowId(/** @type {string} */ (this.#selected)));
    else list.root.removeAttribute("aria-activedescendant");
    const place = pageAxis.place(this.view.isLive ? pageAxis.end : time);
    now.hidden = !(place >= 0 && place <= 1);
    now.style.left = `${area.left - /** @type {HTMLElement} */ (this.main).getBoundingClientRect().left + Math.min(area.width, place * area.width)}px`;
    this.#drawDetail();
    render(this.#belowTemplate(lanes, time), below);
  }

  /** @param {string} key */
  #rowId(key) {
    return `trace-${this.#id}-${this.#rows.findIndex((row) => row.key === key)}`;
  }

  /**
   * @param {Lane[]} lanes
   * @param {Span[]} all
   * @param {number} now
   */
  #barTemplate(lanes, all, now) {
    const { tokens, cost } = sumUsage(lanes);
    const [start, end] = [Math.min(...lanes.map(firstStart)), lanes.reduce((last, lane) => Math.max(last, lastEnd(lane, now)), 0)];
    const waited = busyTime(all.filter(({ kind }) => kind === "waiting"), now);
    const steps = all.filter(({ kind }) => kind !== "turn").length;
    const canRead = this.#session() !== "" && (!this.#hasRead || this.#cursor !== null) && this.view.isLive;
    return html`
      <label class="trace-search">${icon("search")}<span class="visually-hidden">${t("Filter steps")}</span><input type="search" placeholder=${t("Filter by name, tool, text")} autocomplete="off" spellcheck="false" .value=${this.#text} @input=${(/** @type {Event} */ event) => {
        this.#text = /** @type {HTMLInputElement} */ (event.target).value.trim().toLowerCase();
        this.#draw();
      }}></label>
      <div class="segments" role="group" aria-label=${t("Lanes")}>${GROUPINGS.map(([grouping, label, title]) => html`<button type="button" title=${t(title)} aria-pressed=${this.#grouping === grouping} @click=${() => {
        this.#grouping = grouping;
        this.#draw();
      }}>${t(label)}</button>`)}</div>
      <div class="trace-zoom" role="group" aria-label=${t("Zoom")}>
        <button type="button" class="button icon-button" data-kind="quiet" aria-label=${t("Zoom out")} title=${t("Zoom out (Ctrl + wheel)")} ?disabled=${!pageAxis.isZoomed} @click=${() => pageAxis.zoom(0.5, 1)}>−</button>
        <button type="button" class="button icon-button" data-kind="quiet" aria-label=${t("Zoom in")} title=${t("Zoom in (Ctrl + wheel)")} @click=${() => pageAxis.zoom(2, this.#zoomPlace())}>+</button>
        <button type="button" class="button small" data-kind="quiet" ?disabled=${!pageAxis.isZoomed} @click=${() => pageAxis.fit()}>${t("Fit")}</button>
      </div>
      <div class="trace-legend" role="group" aria-label=${t("Kinds")}>${LEGEND.map(([kind, label]) => html`<button type="button" class="key" data-kind=${kind} aria-pressed=${this.#kinds.has(kind)} title=${t("Show only this kind")} @click=${() => {
        if (!this.#kinds.delete(kind)) this.#kinds.add(kind);
        this.#draw();
      }}>${t(label)}</button>`)}</div>
      <p class="trace-sums"><b>${formatSpan(end - start)}</b> <span class="trace-word">${t("total")}</span>${waited > 0 ? html` <b>${formatSpan(waited)}</b> <span>${t("waiting for you")}</span>` : nothing}${tokens === undefined ? nothing : html` <b>${formatShortCount(tokens)}</b> <span>${t("tokens")}</span>`}${cost === undefined ? nothing : html` <b>${formatCost(cost)}</b>`}</p>
      <span class="count visually-hidden">${steps}</span>
      ${canRead ? html`<button type="button" class="button small earlier" data-kind="quiet" ?disabled=${this.#isReading} @click=${() => this.#loadEarlier()}>${t(this.#isReading ? "Loading…" : "Load earlier")}</button>` : nothing}
      ${this.#problem ? html`<p class="note" role="status" data-state="failed">${this.#problem}</p>` : this.#rows.length === 0 ? html`<p class="hint" role="status">${t("No step matches the filter.")} <button type="button" class="button small" data-kind="quiet" @click=${() => {
        this.#text = "";
        this.#kinds.clear();
        this.#draw();
      }}>${t("Clear the filter")}</button></p>` : nothing}`;
  }

  /** The place around which to zoom: that of the selected step. */
  #zoomPlace() {
    const { span } = this.#rows.find((row) => row.key === this.#selected) ?? {};
    const place = span ? pageAxis.place(span.start) : 1;
    return place >= 0 && place <= 1 ? place : 0.5;
  }

  #headTemplate() {
    const width = this.#barsWidth;
    return html`<span>${t(HEADS[this.#grouping])}</span><span class="trace-number trace-duration">${t("Duration")}</span><span class="trace-number trace-tokens">${t("Tokens")}</span><span class="trace-number trace-cost">${t("Cost")}</span>
      <span class="trace-bars">${width > 0 ? html`<svg width=${width} height="28" aria-hidden="true"><defs><pattern id="trace-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-ground" width="6" height="6"/><rect class="hatch-line" width="3" height="6"/></pattern></defs>
        ${pageAxis.ticks(width, this.#isWide ? 72 : 56).map(({ place, label }) => svg`<text class="tick" x=${(place * width).toFixed(1)} y="18" text-anchor=${place < 0.03 ? "start" : place > 0.97 ? "end" : "middle"}>${label}</text>`)}${axisBreaks(pageAxis, width)}</svg>` : nothing}</span>`;
  }

  /**
   * @param {HTMLElement} node
   * @param {Row} row
   * @param {number} at
   */
  #fillRow(node, row, at) {
    shownRows.set(node, row);
    const { lane, span } = row;
    const now = this.view.now();
    node.id = `trace-${this.#id}-${at}`;
    node.setAttribute("role", "treeitem");
    node.setAttribute("aria-level", String(row.depth + 1));
    node.dataset.key = row.key;
    node.dataset.kind = span?.kind ?? "lane";
    node.dataset.depth = String(Math.min(4, row.depth));
    node.setAttribute("aria-selected", String(row.key === this.#selected));
    if (row.isOpenable) node.setAttribute("aria-expanded", String(row.isOpen));
    else node.removeAttribute("aria-expanded");
    const duration = span ? (Number.isNaN(span.end) ? now : span.end) - span.start : lastEnd(lane, now) - firstStart(lane);
    const isMoment = duration < MOMENT_MS && !Number.isNaN(span?.end);
    const time = isMoment ? "" : formatSpan(duration);
    const { tokens, cost } = span ?? lane;
    const waiting = span?.activity.activityType === "tool-call-progress" && Number.isNaN(span.end) ? waitReason(this.view, span.activity) : undefined;
    const note = waiting ? `waiting for ${waiting}` : (span?.note ?? "");
    render(html`<span class="trace-name">${row.isOpenable ? html`<span class="trace-chevron" aria-hidden="true">${icon(row.isOpen ? "chevron-down" : "chevron-right")}</span>` : nothing}
      ${span ? html`<i class="square" data-kind=${span.kind}></i>` : html`${glyph(lane.status)}<span class="visually-hidden">${lane.word}</span>`}
      <span class="title">${span?.name ?? lane.name}</span><span class="trace-text">${span?.detail ?? lane.role}</span>${note && note !== "running" ? html`<span class="visually-hidden">, ${note}</span>` : nothing}</span>
      <span class="trace-number trace-duration">${time}</span><span class="trace-number trace-tokens">${formatShortCount(tokens)}</span><span class="trace-number trace-cost">${formatCost(cost)}</span>
      <span class="trace-bars">${this.#barsWidth > 0 ? this.#barsTemplate(row, now, [isMoment && span ? formatElapsed(span.start - pageAxis.start) : time, note].filter(Boolean).join(" · ")) : nothing}</span>`, node);
  }

  /**
   * @param {Row} row
   * @param {number} now
   * @param {string} label
   */
  #barsTemplate({ lane, span }, now, label) {
    const width = this.#barsWidth;
    const place = (/** @type {number} */ time) => pageAxis.place(time) * width;
    const grid = this.#isWide ? pageAxis.ticks(width).map((tick) => svg`<line class="tick-line" x1=${Math.round(tick.place * width) + 0.5} x2=${Math.round(tick.place * width) + 0.5} y1="0" y2="28"/>`) : nothing;
    const rect = (/** @type {SpanKind} */ kind, /** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ height) => {
      if (to < 0 || from > width) return nothing;
      const left = Math.max(0, Math.min(width - BAR_MIN_PX, from));
      return svg`<rect class="bar" data-kind=${kind} x=${left.toFixed(1)} y=${(ROW_PX - height) / 2} width=${Math.max(BAR_MIN_PX, Math.min(width, to) - left).toFixed(1)} height=${height} rx=${height > 8 ? 3 : 2} fill=${kind === "waiting" ? "url(#trace-hatch)" : nothing}/>`;
    };
    if (!span) {
      const turns = lane.turns.map((turn) => rect("turn", place(turn.start), place(Number.isNaN(turn.end) ? now : turn.end), 2));
      return html`<svg width=${width} height=${ROW_PX} aria-hidden="true">${grid}${turns}${barsOf(lane, place, now).map(({ kind, from, to }) => rect(kind, from, to, this.#isWide ? 6 : 10))}</svg>`;
    }
    const [from, to] = [place(span.start), Math.max(place(span.start) + BAR_MIN_PX, place(Number.isNaN(span.end) ? now : span.end))];
    const isLeft = to > width - LABEL_PX;
    // A bar over the whole width leaves no room. The row's column has its duration.
    const isVisible = to >= 0 && from <= width && !(isLeft && from < LABEL_PX);
    return html`<svg width=${width} height=${ROW_PX} aria-hidden="true">${grid}${rect(span.kind, from, to, span.kind === "turn" ? 4 : 12)}${isVisible ? svg`<text class="bar-label" x=${(isLeft ? from - 6 : to + 6).toFixed(1)} y="18" text-anchor=${isLeft ? "end" : "start"}>${label}</text>` : nothing}</svg>`;
  }

  /**
   * @param {Lane[]} lanes
   * @param {number} now
   */
  #belowTemplate(lanes, now) {
    const length = (/** @type {Span} */ { start, end }) => (Number.isNaN(end) ? now : end) - start;
    const longest = lanes.flatMap((lane) => lane.spans.filter(({ kind }) => kind !== "other").map((span) => ({ lane, span }))).sort((a, b) => length(b.span) - length(a.span)).slice(0, LONGEST_MAX);
    if (longest.length === 0) return nothing;
    return html`<h3 class="trace-longest">${t("Longest steps")}</h3><ul class="longest">${longest.map(({ lane, span }) => html`<li><button type="button" @click=${() => this.open(span.activity.activityType, span.activity.activityId, span.activity.runId)}><i class="square" data-kind=${span.kind}></i><b>${span.name}</b><span>${lane.name}</span><time>${formatSpan(length(span))}</time></button></li>`)}</ul>`;
  }

  /* ── details ── */

  #drawDetail() {
    const { detail } = this;
    if (!detail) return;
    const row = this.#rows.find(({ key }) => key === this.#selected);
    const activity = row?.span?.activity;
    detail.hidden = !activity;
    this.toggleAttribute("data-detail", !detail.hidden);
    if (!activity || !row?.span) return;
    render(stepDetail({
      view: this.view, span: row.span, lane: row.lane, isElsewhere: this.isExpandedElsewhere(keyOf(activity)), isOwn: this.#isOwn(activity),
      onClose: () => this.#select(undefined), onReveal: () => this.#reveal(activity),
    }), detail);
    this.#drawExport(activity);
  }

  /** Evidence can be exported by its runtime. @param {Activity} activity */
  #drawExport(activity) {
    const place = /** @type {HTMLElement} */ (this.detail?.querySelector(".detail-export"));
    const isOffered = activity.activityType === "evidence" && this.view.isLive;
    if (place.dataset.key === keyOf(activity) && (place.childElementCount > 0) === isOffered) return;
    place.dataset.key = keyOf(activity);
    const feedback = /** @type {HTMLElement} */ (this.detail?.querySelector(".told"));
    place.replaceChildren(...(isOffered ? [controlButton("Export", () => this.view, () => ({ control: "export", ...controlTarget(activity), evidenceId: activity.activityId }), { kind: "quiet", feedback })] : []));
  }
}

/**
 * Two runs beside each other: their figures, and their steps on one axis that begins with each run, with what differs.
 */

import { formatCost, formatShortCount, formatSpan } from "../ui/format.js";
import { statusLabel } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { axisBreaks } from "../ui/axis-breaks.js";
import { TimeAxis } from "../ui/time-axis.js";
import { failureText } from "../session-list.js";
import { Stale } from "../client/hydration.js";
import { html, nothing, render, svg } from "../vendor/lit.js";
import { element } from "./base.js";
import { FixedHeightList } from "./fixed-height-list.js";
import { durationOf, nameOfRun, statusOf, tokensOfRun } from "./run-row.js";
import { pairSteps, readSteps } from "./run-steps.js";

/** @typedef {import("../client/hydration.js").RunLine} RunLine */
/** @typedef {import("./run-steps.js").Pair} Pair */
/** @typedef {import("./run-steps.js").Step} Step */

/** The height of a row in pixels, as in the style sheet. */
const ROW_PX = 40;
/** The narrowest bar, in pixels. */
const BAR_MIN_PX = 3;

export class RunComparison {
  /** @param {{ close: () => void, open: (run: RunLine) => void }} host */
  constructor(host) {
    this.#host = host;
    this.root = element("section", "run-compare");
    this.root.setAttribute("aria-label", "Two runs compared");
    /** @type {FixedHeightList<Pair>} */
    this.list = new FixedHeightList({
      height: ROW_PX, label: "Steps of both runs", startsAtTop: true, keyOf: ({ key }) => key,
      make: () => element("div", "pair-row pair-grid"), change: (row, pair) => this.#fillRow(row, pair),
    });
    new ResizeObserver(() => this.#measure()).observe(this.root);
  }

  #host;
  #abort = new AbortController();
  #axis = new TimeAxis();
  /** The ids of the runs: A and B. */
  #ids = ["", ""];
  /** @type {(RunLine | undefined)[]} */
  #runs = [];
  /** @type {Pair[] | undefined} */
  #pairs;
  #isCut = false;
  #problem = "";
  /** Whether steps without a difference are shown. */
  #isWhole = false;
  #barsWidth = 0;

  /**
   * @param {import("../client/hydration.js").Hydration} hydration
   * @param {string[]} ids Of two runs.
   * @param {(id: string) => RunLine | undefined} known What the list knows of a run.
   */
  async open(hydration, ids, known) {
    this.#abort.abort();
    const abort = (this.#abort = new AbortController());
    [this.#ids, this.#runs, this.#pairs, this.#problem] = [ids, ids.map(known), undefined, ""];
    this.#draw();
    try {
      const { signal } = abort;
      const [runs, steps] = await Promise.all([Promise.all(ids.map((id) => known(id) ?? hydration.run(id, { signal }))), Promise.all(ids.map((id) => readSteps(hydration, id, signal)))]);
      if (abort !== this.#abort) return;
      this.#runs = runs;
      const [one, other] = steps.map((all) => all.steps);
      this.#isCut = steps.some(({ isCut }) => isCut);
      this.#pairs = pairSteps(one, other);
      this.#axis.setTimes([...one, ...other].map(({ kind, start, end }) => ({ start, end, isQuiet: kind === "waiting" })));
      // Runs without a difference are shown whole: an empty list would say less.
      this.#isWhole = this.#pairs.every(({ difference }) => difference === "");
    } catch (error) {
      if (abort.signal.aborted || error instanceof Stale) return;
      this.#problem = failureText(error);
    }
    this.#draw();
  }

  close() {
    this.#abort.abort();
    this.#ids = ["", ""];
  }

  #measure() {
    const width = this.root.querySelector(".pair-head .pair-bars")?.clientWidth ?? 0;
    if (width === this.#barsWidth || width === 0) return;
    this.#barsWidth = width;
    this.#draw();
  }

  #draw() {
    const pairs = this.#pairs ?? [];
    const different = pairs.filter(({ difference }) => difference !== "");
    const shown = this.#isWhole ? pairs : different;
    const show = (/** @type {boolean} */ isWhole) => () => {
      this.#isWhole = isWhole;
      this.#draw();
    };
    render(html`
      <div class="compare-bar">
        <button type="button" class="button small" data-kind="quiet" @click=${() => this.#host.close()}>${icon("back")}All runs</button>
        <p class="grow hint" role="status">${this.#problem || !this.#pairs ? nothing : `${different.length} of ${pairs.length} steps differ${this.#isCut ? " among the first 5,000 of each run" : ""}`}</p>
        <div class="segments" role="group" aria-label="Steps"><button type="button" aria-pressed=${!this.#isWhole} @click=${show(false)}>Differences</button><button type="button" aria-pressed=${this.#isWhole} @click=${show(true)}>All steps</button></div>
      </div>
      <div class="compare-runs">${this.#ids.map((id, at) => this.#summary(id, at))}</div>
      ${this.#problem ? html`<p class="runs-problem" role="alert"><span>The steps could not be loaded: ${this.#problem}</span></p>` : nothing}
      ${!this.#pairs && !this.#problem ? html`<div class="loading" role="status" aria-label="Loading steps"><i></i><i></i><i></i><i></i></div>` : nothing}
      <div class="pair-head pair-grid" ?hidden=${!this.#pairs}><span>Step</span><span>Difference</span><span class="pair-number">A</span><span class="pair-number">B</span><span class="pair-bars">${this.#barsWidth > 0 ? html`<svg width=${this.#barsWidth} height="28" aria-hidden="true">${this.#axis.ticks(this.#barsWidth).map(({ place, label }) => svg`<text class="tick" x=${(place * this.#barsWidth).toFixed(1)} y="18" text-anchor=${place < 0.03 ? "start" : place > 0.97 ? "end" : "middle"}>${label}</text>`)}${axisBreaks(this.#axis, this.#barsWidth)}</svg>` : nothing}</span></div>
      ${this.#pairs && shown.length === 0 ? html`<p class="hint compare-empty">${pairs.length === 0 ? "Neither run has steps." : "The steps do not differ."}</p>` : nothing}
      ${this.list.root}`, this.root);
    this.list.root.hidden = shown.length === 0;
    this.list.show(shown);
    this.#measure();
  }

  /**
   * @param {string} id
   * @param {number} at
   */
  #summary(id, at) {
    const run = this.#runs[at];
    const letter = "AB"[at];
    if (!run) return html`<div class="compare-run"><p class="compare-title"><b class="compare-letter">${letter}</b>${id}</p></div>`;
    const [status, word] = statusOf(run);
    const other = this.#runs[1 - at];
    const now = Date.now();
    /** @type {[string, number | undefined, number | undefined, (value: number) => string][]} */
    const figures = [["Duration", durationOf(run, now), other && durationOf(other, now), formatSpan], ["Tokens", tokensOfRun(run), other && tokensOfRun(other), formatShortCount], ["Cost", run.usage?.costUsd, other?.usage?.costUsd, formatCost]];
    return html`<div class="compare-run" data-run=${letter}>
      <p class="compare-title"><b class="compare-letter">${letter}</b><button type="button" class="link truncate" dir="auto" title=${id} @click=${() => this.#host.open(run)}>${nameOfRun(run)}</button>${statusLabel(status, word)}</p>
      ${run.highlight ? html`<p class="run-why truncate" data-kind=${run.highlight.kind} dir="auto" title=${run.highlight.text}>${run.highlight.text}</p>` : nothing}
      <dl class="compare-figures">${figures.map(([label, value, than, shown]) => html`<div><dt>${label}</dt><dd>${value === undefined || Number.isNaN(value) ? "unknown" : shown(value)}${at === 1 ? ratio(value, than) : nothing}</dd></div>`)}<div><dt>Agent</dt><dd class="truncate">${run.agentId ?? "unknown"}</dd></div></dl>
    </div>`;
  }

  /**
   * @param {HTMLElement} row
   * @param {Pair} pair
   */
  #fillRow(row, { one, other, difference }) {
    const step = /** @type {Step} */ (one ?? other);
    const length = (/** @type {Step | undefined} */ of) => (of ? formatSpan(of.end - of.start) : "–");
    row.dataset.only = !other ? "A" : !one ? "B" : "";
    render(html`
      <span class="pair-name"><i class="square" data-kind=${step.kind}></i><span class="title truncate">${step.name}</span><span class="trace-text truncate" dir="auto">${step.detail || step.lane}</span></span>
      <span class="pair-difference truncate" title=${difference}>${difference}</span>
      <span class="pair-number"><span class="visually-hidden">A: </span>${length(one)}</span><span class="pair-number"><span class="visually-hidden">B: </span>${length(other)}</span>
      <span class="pair-bars">${this.#barsWidth > 0 ? html`<svg width=${this.#barsWidth} height=${ROW_PX} aria-hidden="true">${this.#bar(one, 9)}${this.#bar(other, 22)}</svg>` : nothing}</span>`, row);
  }

  /**
   * @param {Step | undefined} step
   * @param {number} top
   */
  #bar(step, top) {
    if (!step) return nothing;
    const [from, to] = [this.#axis.place(step.start) * this.#barsWidth, this.#axis.place(step.end) * this.#barsWidth];
    const left = Math.max(0, Math.min(this.#barsWidth - BAR_MIN_PX, from));
    return svg`<rect class="bar pair-bar" data-kind=${step.kind} x=${left.toFixed(1)} y=${top} width=${Math.max(BAR_MIN_PX, to - left).toFixed(1)} height="9" rx="2"/>`;
  }
}

/**
 * How a figure of B compares with that of A.
 * @param {number | undefined} value
 * @param {number | undefined} than
 */
function ratio(value, than) {
  if (!value || !than || Number.isNaN(value / than)) return nothing;
  const share = Math.round((value / than - 1) * 100);
  return share === 0 ? nothing : html` <span class="hint">${share > 0 ? "+" : "−"}${Math.abs(share)} %</span>`;
}

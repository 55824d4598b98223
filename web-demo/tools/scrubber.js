/**
 * The scrubber: the time axis of the open session or run, with the agents' work in small lanes. It plays the history.
 *
 * The server folds the logs up to any moment. The scrubber puts the result into its own store, which the shell shows
 * instead of the live one. It fires `travel`; the event's detail is the moment with its store, or null for live.
 */

import { formatCount, define, oncePerFrame } from "../surfaces/base.js";
import { barsOf, lanesIn, lastEnd, timesOf, tokensOf } from "../surfaces/spans.js";
import { Replay } from "../client/replay.js";
import { html, nothing, render, svg } from "../vendor/lit.js";
import { icon } from "../ui/icons.js";
import { formatShortCount, formatSpan } from "../ui/format.js";
import { formatElapsed, pageAxis } from "../ui/time-axis.js";

/** @typedef {import("../surfaces/base.js").View} View */
/** @typedef {import("../surfaces/spans.js").Lane} Lane */
/** @typedef {{ at: number, time: number, store: import("../client/store.js").Store }} Travel `time`: milliseconds since 1970. */

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64];
/** The interval of the playback clock, and that of the axis while work goes on, in milliseconds. */
const TICK_MS = 16;
const GROW_MS = 1000;
/** The delay before the replay reads later moments while a past one is shown, in milliseconds. */
const EXTEND_MS = 500;
/** Lanes drawn, the top of the first, and the space of all, in pixels. */
const LANES_MAX = 12;
const LANES_TOP = 22;
const LANES_HEIGHT = 36;
/** The width of a column of tokens, and its largest height, in pixels. */
const TOKENS_PX = 9;
const TOKENS_HEIGHT = 34;

export class Scrubber extends HTMLElement {
  /** @type {View | undefined} */
  #view;
  #run = "";
  /** @type {Replay | undefined} */
  #replay;
  /** The index of the moment on display; -1 for live. */
  #index = -1;
  /** The wanted position while the moments are read. */
  #wanted = 0;
  #isPlaying = false;
  #speed = 1;
  #isLoading = false;
  #error = "";
  /** The playback clock in milliseconds, with long pauses shortened; and when it was last advanced. */
  #clock = 0;
  #clockReadAt = 0;
  #width = 0;
  /** The observed axis. @type {Element | undefined} */
  #axis;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #tickTimer;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #growTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #extendTimer;
  /** @type {(() => void) | undefined} */
  #unsubscribe;

  connectedCallback() {
    this.classList.add("scrubber");
    this.setAttribute("role", "group");
    this.setAttribute("aria-label", "Playback");
    pageAxis.addEventListener("change", this.#scheduleDraw);
    document.addEventListener("keydown", this.#handlePageKey);
    this.#growTimer = setInterval(() => this.#hasOpenWork() && this.#scheduleDraw(), GROW_MS);
    this.#draw();
  }

  disconnectedCallback() {
    this.#stopAll();
    pageAxis.removeEventListener("change", this.#scheduleDraw);
    document.removeEventListener("keydown", this.#handlePageKey);
    this.#resized.disconnect();
    this.#axis = undefined;
    clearInterval(this.#growTimer);
  }

  #scheduleDraw = oncePerFrame(() => this.#draw());
  #resized = new ResizeObserver(() => {
    this.#width = this.querySelector(".axis")?.clientWidth ?? 0;
    this.#scheduleDraw();
  });

  /** Whether the full trace is above: it has the lanes, so the axis shows the tokens. */
  get #isBelowTrace() {
    return document.body.dataset.full !== undefined && document.body.dataset.panel === "trace";
  }

  /**
   * Follows a session, or the run of a view without one. A session's next run changes nothing.
   * @param {View} view The live view; `hydration` and `audience` determine the requests.
   * @param {string} runId Empty while no run is known: there is nothing to play.
   */
  follow(view, runId) {
    this.hidden = runId === "";
    if (this.#replay && this.#view?.store === view.store && view.sessionId !== undefined) return;
    const wasInPast = this.#index >= 0;
    this.#stopAll();
    this.#view = view;
    this.#run = runId;
    this.#index = -1;
    this.#error = "";
    if (wasInPast) this.#emitTravel(null);
    this.#replay = undefined;
    if (!runId) return this.#draw();
    this.#replay = new Replay(view.hydration, view.sessionId === undefined ? { run: runId, audience: view.audience } : { session: view.sessionId, audience: view.audience });
    this.#unsubscribe = view.store.subscribe(() => {
      this.#scheduleDraw();
      if (this.#index < 0) return;
      clearTimeout(this.#extendTimer);
      this.#extendTimer = setTimeout(() => void this.#load(), EXTEND_MS);
    });
    pageAxis.fit();
    this.#draw();
  }

  /** The position on display, or 0 for live. */
  get at() {
    return this.#replay?.moments[this.#index]?.at ?? 0;
  }

  /** The number of events of all logs, hidden ones included. */
  get #last() {
    const streamed = (this.#view?.store.runs() ?? []).filter(({ runId }) => this.#view?.sessionId !== undefined || runId === this.#run).reduce((sum, { sequence }) => sum + sequence, 0);
    return Math.max(streamed, this.#replay?.moments.at(-1)?.at ?? 0);
  }

  #stopAll() {
    this.#isPlaying = false;
    clearInterval(this.#tickTimer);
    clearTimeout(this.#extendTimer);
    this.#replay?.cancel();
    this.#isLoading = false;
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
  }

  /** Returns to live. */
  toLive() {
    this.#pause();
    this.#replay?.cancel();
    this.#isLoading = false;
    this.#error = "";
    if (this.#index < 0) return this.#draw();
    this.#index = -1;
    this.#emitTravel(null);
    this.#draw();
  }

  /**
   * Goes to a position: the number of events of all logs up to it. The run may still be unknown.
   * @param {number} at
   */
  async goTo(at) {
    this.#pause();
    this.#wanted = at;
    await this.#load(() => (this.#replay?.moments.at(-1)?.at ?? 0) >= at);
    // A later call has another wish.
    if (this.#wanted === at) await this.#go(Math.max(0, this.#replay?.indexAt(at) ?? -1));
  }

  /**
   * Steps to the next or the previous event that this audience sees.
   * @param {number} by 1 or -1.
   */
  async step(by) {
    this.#pause();
    await this.#load(() => this.#index >= 0 && this.#index + by < (this.#replay?.moments.length ?? 0));
    const last = (this.#replay?.moments.length ?? 0) - 1;
    if (last < 0) return;
    const from = this.#index < 0 ? last : this.#index;
    await this.#go(Math.min(last, Math.max(0, from + by)));
  }

  /** Starts or pauses playback. */
  toggle() {
    if (this.#isPlaying) this.#pause();
    else void this.#start();
  }

  /**
   * Reads the moments.
   * @param {() => boolean} [isEnough] Whether the known moments suffice.
   */
  async #load(isEnough = () => false) {
    const [replay, view] = [this.#replay, this.#view];
    if (!replay || !view) return;
    if (view.sessionId !== undefined) replay.include(view.store.sorted(({ activityType, content }) => activityType === "run" && typeof content.sessionId === "string").map(({ content }) => content.sessionId));
    if (isEnough()) return;
    this.#isLoading = true;
    this.#draw();
    try {
      await replay.load();
    } catch (error) {
      if (this.#replay === replay) this.#fail(error);
    }
    if (this.#replay === replay) this.#isLoading = false;
    this.#draw();
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#error = error instanceof Error ? error.message : String(error);
    this.#pause();
  }

  /**
   * Goes to a moment. A later call aborts an earlier one.
   * @param {number} index
   */
  async #go(index) {
    const replay = this.#replay;
    const moment = replay?.moments[index];
    if (!replay || !moment) return;
    this.#index = index;
    this.#isLoading = true;
    this.#error = "";
    this.#draw();
    try {
      const isNewest = await replay.goTo(index);
      if (!isNewest || this.#replay !== replay) return;
      this.#isLoading = false;
      this.#emitTravel({ at: moment.at, time: moment.time, store: replay.store });
    } catch (error) {
      if (this.#replay !== replay) return;
      this.#isLoading = false;
      this.#fail(error);
    }
    this.#draw();
  }

  /** @param {Travel | null} detail */
  #emitTravel(detail) {
    this.dispatchEvent(new CustomEvent("travel", { detail }));
  }

  /* ── playback ── */

  async #start() {
    const replay = this.#replay;
    if (!replay) return;
    this.#isPlaying = true;
    await this.#load();
    const last = replay.moments.length - 1;
    if (!this.#isPlaying || last < 0) return this.#pause();
    if (this.#index < 0 || this.#index >= last) await this.#go(0);
    if (!this.#isPlaying) return;
    this.#clock = replay.moments[this.#index]?.elapsed ?? 0;
    this.#clockReadAt = performance.now();
    clearInterval(this.#tickTimer);
    this.#tickTimer = setInterval(() => this.#tick(), TICK_MS);
  }

  #pause() {
    this.#isPlaying = false;
    clearInterval(this.#tickTimer);
    this.#draw();
  }

  /** Advances the playback clock. */
  #advanceClock() {
    const now = performance.now();
    this.#clock += (now - this.#clockReadAt) * this.#speed;
    this.#clockReadAt = now;
  }

  #tick() {
    this.#advanceClock();
    // Waits for the previous response: on a slow connection playback skips states instead of queueing requests.
    if (this.#isLoading || !this.#replay) return;
    const due = this.#replay.indexAtElapsed(this.#clock);
    if (due > this.#index) void this.#go(due);
    else if (this.#index >= this.#replay.moments.length - 1) this.#pause();
  }

  /* ── input ── */

  /** The keys of the page that belong to the scrubber. @param {KeyboardEvent} event */
  #handlePageKey = (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || this.hidden || !this.#replay) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("input:not([type=range]), textarea, select, [contenteditable], dialog")) return;
    if (event.key === " " && target.closest("button, a, summary, [role=option], [role=listbox], [role=tab], [tabindex='0']:not(.panel, main)") && !this.contains(target)) return;
    if (event.key === " " && target.closest("button")) return;
    const action = { ",": () => this.step(-1), ".": () => this.step(1), " ": () => this.toggle(), l: () => this.toLive() }[event.key];
    if (!action) return;
    event.preventDefault();
    void action();
  };

  /** @param {PointerEvent} event */
  #handlePointer = async (event) => {
    const axis = /** @type {HTMLElement} */ (event.currentTarget);
    if (event.type === "pointermove" && !axis.hasPointerCapture(event.pointerId)) return;
    if (event.type === "pointerdown") {
      if (event.button !== 0) return;
      axis.setPointerCapture(event.pointerId);
      /** @type {HTMLElement} */ (this.querySelector(".slider")).focus({ preventScroll: true });
      event.preventDefault();
    }
    this.#pause();
    const { left, width } = axis.getBoundingClientRect();
    const time = pageAxis.time(Math.min(1, Math.max(0, (event.clientX - left) / width)));
    const wish = (this.#wanted = -time);
    await this.#load(() => (this.#replay?.moments.length ?? 0) > 0);
    if (this.#wanted === wish && this.#replay) void this.#go(Math.max(0, this.#replay.indexAtTime(time)));
  };

  /** @param {WheelEvent} event */
  #handleWheel = (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    const { left, width } = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    if (event.shiftKey) pageAxis.pan(Math.sign(event.deltaY || event.deltaX) * 0.1);
    else pageAxis.zoom(event.deltaY < 0 ? 1.25 : 0.8, (event.clientX - left) / width);
  };

  /* ── drawing ── */

  #lanes() {
    return this.#view ? lanesIn(this.#view.store) : [];
  }

  #hasOpenWork() {
    return this.#lanes().some((lane) => [...lane.spans, ...lane.turns].some((span) => Number.isNaN(span.end)));
  }

  #draw() {
    const lanes = this.#lanes();
    const now = this.#view?.now() ?? 0;
    pageAxis.setTimes(timesOf(lanes, now));
    const moment = this.#replay?.moments[this.#index];
    const [last, isLive] = [this.#last, this.#index < 0];
    const mode = this.#isPlaying ? "playing" : isLive ? "live" : "past";
    const at = moment?.at ?? last;
    const time = moment?.time ?? pageAxis.end;
    const words = last === 0 ? "No events yet" : `${formatElapsed(time - pageAxis.start)} · event ${formatCount(at)}`;
    const text = this.#error ? "Playback failed" : words;
    this.dataset.mode = mode;
    this.dataset.busy = String(this.#isLoading);
    render(html`
      <div class="scrubber-controls">
        <button type="button" class="button icon-button back" data-kind="quiet" aria-label="Previous event" title="Previous event (,)" ?disabled=${last === 0} @click=${() => this.step(-1)}>${icon("step-back")}</button>
        <button type="button" class="button icon-button play" data-kind="quiet" aria-label=${this.#isPlaying ? "Pause" : "Play"} title="${this.#isPlaying ? "Pause" : "Play"} (Space)" ?disabled=${last === 0} @click=${() => this.toggle()}>${icon(this.#isPlaying ? "pause" : "play")}</button>
        <button type="button" class="button icon-button forth" data-kind="quiet" aria-label="Next event" title="Next event (.)" ?disabled=${last === 0} @click=${() => this.step(1)}>${icon("step-forward")}</button>
        <select class="speed" aria-label="Speed" .value=${String(this.#speed)} @change=${(/** @type {Event} */ event) => {
          if (this.#isPlaying) this.#advanceClock();
          this.#speed = Number(/** @type {HTMLSelectElement} */ (event.target).value);
        }}>${SPEEDS.map((speed) => html`<option value=${speed} ?selected=${speed === this.#speed}>${speed}×</option>`)}</select>
      </div>
      <div class="axis" @pointerdown=${this.#handlePointer} @pointermove=${this.#handlePointer} @wheel=${this.#handleWheel}>
        <input type="range" class="slider" min="1" .max=${String(Math.max(1, last))} step="1" aria-label=${this.#view?.sessionId === undefined ? "Event of the run" : "Event of the session"} aria-valuetext=${isLive ? `Live, ${words}` : words} ?disabled=${last === 0} .value=${String(Math.max(1, at))}
          @input=${(/** @type {Event} */ event) => this.#handleInput(Number(/** @type {HTMLInputElement} */ (event.target).value))} @keydown=${this.#handleSliderKey}>
        ${this.#width > 0 ? this.#axisTemplate(lanes, now, time) : nothing}
      </div>
      <div class="scrubber-end">
        <output class="says" title=${this.#error || (moment ? new Date(moment.time).toLocaleString() : "")} data-state=${this.#error ? "failed" : "idle"}>${text}</output>
        <button type="button" class="live" aria-pressed=${isLive} title=${isLive ? "The page is live" : "Back to live (l)"} @click=${() => this.toLive()}><span class="dot"></span>${isLive ? "Live" : "Go live"}</button>
      </div>`, this);
    const axis = this.querySelector(".axis");
    if (axis === this.#axis || axis === null) return;
    // The columns change with the panel, and this element's own size does not.
    this.#axis = axis;
    this.#resized.observe(axis);
  }

  /** @param {number} wanted */
  #handleInput(wanted) {
    // The slider may not move beyond what the keyboard wants: hidden events have no moment.
    const { moments = [] } = this.#replay ?? {};
    const isStep = Math.abs(wanted - (this.at || this.#last)) === 1 && moments.length > 0;
    if (isStep && !moments.some(({ at }) => at === wanted)) void this.step(wanted > (this.at || this.#last) ? 1 : -1);
    else void this.goTo(wanted);
  }

  /** @param {KeyboardEvent} event */
  #handleSliderKey = (event) => {
    if (event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    if (event.key === "End") this.toLive();
    else void this.goTo(1);
  };

  /**
   * @param {Lane[]} lanes
   * @param {number} now
   * @param {number} time The moment on display.
   */
  #axisTemplate(lanes, now, time) {
    const width = this.#width;
    const place = (/** @type {number} */ at) => pageAxis.place(at) * width;
    const shown = lanes.slice(0, LANES_MAX);
    const step = Math.min(4.5, LANES_HEIGHT / Math.max(1, shown.length));
    const x = Math.round(Math.min(width, Math.max(0, place(time))));
    const tokens = this.#isBelowTrace ? tokensOf(lanes, now) : [];
    return html`<svg class="axis-lanes" width=${width} height="64" aria-hidden="true">
      <defs><pattern id="dock-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-ground" width="5" height="5"/><rect class="hatch-line" width="2.5" height="5"/></pattern></defs>
      ${pageAxis.ticks(width).map((tick) => svg`<g><line class="tick-line" x1=${Math.round(tick.place * width) + 0.5} x2=${Math.round(tick.place * width) + 0.5} y1="22" y2="60"/><text class="tick" x=${tick.place * width} y="14" text-anchor=${tick.place < 0.02 ? "start" : tick.place > 0.98 ? "end" : "middle"}>${tick.label}</text></g>`)}
      ${tokens.length > 0 ? this.#tokenBars(tokens, place) : shown.map((lane, row) => this.#laneBars(lane, LANES_TOP + row * step, place, now))}
      <line class="head-line" x1=${x} x2=${x} y1="0" y2="64"/><circle class="head-dot" cx=${x} cy="26" r="5"/>
    </svg>`;
  }

  /**
   * The reported tokens over time. Each column is as tall as its share of the largest one.
   * @param {{ time: number, tokens: number }[]} reports
   * @param {(time: number) => number} place
   */
  #tokenBars(reports, place) {
    /** @type {Map<number, number>} */
    const columns = new Map();
    for (const { time, tokens } of reports) {
      const column = Math.floor(place(time) / TOKENS_PX);
      if (column >= -1 && column * TOKENS_PX <= this.#width) columns.set(column, (columns.get(column) ?? 0) + tokens);
    }
    const most = Math.max(...columns.values());
    const span = (pageAxis.time(1) - pageAxis.time(0)) * (TOKENS_PX / this.#width);
    return svg`<text class="tokens-name" x="-12" y="48" text-anchor="end">Tokens reported per ${formatSpan(span)}</text>${[...columns].map(([column, tokens]) => {
      const height = Math.max(2, (tokens / most) * TOKENS_HEIGHT);
      return svg`<rect class="tokens-bar" x=${Math.min(column * TOKENS_PX, this.#width - TOKENS_PX) + 1} y=${(60 - height).toFixed(1)} width=${TOKENS_PX - 2} height=${height.toFixed(1)} rx="1"><title>${formatShortCount(tokens)} tokens</title></rect>`;
    })}`;
  }

  /**
   * @param {Lane} lane
   * @param {number} y
   * @param {(time: number) => number} place
   * @param {number} now
   */
  #laneBars(lane, y, place, now) {
    const turns = lane.turns.map((span) => ({ kind: /** @type {const} */ ("turn"), from: place(span.start), to: place(Number.isNaN(span.end) ? lastEnd(lane, now) : span.end) }));
    return [...turns, ...barsOf(lane, place, now)].filter(({ from, to }) => to >= 0 && from <= this.#width).map(({ kind, from, to }) => {
      const left = Math.max(0, from);
      return svg`<rect class="bar" data-kind=${kind} x=${left.toFixed(1)} y=${kind === "turn" ? y + 1 : y} width=${Math.max(2, Math.min(this.#width, to) - left).toFixed(1)} height=${kind === "turn" ? 1 : 3} rx="1" fill=${kind === "waiting" ? "url(#dock-hatch)" : nothing}/>`;
    });
  }
}

define("ps-scrubber", Scrubber);

/**
 * The scrubber: playback of a run. The server folds the log up to any event (`activities?at=`). The scrubber puts the
 * result into its own store, which the shell shows instead of the live one.
 *
 * It fires `travel`. The event's detail is the moment with its store; null for live.
 */

import { formatCount, define, svgElement, element, oncePerFrame, setText } from "../surfaces/base.js";
import { Store } from "../client/store.js";

/** @typedef {import("../surfaces/base.js").View} View */
/** @typedef {import("../client/types.js").Envelope} Envelope */
/** @typedef {{ at: number, time: number | undefined, store: Store }} Travel `time`: milliseconds since 1970, if known. */
/**
 * The time of an event: in milliseconds since 1970, and in milliseconds of playback, which shortens long pauses.
 * @typedef {{ sequence: number, time: number, elapsed: number }} Moment
 */

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64];
/** The maximum pause between two events during playback, in milliseconds. */
const PAUSE_MAX_MS = 2000;
/** The page size of event times, and the maximum number of times kept. */
const PAGE_EVENTS = 1000;
const TIMES_MAX = 200_000;
/** Final statuses of a run. Its stream may still report further events. */
const ENDED = ["completed", "failed", "cancelled", "interrupted"];
/** The interval at which a live run's last sequence is polled, in milliseconds. */
const POLL_MS = 2000;
/** The interval of the playback clock, in milliseconds. */
const TICK_MS = 16;
/** Icons in a 16 × 16 view box. Fonts draw such symbols differently, or lack them. */
const ICONS = { first: "M3 3h2v10H3z M13 3v10L6 8z", back: "M11 3v10L4 8z", play: "M4 2.5v11L13 8z", pause: "M4 3h3v10H4z M9 3h3v10H9z", forth: "M3 3v10l7-5z M11 3h2v10h-2z" };

export class Scrubber extends HTMLElement {
  /** @type {View | undefined} */
  #view;
  #run = "";
  /** The run's last known sequence. */
  #last = 0;
  /** The sequence on display; 0 for live. */
  #at = 0;
  #isPlaying = false;
  #speed = 1;
  /** Aborts the current request. */
  #abort = new AbortController();
  #isLoading = false;
  /** The store of the current playback. @type {Store | undefined} */
  #store;
  /** The times of the visible events, in order. @type {Moment[]} */
  #times = [];
  /** The cursor of the next page of times; null when all are loaded. @type {number | string | null} */
  #timesCursor = 0;
  #isLoadingTimes = false;
  /** The position of playback in milliseconds, with long pauses shortened; and when it was last advanced. */
  #clock = 0;
  #clockReadAt = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #tickTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #pollTimer;
  /** @type {(() => void) | undefined} */
  #unsubscribe;

  connectedCallback() {
    this.classList.add("scrubber");
    this.setAttribute("role", "group");
    this.setAttribute("aria-label", "Playback");
    if (this.childElementCount === 0) this.#build();
  }

  disconnectedCallback() {
    this.#stopAll();
  }

  /**
   * Follows a run.
   * @param {View} view The live view; `hydration` and `audience` determine the requests.
   * @param {string} runId
   */
  follow(view, runId) {
    const wasInPast = this.#at > 0;
    this.#stopAll();
    this.#view = view;
    this.#run = runId;
    this.#last = view.store.run(runId)?.sequence ?? 0;
    this.#at = 0;
    this.#store = undefined;
    this.#times = [];
    this.#timesCursor = 0;
    this.hidden = runId === "";
    if (this.childElementCount === 0) this.connectedCallback();
    if (wasInPast) this.#emitTravel(null);
    if (!runId) return;
    this.#unsubscribe = view.store.subscribe(() => this.#extend(view.store.run(runId)?.sequence ?? 0));
    this.#poll();
    this.#draw();
  }

  /**
   * Goes to an event. The run may still be unknown.
   * @param {number} at
   */
  goTo(at) {
    this.#pause();
    this.#last = Math.max(this.#last, at);
    return this.#go(at);
  }

  /** The sequence on display, or 0 for live. */
  get at() {
    return this.#at;
  }

  #stopAll() {
    this.#pause();
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#isLoading = false;
    this.#isLoadingTimes = false;
    clearTimeout(this.#pollTimer);
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
  }

  #build() {
    const button = (/** @type {keyof typeof ICONS} */ icon, /** @type {string} */ label, /** @type {() => void} */ onClick) => {
      const node = element("button", `button ${icon}`);
      node.type = "button";
      node.setAttribute("aria-label", label);
      node.title = label;
      node.append(svgElement("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }));
      node.firstElementChild?.append(svgElement("path", { d: ICONS[icon], fill: "currentColor" }));
      node.addEventListener("click", onClick);
      return node;
    };
    this.play = button("play", "Play", () => (this.#isPlaying ? this.#pause() : this.#start()));
    const first = button("first", "First event", () => (this.#pause(), this.#go(1)));
    const back = button("back", "Previous event", () => this.#step(-1));
    const forth = button("forth", "Next event", () => this.#step(1));
    this.slider = element("input", "slider");
    this.slider.type = "range";
    this.slider.min = "1";
    this.slider.setAttribute("aria-label", "Event of the run");
    this.slider.addEventListener("input", () => {
      // `#pause` redraws the slider at its old position, so read the value first.
      const wanted = Number(this.slider?.value);
      this.#pause();
      this.#go(wanted);
    });
    this.speed = element("select", "input speed");
    this.speed.setAttribute("aria-label", "Speed");
    for (const speed of SPEEDS) {
      const option = element("option", "", `${speed}×`);
      option.value = String(speed);
      option.selected = speed === this.#speed;
      this.speed.append(option);
    }
    this.speed.addEventListener("change", () => {
      this.#advanceClock();
      this.#speed = Number(this.speed?.value);
    });
    this.live = element("button", "button live", "Live");
    this.live.type = "button";
    this.live.title = "Back to live";
    this.live.addEventListener("click", () => this.toLive());
    this.output = element("output", "hint says");
    this.append(first, back, this.play, forth, this.slider, this.output, this.speed, this.live);
  }

  /** Returns to live. */
  toLive() {
    this.#pause();
    this.#abort.abort();
    this.#isLoading = false;
    if (this.#at === 0) return;
    this.#at = 0;
    this.#store = undefined;
    this.#emitTravel(null);
    this.#draw();
  }

  /** @param {number} by */
  async #step(by) {
    this.#pause();
    const from = this.#at || this.#last;
    await this.#loadTimes(from + (by > 0 ? 1 : 0));
    // Events that this audience cannot see change nothing.
    const next = by > 0 ? this.#times[lastIndexWhere(this.#times, (it) => it.sequence <= from) + 1] : this.#times[lastIndexWhere(this.#times, (it) => it.sequence < from)];
    this.#go(next?.sequence ?? Math.min(this.#last, Math.max(1, from + by)));
  }

  /**
   * Goes to an event. Aborts an earlier request.
   * @param {number} at
   * @returns {Promise<void>}
   */
  async #go(at) {
    const view = this.#view;
    if (!view || !this.#run || this.#last === 0) return;
    this.#at = Math.min(Math.max(1, at), this.#last);
    this.#abort.abort();
    const abort = new AbortController();
    this.#abort = abort;
    this.#isLoading = true;
    this.#error = "";
    this.#draw();
    const wanted = this.#at;
    try {
      const answer = await view.hydration.activities(this.#run, { at: wanted, audience: view.audience, signal: abort.signal });
      if (abort.signal.aborted || this.#abort !== abort) return;
      this.#store ??= new Store();
      this.#store.load(this.#run, answer.activities, answer.sequence);
      this.#isLoading = false;
      void this.#loadTimes(wanted);
      this.#emitTravel({ at: wanted, time: this.#timeAt(wanted), store: this.#store });
    } catch (error) {
      if (abort.signal.aborted || this.#abort !== abort) return;
      this.#isLoading = false;
      this.#error = error instanceof Error ? error.message : String(error);
      this.#pause();
    }
    this.#draw();
  }

  #error = "";
  #scheduleDraw = oncePerFrame(() => this.#draw());

  /** @param {Travel | null} detail */
  #emitTravel(detail) {
    this.dispatchEvent(new CustomEvent("travel", { detail }));
  }

  /* ── playback ── */

  async #start() {
    if (!this.#view || this.#last === 0) return;
    this.#isPlaying = true;
    const from = this.#at === 0 || this.#at >= this.#last ? 1 : this.#at;
    this.#draw();
    if (from !== this.#at) await this.#go(from);
    await this.#loadTimes(from + 1);
    if (!this.#isPlaying) return;
    this.#clock = this.#times[lastIndexWhere(this.#times, (it) => it.sequence <= this.#at)]?.elapsed ?? 0;
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
    if (this.#isLoading) return;
    const due = this.#due();
    if (due !== undefined && due > this.#at) {
      void this.#go(due);
      return;
    }
    if (this.#at >= this.#last) {
      this.#pause();
      return;
    }
    const known = this.#times.at(-1)?.sequence ?? 0;
    if (known > this.#at) return;
    if (this.#timesCursor !== null) void this.#loadTimes(this.#at + 1);
    else void this.#go(this.#last);
  }

  /** The last event that is due. */
  #due() {
    return this.#times[lastIndexWhere(this.#times, (it) => it.elapsed <= this.#clock)]?.sequence;
  }

  /* ── times ── */

  /**
   * Loads event times until this event's time is known or all are loaded.
   * @param {number} at
   */
  async #loadTimes(at) {
    const view = this.#view;
    const run = this.#run;
    if (!view || this.#isLoadingTimes) return;
    this.#isLoadingTimes = true;
    try {
      while (this.#timesCursor !== null && (this.#times.at(-1)?.sequence ?? 0) < at && this.#times.length < TIMES_MAX) {
        const page = await view.hydration.events(run, { after: this.#timesCursor, limit: PAGE_EVENTS, audience: view.audience });
        if (this.#run !== run || this.#view !== view) return;
        for (const event of page.events) this.#times.push(momentOf(event, this.#times.at(-1)));
        this.#timesCursor = page.nextCursor;
      }
    } catch {
      // Without times, steps go by sequence and no time is shown. The next step retries.
    } finally {
      if (this.#run === run && this.#view === view) this.#isLoadingTimes = false;
    }
    this.#draw();
  }

  /** @param {number} at */
  #timeAt(at) {
    return this.#times[lastIndexWhere(this.#times, (it) => it.sequence <= at)]?.time;
  }

  /** @param {number} last */
  #extend(last) {
    if (last <= this.#last) return;
    this.#last = last;
    // Newer events continue where the known times end.
    if (this.#timesCursor === null) this.#timesCursor = this.#times.at(-1)?.sequence ?? 0;
    this.#scheduleDraw();
  }

  /** Polls the last sequence: the last event may be invisible to this audience, so that no frame reports it. */
  async #poll() {
    const [view, run] = [this.#view, this.#run];
    if (!view || !run) return;
    try {
      const summary = await view.hydration.run(run, { audience: view.audience });
      if (this.#run !== run || this.#view !== view) return;
      this.#extend(summary.lastSequence);
      if (ENDED.includes(summary.status)) return;
    } catch {
      // The run may not exist yet. The next poll retries.
    }
    if (this.#run === run && this.#view === view && this.isConnected) this.#pollTimer = setTimeout(() => this.#poll(), POLL_MS);
  }

  #draw() {
    if (!this.slider || !this.output || !this.play || !this.live) return;
    const at = this.#at || this.#last;
    this.slider.max = String(Math.max(1, this.#last));
    this.slider.value = String(Math.max(1, at));
    this.slider.disabled = this.#last === 0;
    const time = this.#at ? this.#timeAt(at) : undefined;
    const when = time === undefined ? "" : new Date(time).toISOString().slice(11, 23);
    const text = this.#error || (this.#last === 0 ? "no events yet" : this.#at === 0 ? `live, event ${formatCount(this.#last)}` : `event ${formatCount(at)} of ${formatCount(this.#last)}${when ? `, ${when}` : ""}`);
    setText(this.output, text);
    this.slider.setAttribute("aria-valuetext", text);
    this.dataset.mode = this.#isPlaying ? "playing" : this.#at === 0 ? "live" : "past";
    this.dataset.busy = String(this.#isLoading);
    this.play.querySelector("path")?.setAttribute("d", this.#isPlaying ? ICONS.pause : ICONS.play);
    this.play.setAttribute("aria-label", this.#isPlaying ? "Pause" : "Play");
    this.play.title = this.#isPlaying ? "Pause" : "Play";
    this.live.setAttribute("aria-pressed", String(this.#at === 0));
    for (const button of this.querySelectorAll("button")) if (button !== this.live) button.disabled = this.#last === 0;
  }
}

/**
 * Returns the time of an event: by the producer's clock, else the server's, else that of the previous event.
 * @param {Envelope} event
 * @param {Moment | undefined} before
 * @returns {Moment}
 */
function momentOf({ sequence, timestamp, receivedAt }, before) {
  const time = [timestamp, receivedAt].map((text) => Date.parse(text ?? "")).find((time) => Number.isFinite(time)) ?? before?.time ?? 0;
  return { sequence, time, elapsed: before ? before.elapsed + Math.min(PAUSE_MAX_MS, Math.max(0, time - before.time)) : 0 };
}

/**
 * Returns the index of the last moment that satisfies a monotonic predicate; -1 for none.
 * @param {Moment[]} moments
 * @param {(moment: Moment) => boolean} predicate
 */
function lastIndexWhere(moments, predicate) {
  let [low, high] = [0, moments.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (predicate(moments[middle])) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

define("ps-scrubber", Scrubber);

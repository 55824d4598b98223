/**
 * Goes back and forth in a run's time. The server folds the log up to any event (`activities?at=`); what comes is put in a store of
 * its own, which the shell shows instead of the live one.
 *
 * It fires `travel`: its detail is where it is, and the store to show; null, when it is live again.
 */

import { formatCount, define, svgElement, element, oncePerFrame, setText } from "../surfaces/base.js";
import { Store } from "../client/store.js";

/** @typedef {import("../surfaces/base.js").View} View */
/** @typedef {import("../client/types.js").Envelope} Envelope */
/** @typedef {{ at: number, time: number | undefined, store: Store }} Travel `time`: milliseconds since 1970, if the event says. */
/**
 * When an event was: in milliseconds since 1970, and in milliseconds of a replay, which shortens long pauses.
 * @typedef {{ sequence: number, time: number, elapsed: number }} Moment
 */

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64];
/** A longer pause between two events lasts this long, in milliseconds of the run. */
const PAUSE_MAX_MS = 2000;
/** Events whose times are asked for at once, and how many of them may be kept. */
const PAGE_EVENTS = 1000;
const TIMES_MAX = 200_000;
/** Statuses with which a run grows no more, unless its stream says otherwise. */
const ENDED = ["completed", "failed", "cancelled", "interrupted"];
/** How often a live run is asked how far it is, in milliseconds. */
const POLL_MS = 2000;
/** How often the clock of a replay is looked at, in milliseconds. */
const TICK_MS = 16;
/** Signs of the buttons, drawn in a square of 16: fonts have them in many forms, or not at all. */
const ICONS = { first: "M3 3h2v10H3z M13 3v10L6 8z", back: "M11 3v10L4 8z", play: "M4 2.5v11L13 8z", pause: "M4 3h3v10H4z M9 3h3v10H9z", forth: "M3 3v10l7-5z M11 3h2v10h-2z" };

export class Scrubber extends HTMLElement {
  /** @type {View | undefined} */
  #view;
  #run = "";
  /** The run's last event, as far as is known. */
  #last = 0;
  /** Where it is; 0 for live. */
  #at = 0;
  #isPlaying = false;
  #speed = 1;
  /** The newest question; an answer to an older one is dropped. */
  #abort = new AbortController();
  #isLoading = false;
  /** Its own store, made anew with each journey. @type {Store | undefined} */
  #store;
  /** When each visible event was, in order. @type {Moment[]} */
  #times = [];
  /** Where the next page of them begins; null when all are there. @type {number | string | null} */
  #timesCursor = 0;
  #isLoadingTimes = false;
  /** The moment of the run that a replay is at, in milliseconds, with long pauses shortened; and when that was looked at. */
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
    this.setAttribute("aria-label", "Time");
    if (this.childElementCount === 0) this.#build();
  }

  disconnectedCallback() {
    this.#stopAll();
  }

  /**
   * Turns to a run: its time is there to go through.
   * @param {View} view With the live store; `hydration` and `audience` are what is asked with.
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
   * Goes to an event of the run that it follows, though nothing may be known of the run yet.
   * @param {number} at
   */
  goTo(at) {
    this.#pause();
    this.#last = Math.max(this.#last, at);
    return this.#go(at);
  }

  /** Where it is: a sequence, or 0 for live. */
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
    const first = button("first", "To the first event", () => (this.#pause(), this.#go(1)));
    const back = button("back", "One event back", () => this.#step(-1));
    const forth = button("forth", "One event on", () => this.#step(1));
    this.slider = element("input", "slider");
    this.slider.type = "range";
    this.slider.min = "1";
    this.slider.setAttribute("aria-label", "Event of the run");
    this.slider.addEventListener("input", () => {
      // Pausing draws, and what is drawn is where it was.
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

  /** Goes back to live. */
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
    // Only events that this audience sees change anything.
    const next = by > 0 ? this.#times[lastIndexWhere(this.#times, (it) => it.sequence <= from) + 1] : this.#times[lastIndexWhere(this.#times, (it) => it.sequence < from)];
    this.#go(next?.sequence ?? Math.min(this.#last, Math.max(1, from + by)));
  }

  /**
   * Goes to an event. Whatever was asked for before is given up.
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

  /* ── playing ── */

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

  /** Moves the replay's clock on by what has passed since it was looked at. */
  #advanceClock() {
    const now = performance.now();
    this.#clock += (now - this.#clockReadAt) * this.#speed;
    this.#clockReadAt = now;
  }

  #tick() {
    this.#advanceClock();
    // The next picture is asked for when the one before is there: a slow line shows fewer of them, and is not flooded.
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

  /** The last event that is due by the replay's clock. */
  #due() {
    return this.#times[lastIndexWhere(this.#times, (it) => it.elapsed <= this.#clock)]?.sequence;
  }

  /* ── times ── */

  /**
   * Reads when events were, until this one's time is known, or all are.
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
      // Without times steps are by sequence, and nothing is said of when; the next step asks again.
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
    // What came since begins where the known ones end.
    if (this.#timesCursor === null) this.#timesCursor = this.#times.at(-1)?.sequence ?? 0;
    this.#scheduleDraw();
  }

  /** A run's last event may be one that this audience does not see: then no frame tells of it. */
  async #poll() {
    const [view, run] = [this.#view, this.#run];
    if (!view || !run) return;
    try {
      const summary = await view.hydration.run(run, { audience: view.audience });
      if (this.#run !== run || this.#view !== view) return;
      this.#extend(summary.lastSequence);
      if (ENDED.includes(summary.status)) return;
    } catch {
      // It may not have been written yet; the next look may find it.
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
    const text = this.#error || (this.#last === 0 ? "nothing yet" : this.#at === 0 ? `live, event ${formatCount(this.#last)}` : `event ${formatCount(at)} of ${formatCount(this.#last)}${when ? `, ${when}` : ""}`);
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
 * When it was: by its producer's clock, else by the server's; with neither, when the one before was.
 * @param {Envelope} event
 * @param {Moment | undefined} before
 * @returns {Moment}
 */
function momentOf({ sequence, timestamp, receivedAt }, before) {
  const time = [timestamp, receivedAt].map((text) => Date.parse(text ?? "")).find((time) => Number.isFinite(time)) ?? before?.time ?? 0;
  return { sequence, time, elapsed: before ? before.elapsed + Math.min(PAUSE_MAX_MS, Math.max(0, time - before.time)) : 0 };
}

/**
 * The index of the last moment for which it holds, of moments for which it first holds and then does not; -1 for none.
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

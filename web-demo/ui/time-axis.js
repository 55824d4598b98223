/**
 * The time axis that the trace and the scrubber share: a piecewise linear map from times to places, with one window.
 *
 * Long pauses in which nothing happened are shortened, since a session may continue after days.
 */

/** @typedef {{ start: number, end: number, isQuiet?: boolean }} Interval In milliseconds since 1970. `isQuiet`: only waiting. */
/** @typedef {{ start: number, end: number, at: number, length: number }} Part Times, and their place on the axis. */

/** A pause is shortened if it is longer than this, and longer than this share of the busy time. */
const PAUSE_MIN_MS = 60_000;
const PAUSE_SHARE = 0.25;
/** The place that a shortened pause takes, and a shortened wait, as a share of the busy time. */
const PAUSE_PLACE = 0.03;
const WAIT_PLACE = 0.4;
/** The narrowest window, as a share of the whole. */
const WINDOW_MIN = 0.001;
/** Distances between ticks, in milliseconds. */
const STEPS = [100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000, 172_800_000, 604_800_000];

/** Fires `change` when the window changes. */
export class TimeAxis extends EventTarget {
  /** @type {Part[]} */
  #parts = [{ start: 0, end: 1, at: 0, length: 1 }];
  #length = 1;
  #from = 0;
  #to = 1;

  /** The first time. */
  get start() {
    return this.#parts[0].start;
  }

  /** The last time. */
  get end() {
    return this.#parts[this.#parts.length - 1].end;
  }

  /** Whether the window is smaller than the whole. */
  get isZoomed() {
    return this.#to - this.#from < 0.9999;
  }

  /**
   * Sets the times.
   * @param {Interval[]} busy When something happened, in any order.
   */
  setTimes(busy) {
    const sorted = busy.filter(({ start, end }) => Number.isFinite(start) && end >= start).sort((a, b) => a.start - b.start);
    if (sorted.length === 0) return;
    const quiet = sorted.filter(({ isQuiet }) => isQuiet);
    const last = sorted.reduce((latest, { end }) => Math.max(latest, end), sorted[0].start + 1);
    /** @type {Interval[]} */
    const merged = [];
    for (const { start, end, isQuiet } of sorted) {
      const open = merged[merged.length - 1];
      if (isQuiet) continue;
      if (open && start <= open.end) open.end = Math.max(open.end, end);
      else merged.push({ start, end });
    }
    const total = merged.reduce((sum, { start, end }) => sum + end - start, 0);
    const pause = Math.max(PAUSE_MIN_MS, total * PAUSE_SHARE);
    /** @type {Part[]} */
    const parts = [];
    let [from, at] = [sorted[0].start, 0];
    const add = (/** @type {number} */ end, length = end - from) => {
      if (end <= from) return;
      parts.push({ start: from, end, at, length });
      [from, at] = [end, at + length];
    };
    for (const { start, end } of [...merged, { start: last, end: last }]) {
      if (start - from > pause && merged.length > 0) {
        const isWait = quiet.some((one) => one.start < start && one.end > from);
        add(start, Math.max(1000, total * (isWait ? WAIT_PLACE : PAUSE_PLACE)));
      }
      // Neighbors without a long pause between them are one part.
      const open = parts[parts.length - 1];
      if (open && open.length === open.end - open.start && end > from) {
        open.length += end - from;
        at += end - from;
        open.end = from = end;
      } else add(end);
    }
    [this.#parts, this.#length] = [parts, at];
  }

  /**
   * Returns the place of a time in the window: 0 is its start, 1 its end.
   * @param {number} time
   */
  place(time) {
    return (this.#share(time) - this.#from) / (this.#to - this.#from);
  }

  /** @param {number} time @returns {number} Its place on the whole axis, 0 to 1. */
  #share(time) {
    let [low, high] = [0, this.#parts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#parts[middle].start <= time) low = middle;
      else high = middle - 1;
    }
    const { start, end, at, length } = this.#parts[low];
    return (at + ((time - start) / (end - start || 1)) * length) / this.#length;
  }

  /**
   * Returns the time at a place of the window.
   * @param {number} place
   */
  time(place) {
    const at = (this.#from + place * (this.#to - this.#from)) * this.#length;
    const part = this.#parts.findLast((one) => one.at <= at) ?? this.#parts[0];
    return part.start + ((at - part.at) / part.length) * (part.end - part.start);
  }

  /**
   * Makes the window smaller or larger.
   * @param {number} factor Above 1: smaller.
   * @param {number} [around] The place that stays.
   */
  zoom(factor, around = 0.5) {
    const width = Math.min(1, Math.max(WINDOW_MIN, (this.#to - this.#from) / factor));
    const center = this.#from + around * (this.#to - this.#from);
    this.#setWindow(center - around * width, width);
  }

  /** Moves the window. @param {number} by A share of its width. */
  pan(by) {
    this.#setWindow(this.#from + by * (this.#to - this.#from), this.#to - this.#from);
  }

  /** Shows the whole. */
  fit() {
    this.#setWindow(0, 1);
  }

  /** @param {number} from @param {number} width */
  #setWindow(from, width) {
    this.#from = Math.min(Math.max(0, from), 1 - width);
    this.#to = this.#from + width;
    this.dispatchEvent(new Event("change"));
  }

  /** The places in the window at which a long pause is shortened. */
  get breaks() {
    return this.#parts.filter(({ start, end, length }) => length < end - start - 1).map(({ at, length }) => ((at + length / 2) / this.#length - this.#from) / (this.#to - this.#from)).filter((place) => place > 0 && place < 1);
  }

  /**
   * Returns the ticks of the window.
   * @param {number} width The width of the window, in pixels.
   * @param {number} [distance] The smallest distance of two ticks, in pixels.
   * @returns {{ place: number, label: string }[]}
   */
  ticks(width, distance = 72) {
    const span = (this.#to - this.#from) * this.#length;
    const step = STEPS.find((one) => (one / span) * width >= distance) ?? STEPS[STEPS.length - 1];
    /** @type {{ place: number, label: string }[]} */
    const ticks = [];
    const add = (/** @type {number} */ time) => {
      const place = this.place(time);
      if (place < -0.0001 || place > 1.0001 || (place - (ticks.at(-1)?.place ?? -Infinity)) * width < distance * 0.8) return;
      ticks.push({ place, label: formatElapsed(time - this.start, step < 1000) });
    };
    const [first, last] = [this.time(0), this.time(1)];
    for (const { start, end, length } of this.#parts) {
      if (end < first || start > last) continue;
      // A shortened part has only its end.
      if (length < end - start - 1) {
        if (end === this.end) add(end);
        continue;
      }
      if (start > this.start) add(start);
      for (let n = Math.ceil((Math.max(start, first) - this.start) / step); this.start + n * step <= Math.min(end, last); n += 1) add(this.start + n * step);
    }
    return ticks;
  }
}

/**
 * Formats an elapsed time as a clock: `0:07`, `6:12`, `1:02:03`, `2d 3:04:05`.
 * @param {number} ms
 * @param {boolean} [isFine] With tenths of a second.
 */
export function formatElapsed(ms, isFine = false) {
  const seconds = Math.max(0, ms) / 1000;
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor((seconds % 86_400) / 3600), Math.floor((seconds % 3600) / 60)];
  const rest = isFine ? (Math.floor(seconds * 10) / 10 % 60).toFixed(1).padStart(4, "0") : String(Math.floor(seconds % 60)).padStart(2, "0");
  const clock = hours > 0 || days > 0 ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
  return days > 0 ? `${days}d ${clock}` : clock;
}

/** The axis of the page. */
export const pageAxis = new TimeAxis();

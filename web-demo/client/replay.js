/**
 * Replay: the state of a session or of one run at any moment of its history.
 *
 * The server folds the logs up to a place in them. A replay reads the moments of all logs, orders them as they were
 * committed, and puts the state of one moment into its own store. A step to the next moment requests only what it
 * changes.
 */

import { Problem } from "./http.js";
import { Store, logOf } from "./store.js";

/**
 * @typedef {import("./types.js").Activity} Activity
 * @typedef {import("./types.js").Audience} Audience
 * @typedef {import("./types.js").Envelope} Envelope
 *
 * @typedef {object} ReplayOptions What to replay: a session or a run.
 * @property {string} [session] All runs of a session, and its own log.
 * @property {string[]} [children] With `session`: further sessions, whose moments are merged by the time of their commit.
 * @property {string} [run] One run.
 * @property {Audience} [audience] Default: that of the `Hydration`.
 *
 * @typedef {object} ReplayMoment An envelope's place in the history.
 * @property {number} at The sum of the last sequences of all logs, as far as the audience sees them. For one run: its sequence.
 * @property {string} runId Empty for a session's own log.
 * @property {string} [sessionId]
 * @property {number} sequence The envelope's sequence in its log.
 * @property {number} time When the server received it, in milliseconds since 1970.
 * @property {number} elapsed Milliseconds of playback since the first moment, by the producer's clock, without long pauses.
 *
 * @typedef {ReplayMoment & { cursor: string, source: Source, log: string, clock: number }} Entry
 */

/** Envelopes per request, and moments kept. */
const PAGE_EVENTS = 1000;
const MOMENTS_MAX = 200_000;
/** The longest pause between two moments of playback, in milliseconds. */
const PAUSE_MAX_MS = 2000;

export class Replay {
  /**
   * @param {import("./hydration.js").Hydration} hydration Makes the requests.
   * @param {ReplayOptions} options
   */
  constructor(hydration, { session, run, children = [], audience }) {
    if ((session === undefined) === (run === undefined)) throw new TypeError("A replay has either a session or a run.");
    this.#hydration = hydration;
    this.#call = audience ? { audience } : {};
    this.#sources = session === undefined ? [new Source("run", /** @type {string} */ (run))] : [new Source("session", session)];
    if (session !== undefined) this.include(children);
  }

  #hydration;
  #call;
  #sources;
  /** @type {Entry[]} */
  #moments = [];
  /** The indices of the moments, by log. @type {Map<string, number[]>} */
  #byLog = new Map();
  /** @type {Promise<void> | undefined} */
  #loading;
  #abort = new AbortController();
  /** The index of the moment in the store; -1 for none. */
  #index = -1;
  /** The state of the last moment that `goTo` reached. */
  store = new Store();

  /** The moments that are known so far, in the order in which they were committed. @returns {readonly ReplayMoment[]} */
  get moments() {
    return this.#moments;
  }

  /** The index of the moment in the store; -1 before the first `goTo`. */
  get index() {
    return this.#index;
  }

  /**
   * Adds child sessions that became known later. The next `load` reads them.
   * @param {Iterable<string>} children
   */
  include(children) {
    for (const id of children) if (!this.#sources.some((one) => one.id === id)) this.#sources.push(new Source("session", id));
  }

  /**
   * Reads the moments that are not known yet. Concurrent calls share one reading.
   * @returns {Promise<void>} Rejects with the server's problem. A session or run without facts has no moments.
   */
  load() {
    this.#loading ??= this.#read().finally(() => (this.#loading = undefined));
    return this.#loading;
  }

  async #read() {
    const added = await Promise.all(this.#sources.map((source) => this.#readSource(source)));
    if (added.some((count) => count > 0)) this.#merge();
  }

  /** @param {Source} source @returns {Promise<number>} The number of new moments. */
  async #readSource(source) {
    const known = source.entries.length;
    try {
      for (let next = source.next; source.entries.length < MOMENTS_MAX;) {
        const page = source.kind === "run"
          ? await this.#hydration.events(source.id, { ...this.#call, after: next || undefined, limit: PAGE_EVENTS })
          : await this.#hydration.sessionEvents(source.id, { ...this.#call, after: next || undefined, limit: PAGE_EVENTS });
        const cursors = "cursors" in page ? page.cursors : page.events.map(({ sequence }) => String(sequence));
        page.events.forEach((event, at) => source.entries.push(entryOf(event, cursors[at], source, source.entries.at(-1))));
        source.next = source.entries.at(-1)?.cursor ?? source.next;
        if (page.nextCursor === null) break;
        next = String(page.nextCursor);
      }
    } catch (error) {
      if (!(error instanceof Problem && error.status === 404)) throw error;
    }
    return source.entries.length - known;
  }

  /** Orders the moments of all sources and counts them. */
  #merge() {
    const [first, ...others] = this.#sources;
    const before = this.#moments[this.#index];
    // Within one source the order is the server's. The sort is stable.
    this.#moments = others.length === 0 ? [...first.entries] : this.#sources.flatMap((source) => source.entries).sort((a, b) => a.time - b.time);
    this.#byLog.clear();
    for (const source of this.#sources) source.places = [];
    /** @type {Map<string, number>} */
    const sequences = new Map();
    let at = 0;
    this.#moments.forEach((moment, index) => {
      at += Math.max(0, moment.sequence - (sequences.get(moment.log) ?? 0));
      sequences.set(moment.log, moment.sequence);
      moment.at = at;
      const previous = this.#moments[index - 1];
      moment.elapsed = previous ? previous.elapsed + Math.min(PAUSE_MAX_MS, Math.max(0, moment.clock - previous.clock)) : 0;
      moment.source.places.push(index);
      const places = this.#byLog.get(moment.log);
      if (places) places.push(index);
      else this.#byLog.set(moment.log, [index]);
    });
    if (before) this.#index = this.#moments.indexOf(before);
  }

  /**
   * Returns the index of the last moment at or before a position.
   * @param {number} at As `ReplayMoment.at`.
   * @returns {number} -1 if there is none.
   */
  indexAt(at) {
    return lastIndexWhere(this.#moments, (moment) => moment.at <= at);
  }

  /**
   * Returns the index of the last moment that the server received at or before a time.
   * @param {number} time Milliseconds since 1970.
   * @returns {number} -1 if there is none.
   */
  indexAtTime(time) {
    return lastIndexWhere(this.#moments, (moment) => moment.time <= time);
  }

  /**
   * Returns the index of the last moment of playback up to a time.
   * @param {number} elapsed As `ReplayMoment.elapsed`.
   */
  indexAtElapsed(elapsed) {
    return lastIndexWhere(this.#moments, (moment) => moment.elapsed <= elapsed);
  }

  /**
   * Puts the state of a moment into `store`. A later call aborts an earlier one.
   * @param {number} index An index of `moments`.
   * @returns {Promise<boolean>} False if a later call replaced this one. Rejects with the server's problem.
   */
  async goTo(index) {
    const moment = this.#moments[index];
    if (!moment) throw new RangeError(`The replay has ${this.#moments.length} moments, from 0. There is none at ${index}.`);
    this.#abort.abort();
    const { signal } = (this.#abort = new AbortController());
    try {
      const states = await Promise.all(this.#sources.map((source) => this.#readState(source, index, signal)));
      if (signal.aborted) return false;
      this.store.batch(() => states.forEach((state) => state && this.#apply(state, index)));
      this.#index = this.#moments.indexOf(moment);
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      throw error;
    }
  }

  /** Aborts the current request. */
  cancel() {
    this.#abort.abort();
  }

  /**
   * Reads the state of a source at a moment; nothing if the store has it.
   * @param {Source} source
   * @param {number} index
   * @param {AbortSignal} signal
   */
  async #readState(source, index, signal) {
    const cursor = this.#moments[source.places[lastIndexWhere(source.places, (place) => place <= index)]]?.cursor ?? "";
    if (cursor === source.shown) return undefined;
    /** @type {{ activities: any[], sequence?: number }} */
    let state = { activities: [] };
    if (cursor !== "" && source.kind === "run") state = await this.#hydration.activities(source.id, { ...this.#call, at: Number(cursor), signal });
    else if (cursor !== "") {
      for (let page = await this.#hydration.sessionActivities(source.id, { ...this.#call, at: cursor, signal }); ;) {
        state.activities.push(...page.activities);
        if (page.nextCursor === null) break;
        page = await this.#hydration.sessionActivities(source.id, { ...this.#call, at: cursor, cursor: page.nextCursor, signal });
      }
    }
    return { source, cursor, ...state };
  }

  /**
   * @param {{ source: Source, cursor: string, activities: any[], sequence?: number }} state
   * @param {number} index
   */
  #apply({ source, cursor, activities, sequence }, index) {
    /** @type {Map<string, { runId: string, sessionId?: string, activities: any[] }>} */
    const logs = new Map();
    for (const activity of activities) {
      const runId = source.kind === "run" ? source.id : (activity.runId ?? "");
      const of = runId ? { runId } : { runId, sessionId: source.id };
      const log = logs.get(logOf(of));
      if (log) log.activities.push(activity);
      else logs.set(logOf(of), { ...of, activities: [activity] });
    }
    for (const [name, log] of logs) this.store.load(log.runId, log.activities, sequence ?? this.#sequenceAt(name, index), log.sessionId);
    for (const [name, of] of source.logs) if (!logs.has(name)) this.store.forget(of.runId, of.sessionId);
    source.logs = logs;
    source.shown = cursor;
  }

  /** The last sequence of a log at a moment. @param {string} log @param {number} index */
  #sequenceAt(log, index) {
    const places = this.#byLog.get(log) ?? [];
    return this.#moments[places[lastIndexWhere(places, (place) => place <= index)]]?.sequence ?? 0;
  }
}

/** A session or a run: its moments in order, and what of it is in the store. */
class Source {
  /** @param {"session" | "run"} kind @param {string} id */
  constructor(kind, id) {
    this.kind = kind;
    this.id = id;
  }

  /** @type {Entry[]} */
  entries = [];
  /** The cursor after the last known envelope. */
  next = "";
  /** The indices of its moments. @type {number[]} */
  places = [];
  /** The cursor of the state in the store; empty for none. */
  shown = "";
  /** The logs in the store. @type {Map<string, { runId: string, sessionId?: string }>} */
  logs = new Map();
}

/**
 * @param {Envelope} event
 * @param {string} cursor
 * @param {Source} source
 * @param {Entry | undefined} previous
 * @returns {Entry}
 */
function entryOf(event, cursor, source, previous) {
  const time = finite(Date.parse(event.receivedAt ?? "")) ?? previous?.time ?? 0;
  const runId = source.kind === "run" ? source.id : (event.runId ?? "");
  const sessionId = source.kind === "session" ? source.id : event.sessionId;
  const clock = finite(Date.parse(event.timestamp ?? "")) ?? time;
  return { at: 0, runId, sessionId, sequence: event.sequence, time, elapsed: 0, cursor, source, log: logOf({ runId, sessionId }), clock };
}

/** @param {number} value */
const finite = (value) => (Number.isFinite(value) ? value : undefined);

/**
 * Returns the index of the last item that satisfies a monotonic predicate; -1 for none.
 * @template Item
 * @param {readonly Item[]} items
 * @param {(item: Item) => boolean} predicate
 */
function lastIndexWhere(items, predicate) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (predicate(items[middle])) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

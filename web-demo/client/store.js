/**
 * The picture: the activities of one or several runs, as far as their frames have come.
 *
 * A store is for one audience and for one connection at a time, for a change is only good on top of the one before it. What it
 * holds is never changed in place: an activity that changes is another object, which shares with the old one what stayed.
 */

import { PatchError, apply, equal } from "./patch.js";

/**
 * @typedef {import("./types.js").Activity} Activity
 * @typedef {import("./types.js").Changes} Changes
 * @typedef {import("./types.js").Fault} Fault
 * @typedef {import("./types.js").Frame} Frame
 * @typedef {import("./types.js").Listener} Listener
 * @typedef {import("./types.js").Run} Run
 *
 * @typedef {{ runId?: string, sessionId?: string }} Of
 * @typedef {{ run: Run, rank: number, keys: Set<string> }} Log
 */

/** Which members are streamed text, by type; the same as the server joins. Contents that a source names itself have none. */
const TEXTS = new Map([
  ["message", /^\/parts\/\d+\/text$/],
  ["reasoning", /^\/text$/],
  ["plan", /^\/text$/],
  ["tool-call-progress", /^\/(input|output)_text$/],
]);

/**
 * The name of the log that something is of: the run's id, or for a session's own log `@` and the session's. Within it `%`,
 * spaces and a leading `@` are escaped, so that no two logs and no two keys are ever the same.
 * @param {Of} of
 */
export function logOf({ runId, sessionId }) {
  return runId ? escaped(runId).replace(/^@/, "%40") : `@${escaped(sessionId ?? "")}`;
}

/**
 * The key of an activity: `<run> <type> <id>`.
 * @param {Of & { activityType: string, activityId: string }} activity
 */
export function keyOf(activity) {
  return `${logOf(activity)} ${escaped(activity.activityType)} ${activity.activityId}`;
}

/** @param {string} id */
function escaped(id) {
  return id.replace(/[% ]/g, encodeURIComponent);
}

/**
 * What a text member says, however many chunks it came in.
 * @param {unknown} chunks
 * @returns {string}
 */
export function textOf(chunks) {
  if (Array.isArray(chunks)) return chunks.length === 1 ? String(chunks[0]) : chunks.join("");
  return typeof chunks === "string" ? chunks : "";
}

/**
 * What a text member says after its first `from` UTF-16 code units. It costs what it gives, however long the text is before: for
 * whoever shows text that grows, and appends.
 * @param {unknown} chunks
 * @param {number} from
 * @returns {string}
 */
export function textFrom(chunks, from) {
  if (!Array.isArray(chunks)) return textOf(chunks).slice(from);
  let start = lengthOf(chunks);
  /** @type {string[]} */
  const tail = [];
  for (let at = chunks.length - 1; at >= 0 && start > from; at -= 1) {
    const chunk = String(chunks[at]);
    start -= chunk.length;
    tail.push(start < from ? chunk.slice(from - start) : chunk);
  }
  return tail.reverse().join("");
}

/**
 * How long a text member is, in UTF-16 code units.
 * @param {unknown} chunks
 */
export function lengthOf(chunks) {
  if (!Array.isArray(chunks)) return textOf(chunks).length;
  return chunks.reduce((length, chunk) => length + String(chunk).length, 0);
}

export class Store {
  /** @type {Map<string, Activity>} */
  #activities = new Map();
  /** @type {Map<string, Log>} */
  #logs = new Map();
  #ranks = 0;
  /** Everything in order; `undefined` when that has to be found out anew. @type {string[] | undefined} */
  #order = [];
  /** @type {Set<Listener>} */
  #listeners = new Set();
  #depth = 0;
  #changes = none();

  /** How many activities there are. */
  get size() {
    return this.#activities.size;
  }

  /** @param {string} key @returns {Activity | undefined} */
  get(key) {
    return this.#activities.get(key);
  }

  /**
   * The activities in their order: run by run as these came, and within a run by `opened`.
   * @param {(activity: Activity) => boolean} [filter]
   */
  sorted(filter) {
    this.#order ??= [...this.#activities.keys()].sort((a, b) => this.#compare(a, b));
    /** @type {Activity[]} */
    const sorted = [];
    for (const key of this.#order) {
      const activity = /** @type {Activity} */ (this.#activities.get(key));
      if (!filter || filter(activity)) sorted.push(activity);
    }
    return sorted;
  }

  /** How the logs stand that this store has heard of, in the order in which they came. @returns {Run[]} */
  runs() {
    return [...this.#logs.values()].map((log) => log.run);
  }

  /**
   * How one log stands.
   * @param {string} runId
   * @returns {Run | undefined} Nothing, while nothing of it has come.
   */
  run(runId) {
    return this.#logs.get(logOf({ runId }))?.run;
  }

  /**
   * Hears of every change, at once; of those of one batch once. Views gather the keys and draw when the screen does.
   * @param {Listener} listener
   * @returns {() => void} Ends it.
   */
  subscribe(listener) {
    // Each has its own, so that the same function can listen twice.
    const own = /** @type {Listener} */ ((changes) => listener(changes));
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  /**
   * Takes the next frame.
   * @param {Frame} frame
   * @returns {Fault | undefined} What could not be taken: then nothing was, and whoever reads has to have a snapshot sent.
   */
  take(frame) {
    return this.batch(() => {
      const log = this.#log(frame);
      switch (frame.frame) {
        case "ActivitySnapshot": return this.#snapshot(log, frame);
        case "ActivityDelta": return this.#delta(log, frame);
        case "Hydrated": return this.#move(log, { isHydrated: true, sequence: Math.max(log.run.sequence, frame.sequence) });
        case "End": return this.#move(log, { ended: frame.status });
        case "Reset": return this.#forget(log);
        // Events add up to nothing here, and an error is the connection's to tell.
        default: return undefined;
      }
    });
  }

  /**
   * Makes a run exactly what REST says that it is, or was: `GET /v1/runs/{id}/activities`. What is the same stays the same object.
   * @param {string} runId
   * @param {(Omit<Activity, "runId"> & { runId?: string })[]} activities
   * @param {number} sequence
   */
  load(runId, activities, sequence) {
    this.batch(() => {
      const log = this.#log({ runId });
      const gone = new Set(log.keys);
      for (const loaded of activities) {
        const activity = { ...loaded, runId };
        const key = keyOf(activity);
        gone.delete(key);
        if (!equal(this.#activities.get(key), activity)) this.#put(log, key, activity);
      }
      this.#drop(log, gone);
      log.run = { runId, sequence, isHydrated: true };
      this.#changes.runs.add(logOf(log.run));
    });
  }

  /** Forgets everything of a run. @param {string} runId */
  forget(runId) {
    this.batch(() => {
      const name = logOf({ runId });
      const log = this.#logs.get(name);
      if (!log) return;
      this.#forget(log);
      this.#logs.delete(name);
    });
  }

  /** Forgets everything. */
  clear() {
    this.batch(() => {
      for (const [name, log] of this.#logs) {
        this.#forget(log);
        this.#logs.delete(name);
      }
    });
  }

  /**
   * Tells of everything that `work` takes in one go.
   * @template T
   * @param {() => T} work
   * @returns {T}
   */
  batch(work) {
    this.#depth += 1;
    try {
      return work();
    } finally {
      this.#depth -= 1;
      if (this.#depth === 0) this.#tell();
    }
  }

  #tell() {
    const changes = this.#changes;
    if (changes.keys.size === 0 && changes.runs.size === 0) return;
    this.#changes = none();
    for (const listener of [...this.#listeners]) {
      if (!this.#listeners.has(listener)) continue;
      try {
        listener(changes);
      } catch (error) {
        // One that fails must not keep the others, or the connection, from what they need.
        queueMicrotask(() => { throw error; });
      }
    }
  }

  /** @param {Of} of */
  #log({ runId = "", sessionId }) {
    const name = logOf({ runId, sessionId });
    let log = this.#logs.get(name);
    if (!log) {
      const run = { runId, ...(runId ? {} : { sessionId }), sequence: 0, isHydrated: false };
      log = { run, rank: this.#ranks++, keys: new Set() };
      this.#logs.set(name, log);
    }
    return log;
  }

  /** @param {Log} log @param {import("./types.js").Snapshot} frame */
  #snapshot(log, frame) {
    const { activityType, activityId, surface, agentId, opened, sequence, openedAt, updatedAt, endedAt, content } = frame;
    const { runId, sessionId } = log.run;
    const times = { ...(openedAt && { openedAt }), ...(updatedAt && { updatedAt }), ...(endedAt && { endedAt }) };
    const activity = { runId, ...(sessionId && { sessionId }), activityType, activityId, surface, ...(agentId && { agentId }), opened, sequence, ...times, content };
    this.#put(log, keyOf(activity), activity);
    return this.#moved(log, frame);
  }

  /**
   * @param {Log} log
   * @param {import("./types.js").Delta} frame
   * @returns {Fault | undefined}
   */
  #delta(log, frame) {
    const key = keyOf({ ...log.run, activityType: frame.activityType, activityId: frame.activityId });
    const known = this.#activities.get(key);
    if (!known) return { key, sequence: frame.sequence, why: "a change came for what is not here" };
    // An envelope changes an activity once, so this one is in it already.
    if (frame.sequence <= known.sequence) return undefined;
    const texts = TEXTS.get(frame.activityType);
    try {
      const content = apply(known.content, frame.patch, texts && ((pointer) => texts.test(pointer)));
      if (typeof content !== "object" || content === null || Array.isArray(content)) return { key, sequence: frame.sequence, why: "a change leaves no object" };
      this.#put(log, key, moved({ ...known, sequence: frame.sequence, content }, frame));
    } catch (error) {
      if (!(error instanceof PatchError)) throw error;
      return { key, sequence: frame.sequence, why: error.message };
    }
    return this.#moved(log, frame);
  }

  /**
   * What comes live after an end begins another attempt.
   * @param {Log} log
   * @param {import("./types.js").OfLog} frame
   */
  #moved(log, frame) {
    log.run = { ...log.run, sequence: Math.max(log.run.sequence, frame.sequence) };
    if (frame.prev !== undefined && log.run.ended !== undefined) this.#move(log, { ended: undefined });
    return undefined;
  }

  /** @param {Log} log @param {Partial<Run>} to */
  #move(log, to) {
    log.run = { ...log.run, ...to };
    this.#changes.runs.add(logOf(log.run));
    return undefined;
  }

  /** @param {Log} log @param {string} key @param {Activity} activity */
  #put(log, key, activity) {
    const known = this.#activities.get(key);
    this.#activities.set(key, activity);
    log.keys.add(key);
    this.#changes.keys.add(key);
    if (known?.opened === activity.opened || !this.#order) return;
    const last = this.#order.at(-1);
    if (!known && (last === undefined || this.#compare(last, key) < 0)) this.#order.push(key);
    else this.#order = undefined;
  }

  /** @param {Log} log */
  #forget(log) {
    this.#drop(log, new Set(log.keys));
    return this.#move(log, { sequence: 0, isHydrated: false, ended: undefined });
  }

  /** @param {Log} log @param {Set<string>} keys */
  #drop(log, keys) {
    if (keys.size === 0) return;
    for (const key of keys) {
      this.#activities.delete(key);
      log.keys.delete(key);
      this.#changes.keys.add(key);
    }
    this.#order = this.#order?.filter((key) => !keys.has(key));
    this.#changes.reset = true;
  }

  /** @param {string} a @param {string} b */
  #compare(a, b) {
    const [one, other] = [this.#activities.get(a), this.#activities.get(b)];
    if (!one || !other) return 0;
    return this.#rank(one) - this.#rank(other) || one.opened - other.opened || (a < b ? -1 : 1);
  }

  /** @param {Activity} activity */
  #rank(activity) {
    return this.#logs.get(logOf(activity))?.rank ?? 0;
  }
}

/**
 * Gives an activity the times of a change: `at` is when it changed, and where the change ends it or has it go on again, `ended`.
 * @param {Activity} activity
 * @param {import("./types.js").Delta} change
 * @returns {Activity}
 */
function moved(activity, { at, ended }) {
  if (at) activity.updatedAt = at;
  if (at && ended) activity.endedAt = at;
  if (ended === false) delete activity.endedAt;
  return activity;
}

/** @returns {Changes} */
function none() {
  return { keys: new Set(), runs: new Set(), reset: false };
}

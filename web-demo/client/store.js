/**
 * The store: the current activities of one or several runs, folded from their frames.
 *
 * A store serves one audience and one connection at a time, since each change applies only to the version before it.
 * Its activities are immutable: a change creates another object, which shares the unchanged parts with the old one.
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
 * @typedef {{ runId?: string, sessionId?: string }} LogRef
 * @typedef {{ run: Run, rank: number, keys: Set<string> }} Log
 */

/** Pointers of streamed text, by activity type, as the server folds them. Custom activities have none. */
const TEXT_POINTERS = new Map([
  ["message", /^\/parts\/\d+\/text$/],
  ["reasoning", /^\/text$/],
  ["plan", /^\/text$/],
  ["tool-call-progress", /^\/(input|output)_text$/],
]);

/**
 * Returns the name of a log: the run's id, or `@` and the session's id for a session's own log. `%`, spaces and a
 * leading `@` are escaped, so that the names of two logs, and the keys of two activities, always differ.
 * @param {LogRef} of
 */
export function logOf({ runId, sessionId }) {
  return runId ? escapeId(runId).replace(/^@/, "%40") : `@${escapeId(sessionId ?? "")}`;
}

/**
 * Returns the key of an activity: `<run> <type> <id>`.
 * @param {LogRef & { activityType: string, activityId: string }} activity
 */
export function keyOf(activity) {
  return `${logOf(activity)} ${escapeId(activity.activityType)} ${activity.activityId}`;
}

/** @param {string} id */
function escapeId(id) {
  return id.replace(/[% ]/g, encodeURIComponent);
}

/**
 * Joins the chunks of a text member.
 * @param {unknown} chunks
 * @returns {string}
 */
export function textOf(chunks) {
  if (Array.isArray(chunks)) return chunks.length === 1 ? String(chunks[0]) : chunks.join("");
  return typeof chunks === "string" ? chunks : "";
}

/**
 * Returns a text member after its first `from` UTF-16 code units. The cost depends on the length of the result only:
 * for views that append to a growing text.
 * @param {unknown} chunks
 * @param {number} from
 * @returns {string}
 */
export function textFrom(chunks, from) {
  if (!Array.isArray(chunks)) return textOf(chunks).slice(from);
  let start = lengthOf(chunks);
  /** @type {string[]} */
  const suffix = [];
  for (let at = chunks.length - 1; at >= 0 && start > from; at -= 1) {
    const chunk = String(chunks[at]);
    start -= chunk.length;
    suffix.push(start < from ? chunk.slice(from - start) : chunk);
  }
  return suffix.reverse().join("");
}

/**
 * Returns the length of a text member, in UTF-16 code units.
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
  /** The sorted keys; `undefined` while they must be sorted again. @type {string[] | undefined} */
  #order = [];
  /** @type {Set<Listener>} */
  #listeners = new Set();
  #depth = 0;
  #changes = noChanges();

  /** The number of activities. */
  get size() {
    return this.#activities.size;
  }

  /** @param {string} key @returns {Activity | undefined} */
  get(key) {
    return this.#activities.get(key);
  }

  /**
   * Returns the activities in order: runs by their first frame, and within a run by `opened`.
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

  /** The states of all logs in this store, by their first frame. @returns {Run[]} */
  runs() {
    return [...this.#logs.values()].map((log) => log.run);
  }

  /**
   * The state of one log.
   * @param {string} runId
   * @returns {Run | undefined} `undefined` before its first frame.
   */
  run(runId) {
    return this.#logs.get(logOf({ runId }))?.run;
  }

  /**
   * Calls the listener with every change, once per batch. A view collects the keys and draws once per animation frame.
   * @param {Listener} listener
   * @returns {() => void} Unsubscribes.
   */
  subscribe(listener) {
    // A wrapper per call, so that one function can subscribe twice.
    const wrapped = /** @type {Listener} */ ((changes) => listener(changes));
    this.#listeners.add(wrapped);
    return () => void this.#listeners.delete(wrapped);
  }

  /**
   * Applies the next frame.
   * @param {Frame} frame
   * @returns {Fault | undefined} Why the frame did not apply. Nothing changed then; the caller must request a snapshot.
   */
  take(frame) {
    return this.batch(() => {
      const log = this.#log(frame);
      switch (frame.frame) {
        case "ActivitySnapshot": return this.#snapshot(log, frame);
        case "ActivityDelta": return this.#delta(log, frame);
        case "Hydrated": return this.#updateRun(log, { isHydrated: true, sequence: Math.max(log.run.sequence, frame.sequence) });
        case "End": return this.#updateRun(log, { ended: frame.status });
        case "Reset": return this.#forget(log);
        // Events change no activity, and the connection handles an error.
        default: return undefined;
      }
    });
  }

  /**
   * Replaces a run by the result of `GET /v1/runs/{id}/activities`, for now or for a past sequence. An equal activity
   * stays the same object.
   * @param {string} runId Empty for a session's own log.
   * @param {(Omit<Activity, "runId"> & { runId?: string })[]} activities
   * @param {number} sequence
   * @param {string} [sessionId] The session whose own log it is.
   */
  load(runId, activities, sequence, sessionId) {
    this.batch(() => {
      const log = this.#log({ runId, sessionId });
      const of = runId ? { runId } : { runId, sessionId };
      const removed = new Set(log.keys);
      for (const loaded of activities) {
        const activity = { ...loaded, ...of };
        const key = keyOf(activity);
        removed.delete(key);
        if (!equal(this.#activities.get(key), activity)) this.#set(log, key, activity);
      }
      this.#remove(log, removed);
      log.run = { ...of, sequence, isHydrated: true };
      this.#changes.runs.add(logOf(log.run));
    });
  }

  /** Removes a run, or a session's own log (an empty `runId`). @param {string} runId @param {string} [sessionId] */
  forget(runId, sessionId) {
    this.batch(() => {
      const name = logOf({ runId, sessionId });
      const log = this.#logs.get(name);
      if (!log) return;
      this.#forget(log);
      this.#logs.delete(name);
    });
  }

  /** Removes everything. */
  clear() {
    this.batch(() => {
      for (const [name, log] of this.#logs) {
        this.#forget(log);
        this.#logs.delete(name);
      }
    });
  }

  /**
   * Notifies listeners once of all changes that `work` makes.
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
      if (this.#depth === 0) this.#notify();
    }
  }

  #notify() {
    const changes = this.#changes;
    if (changes.keys.size === 0 && changes.runs.size === 0) return;
    this.#changes = noChanges();
    for (const listener of [...this.#listeners]) {
      if (!this.#listeners.has(listener)) continue;
      try {
        listener(changes);
      } catch (error) {
        // A failing listener must not stop the other listeners or the connection.
        queueMicrotask(() => { throw error; });
      }
    }
  }

  /** @param {LogRef} of */
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
    const { activityType, activityId, surface, agentId, opened, sequence, openedAt, updatedAt, endedAt, sourceOpenedAt, sourceEndedAt, content } = frame;
    const { runId, sessionId } = log.run;
    const times = { ...(openedAt && { openedAt }), ...(updatedAt && { updatedAt }), ...(endedAt && { endedAt }), ...(sourceOpenedAt && { sourceOpenedAt }), ...(sourceEndedAt && { sourceEndedAt }) };
    const activity = { runId, ...(sessionId && { sessionId }), activityType, activityId, surface, ...(agentId && { agentId }), opened, sequence, ...times, content };
    this.#set(log, keyOf(activity), activity);
    return this.#advance(log, frame);
  }

  /**
   * @param {Log} log
   * @param {import("./types.js").Delta} frame
   * @returns {Fault | undefined}
   */
  #delta(log, frame) {
    const key = keyOf({ ...log.run, activityType: frame.activityType, activityId: frame.activityId });
    const current = this.#activities.get(key);
    if (!current) return { key, sequence: frame.sequence, why: "the activity does not exist in this store" };
    // An envelope changes an activity once, so a snapshot already contains this change.
    if (frame.sequence <= current.sequence) return undefined;
    const texts = TEXT_POINTERS.get(frame.activityType);
    try {
      const content = apply(current.content, frame.patch, texts && ((pointer) => texts.test(pointer)));
      if (typeof content !== "object" || content === null || Array.isArray(content)) return { key, sequence: frame.sequence, why: "the changed content is not an object" };
      this.#set(log, key, withTimes({ ...current, sequence: frame.sequence, content }, frame));
    } catch (error) {
      if (!(error instanceof PatchError)) throw error;
      return { key, sequence: frame.sequence, why: error.message };
    }
    return this.#advance(log, frame);
  }

  /**
   * Advances the log. A live frame after an end means that another attempt has begun.
   * @param {Log} log
   * @param {import("./types.js").LogRef} frame
   */
  #advance(log, frame) {
    log.run = { ...log.run, sequence: Math.max(log.run.sequence, frame.sequence) };
    if (frame.prev !== undefined && log.run.ended !== undefined) this.#updateRun(log, { ended: undefined });
    return undefined;
  }

  /** @param {Log} log @param {Partial<Run>} to */
  #updateRun(log, to) {
    log.run = { ...log.run, ...to };
    this.#changes.runs.add(logOf(log.run));
    return undefined;
  }

  /** @param {Log} log @param {string} key @param {Activity} activity */
  #set(log, key, activity) {
    const current = this.#activities.get(key);
    this.#activities.set(key, activity);
    log.keys.add(key);
    this.#changes.keys.add(key);
    if (current?.opened === activity.opened || !this.#order) return;
    const last = this.#order.at(-1);
    if (!current && (last === undefined || this.#compare(last, key) < 0)) this.#order.push(key);
    else this.#order = undefined;
  }

  /** @param {Log} log */
  #forget(log) {
    this.#remove(log, new Set(log.keys));
    return this.#updateRun(log, { sequence: 0, isHydrated: false, ended: undefined });
  }

  /** @param {Log} log @param {Set<string>} keys */
  #remove(log, keys) {
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
    const [first, second] = [this.#activities.get(a), this.#activities.get(b)];
    if (!first || !second) return 0;
    return this.#rank(first) - this.#rank(second) || first.opened - second.opened || (a < b ? -1 : 1);
  }

  /** @param {Activity} activity */
  #rank(activity) {
    return this.#logs.get(logOf(activity))?.rank ?? 0;
  }
}

/**
 * Sets the times of a change: `at` is its time. `ended` tells whether it ends the activity (true) or reopens it
 * (false).
 * @param {Activity} activity
 * @param {import("./types.js").Delta} change
 * @returns {Activity}
 */
function withTimes(activity, { at, ended, sourceOpenedAt, sourceEndedAt }) {
  if (at) activity.updatedAt = at;
  if (at && ended) activity.endedAt = at;
  if (ended === false) {
    delete activity.endedAt;
    delete activity.sourceEndedAt;
  }
  if (sourceOpenedAt) activity.sourceOpenedAt = sourceOpenedAt;
  if (sourceEndedAt) activity.sourceEndedAt = sourceEndedAt;
  return activity;
}

/** @returns {Changes} */
function noChanges() {
  return { keys: new Set(), runs: new Set(), reset: false };
}

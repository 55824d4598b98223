/**
 * The conversation as rows: parts of messages, process, decisions and boundaries, in the order in which they opened.
 *
 * It reads activities and nothing else; no element is known here.
 */

import { keyOf } from "./base.js";
import { isProcess, isRunning } from "./inline-process.js";
import { isLiveRun } from "./runtime-status.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("../client/store.js").Store} Store */

/** Steps of one process row. What is longer goes on in the next row, so that no row is too long to be drawn. */
const STEPS_MAX = 50;

/**
 * @typedef {"part" | "process" | "action" | "boundary" | "mention" | "run"} Kind
 *
 * @typedef {object} Item One thing in its place.
 * @property {string} id
 * @property {string} key Its activity.
 * @property {string} [partId] Of a message: which part.
 * @property {number} opened
 * @property {Kind} kind
 *
 * @typedef {object} Row
 * @property {string} id
 * @property {Kind} kind
 * @property {string} runId
 * @property {string} key Its activity, or the first of them.
 * @property {string[]} keys Its activities.
 * @property {string} [partId]
 * @property {boolean} isLast Whether it is the last of its run.
 * @property {boolean} isHeaded Whether somebody else spoke before it.
 */

/** Types that stand in the conversation though they are no message, and how. @type {Map<string, Kind>} */
const TYPES = new Map([["action", "action"], ["compaction", "boundary"], ["handoff", "boundary"], ["agent", "mention"], ["artifact", "mention"], ["run", "run"]]);

/**
 * How an activity stands in the conversation, if it does.
 * @param {Activity} activity
 * @returns {Kind | undefined}
 */
export function kindOf(activity) {
  if (activity.activityType === "message") return activity.surface === "conversation" ? "part" : undefined;
  return TYPES.get(activity.activityType) ?? (isProcess(activity) ? "process" : undefined);
}

export class Flow {
  /** @param {Store} store */
  constructor(store) {
    this.#store = store;
  }

  #store;
  /** Items of each run, sorted. @type {Map<string, Item[]>} */
  #runs = new Map();
  /** How many items an activity has. @type {Map<string, number>} */
  #counts = new Map();
  /** Rows of each run. @type {Map<string, Row[]>} */
  #rows = new Map();
  /** Whose each run is, as far as that was known when its items were sorted out. @type {Map<string, string | undefined>} */
  #owners = new Map();
  /** The row in which an activity stands, by its key. @type {Map<string, string[]>} */
  #places = new Map();

  /** Reads everything anew. */
  reset() {
    this.#runs.clear();
    this.#counts.clear();
    this.#rows.clear();
    this.#places.clear();
    this.#owners.clear();
    for (const activity of this.#store.sorted(({ activityType }) => activityType === "run")) this.#owners.set(activity.runId, activity.content.agentId);
    for (const activity of this.#store.sorted((one) => kindOf(one) !== undefined)) this.#add(activity);
    for (const [runId, items] of this.#runs) {
      items.sort(order);
      this.#regroup(runId);
    }
  }

  /**
   * Takes what changed.
   * @param {Set<string>} changed
   * @returns {boolean} Whether there are other rows than before.
   */
  take(changed) {
    // Whose a run is decides what in it is a teammate's: it may become known after that.
    if ([...changed].some((key) => this.#isOtherOwner(key))) {
      this.reset();
      return true;
    }
    /** @type {Set<string>} */
    const touched = new Set();
    for (const key of changed) {
      const activity = this.#store.get(key);
      if (activity && this.#add(activity)) touched.add(activity.runId);
    }
    for (const runId of touched) {
      this.#runs.get(runId)?.sort(order);
      this.#regroup(runId);
    }
    return touched.size > 0;
  }

  /**
   * All rows, run by run.
   * @param {string[]} own The conversation's runs, in the order in which they began. Of others, a child session's, only what
   * asks for a decision is shown: whoever waits for it waits here, too.
   */
  rows(own) {
    const isSeveral = own.filter((run) => this.#rows.has(run)).length > 1;
    const mine = own.flatMap((run) => (this.#rows.get(run) ?? []).filter((row) => isSeveral || row.kind !== "run"));
    const others = [...this.#rows].filter(([run]) => !own.includes(run)).flatMap(([, rows]) => rows.filter((row) => row.kind === "action"));
    return [...mine, ...others];
  }

  /**
   * The rows that an activity's change concerns.
   * @param {string} key
   * @returns {string[]}
   */
  rowsOf(key) {
    const activity = this.#store.get(key);
    const own = this.#places.get(key) ?? [];
    // A call says that it waits, and stops saying so, with the decision about it.
    if (activity?.activityType === "action" && activity.content.toolCallId !== undefined) return [...own, ...(this.#places.get(keyOf({ ...activity, activityType: "tool-call-progress", activityId: String(activity.content.toolCallId) })) ?? [])];
    // A run's own change may open or fold its last row.
    if (activity?.activityType !== "run") return own;
    const last = this.#rows.get(activity.runId)?.at(-1);
    return last ? [...own, last.id] : own;
  }

  /**
   * A row by its id.
   * @param {string} id
   * @returns {Row | undefined}
   */
  row(id) {
    for (const rows of this.#rows.values()) {
      const found = rows.find((row) => row.id === id);
      if (found) return found;
    }
    return undefined;
  }

  /**
   * Whether a process row is still worked on.
   * @param {Row} row
   */
  isOpen(row) {
    const activities = row.keys.flatMap((key) => this.#store.get(key) ?? []);
    if (activities.some(isRunning)) return true;
    const run = this.#store.get(keyOf({ runId: row.runId, activityType: "run", activityId: row.runId }));
    return row.isLast && run !== undefined && isLiveRun(run);
  }

  /**
   * @param {Activity} activity
   * @returns {boolean} Whether it has more items than before.
   */
  #add(activity) {
    const kind = this.#kind(activity);
    if (!kind) return false;
    const key = keyOf(activity);
    const known = this.#counts.get(key) ?? 0;
    const items = itemsOf(activity, key, kind).slice(known);
    if (items.length === 0) return false;
    this.#counts.set(key, known + items.length);
    const run = this.#runs.get(activity.runId);
    if (run) run.push(...items);
    else this.#runs.set(activity.runId, items);
    return true;
  }

  /**
   * What a teammate does is told where teammates are; what it asks for is asked here.
   * @param {Activity} activity
   */
  #kind(activity) {
    const kind = kindOf(activity);
    const own = this.#owners.get(activity.runId);
    if (own === undefined) return kind;
    if (activity.activityType === "agent") return activity.activityId === own ? undefined : kind;
    return kind === "process" && activity.agentId && activity.agentId !== own ? undefined : kind;
  }

  /** @param {string} key */
  #isOtherOwner(key) {
    const activity = this.#store.get(key);
    return activity?.activityType === "run" && activity.content.agentId !== this.#owners.get(activity.runId);
  }

  /** @param {string} runId */
  #regroup(runId) {
    /** @type {Row[]} */
    const rows = [];
    let speaker = "";
    for (const { id, key, partId, kind } of this.#runs.get(runId) ?? []) {
      const last = rows.at(-1);
      if (kind === "process" && last?.kind === "process" && last.keys.length < STEPS_MAX) {
        last.keys.push(key);
        this.#places.set(key, [last.id]);
        continue;
      }
      const now = kind === "part" ? key : kind === "process" ? speaker : "";
      rows.push({ id, kind, runId, key, keys: [key], partId, isLast: false, isHeaded: kind === "part" && now !== speaker });
      speaker = now;
      const places = this.#places.get(key);
      if (!places) this.#places.set(key, [id]);
      else if (!places.includes(id)) places.push(id);
    }
    const last = rows.at(-1);
    if (last) last.isLast = true;
    this.#rows.set(runId, rows);
  }
}

/**
 * @param {Item} a
 * @param {Item} b
 */
const order = (a, b) => a.opened - b.opened || (a.kind === "run" ? -1 : b.kind === "run" ? 1 : 0);

/**
 * @param {Activity} activity
 * @param {string} key
 * @param {Kind} kind
 * @returns {Item[]}
 */
function itemsOf(activity, key, kind) {
  if (kind !== "part") return [{ id: key, key, opened: activity.opened, kind }];
  const parts = Array.isArray(activity.content.parts) ? activity.content.parts : [];
  return parts.map((part) => ({ id: `${key} ${part.partId}`, key, partId: part.partId, opened: part.opened, kind }));
}

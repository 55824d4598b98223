/**
 * The row model of the conversation: parts of messages, process, decisions and boundaries, by `opened`.
 *
 * It depends on activities only, not on elements.
 */

import { keyOf } from "./base.js";
import { isMention, isProcess, isRunning } from "./inline-process.js";
import { isLiveRun } from "./live-run.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("../client/store.js").Store} Store */

/** Maximum steps of a process row. Further steps go into the next row, so that no row becomes too long to draw. */
const STEPS_MAX = 50;

/**
 * @typedef {"part" | "process" | "action" | "boundary" | "run"} Kind
 *
 * @typedef {object} Item One entry of a run.
 * @property {string} id
 * @property {string} key The activity's key.
 * @property {string} [partId] The part of a message.
 * @property {number} opened
 * @property {Kind} kind
 *
 * @typedef {object} Row
 * @property {string} id
 * @property {Kind} kind
 * @property {string} runId
 * @property {string} key The key of its first activity.
 * @property {string[]} keys The keys of its activities.
 * @property {string} [partId]
 * @property {boolean} isLast Whether it is the run's last row.
 * @property {boolean} isHeaded Whether it needs the author's name: the row before has another author.
 */

/** Kinds of the activity types that appear in the conversation besides messages and process. @type {Map<string, Kind>} */
const TYPES = new Map([["action", "action"], ["compaction", "boundary"], ["handoff", "boundary"], ["run", "run"]]);

/**
 * Returns the kind of row of an activity; `undefined` if it is not part of the conversation.
 * @param {Activity} activity
 * @returns {Kind | undefined}
 */
export function kindOf(activity) {
  if (activity.activityType === "message") return activity.surface === "conversation" ? "part" : undefined;
  return TYPES.get(activity.activityType) ?? (isProcess(activity) || isMention(activity) ? "process" : undefined);
}

export class RowModel {
  /** @param {Store} store */
  constructor(store) {
    this.#store = store;
  }

  #store;
  /** Sorted items by run. @type {Map<string, Item[]>} */
  #runs = new Map();
  /** The number of items by activity. @type {Map<string, number>} */
  #counts = new Map();
  /** Rows by run. @type {Map<string, Row[]>} */
  #rows = new Map();
  /** The agent of each run, as known when its items were added. @type {Map<string, string | undefined>} */
  #agents = new Map();
  /** The row ids of each activity, by key. @type {Map<string, string[]>} */
  #rowIdsByKey = new Map();

  /** Rebuilds everything from the store. */
  reset() {
    this.#runs.clear();
    this.#counts.clear();
    this.#rows.clear();
    this.#rowIdsByKey.clear();
    this.#agents.clear();
    for (const activity of this.#store.sorted(({ activityType }) => activityType === "run")) this.#agents.set(activity.runId, activity.content.agentId);
    for (const activity of this.#store.sorted((one) => kindOf(one) !== undefined)) this.#add(activity);
    for (const [runId, items] of this.#runs) {
      items.sort(compareItems);
      this.#rebuildRows(runId);
    }
  }

  /**
   * Applies changed activities.
   * @param {Set<string>} changed
   * @returns {boolean} Whether the rows have changed.
   */
  applyChanges(changed) {
    // The run's agent decides which activities belong to teammates, and may become known later.
    if ([...changed].some((key) => this.#hasOtherAgent(key))) {
      this.reset();
      return true;
    }
    /** @type {Set<string>} */
    const changedRuns = new Set();
    for (const key of changed) {
      const activity = this.#store.get(key);
      if (activity && this.#add(activity)) changedRuns.add(activity.runId);
    }
    for (const runId of changedRuns) {
      this.#runs.get(runId)?.sort(compareItems);
      this.#rebuildRows(runId);
    }
    return changedRuns.size > 0;
  }

  /**
   * Returns all rows, run by run.
   * @param {string[]} ownRuns The conversation's runs, by start time. Of other runs (of child sessions) only decisions are
   * shown, since the parent waits for them.
   */
  rows(ownRuns) {
    const isSeveral = ownRuns.filter((run) => this.#rows.has(run)).length > 1;
    const mine = ownRuns.flatMap((run) => (this.#rows.get(run) ?? []).filter((row) => isSeveral || row.kind !== "run"));
    const others = [...this.#rows].filter(([run]) => !ownRuns.includes(run)).flatMap(([, rows]) => rows.filter((row) => row.kind === "action"));
    return [...mine, ...others];
  }

  /**
   * Returns the ids of the rows that an activity's change affects.
   * @param {string} key
   * @returns {string[]}
   */
  rowsOf(key) {
    const activity = this.#store.get(key);
    const rowIds = this.#rowIdsByKey.get(key) ?? [];
    // A call shows whether it waits for its decision.
    if (activity?.activityType === "action" && activity.content.toolCallId !== undefined) return [...rowIds, ...(this.#rowIdsByKey.get(keyOf({ ...activity, activityType: "tool-call-progress", activityId: String(activity.content.toolCallId) })) ?? [])];
    // A change of the run may open or collapse its last row.
    if (activity?.activityType !== "run") return rowIds;
    const last = this.#rows.get(activity.runId)?.at(-1);
    return last ? [...rowIds, last.id] : rowIds;
  }

  /**
   * Returns a row by its id.
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
   * Whether work on a process row continues.
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
   * @returns {boolean} Whether it added items.
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
   * Returns the kind of row. A teammate's process appears in its transcript only; its decisions appear here.
   * @param {Activity} activity
   */
  #kind(activity) {
    const kind = kindOf(activity);
    const runAgent = this.#agents.get(activity.runId);
    if (runAgent === undefined) return kind;
    if (activity.activityType === "agent") return activity.activityId === runAgent ? undefined : kind;
    return kind === "process" && !isMention(activity) && activity.agentId && activity.agentId !== runAgent ? undefined : kind;
  }

  /** @param {string} key */
  #hasOtherAgent(key) {
    const activity = this.#store.get(key);
    return activity?.activityType === "run" && activity.content.agentId !== this.#agents.get(activity.runId);
  }

  /** @param {string} runId */
  #rebuildRows(runId) {
    /** @type {Row[]} */
    const rows = [];
    let speaker = "";
    for (const { id, key, partId, kind } of this.#runs.get(runId) ?? []) {
      const last = rows.at(-1);
      if (kind === "process" && last?.kind === "process" && last.keys.length < STEPS_MAX) {
        last.keys.push(key);
        this.#rowIdsByKey.set(key, [last.id]);
        continue;
      }
      const now = kind === "part" ? key : kind === "process" ? speaker : "";
      rows.push({ id, kind, runId, key, keys: [key], partId, isLast: false, isHeaded: kind === "part" && now !== speaker });
      speaker = now;
      const rowIds = this.#rowIdsByKey.get(key);
      if (!rowIds) this.#rowIdsByKey.set(key, [id]);
      else if (!rowIds.includes(id)) rowIds.push(id);
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
const compareItems = (a, b) => a.opened - b.opened || (a.kind === "run" ? -1 : b.kind === "run" ? 1 : 0);

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

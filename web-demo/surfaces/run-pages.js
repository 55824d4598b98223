/**
 * The runs that match a filter, in one order: only those are read that a person scrolls to, from any place on.
 *
 * Rows keep their places while they change, so that a click hits the intended row. Runs that begin meanwhile are
 * counted, and listed on request.
 */

import { Stale } from "../client/hydration.js";
import { failureText } from "../session-list.js";
import { parseTime } from "../ui/format.js";
import { tokensOfRun } from "./run-row.js";

/** @typedef {import("../client/hydration.js").RunLine} RunLine */
/**
 * A filter and an order. `isInTexts`: the filter has words, for which the server has no page but the next one.
 * @typedef {{ filter: string, sort: string, isInTexts?: boolean }} RunQuery
 */

/** Runs of the first page, which appears at once, and of the others. */
const FIRST_RUNS = 100;
const PAGE_RUNS = 1000;

/** What runs are sorted by. @type {Record<string, (run: RunLine) => number | undefined>} */
const VALUES = { started: ({ startedAt }) => parseTime(startedAt), ended: ({ endedAt }) => parseTime(endedAt), duration: ({ durationMs }) => durationMs, tokens: tokensOfRun, cost: ({ usage }) => usage?.costUsd };

export class RunPages {
  /**
   * @param {import("../client/hydration.js").Hydration} hydration
   * @param {RunQuery} query
   * @param {() => void} changed
   * @param {number} [total] How many runs match, where that is known.
   */
  constructor(hydration, query, changed, total = 0) {
    this.#hydration = hydration;
    this.query = query;
    this.#changed = changed;
    this.rows.length = total;
  }

  #hydration;
  #changed;
  #abort = new AbortController();
  /** All matching runs in order; those that are not read yet are absent. @type {(RunLine | undefined)[]} */
  rows = [];
  /** The index of each run that is read. @type {Map<string, number>} */
  #places = new Map();
  /** The cursors of the pages that begin at an index. @type {Map<number, string>} */
  #cursors = new Map();
  /** How many rows are read without a gap from the first one on. */
  #prefix = 0;
  /** How many values of each facet match. @type {Record<string, Record<string, number>>} */
  facets = {};
  /** Whether a page has arrived. */
  isRead = false;
  isReading = false;
  /** Why the last request failed; empty if it did not. */
  problem = "";
  /** Matching runs that are not listed. @type {Map<string, RunLine>} */
  #news = new Map();
  /** The rows that a person sees, or is about to: from an index up to another one. */
  #needed = [0, FIRST_RUNS];

  close() {
    this.#abort.abort();
  }

  /** How many runs match. */
  get total() {
    return this.rows.length;
  }

  /** How many runs are read. */
  get loaded() {
    return this.#places.size;
  }

  /** How many runs match that are not listed. */
  get news() {
    return this.#news.size;
  }

  /** The runs that are read. @returns {RunLine[]} */
  get read() {
    return [...this.#places.values()].map((at) => this.rows[at]).filter((run) => run !== undefined);
  }

  /** @param {string} id @returns {RunLine | undefined} */
  get(id) {
    return this.rows[this.#places.get(id) ?? -1];
  }

  /** @param {string} id @returns {number} Its index; -1 if it is not listed. */
  indexOf(id) {
    return this.#places.get(id) ?? -1;
  }

  /** Reads what is absent of these rows. @param {number} from @param {number} to */
  async need(from, to) {
    this.#needed = [Math.max(0, from), to];
    if (this.isReading || this.problem) return;
    let gap = this.#findGap();
    if (!gap) return;
    this.isReading = true;
    this.#changed();
    try {
      // What is needed may be another part by now.
      for (; gap; gap = this.#findGap()) this.#fill(gap, await this.#readPage(gap.to - gap.from, gap));
    } catch (error) {
      if (this.#abort.signal.aborted || error instanceof Stale) return;
      this.problem = failureText(error);
    }
    this.isReading = false;
    this.#changed();
  }

  /** Tries again after a failure. */
  retry() {
    this.problem = "";
    void this.need(this.#needed[0], this.#needed[1]);
  }

  /** The first rows to read of those that are needed, as far as one page reaches. */
  #findGap() {
    if (!this.isRead) {
      // Where the number of runs is known, the first page may be any.
      const from = Math.min(this.#needed[0], Math.max(0, this.total - 1));
      return { from, to: from + FIRST_RUNS };
    }
    const end = Math.min(this.#needed[1], this.total);
    // Only the page after those before is there to read.
    let from = this.query.isInTexts ? this.#prefix : this.#needed[0];
    while (from < end && this.rows[from] !== undefined) from += 1;
    if (from >= end) return undefined;
    let to = from + 1;
    while (to < from + PAGE_RUNS && this.rows[to] === undefined) to += 1;
    return { from, to };
  }

  /**
   * @param {number} limit
   * @param {{ from: number }} [start] The index of its first run.
   */
  #readPage(limit, { from } = { from: 0 }) {
    const { filter, sort } = this.query;
    const cursor = this.#cursors.get(from);
    return this.#hydration.runs({ filter: filter || undefined, sort, limit, cursor, offset: cursor === undefined && from > 0 ? from : undefined, signal: this.#abort.signal });
  }

  /**
   * Lists the runs of a page in a gap.
   * @param {{ from: number, to: number }} gap
   * @param {import("../client/hydration.js").Runs} page
   */
  #fill({ from, to }, { runs, nextCursor, total = 0, facets }) {
    let at = from;
    for (const run of runs) {
      // A run that changed its place between two pages is in both.
      if (this.#places.has(run.runId)) continue;
      this.rows[at] = run;
      this.#places.set(run.runId, at);
      at += 1;
    }
    const hasMore = this.rows[to] !== undefined;
    if (nextCursor !== null) {
      this.#cursors.set(at, nextCursor);
      // Runs between these and the ones behind them are gone, or listed elsewhere.
      if (hasMore && at === from) this.#takeOut(from, to - from);
      this.rows.length = Math.max(total, this.rows.length, at + 1);
    } else if (!hasMore) this.rows.length = at;
    if (facets) this.facets = facets;
    this.isRead = true;
    while (this.#prefix < this.rows.length && this.rows[this.#prefix] !== undefined) this.#prefix += 1;
    this.#changed();
  }

  /** Takes the present state of a matching run. @param {RunLine} run */
  put(run) {
    const at = this.#places.get(run.runId);
    if (at !== undefined) this.rows[at] = run;
    // A run behind those that are read comes with its page.
    else if (this.isRead && this.#isBefore(run)) this.#news.set(run.runId, run);
    else return;
    this.#changed();
  }

  /** Whether a run that is not read stands before the last of the first ones that are. @param {RunLine} run */
  #isBefore(run) {
    const last = this.rows[this.#prefix - 1];
    if (this.#prefix === this.total || last === undefined) return this.#prefix === this.total;
    const isDescending = this.query.sort.startsWith("-");
    const [value, than] = [run, last].map((one) => VALUES[this.query.sort.replace("-", "")]?.(one) ?? NaN);
    // Runs without a value come last.
    return Number.isNaN(than) ? !Number.isNaN(value) : isDescending ? value > than : value < than;
  }

  /** Reads the first runs again, where the server does not push their changes. */
  async refresh() {
    try {
      const { runs, facets } = await this.#readPage(FIRST_RUNS);
      if (facets) this.facets = facets;
      for (const run of runs) this.put(run);
    } catch {
      // The next change of the lists, or a press of Retry, asks again.
    }
  }

  /** Takes out a run that matches no longer. @param {string} id */
  remove(id) {
    this.#news.delete(id);
    const at = this.#places.get(id);
    if (at !== undefined) {
      this.#places.delete(id);
      this.#takeOut(at, 1);
    }
    this.#changed();
  }

  /** Takes out rows; those behind them move up. @param {number} from @param {number} count */
  #takeOut(from, count) {
    this.rows.splice(from, count);
    for (const [id, at] of this.#places) if (at > from) this.#places.set(id, at - count);
    // A cursor within what is gone leads to what came behind it.
    this.#cursors = new Map([...this.#cursors].map(([at, cursor]) => [at > from ? Math.max(from, at - count) : at, cursor]));
    if (this.#prefix > from) this.#prefix -= count;
  }
}

/**
 * The runs of a filter by status, agent, source or owner: each group is a list of its own, below its heading.
 *
 * The server counts the groups with its facets. A group is read as far as a person scrolls into it. A run keeps its
 * place, also when it belongs into another group by now: that is counted, and done on request.
 */

import { DEFAULT_AGENT, nameOfGroup } from "./run-columns.js";
import { RunPages } from "./run-pages.js";

/** @typedef {import("../client/hydration.js").RunLine} RunLine */
/** @typedef {import("./run-columns.js").GroupName} GroupName */
/** @typedef {import("./run-filter.js").Term} Term */

/** The heading of a group among the rows. @typedef {{ group: string, label: string, count: number, isOpen: boolean }} GroupHead */
/** A row: a run, the heading of a group, or nothing yet. @typedef {RunLine | GroupHead | undefined} RunRow */
/** A group with its runs. @typedef {{ value: string, pages: RunPages, isOpen: boolean }} Group */

/** The order of statuses: first what needs a person. */
const STATUSES = ["waiting", "running", "accepted", "failed", "interrupted", "cancelled", "completed", "unknown"];

/** @param {RunRow} row @returns {row is GroupHead} */
export const isHead = (row) => row !== undefined && "group" in row;

/** @param {RunRow} row @returns {RunLine | undefined} */
export const runOf = (row) => (row === undefined || isHead(row) ? undefined : row);

export class RunGroups {
  /**
   * @param {import("../client/hydration.js").Hydration} hydration
   * @param {import("./run-pages.js").RunQuery & { terms: Term[], rest: (others: Term[]) => string }} query
   * `terms`: those of the filter. `rest`: makes a filter of other terms with its words and range of time.
   * @param {GroupName} name
   * @param {() => void} changed
   */
  constructor(hydration, query, name, changed) {
    this.#hydration = hydration;
    this.query = query;
    this.#name = name;
    this.#changed = () => {
      this.#rows = undefined;
      changed();
    };
    // Counts the groups.
    this.#all = new RunPages(hydration, query, () => this.#makeGroups());
  }

  #hydration;
  #name;
  #changed;
  #all;
  /** @type {Group[]} */
  #groups = [];
  /** The rows, made when they are asked for. @type {RunRow[] | undefined} */
  #rows;
  /** Runs that belong into another group than that in which they are listed, or into none that is. @type {Set<string>} */
  #moved = new Set();
  isRead = false;

  close() {
    this.#all.close();
    for (const { pages } of this.#groups) pages.close();
  }

  get problem() {
    return this.#all.problem || (this.#groups.find(({ pages }) => pages.problem)?.pages.problem ?? "");
  }

  get facets() {
    return this.#all.facets;
  }

  set facets(facets) {
    this.#all.facets = facets;
  }

  /** How many runs match. */
  get total() {
    return this.#groups.reduce((sum, { pages }) => sum + pages.total, 0);
  }

  get loaded() {
    return this.#groups.reduce((sum, { pages }) => sum + pages.loaded, 0);
  }

  get news() {
    return this.#moved.size;
  }

  get read() {
    return this.#groups.flatMap(({ pages }) => pages.read);
  }

  /** The headings, and the runs of the groups that are open. @returns {RunRow[]} */
  get rows() {
    if (this.#rows) return this.#rows;
    /** @type {RunRow[]} */
    const rows = [];
    for (const { value, pages, isOpen } of this.#groups) {
      rows.push({ group: value, label: nameOfGroup(this.#name, value), count: pages.total, isOpen });
      if (!isOpen) continue;
      for (const run of pages.rows) rows.push(run);
    }
    return (this.#rows = rows);
  }

  #makeGroups() {
    if (this.#all.isRead && !this.isRead) {
      this.isRead = true;
      const { terms, rest, sort, isInTexts } = this.query;
      const own = terms.filter(({ facet }) => facet === this.#name);
      const others = terms.filter(({ facet }) => facet !== this.#name);
      // A facet counts without its own terms.
      const counts = Object.entries(this.#all.facets[this.#name] ?? {}).filter(([value]) => accepts(own, value));
      const places = (/** @type {string} */ value) => (this.#name === "status" ? STATUSES.indexOf(value) : 0);
      counts.sort(([a, many], [b, more]) => places(a) - places(b) || more - many || (a < b ? -1 : 1));
      // What no value counts has none: no source that is known, or no owner.
      const without = this.#all.total - counts.reduce((sum, [, count]) => sum + count, 0);
      if (without > 0) counts.push(["", without]);
      this.#groups = counts.map(([value, count]) => {
        // A comma would part it into alternatives. A term with a space gets its quotation marks by itself.
        const pattern = value.includes(",") && !/[\s:]/.test(value) ? `"${value}"` : value;
        const filter = rest([...others, value === "" ? { facet: this.#name, pattern: "*", isExcluded: true } : { facet: this.#name, pattern, isExcluded: false }]);
        return { value, isOpen: true, pages: new RunPages(this.#hydration, { filter, sort, isInTexts }, () => this.#changed(), count) };
      });
    }
    this.#changed();
  }

  /** Reads what is absent of these rows. @param {number} from @param {number} to */
  async need(from, to) {
    if (!this.isRead) await this.#all.need(0, 1);
    let at = 0;
    for (const { pages, isOpen } of this.#groups) {
      // Below the heading.
      at += 1;
      if (!isOpen) continue;
      if (from < at + pages.total && to > at) void pages.need(from - at, Math.min(to - at, pages.total));
      at += pages.total;
    }
  }

  retry() {
    for (const pages of [this.#all, ...this.#groups.map((one) => one.pages)]) if (pages.problem) pages.retry();
  }

  /** Opens or closes a group. @param {string} value */
  toggle(value) {
    for (const group of this.#groups) if (group.value === value) group.isOpen = !group.isOpen;
    this.#changed();
  }

  /** The group that lists a run. @param {string} id */
  #groupOf(id) {
    return this.#groups.find(({ pages }) => pages.indexOf(id) >= 0);
  }

  /** @param {string} id @returns {RunLine | undefined} */
  get(id) {
    return this.#groupOf(id)?.pages.get(id);
  }

  /** @param {string} id @returns {number} Its index among the rows; -1 if it is not there. */
  indexOf(id) {
    return this.rows.findIndex((row) => runOf(row)?.runId === id);
  }

  /** Takes the present state of a matching run. @param {RunLine} run */
  put(run) {
    const group = this.#groupOf(run.runId);
    // A run has its source and its owner from its begin on.
    const value = { status: run.status, agent: run.agentId ?? DEFAULT_AGENT, source: group?.value, owner: group?.value }[this.#name];
    group?.pages.put(run);
    if (group?.value === value && group) this.#moved.delete(run.runId);
    // A run of a group that is not read as far comes with its page.
    else if (group || !this.#groups.some((one) => one.value === value && one.pages.loaded < one.pages.total)) this.#moved.add(run.runId);
    this.#changed();
  }

  /** Takes out a run that matches no longer. @param {string} id */
  remove(id) {
    this.#moved.delete(id);
    this.#groupOf(id)?.pages.remove(id);
  }

  /** Reads the counts again, where the server does not push changes. */
  async refresh() {
    await this.#all.refresh();
    this.#changed();
  }
}

/**
 * Whether terms of one facet take a value, as the server reads them: `*` stands for any characters, and case does not count.
 * @param {Term[]} terms
 * @param {string} value
 */
function accepts(terms, value) {
  const holds = (/** @type {Term} */ { pattern }) => pattern.split(",").some((one) => new RegExp(`^${one.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`, "is").test(value));
  const wanted = terms.filter(({ isExcluded }) => !isExcluded);
  return (wanted.length === 0 || wanted.some(holds)) && !terms.some((term) => term.isExcluded && holds(term));
}

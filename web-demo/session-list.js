/**
 * The lists of sessions and runs, read from the server at an interval.
 *
 * The server filters sessions by status, by pending actions and by words. It has no filter for runs without a session,
 * so the page filters those.
 */

import { Problem } from "./client/http.js";
import { Hydration } from "./client/hydration.js";
import { toText } from "./surfaces/base.js";

/**
 * @typedef {object} Entry A session, or a run without a session.
 * @property {"session" | "run"} kind
 * @property {string} id
 * @property {string} title Empty if the source gave none.
 * @property {string} status
 * @property {string} preview
 * @property {boolean} isStale
 * @property {boolean} isPinned By its source or by the viewer.
 * @property {boolean} isArchived By the viewer.
 * @property {number} pending The number of pending decisions, child sessions included.
 * @property {number} pendingBelow The number of those in child sessions.
 * @property {number} [unread] The runtime's count of unread items.
 * @property {string} lastActivity RFC 3339.
 * @property {string} [parent] The parent session.
 */

/** @typedef {"all" | "running" | "needs" | "failed" | "archived"} FilterName */

/**
 * @typedef {object} Lists
 * @property {Entry[]} all Everything that the page lists, newest first.
 * @property {Entry[]} shown The entries that match the filter.
 * @property {Record<FilterName, number>} counts Entries by filter.
 * @property {boolean} isPartial Whether the server has more entries than `all`: counts are then lower bounds.
 * @property {import("./client/hydration.js").RunLine[]} runs
 */

/** Sessions and runs that the page lists. */
const LISTED_MAX = 100;
/** The interval of reading, in milliseconds. */
const POLL_MS = 2000;

export const LIVE_STATUSES = ["accepted", "running", "waiting", "active"];

/** @type {Record<FilterName, (entry: Entry) => boolean>} */
const FILTERS = {
  all: ({ isArchived }) => !isArchived,
  running: (entry) => isLive(entry) && entry.pending === 0 && !entry.isArchived,
  needs: ({ pending }) => pending > 0,
  failed: ({ status, isArchived }) => status === "failed" && !isArchived,
  archived: ({ isArchived }) => isArchived,
};

/** The marks of the viewer: the server knows none of them. @typedef {"pinned" | "archived"} Mark */

/** @param {Mark} mark @returns {Set<string>} The keys of the entries with the mark. */
function marked(mark) {
  try {
    return new Set(JSON.parse(localStorage.getItem(`proscenium.${mark}`) ?? "[]"));
  } catch {
    return new Set();
  }
}

/**
 * Sets or removes a mark of the viewer.
 * @param {Mark} mark
 * @param {Entry} entry
 */
export function toggleMark(mark, entry) {
  const keys = marked(mark);
  if (!keys.delete(entryKey(entry))) keys.add(entryKey(entry));
  localStorage.setItem(`proscenium.${mark}`, JSON.stringify([...keys]));
}

/** The server's query for each filter. @type {Record<FilterName, { status?: string, needsAction?: boolean }>} */
const QUERIES = { all: {}, running: { status: "accepted,running,waiting" }, needs: { needsAction: true }, failed: { status: "failed" }, archived: {} };

/** @param {{ kind: string, id: string }} entry */
export const entryKey = ({ kind, id }) => `${kind} ${id}`;

/** @param {Entry} entry */
export const isLive = ({ status }) => LIVE_STATUSES.includes(status);

export class SessionList {
  /**
   * @param {import("./client/http.js").Server} server
   * @param {{ changed: (lists: Lists) => void, failed: (error: unknown) => void, isPaused: () => boolean }} events
   */
  constructor(server, events) {
    this.#server = server;
    this.#events = events;
  }

  #server;
  #events;
  #lists = new Hydration();
  /** @type {import("./route.js").Audience} */
  #audience = "user";
  /** @type {FilterName} */
  #filter = "all";
  #words = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {import("./route.js").Audience} audience Reads again for another audience. */
  restart(audience) {
    this.#audience = audience;
    this.#lists = new Hydration({ ...this.#server, audience });
    void this.read();
  }

  /**
   * Sets the filter, and reads again.
   * @param {FilterName} filter
   * @param {string} words Words in title, preview or id; empty for all.
   */
  filter(filter, words) {
    this.#filter = filter;
    this.#words = words.trim();
    void this.read();
  }

  /** Reads the lists now, and then at the interval. */
  async read() {
    clearTimeout(this.#timer);
    const lists = this.#lists;
    const [filter, words] = [this.#filter, this.#words];
    const isCurrent = () => lists === this.#lists && filter === this.#filter && words === this.#words;
    try {
      if (this.#events.isPaused()) return;
      const isFiltered = filter !== "all" || words !== "";
      const [{ sessions, nextCursor }, { runs }, found] = await Promise.all([
        lists.sessions({ limit: LISTED_MAX }), lists.runs({ limit: LISTED_MAX }),
        isFiltered ? lists.sessions({ limit: LISTED_MAX, ...QUERIES[filter], q: words || undefined }) : undefined,
      ]);
      if (!isCurrent()) return;
      const loose = runs.filter((run) => !run.sessionId).map((one) => entryOf("run", one));
      const all = [...sessions.map((one) => entryOf("session", one)), ...loose];
      const shown = found ? [...found.sessions.map((one) => entryOf("session", one)), ...loose.filter((one) => hasWords(one, words))] : all;
      const counts = /** @type {Record<FilterName, number>} */ (Object.fromEntries(Object.entries(FILTERS).map(([name, matches]) => [name, all.filter(matches).length])));
      this.#events.changed({ all, shown: shown.filter(FILTERS[filter]), counts, isPartial: nextCursor !== null, runs });
    } catch (error) {
      if (isCurrent()) this.#events.failed(error);
    } finally {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => void this.read(), POLL_MS);
    }
  }

  /**
   * Finds entries by words, for the palette.
   * @param {string} words
   * @returns {Promise<Entry[]>}
   */
  async find(words) {
    const { sessions } = await this.#lists.sessions({ limit: 20, q: words });
    return sessions.map((one) => entryOf("session", one));
  }

  /** The reads of the current audience. */
  get hydration() {
    return this.#lists;
  }

  get audience() {
    return this.#audience;
  }
}

/**
 * Returns a failure in words, with what to do.
 * @param {unknown} error
 */
export function failureText(error) {
  if (error instanceof Problem && error.status > 0) return `The server answered ${error.status}: ${error.detail}`;
  return "The server is unreachable. Check that it runs.";
}

/**
 * @param {Entry} entry
 * @param {string} words
 */
function hasWords({ id, title, preview }, words) {
  return [id, title, preview].some((text) => text.toLowerCase().includes(words.toLowerCase()));
}

/**
 * @param {"session" | "run"} kind
 * @param {Record<string, any>} summary
 * @returns {Entry}
 */
function entryOf(kind, summary) {
  const pendingBelow = Number(summary.counts?.pendingActionsBelow ?? 0);
  const id = toText(kind === "session" ? summary.sessionId : summary.runId);
  const key = entryKey({ kind, id });
  return {
    kind, id, title: toText(summary.title), status: toText(summary.status) || "unknown", preview: toText(summary.preview),
    isStale: Boolean(summary.stale), isPinned: Boolean(summary.pinned) || marked("pinned").has(key), isArchived: marked("archived").has(key), pending: Math.max(Number(summary.counts?.pendingActions ?? 0), pendingBelow), pendingBelow,
    unread: Number(summary.unread ?? 0) || undefined, lastActivity: toText(summary.lastActivity), parent: kind === "session" && summary.parentSessionId ? toText(summary.parentSessionId) : undefined,
  };
}

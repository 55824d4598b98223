/**
 * The lists of sessions and of pending decisions, which the server pushes, and the runs without a session.
 *
 * The server filters sessions by status, by pending actions and by words. It pushes no runs without a session: the page
 * reads those, often only while one of them is live.
 */

import { connect } from "./client/connection.js";
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
 * @property {number} pending The decisions that are still open, child sessions included.
 * @property {number} pendingBelow The pending decisions in child sessions.
 * @property {number} [unread] The runtime's count of unread items.
 * @property {string} lastActivity RFC 3339.
 * @property {string} [parent] The parent session.
 */

/** @typedef {"all" | "running" | "needs" | "failed" | "archived"} FilterName */

/**
 * @typedef {object} Lists
 * @property {Entry[]} all Everything that the page lists, newest first.
 * @property {Entry[]} shown The entries that match the filter.
 * @property {Record<FilterName, number>} counts Entries by filter; of `needs`, the decisions.
 * @property {boolean} isPartial Whether the server has more entries than `all`: other counts are then lower bounds.
 * @property {import("./client/hydration.js").RunLine[]} runs
 * @property {Waiting[]} waiting The decisions that are still open, the oldest first.
 */

/** A pending decision, as `GET /v1/attention` lists it. @typedef {{ sessionId?: string, runId?: string, actionId: string, title: string, subject: Record<string, any>, risk?: string, agentId: string, askedAt: string, expiresAt?: string, control?: string } & import("./surfaces/decision-record.js").Progress} Waiting */

/** Sessions that the page lists at first; older ones follow when they change, or wait. */
const LISTED_MAX = 100;
/** Sessions that the page remembers. */
const KEPT_MAX = 2 * LISTED_MAX;
/** Waiting sessions that the page reads, however old they are. */
const WAITING_MAX = 1000;
/** The delay before the page draws changes that arrive together, in milliseconds. */
const DRAW_MS = 30;
/** The intervals of reading runs without a session, in milliseconds: while nothing is listed, while one is live, else. */
const [EMPTY_MS, LIVE_MS, IDLE_MS] = [2000, 5000, 60_000];

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

/** Entries that the server pushes. A WebSocket carries them: a browser has few SSE connections for all tabs of a site. */
class PushedEntries {
  /** Newest first. @type {Map<string, Record<string, any>>} */
  sessions = new Map();
  /** @type {Map<string, Waiting>} */
  attention = new Map();
  isHydrated = false;
  isTruncated = false;

  /**
   * @param {import("./client/types.js").Options} options
   * @param {{ changed: () => void, hydrated: () => void, state: (state: import("./client/types.js").State) => void }} events
   */
  constructor(options, events) {
    this.#events = events;
    this.connection = connect({ ...options, transport: "websocket" });
    this.connection.listen((frame) => this.#take(/** @type {any} */ (frame)));
    this.connection.subscribe(events.state);
  }

  #events;

  /** @param {import("./client/types.js").ListFrame | { frame: "Hydrated" | "Reset", truncated?: boolean }} frame */
  #take(frame) {
    if (frame.frame === "List") {
      if (frame.op === "remove") this[frame.list].delete(frame.key);
      else if (frame.list === "attention") this.attention.set(frame.key, /** @type {Waiting} */ (frame.entry));
      else this.put(frame.key, frame.entry ?? {}, this.isHydrated);
      // At the start, the first drawing has all entries.
      if (this.isHydrated) this.#events.changed();
      return;
    }
    this.isHydrated = frame.frame === "Hydrated";
    this.isTruncated = frame.truncated === true;
    if (this.isHydrated) return this.#events.hydrated();
    this.sessions.clear();
    this.attention.clear();
  }

  /** @param {string} id @param {Record<string, any>} line @param {boolean} isNewest Whether a session that was unknown is the newest. */
  put(id, line, isNewest) {
    if (this.sessions.has(id) || !isNewest) return void this.sessions.set(id, line);
    this.sessions = new Map([[id, line], ...this.sessions]);
    if (this.sessions.size <= KEPT_MAX) return;
    const oldest = [...this.sessions].findLast(([, { counts }]) => !counts?.unanswered);
    if (oldest) this.sessions.delete(oldest[0]);
  }
}

export class SessionList {
  /**
   * @param {import("./client/http.js").Server} server
   * @param {{ changed: (lists: Lists) => void, failed: (error: unknown) => void }} events
   */
  constructor(server, events) {
    this.#server = server;
    this.#events = events;
  }

  #server;
  #events;
  #hydration = new Hydration();
  /** @type {import("./route.js").Audience} */
  #audience = "user";
  /** @type {FilterName} */
  #filter = "all";
  #words = "";
  /** @type {PushedEntries | undefined} */
  #all;
  /** The sessions that match the filter, if one is set. @type {PushedEntries | undefined} */
  #found;
  /** @type {import("./client/hydration.js").RunLine[] | undefined} */
  #runs;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #runsTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #drawTimer;
  /** Runs without a session that a decision named, and that a reading of runs did not have. @type {Set<string>} */
  #unknownRuns = new Set();

  /** @param {import("./route.js").Audience} audience Begins again, for another audience or token. */
  restart(audience) {
    this.#audience = audience;
    this.#hydration = new Hydration({ ...this.#server, audience });
    this.#runs = undefined;
    this.#all?.connection.close();
    const all = new PushedEntries({ ...this.#server, audience, lists: { attention: true, sessions: true, limit: LISTED_MAX } }, {
      changed: () => this.refresh(),
      hydrated: () => void this.#readWaiting(all),
      state: ({ kind, problem }) => {
        if (all !== this.#all || kind === "live" || kind === "connecting") return;
        if (problem) this.#events.failed(new Problem(problem));
        else if (!all.connection.isCut) this.#events.failed(undefined);
      },
    });
    this.#all = all;
    this.#follow();
    void this.#readRuns();
  }

  /** Follows the sessions that match the filter. */
  #follow() {
    this.#found?.connection.close();
    this.#found = undefined;
    if (this.#filter === "all" && this.#words === "") return this.refresh();
    const lists = { sessions: true, limit: LISTED_MAX, ...QUERIES[this.#filter], ...(this.#words && { q: this.#words }) };
    this.#found = new PushedEntries({ ...this.#server, audience: this.#audience, lists }, { changed: () => this.refresh(), hydrated: () => this.refresh(), state: () => {} });
  }

  /**
   * @param {FilterName} filter
   * @param {string} words Words in title, preview or id; empty for all.
   */
  filter(filter, words) {
    this.#filter = filter;
    this.#words = words.trim();
    this.#follow();
  }

  /** Stops while the page is disconnected. @param {boolean} isCut */
  set isCut(isCut) {
    for (const entries of [this.#all, this.#found]) if (entries && entries.connection.isCut !== isCut) entries.connection[isCut ? "cut" : "mend"]();
  }

  /** Connects at once if the server was unreachable. */
  retry() {
    this.#all?.connection.mend();
    this.#found?.connection.mend();
    void this.#readRuns();
  }

  /** Reports what is listed, after changes that arrive together, or of the viewer's marks. */
  refresh() {
    this.#drawTimer ??= setTimeout(() => {
      this.#drawTimer = undefined;
      this.#publish();
    }, DRAW_MS);
  }

  /** Reads the sessions that wait and are older than those that the server pushed. @param {PushedEntries} all */
  async #readWaiting(all) {
    try {
      if (all.isTruncated && all.attention.size > 0) {
        const { sessions } = await this.#hydration.sessions({ needsAction: true, limit: WAITING_MAX });
        for (const line of sessions) if (!all.sessions.has(line.sessionId)) all.put(line.sessionId, line, false);
      }
    } catch {
      // The decisions are listed without the titles of their sessions.
    }
    this.refresh();
  }

  async #readRuns() {
    clearTimeout(this.#runsTimer);
    const hydration = this.#hydration;
    try {
      if (this.#all?.connection.isCut !== true) {
        const { runs } = await hydration.runs({ limit: LISTED_MAX });
        if (hydration !== this.#hydration) return;
        this.#runs = runs;
        this.refresh();
      }
    } catch {
      // The connection says why.
    }
    clearTimeout(this.#runsTimer);
    const loose = (this.#runs ?? []).filter((run) => !run.sessionId);
    const isEmpty = loose.length === 0 && this.#all?.sessions.size === 0;
    const isLiveRun = loose.some(({ status }) => LIVE_STATUSES.includes(status));
    this.#runsTimer = setTimeout(() => void this.#readRuns(), isEmpty ? EMPTY_MS : isLiveRun ? LIVE_MS : IDLE_MS);
  }

  #publish() {
    const [all, found, runs, words] = [this.#all, this.#found, this.#runs, this.#words];
    if (!all?.isHydrated || runs === undefined || found?.isHydrated === false) return;
    const waiting = [...all.attention.values()].filter(({ control }) => control === undefined).sort((a, b) => a.askedAt.localeCompare(b.askedAt));
    const looseWaiting = waiting.filter(({ sessionId }) => !sessionId).map(({ runId }) => toText(runId));
    const loose = runs.filter((run) => !run.sessionId).map((run) => ({ ...entryOf("run", run), pending: looseWaiting.filter((id) => id === run.runId).length }));
    const missing = looseWaiting.filter((id) => !this.#unknownRuns.has(id) && loose.every((run) => run.id !== id));
    for (const id of missing) this.#unknownRuns.add(id);
    if (missing.length > 0) void this.#readRuns();
    const sessionsOf = (/** @type {PushedEntries} */ { sessions }) => [...sessions.values()].map((one) => entryOf("session", one));
    const entries = [...sessionsOf(all), ...loose];
    const shown = found ? [...sessionsOf(found), ...loose.filter((one) => hasWords(one, words))] : entries;
    const counts = /** @type {Record<FilterName, number>} */ (Object.fromEntries(Object.entries(FILTERS).map(([name, matches]) => [name, entries.filter(matches).length])));
    this.#events.changed({ all: entries, shown: shown.filter(FILTERS[this.#filter]), counts: { ...counts, needs: waiting.length }, isPartial: all.isTruncated, runs, waiting });
  }

  /**
   * Finds entries by words, for the palette.
   * @param {string} words
   * @returns {Promise<Entry[]>}
   */
  async find(words) {
    const { sessions } = await this.#hydration.sessions({ limit: 20, q: words });
    return sessions.map((one) => entryOf("session", one));
  }

  /** The reads of the current audience. */
  get hydration() {
    return this.#hydration;
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
export function entryOf(kind, summary) {
  const id = toText(kind === "session" ? summary.sessionId : summary.runId);
  const key = entryKey({ kind, id });
  return {
    kind, id, title: toText(summary.title), status: toText(summary.status) || "unknown", preview: toText(summary.preview),
    isStale: Boolean(summary.stale), isPinned: Boolean(summary.pinned) || marked("pinned").has(key), isArchived: marked("archived").has(key),
    pending: Number(summary.counts?.unanswered ?? 0), pendingBelow: Number(summary.counts?.pendingActionsBelow ?? 0),
    unread: Number(summary.unread ?? 0) || undefined, lastActivity: toText(summary.lastActivity), parent: kind === "session" && summary.parentSessionId ? toText(summary.parentSessionId) : undefined,
  };
}

/**
 * The lists of sessions and of pending decisions, which the server pushes, and the runs without a session.
 *
 * The server filters sessions by status, by pending actions and by words. It pushes no runs without a session: the page
 * reads those, often only while one of them is live.
 */

import { Problem } from "./client/http.js";
import { Hydration } from "./client/hydration.js";
import { stored, store } from "./marks.js";
import { LISTED_MAX, PushedEntries } from "./pushed-entries.js";
import { entryKey, entryOf } from "./session-entry.js";
import { toText } from "./surfaces/base.js";

/** @typedef {import("./session-entry.js").Entry} Entry */
/** @typedef {import("./session-entry.js").Waiting} Waiting */
/** @typedef {"all" | "running" | "needs" | "failed" | "archived"} FilterName */

/**
 * @typedef {object} Lists
 * @property {Entry[]} all Everything that the page lists, newest first.
 * @property {Entry[]} shown The entries that match the filter.
 * @property {Record<FilterName, number>} counts Entries by filter; of `needs`, the decisions. Archived ones are not counted.
 * @property {boolean} isLive Whether the server pushes their changes. Without it, the page shows what it knew.
 * @property {boolean} isPartial Whether the server has more entries than `all`: other counts are then lower bounds.
 * @property {import("./client/hydration.js").RunLine[]} runs
 * @property {Waiting[]} waiting The decisions that are still open, the oldest first.
 * @property {Texts} [texts] The matches of a search in texts. Without words, and until they are read, none.
 */

/** @typedef {import("./text-search.js").Texts} Texts */

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

/** The keys of the entries that are archived in this browser: runs, and the sessions of older pages. @returns {Set<string>} */
export const archivedHere = () => new Set(stored("archived", /** @type {string[]} */ ([])));

/** The entry of a run, which only this browser archives. @param {Record<string, any>} run */
function runEntryOf(run) {
  const entry = entryOf("run", run);
  return { ...entry, isArchived: archivedHere().has(entry.key) };
}

/** @param {Set<string>} keys */
export const keepArchivedHere = (keys) => store("archived", [...keys]);

/** The server's query for each filter. @type {Record<FilterName, { status?: string, needsAction?: boolean, archived?: boolean }>} */
const QUERIES = { all: {}, running: { status: "accepted,running,waiting" }, needs: { needsAction: true }, failed: { status: "failed" }, archived: { archived: true } };
/** The order in which the server lists sessions. @type {"updated"} */
const SORT = "updated";

/** Whose a title is. @type {Record<string, string>} */
export const TITLE_ORIGINS = { user: "Title by a person", source: "Title by the agent", message: "Title from the first message" };

/** @param {Entry} entry */
export const isLive = ({ status }) => LIVE_STATUSES.includes(status);

export class SessionList {
  /**
   * @param {import("./client/http.js").Server} server
   * @param {import("./marks.js").Marks} marks
   * @param {{ changed: (lists: Lists) => void, failed: (error: unknown) => void, removed: (session: string) => void }} events
   * `removed`: a session left the list, because it was archived or erased.
   */
  constructor(server, marks, events) {
    this.#server = server;
    this.#marks = marks;
    this.#events = events;
  }

  #server;
  #marks;
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
  /** @type {Texts | undefined} */
  #texts;
  /** @type {import("./client/hydration.js").RunLine[] | undefined} */
  #runs;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #runsTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #drawTimer;
  /** Whether the server pushes changes. */
  #isLive = false;
  /** Runs without a session that a decision named, and that a reading of runs did not have. @type {Set<string>} */
  #unknownRuns = new Set();

  /** @param {import("./route.js").Audience} audience Begins again, for another audience or token. */
  restart(audience) {
    this.#audience = audience;
    this.#hydration = new Hydration({ ...this.#server, audience });
    this.#runs = undefined;
    this.#all?.connection.close();
    const all = new PushedEntries({ ...this.#server, audience, lists: { attention: true, sessions: true, sort: SORT, limit: LISTED_MAX } }, {
      changed: () => this.refresh(),
      removed: (session) => this.#events.removed(session),
      hydrated: () => void this.#readWaiting(all),
      state: ({ kind, problem }) => {
        if (all !== this.#all || kind === "connecting") return;
        const wasLive = this.#isLive;
        this.#isLive = kind === "live";
        if (this.#isLive) return void (wasLive || this.refresh());
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
    this.#found = this.#texts = undefined;
    void this.#findTexts();
    if (this.#filter === "all" && this.#words === "") return this.refresh();
    const lists = { sessions: true, sort: SORT, limit: LISTED_MAX, ...QUERIES[this.#filter], ...(this.#words && { q: this.#words }) };
    this.#found = new PushedEntries({ ...this.#server, audience: this.#audience, lists }, { changed: () => this.refresh(), hydrated: () => this.refresh() });
  }

  /** Asks the server once for texts with the words. */
  async #findTexts() {
    const [words, filter, found] = [this.#words, this.#filter, this.#hydration];
    if (words === "") return;
    try {
      const { searchTexts } = await import("./text-search.js");
      const texts = await searchTexts(found, words, { ...QUERIES[filter], sort: SORT }, () => words === this.#words && filter === this.#filter && found === this.#hydration);
      if (!texts) return;
      this.#texts = texts;
      this.refresh();
    } catch {
      // The rail lists the titles; the connection says why the server does not answer.
    }
  }

  /**
   * @param {FilterName} filter
   * @param {string} words Words in title, preview or id, or in texts; empty for all.
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
    const loose = runs.filter((run) => !run.sessionId).map((run) => ({ ...runEntryOf(run), pending: looseWaiting.filter((id) => id === run.runId).length }));
    const missing = looseWaiting.filter((id) => !this.#unknownRuns.has(id) && loose.every((run) => run.id !== id));
    for (const id of missing) this.#unknownRuns.add(id);
    if (missing.length > 0) void this.#readRuns();
    const sessionsOf = (/** @type {PushedEntries} */ { sessions }) => [...sessions.values()].map((one) => entryOf("session", one));
    const entries = [...sessionsOf(all), ...loose];
    const shown = found ? [...sessionsOf(found), ...loose.filter((one) => hasWords(one, words))] : entries;
    const counts = /** @type {Record<FilterName, number>} */ (Object.fromEntries(Object.entries(FILTERS).map(([name, matches]) => [name, entries.filter(matches).length])));
    this.#marks.apply(found ? [...entries, ...shown] : entries, true);
    this.#events.changed({ all: entries, shown: shown.filter(FILTERS[this.#filter]), counts: { ...counts, needs: waiting.length }, isLive: this.#isLive, isPartial: all.isTruncated, runs, waiting, texts: this.#texts });
  }

  /**
   * Finds entries by words, for the palette.
   * @param {string} words
   * @returns {Promise<Entry[]>}
   */
  async find(words) {
    const { sessions } = await this.#hydration.sessions({ limit: 20, q: words, archived: "all" });
    return sessions.map((one) => entryOf("session", one));
  }

  /** The summary of the open session, which the lists may not have. @type {Record<string, any> | undefined} */
  opened;

  /**
   * Returns what the page knows of a session, or of a run without a session.
   * @param {"session" | "run"} kind
   * @param {string} id
   */
  entry(kind, id) {
    const own = this.opened?.sessionId === id ? this.opened : undefined;
    // The entry of a branch is that of the root.
    const listed = own?.root ?? id;
    const line = kind === "session" ? (this.#all?.sessions.get(listed) ?? this.#found?.sessions.get(listed) ?? own) : this.#runs?.find(({ runId, sessionId }) => runId === id && !sessionId);
    if (!line) return undefined;
    const entry = kind === "run" ? runEntryOf(line) : entryOf(kind, line);
    this.#marks.apply([entry]);
    return entry;
  }

  /** The cursor up to which the lists show this session. @param {Entry} entry */
  cursorOf({ id }) {
    return (this.#found?.sessions.has(id) ? this.#found : this.#all)?.connection.state.cursor ?? "";
  }

  /**
   * Takes the answer to a change of a session, before the lists bring it.
   * @param {Record<string, any>} line
   */
  change(line) {
    const id = toText(line.sessionId);
    if (this.opened?.sessionId === id) this.opened = { ...this.opened, archived: undefined, ...line };
    if (line.archived !== true) this.#all?.put(id, line, true);
    else this.#all?.sessions.delete(id);
    if (this.#filter !== "archived" ? line.archived === true : line.archived !== true) this.#found?.sessions.delete(id);
    else if (this.#found?.sessions.has(id)) this.#found.sessions.set(id, line);
    this.refresh();
  }

  /** Forgets what is erased. @param {{ kind: "session" | "run", id: string }} entry */
  remove({ kind, id }) {
    if (kind === "session") for (const entries of [this.#all, this.#found]) entries?.sessions.delete(id);
    this.#runs = this.#runs?.filter((run) => (kind === "run" ? run.runId : run.sessionId) !== id);
    this.refresh();
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

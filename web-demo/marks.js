/**
 * What one person notes about sessions and runs: which are pinned, and how far each was read.
 *
 * The server keeps the marks of sessions for the `sub` of a token. Where it knows no person, and for runs without a
 * session, this browser keeps them: in `proscenium.pinned` the keys of what is pinned, in `proscenium.read` the last
 * activity that was read, by key.
 */

import { Problem, pathSegment, request } from "./client/http.js";
import { failureOf, showToast } from "./toasts.js";

/** @typedef {import("./session-entry.js").Entry} Entry */

/** Reads that this browser keeps; as many as the server keeps of one person. */
const READS_MAX = 1024;
/**
 * How long a session has news before it counts as unread, in milliseconds: another window of the same person may be
 * reading it.
 */
const NEWS_MS = 1500;

/**
 * Reads what this browser keeps.
 * @template T
 * @param {"pinned" | "archived" | "read" | "since" | "views"} name
 * @param {T} fallback
 * @returns {T}
 */
export function stored(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`proscenium.${name}`) ?? "null") ?? fallback;
  } catch {
    return fallback;
  }
}

/**
 * @param {"pinned" | "archived" | "read" | "since" | "views"} name
 * @param {unknown} value
 */
export function store(name, value) {
  try {
    localStorage.setItem(`proscenium.${name}`, JSON.stringify(value));
  } catch {
    // The browser keeps nothing. The page shows the marks until it is reloaded.
  }
}

/**
 * A change that the server has not shown yet. `at`: the last activity that is read; empty for unread. `isSent`: the
 * server has accepted it.
 * @typedef {{ pinned?: boolean, at?: string, isSent: boolean }} Wish
 */

export class Marks {
  /**
   * @param {import("./client/http.js").Server} server
   * @param {() => void} changed
   */
  constructor(server, changed) {
    this.#server = server;
    this.#changed = changed;
    // Another window of this browser.
    addEventListener("storage", ({ key }) => {
      if (key !== "proscenium.pinned" && key !== "proscenium.read") return;
      this.#load();
      changed();
    });
  }

  #server;
  #changed;
  /** @type {Set<string>} */
  #pinned = new Set(stored("pinned", /** @type {string[]} */ ([])));
  /** @type {Map<string, string>} */
  #read = new Map(Object.entries(stored("read", {})));
  /** What is older was read: the newest activity when this browser first listed sessions. Empty before that. */
  #since = stored("since", "");
  /** Changes by key. @type {Map<string, Wish>} */
  #wishes = new Map();
  /** When the page first saw that an entry is unread, by key, in milliseconds since 1970. @type {Map<string, number>} */
  #newsAt = new Map();
  #isListed = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** Whether the server knows whose marks these are. */
  isKeptByServer = false;

  #load() {
    this.#pinned = new Set(stored("pinned", /** @type {string[]} */ ([])));
    this.#read = new Map(Object.entries(stored("read", {})));
  }

  /** @param {Entry} entry Whether its marks are the server's. */
  #isServers({ kind }) {
    return this.isKeptByServer && kind === "session";
  }

  /**
   * Adds the marks to entries.
   * @param {Entry[]} entries
   * @param {boolean} [isList] Whether they are all that the page lists.
   */
  apply(entries, isList = false) {
    const isFirst = isList && !this.#isListed;
    if (isFirst && this.#since === "" && entries.length > 0) store("since", (this.#since = entries.map(({ lastActivity }) => lastActivity).reduce((a, b) => (a > b ? a : b))));
    this.#isListed ||= isList;
    const now = Date.now();
    let wait = Infinity;
    for (const entry of entries) {
      const { key } = entry;
      const wish = this.#wishes.get(key);
      if (wish?.isSent && this.#isFulfilled(wish, entry)) this.#wishes.delete(key);
      entry.isPinned = this.#wishes.get(key)?.pinned ?? (entry.isPinned || (!this.#isServers(entry) && this.#pinned.has(key)));
      entry.isNews = this.#hasNews(entry);
      if (!entry.isNews) this.#newsAt.delete(key);
      else if (isFirst || this.#wasMarkedUnread(entry)) this.#newsAt.set(key, 0);
      else if (!this.#newsAt.has(key)) this.#newsAt.set(key, now);
      const left = (this.#newsAt.get(key) ?? now) + NEWS_MS - now;
      entry.isUnread = entry.isNews && left <= 0;
      if (!entry.isUnread && entry.isNews) wait = Math.min(wait, left);
    }
    if (!isList) return;
    clearTimeout(this.#timer);
    if (wait < Infinity) this.#timer = setTimeout(this.#changed, wait);
  }

  /** @param {Entry} entry */
  #wasMarkedUnread({ key }) {
    return (this.#wishes.get(key)?.at ?? this.#read.get(key)) === "";
  }

  /** @param {Wish} wish @param {Entry} entry As the server lists it. */
  #isFulfilled({ pinned, at }, entry) {
    return (pinned === undefined || pinned === entry.isPinned) && (at === undefined || (at === "" ? entry.unread !== 0 : entry.unread === 0));
  }

  /** @param {Entry} entry */
  #hasNews(entry) {
    const { key, unread, lastActivity } = entry;
    const read = this.#wishes.get(key)?.at ?? (this.#isServers(entry) ? undefined : this.#read.get(key));
    if (read !== undefined) return read < lastActivity;
    return unread === undefined ? this.#since < lastActivity : unread > 0;
  }

  /**
   * @param {Entry} entry
   * @param {boolean} isPinned
   */
  pin(entry, isPinned) {
    const { key } = entry;
    return this.#change(entry, { pinned: isPinned }, { pinned: isPinned }, () => {
      if (isPinned) this.#pinned.add(key);
      else this.#pinned.delete(key);
      store("pinned", [...this.#pinned]);
    });
  }

  /**
   * Notes that what is there was read.
   * @param {Entry} entry
   * @param {string} cursor Of the session's stream, as far as the page has shown it.
   * @param {string} at The time of the newest activity up to there.
   */
  read(entry, cursor, at) {
    return this.#change(entry, { readTo: cursor }, { at }, () => this.#keepRead(entry.key, at));
  }

  /** @param {Entry} entry */
  markUnread(entry) {
    return this.#change(entry, { readTo: null }, { at: "" }, () => this.#keepRead(entry.key, ""));
  }

  /**
   * @param {string} key
   * @param {string} at
   */
  #keepRead(key, at) {
    this.#read.delete(key);
    this.#read.set(key, at);
    const kept = [...this.#read].slice(-READS_MAX);
    this.#read = new Map(kept);
    store("read", Object.fromEntries(kept));
  }

  /**
   * Changes a mark on the server, or in this browser.
   * @param {Entry} entry
   * @param {Record<string, unknown>} body
   * @param {{ pinned?: boolean, at?: string }} change
   * @param {() => void} keep Changes it in this browser.
   * @returns {Promise<boolean>} Whether it is kept.
   */
  async #change(entry, body, change, keep) {
    const { key } = entry;
    if (!this.#isServers(entry)) {
      keep();
      this.#changed();
      return true;
    }
    const wish = { ...this.#wishes.get(key), ...change, isSent: false };
    this.#wishes.set(key, wish);
    this.#changed();
    try {
      await request(this.#server, `/v1/sessions/${pathSegment(entry.id)}/marks`, { method: "PUT", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
      wish.isSent = true;
      return true;
    } catch (error) {
      if (this.#wishes.get(key) === wish) this.#wishes.delete(key);
      if (error instanceof Problem && error.code === "marks_need_token") {
        this.isKeptByServer = false;
        keep();
        return true;
      }
      // The next news is another attempt to note what was read.
      if (change.at) console.warn("The read position was not kept:", error);
      else showToast({ text: `The mark was not kept. ${failureOf(error)}`, isFailure: true });
      return false;
    } finally {
      this.#changed();
    }
  }
}

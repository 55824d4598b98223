/**
 * The entries of lists that the server pushes.
 */

import { connect } from "./client/connection.js";

/** @typedef {import("./session-entry.js").Waiting} Waiting */

/** Sessions that the page lists at first; older ones follow when they change, or wait. */
export const LISTED_MAX = 100;
/** Sessions that the page remembers. */
const KEPT_MAX = 2 * LISTED_MAX;

/** Entries that the server pushes. A WebSocket carries them: a browser has few SSE connections for all tabs of a site. */
export class PushedEntries {
  /** Newest first. @type {Map<string, Record<string, any>>} */
  sessions = new Map();
  /** @type {Map<string, Waiting>} */
  attention = new Map();
  isHydrated = false;
  isTruncated = false;

  /**
   * @param {import("./client/types.js").Options} options
   * @param {{ changed: () => void, hydrated: () => void, removed?: (session: string) => void, state?: (state: import("./client/types.js").State) => void }} events
   */
  constructor(options, events) {
    this.#events = events;
    this.connection = connect({ ...options, transport: "websocket" });
    this.connection.listen((frame) => this.#take(/** @type {any} */ (frame)));
    if (events.state) this.connection.subscribe(events.state);
  }

  #events;

  /** @param {(import("./client/types.js").ListFrame & { list: "attention" | "sessions" }) | { frame: "Hydrated" | "Reset", truncated?: boolean }} frame */
  #take(frame) {
    if (frame.frame === "List") {
      if (frame.op === "remove") {
        this[frame.list].delete(frame.key);
        if (frame.list === "sessions") this.#events.removed?.(frame.key);
      }
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

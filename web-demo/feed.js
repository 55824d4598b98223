/**
 * One run's events, live: connects, comes back with the cursor, and knows when something is missing.
 *
 * `EventSource` comes back by itself after a cut. After an answer that is no stream it gives up for good and cannot say why;
 * then this opens a new one, after the last cursor.
 */

/**
 * @typedef {object} Listener
 * @property {(event: Record<string, any>, gap: Gap | null) => void} event The next event, and what is missing before it.
 * @property {() => void} reset Forget everything: the run begins anew.
 * @property {(state: "connecting" | "live" | "away" | "ended" | "refused", why: string) => void} state
 *
 * @typedef {{ last: number, prev: number }} Gap The last sequence that came, and the one that should have.
 */

/** How long to wait before a new connection, in milliseconds. */
const REOPEN_MS = 2000;

export class Feed {
  /**
   * @param {string} run
   * @param {string} audience
   * @param {import("./token.js").Token} token
   * @param {Listener} listener
   */
  constructor(run, audience, token, listener) {
    this.run = run;
    this.audience = audience;
    this.#token = token;
    this.cursor = "";
    this.#listener = listener;
    this.#open();
  }

  /** The last sequence that came; 0 before the first. */
  last = 0;
  #listener;
  #token;
  #isClosed = false;
  /** @type {EventSource | undefined} */
  #source;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #reopening;

  /** Stops. Nothing is told after it. */
  close() {
    this.#isClosed = true;
    clearTimeout(this.#reopening);
    this.#source?.close();
  }

  async #open() {
    const query = new URLSearchParams({ frames: "events", audience: this.audience });
    if (this.cursor) query.set("after", this.cursor);
    this.#listener.state("connecting", "");
    try {
      const ticket = await this.#token.ticket(this.run);
      if (ticket) query.set("ticket", ticket);
    } catch (why) {
      return this.#later(why instanceof Error ? why.message : "");
    }
    if (this.#isClosed) return;
    const source = new EventSource(`/v1/runs/${encodeURIComponent(this.run)}/stream?${query}`);
    this.#source = source;
    source.onopen = () => this.#listener.state("live", "");
    source.onmessage = (message) => this.#take(message);
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) this.#later("");
      else this.#listener.state("away", "");
    };
  }

  /** @param {string} why */
  #later(why) {
    if (this.#isClosed) return;
    this.#listener.state("away", why);
    this.#reopening = setTimeout(() => this.#open(), REOPEN_MS);
  }

  /** @param {MessageEvent<string>} message */
  #take(message) {
    const frame = JSON.parse(message.data);
    if (message.lastEventId) this.cursor = message.lastEventId;
    switch (frame.frame) {
      case "Event": {
        if (frame.sequence <= this.last) return;
        const gap = frame.prev === undefined || frame.prev === this.last ? null : { last: this.last, prev: frame.prev };
        this.last = frame.sequence;
        this.#listener.event(frame.event, gap);
        break;
      }
      case "Reset":
        this.last = 0;
        this.#listener.reset();
        break;
      case "Error":
        this.close();
        this.#listener.state("refused", frame.problem?.detail ?? "the server ended the stream");
        break;
      case "End":
        this.close();
        this.#listener.state("ended", frame.status);
        break;
      default: break;
    }
  }
}

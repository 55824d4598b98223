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
   * @param {Listener} listener
   */
  constructor(run, audience, listener) {
    this.run = run;
    this.audience = audience;
    this.cursor = "";
    this.#listener = listener;
    this.#open();
  }

  /** The last sequence that came; 0 before the first. */
  last = 0;
  #listener;
  /** @type {EventSource | undefined} */
  #source;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #reopening;

  /** Stops. Nothing is told after it. */
  close() {
    clearTimeout(this.#reopening);
    this.#source?.close();
  }

  #open() {
    const query = new URLSearchParams({ frames: "events", audience: this.audience });
    if (this.cursor) query.set("after", this.cursor);
    const source = new EventSource(`/v1/runs/${encodeURIComponent(this.run)}/stream?${query}`);
    this.#source = source;
    this.#listener.state("connecting", "");
    source.onopen = () => this.#listener.state("live", "");
    source.onmessage = (message) => this.#take(message);
    source.onerror = () => {
      this.#listener.state("away", "");
      if (source.readyState === EventSource.CLOSED) this.#reopening = setTimeout(() => this.#open(), REOPEN_MS);
    };
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

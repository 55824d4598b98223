/**
 * A connection: follows one run, several runs, a session or lists, feeds a store, and reconnects with its cursor.
 *
 * It verifies the stream. Each frame names the previous one (`prev`). If that is not the last frame received, a frame
 * was lost and the connection resumes at its last good cursor. It does the same when a change does not apply. The
 * server then sends snapshots of the activities that have changed since; no other activity is affected.
 */

import { request, baseOf, isTransient, pathSegment } from "./http.js";
import { readByEventSource, reasonOf } from "./sse.js";
import { logOf } from "./store.js";

/**
 * @typedef {import("./types.js").Frame} Frame
 * @typedef {import("./types.js").Options} Options
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 * @typedef {import("./types.js").State} State
 * @typedef {import("./types.js").Timing} Timing
 * @typedef {import("./sse.js").ReceivedFrame} ReceivedFrame
 * @typedef {import("./sse.js").ReaderEnd} ReaderEnd
 * @typedef {import("./sse.js").Reader} Reader
 * @typedef {import("./sse.js").ReaderListener} ReaderListener
 * @typedef {import("./store.js").Store} Store
 */

/** @type {Timing} The server sends a heartbeat every 15 s, so three may be lost before `silenceMs`. */
const TIMING = { retryMs: 1000, retryMaxMs: 30_000, silenceMs: 45_000, pingMs: 15_000, openMs: 20_000 };
/** The maximum number of runs on one connection. */
const RUNS_MAX = 256;
/** The interval at which silence is checked and `lagMs` is reported, in milliseconds. */
const TICK_MS = 1000;
/** The minimum interval between two reports of counts, in milliseconds. */
const COUNTS_NOTIFY_MS = 100;
/** The name of the subscription where there is only one. */
const SINGLE = "";

/**
 * Follows the logs that the options name. The connection opens at once.
 * @param {Options} options
 * @param {Store} [store] Optional for callers that use only `listen`.
 */
export function connect(options, store) {
  return new Connection(options, store);
}

export class Connection {
  /**
   * @param {Options} options
   * @param {Store} [store]
   */
  constructor(options, store) {
    this.#options = validated(options);
    this.#store = store;
    this.#timing = { ...TIMING, ...options.timing };
    this.#transport = options.transport ?? "sse";
    const EventSource = options.EventSource ?? globalThis.EventSource;
    this.#usesEventSource = options.reader ? options.reader === "eventsource" : typeof EventSource === "function" && !options.fetch;
    for (const name of this.#subscriptionNames()) this.#openSubscriptions.add(name);
    const { after } = options;
    if (typeof after === "string") this.#openSubscriptions.forEach((name) => this.#after.set(name, after));
    else for (const [run, cursor] of Object.entries(after ?? {})) this.#after.set(run, cursor);
    globalThis.addEventListener?.("online", this.#retryNow);
    this.#tickTimer = setInterval(() => this.#tick(), TICK_MS);
    this.#connect();
  }

  #options;
  #store;
  #timing;
  #transport;
  /** Whether `EventSource` reads SSE. False after something that it cannot report, unless the options require it. */
  #usesEventSource;

  /** Subscriptions that have not ended. @type {Set<string>} */
  #openSubscriptions = new Set();
  /** Subscriptions that the server rejected while others continue. @type {Map<string, ProblemDocument>} */
  #refused = new Map();
  /** The cursor from which each subscription resumes. @type {Map<string, string>} */
  #after = new Map();
  /** The sequence of the last frame of each log. @type {Map<string, number>} */
  #lastSequences = new Map();
  /** The last gap: its log and its ends. */
  #gap = "";
  #cursor = "";
  #sequence = 0;
  #counts = { gaps: 0, faults: 0, resumes: 0, frames: 0 };

  /** @type {State["kind"]} */
  #kind = "connecting";
  #why = "";
  /** @type {string | undefined} */
  #status;
  /** @type {ProblemDocument | undefined} */
  #problem;

  /** The current attempt. Events of an earlier attempt are ignored. */
  #attempt = 0;
  /** @type {Reader | undefined} */
  #reader;
  #failures = 0;
  /** Consecutive failures of authentication. */
  #authFailures = 0;
  #wasLive = false;
  #isCut = false;
  #isClosed = false;
  #retryMs = 0;
  /** When the last bytes arrived, by `performance.now()`. */
  #lastActivityAt = 0;
  /** @type {number | null} */
  #roundTripMs = null;

  /** @type {Set<(state: State) => void>} */
  #listeners = new Set();
  /** @type {Set<(frame: Frame, cursor: string) => void>} */
  #frameListeners = new Set();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #tickTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retryTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #notifyTimer;

  /** The current state. @returns {State} */
  get state() {
    const isLive = this.#kind === "live";
    const sinceMs = isLive ? Math.max(0, performance.now() - this.#lastActivityAt) : null;
    const lagMs = this.#transport === "sse" ? sinceMs : isLive ? this.#roundTripMs : null;
    return {
      kind: this.#kind,
      why: this.#why,
      cursor: this.#cursor,
      cursors: Object.fromEntries([...this.#after].filter(([name]) => name !== SINGLE)),
      sequence: this.#sequence,
      lagMs: lagMs === null ? null : Math.round(lagMs),
      ...this.#counts,
      transport: this.#transport,
      reader: this.#transport === "websocket" ? "websocket" : this.#usesEventSource ? "eventsource" : "fetch",
      ...(this.#status === undefined ? {} : { status: this.#status }),
      ...(this.#problem === undefined ? {} : { problem: this.#problem }),
      ...(this.#refused.size === 0 ? {} : { refused: Object.fromEntries(this.#refused) }),
    };
  }

  /**
   * Reports the state: changes of `kind` at once, counts at most ten times a second, `lagMs` once a second.
   * @param {(state: State) => void} listener
   * @returns {() => void} Unsubscribes.
   */
  subscribe(listener) {
    return addListener(this.#listeners, listener);
  }

  /**
   * Calls the listener with every frame, after the store has applied it.
   * @param {(frame: Frame, cursor: string) => void} listener The cursor is empty if the frame has none.
   * @returns {() => void} Unsubscribes.
   */
  listen(listener) {
    return addListener(this.#frameListeners, listener);
  }

  /** Whether `cut` was called, and `mend` was not called since. */
  get isCut() {
    return this.#isCut;
  }

  /** Disconnects and stays disconnected until `mend`. */
  cut() {
    if (this.#isClosed || this.#isCut || this.#isFinal()) return;
    this.#isCut = true;
    this.#closeReader();
    this.#setState("away", "The page disconnected.");
  }

  /** Connects at once: after `cut`, instead of waiting for the next retry, or after `refused`. */
  mend() {
    if (this.#isClosed || this.#kind === "ended" || (this.#kind === "live" && this.#refused.size === 0)) return;
    this.#closeReader();
    this.#isCut = false;
    [this.#failures, this.#authFailures] = [0, 0];
    for (const name of this.#refused.keys()) this.#openSubscriptions.add(name);
    this.#refused.clear();
    this.#connect();
  }

  /** Closes the connection for good. No listener is called afterwards, and the store does not change. */
  close() {
    this.#isClosed = true;
    this.#closeReader();
    clearInterval(this.#tickTimer);
    clearTimeout(this.#notifyTimer);
    globalThis.removeEventListener?.("online", this.#retryNow);
    this.#listeners.clear();
    this.#frameListeners.clear();
    if (!this.#isFinal()) [this.#kind, this.#why] = ["away", "The page closed the connection."];
  }

  #isFinal() {
    return this.#kind === "ended" || this.#kind === "refused";
  }

  /** The names of the subscriptions: the run ids of several runs over a WebSocket, else one. */
  #subscriptionNames() {
    return this.#transport === "websocket" && this.#options.runs ? this.#options.runs : [SINGLE];
  }

  #closeReader() {
    this.#attempt += 1;
    clearTimeout(this.#retryTimer);
    this.#reader?.close();
    this.#reader = undefined;
    this.#roundTripMs = null;
  }

  #retryNow = () => {
    if (this.#kind === "away" && !this.#isCut) this.mend();
  };

  async #connect() {
    this.#closeReader();
    const attempt = this.#attempt;
    this.#lastActivityAt = performance.now();
    this.#setState("connecting", this.#kind === "connecting" ? this.#why : "");
    try {
      const reader = await (this.#transport === "websocket" ? this.#openSocket() : this.#openSse());
      if (attempt !== this.#attempt) return;
      this.#reader = reader(this.#readerListener(attempt));
    } catch (error) {
      if (attempt !== this.#attempt) return;
      const problem = /** @type {{ document?: ProblemDocument }} */ (error).document;
      this.#readerEnded({ kind: problem ? "problem" : "lost", why: reasonOf(error), problem });
    }
  }

  /** @returns {Promise<(on: ReaderListener) => Reader>} */
  async #openSse() {
    const { token, run, session } = this.#options;
    const fetch = this.#options.fetch ?? globalThis.fetch.bind(globalThis);
    const address = streamUrl(this.#options, this.#after.get(SINGLE) ?? "");
    if (!this.#usesEventSource) {
      const [bearer, { readByFetch }] = await Promise.all([token?.(), import("./sse-fetch.js")]);
      return (on) => readByFetch(address, bearer ? { authorization: `Bearer ${bearer}` } : {}, fetch, on);
    }
    const ticket = await ticketOf(this.#options, { for: "stream", ...(run && { run }), ...(session && { session }) });
    const url = ticket ? `${address}&ticket=${encodeURIComponent(ticket)}` : address;
    return (on) => readByEventSource(url, this.#options.EventSource ?? globalThis.EventSource, on);
  }

  /** @returns {Promise<(on: ReaderListener) => Reader>} */
  async #openSocket() {
    const { options, after } = { options: this.#options, after: this.#after };
    const WebSocket = options.WebSocket ?? globalThis.WebSocket;
    if (typeof WebSocket !== "function") throw new TypeError("This environment has no WebSocket. Pass one in the options or use the transport sse.");
    const [token, { readBySocket, socketUrl }] = await Promise.all([options.token?.(), import("./socket.js")]);
    const subscriptions = [...this.#openSubscriptions].map((name) => ({
      id: name === SINGLE ? "only" : name,
      ...(name !== SINGLE ? { run: name } : { run: options.run, session: options.session, lists: options.lists }),
      ...Object.fromEntries(filterQuery(options)),
      ...(after.get(name) ? { after: after.get(name) } : {}),
    }));
    return (on) => readBySocket(socketUrl(baseOf(options)), { token, subscriptions, pingMs: this.#timing.pingMs, WebSocket }, on);
  }

  /**
   * @param {number} attempt
   * @returns {ReaderListener}
   */
  #readerListener(attempt) {
    const isStale = () => attempt !== this.#attempt;
    return {
      opened: () => void (isStale() || this.#readerOpened()),
      activity: () => void (isStale() || (this.#lastActivityAt = performance.now())),
      frames: (frames) => void (isStale() || this.#receive(frames, isStale)),
      retry: (ms) => void (isStale() || (this.#retryMs = ms)),
      roundTrip: (ms) => void (isStale() || (this.#roundTripMs = ms)),
      ended: (end) => void (isStale() || this.#readerEnded(end)),
    };
  }

  #readerOpened() {
    if (this.#wasLive) this.#counts.resumes += 1;
    this.#wasLive = true;
    this.#lastActivityAt = performance.now();
    this.#setState("live", "");
  }

  /**
   * Accepts frames that arrived together.
   * @param {ReceivedFrame[]} frames
   * @param {() => boolean} isStale
   */
  #receive(frames, isStale) {
    const acceptAll = () => {
      for (const received of frames) {
        // The previous frame may have ended this attempt.
        if (isStale()) return;
        this.#accept(received);
      }
    };
    if (this.#store) this.#store.batch(acceptAll);
    else acceptAll();
    this.#notifySoon();
  }

  /** @param {ReceivedFrame} received */
  #accept({ frame, cursor, sub }) {
    const name = sub === undefined || sub === "only" ? SINGLE : sub;
    if (frame.frame === "Error") return this.#streamFailed(name, frame.problem);
    if (this.#isGap(frame)) {
      this.#counts.gaps += 1;
      return this.#scheduleRetry(`Frames before ${frame.sequence} are missing. Resuming at the last good cursor.`);
    }
    const fault = this.#store?.take(frame);
    if (fault) {
      this.#counts.faults += 1;
      return this.#scheduleRetry(`A change did not apply (${fault.why}). Requesting a snapshot.`);
    }
    [this.#failures, this.#authFailures, this.#problem] = [0, 0, undefined];
    this.#counts.frames += 1;
    this.#sequence = frame.sequence ?? this.#sequence;
    if (cursor) {
      this.#after.set(name, cursor);
      this.#cursor = cursor;
    }
    if (frame.frame === "End") this.#runEnded(name, frame.status);
    for (const listener of [...this.#frameListeners]) callListener(() => listener(frame, cursor));
  }

  /**
   * Whether frames are missing before this one. Snapshots that join or catch up have no `prev`. The frame after
   * `Hydrated` names its sequence. Frames of one envelope share their `prev`. The same gap after a resume is none: the
   * server has removed what was between.
   * @param {Frame} frame
   */
  #isGap(frame) {
    const log = logOf(frame);
    const last = this.#lastSequences.get(log);
    if (frame.frame === "Reset") this.#lastSequences.set(log, 0);
    if (frame.frame === "Hydrated") this.#lastSequences.set(log, frame.sequence);
    if (frame.prev === undefined) return false;
    if (last !== undefined && last !== frame.sequence && last !== frame.prev) {
      const gap = `${log} ${last} ${frame.prev}`;
      if (gap !== this.#gap) {
        this.#gap = gap;
        return true;
      }
    }
    this.#lastSequences.set(log, frame.sequence);
    return false;
  }

  /**
   * @param {string} name
   * @param {string} status
   */
  #runEnded(name, status) {
    // On one stream of several runs, `End` ends only its run.
    if (name === SINGLE && this.#options.run === undefined) return;
    this.#status = status;
    this.#openSubscriptions.delete(name);
    if (this.#openSubscriptions.size === 0) this.#finish("ended", status);
  }

  /**
   * Handles the problem with which the server ended a subscription.
   * @param {string} name
   * @param {ProblemDocument} problem
   */
  #streamFailed(name, problem) {
    const end = /** @type {ReaderEnd} */ ({ kind: "problem", why: problem.detail, problem });
    if (problem.code === "erased") this.#forget(name);
    if (this.#openSubscriptions.size > 1 && !this.#isRetryable(problem)) {
      // The other subscriptions continue.
      this.#openSubscriptions.delete(name);
      this.#refused.set(name, problem);
      return this.#setState(this.#kind, problem.detail);
    }
    this.#readerEnded(end);
  }

  /** What was erased must not stay on a page. One stream of several runs does not say which of them was. @param {string} name */
  #forget(name) {
    const { run, runs = run === undefined ? [] : [run] } = this.#options;
    for (const runId of name === SINGLE ? runs : [name]) this.#store?.take({ frame: "Reset", runId, sequence: 0, reason: "erased" });
    this.#after.delete(name);
  }

  /** @param {ProblemDocument} problem */
  #isRetryable({ status }) {
    // The token callback may return a newer token; it gets one chance.
    if (status === 401) return this.#options.token !== undefined && this.#authFailures === 0;
    return isTransient(status);
  }

  /** @param {ReaderEnd} end */
  #readerEnded({ kind, why, problem, retryAfterMs = 0 }) {
    this.#problem = problem;
    if (kind === "finished") return this.#finish("ended", why);
    if (problem && !this.#isRetryable(problem)) return this.#finish("refused", why);
    if (problem?.status === 401) this.#authFailures += 1;
    // `fetch` reports the status that `EventSource` hides.
    if (kind === "opaque" && this.#options.reader === undefined) this.#usesEventSource = false;
    this.#scheduleRetry(why, retryAfterMs);
  }

  /**
   * @param {"ended" | "refused"} kind
   * @param {string} why
   */
  #finish(kind, why) {
    this.#closeReader();
    this.#setState(kind, why);
  }

  /**
   * Schedules a reconnect. Half of the delay is random, so that the clients of a restarted server do not return at
   * once.
   * @param {string} why
   * @param {number} [atLeastMs]
   */
  #scheduleRetry(why, atLeastMs = 0) {
    this.#closeReader();
    const { retryMs, retryMaxMs } = this.#timing;
    // The server's delay counts unless the options set one.
    const first = this.#options.timing?.retryMs ?? Math.max(retryMs, this.#retryMs);
    const longest = Math.min(first * 2 ** this.#failures, retryMaxMs);
    this.#failures += 1;
    // Scheduled before listeners are notified, since a listener may call `cut` or `close`.
    this.#retryTimer = setTimeout(() => this.#connect(), Math.max(atLeastMs, longest * (0.5 + Math.random() / 2)));
    this.#setState("away", why);
  }

  #tick() {
    const idleMs = performance.now() - this.#lastActivityAt;
    if (this.#kind === "connecting" && idleMs > this.#timing.openMs) return this.#scheduleRetry("The server does not answer.");
    if (this.#kind !== "live") return;
    if (idleMs > this.#timing.silenceMs) {
      if (this.#options.reader === undefined) this.#usesEventSource = false;
      return this.#scheduleRetry("The server has been silent for too long.");
    }
    this.#notifySoon();
  }

  /**
   * @param {State["kind"]} kind
   * @param {string} why
   */
  #setState(kind, why) {
    [this.#kind, this.#why] = [kind, why];
    clearTimeout(this.#notifyTimer);
    this.#notifyTimer = undefined;
    this.#notify();
  }

  #notifySoon() {
    if (this.#isClosed) return;
    this.#notifyTimer ??= setTimeout(() => {
      this.#notifyTimer = undefined;
      this.#notify();
    }, COUNTS_NOTIFY_MS);
  }

  #notify() {
    if (this.#isClosed || this.#listeners.size === 0) return;
    const state = this.state;
    for (const listener of [...this.#listeners]) callListener(() => listener(state));
  }
}

/**
 * @param {Options} options
 * @returns {Options}
 */
function validated(options) {
  const { run, session, runs, lists } = options;
  if ([run, session, runs, lists].filter((one) => one !== undefined).length !== 1) throw new TypeError("Set exactly one of run, session, runs and lists.");
  if (runs && (runs.length === 0 || runs.length > RUNS_MAX)) throw new RangeError(`runs has ${runs.length} entries. It must have 1 to ${RUNS_MAX}.`);
  if (runs?.some((name) => name.includes(",")) && options.transport !== "websocket") throw new TypeError("Over SSE a run id cannot contain a comma. Use the transport websocket.");
  return { ...options, ...(runs && { runs: [...new Set(runs)] }) };
}

/**
 * Builds the query of the filter, for both transports.
 * @param {Options} options
 */
function filterQuery({ children, audience, surfaces, agentId, frames, replay }) {
  const query = new URLSearchParams();
  if (frames) query.set("frames", frames);
  if (audience) query.set("audience", audience);
  if (surfaces?.length) query.set("surfaces", surfaces.join(","));
  if (agentId) query.set("agentId", agentId);
  if (children) query.set("children", "true");
  if (replay) query.set("replay", "deltas");
  return query;
}

/**
 * @param {Options} options
 * @param {string} after
 */
function streamUrl(options, after) {
  const { run, session, runs, lists } = options;
  const query = filterQuery(options);
  for (const [name, value] of Object.entries(lists ?? {})) query.set(name, String(value));
  if (runs) query.set("runs", runs.join(","));
  if (after) query.set("after", after);
  const of = run !== undefined ? `/v1/runs/${pathSegment(run)}` : session !== undefined ? `/v1/sessions/${pathSegment(session)}` : lists ? "/v1/lists" : "/v1";
  return `${baseOf(options)}${of}/stream?${query}`;
}

/**
 * Fetches a ticket for a stream's address, where a token must not appear. Empty if there is no token.
 * @param {Options} options
 * @param {Record<string, string>} purpose
 */
async function ticketOf({ base, fetch, token: getToken }, purpose) {
  const token = await getToken?.();
  if (!token) return "";
  const response = await request({ base, fetch, token: () => token }, "/v1/tickets", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(purpose),
  });
  return String((await response.json()).ticket);
}

/**
 * @template {(...args: any[]) => void} L
 * @param {Set<L>} listeners
 * @param {L} listener
 */
function addListener(listeners, listener) {
  const wrapped = /** @type {L} */ ((...args) => listener(...args));
  listeners.add(wrapped);
  return () => void listeners.delete(wrapped);
}

/**
 * Calls a listener. An exception is rethrown later, so that the other listeners still run.
 * @param {() => void} call
 */
function callListener(call) {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => { throw error; });
  }
}

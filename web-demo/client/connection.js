/**
 * A connection: follows a run, several, or a session; fills a store; and comes back by itself with its cursor.
 *
 * It checks what it is told. Each frame says which one came before it (`prev`): if that is not the last one here, something
 * was lost, and the connection goes back to the last cursor that it is sure of. So it does when a change does not apply. What
 * came since is then told anew, as snapshots; nothing else is touched.
 */

import { ask, baseOf, isPassing, part } from "./http.js";
import { readByEventSource, readByFetch, reasonOf } from "./sse.js";
import { readBySocket, socketUrl } from "./socket.js";
import { logOf } from "./store.js";

/**
 * @typedef {import("./types.js").Frame} Frame
 * @typedef {import("./types.js").Options} Options
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 * @typedef {import("./types.js").State} State
 * @typedef {import("./types.js").Timing} Timing
 * @typedef {import("./sse.js").Came} Came
 * @typedef {import("./sse.js").Over} Over
 * @typedef {import("./sse.js").Reader} Reader
 * @typedef {import("./sse.js").Reading} Reading
 * @typedef {import("./store.js").Store} Store
 */

/** @type {Timing} The server sends a heartbeat every 15 s: three of them may be lost. */
const TIMING = { retryMs: 1000, retryMaxMs: 30_000, silenceMs: 45_000, pingMs: 15_000, openMs: 20_000 };
/** Runs that one connection may name. */
const RUNS_MAX = 256;
/** How often silence is looked for, and `lagMs` told, in milliseconds. */
const TICK_MS = 1000;
/** How long frames are counted before their number is told, in milliseconds. */
const COUNT_MS = 100;
/** The name of the one subscription that there is, where there are not several. */
const ONLY = "";

/**
 * Follows what the options name. It is on its way at once.
 * @param {Options} options
 * @param {Store} [store] It may be left out where `listen` is all that is wanted.
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
    this.#options = checked(options);
    this.#store = store;
    this.#timing = { ...TIMING, ...options.timing };
    this.#transport = options.transport ?? "sse";
    const EventSource = options.EventSource ?? globalThis.EventSource;
    this.#byEventSource = options.reader ? options.reader === "eventsource" : typeof EventSource === "function" && !options.fetch;
    for (const name of this.#names()) this.#open.add(name);
    const { after } = options;
    if (typeof after === "string") this.#open.forEach((name) => this.#after.set(name, after));
    else for (const [run, cursor] of Object.entries(after ?? {})) this.#after.set(run, cursor);
    globalThis.addEventListener?.("online", this.#hurry);
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
    this.#connect();
  }

  #options;
  #store;
  #timing;
  #transport;
  /** Whether SSE is still read by `EventSource`: until it meets what it cannot see, unless nothing else is wanted. */
  #byEventSource;

  /** Subscriptions that have not ended. @type {Set<string>} */
  #open = new Set();
  /** Those of several that the server said no to. @type {Map<string, ProblemDocument>} */
  #refused = new Map();
  /** Where each goes on from. @type {Map<string, string>} */
  #after = new Map();
  /** Where the last frame of each log stood. @type {Map<string, number>} */
  #last = new Map();
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

  /** What is being tried; whatever an older one says means nothing. */
  #attempt = 0;
  /** @type {Reader | undefined} */
  #reader;
  #failures = 0;
  /** How often in a row nobody was known to be there. */
  #unknowns = 0;
  #wasLive = false;
  #isCut = false;
  #isClosed = false;
  #retryMs = 0;
  /** When the line last gave a sign of life, by `performance.now()`. */
  #heardAt = 0;
  /** @type {number | null} */
  #echoMs = null;

  /** @type {Set<(state: State) => void>} */
  #listeners = new Set();
  /** @type {Set<(frame: Frame, cursor: string) => void>} */
  #frameListeners = new Set();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #ticking;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #waiting;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #telling;

  /** How it stands at this moment. @returns {State} */
  get state() {
    const isLive = this.#kind === "live";
    const sinceMs = isLive ? Math.max(0, performance.now() - this.#heardAt) : null;
    const lagMs = this.#transport === "sse" ? sinceMs : isLive ? this.#echoMs : null;
    return {
      kind: this.#kind,
      why: this.#why,
      cursor: this.#cursor,
      cursors: Object.fromEntries([...this.#after].filter(([name]) => name !== ONLY)),
      sequence: this.#sequence,
      lagMs: lagMs === null ? null : Math.round(lagMs),
      ...this.#counts,
      transport: this.#transport,
      reader: this.#transport === "websocket" ? "websocket" : this.#byEventSource ? "eventsource" : "fetch",
      ...(this.#status === undefined ? {} : { status: this.#status }),
      ...(this.#problem === undefined ? {} : { problem: this.#problem }),
      ...(this.#refused.size === 0 ? {} : { refused: Object.fromEntries(this.#refused) }),
    };
  }

  /**
   * Hears of every change of `kind` at once, of counts at most ten times a second, and of `lagMs` once a second.
   * @param {(state: State) => void} listener
   * @returns {() => void} Ends it.
   */
  subscribe(listener) {
    return listening(this.#listeners, listener);
  }

  /**
   * Hears of every frame, after the store has taken it.
   * @param {(frame: Frame, cursor: string) => void} listener The cursor is empty, where a frame has none.
   * @returns {() => void} Ends it.
   */
  listen(listener) {
    return listening(this.#frameListeners, listener);
  }

  /** Whether it was cut, and not mended since. */
  get isCut() {
    return this.#isCut;
  }

  /** Drops the connection and stays away, as a network would that is gone. */
  cut() {
    if (this.#isClosed || this.#isCut || this.#isDone()) return;
    this.#isCut = true;
    this.#drop();
    this.#become("away", "cut");
  }

  /** Comes back at once: after `cut`, instead of waiting, or although it was refused. */
  mend() {
    if (this.#isClosed || this.#kind === "ended" || this.#kind === "live") return;
    this.#isCut = false;
    [this.#failures, this.#unknowns] = [0, 0];
    for (const name of this.#refused.keys()) this.#open.add(name);
    this.#refused.clear();
    this.#connect();
  }

  /** Ends it for good. Nobody is told anything after that, and the store is not changed. */
  close() {
    this.#isClosed = true;
    this.#drop();
    clearInterval(this.#ticking);
    clearTimeout(this.#telling);
    globalThis.removeEventListener?.("online", this.#hurry);
    this.#listeners.clear();
    this.#frameListeners.clear();
    if (!this.#isDone()) [this.#kind, this.#why] = ["away", "closed"];
  }

  #isDone() {
    return this.#kind === "ended" || this.#kind === "refused";
  }

  /** Names of what is subscribed to one by one: of several runs over a WebSocket their ids. */
  #names() {
    return this.#transport === "websocket" && this.#options.runs ? this.#options.runs : [ONLY];
  }

  #drop() {
    this.#attempt += 1;
    clearTimeout(this.#waiting);
    this.#reader?.close();
    this.#reader = undefined;
    this.#echoMs = null;
  }

  #hurry = () => {
    if (this.#kind === "away" && !this.#isCut) this.mend();
  };

  async #connect() {
    this.#drop();
    const attempt = this.#attempt;
    this.#heardAt = performance.now();
    this.#become("connecting", this.#kind === "connecting" ? this.#why : "");
    try {
      const reader = await (this.#transport === "websocket" ? this.#bySocket() : this.#bySse());
      if (attempt !== this.#attempt) return;
      this.#reader = reader(this.#reading(attempt));
    } catch (error) {
      if (attempt !== this.#attempt) return;
      const problem = /** @type {{ document?: ProblemDocument }} */ (error).document;
      this.#over({ kind: problem ? "problem" : "lost", why: reasonOf(error), problem });
    }
  }

  /** @returns {Promise<(on: Reading) => Reader>} */
  async #bySse() {
    const { token, run, session } = this.#options;
    const fetch = this.#options.fetch ?? globalThis.fetch.bind(globalThis);
    const address = streamUrl(this.#options, this.#after.get(ONLY) ?? "");
    if (!this.#byEventSource) {
      const bearer = await token?.();
      return (on) => readByFetch(address, bearer ? { authorization: `Bearer ${bearer}` } : {}, fetch, on);
    }
    const ticket = await ticketOf(this.#options, { for: "stream", ...(run && { run }), ...(session && { session }) });
    const url = ticket ? `${address}&ticket=${encodeURIComponent(ticket)}` : address;
    return (on) => readByEventSource(url, this.#options.EventSource ?? globalThis.EventSource, on);
  }

  /** @returns {Promise<(on: Reading) => Reader>} */
  async #bySocket() {
    const { options, after } = { options: this.#options, after: this.#after };
    const WebSocket = options.WebSocket ?? globalThis.WebSocket;
    if (typeof WebSocket !== "function") throw new TypeError("there is no WebSocket here; give one in the options, or use sse");
    const token = await options.token?.();
    const subscriptions = [...this.#open].map((name) => ({
      id: name === ONLY ? "only" : name,
      ...(name !== ONLY ? { run: name } : options.session === undefined ? { run: options.run } : { session: options.session }),
      ...Object.fromEntries(selection(options)),
      ...(after.get(name) ? { after: after.get(name) } : {}),
    }));
    return (on) => readBySocket(socketUrl(baseOf(options)), { token, subscriptions, pingMs: this.#timing.pingMs, WebSocket }, on);
  }

  /**
   * @param {number} attempt
   * @returns {Reading}
   */
  #reading(attempt) {
    const isOld = () => attempt !== this.#attempt;
    return {
      opened: () => void (isOld() || this.#opened()),
      heard: () => void (isOld() || (this.#heardAt = performance.now())),
      came: (came) => void (isOld() || this.#came(came, isOld)),
      retry: (ms) => void (isOld() || (this.#retryMs = ms)),
      echo: (ms) => void (isOld() || (this.#echoMs = ms)),
      over: (over) => void (isOld() || this.#over(over)),
    };
  }

  #opened() {
    if (this.#wasLive) this.#counts.resumes += 1;
    this.#wasLive = true;
    this.#heardAt = performance.now();
    this.#become("live", "");
  }

  /**
   * Takes frames that came at once.
   * @param {Came[]} came
   * @param {() => boolean} isOld
   */
  #came(came, isOld) {
    const take = () => {
      for (const one of came) {
        // The frame before may have ended this.
        if (isOld()) return;
        this.#take(one);
      }
    };
    if (this.#store) this.#store.batch(take);
    else take();
    this.#soon();
  }

  /** @param {Came} came */
  #take({ frame, cursor, sub }) {
    const name = sub === undefined || sub === "only" ? ONLY : sub;
    if (frame.frame === "Error") return this.#failed(name, frame.problem);
    if (this.#isGap(frame)) {
      this.#counts.gaps += 1;
      return this.#again(`something is missing before ${frame.sequence}: going back to where nothing was`);
    }
    const fault = this.#store?.take(frame);
    if (fault) {
      this.#counts.faults += 1;
      return this.#again(`a change did not apply (${fault.why}): a snapshot is asked for`);
    }
    [this.#failures, this.#unknowns, this.#problem] = [0, 0, undefined];
    this.#counts.frames += 1;
    this.#sequence = frame.sequence;
    if (cursor) {
      this.#after.set(name, cursor);
      this.#cursor = cursor;
    }
    if (frame.frame === "End") this.#ended(name, frame.status);
    for (const listener of [...this.#frameListeners]) told(() => listener(frame, cursor));
  }

  /**
   * Whether something is missing before a frame. Snapshots that join or catch up have no `prev`; what follows `Hydrated`
   * follows its sequence. Frames of one envelope share theirs.
   * @param {Frame} frame
   */
  #isGap(frame) {
    const log = logOf(frame);
    const last = this.#last.get(log);
    if (frame.frame === "Reset") this.#last.set(log, 0);
    if (frame.frame === "Hydrated") this.#last.set(log, frame.sequence);
    if (frame.prev === undefined) return false;
    if (last !== undefined && last !== frame.sequence && last !== frame.prev) return true;
    this.#last.set(log, frame.sequence);
    return false;
  }

  /**
   * @param {string} name
   * @param {string} status
   */
  #ended(name, status) {
    // On one stream of several runs, `End` ends nothing but its run.
    if (name === ONLY && this.#options.run === undefined) return;
    this.#status = status;
    this.#open.delete(name);
    if (this.#open.size === 0) this.#done("ended", status);
  }

  /**
   * The server ended a stream, and says why.
   * @param {string} name
   * @param {ProblemDocument} problem
   */
  #failed(name, problem) {
    const over = /** @type {Over} */ ({ kind: "problem", why: problem.detail, problem });
    if (this.#open.size > 1 && !this.#isWorthAnother(problem)) {
      // The others go on.
      this.#open.delete(name);
      this.#refused.set(name, problem);
      return this.#become(this.#kind, problem.detail);
    }
    this.#over(over);
  }

  /** @param {ProblemDocument} problem */
  #isWorthAnother({ status }) {
    // A token may give a newer one, once.
    if (status === 401) return this.#options.token !== undefined && this.#unknowns === 0;
    return isPassing(status);
  }

  /** @param {Over} over */
  #over({ kind, why, problem, retryAfterMs = 0 }) {
    this.#problem = problem;
    if (kind === "nothing") return this.#done("ended", why);
    if (problem && !this.#isWorthAnother(problem)) return this.#done("refused", why);
    if (problem?.status === 401) this.#unknowns += 1;
    // What `EventSource` cannot see, `fetch` can.
    if (kind === "unseen" && this.#options.reader === undefined) this.#byEventSource = false;
    this.#again(why, retryAfterMs);
  }

  /**
   * @param {"ended" | "refused"} kind
   * @param {string} why
   */
  #done(kind, why) {
    this.#drop();
    this.#become(kind, why);
  }

  /**
   * Comes back after a while. Many clients that lost their server at once must not come back at once.
   * @param {string} why
   * @param {number} [atLeastMs]
   */
  #again(why, atLeastMs = 0) {
    this.#drop();
    const { retryMs, retryMaxMs } = this.#timing;
    // The server's word counts, unless somebody here has said otherwise.
    const first = this.#options.timing?.retryMs ?? Math.max(retryMs, this.#retryMs);
    const longest = Math.min(first * 2 ** this.#failures, retryMaxMs);
    this.#failures += 1;
    // First, for whoever is told may want it otherwise.
    this.#waiting = setTimeout(() => this.#connect(), Math.max(atLeastMs, longest * (0.5 + Math.random() / 2)));
    this.#become("away", why);
  }

  #tick() {
    const quietMs = performance.now() - this.#heardAt;
    if (this.#kind === "connecting" && quietMs > this.#timing.openMs) return this.#again("no answer");
    if (this.#kind !== "live") return;
    if (quietMs > this.#timing.silenceMs) {
      if (this.#options.reader === undefined) this.#byEventSource = false;
      return this.#again("nothing was heard for too long");
    }
    this.#soon();
  }

  /**
   * @param {State["kind"]} kind
   * @param {string} why
   */
  #become(kind, why) {
    [this.#kind, this.#why] = [kind, why];
    clearTimeout(this.#telling);
    this.#telling = undefined;
    this.#tell();
  }

  #soon() {
    if (this.#isClosed) return;
    this.#telling ??= setTimeout(() => {
      this.#telling = undefined;
      this.#tell();
    }, COUNT_MS);
  }

  #tell() {
    if (this.#isClosed || this.#listeners.size === 0) return;
    const state = this.state;
    for (const listener of [...this.#listeners]) told(() => listener(state));
  }
}

/**
 * @param {Options} options
 * @returns {Options}
 */
function checked(options) {
  const { run, session, runs } = options;
  if ([run, session, runs].filter((one) => one !== undefined).length !== 1) throw new TypeError("one of run, session and runs has to be there, and no more");
  if (runs && (runs.length === 0 || runs.length > RUNS_MAX)) throw new RangeError(`runs names ${runs.length} runs; it must name 1 to ${RUNS_MAX}`);
  if (runs?.some((name) => name.includes(",")) && options.transport !== "websocket") throw new TypeError("over SSE the names of runs are separated by commas, and can have none; use websocket");
  return { ...options, ...(runs && { runs: [...new Set(runs)] }) };
}

/**
 * What every way of reading is asked for.
 * @param {Options} options
 */
function selection({ children, audience, surfaces, agentId, frames, replay }) {
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
  const { run, session, runs } = options;
  const query = selection(options);
  if (runs) query.set("runs", runs.join(","));
  if (after) query.set("after", after);
  const of = run !== undefined ? `/v1/runs/${part(run)}` : session !== undefined ? `/v1/sessions/${part(session)}` : "/v1";
  return `${baseOf(options)}${of}/stream?${query}`;
}

/**
 * A ticket to stand in an address, where a token must not; nothing, where nobody has a token.
 * @param {Options} options
 * @param {Record<string, string>} purpose
 */
async function ticketOf({ base, fetch, token: give }, purpose) {
  const token = await give?.();
  if (!token) return "";
  const answer = await ask({ base, fetch, token: () => token }, "/v1/tickets", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(purpose),
  });
  return String((await answer.json()).ticket);
}

/**
 * @template {(...told: any[]) => void} L
 * @param {Set<L>} listeners
 * @param {L} listener
 */
function listening(listeners, listener) {
  const own = /** @type {L} */ ((...what) => listener(...what));
  listeners.add(own);
  return () => void listeners.delete(own);
}

/**
 * Tells somebody; whoever fails does not keep others from being told.
 * @param {() => void} tell
 */
function told(tell) {
  try {
    tell();
  } catch (error) {
    queueMicrotask(() => { throw error; });
  }
}

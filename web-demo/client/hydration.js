/**
 * Hydration: reads existing data by REST in the order in which a client needs it, and drops answers that arrive too
 * late.
 *
 * A client that switches to another session calls `activate`. Every earlier call then fails with `Stale`, so a late
 * answer cannot overwrite the current session. Each call also sends its activation to the server, which returns it:
 * this detects an answer that a proxy or cache mixed up.
 */

import { readJson } from "./json.js";
import { request, pathSegment } from "./http.js";

/**
 * @typedef {import("./types.js").Activity} Activity
 * @typedef {import("./types.js").Audience} Audience
 * @typedef {import("./types.js").Envelope} Envelope
 *
 * @typedef {import("./http.js").Server & { audience?: Audience }} HydrationOptions
 *
 * @typedef {object} Call The options of every call.
 * @property {AbortSignal} [signal] Aborts the call, which then fails with the signal's reason.
 * @property {Audience} [audience] Overrides the audience of this `Hydration`.
 * @typedef {Call & { limit?: number, cursor?: string }} PageCall `limit`: items per page, 1 to 1000. `cursor`: `nextCursor`
 * of the previous page.
 *
 * @typedef {object} RunLine The summary of a run for an audience. Unknown members are absent.
 * @property {string} runId
 * @property {string} [sessionId]
 * @property {string} [threadId]
 * @property {string} [parentSessionId]
 * @property {string} status accepted, running, waiting, completed, failed, cancelled, interrupted or unknown.
 * @property {string} phase
 * @property {number} attempt
 * @property {boolean} [stale] Its runtime has sent nothing for a long time.
 * @property {boolean} [synthetic] The server ended it, not its runtime.
 * @property {string} epoch
 * @property {number} lastSequence
 * @property {{ events: number, pendingActions: number }} counts
 * @property {string} [startedAt] RFC 3339, as are the other times.
 * @property {string} [endedAt]
 * @property {string} [lastActivity]
 * @property {string} [title]
 * @property {string} [preview]
 * @property {string} [agentId]
 * @property {string} [source] The kind of its source.
 * @property {number} [durationMs]
 * @property {{ inputTokens?: number, outputTokens?: number, costUsd?: number }} [usage] What the audience sees of it.
 * @property {SessionLine["highlight"]} [highlight]
 * @property {boolean} [compacted] Compaction has removed its transient events.
 *
 * @typedef {object} SessionLine The summary of a session.
 * @property {string} sessionId
 * @property {string} status
 * @property {{ runs: number, pendingActions: number, pendingActionsBelow?: number, unanswered?: number }} counts `pendingActions`
 * includes those of child sessions; `pendingActionsBelow` counts only those. `unanswered`: without those whose decision is
 * under way.
 * @property {string} [title]
 * @property {string} [preview]
 * @property {"user" | "source" | "message"} [titleFrom] Whose the title is: a person's, the runtime's, or made of the first message.
 * @property {boolean | number} [unread] By the marks of the token's `sub`; without one the source's, as is `pinned`.
 * @property {boolean} [pinned]
 * @property {boolean} [archived]
 * @property {boolean} [stale] Set by the source or by the server.
 * @property {string} [lastActivity]
 * @property {string} [parentSessionId]
 * @property {{ sessionId: string, runId: string, sequence: number }} [parent] Where a branch leaves.
 * @property {"state" | "transcript" | "none"} [fork] What the agent of a branch knows of what came before.
 * @property {string} [head] The branch that existing clients read and write by the id of this session.
 * @property {{ kind: "question" | "error" | "match", text: string, runId?: string, sequence?: number, messageId?: string, sessionId?: string }} [highlight]
 * Why it needs a look, or the text that a search found. `runId`, `sequence` and `messageId` say where that text is.
 *
 * @typedef {object} Page
 * @property {string | null} nextCursor The cursor of the next page; `null` after the last.
 * @property {string} [activation]
 *
 * @typedef {Page & { runs: RunLine[], total?: number, facets?: Record<string, Record<string, number>> }} Runs `facets`: how many of the
 * `total` that match have each value, by name.
 * @typedef {Page & { sessions: SessionLine[] }} Sessions
 * @typedef {SessionLine & { runs: RunLine[], truncated: boolean, children: string[], pendingActions: Activity[], queue: Activity[], tasks: Activity[], team: Activity[], root?: string, branches?: import("./types.js").Branch[] }} Session
 * @typedef {Page & { sessionId: string, messages: Activity[], truncated: boolean, deferred: string[] }} Window
 * @typedef {Page & { sessionId: string, items: Activity[], truncated: boolean }} Timeline
 * @typedef {{ runId: string, epoch: string, sequence: number, cursor: string, activities: (Omit<Activity, "runId"> & { runId?: string })[] }} Activities
 * @typedef {Page & { events: Envelope[], truncated: boolean, epoch: string, holes?: [number, number][] }} Events
 * @typedef {Page & { controls: Record<string, any>[] }} Controls
 *
 * @typedef {object} Body An offloaded body or a range of it.
 * @property {Blob} blob
 * @property {number | null} size The size of the whole body in bytes; `null` if unknown.
 * @property {boolean} isWhole
 */

/** The call belongs to an earlier activation. This is not a failure: the client has switched to something else. */
export class Stale extends Error {
  /** @param {string} activation The activation of the call. */
  constructor(activation) {
    super("The call belongs to an earlier activation.");
    this.name = "Stale";
    this.activation = activation;
  }
}

/** The number of instances in this page. It makes their activations distinct. */
let hydrations = 0;

export class Hydration {
  /** @param {HydrationOptions} [options] */
  constructor(options = {}) {
    this.#options = options;
    this.#id = (hydrations += 1);
  }

  #options;
  #id;
  #activations = 0;
  /** Aborts the calls of the current activation. */
  #abort = new AbortController();

  /** The current activation. */
  get activation() {
    return `${this.#id}-${this.#activations}`;
  }

  /**
   * Begins a new activation: every earlier call fails with `Stale`.
   * @returns {string} The new activation.
   */
  activate() {
    this.#abort.abort(new Stale(this.activation));
    this.#abort = new AbortController();
    this.#activations += 1;
    return this.activation;
  }

  /**
   * Reads sessions, newest first.
   * @param {PageCall & { status?: string, q?: string, in?: "title" | "text", needsAction?: boolean, archived?: boolean | "all", sort?: "created" | "updated" }} [call]
   * Filters: by status, by words in title, preview or id, or in texts (`in: "text"`), by pending actions; archived ones only
   * if it asks for them.
   * @returns {Promise<Sessions>}
   */
  async sessions(call) {
    return this.#get("/v1/sessions", call);
  }

  /**
   * Reads runs, newest first.
   * @param {PageCall & { filter?: string, sort?: string, offset?: number }} [call] `filter`: words and terms, such as
   * `status:failed cost:>1 since:7d`. `sort`: `started`, `ended`, `cost`, `tokens` or `duration`; descending with `-` before
   * it. `offset`: how many runs the page leaves out; not with words.
   * @returns {Promise<Runs>}
   */
  async runs(call) {
    return this.#get("/v1/runs", call);
  }

  /** Reads a session's summary, runs, pending actions, queue, tasks and team. @param {string} id @param {Call} [call] @returns {Promise<Session>} */
  async session(id, call) {
    return this.#get(`/v1/sessions/${pathSegment(id)}`, call);
  }

  /**
   * Reads a session's recent messages, in order; older ones by `cursor`.
   * @param {string} id
   * @param {Call & { messages?: number, cursor?: string }} [call] `messages`: 1 to 1000; default 50.
   * @returns {Promise<Window>}
   */
  async window(id, call) {
    return this.#get(`/v1/sessions/${pathSegment(id)}/window`, call);
  }

  /** Reads a session's process details, newest page first. @param {string} id @param {PageCall} [call] @returns {Promise<Timeline>} */
  async timeline(id, call) {
    return this.#get(`/v1/sessions/${pathSegment(id)}/timeline`, call);
  }

  /**
   * Reads the activities of all runs of a session: now, or as of a cursor of its stream.
   * @param {string} id
   * @param {Call & { at?: string, surfaces?: string[], cursor?: string | number }} [call] `cursor`: the next page.
   * @returns {Promise<Page & { activities: Activity[] }>}
   */
  async sessionActivities(id, call) {
    return this.#get(`/v1/sessions/${pathSegment(id)}/activities`, call);
  }

  /**
   * Reads envelopes of all runs of a session by page, in commit order.
   * @param {string} id
   * @param {Call & { after?: number | string, before?: number | string, limit?: number }} [call]
   * @returns {Promise<Page & { events: Envelope[], cursors: string[] }>} `cursors`: the place after each envelope.
   */
  async sessionEvents(id, call) {
    return this.#get(`/v1/sessions/${pathSegment(id)}/events`, call);
  }

  /** Reads the summary of a run. @param {string} id @param {Call} [call] @returns {Promise<RunLine>} */
  async run(id, call) {
    return this.#get(`/v1/runs/${pathSegment(id)}`, call);
  }

  /**
   * Reads the activities of a run: now, or as of any sequence.
   * @param {string} id
   * @param {Call & { at?: number, surfaces?: string[], agentId?: string }} [call]
   * @returns {Promise<Activities>} Pass `activities` to `store.load`; `cursor` joins the live stream.
   */
  async activities(id, call) {
    return this.#get(`/v1/runs/${pathSegment(id)}/activities`, call);
  }

  /**
   * Reads envelopes of a run by page, in order: the first after `after`, or the last before `before` if only that is
   * given.
   * @param {string} id
   * @param {Call & { after?: number | string, before?: number | string, limit?: number, type?: string[], surfaces?: string[], agentId?: string }} [call]
   * `after`, `before`: a sequence, or a `nextCursor`. `limit`: 1 to 1000.
   * @returns {Promise<Events>} `holes`: ranges of sequences that compaction removed.
   */
  async events(id, call) {
    return this.#get(`/v1/runs/${pathSegment(id)}/events`, call);
  }

  /** Reads the controls of a run and their states. @param {string} id @param {PageCall} [call] @returns {Promise<Controls>} */
  async controls(id, call) {
    return this.#get(`/v1/runs/${pathSegment(id)}/controls`, call);
  }

  /**
   * Reads an offloaded body.
   * @param {string} href `/v1/blobs/…`. Any other path fails: a source wrote the reference, and the request carries a token.
   * @param {Call & { from?: number, to?: number }} [call] The byte range from `from` to `to`, both inclusive. Default: all.
   * @returns {Promise<Body>}
   */
  async blob(href, { from, to, ...call } = {}) {
    if (!/^\/v1\/blobs\/[^/?#\\]+$/.test(href) || href.endsWith("/..") || href.endsWith("/.")) throw new TypeError(`${JSON.stringify(href)} is not the path of a body on this server. It must be /v1/blobs/{id}.`);
    const range = from === undefined && to === undefined ? undefined : `bytes=${from ?? 0}-${to ?? ""}`;
    return this.#whileActive(call.signal, async (signal) => {
      const response = await request(this.#options, `${href}?${this.#query(call)}`, { signal, headers: range ? { range } : {} });
      const blob = await response.blob();
      const total = response.headers.get("content-range")?.match(/\/(\d+)$/)?.[1];
      const size = total ? Number(total) : response.status === 200 ? blob.size : null;
      return { blob, size, isWhole: response.status === 200 || blob.size === size };
    });
  }

  /**
   * @param {string} path
   * @param {Call & Record<string, any>} [call]
   * @returns {Promise<any>}
   */
  #get(path, call = {}) {
    const activation = this.activation;
    return this.#whileActive(call.signal, async (signal) => {
      const query = this.#query(call);
      query.set("activation", activation);
      const response = await readJson(await request(this.#options, `${path}?${query}`, { signal }));
      if (response.activation !== activation) throw new Stale(activation);
      return response;
    });
  }

  /** @param {Call & Record<string, any>} call */
  #query({ signal, ...call }) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ audience: this.#options.audience, ...call })) {
      if (value === undefined || (Array.isArray(value) && value.length === 0)) continue;
      query.set(name, Array.isArray(value) ? value.join(",") : String(value));
    }
    return query;
  }

  /**
   * Runs a call until its activation ends or the caller aborts it.
   * @template T
   * @param {AbortSignal | undefined} callerSignal
   * @param {(signal: AbortSignal) => Promise<T>} work
   * @returns {Promise<T>}
   */
  async #whileActive(callerSignal, work) {
    const activationSignal = this.#abort.signal;
    const combined = new AbortController();
    const forward = (/** @type {AbortSignal} */ signal) => () => combined.abort(signal.reason);
    const sources = [activationSignal, ...(callerSignal ? [callerSignal] : [])].map((signal) => ({ signal, forwarder: forward(signal) }));
    for (const { signal, forwarder } of sources) {
      if (signal.aborted) forwarder();
      signal.addEventListener("abort", forwarder);
    }
    try {
      combined.signal.throwIfAborted();
      const response = await work(combined.signal);
      // The activation may have ended in the meantime.
      combined.signal.throwIfAborted();
      return response;
    } catch (error) {
      // An error of an aborted call is irrelevant; the reason of the abort counts.
      throw combined.signal.aborted ? combined.signal.reason : error;
    } finally {
      for (const { signal, forwarder } of sources) signal.removeEventListener("abort", forwarder);
    }
  }
}

/**
 * What is there already, by REST, in the order in which a client hydrates; safe against answers that come too late.
 *
 * Whoever turns to another session calls `activate`. From then on every older call fails with `Stale`, whatever the server
 * still answers: nothing late can overwrite what is looked at now. Each call also carries its activation to the server and
 * back, so that an answer that somebody else mixed up is told apart, too.
 */

import { ask, part } from "./http.js";

/**
 * @typedef {import("./types.js").Activity} Activity
 * @typedef {import("./types.js").Audience} Audience
 * @typedef {import("./types.js").Envelope} Envelope
 *
 * @typedef {import("./http.js").Server & { audience?: Audience }} HydrationOptions
 *
 * @typedef {object} Call What every call takes.
 * @property {AbortSignal} [signal] Gives up: the call fails with the signal's reason.
 * @property {Audience} [audience] Instead of the one that was given to all.
 * @typedef {Call & { limit?: number, cursor?: string }} PageCall `limit`: items of the page, 1 to 1000. `cursor`: the `nextCursor` of the page before.
 *
 * @typedef {object} RunLine A run, as an audience sees it. What is not known is absent.
 * @property {string} runId
 * @property {string} [sessionId]
 * @property {string} [threadId]
 * @property {string} [parentSessionId]
 * @property {string} status accepted, running, waiting, completed, failed, cancelled, interrupted or unknown.
 * @property {string} phase
 * @property {number} attempt
 * @property {boolean} [stale] Nothing was heard of it for long.
 * @property {boolean} [synthetic] It was the server that ended it.
 * @property {string} epoch
 * @property {number} lastSequence
 * @property {{ events: number, pendingActions: number }} counts
 * @property {string} [startedAt] RFC 3339, as are the other times.
 * @property {string} [endedAt]
 * @property {string} [lastActivity]
 * @property {string} [title]
 * @property {string} [preview]
 * @property {boolean} [compacted] What was of use only while it was live is gone.
 *
 * @typedef {object} SessionLine A session in a list.
 * @property {string} sessionId
 * @property {string} status
 * @property {{ runs: number, pendingActions: number, pendingActionsBelow?: number }} counts Pending actions include those of child sessions, which are counted again by themselves.
 * @property {string} [title]
 * @property {string} [preview]
 * @property {boolean | number} [unread] As its source says, like `pinned`.
 * @property {boolean} [pinned]
 * @property {boolean} [stale] By its source, or by the server.
 * @property {string} [lastActivity]
 * @property {string} [parentSessionId]
 *
 * @typedef {object} Page
 * @property {string | null} nextCursor Asks for the next page; `null` after the last.
 * @property {string} [activation]
 *
 * @typedef {Page & { runs: RunLine[] }} Runs
 * @typedef {Page & { sessions: SessionLine[] }} Sessions
 * @typedef {SessionLine & { runs: RunLine[], truncated: boolean, children: string[], pendingActions: Activity[], queue: Activity[], tasks: Activity[], team: Activity[] }} Session
 * @typedef {Page & { sessionId: string, messages: Activity[], truncated: boolean, deferred: string[] }} Window
 * @typedef {Page & { sessionId: string, items: Activity[], truncated: boolean }} Timeline
 * @typedef {{ runId: string, epoch: string, sequence: number, cursor: string, activities: (Omit<Activity, "runId"> & { runId?: string })[] }} Activities
 * @typedef {Page & { events: Envelope[], truncated: boolean, epoch: string, holes?: [number, number][] }} Events
 * @typedef {Page & { controls: Record<string, any>[] }} Controls
 *
 * @typedef {object} Body An offloaded body, or a part of it.
 * @property {Blob} blob
 * @property {number | null} size Of the whole, in bytes; `null` if the server did not say.
 * @property {boolean} isWhole
 */

/** An answer to what nobody looks at any more. It is no failure: whoever asked has turned elsewhere. */
export class Stale extends Error {
  /** @param {string} activation The one that it was asked for. */
  constructor(activation) {
    super("something else is looked at by now");
    this.name = "Stale";
    this.activation = activation;
  }
}

/** Hydrations in this tab; two of them must never take each other's answers for theirs. */
let hydrations = 0;

export class Hydration {
  /** @param {HydrationOptions} [options] */
  constructor(options = {}) {
    this.#options = options;
    this.#name = (hydrations += 1);
  }

  #options;
  #name;
  #activations = 0;
  /** Gives up what was asked for under the activation that stands. */
  #over = new AbortController();

  /** The activation that stands. */
  get activation() {
    return `${this.#name}-${this.#activations}`;
  }

  /**
   * Turns to something else: every call before this fails with `Stale`.
   * @returns {string} The new activation.
   */
  activate() {
    this.#over.abort(new Stale(this.activation));
    this.#over = new AbortController();
    this.#activations += 1;
    return this.activation;
  }

  /**
   * Sessions, the newest first.
   * @param {PageCall & { status?: string, q?: string, needsAction?: boolean }} [call] Only those with this status, with these words in
   * title, preview or id, or with pending actions.
   * @returns {Promise<Sessions>}
   */
  async sessions(call) {
    return this.#get("/v1/sessions", call);
  }

  /** Runs, the newest first. @param {PageCall} [call] @returns {Promise<Runs>} */
  async runs(call) {
    return this.#get("/v1/runs", call);
  }

  /** A session's shell and what needs attention. @param {string} id @param {Call} [call] @returns {Promise<Session>} */
  async session(id, call) {
    return this.#get(`/v1/sessions/${part(id)}`, call);
  }

  /**
   * A session's recent messages, in order; those before them by `cursor`.
   * @param {string} id
   * @param {Call & { messages?: number, cursor?: string }} [call] `messages`: 1 to 1000; 50 if it is left out.
   * @returns {Promise<Window>}
   */
  async window(id, call) {
    return this.#get(`/v1/sessions/${part(id)}/window`, call);
  }

  /** A session's process details, the newest window first. @param {string} id @param {PageCall} [call] @returns {Promise<Timeline>} */
  async timeline(id, call) {
    return this.#get(`/v1/sessions/${part(id)}/timeline`, call);
  }

  /**
   * The activities of all runs of a session: now, or as of a cursor of its stream.
   * @param {string} id
   * @param {Call & { at?: string, surfaces?: string[] }} [call]
   * @returns {Promise<Page & { activities: Activity[] }>}
   */
  async sessionActivities(id, call) {
    return this.#get(`/v1/sessions/${part(id)}/activities`, call);
  }

  /**
   * Envelopes of all runs of a session by page, in commit order.
   * @param {string} id
   * @param {Call & { after?: number | string, before?: number | string, limit?: number }} [call]
   * @returns {Promise<Page & { events: Envelope[] }>}
   */
  async sessionEvents(id, call) {
    return this.#get(`/v1/sessions/${part(id)}/events`, call);
  }

  /** How a run stands. @param {string} id @param {Call} [call] @returns {Promise<RunLine>} */
  async run(id, call) {
    return this.#get(`/v1/runs/${part(id)}`, call);
  }

  /**
   * What there is to see of a run: now, or as of any sequence.
   * @param {string} id
   * @param {Call & { at?: number, surfaces?: string[], agentId?: string }} [call]
   * @returns {Promise<Activities>} `store.load` takes its activities; its `cursor` joins the live stream there.
   */
  async activities(id, call) {
    return this.#get(`/v1/runs/${part(id)}/activities`, call);
  }

  /**
   * Envelopes of a run by page, in order: the first after `after`, or, with `before` alone, the last before it.
   * @param {string} id
   * @param {Call & { after?: number | string, before?: number | string, limit?: number, type?: string[], surfaces?: string[], agentId?: string }} [call]
   * `after`, `before`: a sequence, or a `nextCursor`. `limit`: 1 to 1000.
   * @returns {Promise<Events>} `holes`: stretches of sequences that were compacted away.
   */
  async events(id, call) {
    return this.#get(`/v1/runs/${part(id)}/events`, call);
  }

  /** Controls that were asked for of a run, and what became of them. @param {string} id @param {PageCall} [call] @returns {Promise<Controls>} */
  async controls(id, call) {
    return this.#get(`/v1/runs/${part(id)}/controls`, call);
  }

  /**
   * An offloaded body, by the `href` of a reference to it.
   * @param {string} href `/v1/blobs/…`. Nothing else is asked for: a reference is what some source wrote.
   * @param {Call & { from?: number, to?: number }} [call] The bytes from `from` to `to`, both included; all if they are left out.
   * @returns {Promise<Body>}
   */
  async blob(href, { from, to, ...call } = {}) {
    if (!/^\/v1\/blobs\/[^/?#\\]+$/.test(href) || href.endsWith("/..") || href.endsWith("/.")) throw new TypeError(`${JSON.stringify(href)} is no reference to a body of this server`);
    const range = from === undefined && to === undefined ? undefined : `bytes=${from ?? 0}-${to ?? ""}`;
    return this.#stand(call.signal, async (signal) => {
      const answer = await ask(this.#options, `${href}?${this.#query(call)}`, { signal, headers: range ? { range } : {} });
      const blob = await answer.blob();
      const told = answer.headers.get("content-range")?.match(/\/(\d+)$/)?.[1];
      const size = told ? Number(told) : answer.status === 200 ? blob.size : null;
      return { blob, size, isWhole: answer.status === 200 || blob.size === size };
    });
  }

  /**
   * @param {string} path
   * @param {Call & Record<string, any>} [call]
   * @returns {Promise<any>}
   */
  #get(path, call = {}) {
    const activation = this.activation;
    return this.#stand(call.signal, async (signal) => {
      const query = this.#query(call);
      query.set("activation", activation);
      const answer = await (await ask(this.#options, `${path}?${query}`, { signal })).json();
      if (answer.activation !== activation) throw new Stale(activation);
      return answer;
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
   * Does something for as long as its activation stands, and nobody gave up on it.
   * @template T
   * @param {AbortSignal | undefined} given
   * @param {(signal: AbortSignal) => Promise<T>} work
   * @returns {Promise<T>}
   */
  async #stand(given, work) {
    const over = this.#over.signal;
    const stop = new AbortController();
    const pass = (/** @type {AbortSignal} */ signal) => () => stop.abort(signal.reason);
    const passed = [over, ...(given ? [given] : [])].map((signal) => ({ signal, heard: pass(signal) }));
    for (const { signal, heard } of passed) {
      if (signal.aborted) heard();
      signal.addEventListener("abort", heard);
    }
    try {
      stop.signal.throwIfAborted();
      const answer = await work(stop.signal);
      // It may have come in the same moment.
      stop.signal.throwIfAborted();
      return answer;
    } catch (error) {
      // Whatever else went wrong with what nobody waits for is nobody's concern.
      throw stop.signal.aborted ? stop.signal.reason : error;
    } finally {
      for (const { signal, heard } of passed) signal.removeEventListener("abort", heard);
    }
  }
}

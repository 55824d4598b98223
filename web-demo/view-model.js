/**
 * The view model of an open session or run: its store, its connection, and the history that REST provides.
 *
 * The connection opens first. The REST calls then run in the order in which a person needs their results, and fill in
 * only what the stream has not sent yet. Each view model has its own store, so a late response cannot reach the next
 * one.
 */

import { readJson } from "./client/json.js";
import { connect } from "./client/connection.js";
import { Problem, request } from "./client/http.js";
import { Hydration, Stale } from "./client/hydration.js";
import { attach, controlsOf, submit, withdraw } from "./client/controls.js";
import { Store, keyOf } from "./client/store.js";
import { isLiveRun } from "./surfaces/live-run.js";

/** @typedef {import("./client/types.js").Activity} Activity */
/** @typedef {import("./client/http.js").Server} Server */
/** @typedef {import("./route.js").Route} Route */
/** @typedef {import("./surfaces/base.js").View} View */
/** @typedef {import("./surfaces/base.js").Control} Control */
/** @typedef {import("./surfaces/base.js").Moment} Moment */

/** Page sizes of the first messages and process details; the stream brings the rest. */
const MESSAGES_PER_PAGE = 50;
const DETAILS_PER_PAGE = 100;
/** Envelopes of one request of a search. */
const EVENTS_PER_PAGE = 1000;
/** How long a message waits for the connection that will bring its answer, in milliseconds. */
const CONNECT_WAIT_MS = 10_000;
/** The error of every request while the user has disconnected the page. */
const DISCONNECTED = "This page is disconnected. Nothing was sent. Reconnect first.";
/** The maximum number of pages that one click on “Load earlier” reads until a page has new items. */
const PAGES_MAX = 20;
/** Controls that begin or change a turn. The page must be connected before it sends one. */
const TURN_CONTROLS = new Set(["send", "queue", "steer"]);

/** The steps of hydration, in order. @typedef {"shell" | "window" | "status" | "references" | "whole"} Step */

/**
 * The events of a view model, and the actions that it passes to surfaces.
 * @typedef {object} ViewModelEvents
 * @property {(step: Step) => void} step
 * @property {() => void} missing The server has no session or run of this id.
 * @property {() => void} erased The session or run was deleted for good.
 * @property {(summary: Record<string, any>) => void} summary The summary of the session or run has arrived.
 * @property {View["inspect"]} inspect
 * @property {View["open"]} open
 * @property {View["travel"]} travel
 * @property {View["upgrade"]} [upgrade]
 */

export class ViewModel {
  /**
   * @param {Server} server
   * @param {Route} route
   * @param {"sse" | "websocket"} transport
   * @param {ViewModelEvents} events
   */
  constructor(server, route, transport, events) {
    this.#server = server;
    this.#events = events;
    this.route = route;
    this.transport = transport;
    this.hydration = new Hydration({ ...server, audience: route.audience });
    this.connection = this.#connect();
  }

  #server;
  #events;
  store = new Store();
  /** The tree of the session, once the server has said. @type {import("./branches.js").Tree | undefined} */
  #tree;
  /** Run ids by start time, as the server lists them. @type {string[]} */
  #runOrder = [];
  /** The past moment on display; null for live. @type {Moment | null} */
  moment = null;

  #connect() {
    const { session, run, audience } = this.route;
    const filter = session ? { session, children: true } : { run };
    return connect({ ...this.#server, ...filter, audience, transport: this.transport }, this.store);
  }

  /** Opens the connection again after its end: a run may have another attempt. */
  reconnect() {
    this.connection.close();
    this.connection = this.#connect();
    return this.connection;
  }

  close() {
    this.connection.close();
    this.hydration.activate();
  }

  /** Forgets all that it has: the server has it no longer. */
  forget() {
    this.close();
    this.moment = null;
    [this.#runOrder, this.#messagesCursor] = [[], null];
    this.store.clear();
  }

  /** The runs of this session without those of its children, oldest first. */
  get runs() {
    const { session, run } = this.route;
    if (run && !session) return [run];
    // A run without a session belongs to this one unless another run started it: that is a child's run.
    const isMine = (/** @type {Activity} */ { activityType, content }) => activityType === "run" && (content.sessionId === undefined ? content.parentRunId === undefined : content.sessionId === session);
    const streamed = this.store.sorted(isMine).map(({ runId }) => runId);
    return [...new Set([...this.#runOrder, ...streamed])];
  }

  /** The focused run: the newest live one, else the newest. */
  get runId() {
    const { runs } = this;
    return runs.findLast((run) => {
      const activity = this.store.get(keyOf({ runId: run, activityType: "run", activityId: run }));
      return activity !== undefined && isLiveRun(activity);
    }) ?? runs.at(-1);
  }

  /**
   * Creates the view for the surfaces: of the live store, or of the store of a past moment.
   * @param {Store} store
   * @returns {View}
   */
  view(store = this.store) {
    const model = this;
    const { session, audience } = this.route;
    const isLive = store === this.store;
    return {
      store, audience, isLive, hydration: this.hydration, sessionId: session,
      get runId() { return model.runId; },
      get runs() { return model.runs; },
      get tree() { return isLive ? model.#tree : undefined; },
      get at() { return isLive ? null : (model.moment?.at ?? null); },
      now: () => (isLive ? Date.now() : (model.moment?.time ?? Date.now())),
      act: (control) => model.#submit(control, isLive),
      withdraw: (controlId) => withdraw(model.#server, controlId),
      server: isLive ? model.#server : undefined,
      attach: isLive && session !== undefined ? (file) => attach(model.#server, session, file) : undefined,
      inspect: this.#events.inspect,
      open: this.#events.open,
      travel: this.#events.travel,
      upgrade: this.#events.upgrade,
      earlier: isLive ? { get hasMore() { return model.hasEarlier; }, load: () => model.loadEarlier() } : undefined,
      position: () => model.#position(),
      follow: isLive ? (after, listener) => model.#follow(after, listener) : undefined,
      read: async (path) => {
        if (model.connection.isCut) throw new Error(DISCONNECTED);
        return readJson(await request(model.#server, path));
      },
    };
  }

  /**
   * Reads the envelopes of all runs of the session, or of the run, newest first.
   * @returns {AsyncGenerator<import("./client/types.js").Envelope[]>}
   */
  async *newestEvents() {
    const { session } = this.route;
    /** @type {string | number | null} */
    let before = session ? await this.#position() : Number.MAX_SAFE_INTEGER;
    while (before !== null) {
      const call = { before, limit: EVENTS_PER_PAGE };
      /** @type {{ events: import("./client/types.js").Envelope[], nextCursor: string | null }} */
      const page = session ? await this.hydration.sessionEvents(session, call) : await this.hydration.events(this.runId ?? "", call);
      yield page.events.toReversed();
      before = page.nextCursor;
    }
  }

  /**
   * Returns the cursor that the page's stream has reached, as soon as it has one.
   * @returns {Promise<string>} Rejects if the server refuses the stream.
   */
  #position() {
    const { connection } = this;
    return new Promise((resolve, reject) => {
      const check = () => {
        const { cursor, kind, why } = connection.state;
        if (cursor === "" && kind !== "refused") return;
        unsubscribe();
        if (cursor === "") reject(new Error(why));
        else resolve(cursor);
      };
      const unsubscribe = connection.subscribe(check);
      check();
    });
  }

  /**
   * Follows the envelopes over a connection of their own, which is cut together with the page's.
   * @param {string} after
   * @param {(frame: import("./client/types.js").Frame, cursor: string) => void} listener
   */
  #follow(after, listener) {
    const { session, run, audience } = this.route;
    const events = connect({ ...this.#server, ...(session ? { session } : { run }), audience, after, frames: "events", transport: this.transport }, new Store());
    events.listen(listener);
    const unsubscribe = this.connection.subscribe(() => {
      if (this.connection.isCut === events.isCut) return;
      if (events.isCut) events.mend();
      else events.cut();
    });
    return () => {
      unsubscribe();
      events.close();
    };
  }

  /**
   * @param {Control} control
   * @param {boolean} isLive
   */
  async #submit(control, isLive) {
    if (!isLive) throw new Error("You are viewing a past state. Go back to live to send.");
    if (this.connection.isCut) throw new Error(DISCONNECTED);
    const { run, session } = control;
    const target = run === undefined && session === undefined ? (this.runId === undefined ? { session: this.route.session } : { run: this.runId }) : run === undefined ? { session } : { run };
    // The page must be connected when the answer begins.
    if (TURN_CONTROLS.has(control.control)) await this.#waitForConnection();
    const submitted = await submit(this.#server, { ...control, run: undefined, session: undefined, ...target, audience: this.route.audience });
    return { ...submitted, list: controlsOf(target) };
  }

  /** @returns {Promise<void>} Resolves when the connection is open. */
  #waitForConnection() {
    const { connection } = this;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => settle(() => reject(new Error("The connection did not open in time. Nothing was sent."))), CONNECT_WAIT_MS);
      let unsubscribe = () => {};
      const settle = (/** @type {() => void} */ then) => {
        clearTimeout(timer);
        unsubscribe();
        then();
      };
      const check = () => {
        const { kind, why } = connection.state;
        if (kind === "live" || kind === "ended") settle(resolve);
        else if (kind === "refused") settle(() => reject(new Error(`The server rejected the connection: ${why}`)));
      };
      unsubscribe = connection.subscribe(check);
      check();
    });
  }

  /* ── hydration ── */

  /** Fetches the history: the summary, then messages, status and references. */
  async hydrate() {
    try {
      if (this.route.session) await this.#hydrateSession(this.route.session);
      else if (this.route.run) await this.#hydrateRun(this.route.run);
    } catch (error) {
      // A stale call is irrelevant, and a session without facts has no history.
      if (error instanceof Stale) return;
      if (error instanceof Problem && error.code === "erased") return this.#events.erased();
      if (error instanceof Problem && error.status === 404) this.#events.missing();
      else console.warn("hydration:", error);
    }
    this.#events.step("whole");
  }

  /** @param {string} id */
  async #hydrateSession(id) {
    const { hydration } = this;
    const session = await hydration.session(id);
    this.#events.summary(session);
    this.#tree = { root: session.root ?? id, branches: session.branches ?? [] };
    const sorted = [...session.runs].sort((a, b) => ((a.startedAt ?? "") < (b.startedAt ?? "") ? -1 : 1));
    this.#runOrder = sorted.map(({ runId }) => runId);
    // What a branch has of its ancestors is in runs that are not its own.
    this.#allRuns = session.truncated || session.parent ? undefined : this.#runOrder;
    this.#events.step("shell");
    const recent = await hydration.window(id, { messages: MESSAGES_PER_PAGE });
    this.#messagesCursor = recent.nextCursor;
    if (session.parent) {
      this.#addEarlierRuns(recent.messages);
      // The stream may have brought them before they were known to be of this session.
      this.#events.step("shell");
    }
    this.#merge(recent.messages);
    this.#events.step("window");
    this.#merge([...session.pendingActions, ...session.queue, ...session.tasks, ...session.team]);
    this.#events.step("status");
    const timeline = await hydration.timeline(id, { limit: DETAILS_PER_PAGE });
    this.#detailsCursor = timeline.nextCursor;
    this.#merge(timeline.items);
    this.#events.step("references");
  }

  /** The cursors of older messages and process details; null where none exist. @type {string | null} */
  #messagesCursor = null;
  /** @type {string | null} */
  #detailsCursor = null;

  /** All runs of the session; `undefined` while unknown, or if the list is truncated. @type {string[] | undefined} */
  #allRuns;

  /** Whether the server has older messages than the store. A run that the stream has hydrated completely has none. */
  get hasEarlier() {
    if (this.#messagesCursor === null) return false;
    const isWhole = (/** @type {string} */ runId) => this.store.run(runId)?.isHydrated === true && this.store.get(keyOf({ runId, activityType: "run", activityId: runId }))?.content.activitiesOmitted !== true;
    return !this.#allRuns?.every(isWhole);
  }

  /** Loads older messages, and process details of about the same time, until a page has new ones or none remain. */
  async loadEarlier() {
    const { session } = this.route;
    if (session === undefined) return;
    for (let pages = 0; pages < PAGES_MAX && this.#messagesCursor !== null; pages += 1) {
      const { messages, nextCursor } = await this.hydration.window(session, { messages: MESSAGES_PER_PAGE, cursor: this.#messagesCursor });
      this.#messagesCursor = nextCursor;
      this.#addEarlierRuns(messages);
      const added = this.#merge(messages);
      if (this.#detailsCursor !== null) {
        const timeline = await this.hydration.timeline(session, { limit: DETAILS_PER_PAGE, cursor: this.#detailsCursor });
        this.#detailsCursor = timeline.nextCursor;
        this.#merge(timeline.items);
      }
      if (added > 0) return;
    }
  }

  /** Notes the runs of messages, which began before the known ones. @param {Activity[]} messages */
  #addEarlierRuns(messages) {
    const runs = messages.flatMap(({ runId }) => runId ?? []);
    this.#runOrder = [...new Set([...runs, ...this.#runOrder])];
  }

  /** @param {string} id */
  async #hydrateRun(id) {
    this.#events.summary(await this.hydration.run(id));
    this.#events.step("shell");
    for (const [step, surfaces] of /** @type {[Step, string[]][]} */ ([
      ["window", ["conversation"]],
      ["status", ["runtime_status", "hitl", "composer", "task_capsule", "team_roster"]],
    ])) {
      // The stream has already sent everything.
      if (!this.store.run(id)?.isHydrated) this.#merge((await this.hydration.activities(id, { surfaces })).activities.map((one) => ({ ...one, runId: id })));
      this.#events.step(step);
    }
    this.#events.step("references");
  }

  /**
   * Merges activities that are missing in the store or newer than the store's.
   * @param {Activity[]} activities
   * @returns {number} The number of added activities.
   */
  #merge(activities) {
    const { store } = this;
    const sizeBefore = store.size;
    store.batch(() => {
      for (const activity of activities) {
        const current = store.get(keyOf(activity));
        if (current && current.sequence >= activity.sequence) continue;
        if (activity.runId && store.run(activity.runId)?.isHydrated) continue;
        store.take(/** @type {import("./client/types.js").Snapshot} */ ({ frame: "ActivitySnapshot", ...activity }));
      }
    });
    return store.size - sizeBefore;
  }
}

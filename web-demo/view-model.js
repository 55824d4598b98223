/**
 * The view model of an open session or run: its store, its connection, and the history that REST provides.
 *
 * The connection opens first. The REST calls then run in the order in which a person needs their results, and fill in
 * only what the stream has not sent yet. Each view model has its own store, so a late response cannot reach the next
 * one.
 */

import { connect } from "./client/connection.js";
import { Problem } from "./client/http.js";
import { Hydration, Stale } from "./client/hydration.js";
import { attach } from "./client/controls.js";
import { Store, keyOf } from "./client/store.js";
import { LiveModel } from "./live-model.js";

/** @typedef {import("./client/types.js").Activity} Activity */
/** @typedef {import("./client/http.js").Server} Server */
/** @typedef {import("./route.js").Route} Route */
/** @typedef {import("./surfaces/base.js").View} View */

/** Page sizes of the first messages and process details; the stream brings the rest. */
const MESSAGES_PER_PAGE = 50;
const DETAILS_PER_PAGE = 100;
/** Envelopes of one request of a search. */
const EVENTS_PER_PAGE = 1000;
/** The maximum number of pages that one click on “Load earlier” reads until a page has new items. */
const PAGES_MAX = 20;

/** The steps of hydration, in order. @typedef {"shell" | "window" | "status" | "references" | "whole"} Step */

/**
 * The events of a view model.
 * @typedef {object} HistoryEvents
 * @property {(step: Step) => void} step
 * @property {() => void} missing The server has no session or run of this id.
 * @property {() => void} erased The session or run was deleted for good.
 * @property {(summary: Record<string, any>) => void} summary The summary of the session or run has arrived.
 *
 * @typedef {HistoryEvents & import("./live-model.js").Leads} ViewModelEvents The events, and what the items of its views lead to.
 */

export class ViewModel extends LiveModel {
  /**
   * @param {Server} server
   * @param {Route} route
   * @param {"sse" | "websocket"} transport
   * @param {ViewModelEvents} events
   */
  constructor(server, route, transport, events) {
    super(server, route, transport, events);
    this.#events = events;
    this.hydration = new Hydration({ ...server, audience: route.audience });
  }

  #events;
  /** The tree of the session, once the server has said. @type {import("./branches.js").Tree | undefined} */
  #tree;

  close() {
    super.close();
    this.hydration.activate();
  }

  async reads() {
    return this.hydration;
  }

  /** Forgets all that it has: the server has it no longer. */
  forget() {
    this.close();
    this.moment = null;
    [this.runOrder, this.#messagesCursor] = [[], null];
    this.store.clear();
  }

  /**
   * Creates the view for the surfaces: of the live store, or of the store of a past moment.
   * @param {import("./client/store.js").Store} store
   * @returns {View}
   */
  view(store = this.store) {
    const model = this;
    const { session } = this.route;
    const isLive = store === this.store;
    /** @type {Omit<View, keyof import("./surfaces/base.js").CardView> & Partial<View>} */
    const own = {
      hydration: this.hydration,
      get tree() { return isLive ? model.#tree : undefined; },
      attach: isLive && session !== undefined ? (file) => attach(model.server, session, file) : undefined,
      earlier: isLive ? { get hasMore() { return model.hasEarlier; }, load: () => model.loadEarlier() } : undefined,
      position: () => model.#position(),
      follow: isLive ? (after, listener) => model.#follow(after, listener) : undefined,
    };
    return Object.setPrototypeOf(own, super.view(store));
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
    const events = connect({ ...this.server, ...(session ? { session } : { run }), audience, after, frames: "events", transport: this.transport }, new Store());
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
    this.runOrder = sorted.map(({ runId }) => runId);
    // What a branch has of its ancestors is in runs that are not its own.
    this.#allRuns = session.truncated || session.parent ? undefined : this.runOrder;
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
    this.runOrder = [...new Set([...runs, ...this.runOrder])];
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

/**
 * What is open: a session or a run, with its picture, its connection, and what was there before the connection.
 *
 * The connection stands first. What the REST calls tell comes in the order in which a person needs it, and only fills what the
 * connection has not told yet. Each opening has a store of its own, so that nothing late can get into the next one's.
 */

import { connect } from "./client/connection.js";
import { Problem, request } from "./client/http.js";
import { Hydration, Stale } from "./client/hydration.js";
import { controlsOf, submit } from "./client/controls.js";
import { Store, keyOf } from "./client/store.js";
import { isLiveRun } from "./surfaces/runtime-status.js";

/** @typedef {import("./client/types.js").Activity} Activity */
/** @typedef {import("./client/http.js").Server} Server */
/** @typedef {import("./route.js").Route} Route */
/** @typedef {import("./surfaces/base.js").View} View */
/** @typedef {import("./surfaces/base.js").Control} Control */
/** @typedef {import("./surfaces/base.js").Moment} Moment */

/** Messages and process details that are fetched at first; the stream brings the rest. */
const MESSAGES = 50;
const DETAILS = 100;
/** How long something that is said waits for the connection that will bring its answer, in milliseconds. */
const LISTEN_MS = 10_000;
/** Why nothing goes out while the connection is cut by hand. */
const CUT = "the network is cut on this page; nothing was sent";
/** Pages that are read for one click on “Load earlier”, until something comes that the page does not have. */
const PAGES_MAX = 20;
/** Controls that begin or change a turn: whoever sends them has to listen before. */
const TURNS = new Set(["send", "queue", "steer"]);

/** What has come so far, in the order in which it comes. @typedef {"shell" | "window" | "status" | "references" | "whole"} Step */

/**
 * What whoever opened it is told.
 * @typedef {object} Told
 * @property {(step: Step) => void} step
 * @property {() => void} missing The server knows nothing of this name.
 * @property {(summary: Record<string, any>) => void} summary The session's or the run's line, when it has come.
 * @property {View["inspect"]} inspect
 * @property {View["open"]} open
 * @property {View["travel"]} travel
 */

export class Opened {
  /**
   * @param {Server} server
   * @param {Route} route
   * @param {"sse" | "websocket"} transport
   * @param {Told} told
   */
  constructor(server, route, transport, told) {
    this.#server = server;
    this.#told = told;
    this.route = route;
    this.transport = transport;
    this.hydration = new Hydration({ ...server, audience: route.audience });
    this.link = this.#connect();
  }

  #server;
  #told;
  store = new Store();
  /** Runs in the order in which they began, as the server lists them. @type {string[]} */
  #order = [];
  /** The moment that is shown instead of now. @type {Moment | null} */
  moment = null;

  #connect() {
    const { session, run, audience } = this.route;
    const what = session ? { session, children: true } : { run };
    return connect({ ...this.#server, ...what, audience, transport: this.transport }, this.store);
  }

  /** Follows it again, after its stream has ended: a run may begin anew. */
  reconnect() {
    this.link.close();
    this.link = this.#connect();
    return this.link;
  }

  close() {
    this.link.close();
    this.hydration.activate();
  }

  /** Runs of this session, not of its children's; the oldest first. */
  get runs() {
    const { session, run } = this.route;
    if (run && !session) return [run];
    // A run that does not name its session is this one's, unless another run started it: then it is a child's.
    const isMine = (/** @type {Activity} */ { activityType, content }) => activityType === "run" && (content.sessionId === undefined ? content.parentRunId === undefined : content.sessionId === session);
    const told = this.store.sorted(isMine).map(({ runId }) => runId);
    return [...new Set([...this.#order, ...told])];
  }

  /** The run in focus: the newest that goes on, else the newest. */
  get runId() {
    const { runs } = this;
    return runs.findLast((run) => {
      const told = this.store.get(keyOf({ runId: run, activityType: "run", activityId: run }));
      return told !== undefined && isLiveRun(told);
    }) ?? runs.at(-1);
  }

  /**
   * What surfaces are given: of now, or of a past moment's store.
   * @param {Store} store
   * @returns {View}
   */
  view(store = this.store) {
    const opened = this;
    const { session, audience } = this.route;
    const isLive = store === this.store;
    return {
      store, audience, isLive, hydration: this.hydration, sessionId: session,
      get runId() { return opened.runId; },
      get runs() { return opened.runs; },
      get at() { return isLive ? null : (opened.moment?.at ?? null); },
      now: () => (isLive ? Date.now() : (opened.moment?.time ?? Date.now())),
      act: (control) => opened.#act(control, isLive),
      inspect: this.#told.inspect,
      open: this.#told.open,
      travel: this.#told.travel,
      earlier: isLive ? { get hasMore() { return opened.hasEarlier; }, load: () => opened.loadEarlier() } : undefined,
      read: async (path) => {
        if (opened.link.isCut) throw new Error(CUT);
        return (await request(opened.#server, path)).json();
      },
    };
  }

  /**
   * @param {Control} control
   * @param {boolean} isLive
   */
  async #act(control, isLive) {
    if (!isLive) throw new Error("a past state is shown; return to now to send");
    if (this.link.isCut) throw new Error(CUT);
    const { run, session } = control;
    const of = run === undefined && session === undefined ? (this.runId === undefined ? { session: this.route.session } : { run: this.runId }) : run === undefined ? { session } : { run };
    // Whoever says something has to be listening when the answer begins.
    if (TURNS.has(control.control)) await this.#listening();
    const submitted = await submit(this.#server, { ...control, run: undefined, session: undefined, ...of, audience: this.route.audience });
    return { ...submitted, list: controlsOf(of) };
  }

  /** @returns {Promise<void>} When the connection stands. */
  #listening() {
    const { link } = this;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => over(() => reject(new Error("there is no connection; nothing was sent"))), LISTEN_MS);
      let end = () => {};
      const over = (/** @type {() => void} */ then) => {
        clearTimeout(timer);
        end();
        then();
      };
      const look = () => {
        const { kind, why } = link.state;
        if (kind === "live" || kind === "ended") over(resolve);
        else if (kind === "refused") over(() => reject(new Error(`the server refuses the connection: ${why}`)));
      };
      end = link.subscribe(look);
      look();
    });
  }

  /* ── what was there before ── */

  /** Fetches what there is: the shell, then what was said, how it stands, and what it refers to. */
  async hydrate() {
    try {
      if (this.route.session) await this.#hydrateSession(this.route.session);
      else if (this.route.run) await this.#hydrateRun(this.route.run);
    } catch (why) {
      // Whoever turned elsewhere needs none of it; and what nobody has written yet is not there to be fetched.
      if (why instanceof Stale) return;
      if (why instanceof Problem && why.status === 404) this.#told.missing();
      else console.warn("hydration:", why);
    }
    this.#told.step("whole");
  }

  /** @param {string} id */
  async #hydrateSession(id) {
    const { hydration } = this;
    const session = await hydration.session(id);
    this.#told.summary(session);
    const began = [...session.runs].sort((a, b) => ((a.startedAt ?? "") < (b.startedAt ?? "") ? -1 : 1));
    this.#order = began.map(({ runId }) => runId);
    this.#all = session.truncated ? undefined : this.#order;
    this.#told.step("shell");
    const recent = await hydration.window(id, { messages: MESSAGES });
    this.#messages = recent.nextCursor;
    this.#offer(recent.messages);
    this.#told.step("window");
    this.#offer([...session.pendingActions, ...session.queue, ...session.tasks, ...session.team]);
    this.#told.step("status");
    const timeline = await hydration.timeline(id, { limit: DETAILS });
    this.#details = timeline.nextCursor;
    this.#offer(timeline.items);
    this.#told.step("references");
  }

  /** Where older messages and process details go on; null where there are none. @type {string | null} */
  #messages = null;
  /** @type {string | null} */
  #details = null;

  /** All runs of the session; nothing while they are unknown, or are too many to be listed. @type {string[] | undefined} */
  #all;

  /** Whether the server has older messages than are here. Runs that the stream brought whole need no second reading. */
  get hasEarlier() {
    if (this.#messages === null) return false;
    const isWhole = (/** @type {string} */ runId) => this.store.run(runId)?.isHydrated === true && this.store.get(keyOf({ runId, activityType: "run", activityId: runId }))?.content.activitiesOmitted !== true;
    return !this.#all?.every(isWhole);
  }

  /** Reads older messages, and the process details of about the same time, until something new comes or there is no more. */
  async loadEarlier() {
    const { session } = this.route;
    if (session === undefined) return;
    for (let pages = 0; pages < PAGES_MAX && this.#messages !== null; pages += 1) {
      const { messages, nextCursor } = await this.hydration.window(session, { messages: MESSAGES, cursor: this.#messages });
      this.#messages = nextCursor;
      // Their runs began before those that are known.
      this.#order = [...new Set([...messages.map(({ runId }) => runId).filter(Boolean), ...this.#order])];
      const more = this.#offer(messages);
      if (this.#details !== null) {
        const timeline = await this.hydration.timeline(session, { limit: DETAILS, cursor: this.#details });
        this.#details = timeline.nextCursor;
        this.#offer(timeline.items);
      }
      if (more > 0) return;
    }
  }

  /** @param {string} id */
  async #hydrateRun(id) {
    this.#told.summary(await this.hydration.run(id));
    this.#told.step("shell");
    for (const [step, surfaces] of /** @type {[Step, string[]][]} */ ([
      ["window", ["conversation"]],
      ["status", ["runtime_status", "hitl", "composer", "task_capsule", "team_roster"]],
    ])) {
      // What the stream has told whole needs no second telling.
      if (!this.store.run(id)?.isHydrated) this.#offer((await this.hydration.activities(id, { surfaces })).activities.map((one) => ({ ...one, runId: id })));
      this.#told.step(step);
    }
    this.#told.step("references");
  }

  /**
   * Fills in what the connection has not told, and nothing that it has told newer.
   * @param {Activity[]} activities
   * @returns {number} How many were new.
   */
  #offer(activities) {
    const { store } = this;
    const before = store.size;
    store.batch(() => {
      for (const activity of activities) {
        const known = store.get(keyOf(activity));
        if (known && known.sequence >= activity.sequence) continue;
        if (activity.runId && store.run(activity.runId)?.isHydrated) continue;
        store.take(/** @type {import("./client/types.js").Snapshot} */ ({ frame: "ActivitySnapshot", ...activity }));
      }
    });
    return store.size - before;
  }
}

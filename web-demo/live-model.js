/**
 * The live state of a session or run: its store, its connection, and what a card needs to draw and answer an activity.
 *
 * A decision on a page of others needs no more than this; `view-model.js` adds the history.
 */

import { readJson } from "./client/json.js";
import { connect } from "./client/connection.js";
import { request } from "./client/http.js";
import { controlsOf, submit, withdraw } from "./client/controls.js";
import { Store, keyOf } from "./client/store.js";
import { isLiveRun } from "./surfaces/live-run.js";

/** @typedef {import("./client/types.js").Activity} Activity */
/** @typedef {import("./client/http.js").Server} Server */
/** @typedef {import("./client/hydration.js").Hydration} Hydration */
/** @typedef {import("./route.js").Route} Route */
/** @typedef {import("./surfaces/base.js").View} View */
/** @typedef {import("./surfaces/base.js").CardView} CardView */
/** @typedef {import("./surfaces/base.js").Control} Control */
/** @typedef {import("./surfaces/base.js").Moment} Moment */

/** How long a message waits for the connection that will bring its answer, in milliseconds. */
const CONNECT_WAIT_MS = 10_000;
/** The error of every request while the user has disconnected the page. */
const DISCONNECTED = "This page is disconnected. Nothing was sent. Reconnect first.";
/** Controls that begin or change a turn. The page must be connected before it sends one. */
const TURN_CONTROLS = new Set(["send", "queue", "steer"]);

/** What the items of a view lead to. @typedef {Pick<View, "inspect" | "open" | "travel" | "upgrade">} Leads */

export class LiveModel {
  /**
   * @param {Server} server
   * @param {Route} route
   * @param {"sse" | "websocket"} transport
   * @param {Leads} leads
   */
  constructor(server, route, transport, leads) {
    this.server = server;
    this.route = route;
    this.transport = transport;
    const { inspect, open, travel, upgrade } = leads;
    this.#leads = { inspect, open, travel, upgrade };
    this.connection = this.#connect();
  }

  /** @type {Leads} */
  #leads;
  store = new Store();
  /** Runs by start time, as far as the server has listed them. @type {string[]} */
  runOrder = [];
  /** The past moment on display; null for live. @type {Moment | null} */
  moment = null;
  /** @type {Promise<Hydration> | undefined} */
  #reads;

  #connect() {
    const { session, run, audience } = this.route;
    const filter = session ? { session, children: true } : { run };
    return connect({ ...this.server, ...filter, audience, transport: this.transport }, this.store);
  }

  /** Opens the connection again after its end: a run may have another attempt. */
  reconnect() {
    this.connection.close();
    this.connection = this.#connect();
    return this.connection;
  }

  close() {
    this.connection.close();
  }

  /** What reads bodies and history, loaded with the first that needs it. @returns {Promise<Hydration>} */
  reads() {
    return (this.#reads ??= import("./client/hydration.js").then(({ Hydration }) => new Hydration({ ...this.server, audience: this.route.audience })));
  }

  /** The runs of this session without those of its children, oldest first. */
  get runs() {
    const { session, run } = this.route;
    if (run && !session) return [run];
    // A run without a session belongs to this one unless another run started it: that is a child's run.
    const isMine = (/** @type {Activity} */ { activityType, content }) => activityType === "run" && (content.sessionId === undefined ? content.parentRunId === undefined : content.sessionId === session);
    const streamed = this.store.sorted(isMine).map(({ runId }) => runId);
    return [...new Set([...this.runOrder, ...streamed])];
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
   * Creates the view for cards: of the live store, or of the store of a past moment.
   * @param {Store} store
   * @returns {CardView}
   */
  view(store = this.store) {
    const model = this;
    const { session, audience } = this.route;
    const isLive = store === this.store;
    return {
      ...this.#leads, store, audience, isLive, sessionId: session,
      get runId() { return model.runId; },
      get runs() { return model.runs; },
      get at() { return isLive ? null : (model.moment?.at ?? null); },
      now: () => (isLive ? Date.now() : (model.moment?.time ?? Date.now())),
      act: (control) => model.#submit(control, isLive),
      withdraw: (controlId) => withdraw(model.server, controlId),
      server: isLive ? model.server : undefined,
      reads: () => model.reads(),
      read: async (path) => {
        if (model.connection.isCut) throw new Error(DISCONNECTED);
        return readJson(await request(model.server, path));
      },
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
    const submitted = await submit(this.server, { ...control, run: undefined, session: undefined, ...target, audience: this.route.audience });
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
}

/**
 * The shell: navigation, panels, audience and time.
 */

import { Hydration } from "./client/hydration.js";
import { Problem } from "./client/http.js";
import { ConnectionBar } from "./connection-bar.js";
import { BodyDialog } from "./body-dialog.js";
import { Feeder } from "./feeder.js";
import { ViewModel } from "./view-model.js";
import { Panels } from "./panels.js";
import { format, parse } from "./route.js";
import { element, updateChildren, setText, toText } from "./surfaces/base.js";
import { Artifacts } from "./surfaces/artifacts.js";
import { Conversation } from "./surfaces/conversation.js";
import { Events } from "./surfaces/events.js";
import { SessionTabs, tabKey, tabsOf } from "./surfaces/session-tabs.js";
import { TeammateTranscript } from "./surfaces/teammate-transcript.js";
import { Timeline } from "./surfaces/timeline.js";
import { Token } from "./token.js";
import { Audiences } from "./tools/audiences.js";
import { Scrubber } from "./tools/scrubber.js";

/** @typedef {import("./route.js").Route} Route */
/** @typedef {import("./surfaces/base.js").Activity} Activity */
/** @typedef {import("./surfaces/base.js").Moment} Moment */
/** @typedef {import("./surfaces/base.js").Target} Target */
/** @typedef {import("./surfaces/session-tabs.js").Tab} Tab */

/** Sessions and runs that the page lists. */
const LISTED_MAX = 100;
/** The interval at which the page reads the lists, in milliseconds. */
const POLL_MS = 2000;
/** The delay before the address changes, in milliseconds: browsers limit the rate of `replaceState`. */
const ADDRESS_MS = 300;

const LIVE = ["accepted", "running", "waiting"];

/** @type {Record<import("./view-model.js").Step | "none", string>} */
const STEPS = {
  none: "Opening…", shell: "Loading recent messages…", window: "Loading status…", status: "Loading references…", references: "", whole: "",
};

/**
 * @template {HTMLElement} T
 * @param {string} selector
 * @param {new () => T} kind
 * @returns {T}
 */
export function query(selector, kind) {
  const found = document.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`The page has no element ${selector}.`);
  return found;
}

export class Shell {
  /** @param {Feeder} feeder */
  constructor(feeder) {
    this.#feeder = feeder;
    this.#detail = new BodyDialog(query("#detail", HTMLDialogElement), this.#server);
    this.#panels = new Panels(() => {
      this.#feeder.schedule();
      this.#updateAddress();
    });
    feeder.onDrawn = () => this.#afterDraw();
    this.#addListeners();
    this.#setRoute(parse(location.hash));
    if (this.#hasTarget) this.#open();
    void this.#poll();
  }

  #token = new Token();
  #server = { token: () => this.#token.value };
  #feeder;
  #detail;
  #panels;
  /** @type {Route} */
  #route = { audience: "user", at: null };
  /** @type {ViewModel | undefined} */
  #model;
  /** @type {"sse" | "websocket"} */
  #transport = "sse";
  #lists = new Hydration();
  /** @type {Tab[]} */
  #tabs = [];
  /** The summary of the session or run, from REST. @type {Record<string, any>} */
  #summary = {};
  /** The run that the scrubber follows. */
  #followedRun = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #addressTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #pollTimer;
  /** The id of the session that the user created on this page. @type {string | undefined} */
  #createdSession;

  #page = {
    tabs: query("#sessions", SessionTabs), bar: query("#connection-bar", ConnectionBar), stage: query("#stage", HTMLElement), title: query("#title", HTMLElement),
    hydration: query("#hydration", HTMLElement), lineage: query("#lineage", HTMLElement), past: query("#past", HTMLElement), token: query("#token", HTMLFormElement), tokenNote: query("#token-note", HTMLElement),
    audience: query("#audience", HTMLFieldSetElement), conversation: query("ps-conversation", Conversation), compare: query("#compare", HTMLButtonElement),
    beside: query("#beside", HTMLElement), create: query("#new-session", HTMLButtonElement),
  };

  #tools = {
    transcript: query("ps-teammate-transcript", TeammateTranscript), artifacts: query("ps-artifacts", Artifacts), timeline: query("ps-timeline", Timeline),
    events: query("ps-events", Events), scrubber: query("ps-scrubber", Scrubber), audiences: query("ps-audiences", Audiences),
  };

  /* ── the open session or run ── */

  get #hasTarget() {
    return this.#route.session !== undefined || this.#route.run !== undefined;
  }

  /** @param {Route} route */
  #setRoute(route) {
    const isOtherAudience = route.audience !== this.#route.audience;
    this.#route = route;
    if (isOtherAudience || this.#tabs.length === 0) this.#lists = new Hydration({ ...this.#server, audience: route.audience });
    for (const choice of this.#page.audience.querySelectorAll("input")) choice.checked = choice.value === route.audience;
    if (route.panel) this.#panels.select(route.panel);
  }

  /** @param {Partial<Route>} to */
  #navigate(to) {
    this.#setRoute({ audience: this.#route.audience, panel: this.#panels.current, at: null, ...to });
    this.#updateAddress();
    this.#open();
  }

  #open() {
    this.#model?.close();
    const { session, run, at } = this.#route;
    const id = session ?? run ?? "";
    const model = new ViewModel(this.#server, this.#route, this.#transport, {
      step: (step) => model === this.#model && this.#setHydrationStep(step),
      missing: () => model === this.#model && this.#showMissing(model),
      summary: (summary) => model === this.#model && this.#setSummary(summary),
      inspect: (activity) => this.#inspect(activity),
      open: (target) => this.#openTarget(target),
      travel: (moment) => this.travel(moment),
    });
    this.#model = model;
    this.#followedRun = "";
    // The list already has a title; the summary replaces it later.
    const known = this.#tabs.find((tab) => tab.id === id && (tab.kind === "session") === (session !== undefined));
    setText(this.#page.title, known?.title || id);
    document.title = `${known?.title || id} · Proscenium`;
    this.#summary = {};
    this.#drawLineage();
    this.#page.past.hidden = true;
    this.#setHydrationStep("none");
    this.#page.bar.connection = model.connection;
    const view = model.view();
    this.#feeder.show(view);
    this.#page.conversation.placeholder = "No messages yet.";
    this.#page.bar.note = "";
    this.#closeCompare();
    this.#page.tabs.show(this.#tabs, this.#current);
    if (this.#route.event) this.#tools.events.openEvent(this.#route.event);
    void model.hydrate().then(() => {
      if (at === null || model !== this.#model || model.runId === undefined) return;
      this.#followRun(model, model.runId);
      void this.#tools.scrubber.goTo(at);
    });
  }

  get #current() {
    const { session, run } = this.#route;
    return session !== undefined ? tabKey({ kind: "session", id: session }) : run !== undefined ? tabKey({ kind: "run", id: run }) : "";
  }

  /** @param {import("./view-model.js").Step | "none"} step */
  #setHydrationStep(step) {
    this.#page.stage.dataset.hydration = step;
    setText(this.#page.hydration, STEPS[step]);
    if (step === "shell") this.#feeder.updateAll();
    this.#page.conversation.drawEarlier();
  }

  /**
   * Shows that the server has no session or run of this id, until its first fact arrives.
   * @param {ViewModel} model
   */
  #showMissing(model) {
    if (model.store.size > 0) return;
    const { session, run } = this.#route;
    const isNew = session !== undefined && session === this.#createdSession;
    const kind = session !== undefined ? "session" : "run";
    this.#page.bar.note = isNew ? "new session" : `no such ${kind}`;
    this.#page.conversation.placeholder = isNew ? "New session. Your first message starts it." : `The ${kind} “${session ?? run}” does not exist on this server, or your token does not allow it. If it starts, it appears here.`;
  }

  /** @param {Record<string, any>} summary */
  #setSummary(summary) {
    const title = toText(summary.title) || this.#route.session || this.#route.run || "";
    setText(this.#page.title, title);
    document.title = `${title} · Proscenium`;
    this.#summary = summary;
    this.#drawLineage();
  }

  /** Draws links to parents and children: from the summary, and from the list for later children. */
  #drawLineage() {
    const summary = this.#summary;
    const { session } = this.#route;
    const children = new Set([...(summary.children ?? []), ...this.#tabs.filter(({ parent }) => session !== undefined && parent === session).map(({ id }) => id)]);
    /** @type {[string, Target][]} */
    const related = [];
    if (summary.parentSessionId && summary.parentSessionId !== this.#route.session) related.push([`Parent: ${summary.parentSessionId}`, { kind: "session", id: summary.parentSessionId }]);
    if (!this.#route.session && summary.sessionId) related.push([`Session: ${summary.sessionId}`, { kind: "session", id: summary.sessionId }]);
    for (const child of children) related.push([`Child: ${child}`, { kind: "session", id: toText(child) }]);
    updateChildren(this.#page.lineage, related, ([text]) => text, ([text, target]) => {
      const button = element("button", "chip", text);
      button.type = "button";
      button.addEventListener("click", () => this.#openTarget(target));
      return button;
    }, () => {});
  }

  /* ── navigation ── */

  /** @param {Target} target */
  #openTarget(target) {
    const { kind, id = "", runId, href } = target;
    switch (kind) {
      case "session": return this.#navigate({ session: id });
      case "run": return this.#navigate({ run: id });
      case "blob": return this.#detail.open(toText(href), this.#route.audience);
      case "event":
        this.#panels.show("events");
        return this.#tools.events.openEvent(id);
      case "teammate": this.#panels.show("team"); break;
      case "artifact": this.#panels.show("artifacts"); break;
      case "evidence": this.#panels.show("timeline"); break;
    }
    if (kind === "teammate") this.#tools.transcript.open(id, runId);
    else if (kind === "artifact") this.#tools.artifacts.open(id, runId);
    else this.#tools.timeline.open("evidence", id, runId);
    this.#panels.updateTabs();
    const surface = { teammate: this.#tools.transcript, artifact: this.#tools.artifacts, evidence: this.#tools.timeline }[kind];
    surface.scrollIntoView({ block: "nearest" });
  }

  /** @param {Activity} activity */
  #inspect(activity) {
    if (!this.#model) return;
    this.#panels.show("events");
    void this.#tools.events.show(activity);
    this.#panels.updateTabs();
  }

  /* ── time ── */

  /**
   * Shows a past moment on all surfaces; null for live.
   * @param {Moment | null} moment
   */
  travel(moment) {
    const model = this.#model;
    if (!model) return;
    const isSame = model.moment?.store === moment?.store;
    model.moment = moment;
    this.#route.at = moment?.at ?? null;
    this.#updateAddress();
    if (moment) this.#showPastNotice(`State at event ${moment.at}${moment.time ? `, ${new Date(moment.time).toLocaleTimeString()}` : ""}. Actions are disabled.`);
    this.#page.past.hidden = moment === null;
    this.#page.stage.dataset.past = String(moment !== null);
    // A replay refills the same store, so the feeder draws its changes like any others.
    if (!isSame) this.#feeder.show(model.view(moment?.store ?? model.store));
  }

  /** @param {string} text */
  #showPastNotice(text) {
    const backButton = element("button", "button", "Back to live");
    backButton.type = "button";
    backButton.addEventListener("click", () => {
      this.#tools.scrubber.toLive();
      this.travel(null);
    });
    if (this.#page.past.firstChild?.textContent !== text) this.#page.past.replaceChildren(element("span", "", text), backButton);
    this.#page.past.hidden = false;
  }

  /** After each update: the scrubber follows the focused run. */
  #afterDraw() {
    this.#panels.updateTabs();
    const model = this.#model;
    if (model && model.store.size > 0) this.#page.bar.note = "";
    const run = model?.runId ?? "";
    if (model && run !== this.#followedRun && !model.moment) this.#followRun(model, run);
  }

  /**
   * @param {ViewModel} model
   * @param {string} run
   */
  #followRun(model, run) {
    this.#followedRun = run;
    this.#tools.scrubber.follow(model.view(), run);
  }

  #compare() {
    const model = this.#model;
    if (!this.#page.beside.hidden) return this.#closeCompare();
    if (!model?.runId) return;
    this.#page.beside.hidden = false;
    this.#page.compare.setAttribute("aria-pressed", "true");
    this.#tools.audiences.follow(model.runId, this.#server, model.view());
  }

  #closeCompare() {
    if (this.#page.beside.hidden) return;
    this.#page.beside.hidden = true;
    this.#page.compare.setAttribute("aria-pressed", "false");
    this.#tools.audiences.close();
  }

  /* ── lists ── */

  async #poll() {
    const lists = this.#lists;
    try {
      // A disconnected page requests nothing, not even lists.
      if (this.#model?.connection.isCut) return;
      const [{ sessions }, { runs }] = await Promise.all([lists.sessions({ limit: LISTED_MAX }), lists.runs({ limit: LISTED_MAX })]);
      // A server without authentication needs no token form.
      this.#page.token.hidden = !this.#token.hasToken;
      this.#setTokenNote("");
      if (lists === this.#lists) this.#setTabs(tabsOf(sessions, runs), runs);
    } catch (error) {
      // Without a response the server is unreachable: the connection bar shows that, and the next poll retries.
      if (error instanceof Problem && lists === this.#lists) this.#handleRejection(error);
    } finally {
      clearTimeout(this.#pollTimer);
      this.#pollTimer = setTimeout(() => this.#poll(), POLL_MS);
    }
  }

  /** @param {Problem} error */
  #handleRejection({ status, detail }) {
    if (status !== 401 && status !== 403) return;
    this.#page.token.hidden = false;
    this.#setTokenNote(status === 403 ? `The token does not permit this: ${detail}` : this.#token.hasToken ? "The server rejected this token. Check that it is complete and has not expired, then paste another." : "This server requires a token. Paste one to see its sessions.");
  }

  /** @param {string} text Empty for none. */
  #setTokenNote(text) {
    const { tokenNote, tabs } = this.#page;
    setText(tokenNote, text);
    tokenNote.hidden = text === "";
    tokenNote.dataset.state = this.#token.hasToken ? "failed" : "waiting";
    tabs.placeholder = text;
    if (text !== "") {
      // The previous token may have allowed sessions that this one does not.
      this.#tabs = [];
      tabs.show([], this.#current);
      if (!this.#hasTarget) setText(this.#page.title, "Token required");
    } else if (!this.#hasTarget) {
      setText(this.#page.title, "No session selected");
    }
  }

  /**
   * @param {Tab[]} tabs
   * @param {import("./client/hydration.js").RunLine[]} runs
   */
  #setTabs(tabs, runs) {
    this.#tabs = tabs;
    this.#page.tabs.show(tabs, this.#current);
    this.#drawLineage();
    if (!this.#hasTarget && tabs.length > 0) {
      // First choice: a live pinned entry, then a live one without a parent, then any live one, then the newest.
      const live = tabs.filter(({ status }) => LIVE.includes(status));
      const initial = live.find(({ isPinned }) => isPinned) ?? live.find(({ parent }) => !parent) ?? live[0] ?? tabs[0];
      return this.#navigate({ [initial.kind]: initial.id });
    }
    // A run's stream ends with the run. After another attempt began, the page must connect again.
    const model = this.#model;
    const ownRun = runs.find(({ runId }) => runId === this.#route.run);
    if (model && ownRun && LIVE.includes(ownRun.status) && model.connection.state.kind === "ended") this.#page.bar.connection = model.reconnect();
  }

  /* ── event listeners ── */

  #addListeners() {
    const { tabs, bar, token, audience, compare, create, conversation } = this.#page;
    tabs.addEventListener("open", (event) => {
      const { kind, id } = /** @type {CustomEvent<Target>} */ (event).detail;
      this.#panels.showConversation();
      this.#navigate({ [kind]: id });
    });
    bar.addEventListener("transport", (event) => {
      this.#transport = /** @type {CustomEvent} */ (event).detail;
      if (this.#hasTarget) this.#open();
    });
    token.addEventListener("submit", (event) => {
      event.preventDefault();
      const entered = new FormData(token).get("token");
      token.reset();
      this.#token.set(typeof entered === "string" ? entered.trim() : "");
      if (this.#hasTarget) this.#open();
      this.#lists = new Hydration({ ...this.#server, audience: this.#route.audience });
      void this.#poll();
    });
    for (const choice of audience.querySelectorAll("input")) {
      choice.addEventListener("change", () => {
        const { session, run, at } = this.#route;
        this.#navigate({ session, run, at, audience: /** @type {Route["audience"]} */ (choice.value) });
      });
    }
    compare.addEventListener("click", () => this.#compare());
    create.addEventListener("click", () => {
      this.#createdSession = `session-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
      this.#navigate({ session: this.#createdSession });
      /** @type {HTMLElement | null} */ (document.querySelector("ps-composer textarea"))?.focus();
    });
    addEventListener("hashchange", () => {
      if (location.hash === format(this.#route)) return;
      this.#setRoute(parse(location.hash));
      if (this.#hasTarget) this.#open();
    });
    document.addEventListener("reveal", (event) => {
      this.#panels.showConversation();
      conversation.reveal(/** @type {CustomEvent<string>} */ (event).detail);
    });
    const { timeline } = this.#tools;
    timeline.isExpandedElsewhere = (key) => conversation.isExpanded(key);
    document.addEventListener("expanded", () => timeline.refresh());
    this.#tools.scrubber.addEventListener("travel", (event) => this.travel(/** @type {CustomEvent} */ (event).detail));
  }

  #updateAddress() {
    clearTimeout(this.#addressTimer);
    this.#route.panel = this.#panels.current;
    this.#addressTimer = setTimeout(() => history.replaceState(null, "", format(this.#route)), ADDRESS_MS);
  }
}

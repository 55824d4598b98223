/**
 * The shell: navigation, panels, audience and time.
 */

import { Problem } from "./client/http.js";
import { Actions } from "./actions.js";
import { Attention, notifications } from "./attention.js";
import { ConnectionBar } from "./connection-bar.js";
import { Feeder } from "./feeder.js";
import { Store } from "./client/store.js";
import { LiveModel } from "./live-model.js";
import { ViewModel } from "./view-model.js";
import { Panels } from "./panels.js";
import { query } from "./query.js";
import { PendingDecisions } from "./pending.js";
import { entryKey } from "./session-entry.js";
import { SessionList, failureText, isLive } from "./session-list.js";
import { AUDIENCES, format, parse } from "./route.js";
import { openBody, openKeys, openPalette, openRecording } from "./dialogs.js";
import { Heading, VIEW_TITLES } from "./heading.js";
import { listenToKeys } from "./keys.js";
import { NEEDED_TYPES, upgrade } from "./lazy.js";
import { Marks } from "./marks.js";
import { html, render } from "./vendor/lit.js";
import { Surface, toText, keyOf } from "./surfaces/base.js";
import { Conversation } from "./surfaces/conversation.js";
import { SessionRail } from "./surfaces/session-rail.js";
import { TokenForm } from "./token.js";
import { showToast } from "./toasts.js";

/** @typedef {import("./route.js").Route} Route */
/** @typedef {import("./surfaces/base.js").Activity} Activity */
/** @typedef {import("./surfaces/base.js").Moment} Moment */
/** @typedef {import("./surfaces/base.js").Target} Target */
/** @typedef {import("./session-list.js").Lists} Lists */

/** The delay before the address changes, in milliseconds: browsers limit the rate of `replaceState`. */
const ADDRESS_MS = 300;
/** The delay of the counts in the tabs, in milliseconds: they pass over all activities. */
const COUNT_MS = 250;
/** The least time between two notes of what was read, in milliseconds. */
const READ_MS = 1000;

export class Shell {
  /**
   * @param {Feeder} feeder
   * @param {import("./token.js").Token} token
   */
  constructor(feeder, token) {
    this.#feeder = feeder;
    this.#token = token;
    this.#tokenForm = new TokenForm(this.#server, token, () => {
      this.#applyRights();
      if (this.#hasTarget) this.#open();
      this.#list.restart(this.#route.audience);
    }, () => this.#applyRights());
    this.#panels = new Panels(() => this.#layoutChanged());
    // The remembered widths apply at once; what changes them loads later.
    for (const name of ["rail", "pane"]) {
      const width = Number(localStorage.getItem(`proscenium.${name}`));
      if (width > 0) document.documentElement.style.setProperty(`--${name}`, `${width}px`);
    }
    void import("./resize.js").then(({ resizable }) => {
      resizable(query("#rail-splitter", HTMLElement), { property: "--rail", min: 200, max: 420 });
      resizable(query("#pane-splitter", HTMLElement), { property: "--pane", min: 320, max: 720, isAtEnd: true });
    }, () => {});
    feeder.onDrawn = () => this.#afterDraw();
    this.#addListeners();
    this.#setRoute(parse(location.hash));
    if (this.#hasTarget) this.#open();
    if (!this.#token.isOfLink) this.#list.restart(this.#route.audience);
    this.#drawView();
  }

  #token;
  #server = { token: () => this.#token.value, client: /** @type {const} */ ("page") };
  #tokenForm;
  #feeder;
  #panels;
  /** @type {Route} */
  #route = { audience: "user", at: null };
  /** @type {ViewModel | undefined} */
  #model;
  #transport = /** @type {"sse" | "websocket"} */ ("sse");
  #marks = new Marks(this.#server, () => this.#list.refresh());
  #list = new SessionList(this.#server, this.#marks, {
    changed: (lists) => this.#setLists(lists),
    failed: (error) => this.#listFailed(error),
    removed: (session) => session === this.#route.session && !document.body.dataset.erased && void this.#checkOpened(session),
  });
  #actions = new Actions({
    server: this.#server, list: this.#list, marks: this.#marks, token: () => this.#token, audience: () => this.#route.audience,
    isPast: () => this.#model?.moment !== undefined && this.#model.moment !== null,
    unread: (entry) => entry.key === this.#current && this.#model && (this.#heldCursor = this.#model.connection.state.cursor),
    erased: (entry) => {
      this.#list.remove(entry);
      if (entry.key === this.#current) this.#showErased();
    },
  });
  #heading = new Heading(this.#actions);
  /** @type {Lists | undefined} */
  #lists;
  #pending = new PendingDecisions(() => this.#drawPending());
  #attention = new Attention((item) => this.#navigate({ [item.entry.kind]: item.entry.id, view: undefined }));
  /** The title of the open session or run. */
  #title = "";
  /** What was read last of what is open: the cursor, and the time of the newest activity. */
  #readPlace = "";
  /** The cursor up to which it was read, and the one at which a person marked it as unread. */
  #readCursor = "";
  #heldCursor = "";
  #readTimer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  /** The title of the page while nothing is open. */
  #emptyTitle = "No session selected";
  /** The run that the scrubber follows. */
  #followedRun = "";
  #addressTimer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  #countTimer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  /** The types of activities that were there: some elements load only with theirs. @type {Set<string>} */
  #types = new Set();
  /** The id of the session that the user created on this page. @type {string | undefined} */
  #createdSession;

  #page = {
    sessions: query("#sessions", SessionRail), bar: query("#connection-bar", ConnectionBar), stage: query("#stage", HTMLElement), back: query("#back", HTMLButtonElement), past: query("#past", HTMLElement),
    audience: query("#audience", HTMLFieldSetElement), conversation: query("ps-conversation", Conversation), compare: query("#compare", HTMLButtonElement),
    side: query("#side", HTMLElement), needs: query("#needs-you", HTMLButtonElement), rail: query("#open-rail", HTMLButtonElement), extras: query("#open-extras", HTMLButtonElement), dock: query("#open-dock", HTMLButtonElement), playback: query("#dock", HTMLElement),
  };

  /* ── the open session or run ── */

  get #hasTarget() {
    return this.#route.session !== undefined || this.#route.run !== undefined;
  }

  /** Offers what the token permits. */
  #applyRights() {
    this.#setRoute({ ...this.#route, panel: this.#panels.current, full: this.#panels.isFull || undefined });
    this.#updateAddress();
    this.#list.refresh();
  }

  /** @param {Route} route */
  #setRoute(route) {
    const widest = AUDIENCES.indexOf(this.#token.audience);
    if (AUDIENCES.indexOf(route.audience) > widest) {
      showToast({ text: `Your token does not permit the audience “${route.audience}”.`, isFailure: true });
      route.audience = AUDIENCES[widest];
    }
    document.body.dataset.control = String(this.#token.canControl);
    // Until the server has said whose token it is, a token is of a person.
    this.#marks.isKeptByServer = this.#token.rights ? this.#token.rights.sub !== undefined : this.#token.hasToken;
    const isOtherAudience = route.audience !== this.#route.audience;
    this.#route = route;
    if (isOtherAudience) {
      this.#pending.clear();
      this.#list.restart(route.audience);
    }
    for (const choice of this.#page.audience.querySelectorAll("input")) {
      choice.checked = choice.value === route.audience;
      choice.disabled = AUDIENCES.findIndex((name) => name === choice.value) > widest;
      /** @type {HTMLElement} */ (choice.parentElement).hidden = choice.disabled;
    }
    this.#page.audience.hidden = this.#page.compare.hidden = widest === 0;
    // The panels report each change, which updates the route.
    const isFull = Boolean(route.full);
    if (route.panel) this.#panels.select(route.panel);
    this.#panels.setFull(isFull);
  }

  /** After the browser went back or forward, or a person changed the address. */
  #addressChanged() {
    if (location.hash === format(this.#route)) return;
    clearTimeout(this.#addressTimer);
    const { session, run, audience, at } = this.#route;
    const route = parse(location.hash);
    const isSame = route.session === session && route.run === run && route.audience === audience && route.at === at && !route.event;
    this.#setRoute(route);
    if (!isSame && this.#hasTarget) return this.#open();
    if (!isSame) return this.#closeTarget();
    this.#drawView();
    this.#openArtifact();
    this.#goToAction();
  }

  /**
   * Puts the artifact that a person opened, or the list of artifacts, into the address, as a step of the history.
   * @param {Route["artifact"]} artifact
   */
  #setArtifact(artifact) {
    clearTimeout(this.#addressTimer);
    Object.assign(this.#route, { artifact, panel: this.#panels.current, full: this.#panels.isFull || undefined });
    if (location.hash !== format(this.#route)) history.pushState(null, "", format(this.#route));
  }

  /** Shows the artifact of the address, or the list of artifacts. */
  #openArtifact() {
    const { artifact } = this.#route;
    if (artifact || customElements.get("ps-artifacts")) void this.#useTool("ps-artifacts", (artifacts) => (artifact ? artifacts.open(artifact.id, artifact.runId) : artifacts.close()));
  }

  /**
   * @param {Partial<Route>} to
   * @param {boolean} [isStep] Whether the browser can go back from there.
   */
  #navigate(to, isStep = true) {
    this.#writeAddress();
    this.#setRoute({ audience: this.#route.audience, panel: this.#panels.current, at: null, full: this.#panels.isFull || undefined, ...to });
    this.#writeAddress(isStep);
    this.#open();
  }

  #open() {
    this.#leave();
    this.#model?.close();
    const { session, run, at } = this.#route;
    const id = session ?? run ?? "";
    const model = new ViewModel(this.#server, this.#route, this.#transport, this.#modelEvents(() => model === this.#model));
    this.#model = model;
    // The dock shows nothing until a run of this session is known.
    this.#followRun(model, "");
    this.#list.opened = undefined;
    this.#readPlace = this.#readCursor = this.#heldCursor = "";
    delete document.body.dataset.erased;
    // The list already has a title; the summary replaces it later.
    this.#title = this.#entry?.title || id;
    this.#drawTitle();
    this.#page.past.hidden = true;
    this.#setHydrationStep("none");
    this.#page.bar.connection = model.connection;
    model.connection.subscribe(({ kind, why, problem }) => {
      // A disconnected page requests nothing, not even lists.
      if (model === this.#model) this.#list.isCut = model.connection.isCut;
      if (problem?.code === "erased" && model === this.#model) return this.#showErased();
      // Without a token, its form says what to do.
      if (kind === "refused" && model === this.#model && !this.#tokenForm.isShown && !this.#token.isOfLink) showToast({ text: `The server refused the connection: ${why}`, isFailure: true, action: { label: "Retry", run: () => model === this.#model && this.#open() } });
    });
    const view = model.view();
    this.#feeder.show(view);
    this.#page.conversation.placeholder = "No messages yet.";
    this.#page.bar.note = "";
    this.#page.sessions.current = this.#current;
    this.#drawView();
    if (this.#route.event) void this.#useTool("ps-events", (events) => events.openEvent(this.#route.event));
    if (this.#route.artifact) this.#openArtifact();
    void model.hydrate().then(() => {
      if (model === this.#model) this.#goToAction();
      if (at === null || model !== this.#model || model.runId === undefined) return;
      this.#followRun(model, model.runId);
      void this.#useTool("ps-scrubber", (scrubber) => void scrubber.goTo(at));
    });
  }

  /** Goes to the decision of the address, as a notification names it, or to the message that a search found. */
  #goToAction() {
    const { action, message } = this.#route;
    if (!(action ?? message) || !this.#model) return;
    const { store } = this.#model;
    this.#route.action = this.#route.message = undefined;
    this.#panels.showConversation();
    this.#updateAddress();
    if (action) void import("./go-to-action.js").then(({ goToAction }) => goToAction(action, store, this.#page.conversation), () => {});
    if (message) void import("./text-search.js").then(({ goToMessage }) => goToMessage(message, store, this.#page.conversation)).catch(() => {});
  }

  /** After the browser went back to before anything was open. */
  #closeTarget() {
    this.#drawView();
    if (this.#lists) this.#setLists(this.#lists);
  }

  get #current() {
    const { session, run } = this.#route;
    const { sessionId, root = session } = this.#list.opened ?? {};
    return session !== undefined ? entryKey({ kind: "session", id: sessionId === session ? root : session }) : run !== undefined ? entryKey({ kind: "run", id: run }) : "";
  }

  /** @param {import("./view-model.js").Step | "none"} step */
  #setHydrationStep(step) {
    this.#page.stage.dataset.hydration = step;
    this.#drawHint();
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
    if (this.#route.session) {
      this.#list.opened = summary;
      this.#page.sessions.current = this.#current;
    }
    // A branch has the title of its root.
    this.#title = toText(summary.title) || this.#entry?.title || this.#route.session || this.#route.run || "";
    this.#drawTitle();
  }

  /** The open session, or run without a session, as far as the page knows it. */
  get #entry() {
    return this.#entryOf(this.#route);
  }

  /** @param {Route} route */
  #entryOf({ session, run }) {
    return session !== undefined ? this.#list.entry("session", session) : run !== undefined ? this.#list.entry("run", run) : undefined;
  }

  /** Finds out why the open session left the list: it was archived or erased. @param {string} session */
  async #checkOpened(session) {
    const model = this.#model;
    try {
      const summary = await model?.hydration.session(session);
      if (summary && model === this.#model) this.#setSummary(summary);
    } catch (error) {
      if (error instanceof Problem && error.code === "erased" && model === this.#model) this.#showErased();
    }
  }

  /** Shows that what is open was deleted for good, and nothing that the page had of it. */
  #showErased() {
    const model = this.#model;
    if (!model || document.body.dataset.erased) return;
    const kind = this.#route.session === undefined ? "run" : "session";
    document.body.dataset.erased = "true";
    this.#list.opened = undefined;
    this.#list.remove({ kind, id: this.#route.session ?? this.#route.run ?? "" });
    model.forget();
    this.travel(null);
    this.#followRun(model, "");
    // A view that is not live requests nothing.
    this.#feeder.show(model.view(new Store()));
    this.#title = `Deleted ${kind}`;
    this.#page.bar.connection = undefined;
    this.#setHydrationStep("whole");
    this.#page.conversation.placeholder = `This ${kind} was deleted for good. The server has nothing of it.`;
    this.#drawTitle();
  }

  /** Notes how far the open session was read, if a person sees it. */
  #markRead() {
    const [model, entry] = [this.#model, this.#entry];
    if (!model || !entry || !this.#isSeen(model) || document.hidden || this.#readTimer) return;
    const { cursor } = model.connection.state;
    const place = `${cursor} ${entry.lastActivity}`;
    // What a person marked as unread, here or in another window, stays so until it has news.
    if (cursor === "" || cursor === this.#heldCursor || place === this.#readPlace) return;
    this.#readPlace = place;
    if (!entry.isNews) return void (this.#readCursor ||= cursor);
    this.#readCursor = cursor;
    void this.#marks.read(entry, cursor, entry.lastActivity);
    this.#readTimer = setTimeout(() => {
      this.#readTimer = undefined;
      this.#markRead();
    }, READ_MS);
  }

  /** Before a person looks elsewhere: notes what the lists do not know of yet. */
  #leave() {
    const model = this.#model;
    const entry = model && this.#entryOf(model.route);
    if (!model || !entry || !this.#isSeen(model)) return;
    const { cursor } = model.connection.state;
    if (cursor === this.#readCursor || cursor === this.#heldCursor || (entry.isNews && this.#readPlace === `${cursor} ${entry.lastActivity}`)) return;
    this.#readCursor = cursor;
    void this.#marks.read(entry, cursor, model.store.sorted().reduce((newest, { updatedAt = "" }) => (updatedAt > newest ? updatedAt : newest), entry.lastActivity));
  }

  /** Whether the live conversation is in view. @param {ViewModel} model */
  #isSeen({ moment, route }) {
    return moment === null && route.view !== "inbox" && !this.#token.isOfLink;
  }

  /** Draws what is loading, or what the inbox holds. */
  #drawHint() {
    if (this.#route.view === "inbox") this.#heading.showDecisions(this.#pending.items);
    else this.#heading.showLoading(this.#hasTarget ? /** @type {import("./view-model.js").Step} */ (this.#page.stage.dataset.hydration) : "whole");
  }

  /** Draws the title of what is open, and the way back from a main view or a full panel. */
  #drawTitle() {
    const { view } = this.#route;
    const over = this.#isServerEmpty ? "No sessions yet" : view ? VIEW_TITLES[view] : this.#panels.isFull ? this.#panels.label : "";
    this.#heading.show(this.#hasTarget ? this.#title : "", over, this.#emptyTitle);
    this.#heading.showActions(over === "" && !this.#token.isOfLink && !this.#model?.moment ? this.#entry : undefined);
    this.#drawHint();
    this.#attention.title = this.#title ? `${this.#title} · Proscenium` : "Proscenium";
  }

  /* ── navigation ── */

  /** @param {Target} target */
  #openTarget(target) {
    const { kind, id = "", runId, href } = target;
    switch (kind) {
      case "session": return this.#navigate({ session: id });
      case "run": return this.#navigate({ run: id });
      case "blob": return void openBody(this.#server, toText(href), this.#route.audience);
      case "teammate":
        this.#panels.showConversation();
        this.#route.agent = id;
        this.#showView("transcript");
        return void this.#useTool("ps-teammate-transcript", (transcript) => transcript.open(id, runId));
      case "event":
        this.#showPanel("events");
        return void this.#useTool("ps-events", (events) => events.openEvent(id));
      case "action":
        this.#panels.setFull(false);
        this.#panels.showConversation();
        return this.#page.conversation.reveal(keyOf({ runId: runId ?? "", activityType: "action", activityId: id }));
      case "artifact":
        this.#showPanel("artifacts");
        this.#setArtifact({ id, runId });
        return this.#openArtifact();
      case "evidence":
        this.#showPanel("trace");
        return void this.#useTool("ps-trace", (trace) => trace.open("evidence", id, runId));
    }
  }

  /**
   * Loads a lazy element, gives it the view, and uses it.
   * @param {string} name
   * @param {(tool: any) => void} use
   */
  async #useTool(name, use) {
    const model = this.#model;
    try {
      await upgrade(name);
    } catch (error) {
      console.warn(`${name} did not load:`, error);
      return showToast({ text: "A part of the page did not load. Check that the server runs.", isFailure: true, action: { label: "Retry", run: () => void this.#useTool(name, use) } });
    }
    const tool = document.querySelector(name);
    if (tool instanceof Surface) this.#feeder.add(tool);
    if (tool?.localName === "ps-trace") /** @type {any} */ (tool).isExpandedElsewhere = (/** @type {string} */ key) => this.#page.conversation.isExpanded(key);
    if (model === this.#model && tool) use(tool);
  }

  /** Loads the lazy elements that are on display. */
  #loadShown() {
    for (const element of document.querySelectorAll(".panel:not([hidden]) > :not(:defined), .view:not([hidden]) > :not(:defined), .dock > :not(:defined), .deck > :not(:defined)")) {
      if (NEEDED_TYPES[element.localName]?.some((type) => this.#types.has(type)) === false) continue;
      if (!element.parentElement?.closest("[hidden]")) void this.#useTool(element.localName, () => {});
    }
  }

  /** @param {string} name */
  #showPanel(name) {
    if (this.#route.view && this.#route.view !== "transcript") this.#showView(undefined);
    this.#panels.show(name);
  }

  /** After another panel, width or view. */
  #layoutChanged() {
    this.#loadShown();
    this.#feeder.schedule();
    this.#drawTitle();
    this.#updateAddress();
  }

  /* ── main views over the conversation ── */

  /** @param {import("./route.js").MainView | undefined} view `undefined`: the conversation. */
  #showView(view) {
    this.#writeAddress();
    this.#route.view = view;
    this.#writeAddress(true);
    this.#drawView();
    this.#layoutChanged();
  }

  #drawView() {
    const { view, agent } = this.#route;
    const { stage, side, compare, playback } = this.#page;
    const shown = this.#isServerEmpty ? "first-use" : view;
    document.body.dataset.view = shown ?? "conversation";
    for (const one of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".view"))) one.hidden = one.dataset.view !== shown;
    stage.inert = shown !== undefined || this.#panels.coversStage;
    // The others cover the pane, too.
    side.inert = shown !== undefined && shown !== "transcript";
    compare.setAttribute("aria-pressed", String(view === "compare"));
    playback.inert = shown !== undefined && shown !== "transcript";
    this.#drawTitle();
    this.#loadShown();
    if (view === "runs") void this.#useTool("ps-runs", (runs) => this.#route.view === "runs" && runs.show(this.#runsHost, this.#route));
    else /** @type {any} */ (document.querySelector("ps-runs")).close?.();
    if (view === "inbox") this.#drawInbox();
    else if (customElements.get("ps-inbox")) /** @type {any} */ (document.querySelector("ps-inbox")).close();
    const model = this.#model;
    if (!model) return;
    const run = model.runId;
    if (view === "compare" && run) void this.#useTool("ps-audiences", (audiences) => audiences.follow(run, this.#server, model.view()));
    else if (customElements.get("ps-audiences")) /** @type {any} */ (document.querySelector("ps-audiences")).close();
    if (view === "transcript" && agent) void this.#useTool("ps-teammate-transcript", (transcript) => transcript.open(agent));
  }

  /** The inbox, or the runs, if one of them is the main view. @returns {any} */
  get #shown() {
    return document.querySelector(`ps-${this.#route.view}`);
  }

  /** @param {number} step Goes to the next or previous decision in the inbox, or run, else to a session in the rail. */
  #move(step) {
    (this.#shown?.move ? this.#shown : this.#page.sessions).move(step);
  }

  /** Closes what is open, one thing at a time: the drawers of a phone, a main view, a full panel, the pane over the stage. */
  #escape() {
    const { rail, extras } = document.body.dataset;
    if (rail === "open") this.#toggle("rail", false);
    else if (extras === "open") this.#toggle("extras", false);
    else if (!this.#shown?.back?.()) {
      if (this.#route.view || this.#panels.isFull) this.#back();
      else this.#panels.showConversation();
      return true;
    }
    return false;
  }

  /** @param {"inbox" | "runs" | "trace" | "events"} name Shows a view or a panel, and gives it the focus. */
  #go(name) {
    if (name === "inbox" || name === "runs") this.#showView(name);
    else this.#showPanel(name);
    void this.#useTool(`ps-${name}`, (tool) => requestAnimationFrame(() => tool.takeFocus()));
  }

  /** Moves to the field for messages. */
  #compose() {
    this.#back();
    this.#panels.showConversation();
    document.getElementById("composer-text")?.focus();
  }

  #openRecording = () => openRecording(this.#server, (target) => this.#navigate(target));

  /** What the palette needs of the shell. @type {import("./palette.js").PaletteHost} */
  #paletteHost = {
    lists: () => this.#lists, list: this.#list, items: () => this.#pending.items, panels: () => this.#panels, runId: () => this.#model?.runId, events: () => this.#model?.newestEvents(),
    navigate: (to) => this.#navigate(to), open: (target) => this.#openTarget(target), showView: (view) => this.#showView(view), showPanel: (name) => this.#showPanel(name),
    create: () => this.#createSession(), canRename: () => this.#heading.canRename, rename: () => this.#heading.rename(), toggleRail: () => this.#toggleRail(), showKeys: () => void openKeys(), openRecording: this.#openRecording,
  };

  /** Hides or shows the rail; on a phone its drawer. */
  #toggleRail() {
    if (matchMedia("(max-width: 819px)").matches) return this.#toggle("rail");
    if (document.body.dataset.rail === "hidden") delete document.body.dataset.rail;
    else document.body.dataset.rail = "hidden";
  }

  #drawInbox() {
    void this.#useTool("ps-inbox", (inbox) => inbox.show(this.#pending.items, this.#inboxHost));
  }

  /** What the inbox needs of the shell. @type {import("./surfaces/inbox.js").InboxHost} */
  #inboxHost = {
    watch: (entry) => (entryKey(entry) === this.#current && this.#model ? this.#model : new LiveModel(this.#server, { audience: this.#route.audience, at: null, [entry.kind]: entry.id }, this.#transport, this.#modelEvents(() => false))),
    release: (model) => model !== this.#model && model.close(),
    open: (entry) => this.#navigate({ [entry.kind]: entry.id }),
    entries: () => this.#lists?.all ?? [],
    notifications,
    hydration: () => this.#list.hydration,
  };

  /**
   * @param {() => boolean} isCurrent
   * @returns {import("./view-model.js").ViewModelEvents}
   */
  #modelEvents(isCurrent) {
    return {
      step: (step) => isCurrent() && this.#setHydrationStep(step),
      missing: () => isCurrent() && this.#model && this.#showMissing(this.#model),
      erased: () => isCurrent() && this.#showErased(),
      summary: (summary) => isCurrent() && this.#setSummary(summary),
      inspect: (activity) => this.#inspect(activity),
      open: (target) => this.#openTarget(target),
      travel: (moment) => this.travel(moment),
      upgrade,
    };
  }

  /** What the runs need of the shell. @returns {import("./surfaces/runs.js").RunsHost} */
  get #runsHost() {
    return {
      server: this.#server, hydration: this.#list.hydration, audience: this.#route.audience, canChange: this.#actions.canChange, waiting: this.#pending.items,
      titleOf: (id) => this.#list.entry("session", id)?.title,
      open: ({ runId }) => this.#navigate({ run: runId, full: undefined }),
      moved: (place, isStep) => {
        Object.assign(this.#route, { pair: undefined, ...place });
        this.#writeAddress(isStep);
      },
    };
  }

  /** Goes back from a main view or a full panel to the conversation. */
  #back() {
    this.#panels.setFull(false);
    if (this.#route.view) this.#showView(undefined);
  }

  /** @param {Activity} activity */
  #inspect(activity) {
    if (!this.#model) return;
    this.#showPanel("events");
    void this.#useTool("ps-events", (events) => void events.show(activity));
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
    this.#drawPast(moment);
    if (this.#page.stage.dataset.past !== String(moment !== null)) {
      this.#page.stage.dataset.past = String(moment !== null);
      // A past moment offers no changes.
      this.#drawTitle();
      this.#page.sessions.current = this.#current;
    }
    // A replay refills the same store, so the feeder draws its changes like any others.
    if (!isSame) this.#feeder.show(model.view(moment?.store ?? model.store));
  }

  /** @param {Moment | null} moment */
  #drawPast(moment) {
    const toLive = () => {
      void this.#useTool("ps-scrubber", (scrubber) => scrubber.toLive());
      this.travel(null);
    };
    this.#page.past.hidden = moment === null;
    if (moment) render(html`<span>State at event ${moment.at}${moment.time ? `, ${new Date(moment.time).toLocaleTimeString()}` : ""}. Actions are disabled.</span><button type="button" class="button" @click=${toLive}>Back to live</button>`, this.#page.past);
  }

  /** After each update: the scrubber follows the focused run. */
  #afterDraw() {
    this.#countTimer ??= setTimeout(() => {
      this.#countTimer = undefined;
      this.#drawCounts();
      this.#markRead();
    }, COUNT_MS);
    const model = this.#model;
    if (model && model.store.size > 0) this.#page.bar.note = "";
    const run = model?.runId ?? "";
    if (model && run !== this.#followedRun && !model.moment) this.#followRun(model, run);
  }

  #drawCounts() {
    const model = this.#model;
    if (!model) return;
    const activities = (model.moment?.store ?? model.store).sorted();
    this.#panels.count(activities);
    const known = this.#types.size;
    for (const { activityType } of activities) this.#types.add(activityType);
    if (this.#types.size === known) return;
    this.#loadShown();
  }

  /**
   * @param {ViewModel} model
   * @param {string} run
   */
  #followRun(model, run) {
    this.#followedRun = run;
    void this.#useTool("ps-scrubber", (scrubber) => scrubber.follow(model.view(), run));
  }

  /* ── lists ── */

  /** @param {Lists} lists */
  #setLists(lists) {
    const isFirst = this.#lists === undefined;
    const wasEmpty = this.#isServerEmpty;
    this.#lists = lists;
    this.#tokenForm.accept();
    this.#emptyTitle = "No session selected";
    const entry = this.#entry;
    if (entry) this.#title = entry.title || entry.id;
    this.#drawTitle();
    void this.#actions.load().then((actions) => actions.takeOver(lists.all), () => {});
    if (lists.isLive) this.#page.bar.isReachable = true;
    this.#page.sessions.show(lists);
    this.#pending.update(lists);
    if (this.#route.view === "runs") this.#shown.update?.(this.#runsHost);
    this.#markRead();
    if (isFirst || wasEmpty !== this.#isServerEmpty) this.#drawView();
    if (!this.#hasTarget && this.#route.view === undefined && lists.all.length > 0) {
      // First choice: a live pinned entry, then a live one without a parent, then any live one, then the newest.
      const live = lists.all.filter(isLive);
      const initial = live.find(({ isPinned }) => isPinned) ?? live.find(({ parent }) => !parent) ?? live[0] ?? lists.all[0];
      return this.#navigate({ [initial.kind]: initial.id }, false);
    }
    // A run's stream ends with the run. After another attempt began, the page must connect again.
    const model = this.#model;
    const ownRun = lists.all.find(({ kind, id }) => kind === "run" && id === this.#route.run);
    if (model && ownRun && isLive(ownRun) && model.connection.state.kind === "ended") this.#page.bar.connection = model.reconnect();
  }

  /** Whether the server has nothing to show, and nothing is open. */
  get #isServerEmpty() {
    return this.#lists?.all.length === 0 && !this.#hasTarget && this.#route.view === undefined;
  }

  /** @param {unknown} error */
  #listFailed(error) {
    const { audience } = this.#route;
    if (error instanceof Problem && error.status === 403 && audience !== "user" && String(/** @type {any} */ (error.document).missing).startsWith("audience:")) {
      // A token whose rights only the server knows.
      showToast({ text: `Your token does not permit the audience “${audience}”.`, isFailure: true });
      return this.#navigate({ ...this.#route, audience: "user" });
    }
    if (error instanceof Problem && (error.status === 401 || error.status === 403)) return this.#handleRejection(error);
    this.#page.bar.isReachable = false;
    this.#page.sessions.failure = failureText(error);
  }

  /** Draws the count and the questions of pending decisions. */
  #drawPending() {
    const { items } = this.#pending;
    this.#heading.showNeeds(items.length);
    this.#page.sessions.questions = this.#pending.questions;
    this.#attention.show(items, this.#pending.isRead);
    if (this.#route.view !== "inbox") return;
    this.#drawHint();
    this.#drawInbox();
  }

  /** @param {Problem} error */
  #handleRejection(error) {
    const text = this.#tokenForm.reject(error);
    // The previous token may have allowed sessions that this one does not.
    this.#lists = undefined;
    this.#pending.clear();
    this.#page.sessions.clear(text);
    this.#emptyTitle = "Token required";
    if (!this.#hasTarget) this.#drawTitle();
  }

  /* ── event listeners ── */

  #addListeners() {
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#leave() : this.#markRead()));
    this.#page.sessions.actions = this.#actions;
    const { sessions, bar, audience, compare, needs, conversation, back, rail, extras } = this.#page;
    sessions.addEventListener("filter", (event) => {
      const { filter, words } = /** @type {CustomEvent} */ (event).detail;
      this.#list.filter(filter, words);
    });
    sessions.addEventListener("retry", () => this.#list.retry());
    sessions.addEventListener("find", () => void openPalette(this.#paletteHost));
    sessions.addEventListener("create", () => this.#createSession());
    document.addEventListener("create", () => this.#createSession());
    needs.addEventListener("click", () => this.#showView(this.#route.view === "inbox" ? undefined : "inbox"));
    query("#open-runs", HTMLElement).addEventListener("click", () => {
      this.#toggle("rail", false);
      this.#showView("runs");
    });
    sessions.addEventListener("open", (event) => {
      const { kind, id, message } = /** @type {CustomEvent<Target & { message?: import("./text-search.js").Place }>} */ (event).detail;
      this.#panels.showConversation();
      this.#toggle("rail", false);
      this.#navigate({ [kind]: id, full: undefined, message });
    });
    back.addEventListener("click", () => this.#back());
    query("#keys", HTMLButtonElement).addEventListener("click", () => void openKeys());
    document.addEventListener("keys", () => void openKeys());
    document.addEventListener("recording", this.#openRecording);
    listenToKeys({
      palette: () => void openPalette(this.#paletteHost), help: () => void openKeys(), back: () => this.#escape(), move: (step) => this.#move(step), filter: () => sessions.search(), compose: () => this.#compose(),
      rail: () => this.#toggleRail(), pane: () => this.#panels.toggle(), rename: () => this.#heading.rename(), go: (name) => this.#go(name),
    });
    rail.addEventListener("click", () => this.#toggle("rail"));
    extras.addEventListener("click", () => this.#toggle("extras"));
    this.#page.dock.addEventListener("click", () => {
      this.#toggle("dock");
      this.#toggle("extras", false);
    });
    document.querySelector("ps-teammate-transcript")?.addEventListener("close", () => this.#route.view === "transcript" && this.#showView(undefined));
    bar.addEventListener("transport", (event) => {
      this.#transport = /** @type {CustomEvent} */ (event).detail;
      if (this.#hasTarget) this.#open();
    });
    for (const choice of audience.querySelectorAll("input")) {
      choice.addEventListener("change", () => {
        const { session, run, at } = this.#route;
        this.#navigate({ session, run, at, audience: /** @type {Route["audience"]} */ (choice.value) });
      });
    }
    compare.addEventListener("click", () => this.#showView(this.#route.view === "compare" ? undefined : "compare"));
    // Not `hashchange`: that comes later, and a delayed change of the address in between would undo the step.
    addEventListener("popstate", () => this.#addressChanged());
    document.addEventListener("artifact", (event) => this.#setArtifact(/** @type {CustomEvent} */ (event).detail));
    document.addEventListener("reveal", (event) => {
      this.#panels.showConversation();
      if (this.#route.view) this.#showView(undefined);
      conversation.reveal(/** @type {CustomEvent<string>} */ (event).detail);
    });
    document.addEventListener("expanded", () => customElements.get("ps-trace") && /** @type {any} */ (document.querySelector("ps-trace")).refresh());
    this.#page.playback.querySelector("ps-scrubber")?.addEventListener("travel", (event) => this.travel(/** @type {CustomEvent} */ (event).detail));
  }

  #createSession() {
    this.#createdSession = `session-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
    this.#navigate({ session: this.#createdSession });
    /** @type {HTMLElement | null} */ (document.querySelector("ps-composer textarea"))?.focus();
  }

  /**
   * Shows or hides what a phone has behind a button.
   * @param {"rail" | "extras" | "dock"} name The list of sessions, the controls of the header, or the playback.
   * @param {boolean} [isOpen] Default: the opposite.
   */
  #toggle(name, isOpen = document.body.dataset[name] !== "open") {
    document.body.dataset[name] = isOpen ? "open" : "closed";
    this.#page[name].setAttribute("aria-expanded", String(isOpen));
  }

  /** Puts what is open into the address, soon. */
  #updateAddress() {
    clearTimeout(this.#addressTimer);
    this.#addressTimer = setTimeout(() => this.#writeAddress(), ADDRESS_MS);
  }

  /** @param {boolean} [isStep] Whether the address becomes a step of the history. */
  #writeAddress(isStep = false) {
    clearTimeout(this.#addressTimer);
    this.#route.panel = this.#panels.current;
    this.#route.full = this.#panels.isFull || undefined;
    const address = format(this.#route);
    if (address === location.hash) return;
    if (isStep) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }
}

/**
 * The shell: what is open, what stands beside it, as whom one looks, and when.
 */

import { Hydration } from "./client/hydration.js";
import { Problem } from "./client/http.js";
import { ConnectionBar } from "./connection-bar.js";
import { Detail } from "./detail.js";
import { Feeder } from "./feeder.js";
import { Opened } from "./opened.js";
import { Panels } from "./panels.js";
import { format, parse } from "./route.js";
import { element, keyed, say, words } from "./surfaces/base.js";
import { Artifacts } from "./surfaces/artifacts.js";
import { Conversation } from "./surfaces/conversation.js";
import { SessionTabs, nameOf, tabsOf } from "./surfaces/session-tabs.js";
import { TeammateTranscript } from "./surfaces/teammate-transcript.js";
import { Timeline } from "./surfaces/timeline.js";
import { Token } from "./token.js";
import { Audiences } from "./tools/audiences.js";
import { Inspector } from "./tools/inspector.js";
import { Scrubber } from "./tools/scrubber.js";

/** @typedef {import("./route.js").Route} Route */
/** @typedef {import("./surfaces/base.js").Activity} Activity */
/** @typedef {import("./surfaces/base.js").Moment} Moment */
/** @typedef {import("./surfaces/base.js").Target} Target */
/** @typedef {import("./surfaces/session-tabs.js").Tab} Tab */

/** Sessions and runs that are listed. */
const LISTED_MAX = 100;
/** How often lists are asked for, in milliseconds. */
const POLL_MS = 2000;
/** How long the address waits for the last of several changes, in milliseconds: browsers allow only so many. */
const ADDRESS_MS = 300;

const LIVE = ["accepted", "running", "waiting"];

/** @type {Record<import("./opened.js").Step | "none", string>} */
const STEPS = {
  none: "Opening …", shell: "Loading recent messages …", window: "Loading status …", status: "Loading references …", references: "", whole: "",
};

/**
 * @template {HTMLElement} T
 * @param {string} selector
 * @param {new () => T} kind
 * @returns {T}
 */
export function part(selector, kind) {
  const found = document.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`the page has no ${selector}`);
  return found;
}

export class Shell {
  /** @param {Feeder} feeder */
  constructor(feeder) {
    this.#feeder = feeder;
    this.#detail = new Detail(part("#detail", HTMLDialogElement), this.#server);
    this.#panels = new Panels(() => {
      this.#feeder.soon();
      this.#address();
    });
    feeder.drawn = () => this.#drawn();
    this.#listen();
    this.#adopt(parse(location.hash));
    if (this.#isNamed) this.#open();
    void this.#poll();
  }

  #token = new Token();
  #server = { token: () => this.#token.text };
  #feeder;
  #detail;
  #panels;
  /** @type {Route} */
  #route = { audience: "user", at: null };
  /** @type {Opened | undefined} */
  #opened;
  /** @type {"sse" | "websocket"} */
  #transport = "sse";
  #lists = new Hydration();
  /** @type {Tab[]} */
  #tabs = [];
  /** What the session's or run's own line said. @type {Record<string, any>} */
  #told = {};
  /** The run that the tools of time follow. */
  #followed = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #addressing;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #polling;
  /** The session that was begun on this page, by its id. @type {string | undefined} */
  #created;

  #page = {
    tabs: part("#sessions", SessionTabs), bar: part("#connection-bar", ConnectionBar), stage: part("#stage", HTMLElement), title: part("#title", HTMLElement),
    hydration: part("#hydration", HTMLElement), lineage: part("#lineage", HTMLElement), past: part("#past", HTMLElement), token: part("#token", HTMLFormElement), tokenNote: part("#token-note", HTMLElement),
    audience: part("#audience", HTMLFieldSetElement), conversation: part("ps-conversation", Conversation), compare: part("#compare", HTMLButtonElement),
    beside: part("#beside", HTMLElement), create: part("#new-session", HTMLButtonElement),
  };

  #beside = {
    transcript: part("ps-teammate-transcript", TeammateTranscript), artifacts: part("ps-artifacts", Artifacts), timeline: part("ps-timeline", Timeline),
    inspector: part("ps-inspector", Inspector), scrubber: part("ps-scrubber", Scrubber), audiences: part("ps-audiences", Audiences),
  };

  /* ── what is open ── */

  get #isNamed() {
    return this.#route.session !== undefined || this.#route.run !== undefined;
  }

  /** @param {Route} route */
  #adopt(route) {
    const isOther = route.audience !== this.#route.audience;
    this.#route = route;
    if (isOther || this.#tabs.length === 0) this.#lists = new Hydration({ ...this.#server, audience: route.audience });
    for (const choice of this.#page.audience.querySelectorAll("input")) choice.checked = choice.value === route.audience;
    if (route.panel) this.#panels.select(route.panel);
  }

  /** @param {Partial<Route>} to */
  #go(to) {
    this.#adopt({ audience: this.#route.audience, panel: this.#panels.current, at: null, ...to });
    this.#address();
    this.#open();
  }

  #open() {
    this.#opened?.close();
    const { session, run, at } = this.#route;
    const id = session ?? run ?? "";
    const opened = new Opened(this.#server, this.#route, this.#transport, {
      step: (step) => opened === this.#opened && this.#step(step),
      missing: () => opened === this.#opened && this.#missing(opened),
      summary: (summary) => opened === this.#opened && this.#summary(summary),
      inspect: (activity) => this.#inspect(activity),
      open: (target) => this.#goTo(target),
      travel: (moment) => this.travel(moment),
    });
    this.#opened = opened;
    this.#followed = "";
    // What the list says of it is there at once; what its own answer says comes later.
    const known = this.#tabs.find((tab) => tab.id === id && (tab.kind === "session") === (session !== undefined));
    say(this.#page.title, known?.title || id);
    document.title = `${known?.title || id} · Proscenium`;
    this.#told = {};
    this.#drawLineage();
    this.#page.past.hidden = true;
    this.#step("none");
    this.#page.bar.link = opened.link;
    const view = opened.view();
    this.#feeder.show(view);
    this.#page.conversation.placeholder = "No messages yet.";
    this.#page.bar.note = "";
    this.#beside.inspector.close();
    this.#closeCompare();
    this.#page.tabs.show(this.#tabs, this.#current);
    void opened.hydrate().then(() => {
      if (at === null || opened !== this.#opened || opened.runId === undefined) return;
      this.#follow(opened, opened.runId);
      void this.#beside.scrubber.goTo(at);
    });
  }

  get #current() {
    const { session, run } = this.#route;
    return session !== undefined ? nameOf({ kind: "session", id: session }) : run !== undefined ? nameOf({ kind: "run", id: run }) : "";
  }

  /** @param {import("./opened.js").Step | "none"} step */
  #step(step) {
    this.#page.stage.dataset.hydration = step;
    say(this.#page.hydration, STEPS[step]);
    if (step === "shell") this.#feeder.all();
    this.#page.conversation.drawEarlier();
  }

  /**
   * The server knows no session or run of this name: the page says so, until a fact of it comes.
   * @param {Opened} opened
   */
  #missing(opened) {
    if (opened.store.size > 0) return;
    const { session, run } = this.#route;
    const isNew = session !== undefined && session === this.#created;
    const kind = session !== undefined ? "session" : "run";
    this.#page.bar.note = isNew ? "new session" : `no such ${kind}`;
    this.#page.conversation.placeholder = isNew ? "New session. Your first message starts it." : `The ${kind} “${session ?? run}” does not exist on this server, or your token does not allow it. If it starts, it appears here.`;
  }

  /** @param {Record<string, any>} summary */
  #summary(summary) {
    const title = words(summary.title) || this.#route.session || this.#route.run || "";
    say(this.#page.title, title);
    document.title = `${title} · Proscenium`;
    this.#told = summary;
    this.#drawLineage();
  }

  /** Parents and children: what its own line told, and children that came since. */
  #drawLineage() {
    const summary = this.#told;
    const { session } = this.#route;
    const children = new Set([...(summary.children ?? []), ...this.#tabs.filter(({ parent }) => session !== undefined && parent === session).map(({ id }) => id)]);
    /** @type {[string, Target][]} */
    const related = [];
    if (summary.parentSessionId && summary.parentSessionId !== this.#route.session) related.push([`Parent: ${summary.parentSessionId}`, { kind: "session", id: summary.parentSessionId }]);
    if (!this.#route.session && summary.sessionId) related.push([`Session: ${summary.sessionId}`, { kind: "session", id: summary.sessionId }]);
    for (const child of children) related.push([`Child: ${child}`, { kind: "session", id: words(child) }]);
    keyed(this.#page.lineage, related, ([text]) => text, ([text, target]) => {
      const button = element("button", "chip", text);
      button.type = "button";
      button.addEventListener("click", () => this.#goTo(target));
      return button;
    }, () => {});
  }

  /* ── going somewhere ── */

  /** @param {Target} target */
  #goTo(target) {
    const { kind, id = "", runId, href } = target;
    switch (kind) {
      case "session": return this.#go({ session: id });
      case "run": return this.#go({ run: id });
      case "blob": return this.#detail.open(words(href), this.#route.audience);
      case "teammate": this.#panels.show("team"); break;
      case "artifact": this.#panels.show("artifacts"); break;
      case "evidence": this.#panels.show("timeline"); break;
    }
    if (kind === "teammate") this.#beside.transcript.open(id, runId);
    else if (kind === "artifact") this.#beside.artifacts.open(id, runId);
    else this.#beside.timeline.open("evidence", id, runId);
    this.#panels.count();
    const surface = { teammate: this.#beside.transcript, artifact: this.#beside.artifacts, evidence: this.#beside.timeline }[kind];
    surface.scrollIntoView({ block: "nearest" });
  }

  /** @param {Activity} activity */
  #inspect(activity) {
    const { inspector } = this.#beside;
    if (!this.#opened) return;
    inspector.view = this.#opened.view(this.#opened.moment?.store ?? this.#opened.store);
    this.#panels.show("events");
    void inspector.show(activity);
    this.#panels.count();
  }

  /* ── time ── */

  /**
   * Shows all surfaces a past moment, or now again.
   * @param {Moment | null} moment
   */
  travel(moment) {
    const opened = this.#opened;
    if (!opened) return;
    const isSame = opened.moment?.store === moment?.store;
    opened.moment = moment;
    this.#route.at = moment?.at ?? null;
    this.#address();
    if (moment) this.#sayPast(`As it was at event ${moment.at}${moment.time ? `, ${new Date(moment.time).toLocaleTimeString()}` : ""}. You cannot answer a past state.`);
    this.#page.past.hidden = moment === null;
    this.#page.stage.dataset.past = String(moment !== null);
    // A replay fills one and the same store: its changes are drawn like any others.
    if (!isSame) this.#feeder.show(opened.view(moment?.store ?? opened.store));
  }

  /** @param {string} text */
  #sayPast(text) {
    const back = element("button", "button", "Back to now");
    back.type = "button";
    back.addEventListener("click", () => {
      this.#beside.scrubber.toLive();
      this.travel(null);
    });
    if (this.#page.past.firstChild?.textContent !== text) this.#page.past.replaceChildren(element("span", "", text), back);
    this.#page.past.hidden = false;
  }

  /** After each drawing: what follows the run in focus. */
  #drawn() {
    this.#panels.count();
    const opened = this.#opened;
    if (opened && opened.store.size > 0) this.#page.bar.note = "";
    const run = opened?.runId ?? "";
    if (opened && run !== this.#followed && !opened.moment) this.#follow(opened, run);
  }

  /**
   * @param {Opened} opened
   * @param {string} run
   */
  #follow(opened, run) {
    this.#followed = run;
    this.#beside.scrubber.follow(opened.view(), run);
  }

  #compare() {
    const opened = this.#opened;
    if (!this.#page.beside.hidden) return this.#closeCompare();
    if (!opened?.runId) return;
    this.#page.beside.hidden = false;
    this.#page.compare.setAttribute("aria-pressed", "true");
    this.#beside.audiences.follow(opened.runId, this.#server, opened.view());
  }

  #closeCompare() {
    if (this.#page.beside.hidden) return;
    this.#page.beside.hidden = true;
    this.#page.compare.setAttribute("aria-pressed", "false");
    this.#beside.audiences.close();
  }

  /* ── lists ── */

  async #poll() {
    const lists = this.#lists;
    try {
      // Cut is cut: lists come over the same network.
      if (this.#opened?.link.isCut) return;
      const [{ sessions }, { runs }] = await Promise.all([lists.sessions({ limit: LISTED_MAX }), lists.runs({ limit: LISTED_MAX })]);
      // A server that asks for no token needs no form for one.
      this.#page.token.hidden = !this.#token.isGiven;
      this.#sayToken("");
      if (lists === this.#lists) this.#list(tabsOf(sessions, runs), runs);
    } catch (why) {
      // Where no answer comes, the server is away: the connection says so, and the next poll may find it.
      if (why instanceof Problem && lists === this.#lists) this.#refused(why);
    } finally {
      clearTimeout(this.#polling);
      this.#polling = setTimeout(() => this.#poll(), POLL_MS);
    }
  }

  /** @param {Problem} why */
  #refused({ status, detail }) {
    if (status !== 401 && status !== 403) return;
    this.#page.token.hidden = false;
    this.#sayToken(status === 403 ? `The token does not allow this: ${detail}` : this.#token.isGiven ? "The server rejected this token. Check that it is complete and has not expired, then paste another." : "This server asks for a token. Paste one to see its sessions.");
  }

  /** @param {string} text Empty where there is nothing to say. */
  #sayToken(text) {
    const { tokenNote, tabs } = this.#page;
    say(tokenNote, text);
    tokenNote.hidden = text === "";
    tokenNote.dataset.state = this.#token.isGiven ? "failed" : "waiting";
    tabs.placeholder = text;
    if (text !== "") {
      // What the last token allowed is not this one's to show.
      this.#tabs = [];
      tabs.show([], this.#current);
      if (!this.#isNamed) say(this.#page.title, "Token required");
    } else if (!this.#isNamed) {
      say(this.#page.title, "No session selected");
    }
  }

  /**
   * @param {Tab[]} tabs
   * @param {import("./client/hydration.js").RunLine[]} runs
   */
  #list(tabs, runs) {
    this.#tabs = tabs;
    this.#page.tabs.show(tabs, this.#current);
    this.#drawLineage();
    if (!this.#isNamed && tabs.length > 0) {
      // What is pinned and goes on, else what goes on and is nobody's child, else what goes on, else the newest.
      const live = tabs.filter(({ status }) => LIVE.includes(status));
      const first = live.find(({ isPinned }) => isPinned) ?? live.find(({ parent }) => !parent) ?? live[0] ?? tabs[0];
      return this.#go({ [first.kind]: first.id });
    }
    // A run's stream ends with it. When somebody begins it anew, it is followed anew.
    const opened = this.#opened;
    const mine = runs.find(({ runId }) => runId === this.#route.run);
    if (opened && mine && LIVE.includes(mine.status) && opened.link.state.kind === "ended") this.#page.bar.link = opened.reconnect();
  }

  /* ── what is pressed ── */

  #listen() {
    const { tabs, bar, token, audience, compare, create, conversation } = this.#page;
    tabs.addEventListener("open", (event) => {
      const { kind, id } = /** @type {CustomEvent<Target>} */ (event).detail;
      this.#panels.toTalk();
      this.#go({ [kind]: id });
    });
    bar.addEventListener("transport", (event) => {
      this.#transport = /** @type {CustomEvent} */ (event).detail;
      if (this.#isNamed) this.#open();
    });
    token.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = new FormData(token).get("token");
      token.reset();
      this.#token.give(typeof given === "string" ? given.trim() : "");
      if (this.#isNamed) this.#open();
      this.#lists = new Hydration({ ...this.#server, audience: this.#route.audience });
      void this.#poll();
    });
    for (const choice of audience.querySelectorAll("input")) {
      choice.addEventListener("change", () => {
        const { session, run, at } = this.#route;
        this.#go({ session, run, at, audience: /** @type {Route["audience"]} */ (choice.value) });
      });
    }
    compare.addEventListener("click", () => this.#compare());
    create.addEventListener("click", () => {
      this.#created = `session-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
      this.#go({ session: this.#created });
      /** @type {HTMLElement | null} */ (document.querySelector("ps-composer textarea"))?.focus();
    });
    addEventListener("hashchange", () => {
      if (location.hash === format(this.#route)) return;
      this.#adopt(parse(location.hash));
      if (this.#isNamed) this.#open();
    });
    document.addEventListener("reveal", (event) => {
      this.#panels.toTalk();
      conversation.reveal(/** @type {CustomEvent<string>} */ (event).detail);
    });
    const { timeline } = this.#beside;
    timeline.isExpandedElsewhere = (key) => conversation.isExpanded(key);
    document.addEventListener("expanded", () => timeline.refresh());
    this.#beside.scrubber.addEventListener("travel", (event) => this.travel(/** @type {CustomEvent} */ (event).detail));
  }

  #address() {
    clearTimeout(this.#addressing);
    this.#route.panel = this.#panels.current;
    this.#addressing = setTimeout(() => history.replaceState(null, "", format(this.#route)), ADDRESS_MS);
  }
}

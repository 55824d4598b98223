/**
 * The conversation: what was said, and between it what was done, decided and cut, each where it opened.
 *
 * Text that streams is appended where it stands. Only what is near the viewport is in the document, so that a long run opens
 * as fast as a short one.
 */

import { Surface, count, define, element, inspectButton, keyOf, mark, say, spoken, standing, words } from "./base.js";
import { lengthOf } from "../client/store.js";
import { Action } from "./action.js";
import { agentName, beside } from "./card.js";
import { Flow, kindOf } from "./flow.js";
import { InlineProcess } from "./inline-process.js";
import { drawMedia, hasMedia } from "./media.js";
import { Prose } from "./prose.js";
import { Windowed } from "./windowed.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */
/** @typedef {import("./flow.js").Row} Row */

/** Parts whose text is what is said; others are shown beside it, as what they are. */
const SAID = new Set(["assistant_text", "user_text", "text"]);

export class Conversation extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return kindOf(activity) !== undefined;
  }

  /** @type {Flow | undefined} */
  #flow;
  /** @type {Windowed<Row> | undefined} */
  #window;
  /** What the viewer opened or closed. It is theirs, and goes with the view. @type {Map<string, boolean>} */
  #folds = new Map();
  #empty = element("p", "hint empty");
  #toEnd = element("button", "button to-end", "Jump to the newest");
  #earlier = element("button", "button earlier", "Load earlier");
  #earlierNote = element("p", "hint earlier-note");

  build() {
    this.#window?.close();
    this.#folds = new Map();
    this.#flow = new Flow(this.view.store);
    const scroller = element("div", "scroller");
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "region");
    scroller.setAttribute("aria-label", "Conversation");
    this.#window = new Windowed(scroller, { keyOf: (row) => row.id, make: (row) => this.#make(row), change: (child, row) => this.#change(child, row) });
    scroller.addEventListener("scroll", () => this.#drawEnd(), { passive: true });
    this.#toEnd.type = "button";
    this.#toEnd.onclick = () => {
      this.#window?.toEnd();
      this.#drawEnd();
      scroller.focus();
    };
    this.#earlier.type = "button";
    this.#earlier.dataset.kind = "quiet";
    this.#earlier.onclick = () => this.#loadEarlier();
    this.#earlierNote.setAttribute("role", "status");
    say(this.#earlierNote, "");
    this.append(this.#empty, this.#earlier, this.#earlierNote, scroller, this.#toEnd);
    this.drawEarlier();
  }

  /** Older history comes on demand: the button is there while the server has more. */
  drawEarlier() {
    if (!this.isConnectedToView) return;
    this.#earlier.hidden = !this.view.isLive || this.view.earlier?.hasMore !== true;
    this.#earlierNote.hidden = this.#earlierNote.textContent === "";
  }

  async #loadEarlier() {
    const { view } = this;
    this.#earlier.disabled = true;
    say(this.#earlier, "Loading …");
    let note = "";
    try {
      await view.earlier?.load();
      if (view.earlier?.hasMore === false) note = "This is the start of the history.";
    } catch (why) {
      note = `Earlier messages could not be loaded: ${why instanceof Error ? why.message : why}`;
    }
    this.#earlier.disabled = false;
    say(this.#earlier, "Load earlier");
    if (this.view !== view) return;
    say(this.#earlierNote, note);
    this.drawEarlier();
  }

  /**
   * Whether an activity's process stands expanded here, so that it is not expanded elsewhere on the screen, too.
   * @param {string} key
   */
  isExpanded(key) {
    const flow = this.#flow;
    if (!flow || this.offsetParent === null) return false;
    return flow.rowsOf(key).some((id) => {
      const row = flow.row(id);
      return row?.kind === "process" && row.keys.includes(key) && (this.#folds.get(id) ?? flow.isOpen(row));
    });
  }

  /**
   * The text of an empty conversation.
   * @param {string} text
   */
  set placeholder(text) {
    say(this.#empty, text);
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    const [flow, list] = [this.#flow, this.#window];
    if (!flow || !list) return;
    const isAnew = changed === null;
    if (isAnew) flow.reset();
    const isOther = isAnew || flow.take(changed);
    if (isOther) {
      const rows = flow.rows(this.view.runs);
      list.set(rows);
      this.#empty.hidden = rows.length > 0;
    }
    const dirty = isAnew ? null : new Set([...changed].flatMap((key) => flow.rowsOf(key)));
    // Rows that stand otherwise than before may be headed, open or last otherwise, too.
    list.draw(isOther || dirty === null ? null : (id) => dirty.has(id));
    this.#drawEnd();
    this.drawEarlier();
    this.dispatchEvent(new CustomEvent("expanded", { bubbles: true }));
  }

  /**
   * Shows an activity's place.
   * @param {string} key
   */
  reveal(key) {
    const [row] = this.#flow?.rowsOf(key) ?? [];
    if (row) this.#window?.to(row);
  }

  #drawEnd() {
    this.#toEnd.hidden = this.#window?.isAtEnd ?? true;
  }

  /** @param {Row} row @returns {HTMLElement} */
  #make(row) {
    switch (row.kind) {
      case "part": return new Part();
      case "process": return new InlineProcess();
      case "action": return new Action();
      default: return new Mark();
    }
  }

  /**
   * @param {HTMLElement} child
   * @param {Row} row
   */
  #change(child, row) {
    const activity = this.view.store.get(row.key);
    const flow = this.#flow;
    if (!activity || !flow) return;
    if (child instanceof InlineProcess) child.show(this.view, { id: row.id, keys: row.keys, isOpen: flow.isOpen(row) }, this.#folds);
    else if (child instanceof Part) child.show(this.view, activity, row);
    else if (child instanceof Action || child instanceof Mark) child.show(this.view, activity);
  }
}

define("ps-conversation", Conversation);

/** One part of a message. */
export class Part extends HTMLElement {
  #head = element("p", "author");
  #name = element("span", "name");
  #note = element("span", "hint");
  #kind = element("p", "label");
  #body = element("div", "body prose");
  #media = element("div", "stack media");
  #whole = element("div", "stack media");
  /** @type {unknown} */
  #drawnWhole;
  #prose = new Prose(this.#body);
  /** @type {Activity | undefined} */
  #activity;
  /** @type {View | undefined} */
  #view;

  /**
   * @param {View} view
   * @param {Activity} activity
   * @param {{ partId?: string, isHeaded: boolean }} row
   */
  show(view, activity, { partId, isHeaded }) {
    if (!this.#activity) this.#build();
    this.#activity = activity;
    this.#view = view;
    const { content } = activity;
    const part = content.parts.find((/** @type {any} */ one) => one.partId === partId);
    this.dataset.key = keyOf(activity);
    this.dataset.role = words(content.role);
    this.dataset.kind = words(part?.kind);
    this.dataset.status = words(part?.status);
    if (isTeammate(view, activity)) this.dataset.agent = words(activity.agentId);
    const isSaid = SAID.has(part?.kind);
    this.hidden = lengthOf(part?.text) === 0 && part?.status !== "streaming" && !part?.withheld && !hasMedia(part);
    this.#head.hidden = !isHeaded;
    say(this.#name, author(view, activity));
    this.#kind.hidden = isSaid;
    say(this.#kind, isSaid ? "" : spoken(part?.kind));
    say(this.#note, [part?.status === "interrupted" ? "interrupted" : "", part?.withheld ? "the rest is withheld" : "", part?.clipped ? "continued in the log" : ""].filter(Boolean).join(", "));
    this.#prose.set(part?.text);
    this.#body.hidden = lengthOf(part?.text) === 0 && hasMedia(part);
    drawMedia(this.#media, view, part);
    // What came with the whole message stands below its last part.
    const isLast = part !== undefined && content.parts.at(-1) === part;
    const whole = { kind: "text", ...(content.attachments !== undefined && { attachments: content.attachments }), ...(content.refs !== undefined && { refs: content.refs }) };
    this.#whole.hidden = true;
    if (isLast && hasMedia(whole) && this.#drawnWhole !== content) drawMedia(this.#whole, view, whole);
    this.#drawnWhole = content;
    this.#whole.hidden = !(isLast && hasMedia(whole));
    if (!this.#whole.hidden) this.hidden = false;
  }

  #build() {
    this.classList.add("speech");
    this.setAttribute("role", "article");
    const inspect = inspectButton(() => /** @type {View} */ (this.#view), () => this.#activity);
    this.#head.append(this.#name);
    const foot = element("p", "row after");
    foot.append(this.#note, inspect);
    this.append(this.#head, this.#kind, this.#body, this.#media, this.#whole, foot);
  }
}

define("ps-part", Part);

/**
 * Whether somebody else than the run's own agent speaks.
 * @param {View} view
 * @param {Activity} activity
 */
function isTeammate(view, activity) {
  const own = beside(view, activity, "run", activity.runId)?.content.agentId;
  return activity.agentId !== undefined && own !== undefined && activity.agentId !== own;
}

/**
 * Who speaks, by facts: a teammate is never an anonymous assistant.
 * @param {View} view
 * @param {Activity} activity
 */
function author(view, activity) {
  const role = words(activity.content.role);
  const agent = activity.agentId ?? activity.content.agentId;
  if (role === "user") return "You";
  if (agent) return agentName(view, activity, words(agent));
  return role === "assistant" ? "Assistant" : spoken(role);
}

/** What is no speech and has its place among it: a boundary of memory, a hand-off, a teammate who came, an artifact. */
export class Mark extends HTMLElement {
  #line = element("span", "line row");
  #badge = element("span");
  #words = element("span", "words");
  #open = element("button", "button");
  /** @type {Activity | undefined} */
  #activity;
  /** @type {View | undefined} */
  #view;

  /**
   * @param {View} view
   * @param {Activity} activity
   */
  show(view, activity) {
    const isNew = !this.#activity;
    this.#view = view;
    this.#activity = activity;
    if (isNew) this.#build();
    const target = targetOf(activity);
    const status = statusOf(activity);
    this.dataset.key = keyOf(activity);
    this.dataset.type = activity.activityType;
    this.dataset.status = words(status);
    say(this.#words, sentence(view, activity));
    mark(this.#badge, status);
    this.#open.hidden = target === undefined;
    say(this.#open, `Open ${activity.activityType === "agent" ? "transcript" : activity.activityType}`);
  }

  #build() {
    this.classList.add("mark");
    this.#open.type = "button";
    this.#open.dataset.kind = "quiet";
    this.#open.addEventListener("click", () => {
      const target = this.#activity && targetOf(this.#activity);
      if (target) this.#view?.open(target);
    });
    this.#line.append(this.#words, this.#badge, this.#open, inspectButton(() => /** @type {View} */ (this.#view), () => this.#activity));
    this.append(this.#line);
  }
}

define("ps-mark", Mark);

/** @param {Activity} activity @returns {import("./base.js").Target | undefined} */
function targetOf({ activityType, activityId, runId }) {
  if (activityType === "agent") return { kind: "teammate", id: activityId, runId };
  if (activityType === "artifact") return { kind: "artifact", id: activityId, runId };
  if (activityType === "run") return { kind: "run", id: runId };
  return undefined;
}

/** @param {Activity} activity */
const statusOf = ({ content }) => standing(content);

/**
 * @param {View} view
 * @param {Activity} activity
 * @returns {string}
 */
function sentence(view, activity) {
  const { content } = activity;
  switch (activity.activityType) {
    case "run": return `Run ${activity.runId}`;
    case "compaction": return compaction(content);
    case "handoff": {
      const name = (/** @type {unknown} */ id) => (id === undefined ? "unknown" : agentName(view, activity, words(id)));
      return `Handed from ${name(content.from)} to ${name(content.to)}${content.reason ? `: ${words(content.reason)}` : ""}`;
    }
    case "agent": return `${agentName(view, activity, activity.activityId)} joined${content.role ? ` as ${spoken(content.role)}` : ""}`;
    case "artifact": return `${words(content.title) || activity.activityId}${content.kind ? ` · ${spoken(content.kind)}` : ""}${content.version === undefined ? "" : ` · version ${words(content.version)}`}`;
    default: return spoken(activity.activityType);
  }
}

/** @param {Record<string, any>} content */
function compaction(content) {
  const [before, after] = [content.preTokens, content.postTokens];
  const amount = typeof before === "number" ? `: ${count(before)} → ${typeof after === "number" ? count(after) : "…"} tokens` : "";
  return `${content.status === "running" ? "Memory is being compacted" : "Memory was compacted here"}${amount}${content.summary ? `. ${words(content.summary)}` : ""}`;
}


/**
 * The conversation: messages, and between them process, decisions and boundaries, by the time at which each opened.
 *
 * Streamed text is appended in place. Only rows near the viewport are in the document, so a long run opens as fast as a
 * short one.
 */

import { Surface, formatCount, define, element, inspectButton, keyOf, setBadge, setText, humanize, displayedStatus, toText } from "./base.js";
import { lengthOf } from "../client/store.js";
import { Action } from "./action.js";
import { agentName, siblingOf } from "./card.js";
import { RowModel, kindOf } from "./row-model.js";
import { InlineProcess } from "./inline-process.js";
import { drawMedia, hasMedia } from "./media.js";
import { Prose } from "./prose.js";
import { VirtualList } from "./virtual-list.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */
/** @typedef {import("./row-model.js").Row} Row */

/** Kinds of message parts that are speech. Other parts get a label. */
const SPEECH_KINDS = new Set(["assistant_text", "user_text", "text"]);

export class Conversation extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return kindOf(activity) !== undefined;
  }

  /** @type {RowModel | undefined} */
  #rowModel;
  /** @type {VirtualList<Row> | undefined} */
  #list;
  /** Rows that the viewer expanded or collapsed, by id, per view. @type {Map<string, boolean>} */
  #expansion = new Map();
  #empty = element("p", "hint empty");
  #toEndButton = element("button", "button to-end", "Jump to latest");
  #earlierButton = element("button", "button earlier", "Load earlier");
  #earlierStatus = element("p", "hint earlier-note");

  build() {
    this.#list?.close();
    this.#expansion = new Map();
    this.#rowModel = new RowModel(this.view.store);
    const scroller = element("div", "scroller");
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "region");
    scroller.setAttribute("aria-label", "Conversation");
    this.#list = new VirtualList(scroller, { keyOf: (row) => row.id, make: (row) => this.#createRow(row), change: (child, row) => this.#updateRow(child, row) });
    scroller.addEventListener("scroll", () => this.#updateEndButton(), { passive: true });
    this.#toEndButton.type = "button";
    this.#toEndButton.onclick = () => {
      this.#list?.scrollToEnd();
      this.#updateEndButton();
      scroller.focus();
    };
    this.#earlierButton.type = "button";
    this.#earlierButton.dataset.kind = "quiet";
    this.#earlierButton.onclick = () => this.#loadEarlier();
    this.#earlierStatus.setAttribute("role", "status");
    setText(this.#earlierStatus, "");
    this.append(this.#empty, this.#earlierButton, this.#earlierStatus, scroller, this.#toEndButton);
    this.drawEarlier();
  }

  /** Shows the button for older history while the server has more. */
  drawEarlier() {
    if (!this.isConnectedToView) return;
    this.#earlierButton.hidden = !this.view.isLive || this.view.earlier?.hasMore !== true;
    this.#earlierStatus.hidden = this.#earlierStatus.textContent === "";
  }

  async #loadEarlier() {
    const { view } = this;
    this.#earlierButton.disabled = true;
    setText(this.#earlierButton, "Loading…");
    let note = "";
    try {
      await view.earlier?.load();
      if (view.earlier?.hasMore === false) note = "This is the start of the conversation.";
    } catch (error) {
      note = `Earlier messages could not be loaded: ${error instanceof Error ? error.message : error}`;
    }
    this.#earlierButton.disabled = false;
    setText(this.#earlierButton, "Load earlier");
    if (this.view !== view) return;
    setText(this.#earlierStatus, note);
    this.drawEarlier();
  }

  /**
   * Whether an activity is expanded here. The timeline then does not expand it, too.
   * @param {string} key
   */
  isExpanded(key) {
    const rowModel = this.#rowModel;
    if (!rowModel || this.offsetParent === null) return false;
    return rowModel.rowsOf(key).some((id) => {
      const row = rowModel.row(id);
      return row?.kind === "process" && row.keys.includes(key) && (this.#expansion.get(id) ?? rowModel.isOpen(row));
    });
  }

  /**
   * Sets the text of an empty conversation.
   * @param {string} text
   */
  set placeholder(text) {
    setText(this.#empty, text);
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    const [rowModel, list] = [this.#rowModel, this.#list];
    if (!rowModel || !list) return;
    const isFull = changed === null;
    if (isFull) rowModel.reset();
    const hasOtherRows = isFull || rowModel.applyChanges(changed);
    if (hasOtherRows) {
      const rows = rowModel.rows(this.view.runs);
      list.set(rows);
      this.#empty.hidden = rows.length > 0;
    }
    const dirty = isFull ? null : new Set([...changed].flatMap((key) => rowModel.rowsOf(key)));
    // A change of the rows may change which ones have a heading, are open or are last.
    list.draw(hasOtherRows || dirty === null ? null : (id) => dirty.has(id));
    this.#updateEndButton();
    this.drawEarlier();
    this.dispatchEvent(new CustomEvent("expanded", { bubbles: true }));
  }

  /**
   * Scrolls to an activity.
   * @param {string} key
   */
  reveal(key) {
    const [row] = this.#rowModel?.rowsOf(key) ?? [];
    if (row) this.#list?.scrollToRow(row);
  }

  #updateEndButton() {
    this.#toEndButton.hidden = this.#list?.isAtEnd ?? true;
  }

  /** @param {Row} row @returns {HTMLElement} */
  #createRow(row) {
    switch (row.kind) {
      case "part": return new MessagePart();
      case "process": return new InlineProcess();
      case "action": return new Action();
      default: return new EventLine();
    }
  }

  /**
   * @param {HTMLElement} child
   * @param {Row} row
   */
  #updateRow(child, row) {
    const activity = this.view.store.get(row.key);
    const rowModel = this.#rowModel;
    if (!activity || !rowModel) return;
    if (child instanceof InlineProcess) child.show(this.view, { id: row.id, keys: row.keys, isOpen: rowModel.isOpen(row) }, this.#expansion);
    else if (child instanceof MessagePart) child.show(this.view, activity, row);
    else if (child instanceof Action || child instanceof EventLine) child.show(this.view, activity);
  }
}

define("ps-conversation", Conversation);

/** One part of a message. */
export class MessagePart extends HTMLElement {
  #head = element("p", "author");
  #name = element("span", "name");
  #notes = element("span", "hint");
  #kind = element("p", "label");
  #body = element("div", "body prose");
  #media = element("div", "stack media");
  #messageMedia = element("div", "stack media");
  /** @type {unknown} */
  #drawnContent;
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
    this.dataset.role = toText(content.role);
    this.dataset.kind = toText(part?.kind);
    this.dataset.status = toText(part?.status);
    if (isTeammate(view, activity)) this.dataset.agent = toText(activity.agentId);
    const isSpeech = SPEECH_KINDS.has(part?.kind);
    this.hidden = lengthOf(part?.text) === 0 && part?.status !== "streaming" && !part?.withheld && !hasMedia(part);
    this.#head.hidden = !isHeaded;
    setText(this.#name, authorName(view, activity));
    this.#kind.hidden = isSpeech;
    setText(this.#kind, isSpeech ? "" : humanize(part?.kind));
    setText(this.#notes, [part?.status === "interrupted" ? "interrupted" : "", part?.withheld ? "the rest is withheld" : "", part?.clipped ? "continues in the log" : ""].filter(Boolean).join(", "));
    this.#prose.set(part?.text);
    this.#body.hidden = lengthOf(part?.text) === 0 && hasMedia(part);
    drawMedia(this.#media, view, part);
    // Attachments of the whole message appear below its last part.
    const isLast = part !== undefined && content.parts.at(-1) === part;
    const messagePart = { kind: "text", ...(content.attachments !== undefined && { attachments: content.attachments }), ...(content.refs !== undefined && { refs: content.refs }) };
    this.#messageMedia.hidden = true;
    if (isLast && hasMedia(messagePart) && this.#drawnContent !== content) drawMedia(this.#messageMedia, view, messagePart);
    this.#drawnContent = content;
    this.#messageMedia.hidden = !(isLast && hasMedia(messagePart));
    if (!this.#messageMedia.hidden) this.hidden = false;
  }

  #build() {
    this.classList.add("speech");
    this.setAttribute("role", "article");
    const inspect = inspectButton(() => /** @type {View} */ (this.#view), () => this.#activity);
    this.#head.append(this.#name);
    const foot = element("p", "row after");
    foot.append(this.#notes, inspect);
    this.append(this.#head, this.#kind, this.#body, this.#media, this.#messageMedia, foot);
  }
}

define("ps-part", MessagePart);

/**
 * Whether another agent than the run's own wrote the message.
 * @param {View} view
 * @param {Activity} activity
 */
function isTeammate(view, activity) {
  const runAgent = siblingOf(view, activity, "run", activity.runId)?.content.agentId;
  return activity.agentId !== undefined && runAgent !== undefined && activity.agentId !== runAgent;
}

/**
 * Returns the author of a message. A teammate has its own name, never “Assistant”.
 * @param {View} view
 * @param {Activity} activity
 */
function authorName(view, activity) {
  const role = toText(activity.content.role);
  const agent = activity.agentId ?? activity.content.agentId;
  if (role === "user") return "You";
  if (agent) return agentName(view, activity, toText(agent));
  return role === "assistant" ? "Assistant" : humanize(role);
}

/** One line that is not a message: a compaction, a hand-off, a new teammate, an artifact, or a run. */
export class EventLine extends HTMLElement {
  #line = element("span", "line row");
  #badge = element("span");
  #text = element("span", "words");
  #openButton = element("button", "button");
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
    this.dataset.status = toText(status);
    setText(this.#text, describeMark(view, activity));
    setBadge(this.#badge, status);
    this.#openButton.hidden = target === undefined;
    setText(this.#openButton, `Open ${activity.activityType === "agent" ? "transcript" : activity.activityType}`);
  }

  #build() {
    this.classList.add("mark");
    this.#openButton.type = "button";
    this.#openButton.dataset.kind = "quiet";
    this.#openButton.addEventListener("click", () => {
      const target = this.#activity && targetOf(this.#activity);
      if (target) this.#view?.open(target);
    });
    this.#line.append(this.#text, this.#badge, this.#openButton, inspectButton(() => /** @type {View} */ (this.#view), () => this.#activity));
    this.append(this.#line);
  }
}

define("ps-mark", EventLine);

/** @param {Activity} activity @returns {import("./base.js").Target | undefined} */
function targetOf({ activityType, activityId, runId }) {
  if (activityType === "agent") return { kind: "teammate", id: activityId, runId };
  if (activityType === "artifact") return { kind: "artifact", id: activityId, runId };
  if (activityType === "run") return { kind: "run", id: runId };
  return undefined;
}

/** @param {Activity} activity */
const statusOf = ({ content }) => displayedStatus(content);

/**
 * @param {View} view
 * @param {Activity} activity
 * @returns {string}
 */
function describeMark(view, activity) {
  const { content } = activity;
  switch (activity.activityType) {
    case "run": return `Run ${activity.runId}`;
    case "compaction": return compaction(content);
    case "handoff": {
      const name = (/** @type {unknown} */ id) => (id === undefined ? "unknown" : agentName(view, activity, toText(id)));
      return `Handed off from ${name(content.from)} to ${name(content.to)}${content.reason ? `: ${toText(content.reason)}` : ""}`;
    }
    case "agent": return `${agentName(view, activity, activity.activityId)} joined${content.role ? ` as ${humanize(content.role)}` : ""}`;
    case "artifact": return `${toText(content.title) || activity.activityId}${content.kind ? ` · ${humanize(content.kind)}` : ""}${content.version === undefined ? "" : ` · version ${toText(content.version)}`}`;
    default: return humanize(activity.activityType);
  }
}

/** @param {Record<string, any>} content */
function compaction(content) {
  const [before, after] = [content.preTokens, content.postTokens];
  const amount = typeof before === "number" ? `: ${formatCount(before)} → ${typeof after === "number" ? formatCount(after) : "…"} tokens` : "";
  return `${content.status === "running" ? "Compacting context" : "Context compacted"}${amount}${content.summary ? `. ${toText(content.summary)}` : ""}`;
}


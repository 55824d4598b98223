/**
 * The conversation: messages, and between them process, decisions and boundaries, by the time at which each opened.
 *
 * Streamed text is appended in place. Only rows near the viewport are in the document, so a long run opens as fast as a
 * short one.
 */

import { Surface, define, element, inspectButton, keyOf, setText, humanize, displayedStatus, joinText, toText } from "./base.js";
import { lengthOf } from "../client/store.js";
import { Action } from "./action.js";
import { actionTitle } from "./action-title.js";
import { agentName, siblingOf } from "./card.js";
import { RowModel, kindOf } from "./row-model.js";
import { InlineProcess } from "./inline-process.js";
import { drawMedia, hasMedia, readImage } from "./part-media.js";
import { Prose } from "./prose.js";
import { VirtualList } from "./virtual-list.js";
import { age, formatShortCount } from "../ui/format.js";
import { t } from "../ui/texts.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { html, nothing, render } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */
/** @typedef {import("./row-model.js").Row} Row */

/** Kinds of message parts that are speech. Other parts get a label. */
const SPEECH_KINDS = new Set(["assistant_text", "user_text", "text"]);
/** The interval at which ages are updated, in milliseconds. */
const AGE_TICK_MS = 15_000;
/** How long a button says that it copied, in milliseconds. */
const COPIED_MS = 1500;

/** Where the viewer left each session or run; none for its end. @type {Map<string, { key: string, offset: number }>} */
const positions = new Map();

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
  #toEndButton = element("button", "button to-end", t("Jump to latest"));
  #earlierButton = element("button", "button earlier", t("Load earlier"));
  #earlierStatus = element("p", "hint earlier-note");
  /** The position to scroll to as soon as its row is there. @type {{ key: string, offset: number } | undefined} */
  #restored;
  /** The decision that is out of view, in one line below the conversation. */
  #pendingLine = element("div", "pending-line");
  /** @type {HTMLElement | undefined} */
  #scroller;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #ageTimer;

  disconnectedCallback() {
    clearInterval(this.#ageTimer);
  }

  build() {
    this.#list?.close();
    this.#expansion = new Map();
    this.#rowModel = new RowModel(this.view.store);
    const scroller = element("div", "scroller");
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "region");
    scroller.setAttribute("aria-label", t("Conversation"));
    const isHeld = (/** @type {Row} */ row) => row.kind === "action" && this.view.store.get(row.key)?.content.status === "pending";
    const list = new VirtualList(scroller, { keyOf: (row) => row.id, make: (row) => this.#createRow(row), change: (child, row) => this.#updateRow(child, row), isHeld });
    this.#list = list;
    this.#scroller = scroller;
    const target = this.view.sessionId ?? this.view.runId ?? "";
    this.#restored = positions.get(target);
    scroller.addEventListener("scroll", () => {
      const { position } = list;
      if (position) positions.set(target, position);
      else positions.delete(target);
      this.#updateEndButton();
      this.#updatePendingLine();
    }, { passive: true });
    clearInterval(this.#ageTimer);
    this.#ageTimer = setInterval(() => this.#list?.draw(null), AGE_TICK_MS);
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
    this.#pendingLine.setAttribute("role", "status");
    render(nothing, this.#pendingLine);
    this.append(this.#empty, this.#earlierButton, this.#earlierStatus, scroller, this.#toEndButton, this.#pendingLine);
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
    setText(this.#earlierButton, t("Loading…"));
    let note = "";
    try {
      await view.earlier?.load();
      if (view.earlier?.hasMore === false) note = t("This is the start of the conversation.");
    } catch (error) {
      note = t("Earlier messages could not be loaded: {reason}", { reason: error instanceof Error ? error.message : error });
    }
    this.#earlierButton.disabled = false;
    setText(this.#earlierButton, t("Load earlier"));
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

  get isEmpty() {
    return !this.#empty.hidden;
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
    if (this.#restored && list.restore(this.#restored)) this.#restored = undefined;
    this.#updateEndButton();
    this.#updatePendingLine();
    this.drawEarlier();
    this.dispatchEvent(new CustomEvent("expanded", { bubbles: true }));
  }

  /**
   * Scrolls to an activity.
   * @param {string} key
   */
  reveal(key) {
    const [row] = this.#rowModel?.rowsOf(key) ?? [];
    if (!row) return;
    this.#restored = undefined;
    this.#list?.scrollToRow(row);
  }

  #updateEndButton() {
    this.#toEndButton.hidden = this.#list?.isAtEnd ?? true;
  }

  /** Shows one line for the oldest pending decision whose card is out of view. */
  #updatePendingLine() {
    const [rowModel, scroller] = [this.#rowModel, this.#scroller];
    if (!rowModel || !scroller) return;
    const pending = this.view.store.sorted((one) => one.activityType === "action" && one.content.status === "pending" && one.content.control !== "submitted");
    const { top, bottom } = scroller.getBoundingClientRect();
    const cards = new Map(/** @type {HTMLElement[]} */ ([...scroller.querySelectorAll("ps-action")]).map((card) => [card.dataset.key, card.getBoundingClientRect()]));
    const isInView = (/** @type {Activity} */ activity) => {
      const card = cards.get(keyOf(activity));
      return card !== undefined && card.top < bottom - Math.min(card.height, 80) && card.bottom > top + 40;
    };
    const hidden = this.view.isLive && bottom > top ? pending.find((one) => rowModel.rowsOf(keyOf(one)).length > 0 && !isInView(one)) : undefined;
    const box = hidden && cards.get(keyOf(hidden));
    // Without a card it is far away: at the end of the conversation, that is above.
    const isAbove = box ? box.top < top : this.#list?.isAtEnd === true;
    const reveal = () => {
      if (!hidden) return;
      this.reveal(keyOf(hidden));
      /** @type {HTMLElement | null} */ (scroller.querySelector(`ps-action[data-key="${CSS.escape(keyOf(hidden))}"] .yes .button`))?.focus({ preventScroll: true });
    };
    render(hidden ? html`<button type="button" @click=${reveal}>${glyph("waiting")}<b dir="auto">${actionTitle(this.view, hidden)}</b><span class="review-hint" ?data-up=${isAbove}>${t("Review")}${icon("chevron-down")}</span></button>` : nothing, this.#pendingLine);
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

/** One part of a message. */
export class MessagePart extends HTMLElement {
  #body = Object.assign(element("div", "body prose"), { dir: "auto" });
  #media = element("div", "stack media");
  #messageMedia = element("div", "stack media");
  /** @type {unknown} */
  #drawnContent;
  #prose = new Prose(this.#body, (href) => readImage(/** @type {View} */ (this.#view), href));
  #isRaw = false;
  #isCopied = false;
  /** @type {Activity | undefined} */
  #activity;
  /** @type {View | undefined} */
  #view;
  /** @type {{ partId?: string, isHeaded: boolean } | undefined} */
  #row;
  #inspect = inspectButton(() => /** @type {View} */ (this.#view), () => this.#activity);
  /** They load once the pointer or the focus is here, or if there is feedback, or a branch. */
  #feedback = document.createElement("ps-feedback");
  #again = document.createElement("ps-again");
  #isWanted = false;

  /**
   * @param {View} view
   * @param {Activity} activity
   * @param {{ partId?: string, isHeaded: boolean }} row
   */
  show(view, activity, row) {
    if (!this.#activity) {
      this.classList.add("speech");
      this.setAttribute("role", "article");
      for (const type of ["pointerenter", "focusin"]) this.addEventListener(type, () => this.#showTools(true), { once: true });
    }
    this.#activity = activity;
    this.#view = view;
    this.#row = row;
    const { content } = activity;
    const part = content.parts.find((/** @type {any} */ one) => one.partId === row.partId);
    this.dataset.key = keyOf(activity);
    this.dataset.role = toText(content.role);
    this.dataset.kind = toText(part?.kind);
    this.dataset.status = toText(part?.status);
    if (isTeammate(view, activity)) this.dataset.agent = toText(activity.agentId);
    this.hidden = lengthOf(part?.text) === 0 && part?.status !== "streaming" && !part?.withheld && !hasMedia(part);
    if (this.#isRaw) setText(this.#body, joinText(part?.text));
    else this.#prose.set(part?.text);
    this.#body.hidden = lengthOf(part?.text) === 0 && hasMedia(part);
    drawMedia(this.#media, view, part);
    // Attachments of the whole message appear below its last part.
    const isLast = part !== undefined && content.parts.at(-1) === part;
    const messagePart = { kind: "text", ...(content.attachments !== undefined && { attachments: content.attachments }), ...(content.refs !== undefined && { refs: content.refs }) };
    const hasAttachments = isLast && hasMedia(messagePart);
    if (hasAttachments && this.#drawnContent !== content) drawMedia(this.#messageMedia, view, messagePart);
    this.#drawnContent = content;
    this.#messageMedia.hidden = !hasAttachments;
    if (hasAttachments) this.hidden = false;
    this.#render(view, activity, part, row.isHeaded);
  }

  /**
   * @param {View} view
   * @param {Activity} activity
   * @param {any} part
   * @param {boolean} isHeaded
   */
  #render(view, activity, part, isHeaded) {
    const isSpeech = SPEECH_KINDS.has(part?.kind);
    const notes = [part?.status === "interrupted" ? "interrupted" : "", part?.withheld ? "the rest is withheld" : "", part?.clipped ? "continues in the log" : ""].filter(Boolean).join(", ");
    render(html`
      ${isHeaded ? html`<p class="author"><b class="name">${authorName(view, activity)}</b>${age(activity.sourceOpenedAt ?? activity.openedAt, view.now())}</p>` : nothing}
      ${isSpeech || hasMedia(part) ? nothing : html`<p class="label">${humanize(part?.kind)}</p>`}
      ${this.#body}${this.#media}${this.#messageMedia}
      ${notes ? html`<p class="hint notes">${notes}</p>` : nothing}
      <p class="after">
        <button type="button" class="button small" data-kind="quiet" aria-pressed=${this.#isRaw} title="The text as it was sent" @click=${() => this.#toggleRaw()}>Raw</button>
        <button type="button" class="button small icon-button" data-kind="quiet" aria-label=${t("Copy the message")} title=${t("Copy the message")} @click=${() => this.#copy(joinText(part?.text))}>${icon("copy")}${this.#isCopied ? "Copied" : nothing}</button>
        ${this.#inspect}${this.#again}${this.#feedback}
      </p>`, this);
    this.#showTools(activity.content.feedback !== undefined || view.tree !== undefined && view.tree.branches.length > 0);
  }

  /** @param {boolean} isWanted */
  #showTools(isWanted) {
    this.#isWanted ||= isWanted;
    const [view, activity, row] = [this.#view, this.#activity, this.#row];
    const { role, status, parts } = activity?.content ?? {};
    const isWhole = status !== "streaming" && parts?.at(-1)?.partId === row?.partId && activity?.runId !== undefined && view?.server !== undefined && view.upgrade !== undefined;
    const tools = [{ tool: this.#feedback, isShown: isWhole && role === "assistant" }, { tool: this.#again, isShown: isWhole && view.tree !== undefined }];
    for (const { tool, isShown } of tools) {
      tool.hidden = !isShown;
      // Of no use without the server, and the next look tries again.
      if (isShown && this.#isWanted) view?.upgrade?.(tool.localName).then(() => /** @type {any} */ (tool).show(view, this.#activity)).catch(() => {});
    }
  }

  #redraw() {
    if (this.#view && this.#activity && this.#row) this.show(this.#view, this.#activity, this.#row);
  }

  #toggleRaw() {
    this.#isRaw = !this.#isRaw;
    this.#body.classList.toggle("prose", !this.#isRaw);
    this.#body.classList.toggle("raw", this.#isRaw);
    this.#body.replaceChildren();
    if (!this.#isRaw) this.#prose = new Prose(this.#body, (href) => readImage(/** @type {View} */ (this.#view), href));
    this.#redraw();
  }

  /** @param {string} text */
  async #copy(text) {
    await navigator.clipboard.writeText(text);
    this.#isCopied = true;
    this.#redraw();
    setTimeout(() => {
      this.#isCopied = false;
      this.#redraw();
    }, COPIED_MS);
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
  if (role === "user") return t("You");
  if (agent) return agentName(view, activity, toText(agent));
  return role === "assistant" ? t("Assistant") : humanize(role);
}

/** A divider: a compaction, a hand-off, or a run. */
export class EventLine extends HTMLElement {
  /** @type {Activity | undefined} */
  #activity;
  /** @type {View | undefined} */
  #view;
  #inspect = inspectButton(() => /** @type {View} */ (this.#view), () => this.#activity);

  /**
   * @param {View} view
   * @param {Activity} activity
   */
  show(view, activity) {
    this.#view = view;
    this.#activity = activity;
    const { activityType, runId } = activity;
    this.classList.add("mark");
    this.dataset.key = keyOf(activity);
    this.dataset.type = activityType;
    this.dataset.status = toText(displayedStatus(activity.content));
    render(html`<span class="line">
      ${activityType === "run" ? html`<button type="button" class="link words" @click=${() => view.open({ kind: "run", id: runId })}>${describeMark(view, activity)}</button> ${age(activity.openedAt, view.now())}` : html`<span class="words">${describeMark(view, activity)}</span>`}
      ${this.#inspect}</span>`, this);
  }
}

define("ps-mark", EventLine);

/**
 * @param {View} view
 * @param {Activity} activity
 * @returns {string}
 */
function describeMark(view, activity) {
  const { content } = activity;
  switch (activity.activityType) {
    case "run": return `Run ${activity.runId}${content.status ? ` · ${humanize(displayedStatus(content))}` : ""}`;
    case "compaction": return describeCompaction(content);
    case "handoff": {
      const name = (/** @type {unknown} */ id) => (id === undefined ? "unknown" : agentName(view, activity, toText(id)));
      return `${t("Handed off from {from} to {to}", { from: name(content.from), to: name(content.to) })}${content.reason ? ` · ${toText(content.reason)}` : ""}`;
    }
    default: return humanize(activity.activityType);
  }
}

/** @param {Record<string, any>} content */
function describeCompaction(content) {
  const [before, after] = [content.preTokens, content.postTokens];
  const amount = typeof before === "number" ? ` · ${formatShortCount(before)} → ${typeof after === "number" ? formatShortCount(after) : "…"} tokens` : "";
  return `${t(content.status === "running" ? "Compacting context" : "Context compacted")}${amount}${content.summary ? ` · ${toText(content.summary)}` : ""}`;
}

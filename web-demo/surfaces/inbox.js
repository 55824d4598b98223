/**
 * The inbox “Needs you”: the pending decisions of all sessions, each decided in place, and those decided before.
 *
 * The list comes from REST. The selected decision has a live view of its session, so that its card shows what the
 * conversation would show, and its answer takes the same way.
 */

import { Store, keyOf } from "../client/store.js";
import { age, formatExact, parseTime } from "../ui/format.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { bellIcon } from "../ui/lazy-icons.js";
import { t } from "../ui/texts.js";
import { html, nothing, render, repeat } from "../vendor/lit.js";
import { actionTitle } from "./action-title.js";
import { Action } from "./action.js";
import { humanize, oncePerFrame, toText } from "./base.js";
import { decidedByText, progressTags } from "./decision-record.js";

/** @typedef {import("../session-entry.js").Entry} Entry */
/** @typedef {import("../pending.js").PendingItem} PendingItem */
/** @typedef {import("../live-model.js").LiveModel} LiveModel */
/** @typedef {import("./base.js").Activity} Activity */

/**
 * @typedef {object} InboxHost
 * @property {(entry: Entry) => LiveModel} watch Opens a live view of a session or run.
 * @property {(model: LiveModel) => void} release
 * @property {(entry: Entry) => void} open Opens the session or run.
 * @property {() => Entry[]} entries
 * @property {() => import("../client/hydration.js").Hydration} hydration
 * @property {(target: import("./base.js").Target) => void} [target] Opens what a card leads to; without it, the view does.
 * @property {typeof import("../attention.js").notifications} [notifications] What tells a person who looks elsewhere.
 */

/** @typedef {"open" | "approvals" | "questions" | "decided"} Filter */
/** @typedef {{ key: string, entry: Entry, action: Activity }} Decided */

/** Sessions whose earlier decisions the page reads: the newest. */
const DECIDED_SESSIONS_MAX = 20;
const DECIDED_MAX = 100;
/** Earlier decisions below the open ones. */
const DECIDED_BELOW_MAX = 8;
/** For the titles of earlier decisions, whose other activities are not read. */
const NO_VIEW = /** @type {import("./base.js").View} */ (/** @type {unknown} */ ({ store: new Store() }));
/** Process details of one session that are searched for decisions. */
const DETAILS_MAX = 200;

/** @type {Record<string, import("../ui/texts.js").Text>} */
const SORTS = { newest: "Newest first", oldest: "Oldest first", risk: "Highest risk first" };
const RISKS = ["low", "medium", "moderate", "high", "critical"];

/** @param {PendingItem} item */
const askedAt = ({ askedAt }) => parseTime(askedAt) || 0;

/** @param {Activity} action A decided one. @returns {import("../ui/glyphs.js").Status} */
function outcomeGlyph({ content }) {
  const outcome = toText(content.outcome ?? content.status);
  if (/reject|denied|declined/.test(outcome)) return "failed";
  return /approv|answer|accept|resolved|completed/.test(outcome) ? "completed" : "idle";
}

/** @type {Record<string, (a: PendingItem, b: PendingItem) => number>} */
const ORDERS = { newest: (a, b) => askedAt(b) - askedAt(a), oldest: (a, b) => askedAt(a) - askedAt(b), risk: (a, b) => RISKS.indexOf(b.risk) - RISKS.indexOf(a.risk) };

export class Inbox extends HTMLElement {
  /** @type {PendingItem[]} */
  #items = [];
  /** @type {InboxHost | undefined} */
  #host;
  /** @type {Filter} */
  #filter = "open";
  #sort = "newest";
  /** The selected decision; it stays after it was decided. @type {PendingItem | undefined} */
  #selected;
  /** Whether a narrow screen shows the selected decision in place of the list. */
  #isOpen = false;
  /** Whether a person chose the selected decision, or answered it. */
  #isChosen = false;
  /** @type {LiveModel | undefined} */
  #model;
  #unsubscribe = () => {};
  #card = new Action();
  /** @type {Decided[] | undefined} */
  #decided;
  #schedule = oncePerFrame(() => this.#draw());

  constructor() {
    super();
    this.addEventListener("decided", () => (this.#isChosen = true));
  }

  connectedCallback() {
    this.classList.add("inbox");
  }

  /**
   * @param {PendingItem[]} items
   * @param {InboxHost} host
   */
  show(items, host) {
    const isFirst = this.#host === undefined || !this.#selected;
    // What its runtime decides alone stays only if a person has chosen it.
    const isGone = !this.#isChosen && !items.some(({ key }) => key === this.#selected?.key);
    const hadItems = this.#items.length;
    this.#items = items;
    this.#host = host;
    if ((isFirst || isGone) && items.length > 0) this.#select(this.#shown.find((item) => items.includes(item)) ?? items[0]);
    if (isFirst || hadItems !== items.length) void this.#readDecided();
    this.#draw();
  }

  /** Ends the live view. */
  close() {
    this.#release();
    this.#selected = undefined;
    [this.#isOpen, this.#isChosen] = [false, false];
  }

  /** @param {number} step Selects another decision: 1 for the next, -1 for the previous. */
  move(step) {
    const shown = this.#shown;
    const at = shown.findIndex(({ key }) => key === this.#selected?.key);
    const next = shown[Math.min(shown.length - 1, Math.max(0, at + step))];
    if (next) this.#choose(next);
    /** @type {HTMLElement | null} */ (this.querySelector('.inbox-row[aria-current="true"]'))?.focus();
  }

  /** Handles a key for the selected decision. @param {string} key @returns {boolean} Whether it has a meaning here. */
  handleKey(key) {
    return this.#card.isShown && this.#card.handleKey(key);
  }

  /** Gives the focus to the selected decision, else to the filters. */
  takeFocus() {
    /** @type {HTMLElement | null} */ (this.querySelector('.inbox-row[aria-current="true"]') ?? this.querySelector("button"))?.focus();
  }

  /** Goes back to the list, on a narrow screen. @returns {boolean} Whether it did. */
  back() {
    // A wide inbox shows both.
    const isOver = this.#isOpen && this.querySelector(".inbox-list")?.checkVisibility() === false;
    this.#isOpen = false;
    this.#draw();
    return isOver;
  }

  /** The decisions on display. */
  get #shown() {
    const matches = { open: () => true, decided: () => false, approvals: (/** @type {PendingItem} */ { isApproval }) => isApproval, questions: (/** @type {PendingItem} */ { isApproval }) => !isApproval }[this.#filter];
    // A decision that was answered here stays until the user goes on.
    const kept = this.#selected && !this.#items.some(({ key }) => key === this.#selected?.key) ? [this.#selected] : [];
    return [...this.#items, ...kept].filter(matches).sort(ORDERS[this.#sort]);
  }

  #release() {
    this.#unsubscribe();
    this.#unsubscribe = () => {};
    if (this.#model) this.#host?.release(this.#model);
    this.#model = undefined;
  }

  /** A person selects a decision. @param {PendingItem} item */
  #choose(item) {
    this.#isChosen = true;
    this.#select(item);
  }

  /** @param {PendingItem} item */
  #select(item) {
    if (item.key === this.#selected?.key) return this.#draw();
    this.#release();
    this.#selected = item;
    const model = this.#host?.watch(item.entry);
    this.#model = model;
    if (model) this.#unsubscribe = model.store.subscribe(this.#schedule);
    this.#card = new Action();
    this.#draw();
  }

  /** Reads the earlier decisions of the newest sessions. */
  async #readDecided() {
    const host = this.#host;
    if (!host) return;
    const entries = host.entries().filter(({ kind }) => kind === "session").sort((a, b) => b.lastActivity.localeCompare(a.lastActivity)).slice(0, DECIDED_SESSIONS_MAX);
    const read = await Promise.all(entries.map(async (entry) => {
      try {
        const { items } = await host.hydration().timeline(entry.id, { limit: DETAILS_MAX });
        return items.filter(({ activityType, content }) => activityType === "action" && content.status !== "pending").map((action) => ({ key: `${entry.id} ${keyOf(action)}`, entry, action }));
      } catch {
        // A session may have been erased meanwhile.
        return [];
      }
    }));
    this.#decided = read.flat().sort((a, b) => toText(b.action.endedAt ?? b.action.updatedAt).localeCompare(toText(a.action.endedAt ?? a.action.updatedAt))).slice(0, DECIDED_MAX);
    this.#draw();
  }

  #draw() {
    if (!this.#host) return;
    const shown = this.#shown;
    const approvals = this.#items.filter(({ isApproval }) => isApproval).length;
    /** @type {[Filter, import("../ui/texts.js").Text, number | undefined][]} */
    const filters = [["open", "Open", this.#items.length], ["approvals", "Approvals", approvals], ["questions", "Questions", this.#items.length - approvals], ["decided", "Decided", this.#decided?.length]];
    this.dataset.open = String(this.#isOpen);
    render(html`
      <div class="inbox-list">
        <div class="inbox-bar">
          <div class="row grow" role="group" aria-label=${t("Filter")}>${filters.map(([name, label, count]) => html`<button type="button" class="filter" aria-pressed=${this.#filter === name} @click=${() => {
            this.#filter = name;
            this.#draw();
          }}>${t(label)}${count ? html`<i>${count}</i>` : nothing}</button>`)}</div>
          <select class="inbox-sort" aria-label=${t("Order")} .value=${this.#sort} @change=${(/** @type {Event} */ { target }) => {
            this.#sort = /** @type {HTMLSelectElement} */ (target).value;
            this.#draw();
          }}>${Object.entries(SORTS).map(([value, label]) => html`<option value=${value}>${t(label)}</option>`)}</select>
        </div>
        <div class="inbox-rows">
          ${this.#filter !== "decided" && shown.length === 0 ? html`<div class="inbox-empty">${glyph("completed")}<p><b>${t("Nothing needs you.")}</b> ${t("Approvals and questions of all sessions appear here.")}</p></div>` : nothing}
          ${repeat(shown, ({ key }) => key, (item) => this.#row(item))}
          ${this.#filter === "open" || this.#filter === "decided" ? this.#decidedRows() : nothing}
        </div>
        ${this.#notice()}
      </div>
      <div class="inbox-detail">${this.#detail(shown)}</div>`, this);
    this.#drawCard();
  }

  /** @param {PendingItem} item */
  #row(item) {
    const { entry, title, risk, agent } = item;
    const isPending = this.#items.some(({ key }) => key === item.key);
    const decided = isPending ? undefined : this.#model?.store.get(item.key);
    return html`<button type="button" class="inbox-row" aria-current=${item.key === this.#selected?.key ? "true" : "false"} @click=${() => {
      this.#isOpen = true;
      this.#choose(item);
    }}>
      ${glyph(isPending ? "waiting" : decided ? outcomeGlyph(decided) : "idle")}
      <span class="inbox-title"><b dir="auto">${title}</b>${risk ? html` <span class="tag" data-tone=${risk === "high" || risk === "critical" ? "fail" : nothing}>${t("{level} risk", { level: risk.charAt(0).toUpperCase() + risk.slice(1) })}</span>` : nothing}${isPending ? progressTags(item.progress, Date.now()) : nothing}<span class="visually-hidden">${t(isPending ? "pending" : "decided")}</span></span>
      <span class="inbox-subject truncate" dir="auto">${item.subject}</span>
      <span class="inbox-age">${age(item.askedAt, Date.now())}</span>
      <span class="hint truncate" dir="auto">${entry.title || entry.id}${agent ? ` · ${agent}` : ""}</span>
    </button>`;
  }

  #decidedRows() {
    if (!this.#decided) return html`<div class="loading" role="status" aria-label=${t("Loading earlier decisions")}><i></i><i></i><i></i></div>`;
    if (this.#decided.length === 0) return this.#filter === "decided" ? html`<div class="inbox-empty"><p>${t("No decisions yet.")}</p></div>` : nothing;
    const shown = this.#filter === "decided" ? this.#decided : this.#decided.slice(0, DECIDED_BELOW_MAX);
    return html`<h2 class="rail-group">${t("Decided")}</h2>${repeat(shown, ({ key }) => key, ({ entry, action }) => {
      const { content } = action;
      const status = toText(content.outcome ?? content.status);
      const time = action.endedAt ?? action.updatedAt;
      return html`<button type="button" class="inbox-decided" @click=${() => this.#host?.open(entry)}>
        ${glyph(outcomeGlyph(action))}
        <span class="truncate" dir="auto">${actionTitle(NO_VIEW, action)}</span>
        <span class="hint truncate" title=${formatExact(parseTime(time))}>${[humanize(status), decidedByText(content.decidedBy)].filter(Boolean).join(" ")} · ${entry.title || entry.id}</span>
        <span class="inbox-age">${age(time, Date.now())}</span>
      </button>`;
    })}`;
  }

  #notice() {
    const notifications = this.#host?.notifications;
    if (!notifications) return nothing;
    const { permission } = notifications;
    if (notifications.arePushed || permission === "unsupported" || permission === "granted") return nothing;
    return html`<div class="inbox-notice">${bellIcon}
      <p class="grow"><b>Hear about decisions when this page is in the background</b><br><span class="hint">${permission === "denied" ? "The browser blocks notifications of this page. Allow them in the settings of the site." : "The browser asks once."} The title and the icon of the page show the count in any case.</span></p>
      ${permission === "default" ? html`<button type="button" class="button" @click=${() => void notifications.ask().then(() => this.#draw())}>Allow notifications</button>` : nothing}
    </div>`;
  }

  /** @param {PendingItem[]} shown */
  #detail(shown) {
    const selected = this.#selected;
    if (!selected) return nothing;
    const at = shown.findIndex(({ key }) => key === selected.key);
    return html`
      <div class="inbox-head">
        <button type="button" class="button small only-narrow" data-kind="quiet" @click=${() => this.back()}>${icon("back")}${t("All decisions")}</button>
        <span class="hint grow">${at >= 0 ? html`${t("{at} of {count}", { at: at + 1, count: shown.length })} · ` : nothing}<kbd>j</kbd> <kbd>k</kbd> ${t("next, previous")}</span>
        <button type="button" class="button small" data-kind="quiet" @click=${() => this.#host?.open(selected.entry)}>${icon("expand")}${t("Open session")}</button>
      </div>
      <p class="inbox-session truncate" dir="auto">${selected.entry.title || selected.entry.id}</p>
      ${this.#card}`;
  }

  #drawCard() {
    const [model, selected] = [this.#model, this.#selected];
    const action = selected && model?.store.get(selected.key);
    const open = this.#host?.target;
    if (model && action) this.#card.show(open ? Object.assign(Object.create(model.view()), { open }) : model.view(), action);
  }
}

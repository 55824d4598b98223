/**
 * The base of the team's surfaces: a titled list of rows, one per activity, which open in place.
 */

import { Surface, formatCount, element, inspectButton, updateChildren, setBadge, setText, displayedStatus, stateOf } from "./base.js";
import { formatExact, formatSpan, timesOf } from "../ui/format.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { shownStatus } from "../ui/status.js";
import { html, nothing, render } from "../vendor/lit.js";
import { keyOf } from "../client/store.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** Rows drawn at first. */
const CARDS_MAX = 50;
/** The interval at which the times of rows grow, in milliseconds. */
const GROW_MS = 5000;

/**
 * A row of one line that opens in place.
 * @typedef {object} OpenRow
 * @property {HTMLElement} root
 * @property {HTMLElement} mark The glyph of the status.
 * @property {HTMLElement} title
 * @property {HTMLElement} preview What happens, in one line.
 * @property {HTMLElement} side Small labels.
 * @property {HTMLElement} time
 * @property {HTMLElement} opened What the opened row shows.
 */

/**
 * The row of an activity. Its contents are updated with every change; its buttons are created once.
 * @typedef {OpenRow & CardParts} Card
 * @typedef {object} CardParts
 * @property {HTMLElement} state The badge.
 * @property {HTMLElement} body
 * @property {HTMLDListElement} facts
 * @property {HTMLElement} links
 * @property {HTMLElement} foot The controls; hidden while a past moment is shown.
 * @property {HTMLElement} feedback The status of a control.
 * @property {Activity} activity The current activity.
 */

/**
 * Creates a row that opens in place.
 * @param {() => View} view
 * @param {() => Activity | undefined} activity Returns the current activity.
 * @returns {OpenRow}
 */
export function createOpenRow(view, activity) {
  const root = element("li", "card open-row");
  const head = element("div", "open-row-head");
  const line = element("button", "open-row-line");
  line.type = "button";
  line.setAttribute("aria-expanded", "false");
  const parts = { mark: element("span", "row-mark"), title: element("span", "card-title"), preview: element("span", "row-preview"), side: element("span", "row-side"), time: element("span", "row-time") };
  const chevron = element("span", "row-chevron");
  const drawChevron = (/** @type {boolean} */ isOpen) => render(icon(isOpen ? "chevron-down" : "chevron-right"), chevron);
  drawChevron(false);
  line.append(parts.mark, parts.title, parts.preview, parts.side, parts.time, chevron);
  head.append(line, inspectButton(view, activity));
  const opened = element("div", "opened");
  opened.hidden = true;
  line.addEventListener("click", () => {
    opened.hidden = !opened.hidden;
    root.dataset.open = String(!opened.hidden);
    line.setAttribute("aria-expanded", String(!opened.hidden));
    drawChevron(!opened.hidden);
  });
  root.append(head, opened);
  return { root, opened, ...parts };
}

/**
 * Returns the glyph of a row, and its time: how long an ended activity took, else how long nothing has changed.
 * @param {View} view
 * @param {Activity} activity
 * @param {unknown} status
 */
function rowState(view, activity, status) {
  const [opened, last] = timesOf(activity);
  // An accepted hand-off is over, although “accepted” is a status of running work.
  const shown = activity.endedAt && shownStatus(status) === "running" ? "completed" : shownStatus(status);
  const time = formatSpan(activity.endedAt ? last - opened : view.now() - last);
  return { shown, time, hint: Number.isFinite(last) ? `${activity.endedAt ? "Ended" : "Last change"} ${formatExact(last)}` : "" };
}

/**
 * Sets a row's glyph and its time.
 * @param {View} view
 * @param {OpenRow} row
 * @param {Activity} activity
 * @param {unknown} [status]
 */
export function setOpenRow(view, { root, mark, time }, activity, status = displayedStatus(activity.content)) {
  const state = rowState(view, activity, status);
  if (root.dataset.shown !== state.shown) render(glyph(state.shown), mark);
  root.dataset.shown = state.shown;
  setText(time, state.time);
  time.title = state.hint;
}

/**
 * A row that opens in place, as a template.
 * @param {{ view: View, activity: Activity, className: string, title: string, preview: string, side: unknown, opened: unknown, isOpen: boolean, toggle: () => void }} row
 */
export function openRowTemplate({ view, activity, className, title, preview, side, opened, isOpen, toggle }) {
  const status = displayedStatus(activity.content);
  const { shown, time, hint } = rowState(view, activity, status);
  return html`<li class="card open-row ${className}" data-key=${keyOf(activity)} data-shown=${shown} data-state=${stateOf(status)} data-open=${isOpen}>
    <div class="open-row-head"><button type="button" class="open-row-line" aria-expanded=${isOpen} @click=${toggle}><span class="row-mark">${glyph(shown)}</span><span class="card-title">${title}</span><span class="row-preview">${preview}</span><span class="row-side">${side}</span><span class="row-time" title=${hint}>${time}</span><span class="row-chevron">${icon(isOpen ? "chevron-down" : "chevron-right")}</span></button>
      <button type="button" class="inspect" title="Show events" aria-label="Show events" @click=${() => view.inspect(activity)}>i</button></div>
    <div class="opened" ?hidden=${!isOpen}>${opened}</div></li>`;
}

/** @type {WeakMap<Element, Card>} */
const cards = new WeakMap();

let headings = 0;

/** A titled list of cards. It is hidden while it has none. */
export class Lane extends Surface {
  /** The heading. */
  static heading = "";
  /** A short explanation below the heading. */
  static hint = "";

  /** The maximum number of cards. */
  #limit = CARDS_MAX;

  build() {
    const { heading, hint } = /** @type {typeof Lane} */ (this.constructor);
    this.#limit = CARDS_MAX;
    this.head = addHeading(this, heading, hint);
    this.top = element("div", "stack");
    this.list = element("ul", "cards");
    this.more = element("button", "button");
    this.more.type = "button";
    this.more.dataset.kind = "quiet";
    this.more.addEventListener("click", () => {
      this.#limit += CARDS_MAX;
      this.update(null);
    });
    this.append(this.top, this.list, this.more);
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.#grow(), GROW_MS);
  }

  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  /** The times of rows grow while nothing changes. */
  #grow() {
    if (!this.isConnectedToView || !this.view.isLive || !this.checkVisibility()) return;
    for (const root of this.list?.children ?? []) {
      const card = cards.get(root);
      if (card) setOpenRow(this.view, card, card.activity, this.statusOf(card.activity));
    }
  }

  /**
   * Returns the status that the row's glyph shows.
   * @param {Activity} activity
   * @returns {unknown}
   */
  statusOf({ content }) {
    return displayedStatus(content);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const every = this.activities();
    this.hidden = every.length === 0;
    if (this.hidden || !this.list || !this.more) return;
    const all = this.arrange(every);
    setText(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), all.length === every.length ? String(all.length) : `${all.length} of ${every.length}`);
    updateChildren(this.list, all.slice(0, this.#limit), keyOf, (activity) => this.#createCard(activity), (root, activity) => this.#updateCard(root, activity));
    const rest = all.length - this.#limit;
    this.more.hidden = rest <= 0;
    setText(this.more, `Show ${Math.min(rest, CARDS_MAX)} more of ${formatCount(rest)}`);
    this.drawSummary(all);
  }

  /**
   * Sorts the activities for display: newest first, unless a subclass overrides it, which may leave some out.
   * @param {Activity[]} activities
   * @returns {Activity[]}
   */
  arrange(activities) {
    return activities.toReversed();
  }

  /**
   * Creates the buttons of a card, once.
   * @param {Card} _card
   */
  buildControls(_card) {}

  /**
   * Fills in a card.
   * @param {Card} _card
   * @param {Record<string, any>} _content
   */
  fillCard(_card, _content) {}

  /**
   * Draws a summary above the cards.
   * @param {Activity[]} _all
   */
  drawSummary(_all) {}

  /** @param {Activity} activity */
  #createCard(activity) {
    /** @type {Card} */
    const card = {
      ...createOpenRow(() => this.view, () => card.activity),
      activity, state: element("span", "badge"), body: element("p", "card-body"), facts: element("dl", "facts"), links: element("div", "row links"),
      foot: element("div", "card-foot"), feedback: element("p", "hint told"),
    };
    card.feedback.setAttribute("role", "status");
    card.opened.append(card.state, card.body, card.facts, card.links, card.foot, card.feedback);
    cards.set(card.root, card);
    this.buildControls(card);
    return card.root;
  }

  /**
   * @param {HTMLElement} root
   * @param {Activity} activity
   */
  #updateCard(root, activity) {
    const card = /** @type {Card} */ (cards.get(root));
    card.activity = activity;
    root.dataset.key = keyOf(activity);
    setBadge(card.state, displayedStatus(activity.content));
    root.dataset.state = card.state.dataset.state;
    this.fillCard(card, activity.content);
    if (!card.preview.dataset.own) setText(card.preview, card.body.textContent ?? "");
    setOpenRow(this.view, card, activity, this.statusOf(activity));
    // The line says a short text already.
    card.body.hidden = card.body.textContent === "" || (card.body.textContent === card.preview.textContent && card.preview.scrollWidth <= card.preview.clientWidth);
    card.facts.hidden = card.facts.childElementCount === 0;
    card.links.hidden = card.links.childElementCount === 0;
    card.foot.hidden = !this.view.isLive || card.foot.childElementCount === 0;
  }
}

/**
 * Adds a heading, which is also the accessible name.
 * @param {HTMLElement} root
 * @param {string} heading
 * @param {string} [hint]
 */
export function addHeading(root, heading, hint = "") {
  const head = element("header", "lane-head");
  const row = element("div", "spread");
  const title = element("h2", "", heading);
  title.id = `heading-${++headings}`;
  row.append(title, element("span", "count hint"));
  head.append(row);
  if (hint) head.append(element("p", "hint", hint));
  root.setAttribute("role", "region");
  root.setAttribute("aria-labelledby", title.id);
  root.append(head);
  return head;
}

/**
 * Groups items. Each group keeps the order of the items.
 * @template Item
 * @param {Iterable<Item>} items
 * @param {(item: Item) => string} groupOf
 * @returns {Map<string, Item[]>}
 */
export function groupBy(items, groupOf) {
  /** @type {Map<string, Item[]>} */
  const groups = new Map();
  for (const item of items) {
    const group = groups.get(groupOf(item));
    if (group) group.push(item);
    else groups.set(groupOf(item), [item]);
  }
  return groups;
}

/**
 * Sets the preview of a row to something else than its text.
 * @param {OpenRow} row
 * @param {string} text
 */
export function setPreview({ preview }, text) {
  preview.dataset.own = "true";
  setText(preview, text);
}

/**
 * The base of the team's surfaces: a titled list of rows, one per activity, which open in place; and helpers for facts
 * and links.
 */

import { digitsOf } from "../client/json.js";
import { Surface, createBadge, formatCount, element, inspectButton, updateChildren, setBadge, setText, humanize, displayedStatus, stateOf, toText } from "./base.js";
import { formatExact, formatSpan, timesOf } from "../ui/format.js";
import { glyph, icon } from "../ui/icons.js";
import { shownStatus } from "../ui/status.js";
import { html, nothing, render } from "../vendor/lit.js";
import { keyOf } from "../client/store.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** Rows drawn at first. */
const CARDS_MAX = 50;
/** The interval at which the times of rows grow, in milliseconds. */
const GROW_MS = 5000;
/** The maximum length of a value in a list of facts, in characters. The event shows the whole. */
const VALUE_CHARS_MAX = 400;
/** The maximum number of items and members of a value. */
const ITEMS_MAX = 20;

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
    const all = this.arrange(this.activities());
    this.hidden = all.length === 0;
    if (this.hidden || !this.list || !this.more) return;
    setText(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), String(all.length));
    updateChildren(this.list, all.slice(0, this.#limit), keyOf, (activity) => this.#createCard(activity), (root, activity) => this.#updateCard(root, activity));
    const rest = all.length - this.#limit;
    this.more.hidden = rest <= 0;
    setText(this.more, `Show ${Math.min(rest, CARDS_MAX)} more of ${formatCount(rest)}`);
    this.drawSummary(all);
  }

  /**
   * Sorts the activities for display: newest first, unless a subclass overrides it.
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

/* ── formatting ── */

/**
 * Splits a name into words: `inputTokens` → `input tokens`.
 * @param {string} name
 */
export const splitWords = (name) => name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();

/**
 * Formats any value: `{ mode: "plan", maxCostUsd: 2 }` → `mode plan, max cost usd 2`. The length is bounded.
 * @param {unknown} value
 * @param {number} [depth] The depth below which values are formatted as JSON.
 * @returns {string}
 */
export function formatValue(value, depth = 3) {
  if (value === undefined || value === null) return "";
  if (typeof value === "number") return formatCount(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object" || digitsOf(value)) return truncate(toText(value));
  if (depth === 0) return truncate(toText(value));
  const all = Array.isArray(value)
    ? value.map((item) => formatValue(item, depth - 1))
    : Object.entries(value).map(([name, member]) => `${splitWords(name)} ${formatValue(member, depth - 1)}`);
  const rest = all.length > ITEMS_MAX ? [`and ${all.length - ITEMS_MAX} more`] : [];
  return truncate([...all.slice(0, ITEMS_MAX), ...rest].join(", "));
}

/** @param {string} text */
const truncate = (text) => (text.length > VALUE_CHARS_MAX ? `${text.slice(0, VALUE_CHARS_MAX)}…` : text);

/** Final statuses of an agent. */
export const ENDED_STATUSES = ["completed", "failed", "killed", "closed", "cancelled"];

/** The value of a required fact that the source omitted. */
export const UNKNOWN = "unknown";

/**
 * Fills a list of facts. Empty values are omitted; for a required one the caller passes `UNKNOWN`.
 * @param {HTMLDListElement} root
 * @param {[label: string, value: unknown][]} pairs
 */
export function setFacts(root, pairs) {
  const entries = pairs.map(([label, value]) => /** @type {[string, string]} */ ([label, formatValue(value)])).filter(([, text]) => text !== "");
  /** @type {{ key: string, tag: "dt" | "dd", text: string }[]} */
  const rows = entries.flatMap(([label, text]) => [{ key: `dt ${label}`, tag: "dt", text: label }, { key: `dd ${label}`, tag: "dd", text }]);
  updateChildren(root, rows, (row) => row.key, (row) => element(row.tag), (child, row) => {
    setText(child, row.text);
    child.toggleAttribute("data-unknown", row.text === UNKNOWN);
  });
}

/**
 * The same as a template.
 * @param {[label: string, value: unknown][]} pairs
 */
export function factsTemplate(pairs) {
  const rows = pairs.map(([label, value]) => [label, formatValue(value)]).filter(([, text]) => text !== "");
  return rows.length === 0 ? nothing : html`<dl class="facts">${rows.map(([label, text]) => html`<dt>${label}</dt><dd ?data-unknown=${text === UNKNOWN}>${text}</dd>`)}</dl>`;
}

/**
 * Links as a template.
 * @param {Link[]} links
 */
export function linksTemplate(links) {
  if (links.length === 0) return nothing;
  return html`<div class="row links">${links.map(({ label, words, go, missing }) => (go ? html`<button type="button" class="chip go" @click=${go}><span class="chip-label">${label}</span> <span class="mono truncate">${words}</span></button>`
    : html`<span class="chip"><span class="chip-label">${label}</span> <span class="mono truncate">${words}</span>${missing ? html` <span class="badge" data-state="unknown">${missing}</span>` : nothing}</span>`))}</div>`;
}

/**
 * A reference. With `go` it is a button that opens it; otherwise it is text.
 * @typedef {{ label: string, words: string, go?: () => void, missing?: string }} Link
 */

/**
 * @param {HTMLElement} root
 * @param {Link[]} links
 */
export function setLinks(root, links) {
  updateChildren(root, links, (it) => `${it.go ? "go" : "text"} ${it.label} ${it.words}`, (it) => {
    const node = element(it.go ? "button" : "span", it.go ? "chip go" : "chip");
    if (node instanceof HTMLButtonElement) node.type = "button";
    node.append(element("span", "chip-label", it.label), element("span", "mono truncate", it.words));
    if (it.missing) node.append(createBadge("unavailable", it.missing));
    return node;
  }, (child, it) => {
    if (child instanceof HTMLButtonElement) child.onclick = it.go ?? null;
  });
}

/** Paths of offloaded bodies on this server: the only addresses in a payload that the page requests. */
export const BLOB_PATH = /^\/v1\/blobs\/[0-9a-f]+$/;

/**
 * Creates links for references in the shapes of the protocol and of sources: `{ rel, href, bytes? }`, or text.
 * @param {View} view
 * @param {unknown} refs
 * @param {string} [label]
 * @returns {Link[]}
 */
export function refLinks(view, refs, label = "ref") {
  const all = Array.isArray(refs) ? refs : refs === undefined || refs === null ? [] : typeof refs === "object" && !("href" in refs) ? Object.entries(refs).map(([rel, href]) => ({ rel, href })) : [refs];
  return all.slice(0, ITEMS_MAX).map((ref) => {
    const href = typeof ref === "object" && ref ? toText(ref.href ?? ref.ref ?? ref.url ?? ref) : toText(ref);
    const name = typeof ref === "object" && ref?.rel ? humanize(ref.rel) : label;
    return { label: name, words: truncate(href), go: BLOB_PATH.test(href) ? () => view.open({ kind: "blob", href }) : undefined };
  });
}

/**
 * Creates links to evidence. A reference without an evidence fact is marked as missing.
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @returns {Link[]}
 */
export function evidenceLinks(view, from, ids) {
  return factsOf(view, from, ids, "evidence", "not found");
}

/**
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @returns {Link[]}
 */
export function artifactLinks(view, from, ids) {
  return factsOf(view, from, ids, "artifact", "not found");
}

/**
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @param {"evidence" | "artifact"} kind
 * @param {string} missing
 * @returns {Link[]}
 */
function factsOf(view, from, ids, kind, missing) {
  const all = Array.isArray(ids) ? ids : ids === undefined || ids === null ? [] : [ids];
  return all.slice(0, ITEMS_MAX).map((ref) => {
    const id = toText(typeof ref === "object" && ref ? (ref.id ?? ref[`${kind}Id`] ?? ref) : ref);
    const fact = findActivity(view, from, kind, id);
    if (!fact) return { label: kind, words: truncate(id), missing };
    return { label: kind, words: toText(fact.content.title) || id, go: () => view.open({ kind, id, runId: fact.runId }) };
  });
}

/**
 * Finds an activity by type and id: in the same log, else in any log of the store.
 * @param {View} view
 * @param {Activity} from
 * @param {string} type
 * @param {string} id
 * @returns {Activity | undefined}
 */
export function findActivity(view, from, type, id) {
  const inLog = (/** @type {{ runId: string, sessionId?: string }} */ { runId, sessionId }) => view.store.get(keyOf({ runId, sessionId, activityType: type, activityId: id }));
  const own = inLog(from);
  if (own) return own;
  for (const log of view.store.runs()) {
    const found = inLog(log);
    if (found) return found;
  }
  return undefined;
}

/**
 * Returns an agent's name; its id if no fact names it.
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} id
 */
export function findAgentName(view, from, id) {
  if (typeof id !== "string") return formatValue(id) || UNKNOWN;
  return toText(findActivity(view, from, "agent", id)?.content.agentName) || id;
}

/**
 * Returns the `run` activity of an activity's log; `undefined` for a session's own log.
 * @param {View} view
 * @param {Activity} activity
 */
export function runOf(view, { runId }) {
  return runId === "" ? undefined : view.store.get(keyOf({ runId, activityType: "run", activityId: runId }));
}

/**
 * Returns the topology as text; `undefined` if the source gives none.
 * @param {Record<string, any>} content
 */
export const topologyOf = ({ topology }) => (topology === undefined || topology === "unknown" ? undefined : humanize(topology));

/**
 * Returns the target of an activity's controls: its run, else its session.
 * @param {Activity} activity
 * @returns {{ run: string } | { session: string }}
 */
export function controlTarget(activity) {
  const { runId, sessionId } = /** @type {{ runId?: string, sessionId?: string }} */ (activity);
  return runId ? { run: runId } : { session: sessionId ?? "" };
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

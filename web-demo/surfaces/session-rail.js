/**
 * The rail: sessions, and runs without a session, in groups, with search and filters.
 *
 * Within a group rows keep their order while they change, so that a click hits the intended row.
 */

import { age, formatAge, parseTime } from "../ui/format.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { html, nothing, render, repeat } from "../vendor/lit.js";
import { opened } from "../dialogs.js";
import { entryKey } from "../session-entry.js";
import { isLive } from "../session-list.js";
import { define, humanize } from "./base.js";
import { sessionStatus } from "./session-header.js";

/** @typedef {import("../session-entry.js").Entry} Entry */
/** @typedef {import("../session-list.js").FilterName} FilterName */
/** @typedef {import("../session-list.js").Lists} Lists */
/** @typedef {import("../session-actions.js").SessionActions} Loaded */

/** The delay between a key and the search, in milliseconds. */
const SEARCH_MS = 200;
const DAY_MS = 24 * 3_600_000;

/** @type {[FilterName, string][]} */
const FILTERS = [["all", "All"], ["running", "Running"], ["needs", "Needs you"], ["failed", "Failed"]];

/** The groups, in order. The first that takes an entry has it. @type {[string, (entry: Entry, midnight: number) => boolean][]} */
const GROUPS = [
  ["Pinned", ({ isPinned }) => isPinned],
  ["Needs you", ({ pending }) => pending > 0],
  ["Running", isLive],
  ["Earlier today", ({ lastActivity }, midnight) => parseTime(lastActivity) >= midnight],
  ["Yesterday", ({ lastActivity }, midnight) => parseTime(lastActivity) >= midnight - DAY_MS],
  ["Earlier", () => true],
];

export class SessionRail extends HTMLElement {
  /** @type {Lists | undefined} */
  #lists;
  /** The time of the lists, in milliseconds since 1970. */
  #readAt = 0;
  #failure = "";
  #notice = "";
  #current = "";
  /** @type {FilterName} */
  #filter = "all";
  #words = "";
  /** The questions of pending decisions, by key of their entry. @type {Map<string, string[]>} */
  #questions = new Map();
  /** The order in which entries first appeared, by key. @type {Map<string, number>} */
  #order = new Map();
  /** Entries whose children the viewer shows or hides, by key. @type {Map<string, boolean>} */
  #expansion = new Map();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #searchTimer;
  /** @type {import("../title-field.js").TitleField | undefined} */
  #field;
  /** The group of the entry that is being renamed: it stays there. */
  #heldGroup = 0;
  /** What a person can do to an entry. The shell sets it before it shows lists. */
  actions = /** @type {import("../actions.js").Actions} */ (/** @type {unknown} */ (undefined));

  connectedCallback() {
    this.classList.add("session-rail");
    this.addEventListener("keydown", (event) => this.#handleKey(event));
    this.#draw();
  }

  /** The entries on display, in order. @returns {HTMLElement[]} */
  get rows() {
    return [.../** @type {NodeListOf<HTMLElement>} */ (this.querySelectorAll("button.session, button.match"))];
  }

  /**
   * Moves the focus to the next or previous session; from outside, from the open one.
   * @param {number} step
   */
  move(step) {
    const { rows } = this;
    const at = rows.findIndex((row) => row === document.activeElement);
    const from = at >= 0 ? at : rows.findIndex((row) => row.hasAttribute("aria-current"));
    rows[Math.min(rows.length - 1, Math.max(0, from + step))]?.focus();
  }

  /** Focuses the search field. */
  search() {
    /** @type {HTMLElement | null} */ (this.querySelector("input"))?.focus();
  }

  /** @param {Lists} lists */
  show(lists) {
    this.#lists = lists;
    if (lists.isLive) [this.#readAt, this.#failure] = [Date.now(), ""];
    this.#notice = "";
    for (const entry of [...lists.all].reverse()) {
      const key = entryKey(entry);
      if (!this.#order.has(key)) this.#order.set(key, this.#order.size);
    }
    this.#draw();
  }

  /** @param {string} key The key (`entryKey`) of the open entry. */
  set current(key) {
    this.#current = key;
    this.#draw();
  }

  /** @param {Map<string, string[]>} questions The questions of pending decisions, by key of their entry. */
  set questions(questions) {
    this.#questions = questions;
    this.#draw();
  }

  /** @param {string} text The lists could not be read: why, and what to do. */
  set failure(text) {
    this.#failure = text;
    this.#draw();
  }

  /**
   * Shows a text in place of the lists, such as that a token is missing.
   * @param {string} text
   */
  clear(text) {
    this.#lists = undefined;
    this.#notice = text;
    this.#draw();
  }

  /** @param {string} name @param {unknown} detail */
  #dispatch(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  /**
   * @param {FilterName} filter
   * @param {string} words
   */
  #setFilter(filter, words) {
    this.#filter = filter;
    this.#words = words;
    this.#dispatch("filter", { filter, words });
    this.#draw();
  }

  #draw() {
    render(html`
      <div class="rail-top">
        <label class="search">${icon("search")}
          <input type="search" placeholder="Search sessions" aria-label="Search sessions" .value=${this.#words} @input=${(/** @type {InputEvent} */ { target }) => {
            clearTimeout(this.#searchTimer);
            this.#searchTimer = setTimeout(() => this.#setFilter(this.#filter, /** @type {HTMLInputElement} */ (target).value), SEARCH_MS);
          }}>
          <kbd aria-hidden="true">${navigator.platform.startsWith("Mac") ? "⌘K" : "Ctrl K"}</kbd>
        </label>
        <button type="button" class="button icon-button" id="new-session" aria-label="New session" title="New session" @click=${() => this.#dispatch("create", null)}>${icon("plus")}</button>
      </div>
      <button type="button" class="button icon-button strip-search" data-kind="quiet" aria-label="Find" title="Find" @click=${() => this.#dispatch("find", null)}>${icon("search")}</button>
      <div class="filters" role="group" aria-label="Filter">${FILTERS.map(([name, label]) => this.#filterButton(name, label))}
        <button type="button" class="filter archive-filter" aria-label="Archived" title="Archived" aria-pressed=${this.#filter === "archived"} @click=${() => this.#setFilter(this.#filter === "archived" ? "all" : "archived", this.#words)}>${icon("archive")}</button></div>
      <div class="rail-list">${this.#content()}</div>`, this);
  }

  /**
   * @param {FilterName} name
   * @param {string} label
   */
  #filterButton(name, label) {
    const count = this.#lists?.counts[name] ?? 0;
    return html`<button type="button" class="filter" aria-pressed=${this.#filter === name} @click=${() => this.#setFilter(name, this.#words)}>${label}${name !== "all" && count > 0 ? html`<i>${count}${this.#lists?.isPartial && name !== "needs" ? "+" : ""}</i>` : nothing}</button>`;
  }

  #content() {
    if (this.#notice) return html`<p class="hint rail-note">${this.#notice}</p>`;
    if (!this.#lists) return this.#failure ? this.#failed() : html`<div class="loading" role="status" aria-label="Loading sessions">${Array.from({ length: 9 }, () => html`<i></i>`)}</div>`;
    const { shown, texts } = this.#lists;
    const matches = texts && texts.words === this.#words.trim() ? texts.matches : [];
    const rows = matches.length > 0 ? texts?.rows(matches, this.#words, (id, message) => this.#dispatch("open", { kind: "session", id, message })) : nothing;
    const empty = this.#words || this.#filter !== "all"
      ? html`<p class="hint rail-note">${this.#filter === "archived" && !this.#words ? "No session is archived." : "No session matches."}</p><button type="button" class="button small" @click=${() => this.#setFilter("all", "")}>Show all</button>`
      : html`<p class="hint rail-note">Sessions appear here as soon as a runtime reports the first event.</p>`;
    return html`${this.#failure ? this.#failed() : nothing}${shown.length > 0 ? this.#groups(shown) : matches.length > 0 ? nothing : empty}${rows}`;
  }

  #failed() {
    const seen = this.#readAt ? `Last seen ${formatAge(this.#readAt, Date.now()).replace("now", "just now")}${Date.now() - this.#readAt < 10_000 ? "" : " ago"}.` : "";
    return html`<div class="rail-note" role="status"><p class="hint">${seen} ${this.#failure}</p><button type="button" class="button small" @click=${() => this.#dispatch("retry", null)}>Retry</button></div>`;
  }

  /** @param {Entry[]} shown */
  #groups(shown) {
    const keys = new Set(shown.map(entryKey));
    const parentOf = (/** @type {Entry} */ { parent }) => (parent === undefined ? "" : entryKey({ kind: "session", id: parent }));
    // A child whose parent is not on display has a row of its own.
    const roots = shown.filter((entry) => !keys.has(parentOf(entry)));
    const sorted = roots.sort((a, b) => (this.#order.get(entryKey(b)) ?? 0) - (this.#order.get(entryKey(a)) ?? 0));
    const titles = new Map();
    for (const { title } of shown) titles.set(title, (titles.get(title) ?? 0) + 1);
    const midnight = new Date().setHours(0, 0, 0, 0);
    const groups = GROUPS.map(([name]) => ({ name, entries: /** @type {Entry[]} */ ([]) }));
    for (const entry of sorted) groups[entry.key === this.#field?.key ? this.#heldGroup : groupOf(entry, midnight)].entries.push(entry);
    return groups.filter(({ entries }) => entries.length > 0).map(({ name, entries }) => html`
      <h3 class="rail-group"><span>${name}</span><span>${entries.length}</span></h3>
      <ul>${repeat(entries, entryKey, (entry) => {
        const children = shown.filter((one) => parentOf(one) === entryKey(entry));
        return this.#row(entry, children, titles.get(entry.title) > 1);
      })}</ul>`);
  }

  /**
   * @param {Entry} entry
   * @param {Entry[]} children
   * @param {boolean} isAmbiguous Whether another entry has its title.
   */
  #row(entry, children, isAmbiguous) {
    const key = entryKey(entry);
    const isCurrent = key === this.#current || entryKey({ kind: entry.kind, id: entry.opens }) === this.#current;
    const { isUnread } = entry;
    const count = isUnread && entry.unread !== undefined && entry.unread > 1 ? entry.unread : 0;
    const isExpanded = this.#expansion.get(key) ?? (isCurrent || children.some((one) => entryKey(one) === this.#current));
    const now = Date.now();
    const [status, word] = entry.pending > 0 ? /** @type {const} */ (["waiting", "Needs you"]) : sessionStatus(entry.isStale ? "stale" : entry.status);
    const questions = this.#questions.get(key) ?? [];
    const seen = parseTime(entry.lastActivity);
    const [line, isQuestion] = questions.length > 0 ? [`${questions[0]}${questions.length > 1 ? ` +${questions.length - 1}` : ""}`, true]
      : entry.isStale ? [`Last seen ${formatAge(seen, now)} ago`, false]
        : [plain(entry.preview) || humanize(word), false];
    const marks = [
      entry.isStale ? "stale" : word,
      entry.pending > 0 ? `${entry.pending} ${entry.pending === 1 ? "decision" : "decisions"} pending` : "",
      entry.pendingBelow > 0 ? `${entry.pendingBelow} in child sessions` : "",
      count > 0 ? `${count} unread` : isUnread ? "Unread" : "",
      entry.isPinned ? "pinned" : "",
      entry.isArchived ? "archived" : "",
      entry.kind === "run" ? "run without a session" : "",
    ].filter(Boolean);
    const button = () => html`<button type="button" class="session" data-kind=${entry.kind} data-session=${entry.kind === "session" ? entry.id : nothing} data-run=${entry.kind === "run" ? entry.id : nothing} data-unread=${isUnread} data-live=${isLive(entry)}
        aria-current=${isCurrent ? "true" : nothing} title=${entry.id} @click=${() => this.#dispatch("open", { kind: entry.kind, id: entry.opens })} @dblclick=${() => this.#rename(entry)}>
        <span class="initials" aria-hidden="true">${initials(entry)}</span>
        ${glyph(status)}
        <span class="name truncate" dir="auto">${entry.title || entry.id}${isAmbiguous && entry.title ? html` <span class="session-id">${entry.id}</span>` : nothing}</span>
        <span class="session-time">${count > 0 ? html`<span class="unread-count" aria-hidden="true">${count}</span>` : isUnread ? html`<span class="unread-dot" aria-hidden="true"></span>` : nothing}${age(entry.lastActivity, now)}</span>
        <span class="session-line truncate" dir="auto" data-question=${isQuestion}>${line}</span>
        <span class="marks visually-hidden">${marks.map((text) => html`<span>${text}</span>`)}</span>
      </button>`;
    return html`<li class="session-item" @contextmenu=${(/** @type {PointerEvent} */ event) => this.#openMenu(event, entry)}>
      ${key === this.#field?.key ? html`<div class="session renaming">${glyph(status)}${this.#field?.template()}</div>` : [button(), this.#actions(entry)]}
      ${children.length > 0 ? html`
        <button type="button" class="kids-toggle" aria-expanded=${isExpanded} @click=${() => {
          this.#expansion.set(key, !isExpanded);
          this.#draw();
        }}>${icon(isExpanded ? "chevron-down" : "chevron-right")}${children.length} ${children.length === 1 ? "child session" : "child sessions"}</button>
        ${isExpanded ? html`<ul class="kids">${repeat(children, entryKey, (child) => this.#child(child, entry, now))}</ul>` : nothing}` : nothing}
    </li>`;
  }

  /**
   * @param {Entry} child
   * @param {Entry} parent
   * @param {number} now
   */
  #child(child, parent, now) {
    const [status, word] = child.pending > 0 ? /** @type {const} */ (["waiting", "Needs you"]) : sessionStatus(child.isStale ? "stale" : child.status);
    const isCurrent = entryKey(child) === this.#current;
    const title = shortTitle(child, parent);
    const [, name = title, role = ""] = title.match(/^(.+) \((.+)\)$/) ?? [];
    const button = () => html`<button type="button" class="session kid" data-session=${child.id} data-unread=${child.isUnread} aria-current=${isCurrent ? "true" : nothing} title=${child.id} @click=${() => this.#dispatch("open", { kind: "session", id: child.id })} @dblclick=${() => this.#rename(child)}>
      ${glyph(status)}<span class="visually-hidden">${word}${child.isUnread ? ", unread" : ""}</span><span class="name truncate" dir="auto">${name}${role ? html` <span class="session-role">${role}</span>` : nothing}</span><span class="session-time">${child.isUnread ? html`<span class="unread-dot" aria-hidden="true"></span>` : nothing}${age(child.lastActivity, now)}</span>
    </button>`;
    return html`<li class="session-item" @contextmenu=${(/** @type {PointerEvent} */ event) => this.#openMenu(event, child)}>
      ${child.key === this.#field?.key ? html`<div class="session renaming">${glyph(status)}${this.#field?.template()}</div>` : [button(), this.#actions(child)]}</li>`;
  }

  /** The buttons over a row. @param {Entry} entry */
  #actions(entry) {
    const name = entry.title || entry.id;
    const [label, shape, run] = this.actions.canArchive(entry) ? /** @type {const} */ ([entry.isArchived ? "Unarchive" : "Archive", "archive", (/** @type {Loaded} */ actions) => actions.archive(entry)])
      : /** @type {const} */ ([entry.isPinned ? "Unpin" : "Pin", "pin", (/** @type {Loaded} */ actions) => actions.pin(entry)]);
    return html`<span class="session-actions">
      <button type="button" class="button small icon-button quick" data-kind="quiet" aria-label=${`${label} ${name}`} title=${label} @click=${() => void opened(label, async () => run(await this.actions.load()))}>${icon(shape)}</button>
      <button type="button" class="button small icon-button" data-kind="quiet" aria-label=${`Actions for ${name}`} title="Actions" aria-haspopup="menu" aria-expanded="false" @click=${(/** @type {Event} */ event) => this.#openMenu(event, entry)}>${icon("more")}</button>
    </span>`;
  }

  /**
   * Opens the menu of an entry below the button of the event, or at its pointer.
   * @param {Event} event
   * @param {Entry} entry
   */
  #openMenu(event, entry) {
    const row = this.#rowOf(entry.key);
    // A field has the menu of the browser.
    if (!row || (event.target instanceof Element && event.target.closest("input"))) return;
    event.preventDefault();
    event.stopPropagation();
    const isAtPointer = event instanceof MouseEvent && event.type === "contextmenu";
    const opener = isAtPointer ? row : /** @type {HTMLElement} */ (event.currentTarget);
    void opened("The menu", async () => (await this.actions.load()).openMenu(entry, () => this.#rename(entry), opener, isAtPointer ? { x: event.clientX, y: event.clientY } : undefined));
  }

  /** @param {string} key @returns {HTMLElement | undefined} The row of an entry, unless it is being renamed. */
  #rowOf(key) {
    return this.rows.find(({ dataset }) => key === (dataset.run === undefined ? `session ${dataset.session}` : `run ${dataset.run}`));
  }

  /** Begins to rename an entry in its row. @param {Entry} entry */
  #rename(entry) {
    // The strip has no place for a field.
    if (!this.actions.canRename(entry) || "full" in document.body.dataset) return;
    void opened("The field", async () => {
      const actions = await this.actions.load();
      this.#field ??= actions.field("rail-title", () => this.#draw(), ({ key }) => this.#rowOf(key)?.focus());
      this.#heldGroup = groupOf(entry, new Date().setHours(0, 0, 0, 0));
      this.#field.begin(entry);
    });
  }

  /** @param {KeyboardEvent} event */
  #handleKey(event) {
    const { target, key } = event;
    if (!(target instanceof HTMLElement)) return;
    if (target.matches("input") && key === "Escape" && this.#words) {
      event.preventDefault();
      this.#setFilter(this.#filter, "");
    } else if (key === "F2" && target.matches(".session")) {
      event.preventDefault();
      const entry = this.#lists?.shown.find((one) => this.#rowOf(one.key) === target);
      if (entry) this.#rename(entry);
    } else if ((key === "ArrowDown" || key === "ArrowUp") && target.matches("input, .session, .match")) {
      const { rows } = this;
      event.preventDefault();
      rows[Math.max(0, rows.indexOf(target) + (key === "ArrowDown" ? 1 : -1))]?.focus();
    }
  }
}

/**
 * The place of the group of an entry.
 * @param {Entry} entry
 * @param {number} midnight
 */
const groupOf = (entry, midnight) => GROUPS.findIndex(([, takes]) => takes(entry, midnight));

/**
 * Returns a preview without the marks of Markdown, in one line.
 * @param {string} text
 */
const plain = (text) => text.replace(/[|#*`>_-]{2,}|[|#*`>]/g, " ").replace(/\s+/g, " ").trim();

/** @param {Entry} entry */
function initials({ title, id }) {
  const words = (title || id).split(/[^\p{L}\p{N}]+/u).filter((word) => /\p{L}/u.test(word));
  return (words.length > 1 ? `${words[0][0]}${words.at(-1)?.[0]}` : (words[0] ?? "?").slice(0, 2)).toUpperCase();
}

/**
 * Returns a child's title without the words that repeat its parent's: `Rui (researcher)`.
 * @param {Entry} child
 * @param {Entry} parent
 */
function shortTitle(child, parent) {
  const [, own = "", rest = ""] = child.title.match(/^(.+\)) for (.+)$/) ?? [];
  return own && parent.title.endsWith(rest) ? own : child.title || child.id;
}

define("ps-session-rail", SessionRail);

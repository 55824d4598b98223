/**
 * The timeline: all process, evidence, reviews and decisions, one line each. An opened line shows its details below.
 * Older entries of the session are loaded by page.
 */

import { Surface, define, element, inspectButton, setBadge, setText, humanize, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { describe } from "./describe.js";
import { controlButton } from "./submitted-controls.js";
import { artifactLinks, evidenceLinks, addHeading, setLinks, splitWords, controlTarget, refLinks, setFacts } from "./lane.js";
import { FixedHeightList } from "./fixed-height-list.js";
import { waitReason } from "./tool.js";

/** @typedef {import("./base.js").Activity} Activity */

/** The height of a row in pixels, as in the style sheet. */
const ROW_PX = 36;
/** The page size, and the maximum number of pages read until one has new entries. */
const PAGE_ITEMS = 500;
const PAGES_MAX = 50;
/** The maximum number of loaded entries. Beyond it the newest are dropped, which the store usually has. */
const HISTORY_MAX = 20_000;
/** Members that the details omit. */
const HIDDEN_MEMBERS = ["refs", "evidenceRefs", "artifactRefs", "text", "parts", "status", "output_text", "input_text", "schema", "versions"];

/** The filters. @type {[name: string, types: string[]][]} */
const FILTERS = [
  ["All", []],
  ["Evidence", ["evidence"]],
  ["Reviews", ["review"]],
  ["Tools", ["tool-call-progress"]],
  ["Thinking", ["reasoning", "plan", "compaction"]],
  ["Team", ["worker-notification", "handoff", "permission"]],
  ["Approvals", ["action"]],
  ["Artifacts", ["artifact"]],
];
const PROCESS_TYPES = ["tool-call-progress", "reasoning", "plan", "evidence", "worker-notification", "handoff", "review", "compaction", "permission", "action", "artifact"];
/** Types of the protocol that are not process. A custom type is process. */
const NON_PROCESS_TYPES = ["run", "message", "queue", "task", "agent", "team", "context", "state", "session", "diagnostics", "metrics"];

export class Timeline extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType }) {
    return PROCESS_TYPES.includes(activityType) || !NON_PROCESS_TYPES.includes(activityType);
  }

  /** @type {string[]} Types on display; empty for all. */
  #filter = [];
  /** @type {Activity[]} Loaded entries that the store does not have. */
  #history = [];
  /** @type {string | null} */
  #cursor = null;
  #hasRead = false;
  /** Whether the newly loaded entries were prepended. */
  #isPrepended = false;
  /** The id of the newest load. The result of an older one is dropped. */
  #requestId = 0;
  /** @type {string | undefined} The key of the opened entry. */
  #openKey;
  /** Whether another surface shows this activity's details, so that the timeline does not. @type {(key: string) => boolean} */
  isExpandedElsewhere = () => false;

  build() {
    this.#requestId += 1;
    this.#history = [];
    this.#cursor = null;
    this.#hasRead = false;
    this.#openKey = undefined;
    this.head = addHeading(this, "Timeline and evidence");
    this.filters = element("div", "row filters");
    this.filters.setAttribute("role", "group");
    this.filters.setAttribute("aria-label", "Filter");
    for (const [name, types] of FILTERS) {
      const button = element("button", "button", name);
      button.type = "button";
      button.dataset.kind = "quiet";
      button.addEventListener("click", () => {
        this.#filter = types;
        this.update(null);
      });
      this.filters.append(button);
    }
    this.earlier = element("button", "button", "Load earlier");
    this.earlier.type = "button";
    this.earlier.dataset.kind = "quiet";
    this.earlier.addEventListener("click", () => this.#loadEarlier());
    this.note = element("p", "note");
    this.note.setAttribute("role", "status");
    this.rows = new FixedHeightList({
      height: ROW_PX,
      label: "Timeline",
      keyOf: (/** @type {Activity} */ it) => keyOf(it),
      make: (/** @type {Activity} */ it) => this.#createRow(it),
      change: (row, it) => this.#updateRow(row, it),
    });
    this.detail = element("article", "card sheet");
    this.append(this.filters, this.earlier, this.note, this.rows.root, this.detail);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    if (!this.rows || !this.earlier || !this.note || !this.filters) return;
    const all = this.#entries();
    this.hidden = all.length === 0;
    const shown = all.filter((it) => this.#filter.length === 0 || this.#filter.includes(it.activityType));
    setText(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), String(all.length));
    [...this.filters.children].forEach((button, at) => button.setAttribute("aria-pressed", String(FILTERS[at][1] === this.#filter || (at === 0 && this.#filter.length === 0))));
    this.earlier.hidden = this.#session() === "" || (this.#hasRead && this.#cursor === null);
    const error = this.note.dataset.why ?? "";
    setText(this.note, error || (shown.length === 0 ? "No entries of this kind." : ""));
    this.note.dataset.state = error ? "failed" : "unknown";
    this.note.hidden = this.note.textContent === "";
    this.rows.show(shown, this.#isPrepended ? shown.length - this.rows.size : 0);
    this.#isPrepended = false;
    this.#draw();
  }

  /** The loaded entries, then those of the store. */
  #entries() {
    const live = this.activities();
    if (this.#history.length === 0) return live;
    const known = new Set(live.map(keyOf));
    return [...this.#history.filter((it) => !known.has(keyOf(it))), ...live];
  }

  /** The session of the view; empty if unknown. */
  #session() {
    if (this.view.sessionId) return this.view.sessionId;
    const run = this.view.store.sorted((it) => it.activityType === "run")[0];
    return toText(run?.content.sessionId);
  }

  async #loadEarlier() {
    const session = this.#session();
    if (!session || !this.note || !this.earlier) return;
    const requestId = ++this.#requestId;
    this.earlier.disabled = true;
    setText(this.earlier, "Loading…");
    try {
      const known = new Set(this.#entries().map(keyOf));
      // The newest pages may contain only entries that the store has. Read on until a page has another.
      for (let pages = 0; pages < PAGES_MAX; pages += 1) {
        const page = await this.view.hydration.timeline(session, { limit: PAGE_ITEMS, audience: this.view.audience, ...(this.#cursor ? { cursor: this.#cursor } : {}) });
        if (requestId !== this.#requestId) return;
        const unknown = page.items.filter((it) => !known.has(keyOf(it)));
        this.#history = [...unknown, ...this.#history].slice(0, HISTORY_MAX);
        this.#cursor = page.nextCursor ?? null;
        this.#hasRead = true;
        if (unknown.length > 0 || this.#cursor === null) break;
      }
      this.#isPrepended = true;
      delete this.note.dataset.why;
    } catch (error) {
      if (requestId !== this.#requestId) return;
      this.note.dataset.why = `Earlier entries could not be loaded: ${error instanceof Error ? error.message : error}`;
    }
    this.earlier.disabled = false;
    setText(this.earlier, "Load earlier");
    this.update(null);
  }

  /**
   * Opens an entry and scrolls to it.
   * @param {string} activityType
   * @param {string} id
   * @param {string} [runId]
   * @returns {boolean} Whether the entry exists.
   */
  open(activityType, id, runId) {
    const it = this.#entries().find((it) => it.activityType === activityType && it.activityId === id && it.runId === (runId ?? it.runId));
    if (!it) return false;
    if (this.#filter.length > 0 && !this.#filter.includes(activityType)) this.#filter = [];
    this.#openKey = keyOf(it);
    this.update(null);
    this.rows?.reveal((row) => keyOf(row) === this.#openKey);
    this.scrollIntoView({ block: "nearest" });
    return true;
  }

  /** @param {Activity} activity */
  #createRow(activity) {
    const row = element("div", "line-row");
    const button = element("button", "line");
    button.type = "button";
    button.append(element("span", "hint number"), element("span", "label"), element("span", "title truncate"), element("span", "hint truncate says"), element("span", "badge"));
    const key = keyOf(activity);
    button.addEventListener("click", () => {
      this.#openKey = this.#openKey === key ? undefined : key;
      this.update(null);
    });
    row.append(button, inspectButton(() => this.view, () => this.#entries().find((it) => keyOf(it) === key)));
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {Activity} it
   */
  #updateRow(row, it) {
    const description = describe(it);
    const button = /** @type {HTMLElement} */ (row.firstElementChild);
    const [number, label, title, preview, state] = /** @type {HTMLElement[]} */ ([...button.children]);
    row.dataset.key = keyOf(it);
    row.dataset.kind = it.activityType;
    button.setAttribute("aria-expanded", String(row.dataset.key === this.#openKey));
    setText(number, String(it.opened));
    // The kind of evidence says more than the label “Evidence”.
    setText(label, it.activityType === "evidence" && it.content.kind ? humanize(it.content.kind) : description.label);
    setText(title, description.title);
    setText(preview, description.text);
    this.#setEntryBadge(state, it, description);
    state.hidden = description.status === "";
  }

  /**
   * Sets an entry's badge. A call that waiting for a person shows that.
   * @param {HTMLElement} badge
   * @param {Activity} it
   * @param {import("./describe.js").Description} description
   */
  #setEntryBadge(badge, it, description) {
    const waiting = it.activityType === "tool-call-progress" ? waitReason(this.view, it) : undefined;
    if (waiting) return setBadge(badge, "waiting", `waiting for ${waiting}`);
    setBadge(badge, description.status);
    badge.dataset.state = description.state;
  }

  /** Draws the details again after another surface expanded or collapsed an activity. */
  refresh() {
    if (this.#openKey !== undefined && this.isConnectedToView) this.#draw();
  }

  /** Draws the details of the opened entry. */
  #draw() {
    const { detail } = this;
    if (!detail) return;
    const it = this.#openKey === undefined ? undefined : this.#entries().find((it) => keyOf(it) === this.#openKey);
    detail.hidden = !it;
    if (!it) return;
    const description = describe(it);
    if (detail.dataset.key !== keyOf(it)) {
      detail.dataset.key = keyOf(it);
      const head = element("div", "card-head");
      head.append(element("h3", "card-title"), element("span", "badge"));
      const elsewhere = element("div", "row elsewhere");
      const show = element("button", "button", "Show in conversation");
      show.type = "button";
      show.dataset.kind = "quiet";
      show.addEventListener("click", () => this.dispatchEvent(new CustomEvent("reveal", { bubbles: true, detail: keyOf(it) })));
      elsewhere.append(element("span", "hint", "Expanded in the conversation."), show);
      const foot = element("div", "card-foot");
      const feedback = element("p", "hint told");
      feedback.setAttribute("role", "status");
      if (it.activityType === "evidence") foot.append(controlButton("Export", () => this.view, () => ({ control: "export", ...controlTarget(it), evidenceId: it.activityId }), { feedback: feedback }));
      detail.replaceChildren(head, elsewhere, element("p", "card-body"), element("dl", "facts"), element("div", "row links"), foot, feedback);
    }
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (detail.querySelector(name));
    setText(part(".card-title"), `${description.label}: ${description.title}`);
    this.#setEntryBadge(part(".badge"), it, description);
    part(".card-foot").hidden = !this.view.isLive || part(".card-foot").childElementCount === 0;
    const isElsewhere = this.isExpandedElsewhere(keyOf(it));
    part(".elsewhere").hidden = !isElsewhere;
    for (const name of [".card-body", ".facts", ".links"]) part(name).hidden = isElsewhere;
    if (isElsewhere) return;
    setText(part(".card-body"), it.content.text ? description.text : "");
    const { content } = it;
    setFacts(/** @type {HTMLDListElement} */ (part(".facts")), [
      ["Id", it.activityId],
      ["Run", it.runId],
      ["Agent", it.agentId ?? content.agentId],
      ...Object.entries(content).filter(([name]) => !HIDDEN_MEMBERS.includes(name) && name !== "agentId").map(([name, value]) => /** @type {[string, unknown]} */ ([splitWords(name).replace(/^./, (first) => first.toUpperCase()), value])),
    ]);
    setLinks(part(".links"), [
      ...evidenceLinks(this.view, it, content.evidenceRefs),
      ...artifactLinks(this.view, it, content.artifactRefs ?? (it.activityType === "artifact" ? it.activityId : content.artifactId)),
      ...refLinks(this.view, content.output_ref, "output"),
      ...refLinks(this.view, content.refs),
    ]);
  }
}

define("ps-timeline", Timeline);

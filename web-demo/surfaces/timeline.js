/**
 * The archive: what was done, said to oneself, found, verified and decided, in order, a line each. What a line stands for is opened
 * below, one at a time; older ones of the session are read by pages.
 */

import { Surface, define, element, inspectButton, mark, say, spoken, words } from "./base.js";
import { keyOf } from "../client/store.js";
import { describe } from "./describe.js";
import { controlButton } from "./handed.js";
import { artifactsOf, evidenceOf, headed, link, named, ownerOf, refsOf, tell } from "./lane.js";
import { Rows } from "./rows.js";
import { waitsFor } from "./tool.js";

/** @typedef {import("./base.js").Activity} Activity */

/** Height of a line, in pixels. The style sheet has the same. */
const ROW_PX = 36;
/** How many older ones are read at a time; and pages that are gone through for something that the store does not have. */
const PAGE = 500;
const PAGES_MAX = 50;
/** Older ones that are kept: whoever reads further back loses the newest of them, which the live run has anyway. */
const READ_MAX = 20_000;
/** Members of a content that the details do not repeat. */
const NOT_TOLD = ["refs", "evidenceRefs", "artifactRefs", "text", "parts", "status", "output_text", "input_text", "schema", "versions"];

/** What can be looked at alone. @type {[name: string, types: string[]][]} */
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
const PROCESS = ["tool-call-progress", "reasoning", "plan", "evidence", "worker-notification", "handoff", "review", "compaction", "permission", "action", "artifact"];
/** Types of the protocol that are no process; any other that is not known is a source's own, and is. */
const OTHERS = ["run", "message", "queue", "task", "agent", "team", "context", "state", "session", "diagnostics", "metrics"];

export class Timeline extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType }) {
    return PROCESS.includes(activityType) || !OTHERS.includes(activityType);
  }

  /** @type {string[]} Types that are shown; all, if it is empty. */
  #filter = [];
  /** @type {Activity[]} Older ones, that the store does not have. */
  #read = [];
  /** @type {string | null} */
  #cursor = null;
  #hasRead = false;
  /** Whether what is new stands before what was there. */
  #isPrepended = false;
  /** The newest question; an answer to an older one is dropped. */
  #asked = 0;
  /** @type {string | undefined} The opened one, by key. */
  #opened;
  /** Whether an activity is expanded elsewhere on this screen: then its detail is not expanded here, too. @type {(key: string) => boolean} */
  isExpandedElsewhere = () => false;

  build() {
    this.#asked += 1;
    this.#read = [];
    this.#cursor = null;
    this.#hasRead = false;
    this.#opened = undefined;
    this.head = headed(this, "Timeline and evidence");
    this.filters = element("div", "row filters");
    this.filters.setAttribute("role", "group");
    this.filters.setAttribute("aria-label", "What is shown");
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
    this.earlier.addEventListener("click", () => this.#more());
    this.note = element("p", "note");
    this.note.setAttribute("role", "status");
    this.rows = new Rows({
      height: ROW_PX,
      label: "Timeline",
      keyOf: (/** @type {Activity} */ it) => keyOf(it),
      make: (/** @type {Activity} */ it) => this.#row(it),
      change: (row, it) => this.#fillRow(row, it),
    });
    this.detail = element("article", "card sheet");
    this.append(this.filters, this.earlier, this.note, this.rows.root, this.detail);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    if (!this.rows || !this.earlier || !this.note || !this.filters) return;
    const all = this.#all();
    this.hidden = all.length === 0;
    const shown = all.filter((it) => this.#filter.length === 0 || this.#filter.includes(it.activityType));
    say(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), String(all.length));
    [...this.filters.children].forEach((button, at) => button.setAttribute("aria-pressed", String(FILTERS[at][1] === this.#filter || (at === 0 && this.#filter.length === 0))));
    this.earlier.hidden = this.#session() === "" || (this.#hasRead && this.#cursor === null);
    const why = this.note.dataset.why ?? "";
    say(this.note, why || (shown.length === 0 ? "No entries of this kind." : ""));
    this.note.dataset.state = why ? "failed" : "unknown";
    this.note.hidden = this.note.textContent === "";
    this.rows.show(shown, this.#isPrepended ? shown.length - this.rows.size : 0);
    this.#isPrepended = false;
    this.#draw();
  }

  /** The older ones, and then what the store has. */
  #all() {
    const live = this.activities();
    if (this.#read.length === 0) return live;
    const known = new Set(live.map(keyOf));
    return [...this.#read.filter((it) => !known.has(keyOf(it))), ...live];
  }

  /** The session of what is looked at; empty, where nobody said. */
  #session() {
    if (this.view.sessionId) return this.view.sessionId;
    const run = this.view.store.sorted((it) => it.activityType === "run")[0];
    return words(run?.content.sessionId);
  }

  async #more() {
    const session = this.#session();
    if (!session || !this.note || !this.earlier) return;
    const asked = ++this.#asked;
    this.earlier.disabled = true;
    say(this.earlier, "Reading …");
    try {
      const known = new Set(this.#all().map(keyOf));
      // The newest pages tell what the store has anyway: whoever asks for earlier ones wants the first that are.
      for (let pages = 0; pages < PAGES_MAX; pages += 1) {
        const answer = await this.view.hydration.timeline(session, { limit: PAGE, audience: this.view.audience, ...(this.#cursor ? { cursor: this.#cursor } : {}) });
        if (asked !== this.#asked) return;
        const unknown = answer.items.filter((it) => !known.has(keyOf(it)));
        this.#read = [...unknown, ...this.#read].slice(0, READ_MAX);
        this.#cursor = answer.nextCursor ?? null;
        this.#hasRead = true;
        if (unknown.length > 0 || this.#cursor === null) break;
      }
      this.#isPrepended = true;
      delete this.note.dataset.why;
    } catch (why) {
      if (asked !== this.#asked) return;
      this.note.dataset.why = `Earlier entries could not be loaded: ${why instanceof Error ? why.message : why}`;
    }
    this.earlier.disabled = false;
    say(this.earlier, "Load earlier");
    this.update(null);
  }

  /**
   * Opens one and scrolls to it.
   * @param {string} activityType
   * @param {string} id
   * @param {string} [runId]
   * @returns {boolean} Whether it is there.
   */
  open(activityType, id, runId) {
    const it = this.#all().find((it) => it.activityType === activityType && it.activityId === id && it.runId === (runId ?? it.runId));
    if (!it) return false;
    if (this.#filter.length > 0 && !this.#filter.includes(activityType)) this.#filter = [];
    this.#opened = keyOf(it);
    this.update(null);
    this.rows?.reveal((row) => keyOf(row) === this.#opened);
    this.scrollIntoView({ block: "nearest" });
    return true;
  }

  /** @param {Activity} made */
  #row(made) {
    const row = element("div", "line-row");
    const button = element("button", "line");
    button.type = "button";
    button.append(element("span", "hint number"), element("span", "label"), element("span", "title truncate"), element("span", "hint truncate says"), element("span", "badge"));
    const key = keyOf(made);
    button.addEventListener("click", () => {
      this.#opened = this.#opened === key ? undefined : key;
      this.update(null);
    });
    row.append(button, inspectButton(() => this.view, () => this.#all().find((it) => keyOf(it) === key)));
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {Activity} it
   */
  #fillRow(row, it) {
    const told = describe(it);
    const button = /** @type {HTMLElement} */ (row.firstElementChild);
    const [number, label, title, says, state] = /** @type {HTMLElement[]} */ ([...button.children]);
    row.dataset.key = keyOf(it);
    row.dataset.kind = it.activityType;
    button.setAttribute("aria-expanded", String(row.dataset.key === this.#opened));
    say(number, String(it.opened));
    // What kind of evidence it is says more than that it is some.
    say(label, it.activityType === "evidence" && it.content.kind ? spoken(it.content.kind) : told.label);
    say(title, told.title);
    say(says, told.text);
    this.#mark(state, it, told);
    state.hidden = told.status === "";
  }

  /**
   * How an entry stands; a call that waits for a person says so.
   * @param {HTMLElement} badge
   * @param {Activity} it
   * @param {import("./describe.js").Description} told
   */
  #mark(badge, it, told) {
    const waits = it.activityType === "tool-call-progress" ? waitsFor(this.view, it) : undefined;
    if (waits) return mark(badge, "waiting", `waiting for ${waits}`);
    mark(badge, told.status);
    badge.dataset.state = told.state;
  }

  /** Another surface expanded or folded what may be opened here. */
  refresh() {
    if (this.#opened !== undefined && this.isConnectedToView) this.#draw();
  }

  /** What the opened line stands for. */
  #draw() {
    const { detail } = this;
    if (!detail) return;
    const it = this.#opened === undefined ? undefined : this.#all().find((it) => keyOf(it) === this.#opened);
    detail.hidden = !it;
    if (!it) return;
    const told = describe(it);
    if (detail.dataset.key !== keyOf(it)) {
      detail.dataset.key = keyOf(it);
      const head = element("div", "card-head");
      head.append(element("h3", "card-title"), element("span", "badge"));
      const elsewhere = element("div", "row elsewhere");
      const show = element("button", "button", "Show");
      show.type = "button";
      show.dataset.kind = "quiet";
      show.addEventListener("click", () => this.dispatchEvent(new CustomEvent("reveal", { bubbles: true, detail: keyOf(it) })));
      elsewhere.append(element("span", "hint", "Expanded in the conversation."), show);
      const foot = element("div", "card-foot");
      const told = element("p", "hint told");
      told.setAttribute("role", "status");
      if (it.activityType === "evidence") foot.append(controlButton("Export", () => this.view, () => ({ control: "export", ...ownerOf(it), evidenceId: it.activityId }), { told }));
      detail.replaceChildren(head, elsewhere, element("p", "card-body"), element("dl", "facts"), element("div", "row links"), foot, told);
    }
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (detail.querySelector(name));
    say(part(".card-title"), `${told.label}: ${told.title}`);
    this.#mark(part(".badge"), it, told);
    part(".card-foot").hidden = !this.view.isLive || part(".card-foot").childElementCount === 0;
    const isElsewhere = this.isExpandedElsewhere(keyOf(it));
    part(".elsewhere").hidden = !isElsewhere;
    for (const name of [".card-body", ".facts", ".links"]) part(name).hidden = isElsewhere;
    if (isElsewhere) return;
    say(part(".card-body"), it.content.text ? told.text : "");
    const { content } = it;
    tell(/** @type {HTMLDListElement} */ (part(".facts")), [
      ["Id", it.activityId],
      ["Run", it.runId],
      ["Agent", it.agentId ?? content.agentId],
      ...Object.entries(content).filter(([name]) => !NOT_TOLD.includes(name) && name !== "agentId").map(([name, value]) => /** @type {[string, unknown]} */ ([named(name).replace(/^./, (first) => first.toUpperCase()), value])),
    ]);
    link(part(".links"), [
      ...evidenceOf(this.view, it, content.evidenceRefs),
      ...artifactsOf(this.view, it, content.artifactRefs ?? (it.activityType === "artifact" ? it.activityId : content.artifactId)),
      ...refsOf(this.view, content.output_ref, "output"),
      ...refsOf(this.view, content.refs),
    ]);
  }
}

define("ps-timeline", Timeline);

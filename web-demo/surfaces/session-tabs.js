/**
 * The list of sessions, and of runs without a session. What needs a decision comes first, then what runs.
 *
 * Rows keep their place among their like while they change: a list that shuffles cannot be clicked.
 */

import { define, element, updateChildren, setBadge, setText, toText } from "./base.js";

/**
 * @typedef {object} Tab
 * @property {"session" | "run"} kind
 * @property {string} id
 * @property {string} title
 * @property {string} status
 * @property {string} preview
 * @property {boolean} isStale
 * @property {boolean} isPinned
 * @property {number} pending Pending decisions, those of child sessions included.
 * @property {number} pendingBelow How many of them are in child sessions.
 * @property {number} [unread] By the runtime's own count.
 * @property {string} lastActivity RFC 3339.
 * @property {string} [parent] The session that it is a child of.
 */

const LIVE = new Set(["accepted", "running", "waiting", "active"]);
const NO_SESSIONS = "No sessions yet. Send a fact to POST /v1/runs/{runId}/facts, or start proscenium demo.";

export class SessionTabs extends HTMLElement {
  #list = element("ul", "tabs");
  #empty = element("p", "hint empty", NO_SESSIONS);
  /** In which order tabs were first seen. @type {Map<string, number>} */
  #order = new Map();
  /** What was new in a tab when it was last looked at, by its name. @type {Map<string, string>} */
  #lastSeen = new Map();
  #current = "";

  connectedCallback() {
    if (this.#list.isConnected) return;
    this.classList.add("session-tabs");
    this.append(this.#empty, this.#list);
  }

  /**
   * What stands in the place of the list while it is empty.
   * @param {string} text Empty for the usual words.
   */
  set placeholder(text) {
    setText(this.#empty, text || NO_SESSIONS);
  }

  /**
   * @param {Tab[]} tabs
   * @param {string} current Which is looked at, by `nameOf`.
   */
  show(tabs, current) {
    const isFirst = this.#order.size === 0;
    this.#current = current;
    for (const tab of [...tabs].reverse()) {
      const name = tabKey(tab);
      if (!this.#order.has(name)) this.#order.set(name, this.#order.size);
      // What was there before the page is not news.
      if (isFirst || name === current) this.#lastSeen.set(name, tab.lastActivity);
    }
    this.#empty.hidden = tabs.length > 0;
    const sorted = [...tabs].sort((a, b) => rank(a) - rank(b) || (this.#order.get(tabKey(b)) ?? 0) - (this.#order.get(tabKey(a)) ?? 0));
    updateChildren(this.#list, sorted, tabKey, (tab) => this.#createRow(tab), (row, tab) => this.#updateRow(row, tab));
  }

  /** @param {Tab} tab */
  #createRow(tab) {
    const row = element("li");
    const button = element("button", "tab");
    button.type = "button";
    button.append(element("span", "name truncate"), element("span", "badge"), element("span", "glance truncate hint"), element("span", "marks row"));
    button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("open", { detail: { kind: tab.kind, id: tab.id } })));
    row.append(button);
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {Tab} tab
   */
  #updateRow(row, tab) {
    const name = tabKey(tab);
    const button = /** @type {HTMLElement} */ (row.firstElementChild);
    const [title, statusBadge, preview, marks] = /** @type {NodeListOf<HTMLElement>} */ (button.querySelectorAll(".name, .badge, .glance, .marks"));
    const isCurrent = name === this.#current;
    if (isCurrent) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    button.dataset.kind = tab.kind;
    button.dataset[tab.kind] = tab.id;
    button.dataset.live = String(LIVE.has(tab.status));
    const isUnread = !isCurrent && (this.#lastSeen.get(name) ?? "") < tab.lastActivity;
    button.dataset.unread = String(isUnread || Boolean(tab.unread));
    setText(title, tab.title || tab.id);
    title.title = tab.id;
    setBadge(statusBadge, tab.isStale ? "stale" : tab.status);
    setText(preview, tab.preview);
    const labels = [
      tab.pending > 0 ? `${tab.pending} ${tab.pending === 1 ? "decision" : "decisions"} pending` : "",
      tab.pendingBelow > 0 ? `${tab.pendingBelow} in child sessions` : "",
      tab.unread ? `${tab.unread} unread` : isUnread ? "new activity" : "",
      tab.isPinned ? "pinned" : "",
      tab.kind === "run" ? "run without a session" : "",
      tab.parent ? `child of ${tab.parent}` : "",
    ].filter(Boolean);
    updateChildren(marks, labels, (text) => text, (text) => element("span", "hint", text), () => {});
  }
}

define("ps-session-tabs", SessionTabs);

/** @param {{ kind: string, id: string }} tab */
export const tabKey = (tab) => `${tab.kind} ${tab.id}`;

/** @param {Tab} tab */
const rank = (tab) => (tab.isPinned ? 0 : tab.pending > 0 ? 1 : LIVE.has(tab.status) ? 2 : 3);

/**
 * Sessions and runs, as the server lists them.
 * @param {Record<string, any>[]} sessions
 * @param {Record<string, any>[]} runs
 * @returns {Tab[]} Sessions first, then runs that are of none; the newest first.
 */
export function tabsOf(sessions, runs) {
  return [...sessions.map((one) => tabOf("session", one)), ...runs.filter((run) => !run.sessionId).map((one) => tabOf("run", one))];
}

/**
 * @param {"session" | "run"} kind
 * @param {Record<string, any>} summary
 * @returns {Tab}
 */
function tabOf(kind, summary) {
  const id = toText(kind === "session" ? summary.sessionId : summary.runId);
  const pendingBelow = Number(summary.counts?.pendingActionsBelow ?? 0);
  return {
    kind, id, title: toText(summary.title), status: toText(summary.status) || "unknown", preview: toText(summary.preview), isStale: Boolean(summary.stale), isPinned: Boolean(summary.pinned),
    pending: Math.max(Number(summary.counts?.pendingActions ?? 0), pendingBelow), pendingBelow, unread: Number(summary.unread ?? 0) || undefined, lastActivity: toText(summary.lastActivity),
    parent: kind === "session" && summary.parentSessionId ? toText(summary.parentSessionId) : undefined,
  };
}


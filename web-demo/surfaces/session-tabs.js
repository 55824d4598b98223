/**
 * The list of sessions, and of runs without a session. Pending decisions come first, then live entries.
 *
 * Within a group rows keep their order while they change, so that a click hits the intended row.
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
 * @property {number} pending The number of pending decisions, child sessions included.
 * @property {number} pendingBelow The number of those in child sessions.
 * @property {number} [unread] The runtime's count of unread items.
 * @property {string} lastActivity RFC 3339.
 * @property {string} [parent] The parent session.
 */

const LIVE = new Set(["accepted", "running", "waiting", "active"]);
const NO_SESSIONS = "No sessions yet. Send a fact to POST /v1/runs/{runId}/facts, or start proscenium demo.";

export class SessionTabs extends HTMLElement {
  #list = element("ul", "tabs");
  #empty = element("p", "hint empty", NO_SESSIONS);
  /** The order in which tabs first appeared, by key. @type {Map<string, number>} */
  #order = new Map();
  /** The last activity of each tab when the viewer last saw it, by key. @type {Map<string, string>} */
  #lastSeen = new Map();
  #current = "";

  connectedCallback() {
    if (this.#list.isConnected) return;
    this.classList.add("session-tabs");
    this.append(this.#empty, this.#list);
  }

  /**
   * Sets the text of the empty list.
   * @param {string} text Empty for the default text.
   */
  set placeholder(text) {
    setText(this.#empty, text || NO_SESSIONS);
  }

  /**
   * @param {Tab[]} tabs
   * @param {string} current The key (`tabKey`) of the open entry.
   */
  show(tabs, current) {
    const isFirst = this.#order.size === 0;
    this.#current = current;
    for (const tab of [...tabs].reverse()) {
      const name = tabKey(tab);
      if (!this.#order.has(name)) this.#order.set(name, this.#order.size);
      // Entries from before this page are read.
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
      tab.unread ? `${tab.unread} unread` : isUnread ? "Unread" : "",
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
 * Converts the server's lists to tabs.
 * @param {Record<string, any>[]} sessions
 * @param {Record<string, any>[]} runs
 * @returns {Tab[]} Sessions, then runs without a session; newest first.
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


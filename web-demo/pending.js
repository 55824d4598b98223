/**
 * The pending decisions of all sessions: the inbox, the count in the title and the icon, and notifications.
 */

import { Store, keyOf } from "./client/store.js";
import { actionTitle } from "./surfaces/action-title.js";
import { toText } from "./surfaces/base.js";
import { entryKey } from "./session-list.js";

/** @typedef {import("./client/types.js").Activity} Activity */
/** @typedef {import("./session-list.js").Entry} Entry */

/**
 * @typedef {object} PendingItem A pending decision.
 * @property {string} key Unique over all sessions.
 * @property {Entry} entry Its session, or its run without a session.
 * @property {Activity} action
 * @property {string} title
 */

/** Sessions whose decisions the page reads at most. */
const READ_MAX = 50;

export class PendingDecisions {
  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#onChange = onChange;
  }

  #onChange;
  /** What was read of each entry, by key. @type {Map<string, { stamp: string, items: PendingItem[] }>} */
  #read = new Map();
  /** @type {PendingItem[]} */
  items = [];
  /** Whether they have been read: until then, none are known. */
  isRead = false;

  /** The titles of the decisions by the key of their entry. @returns {Map<string, string[]>} */
  get questions() {
    /** @type {Map<string, string[]>} */
    const questions = new Map();
    for (const { entry, title } of this.items) questions.set(entryKey(entry), [...(questions.get(entryKey(entry)) ?? []), title]);
    return questions;
  }

  /** Forgets everything: another audience or token sees other decisions. */
  clear() {
    this.#read.clear();
    this.items = [];
    this.isRead = false;
    this.#onChange();
  }

  /**
   * Reads the decisions of the entries that have changed.
   * @param {Entry[]} entries All entries of the lists.
   * @param {import("./client/hydration.js").Hydration} hydration
   */
  async update(entries, hydration) {
    const waiting = entries.filter(({ pending, pendingBelow }) => pending > pendingBelow).slice(0, READ_MAX);
    await Promise.all(waiting.map(async (entry) => {
      const key = entryKey(entry);
      const stamp = `${entry.lastActivity} ${entry.pending}`;
      const known = this.#read.get(key);
      if (known?.stamp === stamp) {
        for (const item of known.items) item.entry = entry;
        return;
      }
      try {
        this.#read.set(key, { stamp, items: await readItems(entry, hydration) });
      } catch {
        // The next reading tries again. What is known stays.
      }
    }));
    const keys = new Set(waiting.map(entryKey));
    for (const key of this.#read.keys()) if (!keys.has(key)) this.#read.delete(key);
    this.#publish(waiting.flatMap((entry) => this.#read.get(entryKey(entry))?.items ?? []));
  }

  /** @param {PendingItem[]} items */
  #publish(items) {
    const before = this.isRead ? stampOf(this.items) : undefined;
    this.items = items.sort((a, b) => toText(b.action.openedAt).localeCompare(toText(a.action.openedAt)));
    this.isRead = true;
    if (before !== stampOf(this.items)) this.#onChange();
  }
}

/** @param {PendingItem[]} items */
const stampOf = (items) => items.map(({ key, title, entry }) => [key, title, entry.title].join()).join("\n");

/**
 * @param {Entry} entry
 * @param {import("./client/hydration.js").Hydration} hydration
 * @returns {Promise<PendingItem[]>}
 */
async function readItems(entry, hydration) {
  /** @type {Activity[]} */
  let actions;
  if (entry.kind === "session") {
    actions = (await hydration.session(entry.id)).pendingActions;
  } else {
    const { activities } = await hydration.activities(entry.id, { surfaces: ["hitl"] });
    actions = activities.filter(({ activityType, content }) => activityType === "action" && content.status === "pending").map((one) => ({ ...one, runId: entry.id }));
  }
  const store = new Store();
  store.batch(() => {
    for (const action of actions) store.take(/** @type {import("./client/types.js").Snapshot} */ ({ frame: "ActivitySnapshot", ...action }));
  });
  const view = /** @type {import("./surfaces/base.js").View} */ ({ store });
  return actions.map((action) => ({ key: `${entryKey(entry)} ${keyOf(action)}`, entry, action, title: actionTitle(view, action) }));
}

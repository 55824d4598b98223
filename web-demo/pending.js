/**
 * The pending decisions of all sessions: the inbox, the count in the title and the icon, and notifications.
 */

import { keyOf } from "./client/store.js";
import { entryKey, entryOf } from "./session-entry.js";
import { toText } from "./surfaces/base.js";
import { reveal } from "./ui/reveal.js";

/** @typedef {import("./session-entry.js").Entry} Entry */

/**
 * @typedef {object} PendingItem A pending decision.
 * @property {string} key The key of its activity.
 * @property {Entry} entry Its session, or its run without a session.
 * @property {string} title
 * @property {string} risk Empty if the source states none.
 * @property {string} agent
 * @property {string} askedAt RFC 3339.
 * @property {boolean} isApproval Otherwise it is a question.
 * @property {string} subject What is decided, in a few words.
 * @property {import("./surfaces/decision-record.js").Progress} progress Its approvals, and what a rule did.
 */

/** @param {Record<string, any>} subject */
function subjectText({ command, path, toolName, fields }) {
  const count = Array.isArray(fields) ? fields.length : 0;
  return reveal(toText(command) || toText(path) || toText(toolName) || (count > 0 ? `${count} ${count === 1 ? "field" : "fields"}` : ""));
}

export class PendingDecisions {
  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#onChange = onChange;
  }

  #onChange;
  #stamp = "";
  /** The newest first. @type {PendingItem[]} */
  items = [];
  /** Whether they have arrived: until then, none are known. */
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
    [this.items, this.isRead, this.#stamp] = [[], false, ""];
    this.#onChange();
  }

  /** @param {{ all: Entry[], waiting: import("./session-entry.js").Waiting[] }} lists */
  update({ all, waiting }) {
    const entries = new Map(all.map((entry) => [entryKey(entry), entry]));
    this.items = waiting.map(({ sessionId, runId, actionId, title, subject, risk, agentId, askedAt, ...progress }) => {
      const kind = sessionId ? "session" : "run";
      const stub = entryOf(kind, { sessionId, runId });
      const key = keyOf({ runId, sessionId: runId ? undefined : sessionId, activityType: "action", activityId: actionId });
      return { key, entry: entries.get(entryKey(stub)) ?? stub, title: reveal(title), risk: toText(risk).toLowerCase(), agent: agentId, askedAt, isApproval: subject.kind !== "question", subject: subjectText(subject), progress };
    }).reverse();
    const stamp = this.items.map(({ key, title, entry, progress }) => JSON.stringify([key, title, entry.title, progress])).join("\n");
    if (this.isRead && stamp === this.#stamp) return;
    [this.isRead, this.#stamp] = [true, stamp];
    this.#onChange();
  }
}

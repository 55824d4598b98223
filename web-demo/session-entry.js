/**
 * The entries of lists: sessions, runs without a session, and pending decisions.
 */

import { toText } from "./surfaces/base.js";

/**
 * @typedef {object} Entry A session, or a run without a session.
 * @property {string} key
 * @property {"session" | "run"} kind
 * @property {string} id
 * @property {string} title Empty for none.
 * @property {string} titleFrom Whose the title is: `user`, `source` or `message`; empty for a run's.
 * @property {string} status
 * @property {string} preview
 * @property {boolean} isStale
 * @property {boolean} isPinned By its source or by the viewer.
 * @property {boolean} isArchived A session for all who see it, a run in this browser.
 * @property {number} pending The decisions that are still open, child sessions included.
 * @property {number} pendingBelow The pending decisions in child sessions.
 * @property {number} [unread] 1 or 0 once the viewer has read something; before that the runtime's count, if it has one.
 * @property {boolean} isNews Whether it has news that the viewer has not read.
 * @property {boolean} isUnread The same, after the time in which another window may read it.
 * @property {string} lastActivity RFC 3339.
 * @property {string} [parent] The parent session.
 * @property {string} opens The session that a click opens: the head of its tree.
 */

/** A pending decision, as `GET /v1/attention` lists it. @typedef {{ sessionId?: string, runId?: string, actionId: string, title: string, subject: Record<string, any>, risk?: string, agentId: string, askedAt: string, expiresAt?: string, control?: string } & import("./surfaces/decision-record.js").Progress} Waiting */

/** @param {{ kind: string, id: string }} entry */
export const entryKey = ({ kind, id }) => `${kind} ${id}`;

/**
 * @param {"session" | "run"} kind
 * @param {Record<string, any>} summary
 * @returns {Entry}
 */
export function entryOf(kind, summary) {
  const id = toText(kind === "session" ? summary.sessionId : summary.runId);
  const key = entryKey({ kind, id });
  return {
    key, kind, id, title: toText(summary.title), titleFrom: toText(summary.titleFrom), status: toText(summary.status) || "unknown", preview: toText(summary.preview),
    isStale: Boolean(summary.stale), isPinned: Boolean(summary.pinned), isArchived: Boolean(summary.archived),
    pending: Number(summary.counts?.unanswered ?? 0), pendingBelow: Number(summary.counts?.pendingActionsBelow ?? 0),
    unread: summary.unread === undefined ? undefined : Number(summary.unread), isNews: false, isUnread: false, lastActivity: toText(summary.lastActivity), parent: kind === "session" && summary.parentSessionId ? toText(summary.parentSessionId) : undefined,
    opens: toText(summary.head) || id,
  };
}

/**
 * The types of the client. This module holds no code: `tsc --checkJs` checks it, and editors read it.
 *
 * @typedef {null | boolean | number | string | Json[] | { [member: string]: Json }} Json
 *
 * @typedef {"user" | "dashboard" | "internal"} Audience The reader's audience. `user` sees least. A token may allow less
 * than the client requests.
 *
 * @typedef {object} Activity One evolving item on a screen. Activities are immutable: a change creates another object.
 * @property {string} runId The run that the activity belongs to. Empty for a session's own log.
 * @property {string} [sessionId] The session whose own log holds the activity. Absent for a run's activity.
 * @property {string} activityType The kind: `message`, `tool-call-progress`, `action`, … or a name that a source chose.
 * @property {string} activityId Unique within its type and run.
 * @property {string} surface The surface for which it is meant: `conversation`, `tool_ui`, `hitl`, …
 * @property {string} [agentId] The agent that it belongs to.
 * @property {number} opened The sequence of the envelope that created it, from 1. Activities of a run are sorted by it.
 * @property {number} sequence The sequence of the envelope that changed it last.
 * @property {string} [openedAt] When the server received the envelope `opened` (RFC 3339, UTC). Servers of the first
 * edition send none of the three times.
 * @property {string} [updatedAt] When the server received the envelope `sequence`.
 * @property {string} [endedAt] When the server received the envelope that ended the activity. Absent while it is open.
 * @property {string} [sourceOpenedAt] When it opened by its source's own clock. Absent unless the source states times.
 * @property {string} [sourceEndedAt] When it ended by its source's own clock. Absent while it is open.
 * @property {Record<string, any>} content The content: one of `Contents` (`contents.js`), or as its source names it.
 *
 * @typedef {object} Run The state of one log, as a store knows it.
 * @property {string} runId Empty for a session's own log.
 * @property {string} [sessionId] The session, for a session's own log.
 * @property {number} sequence The last envelope that changed something here; 0 for none.
 * @property {boolean} isHydrated Whether the server has sent everything that existed. Until then a missing activity may
 * still exist.
 * @property {string} [ended] How the run ended: completed, failed, cancelled, interrupted. Absent while it is open.
 *
 * @typedef {object} Changes The changes of one batch.
 * @property {Set<string>} keys Keys of the activities that were added, changed or removed.
 * @property {Set<string>} runs Names (`logOf`) of the logs that were hydrated, ended or restarted.
 * @property {boolean} reset Whether activities were removed.
 *
 * @typedef {(changes: Changes) => void} Listener
 *
 * @typedef {object} Fault A change that the store could not apply. The store applied no part of it.
 * @property {string} key The activity.
 * @property {number} sequence The envelope.
 * @property {string} why
 *
 * @typedef {object} Operation One operation of a patch (RFC 6902).
 * @property {string} op `add`, `remove`, `replace`, `move`, `copy` or `test`.
 * @property {string} path
 * @property {string} [from]
 * @property {any} [value]
 *
 * @typedef {object} LogRef The log of a frame: every frame names its run or its session.
 * @property {string} [runId]
 * @property {string} [sessionId]
 * @property {number} sequence The envelope that caused the frame.
 * @property {number} [prev] The previous envelope that gave this reader a frame; 0 for none.
 *
 * @typedef {LogRef & { frame: "ActivitySnapshot", activityType: string, activityId: string, surface: string, opened: number, openedAt?: string, updatedAt?: string, endedAt?: string, sourceOpenedAt?: string, sourceEndedAt?: string, agentId?: string, content: Record<string, any> }} Snapshot
 * @typedef {LogRef & { frame: "ActivityDelta", activityType: string, activityId: string, at?: string, ended?: boolean, sourceOpenedAt?: string, sourceEndedAt?: string, patch: Operation[] }} Delta
 * @typedef {LogRef & { frame: "Hydrated" }} Hydrated
 * @typedef {LogRef & { frame: "Reset", reason: string }} Reset
 * @typedef {LogRef & { frame: "End", status: string }} End
 * @typedef {LogRef & { frame: "Error", problem: ProblemDocument }} ErrorFrame
 * @typedef {LogRef & { frame: "Event", event: Envelope }} EventFrame
 * @typedef {Snapshot | Delta | Hydrated | Reset | End | ErrorFrame | EventFrame} Frame
 * @typedef {{ frame: "List", list: "attention" | "sessions" | "runs" | "runTotals", op: "put" | "remove", key: string, entry?: Record<string, any> }} ListFrame A
 * change of one entry, where `lists` is followed. `Hydrated` then has `truncated` if a list has more entries.
 *
 * @typedef {object} Envelope An event of a run's log. It may have further members: `schema/agentui-event.schema.json`.
 * @property {string} type Such as `text.delta`.
 * @property {number} sequence
 * @property {Audience} audience
 * @property {string} [eventId]
 * @property {string} [timestamp] The producer's clock, RFC 3339.
 * @property {string} [receivedAt] The server's clock, RFC 3339.
 * @property {string} [owner]
 * @property {string} [scope]
 * @property {string} [phase]
 * @property {string} [surface]
 * @property {string} [sessionId]
 * @property {string} [threadId]
 * @property {string} [runId]
 * @property {string} [messageId]
 * @property {string} [partId]
 * @property {string} [agentId]
 * @property {string} [taskId]
 * @property {string} [toolCallId]
 * @property {string} [actionId]
 * @property {string} [artifactId]
 * @property {string} [evidenceId]
 * @property {Record<string, any>} [payload]
 * @property {any} [refs]
 *
 * @typedef {object} ProblemDocument A problem document (RFC 9457). Further members give details: `limit`, `member`, …
 * @property {string} [type]
 * @property {string} [title]
 * @property {number} status
 * @property {string} code Stable. Programs compare this member.
 * @property {string} detail A sentence that names the error, the value, the limit and the remedy.
 * @property {string} [reason] Why a token has ended: `expired`, `revoked`, `key_removed`.
 *
 * @typedef {() => string | undefined | Promise<string | undefined>} Token Returns the bearer token, or nothing where the
 * server needs none. The client calls it before every connection and request, so that it can return a newer token.
 *
 * @typedef {object} State The state of a connection.
 * @property {"connecting" | "live" | "away" | "ended" | "refused"} kind
 * `away`: the client will retry (or waits for `mend`). `ended`: nothing more will come. `refused`: the server rejects
 * the connection and a retry would not help.
 * @property {string} why A sentence for people; empty where none is needed.
 * @property {string} cursor The last cursor received, from which the client resumes; empty before the first.
 * @property {Record<string, string>} cursors The same by run, where each run has its own: `runs` over a WebSocket.
 * @property {number} sequence The sequence of the last frame received.
 * @property {number | null} lagMs In milliseconds; `null` while there is nothing to measure. Over SSE: the time since the
 * last byte. The server sends at least one byte every 15 s, so a larger value means a dead or slow connection. (The
 * browser hides heartbeats of an `EventSource`, so there it is the time since the last frame.) Over a WebSocket: the
 * round-trip time of the last ping. It does not tell the age of a fact: `updatedAt` of its activity does.
 * @property {number} gaps How often frames were missing before a frame. The client fetched them again each time.
 * @property {number} faults How often a change did not apply. A snapshot replaced the activity each time.
 * @property {number} resumes How often the client reconnected after `away` and continued from its cursor.
 * @property {number} frames Frames that the client accepted.
 * @property {"sse" | "websocket"} transport
 * @property {"eventsource" | "fetch" | "websocket"} reader What reads the stream at the moment.
 * @property {string} [status] How the run ended, once it has: completed, failed, cancelled, interrupted.
 * @property {ProblemDocument} [problem] The server's last problem document, if it is the reason for `away` or `refused`.
 * @property {Record<string, ProblemDocument>} [refused] For `runs` over a WebSocket: the runs that the server rejected while
 * the others continue.
 *
 * @typedef {object} Options What to follow, and how.
 * @property {string} [base] The server's address, without `/v1`. Default: the page's origin.
 * @property {string} [run] One run. Exactly one of `run`, `session`, `runs` and `lists` is required.
 * @property {string} [session] All runs of a session, and its own log.
 * @property {string[]} [runs] Up to 256 runs.
 * @property {{ attention?: boolean, sessions?: boolean, agentId?: string, status?: string, q?: string, needsAction?: boolean, archived?: boolean | "all", sort?: "created" | "updated", runs?: string, runsSort?: string, limit?: number }} [lists]
 * Lists, with the filters of `GET /v1/lists/stream`; `runs` is the filter of runs, without words. `listen` gets a
 * `ListFrame` for each change; the store gets nothing.
 * @property {boolean} [children] With `session`: the logs of its descendants, too.
 * @property {Audience} [audience] Default: `user`.
 * @property {string[]} [surfaces] Only these surfaces. Default: all; an empty list means all, too.
 * @property {string} [agentId] Only the activities of this agent.
 * @property {"activities" | "events"} [frames] `events` sends envelopes to `listen` and nothing to the store.
 * @property {boolean} [replay] Send every delta from the start instead of snapshots.
 * @property {"sse" | "websocket"} [transport] Default: `sse`.
 * @property {"eventsource" | "fetch"} [reader] What reads SSE. Default: `EventSource` where it exists, until something
 * happens that it cannot report (a status, a long silence); then, and in Node, `fetch`, which reports both.
 * @property {Token} [token]
 * @property {string | Record<string, string>} [after] A cursor, `start` or `now`; for `runs` over a WebSocket a cursor by run.
 * @property {Partial<Timing>} [timing]
 * @property {typeof globalThis.fetch} [fetch]
 * @property {typeof globalThis.EventSource} [EventSource]
 * @property {typeof globalThis.WebSocket} [WebSocket] For Node before version 22, which has none.
 *
 * @typedef {{ sessionId: string, runId: string, sequence: number }} BranchPoint Where a branch leaves its parent.
 * @typedef {{ sessionId: string, parent: BranchPoint }} Branch A session that goes on from a point of another one.
 *
 * @typedef {object} Timing Durations in milliseconds.
 * @property {number} retryMs The longest wait before the first retry. It doubles with each failure.
 * @property {number} retryMaxMs The longest wait before any retry.
 * @property {number} silenceMs After this time without a byte the client considers a connection dead.
 * @property {number} pingMs The interval of pings on a WebSocket.
 * @property {number} openMs How long a connection may take to open.
 */

export {};

/**
 * The words of the client, as types. There is no code here: everything is checked by `tsc --checkJs` and read by editors.
 *
 * @typedef {null | boolean | number | string | Json[] | { [member: string]: Json }} Json
 *
 * @typedef {"user" | "dashboard" | "internal"} Audience Who looks. `user` sees least; a token may allow less than is asked for.
 *
 * @typedef {object} Activity One evolving thing on a screen. Nothing ever changes one: what changes is another object in its place.
 * @property {string} runId The run that it is of; empty, if it is of a session's own log.
 * @property {string} [sessionId] The session whose own log it is of; absent, if it is a run's.
 * @property {string} activityType What kind of thing: `message`, `tool-call-progress`, `action`, … or a name that a source gave.
 * @property {string} activityId Unique within its type and run.
 * @property {string} surface Where it is meant to be shown: `conversation`, `tool_ui`, `hitl`, …
 * @property {string} [agentId] The agent that it is of.
 * @property {number} opened The envelope with which it appeared, from 1. Activities of a run are sorted by it.
 * @property {number} sequence The envelope that changed it last.
 * @property {string} [openedAt] When the server received the envelope `opened` (RFC 3339, UTC). Absent from servers of the first edition, as the other two.
 * @property {string} [updatedAt] When it received the envelope `sequence`.
 * @property {string} [endedAt] When it received the envelope with which the activity ended. Absent while it has not ended.
 * @property {Record<string, any>} content What it is; `schema/activities/` of the repository has a schema for each type.
 *
 * @typedef {object} Run How far a log has come, as a store knows it.
 * @property {string} runId Empty for a session's own log.
 * @property {string} [sessionId] Of a session's own log.
 * @property {number} sequence The last envelope that changed something here; 0 for none.
 * @property {boolean} isHydrated Whether everything that there was has come: until then what is missing is not known to be absent.
 * @property {string} [ended] How it ended: completed, failed, cancelled, interrupted. Absent, while it has not.
 *
 * @typedef {object} Changes What became different, told once a batch.
 * @property {Set<string>} keys Of the activities that came, changed or went.
 * @property {Set<string>} runs Of the runs that were hydrated, ended, or moved on: names by `logOf`.
 * @property {boolean} reset Whether activities went.
 *
 * @typedef {(changes: Changes) => void} Listener
 *
 * @typedef {object} Fault A change that could not be taken. Nothing of it was.
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
 * @typedef {object} OfLog Every frame names the run, or the session, whose log it is of.
 * @property {string} [runId]
 * @property {string} [sessionId]
 * @property {number} sequence The envelope that caused the frame.
 * @property {number} [prev] The envelope before it that gave this reader a frame, 0 for none.
 *
 * @typedef {OfLog & { frame: "ActivitySnapshot", activityType: string, activityId: string, surface: string, opened: number, openedAt?: string, updatedAt?: string, endedAt?: string, agentId?: string, content: Record<string, any> }} Snapshot
 * @typedef {OfLog & { frame: "ActivityDelta", activityType: string, activityId: string, at?: string, ended?: boolean, patch: Operation[] }} Delta
 * @typedef {OfLog & { frame: "Hydrated" }} Hydrated
 * @typedef {OfLog & { frame: "Reset", reason: string }} Reset
 * @typedef {OfLog & { frame: "End", status: string }} End
 * @typedef {OfLog & { frame: "Error", problem: ProblemDocument }} ErrorFrame
 * @typedef {OfLog & { frame: "Event", event: Envelope }} EventFrame
 * @typedef {Snapshot | Delta | Hydrated | Reset | End | ErrorFrame | EventFrame} Frame
 *
 * @typedef {object} Envelope An event of a run's log. Further members are free: see `schema/agentui-event.schema.json`.
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
 * @typedef {object} ProblemDocument RFC 9457. Further members say more: `limit`, `member`, `expected`, …
 * @property {string} [type]
 * @property {string} [title]
 * @property {number} status
 * @property {string} code Stable: this is what to compare.
 * @property {string} detail A sentence: what happened, the value, the limit, the remedy.
 * @property {string} [reason] Why a token is over: `expired`, `revoked`, `key_removed`.
 *
 * @typedef {() => string | undefined | Promise<string | undefined>} Token Gives the bearer token, or nothing where none is needed.
 * It is asked before every connection and call, so that it may give a newer one.
 *
 * @typedef {object} State How a connection stands.
 * @property {"connecting" | "live" | "away" | "ended" | "refused"} kind
 * `away`: it will be tried again (or waits for `mend`). `ended`: nothing more is to come. `refused`: the server says no, and trying again would not help.
 * @property {string} why A sentence for people; empty where there is nothing to say.
 * @property {string} cursor Where it goes on from: the last one that came; empty before the first.
 * @property {Record<string, string>} cursors The same for each run, where each has its own: of `runs` over a WebSocket.
 * @property {number} sequence Of the last frame that came.
 * @property {number | null} lagMs In milliseconds. Over SSE, how long ago the last byte came: the server says something at least every 15 s, so more than that
 * means that the line is dead or slow. (`EventSource` hides heartbeats: there it is the last frame.) Over a WebSocket, how long the last ping took there and back.
 * `null` while there is nothing to measure. It does not say how old a fact is: `updatedAt` of its activity does.
 * @property {number} gaps How often something was missing before a frame; each time it was fetched again.
 * @property {number} faults How often a change did not apply; each time a snapshot took its place.
 * @property {number} resumes How often it came back after it was away, and went on where it was.
 * @property {number} frames Frames that were taken.
 * @property {"sse" | "websocket"} transport
 * @property {"eventsource" | "fetch" | "websocket"} reader What reads at the moment.
 * @property {string} [status] How the run ended, once it has: completed, failed, cancelled, interrupted.
 * @property {ProblemDocument} [problem] What the server said last against it, if that is why it is away or refused.
 * @property {Record<string, ProblemDocument>} [refused] Of `runs` over a WebSocket: those that the server said no to, while the others go on.
 *
 * @typedef {object} Options What to follow, and how.
 * @property {string} [base] The server's address, without a path of `/v1`; the page's own if it is left out.
 * @property {string} [run] One run. One of `run`, `session` and `runs` has to be there.
 * @property {string} [session] All runs of a session, and its own log.
 * @property {string[]} [runs] Up to 256 runs.
 * @property {boolean} [children] With `session`: also those of its descendants.
 * @property {Audience} [audience] `user` if it is left out.
 * @property {string[]} [surfaces] Only these; all if it is left out or empty.
 * @property {string} [agentId] Only what is of this agent.
 * @property {"activities" | "events"} [frames] `events` gives envelopes to `listen` and nothing to the store.
 * @property {boolean} [replay] Everything delta by delta from the start, instead of snapshots.
 * @property {"sse" | "websocket"} [transport] `sse` if it is left out.
 * @property {"eventsource" | "fetch"} [reader] What reads SSE. If it is left out: `EventSource` where there is one, until it meets what it cannot see
 * (a status, a long silence); then, and in Node, `fetch`, which sees both.
 * @property {Token} [token]
 * @property {string | Record<string, string>} [after] A cursor, `start` or `now`; for `runs` over a WebSocket a cursor each, by run.
 * @property {Partial<Timing>} [timing]
 * @property {typeof globalThis.fetch} [fetch]
 * @property {typeof globalThis.EventSource} [EventSource]
 * @property {typeof globalThis.WebSocket} [WebSocket] For Node before 22, which has none.
 *
 * @typedef {object} Timing All in milliseconds.
 * @property {number} retryMs The longest wait before the first new attempt; it doubles with each that fails.
 * @property {number} retryMaxMs The longest wait before any.
 * @property {number} silenceMs Without a sign of life for so long, a connection is taken for dead.
 * @property {number} pingMs How often a WebSocket is asked for one.
 * @property {number} openMs How long a connection may take to open.
 */

export {};

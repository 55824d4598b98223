//! Every address: its access rule, its parameters and its responses.
//!
//! One table, [`OPERATIONS`], generates the router and `/openapi.json`; an address without a row is not served. A debug
//! build (`debug_assertions`, as in every test) also stops at a response that its row does not describe, and at a query
//! member that is read but not described. So every test is also a test of this table.

pub use super::groups::{CONNECTION_PROBLEMS, NO_ADDRESS_PROBLEMS, SOCKET_PROBLEMS};
pub use super::operation::{Content, Operation, RequestBody, ResponseSpec};

use super::access_rule::AccessRule::{self, AnyToken, InBand, Public, Requires};
use super::groups::{
    BODY_TRANSFER, CLIENT_BODY, CONTROL, COUNTED_STREAM, DECISION, DURABLE, DURABLE_READ, FACTS, LEASE_ANSWER, LINES_TRANSFER,
    LINK_DECISION, OBJECT, OBJECT_BODY, OPENS_CONNECTION, PRODUCER, REQUEST_FAILS, RUN_READ, SELECTION, SESSION_READ, STOP,
    STORE, STREAM, WRONG_NAME,
};
use super::kinds::{self, ProblemKind};
use super::members::{
    ACP_AGENT, ACP_SESSION, ACTIVATION, AGENT, AGENT_PATH, ARCHIVED, ASSET, AT, ATTENTION_CURSOR, ATTENTION_LIMIT,
    ATTENTION_LIST, AUDIENCE, BEFORE, BLOB, CHAT, CHAT_OR_STREAM, CHILDREN, CONTROL_PATH, CREATED_BY, CURSOR, DECISIONS_CURSOR,
    DOCUMENTATION_PAGE, ERASE_BRANCHES, ERASE_CHILDREN, ERASE_WAIT, EVENTS_AFTER, EVENTS_BEFORE, FILE_NAME, INCLUDE_ARCHIVED,
    LAST_EVENT_ID, LAST_EVENT_ID_HEADER, LEASE, LIMIT, LINK_PATH, LINKS_CURSOR, LINKS_LIMIT, LIST_AFTER, LIST_LIMIT, MAX,
    MESSAGES, NEEDS_ACTION, OFFSET, OWNER, OWNER_PATH, PLACE_CURSOR, PROOF, PROTOCOL_VERSION, RANGE, READY_FOR, RUN, RUN_FILTER,
    RUN_ID_HEADER, RUN_LIST, RUN_LIST_SORT, RUN_SORT, RUN_TO_JOIN, RUNS, RUNS_CURSOR, RUNS_OFFSET, SCHEMA, SEARCH, SEARCH_IN,
    SESSION, SESSION_AT, SESSION_EVENTS_AFTER, SESSION_EVENTS_BEFORE, SESSION_LIST, SESSIONS_CURSOR, SESSIONS_OWNER, SINCE, SORT,
    START_INDEX, STATS_BY, STATS_FILTER, STATUS, SUBAGENTS, THREAD, THREAD_PATH, THREADS_CURSOR, TICKET, UNTIL, UPDATED_AFTER,
    VERSION, WAIT, WEBHOOK, WINDOW_CURSOR, WINDOW_LIMIT,
};
use crate::auth::rights::Verb;
use http::{Method, StatusCode};
use std::sync::OnceLock;

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

const FACTS_BODY: RequestBody = RequestBody {
    meaning: "A fact or an array of facts, accepted as a whole or not at all; or a fact per line, accepted as they arrive, for as long as the run lasts.",
    is_required: true,
    content: &[(JSON, Content::Json("Facts")), (LINES, Content::Each("Fact"))],
};
const CONTROL_BODY: RequestBody =
    RequestBody { meaning: "The control and its target.", is_required: true, content: &[(JSON, Content::Json("ControlWanted"))] };
const HOLD_BODY: RequestBody =
    RequestBody { meaning: "Why.", is_required: true, content: &[(JSON, Content::Json("HoldWanted"))] };
const ANSWER_BODY: RequestBody = RequestBody {
    meaning: "The lease, and optionally a reason.",
    is_required: true,
    content: &[(JSON, Content::Json("ControlAnswer"))],
};
const RECEIPT: &[ResponseSpec] =
    &[ResponseSpec { status: 200, meaning: "The facts are durable.", content: &[(JSON, Content::Json("Receipt"))] }];
const FRAMES_RESPONSE: ResponseSpec = ResponseSpec {
    status: 200,
    meaning: "Frames, until the log ends. Each `data:` is one frame; its `id:` is the cursor.",
    content: &[("text/event-stream", Content::Each("Frame"))],
};
const LIST_FRAMES_RESPONSE: &[ResponseSpec] = &[ResponseSpec {
    status: 200,
    meaning: "Frames without an end. Each `data:` is one frame; its `id:` is the cursor.",
    content: &[("text/event-stream", Content::Each("ListFrame"))],
}];
const RUN_FRAMES_RESPONSES: &[ResponseSpec] = &[
    FRAMES_RESPONSE,
    ResponseSpec {
        status: 204,
        meaning: "The reader has received everything up to the end; it need not reconnect.",
        content: &[],
    },
];

const DURABLE_RESPONSES: &[ResponseSpec] = &[
    ResponseSpec {
        status: 200,
        meaning: "The items after the offset, and in `Stream-Next-Offset` the offset after them. `Stream-Up-To-Date: true`: there are no more. `Stream-Closed: true`: the run has ended. With `live=sse`, events `data` with an array of items, each followed by an event `control`.",
        content: &[(JSON, Content::Json("DurableItems")), ("text/event-stream", Content::Each("DurableEvent"))],
    },
    ResponseSpec { status: 204, meaning: "Of a long poll: no item came, or the stream is closed.", content: &[] },
    ResponseSpec { status: 304, meaning: "The answer is the one with this `ETag`.", content: &[] },
];
const DURABLE_HEAD_RESPONSE: &[ResponseSpec] = &[ResponseSpec {
    status: 200,
    meaning: "The stream exists. `Stream-Next-Offset` is its end; `Stream-Closed: true`: the run has ended.",
    content: &[],
}];

const AG_UI_RESPONSE: &[ResponseSpec] = &[ResponseSpec {
    status: 200,
    meaning: "AG-UI events, up to the run's end or its next interrupt. A stream that is cut earlier is reset.",
    content: &[("text/event-stream", Content::Each("AgUiEvent"))],
}];
const AI_SDK_RESPONSE: ResponseSpec = ResponseSpec {
    status: 200,
    meaning: "Chunks of one assistant message, up to the run's end or its next question. A stream that is cut earlier is reset.",
    content: &[("text/event-stream", Content::Each("ChatChunk"))],
};
/// The answer to a request with the entity tag of the current file.
const NOT_MODIFIED: ResponseSpec =
    ResponseSpec { status: 304, meaning: "The file has not changed since the response with this `ETag`.", content: &[] };
const INPUT_BODY: RequestBody =
    RequestBody { meaning: "The run to start or resume.", is_required: true, content: &[(JSON, Content::Json("RunAgentInput"))] };

const THREAD_BODY: RequestBody = RequestBody {
    meaning: "The agent in whose list the client shows the thread.",
    is_required: false,
    content: &[(JSON, Content::Json("CopilotThreadOfAgent"))],
};

macro_rules! json {
    ($shape:literal, $meaning:literal) => {
        &[ResponseSpec { status: 200, meaning: $meaning, content: &[(JSON, Content::Json($shape))] }]
    };
}

/// The access rule for publishing facts.
pub const PUBLISH_ACCESS: AccessRule = Requires(Verb::Publish);
/// The access rule for streams.
pub const STREAM_ACCESS: AccessRule = AccessRule::ReadStream;
/// The access rule for durable streams. Their clients send headers, so they need no ticket.
pub const DURABLE_ACCESS: AccessRule = Requires(Verb::Read);
/// The access rule for metrics.
pub const METRICS_ACCESS: AccessRule = Requires(Verb::Admin);

/// The table. Rows of one path are adjacent.
pub static OPERATIONS: &[Operation] = &[
    Operation::new(Method::POST, "/v1/runs/{run}/facts", PUBLISH_ACCESS, "publishToRun", "facts")
        .with_summary("Appends facts to a run's log. The answer comes once they are durable.")
        .with_parameters(&[&[RUN, OWNER], PRODUCER])
        .with_ids()
        .with_body(FACTS_BODY)
        .with_responses(RECEIPT)
        .with_problems(&[STORE, FACTS, LINES_TRANSFER, &[kinds::RUN_ERASED]]),
    Operation::new(Method::POST, "/v1/sessions/{session}/facts", PUBLISH_ACCESS, "publishToSession", "facts")
        .with_summary("Appends facts that belong to no run to the session's own log. The answer comes once they are durable.")
        .with_parameters(&[&[SESSION, OWNER], PRODUCER])
        .with_ids()
        .with_body(FACTS_BODY)
        .with_responses(RECEIPT)
        .with_problems(&[STORE, FACTS, LINES_TRANSFER]),
    Operation::new(Method::POST, "/v1/runs/{run}/settle", Requires(Verb::Control), "settleRun", "runs")
        .with_summary("Ends a run whose runtime is gone, even a waiting run. A run that has ended stays unchanged.")
        .with_parameters(&[&[RUN]])
        .with_responses(json!("Settled", "The run's state, and whether this request ended it."))
        .with_problems(&[STORE, RUN_READ, &[kinds::DISK_FULL]]),
    Operation::new(Method::POST, "/v1/runs/{run}/controls", Requires(Verb::Control), "controlRun", "controls")
        .with_summary("Submits a control to the owner of a run, or of a part of it. Repeating the same `controlId` submits it once.")
        .with_parameters(&[&[RUN, AUDIENCE]])
        .with_body(CONTROL_BODY)
        .with_responses(&[ResponseSpec {
            status: 202,
            meaning: "The control is recorded and queued for its owner. It changes nothing by itself.",
            content: &[(JSON, Content::Json("ControlQueued"))],
        }])
        .with_problems(&[STORE, RUN_READ, OBJECT, BODY_TRANSFER, DECISION, CONTROL, LINK_DECISION, &[kinds::RUN_ENDED, kinds::WOULD_SUPERSEDE]]),
    Operation::new(Method::GET, "/v1/runs/{run}/controls", Requires(Verb::Read), "listRunControls", "controls")
        .with_summary("The controls of a run in submission order, with their outcome.")
        .with_parameters(&[&[RUN, LIMIT, CURSOR, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Controls", "A page of controls."))
        .with_problems(&[STORE, RUN_READ]),
    Operation::new(Method::POST, "/v1/runs/{run}/feedback", Requires(Verb::Control), "giveFeedback", "runs")
        .with_summary("Gives feedback about a run, or about one of its messages: a fact `feedback.given` of the run's log. It replaces what the same `sub` said of it before; the same again adds no fact.")
        .with_parameters(&[&[RUN, AUDIENCE]])
        .with_body(RequestBody {
            meaning: "The thumb, the words, or both. A `thumb` of null without `text` withdraws.",
            is_required: true,
            content: &[(JSON, Content::Json("FeedbackWanted"))],
        })
        .with_responses(&[
            ResponseSpec { status: 200, meaning: "The feedback, durable: changed, withdrawn or as it was.", content: &[(JSON, Content::Json("Feedback"))] },
            ResponseSpec { status: 201, meaning: "The feedback, durable: the first of this `sub` about this.", content: &[(JSON, Content::Json("Feedback"))] },
        ])
        .with_problems(&[
            STORE,
            RUN_READ,
            OBJECT_BODY,
            BODY_TRANSFER,
            &[kinds::NO_SUCH_MESSAGE, kinds::BAD_MEMBER, kinds::TOO_MUCH_FEEDBACK, kinds::DISK_FULL],
        ]),
    Operation::new(Method::GET, "/v1/runs/{run}/feedback", Requires(Verb::Read), "listFeedback", "runs")
        .with_summary("The feedback about a run and its messages that stands, with which of it is the token's own.")
        .with_parameters(&[&[RUN, AUDIENCE, ACTIVATION]])
        .with_responses(json!("FeedbackList", "The feedback: by message in order of appearance, that about the run where the run appears."))
        .with_problems(&[STORE, RUN_READ]),
    Operation::new(Method::POST, "/v1/sessions/{session}/controls", Requires(Verb::Control), "controlSession", "controls")
        .with_summary("Submits a control to the owner of a session, or of a part of it. Repeating the same `controlId` submits it once.")
        .with_parameters(&[&[SESSION, OWNER, AUDIENCE]])
        .with_body(CONTROL_BODY)
        .with_responses(&[ResponseSpec {
            status: 202,
            meaning: "The control is recorded and queued for its owner. It changes nothing by itself.",
            content: &[(JSON, Content::Json("ControlQueued"))],
        }])
        .with_problems(&[STORE, SESSION_READ, OBJECT, BODY_TRANSFER, DECISION, CONTROL, LINK_DECISION, &[kinds::WOULD_SUPERSEDE]]),
    Operation::new(Method::GET, "/v1/sessions/{session}/controls", Requires(Verb::Read), "listSessionControls", "controls")
        .with_summary("The controls of a session in submission order, with their outcome.")
        .with_parameters(&[&[SESSION, LIMIT, CURSOR, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Controls", "A page of controls."))
        .with_problems(&[STORE, SESSION_READ]),
    Operation::new(Method::GET, "/v1/runs/{run}/decisions", Requires(Verb::Read), "listRunDecisions", "controls")
        .with_summary("What a run asked and what was decided, in the order of the decisions.")
        .with_parameters(&[&[RUN, LIMIT, DECISIONS_CURSOR, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Decisions", "A page of decisions."))
        .with_problems(&[STORE, RUN_READ]),
    Operation::new(Method::GET, "/v1/sessions/{session}/decisions", Requires(Verb::Read), "listSessionDecisions", "controls")
        .with_summary("What the runs of a session asked and what was decided, run by run.")
        .with_parameters(&[&[SESSION, LIMIT, DECISIONS_CURSOR, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Decisions", "A page of decisions. It may have fewer than its limit, and still a `nextCursor`."))
        .with_problems(&[STORE, SESSION_READ]),
    Operation::new(Method::POST, "/v1/agents/{agent}/controls/claim", Requires(Verb::Publish), "claimControls", "controls")
        .with_summary("Leases controls from an agent's queue, waiting for one if requested.")
        .with_parameters(&[&[AGENT_PATH, WAIT, MAX, LEASE]])
        .with_responses(json!("Claimed", "The claimed controls; empty if none came in time."))
        .with_problems(&[STORE, OPENS_CONNECTION]),
    Operation::new(Method::DELETE, "/v1/controls/{control}", Requires(Verb::Control), "withdrawControl", "controls")
        .with_summary("Withdraws a control that no owner has claimed.")
        .with_parameters(&[&[CONTROL_PATH, AUDIENCE]])
        .with_responses(&[ResponseSpec { status: 204, meaning: "The control is withdrawn: no owner gets it.", content: &[] }])
        .with_problems(&[STORE, &[kinds::NO_SUCH_CONTROL, kinds::CONTROL_CLAIMED]]),
    Operation::new(Method::POST, "/v1/controls/{control}/ack", Requires(Verb::Publish), "ackControl", "controls")
        .with_summary("Accepts a claimed control.")
        .with_parameters(&[&[CONTROL_PATH]])
        .with_body(ANSWER_BODY)
        .with_responses(json!("ControlAnswered", "The control's outcome."))
        .with_problems(&[STORE, OBJECT, BODY_TRANSFER, LEASE_ANSWER]),
    Operation::new(Method::POST, "/v1/controls/{control}/nack", Requires(Verb::Publish), "nackControl", "controls")
        .with_summary("Refuses a claimed control, or returns it to the queue.")
        .with_parameters(&[&[CONTROL_PATH]])
        .with_body(ANSWER_BODY)
        .with_responses(json!("ControlAnswered", "The control's outcome."))
        .with_problems(&[STORE, OBJECT, BODY_TRANSFER, LEASE_ANSWER]),
    Operation::new(Method::GET, "/v1/runs/{run}/stream", STREAM_ACCESS, "streamRun", "streams")
        .with_summary("Frames of a run as server-sent events, from the reader's position on. The stream of a run that does not exist waits for it.")
        .with_parameters(&[&[RUN, PROTOCOL_VERSION, SUBAGENTS, UNTIL], STREAM, SELECTION])
        .with_responses(RUN_FRAMES_RESPONSES)
        .with_problems(&[STORE, OPENS_CONNECTION]),
    Operation::new(Method::GET, "/v1/attention", Requires(Verb::Read), "listAttention", "controls")
        .with_summary("The pending actions of all sessions that the token may see, oldest first, and how many of them are unanswered.")
        .with_parameters(&[&[ATTENTION_LIMIT, ATTENTION_CURSOR, AGENT, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Attention", "A page of pending actions."))
        .with_problems(&[STORE]),
    Operation::new(Method::GET, "/v1/lists/stream", STREAM_ACCESS, "streamLists", "streams")
        .with_summary("Pending actions, sessions and runs that the token may list: a `put` for each, `Hydrated`, then a `put` or a `remove` for each change.")
        .with_parameters(&[
            &[ATTENTION_LIST, SESSION_LIST, RUN_LIST, RUN_LIST_SORT, AGENT, SORT, STATUS, SEARCH, SEARCH_IN, NEEDS_ACTION, ARCHIVED, CREATED_BY],
            &[UPDATED_AFTER, SESSIONS_OWNER, LIST_LIMIT, AUDIENCE],
            &[LIST_AFTER, LAST_EVENT_ID, LAST_EVENT_ID_HEADER, TICKET],
        ])
        .with_responses(LIST_FRAMES_RESPONSE)
        .with_problems(&[STORE, OPENS_CONNECTION]),
    Operation::new(Method::GET, "/v1/sessions", Requires(Verb::Read), "listSessions", "sessions")
        .with_summary("Sessions, newest first. Archived ones are hidden by default.")
        .with_parameters(&[
            &[LIMIT, SESSIONS_CURSOR, SORT, STATUS, SEARCH, SEARCH_IN, NEEDS_ACTION, ARCHIVED, AGENT, CREATED_BY, UPDATED_AFTER],
            &[SESSIONS_OWNER, AUDIENCE, ACTIVATION],
        ])
        .with_responses(json!("Sessions", "A page of sessions."))
        .with_problems(&[STORE]),
    Operation::new(Method::GET, "/v1/sessions/{session}", Requires(Verb::Read), "getSession", "sessions")
        .with_summary("A session's shell and what needs attention, from its newest 32 runs and up to 64 runs with pending actions.")
        .with_parameters(&[&[SESSION, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Session", "The session."))
        .with_problems(&[STORE, SESSION_READ]),
    Operation::new(Method::DELETE, "/v1/sessions/{session}", Requires(Verb::Erase), "eraseSession", "sessions")
        .with_summary("Erases a session permanently: its own log, its runs, and what the server keeps about them. Runs at work are stopped first.")
        .with_parameters(&[&[SESSION, ERASE_CHILDREN, ERASE_BRANCHES]])
        .with_responses(&[ResponseSpec { status: 204, meaning: "The session is erased, and a crash does not restore it.", content: &[] }])
        .with_problems(&[STORE, SESSION_READ, &[kinds::HAS_CHILDREN, kinds::HAS_BRANCHES, kinds::HELD]]),
    Operation::new(Method::DELETE, "/v1/owners/{owner}", Requires(Verb::Erase), "eraseOwner", "sessions")
        .with_summary("Erases all sessions and runs of an owner that exist now. The token must cover the owner.")
        .with_parameters(&[&[OWNER_PATH, ERASE_WAIT]])
        .with_responses(&[
            ResponseSpec { status: 202, meaning: "The erasure goes on. Repeat the request until it is complete.", content: &[(JSON, Content::Json("OwnerErasure"))] },
            ResponseSpec { status: 204, meaning: "The owner has none of them left, and a crash does not restore any.", content: &[] },
        ])
        .with_problems(&[STORE, &[kinds::HELD]]),
    Operation::new(Method::GET, "/v1/owners/{owner}/export", Requires(Verb::Read), "exportOwner", "sessions")
        .with_summary("All that an owner has, one JSON object per line, as `proscenium import` reads it: a line for each log, then its envelopes. The token must cover the owner.")
        .with_parameters(&[&[OWNER_PATH, AUDIENCE]])
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "Lines, of which the last one says that the export is whole.",
            content: &[(LINES, Content::Each("OwnerExportLine"))],
        }])
        .with_problems(&[STORE]),
    Operation::new(Method::PUT, "/v1/sessions/{session}/hold", Requires(Verb::Admin), "holdSession", "operations")
        .with_summary("Sets a legal hold on a session and those below it: until it is lifted, no rule and no request erases or compacts any of them. It replaces the hold that is there. It needs the audience `dashboard`.")
        .with_parameters(&[&[SESSION]])
        .with_body(HOLD_BODY)
        .with_responses(json!("Hold", "The hold, once it is durable."))
        .with_problems(&[
            STORE,
            SESSION_READ,
            OBJECT_BODY,
            BODY_TRANSFER,
            &[kinds::BAD_MEMBER, kinds::ERASURE_UNDER_WAY, kinds::TOO_MANY_HOLDS, kinds::DISK_FULL],
        ]),
    Operation::new(Method::DELETE, "/v1/sessions/{session}/hold", Requires(Verb::Admin), "liftSessionHold", "operations")
        .with_summary("Lifts the legal hold on a session.")
        .with_parameters(&[&[SESSION]])
        .with_responses(&[ResponseSpec { status: 204, meaning: "The hold is lifted, durably.", content: &[] }])
        .with_problems(&[STORE, &[kinds::NO_SUCH_HOLD]]),
    Operation::new(Method::PUT, "/v1/owners/{owner}/hold", Requires(Verb::Admin), "holdOwner", "operations")
        .with_summary("Sets a legal hold on all that an owner has, and on what it begins later. The token must cover the owner, and have the audience `dashboard`.")
        .with_parameters(&[&[OWNER_PATH]])
        .with_body(HOLD_BODY)
        .with_responses(json!("Hold", "The hold, once it is durable."))
        .with_problems(&[
            STORE,
            OBJECT_BODY,
            BODY_TRANSFER,
            &[kinds::BAD_MEMBER, kinds::ERASURE_UNDER_WAY, kinds::TOO_MANY_HOLDS, kinds::DISK_FULL],
        ]),
    Operation::new(Method::DELETE, "/v1/owners/{owner}/hold", Requires(Verb::Admin), "liftOwnerHold", "operations")
        .with_summary("Lifts the legal hold on an owner. Holds on its sessions stay.")
        .with_parameters(&[&[OWNER_PATH]])
        .with_responses(&[ResponseSpec { status: 204, meaning: "The hold is lifted, durably.", content: &[] }])
        .with_problems(&[STORE, &[kinds::NO_SUCH_HOLD]]),
    Operation::new(Method::GET, "/v1/holds", Requires(Verb::Admin), "listHolds", "operations")
        .with_summary("The legal holds on owners and on sessions that the token covers, by their ids. It needs the audience `dashboard`.")
        .with_parameters(&[&[LIMIT, PLACE_CURSOR]])
        .with_responses(json!("Holds", "A page of holds.")),
    Operation::new(Method::POST, "/v1/retention/dry-run", Requires(Verb::Admin), "dryRunRetention", "operations")
        .with_summary("What rules of retention would do now: those of the request, or the server's own. It changes nothing. It needs a token for all sessions.")
        .with_body(RequestBody {
            meaning: "The rules; `{}` for the server's own.",
            is_required: true,
            content: &[(JSON, Content::Json("RetentionWanted"))],
        })
        .with_responses(json!("RetentionDue", "What each rule is due for."))
        .with_problems(&[STORE, OBJECT_BODY, BODY_TRANSFER, &[kinds::BAD_MEMBER]]),
    Operation::new(Method::PATCH, "/v1/sessions/{session}", Requires(Verb::Control), "updateSession", "sessions")
        .with_summary("Renames or archives a session, for all who see it, or chooses the branch that existing clients read and write by its id: a fact `session.updated` of its own log. What is already so adds no fact.")
        .with_parameters(&[&[SESSION, AUDIENCE]])
        .with_body(RequestBody {
            meaning: "What changes: at least one member.",
            is_required: true,
            content: &[(JSON, Content::Json("SessionChange"))],
        })
        .with_responses(json!("SessionLine", "The session, once the change is durable."))
        .with_problems(&[STORE, SESSION_READ, OBJECT_BODY, BODY_TRANSFER, &[kinds::BAD_MEMBER, kinds::DISK_FULL]]),
    Operation::new(Method::PUT, "/v1/sessions/{session}/marks", Requires(Verb::Read), "markSession", "sessions")
        .with_summary("Notes how far the token's `sub` has read a session, and whether it is pinned. Only that `sub` sees it, in its lists.")
        .with_parameters(&[&[SESSION]])
        .with_body(RequestBody {
            meaning: "What changes: at least one member.",
            is_required: true,
            content: &[(JSON, Content::Json("MarksWanted"))],
        })
        .with_responses(json!("Marks", "The marks, once they are durable."))
        .with_problems(&[
            STORE,
            SESSION_READ,
            OBJECT_BODY,
            BODY_TRANSFER,
            &[kinds::BAD_MEMBER, kinds::BAD_CURSOR, kinds::MARKS_NEED_TOKEN, kinds::DISK_FULL],
        ]),
    Operation::new(Method::POST, "/v1/sessions/{session}/attachments", Requires(Verb::Control), "attach", "sessions")
        .with_summary("Adds a file of at most 10 MiB to a session, for a message that names its `href` in `value.attachments`. A session begins with it if none has this id. The file is erased with the session; and after a day if nothing in the session names it.")
        .with_parameters(&[&[SESSION, FILE_NAME, OWNER, AUDIENCE]])
        .with_body(RequestBody {
            meaning: "The bytes of the file, with its media type as `content-type`.",
            is_required: true,
            content: &[("*/*", Content::Bytes)],
        })
        .with_responses(&[ResponseSpec {
            status: 201,
            meaning: "The file is durable.",
            content: &[(JSON, Content::Json("Attachment"))],
        }])
        .with_problems(&[
            STORE,
            BODY_TRANSFER,
            &[
                kinds::EMPTY_BODY,
                kinds::UNSUPPORTED_MEDIA_TYPE,
                kinds::BODY_TOO_LARGE,
                kinds::OTHER_OWNER,
                kinds::QUOTA_EXCEEDED,
                kinds::TOO_MANY_ATTACHMENTS,
                kinds::DISK_FULL,
            ],
        ]),
    Operation::new(Method::POST, "/v1/sessions/{session}/branches", Requires(Verb::Control), "branch", "sessions")
        .with_summary("Begins a session that goes on from a point of this one. What came before is frozen: later facts of this session are not in the branch. What was open there is interrupted, and is decided where it was asked. Needs the verb `read`, too.")
        .with_parameters(&[&[SESSION, AUDIENCE]])
        .with_body(RequestBody {
            meaning: "Where the branch begins.",
            is_required: true,
            content: &[(JSON, Content::Json("BranchWanted"))],
        })
        .with_responses(&[ResponseSpec {
            status: 201,
            meaning: "The branch, once it is durable.",
            content: &[(JSON, Content::Json("SessionLine"))],
        }])
        .with_problems(&[
            STORE,
            SESSION_READ,
            OBJECT_BODY,
            BODY_TRANSFER,
            &[
                kinds::BAD_MEMBER,
                kinds::NO_SUCH_POINT,
                kinds::NO_SUCH_MESSAGE,
                kinds::SESSION_EXISTS,
                kinds::QUOTA_EXCEEDED,
                kinds::TOO_MANY_BRANCHES,
                kinds::DISK_FULL,
            ],
        ]),
    Operation::new(Method::GET, "/v1/sessions/{session}/window", Requires(Verb::Read), "getWindow", "sessions")
        .with_summary("A session's recent messages. The cursor leads to earlier ones.")
        .with_parameters(&[&[SESSION, MESSAGES, WINDOW_CURSOR, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Window", "Messages, in order."))
        .with_problems(&[STORE, SESSION_READ]),
    Operation::new(Method::GET, "/v1/sessions/{session}/timeline", Requires(Verb::Read), "getTimeline", "sessions")
        .with_summary("The process details behind a session's messages, newest window first.")
        .with_parameters(&[&[SESSION, WINDOW_LIMIT, WINDOW_CURSOR, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Timeline", "Activities, in order."))
        .with_problems(&[STORE, SESSION_READ]),
    Operation::new(Method::GET, "/v1/sessions/{session}/events", Requires(Verb::Read), "getSessionEvents", "sessions")
        .with_summary("The envelopes of all logs of a session in commit order: with only `before`, the newest before it; else forward from `after`.")
        .with_parameters(&[&[SESSION, SESSION_EVENTS_AFTER, SESSION_EVENTS_BEFORE, LIMIT], SELECTION, &[ACTIVATION]])
        .with_responses(json!("SessionEvents", "A page of envelopes."))
        .with_problems(&[STORE, SESSION_READ, &[kinds::EPOCH_CHANGED, kinds::SESSION_TOO_LARGE]]),
    Operation::new(Method::GET, "/v1/sessions/{session}/activities", Requires(Verb::Read), "getSessionActivities", "sessions")
        .with_summary("The activities of all logs of a session, now or at any position in commit order.")
        .with_parameters(&[&[SESSION, SESSION_AT, CURSOR], SELECTION, &[ACTIVATION]])
        .with_responses(json!("SessionActivities", "Activities, by log in creation order, then in order of appearance."))
        .with_problems(&[STORE, SESSION_READ, &[kinds::EPOCH_CHANGED]]),
    Operation::new(Method::GET, "/v1/sessions/{session}/stream", STREAM_ACCESS, "streamSession", "streams")
        .with_summary("Frames of all logs of a session, including those of later runs.")
        .with_parameters(&[&[SESSION, CHILDREN], STREAM, SELECTION])
        .with_responses(&[FRAMES_RESPONSE])
        .with_problems(&[STORE, OPENS_CONNECTION]),
    Operation::new(Method::GET, "/v1/runs/{run}/durable", DURABLE_ACCESS, "readRun", "streams")
        .with_summary("A run as a durable stream (Durable Streams, read side): its envelopes, its frames, or the events of another format, after an offset.")
        .with_parameters(&[&[RUN, PROTOCOL_VERSION, SUBAGENTS, VERSION], DURABLE, SELECTION])
        .with_responses(DURABLE_RESPONSES)
        .with_problems(&[STORE, RUN_READ, DURABLE_READ, OPENS_CONNECTION, &[kinds::COMPACTED]]),
    Operation::new(Method::HEAD, "/v1/runs/{run}/durable", DURABLE_ACCESS, "headRun", "streams")
        .with_summary("Where the durable stream of a run ends, and whether it is closed.")
        .with_parameters(&[&[RUN, AUDIENCE]])
        .with_responses(DURABLE_HEAD_RESPONSE)
        .with_problems(&[STORE, RUN_READ]),
    Operation::new(Method::GET, "/v1/sessions/{session}/durable", DURABLE_ACCESS, "readSession", "streams")
        .with_summary("All logs of a session as one durable stream, in the order of their commits. It is never closed.")
        .with_parameters(&[&[SESSION, CHILDREN], DURABLE, SELECTION])
        .with_responses(DURABLE_RESPONSES)
        .with_problems(&[STORE, SESSION_READ, DURABLE_READ, OPENS_CONNECTION, &[kinds::SESSION_TOO_LARGE]]),
    Operation::new(Method::HEAD, "/v1/sessions/{session}/durable", DURABLE_ACCESS, "headSession", "streams")
        .with_summary("Where the durable stream of a session ends.")
        .with_parameters(&[&[SESSION, AUDIENCE]])
        .with_responses(DURABLE_HEAD_RESPONSE)
        .with_problems(&[STORE, SESSION_READ]),
    Operation::new(Method::GET, "/v1/stream", STREAM_ACCESS, "streamRuns", "streams")
        .with_summary("Frames of several runs on one connection.")
        .with_parameters(&[&[RUNS], STREAM, SELECTION])
        .with_responses(&[FRAMES_RESPONSE])
        .with_problems(&[STORE, OPENS_CONNECTION, &[kinds::BAD_ID]]),
    Operation::new(Method::GET, "/v1/ws", InBand, "connect", "streams")
        .with_summary("Opens a WebSocket (RFC 6455, HTTP/1.1) for many subscriptions and publishes. Messages are JSON objects as text; `docs/src/reference/websocket.md` describes them.")
        .with_parameters(&[&[TICKET]])
        .with_responses(&[ResponseSpec { status: 101, meaning: "The connection is now a WebSocket.", content: &[] }])
        .with_problems(&[OPENS_CONNECTION, &[kinds::UPGRADE_REQUIRED, kinds::BAD_SUBPROTOCOL, kinds::UNAUTHENTICATED, kinds::KEYS_UNAVAILABLE]]),
    Operation::new(Method::GET, "/acp", InBand, "connectAcp", "clients")
        .with_summary("Opens a WebSocket for a client of the Agent Client Protocol, version 1: JSON-RPC 2.0, one message a text frame. `docs/src/guides/in-your-editor.md` describes it.")
        .with_parameters(&[&[ACP_AGENT, ACP_SESSION, AUDIENCE, OWNER, TICKET]])
        .with_responses(&[ResponseSpec { status: 101, meaning: "The connection is now a WebSocket.", content: &[] }])
        .with_problems(&[OPENS_CONNECTION, &[kinds::UPGRADE_REQUIRED, kinds::BAD_SUBPROTOCOL, kinds::UNAUTHENTICATED, kinds::KEYS_UNAVAILABLE]]),
    Operation::new(Method::GET, "/v1/me", AnyToken, "getMe", "access")
        .with_summary("Who the client is, and what it may do.")
        .with_responses(json!("Me", "The rights of the token.")),
    Operation::new(Method::GET, "/v1/keys", Requires(Verb::Read), "listKeys", "access")
        .with_summary("The public keys that verify what the server signs: heads of logs, and exports with proofs.")
        .with_responses(json!("Keys", "A JSON Web Key Set.")),
    Operation::new(Method::GET, "/v1/sign-in", Public, "getSignIn", "access")
        .with_summary("What a page needs to sign a person in at the identity provider of the server.")
        .with_responses(json!("SignIn", "The sign-in; without `provider` if the server has none."))
        .with_problems(&[&[kinds::KEYS_UNAVAILABLE]]),
    Operation::new(Method::POST, "/v1/tickets", AnyToken, "makeTicket", "access")
        .with_summary("Issues a ticket for clients that cannot send headers: they send `?ticket=` instead.")
        .with_body(RequestBody {
            meaning: "The ticket's purpose.",
            is_required: true,
            content: &[(JSON, Content::Json("TicketWanted"))],
        })
        .with_responses(json!("Ticket", "The ticket and its expiry."))
        .with_problems(&[
            STORE,
            &[kinds::NOT_JSON, kinds::BAD_QUERY, kinds::BAD_ID, kinds::BODY_TOO_LARGE, kinds::TOO_MANY_TICKETS],
            BODY_TRANSFER,
        ]),
    Operation::new(Method::POST, "/v1/links", Requires(Verb::Share), "makeLink", "links")
        .with_summary("Makes a share link to a run or a session: who opens it reads as `user`, without a token, until it ends.")
        .with_body(RequestBody {
            meaning: "What the link leads to, until when, and what it permits.",
            is_required: true,
            content: &[(JSON, Content::Json("LinkWanted"))],
        })
        .with_responses(&[ResponseSpec {
            status: 201,
            meaning: "The link is durable. No later answer has its address.",
            content: &[(JSON, Content::Json("LinkMade"))],
        }])
        .with_problems(&[
            STORE,
            RUN_READ,
            SESSION_READ,
            &[kinds::NOT_JSON, kinds::BAD_MEMBER, kinds::BAD_ID, kinds::BODY_TOO_LARGE, kinds::TOO_MANY_LINKS, kinds::DISK_FULL],
            BODY_TRANSFER,
        ]),
    Operation::new(Method::GET, "/v1/links", Requires(Verb::Share), "listLinks", "links")
        .with_summary("The open share links that the client made, newest first; for an `admin` of every session, all of them.")
        .with_parameters(&[&[LINKS_LIMIT, LINKS_CURSOR]])
        .with_responses(json!("Links", "A page of links."))
        .with_problems(&[STORE]),
    Operation::new(Method::DELETE, "/v1/links/{link}", Requires(Verb::Share), "revokeLink", "links")
        .with_summary("Revokes a share link. Its tokens and streams end within a second.")
        .with_parameters(&[&[LINK_PATH]])
        .with_responses(&[ResponseSpec { status: 204, meaning: "The link is revoked, durably.", content: &[] }])
        .with_problems(&[STORE, &[kinds::NO_SUCH_LINK]]),
    Operation::new(Method::POST, "/v1/links/exchange", Public, "openLink", "links")
        .with_summary("Opens a share link: exchanges its secret for a token of 15 minutes.")
        .with_body(RequestBody {
            meaning: "The secret: what follows `link=` in the link's fragment.",
            is_required: true,
            content: &[(JSON, Content::Json("LinkSecret"))],
        })
        .with_responses(json!("LinkOpened", "What the link leads to, and its token."))
        .with_problems(&[
            STORE,
            &[kinds::NOT_JSON, kinds::BAD_MEMBER, kinds::BODY_TOO_LARGE, kinds::NO_SUCH_LINK, kinds::LINK_RATE],
            BODY_TRANSFER,
        ]),
    Operation::new(Method::GET, "/v1/runs", Requires(Verb::Read), "listRuns", "runs")
        .with_summary("Runs, newest first, or those of a filter, in an order, with their number and facets.")
        .with_parameters(&[&[RUN_FILTER, RUN_SORT, LIMIT, RUNS_CURSOR, RUNS_OFFSET, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Runs", "A page of runs."))
        .with_problems(&[STORE]),
    Operation::new(Method::GET, "/v1/stats", Requires(Verb::Read), "getStats", "runs")
        .with_summary("Counts, cost, tokens, durations and waits of the runs that started since a time, in total and by bucket.")
        .with_parameters(&[&[SINCE, STATS_BY, STATS_FILTER, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Stats", "The figures."))
        .with_problems(&[STORE]),
    Operation::new(Method::GET, "/v1/runs/{run}", Requires(Verb::Read), "getRun", "runs")
        .with_summary("A run's state.")
        .with_parameters(&[&[RUN, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Run", "The run."))
        .with_problems(&[STORE, RUN_READ]),
    Operation::new(Method::DELETE, "/v1/runs/{run}", Requires(Verb::Erase), "eraseRun", "runs")
        .with_summary("Erases a run permanently: its log, its offloaded bodies, its checkpoints.")
        .with_parameters(&[&[RUN]])
        .with_responses(&[ResponseSpec { status: 204, meaning: "The run is erased, and a crash does not restore it.", content: &[] }])
        .with_problems(&[STORE, RUN_READ, &[kinds::HAS_BRANCHES, kinds::HELD]]),
    Operation::new(Method::GET, "/v1/runs/{run}/events", Requires(Verb::Read), "getEvents", "runs")
        .with_summary("A run's envelopes by page, always in order: with only `before`, the newest before it; else forward from `after`.")
        .with_parameters(&[&[RUN, EVENTS_AFTER, EVENTS_BEFORE, LIMIT], SELECTION, &[ACTIVATION]])
        .with_responses(json!("Events", "A page of envelopes."))
        .with_problems(&[STORE, RUN_READ, &[kinds::EPOCH_CHANGED]]),
    Operation::new(Method::GET, "/v1/runs/{run}/activities", Requires(Verb::Read), "getActivities", "runs")
        .with_summary("A run's activities, now or at any sequence.")
        .with_parameters(&[&[RUN, AT], SELECTION, &[ACTIVATION]])
        .with_responses(json!("Activities", "Activities, in order of appearance."))
        .with_problems(&[STORE, RUN_READ]),
    Operation::new(Method::GET, "/v1/sessions/{session}/export", Requires(Verb::Read), "exportSession", "sessions")
        .with_summary("All envelopes of a session's own log, one per line. Its runs have exports of their own.")
        .with_parameters(&[&[SESSION], SELECTION, &[PROOF]])
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "Envelopes, in order; with `proof`, also the lines that prove them.",
            content: &[(LINES, Content::Each("ExportLine"))],
        }])
        .with_problems(&[STORE, SESSION_READ]),
    Operation::new(Method::GET, "/v1/runs/{run}/export", Requires(Verb::Read), "exportRun", "runs")
        .with_summary("All of a run's envelopes, one per line, as `proscenium import` reads them.")
        .with_parameters(&[&[RUN], SELECTION, &[PROOF]])
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "Envelopes, in order; with `proof`, also the lines that prove them.",
            content: &[(LINES, Content::Each("ExportLine"))],
        }])
        .with_problems(&[STORE, RUN_READ]),
    Operation::new(Method::GET, "/v1/blobs/{blob}", Requires(Verb::Read), "getBlob", "runs")
        .with_summary("An offloaded body, or a range of it.")
        .with_parameters(&[&[BLOB, AUDIENCE, RANGE]])
        .with_responses(&[
            ResponseSpec { status: 200, meaning: "The whole body.", content: &[("*/*", Content::Bytes)] },
            ResponseSpec { status: 206, meaning: "The requested range.", content: &[("*/*", Content::Bytes)] },
        ])
        .with_problems(&[STORE, &[kinds::NO_SUCH_BLOB, kinds::BAD_RANGE]]),
    Operation::new(Method::POST, "/ag-ui/{agent}", Requires(Verb::Control), "agUiRun", "clients")
        .with_summary("Requests a run of an agent and streams it as AG-UI. A known `runId` is attached to and never requested again; `resume` answers the interrupts of a run.")
        .with_parameters(&[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER, RUN_ID_HEADER]])
        .with_body(INPUT_BODY)
        .with_responses(AG_UI_RESPONSE)
        .with_problems(&[STORE, CLIENT_BODY, BODY_TRANSFER, WRONG_NAME, DECISION, REQUEST_FAILS]),
    Operation::new(Method::GET, "/ag-ui/{agent}", STREAM_ACCESS, "agUiGet", "clients")
        .with_summary("A stored thread, or, with `runId`, that run as a live AG-UI stream, for `TanStack` AI. An unknown thread is empty.")
        .with_parameters(&[
            &[AGENT_PATH, THREAD, RUN_TO_JOIN, OFFSET, BEFORE, LIMIT, AUDIENCE, SUBAGENTS, ACTIVATION],
            &[LAST_EVENT_ID, LAST_EVENT_ID_HEADER, TICKET],
        ])
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "The thread; or events, with `id:` before `data:`.",
            content: &[(JSON, Content::Json("ThreadAtRest")), ("text/event-stream", Content::Each("AgUiEvent"))],
        }])
        .with_problems(&[STORE, &[kinds::BAD_QUERY]]),
    Operation::new(Method::GET, "/a2a/{agent}/.well-known/agent-card.json", Requires(Verb::Control), "a2aCard", "clients")
        .with_summary("The card of an agent for clients of the Agent2Agent protocol, 0.3 and 1.0.")
        .with_parameters(&[&[AGENT_PATH]])
        .with_responses(json!("A2aCard", "The card.")),
    Operation::new(Method::POST, "/a2a/{agent}", AnyToken, "a2aCall", "clients")
        .with_summary("The Agent2Agent protocol, 0.3 and 1.0, by JSON-RPC: a task is a run. `docs/src/guides/as-an-a2a-agent.md` describes it.")
        .with_parameters(&[&[AGENT_PATH, AUDIENCE, LAST_EVENT_ID_HEADER]])
        .with_body(RequestBody {
            meaning: "A request of JSON-RPC 2.0.",
            is_required: true,
            content: &[(JSON, Content::Json("A2aCall"))],
        })
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "The answer, also an error of the protocol; events of a task, up to its end or what it waits for.",
            content: &[(JSON, Content::Json("A2aAnswer")), ("text/event-stream", Content::Each("A2aAnswer"))],
        }])
        .with_problems(&[
            STORE,
            BODY_TRANSFER,
            &[kinds::UNSUPPORTED_MEDIA_TYPE, kinds::BODY_TOO_LARGE, kinds::TOO_MANY_CONTROLS, kinds::TOO_MANY_ATTACHMENTS],
            &[kinds::TOO_MANY_SECRETS, kinds::TOO_MANY_PUSH_ADDRESSES, kinds::QUOTA_EXCEEDED, kinds::DISK_FULL],
        ]),
    Operation::new(Method::GET, "/copilotkit/info", Requires(Verb::Read), "copilotInfo", "clients")
        .with_summary("The agents, which CopilotKit asks its runtime for first.")
        .with_responses(json!("CopilotInfo", "The agents."))
        .with_problems(&[STORE]),
    Operation::new(Method::POST, "/copilotkit/agent/{agent}/run", Requires(Verb::Control), "copilotRun", "clients")
        .with_summary("As `POST /ag-ui/{agent}`, for CopilotKit.")
        .with_parameters(&[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]])
        .with_body(INPUT_BODY)
        .with_responses(AG_UI_RESPONSE)
        .with_problems(&[STORE, CLIENT_BODY, BODY_TRANSFER, WRONG_NAME, DECISION, REQUEST_FAILS]),
    Operation::new(Method::POST, "/copilotkit/agent/{agent}/connect", Requires(Verb::Read), "copilotConnect", "clients")
        .with_summary("Shows a thread's current state and continues with its active run. An unknown thread has no events.")
        .with_parameters(&[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]])
        .with_body(INPUT_BODY)
        .with_responses(AG_UI_RESPONSE)
        .with_problems(&[STORE, CLIENT_BODY, BODY_TRANSFER]),
    Operation::new(Method::POST, "/copilotkit/agent/{agent}/stop/{thread}", Requires(Verb::Control), "copilotStop", "clients")
        .with_summary("Requests a stop of a thread's active run.")
        .with_parameters(&[&[AGENT_PATH, THREAD_PATH, AUDIENCE]])
        .with_body(RequestBody {
            meaning: "The run to stop.",
            is_required: false,
            content: &[(JSON, Content::Json("StopWanted"))],
        })
        .with_responses(json!("Stopped", "Whether a run was asked to stop."))
        .with_problems(&[STORE, CLIENT_BODY, BODY_TRANSFER, STOP]),
    Operation::new(Method::POST, "/copilotkit", AnyToken, "copilotCall", "clients")
        .with_summary("All CopilotKit calls at one address. The body's `method` selects the call.")
        .with_parameters(&[&[AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]])
        .with_body(RequestBody {
            meaning: "The method, its parameters and its body.",
            is_required: true,
            content: &[(JSON, Content::Json("CopilotCall"))],
        })
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "The answer of that method's own address.",
            content: &[(JSON, Content::Json("Any")), ("text/event-stream", Content::Each("AgUiEvent"))],
        }, ResponseSpec { status: 204, meaning: "As `POST /copilotkit/threads/clear`.", content: &[] }])
        .with_problems(&[
            STORE,
            CLIENT_BODY,
            BODY_TRANSFER,
            WRONG_NAME,
            DECISION,
            REQUEST_FAILS,
            SESSION_READ,
            &[kinds::BAD_ID, kinds::BAD_QUERY, kinds::NO_LIVE_LIST, kinds::HELD],
        ]),
    Operation::new(Method::GET, "/copilotkit/threads", Requires(Verb::Read), "copilotThreads", "clients")
        .with_summary("The threads of an agent for CopilotKit, those with the newest activity first. Archived ones are hidden by default.")
        .with_parameters(&[&[AGENT, INCLUDE_ARCHIVED, LIMIT, THREADS_CURSOR, AUDIENCE]])
        .with_responses(json!("CopilotThreads", "A page of threads."))
        .with_problems(&[STORE]),
    Operation::new(Method::POST, "/copilotkit/threads/clear", Requires(Verb::Erase), "copilotClear", "clients")
        .with_summary("Erases the threads that the token's `sub` began and that the token covers, with their child sessions.")
        .with_responses(&[ResponseSpec { status: 204, meaning: "The threads are erased, and a crash does not restore them.", content: &[] }])
        .with_problems(&[STORE, &[kinds::HELD]]),
    Operation::new(Method::POST, "/copilotkit/threads/subscribe", Requires(Verb::Read), "copilotSubscribe", "clients")
        .with_summary("Where CopilotKit asks for a live list of threads, which the server does not have.")
        .with_problems(&[&[kinds::NO_LIVE_LIST]]),
    Operation::new(Method::PATCH, "/copilotkit/threads/{thread}", Requires(Verb::Control), "copilotChange", "clients")
        .with_summary("Renames a thread or takes it out of the archive, as `PATCH /v1/sessions/{session}`.")
        .with_parameters(&[&[THREAD_PATH, AUDIENCE]])
        .with_body(RequestBody {
            meaning: "What changes: `name` or `archived`, or both.",
            is_required: true,
            content: &[(JSON, Content::Json("CopilotThreadChange"))],
        })
        .with_responses(json!("CopilotThread", "The thread, once the change is durable."))
        .with_problems(&[STORE, SESSION_READ, CLIENT_BODY, BODY_TRANSFER, &[kinds::DISK_FULL]]),
    Operation::new(Method::DELETE, "/copilotkit/threads/{thread}", Requires(Verb::Erase), "copilotDelete", "clients")
        .with_summary("Erases a thread permanently, with its child sessions that the token covers. Runs at work are stopped first.")
        .with_parameters(&[&[THREAD_PATH, AUDIENCE]])
        .with_body(THREAD_BODY)
        .with_responses(json!("CopilotThreadDeleted", "The thread is erased, and a crash does not restore it."))
        .with_problems(&[STORE, SESSION_READ, CLIENT_BODY, BODY_TRANSFER, &[kinds::HELD]]),
    Operation::new(Method::POST, "/copilotkit/threads/{thread}/archive", Requires(Verb::Control), "copilotArchive", "clients")
        .with_summary("Archives a thread, for all who see it.")
        .with_parameters(&[&[THREAD_PATH, AUDIENCE]])
        .with_body(THREAD_BODY)
        .with_responses(json!("CopilotThreadArchived", "The thread is archived."))
        .with_problems(&[STORE, SESSION_READ, CLIENT_BODY, BODY_TRANSFER, &[kinds::DISK_FULL]]),
    Operation::new(Method::GET, "/copilotkit/threads/{thread}/messages", Requires(Verb::Read), "copilotMessages", "clients")
        .with_summary("The messages of a thread's newest 32 runs. An unknown thread has none.")
        .with_parameters(&[&[THREAD_PATH, AUDIENCE]])
        .with_responses(json!("CopilotMessages", "The messages, in order."))
        .with_problems(&[STORE]),
    Operation::new(Method::GET, "/copilotkit/threads/{thread}/events", Requires(Verb::Read), "copilotEvents", "clients")
        .with_summary("The AG-UI events of a thread's newest 32 runs, each as it stands. An unknown thread has none.")
        .with_parameters(&[&[THREAD_PATH, AUDIENCE]])
        .with_responses(json!("CopilotEvents", "The events, in order."))
        .with_problems(&[STORE]),
    Operation::new(Method::GET, "/copilotkit/threads/{thread}/state", Requires(Verb::Read), "copilotState", "clients")
        .with_summary("The application's state of a thread.")
        .with_parameters(&[&[THREAD_PATH, AUDIENCE]])
        .with_responses(json!("CopilotState", "The state."))
        .with_problems(&[STORE]),
    Operation::new(Method::POST, "/ai-sdk/{agent}", Requires(Verb::Control), "aiSdkSubmit", "clients")
        .with_summary("The endpoint of `useChat`: requests an agent's answer, once, or decides pending actions, and streams the run as the AI SDK's UI message stream.")
        .with_parameters(&[&[AGENT_PATH, AUDIENCE, VERSION]])
        .with_body(RequestBody {
            meaning: "The chat and the trigger.",
            is_required: true,
            content: &[(JSON, Content::Json("ChatWanted"))],
        })
        .with_responses(&[AI_SDK_RESPONSE])
        .with_problems(&[STORE, CLIENT_BODY, BODY_TRANSFER, DECISION, REQUEST_FAILS]),
    Operation::new(Method::GET, "/ai-sdk/{agent}", Requires(Verb::Read), "aiSdkChats", "clients")
        .with_summary("The chats of an agent, with the newest activity first. Archived ones are hidden.")
        .with_parameters(&[&[AGENT_PATH, LIMIT, SESSIONS_CURSOR, AUDIENCE, ACTIVATION]])
        .with_responses(json!("Chats", "A page of chats."))
        .with_problems(&[STORE]),
    Operation::new(Method::GET, "/ai-sdk/{agent}/{chat}/stream", STREAM_ACCESS, "aiSdkResume", "clients")
        .with_summary("The active run of a chat, from the start of its message; or the chunks from an index on.")
        .with_parameters(&[&[AGENT_PATH, CHAT_OR_STREAM, START_INDEX, AUDIENCE, VERSION, TICKET]])
        .with_responses(&[
            AI_SDK_RESPONSE,
            ResponseSpec { status: 204, meaning: "No run is active; the stored chat has every message.", content: &[] },
        ])
        .with_problems(&[STORE, COUNTED_STREAM]),
    Operation::new(Method::GET, "/ai-sdk/{agent}/{chat}", Requires(Verb::Read), "aiSdkChat", "clients")
        .with_summary("A stored chat: `messages` for `useChat`, and whether a run can be resumed.")
        .with_parameters(&[&[AGENT_PATH, CHAT, AUDIENCE, VERSION, ACTIVATION]])
        .with_responses(json!("ChatAtRest", "The chat."))
        .with_problems(&[STORE]),
    Operation::new(Method::POST, "/ai-sdk/{agent}/{chat}/stop", Requires(Verb::Control), "aiSdkStop", "clients")
        .with_summary("Requests a stop of a chat's active run. Disconnecting does not stop it.")
        .with_parameters(&[&[AGENT_PATH, CHAT, AUDIENCE]])
        .with_responses(json!("Stopped", "Whether a run was asked to stop."))
        .with_problems(&[STORE, STOP]),
    Operation::new(Method::GET, "/v1/webhooks", Requires(Verb::Admin), "listWebhooks", "webhooks")
        .with_summary("All webhooks, without their secrets. It needs a token for all sessions.")
        .with_responses(json!("Webhooks", "The webhooks.")),
    Operation::new(Method::POST, "/v1/webhooks", Requires(Verb::Admin), "makeWebhook", "webhooks")
        .with_summary("Makes a webhook by the Standard Webhooks specification. It needs a token for all sessions.")
        .with_body(RequestBody {
            meaning: "Where its messages go, and which.",
            is_required: true,
            content: &[(JSON, Content::Json("WebhookWanted"))],
        })
        .with_responses(&[ResponseSpec {
            status: 201,
            meaning: "The webhook; only this answer has its secrets.",
            content: &[(JSON, Content::Json("Webhook"))],
        }])
        .with_problems(&[STORE, OBJECT_BODY, &[kinds::BAD_MEMBER, kinds::TOO_MANY_WEBHOOKS], BODY_TRANSFER]),
    Operation::new(Method::DELETE, "/v1/webhooks/{webhook}", Requires(Verb::Admin), "removeWebhook", "webhooks")
        .with_summary("Removes a webhook, and the messages that wait for it.")
        .with_parameters(&[&[WEBHOOK]])
        .with_responses(&[ResponseSpec { status: 204, meaning: "The webhook is removed.", content: &[] }])
        .with_problems(&[STORE, &[kinds::NO_SUCH_WEBHOOK, kinds::WEBHOOK_CONFIGURED]]),
    Operation::new(Method::POST, "/v1/webhooks/{webhook}/test", Requires(Verb::Admin), "testWebhook", "webhooks")
        .with_summary("Sends a message of the type `test` now. If the receiver takes it, a webhook that was disabled by 410 is enabled again.")
        .with_parameters(&[&[WEBHOOK]])
        .with_responses(json!("WebhookTested", "What the receiver answered."))
        .with_problems(&[STORE, &[kinds::NO_SUCH_WEBHOOK]]),
    Operation::new(Method::POST, "/v1/webhooks/{webhook}/redeliver", Requires(Verb::Admin), "redeliver", "webhooks")
        .with_summary("Tries a delivery again, with the same message id.")
        .with_parameters(&[&[WEBHOOK]])
        .with_body(RequestBody {
            meaning: "The delivery.",
            is_required: true,
            content: &[(JSON, Content::Json("RedeliveryWanted"))],
        })
        .with_responses(&[ResponseSpec {
            status: 202,
            meaning: "The delivery, which is open again.",
            content: &[(JSON, Content::Json("Delivery"))],
        }])
        .with_problems(&[
            STORE,
            OBJECT_BODY,
            &[kinds::BAD_MEMBER, kinds::NO_SUCH_WEBHOOK, kinds::NO_SUCH_DELIVERY],
            BODY_TRANSFER,
        ]),
    Operation::new(Method::GET, "/v1/webhooks/{webhook}/deliveries", Requires(Verb::Admin), "listDeliveries", "webhooks")
        .with_summary("The deliveries of a webhook that wait, and the last that do not, newest first.")
        .with_parameters(&[&[WEBHOOK, LIMIT, PLACE_CURSOR]])
        .with_responses(json!("Deliveries", "A page of deliveries."))
        .with_problems(&[&[kinds::NO_SUCH_WEBHOOK]]),
    Operation::new(Method::GET, "/v1/push", Requires(Verb::Read), "getPush", "webhooks")
        .with_summary("The key that browsers subscribe with for Web Push, and the person's own subscriptions.")
        .with_responses(json!("Push", "The key, and the subscriptions."))
        .with_problems(&[&[kinds::NO_LEADER]]),
    Operation::new(Method::PUT, "/v1/push", Requires(Verb::Read), "subscribeDevice", "webhooks")
        .with_summary("Subscribes a device to messages about runs, or renews its subscription. It has the rights of the token.")
        .with_body(RequestBody {
            meaning: "What the browser says of its subscription, and what the person wants to hear of.",
            is_required: true,
            content: &[(JSON, Content::Json("PushSubscriptionWanted"))],
        })
        .with_responses(&[
            ResponseSpec {
                status: 200,
                meaning: "The subscription, which is renewed.",
                content: &[(JSON, Content::Json("PushSubscription"))],
            },
            ResponseSpec {
                status: 201,
                meaning: "The subscription, which is new.",
                content: &[(JSON, Content::Json("PushSubscription"))],
            },
        ])
        .with_problems(&[
            STORE,
            OBJECT_BODY,
            &[kinds::BAD_MEMBER, kinds::TOO_MANY_DEVICES, kinds::DISK_FULL],
            BODY_TRANSFER,
        ]),
    Operation::new(Method::DELETE, "/v1/push", Requires(Verb::Read), "unsubscribeDevice", "webhooks")
        .with_summary("Ends the subscription of a device.")
        .with_body(RequestBody {
            meaning: "The subscription's address.",
            is_required: true,
            content: &[(JSON, Content::Json("PushSubscriptionEnded"))],
        })
        .with_responses(&[ResponseSpec { status: 204, meaning: "The device gets no more messages.", content: &[] }])
        .with_problems(&[STORE, OBJECT_BODY, &[kinds::BAD_MEMBER, kinds::NO_SUCH_SUBSCRIPTION], BODY_TRANSFER]),
    Operation::new(Method::GET, "/v1/audit", Requires(Verb::Admin), "listAudit", "operations")
        .with_summary("Who decided, erased, held, settled, shared and configured, newest first. It needs a token for all sessions.")
        .with_parameters(&[&[LIMIT, PLACE_CURSOR]])
        .with_responses(json!("Audit", "A page of entries."))
        .with_problems(&[STORE, &[kinds::BAD_CURSOR]]),
    Operation::new(Method::GET, "/v1/audit/export", Requires(Verb::Admin), "exportAudit", "operations")
        .with_summary("All entries of the audit, one per line, oldest first.")
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "Entries, in order.",
            content: &[(LINES, Content::Each("AuditEntry"))],
        }])
        .with_problems(&[STORE]),
    Operation::new(Method::POST, "/v1/backup", Requires(Verb::Admin), "makeBackup", "operations")
        .with_summary("The files of the store after one commit, without those that the client has. `proscenium backup` reads it. It needs a token for all sessions.")
        .with_body(RequestBody {
            meaning: "The files that the client has, and how fast it reads.",
            is_required: true,
            content: &[(JSON, Content::Json("BackupWanted"))],
        })
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "A line of JSON, the plan; the content of each file of the plan with `sent`, in order; and the line `{\"end\":true}`.",
            content: &[("application/octet-stream", Content::Bytes)],
        }])
        .with_problems(&[
            STORE,
            OBJECT_BODY,
            &[kinds::BAD_QUERY, kinds::NO_FILES, kinds::TOO_MANY_BACKUPS, kinds::DISK_FULL],
            BODY_TRANSFER,
        ]),
    Operation::new(Method::GET, "/healthz", Public, "getHealth", "operations")
        .with_summary("Whether the process answers.")
        .with_responses(json!("Health", "The process answers.")),
    Operation::new(Method::GET, "/readyz", Public, "getReadiness", "operations")
        .with_summary("Whether the server takes facts and readers.")
        .with_parameters(&[&[READY_FOR]])
        .with_responses(json!("Ready", "The server is ready."))
        .with_problems(&[&[kinds::STOPPING, kinds::STORE_HAS_FAILED, kinds::DISK_NEARLY_FULL, kinds::NOT_FOLLOWING]]),
    Operation::new(Method::GET, "/v1/cluster", Requires(Verb::Admin), "getCluster", "operations")
        .with_summary("The nodes of the cluster: which one leads, and how far each has come.")
        .with_responses(json!("Cluster", "The nodes."))
        .with_problems(&[&[kinds::NO_CLUSTER]]),
    Operation::new(Method::GET, "/metrics", METRICS_ACCESS, "getMetrics", "operations")
        .with_summary("Metrics for Prometheus.")
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "Metrics in the Prometheus text format.",
            content: &[("text/plain", Content::Text)],
        }])
        .with_problems(&[STORE]),
    Operation::new(Method::GET, "/openapi.json", Public, "getDescription", "contract")
        .with_summary("This description.")
        .with_responses(&[ResponseSpec { status: 200, meaning: "OpenAPI 3.1.", content: &[(JSON, Content::Json("Description"))] }]),
    Operation::new(Method::GET, "/schema/{*file}", Public, "getSchema", "contract")
        .with_summary("A JSON Schema of the wire format, an example, or this description.")
        .with_parameters(&[&[SCHEMA]])
        .with_responses(&[ResponseSpec {
            status: 200,
            meaning: "The document.",
            content: &[("application/schema+json", Content::Json("Any")), (JSON, Content::Json("Any"))],
        }])
        .with_problems(&[&[kinds::NO_SUCH_SCHEMA]]),
    Operation::new(Method::GET, "/", Public, "getPage", "page")
        .with_summary("The page that shows runs.")
        .with_responses(&[ResponseSpec { status: 200, meaning: "The page.", content: &[("text/html", Content::Text)] }, NOT_MODIFIED]),
    Operation::new(Method::GET, "/push-worker.js", Public, "getPushWorker", "page")
        .with_summary("The service worker of the page, which shows what the server pushes.")
        .with_responses(&[
            ResponseSpec { status: 200, meaning: "The script.", content: &[("text/javascript", Content::Text)] },
            NOT_MODIFIED,
        ]),
    Operation::new(Method::GET, "/embed.js", Public, "getElements", "page")
        .with_summary("The custom elements for other pages: decisions, the inbox, conversations and traces.")
        .with_responses(&[
            ResponseSpec { status: 200, meaning: "The script.", content: &[("text/javascript", Content::Text)] },
            NOT_MODIFIED,
        ]),
    Operation::new(Method::GET, "/assets/{*file}", Public, "getAsset", "page")
        .with_summary("A script, a style or another file of the page.")
        .with_parameters(&[&[ASSET]])
        .with_responses(&[
            ResponseSpec {
                status: 200,
                meaning: "The file.",
                content: &[
                    ("text/javascript", Content::Text),
                    ("text/css", Content::Text),
                    ("text/html", Content::Text),
                    ("text/plain", Content::Text),
                ],
            },
            NOT_MODIFIED,
        ])
        .with_problems(&[&[kinds::NO_SUCH_ASSET]]),
    Operation::new(Method::GET, "/docs", Public, "getDocumentationStart", "page")
        .with_summary("The first page of the documentation, without the slash.")
        .with_responses(DOCUMENTATION),
    Operation::new(Method::GET, "/docs/", Public, "getDocumentation", "page")
        .with_summary("The first page of the documentation of this version.")
        .with_responses(DOCUMENTATION),
    Operation::new(Method::GET, "/docs/{*page}", Public, "getDocumentationPage", "page")
        .with_summary("A page of the documentation of this version, as HTML or as Markdown, or one of its pictures.")
        .with_parameters(&[&[DOCUMENTATION_PAGE]])
        .with_responses(DOCUMENTATION_FILE)
        .with_problems(&[&[kinds::NO_SUCH_PAGE]]),
    Operation::new(Method::GET, "/llms.txt", Public, "getLlmsText", "page")
        .with_summary("What the documentation has, for programs: links to its pages as Markdown.")
        .with_responses(&[ResponseSpec { status: 200, meaning: "The list.", content: &[("text/plain", Content::Text)] }, NOT_MODIFIED]),
];

const DOCUMENTATION: &[ResponseSpec] = &[
    ResponseSpec {
        status: 200,
        meaning: "The page.",
        content: &[("text/html", Content::Text), ("text/markdown", Content::Text)],
    },
    NOT_MODIFIED,
];

const DOCUMENTATION_FILE: &[ResponseSpec] = &[
    ResponseSpec {
        status: 200,
        meaning: "The page, or the picture.",
        content: &[
            ("text/html", Content::Text),
            ("text/markdown", Content::Text),
            ("image/png", Content::Bytes),
            ("image/svg+xml", Content::Text),
        ],
    },
    NOT_MODIFIED,
];

/// Callbacks for tests: responses, and query members read.
pub struct Observer {
    /// Called with each response of an operation, and the code of its problem, if any.
    pub on_response: fn(&'static Operation, StatusCode, Option<&'static str>),
    /// Called with each query member read, and the request's path.
    pub on_query_read: fn(&str, &str),
}

/// The observer of a test. Only debug builds call it.
pub static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Debug builds: panics at a response that the route's row does not describe.
pub(in crate::serve) fn assert_described(method: &str, route: &str, status: StatusCode, code: Option<&'static str>) {
    let of = |method: &str| OPERATIONS.iter().find(|known| known.path == route && known.method.as_str() == method);
    // A HEAD without a row of its own is answered as a GET.
    if cfg!(debug_assertions)
        && let Some(operation) = of(method).or_else(|| of("GET").filter(|_| method == "HEAD"))
    {
        assert_row(operation, status, code);
    }
}

/// Debug builds: panics when code reads a query member that no row of this path describes.
#[cfg(debug_assertions)]
pub(in crate::serve) fn assert_query_described(path: &str, member: &str) {
    // A path without an operation has no row to violate.
    let is_described = at(path).next().is_none() || at(path).any(|operation| operation.reads_query(member));
    assert!(
        is_described,
        "{path} reads the query member {member}, which its row in src/serve/contract/operations.rs does not describe"
    );
    if let Some(watch) = OBSERVER.get() {
        (watch.on_query_read)(path, member);
    }
}

/// Debug builds: panics at a problem that no group of WebSocket messages lists.
pub(in crate::serve) fn assert_message_described(status: StatusCode, code: &str) {
    let is_described = |kind: &ProblemKind| kind.code == code && kind.status == status.as_u16();
    debug_assert!(
        SOCKET_PROBLEMS.iter().copied().flatten().any(is_described),
        "a message is answered with {status} {code}, which its group in src/serve/contract/operations.rs does not list"
    );
}

/// The operations of a path.
pub fn at(path: &str) -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().filter(move |operation| operation.matches_path(path))
}

fn assert_row(operation: &'static Operation, status: StatusCode, code: Option<&'static str>) {
    let is_described = match code {
        Some(code) => operation.problems().iter().any(|kind| kind.code == code && kind.status == status.as_u16()),
        None => operation.responses.iter().any(|answer| answer.status == status.as_u16()),
    };
    let (method, path, code_shown) = (operation.method.as_str(), operation.path, code.unwrap_or_default());
    assert!(
        is_described,
        "{method} {path} answers {status} {code_shown}, which its row in src/serve/contract/operations.rs does not describe"
    );
    if let Some(watch) = OBSERVER.get() {
        (watch.on_response)(operation, status, code);
    }
}

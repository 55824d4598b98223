//! Every address: its access rule, its parameters and its responses.
//!
//! One table, [`OPERATIONS`], generates the router and `/openapi.json`; an address without a row is not served. A debug
//! build (`debug_assertions`, as in every test) also stops at a response that its row does not describe, and at a query
//! member that is read but not described. So every test is also a test of this table.

use super::access_rule::AccessRule::{self, AnyToken, InBand, Public, Requires};
use super::kinds::{self, ProblemKind};
use super::members::{
    ACTIVATION, AFTER, AGENT, AGENT_PATH, ASSET, AT, AUDIENCE, BEFORE, BLOB, CHAT, CHILDREN, CONTROL_PATH, CURSOR, EVENTS_AFTER,
    EVENTS_BEFORE, FORMAT, FRAMES, LAST_EVENT_ID, LAST_EVENT_ID_HEADER, LEASE, LIMIT, MAX, MESSAGES, NEEDS_ACTION, OFFSET,
    PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ, PROTOCOL_VERSION, Parameter, ParameterLocation, RANGE, REPLAY, RUN, RUN_ID_HEADER,
    RUN_TO_JOIN, RUNS, SCHEMA, SEARCH, SESSION, SESSION_AT, SESSION_EVENTS_AFTER, SESSION_EVENTS_BEFORE, SOURCE, STATUS,
    SUBAGENTS, SURFACE, SURFACES, THREAD, THREAD_PATH, TICKET, TYPE, UNTIL, VERSION, WAIT, WINDOW_CURSOR, WINDOW_LIMIT, ids,
};
use crate::auth::rights::Verb;
use http::{Method, StatusCode};
use std::sync::OnceLock;

/// A method of an address.
pub struct Operation {
    pub method: Method,
    /// The access rule, checked before the handler runs.
    pub access_rule: AccessRule,
    /// The path as in axum and `OpenAPI`. A `*` before a name allows slashes in it.
    pub path: &'static str,
    /// The operation's id in generated clients.
    pub id: &'static str,
    /// Its tag in the description.
    pub tag: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Its parameters in groups, path parameters first.
    pub parameters: &'static [&'static [Parameter]],
    /// Whether it also accepts ids for facts that lack them.
    pub accepts_ids: bool,
    pub body: Option<RequestBody>,
    pub responses: &'static [ResponseSpec],
    /// Its problems in groups, besides those of its parameters and of every address.
    pub problems: &'static [&'static [ProblemKind]],
}

/// A request body, by media type.
pub struct RequestBody {
    pub meaning: &'static str,
    /// Whether a request without a body is refused.
    pub is_required: bool,
    pub content: &'static [(&'static str, Content)],
}

/// A response that is not a problem.
pub struct ResponseSpec {
    pub status: u16,
    pub meaning: &'static str,
    pub content: &'static [(&'static str, Content)],
}

/// The content of a body.
#[derive(Clone, Copy)]
pub enum Content {
    /// JSON of this shape in [`SHAPES`](super::shapes::SHAPES).
    Json(&'static str),
    /// Text whose lines, messages or frames are JSON of this shape.
    Each(&'static str),
    /// Any text.
    Text,
    /// Any bytes.
    Bytes,
}

/// Problems of every address: a foreign origin, an unknown host, server errors, and those of a node of a cluster.
const ANY_ADDRESS: &[ProblemKind] =
    &[kinds::FOREIGN_ORIGIN, kinds::UNKNOWN_HOST, kinds::INTERNAL_ERROR, kinds::NO_LEADER, kinds::BEHIND];
/// Problems of every address that is not public.
const ACCESS_PROBLEMS: &[ProblemKind] = &[kinds::UNAUTHENTICATED, kinds::FORBIDDEN];
/// Problems of an address that keeps a connection open.
const OPENS_CONNECTION: &[ProblemKind] = &[kinds::TOO_MANY_CONNECTIONS_OF_TOKEN];
/// Problems of every access to the store.
const STORE: &[ProblemKind] = &[kinds::STORE_FAILED, kinds::STORED_STATE_UNREADABLE];
const RUN_READ: &[ProblemKind] = &[kinds::NO_SUCH_RUN];
const SESSION_READ: &[ProblemKind] = &[kinds::NO_SUCH_SESSION];
/// Problems of facts, over any transport.
const FACTS: &[ProblemKind] = &[
    kinds::NOT_JSON,
    kinds::BODY_TOO_LARGE,
    kinds::FACT_TOO_LARGE,
    kinds::TOO_MANY_FACTS,
    kinds::ENVELOPES_TOO_LARGE,
    kinds::TOO_DEEP,
    kinds::NOT_AN_OBJECT,
    kinds::NO_TYPE,
    kinds::BAD_MEMBER,
    kinds::PRODUCER_GAP,
    kinds::PRODUCER_FENCED,
    kinds::TOO_MANY_PRODUCERS,
    kinds::TOO_MANY_SUBJECTS,
    kinds::PUBLISH_RATE,
    kinds::BUSY,
    kinds::DISK_FULL,
    kinds::TOO_MANY_RUNS,
];
/// Problems of receiving a body.
const BODY_TRANSFER: &[ProblemKind] = &[kinds::BODY_CUT_OFF, kinds::BODY_TOO_SLOW];
/// Problems of receiving facts, which may be NDJSON.
const LINES_TRANSFER: &[ProblemKind] = &[
    kinds::UNSUPPORTED_MEDIA_TYPE,
    kinds::BAD_LINE,
    kinds::BODY_CUT_OFF,
    kinds::BODY_TOO_SLOW,
    kinds::BODY_SILENT,
    kinds::STOPPING,
    kinds::TOO_MANY_CONNECTIONS_OF_TOKEN,
];
/// Problems of a body that is one object.
const OBJECT: &[ProblemKind] =
    &[kinds::UNSUPPORTED_MEDIA_TYPE, kinds::NOT_JSON, kinds::NOT_AN_OBJECT, kinds::TOO_DEEP, kinds::CONTROL_TOO_LARGE];
/// Problems of a control.
const CONTROL: &[ProblemKind] =
    &[kinds::BAD_CONTROL, kinds::ACTION_NOT_PENDING, kinds::CONTROL_CONFLICT, kinds::TOO_MANY_CONTROLS, kinds::DISK_FULL];
/// Problems of an existing client's body.
const CLIENT_BODY: &[ProblemKind] = &[
    kinds::UNSUPPORTED_MEDIA_TYPE,
    kinds::NOT_JSON,
    kinds::NOT_AN_OBJECT,
    kinds::TOO_DEEP,
    kinds::BODY_TOO_LARGE,
    kinds::BAD_MEMBER,
];
/// Problems of an existing client's request. The last two are sent in its stream.
const REQUEST_FAILS: &[ProblemKind] =
    &[kinds::CONTROL_TOO_LARGE, kinds::TOO_MANY_CONTROLS, kinds::DISK_FULL, kinds::CONTROL_REFUSED, kinds::CONTROL_EXPIRED];
/// Problems of AG-UI, whose clients name runs and interrupts.
const WRONG_NAME: &[ProblemKind] = &[kinds::ACTION_NOT_PENDING, kinds::RUN_OF_ANOTHER_THREAD];
/// Problems of a stop request.
const STOP: &[ProblemKind] = &[kinds::TOO_MANY_CONTROLS, kinds::DISK_FULL];
/// Problems of an owner's answer to a control.
const LEASE_ANSWER: &[ProblemKind] = &[kinds::BAD_MEMBER, kinds::LEASE_LOST];
/// Problems of a WebSocket message, besides [`FACTS`], [`STORE`] and those of its members.
const MESSAGE: &[ProblemKind] = &[
    kinds::NO_OBJECT_MESSAGE,
    kinds::MISSING_MEMBER,
    kinds::UNKNOWN_OP,
    kinds::ID_IN_USE,
    kinds::TOO_MANY_SUBSCRIPTIONS,
    kinds::UNSUPPORTED_MEDIA_TYPE,
    kinds::BAD_ID,
    kinds::BAD_QUERY,
    kinds::BAD_AUDIENCE,
    kinds::BAD_CURSOR,
    kinds::BAD_PRODUCER,
    kinds::UNKNOWN_SOURCE,
    kinds::BAD_MEMBER,
    kinds::LEASE_LOST,
    kinds::NO_LEADER,
    kinds::BEHIND,
    kinds::STOPPING,
    kinds::TOO_MANY_CONNECTIONS_OF_TOKEN,
];
/// Problems of an unknown path or method.
pub const NO_ADDRESS_PROBLEMS: &[ProblemKind] = &[kinds::NO_SUCH_ADDRESS, kinds::METHOD_NOT_ALLOWED];
/// Problems before a request is read.
pub const CONNECTION_PROBLEMS: &[ProblemKind] = &[
    kinds::TOO_MANY_CONNECTIONS,
    kinds::TOO_MANY_CONNECTIONS_OF_CLIENT,
    kinds::TLS_REQUIRED,
    kinds::STOPPING,
    kinds::BAD_HEAD,
    kinds::HEAD_TOO_LARGE,
    kinds::UNSUPPORTED_TRANSFER_CODING,
];
/// All problems of a WebSocket message.
pub const SOCKET_PROBLEMS: &[&[ProblemKind]] = &[FACTS, STORE, MESSAGE, ACCESS_PROBLEMS];

/// The parameters that filter a log.
const SELECTION: &[Parameter] = &[AUDIENCE, SURFACES, SURFACE, TYPE, AGENT];
/// The parameters of a stream.
const STREAM: &[Parameter] = &[FRAMES, REPLAY, AFTER, LAST_EVENT_ID, LAST_EVENT_ID_HEADER, FORMAT, VERSION, TICKET];
const PRODUCER: &[Parameter] = &[SOURCE, PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ];

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

const FACTS_BODY: Option<RequestBody> = Some(RequestBody {
    meaning: "A fact or an array of facts, accepted as a whole or not at all; or a fact per line, accepted as they arrive, for as long as the run lasts.",
    is_required: true,
    content: &[(JSON, Content::Json("Facts")), (LINES, Content::Each("Fact"))],
});
const CONTROL_BODY: Option<RequestBody> = Some(RequestBody {
    meaning: "The control and its target.",
    is_required: true,
    content: &[(JSON, Content::Json("ControlWanted"))],
});
const ANSWER_BODY: Option<RequestBody> = Some(RequestBody {
    meaning: "The lease, and optionally a reason.",
    is_required: true,
    content: &[(JSON, Content::Json("ControlAnswer"))],
});
const RECEIPT: &[ResponseSpec] =
    &[ResponseSpec { status: 200, meaning: "The facts are durable.", content: &[(JSON, Content::Json("Receipt"))] }];
const FRAMES_RESPONSE: ResponseSpec = ResponseSpec {
    status: 200,
    meaning: "Frames, until the log ends. Each `data:` is one frame; its `id:` is the cursor.",
    content: &[("text/event-stream", Content::Each("Frame"))],
};
const RUN_FRAMES_RESPONSES: &[ResponseSpec] = &[
    FRAMES_RESPONSE,
    ResponseSpec {
        status: 204,
        meaning: "The reader has received everything up to the end; it need not reconnect.",
        content: &[],
    },
];

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
const INPUT_BODY: Option<RequestBody> = Some(RequestBody {
    meaning: "The run to start or resume.",
    is_required: true,
    content: &[(JSON, Content::Json("RunAgentInput"))],
});

macro_rules! json {
    ($shape:literal, $meaning:literal) => {
        &[ResponseSpec { status: 200, meaning: $meaning, content: &[(JSON, Content::Json($shape))] }]
    };
}

/// The access rule for publishing facts.
pub const PUBLISH_ACCESS: AccessRule = Requires(Verb::Publish);
/// The access rule for streams.
pub const STREAM_ACCESS: AccessRule = AccessRule::ReadStream;
/// The access rule for metrics.
pub const METRICS_ACCESS: AccessRule = Requires(Verb::Admin);

/// The table. Rows of one path are adjacent.
pub static OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::POST,
        path: "/v1/runs/{run}/facts",
        access_rule: PUBLISH_ACCESS,
        id: "publishToRun",
        tag: "facts",
        summary: "Appends facts to a run's log. The answer comes once they are durable.",
        parameters: &[&[RUN], PRODUCER],
        accepts_ids: true,
        body: FACTS_BODY,
        responses: RECEIPT,
        problems: &[STORE, FACTS, LINES_TRANSFER, &[kinds::RUN_ERASED]],
    },
    Operation {
        method: Method::POST,
        path: "/v1/sessions/{session}/facts",
        access_rule: PUBLISH_ACCESS,
        id: "publishToSession",
        tag: "facts",
        summary: "Appends facts that belong to no run to the session's own log. The answer comes once they are durable.",
        parameters: &[&[SESSION], PRODUCER],
        accepts_ids: true,
        body: FACTS_BODY,
        responses: RECEIPT,
        problems: &[STORE, FACTS, LINES_TRANSFER],
    },
    Operation {
        method: Method::POST,
        path: "/v1/runs/{run}/settle",
        access_rule: Requires(Verb::Control),
        id: "settleRun",
        tag: "runs",
        summary: "Ends a run whose runtime is gone, even a waiting run. A run that has ended stays unchanged.",
        parameters: &[&[RUN]],
        accepts_ids: false,
        body: None,
        responses: json!("Settled", "The run's state, and whether this request ended it."),
        problems: &[STORE, RUN_READ, &[kinds::DISK_FULL]],
    },
    Operation {
        method: Method::POST,
        path: "/v1/runs/{run}/controls",
        access_rule: Requires(Verb::Control),
        id: "controlRun",
        tag: "controls",
        summary: "Submits a control to the owner of a run, or of a part of it. Repeating the same `controlId` submits it once.",
        parameters: &[&[RUN, AUDIENCE]],
        accepts_ids: false,
        body: CONTROL_BODY,
        responses: &[ResponseSpec {
            status: 202,
            meaning: "The control is recorded and queued for its owner. It changes nothing by itself.",
            content: &[(JSON, Content::Json("ControlQueued"))],
        }],
        problems: &[STORE, RUN_READ, OBJECT, CONTROL, &[kinds::RUN_ENDED]],
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/controls",
        access_rule: Requires(Verb::Read),
        id: "listRunControls",
        tag: "controls",
        summary: "The controls of a run in submission order, with their outcome.",
        parameters: &[&[RUN, LIMIT, CURSOR, AUDIENCE, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Controls", "A page of controls."),
        problems: &[STORE, RUN_READ],
    },
    Operation {
        method: Method::POST,
        path: "/v1/sessions/{session}/controls",
        access_rule: Requires(Verb::Control),
        id: "controlSession",
        tag: "controls",
        summary: "Submits a control to the owner of a session, or of a part of it. Repeating the same `controlId` submits it once.",
        parameters: &[&[SESSION, AUDIENCE]],
        accepts_ids: false,
        body: CONTROL_BODY,
        responses: &[ResponseSpec {
            status: 202,
            meaning: "The control is recorded and queued for its owner. It changes nothing by itself.",
            content: &[(JSON, Content::Json("ControlQueued"))],
        }],
        problems: &[STORE, SESSION_READ, OBJECT, CONTROL],
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/controls",
        access_rule: Requires(Verb::Read),
        id: "listSessionControls",
        tag: "controls",
        summary: "The controls of a session in submission order, with their outcome.",
        parameters: &[&[SESSION, LIMIT, CURSOR, AUDIENCE, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Controls", "A page of controls."),
        problems: &[STORE, SESSION_READ],
    },
    Operation {
        method: Method::POST,
        path: "/v1/agents/{agent}/controls/claim",
        access_rule: Requires(Verb::Publish),
        id: "claimControls",
        tag: "controls",
        summary: "Leases controls from an agent's queue, waiting for one if requested.",
        parameters: &[&[AGENT_PATH, WAIT, MAX, LEASE]],
        accepts_ids: false,
        body: None,
        responses: json!("Claimed", "The claimed controls; empty if none came in time."),
        problems: &[STORE, OPENS_CONNECTION],
    },
    Operation {
        method: Method::POST,
        path: "/v1/controls/{control}/ack",
        access_rule: Requires(Verb::Publish),
        id: "ackControl",
        tag: "controls",
        summary: "Accepts a claimed control.",
        parameters: &[&[CONTROL_PATH]],
        accepts_ids: false,
        body: ANSWER_BODY,
        responses: json!("ControlAnswered", "The control's outcome."),
        problems: &[STORE, OBJECT, LEASE_ANSWER],
    },
    Operation {
        method: Method::POST,
        path: "/v1/controls/{control}/nack",
        access_rule: Requires(Verb::Publish),
        id: "nackControl",
        tag: "controls",
        summary: "Refuses a claimed control, or returns it to the queue.",
        parameters: &[&[CONTROL_PATH]],
        accepts_ids: false,
        body: ANSWER_BODY,
        responses: json!("ControlAnswered", "The control's outcome."),
        problems: &[STORE, OBJECT, LEASE_ANSWER],
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/stream",
        access_rule: STREAM_ACCESS,
        id: "streamRun",
        tag: "streams",
        summary: "Frames of a run as server-sent events, from the reader's position on. The stream of a run that does not exist waits for it.",
        parameters: &[&[RUN, PROTOCOL_VERSION, SUBAGENTS, UNTIL], STREAM, SELECTION],
        accepts_ids: false,
        body: None,
        responses: RUN_FRAMES_RESPONSES,
        problems: &[STORE, OPENS_CONNECTION],
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions",
        access_rule: Requires(Verb::Read),
        id: "listSessions",
        tag: "sessions",
        summary: "Sessions, newest first.",
        parameters: &[&[LIMIT, CURSOR, STATUS, SEARCH, NEEDS_ACTION, AUDIENCE, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Sessions", "A page of sessions."),
        problems: &[STORE],
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}",
        access_rule: Requires(Verb::Read),
        id: "getSession",
        tag: "sessions",
        summary: "A session's shell and what needs attention, from its newest 32 runs and up to 64 runs with pending actions.",
        parameters: &[&[SESSION, AUDIENCE, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Session", "The session."),
        problems: &[STORE, SESSION_READ],
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/window",
        access_rule: Requires(Verb::Read),
        id: "getWindow",
        tag: "sessions",
        summary: "A session's recent messages. The cursor leads to earlier ones.",
        parameters: &[&[SESSION, MESSAGES, WINDOW_CURSOR, AUDIENCE, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Window", "Messages, in order."),
        problems: &[STORE, SESSION_READ],
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/timeline",
        access_rule: Requires(Verb::Read),
        id: "getTimeline",
        tag: "sessions",
        summary: "The process details behind a session's messages, newest window first.",
        parameters: &[&[SESSION, WINDOW_LIMIT, WINDOW_CURSOR, AUDIENCE, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Timeline", "Activities, in order."),
        problems: &[STORE, SESSION_READ],
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/events",
        access_rule: Requires(Verb::Read),
        id: "getSessionEvents",
        tag: "sessions",
        summary: "The envelopes of all logs of a session in commit order: with only `before`, the newest before it; else forward from `after`.",
        parameters: &[&[SESSION, SESSION_EVENTS_AFTER, SESSION_EVENTS_BEFORE, LIMIT], SELECTION, &[ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("SessionEvents", "A page of envelopes."),
        problems: &[STORE, SESSION_READ, &[kinds::EPOCH_CHANGED, kinds::SESSION_TOO_LARGE]],
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/activities",
        access_rule: Requires(Verb::Read),
        id: "getSessionActivities",
        tag: "sessions",
        summary: "The activities of all logs of a session, now or at any position in commit order.",
        parameters: &[&[SESSION, SESSION_AT, CURSOR], SELECTION, &[ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("SessionActivities", "Activities, by log in creation order, then in order of appearance."),
        problems: &[STORE, SESSION_READ, &[kinds::EPOCH_CHANGED]],
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/stream",
        access_rule: STREAM_ACCESS,
        id: "streamSession",
        tag: "streams",
        summary: "Frames of all logs of a session, including those of later runs.",
        parameters: &[&[SESSION, CHILDREN], STREAM, SELECTION],
        accepts_ids: false,
        body: None,
        responses: &[FRAMES_RESPONSE],
        problems: &[STORE, OPENS_CONNECTION],
    },
    Operation {
        method: Method::GET,
        path: "/v1/stream",
        access_rule: STREAM_ACCESS,
        id: "streamRuns",
        tag: "streams",
        summary: "Frames of several runs on one connection.",
        parameters: &[&[RUNS], STREAM, SELECTION],
        accepts_ids: false,
        body: None,
        responses: &[FRAMES_RESPONSE],
        problems: &[STORE, OPENS_CONNECTION, &[kinds::BAD_ID]],
    },
    Operation {
        method: Method::GET,
        path: "/v1/ws",
        access_rule: InBand,
        id: "connect",
        tag: "streams",
        summary: "Opens a WebSocket (RFC 6455, HTTP/1.1) for many subscriptions and publishes. Messages are JSON objects as text; `docs/src/reference/websocket.md` describes them.",
        parameters: &[&[TICKET]],
        accepts_ids: false,
        body: None,
        responses: &[ResponseSpec { status: 101, meaning: "The connection is now a WebSocket.", content: &[] }],
        problems: &[OPENS_CONNECTION, &[kinds::UPGRADE_REQUIRED, kinds::BAD_SUBPROTOCOL, kinds::UNAUTHENTICATED]],
    },
    Operation {
        method: Method::POST,
        path: "/v1/tickets",
        access_rule: AnyToken,
        id: "makeTicket",
        tag: "access",
        summary: "Issues a ticket for clients that cannot send headers: they send `?ticket=` instead.",
        parameters: &[],
        accepts_ids: false,
        body: Some(RequestBody {
            meaning: "The ticket's purpose.",
            is_required: true,
            content: &[(JSON, Content::Json("TicketWanted"))],
        }),
        responses: json!("Ticket", "The ticket and its expiry."),
        problems: &[
            STORE,
            &[kinds::NOT_JSON, kinds::BAD_QUERY, kinds::BAD_ID, kinds::BODY_TOO_LARGE, kinds::TOO_MANY_TICKETS],
            BODY_TRANSFER,
        ],
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs",
        access_rule: Requires(Verb::Read),
        id: "listRuns",
        tag: "runs",
        summary: "Runs, newest first.",
        parameters: &[&[LIMIT, CURSOR, AUDIENCE, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Runs", "A page of runs."),
        problems: &[STORE],
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}",
        access_rule: Requires(Verb::Read),
        id: "getRun",
        tag: "runs",
        summary: "A run's state.",
        parameters: &[&[RUN, AUDIENCE, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Run", "The run."),
        problems: &[STORE, RUN_READ],
    },
    Operation {
        method: Method::DELETE,
        path: "/v1/runs/{run}",
        access_rule: Requires(Verb::Admin),
        id: "eraseRun",
        tag: "runs",
        summary: "Erases a run permanently: its log, its offloaded bodies, its checkpoints.",
        parameters: &[&[RUN]],
        accepts_ids: false,
        body: None,
        responses: &[ResponseSpec { status: 204, meaning: "The run is erased, and a crash does not restore it.", content: &[] }],
        problems: &[STORE, RUN_READ],
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/events",
        access_rule: Requires(Verb::Read),
        id: "getEvents",
        tag: "runs",
        summary: "A run's envelopes by page, always in order: with only `before`, the newest before it; else forward from `after`.",
        parameters: &[&[RUN, EVENTS_AFTER, EVENTS_BEFORE, LIMIT], SELECTION, &[ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Events", "A page of envelopes."),
        problems: &[STORE, RUN_READ, &[kinds::EPOCH_CHANGED]],
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/activities",
        access_rule: Requires(Verb::Read),
        id: "getActivities",
        tag: "runs",
        summary: "A run's activities, now or at any sequence.",
        parameters: &[&[RUN, AT], SELECTION, &[ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("Activities", "Activities, in order of appearance."),
        problems: &[STORE, RUN_READ],
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/export",
        access_rule: Requires(Verb::Read),
        id: "exportRun",
        tag: "runs",
        summary: "All of a run's envelopes, one per line, as `proscenium import` reads them.",
        parameters: &[&[RUN], SELECTION],
        accepts_ids: false,
        body: None,
        responses: &[ResponseSpec {
            status: 200,
            meaning: "Envelopes, in order.",
            content: &[(LINES, Content::Each("AgentUiEvent"))],
        }],
        problems: &[STORE, RUN_READ],
    },
    Operation {
        method: Method::GET,
        path: "/v1/blobs/{blob}",
        access_rule: Requires(Verb::Read),
        id: "getBlob",
        tag: "runs",
        summary: "An offloaded body, or a range of it.",
        parameters: &[&[BLOB, AUDIENCE, RANGE]],
        accepts_ids: false,
        body: None,
        responses: &[
            ResponseSpec { status: 200, meaning: "The whole body.", content: &[("*/*", Content::Bytes)] },
            ResponseSpec { status: 206, meaning: "The requested range.", content: &[("*/*", Content::Bytes)] },
        ],
        problems: &[STORE, &[kinds::NO_SUCH_BLOB, kinds::BAD_RANGE]],
    },
    Operation {
        method: Method::POST,
        path: "/ag-ui/{agent}",
        access_rule: Requires(Verb::Control),
        id: "agUiRun",
        tag: "clients",
        summary: "Requests a run of an agent and streams it as AG-UI. A known `runId` is attached to and never requested again; `resume` answers the interrupts of a run.",
        parameters: &[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER, RUN_ID_HEADER]],
        accepts_ids: false,
        body: INPUT_BODY,
        responses: AG_UI_RESPONSE,
        problems: &[STORE, CLIENT_BODY, BODY_TRANSFER, WRONG_NAME, REQUEST_FAILS],
    },
    Operation {
        method: Method::GET,
        path: "/ag-ui/{agent}",
        access_rule: STREAM_ACCESS,
        id: "agUiGet",
        tag: "clients",
        summary: "A stored thread, or, with `runId`, that run as a live AG-UI stream, for `TanStack` AI. An unknown thread is empty.",
        parameters: &[
            &[AGENT_PATH, THREAD, RUN_TO_JOIN, OFFSET, BEFORE, LIMIT, AUDIENCE, SUBAGENTS, ACTIVATION],
            &[LAST_EVENT_ID, LAST_EVENT_ID_HEADER, TICKET],
        ],
        accepts_ids: false,
        body: None,
        responses: &[ResponseSpec {
            status: 200,
            meaning: "The thread; or events, with `id:` before `data:`.",
            content: &[(JSON, Content::Json("ThreadAtRest")), ("text/event-stream", Content::Each("AgUiEvent"))],
        }],
        problems: &[STORE, &[kinds::BAD_QUERY]],
    },
    Operation {
        method: Method::GET,
        path: "/copilotkit/info",
        access_rule: Requires(Verb::Read),
        id: "copilotInfo",
        tag: "clients",
        summary: "The agents, which CopilotKit asks its runtime for first.",
        parameters: &[],
        accepts_ids: false,
        body: None,
        responses: json!("CopilotInfo", "The agents."),
        problems: &[STORE],
    },
    Operation {
        method: Method::POST,
        path: "/copilotkit/agent/{agent}/run",
        access_rule: Requires(Verb::Control),
        id: "copilotRun",
        tag: "clients",
        summary: "As `POST /ag-ui/{agent}`, for CopilotKit.",
        parameters: &[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]],
        accepts_ids: false,
        body: INPUT_BODY,
        responses: AG_UI_RESPONSE,
        problems: &[STORE, CLIENT_BODY, BODY_TRANSFER, WRONG_NAME, REQUEST_FAILS],
    },
    Operation {
        method: Method::POST,
        path: "/copilotkit/agent/{agent}/connect",
        access_rule: Requires(Verb::Read),
        id: "copilotConnect",
        tag: "clients",
        summary: "Shows a thread's current state and continues with its active run. An unknown thread has no events.",
        parameters: &[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]],
        accepts_ids: false,
        body: INPUT_BODY,
        responses: AG_UI_RESPONSE,
        problems: &[STORE, CLIENT_BODY, BODY_TRANSFER],
    },
    Operation {
        method: Method::POST,
        path: "/copilotkit/agent/{agent}/stop/{thread}",
        access_rule: Requires(Verb::Control),
        id: "copilotStop",
        tag: "clients",
        summary: "Requests a stop of a thread's active run.",
        parameters: &[&[AGENT_PATH, THREAD_PATH, AUDIENCE]],
        accepts_ids: false,
        body: Some(RequestBody {
            meaning: "The run to stop.",
            is_required: false,
            content: &[(JSON, Content::Json("StopWanted"))],
        }),
        responses: json!("Stopped", "Whether a run was asked to stop."),
        problems: &[STORE, CLIENT_BODY, BODY_TRANSFER, STOP],
    },
    Operation {
        method: Method::POST,
        path: "/copilotkit",
        access_rule: AnyToken,
        id: "copilotCall",
        tag: "clients",
        summary: "All CopilotKit calls at one address. The body's `method` selects the call.",
        parameters: &[&[AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]],
        accepts_ids: false,
        body: Some(RequestBody {
            meaning: "The method, its parameters and its body.",
            is_required: true,
            content: &[(JSON, Content::Json("CopilotCall"))],
        }),
        responses: &[ResponseSpec {
            status: 200,
            meaning: "The answer of that method's own address.",
            content: &[(JSON, Content::Json("CopilotInfo")), ("text/event-stream", Content::Each("AgUiEvent"))],
        }],
        problems: &[STORE, CLIENT_BODY, BODY_TRANSFER, WRONG_NAME, REQUEST_FAILS],
    },
    Operation {
        method: Method::POST,
        path: "/ai-sdk/{agent}",
        access_rule: Requires(Verb::Control),
        id: "aiSdkSubmit",
        tag: "clients",
        summary: "The endpoint of `useChat`: requests an agent's answer, once, or decides pending actions, and streams the run as the AI SDK's UI message stream.",
        parameters: &[&[AGENT_PATH, AUDIENCE, VERSION]],
        accepts_ids: false,
        body: Some(RequestBody {
            meaning: "The chat and the trigger.",
            is_required: true,
            content: &[(JSON, Content::Json("ChatWanted"))],
        }),
        responses: &[AI_SDK_RESPONSE],
        problems: &[STORE, CLIENT_BODY, BODY_TRANSFER, REQUEST_FAILS],
    },
    Operation {
        method: Method::GET,
        path: "/ai-sdk/{agent}/{chat}/stream",
        access_rule: STREAM_ACCESS,
        id: "aiSdkResume",
        tag: "clients",
        summary: "The active run of a chat, from the start of its message.",
        parameters: &[&[AGENT_PATH, CHAT, AUDIENCE, VERSION, TICKET]],
        accepts_ids: false,
        body: None,
        responses: &[
            AI_SDK_RESPONSE,
            ResponseSpec { status: 204, meaning: "No run is active; the stored chat has every message.", content: &[] },
        ],
        problems: &[STORE],
    },
    Operation {
        method: Method::GET,
        path: "/ai-sdk/{agent}/{chat}",
        access_rule: Requires(Verb::Read),
        id: "aiSdkChat",
        tag: "clients",
        summary: "A stored chat: `messages` for `useChat`, and whether a run can be resumed.",
        parameters: &[&[AGENT_PATH, CHAT, AUDIENCE, VERSION, ACTIVATION]],
        accepts_ids: false,
        body: None,
        responses: json!("ChatAtRest", "The chat."),
        problems: &[STORE],
    },
    Operation {
        method: Method::POST,
        path: "/ai-sdk/{agent}/{chat}/stop",
        access_rule: Requires(Verb::Control),
        id: "aiSdkStop",
        tag: "clients",
        summary: "Requests a stop of a chat's active run. Disconnecting does not stop it.",
        parameters: &[&[AGENT_PATH, CHAT, AUDIENCE]],
        accepts_ids: false,
        body: None,
        responses: json!("Stopped", "Whether a run was asked to stop."),
        problems: &[STORE, STOP],
    },
    Operation {
        method: Method::GET,
        path: "/healthz",
        access_rule: Public,
        id: "getHealth",
        tag: "operations",
        summary: "Whether the process answers.",
        parameters: &[],
        accepts_ids: false,
        body: None,
        responses: json!("Health", "The process answers."),
        problems: &[],
    },
    Operation {
        method: Method::GET,
        path: "/readyz",
        access_rule: Public,
        id: "getReadiness",
        tag: "operations",
        summary: "Whether the server takes facts and readers.",
        parameters: &[],
        accepts_ids: false,
        body: None,
        responses: json!("Ready", "The server is ready."),
        problems: &[&[kinds::STOPPING, kinds::STORE_HAS_FAILED, kinds::DISK_NEARLY_FULL, kinds::NOT_FOLLOWING]],
    },
    Operation {
        method: Method::GET,
        path: "/v1/cluster",
        access_rule: Requires(Verb::Admin),
        id: "getCluster",
        tag: "operations",
        summary: "The nodes of the cluster: which one leads, and how far each has come.",
        parameters: &[],
        accepts_ids: false,
        body: None,
        responses: json!("Cluster", "The nodes."),
        problems: &[&[kinds::NO_CLUSTER]],
    },
    Operation {
        method: Method::GET,
        path: "/metrics",
        access_rule: METRICS_ACCESS,
        id: "getMetrics",
        tag: "operations",
        summary: "Metrics for Prometheus.",
        parameters: &[],
        accepts_ids: false,
        body: None,
        responses: &[ResponseSpec {
            status: 200,
            meaning: "Metrics in the Prometheus text format.",
            content: &[("text/plain", Content::Text)],
        }],
        problems: &[STORE],
    },
    Operation {
        method: Method::GET,
        path: "/openapi.json",
        access_rule: Public,
        id: "getDescription",
        tag: "contract",
        summary: "This description.",
        parameters: &[],
        accepts_ids: false,
        body: None,
        responses: &[ResponseSpec { status: 200, meaning: "OpenAPI 3.1.", content: &[(JSON, Content::Json("Description"))] }],
        problems: &[],
    },
    Operation {
        method: Method::GET,
        path: "/schema/{*file}",
        access_rule: Public,
        id: "getSchema",
        tag: "contract",
        summary: "A JSON Schema of the wire format, an example, or this description.",
        parameters: &[&[SCHEMA]],
        accepts_ids: false,
        body: None,
        responses: &[ResponseSpec {
            status: 200,
            meaning: "The document.",
            content: &[("application/schema+json", Content::Json("Any")), (JSON, Content::Json("Any"))],
        }],
        problems: &[&[kinds::NO_SUCH_SCHEMA]],
    },
    Operation {
        method: Method::GET,
        path: "/",
        access_rule: Public,
        id: "getPage",
        tag: "page",
        summary: "The page that shows runs.",
        parameters: &[],
        accepts_ids: false,
        body: None,
        responses: &[ResponseSpec { status: 200, meaning: "The page.", content: &[("text/html", Content::Text)] }, NOT_MODIFIED],
        problems: &[],
    },
    Operation {
        method: Method::GET,
        path: "/assets/{*file}",
        access_rule: Public,
        id: "getAsset",
        tag: "page",
        summary: "A script, a style or another file of the page.",
        parameters: &[&[ASSET]],
        accepts_ids: false,
        body: None,
        responses: &[
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
        ],
        problems: &[&[kinds::NO_SUCH_ASSET]],
    },
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
    let method = if method == "HEAD" { "GET" } else { method };
    let is_it = |operation: &&Operation| operation.path == route && operation.method.as_str() == method;
    if cfg!(debug_assertions)
        && let Some(operation) = OPERATIONS.iter().find(is_it)
    {
        operation.assert_described(status, code);
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

impl Operation {
    /// Its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &'static Parameter> + use<> {
        self.parameters.iter().copied().flatten()
    }

    /// Every problem that it can answer with, without duplicates.
    #[must_use]
    pub fn problems(&self) -> Vec<ProblemKind> {
        let of_members = self.parameters().filter_map(|member| member.problem);
        let of_ids = self.accepts_ids.then_some(kinds::BAD_ID);
        let mut problems: Vec<ProblemKind> = Vec::new();
        let of_right = if matches!(self.access_rule, Public | InBand) { &[][..] } else { ACCESS_PROBLEMS };
        let own = self.problems.iter().copied().flatten().chain(of_right).chain(ANY_ADDRESS).copied();
        for kind in of_members.chain(of_ids).chain(own) {
            if !problems.contains(&kind) {
                problems.push(kind);
            }
        }
        problems
    }

    /// Returns whether it reads this query member.
    #[must_use]
    pub fn reads_query(&self, member: &str) -> bool {
        let is_id = || ids().any(|(id, _)| id == member);
        self.parameters().any(|known| known.location == ParameterLocation::Query && known.name == member)
            || self.accepts_ids && is_id()
    }

    fn matches_path(&self, path: &str) -> bool {
        let (mut template, mut segments) = (self.path.split('/'), path.split('/'));
        loop {
            match (template.next(), segments.next()) {
                (None, None) => return true,
                (Some(rest), Some(_)) if rest.starts_with("{*") => return true,
                (Some(name), Some(segment)) if name.starts_with('{') => {
                    if segment.is_empty() {
                        return false;
                    }
                }
                (Some(name), Some(segment)) if name == segment => {}
                _ => return false,
            }
        }
    }

    fn assert_described(&'static self, status: StatusCode, code: Option<&'static str>) {
        let is_described = match code {
            Some(code) => self.problems().iter().any(|kind| kind.code == code && kind.status == status.as_u16()),
            None => self.responses.iter().any(|answer| answer.status == status.as_u16()),
        };
        let (method, path, code_shown) = (self.method.as_str(), self.path, code.unwrap_or_default());
        assert!(
            is_described,
            "{method} {path} answers {status} {code_shown}, which its row in src/serve/contract/operations.rs does not describe"
        );
        if let Some(watch) = OBSERVER.get() {
            (watch.on_response)(self, status, code);
        }
    }
}

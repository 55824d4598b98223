//! Every address: what it takes, what it answers, and who does it.
//!
//! One table, [`OPERATIONS`]. The router is built from it, and so is `/openapi.json`: what has no row is not served. A program that
//! is built to find our mistakes (`debug_assertions`, as every test is) also stops at an answer that its row does not describe, and
//! at a member of a query that is read and not described; so a test of anything is a test of this table.

mod members;
mod shapes;

pub use members::{Member, Place, ids};
pub use shapes::{SHAPES, Shape};

use super::access::{self, Right};
use super::clients::{ag_ui, ai_sdk, copilotkit};
use super::kinds::{self, Kind};
use super::problem::Problem;
use super::{App, controls, erase, facts, hydrate, meters, openapi, ops, sessions, settle, socket, stream, tickets, workbench};
use crate::auth::rights::Verb;
use Right::{Inside, Open, To, Token};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::{Method, StatusCode};
use members::{
    ACTIVATION, AFTER, AGENT, AGENT_PATH, ASSET, AT, AUDIENCE, BEFORE, BLOB, CHAT, CHILDREN, CONTROL_PATH, CURSOR, EVENTS_AFTER,
    EVENTS_BEFORE, FORMAT, FRAMES, JOINED, LAST_EVENT_ID, LAST_EVENT_ID_HEADER, LEASE, LIMIT, MAX, MESSAGES, NEEDS_ACTION,
    OFFSET, PLACE, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ, PROTOCOL_VERSION, RANGE, REPLAY, RUN, RUN_ID_HEADER, RUNS, SCHEMA,
    SEARCH, SESSION, SESSION_AT, SESSION_EVENTS_AFTER, SESSION_EVENTS_BEFORE, SOURCE, STATUS, SUBAGENTS, SURFACE, SURFACES,
    THREAD, THREAD_PATH, TICKET, TYPE, UNTIL, VERSION, WAIT, WINDOW_LIMIT,
};
use std::sync::{Arc, OnceLock};

/// One address and method.
pub struct Operation {
    pub method: Method,
    /// What it takes to ask here; it is looked at before the handler is called.
    pub right: Right,
    /// As axum and `OpenAPI` write it, but for a `*` before a name that may have slashes in it.
    pub path: &'static str,
    /// What programs that are generated from the description call it.
    pub id: &'static str,
    /// The part of the description that it stands in.
    pub tag: &'static str,
    /// What it does, in one sentence.
    pub does: &'static str,
    /// What it takes, in groups; those that the path names first.
    pub takes: &'static [&'static [Member]],
    /// Also the ids that a producer gives for facts that lack them.
    pub takes_ids: bool,
    pub body: Option<Body>,
    pub answers: &'static [Answer],
    /// Which problems it can answer with, in groups, beside those of the members that it takes and of any address.
    pub problems: &'static [&'static [Kind]],
    serve: fn(MethodFilter) -> MethodRouter<Arc<App>>,
}

/// What a request may bring, by media type.
pub struct Body {
    pub meaning: &'static str,
    /// Whether a request without one is refused.
    pub is_required: bool,
    pub content: &'static [(&'static str, Content)],
}

/// An answer that is no problem.
pub struct Answer {
    pub status: u16,
    pub meaning: &'static str,
    pub content: &'static [(&'static str, Content)],
}

/// What is in a body.
#[derive(Clone, Copy)]
pub enum Content {
    /// JSON of this shape: the name of one in [`SHAPES`].
    Json(&'static str),
    /// Text of which each line, message or frame is JSON of this shape.
    Each(&'static str),
    /// Any text.
    Text,
    /// Any bytes.
    Bytes,
}

/// What any address may answer with: to a page that has nothing to do here, to who calls us by another's name, and of our own
/// mistakes.
const ANY: &[Kind] = &[kinds::FOREIGN_ORIGIN, kinds::UNKNOWN_HOST, kinds::INTERNAL_ERROR];
/// What whoever asks at an address that is not open may be answered with.
const ACCESS: &[Kind] = &[kinds::UNAUTHENTICATED, kinds::FORBIDDEN];
/// What whoever opens something that lasts may be answered with.
const LASTS: &[Kind] = &[kinds::TOO_MANY_CONNECTIONS_OF_TOKEN];
/// What whatever asks the store may answer with.
const STORE: &[Kind] = &[kinds::STORE_FAILED, kinds::STORED_STATE_UNREADABLE];
const RUN_READ: &[Kind] = &[kinds::NO_SUCH_RUN];
const SESSION_READ: &[Kind] = &[kinds::NO_SUCH_SESSION];
/// What a body of facts may be refused for, by any transport.
const FACTS: &[Kind] = &[
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
/// What a body may be refused for on its way.
const ON_ITS_WAY: &[Kind] = &[kinds::BODY_CUT_OFF, kinds::BODY_TOO_SLOW];
/// The same of facts, which may come as lines.
const LINES_ON_THEIR_WAY: &[Kind] = &[
    kinds::UNSUPPORTED_MEDIA_TYPE,
    kinds::BAD_LINE,
    kinds::BODY_CUT_OFF,
    kinds::BODY_TOO_SLOW,
    kinds::BODY_SILENT,
    kinds::STOPPING,
    kinds::TOO_MANY_CONNECTIONS_OF_TOKEN,
];
/// What a body that is one object may be refused for.
const OBJECT: &[Kind] =
    &[kinds::UNSUPPORTED_MEDIA_TYPE, kinds::NOT_JSON, kinds::NOT_AN_OBJECT, kinds::TOO_DEEP, kinds::CONTROL_TOO_LARGE];
/// What a control may be refused for.
const CONTROL: &[Kind] =
    &[kinds::BAD_CONTROL, kinds::ACTION_NOT_PENDING, kinds::CONTROL_CONFLICT, kinds::TOO_MANY_CONTROLS, kinds::DISK_FULL];
/// What the body of a client that exists already may be refused for.
const ASKED: &[Kind] = &[
    kinds::UNSUPPORTED_MEDIA_TYPE,
    kinds::NOT_JSON,
    kinds::NOT_AN_OBJECT,
    kinds::TOO_DEEP,
    kinds::BODY_TOO_LARGE,
    kinds::BAD_MEMBER,
];
/// Why nothing comes of what such a client asks for. The last two are told in its stream.
const NOTHING_COMES: &[Kind] =
    &[kinds::CONTROL_TOO_LARGE, kinds::TOO_MANY_CONTROLS, kinds::DISK_FULL, kinds::CONTROL_REFUSED, kinds::CONTROL_EXPIRED];
/// The same of AG-UI, whose clients name runs and what runs wait for.
const NAMED_WRONG: &[Kind] = &[kinds::ACTION_NOT_PENDING, kinds::RUN_OF_ANOTHER_THREAD];
/// Why a run is not asked to stop.
const STOP: &[Kind] = &[kinds::TOO_MANY_CONTROLS, kinds::DISK_FULL];
/// What an owner's answer to a control may be refused for.
const LEASED: &[Kind] = &[kinds::BAD_MEMBER, kinds::LEASE_LOST];
/// What a message on a WebSocket may be refused for, beside [`FACTS`], [`STORE`] and what is wrong with its members.
const MESSAGE: &[Kind] = &[
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
    kinds::STOPPING,
    kinds::TOO_MANY_CONNECTIONS_OF_TOKEN,
];
/// What is told where no address was found, by HTTP itself.
pub const NOWHERE: &[Kind] = &[kinds::NO_SUCH_ADDRESS, kinds::METHOD_NOT_ALLOWED];
/// What is told before any request was read.
pub const CONNECTION: &[Kind] = &[
    kinds::TOO_MANY_CONNECTIONS,
    kinds::TOO_MANY_CONNECTIONS_OF_CLIENT,
    kinds::TLS_REQUIRED,
    kinds::STOPPING,
    kinds::BAD_HEAD,
    kinds::HEAD_TOO_LARGE,
    kinds::UNSUPPORTED_TRANSFER_CODING,
];
/// What a message on a WebSocket may be answered with.
pub const SOCKET: &[&[Kind]] = &[FACTS, STORE, MESSAGE, ACCESS];

/// What narrows a view of a log.
const SELECTION: &[Member] = &[AUDIENCE, SURFACES, SURFACE, TYPE, AGENT];
/// What a stream is told.
const STREAM: &[Member] = &[FRAMES, REPLAY, AFTER, LAST_EVENT_ID, LAST_EVENT_ID_HEADER, FORMAT, VERSION, TICKET];
const PRODUCER: &[Member] = &[SOURCE, PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ];

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

const FACTS_BODY: Option<Body> = Some(Body {
    meaning: "A fact or an array of them, taken whole or not at all; or a fact a line, taken as they come, for as long as the run lasts.",
    is_required: true,
    content: &[(JSON, Content::Json("Facts")), (LINES, Content::Each("Fact"))],
});
const CONTROL_BODY: Option<Body> = Some(Body {
    meaning: "What is asked for, and of what.",
    is_required: true,
    content: &[(JSON, Content::Json("ControlWanted"))],
});
const ANSWER_BODY: Option<Body> =
    Some(Body { meaning: "Under which lease, and why.", is_required: true, content: &[(JSON, Content::Json("ControlAnswer"))] });
const RECEIPT: &[Answer] = &[Answer {
    status: 200,
    meaning: "What became of the facts; they are durable.",
    content: &[(JSON, Content::Json("Receipt"))],
}];
const FRAMES_COME: Answer = Answer {
    status: 200,
    meaning: "Frames, for as long as there are any to come. Each `data:` is one; the cursor is its `id:`.",
    content: &[("text/event-stream", Content::Each("Frame"))],
};
const FRAMES_OF_RUN: &[Answer] = &[
    FRAMES_COME,
    Answer {
        status: 204,
        meaning: "The reader has seen the end, and nothing came after it: no reason to come back.",
        content: &[],
    },
];

const EVENTS_COME: &[Answer] = &[Answer {
    status: 200,
    meaning: "AG-UI events, up to the run's end or its next question. One that is cut before is reset.",
    content: &[("text/event-stream", Content::Each("AgUiEvent"))],
}];
const CHUNKS_COME: Answer = Answer {
    status: 200,
    meaning: "Chunks of one assistant's message, up to the run's end or its next question. One that is cut before is reset.",
    content: &[("text/event-stream", Content::Each("ChatChunk"))],
};
const INPUT_BODY: Option<Body> = Some(Body {
    meaning: "What to run, or where to go on.",
    is_required: true,
    content: &[(JSON, Content::Json("RunAgentInput"))],
});

macro_rules! json {
    ($shape:literal, $meaning:literal) => {
        &[Answer { status: 200, meaning: $meaning, content: &[(JSON, Content::Json($shape))] }]
    };
}

/// The table. Rows of one path stand together.
pub static OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::POST,
        path: "/v1/runs/{run}/facts",
        right: facts::RIGHT,
        id: "publishToRun",
        tag: "facts",
        does: "Appends facts to a run's log; answered once they are durable.",
        takes: &[&[RUN], PRODUCER],
        takes_ids: true,
        body: FACTS_BODY,
        answers: RECEIPT,
        problems: &[STORE, FACTS, LINES_ON_THEIR_WAY, &[kinds::RUN_ERASED]],
        serve: |method| on(method, facts::post),
    },
    Operation {
        method: Method::POST,
        path: "/v1/sessions/{session}/facts",
        right: facts::RIGHT,
        id: "publishToSession",
        tag: "facts",
        does: "Appends facts that belong to no run to the session's own log; answered once they are durable.",
        takes: &[&[SESSION], PRODUCER],
        takes_ids: true,
        body: FACTS_BODY,
        answers: RECEIPT,
        problems: &[STORE, FACTS, LINES_ON_THEIR_WAY],
        serve: |method| on(method, facts::post),
    },
    Operation {
        method: Method::POST,
        path: "/v1/runs/{run}/settle",
        right: To(Verb::Control),
        id: "settleRun",
        tag: "runs",
        does: "Ends a run that nobody will end any more, also one that waits; one that has ended stays as it is.",
        takes: &[&[RUN]],
        takes_ids: false,
        body: None,
        answers: json!("Settled", "How the run stands now, and whether this did it."),
        problems: &[STORE, RUN_READ, &[kinds::DISK_FULL]],
        serve: |method| on(method, settle::post),
    },
    Operation {
        method: Method::POST,
        path: "/v1/runs/{run}/controls",
        right: To(Verb::Control),
        id: "controlRun",
        tag: "controls",
        does: "Asks the owner of a run, or of a part of it, for something; repeated under the same `controlId` it is asked for once.",
        takes: &[&[RUN, AUDIENCE]],
        takes_ids: false,
        body: CONTROL_BODY,
        answers: &[Answer {
            status: 202,
            meaning: "It is recorded, and in the line of who takes it. It changes nothing by itself.",
            content: &[(JSON, Content::Json("ControlQueued"))],
        }],
        problems: &[STORE, RUN_READ, OBJECT, CONTROL, &[kinds::RUN_ENDED]],
        serve: |method| on(method, controls::post),
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/controls",
        right: To(Verb::Read),
        id: "listRunControls",
        tag: "controls",
        does: "The controls that were asked for of a run, in order, with what became of them.",
        takes: &[&[RUN, LIMIT, CURSOR, AUDIENCE, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Controls", "A page of controls."),
        problems: &[STORE, RUN_READ],
        serve: |method| on(method, controls::list),
    },
    Operation {
        method: Method::POST,
        path: "/v1/sessions/{session}/controls",
        right: To(Verb::Control),
        id: "controlSession",
        tag: "controls",
        does: "Asks the owner of a session, or of a part of it, for something; repeated under the same `controlId` it is asked for once.",
        takes: &[&[SESSION, AUDIENCE]],
        takes_ids: false,
        body: CONTROL_BODY,
        answers: &[Answer {
            status: 202,
            meaning: "It is recorded, and in the line of who takes it. It changes nothing by itself.",
            content: &[(JSON, Content::Json("ControlQueued"))],
        }],
        problems: &[STORE, SESSION_READ, OBJECT, CONTROL],
        serve: |method| on(method, controls::post),
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/controls",
        right: To(Verb::Read),
        id: "listSessionControls",
        tag: "controls",
        does: "The controls that were asked for of a session, in order, with what became of them.",
        takes: &[&[SESSION, LIMIT, CURSOR, AUDIENCE, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Controls", "A page of controls."),
        problems: &[STORE, SESSION_READ],
        serve: |method| on(method, controls::list),
    },
    Operation {
        method: Method::POST,
        path: "/v1/agents/{agent}/controls/claim",
        right: To(Verb::Publish),
        id: "claimControls",
        tag: "controls",
        does: "Takes what is in the line of an agent, under leases; waits for something if asked to.",
        takes: &[&[AGENT_PATH, WAIT, MAX, LEASE]],
        takes_ids: false,
        body: None,
        answers: json!("Claimed", "What was taken; nothing, if nothing came in time."),
        problems: &[STORE, LASTS],
        serve: |method| on(method, controls::claim),
    },
    Operation {
        method: Method::POST,
        path: "/v1/controls/{control}/ack",
        right: To(Verb::Publish),
        id: "ackControl",
        tag: "controls",
        does: "Says that the owner has taken a control.",
        takes: &[&[CONTROL_PATH]],
        takes_ids: false,
        body: ANSWER_BODY,
        answers: json!("ControlAnswered", "What became of it."),
        problems: &[STORE, OBJECT, LEASED],
        serve: |method| on(method, controls::ack),
    },
    Operation {
        method: Method::POST,
        path: "/v1/controls/{control}/nack",
        right: To(Verb::Publish),
        id: "nackControl",
        tag: "controls",
        does: "Says that the owner refuses a control, or gives it back.",
        takes: &[&[CONTROL_PATH]],
        takes_ids: false,
        body: ANSWER_BODY,
        answers: json!("ControlAnswered", "What became of it."),
        problems: &[STORE, OBJECT, LEASED],
        serve: |method| on(method, controls::nack),
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/stream",
        right: stream::RIGHT,
        id: "streamRun",
        tag: "streams",
        does: "Frames of a run as server-sent events, from where the reader stands and on as they come; a run that nobody has written yet is waited for.",
        takes: &[&[RUN, PROTOCOL_VERSION, SUBAGENTS, UNTIL], STREAM, SELECTION],
        takes_ids: false,
        body: None,
        answers: FRAMES_OF_RUN,
        problems: &[STORE, LASTS],
        serve: |method| on(method, stream::get),
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions",
        right: To(Verb::Read),
        id: "listSessions",
        tag: "sessions",
        does: "Sessions, the newest first.",
        takes: &[&[LIMIT, CURSOR, STATUS, SEARCH, NEEDS_ACTION, AUDIENCE, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Sessions", "A page of sessions."),
        problems: &[STORE],
        serve: |method| on(method, sessions::sessions),
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}",
        right: To(Verb::Read),
        id: "getSession",
        tag: "sessions",
        does: "A session's shell, and what needs attention: of its newest 32 runs, and of up to 64 that have pending actions.",
        takes: &[&[SESSION, AUDIENCE, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Session", "The session."),
        problems: &[STORE, SESSION_READ],
        serve: |method| on(method, sessions::session),
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/window",
        right: To(Verb::Read),
        id: "getWindow",
        tag: "sessions",
        does: "A session's recent messages; those before them by the cursor.",
        takes: &[&[SESSION, MESSAGES, PLACE, AUDIENCE, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Window", "Messages, in order."),
        problems: &[STORE, SESSION_READ],
        serve: |method| on(method, sessions::window),
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/timeline",
        right: To(Verb::Read),
        id: "getTimeline",
        tag: "sessions",
        does: "The process behind a session's messages, the newest window first.",
        takes: &[&[SESSION, WINDOW_LIMIT, PLACE, AUDIENCE, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Timeline", "Activities, in order."),
        problems: &[STORE, SESSION_READ],
        serve: |method| on(method, sessions::timeline),
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/events",
        right: To(Verb::Read),
        id: "getSessionEvents",
        tag: "sessions",
        does: "The envelopes of all runs of a session and of its own log, in the order of commits: with `before` alone the newest before it, else forward from `after`.",
        takes: &[&[SESSION, SESSION_EVENTS_AFTER, SESSION_EVENTS_BEFORE, LIMIT], SELECTION, &[ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("SessionEvents", "A page of envelopes."),
        problems: &[STORE, SESSION_READ, &[kinds::EPOCH_CHANGED, kinds::SESSION_TOO_LARGE]],
        serve: |method| on(method, sessions::events),
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/activities",
        right: To(Verb::Read),
        id: "getSessionActivities",
        tag: "sessions",
        does: "What there is to see of all runs of a session and of its own log, now or as of any place in the order of commits.",
        takes: &[&[SESSION, SESSION_AT, CURSOR], SELECTION, &[ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!(
            "SessionActivities",
            "Activities, by log in the order of creation, and in the order in which they appeared."
        ),
        problems: &[STORE, SESSION_READ, &[kinds::EPOCH_CHANGED]],
        serve: |method| on(method, sessions::activities),
    },
    Operation {
        method: Method::GET,
        path: "/v1/sessions/{session}/stream",
        right: stream::RIGHT,
        id: "streamSession",
        tag: "streams",
        does: "Frames of all runs of a session and of its own log, also of those that come later.",
        takes: &[&[SESSION, CHILDREN], STREAM, SELECTION],
        takes_ids: false,
        body: None,
        answers: &[FRAMES_COME],
        problems: &[STORE, LASTS],
        serve: |method| on(method, stream::get),
    },
    Operation {
        method: Method::GET,
        path: "/v1/stream",
        right: stream::RIGHT,
        id: "streamRuns",
        tag: "streams",
        does: "Frames of several runs on one connection.",
        takes: &[&[RUNS], STREAM, SELECTION],
        takes_ids: false,
        body: None,
        answers: &[FRAMES_COME],
        problems: &[STORE, LASTS, &[kinds::BAD_ID]],
        serve: |method| on(method, stream::get),
    },
    Operation {
        method: Method::GET,
        path: "/v1/ws",
        right: Inside,
        id: "connect",
        tag: "streams",
        does: "A WebSocket (RFC 6455, HTTP/1.1) with many subscriptions and publishes: JSON objects as text, which `docs/src/reference/websocket.md` describes.",
        takes: &[&[TICKET]],
        takes_ids: false,
        body: None,
        answers: &[Answer { status: 101, meaning: "A WebSocket from here on.", content: &[] }],
        problems: &[LASTS, &[kinds::UPGRADE_REQUIRED, kinds::BAD_SUBPROTOCOL, kinds::UNAUTHENTICATED]],
        serve: |method| on(method, socket::get),
    },
    Operation {
        method: Method::POST,
        path: "/v1/tickets",
        right: Token,
        id: "makeTicket",
        tag: "access",
        does: "Makes a ticket, for readers that can send no header: `?ticket=` in its place.",
        takes: &[],
        takes_ids: false,
        body: Some(Body { meaning: "What it is for.", is_required: true, content: &[(JSON, Content::Json("TicketWanted"))] }),
        answers: json!("Ticket", "The ticket, and until when it is good."),
        problems: &[
            STORE,
            &[kinds::NOT_JSON, kinds::BAD_QUERY, kinds::BAD_ID, kinds::BODY_TOO_LARGE, kinds::TOO_MANY_TICKETS],
            ON_ITS_WAY,
        ],
        serve: |method| on(method, tickets::post),
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs",
        right: To(Verb::Read),
        id: "listRuns",
        tag: "runs",
        does: "Runs, the newest first.",
        takes: &[&[LIMIT, CURSOR, AUDIENCE, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Runs", "A page of runs."),
        problems: &[STORE],
        serve: |method| on(method, hydrate::runs),
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}",
        right: To(Verb::Read),
        id: "getRun",
        tag: "runs",
        does: "How a run stands.",
        takes: &[&[RUN, AUDIENCE, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Run", "The run."),
        problems: &[STORE, RUN_READ],
        serve: |method| on(method, hydrate::run),
    },
    Operation {
        method: Method::DELETE,
        path: "/v1/runs/{run}",
        right: To(Verb::Admin),
        id: "eraseRun",
        tag: "runs",
        does: "Erases a run for good: its log, its offloaded bodies, its checkpoints.",
        takes: &[&[RUN]],
        takes_ids: false,
        body: None,
        answers: &[Answer { status: 204, meaning: "It is gone, and a crash does not bring it back.", content: &[] }],
        problems: &[STORE, RUN_READ],
        serve: |method| on(method, erase::run),
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/events",
        right: To(Verb::Read),
        id: "getEvents",
        tag: "runs",
        does: "A run's envelopes by page, always in order: with `before` alone the newest before it, else forward from `after`.",
        takes: &[&[RUN, EVENTS_AFTER, EVENTS_BEFORE, LIMIT], SELECTION, &[ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Events", "A page of envelopes."),
        problems: &[STORE, RUN_READ, &[kinds::EPOCH_CHANGED]],
        serve: |method| on(method, hydrate::events),
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/activities",
        right: To(Verb::Read),
        id: "getActivities",
        tag: "runs",
        does: "What there is to see of a run, now or as of any sequence.",
        takes: &[&[RUN, AT], SELECTION, &[ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("Activities", "Activities, in the order in which they appeared."),
        problems: &[STORE, RUN_READ],
        serve: |method| on(method, hydrate::activities),
    },
    Operation {
        method: Method::GET,
        path: "/v1/runs/{run}/export",
        right: To(Verb::Read),
        id: "exportRun",
        tag: "runs",
        does: "All of a run's envelopes, a line each; `proscenium import` takes them back.",
        takes: &[&[RUN], SELECTION],
        takes_ids: false,
        body: None,
        answers: &[Answer { status: 200, meaning: "Envelopes, in order.", content: &[(LINES, Content::Each("AgentUiEvent"))] }],
        problems: &[STORE, RUN_READ],
        serve: |method| on(method, hydrate::export),
    },
    Operation {
        method: Method::GET,
        path: "/v1/blobs/{blob}",
        right: To(Verb::Read),
        id: "getBlob",
        tag: "runs",
        does: "A body that was moved out of its envelope, or a range of it.",
        takes: &[&[BLOB, AUDIENCE, RANGE]],
        takes_ids: false,
        body: None,
        answers: &[
            Answer { status: 200, meaning: "All of it.", content: &[("*/*", Content::Bytes)] },
            Answer { status: 206, meaning: "The range that was asked for.", content: &[("*/*", Content::Bytes)] },
        ],
        problems: &[STORE, &[kinds::NO_SUCH_BLOB, kinds::BAD_RANGE]],
        serve: |method| on(method, hydrate::blob),
    },
    Operation {
        method: Method::POST,
        path: "/ag-ui/{agent}",
        right: To(Verb::Control),
        id: "agUiRun",
        tag: "clients",
        does: "Asks an agent for a run, and tells it as AG-UI; a run that is known by its `runId` is attached to and never asked for again, and `resume` answers what a run waits for.",
        takes: &[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER, RUN_ID_HEADER]],
        takes_ids: false,
        body: INPUT_BODY,
        answers: EVENTS_COME,
        problems: &[STORE, ASKED, ON_ITS_WAY, NAMED_WRONG, NOTHING_COMES],
        serve: |method| on(method, ag_ui::post),
    },
    Operation {
        method: Method::GET,
        path: "/ag-ui/{agent}",
        right: stream::RIGHT,
        id: "agUiGet",
        tag: "clients",
        does: "A thread at rest, or, with `runId`, that run as AG-UI, live: as `TanStack` AI asks for them. A thread that nobody knows is empty.",
        takes: &[
            &[AGENT_PATH, THREAD, JOINED, OFFSET, BEFORE, LIMIT, AUDIENCE, SUBAGENTS, ACTIVATION],
            &[LAST_EVENT_ID, LAST_EVENT_ID_HEADER, TICKET],
        ],
        takes_ids: false,
        body: None,
        answers: &[Answer {
            status: 200,
            meaning: "The thread; or events, `id:` before `data:`.",
            content: &[(JSON, Content::Json("ThreadAtRest")), ("text/event-stream", Content::Each("AgUiEvent"))],
        }],
        problems: &[STORE, &[kinds::BAD_QUERY]],
        serve: |method| on(method, ag_ui::get),
    },
    Operation {
        method: Method::GET,
        path: "/copilotkit/info",
        right: To(Verb::Read),
        id: "copilotInfo",
        tag: "clients",
        does: "What CopilotKit asks of its runtime first: which agents there are.",
        takes: &[],
        takes_ids: false,
        body: None,
        answers: json!("CopilotInfo", "The agents."),
        problems: &[STORE],
        serve: |method| on(method, copilotkit::info),
    },
    Operation {
        method: Method::POST,
        path: "/copilotkit/agent/{agent}/run",
        right: To(Verb::Control),
        id: "copilotRun",
        tag: "clients",
        does: "The same as `POST /ag-ui/{agent}`, for CopilotKit.",
        takes: &[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]],
        takes_ids: false,
        body: INPUT_BODY,
        answers: EVENTS_COME,
        problems: &[STORE, ASKED, ON_ITS_WAY, NAMED_WRONG, NOTHING_COMES],
        serve: |method| on(method, copilotkit::run),
    },
    Operation {
        method: Method::POST,
        path: "/copilotkit/agent/{agent}/connect",
        right: To(Verb::Read),
        id: "copilotConnect",
        tag: "clients",
        does: "Shows a thread as it stands, and goes on with what goes on; of a thread that nobody knows there are no events.",
        takes: &[&[AGENT_PATH, AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]],
        takes_ids: false,
        body: INPUT_BODY,
        answers: EVENTS_COME,
        problems: &[STORE, ASKED, ON_ITS_WAY],
        serve: |method| on(method, copilotkit::connect),
    },
    Operation {
        method: Method::POST,
        path: "/copilotkit/agent/{agent}/stop/{thread}",
        right: To(Verb::Control),
        id: "copilotStop",
        tag: "clients",
        does: "Asks for the end of what goes on in a thread.",
        takes: &[&[AGENT_PATH, THREAD_PATH, AUDIENCE]],
        takes_ids: false,
        body: Some(Body { meaning: "Which run is meant.", is_required: false, content: &[(JSON, Content::Json("StopWanted"))] }),
        answers: json!("Stopped", "Whether anything was asked to stop."),
        problems: &[STORE, ASKED, ON_ITS_WAY, STOP],
        serve: |method| on(method, copilotkit::stop),
    },
    Operation {
        method: Method::POST,
        path: "/copilotkit",
        right: Token,
        id: "copilotCall",
        tag: "clients",
        does: "All that CopilotKit asks of its runtime, at one address: the body says what.",
        takes: &[&[AUDIENCE, SUBAGENTS, LAST_EVENT_ID_HEADER]],
        takes_ids: false,
        body: Some(Body {
            meaning: "What for, about what.",
            is_required: true,
            content: &[(JSON, Content::Json("CopilotCall"))],
        }),
        answers: &[Answer {
            status: 200,
            meaning: "What the address of that method answers.",
            content: &[(JSON, Content::Json("CopilotInfo")), ("text/event-stream", Content::Each("AgUiEvent"))],
        }],
        problems: &[STORE, ASKED, ON_ITS_WAY, NAMED_WRONG, NOTHING_COMES],
        serve: |method| on(method, copilotkit::call),
    },
    Operation {
        method: Method::POST,
        path: "/ai-sdk/{agent}",
        right: To(Verb::Control),
        id: "aiSdkSubmit",
        tag: "clients",
        does: "What `useChat` sends: asks an agent to answer, once, or decides what a run waits for; and tells it as the AI SDK's UI message stream.",
        takes: &[&[AGENT_PATH, AUDIENCE, VERSION]],
        takes_ids: false,
        body: Some(Body {
            meaning: "The chat, and what for.",
            is_required: true,
            content: &[(JSON, Content::Json("ChatWanted"))],
        }),
        answers: &[CHUNKS_COME],
        problems: &[STORE, ASKED, ON_ITS_WAY, NOTHING_COMES],
        serve: |method| on(method, ai_sdk::post),
    },
    Operation {
        method: Method::GET,
        path: "/ai-sdk/{agent}/{chat}/stream",
        right: stream::RIGHT,
        id: "aiSdkResume",
        tag: "clients",
        does: "What goes on in a chat, from the beginning of its message.",
        takes: &[&[AGENT_PATH, CHAT, AUDIENCE, VERSION, TICKET]],
        takes_ids: false,
        body: None,
        answers: &[
            CHUNKS_COME,
            Answer { status: 204, meaning: "Nothing goes on; what was said can be read at rest.", content: &[] },
        ],
        problems: &[STORE],
        serve: |method| on(method, ai_sdk::stream),
    },
    Operation {
        method: Method::GET,
        path: "/ai-sdk/{agent}/{chat}",
        right: To(Verb::Read),
        id: "aiSdkChat",
        tag: "clients",
        does: "What a chat begins with: `messages` for `useChat`, and whether there is something to resume.",
        takes: &[&[AGENT_PATH, CHAT, AUDIENCE, VERSION, ACTIVATION]],
        takes_ids: false,
        body: None,
        answers: json!("ChatAtRest", "The chat."),
        problems: &[STORE],
        serve: |method| on(method, ai_sdk::chat),
    },
    Operation {
        method: Method::POST,
        path: "/ai-sdk/{agent}/{chat}/stop",
        right: To(Verb::Control),
        id: "aiSdkStop",
        tag: "clients",
        does: "Asks for the end of what goes on in a chat; that a client goes away does not.",
        takes: &[&[AGENT_PATH, CHAT, AUDIENCE]],
        takes_ids: false,
        body: None,
        answers: json!("Stopped", "Whether anything was asked to stop."),
        problems: &[STORE, STOP],
        serve: |method| on(method, ai_sdk::stop),
    },
    Operation {
        method: Method::GET,
        path: "/healthz",
        right: Open,
        id: "getHealth",
        tag: "operations",
        does: "Whether the process answers.",
        takes: &[],
        takes_ids: false,
        body: None,
        answers: json!("Health", "It does."),
        problems: &[],
        serve: |method| on(method, ops::health),
    },
    Operation {
        method: Method::GET,
        path: "/readyz",
        right: Open,
        id: "getReadiness",
        tag: "operations",
        does: "Whether the server takes facts and readers.",
        takes: &[],
        takes_ids: false,
        body: None,
        answers: json!("Ready", "It does."),
        problems: &[&[kinds::STOPPING, kinds::STORE_HAS_FAILED, kinds::DISK_NEARLY_FULL]],
        serve: |method| on(method, ops::ready),
    },
    Operation {
        method: Method::GET,
        path: "/metrics",
        right: meters::RIGHT,
        id: "getMetrics",
        tag: "operations",
        does: "What goes on, for Prometheus.",
        takes: &[],
        takes_ids: false,
        body: None,
        answers: &[Answer { status: 200, meaning: "Metrics, in its text format.", content: &[("text/plain", Content::Text)] }],
        problems: &[STORE],
        serve: |method| on(method, meters::get),
    },
    Operation {
        method: Method::GET,
        path: "/openapi.json",
        right: Open,
        id: "getDescription",
        tag: "contract",
        does: "This description.",
        takes: &[],
        takes_ids: false,
        body: None,
        answers: &[Answer { status: 200, meaning: "OpenAPI 3.1.", content: &[(JSON, Content::Json("Description"))] }],
        problems: &[],
        serve: |method| on(method, openapi::get),
    },
    Operation {
        method: Method::GET,
        path: "/schema/{*file}",
        right: Open,
        id: "getSchema",
        tag: "contract",
        does: "A JSON Schema of the wire's contract, an example of it, or this description.",
        takes: &[&[SCHEMA]],
        takes_ids: false,
        body: None,
        answers: &[Answer {
            status: 200,
            meaning: "The document.",
            content: &[("application/schema+json", Content::Json("Any")), (JSON, Content::Json("Any"))],
        }],
        problems: &[&[kinds::NO_SUCH_SCHEMA]],
        serve: |method| on(method, ops::schema),
    },
    Operation {
        method: Method::GET,
        path: "/",
        right: Open,
        id: "getPage",
        tag: "page",
        does: "The page that shows runs.",
        takes: &[],
        takes_ids: false,
        body: None,
        answers: &[Answer { status: 200, meaning: "The page.", content: &[("text/html", Content::Text)] }],
        problems: &[],
        serve: |method| on(method, workbench::index),
    },
    Operation {
        method: Method::GET,
        path: "/assets/{*file}",
        right: Open,
        id: "getAsset",
        tag: "page",
        does: "A script, a style or another file of the page.",
        takes: &[&[ASSET]],
        takes_ids: false,
        body: None,
        answers: &[Answer {
            status: 200,
            meaning: "The file.",
            content: &[("text/javascript", Content::Text), ("text/css", Content::Text), ("text/html", Content::Text)],
        }],
        problems: &[&[kinds::NO_SUCH_ASSET]],
        serve: |method| on(method, workbench::asset),
    },
];

/// What a test may watch: what is answered, and what is read of queries.
pub struct Watch {
    /// An answer by this operation, with the code of its problem, if it is one.
    pub answered: fn(&'static Operation, StatusCode, Option<&'static str>),
    /// A member that was read of the query of a request to this path.
    pub read: fn(&str, &str),
}

/// Who watches. Asked only by programs that are built to find our mistakes.
pub static WATCH: OnceLock<Watch> = OnceLock::new();

/// A router of every address.
pub(super) fn mount(app: &Arc<App>) -> Router<Arc<App>> {
    OPERATIONS.iter().fold(Router::new(), |router, operation| {
        let filter = MethodFilter::try_from(operation.method.clone()).expect("a method that routers know");
        let serve = match operation.right {
            Open | Inside => (operation.serve)(filter),
            right => (operation.serve)(filter).route_layer(from_fn_with_state((app.clone(), right), access::door)),
        };
        router.route(operation.path, serve)
    })
}

/// Stops at an answer that the row of this route does not describe.
pub(super) fn hold(method: &str, route: &str, status: StatusCode, code: Option<&'static str>) {
    let method = if method == "HEAD" { "GET" } else { method };
    let is_it = |operation: &&Operation| operation.path == route && operation.method.as_str() == method;
    if cfg!(debug_assertions)
        && let Some(operation) = OPERATIONS.iter().find(is_it)
    {
        operation.hold(status, code);
    }
}

/// Stops where a member of a query is read that no row of this path describes.
#[cfg(debug_assertions)]
pub(super) fn hold_read(path: &str, member: &str) {
    // Where nothing is served, nobody asked.
    let is_described = at(path).next().is_none() || at(path).any(|operation| operation.reads(member));
    assert!(is_described, "{path} reads the query's {member}, of which its row in src/serve/routes does not tell");
    if let Some(watch) = WATCH.get() {
        (watch.read)(path, member);
    }
}

/// Stops at a problem that no message on a WebSocket is described to be answered with.
pub(super) fn hold_message(problem: &Problem) {
    let is_described = |kind: &Kind| kind.code == problem.code && kind.status == problem.status.as_u16();
    debug_assert!(
        SOCKET.iter().copied().flatten().any(is_described),
        "a message is answered with {} {}, of which its group in src/serve/routes does not tell",
        problem.status,
        problem.code
    );
}

/// The operations at a path.
pub fn at(path: &str) -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().filter(move |operation| operation.is_at(path))
}

impl Operation {
    /// What it takes.
    pub fn members(&self) -> impl Iterator<Item = &'static Member> + use<> {
        self.takes.iter().copied().flatten()
    }

    /// Every problem that it can answer with, each once.
    #[must_use]
    pub fn problems(&self) -> Vec<Kind> {
        let of_members = self.members().filter_map(|member| member.fault);
        let of_ids = self.takes_ids.then_some(kinds::BAD_ID);
        let mut problems: Vec<Kind> = Vec::new();
        let of_right = if matches!(self.right, Open | Inside) { &[][..] } else { ACCESS };
        let own = self.problems.iter().copied().flatten().chain(of_right).chain(ANY).copied();
        for kind in of_members.chain(of_ids).chain(own) {
            if !problems.contains(&kind) {
                problems.push(kind);
            }
        }
        problems
    }

    /// Whether it reads this member of a query.
    #[must_use]
    pub fn reads(&self, member: &str) -> bool {
        let is_id = || ids().any(|(id, _)| id == member);
        self.members().any(|known| known.place == Place::Query && known.name == member) || self.takes_ids && is_id()
    }

    fn is_at(&self, path: &str) -> bool {
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

    fn hold(&'static self, status: StatusCode, code: Option<&'static str>) {
        let is_described = match code {
            Some(code) => self.problems().iter().any(|kind| kind.code == code && kind.status == status.as_u16()),
            None => self.answers.iter().any(|answer| answer.status == status.as_u16()),
        };
        let (method, path, code_shown) = (self.method.as_str(), self.path, code.unwrap_or_default());
        assert!(
            is_described,
            "{method} {path} answers {status} {code_shown}, of which its row in src/serve/routes does not tell"
        );
        if let Some(watch) = WATCH.get() {
            (watch.answered)(self, status, code);
        }
    }
}

//! What an address takes beside a body: parts of its path, members of its query, headers.

use super::kinds::{self, Kind};
use crate::model::{Audience, Ids, Surface, schema};
use crate::source::SOURCES;
use serde_json::{Value, json};

/// One thing that an address takes.
pub struct Member {
    pub name: &'static str,
    pub place: Place,
    pub is_required: bool,
    /// Meaning, unit, range, default.
    pub meaning: &'static str,
    /// The JSON Schema of its value.
    pub schema: fn() -> Value,
    /// What a value that cannot be one is answered with.
    pub fault: Option<Kind>,
}

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Path,
    Query,
    Header,
}

impl Place {
    /// Its name in `OpenAPI`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
        }
    }
}

impl Member {
    const fn path(name: &'static str, meaning: &'static str, schema: fn() -> Value, fault: Option<Kind>) -> Self {
        Self { name, place: Place::Path, is_required: true, meaning, schema, fault }
    }

    const fn query(name: &'static str, meaning: &'static str, schema: fn() -> Value, fault: Option<Kind>) -> Self {
        Self { name, place: Place::Query, is_required: false, meaning, schema, fault }
    }

    const fn header(name: &'static str, meaning: &'static str, schema: fn() -> Value, fault: Option<Kind>) -> Self {
        Self { name, place: Place::Header, is_required: false, meaning, schema, fault }
    }
}

fn id() -> Value {
    schema::id()
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn number() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

/// One of these, and nothing else.
fn one_of(names: &[&str]) -> Value {
    json!({ "type": "string", "enum": names })
}

const BAD_ID: Option<Kind> = Some(kinds::BAD_ID);
const BAD_QUERY: Option<Kind> = Some(kinds::BAD_QUERY);
const BAD_CURSOR: Option<Kind> = Some(kinds::BAD_CURSOR);
const BAD_PRODUCER: Option<Kind> = Some(kinds::BAD_PRODUCER);

pub const RUN: Member = Member::path("run", "The run's id.", id, BAD_ID);
pub const SESSION: Member = Member::path("session", "The session's id.", id, BAD_ID);
pub const BLOB: Member = Member::path("blob", "The body's id, as a `href` of an envelope's `refs` has it.", id, BAD_ID);
pub const AGENT_PATH: Member = Member::path("agent", "The agent's id; `default` takes what names none.", id, BAD_ID);
pub const CONTROL_PATH: Member = Member::path("control", "The control's id.", id, BAD_ID);
pub const CHAT: Member = Member::path("chat", "The chat's id, as the client has it: it is the session's.", id, BAD_ID);
pub const THREAD_PATH: Member = Member::path("thread", "The thread's id, as the client has it: it is the session's.", id, BAD_ID);
pub const SCHEMA: Member =
    Member::path("file", "The document's name, such as `frames.schema.json` or `activities/message.schema.json`.", text, None);
pub const ASSET: Member = Member::path("file", "The file's name.", text, None);

pub const AUDIENCE: Member = Member::query(
    "audience",
    "As whom to look: `user` (the default) sees what is for users, `dashboard` also what is for operators, `internal` everything.",
    || one_of(&Audience::ALL.map(Audience::as_str)),
    Some(kinds::BAD_AUDIENCE),
);
pub const SURFACES: Member = Member::query(
    "surfaces",
    "Only what is meant for these surfaces: names with commas between. All, unless given.",
    || json!({ "type": "string", "examples": [Surface::NAMES.join(",")] }),
    None,
);
pub const SURFACE: Member = Member::query("surface", "Another name of `surfaces`; both are added up.", text, None);
pub const TYPE: Member =
    Member::query("type", "Only events of these classes: names with commas between. All, unless given.", text, None);
pub const AGENT: Member = Member::query("agentId", "Only what is of this agent.", text, None);
pub const ACTIVATION: Member =
    Member::query("activation", "Comes back in the answer as it is, so that a late one can be told apart.", text, None);
pub const LIMIT: Member =
    Member::query("limit", "Items of a page: 1 to 1000, to which it is brought; 1000 unless given.", number, BAD_QUERY);
pub const CURSOR: Member = Member::query("cursor", "The `nextCursor` of the page before.", number, BAD_QUERY);
pub const STATUS: Member =
    Member::query("status", "Only sessions of these statuses: names with commas between. All, unless given.", text, BAD_QUERY);
pub const SEARCH: Member = Member::query(
    "q",
    "Only sessions with this text in their title, preview or id, in any case. A page may then have fewer sessions than its limit, and a `nextCursor`.",
    text,
    None,
);
pub const NEEDS_ACTION: Member = Member::query(
    "needsAction",
    "`true` or `1`: only sessions with a pending action, of their own or of a descendant.",
    text,
    None,
);
pub const WINDOW_LIMIT: Member =
    Member::query("limit", "Activities: 1 to 1000, to which it is brought; 50 unless given.", number, BAD_QUERY);
pub const MESSAGES: Member =
    Member::query("messages", "Messages: 1 to 1000, to which it is brought; 50 unless given.", number, BAD_QUERY);
pub const PLACE: Member = Member::query(
    "cursor",
    "The `nextCursor` of the window after this one.",
    || json!({ "type": "string", "pattern": "^([0-9]+-[0-9]+-[0-9]+)?$" }),
    BAD_CURSOR,
);
pub const EVENTS_AFTER: Member =
    Member::query("after", "A sequence, or a `nextCursor` of this run: only envelopes after it.", text, BAD_CURSOR);
pub const EVENTS_BEFORE: Member =
    Member::query("before", "A sequence, or a `nextCursor` of this run: only envelopes before it.", text, BAD_CURSOR);
pub const SESSION_EVENTS_AFTER: Member = Member::query(
    "after",
    "A cursor of the session's stream, or a `nextCursor` or one of the `cursors` of this address: only envelopes after it.",
    text,
    BAD_CURSOR,
);
pub const SESSION_EVENTS_BEFORE: Member = Member::query(
    "before",
    "A cursor of the session's stream, or a `nextCursor` or one of the `cursors` of this address: only envelopes before it.",
    text,
    BAD_CURSOR,
);
pub const SESSION_AT: Member = Member::query(
    "at",
    "A cursor of the session's stream or of its events: as it was at that place in the order of commits. Now, unless given.",
    text,
    BAD_CURSOR,
);
pub const AT: Member = Member::query("at", "A sequence: as it was when that was the last. Now, unless given.", number, BAD_QUERY);

pub const FRAMES: Member = Member::query(
    "frames",
    "`activities` (the default): snapshots, then deltas. `events`: every visible envelope.",
    || one_of(&["activities", "events"]),
    BAD_QUERY,
);
pub const REPLAY: Member = Member::query(
    "replay",
    "`snapshots` (the default) of what is there; `deltas`: everything delta by delta, from the cursor or the start.",
    || one_of(&["snapshots", "deltas"]),
    BAD_QUERY,
);
pub const AFTER: Member = Member::query(
    "after",
    "Where to begin: a cursor (an `id:` of this stream), `start` (the default) or `now`.",
    || json!({ "type": "string", "pattern": "^(|start|now|[0-9a-f]+:[0-9]+)$" }),
    BAD_CURSOR,
);
pub const LAST_EVENT_ID: Member = Member::query(
    "last_event_id",
    "As the header of that name, for those that can send none; wins over `after`.",
    text,
    BAD_CURSOR,
);
pub const LAST_EVENT_ID_HEADER: Member =
    Member::header("Last-Event-ID", "The last cursor, as `EventSource` sends it; wins over the query.", text, BAD_CURSOR);
pub const FORMAT: Member = Member::query(
    "format",
    "The words of another client, of one run's stream: `ag-ui` are the events of AG-UI, `ai-sdk` is the UI message stream of the Vercel AI SDK.",
    text,
    Some(kinds::NOT_SERVED),
);
pub const VERSION: Member = Member::query(
    "version",
    "To a client of the AI SDK (of a run's stream, with `format=ai-sdk`): its major version; 5 unless given, which all understand.",
    || json!({ "type": "integer", "enum": [5, 6, 7] }),
    BAD_QUERY,
);
pub const CHILDREN: Member =
    Member::query("children", "`true` or `1`: also the runs of the sessions that descend from this one.", text, None);
pub const RUNS: Member = Member {
    is_required: true,
    ..Member::query("runs", "The runs' ids, 1 to 256 of them, with commas between.", text, Some(kinds::BAD_QUERY))
};

pub const PROTOCOL_VERSION: Member = Member::query(
    "protocolVersion",
    "With `format=ag-ui`: the version that the client speaks, `1.0`; an older one unless given, which all understand.",
    text,
    None,
);
pub const UNTIL: Member = Member::query(
    "until",
    "With `format=ag-ui`: `end` (the default) tells of what comes after a pause as another run, `pause` ends with the first one.",
    || json!({ "type": "string", "enum": ["end", "pause"] }),
    BAD_QUERY,
);
pub const THREAD: Member = Member::query("threadId", "The thread to look at: a session's id.", id, BAD_ID);
pub const JOINED: Member = Member::query("runId", "The run to join; wins over `threadId`.", id, BAD_ID);
pub const OFFSET: Member = Member::query(
    "offset",
    "Where the client stands in the run: an `id:` of its stream, or `-1` (the default), which is nowhere.",
    || json!({ "type": "string", "pattern": "^(|-1|start|[0-9a-f]+:[0-9]+)$" }),
    BAD_CURSOR,
);
pub const BEFORE: Member = Member::query(
    "before",
    "The `page.cursor` of the page after this one: only messages before it.",
    || json!({ "type": "string", "pattern": "^([0-9]+(-[0-9]+)?)?$" }),
    BAD_CURSOR,
);
pub const SUBAGENTS: Member = Member::query(
    "subagents",
    "`true` or `1`: the client knows `SUBAGENT_*` events (AG-UI from 0.0.59 on). Of one that says 1.0 it is taken for granted.",
    text,
    None,
);
pub const RUN_ID_HEADER: Member = Member::header(
    "X-Run-Id",
    "The run's id, as `TanStack` AI sends it; wins over the body. Who sends it gets `id:` before `data:`.",
    id,
    BAD_ID,
);

pub const TICKET: Member = Member::query(
    "ticket",
    "A ticket of `POST /v1/tickets`, in the place of a token, for those that can send no header.",
    text,
    None,
);
pub const WAIT: Member = Member::query(
    "wait",
    "How long to wait for something, in seconds: 0 (the default) to 60, to which it is brought.",
    number,
    BAD_QUERY,
);
pub const MAX: Member =
    Member::query("max", "Controls at once: 1 to 100, to which it is brought; 16 unless given.", number, BAD_QUERY);
pub const LEASE: Member = Member::query(
    "leaseSeconds",
    "How long they are this owner's, in seconds: 1 to 600; 30 unless given. Then somebody else may have them.",
    || json!({ "type": "integer", "minimum": 1, "maximum": 600 }),
    BAD_QUERY,
);

pub const SOURCE: Member = Member::query(
    "source",
    "Whose vocabulary the facts are in; `agentui` (the native one) unless given.",
    || one_of(&SOURCES.iter().map(|source| source.name).collect::<Vec<_>>()),
    Some(kinds::UNKNOWN_SOURCE),
);
pub const PRODUCER_ID: Member = Member::header(
    "Producer-Id",
    "Who numbers these facts: 1 to 256 bytes of visible ASCII. With it any request may be repeated, and nothing is stored twice.",
    || json!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[ -~]+$" }),
    BAD_PRODUCER,
);
pub const PRODUCER_EPOCH: Member =
    Member::header("Producer-Epoch", "The producer's own life: larger after each start, from 0.", number, BAD_PRODUCER);
pub const PRODUCER_SEQ: Member =
    Member::header("Producer-Seq", "The number of the body's first fact, from 0 in each epoch.", number, BAD_PRODUCER);
pub const RANGE: Member = Member::header(
    "Range",
    "One range of bytes (RFC 9110, section 14); several, or what is none, are answered with the whole.",
    || json!({ "type": "string", "examples": ["bytes=0-1023"] }),
    Some(kinds::BAD_RANGE),
);

/// The ids that a producer gives in the query, for facts that lack them, and what each names.
pub fn ids() -> impl Iterator<Item = (&'static str, &'static str)> {
    Ids::MEMBERS.iter().filter(|id| **id != "runId").map(|id| (*id, schema::purpose(id)))
}

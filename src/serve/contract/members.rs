//! The parameters of addresses: path segments, query members and headers.

use super::kinds::{self, ProblemKind};
use crate::model::{Audience, Ids, Surface, schema};
use crate::source::SOURCES;
use serde_json::{Value, json};

/// A parameter of an address.
pub struct Parameter {
    pub name: &'static str,
    pub location: ParameterLocation,
    pub is_required: bool,
    /// Meaning, unit, range and default.
    pub meaning: &'static str,
    /// The JSON Schema of its value.
    pub schema: fn() -> Value,
    /// The problem of an invalid value.
    pub problem: Option<ProblemKind>,
}

/// The location of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterLocation {
    Path,
    Query,
    Header,
}

impl ParameterLocation {
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

impl Parameter {
    const fn path(name: &'static str, meaning: &'static str, schema: fn() -> Value, problem: Option<ProblemKind>) -> Self {
        Self { name, location: ParameterLocation::Path, is_required: true, meaning, schema, problem }
    }

    const fn query(name: &'static str, meaning: &'static str, schema: fn() -> Value, problem: Option<ProblemKind>) -> Self {
        Self { name, location: ParameterLocation::Query, is_required: false, meaning, schema, problem }
    }

    const fn header(name: &'static str, meaning: &'static str, schema: fn() -> Value, problem: Option<ProblemKind>) -> Self {
        Self { name, location: ParameterLocation::Header, is_required: false, meaning, schema, problem }
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

/// A schema of an enumeration.
fn one_of(names: &[&str]) -> Value {
    json!({ "type": "string", "enum": names })
}

const BAD_ID: Option<ProblemKind> = Some(kinds::BAD_ID);
const BAD_QUERY: Option<ProblemKind> = Some(kinds::BAD_QUERY);
const BAD_CURSOR: Option<ProblemKind> = Some(kinds::BAD_CURSOR);
const BAD_PRODUCER: Option<ProblemKind> = Some(kinds::BAD_PRODUCER);

pub const RUN: Parameter = Parameter::path("run", "The run's id.", id, BAD_ID);
pub const SESSION: Parameter = Parameter::path("session", "The session's id.", id, BAD_ID);
pub const OWNER_PATH: Parameter = Parameter::path("owner", "The owner's name.", id, BAD_ID);
pub const BLOB: Parameter = Parameter::path("blob", "The blob's id, from a `href` of an envelope's `refs`.", id, BAD_ID);
pub const AGENT_PATH: Parameter =
    Parameter::path("agent", "The agent's id; `default` receives controls that name no agent.", id, BAD_ID);
pub const WEBHOOK: Parameter = Parameter::path("webhook", "The webhook's id.", text, None);
pub const CONTROL_PATH: Parameter = Parameter::path("control", "The control's id.", id, BAD_ID);
pub const LINK_PATH: Parameter = Parameter::path("link", "The link's id, which is not its secret.", id, BAD_ID);
pub const CHAT: Parameter = Parameter::path("chat", "The chat's id in the client, which is the session's id.", id, BAD_ID);
pub const CHAT_OR_STREAM: Parameter = Parameter::path(
    "chat",
    "The chat's id in the client, which is the session's id. With `startIndex` also the `x-workflow-run-id` of a stream, or a run's id.",
    id,
    BAD_ID,
);
pub const START_INDEX: Parameter = Parameter::query(
    "startIndex",
    "The number of chunks of the stream that the client has; a negative number asks for so many of the last ones. A whole number.",
    || json!({ "type": "integer" }),
    BAD_QUERY,
);
pub const THREAD_PATH: Parameter =
    Parameter::path("thread", "The thread's id in the client, which is the session's id.", id, BAD_ID);
pub const SCHEMA: Parameter =
    Parameter::path("file", "The document's name, such as `frames.schema.json` or `activities/message.schema.json`.", text, None);
pub const ASSET: Parameter = Parameter::path("file", "The file's name.", text, None);
pub const DOCUMENTATION_PAGE: Parameter =
    Parameter::path("page", "The page's name, such as `guides/approvals`; with `.md`, its Markdown.", text, None);

pub const AUDIENCE: Parameter = Parameter::query(
    "audience",
    "The audience of the answer: `user` (default) gets data for users, `dashboard` also data for operators, `internal` everything.",
    || one_of(&Audience::ALL.map(Audience::as_str)),
    Some(kinds::BAD_AUDIENCE),
);
pub const SURFACES: Parameter = Parameter::query(
    "surfaces",
    "Only data for these surfaces: comma-separated names. Default: all.",
    || json!({ "type": "string", "examples": [Surface::NAMES.join(",")] }),
    BAD_QUERY,
);
pub const SURFACE: Parameter = Parameter::query("surface", "An alias of `surfaces`; both are combined.", text, BAD_QUERY);
pub const TYPE: Parameter =
    Parameter::query("type", "Only events of these types: up to 256 comma-separated names. Default: all.", text, BAD_QUERY);
pub const AGENT: Parameter = Parameter::query("agentId", "Only data of this agent.", id, BAD_ID);
pub const ACP_AGENT: Parameter =
    Parameter::query("agentId", "The agent of new sessions, and of messages. Default: the session's own.", id, BAD_ID);
pub const ACP_SESSION: Parameter =
    Parameter::query("sessionId", "The session that `session/new` returns. Default: a new one each time.", id, BAD_ID);
pub const ACTIVATION: Parameter =
    Parameter::query("activation", "Repeated unchanged in the answer, so that a client can recognise a late answer.", text, None);
pub const LIMIT: Parameter = Parameter::query("limit", "Items per page: 1 to 1000 (clamped). Default: 1000.", number, BAD_QUERY);
pub const CURSOR: Parameter = Parameter::query("cursor", "The `nextCursor` of the previous page.", number, BAD_QUERY);
pub const PLACE_CURSOR: Parameter = Parameter::query("cursor", "The `nextCursor` of the previous page.", text, None);
pub const ATTENTION_LIMIT: Parameter =
    Parameter::query("limit", "Items per page: 1 to 200 (clamped). Default: 50.", number, BAD_QUERY);
pub const ATTENTION_CURSOR: Parameter = Parameter::query("cursor", "The `nextCursor` of the previous page.", text, BAD_CURSOR);
pub const LINKS_LIMIT: Parameter =
    Parameter::query("limit", "Items per page: 1 to 256 (clamped). Default: 256.", number, BAD_QUERY);
pub const LINKS_CURSOR: Parameter = Parameter::query(
    "cursor",
    "The `nextCursor` of the previous page.",
    || json!({ "type": "string", "pattern": "^([0-9]+-[0-9a-f]+)?$" }),
    BAD_CURSOR,
);
pub const ATTENTION_LIST: Parameter =
    Parameter::query("attention", "`true` or `1`: the list of pending actions. `agentId` filters it.", text, BAD_QUERY);
pub const SESSION_LIST: Parameter =
    Parameter::query("sessions", "`true` or `1`: the list of sessions, with the filters of `GET /v1/sessions`.", text, BAD_QUERY);
pub const RUN_LIST: Parameter = Parameter::query(
    "runs",
    "The list of runs of this filter, as `filter` of `GET /v1/runs` has it, without words; empty, `true` or `1`: of all runs. `since` counts from the opening. The list `runTotals` has one entry: its `total` and `facets`, at most once a second.",
    text,
    BAD_QUERY,
);
pub const RUN_LIST_SORT: Parameter = Parameter::query(
    "runsSort",
    "Which runs come before `Hydrated`: the first ones of this order, as `sort` of `GET /v1/runs` has it.",
    run_sort,
    BAD_QUERY,
);
pub const SINCE: Parameter = Parameter::query(
    "since",
    "Only runs that started since: a time back from now such as `90s`, `15m`, `24h` or `7d`, or a date or time. Default: 24h.",
    text,
    BAD_QUERY,
);
pub const STATS_BY: Parameter = Parameter::query(
    "by",
    "What buckets are of: `hour` or `day` (UTC) of the start, `agent` or `status`, or one of each, separated by a comma. Default: no buckets.",
    text,
    BAD_QUERY,
);
pub const STATS_FILTER: Parameter = Parameter::query(
    "filter",
    "Only runs that meet every term, as `filter` of `GET /v1/runs` has it, without words.",
    text,
    BAD_QUERY,
);
pub const LIST_LIMIT: Parameter = Parameter::query(
    "limit",
    "Sessions before `Hydrated`, the newest, and runs, the first ones: 1 to 10000 (clamped). Default: 10000. Others follow when they change.",
    number,
    BAD_QUERY,
);
pub const LIST_AFTER: Parameter = Parameter::query(
    "after",
    "A cursor: only later changes; a `Reset` precedes all entries if the server has forgotten some. `start` (default): all entries. `now`: only changes.",
    text,
    BAD_CURSOR,
);
pub const DECISIONS_CURSOR: Parameter = Parameter::query(
    "cursor",
    "The `nextCursor` of the previous page.",
    || json!({ "type": "string", "pattern": "^[0-9]+-[0-9]+$" }),
    BAD_CURSOR,
);
pub const STATUS: Parameter =
    Parameter::query("status", "Only sessions of these statuses: comma-separated names. Default: all.", text, BAD_QUERY);
pub const SEARCH: Parameter = Parameter::query(
    "q",
    "Only sessions with this text in their title, preview or id, ignoring case. A page may then have fewer sessions than its limit, and still a `nextCursor`.",
    text,
    None,
);
pub const SEARCH_IN: Parameter = Parameter::query("in", SEARCH_IN_MEANING, || one_of(&["title", "text"]), BAD_QUERY);
const SEARCH_IN_MEANING: &str = "Where `q` looks: `title`; or `text`: messages, reasoning, questions and errors of all its runs, and the title. A text must have all words of `q`, without regard to case and accents; the last word may be a beginning. The live list has no `text`. Default: title, preview and id.";
pub const RUN_FILTER: Parameter = Parameter::query("filter", RUN_FILTER_MEANING, text, BAD_QUERY);
const RUN_FILTER_MEANING: &str = "Only runs that meet every term, such as `status:failed agent:coder cost:>1 since:7d \"disk space\"`; the guide \"Find runs\" has all terms. With `filter` or `sort`, even an empty one, the answer has `total` and `facets`, and its runs have titles that the server makes, and highlights.";
pub const RUN_SORT: Parameter = Parameter::query(
    "sort",
    "`started`, `ended`, `cost`, `tokens` or `duration`, with `-` before it for descending. Runs without the value come last. Default: the newest first.",
    run_sort,
    BAD_QUERY,
);
fn run_sort() -> Value {
    json!({ "type": "string", "pattern": "^(-?(started|ended|cost|tokens|duration))?$" })
}

pub const RUNS_CURSOR: Parameter = Parameter::query(
    "cursor",
    "The `nextCursor` of the previous page, with the same `filter` and `sort`.",
    || json!({ "type": "string", "pattern": "^([0-9]+|-?[a-z]+\\.[0-9]*\\.[0-9]+)?$" }),
    BAD_QUERY,
);
pub const RUNS_OFFSET: Parameter = Parameter::query(
    "offset",
    "How many runs the page leaves out, from the first one or from `cursor` on. Filters with words take none. The answer has `total` and `facets`. Default: 0.",
    number,
    BAD_QUERY,
);
pub const SESSIONS_CURSOR: Parameter = Parameter::query(
    "cursor",
    "The `nextCursor` of the previous page, with the same `sort`.",
    || json!({ "type": "string", "pattern": "^([0-9]+(-[0-9]+)?)?$" }),
    BAD_QUERY,
);
pub const THREADS_CURSOR: Parameter = Parameter::query(
    "cursor",
    "The `nextCursor` of the previous page.",
    || json!({ "type": "string", "pattern": "^([0-9]+-[0-9]+)?$" }),
    BAD_QUERY,
);
pub const INCLUDE_ARCHIVED: Parameter =
    Parameter::query("includeArchived", "`true` or `1`: also archived threads. Default: only the others.", text, None);
pub const READY_FOR: Parameter = Parameter::query(
    "for",
    "`reads`: whether the server takes readers; a nearly full disk stops only facts. Absent: whether it takes facts and readers.",
    || one_of(&["reads"]),
    BAD_QUERY,
);
pub const SORT: Parameter = Parameter::query(
    "sort",
    "`created` (default): by when a session began. `updated`: by `lastActivity`. The newest first.",
    || one_of(&["updated", "created"]),
    BAD_QUERY,
);
pub const ARCHIVED: Parameter = Parameter::query(
    "archived",
    "`false` (default): sessions that are not archived. `true`: archived ones. `all`: both.",
    || one_of(&["true", "false", "all"]),
    BAD_QUERY,
);
pub const CREATED_BY: Parameter = Parameter::query(
    "createdBy",
    "Only sessions that a token of this `sub` began. As `user`, a client finds only its own.",
    text,
    None,
);
pub const UPDATED_AFTER: Parameter = Parameter::query(
    "updatedAfter",
    "Only sessions with a `lastActivity` after this time, RFC 3339.",
    || json!({ "type": "string", "format": "date-time" }),
    BAD_QUERY,
);
pub const SESSIONS_OWNER: Parameter = Parameter::query("owner", "Only sessions of this owner.", id, Some(kinds::BAD_ID));
pub const OWNER: Parameter = Parameter::query(
    "owner",
    "Whose the session is that begins. The token's `owners` must cover it. Default: the token's `owner`.",
    id,
    Some(kinds::BAD_ID),
);
pub const FILE_NAME: Parameter = Parameter::query(
    "name",
    "The name of the file: at most 255 characters, no control characters.",
    text,
    Some(kinds::BAD_QUERY),
);
pub const NEEDS_ACTION: Parameter = Parameter::query(
    "needsAction",
    "`true` or `1`: only sessions with a pending action, their own or a descendant's.",
    text,
    None,
);
pub const WINDOW_LIMIT: Parameter = Parameter::query("limit", "Activities: 1 to 1000 (clamped). Default: 50.", number, BAD_QUERY);
pub const MESSAGES: Parameter = Parameter::query("messages", "Messages: 1 to 1000 (clamped). Default: 50.", number, BAD_QUERY);
pub const WINDOW_CURSOR: Parameter = Parameter::query(
    "cursor",
    "The `nextCursor` of the next newer window.",
    || json!({ "type": "string", "pattern": "^([0-9]+-[0-9]+-[0-9]+)?$" }),
    BAD_CURSOR,
);
pub const EVENTS_AFTER: Parameter =
    Parameter::query("after", "A sequence, or a `nextCursor` of this run: only envelopes after it.", text, BAD_CURSOR);
pub const EVENTS_BEFORE: Parameter =
    Parameter::query("before", "A sequence, or a `nextCursor` of this run: only envelopes before it.", text, BAD_CURSOR);
pub const SESSION_EVENTS_AFTER: Parameter = Parameter::query(
    "after",
    "A cursor of the session's stream, or a `nextCursor` or one of the `cursors` of this address: only envelopes after it.",
    text,
    BAD_CURSOR,
);
pub const SESSION_EVENTS_BEFORE: Parameter = Parameter::query(
    "before",
    "A cursor of the session's stream, or a `nextCursor` or one of the `cursors` of this address: only envelopes before it.",
    text,
    BAD_CURSOR,
);
pub const SESSION_AT: Parameter = Parameter::query(
    "at",
    "A cursor of the session's stream or of its events: the state at that position in commit order. Default: now.",
    text,
    BAD_CURSOR,
);
pub const AT: Parameter = Parameter::query("at", "A sequence: the state after that envelope. Default: now.", number, BAD_QUERY);

pub const FRAMES: Parameter = Parameter::query(
    "frames",
    "`activities` (default): snapshots, then deltas. `events`: every visible envelope.",
    || one_of(&["activities", "events"]),
    BAD_QUERY,
);
pub const DURABLE_FRAMES: Parameter = Parameter::query(
    "frames",
    "The items: the envelopes as they are stored (default), or frames, as `GET …/stream` sends them: `events`, or `activities` with snapshots first.",
    || one_of(&["activities", "events"]),
    BAD_QUERY,
);
pub const DURABLE_FORMAT: Parameter = Parameter::query(
    "format",
    "The items are events for another client (for a run): `ag-ui` for AG-UI, `ai-sdk` for the Vercel AI SDK. They have every change.",
    text,
    Some(kinds::NOT_SERVED),
);
pub const DURABLE_OFFSET: Parameter = Parameter::query(
    "offset",
    "Where to start: a `Stream-Next-Offset` of this stream, `-1` for its start, or `now` for its end. Required with `live`. Default: `-1`.",
    || json!({ "type": "string", "pattern": "^(-1|now|[0-9a-f]{16}_[0-9]{20})$" }),
    BAD_CURSOR,
);
pub const LIVE: Parameter = Parameter::query(
    "live",
    "Absent: the answer has what is there now. `long-poll`: it waits for an item, up to 20 s. `sse`: server-sent events for a minute.",
    || one_of(&["long-poll", "sse"]),
    BAD_QUERY,
);
pub const STREAM_CURSOR: Parameter = Parameter::query(
    "cursor",
    "The `Stream-Cursor` of the previous live answer. It keeps caches from repeating that answer; the next one is larger.",
    || json!({ "type": "string", "pattern": "^[0-9]{1,20}$" }),
    BAD_CURSOR,
);
pub const IF_NONE_MATCH: Parameter =
    Parameter::header("If-None-Match", "The `ETag` of an earlier answer to the same request.", text, None);
pub const REPLAY: Parameter = Parameter::query(
    "replay",
    "`snapshots` (default): the current state. `deltas`: every delta from the cursor or the start.",
    || one_of(&["snapshots", "deltas"]),
    BAD_QUERY,
);
pub const AFTER: Parameter = Parameter::query(
    "after",
    "Where to start: a cursor (an `id:` of this stream), `start` (default) or `now`.",
    || json!({ "type": "string", "pattern": "^(|start|now|[0-9a-f]+:[0-9]+)$" }),
    BAD_CURSOR,
);
pub const LAST_EVENT_ID: Parameter = Parameter::query(
    "last_event_id",
    "As the header of that name, for clients that cannot send it. Overrides `after`.",
    text,
    BAD_CURSOR,
);
pub const LAST_EVENT_ID_HEADER: Parameter =
    Parameter::header("Last-Event-ID", "The last cursor, as `EventSource` sends it. Overrides the query.", text, BAD_CURSOR);
pub const FORMAT: Parameter = Parameter::query(
    "format",
    "The format of one run's stream for another client: `ag-ui` for AG-UI events, `ai-sdk` for the UI message stream of the Vercel AI SDK.",
    text,
    Some(kinds::NOT_SERVED),
);
pub const VERSION: Parameter = Parameter::query(
    "version",
    "The major version of an AI SDK client (with `format=ai-sdk`). Default: 5, which all understand.",
    || json!({ "type": "integer", "enum": [5, 6, 7] }),
    BAD_QUERY,
);
pub const PROOF: Parameter = Parameter::query(
    "proof",
    "`true` or `1`: add lines that prove the rows, each an object with the single member `proof`. `proscenium verify` checks them.",
    text,
    None,
);
pub const CHILDREN: Parameter =
    Parameter::query("children", "`true` or `1`: include the runs of descendant sessions.", text, None);
pub const ERASE_CHILDREN: Parameter = Parameter::query(
    "children",
    "`true`: erase the child sessions that the token covers, too. `false`: keep them without their parent. Absent: a session that has some is refused.",
    || json!({ "type": "boolean" }),
    BAD_QUERY,
);
pub const ERASE_BRANCHES: Parameter = Parameter::query(
    "branches",
    "`true`: erase the branches of what is erased, too: they need what they have of it. Otherwise a session that has some is refused.",
    || json!({ "type": "boolean" }),
    BAD_QUERY,
);
pub const ERASE_WAIT: Parameter =
    Parameter::query("wait", "How long to wait for the end, in seconds: 0 to 10 (clamped). Default: 10.", number, BAD_QUERY);
pub const RUNS: Parameter = Parameter {
    is_required: true,
    ..Parameter::query(
        "runs",
        "1 to 256 run ids, comma-separated. If it repeats, each value is one id, which may contain commas.",
        text,
        Some(kinds::BAD_QUERY),
    )
};

pub const PROTOCOL_VERSION: Parameter = Parameter::query(
    "protocolVersion",
    "With `format=ag-ui`: the client's AG-UI version, `1.0`. Default: an older version, which all understand.",
    text,
    None,
);
pub const UNTIL: Parameter = Parameter::query(
    "until",
    "With `format=ag-ui`: `end` (default) continues after a pause as another run, `pause` ends at the first pause.",
    || json!({ "type": "string", "enum": ["end", "pause"] }),
    BAD_QUERY,
);
pub const THREAD: Parameter = Parameter::query("threadId", "The thread to load: a session's id.", id, BAD_ID);
pub const RUN_TO_JOIN: Parameter = Parameter::query("runId", "The run to join. Overrides `threadId`.", id, BAD_ID);
pub const OFFSET: Parameter = Parameter::query(
    "offset",
    "TanStack AI's position in the run: an `id:` of its stream, or `-1` for the start. With it, the events have that client's form.",
    || json!({ "type": "string", "pattern": "^(|-1|start|[0-9a-f]+:[0-9]+)$" }),
    BAD_CURSOR,
);
pub const BEFORE: Parameter = Parameter::query(
    "before",
    "The `page.cursor` of the next newer page: only messages before it.",
    || json!({ "type": "string", "pattern": "^([0-9]+(-[0-9]+)?)?$" }),
    BAD_CURSOR,
);
pub const SUBAGENTS: Parameter = Parameter::query(
    "subagents",
    "`true` or `1`: the client understands `SUBAGENT_*` events (AG-UI 0.0.59 and later). Implied by version 1.0.",
    text,
    None,
);
pub const RUN_ID_HEADER: Parameter = Parameter::header(
    "X-Run-Id",
    "The run's id, as `TanStack` AI sends it. Overrides the body. The stream then has `id:` before `data:`.",
    id,
    BAD_ID,
);

pub const TICKET: Parameter = Parameter::query(
    "ticket",
    "A ticket of `POST /v1/tickets` instead of a token, for clients that cannot send headers.",
    text,
    None,
);
pub const WAIT: Parameter =
    Parameter::query("wait", "How long to wait for controls, in seconds: 0 (default) to 60 (clamped).", number, BAD_QUERY);
pub const MAX: Parameter =
    Parameter::query("max", "Maximum number of controls: 1 to 100 (clamped). Default: 16.", number, BAD_QUERY);
pub const LEASE: Parameter = Parameter::query(
    "leaseSeconds",
    "Lease duration in seconds: 1 to 600. Default: 30. After it another owner may claim the controls.",
    || json!({ "type": "integer", "minimum": 1, "maximum": 600 }),
    BAD_QUERY,
);

pub const SOURCE: Parameter = Parameter::query(
    "source",
    "The vocabulary of the facts. Default: `agentui`, the native one.",
    || one_of(&SOURCES.iter().map(|source| source.name).collect::<Vec<_>>()),
    Some(kinds::UNKNOWN_SOURCE),
);
pub const PRODUCER_ID: Parameter = Parameter::header(
    "Producer-Id",
    "The producer that numbers these facts: 1 to 256 bytes of visible ASCII. With it, repeating a request stores nothing twice.",
    || json!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[ -~]+$" }),
    BAD_PRODUCER,
);
pub const PRODUCER_EPOCH: Parameter =
    Parameter::header("Producer-Epoch", "The producer's epoch, from 0; larger after each start.", number, BAD_PRODUCER);
pub const PRODUCER_SEQ: Parameter = Parameter::header(
    "Producer-Seq",
    "The number of the body's first fact, from 0 in each epoch. `9007199254740991` with an empty array asks for the next number: \
     the answer is 409 `producer_gap` with `expected`.",
    number,
    BAD_PRODUCER,
);
pub const RANGE: Parameter = Parameter::header(
    "Range",
    "One byte range (RFC 9110, section 14). Several ranges, or an invalid header, get the whole body.",
    || json!({ "type": "string", "examples": ["bytes=0-1023"] }),
    Some(kinds::BAD_RANGE),
);

/// The ids that a producer may set in the query for facts that lack them, with their meaning.
pub fn ids() -> impl Iterator<Item = (&'static str, &'static str)> {
    Ids::MEMBERS.iter().filter(|id| **id != "runId").map(|id| (*id, schema::purpose(id)))
}

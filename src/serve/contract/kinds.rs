//! Every problem that a client can receive: its status, code, meaning and remedy.
//!
//! A [`Problem`](crate::serve::http::problem::Problem) whose code and status have no row is a bug, and stops a debug
//! build. `docs/src/reference/problems.md` and `/openapi.json` are generated from this table. Each address in
//! [`operations`](super::operations) lists the problems that it can answer with.

use http::StatusCode;

/// One row: a code with its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemKind {
    pub status: u16,
    /// The stable code that programs branch on.
    pub code: &'static str,
    pub meaning: &'static str,
    pub remedy: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $status:literal $code:literal, $meaning:literal, $remedy:literal;)*) => {
        $(#[doc = $meaning] pub const $name: ProblemKind = ProblemKind { status: $status, code: $code, meaning: $meaning, remedy: $remedy };)*

        /// All rows, by status.
        pub const KINDS: &[ProblemKind] = &[$($name),*];
    };
}

kinds! {
    BAD_AUDIENCE = 400 "bad_audience", "`audience` names an unknown audience", "Use `user`, `dashboard` or `internal`";
    BAD_CURSOR = 400 "bad_cursor", "A cursor, or a list position, is not one that this server issued", "Send it unchanged, or omit it to start again";
    BAD_HEAD = 400 "bad_head", "The request's head is not valid HTTP/1.1, or two parsers could read it differently", "`detail` names the header or the line; send it as RFC 9112 specifies";
    BAD_ID = 400 "bad_id", "An id in the path, the query or a message is invalid", "Use 1 to 256 bytes of UTF-8 without control characters";
    BAD_PRODUCER = 400 "bad_producer", "The producer's id, epoch and sequence are incomplete or not numbers", "Send all three, or none";
    BAD_QUERY = 400 "bad_query", "A member of the query, or of a message, is invalid", "`detail` states the allowed values";
    BAD_SUBPROTOCOL = 400 "bad_subprotocol", "A WebSocket client offers only unsupported subprotocols", "Offer `proscenium.v1`, or none";
    BODY_CUT_OFF = 400 "body_cut_off", "The body ended early", "Send it again; producer numbers prevent duplicates";
    MISSING_MEMBER = 400 "missing_member", "A WebSocket message lacks a member that its `op` requires", "Add the member";
    NOT_JSON = 400 "not_json", "A JSON body or a message is not JSON; nothing was accepted", "Send JSON";
    NO_OBJECT_MESSAGE = 400 "not_an_object", "A WebSocket message is not a JSON object", "Send one JSON object per message";
    EMPTY_BODY = 400 "empty_body", "The body has no bytes", "Send the bytes of the file";
    TLS_REQUIRED = 400 "tls_required", "The request is plain HTTP, but the port requires TLS", "Use `https://`";
    UNKNOWN_OP = 400 "unknown_op", "A WebSocket message has an unknown `op`", "`expected` lists the ops";
    UNKNOWN_SOURCE = 400 "unknown_source", "`source` names an unknown vocabulary", "`expected` lists the sources";
    UNAUTHENTICATED = 401 "unauthenticated", "The request has no valid token, or its token has ended", "Send a valid token (`Authorization: Bearer`) or a ticket; `reason` says why an open stream ended";
    FORBIDDEN = 403 "forbidden", "The token does not permit the request; the answer does not reveal whether the resource exists", "`missing` names what a token would need";
    FOREIGN_ORIGIN = 403 "foreign_origin", "The request comes from a page of another origin, or writes for a user of a proxy without an `Origin`", "Serve the page from this address, allow its origin with `--cors-origin`, or, behind a proxy, forward `Host`";
    UNKNOWN_HOST = 403 "unknown_host", "The server has no authentication, and `host` is not one of its own names", "Use `localhost` or the IP address, allow the name with `--cors-origin http://host` or `--listen`, or require tokens with `--auth-key`";
    PRODUCER_FENCED = 403 "producer_fenced", "A producer with the same id and a newer epoch has taken over", "Stop, or start again with a larger epoch";
    NO_CLUSTER = 404 "no_cluster", "The server belongs to no cluster", "Start it with `--cluster`";
    NO_SUCH_ADDRESS = 404 "no_such_address", "The path is unknown", "See `/openapi.json`";
    NO_SUCH_ASSET = 404 "no_such_asset", "The page has no such file", "Start at `/`";
    NO_SUCH_PAGE = 404 "no_such_page", "The documentation has no such page, or this build contains none", "`/docs/` lists the pages";
    NO_SUCH_BLOB = 404 "no_such_blob", "The blob does not exist, or not for this audience", "Follow the `refs` of a visible envelope";
    NO_SUCH_WEBHOOK = 404 "no_such_webhook", "The webhook does not exist", "GET `/v1/webhooks` lists those that do";
    NO_SUCH_DELIVERY = 404 "no_such_delivery", "The webhook remembers no delivery with this id", "GET its deliveries lists those that it does";
    NO_SUCH_SUBSCRIPTION = 404 "no_such_subscription", "No push subscription of the person has this address", "GET `/v1/push` lists those that exist";
    NO_SUCH_CONTROL = 404 "no_such_control", "No open control has this id: it is unknown, or closed", "Reload the list of controls";
    NO_SUCH_HOLD = 404 "no_such_hold", "No hold is on exactly this", "GET `/v1/holds` lists all";
    NO_SUCH_LINK = 404 "no_such_link", "No open link has this id or secret: it is unknown, revoked or past its end, or what it showed was erased", "Ask its maker for another one";
    NO_SUCH_MESSAGE = 404 "no_such_message", "The run or session has no such message, or not for this audience", "Send the `activityId` of one of its messages";
    NO_SUCH_RUN = 404 "no_such_run", "The run does not exist", "A stream of it would wait for its first fact";
    NO_SUCH_SCHEMA = 404 "no_such_schema", "The schema does not exist", "`detail` lists the schemas";
    NO_SUCH_SESSION = 404 "no_such_session", "The session does not exist", "A stream of it would wait for its first fact";
    NO_SUCH_POINT = 404 "no_such_point", "The session has no such point that the client may see", "Take the `runId` and the `sequence` of an envelope of the session, or sequence 0";
    METHOD_NOT_ALLOWED = 405 "method_not_allowed", "The path does not accept this method", "See the `allow` header and `/openapi.json`";
    BODY_SILENT = 408 "body_silent", "A streamed body was silent for too long; earlier lines were accepted", "Send a blank line now and then; continue after `accepted` facts";
    BODY_TOO_SLOW = 408 "body_too_slow", "A JSON body arrived too slowly; nothing was accepted", "Send it faster, or as `application/x-ndjson`";
    ACTION_NOT_PENDING = 409 "action_not_pending", "The action that a control answers is not pending, or control `controlId` has decided it", "Reload it: another client answered first, or it has ended";
    ACTION_CHANGED = 409 "action_changed", "The action changed at `sequence`, after what the decision is about", "Show it again, then decide";
    ACTION_EXPIRED = 409 "action_expired", "The deadline of the action that a control answers has passed", "Wait until the agent asks again";
    APPROVAL_NOT_COUNTED = 409 "approval_not_counted", "The action needs `need` approvals by different people, and this one does not count; nothing was recorded", "`detail` says why: let another person approve, with a token of its own, or reject";
    OTHER_OWNER = 409 "other_owner", "The session belongs to another owner than the request names; nothing was accepted", "Omit `owner`, or begin another session";
    HAS_CHILDREN = 409 "has_children", "The session has `count` child sessions, the first of which `sessionIds` names; nothing was erased", "Erase them with it: `children=true`; or keep them without their parent: `children=false`";
    HAS_BRANCHES = 409 "has_branches", "Branches have a part of the session or of the run; `sessionIds` names the first of those that the client may see; nothing was erased", "Erase them with the session: `branches=true`";
    HELD = 409 "held", "A legal hold keeps what would be erased, or a part of it; nothing was erased", "`detail` says what the hold is on; a token with `admin` lifts it";
    ERASURE_UNDER_WAY = 409 "erasure_under_way", "What is to be held is being erased, which nothing stops; no hold was set", "Restore a backup, if one has it";
    SESSION_EXISTS = 409 "session_exists", "A session has the id that the branch is to have", "Omit `sessionId`, or choose another one";
    CONTROL_CLAIMED = 409 "control_claimed", "The control cannot be withdrawn: its owner has claimed it", "Wait for its answer";
    CONTROL_CONFLICT = 409 "control_conflict", "Another control already uses this `controlId`", "Use another id, or omit it";
    CONTROL_REFUSED = 409 "control_refused", "In a stream: the agent refused the request", "`reason` says why; make another request";
    ID_IN_USE = 409 "id_in_use", "The WebSocket already has a subscription or claim with this id", "End that one, or use another id";
    LINK_HAS_DECIDED = 409 "link_has_decided", "The share link has decided an action, by the control `controlId`; it decides once", "Ask its maker for another one";
    LEASE_LOST = 409 "lease_lost", "The control is not held under this lease", "Claim again";
    NO_FILES = 409 "no_files", "The server keeps its store in memory, so a backup has no files", "Start it with `--store embedded`";
    MARKS_NEED_TOKEN = 409 "marks_need_token", "The server has no authentication, so it does not know whose marks these are", "Keep them in the page";
    TOO_MUCH_FEEDBACK = 409 "too_much_feedback", "`limit` people have given feedback about this message or run; nothing was recorded", "Give feedback about another message, or about the run";
    WOULD_SUPERSEDE = 409 "would_supersede", "The agent waits for decisions about `actionIds`, which the message would supersede; nothing was recorded", "Decide, send the control `queue`, or repeat the request with `\"supersede\": true`";
    WEBHOOK_CONFIGURED = 409 "webhook_configured", "The webhook comes from the configuration file", "Remove it there, and start the server again";
    PRODUCER_GAP = 409 "producer_gap", "Facts before this one are missing, by the producer's numbers", "Continue from `expected`";
    RUN_EXISTS = 409 "run_exists", "The run that the client names exists already", "Use a new id for each run";
    RUN_OF_ANOTHER_THREAD = 409 "run_of_another_thread", "The run that the client names belongs to another thread", "Use a unique id for each run";
    RUN_ERASED = 409 "run_erased", "The run was erased while its body was being sent", "Send the facts again; they start a new epoch of the run";
    RUN_ENDED = 409 "run_ended", "The control applies only to an active run, and the run has ended", "Start another run";
    EPOCH_CHANGED = 410 "epoch_changed", "The cursor is of an earlier epoch of the log", "Start again without it";
    COMPACTED = 410 "compacted", "The log of the run was compacted and lacks changes, so a client cannot resume its stream by a count", "Load the chat";
    ERASED = 410 "erased", "The run, or the session that it is about, was erased less than a day ago; nothing was accepted", "Use another id; a run that was erased alone begins again with the next facts";
    BODY_TOO_LARGE = 413 "body_too_large", "A JSON body or a message is larger than `limit` bytes", "Send it in parts, or as `application/x-ndjson`";
    TOO_MANY_FACTS = 413 "too_many_facts", "A JSON body, or a `publish` message, has more than `limit` facts; nothing was accepted", "Send it in parts, or as `application/x-ndjson`";
    ENVELOPES_TOO_LARGE = 413 "envelopes_too_large", "The envelopes of a body take `bytes` bytes, more than `limit`, because each repeats the request's ids; nothing was accepted", "Send fewer facts at once, or use `application/x-ndjson`";
    CONTROL_TOO_LARGE = 413 "control_too_large", "A control, its answer, or a client's message to an agent is larger than `limit` bytes", "Store large content elsewhere, and send a reference";
    FACT_TOO_LARGE = 413 "fact_too_large", "A fact is larger than `limit` bytes", "Store large output elsewhere, and send a reference";
    UNSUPPORTED_MEDIA_TYPE = 415 "unsupported_media_type", "The body's media type is not supported", "Send `application/json` or `application/x-ndjson`; on a WebSocket, text messages";
    BAD_RANGE = 416 "bad_range", "The range lies outside the body's `limit` bytes", "Ask for less, or for all";
    BAD_CONTROL = 422 "bad_control", "The control does not fit its target", "`member` and `expected` name the member and its allowed values";
    BAD_MEMBER = 422 "bad_member", "A member of a fact or a body is missing or invalid", "`member` and `expected` name the member and its allowed values";
    ACTIVITIES_TOO_LARGE = 422 "activities_too_large", "The activities take more than `limit` bytes, too many for one answer of a durable stream", "Omit `frames`, and read the envelopes";
    SESSION_TOO_LARGE = 422 "session_too_large", "The session has more than `limit` logs, too many for one stream or one merge", "Read its runs one by one";
    NO_LIVE_LIST = 422 "no_live_list", "The server has no live list of threads for CopilotKit, and `/copilotkit/info` says so", "Fetch the list again";
    NO_TYPE = 422 "no_type", "A fact has no type", "Add the member that `expected` names";
    NOT_AN_OBJECT = 422 "not_an_object", "A fact is not a JSON object", "Send an object";
    BAD_LINE = 422 "not_json", "A line of a streamed body is not JSON; earlier lines were accepted", "Continue from `line`";
    TOO_DEEP = 422 "too_deep", "The JSON nests deeper than `limit` levels", "Flatten it, or send the inner part as text";
    TOO_MANY_PRODUCERS = 422 "too_many_producers", "The run already has `limit` numbered producers", "Reuse a known producer id, or send without numbers";
    TOO_MANY_SUBJECTS = 422 "too_many_subjects", "The log already has `limit` calls, messages, parts and other subjects; nothing was accepted", "Start another run";
    TOO_MANY_SUBSCRIPTIONS = 422 "too_many_subscriptions", "The WebSocket has `limit` subscriptions or claims open", "End some, or open another WebSocket";
    UPGRADE_REQUIRED = 426 "upgrade_required", "The address accepts only WebSocket connections", "Connect with a WebSocket client, over HTTP/1.1";
    PUBLISH_RATE = 429 "publish_rate", "The producer publishes faster than `limit` facts per second; nothing was accepted", "Retry after `retryAfter`";
    QUOTA_EXCEEDED = 429 "quota_exceeded", "The owner of the session has used up `quota`, whose `limit` is named; nothing was accepted", "Erase some, or wait for a turn; or raise the quota: `--owner-sessions-max`, `--owner-bytes-max`, `--owner-turns-max`, `--owner-publish-rate`";
    TOO_MANY_CONNECTIONS_OF_CLIENT = 429 "too_many_connections_of_client", "The client has `limit` connections open", "Close some, or raise `--connections-per-client-max`";
    TOO_MANY_CONNECTIONS_OF_TOKEN = 429 "too_many_connections_of_token", "The token's `sub` has `limit` streams, sockets, streamed bodies and claims open", "Close some, or raise `--connections-per-token-max`";
    TOO_MANY_SECRETS = 429 "too_many_secrets", "The server would hold more than `limit` bytes of secrets for open controls of the sender; nothing was recorded", "Send smaller secrets, or retry when owners have claimed some";
    TOO_MANY_CONTROLS = 429 "too_many_controls", "`limit` controls of the run or session wait for their owner", "Retry when the owner has claimed some";
    TOO_MANY_ATTACHMENTS = 429 "too_many_attachments", "`limit` attachments of the last day are kept, of the session or of the server; nothing was added", "Send some of them with messages, or try again tomorrow";
    TOO_MANY_BRANCHES = 429 "too_many_branches", "The session has `limit` branches, or is a branch of too many branches", "Erase some of them";
    TOO_MANY_BACKUPS = 429 "too_many_backups", "`limit` backups are being read", "Retry when one has ended";
    TOO_MANY_WEBHOOKS = 429 "too_many_webhooks", "The server has `limit` webhooks", "Remove one";
    TOO_MANY_PUSH_ADDRESSES = 429 "too_many_push_addresses", "`limit` push addresses are known, of the task, the person or the server", "Delete one";
    TOO_MANY_DEVICES = 429 "too_many_devices", "`limit` devices are subscribed, of the person or of the server", "Unsubscribe one";
    TOO_MANY_HOLDS = 429 "too_many_holds", "The server has `limit` legal holds", "Lift some, or hold their owner";
    TOO_MANY_LINKS = 429 "too_many_links", "`limit` share links are open, of their maker or of the server", "Revoke some, or wait until they end";
    LINK_RATE = 429 "link_rate", "The share link was opened too often in this minute", "Retry after `retryAfter`";
    TOO_MANY_TICKETS = 429 "too_many_tickets", "`limit` tickets are outstanding", "Use them, or retry in a minute";
    HEAD_TOO_LARGE = 431 "head_too_large", "The request's head is larger than `limit` bytes or headers", "Send fewer or shorter headers, or raise `--head-max`";
    INTERNAL_ERROR = 500 "internal_error", "The server failed to answer", "See the server's log; retrying is safe";
    STORE_FAILED = 500 "store_failed", "The store failed to answer", "See the server's log; if the server stopped, restart it";
    STORED_STATE_UNREADABLE = 500 "stored_state_unreadable", "The stored state of one run or session is unreadable; `detail` names it and the entry, and others are unaffected", "Stop the server and run `proscenium doctor`; then restore a backup, or delete the run";
    NOT_SERVED = 501 "not_served", "The stream's `format` is not supported", "Omit `format`";
    UNSUPPORTED_TRANSFER_CODING = 501 "unsupported_transfer_coding", "The body has a transfer coding other than `chunked`", "Send it without a coding, or chunked";
    NO_LEADER = 503 "no_leader", "The cluster has no leader, or its leader or NATS does not answer", "Retry after `retryAfter`; producer numbers prevent duplicates";
    BEHIND = 503 "behind", "The node has not received the commits up to the request's cursor yet", "Retry after `retryAfter`, or use another node";
    NOT_FOLLOWING = 503 "not_following", "`/readyz`: the node does not receive the commits of its cluster, or has not received all of them since its start", "Wait, or check the connection to NATS";
    ARCHIVE_UNAVAILABLE = 503 "archive_unavailable", "The run is archived, and object storage does not give or delete its object now; `detail` names both, and nothing was lost", "Retry after `retryAfter`; see [old runs](../guides/old-runs.md)";
    KEYS_UNAVAILABLE = 503 "keys_unavailable", "The server has no keys of its identity provider yet, because that did not answer", "Retry after `retryAfter`; the server's log says why";
    STOPPING = 503 "stopping", "The server is stopping", "Use another server, or retry later";
    BUSY = 503 "busy", "Ingest is overloaded; nothing was accepted", "Retry after `retryAfter`";
    DISK_NEARLY_FULL = 503 "disk_full", "`/readyz`: the store's disk has less free space than its reserve", "Free some space, or lower `--disk-reserve`";
    STORE_HAS_FAILED = 503 "store_failed", "`/readyz`: the store has failed, and the server is stopping", "See the server's log; restart the server";
    TOO_MANY_CONNECTIONS = 503 "too_many_connections", "The server has `limit` connections open", "Retry later, or raise `--connections-max`";
    CONTROL_EXPIRED = 504 "control_expired", "In a stream: no worker took the request in time, or it was withdrawn", "Check that a worker of the agent runs, and retry";
    DISK_FULL = 507 "disk_full", "The store's disk has less than `limit` bytes free; writes are refused, reads continue", "Free some space, or lower `--disk-reserve`; retry after `retryAfter`";
    TOO_MANY_RUNS = 507 "too_many_runs", "The store has `limit` runs and sessions, its limit", "Erase some, or raise `--runs-max`";
}

/// Finds the row of a status and a code.
#[must_use]
pub fn find(status: StatusCode, code: &str) -> Option<&'static ProblemKind> {
    KINDS.iter().find(|kind| kind.status == status.as_u16() && kind.code == code)
}

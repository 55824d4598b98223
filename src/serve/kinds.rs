//! Every problem that a client can be told of: its status, its code, what it means, what to do.
//!
//! One table. A [`Problem`](super::problem::Problem) of a code and a status that are not in it is a mistake of ours, which stops a
//! program that is built to find such; `docs/src/reference/problems.md` and `/openapi.json` are generated from it. What an
//! address can answer stands with the address, in [`routes`](super::routes).

use http::StatusCode;

/// One row: a code, with the status that it comes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub status: u16,
    /// Stable; what programs branch on.
    pub code: &'static str,
    pub meaning: &'static str,
    pub remedy: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $status:literal $code:literal, $meaning:literal, $remedy:literal;)*) => {
        $(#[doc = $meaning] pub const $name: Kind = Kind { status: $status, code: $code, meaning: $meaning, remedy: $remedy };)*

        /// All of them, by status.
        pub const KINDS: &[Kind] = &[$($name),*];
    };
}

kinds! {
    BAD_AUDIENCE = 400 "bad_audience", "`audience` is none that there is", "ask for `user`, `dashboard` or `internal`";
    BAD_CURSOR = 400 "bad_cursor", "a cursor, or a place in a list, that was never given out here", "use one as it was given, or begin anew without";
    BAD_HEAD = 400 "bad_head", "the head of a request is not HTTP/1.1, or two parsers could read it in two ways", "`detail` names the header or the line; send it as RFC 9112 says";
    BAD_ID = 400 "bad_id", "an id in the address, the query or a message cannot be one", "1 to 256 bytes of UTF-8 without control characters";
    BAD_PRODUCER = 400 "bad_producer", "of a producer's id, epoch and number some are missing or no numbers", "send all three, or none";
    BAD_QUERY = 400 "bad_query", "a member of the query, or of a message, is not what it must be", "`detail` says what it must be";
    BAD_SUBPROTOCOL = 400 "bad_subprotocol", "a WebSocket offers subprotocols, and none is spoken here", "offer `proscenium.v1`, or none";
    BODY_CUT_OFF = 400 "body_cut_off", "the body ended before it was whole", "send it again; with producer numbers nothing is stored twice";
    MISSING_MEMBER = 400 "missing_member", "a WebSocket message lacks a member that its `op` needs", "add it";
    NOT_JSON = 400 "not_json", "a JSON body or a message is not JSON; nothing of it was kept", "send JSON";
    NO_OBJECT_MESSAGE = 400 "not_an_object", "a WebSocket message is JSON and no object", "send one JSON object a message";
    TLS_REQUIRED = 400 "tls_required", "plain HTTP came to a port that speaks TLS", "use `https://`";
    UNKNOWN_OP = 400 "unknown_op", "a WebSocket message asks for what nobody does", "`expected` lists what there is";
    UNKNOWN_SOURCE = 400 "unknown_source", "`source` names a vocabulary that is not understood here", "`expected` lists those that are";
    UNAUTHENTICATED = 401 "unauthenticated", "nobody says who asks, or what they bring is not good, or not any more", "bring a good token (`Authorization: Bearer`), or a ticket; `reason` says why an open stream ended";
    FORBIDDEN = 403 "forbidden", "the token does not allow it; whether the thing is there is not said", "`missing` says what another token would have to have";
    FOREIGN_ORIGIN = 403 "foreign_origin", "a page of another origin asks", "serve it from this address, let it in with `--cors-origin`, or, behind a proxy, hand `Host` on";
    UNKNOWN_HOST = 403 "unknown_host", "nobody is asked who they are here, and the request is for a host that is none of this machine's own names: `host` says which", "ask for `localhost` or the address, name it with `--cors-origin http://host` (or `--listen`), or ask who is there (`--auth-key`)";
    PRODUCER_FENCED = 403 "producer_fenced", "a newer producer of the same id has taken over", "stop, or start anew with a larger epoch";
    NO_SUCH_ADDRESS = 404 "no_such_address", "nothing is served there", "see `/openapi.json`";
    NO_SUCH_ASSET = 404 "no_such_asset", "the page has no such file", "begin at `/`";
    NO_SUCH_BLOB = 404 "no_such_blob", "there is no such body, or none for this audience", "follow the `refs` of an envelope that you see";
    NO_SUCH_RUN = 404 "no_such_run", "nobody has written the run", "a stream of it would wait for its first fact";
    NO_SUCH_SCHEMA = 404 "no_such_schema", "there is no such schema", "`detail` lists those that there are";
    NO_SUCH_SESSION = 404 "no_such_session", "no fact of the session was written", "a stream of it would wait for the first";
    METHOD_NOT_ALLOWED = 405 "method_not_allowed", "the address does not take this method", "see `allow`, and `/openapi.json`";
    BODY_SILENT = 408 "body_silent", "a streamed body said nothing for long, not even a blank line; what came before is kept", "send a blank line now and then; go on from `accepted`";
    BODY_TOO_SLOW = 408 "body_too_slow", "a JSON body came too slowly; nothing of it was kept", "send it faster, or as `application/x-ndjson`";
    ACTION_NOT_PENDING = 409 "action_not_pending", "the action that a control answers waits for nobody", "look at it again: somebody was first, or it is over";
    CONTROL_CONFLICT = 409 "control_conflict", "another control was asked for under this `controlId`", "take another id, or none";
    CONTROL_REFUSED = 409 "control_refused", "in a stream: the agent refuses what it was asked", "`reason` says why; ask for something else";
    ID_IN_USE = 409 "id_in_use", "a subscription of this id is open on the WebSocket", "unsubscribe it, or take another id";
    LEASE_LOST = 409 "lease_lost", "the control is not, or not any more, under this lease", "claim again";
    PRODUCER_GAP = 409 "producer_gap", "facts are missing before this one, by the producer's own numbers", "go on from `expected`";
    RUN_OF_ANOTHER_THREAD = 409 "run_of_another_thread", "a client names a run that another thread has", "give each run an id of its own";
    RUN_ERASED = 409 "run_erased", "the run was erased while its body was being sent", "what is sent now begins a new life of it";
    RUN_ENDED = 409 "run_ended", "the control means something only while the run goes on, and it has ended", "start another run";
    EPOCH_CHANGED = 410 "epoch_changed", "the cursor is of an earlier life of the run", "begin anew without it";
    BODY_TOO_LARGE = 413 "body_too_large", "a JSON body or a message is larger than `limit` bytes", "send it in parts, or as `application/x-ndjson`";
    TOO_MANY_FACTS = 413 "too_many_facts", "a JSON body, or a `publish` message, has more than `limit` facts; nothing of it was kept", "send it in parts, or as `application/x-ndjson`";
    ENVELOPES_TOO_LARGE = 413 "envelopes_too_large", "the envelopes of a body take `bytes` bytes, more than `limit`: the ids of the request stand in each; nothing of it was kept", "send fewer facts at once, or `application/x-ndjson`";
    CONTROL_TOO_LARGE = 413 "control_too_large", "a control, its answer, or what a client tells an agent is larger than `limit` bytes", "store what it is about elsewhere, and send a reference";
    FACT_TOO_LARGE = 413 "fact_too_large", "a fact is larger than `limit` bytes", "store the output elsewhere, and send a reference";
    UNSUPPORTED_MEDIA_TYPE = 415 "unsupported_media_type", "the body is of a type that brings no facts", "send `application/json` or `application/x-ndjson`; on a WebSocket, text";
    BAD_RANGE = 416 "bad_range", "the range lies outside of the body's `limit` bytes", "ask for less, or for all";
    BAD_CONTROL = 422 "bad_control", "what the control is about cannot take it", "`member` and `expected` say which, and what it must be";
    BAD_MEMBER = 422 "bad_member", "a member of a fact, or of a body, is missing or cannot be what it is", "`member` and `expected` say which, and what it must be";
    SESSION_TOO_LARGE = 422 "session_too_large", "the session has more than `limit` runs, too many for one stream or to merge into one order", "read its runs one by one";
    NO_TYPE = 422 "no_type", "a fact does not say what it is", "add the member that `expected` names";
    NOT_AN_OBJECT = 422 "not_an_object", "a fact is no JSON object", "send an object";
    BAD_LINE = 422 "not_json", "a line of a streamed body is not JSON; what came before it is kept", "go on from `line`";
    TOO_DEEP = 422 "too_deep", "JSON nests deeper than `limit`", "flatten it, or send the inner part as text";
    TOO_MANY_PRODUCERS = 422 "too_many_producers", "`limit` producers have numbered facts of the run", "send under an id that it knows, or without numbers";
    TOO_MANY_SUBJECTS = 422 "too_many_subjects", "the log has `limit` calls, messages, parts and other subjects; nothing of this was accepted", "start another run";
    TOO_MANY_SUBSCRIPTIONS = 422 "too_many_subscriptions", "the WebSocket has `limit` subscriptions open", "unsubscribe some, or open another";
    UPGRADE_REQUIRED = 426 "upgrade_required", "a plain request came to the address of WebSocket connections", "connect with a WebSocket client, over HTTP/1.1";
    PUBLISH_RATE = 429 "publish_rate", "the producer publishes faster than `limit` facts a second; nothing of this was taken", "send it again after `retryAfter`";
    TOO_MANY_CONNECTIONS_OF_CLIENT = 429 "too_many_connections_of_client", "the client has `limit` connections open", "close some, or raise `--connections-per-client-max`";
    TOO_MANY_CONNECTIONS_OF_TOKEN = 429 "too_many_connections_of_token", "`limit` streams, sockets, streamed bodies and claims are open under tokens of this `sub`", "close some, or raise `--connections-per-token-max`";
    TOO_MANY_CONTROLS = 429 "too_many_controls", "`limit` controls of the run or session wait for their owner", "come back when it has taken some";
    TOO_MANY_TICKETS = 429 "too_many_tickets", "`limit` tickets wait, or may be used again", "use those that there are, or come back";
    HEAD_TOO_LARGE = 431 "head_too_large", "the head of a request is larger than `limit`: bytes, or headers", "send fewer or shorter headers, or raise `--head-max`";
    INTERNAL_ERROR = 500 "internal_error", "the server made a mistake", "its log says more; the request may be repeated";
    STORE_FAILED = 500 "store_failed", "the store could not answer", "the server's log says why; if it stopped, start it again";
    STORED_STATE_UNREADABLE = 500 "stored_state_unreadable", "what is stored of a run or session cannot be read: `detail` names it and the entry; others go on", "stop the server and run `proscenium doctor`; then restore a backup, or delete the run";
    NOT_SERVED = 501 "not_served", "a stream in a format that is not served", "ask without `format`";
    UNSUPPORTED_TRANSFER_CODING = 501 "unsupported_transfer_coding", "a body has a transfer coding other than `chunked`", "send it as it is, or chunked";
    STOPPING = 503 "stopping", "the server was told to stop", "use another one, or come back";
    BUSY = 503 "busy", "too much is under way to the store; nothing of this was taken", "send it again after `retryAfter`";
    DISK_NEARLY_FULL = 503 "disk_full", "`/readyz`: less is free on the store's disk than its reserve", "free some, or lower `--disk-reserve`";
    STORE_HAS_FAILED = 503 "store_failed", "`/readyz`: the store has failed, and the server ends", "its log says why; start it again";
    TOO_MANY_CONNECTIONS = 503 "too_many_connections", "the server has `limit` connections open", "come back, or raise `--connections-max`";
    CONTROL_EXPIRED = 504 "control_expired", "in a stream: nobody took what the agent was asked, or it was withdrawn", "see that a worker of that agent runs, and ask again";
    DISK_FULL = 507 "disk_full", "less than `limit` bytes are free on the store's disk: nothing is written, reads go on", "free some, or lower `--disk-reserve`; come back after `retryAfter`";
    TOO_MANY_RUNS = 507 "too_many_runs", "the store keeps `limit` runs", "erase some, or raise `--runs-max`";
}

/// The row of a code and a status.
#[must_use]
pub fn find(status: StatusCode, code: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.status == status.as_u16() && kind.code == code)
}

//! Problems and parameters that several addresses share.

use super::kinds::{self, ProblemKind};
use super::members::{
    AFTER, AGENT, AUDIENCE, DURABLE_FORMAT, DURABLE_FRAMES, DURABLE_OFFSET, FORMAT, FRAMES, IF_NONE_MATCH, LAST_EVENT_ID,
    LAST_EVENT_ID_HEADER, LIVE, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ, Parameter, REPLAY, SOURCE, STREAM_CURSOR, SURFACE,
    SURFACES, TICKET, TYPE, VERSION,
};

/// Problems of every address: a foreign origin, an unknown host, server errors, and those of a node of a cluster.
pub const ANY_ADDRESS: &[ProblemKind] =
    &[kinds::FOREIGN_ORIGIN, kinds::UNKNOWN_HOST, kinds::INTERNAL_ERROR, kinds::NO_LEADER, kinds::BEHIND];
/// Problems of every address that is not public.
pub const ACCESS_PROBLEMS: &[ProblemKind] = &[kinds::UNAUTHENTICATED, kinds::FORBIDDEN, kinds::KEYS_UNAVAILABLE];
/// Problems of an address that keeps a connection open.
pub const OPENS_CONNECTION: &[ProblemKind] = &[kinds::TOO_MANY_CONNECTIONS_OF_TOKEN];
/// Problems of every access to the store.
pub const STORE: &[ProblemKind] =
    &[kinds::ERASED, kinds::STORE_FAILED, kinds::STORED_STATE_UNREADABLE, kinds::ARCHIVE_UNAVAILABLE];
pub const RUN_READ: &[ProblemKind] = &[kinds::NO_SUCH_RUN];
pub const SESSION_READ: &[ProblemKind] = &[kinds::NO_SUCH_SESSION];
/// Problems of facts, over any transport.
pub const FACTS: &[ProblemKind] = &[
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
    kinds::QUOTA_EXCEEDED,
    kinds::OTHER_OWNER,
    kinds::BUSY,
    kinds::DISK_FULL,
    kinds::TOO_MANY_RUNS,
];
/// Problems of receiving a body.
pub const BODY_TRANSFER: &[ProblemKind] = &[kinds::BODY_CUT_OFF, kinds::BODY_TOO_SLOW];
/// Problems of receiving facts, which may be NDJSON.
pub const LINES_TRANSFER: &[ProblemKind] = &[
    kinds::UNSUPPORTED_MEDIA_TYPE,
    kinds::BAD_LINE,
    kinds::BODY_CUT_OFF,
    kinds::BODY_TOO_SLOW,
    kinds::BODY_SILENT,
    kinds::STOPPING,
    kinds::TOO_MANY_CONNECTIONS_OF_TOKEN,
];
/// Problems of a body that is one object.
pub const OBJECT: &[ProblemKind] =
    &[kinds::UNSUPPORTED_MEDIA_TYPE, kinds::NOT_JSON, kinds::NOT_AN_OBJECT, kinds::TOO_DEEP, kinds::CONTROL_TOO_LARGE];
/// Problems of a small body that is one object.
pub const OBJECT_BODY: &[ProblemKind] = &[kinds::NOT_JSON, kinds::BODY_TOO_LARGE];
/// Problems of a decision.
pub const DECISION: &[ProblemKind] =
    &[kinds::ACTION_NOT_PENDING, kinds::ACTION_EXPIRED, kinds::ACTION_CHANGED, kinds::APPROVAL_NOT_COUNTED];
/// Problems of a control, besides [`DECISION`].
pub const CONTROL: &[ProblemKind] = &[
    kinds::BAD_CONTROL,
    kinds::CONTROL_CONFLICT,
    kinds::TOO_MANY_CONTROLS,
    kinds::TOO_MANY_SECRETS,
    kinds::QUOTA_EXCEEDED,
    kinds::OTHER_OWNER,
    kinds::DISK_FULL,
];
/// Problems of the decision of a share link, besides those of a control.
pub const LINK_DECISION: &[ProblemKind] = &[kinds::LINK_HAS_DECIDED];
/// Problems of an existing client's body.
pub const CLIENT_BODY: &[ProblemKind] = &[
    kinds::UNSUPPORTED_MEDIA_TYPE,
    kinds::NOT_JSON,
    kinds::NOT_AN_OBJECT,
    kinds::TOO_DEEP,
    kinds::BODY_TOO_LARGE,
    kinds::BAD_MEMBER,
];
/// Problems of an existing client's request. The last two are sent in its stream.
pub const REQUEST_FAILS: &[ProblemKind] = &[
    kinds::CONTROL_TOO_LARGE,
    kinds::TOO_MANY_CONTROLS,
    kinds::TOO_MANY_SECRETS,
    kinds::QUOTA_EXCEEDED,
    kinds::DISK_FULL,
    kinds::CONTROL_REFUSED,
    kinds::CONTROL_EXPIRED,
];
/// Problems of a stream that a client of the AI SDK counts.
pub const COUNTED_STREAM: &[ProblemKind] = &[kinds::NO_SUCH_RUN, kinds::COMPACTED, kinds::EPOCH_CHANGED];
/// Problems of AG-UI, whose clients name runs.
pub const WRONG_NAME: &[ProblemKind] = &[kinds::RUN_EXISTS, kinds::RUN_OF_ANOTHER_THREAD];
/// Problems of a stop request.
pub const STOP: &[ProblemKind] = &[kinds::TOO_MANY_CONTROLS, kinds::DISK_FULL];
/// Problems of an owner's answer to a control.
pub const LEASE_ANSWER: &[ProblemKind] = &[kinds::BAD_MEMBER, kinds::LEASE_LOST];
/// Problems of a WebSocket message, besides [`FACTS`], [`STORE`] and those of its members.
pub const MESSAGE: &[ProblemKind] = &[
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
/// Problems of a control in a message, beside [`CONTROL`].
const SUBMITTED: &[ProblemKind] =
    &[kinds::CONTROL_TOO_LARGE, kinds::NO_SUCH_RUN, kinds::NO_SUCH_SESSION, kinds::RUN_ENDED, kinds::WOULD_SUPERSEDE];
/// All problems of a WebSocket message.
pub const SOCKET_PROBLEMS: &[&[ProblemKind]] = &[FACTS, STORE, MESSAGE, DECISION, CONTROL, SUBMITTED, ACCESS_PROBLEMS];

/// The parameters that filter a log.
pub const SELECTION: &[Parameter] = &[AUDIENCE, SURFACES, SURFACE, TYPE, AGENT];
/// The parameters of a stream.
pub const STREAM: &[Parameter] = &[FRAMES, REPLAY, AFTER, LAST_EVENT_ID, LAST_EVENT_ID_HEADER, FORMAT, VERSION, TICKET];
/// The parameters of a durable stream.
pub const DURABLE: &[Parameter] = &[DURABLE_OFFSET, LIVE, STREAM_CURSOR, DURABLE_FRAMES, REPLAY, DURABLE_FORMAT, IF_NONE_MATCH];
/// Problems of a durable stream.
pub const DURABLE_READ: &[ProblemKind] = &[kinds::EPOCH_CHANGED, kinds::ACTIVITIES_TOO_LARGE];
pub const PRODUCER: &[Parameter] = &[SOURCE, PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ];

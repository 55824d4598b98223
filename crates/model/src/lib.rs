//! The vocabulary of the whole crate: plain data, without behaviour beyond its own rules.
//!
//! This module does not know sources, stores or the framing of the wire.

#![warn(missing_docs)]

pub mod a2ui;
pub mod audience;
pub mod branch;
pub mod cursor;
pub mod decided_by;
pub mod envelope;
pub mod fact;
mod families;
mod field;
pub mod halves;
pub mod id;
pub mod json;
pub mod log_id;
pub mod options;
pub mod owner;
pub mod schema;
pub mod stored;
pub mod taxonomy;
pub mod time;
pub mod version;
pub mod visibility;

pub use audience::Audience;
pub use cursor::{Cursor, Epoch, Sequence};
pub use envelope::{Draft, Envelope};
pub use fact::{CallFact, MemberRef, Payload, WordsFact};
pub use id::{
    ActionId, AgentId, ArtifactId, BlobId, ControlId, EvidenceId, Ids, MessageId, OwnerId, PartId, ProducerId, RunId, SessionId,
    TaskId, ThreadId, ToolCallId, TurnId,
};
pub use log_id::{LogId, LogKind};
pub use owner::SessionOwner;
pub use taxonomy::{
    ActionKind, ActionOutcome, Control, EventType, Owner, PartKind, Persistence, Phase, Scope, Surface, Topology,
};
pub use time::ReceivedAt;
pub use visibility::Visibility;

/// The longest text of a message, a thought, a plan or a streamed output that activities and envelopes show, in bytes.
///
/// Text beyond it is left out, and the activity says so (`clipped`).
pub const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

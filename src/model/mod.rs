//! The words that everybody uses: plain data, no behaviour beyond its own rules.
//!
//! Knows nothing of sources, stores or the wire's framing.

pub mod audience;
pub mod cursor;
pub mod envelope;
pub mod id;
pub mod schema;
pub mod taxonomy;
pub mod time;

pub use audience::{Audience, Sight};
pub use cursor::{Cursor, Epoch, Sequence};
pub use envelope::{Draft, Envelope};
pub use id::{
    ActionId, AgentId, ArtifactId, BlobId, ControlId, EvidenceId, Ids, MessageId, PartId, ProducerId, RunId, SessionId, TaskId,
    ThreadId, ToolCallId, TurnId,
};
pub use taxonomy::{ActionKind, Control, EventType, Owner, PartKind, Persistence, Phase, Scope, Surface, Topology};
pub use time::ReceivedAt;

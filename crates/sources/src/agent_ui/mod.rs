//! The native source `agentui`: facts that already use our vocabulary.
//!
//! A fact is an envelope-like object whose `type` is its event type. One fact gives one draft. The adapter fills
//! missing members from the event type table and from explicit payload members. It carries a member that cannot keep
//! its name under `source…`, so no input is lost and every envelope stays valid. It generates missing message and part
//! ids and reuses them for later chunks. It infers nothing from prose, and a producer cannot forge the members that the
//! server stamps.

mod event;
mod map;
#[cfg(test)]
mod tests;

pub use event::is_workers;

use super::SourceKind;

/// The source `agentui`.
pub const SOURCE: SourceKind = SourceKind::of::<map::AgentUi>("agentui");

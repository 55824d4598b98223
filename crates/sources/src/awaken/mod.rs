//! The source `awaken`: the runtime's `AgentEvent`, with `event_type` as the discriminator.
//!
//! The adapter accepts bare events and events in the wrapper in which Awaken's server stores them (`canonical`). Events
//! name neither run nor message: both follow from the preceding boundaries (`run_start`, `step_start`). So the adapter
//! tracks the run's state.
//!
//! * A suspension is a pause, never an end.
//! * A step is one message, across all reconnects.
//! * The streamed chunks are the text. `result.response` (only the last message, or its tail) replaces nothing.
//! * State snapshots hold runtime internals and stay internal.
//! * The adapter never rejects an unknown event type or member, and its memory never holds a body.

mod event;
mod map;
#[cfg(test)]
mod tests;

use super::SourceKind;

/// The source `awaken`.
pub const SOURCE: SourceKind = SourceKind::of::<map::Awaken>("awaken");

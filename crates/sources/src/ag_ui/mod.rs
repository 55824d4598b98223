//! The source `ag-ui`: AG-UI events that agents send to frontends.
//!
//! The adapter accepts versions 1.0 and 0.0.5x; `type` is the discriminator. Events do not name their run. So the
//! adapter tracks the run's state, the open messages and calls, and the pending actions.
//!
//! * A chunk combines a start, a content and an end, and follows the same rules as those events.
//! * An interrupt is a pause, never an end: its answer arrives with the next run's start.
//! * The streamed chunks are the text.
//! * A result does not report success, and the adapter infers nothing from it.
//! * A runtime's own log data (`rawEvent`, `metadata`, a run's `input`) becomes a separate internal envelope.
//! * The adapter never rejects an unknown event type or member, and its memory never holds a body.
//!
//! | module | what it has |
//! | --- | --- |
//! | `event` | the events, and the answers in a run's start |
//! | `map/run` | starts, ends, interrupts, steps, usage |
//! | `map/streams` | text and reasoning, whole or in chunks |
//! | `map/calls` | tool calls, and those that wait for the client |
//! | `map/messages` | snapshots of messages, and the answers in a run's input |
//! | `map/state` | state, activities, and untyped events (`CUSTOM`, `RAW`) |
//! | `map/agents` | sub-agents |

mod event;
mod map;
#[cfg(test)]
mod tests;

use super::SourceKind;

/// The source `ag-ui`.
pub const SOURCE: SourceKind = SourceKind::of::<map::AgUi>("ag-ui");

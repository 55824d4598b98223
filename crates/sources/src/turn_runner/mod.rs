//! The source `turnrunner`: the facts of NHTIO ADK's `TurnRunner`, each `{bus, event, payload}`.
//!
//! The functional bus carries the agent's messages, thoughts and tool calls. The observability bus carries turns,
//! dispatches and gates, which the adapter also treats as functional because readers' views depend on them. All other
//! observability events are telemetry and become only diagnostics and metrics. So missing or garbled telemetry does not
//! change the agent's visible actions. The one exception is a gate that does not name its call, see `map/gates`.
//!
//! Events do not name their run, and ids are unique only within a turn. So the adapter tracks the turn's state.
//!
//! * The streamed chunks are the text. `full` verifies them, and appears in the log only at a stream's seal.
//! * A turn's dispatch determines the turn's outcome; an error event alone does not.
//! * The adapter never rejects an unknown event or member, and its memory never holds a body.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the events of both buses |
//! | `map/turns` | turns, dispatches, and the outcome of a turn |
//! | `map/failure` | the content of an exception, and the part that the adapter may store |
//! | `map/streams` | messages and thoughts |
//! | `map/calls` | tool calls and their results |
//! | `map/gates` | required actions |
//! | `map/telemetry` | logs, warnings, iterations, executions |

mod event;
mod map;
#[cfg(test)]
mod tests;

use super::SourceKind;

/// The source `turnrunner`.
pub const SOURCE: SourceKind = SourceKind::of::<map::TurnRunner>("turnrunner");

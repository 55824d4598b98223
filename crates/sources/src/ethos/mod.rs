//! The source `ethos`: the loop's `AgentEvent` and the events of Ethos' web server.
//!
//! `type` is the discriminator. One stream is one turn. Events do not name their turn, message or part: the order of
//! events determines them. So the adapter tracks the turn's state.
//!
//! * `done` is neither always the last event nor always a success. The first end holds. The adapter distinguishes a
//!   halt, a refusal and a turn that waits for a credential.
//! * The streamed chunks are the text. `done` repeats the text, or contains unstreamed text that a tool returned in
//!   place of the model.
//! * An event states its own audience. An unknown audience is internal.
//! * The adapter never rejects an unknown event type or member, and its memory never holds a body.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the events |
//! | `map/turn` | the lifecycle of a turn |
//! | `map/text` | text and reasoning of the model |
//! | `map/calls` | tool calls |
//! | `map/pushes` | events that the web server sends outside of the turn |

mod event;
mod map;
#[cfg(test)]
mod tests;

use super::SourceKind;

/// The source `ethos`.
pub const SOURCE: SourceKind = SourceKind::of::<map::Ethos>("ethos");

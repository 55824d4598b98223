//! The AI SDK dialect: a run as one message in Vercel's UI message stream (`ai` 5, 6 and 7).
//!
//! ```text
//! start{messageId}  start-step  message-metadata{runId, usage …}
//!   text-start -delta -end           the assistant's text, part by part; a teammate's with its name (providerMetadata)
//!   reasoning-start -delta -end      its reasoning
//!   tool-input-start -delta -available, tool-output-available{preliminary} … tool-output-available | -error | -denied
//!   data-tool-call-progress          the tool's own progress reports
//!   tool-approval-request, -response an action about a call, from versions 6 and 7 on
//!   data-a2ui-surface                a surface, as the A2UI messages that lead to its state
//!   data-action, data-plan, data-state, data-task, data-<a source's own kind> …   any other activity, by its id
//! finish-step  finish | abort | error  [DONE]
//! ```
//! **One message per run.** It contains the parts of all the run's assistant messages, in the order in which they
//! appeared. Turns, segments and pauses do not split it. Messages of users and systems are in [`messages()`] and not in
//! the stream, because the client has its own. The message has one step: runs have no further ones, and versions 5 and
//! 6 close every open text at the end of a step.
//!
//! **Live, late and slow readers end with the same message.** A client that resumes receives the run from its `start`
//! on, in its current state: these clients ask for a replay and rebuild the message from it. Each part follows from its
//! activity alone. So the message of a live reader, the message of a late reader, and [`messages()`] are equal.
//!
//! **Corrections.** No chunk takes back text. Version 7 receives `reset-step` and then everything again. Versions 5 and
//! 6 receive the correct text as a further part, and `data-correction {parts, replacedBy?}` with the indices of the
//! parts to hide. A client that does not know that part shows both, the correct one last; a replay has only the correct
//! one.
//!
//! **The end of a stream.** A pause ends the response to a request ([`Until::Pause`]). Its `finishReason` is
//! `tool-calls` if a decision is pending, else `other`. The client's next request continues the same message: that
//! response [resumes](Dialect::resume) from the pause, begins with the same `start`, and sends only new parts. A view
//! ([`Until::End`]) keeps its message open over pauses, because these clients know no second run in one stream.
//!
//! **Counted streams** ([`Begin::Replay`]). `WorkflowChatTransport` of `@ai-sdk/workflow` counts the chunks that it has
//! and resumes by that index. So these chunks are a function of the log alone, and never of the time at which a reader
//! came or of its speed:
//!
//! * Each envelope is translated by itself. Nothing merges the deltas of several, and nothing replaces them by a
//!   snapshot. The server reads every change from the log for such a reader ([`Dialect::counts`]).
//! * Where a part must be taken back, the reader gets the state of that envelope, and not the current one.
//! * Where the run rests (it waits or has ended), the envelope's chunks end with what closes the open parts, whether
//!   or not the response ends there.
//!
//! Only the last chunk of a response (`finish`, `abort`, `error`) follows from the moment: a reader whose run has
//! moved on since a pause goes on in the same response without it. A client that has it does not resume. Another
//! version of the server may translate otherwise, and then counts otherwise.

mod call;
mod message_state;
mod message_writer;
mod messages;
mod pieces;
#[cfg(test)]
mod tests;
mod text;

pub use crate::content_copy::{COPIES_BYTES_MAX, COPY_BYTES_MAX};
pub use messages::messages;

use super::frames::{ActivityView, Delta, Frame};
use super::{Begin, Dialect, Flow, Until};
use crate::content_copy::apply;
use message_state::MessageState;
use proscenium_model::Sequence;
use proscenium_sources::ledger::Status;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;

/// The supported major versions of the AI SDK. The first is the default.
pub const VERSIONS: [u8; 3] = [5, 6, 7];

/// Reads a supported major version.
#[must_use]
pub fn supported_version(text: &str) -> Option<u8> {
    text.parse().ok().filter(|version| VERSIONS.contains(version))
}

/// The options of one client's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AiSdkOptions {
    /// The id of the assistant message: the same in every replay.
    pub message: String,
    /// The client's major version: 5, 6 or 7.
    ///
    /// Chunks that it does not know are omitted; every client understands 5.
    pub version: u8,
    /// How the reader gets what exists already: merged, or envelope by envelope in a stream that it can count.
    pub begin: Begin,
    /// Where the stream ends.
    pub until: Until,
}

/// The translation of one run into one assistant message.
#[derive(Debug, Clone, PartialEq)]
pub struct AiSdk {
    options: AiSdkOptions,
    state: MessageState,
    /// Snapshots of one envelope or one hydration.
    ///
    /// Once complete, they are sent in the order in which their parts appeared.
    batch: SnapshotBatch,
    /// Whether the reader has received the state of the run at its start.
    is_hydrated: bool,
    start: Start,
    /// Whether the reader has to drop its message and receive it again.
    resets_step: bool,
    /// The actions pending at the pause from which the reader resumes, until the run has left it.
    resumed_pause: Option<BTreeSet<Box<str>>>,
    /// Whether everything is closed, because the run rests. Only a counted stream closes it there.
    is_resting: bool,
}

/// The state of the message's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Pending,
    /// The reader had a part of the message before this stream, including its step.
    Resumed,
    /// The beginning was sent.
    Sent,
}

/// Snapshots of a batch until it is complete.
///
/// A replay adds deltas to them; only the final state is sent.
#[derive(Debug, Clone, Default, PartialEq)]
struct SnapshotBatch {
    activities: Vec<ActivityView>,
    /// Indices in `activities`, by type and id.
    places: HashMap<(Box<str>, Box<str>), usize>,
}

impl SnapshotBatch {
    fn insert(&mut self, activity: ActivityView) {
        let place = *self.places.entry((activity.kind.clone(), activity.id.clone())).or_insert(self.activities.len());
        match self.activities.get_mut(place) {
            Some(known) => *known = activity,
            None => self.activities.push(activity),
        }
    }

    /// Applies a delta to the batch. Returns false if the batch lacks the activity.
    fn apply(&mut self, delta: &Delta) -> bool {
        if self.activities.is_empty() {
            return false;
        }
        let place = self.places.get(&(delta.kind.clone(), delta.id.clone()));
        let activity = place.and_then(|place| self.activities.get_mut(*place));
        activity.is_some_and(|activity| apply(Arc::make_mut(&mut activity.content), &delta.operations))
    }
}

impl AiSdk {
    /// Creates the translation, before any frame.
    #[must_use]
    pub fn new(options: AiSdkOptions) -> Self {
        let state = MessageState::new(options.version);
        let batch = SnapshotBatch::default();
        let (is_hydrated, start, resets_step, resumed_pause, is_resting) = (false, Start::Pending, false, None, false);
        Self { options, state, batch, is_hydrated, start, resets_step, resumed_pause, is_resting }
    }

    fn handle(&mut self, frame: &Frame) -> Flow {
        match frame {
            Frame::ActivitySnapshot(activity) => {
                self.start();
                self.batch.insert(activity.clone());
            }
            Frame::ActivityDelta(delta) => {
                self.start();
                if !self.batch.apply(delta) {
                    self.state.apply(delta);
                }
            }
            Frame::Hydrated {} => {
                self.start();
                self.is_hydrated = true;
                return self.check_flow();
            }
            Frame::Reset { .. } if self.state.is_empty() => (self.batch, self.is_hydrated) = (SnapshotBatch::default(), false),
            Frame::Reset { .. } => return self.break_off("The run was erased or rewritten. Load it again."),
            Frame::Error { problem } => {
                let why = ["detail", "title", "code"].iter().find_map(|member| problem.get(member)?.as_str().map(str::to_owned));
                return self.break_off(&why.unwrap_or_else(|| "The stream ended with an error.".into()));
            }
            Frame::End { status } => {
                self.start();
                self.send_batch();
                return match self.take_restart(true) {
                    true => Flow::Restart,
                    false => self.end(Status::of(status)),
                };
            }
        }
        Flow::Continue
    }

    /// Sends the batch of an envelope or a hydration, and decides how the stream continues.
    fn check_flow(&mut self) -> Flow {
        if !self.is_hydrated && !self.counts() {
            return Flow::Continue;
        }
        self.send_batch();
        let is_paused = self.is_paused();
        let rests = is_paused || self.counts() && self.state.status.is_some_and(Status::is_end);
        if self.take_restart(rests) {
            return Flow::Restart;
        }
        if self.counts() {
            self.set_resting(rests);
        }
        if is_paused && self.is_hydrated {
            let reason = if self.state.pending.is_empty() { "other" } else { "tool-calls" };
            return self.finish(&json!({ "type": "finish", "finishReason": reason }));
        }
        Flow::Continue
    }

    /// Sends the beginning of the message, once.
    fn start(&mut self) {
        let start = std::mem::replace(&mut self.start, Start::Sent);
        if start != Start::Sent {
            self.state.writer.push(json!({ "type": "start", "messageId": self.options.message }));
        }
        if start == Start::Pending {
            self.state.writer.add_part(json!({ "type": "start-step" }));
        }
    }

    fn send_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if std::mem::take(&mut self.resets_step) {
            self.state.forget();
            self.state.writer.parts = 1;
            self.state.writer.push(json!({ "type": "reset-step" }));
        }
        self.state.send(&batch.activities);
    }

    /// Whether the stream has to restart.
    ///
    /// It does if a sent part must be taken back, or if the stream ends and changes were missed.
    fn take_restart(&mut self, is_ending: bool) -> bool {
        let state = &mut self.state;
        let has_missed_changes = state.has_missed_changes && (is_ending || state.must_resync_now);
        if !state.writer.needs_reset && !has_missed_changes {
            return false;
        }
        self.resets_step |= state.writer.needs_reset;
        (state.has_missed_changes, state.must_resync_now, state.writer.needs_reset) = (false, false, false);
        (self.batch, self.is_hydrated) = (SnapshotBatch::default(), false);
        true
    }

    /// Whether the run waits and the stream ends there.
    fn is_paused(&mut self) -> bool {
        if self.options.until == Until::End {
            return false;
        }
        if self.state.status != Some(Status::Waiting) {
            self.resumed_pause = None;
            return false;
        }
        // A pause that the reader has answered counts as a new one if actions are still open or were added since.
        self.resumed_pause
            .as_ref()
            .is_none_or(|resumed_pause| !self.state.pending.is_empty() && self.state.pending != *resumed_pause)
    }

    fn end(&mut self, status: Status) -> Flow {
        let last = match status {
            Status::Completed => json!({ "type": "finish", "finishReason": "stop" }),
            Status::Cancelled => json!({ "type": "abort", "reason": "The run was cancelled." }),
            Status::Failed => return self.fail(&self.state.error().unwrap_or_else(|| "The run failed.".into())),
            Status::Interrupted if self.options.version >= 7 => json!({ "type": "finish", "finishReason": "interrupted" }),
            Status::Interrupted | Status::Accepted | Status::Running | Status::Waiting | Status::Unknown => {
                json!({ "type": "finish", "finishReason": "other" })
            }
        };
        self.finish(&last)
    }

    fn fail(&mut self, why: &str) -> Flow {
        self.finish(&error_chunk(why))
    }

    /// Fails before the end of the run.
    ///
    /// Where the client counts, nothing precedes the error: a client that is cut there would count it, and no other reader has it.
    fn break_off(&mut self, why: &str) -> Flow {
        if !self.counts() {
            return self.fail(why);
        }
        self.state.writer.chunks.clear();
        self.state.writer.push(error_chunk(why));
        Flow::End
    }

    /// Closes the open parts and sends the last chunk.
    fn finish(&mut self, last: &Value) -> Flow {
        self.set_resting(true);
        self.state.writer.push(last.clone());
        Flow::End
    }

    /// Closes the open parts where the run rests, and once the step.
    fn set_resting(&mut self, rests: bool) {
        let was_resting = std::mem::replace(&mut self.is_resting, rests);
        if !rests {
            return;
        }
        self.state.flush();
        self.state.close_texts();
        if self.start == Start::Sent && !was_resting {
            self.state.writer.push(json!({ "type": "finish-step" }));
        }
    }
}

fn error_chunk(why: &str) -> Value {
    json!({ "type": "error", "errorText": why })
}

impl Dialect for AiSdk {
    /// Ignores the history: these clients keep their earlier messages.
    fn load_history(&mut self, _: Vec<ActivityView>) {}

    fn resume(&mut self, _after: Sequence, known: Vec<ActivityView>) {
        self.start = Start::Resumed;
        self.state.writer.parts = 1;
        self.state.send(&known);
        self.state.writer.chunks.clear();
        if self.options.until == Until::Pause && self.state.status == Some(Status::Waiting) {
            // The previous response ended at this pause and closed its open parts.
            self.state.mark_closed();
            self.resumed_pause = Some(self.state.pending.clone());
        } else {
            self.state.invalidate();
        }
    }

    fn frame(&mut self, frame: &Frame, events: &mut Vec<Value>) -> Flow {
        // All chunks of one envelope leave together, followed by its cursor: a reader with that cursor has all of them.
        let has_more = matches!(frame, Frame::ActivitySnapshot(_) | Frame::ActivityDelta(_));
        let flow = self.handle(frame);
        if !has_more {
            events.append(&mut self.state.writer.chunks);
        }
        flow
    }

    fn end_batch(&mut self, events: &mut Vec<Value>) -> Flow {
        let flow = self.check_flow();
        events.append(&mut self.state.writer.chunks);
        flow
    }

    fn counts(&self) -> bool {
        self.options.begin == Begin::Replay
    }

    fn end_marker(&self) -> Option<&'static str> {
        Some("[DONE]")
    }
}

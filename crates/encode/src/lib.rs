//! Dialects: the encoders that turn frames into bytes, one file per dialect.
//!
//! [`native`] encodes rows and activities as native frames, once for all readers ([`encoded`]). Every other dialect is a
//! client of those frames: it takes them decoded, as a browser would see them ([`frames`]), and translates them for one
//! kind of client. So all readers share one way to join, to resume and to fall behind, and one filter. A dialect never
//! decides who may see an event. Readers whose dialects are in the same state share its translation ([`translations`]).

#![warn(missing_docs)]

pub mod a2a;
pub mod acp;
pub mod ag_ui;
pub mod ai_sdk;
mod call_members;
pub mod chunk;
mod content_copy;
mod cow_map;
pub mod dialect_cursor;
pub mod encoded;
pub mod files;
pub mod frames;
pub mod gen_ai;
pub mod lists;
pub mod native;
pub mod placeholders;
mod sent_text;
pub mod translations;
pub mod translator;

use frames::{ActivityView, Frame};
use proscenium_model::Sequence;
use proscenium_projection::members::CallState;
use serde_json::Value;

/// Translates the native frames of one run for one reader of another protocol.
///
/// The server calls it with the frames in their order. It returns events, each of which is one JSON object on the wire.
/// It keeps only the facts it needs about the reader's copy: ids, lengths and open brackets, no contents.
pub trait Dialect: Send {
    /// Loads the activities of the earlier runs of the thread, the oldest first.
    ///
    /// The server calls this before the first frame, and again before the frames of a restart.
    fn load_history(&mut self, earlier: Vec<ActivityView>);

    /// Loads the activities that the reader already has, as of the envelope after which it resumes.
    ///
    /// The server calls this before the first frame. `after` may be [`Sequence::NONE`], for a reader that has a part of the
    /// first envelope at most.
    fn resume(&mut self, after: Sequence, known: Vec<ActivityView>);

    /// Translates one frame into events.
    fn frame(&mut self, frame: &Frame, events: &mut Vec<Value>) -> Flow;

    /// Ends the batch of frames of one envelope: events that depend on all of them follow now.
    fn end_batch(&mut self, _events: &mut Vec<Value>) -> Flow {
        Flow::Continue
    }

    /// Whether the dialect compares a call's arguments with those that it streamed, so that it needs them whole.
    fn compares_arguments(&self) -> bool {
        false
    }

    /// Whether a replayed envelope yields the same events, so that a reader may resume within it.
    fn is_replayable(&self) -> bool {
        false
    }

    /// Whether the reader may count the events, so that they must be a function of the log alone.
    ///
    /// The server then sends every change, and restarts from the state of the envelope that needs it.
    fn counts(&self) -> bool {
        false
    }

    /// The text of a final `data:` line that is not an event, for clients that wait for one (`[DONE]`).
    fn end_marker(&self) -> Option<&'static str> {
        None
    }
}

/// The next step after a dialect has translated a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Continue with the next frame.
    Continue,
    /// Close the stream: the reader has the end of the run.
    End,
    /// Restart: no sequence of changes can correct the reader's copy.
    ///
    /// The server sends the run's activities again, as to a reader that joins.
    Restart,
}

/// The form in which a new reader receives the events that already exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// The reader has nothing. It receives the existing events as if they were arriving now.
    Replay,
    /// The reader may have any part of the run. One snapshot replaces its copy.
    Snapshot,
}

/// The point at which a reader's stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The first time that the run ends or waits for a decision.
    Pause,
    /// The end of the run. Events after a pause belong to a new run of the client's.
    End,
}

/// What went wrong with a call that failed or was cancelled: the words of its error, if it has any.
pub fn failure_text(error: Option<&Value>, state: CallState) -> String {
    let stated = error.and_then(|error| error.get("message")).and_then(Value::as_str);
    let plain = if state == CallState::Cancelled { "The call was cancelled." } else { "The tool failed." };
    stated.filter(|text| !text.is_empty()).unwrap_or(plain).to_owned()
}

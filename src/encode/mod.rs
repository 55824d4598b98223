//! Dialects: frames as bytes. One file a dialect.
//!
//! [`native`] turns rows and activities into the frames of our own protocol, once for all readers of one selection. Any other
//! dialect is a client of those frames: it reads them as a browser would ([`frames`]) and says the same in the words of one kind
//! of client. So there is one way to join, to resume and to be slow, and one filter; a dialect decides nothing about who may see
//! what.

pub mod ag_ui;
pub mod ai_sdk;
pub mod frames;
pub mod native;

use frames::{Frame, Shown};
use serde_json::Value;

/// What stands between native frames of one run and one reader that speaks something else.
///
/// It is told frames in their order and says what they come to as events, each of which is one JSON object on the wire. It keeps
/// what it must know of what the reader has: ids, lengths, what is open; no contents.
pub trait Dialect: Send {
    /// What was shown before this run in its thread, the oldest first. Told before any frame, and again before the frames of a
    /// reader that begins anew.
    fn recall(&mut self, earlier: Vec<Shown>);

    /// What the reader has of the run already: it came back with a cursor, and these are the activities as of then. Told before
    /// any frame.
    fn resume(&mut self, known: Vec<Shown>);

    /// Says what a frame comes to.
    fn frame(&mut self, frame: Frame, events: &mut Vec<Value>) -> Flow;

    /// Told after the last of the frames that came of one envelope: what is to be said of them together is said now.
    fn settle(&mut self, _events: &mut Vec<Value>) -> Flow {
        Flow::On
    }

    /// Whether a reader that comes back, and is told an envelope as it came, is told the same events as the first time: so it may go
    /// on within them.
    fn retells(&self) -> bool {
        false
    }

    /// The text of a last `data:` line that is no event, where clients wait for one.
    fn farewell(&self) -> Option<&'static str> {
        None
    }
}

/// How a dialect goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// With the next frame.
    On,
    /// Not at all: the reader has been told the end.
    Over,
    /// From the beginning: what the reader has cannot be mended by what it can be told of a change. The run's activities are to
    /// come once more, as to a reader that joins.
    Again,
}

/// What a reader that begins has of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Nothing. Whatever there is already is told as it would have been while it came.
    Told,
    /// Any part of it. It is shown all of it at once, in the place of what it has.
    Shown,
}

/// Up to where a reader is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The first time that the run ends, or waits for somebody.
    Pause,
    /// The run's end. What comes after a pause is told as another run of the client's.
    End,
}

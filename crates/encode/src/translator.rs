//! Translators: a dialect, and what its reader has received, as plain data.
//!
//! The text that frames become depends on nothing else. So readers with equal translators get the same text of the same
//! frames ([`translations`](super::translations)).

use super::dialect_cursor::{DialectCursor, SentEvents};
use super::frames::{ActivityView, CUT_INSIDE, DecodedFrame, Frame};
use super::placeholders::Placeholders;
use super::{Dialect, Flow};
use proscenium_model::json::escape_line_ends;
use proscenium_model::{Cursor, Sequence};
use serde_json::Value;
use std::any::Any;
use std::fmt;

/// A dialect that can be copied and compared.
pub trait PlainDialect: Dialect + Sync {
    /// A copy. It shares what does not change.
    fn boxed_clone(&self) -> Box<dyn PlainDialect>;

    /// Whether the other one is the same dialect in the same state.
    fn equals(&self, other: &dyn PlainDialect) -> bool;

    /// The dialect, for the comparison.
    fn as_any(&self) -> &dyn Any;
}

impl<D: Dialect + Clone + PartialEq + Sync + 'static> PlainDialect for D {
    fn boxed_clone(&self) -> Box<dyn PlainDialect> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn PlainDialect) -> bool {
        other.as_any().downcast_ref::<D>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The position of an event's `id:` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdPosition {
    /// After its data: a client that commits the id as it reads it loses nothing when cut between the two.
    Last,
    /// Before its data: for clients that assign an id to the data that follows it (`TanStack`).
    First,
}

/// The translation of a run's frames into one reader's text.
pub struct Translator {
    ids: IdPosition,
    /// The reader's position, once it has a cursor.
    position: Option<DialectCursor>,
    /// The events of the first envelope that the client received before it was cut off.
    already_sent: SentEvents,
    /// The next events that are not written, because the client has counted them. `None`: an event was written.
    counted: Option<u64>,
    dialect: Box<dyn PlainDialect>,
}

impl fmt::Debug for Translator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translator").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Clone for Translator {
    fn clone(&self) -> Self {
        Self { dialect: self.dialect.boxed_clone(), ..*self }
    }
}

impl PartialEq for Translator {
    fn eq(&self, other: &Self) -> bool {
        let beside = |of: &Self| (of.ids, of.position, of.already_sent, of.counted);
        beside(self) == beside(other) && self.dialect.equals(&*other.dialect)
    }
}

impl Translator {
    /// The translation for a new reader.
    #[must_use]
    pub fn new(dialect: Box<dyn PlainDialect>, ids: IdPosition) -> Self {
        Self { ids, position: None, already_sent: SentEvents::default(), counted: None, dialect }
    }

    /// Does not write the next events: the client has counted so many.
    pub const fn skip(&mut self, events: u64) {
        self.counted = Some(events);
    }

    /// How many of the skipped events have not come yet. `None`: a later event was written.
    #[must_use]
    pub const fn unskipped(&self) -> Option<u64> {
        self.counted
    }

    /// Whether the reader may count the events; see [`Dialect::counts`].
    #[must_use]
    pub fn counts(&self) -> bool {
        self.dialect.counts()
    }

    /// The cursor of the last envelope that was translated.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        self.position.map(|position| position.cursor)
    }

    /// Writes the activities as of an envelope at which the dialect restarts.
    pub fn restart_at(&mut self, cursor: Cursor, shown: Vec<ActivityView>, out: &mut Vec<u8>) -> Flow {
        let mut events = Vec::new();
        for activity in shown {
            self.dialect.frame(&Frame::ActivitySnapshot(activity), &mut events);
        }
        let flow = self.dialect.end_batch(&mut events);
        self.write(&events, Some(cursor), out);
        flow
    }

    /// Shows the state as of an envelope, as to a reader that joins there.
    pub fn show_state(&mut self, of: Cursor, shown: Vec<ActivityView>, out: &mut Vec<u8>) -> Flow {
        for activity in shown {
            let flow = self.translate_one(&Frame::ActivitySnapshot(activity), None, out);
            if flow != Flow::Continue {
                return flow;
            }
        }
        self.translate_one(&Frame::Hydrated {}, Some(of), out)
    }

    /// Sets where the reader resumes.
    pub fn resume_at(&mut self, position: Option<DialectCursor>) {
        self.already_sent = position.map(|position| position.sent).unwrap_or_default();
        self.position = position.filter(|position| position.state.is_none()).map(|position| position.cursor.into());
    }

    /// Has the reader shown the state anew, before any frame: what it has is not known.
    pub fn reset(&mut self) {
        let mut nothing = Vec::new();
        self.dialect.frame(&Frame::Reset { reason: CUT_INSIDE.into() }, &mut nothing);
        debug_assert!(nothing.is_empty(), "a reset before any frame shows nothing");
    }

    /// See [`Dialect::load_history`].
    pub fn load_history(&mut self, earlier: Vec<ActivityView>) {
        self.dialect.load_history(earlier);
    }

    /// See [`Dialect::resume`].
    pub fn resume(&mut self, after: Sequence, known: Vec<ActivityView>) {
        self.dialect.resume(after, known);
    }

    /// See [`Dialect::compares_arguments`].
    #[must_use]
    pub fn compares_arguments(&self) -> bool {
        self.dialect.compares_arguments()
    }

    /// Writes what the reader is shown before its run has frames.
    pub fn write_history(&mut self, out: &mut Vec<u8>) {
        let mut events = Vec::new();
        self.dialect.frame(&Frame::Hydrated {}, &mut events);
        self.write(&events, None, out);
    }

    /// Writes frames as events, with placeholders for bodies. Frames after the end or a restart do not count.
    pub fn translate(&mut self, frames: &[DecodedFrame], placeholders: &Placeholders, out: &mut Vec<u8>) -> Flow {
        for DecodedFrame { frame, cursor } in frames {
            let flow = self.translate_one(&placeholders.mark(frame), *cursor, out);
            if flow != Flow::Continue {
                return flow;
            }
        }
        Flow::Continue
    }

    /// Writes one frame as events.
    pub fn translate_one(&mut self, frame: &Frame, cursor: Option<Cursor>, out: &mut Vec<u8>) -> Flow {
        let is_error = matches!(frame, Frame::Error { .. });
        if let (Frame::Hydrated {}, Some(cursor)) = (frame, cursor) {
            self.position.get_or_insert(DialectCursor::before_state(cursor));
        }
        let mut events = Vec::new();
        let mut flow = self.dialect.frame(frame, &mut events);
        if flow == Flow::Continue && cursor.is_some() {
            flow = self.dialect.end_batch(&mut events);
        }
        if !events.is_empty() && !is_error && !self.already_sent.is_prefix_of(&events) {
            // The events differ from those that the client received, so it needs a reset.
            events.clear();
            self.already_sent = SentEvents::default();
            flow = self.dialect.frame(&Frame::Reset { reason: CUT_INSIDE.into() }, &mut events);
        }
        if is_error {
            // The stream fails, which the client has not counted.
            self.counted = None;
        }
        self.write(&events, cursor, out);
        match flow {
            Flow::Continue if !is_error => Flow::Continue,
            Flow::Continue | Flow::End => {
                self.write_end(out);
                Flow::End
            }
            Flow::Restart => {
                // A counted stream restarts where it is.
                self.position = self.position.filter(|_| self.counts());
                Flow::Restart
            }
        }
    }

    /// Writes the end of a stream that fails. A native reader gets the problem in an error frame.
    pub fn fail(&mut self, problem: Value, out: &mut Vec<u8>) {
        let mut events = Vec::new();
        self.dialect.frame(&Frame::Error { problem }, &mut events);
        self.counted = None;
        self.write(&events, None, out);
        self.write_end(out);
    }

    fn write_end(&self, out: &mut Vec<u8>) {
        for part in self.dialect.end_marker().iter().flat_map(|marker| ["data: ", marker, "\n\n"]) {
            out.extend_from_slice(part.as_bytes());
        }
    }

    /// Writes events, except those that the client already received.
    ///
    /// The last event carries the cursor; the others carry positions after the previous cursor.
    fn write(&mut self, events: &[Value], cursor: Option<Cursor>, out: &mut Vec<u8>) {
        let is_replayable = self.dialect.is_replayable();
        // An error event was not sent before.
        let already_sent = if self.already_sent.is_prefix_of(events) { self.already_sent.count } else { 0 };
        if !events.is_empty() {
            self.already_sent = SentEvents::default();
        }
        if let Some(cursor) = cursor {
            self.position.get_or_insert(Cursor::at(cursor.epoch, Sequence::NONE).into());
        }
        for (n, event) in (1..).zip(events) {
            let own_cursor = cursor.filter(|_| n == events.len());
            let event_at = out.len();
            out.extend_from_slice(b"data: ");
            let text_at = out.len();
            serde_json::to_writer(&mut *out, event).expect(INFALLIBLE);
            // The digest counts for positions within an envelope.
            if let (true, None, Some(position)) = (is_replayable, own_cursor, &mut self.position) {
                position.sent = position.sent.with_event(&out[text_at..]);
            }
            let is_counted = self.counted.is_some_and(|left| left > 0);
            self.counted = self.counted.filter(|_| is_counted).map(|left| left - 1);
            if n <= already_sent || is_counted {
                out.truncate(event_at);
                continue;
            }
            if let Some(escaped) = escape_line_ends(&out[text_at..]) {
                out.truncate(text_at);
                out.extend_from_slice(&escaped);
            }
            out.push(b'\n');
            let id = own_cursor.map(DialectCursor::from).or(self.position.filter(|_| is_replayable));
            match (id, self.ids) {
                (None, _) => {}
                (Some(id), IdPosition::Last) => id.write_line(out),
                (Some(id), IdPosition::First) => {
                    let mut line = Vec::new();
                    id.write_line(&mut line);
                    out.splice(event_at..event_at, line);
                }
            }
            out.push(b'\n');
        }
        self.position = cursor.map(DialectCursor::from).or(self.position);
    }
}

const INFALLIBLE: &str = "a Vec takes every byte";

//! Encoded frames: shared bytes, with marks that say where each frame is and what it is about.
//!
//! The encoder marks each frame as it writes it. Sockets send the bytes as they are. Filters, WebSocket messages, streams
//! of several logs and stalled readers use the marks, and dialects take the decoded frames, which all readers of the
//! same bytes share. No code parses a stream's text.

use super::frames::{DecodedFrame, Frame};
use super::placeholders::Placeholders;
use super::translations::{ReaderTranslator, Translated, Translations};
use bytes::Bytes;
use parking_lot::Mutex;
use proscenium_model::json::escape_line_ends;
use proscenium_model::{AgentId, Cursor, Epoch, EventType, Sequence, Surface};
use serde::Deserialize;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The beginning of the frame that ends a hydration.
const HYDRATED: &[u8] = br#"{"frame":"Hydrated""#;

/// A frame's place in its bytes.
#[derive(Debug, Clone, Copy)]
struct FrameMark {
    /// The place after the frame in its log, or in the order of commits.
    position: Sequence,
    /// The JSON object, its `prev` (an empty range if it has none), and the end of the frame.
    data: (u32, u32),
    prev: (u32, u32),
    end: u32,
    cursor: CursorMark,
}

/// Whether a frame has a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CursorMark {
    Absent,
    /// The reader that resumes there has this frame and all before it.
    Present,
    /// The reader that resumes there has the end of the run, too.
    KnowsEnd,
}

impl FrameMark {
    fn cursor(&self, epoch: Epoch) -> Option<Cursor> {
        let at = Cursor::at(epoch, self.position);
        match self.cursor {
            CursorMark::Absent => None,
            CursorMark::Present => Some(at),
            CursorMark::KnowsEnd => Some(Cursor { knows_end: true, ..at }),
        }
    }
}

/// What a filter needs to know of a frame.
#[derive(Debug, Clone, Deserialize)]
pub struct FrameTag {
    /// The type of an event; `None` for an activity.
    #[serde(rename = "type")]
    pub event_type: Option<EventType>,
    /// Where clients show it.
    pub surface: Surface,
    /// The agent that it belongs to.
    #[serde(rename = "agentId", default)]
    pub agent: Option<AgentId>,
}

impl FrameTag {
    /// The tag of an envelope; `None` if it is not an envelope, which only a damaged store can contain.
    #[must_use]
    pub fn of_envelope(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    /// The epoch of the cursors.
    epoch: Epoch,
    marks: Box<[FrameMark]>,
    /// One for each mark. Those of events are parsed when the first filter needs them.
    tags: OnceLock<Box<[Option<FrameTag>]>>,
    for_dialects: Mutex<ForDialects>,
}

/// What readers of dialects share of a block, until [`EncodedFrames::forget_decoded`].
#[derive(Debug, Default)]
struct ForDialects {
    decoded: Option<Arc<[DecodedFrame]>>,
    translations: Translations,
    /// Whether a dialect that compares arguments needs bodies.
    needs_bodies: bool,
    /// Whether a reader of a dialect has taken the frames.
    were_taken: bool,
}

impl ForDialects {
    fn keep(&mut self, decoded: Arc<[DecodedFrame]>) {
        self.needs_bodies = decoded.iter().any(|decoded| decoded.frame.may_set_arguments_in_body());
        self.decoded = Some(decoded);
    }
}

impl Block {
    /// The decoded frames, which are decoded at most once.
    fn decoded(&self, shared: &mut ForDialects) -> Arc<[DecodedFrame]> {
        let decode = |mark: &FrameMark| DecodedFrame {
            frame: Frame::decode(&self.bytes[range(mark.data)]).expect("an activity frame decodes as a Frame"),
            cursor: mark.cursor(self.epoch),
        };
        if shared.decoded.is_none() {
            shared.keep(self.marks.iter().map(decode).collect());
        }
        shared.were_taken = true;
        shared.decoded.clone().expect("they were decoded above")
    }

    fn tags(&self) -> &[Option<FrameTag>] {
        #[derive(Deserialize)]
        struct EventFrame {
            event: Option<FrameTag>,
        }
        let parse = |mark: &FrameMark| serde_json::from_slice::<EventFrame>(&self.bytes[range(mark.data)]).ok()?.event;
        self.tags.get_or_init(|| self.marks.iter().map(parse).collect())
    }
}

fn range((from, to): (u32, u32)) -> Range<usize> {
    from as usize..to as usize
}

/// Encoded frames on their way to a reader. Readers share their bytes; a clone costs nothing.
#[derive(Debug, Clone)]
pub struct EncodedFrames {
    block: Arc<Block>,
    /// The bytes that are not sent.
    unsent: (u32, u32),
}

impl From<Bytes> for EncodedFrames {
    /// Bytes that belong to no frame: a heartbeat, or the head of an answer.
    fn from(bytes: Bytes) -> Self {
        let (epoch, unsent) = (Epoch::from_random(0), (0, offset(bytes.len())));
        let (marks, tags, for_dialects) = (Box::default(), OnceLock::from(Box::default()), Mutex::default());
        Self { block: Arc::new(Block { bytes, epoch, marks, tags, for_dialects }), unsent }
    }
}

impl AsRef<[u8]> for EncodedFrames {
    fn as_ref(&self) -> &[u8] {
        &self.block.bytes[range(self.unsent)]
    }
}

impl EncodedFrames {
    /// The unsent bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.block.bytes.slice(range(self.unsent))
    }

    /// The number of unsent bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        (self.unsent.1 - self.unsent.0) as usize
    }

    /// Whether every byte is sent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no other reader has these frames.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.block) == 1
    }

    /// The memory that the frames and their tags take, in bytes. It does not change: caches count with it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.block.bytes.len() + self.block.marks.len() * (size_of::<FrameMark>() + size_of::<Option<FrameTag>>())
    }

    /// Counts bytes as sent.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "{count} bytes were sent, and {} were there", self.len());
        self.unsent.0 += offset(count);
    }

    /// The indices of the frames that are not sent as a whole.
    fn indices(&self) -> Range<usize> {
        let (from, to) = self.unsent;
        let ends_by = |end: u32| self.block.marks.partition_point(|mark| mark.end <= end);
        ends_by(from)..ends_by(to)
    }

    fn marks(&self) -> &[FrameMark] {
        &self.block.marks[self.indices()]
    }

    /// The number of frames.
    #[must_use]
    pub fn frame_count(&self) -> usize {
        self.marks().len()
    }

    /// The position of the last frame; `None` without frames.
    #[must_use]
    pub fn last_position(&self) -> Option<Sequence> {
        self.marks().last().map(|mark| mark.position)
    }

    /// The frames after a position; `None` if there are none.
    #[must_use]
    pub fn after(&self, position: Sequence) -> Option<Self> {
        let marks = self.marks();
        let at = marks.partition_point(|mark| mark.position <= position);
        let from = if at == 0 { self.unsent.0 } else { marks[at - 1].end };
        (at < marks.len()).then(|| Self { block: self.block.clone(), unsent: (from, self.unsent.1) })
    }

    /// The rest of the frame that is being sent, and its cursor.
    #[must_use]
    pub fn current_frame(&self) -> (Self, Option<Cursor>) {
        let Some(mark) = self.marks().first() else { return (self.clone(), None) };
        (Self { block: self.block.clone(), unsent: (self.unsent.0, mark.end) }, mark.cursor(self.block.epoch))
    }

    /// Takes the next frame: its JSON object and its cursor.
    pub fn next_frame(&mut self) -> Option<(Bytes, Option<Cursor>)> {
        let mark = *self.marks().first()?;
        self.unsent.0 = mark.end;
        Some((self.block.bytes.slice(range(mark.data)), mark.cursor(self.block.epoch)))
    }

    /// The decoded frames: all of the shared bytes, and which of them these are.
    ///
    /// They are decoded once for all readers, and kept until [`Self::forget_decoded`].
    ///
    /// # Panics
    /// If one is an Event frame, which no dialect reads.
    #[must_use]
    pub fn decoded(&self) -> (Arc<[DecodedFrame]>, Range<usize>) {
        (self.block.decoded(&mut self.block.for_dialects.lock()), self.indices())
    }

    /// Translates the frames for a reader of a dialect. `None`: its dialect first needs bodies of other places.
    ///
    /// If the reader `shares`, readers of the same bytes with equal translators translate once.
    #[must_use]
    pub fn translate(&self, reader: &mut ReaderTranslator, placeholders: &Placeholders, shares: bool) -> Option<Translated> {
        let (of, mut shared) = (self.indices(), self.block.for_dialects.lock());
        if shares && let Some(known) = shared.translations.find(reader, &of) {
            return Some(known);
        }
        let frames = self.block.decoded(&mut shared);
        if shared.needs_bodies && reader.get().compares_arguments() {
            return None;
        }
        if !shares {
            drop(shared);
            return Some(reader.translate(&frames[of], placeholders));
        }
        let translated = shared.translations.translate(reader, &of, &frames, placeholders);
        if self.ends_hydration() {
            // Decoded activities take many times the bytes of their translation, and few readers need them again.
            shared.decoded = None;
        }
        Some(translated)
    }

    /// The translation of the frames that another reader has made, if that takes no time.
    #[must_use]
    pub fn find_translation(&self, reader: &mut ReaderTranslator) -> Option<Translated> {
        self.block.for_dialects.try_lock()?.translations.find(reader, &self.indices())
    }

    /// Whether the last frame ends a hydration: the frames may stand for a long conversation.
    #[must_use]
    pub fn ends_hydration(&self) -> bool {
        let is_end = |mark: &FrameMark| self.block.bytes[range(mark.data)].starts_with(HYDRATED);
        self.marks().last().is_some_and(is_end)
    }

    /// Drops the decoded frames and their translations. A later reader makes them again.
    pub fn forget_decoded(&self) {
        *self.block.for_dialects.lock() = ForDialects::default();
    }

    /// Whether a reader of a dialect has taken the frames since they were made or forgotten.
    #[must_use]
    pub fn were_taken_decoded(&self) -> bool {
        self.block.for_dialects.lock().were_taken
    }

    /// Copies the frames whose tags are accepted, or all of them, with their own `prev` and cursors.
    ///
    /// Sets `prev` to the last of them.
    #[must_use]
    pub fn copied_where(&self, accepts: Option<impl Fn(&FrameTag) -> bool>, prev: &mut Sequence) -> Option<Self> {
        let is_accepted = |at: usize| accepts.as_ref().is_none_or(|accepts| self.block.tags()[at].as_ref().is_some_and(accepts));
        let mut out = FrameBuffer::new(self.block.epoch);
        for at in self.indices().filter(|at| is_accepted(*at)) {
            let mark = &self.block.marks[at];
            if out.marks.last().is_some_and(|last| last.position != mark.position) {
                *prev = out.set_cursor();
            }
            out.copy(&self.block, mark, Some(*prev));
        }
        (!out.is_empty()).then(|| {
            *prev = out.set_cursor();
            out.finish()
        })
    }

    /// A copy of the unsent bytes that belongs to one reader, after these bytes.
    #[must_use]
    pub fn copied_after(&self, first: &[u8]) -> Self {
        let moved = |at: u32| (at + offset(first.len())).saturating_sub(self.unsent.0);
        let moved_range = |(from, to)| (moved(from), moved(to));
        let marks = self.marks().iter().map(|mark| FrameMark {
            data: moved_range(mark.data),
            prev: moved_range(mark.prev),
            end: moved(mark.end),
            ..*mark
        });
        let (bytes, marks) = ([first, self.as_ref()].concat(), marks.collect());
        FrameBuffer { bytes, marks, ..FrameBuffer::new(self.block.epoch) }.finish()
    }
}

/// Frames that are being encoded.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    epoch: Epoch,
    marks: Vec<FrameMark>,
    tags: Vec<Option<FrameTag>>,
    /// The frames for readers of dialects, so that they need not decode them.
    decoded: Option<Vec<Frame>>,
}

impl FrameBuffer {
    /// A buffer for frames whose cursors have this epoch.
    #[must_use]
    pub const fn new(epoch: Epoch) -> Self {
        Self { bytes: Vec::new(), epoch, marks: Vec::new(), tags: Vec::new(), decoded: None }
    }

    /// A buffer that also keeps each frame as dialects read it.
    #[must_use]
    pub fn for_dialects(epoch: Epoch) -> Self {
        Self { decoded: Some(Vec::new()), ..Self::new(epoch) }
    }

    /// Keeps the frame that was ended last as dialects read it, if they will.
    pub(super) fn keep_decoded(&mut self, frame: impl FnOnce() -> Frame) {
        if let Some(decoded) = &mut self.decoded {
            decoded.push(frame());
        }
    }

    /// Whether it has no frame.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Begins a frame. The caller appends its JSON object.
    pub(super) fn begin(&mut self, position: Sequence) -> &mut Vec<u8> {
        if self.bytes.is_empty() {
            self.bytes.reserve(1024);
        }
        self.bytes.extend_from_slice(b"data: ");
        let at = offset(self.bytes.len());
        self.marks.push(FrameMark { position, data: (at, at), prev: (at, at), end: at, cursor: CursorMark::Absent });
        &mut self.bytes
    }

    /// Appends the value of the frame's `prev`.
    pub(super) fn push_prev(&mut self, prev: Sequence) {
        let from = offset(self.bytes.len());
        prev.append_to(&mut self.bytes);
        self.last().prev = (from, offset(self.bytes.len()));
    }

    /// The bytes, for the rest of the JSON object.
    pub(super) const fn object(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the frame, which has no cursor yet.
    pub(super) fn end(&mut self, tag: Option<FrameTag>) {
        self.escape_line_ends();
        self.last().data.1 = offset(self.bytes.len());
        self.bytes.extend_from_slice(b"\n\n");
        self.last().end = offset(self.bytes.len());
        self.tags.extend(tag.map(Some));
    }

    /// Escapes the characters in the last frame that cut an event for some readers of SSE.
    fn escape_line_ends(&mut self) {
        let (from, prev) = (self.last().data.0 as usize, self.last().prev.0 as usize);
        if let Some(escaped) = escape_line_ends(&self.bytes[prev..]) {
            self.bytes.truncate(prev);
            self.bytes.extend_from_slice(&escaped);
        }
        // The value of `prev` moves with the text before it.
        if let Some(escaped) = escape_line_ends(&self.bytes[from..prev]) {
            let moved = offset(escaped.len() - (prev - from));
            self.bytes.splice(from..prev, escaped);
            let mark = self.last();
            mark.prev = (mark.prev.0 + moved, mark.prev.1 + moved);
        }
    }

    /// Gives the last frame its cursor: a reader has all of its envelope then. Returns its position.
    pub fn set_cursor(&mut self) -> Sequence {
        self.set_cursor_as(CursorMark::Present);
        self.last().position
    }

    /// Gives the last frame a cursor that knows the end of the run.
    pub(super) fn set_end_cursor(&mut self) {
        self.set_cursor_as(CursorMark::KnowsEnd);
    }

    /// Gives the last frame, and no other, this cursor.
    pub fn set_cursor_at(&mut self, cursor: Cursor) {
        self.epoch = cursor.epoch;
        self.last().position = cursor.after;
        self.set_cursor_as(CursorMark::Present);
    }

    fn set_cursor_as(&mut self, cursor: CursorMark) {
        let epoch = self.epoch;
        self.last().cursor = cursor;
        if let Some(cursor) = self.last().cursor(epoch) {
            self.bytes.pop();
            self.bytes.extend_from_slice(b"id: ");
            cursor.append_to(&mut self.bytes);
            self.bytes.extend_from_slice(b"\n\n");
            self.last().end = offset(self.bytes.len());
        }
    }

    fn last(&mut self) -> &mut FrameMark {
        self.marks.last_mut().expect("a frame was begun")
    }

    /// Appends copies of frames, without their cursors.
    pub fn append(&mut self, frames: &EncodedFrames) {
        for mark in frames.marks() {
            self.copy(&frames.block, mark, None);
        }
    }

    /// Appends a copy of a frame without its cursor, and with another `prev` if that is given.
    fn copy(&mut self, block: &Block, mark: &FrameMark, prev: Option<Sequence>) {
        let (before, value, after) = (mark.data.0..mark.prev.0, mark.prev.0..mark.prev.1, mark.prev.1..mark.data.1);
        let bytes = |range: Range<u32>| &block.bytes[range.start as usize..range.end as usize];
        self.begin(mark.position).extend_from_slice(bytes(before));
        match prev {
            Some(prev) => self.push_prev(prev),
            None => self.bytes.extend_from_slice(bytes(value)),
        }
        self.bytes.extend_from_slice(bytes(after));
        self.end(None);
    }

    /// Removes the last frame.
    pub fn pop(&mut self) {
        self.marks.pop();
        self.bytes.truncate(self.marks.last().map_or(0, |mark| mark.end as usize));
        self.tags.truncate(self.marks.len());
    }

    /// The frames, to be shared.
    #[must_use]
    pub fn finish(self) -> EncodedFrames {
        let Self { bytes, epoch, marks, tags, decoded } = self;
        let unsent = (0, offset(bytes.len()));
        let tags = if tags.len() == marks.len() { OnceLock::from(tags.into_boxed_slice()) } else { OnceLock::new() };
        let (bytes, marks) = (bytes.into_boxed_slice().into(), Box::<[FrameMark]>::from(marks));
        let mut for_dialects = ForDialects::default();
        if let Some(decoded) = decoded.filter(|decoded| decoded.len() == marks.len()) {
            let with_cursor = |(frame, mark): (Frame, &FrameMark)| DecodedFrame { frame, cursor: mark.cursor(epoch) };
            for_dialects.keep(decoded.into_iter().zip(&marks).map(with_cursor).collect());
        }
        let for_dialects = Mutex::new(for_dialects);
        EncodedFrames { block: Arc::new(Block { bytes, epoch, marks, tags, for_dialects }), unsent }
    }
}

fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("frames that are encoded together are far smaller than 4 GiB")
}

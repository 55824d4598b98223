//! A view's ring: the newest frames, encoded once, as chunks that readers share.

use super::Filter;
use crate::encode::native::{Encoder, push_decimal, push_frame_end};
use crate::log::commit::Tail;
use crate::log::row::Row;
use crate::model::{AgentId, Audience, Cursor, Epoch, Sequence, Surface};
use crate::projection;
use bytes::Bytes;
use std::collections::VecDeque;

/// The position of a frame in its chunk.
#[derive(Debug, Clone, Copy)]
struct FrameMark {
    sequence: Sequence,
    at: u32,
}

/// The facts about an activity frame that a filtered reader needs to copy it from the chunk.
#[derive(Debug, Clone)]
struct FrameTag {
    /// The byte range of the frame's `prev`, and the end of its data line.
    prev: u32,
    after_prev: u32,
    end: u32,
    surface: Surface,
    agent: Option<AgentId>,
}

/// The encoded frames of the envelopes `(after, last]`.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub after: Sequence,
    pub last: Sequence,
    pub bytes: Bytes,
    marks: Box<[FrameMark]>,
    /// One per mark, for activity frames only.
    tags: Box<[FrameTag]>,
}

impl Chunk {
    /// Encodes the events of rows after `after` for `audience`.
    pub fn events(encoder: &Encoder, epoch: Epoch, audience: Audience, rows: impl Iterator<Item = Row>, after: Sequence) -> Self {
        let mut bytes = Vec::with_capacity(1024);
        let mut marks = Vec::new();
        let mut last = after;
        for row in rows.filter(|row| row.sequence() > after) {
            last = row.sequence();
            if let Some(view) = row.view(audience) {
                marks.push(FrameMark { sequence: last, at: offset(bytes.len()) });
                encoder.event(&mut bytes, Cursor::at(epoch, last), last, row.prev(audience), view);
            }
        }
        Self { after, last, bytes: bytes.into(), marks: marks.into(), tags: Box::default() }
    }

    /// Folds rows after the fold's position and encodes the changes. Advances the fold.
    pub fn activities(encoder: &Encoder, epoch: Epoch, fold: &mut projection::View, rows: impl Iterator<Item = Row>) -> Self {
        let mut bytes = Vec::with_capacity(1024);
        let (mut marks, mut tags) = (Vec::new(), Vec::new());
        let after = fold.through;
        for row in rows.filter(|row| row.sequence() > after) {
            let sequence = row.sequence();
            let folded = fold.fold(sequence, row.view(fold.audience));
            let count = folded.changes.len();
            for (n, change) in (1..).zip(&folded.changes) {
                let activity = fold.changed_activity(change);
                marks.push(FrameMark { sequence, at: offset(bytes.len()) });
                let range = encoder.change(&mut bytes, sequence, folded.prev, activity, change);
                tags.push(FrameTag {
                    prev: offset(range.prev),
                    after_prev: offset(range.after_prev),
                    end: offset(bytes.len()),
                    surface: activity.surface.clone(),
                    agent: activity.agent.clone(),
                });
                push_frame_end(&mut bytes, (n == count).then(|| Cursor::at(epoch, sequence)));
            }
        }
        Self { after, last: fold.through, bytes: bytes.into(), marks: marks.into(), tags: tags.into() }
    }

    /// The frames after `after`; `None` if there are none.
    pub fn after(&self, after: Sequence) -> Option<Bytes> {
        if after <= self.after {
            return (!self.bytes.is_empty()).then(|| self.bytes.clone());
        }
        let FrameMark { at, .. } = self.marks.get(self.first_after(after))?;
        Some(self.bytes.slice(*at as usize..))
    }

    fn first_after(&self, after: Sequence) -> usize {
        self.marks.partition_point(|mark| mark.sequence <= after)
    }

    /// The activity frames after `after` that the filter accepts, with their own `prev` and cursors.
    ///
    /// Advances `prev`.
    pub fn filtered_after(&self, after: Sequence, epoch: Epoch, filter: &Filter, prev: &mut Sequence) -> Option<Bytes> {
        let from = self.first_after(after);
        let taken = |(mark, tag): (&FrameMark, &FrameTag)| {
            filter.accepts_parts(tag.surface.as_str(), tag.agent.as_ref().map(AgentId::as_str)).then_some((
                *mark,
                tag.prev,
                tag.after_prev,
                tag.end,
            ))
        };
        let mut frames = self.marks[from..].iter().zip(&self.tags[from..]).filter_map(taken).peekable();
        let mut out = Vec::new();
        while let Some((mark, prev_at, after_prev, end)) = frames.next() {
            out.extend_from_slice(&self.bytes[mark.at as usize..prev_at as usize]);
            push_decimal(&mut out, prev.0);
            out.extend_from_slice(&self.bytes[after_prev as usize..end as usize]);
            let is_last = frames.peek().is_none_or(|(next, ..)| next.sequence != mark.sequence);
            push_frame_end(&mut out, is_last.then(|| Cursor::at(epoch, mark.sequence)));
            if is_last {
                *prev = mark.sequence;
            }
        }
        (!out.is_empty()).then(|| out.into())
    }

    /// The last envelope with a frame in this chunk.
    pub fn last_framed(&self) -> Option<Sequence> {
        self.marks.last().map(|mark| mark.sequence)
    }

    /// The memory of the chunk, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.marks.len() * size_of::<FrameMark>() + self.tags.len() * size_of::<FrameTag>()
    }

    /// The number of frames.
    pub const fn frame_count(&self) -> usize {
        self.marks.len()
    }
}

fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a chunk is far smaller than 4 GiB")
}

/// The newest frames of one view, and for activities the fold that makes them.
pub(super) struct Ring {
    pub epoch: Option<Epoch>,
    /// The log's compaction count when the ring started.
    pub compacted: u64,
    /// The ring has every frame of `(base, through]`.
    pub base: Sequence,
    pub through: Sequence,
    pub chunks: VecDeque<Chunk>,
    bytes: usize,
    /// The status with which the run ended, at `through`.
    pub ended: Option<&'static str>,
    /// The activities at `through`; `None` for events, and until a reader builds it.
    pub fold: Option<Box<projection::View>>,
    /// The pages of the hydration at [`Self::through`], shared by unfiltered readers.
    pages: Vec<HydrationPage>,
    /// Activities that fill a page each and that a reader still holds; all readers share one encoding.
    shared_activities: Vec<SharedActivity>,
}

/// The most bytes of activities in one page of a hydration, or one larger activity.
///
/// A reader that does not read holds at most this much.
pub(super) const HYDRATION_BYTES_MAX: usize = 64 * 1024;

/// The progress of a joining reader through the activities.
///
/// The reader takes them page by page while they change. Each pass sends the changes since the previous pass began; the
/// last pass is one in which nothing changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct HydrationPass {
    /// The reader has every change up to here before this pass.
    known: Sequence,
    /// The ring's position when the pass began.
    begun: Sequence,
    /// The index of the next activity. Activities keep their indices.
    next: usize,
    /// The log's compaction count when the pass began.
    compacted: u64,
}

/// An activity that fills a page, at a sequence.
struct SharedActivity {
    index: usize,
    sequence: Sequence,
    bytes: Bytes,
}

/// A page of the first pass of an unfiltered reader.
struct HydrationPage {
    /// The indices of its activities: from here up to, but not including, `next`.
    from: usize,
    next: usize,
    bytes: Bytes,
    /// The last envelope that gave a frame; set on the last page of the pass.
    framed: Option<Sequence>,
}

impl Ring {
    pub fn new(tail: &Tail) -> Self {
        let mut ring = Self {
            epoch: None,
            compacted: 0,
            base: Sequence::NONE,
            through: Sequence::NONE,
            chunks: VecDeque::new(),
            bytes: 0,
            ended: None,
            fold: None,
            pages: Vec::new(),
            shared_activities: Vec::new(),
        };
        ring.restart(tail);
        ring
    }

    /// Adds a flush.
    ///
    /// Of a flush without frames only the position is kept: a reader may wait through a million of them.
    pub fn push(&mut self, chunk: Chunk, bytes_max: usize) {
        self.through = chunk.last;
        self.pages.clear();
        self.shared_activities.retain(|large| !large.bytes.is_unique());
        if chunk.frame_count() == 0 {
            return;
        }
        self.bytes += chunk.memory_bytes();
        self.chunks.push_back(chunk);
        while self.bytes > bytes_max && self.chunks.len() > 1 {
            let dropped = self.chunks.pop_front().expect("the loop condition requires two chunks");
            self.bytes -= dropped.memory_bytes();
            self.base = dropped.last;
        }
    }

    /// Restarts at the log's tail, without a fold.
    pub fn restart(&mut self, tail: &Tail) {
        self.chunks.clear();
        self.bytes = 0;
        self.epoch = tail.epoch;
        self.compacted = tail.summary.compacted.times;
        self.base = tail.last;
        self.through = tail.last;
        self.ended = tail.end();
        self.fold = None;
        self.pages.clear();
        self.shared_activities.clear();
    }

    /// Drops frames from before a compaction.
    ///
    /// Later frames still follow if the log ended at the ring's position then.
    pub fn drop_history(&mut self, tail: &Tail) {
        let compacted = tail.summary.compacted;
        if self.epoch != tail.epoch || self.through != compacted.through {
            return self.restart(tail);
        }
        self.chunks.clear();
        self.bytes = 0;
        self.base = self.through;
        self.pages.clear();
        self.compacted = compacted.times;
    }

    /// The next page of a reader's hydration from `after` to the ring's position.
    ///
    /// It has current snapshots of changed activities.
    ///
    /// The last page ends with a Hydrated frame. It comes with the last envelope that gave the reader's filter a frame;
    /// until then `pass` has the progress.
    pub fn hydrate(
        &mut self,
        encoder: &Encoder,
        after: Sequence,
        filter: Option<&Filter>,
        pass: &mut Option<HydrationPass>,
        bytes_max: usize,
    ) -> (Bytes, Option<Sequence>) {
        let (through, compacted) = (self.through, self.compacted);
        let anew = |known| HydrationPass { known, begun: through, next: 0, compacted };
        let mut at = pass.take().filter(|pass| pass.compacted == compacted).unwrap_or_else(|| anew(after));
        let fold = self.fold.as_ref().expect("the caller has checked that the ring has a fold");
        let (from, is_shared) = (at.next, at.known == Sequence::NONE && filter.is_none() && bytes_max == HYDRATION_BYTES_MAX);
        let known = self.pages.iter().find(|page| is_shared && page.from == from);
        if let Some(page) = known.filter(|page| page.framed.is_none() || at.begun == through) {
            *pass = page.framed.is_none().then_some(HydrationPass { next: page.next, ..at });
            return (page.bytes.clone(), page.framed);
        }
        let mut out = Vec::new();
        loop {
            for activity in &fold.activities()[at.next..] {
                if out.len() >= bytes_max {
                    break;
                }
                if activity.sequence > at.known && filter.is_none_or(|filter| filter.accepts_activity(activity)) {
                    let (begun, index, sequence) = (out.len(), at.next, activity.sequence);
                    let known = self.shared_activities.iter().find(|large| (large.index, large.sequence) == (index, sequence));
                    if let Some(large) = known.filter(|_| begun == 0) {
                        *pass = Some(HydrationPass { next: index + 1, ..at });
                        return (large.bytes.clone(), None);
                    }
                    encoder.snapshot(&mut out, sequence, None, activity);
                    push_frame_end(&mut out, None);
                    if out.len() - begun >= bytes_max {
                        // An activity with a page of its own is shared by readers.
                        if begun > 0 {
                            out.truncate(begun);
                            break;
                        }
                        let bytes = Bytes::from(out);
                        self.shared_activities.retain(|large| large.index != index);
                        self.shared_activities.push(SharedActivity { index, sequence, bytes: bytes.clone() });
                        *pass = Some(HydrationPass { next: index + 1, ..at });
                        return (bytes, None);
                    }
                }
                at.next += 1;
            }
            if at.next < fold.activities().len() || at.begun == through {
                break;
            }
            at = anew(at.begun);
        }
        let framed = (at.next == fold.activities().len() && at.begun == through).then(|| last_framed_of(fold, filter));
        if let Some(framed) = framed {
            out.extend_from_slice(&encoder.hydrated(framed, self.epoch.map(|epoch| Cursor::at(epoch, through))));
        }
        let bytes = Bytes::from(out);
        // The empty page of a new log costs less to encode again than to keep.
        if is_shared && at.known == Sequence::NONE && !fold.activities().is_empty() {
            self.pages.push(HydrationPage { from, next: at.next, bytes: bytes.clone(), framed });
        }
        *pass = framed.is_none().then_some(at);
        (bytes, framed)
    }

    /// The whole hydration in one page, for a reader of several logs.
    pub fn hydration(&mut self, encoder: &Encoder, after: Sequence, filter: Option<&Filter>) -> (Bytes, Sequence) {
        let (bytes, framed) = self.hydrate(encoder, after, filter, &mut None, usize::MAX);
        (bytes, framed.expect("a page without a limit is the last one"))
    }
}

/// The last envelope that gave the filter a frame.
pub(super) fn last_framed_of(fold: &projection::View, filter: Option<&Filter>) -> Sequence {
    match filter {
        None => fold.last_framed,
        Some(filter) => {
            let taken = fold.activities().iter().filter(|activity| filter.accepts_activity(activity));
            taken.map(|activity| activity.sequence).max().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogId;
    use crate::log::row::Rows;
    use crate::model::RunId;
    use std::collections::BTreeMap;

    const EPOCH: u64 = 1;

    fn log() -> LogId {
        LogId::Run(RunId::new("r").unwrap())
    }

    /// The ring of a view without envelopes.
    fn ring() -> Ring {
        let mut ring = Ring::new(&Tail { epoch: Some(Epoch::from_random(EPOCH)), ..Tail::default() });
        ring.fold = Some(Box::new(projection::View::new(&log(), Audience::User)));
        ring
    }

    /// A row of text for one message, for these audiences.
    fn row(sequence: u64, message: usize, text: &str, audiences: &[Audience]) -> Row {
        let text = format!(
            r#"{{"type":"text.delta","sequence":{sequence},"messageId":"m{message}","partId":"p","phase":"producing","surface":"conversation","payload":{{"text":"{text}"}}}}"#
        );
        let views = Audience::ALL.map(|audience| audiences.contains(&audience).then_some(text.as_bytes()));
        let mut rows = Vec::new();
        Row::encode(&mut rows, Sequence(sequence), [Sequence::NONE; 3], views);
        Rows(rows.into()).next().unwrap()
    }

    /// Flushes text for one message.
    fn flush(ring: &mut Ring, message: usize, text: &str, audiences: &[Audience]) {
        let rows = [row(ring.through.0 + 1, message, text, audiences)];
        let encoder = Encoder::new(&log());
        let fold = ring.fold.as_mut().unwrap();
        let chunk = Chunk::activities(&encoder, Epoch::from_random(EPOCH), fold, rows.into_iter());
        ring.push(chunk, usize::MAX);
    }

    #[test]
    fn flushes_without_frames_move_the_ring_and_take_no_memory() {
        let mut ring = ring();
        flush(&mut ring, 0, "seen", &Audience::ALL);
        for _ in 0..10_000 {
            flush(&mut ring, 0, "hidden", &[Audience::Internal]);
        }
        assert_eq!((ring.through, ring.base, ring.chunks.len()), (Sequence(10_001), Sequence::NONE, 1));
        flush(&mut ring, 0, "seen", &Audience::ALL);
        assert_eq!((ring.through, ring.chunks.len()), (Sequence(10_002), 2));
        assert_eq!(ring.chunks.back().unwrap().after(Sequence(1)), ring.chunks.back().unwrap().after(Sequence(10_001)));
    }

    /// Reads snapshots as a reader does: the last one of each activity counts.
    fn take(known: &mut BTreeMap<String, u64>, page: &Bytes) {
        let text = std::str::from_utf8(page).unwrap();
        for frame in text.split("\n\n").filter(|frame| frame.contains("ActivitySnapshot")) {
            let frame: serde_json::Value = serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap();
            known.insert(frame["activityId"].to_string(), frame["sequence"].as_u64().unwrap());
        }
    }

    #[test]
    fn activities_that_change_during_a_hydration_arrive_in_their_final_state() {
        const BYTES_MAX: usize = 2000;
        let encoder = Encoder::new(&log());
        let mut ring = ring();
        for message in 0..100 {
            flush(&mut ring, message, "a text of some length, so that a page has a few of them", &Audience::ALL);
        }
        let (mut pass, mut known, mut pages) = (None, BTreeMap::new(), 0);
        let framed = loop {
            let (page, framed) = ring.hydrate(&encoder, Sequence::NONE, None, &mut pass, BYTES_MAX);
            assert!(page.len() < BYTES_MAX + 1000, "a page exceeds the limit by less than one activity: {}", page.len());
            take(&mut known, &page);
            pages += 1;
            assert_eq!(page.ends_with(b"\n\n") && memchr::memmem::find(&page, b"Hydrated").is_some(), framed.is_some());
            match framed {
                Some(framed) => break framed,
                // Change sent, unsent and new activities while the first pass runs.
                None if pages < 15 => {
                    for message in [0, 50, 99, 100 + pages] {
                        flush(&mut ring, message, "more", &Audience::ALL);
                    }
                }
                None => assert!(pages < 100, "the hydration ends once the activities stop changing"),
            }
        };
        let fold = ring.fold.as_ref().unwrap();
        let there: BTreeMap<_, _> = fold.activities().iter().map(|a| (format!("\"{}\"", a.id), a.sequence.0)).collect();
        assert_eq!((known, framed), (there, fold.last_framed));
        assert!(pages > 15 && pass.is_none(), "{pages}");
    }

    #[test]
    fn readers_that_join_at_one_position_share_pages_and_a_partial_reader_gets_the_rest() {
        let encoder = Encoder::new(&log());
        let mut ring = ring();
        for message in 0..8 {
            flush(&mut ring, message, &"x".repeat(HYDRATION_BYTES_MAX / 3), &Audience::ALL);
        }
        let join = |after, ring: &mut Ring| {
            let (mut pass, mut pages) = (None, Vec::new());
            loop {
                let (page, framed) = ring.hydrate(&encoder, after, None, &mut pass, HYDRATION_BYTES_MAX);
                pages.push(page);
                if framed.is_some() {
                    return pages;
                }
            }
        };
        let (first, second) = (join(Sequence::NONE, &mut ring), join(Sequence::NONE, &mut ring));
        assert_eq!(first.len(), 3);
        assert!(first.iter().zip(&second).all(|(first, second)| first.as_ptr() == second.as_ptr()));
        let mut known = BTreeMap::new();
        for page in join(Sequence(6), &mut ring) {
            take(&mut known, &page);
        }
        assert!(known.values().eq(&[7, 8]), "{known:?}");
        flush(&mut ring, 0, "more", &Audience::ALL);
        assert!(join(Sequence::NONE, &mut ring)[0].as_ptr() != first[0].as_ptr(), "a changed page is encoded again");
        // A page with one activity stays shared until that activity changes.
        flush(&mut ring, 8, &"x".repeat(HYDRATION_BYTES_MAX), &Audience::ALL);
        let alone =
            |pages: Vec<Bytes>| pages.into_iter().find(|page| page.len() > HYDRATION_BYTES_MAX && take_one(page)).unwrap();
        let before = alone(join(Sequence::NONE, &mut ring));
        flush(&mut ring, 0, "more", &Audience::ALL);
        let (after, later) = (alone(join(Sequence::NONE, &mut ring)), alone(join(Sequence(7), &mut ring)));
        assert!(before.as_ptr() == after.as_ptr() && before.as_ptr() == later.as_ptr());
        drop((before, after, later));
        flush(&mut ring, 0, "more", &Audience::ALL);
        assert!(ring.shared_activities.is_empty(), "no reader holds it");
        flush(&mut ring, 8, "more", &Audience::ALL);
        let mut known = BTreeMap::new();
        for page in join(Sequence::NONE, &mut ring) {
            take(&mut known, &page);
        }
        assert!(known["\"m8\""] == ring.through.0 && known.len() == 10, "{known:?}");
    }

    /// Whether a page has exactly one activity.
    fn take_one(page: &Bytes) -> bool {
        memchr::memmem::find_iter(page, b"ActivitySnapshot").count() == 1
    }
}

//! A view's ring: the newest frames, encoded once, as chunks that readers share.

use super::Filter;
use crate::encode::encoded::{EncodedFrames, FrameBuffer, FrameTag};
use crate::encode::native::Encoder;
use crate::log::commit::Tail;
use crate::log::row::Row;
use crate::model::{Audience, Epoch, Sequence};
use crate::projection;
use std::collections::VecDeque;

/// The encoded frames of the envelopes `(after, last]`.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub after: Sequence,
    pub last: Sequence,
    pub frames: EncodedFrames,
}

impl Chunk {
    /// Encodes the events of rows after `after` for `audience`.
    pub fn events(encoder: &Encoder, epoch: Epoch, audience: Audience, rows: impl Iterator<Item = Row>, after: Sequence) -> Self {
        let (mut out, mut last) = (FrameBuffer::new(epoch), after);
        for row in rows.filter(|row| row.sequence() > after) {
            last = row.sequence();
            if let Some(view) = row.view(audience) {
                encoder.event(&mut out, last, last, row.prev(audience), view);
            }
        }
        Self { after, last, frames: out.finish() }
    }

    /// Folds rows after the fold's position and encodes the changes. Advances the fold.
    pub fn activities(encoder: &Encoder, epoch: Epoch, fold: &mut projection::View, rows: impl Iterator<Item = Row>) -> Self {
        let (mut out, after) = (FrameBuffer::new(epoch), fold.through);
        for row in rows.filter(|row| row.sequence() > after) {
            let folded = fold.fold(row.sequence(), row.view(fold.audience));
            for change in &folded.changes {
                encoder.change(&mut out, row.sequence(), folded.prev, fold.changed_activity(change), change);
            }
            if !folded.changes.is_empty() {
                out.set_cursor();
            }
        }
        Self { after, last: fold.through, frames: out.finish() }
    }

    /// The frames after `after` that the filter accepts; `None` if there are none. `prev` becomes the last of them.
    pub fn after(&self, after: Sequence, filter: Option<&Filter>, prev: &mut Sequence) -> Option<EncodedFrames> {
        if filter.is_some() {
            return self.own_after(after, filter, prev);
        }
        let frames = self.frames.after(after)?;
        *prev = frames.last_position().unwrap_or(*prev);
        Some(frames)
    }

    /// Like [`Self::after`], but the frames belong to the reader alone, and the first one follows `prev`.
    pub fn own_after(&self, after: Sequence, filter: Option<&Filter>, prev: &mut Sequence) -> Option<EncodedFrames> {
        self.frames.after(after)?.copied_where(filter.map(|filter| |tag: &FrameTag| filter.accepts(tag)), prev)
    }
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
    frames: EncodedFrames,
}

/// A page of the first pass of an unfiltered reader.
struct HydrationPage {
    /// The indices of its activities: from here up to, but not including, `next`.
    from: usize,
    next: usize,
    frames: EncodedFrames,
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
        self.shared_activities.retain(|large| !large.frames.is_unique());
        if chunk.frames.is_empty() {
            return;
        }
        // Nearly every reader needs only the newest chunk. Decoded, all of them would take many times the ring's bytes.
        if let Some(previous) = self.chunks.back() {
            previous.frames.forget_decoded();
        }
        self.bytes += chunk.frames.memory_bytes();
        self.chunks.push_back(chunk);
        while self.bytes > bytes_max && self.chunks.len() > 1 {
            let dropped = self.chunks.pop_front().expect("the loop condition requires two chunks");
            self.bytes -= dropped.frames.memory_bytes();
            self.base = dropped.last;
        }
    }

    /// Drops the pages of hydrations that no reader holds.
    pub fn drop_unread_pages(&mut self) {
        self.pages.retain(|page| !page.frames.is_unique());
        self.shared_activities.retain(|large| !large.frames.is_unique());
    }

    /// Whether the log is as it was at the ring's position.
    pub fn is_at(&self, tail: &Tail) -> bool {
        (self.epoch, self.through, self.compacted) == (tail.epoch, tail.last, tail.summary.compacted.times)
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
    ) -> (EncodedFrames, Option<Sequence>) {
        let (through, compacted) = (self.through, self.compacted);
        let anew = |known| HydrationPass { known, begun: through, next: 0, compacted };
        let mut at = pass.take().filter(|pass| pass.compacted == compacted).unwrap_or_else(|| anew(after));
        let fold = self.fold.as_ref().expect("the caller has checked that the ring has a fold");
        let (from, is_shared) = (at.next, at.known == Sequence::NONE && filter.is_none() && bytes_max == HYDRATION_BYTES_MAX);
        let known = self.pages.iter().find(|page| is_shared && page.from == from);
        if let Some(page) = known.filter(|page| page.framed.is_none() || at.begun == through) {
            *pass = page.framed.is_none().then_some(HydrationPass { next: page.next, ..at });
            return (page.frames.clone(), page.framed);
        }
        let mut out = FrameBuffer::new(self.epoch.unwrap_or(Epoch::from_random(0)));
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
                        return (large.frames.clone(), None);
                    }
                    encoder.snapshot(&mut out, sequence, None, activity);
                    if out.len() - begun >= bytes_max {
                        // An activity with a page of its own is shared by readers.
                        if begun > 0 {
                            out.pop();
                            break;
                        }
                        let frames = out.finish();
                        self.shared_activities.retain(|large| large.index != index);
                        self.shared_activities.push(SharedActivity { index, sequence, frames: frames.clone() });
                        *pass = Some(HydrationPass { next: index + 1, ..at });
                        return (frames, None);
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
            encoder.hydrated(&mut out, framed, self.epoch.map(|_| through));
        }
        let frames = out.finish();
        // The empty page of a new log costs less to encode again than to keep.
        if is_shared && at.known == Sequence::NONE && !fold.activities().is_empty() {
            self.pages.push(HydrationPage { from, next: at.next, frames: frames.clone(), framed });
        }
        *pass = framed.is_none().then_some(at);
        (frames, framed)
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
        let after = |sequence| ring.chunks.back().unwrap().frames.after(Sequence(sequence)).unwrap().into_bytes();
        assert_eq!(after(1), after(10_001));
    }

    /// Reads snapshots as a reader does: the last one of each activity counts.
    fn take(known: &mut BTreeMap<String, u64>, page: &EncodedFrames) {
        for frame in objects(page).filter(|frame| frame["frame"] == "ActivitySnapshot") {
            known.insert(frame["activityId"].to_string(), frame["sequence"].as_u64().unwrap());
        }
    }

    fn objects(page: &EncodedFrames) -> impl Iterator<Item = serde_json::Value> {
        let mut page = page.clone();
        std::iter::from_fn(move || page.next_frame()).map(|(object, _)| serde_json::from_slice(&object).unwrap())
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
            assert_eq!(objects(&page).last().unwrap()["frame"] == "Hydrated", framed.is_some());
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
        assert!(first.iter().zip(&second).all(|(first, second)| first.as_ref().as_ptr() == second.as_ref().as_ptr()));
        let mut known = BTreeMap::new();
        for page in join(Sequence(6), &mut ring) {
            take(&mut known, &page);
        }
        assert!(known.values().eq(&[7, 8]), "{known:?}");
        flush(&mut ring, 0, "more", &Audience::ALL);
        assert!(
            join(Sequence::NONE, &mut ring)[0].as_ref().as_ptr() != first[0].as_ref().as_ptr(),
            "a changed page is encoded again"
        );
        // A page with one activity stays shared until that activity changes.
        flush(&mut ring, 8, &"x".repeat(HYDRATION_BYTES_MAX), &Audience::ALL);
        let alone = |pages: Vec<EncodedFrames>| {
            pages.into_iter().find(|page| page.len() > HYDRATION_BYTES_MAX && take_one(page)).unwrap()
        };
        let before = alone(join(Sequence::NONE, &mut ring));
        ring.drop_unread_pages();
        assert!(ring.pages.is_empty() && ring.shared_activities.len() == 1, "a reader holds the large one");
        flush(&mut ring, 0, "more", &Audience::ALL);
        let (after, later) = (alone(join(Sequence::NONE, &mut ring)), alone(join(Sequence(7), &mut ring)));
        let place = |page: &EncodedFrames| page.as_ref().as_ptr();
        assert!(place(&before) == place(&after) && place(&before) == place(&later));
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
    fn take_one(page: &EncodedFrames) -> bool {
        objects(page).filter(|frame| frame["frame"] == "ActivitySnapshot").count() == 1
    }
}

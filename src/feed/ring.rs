//! A view's ring: the newest frames, encoded once, as chunks that readers share.

use super::Filter;
use crate::encode::encoded::{EncodedFrames, FrameBuffer, FrameTag};
use crate::encode::native::Encoder;
use crate::environment::sabotage;
use crate::log::commit::Tail;
use crate::log::row::Row;
use crate::model::{Audience, Epoch, Sequence};
use crate::projection;
use crate::projection::activity_set::Activity;
use std::collections::VecDeque;

/// The encoded frames of the envelopes `(after, last]`.
#[derive(Debug, Clone)]
pub(super) struct FrameSpan {
    pub after: Sequence,
    pub last: Sequence,
    pub frames: EncodedFrames,
}

impl FrameSpan {
    /// Encodes the events of rows after `after` for `audience`.
    pub fn events(encoder: &Encoder, epoch: Epoch, audience: Audience, rows: impl Iterator<Item = Row>, after: Sequence) -> Self {
        let (mut out, mut last) = (FrameBuffer::new(epoch), after);
        for row in rows.filter(|row| row.sequence() > after) {
            last = row.sequence();
            let audience = if sabotage::is(16) { Audience::Internal } else { audience };
            if let Some(view) = row.view(audience) {
                encoder.event(&mut out, last, last, row.prev(audience), view);
            }
        }
        Self { after, last, frames: out.finish() }
    }

    /// Folds rows after the fold's position and encodes the changes. Advances the fold.
    pub fn activities(
        encoder: &Encoder,
        mut out: FrameBuffer,
        fold: &mut projection::View,
        rows: impl Iterator<Item = Row>,
    ) -> Self {
        let after = fold.through;
        for row in rows.filter(|row| row.sequence() > after) {
            let audience = if sabotage::is(21) { Audience::Internal } else { fold.audience };
            let folded = fold.fold(row.sequence(), row.view(audience));
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
    pub chunks: VecDeque<FrameSpan>,
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

/// The bytes of activities in one page of a hydration, or one larger activity.
///
/// A reader that does not read holds at most this much. Only one that has read all activities can get larger pages.
pub(super) const HYDRATION_BYTES_MAX: usize = 64 * 1024;

/// The bytes of a page with all activities, for readers that take them at once.
pub(super) const SINGLE_PAGE_BYTES_MAX: usize = usize::MAX;

/// The progress of a joining reader through the activities.
///
/// The reader takes them page by page while they change. Each pass sends the changes since the previous pass began; the
/// last pass is one in which nothing changed until its last activity was sent. The pages of each pass are larger than
/// those of the one before: if as much changes as the reader takes, the changes soon fit into one page.
#[derive(Debug, Clone, Copy)]
pub(super) struct HydrationPass {
    /// The reader has every change up to here before this pass.
    known: Sequence,
    /// The ring's position when the pass began.
    begun: Sequence,
    /// The index of the next activity. Activities keep their indices.
    next: usize,
    /// The bytes at which a page is full.
    page_bytes: usize,
    /// The last envelope that gave a frame, once the reader has every activity as it was when the pass began.
    framed: Option<Sequence>,
    /// The log's compaction count when the pass began.
    compacted: u64,
}

/// The growth of the pages from one pass to the next, as a factor.
const PAGE_GROWTH: usize = 4;

/// The end of a hydration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hydrated {
    /// The reader has every change up to here.
    pub through: Sequence,
    /// The last envelope that gave the reader's filter a frame.
    pub framed: Sequence,
}

/// An activity that fills a page, at a sequence.
struct SharedActivity {
    index: usize,
    sequence: Sequence,
    frames: EncodedFrames,
}

/// A page of the first pass of an unfiltered reader.
struct HydrationPage {
    /// The bytes at which it was full.
    page_bytes: usize,
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
    pub fn push(&mut self, chunk: FrameSpan, bytes_max: usize) {
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

    /// The buffer of the next flush. If readers of dialects took the newest one, they take the next one, too.
    pub fn buffer(&self, epoch: Epoch) -> FrameBuffer {
        match self.chunks.back().is_some_and(|newest| newest.frames.were_taken_decoded()) {
            true => FrameBuffer::for_dialects(epoch),
            false => FrameBuffer::new(epoch),
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

    /// The next page of a reader's hydration from `after`: current snapshots of activities that have changed.
    ///
    /// `page_bytes` is for the first pass. Until the last page, `pass` has the progress. The last page ends with a
    /// Hydrated frame, and comes with what that says; the ring has the frames after it.
    pub fn hydrate(
        &mut self,
        encoder: &Encoder,
        after: Sequence,
        filter: Option<&Filter>,
        pass: &mut Option<Box<HydrationPass>>,
        page_bytes: usize,
    ) -> (EncodedFrames, Option<Hydrated>) {
        let (through, compacted) = (self.through, self.compacted);
        let anew = |known, page_bytes| HydrationPass { known, begun: through, next: 0, page_bytes, framed: None, compacted };
        let known = pass.take().map(|pass| *pass).filter(|pass| pass.compacted == compacted);
        let mut at = known.unwrap_or_else(|| anew(after, page_bytes));
        let fold = self.fold.as_ref().expect("the caller has checked that the ring has a fold");
        let activities = fold.activities();
        let mut out = FrameBuffer::new(self.epoch.unwrap_or(Epoch::from_random(0)));
        if let Some(framed) = at.framed.filter(|_| self.base <= at.begun) {
            encoder.hydrated(&mut out, framed, self.epoch.map(|_| at.begun));
            return (out.finish(), Some(Hydrated { through: at.begun, framed }));
        }
        let from = at.next;
        let (is_first_pass, page_bytes) = (at.known == Sequence::NONE, at.page_bytes);
        let is_shared = is_first_pass && filter.is_none() && [HYDRATION_BYTES_MAX, SINGLE_PAGE_BYTES_MAX].contains(&page_bytes);
        let known = self.pages.iter().find(|page| is_shared && (page.page_bytes, page.from) == (page_bytes, from));
        if let Some(page) = known.filter(|page| page.framed.is_none() || at.begun == through) {
            *pass = page.framed.is_none().then(|| Box::new(HydrationPass { next: page.next, ..at }));
            return (page.frames.clone(), page.framed.map(|framed| Hydrated { through, framed }));
        }
        loop {
            let since = at.known;
            let is_due = |activity: &Activity| {
                activity.sequence.0 > since.0 + u64::from(sabotage::is(17))
                    && filter.is_none_or(|filter| filter.accepts_activity(activity))
            };
            for activity in &activities[at.next..] {
                if out.len() >= at.page_bytes {
                    break;
                }
                let (begun, index, sequence) = (out.len(), at.next, activity.sequence);
                at.next += 1;
                if !is_due(activity) {
                    continue;
                }
                let of_this = self.shared_activities.iter().find(|large| (large.index, large.sequence) == (index, sequence));
                // An activity that fills a page has one of its own, which readers share.
                let frames = match of_this.filter(|large| begun == 0 && large.frames.len() >= at.page_bytes) {
                    Some(large) => large.frames.clone(),
                    None => {
                        encoder.snapshot(&mut out, sequence, None, activity);
                        if out.len() - begun < at.page_bytes {
                            continue;
                        }
                        if begun > 0 {
                            out.pop();
                            at.next = index;
                            break;
                        }
                        let frames = out.finish();
                        self.shared_activities.retain(|large| large.index != index);
                        self.shared_activities.push(SharedActivity { index, sequence, frames: frames.clone() });
                        frames
                    }
                };
                let is_last = at.begun == through && !activities[at.next..].iter().any(is_due);
                at.framed = is_last.then(|| last_framed_of(fold, filter));
                *pass = Some(Box::new(at));
                return (frames, None);
            }
            if at.next < activities.len() || at.begun == through {
                break;
            }
            at = anew(at.begun, at.page_bytes.saturating_mul(PAGE_GROWTH));
        }
        let framed = (at.next == activities.len() && at.begun == through).then(|| last_framed_of(fold, filter));
        if let Some(framed) = framed {
            let framed = if sabotage::is(31) { Sequence(framed.0.saturating_sub(1)) } else { framed };
            encoder.hydrated(&mut out, framed, self.epoch.map(|_| through));
        }
        let frames = out.finish();
        // The empty page of a new log costs less to encode again than to keep.
        if is_shared && at.known == Sequence::NONE && !activities.is_empty() {
            self.pages.push(HydrationPage { page_bytes, from, next: at.next, frames: frames.clone(), framed });
        }
        *pass = framed.is_none().then(|| Box::new(at));
        (frames, framed.map(|framed| Hydrated { through, framed }))
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
        let chunk = FrameSpan::activities(&encoder, FrameBuffer::new(Epoch::from_random(EPOCH)), fold, rows.into_iter());
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
        crate::feed::tests::decoded(page).map(|(object, _)| object)
    }

    #[test]
    fn activities_that_change_during_a_hydration_arrive_in_their_final_state() {
        const BYTES_MAX: usize = 2000;
        let encoder = Encoder::new(&log());
        let mut ring = ring();
        for message in 0..100 {
            flush(&mut ring, message, "a text of some length, so that a page has a few of them", &Audience::ALL);
        }
        let (mut pass, mut known, mut pages) = (None::<Box<HydrationPass>>, BTreeMap::new(), 0);
        let hydrated = loop {
            // A page at which a pass ends may have a part of the next one.
            let bytes_max = pass.as_ref().map_or(BYTES_MAX, |pass| pass.page_bytes * if pages < 10 { 1 } else { PAGE_GROWTH });
            let (page, hydrated) = ring.hydrate(&encoder, Sequence::NONE, None, &mut pass, BYTES_MAX);
            assert!(page.len() < bytes_max + 1000, "a page exceeds the limit by less than one activity: {}", page.len());
            take(&mut known, &page);
            pages += 1;
            assert_eq!(objects(&page).last().unwrap()["frame"] == "Hydrated", hydrated.is_some());
            match hydrated {
                Some(hydrated) => break hydrated,
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
        assert_eq!((known, hydrated), (there, Hydrated { through: ring.through, framed: fold.last_framed }));
        assert!(pages > 15 && pass.is_none(), "{pages}");
    }

    #[test]
    fn a_reader_that_is_slower_than_the_changes_is_hydrated() {
        let encoder = Encoder::new(&log());
        // Two messages of which one fills five pages, or three that fill two.
        for (texts, expected) in [(&[1, HYDRATION_BYTES_MAX * 5][..], 4), (&[HYDRATION_BYTES_MAX * 2 / 3; 3], 2)] {
            let mut ring = ring();
            for (message, bytes) in texts.iter().enumerate() {
                flush(&mut ring, message, &"x".repeat(*bytes), &Audience::ALL);
            }
            let (mut pass, mut known, mut pages) = (None, BTreeMap::new(), 0);
            let hydrated = loop {
                let (page, hydrated) = ring.hydrate(&encoder, Sequence::NONE, None, &mut pass, HYDRATION_BYTES_MAX);
                pages += 1;
                take(&mut known, &page);
                // The last messages change while the reader takes the page.
                for message in 1..texts.len() {
                    flush(&mut ring, message, "more", &Audience::ALL);
                }
                if let Some(hydrated) = hydrated {
                    break hydrated;
                }
                assert!(pages < 10, "the hydration ends while the messages change");
            };
            assert_eq!((pages, pass.is_none(), known.len()), (expected, true, texts.len() + 1));
            // The changes since then come as deltas.
            let mut prev = hydrated.framed;
            let later: Vec<_> = ring.chunks.iter().filter_map(|chunk| chunk.after(hydrated.through, None, &mut prev)).collect();
            let deltas: Vec<_> = later.iter().flat_map(objects).map(|frame| frame["sequence"].as_u64().unwrap()).collect();
            assert!(known.values().all(|sequence| *sequence <= hydrated.through.0));
            assert!(deltas.iter().copied().eq(hydrated.through.0 + 1..=ring.through.0), "{deltas:?}");
        }
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

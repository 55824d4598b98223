//! A view's ring: the newest frames, encoded once, as the chunks that readers share.

use super::Selection;
use crate::encode::native::{Encoder, end_of_frame, number};
use crate::log::row::Row;
use crate::log::run::Tail;
use crate::model::{AgentId, Audience, Cursor, Epoch, Sequence, Surface};
use crate::projection;
use bytes::Bytes;
use std::collections::VecDeque;

/// Where a frame is in its chunk.
#[derive(Debug, Clone, Copy)]
struct Mark {
    sequence: Sequence,
    at: u32,
}

/// What a reader with a selection must know of an activity's frame to take it out of the chunk.
#[derive(Debug, Clone)]
struct Tag {
    /// Where the frame's `prev` stands, and where the data line ends.
    prev: u32,
    after_prev: u32,
    end: u32,
    surface: Surface,
    agent: Option<AgentId>,
}

/// Frames of the envelopes `(after, last]`, encoded.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub after: Sequence,
    pub last: Sequence,
    pub bytes: Bytes,
    marks: Box<[Mark]>,
    /// One a mark, of activities' frames.
    tags: Box<[Tag]>,
}

impl Chunk {
    /// The events that `audience` gets of rows after `after`.
    pub fn events(encoder: &Encoder, epoch: Epoch, audience: Audience, rows: impl Iterator<Item = Row>, after: Sequence) -> Self {
        let mut bytes = Vec::with_capacity(1024);
        let mut marks = Vec::new();
        let mut last = after;
        for row in rows.filter(|row| row.sequence() > after) {
            last = row.sequence();
            if let Some(view) = row.view(audience) {
                marks.push(Mark { sequence: last, at: place(bytes.len()) });
                encoder.event(&mut bytes, Cursor::at(epoch, last), last, row.prev(audience), view);
            }
        }
        Self { after, last, bytes: bytes.into(), marks: marks.into(), tags: Box::default() }
    }

    /// What rows after the fold's place do to its activities. Moves the fold.
    pub fn activities(encoder: &Encoder, epoch: Epoch, fold: &mut projection::View, rows: impl Iterator<Item = Row>) -> Self {
        let mut bytes = Vec::with_capacity(1024);
        let (mut marks, mut tags) = (Vec::new(), Vec::new());
        let after = fold.through;
        for row in rows.filter(|row| row.sequence() > after) {
            let sequence = row.sequence();
            let folded = fold.fold(sequence, row.view(fold.audience));
            let count = folded.touched.len();
            for (n, touch) in (1..).zip(&folded.touched) {
                let activity = fold.touched(touch);
                marks.push(Mark { sequence, at: place(bytes.len()) });
                let placed = encoder.touched(&mut bytes, sequence, folded.prev, activity, touch);
                tags.push(Tag {
                    prev: place(placed.prev),
                    after_prev: place(placed.after_prev),
                    end: place(bytes.len()),
                    surface: activity.surface.clone(),
                    agent: activity.agent.clone(),
                });
                end_of_frame(&mut bytes, (n == count).then(|| Cursor::at(epoch, sequence)));
            }
        }
        Self { after, last: fold.through, bytes: bytes.into(), marks: marks.into(), tags: tags.into() }
    }

    /// The frames after `after`; `None` if there are none.
    pub fn after(&self, after: Sequence) -> Option<Bytes> {
        if after <= self.after {
            return (!self.bytes.is_empty()).then(|| self.bytes.clone());
        }
        let Mark { at, .. } = self.marks.get(self.first_after(after))?;
        Some(self.bytes.slice(*at as usize..))
    }

    fn first_after(&self, after: Sequence) -> usize {
        self.marks.partition_point(|mark| mark.sequence <= after)
    }

    /// The frames of activities after `after` that are chosen, with a `prev` and cursors of their own; moves `prev` on.
    pub fn chosen_after(&self, after: Sequence, epoch: Epoch, chosen: &Selection, prev: &mut Sequence) -> Option<Bytes> {
        let from = self.first_after(after);
        let taken = |(mark, tag): (&Mark, &Tag)| {
            chosen.has(tag.surface.as_str(), tag.agent.as_ref().map(AgentId::as_str)).then_some((
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
            number(&mut out, prev.0);
            out.extend_from_slice(&self.bytes[after_prev as usize..end as usize]);
            let is_last = frames.peek().is_none_or(|(next, ..)| next.sequence != mark.sequence);
            end_of_frame(&mut out, is_last.then(|| Cursor::at(epoch, mark.sequence)));
            if is_last {
                *prev = mark.sequence;
            }
        }
        (!out.is_empty()).then(|| out.into())
    }

    /// The last envelope that has a frame here.
    pub fn last_framed(&self) -> Option<Sequence> {
        self.marks.last().map(|mark| mark.sequence)
    }

    /// What it takes in memory, in bytes.
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.marks.len() * size_of::<Mark>() + self.tags.len() * size_of::<Tag>()
    }

    /// How many frames there are.
    pub const fn frame_count(&self) -> usize {
        self.marks.len()
    }
}

fn place(at: usize) -> u32 {
    u32::try_from(at).expect("a chunk is bounded far below 4 GiB")
}

/// The newest frames of one view, and of activities the fold that makes them.
pub(super) struct Ring {
    pub epoch: Option<Epoch>,
    /// How often the log was compacted when the ring began.
    pub compacted: u64,
    /// The ring holds every frame of `(base, through]`.
    pub base: Sequence,
    pub through: Sequence,
    pub chunks: VecDeque<Chunk>,
    bytes: usize,
    /// How the run ended, as of `through`.
    pub ended: Option<&'static str>,
    /// The activities as of `through`; `None` until a reader brings it up, and for events.
    pub fold: Option<Box<projection::View>>,
    /// Pages of what new readers of everything get, as of [`Self::through`]: many that come at once share them.
    pages: Vec<Page>,
    /// Activities that fill a page each and that a reader still holds: all readers share one text of each.
    large: Vec<Large>,
}

/// How much of the activities a joining reader gets at once, in bytes; or one activity, if that is larger. A reader that does
/// not read holds no more than this.
pub(super) const HYDRATION_BYTES_MAX: usize = 64 * 1024;

/// How far a joining reader is with the activities. It takes them page by page, while they change: each pass over them brings
/// what changed since the pass before it began, and the last pass is one in which nothing changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    /// Before this pass the reader knows everything up to here.
    known: Sequence,
    /// Where the ring stood when the pass began.
    begun: Sequence,
    /// The place of the activity that comes next. Activities keep their places.
    next: usize,
    /// How often the log was compacted when the pass began.
    compacted: u64,
}

/// An activity that fills a page, as it was at a sequence.
struct Large {
    place: usize,
    sequence: Sequence,
    bytes: Bytes,
}

/// A page of the first pass of a reader of everything.
struct Page {
    /// The places of its activities: from here, up to the one before `next`.
    from: usize,
    next: usize,
    bytes: Bytes,
    /// Set on the page that ends the pass: the last envelope that gave a frame.
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
            large: Vec::new(),
        };
        ring.restart(tail);
        ring
    }

    /// Takes what a flush made. Of a flush that made no frames only its place is kept: a reader may stay for a million of them.
    pub fn push(&mut self, chunk: Chunk, bytes_max: usize) {
        self.through = chunk.last;
        self.pages.clear();
        self.large.retain(|large| !large.bytes.is_unique());
        if chunk.frame_count() == 0 {
            return;
        }
        self.bytes += chunk.weight();
        self.chunks.push_back(chunk);
        while self.bytes > bytes_max && self.chunks.len() > 1 {
            let dropped = self.chunks.pop_front().expect("more than one");
            self.bytes -= dropped.weight();
            self.base = dropped.last;
        }
    }

    /// Begins anew at the log's tail, without a fold.
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
        self.large.clear();
    }

    /// The log's past was rewritten. What comes later goes on from the ring's place all the same, if that is where the log ended
    /// then; nothing before it does.
    pub fn forget_past(&mut self, tail: &Tail) {
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

    /// The next page of what brings a reader that knows everything up to `after` to where the ring stands: the activities that
    /// changed since, as they are, and at the end that this is all. Then it also returns the last envelope that gave the
    /// reader's selection a frame; until then `pass` says how the reader goes on.
    pub fn hydrate(
        &mut self,
        encoder: &Encoder,
        after: Sequence,
        chosen: Option<&Selection>,
        pass: &mut Option<Pass>,
        bytes_max: usize,
    ) -> (Bytes, Option<Sequence>) {
        let (through, compacted) = (self.through, self.compacted);
        let anew = |known| Pass { known, begun: through, next: 0, compacted };
        let mut at = pass.take().filter(|pass| pass.compacted == compacted).unwrap_or_else(|| anew(after));
        let fold = self.fold.as_ref().expect("the caller saw that there is a fold");
        let (from, is_shared) = (at.next, at.known == Sequence::NONE && chosen.is_none() && bytes_max == HYDRATION_BYTES_MAX);
        let known = self.pages.iter().find(|page| is_shared && page.from == from);
        if let Some(page) = known.filter(|page| page.framed.is_none() || at.begun == through) {
            *pass = page.framed.is_none().then_some(Pass { next: page.next, ..at });
            return (page.bytes.clone(), page.framed);
        }
        let mut out = Vec::new();
        loop {
            for activity in &fold.activities()[at.next..] {
                if out.len() >= bytes_max {
                    break;
                }
                if activity.sequence > at.known && chosen.is_none_or(|chosen| chosen.takes_activity(activity)) {
                    let (begun, place, sequence) = (out.len(), at.next, activity.sequence);
                    let known = self.large.iter().find(|large| (large.place, large.sequence) == (place, sequence));
                    if let Some(large) = known.filter(|_| begun == 0) {
                        *pass = Some(Pass { next: place + 1, ..at });
                        return (large.bytes.clone(), None);
                    }
                    encoder.snapshot(&mut out, sequence, None, activity);
                    end_of_frame(&mut out, None);
                    if out.len() - begun >= bytes_max {
                        // Readers share it where it has a page of its own.
                        if begun > 0 {
                            out.truncate(begun);
                            break;
                        }
                        let bytes = Bytes::from(out);
                        self.large.retain(|large| large.place != place);
                        self.large.push(Large { place, sequence, bytes: bytes.clone() });
                        *pass = Some(Pass { next: place + 1, ..at });
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
        let framed = (at.next == fold.activities().len() && at.begun == through).then(|| framed(fold, chosen));
        if let Some(framed) = framed {
            out.extend_from_slice(&encoder.hydrated(framed, self.epoch.map(|epoch| Cursor::at(epoch, through))));
        }
        let bytes = Bytes::from(out);
        if is_shared && at.known == Sequence::NONE {
            self.pages.push(Page { from, next: at.next, bytes: bytes.clone(), framed });
        }
        *pass = framed.is_none().then_some(at);
        (bytes, framed)
    }

    /// The same at once, for a reader of several logs.
    pub fn hydration(&mut self, encoder: &Encoder, after: Sequence, chosen: Option<&Selection>) -> (Bytes, Sequence) {
        let (bytes, framed) = self.hydrate(encoder, after, chosen, &mut None, usize::MAX);
        (bytes, framed.expect("nothing was left for another page"))
    }
}

/// The last envelope that gave a frame of what is chosen.
pub(super) fn framed(fold: &projection::View, chosen: Option<&Selection>) -> Sequence {
    match chosen {
        None => fold.framed,
        Some(chosen) => {
            let taken = fold.activities().iter().filter(|activity| chosen.takes_activity(activity));
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

    /// The ring of a view that has seen nothing.
    fn ring() -> Ring {
        let mut ring = Ring::new(&Tail { epoch: Some(Epoch::from_random(EPOCH)), ..Tail::default() });
        ring.fold = Some(Box::new(projection::View::new(&log(), Audience::User)));
        ring
    }

    /// A row of text for one message, as the audiences get it that may see it.
    fn row(sequence: u64, message: usize, text: &str, audiences: &[Audience]) -> Row {
        let text = format!(
            r#"{{"type":"text.delta","sequence":{sequence},"messageId":"m{message}","partId":"p","phase":"producing","surface":"conversation","payload":{{"text":"{text}"}}}}"#
        );
        let views = Audience::ALL.map(|audience| audiences.contains(&audience).then_some(text.as_bytes()));
        let mut rows = Vec::new();
        Row::encode(&mut rows, Sequence(sequence), [Sequence::NONE; 3], views);
        Rows(rows.into()).next().unwrap()
    }

    /// A flush of text for one message.
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

    /// Takes snapshots as a reader does: the last of each activity counts.
    fn take(known: &mut BTreeMap<String, u64>, page: &Bytes) {
        let text = std::str::from_utf8(page).unwrap();
        for frame in text.split("\n\n").filter(|frame| frame.contains("ActivitySnapshot")) {
            let frame: serde_json::Value = serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap();
            known.insert(frame["activityId"].to_string(), frame["sequence"].as_u64().unwrap());
        }
    }

    #[test]
    fn activities_that_change_while_a_reader_takes_them_page_by_page_come_as_they_are_at_the_end() {
        const BYTES_MAX: usize = 2000;
        let encoder = Encoder::new(&log());
        let mut ring = ring();
        for message in 0..100 {
            flush(&mut ring, message, "a text of some length, so that a page has a few of them", &Audience::ALL);
        }
        let (mut pass, mut known, mut pages) = (None, BTreeMap::new(), 0);
        let framed = loop {
            let (page, framed) = ring.hydrate(&encoder, Sequence::NONE, None, &mut pass, BYTES_MAX);
            assert!(page.len() < BYTES_MAX + 1000, "a page has one activity more than fits: {}", page.len());
            take(&mut known, &page);
            pages += 1;
            assert_eq!(page.ends_with(b"\n\n") && memchr::memmem::find(&page, b"Hydrated").is_some(), framed.is_some());
            match framed {
                Some(framed) => break framed,
                // Those that were sent, those that were not, and new ones, for as long as the first pass goes.
                None if pages < 15 => {
                    for message in [0, 50, 99, 100 + pages] {
                        flush(&mut ring, message, "more", &Audience::ALL);
                    }
                }
                None => assert!(pages < 100, "it comes to an end once the activities are at rest"),
            }
        };
        let fold = ring.fold.as_ref().unwrap();
        let there: BTreeMap<_, _> = fold.activities().iter().map(|a| (format!("\"{}\"", a.id), a.sequence.0)).collect();
        assert_eq!((known, framed), (there, fold.framed));
        assert!(pages > 15 && pass.is_none(), "{pages}");
    }

    #[test]
    fn readers_that_join_at_the_same_place_share_their_pages_and_one_that_knows_a_part_gets_the_rest() {
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
        assert!(join(Sequence::NONE, &mut ring)[0].as_ptr() != first[0].as_ptr(), "what changed is encoded anew");
        // One that fills a page is shared for as long as it does not change, whatever else does.
        flush(&mut ring, 8, &"x".repeat(HYDRATION_BYTES_MAX), &Audience::ALL);
        let alone =
            |pages: Vec<Bytes>| pages.into_iter().find(|page| page.len() > HYDRATION_BYTES_MAX && take_one(page)).unwrap();
        let before = alone(join(Sequence::NONE, &mut ring));
        flush(&mut ring, 0, "more", &Audience::ALL);
        let (after, later) = (alone(join(Sequence::NONE, &mut ring)), alone(join(Sequence(7), &mut ring)));
        assert!(before.as_ptr() == after.as_ptr() && before.as_ptr() == later.as_ptr());
        drop((before, after, later));
        flush(&mut ring, 0, "more", &Audience::ALL);
        assert!(ring.large.is_empty(), "nobody holds it");
        flush(&mut ring, 8, "more", &Audience::ALL);
        let mut known = BTreeMap::new();
        for page in join(Sequence::NONE, &mut ring) {
            take(&mut known, &page);
        }
        assert!(known["\"m8\""] == ring.through.0 && known.len() == 10, "{known:?}");
    }

    /// Whether a page has one activity.
    fn take_one(page: &Bytes) -> bool {
        memchr::memmem::find_iter(page, b"ActivitySnapshot").count() == 1
    }
}

//! A view's ring: the newest frames, encoded once, as the chunks that readers share.

use super::Selection;
use crate::encode::native::{Encoder, end_of_frame, number};
use crate::log::row::Row;
use crate::log::run::Tail;
use crate::model::{AgentId, Audience, Cursor, Epoch, Sequence, Surface};
use crate::projection;
use crate::projection::stage::Activity;
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
    /// What a new reader of everything is told, as of a sequence: many who come at once share it.
    whole: Option<(Sequence, Bytes)>,
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
            whole: None,
        };
        ring.restart(tail);
        ring
    }

    pub fn push(&mut self, chunk: Chunk, bytes_max: usize) {
        self.through = chunk.last;
        self.whole = None;
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
        self.whole = None;
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
        self.whole = None;
        self.compacted = compacted.times;
    }

    /// What brings a reader who knows everything up to `after` to where the ring stands: the activities that changed since,
    /// as they are, and that this is all. Also the last envelope that gave its selection a frame.
    pub fn hydration(&mut self, encoder: &Encoder, after: Sequence, chosen: Option<&Selection>) -> (Bytes, Sequence) {
        let through = self.through;
        let is_whole = after == Sequence::NONE && chosen.is_none();
        let fold = self.fold.as_ref().expect("the caller saw that there is a fold");
        let takes = |activity: &&Activity| chosen.is_none_or(|chosen| chosen.takes_activity(activity));
        let framed = framed(fold, chosen);
        if let Some((_, whole)) = self.whole.as_ref().filter(|(at, _)| is_whole && *at == through) {
            return (whole.clone(), framed);
        }
        let mut out = Vec::new();
        for activity in fold.activities().iter().filter(takes).filter(|activity| activity.sequence > after) {
            encoder.snapshot(&mut out, activity.sequence, None, activity);
            end_of_frame(&mut out, None);
        }
        let cursor = self.epoch.map(|epoch| Cursor::at(epoch, through));
        out.extend_from_slice(&encoder.hydrated(framed, cursor));
        let bytes = Bytes::from(out);
        if is_whole {
            self.whole = Some((through, bytes.clone()));
        }
        (bytes, framed)
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

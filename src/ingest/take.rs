//! A delivery at its log's desk: what of it is known already, what whoever sends it has a right to, and what its source's
//! adapter makes of the rest. Only here can a fact be refused.

use super::World;
use super::delivery::{Delivery, Fence, PRODUCERS_MAX, Producer, Reach};
use super::desk::{Desk, DeskState, Numbering};
use super::receipt::{IngestError, Outside, Receipt};
use super::stamp::{EncodedRows, Stamping};
use crate::guard::Policy;
use crate::log::LogId;
use crate::model::{Draft, Ids, Sequence};
use crate::source::{self, FactError};
use serde_json::Value;
use std::ops::Range;

/// What a fence leaves to be found out of a delivery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owes {
    Nothing,
    /// If it names a session, one that is inside.
    NoOther,
    /// A session that is inside.
    Session,
}

/// Why a delivery leads to no append.
enum Stopped {
    /// The stages are as they were.
    Before(IngestError),
    /// They have moved.
    Midway(IngestError),
}

impl From<IngestError> for Stopped {
    fn from(error: IngestError) -> Self {
        Self::Before(error)
    }
}

/// Why a fact of a delivery is refused.
enum Refused {
    Fact(FactError),
    NotJson(String),
    Outside(Outside),
}

/// Facts that are drafts at once. A longer delivery is looked through first and then taken piece by piece, so that it never
/// stands in memory as a whole.
const FACTS_AT_ONCE: u64 = 1024;

/// The bytes of envelopes and bodies that any delivery may lead to; a larger one twice its own text. They are written in one
/// commit, which keeps all others waiting.
pub const ENVELOPES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the adapter made of facts.
#[derive(Default)]
struct Adapted {
    drafts: Vec<Draft>,
    /// Where each fact's drafts end.
    ends: Vec<usize>,
    /// How many drafts there were, kept or not.
    count: usize,
    shed: u64,
    /// The first fact that is refused; nothing of it and behind it is in here.
    refused: Option<(u64, Refused)>,
}

/// The facts that are still to be taken of a delivery, and how.
struct Rest<'d> {
    delivery: &'d Delivery,
    given: Ids,
    /// Leaves out facts that come to nothing but diagnostics and metrics.
    sheds: bool,
}

impl Desk {
    /// Takes a delivery: moves every stage and leaves its appends in the outbox. An empty append goes out for what was all
    /// duplicates, too: its answer must not overtake the commit of what it repeats.
    ///
    /// `sheds` leaves out facts that come to nothing but diagnostics and metrics. A panic leaves the writer lost.
    pub fn take(&mut self, delivery: &Delivery, sheds: bool, policy: &Policy, world: World) -> Result<Receipt, IngestError> {
        self.used = true;
        self.state = DeskState::Lost;
        let taken = self.take_whole(delivery, sheds, policy, world);
        // Else the stages have moved, and there is no append of it.
        if !matches!(taken, Err(Stopped::Midway(_))) {
            self.state = DeskState::Active;
        }
        taken.map_err(|stopped| match stopped {
            Stopped::Before(error) | Stopped::Midway(error) => error,
        })
    }

    fn take_whole(&mut self, delivery: &Delivery, sheds: bool, policy: &Policy, world: World) -> Result<Receipt, Stopped> {
        if delivery.life.is_some_and(|life| life != self.epoch && Some(life) != self.void) {
            return Err(IngestError::Erased.into());
        }
        let mut owes = match &delivery.fence {
            Some(fence) => self.outside(fence)?,
            None => Owes::Nothing,
        };
        let count = delivery.facts.len() as u64;
        let (duplicates, numbering) = self.known_head(delivery.producer.as_ref(), count)?;
        let mut receipt = Receipt {
            run_id: None,
            session_id: None,
            epoch: None,
            accepted: 0,
            duplicates,
            shed: 0,
            first_sequence: None,
            last_sequence: self.summary.last_sequence,
            violations: Vec::new(),
            violations_omitted: 0,
        };
        match &self.id {
            LogId::Run(id) => receipt.run_id = Some(id.clone()),
            LogId::Session(id) => receipt.session_id = Some(id.clone()),
        }
        let mut given = delivery.given.clone();
        if let LogId::Run(id) = &self.id {
            given.run = Some(id.clone());
        }
        let rest = Rest { delivery, given, sheds };

        // The only stage that can refuse a fact comes first, for the whole delivery: what follows cannot fail.
        let is_whole = count - duplicates <= FACTS_AT_ONCE;
        let mut adapted = self.adapt(&rest, duplicates..count, &mut owes, is_whole);
        if let (Owes::Session, None, LogId::Run(run)) = (owes, &adapted.refused, self.id.clone()) {
            let named = rest.given.session.as_ref().filter(|_| adapted.count == 0);
            if !named.is_some_and(|session| delivery.fence.as_ref().is_some_and(|fence| fence.has(Reach::Session(session)))) {
                self.seat(delivery.source).rewind();
                return Err(IngestError::Foreign(Outside::Run(run)).into());
            }
        }
        let mut until = adapted.refused.as_ref().map_or(count, |(index, _)| *index);
        if adapted.refused.is_some() && delivery.atomic {
            self.seat(delivery.source).rewind();
            until = duplicates;
            adapted = Adapted { refused: adapted.refused, ..Adapted::default() };
        }
        let limit = ENVELOPES_BYTES_MAX.max(delivery.facts.text_bytes().saturating_mul(2));
        let bytes = delivery.envelope_bytes_of(adapted.count);
        if bytes > limit {
            self.seat(delivery.source).rewind();
            return Err(IngestError::EnvelopesTooLarge { bytes, limit }.into());
        }
        receipt.accepted = until - duplicates - adapted.shed;
        receipt.shed = adapted.shed;
        let refused = adapted.refused.take();

        let stamping = Stamping { given: &rest.given, policy, world, now: (world.now)() };
        let (first, mut rows, mut from) = (self.summary.last_sequence, EncodedRows::default(), duplicates);
        if !is_whole {
            self.seat(delivery.source).rewind();
        }
        while from < until {
            let to = until.min(from + FACTS_AT_ONCE);
            let Adapted { drafts, ends, .. } = match is_whole {
                true => std::mem::take(&mut adapted),
                false => self.adapt(&rest, from..to, &mut Owes::Nothing, true),
            };
            self.stamp(drafts, &ends, from, stamping, &mut rows, &mut receipt.violations);
            receipt.bound();
            if rows.bytes() > limit.saturating_mul(4) {
                return Err(Stopped::Midway(IngestError::EnvelopesTooLarge { bytes: rows.bytes(), limit }));
            }
            from = to;
        }
        receipt.last_sequence = self.summary.last_sequence;
        if receipt.last_sequence > first {
            receipt.first_sequence = Some(first.next());
        }
        let producer = delivery.producer.clone().zip(numbering).map(|(producer, mut numbering)| {
            numbering.next += receipt.accepted + receipt.shed;
            self.producers.insert(producer.id.clone(), numbering);
            (producer.id, numbering)
        });
        self.post(Some(delivery.source), producer, first, rows, until > duplicates);
        receipt.epoch = self.written.then_some(self.epoch);
        let kept = Box::new(receipt);
        Err(match refused {
            Some((index, Refused::Fact(error))) => IngestError::Fact { index, error, kept },
            Some((index, Refused::NotJson(error))) => IngestError::NotJson { index, error, kept },
            Some((index, Refused::Outside(error))) => IngestError::Outside { index, error, kept },
            None => return Ok(*kept),
        }
        .into())
    }

    /// Has the source's adapter make drafts of these facts, up to the first that is refused. `owes` is what a fence leaves to be
    /// found out; without `keeps` the drafts are only counted.
    fn adapt(&mut self, rest: &Rest<'_>, range: Range<u64>, owes: &mut Owes, keeps: bool) -> Adapted {
        let Rest { delivery, given, sheds } = rest;
        let seat = self.seat(delivery.source);
        let mut adapted = Adapted::default();
        let drafts = &mut adapted.drafts;
        let at = |index: u64| usize::try_from(index).expect("an index of what is in memory");
        for index in range.clone() {
            let begun = drafts.len();
            let refused = match delivery.facts.get(at(index)) {
                Ok(Value::Object(fact)) => seat.adapter.adapt(fact, given, drafts).err().map(Refused::Fact),
                Ok(other) => Some(Refused::Fact(FactError::NotAnObject { found: source::kind_of(&other) })),
                Err(error) => Some(Refused::NotJson(error.to_string())),
            };
            let refused = refused.or_else(|| {
                let fence = delivery.fence.as_ref().filter(|_| *owes != Owes::Nothing)?;
                let session = drafts[begun..].iter().find_map(|draft| draft.ids.session.as_ref().or(given.session.as_ref()))?;
                if fence.has(Reach::Session(session)) {
                    *owes = Owes::Nothing;
                    return None;
                }
                Some(Refused::Outside(Outside::Session(session.clone())))
            });
            if let Some(refused) = refused {
                drafts.truncate(begun);
                if let (Refused::Outside(_), false) = (&refused, delivery.atomic) {
                    // The adapter has taken this fact: it goes back to where it was before.
                    seat.rewind();
                    for before in range.start..index {
                        if let Ok(Value::Object(fact)) = delivery.facts.get(at(before)) {
                            // It was taken before.
                            let _ = seat.adapter.adapt(fact, given, &mut Vec::new());
                        }
                    }
                }
                adapted.refused = Some((index, refused));
                break;
            }
            if *sheds && drafts.len() > begun && drafts[begun..].iter().all(is_dispensable) {
                drafts.truncate(begun);
                adapted.shed += 1;
            }
            adapted.count += drafts.len() - begun;
            match keeps {
                true => adapted.ends.push(drafts.len()),
                false => drafts.clear(),
            }
        }
        // A body that is not JSON is told so, whatever else is wrong with it.
        if let (Some((index, refused @ Refused::Fact(_))), true) = (&mut adapted.refused, delivery.atomic)
            && let Some((bad, error)) = delivery.facts.check(at(*index) + 1)
        {
            (*index, *refused) = (bad as u64, Refused::NotJson(error.to_string()));
        }
        adapted
    }

    /// Whether the fence has this run, and what is still to be found out if that is not decided. A run with envelopes and without
    /// a session is nobody's but those who have it by name: else whoever has any session could take it there.
    fn outside(&self, fence: &Fence) -> Result<Owes, IngestError> {
        let LogId::Run(run) = &self.id else { return Ok(Owes::Nothing) };
        let session = self.summary.session_id.as_ref();
        match (session, fence.has(Reach::Run(run, session))) {
            (Some(_), true) => Ok(Owes::Nothing),
            (None, true) => Ok(Owes::NoOther),
            (None, false) if self.summary.last_sequence == Sequence::NONE => Ok(Owes::Session),
            _ => Err(IngestError::Foreign(Outside::Run(run.clone()))),
        }
    }

    /// How many of a producer's facts are known already, and its numbering before the rest.
    fn known_head(&self, producer: Option<&Producer>, count: u64) -> Result<(u64, Option<Numbering>), IngestError> {
        let Some(Producer { id, epoch, seq }) = producer else { return Ok((0, None)) };
        let known = match self.producers.get(id) {
            None if self.producers.len() >= PRODUCERS_MAX => return Err(IngestError::TooManyProducers),
            None => Numbering { epoch: *epoch, next: 0 },
            Some(known) if known.epoch > *epoch => {
                return Err(IngestError::ProducerFenced { producer: id.clone(), got: *epoch, current: known.epoch });
            }
            Some(known) if known.epoch < *epoch => Numbering { epoch: *epoch, next: 0 },
            Some(known) => *known,
        };
        if *seq > known.next {
            return Err(IngestError::ProducerGap { producer: id.clone(), got: *seq, expected: known.next });
        }
        Ok(((known.next - seq).min(count), Some(known)))
    }
}

/// Whether nobody's picture hangs on it.
fn is_dispensable(draft: &Draft) -> bool {
    let class = draft.class.as_str();
    class.starts_with("diagnostic.") || class.starts_with("metric.")
}

//! A delivery at its log's desk: what of it is known already, what whoever sends it has a right to, and what its source's
//! adapter makes of the rest. Only here can a fact be refused.

use super::World;
use super::delivery::{Delivery, Fence, PRODUCERS_MAX, Producer, Reach};
use super::desk::{Desk, Numbering};
use super::receipt::{IngestError, Outside, Receipt};
use crate::guard::Policy;
use crate::log::LogId;
use crate::model::{Draft, Sequence};
use crate::source::{self, FactError};
use serde_json::Value;

/// What a fence leaves to be found out of a delivery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owes {
    Nothing,
    /// If it names a session, one that is inside.
    NoOther,
    /// A session that is inside.
    Session,
}

/// Why a fact of a delivery is refused.
enum Refused {
    Fact(FactError),
    Outside(Outside),
}

impl Desk {
    /// Takes a delivery: moves every stage and leaves an append in the outbox. An empty append goes out for what was all
    /// duplicates, too: its answer must not overtake the commit of what it repeats.
    ///
    /// `sheds` leaves out facts that come to nothing but diagnostics and metrics.
    pub fn take(&mut self, delivery: Delivery, sheds: bool, policy: &Policy, world: World) -> Result<Receipt, IngestError> {
        self.used = true;
        if delivery.life.is_some_and(|life| life != self.epoch) {
            return Err(IngestError::Erased);
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
        let mut given = delivery.given;
        if let LogId::Run(id) = &self.id {
            given.run = Some(id.clone());
        }

        // The only stage that can refuse a fact comes first, for the whole delivery: what follows cannot fail.
        let seat = self.seat(delivery.source);
        let mut drafts = Vec::with_capacity(delivery.facts.len());
        let mut ends = Vec::with_capacity(delivery.facts.len());
        let mut refused = None;
        for (index, fact) in (0..count).zip(delivery.facts).skip(usize::try_from(duplicates).unwrap_or(usize::MAX)) {
            let begun = drafts.len();
            let before = (owes != Owes::Nothing).then(|| (seat.adapter.save(), drafts.len()));
            let adapted = match fact {
                Value::Object(fact) => seat.adapter.adapt(fact, &given, &mut drafts),
                other => Err(FactError::NotAnObject { found: source::kind_of(&other) }),
            };
            if let Err(error) = adapted {
                refused = Some((index, Refused::Fact(error)));
                break;
            }
            if let (Some((memory, from)), Some(fence)) = (before, &delivery.fence) {
                let named = drafts[from..].iter().find_map(|draft| draft.ids.session.as_ref().or(given.session.as_ref()));
                match named.map(|session| (fence.has(Reach::Session(session)), session)) {
                    Some((true, _)) => owes = Owes::Nothing,
                    Some((false, session)) => {
                        refused = Some((index, Refused::Outside(Outside::Session(session.clone()))));
                        seat.rewind(&memory);
                        drafts.truncate(from);
                        break;
                    }
                    None => {}
                }
            }
            if sheds && drafts.len() > begun && drafts[begun..].iter().all(is_dispensable) {
                drafts.truncate(begun);
                receipt.shed += 1;
            }
            ends.push(drafts.len());
        }
        if let (Owes::Session, None, LogId::Run(run)) = (owes, &refused, self.id.clone()) {
            let named = given.session.as_ref().filter(|_| drafts.is_empty());
            if !named.is_some_and(|session| delivery.fence.as_ref().is_some_and(|fence| fence.has(Reach::Session(session)))) {
                let seat = self.seat(delivery.source);
                seat.rewind_all();
                return Err(IngestError::Foreign(Outside::Run(run)));
            }
        }
        let seat = self.seat(delivery.source);
        if refused.is_some() && delivery.atomic {
            seat.rewind_all();
            drafts.clear();
            ends.clear();
            receipt.shed = 0;
        }
        receipt.accepted = ends.len() as u64 - receipt.shed;

        let now = (world.now)();
        let first = self.summary.last_sequence;
        let mut blobs = Vec::new();
        let rows = self.stamp(drafts, &ends, duplicates, &given, policy, now, world, &mut blobs, &mut receipt.violations);
        receipt.bound();
        receipt.last_sequence = self.summary.last_sequence;
        if receipt.last_sequence > first {
            receipt.first_sequence = Some(first.next());
        }
        let producer = delivery.producer.zip(numbering).map(|(producer, mut numbering)| {
            numbering.next += receipt.accepted + receipt.shed;
            self.producers.insert(producer.id.clone(), numbering);
            (producer.id, numbering)
        });
        self.post(Some(delivery.source), producer, first, rows, blobs, !ends.is_empty());
        receipt.epoch = self.written.then_some(self.epoch);
        match refused {
            Some((index, Refused::Fact(error))) => Err(IngestError::Fact { index, error, kept: Box::new(receipt) }),
            Some((index, Refused::Outside(error))) => Err(IngestError::Outside { index, error, kept: Box::new(receipt) }),
            None => Ok(receipt),
        }
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

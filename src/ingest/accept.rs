//! The acceptance of a delivery by its log's writer.
//!
//! Duplicates, the caller's write scope, and the source's adapter.
//!
//! Only this step can refuse a fact.

use super::Environment;
use super::delivery::{Delivery, PRODUCERS_MAX, Producer, WriteScope, WriteTarget};
use super::receipt::{IngestError, OutOfScope, Receipt};
use super::rows::EncodedRows;
use super::stamp::StampContext;
use super::writer::{LogWriter, Numbering, WriterState};
use crate::guard::Policy;
use crate::log::LogId;
use crate::model::{Draft, Ids, Sequence};
use crate::source::{self, FactError};
use serde_json::Value;
use std::ops::Range;

/// The part of the scope check that depends on the delivery's facts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PendingCheck {
    Nothing,
    /// If a fact names a session, the scope must allow it.
    NoOther,
    /// A fact must name a session that the scope allows.
    Session,
}

/// Why a delivery leads to no append.
enum Stopped {
    /// The stages are unchanged.
    Before(IngestError),
    /// The stages have changed.
    Midway(IngestError),
}

impl From<IngestError> for Stopped {
    fn from(error: IngestError) -> Self {
        Self::Before(error)
    }
}

/// Why a fact is refused.
enum Refused {
    Fact(FactError),
    NotJson(String),
    OutOfScope(OutOfScope),
}

/// The most facts that exist as drafts at once.
///
/// The writer scans a longer delivery first, then accepts it piece by piece, so that it is never in memory as a whole.
const FACTS_AT_ONCE: u64 = 1024;

/// The most bytes of envelopes and bodies of a delivery.
///
/// A larger delivery may reach twice its own text. One commit writes them, and all others wait for it.
pub const ENVELOPES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The drafts that an adapter made of facts.
#[derive(Default)]
struct Adapted {
    drafts: Vec<Draft>,
    /// The end of each fact's drafts.
    ends: Vec<usize>,
    /// The number of drafts, kept or not.
    count: usize,
    shed: u64,
    /// The first refused fact; the drafts end before it.
    refused: Option<(u64, Refused)>,
}

/// The part of a delivery that is not a duplicate.
struct RemainingFacts<'d> {
    delivery: &'d Delivery,
    given: Ids,
    /// Whether to drop facts that lead only to diagnostics and metrics.
    sheds: bool,
}

impl LogWriter {
    /// Accepts a delivery: moves every stage and leaves the appends in the outbox.
    ///
    /// A delivery of duplicates only gets an empty append, because its answer must not overtake the commit of the
    /// originals. `sheds` drops facts that lead only to diagnostics and metrics. A panic leaves the writer in the state
    /// `Lost`.
    pub fn accept(
        &mut self,
        delivery: &Delivery,
        sheds: bool,
        policy: &Policy,
        environment: Environment,
    ) -> Result<Receipt, IngestError> {
        self.is_used = true;
        self.state = WriterState::Lost;
        let taken = self.accept_whole(delivery, sheds, policy, environment);
        // Otherwise the stages have moved without an append.
        if !matches!(taken, Err(Stopped::Midway(_))) {
            self.state = WriterState::Active;
        }
        taken.map_err(|stopped| match stopped {
            Stopped::Before(error) | Stopped::Midway(error) => error,
        })
    }

    fn accept_whole(
        &mut self,
        delivery: &Delivery,
        sheds: bool,
        policy: &Policy,
        environment: Environment,
    ) -> Result<Receipt, Stopped> {
        if delivery.epoch.is_some_and(|epoch| epoch != self.epoch && Some(epoch) != self.void_epoch) {
            return Err(IngestError::Erased.into());
        }
        let mut check = match &delivery.write_scope {
            Some(write_scope) => self.check_scope(write_scope)?,
            None => PendingCheck::Nothing,
        };
        let count = delivery.facts.len() as u64;
        let (duplicates, numbering) = self.duplicate_head(delivery.producer.as_ref(), count)?;
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
        let rest = RemainingFacts { delivery, given, sheds };

        // The adapter is the only stage that can refuse a fact. It runs first, for the whole delivery, so that later
        // stages cannot fail.
        let is_whole = count - duplicates <= FACTS_AT_ONCE;
        let mut adapted = self.adapt(&rest, duplicates..count, &mut check, is_whole);
        if let (PendingCheck::Session, None, LogId::Run(run)) = (check, &adapted.refused, self.id.clone()) {
            let named = rest.given.session.as_ref().filter(|_| adapted.count == 0);
            if !named.is_some_and(|session| {
                delivery.write_scope.as_ref().is_some_and(|write_scope| write_scope.allows(WriteTarget::Session(session)))
            }) {
                self.adapter_entry(delivery.source).rewind();
                return Err(IngestError::RunOutOfScope(OutOfScope::Run(run)).into());
            }
        }
        let mut until = adapted.refused.as_ref().map_or(count, |(index, _)| *index);
        if adapted.refused.is_some() && delivery.atomic {
            self.adapter_entry(delivery.source).rewind();
            until = duplicates;
            adapted = Adapted { refused: adapted.refused, ..Adapted::default() };
        }
        let limit = ENVELOPES_BYTES_MAX.max(delivery.facts.text_bytes().saturating_mul(2));
        let bytes = delivery.envelope_bytes_of(adapted.count);
        if bytes > limit {
            self.adapter_entry(delivery.source).rewind();
            return Err(IngestError::EnvelopesTooLarge { bytes, limit }.into());
        }
        receipt.accepted = until - duplicates - adapted.shed;
        receipt.shed = adapted.shed;
        let refused = adapted.refused.take();

        let context = StampContext { given: &rest.given, policy, environment, now: (environment.now)() };
        let (first, mut rows, mut from) = (self.summary.last_sequence, EncodedRows::default(), duplicates);
        if !is_whole {
            self.adapter_entry(delivery.source).rewind();
        }
        while from < until {
            let to = until.min(from + FACTS_AT_ONCE);
            let Adapted { drafts, ends, .. } = match is_whole {
                true => std::mem::take(&mut adapted),
                false => self.adapt(&rest, from..to, &mut PendingCheck::Nothing, true),
            };
            self.stamp(drafts, &ends, from, context, &mut rows, &mut receipt.violations);
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
        self.prepare_append(Some(delivery.source), producer, first, rows, until > duplicates);
        receipt.epoch = self.is_written.then_some(self.epoch);
        let kept = Box::new(receipt);
        Err(match refused {
            Some((index, Refused::Fact(error))) => IngestError::Fact { index, error, kept },
            Some((index, Refused::NotJson(error))) => IngestError::NotJson { index, error, kept },
            Some((index, Refused::OutOfScope(error))) => IngestError::OutOfScope { index, error, kept },
            None => return Ok(*kept),
        }
        .into())
    }

    /// Makes drafts of these facts, up to the first refused one.
    ///
    /// `check` is the pending part of the scope check. Without `keeps`, the drafts are only counted.
    fn adapt(&mut self, rest: &RemainingFacts<'_>, range: Range<u64>, check: &mut PendingCheck, keeps: bool) -> Adapted {
        let RemainingFacts { delivery, given, sheds } = rest;
        let slot = self.adapter_entry(delivery.source);
        let mut adapted = Adapted::default();
        let drafts = &mut adapted.drafts;
        let at = |index: u64| usize::try_from(index).expect("a fact in memory has a usize index");
        for index in range.clone() {
            let begun = drafts.len();
            let refused = match delivery.facts.get(at(index)) {
                Ok(Value::Object(fact)) => slot.adapter.adapt(fact, given, drafts).err().map(Refused::Fact),
                Ok(other) => Some(Refused::Fact(FactError::NotAnObject { found: source::kind_of(&other) })),
                Err(error) => Some(Refused::NotJson(error.to_string())),
            };
            let refused = refused.or_else(|| {
                let write_scope = delivery.write_scope.as_ref().filter(|_| *check != PendingCheck::Nothing)?;
                let session = drafts[begun..].iter().find_map(|draft| draft.ids.session.as_ref().or(given.session.as_ref()))?;
                if write_scope.allows(WriteTarget::Session(session)) {
                    *check = PendingCheck::Nothing;
                    return None;
                }
                Some(Refused::OutOfScope(OutOfScope::Session(session.clone())))
            });
            if let Some(refused) = refused {
                drafts.truncate(begun);
                if let (Refused::OutOfScope(_), false) = (&refused, delivery.atomic) {
                    // The adapter has processed this fact; restore its state before it.
                    slot.rewind();
                    for before in range.start..index {
                        if let Ok(Value::Object(fact)) = delivery.facts.get(at(before)) {
                            // The adapter accepted this fact before.
                            let _ = slot.adapter.adapt(fact, given, &mut Vec::new());
                        }
                    }
                }
                adapted.refused = Some((index, refused));
                break;
            }
            if *sheds && drafts.len() > begun && drafts[begun..].iter().all(is_sheddable) {
                drafts.truncate(begun);
                adapted.shed += 1;
            }
            adapted.count += drafts.len() - begun;
            match keeps {
                true => adapted.ends.push(drafts.len()),
                false => drafts.clear(),
            }
        }
        // An atomic body that is not JSON gets that error before any other.
        if let (Some((index, refused @ Refused::Fact(_))), true) = (&mut adapted.refused, delivery.atomic)
            && let Some((bad, error)) = delivery.facts.check(at(*index) + 1)
        {
            (*index, *refused) = (bad as u64, Refused::NotJson(error.to_string()));
        }
        adapted
    }

    /// Checks the scope for this run; returns the check that remains for the facts.
    ///
    /// A run with envelopes but without a session is in scope only by its name. Otherwise every caller with any session
    /// could move the run into that session.
    fn check_scope(&self, write_scope: &WriteScope) -> Result<PendingCheck, IngestError> {
        let LogId::Run(run) = &self.id else { return Ok(PendingCheck::Nothing) };
        let session = self.summary.session_id.as_ref();
        match (session, write_scope.allows(WriteTarget::Run(run, session))) {
            (Some(_), true) => Ok(PendingCheck::Nothing),
            (None, true) => Ok(PendingCheck::NoOther),
            (None, false) if self.summary.last_sequence == Sequence::NONE => Ok(PendingCheck::Session),
            _ => Err(IngestError::RunOutOfScope(OutOfScope::Run(run.clone()))),
        }
    }

    /// The number of duplicates at the start of the delivery, and the producer's numbering before the rest.
    fn duplicate_head(&self, producer: Option<&Producer>, count: u64) -> Result<(u64, Option<Numbering>), IngestError> {
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

/// Whether no activity depends on the draft.
fn is_sheddable(draft: &Draft) -> bool {
    let event_type = draft.event_type.as_str();
    event_type.starts_with("diagnostic.") || event_type.starts_with("metric.")
}

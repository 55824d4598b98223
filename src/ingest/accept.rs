//! The acceptance of a parsed delivery by its log's writer.
//!
//! The writer first checks what depends on the log: its epoch, duplicates, the caller's write scope. Nothing has changed
//! until then. It then applies fact after fact, and no step of that refuses one.

use super::Core;
use super::delivery::{BeginOwner, Delivery, PRODUCERS_MAX, Producer, WriteScope, WriteTarget};
use super::parse::{Parsed, Refused, parse};
use super::quotas::Quota;
use super::receipt::{IngestError, OutOfScope, Receipt};
use super::stamp::{StampContext, Stamped};
use super::writer::{LogWriter, Numbering, WriterState};
use crate::environment::sabotage;
use crate::log::agent_memory::MemoryWrite;
use crate::log::{LogId, StoreError};
use crate::model::halves::Halves;
use crate::model::{Draft, Ids, Sequence, SessionId, SessionOwner};
use crate::source::Drafts;
use memchr::memmem;
use std::ops::Range;

/// The part of the scope check that depends on the delivery's facts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PendingCheck {
    Nothing,
    /// If a fact names a parent of its session, the scope must allow it.
    Parents,
    /// If a fact names a session or a parent, the scope must allow it.
    NoOther,
    /// A fact must name a session that the scope allows, and any parent must be allowed.
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

/// Why the rest of a delivery is refused.
enum Refusal {
    Parse(Refused),
    /// Which session a fact is about may depend on the log, so only its writer can refuse this.
    OutOfScope(OutOfScope),
}

/// The most bytes of envelopes and bodies of a delivery.
///
/// A larger delivery may reach twice its own text. One commit writes them, and all others wait for it.
pub const ENVELOPES_BYTES_MAX: usize = 64 * 1024 * 1024;

impl LogWriter {
    /// Accepts a delivery: moves every stage and leaves the appends in the outbox.
    ///
    /// A delivery of duplicates only gets an empty append, because its answer must not overtake the commit of the
    /// originals. `sheds` drops facts that lead only to diagnostics and metrics. A panic leaves the writer in the state
    /// `Lost`.
    pub fn accept(&mut self, delivery: &Delivery, parsed: Parsed, sheds: bool, core: &Core) -> Result<Receipt, IngestError> {
        self.is_used = true;
        self.state = WriterState::Lost;
        let taken = self.accept_whole(delivery, parsed, sheds, core);
        // Otherwise the stages have moved without an append.
        if !matches!(taken, Err(Stopped::Midway(_))) {
            self.state = WriterState::Active;
        }
        taken.map_err(|stopped| match stopped {
            Stopped::Before(error) | Stopped::Midway(error) => error,
        })
    }

    fn accept_whole(&mut self, delivery: &Delivery, mut parsed: Parsed, sheds: bool, core: &Core) -> Result<Receipt, Stopped> {
        self.check_not_erased(core, delivery)?;
        if delivery.epoch.is_some_and(|epoch| epoch != self.epoch && Some(epoch) != self.void_epoch) {
            return Err(IngestError::Erased.into());
        }
        if self.is_written && matches!(delivery.memory, Some(MemoryWrite::First(_))) {
            return Err(IngestError::RunExists.into());
        }
        let check = match &delivery.write_scope {
            Some(write_scope) => self.check_scope(write_scope, &delivery.owner)?,
            None if core.quotas.is_any() && self.awaits_owner() => PendingCheck::NoOther,
            None => PendingCheck::Nothing,
        };
        let (scope, owner) = (delivery.write_scope.as_ref(), &delivery.owner);
        if let (LogId::Session(session), false) = (&self.id, self.is_written) {
            self.claim_session(core, &session.clone(), delivery.given.parent_session.as_ref(), owner, scope)?;
        }
        let payer = self.summary.extension.owner.as_ref().or(owner.owner.as_ref());
        core.quotas.check(core.logs.sessions(), payer, &[Quota::Bytes]).map_err(IngestError::from)?;
        let count = delivery.facts.len();
        let (duplicates, numbering) = self.duplicate_head(delivery.producer.as_ref(), count as u64)?;
        let from = usize::try_from(duplicates).expect("a duplicate is a fact in memory");
        if parsed.is_before(from) {
            parsed = Parsed::of(delivery, from);
        }
        let check = match check {
            PendingCheck::Nothing
                if delivery.write_scope.is_some() && self.summary.parent_session_id.is_none() && may_name_parent(delivery) =>
            {
                PendingCheck::Parents
            }
            check => check,
        };
        let mut given = delivery.given.clone();
        let (mut run_id, mut session_id) = (None, None);
        match &self.id {
            LogId::Run(id) => (given.run, run_id) = (Some(id.clone()), Some(id.clone())),
            LogId::Session(id) => session_id = Some(id.clone()),
        }
        let mut until = parsed.refused.as_ref().map_or(count, |(index, _)| *index);
        let outside = match check {
            PendingCheck::Nothing => None,
            check => self.check_sessions(core, delivery, from..until, &given, check, parsed.refused.is_some())?,
        };
        until = outside.as_ref().map_or(until, |(index, _)| *index);
        let refused = match (outside, parsed.refused.take()) {
            (Some((index, session)), _) => Some((index, Refusal::OutOfScope(OutOfScope::Session(session)))),
            (None, refused) => refused.map(|(index, why)| (index, Refusal::Parse(why))),
        };
        if refused.is_some() && delivery.atomic {
            until = from;
        }

        let limit = ENVELOPES_BYTES_MAX.max(delivery.facts.text_bytes().saturating_mul(2));
        let bytes = delivery.envelope_bytes_of(until - from);
        if bytes > limit {
            return Err(IngestError::EnvelopesTooLarge { bytes, limit }.into());
        }
        self.guard.set_known_secrets(delivery.secrets.clone());
        let (source, now) = (Some(delivery.source.name), (core.environment.now)());
        let (policy, environment, awaits_owner) = (&core.policy, core.environment, self.awaits_owner());
        let (halves, publisher) = (Halves::Absent, delivery.publisher.as_deref());
        let mut context = StampContext { given: &given, source, policy, environment, now, halves, publisher };
        let (first, mut stamped, mut shed) = (self.summary.last_sequence, self.begin_stamp(context, until - from), 0);
        let (mut drafts, mut made) = (Vec::new(), 0);
        for index in from..until {
            let event = parsed.take(delivery, index);
            context.halves = event.halves;
            self.apply(delivery.source, event, &given, &mut drafts);
            if sheds && !drafts.is_empty() && drafts.iter().all(is_sheddable) {
                drafts.clear();
                shed += 1;
            }
            made += drafts.len();
            let bytes = delivery.envelope_bytes_of(made);
            if bytes > limit || stamped.rows.bytes() > limit.saturating_mul(4) {
                let bytes = bytes.max(stamped.rows.bytes());
                return Err(Stopped::Midway(IngestError::EnvelopesTooLarge { bytes, limit }));
            }
            self.stamp(&mut drafts, index as u64, context, &mut stamped);
        }
        core.logs.check_not_erased(&self.id, self.summary.session_id.as_ref()).map_err(|e| Stopped::Midway(e.into()))?;
        let Stamped { rows, violations, violations_omitted, .. } = self.end_stamp(stamped);
        if awaits_owner {
            self.settle_owner(core.logs.sessions(), &delivery.owner);
        }
        let accepted = (until - from) as u64 - shed;
        let last_sequence = self.summary.last_sequence;
        let producer = delivery.producer.clone().zip(numbering).map(|(producer, mut numbering)| {
            numbering.next += accepted + shed + u64::from(sabotage::is(10));
            self.producers.insert(producer.id.clone(), numbering);
            (producer.id, numbering)
        });
        let memory = delivery.memory.as_ref().filter(|_| refused.is_none() && until > from).map(MemoryWrite::memory);
        self.prepare_append(Some(delivery.source), producer, first, rows, until > from, memory);
        let kept = Box::new(Receipt {
            run_id,
            session_id,
            epoch: self.is_written.then_some(self.epoch),
            accepted,
            duplicates,
            shed,
            first_sequence: (last_sequence > first).then(|| first.next()),
            last_sequence: if sabotage::is(38) { first } else { last_sequence },
            violations,
            violations_omitted,
        });
        let Some((index, why)) = refused else { return Ok(*kept) };
        let index = index as u64;
        Err(match why {
            Refusal::Parse(Refused::Fact(error)) => IngestError::Fact { index, error, kept },
            Refusal::Parse(Refused::NotJson(error)) => IngestError::NotJson { index, error, kept },
            Refusal::OutOfScope(error) => IngestError::OutOfScope { index, error, kept },
        }
        .into())
    }

    /// Refuses facts of what was erased lately.
    ///
    /// # Errors
    /// `Erased`; `RunOutOfScope` for an erased session of others, as before its erasure.
    fn check_not_erased(&self, core: &Core, delivery: &Delivery) -> Result<(), IngestError> {
        let session = self.summary.session_id.as_ref().or(delivery.given.session.as_ref());
        let erased = core.logs.server_state().erased();
        let Some(refused) = erased.refuses(&self.id, session) else { return Ok(()) };
        let owner = erased.get(&refused).and_then(|record| record.owner);
        match (&refused, &delivery.write_scope) {
            (LogId::Session(session), Some(scope))
                if !scope.allows(WriteTarget::Session(session, SessionOwner::of(owner.as_ref()))) =>
            {
                Err(IngestError::RunOutOfScope(OutOfScope::Session(session.clone())))
            }
            _ => Err(StoreError::Erased { log: refused.to_string() }.into()),
        }
    }

    /// Checks the sessions that the facts name, and their parents, on a copy of the source's state: which session a draft
    /// is about may depend on earlier facts. Returns the first fact with one that the scope does not allow.
    ///
    /// # Errors
    /// `RunOutOfScope`, if a fact had to name a session and none does; `OtherOwner` and `Quota`.
    fn check_sessions(
        &mut self,
        core: &Core,
        delivery: &Delivery,
        facts: Range<usize>,
        given: &Ids,
        check: PendingCheck,
        is_refused: bool,
    ) -> Result<Option<(usize, SessionId)>, IngestError> {
        let mut adapter = self.copy_adapter(delivery.source);
        let (mut drafts, mut has_session) = (Vec::new(), check == PendingCheck::Parents);
        let (names_parents, scope) = (may_name_parent(delivery), delivery.write_scope.as_ref());
        let allows = |session: &SessionId| {
            let allows = |owner: SessionOwner<'_>| scope.is_none_or(|scope| scope.allows(WriteTarget::Session(session, owner)));
            core.logs.sessions().with_owner(session, allows)
        };
        for index in facts {
            let Ok(event) = parse(delivery, index) else { break };
            adapter.apply_event(event, given, Drafts { ledger: &self.ledger, drafts: &mut drafts });
            for Draft { ids, .. } in drafts.drain(..) {
                let session = if has_session { None } else { ids.session.or_else(|| given.session.clone()) };
                has_session |= session.is_some();
                let parent = ids.parent_session.or_else(|| given.parent_session.clone());
                if let Some(session) = &session {
                    match self.claim_session(core, session, parent.as_ref(), &delivery.owner, scope) {
                        Err(IngestError::RunOutOfScope(OutOfScope::Session(session))) => return Ok(Some((index, session))),
                        claimed => claimed?,
                    }
                }
                if let Some(outside) = parent.filter(|parent| session.as_ref() != Some(parent) && !allows(parent)) {
                    return Ok(Some((index, outside)));
                }
            }
            if has_session && !names_parents {
                return Ok(None);
            }
        }
        if has_session {
            return Ok(None);
        }
        let is_allowed = given.session.as_ref().is_some_and(allows);
        match &self.id {
            LogId::Run(run) if check == PendingCheck::Session && !is_refused && !is_allowed => {
                Err(IngestError::RunOutOfScope(OutOfScope::Run(run.clone())))
            }
            _ => Ok(None),
        }
    }

    /// Checks the scope for this run; returns the check that remains for the facts.
    ///
    /// A run with envelopes but without a session is in scope only by its name. Otherwise every caller with any session
    /// could move the run into that session.
    fn check_scope(&self, write_scope: &WriteScope, begin: &BeginOwner) -> Result<PendingCheck, IngestError> {
        let owner = self.summary.extension.owner.as_ref();
        let run = match &self.id {
            LogId::Run(run) => run,
            // Another session may have the id since the request was authorized.
            LogId::Session(session) => {
                let is_allowed = !self.is_written || write_scope.allows(WriteTarget::Session(session, SessionOwner::of(owner)));
                let outside = || Err(IngestError::RunOutOfScope(OutOfScope::Session(session.clone())));
                return if is_allowed { Ok(PendingCheck::Nothing) } else { outside() };
            }
        };
        let session = self.summary.session_id.as_ref();
        let owner = if self.is_written { owner } else { begin.owner.as_ref() };
        match (session, write_scope.allows(WriteTarget::Run(run, session, owner))) {
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
        if *seq > known.next && !sabotage::is(9) {
            return Err(IngestError::ProducerGap { producer: id.clone(), got: *seq, expected: known.next });
        }
        let known_facts = if sabotage::is(8) { 0 } else { known.next.saturating_sub(*seq) };
        Ok((known_facts.min(count), Some(known)))
    }
}

/// Whether the delivery may name the parent of its session. Only a fact's text or the request can, so few are read twice.
fn may_name_parent(delivery: &Delivery) -> bool {
    let member = memmem::Finder::new("parentSessionId");
    // A name may be written with escapes.
    let names = |text: &[u8]| member.find(text).is_some() || memmem::find(text, br"\u").is_some();
    delivery.given.parent_session.is_some() || (0..delivery.facts.len()).any(|n| delivery.facts.text(n).is_none_or(names))
}

/// Whether no activity depends on the draft.
fn is_sheddable(draft: &Draft) -> bool {
    let event_type = draft.event_type.as_str();
    event_type.starts_with("diagnostic.") || event_type.starts_with("metric.")
}

//! The writer of one log: the state of the stages, as the last append saved it and the next one will.

use super::attempt::AttemptStarts;
use super::pending::{Commit, InFlight};
use super::questions::Questions;
use super::rows::{EncodedRows, FullAppend};
use crate::environment::Environment;
use crate::environment::sabotage;
use crate::guard::Guard;
use crate::log::agent_memory::{AGENT_MEMORY_KEY_PREFIX, AgentMemory};
use crate::log::commit::{Chain, Log, Logs, PENDING_KEY_PREFIX, Submission, Summary, summary_of};
use crate::log::control::{CONTROL_KEY_PREFIX, ControlRecord};
use crate::log::figures::{FIGURES, RunFigures};
use crate::log::hash_chain::{ChainEnd, ChainRecord};
use crate::log::question::{QUESTION_KEY_PREFIX, Question};
use crate::log::server_state::EntryChange;
use crate::log::sessions::SessionClaim;
use crate::log::{Append, LoadedLog, LogId, META, StoreError};
use crate::model::stored;
use crate::model::{ActionId, Audience, ControlId, Draft, Epoch, Ids, ProducerId, Sequence, SessionId};
use crate::source::ledger::{Ledger, RunState, SharedSet, Speakers};
use crate::source::{self, Adapter, Drafts, Event, SourceKind};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Appends that the store commits together, with the log's summary after them.
pub(super) type PendingAppend = (Vec<Append>, Arc<Summary>);

/// Whether a writer accepts facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriterState {
    Active,
    /// The log is being erased or rewritten: the writer accepts nothing more.
    Retired,
    /// Facts moved the stages without an append.
    ///
    /// The writer's state is ahead of the store and is never used again.
    Lost,
}

/// The writer of a log: the stages between its facts and its appends, with their state.
pub(super) struct LogWriter {
    pub id: LogId,
    pub epoch: Epoch,
    pub is_written: bool,
    pub summary: Summary,
    /// The session that the log joins or begins, until the session has appeared.
    pub claim: Option<(SessionId, SessionClaim)>,
    pub ledger: Ledger,
    pub attempt_starts: AttemptStarts,
    /// The same at the last save.
    attempt_starts_saved: AttemptStarts,
    /// The state of the run, as users and as dashboards see it.
    pub seen_runs: [RunState; 2],
    /// The pending actions at the last save that have entries of their own, in the order of [`Audience::ALL`].
    pending_saved: [SharedSet; 3],
    /// Actions whose entries the summary does not count: a node of an earlier version led meanwhile.
    pending_stale: Vec<Arc<str>>,
    pub guard: Guard,
    adapters: Vec<AdapterEntry>,
    pub producers: HashMap<ProducerId, Numbering>,
    /// The open controls, and the newest closed ones.
    pub controls: BTreeMap<ControlId, ControlRecord>,
    /// Controls that changed or were forgotten since the last save.
    pub controls_changed: Vec<ControlId>,
    pub questions: Questions,
    /// Changes of the server's own state for the next append, in the log of the server.
    pub server_entries: Vec<EntryChange>,
    /// What connectors remember of the log: one for each agent and protocol.
    pub memories: Vec<AgentMemory>,
    /// The guard's state at the last save; empty for none.
    guard_saved: Bytes,
    /// The figures at the last save.
    figures_saved: Option<Arc<RunFigures>>,
    pub hash_chain: ChainEnd,
    pub event_ids: EventIds,
    pub outbox: Option<PendingAppend>,
    pub is_used: bool,
    pub state: WriterState,
    /// The leader under which it was opened; see [`Leadership::changes`](crate::log::commit::Leadership::changes).
    pub leader: u64,
    /// The submissions of this writer.
    pub chain: Arc<Chain>,
    submitted: u64,
    /// Deliveries that may be in flight, in order. After a conflict, the next writer accepts them first.
    pub sent: VecDeque<Weak<InFlight>>,
    /// The epoch that an earlier writer gave the log, of which nothing was ever stored.
    pub void_epoch: Option<Epoch>,
    /// Whether the log existed when this writer was opened.
    pub was_there: bool,
}

struct AdapterEntry {
    kind: &'static SourceKind,
    adapter: Box<dyn Adapter>,
    /// Whether facts were applied since the last save.
    is_dirty: bool,
    saved: Bytes,
}

impl AdapterEntry {
    /// Saves the state if it has changed.
    fn save(&mut self) -> Option<Bytes> {
        let saved = Bytes::from(std::mem::take(&mut self.is_dirty).then(|| self.adapter.save())?);
        if saved == self.saved {
            return None;
        }
        self.saved = saved.clone();
        Some(saved)
    }
}

/// How far a producer's facts are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbering {
    pub epoch: u64,
    pub next: u64,
}

/// A generator of event ids.
///
/// It draws randomness once when a writer opens, because a draw per append would be a system call per append.
pub(super) struct EventIds {
    pub millis: u64,
    bits: u128,
}

impl EventIds {
    pub fn next(&mut self) -> Uuid {
        self.bits = self.bits.wrapping_add(1);
        let bytes: [u8; 16] = self.bits.to_be_bytes();
        uuid::Builder::from_unix_timestamp_millis(self.millis, bytes[6..].try_into().expect("ten bytes")).into_uuid()
    }
}

/// The saved state of the stages, entry by entry.
#[derive(Default)]
struct Entries<'s> {
    subjects: Vec<(&'s str, u8)>,
    speakers: Speakers,
    attempt_starts: AttemptStarts,
    guard: Option<(Guard, Bytes)>,
    adapters: Vec<AdapterEntry>,
    producers: HashMap<ProducerId, Numbering>,
    controls: BTreeMap<ControlId, ControlRecord>,
    questions: HashMap<ActionId, Question>,
    memories: Vec<AgentMemory>,
    /// The pending actions that have entries of their own.
    pending: Vec<Arc<str>>,
}

impl<'s> Entries<'s> {
    /// Reads one entry. Ignores entries of no stage, such as the summary.
    fn add(&mut self, log: &LogId, key: &'s [u8], value: &'s Bytes) -> Result<(), StoreError> {
        let unreadable = |why: &dyn std::fmt::Display| StoreError::unreadable(log, key, why);
        let name = std::str::from_utf8(key).map_err(|error| unreadable(&error))?;
        if key == FIGURES {
            RunFigures::read(log, value)?;
        } else if name == GUARD {
            let memory = serde_json::from_slice(value).map_err(|error| unreadable(&error))?;
            self.guard = Some((Guard::restore(memory).map_err(|why| unreadable(&why))?, value.clone()));
        } else if name == ATTEMPT_STARTS {
            self.attempt_starts = stored::restore(value).map_err(|error| unreadable(&error))?;
        } else if let Some(subject) = name.strip_prefix("t:") {
            match value[..] {
                [byte] if Ledger::can_restore(subject, byte) => self.subjects.push((subject, byte)),
                _ => return Err(unreadable(&format_args!("{:?} is not the state of a subject", &value[..]))),
            }
        } else if let Some(message) = name.strip_prefix(SPEAKER_KEY_PREFIX) {
            self.speakers.restore(message, value).ok_or_else(|| unreadable(&"it is not the agent of a message"))?;
        } else if let Some(source) = name.strip_prefix("a:") {
            let kind = source::by_name(source).ok_or_else(|| unreadable(&"this version has no such source"))?;
            let adapter = (kind.restore)(value).map_err(|error| unreadable(&error))?;
            self.adapters.push(AdapterEntry { kind, adapter, is_dirty: false, saved: value.clone() });
        } else if let Some(producer) = name.strip_prefix("p:") {
            let producer = ProducerId::new(producer).map_err(|error| unreadable(&error))?;
            let numbering = stored::restore(value).map_err(|error| unreadable(&error))?;
            self.producers.insert(producer, numbering);
        } else if name.starts_with(CONTROL_KEY_PREFIX) {
            let record = ControlRecord::read(log, key, value)?;
            self.controls.insert(record.id.clone(), record);
        } else if let Some(action) = name.strip_prefix(QUESTION_KEY_PREFIX) {
            let action = ActionId::new(action).map_err(|error| unreadable(&error))?;
            self.questions.insert(action, Question::read(log, key, value)?);
        } else if let Some(action) = name.strip_prefix(PENDING_KEY_PREFIX) {
            self.pending.push(action.into());
        } else if name.starts_with(AGENT_MEMORY_KEY_PREFIX) {
            self.memories.push(AgentMemory::read(log, key, value)?);
        }
        Ok(())
    }
}

/// The summary of a log, if its tail matches the log's.
fn summary_at(id: &LogId, loaded: &LoadedLog) -> Result<Summary, StoreError> {
    let summary = summary_of(id, loaded)?;
    if summary.last_sequence != loaded.last {
        let why = format!("it ends at sequence {}, the log at {}", summary.last_sequence, loaded.last);
        return Err(StoreError::unreadable(id, META, &why));
    }
    Ok(summary)
}

/// The errors of all state entries that a writer could not read.
#[must_use]
pub fn unreadable_entries(id: &LogId, loaded: &LoadedLog) -> Vec<StoreError> {
    let others = loaded.state.iter().filter(|(key, _)| key != META);
    let others = others.filter_map(|(key, value)| Entries::default().add(id, key, value).err());
    let chain = ChainRecord::read(id, &loaded.state).err();
    summary_at(id, loaded).err().into_iter().chain(others).chain(chain).collect()
}

/// The key of the guard's state.
const GUARD: &str = "g";
/// The prefix of the keys of messages' agents.
const SPEAKER_KEY_PREFIX: &str = "m:";
/// The key of the starts of the current attempt.
const ATTEMPT_STARTS: &str = "s";

impl LogWriter {
    /// The writer of a log, from the log's stored state.
    ///
    /// # Errors
    /// `Unreadable`, with the first entry that cannot be read. A stage that started empty instead would break its
    /// guarantees: a sequence, known facts, half a secret.
    pub fn new(id: LogId, loaded: Option<LoadedLog>, environment: Environment) -> Result<Self, StoreError> {
        #[expect(clippy::cast_possible_truncation, reason = "any 64 of the random bits suffice")]
        let fresh = Epoch::from_random((environment.random)() as u64);
        let epoch = loaded.as_ref().map_or(fresh, |l| l.epoch);
        let mut read = Entries::default();
        for (key, value) in loaded.iter().flat_map(|loaded| &loaded.state) {
            read.add(&id, key, value)?;
        }
        let summary = match &loaded {
            None => Summary::default(),
            Some(loaded) => summary_at(&id, loaded)?,
        };
        let ledger = Ledger::restore(summary.run.clone(), read.speakers, read.subjects.into_iter());
        let seen_runs = [Audience::User, Audience::Dashboard].map(|audience| {
            let mut seen = summary.run_for(audience).clone();
            if seen.pending == summary.run.pending {
                // Two sets that were read apart share nothing yet.
                seen.pending.clone_from(&summary.run.pending);
            }
            seen
        });
        let pending_saved = Audience::ALL.map(|audience| summary.run_for(audience).pending.others().clone());
        let is_counted = pending_saved.iter().any(|saved| !saved.is_empty());
        let pending_stale = if is_counted { Vec::new() } else { read.pending };
        let (guard, guard_saved) = read.guard.unwrap_or_default();
        let Entries { adapters, producers, controls, questions, attempt_starts, memories, .. } = read;
        let is_written = loaded.is_some();
        let event_ids = EventIds { millis: 0, bits: (environment.random)() };
        let record = ChainRecord::read(&id, loaded.iter().flat_map(|loaded| &loaded.state))?;
        let hash_chain = record.and_then(|record| ChainEnd::restore(&record, summary.last_sequence)).unwrap_or_else(|| {
            let mut key = [0; 32];
            key[..16].copy_from_slice(&(environment.random)().to_ne_bytes());
            key[16..].copy_from_slice(&(environment.random)().to_ne_bytes());
            ChainEnd::begin(&id, epoch, summary.last_sequence, key)
        });
        Ok(Self {
            id,
            epoch,
            is_written,
            figures_saved: summary.figures.clone(),
            summary,
            claim: None,
            ledger,
            attempt_starts_saved: attempt_starts.clone(),
            attempt_starts,
            seen_runs,
            pending_saved,
            pending_stale,
            guard,
            guard_saved,
            adapters,
            producers,
            controls,
            controls_changed: Vec::new(),
            questions: Questions::restore(questions),
            server_entries: Vec::new(),
            memories,
            hash_chain,
            event_ids,
            outbox: None,
            is_used: true,
            state: WriterState::Active,
            leader: 0,
            chain: Arc::default(),
            submitted: 0,
            sent: VecDeque::new(),
            void_epoch: None,
            was_there: is_written,
        })
    }

    /// Whether the writer's state differs from the submitted state. A new writer must then load it.
    pub fn is_broken(&self) -> bool {
        self.state == WriterState::Lost || self.chain.is_broken()
    }

    /// Queues appends for the committer.
    pub fn submit(&mut self, logs: &Logs, log: &Arc<Log>, (appends, summary): PendingAppend) -> Commit {
        let (ack, durable) = oneshot::channel();
        let (chain, index) = (self.chain.clone(), self.submitted);
        self.submitted += 1;
        logs.submit(Submission { log: log.clone(), appends, summary, chain: chain.clone(), index, ack });
        Commit { chain, index, durable: Some(durable) }
    }

    /// Remembers a submitted delivery, and forgets those whose callers are gone.
    pub fn track(&mut self, in_flight: &Arc<InFlight>) {
        while self.sent.front().is_some_and(|sent| sent.strong_count() == 0) {
            self.sent.pop_front();
        }
        self.sent.push_back(Arc::downgrade(in_flight));
    }

    /// Whether a caller still waits for a submitted delivery.
    pub fn has_waiting_callers(&self) -> bool {
        self.sent.iter().any(|sent| sent.strong_count() > 0)
    }

    /// Whether the writer was used since the last call.
    pub fn take_used(&mut self) -> bool {
        std::mem::take(&mut self.is_used)
    }

    /// The index of a source's adapter.
    fn adapter_of(&mut self, kind: &'static SourceKind) -> usize {
        self.adapters.iter().position(|seated| seated.kind.name == kind.name).unwrap_or_else(|| {
            self.adapters.push(AdapterEntry { kind, adapter: (kind.fresh)(), is_dirty: false, saved: Bytes::new() });
            self.adapters.len() - 1
        })
    }

    /// Applies a parsed fact of a source.
    pub fn apply(&mut self, kind: &'static SourceKind, event: Event, given: &Ids, drafts: &mut Vec<Draft>) {
        let at = self.adapter_of(kind);
        self.adapters[at].is_dirty = true;
        self.adapters[at].adapter.apply_event(event, given, Drafts { ledger: &self.ledger, drafts });
    }

    /// Copies a source's state, to try facts on it.
    pub fn copy_adapter(&mut self, kind: &'static SourceKind) -> Box<dyn Adapter> {
        let at = self.adapter_of(kind);
        self.adapters[at].adapter.copy()
    }

    /// An append that changes nothing and only waits for those before it.
    pub fn barrier(&self) -> PendingAppend {
        let last = self.summary.last_sequence;
        let (rows, blobs, state) = (Bytes::new(), Vec::new(), Vec::new());
        let append = Append { log: self.id.clone(), epoch: self.epoch, expected: last, last, rows, blobs, state };
        (vec![append], Arc::new(self.summary.clone()))
    }

    /// Returns the entries of pending actions that changed since the last call.
    fn take_pending_changed(&mut self) -> Vec<StateEntry> {
        let now = Audience::ALL.map(|audience| self.summary.run_for(audience).pending.others().clone());
        let differences = now.iter().zip(&self.pending_saved).map(|(now, saved)| now.difference(saved));
        let changed: BTreeSet<_> = differences.flatten().chain(std::mem::take(&mut self.pending_stale)).collect();
        let entry = |action: Arc<str>| {
            let bits = now.iter().enumerate().map(|(n, pending)| u8::from(pending.contains(&action)) << n).sum::<u8>();
            (Bytes::from(format!("{PENDING_KEY_PREFIX}{action}")), (bits != 0).then(|| vec![bits].into()))
        };
        let entries = changed.into_iter().map(entry).collect();
        self.pending_saved = now;
        entries
    }

    /// Prepares the appends: the rows, and with the last append the bodies and all changed state entries.
    ///
    /// `source` is the source whose adapter may have changed, `memory` what a connector remembers from now on.
    pub fn prepare_append(
        &mut self,
        source: Option<&'static SourceKind>,
        producer: Option<(ProducerId, Numbering)>,
        expected: Sequence,
        rows: EncodedRows,
        moved: bool,
        memory: Option<&AgentMemory>,
    ) {
        if !self.is_written && !moved {
            return;
        }
        let mut state = Vec::new();
        let set = |key: String, value: Vec<u8>| (Bytes::from(key), Some(Bytes::from(value)));
        if moved {
            self.is_written = true;
            if self.summary.extension.owner.is_some() {
                self.summary.extension.bytes += rows.bytes() as u64;
            }
            state.push((Bytes::from_static(META), Some(self.summary.save())));
            state.extend(self.take_pending_changed());
            if self.summary.figures != self.figures_saved {
                self.figures_saved.clone_from(&self.summary.figures);
                state.extend(self.figures_saved.iter().map(|figures| (Bytes::from_static(FIGURES), Some(figures.save()))));
            }
            state.extend(self.hash_chain.take_changed());
            if let Some(source) = source {
                let at = self.adapter_of(source);
                let saved = self.adapters[at].save();
                state.extend(saved.map(|saved| (Bytes::from(format!("a:{}", source.name)), Some(saved))));
            }
            if self.guard.take_changed() {
                let held = self.guard.save().as_ref().map_or_else(Bytes::new, to_json);
                if held != self.guard_saved {
                    state.push((Bytes::from_static(GUARD.as_bytes()), (!held.is_empty()).then(|| held.clone())));
                    self.guard_saved = held;
                }
            }
            if self.attempt_starts != self.attempt_starts_saved {
                self.attempt_starts_saved.clone_from(&self.attempt_starts);
                state.push(set(ATTEMPT_STARTS.to_owned(), stored::save(&self.attempt_starts)));
            }
            let speakers = self.ledger.speakers.take_changed();
            state.extend(speakers.map(|(of, agent)| set(format!("{SPEAKER_KEY_PREFIX}{of}"), agent.as_str().into())));
            state.extend(self.ledger.take_changed().into_iter().map(|(key, byte)| set(format!("t:{key}"), vec![byte])));
            for id in std::mem::take(&mut self.controls_changed).into_iter().filter(|_| !sabotage::is(34)) {
                let saved = self.controls.get(&id).map(to_json);
                state.push((Bytes::from(format!("{CONTROL_KEY_PREFIX}{id}")), saved));
            }
            for action in self.questions.take_changed() {
                let saved = self.questions.get(&action).map(to_json);
                state.push((Bytes::from(format!("{QUESTION_KEY_PREFIX}{action}")), saved));
            }
            if let Some(memory) = memory {
                self.memories.retain(|known| !known.is_of(&memory.agent, &memory.protocol));
                self.memories.push(memory.clone());
                state.push((Bytes::from(memory.key()), Some(to_json(memory))));
            }
            state.extend(std::mem::take(&mut self.server_entries).into_iter().map(|change| (change.key, change.value)));
            if let Some((id, numbering)) = producer.filter(|_| !sabotage::is(11)) {
                state.push(set(format!("p:{id}"), stored::save(&numbering)));
            }
        }
        let (mut expected, mut appends) = (expected, Vec::new());
        let (cut, blobs) = rows.into_parts();
        for FullAppend { last, rows, .. } in cut {
            let before = std::mem::replace(&mut expected, last);
            let (blobs, state) = (Vec::new(), Vec::new());
            appends.push(Append { log: self.id.clone(), epoch: self.epoch, expected: before, last, rows, blobs, state });
        }
        match appends.last_mut() {
            Some(last) => (last.blobs, last.state) = (blobs, state),
            None => {
                let (last, rows) = (expected, Bytes::new());
                appends.push(Append { log: self.id.clone(), epoch: self.epoch, expected, last, rows, blobs, state });
            }
        }
        self.outbox = Some((appends, Arc::new(self.summary.clone())));
    }
}

/// A state entry to save: its key, and its value; `None` deletes it.
type StateEntry = (Bytes, Option<Bytes>);

fn to_json<T: Serialize>(value: &T) -> Bytes {
    let mut json = Vec::with_capacity(512);
    serde_json::to_writer(&mut json, value).expect("plain data serializes, and writing to a Vec cannot fail");
    json.into()
}

//! One log's desk: the stages' memory, as the last append saved it and the next one will.

use super::World;
use super::pending::{Commit, InFlight};
use super::stamp::EncodedRows;
use crate::guard::Guard;
use crate::log::control::{CONTROL, ControlRecord};
use crate::log::run::{Chain, Log, Logs, Submission, Summary, summary_of};
use crate::log::{Append, Loaded, LogId, META, Store, StoreError};
use crate::model::{Audience, ControlId, Epoch, ProducerId, Sequence};
use crate::source::ledger::{Ledger, RunState};
use crate::source::{self, Adapter, SourceKind};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Appends that are stored together, and the log's summary once they are committed.
pub(super) type Post = (Vec<Append>, Arc<Summary>);

/// Whether a desk takes facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeskState {
    Active,
    /// The log is being erased or rewritten: the desk takes nothing more.
    Retired,
    /// An append is missing for facts that moved the stages: their memory is ahead of the store, and nothing uses it again.
    Lost,
}

/// What stands between a log's facts and its appends: the stages and their memory.
pub(super) struct Desk {
    pub id: LogId,
    pub epoch: Epoch,
    pub written: bool,
    pub summary: Summary,
    pub ledger: Ledger,
    /// How the run stands by what users, and what operators, saw.
    pub seen_runs: [RunState; 2],
    pub guard: Guard,
    adapters: Vec<Seated>,
    pub producers: HashMap<ProducerId, Numbering>,
    /// The controls that are open, and the newest of those that are not.
    pub controls: BTreeMap<ControlId, ControlRecord>,
    /// Those that were changed or forgotten since they were last saved.
    pub controls_changed: Vec<ControlId>,
    /// The guard's memory as it was last saved; empty for none.
    guard_saved: Bytes,
    pub event_ids: EventIds,
    pub outbox: Option<Post>,
    pub used: bool,
    pub state: DeskState,
    /// What was submitted from here.
    pub chain: Arc<Chain>,
    submitted: u64,
    /// The deliveries that may still be on their way, in order: after a conflict the next writer takes them first.
    pub sent: VecDeque<Weak<InFlight>>,
    /// The epoch that a writer before this one gave the log, of which nothing was ever stored.
    pub void: Option<Epoch>,
    /// Whether the log was there when this writer was loaded.
    pub was_there: bool,
}

pub(super) struct Seated {
    pub kind: &'static SourceKind,
    pub adapter: Box<dyn Adapter>,
    pub saved: Vec<u8>,
}

/// How far a producer's numbers were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbering {
    pub epoch: u64,
    pub next: u64,
}

/// A counter of ids: one draw of randomness when a desk is opened, then one more each. A draw per append would be a system
/// call per append.
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

/// What the stages remember, entry by entry.
#[derive(Default)]
struct Entries<'s> {
    things: Vec<(&'s str, u8)>,
    guard: Option<(Guard, Bytes)>,
    adapters: Vec<Seated>,
    producers: HashMap<ProducerId, Numbering>,
    controls: BTreeMap<ControlId, ControlRecord>,
}

impl<'s> Entries<'s> {
    /// Reads one more entry. One of no stage, as the summary, is passed over.
    fn add(&mut self, log: &LogId, key: &'s [u8], value: &'s Bytes) -> Result<(), StoreError> {
        let unreadable = |why: &dyn std::fmt::Display| StoreError::unreadable(log, key, why);
        let name = std::str::from_utf8(key).map_err(|error| unreadable(&error))?;
        if name == GUARD {
            let memory = serde_json::from_slice(value).map_err(|error| unreadable(&error))?;
            self.guard = Some((Guard::restore(memory).map_err(|why| unreadable(&why))?, value.clone()));
        } else if let Some(thing) = name.strip_prefix("t:") {
            match value[..] {
                [byte] if Ledger::has_byte(byte) => self.things.push((thing, byte)),
                _ => return Err(unreadable(&format_args!("{:?} is no thing's state", &value[..]))),
            }
        } else if let Some(source) = name.strip_prefix("a:") {
            let kind = source::by_name(source).ok_or_else(|| unreadable(&"this version has no such source"))?;
            let adapter = (kind.restore)(value).map_err(|error| unreadable(&error))?;
            self.adapters.push(Seated { kind, adapter, saved: value.to_vec() });
        } else if let Some(producer) = name.strip_prefix("p:") {
            let producer = ProducerId::new(producer).map_err(|error| unreadable(&error))?;
            let numbering = serde_json::from_slice(value).map_err(|error| unreadable(&error))?;
            self.producers.insert(producer, numbering);
        } else if name.starts_with(CONTROL) {
            let record = ControlRecord::read(log, key, value)?;
            self.controls.insert(record.id.clone(), record);
        }
        Ok(())
    }
}

/// The summary of a log, which says that it ends where it does.
fn summary_at(id: &LogId, loaded: &Loaded) -> Result<Summary, StoreError> {
    let summary = summary_of(id, loaded)?;
    if summary.last_sequence != loaded.last {
        let why = format!("it ends at sequence {}, the log at {}", summary.last_sequence, loaded.last);
        return Err(StoreError::unreadable(id, META, &why));
    }
    Ok(summary)
}

/// What of a log's stored state a writer could not go on from: each entry that cannot be read.
#[must_use]
pub fn unreadable_entries(id: &LogId, loaded: &Loaded) -> Vec<StoreError> {
    let others = loaded.state.iter().filter(|(key, _)| key != META);
    let others = others.filter_map(|(key, value)| Entries::default().add(id, key, value).err());
    summary_at(id, loaded).err().into_iter().chain(others).collect()
}

impl Seated {
    /// Takes the adapter back to what was last saved with the log, which is how the delivery that is being taken found it.
    pub fn rewind(&mut self) {
        self.adapter = match &self.saved[..] {
            [] => (self.kind.fresh)(),
            saved => (self.kind.restore)(saved).expect("what an adapter has saved, it reads"),
        };
    }
}

/// The key of the guard's memory.
const GUARD: &str = "g";

impl Desk {
    /// The desk of a log as it was found in the store.
    ///
    /// # Errors
    /// `Unreadable`, with the first entry that cannot be read. A part that began anew instead would forget what it promised: a
    /// sequence, the facts that it has, half a secret.
    pub fn new(id: LogId, loaded: Option<Loaded>, world: World) -> Result<Self, StoreError> {
        #[expect(clippy::cast_possible_truncation, reason = "any 64 of the random bits will do")]
        let fresh = Epoch::from_random((world.random)() as u64);
        let epoch = loaded.as_ref().map_or(fresh, |l| l.epoch);
        let mut read = Entries::default();
        for (key, value) in loaded.iter().flat_map(|loaded| &loaded.state) {
            read.add(&id, key, value)?;
        }
        let summary = match &loaded {
            None => Summary::default(),
            Some(loaded) => summary_at(&id, loaded)?,
        };
        let ledger = Ledger::restore(summary.run.clone(), read.things.into_iter());
        let seen_runs = [Audience::User, Audience::Dashboard].map(|audience| summary.run_for(audience).clone());
        let (guard, guard_saved) = read.guard.unwrap_or_default();
        let Entries { adapters, producers, controls, .. } = read;
        let written = loaded.is_some();
        Ok(Self {
            id,
            epoch,
            written,
            summary,
            ledger,
            seen_runs,
            guard,
            guard_saved,
            adapters,
            producers,
            controls,
            controls_changed: Vec::new(),
            event_ids: EventIds { millis: 0, bits: (world.random)() },
            outbox: None,
            used: true,
            state: DeskState::Active,
            chain: Arc::default(),
            submitted: 0,
            sent: VecDeque::new(),
            void: None,
            was_there: written,
        })
    }

    /// Whether this memory is not what the store has or is about to have: somebody has to load it again.
    pub fn is_broken(&self) -> bool {
        self.state == DeskState::Lost || self.chain.is_broken()
    }

    /// Puts appends in the queue to the committer.
    pub fn submit<S: Store>(&mut self, logs: &Logs<S>, log: &Arc<Log>, (appends, summary): Post) -> Commit {
        let (ack, durable) = oneshot::channel();
        let (chain, number) = (self.chain.clone(), self.submitted);
        self.submitted += 1;
        logs.submit(Submission { log: log.clone(), appends, summary, chain: chain.clone(), number, ack });
        Commit { chain, number, durable: Some(durable) }
    }

    /// Notes a delivery that was submitted, and forgets those whose callers are gone.
    pub fn note(&mut self, in_flight: &Arc<InFlight>) {
        while self.sent.front().is_some_and(|sent| sent.strong_count() == 0) {
            self.sent.pop_front();
        }
        self.sent.push_back(Arc::downgrade(in_flight));
    }

    /// Whether a caller still waits for what was sent from here.
    pub fn is_waited_for(&self) -> bool {
        self.sent.iter().any(|sent| sent.strong_count() > 0)
    }

    /// Whether it was used since it was last asked.
    pub fn touch_again(&mut self) -> bool {
        std::mem::take(&mut self.used)
    }

    pub fn seat(&mut self, kind: &'static SourceKind) -> &mut Seated {
        let at = self.adapters.iter().position(|seated| seated.kind.name == kind.name).unwrap_or_else(|| {
            self.adapters.push(Seated { kind, adapter: (kind.fresh)(), saved: Vec::new() });
            self.adapters.len() - 1
        });
        &mut self.adapters[at]
    }

    /// An append that changes nothing, and only waits for those before it.
    pub fn nothing(&self) -> Post {
        let last = self.summary.last_sequence;
        let (rows, blobs, state) = (Bytes::new(), Vec::new(), Vec::new());
        let append = Append { log: self.id.clone(), epoch: self.epoch, expected: last, last, rows, blobs, state };
        (vec![append], Arc::new(self.summary.clone()))
    }

    /// Puts the appends together: rows, and with the last of them bodies and every state entry that changed. `source` is whose
    /// adapter may have moved.
    pub fn post(
        &mut self,
        source: Option<&'static SourceKind>,
        producer: Option<(ProducerId, Numbering)>,
        expected: Sequence,
        rows: EncodedRows,
        moved: bool,
    ) {
        if !self.written && !moved {
            return;
        }
        let mut state = Vec::new();
        let set = |key: String, value: Vec<u8>| (Bytes::from(key), Some(Bytes::from(value)));
        if moved {
            self.written = true;
            state.push((Bytes::from_static(META), Some(to_json(&self.summary))));
            if let Some(source) = source {
                let seat = self.seat(source);
                let memory = seat.adapter.save();
                if memory != seat.saved {
                    seat.saved.clone_from(&memory);
                    state.push(set(format!("a:{}", seat.kind.name), memory));
                }
            }
            let held = self.guard.save().as_ref().map_or_else(Bytes::new, to_json);
            if held != self.guard_saved {
                state.push((Bytes::from_static(GUARD.as_bytes()), (!held.is_empty()).then(|| held.clone())));
                self.guard_saved = held;
            }
            state.extend(self.ledger.take_changed().into_iter().map(|(key, byte)| set(format!("t:{key}"), vec![byte])));
            for id in std::mem::take(&mut self.controls_changed) {
                let saved = self.controls.get(&id).map(to_json);
                state.push((Bytes::from(format!("{CONTROL}{id}")), saved));
            }
            if let Some((id, numbering)) = producer {
                state.push(set(format!("p:{id}"), to_json(&numbering).into()));
            }
        }
        let (mut expected, mut appends) = (expected, Vec::new());
        let (cut, blobs) = rows.into_parts();
        for (last, rows) in cut {
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

pub(super) fn to_json<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).expect("our own plain data").into()
}

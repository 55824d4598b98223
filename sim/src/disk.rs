//! A disk that fails, and the journal on it.
//!
//! # The fault model
//!
//! The disk outlives the node. It holds the records of the journal: the synced ones, and those that were written and not
//! synced. An append writes its record, then syncs, then answers; each of the three can take time.
//!
//! * **Crash of the process**, at any of those points. What was written stays, synced or not.
//! * **Power loss**, at any of those points. Each record that was not synced stays, is torn, or is lost, each by itself: a
//!   later one can stay where an earlier one is lost. A synced record stays.
//! * **Recovery** reads whole records in order, up to the first that is torn or missing, and cuts the rest. The record's
//!   checksum and number show that, as in the local journal.
//! * **A slow disk**: writes and syncs take up to seconds.
//! * **A failing append**: the write or the sync fails. The record may be on the disk or not. The node must stop.
//! * **A full disk** for some time: each append fails, and nothing of it is written.
//!
//! Not modelled: flipped bits in synced records, syncs that lie, and files (the local journal's segments). The tests of
//! `tests/it/power_loss.rs` and `tests/it/journal.rs` cut and flip those.

use crate::chance::Chance;
use bytes::Bytes;
use parking_lot::Mutex;
use proscenium::environment::sabotage;
use proscenium::log::StoreError;
use proscenium::log::journal::{Appended, Journal, JournalState, Record};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A point within an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Nothing is written.
    Before,
    /// The record is written, and not synced.
    Written,
    /// The record is synced, and the append has not answered.
    Synced,
}

/// How a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Process,
    Power,
}

/// The disk of one node.
pub struct Disk {
    state: Mutex<State>,
    crashed: Notify,
}

struct State {
    chance: Chance,
    synced: Vec<Bytes>,
    unsynced: Vec<Bytes>,
    /// The most time that a write or a sync takes, in milliseconds.
    slow_ms: u64,
    fails: Option<Point>,
    full_until: Option<Instant>,
    /// The crash at this point of the next append.
    planned: Option<(Point, Crash)>,
    crashed: Option<Crash>,
    /// What happened since [`Disk::take_notes`].
    notes: Vec<String>,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        let state = State {
            chance: Chance::new(seed, 2),
            synced: Vec::new(),
            unsynced: Vec::new(),
            slow_ms: 1,
            fails: None,
            full_until: None,
            planned: None,
            crashed: None,
            notes: Vec::new(),
        };
        Arc::new(Self { state: Mutex::new(state), crashed: Notify::new() })
    }

    /// Crashes the node now.
    pub fn crash(&self, how: Crash) {
        self.state.lock().crashed = Some(how);
        self.crashed.notify_one();
    }

    /// Crashes the node at this point of its next append.
    pub fn crash_at(&self, point: Point, how: Crash) {
        self.state.lock().planned = Some((point, how));
    }

    /// Lets writes and syncs take up to this time.
    pub fn slow(&self, ms: u64) {
        self.state.lock().slow_ms = ms.max(1);
    }

    /// Lets the next append fail, with its record on the disk or not.
    pub fn fail(&self, point: Point) {
        self.state.lock().fails = Some(point);
    }

    /// Fills the disk for this time.
    pub fn fill(&self, time: Duration) {
        self.state.lock().full_until = Some(Instant::now() + time);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        (state.slow_ms, state.fails, state.full_until, state.planned) = (1, None, None, None);
    }

    /// Waits for the crash of the node.
    pub async fn crashed(&self) -> Crash {
        loop {
            if let Some(how) = self.state.lock().crashed {
                return how;
            }
            self.crashed.notified().await;
        }
    }

    /// What the disk did since the last call, for the trace.
    #[must_use]
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().notes)
    }

    /// Recovers what a node finds when it starts again.
    pub fn recover(&self) {
        let mut state = self.state.lock();
        let State { chance, synced, unsynced, crashed, full_until, .. } = &mut *state;
        let survives = |chance: &mut Chance| *crashed != Some(Crash::Power) || chance.once_in(3);
        let found: Vec<_> = std::mem::take(unsynced).into_iter().map(|record| survives(chance).then_some(record)).collect();
        let lost = found.iter().filter(|record| record.is_none()).count();
        synced.extend(found.into_iter().map_while(|record| record));
        (*crashed, *full_until) = (None, None);
        let note = format!("recovered {} records, {lost} unsynced ones were lost or torn", synced.len());
        state.notes.push(note);
    }

    async fn pause(&self) {
        let pause = {
            let mut state = self.state.lock();
            let slow = state.slow_ms;
            state.chance.in_range(0..slow + 1)
        };
        sleep(Duration::from_millis(pause)).await;
    }

    /// Passes a point of an append: a planned crash ends the node here.
    async fn pass(&self, point: Point) -> Result<(), StoreError> {
        self.pause().await;
        let (crashes, fails) = {
            let mut state = self.state.lock();
            let crashes = state.planned.take_if(|(planned, _)| *planned == point);
            (crashes, state.fails.take_if(|fails| *fails == point).is_some())
        };
        if let Some((_, how)) = crashes {
            self.crash(how);
            std::future::pending::<()>().await;
        }
        if fails { Err(failed("the disk fails")) } else { Ok(()) }
    }
}

fn failed(why: &str) -> StoreError {
    StoreError::Failed { doing: "append", why: why.into() }
}

/// The journal of one life of the node.
pub struct FaultyJournal(pub Arc<Disk>);

impl JournalState for FaultyJournal {
    fn path(&self) -> PathBuf {
        PathBuf::from("simulated")
    }
}

impl Journal for FaultyJournal {
    fn bounds(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (1, (state.synced.len() + state.unsynced.len()) as u64)
    }

    async fn append(&self, expected: u64, parts: &[Bytes]) -> Result<Appended, StoreError> {
        let (_, last) = self.bounds();
        if last != expected {
            return Ok(Appended::Moved { last });
        }
        self.0.pass(Point::Before).await?;
        {
            let mut state = self.0.state.lock();
            if state.full_until.is_some_and(|until| Instant::now() < until) {
                return Err(failed("no space left on the disk"));
            }
            let record = Bytes::from(parts.concat());
            // Not its bytes: keys of signatures are the machine's.
            let note = format!("append {}, {} bytes", expected + 1, record.len());
            state.notes.push(note);
            state.unsynced.push(record);
        }
        self.0.pass(Point::Written).await?;
        if !(sabotage::is(1) && expected.is_multiple_of(2)) {
            let mut state = self.0.state.lock();
            let written = std::mem::take(&mut state.unsynced);
            state.synced.extend(written);
        }
        self.0.pass(Point::Synced).await?;
        Ok(Appended::At(expected + 1))
    }

    async fn read(&self, after: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        let state = self.0.state.lock();
        let all = state.synced.iter().chain(&state.unsynced).zip(1..);
        let (mut read, mut bytes) = (Vec::new(), 0);
        for (body, position) in all.skip(after as usize) {
            bytes += body.len();
            if bytes > bytes_max && !read.is_empty() {
                break;
            }
            read.push(Record { position, body: body.clone() });
        }
        Ok(read)
    }

    async fn truncate_before(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

//! What is reported and not yet acknowledged: one bounded line, first in, first out.
//!
//! The front of it may be under way to the server; that part is fixed, fact by fact and number by number, until an answer
//! settles it. A full line first lets go of states that a later one of the same call repeats in full; then a report waits, an
//! emitted event is shed. Nobody waits longer than the patience since the server last settled anything: a tool is never held up
//! by who watches it.

use super::facts::{self, ProgressStatus};
use super::{Counters, ReportError};
use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

/// Facts of one body.
pub(super) const BATCH_FACTS_MAX: usize = 256;
/// Bytes of one body, except that a single fact may be larger.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// One fact as it is sent, and what it means for those that wait with it.
#[derive(Clone)]
pub(super) struct Fact {
    pub text: Bytes,
    pub role: Role,
}

#[derive(Clone)]
pub(super) enum Role {
    /// The whole state of a call's progress. `said` has a bit for each optional member that it has; one that `begins` the call
    /// decides who sees it, and is never let go of.
    State { call: Arc<str>, status: ProgressStatus, said: u8, begins: bool },
    /// Builds on what was reported of the call's progress before it.
    Patch { call: Arc<str> },
    /// Stands for itself.
    Other,
}

impl Role {
    /// Whether everything that `older` says is said again here; both are states of the same call.
    fn repeats(&self, older: &Self) -> bool {
        match (self, older) {
            (Self::State { said, .. }, Self::State { said: older, begins: false, .. }) => said & older == *older,
            _ => false,
        }
    }
}

/// How much may wait.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub facts: usize,
    /// A single fact may be larger.
    pub bytes: usize,
}

impl Room {
    /// Whether there is no room for so many bytes more beside these.
    const fn is_full(self, facts: usize, bytes: usize, more: usize) -> bool {
        facts >= self.facts || (facts > 0 && bytes + more > self.bytes)
    }
}

struct Waiting {
    fact: Fact,
    /// The number of the first report that it stands for: its own, or that of one which it repeats.
    since: u64,
    /// It stands for a fact that was refused.
    is_stand_in: bool,
}

struct State {
    line: VecDeque<Waiting>,
    /// How many of the front are under way.
    under_way: usize,
    /// Of all texts in the line.
    bytes: usize,
    counters: Counters,
    /// When the server last settled something, or, if that is later, the line stopped being empty.
    settled_at: Instant,
    /// Why the last try came to nothing.
    failure: Option<String>,
    /// What was lost and not yet told: how many facts, and why the first.
    lost: Option<(u64, String)>,
    /// Nothing more is taken; what is in the line is still sent.
    is_closed: bool,
    /// Nothing more is sent.
    ended: Option<Ended>,
}

enum Ended {
    /// What was to be sent was, or is lost.
    Quietly,
    /// The server takes nothing from here any more.
    Refused(ReportError),
}

/// What became of a fact that was offered.
enum Offer {
    Taken,
    /// It is lost, and that is counted.
    Lost,
    /// There is no room; by when something has to be settled.
    Full(Fact, Instant),
}

/// The line, shared by its reporters and the task that sends it.
pub(super) struct Queue {
    state: Mutex<State>,
    room: Room,
    patience: Duration,
    /// There is something to send, or nothing more will come.
    work: Notify,
    /// Moves whenever something was settled, or nothing more will be.
    settled: watch::Sender<()>,
}

impl Queue {
    pub fn new(room: Room, patience: Duration) -> Self {
        let state = State {
            line: VecDeque::new(),
            under_way: 0,
            bytes: 0,
            counters: Counters::default(),
            settled_at: Instant::now(),
            failure: None,
            lost: None,
            is_closed: false,
            ended: None,
        };
        Self { state: Mutex::new(state), room, patience, work: Notify::new(), settled: watch::Sender::new(()) }
    }

    // ── the reporters' side ──

    /// Takes a report, waiting for room; false when it is lost.
    pub async fn put(&self, mut fact: Fact) -> bool {
        let mut settled = self.settled.subscribe();
        loop {
            let until = match self.offer(fact) {
                Offer::Taken => return true,
                Offer::Lost => return false,
                Offer::Full(back, until) => {
                    fact = back;
                    until
                }
            };
            if until <= Instant::now() {
                self.state.lock().lose_new("there was no room, and the server did not answer in time");
                return false;
            }
            // Either way there is something to look at again.
            let _ = timeout_at(until, settled.changed()).await;
        }
    }

    /// Takes an emitted event if there is room for it now; else it is shed.
    pub fn put_now(&self, fact: Fact) {
        if let Offer::Full(..) = self.offer(fact) {
            let mut state = self.state.lock();
            state.counters.reported += 1;
            state.counters.shed += 1;
        }
    }

    fn offer(&self, fact: Fact) -> Offer {
        let mut state = self.state.lock();
        if let Some(Ended::Refused(error)) = &state.ended {
            let why = error.to_string();
            state.lose_new(&why);
            return Offer::Lost;
        }
        if state.is_closed {
            state.lose_new("the reporter is closed");
            return Offer::Lost;
        }
        let mut waiting = Waiting { fact, since: state.counters.reported + 1, is_stand_in: false };
        let is_full = self.room.is_full(state.line.len(), state.bytes, waiting.fact.text.len());
        if is_full && !state.make_room(self.room, &mut waiting) {
            return Offer::Full(waiting.fact, state.settled_at + self.patience);
        }
        if state.line.is_empty() {
            state.settled_at = Instant::now();
        }
        state.counters.reported += 1;
        state.bytes += waiting.fact.text.len();
        state.line.push_back(waiting);
        drop(state);
        self.work.notify_one();
        Offer::Taken
    }

    /// Waits until everything that was reported before is acknowledged.
    ///
    /// # Errors
    /// Why something is not. A loss is told once.
    pub async fn flush(&self) -> Result<(), ReportError> {
        let mut settled = self.settled.subscribe();
        let all = self.state.lock().counters.reported;
        loop {
            let until = {
                let mut state = self.state.lock();
                if let Some(Ended::Refused(error)) = &state.ended {
                    return Err(error.clone());
                }
                if state.line.iter().all(|waiting| waiting.since > all) {
                    return state.lost.take().map_or(Ok(()), |(count, why)| Err(ReportError::Lost { count, why }));
                }
                let until = state.settled_at + self.patience;
                if until <= Instant::now() {
                    let why = state.failure.clone().unwrap_or_else(|| "it has not answered yet".into());
                    return Err(ReportError::Unreachable { waiting: state.waiting(), why });
                }
                until
            };
            let _ = timeout_at(until, settled.changed()).await;
        }
    }

    /// Takes nothing more. What is in the line is still sent.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.work.notify_one();
    }

    pub fn counters(&self) -> Counters {
        let state = self.state.lock();
        Counters { waiting: state.waiting(), ..state.counters }
    }

    /// As if the server had last settled something so much earlier.
    #[cfg(test)]
    pub fn age(&self, by: Duration) {
        self.state.lock().settled_at -= by;
    }

    // ── the sender's side ──

    /// The next facts to send, at most `limit`: again those that are under way, if any are. `None` once nothing more will come.
    pub async fn batch(&self, limit: usize) -> Option<Vec<Bytes>> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(batch) = state.batch(limit) {
                    return Some(batch);
                }
                if state.is_closed {
                    return None;
                }
            }
            self.work.notified().await;
        }
    }

    /// The first `count` facts that are under way are acknowledged; so many of them were known already.
    pub fn acknowledged(&self, count: usize, duplicates: u64) {
        let mut state = self.state.lock();
        state.counters.repeated += duplicates;
        for _ in 0..count {
            let waiting = state.line.pop_front().expect("what is under way is in the line");
            state.bytes -= waiting.fact.text.len();
            state.counters.acknowledged += u64::from(!waiting.is_stand_in);
        }
        state.under_way -= count;
        state.went_on();
        drop(state);
        self.settled.send_replace(());
    }

    /// One fact of those under way can never be taken. Another takes its place and its number, which tells of it.
    pub fn refused(&self, index: usize, why: &str) {
        let mut state = self.state.lock();
        let waiting = &mut state.line[index];
        if mem::replace(&mut waiting.is_stand_in, true) {
            // Not even that: the number goes to what follows.
            let waiting = state.line.remove(index).expect("it was just there");
            state.bytes -= waiting.fact.text.len();
            state.under_way -= 1;
        } else {
            let bytes = waiting.fact.text.len();
            waiting.fact.text = facts::stand_in(Timestamp::now(), why, bytes);
            state.bytes = state.bytes - bytes + state.line[index].fact.text.len();
            state.lose(1, why);
        }
        state.went_on();
        drop(state);
        self.settled.send_replace(());
        tracing::warn!(why, "the server refused a report");
    }

    /// A try came to nothing; whether to go on trying. Nobody waits for a closed line beyond its patience.
    pub fn failed(&self, why: String) -> bool {
        let mut state = self.state.lock();
        if state.failure.is_none() {
            tracing::warn!(why, "reports do not reach the server; they are tried again");
        }
        state.failure = Some(why);
        !state.is_closed || Instant::now() < state.settled_at + self.patience
    }

    /// The server takes nothing from here any more.
    pub fn stop(&self, error: ReportError) {
        tracing::warn!(%error, "reports are not sent any more");
        let why = error.to_string();
        self.end(Ended::Refused(error), &why);
    }

    /// Whoever sent the line is gone: what is left in it is lost.
    pub fn abandon(&self) {
        let why = self.state.lock().failure.clone();
        self.end(Ended::Quietly, &why.unwrap_or_else(|| "the runtime that was to send it has ended".into()));
    }

    fn end(&self, ended: Ended, why: &str) {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.is_closed = true;
            state.ended = Some(ended);
            let left = state.waiting();
            if left > 0 {
                state.lose(left, why);
            }
            state.line.clear();
            (state.under_way, state.bytes) = (0, 0);
        }
        drop(state);
        self.settled.send_replace(());
    }
}

impl State {
    /// Facts of reporters in the line.
    fn waiting(&self) -> u64 {
        self.line.iter().filter(|waiting| !waiting.is_stand_in).count() as u64
    }

    fn lose(&mut self, count: u64, why: &str) {
        self.counters.dropped += count;
        self.lost.get_or_insert_with(|| (0, why.to_owned())).0 += count;
    }

    /// Loses a report that was never in the line.
    fn lose_new(&mut self, why: &str) {
        self.counters.reported += 1;
        self.lose(1, why);
    }

    /// The server has settled something: whoever waits may wait again.
    fn went_on(&mut self) {
        self.settled_at = Instant::now();
        self.failure = None;
    }

    fn batch(&mut self, limit: usize) -> Option<Vec<Bytes>> {
        if self.under_way == 0 {
            let mut bytes = 0;
            let fits = |waiting: &&Waiting| {
                let is_first = bytes == 0;
                bytes += waiting.fact.text.len() + 1;
                is_first || bytes <= BATCH_BYTES_MAX
            };
            self.under_way = self.line.iter().take(BATCH_FACTS_MAX).take_while(fits).count();
            if self.under_way == 0 {
                return None;
            }
        }
        let batch = self.line.iter().take(self.under_way.min(limit));
        let batch: Vec<Bytes> = batch.map(|waiting| waiting.fact.text.clone()).collect();
        self.counters.sent += batch.len() as u64;
        Some(batch)
    }

    /// Lets go of every waiting state that a later one repeats, the newcomer among them, if that makes room for it.
    fn make_room(&mut self, room: Room, newcomer: &mut Waiting) -> bool {
        let repeated = self.repeated(newcomer);
        let freed: usize = repeated.iter().map(|(place, _)| self.line[*place].fact.text.len()).sum();
        if room.is_full(self.line.len() - repeated.len(), self.bytes - freed, newcomer.fact.text.len()) {
            return false;
        }
        for (place, by) in &repeated {
            let since = self.line[*place].since;
            let by = self.line.get_mut(*by).unwrap_or(newcomer);
            by.since = by.since.min(since);
        }
        self.bytes -= freed;
        self.counters.coalesced += repeated.len() as u64;
        // The last place comes first: those before it stay where they are.
        for (place, _) in repeated {
            self.line.remove(place);
        }
        true
    }

    /// The places of states that are repeated, from the last to the first, each with the place of what repeats it; the
    /// newcomer's is the one behind the line.
    fn repeated(&self, newcomer: &Waiting) -> Vec<(usize, usize)> {
        let role = |place: usize| &self.line.get(place).unwrap_or(newcomer).fact.role;
        let mut repeated = Vec::new();
        // Of each call, the earliest status so far and the places of the states that have it and stay. A change of status is
        // never let go of: whoever reads sees each.
        let mut states: HashMap<&str, (ProgressStatus, Vec<usize>)> = HashMap::new();
        for place in (self.under_way..=self.line.len()).rev() {
            match role(place) {
                older @ Role::State { call, status, .. } => {
                    let (later_status, later) = states.entry(&**call).or_insert((*status, Vec::new()));
                    if mem::replace(later_status, *status) != *status {
                        later.clear();
                    }
                    match later.iter().find(|by| role(**by).repeats(older)) {
                        Some(by) => repeated.push((place, *by)),
                        None => later.push(place),
                    }
                }
                // It builds on the states before it: they stay.
                Role::Patch { call } => drop(states.remove(&**call)),
                Role::Other => {}
            }
        }
        repeated
    }
}

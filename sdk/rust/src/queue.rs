//! The bounded FIFO queue of unacknowledged reports.
//!
//! The head of the queue may be in flight to the server; its facts and numbers are fixed until a response settles them.
//! A full queue first coalesces states that a later state of the same call repeats in full. After that a report waits
//! and an emitted event is shed. No caller waits longer than the stall timeout since the server's last progress, so a
//! slow server cannot block a tool.

use crate::error::ReportError;
use crate::facts::{self, Fact, ProgressStatus, Role};
use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

/// Counts of a reporter's reports by outcome, in facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// All reports that the reporter received.
    pub reported: u64,
    /// Sent facts, including every retry.
    pub sent: u64,
    /// Facts that are durable at the server.
    pub acknowledged: u64,
    /// Sent facts that the server already had because an earlier response was lost.
    pub repeated: u64,
    /// Facts that were not sent because a later state of the same call repeats them.
    pub coalesced: u64,
    /// Lost facts: the server rejected them, the queue stayed full for too long, or the reporter had ended.
    pub dropped: u64,
    /// Emitted events that found the queue full.
    pub shed: u64,
    /// Facts in the queue.
    pub waiting: u64,
}

/// The most facts in one body.
pub(crate) const BATCH_FACTS_MAX: usize = 256;
/// The most bytes in one body.
/// A single fact may be larger.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The limits of the queue.
#[derive(Clone, Copy)]
pub(crate) struct QueueLimits {
    pub facts: usize,
    /// The most bytes.
    /// A single fact may be larger.
    pub bytes: usize,
}

impl QueueLimits {
    /// Whether a queue of `facts` facts and `bytes` bytes is too full for `more` further bytes.
    const fn is_full(self, facts: usize, bytes: usize, more: usize) -> bool {
        facts >= self.facts || (facts > 0 && bytes + more > self.bytes)
    }
}

struct Entry {
    fact: Fact,
    /// The count of the first report that this entry covers: its own, or that of a coalesced one.
    since: u64,
    /// Whether this entry is the placeholder of a rejected fact.
    is_placeholder: bool,
}

struct State {
    entries: VecDeque<Entry>,
    /// The number of entries at the head that are in flight.
    in_flight: usize,
    /// The total length of all entries.
    bytes: usize,
    counters: Counters,
    /// The time of the server's last progress or, if later, the time when the queue became non-empty.
    last_progress_at: Instant,
    /// The reason of the last failed attempt.
    failure: Option<String>,
    /// Unreported losses: the number of facts, and the reason for the first.
    lost: Option<(u64, String)>,
    /// Whether the queue accepts no more reports.
    /// The task still sends the queued ones.
    is_closed: bool,
    /// Set when the task sends nothing more.
    ended: Option<Ended>,
}

enum Ended {
    /// The task ended.
    /// Unsent reports are counted as lost.
    TaskEnded,
    /// The server permanently rejects this reporter.
    Refused(ReportError),
}

/// The outcome of offering a fact to the queue.
enum Offer {
    Accepted,
    /// The fact is lost and counted.
    Lost,
    /// The queue is full.
    /// The caller may wait until this time.
    Full(Fact, Instant),
}

/// The queue, shared by the reporters and the task that sends it.
pub(crate) struct Queue {
    state: Mutex<State>,
    limits: QueueLimits,
    stall_timeout: Duration,
    /// Wakes the task when the queue has facts to send or is closed.
    work: Notify,
    /// Wakes waiting callers when the server settles facts or the task ends.
    settled: watch::Sender<()>,
}

impl Queue {
    pub fn new(limits: QueueLimits, stall_timeout: Duration) -> Self {
        let state = State {
            entries: VecDeque::new(),
            in_flight: 0,
            bytes: 0,
            counters: Counters::default(),
            last_progress_at: Instant::now(),
            failure: None,
            lost: None,
            is_closed: false,
            ended: None,
        };
        Self { state: Mutex::new(state), limits, stall_timeout, work: Notify::new(), settled: watch::Sender::new(()) }
    }

    // ── the reporters' side ──

    /// Adds a report and waits while the queue is full.
    /// Returns false if the report is lost.
    pub async fn put(&self, mut fact: Fact) -> bool {
        let mut settled = self.settled.subscribe();
        loop {
            let until = match self.offer(fact) {
                Offer::Accepted => return true,
                Offer::Lost => return false,
                Offer::Full(back, until) => {
                    fact = back;
                    until
                }
            };
            if until <= Instant::now() {
                self.state.lock().count_new_loss("the queue was full and the server did not answer in time");
                return false;
            }
            // The loop checks again after progress and after the timeout.
            let _ = timeout_at(until, settled.changed()).await;
        }
    }

    /// Adds an emitted event, or sheds it if the queue is full.
    pub fn try_put(&self, fact: Fact) {
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
            state.count_new_loss(&why);
            return Offer::Lost;
        }
        if state.is_closed {
            state.count_new_loss("the reporter is closed");
            return Offer::Lost;
        }
        let mut waiting = Entry { fact, since: state.counters.reported + 1, is_placeholder: false };
        let is_full = self.limits.is_full(state.entries.len(), state.bytes, waiting.fact.text.len());
        if is_full && !state.coalesce(self.limits, &mut waiting) {
            return Offer::Full(waiting.fact, state.last_progress_at + self.stall_timeout);
        }
        if state.entries.is_empty() {
            state.last_progress_at = Instant::now();
        }
        state.counters.reported += 1;
        state.bytes += waiting.fact.text.len();
        state.entries.push_back(waiting);
        drop(state);
        self.work.notify_one();
        Offer::Accepted
    }

    /// Waits until the server has acknowledged all earlier reports.
    ///
    /// # Errors
    /// [`ReportError`] if a report is lost or still unacknowledged. The queue returns each loss once.
    pub async fn flush(&self) -> Result<(), ReportError> {
        let mut settled = self.settled.subscribe();
        let all = self.state.lock().counters.reported;
        loop {
            let until = {
                let mut state = self.state.lock();
                if let Some(Ended::Refused(error)) = &state.ended {
                    return Err(error.clone());
                }
                if state.entries.iter().all(|waiting| waiting.since > all) {
                    return state.lost.take().map_or(Ok(()), |(count, why)| Err(ReportError::Lost { count, why }));
                }
                let until = state.last_progress_at + self.stall_timeout;
                if until <= Instant::now() {
                    let why = state.failure.clone().unwrap_or_else(|| "the server has not answered yet".into());
                    return Err(ReportError::Unreachable { waiting: state.waiting(), why });
                }
                until
            };
            let _ = timeout_at(until, settled.changed()).await;
        }
    }

    /// Closes the queue for new reports.
    /// The task still sends the queued ones.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.work.notify_one();
    }

    pub fn counters(&self) -> Counters {
        let state = self.state.lock();
        Counters { waiting: state.waiting(), ..state.counters }
    }

    /// Moves the time of the server's last progress into the past.
    #[cfg(test)]
    pub fn age(&self, by: Duration) {
        self.state.lock().last_progress_at -= by;
    }

    // ── the sender's side ──

    /// Returns the next facts to send, at most `limit`.
    /// In-flight facts come first, as a retry.
    ///
    /// `None`: the queue is closed and empty.
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

    /// Removes the first `count` in-flight facts as acknowledged.
    /// The server already had `duplicates` of them.
    pub fn acknowledged(&self, count: usize, duplicates: u64) {
        let mut state = self.state.lock();
        state.counters.repeated += duplicates;
        for _ in 0..count {
            let waiting = state.entries.pop_front().expect("in-flight facts are in the queue");
            state.bytes -= waiting.fact.text.len();
            state.counters.acknowledged += u64::from(!waiting.is_placeholder);
        }
        state.in_flight -= count;
        state.record_progress();
        drop(state);
        self.settled.send_replace(());
    }

    /// Replaces a rejected in-flight fact with a placeholder under the same number.
    pub fn refused(&self, index: usize, why: &str) {
        let mut state = self.state.lock();
        let waiting = &mut state.entries[index];
        if mem::replace(&mut waiting.is_placeholder, true) {
            // The server rejected the placeholder too: the next fact takes the number.
            let waiting = state.entries.remove(index).expect("the lines above read this entry");
            state.bytes -= waiting.fact.text.len();
            state.in_flight -= 1;
        } else {
            let bytes = waiting.fact.text.len();
            waiting.fact.text = facts::placeholder(Timestamp::now(), why, bytes);
            state.bytes = state.bytes - bytes + state.entries[index].fact.text.len();
            state.count_loss(1, why);
        }
        state.record_progress();
        drop(state);
        self.settled.send_replace(());
        tracing::warn!(why, "the server rejected a report");
    }

    /// Records a failed attempt.
    /// Returns whether to retry: a closed queue retries only until the stall timeout.
    pub fn failed(&self, why: String) -> bool {
        let mut state = self.state.lock();
        if state.failure.is_none() {
            tracing::warn!(why, "reports do not reach the server; the reporter retries");
        }
        state.failure = Some(why);
        !state.is_closed || Instant::now() < state.last_progress_at + self.stall_timeout
    }

    /// Ends the queue, because the server permanently rejects this reporter.
    pub fn stop(&self, error: ReportError) {
        tracing::warn!(%error, "the reporter sends no more reports");
        let why = error.to_string();
        self.end(Ended::Refused(error), &why);
    }

    /// Ends the queue, because the task has ended.
    /// The remaining reports are lost.
    pub fn abandon(&self) {
        let why = self.state.lock().failure.clone();
        self.end(Ended::TaskEnded, &why.unwrap_or_else(|| "the runtime of the reporter's task has ended".into()));
    }

    fn end(&self, ended: Ended, why: &str) {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.is_closed = true;
            state.ended = Some(ended);
            let left = state.waiting();
            if left > 0 {
                state.count_loss(left, why);
            }
            state.entries.clear();
            (state.in_flight, state.bytes) = (0, 0);
        }
        drop(state);
        self.settled.send_replace(());
    }
}

/// The state that all handles of a reporter share.
pub(crate) struct SharedState {
    pub queue: Arc<Queue>,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the counters: pending reports may contain private text of a tool.
        self.queue.counters().fmt(f)
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl State {
    /// Returns the number of queued reports, without placeholders.
    fn waiting(&self) -> u64 {
        self.entries.iter().filter(|waiting| !waiting.is_placeholder).count() as u64
    }

    fn count_loss(&mut self, count: u64, why: &str) {
        self.counters.dropped += count;
        self.lost.get_or_insert_with(|| (0, why.to_owned())).0 += count;
    }

    /// Counts the loss of a report that never entered the queue.
    fn count_new_loss(&mut self, why: &str) {
        self.counters.reported += 1;
        self.count_loss(1, why);
    }

    /// Records progress of the server, which restarts the stall timeout.
    fn record_progress(&mut self) {
        self.last_progress_at = Instant::now();
        self.failure = None;
    }

    fn batch(&mut self, limit: usize) -> Option<Vec<Bytes>> {
        if self.in_flight == 0 {
            let mut bytes = 0;
            let fits = |waiting: &&Entry| {
                let is_first = bytes == 0;
                bytes += waiting.fact.text.len() + 1;
                is_first || bytes <= BATCH_BYTES_MAX
            };
            self.in_flight = self.entries.iter().take(BATCH_FACTS_MAX).take_while(fits).count();
            if self.in_flight == 0 {
                return None;
            }
        }
        let batch = self.entries.iter().take(self.in_flight.min(limit));
        let batch: Vec<Bytes> = batch.map(|waiting| waiting.fact.text.clone()).collect();
        self.counters.sent += batch.len() as u64;
        Some(batch)
    }

    /// Coalesces repeated states if that makes room for `newcomer`.
    /// `newcomer` itself may repeat states.
    fn coalesce(&mut self, limits: QueueLimits, newcomer: &mut Entry) -> bool {
        let repeated = self.repeated(newcomer);
        let freed: usize = repeated.iter().map(|(index, _)| self.entries[*index].fact.text.len()).sum();
        if limits.is_full(self.entries.len() - repeated.len(), self.bytes - freed, newcomer.fact.text.len()) {
            return false;
        }
        for (index, by) in &repeated {
            let since = self.entries[*index].since;
            let by = self.entries.get_mut(*by).unwrap_or(newcomer);
            by.since = by.since.min(since);
        }
        self.bytes -= freed;
        self.counters.coalesced += repeated.len() as u64;
        // The indexes are in descending order, so a removal does not shift the remaining ones.
        for (index, _) in repeated {
            self.entries.remove(index);
        }
        true
    }

    /// Returns the indexes of repeated states in descending order.
    ///
    /// Each comes with the index of the state that repeats it. The index of `newcomer` is the length of the queue.
    fn repeated(&self, newcomer: &Entry) -> Vec<(usize, usize)> {
        let role = |index: usize| &self.entries.get(index).unwrap_or(newcomer).fact.role;
        let mut repeated = Vec::new();
        // For each call: the earliest status so far, and the indexes of the kept states with this status. The queue
        // keeps every change of status, because readers must see each.
        let mut states: HashMap<&str, (ProgressStatus, Vec<usize>)> = HashMap::new();
        for index in (self.in_flight..=self.entries.len()).rev() {
            match role(index) {
                older @ Role::State { call, status, .. } => {
                    let (later_status, later) = states.entry(&**call).or_insert((*status, Vec::new()));
                    if mem::replace(later_status, *status) != *status {
                        later.clear();
                    }
                    match later.iter().find(|by| role(**by).repeats(older)) {
                        Some(by) => repeated.push((index, *by)),
                        None => later.push(index),
                    }
                }
                // A patch builds on the states before it, so those stay.
                Role::Patch { call } => drop(states.remove(&**call)),
                Role::Other => {}
            }
        }
        repeated
    }
}

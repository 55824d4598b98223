//! A streamed body: a fact per line, appended in groups as they arrive.

use super::problems::{FactNumbering, fact_too_large, ingest_problem};
use super::{Destination, poll_once};
use crate::guard::KnownSecrets;
use crate::ingest::{Delivery, Facts, INLINE_BYTES_MAX, IngestError, Pending, Receipt, envelope_bytes_with};
use crate::log::agent_memory::MemoryWrite;
use crate::log::commit::Connected;
use crate::model::Epoch;
use crate::model::json::without_mark;
use crate::serve::App;
use crate::serve::access::authorization::OpenAccess;
use crate::serve::access::quota::TooFast;
use crate::serve::http::body::{body_cut_off, check_depth, discard};
use crate::serve::http::problem::Problem;
use axum::body::Body;
use bytes::BytesMut;
use http::StatusCode;
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Maximum groups of one streamed body in flight to the store.
const GROUPS_IN_FLIGHT_MAX: usize = 8;
/// Maximum facts of one group of a streamed body, and maximum bytes of their envelopes.
///
/// A single fact may be larger. A group is what has arrived; it never waits for more. The ingest accepts most groups on
/// the thread that has read them.
const GROUP_FACTS_MAX: usize = 1024;
const GROUP_BYTES_MAX: usize = INLINE_BYTES_MAX - 16 * 1024;

/// A streamed body with a fact per line.
pub struct LineBody<'a> {
    pub app: &'a App,
    pub to: Destination,
    pub buffer: BytesMut,
    /// What a connector stores with the facts in the buffer: at the beginning of its run with the first, else with the last.
    pub memory: Option<MemoryWrite>,
    /// What a connector's facts must not repeat.
    pub secrets: Option<Arc<KnownSecrets>>,
    /// Lines read, including blank ones. The line at fault has the next number.
    read: u64,
    /// Facts submitted, and the groups in flight.
    sent: u64,
    /// The epoch of the log that they went to.
    epoch: Option<Epoch>,
    in_flight: VecDeque<PendingGroup<'a>>,
    receipt: Option<Receipt>,
    access: OpenAccess,
    /// A run with a connected producer does not become stale.
    _connected: Connected,
}

/// A group in flight to the store.
struct PendingGroup<'a> {
    /// The index of its first fact in the body, from 0.
    first: u64,
    /// The line of each of its facts.
    lines: Vec<u64>,
    pending: Pending<'a>,
}

impl<'a> LineBody<'a> {
    pub async fn new(app: &'a App, to: Destination, access: OpenAccess) -> Result<Self, Problem> {
        let line = app.logs.log(&to.log).await?.mark_connected();
        let (buffer, in_flight) = (BytesMut::new(), VecDeque::new());
        let (memory, secrets, epoch, receipt) = (None, None, None, None);
        Ok(Self { app, to, buffer, memory, secrets, read: 0, sent: 0, epoch, in_flight, receipt, access, _connected: line })
    }

    pub async fn accept(mut self, mut body: Body) -> Result<Receipt, Problem> {
        let outcome = self.read_all(&mut body).await;
        let settled = self.drain_to(0).await;
        let accepted = self.receipt.as_ref().map_or(0, |receipt| receipt.accepted);
        let duplicates = self.receipt.as_ref().map_or(0, |receipt| receipt.duplicates);
        if let Err(problem) = outcome.and(settled) {
            discard(body).await;
            return Err(problem.with("accepted", accepted).with("duplicates", duplicates));
        }
        match self.receipt {
            Some(receipt) => Ok(receipt),
            // A body of blank lines is a sign of life without facts.
            None => {
                let delivery = self.to.delivery(Vec::new().into(), false, 0);
                self.app.ingest.deliver(delivery).await.map_err(|error| ingest_problem(error, &FactNumbering::Index))
            }
        }
    }

    async fn read_all(&mut self, body: &mut Body) -> Result<(), Problem> {
        let stopping = self.app.stopping.waiter();
        let (silence_max, drain_delay) = (self.app.limits.line_time_max, self.app.drain_delay());
        loop {
            let Self { access, in_flight, .. } = self;
            let frame = tokio::select! {
                biased;
                frame = tokio::time::timeout(silence_max, body.frame()) => frame.map_err(|_| body_silent(silence_max))?,
                // The token may end before the body does.
                problem = access.ended() => return Err(problem),
                // Everything received is accepted. The client continues at another server, from `accepted`.
                () = stopping.elapsed(drain_delay) => return Err(Problem::stopping()),
                // A silent body must not hold in-flight memory.
                outcome = first_outcome(in_flight) => {
                    self.collect_outcome(outcome)?;
                    continue;
                }
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(body_cut_off)?.into_data() else { continue };
            let has_newline = data.contains(&b'\n');
            self.buffer.extend_from_slice(&data);
            if has_newline {
                self.group(false).await?;
            }
            if self.buffer.len() > self.app.limits.fact_bytes_max {
                return Err(self.too_long(self.buffer.len()));
            }
        }
        self.group(true).await
    }

    fn too_long(&self, bytes: usize) -> Problem {
        fact_too_large(bytes, self.app.limits.fact_bytes_max).with("line", self.read + 1)
    }

    /// Submits all complete lines in groups, and at the body's end also a last line without a newline.
    pub async fn group(&mut self, at_end: bool) -> Result<(), Problem> {
        let end = match memchr::memrchr(b'\n', &self.buffer) {
            _ if at_end => self.buffer.len(),
            Some(newline) => newline + 1,
            None => return Ok(()),
        };
        let mut text = self.buffer.split_to(end).freeze();
        if self.read == 0 {
            text = text.slice_ref(without_mark(&text));
        }
        let each = envelope_bytes_with(&self.to.default_ids);
        let mut from = 0;
        while from < text.len() {
            let (begin, mut bytes, mut ranges, mut at, mut bad) = (from, 0, Vec::new(), Vec::new(), None);
            while from < text.len() && ranges.len() < GROUP_FACTS_MAX && bytes < GROUP_BYTES_MAX {
                let newline = memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |n| from + n);
                match self.is_fact(&text[from..newline]) {
                    Ok(true) => {
                        ranges.push(from - begin..newline - begin);
                        at.push(self.read + 1);
                        bytes += each + newline - from;
                    }
                    Ok(false) => {}
                    Err(problem) => {
                        bad = Some(problem);
                        break;
                    }
                }
                self.read += 1;
                from = text.len().min(newline + 1);
            }
            if !ranges.is_empty() {
                let is_due = matches!(self.memory, Some(MemoryWrite::First(_))) || from >= text.len();
                let memory = if is_due { self.memory.take() } else { None };
                self.submit_group(Facts::from_text(text.slice(begin..from), ranges), at, memory).await?;
            }
            if let Some(problem) = bad {
                return Err(problem);
            }
        }
        Ok(())
    }

    /// Submits one group of facts. `lines` are their line numbers.
    async fn submit_group(&mut self, facts: Facts, lines: Vec<u64>, memory: Option<MemoryWrite>) -> Result<(), Problem> {
        let (app, first, count) = (self.app, self.sent, facts.len());
        let delivery =
            Delivery { epoch: self.epoch, memory, secrets: self.secrets.clone(), ..self.to.delivery(facts, false, first) };
        app.disk.reserve_space(&delivery)?;
        self.wait_for_rate(count).await?;
        self.sent += count as u64;
        let admitted = {
            let mut admitting = pin!(app.ingest.admit(&delivery));
            match poll_once(admitting.as_mut()).await {
                Some(admitted) => admitted,
                None => {
                    self.drain_to(0).await?;
                    admitting.await
                }
            }
        };
        let submitting = async { app.ingest.submit(delivery, admitted?).await };
        let pending = submitting.await.map_err(|error| ingest_problem(error, &FactNumbering::Index))?;
        self.epoch = pending.epoch().or(self.epoch);
        let refused = pending.is_refused();
        self.in_flight.push_back(PendingGroup { first, lines, pending });
        self.drain_to(if refused { 0 } else { GROUPS_IN_FLIGHT_MAX }).await?;
        // One chunk may hold many groups; other tasks must run in between.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Waits until the producer's rate limit allows these facts.
    async fn wait_for_rate(&mut self, facts: usize) -> Result<(), Problem> {
        while let Err(TooFast { wait, .. }) = self.to.take_rate(self.app, facts) {
            // A waiting body must not hold in-flight memory.
            self.drain_to(0).await?;
            tokio::select! {
                biased;
                problem = self.access.ended() => return Err(problem),
                () = tokio::time::sleep(wait) => {}
            }
        }
        Ok(())
    }

    /// Returns whether a line is not blank. The ingest checks that it is JSON.
    fn is_fact(&self, line: &[u8]) -> Result<bool, Problem> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(false);
        }
        if line.len() > self.app.limits.fact_bytes_max {
            return Err(self.too_long(line.len()));
        }
        let number = self.read + 1;
        check_depth(line, self.app.limits.depth_max).map_err(|mut problem| {
            problem.members.shift_remove("index");
            problem.with("line", number)
        })?;
        Ok(true)
    }

    /// Waits until at most `in_flight` groups are in flight, and adds up their outcomes.
    pub async fn drain_to(&mut self, in_flight: usize) -> Result<(), Problem> {
        let mut outcome = Ok(());
        while self.in_flight.len() > in_flight {
            let result = first_outcome(&mut self.in_flight).await;
            outcome = outcome.and(self.collect_outcome(result));
        }
        outcome
    }

    /// Adds up the outcome of the first group in flight.
    fn collect_outcome(&mut self, result: Result<Receipt, IngestError>) -> Result<(), Problem> {
        let Some(PendingGroup { first: offset, lines, .. }) = self.in_flight.pop_front() else { return Ok(()) };
        let (kept, outcome) = match result {
            Ok(receipt) => (Some(receipt), Ok(())),
            Err(error) => (error.kept().cloned(), Err(ingest_problem(error, &FactNumbering::Line(&lines)))),
        };
        // A group numbers its own facts; the client numbers those of the body.
        let kept = kept.map(|mut kept| {
            kept.violations.iter_mut().for_each(|violation| violation.index += offset);
            kept
        });
        match (&mut self.receipt, kept) {
            (Some(total), Some(kept)) => total.extend(kept),
            (total, Some(kept)) => *total = Some(kept),
            (_, None) => {}
        }
        outcome
    }
}

/// Waits for the outcome of the first group; forever without one. Cancel safe.
async fn first_outcome(in_flight: &mut VecDeque<PendingGroup<'_>>) -> Result<Receipt, IngestError> {
    match in_flight.front_mut() {
        Some(group) => group.pending.durable().await,
        None => std::future::pending().await,
    }
}

fn body_silent(silence_max: Duration) -> Problem {
    let detail = format!(
        "The streamed body was silent for {silence_max:?}, the limit. Earlier lines were accepted. Send a blank line now and \
         then, or raise --line-time-ms."
    );
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_silent", detail)
}

//! The API for tool authors: reports a tool's progress to a server from any Rust process (seed 002).
//!
//! ```
//! use proscenium::reporter::{ProgressStatus, Reporter};
//!
//! async fn index_docs(call: &proscenium::reporter::ToolCallReporter) {
//!     call.report_progress(ProgressStatus::Running, Some("Starting indexing"), None).await;
//!     for i in 0..10 {
//!         // ... do work ...
//!         let fraction = f64::from(i + 1) / 10.0;
//!         call.report_progress(ProgressStatus::Running, Some(&format!("Indexed batch {}/10", i + 1)), Some(fraction)).await;
//!     }
//!     call.report_progress(ProgressStatus::Done, Some("Indexing complete"), Some(1.0)).await;
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url: Option<String> = None;
//! // One reporter per run. Without a server, all calls below do nothing.
//! let reporter = match url {
//!     Some(url) => Reporter::builder(&url, "run-1").with_session("session-1").start()?,
//!     None => Reporter::none(),
//! };
//! index_docs(&reporter.call("call-1", "index_docs")).await;
//! reporter.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Audience
//!
//! All `report_*` methods report to users, because a tool's author reports in order to show it.
//! [`emit`](ToolCallReporter::emit) sends Ethos' progress event; it is internal unless the event sets another audience.
//!
//! # Guarantees
//!
//! * **Reporting never fails or blocks the tool.** Reports enter a bounded queue, and a background task sends them. No
//!   method panics, returns an error or waits for an answer, except [`flush`](Reporter::flush) and
//!   [`close`](Reporter::close). A report waits only while the queue is full, and at most for the [stall
//!   timeout](ReporterBuilder::with_stall_timeout) since the server's last progress. After that the reporter drops and
//!   counts it.
//! * **Each fact is stored once and in order.** Every fact has a sequence number of its producer (protocol, section 2).
//!   After a broken connection the reporter sends the same facts under the same numbers, and the server detects
//!   duplicates. This also holds across a restart of the server. A killed process loses its unacknowledged reports.
//! * **A full queue coalesces first.** The reporter removes states of a call that a later state with the same status
//!   repeats in full. It never removes patches, activities, a change of status, or the first report of a call. If the
//!   queue is still full, reports wait and emitted events are shed.
//! * **A rejected fact does not affect other facts.** The reporter drops and counts it. It sends an internal
//!   `diagnostic.changed` with the reason under its number. A change that builds on a dropped patch may not apply until
//!   the next [`report_activity`](ToolCallReporter::report_activity); the server reports this in `diagnostics`.
//! * **Every report is counted.** In [`Counters`], `reported` = `acknowledged` + `coalesced` + `dropped` + `shed` +
//!   `waiting`.
//!
//! # Runtime
//!
//! The reporter is a library in another program's process. It reads the clock and the system's randomness, but never
//! the environment: only `main` reads `PROSCENIUM_URL`, see `examples/report_progress.rs`. The reporter starts one task
//! on the current tokio runtime. That runtime, and the runtime that awaits reports, must have timers and I/O enabled.
//! The reporter accepts an `https` server's certificate if the system trusts it, or if
//! [`ReporterBuilder::with_authority`] has signed it.

mod facts;
mod queue;
pub mod trust;
mod wire;
mod worker;

#[cfg(test)]
mod tests;

pub use facts::{
    ProgressStatus, TOOL_CALL_PROGRESS_ACTIVITY_TYPE, TOOL_CALL_PROGRESS_SCHEMA, ToolCallProgressState, ToolProgressEvent,
};

use crate::model::id::IdError;
use crate::model::{Ids, ProducerId, RunId};
use bytes::Bytes;
use facts::EventTarget;
use jiff::Timestamp;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use queue::{Queue, QueueLimits};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::{Http, Sink};
use worker::{AbandonOnDrop, Backoff, Rng};

/// The default limit of the queue, in facts.
///
/// See [`ReporterBuilder::with_queue_facts_max`].
pub const QUEUE_FACTS_MAX: usize = 1024;
/// The most bytes of unacknowledged facts in the queue.
/// A single fact may be larger.
pub const QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The default time without progress of the server after which reports stop waiting.
///
/// See [`ReporterBuilder::with_stall_timeout`].
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest stall timeout.
const STALL_TIMEOUT_MAX: Duration = Duration::from_hours(365 * 24);
/// The most facts that a [`Recording`] keeps.
/// It evicts the oldest.
pub const RECORDED_FACTS_MAX: usize = 10_000;

/// The connect timeout.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// The timeout of a whole request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(20);
const BACKOFF: Backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(10) };

/// Why a reporter cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{url:?} is not a valid server address: {why}; use an address such as http://127.0.0.1:8787")]
    Url { url: String, why: String },
    #[error("the reporter's {member}: {error}")]
    Id { member: &'static str, error: IdError },
    #[error("the reporter's {member} is not visible ASCII, which its HTTP header requires")]
    Header { member: &'static str },
    #[error("a reporter needs a tokio runtime for its background task; start the reporter inside one")]
    NoRuntime,
    #[error("the system's randomness, which a reporter needs for its id, is unavailable: {0}")]
    NoRandomness(getrandom::Error),
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
    #[error("the HTTP client cannot be created: {0}")]
    Client(reqwest::Error),
}

/// Why some reports are not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The reporter still retries; a later [`flush`](Reporter::flush) may succeed.
    #[error("the server made no progress within the stall timeout: {why}; {waiting} reports are pending and will be retried")]
    Unreachable { waiting: u64, why: String },
    /// These reports are lost; the others are acknowledged.
    /// `flush` reports a loss once.
    #[error("{count} reports are lost: {why}")]
    Lost { count: u64, why: String },
    /// Permanent.
    #[error("a newer reporter (epoch {current}) uses this producer's id; this reporter sends nothing more")]
    Fenced { current: u64 },
    /// Permanent.
    #[error("the server rejects this reporter: {detail} ({status} {code}); the reporter sends nothing more")]
    Refused { status: u16, code: String, detail: String },
}

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

/// A handle that reports from one process to one run.
/// It is cheap to clone; see [`Reporter::builder`].
///
/// The default is [`Reporter::none`]. After the last handle is dropped, the background task still sends the pending
/// reports, as long as its runtime lives. [`close`](Self::close) waits for this.
#[derive(Debug, Clone, Default)]
pub struct Reporter {
    link: Option<Arc<SharedState>>,
}

/// The state that all handles of a reporter share.
struct SharedState {
    queue: Arc<Queue>,
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

impl Reporter {
    /// Returns a disabled reporter: all its methods, and those of its calls, return at once without effect.
    ///
    /// ```
    /// use proscenium::reporter::Reporter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let reporter = Reporter::none();
    /// reporter.call("call-1", "index_docs").report_activity("code", "fn main() {}").await;
    /// assert_eq!(reporter.flush().await, Ok(()));
    /// assert_eq!(reporter.counters().reported, 0);
    /// # }
    /// ```
    #[must_use]
    pub const fn none() -> Self {
        Self { link: None }
    }

    /// Returns a builder of a reporter for this run.
    /// `url` is a server such as `http://127.0.0.1:8787`.
    ///
    /// ```no_run
    /// use proscenium::reporter::Reporter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), proscenium::reporter::StartError> {
    /// let reporter = Reporter::builder("http://127.0.0.1:8787", "run-1").with_session("session-1").with_agent("indexer").start()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn builder(url: &str, run: &str) -> ReporterBuilder {
        ReporterBuilder {
            url: url.to_owned(),
            run: run.to_owned(),
            ids: Vec::new(),
            producer: None,
            epoch: None,
            token: None,
            authority: None,
            queue_facts_max: QUEUE_FACTS_MAX,
            stall_timeout: STALL_TIMEOUT,
        }
    }

    /// Returns a reporter that records into memory, for tests of a tool.
    /// Requires a current tokio runtime.
    ///
    /// ```
    /// use proscenium::reporter::{ProgressStatus, Reporter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (reporter, recording) = Reporter::recording()?;
    /// reporter.call("call-1", "index_docs").report_progress(ProgressStatus::Running, None, Some(0.5)).await;
    /// reporter.flush().await?;
    /// let fact = &recording.facts()[0];
    /// assert_eq!((&fact["type"], &fact["audience"]), (&"tool.progress".into(), &"user".into()));
    /// assert_eq!(fact["payload"]["content"]["progress"], 0.5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StartError::NoRuntime`] or [`StartError::NoRandomness`].
    pub fn recording() -> Result<(Self, Recording), StartError> {
        let recording = Recording::default();
        let limits = QueueLimits { facts: QUEUE_FACTS_MAX, bytes: QUEUE_BYTES_MAX };
        let reporter = Self::start(Sink::Memory(recording.clone()), limits, STALL_TIMEOUT, BACKOFF, random()?)?;
        Ok((reporter, recording))
    }

    fn start(
        sink: Sink,
        limits: QueueLimits,
        stall_timeout: Duration,
        backoff: Backoff,
        random: u128,
    ) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let queue = Arc::new(Queue::new(limits, stall_timeout));
        runtime.spawn(worker::run(AbandonOnDrop(queue.clone()), sink, backoff, Rng::new(random as u64)));
        Ok(Self { link: Some(Arc::new(SharedState { queue })) })
    }

    /// Whether this reporter is disabled.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.link.is_none()
    }

    /// Returns a reporter for one call, by the runtime's id of the call.
    ///
    /// If the server rejects the id, the reports are lost and [`flush`](Self::flush) returns the error.
    #[must_use]
    pub fn call(&self, call_id: &str, tool_name: &str) -> ToolCallReporter {
        let Some(link) = &self.link else { return ToolCallReporter::default() };
        let call = Call {
            link: link.clone(),
            id: call_id.into(),
            tool: tool_name.into(),
            reported: Mutex::new(ReportedState::default()),
        };
        ToolCallReporter { call: Some(Arc::new(call)), parent: None }
    }

    /// Emits a progress event of a tool without a call.
    /// Readers see it among the run's notices.
    ///
    /// Never waits; if the queue is full, the reporter sheds the event.
    pub fn emit(&self, event: ToolProgressEvent) {
        if let Some(link) = &self.link {
            link.queue.try_put(facts::event(Timestamp::now(), &EventTarget::None, event));
        }
    }

    /// Waits until the server has acknowledged (made durable) all earlier reports of every handle.
    ///
    /// # Errors
    /// [`ReportError`] if reports were lost since the last error, or if the server rejects this reporter or made no
    /// progress within the stall timeout.
    pub async fn flush(&self) -> Result<(), ReportError> {
        match &self.link {
            Some(link) => link.queue.flush().await,
            None => Ok(()),
        }
    }

    /// Closes the reporter for all handles and waits until the server has acknowledged all reports.
    ///
    /// The background task retries pending reports only until the stall timeout.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn close(self) -> Result<(), ReportError> {
        if let Some(link) = &self.link {
            link.queue.close();
        }
        self.flush().await
    }

    /// Returns the current counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.link.as_ref().map_or_else(Counters::default, |link| link.queue.counters())
    }
}

/// A builder for a [`Reporter`].
#[derive(Clone)]
pub struct ReporterBuilder {
    url: String,
    run: String,
    ids: Vec<(&'static str, String)>,
    producer: Option<String>,
    epoch: Option<u64>,
    token: Option<String>,
    authority: Option<Vec<u8>>,
    queue_facts_max: usize,
    stall_timeout: Duration,
}

impl ReporterBuilder {
    /// Sets the session of the run.
    #[must_use]
    pub fn with_session(self, id: &str) -> Self {
        self.id("sessionId", id)
    }

    /// Sets the thread of the run.
    #[must_use]
    pub fn with_thread(self, id: &str) -> Self {
        self.id("threadId", id)
    }

    /// Sets the agent whose tools use this reporter.
    #[must_use]
    pub fn with_agent(self, id: &str) -> Self {
        self.id("agentId", id)
    }

    /// Sets the parent of the run's session.
    #[must_use]
    pub fn with_parent_session(self, id: &str) -> Self {
        self.id("parentSessionId", id)
    }

    fn id(mut self, member: &'static str, id: &str) -> Self {
        self.ids.retain(|(known, _)| *known != member);
        self.ids.push((member, id.to_owned()));
        self
    }

    /// Sets a producer id that outlives this process, in visible ASCII.
    /// Default: a random id.
    ///
    /// A restarted reporter with the same id fences its predecessors. The server then counts one producer per run
    /// instead of one per start (its limit is 10,000). Two reporters must not use the same id at the same time.
    #[must_use]
    pub fn with_producer_id(mut self, id: &str) -> Self {
        self.producer = Some(id.to_owned());
        self
    }

    /// Sets the producer's epoch.
    /// Default: the time of the start, in microseconds.
    ///
    /// The epoch must increase with each start; otherwise the server takes new reports for duplicates.
    #[must_use]
    pub const fn with_epoch(mut self, epoch: u64) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// Sets the bearer token that authorizes this producer.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Sets the CA certificates for an `https` server, as PEM.
    /// Default: the system's trusted certificates.
    ///
    /// The reporter then trusts no other authority.
    #[must_use]
    pub fn with_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Sets the most unacknowledged facts in the queue, at least 1.
    /// Default: [`QUEUE_FACTS_MAX`].
    #[must_use]
    pub const fn with_queue_facts_max(mut self, facts: usize) -> Self {
        self.queue_facts_max = facts;
        self
    }

    /// Sets the time without progress of the server after which reports no longer wait.
    /// Default: [`STALL_TIMEOUT`].
    ///
    /// After this time the reporter drops reports that find the queue full, and [`Reporter::flush`] returns
    /// [`ReportError::Unreachable`]. The maximum is one year.
    #[must_use]
    pub fn with_stall_timeout(mut self, stall_timeout: Duration) -> Self {
        self.stall_timeout = stall_timeout.min(STALL_TIMEOUT_MAX);
        self
    }

    /// Starts the reporter.
    /// Requires a current tokio runtime, but no reachable server: it sends nothing yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(self) -> Result<Reporter, StartError> {
        let (queue_facts_max, stall_timeout) = (self.queue_facts_max, self.stall_timeout);
        let random = random()?;
        let sink = Sink::Http(Box::new(self.http(random)?));
        Reporter::start(
            sink,
            QueueLimits { facts: queue_facts_max.max(1), bytes: QUEUE_BYTES_MAX },
            stall_timeout,
            BACKOFF,
            random,
        )
    }

    fn http(self, random: u128) -> Result<Http, StartError> {
        let url = address(&self.url, &self.run, &self.ids)?;
        let (producer, first) = match self.producer {
            Some(producer) => (producer, next_epoch()),
            // A random id is unique, so any epoch will do.
            None => (format!("reporter-{random:032x}"), 0),
        };
        ProducerId::new(&producer).map_err(|error| StartError::Id { member: "producer", error })?;
        let mut headers = HeaderMap::new();
        let header = |member, text: &str| match HeaderValue::from_str(text) {
            Ok(value) if text.is_ascii() => Ok(value),
            _ => Err(StartError::Header { member }),
        };
        headers.insert("producer-id", header("producer", &producer)?);
        headers.insert("producer-epoch", self.epoch.unwrap_or(first).into());
        if let Some(token) = self.token {
            let mut bearer = header("token", &format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        // The client does not retry: only the queue knows the sequence numbers.
        let client = trust::client(&self.url, self.authority.as_deref())?
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIME_MAX)
            .timeout(REQUEST_TIME_MAX);
        Ok(Http { client: client.build().map_err(StartError::Client)?, url, headers })
    }
}

impl fmt::Debug for ReporterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.debug_struct("ReporterBuilder")
            .field("url", &self.url)
            .field("run", &self.run)
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

/// Builds the URL that accepts the run's facts, with `ids` as defaults for facts without ids.
fn address(server: &str, run: &str, ids: &[(&'static str, String)]) -> Result<Url, StartError> {
    // RFC 3986's unreserved characters need no escape; an id may contain any other character.
    const ID: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    let bad = |why: String| StartError::Url { url: server.to_owned(), why };
    RunId::new(run).map_err(|error| StartError::Id { member: "run", error })?;
    for (member, id) in ids {
        Ids::default().set(member, id).map_err(|error| StartError::Id { member, error })?;
    }
    let text = format!("{}/v1/runs/{}/facts", server.trim_end_matches('/'), utf8_percent_encode(run, ID));
    let mut url = Url::parse(&text).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad(format!("the scheme is {}; it must be http or https", url.scheme())));
    }
    url.query_pairs_mut().append_pair("source", "agentui").extend_pairs(ids);
    Ok(url)
}

fn random() -> Result<u128, StartError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(StartError::NoRandomness)?;
    Ok(u128::from_ne_bytes(bits))
}

/// Returns an epoch for a producer that starts now: the time in microseconds.
///
/// It is greater than every earlier epoch of this process, because two producers may start at once.
fn next_epoch() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0);
    let mut last = LAST.load(Ordering::Relaxed);
    loop {
        let next = now.max(last + 1);
        match LAST.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return next,
            Err(moved) => last = moved,
        }
    }
}

/// A reporter for one call.
/// Clones report the same call.
#[derive(Debug, Clone, Default)]
pub struct ToolCallReporter {
    call: Option<Arc<Call>>,
    parent: Option<Arc<str>>,
}

#[derive(Debug)]
struct Call {
    link: Arc<SharedState>,
    id: Arc<str>,
    tool: Box<str>,
    reported: Mutex<ReportedState>,
}

/// The reported state of a call, as far as this reporter knows.
#[derive(Debug, Clone, Copy, Default)]
struct ReportedState {
    /// Whether the call's first report, which decides its audience, is in the queue or at the server.
    has_begun: bool,
    status: Option<ProgressStatus>,
}

impl ToolCallReporter {
    /// Sets the parent call.
    #[must_use]
    pub fn with_parent(mut self, call_id: &str) -> Self {
        if self.call.is_some() {
            self.parent = Some(call_id.into());
        }
        self
    }

    /// Returns a reporter for a call that this call makes.
    #[must_use]
    pub fn child(&self, call_id: &str, tool_name: &str) -> Self {
        let Some(call) = &self.call else { return Self::default() };
        let child = Reporter { link: Some(call.link.clone()) }.call(call_id, tool_name);
        Self { parent: Some(call.id.clone()), ..child }
    }

    /// Declares that the server has already acknowledged the runtime's start of this call.
    ///
    /// Later emitted events then belong to the call.
    #[must_use]
    pub fn with_known_start(self) -> Self {
        if let Some(call) = &self.call {
            call.reported.lock().has_begun = true;
        }
        self
    }

    /// Reports progress: a status, a message, and a fraction from 0.0 to 1.0 (`None`: unknown).
    ///
    /// ```
    /// # use proscenium::reporter::{ProgressStatus, Reporter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "index_docs");
    /// call.report_progress(ProgressStatus::Running, Some("Indexed batch 3/10"), Some(0.3)).await;
    /// # }
    /// ```
    pub async fn report_progress(&self, status: ProgressStatus, message: Option<&str>, progress: Option<f64>) {
        if self.call.is_none() {
            return;
        }
        let mut state = self.state(status);
        state.message = message.map(str::to_owned);
        state.progress = progress;
        self.report(state).await;
    }

    /// Returns a state of this call with only a status, for [`report`](Self::report).
    #[must_use]
    pub fn state(&self, status: ProgressStatus) -> ToolCallProgressState {
        let (id, tool) = self.call.as_ref().map_or(("", ""), |call| (&*call.id, &*call.tool));
        let state = ToolCallProgressState::new(id, tool, status);
        match &self.parent {
            Some(parent) => state.with_parent(parent),
            None => state,
        }
    }

    /// Reports a whole state.
    /// The reporter sets the state's call id to this call.
    ///
    /// ```
    /// # use proscenium::reporter::{ProgressStatus, Reporter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "download");
    /// call.report(call.state(ProgressStatus::Running).with_loaded(3 << 20).with_total(12 << 20)).await;
    /// # }
    /// ```
    pub async fn report(&self, mut state: ToolCallProgressState) {
        let Some(call) = &self.call else { return };
        state.call_id = (*call.id).to_owned();
        let (status, begins) = (state.status, !call.reported.lock().has_begun);
        if call.put(facts::state(Timestamp::now(), &call.id, state, begins)).await {
            *call.reported.lock() = ReportedState { has_begun: true, status: Some(status) };
        }
    }

    /// Reports the whole content of a tool's own activity.
    /// Plain text is valid content.
    ///
    /// Frontends choose by `activity_type` how to show the content.
    ///
    /// ```
    /// # use proscenium::reporter::Reporter;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "generate");
    /// call.report_activity("code-generation", "fn hello() {\n    println!(\"hi\");\n}").await;
    /// # }
    /// ```
    pub async fn report_activity(&self, activity_type: &str, content: impl Into<Value>) {
        if let Some(call) = &self.call {
            call.put(facts::activity(Timestamp::now(), &call.id, activity_type, content.into())).await;
        }
    }

    /// Reports a change of an activity, as a JSON Patch (RFC 6902).
    /// A single operation needs no array.
    ///
    /// ```
    /// # use proscenium::reporter::Reporter;
    /// # use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "generate");
    /// call.report_activity_delta("code-generation", json!({ "op": "add", "path": "/line", "value": "println!(\"world\");" })).await;
    /// # }
    /// ```
    pub async fn report_activity_delta(&self, activity_type: &str, patch: impl Into<Value>) {
        if let Some(call) = &self.call {
            call.put(facts::activity_delta(Timestamp::now(), &call.id, activity_type, patch.into())).await;
        }
    }

    /// Emits Ethos' progress event.
    /// Never waits; if the queue is full, the reporter sheds the event.
    ///
    /// The event belongs to the call once this reporter has reported on the call, or if the call has a [known
    /// start](Self::with_known_start). Before that, the event is one of the run's notices and only refers to the call.
    /// The first report of a call decides its audience, so it must not be an internal event.
    ///
    /// ```
    /// # use proscenium::reporter::{Reporter, ToolProgressEvent};
    /// # let call = Reporter::none().call("call-1", "read_file");
    /// call.emit(ToolProgressEvent::new("read_file", "reading bytes 0-65000").with_percent(1.3));
    /// call.emit(ToolProgressEvent::new("read_file", "reading 5 MB, this takes a few seconds").with_audience("user"));
    /// ```
    pub fn emit(&self, event: ToolProgressEvent) {
        let Some(call) = &self.call else { return };
        let reported = *call.reported.lock();
        let target =
            if reported.has_begun { EventTarget::Call(&call.id, reported.status) } else { EventTarget::RunNotice(&call.id) };
        call.link.queue.try_put(facts::event(Timestamp::now(), &target, event));
    }

    /// Reports the start of the call, if no runtime reports it.
    pub async fn started(&self, input: impl Into<Value>) {
        let Some(call) = &self.call else { return };
        let fact = facts::started(Timestamp::now(), &call.id, &call.tool, self.parent.as_deref(), input.into());
        if call.put(fact).await {
            *call.reported.lock() = ReportedState { has_begun: true, status: None };
        }
    }

    /// Reports the result of the call, if no runtime reports it.
    ///
    /// The output is internal. Every reader that saw the start sees the end.
    pub async fn result(&self, output: impl Into<Value>) {
        if let Some(call) = &self.call {
            call.put(facts::result(Timestamp::now(), &call.id, &call.tool, output.into())).await;
        }
    }

    /// Reports the failure of the call, if no runtime reports it.
    /// Every reader that saw the start sees it.
    pub async fn failed(&self, code: Option<&str>, message: &str) {
        if let Some(call) = &self.call {
            call.put(facts::failed(Timestamp::now(), &call.id, &call.tool, code, message)).await;
        }
    }
}

impl Call {
    async fn put(&self, fact: facts::Fact) -> bool {
        self.link.queue.put(fact).await
    }
}

/// The facts that a [`Reporter::recording`] has recorded.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    facts: Arc<Mutex<VecDeque<Bytes>>>,
}

impl Recording {
    /// Returns the newest [`RECORDED_FACTS_MAX`] facts in order, as a server would receive them.
    ///
    /// Call [`flush`](Reporter::flush) first.
    #[must_use]
    pub fn facts(&self) -> Vec<Value> {
        let facts = self.facts.lock();
        facts.iter().map(|fact| serde_json::from_slice(fact).expect("this module wrote the facts as JSON")).collect()
    }

    fn extend(&self, facts: &[Bytes]) {
        let mut known = self.facts.lock();
        known.extend(facts.iter().cloned());
        let too_many = known.len().saturating_sub(RECORDED_FACTS_MAX);
        known.drain(..too_many);
    }
}

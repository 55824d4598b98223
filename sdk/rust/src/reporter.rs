//! The handle of a run, and the builder that connects it to a server.

use crate::call::ToolCallReporter;
use crate::error::{ReportError, StartError};
use crate::facts::{self, EventTarget, ToolProgressEvent};
use crate::queue::{Counters, Queue, QueueLimits, SharedState};
use crate::recording::Recording;
use crate::wire::{Http, Sink};
use crate::worker::{self, AbandonOnDrop, Backoff, Rng};
use crate::{id, trust};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
/// The connect timeout.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// The timeout of a whole request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(20);
const BACKOFF: Backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(10) };

/// A handle that reports from one process to one run.
/// It is cheap to clone; see [`Reporter::builder`].
///
/// The default is [`Reporter::none`]. After the last handle is dropped, the background task still sends the pending
/// reports, as long as its runtime lives. [`close`](Self::close) waits for this.
#[derive(Debug, Clone, Default)]
pub struct Reporter {
    link: Option<Arc<SharedState>>,
}

impl Reporter {
    /// Returns a disabled reporter: all its methods, and those of its calls, return at once without effect.
    ///
    /// ```
    /// use proscenium_reporter::Reporter;
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
    /// use proscenium_reporter::Reporter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), proscenium_reporter::StartError> {
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
    /// use proscenium_reporter::{ProgressStatus, Reporter};
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

    pub(crate) fn start(
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
        self.link.as_ref().map_or_else(ToolCallReporter::default, |link| ToolCallReporter::new(link, call_id, tool_name))
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
        id::check(&producer).map_err(|error| StartError::Id { member: "producer", error })?;
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
    id::check(run).map_err(|error| StartError::Id { member: "run", error })?;
    for (member, text) in ids {
        id::check(text).map_err(|error| StartError::Id { member, error })?;
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
pub(crate) fn next_epoch() -> u64 {
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

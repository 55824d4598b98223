//! The API for authors of tools: what a tool says of its work while it is at it (seed 002), from any Rust process to a server.
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
//! // Once a run. Without a server to report to, everything below does nothing.
//! let reporter = match url {
//!     Some(url) => Reporter::to(&url, "run-1").session("session-1").start()?,
//!     None => Reporter::none(),
//! };
//! index_docs(&reporter.call("call-1", "index_docs")).await;
//! reporter.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Who sees it
//!
//! Everything from `report_*` is for users: reporting is its author's decision to show. [`emit`](ToolCallReporter::emit) is
//! Ethos' event, for internal eyes unless its author says otherwise, event by event.
//!
//! # What it promises
//!
//! * **A tool is never failed and never held up by who watches it.** Reports are put in a bounded line, and a task sends it.
//!   Nothing here panics, returns an error to the tool, or waits for an answer, except [`flush`](Reporter::flush) and
//!   [`close`](Reporter::close). A report waits only while the line is full, and never longer than the
//!   [patience](Setup::patience) since the server last went on: after that it is dropped, and counted.
//! * **Once, in order.** Every fact has a number of its producer (protocol, section 2). After a broken connection the same facts
//!   go out under the same numbers; a server that has them already says so. This holds across a restart of the server. A process
//!   that is killed loses what was not acknowledged.
//! * **A line that is full says the least that is enough.** First it lets go of a call's states that a later one of the same
//!   status repeats in full; never of patches, activities, a change of status, or the first word of a call. Then reports wait for
//!   room, and emitted events are shed.
//! * **A fact that no server takes harms no other.** It is dropped and counted; under its number stands a
//!   `diagnostic.changed` (internal) that says why. What builds on a dropped patch may not apply until the next
//!   [`report_activity`](ToolCallReporter::report_activity); the server says so in `diagnostics`.
//! * **It says what became of everything**: `reported` = `acknowledged` + `coalesced` + `dropped` + `shed` + `waiting`, of
//!   [`Counters`].
//!
//! It is a guest in somebody else's process, an edge of its own: it reads the clock and the system's randomness, but never the
//! environment; what is there to read (`PROSCENIUM_URL`) is `main`'s to read. `examples/report_progress.rs` does. It starts one
//! task on the tokio runtime that it is built in, which has its timers and I/O enabled, as has the one that reports are awaited
//! in. A server at an `https` address is believed if the system trusts it, or [`Setup::authority`] vouches for it.

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
use facts::Place;
use jiff::Timestamp;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use queue::{Queue, Room};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::{Http, Sink};
use worker::{Dice, Pace, Sending};

/// Facts that wait to be acknowledged, unless [`Setup::waiting_max`] says otherwise.
pub const WAITING_FACTS_MAX: usize = 1024;
/// Bytes of them, except that a single fact may be larger.
pub const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long the server may settle nothing before nobody waits for it any more, unless [`Setup::patience`] says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The longest patience.
const PATIENCE_MAX: Duration = Duration::from_hours(365 * 24);
/// What a [`Recording`] keeps, in facts; the oldest are forgotten.
pub const RECORDED_FACTS_MAX: usize = 10_000;

/// How long a server may take to be reached.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long one request may take in all.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(20);
const PACE: Pace = Pace { first: Duration::from_millis(100), most: Duration::from_secs(10) };

/// Why there is no reporter.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("{url:?} is no server's address: {why}; give one such as http://127.0.0.1:8787")]
    Url { url: String, why: String },
    #[error("the reporter's {member}: {error}")]
    Id { member: &'static str, error: IdError },
    #[error("the reporter's {member} is sent in a header, which takes visible ASCII only")]
    Header { member: &'static str },
    #[error("a reporter sends from a task, and there is no tokio runtime here; build it inside one")]
    NoRuntime,
    #[error("the system gives no randomness, which names a reporter: {0}")]
    NoRandomness(getrandom::Error),
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
    #[error("no HTTP client can be made: {0}")]
    Client(reqwest::Error),
}

/// Why not everything that was reported is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// They are still tried; a later [`flush`](Reporter::flush) may succeed.
    #[error("the server has settled nothing for the reporter's patience: {why}; {waiting} reports wait, and are still tried")]
    Unreachable { waiting: u64, why: String },
    /// Those are gone; the others are acknowledged. Told once.
    #[error("{count} reports are lost: {why}")]
    Lost { count: u64, why: String },
    /// For good.
    #[error("a newer reporter (epoch {current}) has taken over this producer's id; nothing more is sent from here")]
    Fenced { current: u64 },
    /// For good.
    #[error("the server takes nothing from this reporter: {detail} ({status} {code}); nothing more is sent")]
    Refused { status: u16, code: String, detail: String },
}

/// What became of a reporter's reports, in facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// All that the reporter was given.
    pub reported: u64,
    /// Sent, each repetition counted again.
    pub sent: u64,
    /// Durable at the server.
    pub acknowledged: u64,
    /// Of what was sent, what the server had already: an answer had been lost.
    pub repeated: u64,
    /// Not sent, for a later state of the same call repeats it.
    pub coalesced: u64,
    /// Lost: refused by the server, or there was no room in time, or the reporter was at its end.
    pub dropped: u64,
    /// Emitted events for which there was no room.
    pub shed: u64,
    /// In the line.
    pub waiting: u64,
}

/// Reports from one process to one run: cheap to clone, made once by [`Reporter::to`].
///
/// The default is [`Reporter::none`]. Dropping the last handle leaves what waits to the background task, for as long as its
/// runtime lives; [`close`](Self::close) waits for it.
#[derive(Debug, Clone, Default)]
pub struct Reporter {
    link: Option<Arc<Link>>,
}

/// What all handles of a reporter hold.
struct Link {
    queue: Arc<Queue>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without what waits: a tool's words are its own.
        self.queue.counters().fmt(f)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Reporter {
    /// A reporter to nobody: every method of it, and of its calls, does nothing at once.
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

    /// Prepares a reporter to this run on the server at this address, such as `http://127.0.0.1:8787`.
    ///
    /// ```no_run
    /// use proscenium::reporter::Reporter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), proscenium::reporter::SetupError> {
    /// let reporter = Reporter::to("http://127.0.0.1:8787", "run-1").session("session-1").agent("indexer").start()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn to(url: &str, run: &str) -> Setup {
        Setup {
            url: url.to_owned(),
            run: run.to_owned(),
            ids: Vec::new(),
            producer: None,
            epoch: None,
            token: None,
            authority: None,
            waiting_max: WAITING_FACTS_MAX,
            patience: PATIENCE,
        }
    }

    /// A reporter into memory, to test what a tool reports. Must be called inside a tokio runtime.
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
    /// [`SetupError::NoRuntime`] or [`SetupError::NoRandomness`].
    pub fn recording() -> Result<(Self, Recording), SetupError> {
        let recording = Recording::default();
        let room = Room { facts: WAITING_FACTS_MAX, bytes: WAITING_BYTES_MAX };
        let reporter = Self::start(Sink::Memory(recording.clone()), room, PATIENCE, PACE, random()?)?;
        Ok((reporter, recording))
    }

    fn start(sink: Sink, room: Room, patience: Duration, pace: Pace, random: u128) -> Result<Self, SetupError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| SetupError::NoRuntime)?;
        let queue = Arc::new(Queue::new(room, patience));
        runtime.spawn(worker::run(Sending(queue.clone()), sink, pace, Dice::new(random as u64)));
        Ok(Self { link: Some(Arc::new(Link { queue })) })
    }

    /// Whether this reports to nobody.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.link.is_none()
    }

    /// Reports of one call, by the id that the runtime gave it. An id that the server does not take loses its reports, and
    /// [`flush`](Self::flush) says so.
    #[must_use]
    pub fn call(&self, call_id: &str, tool_name: &str) -> ToolCallReporter {
        let Some(link) = &self.link else { return ToolCallReporter::default() };
        let call = Call { link: link.clone(), id: call_id.into(), tool: tool_name.into(), told: Mutex::new(Told::default()) };
        ToolCallReporter { call: Some(Arc::new(call)), parent: None }
    }

    /// Emits progress of a tool, without saying of which call: it stands among the run's notices. Never waits; if there is no
    /// room, the event is shed.
    pub fn emit(&self, event: ToolProgressEvent) {
        if let Some(link) = &self.link {
            link.queue.put_now(facts::event(Timestamp::now(), &Place::None, event));
        }
    }

    /// Waits until everything that was reported before, from any handle, is acknowledged: durable at the server.
    ///
    /// # Errors
    /// Why something is not: what was lost since this was last told, that the server has settled nothing for the reporter's
    /// patience, or that it takes nothing from here any more.
    pub async fn flush(&self) -> Result<(), ReportError> {
        match &self.link {
            Some(link) => link.queue.flush().await,
            None => Ok(()),
        }
    }

    /// Takes no more reports, from any handle, and waits until those before are acknowledged. What is then still waiting is tried
    /// no longer than the patience.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn close(self) -> Result<(), ReportError> {
        if let Some(link) = &self.link {
            link.queue.close();
        }
        self.flush().await
    }

    /// What became of the reports until now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.link.as_ref().map_or_else(Counters::default, |link| link.queue.counters())
    }
}

/// A reporter that is being prepared.
#[derive(Clone)]
pub struct Setup {
    url: String,
    run: String,
    ids: Vec<(&'static str, String)>,
    producer: Option<String>,
    epoch: Option<u64>,
    token: Option<String>,
    authority: Option<Vec<u8>>,
    waiting_max: usize,
    patience: Duration,
}

impl Setup {
    /// The session that the run belongs to.
    #[must_use]
    pub fn session(self, id: &str) -> Self {
        self.id("sessionId", id)
    }

    /// The thread that the run belongs to.
    #[must_use]
    pub fn thread(self, id: &str) -> Self {
        self.id("threadId", id)
    }

    /// The agent whose tools report here.
    #[must_use]
    pub fn agent(self, id: &str) -> Self {
        self.id("agentId", id)
    }

    /// The session that this run's session is a child of.
    #[must_use]
    pub fn parent_session(self, id: &str) -> Self {
        self.id("parentSessionId", id)
    }

    fn id(mut self, member: &'static str, id: &str) -> Self {
        self.ids.retain(|(known, _)| *known != member);
        self.ids.push((member, id.to_owned()));
        self
    }

    /// A producer's id that outlives this process, in visible ASCII: one that starts again under it fences those before it, and a server counts
    /// one producer of the run instead of one a start (10,000 are its limit). A random one unless given. No two reporters that
    /// live at the same time may share it.
    #[must_use]
    pub fn producer(mut self, id: &str) -> Self {
        self.producer = Some(id.to_owned());
        self
    }

    /// The producer's epoch: larger on each start, or what is reported passes for what was reported before. The time of the
    /// start, in microseconds, unless given.
    #[must_use]
    pub const fn epoch(mut self, epoch: u64) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// The token that says what may be published here.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// The certificates of the authority that vouches for an `https` server, as PEM; nobody else's word counts then. Those that
    /// the system trusts, unless given.
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// How many facts may wait to be acknowledged, at least 1; [`WAITING_FACTS_MAX`] unless given.
    #[must_use]
    pub const fn waiting_max(mut self, facts: usize) -> Self {
        self.waiting_max = facts;
        self
    }

    /// How long the server may settle nothing before nobody waits for it any more: reports that find no room are dropped, and
    /// [`Reporter::flush`] says that it is unreachable. [`PATIENCE`] unless given.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.min(PATIENCE_MAX);
        self
    }

    /// The reporter. Must be called inside a tokio runtime; nothing is sent yet, so that a server need not be there.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn start(self) -> Result<Reporter, SetupError> {
        let (waiting_max, patience) = (self.waiting_max, self.patience);
        let random = random()?;
        let sink = Sink::Http(Box::new(self.http(random)?));
        Reporter::start(sink, Room { facts: waiting_max.max(1), bytes: WAITING_BYTES_MAX }, patience, PACE, random)
    }

    fn http(self, random: u128) -> Result<Http, SetupError> {
        let url = address(&self.url, &self.run, &self.ids)?;
        let (producer, first) = match self.producer {
            Some(producer) => (producer, next_epoch()),
            // Nobody else has ever had it.
            None => (format!("reporter-{random:032x}"), 0),
        };
        ProducerId::new(&producer).map_err(|error| SetupError::Id { member: "producer", error })?;
        let mut headers = HeaderMap::new();
        let header = |member, text: &str| match HeaderValue::from_str(text) {
            Ok(value) if text.is_ascii() => Ok(value),
            _ => Err(SetupError::Header { member }),
        };
        headers.insert("producer-id", header("producer", &producer)?);
        headers.insert("producer-epoch", self.epoch.unwrap_or(first).into());
        if let Some(token) = self.token {
            let mut bearer = header("token", &format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        // What is sent again is for the line to decide, which knows the numbers.
        let client = trust::client(&self.url, self.authority.as_deref())?
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIME_MAX)
            .timeout(REQUEST_TIME_MAX);
        Ok(Http { client: client.build().map_err(SetupError::Client)?, url, headers })
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.debug_struct("Setup").field("url", &self.url).field("run", &self.run).field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// Where the run takes facts, with these ids for those that lack them.
fn address(server: &str, run: &str, ids: &[(&'static str, String)]) -> Result<Url, SetupError> {
    // RFC 3986's unreserved characters stand for themselves; an id may have any other.
    const ID: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    let bad = |why: String| SetupError::Url { url: server.to_owned(), why };
    RunId::new(run).map_err(|error| SetupError::Id { member: "run", error })?;
    for (member, id) in ids {
        Ids::default().set(member, id).map_err(|error| SetupError::Id { member, error })?;
    }
    let text = format!("{}/v1/runs/{}/facts", server.trim_end_matches('/'), utf8_percent_encode(run, ID));
    let mut url = Url::parse(&text).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad(format!("reports go over http or https, and this is {}", url.scheme())));
    }
    url.query_pairs_mut().append_pair("source", "agentui").extend_pairs(ids);
    Ok(url)
}

fn random() -> Result<u128, SetupError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(SetupError::NoRandomness)?;
    Ok(u128::from_ne_bytes(bits))
}

/// An epoch for a producer that starts now: the time in microseconds, and more than any of this process before, for two may
/// start at once.
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

/// Reports of one call; clones report of the same one.
#[derive(Debug, Clone, Default)]
pub struct ToolCallReporter {
    call: Option<Arc<Call>>,
    parent: Option<Arc<str>>,
}

#[derive(Debug)]
struct Call {
    link: Arc<Link>,
    id: Arc<str>,
    tool: Box<str>,
    told: Mutex<Told>,
}

/// What was told of a call, by this reporter as far as it knows.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    /// The call's first word, which decides who sees it, is in the line or at the server.
    has_begun: bool,
    status: Option<ProgressStatus>,
}

impl ToolCallReporter {
    /// The same, as a part of this call.
    #[must_use]
    pub fn parent(mut self, call_id: &str) -> Self {
        if self.call.is_some() {
            self.parent = Some(call_id.into());
        }
        self
    }

    /// Reports of a call that this one makes.
    #[must_use]
    pub fn child(&self, call_id: &str, tool_name: &str) -> Self {
        let Some(call) = &self.call else { return Self::default() };
        let child = Reporter { link: Some(call.link.clone()) }.call(call_id, tool_name);
        Self { parent: Some(call.id.clone()), ..child }
    }

    /// Says that the runtime has reported this call's start, and has had its answer: events that are emitted now stand with the
    /// call.
    #[must_use]
    pub fn announced(self) -> Self {
        if let Some(call) = &self.call {
            call.told.lock().has_begun = true;
        }
        self
    }

    /// Reports how far the call is: a status, a word, and a fraction from 0.0 to 1.0 (`None` if nobody can say).
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

    /// A state of this call to [`report`](Self::report), with nothing said beyond its status.
    #[must_use]
    pub fn state(&self, status: ProgressStatus) -> ToolCallProgressState {
        let (id, tool) = self.call.as_ref().map_or(("", ""), |call| (&*call.id, &*call.tool));
        let state = ToolCallProgressState::new(id, tool, status);
        match &self.parent {
            Some(parent) => state.parent(parent),
            None => state,
        }
    }

    /// Reports a whole state. Whatever call it names, it is of this one.
    ///
    /// ```
    /// # use proscenium::reporter::{ProgressStatus, Reporter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "download");
    /// call.report(call.state(ProgressStatus::Running).loaded(3 << 20).total(12 << 20)).await;
    /// # }
    /// ```
    pub async fn report(&self, mut state: ToolCallProgressState) {
        let Some(call) = &self.call else { return };
        state.call_id = (*call.id).to_owned();
        let (status, begins) = (state.status, !call.told.lock().has_begun);
        if call.put(facts::state(Timestamp::now(), &call.id, state, begins)).await {
            *call.told.lock() = Told { has_begun: true, status: Some(status) };
        }
    }

    /// Reports an activity of the tool's own, whole. `activity_type` says what it is, and frontends choose by it how to show the
    /// content; text is one as well.
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

    /// Reports a change of an activity, as a JSON Patch (RFC 6902). A single operation may stand without its array.
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

    /// Emits Ethos' progress event. Never waits; if there is no room, the event is shed.
    ///
    /// It stands with the call once something was reported of that from here, or it was [announced](Self::announced). Before,
    /// it stands among the run's notices and names the call: the first word of a call decides who ever sees it, and must be no
    /// event for internal eyes.
    ///
    /// ```
    /// # use proscenium::reporter::{Reporter, ToolProgressEvent};
    /// # let call = Reporter::none().call("call-1", "read_file");
    /// call.emit(ToolProgressEvent::new("read_file", "reading bytes 0-65000").percent(1.3));
    /// call.emit(ToolProgressEvent::new("read_file", "reading 5 MB, this takes a few seconds").audience("user"));
    /// ```
    pub fn emit(&self, event: ToolProgressEvent) {
        let Some(call) = &self.call else { return };
        let told = *call.told.lock();
        let place = if told.has_begun { Place::Call(&call.id, told.status) } else { Place::Beside(&call.id) };
        call.link.queue.put_now(facts::event(Timestamp::now(), &place, event));
    }

    /// Reports that the call starts, where no runtime does.
    pub async fn started(&self, input: impl Into<Value>) {
        let Some(call) = &self.call else { return };
        let fact = facts::started(Timestamp::now(), &call.id, &call.tool, self.parent.as_deref(), input.into());
        if call.put(fact).await {
            *call.told.lock() = Told { has_begun: true, status: None };
        }
    }

    /// Reports what the call came to, where no runtime does. The output is for internal eyes; whoever saw the call start sees
    /// that it ended.
    pub async fn result(&self, output: impl Into<Value>) {
        if let Some(call) = &self.call {
            call.put(facts::result(Timestamp::now(), &call.id, &call.tool, output.into())).await;
        }
    }

    /// Reports that the call failed, where no runtime does: for whoever saw it start.
    pub async fn failed(&self, code: Option<&str>, message: &str) {
        if let Some(call) = &self.call {
            call.put(facts::failed(Timestamp::now(), &call.id, &call.tool, code, message)).await;
        }
    }
}

impl Call {
    async fn put(&self, fact: queue::Fact) -> bool {
        self.link.queue.put(fact).await
    }
}

/// What was reported into memory, by [`Reporter::recording`].
#[derive(Debug, Clone, Default)]
pub struct Recording {
    facts: Arc<Mutex<VecDeque<Bytes>>>,
}

impl Recording {
    /// The facts in order, as a server would get them; the newest [`RECORDED_FACTS_MAX`]. [`flush`](Reporter::flush) before.
    #[must_use]
    pub fn facts(&self) -> Vec<Value> {
        let facts = self.facts.lock();
        facts.iter().map(|fact| serde_json::from_slice(fact).expect("facts are written by this module")).collect()
    }

    fn extend(&self, facts: &[Bytes]) {
        let mut known = self.facts.lock();
        known.extend(facts.iter().cloned());
        let too_many = known.len().saturating_sub(RECORDED_FACTS_MAX);
        known.drain(..too_many);
    }
}

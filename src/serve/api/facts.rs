//! Publishing facts: one object, an array, or NDJSON lines, to a run's log or a session's own log.
//!
//! A JSON body is atomic. A streamed body (`application/x-ndjson`) is appended in groups as it arrives, a few groups
//! ahead of the store. It is answered once, when everything is durable. An error names the fact by `index` or `line`.
//!
//! This module only splits a body into facts. Parsing takes many times the body's memory, so it waits for the ingest's
//! admission.

pub mod publisher;

use crate::ingest::{
    Admitted, Delivery, Facts, INLINE_BYTES_MAX, IngestError, OutOfScope, Pending, Producer, Receipt, WriteScope,
    envelope_bytes_with, string_end,
};
use crate::log::LogId;
use crate::log::commit::Connected;
use crate::model::{Epoch, Ids, ProducerId};
use crate::serve::access::authorization::{Authorization, OpenAccess, Principal};
use crate::serve::http::body::{BodyDeadline, body_cut_off, body_too_large, check_depth, discard, is_lines, read_body, too_deep};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use crate::serve::telemetry::trace::in_span;
use crate::serve::{App, drain_elapsed};
use crate::source::{self, FactError, SOURCES, SourceKind};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum groups of one streamed body in flight to the store.
const GROUPS_IN_FLIGHT_MAX: usize = 8;
/// Maximum facts of one group of a streamed body, and maximum bytes of their envelopes.
///
/// A single fact may be larger. A group is what has arrived; it never waits for more. The ingest accepts most groups on
/// the thread that has read them.
const GROUP_FACTS_MAX: usize = 1024;
const GROUP_BYTES_MAX: usize = INLINE_BYTES_MAX - 16 * 1024;
/// Maximum facts of one JSON body.
pub const BODY_FACTS_MAX: usize = 65_536;
/// `Retry-After` of an overloaded ingest, in seconds.
const BUSY_RETRY_AFTER_SECS: u64 = 1;
/// `POST /v1/runs/{run}/facts` and `POST /v1/sessions/{session}/facts`
pub async fn post(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Json<Receipt>, Problem> {
    let (head, body) = request.into_parts();
    let storing = async {
        let to = Destination::of(&authorization, &head.uri, &head.headers)?;
        if is_lines(&head.headers)? {
            return LineBody::new(&app, to, authorization.open_counted(&app)?).await?.accept(body).await;
        }
        let deadline = BodyDeadline::new(app.limits.body_time_max);
        let text = read_body(body, app.limits.body_bytes_max, &deadline).await?;
        store_body(&app, to, text).await
    };
    storing.await.inspect_err(|problem| app.meters.refused.add(problem.code)).map(Json)
}

/// Accepts a JSON body that was already read.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn accept_body(
    app: &App,
    authorization: &Authorization,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Receipt, Problem> {
    let storing = async {
        let to = Destination::of(authorization, uri, headers)?;
        if body.len() > app.limits.body_bytes_max {
            return Err(body_too_large(app.limits.body_bytes_max));
        }
        store_body(app, to, body).await
    };
    storing.await.inspect_err(|problem| app.meters.refused.add(problem.code))
}

/// Returns whether this path accepts facts.
#[must_use]
pub fn is_facts_path(path: &str) -> bool {
    let log = path.strip_prefix("/v1/runs/").or_else(|| path.strip_prefix("/v1/sessions/"));
    log.and_then(|log| log.strip_suffix("/facts")).is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

/// The log that facts go to, with their source, ids, producer and principal.
pub struct Destination {
    log: LogId,
    source: &'static SourceKind,
    default_ids: Ids,
    producer: Option<Producer>,
    write_scope: Option<WriteScope>,
    principal: Principal,
}

impl Destination {
    fn of(authorization: &Authorization, uri: &Uri, headers: &HeaderMap) -> Result<Self, Problem> {
        let log = match uri.path().starts_with("/v1/runs/") {
            true => LogId::Run(path_id("runId", uri)?),
            false => LogId::Session(path_id("sessionId", uri)?),
        };
        let query = Query::from_uri(uri);
        let names = ["producer-id", "producer-epoch", "producer-seq"];
        let mut values = [None; 3];
        for (value, name) in values.iter_mut().zip(names) {
            // Unreadable headers must not all count as one producer.
            *value = headers.get(name).map(|value| value.to_str()).transpose().map_err(|_| {
                let detail = format!("{name} is not visible ASCII. Send visible ASCII only.");
                Problem::bad_request("bad_producer", detail).with("member", name)
            })?;
        }
        Self::new(authorization, log, query.get("source"), query.ids()?, producer(names, values)?)
    }

    /// Creates a destination.
    ///
    /// `source` names the facts' vocabulary; `default_ids` are ids for facts without their own.
    ///
    /// # Errors
    /// 400 for an unknown source.
    pub fn new(
        authorization: &Authorization,
        log: LogId,
        source: Option<&str>,
        mut default_ids: Ids,
        producer: Option<Producer>,
    ) -> Result<Self, Problem> {
        let name = source.unwrap_or("agentui");
        let source = source::by_name(name).ok_or_else(|| {
            let known: Vec<_> = SOURCES.iter().map(|source| source.name).collect();
            let detail = format!("The source is {name:?}. It must be one of {}.", known.join(", "));
            Problem::bad_request("unknown_source", detail).with("member", "source").with("expected", known)
        })?;
        if let LogId::Session(session) = &log {
            default_ids.session = Some(session.clone());
        }
        Ok(Self {
            log,
            source,
            default_ids,
            producer,
            write_scope: authorization.write_scope(),
            principal: authorization.principal().clone(),
        })
    }

    /// The key of the rate limit: the token's subject.
    ///
    /// Without authentication the producer's id, else the log's, because nothing more is known of the sender.
    fn publisher(&self) -> &str {
        match (self.principal.grant(), &self.producer, &self.log) {
            (Some(grant), ..) => &grant.subject,
            (None, Some(producer), _) => producer.id.as_str(),
            (None, None, LogId::Run(run)) => run.as_str(),
            (None, None, LogId::Session(session)) => session.as_str(),
        }
    }

    fn delivery(&self, facts: Facts, atomic: bool, sent: u64) -> Delivery {
        let producer = self.producer.clone().map(|producer| Producer { seq: producer.seq + sent, ..producer });
        let (log, default_ids, write_scope) = (self.log.clone(), self.default_ids.clone(), self.write_scope.clone());
        Delivery { log, source: self.source, given: default_ids, producer, facts, atomic, epoch: None, write_scope }
    }
}

/// Reads the producer's numbering. Its id, epoch and sequence come together or not at all.
///
/// # Errors
/// 400 for a missing part, an invalid id or an invalid number.
pub fn producer(names: [&'static str; 3], values: [Option<&str>; 3]) -> Result<Option<Producer>, Problem> {
    let bad = |member: &'static str, why: String| Problem::bad_request("bad_producer", why).with("member", member);
    let [Some(id), Some(epoch), Some(seq)] = values else {
        if values == [None; 3] {
            return Ok(None);
        }
        let missing = names.iter().zip(values).find(|(_, value)| value.is_none()).map_or("", |(name, _)| name);
        return Err(bad(missing, format!("{missing} is missing. Send all of {}, or none.", names.join(", "))));
    };
    let number = |name: &'static str, text: &str| {
        text.parse::<u64>().map_err(|_| bad(name, format!("{name} is {text:?}. It must be a whole number of at least 0.")))
    };
    let id = ProducerId::new(id).map_err(|error| bad(names[0], format!("{}: {error}", names[0])))?;
    Ok(Some(Producer { id, epoch: number(names[1], epoch)?, seq: number(names[2], seq)? }))
}

/// Stores a JSON body, all of it or nothing.
async fn store_body(app: &App, to: Destination, text: Bytes) -> Result<Receipt, Problem> {
    let storing = async {
        let delivery = prepare(app, &to, text)?;
        let admitted = app.ingest.admit(&delivery).await;
        submit(app, delivery, admitted).await
    };
    let pending = in_span("append", storing).await?;
    in_span("commit", await_durable(pending)).await
}

/// Splits and checks a JSON body.
///
/// It is then ready to be [admitted](crate::ingest::Ingest::admit) and [submitted](submit).
///
/// # Errors
/// The [`Problem`] of a body that no ingest would accept.
pub fn prepare(app: &App, to: &Destination, text: Bytes) -> Result<Delivery, Problem> {
    app.disk.check_space()?;
    let ranges = split_facts(&text, app.limits.depth_max)?;
    if text.len() > app.limits.fact_bytes_max {
        check_fact_sizes(&text, &ranges, app.limits.fact_bytes_max)?;
    }
    let delivery = to.delivery(Facts::from_text(text, ranges), true, 0);
    app.disk.reserve_space(&delivery)?;
    if let Some(rate_limiter) = &app.rate_limiter {
        rate_limiter
            .try_take(to.publisher(), delivery.facts.len(), Instant::now())
            .map_err(|wait| rate_limiter.too_fast(wait))?;
    }
    Ok(delivery)
}

/// Submits a JSON body to the store.
///
/// # Errors
/// The [`Problem`] of a body that the ingest refuses.
pub async fn submit<'a>(
    app: &'a App,
    delivery: Delivery,
    admitted: Result<Admitted<'a>, IngestError>,
) -> Result<Pending<'a>, Problem> {
    let submitting = async { app.ingest.submit(delivery, admitted?).await };
    submitting.await.map_err(|error| ingest_problem(error, &FactNumbering::Index))
}

/// Polls a submission once. `None`: it must wait.
///
/// The memory in flight is limited. A caller that holds a part of it must release that part before it waits for more;
/// otherwise all callers could wait for each other.
pub async fn poll_once<F: Future>(mut submission: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match submission.as_mut().poll(context) {
        Poll::Ready(submitted) => Poll::Ready(Some(submitted)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Waits until a JSON body is durable.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn await_durable(mut pending: Pending<'_>) -> Result<Receipt, Problem> {
    pending.durable().await.map_err(|error| ingest_problem(error, &FactNumbering::Index))
}

fn check_fact_sizes(text: &[u8], ranges: &[Range<usize>], limit: usize) -> Result<(), Problem> {
    for (index, range) in ranges.iter().enumerate().filter(|(_, range)| range.len() > limit) {
        let bytes = text[range.clone()].trim_ascii().len();
        if bytes > limit {
            return Err(fact_too_large(bytes, limit).with("index", index));
        }
    }
    Ok(())
}

fn not_json(why: &dyn std::fmt::Display) -> Problem {
    let detail = format!("The body is not JSON: {why}. Nothing was accepted.");
    Problem::bad_request("not_json", detail).with("expected", "one JSON object, or an array of them")
}

/// Finds the facts of a JSON body: the body itself, or the items of its array.
///
/// A range need not hold JSON. If every range does, the body is JSON.
fn split_facts(text: &[u8], depth_max: usize) -> Result<Vec<Range<usize>>, Problem> {
    let open = text.len() - text.trim_ascii_start().len();
    if text.get(open) != Some(&b'[') {
        check_depth(text, depth_max)?;
        return Ok(std::iter::once(0..text.len()).collect());
    }
    let (mut ranges, mut from, mut at, mut depth) = (Vec::new(), open + 1, open + 1, 0);
    loop {
        match text.get(at) {
            Some(b'"') => at = string_end(text, at + 1),
            Some(b'{' | b'[') if depth == depth_max => return Err(too_deep(depth_max, ranges.len() as u64)),
            Some(b'{' | b'[') => depth += 1,
            Some(b']') if depth == 0 => break,
            Some(b'}' | b']') => depth = depth.saturating_sub(1),
            Some(b',') if depth == 0 => {
                ranges.push(from..at);
                from = at + 1;
                if ranges.len() == BODY_FACTS_MAX {
                    return Err(too_many_facts());
                }
            }
            Some(_) => {}
            None => return Err(not_json(&"its array does not end")),
        }
        at += 1;
    }
    if !text[at + 1..].trim_ascii().is_empty() {
        return Err(not_json(&"data follows its array"));
    }
    if !(ranges.is_empty() && text[from..at].trim_ascii().is_empty()) {
        ranges.push(from..at);
    }
    Ok(ranges)
}

fn too_many_facts() -> Problem {
    let remedy = "Send it in parts, or as application/x-ndjson, which has no limit.";
    let detail =
        format!("The body has more than {BODY_FACTS_MAX} facts, the limit for a JSON body. Nothing was accepted. {remedy}");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_facts", detail).with("limit", BODY_FACTS_MAX)
}

fn fact_too_large(bytes: usize, limit: usize) -> Problem {
    let detail = format!("A fact has {bytes} bytes. The limit is {limit}. Store large output elsewhere, and send a reference.");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "fact_too_large", detail).with("limit", limit)
}

/// A streamed body with a fact per line.
struct LineBody<'a> {
    app: &'a App,
    to: Destination,
    buffer: BytesMut,
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
    async fn new(app: &'a App, to: Destination, access: OpenAccess) -> Result<Self, Problem> {
        let line = app.logs.log(&to.log).await?.mark_connected();
        let (buffer, in_flight) = (BytesMut::new(), VecDeque::new());
        Ok(Self { app, to, buffer, read: 0, sent: 0, epoch: None, in_flight, receipt: None, access, _connected: line })
    }

    async fn accept(mut self, mut body: Body) -> Result<Receipt, Problem> {
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
        let mut stopping = self.app.stopping.subscribe();
        let (silence_max, drain_delay) = (self.app.limits.line_time_max, self.app.drain_delay());
        loop {
            let Self { access, in_flight, .. } = self;
            let frame = tokio::select! {
                biased;
                frame = tokio::time::timeout(silence_max, body.frame()) => frame.map_err(|_| body_silent(silence_max))?,
                // The token may end before the body does.
                problem = access.ended() => return Err(problem),
                // Everything received is accepted. The client continues at another server, from `accepted`.
                () = drain_elapsed(&mut stopping, drain_delay) => return Err(Problem::stopping()),
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
    async fn group(&mut self, at_end: bool) -> Result<(), Problem> {
        let end = match memchr::memrchr(b'\n', &self.buffer) {
            _ if at_end => self.buffer.len(),
            Some(newline) => newline + 1,
            None => return Ok(()),
        };
        let text = self.buffer.split_to(end).freeze();
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
                self.submit_group(Facts::from_text(text.slice(begin..from), ranges), at).await?;
            }
            if let Some(problem) = bad {
                return Err(problem);
            }
        }
        Ok(())
    }

    /// Submits one group of facts. `lines` are their line numbers.
    async fn submit_group(&mut self, facts: Facts, lines: Vec<u64>) -> Result<(), Problem> {
        let (app, first, count) = (self.app, self.sent, facts.len());
        let delivery = Delivery { epoch: self.epoch, ..self.to.delivery(facts, false, first) };
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
        let Some(rate_limiter) = &self.app.rate_limiter else { return Ok(()) };
        while let Err(wait) = rate_limiter.try_take(self.to.publisher(), facts, Instant::now()) {
            // A waiting body must not hold in-flight memory.
            self.drain_to(0).await?;
            tokio::select! {
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
    async fn drain_to(&mut self, in_flight: usize) -> Result<(), Problem> {
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

/// How errors number the facts of a body.
enum FactNumbering<'l> {
    Index,
    /// The line of each fact.
    Line(&'l [u64]),
}

fn ingest_problem(error: IngestError, numbering: &FactNumbering<'_>) -> Problem {
    let detail = error.to_string();
    let fact_location = |index: u64| match numbering {
        FactNumbering::Index => ("index", index, "nothing was accepted"),
        FactNumbering::Line(lines) => {
            ("line", lines.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or(0), "earlier lines were accepted")
        }
    };
    let outside = |error: &OutOfScope, detail: String| {
        let missing = if let OutOfScope::Run(_) = error { "run" } else { "session" };
        Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", missing)
    };
    match error {
        IngestError::OutOfScope { index, error, .. } => {
            let (member, number, kept) = fact_location(index);
            outside(&error, format!("{member} {number}: {error}; {kept}")).with(member, number)
        }
        IngestError::RunOutOfScope(error) => outside(&error, detail),
        IngestError::NotJson { index, error, .. } => match fact_location(index) {
            ("line", line, kept) => {
                let detail = format!("Line {line} is not JSON: {error}; {kept}.");
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_json", detail)
                    .with("line", line)
                    .with("expected", "one JSON object a line")
            }
            (_, index, _) => not_json(&format_args!("{error}, in fact {index}")),
        },
        IngestError::Fact { index, error, .. } => {
            let (member, number, kept) = fact_location(index);
            let code = match &error {
                FactError::NotAnObject { .. } => "not_an_object",
                FactError::NoType { .. } => "no_type",
                FactError::BadMember { .. } => "bad_member",
            };
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, format!("{member} {number}: {error}; {kept}"))
                .with(member, number)
                .with("expected", error.expected());
            match error.member() {
                Some(at_fault) => problem.with("member", at_fault),
                None => problem,
            }
        }
        IngestError::ProducerGap { expected, .. } => {
            Problem::new(StatusCode::CONFLICT, "producer_gap", detail).with("expected", expected)
        }
        IngestError::ProducerFenced { current, .. } => {
            Problem::new(StatusCode::FORBIDDEN, "producer_fenced", detail).with("expected", current)
        }
        IngestError::TooManyProducers => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_producers", detail)
            .with("limit", crate::ingest::PRODUCERS_MAX),
        IngestError::TooManyRuns { limit } => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, "too_many_runs", detail).with("limit", limit)
        }
        IngestError::TooManySubjects { limit } => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_subjects", detail).with("limit", limit)
        }
        IngestError::Busy(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).with_retry_after(BUSY_RETRY_AFTER_SECS)
        }
        IngestError::Erased => Problem::new(StatusCode::CONFLICT, "run_erased", detail),
        IngestError::EnvelopesTooLarge { bytes, limit } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "envelopes_too_large", detail).with("bytes", bytes).with("limit", limit)
        }
        IngestError::ParsedFactTooLarge { bytes, limit } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "fact_too_large", detail).with("bytes", bytes).with("limit", limit)
        }
        IngestError::Panicked => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", detail),
        IngestError::Store(error) => error.into(),
    }
}

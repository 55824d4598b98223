//! Facts in: one object, an array, or a stream of lines, to a run's log or a session's own.
//!
//! A JSON body is atomic. A streamed one (`application/x-ndjson`) is appended in groups as it arrives, a few groups ahead of
//! the store, and answered once, when all of it is durable. What is wrong is told with the fact's `index` or `line`.
//!
//! A body is only cut into facts here. Parsing takes many times its memory, and waits until there is room for that.

use super::access::{Hold, Pass, Right, Who};
use super::problem::Problem;
use super::request::{Query, path_id};
use super::trace::step;
use super::{App, BODY_BYTES_A_SECOND, stopped};
use crate::auth::rights::Verb;
use crate::ingest::{Admitted, Delivery, Facts, Fence, IngestError, Outside, Pending, Producer, Receipt, envelope_bytes_with};
use crate::log::run::OnTheLine;
use crate::log::{AnyStore, LogId};
use crate::model::{Epoch, Ids, ProducerId};
use crate::source::{self, FactError, SOURCES, SourceKind};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// Groups of one streamed body that may be on their way to the store at once.
const GROUPS_AHEAD_MAX: usize = 8;
/// What one group of a streamed body holds: facts, and bytes of the envelopes that they lead to, if there are several facts. A group
/// is what has arrived; it never waits for more.
const GROUP_FACTS_MAX: usize = 1024;
const GROUP_BYTES_MAX: usize = 1024 * 1024;
/// Facts of one JSON body.
pub const BODY_FACTS_MAX: usize = 65_536;
/// When whoever found too much under way may come back, in seconds.
const BUSY_RETRY_AFTER: u64 = 1;
/// What is read and thrown away of a body that was refused in the middle, so that its sender gets to read why.
const DISCARD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What it takes to send them.
pub const RIGHT: Right = Right::To(Verb::Publish);

/// `POST /v1/runs/{run}/facts` and `POST /v1/sessions/{session}/facts`
pub async fn post(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Json<Receipt>, Problem> {
    let (head, body) = request.into_parts();
    let taking = async {
        let to = Address::of(&pass, &head.uri, &head.headers)?;
        if is_lines(&head.headers)? {
            return Lines::new(&app, to, pass.open(&app)?).await?.take(body).await;
        }
        let pace = Pace::new(app.limits.body_time_max);
        let text = read_whole(body, app.limits.body_bytes_max, &pace).await?;
        whole(&app, to, text).await
    };
    taking.await.inspect_err(|problem| app.meters.refused.add(problem.code)).map(Json)
}

/// The same for a JSON body that is there already.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn at_once(app: &App, pass: &Pass, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Result<Receipt, Problem> {
    let taking = async {
        let to = Address::of(pass, uri, headers)?;
        if body.len() > app.limits.body_bytes_max {
            return Err(body_too_large(app.limits.body_bytes_max));
        }
        whole(app, to, body).await
    };
    taking.await.inspect_err(|problem| app.meters.refused.add(problem.code))
}

/// Whether a request to this path brings facts.
#[must_use]
pub fn is_address(path: &str) -> bool {
    let log = path.strip_prefix("/v1/runs/").or_else(|| path.strip_prefix("/v1/sessions/"));
    log.and_then(|log| log.strip_suffix("/facts")).is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

/// Where facts go, and who says so.
pub struct Address {
    log: LogId,
    source: &'static SourceKind,
    given: Ids,
    producer: Option<Producer>,
    fence: Option<Fence>,
    who: Who,
}

impl Address {
    fn of(pass: &Pass, uri: &Uri, headers: &HeaderMap) -> Result<Self, Problem> {
        let log = match uri.path().starts_with("/v1/runs/") {
            true => LogId::Run(path_id("runId", uri)?),
            false => LogId::Session(path_id("sessionId", uri)?),
        };
        let query = Query::of(uri);
        let names = ["producer-id", "producer-epoch", "producer-seq"];
        let mut values = [None; 3];
        for (value, name) in values.iter_mut().zip(names) {
            // Headers that cannot be read as text must not all be one producer.
            *value = headers.get(name).map(|value| value.to_str()).transpose().map_err(|_| {
                let detail = format!("{name} is not visible ASCII, which is all that a header may hold");
                Problem::bad_request("bad_producer", detail).with("member", name)
            })?;
        }
        Self::new(pass, log, query.get("source"), query.ids()?, producer(names, values)?)
    }

    /// The address of a log's facts, in the vocabulary of this source, with ids for those that lack them.
    ///
    /// # Errors
    /// 400 for a source that we do not know.
    pub fn new(
        pass: &Pass,
        log: LogId,
        source: Option<&str>,
        mut given: Ids,
        producer: Option<Producer>,
    ) -> Result<Self, Problem> {
        let name = source.unwrap_or("agentui");
        let source = source::by_name(name).ok_or_else(|| {
            let known: Vec<_> = SOURCES.iter().map(|source| source.name).collect();
            let detail = format!("source is {name:?}; it must be one of {}", known.join(", "));
            Problem::bad_request("unknown_source", detail).with("member", "source").with("expected", known)
        })?;
        if let LogId::Session(session) = &log {
            given.session = Some(session.clone());
        }
        Ok(Self { log, source, given, producer, fence: pass.fence(), who: pass.who().clone() })
    }

    /// Whose rate it counts against: whom the token is for. Where nobody is asked, the producer's, or else the log's, for nothing
    /// more is known of who sends.
    fn publisher(&self) -> &str {
        match (self.who.grant(), &self.producer, &self.log) {
            (Some(grant), ..) => &grant.subject,
            (None, Some(producer), _) => producer.id.as_str(),
            (None, None, LogId::Run(run)) => run.as_str(),
            (None, None, LogId::Session(session)) => session.as_str(),
        }
    }

    fn delivery(&self, facts: Facts, atomic: bool, sent: u64) -> Delivery {
        let producer = self.producer.clone().map(|producer| Producer { seq: producer.seq + sent, ..producer });
        let (log, given, fence) = (self.log.clone(), self.given.clone(), self.fence.clone());
        Delivery { log, source: self.source, given, producer, facts, atomic, life: None, fence }
    }
}

/// The producer's numbering, from its id, epoch and seq under these names: all of them or none.
///
/// # Errors
/// 400 for a part of them, or for what is no id or no number.
pub fn producer(names: [&'static str; 3], values: [Option<&str>; 3]) -> Result<Option<Producer>, Problem> {
    let bad = |member: &'static str, why: String| Problem::bad_request("bad_producer", why).with("member", member);
    let [Some(id), Some(epoch), Some(seq)] = values else {
        if values == [None; 3] {
            return Ok(None);
        }
        let missing = names.iter().zip(values).find(|(_, value)| value.is_none()).map_or("", |(name, _)| name);
        return Err(bad(
            missing,
            format!("{missing} is missing; a producer that numbers its facts sends all of {}", names.join(", ")),
        ));
    };
    let number = |name: &'static str, text: &str| {
        text.parse::<u64>().map_err(|_| bad(name, format!("{name} is {text:?}; it must be a whole number from 0")))
    };
    let id = ProducerId::new(id).map_err(|error| bad(names[0], format!("{}: {error}", names[0])))?;
    Ok(Some(Producer { id, epoch: number(names[1], epoch)?, seq: number(names[2], seq)? }))
}

/// Whether the body is lines of JSON; a body of no type is one JSON document.
///
/// # Errors
/// 415 for any other type.
pub fn is_lines(headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(false) };
    let kind = kind.to_str().unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match kind.as_str() {
        "" | "application/json" | "text/json" => Ok(false),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => Ok(true),
        other if other.ends_with("+json") => Ok(false),
        other => {
            let detail = format!(
                "the body is {other:?}; send application/json (a fact or an array) or application/x-ndjson (a fact a line)"
            );
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
        }
    }
}

/// How fast a JSON body has to come: who sends a byte now and then would hold a connection, and what it has brought, for ever.
pub struct Pace {
    begun: Instant,
    grace: Duration,
}

impl Pace {
    /// From now on.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self { begun: Instant::now(), grace }
    }

    /// What `reading` comes to, of a body that has brought so much.
    ///
    /// # Errors
    /// 408 when it takes too long.
    pub async fn keep<T>(&self, bytes: usize, reading: impl Future<Output = T>) -> Result<T, Problem> {
        let until = self.begun + self.grace + Duration::from_millis(bytes as u64 * 1000 / BODY_BYTES_A_SECOND);
        tokio::time::timeout_at(until, reading).await.map_err(|_| {
            let detail = format!(
                "{bytes} bytes of the body came in {:.1?}; it may take {:?} and a second for each {BODY_BYTES_A_SECOND} bytes. \
                 Nothing of it was kept; send it faster, or as application/x-ndjson, which takes its time",
                self.begun.elapsed(),
                self.grace
            );
            Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail)
        })
    }
}

/// Reads a body to its end.
pub(super) async fn read_whole(mut body: Body, limit: usize, pace: &Pace) -> Result<Bytes, Problem> {
    let mut parts: Vec<Bytes> = Vec::new();
    let mut bytes = 0;
    while let Some(frame) = pace.keep(bytes, body.frame()).await? {
        let Ok(data) = frame.map_err(cut_off)?.into_data() else { continue };
        bytes += data.len();
        if bytes > limit {
            discard(body).await;
            return Err(body_too_large(limit));
        }
        parts.push(data);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() })
}

/// A whole JSON body: one fact or an array, all of it or nothing.
async fn whole(app: &App, to: Address, text: Bytes) -> Result<Receipt, Problem> {
    let taking = async {
        let delivery = delivery(app, &to, text)?;
        let admitted = app.ingest.admit(&delivery).await;
        submit(app, delivery, admitted).await
    };
    let pending = step("append", taking).await?;
    step("commit", durable(pending)).await
}

/// A whole JSON body, to be [admitted](crate::ingest::Ingest::admit) and then [submitted](submit).
///
/// # Errors
/// The [`Problem`] of a body that cannot be taken, whatever its facts say.
pub fn delivery(app: &App, to: &Address, text: Bytes) -> Result<Delivery, Problem> {
    app.disk.has_room()?;
    let places = cut(&text, app.limits.depth_max)?;
    if text.len() > app.limits.fact_bytes_max {
        check_fact_sizes(&text, &places, app.limits.fact_bytes_max)?;
    }
    let delivery = to.delivery(Facts::of_text(text, places), true, 0);
    app.disk.has_room_for(&delivery)?;
    if let Some(rates) = &app.rates {
        rates.take(to.publisher(), delivery.facts.len(), Instant::now()).map_err(|wait| rates.refused(wait))?;
    }
    Ok(delivery)
}

/// Puts a whole JSON body in the line to the store.
///
/// # Errors
/// The [`Problem`] of a body that does not even get there.
pub async fn submit<'a>(
    app: &'a App,
    delivery: Delivery,
    admitted: Result<Admitted<'a>, IngestError>,
) -> Result<Pending<'a, AnyStore>, Problem> {
    let submitting = async { app.ingest.submit(delivery, admitted?).await };
    submitting.await.map_err(|error| told(error, &Place::Index))
}

/// What a submission comes to, unless it has to wait. There is a limit to what is under way to the store, and whoever has a part
/// of it and waits for more must let go of that part first: or all could end up waiting for each other.
pub async fn ready_now<F: Future>(mut submission: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match submission.as_mut().poll(context) {
        Poll::Ready(submitted) => Poll::Ready(Some(submitted)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// What became of a whole JSON body, once it is durable.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn durable(mut pending: Pending<'_, AnyStore>) -> Result<Receipt, Problem> {
    pending.durable().await.map_err(|error| told(error, &Place::Index))
}

fn check_fact_sizes(text: &[u8], places: &[Range<usize>], limit: usize) -> Result<(), Problem> {
    for (index, place) in places.iter().enumerate().filter(|(_, place)| place.len() > limit) {
        let bytes = text[place.clone()].trim_ascii().len();
        if bytes > limit {
            return Err(fact_too_large(bytes, limit).with("index", index));
        }
    }
    Ok(())
}

fn not_json(why: &dyn std::fmt::Display) -> Problem {
    let detail = format!("the body is not JSON: {why}; nothing of it was kept");
    Problem::bad_request("not_json", detail).with("expected", "one JSON object, or an array of them")
}

/// Where the facts of a JSON body stand: the body itself, or the items of an array. What stands there need not be JSON; if all of
/// it is, so is the body.
fn cut(text: &[u8], depth_max: usize) -> Result<Vec<Range<usize>>, Problem> {
    let open = text.len() - text.trim_ascii_start().len();
    if text.get(open) != Some(&b'[') {
        check_depth(text, depth_max)?;
        return Ok(std::iter::once(0..text.len()).collect());
    }
    let (mut places, mut from, mut at, mut depth) = (Vec::new(), open + 1, open + 1, 0);
    loop {
        match text.get(at) {
            Some(b'"') => at = string_end(text, at + 1),
            Some(b'{' | b'[') if depth == depth_max => return Err(too_deep(depth_max, places.len() as u64)),
            Some(b'{' | b'[') => depth += 1,
            Some(b']') if depth == 0 => break,
            Some(b'}' | b']') => depth = depth.saturating_sub(1),
            Some(b',') if depth == 0 => {
                places.push(from..at);
                from = at + 1;
                if places.len() == BODY_FACTS_MAX {
                    return Err(too_many_facts());
                }
            }
            Some(_) => {}
            None => return Err(not_json(&"its array does not end")),
        }
        at += 1;
    }
    if !text[at + 1..].trim_ascii().is_empty() {
        return Err(not_json(&"something stands behind its array"));
    }
    if !(places.is_empty() && text[from..at].trim_ascii().is_empty()) {
        places.push(from..at);
    }
    Ok(places)
}

/// Where a string ends whose text begins here: its closing quote, or the end of it all.
fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        at += 2;
    }
    text.len()
}

fn too_many_facts() -> Problem {
    let remedy = "send it in parts, or as application/x-ndjson, which has no limit";
    let detail = format!("the body has more than {BODY_FACTS_MAX} facts, the limit for one JSON body; {remedy}");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_facts", detail).with("limit", BODY_FACTS_MAX)
}

fn too_deep(limit: usize, index: u64) -> Problem {
    let detail = format!("the JSON nests deeper than {limit}, the limit; flatten it, or send the inner part as text");
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_deep", detail);
    problem.with("limit", limit).with("index", index)
}

fn body_too_large(limit: usize) -> Problem {
    let remedy = "send it in parts, or as application/x-ndjson, which has no limit";
    let detail = format!("the body is larger than {limit} bytes, the limit for one JSON body; {remedy}");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).with("limit", limit)
}

fn fact_too_large(bytes: usize, limit: usize) -> Problem {
    let detail = format!("a fact is {bytes} bytes, the limit is {limit}; store the output elsewhere and send a reference");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "fact_too_large", detail).with("limit", limit)
}

/// Refuses what nests deeper than `limit`, before a parser has to walk it. The array around a body's facts is not the facts',
/// which is why the answer can name the fact's index.
pub(super) fn check_depth(text: &[u8], limit: usize) -> Result<(), Problem> {
    // Nothing nests deeper than it has opening brackets: most bodies are done here.
    if memchr::memchr2_iter(b'{', b'[', text).nth(limit).is_none() {
        return Ok(());
    }
    let around = usize::from(text.trim_ascii_start().starts_with(b"["));
    let (mut depth, mut index, mut in_string, mut escaped) = (0usize, 0u64, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > limit + around {
                    return Err(too_deep(limit, index));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == around => index += 1,
            _ => {}
        }
    }
    Ok(())
}

/// A streamed body, a fact a line.
struct Lines<'a> {
    app: &'a App,
    to: Address,
    buffer: BytesMut,
    /// Lines that were read, blank ones too: the number of the line that is at fault is one more.
    read: u64,
    /// Facts that were handed on, and the groups that are not yet answered.
    sent: u64,
    /// The log's life that they went to.
    life: Option<Epoch>,
    ahead: VecDeque<Ahead<'a>>,
    receipt: Option<Receipt>,
    hold: Hold,
    /// A run whose producer is on the line does not age, whatever it says.
    _line: OnTheLine,
}

/// A group on its way to the store.
struct Ahead<'a> {
    /// The number of its first fact in the body, from 0.
    first: u64,
    /// The line of each of its facts.
    lines: Vec<u64>,
    pending: Pending<'a, AnyStore>,
}

impl<'a> Lines<'a> {
    async fn new(app: &'a App, to: Address, hold: Hold) -> Result<Self, Problem> {
        let line = app.logs.log(&to.log).await?.on_the_line();
        let (buffer, ahead) = (BytesMut::new(), VecDeque::new());
        Ok(Self { app, to, buffer, read: 0, sent: 0, life: None, ahead, receipt: None, hold, _line: line })
    }

    async fn take(mut self, mut body: Body) -> Result<Receipt, Problem> {
        let outcome = self.read_all(&mut body).await;
        let settled = self.settle(0).await;
        let accepted = self.receipt.as_ref().map_or(0, |receipt| receipt.accepted);
        let duplicates = self.receipt.as_ref().map_or(0, |receipt| receipt.duplicates);
        if let Err(problem) = outcome.and(settled) {
            discard(body).await;
            return Err(problem.with("accepted", accepted).with("duplicates", duplicates));
        }
        match self.receipt {
            Some(receipt) => Ok(receipt),
            // Nothing but blank lines: alive, with nothing to say.
            None => {
                let delivery = self.to.delivery(Vec::new().into(), false, 0);
                self.app.ingest.deliver(delivery).await.map_err(|error| told(error, &Place::Index))
            }
        }
    }

    async fn read_all(&mut self, body: &mut Body) -> Result<(), Problem> {
        let mut stopping = self.app.stopping.subscribe();
        let (patience, moment) = (self.app.limits.line_time_max, self.app.moment_in_drain());
        loop {
            let Self { hold, ahead, .. } = self;
            let frame = tokio::select! {
                biased;
                frame = tokio::time::timeout(patience, body.frame()) => frame.map_err(|_| silent(patience))?,
                // A body may last longer than the right to send it.
                problem = hold.over() => return Err(problem),
                // What has come is taken; its sender goes on elsewhere, and knows from where.
                () = stopped(&mut stopping, moment) => return Err(super::stopping()),
                // A body that says nothing for a while keeps no part of what may be under way.
                outcome = first(ahead) => {
                    self.absorb(outcome)?;
                    continue;
                }
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(cut_off)?.into_data() else { continue };
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

    /// Hands on every whole line that has come, group by group; at the body's end also what stands without a newline.
    async fn group(&mut self, at_end: bool) -> Result<(), Problem> {
        let end = match memchr::memrchr(b'\n', &self.buffer) {
            _ if at_end => self.buffer.len(),
            Some(newline) => newline + 1,
            None => return Ok(()),
        };
        let text = self.buffer.split_to(end).freeze();
        let each = envelope_bytes_with(&self.to.given);
        let mut from = 0;
        while from < text.len() {
            let (begin, mut bytes, mut places, mut at, mut bad) = (from, 0, Vec::new(), Vec::new(), None);
            while from < text.len() && places.len() < GROUP_FACTS_MAX && bytes < GROUP_BYTES_MAX {
                let newline = memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |n| from + n);
                match self.is_fact(&text[from..newline]) {
                    Ok(true) => {
                        places.push(from - begin..newline - begin);
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
            if !places.is_empty() {
                self.hand_on(Facts::of_text(text.slice(begin..from), places), at).await?;
            }
            if let Some(problem) = bad {
                return Err(problem);
            }
        }
        Ok(())
    }

    /// Hands on one group of facts, which stand in these lines.
    async fn hand_on(&mut self, facts: Facts, lines: Vec<u64>) -> Result<(), Problem> {
        let (app, first, count) = (self.app, self.sent, facts.len());
        let delivery = Delivery { life: self.life, ..self.to.delivery(facts, false, first) };
        app.disk.has_room_for(&delivery)?;
        self.keep_to_the_rate(count).await?;
        self.sent += count as u64;
        let admitted = {
            let mut admitting = pin!(app.ingest.admit(&delivery));
            match ready_now(admitting.as_mut()).await {
                Some(admitted) => admitted,
                None => {
                    self.settle(0).await?;
                    admitting.await
                }
            }
        };
        let submitting = async { app.ingest.submit(delivery, admitted?).await };
        let pending = submitting.await.map_err(|error| told(error, &Place::Index))?;
        self.life = pending.life().or(self.life);
        let refused = pending.is_refused();
        self.ahead.push_back(Ahead { first, lines, pending });
        self.settle(if refused { 0 } else { GROUPS_AHEAD_MAX }).await?;
        // What has come at once may be many groups, and others have their turn.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Reads no faster than the producer may publish.
    async fn keep_to_the_rate(&mut self, facts: usize) -> Result<(), Problem> {
        let Some(rates) = &self.app.rates else { return Ok(()) };
        while let Err(wait) = rates.take(self.to.publisher(), facts, Instant::now()) {
            // Whoever waits must not hold a part of what may be under way.
            self.settle(0).await?;
            tokio::select! {
                problem = self.hold.over() => return Err(problem),
                () = tokio::time::sleep(wait) => {}
            }
        }
        Ok(())
    }

    /// Whether a line is a fact, and not blank. Whether it is JSON is seen when its turn comes.
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

    /// Waits until no more than `ahead` groups are on their way, adding up what became of them.
    async fn settle(&mut self, ahead: usize) -> Result<(), Problem> {
        let mut outcome = Ok(());
        while self.ahead.len() > ahead {
            let became = first(&mut self.ahead).await;
            outcome = outcome.and(self.absorb(became));
        }
        outcome
    }

    /// Adds what became of the first group that is on its way.
    fn absorb(&mut self, became: Result<Receipt, IngestError>) -> Result<(), Problem> {
        let Some(Ahead { first: offset, lines, .. }) = self.ahead.pop_front() else { return Ok(()) };
        let (kept, outcome) = match became {
            Ok(receipt) => (Some(receipt), Ok(())),
            Err(error) => (error.kept().cloned(), Err(told(error, &Place::Line(&lines)))),
        };
        // A group counts its own facts; its sender counts those of the body.
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

/// What became of the first of these groups; never anything while there is none. Dropping the future loses nothing.
async fn first(ahead: &mut VecDeque<Ahead<'_>>) -> Result<Receipt, IngestError> {
    match ahead.front_mut() {
        Some(group) => group.pending.durable().await,
        None => std::future::pending().await,
    }
}

/// Reads on for a while, so that whoever still sends gets to read the answer instead of a broken connection.
pub(super) async fn discard(mut body: Body) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > DISCARD_BYTES_MAX {
                return;
            }
        }
    };
    // Late or never: the answer goes out all the same.
    let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
}

fn silent(patience: Duration) -> Problem {
    let detail = format!(
        "nothing came for {patience:?}, the limit for a streamed body; what came before is kept. Send a blank line now and then \
         to say that you are there, or raise --line-time-ms"
    );
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_silent", detail)
}

fn cut_off(error: axum::Error) -> Problem {
    Problem::bad_request("body_cut_off", format!("the body ended early: {error}; send it again"))
}

/// How facts of a body are numbered for its sender.
enum Place<'l> {
    Index,
    /// The line of each fact.
    Line(&'l [u64]),
}

fn told(error: IngestError, place: &Place<'_>) -> Problem {
    let detail = error.to_string();
    let placed = |index: u64| match place {
        Place::Index => ("index", index, "nothing of the body was kept"),
        Place::Line(lines) => {
            ("line", lines.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or(0), "what came before it is kept")
        }
    };
    let outside = |error: &Outside, detail: String| {
        let missing = if let Outside::Run(_) = error { "run" } else { "session" };
        Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", missing)
    };
    match error {
        IngestError::Outside { index, error, .. } => {
            let (member, number, kept) = placed(index);
            outside(&error, format!("{member} {number}: {error}; {kept}")).with(member, number)
        }
        IngestError::Foreign(error) => outside(&error, detail),
        IngestError::NotJson { index, error, .. } => match placed(index) {
            ("line", line, kept) => {
                let detail = format!("line {line} is not JSON: {error}; {kept}");
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_json", detail)
                    .with("line", line)
                    .with("expected", "one JSON object a line")
            }
            (_, index, _) => not_json(&format_args!("{error}, in fact {index}")),
        },
        IngestError::Fact { index, error, .. } => {
            let (member, number, kept) = placed(index);
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
        IngestError::Busy(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).retry_after(BUSY_RETRY_AFTER),
        IngestError::Erased => Problem::new(StatusCode::CONFLICT, "run_erased", detail),
        IngestError::EnvelopesTooLarge { bytes, limit } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "envelopes_too_large", detail).with("bytes", bytes).with("limit", limit)
        }
        IngestError::Panicked => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", detail),
        IngestError::Store(error) => error.into(),
    }
}

//! Publishing facts: one object, an array, or NDJSON lines, to a run's log or a session's own log.
//!
//! A JSON body is atomic. A streamed body (`application/x-ndjson`) is appended in groups as it arrives, a few groups
//! ahead of the store. It is answered once, when everything is durable. An error names the fact by `index` or `line`.
//!
//! This module only splits a body into facts. Parsing takes many times the body's memory, so it waits for the ingest's
//! admission.

mod lines;
mod problems;
pub mod publisher;

use crate::ingest::{Admitted, BeginOwner, Delivery, Facts, IngestError, Pending, Producer, Receipt, WriteScope};
use crate::log::LogId;
use crate::model::decided_by::person;
use crate::model::json::{string_end, without_mark};
use crate::model::{Ids, ProducerId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Principal};
use crate::serve::access::quota::TooFast;
use crate::serve::http::body::{BodyDeadline, body_too_large, check_depth, is_lines, read_body, too_deep};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use crate::serve::telemetry::trace::in_span;
use crate::source::{self, SOURCES, SourceKind};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Uri};
use lines::LineBody;
use problems::{FactNumbering, fact_too_large, ingest_problem, not_json, too_many_facts};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::time::Instant;

/// Maximum facts of one JSON body.
pub const BODY_FACTS_MAX: usize = 65_536;
/// `Retry-After` of an overloaded ingest, in seconds.
const BUSY_RETRY_AFTER_SECS: u64 = 1;

/// The headers with the numbering of a producer.
const PRODUCER_NAMES: [&str; 3] = ["producer-id", "producer-epoch", "producer-seq"];
static PRODUCER_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static(PRODUCER_NAMES[0]),
    HeaderName::from_static(PRODUCER_NAMES[1]),
    HeaderName::from_static(PRODUCER_NAMES[2]),
];

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
    let stored = match Destination::of(authorization, uri, headers) {
        Ok(_) if body.len() > app.limits.body_bytes_max => Err(body_too_large(app.limits.body_bytes_max)),
        Ok(to) => store_body(app, to, body).await,
        Err(problem) => Err(problem),
    };
    stored.inspect_err(|problem| app.meters.refused.add(problem.code))
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
    owner: BeginOwner,
    principal: Principal,
}

impl Destination {
    fn of(authorization: &Authorization, uri: &Uri, headers: &HeaderMap) -> Result<Self, Problem> {
        let log = match uri.path().starts_with("/v1/runs/") {
            true => LogId::Run(path_id("runId", uri)?),
            false => LogId::Session(path_id("sessionId", uri)?),
        };
        let query = Query::from_uri(uri);
        let mut values = [None; 3];
        for (value, (name, header)) in values.iter_mut().zip(PRODUCER_NAMES.iter().zip(&PRODUCER_HEADERS)) {
            // Unreadable headers must not all count as one producer.
            *value = headers.get(header).map(|value| value.to_str()).transpose().map_err(|_| {
                let detail = format!("{name} is not visible ASCII. Send visible ASCII only.");
                Problem::bad_request("bad_producer", detail).with("member", *name)
            })?;
        }
        let owner = authorization.requested_owner(&query)?;
        let to = Self::new(authorization, log, query.get("source"), query.ids()?, producer(PRODUCER_NAMES, values)?)?;
        Ok(to.with_owner(owner))
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
            owner: authorization.owner_of_new(),
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

    /// Makes a session that begins belong to this owner.
    #[must_use]
    pub fn with_owner(self, owner: BeginOwner) -> Self {
        Self { owner, ..self }
    }

    /// Counts facts against the rates of the publisher, and of the owner of the session that they name or begin.
    fn take_rate(&self, app: &App, facts: usize) -> Result<(), TooFast> {
        let owner = || {
            let known = self.default_ids.session.as_ref().and_then(|session| app.logs.sessions().owner_of(session));
            known.or_else(|| self.owner.owner.clone())
        };
        app.publish_limits.try_take(self.publisher(), owner, facts, Instant::now())
    }

    fn delivery(&self, facts: Facts, atomic: bool, sent: u64) -> Delivery {
        let producer = self.producer.clone().map(|producer| Producer { seq: producer.seq + sent, ..producer });
        let (given, write_scope, owner) = (self.default_ids.clone(), self.write_scope.clone(), self.owner.clone());
        let publisher = self.principal.grant().map(|grant| person(&grant.subject));
        Delivery { given, producer, atomic, write_scope, owner, publisher, ..Delivery::new(self.log.clone(), self.source, facts) }
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
        let delivery = prepare(app, &to, text.slice_ref(without_mark(&text)))?;
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
    to.take_rate(app, delivery.facts.len()).map_err(TooFast::to_problem)?;
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

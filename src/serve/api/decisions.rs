//! The decisions of a run or a session: what was asked, what was decided, and when.
//!
//! A decision is one request of an action and its end. The envelopes about it give the times and the sequences. The
//! fold gives what was decided, as the audience sees it.

use super::hydrate::no_such_run;
use super::sessions::no_such_session;
use crate::log::{Limit, LogId};
use crate::model::{Audience, Epoch, RunId, Sequence, SessionId};
use crate::projection::View;
use crate::serve::App;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id, quoted};
use crate::serve::http::response::{echo, no_store_json};
use axum::extract::State;
use axum::response::Response;
use http::Uri;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Logs of a session that one request examines.
const LOGS_PER_REQUEST: usize = 256;
/// Logs of a session that the decisions of all requests come from: the newest.
const LOGS_MAX: usize = 4096;
/// What one read of the store fetches.
const READ_LIMIT: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };
/// The controls that decide an action.
const DECIDING: [&str; 4] = ["approve", "reject", "answer", "edit"];

/// The place of a decision in an answer: the creation order of its log, and the sequence that decided.
type DecisionPlace = (u64, u64);

/// `GET /v1/runs/{run}/decisions`.
pub async fn of_run(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let run: RunId = path_id("runId", &uri)?;
    let log = LogId::Run(run.clone());
    if app.logs.log(&log).await?.tail().epoch.is_none() {
        return Err(no_such_run(&run));
    }
    answer(&app, &uri, vec![(0, log)], false).await
}

/// `GET /v1/sessions/{session}/decisions`.
pub async fn of_session(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let session: SessionId = path_id("sessionId", &uri)?;
    let (mut logs, _) = app.logs.sessions().logs_of(&session, LOGS_MAX).ok_or_else(|| no_such_session(&session))?;
    logs.sort_unstable_by_key(|(created, _)| *created);
    answer(&app, &uri, logs, true).await
}

/// With `may_lack`, an archived run that cannot be read is named instead of refused.
async fn answer(app: &App, uri: &Uri, logs: Vec<(u64, LogId)>, may_lack: bool) -> Result<Response, Problem> {
    let query = Query::from_uri(uri);
    let (limit, audience) = (query.page_size()?, query.audience()?);
    let after = query.get("cursor").map(parse_place).transpose()?.unwrap_or((0, 0));
    let (mut found, mut unreadable): (Vec<(DecisionPlace, Value)>, _) = (Vec::new(), Vec::new());
    let mut next = None;
    for (n, (created, log)) in logs.into_iter().filter(|(created, _)| *created >= after.0).enumerate() {
        if n == LOGS_PER_REQUEST {
            next = Some((created, 0));
            break;
        }
        let decisions = match of_log(app, &log, audience).await {
            Err(problem) if problem.is_of_archive() && may_lack => {
                unreadable.extend(log.run().cloned());
                continue;
            }
            decisions => decisions?,
        };
        found.extend(
            decisions.into_iter().map(|(sequence, one)| ((created, sequence.0), one)).filter(|(place, _)| *place > after),
        );
        if found.len() > limit {
            next = Some(found[limit - 1].0);
            found.truncate(limit);
            break;
        }
    }
    let decisions: Vec<Value> = found.into_iter().map(|(_, decision)| decision).collect();
    let next = next.map(|(created, sequence)| format!("{created}-{sequence}"));
    let mut answer = json!({ "decisions": decisions, "nextCursor": next });
    if !unreadable.is_empty() {
        answer["unreadable"] = json!(unreadable);
    }
    Ok(no_store_json(echo(&query, answer)))
}

fn parse_place(text: &str) -> Result<DecisionPlace, Problem> {
    let read = text.split_once('-').and_then(|(created, sequence)| Some((created.parse().ok()?, sequence.parse().ok()?)));
    read.ok_or_else(|| {
        let detail = format!("The query's cursor is {}. It must be a nextCursor of this list.", quoted(text));
        Problem::bad_request("bad_cursor", detail).with("member", "cursor")
    })
}

/// The decisions of a log that an audience sees, each with the sequence that decided, in their order.
async fn of_log(app: &App, log: &LogId, audience: Audience) -> Result<Vec<(Sequence, Value)>, Problem> {
    let tail = app.logs.log(log).await?.tail();
    let (Some(epoch), Some(view)) = (tail.epoch, app.feed.activities(log, audience, Some(tail.last)).await?) else {
        return Ok(Vec::new());
    };
    let opened = view.activities().iter().filter(|activity| &*activity.kind == "action").map(|action| action.opened);
    let Some(first) = opened.min() else { return Ok(Vec::new()) };
    let requests = read_requests(app, log, epoch, first, tail.last, audience).await?;
    let mut decided = Vec::new();
    for (at, request) in requests.all.iter().enumerate() {
        let Some(end) = request.decided() else { continue };
        // A later request of the same action has replaced the content.
        let earlier = match requests.newest.get(&*request.action) == Some(&at) {
            true => None,
            false => app.feed.activities(log, audience, Some(end.sequence)).await?,
        };
        let content = content_of(earlier.as_ref().unwrap_or(&view), &request.action);
        let mut decision = request.to_json(end, content);
        if let LogId::Run(run) = log {
            decision["runId"] = run.as_str().into();
        }
        decided.push((end.sequence, decision));
    }
    decided.sort_by_key(|(sequence, _)| *sequence);
    Ok(decided)
}

fn content_of<'v>(view: &'v View, action: &str) -> Option<&'v Map<String, Value>> {
    view.activities().iter().find(|activity| &*activity.kind == "action" && *activity.id == *action).map(|action| &action.content)
}

/// An envelope about a request.
#[derive(Clone, Copy)]
struct DecisionStep {
    sequence: Sequence,
    at: Option<jiff::Timestamp>,
}

/// One request of an action.
struct Request {
    action: Box<str>,
    asked: DecisionStep,
    /// The decision that stands: its step and its envelope.
    control: Option<(DecisionStep, Value)>,
    resolved: Option<(DecisionStep, Value)>,
    /// The approvals of an action that needs several: their controls, and who made them.
    approvals: Vec<(Value, Value)>,
}

impl Request {
    fn control_changed(&mut self, step: DecisionStep, event: Value) {
        let payload = &event["payload"];
        let is_known = |(_, known): &mut (DecisionStep, Value)| known["payload"]["controlId"] == payload["controlId"];
        let decides = event["control"].as_str().is_some_and(|control| DECIDING.contains(&control));
        let is_approval = payload["need"].is_u64();
        match payload["status"].as_str() {
            Some("submitted") if decides && is_approval => {
                self.approvals.push((payload["controlId"].clone(), payload["decidedBy"].clone()));
            }
            // There are enough, and the first stands for all.
            Some("released") if is_approval => self.control = Some((step, event)),
            Some("submitted") if decides && self.control.is_none() => self.control = Some((step, event)),
            Some("nacked" | "expired") if payload["requeued"] != true => {
                self.approvals.retain(|(control, _)| *control != payload["controlId"]);
                // An approval that was taken back leaves too few for a decision.
                self.control.take_if(|_| is_approval && payload["have"].as_u64() < payload["need"].as_u64());
                self.control.take_if(|known| is_known(known));
            }
            _ => {}
        }
    }

    /// The step that decided; `None` for a request without a decision.
    fn decided(&self) -> Option<DecisionStep> {
        self.control.as_ref().or(self.resolved.as_ref()).map(|(step, _)| *step)
    }

    fn to_json(&self, end: DecisionStep, content: Option<&Map<String, Value>>) -> Value {
        let member = |name: &str| content.and_then(|content| content.get(name)).cloned();
        let (control, resolved) = (self.control.as_ref(), self.resolved.as_ref());
        let of_control =
            |name: &str| control.and_then(|(_, event)| event.get(name).or_else(|| event["payload"].get(name))).cloned();
        let waited = Some(end.at).flatten().zip(self.asked.at).map(|(end, asked)| end.as_millisecond() - asked.as_millisecond());
        let calls: Vec<Value> = member("toolCallId").into_iter().collect();
        let decided_by = self.decided_by();
        let sequences = json!({
            "asked": self.asked.sequence,
            "shown": decided_by.as_ref().and_then(|by| by.get("seen")),
            "decided": end.sequence,
            "resolved": resolved.map(|(step, _)| step.sequence),
        });
        without_nulls(json!({
            "actionId": self.action,
            "controlId": of_control("controlId"),
            "control": of_control("control"),
            "outcome": resolved.and_then(|(_, event)| event["payload"].get("outcome")),
            "title": member("title"),
            "subject": member("subject").unwrap_or_else(|| json!({ "kind": "tool" })),
            "options": member("options"),
            "decidedBy": decided_by,
            "approvals": (!self.approvals.is_empty()).then(|| self.approvals.iter().map(|(_, by)| by).collect::<Vec<_>>()),
            "askedAt": self.asked.at.map(|at| format!("{at:.3}")),
            "decidedAt": end.at.map(|at| format!("{at:.3}")),
            "waitedMs": waited.map(|waited| waited.max(0)),
            "callIds": calls,
            "sequences": without_nulls(sequences),
        }))
    }

    /// Who decided, as the envelopes say. A runtime that resolved its action alone decided itself.
    fn decided_by(&self) -> Option<Value> {
        let stated = |event: &(DecisionStep, Value)| event.1["payload"].get("decidedBy").cloned();
        let by_runtime = |event: &(DecisionStep, Value)| {
            let at = event.0.at.map(|at| format!("{at:.3}"));
            (event.1["payload"]["synthetic"] != true).then(|| json!({ "via": "runtime", "at": at }))
        };
        let (control, resolved) = (self.control.as_ref(), self.resolved.as_ref());
        let of_events = control.and_then(stated).or_else(|| resolved.and_then(stated));
        of_events.or_else(|| resolved.filter(|_| control.is_none()).and_then(by_runtime))
    }
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}

/// The requests of a log's actions, in the order in which they were asked.
#[derive(Default)]
struct Requests {
    all: Vec<Request>,
    /// The newest request of each action, by index.
    newest: HashMap<Box<str>, usize>,
}

/// Reads the requests of a log's actions.
async fn read_requests(
    app: &App,
    log: &LogId,
    epoch: Epoch,
    first: Sequence,
    last: Sequence,
    audience: Audience,
) -> Result<Requests, Problem> {
    let (mut after, mut requests) = (Sequence(first.0.saturating_sub(1)), Requests::default());
    loop {
        let rows = app.feed.rows(log, epoch, after, READ_LIMIT).await?;
        for (row, text) in rows.iter().filter_map(|row| Some((row, row.view(audience)?))) {
            if let Some(event) = event_of_action(text) {
                requests.apply(row.sequence(), event);
            }
        }
        match rows.last() {
            Some(row) if row.sequence() < last => after = row.sequence(),
            _ => return Ok(requests),
        }
    }
}

/// An envelope that asks, decides or resolves an action.
fn event_of_action(envelope: &[u8]) -> Option<Value> {
    let has = |text: &[u8]| memchr::memmem::find(envelope, text).is_some();
    if !has(b"\"action.re") && !has(b"\"control.changed") {
        return None;
    }
    let event: Value = serde_json::from_slice(envelope).ok()?;
    let kinds = ["action.required", "action.resolved", "control.changed"];
    (event["actionId"].is_string() && kinds.iter().any(|kind| event["type"] == *kind)).then_some(event)
}

impl Requests {
    fn apply(&mut self, sequence: Sequence, event: Value) {
        let step = DecisionStep { sequence, at: event["receivedAt"].as_str().and_then(|at| at.parse().ok()) };
        let action = event["actionId"].as_str().unwrap_or_default();
        let open = self.newest.get(action).map(|at| &mut self.all[*at]).filter(|request| request.resolved.is_none());
        match (event["type"].as_str(), open) {
            (Some("action.required"), None) => {
                self.newest.insert(action.into(), self.all.len());
                self.all.push(Request {
                    action: action.into(),
                    asked: step,
                    control: None,
                    resolved: None,
                    approvals: Vec::new(),
                });
            }
            // A decision is about what was asked last.
            (Some("action.required"), Some(request)) => (request.asked.sequence, request.control) = (sequence, None),
            (Some("action.resolved"), Some(request)) => request.resolved = Some((step, event)),
            (Some("control.changed"), Some(request)) => request.control_changed(step, event),
            _ => {}
        }
    }
}

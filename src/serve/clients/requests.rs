//! Requests of existing clients as controls, and waiting for their outcome.
//!
//! A message for an agent becomes a `send` control of its thread's session. A decision becomes a control of the run
//! that asked. Each control's id is derived from its content, so a repeated request submits one control, even after a
//! server restart. This module performs nothing itself. Code that waits for an outcome follows the logs
//! ([`wait_until_written`], [`wait_until_resumed`]).

use super::threads::{AskedAction, Thread};
use super::{apart, body};
use crate::control::aside::{ASIDE_ANSWER, Aside};
use crate::control::rules::{ControlRequest, QUESTIONS, approval_of};
use crate::control::{CONTROL_BYTES_MAX, ControlError, REJECTED, Requester};
use crate::encode::frames::ActivityView;
use crate::feed::Frames;
use crate::feed::reader::Reader;
use crate::feed::{Filter, ReadRequest, StartAt};
use crate::ingest::{BlobMeta, WriterView};
use crate::log::commit::Tail;
use crate::log::control::ControlState;
use crate::log::{Limit, LogId};
use crate::model::version::split_version;
use crate::model::{ActionId, ActionOutcome, AgentId, Audience, BlobId, Control, ControlId, Cursor, RunId, Sequence, SessionId};
use crate::projection::envelope_view::BLOB_PATH;
use crate::serve::App;
use crate::serve::access::requested_run::request_control_id;
use crate::serve::api::controls::control_problem;
use crate::serve::http::problem::Problem;
use crate::source::ledger::Status;
use data_encoding::HEXLOWER;
use futures_util::future::select_all;
use http::StatusCode;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Maximum size of a `send` value, in bytes: it includes a message's attachments.
pub const SEND_BYTES_MAX: usize = 16 * CONTROL_BYTES_MAX;

/// Derives an id from its parts: equal parts give an equal id, different parts a different one.
#[must_use]
pub fn hashed_id(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    HEXLOWER.encode(&hash.finalize()[..16])
}

fn control_id(parts: &[&str]) -> ControlId {
    ControlId::new(&hashed_id(parts)).expect("a short name is an id")
}

/// The id of the `send` that requests a run. It contains the run's id unless that is too long.
#[must_use]
pub fn send_id(thread: &SessionId, run: &RunId) -> ControlId {
    request_control_id(run).unwrap_or_else(|| control_id(&["send", thread.as_str(), run.as_str()]))
}

/// Requests a run of an agent in a thread, once. `value` is the message to the agent.
///
/// # Errors
/// Why the request was refused.
pub async fn send(
    app: &App,
    thread: &SessionId,
    run: &RunId,
    agent: &AgentId,
    value: Value,
    by: &Requester,
) -> Result<ControlId, Problem> {
    app.disk.check_space()?;
    let measured = move || (value.to_string().len(), value);
    let (bytes, value) = apart(app, measured).await;
    if bytes > SEND_BYTES_MAX {
        let remedy = "Store attachments elsewhere, and send a reference.";
        let detail = format!("The new messages are {bytes} bytes. The limit is {SEND_BYTES_MAX}. {remedy}");
        let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "control_too_large", detail);
        return Err(problem.with("limit", SEND_BYTES_MAX));
    }
    let id = send_id(thread, run);
    let targets = BTreeMap::from([("agentId".to_owned(), agent.to_string())]);
    // These clients know no other way on than a new message.
    let wish = ControlRequest { supersede: true, ..ControlRequest::new(id.clone(), Control::Send, targets, Some(value)) };
    match app.controls.submit(&app.logs, &app.ingest, &LogId::Session(thread.clone()), &wish, by).await {
        Ok(_) => Ok(id),
        // It was requested before. By now fewer messages are new, so its value differs.
        Err(ControlError::Conflict(_)) => match asks_something_else(app, thread, &id, wish.value.as_ref()).await? {
            true => Err(run_exists(run)),
            false => Ok(id),
        },
        Err(refusal) => Err(control_problem(refusal)),
    }
}

/// A new question under the id of an older run.
#[must_use]
pub fn run_exists(run: &RunId) -> Problem {
    let detail = format!("Run {run} has another question already. The agent did not get the message. Use a new run id.");
    Problem::new(StatusCode::CONFLICT, "run_exists", detail).with("member", "runId")
}

/// Whether a request that is not claimed yet has another last message than the known one of its id.
async fn asks_something_else(app: &App, thread: &SessionId, id: &ControlId, value: Option<&Value>) -> Result<bool, Problem> {
    let known = |view: &WriterView<'_>| view.controls.get(id).and_then(|record| record.value.clone());
    let known = app.ingest.read(&LogId::Session(thread.clone()), known).await?;
    let last = |value: Option<&Value>| Some(value?.get("messages")?.as_array()?.last()?.get("id")?.clone());
    Ok(matches!((last(known.as_ref()), last(value)), (Some(known), Some(new)) if known != new))
}

/// A client's answer to an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub action: ActionId,
    /// The version of the question that the client was shown, if its id names one.
    pub version: Option<u32>,
    /// `false`: the client rejects the action.
    pub is_answered: bool,
    /// Whether the value is the output of a tool call at the client, and not the user's own words.
    pub is_output: bool,
    pub value: Option<Value>,
}

impl Decision {
    /// The control and value of this answer, for an action of this kind.
    fn control(&self, kind: Option<&str>) -> (Control, Option<Value>) {
        let value = self.value.clone();
        let approved = value.as_ref().and_then(approval_of);
        let is_one_of = |kinds: &[&str]| kind.is_some_and(|kind| kinds.contains(&kind));
        let control = match approved {
            // A rejection must not carry a value that approves.
            _ if !self.is_answered => return (Control::Reject, value.filter(|_| approved != Some(true))),
            _ if is_one_of(QUESTIONS) => return (Control::Answer, value.or(Some(Value::Null))),
            Some(false) => Control::Reject,
            // Only some kinds define what approval means. For the others, the runtime interprets the value.
            None if value.is_some() && (self.is_output || !is_one_of(PERMISSIONS)) => Control::Answer,
            None if value.as_ref().is_some_and(chooses) => Control::Answer,
            Some(true) | None => Control::Approve,
        };
        (control, value)
    }
}

/// Returns whether a value names a choice, in the runtime's own terms.
fn chooses(value: &Value) -> bool {
    ["approved", "decision", "outcome", "optionId"].iter().any(|member| value.get(member).is_some())
}

/// The action kinds that ask for permission.
const PERMISSIONS: &[&str] =
    &["tool_approval", "plan_decision", "teammate_plan_decision", "permission_grant", "delegated_permission", "artifact_review"];

/// A submitted decision.
#[derive(Debug, Clone)]
pub struct SubmittedDecision {
    pub run: RunId,
    pub action: ActionId,
    pub control: ControlId,
}

/// Submits a decision to the run that asked, once. `request` identifies the client's request.
///
/// An action that is no longer pending is left alone. An answer equal to the first one joins it. An action that the agent
/// gave up takes none.
///
/// # Errors
/// Why the decision was refused.
pub async fn decide(
    app: &App,
    asked: &AskedAction,
    decision: &Decision,
    request: &[&str],
    by: &Requester,
) -> Result<SubmittedDecision, Problem> {
    // Two people may send the same request, and each of them decides.
    let sub = by.decider.sub.as_deref().unwrap_or_default();
    let parts = [&["decide", asked.run.as_str(), decision.action.as_str(), sub], request].concat();
    let id = control_id(&parts);
    let submitted = SubmittedDecision { run: asked.run.clone(), action: decision.action.clone(), control: id.clone() };
    if asked.ended == Some(ActionOutcome::Expired) {
        return Err(control_problem(ControlError::ActionExpired { action: decision.action.to_string() }));
    }
    if asked.ended == Some(ActionOutcome::Superseded) {
        return Err(control_problem(ControlError::ActionNotPending { action: decision.action.to_string() }));
    }
    if !asked.is_pending {
        return Ok(submitted);
    }
    app.disk.check_space()?;
    let (control, value) = decision.control(asked.kind.as_deref());
    let targets = BTreeMap::from([("actionId".to_owned(), decision.action.to_string())]);
    let wish = ControlRequest { version: decision.version, ..ControlRequest::new(id, control, targets, value) };
    match app.controls.submit(&app.logs, &app.ingest, &LogId::Run(asked.run.clone()), &wish, by).await {
        // The action was resolved meanwhile, or this request was submitted before.
        Err(ControlError::ActionNotPending { .. }) => Ok(submitted),
        // An approval may join the first of the same person.
        Ok(known) => Ok(SubmittedDecision { control: known.id, ..submitted }),
        // The same answer was given before, perhaps by another client.
        Err(ControlError::ActionDecided { first, is_equal: true, .. }) => Ok(SubmittedDecision { control: first, ..submitted }),
        Err(ControlError::Conflict(first)) => {
            let action = decision.action.to_string();
            Err(control_problem(ControlError::ActionDecided { action, first, is_equal: false }))
        }
        Err(refusal) => Err(control_problem(refusal)),
    }
}

/// The outcome of a stop request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopOutcome {
    /// The run's owner received an interrupt.
    Requested(RunId, ControlId),
    /// The requested run had not started and was withdrawn.
    Withdrawn(RunId),
    /// No run is active.
    Nothing,
}

impl StopOutcome {
    /// The answer on the wire.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Requested(run, control) => json!({ "stopped": true, "runId": run, "controlId": control }),
            Self::Withdrawn(run) => json!({ "stopped": true, "runId": run }),
            Self::Nothing => json!({ "stopped": false, "message": "no run of this thread is active" }),
        }
    }
}

/// Asks the owner of a thread's run to stop it.
///
/// The run is `named`, if it is one of the thread's runs and has not ended, else the newest active run, else the
/// waiting run. A requested run that no worker has claimed is withdrawn.
///
/// # Errors
/// Why the request was refused.
pub async fn stop(app: &App, thread: &Thread, named: Option<&RunId>, by: &Requester) -> Result<StopOutcome, Problem> {
    let audience = by.audience;
    let named = named.and_then(|run| thread.find_run(run));
    let named = named.filter(|part| part.frozen.is_none() && !part.state(audience).status.is_end());
    let part = named.or_else(|| thread.active(audience));
    if part.is_none() {
        let log = LogId::Session(thread.id.clone());
        for run in thread.requested.iter().rev() {
            let id = send_id(&thread.id, run);
            if app.controls.withdraw(&app.logs, &app.ingest, &log, &id).await? {
                return Ok(StopOutcome::Withdrawn(run.clone()));
            }
        }
    }
    let Some(part) = part.or_else(|| thread.waiting(audience)) else { return Ok(StopOutcome::Nothing) };
    app.disk.check_space()?;
    let id = control_id(&["interrupt", part.run.as_str(), &part.state(audience).attempt.to_string()]);
    let wish = ControlRequest::new(id, Control::Interrupt, BTreeMap::new(), None);
    match app.controls.submit(&app.logs, &app.ingest, &LogId::Run(part.run.clone()), &wish, by).await {
        Ok(asked) => Ok(StopOutcome::Requested(part.run.clone(), asked.id)),
        // The run has ended meanwhile.
        Err(ControlError::RunEnded { .. }) => Ok(StopOutcome::Nothing),
        Err(refusal) => Err(control_problem(refusal)),
    }
}

/// The messages of a conversation that the log does not know by id.
///
/// A client sends the whole conversation every time. Messages before the first known one belong to runs too old to
/// load, and are dropped, except system and developer messages.
#[must_use]
pub fn new_messages(messages: &[Value], known: &BTreeSet<String>) -> Vec<Value> {
    let is_known = |message: &Value| message.get("id").and_then(Value::as_str).is_some_and(|id| known.contains(id));
    let first = messages.iter().position(is_known).unwrap_or(0);
    let instructs = |message: &Value| matches!(message.get("role").and_then(Value::as_str), Some("system" | "developer"));
    let placed = messages.iter().enumerate();
    placed
        .filter(|(n, message)| !is_known(message) && (*n >= first || instructs(message)))
        .map(|(_, message)| message.clone())
        .collect()
}

/// The ids of known messages: those sent to the client and those of the log.
#[must_use]
pub fn known_ids(shown: &[ActivityView], sent: &[Value]) -> BTreeSet<String> {
    let of_log = shown.iter().filter(|shown| &*shown.kind == "message").map(|shown| shown.id.to_string());
    of_log.chain(sent.iter().filter_map(|message| message.get("id")?.as_str().map(str::to_owned))).collect()
}

/// Builds the value of a `send`: the rest of the client's body, overridden by `sent`, and the new messages.
#[must_use]
pub fn value_of(mut body: Map<String, Value>, sent: Value, new_messages: Vec<Value>) -> Value {
    body.retain(|_, value| !value.is_null());
    if let Value::Object(sent) = sent {
        body.extend(sent);
    }
    body.insert("messages".into(), new_messages.into());
    body.into()
}

/// Follows some logs, existing or not, and reports changes.
struct LogWatcher(Vec<Reader>);

impl LogWatcher {
    /// Follows changes from now on.
    async fn of(app: &App, logs: impl IntoIterator<Item = LogId>) -> Result<Self, Problem> {
        let filter = Filter::all(Audience::Internal);
        let request = ReadRequest { filter, frames: Frames::Events, replay: false };
        let mut readers = Vec::new();
        for log in logs {
            readers.push(app.feed.read(&log, request.clone(), StartAt::Now).await?);
        }
        Ok(Self(readers))
    }

    /// Waits for the next change.
    async fn changed(&mut self) -> Result<(), Problem> {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let (changed, which, _) = select_all(self.0.iter_mut().map(|reader| Box::pin(reader.next()))).await;
        if changed?.is_none() {
            // That run has ended; the caller reads its final state next.
            drop(self.0.swap_remove(which));
        }
        Ok(())
    }
}

async fn tail(app: &App, run: &RunId) -> Result<Tail, Problem> {
    Ok(app.logs.log(&LogId::Run(run.clone())).await?.tail())
}

/// Waits until a requested run is written.
///
/// # Errors
/// Why it will not be written: its agent refuses, or no worker claimed it in time.
pub async fn wait_until_written(app: &Arc<App>, thread: SessionId, run: RunId) -> Result<RunId, Problem> {
    let (control, asked) = (send_id(&thread, &run), LogId::Session(thread));
    let mut watcher = LogWatcher::of(app, [LogId::Run(run.clone()), asked.clone()]).await?;
    let is_aside = |view: &WriterView<'_>| view.controls.get(&control).is_some_and(|of| Aside::of(of.value.as_ref()).is_some());
    if app.ingest.read(&asked, is_aside).await? {
        let detail =
            format!("Run {run} may never exist: only the client that asked gets the answer to a request without a message.");
        return Err(Problem::new(StatusCode::CONFLICT, "control_refused", detail).with("controlId", control.as_str()));
    }
    loop {
        if tail(app, &run).await?.epoch.is_some() {
            return Ok(run);
        }
        check_control(app, &asked, &control).await?;
        watcher.changed().await?;
    }
}

/// Waits until a control of a session is claimed by its owner, or its run is written.
///
/// # Errors
/// Why neither will happen: its agent refuses, or no worker claimed it in time.
pub async fn wait_until_claimed(app: &Arc<App>, session: SessionId, run: RunId, control: ControlId) -> Result<(), Problem> {
    let log = LogId::Session(session);
    let mut watcher = LogWatcher::of(app, [LogId::Run(run.clone()), log.clone()]).await?;
    let is_claimed = |view: &WriterView<'_>| {
        view.controls.get(&control).is_none_or(|known| known.state == ControlState::Acked || known.attempt > 0)
    };
    loop {
        check_control(app, &log, &control).await?;
        if tail(app, &run).await?.epoch.is_some() || app.ingest.read(&log, is_claimed).await? {
            return Ok(());
        }
        watcher.changed().await?;
    }
}

/// How the agent answered a request beside the conversation.
pub enum AsideOutcome {
    /// It said something to the readers of the thread, so its answer is this run.
    Run(RunId),
    /// The `result` or the `error` of the request.
    Answer(Map<String, Value>),
}

/// Waits for the answer to a request beside the conversation, which the log has after `from` unless the request is repeated.
///
/// # Errors
/// Why there is none: its agent refuses, or no worker claimed the request in time.
pub async fn wait_for_aside(app: &Arc<App>, thread: SessionId, run: RunId, from: Sequence) -> Result<AsideOutcome, Problem> {
    let (control, log) = (send_id(&thread, &run), LogId::Session(thread.clone()));
    let mut watcher = LogWatcher::of(app, [LogId::Run(run.clone()), log.clone()]).await?;
    loop {
        if tail(app, &run).await?.epoch.is_some() {
            return Ok(AsideOutcome::Run(run));
        }
        check_control(app, &log, &control).await?;
        let state = |view: &WriterView<'_>| view.controls.get(&control).map(|record| record.state);
        if app.ingest.read(&log, state).await?.is_none_or(|state| state == ControlState::Acked) {
            // A run is written before its request is acknowledged.
            if tail(app, &run).await?.epoch.is_some() {
                return Ok(AsideOutcome::Run(run));
            }
            let answer = match aside_answer(app, &thread, &control, from).await? {
                None => aside_answer(app, &thread, &control, Sequence::NONE).await?,
                found => found,
            };
            return Ok(AsideOutcome::Answer(answer.unwrap_or_default()));
        }
        watcher.changed().await?;
    }
}

/// Finds the answer to a request beside the conversation in its session's log.
async fn aside_answer(
    app: &App,
    thread: &SessionId,
    control: &ControlId,
    from: Sequence,
) -> Result<Option<Map<String, Value>>, Problem> {
    let log = LogId::Session(thread.clone());
    let tail = app.logs.log(&log).await?.tail();
    let Some(epoch) = tail.epoch else { return Ok(None) };
    let mut after = from;
    while after < tail.last {
        let rows = app.feed.rows(&log, epoch, after, Limit { rows: 256, bytes: 1024 * 1024 }).await?;
        for text in rows.iter().filter_map(|row| row.view(Audience::Internal)) {
            if memchr::memmem::find(text, ASIDE_ANSWER.as_bytes()).is_none() {
                continue;
            }
            let Ok(mut event) = serde_json::from_slice::<Value>(text) else { continue };
            let is_answer = event["payload"]["kind"] == ASIDE_ANSWER && event["payload"]["controlId"] == control.as_str();
            if is_answer {
                fill_bodies(app, thread, &mut event).await?;
                let Value::Object(answer) = event["payload"].take() else { continue };
                return Ok(Some(answer));
            }
        }
        let Some(last) = rows.last() else { break };
        after = last.sequence();
    }
    Ok(None)
}

/// Puts the bodies of a session's fact into their places.
async fn fill_bodies(app: &App, session: &SessionId, event: &mut Value) -> Result<(), Problem> {
    let links = event["refs"].as_array().cloned().unwrap_or_default();
    for link in links {
        let id = link["href"].as_str().and_then(|href| BlobId::new(href.strip_prefix(BLOB_PATH)?).ok());
        let (Some(id), Some(member)) = (id, link["member"].as_str()) else { continue };
        let Some(blob) = app.logs.blob(&id).await? else { continue };
        // A producer may name any body in a fact.
        let Some(meta) = BlobMeta::read(&blob).ok().filter(|meta| meta.session.as_ref() == Some(session)) else { continue };
        let whole = match &*meta.media_type {
            "application/json" => serde_json::from_slice(&blob.body).ok(),
            _ => Some(String::from_utf8_lossy(&blob.body).into()),
        };
        if let (Some(whole), Some(place)) = (whole, event.pointer_mut(member)) {
            *place = whole;
        }
    }
    Ok(())
}

/// Waits until the run that asked for these decisions resumes, and returns the run to follow.
///
/// The runtime may instead start the run `named` by the client, which then is that run.
///
/// # Errors
/// Why neither will happen.
pub async fn wait_until_resumed(
    app: &Arc<App>,
    decisions: Vec<SubmittedDecision>,
    named: RunId,
    audience: Audience,
) -> Result<RunId, Problem> {
    let last = decisions.last().expect("at least one decision was submitted").run.clone();
    let mut runs: Vec<_> = decisions.iter().map(|decision| decision.run.clone()).collect();
    runs.push(named.clone());
    runs.sort_unstable();
    runs.dedup();
    let mut watcher = LogWatcher::of(app, runs.into_iter().map(LogId::Run)).await?;
    loop {
        if !decisions.iter().any(|decision| decision.run == named) && tail(app, &named).await?.epoch.is_some() {
            return Ok(named);
        }
        let mut waits = false;
        for decision in &decisions {
            let tail = tail(app, &decision.run).await?;
            if tail.summary.run_for(audience).pending.contains(decision.action.as_str()) {
                waits = true;
                check_control(app, &LogId::Run(decision.run.clone()), &decision.control).await?;
            } else {
                check_deadline(app, decision).await?;
            }
        }
        let tail = tail(app, &last).await?;
        let state = tail.summary.run_for(audience);
        // A run that reports its own waiting resumes when it reports so.
        if !waits && (state.status != Status::Waiting || !state.pending.is_empty()) {
            return Ok(last);
        }
        watcher.changed().await?;
    }
}

/// Fails if the deadline of a decided action passed before its agent took the decision.
async fn check_deadline(app: &App, decision: &SubmittedDecision) -> Result<(), Problem> {
    let has_expired = |view: &WriterView<'_>| view.has_expired(&decision.action);
    match app.ingest.read(&LogId::Run(decision.run.clone()), has_expired).await? {
        true => Err(control_problem(ControlError::ActionExpired { action: decision.action.to_string() })),
        false => Ok(()),
    }
}

/// Fails if a control can no longer succeed.
///
/// # Errors
/// Why it failed.
async fn check_control(app: &App, log: &LogId, control: &ControlId) -> Result<(), Problem> {
    let state = |view: &WriterView<'_>| view.controls.get(control).map(|record| (record.state, record.reason.clone()));
    let Some((state, reason)) = app.ingest.read(log, state).await? else { return Ok(()) };
    let why = reason.as_deref().unwrap_or("no reason given");
    let problem = match state {
        ControlState::Open | ControlState::Acked => return Ok(()),
        // Another person rejected, and the agent takes that decision.
        ControlState::Expired if reason.as_deref() == Some(REJECTED) => return Ok(()),
        ControlState::Nacked => {
            Problem::new(StatusCode::CONFLICT, "control_refused", format!("The agent refused the request: {why}."))
        }
        ControlState::Expired => {
            let detail = format!("No worker of the agent took the request ({why}). Check that one is running, and retry.");
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "control_expired", detail)
        }
    };
    Err(problem.with("controlId", control.as_str()).with("reason", why))
}

/// The controls of a run that the server remembers, open or closed.
///
/// # Errors
/// The store's failure.
pub async fn submitted_controls(app: &App, run: &RunId) -> Result<HashSet<ControlId>, Problem> {
    let known = |view: &WriterView<'_>| view.controls.keys().cloned().collect();
    Ok(app.ingest.read(&LogId::Run(run.clone()), known).await?)
}

/// The cursor where the run last began to wait for any of these actions.
///
/// The client has received everything up to there. `None`: the run never waited for them.
///
/// # Errors
/// The store's failure.
pub async fn paused_at(app: &App, run: &RunId, actions: &[ActionId]) -> Result<Option<Cursor>, Problem> {
    let log = LogId::Run(run.clone());
    let tail = tail(app, run).await?;
    let Some(epoch) = tail.epoch else { return Ok(None) };
    let view = app.feed.activities(&log, Audience::Internal, Some(tail.last)).await?;
    let is_ours = |id: &str| actions.iter().any(|action| action.as_str() == id);
    let activities = view.iter().flat_map(crate::projection::View::activities);
    let opened =
        activities.filter(|activity| &*activity.kind == "action" && is_ours(&activity.id)).map(|activity| activity.opened);
    let Some(first) = opened.min() else { return Ok(None) };
    let (mut after, mut pending, mut since, mut found) = (Sequence(first.0 - 1), BTreeSet::new(), first, None);
    loop {
        let rows = app.feed.rows(&log, epoch, after, Limit { rows: 256, bytes: 1024 * 1024 }).await?;
        for (row, text) in rows.iter().filter_map(|row| Some((row, row.view(Audience::Internal)?))) {
            match asked_or_answered(text) {
                Some((true, action)) => {
                    if pending.is_empty() {
                        since = row.sequence();
                    }
                    found = is_ours(&action).then_some(since).or(found);
                    pending.insert(action);
                }
                Some((false, action)) => drop(pending.remove(&action)),
                None => {}
            }
        }
        match rows.last() {
            Some(last) if last.sequence() < tail.last => after = last.sequence(),
            _ => return Ok(found.map(|sequence| Cursor::at(epoch, sequence))),
        }
    }
}

/// The action that an envelope asks (`true`) or resolves (`false`).
fn asked_or_answered(envelope: &[u8]) -> Option<(bool, String)> {
    memchr::memmem::find(envelope, b"\"action.re")?;
    let event: Value = serde_json::from_slice(envelope).ok()?;
    let is_asked = match event["type"].as_str()? {
        "action.required" => true,
        "action.resolved" => false,
        _ => return None,
    };
    Some((is_asked, event["actionId"].as_str()?.to_owned()))
}

/// Reads the answers of a client's `resume`.
///
/// # Errors
/// 422 for an invalid entry.
pub fn decisions(resume: &[Value]) -> Result<Vec<Decision>, Problem> {
    resume
        .iter()
        .map(|entry| {
            let Value::Object(entry) = entry else {
                return Err(body::bad("resume", "a list with another type in it", "a list of objects"));
            };
            let is_answered = match body::text(entry, "status")? {
                Some("resolved") => true,
                Some("cancelled") => false,
                other => return Err(body::bad("status", other.unwrap_or("missing"), "resolved or cancelled")),
            };
            let value = entry.get("payload").filter(|payload| !payload.is_null()).cloned();
            let id = body::text(entry, "interruptId")?.ok_or_else(|| body::bad("interruptId", "missing", "an id"))?;
            let (action, version) = split_version(id);
            let action = ActionId::new(action);
            let action = action.map_err(|error| body::bad("interruptId", &format!("not a valid id ({error})"), "an id"))?;
            Ok(Decision { action, version: Some(version), is_answered, is_output: false, value })
        })
        .collect()
}

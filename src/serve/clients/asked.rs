//! What clients want done, as controls; and what becomes of it.
//!
//! A message for an agent is a `send` to its thread's session, a decision is a control of the run that asked, and both are asked
//! for under ids that are made of what is asked: who says the same twice asks once, also after a restart of this server. Nothing
//! is done because of it here. Whoever waits for what comes of it follows the logs ([`begun`], [`decided`]).

use super::body;
use super::threads::{Asked, Thread};
use crate::control::rules::{QUESTIONS, Wish, approves};
use crate::control::{CONTROL_BYTES_MAX, Refusal};
use crate::encode::frames::Shown;
use crate::feed::reader::{Frames, Reader};
use crate::feed::{From, Selection, Wanted};
use crate::ingest::{Amendment, Standing};
use crate::log::control::ControlState;
use crate::log::run::Tail;
use crate::log::{AnyStore, Limit, LogId};
use crate::model::{ActionId, AgentId, Audience, Control, ControlId, Cursor, RunId, Sequence, SessionId};
use crate::serve::App;
use crate::serve::controls::refused;
use crate::serve::problem::Problem;
use crate::source::ledger::Status;
use data_encoding::HEXLOWER;
use futures_util::future::select_all;
use http::StatusCode;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The largest value of a `send`, in bytes: what a message has attached is in it.
pub const SEND_BYTES_MAX: usize = 16 * CONTROL_BYTES_MAX;

/// A name that is made of what it names: the same for the same parts, and for no others.
#[must_use]
pub fn name_of(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    HEXLOWER.encode(&hash.finalize()[..16])
}

fn control_id(parts: &[&str]) -> ControlId {
    ControlId::new(&name_of(parts)).expect("a short name is an id")
}

/// The id of the `send` that asks for a run in a thread. It says for which, unless that is too long a name.
#[must_use]
pub fn send_id(thread: &SessionId, run: &RunId) -> ControlId {
    ControlId::new(&format!("run:{run}")).unwrap_or_else(|_| control_id(&["send", thread.as_str(), run.as_str()]))
}

/// The thread in which a run was asked for that nobody has written or refused yet.
#[must_use]
pub fn thread_of(app: &App, run: &RunId) -> Option<SessionId> {
    let id = ControlId::new(&format!("run:{run}")).ok()?;
    match app.logs.queues().log_of(&id)? {
        LogId::Session(session) => Some(session),
        LogId::Run(_) => None,
    }
}

/// Asks an agent for a run in a thread, once. `value` says what for.
///
/// # Errors
/// Why it was not asked.
pub async fn send(
    app: &App,
    thread: &SessionId,
    run: &RunId,
    agent: &AgentId,
    value: Value,
    audience: Audience,
) -> Result<ControlId, Problem> {
    app.disk.has_room()?;
    let bytes = value.to_string().len();
    if bytes > SEND_BYTES_MAX {
        let remedy = "store what is attached elsewhere, and send a reference";
        let detail = format!("what is new to the agent is {bytes} bytes, the limit is {SEND_BYTES_MAX}; {remedy}");
        let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "control_too_large", detail);
        return Err(problem.with("limit", SEND_BYTES_MAX));
    }
    let id = send_id(thread, run);
    let targets = BTreeMap::from([("agentId".to_owned(), agent.to_string())]);
    let wish = Wish { id: Some(id.clone()), control: Control::Send, targets, value: Some(value), until: None };
    match app.controls.submit(&app.logs, &app.ingest, &LogId::Session(thread.clone()), &wish, audience).await {
        // It was asked for before; what is new to the agent is less by now.
        Ok(_) | Err(Refusal::Conflict(_)) => Ok(id),
        Err(refusal) => Err(refused(refusal)),
    }
}

/// How a client answers an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub action: ActionId,
    /// Whether it is to be answered at all; else it is turned down.
    pub is_answered: bool,
    /// Whether the value is what a call gave at the client, and no word of the user's.
    pub is_output: bool,
    pub value: Option<Value>,
}

impl Decision {
    /// What it is for an action of this kind, and what it says.
    fn control(&self, kind: Option<&str>) -> (Control, Option<Value>) {
        let value = self.value.clone();
        let approved = value.as_ref().and_then(approves);
        let is_one_of = |kinds: &[&str]| kind.is_some_and(|kind| kinds.contains(&kind));
        let control = match approved {
            // A value that approves what its sender turned down would contradict it.
            _ if !self.is_answered => return (Control::Reject, value.filter(|_| approved != Some(true))),
            _ if is_one_of(QUESTIONS) => return (Control::Answer, value.or(Some(Value::Null))),
            Some(false) => Control::Reject,
            // What an approval of it would say is known of some kinds only; what was chosen, its runtime knows.
            None if value.is_some() && (self.is_output || !is_one_of(PERMISSIONS)) => Control::Answer,
            None if value.as_ref().is_some_and(chooses) => Control::Answer,
            Some(true) | None => Control::Approve,
        };
        (control, value)
    }
}

/// Whether a value says which answer was chosen, in words that are not ours to read.
fn chooses(value: &Value) -> bool {
    ["approved", "decision", "outcome", "optionId"].iter().any(|member| value.get(member).is_some())
}

/// The action kinds that ask whether something may be.
const PERMISSIONS: &[&str] =
    &["tool_approval", "plan_decision", "teammate_plan_decision", "permission_grant", "delegated_permission", "artifact_review"];

/// A decision on its way.
#[derive(Debug, Clone)]
pub struct Submitted {
    pub run: RunId,
    pub action: ActionId,
    pub control: ControlId,
}

/// Hands a decision on to whoever asked, once: `by` says which request of the client brings it. What waits for nobody any more is
/// left alone.
///
/// # Errors
/// Why it was not asked.
pub async fn decide(
    app: &App,
    asked: &Asked,
    decision: &Decision,
    by: &[&str],
    audience: Audience,
) -> Result<Submitted, Problem> {
    let parts = [&["decide", asked.run.as_str(), decision.action.as_str()], by].concat();
    let id = control_id(&parts);
    let submitted = Submitted { run: asked.run.clone(), action: decision.action.clone(), control: id.clone() };
    if !asked.is_pending {
        return Ok(submitted);
    }
    app.disk.has_room()?;
    let (control, value) = decision.control(asked.kind.as_deref());
    let targets = BTreeMap::from([("actionId".to_owned(), decision.action.to_string())]);
    let wish = Wish { id: Some(id), control, targets, value, until: None };
    match app.controls.submit(&app.logs, &app.ingest, &LogId::Run(asked.run.clone()), &wish, audience).await {
        // Somebody was first, or this is what was asked before.
        Ok(_) | Err(Refusal::ActionNotPending { .. } | Refusal::Conflict(_)) => Ok(submitted),
        Err(refusal) => Err(refused(refusal)),
    }
}

/// What became of a request to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// The run's owner was asked to.
    Asked(RunId, ControlId),
    /// The run had not begun, and will not.
    Withdrawn(RunId),
    /// Nothing goes on.
    Nothing,
}

impl Stopped {
    /// As it is told.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Asked(run, control) => json!({ "stopped": true, "runId": run, "controlId": control }),
            Self::Withdrawn(run) => json!({ "stopped": true, "runId": run }),
            Self::Nothing => json!({ "stopped": false, "message": "nothing goes on in this thread" }),
        }
    }
}

/// Asks whoever owns what goes on in a thread to stop it: `named`, if that is one of its runs and goes on, else the newest that
/// does, else the one that waits. What nobody has taken yet is withdrawn.
///
/// # Errors
/// Why it was not asked.
pub async fn stop(app: &App, thread: &Thread, named: Option<&RunId>, audience: Audience) -> Result<Stopped, Problem> {
    let named = named.and_then(|run| thread.part(run)).filter(|part| !part.stands(audience).status.is_end());
    let part = named.or_else(|| thread.active(audience));
    if part.is_none() {
        let log = LogId::Session(thread.id.clone());
        for run in thread.sent.iter().rev() {
            let id = send_id(&thread.id, run);
            if app.controls.withdraw(&app.logs, &app.ingest, &log, &id).await? {
                return Ok(Stopped::Withdrawn(run.clone()));
            }
        }
    }
    let Some(part) = part.or_else(|| thread.waiting(audience)) else { return Ok(Stopped::Nothing) };
    app.disk.has_room()?;
    let id = control_id(&["interrupt", part.run.as_str(), &part.stands(audience).attempt.to_string()]);
    let wish = Wish { id: Some(id), control: Control::Interrupt, targets: BTreeMap::new(), value: None, until: None };
    match app.controls.submit(&app.logs, &app.ingest, &LogId::Run(part.run.clone()), &wish, audience).await {
        Ok(id) => Ok(Stopped::Asked(part.run.clone(), id)),
        // It has ended meanwhile.
        Err(Refusal::RunEnded { .. }) => Ok(Stopped::Nothing),
        Err(refusal) => Err(refused(refusal)),
    }
}

/// The messages that are new to the thread: of those that a client sends, the whole conversation every time, the ones that the
/// log does not know by their ids. What stands before the first that it knows is of runs that are too long ago to be looked at,
/// unless it tells the agent what it is.
#[must_use]
pub fn news(messages: &[Value], known: &BTreeSet<String>) -> Vec<Value> {
    let is_known = |message: &Value| message.get("id").and_then(Value::as_str).is_some_and(|id| known.contains(id));
    let first = messages.iter().position(is_known).unwrap_or(0);
    let instructs = |message: &Value| matches!(message.get("role").and_then(Value::as_str), Some("system" | "developer"));
    let placed = messages.iter().enumerate();
    placed
        .filter(|(n, message)| !is_known(message) && (*n >= first || instructs(message)))
        .map(|(_, message)| message.clone())
        .collect()
}

/// The ids by which messages are known: those that a client was told, and those that the log has.
#[must_use]
pub fn known_ids(shown: &[Shown], told: &[Value]) -> BTreeSet<String> {
    let of_log = shown.iter().filter(|shown| &*shown.kind == "message").map(|shown| shown.id.to_string());
    of_log.chain(told.iter().filter_map(|message| message.get("id")?.as_str().map(str::to_owned))).collect()
}

/// A value of a `send`: what the client's body says beside what is told here, by its own names.
#[must_use]
pub fn value_of(mut body: Map<String, Value>, told: Value) -> Value {
    body.retain(|_, value| !value.is_null());
    if let Value::Object(told) = told {
        body.extend(told);
    }
    body.into()
}

/// Follows some logs: who waits hears that something has come to any of them, also to one that nobody has written yet.
struct Watch(Vec<Reader<AnyStore>>);

impl Watch {
    /// Of what comes from now on.
    async fn of(app: &App, logs: impl IntoIterator<Item = LogId>) -> Result<Self, Problem> {
        let selection = Selection { audience: Audience::Internal, surfaces: Vec::new(), types: Vec::new(), agent: None };
        let wanted = Wanted { selection, frames: Frames::Events, replay: false };
        let mut readers = Vec::new();
        for log in logs {
            readers.push(app.feed.read(&log, wanted.clone(), From::Now).await?);
        }
        Ok(Self(readers))
    }

    /// Waits for something.
    async fn moved(&mut self) -> Result<(), Problem> {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let (came, which, _) = select_all(self.0.iter_mut().map(|reader| Box::pin(reader.next()))).await;
        if came?.is_none() {
            // That run is over; what it has come to is seen at the next look.
            drop(self.0.swap_remove(which));
        }
        Ok(())
    }
}

async fn tail(app: &App, run: &RunId) -> Result<Tail, Problem> {
    Ok(app.logs.log(&LogId::Run(run.clone())).await?.tail())
}

/// Waits until a run that was asked for is written.
///
/// # Errors
/// Why it will not be: its agent refuses, or nobody took it in time.
pub async fn begun(app: &Arc<App>, thread: SessionId, run: RunId) -> Result<RunId, Problem> {
    let (control, asked) = (send_id(&thread, &run), LogId::Session(thread));
    let mut watch = Watch::of(app, [LogId::Run(run.clone()), asked.clone()]).await?;
    loop {
        if tail(app, &run).await?.epoch.is_some() {
            return Ok(run);
        }
        fate(app, &asked, &control).await?;
        watch.moved().await?;
    }
}

/// Waits until the run goes on that asked for these decisions; or the one that its runtime begins in its place, under the name
/// that the client gave. Which of them it is.
///
/// # Errors
/// Why it will not.
pub async fn decided(app: &Arc<App>, decisions: Vec<Submitted>, named: RunId, audience: Audience) -> Result<RunId, Problem> {
    let last = decisions.last().expect("somebody decided something").run.clone();
    let mut runs: Vec<_> = decisions.iter().map(|decision| decision.run.clone()).collect();
    runs.push(named.clone());
    runs.sort_unstable();
    runs.dedup();
    let mut watch = Watch::of(app, runs.into_iter().map(LogId::Run)).await?;
    loop {
        if !decisions.iter().any(|decision| decision.run == named) && tail(app, &named).await?.epoch.is_some() {
            return Ok(named);
        }
        let mut waits = false;
        for decision in &decisions {
            let tail = tail(app, &decision.run).await?;
            if tail.summary.run_for(audience).pending.contains(decision.action.as_str()) {
                waits = true;
                fate(app, &LogId::Run(decision.run.clone()), &decision.control).await?;
            }
        }
        let tail = tail(app, &last).await?;
        let stands = tail.summary.run_for(audience);
        // One that says itself that it waits goes on when it says so.
        if !waits && (stands.status != Status::Waiting || !stands.pending.is_empty()) {
            return Ok(last);
        }
        watch.moved().await?;
    }
}

/// Whether a control may still come to something.
///
/// # Errors
/// Why it will not.
async fn fate(app: &App, log: &LogId, control: &ControlId) -> Result<(), Problem> {
    let stands = |standing: &Standing<'_>| {
        let record = standing.controls.get(control);
        (record.map(|record| (record.state, record.reason.clone())), Amendment::default())
    };
    let Some((state, reason)) = app.ingest.amend(log, stands).await? else { return Ok(()) };
    let why = reason.as_deref().unwrap_or("no reason given");
    let problem = match state {
        ControlState::Open | ControlState::Acked => return Ok(()),
        ControlState::Nacked => {
            Problem::new(StatusCode::CONFLICT, "control_refused", format!("the agent refused what it was asked: {why}"))
        }
        ControlState::Expired => {
            let detail = format!("nobody took what the agent was asked ({why}); is there a worker of this agent?");
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "control_expired", detail)
        }
    };
    Err(problem.with("controlId", control.as_str()).with("reason", why))
}

/// Whether a decision was handed on, however long ago; of one that waits for nobody any more this tells whether it was this
/// request that was first.
///
/// # Errors
/// The store's.
pub async fn was_decided(app: &App, decision: &Submitted) -> Result<bool, Problem> {
    let is_known = |standing: &Standing<'_>| (standing.controls.contains_key(&decision.control), Amendment::default());
    Ok(app.ingest.amend(&LogId::Run(decision.run.clone()), is_known).await?)
}

/// Where a run began to wait the last time that any of these was among what it waited for: what its client was told went up to
/// there. `None` where they never were.
///
/// # Errors
/// The store's.
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

/// The action that an envelope asks for (`true`) or resolves.
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

/// The answers that a client's `resume` has.
///
/// # Errors
/// 422 for what is none.
pub fn decisions(resume: &[Value]) -> Result<Vec<Decision>, Problem> {
    resume
        .iter()
        .map(|entry| {
            let Value::Object(entry) = entry else {
                return Err(body::bad("resume", "a list of something else", "a list of objects"));
            };
            let is_answered = match body::text(entry, "status")? {
                Some("resolved") => true,
                Some("cancelled") => false,
                other => return Err(body::bad("status", other.unwrap_or("missing"), "resolved or cancelled")),
            };
            let value = entry.get("payload").filter(|payload| !payload.is_null()).cloned();
            Ok(Decision { action: body::id(entry, "interruptId")?, is_answered, is_output: false, value })
        })
        .collect()
}

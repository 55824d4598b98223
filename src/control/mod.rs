//! Controls: what somebody wants done, on its way to whoever owns the fact that it would change.
//!
//! ```text
//!   submitted ─▶ queued ─▶ claimed ─▶ acked
//!                  ▲          ├─────▶ nacked       its owner refuses it
//!                  └──────────┤                    its lease runs out, or its owner gives it back
//!                  └──────────┴─────▶ expired      nobody took it in time, or there is nothing left to decide
//! ```
//!
//! The server records a control and hands it to the runtime; no fact changes because of it. Each step is durable before it is
//! answered: a state entry beside the log and an envelope in it, in one commit (`log::control`). The lines and the leases are in
//! memory (`log::queues`), and are rebuilt from the logs' summaries.
//!
//! What somebody typed is in no envelope. It is kept, guarded, until the control is closed. Where the guard had to take a secret
//! out, the secret itself stays in this process's memory alone until then: whoever claims the control gets it whole, or, after a
//! restart, without the secret and with `redacted`.

pub mod rules;

use crate::guard::{redact_text, redact_value};
use crate::ingest::{Amendment, Ingest, Standing, World};
use crate::log::control::{Change, ControlRecord, ControlState, OPEN_CONTROLS_MAX};
use crate::log::queues::{Queues, Taken};
use crate::log::run::Logs;
use crate::log::{LogId, Store, StoreError};
use crate::model::{AgentId, Audience, Control, ControlId, Ids, RunId, SessionId};
use futures_util::future::join_all;
use parking_lot::Mutex;
use rules::{Bad, CREDENTIAL, TTL, TTL_MAX, Until, Wish};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Who takes what nobody is named for.
pub const DEFAULT_AGENT: &str = "default";

/// The body of a request for a control, in bytes.
pub const CONTROL_BYTES_MAX: usize = 256 * 1024;

/// How often a control is handed over; when the last one comes to nothing, it expires.
pub const ATTEMPTS_MAX: u32 = 10;

/// Secrets that are held for those who claim their controls, in bytes of their values. Beyond it a value is handed over as it was
/// stored, guarded.
pub const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a secret is held whose control is in no line, in microseconds.
const HELD_UNSEEN_MICROS: u64 = 60_000_000;

/// Answers to leases that are remembered, so that one that is sent again is told the same.
const ANSWERED_MAX: usize = 1024;

/// What is kept of a reason, in characters.
const REASON_CHARS_MAX: usize = 1000;

/// Why a control, or what is said of one, is not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    #[error("{}", .0.detail)]
    Bad(Bad),
    #[error("no run {0} has been written; there is nobody who could take a control of it")]
    NoSuchRun(RunId),
    #[error("no fact of session {0} has been written; send, queue, delegate or assign may begin it")]
    NoSuchSession(SessionId),
    #[error("action {action} is not pending here; look at the run again")]
    ActionNotPending { action: String },
    #[error("the run is {status}, and {control} is for one that goes on; retry it, or send to its session")]
    RunEnded { status: &'static str, control: String },
    #[error("control {0} was asked for with another body; take another controlId")]
    Conflict(ControlId),
    #[error("{OPEN_CONTROLS_MAX} controls of this log wait for their owner, the limit; come back when it has taken some")]
    TooMany,
    #[error("the token gives no right to the agent that control {0} is for: it does not name it")]
    NotYours(ControlId),
    #[error("control {0} is not held under this lease: it ran out, was answered, or the server was started anew; claim again")]
    LeaseLost(ControlId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What somebody who claims wants.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// Controls at once: at least one.
    pub max: usize,
    /// How long they are nobody else's.
    pub lease: Duration,
}

/// A control as it is handed over.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Handed {
    pub control_id: ControlId,
    /// What its answer has to name.
    pub lease: Box<str>,
    pub lease_expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub control: Control,
    /// What it is about, by the members' names.
    #[serde(flatten)]
    pub targets: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Whether something secret is missing in the value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// 1 the first time.
    pub attempt: u32,
    pub created_at: String,
    pub expires_at: String,
}

/// What the owner says of a control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is taken.
    Ack,
    /// It is not; or not now, and somebody is to have it again.
    Nack { reason: Option<String>, requeue: bool },
}

/// The controls of one server.
pub struct Controls {
    world: World,
    held: Mutex<Held>,
    /// Leases that were answered, the oldest first.
    answered: Mutex<VecDeque<Answered>>,
}

/// A lease that was answered.
struct Answered {
    lease: Box<str>,
    of: ControlId,
    agent: AgentId,
    answer: Answer,
    status: &'static str,
}

/// Values with secrets in them, by their controls' places.
#[derive(Default)]
struct Held {
    values: HashMap<u64, (Value, usize)>,
    bytes: usize,
}

impl Held {
    fn put(&mut self, number: u64, value: Value) {
        let bytes = value.to_string().len();
        if self.bytes + bytes <= HELD_BYTES_MAX {
            self.bytes += bytes;
            self.values.insert(number, (value, bytes));
        }
    }

    fn retain(&mut self, is_open: impl Fn(u64) -> bool) {
        self.values.retain(|number, _| is_open(*number));
        self.bytes = self.values.values().map(|(_, bytes)| bytes).sum();
    }
}

/// Controls that were taken out of a line and are not handed over yet: whoever goes away leaves them there.
struct Taking<'q> {
    queues: &'q Queues,
    leases: Vec<Box<str>>,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        for lease in &self.leases {
            self.queues.release(lease);
        }
    }
}

/// A lease whose answer is on its way.
struct Holding<'q> {
    queues: &'q Queues,
    lease: Box<str>,
    until: Option<Instant>,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        if let Some(until) = self.until {
            self.queues.resume(&self.lease, until);
        }
    }
}

fn told(moment: i64) -> String {
    jiff::Timestamp::from_millisecond(moment).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

impl Controls {
    /// Nothing held, nothing answered.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self { world, held: Mutex::default(), answered: Mutex::default() }
    }

    /// Records a control, and puts it in the line of whoever takes it. It is durable when this is answered. `audience` is who
    /// asks: what it cannot see is not there for it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn submit<S: Store>(
        &self,
        logs: &Logs<S>,
        ingest: &Ingest<S>,
        log: &LogId,
        wish: &Wish,
        audience: Audience,
    ) -> Result<ControlId, Refusal> {
        let now = (self.world.now)();
        let id = wish.id.clone().unwrap_or_else(|| self.made_id(now));
        let is_known = match log {
            LogId::Run(_) => true,
            LogId::Session(session) => logs.sessions().place_of(session).is_some() || begins_session(&wish.control),
        };
        let decide = |standing: &Standing<'_>| {
            let asked = self.known(standing, &id, wish).unwrap_or_else(|| {
                if !is_known {
                    return Err(no_such_log(log));
                }
                let mut record = record(standing, log, &id, wish, audience, now)?;
                record.number = logs.queues().number(u64::try_from(now.as_microsecond()).unwrap_or(0));
                Ok(Some(record))
            });
            match asked {
                Ok(Some(record)) => {
                    // Before anybody can claim it.
                    if let Some(value) = wish.value.as_ref().filter(|_| record.redacted) {
                        self.held.lock().put(record.number, value.clone());
                    }
                    let drafts = vec![record.changed(Change::Submitted, matches!(log, LogId::Run(_)))];
                    (Ok(()), Amendment { drafts, controls: vec![record] })
                }
                Ok(None) => (Ok(()), Amendment::default()),
                Err(refusal) => (Err(refusal), Amendment::default()),
            }
        };
        ingest.amend(log, decide).await??;
        Ok(id)
    }

    /// What a control with this id that is there already comes to for this request; `None` when there is none.
    fn known(&self, standing: &Standing<'_>, id: &ControlId, wish: &Wish) -> Option<Result<Option<ControlRecord>, Refusal>> {
        let known = standing.controls.get(id)?;
        let is_same = match self.held.lock().values.get(&known.number) {
            Some((value, _)) if wish.value.as_ref() != Some(value) => false,
            _ => known.print == wish.print(guarded(wish, is_credential(standing, &known.ids())).0.as_ref()),
        };
        // Of a closed answer it is not known any more what it answered.
        let is_same = is_same || known.state != ControlState::Open && known.print == wish.print(guarded(wish, true).0.as_ref());
        Some(if is_same { Ok(None) } else { Err(Refusal::Conflict(id.clone())) })
    }

    fn made_id(&self, now: jiff::Timestamp) -> ControlId {
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let random = (self.world.random)().to_be_bytes();
        let random: &[u8; 10] = random[6..].try_into().expect("ten bytes");
        let id = uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid();
        ControlId::new(&id.to_string()).expect("a UUID is an id")
    }

    /// Hands over what is in the agent's line, the oldest first; waits for something to come, no longer than `until`.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn claim<S: Store>(
        &self,
        logs: &Logs<S>,
        ingest: &Ingest<S>,
        agent: &AgentId,
        claim: Claim,
        until: Option<Instant>,
    ) -> Result<Vec<Handed>, StoreError> {
        let queues = logs.queues();
        let mut came = queues.watch(agent);
        loop {
            came.mark_unchanged();
            let lease = || Uuid::from_u128((self.world.random)()).simple().to_string().into();
            let taken = queues.take(agent, claim.max.max(1), Instant::now() + claim.lease, lease);
            if taken.is_empty() {
                let more = async {
                    // It fails only when nobody can tell any more, and the line is borrowed.
                    let _ = came.changed().await;
                };
                match until {
                    None => more.await,
                    Some(until) if tokio::time::timeout_at(until, more).await.is_err() => return Ok(Vec::new()),
                    Some(_) => {}
                }
                continue;
            }
            let mut taking = Taking { queues, leases: taken.iter().map(|taken| taken.lease.clone()).collect() };
            let mut handed = Vec::new();
            for (taken, over) in
                taken.iter().zip(join_all(taken.iter().map(|taken| self.hand_over(ingest, taken, claim.lease))).await)
            {
                match over {
                    Ok(over) => handed.extend(over),
                    Err(error) if error.is_of_one_log() => logs.set_aside(&taken.log, &error),
                    Err(error) => return Err(error),
                }
            }
            taking.leases.retain(|lease| !handed.iter().any(|handed| handed.lease == *lease));
            drop(taking);
            if !handed.is_empty() {
                return Ok(handed);
            }
        }
    }

    /// Notes that somebody has it; `None` for one that there is no sense in handing over any more.
    async fn hand_over<S: Store>(
        &self,
        ingest: &Ingest<S>,
        taken: &Taken,
        lease: Duration,
    ) -> Result<Option<Handed>, StoreError> {
        let now = (self.world.now)();
        let is_run = matches!(taken.log, LogId::Run(_));
        let decide = |standing: &Standing<'_>| {
            let nothing = (None, Amendment::default());
            let Some(record) = standing.controls.get(&taken.id).filter(|record| is_at(record, taken.number)) else {
                return nothing;
            };
            if let Some(reason) = over(record, standing, now) {
                return (None, expired(record, reason, is_run));
            }
            let mut record = record.clone();
            record.attempt += 1;
            let handed = self.handed(&record, taken, now, lease);
            let drafts = vec![record.changed(Change::Claimed, is_run)];
            (Some(handed), Amendment { drafts, controls: vec![record] })
        };
        ingest.amend(&taken.log, decide).await
    }

    fn handed(&self, record: &ControlRecord, taken: &Taken, now: jiff::Timestamp, lease: Duration) -> Handed {
        let (run_id, session_id) = match &taken.log {
            LogId::Run(run) => (Some(run.clone()), None),
            LogId::Session(session) => (None, Some(session.clone())),
        };
        let whole = self.held.lock().values.get(&record.number).map(|(value, _)| value.clone());
        let mut targets = record.targets.clone();
        targets.insert("agentId".into(), record.agent.to_string());
        Handed {
            control_id: record.id.clone(),
            lease: taken.lease.clone(),
            lease_expires_at: told(now.as_millisecond().saturating_add(i64::try_from(lease.as_millis()).unwrap_or(0))),
            run_id,
            session_id,
            control: record.control.clone(),
            targets,
            redacted: record.redacted && whole.is_none(),
            value: whole.or_else(|| record.value.clone()),
            attempt: record.attempt,
            created_at: told(record.made_at),
            expires_at: told(record.expires_at),
        }
    }

    /// Takes the owner's answer; what the control then is. A lease alone makes no owner: whoever answers `may` speak for the agent.
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`], [`Refusal::NotYours`], and the store's failure.
    pub async fn answer<S: Store>(
        &self,
        logs: &Logs<S>,
        ingest: &Ingest<S>,
        id: &ControlId,
        lease: &str,
        answer: Answer,
        may: impl Fn(&AgentId) -> bool,
    ) -> Result<&'static str, Refusal> {
        let lost = || Refusal::LeaseLost(id.clone());
        let is_theirs = |agent: &AgentId| if may(agent) { Ok(()) } else { Err(Refusal::NotYours(id.clone())) };
        let Some((taken, until)) = logs.queues().hold(lease, id, Instant::now()) else {
            let answered = self.answered.lock();
            let known = answered.iter().find(|known| *known.lease == *lease && known.of == *id).ok_or_else(lost)?;
            is_theirs(&known.agent)?;
            return if known.answer == answer { Ok(known.status) } else { Err(lost()) };
        };
        // Undone when it is dropped.
        let mut holding = Holding { queues: logs.queues(), lease: taken.lease.clone(), until: Some(until) };
        is_theirs(&taken.agent)?;
        let is_run = matches!(taken.log, LogId::Run(_));
        let decide = |standing: &Standing<'_>| {
            let known = standing.controls.get(id).filter(|record| is_at(record, taken.number));
            let Some(record) = known.cloned() else { return (None, Amendment::default()) };
            let (status, change, record) = match &answer {
                Answer::Ack => ("acked", Change::Acked, record.closed(ControlState::Acked, None)),
                Answer::Nack { reason, requeue } => {
                    let reason = reason.as_deref().map(|reason| redact_text(reason).chars().take(REASON_CHARS_MAX).collect());
                    if *requeue && record.attempt < ATTEMPTS_MAX {
                        ("queued", Change::Requeued, ControlRecord { reason, ..record })
                    } else {
                        ("nacked", Change::Nacked, record.closed(ControlState::Nacked, reason.as_deref()))
                    }
                }
            };
            (Some(status), Amendment { drafts: vec![record.changed(change, is_run)], controls: vec![record] })
        };
        let status = ingest.amend(&taken.log, decide).await?.ok_or_else(lost)?;
        holding.until = None;
        match status {
            "queued" => logs.queues().release(lease),
            _ => self.held.lock().retain(|number| number != taken.number),
        }
        let mut answered = self.answered.lock();
        if answered.len() == ANSWERED_MAX {
            answered.pop_front();
        }
        answered.push_back(Answered { lease: lease.into(), of: id.clone(), agent: taken.agent, answer, status });
        Ok(status)
    }

    /// Closes a control that nobody has taken: whoever asked for it does not want it any more. `false` for one that somebody has,
    /// or that is over.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn withdraw<S: Store>(
        &self,
        logs: &Logs<S>,
        ingest: &Ingest<S>,
        log: &LogId,
        id: &ControlId,
    ) -> Result<bool, StoreError> {
        let is_run = matches!(log, LogId::Run(_));
        let decide = |standing: &Standing<'_>| {
            let known = standing.controls.get(id).filter(|of| of.state == ControlState::Open);
            match known.filter(|of| !logs.queues().is_taken(of.number)) {
                Some(record) => (true, expired(record, "withdrawn", is_run)),
                None => (false, Amendment::default()),
            }
        };
        ingest.amend(log, decide).await
    }

    /// Puts back what was taken for too long, and closes what nobody needs to take any more; how many those are. `now` and
    /// `wall` are the same moment, by the clock that only goes forward and by the one on the wall.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn round<S: Store>(
        &self,
        logs: &Logs<S>,
        ingest: &Ingest<S>,
        now: Instant,
        wall: jiff::Timestamp,
    ) -> Result<usize, StoreError> {
        let queues = logs.queues();
        let mut closed = 0;
        for (log, id) in queues.due(now, wall.as_millisecond(), ATTEMPTS_MAX) {
            let decide = |standing: &Standing<'_>| {
                let known = standing.controls.get(&id).filter(|of| of.state == ControlState::Open && !queues.is_taken(of.number));
                match known.and_then(|record| Some((record, over(record, standing, wall)?))) {
                    Some((record, reason)) => (1, expired(record, reason, matches!(log, LogId::Run(_)))),
                    None => (0, Amendment::default()),
                }
            };
            match ingest.amend(&log, decide).await {
                Ok(more) => closed += more,
                Err(error) if error.is_of_one_log() => logs.set_aside(&log, &error),
                Err(error) => return Err(error),
            }
        }
        let mut held = self.held.lock();
        if !held.values.is_empty() {
            // A place is a time: one that is new may be on its way to the store.
            let settled = u64::try_from(wall.as_microsecond()).unwrap_or(0).saturating_sub(HELD_UNSEEN_MICROS);
            held.retain(|number| number > settled || queues.is_open(number));
        }
        Ok(closed)
    }
}

/// Whether it is open, and the one that stands at this place: an id may be used again once it is forgotten.
fn is_at(record: &ControlRecord, number: u64) -> bool {
    record.state == ControlState::Open && record.number == number
}

/// Why an open control is over, if it is.
fn over(record: &ControlRecord, standing: &Standing<'_>, now: jiff::Timestamp) -> Option<&'static str> {
    record.open().pointless(&standing.summary.run).or_else(|| match record {
        _ if record.expires_at <= now.as_millisecond() => Some("not_taken_in_time"),
        _ if record.attempt >= ATTEMPTS_MAX => Some("never_answered"),
        _ => None,
    })
}

fn expired(record: &ControlRecord, reason: &str, is_run: bool) -> Amendment {
    let record = record.clone().closed(ControlState::Expired, Some(reason));
    Amendment { drafts: vec![record.changed(Change::Expired, is_run)], controls: vec![record] }
}

/// Whether a session may begin with it.
const fn begins_session(control: &Control) -> bool {
    matches!(control, Control::Send | Control::Queue | Control::Delegate | Control::Assign)
}

fn no_such_log(log: &LogId) -> Refusal {
    match log {
        LogId::Run(run) => Refusal::NoSuchRun(run.clone()),
        LogId::Session(session) => Refusal::NoSuchSession(session.clone()),
    }
}

/// Whether what is typed for this action is a secret, whatever it looks like.
fn is_credential(standing: &Standing<'_>, ids: &Ids) -> bool {
    let asked = standing.summary.asking.iter().find(|asked| Some(&asked.action) == ids.action.as_ref());
    asked.is_some_and(|asked| asked.kind.as_deref() == Some(CREDENTIAL))
}

/// The value as it may be stored, and whether something was taken out of it.
fn guarded(wish: &Wish, is_secret: bool) -> (Option<Value>, bool) {
    let Some(mut value) = wish.value.clone() else { return (None, false) };
    let was_redacted = if is_secret {
        // Under such a name every text goes.
        let mut under = json!({ "secret": value });
        let was_redacted = redact_value(&mut under);
        value = under["secret"].take();
        was_redacted
    } else {
        redact_value(&mut value)
    };
    (Some(value), was_redacted)
}

/// The record of what is asked, if the log can take it as it stands.
fn record(
    standing: &Standing<'_>,
    log: &LogId,
    id: &ControlId,
    wish: &Wish,
    audience: Audience,
    now: jiff::Timestamp,
) -> Result<ControlRecord, Refusal> {
    let is_run = matches!(log, LogId::Run(_));
    if is_run && !standing.written {
        return Err(no_such_log(log));
    }
    let summary = standing.summary;
    let run = summary.run_for(audience);
    let mut record = ControlRecord {
        id: id.clone(),
        control: wish.control.clone(),
        targets: wish.targets.clone(),
        agent: AgentId::new(DEFAULT_AGENT).expect("a short name is an id"),
        audience: Audience::User,
        number: 0,
        of_attempt: (is_run && wish.is_of_attempt()).then_some(summary.run.attempt),
        stops_run: false,
        made_at: now.as_millisecond(),
        expires_at: 0,
        attempt: 0,
        state: ControlState::Open,
        reason: None,
        value: None,
        redacted: false,
        print: String::new(),
    };
    let ids = record.ids();
    let mut asked = None;
    if let Some(action) = &ids.action {
        if !(run.pending.contains(action.as_str()) && summary.run.pending.contains(action.as_str())) {
            return Err(Refusal::ActionNotPending { action: action.to_string() });
        }
        asked = summary.asking.iter().find(|asked| asked.action == *action);
        wish.fits_action(asked).map_err(Refusal::Bad)?;
    }
    if let Some(call) = &ids.tool_call
        && is_run
        && !standing.call(call).is_some_and(|start| audience.admits(start))
    {
        let detail = format!("no call {call} was made in this run; name one of its calls, or none");
        return Err(Refusal::Bad(Bad { member: "toolCallId", detail, expected: "a call of this run".into() }));
    }
    if record.of_attempt.is_some() && run.status.is_end() {
        return Err(Refusal::RunEnded { status: run.status.as_str(), control: wish.control.to_string() });
    }
    if summary.controls.len() >= OPEN_CONTROLS_MAX {
        return Err(Refusal::TooMany);
    }
    // An approval that was delegated goes to the teammate that asked, and says whose it is.
    let asker = asked.and_then(|asked| asked.agent.as_ref());
    record.agent = match (&ids.agent, asker, &summary.agent) {
        (Some(agent), ..) | (None, Some(agent), _) | (None, None, Some(agent)) => agent.clone(),
        (None, None, None) => record.agent,
    };
    if let (None, Some(asker)) = (&ids.agent, asker) {
        record.targets.insert("agentId".into(), asker.to_string());
    }
    record.audience = standing.audience_about(&record.ids());
    let of_whole = ids.agent.as_ref().is_none_or(|agent| !standing.is_teammate(agent));
    if is_run && wish.asks_for_an_end() && of_whole {
        record.stops_run = true;
        record.of_attempt.get_or_insert(summary.run.attempt);
        if run.status.is_end() {
            return Err(Refusal::RunEnded { status: run.status.as_str(), control: wish.control.to_string() });
        }
    }
    let millis = |wait: Duration| now.as_millisecond().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
    let by_action = asked.and_then(|asked| asked.expires_at).filter(|at| *at > now.as_millisecond());
    record.expires_at = match wish.until {
        Some(Until::At(at)) => at.as_millisecond(),
        Some(Until::For(wait)) => millis(wait),
        None => by_action.unwrap_or_else(|| millis(TTL)).min(millis(TTL_MAX)),
    };
    (record.value, record.redacted) = guarded(wish, is_credential(standing, &ids));
    record.print = wish.print(record.value.as_ref());
    Ok(record)
}

/// A control as a list shows it.
#[must_use]
pub fn shown(record: &ControlRecord, queues: &Queues) -> Value {
    let status = match record.state {
        ControlState::Open if queues.is_taken(record.number) => "claimed",
        ControlState::Open => "queued",
        ControlState::Acked => "acked",
        ControlState::Nacked => "nacked",
        ControlState::Expired => "expired",
    };
    let mut shown = Map::new();
    shown.insert("controlId".into(), record.id.as_str().into());
    shown.insert("control".into(), record.control.as_str().into());
    shown.insert("status".into(), status.into());
    shown.extend(record.targets.iter().map(|(member, id)| (member.clone(), id.as_str().into())));
    shown.insert("attempt".into(), record.attempt.into());
    shown.extend(record.reason.as_deref().map(|reason| ("reason".to_owned(), reason.into())));
    shown.insert("createdAt".into(), told(record.made_at).into());
    shown.insert("expiresAt".into(), told(record.expires_at).into());
    Value::Object(shown)
}

/// The controls of a log that this audience may know of, from those asked for after `after`, and where the next page begins;
/// `None` for a log that nobody has written.
///
/// # Errors
/// The store's failure.
pub async fn list<S: Store>(
    logs: &Logs<S>,
    log: &LogId,
    audience: Audience,
    after: u64,
    limit: usize,
) -> Result<Option<(Vec<Value>, Option<u64>)>, StoreError> {
    let Some(loaded) = logs.load(log).await? else { return Ok(None) };
    let prefix = crate::log::control::CONTROL.as_bytes();
    let saved = loaded.state.iter().filter(|(key, _)| key.starts_with(prefix));
    let mut records = saved.map(|(key, saved)| ControlRecord::read(log, key, saved)).collect::<Result<Vec<_>, _>>()?;
    records.retain(|of| of.number > after && audience.admits(of.audience));
    records.sort_unstable_by_key(|record| record.number);
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().filter(|_| more).map(|last| last.number);
    Ok(Some((records.iter().map(|record| shown(record, logs.queues())).collect(), next)))
}

//! Controls: requests of users on their way to the runtime that owns the fact to change.
//!
//! ```text
//!   submitted ─▶ queued ─▶ claimed ─▶ acked
//!                  ▲          ├─────▶ nacked       its owner refuses it
//!                  └──────────┤                    its lease expires, or its owner returns it
//!                  └──────────┴─────▶ expired      no owner took it in time, or there is nothing left to decide
//! ```
//!
//! The server records a control and hands it to the runtime; the control itself changes no fact. Each step is durable
//! before the server answers: one commit saves a state entry beside the log and an envelope in it (`log::control`).
//! Queues and leases are in memory (`log::queues`); a restart rebuilds the queues from the logs' summaries.
//!
//! No envelope contains the user's input. The log stores it redacted until the control is closed. If the guard removed
//! a secret, the original stays in this process's memory until then. A claimant gets the original; after a restart it
//! gets the redacted value with `redacted`. Headers for a connected agent ([`user_headers`]) are only in memory, too.

pub mod aside;
mod due;
pub mod held;
mod listing;
mod messages;
mod quorum;
mod record;
pub mod rules;
pub mod user_headers;

pub use crate::log::control::DEFAULT_AGENT;
pub use due::ACTION_EXPIRED;
pub use listing::{list, list_entry};
pub use quorum::REJECTED;

use crate::environment::Environment;
use crate::environment::sabotage;
use crate::guard::redact_text;
use crate::ingest::{BeginOwner, Ingest, Quota, QuotaExceeded, ServerAppend, WriteScope, WriteTarget, WriterView};
use crate::log::commit::{Logs, Summary};
use crate::log::control::{ControlChange, ControlRecord, ControlState, OPEN_CONTROLS_MAX, SupersededAction};
use crate::log::queues::{Due, LeaseTerms, LeasedControl, Queues, WorkRoom};
use crate::log::sessions::SessionClaim;
use crate::log::{LogId, StoreError};
use crate::model::decided_by::{DecidedBy, Decider};
use crate::model::{ActionId, AgentId, Audience, Control, ControlId, RunId, Sequence, SessionId, SessionOwner, ThreadId};
use futures_util::future::join_all;
use held::{HELD_SECRETS_SHARE_BYTES_MAX, HeldSecret, HeldSecrets, Holder};
use http::HeaderMap;
use messages::settle_waits;
use parking_lot::Mutex;
use quorum::Counted;
use record::{is_credential, new_record, redacted_value};
use rules::{ControlRequest, InvalidControl};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use user_headers::UserHeaders;
use uuid::Uuid;

/// The largest body of a control request, in bytes.
pub const CONTROL_BYTES_MAX: usize = 256 * 1024;

/// How often a control is claimed; it expires after the last claim without an answer.
pub const ATTEMPTS_MAX: u32 = 10;

/// How long a secret is held for a control that is not open yet, in microseconds.
const HELD_UNSEEN_MICROS: u64 = 60_000_000;

/// Why a decision about an earlier version of a question is closed.
const ACTION_CHANGED: &str = "action_changed";

/// Answers that are remembered by lease, so that a repeated answer gets the same result.
const ANSWERED_MAX: usize = 1024;

/// The longest kept reason, in characters.
const REASON_CHARS_MAX: usize = 1000;

/// Why the server refuses a control or the answer to one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ControlError {
    #[error("{}", .0.detail)]
    Invalid(InvalidControl),
    #[error("run {0} has no envelope, so no runtime can take a control of it; send its first fact, or name another run")]
    NoSuchRun(RunId),
    #[error("session {0} has no envelope; begin it with send, queue, delegate or assign")]
    NoSuchSession(SessionId),
    #[error("the token does not cover session {0}: it names neither the session nor its owner")]
    OutOfScope(SessionId),
    #[error("session {0} belongs to another owner than the request names; omit owner, or begin another session")]
    OtherOwner(SessionId),
    #[error("{0}")]
    Quota(#[from] QuotaExceeded),
    #[error("action {action} is not pending here; read the run again")]
    ActionNotPending { action: String },
    #[error("the deadline of action {action} has passed; the agent must ask again")]
    ActionExpired { action: String },
    #[error("action {action} changed at sequence {since}, after what the decision is about; read it again, then decide")]
    ActionChanged { action: String, since: Sequence },
    #[error("action {action} is decided: control {first} answers it, and the first decision stands; read the run again")]
    ActionDecided {
        action: String,
        first: ControlId,
        /// Whether the first control says the same.
        is_equal: bool,
    },
    #[error(
        "the message would supersede {} pending actions that wait for a decision; nothing was recorded; \
         decide them first, send the control queue, or repeat the request with \"supersede\": true",
        .actions.len()
    )]
    WouldSupersede { actions: Vec<ActionId> },
    #[error("action {action} needs {need} approvals by different people, and this one does not count: {reason}")]
    NotCounted { action: String, need: u32, reason: &'static str },
    #[error("the run is {status}, and {control} needs an active run; retry the run, or send to its session")]
    RunEnded { status: &'static str, control: String },
    #[error("control {0} exists with another body; choose another controlId")]
    Conflict(ControlId),
    #[error("{OPEN_CONTROLS_MAX} controls of this log are open, the limit; retry when its owner has leased some")]
    TooMany,
    #[error(
        "the control has secrets or headers that the server must hold in memory until its owner takes it, and those of its \
         sender exceed {HELD_SECRETS_SHARE_BYTES_MAX} bytes, or those of all senders the limit; nothing was recorded; send \
         smaller secrets, or retry when owners have claimed some"
    )]
    TooManySecrets,
    #[error("the token does not name the agent that control {0} is for; use a token of that agent")]
    NotYours(ControlId),
    #[error("control {0} is not held under this lease: it expired, was answered, or the server restarted; claim again")]
    LeaseLost(ControlId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The terms of a claim.
#[derive(Clone)]
pub struct Claim {
    /// The most controls to claim; at least one.
    pub max: usize,
    /// How long the claim is exclusive.
    pub lease: Duration,
    /// The work that the claimant can begin. `None`: any.
    pub room: Option<WorkRoom>,
    /// The sessions, and the runs without one, whose controls the claimant may take. `None`: all.
    pub covers: Option<LogPredicate>,
}

/// Decides about a log.
pub type LogPredicate = Arc<dyn Fn(&LogId) -> bool + Send + Sync>;

/// A control as the claimant gets it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedControl {
    pub control_id: ControlId,
    /// The token that the answer must name.
    pub lease: Box<str>,
    pub lease_expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    pub control: Control,
    /// The targets: ids by their member names.
    #[serde(flatten)]
    pub targets: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Whether the guard removed a secret from the value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// The actions that the message supersedes.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "action_ids")]
    pub supersedes: Vec<SupersededAction>,
    /// The number of this claim, from 1.
    pub attempt: u32,
    pub created_at: String,
    pub expires_at: String,
    /// Who submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<DecidedBy>,
    /// All who approved, of an action that needs several approvals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<DecidedBy>,
    /// The headers of the user's request that a connected agent gets. `None`: it gets none, or they are lost.
    #[serde(skip)]
    pub user_headers: Option<HeaderMap>,
}

fn action_ids<S: Serializer>(superseded: &[SupersededAction], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(superseded.iter().map(|superseded| &superseded.action))
}

/// A control that the server recorded, or that it knew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedControl {
    pub id: ControlId,
    /// The approvals that its action has and needs, if it needs several.
    pub approvals: Option<(u32, u32)>,
}

/// Who submits a control.
#[derive(Debug, Clone)]
pub struct Requester {
    /// The control can name only what this audience sees.
    pub audience: Audience,
    /// Whether the requester has a right to the whole session of the log, and not only to the log.
    pub has_session: bool,
    /// Whose a session is that the control begins.
    pub owner: BeginOwner,
    /// What the requester may write to. `None`: unrestricted.
    pub scope: Option<WriteScope>,
    pub decider: Decider,
}

/// The owner's answer to a control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The owner accepted it.
    Ack,
    /// The owner refused it; with `requeue` the next claimant gets it.
    Nack { reason: Option<String>, requeue: bool },
    /// The owner returns a message, which waits until no action of its agent is pending. The claim does not count.
    Hold,
}

/// The controls of one server.
pub struct Controls {
    environment: Environment,
    held: Mutex<HeldSecrets>,
    /// Answered leases, oldest first.
    answered: Mutex<VecDeque<Answered>>,
    pub user_headers: UserHeaders,
}

/// An answered lease.
struct Answered {
    lease: Box<str>,
    of: ControlId,
    agent: AgentId,
    answer: Answer,
    status: &'static str,
}

/// Leases of a claim that is not delivered yet.
///
/// Dropping it releases them, for example when the claimant disconnects.
struct ClaimGuard<'q> {
    queues: &'q Queues,
    leases: Vec<Box<str>>,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        for lease in &self.leases {
            self.queues.release_undelivered(lease);
        }
    }
}

/// A lease whose answer is on its way to the store. Dropping it resumes the expiry.
struct LeaseGuard<'q> {
    queues: &'q Queues,
    lease: Box<str>,
    until: Option<Instant>,
}

impl Drop for LeaseGuard<'_> {
    fn drop(&mut self) {
        if let Some(until) = self.until {
            self.queues.resume_lease(&self.lease, until);
        }
    }
}

/// Checks whose the session of a control is, and the quotas of that owner for a message. The result claims a session that
/// the control begins.
async fn check_owner(
    logs: &Logs,
    ingest: &Ingest,
    log: &LogId,
    request: &ControlRequest,
    requester: &Requester,
) -> Result<Option<SessionClaim>, ControlError> {
    let quotas: &[Quota] = if begins_session(&request.control) { &[Quota::Turns, Quota::Bytes] } else { &[] };
    match log {
        LogId::Run(_) => {
            let owner = logs.log(log).await?.tail().summary.extension.owner.clone();
            ingest.quotas().check(logs.sessions(), owner.as_ref(), quotas)?;
            Ok(None)
        }
        LogId::Session(session) if quotas.is_empty() && logs.sessions().created_order(session).is_none() => Ok(None),
        LogId::Session(session) => claim_session(logs, ingest, session, requester, quotas).map(Some),
    }
}

/// Claims the session to which a requester adds, and which it may begin. The claim lasts until the addition is committed.
///
/// # Errors
/// Whose the session is instead, or which of these quotas, or that of sessions, its owner has used up.
pub fn claim_session(
    logs: &Logs,
    ingest: &Ingest,
    session: &SessionId,
    requester: &Requester,
    quotas: &[Quota],
) -> Result<SessionClaim, ControlError> {
    let sessions = logs.sessions();
    let claim = sessions.claim(session, requester.owner.owner.as_ref());
    let owner = claim.as_ref().as_ref();
    // The request was authorized before the session was claimed.
    if !requester.scope.as_ref().is_none_or(|scope| scope.allows(WriteTarget::Session(session, SessionOwner::of(owner)))) {
        return Err(ControlError::OutOfScope(session.clone()));
    }
    if requester.owner.is_requested && *claim != requester.owner.owner {
        return Err(ControlError::OtherOwner(session.clone()));
    }
    ingest.quotas().check(sessions, owner, quotas)?;
    if !quotas.is_empty() && sessions.created_order(session).is_none() {
        ingest.quotas().check(sessions, owner, &[Quota::Sessions])?;
    }
    Ok(claim)
}

fn format_timestamp(moment: i64) -> String {
    jiff::Timestamp::from_millisecond(moment).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

impl Controls {
    /// No held secrets, no answers.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self { environment, held: Mutex::default(), answered: Mutex::default(), user_headers: UserHeaders::default() }
    }

    /// Records a control and queues it for its owner, durably.
    ///
    /// A message that supersedes actions is recorded first, and waits for their resolution. So a crash between the two
    /// leaves a message that waits, and a repeated request completes it.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn submit(
        &self,
        logs: &Logs,
        ingest: &Ingest,
        log: &LogId,
        request: &ControlRequest,
        requester: &Requester,
    ) -> Result<SubmittedControl, ControlError> {
        let claim = check_owner(logs, ingest, log, request, requester).await?;
        let now = (self.environment.now)();
        let id = request.id.clone().unwrap_or_else(|| self.generate_id(now));
        let is_known = match log {
            LogId::Run(_) => true,
            LogId::Session(session) => logs.sessions().created_order(session).is_some() || begins_session(&request.control),
        };
        let (pending, rules) = (logs.pending_actions(), logs.deadlines().rules());
        let decide = |view: &WriterView<'_>| {
            let scope = view.summary.scope(log);
            let asked = self.existing(view, &id, request).unwrap_or_else(|| {
                if !is_known {
                    return Err(no_such_log(log));
                }
                let made = new_record(view, log, &id, request, requester, now);
                let mut record = made.map_err(|refusal| self.compare_decisions(view, request, refusal))?;
                settle_waits(&mut record, request, log, &scope, pending, requester)?;
                record.queue_position = logs.queues().next_position(u64::try_from(now.as_microsecond()).unwrap_or(0));
                let counted = quorum::count(view, &rules, &record, request, requester, &self.held.lock())?;
                Ok(Some((record, counted)))
            });
            match asked {
                Ok(Some((_, Counted::Joins(first)))) => {
                    let approvals = view.controls.get(&first).and_then(approvals_of);
                    (Ok((SubmittedControl { id: first, approvals }, scope, Vec::new())), ServerAppend::default())
                }
                Ok(Some((mut record, counted))) => {
                    // Before a claimant can get it.
                    let value = request.value.clone().filter(|_| record.redacted);
                    let user_headers = self.user_headers.for_agent(&record.agent);
                    let holder = holder_of(record.decided_by.as_ref(), &scope);
                    if !self.held.lock().put(record.queue_position, holder, HeldSecret { value, user_headers }) {
                        return (Err(ControlError::TooManySecrets), ServerAppend::default());
                    }
                    let is_run = matches!(log, LogId::Run(_));
                    let mut append = close_outdated(view, &record, is_run);
                    append.owner = requester.owner.clone();
                    let approvals = match counted {
                        Counted::Adds(approval, others) => {
                            record.approval = Some(approval);
                            others
                        }
                        _ => {
                            append.extend(quorum::end_approvals(view, &record, is_run));
                            Vec::new()
                        }
                    };
                    append.drafts.push(record.change_draft(ControlChange::Submitted, is_run));
                    for known in approvals {
                        append.drafts.extend((!known.is_held()).then(|| known.change_draft(ControlChange::Released, is_run)));
                        append.controls.push(known);
                    }
                    let supersedes = record.supersedes.clone();
                    if let (Some(step), Some(action), false) = (&request.rule, record.ids().action, sabotage::is(50)) {
                        append.waits.push(step.progress(&action, Some(record.expires_at)));
                    }
                    let submitted = SubmittedControl { id: record.id.clone(), approvals: approvals_of(&record) };
                    if sabotage::is(23) {
                        return (Ok((submitted, scope, supersedes)), ServerAppend::default());
                    }
                    append.controls.push(record);
                    (Ok((submitted, scope, supersedes)), append)
                }
                Ok(None) => {
                    self.restore_headers(view, &id, &scope);
                    let open = view.controls.get(&id).filter(|known| known.state == ControlState::Open);
                    let supersedes = open.map(|known| known.supersedes.clone()).unwrap_or_default();
                    let submitted = SubmittedControl { id: id.clone(), approvals: open.and_then(approvals_of) };
                    (Ok((submitted, scope, supersedes)), ServerAppend::default())
                }
                Err(refusal) => (Err(refusal), ServerAppend::default()),
            }
        };
        let (submitted, scope, supersedes) = ingest.append_as_server(log, decide).await??;
        drop(claim);
        messages::supersede(ingest, &scope, &supersedes).await?;
        Ok(submitted)
    }

    /// Holds the headers of a repeated request, if a restart lost those of the first.
    fn restore_headers(&self, view: &WriterView<'_>, id: &ControlId, scope: &LogId) {
        let Some(known) = view.controls.get(id).filter(|known| known.state == ControlState::Open) else { return };
        let mut held = self.held.lock();
        if held.get(known.queue_position).is_none() {
            let user_headers = self.user_headers.for_agent(&known.agent);
            // Headers that do not fit stay lost.
            let _ = held.put(
                known.queue_position,
                holder_of(known.decided_by.as_ref(), scope),
                HeldSecret { value: None, user_headers },
            );
        }
    }

    /// The result for a request whose id is known; `None` for a new id.
    fn existing(
        &self,
        view: &WriterView<'_>,
        id: &ControlId,
        request: &ControlRequest,
    ) -> Option<Result<Option<(ControlRecord, Counted)>, ControlError>> {
        let known = view.controls.get(id)?;
        Some(if self.is_same(view, known, request) { Ok(None) } else { Err(ControlError::Conflict(id.clone())) })
    }

    /// Whether a known control is this request.
    fn is_same(&self, view: &WriterView<'_>, known: &ControlRecord, request: &ControlRequest) -> bool {
        let is_same = match self.held.lock().get(known.queue_position).and_then(|held| held.value.as_ref()) {
            Some(value) if request.value.as_ref() != Some(value) => false,
            _ => known.fingerprint == request.fingerprint(redacted_value(request, is_credential(view, &known.ids())).0.as_ref()),
        };
        // A closed control no longer knows whether its answer was a secret.
        is_same
            || known.state != ControlState::Open
                && known.fingerprint == request.fingerprint(redacted_value(request, true).0.as_ref())
    }

    /// Completes the refusal of a decision whose action has one already.
    fn compare_decisions(&self, view: &WriterView<'_>, request: &ControlRequest, refusal: ControlError) -> ControlError {
        let ControlError::ActionDecided { action, first, .. } = refusal else { return refusal };
        let is_equal = view.controls.get(&first).is_some_and(|known| {
            let is_plain_equal = |value: &Option<Value>| known.fingerprint == request.fingerprint(value.as_ref());
            self.is_same(view, known, request) || request.plain_verdicts().iter().any(is_plain_equal)
        });
        ControlError::ActionDecided { action, first, is_equal }
    }

    fn generate_id(&self, now: jiff::Timestamp) -> ControlId {
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let random = (self.environment.random)().to_be_bytes();
        let random: &[u8; 10] = random[6..].try_into().expect("ten bytes");
        let id = uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid();
        ControlId::new(&id.to_string()).expect("a UUID is an id")
    }

    /// Claims the controls in the agent's queue, oldest first; waits for the first one until `until`.
    ///
    /// A claimant that `is_present` finds gone gets none, and the claim does not count as an attempt.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn claim(
        &self,
        logs: &Logs,
        ingest: &Ingest,
        agent: &AgentId,
        claim: Claim,
        until: Option<Instant>,
        is_present: impl Fn() -> bool,
    ) -> Result<Vec<ClaimedControl>, StoreError> {
        let queues = logs.queues();
        let mut arrivals = queues.watch(agent);
        loop {
            arrivals.mark_unchanged();
            let lease = || Uuid::from_u128((self.environment.random)()).simple().to_string().into();
            let covers = |log: &LogId| claim.covers.as_ref().is_none_or(|covers| covers(log));
            let terms = LeaseTerms { max: claim.max.max(1), until: Instant::now() + claim.lease, room: claim.room.clone() };
            let leased = queues.lease(agent, terms, covers, holds_back(logs), lease);
            if leased.is_empty() {
                let more = async {
                    // It fails only when the sender is gone, and `queues` is borrowed.
                    let _ = arrivals.changed().await;
                };
                match until {
                    None => more.await,
                    Some(until) if tokio::time::timeout_at(until, more).await.is_err() => return Ok(Vec::new()),
                    Some(_) => {}
                }
                continue;
            }
            let mut claim_guard = ClaimGuard { queues, leases: leased.iter().map(|leased| leased.lease.clone()).collect() };
            if !is_present() {
                return Ok(Vec::new());
            }
            let mut claimed = Vec::new();
            for (leased, over) in
                leased.iter().zip(join_all(leased.iter().map(|leased| self.record_claim(ingest, leased, claim.lease))).await)
            {
                match over {
                    Ok(over) => claimed.extend(over),
                    Err(error) if error.affects_one_log() => logs.quarantine(&leased.log, &error),
                    Err(error) => return Err(error),
                }
            }
            if !is_present() {
                return Ok(Vec::new());
            }
            claim_guard.leases.retain(|lease| !claimed.iter().any(|claimed| claimed.lease == *lease));
            drop(claim_guard);
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
    }

    /// Records a claim; `None` for a control that is no longer worth a claim.
    async fn record_claim(
        &self,
        ingest: &Ingest,
        leased: &LeasedControl,
        lease: Duration,
    ) -> Result<Option<ClaimedControl>, StoreError> {
        let now = (self.environment.now)();
        let is_run = matches!(leased.log, LogId::Run(_));
        let decide = |view: &WriterView<'_>| {
            let nothing = (None, ServerAppend::default());
            // An approval may have been taken back since the lease.
            let is_leasable = |record: &&ControlRecord| is_open_at(record, leased.queue_position) && !record.is_held();
            let Some(record) = view.controls.get(&leased.id).filter(is_leasable) else {
                return nothing;
            };
            if let Some(reason) = closing_reason(record, view, now) {
                return (None, expire_with_others(view, record, reason, is_run));
            }
            let mut record = record.clone();
            // A claim that did not reach its claimant is not an attempt, unless it is the first.
            record.attempt = (record.attempt + u32::from(!leased.follows_undelivered)).max(1);
            let claimed = self.claimed_control(&record, view.summary, leased, now, lease);
            let drafts = vec![record.change_draft(ControlChange::Claimed, is_run)];
            (Some(claimed), ServerAppend { drafts, controls: vec![record], ..ServerAppend::default() })
        };
        ingest.append_as_server(&leased.log, decide).await
    }

    fn claimed_control(
        &self,
        record: &ControlRecord,
        summary: &Summary,
        leased: &LeasedControl,
        now: jiff::Timestamp,
        lease: Duration,
    ) -> ClaimedControl {
        let (run_id, session_id) = match &leased.log {
            LogId::Run(run) => (Some(run.clone()), summary.session_id.clone()),
            LogId::Session(session) => (None, Some(session.clone())),
        };
        let HeldSecret { value: whole, user_headers } = self.held.lock().get(record.queue_position).cloned().unwrap_or_default();
        let mut targets = record.targets.clone();
        targets.insert("agentId".into(), record.agent.to_string());
        ClaimedControl {
            control_id: record.id.clone(),
            lease: leased.lease.clone(),
            lease_expires_at: format_timestamp(
                now.as_millisecond().saturating_add(i64::try_from(lease.as_millis()).unwrap_or(0)),
            ),
            run_id,
            session_id,
            thread_id: summary.thread_id.clone(),
            control: record.control.clone(),
            targets,
            redacted: record.redacted && whole.is_none(),
            value: with_option(whole.or_else(|| record.value.clone()), record.chosen_option.as_deref())
                .filter(|_| !sabotage::is(24)),
            supersedes: record.supersedes.clone(),
            attempt: record.attempt,
            created_at: format_timestamp(record.created_at),
            expires_at: format_timestamp(record.expires_at),
            decided_by: record.decided_by.clone(),
            approvals: record.approval.as_ref().map_or_else(Vec::new, |approval| approval.approvers.clone()),
            user_headers,
        }
    }

    /// Records the owner's answer and returns the control's new status.
    ///
    /// A lease alone does not authorize: `may` says whether the caller may act for the agent.
    ///
    /// # Errors
    /// [`ControlError::LeaseLost`], [`ControlError::NotYours`], and the store's failure.
    pub async fn answer(
        &self,
        logs: &Logs,
        ingest: &Ingest,
        id: &ControlId,
        lease: &str,
        answer: Answer,
        may: impl Fn(&AgentId) -> bool,
    ) -> Result<&'static str, ControlError> {
        let lost = || ControlError::LeaseLost(id.clone());
        let is_theirs = |agent: &AgentId| if may(agent) { Ok(()) } else { Err(ControlError::NotYours(id.clone())) };
        let Some((leased, until)) = logs.queues().suspend_lease(lease, id, Instant::now()) else {
            let answered = self.answered.lock();
            let known = answered.iter().find(|known| *known.lease == *lease && known.of == *id).ok_or_else(lost)?;
            is_theirs(&known.agent)?;
            return if known.answer == answer { Ok(known.status) } else { Err(lost()) };
        };
        // Dropping it undoes this.
        let mut lease_guard = LeaseGuard { queues: logs.queues(), lease: leased.lease.clone(), until: Some(until) };
        is_theirs(&leased.agent)?;
        let is_run = matches!(leased.log, LogId::Run(_));
        let decide = |view: &WriterView<'_>| {
            let known = view.controls.get(id).filter(|record| is_open_at(record, leased.queue_position));
            let Some(record) = known.cloned() else { return (None, ServerAppend::default()) };
            let close = |change, state, reason| quorum::close(view, &record, change, state, reason, is_run);
            let requeue = |record: ControlRecord| ServerAppend::of(record.change_draft(ControlChange::Requeued, is_run), record);
            let (status, append) = match &answer {
                Answer::Ack => ("acked", close(ControlChange::Acked, ControlState::Acked, None)),
                Answer::Hold => ("queued", requeue(messages::held(record))),
                Answer::Nack { reason, requeue: requeues } => {
                    let reason: Option<String> =
                        reason.as_deref().map(|reason| redact_text(reason).chars().take(REASON_CHARS_MAX).collect());
                    if *requeues && record.attempt < ATTEMPTS_MAX {
                        ("queued", requeue(ControlRecord { reason, ..record }))
                    } else {
                        ("nacked", close(ControlChange::Nacked, ControlState::Nacked, reason.as_deref()))
                    }
                }
            };
            (Some(status), append)
        };
        let decide = |view: &WriterView<'_>| match decide(view) {
            (status, _) if sabotage::is(22) => (status, ServerAppend::default()),
            decided => decided,
        };
        let status = ingest.append_as_server(&leased.log, decide).await?.ok_or_else(lost)?;
        lease_guard.until = None;
        match status {
            "queued" => logs.queues().release(lease),
            _ => self.held.lock().retain(|queue_position| queue_position != leased.queue_position),
        }
        let mut answered = self.answered.lock();
        if answered.len() == ANSWERED_MAX {
            answered.pop_front();
        }
        answered.push_back(Answered { lease: lease.into(), of: id.clone(), agent: leased.agent, answer, status });
        Ok(status)
    }

    /// Withdraws an unclaimed control for its requester. `false` for a control that is claimed or closed.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn withdraw(&self, logs: &Logs, ingest: &Ingest, log: &LogId, id: &ControlId) -> Result<bool, StoreError> {
        let is_run = matches!(log, LogId::Run(_));
        let decide = |view: &WriterView<'_>| {
            let known = view.controls.get(id).filter(|of| of.state == ControlState::Open);
            let is_leased = |of: &ControlRecord| logs.queues().is_leased(of.queue_position);
            let taken = known.and_then(|record| quorum::take_back(view, record, "withdrawn", is_leased, is_run));
            taken.map_or_else(|| (false, ServerAppend::default()), |append| (true, append))
        };
        ingest.append_as_server(log, decide).await
    }

    /// Releases expired leases, closes controls that no owner can take, and returns how many it closed.
    ///
    /// `now` and `wall` are the same moment, by the monotonic clock and by the wall clock.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn expire_due(
        &self,
        logs: &Logs,
        ingest: &Ingest,
        now: Instant,
        wall: jiff::Timestamp,
    ) -> Result<usize, StoreError> {
        let queues = logs.queues();
        let mut closed = 0;
        for due in queues.collect_due(now, wall.as_millisecond(), ATTEMPTS_MAX, holds_back(logs)) {
            let (Due::Close(log, id) | Due::Start(log, id)) = &due;
            let decide = |view: &WriterView<'_>| {
                let known = view.controls.get(id);
                let known = known.filter(|of| of.state == ControlState::Open && !queues.is_leased(of.queue_position));
                known.and_then(|record| round_off(&due, record, view, wall)).unwrap_or_default()
            };
            match ingest.append_as_server(log, decide).await {
                Ok(DueOutcome::Nothing) => {}
                Ok(DueOutcome::Closed) => closed += 1,
                Ok(DueOutcome::Started(queue_position)) => queues.free(queue_position),
                Err(error) if error.affects_one_log() => logs.quarantine(log, &error),
                Err(error) => return Err(error),
            }
        }
        let mut held = self.held.lock();
        if !held.is_empty() {
            // A queue position is a time. The control of a recent position may still be on its way to the store.
            let settled = u64::try_from(wall.as_microsecond()).unwrap_or(0).saturating_sub(HELD_UNSEEN_MICROS);
            held.retain(|queue_position| queue_position > settled || queues.is_open(queue_position));
        }
        Ok(closed)
    }
}

/// Whose share the secrets of a control take.
fn holder_of(decided_by: Option<&DecidedBy>, scope: &LogId) -> Holder {
    let person = decided_by.and_then(|by| by.decider.sub.clone());
    person.map_or_else(|| Holder::Scope(scope.clone()), Holder::Person)
}

/// Whether an action of an agent is pending in a scope, for [`Queues`].
fn holds_back(logs: &Logs) -> impl Fn(&LogId, &AgentId) -> bool {
    move |scope, agent| logs.pending_actions().holds_back(scope, agent)
}

/// What became of a control that was due.
#[derive(Default)]
enum DueOutcome {
    #[default]
    Nothing,
    Closed,
    /// The time to live of the control at this position started.
    Started(u64),
}

/// Closes a control that is due, or starts its time to live.
fn round_off(
    due: &Due,
    record: &ControlRecord,
    view: &WriterView<'_>,
    now: jiff::Timestamp,
) -> Option<(DueOutcome, ServerAppend)> {
    match due {
        Due::Close(log, _) => {
            let reason = closing_reason(record, view, now)?;
            Some((DueOutcome::Closed, expire_with_others(view, record, reason, matches!(log, LogId::Run(_)))))
        }
        Due::Start(..) => {
            let started = messages::start_time_to_live(record, now)?;
            Some((
                DueOutcome::Started(record.queue_position),
                ServerAppend { controls: vec![started], ..ServerAppend::default() },
            ))
        }
    }
}

/// Closes decisions that no owner claimed and whose question is another version now.
fn close_outdated(view: &WriterView<'_>, by: &ControlRecord, is_run: bool) -> ServerAppend {
    let mut append = ServerAppend::default();
    let Some(action) = by.ids().action.filter(|action| by.is_decision_of(action)) else { return append };
    let open = view.controls.values().filter(|record| record.state == ControlState::Open && record.is_decision_of(&action));
    // An approval goes on with the control that is handed out for it.
    let is_claimed = |record: &ControlRecord| match record.approval.as_ref().and_then(|approval| approval.lead.as_ref()) {
        Some(lead) => view.controls.get(lead).is_some_and(|lead| lead.attempt > 0),
        None => record.attempt > 0,
    };
    for record in open.filter(|record| !is_claimed(record) && view.is_outdated(record)) {
        append.extend(expire(record, ACTION_CHANGED, is_run));
    }
    append
}

/// Whether the record is open at this position. An id can be used again once its log has forgotten it.
fn is_open_at(record: &ControlRecord, queue_position: u64) -> bool {
    record.state == ControlState::Open && record.queue_position == queue_position
}

/// Why an open control must be closed, if it must.
fn closing_reason(record: &ControlRecord, view: &WriterView<'_>, now: jiff::Timestamp) -> Option<&'static str> {
    let open = record.to_open();
    let deadline = open.action.as_ref().and_then(|action| view.deadline_of(action));
    open.obsolete_reason(&view.summary.run).or_else(|| match record {
        _ if deadline.is_some_and(|at| at <= now.as_millisecond()) => Some(ACTION_EXPIRED),
        _ if view.is_outdated(record) => Some(ACTION_CHANGED),
        // An approval goes on with the control that is handed out for it.
        _ if record.approval.as_ref().is_some_and(|approval| approval.lead.is_some()) => None,
        _ if record.expires_at <= now.as_millisecond() => Some("not_taken_in_time"),
        _ if record.attempt >= ATTEMPTS_MAX => Some("never_answered"),
        _ => None,
    })
}

/// As [`expire`], with what changes by it of the other approvals of an action.
fn expire_with_others(view: &WriterView<'_>, record: &ControlRecord, reason: &str, is_run: bool) -> ServerAppend {
    quorum::close(view, record, ControlChange::Expired, ControlState::Expired, Some(reason), is_run)
}

/// The approvals that the action of a control has and needs, if it needs several.
fn approvals_of(record: &ControlRecord) -> Option<(u32, u32)> {
    record.approval.as_ref().map(|approval| (approval.have, approval.need))
}

fn expire(record: &ControlRecord, reason: &str, is_run: bool) -> ServerAppend {
    let record = record.clone().into_closed(ControlState::Expired, Some(reason));
    ServerAppend::of(record.change_draft(ControlChange::Expired, is_run), record)
}

/// The value with the option that the server chose. A value that is not an object stays as the user sent it.
fn with_option(value: Option<Value>, chosen: Option<&str>) -> Option<Value> {
    match (value, chosen) {
        (None, Some(chosen)) => Some(json!({ "optionId": chosen })),
        (Some(Value::Object(mut members)), Some(chosen)) => {
            members.insert("optionId".into(), chosen.into());
            Some(members.into())
        }
        (value, _) => value,
    }
}

/// Whether a session may begin with this control.
const fn begins_session(control: &Control) -> bool {
    matches!(control, Control::Send | Control::Queue | Control::Delegate | Control::Assign)
}

fn no_such_log(log: &LogId) -> ControlError {
    match log {
        LogId::Run(run) => ControlError::NoSuchRun(run.clone()),
        LogId::Session(session) => ControlError::NoSuchSession(session.clone()),
    }
}

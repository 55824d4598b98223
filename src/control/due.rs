//! What the server does about actions that wait: it expires, decides, reminds and escalates.
//!
//! ```text
//!   deadlines ─▶ due? ─▶ action.resolved (expired)              one commit with the closed controls
//!                  ├───▶ action.reminded · action.escalated     one commit with the number of steps done
//!                  └───▶ a control `via: rule`                  as a person's: one commit with the number of steps done
//! ```
//! The number of steps done is in the log with what they did, so that a restart or another leader repeats none.

use super::rules::{ControlRequest, RuleDecision};
use super::{ControlError, Controls, Requester, expire};
use crate::ingest::{BeginOwner, Ingest, ServerAppend, WriterView};
use crate::log::commit::Logs;
use crate::log::control::{ControlRecord, ControlState, WaitProgress, closed_draft};
use crate::log::deadlines::ActionOfLog;
use crate::log::{LogId, StoreError};
use crate::model::decided_by::{Decider, Via};
use crate::model::fact::WaitStepFact;
use crate::model::{ActionId, ActionOutcome, Audience, Control, Draft, EventType, ReceivedAt, Scope};
use crate::waits::{DueStep, WaitRule, WaitVerdict, WaitingAction};
use serde_json::json;
use std::collections::BTreeMap;

/// Actions that one round examines.
const ACTIONS_PER_ROUND_MAX: usize = 256;

/// The time until an action that its owner is answering, or whose control is refused, is checked again, in milliseconds.
const PAUSE_MS: i64 = 1000;

/// Why a control for an action past its deadline is closed.
pub const ACTION_EXPIRED: &str = "action_expired";

/// What becomes of an action that is due.
enum ActionFate {
    Expired,
    /// An owner has its answer.
    Answered,
    /// Nothing is due: it was resolved or decided meanwhile.
    Gone,
    /// A step is done.
    Told,
    /// The server decides.
    Decides(Box<ControlRequest>, Option<Box<str>>),
}

impl Controls {
    /// Does what is due for pending actions, and returns how many it resolved as expired.
    ///
    /// An action that its owner is answering is checked again later: the decision came in time.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn act_on_waits(&self, logs: &Logs, ingest: &Ingest, wall: jiff::Timestamp) -> Result<usize, StoreError> {
        let (queues, now, rules) = (logs.queues(), wall.as_millisecond(), logs.deadlines().rules());
        let mut resolved = 0;
        for due in logs.deadlines().due(now, ACTIONS_PER_ROUND_MAX) {
            let is_run = matches!(due.log, LogId::Run(_));
            let decide = |view: &WriterView<'_>| {
                let nothing = |fate| (fate, ServerAppend::default());
                let Some(action) = view.waiting(&due.action) else { return nothing(ActionFate::Gone) };
                let is_answered = |of: &ControlRecord| of.state == ControlState::Acked || queues.is_leased(of.queue_position);
                match rules.due(&action, now) {
                    None => nothing(ActionFate::Gone),
                    Some(DueStep::Expire) => match view.decision_of(&due.action) {
                        Some(decision) if is_answered(decision) => nothing(ActionFate::Answered),
                        _ => (ActionFate::Expired, expired_action(view, &due.action, is_run)),
                    },
                    Some(DueStep::Remind(rule)) => {
                        (ActionFate::Told, told(EventType::ActionReminded, &due.action, &action, rule, wall, is_run))
                    }
                    Some(DueStep::Escalate(rule)) => {
                        (ActionFate::Told, told(EventType::ActionEscalated, &due.action, &action, rule, wall, is_run))
                    }
                    Some(DueStep::Decide(verdict, rule)) => nothing(decides(&due, &action, verdict, Some(rule), false)),
                    Some(DueStep::AtDeadline(verdict, rule)) => nothing(decides(&due, &action, verdict, rule, true)),
                }
            };
            match ingest.append_as_server(&due.log, decide).await {
                Ok(ActionFate::Gone | ActionFate::Told) => {}
                Ok(ActionFate::Answered) => logs.deadlines().postpone(&due, now + PAUSE_MS),
                Ok(ActionFate::Expired) => {
                    resolved += 1;
                    logs.deadlines().announce(due);
                }
                Ok(ActionFate::Decides(request, rule)) => self.decide_by_rule(logs, ingest, due, &request, rule, now).await?,
                Err(error) if error.affects_one_log() => logs.quarantine(&due.log, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(resolved)
    }

    /// Submits a decision of the server, as a person would.
    async fn decide_by_rule(
        &self,
        logs: &Logs,
        ingest: &Ingest,
        due: ActionOfLog,
        request: &ControlRequest,
        rule: Option<Box<str>>,
        now: i64,
    ) -> Result<(), StoreError> {
        let by = Requester {
            audience: Audience::Internal,
            has_session: true,
            owner: BeginOwner::default(),
            scope: None,
            decider: Decider { name: rule.clone(), ..Decider::anonymous(Via::Rule) },
        };
        let rule = rule.as_deref().unwrap_or("onExpiry");
        match self.submit(logs, ingest, &due.log, request, &by).await {
            // Another decision, a fact or another leader came first.
            Ok(_) | Err(ControlError::ActionNotPending { .. } | ControlError::ActionDecided { .. }) => {}
            Err(ControlError::Store(error)) if error.affects_one_log() => logs.quarantine(&due.log, &error),
            Err(ControlError::Store(error)) => return Err(error),
            Err(ControlError::Invalid(invalid)) => {
                tracing::warn!(action = %due.action, rule, detail = invalid.detail, "the action cannot take the decision of a rule");
                self.skip_step(logs, ingest, &due, request, now).await?;
            }
            Err(error) => {
                tracing::warn!(action = %due.action, rule, %error, "the decision of a rule has to wait");
                logs.deadlines().postpone(&due, now + PAUSE_MS);
            }
        }
        Ok(())
    }

    /// Counts a step as done that the action cannot take. At its deadline it expires.
    async fn skip_step(
        &self,
        logs: &Logs,
        ingest: &Ingest,
        due: &ActionOfLog,
        request: &ControlRequest,
        now: i64,
    ) -> Result<(), StoreError> {
        let is_run = matches!(due.log, LogId::Run(_));
        let decide = |view: &WriterView<'_>| {
            let Some(step) = request.rule.as_ref().filter(|step| step.is_due(view.waiting(&due.action).as_ref())) else {
                return (false, ServerAppend::default());
            };
            match step.at_deadline {
                true => (true, expired_action(view, &due.action, is_run)),
                false => (false, ServerAppend { waits: vec![step.progress(&due.action, None)], ..ServerAppend::default() }),
            }
        };
        match ingest.append_as_server(&due.log, decide).await {
            Ok(true) => logs.deadlines().announce(due.clone()),
            Ok(false) => {}
            Err(error) if error.affects_one_log() => logs.quarantine(&due.log, &error),
            Err(error) => return Err(error),
        }
        // Until its commit is applied.
        logs.deadlines().postpone(due, now + PAUSE_MS);
        Ok(())
    }
}

impl RuleDecision {
    /// Whether the action waits as it did when the step fell due.
    pub(super) fn is_due(&self, action: Option<&WaitingAction>) -> bool {
        action.is_some_and(|action| (action.since, action.steps) == (self.since, self.steps))
    }

    /// The step as done. A decision at the deadline sets another one.
    pub(super) fn progress(&self, action: &ActionId, decided_until: Option<i64>) -> WaitProgress {
        let steps = if self.at_deadline { self.steps } else { self.steps + 1 };
        WaitProgress { action: action.clone(), steps, deadline: decided_until.filter(|_| self.at_deadline) }
    }
}

/// The decision of the server about an action that is due.
///
/// The step, and not the id of the control, makes it once: a client could take an id that it can foresee.
fn decides(
    due: &ActionOfLog,
    action: &WaitingAction,
    verdict: WaitVerdict,
    rule: Option<&WaitRule>,
    at_deadline: bool,
) -> ActionFate {
    let step = RuleDecision { since: action.since, steps: action.steps, at_deadline };
    let control = match verdict {
        WaitVerdict::Reject => Control::Reject,
        WaitVerdict::Approve => Control::Approve,
    };
    let targets = BTreeMap::from([("actionId".to_owned(), due.action.to_string())]);
    let request = ControlRequest { rule: Some(step), ..ControlRequest::of(control, targets) };
    ActionFate::Decides(Box::new(request), rule.map(|rule| rule.name.clone()))
}

/// The envelope about a step that tells people, with the number of steps done.
fn told(
    event_type: EventType,
    id: &ActionId,
    action: &WaitingAction,
    rule: &WaitRule,
    now: jiff::Timestamp,
    is_run: bool,
) -> ServerAppend {
    let steps = action.steps + 1;
    let mut draft = Draft::new(event_type).with_fact(|step: &mut WaitStepFact| {
        step.step = Some(steps.into());
        step.at = Some(ReceivedAt::from(now).to_string());
        step.rule = Some(rule.name.to_string());
        step.to = (!rule.to.is_empty()).then(|| Box::new(json!(rule.to)));
    });
    if !is_run {
        draft.scope = Scope::Session;
    }
    let drafts = vec![draft.with_action(id.clone())];
    ServerAppend { drafts, waits: vec![WaitProgress { action: id.clone(), steps, deadline: None }], ..ServerAppend::default() }
}

/// The envelope that resolves an action at its deadline, and the ends of the controls that came too late.
fn expired_action(view: &WriterView<'_>, action: &ActionId, is_run: bool) -> ServerAppend {
    let asked = view.summary.pending_actions.iter().find(|pending| pending.action == *action);
    let late = view.controls.values().filter(|record| record.state == ControlState::Open && record.is_decision_of(action));
    let mut append = ServerAppend::default();
    for record in late {
        append.extend(expire(record, ACTION_EXPIRED, is_run));
    }
    append.drafts.push(closed_draft(ActionOutcome::Expired, action.clone(), asked.and_then(|asked| asked.agent.clone())));
    append
}

//! The record of a control that a user submits.

use super::rules::{CREDENTIAL, ControlRequest, Expiry, InvalidControl, TTL, TTL_MAX};
use super::{ControlError, Requester, no_such_log};
use crate::environment::sabotage;
use crate::guard::redact_value;
use crate::ingest::WriterView;
use crate::log::LogId;
use crate::log::control::{ControlRecord, ControlState, OPEN_CONTROLS_MAX};
use crate::model::decided_by::{DecidedBy, Decider};
use crate::model::{ActionId, Audience, ControlId, Ids, ReceivedAt, Sequence};
use serde_json::{Value, json};
use std::time::Duration;

/// Whether the input for this action is a secret, regardless of its format.
pub(super) fn is_credential(view: &WriterView<'_>, ids: &Ids) -> bool {
    let pending = view.summary.pending_actions.iter().find(|pending| Some(&pending.action) == ids.action.as_ref());
    pending.is_some_and(|pending| pending.kind.as_deref() == Some(CREDENTIAL))
}

/// The redacted value, and whether the guard removed anything.
pub(super) fn redacted_value(request: &ControlRequest, is_secret: bool) -> (Option<Value>, bool) {
    let Some(mut value) = request.value.clone() else { return (None, false) };
    let was_redacted = if is_secret {
        // The guard redacts every text under such a name.
        let mut under = json!({ "secret": value });
        let was_redacted = redact_value(&mut under);
        value = under["secret"].take();
        was_redacted
    } else {
        redact_value(&mut value)
    };
    (Some(value), was_redacted)
}

/// Checks that an action waits for a decision, and that this audience sees that.
fn check_pending(
    view: &WriterView<'_>,
    ids: &Ids,
    action: &ActionId,
    audience: Audience,
    request: &ControlRequest,
    now: jiff::Timestamp,
) -> Result<(), ControlError> {
    if let Some(step) = &request.rule {
        // The writer knows whether the step was done meanwhile. A decision at the deadline is in time.
        let is_due = step.is_due(view.waiting(action).as_ref());
        return if is_due { Ok(()) } else { Err(ControlError::ActionNotPending { action: action.to_string() }) };
    }
    let is_pending = [view.summary.run_for(audience), &view.summary.run].iter().all(|run| run.pending.contains(action.as_str()));
    let has_expired = match is_pending {
        true => view.deadline_of(action).is_some_and(|at| at <= now.as_millisecond()),
        false => view.has_expired(action) && audience.admits(view.audience_about(ids)),
    };
    match (has_expired, is_pending) {
        (true, _) => Err(ControlError::ActionExpired { action: action.to_string() }),
        (false, true) => Ok(()),
        (false, false) => Err(ControlError::ActionNotPending { action: action.to_string() }),
    }
}

/// Checks that a decision is about the question as it is now, as far as the requester sees it. Returns what the requester
/// saw of it: what the request says, or since when the question has the version that the request names.
fn check_version(
    view: &WriterView<'_>,
    request: &ControlRequest,
    action: &ActionId,
    audience: Audience,
) -> Result<Option<Sequence>, ControlError> {
    let Some(question) = view.question(action).filter(|_| request.control.decides()) else { return Ok(request.seen) };
    let sees_call = question.call.as_ref().and_then(|call| view.call(call)).is_some_and(|call| audience.admits(call));
    let version = if sees_call { question.whole } else { question.request };
    let is_other = request.version.is_some_and(|shown| shown != version.number);
    if is_other || request.seen.is_some_and(|seen| seen < version.since) {
        return Err(ControlError::ActionChanged { action: action.to_string(), since: version.since });
    }
    Ok(request.seen.or(request.version.map(|_| version.since)))
}

/// The record of a request, if the log accepts it in its current state.
pub(super) fn new_record(
    view: &WriterView<'_>,
    log: &LogId,
    id: &ControlId,
    request: &ControlRequest,
    by: &Requester,
    now: jiff::Timestamp,
) -> Result<ControlRecord, ControlError> {
    let is_run = matches!(log, LogId::Run(_));
    if is_run && !view.is_written {
        return Err(no_such_log(log));
    }
    let (summary, audience) = (view.summary, by.audience);
    let run = summary.run_for(audience);
    let mut record = ControlRecord {
        id: id.clone(),
        control: request.control.clone(),
        targets: request.targets.clone(),
        agent: summary.decider(None),
        audience: Audience::User,
        queue_position: 0,
        of_attempt: (is_run && request.is_attempt_bound()).then_some(summary.run.attempt),
        stops_run: false,
        created_at: now.as_millisecond(),
        submitted_after: summary.last_sequence,
        decided_by: Some(DecidedBy {
            decider: Decider { on_behalf_of: request.on_behalf_of.clone(), ..by.decider.clone() },
            at: ReceivedAt::from(now).to_string().into(),
            seen: request.seen,
        }),
        expires_at: 0,
        attempt: 0,
        state: ControlState::Open,
        reason: None,
        value: None,
        chosen_option: None,
        redacted: false,
        waits: None,
        supersedes: Vec::new(),
        approval: None,
        fingerprint: String::new(),
    };
    let ids = record.ids();
    let mut pending = None;
    if let Some(action) = &ids.action {
        check_pending(view, &ids, action, audience, request, now)?;
        let seen = check_version(view, request, action, audience)?;
        record.decided_by = record.decided_by.map(|by| DecidedBy { seen, ..by });
        if let Some(first) = view.decision_of(action).filter(|_| request.decides() && !sabotage::is(26)) {
            let (action, first) = (action.to_string(), first.id.clone());
            return Err(ControlError::ActionDecided { action, first, is_equal: false });
        }
        pending = summary.pending_actions.iter().find(|pending| pending.action == *action);
        record.chosen_option = request.check_action(pending).map_err(ControlError::Invalid)?;
    }
    if let Some(call) = &ids.tool_call
        && is_run
        && !view.call(call).is_some_and(|start| audience.admits(start))
    {
        let detail = format!("this run has no call {call}; name one of its calls, or none");
        return Err(ControlError::Invalid(InvalidControl {
            member: "toolCallId",
            detail,
            expected: "a call of this run".into(),
        }));
    }
    if record.of_attempt.is_some() && run.status.is_end() {
        return Err(ControlError::RunEnded { status: run.status.as_str(), control: request.control.to_string() });
    }
    if summary.controls.len() >= OPEN_CONTROLS_MAX {
        return Err(ControlError::TooMany);
    }
    // A delegated approval goes to the teammate that asked, and names that teammate.
    let asker = pending.and_then(|pending| pending.agent.as_ref());
    record.agent = summary.decider(ids.agent.as_ref().or(asker));
    if let (None, Some(asker)) = (&ids.agent, asker) {
        record.targets.insert("agentId".into(), asker.to_string());
    }
    record.audience = view.audience_about(&record.ids());
    let of_whole = ids.agent.as_ref().is_none_or(|agent| !view.is_teammate(agent));
    if is_run && request.ends_run() && of_whole {
        record.stops_run = true;
        record.of_attempt.get_or_insert(summary.run.attempt);
        if run.status.is_end() {
            return Err(ControlError::RunEnded { status: run.status.as_str(), control: request.control.to_string() });
        }
    }
    let millis = |wait: Duration| now.as_millisecond().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
    let by_action = pending.and_then(|pending| pending.expires_at).filter(|at| *at > now.as_millisecond());
    record.expires_at = match request.expiry {
        Some(Expiry::At(at)) => at.as_millisecond(),
        Some(Expiry::After(wait)) => millis(wait),
        None => by_action.unwrap_or_else(|| millis(TTL)).min(millis(TTL_MAX)),
    };
    (record.value, record.redacted) = redacted_value(request, is_credential(view, &ids));
    record.fingerprint = request.fingerprint(record.value.as_ref());
    Ok(record)
}

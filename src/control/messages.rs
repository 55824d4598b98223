//! How a message meets the pending actions of its agent: it waits for them, supersedes them, or is refused.

use super::aside::Aside;
use super::rules::{ControlRequest, Expiry};
use super::{ControlError, Requester};
use crate::ingest::{Ingest, ServerAppend, WriterView};
use crate::log::control::{ControlRecord, NOT_STARTED, SupersededAction, WaitTerms, closed_draft};
use crate::log::pending_actions::{OpenAction, PendingActions};
use crate::log::{LogId, StoreError};
use crate::model::{ActionOutcome, Audience, Control};
use std::collections::BTreeMap;

/// Adds to a message's record what it waits for and what it supersedes. A request beside the conversation does neither.
///
/// `scope` is the session of the message, or its run if that has none. A decision that is under way stands: the message
/// waits for it, as for an action that the requester cannot see.
///
/// # Errors
/// [`ControlError::WouldSupersede`] for a `send` that does not ask to supersede.
pub(super) fn settle_waits(
    record: &mut ControlRecord,
    request: &ControlRequest,
    log: &LogId,
    scope: &LogId,
    pending: &PendingActions,
    requester: &Requester,
) -> Result<(), ControlError> {
    if record.control == Control::Send && Aside::of(record.value.as_ref()).is_some() {
        record.audience = Audience::Internal;
        return Ok(());
    }
    let asked = match record.control {
        Control::Queue => Vec::new(),
        Control::Send => pending.of_agent(scope, &record.agent),
        _ => return Ok(()),
    };
    let reaches = |asked: &OpenAction| {
        asked.control.is_none() && requester.audience.admits(asked.audience) && (requester.has_session || asked.log == *log)
    };
    let superseded: Vec<_> = asked.iter().filter(|asked| reaches(asked)).collect();
    if !superseded.is_empty() && !request.supersede {
        return Err(ControlError::WouldSupersede { actions: superseded.iter().map(|asked| asked.action.clone()).collect() });
    }
    let is_held = pending.holds_back(scope, &record.agent);
    if !is_held && record.control == Control::Send {
        return Ok(());
    }
    let is_fixed = matches!(request.expiry, Some(Expiry::At(_)));
    let ttl = (!is_fixed).then(|| record.expires_at.saturating_sub(record.created_at));
    record.waits = Some(WaitTerms { ttl, supersedes: !superseded.is_empty() });
    if is_held && !is_fixed && (superseded.is_empty() || superseded.len() < asked.len()) {
        record.expires_at = NOT_STARTED;
    }
    record.supersedes = superseded.into_iter().map(|asked| SupersededAction::of(&asked.log, &asked.action)).collect();
    Ok(())
}

/// Resolves actions as superseded, except those that were resolved or decided meanwhile.
///
/// # Errors
/// The store's failure.
pub(super) async fn supersede(ingest: &Ingest, scope: &LogId, actions: &[SupersededAction]) -> Result<(), StoreError> {
    let mut by_log: BTreeMap<LogId, Vec<&SupersededAction>> = BTreeMap::new();
    for superseded in actions {
        by_log.entry(superseded.log(scope)).or_default().push(superseded);
    }
    for (log, actions) in by_log {
        let decide = |view: &WriterView<'_>| {
            let summary = view.summary;
            let open = summary.pending_actions.iter().filter(|pending| {
                let detail = summary.extension.actions.get(&pending.action);
                actions.iter().any(|superseded| superseded.action == pending.action)
                    && detail.is_none_or(|detail| detail.control.is_none())
            });
            let drafts = open
                .map(|pending| closed_draft(ActionOutcome::Superseded, pending.action.clone(), pending.agent.clone()))
                .collect();
            ((), ServerAppend { drafts, ..ServerAppend::default() })
        };
        ingest.append_as_server(&log, decide).await?;
    }
    Ok(())
}

/// The record of a message whose time to live starts now.
pub(super) fn start_time_to_live(record: &ControlRecord, now: jiff::Timestamp) -> Option<ControlRecord> {
    let ttl = record.waits?.ttl?;
    Some(ControlRecord { expires_at: now.as_millisecond().saturating_add(ttl), ..record.clone() })
}

/// The record of a claimed message that its owner returned, because an action of its agent is pending.
pub(super) fn held(record: ControlRecord) -> ControlRecord {
    let waits = record.waits.unwrap_or(WaitTerms { ttl: None, supersedes: false });
    let expires_at = if waits.ttl.is_some() { NOT_STARTED } else { record.expires_at };
    let reason = Some("The agent waits for a decision.".to_owned());
    ControlRecord { waits: Some(waits), expires_at, attempt: record.attempt.saturating_sub(1), reason, ..record }
}

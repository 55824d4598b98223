//! Actions that need several approvals.
//!
//! ```text
//!   approve (1 of 2) ─▶ queued, not leased
//!   approve (2 of 2) ─▶ the first is released: it is leased, with all who approved; the others close with its state
//!   reject           ─▶ is the decision; the approvals so far close
//! ```
//! Every other decision than a rejection counts as an approval, and all must say the same: the owner gets what each of its
//! approvers has said. Who counts is a person with a token of its own, who has not published the question.

use super::held::HeldSecrets;
use super::rules::ControlRequest;
use super::{ControlError, Requester};
use crate::environment::sabotage;
use crate::ingest::{ServerAppend, WriterView};
use crate::log::control::{Approval, ControlChange, ControlRecord, ControlState};
use crate::model::decided_by::{Decider, Via};
use crate::model::{ActionId, Control, ControlId};
use crate::waits::WaitRules;
use serde_json::Value;
use std::cmp::Reverse;

/// Why the approvals of an action that was rejected are closed.
pub const REJECTED: &str = "rejected";

/// How a decision about an action that needs several approvals goes on.
pub(super) enum Counted {
    /// It needs no other: it rejects, or one approval is enough.
    Alone,
    /// The same person has approved by this control.
    Joins(ControlId),
    /// It is one approval more, with the records that change with it.
    Adds(Approval, Vec<ControlRecord>),
}

/// How many approvals an action needs: the largest number that a rule or the question asks for.
fn need(view: &WriterView<'_>, rules: &WaitRules, action: &ActionId) -> u32 {
    let asked = view.question(action).map_or(1, |question| question.approvals);
    // The log does not know of every action which rules match it.
    view.waiting(action).map_or_else(|| rules.approvals_max(), |action| rules.approvals(&action)).max(asked)
}

/// The open approvals of an action that are not handed out, about the question as it is now, the oldest first.
fn open_approvals<'d>(view: &WriterView<'d>, action: &ActionId) -> Vec<&'d ControlRecord> {
    let is_open = |record: &&ControlRecord| {
        let is_lone = record.approval.as_ref().is_some_and(|approval| approval.lead.is_none() && approval.approvers.is_empty());
        record.state == ControlState::Open && is_lone && record.is_decision_of(action) && !view.is_outdated(record)
    };
    let mut open: Vec<_> = view.controls.values().filter(is_open).collect();
    open.sort_unstable_by_key(|record| record.queue_position);
    open
}

/// Counts a decision that the log would accept. `held` has the values with secrets.
///
/// # Errors
/// [`ControlError::NotCounted`].
pub(super) fn count(
    view: &WriterView<'_>,
    rules: &WaitRules,
    record: &ControlRecord,
    request: &ControlRequest,
    by: &Requester,
    held: &HeldSecrets,
) -> Result<Counted, ControlError> {
    let Some(action) = record.ids().action.filter(|action| record.is_decision_of(action)) else { return Ok(Counted::Alone) };
    let need = need(view, rules, &action);
    if need < 2 || record.control == Control::Reject {
        return Ok(Counted::Alone);
    }
    let refuse = |reason| ControlError::NotCounted { action: action.to_string(), need, reason };
    let decider = Decider { on_behalf_of: request.on_behalf_of.clone(), ..by.decider.clone() };
    let sub = countable(view, &action, &decider).map_err(refuse)?;
    let approvals = open_approvals(view, &action);
    if let Some(first) = approvals.first() {
        let is_same = match record.redacted || first.redacted {
            true => held.get(first.queue_position).and_then(|held| held.value.as_ref()) == request.value.as_ref(),
            false => says(record) == says(first),
        };
        if !is_same || record.control != first.control {
            return Err(refuse("the first approval says something else; say the same, or reject"));
        }
    }
    let of_sub = |known: &&&ControlRecord| known.decided_by.as_ref().and_then(|by| by.decider.sub.as_deref()) == Some(sub);
    if let Some(own) = approvals.iter().find(of_sub).filter(|_| !sabotage::is(49)) {
        return Ok(Counted::Joins(own.id.clone()));
    }
    let have = u32::try_from(approvals.len()).unwrap_or(u32::MAX).saturating_add(1);
    let mut changed: Vec<ControlRecord> = approvals.into_iter().cloned().collect();
    let own = Approval { have, need, approvers: Vec::new(), lead: None };
    if have < need {
        for known in &mut changed {
            known.approval = Some(own.clone());
        }
        return Ok(Counted::Adds(own, changed));
    }
    let approvers = changed.iter().filter_map(|known| known.decided_by.clone()).chain(record.decided_by.clone()).collect();
    let lead = changed[0].id.clone();
    for known in &mut changed {
        known.approval = Some(Approval { lead: Some(lead.clone()), ..own.clone() });
    }
    changed[0].approval = Some(Approval { approvers, ..own.clone() });
    Ok(Counted::Adds(Approval { lead: Some(lead), ..own }, changed))
}

/// The `sub` under which a decision counts.
fn countable<'b>(view: &WriterView<'_>, action: &ActionId, by: &'b Decider) -> Result<&'b str, &'static str> {
    let publishers = view.question(action).map(|question| &question.publishers);
    match (&by.sub, by.via) {
        (_, Via::Rule | Via::Link | Via::Runtime) => Err("only people approve, each with a token of their own"),
        (None, _) => Err("the request has no token with a sub, so that it cannot be told who approves"),
        (Some(_), _) if by.on_behalf_of.is_some() => Err("an approval on behalf of another person does not count"),
        (Some(sub), _) if publishers.is_some_and(|publishers| publishers.include(sub)) => {
            Err("the same sub has published the question; another person must approve")
        }
        (Some(sub), _) => Ok(sub),
    }
}

/// What a decision says, in one form: an approval may repeat that it approves.
fn says(record: &ControlRecord) -> Value {
    match super::with_option(record.value.clone(), record.chosen_option.as_deref()) {
        None | Some(Value::Bool(true)) => Value::Null,
        Some(Value::Object(mut members)) => {
            if members.get("approved") == Some(&Value::Bool(true)) {
                members.shift_remove("approved");
            }
            if members.is_empty() { Value::Null } else { Value::Object(members) }
        }
        Some(value) => value,
    }
}

/// The ends of the approvals of an action that another decision decides.
pub(super) fn end_approvals(view: &WriterView<'_>, by: &ControlRecord, is_run: bool) -> ServerAppend {
    let mut append = ServerAppend::default();
    let Some(action) = by.ids().action.filter(|action| by.is_decision_of(action)) else { return append };
    for record in open_approvals(view, &action) {
        let mut record = record.clone();
        record.approval = record.approval.map(|approval| Approval { have: 0, ..approval });
        append.extend(super::expire(&record, REJECTED, is_run));
    }
    append
}

/// The end of a control, with what changes by it of the approvals that belong to it.
pub(super) fn close(
    view: &WriterView<'_>,
    record: &ControlRecord,
    change: ControlChange,
    state: ControlState,
    reason: Option<&str>,
    is_run: bool,
) -> ServerAppend {
    let end = |record: ControlRecord| {
        let record = record.into_closed(state, reason);
        ServerAppend::of(record.change_draft(change, is_run), record)
    };
    let Some(approval) = &record.approval else { return end(record.clone()) };
    if !approval.approvers.is_empty() {
        // The others are one decision with it.
        let mut append = end(record.clone());
        for other in companions(view, &record.id) {
            append.extend(end(other.clone()));
        }
        return append;
    }
    let mut record = record.clone();
    let Some(action) = record.ids().action.filter(|_| approval.lead.is_none()) else { return end(record) };
    let mut others: Vec<_> = open_approvals(view, &action).into_iter().filter(|known| known.id != record.id).cloned().collect();
    let have = u32::try_from(others.len()).unwrap_or(u32::MAX);
    for known in others.iter_mut().chain([&mut record]) {
        known.approval = known.approval.take().map(|approval| Approval { have, ..approval });
    }
    let mut append = end(record);
    append.controls.extend(others);
    append
}

fn companions<'d>(view: &WriterView<'d>, lead: &ControlId) -> impl Iterator<Item = &'d ControlRecord> {
    let of_lead = |approval: &Approval| approval.lead.as_ref() == Some(lead);
    view.controls
        .values()
        .filter(move |record| record.state == ControlState::Open && record.approval.as_ref().is_some_and(of_lead))
}

/// The approvals of a control's action without it, if the owner has not claimed them: fewer than are needed.
///
/// `None`: they are claimed, and cannot be taken back.
pub(super) fn take_back(
    view: &WriterView<'_>,
    record: &ControlRecord,
    reason: &str,
    is_leased: impl Fn(&ControlRecord) -> bool,
    is_run: bool,
) -> Option<ServerAppend> {
    let lead = match &record.approval {
        Some(Approval { lead: Some(lead), .. }) => view.controls.get(lead)?,
        _ => record,
    };
    if is_leased(lead) {
        return None;
    }
    let is_full = lead.approval.as_ref().is_some_and(|approval| !approval.approvers.is_empty());
    if !is_full {
        return Some(close(view, record, ControlChange::Expired, ControlState::Expired, Some(reason), is_run));
    }
    let mut all: Vec<_> = companions(view, &lead.id).chain([lead]).cloned().collect();
    all.sort_unstable_by_key(|record| Reverse(record.queue_position));
    let have = u32::try_from(all.len() - 1).unwrap_or(u32::MAX);
    for known in &mut all {
        known.approval = known.approval.take().map(|approval| Approval { have, approvers: Vec::new(), lead: None, ..approval });
    }
    let own = all.iter().position(|known| known.id == record.id)?;
    let own = all.swap_remove(own).into_closed(ControlState::Expired, Some(reason));
    let mut append = ServerAppend::of(own.change_draft(ControlChange::Expired, is_run), own);
    append.controls.extend(all);
    Some(append)
}

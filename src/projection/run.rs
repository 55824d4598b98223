//! `run`: the state of the run. The first visible fact opens it; its end is visible to every audience.

use super::envelope_view::EnvelopeView;
use super::{FoldState, bodies};
use crate::model::{AgentId, EventType, Phase, RunId, SessionId, Surface, ThreadId};
use serde_json::{Map, Value, json};

/// The most notices that the activity keeps: progress without a call, and warnings.
const NOTICES_MAX: usize = 20;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    if !fold.is_run {
        return;
    }
    let is_of_teammate = fold.teammate(envelope).is_some();
    let FoldState { run, activities, log, own_agent, is_late, .. } = fold;
    let mut edit = activities.open("run", log, Surface::RuntimeStatus, None);
    let is_same_status = edit.text("status") == Some(run.status.as_str());
    let is_same = is_same_status && edit.text("phase") == Some(run.phase.as_str());
    edit.set_str("status", run.status.as_str());
    edit.set_str("phase", run.phase.as_str());
    edit.set("attempt", run.attempt);
    for (member, id) in [
        ("sessionId", envelope.ids.session.as_ref().map(SessionId::as_str)),
        ("threadId", envelope.ids.thread.as_ref().map(ThreadId::as_str)),
    ] {
        // A child's facts in this log name the child's session. A run's start names the run's own, even if that has a
        // parent.
        let is_own = envelope.ids.parent_session.is_none() || envelope.event_type == EventType::RunStarted;
        if edit.get(member).is_none() && is_own {
            edit.set_some(member, id);
        }
    }
    edit.set_some("agentId", own_agent.as_ref().map(AgentId::as_str));
    match run.stale {
        true => edit.set("stale", true),
        false => edit.remove("stale"),
    }
    // This also applies to a run that the server ended and that continues.
    if !run.status.is_end() {
        bodies::set(&mut edit, Map::new());
        for past in ["error", "retryable", "synthetic", "withheld", "result"] {
            edit.remove(past);
        }
    }
    if envelope.event_type != EventType::RunStatus {
        // The detail is outdated: the status changed, or the run does again what `detail` said it could not.
        let is_outdated = match edit.text("detail") {
            Some("blocked" | "retrying") => !is_same_status || !is_of_teammate && shows_work(&envelope.event_type),
            _ => !is_same_status,
        };
        if is_outdated {
            edit.remove("detail");
        }
    }
    if envelope.event_type.is_run_boundary() || envelope.event_type == EventType::RunStatus {
        edit.set_some("topology", envelope.text("topology"));
    }
    match envelope.event_type {
        EventType::RunStarted => {
            edit.remove("message");
            let parent = envelope.text("parentRunId").or_else(|| envelope.related("parentRunId").and_then(Value::as_str));
            edit.set_some("parentRunId", parent.filter(|parent| RunId::new(parent).is_ok()));
        }
        // Only the first end counts; a second one does not change the run's state.
        EventType::RunFinished | EventType::RunFailed if !*is_late => {
            edit.set_some("withheld", envelope.is_withheld().then_some(true));
            edit.set_some("error", envelope.get("error").cloned());
            edit.set_some("retryable", envelope.get("retryable").cloned());
            edit.set_some("synthetic", envelope.get("synthetic").cloned());
            edit.set_some("result", envelope.get("result").cloned());
            bodies::carry(envelope, &mut edit, &[("result", "result"), ("error", "error")]);
        }
        // The server's own fact: it received nothing from the run.
        EventType::RunStatus if envelope.get("stale").is_some() => {}
        EventType::RunStatus => {
            let (message, status) = (envelope.text("message"), envelope.text("status"));
            // A step or a notice does not change the run's state.
            let is_news = status.is_some() || !is_same;
            match message {
                Some(message) => edit.set_str("message", message),
                None if is_news => edit.remove("message"),
                None => {}
            }
            match status.filter(|word| !Phase::NAMES.contains(word) && *word != run.status.as_str()) {
                Some(word) => edit.set_str("detail", word),
                None if is_news => edit.remove("detail"),
                None => {}
            }
            if message.is_some() {
                edit.push_bounded("notices", notice(envelope), NOTICES_MAX);
            }
        }
        // Progress of an unknown call (Ethos joins progress to calls only by the tool's name), or of none.
        EventType::ToolProgress if envelope.ids.tool_call.is_none() && envelope.get("activityType").is_none() => {
            edit.push_bounded("notices", notice(envelope), NOTICES_MAX);
        }
        EventType::MetricChanged => {
            if let Some(usage) = envelope.get("usage").and_then(Value::as_object) {
                let sum = summed(edit.get("usage").and_then(Value::as_object), usage);
                edit.set("usage", sum);
            }
        }
        _ => {}
    }
}

/// The members of a notice.
fn notice(envelope: &EnvelopeView) -> Value {
    let mut notice = json!({ "sequence": envelope.sequence });
    for member in ["toolName", "message", "progress", "status", "severity", "code"] {
        if let Some(value) = envelope.get(member) {
            notice[member] = value.clone();
        }
    }
    notice
}

/// Whether a fact of this class shows that an agent works.
const fn shows_work(class: &EventType) -> bool {
    matches!(class, EventType::TextDelta | EventType::ReasoningDelta | EventType::PlanDelta | EventType::ToolStarted)
}

/// Marks that the log has more activities than the view shows.
pub(super) fn mark_omissions(fold: &mut FoldState) {
    fold.activities.open("run", &fold.log, Surface::RuntimeStatus, None).set("activitiesOmitted", true);
}

/// The sum of two usages: each model call reports its own.
pub(super) fn summed(known: Option<&Map<String, Value>>, more: &Map<String, Value>) -> Map<String, Value> {
    let mut sum = known.cloned().unwrap_or_default();
    for (member, value) in more {
        let total = match (sum.get(member), value) {
            (Some(known), value) if known.is_u64() && value.is_u64() => {
                json!(known.as_u64().unwrap_or(0).saturating_add(value.as_u64().unwrap_or(0)))
            }
            (Some(known), value) if known.is_number() && value.is_number() => {
                json!(known.as_f64().unwrap_or(0.0) + value.as_f64().unwrap_or(0.0))
            }
            (_, value) if value.is_number() => value.clone(),
            _ => continue,
        };
        sum.insert(member.clone(), total);
    }
    sum
}

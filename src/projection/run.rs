//! `run`: how the run stands. The first visible fact opens it, its end reaches everyone.

use super::Scene;
use super::seen::Seen;
use crate::model::{AgentId, EventType, Phase, RunId, SessionId, Surface, ThreadId};
use serde_json::{Map, Value, json};

/// What is kept of notices: progress that belongs to no single call, warnings.
const NOTICES_MAX: usize = 20;

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    if !scene.is_run {
        return;
    }
    let is_of_teammate = scene.teammate(seen).is_some();
    let Scene { run, stage, log, own_agent, is_late, .. } = scene;
    let mut edit = stage.open("run", log, Surface::RuntimeStatus, None);
    let is_same_status = edit.text("status") == Some(run.status.as_str());
    let is_same = is_same_status && edit.text("phase") == Some(run.phase.as_str());
    edit.say("status", run.status.as_str());
    edit.say("phase", run.phase.as_str());
    edit.set("attempt", run.attempt);
    for (member, id) in [
        ("sessionId", seen.ids.session.as_ref().map(SessionId::as_str)),
        ("threadId", seen.ids.thread.as_ref().map(ThreadId::as_str)),
    ] {
        // A child's facts in this log name the child's session; what starts the run names its own, though that be a child's.
        let is_own = seen.ids.parent_session.is_none() || seen.class == EventType::RunStarted;
        if edit.get(member).is_none() && is_own {
            edit.set_some(member, id);
        }
    }
    edit.set_some("agentId", own_agent.as_ref().map(AgentId::as_str));
    match run.stale {
        true => edit.set("stale", true),
        false => edit.remove("stale"),
    }
    // Also of a run that its server had given up, and that goes on.
    if !run.status.is_end() {
        for past in ["error", "retryable", "synthetic", "withheld", "result"] {
            edit.remove(past);
        }
    }
    if seen.class != EventType::RunStatus {
        // The word is past: the run stands otherwise, or does again what the word said that it could not.
        let is_past = match edit.text("detail") {
            Some("blocked" | "retrying") => !is_same_status || !is_of_teammate && goes_on(&seen.class),
            _ => !is_same_status,
        };
        if is_past {
            edit.remove("detail");
        }
    }
    if seen.class.is_run_boundary() || seen.class == EventType::RunStatus {
        edit.set_some("topology", seen.text("topology"));
    }
    match seen.class {
        EventType::RunStarted => {
            edit.remove("message");
            let parent = seen.text("parentRunId").or_else(|| seen.related("parentRunId").and_then(Value::as_str));
            edit.set_some("parentRunId", parent.filter(|parent| RunId::new(parent).is_ok()));
        }
        // The first end is the end; a second one tells nothing of how the run stands.
        EventType::RunFinished | EventType::RunFailed if !*is_late => {
            edit.set_some("withheld", seen.is_withheld().then_some(true));
            edit.set_some("error", seen.get("error").cloned());
            edit.set_some("retryable", seen.get("retryable").cloned());
            edit.set_some("synthetic", seen.get("synthetic").cloned());
            edit.set_some("result", seen.get("result").cloned());
        }
        // The server's own: nothing was heard.
        EventType::RunStatus if seen.get("stale").is_some() => {}
        EventType::RunStatus => {
            let (message, status) = (seen.text("message"), seen.text("status"));
            // A step or a notice says nothing of how the run stands.
            let is_news = status.is_some() || !is_same;
            match message {
                Some(message) => edit.say("message", message),
                None if is_news => edit.remove("message"),
                None => {}
            }
            match status.filter(|word| !Phase::NAMES.contains(word) && *word != run.status.as_str()) {
                Some(word) => edit.say("detail", word),
                None if is_news => edit.remove("detail"),
                None => {}
            }
            if message.is_some() {
                edit.push_bounded("notices", notice(seen), NOTICES_MAX);
            }
        }
        // Of a call that nobody can name (Ethos joins progress to calls by the tool's name alone), or of no call at all.
        EventType::ToolProgress if seen.ids.tool_call.is_none() && seen.get("activityType").is_none() => {
            edit.push_bounded("notices", notice(seen), NOTICES_MAX);
        }
        EventType::MetricChanged => {
            if let Some(usage) = seen.get("usage").and_then(Value::as_object) {
                let sum = added(edit.get("usage").and_then(Value::as_object), usage);
                edit.set("usage", sum);
            }
        }
        _ => {}
    }
}

/// What is kept of a notice, and how much it matters.
fn notice(seen: &Seen) -> Value {
    let mut notice = json!({ "sequence": seen.sequence });
    for member in ["toolName", "message", "progress", "status", "severity", "code"] {
        if let Some(value) = seen.get(member) {
            notice[member] = value.clone();
        }
    }
    notice
}

/// Whether a fact of this class shows an agent at work.
const fn goes_on(class: &EventType) -> bool {
    matches!(class, EventType::TextDelta | EventType::ReasoningDelta | EventType::PlanDelta | EventType::ToolStarted)
}

/// There is more in the log than is shown.
pub(super) fn leaves_out(scene: &mut Scene) {
    scene.stage.open("run", &scene.log, Surface::RuntimeStatus, None).set("activitiesOmitted", true);
}

/// Usage is told per call of a model, and adds up.
pub(super) fn added(known: Option<&Map<String, Value>>, more: &Map<String, Value>) -> Map<String, Value> {
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

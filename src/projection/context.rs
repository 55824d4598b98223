//! `context`, `compaction` and `permission`: the model's input, the compactions of its memory, and its permissions.
//!
//! The seed names no members here, so the source's members are copied in brief. A fact that names its object has an
//! activity of its own; the others share one activity, whose id equals its type.

use super::seen::Seen;
use super::{Scene, carry};
use crate::model::{AgentId, EventType, Phase, Surface};
use serde_json::{Map, Value};

const COMPACTION: &str = "compaction";

pub(super) fn context(seen: &Seen, scene: &mut Scene) {
    if seen.class != EventType::ContextChanged {
        return;
    }
    let id = carry::name(seen, &["contextId"]).or_else(|| owner(seen, scene)).unwrap_or_else(|| "context".into());
    let surface = if seen.surface == Surface::Diagnostics { Surface::Diagnostics } else { Surface::InlineProcess };
    let mut edit = scene.stage.open("context", &id, surface, seen.ids.agent.as_ref());
    carry::all_in_brief(seen, &mut edit, &[]);
    carry::refs(seen, &mut edit);
}

/// The teammate of the fact: its context, memory and permissions are apart from those of the run's own agent.
fn owner(seen: &Seen, scene: &Scene) -> Option<String> {
    scene.teammate(seen).map(|agent: &AgentId| agent.as_str().to_owned())
}

pub(super) fn compaction(seen: &Seen, scene: &mut Scene) {
    let starts = match seen.class {
        EventType::ContextCompactionStarted => true,
        EventType::ContextCompactionCompleted => false,
        _ => return,
    };
    let id = carry::name(seen, &["compactionId", "id"]).or_else(|| owner(seen, scene)).unwrap_or_else(|| COMPACTION.into());
    let mut edit = scene.stage.open(COMPACTION, &id, Surface::InlineProcess, seen.ids.agent.as_ref());
    if starts && edit.get("status").is_some_and(|status| status != "running") {
        edit.replace(Map::new());
    }
    let status = match &seen.phase {
        _ if starts => "running",
        Phase::Failed => "failed",
        Phase::Cancelled => "cancelled",
        Phase::Interrupted => "interrupted",
        _ => seen.text("status").unwrap_or("completed"),
    };
    edit.say("status", status);
    if seen.is_withheld() {
        return edit.set("withheld", true);
    }
    edit.remove("withheld");
    carry::all_in_brief(seen, &mut edit, &["status"]);
    carry::refs(seen, &mut edit);
}

/// Interrupts the running compactions, because the run has ended.
pub(super) fn end_compactions(scene: &mut Scene) {
    for id in scene.stage.ids(COMPACTION, |a| a.content.get("status").and_then(Value::as_str) == Some("running")) {
        scene.stage.edit(COMPACTION, &id).expect("the id was listed above").say("status", "interrupted");
    }
}

/// Members about one decision; the next decision removes them.
const OF_ONE_DECISION: &[&str] = &["status", "decision", "reason", "message", "risk", "toolName", "expiresAt"];
const IDS_OF_ONE_DECISION: &[&str] = &["toolCallId", "actionId", "agentId", "taskId"];

pub(super) fn permission(seen: &Seen, scene: &mut Scene) {
    if seen.class != EventType::PermissionChanged {
        return;
    }
    let id = carry::name(seen, &["permissionId", "policyId"]).or_else(|| owner(seen, scene));
    let id = id.unwrap_or_else(|| "permission".into());
    let mut edit = scene.stage.open("permission", &id, Surface::TeamPolicy, seen.ids.agent.as_ref());
    let mut told = Vec::new();
    seen.ids.for_each(|name, _| told.push(name));
    for member in OF_ONE_DECISION {
        if seen.said(member).is_none() {
            edit.remove(member);
        }
    }
    for id in IDS_OF_ONE_DECISION {
        if !told.contains(id) {
            edit.remove(id);
        }
    }
    carry::all_in_brief(seen, &mut edit, &[]);
    carry::ids(seen, &mut edit, IDS_OF_ONE_DECISION);
    carry::refs(seen, &mut edit);
}

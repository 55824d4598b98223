//! `context`, `compaction` and `permission`: a model's input, its memory's cuts, its permissions.
//!
//! The seed names no members here, so the source's members are copied in brief. A fact that names its object has an
//! activity of its own; the others share one activity, whose id equals its type.

use super::envelope_view::EnvelopeView;
use super::members::{Any, Mark, Str, TypedContent, WITHHELD, WITHHELD_ABOUT, content};
use super::{FoldState, carry};
use proscenium_model::fact::{CompactionFact, ContextFact, FactFamily, PermissionFact};
use proscenium_model::{AgentId, EventType, Phase, Surface};
use serde_json::Map;

content! {
    CONTEXT = "context" of ContextFact,
    "The model's input: references, budgets, results and missing parts. The members have the source's names, bounded, without bodies.";
    "refs": Any, Sometimes, "References to the origin.";
}

content! {
    COMPACTION = "compaction" of CompactionFact,
    "A compaction of the model's memory. The members have the source's names, bounded, without bodies.";
    "status": Str, Always as STATUS, "running, completed, failed or cancelled; interrupted if the run ended first.";
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
}

content! {
    PERMISSION = "permission" of PermissionFact,
    "The permissions that a policy grants. The members have the source's names, bounded. Members about one decision are removed by the next.";
    "toolCallId": Str, Sometimes, "The call that the last decision is about.";
    "actionId": Str, Sometimes, "The action that the decision answers.";
    "agentId": Str, Sometimes, "The agent that the decision applies to.";
    "taskId": Str, Sometimes, "The task that the decision is about.";
}

pub(super) fn context(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::ContextChanged {
        return;
    }
    let id = carry::named(envelope, &["contextId"]).or_else(|| owner(envelope, fold)).unwrap_or_else(|| "context".into());
    let surface = if envelope.surface == Surface::Diagnostics { Surface::Diagnostics } else { Surface::InlineProcess };
    let mut edit = fold.activities.open("context", &id, surface, envelope.ids.agent.as_ref());
    carry::all_in_brief(envelope, &mut edit, &[]);
    carry::refs(envelope, &mut edit);
}

/// The teammate of the fact.
///
/// Its context, memory and permissions are apart from those of the run's own agent.
fn owner(envelope: &EnvelopeView, fold: &FoldState) -> Option<String> {
    fold.teammate(envelope).map(|agent: &AgentId| agent.as_str().to_owned())
}

pub(super) fn compaction(envelope: &EnvelopeView, fold: &mut FoldState) {
    let starts = match envelope.event_type {
        EventType::ContextCompactionStarted => true,
        EventType::ContextCompactionCompleted => false,
        _ => return,
    };
    let id = carry::named(envelope, &["compactionId", "id"]);
    let id = id.or_else(|| owner(envelope, fold)).unwrap_or_else(|| COMPACTION.kind.into());
    let mut edit = fold.activities.open(COMPACTION.kind, &id, Surface::InlineProcess, envelope.ids.agent.as_ref());
    if starts && edit.read(STATUS).is_some_and(|status| status != "running") {
        edit.replace(Map::new());
    }
    let status = match &envelope.phase {
        _ if starts => "running",
        Phase::Failed => "failed",
        Phase::Cancelled => "cancelled",
        Phase::Interrupted => "interrupted",
        _ => envelope.text("status").unwrap_or("completed"),
    };
    edit.set(STATUS, status);
    if envelope.is_withheld() {
        return edit.set(WITHHELD, true);
    }
    edit.remove(WITHHELD);
    carry::all_in_brief(envelope, &mut edit, &["status"]);
    carry::refs(envelope, &mut edit);
}

/// Interrupts the running compactions, because the run has ended.
pub(super) fn end_compactions(fold: &mut FoldState) {
    for id in fold.activities.ids(COMPACTION.kind, |compaction| compaction.content.read(STATUS) == Some("running")) {
        fold.activities.edit(COMPACTION.kind, &id).expect("the id was listed above").set(STATUS, "interrupted");
    }
}

/// Ids of the permissions.
const PERMISSION_IDS: &[&str] = &["permissionId", "policyId"];
/// Ids about one decision; the next decision removes them.
const DECISION_IDS: &[&str] = &["toolCallId", "actionId", "agentId", "taskId"];

pub(super) fn permission(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::PermissionChanged {
        return;
    }
    let id = carry::named(envelope, PERMISSION_IDS).or_else(|| owner(envelope, fold));
    let id = id.unwrap_or_else(|| "permission".into());
    let mut edit = fold.activities.open("permission", &id, Surface::TeamPolicy, envelope.ids.agent.as_ref());
    let mut stated = Vec::new();
    envelope.ids.for_each(|name, _| stated.push(name));
    // All but the ids are about one decision; the next decision removes them.
    for (member, _) in PermissionFact::COPIED.iter().filter(|(member, _)| !PERMISSION_IDS.contains(member)) {
        if envelope.member(member).is_none() {
            edit.remove_named(member);
        }
    }
    for id in DECISION_IDS {
        if !stated.contains(id) {
            edit.remove_named(id);
        }
    }
    carry::all_in_brief(envelope, &mut edit, &[]);
    carry::ids(envelope, &mut edit, DECISION_IDS);
    carry::refs(envelope, &mut edit);
}

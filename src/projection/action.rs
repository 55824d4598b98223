//! `action`: a request that waits for a decision.
//!
//! It stays pending until its owner resolves it: a reader's answer changes only `control`.

use super::activity_set::Edit;
use super::envelope_view::EnvelopeView;
use super::{ACTION_KIND as KIND, FoldState, bodies, carry, subject, tool_call};
use crate::model::decided_by::{DECIDED_BY, RESOLVED_BY};
use crate::model::time::parse_time;
use crate::model::version::QUESTION_VERSION;
use crate::model::visibility::CALL_WITHHELD;
use crate::model::{ActionOutcome, EventType, Surface, ToolCallId, options};
use serde_json::{Map, Value, json};

/// Members of the request. `model::visibility::without_call` omits the members that describe the call.
#[rustfmt::skip]
const MEMBERS: &[&str] = &[
    "title", "message", "reason", "description", "schema", "responseSchema", "options", "default", "risk", "scope", "toolName",
    "input", "safeInput", "parameters", "payload", "plan", "versionId", "artifactRefs", "evidenceRefs", "expiresAt",
    "policyScope", "parentRouting", "agentName", "teamName", "runtimeEntity", "resumeMode", "sourceActionId", "sourceToolCallId",
];

/// The members that say what is decided: of one request, and of several.
const SUBJECTS: [&str; 2] = ["subject", "subjects"];

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    match envelope.event_type {
        EventType::ActionRequired => required(envelope, fold),
        EventType::ActionResolved => resolved(envelope, fold),
        EventType::ControlChanged => control(envelope, fold),
        EventType::ToolStarted | EventType::ToolArgs => {
            let call = envelope.ids.tool_call.as_ref().map(ToolCallId::as_str);
            if let Some(action) = call.and_then(|call| tool_call::action_of(fold, call)) {
                if let Some(mut edit) = fold.activities.edit(KIND, &action)
                    && let Some(version) = envelope.get(QUESTION_VERSION)
                {
                    edit.set(QUESTION_VERSION, version.clone());
                    edit.remove("parameters");
                }
                copy_from_call(fold, &action);
                describe(fold, &action);
            }
        }
        _ => {}
    }
}

/// Copies the tool and its arguments from the call, if the action does not have them.
fn copy_from_call(fold: &mut FoldState, action: &str) {
    let Some(call) = tool_call::waiting_call(fold, action).and_then(|call| fold.activities.get(tool_call::KIND, call)) else {
        return;
    };
    let known = &fold.activities.get(KIND, action).expect("`waiting_call` found the action").content;
    let (mut taken, mut bodies) = (Vec::new(), bodies::copied(known));
    for (member, of_call) in [("toolName", "tool_name"), ("parameters", "input")] {
        let value = call.content.get(of_call).filter(|value| **value != "" && !known.contains_key(member));
        if let Some(value) = value {
            taken.push((member, value.clone()));
            bodies.retain(|pointer, _| !bodies::is_within(pointer, &format!("/{member}")));
            bodies.extend(bodies::moved_to(&call.content, &format!("/{of_call}"), &format!("/{member}")));
        }
    }
    if taken.is_empty() {
        return;
    }
    let mut edit = fold.activities.edit(KIND, action).expect("`waiting_call` found the action");
    for (member, value) in taken {
        edit.set(member, value);
    }
    bodies::set(&mut edit, bodies);
}

fn required(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(mut edit) = open(envelope, fold) else { return };
    // A request after an answer is a new request.
    if edit.get("status").is_some_and(|status| status != "pending") {
        edit.replace(Map::new());
    }
    for of_decision in ["control", "controlId", DECIDED_BY, RESOLVED_BY] {
        edit.remove(of_decision);
    }
    edit.set_str("status", "pending");
    edit.set_some("kind", envelope.text("kind"));
    carry::members(envelope, &mut edit, MEMBERS);
    // Sources use either name for one thing.
    let schema = envelope.get("responseSchema").or_else(|| envelope.get("schema"));
    let same = [("schema", schema), ("responseSchema", schema), ("parameters", envelope.get("input"))];
    for (member, value) in same.into_iter().filter(|(member, _)| envelope.member(member).is_none()) {
        edit.set_some(member, value.cloned());
    }
    set_deadline(&mut edit);
    match envelope.get(QUESTION_VERSION) {
        Some(version) => edit.set(QUESTION_VERSION, version.clone()),
        None => edit.remove(QUESTION_VERSION),
    }
    // Envelopes of older versions have previews here.
    let given = if envelope.member("parameters").is_some() { "parameters" } else { "input" };
    bodies::carry(envelope, &mut edit, &[("input", "input"), (given, "parameters"), ("payload", "payload")]);
    // `payload` holds a source's own members. A card needs this one: a user cannot type a sign-in, as they type a password.
    if let (Some(kind), None) = (envelope.text("credentialKind"), envelope.member("payload")) {
        edit.set("payload", json!({ "credentialKind": kind }));
    }
    // The author of the request: a delegated approval names its teammate.
    carry::ids(envelope, &mut edit, &["toolCallId", "agentId", "taskId", "artifactId", "evidenceId"]);
    carry::refs(envelope, &mut edit);
    name_kind(&mut edit);
    if let Some(options) = edit.get("options").and_then(options::normalize) {
        edit.set("options", options);
    }
    match envelope.member("title") {
        Some(Value::Null) => edit.remove("titleFrom"),
        Some(_) => edit.set_str("titleFrom", "source"),
        None => {}
    }
    if let Some(action) = &envelope.ids.action {
        copy_from_call(fold, action.as_str());
        // This audience must not see what the call does, and the question may repeat it.
        if envelope.extra.get(CALL_WITHHELD).is_none() {
            describe(fold, action.as_str());
        }
    }
}

/// Sets the subject of a pending action, and its title unless the source has one.
fn describe(fold: &mut FoldState, action: &str) {
    let Some(content) = fold.activities.get(KIND, action).map(|known| &known.content) else { return };
    if content.get("status").is_none_or(|status| status != "pending") {
        return;
    }
    let call = content.get("toolCallId").and_then(Value::as_str).and_then(|call| fold.activities.get(tool_call::KIND, call));
    let mut traces = bodies::Traces::default();
    let (marked, call) = (traces.mark(content), call.map(|call| traces.mark(&call.content)));
    let subject::Description { mut subjects, mut title } = subject::describe(&marked, call.as_deref());
    if let Some(title) = &mut title {
        traces.unmark(title);
    }
    let mut bodies = bodies::copied(content);
    bodies.retain(|pointer, _| !SUBJECTS.iter().any(|member| bodies::is_within(pointer, &format!("/{member}"))));
    let Some(mut edit) = fold.activities.edit(KIND, action) else { return };
    match title {
        _ if edit.text("titleFrom") == Some("source") => {}
        Some(title) => {
            edit.set("title", title);
            edit.set_str("titleFrom", "server");
        }
        None => ["title", "titleFrom"].iter().for_each(|member| edit.remove(member)),
    }
    let several = if subjects.len() > 1 { std::mem::take(&mut subjects) } else { Vec::new() };
    for (member, value) in SUBJECTS.into_iter().zip([subjects.pop(), (!several.is_empty()).then_some(several.into())]) {
        match value {
            Some(mut value) => {
                traces.take(&format!("/{member}"), &mut value, &mut bodies);
                edit.set(member, value);
            }
            None => edit.remove(member),
        }
    }
    bodies::set(&mut edit, bodies);
}

/// Writes the deadline as RFC 3339 with a zone, as every client reads it. One that is no time counts as none.
fn set_deadline(edit: &mut Edit<'_>) {
    let Some(deadline) = edit.get("expiresAt") else { return };
    match parse_time(deadline) {
        Some(_) if deadline.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()) => {}
        Some(time) => edit.set("expiresAt", time.to_string()),
        None => edit.remove("expiresAt"),
    }
}

fn open<'s>(envelope: &EnvelopeView, fold: &'s mut FoldState) -> Option<Edit<'s>> {
    let id = envelope.ids.action.as_ref()?;
    Some(fold.activities.open(KIND, id.as_str(), Surface::Hitl, envelope.ids.agent.as_ref()))
}

fn name_kind(edit: &mut Edit<'_>) {
    if edit.get("kind").is_none() {
        edit.set("kind", "unknown");
    }
}

fn resolved(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(mut edit) = open(envelope, fold) else { return };
    // LangGraph's stream shows only later that a question was answered, and not how: the answer itself is known already.
    let is_inferred = envelope.text("outcome") == Some("answered") && envelope.get("value").is_none();
    if is_inferred && edit.text("status") == Some("resolved") && edit.get("outcome").is_some() {
        return;
    }
    // The runtime only says that it got no answer.
    let is_refusal = matches!(envelope.text("outcome"), Some("rejected" | "cancelled"));
    if is_refusal && edit.text("status") == Some("resolved") && edit.text("outcome") == Some(ActionOutcome::Expired.as_str()) {
        return;
    }
    name_kind(&mut edit);
    edit.set_str("status", "resolved");
    match envelope.is_withheld() {
        true => edit.set("withheld", true),
        false => {
            edit.remove("withheld");
            edit.set_some("outcome", envelope.text("outcome"));
            edit.set_some("value", envelope.get("value").cloned());
            edit.set_some(RESOLVED_BY, envelope.member(RESOLVED_BY).cloned());
            name_decision(envelope, &mut edit);
        }
    }
    edit.remove("control");
}

/// Copies who decided, and by which control.
fn name_decision(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    for member in ["controlId", DECIDED_BY] {
        match envelope.get(member) {
            Some(value) => edit.set(member, value.clone()),
            None => edit.remove(member),
        }
    }
}

/// A reader's answer is in transit to the action's owner, or was lost there.
fn control(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(id) = &envelope.ids.action else { return };
    let Some(mut edit) = fold.activities.edit(KIND, id.as_str()).filter(|edit| edit.text("status") == Some("pending")) else {
        return;
    };
    let goes_on = envelope.get("requeued") == Some(&Value::Bool(true));
    match envelope.text("status") {
        Some("expired" | "nacked" | "failed") if !goes_on => {
            for of_decision in ["control", "controlId", DECIDED_BY] {
                edit.remove(of_decision);
            }
        }
        _ => {
            edit.set("control", "submitted");
            name_decision(envelope, &mut edit);
        }
    }
}

/// Interrupts the pending actions, because the run has ended.
pub(super) fn interrupt_all(fold: &mut FoldState) {
    for id in fold.activities.ids(KIND, |action| action.content.get("status").and_then(Value::as_str) == Some("pending")) {
        let mut edit = fold.activities.edit(KIND, &id).expect("the id was listed above");
        edit.set_str("status", "interrupted");
        edit.remove("control");
    }
}

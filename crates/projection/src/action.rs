//! `action`: a request that waits for a decision.
//!
//! It stays pending until its owner resolves it: a reader's answer changes only `control`.

use super::activity_set::{Activity, Edit};
use super::envelope_view::EnvelopeView;
use super::members::{
    ACTION_STATUS, ActionStatus, Any, Flag, Mark, Member, MemberType, Object, Str, TOOL_CALL_ID, TypedContent, WITHHELD,
    WITHHELD_ABOUT, content, open_set,
};
use super::{ACTION_KIND as KIND, FoldState, bodies, carry, stated, subject, tool_call};
use proscenium_model::decided_by;
use proscenium_model::fact::{ActionFact, ControlFact, WaitStepFact};
use proscenium_model::options::{Effect, OPTIONS_MAX, Width};
use proscenium_model::time::parse_time;
use proscenium_model::visibility::CALL_WITHHELD;
use proscenium_model::{ActionKind, ActionOutcome, EventType, Surface, ToolCallId, options};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

content! {
    ACTION = "action" of ActionFact {
        TITLE = "title", MESSAGE = "message", SCHEMA = "schema", RESPONSE_SCHEMA = "responseSchema", TOOL_NAME = "toolName",
        PARAMETERS = "parameters", PAYLOAD = "payload", EXPIRES_AT = "expiresAt"
    },
    "A request that waits for a decision. It is pending until its owner resolves it or the run ends.";
    "kind": Str, Always as ACTION_KIND with open_set(ActionKind::NAMES),
        "The kind of request; unknown if no fact states it.";
    "status": ActionStatus, Always,
        "Whether the request still waits. A reader's answer alone does not resolve it.";
    "outcome": Str, Sometimes as OUTCOME with open_set(ActionOutcome::NAMES),
        "The decision. `superseded`: the conversation went on without one.";
    "value": Any, Sometimes as VALUE, "The answer.";
    "titleFrom": Str, Sometimes as TITLE_FROM with json!({ "enum": [BY_SOURCE, BY_SERVER] }),
        "Whether the source wrote the title, or the server made it from the subject.";
    "subject": Any, Sometimes as SUBJECT with subject::schema(),
        "What is decided. Absent for readers that cannot see the call.";
    "subjects": Any, Sometimes as SUBJECTS with json!({ "type": "array", "items": subject::schema() }),
        "What is decided, where one action has several requests.";
    "options": Any, Sometimes as OPTIONS with options_schema(),
        "The choices: allow, reject, answer, and within them from narrow to wide.";
    "artifactId": Str, Sometimes, "The artifact under review.";
    "evidenceId": Str, Sometimes, "The evidence under review.";
    "refs": Any, Sometimes, "The references of the request.";
    "toolCallId": Str, Sometimes, "The call that the request is about.";
    "agentId": Str, Sometimes, "The agent that asks.";
    "taskId": Str, Sometimes, "The task that the request belongs to.";
    "control": Str, Sometimes as CONTROL with json!({ "enum": [SUBMITTED] }),
        "A reader's answer is in transit to the owner.";
    "controlId": Any, Sometimes as CONTROL_ID with Str::schema(), "The control that decides the action.";
    "decidedBy": Any, Sometimes as DECIDED_BY with decided_by::schema(),
        "Who decided, as the server knows it. Users do not get `sub`, `name` and `onBehalfOf`.";
    "resolvedBy": Any, Sometimes as RESOLVED_BY, "Who resolved the action, as its producer says.";
    "questionVersion": Any, Sometimes as QUESTION_VERSION,
        "The version of the question, from the second on: another content is another version.";
    "quorum": Any, Sometimes as QUORUM with quorum_schema(), "The approvals so far, of an action that needs several.";
    "reminded": Any, Sometimes as REMINDED with step_schema(), "The last reminder that a rule of the operator sent.";
    "escalated": Any, Sometimes as ESCALATED with step_schema(), "The last time that a rule of the operator told further receivers.";
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
    "clipped": Flag, Sometimes, bodies::CLIPPED_ABOUT;
    "bodies": Object, Sometimes with bodies::schema(), bodies::ABOUT;
}

/// Members that an entry of a list of pending actions has as the content has them.
pub const LISTED: [&str; 6] = ["risk", EXPIRES_AT.name(), CONTROL.name(), QUORUM.name(), REMINDED.name(), ESCALATED.name()];

const SUBMITTED: &str = "submitted";
/// Who wrote a title.
const BY_SOURCE: &str = "source";
const BY_SERVER: &str = "server";

fn quorum_schema() -> Value {
    json!({
        "type": "object",
        "required": ["have", "need"],
        "properties": {
            "have": { "description": "The people who have approved.", "type": "integer" },
            "need": { "description": "The people who must approve.", "type": "integer" },
        },
    })
}

fn step_schema() -> Value {
    json!({
        "type": "object",
        "required": ["step", "at"],
        "properties": {
            "step": { "description": "The number of the step among those of the action, from 1.", "type": "integer" },
            "at": { "description": "When the server did it, RFC 3339 in UTC.", "type": "string" },
        },
    })
}

fn options_schema() -> Value {
    json!({
        "type": "array",
        "maxItems": OPTIONS_MAX,
        "items": {
            "type": "object",
            "properties": {
                "optionId": { "description": "The id by which a control names the option.", "type": "string" },
                "label": {
                    "description": "The source's words; for readers that cannot see the call, only what the option does.",
                    "type": "string",
                },
                "kind": { "description": "The source's own kind.", "type": "string" },
                "description": { "description": "What the option leads to." },
                "effect": { "description": "What the option does to the request.", "enum": Effect::NAMES },
                "width": { "description": "How far the option reaches.", "enum": Width::NAMES },
                "value": { "description": "The answer that the option gives, in the source's own form." },
            },
            "required": ["effect", "width"],
        },
    })
}

/// Members that say who decided, and by which control.
const DECISION: [Member<Any>; 2] = [CONTROL_ID, DECIDED_BY];

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    match envelope.event_type {
        EventType::ActionRequired | EventType::ActionResolved => apply(envelope, &envelope.fact(), fold),
        EventType::ControlChanged => control(envelope, &envelope.fact(), fold),
        EventType::ActionReminded => note_step(envelope, REMINDED, fold),
        EventType::ActionEscalated => note_step(envelope, ESCALATED, fold),
        EventType::ToolStarted | EventType::ToolArgs => {
            let call = envelope.ids.tool_call.as_ref().map(ToolCallId::as_str);
            if let Some(action) = call.and_then(|call| tool_call::action_of(fold, call)) {
                if let Some(mut edit) = fold.activities.edit(KIND, &action)
                    && let Some(version) = envelope.get(QUESTION_VERSION.name())
                {
                    edit.set(QUESTION_VERSION, version.into_value());
                    edit.remove(PARAMETERS);
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
    for (member, of_call) in [(TOOL_NAME, tool_call::TOOL_NAME.name()), (PARAMETERS, tool_call::INPUT.name())] {
        let value = call.content.get(of_call).filter(|value| **value != "" && !known.has(member));
        if let Some(value) = value {
            let at = format!("/{}", member.name());
            taken.push((member, value.clone()));
            bodies.retain(|pointer, _| !bodies::is_within(pointer, &at));
            bodies.extend(bodies::moved_to(&call.content, &format!("/{of_call}"), &at));
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

/// Applies what a fact says of a request.
///
/// The pattern names every member: a new one does not compile before the fold uses or ignores it here.
fn apply(envelope: &EnvelopeView, fact: &ActionFact, fold: &mut FoldState) {
    #[rustfmt::skip]
    let ActionFact {
        kind, title, schema, response_schema, input, parameters, payload, credential_kind, question_version,
        outcome, value, resolved_by, control_id, decided_by,
        // Contents have the first ones as they are, and the run's state the last.
        options: _, expires_at: _, synthetic: _, extra: _,
    } = fact;
    let Some(mut edit) = open(envelope, fold) else { return };
    if envelope.event_type == EventType::ActionResolved {
        let decision = [control_id, decided_by];
        return resolve(envelope, &mut edit, outcome.as_deref(), stated(value.as_deref()), resolved_by.as_deref(), decision);
    }
    // A request after an answer is a new request.
    if edit.read(ACTION_STATUS).is_some_and(|status| status != ActionStatus::Pending) {
        edit.replace(Map::new());
    }
    edit.remove(CONTROL);
    for of_decision in [CONTROL_ID, DECIDED_BY, RESOLVED_BY] {
        edit.remove(of_decision);
    }
    edit.set(ACTION_STATUS, ActionStatus::Pending);
    edit.set_some(ACTION_KIND, kind.as_deref());
    carry::copied::<ActionFact>(envelope, &mut edit);
    // Sources use either name for one thing.
    let one_schema = stated(response_schema.as_deref()).or_else(|| stated(schema.as_deref()));
    let same = [
        (SCHEMA, schema, one_schema.clone()),
        (RESPONSE_SCHEMA, response_schema, one_schema),
        (PARAMETERS, parameters, stated(input.as_deref())),
    ];
    for (member, _, value) in same.into_iter().filter(|(_, own, _)| own.is_none()) {
        edit.set_some(member, value);
    }
    set_deadline(&mut edit);
    let version = stated(question_version.as_deref());
    let is_full = edit.read(QUORUM).is_some_and(|quorum| quorum["have"] == quorum["need"]);
    if is_full || edit.read(QUESTION_VERSION) != version.as_ref() {
        edit.remove(QUORUM);
    }
    match version {
        Some(version) => edit.set(QUESTION_VERSION, version),
        None => edit.remove(QUESTION_VERSION),
    }
    // Envelopes of older versions have previews here.
    let given = if parameters.is_some() { "parameters" } else { "input" };
    bodies::carry(envelope, &mut edit, &[("input", "input"), (given, "parameters"), ("payload", "payload")]);
    // `payload` holds a source's own members. A card needs this one: a user cannot type a sign-in, as they type a password.
    if let (Some(kind), None) = (credential_kind, payload) {
        edit.set(PAYLOAD, json!({ "credentialKind": kind }));
    }
    // The author of the request: a delegated approval names its teammate.
    carry::ids(envelope, &mut edit, &["toolCallId", "agentId", "taskId", "artifactId", "evidenceId"]);
    carry::refs(envelope, &mut edit);
    name_kind(&mut edit);
    if let Some(options) = edit.read(OPTIONS).and_then(options::normalize) {
        edit.set(OPTIONS, Value::from(options));
    }
    match title.as_deref() {
        Some(title) if title.is_null() => edit.remove(TITLE_FROM),
        Some(_) => edit.set(TITLE_FROM, BY_SOURCE),
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
    if content.read(ACTION_STATUS) != Some(ActionStatus::Pending) {
        return;
    }
    let call = content.read(TOOL_CALL_ID).and_then(|call| fold.activities.get(tool_call::KIND, call));
    let mut traces = bodies::Traces::default();
    let (marked, call) = (traces.mark(content), call.map(|call| traces.mark(&call.content)));
    let subject::Description { mut subjects, mut title } = subject::describe(&marked, call.as_deref());
    if let Some(title) = &mut title {
        traces.unmark(title);
    }
    let mut bodies = bodies::copied(content);
    let is_of_subject =
        |pointer: &str| [SUBJECT, SUBJECTS].iter().any(|at| bodies::is_within(pointer, &format!("/{}", at.name())));
    bodies.retain(|pointer, _| !is_of_subject(pointer));
    let Some(mut edit) = fold.activities.edit(KIND, action) else { return };
    match title {
        _ if edit.read(TITLE_FROM) == Some(BY_SOURCE) => {}
        Some(title) => {
            edit.set(TITLE, Value::from(title));
            edit.set(TITLE_FROM, BY_SERVER);
        }
        None => {
            edit.remove(TITLE);
            edit.remove(TITLE_FROM);
        }
    }
    let several = if subjects.len() > 1 { std::mem::take(&mut subjects) } else { Vec::new() };
    for (member, value) in [(SUBJECT, subjects.pop()), (SUBJECTS, (!several.is_empty()).then_some(several.into()))] {
        match value {
            Some(mut value) => {
                traces.take(&format!("/{}", member.name()), &mut value, &mut bodies);
                edit.set(member, value);
            }
            None => edit.remove(member),
        }
    }
    bodies::set(&mut edit, bodies);
}

/// Writes the deadline as RFC 3339 with a zone, as every client reads it. One that is no time counts as none.
fn set_deadline(edit: &mut Edit<'_>) {
    let Some(deadline) = edit.read(EXPIRES_AT) else { return };
    match parse_time(deadline) {
        Some(_) if deadline.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()) => {}
        Some(time) => edit.set(EXPIRES_AT, Value::from(time.to_string())),
        None => edit.remove(EXPIRES_AT),
    }
}

fn open<'s>(envelope: &EnvelopeView, fold: &'s mut FoldState) -> Option<Edit<'s>> {
    let id = envelope.ids.action.as_ref()?;
    Some(fold.activities.open(KIND, id.as_str(), Surface::Hitl, envelope.ids.agent.as_ref()))
}

fn name_kind(edit: &mut Edit<'_>) {
    if !edit.has(ACTION_KIND) {
        edit.set(ACTION_KIND, "unknown");
    }
}

fn resolve(
    envelope: &EnvelopeView,
    edit: &mut Edit<'_>,
    outcome: Option<&str>,
    value: Option<Value>,
    resolved_by: Option<&Value>,
    decision: [&Option<Box<Value>>; 2],
) {
    // LangGraph's stream shows only later that a question was answered, and not how: the answer itself is known already.
    let is_inferred = outcome == Some("answered") && value.is_none();
    let was_resolved = edit.read(ACTION_STATUS) == Some(ActionStatus::Resolved);
    if is_inferred && was_resolved && edit.has(OUTCOME) {
        return;
    }
    // The runtime only says that it got no answer.
    let is_refusal = matches!(outcome, Some("rejected" | "cancelled"));
    if is_refusal && was_resolved && edit.read(OUTCOME) == Some(ActionOutcome::Expired.as_str()) {
        return;
    }
    name_kind(edit);
    edit.set(ACTION_STATUS, ActionStatus::Resolved);
    match envelope.is_withheld() {
        true => edit.set(WITHHELD, true),
        false => {
            edit.remove(WITHHELD);
            edit.set_some(OUTCOME, outcome);
            edit.set_some(VALUE, value);
            edit.set_some(RESOLVED_BY, resolved_by.cloned());
            name_decision(edit, decision);
        }
    }
    edit.remove(CONTROL);
}

/// Copies who decided, and by which control.
fn name_decision(edit: &mut Edit<'_>, decision: [&Option<Box<Value>>; 2]) {
    for (member, value) in DECISION.into_iter().zip(decision) {
        match stated(value.as_deref()) {
            Some(value) => edit.set(member, value),
            None => edit.remove(member),
        }
    }
}

/// A reader's answer is in transit to the action's owner, or was lost there.
fn control(envelope: &EnvelopeView, fact: &ControlFact, fold: &mut FoldState) {
    #[rustfmt::skip]
    let ControlFact { status, requeued, control_id, decided_by, have, need, lead, attempt: _, reason: _, extra: _ } = fact;
    let Some(id) = &envelope.ids.action else { return };
    let Some(mut edit) =
        fold.activities.edit(KIND, id.as_str()).filter(|edit| edit.read(ACTION_STATUS) == Some(ActionStatus::Pending))
    else {
        return;
    };
    let goes_on = *requeued == Some(true);
    let is_over = matches!(status.as_deref(), Some("expired" | "nacked" | "failed")) && !goes_on;
    if let (Some(have), Some(need)) = (have, need) {
        let is_full = have.as_u64() >= need.as_u64();
        match is_over && (is_full || have.as_u64() == Some(0)) {
            true => edit.remove(QUORUM),
            false => edit.set(QUORUM, json!({ "have": have, "need": need })),
        }
        if !is_full {
            // One that was complete may have been taken back.
            edit.remove(CONTROL);
            for of_decision in DECISION {
                edit.remove(of_decision);
            }
        }
        // The decision is the control that is handed out for all.
        if !is_full || lead.is_some() {
            return;
        }
    }
    if is_over {
        edit.remove(CONTROL);
        for of_decision in DECISION {
            edit.remove(of_decision);
        }
    } else {
        edit.set(CONTROL, SUBMITTED);
        name_decision(&mut edit, [control_id, decided_by]);
    }
}

/// Notes a step of a rule on an action that waits.
fn note_step(envelope: &EnvelopeView, member: Member<Any>, fold: &mut FoldState) {
    let fact: Cow<'_, WaitStepFact> = envelope.fact();
    let (Some(step), Some(at), Some(action)) = (&fact.step, &fact.at, &envelope.ids.action) else { return };
    if let Some(mut edit) = fold.activities.edit(KIND, action.as_str())
        && edit.read(ACTION_STATUS) == Some(ActionStatus::Pending)
    {
        edit.set(member, json!({ "step": step, "at": at }));
    }
}

/// Whether an activity is an action that waits for a decision.
#[must_use]
pub fn is_pending(activity: &Activity) -> bool {
    &*activity.kind == KIND && activity.content.read(ACTION_STATUS) == Some(ActionStatus::Pending)
}

/// What an action asks, in one line.
#[must_use]
pub fn title(content: &Map<String, Value>) -> String {
    let text = |member: Member<Any>| content.read(member).and_then(Value::as_str);
    let stated = text(TITLE).or_else(|| text(MESSAGE)).map(str::to_owned);
    let of_tool = || text(TOOL_NAME).map(|tool| format!("Use {tool}?"));
    stated.or_else(of_tool).unwrap_or_else(|| "Decide?".to_owned())
}

/// Interrupts the pending actions, because the run has ended.
pub(super) fn interrupt_all(fold: &mut FoldState) {
    for id in fold.activities.ids(KIND, is_pending) {
        let mut edit = fold.activities.edit(KIND, &id).expect("the id was listed above");
        edit.set(ACTION_STATUS, ActionStatus::Interrupted);
        edit.remove(CONTROL);
    }
}

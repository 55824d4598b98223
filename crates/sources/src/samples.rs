//! What the tests of all adapters share: facts, and what drafts show.

use super::{DryRun, Fact, SourceKind};
use proscenium_model::{AgentId, Audience, Draft, EventType, Ids, MessageId, PartId, RunId, ToolCallId};
use serde_json::Value;

pub(super) fn given() -> Ids {
    Ids { run: Some(RunId::new("run").expect("an id")), ..Ids::default() }
}

pub(super) fn object(value: Value) -> Fact {
    let Value::Object(fact) = value else { panic!("{value} is not an object") };
    fact
}

/// Returns the object with further members.
pub(super) fn with(value: Value, members: Value) -> Value {
    let mut value = object(value);
    value.extend(object(members));
    value.into()
}

/// The event types of the drafts for users.
pub(super) fn shown(drafts: &[Draft]) -> Vec<&str> {
    drafts.iter().filter(|draft| draft.audience == Audience::User).map(|draft| draft.event_type.as_str()).collect()
}

/// Adapts the facts one by one; saves and restores the state after each.
pub(super) fn adapt_for(source: &'static SourceKind, given: &Ids, facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    let mut run = DryRun::new(source);
    let drafts = facts.into_iter().flat_map(|fact| {
        let drafts = run.adapt(object(fact), given).expect("the fact is valid");
        let saved = run.save();
        run.restore(&saved).expect("the state is what was saved");
        assert_eq!(run.save(), saved);
        drafts
    });
    drafts.collect()
}

pub(super) fn adapt(source: &'static SourceKind, facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    adapt_for(source, &given(), facts)
}

/// The lengths of lists in the state.
pub(super) fn lengths<const N: usize>(run: &DryRun, lists: [&str; N]) -> [usize; N] {
    let state = run.adapter.describe();
    lists.map(|list| state[list].as_array().unwrap_or_else(|| panic!("{state} has no list {list}")).len())
}

/// Returns `event type phase` of each draft.
pub(super) fn classes(drafts: &[Draft]) -> Vec<String> {
    drafts.iter().map(|draft| format!("{} {}", draft.event_type, draft.phase)).collect()
}

/// Returns `event type phase` of the draft.
pub(super) fn class(draft: &Draft) -> String {
    classes(std::slice::from_ref(draft)).remove(0)
}

pub(super) fn payload(draft: &Draft) -> Value {
    draft.payload.to_value()
}

pub(super) fn of_class(drafts: &[Draft], class: EventType) -> Vec<&Draft> {
    drafts.iter().filter(|draft| draft.event_type == class).collect()
}

pub(super) fn find(drafts: &[Draft], class: EventType) -> &Draft {
    drafts.iter().find(|draft| draft.event_type == class).unwrap_or_else(|| panic!("{:?}", classes(drafts)))
}

/// The payloads of the drafts of an event type.
pub(super) fn all(drafts: &[Draft], class: EventType) -> Vec<Value> {
    of_class(drafts, class).into_iter().map(payload).collect()
}

/// The ends of the run.
pub(super) fn ends(drafts: &[Draft]) -> Vec<String> {
    let is_end = |draft: &&Draft| matches!(draft.event_type, EventType::RunFinished | EventType::RunFailed);
    drafts.iter().filter(is_end).map(class).collect()
}

pub(super) fn message_of(draft: &Draft) -> &str {
    draft.ids.message.as_ref().map_or("-", MessageId::as_str)
}

pub(super) fn part_of(draft: &Draft) -> &str {
    draft.ids.part.as_ref().map_or("-", PartId::as_str)
}

pub(super) fn call_of(draft: &Draft) -> &str {
    draft.ids.tool_call.as_ref().map_or("-", ToolCallId::as_str)
}

pub(super) fn agent_of(draft: &Draft) -> &str {
    draft.ids.agent.as_ref().map_or("-", AgentId::as_str)
}

/// Returns `type message/part text` of each draft of a text or of reasoning.
pub(super) fn said(drafts: &[Draft]) -> Vec<String> {
    let is_said = |draft: &&Draft| ["text.", "reasoning."].iter().any(|family| draft.event_type.as_str().starts_with(family));
    let one = |draft: &Draft| {
        format!("{} {}/{} {}", draft.event_type, message_of(draft), part_of(draft), draft.text("text").unwrap_or("-"))
    };
    drafts.iter().filter(is_said).map(one).collect()
}

//! What the agent asks the user: permissions and elicitations.
//!
//! An option's id is free text; only its kind says what was chosen. A refusal is an answer, `cancelled` is none. Where
//! the client's side is not visible, the next update of the call tells the answer.

use super::turn::Purpose;
use super::{EventHandler, id_from, members_of, request_key};
use crate::Fact;
use crate::members::{name_of, take_members, take_question, take_text};
use crate::turn::resolved;
use proscenium_model::{ActionId, Draft, EventType, Owner, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The most options of a permission whose kind is remembered.
const OFFERED_MAX: usize = 16;

/// A question without an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    pub action: ActionId,
    call: Option<ToolCallId>,
    is_permission: bool,
    /// The offered options: id and kind.
    options: Vec<(String, String)>,
}

impl EventHandler<'_> {
    fn action_of(&self, request: &Value) -> ActionId {
        let session = self.session().map_or_else(String::new, |session| session.to_string());
        let number = request.as_str().map_or_else(|| request_key(request), str::to_owned);
        id_from(&format!("{session}:{number}"))
    }

    pub(super) fn permission(&mut self, request: &Value, mut params: Fact) -> Purpose {
        params.shift_remove("sessionId");
        let action = self.action_of(request);
        // Protocol 2 has a subject instead of a call.
        let mut subject = take_members(&mut params, "subject", "subject");
        let call = params.shift_remove("toolCall").or_else(|| subject.shift_remove("toolCall"));
        let call = members_of(call.unwrap_or(Value::Null), "toolCall");
        let id = self.call_of(&call);
        let mut draft = Draft::new(EventType::ActionRequired).with("kind", "tool_approval");
        // The call's own title is about the call, not a question: readers of the call find it there.
        draft.set("title", take_text(&mut params, "title"));
        draft.set("input", call.get("rawInput").filter(|input| !input.is_null()).cloned());
        draft.set("message", super::calls::content_text(call.get("content")));
        let diffs = diffs_of(call.get("content"));
        if id.is_some() {
            // The request may be the first mention of the call, or its newest state.
            let mut update = call;
            update.shift_remove("status");
            self.tool_update("session/request_permission", update);
        } else if !call.is_empty() {
            subject.insert("toolCall".into(), call.into());
        }
        let mut options = Vec::new();
        if let Some(Value::Array(offered)) = params.shift_remove("options") {
            for option in offered.iter().take(OFFERED_MAX) {
                let text = |member: &str| option.get(member).and_then(Value::as_str).unwrap_or_default();
                options.push((name_of(text("optionId")), name_of(text("kind"))));
            }
            draft = draft.with("options", offered.into_iter().map(labelled).collect::<Vec<_>>());
        }
        draft.set("toolName", id.as_ref().and_then(|id| self.memory.calls.open.find(id)).map(|call| call.name.clone()));
        let mut own = Map::from_iter([("requestId".to_owned(), request.clone())]);
        if !subject.is_empty() {
            own.insert("subject".into(), subject.into());
        }
        if !diffs.is_empty() {
            own.insert("diffs".into(), diffs.into());
        }
        draft = draft.with("payload", own);
        (draft.owner, draft.ids.action, draft.ids.tool_call) = (Owner::Policy, Some(action.clone()), id.clone());
        self.memory.pending.add(Pending { action: action.clone(), call: id, is_permission: true, options });
        self.push_carrying(draft, params);
        Purpose::Permission(action)
    }

    pub(super) fn elicitation(&mut self, request: &Value, mut params: Fact) -> Purpose {
        params.shift_remove("sessionId");
        let action = self.action_of(request);
        let call = self.call_of(&params);
        params.shift_remove("toolCallId");
        let names = [("requestedSchema", "schema"), ("message", "message"), ("mode", "mode"), ("url", "url")];
        let mut draft = Draft::new(EventType::ActionRequired).with("kind", "structured_input").with_moved(&mut params, &names);
        take_question(&mut draft, &mut params);
        draft = draft.with("payload", json!({ "requestId": request }));
        (draft.owner, draft.ids.action, draft.ids.tool_call) = (Owner::Runtime, Some(action.clone()), call.clone());
        self.memory.pending.add(Pending { action: action.clone(), call, is_permission: false, options: Vec::new() });
        self.push_carrying(draft, params);
        Purpose::Elicitation(action)
    }

    pub(super) fn permission_answered(&mut self, action: &ActionId, outcome: Result<Value, Value>) {
        let mut answer = members_of_response(outcome);
        let mut chosen = take_members(&mut answer, "outcome", "outcome");
        let option = take_text(&mut chosen, "optionId");
        let pending = self.memory.pending.find(action);
        let known = option.as_ref().and_then(|id| pending?.options.iter().find(|(offered, _)| *offered == name_of(id)));
        let kind = known.map(|(_, kind)| kind.clone()).unwrap_or_default();
        let said = take_text(&mut chosen, "outcome");
        let outcome = match said.as_deref() {
            Some("selected") if kind.starts_with("allow") => "approved",
            Some("selected") if kind.starts_with("reject") => "rejected",
            Some("selected") => "answered",
            _ => "cancelled",
        };
        let value = option.map(|id| json!({ "optionId": id, "kind": kind }));
        answer.extend(chosen);
        self.resolve(action, outcome, value, answer);
    }

    pub(super) fn elicitation_answered(&mut self, action: &ActionId, outcome: Result<Value, Value>) {
        let mut answer = members_of_response(outcome);
        let outcome = match take_text(&mut answer, "action").as_deref() {
            Some("accept") => "answered",
            Some("decline") => "rejected",
            _ => "cancelled",
        };
        let value = answer.shift_remove("content");
        self.resolve(action, outcome, value, answer);
    }

    pub(super) fn resolve(&mut self, action: &ActionId, outcome: &str, value: Option<Value>, rest: Fact) {
        let pending = self.memory.pending.take(action);
        let is_permission = pending.as_ref().is_none_or(|pending| pending.is_permission);
        let owner = if is_permission { Owner::Policy } else { Owner::Runtime };
        let draft = resolved(action.clone(), pending.and_then(|pending| pending.call), outcome, owner);
        self.push_carrying(draft.with_some("value", value), rest);
    }

    /// Resolves a permission whose answer is not visible, from the next status of its call.
    pub(super) fn settle_unseen_permission(&mut self, call: &ToolCallId, status: Option<&str>) {
        let outcome = match status {
            Some("in_progress" | "completed") => "approved",
            Some("failed") => "rejected",
            _ => return,
        };
        if self.memory.sees_client {
            return;
        }
        let of_call = |pending: &&Pending| pending.is_permission && pending.call.as_ref() == Some(call);
        if let Some(action) = self.memory.pending.iter().find(of_call).map(|pending| pending.action.clone()) {
            self.resolve(&action, outcome, None, Map::new());
        }
    }
}

/// The members of a response: those of its result, or its error as one.
fn members_of_response(outcome: Result<Value, Value>) -> Fact {
    outcome.map_or_else(|error| Map::from_iter([("error".to_owned(), error)]), |result| members_of(result, "result"))
}

/// The changes of files that the request states.
fn diffs_of(content: Option<&Value>) -> Vec<Value> {
    let members = |item: &Value| {
        let stated = ["path", "oldText", "newText"]
            .iter()
            .filter_map(|member| Some(((*member).to_owned(), item.get(*member).filter(|value| value.is_string())?.clone())));
        Value::Object(stated.collect())
    };
    let is_diff = |item: &&Value| item.get("type").and_then(Value::as_str) == Some("diff");
    content.and_then(Value::as_array).into_iter().flatten().filter(is_diff).map(members).collect()
}

/// Adds the protocol's name of an option's text.
fn labelled(mut option: Value) -> Value {
    if let Some(option) = option.as_object_mut()
        && let Some(name) = option.get("name").cloned()
    {
        option.entry("label").or_insert(name);
    }
    option
}

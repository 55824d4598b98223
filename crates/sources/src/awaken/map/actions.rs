//! Required actions: a suspended call asks, and its resumption is its answer and its end.
//!
//! Awaken's answers name the call's id or the suspension's id.

use super::{EventHandler, Pending};
use crate::Fact;
use crate::members::{add_rest, id_from, take_checked_id, take_id, take_object, take_question, take_text};
use crate::turn::resolved;
use proscenium_model::{ActionId, Audience, Draft, EventType, MemberRef, Owner, ToolCallId};
use serde_json::{Map, Value, json};

impl EventHandler<'_> {
    pub(super) fn suspended(&mut self, mut draft: Draft, mut result: Map<String, Value>) {
        let mut ticket = take_object(&mut result, "suspension");
        let mut suspension = take_object(&mut ticket, "suspension");
        let mut pending = take_object(&mut ticket, "pending");
        let mut parameters = take_object(&mut suspension, "parameters");
        let mode = take_text(&mut ticket, "resume_mode");
        let id = draft.ids.tool_call.clone().expect("the caller has set the call's id");
        // Decisions may address the call or the suspension, so the call's id serves for an action without an id.
        let action: ActionId = take_id(&mut suspension, "id").unwrap_or_else(|| id_from(id.as_str()));
        // The user approves only a call that Awaken will replay. Otherwise a client must supply the value (trap 34).
        let approval = mode.as_deref().is_none_or(|mode| mode == "replay_tool_call");
        let (kind, owner) = if approval { ("tool_approval", Owner::Policy) } else { ("structured_input", Owner::Action) };
        let reported = take_text(&mut result, "message");
        let schema = suspension.shift_remove("response_schema").filter(|schema| !schema.is_null());
        draft = draft.with("kind", kind).with_some("message", take_text(&mut suspension, "message").or(reported));
        draft = draft.with_some("schema", schema).with_owner(owner);
        take_question(&mut draft, &mut parameters);
        let input = pending.shift_remove("arguments").or_else(|| parameters.shift_remove("args"));
        // The draft has the arguments once, although Awaken repeats them.
        for repeated in ["args", "arguments"] {
            if parameters.get(repeated) == input.as_ref() {
                parameters.shift_remove(repeated);
            }
        }
        if parameters.get("tool").map(MemberRef::from) == draft.payload.get("toolName") {
            parameters.shift_remove("tool");
        }
        draft =
            draft.with_some("input", input).with_some("resumeMode", mode).with_some("action", suspension.shift_remove("action"));
        draft.set("payload", (!parameters.is_empty()).then_some(parameters));
        pending.retain(|member, _| !matches!(member.as_str(), "id" | "name"));
        result.retain(|_, value| !value.is_null());
        for rest in [suspension, ticket, pending, result] {
            add_rest(&mut draft, rest);
        }
        self.memory.pending.add(Pending { call: id, action: action.clone(), approval, asked: None });
        self.push(draft.with_action(action));
    }

    /// Handles the answer to a suspended call, which is also the end of the call.
    ///
    /// Awaken sends neither `tool_call_done` nor an outcome for it. Like Awaken's own encoders, the adapter reads the
    /// outcome from the result. A textual `error` is a failure, `approved: false` is a refusal before the tool ran, and
    /// any other result is a success.
    pub(super) fn tool_call_resumed(&mut self, mut fact: Fact) {
        let target: ToolCallId = take_checked_id(&mut fact, "target_id");
        let result = fact.shift_remove("result").unwrap_or(Value::Null);
        let asked = self.memory.pending.iter().find(|p| p.call == target || p.action.as_str() == target.as_str());
        let id = asked.map_or(target, |pending| pending.call.clone());
        let pending = self.memory.pending.take(&id);
        let name = self.memory.calls.end(&id).map(|call| call.name);
        let refused = result.get("approved") == Some(&Value::Bool(false));
        let error = result.get("error").and_then(Value::as_str).map(str::to_owned);
        if let Some(pending) = pending {
            self.resolved(pending, &id, &result, refused && error.is_none());
        }
        let draft = match (error, refused) {
            (Some(message), _) => {
                let mut draft = self.tool(EventType::ToolFailed, id, fact);
                draft = draft.call(|call| call.error = Some(json!({ "message": message }).into()));
                draft.payload.extend(others(result, "error"));
                draft
            }
            (None, true) => {
                let reason = result.get("reason").and_then(Value::as_str).unwrap_or("refused before it ran");
                self.never_ran(id, reason, fact).with_audience(Audience::User)
            }
            (None, false) => {
                let (output, metadata) = unwrapped(result);
                let draft = self.tool(EventType::ToolResult, id, fact).call(|call| {
                    call.status = Some("completed".to_owned());
                    call.output = Some(output.into());
                });
                draft.with_some("metadata", metadata).with_audience(Audience::User)
            }
        };
        self.push(draft.with_tool_name(name));
    }

    fn resolved(&mut self, pending: Pending, call: &ToolCallId, result: &Value, refused: bool) {
        let outcome = match (pending.approval, refused) {
            (true, true) => "rejected",
            // A tool that ran and failed had been approved.
            (true, false) => "approved",
            (false, true) => "cancelled",
            (false, false) => "answered",
        };
        let owner = if pending.approval { Owner::Policy } else { Owner::Action };
        // The result of an approved tool is the tool's output. Any other result is the user's answer.
        let value = (outcome != "approved").then(|| result.clone());
        self.push(resolved(pending.action, Some(call.clone()), outcome, owner).with_some("value", value));
    }
}

/// Splits a resumed call's output: `{data, metadata}` if the tool set metadata, otherwise raw data.
fn unwrapped(result: Value) -> (Value, Option<Value>) {
    match result {
        Value::Object(mut both) if both.len() == 2 && both.contains_key("data") && both.contains_key("metadata") => {
            let metadata = both.shift_remove("metadata");
            (both.shift_remove("data").unwrap_or(Value::Null), metadata)
        }
        result => (result, None),
    }
}

/// Returns the object's members except one.
fn others(value: Value, but: &str) -> Map<String, Value> {
    let Value::Object(mut map) = value else { return Map::new() };
    map.shift_remove(but);
    map
}

//! Permissions, plans and questions: the program asks its host.
//!
//! The answers are not in the output. The result of the call tells how it was answered, or a cancellation that the
//! program no longer waits. A tap of the host's side has the answers themselves.

use super::calls::EXIT_PLAN_MODE;
use super::{EventHandler, id_from, internal};
use crate::Fact;
use crate::members::{diagnostic, take_checked_id, take_id, take_members, take_text};
use crate::turn::resolved;
use proscenium_model::{ActionId, AgentId, Draft, EventType, Owner, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The tool that asks the user.
const ASK_USER_QUESTION: &str = "AskUserQuestion";

/// A request that waits for the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    pub action: ActionId,
    pub call: Option<ToolCallId>,
    pub agent: Option<AgentId>,
    is_question: bool,
}

impl EventHandler<'_> {
    pub(super) fn control_request(&mut self, mut fact: Fact) {
        let mut request = take_members(&mut fact, "request", "value");
        let action: ActionId = take_checked_id(&mut fact, "request_id");
        self.agent = take_id(&mut request, "agent_id");
        let agent = self.agent.clone();
        match take_text(&mut request, "subtype").as_deref() {
            Some("can_use_tool") => self.permission(action, agent, request, fact),
            Some("elicitation") => {
                let names = [("message", "message"), ("requested_schema", "schema")];
                let draft = Draft::new(EventType::ActionRequired).with("kind", "structured_input");
                let mut draft = draft.with_moved(&mut request, &names).with_owner(Owner::Runtime).with_action(action.clone());
                draft.payload.extend(request);
                self.memory.pending.add(Pending { action, call: None, agent, is_question: true });
                self.push_carrying(draft, fact);
            }
            kind => {
                let kind = kind.unwrap_or("unknown").to_owned();
                let draft = diagnostic("control_request", &kind, request).with("requestId", action.as_str());
                self.push_carrying(draft, fact);
            }
        }
    }

    fn permission(&mut self, action: ActionId, agent: Option<AgentId>, mut request: Fact, rest: Fact) {
        let tool = take_text(&mut request, "tool_name").unwrap_or_default();
        let call = take_text(&mut request, "tool_use_id").map(|id| self.call_id(&id));
        let kind = match tool.as_str() {
            EXIT_PLAN_MODE => "plan_decision",
            ASK_USER_QUESTION => "structured_input",
            _ => "tool_approval",
        };
        let mut draft = Draft::new(EventType::ActionRequired).with("kind", kind).with("toolName", tool.as_str());
        let input = request.shift_remove("input").filter(|input| *input != json!({}));
        if tool == ASK_USER_QUESTION {
            let questions = input.as_ref().and_then(|input| input.get("questions")).and_then(Value::as_array);
            let questions = questions.map_or(&[][..], Vec::as_slice);
            draft.set("message", questions.first().and_then(|question| question.get("question")).cloned());
            draft.set("schema", Some(schema_of(questions)));
            draft.set("options", answers_to(questions));
        }
        draft.set("plan", input.as_ref().filter(|_| tool == EXIT_PLAN_MODE).and_then(|input| input.get("plan")).cloned());
        draft.set("input", input);
        let names = [("description", "message"), ("decision_reason", "reason")];
        draft.move_members(&mut request, &names);
        if let Some(Value::Array(suggestions)) = request.shift_remove("permission_suggestions")
            && !suggestions.is_empty()
            && draft.member("options").is_none()
        {
            draft = draft.with("options", options_of(suggestions));
        }
        request.insert("requestId".into(), action.as_str().into());
        draft = draft.with("payload", request).with_owner(Owner::Policy).with_action(action.clone()).with_call(call.clone());
        self.memory.pending.add(Pending { action, call, agent, is_question: tool == ASK_USER_QUESTION });
        self.push_carrying(draft, rest);
    }

    /// Resolves the requests about a call from its result.
    pub(super) fn answered_by_result(
        &mut self,
        call: &ToolCallId,
        meta: &Map<String, Value>,
        is_error: bool,
        structured: Option<&Value>,
    ) {
        let pending = self.memory.pending.iter().find(|pending| pending.call.as_ref() == Some(call));
        let Some((action, is_question)) = pending.map(|pending| (pending.action.clone(), pending.is_question)) else { return };
        let decision = meta.get("permission_decision");
        let is_rejected = match decision.and_then(|decision| decision.get("decision")).and_then(Value::as_str) {
            Some("accept") => false,
            Some(_) => true,
            None => is_error,
        };
        let outcome = match (is_rejected, is_question) {
            (true, _) => "rejected",
            (false, true) => "answered",
            (false, false) => "approved",
        };
        let value = structured.filter(|_| is_question && !is_rejected).and_then(|result| result.get("answers")).cloned();
        let source = decision.and_then(|decision| decision.get("source")).cloned();
        self.resolve(&action, outcome, value, Map::from_iter(source.map(|source| ("decisionSource".to_owned(), source))));
    }

    pub(super) fn control_cancelled(&mut self, mut fact: Fact) {
        let action: ActionId = take_checked_id(&mut fact, "request_id");
        if self.memory.pending.has(&action) {
            return self.resolve(&action, "cancelled", None, fact);
        }
        self.push_carrying(internal("control_cancel_request", "control_cancel_request").with("requestId", action.as_str()), fact);
    }

    fn resolve(&mut self, action: &ActionId, outcome: &str, value: Option<Value>, about: Fact) {
        let Some(pending) = self.memory.pending.take(action) else { return };
        let draft = resolved(pending.action, pending.call, outcome, Owner::Policy);
        let mut draft = draft.with_some("value", value).with_agent(pending.agent);
        draft.payload.extend(about);
        self.push(draft);
    }

    /// Keeps the program's answer to its host. One of them confirms an interrupt.
    pub(super) fn control_response(&mut self, mut fact: Fact) {
        let response = fact.shift_remove("response").unwrap_or(Value::Null);
        let is_receipt = response.get("response").is_some_and(|answer| answer.get("still_queued").is_some());
        self.memory.is_interrupted |= is_receipt;
        let draft = internal("control_response", "control_response").with("response", response);
        self.push_carrying(draft, fact);
    }

    /// Resolves a request by the host's own answer.
    pub(super) fn host_answer(&mut self, mut fact: Fact) {
        let mut response = take_members(&mut fact, "response", "value");
        let action = take_text(&mut response, "request_id").map(|id| id_from::<ActionId>(&id));
        let pending = action.as_ref().and_then(|action| self.memory.pending.find(action));
        let (Some(action), Some(is_question)) = (action, pending.map(|pending| pending.is_question)) else {
            return self.push(diagnostic("host_answer", "control_response", response));
        };
        let answer = response.shift_remove("response").unwrap_or(Value::Null);
        let outcome = match answer.get("behavior").or_else(|| answer.get("action")).and_then(Value::as_str) {
            Some("allow" | "accept") if is_question => "answered",
            Some("allow") => "approved",
            Some("deny" | "decline") => "rejected",
            _ => "cancelled",
        };
        self.memory.is_interrupted |= answer.get("interrupt") == Some(&Value::Bool(true));
        let answers = answer.get("updatedInput").and_then(|input| input.get("answers")).filter(|_| is_question).cloned();
        self.resolve(&action, outcome, Some(answers.unwrap_or(answer)), fact);
    }
}

/// Offers what the program suggests beside plain consent and refusal.
fn options_of(suggestions: Vec<Value>) -> Vec<Value> {
    let mut options = vec![json!({ "optionId": "allow", "label": "Allow", "kind": "allow_once" })];
    for (n, suggestion) in suggestions.into_iter().enumerate() {
        let text = |member: &str| suggestion.get(member).and_then(Value::as_str).unwrap_or_default();
        let list = |member: &str, text: fn(&Value) -> String| {
            suggestion.get(member).and_then(Value::as_array).into_iter().flatten().map(text).collect::<Vec<_>>().join(", ")
        };
        let label = match text("type") {
            "addRules" => format!("Always allow {}", list("rules", rule)),
            "addDirectories" => {
                format!("Always allow access to {}", list("directories", |path| path.as_str().unwrap_or_default().into()))
            }
            "setMode" => format!("Allow, and use the mode {}", text("mode")),
            kind => format!("Allow, and apply {kind}"),
        };
        let id = format!("suggestion-{n}");
        let width = if text("destination") == "session" { "session" } else { "always" };
        options.push(json!({ "optionId": id, "label": label, "kind": "allow_always", "width": width, "suggestion": suggestion }));
    }
    options.push(json!({ "optionId": "deny", "label": "Reject", "kind": "reject_once" }));
    options
}

/// The options of a single question, each with the answer that it gives. Several are answered by their form.
fn answers_to(questions: &[Value]) -> Option<Vec<Value>> {
    let [question] = questions else { return None };
    let text = question.get("question")?.as_str().filter(|_| question.get("multiSelect") != Some(&Value::Bool(true)))?;
    let option = |option: &Value| {
        let label = option.get("label")?.as_str()?;
        let value = Map::from_iter([(text.to_owned(), label.into())]);
        let mut one = json!({ "optionId": label, "label": label, "kind": "answer", "value": value });
        if let Some(description) = option.get("description").filter(|description| description.is_string()) {
            one["description"] = description.clone();
        }
        Some(one)
    };
    question.get("options")?.as_array()?.iter().map(option).collect()
}

fn rule(rule: &Value) -> String {
    let text = |member: &str| rule.get(member).and_then(Value::as_str).unwrap_or_default();
    match text("ruleContent") {
        "" => text("toolName").to_owned(),
        content => format!("{}({content})", text("toolName")),
    }
}

/// The form of the program's questions: one member for each, named by its question, as the answers are.
fn schema_of(questions: &[Value]) -> Value {
    let mut properties = Map::new();
    for question in questions {
        let Some(text) = question.get("question").and_then(Value::as_str) else { continue };
        let options = question.get("options").and_then(Value::as_array).into_iter().flatten();
        let labels: Vec<&Value> = options.filter_map(|option| option.get("label")).collect();
        let one = json!({ "type": "string", "enum": labels });
        let mut property = match question.get("multiSelect") {
            Some(Value::Bool(true)) => json!({ "type": "array", "items": one }),
            _ => one,
        };
        property["title"] = question.get("header").cloned().unwrap_or_default();
        property["description"] = text.into();
        properties.insert(text.to_owned(), property);
    }
    json!({ "type": "object", "properties": properties })
}

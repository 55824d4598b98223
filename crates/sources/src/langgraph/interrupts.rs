//! Interrupts: what a graph asks the user.
//!
//! One interrupt is announced in updates, in the state, and in every namespace up to the root, by one id. Nothing says
//! that it was answered: it was, once a resumed run makes progress and has not announced it again.

use super::calls::digest_of;
use super::event::object;
use super::{EventHandler, TurnState, id_from};
use crate::Fact;
use crate::members::{take_question, take_text};
use crate::turn::resolved;
use proscenium_model::{ActionId, Draft, EventType, Owner, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// A question without an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    pub action: ActionId,
    call: Option<ToolCallId>,
    /// Whether the run was resumed since it asked.
    is_expected: bool,
}

impl EventHandler<'_> {
    /// Handles a list of interrupts. An empty one is a breakpoint: the run waits with nothing to answer.
    pub(super) fn interrupts(&mut self, list: Value) {
        let list = match list {
            Value::Array(list) => list,
            Value::Null => return,
            one => vec![one],
        };
        self.memory.has_asked = true;
        if list.is_empty() {
            if self.memory.turn_state != TurnState::Paused {
                self.wait(Map::from_iter([("breakpoint".to_owned(), true.into())]));
            }
            return;
        }
        let mut is_new = false;
        for interrupt in list {
            let mut interrupt = object(Some(interrupt));
            let value = interrupt.shift_remove("value").unwrap_or(Value::Null);
            let id = take_text(&mut interrupt, "id").or_else(|| take_text(&mut interrupt, "interrupt_id"));
            let schema = interrupt.shift_remove("response_schema").filter(|schema| !schema.is_null());
            is_new |= self.interrupt(id, value, schema, interrupt);
        }
        self.settle_answers();
        if is_new || self.memory.turn_state != TurnState::Paused {
            self.wait(Map::new());
        }
    }

    /// Handles a request for input in dialect B.
    pub(super) fn input_requested(&mut self, mut data: Fact) {
        self.ensure_started();
        self.enter_child(None, None);
        let interrupt = json!({
            "id": data.shift_remove("interrupt_id"),
            "value": data.shift_remove("payload"),
            "response_schema": data.shift_remove("response_schema"),
        });
        self.interrupts(json!([interrupt]));
        if !data.is_empty() {
            self.keep("input_requested", "input.requested", Value::Object(data));
        }
    }

    /// Asks once. Returns whether the question is new.
    fn interrupt(&mut self, id: Option<String>, value: Value, schema: Option<Value>, rest: Fact) -> bool {
        // Older versions have no ids: the same question is the same interrupt.
        let id = id.unwrap_or_else(|| format!("{:x}", Sha256::digest(value.to_string())));
        let action: ActionId = id_from(&id);
        if let Some(pending) = self.memory.pending.find_mut(&action) {
            pending.is_expected = false;
            return false;
        }
        let mut draft = Draft::new(EventType::ActionRequired);
        let call = match &value {
            Value::Object(members) if members.get("action_requests").is_some_and(Value::is_array) => {
                self.review(&mut draft, members.clone())
            }
            Value::Object(members) if super::text_of(&value, "tool_call_id").is_some() => {
                self.approval(&mut draft, members.clone(), schema)
            }
            _ => {
                question(&mut draft, &value, schema);
                None
            }
        };
        draft.payload.insert("payload", value);
        (draft.owner, draft.ids.action, draft.ids.tool_call) = (Owner::Action, Some(action.clone()), call.clone());
        self.memory.pending.add(Pending { action, call, is_expected: false });
        self.push_carrying(draft, rest);
        true
    }

    /// Asks for decisions about several calls at once, which the question does not name by id.
    fn review(&self, draft: &mut Draft, mut value: Fact) -> Option<ToolCallId> {
        let requests = value.shift_remove("action_requests").unwrap_or_else(|| json!([]));
        let list = requests.as_array().map_or(&[][..], Vec::as_slice);
        let text = |member: &str| list.iter().filter_map(|request| super::text_of(request, member)).collect::<Vec<_>>();
        draft.payload.insert("kind", "tool_approval".into());
        let descriptions = text("description");
        draft.set("message", (!descriptions.is_empty()).then(|| descriptions.join("\n")));
        let decisions = value.get("review_configs").and_then(Value::as_array).into_iter().flatten();
        let mut allowed: Vec<&str> = Vec::new();
        for decision in
            decisions.filter_map(|config| config.get("allowed_decisions")?.as_array()).flatten().filter_map(Value::as_str)
        {
            if !allowed.contains(&decision) {
                allowed.push(decision);
            }
        }
        draft.set("options", (!allowed.is_empty()).then(|| allowed.into_iter().map(option).collect::<Vec<_>>()));
        let only = <&[Value; 1]>::try_from(list).ok().map(|[only]| only);
        let call = only.and_then(|request| {
            let name = super::text_of(request, "name")?;
            draft.payload.insert("toolName", name.into());
            let args = digest_of(request.get("args").unwrap_or(&Value::Null));
            self.memory.calls.only(|call| call.name == name && call.args == args).map(|call| call.id.clone())
        });
        draft.payload.insert("input", requests);
        call
    }

    /// Asks for a decision about one call.
    fn approval(&self, draft: &mut Draft, mut value: Fact, schema: Option<Value>) -> Option<ToolCallId> {
        draft.payload.insert("kind", "tool_approval".into());
        draft.set("toolName", take_text(&mut value, "name"));
        draft.set("message", take_text(&mut value, "description"));
        draft.set("input", value.shift_remove("args"));
        draft.set("schema", schema);
        take_text(&mut value, "tool_call_id").map(|id| id_from(&id))
    }

    // ── answers ──

    /// Marks the questions that a resumed run may have got answers to.
    pub(super) fn expect_answers(&mut self) {
        for pending in self.memory.pending.iter_mut() {
            pending.is_expected = true;
        }
    }

    /// Resolves the questions that a resumed run did not ask again.
    pub(super) fn settle_answers(&mut self) {
        while let Some(action) =
            self.memory.pending.iter().find(|pending| pending.is_expected).map(|pending| pending.action.clone())
        {
            self.answer(&action, "answered", None);
        }
    }

    /// Resolves the open questions with what a resume brings.
    pub(super) fn answer_all(&mut self, resume: &Value) {
        let by_id =
            resume.as_object().filter(|answers| self.memory.pending.iter().any(|p| answers.contains_key(p.action.as_str())));
        let known: Vec<_> = self.memory.pending.iter().map(|pending| pending.action.clone()).collect();
        for action in known {
            let value = match by_id {
                Some(answers) => answers.get(action.as_str()),
                None => Some(resume),
            };
            if let Some(value) = value {
                self.answer(&action, outcome_of(value), Some(value.clone()));
            }
        }
    }

    fn answer(&mut self, action: &ActionId, outcome: &str, value: Option<Value>) {
        let Some(pending) = self.memory.pending.take(action) else { return };
        self.push_of_run(resolved(pending.action, pending.call, outcome, Owner::Action).with_some("value", value));
    }
}

/// The outcome of an answer, by the conventions of graphs.
fn outcome_of(answer: &Value) -> &'static str {
    let first = answer.get("decisions").and_then(|decisions| decisions.get(0)).unwrap_or(answer);
    match first.get("type").and_then(Value::as_str).or(first.as_str()) {
        Some("approve" | "accept" | "edit") => "approved",
        Some("reject" | "ignore") => "rejected",
        _ => "answered",
    }
}

fn option(decision: &str) -> Value {
    let (label, kind) = match decision {
        "approve" => ("Approve", "allow_once"),
        "edit" => ("Edit", "edit"),
        "reject" => ("Reject", "reject_once"),
        "respond" => ("Respond", "answer"),
        other => (other, other),
    };
    json!({ "optionId": decision, "label": label, "kind": kind })
}

/// Asks a question of the graph's own kind.
fn question(draft: &mut Draft, value: &Value, schema: Option<Value>) {
    let kind = if schema.is_some() { "structured_input" } else { "clarification" };
    draft.payload.insert("kind", kind.into());
    draft.set("schema", schema);
    let message = ["question", "description", "message"].iter().find_map(|member| super::text_of(value, member));
    draft.set("message", message.or(value.as_str()));
    if let Value::Object(value) = value {
        take_question(draft, &mut value.clone());
    }
}

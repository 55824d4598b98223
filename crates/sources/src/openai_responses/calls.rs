//! Calls, their inputs and results, and approvals.
//!
//! A call with a `call_id` is run by the caller, and its item only completes its input: the output comes as an item of its
//! own, often not on the stream at all. A call without one is run by the server, and its item completes it.

use super::event::{FAKE_ID, named_call};
use super::items::ItemKind;
use super::{EventHandler, OpenAiResponses};
use crate::bounded::keyed;
use crate::members::{
    carry_all, id_from, id_of, input, name_of, next_id, set_body, take_flag, take_id, take_text, with_source_id,
};
use crate::turn::{error, resolved};
use crate::{ActionAnswer, Fact};
use proscenium_model::{
    ActionId, ActionKind, ArtifactId, Audience, Draft, EventType, Owner, Persistence, Phase, Scope, ToolCallId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A call without a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    id: ToolCallId,
    pub name: String,
    runner: Runner,
    /// Whether the input is complete.
    is_ready: bool,
}

/// Who runs a call. As stored, the first two are a flag of earlier builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Runner {
    Server,
    /// The caller, with a tool that the API defines.
    Caller,
    /// The caller, with a function of its own.
    CallersFunction,
}

impl Runner {
    fn of(item: &Map<String, Value>) -> Self {
        let text = |member: &str| item.get(member).and_then(Value::as_str).unwrap_or_default();
        match (text("type"), text("call_id"), text("execution")) {
            ("function_call", ..) => Self::CallersFunction,
            (_, "", _) | (_, _, "server") => Self::Server,
            (kind, ..) if SERVER_TOOLS.contains(&kind) => Self::Server,
            _ => Self::Caller,
        }
    }
}

/// The items of tools that only a server runs. Some servers give them a `call_id` all the same.
const SERVER_TOOLS: &[&str] =
    &["web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"];

/// A pending approval.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    action: ActionId,
    /// The response that asked.
    response: u64,
}

keyed! { Call: ToolCallId = id; Pending: ActionId = action; }

impl OpenAiResponses {
    fn end_call(&mut self, id: &ToolCallId) -> Option<Call> {
        self.ended.add(id.clone());
        self.calls.end(id)
    }

    /// Ends the open calls.
    pub(super) fn end_calls(&mut self) -> Vec<Call> {
        let calls = self.calls.end_all();
        for call in &calls {
            self.ended.add(call.id.clone());
        }
        calls
    }
}

/// Members of an item with the input of its call.
const INPUTS: &[&str] = &["arguments", "input", "code", "action", "queries", "operation"];

/// Members of an item with the output of its call.
const OUTPUTS: &[&str] = &["output", "outputs", "results"];

/// Names the tool of a call's item.
fn tool_name(item: &Map<String, Value>) -> String {
    let text = |member: &str| item.get(member).and_then(Value::as_str).unwrap_or_default();
    match (text("server_label"), text("name"), text("type")) {
        ("", "", kind) => kind.trim_end_matches("_call").to_owned(),
        ("", name, _) => name.to_owned(),
        (server, name, _) => format!("mcp:{server}/{name}"),
    }
}

/// Parses the input of a call. Text that is not JSON stays text.
fn parsed(value: Value) -> Value {
    match value {
        Value::String(text) => input(&text).1,
        other => other,
    }
}

/// Reads the answer to an approval that an item brings to an earlier run.
pub(super) fn answer_of(item: &Map<String, Value>) -> Option<ActionAnswer> {
    let action = id_of(item, "approval_request_id").filter(|_| item.get("type").is_some_and(|t| t == "mcp_approval_response"))?;
    let outcome = if item.get("approve")?.as_bool()? { "approved" } else { "rejected" };
    let value = item.get("reason").filter(|reason| !reason.is_null()).map(|reason| json!({ "reason": reason }));
    Some(ActionAnswer { action, session: None, outcome, value })
}

impl EventHandler<'_> {
    fn tool(class: EventType, id: ToolCallId) -> Draft {
        Draft::new(class).with_call(id).with_audience(Audience::User)
    }

    // ── starts and inputs ──

    /// Starts the call of an item, unless it is open or has ended.
    pub(super) fn ensure_started(&mut self, at: usize, item: &Map<String, Value>) {
        let Some(id) = self.memory.items[at].call.clone() else { return };
        if self.memory.calls.open.has(&id) || self.memory.ended.has(&id) {
            return;
        }
        self.memory.other_names.take(&id);
        let name = tool_name(item);
        let call = Call { id, name: name_of(&name), runner: Runner::of(item), is_ready: false };
        self.start_call(call, &name, item);
    }

    fn start_call(&mut self, call: Call, name: &str, item: &Map<String, Value>) {
        let (id, is_of_caller) = (call.id.clone(), call.runner != Runner::Server);
        self.memory.calls.start(call);
        let own = named_call(item).unwrap_or_default();
        let mut draft = Self::tool(EventType::ToolStarted, id.clone()).with_tool_name(Some(name));
        draft = with_source_id(draft, &id, own);
        if is_of_caller {
            // The caller runs the call once the model has completed it.
            draft.owner = Owner::Model;
        }
        draft.add_ref("itemId", item.get("id").filter(|item| **item != FAKE_ID && **item != id.as_str()).cloned());
        self.push(draft);
    }

    /// Returns the call of an event. The event starts it if it is unknown.
    fn call_of(&mut self, kind: ItemKind, fact: &mut Fact) -> ToolCallId {
        let at = self.item_of(kind, fact);
        let generated = || next_id("openai-responses-call", &mut self.memory.calls_made);
        let id = self.memory.items[at].call.clone().unwrap_or_else(generated);
        self.memory.items[at].call = Some(id.clone());
        self.ensure_started(at, &Map::new());
        id
    }

    pub(super) fn input_delta(&mut self, mut fact: Fact) {
        let id = self.call_of(ItemKind::Call, &mut fact);
        fact.shift_remove("command_index");
        let draft = Self::tool(EventType::ToolArgs, id).call(|call| call.input_text = take_text(&mut fact, "delta"));
        self.push(carry_all(draft.with_audience(Audience::Dashboard), fact));
    }

    pub(super) fn input_done(&mut self, member: &str, mut fact: Fact) {
        let id = self.call_of(ItemKind::Call, &mut fact);
        let input = fact.shift_remove(member).unwrap_or(Value::Null);
        self.report_input(&id, None, input, fact);
    }

    /// Reports the whole input of a call, once.
    fn report_input(&mut self, id: &ToolCallId, name: Option<String>, input: Value, rest: Fact) {
        let Some(call) = self.memory.calls.open.find_mut(id).filter(|call| !call.is_ready) else { return };
        call.is_ready = true;
        // A call that no event began has no name until its item is whole.
        let name = name.filter(|_| call.name.is_empty());
        call.name.extend(name.as_deref().map(name_of));
        let draft = Self::tool(EventType::ToolArgs, id.clone()).call(|call| {
            call.input = Some(parsed(input).into());
            call.state = Some("input-available".to_owned());
        });
        self.push(carry_all(draft.with_tool_name(name).with_persistence(Persistence::Archive), rest));
        if self.out.has_ended(id) {
            self.memory.end_call(id);
        }
    }

    /// Completes a call: its input if the caller runs it, else also its result.
    pub(super) fn call_done(&mut self, at: usize, item: &mut Map<String, Value>) {
        self.ensure_started(at, item);
        let Some(id) = self.memory.items[at].call.clone() else { return };
        self.note_other_name(&id, item);
        self.approve(item, &id);
        let status = item.get("status").and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = tool_name(item);
        let inputs: Vec<_> = INPUTS.iter().filter_map(|member| item.shift_remove(*member)).collect();
        // Half an input is not parsed: the end of the response cancels its call.
        if status != "incomplete" {
            self.report_input(&id, Some(name), inputs.into_iter().next().unwrap_or_else(|| json!({})), Map::new());
        }
        for member in ["name", "server_label", "call_id"] {
            item.shift_remove(member);
        }
        if self.memory.calls.open.find(&id).is_some_and(|call| call.runner == Runner::Server) && status != "incomplete" {
            self.server_result(id, &status, item);
        }
    }

    /// Notes the id that the whole item has for its call, where its announcement had another one: its output has this one.
    fn note_other_name(&mut self, id: &ToolCallId, item: &Map<String, Value>) {
        if let Some(named) = id_of::<ToolCallId>(item, "call_id").filter(|named| named != id) {
            self.memory.other_names.add((named, id.clone()));
        }
    }

    // ── results ──

    /// Ends a call that the server ran.
    fn server_result(&mut self, id: ToolCallId, status: &str, item: &mut Map<String, Value>) {
        if let Some(Value::String(image)) =
            item.get("result").filter(|_| item.get("type").is_some_and(|t| t == "image_generation_call"))
        {
            let image = image.clone();
            item.shift_remove("result");
            self.image(&id, image, item);
        }
        let error = item.shift_remove("error");
        // A search and a picture have no output beside their input and their artifact.
        let output = OUTPUTS.iter().find_map(|member| item.shift_remove(*member)).unwrap_or_else(|| json!({ "status": status }));
        self.result(id, Some(output), error.or_else(|| (status == "failed").then_some(Value::Null)), Map::new());
    }

    /// Reports the result of a call, or with an error its failure.
    fn result(&mut self, id: ToolCallId, output: Option<Value>, error: Option<Value>, rest: Fact) {
        let name = self.memory.end_call(&id).map(|call| call.name).filter(|name| !name.is_empty());
        let class = if error.is_some() { EventType::ToolFailed } else { EventType::ToolResult };
        let draft = Self::tool(class, id).with_tool_name(name).call(|call| {
            call.error = error.map(|error| Box::new(error_of(&error).into()));
            call.output = output.map(Box::new);
        });
        self.push(carry_all(draft, rest));
    }

    /// Ends a call with the output that the caller sends.
    pub(super) fn output_done(&mut self, item: &mut Map<String, Value>) {
        let only = || self.memory.calls.only(|call| call.runner != Runner::Server).map(|call| call.id.clone());
        let Some(named) = take_id(item, "call_id").or_else(only) else { return };
        let id = self.memory.other_names.find(&named).map_or(named, |(_, id)| id.clone());
        let output = item.shift_remove("output");
        let is_failed = item.get("status").is_some_and(|status| status == "failed") || item.contains_key("error");
        let error = item.shift_remove("error").or(Some(Value::Null)).filter(|_| is_failed);
        self.result(id, output, error, Map::new());
    }

    pub(super) fn shell_output(&mut self, mut fact: Fact) {
        let id = self.call_of(ItemKind::Output, &mut fact);
        let Some(Value::Object(delta)) = fact.shift_remove("delta") else { return };
        fact.shift_remove("command_index");
        for (channel, text) in delta {
            let draft = Self::tool(EventType::ToolOutputDelta, id.clone()).call(|call| call.channel = Some(channel));
            // A piece of another type stays what it is.
            self.push(draft.with("text", text));
        }
        self.push_internal("shell_output", "response.shell_call_output_content.delta", fact);
    }

    pub(super) fn tool_status(&mut self, event_type: &str, mut fact: Fact) {
        let id = self.call_of(ItemKind::Call, &mut fact);
        let step = event_type.rsplit('.').next().unwrap_or_default();
        let status = match step {
            "completed" => "done",
            "failed" => "failed",
            _ => "running",
        };
        let draft = Self::tool(EventType::ToolProgress, id).call(|call| {
            call.status = Some(status.to_owned());
            call.message = Some(step.to_owned());
        });
        self.push(carry_all(draft, fact));
    }

    pub(super) fn partial_image(&mut self, mut fact: Fact) {
        let id = self.call_of(ItemKind::Call, &mut fact);
        let image = take_text(&mut fact, "partial_image_b64").unwrap_or_default();
        self.image(&id, image, &mut fact);
        self.push_internal("partial_image", "response.image_generation_call.partial_image", fact);
    }

    /// Reports a picture. Each one replaces the one before it.
    fn image(&mut self, call: &ToolCallId, base64: String, details: &mut Map<String, Value>) {
        let format = take_text(details, "output_format").unwrap_or_else(|| "png".into());
        let mut draft = Draft::new(EventType::ArtifactChanged).with("kind", "image").with("mediaType", format!("image/{format}"));
        let members = ["size", "quality", "background", "revised_prompt"].map(|member| (member, member));
        draft.move_members(details, &members);
        draft.set("partial", details.shift_remove("partial_image_index").map(|_| true));
        set_body(&mut draft, Some(format!("data:image/{format};base64,{base64}")));
        let draft = draft.with_owner(Owner::Tool).with_scope(Scope::ToolCall).with_persistence(Persistence::Archive);
        self.push(draft.with_artifact(id_from::<ArtifactId>(call.as_str())).with_call(call.clone()));
    }

    // ── what waits ──

    /// Reports the open calls that the caller runs now. Returns whether there are any.
    pub(super) fn leave_calls_to_the_caller(&mut self) -> bool {
        let calls = self.memory.calls.open.iter().filter(|call| call.runner != Runner::Server);
        let calls: Vec<_> = calls.map(|call| call.id.clone()).collect();
        for id in &calls {
            let draft = Self::tool(EventType::ToolProgress, id.clone());
            self.push(draft.call(|call| call.status = Some("pending".to_owned())));
        }
        !calls.is_empty()
    }

    /// Reports the open calls of functions whose results the client has to supply. Returns whether there are any.
    pub(super) fn await_client(&mut self) -> bool {
        let calls = self.memory.calls.open.iter().filter(|call| call.runner == Runner::CallersFunction && call.is_ready);
        let calls: Vec<_> = calls.map(|call| (call.id.clone(), call.name.clone())).collect();
        for (id, name) in &calls {
            let draft = Self::tool(EventType::ToolProgress, id.clone()).call(|call| {
                call.tool_name = Some(name.clone());
                call.status = Some("pending".to_owned());
                call.awaits = Some("client".to_owned());
            });
            self.push(draft.with_persistence(Persistence::Snapshot));
        }
        !calls.is_empty()
    }

    /// Ends the calls that the caller has answered: another response means that it sent their outputs.
    pub(super) fn close_answered_calls(&mut self) {
        for call in self.memory.end_calls() {
            let class = if call.is_ready { EventType::ToolResult } else { EventType::ToolFailed };
            let mut draft = Self::tool(class, call.id).with("outcome", "unknown");
            if !call.is_ready {
                let error = error(Some("incomplete"), "the input was never complete");
                draft = draft.with_phase(Phase::Cancelled).call(|call| {
                    call.error = Some(Box::new(error.into()));
                    call.never_started = Some(true);
                });
            }
            self.push(draft.with_tool_name(Some(call.name).filter(|name| !name.is_empty())));
        }
    }

    // ── approvals ──

    /// Asks for an approval. The response ends with it.
    pub(super) fn ask(&mut self, item: &mut Map<String, Value>) {
        let named = id_of(item, "id").filter(|id: &ActionId| id.as_str() != FAKE_ID);
        let action = named.unwrap_or_else(|| next_id("openai-responses-action", &mut self.memory.actions_made));
        let response = self.memory.responses;
        self.memory.pending.add(Pending { action: action.clone(), response });
        let draft = Draft::new(EventType::ActionRequired).with("kind", ActionKind::ToolApproval.as_str());
        let draft = draft.with("toolName", tool_name(item)).with_some("input", item.shift_remove("arguments").map(parsed));
        item.shift_remove("name");
        let draft = draft.with_moved(item, &[("server_label", "policyScope")]);
        self.push(draft.with_owner(ActionKind::ToolApproval.owner()).with_action(action));
    }

    fn resolve(&mut self, pending: Pending, outcome: &str, reason: Option<String>, call: Option<ToolCallId>) {
        let draft = resolved(pending.action, call, outcome, ActionKind::ToolApproval.owner());
        self.push(draft.with_some("reason", reason));
    }

    /// Resolves the approval of a call that runs: no event need have the answer.
    fn approve(&mut self, item: &mut Map<String, Value>, call: &ToolCallId) {
        let asked: Option<ActionId> = take_id(item, "approval_request_id");
        if let Some(pending) = asked.and_then(|action| self.memory.pending.take(&action)) {
            self.resolve(pending, "approved", None, Some(call.clone()));
        }
    }

    /// Resolves an approval with the caller's answer.
    pub(super) fn answered(&mut self, item: &mut Map<String, Value>) {
        let Some(action) = take_id::<ActionId>(item, "approval_request_id") else { return };
        let outcome = if take_flag(item, "approve") == Some(true) { "approved" } else { "rejected" };
        if let Some(pending) = self.memory.pending.take(&action) {
            let reason = take_text(item, "reason");
            self.resolve(pending, outcome, reason, None);
        }
    }

    /// Resolves the approvals that the response before this one asked for and this one did not use.
    pub(super) fn reject_unanswered(&mut self) {
        let (response, continues) = (self.memory.responses, self.memory.continues);
        for pending in self.memory.pending.take_all() {
            if continues && pending.response < response {
                self.resolve(pending, "rejected", None, None);
            } else {
                self.memory.pending.add(pending);
            }
        }
    }
}

/// Reads the message of a tool's error: text, an object with a message, or MCP's content.
fn error_of(reported: &Value) -> Map<String, Value> {
    let content = || {
        let texts = reported.get("content")?.as_array()?.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
        Some(texts.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
    };
    let message = reported.get("message").or(Some(reported)).and_then(Value::as_str).map(str::to_owned).or_else(content);
    let code = reported.get("code").or_else(|| reported.get("type")).and_then(Value::as_str);
    error(code, message.unwrap_or_else(|| "the tool failed without saying why".into()))
}

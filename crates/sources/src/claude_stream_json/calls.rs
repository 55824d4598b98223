//! Tool calls: the model's request, the result, and what the result says about files and tasks.
//!
//! The ids of a child's calls have the child's before them: a child may reuse an id of its parent. A result says more in
//! members beside the message; those are for operators.

use super::stream::part_of;
use super::{EventHandler, id_from};
use crate::Fact;
use crate::members::{block_text, members_of, name_of, set_body, take_text, with_source_id};
use crate::turn::error;
use proscenium_model::{
    AgentId, ArtifactId, Audience, Draft, EventType, MessageId, Owner, Persistence, Phase, Scope, Surface, TaskId, ToolCallId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The tool that asks for the approval of a plan.
pub(super) const EXIT_PLAN_MODE: &str = "ExitPlanMode";

/// A call without a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub id: ToolCallId,
    pub name: String,
    pub agent: Option<AgentId>,
}

/// The text of a result, whose content is text or a list of blocks. Blocks that are no text stay as they are.
fn output_of(content: Value) -> Value {
    match content {
        Value::Array(blocks) if blocks.iter().all(|block| block_text(block).is_some()) => {
            blocks.iter().filter_map(block_text).collect::<Vec<_>>().join("\n").into()
        }
        other => other,
    }
}

/// Removes what only the provider can read.
fn without_encrypted(mut value: Value) -> Value {
    match &mut value {
        Value::Object(object) => {
            object.retain(|member, _| member != "encrypted_content" && member != "encrypted_index");
            for member in object.values_mut() {
                *member = without_encrypted(member.take());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_encrypted(item.take())),
        _ => {}
    }
    value
}

impl EventHandler<'_> {
    /// Creates a draft about a call of the line's agent.
    pub(super) fn about(&self, class: EventType, raw: &str) -> Draft {
        self.about_call(class, self.call_id(raw))
    }

    pub(super) fn about_call(&self, class: EventType, id: ToolCallId) -> Draft {
        Draft::new(class).with_tool_name(self.memory.calls.open.find(&id).map(|call| call.name.as_str())).with_call(id)
    }

    pub(super) fn start_call(&mut self, raw: &str, tool: &str, is_streaming: bool) {
        let id = self.call_id(raw);
        self.memory.calls.start(Call { id: id.clone(), name: name_of(tool), agent: self.agent.clone() });
        let mut draft = Draft::new(EventType::ToolStarted).call(|call| {
            call.tool_name = Some(tool.to_owned());
            call.state = is_streaming.then(|| "input-streaming".to_owned());
        });
        if self.agent.is_none() {
            draft = with_source_id(draft, &id, raw);
        }
        (draft.owner, draft.ids.tool_call) = (Owner::Model, Some(id));
        draft.ids.message = self.memory.message.as_ref().filter(|_| is_streaming).map(|message| message.id.clone());
        draft.add_ref("parentToolCallId", self.agent.as_ref().and_then(|agent| self.memory.children.find(agent)?.call.clone()));
        self.push(draft);
    }

    /// Handles the model's whole request.
    pub(super) fn requested(&mut self, message: &MessageId, index: u64, mut block: Fact, rest: Fact) {
        let raw = take_text(&mut block, "id").unwrap_or_else(|| format!("{message}-{index}"));
        let tool = take_text(&mut block, "name").unwrap_or_default();
        let id = self.call_id(&raw);
        // A request comes whole once. Another one under an id that has ended is another call.
        if !self.memory.calls.open.has(&id) {
            self.start_call(&raw, &tool, false);
        }
        let input = block.shift_remove("input");
        if tool == EXIT_PLAN_MODE
            && let Some(plan) = input.as_ref().and_then(|input| input.get("plan")).and_then(Value::as_str)
        {
            let draft = Draft::new(EventType::PlanFinal).with_text(plan.to_owned()).with_persistence(Persistence::Snapshot);
            self.push(draft.with_message(message.clone()).with_part(part_of(index)));
        }
        let mut draft = self.about(EventType::ToolArgs, &raw).call(|call| call.input = input.map(Box::new));
        draft.payload.extend(block);
        self.push_carrying(draft.with_persistence(Persistence::Archive).with_message(message.clone()), rest);
        self.memory.calls.forget_if_ended(&id, &self.out);
    }

    /// Handles the result of a tool that the provider ran.
    pub(super) fn server_result(&mut self, mut block: Fact, rest: Fact) {
        let Some(raw) = take_text(&mut block, "tool_use_id") else { return };
        let content = without_encrypted(block.shift_remove("content").unwrap_or(Value::Null));
        let code = content.get("error_code").and_then(Value::as_str).map(str::to_owned);
        let is_error = code.is_some() || block.get("is_error") == Some(&Value::Bool(true));
        let draft = if is_error {
            let code = code.unwrap_or_else(|| "error".into());
            let message = format!("The tool failed: {code}.");
            let error = error(Some(code), message);
            self.about(EventType::ToolFailed, &raw).call(|call| call.error = Some(Box::new(error.into())))
        } else {
            self.about(EventType::ToolResult, &raw).call(|call| call.output = Some(output_of(content).into()))
        };
        let id = self.call_id(&raw);
        self.memory.calls.end(&id);
        self.push_carrying(draft.with_audience(Audience::User), rest);
    }

    /// Handles one result of a `user` line.
    pub(super) fn result_block(&mut self, mut block: Fact, rest: &mut Fact) {
        let Some(raw) = take_text(&mut block, "tool_use_id") else { return };
        let id = self.call_id(&raw);
        let structured = rest.shift_remove("tool_use_result");
        let meta = take_meta(rest, &raw);
        let is_error = block.get("is_error") == Some(&Value::Bool(true));
        self.answered_by_result(&id, &meta, is_error, structured.as_ref());
        let tool = self.memory.calls.open.find(&id).map(|call| call.name.clone()).unwrap_or_default();
        let output = output_of(self.without_images(&id, block.shift_remove("content").unwrap_or(Value::Null)));
        let mut draft =
            if is_error { self.failure(&raw, output, &meta) } else { self.success(&raw, output, structured.as_ref()) };
        block.shift_remove("is_error");
        block.shift_remove("type");
        draft.payload.extend(block);
        self.memory.calls.end(&id);
        if !is_error {
            self.effects(&id, &tool, structured.as_ref());
        }
        self.push(draft);
        let mut details = Draft::new(EventType::DiagnosticChanged).with("kind", "tool_use_result").with("eventType", "user");
        let has_details = structured.is_some() || !meta.is_empty();
        details.set("structured", structured);
        details.set("meta", (!meta.is_empty()).then_some(meta));
        if has_details {
            let details = details.with_owner(Owner::Tool).with_scope(Scope::ToolCall).with_audience(Audience::Dashboard);
            self.push_carrying(details.with_call(id), std::mem::take(rest));
        }
    }

    /// Reports the images of a result as artifacts. In the output, each has the artifact's id in place of its bytes.
    fn without_images(&mut self, call: &ToolCallId, content: Value) -> Value {
        let Value::Array(mut blocks) = content else { return content };
        let images = blocks.iter_mut().filter(|block| block["type"] == "image" && block["source"]["type"] == "base64");
        for (n, block) in images.enumerate() {
            let source = block["source"].take();
            let text = |member: &str| source[member].as_str().unwrap_or_default();
            let id = id_from::<ArtifactId>(&format!("{call}-image-{n}"));
            let (media_type, url) = (text("media_type"), format!("data:{};base64,{}", text("media_type"), text("data")));
            *block = json!({ "type": "image", "mediaType": media_type, "artifactId": id });
            let mut draft = Draft::new(EventType::ArtifactChanged).with("kind", "image").with("mediaType", media_type);
            set_body(&mut draft, Some(url));
            let draft = draft.with_owner(Owner::Tool).with_scope(Scope::ToolCall).with_persistence(Persistence::Archive);
            self.push(draft.with_artifact(id).with_call(call.clone()));
        }
        blocks.into()
    }

    fn success(&self, raw: &str, output: Value, structured: Option<&Value>) -> Draft {
        let draft = self.about(EventType::ToolResult, raw).call(|call| {
            call.output = Some(output.into());
            call.status = Some("completed".to_owned());
        });
        // The text about a launch is for the model, and names files of the host.
        let is_launch = structured.is_some_and(|result| result.get("isAsync") == Some(&Value::Bool(true)));
        draft.with_audience(if is_launch { Audience::Dashboard } else { Audience::User })
    }

    fn failure(&self, raw: &str, output: Value, meta: &Map<String, Value>) -> Draft {
        let text = match &output {
            Value::String(text) => {
                text.trim().trim_start_matches("<tool_use_error>").trim_end_matches("</tool_use_error>").to_owned()
            }
            Value::Array(blocks) => blocks.iter().filter_map(block_text).collect::<Vec<_>>().join("\n"),
            _ => String::new(),
        };
        let message = if text.is_empty() { "the tool failed without saying why".into() } else { text };
        let kind = meta.get("non_execution_kind").and_then(Value::as_str);
        let mut error = Map::from_iter([("message".to_owned(), Value::from(message))]);
        error.extend(kind.map(|kind| ("code".to_owned(), kind.into())));
        let mut draft = self.about(EventType::ToolFailed, raw).call(|call| call.error = Some(Box::new(error.into())));
        match kind {
            // A command that ran when the turn was interrupted is reported as rejected.
            Some(_) if self.memory.is_interrupted => draft.phase = Phase::Cancelled,
            Some(_) => draft = draft.call(|call| call.never_started = Some(true)),
            None => {}
        }
        draft
    }

    // ── effects ──

    fn effects(&mut self, call: &ToolCallId, tool: &str, structured: Option<&Value>) {
        let Some(result) = structured else { return };
        if result.get("structuredPatch").is_some_and(Value::is_array) {
            self.diff(call, result);
        }
        let text = |value: &Value, member: &str| value.get(member).and_then(Value::as_str).map(str::to_owned);
        match tool {
            "TodoWrite" => {
                for (n, todo) in (1..).zip(result.get("newTodos").and_then(Value::as_array).into_iter().flatten()) {
                    let id = text(todo, "id").unwrap_or_else(|| format!("todo-{n}"));
                    self.todo(call, &id, text(todo, "status"), text(todo, "content"), None);
                }
            }
            "TaskCreate" => {
                if let Some(task) = result.get("task")
                    && let Some(id) = text(task, "id")
                {
                    self.todo(call, &id, Some("pending".into()), text(task, "subject"), text(task, "description"));
                }
            }
            "TaskUpdate" => {
                if let Some(id) = text(result, "taskId") {
                    let status = result.get("statusChange").and_then(|change| text(change, "to"));
                    self.todo(call, &id, status, None, None);
                }
            }
            _ => {}
        }
    }

    fn todo(&mut self, call: &ToolCallId, id: &str, status: Option<String>, title: Option<String>, summary: Option<String>) {
        let status = status.map(|status| match status.as_str() {
            "pending" => "open".to_owned(),
            "in_progress" => "running".to_owned(),
            "deleted" => "removed".to_owned(),
            _ => status,
        });
        let draft = Draft::new(EventType::TaskChanged).with_some("status", status);
        let draft = draft.with_some("title", title).with_some("summary", summary);
        let draft = draft.with_owner(Owner::Runtime).with_scope(Scope::Session).with_phase(Phase::Planning);
        self.push(draft.with_surface(Surface::TaskCapsule).with_task(id_from::<TaskId>(id)).with_call(call.clone()));
    }

    /// Reports a change of a file.
    fn diff(&mut self, call: &ToolCallId, result: &Value) {
        let path = result.get("filePath").and_then(Value::as_str).unwrap_or_default();
        let patch = result.get("structuredPatch").cloned().unwrap_or_default();
        let lines = || {
            patch
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|hunk| hunk.get("lines")?.as_array())
                .flatten()
                .filter_map(Value::as_str)
        };
        let count = |mark: char| lines().filter(|line| line.starts_with(mark)).count();
        let stat = json!({ "added": count('+'), "removed": count('-') });
        let is_new = result.get("originalFile").is_none_or(Value::is_null);
        let mut draft = Draft::new(EventType::ArtifactDiffReady).with("path", path).with("kind", "file").with("isNew", is_new);
        draft = draft.with("diffStat", stat).with("patch", patch.clone());
        if let Some(content) = result.get("content").and_then(Value::as_str) {
            draft = draft.with("bytes", content.len()).with("sha256", format!("{:x}", Sha256::digest(content)));
        }
        (draft.owner, draft.phase, draft.persistence) = (Owner::Tool, Phase::Acting, Persistence::Archive);
        (draft.ids.artifact, draft.ids.tool_call) = (Some(id_from::<ArtifactId>(path)), Some(call.clone()));
        self.push(draft);
    }
}

/// Takes what the program says about how a call came to its result.
fn take_meta(rest: &mut Fact, call: &str) -> Map<String, Value> {
    let Some(Value::Array(list)) = rest.shift_remove("tool_result_meta") else { return Map::new() };
    let of_call = list.into_iter().find(|meta| meta.get("id").and_then(Value::as_str) == Some(call));
    let mut meta = members_of(of_call.unwrap_or(Value::Null), "value");
    meta.shift_remove("id");
    meta
}

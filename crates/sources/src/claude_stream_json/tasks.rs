//! Child agents and background commands. Both may outlive their call and the turn.

use super::{EventHandler, id_from, internal};
use crate::Fact;
use crate::members::{diagnostic, take_checked_id, take_flag, take_members, take_text};
use proscenium_model::{AgentId, Audience, Draft, EventType, Owner, Persistence, Phase, Scope, Surface, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The type of a task that is an agent.
const LOCAL_AGENT: &str = "local_agent";

/// The counts of a child, in its usage.
const COUNTS: &[(&str, &str)] = &[("tool_uses", "toolCount"), ("duration_ms", "durationMs"), ("total_tokens", "totalTokens")];

/// A child agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Child {
    pub agent: AgentId,
    /// The call that started it.
    pub call: Option<String>,
    pub has_prompt: bool,
}

/// A task without an end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    pub id: TaskId,
    kind: TaskKind,
    call: Option<String>,
}

impl Task {
    pub fn is_agent(&self) -> bool {
        self.kind == TaskKind::Agent
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TaskKind {
    Agent,
    /// A command in the background.
    Background,
    /// A slow command: the call itself.
    Foreground,
}

impl EventHandler<'_> {
    pub(super) fn task_started(&mut self, mut fact: Fact) {
        let id: TaskId = take_checked_id(&mut fact, "task_id");
        let call = take_text(&mut fact, "tool_use_id");
        let kind = match (take_text(&mut fact, "task_type").as_deref(), take_flag(&mut fact, "is_backgrounded")) {
            (Some(LOCAL_AGENT), _) => TaskKind::Agent,
            (_, Some(false)) => TaskKind::Foreground,
            _ => TaskKind::Background,
        };
        self.memory.tasks.add(Task { id: id.clone(), kind, call: call.clone() });
        let description = take_text(&mut fact, "description");
        let prompt = fact.shift_remove("prompt");
        let draft = match kind {
            TaskKind::Agent => {
                let agent: AgentId = id_from(id.as_str());
                self.memory.children.add(Child { agent: agent.clone(), call: call.clone(), has_prompt: false });
                let kind = take_text(&mut fact, "subagent_type");
                let draft = Draft::new(EventType::AgentSpawned).with("runtimeEntity", "subagent_turn").with("status", "running");
                let draft =
                    draft.with_some("role", kind.clone()).with_some("agentName", kind).with_some("spawnReason", description);
                draft.with_persistence(Persistence::Archive).with_agent(agent).with_ref("parentToolCallId", call)
            }
            TaskKind::Background => {
                self.job(&id, "running").with("title", description).with_moved(&mut fact, &[("run_id", "lastRunRef")])
            }
            TaskKind::Foreground => self.progress(call.as_deref(), description),
        };
        self.push_carrying(draft, fact);
        if let Some(prompt) = prompt {
            self.push(internal("task_prompt", "system/task_started").with("taskId", id.as_str()).with("prompt", prompt));
        }
    }

    fn job(&self, id: &TaskId, status: &str) -> Draft {
        let draft = Draft::new(EventType::TaskChanged).with("status", status).with("runtimeEntity", "automation_job");
        let draft = draft.with_owner(Owner::Tool).with_scope(Scope::Session).with_surface(Surface::BackgroundTeammate);
        draft.with_task(id.clone())
    }

    /// Reports progress of a command that is its call.
    fn progress(&self, call: Option<&str>, message: Option<String>) -> Draft {
        let draft = match call {
            Some(call) => self.about(EventType::ToolProgress, call).call(|call| call.status = Some("running".to_owned())),
            None => Draft::new(EventType::ToolProgress),
        };
        draft.call(|call| call.message = message).with_audience(Audience::User)
    }

    pub(super) fn task_progress(&mut self, mut fact: Fact) {
        let id: TaskId = take_checked_id(&mut fact, "task_id");
        let message = take_text(&mut fact, "description");
        let task = self.memory.tasks.find(&id).cloned();
        let mut draft = match task.as_ref().map(|task| task.kind) {
            Some(TaskKind::Background) => self.job(&id, "running"),
            Some(TaskKind::Foreground) => self.progress(task.and_then(|task| task.call).as_deref(), message.clone()),
            // What is not known to have started is a child: only children report often.
            Some(TaskKind::Agent) | None => {
                let draft = Draft::new(EventType::AgentChanged).with("status", "running");
                draft.with_persistence(Persistence::EphemeralLive).with_agent(id_from::<AgentId>(id.as_str()))
            }
        };
        draft.set("message", message);
        // The counts are sums, which the roster would add up again.
        if let Some(Value::Object(mut usage)) = fact.shift_remove("usage") {
            draft.move_members(&mut usage, COUNTS);
        }
        draft.move_members(&mut fact, &[("last_tool_name", "toolActivity")]);
        for known in ["tool_use_id", "subagent_type"] {
            fact.shift_remove(known);
        }
        self.push_carrying(draft, fact);
    }

    /// Reports a change of a task. The end follows as a notification.
    pub(super) fn task_updated(&mut self, mut fact: Fact) {
        let id: TaskId = take_checked_id(&mut fact, "task_id");
        let mut patch = take_members(&mut fact, "patch", "value");
        let status = take_text(&mut patch, "status");
        let mut draft = match self.memory.tasks.find(&id).map(|task| task.kind) {
            Some(TaskKind::Background) => self.job(&id, status.as_deref().unwrap_or("unknown")),
            Some(TaskKind::Agent) => Draft::new(EventType::AgentChanged)
                .with_some("latestTurnStatus", status)
                .with_agent(id_from::<AgentId>(id.as_str())),
            Some(TaskKind::Foreground) | None => {
                patch.extend(status.map(|status| ("status".to_owned(), status.into())));
                let draft = diagnostic("task_updated", "system/task_updated", patch).with("taskId", id.as_str());
                return self.push_carrying(draft, fact);
            }
        };
        draft.move_members(&mut patch, &[("error", "error")]);
        draft.payload.extend(patch);
        self.push_carrying(draft, fact);
    }

    pub(super) fn task_notification(&mut self, mut fact: Fact) {
        let id: TaskId = take_checked_id(&mut fact, "task_id");
        let file = fact.shift_remove("output_file");
        let status = take_text(&mut fact, "status").unwrap_or_else(|| "completed".into());
        let summary = take_text(&mut fact, "summary");
        let usage = fact.shift_remove("usage");
        let kind = self.memory.tasks.take(&id).map(|task| task.kind);
        match kind {
            Some(TaskKind::Agent) => self.agent_ended(&id, &status, summary.as_deref(), usage),
            Some(TaskKind::Background) => {
                let draft = self.job(&id, &status).with_some("summary", summary);
                self.push_carrying(draft, std::mem::take(&mut fact));
            }
            Some(TaskKind::Foreground) | None => {
                let mut draft = diagnostic("task_notification", "system/task_notification", std::mem::take(&mut fact));
                draft.set("summary", summary);
                self.push(draft.with("taskId", id.as_str()).with("status", status));
            }
        }
        fact.extend(file.map(|file| ("output_file".to_owned(), file)));
        if !fact.is_empty() {
            self.push(diagnostic("task_output", "system/task_notification", fact).with("taskId", id.as_str()));
        }
    }

    fn agent_ended(&mut self, id: &TaskId, status: &str, summary: Option<&str>, usage: Option<Value>) {
        let agent: AgentId = id_from(id.as_str());
        let ends_as = if status == "stopped" { "cancelled" } else { status };
        let phase = match status {
            "completed" => Phase::Completed,
            "stopped" => Phase::Cancelled,
            _ => Phase::Failed,
        };
        let mut ended = Draft::new(EventType::AgentCompleted).with("status", ends_as).with_some("summary", summary);
        if let Some(Value::Object(mut usage)) = usage {
            ended.move_members(&mut usage, COUNTS);
        }
        self.push(ended.with_phase(phase).with_agent(agent.clone()));
        let call = self.memory.children.find(&agent).and_then(|child| child.call.clone());
        let note = Draft::new(EventType::WorkerNotification).with("workerNotificationId", id.as_str()).with("status", status);
        let note = note.with_some("summary", summary).with_ref("parentToolCallId", call);
        self.push(note.with_agent(agent).with_task(id.clone()));
    }
}

//! Tasks: their states, pauses and ends.

use super::artifact::split;
use super::{EventHandler, TurnState};
use crate::Fact;
use crate::members::{RuntimeId, diagnostic, id_from, name_of, take_id, take_list, take_text};
use crate::turn::{error, failed, resolved, waiting};
use proscenium_model::{ActionId, ActionKind, Draft, EventType, MessageId, Owner, Persistence, Phase, Surface, TaskId, ThreadId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
    Unknown,
}

impl State {
    /// Reads a state by its name in 0.3.
    fn of(name: &str) -> Self {
        match name {
            "submitted" => Self::Submitted,
            "working" => Self::Working,
            "input-required" => Self::InputRequired,
            "auth-required" => Self::AuthRequired,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "canceled" | "cancelled" => Self::Canceled,
            "rejected" => Self::Rejected,
            _ => Self::Unknown,
        }
    }

    /// The protocol's word.
    const fn status(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "running",
            Self::InputRequired | Self::AuthRequired => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "cancelled",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
        }
    }

    const fn is_pause(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

impl EventHandler<'_> {
    // ── tasks ──

    pub(super) fn task(&mut self, mut fact: Fact) {
        let id = take_text(&mut fact, "id").unwrap_or_default();
        self.take_context(&mut fact);
        let is_known = self.memory.turn_state != TurnState::New && self.memory.task.as_deref() == Some(name_of(&id).as_str());
        if !is_known {
            self.begin(Some(&id));
        }
        // The task is a snapshot: its artifacts replace the known ones, and may still grow.
        for artifact in take_list(&mut fact, "artifacts") {
            self.artifact(artifact, false, false);
        }
        let status = fact.shift_remove("status");
        // What the caller sent, and the server's own data.
        self.push_internal("task", fact);
        self.status(status, is_known);
    }

    /// Starts an attempt with a task, or with a message alone.
    fn begin(&mut self, task: Option<&str>) {
        if matches!(self.memory.turn_state, TurnState::Open | TurnState::Paused) {
            self.answer("cancelled");
            self.seal();
        }
        let memory = &mut *self.memory;
        memory.attempt += 1;
        memory.turn_state = TurnState::Open;
        memory.task = task.map(name_of);
        (memory.state, memory.questions, memory.has_text) = (None, 0, false);
        memory.artifacts.clear();
        let mut draft = Draft::new(EventType::RunStarted).with("attempt", memory.attempt);
        draft.add_ref("taskId", task);
        self.push(draft);
    }

    /// Takes the context of an event: the first one is the run's thread.
    fn take_context(&mut self, fact: &mut Fact) {
        let context: Option<ThreadId> = take_id(fact, "contextId");
        self.memory.thread = self.memory.thread.take().or(context);
    }

    /// Prepares an update. Returns it as a diagnostic if it is of another task than the current one.
    pub(super) fn take_update(&mut self, event_type: &str, mut fact: Fact) -> Option<Fact> {
        let named = take_text(&mut fact, "taskId").filter(|id| !id.is_empty());
        if let (Some(named), Some(task)) = (&named, &self.memory.task)
            && name_of(named) != *task
            && self.memory.turn_state != TurnState::New
        {
            fact.insert("taskId".into(), named.as_str().into());
            self.push(diagnostic("interleaved_run", event_type, fact));
            return None;
        }
        self.take_context(&mut fact);
        match self.memory.turn_state {
            TurnState::New => self.begin(named.as_deref()),
            _ => self.memory.task = self.memory.task.take().or_else(|| named.as_deref().map(name_of)),
        }
        Some(fact)
    }

    // ── states ──

    pub(super) fn status_update(&mut self, fact: Fact) {
        let Some(mut fact) = self.take_update("statusUpdate", fact) else { return };
        let status = fact.shift_remove("status");
        fact.shift_remove("final");
        self.status(status, false);
        self.push_internal("status", fact);
    }

    /// Handles a status. A repeated one is part of a snapshot.
    fn status(&mut self, status: Option<Value>, is_repeated: bool) {
        let Some(Value::Object(mut status)) = status else { return };
        status.shift_remove("timestamp");
        // `TASK_STATE_INPUT_REQUIRED` in 1.0 is `input-required` in 0.3.
        let name = take_text(&mut status, "state").unwrap_or_default();
        let name = name.trim_start_matches("TASK_STATE_").to_ascii_lowercase().replace('_', "-");
        let state = State::of(&name);
        let (message, text, mut others) = self.take_message(&mut status);
        let is_new = self.memory.state != Some(state);
        if self.memory.turn_state == TurnState::Ended {
            if is_new {
                self.push(diagnostic("late_end", "status", status).with("state", name));
            }
            return;
        }
        if is_new || is_repeated {
            self.task_changed(state, &name);
        }
        if is_repeated && !is_new {
            return self.push_internal("status", status);
        }
        self.take_surfaces(&mut others);
        if self.memory.turn_state == TurnState::Paused {
            self.resume(state);
        }
        // Only the data of a question is for the user: a link to sign in may hold credentials.
        let asked = others.extract_if(.., |part| state == State::InputRequired && part.get("data").is_some()).collect();
        match state {
            State::InputRequired | State::AuthRequired => self.ask(state, text, asked),
            State::Completed | State::Failed | State::Canceled | State::Rejected => self.end(state, message, text),
            State::Submitted | State::Working | State::Unknown => self.progress(state, text),
        }
        if !others.is_empty() {
            status.insert("parts".into(), others.into());
        }
        self.push_internal("status", status);
    }

    /// Takes the message of a status: its id, its text, and its other parts.
    fn take_message(&mut self, status: &mut Map<String, Value>) -> (Option<MessageId>, Option<String>, Vec<Value>) {
        let Some(Value::Object(mut message)) = status.shift_remove("message") else { return (None, None, Vec::new()) };
        let (text, others) = split(take_list(&mut message, "parts"));
        let id = take_id(&mut message, "messageId");
        for member in ["contextId", "taskId", "role", "kind"] {
            message.shift_remove(member);
        }
        self.push_internal("status_message", message);
        (id, text.filter(|text| !text.is_empty()), others)
    }

    /// Reports the state of the task.
    fn task_changed(&mut self, state: State, name: &str) {
        self.memory.state = Some(state);
        let mut draft = Draft::new(EventType::TaskChanged).with("runtimeEntity", "external_task").with("status", state.status());
        draft.set("runtimeStatus", Some(name).filter(|name| state == State::Unknown && !name.is_empty()));
        draft.set("remoteTaskId", self.memory.task.clone());
        draft.ids.task = self.memory.task.as_deref().and_then(TaskId::of);
        draft.surface = Surface::RemoteTeammate;
        if draft.ids.task.is_some() {
            self.push(draft);
        }
    }

    fn progress(&mut self, state: State, text: Option<String>) {
        let phase = match state {
            State::Submitted => Phase::Submitted,
            State::Working => Phase::Acting,
            _ => Phase::Unknown,
        };
        self.push(Draft::new(EventType::RunStatus).with_some("message", text).with_phase(phase));
    }

    // ── pauses ──

    /// Asks the user. The server closes the stream, and the task goes on with an answer.
    fn ask(&mut self, state: State, text: Option<String>, parts: Vec<Value>) {
        self.memory.questions += 1;
        let task = self.memory.task.as_deref().unwrap_or("a2a");
        let action: ActionId = id_from(&format!("{task}/{}", self.memory.questions));
        let kind = if state == State::AuthRequired { ActionKind::CredentialRequest } else { ActionKind::Clarification };
        let message = text.unwrap_or_else(|| "The remote agent asks without saying what.".into());
        let draft = Draft::new(EventType::ActionRequired).with("kind", kind.as_str()).with("message", message);
        let draft = draft.with_some("payload", (!parts.is_empty()).then(|| json!({ "parts": parts })));
        self.push(draft.with_owner(kind.owner()).with_action(action.clone()));
        self.memory.question = Some(action);
        self.memory.turn_state = TurnState::Paused;
        self.push(waiting());
    }

    /// Resumes the run: a task goes on only after an answer.
    fn resume(&mut self, state: State) {
        let is_over = matches!(state, State::Canceled | State::Failed | State::Rejected);
        self.answer(if is_over { "cancelled" } else { "answered" });
        self.memory.turn_state = TurnState::Open;
        if !state.is_pause() && !is_over {
            self.push(Draft::new(EventType::RunStatus).with("resumed", true).with_persistence(Persistence::Snapshot));
        }
    }

    fn answer(&mut self, outcome: &str) {
        if let Some(action) = self.memory.question.take() {
            self.push(resolved(action, None, outcome, Owner::Runtime));
        }
    }

    // ── ends ──

    fn end(&mut self, state: State, message: Option<MessageId>, text: Option<String>) {
        self.seal();
        let mut draft = match state {
            State::Failed | State::Rejected => {
                let message = text.unwrap_or_else(|| "the remote task failed without saying why".into());
                Draft::new(EventType::RunFailed).with("error", json!({ "message": message }))
            }
            // An agent without artifacts answers in its last message.
            State::Completed if !self.memory.has_text => {
                if let Some(text) = text {
                    self.say(message, "assistant", text);
                }
                Draft::new(EventType::RunFinished)
            }
            _ => Draft::new(EventType::RunFinished).with_some("message", text),
        };
        draft = draft.with("status", state.status());
        match state {
            State::Canceled => draft.phase = Phase::Cancelled,
            State::Rejected => draft = draft.with("refused", true).with_owner(Owner::Policy),
            _ => {}
        }
        self.close(draft);
    }

    fn close(&mut self, draft: Draft) {
        self.memory.turn_state = TurnState::Ended;
        self.push(draft);
    }

    /// Ends the run with a JSON-RPC error: the agent's code failed, and its task has no end.
    pub(super) fn error(&mut self, mut fact: Fact) {
        match self.memory.turn_state {
            TurnState::Ended => return self.push(diagnostic("late_end", "error", fact)),
            TurnState::New => self.begin(None),
            TurnState::Open | TurnState::Paused => {}
        }
        self.answer("cancelled");
        self.seal();
        let code = fact.shift_remove("code").map(|code| code.to_string());
        let message = take_text(&mut fact, "message").unwrap_or_else(|| "the remote agent failed without saying why".into());
        self.task_changed(State::Failed, "");
        self.close(failed(error(code, message)));
        self.push_internal("error", fact);
    }

    /// Handles a message without a task: the whole answer.
    pub(super) fn lone_message(&mut self, mut fact: Fact) {
        self.take_context(&mut fact);
        let is_alone = matches!(self.memory.turn_state, TurnState::New | TurnState::Ended);
        if is_alone {
            self.begin(None);
        }
        self.message(fact);
        if is_alone {
            self.close(Draft::new(EventType::RunFinished).with("status", "completed"));
        }
    }
}

//! The lifecycle of the run: what each dialect says of its start, its pauses and its end.

use super::event::object;
use super::{EventHandler, TurnState, internal};
use crate::Fact;
use crate::members::{carry_all, diagnostic, members_of, name_of, take_text};
use crate::turn::{ended, error, failed, waiting};
use proscenium_model::{Draft, EventType, Persistence, Phase, ThreadId};
use serde_json::{Map, Value, json};

/// Reasons of a model to stop that cut its answer off.
const CUT_OFF: &[&str] = &["length", "max_tokens", "content_filter"];

impl EventHandler<'_> {
    /// Starts a run whose start is not in the stream.
    pub(super) fn ensure_started(&mut self) {
        if self.memory.turn_state == TurnState::New {
            self.begin(None, true);
        }
    }

    /// Starts the run, or continues it after a pause.
    pub(super) fn begin(&mut self, run: Option<&str>, is_synthetic: bool) {
        let is_resumed = self.memory.turn_state == TurnState::Paused;
        let class = if is_resumed { EventType::RunStatus } else { EventType::RunStarted };
        let mut draft = Draft::new(class).with_persistence(Persistence::Snapshot);
        if is_resumed {
            draft = draft.with("resumed", true);
            self.expect_answers();
        } else {
            draft = draft.with("attempt", self.out.next_attempt());
        }
        draft.set("synthetic", is_synthetic.then_some(true));
        draft.add_ref("runId", run);
        let memory = &mut *self.memory;
        memory.turn_state = TurnState::Open;
        memory.has_asked = false;
        memory.finish_reason = None;
        for message in memory.messages.iter_mut() {
            message.is_open = false;
        }
        self.push_of_run(draft);
    }

    /// Handles the first event of a run stream.
    pub(super) fn metadata(&mut self, data: Value, rest: Fact) {
        let mut data = object(Some(data));
        let run = take_text(&mut data, "run_id");
        let attempt = data.shift_remove("attempt").and_then(|attempt| attempt.as_u64()).unwrap_or(1);
        let is_same = run.is_some() && run == self.memory.run;
        if let Some(thread) = take_text(&mut data, "thread_id") {
            self.learn_thread(&thread);
        }
        let is_retry = is_same && attempt > self.memory.run_attempt;
        if is_same && !is_retry && self.memory.turn_state == TurnState::Open {
            // The same stream, joined again.
            data.extend(rest);
            return self.push(diagnostic("joined", "metadata", data));
        }
        if is_retry {
            self.retract_unfinished();
        }
        self.close_messages();
        self.memory.run = run.as_deref().map(name_of);
        self.memory.run_attempt = attempt;
        self.begin(run.as_deref(), false);
        if !data.is_empty() || !rest.is_empty() {
            data.extend(rest);
            self.push(diagnostic("metadata", "metadata", data));
        }
    }

    pub(super) fn learn_thread(&mut self, thread: &str) {
        if self.memory.thread.is_none() {
            self.memory.thread = ThreadId::new(thread).ok();
        }
    }

    pub(super) fn lifecycle(&mut self, mut data: Fact) {
        let event = take_text(&mut data, "event").unwrap_or_default();
        if !self.namespace.is_empty() {
            return self.child_lifecycle(&event, data);
        }
        match event.as_str() {
            "running" | "started" if self.memory.turn_state == TurnState::Open => {
                self.push(diagnostic("lifecycle", &event, data));
            }
            "running" | "started" => {
                if self.memory.root_agent.is_none() {
                    self.memory.root_agent = data.get("graph_name").and_then(Value::as_str).map(name_of);
                }
                self.close_messages();
                self.begin(None, false);
            }
            "completed" => self.complete(data),
            "failed" => {
                let error = match data.shift_remove("error") {
                    Some(Value::Object(error)) => Value::Object(error),
                    Some(Value::String(text)) => json!({ "message": text }),
                    _ => json!({ "message": "the run failed without saying why" }),
                };
                self.end(failed(error), data);
            }
            // The runtime has one word for a run that asks and a run that was cancelled.
            "interrupted" if self.memory.has_asked => self.wait(Map::new()),
            "interrupted" => {
                self.end(ended(Phase::Cancelled, "cancelled"), data);
            }
            _ => self.push(diagnostic("lifecycle", &event, data)),
        }
    }

    /// Ends the run with success, unless the model's last answer was cut off.
    pub(super) fn complete(&mut self, rest: Fact) {
        let cut = self.memory.finish_reason.clone().filter(|reason| CUT_OFF.contains(&reason.as_str()));
        let draft = match cut {
            Some(reason) => ended(Phase::Interrupted, "interrupted").with("reason", reason),
            None => ended(Phase::Completed, "completed"),
        };
        self.end(draft, rest);
    }

    /// Handles the error that ends a run stream.
    pub(super) fn error(&mut self, data: Value, rest: Fact) {
        let mut data = members_of(data, "message");
        let code = take_text(&mut data, "error");
        let message = take_text(&mut data, "message").unwrap_or_else(|| "the run failed without saying why".into());
        data.extend(rest);
        self.end(failed(error(code, message)), data);
    }

    fn end(&mut self, draft: Draft, rest: Fact) {
        if self.memory.turn_state == TurnState::Ended {
            let name = draft.event_type.as_str().to_owned();
            return self.push(diagnostic("late_end", &name, rest));
        }
        self.ensure_started();
        self.settle_answers();
        // An open message of a run that did not succeed is interrupted by the end of the run.
        if draft.phase == Phase::Completed {
            self.close_messages();
        }
        let memory = &mut *self.memory;
        memory.turn_state = TurnState::Ended;
        memory.calls.end_all();
        memory.pending.clear();
        memory.open.clear();
        memory.tool_runs.clear();
        self.push_of_run(carry_all(draft, rest));
    }

    /// Reports that the run waits for the user.
    pub(super) fn wait(&mut self, about: Map<String, Value>) {
        self.memory.turn_state = TurnState::Paused;
        let mut draft = waiting();
        draft.payload.extend(about);
        self.push_of_run(draft);
    }

    /// Keeps an event that says nothing about the run, for internal readers.
    pub(super) fn keep(&mut self, kind: &str, event_type: &str, data: Value) {
        self.push(internal(kind, event_type).with("data", data));
    }
}

//! The A2A dialect: a run as a task of the Agent2Agent protocol, in its versions 0.3 and 1.0.
//!
//! It reads the events of the AG-UI dialect, which knows what a client has, where a run pauses, and what a client lacks
//! that was cut off:
//!
//! ```text
//! RUN_STARTED                    the task, at work
//! MESSAGES_SNAPSHOT              the task with its artifacts so far, which replaces the client's copy
//! TEXT_MESSAGE_* of the agent    an artifact of the message's id, that grows
//! ACTIVITY_* of an artifact      an artifact of one data part: what the artifact is, and where to read it
//! RUN_FINISHED, RUN_ERROR        the status: completed, canceled, failed, or what the task waits for
//! ```
//! Thoughts, tool calls, states and other activities are the agent's own: the protocol has no place for them.

mod update;
mod wire;

pub use wire::A2aVersion;

use super::ag_ui::adapted::{AdaptedAgUi, EventAdapter};
use super::ag_ui::{self, AgUi, AgUiOptions};
use super::files::FilePart;
use super::frames::ActivityView;
use super::{Begin, Until};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use update::{Artifact, Part, Status, TaskState, Update};

/// The code of an error that the server itself has.
const INTERNAL_ERROR: i64 = -32603;
/// The activity type of artifacts.
const ARTIFACT: &str = "artifact";

/// One client's request, and the task that it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct A2aOptions {
    /// The version of the protocol.
    pub version: A2aVersion,
    /// The client's id of the conversation (`contextId`).
    pub context: String,
    /// The client's id of the task (`taskId`).
    pub task: String,
    /// The id of the JSON-RPC request, which every event names.
    pub request: Value,
}

impl A2aOptions {
    fn ag_ui(&self, begin: Begin) -> AgUiOptions {
        AgUiOptions {
            thread: self.context.clone(),
            run: self.task.clone(),
            begin,
            until: Until::Pause,
            is_v1: true,
            subagents: false,
            messages: Vec::new(),
        }
    }

    /// The task as these activities of its run tell it, with at most `history` messages of the user.
    #[must_use]
    pub fn task(&self, activities: &[ActivityView], history: usize) -> Value {
        let task = self.reduced(activities);
        let said = ag_ui::messages(activities, true).into_iter().filter(|message| message["role"] == "user");
        let said: Vec<Value> = said.map(|message| self.said(&message)).collect();
        wire::task(self, &task, &said[said.len().saturating_sub(history)..])
    }

    /// What the push address of a task gets, as these activities of its run tell it: the status, without what was made.
    #[must_use]
    pub fn status(&self, activities: &[ActivityView]) -> Value {
        let task = update::Task { artifacts: Vec::new(), ..self.reduced(activities) };
        match self.version {
            A2aVersion::V03 => wire::task(self, &task, &[]),
            A2aVersion::V10 => wire::response(self, Update::Status(task.status))["result"].take(),
        }
    }

    fn reduced(&self, activities: &[ActivityView]) -> update::Task {
        let (mut reduced, mut task) = (Reduced::default(), update::Task::default());
        for event in ag_ui::events(activities, self.ag_ui(Begin::Replay)) {
            reduced.reduce(event, &mut |update| task.apply(update));
        }
        task
    }

    /// The task of a run that was requested and is not written yet, or was withdrawn.
    #[must_use]
    pub fn requested(&self, is_withdrawn: bool) -> Value {
        let state = if is_withdrawn { TaskState::Canceled } else { TaskState::Submitted };
        wire::task(self, &update::Task { status: Status { state, message: None }, artifacts: Vec::new() }, &[])
    }

    /// A message of the user.
    fn said(&self, message: &Value) -> Value {
        let id = message["id"].as_str().unwrap_or_default();
        let files = message["content"].as_array().into_iter().flatten().filter(|part| FilePart::of(part).is_some());
        let files: Vec<_> = files.map(|part| Part::File(part.clone())).collect();
        let text = Some(ag_ui::text_of(message)).filter(|text| files.is_empty() || !text.is_empty());
        let parts: Vec<_> = text.map(Part::Text).into_iter().chain(files).collect();
        wire::message(self, "user", id, &parts)
    }
}

/// The translation of one run for one client.
pub type A2a = AdaptedAgUi<TaskUpdates>;

impl A2a {
    /// Creates the translation, before any frame. `begin`: whether the client has nothing of the task.
    #[must_use]
    pub fn new(options: A2aOptions, begin: Begin) -> Self {
        let inner = AgUi::new(options.ag_ui(begin));
        Self::of(inner, TaskUpdates { options: options.into(), reduced: Reduced::default() })
    }
}

/// What turns the events of a run into the updates of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskUpdates {
    options: Arc<A2aOptions>,
    reduced: Reduced,
}

impl EventAdapter for TaskUpdates {
    // A task is one run.
    const HAS_HISTORY: bool = false;

    fn adapt(&mut self, events_in: Vec<Value>, events: &mut Vec<Value>) {
        let mut updates: Vec<Update> = Vec::new();
        for event in events_in {
            self.reduced.reduce(event, &mut |update| match (updates.last_mut(), update) {
                // The artifacts of a snapshot belong to the task before it.
                (Some(Update::Task(task)), Update::Task(whole)) => *task = whole,
                (_, update) => updates.push(update),
            });
        }
        events.extend(updates.into_iter().map(|update| wire::response(&self.options, update)));
    }

    fn resume(&mut self, known: &[ActivityView]) {
        for event in ag_ui::events(known, self.options.ag_ui(Begin::Replay)) {
            self.reduced.reduce(event, &mut |_| {});
        }
    }

    fn failure(&self, problem: &Value) -> Option<Value> {
        // The stream fails, and not the task.
        let detail = problem["detail"].as_str().or_else(|| problem["title"].as_str());
        let message = detail.unwrap_or("The stream ended with an error.");
        let error = json!({ "code": INTERNAL_ERROR, "message": message, "data": problem });
        Some(json!({ "jsonrpc": "2.0", "id": self.options.request, "error": error }))
    }
}

/// What a client has of the task, as far as later updates depend on it.
#[derive(Debug, Clone, Default, PartialEq)]
struct Reduced {
    /// The messages that are artifacts.
    texts: HashSet<Box<str>>,
    /// The messages that come from others than the agent, and have not ended.
    others: HashSet<Box<str>>,
    /// The artifacts of the run: patches change them.
    artifacts: BTreeMap<Box<str>, Value>,
}

impl Reduced {
    /// Says what an event changes for a client.
    fn reduce(&mut self, mut event: Value, say: &mut impl FnMut(Update)) {
        let id: Box<str> = event["messageId"].as_str().unwrap_or_default().into();
        match event["type"].as_str().unwrap_or_default() {
            "RUN_STARTED" => say(Update::Task(update::Task::default())),
            "MESSAGES_SNAPSHOT" => {
                *self = Self::default();
                let artifacts = event["messages"].as_array().into_iter().flatten().filter_map(|message| self.listed(message));
                let artifacts = artifacts.collect();
                say(Update::Task(update::Task { artifacts, ..update::Task::default() }));
            }
            "TEXT_MESSAGE_START" if event["role"] != "assistant" => drop(self.others.insert(id)),
            "TEXT_MESSAGE_END" => drop(self.others.remove(&id)),
            "TEXT_MESSAGE_CONTENT" if !self.others.contains(&id) => {
                let appends = !self.texts.insert(id.clone());
                let text = event["delta"].as_str().unwrap_or_default().to_owned();
                say(Update::Artifact(Artifact::of_text(id, text), appends));
            }
            kind @ ("ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA") if event["activityType"] == *ARTIFACT => {
                let known = self.artifacts.entry(id.clone()).or_default();
                if kind == "ACTIVITY_SNAPSHOT" {
                    *known = event["content"].take();
                } else if let Ok(patch) = serde_json::from_value::<json_patch::Patch>(event["patch"].take()) {
                    // A patch of the server's own fold applies.
                    let _ = json_patch::patch(known, &patch);
                }
                say(Update::Artifact(Artifact::of_data(id, known.clone()), false));
            }
            "RUN_FINISHED" => say(Update::Status(Status::of_end(&event))),
            "RUN_ERROR" => {
                let state = if event["code"] == "cancelled" { TaskState::Canceled } else { TaskState::Failed };
                let why = event["message"].as_str().unwrap_or_default().to_owned();
                say(Update::Status(Status { state, message: Some(("status".into(), vec![Part::Text(why)])) }));
            }
            _ => {}
        }
    }

    /// The artifact of a message of a snapshot, which may go on.
    fn listed(&mut self, message: &Value) -> Option<Artifact> {
        let id: Box<str> = message["id"].as_str()?.into();
        if message["role"] == "activity" && message["activityType"] == *ARTIFACT {
            self.artifacts.insert(id.clone(), message["content"].clone());
            return Some(Artifact::of_data(id, message["content"].clone()));
        }
        if message["role"] != "assistant" {
            self.others.insert(id);
            return None;
        }
        let text = ag_ui::text_of(message);
        if text.is_empty() {
            return None;
        }
        self.texts.insert(id.clone());
        Some(Artifact::of_text(id, text))
    }
}

/// The members of an object, none of which is null.
fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests;

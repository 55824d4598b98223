//! What changes about a task, before a version of the protocol spells it.

use serde_json::Value;

/// A part of a message or an artifact.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Text(String),
    Data(Value),
    /// A file, as a content part of AG-UI.
    File(Value),
}

/// A state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum TaskState {
    Submitted,
    #[default]
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
}

impl TaskState {
    /// Whether a stream ends with it.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Submitted | Self::Working)
    }
}

/// The state of a task, and what the agent says of it: the id of a message and its parts.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Status {
    pub state: TaskState,
    pub message: Option<(String, Vec<Part>)>,
}

impl Status {
    /// The status that a `RUN_FINISHED` means.
    pub fn of_end(event: &Value) -> Self {
        let outcome = &event["outcome"];
        let asked = outcome["interrupts"].as_array().map(Vec::as_slice).unwrap_or_default();
        match (outcome["type"].as_str(), asked) {
            (Some("cancelled"), _) => Self { state: TaskState::Canceled, message: None },
            (_, [first, ..]) => Self::of_questions(first, asked),
            // The run ended nowhere: it is at rest, or waits for what no reader can give.
            _ => match event.pointer("/metadata/proscenium/status").and_then(Value::as_str) {
                Some("waiting") => Self { state: TaskState::InputRequired, message: None },
                Some(_) => Self::default(),
                None => Self { state: TaskState::Completed, message: result(&event["result"]) },
            },
        }
    }

    /// What the task waits for: the words of the questions, and the questions as data.
    fn of_questions(first: &Value, asked: &[Value]) -> Self {
        let is_credential =
            |asked: &Value| asked.pointer("/metadata/proscenium/kind").is_some_and(|kind| kind == "credential_request");
        let state = if asked.iter().all(is_credential) { TaskState::AuthRequired } else { TaskState::InputRequired };
        let words = asked.iter().filter_map(|asked| asked["message"].as_str()).map(|words| Part::Text(words.to_owned()));
        let parts = words.chain([Part::Data(serde_json::json!({ "interrupts": asked }))]).collect();
        Self { state, message: Some((first["id"].as_str().unwrap_or("question").to_owned(), parts)) }
    }
}

/// The message of a task that completed with a result.
fn result(result: &Value) -> Option<(String, Vec<Part>)> {
    let part = match result {
        Value::Null => return None,
        Value::String(text) => Part::Text(text.clone()),
        data => Part::Data(data.clone()),
    };
    Some(("result".to_owned(), vec![part]))
}

/// A result of a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Artifact {
    pub id: Box<str>,
    pub name: Option<String>,
    pub part: Part,
}

impl Artifact {
    pub const fn of_text(id: Box<str>, text: String) -> Self {
        Self { id, name: None, part: Part::Text(text) }
    }

    pub fn of_data(id: Box<str>, data: Value) -> Self {
        Self { id, name: data["title"].as_str().map(str::to_owned), part: Part::Data(data) }
    }
}

/// A task, as far as its client has it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Task {
    pub status: Status,
    pub artifacts: Vec<Artifact>,
}

/// A change of a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Update {
    /// The whole task, which replaces the client's copy.
    Task(Task),
    /// An artifact, or a text that is appended to one.
    Artifact(Artifact, bool),
    Status(Status),
}

impl Task {
    pub fn apply(&mut self, update: Update) {
        match update {
            Update::Task(task) => *self = task,
            Update::Status(status) => self.status = status,
            Update::Artifact(artifact, appends) => match self.artifacts.iter_mut().find(|known| known.id == artifact.id) {
                Some(Artifact { part: Part::Text(known), .. }) if appends => {
                    if let Part::Text(text) = &artifact.part {
                        known.push_str(text);
                    }
                }
                Some(known) => *known = artifact,
                None => self.artifacts.push(artifact),
            },
        }
    }
}

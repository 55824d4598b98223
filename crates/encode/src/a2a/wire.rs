//! The JSON of the protocol's two versions.

use super::update::{Artifact, Part, Status, Task, TaskState, Update};
use super::{A2aOptions, object};
use crate::files::{FileContent, FilePart};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum A2aVersion {
    /// 0.3: objects name their kind.
    #[serde(rename = "0.3")]
    V03,
    /// 1.0: the member that holds an object names its kind.
    #[serde(rename = "1.0")]
    V10,
}

impl Part {
    fn to_json(&self, version: A2aVersion) -> Value {
        match (self, version) {
            (Self::Text(text), A2aVersion::V03) => json!({ "kind": "text", "text": text }),
            (Self::Text(text), A2aVersion::V10) => json!({ "text": text }),
            (Self::Data(data), A2aVersion::V03) => json!({ "kind": "data", "data": data }),
            (Self::Data(data), A2aVersion::V10) => json!({ "data": data }),
            (Self::File(part), _) => FilePart::of(part).map_or_else(|| json!({}), |of| file(&of, version)),
        }
    }
}

fn file(of: &FilePart<'_>, version: A2aVersion) -> Value {
    let (bytes, url) = match of.content {
        FileContent::Inline(data) => (Some(data.into()), None),
        FileContent::Url(url) => (None, Some(url.into())),
    };
    let (media_type, name) = (Some(of.media_type.into()), of.name.map(Value::from));
    match version {
        A2aVersion::V03 => {
            let file = object([("bytes", bytes), ("uri", url), ("mimeType", media_type), ("name", name)]);
            json!({ "kind": "file", "file": file })
        }
        A2aVersion::V10 => object([("raw", bytes), ("url", url), ("mediaType", media_type), ("filename", name)]),
    }
}

impl TaskState {
    const fn name(self, version: A2aVersion) -> &'static str {
        let (old, new) = match self {
            Self::Submitted => ("submitted", "TASK_STATE_SUBMITTED"),
            Self::Working => ("working", "TASK_STATE_WORKING"),
            Self::InputRequired => ("input-required", "TASK_STATE_INPUT_REQUIRED"),
            Self::AuthRequired => ("auth-required", "TASK_STATE_AUTH_REQUIRED"),
            Self::Completed => ("completed", "TASK_STATE_COMPLETED"),
            Self::Failed => ("failed", "TASK_STATE_FAILED"),
            Self::Canceled => ("canceled", "TASK_STATE_CANCELED"),
        };
        match version {
            A2aVersion::V03 => old,
            A2aVersion::V10 => new,
        }
    }
}

/// The kind that an object names in 0.3.
fn kind(options: &A2aOptions, kind: &str) -> Option<Value> {
    (options.version == A2aVersion::V03).then(|| kind.into())
}

/// A message of the user or the agent about the task.
pub(super) fn message(options: &A2aOptions, role: &str, id: &str, parts: &[Part]) -> Value {
    let role = match options.version {
        A2aVersion::V03 => role.to_owned(),
        A2aVersion::V10 => format!("ROLE_{}", role.to_ascii_uppercase()),
    };
    object([
        ("kind", kind(options, "message")),
        ("messageId", Some(id.into())),
        ("role", Some(role.into())),
        ("parts", Some(parts.iter().map(|part| part.to_json(options.version)).collect())),
        ("taskId", Some(options.task.as_str().into())),
        ("contextId", Some(options.context.as_str().into())),
    ])
}

fn status(options: &A2aOptions, status: &Status) -> Value {
    let said = status.message.as_ref().map(|(id, parts)| message(options, "agent", &format!("{}:{id}", options.task), parts));
    object([("state", Some(status.state.name(options.version).into())), ("message", said)])
}

fn artifact(options: &A2aOptions, artifact: &Artifact) -> Value {
    object([
        ("artifactId", Some((*artifact.id).into())),
        ("name", artifact.name.as_deref().map(Value::from)),
        ("parts", Some(json!([artifact.part.to_json(options.version)]))),
    ])
}

/// A whole task.
pub(super) fn task(options: &A2aOptions, task: &Task, history: &[Value]) -> Value {
    let artifacts: Vec<Value> = task.artifacts.iter().map(|known| artifact(options, known)).collect();
    object([
        ("kind", kind(options, "task")),
        ("id", Some(options.task.as_str().into())),
        ("contextId", Some(options.context.as_str().into())),
        ("status", Some(status(options, &task.status))),
        ("artifacts", (!artifacts.is_empty()).then(|| artifacts.into())),
        ("history", (!history.is_empty()).then(|| history.into())),
    ])
}

/// The event of a stream that tells a change.
pub(super) fn response(options: &A2aOptions, update: Update) -> Value {
    let (task_id, context) = (Some(options.task.as_str().into()), Some(options.context.as_str().into()));
    let is_old = options.version == A2aVersion::V03;
    let (member, what) = match update {
        Update::Task(whole) => ("task", task(options, &whole, &[])),
        Update::Artifact(changed, appends) => (
            "artifactUpdate",
            object([
                ("kind", kind(options, "artifact-update")),
                ("taskId", task_id),
                ("contextId", context),
                ("artifact", Some(artifact(options, &changed))),
                ("append", (appends || is_old).then(|| appends.into())),
            ]),
        ),
        Update::Status(now) => (
            "statusUpdate",
            object([
                ("kind", kind(options, "status-update")),
                ("taskId", task_id),
                ("contextId", context),
                ("status", Some(status(options, &now))),
                ("final", is_old.then(|| now.state.is_final().into())),
            ]),
        ),
    };
    let result = if is_old { what } else { json!({ member: what }) };
    json!({ "jsonrpc": "2.0", "id": options.request, "result": result })
}

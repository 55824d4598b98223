//! Artifacts and messages.
//!
//! The text of an artifact is a message: it streams part by part. Its other parts are artifacts of their own.

use super::EventHandler;
use crate::Fact;
use crate::bounded::keyed;
use crate::members::{id_from, next_id, repair, set_body, take_flag, take_id, take_list, take_text};
use proscenium_model::a2ui::{self, SurfaceMessage};
use proscenium_model::{ArtifactId, Draft, EventType, MessageId, Owner, PartId, Persistence, Phase, Scope, Surface};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The most artifacts of a task that the adapter tracks.
/// Beyond this limit the oldest is sealed and forgotten.
pub(super) const ARTIFACTS_MAX: usize = 256;

/// An artifact of the task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Artifact {
    /// The message of its text, and the stem of its files' ids.
    id: MessageId,
    /// The number of its parts of text: a sealed part takes no more text.
    parts: u64,
    is_sealed: bool,
    /// The number of its parts that are not text.
    files: u64,
    /// The most such parts that it has had.
    known_files: u64,
}

keyed! { Artifact: MessageId = id; }

impl Artifact {
    const fn new(id: MessageId) -> Self {
        Self { id, parts: 0, is_sealed: false, files: 0, known_files: 0 }
    }

    /// Names the n-th part that is not text.
    fn file_id(&self, n: u64) -> ArtifactId {
        id_from(&if n == 1 { self.id.to_string() } else { format!("{}/{n}", self.id) })
    }

    const fn has_text(&self) -> bool {
        self.parts > 0
    }

    fn part(&self) -> PartId {
        PartId::new(&format!("text-{}", self.parts)).expect("a short name with a number is a valid id")
    }

    fn draft(&self, class: EventType) -> Draft {
        Draft::new(class).with_message(self.id.clone()).with_part(self.part())
    }
}

/// Splits parts into their joined text and the others.
pub(super) fn split(parts: Vec<Value>) -> (Option<String>, Vec<Value>) {
    let (mut text, mut others) = (None::<String>, Vec::new());
    for part in parts {
        match part.get("text").and_then(Value::as_str) {
            Some(more) => text.get_or_insert_default().push_str(more),
            None => others.push(part),
        }
    }
    (text, others)
}

impl EventHandler<'_> {
    pub(super) fn artifact_update(&mut self, fact: Fact) {
        let Some(mut fact) = self.take_update("artifactUpdate", fact) else { return };
        let appends = take_flag(&mut fact, "append") == Some(true);
        let is_last = take_flag(&mut fact, "lastChunk") == Some(true);
        if let Some(artifact) = fact.shift_remove("artifact") {
            self.artifact(artifact, appends, is_last);
        }
        self.push_internal("artifact", fact);
    }

    /// Adds to an artifact, or replaces it.
    pub(super) fn artifact(&mut self, artifact: Value, appends: bool, is_last: bool) {
        let Value::Object(mut members) = artifact else { return };
        let id = self.take_artifact_id(&mut members);
        let (text, mut others) = split(take_list(&mut members, "parts"));
        self.take_surfaces(&mut others);
        let known = self.memory.artifacts.take(&id);
        let is_known = known.is_some();
        let mut artifact = known.unwrap_or(Artifact::new(id));
        if is_known && !appends {
            self.replace(&mut artifact, text, !others.is_empty());
        } else if let Some(text) = text {
            self.append(&mut artifact, text);
        }
        for part in others {
            self.file(&mut artifact, part, &members);
        }
        for member in ["name", "description"] {
            members.shift_remove(member);
        }
        self.push_internal("artifact", members);
        if is_last {
            self.seal_one(&mut artifact);
        }
        if let Some(mut oldest) = self.memory.artifacts.push(artifact) {
            self.seal_one(&mut oldest);
        }
    }

    /// Takes the id of an artifact. It is unique within its task only: an agent may name every answer alike.
    fn take_artifact_id(&mut self, artifact: &mut Map<String, Value>) -> MessageId {
        let named: Option<MessageId> = take_id(artifact, "artifactId");
        let distinct = named.map(|id| match &self.memory.task {
            Some(task) => id_from(&format!("{task}/{id}")),
            None => id,
        });
        distinct.unwrap_or_else(|| next_id("a2a-artifact", &mut self.memory.artifacts_made))
    }

    fn append(&mut self, artifact: &mut Artifact, text: String) {
        if artifact.is_sealed || !artifact.has_text() {
            artifact.parts += 1;
            artifact.is_sealed = false;
        }
        self.memory.has_text = true;
        self.push(artifact.draft(EventType::TextDelta).with_text(text));
    }

    /// Replaces an artifact: the snapshot empties the parts of its text before.
    fn replace(&mut self, artifact: &mut Artifact, text: Option<String>, has_files: bool) {
        if !has_files {
            self.delete_files(artifact);
        }
        artifact.files = 0;
        if artifact.has_text() {
            let part = |text| json!({ "partId": artifact.part().as_str(), "kind": "assistant_text", "text": [text] });
            let parts: Vec<Value> = text.map(part).into_iter().collect();
            let draft = repair(&artifact.id, parts.into()).with_owner(Owner::Model).with_scope(Scope::Message);
            self.push(draft.with_message(artifact.id.clone()));
        } else if let Some(text) = text {
            self.append(artifact, text);
        }
    }

    /// Ends the text of an artifact. The streamed chunks are the text.
    fn seal_one(&mut self, artifact: &mut Artifact) {
        if artifact.has_text() && !artifact.is_sealed {
            artifact.is_sealed = true;
            self.push(artifact.draft(EventType::TextFinal));
        }
    }

    /// Ends the text of all artifacts.
    pub(super) fn seal(&mut self) {
        for mut artifact in self.memory.artifacts.take_all() {
            self.seal_one(&mut artifact);
            self.memory.artifacts.push(artifact);
        }
    }

    // ── parts that are not text ──

    /// Reports a part of an artifact that is not text.
    fn file(&mut self, artifact: &mut Artifact, part: Value, of: &Map<String, Value>) {
        artifact.files += 1;
        let id = artifact.file_id(artifact.files);
        let is_known = artifact.files <= artifact.known_files;
        artifact.known_files = artifact.known_files.max(artifact.files);
        let mut draft = Draft::new(if is_known { EventType::ArtifactUpdated } else { EventType::ArtifactCreated });
        for (member, ours) in [("name", "title"), ("description", "summary")] {
            draft.set(ours, of.get(member).cloned());
        }
        let mut rest = Map::new();
        match part {
            Value::Object(mut part) => {
                set_content(&mut draft, &mut part, &mut rest);
                rest.extend(part);
            }
            odd => drop(rest.insert("part".into(), odd)),
        }
        self.push(draft.with_persistence(Persistence::Archive).with_artifact(id.clone()));
        if !rest.is_empty() {
            rest.insert("artifactId".into(), id.as_str().into());
            self.push_internal("part", rest);
        }
    }

    /// Deletes the files of an artifact that text replaces.
    fn delete_files(&mut self, artifact: &Artifact) {
        for id in (1..=artifact.files).map(|n| artifact.file_id(n)) {
            self.push(Draft::new(EventType::ArtifactDeleted).with("reason", "text replaces the artifact").with_artifact(id));
        }
    }

    // ── surfaces ──

    /// Takes the parts with A2UI messages, and reports the surfaces that they are about.
    pub(super) fn take_surfaces(&mut self, parts: &mut Vec<Value>) {
        let mut surfaces: Vec<(MessageId, Vec<Value>)> = Vec::new();
        for part in parts.extract_if(.., |part| is_a2ui(part)) {
            let messages = match part.get("data") {
                Some(Value::Array(messages)) => messages.clone(),
                Some(message) => vec![message.clone()],
                None => Vec::new(),
            };
            for message in messages {
                // One that cannot be read names no surface: the log keeps it, and the receipt names it.
                let id: MessageId =
                    id_from(SurfaceMessage::read(&message).map_or(a2ui::ACTIVITY_TYPE, |message| message.surface));
                match surfaces.iter_mut().find(|(surface, _)| *surface == id) {
                    Some((_, messages)) => messages.push(message),
                    None => surfaces.push((id, vec![message])),
                }
            }
        }
        for (surface, messages) in surfaces {
            let content = json!({ a2ui::OPERATIONS: messages });
            let mut draft =
                Draft::new(EventType::StateSnapshot).with("activityType", a2ui::ACTIVITY_TYPE).with("content", content);
            (draft.scope, draft.phase, draft.surface) = (Scope::Message, Phase::Acting, Surface::InlineProcess);
            self.push(draft.with_message(surface));
        }
    }

    // ── messages ──

    pub(super) fn message(&mut self, mut fact: Fact) {
        let id: Option<MessageId> = take_id(&mut fact, "messageId");
        let role = take_text(&mut fact, "role").unwrap_or_default();
        let role = if role.to_ascii_lowercase().ends_with("user") { "user" } else { "assistant" };
        let (text, mut others) = split(take_list(&mut fact, "parts"));
        if role == "assistant" {
            self.take_surfaces(&mut others);
        }
        let mut artifact = Artifact::new(self.say(id, role, text.unwrap_or_default()));
        for part in others {
            self.file(&mut artifact, part, &Map::new());
        }
        self.push_internal("message", fact);
    }

    /// Reports a whole message, and returns its id.
    pub(super) fn say(&mut self, id: Option<MessageId>, role: &str, text: String) -> MessageId {
        let id = id.unwrap_or_else(|| next_id("a2a-message", &mut self.memory.messages_made));
        let draft = Draft::new(EventType::TextFinal).words(|words| {
            words.text = Some(text);
            words.role = (role != "assistant").then(|| role.to_owned());
        });
        self.push(draft.with_message(id.clone()));
        id
    }
}

/// Whether a part has A2UI messages. The extension puts the media type into the part's metadata.
fn is_a2ui(part: &Value) -> bool {
    let media_type = part.pointer("/metadata/mimeType").or_else(|| part.get("mediaType")).or_else(|| part.get("mimeType"));
    media_type.and_then(Value::as_str).is_some_and(|name| a2ui::MEDIA_TYPES.contains(&name)) && part.get("data").is_some()
}

/// Takes the content of a part that is not text: data, bytes or a URL.
///
/// The query of a URL may hold credentials, so the whole URL goes to `internal`.
fn set_content(draft: &mut Draft, part: &mut Map<String, Value>, internal: &mut Map<String, Value>) {
    // 0.3 names the kind of a part, and puts a file into an object of its own.
    part.shift_remove("kind");
    if let Some(Value::Object(file)) = part.shift_remove("file") {
        part.extend(file);
    }
    let renamed = [("filename", "title"), ("name", "title"), ("mediaType", "mediaType"), ("mimeType", "mediaType")];
    draft.move_members(part, &renamed);
    let media_type = draft.text("mediaType").unwrap_or("application/octet-stream").to_owned();
    let kind = if part.contains_key("data") { "data" } else { "file" };
    draft.set("kind", Some(kind));
    draft.set("content", part.shift_remove("data"));
    let bytes = take_text(part, "raw").or_else(|| take_text(part, "bytes"));
    if let Some(bytes) = bytes {
        return set_body(draft, Some(format!("data:{media_type};base64,{bytes}")));
    }
    if let Some(url) = take_text(part, "url").or_else(|| take_text(part, "uri")) {
        let query = url.find(['?', '#']).filter(|_| !url.starts_with("data:"));
        let (public, query) = url.split_at(query.unwrap_or(url.len()));
        if !query.is_empty() {
            internal.insert("url".into(), url.as_str().into());
        }
        set_body(draft, Some(public.to_owned()));
    }
}

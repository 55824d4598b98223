//! Sources, files, data, metadata, and messages that the user adds while the run works.

use super::EventHandler;
use super::calls::as_object;
use crate::Fact;
use crate::members::{carry_all, id_from, next_id, set_body, take_flag, take_id, take_list, take_text};
use proscenium_model::a2ui::ACTIVITY_TYPE;
use proscenium_model::{
    ArtifactId, Audience, Draft, EventType, EvidenceId, MessageId, Owner, PartKind, Persistence, Phase, Scope, Surface,
};
use serde_json::{Map, Value};

/// Token counts that backends put into the metadata of a message, with the protocol's names.
///
/// They are totals of the message so far, so that the adapter reports only what they rise by.
pub(super) const TOKENS: [(&str, &str); 5] = [
    ("inputTokens", "inputTokens"),
    ("outputTokens", "outputTokens"),
    ("totalTokens", "totalTokens"),
    ("reasoningTokens", "thinkingTokens"),
    ("cachedInputTokens", "cacheReadTokens"),
];

impl EventHandler<'_> {
    pub(super) fn source(&mut self, kind: &str, mut fact: Fact) {
        let message = self.memory.message();
        let named = fact.get("sourceId").and_then(Value::as_str).filter(|id| !id.is_empty());
        let evidence: Option<EvidenceId> = named.map(|id| id_from(&format!("{message}/{id}")));
        let evidence = evidence.unwrap_or_else(|| next_id("ai-sdk-evidence", &mut self.memory.evidence_made));
        let members = ["sourceId", "url", "title", "mediaType", "filename"].map(|member| (member, member));
        let draft = Draft::new(EventType::EvidenceChanged).with("kind", kind).with_moved(&mut fact, &members);
        let draft = draft.with_scope(Scope::Message).with_phase(Phase::Producing).with_persistence(Persistence::Archive);
        self.push(carry_all(draft.with_evidence(evidence).with_message(message), fact));
    }

    pub(super) fn file(&mut self, kind: &str, fact: Fact) {
        let message = self.memory.message();
        self.artifact(kind, message, fact);
    }

    fn artifact(&mut self, kind: &str, message: MessageId, mut fact: Fact) {
        let id: ArtifactId = next_id("ai-sdk-file", &mut self.memory.artifacts_made);
        let names = [("mediaType", "mediaType"), ("filename", "title")];
        let mut draft = Draft::new(EventType::ArtifactCreated).with("kind", kind).with_moved(&mut fact, &names);
        set_body(&mut draft, take_text(&mut fact, "url"));
        if kind == "reasoning-file" {
            draft.surface = Surface::InlineProcess;
        }
        let draft = draft.with_scope(Scope::Message).with_persistence(Persistence::Archive);
        self.push(carry_all(draft.with_artifact(id).with_message(message), fact));
    }

    /// Reports a part of the backend's own. A part with the same type and id replaces the one before it.
    pub(super) fn data(&mut self, name: String, mut fact: Fact) {
        let content = fact.shift_remove("data").unwrap_or(Value::Null);
        if take_flag(&mut fact, "transient") == Some(true) {
            let mut draft = Draft::new(EventType::DiagnosticChanged).with("kind", "transient_data");
            draft = draft.with("activityType", name).with("content", content);
            draft.set("id", fact.shift_remove("id"));
            (draft.owner, draft.phase, draft.surface) = (Owner::Runtime, Phase::Acting, Surface::Custom);
            (draft.persistence, draft.audience) = (Persistence::EphemeralLive, Audience::User);
            return self.push(carry_all(draft, fact));
        }
        // A surface has the same type in every protocol.
        let name = if name == format!("data-{ACTIVITY_TYPE}") { ACTIVITY_TYPE.to_owned() } else { name };
        let named = fact.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let distinct = |id: &str| if name == ACTIVITY_TYPE { id.to_owned() } else { format!("{name}/{id}") };
        let id = match named.map(|id| id_from::<MessageId>(&distinct(id))) {
            Some(id) => {
                fact.shift_remove("id");
                id
            }
            None => next_id(&name.chars().take(64).collect::<String>(), &mut self.memory.data_parts),
        };
        let mut draft = Draft::new(EventType::ToolProgress).call(|call| {
            call.activity_type = Some(name);
            call.content = Some(as_object(content).into());
            call.replace = Some(true);
        });
        (draft.owner, draft.scope, draft.surface) = (Owner::Runtime, Scope::Message, Surface::InlineProcess);
        (draft.persistence, draft.audience) = (Persistence::Snapshot, Audience::User);
        draft.ids.message = Some(id);
        self.push(carry_all(draft, fact));
    }

    /// Keeps a provider's own part. Only the provider can read it.
    pub(super) fn custom(&mut self, mut fact: Fact) {
        let draft =
            Draft::new(EventType::DiagnosticChanged).with("kind", "custom").with_owner(Owner::Model).with_scope(Scope::Part);
        let draft = draft.with_moved(&mut fact, &[("kind", "name"), ("providerMetadata", "providerMetadata")]);
        let draft = draft.with_message(self.memory.message());
        self.push(carry_all(draft, fact));
    }

    pub(super) fn message_metadata(&mut self, event_type: &str, mut fact: Fact) {
        self.metadata_of(event_type, &mut fact);
        if !fact.is_empty() {
            self.push(carry_all(metadata_draft(event_type), fact));
        }
    }

    pub(super) fn metadata_of(&mut self, event_type: &str, fact: &mut Fact) {
        let metadata = fact.shift_remove("messageMetadata");
        self.metadata(event_type, metadata);
    }

    /// Reports the metadata of a message to operators: it often holds costs, and ids of users and traces.
    pub(super) fn metadata(&mut self, event_type: &str, metadata: Option<Value>) {
        let Some(metadata) = metadata.filter(|metadata| !metadata.is_null()) else { return };
        for member in ["usage", "totalUsage"] {
            if let Some(Value::Object(usage)) = metadata.get(member) {
                self.usage(usage);
            }
        }
        self.push(metadata_draft(event_type).with("metadata", metadata).with_message(self.memory.message.clone()));
    }

    /// Reports what the token counts rose by: each usage is a total.
    fn usage(&mut self, usage: &Map<String, Value>) {
        let mut rises = Map::new();
        for ((member, ours), known) in TOKENS.iter().zip(&mut self.memory.tokens) {
            let Some(total) = usage.get(*member).and_then(Value::as_u64).filter(|total| *total > *known) else { continue };
            rises.insert((*ours).to_owned(), (total - *known).into());
            *known = total;
        }
        if !rises.is_empty() {
            self.push(Draft::new(EventType::MetricChanged).with("usage", rises).with_audience(Audience::Dashboard));
        }
    }

    /// Reports a message of the user that the run takes up in its middle. It is no text of the answer.
    pub(super) fn steering_message(&mut self, mut fact: Fact) {
        let id: MessageId = take_id(&mut fact, "id").unwrap_or_else(|| next_id("ai-sdk-message", &mut self.memory.messages_made));
        let (mut texts, mut files, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for part in take_list(&mut fact, "parts") {
            match part {
                Value::Object(mut part) => match (part.get("type").and_then(Value::as_str), part.get("text"), part.get("url")) {
                    (Some("text"), Some(Value::String(text)), _) => texts.push(text.clone()),
                    (Some("file"), _, Some(Value::String(_))) => {
                        part.shift_remove("type");
                        files.push(part);
                    }
                    _ => others.push(Value::Object(part)),
                },
                odd => others.push(odd),
            }
        }
        let draft = Draft::new(EventType::TextFinal).words(|words| {
            words.role = Some("user".to_owned());
            words.text = Some(texts.join("\n\n"));
            words.kind = Some(PartKind::UserText.to_string());
        });
        let draft = draft.with_some("parts", (!others.is_empty()).then_some(others));
        let draft = draft.with_owner(Owner::Session).with_phase(Phase::Acting).with_message(id.clone());
        self.push(carry_all(draft, fact));
        for mut file in files {
            file.shift_remove("providerMetadata");
            self.artifact("file", id.clone(), file);
        }
    }
}

fn metadata_draft(event_type: &str) -> Draft {
    let draft = Draft::new(EventType::DiagnosticChanged).with("kind", "message_metadata").with("eventType", event_type);
    draft.with_owner(Owner::Runtime).with_scope(Scope::Message).with_audience(Audience::Dashboard)
}

//! Contents: what was said and what tools got and gave, as one audience sees it.

use super::span::{Attribute, Span, clipped};
use proscenium_model::{AgentId, PartKind, Sequence};
use proscenium_projection::View;
use proscenium_projection::activity_set::Activity;
use proscenium_projection::members::{CLIPPED, PARTS, TEXT, TypedContent};
use proscenium_projection::message::{self, part};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The longest content of one attribute, in bytes.
pub const ATTRIBUTE_CONTENT_BYTES_MAX: usize = 64 * 1024;
/// The contents of one trace, in bytes. Beyond it, spans have none.
pub const TRACE_CONTENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Whether something was left out of a span's contents.
const TRUNCATED: &str = "proscenium.content.truncated";

/// The activities of a run, as the audience of the contents sees them.
pub(super) struct Contents<'v> {
    view: Option<&'v View>,
    by_key: HashMap<(&'v str, &'v str), &'v Activity>,
    bytes_left: usize,
}

impl<'v> Contents<'v> {
    pub(super) fn new(view: Option<&'v View>) -> Self {
        let activities = view.map_or(&[][..], View::activities);
        let by_key = activities.iter().map(|activity| ((&*activity.kind, &*activity.id), activity)).collect();
        Self { view, by_key, bytes_left: TRACE_CONTENT_BYTES_MAX }
    }

    /// The same activity, as far as the audience sees it.
    pub(super) fn of(&self, activity: &Activity) -> Option<&'v Activity> {
        self.by_key.get(&(&*activity.kind, &*activity.id)).copied()
    }

    /// Adds a value as JSON; a text stays as it is.
    pub(super) fn set(&mut self, span: &mut Span, name: &'static str, value: Option<&Value>) {
        match value {
            None => {}
            Some(Value::String(text)) => self.set_text(span, name, text),
            Some(value) => self.set_text(span, name, &value.to_string()),
        }
    }

    /// Adds a text.
    pub(super) fn set_text(&mut self, span: &mut Span, name: &'static str, text: &str) {
        let kept = clipped(text, ATTRIBUTE_CONTENT_BYTES_MAX.min(self.bytes_left));
        self.bytes_left -= kept.len();
        if !kept.is_empty() {
            span.attributes.push((name, Attribute::Text(kept.to_owned())));
        }
        if kept.len() < text.len() {
            mark_truncated(span);
        }
    }

    /// Marks a span whose activity the server holds clipped, or in part in bodies.
    pub(super) fn note_clipped(span: &mut Span, activity: &Activity) {
        if activity.content.read(CLIPPED) == Some(true) {
            mark_truncated(span);
        }
    }

    /// Adds what an agent received and what it said after an envelope; `None` is the run's own agent.
    pub(super) fn set_messages(&mut self, span: &mut Span, agent: Option<&AgentId>, after: Sequence, finish: &str) {
        let Some(view) = self.view else { return };
        let own = view.run_and_agent().1;
        let (mut input, mut output) = (Messages::default(), Messages::default());
        for said in view.activities().iter().filter(|activity| &*activity.kind == message::KIND && activity.opened > after) {
            let author = said.content.read(message::AGENT_ID);
            let is_own = author.is_none_or(|author| own.as_ref().is_some_and(|own| own.as_str() == author));
            let is_of_agent = match agent {
                None => is_own,
                Some(agent) => author == Some(agent.as_str()),
            };
            match said.content.read(message::ROLE) {
                Some("assistant") if is_of_agent => output.add(said, "assistant", Some(finish)),
                Some("assistant") | None => {}
                Some(role) if agent.is_none() && is_own => input.add(said, role, None),
                Some(_) => {}
            }
        }
        for (name, messages) in [("gen_ai.input.messages", input), ("gen_ai.output.messages", output)] {
            if !messages.listed.is_empty() && self.bytes_left >= messages.bytes {
                self.set_text(span, name, &Value::Array(messages.listed).to_string());
            }
            if messages.is_truncated {
                mark_truncated(span);
            }
        }
    }
}

fn mark_truncated(span: &mut Span) {
    if !span.attributes.iter().any(|(name, _)| *name == TRUNCATED) {
        span.set(TRUNCATED, Some(true));
    }
}

/// Messages in the form of the conventions.
#[derive(Default)]
struct Messages {
    listed: Vec<Value>,
    bytes: usize,
    is_truncated: bool,
}

impl Messages {
    /// Leaves room for the other characters of the JSON.
    const BYTES_MAX: usize = ATTRIBUTE_CONTENT_BYTES_MAX / 4 * 3;

    fn add(&mut self, said: &Activity, role: &str, finish: Option<&str>) {
        let is_text = |part: &&Value| {
            let kind = part.read(part::KIND).unwrap_or_default();
            kind == PartKind::UserText.as_str() || kind == PartKind::AssistantText.as_str()
        };
        let parts = said.content.read(PARTS).into_iter().flatten().filter(is_text);
        let texts = parts.filter_map(|part| part.read(TEXT)).filter(|text| !text.is_empty());
        let mut listed = Vec::new();
        for text in texts {
            let kept = clipped(text, Self::BYTES_MAX - self.bytes);
            self.bytes += kept.len();
            self.is_truncated |= kept.len() < text.len();
            if !kept.is_empty() {
                listed.push(json!({ "type": "text", "content": kept }));
            }
        }
        if listed.is_empty() {
            return;
        }
        let mut message = json!({ "role": role, "parts": listed });
        if let Some(finish) = finish {
            message["finish_reason"] = finish.into();
        }
        self.listed.push(message);
    }
}

//! What activities contribute to a message: their parts, their order and their data.

use super::call;
use super::text::Channel;
use crate::content_copy::joined;
use crate::frames::ActivityView;
use proscenium_model::PartKind;
use proscenium_projection::members::{PARTS, TEXT, TextStatus, TypedContent};
use proscenium_projection::{message, run, state, surface};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A piece of the reader's message, at its position.
pub(super) enum Piece<'s> {
    /// A part of a message, by index.
    Part(&'s ActivityView, usize),
    Whole(&'s ActivityView),
    /// The progress report of a call, at its first report.
    Report(&'s ActivityView),
}

/// Splits activities into pieces, in the order in which they appeared.
pub(super) fn pieces(activities: &[ActivityView]) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for activity in activities {
        match parts(activity) {
            Some(parts) => pieces.extend(
                (0..)
                    .zip(parts)
                    .map(|(at, part)| (part.read(message::part::OPENED).unwrap_or(activity.opened), Piece::Part(activity, at))),
            ),
            None => pieces.push((activity.opened, Piece::Whole(activity))),
        }
        if let Some(since) = call::reported(&activity.content).filter(|_| &*activity.kind == call::KIND) {
            pieces.push((since, Piece::Report(activity)));
        }
    }
    // The sort is stable: pieces of one envelope keep their order.
    pieces.sort_by_key(|(opened, _)| *opened);
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// The parts of a message; `None` for any other activity.
pub(super) fn parts(activity: &ActivityView) -> Option<&Vec<Value>> {
    activity.content.read(PARTS).filter(|_| &*activity.kind == message::KIND)
}

/// Whether a message belongs to the assistant message.
///
/// The client already has the messages of users and systems.
pub(super) fn is_answer(activity: &ActivityView) -> bool {
    !matches!(activity.content.read(message::ROLE), Some("user" | "system" | "developer"))
}

/// The agent of a message or thought, if it is not the run's own: then the id starts with it.
pub(super) fn teammate(activity: &ActivityView) -> Option<&str> {
    let agent = activity.agent.as_deref().or_else(|| activity.content.read(message::AGENT_ID))?;
    activity.id.strip_prefix(agent)?.starts_with('/').then_some(agent)
}

/// The chunk form of a message part.
pub(super) enum PartForm {
    Text(Channel),
    Data,
    /// Omitted: the call's own activity covers it.
    Omitted,
}

pub(super) fn part_form(part: &Value) -> PartForm {
    let kind = part.read(message::part::KIND).unwrap_or_default();
    let is_named = PartKind::NAMES.contains(&kind) && !PartKind::from(kind).is_text();
    let is_text = kind.ends_with("_text") || !is_named && !joined(part.get(TEXT.name())).is_empty();
    match kind {
        "tool_call" | "tool_result" => PartForm::Omitted,
        _ if kind.starts_with("reasoning") || kind == "thinking" => PartForm::Text(Channel::Reasoning),
        _ if is_text => PartForm::Text(Channel::Text),
        _ => PartForm::Data,
    }
}

/// The stream's id of a message part.
pub(super) fn part_id(message: &str, part: &Value) -> String {
    format!("{message}/{}", part.read(message::part::ID).unwrap_or_default())
}

/// The kind of a part, as its data part names it.
pub(super) fn part_kind(part: &Value) -> &str {
    part.read(message::part::KIND).filter(|kind| !kind.is_empty()).unwrap_or("part")
}

pub(super) fn is_streaming(content: &Value) -> bool {
    content.read(message::part::STATUS) == Some(TextStatus::Streaming)
}

/// The content of an activity's data part.
///
/// A `state` is sent bare, our own text chunks are joined, and a surface is the A2UI messages that lead to it.
pub(super) fn data_of<'c>(kind: &str, content: &'c Map<String, Value>) -> Cow<'c, Value> {
    match (kind, content.read(state::STATE)) {
        (state::KIND, Some(state)) if content.len() == 1 => Cow::Borrowed(state),
        ("plan" | "worker-notification", _) if content.get(TEXT.name()).is_some_and(Value::is_array) => {
            let mut content = content.clone();
            let text = joined(content.get(TEXT.name())).into_owned();
            content.insert(TEXT.name().into(), text.into());
            Cow::Owned(content.into())
        }
        (surface::KIND, _) => {
            let named = content.read(surface::SURFACE_ID).map(|id| (surface::SURFACE_ID.name().to_owned(), Value::from(id)));
            Cow::Owned(Value::Object(named.into_iter().chain(surface::shown(content)).collect()))
        }
        _ => Cow::Owned(content.clone().into()),
    }
}

/// The metadata of the message, from the run's activity.
pub(super) fn metadata_of(id: &str, content: &Map<String, Value>) -> Map<String, Value> {
    let mut metadata = Map::from_iter([("runId".to_owned(), id.into())]);
    let ids = [run::SESSION_ID.name(), run::THREAD_ID.name()];
    for member in ids.into_iter().chain([run::USAGE.name(), run::NOTICES.name(), run::RESULT.name()]) {
        metadata.extend(content.get(member).map(|value| (member.to_owned(), value.clone())));
    }
    metadata
}

/// Whether this is the run's own activity.
pub(super) fn is_run(activity: &ActivityView) -> bool {
    &*activity.kind == run::KIND && activity.content.read(run::STATUS).is_some()
}

//! A tool call as ACP shows it.

use crate::content_copy::joined;
use proscenium_projection::members::{CallState, OUTPUT_CHANNELS, OUTPUT_TEXT, TypedContent};
use proscenium_projection::tool_call as of_call;
use serde_json::{Map, Value, json};

/// The kinds of tools that the protocol knows.
const KINDS: &[&str] = &["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// The members of a call that its client has to have, but for `toolCallId`.
pub(super) fn render(id: &str, content: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = Map::new();
    let name = content.read(of_call::TOOL_NAME).filter(|name| !name.is_empty());
    let title = content.read(of_call::TITLE).or(name).unwrap_or(id);
    shown.insert("title".into(), title.into());
    let kind = content.read(of_call::TOOL_KIND).or(name).filter(|kind| KINDS.contains(kind));
    shown.extend(kind.map(|kind| ("kind".to_owned(), kind.into())));
    shown.insert("status".into(), status(content).into());
    let blocks = blocks(content);
    if !blocks.is_empty() {
        shown.insert("content".into(), blocks.into());
    }
    // A text is in the call's content, unless that has only what the source put there, such as diffs.
    let shows_text = |blocks: &[Value]| blocks.iter().any(|block| block["type"] == "content");
    let is_in_content = content.read(of_call::BLOCKS).is_none_or(|blocks| shows_text(blocks));
    let output = content.read(of_call::OUTPUT).filter(|output| !(output.is_string() && is_in_content));
    let raw_output = content.read(of_call::RAW_OUTPUT).or_else(|| content.read(of_call::STRUCTURED)).or(output);
    let members = [
        ("locations", content.get(of_call::LOCATIONS.name())),
        ("rawInput", content.read(of_call::INPUT)),
        ("rawOutput", raw_output),
    ];
    shown.extend(members.into_iter().filter_map(|(member, value)| Some((member.to_owned(), value?.clone()))));
    shown
}

/// The value with which an update takes a member back.
pub(super) fn none(member: &str) -> Value {
    match member {
        "content" | "locations" => json!([]),
        _ => Value::Null,
    }
}

/// The protocol has no status for a call that was cancelled: it did not complete.
fn status(content: &Map<String, Value>) -> &'static str {
    match content.read(of_call::STATE) {
        Some(CallState::OutputAvailable) => "completed",
        Some(CallState::OutputError | CallState::Cancelled) => "failed",
        _ => match content.get(of_call::STATUS.name()).and_then(Value::as_str) {
            Some("running") if content.read(of_call::STATE) == Some(CallState::Progress) => "in_progress",
            Some("running") if content.has(OUTPUT_TEXT) => "in_progress",
            _ => "pending",
        },
    }
}

fn text_block(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

/// What the call shows: its own blocks, else its result, its error, its output so far, or what it says of its progress.
fn blocks(content: &Map<String, Value>) -> Vec<Value> {
    if let Some(blocks) = content.read(of_call::BLOCKS) {
        return blocks.iter().filter(|block| is_known(block)).cloned().collect();
    }
    let error = content.read(of_call::ERROR).and_then(|error| error.get("message")).and_then(Value::as_str);
    // The reason of a failure may be a part of what the tool gave, which the client gets as it is.
    let raw = content.read(of_call::RAW_OUTPUT);
    let is_of_raw = |text: &str| {
        let parts = raw.into_iter().flat_map(|raw| [Some(raw), raw.get("error"), raw.get("message")]);
        parts.flatten().any(|part| part.as_str() == Some(text))
    };
    let error = error.filter(|error| !is_of_raw(error));
    let output = content.read(of_call::OUTPUT).and_then(Value::as_str);
    let streamed = streamed(content);
    let said = content.read(of_call::MESSAGE).filter(|said| content.read(of_call::TITLE) != Some(*said));
    let text = error.or(output).or(streamed.as_deref()).or(said).filter(|text| !text.is_empty());
    text.map(text_block).into_iter().collect()
}

/// Terminals are the source's own: this client cannot read them.
fn is_known(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("content" | "diff"))
}

/// The streamed output of all channels.
fn streamed(content: &Map<String, Value>) -> Option<String> {
    let mut text = joined(content.get(OUTPUT_TEXT.name())).into_owned();
    for (_, channel) in content.read(OUTPUT_CHANNELS).into_iter().flatten() {
        text.push_str(&joined(Some(channel)));
    }
    (!text.is_empty()).then_some(text)
}

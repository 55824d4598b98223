//! Prompts: what a client says as the value of a `send`, and the end of the turn as a stop reason.

use super::rpc::{INTERNAL_ERROR, RpcError};
use crate::encode::acp::TurnState;
use crate::model::RunId;
use crate::source::kind_of;
use crate::source::ledger::Status;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// A prompt without an answer.
pub(super) struct Prompt {
    /// The id of the request.
    pub id: Value,
    /// The number of the prompt in its connection.
    pub number: u64,
    /// The run that the prompt asks for.
    pub run: RunId,
    /// The attempt of each run of the session when the prompt came.
    pub before: HashMap<Box<str>, u64>,
    /// Whether the agent has taken it.
    pub is_claimed: bool,
    /// The run that is its turn, once that has started.
    pub turn: Option<Box<str>>,
    /// Whether the client has cancelled the turn.
    pub is_cancelled: bool,
}

impl Prompt {
    /// Whether this run may be the turn: it is the one that was asked for, or the first to start since.
    pub fn may_be(&self, run: &TurnState) -> bool {
        let has_started = self.before.get(&run.run).is_none_or(|attempt| run.attempt > *attempt);
        *run.run == *self.run.as_str() || self.is_claimed && has_started && run.attempt > 0
    }

    /// The answer, once the turn is over or `rests` until a new message.
    pub fn answer(&self, run: &TurnState, rests: bool) -> Option<Result<Value, RpcError>> {
        let reason = match run.status {
            Status::Completed if run.reason.as_deref() == Some("refusal") => "refusal",
            Status::Cancelled => "cancelled",
            // A turn that its client cancelled did not fail.
            Status::Failed | Status::Interrupted if self.is_cancelled => "cancelled",
            Status::Interrupted if run.reason.as_deref() == Some("max_tokens") => "max_tokens",
            Status::Interrupted => "max_turn_requests",
            Status::Completed => "end_turn",
            Status::Waiting if rests => "end_turn",
            Status::Failed => {
                let why = run.error.as_deref().unwrap_or("The agent failed without saying why.");
                let data = json!({ "runId": run.run, "details": why });
                return Some(Err(RpcError::new(INTERNAL_ERROR, why).with(data)));
            }
            _ => return None,
        };
        Some(Ok(stop(reason, Some(&run.run))))
    }
}

/// The result of a prompt.
pub(super) fn stop(reason: &str, run: Option<&str>) -> Value {
    let mut result = json!({ "stopReason": reason });
    if let Some(run) = run {
        result["_meta"] = json!({ "proscenium": { "runId": run } });
    }
    result
}

/// The content of a message: a text, or parts in the form of AG-UI. With the whole text, by which its echo is known.
pub(super) fn content(prompt: Option<&Value>) -> Result<(Value, String), RpcError> {
    let blocks = match prompt {
        Some(Value::Array(blocks)) if !blocks.is_empty() => blocks,
        Some(Value::Array(_)) => return Err(RpcError::params("prompt", "prompt is empty. Send at least one content block.")),
        None => return Err(RpcError::params("prompt", "prompt is missing. This method requires it.")),
        Some(other) => return Err(RpcError::params("prompt", format!("prompt is {}. It must be a list.", kind_of(other)))),
    };
    let parts = blocks.iter().enumerate().map(|(n, block)| part(n, block)).collect::<Result<Vec<_>, _>>()?;
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    let text = texts.concat();
    match (&parts[..], texts.len() == parts.len()) {
        ([only], true) => Ok((only["text"].clone(), text)),
        _ => Ok((parts.into(), text)),
    }
}

/// A content block as a part of a message. A link is a text: the server opens none.
fn part(n: usize, block: &Value) -> Result<Value, RpcError> {
    let wrong = |what: &str| RpcError::params(&format!("prompt[{n}]"), format!("prompt[{n}] {what}"));
    let need = |of: &Value, member: &str| {
        let text = of.get(member).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| wrong(&format!("has no {member}. It must be text.")))
    };
    let file = |media_type: &str, name: Option<&str>, data: String| {
        let mut file = Map::from_iter([
            ("type".to_owned(), "binary".into()),
            ("mimeType".to_owned(), media_type.into()),
            ("data".to_owned(), data.into()),
        ]);
        file.extend(name.map(|name| ("filename".to_owned(), name.into())));
        Value::Object(file)
    };
    match block.get("type").and_then(Value::as_str) {
        Some("text") => Ok(json!({ "type": "text", "text": need(block, "text")? })),
        Some("image") => Ok(file(&need(block, "mimeType")?, None, need(block, "data")?)),
        Some("resource_link") => {
            let uri = need(block, "uri")?;
            let name = block.get("name").and_then(Value::as_str).unwrap_or(&uri);
            Ok(json!({ "type": "text", "text": format!("[{name}]({uri})") }))
        }
        Some("resource") => {
            let resource = block.get("resource").ok_or_else(|| wrong("has no resource. It must be an object."))?;
            let uri = need(resource, "uri")?;
            match resource.get("text").and_then(Value::as_str) {
                Some(text) => Ok(json!({ "type": "text", "text": format!("{uri}\n{text}\n") })),
                None => {
                    let media_type = resource.get("mimeType").and_then(Value::as_str).unwrap_or("application/octet-stream");
                    Ok(file(media_type, uri.rsplit('/').next(), need(resource, "blob")?))
                }
            }
        }
        Some(other) => {
            let known = "text, image, resource_link and resource";
            Err(wrong(&format!("has the type {other:?}, which is not supported. Send {known}.")))
        }
        None => Err(wrong("has no type. Send content blocks.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_a_text_or_parts() {
        let of = |blocks: Value| content(Some(&blocks)).map_err(|error| error.message);
        let text = json!({ "type": "text", "text": "Look" });
        assert_eq!(of(json!([text])), Ok((json!("Look"), "Look".into())));
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "QUI=" });
        let binary = json!({ "type": "binary", "mimeType": "image/png", "data": "QUI=" });
        assert_eq!(of(json!([text, image])), Ok((json!([text, binary]), "Look".into())));
        let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
        assert_eq!(of(json!([link])), Ok((json!("[a](file:///a)"), "[a](file:///a)".into())));
        assert_eq!(
            of(json!([{ "type": "audio", "data": "" }])),
            Err("prompt[0] has the type \"audio\", which is not supported. Send text, image, resource_link and resource.".into())
        );
        assert!(content(None).is_err() && of(json!([])).is_err() && of(json!("x")).is_err() && of(json!([{}])).is_err());
    }

    #[test]
    fn a_turn_ends_by_its_run() {
        let prompt = |is_cancelled| Prompt {
            id: json!(1),
            number: 0,
            run: RunId::new("named").unwrap(),
            before: HashMap::from([("old".into(), 1)]),
            is_claimed: true,
            turn: None,
            is_cancelled,
        };
        let run = |run: &str, status, attempt, reason: Option<&str>| TurnState {
            run: run.into(),
            status,
            attempt,
            reason: reason.map(Into::into),
            error: None,
        };
        let reason = |status, reason, is_cancelled, rests| {
            let answer = prompt(is_cancelled).answer(&run("r", status, 1, reason), rests);
            answer.map(|answer| {
                answer.map_or_else(|error| error.code.to_string(), |result| result["stopReason"].as_str().unwrap().into())
            })
        };
        assert_eq!(reason(Status::Running, None, true, false), None);
        assert_eq!(reason(Status::Waiting, None, false, false), None);
        assert_eq!(reason(Status::Waiting, None, false, true).as_deref(), Some("end_turn"));
        assert_eq!(reason(Status::Completed, None, true, false).as_deref(), Some("end_turn"));
        assert_eq!(reason(Status::Completed, Some("refusal"), false, false).as_deref(), Some("refusal"));
        assert_eq!(reason(Status::Interrupted, Some("max_tokens"), false, false).as_deref(), Some("max_tokens"));
        assert_eq!(reason(Status::Interrupted, None, false, false).as_deref(), Some("max_turn_requests"));
        assert_eq!(reason(Status::Failed, None, false, false).as_deref(), Some("-32603"));
        assert_eq!(reason(Status::Failed, None, true, false).as_deref(), Some("cancelled"));
        assert!(prompt(false).may_be(&run("named", Status::Accepted, 0, None)));
        assert!(prompt(false).may_be(&run("new", Status::Running, 1, None)));
        assert!(!prompt(false).may_be(&run("old", Status::Running, 1, None)));
        assert!(prompt(false).may_be(&run("old", Status::Running, 2, None)));
    }
}

//! JSON-RPC 2.0 as ACP uses it: one message a text frame, no batches.

use crate::serve::http::body::check_depth;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::quoted;
use crate::source::kind_of;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The longest message that is not a prompt, in bytes. The serving thread parses it.
pub(super) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// The longest prompt, in bytes: images are part of it.
pub(super) const PROMPT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The longest id of a request, in bytes.
const ID_BYTES_MAX: usize = 256;

pub(in crate::serve) const PARSE_ERROR: i64 = -32700;
pub(in crate::serve) const INVALID_REQUEST: i64 = -32600;
pub(in crate::serve) const METHOD_NOT_FOUND: i64 = -32601;
pub(in crate::serve) const INVALID_PARAMS: i64 = -32602;
pub(in crate::serve) const INTERNAL_ERROR: i64 = -32603;
pub(super) const AUTH_REQUIRED: i64 = -32000;
pub(super) const NOT_FOUND: i64 = -32002;

/// An error of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::serve) struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Box<Value>>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Reads the error of an answer. `None`: it is none.
    pub fn from_json(mut error: Value) -> Option<Self> {
        let (code, message) = (error["code"].as_i64()?, error["message"].as_str()?.to_owned());
        let data = Some(error["data"].take()).filter(|data| !data.is_null()).map(Box::new);
        Some(Self { code, message, data })
    }

    /// Invalid parameters: the member, and what it must be.
    pub fn params(member: &str, message: impl Into<String>) -> Self {
        Self { data: Some(Box::new(json!({ "member": member }))), ..Self::new(INVALID_PARAMS, message) }
    }

    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data.into());
        self
    }
}

impl From<Problem> for RpcError {
    fn from(problem: Problem) -> Self {
        let names_resource =
            ["run", "session", "agent"].iter().any(|kind| problem.members.get("missing") == Some(&(*kind).into()));
        let code = match problem.status {
            // One answer, whether it does not exist or belongs to others.
            StatusCode::NOT_FOUND | StatusCode::GONE => NOT_FOUND,
            StatusCode::FORBIDDEN if names_resource => NOT_FOUND,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => AUTH_REQUIRED,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => INVALID_PARAMS,
            StatusCode::CONFLICT => INVALID_REQUEST,
            _ => INTERNAL_ERROR,
        };
        Self { code, message: problem.detail.clone(), data: Some(Box::new(problem.to_json())) }
    }
}

/// A message of the client.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Incoming {
    Request { id: Value, method: String, params: Map<String, Value> },
    Notification { method: String, params: Map<String, Value> },
    Response { id: Value, outcome: Result<Value, Value> },
}

/// The members of a message, with what may be long unparsed.
#[derive(Deserialize)]
struct Head<'m> {
    jsonrpc: Option<String>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'m RawValue>,
    #[serde(borrow)]
    result: Option<&'m RawValue>,
    error: Option<Value>,
}

/// A member that is there, even as null.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// Reads a message. An error comes with the id of its request, null if there is none.
pub(super) fn parse(text: &str, depth_max: usize) -> Result<Incoming, (Value, RpcError)> {
    let refuse = |code, message: String| (Value::Null, RpcError::new(code, message));
    if text.trim_start().starts_with('[') {
        return Err(refuse(INVALID_REQUEST, "The message is a batch. Send one JSON-RPC message at a time.".into()));
    }
    check_depth(text.as_bytes(), depth_max).map_err(|problem| refuse(INVALID_REQUEST, problem.detail))?;
    let head: Head<'_> = serde_json::from_str(text).map_err(|error| match error.is_data() {
        true => refuse(INVALID_REQUEST, format!("The message is no JSON-RPC message: {error}.")),
        false => refuse(PARSE_ERROR, format!("The message is not JSON: {error}.")),
    })?;
    let id = match head.id {
        None => None,
        Some(id @ (Value::Null | Value::Number(_))) => Some(id),
        Some(Value::String(id)) if id.len() <= ID_BYTES_MAX => Some(id.into()),
        Some(other) => {
            let what = kind_of(&other);
            let detail = format!("id is {what}. It must be a number, or a string of at most {ID_BYTES_MAX} bytes.");
            return Err(refuse(INVALID_REQUEST, detail));
        }
    };
    let bad = |code, message: String| (id.clone().unwrap_or_default(), RpcError::new(code, message));
    if head.jsonrpc.as_deref() != Some("2.0") {
        return Err(bad(
            INVALID_REQUEST,
            "jsonrpc is missing or not \"2.0\". Send \"jsonrpc\": \"2.0\" with every message.".into(),
        ));
    }
    let Some(method) = head.method else {
        let Some(id) = id else {
            return Err(bad(INVALID_REQUEST, "The message has neither a method nor an id. Send a request or a response.".into()));
        };
        if text.len() > MESSAGE_BYTES_MAX {
            return Err((Value::Null, too_long("response", text.len(), MESSAGE_BYTES_MAX)));
        }
        let outcome = match (head.error.filter(|error| !error.is_null()), head.result) {
            (Some(error), _) => Err(error),
            (None, result) => {
                Ok(result.and_then(|result| crate::model::halves::parse(result.get().as_bytes()).ok()).unwrap_or_default())
            }
        };
        return Ok(Incoming::Response { id, outcome });
    };
    let limit = if method == "session/prompt" { PROMPT_BYTES_MAX } else { MESSAGE_BYTES_MAX };
    if text.len() > limit {
        return Err((id.unwrap_or_default(), too_long(&method, text.len(), limit)));
    }
    let params = match head.params.map(|params| crate::model::halves::parse(params.get().as_bytes())) {
        None | Some(Ok(Value::Null)) => Map::new(),
        Some(Ok(Value::Object(params))) => params,
        Some(Ok(other)) => return Err(bad(INVALID_PARAMS, format!("params is {}. It must be an object.", kind_of(&other)))),
        Some(Err(error)) => return Err(bad(PARSE_ERROR, format!("params is not JSON: {error}."))),
    };
    Ok(match id {
        Some(id) => Incoming::Request { id, method, params },
        None => Incoming::Notification { method, params },
    })
}

fn too_long(what: &str, bytes: usize, limit: usize) -> RpcError {
    let detail = format!("{} has {bytes} bytes. The limit is {limit}. Send less, or a link to it.", quoted(what));
    RpcError::new(INVALID_PARAMS, detail).with(json!({ "limit": limit }))
}

pub(super) fn answer(id: &Value, outcome: Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(RpcError { code, message, data }) => {
            let mut error = json!({ "code": code, "message": message });
            if let Some(data) = data {
                error["data"] = *data;
            }
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    }
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// Reads a required text.
pub(super) fn text<'p>(params: &'p Map<String, Value>, member: &'static str) -> Result<&'p str, RpcError> {
    match params.get(member) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(Value::String(_)) => Err(RpcError::params(member, format!("{member} is empty."))),
        None | Some(Value::Null) => Err(RpcError::params(member, format!("{member} is missing. This method requires it."))),
        Some(other) => Err(RpcError::params(member, format!("{member} is {}. It must be text.", kind_of(other)))),
    }
}

/// What a client says to this server beside the protocol: a member of `_meta.proscenium`.
pub(super) fn meta<'p>(params: &'p Map<String, Value>, member: &str) -> Option<&'p Value> {
    params.get("_meta")?.get("proscenium")?.get(member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_request_a_notification_or_a_response() {
        let of = |text: &str| parse(text, 64).map_err(|(id, error)| (id, error.code));
        let params = Map::from_iter([("a".to_owned(), json!(1))]);
        let method = || "m".to_owned();
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":1}}"#),
            Ok(Incoming::Request { id: json!("x"), method: method(), params })
        );
        assert_eq!(of(r#"{"jsonrpc":"2.0","method":"m"}"#), Ok(Incoming::Notification { method: method(), params: Map::new() }));
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#),
            Ok(Incoming::Response { id: json!(3), outcome: Ok(json!({})) })
        );
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":3,"error":{"code":1}}"#),
            Ok(Incoming::Response { id: json!(3), outcome: Err(json!({ "code": 1 })) })
        );
        let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}1{}}}"#, "[".repeat(80), "]".repeat(80));
        for (wrong, id, code) in [
            ("{", json!(null), PARSE_ERROR),
            ("[]", json!(null), INVALID_REQUEST),
            ("7", json!(null), INVALID_REQUEST),
            (r#"{"id":1,"method":"m"}"#, json!(1), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, json!(null), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0"}"#, json!(null), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#, json!(1), INVALID_PARAMS),
            (&*deep, json!(null), INVALID_REQUEST),
        ] {
            assert_eq!(of(wrong), Err((id, code)), "{wrong}");
        }
    }
}

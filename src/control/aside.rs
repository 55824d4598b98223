//! Requests of a page beside the conversation: an action in a generated interface, and a request to a tool's server.
//!
//! Such a request is a `send` without a message. It waits for no pending action and supersedes none, and only internal
//! readers see it. The agent's answer begins a run only if it says something to readers.

use serde_json::{Map, Value};

/// What a page asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsideKind {
    /// A user's action in a surface (A2UI).
    Action,
    /// A request of an MCP App to the server of its tool.
    ToolRequest,
}

/// The members of `forwardedProps` by which AG-UI's clients ask, and what they ask for.
const MEMBERS: [(&str, AsideKind); 2] = [("__proxiedMCPRequest", AsideKind::ToolRequest), (ACTION, AsideKind::Action)];
/// The member with a user's action in a surface.
pub const ACTION: &str = "a2uiAction";

/// The `kind` of the fact about such a request, in the session's log.
pub const ASIDE_REQUEST: &str = "aside_request";
/// The `kind` of the fact with its answer: `result` or `error`. Both have the `controlId`.
pub const ASIDE_ANSWER: &str = "aside_answer";

/// A request beside the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Aside {
    /// What the page asks for.
    pub kind: AsideKind,
    /// The request, under the name that its protocol gives it. The client's own data model is not in it.
    pub request: Map<String, Value>,
}

impl Aside {
    /// Reads the value of a `send`; `None` for a turn of the conversation.
    #[must_use]
    pub fn of(value: Option<&Value>) -> Option<Self> {
        // Only AG-UI has an answer without a run.
        let value = value.filter(|value| value["protocol"] == "ag-ui")?;
        let is_said = |message: &Value| matches!(message["role"].as_str(), Some("user" | "tool"));
        if value.get("messages")?.as_array()?.iter().any(is_said) {
            return None;
        }
        let forwarded = value.get("forwardedProps")?;
        let (name, kind) = MEMBERS.into_iter().find(|(name, _)| forwarded.get(*name).is_some_and(Value::is_object))?;
        Some(Self { kind, request: Map::from_iter([(name.to_owned(), forwarded[name].clone())]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_without_a_message_is_beside_the_conversation() {
        let ask = |messages: Value, forwarded: &Value| json!({ "protocol": "ag-ui", "messages": messages, "forwardedProps": forwarded });
        let kind = |value: Value| Aside::of(Some(&value)).map(|aside| aside.kind);
        let action = json!({ "a2uiAction": { "userAction": { "name": "book" } }, "a2uiClientDataModel": { "secret": 1 } });
        let asked = Aside::of(Some(&ask(json!([{ "role": "system" }]), &action))).unwrap();
        assert_eq!(asked.kind, AsideKind::Action);
        assert_eq!(Value::Object(asked.request), json!({ "a2uiAction": { "userAction": { "name": "book" } } }));
        let proxied = json!({ "__proxiedMCPRequest": { "method": "resources/read" } });
        assert_eq!(kind(ask(json!([]), &proxied)), Some(AsideKind::ToolRequest));
        assert_eq!(kind(ask(json!([{ "role": "user" }]), &action)), None);
        assert_eq!(kind(ask(json!([{ "role": "tool" }]), &action)), None);
        assert_eq!(kind(ask(json!([]), &json!({ "a2uiAction": 7 }))), None);
        assert_eq!(kind(json!({ "protocol": "ag-ui", "messages": [] })), None);
        assert_eq!(kind(json!({ "protocol": "ai-sdk", "messages": [], "forwardedProps": action })), None);
        assert_eq!(kind(json!("text")), None);
    }
}

//! A pending action as a request to the client: a permission with options, or a form.

use super::types::{AcpOptions, Key};
use proscenium_model::options::{Effect, offered};
use proscenium_projection::action::{MESSAGE, SCHEMA, TITLE};
use proscenium_projection::members::TypedContent;
use serde_json::{Map, Value, json};

/// The activity type.
pub(super) const KIND: &str = "action";

/// The kinds of actions whose answer is a text or a form, and not a yes or no.
const QUESTIONS: &[&str] = &["structured_input", "clarification", "credential_request"];
/// The kinds of options that the protocol knows.
const OPTION_KINDS: &[&str] = &["allow_once", "allow_always", "reject_once", "reject_always"];
/// The options of a request whose source offers none.
const PLAIN: [(&str, &str, &str); 2] = [("approve", "Allow", "allow_once"), ("reject", "Reject", "reject_once")];
/// The field of the form that the server makes for a question without one.
pub const ANSWER: &str = "answer";

/// The parameters of a request, without `sessionId`.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// `session/request_permission`
    Permission(Value),
    /// `elicitation/create`
    Elicitation(Value),
}

impl Ask {
    /// The parameters.
    #[must_use]
    pub const fn params(&self) -> &Value {
        match self {
            Self::Permission(params) | Self::Elicitation(params) => params,
        }
    }
}

/// A request about an action.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedQuestion {
    /// The action.
    pub key: Key,
    /// The version of the question.
    pub version: u32,
    /// What the client is asked.
    pub ask: Ask,
    /// What each option does, by its id. Empty where the source offers none.
    pub effects: Vec<(Box<str>, Effect)>,
    /// Whether the answer of a form is the value of its one field: the source has no form.
    pub is_plain_answer: bool,
}

/// Whether a reader's answer is in transit to the owner, or the approvals are complete.
pub(super) fn is_decided(content: &Map<String, Value>) -> bool {
    content.get("control").and_then(Value::as_str) == Some("submitted")
}

/// The request about an action. `None`: this client cannot be asked.
pub(super) fn render(
    options: AcpOptions,
    key: &Key,
    content: &Map<String, Value>,
    call: Option<(String, Map<String, Value>)>,
) -> Option<AskedQuestion> {
    if !options.decides {
        return None;
    }
    let listed = content.get("options").cloned().unwrap_or_default();
    let effects: Vec<_> = offered(&listed).into_iter().map(|option| (option.id, option.effect)).collect();
    let kind = content.get("kind").and_then(Value::as_str).unwrap_or_default();
    let is_question = QUESTIONS.contains(&kind) || content.has(SCHEMA) && effects.is_empty();
    let version = content.get("questionVersion").and_then(Value::as_u64).and_then(|version| u32::try_from(version).ok());
    let has_form = content.get(SCHEMA.name()).is_some_and(is_form);
    let (ask, is_plain_answer) = match is_question && effects.is_empty() {
        true => (elicitation(options, content, call.as_ref(), has_form)?, !has_form),
        false => (permission(key, content, call, &listed), false),
    };
    Some(AskedQuestion { key: key.clone(), version: version.unwrap_or(1), ask, effects, is_plain_answer })
}

/// Whether a schema is a form of the protocol: an object with fields.
fn is_form(schema: &Value) -> bool {
    schema["type"] == "object" && schema["properties"].is_object()
}

fn text<'c>(content: &'c Map<String, Value>, member: &str) -> Option<&'c str> {
    content.get(member).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn elicitation(
    options: AcpOptions,
    content: &Map<String, Value>,
    call: Option<&(String, Map<String, Value>)>,
    has_form: bool,
) -> Option<Ask> {
    let message = text(content, MESSAGE.name()).or_else(|| text(content, TITLE.name())).unwrap_or("The agent has a question.");
    let mut params = json!({ "message": message });
    if let Some((id, _)) = call {
        params["toolCallId"] = id.as_str().into();
    }
    match text(content, "url") {
        Some(url) if options.url && text(content, "mode") == Some("url") => {
            (params["mode"], params["url"]) = ("url".into(), url.into());
            params["elicitationId"] = content.get("elicitationId").cloned().unwrap_or_else(|| url.into());
        }
        _ if !options.form => return None,
        _ => {
            let schema = content.get(SCHEMA.name()).filter(|_| has_form).cloned();
            params["mode"] = "form".into();
            params["requestedSchema"] = schema.unwrap_or_else(|| {
                json!({
                    "type": "object",
                    "properties": { ANSWER: { "type": "string", "title": message } },
                    "required": [ANSWER],
                })
            });
        }
    }
    Some(Ask::Elicitation(params))
}

fn permission(key: &Key, content: &Map<String, Value>, call: Option<(String, Map<String, Value>)>, listed: &Value) -> Ask {
    let (id, shown) = call.unwrap_or_else(|| (key.id.to_string(), Map::new()));
    let mut about = Map::from_iter([("toolCallId".to_owned(), Value::from(id))]);
    let title = text(content, TITLE.name()).or_else(|| text(content, "toolName")).unwrap_or("The agent asks for a decision.");
    about.insert("title".into(), title.into());
    about.insert("status".into(), "pending".into());
    about.extend(shown);
    if !about.contains_key("rawInput") {
        about.extend(content.get("parameters").map(|input| ("rawInput".to_owned(), input.clone())));
    }
    if !about.contains_key("content") {
        let blocks = subject_blocks(content);
        about.extend((!blocks.is_empty()).then(|| ("content".to_owned(), blocks.into())));
    }
    let mut options: Vec<Value> = listed.as_array().into_iter().flatten().filter_map(option).collect();
    if options.is_empty() {
        options = PLAIN.iter().map(|(id, name, kind)| json!({ "optionId": id, "name": name, "kind": kind })).collect();
    }
    Ask::Permission(json!({ "toolCall": about, "options": options }))
}

/// What is decided, as blocks of a call: changes of files, and what the source says.
fn subject_blocks(content: &Map<String, Value>) -> Vec<Value> {
    let subject = content.get("subject");
    let diffs = subject.and_then(|subject| subject["diffs"].as_array()).into_iter().flatten();
    let diff = |diff: &Value| {
        let new = diff.get("newText").and_then(Value::as_str)?;
        Some(json!({ "type": "diff", "path": diff["path"], "oldText": diff.get("oldText"), "newText": new }))
    };
    let mut blocks: Vec<Value> = diffs.filter_map(diff).collect();
    let said = text(content, MESSAGE.name()).or_else(|| subject.and_then(|subject| subject["plan"].as_str()));
    blocks.extend(said.map(|said| json!({ "type": "content", "content": { "type": "text", "text": said } })));
    blocks
}

/// An option with a kind of the protocol. A yes that may reach further than once is never shown as one that does not.
fn option(option: &Value) -> Option<Value> {
    let id = option["optionId"].as_str()?;
    let name = option["label"].as_str().or_else(|| option["name"].as_str()).unwrap_or(id);
    let own = option["kind"].as_str().filter(|kind| OPTION_KINDS.contains(kind));
    let (effect, width) = (option["effect"].as_str().unwrap_or_default(), option["width"].as_str().unwrap_or_default());
    let kind = own.unwrap_or(match (effect, width) {
        ("allow", "once") | ("answer", _) => "allow_once",
        ("allow", _) => "allow_always",
        (_, "turn" | "session" | "always") => "reject_always",
        _ => "reject_once",
    });
    let meta = json!({ "proscenium": { "effect": effect, "width": width } });
    Some(json!({ "optionId": id, "name": name, "kind": kind, "_meta": meta }))
}

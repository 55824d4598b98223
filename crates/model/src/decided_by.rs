//! Who decided: the maker of a control. Only the server writes it.

use super::cursor::Sequence;
use super::field::MemberRef;
use super::time::ReceivedAt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The member that names the maker of a decision.
pub const DECIDED_BY: &str = "decidedBy";
/// What a producer's member of that name becomes.
pub const RESOLVED_BY: &str = "resolvedBy";
/// The member that names the person who renamed or archived a session.
pub const UPDATED_BY: &str = "updatedBy";
/// The member that names the person who gave feedback.
pub const GIVEN_BY: &str = "givenBy";

/// The schema of [`DECIDED_BY`].
#[must_use]
pub fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["via", "at"],
        "properties": {
            "sub": { "description": "The `sub` of the token.", "type": "string" },
            "name": { "description": "The `name` of the token.", "type": "string" },
            "onBehalfOf": { "description": "The person for whom the holder of the token decided.", "type": "string" },
            "via": { "description": "The face of the request; `runtime` if the runtime resolved the action on its own.", "type": "string" },
            "at": { "description": "When the server accepted the decision, RFC 3339 in UTC.", "type": "string" },
            "seen": { "description": "The last envelope of the question that its maker saw.", "type": "integer" },
        },
    })
}

/// Members that readers of the audience `user` do not get.
const PRIVATE_MEMBERS: [&str; 3] = ["sub", "name", "onBehalfOf"];
/// The longest kept `sub`, name and person acted for, in characters.
pub const PERSON_CHARS_MAX: usize = 256;

/// The face by which a decision came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// The workbench.
    Page,
    /// The command line.
    Cli,
    /// The REST interface.
    Rest,
    /// A WebSocket.
    Ws,
    /// An AG-UI client.
    AgUi,
    /// A `CopilotKit` client.
    Copilotkit,
    /// An AI SDK client.
    AiSdk,
    /// A `TanStack` AI client.
    Tanstack,
    /// An editor, by ACP.
    Acp,
    /// Another agent, by A2A.
    A2a,
    /// A rule of the operator.
    Rule,
    /// A shared link.
    Link,
    /// No control decided: the runtime resolved the action on its own.
    Runtime,
}

/// The person behind a request, by its token, and the face of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decider {
    /// The subject of the decider's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub: Option<Box<str>>,
    /// The decider's name, as its token says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
    /// The way on which the decision came.
    pub via: Via,
    /// The person for whom the holder of the token decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<Box<str>>,
}

impl Decider {
    /// A request without a token.
    #[must_use]
    pub const fn anonymous(via: Via) -> Self {
        Self { sub: None, name: None, via, on_behalf_of: None }
    }
}

/// A decision's maker, time and view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedBy {
    /// Who decided.
    #[serde(flatten)]
    pub decider: Decider,
    /// When the server accepted it, RFC 3339 in UTC.
    pub at: Box<str>,
    /// The last envelope of the question that its maker saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Sequence>,
}

impl DecidedBy {
    /// The member as dashboards and operators see it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("plain data serializes")
    }

    /// The member as another person sees it: `is_own` for its maker.
    #[must_use]
    pub fn for_person(&self, is_own: bool) -> Value {
        let mut member = self.to_value();
        if !is_own {
            remove_private(&mut member);
            member["other"] = true.into();
        }
        member
    }
}

/// Whether the member says only that a runtime resolved the action, as the server writes it: an import brings it back.
#[must_use]
pub fn is_by_runtime(claimed: &Value) -> bool {
    let is_known = |(member, value): (&String, &Value)| member == "at" || member == "via" && value == "runtime";
    claimed.as_object().is_some_and(|claimed| claimed.contains_key("via") && claimed.iter().all(is_known))
}

/// The member of an action that its runtime resolved on its own.
#[must_use]
pub fn by_runtime(now: jiff::Timestamp) -> Value {
    json!({ "via": Via::Runtime, "at": ReceivedAt::from(now).to_string() })
}

/// The member as users see it. `None`: they see it as it is.
#[must_use]
pub fn without_person(decided_by: MemberRef<'_>) -> Option<Value> {
    let has_person = PRIVATE_MEMBERS.iter().any(|member| decided_by.get(member).is_some());
    has_person.then(|| {
        let mut public = decided_by.into_value();
        remove_private(&mut public);
        public
    })
}

fn remove_private(decided_by: &mut Value) {
    if let Some(members) = decided_by.as_object_mut() {
        members.retain(|member, _| !PRIVATE_MEMBERS.contains(&member.as_str()));
    }
}

/// The member [`UPDATED_BY`] of what a person changes, or [`GIVEN_BY`] of what a person says of an answer.
#[must_use]
pub fn written_by(person: &Decider, now: jiff::Timestamp) -> Value {
    let at = ReceivedAt::from(now).to_string().into();
    DecidedBy { decider: person.clone(), at, seen: None }.to_value()
}

/// At most [`PERSON_CHARS_MAX`] characters of a name.
#[must_use]
pub fn person(text: &str) -> Box<str> {
    text.chars().take(PERSON_CHARS_MAX).collect()
}

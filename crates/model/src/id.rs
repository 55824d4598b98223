//! Identifiers of the subjects of facts.
//!
//! Every id is its own type, so that code cannot pass a tool call's id as a message's id. An id is opaque text chosen
//! by a runtime: 1–256 bytes without control characters. A value of an id type proves that this was checked.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// The longest id, in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 256;

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text has no character.
    #[error("an id is empty; it must be 1 to {ID_BYTES_MAX} bytes long")]
    Empty,
    /// The text has this many bytes.
    #[error("an id is {0} bytes long, the limit is {ID_BYTES_MAX}; shorten it")]
    TooLong(usize),
    /// The text has a control character at this place.
    #[error("an id has a control character at byte {0}; ids are printable text")]
    Control(usize),
    /// The text is an id of the server's own.
    #[error("the id {SERVER_SESSION} is the server's own; choose another")]
    Reserved,
}

/// The session whose log has the server's own state. No request can name it.
const SERVER_SESSION: &str = "proscenium:server";

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > ID_BYTES_MAX {
        return Err(IdError::TooLong(text.len()));
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(IdError::Control(at)),
        None => Ok(()),
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $(!= $reserved:ident)?)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and makes an id of it.
            ///
            /// # Errors
            /// [`IdError`] when it is empty, longer than [`ID_BYTES_MAX`] bytes, or has a control character.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check(text)?;
                $(if text == $reserved {
                    return Err(IdError::Reserved);
                })?
                Ok(Self(Arc::from(text)))
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                // What a store has is not from a request, and may be the server's own.
                $(let of_store = (!from.is_human_readable()).then_some($reserved);)?
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                $(if text == $reserved && of_store.is_some() {
                    return Ok(Self(Arc::from(text)));
                })?
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// One ordered log: a runtime's execution boundary.
    RunId
    /// A chat, task session or app tab.
    SessionId != SERVER_SESSION
    /// A conversation thread that can be resumed or branched.
    ThreadId
    /// A user turn or model turn.
    TurnId
    /// A message of any role.
    MessageId
    /// One ordered part of a message.
    PartId
    /// A queue item, work item, background job or subagent task.
    TaskId
    /// A child agent, teammate or remote agent.
    AgentId
    /// One tool invocation.
    ToolCallId
    /// One human-in-the-loop request.
    ActionId
    /// One durable deliverable.
    ArtifactId
    /// One citation, trace, replay or verdict.
    EvidenceId
    /// One offloaded body; unguessable.
    BlobId
    /// A producer that numbers its facts for exactly-once ingest.
    ProducerId
    /// One control: a user's request on its way to its owner.
    ControlId
    /// Whose sessions are, in the words of the service that signs tokens: a tenant, a team or a person.
    OwnerId
}

impl SessionId {
    /// The id that a store has: any id, or that of the server's own log.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn stored(text: &str) -> Result<Self, IdError> {
        if text == SERVER_SESSION { Ok(Self::of_server()) } else { Self::new(text) }
    }

    /// Whether this is [`Self::of_server`].
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        self.as_str() == SERVER_SESSION
    }

    /// The id of the server's own log.
    #[must_use]
    pub fn of_server() -> Self {
        Self(SERVER_SESSION.into())
    }
}

macro_rules! id_members {
    ($($(#[$doc:meta])* $field:ident: $ty:ty = $member:literal;)*) => {
        /// The ids of one fact: every id member of the envelope, with the names of seed 003.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Ids {
            $(#[doc = concat!("`", $member, "`")] $(#[$doc])* pub $field: Option<$ty>,)*
        }

        impl Ids {
            /// The members' names on the wire, in the order of writing.
            pub const MEMBERS: &[&str] = &[$($member),*];

            /// The member of this name.
            #[must_use]
            pub fn member(name: &str) -> Option<&'static str> {
                match name {
                    $($member => Some($member),)*
                    _ => None,
                }
            }

            /// Fills each missing id from `defaults`.
            pub fn fill_from(&mut self, defaults: &Self) {
                $(if self.$field.is_none() { self.$field.clone_from(&defaults.$field); })*
            }

            /// Whether the id of this member is present.
            #[must_use]
            pub fn has(&self, member: &str) -> bool {
                match member {
                    $($member => self.$field.is_some(),)*
                    _ => false,
                }
            }

            /// Sets the id of this member if it is missing. Ignores a name that is not a member.
            ///
            /// # Errors
            /// [`IdError`] for text that cannot be an id.
            pub fn set(&mut self, member: &str, text: &str) -> Result<(), IdError> {
                match member {
                    $($member if self.$field.is_none() => self.$field = Some(<$ty>::new(text)?),)*
                    _ => {}
                }
                Ok(())
            }

            /// Moves each id member out of `map`, if it is text and a valid id.
            ///
            /// A member of another JSON type stays in `map`: it is foreign data under a known name, and is carried
            /// unchanged.
            ///
            /// # Errors
            /// The member's name and the error, for text that is not a valid id.
            pub fn take_from(&mut self, map: &mut Map<String, Value>) -> Result<(), (&'static str, IdError)> {
                let mut taken = Vec::new();
                for (name, value) in &*map {
                    match (name.as_str(), value) {
                        $(($member, Value::String(text)) if self.$field.is_none() => {
                            self.$field = Some(<$ty>::new(text).map_err(|e| ($member, e))?);
                            taken.push($member);
                        })*
                        _ => {}
                    }
                }
                for member in taken {
                    map.shift_remove(member);
                }
                Ok(())
            }

            /// Replaces each id for which `rewritten` returns a text, but not those that are in `known`.
            ///
            /// `known` then has the results.
            ///
            /// # Panics
            /// When that text is not a valid id.
            pub fn rewrite_unknown(&mut self, known: &mut Self, mut rewritten: impl FnMut(&str) -> Option<String>) {
                $(if let Some(id) = &self.$field && known.$field.as_ref() != Some(id) {
                    if let Some(text) = rewritten(id.as_str()) {
                        self.$field = Some(<$ty>::new(&text).expect("the caller returns valid ids"));
                    }
                    known.$field.clone_from(&self.$field);
                })*
            }

            /// Calls `each` with the name and text of every present id, in the order of [`Self::MEMBERS`].
            pub fn for_each(&self, mut each: impl FnMut(&'static str, &str)) {
                $(if let Some(id) = &self.$field { each($member, id.as_str()); })*
            }
        }
    };
}

id_members! {
    session: SessionId = "sessionId";
    thread: ThreadId = "threadId";
    run: RunId = "runId";
    turn: TurnId = "turnId";
    message: MessageId = "messageId";
    part: PartId = "partId";
    task: TaskId = "taskId";
    agent: AgentId = "agentId";
    parent_session: SessionId = "parentSessionId";
    parent_thread: ThreadId = "parentThreadId";
    tool_call: ToolCallId = "toolCallId";
    action: ActionId = "actionId";
    artifact: ArtifactId = "artifactId";
    evidence: EvidenceId = "evidenceId";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_1_to_256_bytes_without_control_characters() {
        assert_eq!(RunId::new("").unwrap_err(), IdError::Empty);
        assert_eq!(RunId::new(&"x".repeat(257)).unwrap_err(), IdError::TooLong(257));
        assert_eq!(RunId::new("a\nb").unwrap_err(), IdError::Control(1));
        assert!(RunId::new(&"x".repeat(256)).is_ok());
        assert!(RunId::new("Grüße / 走 #1").is_ok());
        assert_eq!(SessionId::new(SERVER_SESSION), Err(IdError::Reserved));
        assert_eq!(SessionId::stored(SERVER_SESSION), Ok(SessionId::of_server()));
    }

    #[test]
    fn take_from_moves_text_ids_and_leaves_other_values() {
        let mut map = serde_json::json!({"runId": "r", "toolCallId": 7, "x": 1}).as_object().unwrap().clone();
        let mut ids = Ids::default();
        ids.take_from(&mut map).unwrap();
        assert_eq!(ids.run.unwrap().as_str(), "r");
        assert_eq!(Value::Object(map), serde_json::json!({"toolCallId": 7, "x": 1}));
    }
}

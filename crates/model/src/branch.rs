//! Branches: sessions that go on from a point of another one.

use super::cursor::Sequence;
use super::id::{RunId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The member of a fact that says where a branch begins.
pub const PARENT: &str = "parent";
/// The member of a fact that says what the agent of a branch knows.
pub const FORK: &str = "fork";
/// The member of a fact that names the branch which existing clients read and write.
pub const HEAD: &str = "head";

/// What the id of a branch that the server names has after the id of its root.
const ID_MARK: &str = "~branch-";

/// The point of a session from which a branch goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchPoint {
    /// The session of the run.
    pub session_id: SessionId,
    /// The run that the branch leaves.
    pub run_id: RunId,
    /// The last sequence of the run that the branch has; 0 for a branch that leaves before the run.
    pub sequence: Sequence,
}

/// What the agent of a branch knows of the conversation before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fork {
    /// The agent's own state at the point.
    State,
    /// The messages up to the point.
    Transcript,
    /// Nothing that the server gives it.
    None,
}

impl Fork {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Transcript => "transcript",
            Self::None => "none",
        }
    }
}

/// What makes a session a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchOrigin {
    /// Where it begins.
    pub parent: BranchPoint,
    /// What its agent knows.
    pub fork: Fork,
}

impl BranchOrigin {
    /// Reads the members of the fact with which the branch began.
    #[must_use]
    pub fn read(parent: &Value, fork: &str) -> Option<Self> {
        let fork = [Fork::State, Fork::Transcript, Fork::None].into_iter().find(|known| known.as_str() == fork)?;
        Some(Self { parent: BranchPoint::deserialize(parent).ok()?, fork })
    }
}

/// The id of a branch of the session `root`, by a name that the server gives it.
#[must_use]
pub fn branch_id(root: &SessionId, name: &str) -> Option<SessionId> {
    SessionId::new(&format!("{root}{ID_MARK}{name}")).ok()
}

/// The id of the root of which this is the id of a branch, if the server named it.
///
/// A right to a session covers the branches that the server named after it.
#[must_use]
pub fn root_in_id(id: &str) -> Option<&str> {
    id.rsplit_once(ID_MARK).map(|(root, _)| root)
}

/// The schema of [`PARENT`] and [`FORK`].
#[must_use]
pub fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["sessionId", "runId", "sequence"],
        "properties": {
            "sessionId": { "description": "The session that the branch goes on from.", "type": "string" },
            "runId": { "description": "The run of that session which the branch leaves.", "type": "string" },
            "sequence": { "description": "The last sequence of the run that the branch has; 0: the branch leaves before the run.", "type": "integer" },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_branch_tells_its_root_and_other_ids_tell_none() {
        let root = SessionId::new("a~b").unwrap();
        let branch = branch_id(&root, "01").unwrap();
        assert_eq!((branch.as_str(), root_in_id(branch.as_str())), ("a~b~branch-01", Some("a~b")));
        assert_eq!(root_in_id("a~b"), None);
        assert_eq!(branch_id(&SessionId::new(&"x".repeat(250)).unwrap(), "01"), None, "it would be too long for an id");
    }
}

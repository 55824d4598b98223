//! The stored form of a runtime's state: a version, then the fields in their order (postcard).
//!
//! A field has no name in this form. So a change of the fields of a state needs a new version, and a reader of the version
//! before it. `tests/it/upgrade.rs` reads the states that releases wrote.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The first byte of a stored state.
const VERSION: u8 = 1;

/// Why a stored state is unreadable.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("the state has version {0}; this server reads version {VERSION} and the JSON of releases before it")]
    Version(u8),
    #[error("the state is empty")]
    Empty,
    #[error("the state does not have the fields of version {VERSION}: {0}")]
    Fields(#[from] postcard::Error),
    #[error("{0} bytes follow the state")]
    Longer(usize),
    #[error("the state is not the JSON of an earlier release: {0}")]
    Json(#[from] serde_json::Error),
}

pub(super) fn save<S: Serialize>(state: &S) -> Vec<u8> {
    postcard::to_extend(state, vec![VERSION]).expect("a state is plain data of known length")
}

pub(super) fn restore<S: DeserializeOwned>(saved: &[u8]) -> Result<S, StateError> {
    match saved {
        [] => Err(StateError::Empty),
        [VERSION, fields @ ..] => match postcard::take_from_bytes(fields)? {
            (state, []) => Ok(state),
            (_, rest) => Err(StateError::Longer(rest.len())),
        },
        [b'{', ..] => Ok(serde_json::from_value(with_calls(serde_json::from_slice(saved)?))?),
        [version, ..] => Err(StateError::Version(*version)),
    }
}

/// Moves open and ended calls into one member. Releases up to 0.2.0 kept them beside each other.
fn with_calls(mut state: Map<String, Value>) -> Value {
    if let Some(ended) = state.shift_remove("ended_calls") {
        let open = state.shift_remove("calls").unwrap_or_else(|| Value::Array(Vec::new()));
        let mut calls = Map::from_iter([("open".to_owned(), open), ("ended".to_owned(), ended)]);
        calls.extend(state.shift_remove("has_forgotten_calls").map(|forgotten| ("has_forgotten".to_owned(), forgotten)));
        state.insert("calls".into(), calls.into());
    }
    state.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Ids;
    use crate::source::{Fact, SOURCES};
    use sha2::{Digest, Sha256};
    use std::path::Path;

    #[test]
    fn a_state_has_the_form_of_its_version() {
        let mut forms = Vec::new();
        for (source, folder, name) in [
            ("awaken", "awaken", "hitl_approve"),
            ("ethos", "ethos", "hitl_credential_required"),
            ("turnrunner", "turn-runner", "handwritten-port-gate_approved"),
            ("ag-ui", "ag-ui", "scripted-sdk1.0-tools_interleaved"),
        ] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{folder}/{name}.ndjson"));
            let facts = std::fs::read_to_string(file).unwrap();
            forms.push((source, facts.lines().map(|line| serde_json::from_str::<Fact>(line).unwrap()).collect::<Vec<_>>()));
        }
        let native = ["text.delta", "reasoning.delta", "text.final", "text.delta"];
        forms.push(("agentui", native.map(|name| Map::from_iter([("type".to_owned(), name.into())])).to_vec()));
        let mut digest = Sha256::new();
        for (source, facts) in forms {
            let kind = SOURCES.iter().find(|kind| kind.name == source).unwrap();
            let mut adapter = (kind.fresh)();
            for fact in facts {
                adapter.adapt(fact, &Ids::default(), &mut Vec::new()).unwrap();
                let saved = adapter.save();
                assert_eq!((kind.restore)(&saved).unwrap().describe(), adapter.describe(), "{source}");
                digest.update(saved);
            }
        }
        let form = format!("{:x}", digest.finalize());
        assert_eq!(
            &form[..16],
            "e36f7df9b3168a8b",
            "the stored form has changed: VERSION must change, and the old form stay readable"
        );
    }

    #[test]
    fn anything_but_a_whole_state_is_an_error() {
        let saved = save(&(7_u64, "text"));
        assert!(restore::<(u64, String)>(&saved).is_ok());
        for end in 0..saved.len() {
            assert!(restore::<(u64, String)>(&saved[..end]).is_err(), "{end}");
        }
        assert!(matches!(restore::<(u64, String)>(&[&saved[..], b"x"].concat()), Err(StateError::Longer(1))));
        assert!(matches!(restore::<(u64, String)>(b"\x02"), Err(StateError::Version(2))));
        assert!(matches!(restore::<(u64, String)>(b"{\"streams"), Err(StateError::Json(_))));
    }
}

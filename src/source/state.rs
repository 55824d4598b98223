//! The stored state of a runtime, in the form of [`stored`].

use crate::model::stored::{self, StoredError};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(super) fn restore<S: DeserializeOwned>(saved: &[u8]) -> Result<S, StoredError> {
    stored::restore_with(saved, with_calls)
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
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};
    use std::path::Path;

    fn recorded(file: &str) -> Vec<Fact> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(file);
        std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// All recorded facts of a source.
    fn all_recorded(folder: &str) -> Vec<Fact> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(folder);
        let files = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.iter().flat_map(|name| recorded(&format!("{folder}/{name}"))).collect()
    }

    proptest! {
        #[test]
        fn facts_in_any_order_leave_a_state_that_can_be_stored(
            picks in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
            source in prop::sample::select(vec!["ai-sdk", "openai-responses", "a2a"]),
        ) {
            let facts = all_recorded(source);
            let kind = SOURCES.iter().find(|kind| kind.name == source).unwrap();
            let mut adapter = (kind.fresh)();
            for pick in picks {
                adapter.adapt(pick.get(&facts).clone(), &Ids::default(), &mut Vec::new()).unwrap();
                let saved = adapter.save();
                adapter = (kind.restore)(&saved).unwrap();
                prop_assert_eq!(adapter.save(), saved);
            }
        }
    }

    #[test]
    fn a_state_has_the_form_of_its_version() {
        let released = [
            ("awaken", "awaken", "hitl_approve"),
            ("ethos", "ethos", "hitl_credential_required"),
            ("turnrunner", "turn-runner", "handwritten-port-gate_approved"),
            ("ag-ui", "ag-ui", "scripted-sdk1.0-tools_interleaved"),
            ("ai-sdk", "ai-sdk", "approval_approved"),
            ("openai-responses", "openai-responses", "endpoint-mcp_approval_approved_two_responses"),
            ("a2a", "a2a", "v1-input_required_then_answer"),
        ];
        let later = [
            ("acp", "acp", "scripted-terminal"),
            ("claude-stream-json", "claude-stream-json", "subagent_foreground"),
            ("langgraph", "langgraph", "hitl_middleware_edit"),
        ];
        let native = ["text.delta", "reasoning.delta", "text.final", "text.delta"];
        assert_form(&released, &native, "309bfb985c7010b9");
        assert_form(&later, &[], "82c4764c86baebe3");
    }

    /// Asserts the form of the states after each fact of these recordings, and of these native facts.
    fn assert_form(recordings: &[(&str, &str, &str)], native: &[&str], expected: &str) {
        let mut forms = Vec::new();
        for (source, folder, name) in recordings {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{folder}/{name}.ndjson"));
            let facts = std::fs::read_to_string(file).unwrap();
            forms.push((*source, facts.lines().map(|line| serde_json::from_str::<Fact>(line).unwrap()).collect::<Vec<_>>()));
        }
        forms.push(("agentui", native.iter().map(|name| Map::from_iter([("type".to_owned(), (*name).into())])).collect()));
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
        assert_eq!(&form[..16], expected, "the stored form has changed: its version must change, and the old form stay readable");
    }
}

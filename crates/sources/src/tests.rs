//! What holds for every source.

mod calls;

use super::samples::{given, object};
use super::{DryRun, Fact, FactError, SOURCES, by_name};
use proptest::prelude::*;
use proscenium_model::{Audience, Ids};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings").join(name)
}

fn read(file: &Path) -> Vec<Fact> {
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The sources with recordings, and all their recorded facts.
static RECORDED: LazyLock<Vec<(&str, Vec<Fact>)>> = LazyLock::new(|| {
    let sources = SOURCES.iter().map(|source| source.name).filter(|name| !["relay", "agentui"].contains(name));
    let facts = |source: &str| {
        let files = std::fs::read_dir(folder(if source == "turnrunner" { "turn-runner" } else { source })).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files.iter().flat_map(|file| read(file)).collect()
    };
    sources.map(|source| (source, facts(source))).collect()
});

fn native(event_type: &str) -> Fact {
    object(json!({ "type": event_type }))
}

proptest! {
    #[test]
    fn facts_in_any_order_leave_a_small_state_that_can_be_stored(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
        of in any::<prop::sample::Index>(),
    ) {
        let (source, facts) = of.get(&RECORDED);
        let mut run = DryRun::new(by_name(source).unwrap());
        for pick in picks {
            run.adapt(pick.get(facts).clone(), &Ids::default()).unwrap();
            let saved = run.save();
            run.restore(&saved).unwrap();
            prop_assert_eq!(run.save(), saved);
        }
        prop_assert!(run.save().len() < 64 * 1024);
    }
}

#[test]
fn a_state_has_the_form_of_its_version() {
    let recordings = [
        ("awaken", "awaken", "hitl_approve"),
        ("ethos", "ethos", "hitl_credential_required"),
        ("turnrunner", "turn-runner", "handwritten-port-gate_approved"),
        ("ag-ui", "ag-ui", "scripted-sdk1.0-tools_interleaved"),
        ("ai-sdk", "ai-sdk", "approval_approved"),
        ("openai-responses", "openai-responses", "endpoint-mcp_approval_approved_two_responses"),
        ("a2a", "a2a", "v1-input_required_then_answer"),
        ("acp", "acp", "scripted-terminal"),
        ("claude-stream-json", "claude-stream-json", "subagent_foreground"),
        ("langgraph", "langgraph", "hitl_middleware_edit"),
    ];
    let recordings = recordings.map(|(source, of, name)| (source, read(&folder(of).join(format!("{name}.ndjson")))));
    let natives = ["text.delta", "reasoning.delta", "text.final", "text.delta"].map(native).to_vec();
    let mut digest = Sha256::new();
    for (source, facts) in recordings.into_iter().chain([("agentui", natives)]) {
        let mut run = DryRun::new(by_name(source).unwrap());
        for fact in facts {
            run.adapt(fact, &Ids::default()).unwrap();
            let (saved, shown) = (run.save(), run.adapter.describe());
            run.restore(&saved).unwrap();
            assert_eq!(run.adapter.describe(), shown, "{source}");
            // The form of a state with added fields.
            run.restore(shown.to_string().as_bytes()).unwrap();
            assert_eq!(run.save(), saved, "{source}");
            digest.update(saved);
        }
    }
    let form = format!("{:x}", digest.finalize());
    let changed = "the stored form has changed: its version must change, and the old form stay readable";
    assert_eq!(&form[..16], "48ec655151be280b", "{changed}");
}

#[test]
fn an_unreadable_state_is_an_error() {
    for source in SOURCES {
        assert!((source.restore)(b"{\"streams").is_err() && (source.restore)(b"").is_err(), "{}", source.name);
    }
}

#[test]
fn unknown_members_are_carried_and_forge_nothing() {
    let facts = [
        ("agentui", json!({"type": "text.delta", "text": "a"})),
        ("awaken", json!({"event_type": "text_delta", "delta": "a"})),
        ("ethos", json!({"type": "text_delta", "text": "a"})),
        ("turnrunner", json!({"event": "message", "payload": {"id": "m", "aDelta": "a"}})),
        ("ag-ui", json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a"})),
        ("ai-sdk", json!({"type": "text-delta", "id": "0", "delta": "a"})),
    ];
    for (source, fact) in facts {
        let mut fact = object(fact);
        fact.extend(object(json!({"ofTomorrow": [1], "startAudience": "internal", "eventId": "e"})));
        let draft = DryRun::new(by_name(source).unwrap()).adapt(fact, &given()).unwrap().pop().unwrap();
        let carried = json!({"ofTomorrow": [1], "sourceStartAudience": "internal", "sourceEventId": "e"});
        assert_eq!(
            (Value::Object(draft.extra), draft.start_audience, draft.audience),
            (carried, None, Audience::User),
            "{source}"
        );
    }
}

#[test]
fn a_fact_without_a_type_is_refused() {
    for source in SOURCES {
        let refused = DryRun::new(source).adapt(Map::new(), &given());
        assert!(matches!(refused, Err(FactError::NoType { .. })), "{}: {refused:?}", source.name);
    }
}

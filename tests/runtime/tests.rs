//! Tests of the source `relay`.

use super::SOURCE;
use crate::{DryRun, Fact, FactError, by_name};
use proscenium_model::{Audience, Draft, Ids};
use serde_json::{Value, json};

const FACTS: &str = r#"[
    {"kind": "begin", "host": "a"},
    {"kind": "say", "text": "One "}, {"kind": "say", "text": "moment."},
    {"kind": "call", "id": "c", "tool": "tides", "args": {"port": "Brest"}},
    {"kind": "returned", "id": "c", "value": "14:32"},
    {"kind": "say"}, {"kind": "of_tomorrow"},
    {"kind": "end"}
]"#;

/// Applies the facts one by one; saves and restores the state after each.
fn drafts() -> Vec<Draft> {
    let (mut run, mut drafts) = (DryRun::new(&SOURCE), Vec::new());
    for fact in serde_json::from_str::<Vec<Fact>>(FACTS).unwrap() {
        drafts.extend(run.adapt(fact, &Ids::default()).unwrap());
        let saved = run.save();
        run.restore(&saved).unwrap();
    }
    drafts
}

#[test]
fn events_become_drafts_with_the_ids_and_names_of_earlier_events() {
    let drafts = drafts();
    let classes: Vec<_> = drafts.iter().map(|draft| draft.event_type.as_str()).collect();
    let expected = [
        "run.started",
        "text.delta",
        "text.delta",
        "tool.started",
        "tool.result",
        "diagnostic.changed",
        "diagnostic.changed",
        "run.finished",
    ];
    assert_eq!(classes, expected);
    assert_eq!(drafts[0].extra["host"], "a", "an unknown member is carried");
    assert_eq!(drafts[1].ids.message, drafts[2].ids.message);
    assert_eq!(drafts[4].payload.to_value(), json!({"toolName": "tides", "output": "14:32"}));
    assert_eq!((&drafts[5].payload.to_value()["expected"], drafts[5].audience), (&json!("text as text"), Audience::Internal));
}

#[test]
fn only_a_fact_without_a_type_is_refused() {
    let refused = |fact: Value| (SOURCE.parse)(fact.as_object().unwrap().clone()).err();
    assert_eq!(refused(json!({"text": "x"})), Some(FactError::NoType { member: "kind" }));
    assert_eq!(refused(json!({"kind": "call", "id": "\n"})), None);
}

#[test]
fn the_source_is_found_by_its_name() {
    assert_eq!(by_name("relay").unwrap().name, SOURCE.name);
}

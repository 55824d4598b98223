//! The contract in `schema/`.
//!
//! It equals the generated one, its examples are correct, and the server's output is valid.

use crate::harness::{AUDIENCES, Client, Transport, fact, recording, repository, start_local};
use jsonschema::{Registry, Validator};
use proscenium::model::schema;
use proscenium::projection;
use proscenium::source::ledger::Status;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Returns every document of the contract, by its file name in `schema/`.
fn documents() -> Vec<(String, Value)> {
    let activities = projection::schemas().into_iter().map(|(kind, document)| (activity_schema(kind), document));
    schema::documents().into_iter().map(|(name, document)| (name.to_owned(), document)).chain(activities).collect()
}

fn activity_schema(kind: &str) -> String {
    format!("activities/{kind}.schema.json")
}

/// Panics with every error if an activity's content violates the schema of its type.
///
/// A source's own type may have any content.
pub fn assert_activity(kind: &str, content: &Value) {
    let name = activity_schema(kind);
    assert_valid(if VALIDATORS.contains_key(&name) { &name } else { "activities/custom.schema.json" }, content);
}

/// A validator per document, by its file name.
static VALIDATORS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let documents = documents();
    let registry = documents.iter().fold(Registry::new(), |registry, (_, document)| {
        registry.add(document["$id"].as_str().expect("a document has an $id"), document.clone()).expect("the document is valid")
    });
    let registry = registry.prepare().expect("references resolve");
    let build = |document: &Value| {
        jsonschema::options()
            .with_registry(&registry)
            .should_validate_formats(true)
            .build(document)
            .expect("the document is a schema")
    };
    documents.iter().map(|(name, document)| (name.clone(), build(document))).collect()
});

/// Panics with every error if `value` violates the schema.
pub fn assert_valid(schema: &str, value: &Value) {
    let errors: Vec<String> =
        VALIDATORS[schema].iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{schema}: {errors:#?}\n{value:#}");
}

fn read_examples() -> Vec<(String, Value)> {
    let entries = std::fs::read_dir(repository("schema/examples")).expect("the directory is readable");
    let mut examples: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("the entry is readable").path();
            let text = std::fs::read_to_string(&path).expect("the example is text");
            let name = path.file_name().and_then(|name| name.to_str()).expect("a file has a name").to_owned();
            let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, value)
        })
        .collect();
    examples.sort_by(|(a, _), (b, _)| a.cmp(b));
    examples
}

fn read_example(name: &str) -> Value {
    read_examples().into_iter().find(|(of, _)| of == name).unwrap_or_else(|| panic!("schema/examples/{name}")).1
}

#[test]
fn the_files_in_schema_equal_the_generated_ones() {
    let description = || ("openapi.json".to_owned(), proscenium::serve::contract::openapi::document());
    for (name, document) in documents().into_iter().chain([description()]) {
        let path = repository("schema").join(&name);
        let generated = format!("{document:#}\n");
        if std::env::var_os("UPDATE_SCHEMA").is_some_and(|yes| yes == "1") {
            std::fs::write(&path, &generated).expect("the schema is writable");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == generated,
            "{name} differs from the generated file; run the tests with UPDATE_SCHEMA=1 and commit it"
        );
    }
    let names: HashSet<String> = documents().into_iter().chain([description()]).map(|(name, _)| name).collect();
    for folder in ["", "activities/"] {
        for entry in std::fs::read_dir(repository("schema").join(folder)).expect("the directory is readable") {
            let name =
                format!("{folder}{}", entry.expect("the entry is readable").file_name().to_str().expect("a file has a name"));
            assert!(name == "examples" || name == "activities" || names.contains(&name), "no code generates {name}");
        }
    }
}

#[test]
fn each_document_is_a_valid_schema() {
    for (name, document) in documents() {
        assert!(jsonschema::meta::is_valid(&document), "{name}");
    }
}

#[test]
fn every_end_of_a_run_is_in_the_schema_of_frames() {
    let (_, frames) = documents().into_iter().find(|(name, _)| name.starts_with("frames")).expect("the schema of frames exists");
    let named = frames
        .pointer("/$defs/End/properties/status/anyOf/0/enum")
        .and_then(Value::as_array)
        .expect("the status is an enum")
        .clone();
    use Status::{Accepted, Cancelled, Completed, Failed, Interrupted, Running, Unknown, Waiting};
    let all = [Accepted, Running, Waiting, Completed, Failed, Cancelled, Interrupted, Unknown];
    let ends: Vec<Value> = all.into_iter().filter(|status| status.is_end()).map(|status| json!(status.as_str())).collect();
    assert_eq!(named, ends);
}

#[test]
fn every_example_is_valid_by_the_schema_it_is_named_after() {
    let examples = read_examples();
    for (name, value) in &examples {
        match name.split('.').collect::<Vec<_>>()[..] {
            ["fact" | "facts", ..] => {}
            ["activities", kind, "json"] => assert_valid(&activity_schema(kind), value),
            [kind, ..] => assert_valid(&format!("{kind}.schema.json"), value),
            [] => unreachable!("a name has a first part"),
        }
    }
    for kind in ["agentui-event.", "frames.", "problem.", "fact."] {
        assert!(examples.iter().any(|(name, _)| name.starts_with(kind)), "no example of {kind}");
    }
    for frame in schema::frames()["$defs"].as_object().expect("frames are an object").keys() {
        assert!(examples.iter().any(|(_, value)| value["frame"] == frame.as_str()), "no example of {frame}");
    }
}

/// The examples of activities, one of each type, are the activities of `schema/examples/facts.story.json`.
#[test]
fn the_examples_of_activities_result_from_the_facts_of_the_story() {
    let Value::Array(facts) = read_example("facts.story.json") else { panic!("not a list of facts") };
    let activities = crate::projection::fold_activities(&facts);
    for (kind, _) in projection::schemas() {
        let named = |activity: &&proscenium::projection::activity_set::Activity| match kind {
            "custom" => activity.is_custom,
            kind => *activity.kind == *kind,
        };
        let name = format!("activities.{kind}.json");
        let content = &activities.iter().find(named).unwrap_or_else(|| panic!("the story has no {kind}")).content;
        if std::env::var_os("UPDATE_SCHEMA").is_some_and(|yes| yes == "1") {
            let text = format!("{:#}\n", Value::Object(content.clone()));
            std::fs::write(repository("schema/examples").join(&name), text).expect("the example is writable");
        }
        assert_eq!(read_example(&name), Value::Object(content.clone()), "{name}");
    }
}

#[tokio::test]
async fn every_document_and_example_is_served() {
    let client = start_local().await;
    for (name, document) in documents() {
        assert!(client.get(&format!("/schema/{name}")).await.ok() == document, "{name}");
    }
    let served = client.get("/schema/examples/activities.task.json").await.ok();
    assert_eq!(served, read_example("activities.task.json"));
    assert!(client.get("/schema/activities/none.schema.json").await.problem(404, "no_such_schema")["detail"].as_str().is_some());
}

#[test]
fn an_invalid_envelope_is_rejected_by_the_schema() {
    let good = read_example("agentui-event.agent-spawned.json");
    let bad = [
        ("sequence", json!(0)),
        ("sequence", json!("1")),
        ("eventId", json!("8c9a3f1e-0000-4000-8000-000000000000")),
        ("receivedAt", json!("yesterday")),
        ("owner", json!(7)),
        ("audience", json!("everyone")),
        ("startAudience", json!("everyone")),
        ("agentId", json!("")),
        ("agentId", json!("a\u{7}b")),
        ("agentId", json!("x".repeat(257))),
        ("payload", json!("text")),
        ("refs", json!("text")),
    ];
    for (member, value) in bad {
        let mut envelope = good.clone();
        envelope[member] = value;
        assert!(!VALIDATORS["agentui-event.schema.json"].is_valid(&envelope), "{member}: {}", envelope[member]);
    }
    for member in
        documents()[0].1["required"].as_array().expect("the schema has required members").iter().filter_map(Value::as_str)
    {
        let mut envelope = good.clone();
        envelope.as_object_mut().expect("an envelope is an object").remove(member);
        assert!(!VALIDATORS["agentui-event.schema.json"].is_valid(&envelope), "without {member}");
    }
    let mut foreign = good;
    foreign["owner"] = json!("moon");
    foreign["weather"] = json!({"sky": "clear"});
    assert_valid("agentui-event.schema.json", &foreign);
}

#[tokio::test]
async fn the_minimal_fact_of_the_seed_becomes_the_example_envelope() {
    let client = start_local().await;
    client.append("run-research", &[read_example("fact.agent-spawned.json")]).await;
    let mut got = client.read_events("run-research", "", 10).await.remove(0);
    let expected = read_example("agentui-event.agent-spawned.json");
    for member in ["eventId", "receivedAt"] {
        got[member] = expected[member].clone();
    }
    assert_eq!(got, expected);
}

/// Validates every envelope of a run for every audience, and every frame with an envelope.
async fn assert_run_is_valid(client: &Client, run: &str) -> usize {
    for audience in AUDIENCES {
        for event in client.read_events(run, &format!("audience={audience}"), 1000).await {
            assert_valid("agentui-event.schema.json", &event);
        }
    }
    let frames = client.open_stream(Transport::Raw, run, "audience=internal", None).await.read_all().await;
    for frame in &frames {
        assert_valid("frames.schema.json", &frame.data);
    }
    frames.len()
}

#[tokio::test]
async fn every_envelope_of_every_recording_is_valid() {
    let client = start_local().await;
    let mut names: Vec<String> = std::fs::read_dir(repository("tests/recordings/awaken"))
        .expect("the directory is readable")
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    assert_eq!(names.len(), 19);
    for name in names {
        // The long recording repeats the same few events a thousand times.
        let facts: Vec<Value> = recording(&name).into_iter().take(500).collect();
        let receipt =
            client.post_lines(&format!("/v1/runs/{name}/facts?source=awaken"), crate::harness::to_ndjson(&facts)).await.ok();
        assert_eq!(receipt["accepted"], facts.len(), "{name}");
        // The test ends recordings without an end, so that their streams end.
        client.append(&name, &[fact("run.finished", json!({}))]).await;
        assert!(assert_run_is_valid(&client, &name).await > 1, "{name}");
    }
}

#[tokio::test]
async fn envelopes_of_arbitrary_facts_are_valid() {
    let client = start_local().await;
    let foreign = [
        fact("weather.changed", json!({"owner": "moon", "scope": "sky", "sequence": "seven", "eventId": 9, "timestamp": "soon"})),
        fact("tool.started", json!({"toolCallId": 7, "refs": "see elsewhere", "rawEventRef": 3, "payload": [1, 2]})),
        fact("text.delta", json!({"payload": "bare", "audience": "everyone", "startAudience": "user", "receivedAt": "never"})),
        fact(
            "state.snapshot",
            json!({"refs": null, "payload": null, "owner": null, "control": "dance", "topology": {}, "phase": 4}),
        ),
        fact("agent.handoff", json!({"refs": {"a": "b"}, "audience": 7, "sourceSequence": -1, "surface": ["x"], "owner": ""})),
        fact("run.finished", json!({"scope": "", "phase": "", "surface": "", "persistence": "", "control": "", "topology": ""})),
    ];
    client.append("r", &foreign).await;
    assert_run_is_valid(&client, "r").await;
}

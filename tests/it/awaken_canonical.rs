//! Awaken's canonical events.
//!
//! The events in its server's store lead to the same activities as the runtime's own events.
//!
//! Each recording is a run as Awaken's server would store it, with the same name as the recording of the runtime's
//! events. A test states each documented difference between the two.

use crate::harness::{AUDIENCES, Client, recording, repository, start_local, to_ndjson};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proscenium::model::{Draft, Ids, RunId};
use proscenium::source::{DryRun, SourceKind, by_name};
use serde_json::{Value, json};

/// The suspended runs. Awaken's store treats the first suspension as the end of the run and stores no later one.
const SUSPENDED: &[&str] = &["hitl_approve", "hitl_cancel"];

fn names() -> Vec<String> {
    let files = std::fs::read_dir(repository("tests/recordings/awaken-canonical")).expect("the directory is readable");
    let mut names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".drafts.ndjson").expect("a file of drafts").to_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 9);
    names
}

/// Reads a recording: drafts of events as the normaliser produces them.
fn drafts(name: &str) -> Vec<Value> {
    let file = repository(&format!("tests/recordings/awaken-canonical/{name}.drafts.ndjson"));
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Builds the events as the store would return them: with ids, cursors and times.
fn stored(drafts: &[Value]) -> Vec<Value> {
    let event = |(n, draft): (usize, &Value)| {
        let mut event = draft["draft"].clone();
        let scope = |kind: &str, id: &str| {
            draft["draft"]["scopes"].as_array().unwrap().iter().find(|s| s["scope_type"] == kind).unwrap()[id].clone()
        };
        event["thread_id"] = scope("thread", "thread_id");
        event["run_id"] = scope("run", "run_id");
        event["event_id"] = json!(format!("event-{n}"));
        event["cursors_by_scope"] = json!([{"scope": "run", "cursor": n.to_string()}]);
        event["causation_id"] = if n == 0 { Value::Null } else { json!(format!("event-{}", n - 1)) };
        event["correlation_id"] = json!("request-1");
        event["created_at"] = json!(format!("2026-01-01T00:00:{:02}.5Z", n % 60));
        event
    };
    drafts.iter().enumerate().map(event).collect()
}

/// Returns the runtime's events of the same run, as far as the store keeps them.
fn natives(name: &str) -> Vec<Value> {
    let mut natives = recording(name);
    if SUSPENDED.contains(&name) {
        let end = natives.pop().unwrap();
        assert_eq!((&end["event_type"], &end["termination"]["type"]), (&json!("run_finish"), &json!("natural_end")), "{name}");
    }
    natives
}

async fn post_facts(client: &Client, facts: &[Value]) {
    let receipt = client.post_lines("/v1/runs/r/facts?source=awaken", to_ndjson(facts)).await.ok();
    assert_eq!(receipt["accepted"], facts.len());
}

/// Members that the store's wrapper changes: sequences, and times of the envelopes and of the store.
#[rustfmt::skip]
const OF_ENVELOPES: &[&str] = &[
    "opened", "sequence", "reported", "openedAt", "updatedAt", "endedAt", "sourceOpenedAt", "sourceEndedAt", "decidedBy",
];

/// Reads the run's activities in order, without sequences and times of their envelopes.
async fn read_activities_without_times(client: &Client, audience: &str) -> Vec<Value> {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|member, _| !OF_ENVELOPES.contains(&member.as_str()));
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut answer = client.get(&format!("/v1/runs/r/activities?audience={audience}")).await.ok();
    strip(&mut answer["activities"]);
    answer["activities"].as_array().unwrap().clone()
}

#[test]
fn the_store_keeps_a_suspension_as_two_kinds_and_lacks_a_suspended_run_s_end() {
    for name in names() {
        let mut drafts = drafts(&name);
        if SUSPENDED.contains(&name.as_str()) {
            let twice: Vec<_> =
                (1..drafts.len()).filter(|n| drafts[*n]["draft"]["payload"] == drafts[n - 1]["draft"]["payload"]).collect();
            let kind = |n: usize| drafts[n]["draft"]["event_kind"].clone();
            let [second] = twice.as_slice() else { panic!("{name}: {twice:?}") };
            assert_eq!((kind(second - 1), kind(*second)), (json!("ToolCallSuspended"), json!("ToolPermissionRequested")));
            drafts.remove(*second);
        }
        let payloads: Vec<_> = drafts.iter().map(|draft| draft["draft"]["payload"].clone()).collect();
        assert_eq!(payloads, natives(&name), "{name}");
    }
}

#[tokio::test]
async fn a_stored_run_leads_to_the_runtime_s_activities_in_both_wrapper_forms() {
    for name in names() {
        let native = start_local().await;
        post_facts(&native, &natives(&name)).await;
        let drafts = drafts(&name);
        for (form, facts) in [("drafts", drafts.clone()), ("stored", stored(&drafts))] {
            let client = start_local().await;
            post_facts(&client, &facts).await;
            for audience in AUDIENCES {
                let mut canonical = read_activities_without_times(&client, audience).await;
                if SUSPENDED.contains(&name.as_str()) && audience == "internal" {
                    // Internal readers see that the store has the suspension twice.
                    let at = canonical.iter().position(|activity| activity["activityType"] == "diagnostics").unwrap();
                    let diagnostics = canonical.remove(at);
                    assert_eq!(diagnostics["content"]["entries"], json!([{"kind": "repeated_event"}]), "{name} {form}");
                }
                assert_eq!(canonical, read_activities_without_times(&native, audience).await, "{name} {form} {audience}");
            }
        }
    }
}

#[tokio::test]
async fn a_suspension_stored_twice_is_one_question_with_one_answer() {
    for name in SUSPENDED {
        let client = start_local().await;
        post_facts(&client, &drafts(name)).await;
        for event_type in ["action.required", "action.resolved"] {
            assert_eq!(
                client.read_events("r", &format!("audience=internal&type={event_type}"), 100).await.len(),
                1,
                "{name} {event_type}"
            );
        }
        for audience in AUDIENCES {
            let actions: Vec<_> = read_activities_without_times(&client, audience)
                .await
                .into_iter()
                .filter(|activity| activity["activityType"] == "action")
                .collect();
            assert_eq!(actions.len(), 1, "{name} {audience}");
            assert_eq!(
                (&actions[0]["activityId"], &actions[0]["content"]["status"]),
                (&json!("perm_call_del"), &json!("resolved"))
            );
        }
        // No event says how the run ended; settling will end it.
        assert_eq!(client.get("/v1/runs/r").await.ok()["status"], "running", "{name}");
    }
}

#[tokio::test]
async fn every_envelope_of_a_stored_event_has_the_store_s_time_and_ids() {
    for name in names() {
        let client = start_local().await;
        let facts = stored(&drafts(&name));
        post_facts(&client, &facts).await;
        let mut referenced = std::collections::BTreeSet::new();
        for event in client.read_events("r", "audience=internal", 1000).await {
            let id = event["rawEventRef"]["eventId"].as_str().unwrap_or_else(|| panic!("{name}: {event}")).to_owned();
            let of = facts.iter().find(|fact| fact["event_id"] == id.as_str()).unwrap();
            assert_eq!(event["timestamp"], of["created_at"], "{name}");
            assert_eq!(event["rawEventRef"]["eventKind"], of["event_kind"], "{name}");
            referenced.insert(id);
        }
        assert_eq!(referenced.len(), facts.len(), "{name}: every stored event is in the log");
    }
}

#[tokio::test]
async fn wider_audiences_see_only_the_status_of_a_run_that_is_not_public() {
    for name in names() {
        let (open, closed) = (start_local().await, start_local().await);
        post_facts(&open, &natives(&name)).await;
        let mut facts = stored(&drafts(&name));
        for fact in &mut facts {
            fact["visibility"] = json!("sensitive");
        }
        post_facts(&closed, &facts).await;
        for audience in ["user", "dashboard"] {
            // They also get the number of failed calls, which always reaches users.
            let counted = |event: &Value| event["payload"] == json!({"kind": "hidden_failure", "withheld": true});
            for event in closed.export("r", &format!("audience={audience}")).await.into_iter().filter(|event| !counted(event)) {
                assert!(event["type"].as_str().unwrap().starts_with("run."), "{name} {audience}: {event}");
                let payload = event["payload"].as_object().cloned().unwrap_or_default();
                let allowed = ["status", "resumed", "withheld"];
                assert!(payload.keys().all(|member| allowed.contains(&member.as_str())), "{name} {audience}: {event}");
                assert!(event["refs"].is_null() && event["rawEventRef"].is_null(), "{name} {audience}: {event}");
            }
            let run = |activities: Vec<Value>| {
                let run = activities.into_iter().find(|activity| activity["activityType"] == "run").unwrap();
                (run["content"]["status"].clone(), run["content"]["attempt"].clone())
            };
            let seen = (
                run(read_activities_without_times(&closed, audience).await),
                run(read_activities_without_times(&open, audience).await),
            );
            assert_eq!(seen.0, seen.1, "{name} {audience}");
            let others = read_activities_without_times(&closed, audience)
                .await
                .into_iter()
                .filter(|activity| activity["activityType"] != "run");
            for activity in others {
                assert_eq!((&activity["activityType"], &activity["content"]["entries"]), (&json!("diagnostics"), &json!([])));
            }
        }
    }
}

fn source() -> &'static SourceKind {
    by_name("awaken").unwrap()
}

/// Adapts a value that may not be a fact.
fn adapt(adapter: &mut DryRun, fact: &Value) -> Option<Vec<Draft>> {
    let given = Ids { run: Some(RunId::new("run").unwrap()), ..Ids::default() };
    adapter.adapt(fact.as_object()?.clone(), &given).ok()
}

/// Generates a damaged stored event.
///
/// A member is missing or has another type, at the top, in the payload, or in the scopes.
fn damaged_event(facts: Vec<Value>) -> impl Strategy<Value = Value> {
    let odd_value =
        prop_oneof![Just(Value::Null), Just(json!(7)), Just(json!("")), Just(json!("x\ny")), Just(json!([[]])), Just(json!({}))];
    (proptest::sample::select(facts), 0..4_u8, any::<prop::sample::Index>(), prop::option::of(odd_value)).prop_map(
        |(mut fact, place, member, odd_value)| {
            let at = match place {
                0 => return fact,
                1 => "",
                2 => "/payload",
                _ => "/scopes/0",
            };
            if let Some(map) = fact.pointer_mut(at).and_then(Value::as_object_mut).filter(|map| !map.is_empty()) {
                let name = map.keys().nth(member.index(map.len())).unwrap().clone();
                match odd_value {
                    Some(odd_value) => drop(map.insert(name, odd_value)),
                    None => drop(map.shift_remove(&name)),
                }
            }
            fact
        },
    )
}

#[test]
fn the_adapter_accepts_damaged_events_in_any_order_and_restores_at_any_point() {
    let facts: Vec<Value> = SUSPENDED.iter().flat_map(|name| stored(&drafts(name))).collect();
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&prop::collection::vec(damaged_event(facts), 1..60), |facts| {
        let (mut lasting, mut restored) = (DryRun::new(source()), DryRun::new(source()));
        for fact in &facts {
            let before = lasting.save();
            let drafts = adapt(&mut lasting, fact);
            prop_assert!(drafts.is_some() || lasting.save() == before, "a rejected fact changed the adapter: {fact}");
            prop_assert_eq!(adapt(&mut restored, fact), drafts);
            prop_assert_eq!(restored.save(), lasting.save());
            let saved = restored.save();
            restored.restore(&saved).unwrap();
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_adapter_of_stored_events_keeps_ids_and_hashes_and_no_bodies() {
    for name in names() {
        let mut adapter = DryRun::new(source());
        for (n, fact) in stored(&drafts(&name)).iter().enumerate() {
            adapt(&mut adapter, fact).unwrap_or_else(|| panic!("{name}, fact {n}: {fact}"));
            assert!(adapter.save().len() <= 8 * 1024, "{name}, fact {n}: {} bytes", adapter.save().len());
        }
    }
}

//! Awaken's own normaliser over its own runs: what its server stores leads to what the runtime said, for every audience.
//!
//! Each recording is a run as its server would store it, of the same name as the run as it was. Where the two are documented
//! to differ, a test here says how.

use crate::harness::{AUDIENCES, Client, lines, local, recording, repository};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proscenium::model::{Draft, Ids, RunId};
use proscenium::source::{Adapter, SourceKind, by_name};
use serde_json::{Value, json};

/// The runs that were suspended. Awaken's store takes the first suspension for the end of the run and has no later one.
const SUSPENDED: &[&str] = &["hitl_approve", "hitl_cancel"];

fn names() -> Vec<String> {
    let files = std::fs::read_dir(repository("tests/recordings/awaken-canonical")).expect("recordings");
    let mut names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".drafts.ndjson").expect("drafts, a line each").to_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 9);
    names
}

/// A recording: drafts of events, as the normaliser hands them on.
fn drafts(name: &str) -> Vec<Value> {
    let file = repository(&format!("tests/recordings/awaken-canonical/{name}.drafts.ndjson"));
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The same as the store would give them back: with ids, cursors and times.
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

/// What the runtime said of the same run, as far as its store has it.
fn natives(name: &str) -> Vec<Value> {
    let mut natives = recording(name);
    if SUSPENDED.contains(&name) {
        let end = natives.pop().unwrap();
        assert_eq!((&end["event_type"], &end["termination"]["type"]), (&json!("run_finish"), &json!("natural_end")), "{name}");
    }
    natives
}

async fn play(client: &Client, facts: &[Value]) {
    let receipt = client.lines("/v1/runs/r/facts?source=awaken", lines(facts)).await.ok();
    assert_eq!(receipt["accepted"], facts.len());
}

/// The run's activities in their order, without the numbers and times of the envelopes that they came with.
async fn shown(client: &Client, audience: &str) -> Vec<Value> {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|member, _| {
                    !["opened", "sequence", "reported", "openedAt", "updatedAt", "endedAt"].contains(&member.as_str())
                });
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
fn the_store_has_a_suspension_by_two_kinds_and_lacks_the_end_of_a_run_that_was_suspended() {
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
async fn a_stored_run_is_shown_as_the_run_itself_in_both_forms_of_the_wrapper() {
    for name in names() {
        let native = local().await;
        play(&native, &natives(&name)).await;
        let drafts = drafts(&name);
        for (form, facts) in [("drafts", drafts.clone()), ("stored", stored(&drafts))] {
            let client = local().await;
            play(&client, &facts).await;
            for audience in AUDIENCES {
                let mut canonical = shown(&client, audience).await;
                if SUSPENDED.contains(&name.as_str()) && audience == "internal" {
                    // Whoever sees everything sees that the suspension was stored twice.
                    let at = canonical.iter().position(|activity| activity["activityType"] == "diagnostics").unwrap();
                    let diagnostics = canonical.remove(at);
                    assert_eq!(diagnostics["content"]["entries"], json!([{"kind": "repeated_event"}]), "{name} {form}");
                }
                assert_eq!(canonical, shown(&native, audience).await, "{name} {form} {audience}");
            }
        }
    }
}

#[tokio::test]
async fn a_suspension_that_is_stored_twice_is_one_question_with_one_answer() {
    for name in SUSPENDED {
        let client = local().await;
        play(&client, &drafts(name)).await;
        for class in ["action.required", "action.resolved"] {
            assert_eq!(client.events("r", &format!("audience=internal&type={class}"), 100).await.len(), 1, "{name} {class}");
        }
        for audience in AUDIENCES {
            let actions: Vec<_> =
                shown(&client, audience).await.into_iter().filter(|activity| activity["activityType"] == "action").collect();
            assert_eq!(actions.len(), 1, "{name} {audience}");
            assert_eq!(
                (&actions[0]["activityId"], &actions[0]["content"]["status"]),
                (&json!("perm_call_del"), &json!("resolved"))
            );
        }
        // Nobody said how it ended; whoever settles runs will.
        assert_eq!(client.get("/v1/runs/r").await.ok()["status"], "running", "{name}");
    }
}

#[tokio::test]
async fn every_envelope_of_a_stored_event_has_its_time_and_its_names_in_the_store() {
    for name in names() {
        let client = local().await;
        let facts = stored(&drafts(&name));
        play(&client, &facts).await;
        let mut told = std::collections::BTreeSet::new();
        for event in client.events("r", "audience=internal", 1000).await {
            let id = event["rawEventRef"]["eventId"].as_str().unwrap_or_else(|| panic!("{name}: {event}")).to_owned();
            let of = facts.iter().find(|fact| fact["event_id"] == id.as_str()).unwrap();
            assert_eq!(event["timestamp"], of["created_at"], "{name}");
            assert_eq!(event["rawEventRef"]["eventKind"], of["event_kind"], "{name}");
            told.insert(id);
        }
        assert_eq!(told.len(), facts.len(), "{name}: every event of the store is somewhere in the log");
    }
}

#[tokio::test]
async fn of_a_run_that_is_not_public_others_see_how_it_stands_and_nothing_else() {
    for name in names() {
        let (open, closed) = (local().await, local().await);
        play(&open, &natives(&name)).await;
        let mut facts = stored(&drafts(&name));
        for fact in &mut facts {
            fact["visibility"] = json!("sensitive");
        }
        play(&closed, &facts).await;
        for audience in ["user", "dashboard"] {
            // Beside that: how many calls failed, which always reaches users.
            let counted = |event: &Value| event["payload"] == json!({"kind": "hidden_failure", "withheld": true});
            for event in closed.export("r", &format!("audience={audience}")).await.into_iter().filter(|event| !counted(event)) {
                assert!(event["type"].as_str().unwrap().starts_with("run."), "{name} {audience}: {event}");
                let payload = event["payload"].as_object().cloned().unwrap_or_default();
                let told = ["status", "resumed", "withheld"];
                assert!(payload.keys().all(|member| told.contains(&member.as_str())), "{name} {audience}: {event}");
                assert!(event["refs"].is_null() && event["rawEventRef"].is_null(), "{name} {audience}: {event}");
            }
            let run = |activities: Vec<Value>| {
                let run = activities.into_iter().find(|activity| activity["activityType"] == "run").unwrap();
                (run["content"]["status"].clone(), run["content"]["attempt"].clone())
            };
            let seen = (run(shown(&closed, audience).await), run(shown(&open, audience).await));
            assert_eq!(seen.0, seen.1, "{name} {audience}");
            let others = shown(&closed, audience).await.into_iter().filter(|activity| activity["activityType"] != "run");
            for activity in others {
                assert_eq!((&activity["activityType"], &activity["content"]["entries"]), (&json!("diagnostics"), &json!([])));
            }
        }
    }
}

fn source() -> &'static SourceKind {
    by_name("awaken").unwrap()
}

/// Adapts what may be no fact at all.
fn adapt(adapter: &mut dyn Adapter, fact: &Value) -> Option<Vec<Draft>> {
    let given = Ids { run: Some(RunId::new("run").unwrap()), ..Ids::default() };
    let mut out = Vec::new();
    adapter.adapt(fact.as_object()?.clone(), &given, &mut out).ok()?;
    Some(out)
}

/// A stored event with something wrong with it: a member gone or of another kind, at the top, in the payload, or among the scopes.
fn damaged(facts: Vec<Value>) -> impl Strategy<Value = Value> {
    let odd =
        prop_oneof![Just(Value::Null), Just(json!(7)), Just(json!("")), Just(json!("x\ny")), Just(json!([[]])), Just(json!({}))];
    (proptest::sample::select(facts), 0..4_u8, any::<prop::sample::Index>(), prop::option::of(odd)).prop_map(
        |(mut fact, place, member, odd)| {
            let at = match place {
                0 => return fact,
                1 => "",
                2 => "/payload",
                _ => "/scopes/0",
            };
            if let Some(map) = fact.pointer_mut(at).and_then(Value::as_object_mut).filter(|map| !map.is_empty()) {
                let name = map.keys().nth(member.index(map.len())).unwrap().clone();
                match odd {
                    Some(odd) => drop(map.insert(name, odd)),
                    None => drop(map.shift_remove(&name)),
                }
            }
            fact
        },
    )
}

#[test]
fn stored_events_in_any_order_and_damaged_in_any_way_never_stop_the_adapter_nor_depend_on_when_it_was_saved() {
    let facts: Vec<Value> = SUSPENDED.iter().flat_map(|name| stored(&drafts(name))).collect();
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&prop::collection::vec(damaged(facts), 1..60), |facts| {
        let (mut lasting, mut restored) = ((source().fresh)(), (source().fresh)());
        for fact in &facts {
            let before = lasting.save();
            let drafts = adapt(&mut *lasting, fact);
            prop_assert!(drafts.is_some() || lasting.save() == before, "a refusal leaves nothing behind: {fact}");
            prop_assert_eq!(adapt(&mut *restored, fact), drafts);
            prop_assert_eq!(restored.save(), lasting.save());
            restored = (source().restore)(&restored.save()).unwrap();
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn an_adapter_of_stored_events_remembers_ids_and_hashes_and_no_bodies() {
    for name in names() {
        let mut adapter = (source().fresh)();
        for (n, fact) in stored(&drafts(&name)).iter().enumerate() {
            adapt(&mut *adapter, fact).unwrap_or_else(|| panic!("{name}, fact {n}: {fact}"));
            assert!(adapter.save().len() <= 8 * 1024, "{name}, fact {n}: {} bytes", adapter.save().len());
        }
    }
}

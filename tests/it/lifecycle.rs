//! What ends, what goes stale and what is unknown: runs, agents, tasks, reviews and artifacts after an end.

use crate::harness::{AUDIENCES, Client, fact, serve_it, world};
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::log::AnyStore;
use proscenium::log::memory::MemoryStore;
use proscenium::model::{EventType, Phase};
use proscenium::serve::settle::{Patience, Settler};
use proscenium::serve::{Limits, Pulse, Server};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A clock that moves by more than a millisecond each time it is read: no two requests have the same time.
pub fn ticking() -> jiff::Timestamp {
    static NOW: AtomicI64 = AtomicI64::new(1_800_000_000_000);
    jiff::Timestamp::from_millisecond(NOW.fetch_add(17, Ordering::Relaxed)).expect("a time of this century")
}

/// A server in memory with that clock, and what settles its runs.
async fn ticking_server() -> (Client, Settler) {
    let (sizes, limits, pulse) = (Sizes::default(), Limits::default(), Pulse::default());
    let store = AnyStore::Memory(MemoryStore::new());
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, world(ticking)).expect("an empty store opens");
    let settler = server.settler(Patience::default());
    (serve_it(server, std::future::pending()).await.0, settler)
}

async fn activities(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let answer = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    answer["activities"].as_array().expect("activities").clone()
}

async fn activity(client: &Client, run: &str, kind: &str, id: &str) -> Value {
    let all = activities(client, run, "internal").await;
    let found = all.iter().find(|a| a["activityType"] == kind && a["activityId"] == id);
    found.unwrap_or_else(|| panic!("a {kind} {id} in {all:#?}")).clone()
}

async fn content(client: &Client, run: &str, kind: &str, id: &str) -> Value {
    activity(client, run, kind, id).await["content"].clone()
}

/// These members of a content, `null` for those that it does not have.
fn members(content: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| content[*name].clone()).collect()
}

/// The `receivedAt` of each envelope that an audience sees, by sequence.
async fn times(client: &Client, run: &str, audience: &str) -> std::collections::HashMap<u64, Value> {
    let events = client.events(run, &format!("audience={audience}"), 1000).await;
    events.iter().map(|event| (event["sequence"].as_u64().expect("a sequence"), event["receivedAt"].clone())).collect()
}

// Times.

#[tokio::test]
async fn each_activity_says_when_it_appeared_changed_and_ended_by_the_times_of_envelopes() {
    let (client, _) = ticking_server().await;
    for fact in [
        fact("run.started", json!({})),
        fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": "a"}})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}})),
        fact("text.final", json!({"messageId": "m", "partId": "p", "payload": {"text": "ab"}})),
        fact("tool.result", json!({"toolCallId": "c", "audience": "user", "payload": {"output": 1}})),
        fact("action.required", json!({"actionId": "a", "payload": {"kind": "clarification"}})),
        fact("task.changed", json!({"taskId": "t", "payload": {"status": "running"}})),
        fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "answered"}})),
        fact("task.changed", json!({"taskId": "t", "payload": {"status": "completed"}})),
        fact("task.changed", json!({"taskId": "t", "payload": {"summary": "told later"}})),
        fact("run.finished", json!({})),
    ] {
        client.accept("r", &[fact]).await;
    }
    let at = times(&client, "r", "user").await;
    for (kind, id, opened, updated, ended) in [
        ("run", "r", 1, 11, Some(11)),
        ("message", "m", 2, 4, Some(4)),
        ("tool-call-progress", "c", 3, 5, Some(5)),
        ("action", "a", 6, 8, Some(8)),
        // It was over before it was told more of.
        ("task", "t", 7, 10, Some(9)),
    ] {
        let shown = activity(&client, "r", kind, id).await;
        let expected = json!([at[&opened], at[&updated], ended.map(|ended| &at[&ended])]);
        assert_eq!(members(&shown, &["openedAt", "updatedAt", "endedAt"]), expected, "{kind}");
        assert_eq!((&shown["opened"], &shown["sequence"]), (&json!(opened), &json!(updated)), "{kind}");
    }
}

#[tokio::test]
async fn frames_carry_the_times_and_a_change_says_when_it_ends_or_reopens_its_activity() {
    let (client, _) = ticking_server().await;
    let facts = [
        fact("run.started", json!({})),
        fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": "a"}})),
        fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": "b"}})),
        fact("run.failed", json!({"payload": {"error": {"message": "no"}}})),
        fact("run.started", json!({})),
        fact("run.finished", json!({})),
    ];
    for fact in facts {
        client.accept("r", &[fact]).await;
    }
    let at = times(&client, "r", "user").await;
    let (mut snapshots, mut deltas) = (Vec::new(), Vec::new());
    for frame in client.activities("r", "replay=deltas", None).await.all().await {
        let of = [frame.data["activityType"].clone(), json!(frame.sequence())];
        match frame.kind() {
            "ActivitySnapshot" => snapshots.push(json!([of, members(&frame.data, &["openedAt", "updatedAt", "endedAt"])])),
            "ActivityDelta" => deltas.push(json!([of, members(&frame.data, &["at", "ended"])])),
            _ => {}
        }
    }
    let opened = |kind: &str, n: u64| json!([[kind, n], [at[&n], at[&n], null]]);
    assert_eq!(snapshots, [opened("run", 1), opened("message", 2)]);
    let changed = |kind: &str, n: u64, ended: Option<bool>| json!([[kind, n], [at[&n], ended]]);
    assert_eq!(
        deltas,
        [
            changed("run", 2, None),
            changed("message", 3, None),
            changed("message", 4, Some(true)),
            changed("run", 4, Some(true)),
            changed("run", 5, Some(false)),
            changed("run", 6, Some(true)),
        ]
    );
    // Whoever joins at the end has the same.
    let mut joined = Vec::new();
    for frame in client.activities("r", "", None).await.all().await {
        if frame.kind() == "ActivitySnapshot" {
            joined.push(members(&frame.data, &["activityType", "openedAt", "updatedAt", "endedAt"]));
        }
    }
    assert_eq!(joined, [json!(["run", at[&1], at[&6], at[&6]]), json!(["message", at[&2], at[&4], at[&4]])]);
}

#[tokio::test]
async fn an_audience_is_told_the_times_of_what_it_sees() {
    let (client, _) = ticking_server().await;
    for fact in [
        fact("run.started", json!({})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}})),
        fact("tool.progress", json!({"toolCallId": "c", "payload": {"message": "of no concern to users"}})),
    ] {
        client.accept("r", &[fact]).await;
    }
    let at = times(&client, "r", "internal").await;
    for (audience, updated) in [("user", 2), ("dashboard", 2), ("internal", 3)] {
        let all = activities(&client, "r", audience).await;
        let call = all.iter().find(|a| a["activityType"] == "tool-call-progress").expect("the call");
        assert_eq!(members(call, &["openedAt", "updatedAt", "endedAt"]), json!([at[&2], at[&updated], null]), "{audience}");
    }
}

#[tokio::test]
async fn an_activity_of_a_source_has_times_and_no_end_that_the_server_would_have_to_guess() {
    let (client, _) = ticking_server().await;
    let custom = |payload: Value| {
        let mut payload = payload;
        payload["activityType"] = json!("search");
        fact("tool.progress", json!({"messageId": "x", "audience": "user", "payload": payload}))
    };
    client.accept("r", &[custom(json!({"content": {"status": "running"}}))]).await;
    client.accept("r", &[custom(json!({"patch": [{"op": "replace", "path": "/status", "value": "completed"}]}))]).await;
    client.accept("r", &[fact("run.finished", json!({}))]).await;
    let at = times(&client, "r", "user").await;
    let shown = activity(&client, "r", "search", "x").await;
    assert_eq!(members(&shown, &["openedAt", "updatedAt", "endedAt"]), json!([at[&1], at[&2], null]));
}

#[tokio::test]
async fn what_is_read_at_an_earlier_sequence_has_the_times_of_then() {
    let (client, _) = ticking_server().await;
    for fact in [
        fact("task.changed", json!({"taskId": "t", "payload": {"status": "running"}})),
        fact("task.changed", json!({"taskId": "t", "payload": {"status": "failed"}})),
        fact("task.changed", json!({"taskId": "t", "payload": {"status": "running"}})),
    ] {
        client.accept("r", &[fact]).await;
    }
    let at = times(&client, "r", "user").await;
    for (sequence, ended) in [(1, None), (2, Some(2)), (3, None)] {
        let answer = client.get(&format!("/v1/runs/r/activities?at={sequence}")).await.ok();
        let task = answer["activities"].as_array().expect("activities").iter().find(|a| a["activityType"] == "task");
        let expected = json!([at[&1], at[&sequence], ended.map(|ended: u64| &at[&ended])]);
        assert_eq!(members(task.expect("the task"), &["openedAt", "updatedAt", "endedAt"]), expected, "at {sequence}");
    }
}

// How a run stands.

#[tokio::test]
async fn a_run_says_that_it_is_blocked_or_retrying_and_what_for() {
    let (client, _) = ticking_server().await;
    let run = || async { content(&client, "r", "run", "r").await };
    client.accept("r", &[fact("run.started", json!({}))]).await;
    let status = |payload: Value| fact("run.status", json!({"payload": payload}));
    let told = ["status", "phase", "detail", "message"];
    for (fact, expected) in [
        (
            status(json!({"status": "blocked", "message": "waits for the lock"})),
            json!(["running", "acting", "blocked", "waits for the lock"]),
        ),
        (
            status(json!({"status": "retrying", "message": "attempt 2 of 3"})),
            json!(["running", "acting", "retrying", "attempt 2 of 3"]),
        ),
        (status(json!({"status": "warming up"})), json!(["running", "acting", "warming up", null])),
        // A phase is a phase, and says that the rest is past.
        (status(json!({"status": "waiting", "message": "for Bo"})), json!(["waiting", "waiting", null, "for Bo"])),
        (status(json!({"status": "routing"})), json!(["running", "routing", null, null])),
        (status(json!({"status": "blocked", "message": "again"})), json!(["running", "acting", "blocked", "again"])),
        (
            fact("text.delta", json!({"messageId": "m", "payload": {"text": "it goes on"}})),
            json!(["running", "producing", null, "again"]),
        ),
        (status(json!({"status": "retrying"})), json!(["running", "acting", "retrying", null])),
        (status(json!({"status": "running", "message": "the last word"})), json!(["running", "acting", null, "the last word"])),
        (status(json!({"status": "blocked", "message": "to the end"})), json!(["running", "acting", "blocked", "to the end"])),
        (fact("run.finished", json!({})), json!(["completed", "completed", null, "to the end"])),
        (fact("run.started", json!({})), json!(["accepted", "accepted", null, null])),
    ] {
        client.accept("r", std::slice::from_ref(&fact)).await;
        assert_eq!(members(&run().await, &told), expected, "{fact}");
    }
}

#[tokio::test]
async fn what_a_teammate_says_does_not_lift_that_its_run_is_blocked() {
    let (client, _) = ticking_server().await;
    client
        .accept(
            "r",
            &[
                fact("run.started", json!({"agentId": "lead"})),
                fact("run.status", json!({"payload": {"status": "blocked"}})),
                fact("text.delta", json!({"messageId": "m", "agentId": "mate", "payload": {"text": "hm"}})),
            ],
        )
        .await;
    assert_eq!(content(&client, "r", "run", "r").await["detail"], "blocked");
    client.accept("r", &[fact("tool.started", json!({"toolCallId": "c", "agentId": "lead"}))]).await;
    assert_eq!(content(&client, "r", "run", "r").await["detail"], Value::Null);
}

#[tokio::test]
async fn a_notice_keeps_how_much_it_matters() {
    let (client, _) = ticking_server().await;
    let facts = [
        fact("run.status", json!({"payload": {"message": "disk is nearly full", "severity": "warning", "code": "disk"}})),
        fact("tool.progress", json!({"scope": "turn", "audience": "user", "payload": {"message": "slow", "severity": "info"}})),
    ];
    client.accept("r", &facts).await;
    assert_eq!(
        content(&client, "r", "run", "r").await["notices"],
        json!([
            {"sequence": 1, "message": "disk is nearly full", "severity": "warning", "code": "disk"},
            {"sequence": 2, "message": "slow", "severity": "info"},
        ])
    );
}

/// Whether a fact of this class says that the run is at work: a start, text, a tool, an action.
fn is_work(class: &str) -> bool {
    let families = ["run.started", "text.", "reasoning.", "plan.", "tool.", "action."];
    families.iter().any(|family| class.starts_with(family))
}

/// A fact of this class that names whatever one could be about.
fn about_everything(class: &str) -> Value {
    fact(
        class,
        json!({
            "sessionId": "s", "taskId": "t", "agentId": "g", "artifactId": "x", "evidenceId": "e", "messageId": "m",
            "toolCallId": "c", "actionId": "a",
            "payload": {"teamId": "d", "status": "running", "messages": [], "state": {}, "patch": [], "text": "x"},
        }),
    )
}

#[tokio::test]
async fn a_run_that_was_only_described_is_unknown_and_time_never_settles_it() {
    let (client, mut settler) = ticking_server().await;
    let ends = ["run.finished", "run.failed"];
    let described: Vec<_> = EventType::NAMES.iter().filter(|class| !is_work(class) && !ends.contains(class)).collect();
    assert!(described.len() > 30, "{described:?}");
    for class in &described {
        client.accept(class, &[about_everything(class)]).await;
    }
    client.accept("all", &described.iter().map(|class| about_everything(class)).collect::<Vec<_>>()).await;
    let begun = Instant::now();
    settler.round(begun).await.unwrap();
    for hours in [1, 100] {
        settler.round(begun + Duration::from_hours(hours)).await.unwrap();
    }
    for run in described.iter().map(|class| **class).chain(["all"]) {
        for audience in AUDIENCES {
            let told = client.get(&format!("/v1/runs/{run}?audience={audience}")).await.ok();
            assert_eq!(members(&told, &["status", "stale", "synthetic"]), json!(["unknown", null, null]), "{run} {audience}");
        }
        let shown = content(&client, run, "run", run).await;
        assert_eq!(members(&shown, &["status", "stale"]), json!(["unknown", null]), "{run}");
    }
}

#[tokio::test]
async fn the_first_sign_of_work_makes_a_described_run_running_and_from_then_on_it_ages() {
    let (client, mut settler) = ticking_server().await;
    let works: Vec<_> = EventType::NAMES.iter().filter(|class| is_work(class)).collect();
    assert!(works.len() > 10, "{works:?}");
    for class in &works {
        client.accept(class, &[about_everything("team.changed"), about_everything(class)]).await;
        let status = content(&client, class, "run", class).await["status"].clone();
        let expected = match **class {
            "run.started" => "accepted",
            "action.required" => "waiting",
            _ => "running",
        };
        assert_eq!(status, expected, "{class}");
    }
    let begun = Instant::now();
    settler.round(begun).await.unwrap();
    settler.round(begun + Duration::from_hours(1)).await.unwrap();
    for class in &works {
        let expected = if **class == "action.required" { "waiting" } else { "failed" };
        assert_eq!(content(&client, class, "run", class).await["status"], expected, "{class}");
    }
}

#[tokio::test]
async fn a_described_run_that_was_settled_by_hand_is_unknown_again_when_it_is_described_again() {
    let (client, mut settler) = ticking_server().await;
    let described = [fact("team.changed", json!({"payload": {"teamId": "d"}}))];
    let said = [fact("text.delta", json!({"messageId": "m", "payload": {"text": "x"}}))];
    for (run, first, expected) in [("described", &described, "unknown"), ("worked", &said, "running")] {
        client.accept(run, first).await;
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        assert_eq!(content(&client, run, "run", run).await["status"], "failed", "{run}");
        client.accept(run, &described).await;
        assert_eq!(content(&client, run, "run", run).await["status"], expected, "{run}");
    }
    let begun = Instant::now();
    settler.round(begun).await.unwrap();
    settler.round(begun + Duration::from_hours(1)).await.unwrap();
    assert_eq!(content(&client, "described", "run", "described").await["status"], "unknown");
    assert_eq!(content(&client, "worked", "run", "worked").await["status"], "failed");
}

#[tokio::test]
async fn a_runtime_that_says_that_it_accepted_or_waits_is_taken_at_its_word() {
    let (client, _) = ticking_server().await;
    for (phase, status) in [(Phase::Accepted, "accepted"), (Phase::Waiting, "waiting"), (Phase::Routing, "unknown")] {
        client.accept(phase.as_str(), &[fact("run.status", json!({"phase": phase}))]).await;
        let run = content(&client, phase.as_str(), "run", phase.as_str()).await;
        assert_eq!(members(&run, &["status", "phase"]), json!([status, phase]));
    }
}

// What is open when its run ends.

/// What may be open when a run ends, each in a status that says that it is, and those that have ended.
fn crowd() -> Vec<Value> {
    let agent = |id: &str, status: &str| fact("agent.spawned", json!({"agentId": id, "payload": {"status": status}}));
    let task = |id: &str, status: &str| fact("task.changed", json!({"taskId": id, "payload": {"status": status}}));
    let handoff = |id: &str, status: &str| fact("agent.handoff", json!({"payload": {"handoffId": id, "status": status}}));
    let review = |id: &str, status: &str| fact("review.requested", json!({"payload": {"reviewId": id, "status": status}}));
    let artifact = |id: &str, status: &str| fact("artifact.changed", json!({"artifactId": id, "payload": {"status": status}}));
    vec![
        fact("run.started", json!({"agentId": "lead"})),
        agent("working", "running"),
        agent("idle", "idle"),
        agent("done", "completed"),
        task("working", "running"),
        task("blocked", "blocked"),
        task("done", "done"),
        handoff("working", "running"),
        handoff("asked", "handoff_requested"),
        handoff("done", "returned"),
        review("working", "running"),
        review("asked", "requested"),
        fact("review.completed", json!({"payload": {"reviewId": "done", "verdict": "passed"}})),
        artifact("working", "streaming"),
        artifact("written", "running"),
        artifact("done", "updated"),
        fact("artifact.export.started", json!({"artifactId": "exporting"})),
    ]
}

const AFTER_THE_END: [(&str, &str, &str, bool); 16] = [
    ("agent", "working", "unknown", true),
    ("agent", "idle", "idle", true),
    ("agent", "done", "completed", false),
    ("task", "working", "unknown", true),
    ("task", "blocked", "blocked", true),
    ("task", "done", "done", false),
    ("handoff", "working", "unknown", true),
    ("handoff", "asked", "handoff_requested", true),
    ("handoff", "done", "returned", false),
    ("review", "working", "unknown", true),
    ("review", "asked", "requested", true),
    ("review", "done", "passed", false),
    ("artifact", "working", "unknown", true),
    ("artifact", "written", "unknown", true),
    ("artifact", "done", "updated", false),
    ("artifact", "exporting", "exporting", true),
];

#[tokio::test]
async fn what_is_open_when_its_run_ends_is_stale_and_nothing_of_it_stays_running() {
    let (client, mut settler) = ticking_server().await;
    let ends = [
        ("finished", vec![fact("run.finished", json!({}))]),
        ("failed", vec![fact("run.failed", json!({"payload": {"error": {"message": "no"}}}))]),
        ("cancelled", vec![fact("run.finished", json!({"payload": {"status": "cancelled"}}))]),
        // Another attempt begins, of which the one before knows nothing.
        ("broke-off", vec![fact("run.started", json!({}))]),
        ("settled", Vec::new()),
    ];
    for (run, _) in &ends {
        client.accept(run, &crowd()).await;
        for (kind, id, _, _) in AFTER_THE_END {
            assert_eq!(content(&client, run, kind, id).await["stale"], Value::Null, "{run}: {kind} {id} while it goes on");
        }
    }
    for (run, end) in &ends {
        if end.is_empty() {
            let begun = Instant::now();
            settler.round(begun).await.unwrap();
            settler.round(begun + Duration::from_hours(1)).await.unwrap();
        } else {
            client.accept(run, end).await;
        }
        for audience in AUDIENCES {
            let all = activities(&client, run, audience).await;
            for (kind, id, status, stale) in AFTER_THE_END {
                let shown = all.iter().find(|a| a["activityType"] == kind && a["activityId"] == id).expect("it was told of");
                let expected = json!([status, stale.then_some(true)]);
                assert_eq!(members(&shown["content"], &["status", "stale"]), expected, "{run} {audience}: {kind} {id}");
                assert!(!stale || shown["endedAt"].is_null(), "{run}: nobody knows that {kind} {id} has ended");
            }
        }
    }
}

#[tokio::test]
async fn a_later_fact_about_what_went_stale_lifts_that() {
    let (client, _) = ticking_server().await;
    client.accept("r", &crowd()).await;
    client.accept("r", &[fact("run.finished", json!({}))]).await;
    for (later, kind, status) in [
        (fact("agent.changed", json!({"agentId": "working", "payload": {"status": "running"}})), "agent", "running"),
        (fact("task.changed", json!({"taskId": "working", "payload": {"status": "done"}})), "task", "done"),
        (fact("agent.handoff", json!({"payload": {"handoffId": "working", "status": "active"}})), "handoff", "active"),
        (fact("review.completed", json!({"payload": {"reviewId": "working", "verdict": "passed"}})), "review", "passed"),
        (fact("artifact.updated", json!({"artifactId": "working"})), "artifact", "updated"),
    ] {
        client.accept("r", &[later]).await;
        assert_eq!(members(&content(&client, "r", kind, "working").await, &["status", "stale"]), json!([status, null]), "{kind}");
    }
    // It says that it is there, and not how it stands.
    client.accept("r", &[fact("agent.changed", json!({"agentId": "idle", "payload": {"summary": "here"}}))]).await;
    assert_eq!(members(&content(&client, "r", "agent", "idle").await, &["status", "stale"]), json!(["idle", null]));
    assert_eq!(content(&client, "r", "task", "blocked").await["stale"], true, "one fact is about one of them");
    client.accept("r", &[fact("run.started", json!({})), fact("run.finished", json!({}))]).await;
    let again = content(&client, "r", "agent", "working").await;
    assert_eq!(members(&again, &["status", "stale"]), json!(["unknown", true]), "the next end comes to the same");
}

#[tokio::test]
async fn what_belongs_to_a_session_and_to_no_run_does_not_end_with_one() {
    let (client, _) = ticking_server().await;
    let facts = json!([fact("task.changed", json!({"taskId": "t", "payload": {"status": "running"}}))]);
    client.post("/v1/sessions/s/facts", &[("content-type", "application/json")], facts.to_string()).await.ok();
    client.accept("r", &[fact("run.started", json!({"sessionId": "s"})), fact("run.finished", json!({}))]).await;
    let session = client.get("/v1/sessions/s").await.ok();
    assert_eq!(members(&session["tasks"][0]["content"], &["status", "stale"]), json!(["running", null]), "{session:#}");
}

// Topologies, ownership and what else the seed asks for.

#[tokio::test]
async fn each_of_the_eight_topologies_stays_with_what_it_organises() {
    let (client, _) = ticking_server().await;
    let topologies = [
        "solo_run",
        "coordinator_team",
        "parallel_workers",
        "specialist_handoff",
        "review_team",
        "human_agent_board",
        "background_teammate",
        "remote_teammate",
    ];
    for topology in topologies {
        // As in the minimal example of seed 003, at the top level of the envelope; and within the payload.
        let at_top = |class: &str, members: Value| {
            let mut fact = fact(class, members);
            fact["topology"] = json!(topology);
            fact
        };
        client
            .accept(
                topology,
                &[
                    at_top("run.started", json!({})),
                    at_top("agent.spawned", json!({"agentId": "g", "payload": {"agentName": "researcher"}})),
                    fact("task.changed", json!({"taskId": "t", "payload": {"topology": topology}})),
                    at_top("agent.handoff", json!({"payload": {"handoffId": "h"}})),
                    at_top("review.requested", json!({"payload": {"reviewId": "v"}})),
                    at_top("team.changed", json!({"payload": {"teamId": "d"}})),
                    // What says nothing of it changes nothing of it.
                    fact("agent.changed", json!({"agentId": "g"})),
                    fact("task.changed", json!({"taskId": "t"})),
                ],
            )
            .await;
        for (kind, id) in [("run", topology), ("agent", "g"), ("task", "t"), ("handoff", "h"), ("review", "v"), ("team", "d")] {
            assert_eq!(content(&client, topology, kind, id).await["topology"], topology, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_teammate_shows_what_its_topology_asks_for() {
    let (client, _) = ticking_server().await;
    let members = json!({
        "agentName": "crawler", "teamName": "d", "role": "r", "schedule": "daily", "wakeReason": "cron", "lastRunRef": "run-1",
        "currentRunRef": "run-2", "capabilityRef": "card", "remoteTaskId": "rt", "inputNeeds": ["url"], "authNeeds": ["oauth"],
        "blocker": "disk", "progress": 0.5, "dependencies": ["t1"], "artifactRefs": ["a"], "evidenceRefs": ["e"],
        "permissionMode": "plan", "sandbox": "read-only", "budget": {"usd": 1}, "toolActivity": ["read"], "pendingInput": 1,
    });
    client
        .accept(
            "r",
            &[fact("agent.spawned", json!({"agentId": "g", "refs": [{"rel": "card", "href": "/c"}], "payload": members}))],
        )
        .await;
    let card = content(&client, "r", "agent", "g").await;
    for (member, value) in members.as_object().expect("members") {
        assert_eq!(card[member], *value, "{member}");
    }
    assert_eq!(card["refs"], json!([{"rel": "card", "href": "/c"}]));
}

#[tokio::test]
async fn a_teammate_s_context_and_compaction_are_its_own_and_not_the_run_s() {
    let (client, _) = ticking_server().await;
    let context = |agent: Value, used: u64| {
        let mut fact = fact("context.changed", json!({"payload": {"budget": {"used": used}}}));
        fact["agentId"] = agent;
        fact
    };
    client
        .accept(
            "r",
            &[
                fact("run.started", json!({"agentId": "lead"})),
                context(Value::Null, 1),
                context(json!("lead"), 2),
                context(json!("mate"), 3),
                fact("context.compaction.started", json!({"agentId": "lead"})),
                fact("context.compaction.started", json!({"agentId": "mate"})),
                fact("context.compaction.completed", json!({"agentId": "mate"})),
            ],
        )
        .await;
    assert_eq!(content(&client, "r", "context", "context").await["budget"], json!({"used": 2}));
    let mate = activity(&client, "r", "context", "mate").await;
    assert_eq!((&mate["content"]["budget"], &mate["agentId"]), (&json!({"used": 3}), &json!("mate")));
    assert_eq!(content(&client, "r", "compaction", "compaction").await["status"], "running");
    assert_eq!(content(&client, "r", "compaction", "mate").await["status"], "completed");
}

#[tokio::test]
async fn a_hidden_teammate_s_compaction_is_no_part_of_the_run_s_own() {
    let (client, _) = ticking_server().await;
    let hidden = |class: &str| fact(class, json!({"agentId": "mate", "audience": "internal"}));
    client
        .accept(
            "r",
            &[
                fact("run.started", json!({"agentId": "lead"})),
                fact("context.compaction.started", json!({})),
                hidden("context.compaction.started"),
                hidden("context.compaction.completed"),
            ],
        )
        .await;
    for (audience, expected) in
        [("user", json!([["compaction", "running"]])), ("internal", json!([["compaction", "running"], ["mate", "completed"]]))]
    {
        let all = activities(&client, "r", audience).await;
        let compactions = all.iter().filter(|a| a["activityType"] == "compaction");
        let shown: Vec<_> = compactions.map(|a| json!([a["activityId"], a["content"]["status"]])).collect();
        assert_eq!(json!(shown), expected, "{audience}");
    }
}

#[tokio::test]
async fn a_queue_is_kept_for_a_run_without_a_session_and_says_what_steers_it() {
    let (client, _) = ticking_server().await;
    let queue = |members: Value| fact("queue.changed", members);
    let steer = json!({"state": "pending", "turnId": "t2"});
    client.accept("r", &[queue(json!({"payload": {"queuedTurnCount": 2, "steer": steer, "steerState": "pending"}}))]).await;
    let shown = content(&client, "r", "queue", "r").await;
    assert_eq!(members(&shown, &["queuedTurnCount", "steer", "steerState"]), json!([2, steer, "pending"]));
    client.accept("r", &[queue(json!({"payload": {"queuedTurnCount": 1, "steer": null}}))]).await;
    let shown = content(&client, "r", "queue", "r").await;
    assert_eq!(members(&shown, &["queuedTurnCount", "steer", "steerState"]), json!([1, null, "pending"]));
    // Whose session is known has its queue there, whichever fact said so.
    client
        .accept("of-s", &[fact("run.started", json!({"sessionId": "s"})), queue(json!({"payload": {"queuedTurnCount": 3}}))])
        .await;
    assert_eq!(content(&client, "of-s", "queue", "s").await["queuedTurnCount"], 3);
}

#[tokio::test]
async fn a_board_keeps_comments_claims_and_refs_of_its_tasks() {
    let (client, _) = ticking_server().await;
    let task = |members: Value| {
        let mut fact = fact("task.changed", members);
        fact["taskId"] = json!("t");
        fact
    };
    client
        .accept(
            "r",
            &[
                task(json!({"payload": {"runtimeEntity": "work_item", "status": "claimed", "claimedBy": "bo", "comments": [{"by": "bo", "text": "mine"}]}})),
                task(json!({"payload": {"status": "commented", "comment": {"by": "al", "text": "mind the lock"}}, "refs": {"spec": "doc-1"}})),
                task(json!({"payload": {"comment": "thanks"}})),
            ],
        )
        .await;
    let shown = content(&client, "r", "task", "t").await;
    assert_eq!(
        members(&shown, &["status", "claimedBy", "refs", "comments"]),
        json!(["commented", "bo", {"spec": "doc-1"}, [
            {"by": "bo", "text": "mine"},
            {"sequence": 2, "by": "al", "text": "mind the lock"},
            {"sequence": 3, "text": "thanks"},
        ]])
    );
    let many: Vec<_> = (0..60).map(|n| task(json!({"payload": {"comment": n.to_string()}}))).collect();
    client.accept("r", &many).await;
    let comments = content(&client, "r", "task", "t").await["comments"].as_array().expect("comments").clone();
    assert_eq!((comments.len(), &comments[49]["text"]), (50, &json!("59")), "the newest");
}

#[tokio::test]
async fn teams_artifacts_evidence_and_hand_offs_keep_what_they_refer_to() {
    let (client, _) = ticking_server().await;
    let refs = json!([{"rel": "transcript", "id": "x"}]);
    for (class, kind, id, of) in [
        ("team.changed", "team", "d", json!({"payload": {"teamId": "d"}})),
        ("artifact.updated", "artifact", "a", json!({"artifactId": "a"})),
        ("evidence.changed", "evidence", "e", json!({"evidenceId": "e"})),
        ("agent.handoff", "handoff", "h", json!({"payload": {"handoffId": "h"}})),
        ("worker.notification", "worker-notification", "n", json!({"payload": {"workerNotificationId": "n"}})),
    ] {
        let mut fact = fact(class, of);
        fact["refs"] = refs.clone();
        client.accept("r", &[fact]).await;
        assert_eq!(content(&client, "r", kind, id).await["refs"], refs, "{kind}");
    }
}

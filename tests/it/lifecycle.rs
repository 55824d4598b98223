//! Ends, staleness and unknown states of runs, agents, tasks, reviews and artifacts.

use crate::harness::{AUDIENCES, Client, environment, fact, facts_in, serve_until};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::model::{EventType, Phase};
use proscenium::serve::maintenance::settle::{Settler, StalenessLimits};
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A clock that moves by more than a millisecond per reading: no two requests have the same time.
pub fn ticking() -> jiff::Timestamp {
    static NOW: AtomicI64 = AtomicI64::new(1_800_000_000_000);
    jiff::Timestamp::from_millisecond(NOW.fetch_add(17, Ordering::Relaxed)).expect("the time is in range")
}

/// Starts a server in memory with that clock; returns its client and its settler.
async fn start_ticking_server() -> (Client, Settler) {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let store = Storage::memory();
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, environment(ticking)).expect("an empty store opens");
    let settler = server.settler(StalenessLimits::default());
    (serve_until(server, std::future::pending()).await.0, settler)
}

async fn read_activities(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let answer = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    answer["activities"].as_array().expect("a page has activities").clone()
}

async fn read_activity(client: &Client, run: &str, kind: &str, id: &str) -> Value {
    let all = read_activities(client, run, "internal").await;
    let found = all.iter().find(|a| a["activityType"] == kind && a["activityId"] == id);
    found.unwrap_or_else(|| panic!("no {kind} {id} in {all:#?}")).clone()
}

async fn read_content(client: &Client, run: &str, kind: &str, id: &str) -> Value {
    read_activity(client, run, kind, id).await["content"].clone()
}

/// Returns these members of a content, `null` for missing ones.
fn pick_members(content: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| content[*name].clone()).collect()
}

/// Returns the `receivedAt` of each envelope that an audience sees, by sequence.
async fn read_times(client: &Client, run: &str, audience: &str) -> std::collections::HashMap<u64, Value> {
    let events = client.read_events(run, &format!("audience={audience}"), 1000).await;
    events
        .iter()
        .map(|event| (event["sequence"].as_u64().expect("an event has a sequence"), event["receivedAt"].clone()))
        .collect()
}

// Times.

#[tokio::test]
async fn activities_have_the_envelope_times_of_their_start_last_change_and_end() {
    let (client, _) = start_ticking_server().await;
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
        fact("task.changed", json!({"taskId": "t", "payload": {"summary": "added later"}})),
        fact("run.finished", json!({})),
    ] {
        client.append("r", &[fact]).await;
    }
    let at = read_times(&client, "r", "user").await;
    for (kind, id, opened, updated, ended) in [
        ("run", "r", 1, 11, Some(11)),
        ("message", "m", 2, 4, Some(4)),
        ("tool-call-progress", "c", 3, 5, Some(5)),
        ("action", "a", 6, 8, Some(8)),
        // The call had ended before this fact.
        ("task", "t", 7, 10, Some(9)),
    ] {
        let shown = read_activity(&client, "r", kind, id).await;
        let expected = json!([at[&opened], at[&updated], ended.map(|ended| &at[&ended])]);
        assert_eq!(pick_members(&shown, &["openedAt", "updatedAt", "endedAt"]), expected, "{kind}");
        assert_eq!((&shown["opened"], &shown["sequence"]), (&json!(opened), &json!(updated)), "{kind}");
    }
}

#[tokio::test]
async fn frames_carry_times_and_a_delta_marks_an_end_or_a_reopening() {
    let (client, _) = start_ticking_server().await;
    let facts = [
        fact("run.started", json!({})),
        fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": "a"}})),
        fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": "b"}})),
        fact("run.failed", json!({"payload": {"error": {"message": "no"}}})),
        fact("run.started", json!({})),
        fact("run.finished", json!({})),
    ];
    for fact in facts {
        client.append("r", &[fact]).await;
    }
    let at = read_times(&client, "r", "user").await;
    let (mut snapshots, mut deltas) = (Vec::new(), Vec::new());
    for frame in client.open_activities("r", "replay=deltas", None).await.read_all().await {
        let of = [frame.data["activityType"].clone(), json!(frame.sequence())];
        match frame.kind() {
            "ActivitySnapshot" => snapshots.push(json!([of, pick_members(&frame.data, &["openedAt", "updatedAt", "endedAt"])])),
            "ActivityDelta" => deltas.push(json!([of, pick_members(&frame.data, &["at", "ended"])])),
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
    // A reader that joins at the end gets the same times.
    let mut joined = Vec::new();
    for frame in client.open_activities("r", "", None).await.read_all().await {
        if frame.kind() == "ActivitySnapshot" {
            joined.push(pick_members(&frame.data, &["activityType", "openedAt", "updatedAt", "endedAt"]));
        }
    }
    assert_eq!(joined, [json!(["run", at[&1], at[&6], at[&6]]), json!(["message", at[&2], at[&4], at[&4]])]);
}

#[tokio::test]
async fn an_audience_gets_the_times_of_the_envelopes_that_it_sees() {
    let (client, _) = start_ticking_server().await;
    for fact in [
        fact("run.started", json!({})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}})),
        fact("tool.progress", json!({"toolCallId": "c", "payload": {"message": "of no concern to users"}})),
    ] {
        client.append("r", &[fact]).await;
    }
    let at = read_times(&client, "r", "internal").await;
    for (audience, updated) in [("user", 2), ("dashboard", 2), ("internal", 3)] {
        let all = read_activities(&client, "r", audience).await;
        let call = all.iter().find(|a| a["activityType"] == "tool-call-progress").expect("the call is visible");
        assert_eq!(pick_members(call, &["openedAt", "updatedAt", "endedAt"]), json!([at[&2], at[&updated], null]), "{audience}");
    }
}

#[tokio::test]
async fn a_source_s_own_activity_has_times_and_no_guessed_end() {
    let (client, _) = start_ticking_server().await;
    let custom = |payload: Value| {
        let mut payload = payload;
        payload["activityType"] = json!("search");
        fact("tool.progress", json!({"messageId": "x", "audience": "user", "payload": payload}))
    };
    client.append("r", &[custom(json!({"content": {"status": "running"}}))]).await;
    client.append("r", &[custom(json!({"patch": [{"op": "replace", "path": "/status", "value": "completed"}]}))]).await;
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let at = read_times(&client, "r", "user").await;
    let shown = read_activity(&client, "r", "search", "x").await;
    assert_eq!(pick_members(&shown, &["openedAt", "updatedAt", "endedAt"]), json!([at[&1], at[&2], null]));
}

#[tokio::test]
async fn a_page_at_an_earlier_sequence_has_the_times_of_then() {
    let (client, _) = start_ticking_server().await;
    for fact in [
        fact("task.changed", json!({"taskId": "t", "payload": {"status": "running"}})),
        fact("task.changed", json!({"taskId": "t", "payload": {"status": "failed"}})),
        fact("task.changed", json!({"taskId": "t", "payload": {"status": "running"}})),
    ] {
        client.append("r", &[fact]).await;
    }
    let at = read_times(&client, "r", "user").await;
    for (sequence, ended) in [(1, None), (2, Some(2)), (3, None)] {
        let answer = client.get(&format!("/v1/runs/r/activities?at={sequence}")).await.ok();
        let task = answer["activities"].as_array().expect("a page has activities").iter().find(|a| a["activityType"] == "task");
        let expected = json!([at[&1], at[&sequence], ended.map(|ended: u64| &at[&ended])]);
        assert_eq!(
            pick_members(task.expect("the task is visible"), &["openedAt", "updatedAt", "endedAt"]),
            expected,
            "at {sequence}"
        );
    }
}

// Status of runs.

#[tokio::test]
async fn a_run_shows_that_it_is_blocked_or_retrying_and_why() {
    let (client, _) = start_ticking_server().await;
    let run = || async { read_content(&client, "r", "run", "r").await };
    client.append("r", &[fact("run.started", json!({}))]).await;
    let status = |payload: Value| fact("run.status", json!({"payload": payload}));
    let names = ["status", "phase", "detail", "message"];
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
        // A phase replaces the detail and the message.
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
        client.append("r", std::slice::from_ref(&fact)).await;
        assert_eq!(pick_members(&run().await, &names), expected, "{fact}");
    }
}

#[tokio::test]
async fn a_teammate_s_activity_does_not_clear_its_run_s_blocked_state() {
    let (client, _) = start_ticking_server().await;
    client
        .append(
            "r",
            &[
                fact("run.started", json!({"agentId": "lead"})),
                fact("run.status", json!({"payload": {"status": "blocked"}})),
                fact("text.delta", json!({"messageId": "m", "agentId": "mate", "payload": {"text": "hm"}})),
            ],
        )
        .await;
    assert_eq!(read_content(&client, "r", "run", "r").await["detail"], "blocked");
    client.append("r", &[fact("tool.started", json!({"toolCallId": "c", "agentId": "lead"}))]).await;
    assert_eq!(read_content(&client, "r", "run", "r").await["detail"], Value::Null);
}

#[tokio::test]
async fn a_notice_keeps_its_severity() {
    let (client, _) = start_ticking_server().await;
    let facts = [
        fact("run.status", json!({"payload": {"message": "disk is nearly full", "severity": "warning", "code": "disk"}})),
        fact("tool.progress", json!({"scope": "turn", "audience": "user", "payload": {"message": "slow", "severity": "info"}})),
    ];
    client.append("r", &facts).await;
    assert_eq!(
        read_content(&client, "r", "run", "r").await["notices"],
        json!([
            {"sequence": 1, "message": "disk is nearly full", "severity": "warning", "code": "disk"},
            {"sequence": 2, "message": "slow", "severity": "info"},
        ])
    );
}

/// Returns whether a fact of this type shows that the run is active: a start, text, a tool, an action.
fn is_work(class: &str) -> bool {
    let families = ["run.started", "text.", "reasoning.", "plan.", "tool.", "action."];
    // The server's own reminders are no work of the runtime.
    families.iter().any(|family| class.starts_with(family)) && !["action.reminded", "action.escalated"].contains(&class)
}

/// Builds a fact of this type with an id of every kind.
fn fact_with_every_id(class: &str) -> Value {
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
async fn a_run_with_only_descriptive_facts_is_unknown_and_never_settled_by_time() {
    let (client, mut settler) = start_ticking_server().await;
    let ends = ["run.finished", "run.failed"];
    let described: Vec<_> = EventType::NAMES.iter().filter(|class| !is_work(class) && !ends.contains(class)).collect();
    assert!(described.len() > 30, "{described:?}");
    for class in &described {
        client.append(class, &[fact_with_every_id(class)]).await;
    }
    client.append("all", &described.iter().map(|class| fact_with_every_id(class)).collect::<Vec<_>>()).await;
    let begun = Instant::now();
    settler.run_once(begun).await.unwrap();
    for hours in [1, 100] {
        settler.run_once(begun + Duration::from_hours(hours)).await.unwrap();
    }
    for run in described.iter().map(|class| **class).chain(["all"]) {
        for audience in AUDIENCES {
            let names = client.get(&format!("/v1/runs/{run}?audience={audience}")).await.ok();
            assert_eq!(
                pick_members(&names, &["status", "stale", "synthetic"]),
                json!(["unknown", null, null]),
                "{run} {audience}"
            );
        }
        let shown = read_content(&client, run, "run", run).await;
        assert_eq!(pick_members(&shown, &["status", "stale"]), json!(["unknown", null]), "{run}");
    }
}

#[tokio::test]
async fn the_first_active_fact_makes_an_unknown_run_running_and_subject_to_staleness() {
    let (client, mut settler) = start_ticking_server().await;
    let active_types: Vec<_> = EventType::NAMES.iter().filter(|class| is_work(class)).collect();
    assert!(active_types.len() > 10, "{active_types:?}");
    for class in &active_types {
        client.append(class, &[fact_with_every_id("team.changed"), fact_with_every_id(class)]).await;
        let status = read_content(&client, class, "run", class).await["status"].clone();
        let expected = match **class {
            "run.started" => "accepted",
            "action.required" => "waiting",
            _ => "running",
        };
        assert_eq!(status, expected, "{class}");
    }
    let begun = Instant::now();
    settler.run_once(begun).await.unwrap();
    settler.run_once(begun + Duration::from_hours(1)).await.unwrap();
    for class in &active_types {
        let expected = if **class == "action.required" { "waiting" } else { "failed" };
        assert_eq!(read_content(&client, class, "run", class).await["status"], expected, "{class}");
    }
}

#[tokio::test]
async fn an_unknown_run_settled_by_request_is_unknown_again_after_a_descriptive_fact() {
    let (client, mut settler) = start_ticking_server().await;
    let described = [fact("team.changed", json!({"payload": {"teamId": "d"}}))];
    let active = [fact("text.delta", json!({"messageId": "m", "payload": {"text": "x"}}))];
    for (run, first, expected) in [("described", &described, "unknown"), ("worked", &active, "running")] {
        client.append(run, first).await;
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        assert_eq!(read_content(&client, run, "run", run).await["status"], "failed", "{run}");
        client.append(run, &described).await;
        assert_eq!(read_content(&client, run, "run", run).await["status"], expected, "{run}");
    }
    let begun = Instant::now();
    settler.run_once(begun).await.unwrap();
    settler.run_once(begun + Duration::from_hours(1)).await.unwrap();
    assert_eq!(read_content(&client, "described", "run", "described").await["status"], "unknown");
    assert_eq!(read_content(&client, "worked", "run", "worked").await["status"], "failed");
}

#[tokio::test]
async fn a_status_with_phase_accepted_or_waiting_makes_a_run_known() {
    let (client, _) = start_ticking_server().await;
    for (phase, status) in [(Phase::Accepted, "accepted"), (Phase::Waiting, "waiting"), (Phase::Routing, "unknown")] {
        client.append(phase.as_str(), &[fact("run.status", json!({"phase": phase}))]).await;
        let run = read_content(&client, phase.as_str(), "run", phase.as_str()).await;
        assert_eq!(pick_members(&run, &["status", "phase"]), json!([status, phase]));
    }
}

// Open activities at the end of a run.

/// Builds every kind of activity, open in each possible status, and ended ones.
fn every_open_activity() -> Vec<Value> {
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
async fn activities_open_at_the_end_of_a_run_are_stale_and_none_stays_running() {
    let (client, mut settler) = start_ticking_server().await;
    let ends = [
        ("finished", vec![fact("run.finished", json!({}))]),
        ("failed", vec![fact("run.failed", json!({"payload": {"error": {"message": "no"}}}))]),
        ("cancelled", vec![fact("run.finished", json!({"payload": {"status": "cancelled"}}))]),
        // A new attempt starts, which ends the one before.
        ("broke-off", vec![fact("run.started", json!({}))]),
        ("settled", Vec::new()),
    ];
    for (run, _) in &ends {
        client.append(run, &every_open_activity()).await;
        for (kind, id, _, _) in AFTER_THE_END {
            assert_eq!(read_content(&client, run, kind, id).await["stale"], Value::Null, "{run}: {kind} {id} before the end");
        }
    }
    for (run, end) in &ends {
        if end.is_empty() {
            let begun = Instant::now();
            settler.run_once(begun).await.unwrap();
            settler.run_once(begun + Duration::from_hours(1)).await.unwrap();
        } else {
            client.append(run, end).await;
        }
        for audience in AUDIENCES {
            let all = read_activities(&client, run, audience).await;
            for (kind, id, status, stale) in AFTER_THE_END {
                let shown = all.iter().find(|a| a["activityType"] == kind && a["activityId"] == id).expect("the activity exists");
                let expected = json!([status, stale.then_some(true)]);
                assert_eq!(pick_members(&shown["content"], &["status", "stale"]), expected, "{run} {audience}: {kind} {id}");
                assert!(!stale || shown["endedAt"].is_null(), "{run}: {kind} {id} has no known end");
            }
        }
    }
}

#[tokio::test]
async fn a_later_fact_clears_an_activity_s_staleness() {
    let (client, _) = start_ticking_server().await;
    client.append("r", &every_open_activity()).await;
    client.append("r", &[fact("run.finished", json!({}))]).await;
    for (later, kind, status) in [
        (fact("agent.changed", json!({"agentId": "working", "payload": {"status": "running"}})), "agent", "running"),
        (fact("task.changed", json!({"taskId": "working", "payload": {"status": "done"}})), "task", "done"),
        (fact("agent.handoff", json!({"payload": {"handoffId": "working", "status": "active"}})), "handoff", "active"),
        (fact("review.completed", json!({"payload": {"reviewId": "working", "verdict": "passed"}})), "review", "passed"),
        (fact("artifact.updated", json!({"artifactId": "working"})), "artifact", "updated"),
    ] {
        client.append("r", &[later]).await;
        assert_eq!(
            pick_members(&read_content(&client, "r", kind, "working").await, &["status", "stale"]),
            json!([status, null]),
            "{kind}"
        );
    }
    // A fact without a status clears staleness only.
    client.append("r", &[fact("agent.changed", json!({"agentId": "idle", "payload": {"summary": "here"}}))]).await;
    assert_eq!(pick_members(&read_content(&client, "r", "agent", "idle").await, &["status", "stale"]), json!(["idle", null]));
    assert_eq!(read_content(&client, "r", "task", "blocked").await["stale"], true, "a fact clears only its own activity");
    client.append("r", &[fact("run.started", json!({})), fact("run.finished", json!({}))]).await;
    let again = read_content(&client, "r", "agent", "working").await;
    assert_eq!(pick_members(&again, &["status", "stale"]), json!(["unknown", true]), "the next end makes it stale again");
}

#[tokio::test]
async fn activities_of_a_session_s_own_log_do_not_end_with_a_run() {
    let (client, _) = start_ticking_server().await;
    let facts = json!([fact("task.changed", json!({"taskId": "t", "payload": {"status": "running"}}))]);
    client.post("/v1/sessions/s/facts", &[("content-type", "application/json")], facts.to_string()).await.ok();
    client.append("r", &[fact("run.started", json!({"sessionId": "s"})), fact("run.finished", json!({}))]).await;
    let session = client.get("/v1/sessions/s").await.ok();
    assert_eq!(pick_members(&session["tasks"][0]["content"], &["status", "stale"]), json!(["running", null]), "{session:#}");
}

// Topologies, ownership and other requirements of seed 003.

#[tokio::test]
async fn each_of_the_eight_topologies_stays_on_its_activity() {
    let (client, _) = start_ticking_server().await;
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
        // At the top level of the envelope, as in the minimal example of seed 003; and in the payload.
        let at_top = |class: &str, members: Value| {
            let mut fact = fact(class, members);
            fact["topology"] = json!(topology);
            fact
        };
        client
            .append(
                topology,
                &[
                    at_top("run.started", json!({})),
                    at_top("agent.spawned", json!({"agentId": "g", "payload": {"agentName": "researcher"}})),
                    fact("task.changed", json!({"taskId": "t", "payload": {"topology": topology}})),
                    at_top("agent.handoff", json!({"payload": {"handoffId": "h"}})),
                    at_top("review.requested", json!({"payload": {"reviewId": "v"}})),
                    at_top("team.changed", json!({"payload": {"teamId": "d"}})),
                    // A fact without a topology keeps it.
                    fact("agent.changed", json!({"agentId": "g"})),
                    fact("task.changed", json!({"taskId": "t"})),
                ],
            )
            .await;
        for (kind, id) in [("run", topology), ("agent", "g"), ("task", "t"), ("handoff", "h"), ("review", "v"), ("team", "d")] {
            assert_eq!(read_content(&client, topology, kind, id).await["topology"], topology, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_teammate_shows_every_member_of_its_topology() {
    let (client, _) = start_ticking_server().await;
    let members = json!({
        "agentName": "crawler", "teamName": "d", "role": "r", "schedule": "daily", "wakeReason": "cron", "lastRunRef": "run-1",
        "currentRunRef": "run-2", "capabilityRef": "card", "remoteTaskId": "rt", "inputNeeds": ["url"], "authNeeds": ["oauth"],
        "blocker": "disk", "progress": 0.5, "dependencies": ["t1"], "artifactRefs": ["a"], "evidenceRefs": ["e"],
        "permissionMode": "plan", "sandbox": "read-only", "budget": {"usd": 1}, "toolActivity": ["read"], "pendingInput": 1,
    });
    client
        .append(
            "r",
            &[fact("agent.spawned", json!({"agentId": "g", "refs": [{"rel": "card", "href": "/c"}], "payload": members}))],
        )
        .await;
    let card = read_content(&client, "r", "agent", "g").await;
    for (member, value) in members.as_object().expect("members are an object") {
        assert_eq!(card[member], *value, "{member}");
    }
    assert_eq!(card["refs"], json!([{"rel": "card", "href": "/c"}]));
}

#[tokio::test]
async fn a_teammate_s_context_and_compaction_are_separate_from_the_run_s() {
    let (client, _) = start_ticking_server().await;
    let context = |agent: Value, used: u64| {
        let mut fact = fact("context.changed", json!({"payload": {"budget": {"used": used}}}));
        fact["agentId"] = agent;
        fact
    };
    client
        .append(
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
    assert_eq!(read_content(&client, "r", "context", "context").await["budget"], json!({"used": 2}));
    let mate = read_activity(&client, "r", "context", "mate").await;
    assert_eq!((&mate["content"]["budget"], &mate["agentId"]), (&json!({"used": 3}), &json!("mate")));
    assert_eq!(read_content(&client, "r", "compaction", "compaction").await["status"], "running");
    assert_eq!(read_content(&client, "r", "compaction", "mate").await["status"], "completed");
}

#[tokio::test]
async fn a_hidden_teammate_s_compaction_is_not_the_run_s() {
    let (client, _) = start_ticking_server().await;
    let hidden = |class: &str| fact(class, json!({"agentId": "mate", "audience": "internal"}));
    client
        .append(
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
        let all = read_activities(&client, "r", audience).await;
        let compactions = all.iter().filter(|a| a["activityType"] == "compaction");
        let shown: Vec<_> = compactions.map(|a| json!([a["activityId"], a["content"]["status"]])).collect();
        assert_eq!(json!(shown), expected, "{audience}");
    }
}

#[tokio::test]
async fn a_run_without_a_session_has_its_own_queue_with_its_steer() {
    let (client, _) = start_ticking_server().await;
    let queue = |members: Value| fact("queue.changed", members);
    let steer = json!({"state": "pending", "turnId": "t2"});
    client.append("r", &[queue(json!({"payload": {"queuedTurnCount": 2, "steer": steer, "steerState": "pending"}}))]).await;
    let shown = read_content(&client, "r", "queue", "r").await;
    assert_eq!(pick_members(&shown, &["queuedTurnCount", "steer", "steerState"]), json!([2, steer, "pending"]));
    client.append("r", &[queue(json!({"payload": {"queuedTurnCount": 1, "steer": null}}))]).await;
    let shown = read_content(&client, "r", "queue", "r").await;
    assert_eq!(pick_members(&shown, &["queuedTurnCount", "steer", "steerState"]), json!([1, null, "pending"]));
    // A run whose session is known has its queue in the session, whichever fact named it.
    client
        .append("of-s", &[fact("run.started", json!({"sessionId": "s"})), queue(json!({"payload": {"queuedTurnCount": 3}}))])
        .await;
    assert_eq!(read_content(&client, "of-s", "queue", "s").await["queuedTurnCount"], 3);
}

#[tokio::test]
async fn a_board_keeps_comments_claims_and_refs_of_its_tasks() {
    let (client, _) = start_ticking_server().await;
    let task = |members: Value| {
        let mut fact = fact("task.changed", members);
        fact["taskId"] = json!("t");
        fact
    };
    client
        .append(
            "r",
            &[
                task(json!({"payload": {"runtimeEntity": "work_item", "status": "claimed", "claimedBy": "bo", "comments": [{"by": "bo", "text": "mine"}]}})),
                task(json!({"payload": {"status": "commented", "comment": {"by": "al", "text": "mind the lock"}}, "refs": {"spec": "doc-1"}})),
                task(json!({"payload": {"comment": "thanks"}})),
            ],
        )
        .await;
    let shown = read_content(&client, "r", "task", "t").await;
    assert_eq!(
        pick_members(&shown, &["status", "claimedBy", "refs", "comments"]),
        json!(["commented", "bo", {"spec": "doc-1"}, [
            {"by": "bo", "text": "mine"},
            {"sequence": 2, "by": "al", "text": "mind the lock"},
            {"sequence": 3, "text": "thanks"},
        ]])
    );
    let many: Vec<_> = (0..60).map(|n| task(json!({"payload": {"comment": n.to_string()}}))).collect();
    client.append("r", &many).await;
    let comments = read_content(&client, "r", "task", "t").await["comments"].as_array().expect("comments").clone();
    assert_eq!((comments.len(), &comments[49]["text"]), (50, &json!("59")), "the newest comments remain");
}

#[tokio::test]
async fn teams_artifacts_evidence_and_hand_offs_keep_their_refs() {
    let (client, _) = start_ticking_server().await;
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
        client.append("r", &[fact]).await;
        assert_eq!(read_content(&client, "r", kind, id).await["refs"], refs, "{kind}");
    }
}

// Times of sources.

/// Returns the milliseconds between the source's times of an activity; `None` if it has not both.
fn source_ms(activity: &Value) -> Option<i64> {
    let time = |member: &str| activity[member].as_str()?.parse::<jiff::Timestamp>().ok();
    Some(time("sourceEndedAt")?.as_millisecond() - time("sourceOpenedAt")?.as_millisecond())
}

#[tokio::test]
async fn facts_that_arrive_at_once_keep_the_times_that_their_source_states() {
    let (client, _) = start_ticking_server().await;
    let at = |time: &str, class: &str, ids: Value| {
        let mut fact = fact(class, ids);
        fact["timestamp"] = json!(format!("2026-01-01T00:00:{time}Z"));
        fact
    };
    let facts = [
        // Some sources state no time before their first message.
        fact("run.started", json!({})),
        at("01", "tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}})),
        fact("text.delta", json!({"messageId": "m", "payload": {"text": "a"}})),
        at("03.5", "tool.result", json!({"toolCallId": "c", "audience": "user", "payload": {"output": 1}})),
        fact("text.final", json!({"messageId": "m", "payload": {"text": "ab"}})),
        at("09", "run.finished", json!({})),
    ];
    client.append("r", &facts).await;
    for audience in AUDIENCES {
        for activity in read_activities(&client, "r", audience).await {
            let expected = match activity["activityType"].as_str() {
                Some("run") => 8_000,
                _ => 2_500,
            };
            assert_eq!(source_ms(&activity), Some(expected), "{activity:#}");
        }
    }
    // A reader that gets each change has the same times as one that joins at the end.
    let mut times = std::collections::BTreeMap::<String, [Value; 2]>::new();
    for frame in client.open_activities("r", "replay=deltas", None).await.read_all().await {
        if !frame.kind().starts_with("Activity") {
            continue;
        }
        let known =
            times.entry(frame.data["activityType"].as_str().expect("a frame of an activity has its type").into()).or_default();
        for (known, member) in known.iter_mut().zip(["sourceOpenedAt", "sourceEndedAt"]) {
            if !frame.data[member].is_null() {
                known.clone_from(&frame.data[member]);
            }
        }
    }
    for activity in read_activities(&client, "r", "user").await {
        let known = &times[activity["activityType"].as_str().expect("an activity has its type")];
        assert_eq!([&known[0], &known[1]], [&activity["sourceOpenedAt"], &activity["sourceEndedAt"]], "{activity:#}");
    }
}

#[tokio::test]
async fn a_source_that_states_no_time_gives_no_times() {
    let (client, _) = start_ticking_server().await;
    client.append("r", &[fact("run.started", json!({})), fact("run.finished", json!({}))]).await;
    let run = read_activity(&client, "r", "run", "r").await;
    assert_eq!(pick_members(&run, &["sourceOpenedAt", "sourceEndedAt"]), json!([null, null]));
}

#[tokio::test]
async fn every_source_that_sends_times_gives_them_to_its_runs() {
    let (client, _) = start_ticking_server().await;
    // How long each recording took by the clock of its runtime, in milliseconds.
    for (source, recording, expected) in [
        ("a2a", "a2a/v1-cancel", 509),
        ("ag-ui", "ag-ui/scripted-sdk1.0-text_reasoning", 126),
        ("claude-stream-json", "claude-stream-json/one_tool", 209),
        ("langgraph", "langgraph/v3-hitl_middleware_reject", 1608),
        ("openai-responses", "openai-responses/endpoint-short_text", 3000),
        ("turnrunner", "turn-runner/handwritten-port-multi_tool", 5),
    ] {
        let (run, facts) = (recording.replace('/', "-"), facts_in(recording));
        // One body, so that the server receives all of it at one time.
        let (path, headers) = (format!("/v1/runs/{run}/facts?source={source}"), [("content-type", "application/json")]);
        client.post(&path, &headers, json!(facts).to_string()).await.ok();
        let took = source_ms(&read_activity(&client, &run, "run", &run).await);
        assert_eq!(took, Some(expected), "{recording}");
    }
}

//! Visibility by audience on every path.
//!
//! Both stream transports, pages in both directions, and the export.
//!
//! Each rule is a case: facts in, and a list of visible events per audience. Laws are properties over random facts.

use crate::harness::{AUDIENCES, Client, TRANSPORTS, Transport, fact, start_local};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::collections::HashSet;

/// Reads an ended run as an audience.
///
/// Asserts that all paths agree, and that `prev` links the whole chain.
async fn read_on_every_path(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let query = format!("audience={audience}");
    let events = client.read_events(run, &query, 7).await;
    assert_eq!(client.read_events_backward(run, &query, 5).await, events, "backward");
    assert_eq!(client.export(run, &query).await, events, "export");
    for via in TRANSPORTS {
        let mut stream = client.open_stream(via, run, &query, None).await;
        let frames = stream.read_all().await;
        let (end, frames) = frames.split_last().expect("a stream ends with End");
        assert_eq!(end.kind(), "End");
        let mut prev = 0;
        for frame in frames {
            assert_eq!((frame.kind(), frame.prev()), ("Event", prev), "{via:?}");
            assert_eq!(frame.data["event"]["sequence"], frame.sequence());
            prev = frame.sequence();
        }
        let streamed: Vec<Value> = frames.iter().map(|frame| frame.data["event"].clone()).collect();
        assert_eq!(streamed, events, "{via:?}");
    }
    events
}

/// Returns the type, with a suffix for a stub: an event whose body is withheld.
fn label(event: &Value) -> String {
    let event_type = event["type"].as_str().expect("an event has a type");
    match event["payload"]["withheld"] == true {
        true => format!("{event_type} (stub)"),
        false => event_type.to_owned(),
    }
}

/// Checks what each audience sees of these facts.
///
/// Adds a `run.finished`, which every audience sees, and omits it from the lists.
async fn check(facts: Vec<Value>, expected: [&[&str]; 3]) -> [Vec<Value>; 3] {
    let client = start_local().await;
    client.append("r", &facts).await;
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let mut all = [const { Vec::new() }; 3];
    for (i, audience) in AUDIENCES.into_iter().enumerate() {
        let mut events = read_on_every_path(&client, "r", audience).await;
        assert_eq!(events.pop().map(|end| label(&end)).as_deref(), Some("run.finished"));
        let names: Vec<String> = events.iter().map(label).collect();
        assert_eq!(names, expected[i], "as {audience}: {events:#?}");
        all[i] = events;
    }
    all
}

fn tool(event_type: &str, members: Value) -> Value {
    let mut fact = fact(event_type, json!({"toolCallId": "c"}));
    fact.as_object_mut().expect("a fact is an object").extend(members.as_object().expect("members are an object").clone());
    fact
}

#[tokio::test]
async fn a_fact_without_an_audience_gets_the_default_of_its_type() {
    let internal = [
        "tool.progress",
        "tool.output.delta",
        "tool.result",
        "diagnostic.changed",
        "diagnostic.new",
        "metric.changed",
        "weather.changed",
    ];
    let facts = proscenium::model::EventType::NAMES
        .iter()
        .chain(&["diagnostic.new", "weather.changed"])
        .filter(|event_type| !event_type.starts_with("run."));
    let facts: Vec<Value> = facts
        .map(|event_type| fact(event_type, json!({"toolCallId": format!("of {event_type}"), "messageId": event_type})))
        .collect();
    let all: Vec<&str> = facts.iter().map(|fact| fact["type"].as_str().expect("a fact has a type")).collect();
    let narrow: Vec<&str> = all.iter().copied().filter(|event_type| !internal.contains(event_type)).collect();
    check(facts.clone(), [&narrow, &narrow, &all]).await;
}

#[tokio::test]
async fn a_fact_is_visible_to_its_audience_and_an_unknown_audience_is_internal() {
    let all = ["task.changed"; 6];
    let facts = [json!("user"), json!("dashboard"), json!("internal"), json!("everyone"), json!(7), json!("User")];
    let facts = facts.map(|audience| fact("task.changed", json!({"audience": audience}))).to_vec();
    let [user, ..] = check(facts, [&all[..1], &all[..2], &all]).await;
    assert_eq!(user[0]["audience"], "user");
}

#[tokio::test]
async fn a_reader_that_saw_a_call_start_gets_a_stub_of_its_hidden_end() {
    let facts = vec![
        tool("tool.started", json!({"payload": {"toolName": "search"}, "turnId": "t1"})),
        tool("tool.args", json!({"payload": {"input": {"q": "x"}}})),
        tool("tool.progress", json!({"payload": {"message": "half"}})),
        tool("tool.output.delta", json!({"payload": {"text": "…"}})),
        tool(
            "tool.result",
            json!({
                "payload": {"status": "ok", "durationMs": 12.5, "output": "body", "costUsd": 0.1, "structured": {"a": 1}, "truncated": 3},
                "refs": [{"rel": "output", "href": "/v1/blobs/x"}], "rawEventRef": "raw:1", "control": "retry", "sequence": 4, "secret": "of the source",
                "turnId": "t1",
            }),
        ),
    ];
    let wide = ["tool.started", "tool.args", "tool.result (stub)"];
    let [user, dashboard, internal] =
        check(facts, [&wide, &wide, &["tool.started", "tool.args", "tool.progress", "tool.output.delta", "tool.result"]]).await;
    assert_eq!(user, dashboard);
    let stub = &user[2];
    assert_eq!(stub["payload"], json!({"status": "ok", "durationMs": 12.5, "withheld": true}));
    for member in ["refs", "rawEventRef", "control", "sourceSequence", "secret"] {
        assert!(stub.get(member).is_none() && internal[4].get(member).is_some(), "{member}: {stub}");
    }
    for member in [
        "type",
        "sequence",
        "eventId",
        "receivedAt",
        "runId",
        "toolCallId",
        "turnId",
        "owner",
        "phase",
        "audience",
        "startAudience",
    ] {
        assert_eq!(stub[member], internal[4][member], "{member}");
    }
    assert_eq!((&stub["audience"], &stub["startAudience"]), (&json!("internal"), &json!("user")));
}

#[tokio::test]
async fn a_stub_keeps_no_status_or_duration_that_is_not_a_plain_value() {
    let disguised = tool("tool.result", json!({"payload": {"status": {"secret": 1}, "durationMs": ["secret"]}}));
    let [user, ..] = check(
        vec![tool("tool.started", json!({})), disguised],
        [&["tool.started", "tool.result (stub)"], &["tool.started", "tool.result (stub)"], &["tool.started", "tool.result"]],
    )
    .await;
    assert_eq!(user[1]["payload"], json!({"withheld": true}));
}

#[tokio::test]
async fn a_subject_that_starts_hidden_stays_hidden_for_all_its_facts() {
    let subjects: [(&str, Value, &[&str], &str); 7] = [
        ("tool.started", json!({"toolCallId": "c"}), &["tool.args", "tool.progress"], "tool.failed"),
        ("action.required", json!({"actionId": "a"}), &[], "action.resolved"),
        ("text.delta", json!({"messageId": "m", "partId": "p"}), &["text.delta"], "text.final"),
        ("reasoning.delta", json!({"messageId": "m", "partId": "p"}), &["reasoning.delta"], "reasoning.summary"),
        ("agent.spawned", json!({"agentId": "g"}), &["agent.changed"], "agent.completed"),
        ("review.requested", json!({"payload": {"reviewId": "v"}}), &[], "review.completed"),
        ("context.compaction.started", json!({}), &[], "context.compaction.completed"),
    ];
    for (start, ids, middle, end) in subjects {
        for (audience, sees) in [("dashboard", [false, true, true]), ("internal", [false, false, true])] {
            let of = |event_type: &str, audience: &str| {
                let mut fact = fact(event_type, ids.clone());
                fact["audience"] = json!(audience);
                fact
            };
            let mut facts = vec![of(start, audience)];
            facts.extend(middle.iter().map(|event_type| of(event_type, "user")));
            facts.push(of(end, "user"));
            let all: Vec<&str> = facts.iter().map(|fact| fact["type"].as_str().expect("a fact has a type")).collect();
            // The server counts a failed call for readers that cannot see the call.
            let none: &[&str] = if end == "tool.failed" { &["tool.failed (stub)"] } else { &[] };
            let got = check(facts.clone(), sees.map(|sees| if sees { &all[..] } else { none })).await;
            assert!(got[2].iter().all(|event| event["startAudience"] == audience), "{start}: {:#?}", got[2]);
        }
    }
}

#[tokio::test]
async fn a_patch_is_hidden_from_audiences_that_missed_its_base() {
    let state = |event_type: &str, n: u32, audience: &str| {
        fact(event_type, json!({"audience": audience, "payload": {"patch": [{"op": "add", "path": "/n", "value": n}]}}))
    };
    let snapshot = |n: u32, audience: &str| fact("state.snapshot", json!({"audience": audience, "payload": {"state": {"n": n}}}));
    let report = |n: u32, audience: &str, member: &str, value: Value| {
        tool("tool.progress", json!({"audience": audience, "payload": {"activityType": "search", "n": n, member: value}}))
    };
    let patch = |n: u32, audience: &str| report(n, audience, "patch", json!([{"op": "add", "path": "/n", "value": n}]));
    let content = |n: u32, audience: &str| report(n, audience, "content", json!({"n": n}));
    let facts = vec![
        snapshot(1, "user"),
        content(2, "user"),
        state("state.delta", 3, "dashboard"),
        patch(4, "internal"),
        state("state.delta", 5, "user"),
        patch(6, "user"),
        snapshot(7, "user"),
        content(8, "dashboard"),
        state("state.delta", 9, "user"),
        patch(10, "user"),
        content(11, "user"),
        patch(12, "user"),
    ];
    let event_type = |n: &u32| facts[*n as usize - 1]["type"].as_str().expect("a fact has a type");
    let visible = [vec![1, 2, 7, 9, 11, 12], vec![1, 2, 3, 5, 7, 8, 9, 10, 11, 12], (1..=12).collect()];
    let names: Vec<Vec<&str>> = visible.iter().map(|all| all.iter().map(event_type).collect()).collect();
    let got = check(facts.clone(), [&names[0], &names[1], &names[2]]).await;
    for (got, expected) in got.iter().zip(&visible) {
        let numbers: Vec<u32> =
            got.iter().map(|event| event["sequence"].as_u64().expect("an event has a sequence") as u32).collect();
        assert_eq!(numbers, *expected);
        assert!(got.iter().all(|event| event.get("missedBy").is_none()), "missedBy would reveal hidden facts");
    }
}

#[tokio::test]
async fn the_stub_of_a_review_names_the_review() {
    let of = |event_type: &str, audience: &str| {
        fact(event_type, json!({"audience": audience, "payload": {"reviewId": "v", "verdict": "secret", "status": "done"}}))
    };
    let facts = vec![of("review.requested", "user"), of("review.completed", "internal")];
    let stub = ["review.requested", "review.completed (stub)"];
    let [user, ..] = check(facts, [&stub, &stub, &["review.requested", "review.completed"]]).await;
    assert_eq!(user[1]["payload"], json!({"reviewId": "v", "status": "done", "withheld": true}));
}

#[tokio::test]
async fn a_failure_has_the_audience_of_the_call_s_start() {
    let failed =
        || tool("tool.failed", json!({"audience": "internal", "payload": {"error": {"code": "boom", "message": "it broke"}}}));
    let seen = ["tool.started", "tool.failed"];
    let [user, ..] = check(vec![tool("tool.started", json!({})), failed()], [&seen, &seen, &seen]).await;
    assert_eq!(user[1]["payload"]["error"]["message"], "it broke");
    let counted = ["tool.failed (stub)"];
    let started = tool("tool.started", json!({"audience": "dashboard"}));
    let [user, ..] = check(vec![started, failed()], [&counted, &seen, &seen]).await;
    assert_eq!((&user[0]["payload"], user[0].get("toolCallId")), (&json!({"kind": "hidden_failure", "withheld": true}), None));
    // Without a start it is for users, unless it is nested in another call and has a narrower audience.
    check(vec![failed()], [&seen[1..]; 3]).await;
    for nesting in [json!({"refs": {"parentToolCallId": "outer"}}), json!({"parentToolCallId": "outer"})] {
        let mut nested = failed();
        nested.as_object_mut().expect("a fact is an object").extend(nesting.as_object().expect("nesting is an object").clone());
        check(vec![nested.clone()], [&counted, &counted, &seen[1..]]).await;
        nested["audience"] = json!("user");
        check(vec![nested], [&seen[1..]; 3]).await;
    }
}

#[tokio::test]
async fn facts_of_a_hidden_agent_are_hidden() {
    let of = |event_type: &str, members: Value| {
        let mut fact = fact(event_type, members);
        fact["agentId"] = json!("ghost");
        fact
    };
    let facts = vec![
        of("agent.spawned", json!({"audience": "internal"})),
        of("text.delta", json!({"messageId": "m", "partId": "p", "text": "boo"})),
        of("tool.started", json!({"toolCallId": "c"})),
        of("tool.failed", json!({"toolCallId": "c"})),
        of("action.required", json!({"actionId": "a"})),
        of("task.changed", json!({"taskId": "t"})),
        of("run.status", json!({})),
        of("worker.notification", json!({})),
        of("agent.completed", json!({})),
        // Of its message no later fact has to repeat the agent.
        fact("text.delta", json!({"messageId": "m", "partId": "p", "text": " again"})),
        fact("text.delta", json!({"messageId": "n", "partId": "p", "text": "I am no ghost"})),
    ];
    let all: Vec<&str> = facts.iter().map(|fact| fact["type"].as_str().expect("a fact has a type")).collect();
    let others = ["tool.failed (stub)", "text.delta"];
    check(facts.clone(), [&others, &others, &all]).await;
}

#[tokio::test]
async fn a_hidden_agent_s_fact_about_a_visible_call_hides_only_itself() {
    let facts = vec![
        fact("agent.spawned", json!({"agentId": "ghost", "audience": "internal"})),
        tool("tool.started", json!({})),
        tool("tool.progress", json!({"agentId": "ghost", "audience": "user"})),
        tool("tool.result", json!({})),
    ];
    let seen = ["tool.started", "tool.result (stub)"];
    check(facts, [&seen, &seen, &["agent.spawned", "tool.started", "tool.progress", "tool.result"]]).await;
}

#[tokio::test]
async fn a_reader_that_saw_a_start_sees_an_end_even_if_the_end_is_hidden() {
    let part = |event_type: &str, part: &str, members: Value| {
        let mut fact = fact(event_type, json!({"messageId": "m", "partId": part}));
        fact.as_object_mut().expect("a fact is an object").extend(members.as_object().expect("members are an object").clone());
        fact
    };
    // The final text covers a part that users cannot see: they see a stub, and the message has ended for every
    // audience.
    let facts = vec![
        part("text.delta", "seen", json!({})),
        part("text.delta", "hidden", json!({"audience": "internal"})),
        fact("text.final", json!({"messageId": "m", "payload": {"text": "both"}})),
        part("text.delta", "seen", json!({})),
    ];
    let seen = ["text.delta", "text.final (stub)"];
    check(facts, [&seen, &seen, &["text.delta", "text.delta", "text.final", "diagnostic.changed"]]).await;
    // A hidden agent ends a call that other audiences saw start.
    let facts = vec![
        fact("agent.spawned", json!({"agentId": "ghost", "audience": "internal"})),
        tool("tool.started", json!({})),
        tool("tool.result", json!({"agentId": "ghost", "audience": "user", "payload": {"output": "boo"}})),
        tool("tool.output.delta", json!({"audience": "user"})),
    ];
    let seen = ["tool.started", "tool.result (stub)"];
    check(facts, [&seen, &seen, &["agent.spawned", "tool.started", "tool.result", "diagnostic.changed"]]).await;
}

#[tokio::test]
async fn an_action_on_a_hidden_call_reveals_nothing_about_the_call() {
    let facts = vec![
        tool("tool.started", json!({"audience": "internal"})),
        tool(
            "action.required",
            json!({"actionId": "a", "payload": {"kind": "tool_approval", "message": "May I?", "input": {"path": "/"}, "toolName": "rm", "toolCallId": "c"}}),
        ),
        tool("action.resolved", json!({"actionId": "a", "payload": {"outcome": "approved", "input": {"path": "/"}}})),
    ];
    let wide = ["action.required", "action.resolved"];
    let [user, dashboard, internal] = check(facts, [&wide, &wide, &["tool.started", "action.required", "action.resolved"]]).await;
    assert_eq!(user, dashboard);
    assert_eq!(user[0]["payload"], json!({"kind": "tool_approval", "message": "May I?"}));
    assert_eq!(json!([user[1]["payload"]["outcome"], user[1]["payload"]["input"]]), json!(["approved", null]));
    assert!(user.iter().all(|event| event.get("toolCallId").is_none() && event["actionId"] == "a"), "{user:#?}");
    assert_eq!((&internal[1]["toolCallId"], &internal[1]["payload"]["input"]["path"]), (&json!("c"), &json!("/")));
    // An action on a call that every audience sees keeps both members.
    let facts = vec![tool("tool.started", json!({})), tool("action.required", json!({"actionId": "a", "payload": {"input": 1}}))];
    let [user, ..] = check(facts, [&["tool.started", "action.required"]; 3]).await;
    assert_eq!((&user[1]["toolCallId"], &user[1]["payload"]["input"]), (&json!("c"), &json!(1)));
}

#[tokio::test]
async fn starts_and_ends_of_runs_reach_every_audience() {
    for (event_type, wide) in
        [("run.started", "run.started (stub)"), ("run.finished", "run.finished (stub)"), ("run.failed", "run.failed")]
    {
        let boundary =
            fact(event_type, json!({"audience": "internal", "payload": {"result": "body", "error": {"message": "why"}}}));
        let [user, ..] = check(vec![boundary], [&[wide], &[wide], &[event_type]]).await;
        assert_eq!(user[0]["payload"].get("result").is_some(), event_type == "run.failed");
    }
}

#[tokio::test]
async fn a_messages_snapshot_contains_only_calls_and_agents_visible_to_its_reader() {
    let messages = json!([
        {"messageId": "1", "role": "assistant", "parts": [{"kind": "tool_call", "toolCallId": "c"}, {"kind": "assistant_text", "text": "t"}]},
        {"messageId": "2", "role": "tool", "toolCallId": "c"},
        {"messageId": "3", "role": "assistant", "agentId": "ops", "parts": []},
        {"messageId": "4", "role": "assistant", "toolCalls": [{"id": "c"}, {"id": "seen"}]},
    ]);
    let facts = vec![
        tool("tool.started", json!({"audience": "internal"})),
        fact("agent.spawned", json!({"agentId": "ops", "audience": "dashboard"})),
        fact("messages.snapshot", json!({"payload": {"mode": "window", "messages": messages}})),
    ];
    let [user, dashboard, internal] = check(
        facts,
        [
            &["messages.snapshot"],
            &["agent.spawned", "messages.snapshot"],
            &["tool.started", "agent.spawned", "messages.snapshot"],
        ],
    )
    .await;
    let shown = |events: &[Value]| events.last().expect("the last event is the snapshot")["payload"]["messages"].clone();
    let first = json!({"messageId": "1", "role": "assistant", "parts": [{"kind": "assistant_text", "text": "t"}]});
    let last = json!({"messageId": "4", "role": "assistant", "toolCalls": [{"id": "seen"}]});
    assert_eq!(shown(&user), json!([first, last]));
    assert_eq!(shown(&dashboard), json!([first, messages[2], last]));
    assert_eq!(shown(&internal), messages);
}

#[tokio::test]
async fn an_unknown_audience_in_a_query_is_a_bad_request() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({}))]).await;
    for path in ["/v1/runs/r/events", "/v1/runs/r/export", "/v1/runs/r", "/v1/runs", "/v1/runs/r/stream"] {
        let problem = client.get(&format!("{path}?audience=everyone&frames=events")).await.problem(400, "bad_audience");
        assert_eq!(problem["member"], "audience");
    }
    assert_eq!(
        client.read_events("r", "", 10).await,
        client.read_events("r", "audience=user", 10).await,
        "the default audience is user"
    );
}

#[tokio::test]
async fn prev_links_the_chain_of_each_filter_from_any_starting_point() {
    let client = start_local().await;
    let mut facts = vec![fact("run.started", json!({}))];
    for n in 0..40 {
        let call = json!({"toolCallId": n.to_string(), "audience": AUDIENCES[n % 3]});
        facts.push(fact("tool.started", call));
        facts.push(fact("tool.result", json!({"toolCallId": n.to_string()})));
        facts.push(fact("text.delta", json!({"messageId": "m", "partId": "p", "text": "x", "agentId": "a"})));
        facts.push(fact("task.changed", json!({"taskId": "t", "surface": "work_board"})));
    }
    facts.push(fact("run.finished", json!({})));
    client.append("r", &facts).await;
    for audience in AUDIENCES {
        for filter in [
            "",
            "surfaces=tool_ui",
            "surfaces=tool_ui,work_board",
            "type=tool.result",
            "type=text.delta,run.started",
            "agentId=a",
            "surfaces=hitl",
        ] {
            let query = format!("audience={audience}&{filter}");
            let all = client.read_events("r", &query, 1000).await;
            let whole = client.open_stream(Transport::Raw, "r", &query, None).await.read_all().await;
            let (end, whole) = whole.split_last().expect("a stream ends with End");
            assert_eq!((end.kind(), end.sequence()), ("End", facts.len() as u64));
            let mut prev = 0;
            for frame in whole {
                assert_eq!(frame.prev(), prev, "{query}");
                prev = frame.sequence();
            }
            assert_eq!(whole.iter().map(|frame| frame.data["event"].clone()).collect::<Vec<_>>(), all, "{query}");
            // Every reader that resumes at any cursor continues the same chain, with or without a filter.
            for (n, via) in (0..whole.len()).step_by(7).zip(TRANSPORTS.into_iter().cycle()) {
                let rest = client.open_stream(via, "r", &query, whole[n].id.as_deref()).await.read_all().await;
                assert_eq!(
                    rest[..rest.len() - 1].iter().map(|frame| &frame.data).collect::<Vec<_>>(),
                    whole[n + 1..].iter().map(|frame| &frame.data).collect::<Vec<_>>()
                );
            }
        }
    }
}

/// Generates one of the three audiences, an unknown one, or none.
fn audience() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![4 => Just(None), 2 => Just(Some("user")), 2 => Just(Some("dashboard")), 3 => Just(Some("internal")), 1 => Just(Some("everyone"))]
}

/// Generates a fact about one of a few subjects, so that facts interact.
fn any_fact() -> impl Strategy<Value = Value> {
    let tools = ["tool.started", "tool.args", "tool.progress", "tool.output.delta", "tool.result", "tool.failed"];
    let parts = ["text.delta", "text.final", "reasoning.delta", "reasoning.summary", "plan.delta", "plan.final"];
    let agents = ["agent.spawned", "agent.changed", "agent.completed"];
    let others = [
        "state.snapshot",
        "task.changed",
        "run.status",
        "diagnostic.changed",
        "weather.changed",
        "worker.notification",
        "agent.handoff",
        "team.changed",
    ];
    let ids = (0..3u8, 0..3u8, proptest::option::weighted(0.3, 0..2u8), audience(), any::<bool>());
    let event_type = prop_oneof![
        5 => proptest::sample::select(tools.to_vec()),
        5 => proptest::sample::select(parts.to_vec()),
        2 => proptest::sample::select(agents.to_vec()),
        2 => proptest::sample::select(vec!["action.required", "action.resolved"]),
        1 => proptest::sample::select(vec!["review.requested", "review.completed"]),
        1 => proptest::sample::select(vec!["run.started", "run.finished", "run.failed"]),
        1 => Just("messages.snapshot"),
        2 => proptest::sample::select(others.to_vec()),
    ];
    (event_type, ids).prop_map(|(event_type, (one, other, agent, audience, flag))| {
        let mut map = Map::from_iter([("type".to_owned(), json!(event_type))]);
        let mut set = |member: &str, value: Value| drop(map.insert(member.into(), value));
        let mut payload = json!({"secret": format!("{one}{other}"), "status": if flag { "ok" } else { "failed" }});
        match event_type.split('.').next().expect("a type has a family") {
            "tool" => {
                set("toolCallId", json!(format!("c{one}")));
                if flag && other == 0 {
                    set("parentToolCallId", json!("outer"));
                }
            }
            "text" | "reasoning" | "plan" => {
                set("messageId", json!(format!("m{one}")));
                // Only a final text may name no part; any other fact without a part would get one, and so start a
                // subject.
                if flag || event_type != "text.final" {
                    set("partId", json!(format!("p{other}")));
                }
            }
            "action" => {
                set("actionId", json!(format!("a{one}")));
                set("toolCallId", json!(format!("c{other}")));
                payload["input"] = json!("of the call");
            }
            "review" => payload["reviewId"] = json!(one),
            "agent" | "worker" | "team" => {
                set("agentId", json!(format!("g{}", one % 2)));
                for member in ["handoffId", "workerNotificationId", "teamId"] {
                    payload[member] = json!("given");
                }
            }
            "messages" => {
                payload["messages"] = json!([{"messageId": "m0", "parts": [{"kind": "tool_call", "toolCallId": format!("c{one}")}]}, {"messageId": "m1", "agentId": format!("g{}", other % 2)}]);
            }
            _ => {}
        }
        if let Some(agent) = agent {
            set("agentId", json!(format!("g{agent}")));
        }
        if let Some(audience) = audience {
            set("audience", json!(audience));
        }
        set("payload", payload);
        Value::Object(map)
    })
}

/// Whether a fact decides which call a later fact under its id is about.
fn counts_calls(fact: &Value) -> bool {
    ["tool.started", "tool.result", "tool.failed"].contains(&fact["type"].as_str().unwrap_or_default())
}

/// Returns the subjects that a fact may start.
///
/// Leaving out a subject's first fact changes the meaning of its later facts. A call starts only with `tool.started`.
fn subjects(fact: &Value) -> Vec<String> {
    let id = |member: &str| fact[member].as_str().unwrap_or("-").to_owned();
    let event_type = fact["type"].as_str().expect("a fact has a type");
    match event_type.split('.').next().expect("a type has a family") {
        "tool" if event_type != "tool.started" => Vec::new(),
        "tool" => vec![format!("tool {}", id("toolCallId"))],
        "action" => vec![format!("action {}", id("actionId"))],
        "review" => vec![format!("review {}", fact["payload"]["reviewId"])],
        kind @ ("text" | "reasoning" | "plan") => {
            let message = format!("{kind} {} {}", id("agentId"), id("messageId"));
            match fact["partId"].as_str() {
                Some(part) => vec![format!("{message} {part}"), message],
                None => vec![message],
            }
        }
        "agent" if event_type != "agent.handoff" => vec![format!("agent {}", id("agentId"))],
        _ => Vec::new(),
    }
}

/// Checks a property over random facts.
///
/// The same facts each time, or as many new cases as `PROPTEST_CASES` says.
fn check_property(cases: u32, check: impl AsyncFn(&Client, String, Vec<Value>) -> Result<(), TestCaseError>) {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config { cases: asked.unwrap_or(cases), failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let mut runner = match asked {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the runtime starts");
    let client = runtime.block_on(start_local());
    let runs = Cell::new(0u64);
    let outcome = runner.run(&proptest::collection::vec(any_fact(), 1..40), |facts| {
        runs.set(runs.get() + 1);
        runtime.block_on(check(&client, format!("run-{}", runs.get()), facts))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

fn sequences(events: &[Value]) -> HashSet<u64> {
    events.iter().filter_map(|event| event["sequence"].as_u64()).collect()
}

#[test]
fn a_wider_audience_sees_no_more_and_all_paths_agree() {
    check_property(24, async |client, run, mut facts| {
        facts.push(fact("run.finished", json!({})));
        client.append(&run, &facts).await;
        let mut of = [const { Vec::new() }; 3];
        for (i, audience) in AUDIENCES.into_iter().enumerate() {
            of[i] = read_on_every_path(client, &run, audience).await;
        }
        let [user, dashboard, internal] = of;
        prop_assert!(sequences(&user).is_subset(&sequences(&dashboard)));
        prop_assert!(sequences(&dashboard).is_subset(&sequences(&internal)));
        prop_assert_eq!(internal.len(), facts.len());
        prop_assert!(internal.iter().all(|event| event["payload"]["withheld"].is_null()));
        for event in user.iter().chain(&dashboard).filter(|event| event["payload"]["withheld"] == true) {
            let members: Vec<&String> = event["payload"].as_object().expect("a payload is an object").keys().collect();
            if event["payload"]["kind"] == "hidden_failure" {
                prop_assert_eq!(members, ["kind", "withheld"]);
                continue;
            }
            let id = (event["type"] == "review.completed").then_some("reviewId");
            prop_assert_eq!(members, id.into_iter().chain(["status", "withheld"]).collect::<Vec<_>>());
        }
        // A reader that sees a start sees every later end. An end before the start does not count.
        for audience in [&user, &dashboard] {
            let started = audience.iter().filter(|event| event["type"] == "tool.started");
            let started = started.filter_map(|event| Some((event["toolCallId"].as_str()?, event["sequence"].as_u64()?)));
            for (call, start) in started {
                let ends = |events: &[Value]| {
                    events
                        .iter()
                        .filter(|e| {
                            ["tool.result", "tool.failed"].contains(&e["type"].as_str().unwrap_or(""))
                                && e["toolCallId"] == call
                                && e["sequence"].as_u64() > Some(start)
                                && e["agentId"].is_null()
                        })
                        .count()
                };
                prop_assert_eq!(ends(audience), ends(&internal), "call {}", call);
            }
        }
        Ok(())
    });
}

#[test]
fn leaving_out_hidden_facts_changes_nothing_visible() {
    check_property(48, async |client, run, mut facts| {
        facts.push(fact("run.finished", json!({})));
        client.append(&run, &facts).await;
        for audience in AUDIENCES {
            let query = format!("audience={audience}");
            let all = client.read_events(&run, &query, 1000).await;
            let visible = sequences(&all);
            let mut known = HashSet::new();
            let kept: Vec<Value> = facts
                .iter()
                .zip(1..)
                .filter(|(fact, sequence)| {
                    // One fact is one envelope here, so its position in the body is its sequence.
                    let starts = subjects(fact).into_iter().filter(|subject| known.insert(subject.clone())).count() > 0;
                    starts || counts_calls(fact) || visible.contains(sequence)
                })
                .map(|(fact, _)| fact.clone())
                .collect();
            let without = format!("{run}-{audience}");
            client.append(&without, &kept).await;
            let plain = |events: Vec<Value>| -> Vec<Value> {
                let strip = |mut event: Value| {
                    let map = event.as_object_mut().expect("an event is an object");
                    for member in ["sequence", "eventId", "receivedAt", "runId"] {
                        map.remove(member);
                    }
                    // A time, like `receivedAt`.
                    if let Some(decided_by) = map.get_mut("payload").and_then(|payload| payload.get_mut("decidedBy")) {
                        decided_by["at"] = Value::Null;
                    }
                    event
                };
                events.into_iter().map(strip).collect()
            };
            let less = client.read_events(&without, &query, 1000).await;
            prop_assert_eq!(plain(all), plain(less), "as {}", audience);
        }
        Ok(())
    });
}

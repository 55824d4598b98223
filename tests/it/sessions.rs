//! Sessions: several runs on one stream, and a session's pages.

use crate::activities::Screen;
use crate::harness::{AUDIENCES, Client, Frame, TRANSPORTS, Transport, fact, recording, start_local, to_ndjson};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn text(run: u32, n: u32) -> Value {
    let audience = if n % 3 == 2 { "internal" } else { "user" };
    fact("text.delta", json!({"messageId": format!("m{run}"), "partId": "p", "text": format!("{n} "), "audience": audience}))
}

async fn post_facts(client: &Client, run: &str, session: &str, facts: &[Value]) -> Value {
    let path = format!("/v1/runs/{run}/facts?sessionId={session}");
    client.post(&path, &[("content-type", "application/json")], Value::from(facts).to_string()).await.ok()
}

/// Writes three runs of one session in turns; the last one ends.
async fn write_three_runs(client: &Client) {
    for n in 0..10 {
        for run in 1..=3 {
            post_facts(client, &format!("r{run}"), "s", &[text(run, 2 * n), text(run, 2 * n + 1)]).await;
        }
    }
    post_facts(client, "r3", "s", &[fact("run.finished", json!({}))]).await;
}

/// Returns the frames' events as (run, sequence).
fn events(frames: &[Frame]) -> Vec<(String, u64)> {
    let of = |f: &Frame| (f.data["runId"].as_str().unwrap_or("-").to_owned(), f.sequence());
    frames.iter().filter(|f| f.kind() == "Event").map(of).collect()
}

async fn read_frames(client: &Client, path: &str, resume: Option<&str>, count: usize) -> Vec<Frame> {
    let mut stream = client.open(Transport::Raw, path, resume).await;
    let mut frames = Vec::new();
    while events(&frames).len() < count {
        frames.push(stream.next_frame().await);
    }
    frames
}

#[tokio::test]
async fn a_stream_names_runs_with_commas_and_edge_spaces_by_repeating_its_parameter() {
    let client = start_local().await;
    for run in ["a", "b", "a,b", " edge "] {
        client.append(&run.replace(' ', "%20").replace(',', "%2C"), &[fact("run.started", json!({}))]).await;
    }
    for (query, expected) in [
        ("runs=a,b", &["a", "b"][..]),
        ("runs=a%2Cb", &["a", "b"]),
        ("runs=%20edge%20", &[" edge "]),
        ("runs=a&runs=b", &["a", "b"]),
        ("runs=a%2Cb&runs=%20edge%20&runs=b", &["b", " edge ", "a,b"]),
        ("runs=a,b&runs=a,b", &["a,b"]),
        ("runs=,a,,b,&frames=events", &["a", "b"]),
    ] {
        let frames = read_frames(&client, &format!("/v1/stream?frames=events&{query}"), None, expected.len()).await;
        let mut runs: Vec<_> = events(&frames).into_iter().map(|(run, _)| run).collect();
        let mut expected = expected.to_vec();
        runs.sort();
        expected.sort_unstable();
        assert_eq!(runs, expected, "{query}");
    }
    client.get("/v1/stream?runs=").await.problem(400, "bad_query");
    client.get("/v1/stream?runs=,").await.problem(400, "bad_query");
}

#[tokio::test]
async fn a_stream_of_several_runs_gives_each_event_once_in_commit_order_from_any_cursor() {
    let client = start_local().await;
    write_three_runs(&client).await;
    for (path, audience) in [("/v1/sessions/s/stream", "user"), ("/v1/stream", "internal")] {
        let path = format!("{path}?frames=events&audience={audience}&runs=r1,r2,r3");
        let mut expected = Vec::new();
        for run in ["r1", "r2", "r3"] {
            let of = client.read_events(run, &format!("audience={audience}"), 100).await;
            expected.extend(of.iter().map(|e| (run.to_owned(), e["sequence"].as_u64().unwrap())));
        }
        let whole = read_frames(&client, &path, None, expected.len()).await;
        let mut sorted = events(&whole);
        assert_eq!(&sorted[..2], [("r1".to_owned(), 1), ("r1".to_owned(), 2)], "in commit order");
        assert!(sorted[2].0 == "r2" || audience == "user");
        sorted.sort();
        expected.sort();
        assert_eq!(sorted, expected);
        let ids: Vec<_> = whole.iter().filter(|f| f.kind() == "Event").map(|f| f.id().to_owned()).collect();
        let cursors: Vec<u64> = ids.iter().map(|id| id.split_once(':').unwrap().1.parse().unwrap()).collect();
        assert!(cursors.windows(2).all(|two| two[0] < two[1]), "a cursor is a growing decimal");
        for (n, id) in ids.iter().enumerate().take(ids.len() - 1) {
            let rest = read_frames(&client, &path, Some(id), 1).await;
            assert_eq!(events(&rest)[..], events(&whole)[n + 1..][..1], "cut after {id}");
        }
        let mut prev = BTreeMap::new();
        for frame in whole.iter().filter(|f| f.kind() == "Event") {
            let last = prev.insert(frame.data["runId"].to_string(), frame.sequence()).unwrap_or(0);
            assert_eq!(frame.prev(), last, "{}", frame.data);
        }
        let ends: Vec<_> = whole.iter().filter(|f| f.kind() == "End").map(|f| f.data["runId"].clone()).collect();
        assert!(ends.is_empty() || ends == ["r3"]);
    }
}

#[tokio::test]
async fn a_session_s_stream_includes_later_runs_and_on_request_child_sessions() {
    let client = start_local().await;
    let mut all = client.open(Transport::Raw, "/v1/sessions/s/stream?frames=events&children=true", None).await;
    let mut own = client.open(Transport::Hyper, "/v1/sessions/s/stream?frames=events", None).await;
    post_facts(&client, "r1", "s", &[text(1, 0)]).await;
    assert_eq!(all.next_frame().await.data["runId"], "r1");
    let path = "/v1/runs/kid/facts?sessionId=child&parentSessionId=s";
    client.post(path, &[("content-type", "application/json")], json!([text(2, 0)]).to_string()).await.ok();
    assert_eq!(all.next_frame().await.data["runId"], "kid");
    client
        .post(
            "/v1/sessions/s/facts",
            &[("content-type", "application/json")],
            json!([fact("session.updated", json!({"title": "T"}))]).to_string(),
        )
        .await
        .ok();
    assert_eq!(all.next_frame().await.data["event"]["type"], "session.updated");
    post_facts(&client, "r2", "s", &[text(2, 0)]).await;
    assert_eq!(all.next_frame().await.data["runId"], "r2");
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(own.next_frame().await.data["runId"].clone());
    }
    assert_eq!(seen, [json!("r1"), Value::Null, json!("r2")]);
}

#[tokio::test]
async fn a_session_s_activities_equal_those_of_its_runs_in_every_way_of_reading() {
    let client = start_local().await;
    for (run, name) in [("a", "tool_progress_activity"), ("b", "hitl_approve")] {
        client.post_lines(&format!("/v1/runs/{run}/facts?source=awaken&sessionId=s"), to_ndjson(&recording(name))).await.ok();
        client.append(run, &[fact("run.finished", json!({}))]).await;
    }
    for audience in AUDIENCES {
        for query in ["", "&replay=deltas", "&surfaces=tool_ui,hitl"] {
            let path = format!("/v1/sessions/s/stream?audience={audience}{query}");
            let mut stream = client.open(Transport::Raw, &path, None).await;
            let mut screens = BTreeMap::<String, Screen>::new();
            let mut cursor = None;
            while screens.values().filter(|screen| screen.ended).count() < 2 {
                let frame = stream.next_frame().await;
                let run = frame.data["runId"].as_str().unwrap().to_owned();
                screens.entry(run).or_default().apply(&frame);
                cursor = frame.id.clone().or(cursor);
            }
            for (run, screen) in &screens {
                let rest = crate::activities::read_activities(&client, run, &format!("audience={audience}{query}")).await;
                assert_eq!(screen.shown(), rest, "{run} {audience} {query}");
                assert_eq!(screen.hydrated, 1);
            }
            // A reader that resumes gets only changed activities.
            let mut again = client.open(Transport::Raw, &path, cursor.as_deref()).await;
            client.append("b", &[fact("session.updated", json!({"title": "x"})), text(1, 1)]).await;
            let mut frame = again.next_frame().await;
            while frame.data["activityType"] != "message" && frame.data["activityType"] != "session" && query.is_empty() {
                assert_ne!(frame.data["runId"], if frame.kind() == "ActivitySnapshot" { "a" } else { "-" });
                frame = again.next_frame().await;
            }
        }
    }
}

#[tokio::test]
async fn sessions_are_listed_newest_first_by_page() {
    let client = start_local().await;
    for n in 0..5 {
        post_facts(&client, &format!("r{n}"), &format!("s{n}"), &[fact("run.started", json!({})), text(1, 0)]).await;
    }
    post_facts(&client, "r9", "s1", &[fact("action.required", json!({"actionId": "a", "kind": "tool_approval"}))]).await;
    client.append("r1", &[fact("session.updated", json!({"title": "Taxes", "pinned": true}))]).await;
    let first = client.get("/v1/sessions?limit=3&activation=7").await.ok();
    assert_eq!(first["activation"], "7");
    post_facts(&client, "r10", "s10", &[text(1, 0)]).await;
    let next = first["nextCursor"].as_str().unwrap();
    let second = client.get(&format!("/v1/sessions?limit=3&cursor={next}")).await.ok();
    let ids = |answer: &Value| -> Vec<String> {
        answer["sessions"].as_array().unwrap().iter().map(|s| s["sessionId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((ids(&first), ids(&second)), (vec!["s4".into(), "s3".into(), "s2".into()], vec!["s1".into(), "s0".into()]));
    assert_eq!(second["nextCursor"], Value::Null);
    let taxes = &second["sessions"][0];
    assert_eq!(
        (&taxes["title"], &taxes["status"], &taxes["pinned"], &taxes["counts"]),
        (
            &json!("Taxes"),
            &json!("waiting"),
            &json!(true),
            &json!({"runs": 2, "pendingActions": 1, "pendingActionsBelow": 0, "unanswered": 1})
        )
    );
    assert_eq!(second["sessions"][1]["preview"], "0 ");
}

#[tokio::test]
async fn a_session_s_snapshot_has_pending_actions_tasks_team_and_queue() {
    let client = start_local().await;
    let facts = [
        fact("run.started", json!({})),
        fact("action.required", json!({"actionId": "a", "payload": {"kind": "tool_approval"}})),
        fact("action.required", json!({"actionId": "hidden", "audience": "internal", "payload": {"kind": "tool_approval"}})),
        fact("task.changed", json!({"taskId": "t", "payload": {"title": "Dig", "status": "running"}})),
        fact("agent.spawned", json!({"agentId": "w", "payload": {"agentName": "worker", "status": "running"}})),
    ];
    post_facts(&client, "r", "s", &facts).await;
    let session = client.get("/v1/sessions/s").await.ok();
    assert_eq!(session["runs"][0]["status"], "waiting");
    let ids = |member: &str| -> Vec<&str> {
        session[member].as_array().unwrap().iter().map(|a| a["activityId"].as_str().unwrap()).collect()
    };
    assert_eq!((ids("pendingActions"), ids("tasks"), ids("team"), ids("queue")), (vec!["a"], vec!["t"], vec!["w"], vec![]));
    assert_eq!(session["counts"]["pendingActions"], 1);
    let internal = client.get("/v1/sessions/s?audience=internal").await.ok();
    assert_eq!(internal["counts"]["pendingActions"], 2);
    client.get("/v1/sessions/none").await.problem(404, "no_such_session");
    client.get("/v1/sessions/s/window?cursor=x").await.problem(400, "bad_cursor");
}

#[tokio::test]
async fn windows_go_back_through_all_runs_and_new_facts_do_not_move_them() {
    let client = start_local().await;
    for run in 0..3 {
        for n in 0..4 {
            let message = json!({"messageId": format!("{run}-{n}"), "text": "hi", "partId": "p"});
            let call = json!({"toolCallId": format!("{run}-{n}"), "toolName": "t"});
            post_facts(&client, &format!("r{run}"), "s", &[fact("text.delta", message), fact("tool.started", call)]).await;
        }
    }
    for (address, size, member) in [("window", "messages", "messages"), ("timeline", "limit", "items")] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/v1/sessions/s/{address}?{size}=5&cursor={cursor}")).await.ok();
            let ids: Vec<_> =
                page[member].as_array().unwrap().iter().map(|a| a["activityId"].as_str().unwrap().to_owned()).collect();
            seen.splice(0..0, ids);
            let late = fact("text.delta", json!({"messageId": format!("late{address}{}", seen.len()), "text": "x"}));
            post_facts(&client, "r2", "s", &[late]).await;
            assert_eq!(page["truncated"], !page["nextCursor"].is_null());
            match page["nextCursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break,
            }
        }
        let expected: Vec<_> = (0..3).flat_map(|run| (0..4).map(move |n| format!("{run}-{n}"))).collect();
        seen.retain(|id| !id.starts_with("late"));
        assert_eq!(seen, expected, "{address}");
    }
}

#[tokio::test]
async fn a_cursor_of_another_store_resets_each_run() {
    let client = start_local().await;
    write_three_runs(&client).await;
    let mut stream = client.open(Transport::Hyper, "/v1/stream?frames=events&runs=r1,r3", Some("00000000deadbeef:9999999")).await;
    for run in ["r1", "r3"] {
        let frame = stream.next_frame().await;
        assert_eq!((frame.kind(), &frame.data["reason"], &frame.data["runId"]), ("Reset", &json!("epoch"), &json!(run)));
    }
    assert_eq!(stream.next_frame().await.sequence(), 1);
    client.get("/v1/stream").await.problem(400, "bad_query");
}

#[tokio::test]
async fn a_reader_that_is_cut_anywhere_gets_the_end_of_each_run_when_it_resumes() {
    let client = start_local().await;
    let finished = || fact("run.finished", json!({}));
    for run in 1..=3 {
        post_facts(&client, &format!("r{run}"), "s", &[text(run, 0)]).await;
    }
    // Two runs end in one round; the audience sees nothing of the last fact of the third.
    post_facts(&client, "r1", "s", &[finished()]).await;
    post_facts(&client, "r2", "s", &[text(2, 1), finished()]).await;
    post_facts(&client, "r3", "s", &[finished(), text(3, 2)]).await;
    for kind in ["events", "activities"] {
        let path = format!("/v1/sessions/s/stream?frames={kind}&audience=user");
        let is_end = |frame: &&Frame| frame.kind() == "End";
        let ends = |frames: &[Frame]| -> Vec<String> {
            frames.iter().filter(is_end).map(|frame| frame.data["runId"].as_str().unwrap().to_owned()).collect()
        };
        let mut stream = client.open(Transport::Hyper, &path, None).await;
        let mut whole = Vec::new();
        while ends(&whole).len() < 3 {
            whole.push(stream.next_frame().await);
        }
        for cut in 0..=whole.len() {
            let cursor = whole[..cut].iter().rev().find_map(|frame| frame.id.clone());
            let mut again = client.open(TRANSPORTS[cut % 2], &path, cursor.as_deref()).await;
            let mut rest = Vec::new();
            // Everything that the cursor leaves open comes before the second of two later facts.
            for marker in ["one", "two"] {
                let marker = format!("{kind}-{cut}-{marker}");
                post_facts(&client, &marker, "s", &[text(4, 0)]).await;
                while rest.last().is_none_or(|frame: &Frame| frame.data["runId"] != marker) {
                    rest.push(again.next_frame().await);
                }
            }
            let mut seen = [ends(&whole[..cut]), ends(&rest)].concat();
            seen.sort();
            if kind == "activities" {
                // A round that is cut comes again as a whole.
                seen.dedup();
            }
            assert_eq!(seen, ["r1", "r2", "r3"], "{kind}, cut after {cut} of {whole:#?}");
        }
    }
}

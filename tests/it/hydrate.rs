//! Lists and pages: complete and without repetitions during concurrent writes.

use crate::harness::{AUDIENCES, fact, recording, start_local, to_ndjson};
use serde_json::{Value, json};

fn text(words: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": words}}))
}

#[tokio::test]
async fn a_surface_that_does_not_exist_is_rejected_with_those_that_do() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({}))]).await;
    for path in ["events", "activities", "stream", "export"] {
        for query in ["surfaces=conversation,run", "surface=nowhere"] {
            let problem = client.get(&format!("/v1/runs/r/{path}?{query}")).await.problem(400, "bad_query");
            assert_eq!(problem["expected"], json!(proscenium::model::Surface::NAMES), "{path}?{query}");
            assert!(problem["detail"].as_str().unwrap().contains("runtime_status"), "{problem}");
        }
    }
    client.get("/v1/runs/r/activities?surfaces=unknown,custom,hitl").await.ok();
}

#[tokio::test]
async fn a_list_of_runs_is_newest_first_and_stable_while_runs_are_created() {
    let client = start_local().await;
    for n in 0..25 {
        client.append(&format!("old-{n}"), &[text("a")]).await;
    }
    let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = client.get(&format!("/v1/runs?limit=4{cursor}&activation=tab-{pages}")).await.ok();
        assert_eq!(page["activation"], format!("tab-{pages}"));
        seen.extend(
            page["runs"]
                .as_array()
                .expect("a page has runs")
                .iter()
                .map(|run| run["runId"].as_str().expect("a run has an id").to_owned()),
        );
        client.append(&format!("new-{pages}"), &[text("a")]).await;
        client.append("old-3", &[text("b")]).await;
        pages += 1;
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let expected: Vec<String> = (0..25).rev().map(|n| format!("old-{n}")).collect();
    assert_eq!((seen, pages), (expected, 7));
    let all = client.get("/v1/runs").await.ok();
    assert_eq!(
        (all["runs"].as_array().map(Vec::len), &all["nextCursor"], &all["runs"][0]["runId"]),
        (Some(32), &Value::Null, &json!("new-6"))
    );
    assert_eq!(client.get("/v1/runs?limit=32").await.ok()["nextCursor"], Value::Null, "a full last page has no cursor");
    assert_eq!(client.get("/v1/runs?limit=0").await.ok()["runs"].as_array().map(Vec::len), Some(1));
    for query in ["limit=x", "limit=-1", "cursor=x"] {
        client.get(&format!("/v1/runs?{query}")).await.problem(400, "bad_query");
    }
}

#[tokio::test]
async fn a_run_has_the_same_description_in_a_list_and_by_itself() {
    let client = start_local().await;
    assert_eq!(client.get("/v1/runs").await.ok(), json!({"runs": [], "nextCursor": null}));
    let facts = [
        fact("run.started", json!({"sessionId": "s", "threadId": "t", "parentSessionId": "ps"})),
        fact("tool.progress", json!({"toolCallId": "c"})),
        fact("action.required", json!({"actionId": "a"})),
    ];
    let epoch = client.append("r", &facts).await["epoch"].clone();
    for audience in AUDIENCES {
        let run = client.get(&format!("/v1/runs/r?audience={audience}")).await.ok();
        assert_eq!(client.get(&format!("/v1/runs?audience={audience}")).await.ok()["runs"], json!([run]));
        let expected = [
            ("runId", json!("r")),
            ("sessionId", json!("s")),
            ("threadId", json!("t")),
            ("parentSessionId", json!("ps")),
            ("status", json!("waiting")),
            ("phase", json!("waiting")),
            ("attempt", json!(1)),
            ("epoch", epoch.clone()),
            ("lastSequence", json!(3)),
        ];
        for (member, value) in expected {
            assert_eq!(run[member], value, "{member}");
        }
        let events = if audience == "internal" { 3 } else { 2 };
        assert_eq!(run["counts"], json!({"events": events, "pendingActions": 1}));
        assert!(run["startedAt"].is_string() && run["lastActivity"].is_string() && run.get("endedAt").is_none(), "{run}");
    }
    client.append("r", &[fact("run.finished", json!({}))]).await;
    for path in ["/v1/runs", "/v1/runs/r", "/v1/runs/r/events", "/v1/runs/r/export"] {
        assert_eq!(client.get(path).await.headers["cache-control"], "no-store", "{path}");
    }
    let run = client.get("/v1/runs/r?activation=7").await.ok();
    assert_eq!(
        (&run["status"], &run["counts"]["pendingActions"], &run["activation"]),
        (&json!("completed"), &json!(0), &json!("7"))
    );
    assert!(run["endedAt"].is_string());
}

#[tokio::test]
async fn the_last_activity_of_a_run_is_the_last_that_the_audience_sees() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
    let shown = async |audience: &str| {
        let of = |answer: Value, member: &str| answer[member][0]["lastActivity"].clone();
        [
            client.get(&format!("/v1/runs/r?audience={audience}")).await.ok()["lastActivity"].clone(),
            of(client.get(&format!("/v1/runs?audience={audience}")).await.ok(), "runs"),
            of(client.get(&format!("/v1/sessions/s?audience={audience}")).await.ok(), "runs"),
            of(client.get(&format!("/v1/sessions?audience={audience}")).await.ok(), "sessions"),
        ]
    };
    let before = shown("user").await;
    assert!(before.iter().all(|time| time.is_string() && *time == before[0]), "{before:?}");
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    client.append("r", &[fact("text.delta", json!({ "audience": "dashboard", "payload": { "text": "hidden" } }))]).await;
    assert_eq!(shown("user").await, before);
    let hidden = shown("dashboard").await;
    assert!(hidden.iter().all(|time| *time == hidden[0] && time.as_str() > before[0].as_str()), "{hidden:?}");
    assert_eq!(shown("internal").await, hidden);
}

#[tokio::test]
async fn an_unknown_run_is_404() {
    let client = start_local().await;
    for path in ["/v1/runs/r", "/v1/runs/r/events", "/v1/runs/r/export"] {
        client.get(path).await.problem(404, "no_such_run");
    }
    client.get("/v1/blobs/none").await.problem(404, "no_such_blob");
    for path in
        [format!("/v1/runs/{}", "x".repeat(257)), "/v1/runs/%0A".into(), "/v1/runs/a%FF/events".into(), "/v1/blobs/%00".into()]
    {
        client.get(&path).await.problem(400, "bad_id");
    }
}

#[tokio::test]
async fn paging_in_either_direction_gives_each_event_once_and_in_order() {
    let client = start_local().await;
    let facts = recording("multi_tool_sequential");
    client.post_lines("/v1/runs/r/facts?source=awaken", to_ndjson(&facts)).await.ok();
    let everything = client.read_events("r", "audience=internal", 1000).await;
    assert!(everything.len() > 50);
    for audience in AUDIENCES {
        for filter in
            ["", "type=tool.started,tool.result", "surface=tool_ui", "surfaces=tool_ui,conversation", "type=nothing.known"]
        {
            let query = format!("audience={audience}&{filter}");
            let whole = client.read_events("r", &query, 1000).await;
            for limit in [1, 3, 1000] {
                assert_eq!(client.read_events("r", &query, limit).await, whole, "{query} by {limit}");
                assert_eq!(client.read_events_backward("r", &query, limit).await, whole, "{query} backward by {limit}");
            }
            let one_of = |list: &str, value: &Value| list.split(',').any(|name| value == name);
            match filter.split_once('=') {
                Some(("type", list)) => assert!(whole.iter().all(|event| one_of(list, &event["type"]))),
                Some((_, list)) => assert!(!whole.is_empty() && whole.iter().all(|event| one_of(list, &event["surface"]))),
                None => assert!(!whole.is_empty()),
            }
        }
    }
}

#[tokio::test]
async fn page_bounds_are_sequences_or_cursors_and_apply_on_both_sides() {
    let client = start_local().await;
    let facts: Vec<Value> = (0..20).map(|n| text(&n.to_string())).collect();
    let epoch = client.append("r", &facts).await["epoch"].as_str().expect("the receipt has an epoch").to_owned();
    let page = async |query: &str| {
        let page = client.get(&format!("/v1/runs/r/events?{query}")).await.ok();
        let numbers: Vec<u64> =
            page["events"].as_array().expect("a page has events").iter().filter_map(|event| event["sequence"].as_u64()).collect();
        (numbers, page["nextCursor"].as_str().map(str::to_owned), page["truncated"].as_bool() == Some(true))
    };
    assert_eq!(page("after=17").await, (vec![18, 19, 20], None, false));
    assert_eq!(page("after=20").await, (vec![], None, false));
    assert_eq!(page("after=2000").await, (vec![], None, false));
    assert_eq!(page("before=4").await, (vec![1, 2, 3], None, false));
    assert_eq!(page("before=1").await, (vec![], None, false));
    assert_eq!(page("before=0").await, (vec![], None, false));
    assert_eq!(page("before=18446744073709551615&limit=2").await, (vec![19, 20], Some(format!("{epoch}:38")), true));
    assert_eq!(page("after=5&before=8").await, (vec![6, 7], None, false));
    let (first, next, truncated) = page("after=5&before=9&limit=2").await;
    assert_eq!((first, truncated), (vec![6, 7], true));
    assert_eq!(
        page(&format!("after={}&before=9&limit=2", next.expect("the page has a next cursor"))).await,
        (vec![8], None, false)
    );
    assert_eq!(page("after=&before=&limit=1").await.0, [1]);
    // A stream's cursor is valid for a page.
    assert_eq!(page(&format!("after={epoch}:38")).await.0, [20]);
    client.get("/v1/runs/r/events?after=nonsense").await.problem(400, "bad_cursor");
    client.get("/v1/runs/r/events?before=-1").await.problem(400, "bad_cursor");
    let other = if epoch.starts_with('0') { epoch.replacen('0', "1", 1) } else { format!("0{}", &epoch[1..]) };
    let problem = client.get(&format!("/v1/runs/r/events?after={other}:2")).await.problem(410, "epoch_changed");
    assert_eq!(problem["expected"], epoch);
}

#[tokio::test]
async fn a_page_has_at_most_a_thousand_events_and_echoes_its_activation() {
    let client = start_local().await;
    let facts: Vec<Value> = (0..1203).map(|n| text(&n.to_string())).collect();
    client.post_lines("/v1/runs/r/facts", to_ndjson(&facts)).await.ok();
    for query in ["", "limit=5000", "limit=1000", "limit=1000000000000"] {
        let page = client.get(&format!("/v1/runs/r/events?activation=a%26b&{query}")).await;
        assert_eq!(
            (&page.headers["content-type"], &page.headers["cache-control"]),
            (&"application/json".parse().expect("a header value"), &"no-store".parse().expect("a header value"))
        );
        let page = page.ok();
        assert_eq!(
            (page["events"].as_array().map(Vec::len), &page["truncated"], &page["activation"]),
            (Some(1000), &json!(true), &json!("a&b"))
        );
    }
    assert_eq!(client.read_events("r", "", 1000).await.len(), 1203);
    assert_eq!(client.read_events_backward("r", "", 999).await.len(), 1203);
    let newest = client.get("/v1/runs/r/events?before=5000").await.ok();
    assert_eq!((newest["events"].as_array().map(Vec::len), &newest["events"][999]["sequence"]), (Some(1000), &json!(1203)));
}

#[tokio::test]
async fn a_sparse_filter_on_a_long_run_finds_its_events_from_either_end() {
    let client = start_local().await;
    let kind = |n: usize| if n.is_multiple_of(2) { "text.delta" } else { "task.changed" };
    let facts: Vec<Value> = (0..2600).map(|n| fact(kind(n), json!({"messageId": "m", "partId": "p"}))).collect();
    client.post_lines("/v1/runs/r/facts", to_ndjson(&facts)).await.ok();
    client.append("r", &[fact("run.finished", json!({}))]).await;
    for (class, first) in [("text.delta", 1), ("task.changed", 2)] {
        let query = format!("type={class}");
        let expected: Vec<u64> = (first..=2600).step_by(2).collect();
        for limit in [700, 1000] {
            for events in [client.read_events("r", &query, limit).await, client.read_events_backward("r", &query, limit).await] {
                assert_eq!(events.iter().filter_map(|event| event["sequence"].as_u64()).collect::<Vec<_>>(), expected);
            }
        }
    }
    assert_eq!(client.read_events_backward("r", "type=run.finished", 5).await[0]["sequence"], 2601);
    assert_eq!(
        client.read_events_backward("r", "type=run.started", 5).await,
        client.read_events("r", "type=run.started", 5).await
    );
}

#[tokio::test]
async fn pages_are_stable_while_the_run_is_written() {
    let client = start_local().await;
    let facts: Vec<Value> = (0..70).map(|n| text(&n.to_string())).collect();
    client.append("r", &facts[..40]).await;
    let (mut seen, mut after) = (Vec::new(), String::new());
    for written in 40..70 {
        let page = client.get(&format!("/v1/runs/r/events?limit=2&after={after}")).await.ok();
        seen.extend(page["events"].as_array().expect("a page has events").iter().filter_map(|event| event["sequence"].as_u64()));
        after = page["nextCursor"].as_str().expect("the page has a next cursor").to_owned();
        client.append("r", &facts[written..=written]).await;
    }
    assert_eq!(seen, (1..=60).collect::<Vec<u64>>());
}

#[tokio::test]
async fn an_export_has_the_reader_s_view_of_the_run_and_can_be_imported() {
    let client = start_local().await;
    let facts = recording("subagent_progress_forwarded");
    client.post_lines("/v1/runs/r/facts?source=awaken", to_ndjson(&facts)).await.ok();
    let exported = client.export("r", "audience=internal").await;
    assert_eq!(exported, client.read_events("r", "audience=internal", 1000).await);
    assert_eq!(
        client.export("r", "audience=internal&type=tool.started").await,
        client.read_events("r", "audience=internal&type=tool.started", 1000).await
    );
    let receipt = client.post_lines("/v1/runs/copy/facts", to_ndjson(&exported)).await.ok();
    assert_eq!((&receipt["accepted"], &receipt["violations"]), (&json!(exported.len()), &Value::Null));
    for audience in AUDIENCES {
        let query = format!("audience={audience}");
        let bodies = async |run: &str| -> Vec<Value> {
            let events = client.read_events(run, &query, 1000).await;
            events
                .iter()
                .map(|event| {
                    json!([
                        event["type"],
                        event["payload"],
                        event["audience"],
                        event["startAudience"],
                        event["toolCallId"],
                        event["messageId"]
                    ])
                })
                .collect()
        };
        assert_eq!(bodies("copy").await, bodies("r").await, "{audience}");
    }
}

#[tokio::test]
async fn unknown_addresses_are_problems_and_schemas_are_served() {
    let client = start_local().await;
    client.get("/v2/runs").await.problem(404, "no_such_address");
    client.get("/v1/runs/r/facts").await.problem(405, "method_not_allowed");
    client.post("/v1/runs", &[], "").await.problem(405, "method_not_allowed");
    assert_eq!(client.get("/healthz").await.ok()["status"], "ok");
    assert_eq!(client.get("/readyz").await.ok()["status"], "ready");
    for (name, document) in proscenium::model::schema::documents() {
        assert_eq!(client.get(&format!("/schema/{name}")).await.ok(), document);
    }
    client.get("/schema/none.json").await.problem(404, "no_such_schema");
}

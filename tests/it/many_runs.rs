//! Many runs: one list over all of them, filtered, sorted and counted, and what an audience sees of their figures.

use crate::harness::{Client, Process, environment, fact, serve_until, start_local};
use crate::search::until_indexed;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::cell::Cell;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const START_MS: i64 = 1_772_000_000_000;

thread_local! {
    /// The time of a test's server, which runs on the test's own thread.
    static NOW: Cell<i64> = const { Cell::new(START_MS) };
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(NOW.get()).unwrap()
}

fn pass(ms: i64) {
    NOW.set(NOW.get() + ms);
}

/// A server whose clock a test sets forward.
async fn start_clocked() -> Client {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let server = Server::new(Storage::memory(), Policy::default(), sizes, limits, pulse, environment(now)).unwrap();
    serve_until(server, std::future::pending()).await.0
}

async fn post(client: &Client, run: &str, query: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?{query}");
    client.post(&path, &[("content-type", "application/json")], Value::from(facts).to_string()).await.ok();
}

fn starts(agent: &str) -> Value {
    fact("run.started", json!({ "agentId": agent }))
}

fn ends() -> Value {
    fact("run.finished", json!({}))
}

fn fails(message: &str) -> Value {
    fact("run.failed", json!({ "payload": { "error": { "message": message } } }))
}

/// A model call that users do not see.
fn costs(input: u64, output: u64, cost: f64) -> Value {
    let usage = json!({ "inputTokens": input, "outputTokens": output, "costUsd": cost });
    fact("metric.changed", json!({ "audience": "dashboard", "payload": { "kind": "llm_call", "usage": usage } }))
}

fn says(text: &str) -> Value {
    fact("text.final", json!({ "messageId": "m", "payload": { "role": "user", "text": text } }))
}

fn asks(action: &str) -> Value {
    fact("action.required", json!({ "actionId": action, "payload": { "kind": "tool_approval", "title": format!("{action}?") } }))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// An answer about the runs of a filter, with everything that operators see.
async fn list(client: &Client, filter: &str, more: &str) -> Value {
    client.get(&format!("/v1/runs?filter={}&audience=internal&{more}", encoded(filter))).await.ok()
}

fn names(answer: &Value) -> Vec<&str> {
    answer["runs"].as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap()).collect()
}

/// Five runs of different agents, costs and durations.
async fn example_runs(client: &Client) {
    post(client, "cheap", "sessionId=s1", &[starts("coder"), costs(900, 100, 0.01)]).await;
    pass(MINUTE_MS);
    post(client, "cheap", "", &[ends()]).await;
    post(client, "dear", "sessionId=s1", &[starts("coder"), costs(40_000, 2_000, 1.25), costs(1, 1, 0.25)]).await;
    pass(10 * MINUTE_MS);
    post(client, "dear", "", &[fails("The runner ran out of disk space")]).await;
    post(client, "asking", "sessionId=s2", &[starts("writer"), says("Publish the notes"), asks("publish")]).await;
    pass(HOUR_MS);
    post(client, "plain", "", &[fact("run.started", json!({ "payload": { "title": "Nightly" } }))]).await;
    let started = json!({ "type": "RUN_STARTED", "threadId": "s3", "runId": "ag" });
    post(client, "ag", "source=ag-ui&sessionId=s3", &[started]).await;
}

#[tokio::test]
async fn a_filter_finds_runs_and_counts_each_facet_over_what_the_other_conditions_leave() {
    let client = start_clocked().await;
    example_runs(&client).await;
    let all = list(&client, "", "").await;
    assert_eq!(names(&all), ["ag", "plain", "asking", "dear", "cheap"], "the newest first");
    assert_eq!(all["total"], 5);
    let facets = json!({
        "status": { "accepted": 2, "waiting": 1, "completed": 1, "failed": 1 },
        "agent": { "coder": 2, "default": 2, "writer": 1 },
        "source": { "agentui": 4, "ag-ui": 1 },
        "owner": {},
    });
    assert_eq!(all["facets"], facets);
    for (filter, expected) in [
        ("status:failed", vec!["dear"]),
        ("status:failed,waiting", vec!["asking", "dear"]),
        ("status:failed status:waiting agent:coder", vec!["dear"]),
        ("agent:default -source:ag-ui", vec!["plain"]),
        ("source:ag*", vec!["ag", "plain", "asking", "dear", "cheap"]),
        ("cost:>1", vec!["dear"]),
        ("cost:<=1.5 tokens:1k..50k", vec!["dear", "cheap"]),
        ("duration:>5m", vec!["dear"]),
        ("-duration:>0s", vec!["ag", "plain", "asking"]),
        ("since:30m", vec!["ag", "plain"]),
        ("session:s1 run:c*", vec!["cheap"]),
        ("owner:acme", vec![]),
        ("-owner:*", vec!["ag", "plain", "asking", "dear", "cheap"]),
    ] {
        let found = list(&client, filter, "").await;
        assert_eq!(names(&found), expected, "{filter}");
        assert_eq!(found["total"], expected.len(), "{filter}");
    }
    let coders = list(&client, "agent:coder status:failed", "").await;
    assert_eq!(coders["facets"]["status"], json!({ "completed": 1, "failed": 1 }), "of all coders");
    assert_eq!(coders["facets"]["agent"], json!({ "coder": 1 }), "of all failed ones");
    assert_eq!(coders["facets"]["source"], json!({ "agentui": 1 }), "of failed coders");
}

#[tokio::test]
async fn an_order_puts_runs_without_the_value_last_and_its_pages_have_each_run_once() {
    let client = start_clocked().await;
    example_runs(&client).await;
    for (sort, expected) in [
        ("-cost", ["dear", "cheap", "ag", "plain", "asking"]),
        ("cost", ["cheap", "dear", "ag", "plain", "asking"]),
        ("-tokens", ["dear", "cheap", "ag", "plain", "asking"]),
        ("duration", ["cheap", "dear", "ag", "plain", "asking"]),
        ("-ended", ["dear", "cheap", "ag", "plain", "asking"]),
        ("started", ["cheap", "dear", "asking", "ag", "plain"]),
        ("-started", ["ag", "plain", "asking", "dear", "cheap"]),
        ("", ["ag", "plain", "asking", "dear", "cheap"]),
    ] {
        for limit in [1, 2, 5, 9] {
            let (mut found, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = list(&client, "", &format!("sort={sort}&limit={limit}&cursor={cursor}")).await;
                assert_eq!(page["total"], 5);
                found.extend(names(&page).into_iter().map(str::to_owned));
                match page["nextCursor"].as_str() {
                    Some(next) => cursor = next.to_owned(),
                    None => break,
                }
            }
            assert_eq!(found, expected, "{sort} by {limit}");
        }
    }
    for (query, member) in [("sort=price", "sort"), ("sort=cost&cursor=1", "cursor"), ("sort=cost&cursor=-cost.1.1", "cursor")] {
        assert_eq!(client.get(&format!("/v1/runs?{query}")).await.problem(400, "bad_query")["member"], member, "{query}");
    }
    let problem = client.get("/v1/runs?filter=agent:a%20status:fialed").await.problem(400, "bad_query");
    assert_eq!((&problem["member"], &problem["term"]), (&json!("filter"), &json!("status:fialed")));
    assert!(problem["expected"].as_str().unwrap().contains("failed"), "{problem}");
}

#[tokio::test]
async fn a_page_begins_at_any_place_of_the_order_and_goes_on_from_there() {
    let client = start_clocked().await;
    example_runs(&client).await;
    let order = ["dear", "cheap", "ag", "plain", "asking"];
    for offset in 0..=6 {
        let page = list(&client, "", &format!("sort=-cost&limit=2&offset={offset}")).await;
        let expected = &order[offset.min(5)..(offset + 2).min(5)];
        assert_eq!((names(&page).as_slice(), &page["total"]), (expected, &json!(5)), "from {offset}");
        let Some(cursor) = page["nextCursor"].as_str() else { continue };
        let rest = list(&client, "", &format!("sort=-cost&cursor={cursor}")).await;
        assert_eq!(names(&rest), order[offset + 2..], "the rest after {offset}");
        let one = list(&client, "", &format!("sort=-cost&limit=1&cursor={cursor}&offset=1")).await;
        assert_eq!(names(&one).first(), order.get(offset + 3), "it counts from the cursor");
    }
    let alone = client.get("/v1/runs?offset=4").await.ok();
    assert_eq!((names(&alone), &alone["total"]), (vec!["cheap"], &json!(5)));
    for query in ["offset=-1", "offset=1&filter=disk"] {
        assert_eq!(client.get(&format!("/v1/runs?{query}")).await.problem(400, "bad_query")["member"], "offset", "{query}");
    }
}

#[tokio::test]
async fn a_run_shows_what_it_cost_to_those_who_see_it_and_why_it_needs_a_look() {
    let client = start_clocked().await;
    example_runs(&client).await;
    let all = list(&client, "", "sort=started").await;
    let [cheap, dear, asking, ag, plain] = all["runs"].as_array().unwrap().as_slice() else { panic!("{all}") };
    assert_eq!(cheap["usage"], json!({ "inputTokens": 900, "outputTokens": 100, "costUsd": 0.01 }));
    assert_eq!((&cheap["durationMs"], &cheap["agentId"]), (&json!(MINUTE_MS), &json!("coder")));
    assert_eq!(dear["usage"], json!({ "inputTokens": 40_001, "outputTokens": 2_001, "costUsd": 1.5 }));
    assert_eq!(dear["highlight"], json!({ "kind": "error", "text": "The runner ran out of disk space" }));
    assert_eq!(asking["highlight"], json!({ "kind": "question", "text": "publish?" }));
    assert_eq!((&asking["title"], &plain["title"]), (&json!("Publish the notes"), &json!("Nightly")));
    for run in [asking, ag, plain] {
        assert_eq!((run.get("usage"), run.get("durationMs")), (None, None), "absent, not 0: {run}");
    }
    let seen = client.get("/v1/runs?filter=cost:>0&audience=user").await.ok();
    assert_eq!((&seen["total"], &seen["facets"]["agent"]), (&json!(0), &json!({})), "users do not see what it cost");
    let seen = client.get("/v1/runs?sort=-cost&audience=user").await.ok();
    assert!(seen["runs"].as_array().unwrap().iter().all(|run| run.get("usage").is_none()), "{seen}");
    let one = client.get("/v1/runs/dear?audience=dashboard").await.ok();
    assert_eq!((&one["usage"]["costUsd"], &one["agentId"]), (&json!(1.5), &json!("coder")));
}

#[tokio::test]
async fn a_list_without_a_filter_and_an_order_answers_as_before() {
    let client = start_local().await;
    post(&client, "r1", "", &[starts("a"), says("Hello"), fails("broken")]).await;
    let plain = client.get("/v1/runs").await.ok();
    let members: Vec<&str> = plain.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((members, &plain["nextCursor"]), (vec!["runs", "nextCursor"], &Value::Null));
    let run = &plain["runs"][0];
    assert_eq!((run.get("title"), run.get("highlight")), (None, None), "they would cost a read of the log");
    assert_eq!(run["agentId"], "a");
    client.get("/v1/runs?cursor=x").await.problem(400, "bad_query");
}

#[tokio::test]
async fn words_find_runs_by_their_texts_and_titles_and_show_the_match() {
    let client = start_local().await;
    post(&client, "r1", "", &[says("Please free the disk space"), ends()]).await;
    post(&client, "r2", "", &[says("disk"), fact("run.status", json!({ "payload": { "message": "space" } }))]).await;
    post(&client, "r3", "", &[fact("run.started", json!({ "payload": { "title": "Disk space report" } }))]).await;
    let inner = json!({ "messageId": "m", "audience": "internal", "payload": { "text": "secret disk space" } });
    post(&client, "r4", "", &[fact("text.final", inner)]).await;
    until_indexed(&client).await;
    let found = client.get("/v1/runs?filter=%22disk%20space%22").await.ok();
    assert_eq!((names(&found), &found["total"]), (vec!["r3", "r1"], &json!(2)), "no text of r2 has both words, r4 is hidden");
    assert_eq!(found["runs"][1]["highlight"]["kind"], "match");
    assert_eq!(found["runs"][1]["highlight"]["text"], "Please free the disk space");
    assert_eq!(found["runs"][0].get("highlight"), None, "its title matches");
    assert_eq!(found["facets"]["status"], json!({ "accepted": 1, "completed": 1 }));
    let ended = client.get("/v1/runs?filter=space%20status:completed&limit=1&sort=-started").await.ok();
    assert_eq!((names(&ended), &ended["total"]), (vec!["r1"], &json!(1)));
    assert_eq!(names(&list(&client, "secret disk", "").await), ["r4"]);
    assert_eq!(names(&list(&client, "disk", "sort=started&limit=2").await).len(), 2);
    assert_eq!(names(&list(&client, "absent", "").await), Vec::<&str>::new());
    for (run, error) in [("r5", json!({ "code": "x", "message": "The runner broke" })), ("r6", json!("A runner stopped"))] {
        post(&client, run, "", &[fact("run.failed", json!({ "payload": { "error": error } }))]).await;
    }
    until_indexed(&client).await;
    let failed = client.get("/v1/runs?filter=runner%20status:failed").await.ok();
    assert_eq!(names(&failed), ["r6", "r5"]);
    assert_eq!(failed["runs"][1]["highlight"]["text"], "The runner broke");
}

#[tokio::test]
async fn an_erased_run_leaves_the_list_and_its_counts_and_another_of_its_id_begins_anew() {
    let client = start_clocked().await;
    example_runs(&client).await;
    assert_eq!(client.delete("/v1/runs/dear").await.status, 204);
    let left = list(&client, "", "").await;
    assert_eq!((names(&left), &left["total"]), (vec!["ag", "plain", "asking", "cheap"], &json!(4)));
    assert_eq!(left["facets"]["agent"], json!({ "coder": 1, "default": 2, "writer": 1 }));
    assert_eq!(names(&list(&client, "cost:>1", "").await), Vec::<&str>::new());
}

#[tokio::test]
async fn figures_survive_a_restart_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    post(&client, "r1", "sessionId=s", &[starts("coder"), costs(10, 2, 0.5), asks("a")]).await;
    post(&client, "r1", "", &[fact("action.resolved", json!({ "actionId": "a", "payload": { "outcome": "approved" } }))]).await;
    let before = list(&client, "source:agentui cost:>0.4", "").await;
    assert_eq!((names(&before), &before["runs"][0]["usage"]["costUsd"]), (vec!["r1"], &json!(0.5)));
    server.kill();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    assert_eq!(list(&client, "source:agentui cost:>0.4", "").await, before);
    post(&client, "r1", "", &[costs(1, 1, 0.5), ends()]).await;
    let after = list(&client, "cost:1..1", "").await;
    let usage = json!({ "inputTokens": 11, "outputTokens": 3, "costUsd": 1.0 });
    assert_eq!(after["runs"][0]["usage"], usage, "the sum goes on where it was");
}

#[tokio::test]
async fn a_compaction_leaves_the_figures() {
    let (client, compactor) = crate::retention::start_with_stopped_clock().await;
    let delta = |text: &str| fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } }));
    let end = fact("text.final", json!({ "messageId": "m", "payload": { "text": "alpha beta" } }));
    post(&client, "r", "sessionId=s", &[starts("a"), delta("alpha "), delta("beta"), end, costs(7, 3, 0.25), ends()]).await;
    let before = list(&client, "", "").await["runs"][0]["usage"].clone();
    assert!(compactor.run_once().await.unwrap().rows > 0);
    let after = list(&client, "cost:>0", "").await;
    assert_eq!((&after["runs"][0]["usage"], &after["runs"][0]["compacted"]), (&before, &json!(true)));
    post(&client, "r", "", &[starts("a"), costs(1, 0, 0.25)]).await;
    assert_eq!(list(&client, "cost:>0", "").await["runs"][0]["usage"]["costUsd"], 0.5);
}

#[tokio::test]
async fn a_list_of_thousands_has_each_run_once_in_every_order() {
    let client = start_local().await;
    for n in 0..3000_u64 {
        let mut facts = vec![starts(&format!("agent-{}", n % 7)), costs(n % 11, 0, 0.001)];
        if n % 3 == 0 {
            facts.push(ends());
        }
        post(&client, &format!("r{n}"), "", &facts).await;
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = list(&client, "agent:agent-1,agent-2", &format!("sort=-tokens&limit=100&cursor={cursor}")).await;
        found.extend(page["runs"].as_array().unwrap().iter().map(|run| {
            (run["usage"]["inputTokens"].as_u64().unwrap(), run["runId"].as_str().unwrap()[1..].parse::<u64>().unwrap())
        }));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    let mut expected: Vec<_> = (0..3000).filter(|n| [1, 2].contains(&(n % 7))).map(|n| (n % 11, n)).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(found, expected);
    let facets = list(&client, "status:completed", "limit=1").await["facets"].clone();
    assert_eq!(facets["status"], json!({ "accepted": 2000, "completed": 1000 }));
}

#[tokio::test]
async fn statistics_count_what_started_since_a_time_in_total_and_by_bucket() {
    let client = start_clocked().await;
    example_runs(&client).await;
    post(
        &client,
        "asking",
        "",
        &[fact("action.resolved", json!({ "actionId": "publish", "payload": { "outcome": "approved" } }))],
    )
    .await;
    let stats = async |query: &str| client.get(&format!("/v1/stats?audience=internal&{query}")).await.ok();
    let all = stats("").await;
    assert_eq!(all["buckets"], json!([]));
    let total = json!({
        "runs": 5,
        "status": { "accepted": 2, "running": 1, "completed": 1, "failed": 1 },
        "usage": { "inputTokens": 40_901, "outputTokens": 2_101, "costUsd": 1.51 },
        "durationMs": { "count": 2, "p50": MINUTE_MS, "p95": 10 * MINUTE_MS },
        "waitedMs": { "count": 1, "p50": HOUR_MS, "p95": HOUR_MS },
    });
    assert_eq!(all["total"], total);
    let recent = stats("since=30m").await;
    assert_eq!((&recent["total"]["runs"], recent["total"].get("usage")), (&json!(2), None));
    let by_agent = stats("by=agent").await;
    let agents: Vec<_> = by_agent["buckets"].as_array().unwrap().iter().map(|of| (&of["key"]["agent"], &of["runs"])).collect();
    assert_eq!(agents, [(&json!("coder"), &json!(2)), (&json!("default"), &json!(2)), (&json!("writer"), &json!(1))]);
    let by_both = stats("by=hour,status&filter=agent:coder").await;
    let buckets = by_both["buckets"].as_array().unwrap();
    assert_eq!(buckets.iter().map(|of| of["runs"].as_u64().unwrap()).sum::<u64>(), 2);
    assert!(buckets.iter().all(|of| of["key"]["at"].as_str().unwrap().ends_with(":00:00.000Z")), "{buckets:?}");
    assert_eq!(by_both["total"]["durationMs"]["p95"], 10 * MINUTE_MS);
    let seen = client.get("/v1/stats").await.ok();
    assert_eq!((&seen["total"]["runs"], seen["total"].get("usage")), (&json!(5), None), "users do not see what it cost");
    for (query, member) in [
        ("since=soon", "since"),
        ("by=week", "by"),
        ("by=agent,status", "by"),
        ("filter=cost:1", "filter"),
        ("filter=disk", "filter"),
    ] {
        assert_eq!(client.get(&format!("/v1/stats?{query}")).await.problem(400, "bad_query")["member"], member, "{query}");
    }
}

#[tokio::test]
async fn an_action_waits_until_it_is_decided_and_what_ends_without_a_decision_is_no_wait() {
    let client = start_clocked().await;
    let resolved =
        |action: &str, outcome: &str| fact("action.resolved", json!({ "actionId": action, "payload": { "outcome": outcome } }));
    post(&client, "r", "sessionId=s", &[starts("a"), asks("one"), asks("two"), asks("three"), asks("four")]).await;
    pass(MINUTE_MS);
    post(&client, "r", "", &[resolved("one", "rejected"), resolved("two", "superseded")]).await;
    pass(MINUTE_MS);
    let approve = json!({ "control": "approve", "actionId": "three", "controlId": "c" }).to_string();
    let json = [("content-type", "application/json")];
    assert_eq!(client.post("/v1/runs/r/controls", &json, approve).await.status, 202);
    let claimed = client.post("/v1/agents/a/controls/claim?wait=0", &json, "").await.ok();
    assert_eq!(claimed["controls"][0]["actionId"], "three");
    pass(HOUR_MS);
    // The runtime answers an hour after the decision: the person decided after two minutes.
    post(&client, "r", "", &[resolved("three", "approved"), resolved("three", "approved"), resolved("four", "expired")]).await;
    let stats = client.get("/v1/stats?audience=internal").await.ok();
    assert_eq!(stats["total"]["waitedMs"], json!({ "count": 2, "p50": MINUTE_MS, "p95": 2 * MINUTE_MS }), "{stats}");
}

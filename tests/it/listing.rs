//! Session lists, counts of pending actions, and a session's activities and events.

use crate::harness::{AUDIENCES, Client, Process, Transport, environment, fact, recording, serve_until, start_local};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::maintenance::settle::StalenessLimits;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Posts facts to a run of a session, which may have a parent.
async fn post_facts(client: &Client, run: &str, session: &str, parent: &str, facts: &[Value]) {
    let parent = if parent.is_empty() { String::new() } else { format!("&parentSessionId={parent}") };
    let path = format!("/v1/runs/{run}/facts?sessionId={session}{parent}");
    client.post(&path, &[("content-type", "application/json")], Value::from(facts).to_string()).await.ok();
}

fn action_required(action: &str, audience: &str) -> Value {
    fact("action.required", json!({"actionId": action, "audience": audience, "payload": {"kind": "tool_approval"}}))
}

fn text_delta(text: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": text}}))
}

async fn list_sessions(client: &Client, query: &str) -> BTreeMap<String, Value> {
    let page = client.get(&format!("/v1/sessions?{query}")).await.ok();
    let line = |line: &Value| (line["sessionId"].as_str().unwrap().to_owned(), line.clone());
    page["sessions"].as_array().unwrap().iter().map(line).collect()
}

/// Reads the sessions' pending actions: including descendants, and of descendants alone.
async fn read_pending(client: &Client, audience: &str) -> BTreeMap<String, [u64; 2]> {
    let lines = list_sessions(client, &format!("audience={audience}")).await;
    let counts = |line: &Value| ["pendingActions", "pendingActionsBelow"].map(|name| line["counts"][name].as_u64().unwrap());
    let counted = lines.iter().map(|(session, line)| (session.clone(), counts(line)));
    let counted: BTreeMap<_, _> = counted.filter(|(_, counts)| *counts != [0, 0]).collect();
    for session in lines.keys() {
        let shell = client.get(&format!("/v1/sessions/{session}?audience={audience}")).await.ok();
        assert_eq!(
            counts(&shell),
            counted.get(session).copied().unwrap_or_default(),
            "the snapshot of {session} has the same counts"
        );
    }
    counted
}

fn counts(of: &[(&str, [u64; 2])]) -> BTreeMap<String, [u64; 2]> {
    of.iter().map(|(session, counts)| ((*session).to_owned(), *counts)).collect()
}

#[tokio::test]
async fn unread_is_a_number_from_numbers_and_booleans() {
    let client = start_local().await;
    let shown = [
        (json!({"unread": 7}), json!(7)),
        (json!({"unread": true}), json!(1)),
        (json!({"unread": false}), json!(0)),
        (json!({"unread": 0}), json!(0)),
        (json!({"unread": "many"}), Value::Null),
        (json!({"unread": -3}), Value::Null),
        (json!({}), Value::Null),
    ];
    for (n, (members, _)) in shown.iter().enumerate() {
        post_facts(&client, &format!("r{n}"), &format!("s{n}"), "", &[fact("session.updated", members.clone())]).await;
    }
    let lines = list_sessions(&client, "").await;
    for (n, (members, expected)) in shown.iter().enumerate() {
        assert_eq!(lines[&format!("s{n}")]["unread"], *expected, "{members}");
        assert_eq!(client.get(&format!("/v1/sessions/s{n}")).await.ok()["unread"], *expected, "{members}");
    }
    post_facts(&client, "r0", "s0", "", &[fact("session.updated", json!({"title": "T"}))]).await;
    assert_eq!(list_sessions(&client, "").await["s0"]["unread"], 7, "a fact without the member changes nothing");
}

#[tokio::test]
async fn a_session_is_stale_by_its_source_s_statement_or_by_a_stale_run() {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let store = Storage::memory();
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now)).unwrap();
    let mut settler =
        server.settler(StalenessLimits { stale_after: Duration::from_mins(1), settle_after: Duration::from_mins(5) });
    let (client, _) = serve_until(server, std::future::pending()).await;
    let begun = tokio::time::Instant::now();
    post_facts(&client, "r", "silent", "", &[fact("run.started", json!({}))]).await;
    post_facts(&client, "q", "denied", "", &[fact("run.started", json!({})), fact("session.updated", json!({"stale": false}))])
        .await;
    post_facts(&client, "p", "facts", "", &[fact("session.updated", json!({"stale": true}))]).await;
    settler.run_once(begun).await.unwrap();
    let stale = async || {
        let lines = list_sessions(&client, "").await;
        ["silent", "denied", "facts"].map(|session| lines[session]["stale"].clone())
    };
    assert_eq!(stale().await, [Value::Null, json!(false), json!(true)]);
    settler.run_once(begun + Duration::from_mins(1)).await.unwrap();
    assert_eq!(stale().await, [json!(true), json!(true), json!(true)]);
    assert_eq!(client.get("/v1/sessions/silent").await.ok()["stale"], true);
    client.append("r", &[text_delta("still here")]).await;
    assert_eq!(stale().await, [Value::Null, json!(true), json!(true)], "a fact clears staleness that the server declared");
}

#[tokio::test]
async fn pending_actions_are_counted_over_all_runs_and_descendants_per_audience() {
    let client = start_local().await;
    // More runs than a snapshot shows; the oldest have the pending actions.
    for n in 0..40 {
        let asked = match n {
            0 => vec![action_required("a", "user"), action_required("b", "user"), action_required("h", "internal")],
            1 => vec![action_required("c", "user")],
            _ => vec![text_delta("busy")],
        };
        post_facts(&client, &format!("r{n}"), "s", "", &asked).await;
    }
    post_facts(&client, "kid", "child", "s", &[action_required("d", "user")]).await;
    post_facts(&client, "grandkid", "grandchild", "child", &[action_required("e", "user"), action_required("f", "internal")])
        .await;
    post_facts(&client, "other", "elsewhere", "", &[text_delta("nothing to decide")]).await;
    let own = fact("action.required", json!({"actionId": "own", "payload": {"kind": "tool_approval"}}));
    client.post("/v1/sessions/s/facts", &[("content-type", "application/json")], json!([own]).to_string()).await.ok();

    assert_eq!(read_pending(&client, "user").await, counts(&[("s", [6, 2]), ("child", [2, 1]), ("grandchild", [1, 0])]));
    assert_eq!(read_pending(&client, "internal").await, counts(&[("s", [8, 3]), ("child", [3, 2]), ("grandchild", [2, 0])]));
    let shell = client.get("/v1/sessions/s").await.ok();
    let shown: Vec<_> = shell["pendingActions"].as_array().unwrap().iter().map(|action| &action["activityId"]).collect();
    assert_eq!(shown, ["own", "c", "a", "b"], "actions of the oldest runs are included");
    assert_eq!((&shell["status"], &shell["truncated"]), (&json!("waiting"), &json!(true)));
    assert_eq!(list_sessions(&client, "").await["s"]["status"], "waiting");

    client.append("r0", &[fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "approved"}}))]).await;
    client.append("kid", &[fact("run.finished", json!({}))]).await;
    assert_eq!(read_pending(&client, "user").await, counts(&[("s", [4, 1]), ("child", [1, 1]), ("grandchild", [1, 0])]));
    assert_eq!(client.delete("/v1/runs/r1").await.status, 204);
    assert_eq!(client.delete("/v1/runs/grandkid").await.status, 204);
    assert_eq!(read_pending(&client, "user").await, counts(&[("s", [2, 0])]), "an erasure lowers the counts");
    assert_eq!(read_pending(&client, "internal").await, counts(&[("s", [3, 0])]));
}

#[tokio::test]
async fn a_cycle_of_parents_counts_each_action_once() {
    let client = start_local().await;
    for (session, parent) in [("a", "c"), ("b", "a"), ("c", "b"), ("self", "self")] {
        post_facts(&client, session, session, parent, &[action_required("x", "user")]).await;
    }
    post_facts(&client, "leaf", "leaf", "b", &[action_required("y", "user"), action_required("z", "user")]).await;
    let all = [("a", [5, 4]), ("b", [5, 4]), ("c", [5, 4]), ("leaf", [2, 0]), ("self", [1, 0])];
    assert_eq!(read_pending(&client, "user").await, counts(&all));
}

#[tokio::test]
async fn a_list_is_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    for n in 0..20 {
        let facts = match n {
            0 => vec![
                action_required("a", "user"),
                fact("session.updated", json!({"title": "Oldest", "unread": 3, "pinned": true})),
            ],
            _ => vec![fact("run.started", json!({})), text_delta("hello"), fact("run.finished", json!({}))],
        };
        post_facts(&client, &format!("r{n}"), "s", "", &facts).await;
    }
    post_facts(&client, "kid", "child", "s", &[action_required("d", "user"), action_required("e", "dashboard")]).await;
    let (before, counted) = (list_sessions(&client, "").await, read_pending(&client, "internal").await);
    assert_eq!(before["s"]["title"], "Oldest", "the title is not from the newest 16 runs");
    assert_eq!((&before["s"]["unread"], &before["s"]["preview"]), (&json!(3), &json!("hello")));
    assert!(before["s"]["lastActivity"].as_str().unwrap().ends_with('Z'));
    assert_eq!(counted, counts(&[("s", [3, 2]), ("child", [2, 0])]));
    server.kill();
    let server = Process::start_in(dir.path());
    let client = client.for_server(server.at);
    assert_eq!((list_sessions(&client, "").await, read_pending(&client, "internal").await), (before, counted));
}

#[tokio::test]
async fn a_list_is_filtered_by_status_text_and_pending_actions() {
    let client = start_local().await;
    post_facts(
        &client,
        "r1",
        "taxes",
        "",
        &[fact("session.updated", json!({"title": "Income TAX"})), action_required("a", "user")],
    )
    .await;
    post_facts(&client, "r2", "garden", "", &[fact("run.started", json!({})), text_delta("Roses and taxi drivers")]).await;
    post_facts(&client, "r3", "tax-office", "", &[fact("run.started", json!({})), fact("run.finished", json!({}))]).await;
    post_facts(&client, "r4", "house", "", &[fact("run.started", json!({}))]).await;
    post_facts(&client, "r5", "kitchen", "house", &[action_required("b", "user")]).await;
    post_facts(&client, "r6", "cellar", "", &[action_required("c", "internal")]).await;
    let names = async |query: &str| list_sessions(&client, query).await.into_keys().collect::<Vec<_>>();
    assert_eq!(names("status=waiting").await, ["kitchen", "taxes"]);
    assert_eq!(names("status=waiting&audience=internal").await, ["cellar", "kitchen", "taxes"]);
    assert_eq!(names("status=completed,accepted").await, ["house", "tax-office"]);
    assert_eq!(names("q=tax").await, ["garden", "tax-office", "taxes"]);
    assert_eq!(names("q=tax&status=completed").await, ["tax-office"]);
    assert_eq!(names("needsAction=true").await, ["house", "kitchen", "taxes"]);
    assert_eq!(names("needsAction=1&audience=internal").await, ["cellar", "house", "kitchen", "taxes"]);
    assert_eq!(names("needsAction=false&q=").await.len(), 6);
    assert_eq!(names("q=nowhere").await, [""; 0]);
    client.get("/v1/sessions?status=busy").await.problem(400, "bad_query");
    // The filtered list is the same page by page.
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/sessions?q=tax&limit=1{cursor}")).await.ok();
        all.extend(page["sessions"].as_array().unwrap().iter().map(|line| line["sessionId"].clone()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(all, ["tax-office", "garden", "taxes"]);
}

#[tokio::test]
async fn a_search_scans_a_bounded_number_of_sessions_and_returns_a_cursor() {
    let client = start_local().await;
    post_facts(&client, "first", "needle", "", &[text_delta("x")]).await;
    let mut writing = tokio::task::JoinSet::new();
    for part in 0..8 {
        let client = client.clone();
        writing.spawn(async move {
            for n in 0..520 {
                post_facts(&client, &format!("r{part}-{n}"), &format!("s{part}-{n}"), "", &[text_delta("x")]).await;
            }
        });
    }
    writing.join_all().await;
    let first = client.get("/v1/sessions?q=needle").await.ok();
    assert_eq!(first["sessions"], json!([]));
    let next = first["nextCursor"].as_str().unwrap();
    let second = client.get(&format!("/v1/sessions?q=needle&cursor={next}")).await.ok();
    assert_eq!((&second["sessions"][0]["sessionId"], &second["nextCursor"]), (&json!("needle"), &Value::Null));
}

/// Writes three runs and the session's own log in turns.
///
/// Some facts are hidden, some appends have several rows.
async fn write_session(client: &Client) {
    for n in 0..8 {
        for run in ["r1", "r2", "r3"] {
            let hidden = fact("diagnostic.changed", json!({"payload": {"code": format!("{run} {n}")}}));
            let chunk = fact("text.delta", json!({"messageId": run, "partId": "p", "payload": {"text": format!("{n} ")}}));
            post_facts(client, run, "s", "", &[chunk.clone(), hidden, chunk]).await;
        }
        let title = fact("session.updated", json!({"title": format!("Title {n}")}));
        client.post("/v1/sessions/s/facts", &[("content-type", "application/json")], json!([title]).to_string()).await.ok();
        post_facts(client, "elsewhere", "t", "", &[text_delta("not of this session")]).await;
    }
    post_facts(client, "r3", "s", "", &[fact("run.finished", json!({}))]).await;
}

/// Reads the cursors and events of the session's stream.
async fn read_stream(client: &Client, audience: &str, count: usize) -> Vec<(String, Value)> {
    let path = format!("/v1/sessions/s/stream?frames=events&audience={audience}");
    let mut stream = client.open(Transport::Hyper, &path, None).await;
    let mut all = Vec::new();
    while all.len() < count {
        let frame = stream.next_frame().await;
        if frame.kind() == "Event" {
            all.push((frame.id().to_owned(), frame.data["event"].clone()));
        }
    }
    all
}

/// Reads one page of a session's events with their cursors, and the cursor of the next page.
async fn read_page(client: &Client, query: &str) -> (Vec<(String, Value)>, Option<String>) {
    let page = client.get(&format!("/v1/sessions/s/events?{query}")).await.ok();
    let (events, cursors) = (page["events"].as_array().unwrap(), page["cursors"].as_array().unwrap());
    assert_eq!(events.len(), cursors.len());
    assert_eq!(page["truncated"].as_bool(), Some(page["nextCursor"].is_string()));
    let placed = cursors.iter().map(|cursor| cursor.as_str().unwrap().to_owned()).zip(events.iter().cloned());
    (placed.collect(), page["nextCursor"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn a_session_s_event_pages_equal_its_stream_for_every_page_size() {
    let client = start_local().await;
    write_session(&client).await;
    for (audience, count) in [("user", 3 * 8 * 2 + 8 + 1), ("internal", 3 * 8 * 3 + 8 + 1)] {
        let expected = read_stream(&client, audience, count).await;
        let (whole, next) = read_page(&client, &format!("audience={audience}")).await;
        assert_eq!((whole.len(), &next), (count, &None));
        assert_eq!(whole, expected, "{audience}");
        for limit in [1, 7, 1000] {
            let (mut all, mut after) = (Vec::new(), String::new());
            loop {
                let (events, next) = read_page(&client, &format!("audience={audience}&limit={limit}&after={after}")).await;
                assert!(events.len() <= limit && all.len() < count, "the pages do not end");
                all.extend(events);
                match next {
                    Some(next) => after = next,
                    None => break,
                }
            }
            assert_eq!(all, expected, "{audience}, forward by {limit}");
            let newest = "ffffffffffffffff:9223372036854775807".replacen("ffffffffffffffff", after_epoch(&expected), 1);
            let (mut all, mut before) = (Vec::new(), newest);
            loop {
                let (events, next) = read_page(&client, &format!("audience={audience}&limit={limit}&before={before}")).await;
                assert!(events.len() <= limit && all.len() < count, "the pages do not end");
                all.splice(0..0, events);
                match next {
                    Some(next) => before = next,
                    None => break,
                }
            }
            assert_eq!(all, expected, "{audience}, backward by {limit}");
        }
        // Every cursor of the stream is a cursor of the pages.
        for n in (0..count).step_by(5) {
            let place = &expected[n].0;
            assert_eq!(read_page(&client, &format!("audience={audience}&after={place}")).await.0, expected[n + 1..]);
            assert_eq!(read_page(&client, &format!("audience={audience}&before={place}")).await.0, expected[..n]);
            let last = &expected[count - 3].0;
            let between = read_page(&client, &format!("audience={audience}&after={place}&before={last}")).await.0;
            assert_eq!(between, expected.get(n + 1..count - 3).unwrap_or_default());
        }
    }
    let (ends, _) = read_page(&client, "type=run.finished").await;
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].1["runId"], "r3");
}

fn after_epoch(events: &[(String, Value)]) -> &str {
    events[0].0.split_once(':').unwrap().0
}

#[tokio::test]
async fn a_session_s_activities_at_a_cursor_are_those_of_its_runs_at_that_time() {
    let client = start_local().await;
    for name in ["tool_progress_activity", "hitl_approve"] {
        let run = name.split('_').next().unwrap();
        for fact in recording(name) {
            let path = format!("/v1/runs/{run}/facts?source=awaken&sessionId=s");
            client.post(&path, &[("content-type", "application/json")], fact.to_string()).await.ok();
        }
    }
    write_session(&client).await;
    for audience in AUDIENCES {
        let (events, _) = read_page(&client, &format!("audience={audience}")).await;
        let mut reached = BTreeMap::<String, u64>::new();
        for (n, (place, event)) in events.iter().enumerate() {
            if let Some(run) = event["runId"].as_str() {
                reached.insert(run.to_owned(), event["sequence"].as_u64().unwrap());
            }
            if n % 9 != 0 {
                continue;
            }
            let answer = client.get(&format!("/v1/sessions/s/activities?audience={audience}&at={place}")).await.ok();
            assert_eq!((&answer["cursor"], &answer["nextCursor"]), (&json!(place), &Value::Null));
            let mut by_run = BTreeMap::<String, Vec<Value>>::new();
            for activity in answer["activities"].as_array().unwrap() {
                let mut activity = activity.clone();
                let run = activity.as_object_mut().unwrap().remove("runId");
                if let Some(run) = run {
                    by_run.entry(run.as_str().unwrap().to_owned()).or_default().push(activity);
                } else {
                    assert_eq!(activity["sessionId"], "s");
                }
            }
            for (run, at) in &reached {
                let alone = client.get(&format!("/v1/runs/{run}/activities?audience={audience}&at={at}")).await.ok();
                let alone = alone["activities"].as_array().unwrap();
                assert_eq!(by_run.remove(run).unwrap_or_default(), *alone, "{run} at {at}, {place}, for {audience}");
            }
            assert!(by_run.is_empty(), "later activities appear at {place}: {by_run:?}");
        }
    }
    let now = client.get("/v1/sessions/s/activities?surfaces=tool_ui").await.ok();
    let surfaces: Vec<_> = now["activities"].as_array().unwrap().iter().map(|activity| &activity["surface"]).collect();
    assert!(!surfaces.is_empty() && surfaces.iter().all(|surface| *surface == "tool_ui"), "{surfaces:?}");
    // The page's cursor joins the stream at the page's end.
    let cursor = now["cursor"].as_str().unwrap();
    let mut stream = client.open(Transport::Hyper, "/v1/sessions/s/stream?frames=events", Some(cursor)).await;
    client.append("r1", &[text_delta("news")]).await;
    assert_eq!(stream.next_frame().await.data["event"]["payload"]["text"], "news");
}

#[tokio::test]
async fn an_unknown_session_and_a_cursor_of_another_store_are_rejected() {
    let client = start_local().await;
    for address in ["events", "activities"] {
        client.get(&format!("/v1/sessions/never/{address}")).await.problem(404, "no_such_session");
    }
    write_session(&client).await;
    for query in ["events?after", "events?before", "activities?at"] {
        client.get(&format!("/v1/sessions/s/{query}=7")).await.problem(400, "bad_cursor");
        client.get(&format!("/v1/sessions/s/{query}=00000000deadbeef:8")).await.problem(410, "epoch_changed");
    }
}

#[tokio::test]
async fn a_session_s_activities_above_the_page_size_are_paged() {
    let client = start_local().await;
    for n in 0..150 {
        post_facts(&client, &format!("r{n}"), "s", "", &[text_delta("hello")]).await;
    }
    let first = client.get("/v1/sessions/s/activities?surfaces=conversation").await.ok();
    post_facts(&client, "r0", "s", "", &[text_delta(" again")]).await;
    let (at, next) = (first["cursor"].as_str().unwrap(), first["nextCursor"].as_str().unwrap());
    assert_eq!((first["activities"].as_array().unwrap().len(), &first["truncated"]), (128, &json!(true)));
    let query = format!("/v1/sessions/s/activities?surfaces=conversation&at={at}&cursor={next}");
    let second = client.get(&query).await.ok();
    assert_eq!((second["activities"].as_array().unwrap().len(), &second["nextCursor"]), (22, &Value::Null));
    let runs = |page: &Value| page["activities"].as_array().unwrap().iter().map(|a| a["runId"].to_string()).collect::<Vec<_>>();
    let mut all = runs(&first);
    all.extend(runs(&second));
    let expected: Vec<_> = (0..150).map(|n| format!("\"r{n}\"")).collect();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn events_of_a_session_with_too_many_runs_are_rejected_with_the_limit() {
    let client = start_local().await;
    let mut writing = tokio::task::JoinSet::new();
    for part in 0..8 {
        let client = client.clone();
        writing.spawn(async move {
            for n in 0..513 {
                post_facts(&client, &format!("r{part}-{n}"), "s", "", &[text_delta("x")]).await;
            }
        });
    }
    writing.join_all().await;
    let problem = client.get("/v1/sessions/s/events").await.problem(422, "session_too_large");
    assert_eq!(problem["limit"], 4096);
    for n in 0..8 {
        assert_eq!(client.delete(&format!("/v1/runs/r{n}-0")).await.status, 204);
    }
    let page = client.get("/v1/sessions/s/events?limit=10").await.ok();
    assert_eq!(page["events"].as_array().unwrap().len(), 10);
}

async fn attention(client: &Client, query: &str) -> Value {
    client.get(&format!("/v1/attention?{query}")).await.ok()
}

fn action_ids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item["actionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn everything_that_waits_for_a_person_is_listed_oldest_first_with_an_exact_total() {
    let client = start_local().await;
    for n in 0..130 {
        let start = fact("run.started", json!({"agentId": if n % 2 == 0 { "even" } else { "odd" }}));
        post_facts(&client, &format!("r{n:03}"), &format!("s{n:03}"), "", &[start, action_required(&format!("a{n:03}"), "user")])
            .await;
    }
    // Actions of one millisecond are listed by their logs.
    post_facts(&client, "z-hidden", "s000", "", &[action_required("hidden", "internal")]).await;
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = attention(&client, &format!("limit=50{cursor}")).await;
        assert_eq!(page["total"], 130);
        all.extend(action_ids(&page));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(all, (0..130).map(|n| format!("a{n:03}")).collect::<Vec<_>>());
    let of_agent = attention(&client, "agentId=odd&limit=2").await;
    assert_eq!((action_ids(&of_agent), &of_agent["total"]), (vec!["a001".into(), "a003".into()], &json!(65)));
    let internal = attention(&client, "audience=internal&limit=200").await;
    assert_eq!(json!([internal["total"], internal["items"][130]["actionId"]]), json!([131, "hidden"]));
    client.get("/v1/attention?cursor=never").await.problem(400, "bad_cursor");
}

#[tokio::test]
async fn an_item_says_what_is_decided_and_one_with_a_decision_under_way_needs_no_attention() {
    let client = start_local().await;
    let asks = fact(
        "action.required",
        json!({"actionId": "a", "payload": {"kind": "tool_approval", "toolName": "rm", "risk": "high", "title": "Delete?"}}),
    );
    post_facts(&client, "r", "s", "", &[fact("run.started", json!({"agentId": "coder"})), asks]).await;
    post_facts(&client, "child", "t", "s", &[action_required("b", "user")]).await;
    let page = attention(&client, "").await;
    let item = &page["items"][0];
    let told = ["sessionId", "runId", "actionId", "title", "risk", "agentId", "control"].map(|member| item[member].clone());
    assert_eq!(json!(told), json!(["s", "r", "a", "Delete?", "high", "coder", null]));
    assert!(item["subject"]["kind"].is_string() && item["askedAt"].is_string(), "{item}");
    let counts = async || {
        let counts = list_sessions(&client, "").await["s"]["counts"].clone();
        [counts["pendingActions"].clone(), counts["unanswered"].clone()].map(|count| count.as_u64().unwrap())
    };
    assert_eq!(counts().await, [2, 2]);

    let approve = json!({"control": "approve", "actionId": "a", "controlId": "c"}).to_string();
    let json = [("content-type", "application/json")];
    assert_eq!(client.post("/v1/runs/r/controls", &json, approve).await.status, 202);
    let page = attention(&client, "").await;
    assert_eq!(json!([page["total"], page["items"][0]["control"]]), json!([1, "submitted"]));
    assert_eq!(counts().await, [2, 1]);
    assert_eq!(list_sessions(&client, "needsAction=true").await.into_keys().collect::<Vec<_>>(), ["s", "t"]);

    assert_eq!(client.delete("/v1/controls/c").await.status, 204);
    assert_eq!(attention(&client, "").await["total"], 2, "the decision was withdrawn");
    let resolved = |action: &str| fact("action.resolved", json!({"actionId": action, "payload": {"outcome": "approved"}}));
    post_facts(&client, "child", "t", "s", &[resolved("b")]).await;
    let page = attention(&client, "").await;
    assert_eq!((action_ids(&page), &page["total"]), (vec!["a".into()], &json!(1)));
    post_facts(&client, "r", "s", "", &[fact("run.finished", json!({}))]).await;
    assert_eq!(attention(&client, "").await, json!({"items": [], "total": 0, "nextCursor": null}));
}

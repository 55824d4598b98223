//! List streams: pending actions and sessions, pushed as they change.

use crate::harness::{Client, Process, Sse, Transport, fact, start_local};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The entries that a client has, by list and key.
pub type Entries = BTreeMap<(String, String), Value>;

/// Applies a frame as a client does. Returns whether the entries are complete.
pub fn apply(entries: &mut Entries, frame: &Value) -> bool {
    let name = |member: &str| frame[member].as_str().unwrap().to_owned();
    match (frame["frame"].as_str().unwrap(), frame["op"].as_str()) {
        ("List", Some("put")) => drop(entries.insert((name("list"), name("key")), frame["entry"].clone())),
        ("List", Some("remove")) => drop(entries.remove(&(name("list"), name("key")))),
        ("Reset", _) => entries.clear(),
        ("Hydrated", _) => return true,
        _ => panic!("{frame}"),
    }
    false
}

/// A client of a list stream, with the entries and the cursor that it has.
struct Lists {
    sse: Sse,
    entries: Entries,
    cursor: Option<String>,
}

impl Lists {
    async fn open(client: &Client, query: &str, resume: Option<&str>) -> Self {
        let sse = client.open(Transport::Hyper, &format!("/v1/lists/stream?{query}"), resume).await;
        assert_eq!((sse.status, &*sse.headers["content-type"]), (200, "text/event-stream"));
        Self { sse, entries: Entries::new(), cursor: None }
    }

    /// A client that has all entries.
    async fn hydrated(client: &Client, query: &str) -> Self {
        let mut lists = Self::open(client, query, None).await;
        while !lists.read().await.1 {}
        lists
    }

    /// Reads and applies a frame. Returns it, and whether the entries are complete.
    async fn read(&mut self) -> (Value, bool) {
        let frame = self.sse.next_frame().await;
        self.cursor = frame.id.clone().or(self.cursor.take());
        let is_complete = apply(&mut self.entries, &frame.data);
        (frame.data, is_complete)
    }

    async fn read_until(&mut self, what: &str, is_there: impl Fn(&Entries) -> bool) {
        while !is_there(&self.entries) {
            let (frame, _) = self.read().await;
            assert_ne!(frame["frame"], "Reset", "while waiting for {what}");
        }
    }

    fn keys(&self, list: &str) -> Vec<&str> {
        self.entries.keys().filter(|(of, _)| of == list).map(|(_, key)| &**key).collect()
    }
}

async fn post(client: &Client, run: &str, session: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?sessionId={session}");
    client.post(&path, &[("content-type", "application/json")], Value::from(facts).to_string()).await.ok();
}

fn asks(action: &str) -> Value {
    fact("action.required", json!({"actionId": action, "payload": {"kind": "tool_approval", "title": format!("{action}?")}}))
}

fn resolved(action: &str) -> Value {
    fact("action.resolved", json!({"actionId": action, "payload": {"outcome": "approved"}}))
}

fn entry<'e>(entries: &'e Entries, list: &str, key: &str) -> &'e Value {
    entries.get(&(list.to_owned(), key.to_owned())).unwrap_or(&Value::Null)
}

/// The runs of a filter as their page has them, with their totals.
async fn run_page(client: &Client, filter: &str) -> Entries {
    let page = client.get(&format!("/v1/runs?filter={filter}&audience=internal")).await.ok();
    let runs = page["runs"].as_array().unwrap().iter();
    let runs = runs.map(|run| (("runs".to_owned(), run["runId"].as_str().unwrap().to_owned()), run.clone()));
    let totals = json!({ "total": page["total"], "facets": page["facets"] });
    runs.chain([(("runTotals".to_owned(), "runs".to_owned()), totals)]).collect()
}

#[tokio::test]
async fn a_list_of_runs_has_those_of_its_filter_then_each_that_changes_and_counts_them() {
    let client = start_local().await;
    for n in 0..200 {
        let mut facts = vec![fact("run.started", json!({ "agentId": format!("agent-{}", n % 2) }))];
        if n % 20 == 0 {
            facts.push(asks("a"));
        }
        post(&client, &format!("r{n:03}"), "s", &facts).await;
    }
    let query = "runs=agent:agent-0%20status:accepted,running,waiting&audience=internal";
    let filter = "agent:agent-0%20status:accepted,running,waiting";
    let mut lists = Lists::hydrated(&client, query).await;
    assert_eq!(lists.keys("runs").len(), 100);
    assert_eq!(lists.entries, run_page(&client, filter).await);

    let usage = json!({ "inputTokens": 5, "costUsd": 0.5 });
    let metric = fact("metric.changed", json!({ "audience": "internal", "payload": { "usage": usage } }));
    post(&client, "r000", "s", &[resolved("a"), metric]).await;
    post(&client, "r001", "s", &[fact("run.finished", json!({}))]).await;
    post(&client, "r002", "s", &[fact("run.finished", json!({}))]).await;
    post(&client, "r200", "s", &[fact("run.started", json!({ "agentId": "agent-0" }))]).await;
    assert_eq!(client.delete("/v1/runs/r004").await.status, 204);
    let expected = run_page(&client, filter).await;
    lists.read_until("the changes and the totals", |entries| *entries == expected).await;
    assert_eq!(entry(&lists.entries, "runs", "r000")["usage"]["costUsd"], 0.5);
    assert_eq!(entry(&lists.entries, "runTotals", "runs")["total"], 99);
    assert_eq!(entry(&lists.entries, "runTotals", "runs")["facets"]["status"]["completed"], 1, "of agent-0");

    // Further text changes nothing that the list shows: the next frame is of the run that ends.
    let says = fact("text.delta", json!({ "messageId": "m", "payload": { "text": "Hello" } }));
    post(&client, "r006", "s", std::slice::from_ref(&says)).await;
    let expected = run_page(&client, filter).await;
    lists.read_until("a run that begins to work", |entries| *entries == expected).await;
    post(&client, "r006", "s", std::slice::from_ref(&says)).await;
    post(&client, "r008", "s", &[says, fact("run.failed", json!({}))]).await;
    let (frame, _) = lists.read().await;
    assert_eq!((&frame["op"], &frame["key"]), (&json!("remove"), &json!("r008")));
}

#[tokio::test]
async fn a_list_of_runs_begins_with_the_first_of_its_order_and_resumes() {
    let client = start_local().await;
    for n in 0..20 {
        let metric = fact("metric.changed", json!({ "payload": { "usage": { "costUsd": n } } }));
        post(&client, &format!("r{n:02}"), "s", &[fact("run.started", json!({})), metric]).await;
    }
    let query = "runs=&runsSort=-cost&limit=3";
    let mut lists = Lists::hydrated(&client, query).await;
    assert_eq!(lists.keys("runs"), ["r17", "r18", "r19"]);
    assert_eq!(entry(&lists.entries, "runTotals", "runs")["total"], 20);
    let cursor = lists.cursor.clone().unwrap();
    post(&client, "r05", "s", &[fact("run.finished", json!({}))]).await;
    lists.read_until("a run beyond the first", |entries| entry(entries, "runs", "r05")["status"] == "completed").await;
    let mut resumed = Lists::open(&client, query, Some(&cursor)).await;
    resumed.read_until("the same change", |entries| entry(entries, "runs", "r05")["status"] == "completed").await;
    assert_eq!(resumed.keys("runs"), ["r05"], "it has the others");

    for (query, member) in [("runs=cost:cheap", "runs"), ("runs=words", "runs"), ("runs=&runsSort=name", "runsSort")] {
        assert_eq!(client.get(&format!("/v1/lists/stream?{query}")).await.problem(400, "bad_query")["member"], member, "{query}");
    }
}

/// The lists as their pages have them.
async fn pages(client: &Client) -> Entries {
    let attention = client.get("/v1/attention?limit=200").await.ok();
    let items = attention["items"].as_array().unwrap().iter().map(|item| {
        let key = format!("run/{}/{}", item["runId"].as_str().unwrap(), item["actionId"].as_str().unwrap());
        (("attention".to_owned(), key), item.clone())
    });
    let sessions = client.get("/v1/sessions").await.ok();
    let lines = sessions["sessions"].as_array().unwrap().iter();
    let lines = lines.map(|line| (("sessions".to_owned(), line["sessionId"].as_str().unwrap().to_owned()), line.clone()));
    items.chain(lines).collect()
}

#[tokio::test]
async fn a_list_stream_has_each_entry_of_the_pages_then_each_change() {
    let client = start_local().await;
    for n in 0..300 {
        let facts =
            if n % 20 == 0 { vec![fact("run.started", json!({})), asks("a")] } else { vec![fact("run.started", json!({}))] };
        post(&client, &format!("r{n}"), &format!("s{n:03}"), &facts).await;
    }
    let mut lists = Lists::hydrated(&client, "attention=true&sessions=true").await;
    assert_eq!((lists.keys("attention").len(), lists.keys("sessions").len()), (15, 300));
    assert_eq!(lists.entries, pages(&client).await);

    post(&client, "r7", "s007", &[asks("b")]).await;
    let unanswered = |count: u64| move |entries: &Entries| entry(entries, "sessions", "s007")["counts"]["unanswered"] == count;
    lists.read_until("the count of a session", unanswered(1)).await;
    assert_eq!(entry(&lists.entries, "attention", "run/r7/b")["title"], "b?");

    let approve = json!({"control": "approve", "actionId": "b", "controlId": "c"}).to_string();
    let json = [("content-type", "application/json")];
    assert_eq!(client.post("/v1/runs/r7/controls", &json, approve).await.status, 202);
    lists.read_until("a decision under way", unanswered(0)).await;
    assert_eq!(entry(&lists.entries, "attention", "run/r7/b")["control"], "submitted");
    let total = client.get("/v1/attention").await.ok()["total"].clone();
    let open = lists.entries.iter().filter(|((list, _), item)| list == "attention" && item.get("control").is_none()).count();
    assert_eq!((open, total), (15, json!(15)), "a decision under way leaves the total");

    post(&client, "r7", "s007", &[resolved("b")]).await;
    let ended = |entries: &Entries| entry(entries, "sessions", "s007")["counts"]["pendingActions"] == 0;
    lists.read_until("the end of the action", ended).await;
    assert_eq!(lists.keys("attention").len(), 15);
    assert_eq!(lists.entries, pages(&client).await);
}

#[tokio::test]
async fn a_client_that_resumes_at_any_cursor_gets_the_same_lists() {
    let client = start_local().await;
    post(&client, "r0", "s0", &[asks("a"), asks("b")]).await;
    let query = "attention=true&sessions=true";
    let mut lists = Lists::hydrated(&client, query).await;
    let mut at = vec![(lists.cursor.clone().unwrap(), lists.entries.clone())];
    post(&client, "r0", "s0", &[resolved("a")]).await;
    post(&client, "r1", "s1", &[asks("c")]).await;
    post(&client, "r2", "s2", &[fact("run.started", json!({}))]).await;
    assert_eq!(client.delete("/v1/runs/r0").await.status, 204);
    post(&client, "r1", "s1", &[asks("d")]).await;
    let expected = pages(&client).await;
    while lists.entries != expected {
        let (frame, _) = lists.read().await;
        assert_eq!(frame["frame"], "List");
        at.push((lists.cursor.clone().unwrap(), lists.entries.clone()));
    }
    assert_eq!(lists.keys("sessions"), ["s1", "s2"], "the erased session was removed");
    for (cursor, had) in at {
        let mut again = Lists::open(&client, query, Some(&cursor)).await;
        again.entries = had;
        again.read_until("the same lists", |entries| *entries == expected).await;
    }
    // Nothing is left to say after the last cursor.
    let mut idle = Lists::open(&client, query, lists.cursor.as_deref()).await;
    post(&client, "r3", "s3", &[fact("run.started", json!({}))]).await;
    assert_eq!(idle.read().await.0["key"], "s3");
}

#[tokio::test]
async fn a_cursor_that_the_server_cannot_go_on_from_begins_with_a_reset() {
    let dir = tempfile::tempdir().unwrap();
    let before = Process::start_in(dir.path());
    post(&Client::new(before.at), "r", "s", &[asks("a")]).await;
    let lists = Lists::hydrated(&Client::new(before.at), "attention=true").await;
    before.kill();
    let after = Process::start_in(dir.path());
    let foreign = lists.cursor.as_deref().unwrap().replace(|digit: char| digit.is_ascii_alphabetic(), "0");
    for (cursor, reason) in [(lists.cursor.as_deref().unwrap(), "expired"), (&*format!("{}0:7", &foreign[..15]), "epoch")] {
        let mut lists = Lists::open(&Client::new(after.at), "attention=true", Some(cursor)).await;
        assert_eq!(lists.read().await.0, json!({"frame": "Reset", "reason": reason}));
        assert_eq!(lists.read().await.0["key"], "run/r/a");
        assert!(lists.read().await.1);
    }
}

#[tokio::test]
async fn a_list_stream_has_the_filters_of_its_pages() {
    let client = start_local().await;
    post(&client, "r1", "s1", &[fact("run.started", json!({"agentId": "x"})), asks("a")]).await;
    post(&client, "r2", "s2", &[fact("run.started", json!({"agentId": "y"})), asks("b")]).await;
    let mut lists = Lists::hydrated(&client, "attention=true&agentId=y&sessions=true&needsAction=true&q=S2").await;
    assert_eq!((lists.keys("attention"), lists.keys("sessions")), (vec!["run/r2/b"], vec!["s2"]));
    post(&client, "r1", "s1", &[asks("c"), fact("run.status", json!({}))]).await;
    post(&client, "r2", "s2", &[resolved("b")]).await;
    while !lists.entries.is_empty() {
        let (frame, _) = lists.read().await;
        assert_eq!(frame["op"], "remove", "no change of what the filter leaves out: {frame}");
    }
    for (query, member) in [("", "attention"), ("sessions=false", "attention"), ("runs=status:broken&attention=true", "runs")] {
        let problem = client.get(&format!("/v1/lists/stream?{query}")).await.problem(400, "bad_query");
        assert_eq!(problem["member"], member, "{query}");
    }
    client.get("/v1/lists/stream?attention=true&after=never").await.problem(400, "bad_cursor");
    let few = Lists::hydrated(&client, "sessions=true&limit=1").await;
    assert_eq!(few.keys("sessions"), ["s2"], "the newest");
}

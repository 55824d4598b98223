//! Branches: a session goes on from a point of another one, whose part of the conversation is frozen.

use crate::harness::{Client, ClockedProcess, Process, Transport, fact, start_local};
use serde_json::{Value, json};
use std::time::Duration;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn publish(client: &Client, session: &str, run: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?sessionId={session}&agentId=helper");
    client.post(&path, &JSON, Value::from(facts).to_string()).await.ok();
}

fn text(role: &str, id: &str, text: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "payload": { "role": role, "text": text } }))
}

/// A whole turn: a question and its answer.
async fn turn(client: &Client, session: &str, n: u32) {
    let facts = [
        fact("run.started", json!({})),
        text("user", &format!("u{n}"), &format!("Question {n}")),
        text("assistant", &format!("a{n}"), &format!("Answer {n}")),
        fact("run.finished", json!({})),
    ];
    publish(client, session, &format!("r{n}"), &facts).await;
}

async fn branch(client: &Client, session: &str, body: Value) -> Value {
    let made = client.post(&format!("/v1/sessions/{session}/branches"), &JSON, body.to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()
}

fn after(run: &str, sequence: u64) -> Value {
    json!({ "after": { "runId": run, "sequence": sequence } })
}

/// The texts of a session's messages, in order.
async fn messages(client: &Client, session: &str) -> Vec<String> {
    let window = client.get(&format!("/v1/sessions/{session}/window?messages=100")).await.ok();
    texts(window["messages"].as_array().unwrap())
}

fn texts(messages: &[Value]) -> Vec<String> {
    messages.iter().map(|message| text_of(&message["content"]["parts"][0])).collect()
}

fn text_of(part: &Value) -> String {
    part["text"].as_array().unwrap().iter().map(|chunk| chunk.as_str().unwrap()).collect()
}

/// The activities of a type, oldest first.
async fn activities(client: &Client, session: &str, kind: &str) -> Vec<Value> {
    let mut found =
        client.get(&format!("/v1/sessions/{session}/activities")).await.ok()["activities"].as_array().unwrap().clone();
    found.retain(|activity| activity["activityType"] == kind);
    found
}

async fn activity(client: &Client, session: &str, kind: &str) -> Value {
    activities(client, session, kind).await.pop().unwrap()
}

#[tokio::test]
async fn a_branch_has_what_came_before_its_point_and_neither_log_changes_the_other() {
    let client = start_local().await;
    for n in 1..=3 {
        turn(&client, "s", n).await;
    }
    let made = branch(&client, "s", after("r2", 0)).await;
    assert_eq!(made["parent"], json!({ "sessionId": "s", "runId": "r2", "sequence": 0 }), "{made}");
    assert_eq!(made["fork"], "none", "no agent of the server is connected");
    let id = made["sessionId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("s~branch-"), "{id}");
    let first = ["Question 1", "Answer 1"];
    assert_eq!(messages(&client, &id).await, first);
    publish(
        &client,
        &id,
        "other",
        &[fact("run.started", json!({})), text("user", "u", "Instead"), text("assistant", "a", "Yes")],
    )
    .await;
    turn(&client, "s", 4).await;
    assert_eq!(messages(&client, &id).await, [&first[..], &["Instead", "Yes"]].concat());
    let all: Vec<_> = (1..=4).flat_map(|n| [format!("Question {n}"), format!("Answer {n}")]).collect();
    assert_eq!(messages(&client, "s").await, all);

    // Pages go back into the part of the parent.
    let page = client.get(&format!("/v1/sessions/{id}/window?messages=1")).await.ok();
    let next = page["nextCursor"].as_str().unwrap();
    let page = client.get(&format!("/v1/sessions/{id}/window?messages=2&cursor={next}")).await.ok();
    assert_eq!(texts(page["messages"].as_array().unwrap()), ["Answer 1", "Instead"]);

    // The log is not copied.
    let own = client.get(&format!("/v1/sessions/{id}/events?limit=100")).await.ok();
    let runs: Vec<_> = own["events"].as_array().unwrap().iter().map(|event| event["runId"].as_str().unwrap_or("-")).collect();
    assert_eq!(runs, ["-", "other", "other", "other"]);
    let opened = &own["events"][0];
    assert_eq!((&opened["type"], &opened["payload"]["parent"]), (&json!("session.opened"), &made["parent"]));
    assert_eq!(opened["payload"]["updatedBy"]["via"], "rest");
    let shell = client.get(&format!("/v1/sessions/{id}")).await.ok();
    assert_eq!(shell["runs"].as_array().unwrap().len(), 1, "a run of the parent is no run of the branch");
}

#[tokio::test]
async fn what_was_open_at_the_point_is_interrupted_in_the_branch_alone() {
    let client = start_local().await;
    let asks = fact("action.required", json!({ "actionId": "ask", "payload": { "kind": "tool_approval", "title": "Delete?" } }));
    let delta = fact("text.delta", json!({ "messageId": "a", "payload": { "text": "I am" } }));
    publish(&client, "s", "r", &[fact("run.started", json!({})), text("user", "u", "Delete it"), delta, asks]).await;
    let id = branch(&client, "s", after("r", 4)).await["sessionId"].as_str().unwrap().to_owned();
    publish(&client, "s", "r", &[fact("text.delta", json!({ "messageId": "a", "payload": { "text": " going on" } }))]).await;
    let states = async |session: &str| {
        let run = activity(&client, session, "run").await;
        let (action, message) = (activity(&client, session, "action").await, activity(&client, session, "message").await);
        assert_eq!(run["runId"], "r");
        json!([
            run["content"]["status"],
            action["content"]["status"],
            message["content"]["status"],
            text_of(&message["content"]["parts"][0])
        ])
    };
    assert_eq!(states(&id).await, json!(["interrupted", "interrupted", "interrupted", "I am"]));
    assert_eq!(states("s").await, json!(["waiting", "pending", "streaming", "I am going on"]));
    // It is decided where it was asked.
    let shell = client.get(&format!("/v1/sessions/{id}")).await.ok();
    assert_eq!((&shell["pendingActions"], &shell["counts"]["pendingActions"]), (&json!([]), &json!(0)));
    let decides = json!({ "control": "approve", "actionId": "ask" }).to_string();
    let refused = client.post(&format!("/v1/sessions/{id}/controls"), &JSON, decides.clone()).await;
    assert!((400..500).contains(&refused.status), "{refused:?}");
    assert_eq!(client.post("/v1/runs/r/controls", &JSON, decides).await.status, 202);
    // A point in the middle has only what was there.
    let early = branch(&client, "s", json!({ "after": { "messageId": "u" }, "sessionId": "early" })).await;
    assert_eq!((&early["sessionId"], &early["parent"]["sequence"]), (&json!("early"), &json!(2)));
    assert_eq!(messages(&client, "early").await, ["Delete it"]);
}

#[tokio::test]
async fn a_branch_at_a_point_that_is_not_there_or_not_seen_is_refused_and_begins_nothing() {
    let client = start_local().await;
    turn(&client, "s", 1).await;
    publish(&client, "t", "other", &[fact("run.started", json!({}))]).await;
    publish(&client, "s", "r1", &[fact("diagnostic.changed", json!({ "audience": "internal", "payload": { "kind": "x" } }))])
        .await;
    let post =
        async |body: Value, query: &str| client.post(&format!("/v1/sessions/s/branches{query}"), &JSON, body.to_string()).await;
    for (run, sequence) in [("r1", 6), ("r1", 5), ("r1", 99), ("other", 1), ("other", 0), ("none", 0)] {
        let refused = post(after(run, sequence), "").await.problem(404, "no_such_point");
        assert_eq!(refused["member"], "after", "{run} {sequence}");
    }
    assert_eq!(post(after("r1", 5), "?audience=internal").await.status, 201, "who sees it may branch there");
    post(json!({ "after": { "messageId": "none" } }), "").await.problem(404, "no_such_message");
    for body in [
        json!({}),
        json!({ "after": { "runId": "r1" } }),
        json!({ "after": { "runId": "r1", "sequence": "1" } }),
        json!({ "after": 1 }),
    ] {
        post(body, "").await.problem(422, "bad_member");
    }
    let taken = json!({ "after": { "runId": "r1", "sequence": 1 }, "sessionId": "t" });
    post(taken, "").await.problem(409, "session_exists");
    client.post("/v1/sessions/none/branches", &JSON, after("r1", 1).to_string()).await.problem(404, "no_such_session");
    let long = "x".repeat(250);
    turn(&client, &long, 2).await;
    let refused = client.post(&format!("/v1/sessions/{long}/branches"), &JSON, after("r2", 1).to_string()).await;
    refused.problem(422, "bad_member");
    let listed = client.get("/v1/sessions?archived=all").await.ok()["sessions"].as_array().unwrap().len();
    assert_eq!(listed, 3, "one branch, which its root stands for");
    let tree = client.get("/v1/sessions/s").await.ok();
    assert_eq!(tree["branches"].as_array().unwrap().len(), 1, "{tree}");
}

#[tokio::test]
async fn a_list_has_one_entry_for_a_tree_which_is_about_its_head() {
    let client = start_local().await;
    turn(&client, "s", 1).await;
    turn(&client, "t", 2).await;
    let list = async |query: &str| client.get(&format!("/v1/sessions?{query}")).await.ok()["sessions"].clone();
    let ids = |list: &Value| {
        list.as_array().unwrap().iter().map(|line| line["sessionId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    branch(&client, "s", json!({ "after": { "messageId": "a1" }, "sessionId": "b" })).await;
    assert_eq!(ids(&list("sort=updated").await), ["t", "s"], "a branch alone is no news");
    tokio::time::sleep(Duration::from_millis(3)).await;
    let asks = fact("action.required", json!({ "actionId": "ask", "payload": { "kind": "question", "title": "Which?" } }));
    publish(&client, "b", "rb", &[fact("run.started", json!({})), text("assistant", "m", "In the branch"), asks]).await;
    let lines = list("sort=updated").await;
    assert_eq!(ids(&lines), ["s", "t"], "the news of a branch are those of its root");
    assert_eq!(json!([lines[0]["status"], lines[0]["head"], lines[0]["preview"]]), json!(["completed", null, "Answer 1"]));
    assert_eq!(lines[0]["counts"]["pendingActions"], 1, "what waits in any branch waits: {}", lines[0]);

    assert_eq!(client.patch("/v1/sessions/s", &json!({ "head": "b" })).await.ok()["head"], "b");
    let lines = list("sort=updated").await;
    assert_eq!(
        json!([lines[0]["status"], lines[0]["preview"], lines[0]["title"]]),
        json!(["waiting", "In the branch", "Question 1"])
    );
    assert_eq!(lines[0]["highlight"], json!({ "kind": "question", "text": "Which?" }));
    let shell = client.get("/v1/sessions/b").await.ok();
    assert_eq!((&shell["root"], &shell["head"], &shell["parent"]["sessionId"]), (&json!("s"), &json!("b"), &json!("s")));
    assert_eq!(client.patch("/v1/sessions/s", &json!({ "head": null, "title": "Mine" })).await.ok()["head"], Value::Null);
    for head in [json!("t"), json!("none"), json!(7)] {
        client.patch("/v1/sessions/s", &json!({ "head": head })).await.problem(422, "bad_member");
    }
    let told: Vec<_> = client.get("/v1/sessions/s/events?limit=100").await.ok()["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["payload"].get("head").is_some())
        .map(|event| event["payload"]["head"].clone())
        .collect();
    assert_eq!(told, [json!("b"), Value::Null]);
}

#[tokio::test]
async fn a_stream_of_a_branch_begins_with_its_ancestors_and_follows_no_parent() {
    let client = start_local().await;
    turn(&client, "s", 1).await;
    turn(&client, "s", 2).await;
    branch(&client, "s", json!({ "after": { "messageId": "a1" }, "sessionId": "b" })).await;
    publish(&client, "b", "rb", &[fact("run.started", json!({})), text("user", "u", "Instead")]).await;
    let mut stream = client.open(Transport::Raw, "/v1/sessions/b/stream", None).await;
    let mut seen = Vec::new();
    let cursor = loop {
        let frame = stream.next_frame().await;
        if frame.kind() == "ActivitySnapshot" && frame.data["activityType"] == "message" {
            seen.push((frame.data["runId"].as_str().unwrap().to_owned(), frame.data["activityId"].as_str().unwrap().to_owned()));
        }
        if let (3, Some(cursor)) = (seen.len(), frame.id) {
            break cursor;
        }
    };
    let named = |run: &str, id: &str| (run.to_owned(), id.to_owned());
    assert_eq!(seen, [named("r1", "u1"), named("r1", "a1"), named("rb", "u")]);
    turn(&client, "s", 3).await;
    publish(&client, "b", "rb", &[text("assistant", "a", "Yes")]).await;
    let next = loop {
        let frame = stream.next_frame().await;
        if frame.data["activityType"] == "message" {
            break frame;
        }
    };
    assert_eq!((&next.data["runId"], &next.data["activityId"]), (&json!("rb"), &json!("a")), "no frame of the parent in between");
    // A reader that comes back has that part already.
    let mut again = client.open(Transport::Raw, "/v1/sessions/b/stream", Some(&cursor)).await;
    let frame = loop {
        let frame = again.next_frame().await;
        if frame.kind() == "ActivitySnapshot" || frame.kind() == "ActivityDelta" {
            break frame;
        }
    };
    assert_eq!(frame.data["runId"], "rb", "{:?}", frame.data);
}

#[tokio::test]
async fn branches_of_branches_have_all_of_their_ancestors_and_a_point_of_an_ancestor_makes_a_sibling() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    turn(&client, "s", 1).await;
    turn(&client, "s", 2).await;
    branch(&client, "s", json!({ "after": { "runId": "r2", "sequence": 0 }, "sessionId": "b" })).await;
    turn(&client, "b", 3).await;
    branch(&client, "b", json!({ "after": { "runId": "r3", "sequence": 2 }, "sessionId": "c" })).await;
    turn(&client, "c", 4).await;
    let sibling = branch(&client, "c", json!({ "after": { "messageId": "u1" }, "sessionId": "d" })).await;
    assert_eq!(sibling["parent"]["sessionId"], "s", "the message is of that session");
    client.post("/v1/sessions/c/branches", &JSON, after("r2", 1).to_string()).await.problem(404, "no_such_point");
    let sibling = branch(&client, "b", json!({ "after": { "runId": "r3", "sequence": 0 }, "sessionId": "e" })).await;
    assert_eq!(sibling["parent"], json!({ "sessionId": "s", "runId": "r2", "sequence": 0 }), "b adds nothing to it");
    let all = async |client: &Client| {
        assert_eq!(messages(client, "b").await, ["Question 1", "Answer 1", "Question 3", "Answer 3"]);
        assert_eq!(messages(client, "c").await, ["Question 1", "Answer 1", "Question 3", "Question 4", "Answer 4"]);
        assert_eq!(messages(client, "d").await, ["Question 1"]);
        let tree = client.get("/v1/sessions/c").await.ok();
        let branches: Vec<_> = tree["branches"].as_array().unwrap().iter().map(|branch| branch["sessionId"].clone()).collect();
        assert_eq!((&tree["root"], json!(branches)), (&json!("s"), json!(["b", "c", "d", "e"])));
        let listed = client.get("/v1/sessions?archived=all&sort=updated").await.ok()["sessions"].clone();
        assert_eq!((listed.as_array().unwrap().len(), &listed[0]["sessionId"]), (1, &json!("s")), "{listed}");
    };
    all(&client).await;
    let before = client.get("/v1/sessions?sort=updated").await.ok();
    drop(server);
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    all(&client).await;
    assert_eq!(client.get("/v1/sessions?sort=updated").await.ok(), before, "the index is built again as it was");
}

#[tokio::test]
async fn a_session_with_branches_is_erased_with_them_or_not_at_all() {
    let client = start_local().await;
    turn(&client, "s", 1).await;
    turn(&client, "s", 2).await;
    branch(&client, "s", json!({ "after": { "messageId": "a1" }, "sessionId": "b" })).await;
    branch(&client, "b", json!({ "after": { "messageId": "a1" }, "sessionId": "c" })).await;
    for path in ["/v1/sessions/s", "/v1/sessions/s?branches=false", "/v1/sessions/s?children=true"] {
        let refused = client.delete(path).await.problem(409, "has_branches");
        assert_eq!((&refused["sessionIds"], &refused["count"]), (&json!(["b", "c"]), &json!(2)), "{path}");
    }
    client.delete("/v1/runs/r1").await.problem(409, "has_branches");
    assert_eq!(messages(&client, "c").await, ["Question 1", "Answer 1"]);
    assert_eq!(client.delete("/v1/runs/r2").await.status, 204, "no branch has a part of it");
    assert_eq!(client.delete("/v1/sessions/c").await.status, 204, "a branch without branches");
    assert_eq!(client.get("/v1/sessions/s").await.ok()["branches"].as_array().unwrap().len(), 1);
    assert_eq!(client.delete("/v1/sessions/s?branches=true").await.status, 204);
    for session in ["s", "b", "c"] {
        client.get(&format!("/v1/sessions/{session}")).await.problem(410, "erased");
    }
    assert_eq!(client.get("/v1/sessions?archived=all").await.ok()["sessions"], json!([]));
}

#[tokio::test]
async fn a_compaction_leaves_what_a_branch_has_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let clocked =
        ClockedProcess::start(dir.path(), &["--compact-after", "3600", "--stale-after", "604800", "--settle-after", "604800"]);
    let client = clocked.client.clone();
    let deltas: Vec<_> =
        (0..50).map(|n| fact("text.delta", json!({ "messageId": "a", "payload": { "text": format!("{n} ") } }))).collect();
    publish(&client, "s", "r", &[fact("run.started", json!({})), text("user", "u", "Count")]).await;
    publish(&client, "s", "r", &deltas).await;
    branch(&client, "s", json!({ "after": { "runId": "r", "sequence": 22 }, "sessionId": "b" })).await;
    let whole: String = (0..50).map(|n| format!("{n} ")).collect();
    publish(&client, "s", "r", &[text("assistant", "a", &whole), fact("run.finished", json!({}))]).await;
    let frozen = activities(&client, "b", "message").await;
    let counted: String = (0..20).map(|n| format!("{n} ")).collect();
    assert_eq!(text_of(&frozen[1]["content"]["parts"][0]), counted);
    let is_compacted = async || client.get("/v1/runs/r").await.ok()["compacted"] == true;
    clocked.advance_until("the compaction", Duration::from_mins(30), is_compacted).await;
    assert_eq!(activities(&client, "b", "message").await, frozen);
    let events = client.get("/v1/runs/r/events?limit=100").await.ok()["events"].as_array().unwrap().len();
    assert!((22..40).contains(&events), "the rows after the point are compacted: {events} are left");
}

#[tokio::test]
async fn a_search_finds_a_text_of_any_branch_by_the_entry_of_the_tree() {
    let client = start_local().await;
    turn(&client, "s", 1).await;
    branch(&client, "s", json!({ "after": { "messageId": "a1" }, "sessionId": "b" })).await;
    publish(&client, "b", "rb", &[text("assistant", "m", "A marmalade sandwich"), fact("run.finished", json!({}))]).await;
    let found = async |word: &str| {
        let lines = client.get(&format!("/v1/sessions?q={word}&in=text")).await.ok()["sessions"].clone();
        lines.as_array().unwrap().iter().map(|line| (line["sessionId"].clone(), line["highlight"].clone())).collect::<Vec<_>>()
    };
    let of_branch = crate::harness::with_timeout("the index", async {
        loop {
            if let [(session, highlight)] = &found("marmalade").await[..] {
                break (session.clone(), highlight.clone());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let (session, highlight) = of_branch.await;
    assert_eq!(
        json!([session, highlight["sessionId"], highlight["runId"], highlight["messageId"]]),
        json!(["s", "b", "rb", "m"])
    );
    let of_root = found("answer").await;
    assert_eq!(of_root.len(), 1, "what a branch has of its root is found once");
    assert_eq!(json!([of_root[0].0, of_root[0].1["sessionId"]]), json!(["s", null]));
}

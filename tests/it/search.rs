//! Search in texts: a person finds a conversation by what was said in it, and only what that person sees.

use crate::harness::{Client, Process, fact, start_local, with_timeout};
use crate::retention::start_with_stopped_clock;
use serde_json::{Value, json};
use std::time::Duration;

pub async fn post(client: &Client, run: &str, session: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?sessionId={session}");
    client.post(&path, &[("content-type", "application/json")], Value::from(facts).to_string()).await.ok();
}

/// A message of this audience.
pub fn message(id: &str, text: &str, audience: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "audience": audience, "payload": { "role": "user", "text": text } }))
}

/// Waits until the index has every commit.
pub async fn until_indexed(client: &Client) {
    let indexed = async {
        loop {
            let metrics = client.get("/metrics").await;
            if String::from_utf8_lossy(&metrics.body).contains("\nproscenium_search_commits_waiting 0\n") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    with_timeout("the index", indexed).await;
}

pub async fn search(client: &Client, words: &str, more: &str) -> Vec<Value> {
    let words = percent_encoding::utf8_percent_encode(words, percent_encoding::NON_ALPHANUMERIC);
    let page = client.get(&format!("/v1/sessions?in=text&q={words}&{more}")).await.ok();
    page["sessions"].as_array().unwrap().clone()
}

pub async fn names(client: &Client, words: &str, more: &str) -> Vec<String> {
    search(client, words, more).await.iter().map(|line| line["sessionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_session_is_found_by_the_words_of_one_text_and_shows_where_they_stand() {
    let client = start_local().await;
    let long = format!("{} The Quick Fox jumps over it. {}", "Before. ".repeat(60), "After. ".repeat(60));
    post(&client, "r1", "s1", &[message("m0", "nothing", "user"), message("m1", &long, "user")]).await;
    post(&client, "r2", "s2", &[message("m1", "quick", "user"), message("m2", "the fox", "user")]).await;
    post(&client, "r3", "s3", &[message("m1", "Straße nach CAFÉ, 東京都庁へ", "user")]).await;
    until_indexed(&client).await;

    let found = search(&client, "FOX quick", "").await;
    assert_eq!(found.len(), 1, "no text of s2 has both words: {found:?}");
    let highlight = &found[0]["highlight"];
    assert_eq!(
        [&highlight["kind"], &highlight["runId"], &highlight["sequence"], &highlight["messageId"]],
        [&json!("match"), &json!("r1"), &json!(2), &json!("m1")]
    );
    let text = highlight["text"].as_str().unwrap();
    assert!(text.contains("The Quick Fox jumps") && text.starts_with('…') && text.ends_with('…'), "{text}");
    assert!(text.chars().count() <= 160, "{text}");

    for (words, sessions) in [
        ("fox", vec!["s2", "s1"]),
        ("jum", vec!["s1"]),
        ("jum over", vec![]),
        ("strasse", vec!["s3"]),
        ("cafe", vec!["s3"]),
        ("東京", vec!["s3"]),
        ("京都庁", vec!["s3"]),
        ("都", vec!["s3"]),
        ("都東", vec![]),
        ("absent", vec![]),
        ("?!", vec![]),
    ] {
        assert_eq!(names(&client, words, "").await, sessions, "{words}");
    }
    // Without words, every session; as before, the other values of `in` search titles and what the list shows.
    assert_eq!(names(&client, " ", "").await.len(), 3);
    let page = client.get("/v1/sessions?q=jumps&in=title").await.ok();
    assert_eq!(page["sessions"], json!([]));
    client.get("/v1/sessions?q=x&in=body").await.problem(400, "bad_query");
    let many: String = (0..40).map(|n| format!("w{n}+")).collect();
    let problem = client.get(&format!("/v1/sessions?in=text&q={many}")).await.problem(400, "bad_query");
    assert_eq!((&problem["member"], &problem["limit"]), (&json!("q"), &json!(32)));
    client.get("/v1/lists/stream?sessions=true&in=text&q=fox").await.problem(400, "bad_query");
}

#[tokio::test]
async fn a_streamed_text_is_found_once_it_is_complete_and_what_tools_said_is_not() {
    let client = start_local().await;
    let delta = |message: &str, text: &str| fact("text.delta", json!({ "messageId": message, "payload": { "text": text } }));
    let thought = fact("reasoning.summary", json!({ "messageId": "m", "partId": "p", "payload": { "text": "ponder deeply" } }));
    let call = fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "grep" } }));
    let output = fact("tool.completed", json!({ "toolCallId": "c", "payload": { "output": "haystack" } }));
    let asked =
        fact("action.required", json!({ "actionId": "a", "payload": { "title": "Deploy to Lisbon?", "message": "On Friday" } }));
    let titled = fact("session.updated", json!({ "payload": { "title": "Harbour plans" } }));
    post(&client, "r", "s", &[thought, call, output, asked, titled, delta("m", "An unfin"), delta("m", "ished sen")]).await;
    until_indexed(&client).await;
    for (words, is_found) in [("grep", false), ("haystack", false), ("lisbon friday", true), ("harbour", true), ("ponder", true)]
    {
        let found = search(&client, words, "audience=internal").await;
        assert_eq!(found.len(), usize::from(is_found), "{words}: {found:?}");
    }
    let found = search(&client, "harbour", "").await;
    assert_ne!(found[0]["highlight"]["kind"], "match", "the list shows the title");
    let found = search(&client, "lisbon", "").await;
    assert_eq!(
        found[0]["highlight"],
        json!({ "kind": "match", "text": "Deploy to Lisbon? On Friday", "runId": "r", "sequence": 4 })
    );
    // A text without an end is found too, once it no longer grows.
    let found = async {
        while names(&client, "unfinished", "").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the open text", found).await;
    post(&client, "r", "s", &[delta("m", "tence"), fact("run.finished", json!({}))]).await;
    until_indexed(&client).await;
    let found = search(&client, "unfinished sentence", "").await;
    assert_eq!(
        (&found[0]["highlight"]["text"], &found[0]["highlight"]["sequence"]),
        (&json!("An unfinished sentence"), &json!(6))
    );

    // A replaced title is not found, the new one is.
    client.patch("/v1/sessions/s", &json!({ "title": "Quay" })).await.ok();
    until_indexed(&client).await;
    assert_eq!((names(&client, "harbour", "").await.len(), names(&client, "quay", "").await.len()), (0, 1));
}

#[tokio::test]
async fn matches_have_the_order_the_pages_and_the_filters_of_the_list() {
    let client = start_local().await;
    // More sessions than the list looks up one by one, and words that all, many and few of them have.
    for n in 0..700 {
        let words = format!("every {} {}", if n % 7 == 0 { "some" } else { "" }, if n % 350 == 3 { "few" } else { "" });
        let agent = json!({ "messageId": "m", "agentId": if n % 2 == 0 { "even" } else { "odd" }, "payload": { "role": "user", "text": words } });
        post(
            &client,
            &format!("r{n}"),
            &format!("s{n}"),
            &[fact("run.started", json!({ "agentId": agent["agentId"] })), fact("text.final", agent)],
        )
        .await;
    }
    client.patch("/v1/sessions/s7", &json!({ "archived": true })).await.ok();
    until_indexed(&client).await;
    let all = async |words: &str, more: &str| {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/v1/sessions?in=text&q={words}&limit=40&{more}&cursor={cursor}")).await.ok();
            all.extend(page["sessions"].as_array().unwrap().iter().map(|line| line["sessionId"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => return all,
            }
        }
    };
    let expected = |takes: fn(u32) -> bool| (0..700).rev().filter(|n| takes(*n)).map(|n| format!("s{n}")).collect::<Vec<_>>();
    for sort in ["sort=created", "sort=updated"] {
        assert_eq!(all("every", sort).await, expected(|n| n != 7), "{sort}");
        assert_eq!(all("some", sort).await, expected(|n| n % 7 == 0 && n != 7), "{sort}");
        assert_eq!(all("few", sort).await, ["s353", "s3"], "{sort}");
    }
    assert_eq!(all("some", "archived=true").await, ["s7"]);
    assert_eq!(all("every", "archived=all").await.len(), 700);
    assert_eq!(all("some", "agentId=odd&archived=all").await, expected(|n| n % 14 == 7));
    let after =
        client.get("/v1/sessions?sort=updated&limit=10").await.ok()["sessions"][9]["lastActivity"].as_str().unwrap().to_owned();
    assert!(all("every", &format!("sort=updated&updatedAfter={after}")).await.len() < 10);
}

#[tokio::test]
async fn a_compaction_leaves_what_is_found() {
    let (client, compactor) = start_with_stopped_clock().await;
    let delta = |text: &str| fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } }));
    let end = fact("text.final", json!({ "messageId": "m", "payload": { "text": "alpha beta gamma" } }));
    post(&client, "r", "s", &[delta("alpha "), delta("beta "), delta("gamma"), end, fact("run.finished", json!({}))]).await;
    until_indexed(&client).await;
    let before = search(&client, "alpha gamma", "").await;
    assert_eq!(before[0]["highlight"]["text"], "alpha beta gamma");
    assert!(compactor.run_once().await.unwrap().rows > 0);
    let after = search(&client, "alpha gamma", "").await;
    assert_eq!(after[0]["highlight"]["text"], "alpha beta gamma");
    assert_eq!(after[0]["highlight"]["messageId"], "m");
}

#[tokio::test]
async fn the_index_goes_on_after_a_stop_and_a_kill_and_is_made_anew_when_it_is_lost_or_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("data/search");
    let mut server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let delta = |text: &str| fact("text.delta", json!({ "messageId": "open", "payload": { "text": text } }));
    post(&client, "r1", "s1", &[message("m", "first alpha", "user"), delta("begun ")]).await;
    until_indexed(&client).await;
    server.terminate();
    server.wait();

    // What is open goes on where it was, also for a process that is killed.
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    assert_eq!(names(&client, "first", "").await, ["s1"]);
    post(&client, "r1", "s1", &[delta("before"), fact("run.finished", json!({}))]).await;
    post(&client, "r2", "s2", &[message("m", "second alpha", "user")]).await;
    until_indexed(&client).await;
    assert_eq!(names(&client, "begun before", "").await, ["s1"]);
    server.kill();
    let mut server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    until_indexed(&client).await;
    assert_eq!(names(&client, "alpha", "").await, ["s2", "s1"]);
    assert_eq!(names(&client, "begun before", "").await, ["s1"]);
    server.terminate();
    server.wait();

    // A store of a version without an index, then one whose index is damaged.
    std::fs::remove_dir_all(&index).unwrap();
    let mut server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    until_indexed(&client).await;
    assert_eq!(names(&client, "alpha", "").await, ["s2", "s1"]);
    server.terminate();
    server.wait();
    for file in std::fs::read_dir(index.join("tables")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[..middle].fill(0x5a);
        std::fs::write(&path, bytes).unwrap();
    }
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let found = async {
        loop {
            let answer = client.get("/v1/sessions?in=text&q=alpha").await;
            if answer.status == 200 && answer.json()["sessions"].as_array().unwrap().len() == 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the index that is made anew", found).await;
    server.kill();
}

#[tokio::test]
async fn an_index_that_is_ahead_of_its_store_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    let stop = async |mut server: Process| {
        server.terminate();
        server.wait();
    };
    let server = Process::start_in(dir.path());
    post(&Client::new(server.at), "r1", "s1", &[message("m", "kept alpha", "user")]).await;
    stop(server).await;
    let copied = std::process::Command::new("cp").arg("-r").arg(&data).arg(&copy).status().unwrap();
    assert!(copied.success());
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    post(&client, "r2", "s2", &[message("m", "lost alpha", "user"), message("m2", "more", "user")]).await;
    until_indexed(&client).await;
    stop(server).await;
    // The backup replaces the store, and leaves the index of later commits beside it.
    let index = dir.path().join("index");
    std::fs::rename(data.join("search"), &index).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    let _ = std::fs::remove_dir_all(data.join("search"));
    std::fs::rename(&index, data.join("search")).unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    until_indexed(&client).await;
    assert_eq!(names(&client, "alpha", "").await, ["s1"]);
    post(&client, "r3", "s3", &[message("m", "new alpha", "user")]).await;
    until_indexed(&client).await;
    assert_eq!(names(&client, "alpha", "").await, ["s3", "s1"]);
    server.kill();
}

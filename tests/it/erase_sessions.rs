//! Erasing a session or an owner: nothing of it returns, its ids are refused for a day, and its bytes leave every file.

use crate::harness::{
    Client, ClockedProcess, LITERAL_MARKER as MARKER, Process, Sse, TRANSPORTS, Transport, fact, has_literal_marker, start_local,
    with_timeout,
};
use crate::socket::Ws;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn says(words: &str) -> Value {
    fact("text.final", json!({ "messageId": "m", "payload": { "role": "user", "text": words } }))
}

async fn write(client: &Client, run: &str, query: &str, facts: Value) {
    client.post(&format!("/v1/runs/{run}/facts?{query}"), &JSON, facts.to_string()).await.ok();
}

async fn erase(client: &Client, path: &str) {
    let answer = client.delete(path).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0), "{path}: {answer:?}");
}

/// The ids of all sessions and runs that lists have.
async fn listed(client: &Client) -> (Vec<String>, Vec<String>) {
    let of = async |path: &str, member: &str, id: &str| {
        let list = client.get(path).await.ok();
        list[member].as_array().unwrap().iter().map(|line| line[id].as_str().unwrap().to_owned()).collect()
    };
    (of("/v1/sessions", "sessions", "sessionId").await, of("/v1/runs", "runs", "runId").await)
}

#[tokio::test]
async fn an_erased_session_is_gone_with_all_that_is_in_it_and_refused_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let body = fact("task.changed", json!({ "payload": { "output": MARKER.repeat(3000) } }));
    write(&client, "r1", "sessionId=s", json!([says(MARKER), body, fact("run.finished", json!({}))])).await;
    write(&client, "r2", "sessionId=s", json!([says(MARKER)])).await;
    write(&client, "kept", "sessionId=t", json!([says("stays")])).await;
    let opened = json!([fact("session.updated", json!({ "payload": { "title": MARKER } }))]).to_string();
    client.post("/v1/sessions/s/facts", &JSON, opened.clone()).await.ok();
    let wish = json!({ "control": "send", "value": MARKER, "agentId": "a" }).to_string();
    assert_eq!(client.post("/v1/sessions/s/controls", &JSON, wish.clone()).await.status, 202);
    for wanted in [json!({ "sessionId": "s" }), json!({ "runId": "r1" }), json!({ "runId": "kept" })] {
        let until = jiff::Timestamp::now() + Duration::from_hours(1);
        let mut wanted = wanted;
        wanted["until"] = json!(until.to_string());
        assert_eq!(client.post("/v1/links", &JSON, wanted.to_string()).await.status, 201);
    }
    let events = client.read_events("r1", "", 10).await;
    let blob = events[1]["refs"].to_string().split('"').find(|part| part.starts_with("/v1/blobs/")).unwrap().to_owned();
    assert_eq!(client.get(&blob).await.status, 200);

    client.delete("/v1/sessions/unknown").await.problem(404, "no_such_session");
    client.delete("/v1/sessions/%00").await.problem(400, "bad_id");
    erase(&client, "/v1/sessions/s").await;
    let check = async |client: &Client| {
        for path in ["", "/events", "/window", "/activities", "/timeline", "/stream", "/controls", "/decisions"] {
            let problem = client.get(&format!("/v1/sessions/s{path}")).await.problem(410, "erased");
            assert!(problem["detail"].as_str().unwrap().contains("session s was erased"), "{problem}");
        }
        for path in ["", "/events", "/export", "/activities", "/stream"] {
            client.get(&format!("/v1/runs/r1{path}")).await.problem(410, "erased");
        }
        client.delete("/v1/sessions/s").await.problem(410, "erased");
        client.get(&blob).await.problem(404, "no_such_blob");
        assert_eq!(listed(client).await, (vec!["t".to_owned()], vec!["kept".to_owned()]));
        let links = client.get("/v1/links").await.ok();
        assert_eq!(links["links"].as_array().unwrap().iter().map(|link| &link["runId"]).collect::<Vec<_>>(), ["kept"]);
        // Late facts of its runs, of new runs that name it, and of its own log; and what its clients ask.
        let late = json!([says("late")]).to_string();
        for run in ["r1", "r2", "new?sessionId=s"] {
            let (run, query) = run.split_once('?').unwrap_or((run, ""));
            client.post(&format!("/v1/runs/{run}/facts?{query}"), &JSON, late.clone()).await.problem(410, "erased");
        }
        let named = json!([fact("text.final", json!({ "sessionId": "s", "messageId": "m", "payload": { "text": "x" } }))]);
        client.post("/v1/runs/new/facts", &JSON, named.to_string()).await.problem(410, "erased");
        client.post_lines("/v1/runs/r2/facts", format!("{}\n", says("late"))).await.problem(410, "erased");
        client.post("/v1/sessions/s/facts", &JSON, opened.clone()).await.problem(410, "erased");
        client.post("/v1/sessions/s/controls", &JSON, wish.clone()).await.problem(410, "erased");
        client.post("/v1/runs/r1/settle", &JSON, "").await.problem(410, "erased");
        client.get("/v1/runs/new").await.problem(404, "no_such_run");
    };
    check(&client).await;
    let audit = client.get("/v1/audit").await.ok();
    let entry = audit["entries"].as_array().unwrap().iter().find(|entry| entry["what"] == "erase").expect("it is audited");
    assert_eq!(entry["sessionId"], "s");
    for path in ["/v1/attention", "/v1/sessions?q=%EA%99%AC", "/v1/audit/export", "/metrics", "/v1/runs/kept/export"] {
        let answer = client.get(path).await;
        assert!(answer.status == 200 && !String::from_utf8_lossy(&answer.body).contains(MARKER), "{path}");
    }
    server.kill();
    let server = Process::start_in(dir.path());
    check(&Client::new(server.at)).await;
}

#[tokio::test]
async fn every_open_stream_of_what_is_erased_ends_with_the_problem_of_a_new_request() {
    let client = start_local().await;
    write(&client, "r", "sessionId=s", json!([says("one")])).await;
    write(&client, "child", "sessionId=below&parentSessionId=s", json!([says("two")])).await;
    write(&client, "kept", "sessionId=t", json!([says("three")])).await;
    let (mut ended, mut of_run, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for via in TRANSPORTS {
        for path in ["/v1/sessions/s/stream?", "/v1/sessions/s/stream?children=true&", "/v1/stream?runs=kept,r&"] {
            for query in ["", "frames=events", "after=now"] {
                ended.push((format!("{via:?} {path}{query}"), client.open(via, &format!("{path}{query}"), None).await));
            }
        }
        for query in ["", "frames=events", "after=now", "format=ag-ui", "format=ai-sdk&version=7"] {
            of_run.push((query, client.open(via, &format!("/v1/runs/r/stream?{query}"), None).await));
        }
        for path in ["/v1/runs/kept/stream", "/v1/sessions/t/stream", "/v1/stream?runs=kept", "/v1/lists/stream?sessions=true"] {
            open.push((path.to_owned(), client.open(via, path, None).await));
        }
    }
    let mut socket = Ws::open(&client).await;
    for wanted in
        [json!({ "id": "run", "run": "r" }), json!({ "id": "session", "session": "s" }), json!({ "id": "kept", "run": "kept" })]
    {
        let mut message = wanted;
        (message["op"], message["after"]) = ("subscribe".into(), "now".into());
        assert_eq!(socket.request(message).await["op"], "subscribed");
    }
    let mut lists = client.open(Transport::Raw, "/v1/lists/stream?sessions=true&after=now", None).await;
    for (_, stream) in ended.iter_mut().chain(&mut open) {
        stream.wait_until_open().await;
    }
    assert_eq!(lists.next_frame().await.kind(), "Hydrated");

    erase(&client, "/v1/sessions/s?children=false").await;
    for (name, stream) in &mut ended {
        let last = stream.read_all().await.pop().expect("the stream has a frame");
        let problem = &last.data["problem"];
        assert_eq!(
            (last.kind(), &problem["status"], &problem["code"]),
            ("Error", &json!(410), &json!("erased")),
            "{name}: {last:?}"
        );
        let erased = if name.contains("/v1/sessions") { "session s" } else { "run r" };
        assert!(problem["detail"].as_str().unwrap().contains(erased), "{name}: {problem}");
    }
    // The server settles a run before it erases it. So a stream of the run alone ends with that, if it comes in time.
    for (query, stream) in &mut of_run {
        stream.read_to_end().await;
        let text = String::from_utf8_lossy(&stream.bytes);
        let parts = ["\"frame\":\"End\"", "the session of the run is being erased", "run r was erased"];
        assert!(parts.iter().any(|part| text.contains(part)), "{query}: {text}");
    }
    let mut failed = Vec::new();
    while failed.len() < 2 {
        let frame = socket.next_frame().await;
        let is_settled = frame["frame"] == "End" && frame["sub"] == "run";
        if is_settled || frame["frame"] == "Error" {
            assert!(is_settled || frame["problem"]["code"] == "erased", "{frame}");
            failed.push(frame["sub"].as_str().unwrap().to_owned());
        }
    }
    failed.sort_unstable();
    assert_eq!(failed, ["run", "session"]);
    // Before that, it was settled.
    while lists.next_frame().await.data["op"] != "remove" {}
    // The others, and the connection, go on.
    write(&client, "kept", "", json!([fact("text.final", json!({ "messageId": "m2", "payload": { "text": "later" } }))])).await;
    for (path, stream) in &mut open {
        while !stream.next_frame().await.text.contains(if path.contains("lists") { "\"t\"" } else { "later" }) {}
    }
    while !socket.next_frame().await.to_string().contains("later") {}
}

#[tokio::test]
async fn a_client_that_waits_for_its_run_gets_the_erasure_of_the_session_in_its_format() {
    let client = start_local().await;
    let message = json!([{ "id": "m", "role": "user", "content": "hi", "parts": [{ "type": "text", "text": "hi" }] }]);
    let ag_ui = json!({ "threadId": "s", "runId": "r", "messages": message, "tools": [], "context": [] });
    let ai_sdk = json!({ "id": "s", "messages": message });
    for (path, body, kind) in [("/ag-ui/helper", ag_ui, "RUN_ERROR"), ("/ai-sdk/helper", ai_sdk, "error")] {
        let socket = tokio::net::TcpStream::connect(client.at).await.unwrap();
        let session = format!("s-{kind}");
        let body = body.to_string().replace("\"s\"", &json!(session).to_string());
        let mut stream = Sse::post(socket, path, &body).await;
        stream.wait_until_open().await;
        erase(&client, &format!("/v1/sessions/{session}")).await;
        stream.read_to_end().await;
        let text = String::from_utf8_lossy(&stream.bytes);
        let failed = text.lines().find(|line| line.contains(&format!("\"type\":\"{kind}\"")));
        assert!(failed.is_some_and(|line| line.contains(&format!("session {session} was erased"))), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_session_with_children_is_refused_until_the_request_says_what_becomes_of_them() {
    let client = start_local().await;
    let begin = async || {
        for (session, parent) in [("a", ""), ("b", "a"), ("c", "b"), ("d", "a")] {
            let query = format!("sessionId={session}&parentSessionId={parent}");
            let query = if parent.is_empty() { format!("sessionId={session}") } else { query };
            write(&client, &format!("run-{session}"), &query, json!([says("x"), fact("run.finished", json!({}))])).await;
        }
    };
    begin().await;
    let problem = client.delete("/v1/sessions/a").await.problem(409, "has_children");
    assert_eq!((&problem["count"], &problem["sessionIds"]), (&json!(3), &json!(["b", "d", "c"])));
    client.delete("/v1/sessions/a?children=perhaps").await.problem(400, "bad_query");
    assert_eq!(listed(&client).await.0.len(), 4, "nothing was erased");
    erase(&client, "/v1/sessions/b?children=false").await;
    let mut left = listed(&client).await.0;
    left.sort();
    assert_eq!(left, ["a", "c", "d"]);
    erase(&client, "/v1/sessions/a?children=true").await;
    assert_eq!(listed(&client).await, (vec!["c".to_owned()], vec!["run-c".to_owned()]), "c has lost its way to a");
    erase(&client, "/v1/sessions/c").await;
    assert_eq!(listed(&client).await, (vec![], vec![]));
}

#[tokio::test]
async fn the_runtime_of_a_run_is_asked_to_stop_before_its_session_is_erased() {
    let client = start_local().await;
    write(&client, "r", "sessionId=s&agentId=a", json!([fact("run.started", json!({})), says("x")])).await;
    write(&client, "deserted", "sessionId=s&agentId=b", json!([fact("run.started", json!({}))])).await;
    let runtime = {
        let client = client.clone();
        tokio::spawn(async move {
            let claimed = client.post("/v1/agents/a/controls/claim?wait=30", &JSON, "").await.ok();
            assert_eq!(claimed["controls"][0]["control"], "interrupt");
            // Until the session is refused, the runtime may say how its run ended.
            let end = json!([fact("run.finished", json!({ "payload": { "status": "cancelled" } }))]).to_string();
            client.post("/v1/runs/r/facts", &JSON, end).await.ok();
        })
    };
    let is_waiting = async {
        while client.get("/copilotkit/info").await.ok()["agents"].get("a").is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_timeout("the runtime to wait", is_waiting).await;
    erase(&client, "/v1/sessions/s").await;
    with_timeout("the runtime", runtime).await.unwrap();
    client.get("/v1/runs/r").await.problem(410, "erased");
    client.get("/v1/runs/deserted").await.problem(410, "erased");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_fact_survives_that_producers_send_while_their_session_is_erased() {
    let client = start_local().await;
    write(&client, "first", "sessionId=s", json!([says("x")])).await;
    let producers: Vec<_> = (0..8)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                for round in 0.. {
                    let path = format!("/v1/runs/r{n}-{round}/facts?sessionId=s");
                    let answer = client.post(&path, &JSON, json!([says("x")]).to_string()).await;
                    if answer.status != 200 {
                        answer.problem(410, "erased");
                        return round;
                    }
                }
                unreachable!("a producer goes on until it is refused")
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    erase(&client, "/v1/sessions/s").await;
    assert_eq!(listed(&client).await, (vec![], vec![]), "once it is answered");
    for producer in producers {
        with_timeout("a producer", producer).await.unwrap();
    }
    assert_eq!(listed(&client).await, (vec![], vec![]), "and for good");
}

#[tokio::test]
async fn an_id_may_be_used_again_a_day_after_its_erasure() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = ClockedProcess::start(dir.path(), &["--stale-after", "604800", "--settle-after", "604800"]);
    let client = clocked.client.clone();
    write(&client, "r", "sessionId=s", json!([says("old")])).await;
    erase(&client, "/v1/sessions/s").await;
    clocked.advance(Duration::from_hours(23)).await;
    let send = async |run: &str| {
        client.post(&format!("/v1/runs/{run}/facts?sessionId=s"), &JSON, json!([says("new")]).to_string()).await
    };
    send("r").await.problem(410, "erased");
    let is_free = async || send("r").await.status == 200;
    clocked.advance_until("the id to be free", Duration::from_mins(30), is_free).await;
    let events = client.read_events("r", "", 10).await;
    assert_eq!((events.len(), &events[0]["payload"]["text"]), (1, &json!("new")));
    client.get("/v1/sessions/s").await.ok();
}

#[tokio::test]
async fn an_owner_is_erased_with_all_sessions_and_runs_and_no_one_elses() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    for n in 0..40 {
        write(&client, &format!("acme-{n}"), &format!("sessionId=acme-{n}&owner=acme"), json!([says("x")])).await;
    }
    write(&client, "alone", "owner=acme", json!([says("x")])).await;
    write(&client, "other", "sessionId=other&owner=umbrella", json!([says("x")])).await;
    write(&client, "free", "", json!([says("x")])).await;
    erase(&client, "/v1/owners/acme").await;
    let (sessions, mut runs) = listed(&client).await;
    runs.sort();
    assert_eq!((sessions, runs), (vec!["other".to_owned()], vec!["free".to_owned(), "other".to_owned()]));
    client.get("/v1/runs/alone").await.problem(410, "erased");
    erase(&client, "/v1/owners/acme").await;
    erase(&client, "/v1/owners/nothing-of-it").await;
    client.delete("/v1/owners/%00").await.problem(400, "bad_id");
    let audit = client.get("/v1/audit").await.ok();
    assert!(audit["entries"].as_array().unwrap().iter().any(|entry| entry["what"] == "erase" && entry["id"] == "acme"));
    // What begins later is another matter.
    write(&client, "again", "sessionId=again&owner=acme", json!([says("x")])).await;
}

/// The files below a directory that contain the marker.
pub fn files_with_marker(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with_marker(&path));
        } else if std::fs::read(&path).is_ok_and(|bytes| has_literal_marker(&bytes)) {
            found.push(path);
        }
    }
    found
}

/// Waits until no bytes of what was erased wait.
pub async fn until_purged(client: &Client) {
    let purged = async {
        loop {
            let text = client.get("/metrics").await;
            let text = String::from_utf8_lossy(&text.body).into_owned();
            let waiting = text.lines().find_map(|line| line.strip_prefix("proscenium_erased_bytes ")).expect("the metric");
            if waiting == "0" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the pass", purged).await;
}

/// Text that does not compress, so that tables are written.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let letters = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    });
    letters.take(bytes).collect()
}

#[test]
fn a_compressed_block_has_the_marker_as_it_is() {
    for seed in 0..200 {
        let row = |n: u64| format!("{{\"type\":\"text.final\",\"payload\":{{\"text\":\"{MARKER} {}\"}}}}", noise(seed + n, 300));
        let others: String = (0..seed % 50).map(|n| row(n).replace(MARKER, "stays")).collect();
        let block = others + &row(50).repeat(3);
        let compressed = lz4_flex::block::compress(block.as_bytes());
        assert!(compressed.len() < block.len() && has_literal_marker(&compressed), "{seed}");
    }
}

#[tokio::test]
async fn the_bytes_of_an_erased_session_leave_the_journal_the_tables_and_the_bodies() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--erase-within", "2"];
    let mut server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    for n in 0..24 {
        let large = fact("task.changed", json!({ "taskId": format!("t{n}"), "payload": { "output": noise(n, 150_000) } }));
        write(&client, &format!("kept-{n}"), "sessionId=kept", json!([says(&noise(n, 9000)), large])).await;
        let marked = format!("{MARKER} {}", noise(100 + n, 9000));
        let body = format!("{MARKER} {}", noise(200 + n, 150_000));
        let large = fact("task.changed", json!({ "taskId": format!("t{n}"), "payload": { "output": body } }));
        write(&client, &format!("r{n}"), "sessionId=s", json!([says(&marked), large])).await;
    }
    let wish = json!({ "control": "send", "value": MARKER, "agentId": "a" }).to_string();
    assert_eq!(client.post("/v1/sessions/s/controls", &JSON, wish).await.status, 202);
    // Closing the store writes tables.
    server.terminate();
    server.wait();
    let data = dir.path().join("data");
    let with_marker = files_with_marker(dir.path());
    for part in ["journal", "rows", "state", "bodies", "search"] {
        assert!(with_marker.iter().any(|path| path.to_string_lossy().contains(part)), "{part}: {with_marker:?}");
    }
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    let search = format!("/v1/sessions?in=text&q={MARKER}");
    assert_eq!(client.get(&search).await.ok()["sessions"][0]["sessionId"], "s");
    erase(&client, "/v1/sessions/s").await;
    assert_eq!(client.get(&search).await.ok()["sessions"], json!([]));
    until_purged(&client).await;
    assert_eq!(files_with_marker(&data), Vec::<PathBuf>::new());
    assert_eq!(listed(&client).await.1.len(), 24);
    let kept = client.get(&format!("/v1/sessions?in=text&q={}", &noise(3, 9000)[..40])).await.ok();
    assert_eq!(kept["sessions"][0]["sessionId"], "kept");
    for n in 0..24 {
        let events = client.read_events(&format!("kept-{n}"), "", 10).await;
        assert_eq!(events[0]["payload"]["text"], noise(n, 9000));
        let blob = events[1]["refs"].to_string().split('"').find(|part| part.starts_with("/v1/blobs/")).unwrap().to_owned();
        assert!(String::from_utf8_lossy(&client.get(&blob).await.body).contains(&noise(n, 150_000)[..1000]));
    }
    // A crash right after the pass loses nothing that was acknowledged.
    write(&client, "later", "sessionId=kept", json!([says("later")])).await;
    server.kill();
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    assert_eq!(listed(&client).await.1.len(), 25);
    client.get("/v1/runs/r1").await.problem(410, "erased");
    assert_eq!(files_with_marker(&data), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn an_erasure_that_a_crash_cuts_off_did_not_begin_or_completes() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--erase-within", "2"];
    let mut completed = 0;
    for round in 0..10_u64 {
        let server = Process::start_with(dir.path(), &flags);
        let client = Client::new(server.at);
        let session = format!("s{round}");
        for n in 0..30 {
            write(
                &client,
                &format!("{session}-{n}"),
                &format!("sessionId={session}"),
                json!([says(MARKER), fact("run.finished", json!({}))]),
            )
            .await;
        }
        let erasing = {
            let (client, path) = (client.clone(), format!("/v1/sessions/{session}"));
            tokio::spawn(async move { client.delete(&path).await.status })
        };
        tokio::time::sleep(Duration::from_millis(3 * round)).await;
        server.kill();
        erasing.abort();
        let server = Process::start_with(dir.path(), &flags);
        let client = Client::new(server.at);
        let audit = client.get("/v1/audit").await.ok();
        let has_begun = audit["entries"].as_array().unwrap().iter().any(|entry| entry["sessionId"] == *session);
        if has_begun {
            completed += 1;
            let complete = async {
                loop {
                    let (sessions, runs) = listed(&client).await;
                    if !sessions.contains(&session) {
                        assert!(!runs.iter().any(|run| run.starts_with(&format!("{session}-"))), "{runs:?}");
                        return;
                    }
                }
            };
            with_timeout("the erasure", complete).await;
            client.get(&format!("/v1/sessions/{session}")).await.problem(410, "erased");
        } else {
            assert_eq!(client.get(&format!("/v1/sessions/{session}")).await.ok()["runs"].as_array().unwrap().len(), 30);
            erase(&client, &format!("/v1/sessions/{session}")).await;
        }
        until_purged(&client).await;
        assert_eq!(files_with_marker(&dir.path().join("data")), Vec::<PathBuf>::new(), "round {round}");
        server.kill();
    }
    assert!(completed > 0, "no kill came after the beginning");
}

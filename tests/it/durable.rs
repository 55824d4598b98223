//! Runs and sessions as durable streams: every offset goes on where it says, and every rule of the protocol holds.
//!
//! The published client is in `tests/clients/durable.test.mjs`.

use crate::harness::{
    AUDIENCES, Client, ClockedProcess, Process, Response, Sse, Transport, fact, start_local, start_local_with, with_timeout,
};
use proscenium::feed::FeedConfig;
use proscenium::serve::Limits;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;

/// A ring so small that every reader which is not at the newest frame reads the log.
const TINY_RING: FeedConfig = FeedConfig { tick: Duration::from_millis(1), ring_bytes_max: 1, pages_bytes_max: 1 << 20 };

fn header<'r>(answer: &'r Response, name: &str) -> Option<&'r str> {
    answer.headers.get(name).map(|value| value.to_str().unwrap())
}

fn next_offset(answer: &Response) -> String {
    header(answer, "stream-next-offset").unwrap_or_else(|| panic!("an offset: {answer:?}")).to_owned()
}

/// The items of an answer, and the offset after them.
fn items_of(answer: &Response) -> (Vec<Value>, String) {
    let items = answer.ok();
    assert_eq!(header(answer, "content-type"), Some("application/json"));
    (items.as_array().expect("an array of items").clone(), next_offset(answer))
}

/// All items from an offset on, answer by answer, and the offset after them.
async fn read_all(client: &Client, path: &str, query: &str, from: &str) -> (Vec<Value>, String) {
    let (mut all, mut offset) = (Vec::new(), from.to_owned());
    loop {
        let answer = client.get(&format!("{path}?offset={offset}&{query}")).await;
        let (items, next) = items_of(&answer);
        all.extend(items);
        if header(&answer, "stream-up-to-date").is_some() {
            return (all, next);
        }
        assert!(next > offset || offset == "-1", "offsets grow as text: {offset} {next}");
        offset = next;
    }
}

fn text(n: usize, audience: &str) -> Value {
    fact("text.delta", json!({ "messageId": "m", "audience": audience, "payload": { "text": format!("{n} ") } }))
}

/// A run with facts for all audiences, one commit each.
async fn write_run(client: &Client, run: &str, session: &str) {
    client.append(run, &[fact("run.started", json!({ "sessionId": session }))]).await;
    for n in 0..6 {
        client.append(run, &[text(n, AUDIENCES[n % 3]), text(n, "user")]).await;
    }
}

#[tokio::test]
async fn a_catch_up_read_gives_the_envelopes_that_the_audience_sees() {
    let client = start_local().await;
    write_run(&client, "r", "s").await;
    write_run(&client, "q", "s").await;
    for audience in AUDIENCES {
        let query = format!("audience={audience}");
        let events = client.read_events("r", &query, 1000).await;
        let answer = client.get(&format!("/v1/runs/r/durable?{query}")).await;
        assert_eq!(items_of(&answer).0, events, "{audience}");
        assert_eq!(header(&answer, "stream-up-to-date"), Some("true"));
        assert_eq!(header(&answer, "stream-closed"), None, "the run goes on");
        assert_eq!(header(&answer, "cache-control"), Some("private, no-cache"));
        let of_session = client.get(&format!("/v1/sessions/s/events?{query}")).await.ok()["events"].clone();
        assert_eq!(json!(read_all(&client, "/v1/sessions/s/durable", &query, "-1").await.0), of_session, "{audience}");
    }
    let (deltas, _) = read_all(&client, "/v1/runs/r/durable", "type=text.delta", "-1").await;
    assert_eq!(deltas.len(), client.read_events("r", "type=text.delta", 1000).await.len());
    let (none, next) = read_all(&client, "/v1/runs/r/durable", "type=nothing", "-1").await;
    let tail = next_offset(&client.request(http::Method::HEAD, "/v1/runs/r/durable", &[], "").await);
    assert_eq!((none, next), (vec![], tail), "a reader that sees nothing does not read the same rows again");
}

#[tokio::test]
async fn a_reader_resumes_at_every_offset_without_loss_or_doubles() {
    for sizes in [FeedConfig::default(), TINY_RING] {
        let client = start_local_with(sizes, Limits::default()).await;
        for (path, query) in [("/v1/runs/r/durable", ""), ("/v1/sessions/s/durable", ""), ("/v1/runs/r/durable", "frames=events")]
        {
            client.delete("/v1/runs/r").await;
            let mut offsets = Vec::new();
            client.append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
            for n in 0..5 {
                let (items, offset) = read_all(&client, path, query, "-1").await;
                offsets.push((items.len(), offset));
                client.append("r", &[text(n, "user"), text(n, "internal"), text(n, "user")]).await;
            }
            let (all, end) = read_all(&client, path, query, "-1").await;
            assert!(offsets.is_sorted_by(|(_, one), (_, two)| one < two), "{offsets:?}");
            for (count, offset) in offsets {
                let (rest, at) = read_all(&client, path, query, &offset).await;
                let rest: Vec<_> = rest.iter().map(|item| item.get("event").unwrap_or(item)).collect();
                let expected: Vec<_> = all[count..].iter().map(|item| item.get("event").unwrap_or(item)).collect();
                assert_eq!((rest, at), (expected, end.clone()), "{path} from {offset}");
            }
        }
    }
}

#[tokio::test]
async fn a_long_stream_comes_in_several_answers() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
    for n in 0..40 {
        let large = "x".repeat(60_000);
        client.append("r", &[fact("text.delta", json!({ "messageId": n.to_string(), "payload": { "text": large } }))]).await;
    }
    for path in ["/v1/runs/r/durable", "/v1/sessions/s/durable"] {
        let first = client.get(path).await;
        assert_eq!(header(&first, "stream-up-to-date"), None, "{path}: there is more");
        assert!(first.body.len() < 2 * 1024 * 1024, "{path}: {}", first.body.len());
        assert_eq!(read_all(&client, path, "", "-1").await.0.len(), 41, "{path}");
    }
}

#[tokio::test]
async fn a_run_that_ended_is_closed_and_opens_again_when_it_goes_on() {
    let client = start_local().await;
    write_run(&client, "r", "s").await;
    let before = client.request(http::Method::HEAD, "/v1/runs/r/durable", &[], "").await;
    assert_eq!(
        (before.status, header(&before, "stream-closed"), header(&before, "cache-control")),
        (200, None, Some("no-store"))
    );
    client.append("r", &[fact("action.required", json!({ "actionId": "a", "payload": { "kind": "approve" } }))]).await;
    assert_eq!(header(&client.get("/v1/runs/r/durable").await, "stream-closed"), None, "a run that waits goes on");
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let closed = client.get("/v1/runs/r/durable").await;
    let end = next_offset(&closed);
    assert_eq!(header(&closed, "stream-closed"), Some("true"));
    assert!(header(&closed, "etag").unwrap().ends_with(":c\""), "{closed:?}");
    let head = client.request(http::Method::HEAD, "/v1/runs/r/durable", &[], "").await;
    assert_eq!((next_offset(&head), header(&head, "stream-closed")), (end.clone(), Some("true")));
    for query in [format!("offset={end}"), "offset=now".into()] {
        let answer = client.get(&format!("/v1/runs/r/durable?{query}")).await;
        assert_eq!((items_of(&answer), header(&answer, "stream-closed")), ((vec![], end.clone()), Some("true")), "{query}");
        let polled = with_timeout("the end", client.get(&format!("/v1/runs/r/durable?live=long-poll&{query}"))).await;
        assert_eq!((polled.status, header(&polled, "stream-closed")), (204, Some("true")), "{query}");
    }
    assert_eq!(header(&client.get("/v1/sessions/s/durable").await, "stream-closed"), None, "a session goes on");

    client.append("r", &[fact("run.started", json!({}))]).await;
    let reopened = client.get(&format!("/v1/runs/r/durable?offset={end}")).await;
    assert_eq!(header(&reopened, "stream-closed"), None);
    assert_eq!(items_of(&reopened).0[0]["type"], "run.started");
}

#[tokio::test]
async fn an_offset_that_the_stream_does_not_have_is_gone_and_any_other_text_is_refused() {
    let client = start_local().await;
    write_run(&client, "r", "s").await;
    write_run(&client, "q", "s").await;
    let offsets = [
        next_offset(&client.get("/v1/runs/q/durable").await),
        next_offset(&client.get("/v1/sessions/s/durable").await),
        "0123456789abcdef_00000000000000000002".to_owned(),
        next_offset(&client.get("/v1/runs/r/durable").await).replace("_000", "_009"),
    ];
    for live in ["", "&live=long-poll", "&live=sse"] {
        for offset in &offsets {
            let problem = client.get(&format!("/v1/runs/r/durable?offset={offset}{live}")).await.problem(410, "epoch_changed");
            assert_eq!(problem["member"], "offset", "{problem}");
        }
    }
    for path in ["/v1/runs/r/durable", "/v1/sessions/s/durable"] {
        for (query, code, member) in [
            ("offset=7", "bad_cursor", "offset"),
            ("offset=", "bad_cursor", "offset"),
            ("live=long-poll", "bad_cursor", "offset"),
            ("live=sse", "bad_cursor", "offset"),
            ("offset=-1&live=forever", "bad_query", "live"),
            ("offset=-1&live=sse&cursor=x", "bad_cursor", "cursor"),
            ("frames=pictures", "bad_query", "frames"),
            ("replay=backwards", "bad_query", "replay"),
            ("surfaces=nowhere", "bad_query", "surfaces"),
            ("audience=all", "bad_audience", "audience"),
        ] {
            assert_eq!(client.get(&format!("{path}?{query}")).await.problem(400, code)["member"], member, "{path}?{query}");
        }
    }
    client.get("/v1/sessions/s/durable?format=ag-ui").await.problem(501, "not_served");
    client.get("/v1/runs/r/durable?format=pictures").await.problem(501, "not_served");
    for (query, code, member) in [
        ("format=ag-ui&offset=now", "bad_cursor", "offset"),
        ("format=ai-sdk&offset=7", "bad_cursor", "offset"),
        ("format=ai-sdk&version=4", "bad_query", "version"),
    ] {
        assert_eq!(client.get(&format!("/v1/runs/r/durable?{query}")).await.problem(400, code)["member"], member, "{query}");
    }
    client.get("/v1/runs/never/durable").await.problem(404, "no_such_run");
    client.get("/v1/sessions/never/durable").await.problem(404, "no_such_session");
    assert_eq!(client.request(http::Method::HEAD, "/v1/runs/never/durable", &[], "").await.status, 404);
    client.post("/v1/runs/r/durable", &[], "[]").await.problem(405, "method_not_allowed");
}

#[tokio::test]
async fn a_repeated_read_is_answered_with_304_until_something_changed() {
    let client = start_local().await;
    write_run(&client, "r", "s").await;
    for path in ["/v1/runs/r/durable?offset=-1", "/v1/sessions/s/durable?offset=-1"] {
        let first = client.get(path).await;
        let tag = header(&first, "etag").unwrap().to_owned();
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
            let again = client.get_with(path, &[("if-none-match", &*known)]).await;
            assert_eq!((again.status, again.body.len(), header(&again, "etag")), (304, 0, Some(&*tag)), "{known}");
            assert_eq!(next_offset(&again), next_offset(&first));
        }
        client.append("r", &[text(9, "user")]).await;
        let changed = client.get_with(path, &[("if-none-match", &*tag)]).await;
        assert_eq!(changed.status, 200);
        assert_ne!(header(&changed, "etag"), Some(&*tag));
    }
    let now = client.get("/v1/runs/r/durable?offset=now").await;
    assert_eq!((items_of(&now).0, header(&now, "etag"), header(&now, "cache-control")), (vec![], None, Some("no-store")));
}

#[tokio::test]
async fn a_long_poll_is_answered_with_the_next_item() {
    let client = start_local().await;
    write_run(&client, "r", "s").await;
    for path in ["/v1/runs/r/durable", "/v1/sessions/s/durable"] {
        let at = next_offset(&client.get(path).await);
        let address = format!("{path}?live=long-poll&type=text.delta&offset={at}");
        let poll = async { client.get(&address).await };
        let publish = async {
            // The first is for others, and the second is of another type.
            client.append("r", &[text(1, "internal")]).await;
            client.append("r", &[fact("reasoning.delta", json!({ "messageId": "m", "payload": { "text": "Hm." } }))]).await;
            client.append("r", &[text(7, "user")]).await;
        };
        let (answer, ()) = Box::pin(with_timeout("the item", async { tokio::join!(poll, publish) })).await;
        let (items, next) = items_of(&answer);
        assert_eq!((items.len(), items[0]["payload"]["text"].as_str()), (1, Some("7 ")), "{path}");
        assert!(header(&answer, "stream-cursor").unwrap().parse::<u64>().unwrap() > 0);
        assert!(next > at);
        let earlier = client.get(&format!("{path}?live=long-poll&offset=-1")).await;
        assert!(items_of(&earlier).0.len() > 5, "{path}: what is there comes at once");
    }
}

/// Reads the body of a live answer to its end.
async fn read_live(at: std::net::SocketAddr, path: &str) -> String {
    let socket = TcpStream::connect(at).await.unwrap();
    let mut sse = Sse::open(socket, Transport::Raw, path, &[]).await;
    assert_eq!((sse.status, &*sse.headers["content-type"]), (200, "text/event-stream"));
    sse.read_to_end().await;
    String::from_utf8(std::mem::take(&mut sse.bytes)).unwrap()
}

/// The items and the controls of a live answer.
fn events_of(body: &str) -> (Vec<Value>, Vec<Value>) {
    let (mut items, mut controls) = (Vec::new(), Vec::new());
    let events = body.split_terminator("\n\n").map(|event| event.trim_start_matches(":\n"));
    for event in events.filter(|event| !event.is_empty()) {
        let (kind, data) = event.split_once('\n').expect("two lines");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("a data line")).unwrap();
        match kind {
            "event: data" => items.extend(data.as_array().expect("an array").iter().cloned()),
            "event: control" => controls.push(data),
            other => panic!("{other}"),
        }
    }
    (items, controls)
}

#[tokio::test]
async fn a_live_answer_has_the_items_and_ends_with_the_run() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
    let read = read_live(client.at, "/v1/runs/r/durable?offset=-1&live=sse&audience=internal");
    let write = async {
        write_run(&client, "r", "s").await;
        client.append("r", &[fact("run.finished", json!({}))]).await;
    };
    let (body, ()) = with_timeout("the end", async { tokio::join!(read, write) }).await;
    let (items, controls) = events_of(&body);
    assert_eq!(items, client.read_events("r", "audience=internal", 1000).await);
    let offsets: Vec<_> = controls.iter().map(|control| control["streamNextOffset"].as_str().unwrap()).collect();
    assert!(offsets.is_sorted(), "{offsets:?}");
    let last = controls.last().unwrap();
    assert_eq!((&last["streamClosed"], &last["upToDate"]), (&json!(true), &json!(true)));
    assert_eq!(last["streamNextOffset"], next_offset(&client.get("/v1/runs/r/durable?offset=now").await));
    assert!(controls.iter().rev().skip(1).all(|control| control.get("streamClosed").is_none()), "{controls:?}");
}

#[tokio::test]
async fn a_live_answer_without_items_ends_after_its_time() {
    let dir = tempfile::tempdir().unwrap();
    // A run that goes silent would be an item.
    let server = ClockedProcess::start(dir.path(), &["--stale-after", "604800", "--settle-after", "604800"]);
    let client = &server.client;
    client.append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
    for path in ["/v1/runs/r/durable", "/v1/sessions/s/durable"] {
        let at = next_offset(&client.get(path).await);
        let (address, live) = (format!("{path}?live=long-poll&offset={at}"), format!("{path}?live=sse&offset={at}"));
        let poll = client.get(&address);
        let live = read_live(client.at, &live);
        let mut both = std::pin::pin!(async { tokio::join!(poll, live) });
        let (polled, live) = loop {
            tokio::select! {
                biased;
                ended = &mut both => break ended,
                // The server works on what became due.
                () = async { server.advance(Duration::from_secs(10)).await; tokio::time::sleep(Duration::from_millis(5)).await } => {}
            }
        };
        assert_eq!((polled.status, header(&polled, "stream-up-to-date")), (204, Some("true")));
        assert!(next_offset(&polled) >= at, "{path}");
        assert!(header(&polled, "stream-closed").is_none() && header(&polled, "stream-cursor").is_some());
        let (items, controls) = events_of(&live);
        assert!(items.is_empty() && controls.len() == 1, "{live}");
        assert!(controls[0]["streamNextOffset"].as_str() >= Some(&*at) && controls[0]["upToDate"] == true, "{live}");
        assert!(live.contains(":\n"), "heartbeats: {live}");
    }
}

#[tokio::test]
async fn frames_come_as_items_if_the_query_asks_for_them() {
    let client = start_local().await;
    write_run(&client, "r", "s").await;
    let mut native = client.open_activities("r", "", None).await;
    let (items, at) = read_all(&client, "/v1/runs/r/durable", "frames=activities", "-1").await;
    for item in &items {
        assert_eq!(*item, native.next_frame().await.data);
    }
    assert_eq!(items.last().unwrap()["frame"], "Hydrated");
    client.append("r", &[text(7, "user"), fact("run.finished", json!({}))]).await;
    let (rest, _) = read_all(&client, "/v1/runs/r/durable", "frames=activities", &at).await;
    // The change, or the activity as it is now: the server may still have the change in memory.
    assert!(rest.iter().any(|item| item["activityType"] == "message"), "{rest:?}");
    assert_eq!(rest.last().unwrap()["frame"], "End");
    let (replayed, _) = read_all(&client, "/v1/runs/r/durable", "frames=activities&replay=deltas", "-1").await;
    assert!(replayed.len() > items.len(), "every change");
    let (of_session, _) = read_all(&client, "/v1/sessions/s/durable", "frames=activities", "-1").await;
    assert_eq!(of_session.iter().filter(|item| item["frame"] == "End").count(), 1);
}

#[tokio::test]
async fn too_many_snapshots_for_one_answer_are_refused() {
    let client = start_local().await;
    for part in 0..18 {
        let deltas: Vec<_> = (0..17)
            .map(|_| fact("text.delta", json!({ "messageId": part.to_string(), "payload": { "text": "x".repeat(60_000) } })))
            .collect();
        client.append("r", &deltas).await;
    }
    let problem = client.get("/v1/runs/r/durable?frames=activities").await.problem(422, "activities_too_large");
    assert_eq!(problem["limit"], 16 * 1024 * 1024);
    assert_eq!(read_all(&client, "/v1/runs/r/durable", "", "-1").await.0.len(), 18 * 17);
}

#[tokio::test]
async fn an_erased_run_is_gone_and_ends_its_live_answers() {
    let client = start_local().await;
    for format in ["", "&format=ag-ui", "&format=ai-sdk"] {
        write_run(&client, "r", "s").await;
        let at = next_offset(&client.get(&format!("/v1/runs/r/durable?offset=-1{format}")).await);
        let [address, live] = ["long-poll", "sse"].map(|live| format!("/v1/runs/r/durable?live={live}&offset={at}{format}"));
        let socket = TcpStream::connect(client.at).await.unwrap();
        let mut live = Sse::open(socket, Transport::Raw, &live, &[]).await;
        live.wait_until_open().await;
        // The poll waits by then, or finds that the run is gone.
        let (polled, erased) =
            with_timeout("the ends", async { tokio::join!(client.get(&address), client.delete("/v1/runs/r")) }).await;
        assert_eq!(erased.status, 204);
        polled.problem(410, "erased");
        live.read_to_end().await;
        assert!(!String::from_utf8_lossy(&live.bytes).contains("streamClosed"), "{format}");
        client.get("/v1/runs/r/durable").await.problem(410, "erased");
        client.append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
        client.get(&address).await.problem(410, "epoch_changed");
        assert_eq!(read_all(&client, "/v1/runs/r/durable", "", "-1").await.0.len(), 1);
        let (of_session, _) = read_all(&client, "/v1/sessions/s/durable", "type=text.delta", "-1").await;
        assert!(of_session.is_empty(), "{of_session:?}");
    }
}

#[tokio::test]
async fn a_session_has_its_descendants_if_the_query_asks() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
    client.append("c", &[fact("run.started", json!({ "sessionId": "below", "parentSessionId": "s" }))]).await;
    let count = async |query: &str| read_all(&client, "/v1/sessions/s/durable", query, "-1").await.0.len();
    assert_eq!((count("type=run.started").await, count("type=run.started&children=true").await), (1, 2));
}

#[tokio::test]
async fn a_page_of_another_origin_may_read_the_headers() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--cors-origin", "http://pages.example"]);
    let client = Client::new(server.at);
    client.append("r", &[fact("run.started", json!({}))]).await;
    let answer = client.get_with("/v1/runs/r/durable", &[("origin", "http://pages.example")]).await;
    let exposed = header(&answer, "access-control-expose-headers").unwrap();
    for name in ["stream-next-offset", "stream-up-to-date", "stream-closed", "stream-cursor", "etag"] {
        assert!(exposed.split(',').any(|exposed| exposed.trim() == name), "{name}: {exposed}");
    }
}

/// The facts of a run that a client of another format has to be told of by many events.
fn varied_facts() -> Vec<Value> {
    let tool = |class: &str, payload: Value| fact(class, json!({ "toolCallId": "t", "payload": payload }));
    vec![
        fact("run.started", json!({ "sessionId": "s" })),
        fact("reasoning.delta", json!({ "messageId": "m", "payload": { "text": "Hm." } })),
        text(1, "user"),
        text(2, "internal"),
        text(3, "user"),
        tool("tool.started", json!({ "toolName": "search" })),
        tool("tool.input.available", json!({ "toolName": "search", "input": { "q": "rain" } })),
        tool("tool.output.available", json!({ "output": "wet" })),
        fact("text.delta", json!({ "messageId": "n", "payload": { "text": "It rains." } })),
        fact("text.final", json!({ "messageId": "n", "payload": { "text": "It rains." } })),
    ]
}

/// The data of the events of a stream that ended, without the text that ends one of the AI SDK.
async fn streamed(client: &Client, path: &str) -> Vec<Value> {
    let body = client.get(path).await;
    assert_eq!(body.status, 200, "{body:?}");
    let body = String::from_utf8(body.body).unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn the_events_of_a_format_go_on_at_every_offset() {
    for sizes in [FeedConfig::default(), TINY_RING] {
        let client = start_local_with(sizes, Limits::default()).await;
        for format in ["format=ag-ui", "format=ag-ui&protocolVersion=1.0", "format=ai-sdk&version=6"] {
            let path = "/v1/runs/r/durable";
            client.delete("/v1/runs/r").await;
            let (mut read, mut offsets) = (Vec::new(), vec![(0, "-1".to_owned())]);
            for fact in varied_facts() {
                client.append("r", &[fact]).await;
                let (items, next) = read_all(&client, path, format, &offsets.last().unwrap().1).await;
                read.extend(items);
                offsets.push((read.len(), next));
            }
            client.append("r", &[fact("run.finished", json!({}))]).await;
            let closed = client.get(&format!("{path}?{format}&offset={}", offsets.last().unwrap().1)).await;
            assert_eq!((header(&closed, "stream-closed"), header(&closed, "stream-up-to-date")), (Some("true"), Some("true")));
            let (rest, end) = items_of(&closed);
            read.extend(rest);
            assert!(read.len() > varied_facts().len(), "{format}: {read:?}");
            for (count, offset) in &offsets {
                let (rest, at) = read_all(&client, path, format, offset).await;
                assert_eq!((&rest[..], &at), (&read[*count..], &end), "{format} from {offset}");
            }
            if format.starts_with("format=ag-ui") {
                assert_eq!(streamed(&client, &format!("/v1/runs/r/stream?{format}&replay=deltas")).await, read, "{format}");
            }
            let behind = client.get(&format!("{path}?{format}&offset={end}")).await;
            assert_eq!((items_of(&behind), header(&behind, "stream-closed")), ((vec![], end.clone()), Some("true")));

            client.append("r", &[fact("run.started", json!({}))]).await;
            let problem = client.get(&format!("{path}?{format}&offset={end}")).await.problem(410, "epoch_changed");
            assert_eq!(problem["member"], "offset", "a client of a format has seen the end: {problem}");
        }
    }
}

#[tokio::test]
async fn live_answers_have_the_events_of_a_format_and_end_with_the_run() {
    let client = start_local().await;
    for (format, last) in [("ag-ui", "RUN_FINISHED"), ("ai-sdk", "finish")] {
        let (path, query) = (format!("/v1/runs/{format}/durable"), format!("format={format}"));
        let facts = varied_facts();
        client.append(format, &facts[..3]).await;
        let (first, at) = items_of(&client.get(&format!("{path}?{query}&offset=-1&live=long-poll")).await);
        let [polled, sse] = ["long-poll", "sse"].map(|live| format!("{path}?{query}&offset={at}&live={live}"));
        let (poll, live) = (client.get(&polled), read_live(client.at, &sse));
        let publish = async {
            for fact in &facts[3..] {
                client.append(format, std::slice::from_ref(fact)).await;
            }
            client.append(format, &[fact("run.finished", json!({}))]).await;
        };
        let (poll, live, ()) = with_timeout("the end", async { tokio::join!(poll, live, publish) }).await;
        let (items, controls) = events_of(&live);
        assert_eq!(controls.last().unwrap()["streamClosed"], true, "{controls:?}");
        assert_eq!(items.last().unwrap()["type"], last);
        let whole: Vec<_> = first.into_iter().chain(items.iter().cloned()).collect();
        assert_eq!(read_all(&client, &path, &query, "-1").await.0, whole, "{format}");
        let polled = items_of(&poll).0;
        assert!(!polled.is_empty() && items.starts_with(&polled), "{polled:?} {items:?}");
    }
}

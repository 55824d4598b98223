//! Ingest: every answer and every error of `POST …/facts`, and the log after it.

use crate::harness::{Client, Process, TRANSPORTS, Transport, fact, start_local, start_local_with, to_ndjson, with_timeout};
use proscenium::feed::FeedConfig;
use proscenium::serve::Limits;
use serde_json::{Value, json};
use std::collections::HashMap;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const JSON: (&str, &str) = ("content-type", "application/json");
const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

fn text(words: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": words}}))
}

/// Reads the texts of a run's chunks, in order.
async fn read_texts(client: &Client, run: &str) -> Vec<String> {
    let events = client.read_events(run, "audience=internal&type=text.delta", 1000).await;
    events.iter().filter_map(|event| event["payload"]["text"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn the_real_server_accepts_facts_and_streams_them() {
    let server = Process::start();
    let client = Client::new(server.at);
    for via in TRANSPORTS {
        let run = format!("{via:?}");
        client.append(&run, &[fact("run.started", json!({})), text("hello"), fact("run.finished", json!({}))]).await;
        let frames = client.open_stream(via, &run, "", None).await.read_all().await;
        let kinds: Vec<_> = frames.iter().map(super::harness::Frame::kind).collect();
        assert_eq!(kinds, ["Event", "Event", "Event", "End"]);
        assert_eq!(frames[1].data["event"]["payload"]["text"], "hello");
    }
}

#[tokio::test]
async fn a_fact_or_an_array_is_answered_with_its_sequences() {
    let client = start_local().await;
    let mut first = client.post_facts("r", &text("a")).await.ok();
    let epoch = first["epoch"].take();
    assert_eq!(epoch.as_str().map(str::len), Some(16));
    let expected = json!({"runId": "r", "epoch": null, "accepted": 1, "duplicates": 0, "firstSequence": 1, "lastSequence": 1});
    assert_eq!(first, expected);
    let second = client.post_facts("r", &json!([text("b"), text("c")])).await.ok();
    let expected = json!({"runId": "r", "epoch": epoch, "accepted": 2, "duplicates": 0, "firstSequence": 2, "lastSequence": 3});
    assert_eq!(second, expected);
    assert_eq!(read_texts(&client, "r").await, ["a", "b", "c"]);
}

#[tokio::test]
async fn an_empty_body_counts_as_activity_and_writes_nothing() {
    let client = start_local().await;
    let path = "/v1/runs/r/facts";
    for answer in
        [client.post_facts("r", &json!([])).await, client.post_lines(path, "\n\r\n  \n").await, client.post_lines(path, "").await]
    {
        let expected =
            json!({"runId": "r", "epoch": null, "accepted": 0, "duplicates": 0, "firstSequence": null, "lastSequence": 0});
        assert_eq!(answer.ok(), expected);
    }
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
    client.append("r", &[text("a")]).await;
    let receipt = client.post_facts("r", &json!([])).await.ok();
    assert_eq!((&receipt["firstSequence"], &receipt["lastSequence"]), (&Value::Null, &json!(1)));
    assert!(receipt["epoch"].is_string());
}

#[tokio::test]
async fn a_byte_order_mark_before_a_body_is_skipped() {
    let client = start_local().await;
    let body = format!("\u{feff}{}", text("a"));
    client.post("/v1/runs/r/facts", &[JSON], body.clone()).await.ok();
    client.post_lines("/v1/runs/r/facts", body).await.ok();
    assert_eq!(read_texts(&client, "r").await, ["a", "a"]);
}

#[tokio::test]
async fn a_message_stays_one_when_a_later_request_leaves_out_its_agent() {
    let client = start_local().await;
    let chunks = [
        ("agentui", r#"{"type":"text.delta","messageId":"m","payload":{"text":"@"}}"#),
        ("ag-ui", r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"@"}"#),
        ("ai-sdk", r#"{"type":"text-delta","id":"0","delta":"@"}"#),
    ];
    for (source, chunk) in chunks {
        for (text, agent) in [("Wonder", "&agentId=a"), ("ful.", "")] {
            let path = format!("/v1/runs/{source}/facts?source={source}{agent}");
            client.post(&path, &[JSON], chunk.replace('@', text)).await.ok();
        }
        let page = client.get(&format!("/v1/runs/{source}/activities")).await.ok();
        let of_kind = |activity: &&Value| activity["activityType"] == "message";
        let messages: Vec<_> = page["activities"].as_array().unwrap().iter().filter(of_kind).collect();
        let texts: Vec<_> = messages.iter().map(|message| &message["content"]["parts"]).collect();
        assert_eq!((texts.len(), texts[0].as_array().map(Vec::len)), (1, Some(1)), "{source}: {page}");
        assert_eq!(texts[0][0]["text"][0], "Wonderful.", "{source}");
    }
}

#[tokio::test]
async fn streams_and_exports_escape_what_ends_a_line_for_some_readers() {
    let client = start_local().await;
    client
        .append("r", &[fact("run.started", json!({})), text("a\u{2028}b\u{2029}c\u{85}d"), fact("run.finished", json!({}))])
        .await;
    let streams =
        ["", "?frames=events", "?format=ag-ui", "?format=ai-sdk&version=7"].map(|query| format!("/v1/runs/r/stream{query}"));
    for path in streams.into_iter().chain(["/v1/runs/r/export".to_owned()]) {
        let body = String::from_utf8(client.get(&path).await.body).unwrap();
        assert!(!body.contains(['\u{2028}', '\u{2029}', '\u{85}']), "{path}: {body}");
        assert!(body.contains(r"a\u2028b\u2029c\u0085d"), "{path}: {body}");
    }
    assert_eq!(read_texts(&client, "r").await, ["a\u{2028}b\u{2029}c\u{85}d"]);
}

#[tokio::test]
async fn a_json_body_is_atomic_and_the_invalid_fact_is_named() {
    let client = start_local().await;
    let check = async |body: Value, code: &str, index: u64, member: Value, expected: &str| {
        let problem = client.post_facts("r", &body).await.problem(422, code);
        assert_eq!(problem["index"], index, "{problem}");
        assert_eq!(problem["member"], member, "{problem}");
        assert!(problem["expected"].as_str().is_some_and(|text| text.contains(expected)), "{problem}");
        assert_eq!(client.get("/v1/runs/r").await.status, 404, "the server wrote nothing");
    };
    check(json!([text("a"), {"payload": {}}]), "no_type", 1, json!("type"), "event type").await;
    check(json!({"type": ""}), "no_type", 0, json!("type"), "event type").await;
    check(json!({"type": 7}), "no_type", 0, json!("type"), "event type").await;
    check(json!([text("a"), text("b"), 7]), "not_an_object", 2, Value::Null, "an object").await;
    check(json!(null), "not_an_object", 0, Value::Null, "an object").await;
    check(json!([[text("a")]]), "not_an_object", 0, Value::Null, "an object").await;
    check(json!({"type": "tool.started", "toolCallId": ""}), "bad_member", 0, json!("toolCallId"), "1 to 256").await;
    check(json!({"type": "tool.started", "toolCallId": "x".repeat(257)}), "bad_member", 0, json!("toolCallId"), "256").await;
    check(json!({"type": "tool.started", "toolCallId": "a\u{1}"}), "bad_member", 0, json!("toolCallId"), "control").await;
    // The rejected facts left no trace in the adapter: the next message gets the first generated id.
    client.post_facts("r", &json!([fact("text.delta", json!({"text": "lost"})), 7])).await.problem(422, "not_an_object");
    client.append("r", &[fact("text.delta", json!({"text": "kept"}))]).await;
    let generated = &client.read_events("r", "", 10).await[0]["messageId"];
    assert!(generated.as_str().is_some_and(|id| id.ends_with("-1")), "{generated}");
}

#[tokio::test]
async fn invalid_json_is_400_and_writes_nothing() {
    let client = start_local().await;
    for body in ["", "{", "{\"type\":\"run.started\"} x", "[{\"type\":\"run.started\"},", "type=run.started"] {
        let problem = client.post("/v1/runs/r/facts", &[JSON], body).await.problem(400, "not_json");
        assert!(problem["expected"].is_string(), "{problem}");
    }
    client.post("/v1/runs/r/facts", &[("content-type", "text/plain")], "{}").await.problem(415, "unsupported_media_type");
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
}

#[tokio::test]
async fn a_body_without_a_content_type_is_json_and_any_json_type_is_accepted() {
    let client = start_local().await;
    let body = text("a").to_string();
    for headers in
        [&[][..], &[("content-type", "application/json; charset=utf-8")], &[("content-type", "application/cloudevents+json")]]
    {
        assert_eq!(client.post("/v1/runs/r/facts", headers, body.clone()).await.ok()["accepted"], 1);
    }
}

#[tokio::test]
async fn blank_lines_between_ndjson_lines_are_ignored() {
    let client = start_local().await;
    let body = format!("\n{}\r\n   \n\n{}\n{}", text("a"), text("b"), text("c"));
    let receipt = client.post_lines("/v1/runs/r/facts", body).await.ok();
    assert_eq!((&receipt["accepted"], &receipt["firstSequence"], &receipt["lastSequence"]), (&json!(3), &json!(1), &json!(3)));
    assert_eq!(read_texts(&client, "r").await, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_bad_line_is_named_and_the_lines_before_it_are_kept_and_counted() {
    let client = start_local().await;
    for (n, (bad, code, member)) in
        [("nonsense", "not_json", Value::Null), ("{}", "no_type", json!("type")), ("[1]", "not_an_object", Value::Null)]
            .into_iter()
            .enumerate()
    {
        let run = format!("r{n}");
        let body = format!("{}\n\n{}\n{bad}\n{}\n", text("a"), text("b"), text("never"));
        let problem = client.post_lines(&format!("/v1/runs/{run}/facts"), body).await.problem(422, code);
        assert_eq!(problem["line"], 4, "{problem}");
        assert_eq!(problem["accepted"], 2, "{problem}");
        assert_eq!(problem["member"], member, "{problem}");
        assert!(problem["expected"].is_string() && problem.get("index").is_none(), "{problem}");
        assert_eq!(read_texts(&client, &run).await, ["a", "b"]);
    }
}

#[tokio::test]
async fn lines_are_processed_as_they_arrive_and_may_be_split_anywhere() {
    let client = start_local().await;
    let (send, parts) = tokio::sync::mpsc::channel(1);
    let posting = tokio::spawn({
        let client = client.clone();
        async move { client.post_lines("/v1/runs/r/facts", reqwest::Body::wrap_stream(Parts(parts))).await }
    });
    let body = format!("{}\n{}\n", text("ä first"), text("second"));
    let (head, tail) = body.split_at(body.find("first").expect("the body has the text"));
    send.send(Ok(head.to_owned())).await.expect("the server reads the body");
    send.send(Ok(tail[..tail.len() - 20].to_owned())).await.expect("the server reads the body");
    // The first line is readable while the body is incomplete.
    let mut stream = client.open_stream(Transport::Raw, "r", "", None).await;
    assert_eq!(stream.next_frame().await.data["event"]["payload"]["text"], "ä first");
    send.send(Ok(tail[tail.len() - 20..].to_owned())).await.expect("the server reads the body");
    assert_eq!(stream.next_frame().await.data["event"]["payload"]["text"], "second");
    drop(send);
    assert_eq!(with_timeout("the answer", posting).await.expect("the task does not panic").ok()["accepted"], 2);
}

/// A body made of the parts that a channel receives.
struct Parts(tokio::sync::mpsc::Receiver<Result<String, std::io::Error>>);

impl futures_util::Stream for Parts {
    type Item = Result<String, std::io::Error>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

#[tokio::test]
async fn a_numbered_body_split_into_pieces_is_accepted_once() {
    let client = start_local().await;
    let facts: Vec<Value> = (0..30).map(|n| text(&n.to_string())).collect();
    let headers = [NDJSON, ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")];
    let send = async |pieces: Vec<String>| {
        let (send, parts) = tokio::sync::mpsc::channel(1);
        let posting = client.post("/v1/runs/r/facts", &headers, reqwest::Body::wrap_stream(Parts(parts)));
        let sending = async {
            // The server reads each piece before the next one is sent, so each piece is an append of its own.
            for piece in pieces {
                send.send(Ok(piece)).await.expect("the server reads the body");
                tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            }
            drop(send);
        };
        tokio::join!(posting, sending).0
    };
    let broken = [
        to_ndjson(&facts[..7]),
        to_ndjson(&facts[7..12]),
        format!("\n{}{{}}\n", to_ndjson(&facts[12..15])),
        to_ndjson(&facts[15..]),
    ];
    let problem = send(broken.to_vec()).await.problem(422, "no_type");
    assert_eq!((&problem["accepted"], &problem["line"]), (&json!(15), &json!(17)), "{problem}");
    for (accepted, duplicates) in [(15, 15), (0, 30)] {
        let receipt = send(facts.chunks(4).map(to_ndjson).collect()).await.ok();
        assert_eq!((&receipt["accepted"], &receipt["duplicates"]), (&json!(accepted), &json!(duplicates)), "{receipt}");
    }
    assert_eq!(read_texts(&client, "r").await, (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_line_of_a_slow_streamed_body_is_committed_without_waiting_for_the_next_one() {
    let client = start_local().await;
    let mut socket = TcpStream::connect(client.at).await.expect("the server accepts the connection");
    let head =
        "POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked";
    socket.write_all(format!("{head}\r\n\r\n").as_bytes()).await.expect("the head is sent");
    let lines: Vec<_> = (0..5).map(|n| to_ndjson(&[text(&n.to_string())])).collect();
    let mut begun = 0;
    for n in 0..lines.len() {
        // A chunk ends the line and begins the next one. The rest of that comes only after the line is committed.
        let chunk = lines[n][begun..].to_owned() + lines.get(n + 1).map_or("", |next| &next[..20]);
        begun = 20;
        socket.write_all(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes()).await.expect("the chunk is sent");
        with_timeout("the line", async {
            while client.get("/v1/runs/r").await.json()["lastSequence"] != n + 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    assert_eq!(read_texts(&client, "r").await, ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_streamed_body_that_breaks_off_keeps_its_complete_lines() {
    let client = start_local().await;
    let mut socket = TcpStream::connect(client.at).await.expect("the server accepts the connection");
    let whole = to_ndjson(&[text("a"), text("b")]);
    let half = &text("half").to_string()[..20];
    let head = format!(
        "POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
        10_000
    );
    socket.write_all(format!("{head}{whole}{half}").as_bytes()).await.expect("the body is sent");
    drop(socket);
    let mut stream = client.open_stream(Transport::Raw, "r", "", None).await;
    assert_eq!((stream.next_frame().await.sequence(), stream.next_frame().await.sequence()), (1, 2));
    client.append("r", &[text("c")]).await;
    assert_eq!(read_texts(&client, "r").await, ["a", "b", "c"]);
}

#[tokio::test]
async fn an_invalid_address_is_400_and_names_the_member() {
    let client = start_local().await;
    let long = "x".repeat(257);
    let check = async |path: &str, code: &str, member: &str| {
        let problem = client.post(path, &[JSON], text("a").to_string()).await.problem(400, code);
        assert_eq!(problem["member"], member, "{problem}");
        problem
    };
    let problem = check("/v1/runs/r/facts?source=weather", "unknown_source", "source").await;
    assert!(problem["expected"].as_array().is_some_and(|names| names.contains(&json!("agentui"))), "{problem}");
    check(&format!("/v1/runs/{long}/facts"), "bad_id", "runId").await;
    check("/v1/runs/a%0Ab/facts", "bad_id", "runId").await;
    check("/v1/runs/a%FFb/facts", "bad_id", "runId").await;
    check(&format!("/v1/sessions/{long}/facts"), "bad_id", "sessionId").await;
    check("/v1/runs/r/facts?sessionId=", "bad_id", "sessionId").await;
    check(&format!("/v1/runs/r/facts?threadId={long}"), "bad_id", "threadId").await;
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
}

#[tokio::test]
async fn ids_may_be_any_printable_text() {
    let client = start_local().await;
    let longest = "x".repeat(256);
    for (path, id) in [("a%2Fb%20%C3%BC%20%23", "a/b ü #"), (longest.as_str(), longest.as_str())] {
        let receipt = client.append(path, &[fact("tool.started", json!({"toolCallId": longest}))]).await;
        assert_eq!(receipt["runId"], id);
        let event = client.read_events(path, "", 10).await.remove(0);
        assert_eq!((&event["runId"], &event["toolCallId"]), (&json!(id), &json!(longest)));
    }
}

fn nested(depth: usize) -> Value {
    // The fact and its payload are two of the levels.
    let inner = (2..depth).fold(json!(1), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({"]}": inner}) });
    fact("x.y", json!({"payload": {"deep": inner}}))
}

#[tokio::test]
async fn a_fact_may_nest_64_levels_in_every_kind_of_body() {
    let client = start_local().await;
    assert_eq!(client.post_facts("r", &nested(64)).await.ok()["accepted"], 1);
    assert_eq!(client.post_facts("r", &json!([text("a"), nested(64)])).await.ok()["accepted"], 2);
    assert_eq!(client.post_lines("/v1/runs/r/facts", nested(64).to_string()).await.ok()["accepted"], 1);
    let problem = client.post_facts("r", &nested(65)).await.problem(422, "too_deep");
    assert_eq!((&problem["limit"], &problem["index"]), (&json!(64), &json!(0)), "{problem}");
    let problem = client.post_facts("r", &json!([text("a, [b]"), nested(65)])).await.problem(422, "too_deep");
    assert_eq!((&problem["limit"], &problem["index"]), (&json!(64), &json!(1)), "{problem}");
    let problem = client.post_lines("/v1/runs/r/facts", format!("{}\n{}", text("b"), nested(65))).await.problem(422, "too_deep");
    assert_eq!((&problem["line"], &problem["accepted"]), (&json!(2), &json!(1)), "{problem}");
    client.post("/v1/runs/r/facts", &[JSON], "[".repeat(100_000)).await.problem(422, "too_deep");
    assert_eq!(client.get("/v1/runs/r").await.ok()["lastSequence"], 5);
}

#[tokio::test]
async fn brackets_in_text_do_not_count_as_nesting() {
    let client = start_local().await;
    let brackets = "[{\\\"".repeat(500);
    client.append("r", &[text(&brackets)]).await;
    assert_eq!(read_texts(&client, "r").await, [brackets]);
}

async fn start_with_small_limits() -> Client {
    let limits = Limits { fact_bytes_max: 1000, body_bytes_max: 4000, ..Limits::default() };
    start_local_with(FeedConfig::default(), limits).await
}

#[tokio::test]
async fn an_oversized_fact_or_body_is_413_with_its_limit() {
    let client = start_with_small_limits().await;
    let problem = client.post_facts("r", &json!([text("a"), text(&"x".repeat(1000))])).await.problem(413, "fact_too_large");
    assert_eq!((&problem["limit"], &problem["index"]), (&json!(1000), &json!(1)), "{problem}");
    let problem = client.post_facts("r", &json!(vec![text(&"x".repeat(500)); 8])).await.problem(413, "body_too_large");
    assert_eq!(problem["limit"], 4000, "{problem}");
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
    // A body far beyond the limit: its sender still reads the problem.
    client.post_facts("r", &text(&"x".repeat(5_000_000))).await.problem(413, "body_too_large");
    assert_eq!(client.post_facts("r", &json!(vec![text(&"x".repeat(800)); 4])).await.ok()["accepted"], 4);
}

#[tokio::test]
async fn a_streamed_body_has_no_size_limit_but_its_lines_have() {
    let client = start_with_small_limits().await;
    let many = vec![text(&"x".repeat(100)); 500];
    assert_eq!(client.post_lines("/v1/runs/r/facts", to_ndjson(&many)).await.ok()["accepted"], 500);
    for (run, long) in [("s", "x".repeat(1000)), ("t", "x".repeat(3_000_000))] {
        let body = format!("{}\n\n{}\n{}\n", text("a"), text(&long), text("never"));
        let problem = client.post_lines(&format!("/v1/runs/{run}/facts"), body).await.problem(413, "fact_too_large");
        assert_eq!(
            (&problem["limit"], &problem["line"], &problem["accepted"]),
            (&json!(1000), &json!(3), &json!(1)),
            "{problem}"
        );
        assert_eq!(read_texts(&client, run).await, ["a"]);
    }
}

/// Posts facts with producer numbers from `seq` on.
async fn post_numbered(
    client: &Client,
    run: &str,
    (id, epoch, seq): (&str, u64, u64),
    kind: (&str, &str),
    body: String,
) -> crate::harness::Response {
    let (epoch, seq) = (epoch.to_string(), seq.to_string());
    let headers = [kind, ("producer-id", id), ("producer-epoch", &epoch), ("producer-seq", &seq)];
    client.post(&format!("/v1/runs/{run}/facts"), &headers, body).await
}

#[tokio::test]
async fn a_numbered_body_is_accepted_once_however_often_it_is_sent() {
    let client = start_local().await;
    for (kind, body) in [(JSON, |facts: &[Value]| json!(facts).to_string()), (NDJSON, |facts: &[Value]| to_ndjson(facts))]
        as [((&str, &str), fn(&[Value]) -> String); 2]
    {
        let run = if kind == JSON { "j" } else { "l" };
        let facts: Vec<Value> = ["a", "b", "c", "d", "e"].map(text).to_vec();
        let send =
            async |epoch: u64, seq: u64, facts: &[Value]| post_numbered(&client, run, ("p", epoch, seq), kind, body(facts)).await;
        let first = send(1, 0, &facts[..3]).await.ok();
        assert_eq!((&first["accepted"], &first["duplicates"], &first["lastSequence"]), (&json!(3), &json!(0), &json!(3)));
        let again = send(1, 0, &facts[..3]).await.ok();
        assert_eq!((&again["accepted"], &again["duplicates"], &again["firstSequence"]), (&json!(0), &json!(3), &Value::Null));
        let overlap = send(1, 1, &facts[1..]).await.ok();
        assert_eq!((&overlap["accepted"], &overlap["duplicates"], &overlap["firstSequence"]), (&json!(2), &json!(2), &json!(4)));
        let gap = send(1, 7, &facts).await.problem(409, "producer_gap");
        assert_eq!(gap["expected"], 5, "{gap}");
        send(0, 0, &facts).await.problem(403, "producer_fenced");
        send(2, 3, &facts).await.problem(409, "producer_gap");
        let newer = send(2, 0, &facts[..1]).await.ok();
        assert_eq!((&newer["accepted"], &newer["lastSequence"]), (&json!(1), &json!(6)));
        send(1, 5, &facts).await.problem(403, "producer_fenced");
        assert_eq!(read_texts(&client, run).await, ["a", "b", "c", "d", "e", "a"]);
    }
}

#[tokio::test]
async fn producer_numbers_are_per_run_and_producer() {
    let client = start_local().await;
    for (run, producer) in [("r", "p"), ("r", "q"), ("s", "p")] {
        let receipt = post_numbered(&client, run, (producer, 5, 0), JSON, json!([text("a")]).to_string()).await.ok();
        assert_eq!(receipt["accepted"], 1, "{run} {producer}");
    }
    post_numbered(&client, "r", ("new", 0, 1), JSON, "[]".into()).await.problem(409, "producer_gap");
}

#[tokio::test]
async fn a_producer_learns_its_next_number_by_an_empty_body_with_the_largest_one() {
    const LARGEST: u64 = (1 << 53) - 1;
    let client = start_local().await;
    let next = async |epoch: u64| {
        let problem = post_numbered(&client, "r", ("p", epoch, LARGEST), JSON, "[]".into()).await;
        problem.problem(409, "producer_gap")["expected"].clone()
    };
    assert_eq!(next(0).await, 0);
    assert_eq!(client.get("/v1/runs/r").await.status, 404, "the question begins no run");
    post_numbered(&client, "r", ("p", 0, 0), JSON, json!([text("a"), text("b")]).to_string()).await.ok();
    assert_eq!((next(0).await, next(0).await, next(1).await), (json!(2), json!(2), json!(0)));
    post_numbered(&client, "r", ("p", 1, 0), JSON, json!([text("c")]).to_string()).await.ok();
    post_numbered(&client, "r", ("p", 0, LARGEST), JSON, "[]".into()).await.problem(403, "producer_fenced");
    assert_eq!(client.get("/v1/runs/r").await.ok()["lastSequence"], 3, "the questions store nothing");
}

#[tokio::test]
async fn a_rejected_body_moves_no_numbers_and_its_correction_continues_after_the_kept_facts() {
    let client = start_local().await;
    let bad = json!([text("a"), 7]).to_string();
    let problem = post_numbered(&client, "r", ("p", 1, 0), JSON, bad).await.problem(422, "not_an_object");
    assert_eq!(problem["index"], 1);
    let broken = format!("{}\n{}\n{{}}\n{}\n", text("a"), text("b"), text("c"));
    let problem = post_numbered(&client, "r", ("p", 1, 0), NDJSON, broken).await.problem(422, "no_type");
    assert_eq!((&problem["accepted"], &problem["line"]), (&json!(2), &json!(3)));
    let corrected = post_numbered(&client, "r", ("p", 1, 0), NDJSON, to_ndjson(&["a", "b", "c"].map(text))).await.ok();
    assert_eq!((&corrected["accepted"], &corrected["duplicates"]), (&json!(1), &json!(2)));
    assert_eq!(read_texts(&client, "r").await, ["a", "b", "c"]);
    // A rejected fact after duplicates keeps its index in the body.
    let problem = post_numbered(&client, "r", ("p", 1, 1), JSON, json!([text("b"), text("c"), 7]).to_string())
        .await
        .problem(422, "not_an_object");
    assert_eq!(problem["index"], 2, "{problem}");
}

#[tokio::test]
async fn a_numbered_body_needs_all_three_producer_headers() {
    let client = start_local().await;
    let check = async |headers: &[(&str, &str)], member: &str| {
        let problem = client.post("/v1/runs/r/facts", headers, text("a").to_string()).await.problem(400, "bad_producer");
        assert_eq!(problem["member"], member, "{problem}");
    };
    check(&[("producer-id", "p")], "producer-epoch").await;
    check(&[("producer-seq", "0"), ("producer-epoch", "0")], "producer-id").await;
    check(&[("producer-id", "p"), ("producer-epoch", "0")], "producer-seq").await;
    check(&[("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "-1")], "producer-seq").await;
    check(&[("producer-id", "p"), ("producer-epoch", "one"), ("producer-seq", "0")], "producer-epoch").await;
    check(&[("producer-id", &"p".repeat(257)), ("producer-epoch", "0"), ("producer-seq", "0")], "producer-id").await;
    check(&[("producer-id", "grüße"), ("producer-epoch", "0"), ("producer-seq", "0")], "producer-id").await;
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
}

#[tokio::test]
async fn unknown_members_and_types_are_kept_and_passed_on() {
    let client = start_local().await;
    let strange = fact(
        "weather.changed",
        json!({
            "owner": "moon", "scope": "sky", "phase": "waning", "surface": "dome", "persistence": "geological", "control": "howl",
            "topology": "ring", "toolCallId": "t", "tide": {"height": 3.25, "big": 9007199254740993u64}, "payload": {"rain": [1, null]},
        }),
    );
    client
        .append(
            "r",
            &[strange.clone(), fact("tool.started", json!({"toolCallId": "t", "sky": "clear", "payload": {"mood": "odd"}}))],
        )
        .await;
    let events = client.read_events("r", "audience=internal", 10).await;
    for (member, value) in strange.as_object().expect("a fact is an object") {
        assert_eq!(&events[0][member], value, "{member}");
    }
    assert_eq!(events[0]["audience"], "internal");
    assert_eq!((&events[1]["sky"], &events[1]["payload"]["mood"]), (&json!("clear"), &json!("odd")));
    // An unknown type has unknown dimensions.
    client.append("s", &[fact("weather.changed", json!({}))]).await;
    let unknown = client.read_events("s", "audience=internal", 10).await.remove(0);
    for dimension in ["owner", "scope", "phase", "surface", "persistence"] {
        assert_eq!(unknown[dimension], "unknown", "{dimension}");
    }
}

#[tokio::test]
async fn facts_cannot_set_the_members_that_the_server_stamps() {
    let client = start_local().await;
    let forged = json!({"eventId": "mine", "receivedAt": "1970-01-01T00:00:00Z", "startAudience": "internal", "sequence": 99, "runId": "other", "toolCallId": "t"});
    client.append("r", &[fact("tool.started", forged)]).await;
    let event = client.read_events("r", "", 10).await.remove(0);
    assert_eq!((&event["sequence"], &event["sourceSequence"], &event["runId"]), (&json!(1), &json!(99), &json!("r")));
    assert_eq!(event["startAudience"], "user");
    assert_ne!(event["eventId"], "mine");
    assert_ne!(event["receivedAt"], "1970-01-01T00:00:00Z");
    assert!(event["refs"].to_string().contains("other"), "the fact's own run is not in refs: {event}");
}

#[tokio::test]
async fn ids_of_the_query_are_defaults_for_facts_without_them() {
    let client = start_local().await;
    let path = "/v1/runs/r/facts?sessionId=s&threadId=th&agentId=ag&parentSessionId=ps&runId=elsewhere";
    let facts = json!([fact("text.delta", json!({"text": "a"})), fact("text.delta", json!({"text": "b", "threadId": "own"}))]);
    client.post(path, &[JSON], facts.to_string()).await.ok();
    let events = client.read_events("r", "", 10).await;
    for (member, id) in [("runId", "r"), ("sessionId", "s"), ("threadId", "th"), ("agentId", "ag"), ("parentSessionId", "ps")] {
        assert_eq!(events[0][member], id, "{member}");
    }
    assert_eq!((&events[1]["threadId"], &events[1]["sessionId"]), (&json!("own"), &json!("s")));
    let run = client.get("/v1/runs/r").await.ok();
    assert_eq!((&run["sessionId"], &run["threadId"], &run["parentSessionId"]), (&json!("s"), &json!("th"), &json!("ps")));
}

#[tokio::test]
async fn a_chunk_after_its_stream_s_end_is_reported_and_only_in_the_internal_log() {
    let client = start_local().await;
    let call = |class: &str, payload: Value| fact(class, json!({"toolCallId": "c", "payload": payload}));
    let facts = [
        text("a"),
        fact("text.final", json!({"messageId": "m", "text": "a"})),
        text("late"),
        call("tool.started", json!({"toolName": "x"})),
        call("tool.result", json!({})),
        call("tool.output.delta", json!({"text": "later"})),
        call("tool.progress", json!({"message": "may come late"})),
    ];
    let receipt = client.append("r", &facts).await;
    let expected = json!([
        {"index": 2, "code": "write_after_seal", "eventType": "text.delta", "thing": "text:m/p"},
        {"index": 5, "code": "write_after_seal", "eventType": "tool.output.delta", "thing": "tool:c"},
    ]);
    assert_eq!(receipt["violations"], expected);
    let events = client.read_events("r", "audience=internal&type=diagnostic.changed", 10).await;
    let late: Vec<_> = events.iter().map(|event| (&event["sequence"], &event["payload"]["event"]["text"])).collect();
    assert_eq!(late, [(&json!(3), &json!("late")), (&json!(6), &json!("later"))]);
    assert!(client.read_events("r", "audience=dashboard", 10).await.iter().all(|event| event["type"] != "diagnostic.changed"));
    let body = to_ndjson(&[text("late again"), fact("metric.changed", json!({})), text("and again")]);
    let receipt = client.post_lines("/v1/runs/r/facts", body).await.ok();
    assert_eq!((&receipt["violations"][0]["index"], &receipt["violations"][1]["index"]), (&json!(0), &json!(2)), "{receipt}");
}

#[tokio::test]
async fn a_violation_is_named_by_its_index_in_the_whole_body() {
    let client = start_local().await;
    let body = [fact("metric.changed", json!({})), fact("text.final", json!({"messageId": "m"})), text("late")];
    let (send, parts) = tokio::sync::mpsc::channel(1);
    let posting = client.post("/v1/runs/lines/facts", &[NDJSON], reqwest::Body::wrap_stream(Parts(parts)));
    let sending = async {
        for fact in &body {
            send.send(Ok(format!("\n{fact}\n"))).await.expect("the server reads the body");
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        }
        drop(send);
    };
    let receipt = tokio::join!(posting, sending).0.ok();
    assert_eq!((&receipt["violations"][0]["index"], &receipt["accepted"]), (&json!(2), &json!(3)), "{receipt}");
    // Also for a body that starts with duplicates.
    post_numbered(&client, "numbered", ("p", 0, 0), JSON, json!(body[..2]).to_string()).await.ok();
    let receipt = post_numbered(&client, "numbered", ("p", 0, 0), JSON, json!(body).to_string()).await.ok();
    assert_eq!((&receipt["violations"][0]["index"], &receipt["duplicates"]), (&json!(2), &json!(2)), "{receipt}");
}

#[tokio::test]
async fn concurrent_producers_of_one_run_interleave_and_keep_their_order() {
    const PRODUCERS: u64 = 8;
    const FACTS: u64 = 60;
    let client = start_local().await;
    let chunk = |producer: u64, n: u64| {
        fact("text.delta", json!({"messageId": producer.to_string(), "partId": "p", "text": "x", "sequence": n}))
    };
    let producing = (0..PRODUCERS).map(|producer| {
        let client = client.clone();
        tokio::spawn(async move {
            let facts: Vec<Value> = (0..FACTS).map(|n| chunk(producer, n)).collect();
            for (batch, facts) in facts.chunks(5).enumerate() {
                match (producer + batch as u64) % 3 {
                    0 => drop(client.append("r", facts).await),
                    1 => assert_eq!(client.post_lines("/v1/runs/r/facts", to_ndjson(facts)).await.ok()["accepted"], 5),
                    _ => {
                        for fact in facts {
                            client.append("r", std::slice::from_ref(fact)).await;
                        }
                    }
                }
            }
        })
    });
    for producer in producing.collect::<Vec<_>>() {
        with_timeout("a producer's end", producer).await.expect("the task does not panic");
    }
    let events = client.read_events("r", "", 1000).await;
    let mut seen: HashMap<&str, Vec<u64>> = HashMap::new();
    for (event, sequence) in events.iter().zip(1..) {
        assert_eq!(event["sequence"].as_u64(), Some(sequence), "the sequences have no gap");
        seen.entry(event["messageId"].as_str().expect("an event has an id"))
            .or_default()
            .push(event["sourceSequence"].as_u64().expect("an event has a source sequence"));
    }
    assert_eq!(seen.len() as u64, PRODUCERS);
    assert!(seen.values().all(|numbers| numbers.iter().copied().eq(0..FACTS)), "{seen:?}");
}

#[tokio::test]
async fn a_session_has_a_log_of_its_own() {
    let client = start_local().await;
    let body =
        json!([fact("session.opened", json!({"runId": "r"})), fact("session.updated", json!({"payload": {"title": "T"}}))])
            .to_string();
    let receipt = client.post("/v1/sessions/r/facts", &[JSON], body).await.ok();
    assert_eq!(receipt["sessionId"], "r");
    assert!(receipt.get("runId").is_none() && receipt["epoch"].is_string(), "{receipt}");
    assert_eq!((&receipt["accepted"], &receipt["lastSequence"]), (&json!(2), &json!(2)));
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
    assert_eq!(client.get("/v1/runs").await.ok()["runs"], json!([]));
    // A run with the same name is another log.
    assert_eq!(client.append("r", &[text("a")]).await["lastSequence"], 1);
}

#[tokio::test]
async fn a_run_s_status_follows_its_facts() {
    let client = start_local().await;
    let mut seen = Vec::new();
    for next in [
        fact("run.started", json!({})),
        text("a"),
        fact("action.required", json!({"actionId": "x"})),
        fact("action.resolved", json!({"actionId": "x"})),
        fact("run.status", json!({"payload": {"status": "waiting"}})),
        text("b"),
        fact("run.finished", json!({"payload": {"status": "cancelled"}})),
        text("late"),
        fact("run.started", json!({})),
        fact("run.failed", json!({})),
    ] {
        client.append("r", &[next]).await;
        let run = client.get("/v1/runs/r").await.ok();
        seen.push(format!("{} {}", run["status"].as_str().expect("a run has a status"), run["attempt"]));
    }
    let expected = [
        "accepted 1",
        "running 1",
        "waiting 1",
        "running 1",
        "waiting 1",
        "waiting 1",
        "cancelled 1",
        "cancelled 1",
        "accepted 2",
        "failed 2",
    ];
    assert_eq!(seen, expected);
}

//! WebSocket: the behaviour of SSE and POST on one connection, and the errors of WebSocket itself.

use crate::activities::Screen;
use crate::harness::{
    Client, Frame, Process, Transport, fact, recording, start_local, start_local_with, start_local_with_heartbeat, to_ndjson,
    with_timeout,
};
use crate::stream::more_than_sockets_hold;
use futures_util::{SinkExt, StreamExt};
use proscenium::feed::FeedConfig;
use proscenium::serve::Limits;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::{Response, generate_key};
use tokio_tungstenite::tungstenite::{Error, Message};

/// A WebSocket client that follows the protocol.
pub struct Ws {
    socket: WebSocketStream<TcpStream>,
    /// Frames that arrived while the client waited for an answer.
    frames: VecDeque<Value>,
    /// The number of pings received.
    heartbeats: usize,
}

/// Connects with these headers.
pub async fn connect(client: &Client, headers: &[(&str, &str)]) -> Result<(WebSocketStream<TcpStream>, Response), Error> {
    let mut request = http::Request::get(format!("ws://{}/v1/ws", client.at))
        .header("host", client.at.to_string())
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", generate_key());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let socket = with_timeout("a connection", TcpStream::connect(client.at)).await.expect("the server accepts the connection");
    with_timeout("a handshake", tokio_tungstenite::client_async(request.body(()).expect("the request is valid"), socket)).await
}

impl Ws {
    pub async fn open(client: &Client) -> Self {
        let (socket, _) = connect(client, &[("sec-websocket-protocol", "proscenium.v1")]).await.expect("the handshake succeeds");
        Self { socket, frames: VecDeque::new(), heartbeats: 0 }
    }

    async fn send_json(&mut self, message: &Value) {
        self.send(Message::text(message.to_string())).await;
    }

    async fn send(&mut self, message: Message) {
        with_timeout("the sending of a message", self.socket.send(message)).await.expect("the connection is open");
    }

    /// Receives the next message's text, or the close code.
    async fn text(&mut self) -> Result<String, u16> {
        loop {
            match with_timeout("a message", self.socket.next())
                .await
                .expect("a close precedes the end")
                .expect("the message is valid")
            {
                Message::Text(text) => return Ok(text.to_string()),
                Message::Ping(_) => self.heartbeats += 1,
                Message::Close(close) => return Err(close.expect("a close has a code").code.into()),
                other => panic!("{other:?}"),
            }
        }
    }

    async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.text().await.expect("expected a message, but the socket was closed"))
            .expect("a message is JSON")
    }

    /// Sends a message and returns its answer; queues frames before it.
    pub async fn request(&mut self, message: Value) -> Value {
        self.request_text(message.to_string()).await
    }

    /// The same with the text of a message.
    pub async fn request_text(&mut self, message: String) -> Value {
        self.send(Message::text(message)).await;
        self.answer().await
    }

    async fn answer(&mut self) -> Value {
        loop {
            let received = self.receive().await;
            match received.get("op") {
                Some(_) => return received,
                None => self.frames.push_back(received),
            }
        }
    }

    /// Sends a message, asserts that it is rejected with this code, and returns the problem.
    async fn request_rejected(&mut self, message: Value, code: &str) -> Value {
        let mut problem = self.request(message.clone()).await;
        assert_eq!((&problem["op"], problem["code"].as_str()), (&json!("error"), Some(code)), "{message}: {problem}");
        assert_eq!(problem.get("id"), message.get("id").filter(|_| problem["member"] != "id" || code != "bad_id"), "{problem}");
        for member in ["op", "id"] {
            problem.as_object_mut().expect("a problem is an object").shift_remove(member);
        }
        crate::schema::assert_valid("problem.schema.json", &problem);
        problem
    }

    /// Subscribes, and asserts success.
    async fn subscribe(&mut self, id: &str, run: &str, members: Value) -> Value {
        let mut message = json!({ "op": "subscribe", "id": id, "run": run });
        message
            .as_object_mut()
            .expect("a message is an object")
            .extend(members.as_object().expect("members are an object").clone());
        let answer = self.request(message).await;
        assert_eq!((&answer["op"], &answer["id"]), (&json!("subscribed"), &json!(id)), "{answer}");
        answer
    }

    /// Receives the next frame of any subscription.
    pub async fn next_frame(&mut self) -> Value {
        match self.frames.pop_front() {
            Some(frame) => frame,
            None => {
                let frame = self.receive().await;
                assert!(frame.get("op").is_none(), "{frame}");
                frame
            }
        }
    }

    /// Receives frames up to the end of the subscription.
    async fn read_until_end(&mut self, sub: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next_frame().await;
            assert_eq!(frame["sub"], sub, "{frame}");
            let is_end = frame["frame"] == "End";
            frames.push(frame);
            if is_end {
                return frames;
            }
        }
    }

    /// Receives the close code.
    async fn close_code(&mut self) -> u16 {
        self.text().await.expect_err("the socket is closed")
    }
}

/// Converts a frame to its SSE form.
fn as_sse(mut frame: Value) -> Frame {
    let text = frame.to_string();
    let members = frame.as_object_mut().expect("a frame is an object");
    members.shift_remove("sub").expect("a frame has a subscription");
    let id = members.shift_remove("cursor").map(|cursor| cursor.as_str().expect("a cursor is text").to_owned());
    Frame { heartbeats: 0, retry: None, data: frame, id, text }
}

fn text(words: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": words}}))
}

fn finished() -> Value {
    fact("run.finished", json!({}))
}

fn sequences(frames: &[Value]) -> Vec<u64> {
    frames.iter().map(|frame| frame["sequence"].as_u64().expect("a frame has a sequence")).collect()
}

#[tokio::test]
async fn the_handshake_follows_rfc_6455_and_negotiates_the_subprotocol() {
    let client = start_local().await;
    for (offered, agreed) in
        [(None, None), (Some("proscenium.v1"), Some("proscenium.v1")), (Some("x, proscenium.v1"), Some("proscenium.v1"))]
    {
        let headers: Vec<_> = offered.map(|offered| ("sec-websocket-protocol", offered)).into_iter().collect();
        // The client library checks the key.
        let (_, response) = connect(&client, &headers).await.expect("the handshake succeeds");
        let received = response.headers().get("sec-websocket-protocol").map(|value| value.to_str().expect("the header is text"));
        assert_eq!((response.status().as_u16(), received), (101, agreed), "{offered:?}");
    }
    let refused = async |headers: &[(&str, &str)], status: u16| {
        let Err(Error::Http(response)) = connect(&client, headers).await else { panic!("{headers:?} must be rejected") };
        assert_eq!(response.status(), status, "{headers:?}");
    };
    refused(&[("sec-websocket-protocol", "graphql-ws, mqtt")], 400).await;
    refused(&[("origin", "https://elsewhere.example")], 403).await;
    refused(&[("origin", "null")], 403).await;
    let same = format!("http://{}", client.at);
    connect(&client, &[("origin", &same)]).await.expect("the server's own origin is allowed");
    let answer = client.get("/v1/ws").await;
    answer.problem(426, "upgrade_required");
    assert_eq!(
        (&answer.headers["upgrade"], &answer.headers["sec-websocket-version"]),
        (&"websocket".parse().unwrap(), &"13".parse().unwrap())
    );
}

#[tokio::test]
async fn a_tool_that_reports_ten_batches_is_shown_running_and_then_done() {
    let client = start_local().await;
    let mut ws = Ws::open(&client).await;
    let answer = ws.subscribe("s1", "r", json!({})).await;
    assert_eq!(answer, json!({"op": "subscribed", "id": "s1", "epoch": null, "sequence": 0, "recovered": false}));
    assert_eq!(ws.next_frame().await, json!({"sub": "s1", "frame": "Hydrated", "runId": "r", "sequence": 0}));
    let mut screen = Screen::default();
    let mut seen = Vec::new();
    for n in 0..=11 {
        let status = if n > 10 { "done" } else { "running" };
        let content = json!({
            "schema": "tool-call-progress.v1", "node_id": "tool_call:c", "call_id": "c", "tool_name": "index_docs",
            "status": status, "progress": f64::from(n.min(10)) / 10.0,
        });
        let step = json!({"event_type": "activity_snapshot", "message_id": "c", "activity_type": "tool-call-progress", "content": content, "replace": true});
        let ack = ws.request(json!({"op": "publish", "id": n, "runId": "r", "source": "awaken", "facts": step})).await;
        assert_eq!((&ack["op"], &ack["id"], &ack["accepted"]), (&json!("ack"), &json!(n), &json!(1)), "{ack}");
        loop {
            let frame = as_sse(ws.next_frame().await);
            screen.apply(&frame);
            if frame.data["activityType"] == "tool-call-progress" {
                break;
            }
        }
        let content = &screen.shown()[&("tool-call-progress".to_owned(), "c".to_owned())]["content"];
        seen.push((content["status"].as_str().unwrap().to_owned(), content["progress"].as_f64().unwrap()));
    }
    let expected = (0..=10).map(|n| ("running".to_owned(), f64::from(n) / 10.0)).chain([("done".to_owned(), 1.0)]);
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn frames_and_cursors_equal_those_of_sse_byte_for_byte() {
    let client = start_local().await;
    for name in ["hitl_approve", "long_40_steps", "tool_progress_activity"] {
        client.post_lines(&format!("/v1/runs/{name}/facts?source=awaken"), to_ndjson(&recording(name))).await.ok();
        client.append(name, &[finished()]).await;
        let mut ws = Ws::open(&client).await;
        for (query, members) in [
            ("frames=events&audience=internal", json!({"frames": "events", "audience": "internal"})),
            ("frames=events&surfaces=tool_ui,hitl", json!({"frames": "events", "surfaces": ["tool_ui", "hitl"]})),
            ("frames=events&type=tool.started", json!({"frames": "events", "type": "tool.started"})),
            ("audience=dashboard", json!({"audience": "dashboard"})),
            ("surfaces=tool_ui,runtime_status", json!({"surfaces": "tool_ui,runtime_status"})),
            ("replay=deltas", json!({"replay": "deltas"})),
        ] {
            let expected = client.open(Transport::Raw, &format!("/v1/runs/{name}/stream?{query}"), None).await.read_all().await;
            let mut message = json!({"op": "subscribe", "id": query, "run": name});
            message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            ws.send_json(&message).await;
            assert_eq!(ws.receive().await["op"], "subscribed");
            for frame in expected {
                let data = frame.text.lines().find_map(|line| line.strip_prefix("data: {")).expect("a frame has data");
                let cursor = frame.id.map(|id| format!("\"cursor\":\"{id}\",")).unwrap_or_default();
                assert_eq!(
                    ws.text().await.expect("the socket has a frame"),
                    format!("{{\"sub\":\"{query}\",{cursor}{data}"),
                    "{name} {query}"
                );
            }
        }
        assert_eq!(ws.request(json!({"op": "ping"})).await, json!({"op": "pong"}), "a frame arrived after the ends");
    }
}

#[tokio::test]
async fn a_subscription_with_a_cursor_resumes_and_reports_recovered() {
    let client = start_local().await;
    let receipt = client.append("r", &[text("a"), text("b"), text("c"), finished()]).await;
    let epoch = receipt["epoch"].as_str().unwrap();
    let mut ws = Ws::open(&client).await;
    let whole = {
        let answer = ws.subscribe("whole", "r", json!({"frames": "events"})).await;
        assert_eq!(answer, json!({"op": "subscribed", "id": "whole", "epoch": epoch, "sequence": 4, "recovered": false}));
        ws.read_until_end("whole").await
    };
    assert_eq!(sequences(&whole), [1, 2, 3, 4, 4]);
    for (n, frame) in whole.iter().enumerate() {
        let answer = ws.subscribe("again", "r", json!({"frames": "events", "after": frame["cursor"]})).await;
        assert_eq!(answer["recovered"], true, "{answer}");
        let rest = ws.read_until_end("again").await;
        // A reader with the end's cursor gets only the end.
        assert_eq!(sequences(&rest), sequences(&whole[(n + 1).min(4)..]));
    }
    for (after, reason) in [("00000000deadbeef:2".to_owned(), "epoch"), (format!("{epoch}:2000"), "expired")] {
        let answer = ws.subscribe("lost", "r", json!({"frames": "events", "after": after})).await;
        assert_eq!(answer["recovered"], false, "{answer}");
        let frames = ws.read_until_end("lost").await;
        assert_eq!((&frames[0]["frame"], &frames[0]["reason"]), (&json!("Reset"), &json!(reason)));
        assert_eq!(sequences(&frames[1..]), [1, 2, 3, 4, 4]);
    }
    let answer = ws.subscribe("now", "r", json!({"frames": "events", "after": "now"})).await;
    assert_eq!(answer["recovered"], false);
    assert_eq!(sequences(&ws.read_until_end("now").await), [4]);
}

#[tokio::test]
async fn subscriptions_of_one_connection_are_independent() {
    let client = start_local().await;
    let mut ws = Ws::open(&client).await;
    ws.subscribe("user", "r", json!({"frames": "events", "audience": "user"})).await;
    ws.subscribe("internal", "r", json!({"frames": "events", "audience": "internal"})).await;
    ws.subscribe("other", "s", json!({"frames": "events"})).await;
    ws.send_json(&json!({"op": "subscribe", "id": 7, "run": "r"})).await;
    assert_eq!(ws.answer().await["id"], 7);
    client.append("r", &[text("a"), fact("metric.changed", json!({})), text("b")]).await;
    client.append("s", &[text("other"), finished()]).await;
    client.append("r", &[finished()]).await;
    let mut by_sub: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut ends = 0;
    while ends < 4 {
        let frame = ws.next_frame().await;
        ends += usize::from(frame["frame"] == "End");
        by_sub.entry(frame["sub"].to_string()).or_default().push(frame);
    }
    assert_eq!(sequences(&by_sub["\"user\""]), [1, 3, 4, 4]);
    assert_eq!(sequences(&by_sub["\"internal\""]), [1, 2, 3, 4, 4]);
    assert_eq!(sequences(&by_sub["\"other\""]), [1, 2, 2]);
    assert_eq!((&by_sub["\"user\""][1]["prev"], &by_sub["\"internal\""][2]["prev"]), (&json!(1), &json!(2)));
    assert!(by_sub["7"].iter().any(|frame| frame["frame"] == "ActivitySnapshot"), "{by_sub:?}");
}

#[tokio::test]
async fn facts_are_accepted_in_order_and_acknowledged_when_durable() {
    let client = start_local().await;
    let mut ws = Ws::open(&client).await;
    // Sends many publishes before it reads the first answer.
    for n in 0..300 {
        let ids = json!({"sessionId": "s", "agentId": "a"});
        ws.send_json(&json!({"op": "publish", "id": n, "runId": "r", "ids": ids, "facts": [text(&n.to_string())]})).await;
    }
    for n in 0..300 {
        let ack = ws.answer().await;
        assert_eq!((&ack["op"], &ack["id"], &ack["lastSequence"]), (&json!("ack"), &json!(n), &json!(n + 1)), "{ack}");
    }
    let events = client.read_events("r", "", 1000).await;
    assert!(
        events.iter().zip(0..).all(|(event, n)| event["payload"]["text"] == json!(format!("{n}"))),
        "the events are not in order"
    );
    assert_eq!((&events[0]["sessionId"], &events[0]["agentId"]), (&json!("s"), &json!("a")));
    let receipt = client.post_facts("r", &json!([])).await.ok();
    let mut ack = ws.request(json!({"op": "publish", "id": "last", "runId": "r", "sessionId": "other", "facts": []})).await;
    assert_eq!((ack["op"].take(), ack["id"].take()), (json!("ack"), json!("last")));
    ack.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    assert_eq!(ack["epoch"], receipt["epoch"]);
    // A publish to a session's own log.
    let ack = ws.request(json!({"op": "publish", "id": 1, "sessionId": "r", "facts": fact("session.opened", json!({}))})).await;
    assert_eq!((&ack["sessionId"], &ack["lastSequence"], ack.get("runId")), (&json!("r"), &json!(1), None));
}

#[tokio::test]
async fn a_numbered_publish_is_accepted_once_over_any_connection() {
    let client = start_local().await;
    let publish = |id: u64, (epoch, seq): (u64, u64), facts: &[&str]| {
        let facts: Vec<Value> = facts.iter().map(|words| text(words)).collect();
        json!({"op": "publish", "id": id, "runId": "r", "facts": facts, "producer": {"id": "p", "epoch": epoch, "seq": seq}})
    };
    for _ in 0..2 {
        let mut ws = Ws::open(&client).await;
        ws.request(publish(0, (1, 0), &["a", "b"])).await;
        let ack = ws.request(publish(1, (1, 0), &["a", "b"])).await;
        assert_eq!((&ack["accepted"], &ack["duplicates"]), (&json!(0), &json!(2)), "{ack}");
        let ack = ws.request(publish(2, (1, 1), &["b", "c"])).await;
        assert_eq!(ack["accepted"].as_u64().unwrap() + ack["duplicates"].as_u64().unwrap(), 2, "{ack}");
        let problem = ws.request_rejected(publish(3, (1, 9), &["x"]), "producer_gap").await;
        assert_eq!((&problem["expected"], &problem["status"]), (&json!(3), &json!(409)));
    }
    // HTTP requests share the producer numbers.
    let headers = [("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", "2")];
    let receipt = client.post("/v1/runs/r/facts", &headers, json!([text("c"), text("d")]).to_string()).await.ok();
    assert_eq!((&receipt["accepted"], &receipt["duplicates"]), (&json!(1), &json!(1)), "{receipt}");
    let mut ws = Ws::open(&client).await;
    assert_eq!(ws.request(publish(4, (2, 0), &["e"])).await["accepted"], 1);
    ws.request_rejected(publish(5, (1, 4), &["x"]), "producer_fenced").await;
    let texts: Vec<Value> = client.read_events("r", "", 10).await.iter().map(|event| event["payload"]["text"].clone()).collect();
    assert_eq!(texts, ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn an_invalid_message_is_answered_with_its_code_and_the_connection_continues() {
    let limits = Limits { subscriptions_max: 2, fact_bytes_max: 1000, ..Limits::default() };
    let client = start_local_with(FeedConfig::default(), limits).await;
    let mut ws = Ws::open(&client).await;
    for (received, code) in [
        ("", "not_json"),
        ("{", "not_json"),
        ("subscribe", "not_json"),
        ("[1]", "not_an_object"),
        ("7", "not_an_object"),
        ("null", "not_an_object"),
    ] {
        ws.send(Message::text(received)).await;
        let problem = ws.answer().await;
        assert_eq!((&problem["op"], problem["code"].as_str()), (&json!("error"), Some(code)), "{received}: {problem}");
    }
    let mut member = async |message: Value, code: &str, member: &str| {
        let problem = ws.request_rejected(message, code).await;
        assert_eq!(problem["member"], member, "{problem}");
    };
    let long = "x".repeat(257);
    member(json!({"id": 1}), "missing_member", "op").await;
    member(json!({"op": 7, "id": 1}), "bad_query", "op").await;
    member(json!({"op": "dance", "id": 1}), "unknown_op", "op").await;
    member(json!({"op": "ping", "id": {}}), "bad_id", "id").await;
    member(json!({"op": "ping", "id": ""}), "bad_id", "id").await;
    member(json!({"op": "ping", "id": long}), "bad_id", "id").await;
    member(json!({"op": "auth", "id": 1}), "missing_member", "token").await;
    member(json!({"op": "unsubscribe"}), "missing_member", "id").await;
    member(json!({"op": "subscribe", "run": "r"}), "missing_member", "id").await;
    member(json!({"op": "subscribe", "id": 1}), "missing_member", "run").await;
    member(json!({"op": "subscribe", "id": 1, "run": long}), "bad_id", "run").await;
    member(json!({"op": "subscribe", "id": 1, "run": "r", "session": "s"}), "bad_query", "session").await;
    member(json!({"op": "subscribe", "id": 1, "session": ""}), "bad_id", "session").await;
    member(json!({"op": "subscribe", "id": 1, "run": "r", "frames": "dreams"}), "bad_query", "frames").await;
    member(json!({"op": "subscribe", "id": 1, "run": "r", "replay": true}), "bad_query", "replay").await;
    member(json!({"op": "subscribe", "id": 1, "run": "r", "surfaces": [1]}), "bad_query", "surfaces").await;
    member(json!({"op": "subscribe", "id": 1, "run": "r", "audience": "everybody"}), "bad_audience", "audience").await;
    member(json!({"op": "subscribe", "id": 1, "run": "r", "after": "nonsense"}), "bad_cursor", "after").await;
    let publish = |members: Value| {
        let mut message = json!({"op": "publish", "id": 1, "runId": "r", "facts": [text("a")]});
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        message
    };
    member(json!({"op": "publish", "id": 1, "runId": "r"}), "missing_member", "facts").await;
    member(json!({"op": "publish", "id": 1, "facts": []}), "missing_member", "runId").await;
    member(json!({"op": "publish", "runId": "r", "facts": []}), "missing_member", "id").await;
    member(publish(json!({"source": "weather"})), "unknown_source", "source").await;
    member(publish(json!({"ids": {"threadId": ""}})), "bad_id", "threadId").await;
    member(publish(json!({"ids": "s"})), "bad_query", "ids").await;
    member(publish(json!({"producer": {"id": "p", "epoch": 0}})), "bad_producer", "producer.seq").await;
    member(publish(json!({"producer": {"id": "p", "epoch": 0, "seq": -1}})), "bad_producer", "producer.seq").await;
    member(publish(json!({"facts": [text("a"), {"payload": {}}]})), "no_type", "type").await;
    let problem = ws.request_rejected(publish(json!({"facts": [text("a"), 7]})), "not_an_object").await;
    assert_eq!((&problem["status"], &problem["index"]), (&json!(422), &json!(1)));
    let problem = ws.request_rejected(publish(json!({"facts": [text("a"), text(&"x".repeat(1000))]})), "fact_too_large").await;
    assert_eq!((&problem["limit"], &problem["index"]), (&json!(1000), &json!(1)));
    let deep = format!("{{\"op\":\"publish\",\"id\":1,\"runId\":\"r\",\"facts\":[1,{}{}]}}", "[".repeat(200), "]".repeat(200));
    ws.send(Message::text(deep)).await;
    let problem = ws.answer().await;
    assert_eq!((&problem["code"], &problem["id"], &problem["index"]), (&json!("too_deep"), &json!(1), &json!(1)), "{problem}");
    client.get("/v1/runs/r").await.problem(404, "no_such_run");

    ws.subscribe("a", "r", json!({})).await;
    ws.request_rejected(json!({"op": "subscribe", "id": "a", "run": "s"}), "id_in_use").await;
    ws.subscribe("b", "r", json!({})).await;
    let problem = ws.request_rejected(json!({"op": "subscribe", "id": "c", "run": "r"}), "too_many_subscriptions").await;
    assert_eq!(problem["limit"], 2);
    assert_eq!(ws.request(json!({"op": "unsubscribe", "id": "a"})).await["op"], "unsubscribed");
    ws.subscribe("c", "r", json!({})).await;
    assert_eq!(ws.request(json!({"op": "auth", "id": 9, "token": "t"})).await, json!({"op": "authenticated", "id": 9}));
    assert_eq!(ws.request(json!({"op": "ping", "id": "p"})).await, json!({"op": "pong", "id": "p"}));
}

#[tokio::test]
async fn websocket_protocol_errors_close_the_connection_with_their_code() {
    let limits = Limits { body_bytes_max: 4000, ..Limits::default() };
    let client = start_local_with(FeedConfig::default(), limits).await;
    let mut ws = Ws::open(&client).await;
    ws.send(Message::binary(b"{\"op\":\"ping\"}".to_vec())).await;
    assert_eq!(ws.answer().await["code"], "unsupported_media_type");
    assert_eq!(ws.close_code().await, 1003);

    // A message far beyond the limit: its sender still reads the problem.
    for size in [4001, 3_000_000] {
        let mut ws = Ws::open(&client).await;
        let _ = with_timeout("sending", ws.socket.send(Message::text("x".repeat(size)))).await;
        let problem = ws.answer().await;
        assert_eq!((&problem["code"], &problem["limit"]), (&json!("body_too_large"), &json!(4000)), "{problem}");
        assert_eq!(ws.close_code().await, 1009);
    }

    // A text frame with two bytes of invalid UTF-8, an unmasked frame, and a frame with an unknown opcode.
    for (frame, code) in
        [(&[0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28][..], 1007), (&[0x81, 0x02, b'{', b'}'], 1002), (&[0x83, 0x80, 0, 0, 0, 0], 1002)]
    {
        let mut ws = Ws::open(&client).await;
        ws.socket.get_mut().write_all(frame).await.unwrap();
        if code == 1007 {
            assert_eq!(ws.answer().await["code"], "not_json");
        }
        assert_eq!(ws.close_code().await, code);
    }

    // The server answers every message before the error, and keeps its facts.
    let mut ws = Ws::open(&client).await;
    for n in 0..20 {
        ws.send_json(&json!({"op": "publish", "id": n, "runId": "r", "facts": [text("a")]})).await;
    }
    ws.send(Message::binary(vec![0])).await;
    for n in 0..20 {
        assert_eq!(ws.answer().await["id"], n);
    }
    assert_eq!(ws.answer().await["code"], "unsupported_media_type");
    assert_eq!(ws.close_code().await, 1003);
    assert_eq!(client.get("/v1/runs/r").await.ok()["lastSequence"], 20);
}

#[tokio::test]
async fn an_unsubscribed_reader_gets_no_more_frames_and_its_id_is_free() {
    let client = start_local().await;
    let mut ws = Ws::open(&client).await;
    ws.subscribe("a", "r", json!({"frames": "events"})).await;
    ws.subscribe("b", "r", json!({"frames": "events"})).await;
    for n in 0..40 {
        client.append("r", &vec![text("x"); 50]).await;
        let sub = ["a", "b"][n % 2];
        assert_eq!(ws.request(json!({"op": "unsubscribe", "id": sub})).await, json!({"op": "unsubscribed", "id": sub}));
        ws.frames.clear();
        // The other subscription continues; this one has no frame after the answer.
        let answer = ws.request(json!({"op": "ping"})).await;
        assert_eq!(answer["op"], "pong");
        assert!(ws.frames.iter().all(|frame| frame["sub"] != sub), "{:?}", ws.frames);
        ws.subscribe(sub, "r", json!({"frames": "events", "after": "now"})).await;
    }
    // A subscription may have ended at that moment: to unsubscribe it is no error.
    assert_eq!(ws.request(json!({"op": "unsubscribe", "id": "never"})).await["op"], "unsubscribed");
}

#[tokio::test]
async fn unsent_frames_are_dropped_after_an_unsubscribe() {
    const CONTENT: usize = 24 * 1024;
    let activities = more_than_sockets_hold() / CONTENT;
    let client = start_local().await;
    let chart = |n: usize| {
        let content = json!({"filling": "x".repeat(CONTENT)});
        json!({"event_type": "activity_snapshot", "message_id": format!("c{n}"), "activity_type": "chart", "content": content})
    };
    let facts: Vec<Value> = (0..activities).map(chart).collect();
    client.post_lines("/v1/runs/r/facts?source=awaken", to_ndjson(&facts)).await.ok();
    let mut ws = Ws::open(&client).await;
    ws.subscribe("s", "r", json!({})).await;
    // In the middle of a large snapshot: the client reads the answer before the rest.
    ws.next_frame().await;
    assert_eq!(ws.request(json!({"op": "unsubscribe", "id": "s"})).await["op"], "unsubscribed");
    assert!(ws.frames.len() < activities, "{} of {activities}", ws.frames.len());
    ws.frames.clear();
    assert_eq!(ws.request(json!({"op": "ping"})).await["op"], "pong");
    assert_eq!((ws.frames.len(), &client.get("/readyz").await.ok()["readers"]), (0, &json!(0)));
}

#[tokio::test]
async fn a_finished_run_ends_only_its_subscription() {
    let client = start_local().await;
    client.append("r", &[text("a"), finished()]).await;
    let mut ws = Ws::open(&client).await;
    ws.subscribe("live", "live", json!({"frames": "events"})).await;
    for _ in 0..20 {
        ws.subscribe("s", "r", json!({})).await;
        let frames = ws.read_until_end("s").await;
        let end = frames.last().unwrap();
        assert_eq!((&end["status"], end["cursor"].is_string()), (&json!("completed"), true));
    }
    client.append("live", &[text("b")]).await;
    assert_eq!(ws.next_frame().await["sub"], "live");
}

#[tokio::test]
async fn pings_are_answered_and_a_client_without_pongs_is_closed() {
    let client = start_local_with_heartbeat(Duration::from_millis(40)).await;
    let mut ws = Ws::open(&client).await;
    ws.send(Message::Ping(b"there?".to_vec().into())).await;
    let pong = with_timeout("a pong", async {
        loop {
            if let Message::Pong(received) = ws.socket.next().await.expect("the socket is open").expect("the message is valid") {
                return received;
            }
        }
    });
    assert_eq!(pong.await.as_ref(), b"there?");
    // A client that reads answers pings, by its library, and stays connected.
    ws.subscribe("s", "r", json!({"frames": "events"})).await;
    let mut socket = Ws::open(&client).await.socket.into_inner();
    let mut received = Vec::new();
    let (silent, ()) = tokio::join!(with_timeout("the close of the silent client", socket.read_to_end(&mut received)), async {
        while ws.heartbeats < 8 {
            let message =
                with_timeout("a ping", ws.socket.next()).await.expect("the socket is open").expect("the message is valid");
            ws.heartbeats += usize::from(message.is_ping());
        }
    });
    silent.expect("the connection ends cleanly");
    assert_eq!(&received[..2], [0x89, 0], "expected a ping: {received:?}");
    assert!(received.ends_with(b"pings were not answered"), "{received:?}");
    client.append("r", &[text("a")]).await;
    assert_eq!(ws.next_frame().await["sequence"], 1);
}

#[tokio::test]
async fn a_stalled_reader_delays_no_other_and_then_gets_every_event_in_order() {
    const FACT: usize = 24 * 1024;
    let facts = more_than_sockets_hold() / FACT;
    let client = start_local_with(FeedConfig { ring_bytes_max: 64 * 1024, ..FeedConfig::default() }, Limits::default()).await;
    let mut stalled = Ws::open(&client).await;
    stalled.subscribe("all", "r", json!({"frames": "events"})).await;
    stalled.subscribe("some", "r", json!({"frames": "events", "type": ["text.delta", "run.finished"]})).await;
    let mut eager = Ws::open(&client).await;
    eager.subscribe("eager", "r", json!({"frames": "events"})).await;
    let eager = tokio::spawn(async move { sequences(&eager.read_until_end("eager").await) });
    for _ in 0..facts / 8 {
        client.append("r", &vec![text(&"x".repeat(FACT)); 8]).await;
    }
    let last = client.append("r", &[finished()]).await["lastSequence"].as_u64().expect("the receipt has a sequence");
    let all: Vec<u64> = (1..=last).chain([last]).collect();
    assert!(with_timeout("the eager reader", eager).await.expect("the task does not panic") == all);
    // The server processes its messages although it does not read.
    stalled.send_json(&json!({"op": "publish", "id": 1, "runId": "other", "facts": [text("a"), finished()]})).await;
    let other = client.open_stream(Transport::Raw, "other", "", None).await.read_all().await;
    assert_eq!(other.len(), 3);
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut order = Vec::new();
    while order.len() < 2 * all.len() {
        let frame = stalled.receive().await;
        match frame["sub"].as_str() {
            Some(sub) => {
                seen.entry(sub.to_owned()).or_default().extend(frame["sequence"].as_u64());
                order.push(sub.to_owned());
            }
            None => assert_eq!(frame["op"], "ack", "{frame}"),
        }
    }
    assert!(seen["all"] == all && seen["some"] == all, "{seen:?}");
    // The subscriptions take turns.
    assert!(order.chunk_by(|a, b| a == b).count() > 20, "{order:?}");
}

#[tokio::test]
async fn a_stalled_reader_of_activities_is_brought_forward_without_a_queue() {
    const CONTENT: usize = 24 * 1024;
    let steps = 3 * more_than_sockets_hold() / CONTENT;
    let client = start_local_with(FeedConfig { ring_bytes_max: 64 * 1024, ..FeedConfig::default() }, Limits::default()).await;
    let mut stalled = Ws::open(&client).await;
    stalled.subscribe("s", "r", json!({})).await;
    let step = |n: usize| {
        let content = json!({"n": n, "filling": char::from(b'a' + u8::try_from(n % 26).unwrap()).to_string().repeat(CONTENT)});
        json!({"event_type": "activity_snapshot", "message_id": "c", "activity_type": "chart", "content": content, "replace": true})
    };
    for n in 1..=steps {
        client.post("/v1/runs/r/facts?source=awaken", &[("content-type", "application/json")], step(n).to_string()).await.ok();
    }
    client.append("r", &[finished()]).await;
    let mut screen = Screen::default();
    let mut received_frames = 0;
    while !screen.ended {
        screen.apply(&as_sse(stalled.next_frame().await));
        received_frames += 1;
    }
    assert!(received_frames < steps, "{received_frames} frames of {steps} changes");
    assert_eq!(screen.shown()[&("chart".to_owned(), "c".to_owned())]["content"], step(steps)["content"]);
}

#[tokio::test]
async fn a_client_that_never_reads_is_disconnected_with_its_subscriptions() {
    let client = start_local_with_heartbeat(Duration::from_millis(40)).await;
    // Pings do not reach this client: more data than sockets hold is before them.
    for _ in 0..=more_than_sockets_hold() / (512 * 1024) {
        client.append("r", &vec![text(&"x".repeat(16 * 1024)); 32]).await;
    }
    let mut ws = Ws::open(&client).await;
    for sub in ["a", "b"] {
        ws.send_json(&json!({"op": "subscribe", "id": sub, "run": "r", "frames": "events"})).await;
    }
    let readers = async || client.get("/readyz").await.ok()["readers"].as_u64().unwrap();
    with_timeout("two readers", async { while readers().await < 2 {} }).await;
    with_timeout("no readers", async { while readers().await > 0 {} }).await;
    let mut other = Ws::open(&client).await;
    assert_eq!(other.request(json!({"op": "ping"})).await["op"], "pong");
    drop(ws);
}

#[tokio::test]
async fn an_open_websocket_counts_as_a_connection() {
    let client = start_local_with(FeedConfig::default(), Limits { connections_max: 1, ..Limits::default() }).await;
    let mut ws = Ws::open(&client).await;
    let mut refused = String::new();
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    with_timeout("the rejection", socket.read_to_string(&mut refused)).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert_eq!(ws.request(json!({"op": "ping"})).await["op"], "pong");
    with_timeout("the answer to the close", ws.socket.close(None)).await.unwrap();
    while with_timeout("the end of the connection", ws.socket.next()).await.is_some() {}
    loop {
        // The slot is free as soon as the server has noticed the close.
        if let Ok((_, response)) = connect(&client, &[]).await {
            assert_eq!(response.status(), 101);
            break;
        }
    }
}

#[tokio::test]
async fn a_stop_answers_pending_messages_closes_websockets_and_ends_the_process() {
    let mut server = Process::start();
    let client = Client::new(server.at);
    let mut open = Vec::new();
    for n in 0..3 {
        let mut ws = Ws::open(&client).await;
        ws.subscribe("s", "r", json!({"frames": "events"})).await;
        ws.send_json(&json!({"op": "publish", "id": n, "runId": "r", "facts": [text("a")]})).await;
        assert_eq!(ws.answer().await["op"], "ack");
        open.push(ws);
    }
    // One of the clients does not read.
    let silent = open.pop();
    server.terminate();
    for ws in &mut open {
        let code = loop {
            if let Err(code) = ws.text().await {
                break code;
            }
        };
        assert_eq!(code, 1001);
    }
    assert!(server.wait().success(), "a requested stop exits with success");
    drop(silent);
}

#[tokio::test]
async fn a_session_subscription_covers_all_runs_and_resumes_from_its_cursor() {
    let client = start_local().await;
    let put = async |run: &str, words: &str| {
        let body = json!([text(words)]).to_string();
        let path = format!("/v1/runs/{run}/facts?sessionId=s");
        client.post(&path, &[("content-type", "application/json")], body).await.ok();
    };
    put("a", "1").await;
    let mut socket = Ws::open(&client).await;
    let asked = json!({"op": "subscribe", "id": "all", "session": "s", "frames": "events", "children": true});
    let answer = socket.request(asked.clone()).await;
    assert_eq!((&answer["op"], &answer["recovered"]), (&json!("subscribed"), &json!(false)), "{answer}");
    assert_eq!(socket.next_frame().await["runId"], "a");
    put("b", "2").await;
    let frame = socket.next_frame().await;
    assert_eq!((&frame["runId"], &frame["sub"]), (&json!("b"), &json!("all")));
    put("a", "3").await;
    socket.next_frame().await;

    let mut again = Ws::open(&client).await;
    let mut asked = asked;
    asked["after"] = frame["cursor"].clone();
    assert_eq!(again.request(asked).await["recovered"], true);
    let frame = again.next_frame().await;
    assert_eq!((&frame["runId"], &frame["event"]["payload"]["text"]), (&json!("a"), &json!("3")), "{frame}");
}

//! SSE: the exact bytes of frames, and complete streams for readers across all disconnects.

use crate::harness::{
    AUDIENCES, Client, Frame, Sse, TRANSPORTS, Transport, fact, recording, start_local, start_local_with, to_ndjson, with_timeout,
};
use proscenium::feed::FeedConfig;
use proscenium::serve::Limits;
use serde_json::{Value, json};
use std::collections::HashSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn text(words: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": words}}))
}

fn finished() -> Value {
    fact("run.finished", json!({}))
}

fn kinds(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(Frame::kind).collect()
}

fn numbers(frames: &[Frame]) -> Vec<u64> {
    frames.iter().map(Frame::sequence).collect()
}

#[tokio::test]
async fn a_stream_has_exactly_these_bytes() {
    let client = start_local().await;
    client.append("r\u{fc}", &[text("a\r\nb\u{2028}c"), fact("tool.progress", json!({"toolCallId": "c"})), finished()]).await;
    let events = client.read_events("r\u{fc}", "", 10).await;
    let epoch = client.get("/v1/runs/r\u{fc}").await.ok()["epoch"].as_str().expect("the run has an epoch").to_owned();
    for via in TRANSPORTS {
        let mut stream = client.open_stream(via, "r%C3%BC", "", None).await;
        assert_eq!(stream.status, 200);
        let expected =
            [("content-type", "text/event-stream"), ("cache-control", "no-cache, no-transform"), ("x-accel-buffering", "no")];
        for (name, value) in expected {
            assert_eq!(stream.headers.get(name).map(String::as_str), Some(value), "{via:?}");
        }
        for name in ["content-encoding", "content-length"] {
            assert!(!stream.headers.contains_key(name), "{via:?}: {name}");
        }
        let frames = stream.read_all().await;
        let retry = frames[0].retry.expect("the first data frame has retry");
        assert!((1000..=2000).contains(&retry), "{retry}");
        let expected = format!(
            ":\nretry: {retry}\n\
             data: {{\"frame\":\"Event\",\"runId\":\"r\u{fc}\",\"sequence\":1,\"prev\":0,\"event\":{}}}\nid: {epoch}:2\n\n\
             data: {{\"frame\":\"Event\",\"runId\":\"r\u{fc}\",\"sequence\":3,\"prev\":1,\"event\":{}}}\nid: {epoch}:6\n\n\
             data: {{\"frame\":\"End\",\"runId\":\"r\u{fc}\",\"sequence\":3,\"status\":\"completed\"}}\nid: {epoch}:7\n\n",
            events[0], events[1],
        );
        // Readers in Python take this character for the end of a line.
        let expected = expected.replace('\u{2028}', "\\u2028");
        assert_eq!(String::from_utf8(stream.bytes).expect("a stream is UTF-8"), expected, "{via:?}");
    }
}

#[tokio::test]
async fn the_first_byte_precedes_any_frame_and_the_run_may_not_exist() {
    let client = start_local().await;
    for via in TRANSPORTS {
        let run = format!("{via:?}");
        let mut stream = client.open_stream(via, &run, "", None).await;
        stream.wait_until_open().await;
        assert_eq!(stream.bytes, b":\n");
        client.get(&format!("/v1/runs/{run}")).await.problem(404, "no_such_run");
        client.append(&run, &[text("a")]).await;
        assert_eq!(stream.next_frame().await.sequence(), 1);
        client.append(&run, &[text("b"), finished()]).await;
        let rest = stream.read_all().await;
        assert_eq!((kinds(&rest), rest[0].prev()), (vec!["Event", "Event", "End"], 1));
    }
}

#[tokio::test]
async fn heartbeats_are_one_line_comments_and_never_split_a_frame() {
    let interval = std::time::Duration::from_millis(5);
    let client = crate::harness::start_local_with_heartbeat(interval).await;
    for via in TRANSPORTS {
        let run = format!("{via:?}");
        let mut stream = client.open_stream(via, &run, "", None).await;
        while stream.bytes.len() < 8 {
            stream.read_more().await;
        }
        assert!(stream.bytes.chunks(2).all(|heartbeat| heartbeat == b":\n"), "{:?}", stream.bytes);
        for n in 0..20 {
            client.append(&run, &[text(&n.to_string())]).await;
            tokio::time::sleep(interval / 3).await;
        }
        client.append(&run, &[finished()]).await;
        let frames = stream.read_all().await;
        assert_eq!(frames.len(), 22);
        assert_eq!(frames.iter().filter(|frame| frame.retry.is_some()).count(), 1);
    }
}

#[tokio::test]
async fn an_ended_run_ends_its_stream_and_a_reader_with_its_end_gets_204() {
    let client = start_local().await;
    for (class, payload, status) in [
        ("run.finished", json!({}), "completed"),
        ("run.finished", json!({"status": "cancelled"}), "cancelled"),
        ("run.finished", json!({"status": "interrupted"}), "interrupted"),
        ("run.failed", json!({}), "failed"),
    ] {
        let run = format!("run-{status}");
        client.append(&run, &[text("a"), fact(class, json!({"payload": payload}))]).await;
        for via in TRANSPORTS {
            let frames = client.open_stream(via, &run, "", None).await.read_all().await;
            assert_eq!(kinds(&frames), ["Event", "Event", "End"]);
            let end = &frames[2];
            assert_eq!((end.data["status"].as_str(), end.sequence()), (Some(status), 2));
            let position = |frame: &Frame| {
                frame.id().split_once(':').expect("an id is a cursor").1.parse::<u64>().expect("a position is a decimal")
            };
            assert!(position(&frames[0]) < position(&frames[1]) && position(&frames[1]) < position(end));
            // The last event's cursor is not the end's: a reader with it still gets the End frame.
            let late = client.open_stream(via, &run, "", frames[1].id.as_deref()).await.read_all().await;
            assert_eq!((kinds(&late), &late[0].data, late[0].retry.is_some()), (vec!["End"], &end.data, true));
            let again = client.open_stream(via, &run, "", end.id.as_deref()).await;
            assert_eq!((again.status, again.headers.get("content-type")), (204, None));
            assert_eq!(again.headers.get("cache-control").map(String::as_str), Some("no-store"), "{via:?}");
        }
    }
}

#[tokio::test]
async fn events_after_an_end_reopen_the_stream_for_audiences_that_see_them() {
    let client = start_local().await;
    client.append("r", &[text("a"), finished()]).await;
    let end = client.open_stream(Transport::Raw, "r", "", None).await.read_all().await.pop().expect("the stream has an end");
    client.append("r", &[fact("diagnostic.changed", json!({}))]).await;
    for via in TRANSPORTS {
        assert_eq!(client.open_stream(via, "r", "", end.id.as_deref()).await.status, 204, "hidden from users");
        let internal = client.open_stream(via, "r", "audience=internal", end.id.as_deref()).await.read_all().await;
        assert_eq!((kinds(&internal), numbers(&internal)), (vec!["Event", "End"], vec![3, 3]));
    }
    client.append("r", &[text("late")]).await;
    for via in TRANSPORTS {
        let more = client.open_stream(via, "r", "", end.id.as_deref()).await.read_all().await;
        assert_eq!((kinds(&more), more[0].prev(), more[1].data["status"].as_str()), (vec!["Event", "End"], 2, Some("completed")));
        assert_eq!(client.open_stream(via, "r", "", more[1].id.as_deref()).await.status, 204);
    }
    // A new attempt: the stream goes on.
    client.append("r", &[fact("run.started", json!({}))]).await;
    let mut stream = client.open_stream(Transport::Raw, "r", "", end.id.as_deref()).await;
    assert_eq!((stream.next_frame().await.sequence(), stream.next_frame().await.sequence()), (4, 5));
    client.append("r", &[text("b"), finished()]).await;
    let rest = stream.read_all().await;
    assert_eq!((kinds(&rest), numbers(&rest)), (vec!["Event", "Event", "End"], vec![6, 7, 7]));
}

#[tokio::test]
async fn a_reader_faster_than_the_tick_gets_no_obsolete_end() {
    let sizes = FeedConfig { tick: std::time::Duration::from_millis(400), ..FeedConfig::default() };
    let client = start_local_with(sizes, Limits::default()).await;
    for via in TRANSPORTS {
        let run = format!("{via:?}");
        // Another reader watches, so that the server knows the end while the user's frames are only in the log. The new
        // start comes within the tick after the end.
        let mut watching = client.open_stream(via, &run, "audience=internal", None).await;
        watching.wait_until_open().await;
        client.append(&run, &[text("a"), finished()]).await;
        assert_eq!(kinds(&watching.read_all().await), ["Event", "Event", "End"]);
        client.append(&run, &[fact("run.started", json!({}))]).await;
        let mut stream = client.open_stream(via, &run, "", None).await;
        for sequence in 1..=3 {
            assert_eq!(stream.next_frame().await.sequence(), sequence);
        }
        client.append(&run, &[text("b"), finished()]).await;
        let rest = stream.read_all().await;
        assert_eq!((kinds(&rest), numbers(&rest)), (vec!["Event", "Event", "End"], vec![4, 5, 5]));
    }
}

#[tokio::test]
async fn a_waiting_run_has_not_ended() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({})), fact("action.required", json!({"actionId": "a"}))]).await;
    let mut stream = client.open_stream(Transport::Raw, "r", "", None).await;
    assert_eq!((stream.next_frame().await.sequence(), stream.next_frame().await.sequence()), (1, 2));
    client.append("r", &[fact("action.resolved", json!({"actionId": "a"}))]).await;
    assert_eq!(stream.next_frame().await.data["event"]["type"], "action.resolved");
}

#[tokio::test]
async fn a_cursor_of_another_epoch_or_beyond_the_log_gets_a_reset() {
    let client = start_local().await;
    client.append("r", &[text("a"), text("b"), finished()]).await;
    let epoch = client.get("/v1/runs/r").await.ok()["epoch"].as_str().expect("the run has an epoch").to_owned();
    let other = if epoch.starts_with('0') { epoch.replacen('0', "1", 1) } else { format!("0{}", &epoch[1..]) };
    for (cursor, reason) in [
        (format!("{other}:2"), "epoch"),
        (format!("{other}:7"), "epoch"),
        (format!("{epoch}:2000"), "expired"),
        (format!("{epoch}:8"), "expired"),
    ] {
        for via in TRANSPORTS {
            let frames = client.open_stream(via, "r", "", Some(&cursor)).await.read_all().await;
            assert_eq!(kinds(&frames), ["Reset", "Event", "Event", "Event", "End"], "{cursor}");
            assert_eq!((frames[0].data["reason"].as_str(), frames[1].prev()), (Some(reason), 0));
            // A reader cut off right after the Reset gets no second one.
            let rest = client.open_stream(via, "r", "", frames[0].id.as_deref()).await.read_all().await;
            assert_eq!(kinds(&rest), ["Event", "Event", "Event", "End"]);
        }
    }
    // The same for a filtered reader, and for one that connected before the run's first fact.
    let frames = client.open_stream(Transport::Raw, "r", "type=text.delta", Some(&format!("{other}:6"))).await.read_all().await;
    assert_eq!((kinds(&frames), frames[2].prev()), (vec!["Reset", "Event", "Event", "End"], 1));
    let mut early = client.open_stream(Transport::Raw, "later", "", Some(&format!("{other}:6"))).await;
    client.append("later", &[text("a")]).await;
    assert_eq!((early.next_frame().await.kind(), early.next_frame().await.sequence()), ("Reset", 1));
}

#[tokio::test]
async fn an_invalid_cursor_is_rejected_with_the_member() {
    let client = start_local().await;
    client.append("r", &[text("a")]).await;
    for cursor in ["7", "nonsense", "00000000:1", "000000000000feed:", "000000000000feed:-1", "000000000000feed:x"] {
        for via in TRANSPORTS {
            let mut stream = client.open_stream(via, "r", &format!("after={cursor}"), None).await;
            assert_eq!(stream.status, 400, "{cursor}");
            let problem: Value = serde_json::from_slice(&stream.body().await).expect("a problem is JSON");
            crate::schema::assert_valid("problem.schema.json", &problem);
            assert_eq!((problem["code"].as_str(), problem["member"].as_str()), (Some("bad_cursor"), Some("after")));
            assert_eq!(client.open_stream(via, "r", "", Some(cursor)).await.status, 400, "{cursor}");
        }
    }
    client.get("/v1/runs/r/stream?frames=dreams").await.problem(400, "bad_query");
    client.get("/v1/runs/r/stream?replay=dreams").await.problem(400, "bad_query");
    client.get("/v1/runs/a%00b/stream?frames=events").await.problem(400, "bad_id");
}

#[tokio::test]
async fn last_event_id_takes_precedence_over_the_query() {
    let client = start_local().await;
    client.append("r", &[text("a"), text("b"), text("c"), finished()]).await;
    let ids: Vec<String> = client
        .open_stream(Transport::Raw, "r", "", None)
        .await
        .read_all()
        .await
        .iter()
        .map(|frame| frame.id().to_owned())
        .collect();
    for via in TRANSPORTS {
        let from = async |query: &str, resume: Option<&str>| {
            numbers(&client.open_stream(via, "r", query, resume).await.read_all().await)
        };
        let (first, third) = (&ids[0], &ids[2]);
        assert_eq!(from(&format!("after={first}"), Some(third)).await, [4, 4]);
        assert_eq!(from(&format!("after={first}&last_event_id={third}"), None).await, [4, 4]);
        assert_eq!(from(&format!("after={third}"), Some(first)).await, [2, 3, 4, 4]);
        assert_eq!(from("after=start", None).await, [1, 2, 3, 4, 4]);
        assert_eq!(from(&format!("after={third}"), Some("")).await, [4, 4], "an empty id is no cursor");
        assert_eq!(from("after=start", Some(third)).await, [4, 4]);
    }
}

#[tokio::test]
async fn after_now_streams_only_new_events_and_names_the_last_earlier_one() {
    let client = start_local().await;
    client.append("r", &[text("a"), fact("metric.changed", json!({}))]).await;
    let mut streams = Vec::new();
    for via in TRANSPORTS {
        for query in ["after=now", "after=now&type=text.delta"] {
            let mut stream = client.open_stream(via, "r", query, None).await;
            stream.wait_until_open().await;
            streams.push(stream);
        }
    }
    client.append("r", &[text("b")]).await;
    for mut stream in streams {
        let frame = stream.next_frame().await;
        assert_eq!((frame.sequence(), frame.prev()), (3, 1));
    }
    let mut early = client.open_stream(Transport::Raw, "unwritten", "after=now", None).await;
    early.wait_until_open().await;
    client.append("unwritten", &[text("a")]).await;
    assert_eq!(early.next_frame().await.sequence(), 1);
}

#[tokio::test]
async fn a_filtered_stream_is_live_and_ends_with_its_run() {
    let client = start_local().await;
    let mut stream = client.open_stream(Transport::Hyper, "r", "surfaces=hitl,tool_ui&audience=user", None).await;
    stream.wait_until_open().await;
    client.append("r", &[text("a"), fact("tool.started", json!({"toolCallId": "c"}))]).await;
    assert_eq!((stream.next_frame().await.sequence(), stream.bytes.is_empty()), (2, false));
    client.append("r", &[text("b"), fact("action.required", json!({"actionId": "x"})), finished()]).await;
    let rest = stream.read_all().await;
    assert_eq!((kinds(&rest), numbers(&rest), rest[0].prev()), (vec!["Event", "End"], vec![4, 5], 2));
}

#[tokio::test]
async fn a_filtered_stream_resumed_far_from_its_last_event_still_names_it() {
    let client = start_local().await;
    let facts: Vec<Value> = (1..=2600).map(|n| if n == 1500 { fact("task.changed", json!({})) } else { text("x") }).collect();
    let mut cursors = Vec::new();
    for (part, n) in facts.chunks(20).zip(1..) {
        let receipt = client.append("r", part).await;
        cursors.push(format!("{}:{}", receipt["epoch"].as_str().expect("the receipt has an epoch"), n * 20 * 2));
    }
    client.append("r", &[finished()]).await;
    for (cursor, prev) in [(&cursors[127], 1500), (&cursors[75], 1500), (&cursors[80], 1500)] {
        let frames =
            client.open_stream(Transport::Raw, "r", "type=task.changed,run.finished", Some(cursor)).await.read_all().await;
        assert_eq!(
            (kinds(&frames), numbers(&frames), frames[0].prev()),
            (vec!["Event", "End"], vec![2601, 2601], prev),
            "{cursor}"
        );
    }
    let frames =
        client.open_stream(Transport::Raw, "r", "type=task.changed,run.finished", Some(&cursors[70])).await.read_all().await;
    assert_eq!((numbers(&frames), frames[0].prev(), frames[1].prev()), (vec![1500, 2601, 2601], 0, 1500));
}

#[tokio::test]
async fn a_stream_may_follow_another_request_on_its_connection() {
    let client = start_local().await;
    client.append("r", &[text("a"), finished()]).await;
    let mut socket = TcpStream::connect(client.at).await.expect("the server accepts the connection");
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the request is sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        with_timeout("health", socket.read_buf(&mut answer)).await.expect("the socket is readable");
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    let mut stream = Sse::open(socket, Transport::Raw, "/v1/runs/r/stream?frames=events", &[]).await;
    assert_eq!(stream.headers.get("transfer-encoding").map(String::as_str), Some("chunked"), "hyper carries the stream");
    assert_eq!(kinds(&stream.read_all().await), ["Event", "Event", "End"]);
}

#[tokio::test]
async fn a_request_may_arrive_in_pieces() {
    let client = start_local().await;
    client.append("r", &[text("a"), finished()]).await;
    let request = b"GET /v1/runs/r/stream?frames=events HTTP/1.1\r\nhost: localhost\r\nlast-event-id:\r\n\r\n";
    for cut in [1, 3, 4, 20, 60, request.len() - 1] {
        let mut socket = TcpStream::connect(client.at).await.expect("the server accepts the connection");
        socket.set_nodelay(true).expect("the option is set");
        socket.write_all(&request[..cut]).await.expect("the request is sent");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        socket.write_all(&request[cut..]).await.expect("the request is sent");
        let mut answer = Vec::new();
        with_timeout("the end", socket.read_to_end(&mut answer)).await.expect("the socket is readable");
        let answer = String::from_utf8(answer).expect("the response is UTF-8");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"frame\":\"End\""), "cut at {cut}: {answer}");
    }
}

/// Reads a run to its end with a new connection for every frame.
async fn read_one_frame_per_connection(client: &Client, via: Transport, run: &str, query: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    loop {
        let resume = frames.last().and_then(|frame| frame.id.as_deref());
        let mut stream = client.open_stream(via, run, query, resume).await;
        if stream.status == 204 {
            return frames;
        }
        frames.push(stream.next_frame().await);
        assert!(frames.last().is_some_and(|frame| frame.retry.is_some()), "each connection's first frame has retry");
    }
}

/// Asserts that the frames are all of the audience's events, once, in order, with the right chain, and the end.
async fn assert_complete(client: &Client, run: &str, query: &str, frames: &[Frame]) {
    let events = client.read_events(run, query, 1000).await;
    let (end, frames) = frames.split_last().expect("the stream has an end");
    assert_eq!(end.kind(), "End");
    assert_eq!(frames.len(), events.len());
    let mut prev = 0;
    for (frame, event) in frames.iter().zip(&events) {
        assert_eq!((frame.kind(), frame.prev(), &frame.data["event"]), ("Event", prev, event));
        prev = frame.sequence();
    }
}

/// Posts a recording that ends its run, in small bodies.
async fn post_in_small_bodies(client: &Client, run: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?source=awaken");
    for body in facts.chunks(50) {
        assert_eq!(client.post_lines(&path, to_ndjson(body)).await.ok()["accepted"], body.len());
        tokio::task::yield_now().await;
    }
    assert_eq!(client.get(&format!("/v1/runs/{run}")).await.ok()["status"], "completed");
}

#[tokio::test]
async fn a_reader_cut_off_after_every_frame_gets_every_event_once() {
    let facts = recording("long_40_steps");
    let client = start_local().await;
    for via in TRANSPORTS {
        let run = format!("{via:?}");
        let reading = read_one_frame_per_connection(&client, via, &run, "audience=user");
        let ((), frames) = tokio::join!(post_in_small_bodies(&client, &run, &facts), reading);
        assert!(frames.len() > 1000, "{}", frames.len());
        assert_complete(&client, &run, "audience=user", &frames).await;
    }
}

#[tokio::test]
async fn a_reader_cut_off_after_every_frame_gets_every_event_once_from_the_store_too() {
    let facts: Vec<Value> = recording("tool_progress_activity");
    let sizes = FeedConfig { ring_bytes_max: 1, pages_bytes_max: 64 * 1024, ..FeedConfig::default() };
    let client = start_local_with(sizes, Limits::default()).await;
    post_in_small_bodies(&client, "r", &facts).await;
    for audience in AUDIENCES {
        for query in [format!("audience={audience}"), format!("audience={audience}&surfaces=tool_ui,runtime_status")] {
            for via in TRANSPORTS {
                assert_complete(&client, "r", &query, &read_one_frame_per_connection(&client, via, "r", &query).await).await;
            }
        }
    }
}

#[tokio::test]
async fn a_reader_cut_off_inside_a_frame_gets_it_again() {
    let client = start_local().await;
    client.append("r", &[text("a"), text("b"), text("c"), finished()]).await;
    let whole = client.open_stream(Transport::Raw, "r", "", None).await.read_all().await;
    let blocks: Vec<&str> = whole.iter().map(|frame| frame.text.as_str()).collect();
    let body = format!(":\n{}", blocks.concat().trim_start_matches(":\n"));
    for cut in 0..body.len() {
        // A frame counts as received when its empty line has arrived.
        let committed = body[..cut].rmatch_indices("\n\n").next().map_or(0, |(at, _)| body[..at].matches("\n\n").count() + 1);
        let resume = committed.checked_sub(1).map(|n| whole[n].id());
        let query = format!("after={}", resume.unwrap_or("start"));
        if committed == whole.len() {
            continue;
        }
        let path = format!("/v1/runs/r/stream?frames=events&{query}");
        if cut % 40 == 0 {
            let socket = TcpStream::connect(client.at).await.expect("the server accepts the connection");
            let rest = Sse::open(socket, Transport::Raw, &path, &[]).await.read_all().await;
            let data = |frames: &[Frame]| frames.iter().map(|frame| frame.data.clone()).collect::<Vec<_>>();
            assert_eq!(data(&rest), data(&whole[committed..]), "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn two_hundred_readers_get_every_event_once_and_in_order() {
    let client = start_local_with(FeedConfig { ring_bytes_max: 8 * 1024, ..FeedConfig::default() }, Limits::default()).await;
    let mut reading = Vec::new();
    for n in 0..200 {
        let mut stream = client.open_stream(TRANSPORTS[n % 2], "r", &format!("audience={}", AUDIENCES[n % 3]), None).await;
        stream.wait_until_open().await;
        reading.push((n, stream));
    }
    // A quarter of the readers does not read during the writes, however long they take.
    let (stalled, eager): (Vec<_>, Vec<_>) = reading.into_iter().partition(|(n, _)| n % 4 == 3);
    let eager: Vec<_> =
        eager.into_iter().map(|(n, mut stream)| tokio::spawn(async move { (n, stream.sequences().await) })).collect();
    let mut facts = Vec::new();
    for n in 0..300 {
        let class = ["text.delta", "task.changed", "tool.progress"][n % 3];
        let audience = AUDIENCES[n % 3];
        facts.push(fact(
            class,
            json!({"messageId": n.to_string(), "partId": "p", "toolCallId": n.to_string(), "audience": audience}),
        ));
    }
    for body in facts.chunks(7) {
        client.append("r", body).await;
    }
    client.append("r", &[finished()]).await;
    let mut expected = Vec::new();
    for audience in AUDIENCES {
        let events = client.read_events("r", &format!("audience={audience}"), 1000).await;
        expected.push(events.iter().filter_map(|event| event["sequence"].as_u64()).collect::<Vec<_>>());
    }
    for eager in eager {
        let (n, sequences) = with_timeout("an eager reader", eager).await.expect("the task does not panic");
        assert_eq!(sequences, expected[n % 3], "reader {n}");
    }
    for (n, mut stream) in stalled {
        assert_eq!(stream.sequences().await, expected[n % 3], "reader {n}");
    }
}

/// Returns more bytes than the system buffers between a writing server and a client that does not read.
pub fn more_than_sockets_hold() -> usize {
    let max = |file: &str| -> usize {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace().last().and_then(|max| max.parse().ok()).unwrap_or(4 * 1024 * 1024)
    };
    // The receive buffer grows only for clients that read.
    max("/proc/sys/net/ipv4/tcp_wmem") + 2 * 1024 * 1024
}

#[tokio::test]
async fn stalled_readers_delay_no_other_and_then_get_every_event_in_order() {
    const FACT: usize = 16 * 1024;
    let facts = more_than_sockets_hold() / FACT;
    for ring_bytes_max in [FeedConfig::default().ring_bytes_max, 64 * 1024] {
        let client = start_local_with(FeedConfig { ring_bytes_max, ..FeedConfig::default() }, Limits::default()).await;
        let mut stalled = Vec::new();
        for n in 0..6 {
            let query = if n < 4 { "audience=user" } else { "audience=user&type=text.delta,run.finished" };
            let mut stream = client.open_stream(TRANSPORTS[n % 2], "r", query, None).await;
            stream.wait_until_open().await;
            stalled.push(stream);
        }
        let mut eager = client.open_stream(Transport::Raw, "r", "", None).await;
        eager.wait_until_open().await;
        let eager = tokio::spawn(async move { eager.sequences().await });
        // The server answers the writer, and serves the eager reader to the end, while the other readers stall.
        for _ in 0..facts / 8 {
            client.append("r", &vec![text(&"x".repeat(FACT)); 8]).await;
        }
        let last = client.append("r", &[finished()]).await["lastSequence"].as_u64().expect("the receipt has a sequence");
        let all: Vec<u64> = (1..=last).collect();
        assert!(with_timeout("the eager reader", eager).await.expect("the task does not panic") == all);
        for (n, stream) in stalled.iter_mut().enumerate() {
            assert!(stream.sequences().await == all, "reader {n}, ring of {ring_bytes_max}");
        }
    }
}

#[tokio::test]
async fn readers_may_connect_and_disconnect_while_a_run_is_written() {
    let client = start_local().await;
    let facts = recording("multi_tool_sequential");
    let reading: Vec<_> = (0..24)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut frames: Vec<Frame> = Vec::new();
                // Each reader disconnects after its own number of frames.
                loop {
                    let resume = frames.last().and_then(|frame| frame.id.as_deref());
                    let mut stream = client.open_stream(TRANSPORTS[n % 2], "r", "audience=internal", resume).await;
                    for _ in 0..=n {
                        match stream.next().await {
                            Some(frame) => frames.push(frame),
                            None => return frames,
                        }
                    }
                    if frames.last().is_some_and(|frame| frame.kind() == "End") {
                        return frames;
                    }
                }
            })
        })
        .collect();
    for fact in &facts {
        client.post_lines("/v1/runs/r/facts?source=awaken", to_ndjson(std::slice::from_ref(fact))).await.ok();
    }
    for reader in reading {
        assert_complete(
            &client,
            "r",
            "audience=internal",
            &with_timeout("a reader", reader).await.expect("the task does not panic"),
        )
        .await;
    }
}

#[tokio::test]
async fn cursors_are_unique_and_increasing() {
    let client = start_local().await;
    post_in_small_bodies(&client, "r", &recording("multi_tool_sequential")).await;
    let frames = client.open_stream(Transport::Raw, "r", "audience=internal", None).await.read_all().await;
    let ids: HashSet<&str> = frames.iter().map(Frame::id).collect();
    assert_eq!(ids.len(), frames.len());
    let positions: Vec<u64> = frames.iter().filter_map(|frame| frame.id().split_once(':')?.1.parse().ok()).collect();
    assert!(positions.len() == frames.len() && positions.is_sorted());
}

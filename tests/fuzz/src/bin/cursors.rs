//! Fuzzes the parameters of reads: paths, queries, `Last-Event-ID`, `Range`.
//!
//! ```text
//! input := which id "\n" query "\n" last-event-id "\n" range
//! which := the number of a GET operation, counted from `a`; the id goes into its path, `r` if it is empty
//! ```
//! `EPOCH` is a placeholder for the epoch of run `r` in session `s`; `LIFE` for that of the store; `BLOB` for a body's
//! id.
//!
//! Properties: nothing panics. Every response matches the operation's description. A valid cursor survives parsing and
//! formatting. A reader of a run's events after a cursor receives the later events, each once and in order.

#![no_main]

use axum::body::Body;
use axum::response::Response;
use http::Method;
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use proscenium::model::Cursor;
use proscenium::serve::Limits;
use proscenium::encode::dialect_cursor::DialectCursor;
use proscenium::serve::contract::operations::OPERATIONS;
use proscenium_fuzz::{TestServer, block_on, read_repository_file, split};
use serde_json::Value;
use std::sync::LazyLock;
use std::time::Duration;

/// The bytes to read from a stream, and the silence after which the target stops reading.
const STREAM_BYTES_MAX: usize = 64 * 1024;
const QUIET: Duration = Duration::from_millis(2);

/// A server with data to read.
struct Fixture {
    server: TestServer,
    /// The epochs of the run and of the store.
    epoch: String,
    store_epoch: String,
    /// The run's last sequence, and the id of its offloaded body.
    last: u64,
    blob: String,
}

impl Fixture {
    async fn open() -> Self {
        let server = TestServer::start(Limits::default(), None).await;
        let headers = [("content-type", &b"application/x-ndjson"[..])];
        let text = read_repository_file("tests/recordings/awaken/multi_tool_sequential.ndjson");
        let target = b"/v1/runs/r/facts?source=awaken&sessionId=s";
        let receipt = server.request(Method::POST, target, &headers, Body::from(text)).await.expect("an address").ok();
        let long = serde_json::json!([
            { "type": "tool.started", "toolCallId": "c", "audience": "user", "payload": { "toolName": "t", "input": "x".repeat(4096) } },
            { "type": "action.required", "actionId": "a", "payload": { "kind": "tool_approval" } },
        ]);
        for target in ["/v1/runs/q/facts?sessionId=s&parentSessionId=p", "/v1/sessions/s/facts"] {
            server.post(target, long.to_string()).await.ok();
        }
        let events = server.events("q", "user").await;
        let href = events.iter().find_map(|event| event["refs"][0]["href"].as_str()).expect("the server offloaded the input");
        let blob = href.trim_start_matches("/v1/blobs/").to_owned();
        let epoch = receipt["epoch"].as_str().expect("text").to_owned();
        // The store's epoch is that of its first append.
        let store_epoch = epoch.clone();
        Self { server, epoch, store_epoch, last: receipt["lastSequence"].as_u64().expect("a number"), blob }
    }
}

/// All inputs share the fixture, because reads do not change it.
static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| block_on(Fixture::open()));

fuzz_target!(|input: &[u8]| {
    let fixture = &*FIXTURE;
    block_on(read(fixture, input));
});

async fn read(fixture: &Fixture, input: &[u8]) {
    let with_names = |text: &[u8]| -> Vec<u8> {
        let text = replace(text, b"EPOCH", fixture.epoch.as_bytes());
        replace(&replace(&text, b"LIFE", fixture.store_epoch.as_bytes()), b"BLOB", fixture.blob.as_bytes())
    };
    let Some((which, rest)) = input.split_first() else { return };
    let ((id, rest), reads) = (split(rest, b'\n'), || OPERATIONS.iter().filter(|operation| operation.method == Method::GET));
    let ((query, rest), id) = (split(rest, b'\n'), with_names(id));
    let (last_event_id, range) = split(rest, b'\n');
    let (query, last_event_id) = (with_names(query), with_names(last_event_id));

    let which = usize::from(which.wrapping_sub(b'a'));
    let operation = reads().nth(which % reads().count()).expect("the index is in range");
    let mut target = Vec::new();
    for segment in operation.path.split('/').skip(1) {
        target.push(b'/');
        match segment {
            "{run}" if id.is_empty() => target.push(b'r'),
            "{session}" if id.is_empty() => target.push(b's'),
            "{blob}" if id.is_empty() => target.extend(fixture.blob.as_bytes()),
            parameter if parameter.starts_with('{') => target.extend(&id),
            literal => target.extend(literal.as_bytes()),
        }
    }
    target.push(b'?');
    target.extend(&query);
    let mut headers = Vec::new();
    headers.extend((!last_event_id.is_empty()).then_some(("last-event-id", &last_event_id[..])));
    headers.extend((!range.is_empty()).then_some(("range", range)));

    for text in [&last_event_id[..], &query] {
        assert_round_trip(text);
    }
    let Some(response) = fixture.server.open(Method::GET, &target, &headers, Body::empty()).await else { return };
    let is_stream = response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
    let (status, kind) = (response.status(), response.headers().get("content-type").cloned());
    let body = read_available(response).await;
    if is_stream {
        let of_run = operation.path == "/v1/runs/{run}/stream" && id.is_empty() && query == b"frames=events&audience=internal";
        assert_frames_in_order(&body, of_run.then(|| after(&last_event_id, fixture)).flatten());
    } else if kind.is_some_and(|kind| kind == "application/json") && status.is_success() {
        serde_json::from_slice::<Value>(&body).expect("JSON");
    }
}

fn replace(text: &[u8], name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(name.len()).position(|window| window == name) {
        out.extend(&rest[..at]);
        out.extend(value);
        rest = &rest[at + name.len()..];
    }
    out.extend(rest);
    out
}

fn assert_round_trip(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string().parse(), Ok(cursor), "{text}");
    }
    if let Ok(cursor) = text.parse::<DialectCursor>() {
        assert_eq!(cursor.to_string().parse(), Ok(cursor), "{text}");
    }
}

/// Reads the available part of a response.
async fn read_available(response: Response) -> Vec<u8> {
    let mut body = response.into_body();
    let mut read = Vec::new();
    while read.len() < STREAM_BYTES_MAX
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(QUIET, body.frame()).await
    {
        read.extend(frame.data_ref().into_iter().flatten());
    }
    read
}

/// Returns the sequence of a cursor of run `r`; `None` for any other text and for the end of the run.
fn after(cursor: &[u8], fixture: &Fixture) -> Option<u64> {
    let cursor: Cursor = std::str::from_utf8(cursor).ok()?.parse().ok()?;
    (cursor.epoch.to_string() == fixture.epoch && cursor.after.0 < fixture.last).then_some(cursor.after.0)
}

fn assert_frames_in_order(body: &[u8], after: Option<u64>) {
    let text = std::str::from_utf8(body).expect("UTF-8");
    let mut next = after.map(|after| after + 1);
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_prefix("data: ")?.strip_suffix('\n'));
    for data in lines.filter(|data| *data != "[DONE]") {
        let frame: Value = serde_json::from_str(data).expect("JSON");
        // Streams for published clients have events with a type instead of frames.
        assert!(frame["frame"].is_string() || frame["type"].is_string(), "{frame}");
        if let (Some(next), Some("Event")) = (&mut next, frame["frame"].as_str()) {
            assert_eq!(frame["sequence"], *next, "each event once, in order");
            *next += 1;
        }
    }
}

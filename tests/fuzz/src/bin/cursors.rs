//! Cursors: whatever is said of where to read and what: paths, queries, `Last-Event-ID`, `Range`.
//!
//! ```text
//! input := which id "\n" query "\n" last-event-id "\n" range
//! which := an address that is read, counted from `a`; id stands in its path, `r` where it is empty
//! ```
//! `EPOCH` stands for the epoch of the run `r`, which is of the session `s`; `LIFE` for that of the store. Nothing panics, nothing
//! is answered that its row does not describe, and a cursor that can be read is written as it was understood. Whoever reads a
//! run's events after a cursor of it gets those after it, each once, in order.

#![no_main]

use axum::body::Body;
use axum::response::Response;
use http::Method;
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use proscenium::model::Cursor;
use proscenium::serve::Limits;
use proscenium::serve::clients::place::DialectCursor;
use proscenium::serve::routes::OPERATIONS;
use proscenium_fuzz::{Served, repository, split, wait};
use serde_json::Value;
use std::sync::LazyLock;
use std::time::Duration;

/// What is read of a stream, in bytes, and how long it may say nothing until it counts as quiet.
const STREAM_BYTES_MAX: usize = 64 * 1024;
const QUIET: Duration = Duration::from_millis(2);

/// Something to be read.
struct Library {
    served: Served,
    /// Of the run, and of the store.
    epoch: String,
    life: String,
    /// The run's last sequence, and the body that was moved out of it.
    last: u64,
    blob: String,
}

impl Library {
    async fn open() -> Self {
        let served = Served::start(Limits::default(), None).await;
        let headers = [("content-type", &b"application/x-ndjson"[..])];
        let text = repository("tests/recordings/awaken/multi_tool_sequential.ndjson");
        let target = b"/v1/runs/r/facts?source=awaken&sessionId=s";
        let receipt = served.ask(Method::POST, target, &headers, Body::from(text)).await.expect("an address").ok();
        let long = serde_json::json!([
            { "type": "tool.started", "toolCallId": "c", "audience": "user", "payload": { "toolName": "t", "input": "x".repeat(4096) } },
            { "type": "action.required", "actionId": "a", "payload": { "kind": "tool_approval" } },
        ]);
        for target in ["/v1/runs/q/facts?sessionId=s&parentSessionId=p", "/v1/sessions/s/facts"] {
            served.post(target, long.to_string()).await.ok();
        }
        let events = served.events("q", "user").await;
        let href = events.iter().find_map(|event| event["refs"][0]["href"].as_str()).expect("it was moved out");
        let blob = href.trim_start_matches("/v1/blobs/").to_owned();
        let said = |member: &str| receipt[member].as_str().expect("text").to_owned();
        // The store's life is the epoch of its first append.
        let (epoch, life) = (said("epoch"), said("epoch"));
        Self { served, epoch, life, last: receipt["lastSequence"].as_u64().expect("a number"), blob }
    }
}

/// Reading changes nothing: all inputs share it.
static LIBRARY: LazyLock<Library> = LazyLock::new(|| wait(Library::open()));

fuzz_target!(|input: &[u8]| {
    let library = &*LIBRARY;
    wait(read(library, input));
});

async fn read(library: &Library, input: &[u8]) {
    let named = |text: &[u8]| -> Vec<u8> {
        let text = replaced(text, b"EPOCH", library.epoch.as_bytes());
        replaced(&replaced(&text, b"LIFE", library.life.as_bytes()), b"BLOB", library.blob.as_bytes())
    };
    let Some((which, rest)) = input.split_first() else { return };
    let ((id, rest), reads) = (split(rest, b'\n'), || OPERATIONS.iter().filter(|operation| operation.method == Method::GET));
    let ((query, rest), id) = (split(rest, b'\n'), named(id));
    let (last_event_id, range) = split(rest, b'\n');
    let (query, last_event_id) = (named(query), named(last_event_id));

    let which = usize::from(which.wrapping_sub(b'a'));
    let operation = reads().nth(which % reads().count()).expect("one of them");
    let mut target = Vec::new();
    for segment in operation.path.split('/').skip(1) {
        target.push(b'/');
        match segment {
            "{run}" if id.is_empty() => target.push(b'r'),
            "{session}" if id.is_empty() => target.push(b's'),
            "{blob}" if id.is_empty() => target.extend(library.blob.as_bytes()),
            named if named.starts_with('{') => target.extend(&id),
            plain => target.extend(plain.as_bytes()),
        }
    }
    target.push(b'?');
    target.extend(&query);
    let mut headers = Vec::new();
    headers.extend((!last_event_id.is_empty()).then_some(("last-event-id", &last_event_id[..])));
    headers.extend((!range.is_empty()).then_some(("range", range)));

    for text in [&last_event_id[..], &query] {
        written_as_it_was_understood(text);
    }
    let Some(response) = library.served.open(Method::GET, &target, &headers, Body::empty()).await else { return };
    let is_stream = response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
    let (status, kind) = (response.status(), response.headers().get("content-type").cloned());
    let body = beginning(response).await;
    if is_stream {
        let of_run = operation.path == "/v1/runs/{run}/stream" && id.is_empty() && query == b"frames=events&audience=internal";
        frames_are_in_order(&body, of_run.then(|| after(&last_event_id, library)).flatten());
    } else if kind.is_some_and(|kind| kind == "application/json") && status.is_success() {
        serde_json::from_slice::<Value>(&body).expect("JSON");
    }
}

fn replaced(text: &[u8], name: &[u8], by: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(name.len()).position(|window| window == name) {
        out.extend(&rest[..at]);
        out.extend(by);
        rest = &rest[at + name.len()..];
    }
    out.extend(rest);
    out
}

fn written_as_it_was_understood(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string().parse(), Ok(cursor), "{text}");
    }
    if let Ok(place) = text.parse::<DialectCursor>() {
        assert_eq!(place.to_string().parse(), Ok(place), "{text}");
    }
}

/// What comes without waiting.
async fn beginning(response: Response) -> Vec<u8> {
    let mut body = response.into_body();
    let mut read = Vec::new();
    while read.len() < STREAM_BYTES_MAX
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(QUIET, body.frame()).await
    {
        read.extend(frame.data_ref().into_iter().flatten());
    }
    read
}

/// How many events lie after a cursor of the run `r`, if it is one.
fn after(cursor: &[u8], library: &Library) -> Option<u64> {
    let cursor: Cursor = std::str::from_utf8(cursor).ok()?.parse().ok()?;
    (cursor.epoch.to_string() == library.epoch && cursor.after.0 < library.last).then_some(cursor.after.0)
}

fn frames_are_in_order(body: &[u8], after: Option<u64>) {
    let text = std::str::from_utf8(body).expect("UTF-8");
    let mut next = after.map(|after| after + 1);
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_prefix("data: ")?.strip_suffix('\n'));
    for data in lines.filter(|data| *data != "[DONE]") {
        let frame: Value = serde_json::from_str(data).expect("JSON");
        // In the words of a client that exists there are events, each with its type.
        assert!(frame["frame"].is_string() || frame["type"].is_string(), "{frame}");
        if let (Some(next), Some("Event")) = (&mut next, frame["frame"].as_str()) {
            assert_eq!(frame["sequence"], *next, "each event once, in order");
            *next += 1;
        }
    }
}

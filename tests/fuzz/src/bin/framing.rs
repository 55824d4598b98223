//! Fuzzes framing: the chunks of a streamed body have no effect, and each line counts once.
//!
//! ```text
//! input := how count (cut cut){count} text
//! how   := the source, as in `facts`; count := the number of cuts, up to 15; cut cut := the position, modulo the text's length
//! ```
//! Properties: a server that receives the text whole and one that receives it in chunks have the same response and the
//! same events. The number of accepted facts is that of the lines that are not blank, up to a rejected line.

#![no_main]

use axum::body::Body;
use bytes::Bytes;
use http::Method;
use libfuzzer_sys::fuzz_target;
use proscenium::serve::Limits;
use proscenium::source::SOURCES;
use proscenium_fuzz::{TestServer, block_on};
use serde_json::Value;
use std::convert::Infallible;

/// The limits, small enough for inputs with too long lines.
const LIMITS: fn() -> Limits = || Limits { fact_bytes_max: 512, depth_max: 8, ..Limits::default() };

fuzz_target!(|input: &[u8]| {
    let [how, count, rest @ ..] = input else { return };
    let source = &SOURCES[usize::from(how.wrapping_sub(b'a') & 15) % SOURCES.len()];
    let count = usize::from(count & 15).min(rest.len() / 2);
    let (positions, text) = rest.split_at(count * 2);
    let mut cuts: Vec<usize> = positions
        .chunks(2)
        .map(|pair| usize::from(u16::from_be_bytes([pair[0], pair[1]])) % (text.len() + 1))
        .chain([0, text.len()])
        .collect();
    cuts.sort_unstable();
    let pieces: Vec<Bytes> = cuts.windows(2).map(|pair| Bytes::copy_from_slice(&text[pair[0]..pair[1]])).collect();

    let whole = block_on(send(source.name, vec![Bytes::copy_from_slice(text)]));
    let in_chunks = block_on(send(source.name, pieces));
    assert_counts_each_line_once(&whole.0, text);
    assert_eq!(in_chunks, whole);
});

/// Returns the response of an empty server and its events.
///
/// It removes the members that differ between servers.
async fn send(source: &str, pieces: Vec<Bytes>) -> (Value, Vec<Value>) {
    let server = TestServer::start(LIMITS(), None).await;
    let target = format!("/v1/runs/r/facts?source={source}");
    let body = Body::from_stream(futures_util::stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
    let headers = [("content-type", &b"application/x-ndjson"[..])];
    let answer = server.request(Method::POST, target.as_bytes(), &headers, body).await.expect("an address");
    let mut response = answer.json();
    response["status"] = answer.status.into();
    let mut events = match server.get("/v1/runs/r").await.status {
        404 => Vec::new(),
        _ => server.events("r", "internal").await,
    };
    server.stop().await;
    // The response about a too long line contains the number of received bytes, which depends on the chunks.
    let too_long = response["code"] == "fact_too_large";
    for value in events.iter_mut().chain([&mut response]) {
        let members = value.as_object_mut().expect("an object");
        members.retain(|name, _| !["epoch", "requestId", "eventId", "receivedAt"].contains(&name.as_str()));
        if too_long {
            members.shift_remove("detail");
        }
        remove_blob_ids(value);
    }
    (response, events)
}

/// Removes the ids of offloaded bodies from their references; each server assigns its own ids.
fn remove_blob_ids(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("/v1/blobs/") => "/v1/blobs/".clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(remove_blob_ids),
        Value::Object(members) => members.values_mut().for_each(remove_blob_ids),
        _ => {}
    }
}

fn assert_counts_each_line_once(response: &Value, text: &[u8]) {
    let is_blank = |line: &[u8]| line.iter().all(u8::is_ascii_whitespace);
    let before = response["line"].as_u64().map_or(usize::MAX, |line| usize::try_from(line).expect("a number") - 1);
    let lines = text.split(|byte| *byte == b'\n').take(before).filter(|line| !is_blank(line)).count();
    assert_eq!(response["accepted"], lines, "{response}");
}

//! Framing: how a streamed body is cut on its way makes no difference, and each line counts once.
//!
//! ```text
//! input := how count (cut cut){count} text
//! how   := the source, as in `facts`; count := how many cuts, up to 15; cut cut := where, modulo the text's length
//! ```
//! The same text is sent to two servers, whole and cut up: same answer, same events. What is said to be accepted are the lines
//! that are not blank; or, where one is refused, those before it.

#![no_main]

use axum::body::Body;
use bytes::Bytes;
use http::Method;
use libfuzzer_sys::fuzz_target;
use proscenium::serve::Limits;
use proscenium::source::SOURCES;
use proscenium_fuzz::{Served, wait};
use serde_json::Value;
use std::convert::Infallible;

/// Small enough for a line to be too long.
const LIMITS: fn() -> Limits = || Limits { fact_bytes_max: 512, depth_max: 8, ..Limits::default() };

fuzz_target!(|input: &[u8]| {
    let [how, count, rest @ ..] = input else { return };
    let source = &SOURCES[usize::from(how.wrapping_sub(b'a') & 7) % SOURCES.len()];
    let count = usize::from(count & 15).min(rest.len() / 2);
    let (places, text) = rest.split_at(count * 2);
    let mut cuts: Vec<usize> = places
        .chunks(2)
        .map(|place| usize::from(u16::from_be_bytes([place[0], place[1]])) % (text.len() + 1))
        .chain([0, text.len()])
        .collect();
    cuts.sort_unstable();
    let pieces: Vec<Bytes> = cuts.windows(2).map(|pair| Bytes::copy_from_slice(&text[pair[0]..pair[1]])).collect();

    let whole = wait(sent(source.name, vec![Bytes::copy_from_slice(text)]));
    let cut_up = wait(sent(source.name, pieces));
    counts_each_line_once(&whole.0, text);
    assert_eq!(cut_up, whole);
});

/// What a server without a past answers, and what it has then; without what is its own.
async fn sent(source: &str, pieces: Vec<Bytes>) -> (Value, Vec<Value>) {
    let served = Served::start(LIMITS(), None).await;
    let target = format!("/v1/runs/r/facts?source={source}");
    let body = Body::from_stream(futures_util::stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
    let headers = [("content-type", &b"application/x-ndjson"[..])];
    let answer = served.ask(Method::POST, target.as_bytes(), &headers, body).await.expect("an address");
    let mut told = answer.json();
    told["status"] = answer.status.into();
    let mut events = match served.get("/v1/runs/r").await.status {
        404 => Vec::new(),
        _ => served.events("r", "internal").await,
    };
    served.stop().await;
    // Of a line that is too long the answer says how much of it has come.
    let too_long = told["code"] == "fact_too_large";
    for told in events.iter_mut().chain([&mut told]) {
        let members = told.as_object_mut().expect("an object");
        members.retain(|name, _| !["epoch", "requestId", "eventId", "receivedAt"].contains(&name.as_str()));
        if too_long {
            members.shift_remove("detail");
        }
        nameless(told);
    }
    (told, events)
}

/// Takes the names of bodies that were moved out from where they are referred to: each has one of its own.
fn nameless(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("/v1/blobs/") => "/v1/blobs/".clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(nameless),
        Value::Object(members) => members.values_mut().for_each(nameless),
        _ => {}
    }
}

fn counts_each_line_once(told: &Value, text: &[u8]) {
    let is_blank = |line: &[u8]| line.iter().all(u8::is_ascii_whitespace);
    let before = told["line"].as_u64().map_or(usize::MAX, |line| usize::try_from(line).expect("a number") - 1);
    let lines = text.split(|byte| *byte == b'\n').take(before).filter(|line| !is_blank(line)).count();
    assert_eq!(told["accepted"], lines, "{told}");
}

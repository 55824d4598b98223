//! Contents that are too large to copy or to send with each change.

use super::*;

fn canvas(payload: Value) -> (&'static str, Value) {
    let mut fact = json!({ "messageId": "x", "payload": payload });
    fact["payload"]["activityType"] = "canvas".into();
    ("tool.progress", fact)
}

#[test]
fn small_changes_of_a_large_content_are_deferred_and_sent_before_the_end() {
    let mut facts = vec![("run.started", json!({})), canvas(json!({ "content": { "body": "x".repeat(50_000), "n": 0 } }))];
    facts.extend((1..=100).map(|n| canvas(json!({ "patch": [{ "op": "replace", "path": "/n", "value": n }] }))));
    facts.push(ends());
    let log = Log::of(&facts);
    let chunks = Stream::joined(&log, 5, Until::End, 0).rest();
    let said: Vec<_> =
        chunks.iter().filter(|chunk| chunk["type"] == "data-canvas").map(|chunk| chunk["data"]["n"].clone()).collect();
    assert!((3..20).contains(&said.len()), "{said:?}");
    assert_eq!((&said[0], said.last().unwrap()), (&json!(0), &json!(100)));
}

#[test]
fn a_content_beyond_the_copy_limit_is_sent_in_its_final_state() {
    let log = Log::of(&[
        ("run.started", json!({})),
        canvas(json!({ "content": { "body": "x".repeat(COPY_BYTES_MAX) } })),
        of_call("tool.started", json!({ "toolName": "big", "input": { "body": "y".repeat(COPY_BYTES_MAX) } })),
        canvas(json!({ "patch": [{ "op": "add", "path": "/n", "value": 1 }] })),
        of_call("tool.result", json!({ "output": "done" })),
        text("m", "p", "Next."),
        canvas(json!({ "patch": [{ "op": "add", "path": "/n", "value": 2 }] })),
        ends(),
    ]);
    let mut stream = Stream::joined(&log, 5, Until::End, 0);
    stream.follow(6);
    let reader = Reader::read(5, &stream.chunks);
    assert_eq!(reader.message["parts"][2]["state"], "output-available", "the end of a call is never deferred");
    let chunks = stream.rest();
    let live = Reader::read(5, &chunks);
    assert_eq!(live.message["parts"], parts(&loaded(&log, 5), 5));
    let count = |kind: &str| chunks.iter().filter(|chunk| chunk["type"] == kind).count();
    assert_eq!(
        (count("text-start"), count("data-canvas")),
        (1, 3),
        "the content is sent three times: at first, with the end of the call, and at the end"
    );
}

#[test]
fn contents_beyond_the_budget_are_sent_at_the_end() {
    let id = |n: usize| format!("x{n}");
    let mut facts = vec![("run.started", json!({}))];
    let of = |n: usize, payload: Value| {
        let (class, mut fact) = canvas(payload);
        fact["messageId"] = id(n).into();
        (class, fact)
    };
    facts.extend((0..30).map(|n| of(n, json!({ "content": { "body": "x".repeat(COPIES_BYTES_MAX / 20) } }))));
    facts.extend((0..30).map(|n| of(n, json!({ "patch": [{ "op": "add", "path": "/n", "value": n }] }))));
    facts.push(ends());
    let log = Log::of(&facts);
    let live = Reader::read(7, &Stream::joined(&log, 7, Until::End, 0).rest());
    assert_eq!(live.message["parts"], loaded(&log, 7)["parts"]);
}

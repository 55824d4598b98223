//! Readers of random runs: wherever they begin, they end with the same message.

use super::*;
use proscenium_model::ActionOutcome;

fn chunk() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "bc", "é", "", "line\n", "{\"x\":", "1}", "🙂"]).prop_map(str::to_owned)
}

fn one_of(ids: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(ids)
}

fn said() -> BoxedStrategy<Fact> {
    let ids = (one_of(&["m1", "m2"]), one_of(&["p1", "p2"]), chunk(), one_of(&["own", "mate"]), one_of(&["assistant", "user"]));
    let ids = ids.prop_map(|(message, part, text, agent, role)| {
        let message = if role == "user" { "u" } else { message };
        json!({ "messageId": message, "partId": part, "agentId": agent, "payload": { "text": text, "role": role } })
    });
    (one_of(&["text.delta", "text.delta", "text.delta", "reasoning.delta", "plan.delta"]), ids).boxed()
}

fn ended() -> BoxedStrategy<Fact> {
    let class = one_of(&["text.final", "reasoning.summary", "plan.final"]);
    (class, one_of(&["m1", "m2"]), prop::option::of(one_of(&["p1", "p2"])), one_of(&["own", "mate"]))
        .prop_map(|(class, message, part, agent)| {
            let mut fact = json!({ "messageId": message, "agentId": agent, "payload": {} });
            if let Some(part) = part {
                fact["partId"] = part.into();
            }
            (class, fact)
        })
        .boxed()
}

fn called() -> BoxedStrategy<Fact> {
    let payload = prop_oneof![
        Just(("tool.started", json!({ "toolName": "search" }))),
        Just(("tool.started", json!({ "toolName": "search", "input": { "q": 1 } }))),
        chunk().prop_map(|text| ("tool.args", json!({ "inputText": text }))),
        Just(("tool.args", json!({ "input": { "q": [1, null] } }))),
        Just(("tool.args", json!({ "state": "input-available" }))),
        (0..10u32).prop_map(|n| ("tool.progress", json!({ "progress": f64::from(n) / 10.0, "message": format!("batch {n}") }))),
        Just(("tool.progress", json!({ "awaits": "client" }))),
        chunk().prop_map(|text| ("tool.output.delta", json!({ "text": text }))),
        Just(("tool.result", json!({ "output": { "hits": 3 }, "structured": [1], "durationMs": 7 }))),
        Just(("tool.result", json!({}))),
        Just(("tool.result", json!({ "withheld": true }))),
        Just(("tool.failed", json!({ "error": { "message": "no" } }))),
    ];
    (one_of(&["c1", "c2"]), payload)
        .prop_map(|(call, (class, payload))| (class, json!({ "toolCallId": call, "payload": payload })))
        .boxed()
}

/// Actions with their kinds and their calls. The call `c3` never has an event of its own.
const ACTIONS: &[(&str, &str, Option<&str>)] = &[
    ("a1", "tool_approval", Some("c1")),
    ("a2", "tool_approval", Some("c1")),
    ("a3", "structured_input", Some("c2")),
    ("a4", "tool_approval", Some("c3")),
    ("a5", "plan_decision", None),
];

fn asked() -> BoxedStrategy<Fact> {
    let required =
        (prop::sample::select(ACTIONS), prop::option::of(Just("Really?"))).prop_map(|((action, kind, call), message)| {
            let mut fact = json!({ "actionId": action, "payload": { "kind": kind, "toolName": "rm", "input": { "path": "/" } } });
            fact["payload"]["message"] = json!(message);
            if let Some(call) = call {
                fact["toolCallId"] = (*call).into();
            }
            ("action.required", fact)
        });
    let outcome = prop::option::of(one_of(ActionOutcome::NAMES));
    let resolved = (prop::sample::select(ACTIONS), outcome);
    let resolved = resolved.prop_map(|((action, ..), outcome)| {
        ("action.resolved", json!({ "actionId": action, "payload": { "outcome": outcome } }))
    });
    prop_oneof![required, resolved].boxed()
}

fn other() -> BoxedStrategy<Fact> {
    let custom = |content: Value| json!({ "messageId": "x", "payload": { "activityType": "canvas", "content": content } });
    let patch = |patch: Value| json!({ "messageId": "x", "payload": { "activityType": "canvas", "patch": patch } });
    prop_oneof![
        Just(("tool.progress", custom(json!({ "cells": [1, 2], "text": ["a"] })))),
        Just(("tool.progress", custom(json!({})))),
        Just(("tool.progress", patch(json!([{ "op": "add", "path": "/cells/-", "value": 3 }])))),
        Just(("tool.progress", patch(json!([{ "op": "add", "path": "/text/-", "value": "b" }])))),
        Just(("tool.progress", patch(json!([{ "op": "copy", "from": "/cells", "path": "/more" }])))),
        Just(("tool.progress", json!({ "payload": { "message": "of no call" } }))),
        Just(("state.snapshot", json!({ "payload": { "state": { "n": 1 } } }))),
        Just(("state.delta", json!({ "payload": { "patch": [{ "op": "add", "path": "/k", "value": [] }] } }))),
        Just(("task.changed", json!({ "taskId": "t", "payload": { "status": "running", "title": "x" } }))),
        Just(("task.changed", json!({ "taskId": "t", "payload": { "status": "done" } }))),
        Just(("metric.changed", json!({ "payload": { "usage": { "inputTokens": 3 } } }))),
        Just(("run.status", json!({ "phase": "waiting", "payload": { "message": "wait" } }))),
        Just(("run.status", json!({ "phase": "acting", "payload": {} }))),
    ]
    .boxed()
}

/// A well-behaved runtime: it never continues an ended text, and a final text equals the streamed one.
fn run() -> impl Strategy<Value = Vec<Fact>> {
    let fact = prop_oneof![4 => said(), 1 => ended(), 4 => called(), 2 => asked(), 2 => other()];
    let end = prop_oneof![
        Just(("run.finished", json!({}))),
        Just(("run.failed", json!({ "payload": { "error": { "message": "broke" } } }))),
        Just(("run.finished", json!({ "phase": "cancelled" }))),
        Just(("run.failed", json!({ "phase": "interrupted" }))),
    ];
    (prop::collection::vec(fact, 0..40), end).prop_map(|(facts, end)| {
        let mut log = vec![("run.started", json!({ "agentId": "own" }))];
        let (mut sealed, mut asked) = (HashSet::new(), HashSet::new());
        for (class, fact) in facts {
            let of = class.split('.').next().unwrap_or_default();
            let key = |part: &Value| format!("{of} {} {} {part}", fact["agentId"], fact["messageId"]);
            let is_thing = matches!(of, "text" | "reasoning" | "plan");
            if is_thing && (sealed.contains(&key(&fact["partId"])) || sealed.contains(&key(&Value::Null))) {
                continue;
            }
            if is_thing && !class.ends_with("delta") {
                sealed.insert(key(&fact["partId"]));
            }
            // An action is only resolved after it was required.
            if class == "action.required" {
                asked.insert(fact["actionId"].clone());
            }
            if class == "action.resolved" && !asked.contains(&fact["actionId"]) {
                continue;
            }
            log.push((class, fact));
        }
        log.push(end);
        log
    })
}

/// A runtime that also corrects its texts and continues ended ones.
fn unruly() -> impl Strategy<Value = Vec<Fact>> {
    let repaired = (one_of(&["m1", "m2"]), prop::option::of(chunk())).prop_map(|(message, text)| {
        let parts = text.map(|text| json!({ "partId": "p1", "kind": "assistant_text", "text": text }));
        let messages = json!([{ "messageId": message, "role": "assistant", "parts": parts.into_iter().collect::<Vec<_>>() }]);
        ("messages.snapshot", json!({ "payload": { "mode": "repair", "messages": messages } }))
    });
    let rephrased = (one_of(&["text.final", "reasoning.summary"]), one_of(&["m1", "m2"]), prop::option::of(Just("p1")), chunk());
    let rephrased = rephrased.prop_map(|(class, message, part, text)| {
        let mut fact = json!({ "messageId": message, "payload": { "text": text } });
        if let Some(part) = part {
            fact["partId"] = part.into();
        }
        (class, fact)
    });
    let fact = prop_oneof![4 => said(), 2 => ended(), 2 => called(), 1 => other(), 2 => repaired, 2 => rephrased];
    prop::collection::vec(fact, 0..40).prop_map(|mut facts| {
        facts.insert(0, ("run.started", json!({ "agentId": "own" })));
        facts.push(("run.finished", json!({})));
        facts
    })
}

fn read(version: u8, chunks: &[Value]) -> Reader {
    let reader = Reader::read(version, chunks);
    assert!(reader.ended.is_some(), "a stream ends with a last chunk: {chunks:#?}");
    reader
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_reader_ends_with_the_loaded_message(facts in run(), at in any::<prop::sample::Index>(), by in any::<prop::sample::Index>()) {
        let log = Log::of(&facts);
        let (from, last) = (at.index(log.views.len()), log.last());
        let to = from + by.index(last - from + 1);
        for version in VERSIONS {
            let loaded = loaded(&log, version);
            let expected = parts(&loaded, version);
            let open = || Stream::joined(&log, version, Until::End, 0);
            let live = read(version, &open().rest());
            prop_assert_eq!(&live.message["parts"], &expected, "live");
            if loaded.get("metadata").is_some() {
                prop_assert_eq!(&live.message["metadata"], &loaded["metadata"]);
            }
            prop_assert_eq!(live.corrections, 0);

            let late = read(version, &Stream::joined(&log, version, Until::End, from).rest());
            prop_assert_eq!(&late.message["parts"], &expected, "joined at {}", from);

            let mut slow = open();
            slow.follow(from).jump(to);
            prop_assert_eq!(&read(version, &slow.rest()).message["parts"], &expected, "slow from {} to {}", from, to);

            let mut first = open();
            first.follow(from);
            let mut reader = Reader::read(version, &first.chunks);
            for chunk in Stream::resumed(&log, version, Until::End, from, to).rest() {
                reader.apply(&chunk);
            }
            prop_assert_eq!(&reader.message["parts"], &expected, "resumed at {}, by {}", from, to);
        }
    }

    #[test]
    fn a_client_with_reset_step_ends_with_the_corrected_message(facts in unruly(), at in any::<prop::sample::Index>()) {
        let log = Log::of(&facts);
        let from = at.index(log.views.len());
        let expected = loaded(&log, 7)["parts"].clone();
        prop_assert_eq!(&read(7, &Stream::joined(&log, 7, Until::End, 0).rest()).message["parts"], &expected, "live");
        prop_assert_eq!(&read(7, &Stream::joined(&log, 7, Until::End, from).rest()).message["parts"], &expected, "joined at {}", from);
        let mut slow = Stream::joined(&log, 7, Until::End, 0);
        slow.follow(from).jump(log.last());
        prop_assert_eq!(&read(7, &slow.rest()).message["parts"], &expected, "slow from {}", from);
    }

    #[test]
    fn a_counted_stream_has_the_same_chunks_wherever_its_reader_catches_up(facts in prop_oneof![run(), unruly()]) {
        let log = Log::of(&facts);
        for version in VERSIONS {
            // A reader that comes after the end gets every chunk.
            let whole = Stream::counted(&log, version, log.last()).rest();
            read(version, &whole);
            for caught_up in 0..log.last() {
                let mut stream = Stream::counted(&log, version, caught_up);
                stream.follow(log.last());
                let chunks = stream.rest();
                // A response ends where the run rests; only its last chunk is of that moment.
                let shared = chunks.len() - 1;
                prop_assert_eq!(&chunks[..shared], &whole[..shared], "caught up at {}, version {}", caught_up, version);
            }
            if version == 7 {
                prop_assert_eq!(&read(7, &whole).message["parts"], &loaded(&log, 7)["parts"]);
            }
        }
    }

    #[test]
    fn a_client_without_reset_step_ends_with_the_correct_text_last(facts in unruly()) {
        let log = Log::of(&facts);
        for version in [5, 6] {
            let live = read(version, &Stream::joined(&log, version, Until::End, 0).rest());
            let late = read(version, &Stream::joined(&log, version, Until::End, log.last()).rest());
            prop_assert_eq!(late.corrections, 0);
            let superseded: HashSet<u64> = data(&live.message, "data-correction").iter().flat_map(superseded_by).collect();
            // Without the superseded parts, every loaded text is there, possibly split into further parts.
            let parts = live.message["parts"].as_array().unwrap();
            let texts: String = (0..).zip(parts).filter(|(at, _)| !superseded.contains(at)).map(|(_, part)| text_of(part)).collect();
            let expected: String = late.message["parts"].as_array().unwrap().iter().map(text_of).collect();
            prop_assert_eq!(sorted(&texts), sorted(&expected));
        }
    }

    #[test]
    fn one_response_per_pause_builds_one_message(facts in run()) {
        let log = Log::of(&facts);
        for version in VERSIONS {
            let mut reader = Reader::new(version);
            let mut known = 0;
            let mut stream = Stream::joined(&log, version, Until::Pause, 0);
            loop {
                stream.follow(log.last());
                if !stream.is_over {
                    stream.handle(&log.end().unwrap());
                }
                stream.chunks.drain(..).for_each(|chunk| reader.apply(&chunk));
                if !stream.is_over {
                    continue;
                }
                let is_done = stream.at == log.last() && reader.ended.as_ref().unwrap()["finishReason"] != "tool-calls";
                if is_done || stream.at == known && stream.at == log.last() {
                    break;
                }
                known = stream.at;
                // The event right after the pause may precede the client's next request.
                let at = (known + 1).min(log.last());
                reader.start_response();
                stream = Stream::resumed(&log, version, Until::Pause, known, at);
            }
            if version == 7 {
                prop_assert_eq!(&reader.message["parts"], &loaded(&log, 7)["parts"]);
            }
        }
    }
}

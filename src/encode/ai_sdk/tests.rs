//! The AI SDK stream against a model client: its chunks, and its message from any starting point.

#[path = "../../../tests/it/ai_sdk_client.rs"]
mod client;

use super::*;
use crate::encode::frames;
use crate::encode::native::{Encoder, push_frame_end};
use crate::log::LogId;
use crate::model::{Audience, Epoch, EventType, RunId, Sequence};
use crate::projection::View;
use bytes::Bytes;
use client::{Reader, as_seen_by};
use proptest::prelude::*;
use std::collections::HashSet;

/// A log of envelopes, with the view and the frames at each.
struct Log {
    encoder: Encoder,
    /// The view after each envelope; the first is empty.
    views: Vec<View>,
    /// The frames of each envelope; the first has none.
    frames: Vec<Vec<u8>>,
}

impl Log {
    fn new() -> Self {
        let id = LogId::Run(RunId::new("r").unwrap());
        Self { encoder: Encoder::new(&id), views: vec![View::new(&id, Audience::User)], frames: vec![Vec::new()] }
    }

    fn of(facts: &[(&str, Value)]) -> Self {
        let mut log = Self::new();
        for (class, members) in facts {
            log.add(class, members);
        }
        log
    }

    fn add(&mut self, class: &str, members: &Value) -> &mut Self {
        let defaults = EventType::from(class).defaults();
        let mut envelope = json!({ "type": class, "phase": defaults.phase.as_str(), "surface": defaults.surface });
        envelope.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let mut view = self.views.last().unwrap().clone();
        let sequence = view.through.next();
        let folded = view.fold(sequence, Some(envelope.to_string().as_bytes()));
        let mut out = Vec::new();
        for change in &folded.changes {
            self.encoder.change(&mut out, sequence, folded.prev, view.changed_activity(change), change);
            push_frame_end(&mut out, None);
        }
        self.frames.push(out);
        self.views.push(view);
        self
    }

    fn last(&self) -> usize {
        self.views.len() - 1
    }

    fn activities_at(&self, at: usize) -> Vec<ActivityView> {
        self.views[at].activities().iter().map(ActivityView::from).collect()
    }

    /// The frames that bring a reader from `known` to `at`.
    fn hydration(&self, known: usize, at: usize) -> Vec<u8> {
        let after = self.views[known].through;
        let mut out = Vec::new();
        for activity in self.views[at].activities().iter().filter(|activity| activity.sequence > after) {
            self.encoder.snapshot(&mut out, activity.sequence, None, activity);
            push_frame_end(&mut out, None);
        }
        out.extend(self.encoder.hydrated(self.views[at].last_framed, None));
        out
    }

    fn end(&self) -> Option<Vec<u8>> {
        let run = self.activities_at(self.last()).into_iter().rfind(|activity| &*activity.kind == "run")?;
        let status = run.text("status").filter(|status| ["completed", "failed", "cancelled", "interrupted"].contains(status))?;
        Some(self.encoder.end(Epoch::from_random(1), Sequence(1), status))
    }
}

/// A reader of the dialect at a position in a log.
struct Stream<'l> {
    log: &'l Log,
    dialect: AiSdk,
    at: usize,
    chunks: Vec<Value>,
    is_over: bool,
}

impl<'l> Stream<'l> {
    fn open(log: &'l Log, version: u8, until: Until) -> Self {
        let dialect = AiSdk::new(AiSdkOptions { message: "r".into(), version, until });
        Self { log, dialect, at: 0, chunks: Vec::new(), is_over: false }
    }

    /// A stream that joins at this envelope.
    fn joined(log: &'l Log, version: u8, until: Until, at: usize) -> Self {
        let mut stream = Self::open(log, version, until);
        stream.at = at;
        stream.handle(&log.hydration(0, at));
        stream
    }

    /// A stream that resumes with the activities of `known`.
    fn resumed(log: &'l Log, version: u8, until: Until, known: usize, at: usize) -> Self {
        let mut stream = Self::open(log, version, until);
        stream.dialect.resume(log.activities_at(known));
        stream.at = at;
        stream.handle(&log.hydration(known, at));
        stream
    }

    fn handle(&mut self, bytes: &[u8]) {
        let mut bytes = Bytes::copy_from_slice(bytes);
        while let Some((frame, _)) = frames::next_frame(&mut bytes).filter(|_| !self.is_over) {
            match self.dialect.frame(frame, &mut self.chunks) {
                Flow::Continue => {}
                Flow::End => self.is_over = true,
                Flow::Restart => return self.handle(&self.log.hydration(0, self.at)),
            }
        }
    }

    /// Reads further, envelope by envelope.
    fn follow(&mut self, to: usize) -> &mut Self {
        while self.at < to && !self.is_over {
            self.at += 1;
            self.handle(&self.log.frames[self.at]);
            if !self.is_over {
                match self.dialect.end_batch(&mut self.chunks) {
                    Flow::Continue => {}
                    Flow::End => self.is_over = true,
                    Flow::Restart => self.handle(&self.log.hydration(0, self.at)),
                }
            }
        }
        self
    }

    /// Skips to an envelope in one step, as a slow reader does.
    fn jump(&mut self, to: usize) -> &mut Self {
        let known = std::mem::replace(&mut self.at, to);
        self.handle(&self.log.hydration(known, to));
        self
    }

    /// Reads to the end.
    fn rest(mut self) -> Vec<Value> {
        self.follow(self.log.last());
        while let Some(end) = self.log.end().filter(|_| !self.is_over) {
            self.handle(&end);
        }
        self.chunks
    }
}

/// The assistant message, as the message list contains it.
fn loaded(log: &Log, version: u8) -> Value {
    let messages = messages(&log.activities_at(log.last()), "r", version);
    let own = messages.into_iter().find(|message| message["role"] == "assistant");
    own.unwrap_or_else(|| json!({ "id": "r", "role": "assistant", "parts": [{ "type": "step-start" }] }))
}

/// The comparable content of a message: its parts.
fn parts(message: &Value, version: u8) -> Value {
    as_seen_by(message, version)["parts"].clone()
}

// ── properties of every run ──

const VERSIONS: [u8; 3] = [5, 6, 7];

type Fact = (&'static str, Value);

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
    let outcome = prop::option::of(one_of(&["approved", "rejected", "answered", "cancelled", "expired"]));
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

fn superseded_by(correction: &Value) -> Vec<u64> {
    correction["parts"].as_array().unwrap().iter().map(|part| part.as_u64().unwrap()).collect()
}

fn data(message: &Value, kind: &str) -> Vec<Value> {
    let parts = message["parts"].as_array().unwrap().iter();
    parts.filter(|part| part["type"] == kind).map(|part| part["data"].clone()).collect()
}

fn text_of(part: &Value) -> String {
    let is_text = part["type"] == "text" || part["type"] == "reasoning";
    part["text"].as_str().filter(|_| is_text).unwrap_or_default().to_owned()
}

fn sorted(text: &str) -> Vec<char> {
    let mut characters: Vec<char> = text.chars().collect();
    characters.sort_unstable();
    characters
}

// ── chunks ──

/// A chunk in brief: its type, its ids and its content.
fn brief(chunk: &Value) -> String {
    let said = ["delta", "inputTextDelta", "input", "output", "errorText", "data", "approved", "finishReason", "messageMetadata"];
    let about = ["id", "toolCallId", "approvalId", "messageId"];
    let about = about.iter().filter_map(|member| chunk.get(*member)?.as_str());
    let said = said.iter().filter_map(|member| Some(chunk.get(*member)?.to_string()));
    let preliminary = chunk.get("preliminary").map(|_| "preliminary".to_owned());
    let words: Vec<String> = about.map(str::to_owned).chain(said).chain(preliminary).collect();
    format!("{} {}", chunk["type"].as_str().unwrap(), words.join(" ")).trim().to_owned()
}

/// The chunks of a reader from the start, without the constant beginning.
fn brief_stream(log: &Log, version: u8, until: Until) -> Vec<String> {
    let chunks = Stream::joined(log, version, until, 0).rest();
    Reader::read(version, &chunks);
    rest_of(&chunks)
}

fn rest_of(chunks: &[Value]) -> Vec<String> {
    let said: Vec<String> = chunks.iter().map(brief).collect();
    assert_eq!(said[0], "start r");
    let is_beginning = |said: &&String| ["start r", "start-step", r#"message-metadata {"runId":"r"}"#].contains(&said.as_str());
    said.iter().filter(|said| !is_beginning(said)).cloned().collect()
}

fn text(id: &str, part: &str, text: &str) -> (&'static str, Value) {
    ("text.delta", json!({ "messageId": id, "partId": part, "payload": { "text": text } }))
}

fn of_call(class: &'static str, payload: Value) -> (&'static str, Value) {
    (class, json!({ "toolCallId": "c", "payload": payload }))
}

fn asks() -> (&'static str, Value) {
    let payload = json!({ "kind": "tool_approval", "message": "Really?", "toolName": "rm", "input": { "path": "/" } });
    ("action.required", json!({ "actionId": "a", "toolCallId": "c", "payload": payload }))
}

fn decides(outcome: &str) -> (&'static str, Value) {
    ("action.resolved", json!({ "actionId": "a", "payload": { "outcome": outcome } }))
}

fn ends() -> (&'static str, Value) {
    ("run.finished", json!({}))
}

#[test]
fn a_run_is_one_message_of_texts_reasoning_and_calls() {
    let log = Log::of(&[
        ("run.started", json!({})),
        ("reasoning.delta", json!({ "messageId": "m", "partId": "t", "payload": { "text": "Look" } })),
        ("reasoning.summary", json!({ "messageId": "m", "partId": "t", "payload": { "text": "Look first." } })),
        text("m", "p", "One "),
        text("m", "p", "moment."),
        ("text.final", json!({ "messageId": "m", "partId": "p", "payload": {} })),
        of_call("tool.started", json!({ "toolName": "index" })),
        of_call("tool.args", json!({ "inputText": "{\"n\":" })),
        of_call("tool.args", json!({ "inputText": "2}" })),
        of_call("tool.args", json!({ "state": "input-available" })),
        of_call("tool.progress", json!({ "progress": 0.5, "message": "half" })),
        of_call("tool.result", json!({ "output": "done" })),
        text("m2", "p", "Ready."),
        ends(),
    ]);
    let state = |status: &str, state: &str| {
        let mut report = json!({
            "schema": "tool-call-progress.v1", "node_id": "c", "call_id": "c", "tool_name": "index", "status": status,
        });
        if !state.is_empty() {
            report["state"] = state.into();
        }
        report["message"] = "half".into();
        report["progress"] = 0.5.into();
        report
    };
    let preliminary = r#"{"schema":"tool-call-progress.v1","node_id":"c","call_id":"c","tool_name":"index","status":"running","progress":0.5,"message":"half"}"#;
    assert_eq!(
        brief_stream(&log, 5, Until::End),
        [
            "reasoning-start m/t",
            r#"reasoning-delta m/t "Look""#,
            r#"reasoning-delta m/t " first.""#,
            "reasoning-end m/t",
            "text-start m/p",
            r#"text-delta m/p "One ""#,
            r#"text-delta m/p "moment.""#,
            "text-end m/p",
            "tool-input-start c",
            r#"tool-input-delta c "{\"n\":""#,
            r#"tool-input-delta c "2}""#,
            r#"tool-input-available c {"n":2}"#,
            &format!("tool-output-available c {preliminary} preliminary"),
            &format!("data-tool-call-progress c {}", state("running", "progress")),
            r#"tool-output-available c "done""#,
            &format!("data-tool-call-progress c {}", state("done", "output-available")),
            "text-start m2/p",
            r#"text-delta m2/p "Ready.""#,
            "text-end m2/p",
            "finish-step",
            r#"finish "stop""#,
        ]
    );
    // A late reader receives the current state.
    let late = Stream::joined(&log, 5, Until::End, log.last()).rest();
    assert_eq!(
        rest_of(&late)[4..12],
        [
            r#"text-delta m/p "One moment.""#,
            "text-end m/p",
            "tool-input-start c",
            r#"tool-input-available c {"n":2}"#,
            r#"tool-output-available c "done""#,
            &format!("data-tool-call-progress c {}", state("done", "output-available")),
            "text-start m2/p",
            r#"text-delta m2/p "Ready.""#,
        ]
    );
    assert_eq!(
        late[..3],
        [
            json!({ "type": "start", "messageId": "r" }),
            json!({ "type": "start-step" }),
            json!({ "type": "message-metadata", "messageMetadata": { "runId": "r" } }),
        ]
    );
}

#[test]
fn a_response_ends_at_a_pending_decision_and_the_next_continues_from_there() {
    let log = Log::of(&[
        ("run.started", json!({})),
        of_call("tool.started", json!({ "toolName": "rm", "input": { "path": "/" } })),
        asks(),
        decides("approved"),
        of_call("tool.result", json!({ "output": "gone" })),
        text("m", "p", "Gone."),
        ends(),
    ]);
    let action = |status: &str| {
        let mut action = json!({ "status": status, "kind": "tool_approval", "message": "Really?", "toolName": "rm" });
        for member in ["input", "parameters"] {
            action[member] = json!({ "path": "/" });
        }
        action["toolCallId"] = "c".into();
        if status == "resolved" {
            action["outcome"] = "approved".into();
        }
        format!("data-action a {action}")
    };
    let goes_on = [r#"tool-output-available c "gone""#, "text-start m/p", r#"text-delta m/p "Gone.""#, "text-end m/p"];
    for (version, request, response) in [
        (5, None, None),
        (6, Some("tool-approval-request c a"), Some(r#"tool-input-available c {"path":"/"}"#)),
        (7, Some("tool-approval-request c a"), Some("tool-approval-response a true")),
    ] {
        let mut first = Stream::joined(&log, version, Until::Pause, 0);
        first.follow(log.last());
        assert!(first.is_over && first.at == 3, "the run waits for the decision");
        let call = ["tool-input-start c", r#"tool-input-available c {"path":"/"}"#].map(str::to_owned);
        let asked = [Some(action("pending")), request.map(str::to_owned)].into_iter().flatten();
        let end = ["finish-step", r#"finish "tool-calls""#].map(str::to_owned);
        let expected: Vec<String> = call.into_iter().chain(asked).chain(end).collect();
        assert_eq!(rest_of(&first.chunks), expected, "version {version}");

        let second = Stream::resumed(&log, version, Until::Pause, 3, 3).rest();
        let decided = [Some(action("resolved")), response.map(str::to_owned)].into_iter().flatten();
        let end = ["finish-step", r#"finish "stop""#];
        let expected: Vec<String> = decided.chain(goes_on.map(str::to_owned)).chain(end.map(str::to_owned)).collect();
        assert_eq!(rest_of(&second), expected, "version {version}");
        assert!(!second.contains(&json!({ "type": "start-step" })), "the client's message already has its step");

        let mut reader = Reader::read(version, &first.chunks);
        reader.start_response();
        for chunk in &second {
            reader.apply(chunk);
        }
        assert_eq!(reader.message["parts"], parts(&loaded(&log, version), version));

        // A view stays open over the pause, in one stream.
        let view = Reader::read(version, &Stream::joined(&log, version, Until::End, 0).rest());
        assert_eq!(view.message["parts"], reader.message["parts"]);
    }
}

#[test]
fn a_denied_call_is_output_denied_where_the_version_has_it() {
    let log = Log::of(&[
        ("run.started", json!({})),
        of_call("tool.started", json!({ "toolName": "rm", "input": {} })),
        asks(),
        decides("rejected"),
        of_call("tool.failed", json!({ "error": { "message": "the user said no" } })),
        ends(),
    ]);
    let last = |version| brief_stream(&log, version, Until::End).into_iter().rfind(|said| said.starts_with("tool-")).unwrap();
    assert_eq!(last(5), r#"tool-output-error c "the user said no""#);
    assert_eq!(last(6), "tool-output-denied c");
    assert_eq!(last(7), "tool-output-denied c");
    let part = &loaded(&log, 7)["parts"][1];
    assert_eq!((&part["state"], &part["approval"]["approved"]), (&json!("output-denied"), &json!(false)));
}

#[test]
fn a_request_for_more_than_yes_or_no_is_not_an_approval() {
    let mut asks = asks();
    asks.1["payload"]["kind"] = "structured_input".into();
    let log = Log::of(&[("run.started", json!({})), of_call("tool.started", json!({ "toolName": "rm" })), asks]);
    let mut stream = Stream::joined(&log, 7, Until::Pause, 0);
    stream.follow(log.last());
    let said = rest_of(&stream.chunks);
    assert!(!said.iter().any(|said| said.starts_with("tool-approval")), "{said:?}");
    assert!(said.iter().any(|said| said.starts_with("data-action a")) && said.last().unwrap() == r#"finish "tool-calls""#);
}

#[test]
fn a_corrected_text_is_sent_as_far_as_the_client_can_apply_it() {
    let log = Log::of(&[
        ("run.started", json!({})),
        text("m", "p", "teh answer"),
        ("text.final", json!({ "messageId": "m", "partId": "p", "payload": { "text": "the answer" } })),
        ends(),
    ]);
    for version in [5, 6] {
        assert_eq!(
            brief_stream(&log, version, Until::End),
            [
                "text-start m/p",
                r#"text-delta m/p "teh answer""#,
                "text-end m/p",
                r#"data-correction text:m/p#1 {"parts":[1],"replacedBy":3}"#,
                "text-start m/p",
                r#"text-delta m/p "the answer""#,
                "text-end m/p",
                "finish-step",
                r#"finish "stop""#,
            ]
        );
    }
    assert_eq!(
        brief_stream(&log, 7, Until::End),
        [
            "text-start m/p",
            r#"text-delta m/p "teh answer""#,
            "text-end m/p",
            "reset-step",
            "text-start m/p",
            r#"text-delta m/p "the answer""#,
            "text-end m/p",
            "finish-step",
            r#"finish "stop""#,
        ]
    );
    assert_eq!(loaded(&log, 5)["parts"][1], json!({ "type": "text", "text": "the answer", "state": "done" }));
    assert_eq!(loaded(&log, 5)["parts"].as_array().unwrap().len(), 2, "a loaded message has only the correct text");
}

#[test]
fn a_text_that_grows_over_a_pause_continues_in_a_new_part() {
    let log = Log::of(&[
        ("run.started", json!({})),
        text("m", "p", "Wait"),
        ("run.status", json!({ "phase": "waiting", "payload": {} })),
        ("run.status", json!({ "phase": "acting", "payload": {} })),
        text("m", "p", " for it."),
        ends(),
    ]);
    let mut first = Stream::joined(&log, 5, Until::Pause, 0);
    first.follow(log.last());
    assert_eq!(rest_of(&first.chunks).last().unwrap(), r#"finish "other""#, "no decision is pending");
    let said = rest_of(&Stream::resumed(&log, 5, Until::Pause, 3, 3).rest());
    assert_eq!(said[..3], ["text-start m/p", r#"text-delta m/p " for it.""#, "text-end m/p"]);
    let said = rest_of(&Stream::resumed(&log, 7, Until::Pause, 3, 3).rest());
    assert_eq!(said[..4], ["reset-step", "text-start m/p", r#"text-delta m/p "Wait for it.""#, "text-end m/p"]);
}

#[test]
fn the_answered_pause_does_not_end_the_next_response() {
    let mut second = asks();
    second.1["actionId"] = "b".into();
    let log = Log::of(&[
        ("run.started", json!({})),
        of_call("tool.started", json!({ "toolName": "rm", "input": {} })),
        asks(),
        text("m", "p", "Still waiting."),
        second,
        decides("approved"),
        ends(),
    ]);
    let mut stream = Stream::resumed(&log, 6, Until::Pause, 3, 3);
    stream.follow(4);
    assert!(!stream.is_over, "the run still is in the pause from which the client resumed");
    stream.follow(5);
    assert!(stream.is_over, "another action is pending");
    let mut stream = Stream::resumed(&log, 6, Until::Pause, 5, 5);
    stream.follow(6);
    assert!(stream.is_over, "one of two actions is still pending");
}

#[test]
fn every_run_end_has_its_last_chunk() {
    let end = |version: u8, (class, members): (&'static str, Value)| {
        let log = Log::of(&[("run.started", json!({})), text("m", "p", "So"), (class, members)]);
        let chunks = Stream::joined(&log, version, Until::End, 0).rest();
        Reader::read(version, &chunks);
        let said: Vec<_> = chunks[chunks.len() - 3..].iter().map(brief).collect();
        assert_eq!(said[..2], ["text-end m/p", "finish-step"]);
        chunks.last().unwrap().clone()
    };
    let finish = |reason: &str| json!({ "type": "finish", "finishReason": reason });
    assert_eq!(end(5, ends()), finish("stop"));
    assert_eq!(
        end(5, ("run.finished", json!({ "phase": "cancelled" }))),
        json!({ "type": "abort", "reason": "The run was cancelled." })
    );
    let interrupted = || ("run.failed", json!({ "phase": "interrupted" }));
    assert_eq!((end(6, interrupted()), end(7, interrupted())), (finish("other"), finish("interrupted")));
    let failed = |payload: Value| ("run.failed", json!({ "payload": payload }));
    let error = |text: &str| json!({ "type": "error", "errorText": text });
    assert_eq!(end(5, failed(json!({ "error": { "code": "x", "message": "out of memory" } }))), error("out of memory"));
    assert_eq!(end(5, failed(json!({ "error": "no reason" }))), error("no reason"));
    assert_eq!(end(5, failed(json!({}))), error("The run failed."));
}

#[test]
fn a_reset_or_an_error_ends_the_stream_with_an_error_chunk() {
    let log = Log::of(&[("run.started", json!({})), text("m", "p", "So")]);
    for (frame, why) in [
        (Frame::Reset { reason: "epoch".into() }, "The run was erased or rewritten. Load it again."),
        (
            Frame::Error { problem: json!({ "code": "token_expired", "detail": "the token has expired" }) },
            "the token has expired",
        ),
    ] {
        let mut stream = Stream::joined(&log, 5, Until::End, log.last());
        assert_eq!(stream.dialect.frame(frame, &mut stream.chunks), Flow::End);
        let reader = Reader::read(5, &stream.chunks);
        assert_eq!(reader.ended, Some(json!({ "type": "error", "errorText": why })));
    }
    // A reset before the first activity takes nothing back.
    let mut stream = Stream::open(&log, 5, Until::End);
    let mut nothing = Vec::new();
    assert_eq!(stream.dialect.frame(Frame::Reset { reason: "epoch".into() }, &mut nothing), Flow::Continue);
    let mut refused = AiSdk::new(AiSdkOptions { message: "r".into(), version: 5, until: Until::Pause });
    assert_eq!(refused.frame(Frame::Error { problem: json!({ "title": "no such agent" }) }, &mut nothing), Flow::End);
    assert_eq!(nothing, [json!({ "type": "error", "errorText": "no such agent" })]);
    assert_eq!(refused.end_marker(), Some("[DONE]"));
}

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

#[test]
fn a_loaded_thread_has_the_users_messages_before_the_assistant_message() {
    let said = |role: &str, id: &str, text: &str| {
        ("text.final", json!({ "messageId": id, "partId": "p", "payload": { "text": text, "role": role } }))
    };
    let mate = json!({ "messageId": "m", "partId": "p", "agentId": "mate", "payload": { "text": "From me." } });
    let to_mate =
        json!({ "messageId": "task", "partId": "p", "agentId": "mate", "payload": { "text": "Do it.", "role": "user" } });
    let log = Log::of(&[
        ("run.started", json!({ "agentId": "own" })),
        said("system", "s", "Be kind."),
        said("user", "u", "Hello"),
        said("assistant", "m", "Hi."),
        ("text.final", to_mate),
        ("text.final", mate),
        said("user", "u2", "And?"),
        ends(),
    ]);
    let all = messages(&log.activities_at(log.last()), "r", 6);
    let text = |text: &str| json!({ "type": "text", "text": text });
    assert_eq!(all[0], json!({ "id": "s", "role": "system", "parts": [text("Be kind.")] }));
    assert_eq!(all[1], json!({ "id": "u", "role": "user", "parts": [text("Hello")] }));
    assert_eq!(all[2], json!({ "id": "u2", "role": "user", "parts": [text("And?")] }));
    let by_mate = json!({ "proscenium": { "agentId": "mate" } });
    assert_eq!(
        all[3]["parts"],
        json!([
            { "type": "step-start" },
            { "type": "text", "text": "Hi.", "state": "done" },
            { "type": "text", "text": "From me.", "providerMetadata": by_mate, "state": "done" },
        ])
    );
    assert_eq!((all.len(), &all[3]["id"], &all[3]["metadata"]["runId"]), (4, &json!("r"), &json!("r")));
    assert_eq!(
        brief_stream(&log, 6, Until::End).iter().filter(|said| said.starts_with("text-start")).count(),
        2,
        "the client already has the users' messages"
    );
    // A run without content has no message.
    assert_eq!(messages(&Log::of(&[("run.started", json!({}))]).activities_at(1), "r", 6), Vec::<Value>::new());
}

#[test]
fn parts_of_other_kinds_become_data_and_history_calls_become_calls() {
    let image = json!({ "partId": "i", "kind": "image", "url": "/i" });
    let call = json!({ "partId": "c", "kind": "tool_call", "toolCallId": "c" });
    let thought = json!({ "partId": "t", "kind": "reasoning_summary", "text": "Hm." });
    let message = json!({ "messageId": "m", "role": "assistant", "parts": [thought, image, call] });
    let log = Log::of(&[
        ("run.started", json!({})),
        ("messages.snapshot", json!({ "payload": { "mode": "window", "messages": [message] } })),
        ends(),
    ]);
    let said = brief_stream(&log, 5, Until::End);
    assert_eq!(said[..3], ["reasoning-start m/t", r#"reasoning-delta m/t "Hm.""#, "reasoning-end m/t"]);
    assert!(said[3].starts_with("data-image m/i ") && said[4] == "finish-step", "{said:?}");
    assert_eq!(Reader::read(5, &Stream::joined(&log, 5, Until::End, 0).rest()).message["parts"], loaded(&log, 5)["parts"]);
}

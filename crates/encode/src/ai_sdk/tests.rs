//! The AI SDK stream against a model client: its chunks, and its message from any starting point.

#[path = "../../../../tests/it/ai_sdk_client.rs"]
mod client;
mod laws;
mod limits;
mod loaded;

use super::*;
use crate::encoded::{EncodedFrames, FrameBuffer};
use crate::frames::DecodedFrame;
use crate::native::Encoder;
use client::{Reader, as_seen_by};
use proptest::prelude::*;
use proscenium_model::{Audience, Epoch, EventType, LogId, RunId, Sequence};
use proscenium_projection::View;
use std::collections::HashSet;

fn buffer() -> FrameBuffer {
    FrameBuffer::new(Epoch::from_random(1))
}

/// A log of envelopes, with the view and the frames at each.
struct Log {
    encoder: Encoder,
    /// The view after each envelope; the first is empty.
    views: Vec<View>,
    /// The frames of each envelope; the first has none.
    frames: Vec<EncodedFrames>,
}

impl Log {
    fn new() -> Self {
        let id = LogId::Run(RunId::new("r").unwrap());
        Self { encoder: Encoder::new(&id), views: vec![View::new(&id, Audience::User)], frames: vec![buffer().finish()] }
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
        let mut out = buffer();
        for change in &folded.changes {
            self.encoder.change(&mut out, sequence, folded.prev, view.changed_activity(change), change);
        }
        self.frames.push(out.finish());
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
    fn hydration(&self, known: usize, at: usize) -> EncodedFrames {
        let after = self.views[known].through;
        let mut out = buffer();
        for activity in self.views[at].activities().iter().filter(|activity| activity.sequence > after) {
            self.encoder.snapshot(&mut out, activity.sequence, None, activity);
        }
        self.encoder.hydrated(&mut out, self.views[at].last_framed, None);
        out.finish()
    }

    fn end(&self) -> Option<EncodedFrames> {
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
    has_caught_up: bool,
}

impl<'l> Stream<'l> {
    fn open(log: &'l Log, version: u8, until: Until) -> Self {
        let dialect = AiSdk::new(AiSdkOptions { message: "r".into(), version, begin: Begin::Snapshot, until });
        Self { log, dialect, at: 0, chunks: Vec::new(), is_over: false, has_caught_up: false }
    }

    /// A stream that joins at this envelope.
    fn joined(log: &'l Log, version: u8, until: Until, at: usize) -> Self {
        let mut stream = Self::open(log, version, until);
        stream.at = at;
        stream.handle(&log.hydration(0, at));
        stream
    }

    /// A stream whose chunks the reader counts. It has caught up with the log at this envelope.
    fn counted(log: &'l Log, version: u8, caught_up: usize) -> Self {
        let options = AiSdkOptions { message: "r".into(), version, begin: Begin::Replay, until: Until::Pause };
        let dialect = AiSdk::new(options);
        let mut stream = Self { log, dialect, at: 0, chunks: Vec::new(), is_over: false, has_caught_up: false };
        stream.follow(caught_up);
        stream.has_caught_up = true;
        stream.handle(&log.hydration(caught_up, caught_up));
        stream
    }

    /// A stream that resumes with the activities of `known`.
    fn resumed(log: &'l Log, version: u8, until: Until, known: usize, at: usize) -> Self {
        let mut stream = Self::open(log, version, until);
        stream.dialect.resume(Sequence(known as u64), log.activities_at(known));
        stream.at = at;
        stream.handle(&log.hydration(known, at));
        stream
    }

    /// Shows everything again, as of the stream's envelope.
    fn restart(&mut self) {
        if !self.dialect.counts() {
            return self.handle(&self.log.hydration(0, self.at));
        }
        for activity in self.log.activities_at(self.at) {
            self.dialect.frame(&Frame::ActivitySnapshot(activity), &mut self.chunks);
        }
        if self.dialect.end_batch(&mut self.chunks) == Flow::Restart {
            self.restart();
        }
        // The reader reads on from there, and catches up once more.
        if self.has_caught_up {
            self.handle(&self.log.hydration(self.at, self.at));
        }
    }

    fn handle(&mut self, frames: &EncodedFrames) {
        let (all, of) = frames.decoded();
        for DecodedFrame { frame, .. } in &all[of] {
            match self.dialect.frame(frame, &mut self.chunks) {
                Flow::Continue => {}
                Flow::End => {
                    self.is_over = true;
                    return;
                }
                Flow::Restart => return self.restart(),
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
                    Flow::Restart => self.restart(),
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
fn a_call_that_awaits_the_client_is_the_clients_to_execute_until_its_result_is_there() {
    let started = of_call("tool.started", json!({ "toolName": "where", "input": {} }));
    let pending = of_call("tool.progress", json!({ "status": "pending" }));
    let awaits = of_call("tool.progress", json!({ "status": "pending", "awaits": "client" }));
    let result = of_call("tool.result", json!({ "output": "Oslo" }));
    for version in VERSIONS {
        let marks = |facts: &[Fact]| -> Vec<(String, Option<bool>)> {
            let chunks = Stream::joined(&Log::of(facts), version, Until::End, 0).rest();
            let of_call = chunks.iter().filter(|chunk| chunk.get("toolCallId").is_some() && chunk.get("preliminary").is_none());
            of_call.map(|chunk| (chunk["type"].as_str().unwrap().to_owned(), chunk["providerExecuted"].as_bool())).collect()
        };
        let all = [("run.started", json!({})), started.clone(), pending.clone(), awaits.clone(), result.clone(), ends()];
        let expected = [
            ("tool-input-start", Some(true)),
            ("tool-input-available", Some(true)),
            ("tool-input-available", Some(false)),
            ("tool-output-available", Some(true)),
        ];
        assert_eq!(marks(&all), expected.map(|(kind, mark)| (kind.to_owned(), mark)));
        let open = [&all[..4], &all[5..]].concat();
        let reader = Reader::read(version, &Stream::joined(&Log::of(&open), version, Until::End, 0).rest());
        let part = reader.message["parts"].as_array().unwrap().iter().find(|part| part["type"] == "dynamic-tool").unwrap();
        assert_eq!((&part["state"], &part["providerExecuted"]), (&json!("input-available"), &json!(false)));
    }
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
        action["title"] = "Run rm /?".into();
        action["titleFrom"] = "server".into();
        let fields = json!([{ "name": "path", "value": "/" }]);
        action["subject"] = json!({ "kind": "fields", "fields": fields, "toolName": "rm", "text": "Really?" });
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
fn a_superseded_approval_is_denied_with_its_reason_and_never_approved() {
    let mut superseded = decides("superseded");
    superseded.1["payload"]["synthetic"] = true.into();
    let log = Log::of(&[
        ("run.started", json!({})),
        of_call("tool.started", json!({ "toolName": "rm", "input": {} })),
        asks(),
        superseded,
        ("run.finished", json!({ "phase": "cancelled" })),
    ]);
    for (version, approval) in [
        (6, json!({ "id": "a", "approved": false })),
        (7, json!({ "id": "a", "requestReason": "Really?", "approved": false, "reason": "superseded" })),
    ] {
        let part = &loaded(&log, version)["parts"][1];
        assert_eq!((&part["state"], &part["approval"]), (&json!("output-denied"), &approval), "version {version}");
    }
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
        assert_eq!(stream.dialect.frame(&frame, &mut stream.chunks), Flow::End);
        let reader = Reader::read(5, &stream.chunks);
        assert_eq!(reader.ended, Some(json!({ "type": "error", "errorText": why })));
    }
    // A client that counts its chunks gets nothing before the error that others do not get.
    let mut stream = Stream::counted(&log, 7, log.last());
    let mut last = Vec::new();
    assert_eq!(stream.dialect.frame(&Frame::Error { problem: json!({ "title": "over" }) }, &mut last), Flow::End);
    assert_eq!(last, [json!({ "type": "error", "errorText": "over" })]);
    // A reset before the first activity takes nothing back.
    let mut stream = Stream::open(&log, 5, Until::End);
    let mut nothing = Vec::new();
    assert_eq!(stream.dialect.frame(&Frame::Reset { reason: "epoch".into() }, &mut nothing), Flow::Continue);
    let mut refused = AiSdk::new(AiSdkOptions { message: "r".into(), version: 5, begin: Begin::Snapshot, until: Until::Pause });
    assert_eq!(refused.frame(&Frame::Error { problem: json!({ "title": "no such agent" }) }, &mut nothing), Flow::End);
    assert_eq!(nothing, [json!({ "type": "error", "errorText": "no such agent" })]);
    assert_eq!(refused.end_marker(), Some("[DONE]"));
}

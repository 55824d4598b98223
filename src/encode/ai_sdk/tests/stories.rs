//! What is said, chunk by chunk.

use super::*;

/// A chunk in brief: its type, what it is about, and what it says.
fn brief(chunk: &Value) -> String {
    let said = ["delta", "inputTextDelta", "input", "output", "errorText", "data", "approved", "finishReason", "messageMetadata"];
    let about = ["id", "toolCallId", "approvalId", "messageId"];
    let about = about.iter().filter_map(|member| chunk.get(*member)?.as_str());
    let said = said.iter().filter_map(|member| Some(chunk.get(*member)?.to_string()));
    let preliminary = chunk.get("preliminary").map(|_| "preliminary".to_owned());
    let words: Vec<String> = about.map(str::to_owned).chain(said).chain(preliminary).collect();
    format!("{} {}", chunk["type"].as_str().unwrap(), words.join(" ")).trim().to_owned()
}

/// What is said to whoever is there from the start, but for the beginning, which is always the same.
fn told(log: &Log, version: u8, until: Until) -> Vec<String> {
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
fn a_run_is_one_message_of_texts_thoughts_and_calls() {
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
        told(&log, 5, Until::End),
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
    // Who comes late is told what it has come to.
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
fn an_answer_ends_where_somebody_has_to_decide_and_the_next_goes_on_from_there() {
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
        let mut action = json!({ "status": status, "kind": "tool_approval", "message": "Really?", "input": { "path": "/" } });
        action["toolName"] = "rm".into();
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
        assert!(first.is_over && first.at == 3, "it waits");
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
        assert!(!second.contains(&json!({ "type": "start-step" })), "the client's message has its step");

        let mut reader = Reader::read(version, &first.chunks);
        reader.another_answer();
        second.iter().for_each(|chunk| reader.take(chunk));
        assert_eq!(reader.message["parts"], parts(&loaded(&log, version), version));

        // A view is open over the pause: to it this is one stream.
        let view = Reader::read(version, &Stream::joined(&log, version, Until::End, 0).rest());
        assert_eq!(view.message["parts"], reader.message["parts"]);
    }
}

#[test]
fn a_call_that_was_not_allowed_is_denied_where_the_client_knows_that() {
    let log = Log::of(&[
        ("run.started", json!({})),
        of_call("tool.started", json!({ "toolName": "rm", "input": {} })),
        asks(),
        decides("rejected"),
        of_call("tool.failed", json!({ "error": { "message": "the user said no" } })),
        ends(),
    ]);
    let last =
        |version| told(&log, version, Until::End).into_iter().filter(|said| said.starts_with("tool-")).next_back().unwrap();
    assert_eq!(last(5), r#"tool-output-error c "the user said no""#);
    assert_eq!(last(6), "tool-output-denied c");
    assert_eq!(last(7), "tool-output-denied c");
    let part = &loaded(&log, 7)["parts"][1];
    assert_eq!((&part["state"], &part["approval"]["approved"]), (&json!("output-denied"), &json!(false)));
}

#[test]
fn what_asks_for_more_than_a_yes_is_no_approval() {
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
fn a_text_that_was_another_is_told_as_far_as_the_client_can_take_it() {
    let log = Log::of(&[
        ("run.started", json!({})),
        text("m", "p", "teh answer"),
        ("text.final", json!({ "messageId": "m", "partId": "p", "payload": { "text": "the answer" } })),
        ends(),
    ]);
    for version in [5, 6] {
        assert_eq!(
            told(&log, version, Until::End),
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
        told(&log, 7, Until::End),
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
    assert_eq!(loaded(&log, 5)["parts"].as_array().unwrap().len(), 2, "whoever loads it has only what is right");
}

#[test]
fn a_text_that_goes_on_over_a_pause_goes_on_in_a_part_of_its_own() {
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
    assert_eq!(rest_of(&first.chunks).last().unwrap(), r#"finish "other""#, "nobody has to decide anything");
    let said = rest_of(&Stream::resumed(&log, 5, Until::Pause, 3, 3).rest());
    assert_eq!(said[..3], ["text-start m/p", r#"text-delta m/p " for it.""#, "text-end m/p"]);
    let said = rest_of(&Stream::resumed(&log, 7, Until::Pause, 3, 3).rest());
    assert_eq!(said[..4], ["reset-step", "text-start m/p", r#"text-delta m/p "Wait for it.""#, "text-end m/p"]);
}

#[test]
fn the_pause_that_was_answered_is_not_the_next_one() {
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
    assert!(!stream.is_over, "it is the pause that the client comes from");
    stream.follow(5);
    assert!(stream.is_over, "something else is asked");
    let mut stream = Stream::resumed(&log, 6, Until::Pause, 5, 5);
    stream.follow(6);
    assert!(stream.is_over, "one of the two is still to be decided");
}

#[test]
fn every_end_has_its_last_chunk() {
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
        json!({ "type": "abort", "reason": "the run was cancelled" })
    );
    let interrupted = || ("run.failed", json!({ "phase": "interrupted" }));
    assert_eq!((end(6, interrupted()), end(7, interrupted())), (finish("other"), finish("interrupted")));
    let failed = |payload: Value| ("run.failed", json!({ "payload": payload }));
    let error = |text: &str| json!({ "type": "error", "errorText": text });
    assert_eq!(end(5, failed(json!({ "error": { "code": "x", "message": "out of memory" } }))), error("out of memory"));
    assert_eq!(end(5, failed(json!({ "error": "no reason" }))), error("no reason"));
    assert_eq!(end(5, failed(json!({}))), error("the run failed"));
}

#[test]
fn a_stream_that_breaks_off_says_so() {
    let log = Log::of(&[("run.started", json!({})), text("m", "p", "So")]);
    for (frame, why) in [
        (Frame::Reset { reason: "epoch".into() }, "the run was erased or written anew; load it again"),
        (
            Frame::Error { problem: json!({ "code": "token_expired", "detail": "the token has expired" }) },
            "the token has expired",
        ),
    ] {
        let mut stream = Stream::joined(&log, 5, Until::End, log.last());
        assert_eq!(stream.dialect.frame(frame, &mut stream.chunks), Flow::Over);
        let reader = Reader::read(5, &stream.chunks);
        assert_eq!(reader.ended, Some(json!({ "type": "error", "errorText": why })));
    }
    // Before anything was told there is nothing to take back.
    let mut stream = Stream::open(&log, 5, Until::End);
    let mut nothing = Vec::new();
    assert_eq!(stream.dialect.frame(Frame::Reset { reason: "epoch".into() }, &mut nothing), Flow::On);
    let mut refused = AiSdk::new(Options { message: "r".into(), version: 5, until: Until::Pause });
    assert_eq!(refused.frame(Frame::Error { problem: json!({ "title": "no such agent" }) }, &mut nothing), Flow::Over);
    assert_eq!(nothing, [json!({ "type": "error", "errorText": "no such agent" })]);
    assert_eq!(refused.farewell(), Some("[DONE]"));
}

fn canvas(payload: Value) -> (&'static str, Value) {
    let mut fact = json!({ "messageId": "x", "payload": payload });
    fact["payload"]["activityType"] = "canvas".into();
    ("tool.progress", fact)
}

#[test]
fn a_small_change_of_a_large_content_waits_for_others_and_is_said_before_the_end() {
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
fn what_is_too_large_to_be_followed_is_told_as_it_is_at_the_end() {
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
    assert_eq!(reader.message["parts"][2]["state"], "output-available", "that a call has ended is not for later");
    let chunks = stream.rest();
    let live = Reader::read(5, &chunks);
    assert_eq!(live.message["parts"], parts(&loaded(&log, 5), 5));
    let count = |kind: &str| chunks.iter().filter(|chunk| chunk["type"] == kind).count();
    assert_eq!(
        (count("text-start"), count("data-canvas")),
        (1, 3),
        "nothing is said twice: as it was, with the call, at the end"
    );
}

#[test]
fn more_than_may_be_kept_is_told_in_the_end_all_the_same() {
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
fn a_thread_is_loaded_with_what_users_said_before_the_assistants_message() {
    let said = |role: &str, id: &str, text: &str| {
        ("text.final", json!({ "messageId": id, "partId": "p", "payload": { "text": text, "role": role } }))
    };
    let mate = json!({ "messageId": "m", "partId": "p", "agentId": "mate", "payload": { "text": "From me." } });
    let told_mate =
        json!({ "messageId": "task", "partId": "p", "agentId": "mate", "payload": { "text": "Do it.", "role": "user" } });
    let log = Log::of(&[
        ("run.started", json!({ "agentId": "own" })),
        said("system", "s", "Be kind."),
        said("user", "u", "Hello"),
        said("assistant", "m", "Hi."),
        ("text.final", told_mate),
        ("text.final", mate),
        said("user", "u2", "And?"),
        ends(),
    ]);
    let all = messages(&log.shown(log.last()), "r", 6);
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
        told(&log, 6, Until::End).iter().filter(|said| said.starts_with("text-start")).count(),
        2,
        "what users said the client has"
    );
    // A run that has said nothing has no message.
    assert_eq!(messages(&Log::of(&[("run.started", json!({}))]).shown(1), "r", 6), Vec::<Value>::new());
}

#[test]
fn parts_of_other_kinds_are_data_and_the_calls_of_history_are_calls() {
    let image = json!({ "partId": "i", "kind": "image", "url": "/i" });
    let call = json!({ "partId": "c", "kind": "tool_call", "toolCallId": "c" });
    let thought = json!({ "partId": "t", "kind": "reasoning_summary", "text": "Hm." });
    let message = json!({ "messageId": "m", "role": "assistant", "parts": [thought, image, call] });
    let log = Log::of(&[
        ("run.started", json!({})),
        ("messages.snapshot", json!({ "payload": { "mode": "window", "messages": [message] } })),
        ends(),
    ]);
    let said = told(&log, 5, Until::End);
    assert_eq!(said[..3], ["reasoning-start m/t", r#"reasoning-delta m/t "Hm.""#, "reasoning-end m/t"]);
    assert!(said[3].starts_with("data-image m/i ") && said[4] == "finish-step", "{said:?}");
    assert_eq!(Reader::read(5, &Stream::joined(&log, 5, Until::End, 0).rest()).message["parts"], loaded(&log, 5)["parts"]);
}

//! Tests of text and reasoning.

use super::*;

// ── text ──

#[test]
fn a_message_streams_and_its_end_does_not_repeat_the_text() {
    let drafts = adapt([message("START", "m"), content("m", "a"), content("m", ""), content("m", "b"), message("END", "m")]);
    let expected =
        ["text.delta m/text ", "text.delta m/text a", "text.delta m/text ", "text.delta m/text b", "text.final m/text -"];
    assert_eq!(texts(&drafts), expected);
}

#[test]
fn several_messages_stream_at_once() {
    let facts = [
        message("START", "m"),
        message("START", "n"),
        content("m", "a"),
        content("n", "b"),
        message("END", "m"),
        content("n", "c"),
    ];
    let expected = ["m/text ", "n/text ", "m/text a", "n/text b", "m/text -", "n/text c"];
    let drafts = adapt(facts);
    assert_eq!(texts(&drafts).iter().map(|t| t.split_once(' ').unwrap().1).collect::<Vec<_>>(), expected);
}

#[test]
fn a_restarted_message_continues_in_another_part() {
    let once = || [message("START", "m"), content("m", "a"), message("END", "m")];
    let drafts = adapt(once().into_iter().chain(once()));
    assert_eq!(texts(&drafts)[3..], ["text.delta m/text-2 ", "text.delta m/text-2 a", "text.final m/text-2 -"]);
    let mut ledger = Ledger::default();
    assert!(drafts.into_iter().all(|mut draft| ledger.record(&mut draft, 0).is_none()));
    assert_eq!(
        texts(&adapt([message("START", "m"), content("m", "a"), message("START", "m")]))[2],
        "text.delta m/text ",
        "it is open"
    );
}

#[test]
fn a_message_without_a_start_starts_with_its_first_chunk_and_an_end_without_a_start_is_flagged() {
    assert_eq!(texts(&adapt([content("m", "a"), message("END", "m")])), ["text.delta m/text a", "text.final m/text -"]);
    let draft = last([message("END", "m")]);
    assert_eq!((&draft.payload.to_value()["kind"], draft.audience), (&json!("end_without_start"), Audience::Internal));
}

#[test]
fn a_role_other_than_assistant_is_kept() {
    let begin = event("TEXT_MESSAGE_START", json!({"messageId": "m", "role": "user", "name": "Ann"}));
    let drafts = adapt([begin, content("m", "a"), message("END", "m")]);
    assert!(drafts.iter().all(|d| d.payload.to_value()["role"] == "user"));
    assert_eq!(drafts[0].extra["name"], "Ann");
    assert_eq!(
        last([event("TEXT_MESSAGE_START", json!({"messageId": "m", "role": "assistant"}))]).payload.to_value().get("role"),
        None
    );
}

#[test]
fn success_or_a_pause_ends_open_streams_and_a_failure_leaves_them_unsealed() {
    let open = || vec![start("r"), message("START", "m"), event("REASONING_MESSAGE_START", json!({"messageId": "m"}))];
    let ends = |end: Value| classes(&adapt(open().into_iter().chain([end]))[3..]);
    let sealed = ["text.final reconciling", "reasoning.summary reasoning"];
    assert_eq!(ends(finish("r"))[..2], sealed);
    assert_eq!(ends(finish_as("r", json!("interrupt")))[..2], sealed);
    assert_eq!(ends(finish_as("r", json!({"type": "cancelled"}))), ["run.finished cancelled"]);
    assert_eq!(ends(event("RUN_ERROR", json!({"message": "x"}))), ["run.failed failed"]);
}

// ── chunks ──

#[test]
fn chunks_inherit_their_message_until_another_event_ends_it() {
    let drafts = adapt([
        chunk(json!({"messageId": "m", "role": "assistant", "delta": "a"})),
        chunk(json!({"delta": "b"})),
        chunk(json!({"messageId": "m", "delta": "c"})),
        chunk(json!({"messageId": "n", "delta": "d"})),
        event("STEP_STARTED", json!({"stepName": "s"})),
    ]);
    let expected = [
        "text.delta m/text a",
        "text.delta m/text b",
        "text.delta m/text c",
        "text.final m/text -",
        "text.delta n/text d",
        "text.final n/text -",
        "run.status -/- -",
    ];
    assert_eq!(texts(&drafts), expected);
}

#[test]
fn a_chunk_of_another_kind_ends_the_previous_item() {
    let drafts = adapt([
        chunk(json!({"messageId": "m", "delta": "a"})),
        event("REASONING_MESSAGE_CHUNK", json!({"messageId": "m", "delta": "hm"})),
        event("TOOL_CALL_CHUNK", json!({"toolCallId": "c", "toolCallName": "rm", "parentMessageId": "m", "delta": "{"})),
        event("TOOL_CALL_CHUNK", json!({"delta": "}"})),
        event("TOOL_CALL_CHUNK", json!({"toolCallId": "d", "toolCallName": "ls"})),
        chunk(json!({"messageId": "n", "delta": "b"})),
        finish("r"),
    ]);
    let expected = [
        "text.delta m/text a",
        "text.final m/text -",
        "reasoning.delta m/reasoning hm",
        "reasoning.summary m/reasoning -",
        "tool.started m/- -",
        "tool.args -/- -",
        "tool.args -/- -",
        "tool.args -/- -",
        "tool.started -/- -",
        "tool.args -/- -",
        "text.delta n/text b",
        "text.final n/text -",
        "tool.progress -/- -",
        "tool.progress -/- -",
        "run.finished -/- -",
    ];
    assert_eq!(texts(&drafts), expected);
    assert_eq!(payload(&drafts[7]), json!({"state": "input-available", "inputTextBytes": 2}));
    assert_eq!(payload(&drafts[9]), json!({"state": "input-available", "inputTextBytes": 0}));
}

#[test]
fn interleaved_call_chunks_continue_their_calls() {
    let chunk = |members: Value| event("TOOL_CALL_CHUNK", members);
    let drafts = adapt([
        chunk(json!({"toolCallId": "a", "toolCallName": "rm", "delta": "{"})),
        chunk(json!({"toolCallId": "b", "toolCallName": "ls", "delta": "{"})),
        chunk(json!({"toolCallId": "a", "delta": "}"})),
        chunk(json!({"toolCallId": "b", "delta": "}"})),
        finish("r"),
    ]);
    let called =
        |d: &Draft| format!("{} {} {}", d.event_type, call_of(d), d.text("inputText").or(d.text("state")).unwrap_or("-"));
    let expected = [
        "tool.started a -",
        "tool.args a {",
        "tool.args a input-available",
        "tool.started b -",
        "tool.args b {",
        "tool.args b input-available",
        "tool.args a }",
        "tool.args a input-available",
        "tool.args b }",
        "tool.args b input-available",
        "tool.progress a -",
        "tool.progress b -",
        "run.finished - -",
    ];
    assert_eq!(drafts.iter().map(called).collect::<Vec<_>>(), expected);
}

#[test]
fn accompanying_events_do_not_end_a_chunked_message() {
    for between in [
        event("RAW", json!({"event": 1})),
        event("ACTIVITY_SNAPSHOT", json!({"messageId": "a", "activityType": "x", "content": {}})),
        event("ACTIVITY_DELTA", json!({"messageId": "a", "activityType": "x", "patch": []})),
        event("REASONING_ENCRYPTED_VALUE", json!({"subtype": "message", "entityId": "m", "encryptedValue": "x"})),
        event("OF_TOMORROW", json!({})),
    ] {
        let drafts = adapt([chunk(json!({"messageId": "m", "delta": "a"})), between.clone(), chunk(json!({"delta": "b"}))]);
        assert_eq!((drafts.len(), texts(&drafts)[2].as_str()), (3, "text.delta m/text b"), "{between}");
    }
}

#[test]
fn the_last_chunked_message_ends_with_the_run() {
    let drafts = adapt([start("r"), chunk(json!({"messageId": "m", "delta": "a"})), event("RUN_ERROR", json!({"message": "x"}))]);
    assert_eq!(classes(&drafts)[1..], ["text.delta producing", "text.final reconciling", "run.failed failed"]);
}

#[test]
fn a_chunk_without_an_id_gets_a_generated_id() {
    let drafts = adapt([chunk(json!({"delta": "a"})), chunk(json!({"delta": "b"}))]);
    assert_eq!(texts(&drafts), ["text.delta ag-ui-message-1/text a", "text.delta ag-ui-message-1/text b"]);
}

// ── reasoning ──

#[test]
fn reasoning_and_text_share_a_message_in_separate_parts() {
    let reasoning = |edge: &str, members: Value| event(&format!("REASONING_{edge}"), members);
    let id = || json!({"messageId": "m"});
    let drafts = adapt([
        reasoning("START", id()),
        reasoning("MESSAGE_START", json!({"messageId": "m", "role": "reasoning"})),
        reasoning("MESSAGE_CONTENT", json!({"messageId": "m", "delta": "hm"})),
        message("START", "m"),
        reasoning("MESSAGE_END", id()),
        reasoning("END", id()),
    ]);
    let expected = [
        "run.status m/- -",
        "reasoning.delta m/reasoning ",
        "reasoning.delta m/reasoning hm",
        "text.delta m/text ",
        "reasoning.summary m/reasoning -",
        "run.status m/- -",
    ];
    assert_eq!(texts(&drafts), expected);
    assert!(drafts.iter().all(|d| d.extra.is_empty()));
    assert_eq!(
        (drafts[0].phase.clone(), drafts[0].audience, &drafts[0].payload.to_value()["reasoning"]),
        (Phase::Reasoning, Audience::Dashboard, &json!("started"))
    );
    assert_eq!((drafts[5].phase.clone(), &drafts[5].payload.to_value()["reasoning"]), (Phase::Acting, &json!("ended")));
}

#[test]
fn thinking_events_without_ids_get_generated_ids() {
    let thinking = |edge: &str, members: Value| event(&format!("THINKING_{edge}"), members);
    let text = |delta: &str| thinking("TEXT_MESSAGE_CONTENT", json!({"delta": delta}));
    let drafts = adapt([
        thinking("START", json!({"title": "Plan"})),
        thinking("TEXT_MESSAGE_START", json!({})),
        text("a"),
        thinking("TEXT_MESSAGE_END", json!({})),
        text("b"),
        thinking("TEXT_MESSAGE_END", json!({})),
        thinking("END", json!({})),
        thinking("TEXT_MESSAGE_END", json!({})),
    ]);
    let expected = [
        "run.status -/- -",
        "reasoning.delta ag-ui-message-1/reasoning ",
        "reasoning.delta ag-ui-message-1/reasoning a",
        "reasoning.summary ag-ui-message-1/reasoning -",
        "reasoning.delta ag-ui-message-2/reasoning b",
        "reasoning.summary ag-ui-message-2/reasoning -",
        "run.status -/- -",
        "diagnostic.changed -/- -",
    ];
    assert_eq!(texts(&drafts), expected);
    assert_eq!(payload(&drafts[0]), json!({"reasoning": "started", "title": "Plan"}));
}

#[test]
fn encrypted_reasoning_keeps_only_its_length() {
    let value = |subtype: &str| json!({"subtype": subtype, "entityId": "x", "encryptedValue": "b3BhcXVl", "provider": "p"});
    let draft = last([event("REASONING_ENCRYPTED_VALUE", value("tool-call"))]);
    assert_eq!(
        payload(&draft),
        json!({"kind": "reasoning_encrypted_value", "bytes": 8, "subtype": "tool-call", "entityId": "x"})
    );
    assert_eq!(
        (draft.audience, draft.ids.tool_call.unwrap().as_str(), &draft.extra["provider"]),
        (Audience::Internal, "x", &json!("p"))
    );
    assert_eq!(last([event("REASONING_ENCRYPTED_VALUE", value("message"))]).ids.message.unwrap().as_str(), "x");
}

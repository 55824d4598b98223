//! Tests of the AI SDK adapter, chunk by chunk.
//! `tests/it/runtimes.rs` replays the recordings.

use super::*;
use crate::samples::{self, classes, ends, find, object, payload};
use proscenium_model::{ActionId, Audience, EventType, Owner, Phase, Surface};
use serde_json::{Value, json};

fn chunk(name: &str, mut members: Value) -> Value {
    members["type"] = name.into();
    members
}

fn bare(name: &str) -> Value {
    chunk(name, json!({}))
}

fn start(message: &str) -> Value {
    chunk("start", json!({"messageId": message}))
}

fn text(id: &str, delta: &str) -> Value {
    chunk("text-delta", json!({"id": id, "delta": delta}))
}

fn finish(reason: &str) -> Value {
    chunk("finish", json!({"finishReason": reason}))
}

/// A call with a complete input.
fn call(id: &str) -> Value {
    chunk("tool-input-available", json!({"toolCallId": id, "toolName": "rm", "input": {"path": "a"}}))
}

fn asks(action: &str, call: &str) -> Value {
    chunk("tool-approval-request", json!({"approvalId": action, "toolCallId": call}))
}

fn output(call: &str, output: Value) -> Value {
    chunk("tool-output-available", json!({"toolCallId": call, "output": output}))
}

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

/// Returns `type part text` of each draft of text or reasoning.
fn said(drafts: &[Draft]) -> Vec<String> {
    let without_message = drafts.iter().cloned().map(|draft| draft.with_message(None)).collect::<Vec<_>>();
    samples::said(&without_message).into_iter().map(|said| said.replace("-/ai-sdk-part-", "")).collect()
}

fn count(drafts: &[Draft], class: &EventType) -> usize {
    drafts.iter().filter(|draft| draft.event_type == *class).count()
}

// ── the run ──

#[test]
fn a_run_streams_its_text_and_ends_once() {
    let facts = [
        start("m"),
        bare("start-step"),
        chunk("text-start", json!({"id": "0"})),
        text("0", "Hel"),
        text("0", "lo"),
        chunk("text-end", json!({"id": "0"})),
        bare("finish-step"),
        finish("stop"),
    ];
    let drafts = adapt(facts);
    assert_eq!(said(&drafts), ["text.delta 1 ", "text.delta 1 Hel", "text.delta 1 lo", "text.final 1 -"]);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
    assert!(drafts.iter().filter(|d| d.ids.part.is_some()).all(|d| d.ids.message.as_ref().unwrap().as_str() == "m"));
    let steps: Vec<_> = drafts.iter().filter(|d| d.payload.contains_key("stepId")).collect();
    assert_eq!(classes(&[steps[0].clone(), steps[1].clone()]), ["run.status acting", "run.status reconciling"]);
    assert!(steps.iter().all(|step| step.audience == Audience::Dashboard && step.payload.to_value()["stepId"] == 1));
}

#[test]
fn the_first_chunk_opens_a_run_without_a_start() {
    let drafts = adapt([text("0", "x"), finish("stop")]);
    assert_eq!(classes(&drafts)[..2], ["run.started accepted", "text.delta producing"]);
    assert_eq!(drafts[1].ids.message.as_ref().unwrap().as_str(), "ai-sdk-message-1", "the adapter makes up an id");
}

#[test]
fn data_before_the_start_and_after_the_finish_is_projected_and_ends_nothing() {
    let data = |city: &str| chunk("data-weather", json!({"id": "w", "data": {"city": city}}));
    let drafts = adapt([data("Rome"), start("m"), finish("stop"), data("Oslo")]);
    let all =
        ["run.started accepted", "tool.progress acting", "run.status acting", "run.finished completed", "tool.progress acting"];
    assert_eq!(classes(&drafts), all);
    assert!(!drafts[2].payload.contains_key("resumed"));
}

#[test]
fn the_first_end_latches() {
    let drafts = adapt([start("m"), text("0", "Half"), chunk("error", json!({"errorText": "gone"})), finish("error")]);
    assert_eq!(ends(&drafts), ["run.failed failed"]);
    assert_eq!(find(&drafts, EventType::RunFailed).payload.to_value()["error"], json!({"message": "gone"}));
    assert_eq!(drafts.last().unwrap().payload.to_value()["kind"], "late_end");
    assert_eq!(count(&drafts, &EventType::TextFinal), 0, "the text was interrupted");
}

#[test]
fn a_start_after_the_end_is_another_attempt() {
    let drafts = adapt([start("m"), finish("stop"), start("n"), finish("stop")]);
    let attempts: Vec<_> = drafts.iter().filter_map(|draft| draft.payload.get("attempt")?.number()?.as_u64()).collect();
    assert_eq!(attempts, [1, 2]);
    assert_eq!(ends(&drafts), ["run.finished completed"; 2]);
}

#[test]
fn an_abort_cancels_the_run() {
    let drafts = adapt([start("m"), call("c"), chunk("abort", json!({"reason": "stopped"}))]);
    assert_eq!(ends(&drafts), ["run.finished cancelled"]);
    assert_eq!(drafts.last().unwrap().payload.to_value()["reason"], "stopped");
}

#[test]
fn a_finish_reason_tells_how_a_run_without_open_calls_ended() {
    for (reason, end, marks) in [
        (json!("stop"), "run.finished completed", json!({"status": "completed", "finishReason": "stop"})),
        (
            json!("tool-calls"),
            "run.finished completed",
            json!({"status": "completed", "truncated": true, "finishReason": "tool-calls"}),
        ),
        (json!("length"), "run.finished interrupted", json!({"status": "interrupted", "finishReason": "length"})),
        (json!("of-tomorrow"), "run.finished interrupted", json!({"status": "interrupted", "finishReason": "of-tomorrow"})),
    ] {
        let drafts = adapt([start("m"), chunk("finish", json!({"finishReason": reason}))]);
        assert_eq!(ends(&drafts), [end], "{reason}");
        assert_eq!(payload(drafts.last().unwrap()), marks);
    }
    assert_eq!(ends(&adapt([start("m"), bare("finish")])), ["run.finished completed"]);
    assert_eq!(ends(&adapt([start("m"), finish("error")])), ["run.failed failed"]);
}

#[test]
fn two_merged_streams_end_once_and_lose_no_text() {
    let facts = [
        start("m"),
        start("n"),
        text("0", "a"),
        finish("stop"),
        text("1", "b"),
        chunk("text-end", json!({"id": "1"})),
        finish("stop"),
    ];
    let drafts = adapt(facts);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
    assert_eq!(said(&drafts), ["text.delta 1 a", "text.final 1 -", "text.delta 2 b", "text.final 2 -"]);
}

// ── parts ──

#[test]
fn an_id_that_comes_again_opens_another_part() {
    let start = || chunk("text-start", json!({"id": "0"}));
    let end = || chunk("text-end", json!({"id": "0"}));
    let drafts = adapt([start(), text("0", "a"), end(), start(), text("0", "b"), end()]);
    assert_eq!(
        said(&drafts),
        ["text.delta 1 ", "text.delta 1 a", "text.final 1 -", "text.delta 2 ", "text.delta 2 b", "text.final 2 -"]
    );
}

#[test]
fn of_two_open_parts_with_one_id_the_newest_takes_deltas_and_the_end() {
    let start = || chunk("text-start", json!({"id": "0"}));
    let end = || chunk("text-end", json!({"id": "0"}));
    let drafts = adapt([start(), start(), text("0", "b"), end(), text("0", "a"), end(), end()]);
    assert_eq!(said(&drafts)[2..], ["text.delta 2 b", "text.final 2 -", "text.delta 1 a", "text.final 1 -"]);
    assert_eq!(drafts.last().unwrap().payload.to_value()["kind"], "end_without_start");
}

#[test]
fn more_open_parts_than_the_limit_end_the_oldest() {
    let starts = (0..=text::OPEN_MAX).map(|n| chunk("text-start", json!({"id": n.to_string()})));
    let drafts = adapt(starts);
    assert_eq!(said(&drafts).last().unwrap(), "text.final 1 -");
}

#[test]
fn redacted_reasoning_shows_nothing_and_its_data_stays_internal() {
    let facts = [
        start("m"),
        chunk("reasoning-start", json!({"id": "1", "providerMetadata": {"p": {"redactedData": "secret"}}})),
        chunk("reasoning-end", json!({"id": "1"})),
    ];
    let drafts = adapt(facts);
    assert_eq!(classes(&drafts), ["run.started accepted", "diagnostic.changed unknown"]);
    assert_eq!(drafts[1].audience, Audience::Internal);
}

#[test]
fn a_reset_of_a_step_empties_its_parts_and_ends_its_calls_and_the_first_one_does_nothing() {
    let facts = [
        bare("start-step"),
        bare("reset-step"),
        text("0", "kept"),
        chunk("text-end", json!({"id": "0"})),
        bare("finish-step"),
        bare("start-step"),
        text("0", "voided"),
        call("c"),
        bare("reset-step"),
        text("0", "again"),
    ];
    let drafts = adapt(facts);
    assert_eq!(
        said(&drafts),
        ["text.delta 1 kept", "text.final 1 -", "text.delta 2 voided", "text.final 2 ", "text.delta 3 again"]
    );
    let failed = find(&drafts, EventType::ToolFailed);
    assert_eq!((&failed.payload.to_value()["neverStarted"], &failed.phase), (&json!(true), &Phase::Cancelled));
}

// ── calls ──

#[test]
fn a_call_shows_its_whole_input_to_users_and_the_streamed_one_to_operators() {
    let facts = [
        chunk(
            "tool-input-start",
            json!({"toolCallId": "c", "toolName": "t", "title": "T", "dynamic": true, "toolMetadata": {"x": 1}}),
        ),
        chunk("tool-input-delta", json!({"toolCallId": "c", "inputTextDelta": "{\"a\""})),
        chunk("tool-input-available", json!({"toolCallId": "c", "toolName": "t", "input": {"a": 1}})),
        output("c", json!(null)),
    ];
    let drafts = adapt(facts);
    let [_, started, metadata, streamed, whole, result] = &drafts[..] else { panic!("{:?}", classes(&drafts)) };
    assert_eq!(payload(started), json!({"title": "T", "dynamic": true, "toolName": "t", "state": "input-streaming"}));
    assert_eq!((&started.owner, started.audience, metadata.audience), (&Owner::Model, Audience::User, Audience::Internal));
    assert_eq!((streamed.audience, whole.audience), (Audience::Dashboard, Audience::User));
    assert_eq!(whole.payload.to_value()["input"], json!({"a": 1}));
    assert_eq!(payload(result), json!({"toolName": "t", "output": null}), "a tool may return nothing");
    assert_eq!(result.audience, Audience::User);
}

#[test]
fn the_interface_of_a_tool_is_for_users_and_the_backend_s_other_data_is_not() {
    let metadata = json!({"app": {"resourceUri": "ui://a", "mimeType": "text/html", "own": 1}, "x": 1});
    let drafts = adapt([chunk("tool-input-start", json!({"toolCallId": "c", "toolName": "t", "toolMetadata": metadata}))]);
    let [_, started, internal] = &drafts[..] else { panic!("{:?}", classes(&drafts)) };
    assert_eq!(payload(started)["app"], json!({"resourceUri": "ui://a", "mimeType": "text/html"}));
    assert_eq!(payload(internal)["toolMetadata"], json!({"app": {"own": 1}, "x": 1}));
    let odd = json!({"app": {"resourceUri": 7}});
    let drafts = adapt([chunk("tool-input-start", json!({"toolCallId": "c", "toolName": "t", "toolMetadata": odd}))]);
    assert_eq!((payload(&drafts[1]).get("app"), &payload(&drafts[2])["toolMetadata"]), (None, &odd));
}

#[test]
fn preliminary_outputs_replace_each_other_and_only_the_final_one_ends_the_call() {
    let preliminary =
        |output: Value| chunk("tool-output-available", json!({"toolCallId": "c", "output": output, "preliminary": true}));
    let drafts =
        adapt([call("c"), preliminary(json!({"progress": 0.5})), preliminary(json!("almost")), output("c", json!("almost"))]);
    let outputs: Vec<_> = drafts.iter().filter(|draft| draft.payload.contains_key("activityType")).map(payload).collect();
    let expected = [
        json!({"activityType": "tool-output", "content": {"progress": 0.5}, "replace": true, "progress": 0.5}),
        json!({"activityType": "tool-output", "content": {"value": "almost"}, "replace": true}),
    ];
    assert_eq!(outputs, expected);
    assert_eq!(count(&drafts, &EventType::ToolResult), 1);
    let reports = drafts.iter().filter(|d| d.event_type == EventType::ToolProgress && !d.payload.contains_key("activityType"));
    assert_eq!(reports.map(payload).collect::<Vec<_>>(), [json!({"progress": 0.5})]);
}

#[test]
fn a_sub_agents_message_loses_the_providers_data() {
    let message = json!({"id": "", "role": "assistant", "parts": [{"type": "text", "text": "x", "providerMetadata": {"p": 1}}], "metadata": {"cost": 1}});
    let drafts = adapt([call("c"), output("c", message)]);
    let shown = &find(&drafts, EventType::ToolResult).payload.to_value()["output"];
    assert_eq!(*shown, json!({"id": "", "role": "assistant", "parts": [{"type": "text", "text": "x"}]}));
    let internal = drafts.last().unwrap();
    assert_eq!(
        (internal.audience, &internal.payload.to_value()["output"]),
        (Audience::Internal, &json!([{"providerMetadata": {"p": 1}}, {"metadata": {"cost": 1}}]))
    );
}

#[test]
fn an_output_of_an_unknown_call_waits_for_its_input() {
    let drafts = adapt([start("m"), output("c", json!(1)), chunk("tool-output-denied", json!({"toolCallId": "d"}))]);
    assert_eq!(classes(&drafts), ["run.started accepted", "tool.result completed", "tool.failed cancelled"]);
    let finish = chunk("finish", json!({"finishReason": "tool-calls"}));
    let drafts = adapt([start("m"), output("c", json!(1)), call("c"), finish]);
    assert_eq!(ends(&drafts), ["run.finished completed"], "nothing waits for a call that has its output");
}

#[test]
fn an_invalid_input_fails_once() {
    let invalid = chunk("tool-input-error", json!({"toolCallId": "c", "toolName": "t", "input": "{\"a", "errorText": "no JSON"}));
    let repeated = chunk("tool-output-error", json!({"toolCallId": "c", "errorText": "no JSON"}));
    let drafts = adapt([start("m"), invalid, repeated.clone(), call("c"), repeated]);
    let failures: Vec<_> = drafts.iter().filter(|draft| draft.event_type == EventType::ToolFailed).map(payload).collect();
    assert_eq!(failures.len(), 2, "the second call with the id ran and failed");
    assert_eq!(failures[0], json!({"error": {"message": "no JSON"}, "toolName": "t", "neverStarted": true}));
    assert_eq!(
        find(&drafts, EventType::ToolArgs).payload.to_value()["input"],
        "{\"a",
        "the input that was sent stays the call's"
    );
}

// ── pauses ──

#[test]
fn a_pending_approval_makes_the_finish_a_pause_whatever_its_reason() {
    for reason in ["stop", "tool-calls"] {
        let drafts = adapt([start("m"), call("c"), asks("a", "c"), finish(reason)]);
        assert!(ends(&drafts).is_empty());
        assert_eq!(
            (drafts.last().unwrap().event_type.clone(), drafts.last().unwrap().phase.clone()),
            (EventType::RunStatus, Phase::Waiting)
        );
    }
    let drafts = adapt([
        start("m"),
        call("c"),
        chunk("tool-approval-request", json!({"approvalId": "a", "toolCallId": "c", "reason": "home", "signature": "sig"})),
    ]);
    let asked = find(&drafts, EventType::ActionRequired);
    assert_eq!(payload(asked), json!({"kind": "tool_approval", "message": "home"}));
    assert_eq!((asked.ids.action.clone(), asked.ids.tool_call.as_ref().unwrap().as_str()), (ActionId::new("a").ok(), "c"));
    assert_eq!(
        (drafts.last().unwrap().audience, &drafts.last().unwrap().payload.to_value()["signature"]),
        (Audience::Internal, &json!("sig"))
    );
}

#[test]
fn an_output_or_a_denial_shows_the_decision() {
    for (answer, outcome) in [
        (output("c", json!(1)), "approved"),
        (chunk("tool-output-available", json!({"toolCallId": "c", "output": 1, "preliminary": true})), "approved"),
        (chunk("tool-output-error", json!({"toolCallId": "c", "errorText": "no"})), "approved"),
        (chunk("tool-output-denied", json!({"toolCallId": "c"})), "rejected"),
        (chunk("tool-approval-response", json!({"approvalId": "a", "approved": false})), "rejected"),
    ] {
        let drafts = adapt([
            start("m"),
            call("c"),
            asks("a", "c"),
            finish("tool-calls"),
            start("m"),
            answer,
            bare("start-step"),
            finish("stop"),
        ]);
        let resolved = find(&drafts, EventType::ActionResolved);
        assert_eq!(resolved.payload.to_value()["outcome"], outcome);
        assert_eq!(count(&drafts, &EventType::ActionResolved), 1);
        let resumed = drafts.iter().filter(|draft| draft.payload.to_value().get("resumed") == Some(&json!(true)));
        assert_eq!(resumed.map(|draft| draft.phase.clone()).collect::<Vec<_>>(), [Phase::Acting]);
    }
}

#[test]
fn an_automatic_decision_asks_nobody() {
    let asks = chunk("tool-approval-request", json!({"approvalId": "a", "toolCallId": "c", "isAutomatic": true}));
    let answer = chunk("tool-approval-response", json!({"approvalId": "a", "approved": false, "reason": "system file"}));
    let drafts = adapt([call("c"), asks, answer, chunk("tool-output-denied", json!({"toolCallId": "c"})), finish("stop")]);
    assert_eq!(count(&drafts, &EventType::ActionRequired), 0);
    let decisions: Vec<_> = drafts.iter().filter(|d| d.event_type == EventType::PermissionChanged).map(payload).collect();
    let granted = json!({"permissionId": "a", "reason": "system file", "status": "denied", "approved": false});
    assert_eq!(decisions, [json!({"permissionId": "a", "status": "requested"}), granted]);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
}

#[test]
fn a_clients_tool_is_awaited_and_ends_when_the_model_works_again() {
    let drafts = adapt([start("m"), call("c"), finish("tool-calls"), start("m"), bare("start-step"), finish("stop")]);
    let awaited = drafts.iter().find(|draft| draft.payload.contains_key("awaits")).unwrap();
    assert_eq!(payload(awaited), json!({"toolName": "rm", "status": "pending", "awaits": "client"}));
    assert_eq!(payload(find(&drafts, EventType::ToolResult)), json!({"outcome": "unknown", "toolName": "rm"}));
    assert_eq!(ends(&drafts), ["run.finished completed"]);
    let drafts = adapt([start("m"), call("c"), finish("tool-calls"), text("0", "x")]);
    assert_eq!(count(&drafts, &EventType::ToolResult), 0, "a delta alone does not show an answer");
}

#[test]
fn another_message_after_a_pause_abandons_what_was_asked() {
    let drafts = adapt([
        start("m"),
        call("c"),
        asks("a", "c"),
        call("d"),
        finish("tool-calls"),
        start("n"),
        bare("start-step"),
        finish("stop"),
    ]);
    assert_eq!(find(&drafts, EventType::ActionResolved).payload.to_value()["outcome"], "cancelled");
    let codes: Vec<_> = drafts
        .iter()
        .filter(|d| d.event_type == EventType::ToolFailed)
        .map(|d| d.payload.to_value()["error"]["code"].clone())
        .collect();
    assert_eq!(codes, ["abandoned", "abandoned"]);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
}

#[test]
fn a_call_of_the_provider_is_never_awaited() {
    let call = chunk("tool-input-available", json!({"toolCallId": "c", "toolName": "t", "input": {}, "providerExecuted": true}));
    assert_eq!(ends(&adapt([call, finish("stop")])), ["run.finished completed"]);
}

// ── the rest ──

#[test]
fn sources_and_citations_are_evidence_of_their_message() {
    let facts = [
        start("m"),
        chunk("source-url", json!({"sourceId": "s", "url": "https://e.example/", "title": "E", "providerMetadata": {"p": 1}})),
        text("0", "x"),
        chunk(
            "text-end",
            json!({"id": "0", "citations": [{"source": {"id": "s", "url": "https://e.example/"}, "startIndex": 0, "endIndex": 1, "citedText": "x"}]}),
        ),
    ];
    let drafts = adapt(facts);
    let evidence: Vec<_> = drafts.iter().filter(|draft| draft.event_type == EventType::EvidenceChanged).collect();
    assert_eq!(evidence[0].ids.evidence.as_ref().unwrap().as_str(), "m/s");
    assert_eq!(payload(evidence[0]), json!({"kind": "source-url", "sourceId": "s", "url": "https://e.example/", "title": "E"}));
    let citation = json!({"kind": "citation", "url": "https://e.example/", "range": {"startIndex": 0, "endIndex": 1}, "summary": "x", "sourceId": "s"});
    assert_eq!(payload(evidence[1]), citation);
}

#[test]
fn a_file_is_an_artifact_with_its_bytes_apart() {
    let file = |name: &str, url: &str| chunk(name, json!({"mediaType": "image/png", "url": url}));
    let drafts =
        adapt([start("m"), file("file", "data:image/png;base64,AA=="), file("reasoning-file", "https://e.example/a.png")]);
    assert_eq!(payload(&drafts[1]), json!({"kind": "file", "mediaType": "image/png", "body": "data:image/png;base64,AA=="}));
    assert_eq!(
        payload(&drafts[2]),
        json!({"kind": "reasoning-file", "mediaType": "image/png", "url": "https://e.example/a.png"})
    );
    assert_eq!((&drafts[1].surface, &drafts[2].surface), (&Surface::ArtifactWorkspace, &Surface::InlineProcess));
    assert_ne!(drafts[1].ids.artifact, drafts[2].ids.artifact);
}

#[test]
fn data_with_one_id_replaces_itself_and_transient_data_is_in_no_activity() {
    let facts = [
        chunk("data-log", json!({"id": "a", "data": "one"})),
        chunk("data-log", json!({"id": "a", "data": "two"})),
        chunk("data-log", json!({"data": "three"})),
        chunk("data-log", json!({"data": {"n": 4}, "transient": true})),
    ];
    let drafts = adapt(facts);
    let ids: Vec<_> = drafts[1..4].iter().map(|draft| draft.ids.message.as_ref().unwrap().as_str()).collect();
    assert_eq!(ids, ["data-log/a", "data-log/a", "data-log-1"]);
    assert_eq!(payload(&drafts[2]), json!({"activityType": "data-log", "content": {"value": "two"}, "replace": true}));
    assert_eq!((&drafts[4].event_type, drafts[4].audience), (&EventType::DiagnosticChanged, Audience::User));
}

#[test]
fn metadata_is_for_operators_and_its_usage_is_a_total() {
    let metadata =
        |usage: u64| json!({"messageMetadata": {"costUsd": 1, "totalUsage": {"inputTokens": usage, "outputTokens": 1}}});
    let drafts = adapt([start("m"), chunk("message-metadata", metadata(10)), chunk("finish", metadata(25))]);
    let usages: Vec<_> = drafts
        .iter()
        .filter(|d| d.event_type == EventType::MetricChanged)
        .map(|d| d.payload.to_value()["usage"].clone())
        .collect();
    assert_eq!(usages, [json!({"inputTokens": 10, "outputTokens": 1}), json!({"inputTokens": 15})]);
    assert!(drafts[1..drafts.len() - 1].iter().all(|draft| draft.audience == Audience::Dashboard), "{:?}", classes(&drafts));
}

#[test]
fn a_steering_message_is_the_users() {
    let parts = json!([{"type": "text", "text": "In French"}, {"type": "file", "mediaType": "text/plain", "url": "data:,x", "filename": "x"}]);
    let drafts = adapt([start("m"), chunk("steering-message", json!({"id": "u", "parts": parts}))]);
    assert_eq!(payload(&drafts[1]), json!({"role": "user", "text": "In French", "kind": "user_text"}));
    assert_eq!(drafts[1].ids.message.as_ref().unwrap().as_str(), "u");
    assert_eq!((drafts[2].text("title"), drafts[2].ids.message.clone()), (Some("x"), drafts[1].ids.message.clone()));
}

#[test]
fn unknown_chunks_and_chunks_without_a_member_stay_whole_for_internal_readers() {
    let facts =
        [bare("of-tomorrow"), chunk("text-delta", json!({"id": "0"})), chunk("tool-output-available", json!({})), bare("data-")];
    for draft in adapt(facts) {
        assert_eq!((draft.event_type, draft.audience), (EventType::DiagnosticChanged, Audience::Internal));
    }
    let drafts = adapt([chunk("start", json!({"messageId": "m", "x": 1}))]);
    assert_eq!(drafts[0].extra["x"], 1, "an unknown member is carried");
    assert!((SOURCE.parse)(object(json!({"delta": "x"}))).is_err());
}

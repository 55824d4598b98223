//! Tests of calls and gates.

use super::*;

#[test]
fn a_call_goes_from_request_to_result() {
    let partial = functional("toolCall", json!({"id": "k", "tool": "", "checksum": "", "isComplete": false, "isError": false}));
    let drafts = adapt([
        partial,
        call("k", "rm", "c"),
        call("k", "rm", "c"),
        done("k", false, json!("gone")),
        done("k", false, json!("again")),
    ]);
    let seen: Vec<_> = drafts.iter().map(|d| format!("{} {} {}", d.event_type, d.owner, d.audience)).collect();
    let expected =
        ["tool.started model user", "tool.args model user", "tool.result tool user", "diagnostic.changed diagnostics internal"];
    assert_eq!(seen, expected);
    assert!(drafts.iter().all(|d| call_of(d) == "k"));
    assert_eq!((payload(&drafts[0]), &drafts[0].refs), (json!({}), &None));
    assert_eq!(payload(&drafts[1]), json!({"toolName": "rm", "input": {"path": "/"}}));
    assert_eq!(drafts[1].refs, Some(json!({"checksum": "c"})));
    assert_eq!(payload(&drafts[2]), json!({"toolName": "rm", "status": "completed", "output": "gone"}));
    assert_eq!(drafts[3].payload.to_value()["kind"], "write_after_seal");
}

#[test]
fn arguments_replace_earlier_ones() {
    let with = |args: Value| functional("toolCall", json!({"id": "k", "tool": "rm", "args": args, "isComplete": false}));
    let drafts = adapt([with(json!({"p": "a"})), with(json!({"p": "ab"})), done("k", false, json!("ok"))]);
    assert_eq!(
        classes(&drafts),
        ["tool.started acting", "tool.args acting", "tool.args acting", "tool.args acting", "tool.result completed"]
    );
    let inputs: Vec<_> =
        drafts.iter().filter_map(|d| d.payload.as_fact::<proscenium_model::CallFact>()?.input.as_deref()).collect();
    assert_eq!(inputs, [&json!({"p": "a"}), &json!({"p": "ab"}), &json!({"path": "/"})]);
}

#[test]
fn a_call_whose_first_event_is_complete_starts_and_ends() {
    let drafts = adapt([done("k", true, json!("Unknown tool \"nope\""))]);
    assert_eq!(classes(&drafts), ["tool.started acting", "tool.args acting", "tool.failed failed"]);
    assert_eq!(payload(&drafts[2]), json!({"toolName": "rm", "error": {"message": "Unknown tool \"nope\""}}));
}

#[test]
fn a_result_is_placed_by_its_form() {
    let outputs = |results: Value| adapt([done("k", false, results)]).split_off(2);
    assert_eq!(outputs(json!("text"))[0].payload.to_value()["output"], "text");
    let elsewhere = outputs(json!({}));
    let note = json!({"kind": "spooled_artifact", "available": false});
    assert_eq!((elsewhere[0].payload.to_value().get("output"), &elsewhere[0].payload.to_value()["outputRef"]), (None, &note));
    assert_eq!(outputs(json!(["a", {}]))[0].payload.to_value()["output"], json!(["a", note]));
    let nothing = adapt([functional("toolCall", json!({"id": "k", "tool": "rm", "isComplete": true}))]);
    assert_eq!(payload(&nothing[1]), json!({"toolName": "rm", "status": "completed"}));
    let silent = adapt([done("k", true, json!({}))]).pop().unwrap();
    let failed = json!({"toolName": "rm", "error": {"message": "the tool failed without saying why"}, "outputRef": note});
    assert_eq!(payload(&silent), failed);
    let data = json!({"n": {}, "git": {"stash": 1, "kind": "x"}});
    assert_eq!(outputs(data.clone())[0].payload.to_value()["output"], data, "a tool's own data stays unchanged");
    let lines = adapt([done("k", true, json!(["a", "b"]))]).pop().unwrap();
    assert_eq!(lines.payload.to_value()["error"]["message"], "a\nb");
}

#[test]
fn only_descriptive_members_of_a_media_file_are_for_users() {
    let media = json!({"id": "med-1", "kind": "image", "mimeType": "image/png", "filename": "a.png", "trustTier": "untrusted",
        "modalityHazard": "prompt_injection", "stash": {"k": 1}, "ofTomorrow": true});
    let reference = json!({"artifactId": "med-1", "kind": "image", "mimeType": "image/png", "filename": "a.png"});
    let handling = json!([{"artifactId": "med-1", "trustTier": "untrusted", "modalityHazard": "prompt_injection", "stash": {"k": 1}, "ofTomorrow": true}]);
    let drafts = adapt([done("k", false, media.clone())]).split_off(2);
    assert_eq!(classes(&drafts), ["tool.result completed", "diagnostic.changed unknown"]);
    assert_eq!(drafts[0].payload.to_value()["outputRef"], reference);
    assert_eq!(drafts[0].ids.artifact.as_ref().unwrap().as_str(), "med-1");
    assert_eq!(drafts[0].refs.as_ref().unwrap()["artifact"]["filename"], "a.png");
    assert_eq!(
        (drafts[1].audience, &drafts[1].payload.to_value()["media"], call_of(&drafts[1])),
        (Audience::Internal, &handling, "k")
    );
    let mixed = adapt([done("k", false, json!(["text", [media.clone()], {}, media.clone()]))]).split_off(2);
    assert_eq!(mixed[0].payload.to_value()["output"][1], json!([reference]));
    assert_eq!(mixed[1].payload.to_value()["media"].as_array().unwrap().len(), 2);
    let within = adapt([done("k", false, json!({"data": [media.clone()]}))]).split_off(2);
    assert_eq!((&within[0].payload.to_value()["output"], within.len()), (&json!({"data": [reference]}), 2));
    let failed = adapt([done("k", true, json!([media.clone()]))]).split_off(2);
    assert_eq!((&failed[0].payload.to_value()["data"], failed.len()), (&json!([reference]), 2));
    let early = functional("toolCall", json!({"id": "k", "tool": "rm", "results": media, "isComplete": false}));
    let early = adapt([early]);
    assert_eq!((&early[1].payload.to_value()["kind"], early[1].audience), (&json!("results_before_end"), Audience::Internal));
    for draft in [&drafts[0], &mixed[0], &within[0], &failed[0], &early[0]] {
        let shown = format!("{:?} {:?} {:?}", draft.payload, draft.refs, draft.extra);
        assert!(["trustTier", "modalityHazard", "stash", "ofTomorrow"].iter().all(|hidden| !shown.contains(hidden)), "{shown}");
    }
}

#[test]
fn an_execution_belongs_to_the_first_matching_call_and_does_not_end_it() {
    let facts = [
        call("one", "rm", "c"),
        call("two", "rm", "c"),
        executes("c"),
        executes("c"),
        executed("c"),
        executed("c"),
        executed("c"),
    ];
    let drafts = adapt(facts).split_off(4);
    let seen: Vec<_> = drafts.iter().map(|d| format!("{} {}", d.event_type, call_of(d))).collect();
    let expected = ["metric.changed one", "metric.changed two", "metric.changed one", "metric.changed two", "metric.changed -"];
    assert_eq!(seen, expected);
    assert_eq!(
        payload(&drafts[2]),
        json!({"name": "tool_execution", "kind": "ended", "toolName": "rm", "durationMs": 5, "isError": false})
    );
    let expected = json!({"name": "tool_execution", "kind": "started", "toolName": "rm", "input": {"path": "/"}});
    assert_eq!(payload(&drafts[0]), expected);
    assert_eq!(drafts[2].refs, Some(json!({"checksum": "c", "dispatchContextId": "context"})));
    assert!(drafts.iter().all(|d| d.audience == Audience::Dashboard && d.surface == Surface::Diagnostics));
    assert!(drafts.iter().all(|d| d.ids.turn.is_none()), "a dispatch context's id is not a turn id");
}

#[test]
fn a_gate_s_reason_sets_the_action_kind() {
    let ask = |reason: &str| last([start("t"), gate("g", reason, json!({"message": "Sure?", "options": ["yes"], "note": 1}))]);
    for (reason, kind, owner) in [
        ("tool_approval", "tool_approval", Owner::Policy),
        ("clarification", "clarification", Owner::Action),
        ("pick_a_colour", "structured_input", Owner::Action),
    ] {
        let draft = ask(reason);
        assert_eq!((draft.event_type.clone(), draft.owner.clone()), (EventType::ActionRequired, owner));
        assert_eq!(draft.ids.action.as_ref().unwrap().as_str(), "g");
        let expected = json!({"kind": kind, "reason": reason, "message": "Sure?", "options": ["yes"], "payload": {"note": 1}});
        assert_eq!((payload(&draft), draft.extra.is_empty()), (expected, true));
    }
}

#[test]
fn a_gate_is_resolved_by_its_id() {
    let answer = |reason: &str, result: &str| {
        let drafts = adapt([start("t"), gate("g", reason, Value::Null), closed("g", result)]);
        assert_eq!((&drafts[2].ids.action, drafts[2].owner.clone()), (&drafts[1].ids.action, drafts[1].owner.clone()));
        assert_eq!(drafts[2].payload.to_value()["result"], result);
        format!("{} {}", drafts[2].payload.to_value()["outcome"].as_str().unwrap(), drafts[2].phase)
    };
    for (reason, result, expected) in [
        ("tool_approval", "resolved", "approved acting"),
        ("clarification", "resolved", "answered acting"),
        ("tool_approval", "rejected", "rejected acting"),
        ("clarification", "rejected", "rejected acting"),
        ("tool_approval", "aborted", "cancelled cancelled"),
        ("tool_approval", "timeout", "expired failed"),
        ("tool_approval", "of_tomorrow", "unknown acting"),
    ] {
        assert_eq!(answer(reason, result), expected, "{reason} {result}");
    }
    assert_eq!(last([closed("g", "resolved")]).payload.to_value()["outcome"], "answered", "the open event was missed");
}

#[test]
fn a_gate_belongs_to_the_call_that_its_opener_names_or_to_the_running_one() {
    let about = |facts: Vec<Value>, opener: Value| {
        let draft = last([start("t")].into_iter().chain(facts).chain([gate("g", "tool_approval", opener)]));
        call_of(&draft).to_owned()
    };
    let [one, two, other] = [call("one", "rm", "c"), call("two", "rm", "d"), call("other", "ls", "e")];
    let three = || vec![one.clone(), two.clone(), other.clone()];
    assert_eq!(about(three(), json!({"toolCallId": "two"})), "two");
    assert_eq!(about(three(), json!({"toolCallId": "unheard"})), "unheard");
    assert_eq!(about(three(), json!({"callId": "c"})), "one");
    assert_eq!(about(three(), json!({"tool": "ls", "args": {}})), "other", "no execution is required");
    assert_eq!(about(three(), json!({"tool": "rm"})), "-");
    assert_eq!(about(three(), json!({})), "-");
    let running = || three().into_iter().chain([executes("d")]).collect::<Vec<_>>();
    assert_eq!(about(running(), json!({"tool": "rm"})), "two");
    assert_eq!(about(running(), json!({})), "two");
    assert_eq!(about(running(), json!({"tool": "cp"})), "-", "the running call is another tool's");
    let over = || running().into_iter().chain([executed("d")]).collect::<Vec<_>>();
    assert_eq!(about(over(), json!({})), "-");
    let drafts = adapt([
        start("t"),
        one,
        gate("g", "tool_approval", json!({"toolCallId": "one", "tool": "rm", "args": {"p": 1}, "risk": "high"})),
        closed("g", "resolved"),
    ]);
    let expected =
        json!({"kind": "tool_approval", "reason": "tool_approval", "toolName": "rm", "input": {"p": 1}, "risk": "high"});
    assert_eq!((payload(&drafts[3]), call_of(&drafts[4])), (expected, "one"));
}

#[test]
fn a_tool_failure_during_an_abort_is_a_cancellation() {
    let facts = [
        start("t"),
        call("k", "rm", "c"),
        gate("g", "tool_approval", json!({})),
        closed("g", "aborted"),
        done("k", true, json!("stopped")),
    ];
    let draft = last(facts);
    assert_eq!(
        (draft.phase.clone(), &draft.payload.to_value()["error"]),
        (Phase::Cancelled, &json!({"code": "cancelled", "message": "stopped"}))
    );
    let timeout = [
        start("t"),
        call("k", "rm", "c"),
        gate("g", "tool_approval", json!({})),
        closed("g", "timeout"),
        done("k", true, json!("late")),
    ];
    assert_eq!(last(timeout).phase, Phase::Failed);
    let late = last([start("t"), call("k", "rm", "c"), dispatch_end("aborted"), end("t"), done("k", true, json!("x"))]);
    assert_eq!((late.event_type, late.phase), (EventType::ToolFailed, Phase::Cancelled));
}

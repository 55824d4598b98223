//! Tests of calls, actions and histories.

use super::*;

// ── tool calls ──

#[test]
fn a_call_goes_from_request_to_a_result_with_unknown_outcome() {
    let drafts = adapt(call("c").into_iter().chain([result("c")]));
    let seen: Vec<_> = drafts.iter().map(|d| format!("{} {} {} {}", d.event_type, d.owner, d.audience, d.persistence)).collect();
    let expected = [
        "tool.started model user archive",
        "tool.args model user ephemeral_live",
        "tool.args model user archive",
        "tool.result tool user archive",
    ];
    assert_eq!(seen, expected);
    assert_eq!((payload(&drafts[0]), message_of(&drafts[0])), (json!({"toolName": "rm"}), "m"));
    assert_eq!(payload(&drafts[1]), json!({"inputText": "{}"}));
    assert_eq!(payload(&drafts[2]), json!({"state": "input-available", "inputTextBytes": 2}));
    assert_eq!(payload(&drafts[3]), json!({"outcome": "unknown", "toolName": "rm", "output": "gone", "role": "tool"}));
    assert_eq!(message_of(&drafts[3]), "r");
}

#[test]
fn a_result_that_reads_like_a_failure_is_a_result_and_content_parts_are_kept() {
    for content in [json!("Error: disk full"), json!("{\"error\":\"no\"}"), json!([{"type": "text", "text": "3 hits"}])] {
        let draft = last([event("TOOL_CALL_RESULT", json!({"messageId": "", "toolCallId": "c", "content": content}))]);
        assert_eq!((draft.event_type.clone(), draft.phase.clone()), (EventType::ToolResult, Phase::Completed));
        assert_eq!(payload(&draft), json!({"outcome": "unknown", "output": content}));
        assert_eq!(draft.ids.message, None, "Awaken writes no id as an empty one");
    }
}

#[test]
fn arguments_after_their_end_are_flagged_and_a_second_start_accepts_them() {
    let late = || event("TOOL_CALL_ARGS", json!({"toolCallId": "c", "delta": "x"}));
    let flagged = last(call("c").into_iter().chain([late()]));
    assert_eq!((&flagged.payload.to_value()["kind"], flagged.ids.tool_call.unwrap().as_str()), (&json!("write_after_seal"), "c"));
    assert_eq!(last(call("c").into_iter().chain([result("c"), late()])).payload.to_value()["kind"], "write_after_seal");
    let [begin, ..] = call("c");
    assert_eq!(last(call("c").into_iter().chain([result("c"), begin, late()])).payload.to_value(), json!({"inputText": "x"}));
}

#[test]
fn a_call_without_a_start_is_accepted() {
    let [_, args, end] = call("c");
    assert_eq!(classes(&adapt([args.clone(), end.clone()])), ["tool.args acting", "tool.args acting"]);
    assert_eq!(classes(&adapt([end, finish("r")])), ["tool.args acting", "tool.progress acting", "run.finished completed"]);
    assert_eq!(
        classes(&adapt([args, finish("r")])),
        ["tool.args acting", "run.finished completed"],
        "its arguments were never complete"
    );
}

#[test]
fn a_call_without_a_result_when_its_run_ends_well_waits_for_the_client() {
    let drafts = adapt([start("r")].into_iter().chain(call("c")).chain(call("d")).chain([result("d"), finish("r")]));
    let waits = of_class(&drafts, EventType::ToolProgress);
    assert_eq!(waits.len(), 1);
    assert_eq!(call_of(waits[0]), "c");
    assert_eq!(payload(waits[0]), json!({"status": "pending", "awaits": "client", "toolName": "rm"}));
    assert_eq!((waits[0].audience, waits[0].persistence.as_str()), (Audience::User, "snapshot"));
    for bad in [finish_as("r", json!({"type": "cancelled"})), event("RUN_ERROR", json!({"message": "x"}))] {
        let drafts = adapt([start("r")].into_iter().chain(call("c")).chain([bad]));
        assert!(of_class(&drafts, EventType::ToolProgress).is_empty());
    }
}

#[test]
fn a_run_that_names_its_pending_calls_awaits_only_those() {
    let outcome = json!({"type": "success", "pendingToolCallIds": ["d", "unheard-of"]});
    let drafts = adapt(call("c").into_iter().chain(call("d")).chain([finish_as("r", outcome)]));
    let waits: Vec<_> =
        of_class(&drafts, EventType::ToolProgress).iter().map(|d| d.ids.tool_call.clone().unwrap().to_string()).collect();
    assert_eq!(waits, ["d", "unheard-of"]);
    assert_eq!(drafts.last().unwrap().payload.to_value()["pendingToolCallIds"], json!(["d", "unheard-of"]));
}

#[test]
fn the_client_s_answer_among_a_later_run_s_messages_ends_the_call_once() {
    let input = json!({"messages": [
        {"id": "u", "role": "user", "content": "hi"},
        {"id": "x", "role": "tool", "toolCallId": "unheard-of", "content": "?"},
        {"id": "a", "role": "tool", "toolCallId": "c", "content": "blue"},
        {"id": "b", "role": "tool", "toolCallId": "d", "content": "", "error": "denied"},
    ]});
    let again = || event("RUN_STARTED", json!({"runId": "s", "input": input}));
    let drafts = adapt(call("c").into_iter().chain(call("d")).chain([finish("r"), again(), finish("s"), again()]));
    let answered = of_class(&drafts, EventType::ToolResult);
    assert_eq!(answered.len(), 1);
    assert_eq!(payload(answered[0]), json!({"outcome": "unknown", "toolName": "rm", "output": "blue"}));
    assert_eq!(message_of(answered[0]), "a");
    let failed = of_class(&drafts, EventType::ToolFailed);
    assert_eq!(
        (failed.len(), &failed[0].payload.to_value()["error"]),
        (1, &json!({"message": "denied"})),
        "the message has an error member"
    );
    assert_eq!(of_class(&drafts, EventType::ToolProgress).len(), 2, "a waiting call is reported once");
}

#[test]
fn a_call_open_at_an_interrupt_does_not_await_the_client() {
    let ask = asks("r", json!([{"id": "i", "reason": "confirmation", "toolCallId": "c"}]));
    let drafts = adapt(call("c").into_iter().chain([ask, start("s"), finish("s")]));
    assert!(of_class(&drafts, EventType::ToolProgress).is_empty());
    assert_eq!(of_class(&drafts, EventType::ActionRequired)[0].payload.to_value()["toolName"], "rm");
}

// ── asking and answering ──

#[test]
fn each_interrupt_is_an_action_and_the_run_waits() {
    let ask = asks(
        "r",
        json!([
            {"id": "i", "reason": "tool_call", "message": "Sure?", "toolCallId": "c", "responseSchema": {"type": "object"},
             "expiresAt": "2026-12-31T23:59:59Z", "ofTomorrow": 1},
            {"id": "j", "reason": "tool_approval", "subagentRunId": "kid", "message": null},
            {"reason": "input_required"},
        ]),
    );
    let drafts = adapt([start("r"), ask]);
    let expected = ["action.required waiting", "action.required waiting", "action.required waiting", "run.status waiting"];
    assert_eq!(classes(&drafts)[1..], expected);
    let first = json!({"kind": "tool_approval", "reason": "tool_call", "message": "Sure?", "schema": {"type": "object"},
        "expiresAt": "2026-12-31T23:59:59Z", "ofTomorrow": 1});
    assert_eq!((payload(&drafts[1]), drafts[1].owner.clone()), (first, Owner::Policy));
    assert_eq!((drafts[1].ids.action.as_ref().unwrap().as_str(), call_of(&drafts[1])), ("i", "c"));
    assert_eq!(
        (payload(&drafts[2]), drafts[2].owner.clone()),
        (json!({"kind": "tool_approval", "reason": "tool_approval"}), Owner::Policy)
    );
    assert_eq!(agent_of(&drafts[2]), "kid");
    assert_eq!(drafts[4].ids.agent, None);
    assert_eq!(drafts[4].payload.to_value()["status"], "waiting");
    assert_eq!(drafts[4].persistence.as_str(), "snapshot");
}

#[test]
fn an_interrupt_without_an_id_gets_a_generated_id() {
    let drafts = adapt([asks("r", json!([{"reason": "a"}, {"id": "", "reason": "b"}, "odd"]))]);
    let ids: Vec<_> = drafts.iter().filter_map(|d| Some(d.ids.action.as_ref()?.to_string())).collect();
    assert_eq!(ids, ["ag-ui-action-1", "ag-ui-action-2"]);
    assert_eq!(
        drafts.last().unwrap().payload.to_value()["interrupt2"],
        "odd",
        "a value that is no interrupt stays in the payload"
    );
}

fn resume(entries: Value) -> Value {
    event("RUN_STARTED", json!({"threadId": "t", "runId": "s", "parentRunId": "elsewhere", "input": {"resume": entries}}))
}

#[test]
fn answers_come_before_the_next_run_s_start() {
    let ask = asks(
        "r",
        json!(["a", "b", "c", "d", "e"].map(|id| json!({"id": id, "reason": "x", "toolCallId": format!("call-{id}")}))),
    );
    let entries = json!([
        {"interruptId": "a", "status": "resolved", "payload": {"approved": true}},
        {"interruptId": "b", "status": "resolved", "payload": {"approved": false, "reason": "no"}},
        {"interruptId": "c", "status": "resolved", "payload": "blue"},
        {"interruptId": "d", "status": "cancelled"},
        {"interruptId": "unheard-of", "status": "resolved"},
    ]);
    let drafts = adapt([start("r"), ask, resume(entries.clone())]);
    let after: Vec<_> = drafts[7..].to_vec();
    let expected = [
        "action.resolved acting",
        "action.resolved acting",
        "action.resolved acting",
        "action.resolved acting",
        "run.started accepted",
        "diagnostic.changed unknown",
    ];
    assert_eq!(classes(&after), expected, "one action has no answer, and one answer has no action");
    let outcomes: Vec<_> = after[..4].iter().map(payload).collect();
    let expected = [
        json!({"outcome": "approved", "value": {"approved": true}}),
        json!({"outcome": "rejected", "value": {"approved": false, "reason": "no"}}),
        json!({"outcome": "answered", "value": "blue"}),
        json!({"outcome": "cancelled"}),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(call_of(&after[0]), "call-a");
    assert_eq!(after[4].refs, Some(json!({"runId": "s", "parentRunId": "elsewhere"})));
    assert_eq!(after[5].payload.to_value()["input"]["resume"], entries, "the unknown answer stays in the input");
    assert_eq!(after[5].audience, Audience::Internal);
}

#[test]
fn a_continuation_of_an_interrupted_run_resolves_its_actions() {
    let next = |parent: Value| event("RUN_STARTED", json!({"runId": "s", "parentRunId": parent}));
    let ask = || asks("r", json!([{"id": "i", "reason": "x"}]));
    let resolved = |parent: Value| of_class(&adapt([start("r"), ask(), next(parent)]), EventType::ActionResolved).len();
    assert_eq!((resolved(json!("r")), resolved(json!("q")), resolved(Value::Null)), (1, 0, 0));
    let later =
        adapt([start("r"), ask(), next(Value::Null), finish("s"), resume(json!([{"interruptId": "i", "status": "cancelled"}]))]);
    assert_eq!(of_class(&later, EventType::ActionResolved).len(), 1, "another run left it open");
}

#[test]
fn answers_are_read_from_a_start_without_memory() {
    let entries = json!([
        {"interruptId": "a", "status": "resolved", "payload": {"approved": true}},
        {"interruptId": "b", "status": "cancelled", "payload": null},
        {"interruptId": "c", "status": "of_tomorrow"},
        {"interruptId": "", "status": "resolved"},
        {"status": "resolved"},
        7,
    ]);
    let expected = [("a", "approved", Some(json!({"approved": true}))), ("b", "cancelled", None)].map(|(id, outcome, value)| {
        ActionAnswer { action: id.parse().unwrap(), session: SessionId::new("t").ok(), outcome, value }
    });
    let answers = |fact: Value| (SOURCE.parse)(object(fact)).ok().unwrap().answers;
    assert_eq!(answers(resume(entries.clone())), expected);
    let mut other = resume(entries);
    other[TYPE] = "CUSTOM".into();
    assert_eq!(answers(other), []);
    assert_eq!(answers(start("r")), []);
    assert_eq!(answers(event("RUN_STARTED", json!({"input": {"resume": 7}}))), []);
}

// ── messages ──

#[test]
fn a_messages_snapshot_is_a_window_in_the_protocol_s_shape() {
    let messages = json!([
        {"id": "u", "role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "url": "/i"}], "name": "Ann"},
        {"id": "a", "role": "assistant", "content": "so", "toolCalls": null, "encryptedValue": null},
        {"id": "s", "role": "system", "content": "be nice"},
        {"role": "user", "content": null},
        "odd",
    ]);
    let drafts = adapt([event("MESSAGES_SNAPSHOT", json!({"messages": messages}))]);
    let shaped = json!([
        {"messageId": "u", "role": "user", "parts": [{"partId": "text", "kind": "user_text", "text": ["look"]},
         {"partId": "image-2", "kind": "image", "url": "/i"}], "name": "Ann"},
        {"messageId": "a", "role": "assistant", "parts": [{"partId": "text", "kind": "assistant_text", "text": ["so"]}]},
        {"messageId": "s", "role": "system", "parts": [{"partId": "text", "kind": "diagnostic", "text": ["be nice"]}]},
        {"messageId": "ag-ui-message-1", "role": "user", "parts": []},
        "odd",
    ]);
    assert_eq!(drafts.len(), 1);
    assert_eq!(payload(&drafts[0]), json!({"mode": "window", "messages": shaped}));
}

fn backend_tool(id: &str) -> [Value; 2] {
    [
        json!({"id": format!("m-{id}"), "role": "assistant", "toolCalls": [
            {"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"city\":\"Rome\"}"}}]}),
        json!({"id": format!("r-{id}"), "role": "tool", "toolCallId": id, "content": "sunny"}),
    ]
}

#[test]
fn calls_that_only_a_snapshot_contains_start_once_and_history_does_not_repeat() {
    let [old, old_result] = backend_tool("old");
    let [new, new_result] = backend_tool("new");
    let user = json!({"id": "u", "role": "user", "content": "and now?"});
    let snapshot = || event("MESSAGES_SNAPSHOT", json!({"messages": [old, old_result, user, new, new_result]}));
    let drafts = adapt([snapshot(), snapshot()]);
    let expected = [
        "messages.snapshot reconciling",
        "tool.started acting",
        "tool.args acting",
        "tool.result completed",
        "messages.snapshot reconciling",
    ];
    assert_eq!(classes(&drafts), expected);
    let part = json!({"partId": "new", "kind": "tool_call", "toolCallId": "new", "toolName": "look", "input": {"city": "Rome"}});
    assert_eq!(drafts[0].payload.to_value()["messages"][3], json!({"messageId": "m-new", "role": "assistant", "parts": [part]}));
    let result = json!({"messageId": "r-new", "role": "tool", "toolCallId": "new",
        "parts": [{"partId": "text", "kind": "tool_result", "text": ["sunny"], "toolCallId": "new"}]});
    assert_eq!(drafts[0].payload.to_value()["messages"][4], result);
    assert_eq!((&drafts[1].payload.to_value()["toolName"], message_of(&drafts[1])), (&json!("look"), "m-new"));
    assert_eq!(payload(&drafts[2]), json!({"input": {"city": "Rome"}}));
    assert_eq!(payload(&drafts[3]), json!({"outcome": "unknown", "toolName": "look", "output": "sunny"}));
    assert!(drafts[1..4].iter().all(|d| call_of(d) == "new"));
}

#[test]
fn after_any_number_of_calls_a_snapshot_starts_the_new_one_and_no_ended_one() {
    let many = (0..100).flat_map(|n| call(&format!("c{n}")).into_iter().chain([result(&format!("c{n}"))]));
    let [first, _] = backend_tool("c0");
    let [new, _] = backend_tool("new");
    let snapshot = event("MESSAGES_SNAPSHOT", json!({"messages": [first, new]}));
    let drafts = adapt(many.chain([snapshot]));
    let started: Vec<_> = of_class(&drafts, EventType::ToolStarted)[100..].iter().map(|draft| call_of(draft)).collect();
    assert_eq!(started, ["new"]);
}

#[test]
fn a_snapshot_s_call_without_a_result_awaits_the_client_and_a_later_snapshot_may_end_it() {
    let [ask, answer] = backend_tool("c");
    let first = event("MESSAGES_SNAPSHOT", json!({"messages": [ask]}));
    let second = event("MESSAGES_SNAPSHOT", json!({"messages": [ask, answer]}));
    let drafts = adapt([start("r"), first, finish("r"), start("s"), second]);
    assert_eq!(of_class(&drafts, EventType::ToolProgress)[0].payload.to_value()["awaits"], "client");
    assert_eq!(classes(&drafts[drafts.len() - 2..]), ["messages.snapshot reconciling", "tool.result completed"]);
}

#[test]
fn invalid_or_too_deep_json_arguments_stay_text() {
    for arguments in ["{\"half", &("[".repeat(80) + &"]".repeat(80))] {
        let call = json!({"id": "c", "function": {"name": "x", "arguments": arguments}});
        let drafts =
            adapt([event("MESSAGES_SNAPSHOT", json!({"messages": [{"id": "m", "role": "assistant", "toolCalls": [call]}]}))]);
        assert_eq!(drafts[0].payload.to_value()["messages"][0]["parts"][0]["inputText"], *arguments);
        assert_eq!(
            (&drafts[2].payload.to_value()["inputText"], &drafts[3].payload.to_value()["state"]),
            (&json!(arguments), &json!("input-available"))
        );
    }
}

#[test]
fn reasoning_and_activities_of_a_snapshot_match_their_own_events() {
    let messages = json!([
        {"id": "t", "role": "reasoning", "content": "hm", "encryptedValue": "b3BhcXVl"},
        {"id": "live", "role": "reasoning", "content": "hm"},
        {"id": "a", "role": "activity", "activityType": "plan", "content": {"n": 1}, "subagentRunId": "kid"},
        {"id": "m", "role": "assistant", "content": "x", "metadata": {"k": 1}, "subagentRunId": "kid"},
    ]);
    let live = event("REASONING_MESSAGE_CONTENT", json!({"messageId": "live", "delta": "hm"}));
    let drafts = adapt([live, event("MESSAGES_SNAPSHOT", json!({"messages": messages}))]);
    assert_eq!(
        classes(&drafts)[1..],
        ["messages.snapshot reconciling", "reasoning.summary reasoning", "state.snapshot acting", "diagnostic.changed unknown"]
    );
    let kid = json!({"messageId": "m", "role": "assistant", "agentId": "kid", "parts": [{"partId": "text", "kind": "assistant_text", "text": ["x"]}]});
    assert_eq!(drafts[1].payload.to_value()["messages"], json!([kid]));
    assert_eq!(texts(&drafts)[2], "reasoning.summary t/reasoning hm");
    assert_eq!((payload(&drafts[3]), agent_of(&drafts[3])), (json!({"activityType": "plan", "content": {"n": 1}}), "kid"));
    let narrower = json!([{"encryptedBytes": 8, "messageId": "t"}, {"metadata": {"k": 1}, "messageId": "m"}]);
    assert_eq!((&drafts[4].payload.to_value()["messages"], drafts[4].audience), (&narrower, Audience::Internal));
}

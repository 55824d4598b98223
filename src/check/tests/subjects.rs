//! Rules on calls, texts, actions, agents and teams.

use super::*;

#[test]
pub(super) fn a_started_call_ends_unless_it_waits() {
    let begun = || tool("tool.started", json!({"toolName": "rm"}));
    assert_findings(
        "tool-never-ended",
        &[start(), begun(), finish()],
        ["2: call c (rm) is still open when the run ends with run.finished at sequence 3"],
    );
    assert_findings("tool-never-ended", &[start(), begun()], ["2: call c (rm) is still open at the end of the log"]);
    let asks = action("action.required", json!({"kind": "tool_approval", "^": {"toolCallId": "c"}}));
    assert_findings("tool-never-ended", &[start(), begun(), asks], []);
    // A log that only reports progress, as for a child's call, has no start of that call.
    assert_findings("tool-never-ended", &[start(), tool("tool.progress", json!({"progress": 0.5})), finish()], []);
    let awaits = tool("tool.progress", json!({"status": "pending", "awaits": "client"}));
    assert_findings("tool-never-ended", &[start(), begun(), awaits, finish()], []);
}

#[test]
pub(super) fn a_call_that_ends_has_a_start_or_never_started() {
    assert_findings(
        "tool-end-without-start",
        &[start(), tool("tool.result", json!({"output": 1}))],
        ["2: tool.result of call c, which never started"],
    );
    let never = tool("tool.failed", json!({"neverStarted": true, "error": {"message": "no"}}));
    assert_findings("tool-end-without-start", &[start(), never], []);
}

#[test]
pub(super) fn a_call_ends_once_per_start() {
    let end = || tool("tool.result", json!({"output": 1}));
    let begun = || tool("tool.started", json!({"toolName": "rm"}));
    assert_findings(
        "tool-ended-twice",
        &[start(), begun(), end(), end()],
        ["4: tool.result of call c (rm), which already ended at sequence 3"],
    );
    assert_findings("tool-ended-twice", &[start(), begun(), end(), begun(), end()], []);
}

#[test]
pub(super) fn a_call_has_a_name_and_its_result_an_output() {
    let facts = [start(), tool("tool.started", json!({})), tool("tool.result", json!({"durationMs": 3})), finish()];
    assert_findings("tool-without-name", &facts, ["2: tool.started of call c has no toolName"]);
    assert_findings("result-without-output", &facts, ["3: tool.result of call c has neither output nor outputRef"]);
    let stub = tool("tool.result", json!({"withheld": true}));
    assert_findings("result-without-output", &[stub], []);
}

#[test]
pub(super) fn progress_is_a_fraction_that_does_not_decrease() {
    let at = |progress: Value| tool("tool.progress", json!({"progress": progress}));
    let facts = [
        start(),
        at(json!(0.5)),
        at(json!(0.25)),
        at(json!(40)),
        at(json!("half")),
        tool("tool.started", json!({"toolName": "rm"})),
        at(json!(0.1)),
    ];
    let expected = [
        "4: progress of call c is 40, not a fraction from 0 to 1",
        "5: progress of call c is \"half\", not a fraction from 0 to 1",
    ];
    assert_findings("progress-range", &facts, expected);
    assert_findings("progress-backwards", &facts, ["3: progress of call c decreases from 0.5 to 0.25"]);
    let content = fact(
        "state.snapshot",
        json!({"activityType": "tool-call-progress", "content": {"progress": 2}, "^": {"toolCallId": "c"}}),
    );
    assert_findings("progress-range", &[content], ["1: progress of call c is 2, not a fraction from 0 to 1"]);
}

#[test]
pub(super) fn progress_after_the_end_of_a_call_is_a_note() {
    let late = tool("tool.progress", json!({"message": "warning"}));
    let mut facts = clean();
    facts.insert(12, late);
    assert_findings("progress-after-end", &facts, ["13: tool.progress of call c (rm), which ended at sequence 12"]);
    assert_eq!(report(&facts).counts, Counts { info: 1, ..Counts::default() });
}

// ── messages ──

#[test]
pub(super) fn a_stream_accepts_no_chunks_after_its_end() {
    let ends = |part: Value| fact("text.final", json!({"^": {"messageId": "m", "partId": part}}));
    let facts = [start(), delta("p", "a"), ends(json!("p")), delta("p", "b"), delta("q", "c"), ends(json!("-")), delta("r", "d")];
    let expected =
        ["4: text.delta follows the end of its message or part", "7: text.delta follows the end of its message or part"];
    assert_findings("write-after-seal", &facts, expected);
    let noted = diagnostic("write_after_seal", json!({"thing": "text:m/p", "eventType": "text.delta"}));
    assert_findings(
        "write-after-seal",
        &clean_run_with([noted]),
        ["3: the server did not apply text.delta: it follows the end of text:m/p"],
    );
    let output = tool("tool.output.delta", json!({"text": "late"}));
    assert_findings(
        "write-after-seal",
        &[tool("tool.started", json!({"toolName": "rm"})), tool("tool.result", json!({"output": 1})), output],
        ["3: tool.output.delta of call c (rm), which has ended"],
    );
}

#[test]
pub(super) fn a_final_text_equals_the_streamed_text() {
    let assert_differences = |whole: &str, expected: &[&str]| {
        let last = fact("text.final", json!({"text": whole, "^": {"messageId": "m"}}));
        let found = findings_of(&report(&[start(), delta("p", "one "), delta("q", "two"), last]), "final-text");
        let expected: Vec<String> = expected.iter().map(|text| format!("4: text.final of message m differs: {text}")).collect();
        assert_eq!(found, expected, "{whole}");
    };
    assert_differences("one two", &[]);
    assert_differences(" one two\n", &[]);
    assert_differences("one twoone two", &["it contains the streamed text twice (14 characters)"]);
    assert_differences("one two three", &["it adds 6 characters that were not streamed"]);
    assert_differences("two", &["it omits 4 of the 7 streamed characters"]);
    assert_differences("one zwei", &["it differs from the streamed text after 4 characters"]);
    // Finals of one part, of an unstreamed message, offloaded, withheld.
    let plain = [
        delta("p", "one "),
        fact("text.final", json!({"text": "one ", "^": {"messageId": "m", "partId": "p"}})),
        fact("text.final", json!({"text": "whole", "^": {"messageId": "n"}})),
        delta("q", "two"),
        fact(
            "text.final",
            json!({"text": "tw…", "^": {"messageId": "m", "partId": "q", "refs": [{"rel": "output", "member": "/payload/text"}]}}),
        ),
        delta("r", "three"),
        fact("text.final", json!({"withheld": true, "^": {"messageId": "m"}})),
    ];
    assert_findings("final-text", &plain, []);
    // A repair replaces the text streamed before it.
    let repair =
        fact("messages.snapshot", json!({"mode": "repair", "messages": [{"messageId": "m", "role": "assistant", "parts": []}]}));
    let repaired =
        [delta("p", "half"), repair, delta("q", "whole"), fact("text.final", json!({"text": "whole", "^": {"messageId": "m"}}))];
    assert_findings("final-text", &repaired, []);
    assert_findings("part-never-ended", &repaired, []);
}

#[test]
pub(super) fn a_streamed_part_ends() {
    let facts = [
        start(),
        delta("p", "a"),
        fact("plan.delta", json!({"text": "b", "^": {"messageId": "m", "partId": "x", "agentId": "kid"}})),
        finish(),
    ];
    let expected = [
        "2: text part m/p is still open when the run ends with run.finished at sequence 4",
        "3: plan part kid/m/x is still open when the run ends with run.finished at sequence 4",
    ];
    assert_findings("part-never-ended", &facts, expected);
    assert_findings("part-never-ended", &facts[..2], ["2: text part m/p is still open at the end of the log"]);
}

#[test]
pub(super) fn only_messages_have_the_conversation_surface() {
    let thought =
        fact("reasoning.delta", json!({"text": "hm", "^": {"messageId": "m", "partId": "x", "surface": "conversation"}}));
    let card = fact("artifact.created", json!({"^": {"artifactId": "a", "surface": "conversation"}}));
    assert_findings("only-text-in-conversation", &[start(), thought, card], ["2: reasoning.delta has the surface conversation"]);
    let mut chunk = delta("p", "a");
    chunk["surface"] = "tool_ui".into();
    assert_findings("text-surface", &[start(), chunk], ["2: text.delta has the surface tool_ui"]);
}

#[test]
pub(super) fn a_worker_notification_is_not_a_user_message() {
    let last = fact("text.final", json!({"role": "user", "origin": "worker", "text": "done", "^": {"messageId": "m"}}));
    let window = fact(
        "messages.snapshot",
        json!({"messages": [{"messageId": "w", "role": "user", "isWorkerNotification": true, "parts": []}]}),
    );
    let expected = ["2: text.final of a worker has the role user", "3: message w of a worker has the role user"];
    assert_findings("worker-as-user", &[start(), last, window], expected);
}

// ── actions ──

#[test]
pub(super) fn an_action_is_required_before_it_is_resolved_once() {
    let resolved = || action("action.resolved", json!({"outcome": "approved"}));
    assert_findings("action-never-required", &[start(), resolved()], ["2: action a is resolved but was never required"]);
    let required = || action("action.required", json!({"kind": "clarification", "message": "?"}));
    assert_findings(
        "action-resolved-twice",
        &[start(), required(), resolved(), resolved()],
        ["4: action a was already resolved at sequence 3"],
    );
    assert_findings("action-resolved-twice", &[start(), required(), resolved(), required(), resolved()], []);
}

#[test]
pub(super) fn no_action_is_pending_when_its_run_ends() {
    let required = action("action.required", json!({"kind": "clarification", "message": "?"}));
    let facts = [start(), required, finish()];
    assert_findings(
        "action-pending-at-end",
        &facts,
        ["2: action a is still pending when the run ends with run.finished at sequence 3"],
    );
    assert_findings("action-pending-at-end", &facts[..2], []);
}

#[test]
pub(super) fn an_action_has_a_known_kind_and_its_fields() {
    let asks = |payload: Value| action("action.required", payload);
    assert_findings(
        "action-kind",
        &[asks(json!({})), asks(json!({"kind": "vote"}))],
        ["1: action a has no kind", "2: action a has the unknown kind \"vote\""],
    );
    let facts = [
        asks(json!({"kind": "tool_approval", "toolName": "rm"})),
        asks(json!({"kind": "structured_input"})),
        asks(json!({"kind": "plan_decision", "approvals": 2, "onExpiry": "reject"})),
        asks(json!({"kind": "plan_decision", "approvals": "two", "onExpiry": "allow"})),
    ];
    let expected = [
        "1: tool_approval a has no input or safeInput or parameters or toolCallId, no risk or scope or policyScope or payload",
        "2: structured_input a has no schema or responseSchema or options",
        "4: action a has approvals \"two\", which is not 1 to 16",
        "4: action a has onExpiry \"allow\", which is neither reject nor approve",
    ];
    assert_findings("action-fields", &facts, expected);
}

#[test]
pub(super) fn an_approval_with_options_has_one_for_a_plain_yes() {
    let asks = |kinds: &[&str]| {
        let options: Vec<Value> =
            kinds.iter().map(|kind| json!({"optionId": kind, "label": "Allow once", "kind": kind})).collect();
        action("action.required", json!({"kind": "tool_approval", "options": options}))
    };
    let facts = [asks(&["allow_once", "allow_always"]), asks(&["allow_always", "reject_once"]), asks(&["yes"]), asks(&["allow"])];
    assert_findings(
        "action-plain-yes",
        &facts,
        ["2: no option of action a allows it only once", "3: no option of action a allows it only once"],
    );
}

#[test]
pub(super) fn a_delegated_approval_names_the_requesting_agent() {
    let asks = action("action.required", json!({"kind": "delegated_permission"}));
    assert_findings(
        "delegated-approval",
        std::slice::from_ref(&asks),
        ["1: delegated_permission a has no agentId, so the requesting teammate is unknown"],
    );
    let mut named = asks;
    named["agentId"] = "kid".into();
    assert_findings("delegated-approval", std::slice::from_ref(&named), []);
    assert_findings(
        "delegated-details",
        &[named],
        ["1: delegated_permission a has no policyScope, no safeInput or input, no parentRouting"],
    );
}

#[test]
pub(super) fn a_resolution_has_a_known_outcome() {
    let resolved = |payload: Value| action("action.resolved", payload);
    let facts = [resolved(json!({})), resolved(json!({"outcome": "maybe"})), resolved(json!({"withheld": true}))];
    assert_findings(
        "action-outcome",
        &facts,
        ["1: action a is resolved without an outcome", "2: action a has the unknown outcome \"maybe\""],
    );
}

// ── teams ──

#[test]
pub(super) fn a_child_agent_names_its_parent() {
    let of_kid = |event_type: &str| fact(event_type, json!({"agentName": "kid", "^": {"agentId": "kid", "sessionId": "of-kid"}}));
    let (spawned, completed) = (of_kid("agent.spawned"), of_kid("agent.completed"));
    assert_findings(
        "agent-lineage",
        &[start(), spawned.clone(), completed.clone()],
        ["2: no fact of agent kid has a parentSessionId"],
    );
    let mut named = completed;
    named["parentSessionId"] = "s".into();
    assert_findings("agent-lineage", &[start(), spawned.clone(), named], []);
    // An agent of the run's own session has its parent there.
    let mut beside = spawned;
    beside["sessionId"] = "s".into();
    assert_findings("agent-lineage", &[start(), beside], []);
}

#[test]
pub(super) fn a_runtime_entity_has_the_fields_that_the_seed_requires() {
    let job = fact("task.changed", json!({"runtimeEntity": "external_task", "status": "working", "^": {"taskId": "t"}}));
    let more = fact("task.changed", json!({"runtimeEntity": "external_task", "capabilityRef": "card", "^": {"taskId": "t"}}));
    let facts = [job, more];
    assert_findings("entity-ids", &facts, ["1: no fact of external_task t has agentId, or remoteTaskId"]);
    assert_findings("entity-details", &facts, ["1: no fact of external_task t has inputNeeds or authNeeds"]);
}

#[test]
pub(super) fn a_handoff_has_its_fields() {
    let facts = [fact("agent.handoff", json!({"from": "a", "^": {"agentId": "a"}}))];
    assert_findings("handoff-fields", &facts, ["1: agent.handoff has no to, no reason"]);
    assert_findings("handoff-details", &facts, ["1: agent.handoff has no resumeTarget, no memoryBoundary or contextBoundary"]);
}

#[test]
pub(super) fn a_review_has_a_target_and_a_verdict() {
    let facts = [fact("review.requested", json!({"reviewId": "x"})), fact("review.completed", json!({"reviewId": "x"}))];
    let expected = [
        "1: review.requested has no target or artifactId or artifactRefs or taskId",
        "2: review.completed has no verdict, no target",
    ];
    assert_findings("review-fields", &facts, expected);
    assert_findings("review-details", &facts, ["2: review.completed has no reviewer or agentId, no evidenceRefs or evidenceId"]);
}

#[test]
pub(super) fn a_worker_notification_has_its_fields() {
    let facts = [fact("worker.notification", json!({"status": "failed"}))];
    assert_findings(
        "worker-notification-fields",
        &facts,
        ["1: worker.notification has no taskId, no agentId, no summary or text"],
    );
    assert_findings(
        "worker-notification-details",
        &facts,
        ["1: worker.notification has no resultRef or transcriptRef or artifactRefs or refs"],
    );
}

#[test]
pub(super) fn a_team_has_a_topology_and_tasks_have_known_statuses() {
    let team = fact("team.changed", json!({"teamId": "x"}));
    let task = fact("task.changed", json!({"status": "vibing", "^": {"taskId": "t"}}));
    assert_findings("team-topology", &[team], ["1: no fact of team x has a topology"]);
    assert_findings("task-status", &[task], ["1: task.changed: status has the value \"vibing\", which the seed does not define"]);
}

#[test]
pub(super) fn references_have_their_facts_in_the_log() {
    let review = fact(
        "review.completed",
        json!({"reviewId": "x", "evidenceRefs": ["ev", {"evidenceId": "gone"}], "artifactRefs": ["lost"]}),
    );
    let expected = [
        "4: review.completed refers to gone in evidenceRefs, but the log has no fact about it",
        "4: review.completed refers to lost in artifactRefs, but the log has no fact about it",
    ];
    let evidence = fact("evidence.changed", json!({"^": {"evidenceId": "ev"}}));
    assert_findings("dangling-ref", &[start(), evidence, fact("run.status", json!({})), review], expected);
}

// ── content that does not belong in a log, or not for every audience ──

//! Tests each rule with a log that breaks it, and all rules with a clean run.

use super::*;
use crate::model::EventType;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Builds envelopes of run `r` in order; omitted members get the defaults of the event type.
fn envelopes(facts: &[Value]) -> Vec<Value> {
    let envelope = |(n, fact): (usize, &Value)| {
        let event_type = EventType::from(fact["type"].as_str().expect("the fact has a type"));
        let defaults = event_type.defaults();
        let mut envelope = json!({
            "type": event_type, "eventId": format!("e-{n}"), "sequence": n + 1, "receivedAt": "2026-01-01T00:00:00Z", "runId": "r",
            "sessionId": "s", "owner": defaults.owner, "scope": defaults.scope, "phase": defaults.phase, "surface": defaults.surface,
            "persistence": defaults.persistence, "audience": defaults.audience,
        });
        for (member, value) in fact.as_object().expect("the fact is an object") {
            if *value == json!("-") {
                drop(envelope.as_object_mut().unwrap().shift_remove(member));
            } else {
                envelope[member] = value.clone();
            }
        }
        envelope
    };
    facts.iter().enumerate().map(envelope).collect()
}

fn read(facts: &[Value], options: CheckOptions) -> CheckedLog {
    let lines: Vec<String> = envelopes(facts).iter().map(Value::to_string).collect();
    CheckedLog::read(lines.iter().map(String::as_bytes), options).unwrap()
}

fn report(facts: &[Value]) -> Report {
    check(&read(facts, CheckOptions::default()))
}

thread_local! {
    /// The rules that reported a finding in the tests on this thread.
    static FIRED_RULES: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// Returns the findings of a rule as `sequence: message`.
fn findings_of(report: &Report, rule: &str) -> Vec<String> {
    assert!(RULES.iter().any(|known| known.id == rule), "{rule} is not a rule");
    FIRED_RULES.with_borrow_mut(|rules| rules.extend(report.findings.iter().map(|f| f.rule).filter(|found| *found == rule)));
    report.findings.iter().filter(|f| f.rule == rule).map(|f| format!("{}: {}", f.sequence, f.message)).collect()
}

/// Asserts the findings of a rule in these facts, as `sequence: message`.
#[track_caller]
fn assert_findings<const N: usize>(rule: &str, facts: &[Value], expected: [&str; N]) {
    assert_eq!(findings_of(&report(facts), rule), expected);
}

/// Builds a fact from its type and payload; `^` in the payload holds members of the envelope itself.
fn fact(event_type: &str, payload: Value) -> Value {
    let mut fact = json!({ "type": event_type });
    let mut payload = payload;
    if let Some(Value::Object(top)) = payload.as_object_mut().and_then(|payload| payload.shift_remove("^")) {
        fact.as_object_mut().unwrap().extend(top);
    }
    if payload.as_object().is_some_and(|payload| !payload.is_empty()) {
        fact["payload"] = payload;
    }
    fact
}

fn start() -> Value {
    fact("run.started", json!({}))
}

fn finish() -> Value {
    fact("run.finished", json!({}))
}

fn delta(part: &str, text: &str) -> Value {
    fact("text.delta", json!({"text": text, "^": {"messageId": "m", "partId": part}}))
}

fn tool(event_type: &str, payload: Value) -> Value {
    let mut tool = fact(event_type, payload);
    tool["toolCallId"] = "c".into();
    tool
}

fn action(event_type: &str, payload: Value) -> Value {
    let mut action = fact(event_type, payload);
    action["actionId"] = "a".into();
    action
}

fn diagnostic(kind: &str, mut payload: Value) -> Value {
    payload["kind"] = kind.into();
    fact("diagnostic.changed", payload)
}

/// Builds a run without findings that has facts of most types.
fn clean() -> Vec<Value> {
    let agent = |event_type: &str, payload: Value| {
        let mut agent = fact(event_type, payload);
        (agent["agentId"], agent["taskId"], agent["parentSessionId"]) = ("kid".into(), "t".into(), "s".into());
        agent
    };
    let entity = json!({
        "agentName": "kid", "teamName": "team", "runtimeEntity": "subagent_turn", "runtimeStatus": "running", "latestTurnStatus": "running",
        "role": "researcher", "model": "m", "policy": "ask", "spawnReason": "search",
    });
    vec![
        fact("queue.changed", json!({"queuedTurnCount": 1})),
        start(),
        fact("run.status", json!({"^": {"phase": "routing"}})),
        fact("reasoning.delta", json!({"text": "hm", "^": {"messageId": "m", "partId": "p0"}})),
        fact("reasoning.summary", json!({"text": "thought", "^": {"messageId": "m", "partId": "p0"}})),
        delta("p1", "Hello "),
        tool("tool.started", json!({"toolName": "rm", "input": {"path": "/"}})),
        tool("tool.progress", json!({"progress": 0.25, "status": "running"})),
        action("action.required", json!({"kind": "tool_approval", "toolName": "rm", "input": {"path": "/"}, "risk": "high"})),
        action("action.resolved", json!({"outcome": "approved"})),
        tool("tool.progress", json!({"progress": 1.0})),
        tool("tool.result", json!({"output": null})),
        delta("p2", "world"),
        fact("text.final", json!({"text": "Hello world", "^": {"messageId": "m"}})),
        fact("team.changed", json!({"teamId": "team", "^": {"topology": "parallel_workers"}})),
        agent("agent.spawned", entity),
        agent("worker.notification", json!({"status": "completed", "summary": "found", "resultRef": "res"})),
        agent("agent.completed", json!({"status": "completed"})),
        fact(
            "agent.handoff",
            json!({"from": "a", "to": "b", "reason": "r", "resumeTarget": "x", "memoryBoundary": "y", "^": {"agentId": "kid"}}),
        ),
        fact("evidence.changed", json!({"^": {"evidenceId": "ev"}})),
        fact("review.requested", json!({"reviewId": "rv", "target": "x"})),
        fact("review.completed", json!({"reviewId": "rv", "verdict": "passed", "reviewer": "b", "evidenceRefs": ["ev"]})),
        fact("context.compaction.started", json!({"compactionId": "k"})),
        fact("context.compaction.completed", json!({"compactionId": "k"})),
        fact("artifact.created", json!({"preview": "p", "^": {"artifactId": "ar"}})),
        fact("metric.changed", json!({"usage": {"inputTokens": 1}, "^": {"audience": "dashboard"}})),
        finish(),
        fact("session.updated", json!({"title": "t"})),
    ]
}

/// Builds the clean run with further facts after its start.
fn clean_run_with<const N: usize>(facts: [Value; N]) -> Vec<Value> {
    let mut all = clean();
    all.splice(2..2, facts);
    all
}

#[test]
fn a_clean_run_has_no_findings() {
    let report = report(&clean());
    assert_eq!(report.findings, Vec::new());
    assert_eq!((report.run.as_deref(), report.envelopes, report.counts, report.omitted), (Some("r"), 28, Counts::default(), 0));
}

/// The tests that produce a finding for each rule.
const RULE_TESTS: &[fn()] = &[
    sequences_increase,
    sequences_have_no_gaps_in_a_complete_log,
    a_log_has_one_run_and_each_event_once,
    work_follows_the_start,
    a_run_restarts_only_after_its_end_or_while_it_waits,
    an_attempt_ends_once,
    no_work_follows_the_end,
    a_run_that_does_not_wait_ends,
    an_envelope_has_its_members_with_their_types,
    a_fact_has_the_id_of_its_subject,
    a_chunk_names_its_part,
    dimensions_have_values_of_the_seed,
    unknown_event_types_are_reported,
    an_unknown_audience_is_reported,
    a_failure_has_a_message,
    a_message_snapshot_has_ids_roles_and_parts,
    a_started_call_ends_unless_it_waits,
    a_call_that_ends_has_a_start_or_never_started,
    a_call_ends_once_per_start,
    a_call_has_a_name_and_its_result_an_output,
    progress_is_a_fraction_that_does_not_decrease,
    progress_after_the_end_of_a_call_is_a_note,
    a_stream_accepts_no_chunks_after_its_end,
    a_final_text_equals_the_streamed_text,
    a_streamed_part_ends,
    only_messages_have_the_conversation_surface,
    a_worker_notification_is_not_a_user_message,
    an_action_is_required_before_it_is_resolved_once,
    no_action_is_pending_when_its_run_ends,
    an_action_has_a_known_kind_and_its_fields,
    a_delegated_approval_names_the_requesting_agent,
    a_resolution_has_a_known_outcome,
    a_child_agent_names_its_parent,
    a_runtime_entity_has_the_fields_that_the_seed_requires,
    a_handoff_has_its_fields,
    a_review_has_a_target_and_a_verdict,
    a_worker_notification_has_its_fields,
    a_team_has_a_topology_and_tasks_have_known_statuses,
    references_have_their_facts_in_the_log,
    text_like_a_secret_is_reported_and_not_repeated,
    large_bodies_are_offloaded,
    an_artifact_s_body_is_only_in_the_event_of_its_version,
    diagnostics_and_internals_are_not_for_users,
    client_state_is_not_a_fact,
    a_compaction_that_starts_completes,
    diagnostics_of_the_server_are_reported,
    patches_apply_to_the_current_content,
];

#[test]
fn every_rule_reports_a_finding_in_its_test() {
    FIRED_RULES.take();
    for test in RULE_TESTS {
        test();
    }
    let idle: Vec<_> =
        RULES.iter().map(|rule| rule.id).filter(|id| !FIRED_RULES.with_borrow(|rules| rules.contains(id))).collect();
    assert_eq!(idle, [""; 0], "no test expects a finding of these rules");
}

#[test]
fn every_rule_has_a_name_a_sentence_and_a_remedy() {
    let mut ids: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    for rule in RULES {
        assert!(rule.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", rule.id);
        assert!(rule.sentence.ends_with(['.', '…']) && !rule.remedy.ends_with('.'), "{}", rule.id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), RULES.len());
}

#[test]
fn every_demand_of_the_seed_has_rules_or_a_client_part() {
    for demand in DEMANDS {
        assert!(!demand.rules.is_empty() || demand.client_part.is_some(), "{}", demand.sentence);
        for rule in demand.rules {
            assert!(RULES.iter().any(|known| known.id == *rule), "{rule} is not a rule: {}", demand.sentence);
        }
    }
    // The seed addresses clients. A log shows the acts of a producer and never those of a screen.
    let for_producers = [
        "Large output MUST be offloaded to a detail ref or artifact/evidence ref.",
        "Raw secrets MUST be redacted before entering projection state.",
    ];
    for demand in DEMANDS {
        let is_for_producers = for_producers.contains(&demand.sentence);
        assert_eq!(demand.client_part.is_none(), is_for_producers, "a log cannot show a client's duty: {}", demand.sentence);
    }
    let count = |origin: &str| DEMANDS.iter().filter(|demand| demand.origin == origin).count();
    // 7 and 6 demands on compatible clients, plus those among the seed's tables.
    assert_eq!((count("checklist"), count("MUST"), count("MUST NOT")), (19, 7 + 4, 6 + 1));
}

#[test]
fn findings_are_in_log_order_and_counted_by_severity() {
    let facts = clean_run_with([tool("tool.failed", json!({})), fact("run.status", json!({"^": {"owner": "moon"}}))]);
    let report = report(&facts);
    let found: Vec<_> = report.findings.iter().map(|f| (f.sequence, f.rule, f.thing.as_deref())).collect();
    let expected =
        [(3, "failure-without-message", Some("c")), (3, "tool-end-without-start", Some("c")), (4, "unknown-dimension", None)];
    assert_eq!(found, expected);
    assert_eq!(report.counts, Counts { error: 1, warning: 1, info: 1 });
}

#[test]
fn a_report_lists_at_most_findings_max_per_rule_and_counts_all() {
    let facts: Vec<Value> = std::iter::once(start())
        .chain((0..FINDINGS_MAX + 7).map(|_| fact("metric.changed", json!({"^": {"audience": "user"}}))))
        .collect();
    let report = report(&facts);
    assert_eq!(findings_of(&report, "diagnostics-audience").len(), FINDINGS_MAX);
    assert_eq!((report.omitted, report.counts.error), (7, FINDINGS_MAX as u64 + 7));
}

#[test]
fn a_finding_is_one_bounded_line_without_secrets() {
    let odd = |topology: &str| fact("run.status", json!({"^": {"topology": topology}}));
    let facts =
        [start(), odd(SECRET), tool("tool.failed", json!({"toolName": "\u{1b}[2J"})), odd(&"x".repeat(2 * MESSAGE_CHARS_MAX))];
    let report = report(&facts);
    let message = |rule: &str, n: usize| report.findings.iter().filter(|f| f.rule == rule).nth(n).unwrap().message.clone();
    assert_eq!(message("unknown-dimension", 0), "run.status: topology has the unknown value \"[redacted]\"");
    assert_eq!(message("tool-end-without-start", 0), "tool.failed of call c ( [2J), which never started");
    let long = message("unknown-dimension", 1);
    assert!(long.chars().count() == MESSAGE_CHARS_MAX + 1 && long.ends_with("x…"), "{long}");
}

#[test]
fn a_line_that_is_not_an_envelope_is_rejected_with_its_number() {
    let assert_refused = |text: &str, line: u64, reason: &str| {
        let error = CheckedLog::read(text.split('\n').map(str::as_bytes), CheckOptions::default()).unwrap_err();
        assert!(error.line == line && error.reason.contains(reason), "{error}");
    };
    let good = envelopes(&[start()])[0].to_string();
    assert_refused(&format!("{good}\n\n{{\"type\":"), 3, "not JSON");
    assert_refused("[]", 1, "this is an array, not an object");
    assert_refused(r#"{"event_type":"run_start"}"#, 1, "no \"type\"");
    assert_refused(r#"{"type":"run.started"}"#, 1, "\"sequence\" is none");
    assert_refused(r#"{"type":"run.started","sequence":0}"#, 1, "\"sequence\" is 0, not a whole number from 1");
    assert_refused(r#"{"type":"run.started","sequence":"1"}"#, 1, "--source");
}

// ── log order and run boundaries ──

#[test]
fn sequences_increase() {
    let mut facts = clean();
    facts[3]["sequence"] = 3.into();
    assert_findings("sequence-increasing", &facts, ["3: sequence 3 follows 3"]);
}

#[test]
fn sequences_have_no_gaps_in_a_complete_log() {
    let mut facts = vec![start(), finish()];
    (facts[0]["sequence"], facts[1]["sequence"]) = (2.into(), 5.into());
    assert_findings(
        "sequence-gapless",
        &facts,
        ["2: 1 envelope is missing: expected sequence 1, found 2", "5: 2 envelopes are missing: expected sequence 3, found 5"],
    );
    let users = CheckOptions { audience: Audience::User, is_compacted: false };
    let compacted = CheckOptions { is_compacted: true, ..CheckOptions::default() };
    for options in [users, compacted] {
        assert_eq!(check(&read(&facts, options)).findings, Vec::new());
    }
}

#[test]
fn a_log_has_one_run_and_each_event_once() {
    let mut facts = clean();
    facts[4]["runId"] = "x".into();
    facts[5]["eventId"] = "e-1".into();
    assert_findings(
        "one-log",
        &facts,
        ["5: the envelope belongs to run x, the log to run r", "6: event e-1 already occurs at sequence 2"],
    );
}

#[test]
fn work_follows_the_start() {
    assert_findings("work-before-start", &[delta("p", "a"), start()], ["1: text.delta comes before run.started (at sequence 2)"]);
    assert_findings("work-before-start", &[finish()], ["1: run.finished comes before run.started (the log has none)"]);
    // A rejected turn never starts.
    assert_findings("work-before-start", &[fact("run.failed", json!({"error": {"message": "no"}}))], []);
}

#[test]
fn a_run_restarts_only_after_its_end_or_while_it_waits() {
    assert_findings(
        "start-inside-run",
        &[start(), delta("p", "a"), start()],
        ["3: run.started comes while attempt 1 is running"],
    );
    let waits = fact("run.status", json!({"^": {"phase": "waiting"}}));
    assert_findings("start-inside-run", &[start(), waits, start(), finish(), start()], []);
}

#[test]
fn an_attempt_ends_once() {
    let failed = fact("run.failed", json!({"error": {"message": "no"}}));
    assert_findings(
        "one-terminal",
        &[start(), finish(), failed.clone()],
        ["3: run.failed comes after run.finished at sequence 2"],
    );
    assert_findings("one-terminal", &[start(), failed.clone(), start(), finish()], []);
    // Any fact reopens a run that the server ended itself.
    let mut server_end = failed;
    server_end["payload"]["synthetic"] = true.into();
    assert_findings("one-terminal", &[start(), server_end.clone(), delta("p", "a"), finish()], []);
    assert_findings(
        "one-terminal",
        &[start(), server_end, finish(), finish()],
        ["4: run.finished comes after run.finished at sequence 3"],
    );
}

#[test]
fn no_work_follows_the_end() {
    let facts = [
        start(),
        finish(),
        fact("task.changed", json!({"^": {"taskId": "t"}})),
        delta("p", "a"),
        delta("p", "b"),
        start(),
        finish(),
        delta("q", "c"),
    ];
    let expected = [
        "4: text.delta comes after run.finished at sequence 2, and 1 more fact",
        "8: text.delta comes after run.finished at sequence 7",
    ];
    assert_findings("work-after-end", &facts, expected);
}

#[test]
fn a_run_that_does_not_wait_ends() {
    assert_findings("run-never-ended", &[start(), delta("p", "a")], ["2: the log ends with text.delta while the run is running"]);
    assert_findings("run-never-ended", &[start(), action("action.required", json!({"kind": "clarification"}))], []);
    assert_findings("run-never-ended", &[fact("session.opened", json!({"^": {"runId": "-"}}))], []);
    // A log without a run boundary does not show an active run.
    assert_findings("run-never-ended", &[fact("team.changed", json!({"teamId": "d", "^": {"topology": "solo_run"}}))], []);
}

// ── envelope members, and the members that each event type requires ──

#[test]
fn an_envelope_has_its_members_with_their_types() {
    let mut facts = vec![start(), finish()];
    for (member, value) in [
        ("owner", json!("-")),
        ("timestamp", json!("yesterday")),
        ("payload", json!(7)),
        ("agentId", json!("")),
        ("phase", json!(7)),
    ] {
        facts[0][member] = value;
    }
    let expected = [
        "1: run.started: owner is missing",
        "1: run.started: phase is a number; it must be text",
        "1: run.started: timestamp is text; it must be a time such as 2026-01-02T03:04:05Z",
        "1: run.started: payload is a number; it must be an object",
        "1: run.started: agentId: an id is empty; it must be 1 to 256 bytes long",
    ];
    let mut found = findings_of(&report(&facts), "envelope-members");
    found.sort();
    let mut sorted = expected;
    sorted.sort_unstable();
    assert_eq!(found, sorted);
}

#[test]
fn a_fact_has_the_id_of_its_subject() {
    let facts = [
        "text.final",
        "reasoning.summary",
        "tool.args",
        "tool.progress",
        "action.resolved",
        "artifact.failed",
        "evidence.changed",
        "agent.changed",
        "task.changed",
        "review.requested",
        "team.changed",
    ]
    .map(|event_type| fact(event_type, json!({})));
    let expected = [
        "1: text.final has no messageId",
        "2: reasoning.summary has no messageId",
        "3: tool.args has no toolCallId",
        "4: tool.progress has no toolCallId",
        "5: action.resolved has no actionId",
        "6: artifact.failed has no artifactId",
        "7: evidence.changed has no evidenceId",
        "8: agent.changed has no agentId",
        "9: task.changed has no taskId or workItemId or remoteTaskId",
        "10: review.requested has no reviewId or evidenceId",
        "11: team.changed has no teamId or teamName",
    ];
    assert_findings("required-ids", &facts, expected);
    let plain = [
        fact("task.changed", json!({"workItemId": "w"})),
        // Progress of a turn, and an activity of a message.
        fact("tool.progress", json!({"message": "half", "^": {"scope": "turn"}})),
        fact("tool.progress", json!({"activityType": "plan", "content": {}, "^": {"messageId": "m"}})),
        fact("tool.args", json!({"toolCallId": "in the payload", "input": {}})),
    ];
    assert_findings("required-ids", &plain, []);
}

#[test]
fn a_chunk_names_its_part() {
    let mut chunk = delta("p", "a");
    chunk["partId"] = "-".into();
    assert_findings("part-id", &[start(), chunk], ["2: text.delta has no partId"]);
}

#[test]
fn dimensions_have_values_of_the_seed() {
    let odd = fact("run.status", json!({"^": {"surface": "moon", "topology": "swarm", "phase": "unknown"}}));
    assert_findings(
        "unknown-dimension",
        &clean_run_with([odd]),
        ["3: run.status: surface has the unknown value \"moon\"", "3: run.status: topology has the unknown value \"swarm\""],
    );
}

#[test]
fn unknown_event_types_are_reported() {
    let facts =
        clean_run_with([fact("weather.changed", json!({})), diagnostic("unknown_event_type", json!({"eventType": "rain"}))]);
    let expected = [
        "3: the event type \"weather.changed\" is unknown",
        "4: the source sent an event type that its adapter does not support: \"rain\"",
    ];
    assert_findings("unknown-event-type", &facts, expected);
}

#[test]
fn an_unknown_audience_is_reported() {
    let carried = fact("run.status", json!({"^": {"audience": "internal", "sourceAudience": "friends"}}));
    let expected = [
        "3: run.status: the audience \"everyone\" is unknown and counts as internal",
        "4: run.status: the audience \"friends\" is unknown and counts as internal",
    ];
    assert_findings(
        "unknown-audience",
        &clean_run_with([fact("run.status", json!({"^": {"audience": "everyone"}})), carried]),
        expected,
    );
}

#[test]
fn a_failure_has_a_message() {
    let silent = tool("tool.failed", json!({"error": {"code": "E", "message": ""}, "neverStarted": true}));
    let withheld = tool("tool.failed", json!({"withheld": true}));
    assert_findings(
        "failure-without-message",
        &[start(), silent, withheld, fact("run.failed", json!({}))],
        ["2: tool.failed has no error message", "4: run.failed has no error message"],
    );
}

#[test]
fn a_message_snapshot_has_ids_roles_and_parts() {
    let snapshot =
        fact("messages.snapshot", json!({"messages": [{"messageId": "m", "role": "user", "parts": []}, {"role": ""}]}));
    let expected = ["3: message 1 of the snapshot has no messageId, no role, no parts", "4: messages.snapshot has no messages"];
    assert_findings("snapshot-shape", &clean_run_with([snapshot, fact("messages.snapshot", json!({}))]), expected);
}

// ── tool calls ──

#[test]
fn a_started_call_ends_unless_it_waits() {
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
fn a_call_that_ends_has_a_start_or_never_started() {
    assert_findings(
        "tool-end-without-start",
        &[start(), tool("tool.result", json!({"output": 1}))],
        ["2: tool.result of call c, which never started"],
    );
    let never = tool("tool.failed", json!({"neverStarted": true, "error": {"message": "no"}}));
    assert_findings("tool-end-without-start", &[start(), never], []);
}

#[test]
fn a_call_ends_once_per_start() {
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
fn a_call_has_a_name_and_its_result_an_output() {
    let facts = [start(), tool("tool.started", json!({})), tool("tool.result", json!({"durationMs": 3})), finish()];
    assert_findings("tool-without-name", &facts, ["2: tool.started of call c has no toolName"]);
    assert_findings("result-without-output", &facts, ["3: tool.result of call c has neither output nor outputRef"]);
    let stub = tool("tool.result", json!({"withheld": true}));
    assert_findings("result-without-output", &[stub], []);
}

#[test]
fn progress_is_a_fraction_that_does_not_decrease() {
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
fn progress_after_the_end_of_a_call_is_a_note() {
    let late = tool("tool.progress", json!({"message": "warning"}));
    let mut facts = clean();
    facts.insert(12, late);
    assert_findings("progress-after-end", &facts, ["13: tool.progress of call c (rm), which ended at sequence 12"]);
    assert_eq!(report(&facts).counts, Counts { info: 1, ..Counts::default() });
}

// ── messages ──

#[test]
fn a_stream_accepts_no_chunks_after_its_end() {
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
fn a_final_text_equals_the_streamed_text() {
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
fn a_streamed_part_ends() {
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
fn only_messages_have_the_conversation_surface() {
    let thought =
        fact("reasoning.delta", json!({"text": "hm", "^": {"messageId": "m", "partId": "x", "surface": "conversation"}}));
    let card = fact("artifact.created", json!({"^": {"artifactId": "a", "surface": "conversation"}}));
    assert_findings("only-text-in-conversation", &[start(), thought, card], ["2: reasoning.delta has the surface conversation"]);
    let mut chunk = delta("p", "a");
    chunk["surface"] = "tool_ui".into();
    assert_findings("text-surface", &[start(), chunk], ["2: text.delta has the surface tool_ui"]);
}

#[test]
fn a_worker_notification_is_not_a_user_message() {
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
fn an_action_is_required_before_it_is_resolved_once() {
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
fn no_action_is_pending_when_its_run_ends() {
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
fn an_action_has_a_known_kind_and_its_fields() {
    let asks = |payload: Value| action("action.required", payload);
    assert_findings(
        "action-kind",
        &[asks(json!({})), asks(json!({"kind": "vote"}))],
        ["1: action a has no kind", "2: action a has the unknown kind \"vote\""],
    );
    let facts = [
        asks(json!({"kind": "tool_approval", "toolName": "rm"})),
        asks(json!({"kind": "structured_input"})),
        asks(json!({"kind": "plan_decision"})),
    ];
    let expected = [
        "1: tool_approval a has no input or safeInput or parameters or toolCallId, no risk or scope or policyScope or payload",
        "2: structured_input a has no schema or responseSchema or options",
    ];
    assert_findings("action-fields", &facts, expected);
}

#[test]
fn a_delegated_approval_names_the_requesting_agent() {
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
fn a_resolution_has_a_known_outcome() {
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
fn a_child_agent_names_its_parent() {
    let spawned = fact("agent.spawned", json!({"agentName": "kid", "^": {"agentId": "kid"}}));
    let completed = fact("agent.completed", json!({"^": {"agentId": "kid"}}));
    assert_findings(
        "agent-lineage",
        &[start(), spawned.clone(), completed.clone()],
        ["2: no fact of agent kid has a parentSessionId"],
    );
    let mut named = completed;
    named["parentSessionId"] = "s".into();
    assert_findings("agent-lineage", &[start(), spawned, named], []);
}

#[test]
fn a_runtime_entity_has_the_fields_that_the_seed_requires() {
    let job = fact("task.changed", json!({"runtimeEntity": "external_task", "status": "working", "^": {"taskId": "t"}}));
    let more = fact("task.changed", json!({"runtimeEntity": "external_task", "capabilityRef": "card", "^": {"taskId": "t"}}));
    let facts = [job, more];
    assert_findings("entity-ids", &facts, ["1: no fact of external_task t has agentId, or remoteTaskId"]);
    assert_findings("entity-details", &facts, ["1: no fact of external_task t has inputNeeds or authNeeds"]);
}

#[test]
fn a_handoff_has_its_fields() {
    let facts = [fact("agent.handoff", json!({"from": "a", "^": {"agentId": "a"}}))];
    assert_findings("handoff-fields", &facts, ["1: agent.handoff has no to, no reason"]);
    assert_findings("handoff-details", &facts, ["1: agent.handoff has no resumeTarget, no memoryBoundary or contextBoundary"]);
}

#[test]
fn a_review_has_a_target_and_a_verdict() {
    let facts = [fact("review.requested", json!({"reviewId": "x"})), fact("review.completed", json!({"reviewId": "x"}))];
    let expected = [
        "1: review.requested has no target or artifactId or artifactRefs or taskId",
        "2: review.completed has no verdict, no target",
    ];
    assert_findings("review-fields", &facts, expected);
    assert_findings("review-details", &facts, ["2: review.completed has no reviewer or agentId, no evidenceRefs or evidenceId"]);
}

#[test]
fn a_worker_notification_has_its_fields() {
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
fn a_team_has_a_topology_and_tasks_have_known_statuses() {
    let team = fact("team.changed", json!({"teamId": "x"}));
    let task = fact("task.changed", json!({"status": "vibing", "^": {"taskId": "t"}}));
    assert_findings("team-topology", &[team], ["1: no fact of team x has a topology"]);
    assert_findings("task-status", &[task], ["1: task.changed: status has the value \"vibing\", which the seed does not define"]);
}

#[test]
fn references_have_their_facts_in_the_log() {
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

const SECRET: &str = "sk-live-abcdef0123456789abcdef";

#[test]
fn text_like_a_secret_is_reported_and_not_repeated() {
    let facts = [
        start(),
        tool("tool.started", json!({"toolName": "rm", "input": {"env": [{"apiKey": "hunter2"}]}})),
        delta("p", "the key is sk-live-abcdef"),
        delta("p", "0123456789abcdef."),
        tool("tool.output.delta", json!({"text": "Bearer abcdefgh"})),
        tool("tool.output.delta", json!({"text": "ijklmnopqrstuvwxyz012345"})),
        fact("diagnostic.changed", json!({SECRET: 1})),
        fact("run.status", json!({"message": "fine", "^": {"note": SECRET}})),
    ];
    let expected = [
        "2: tool.started contains text that looks like a secret at /payload/input/env/0/apiKey",
        "4: the stream of text part m/p contains text that looks like a secret",
        "6: the output stream of call c contains text that looks like a secret",
        "7: diagnostic.changed contains text that looks like a secret at /payload/[the name of a member]",
        "8: run.status contains text that looks like a secret at /note",
    ];
    assert_findings("secret", &facts, expected);
    let text = serde_json::to_string(&report(&facts)).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("abcdef"), "{text}");
}

#[test]
fn large_bodies_are_offloaded() {
    let (fits, large) = ("x".repeat(32 * 1024), "x".repeat(32 * 1024 + 1));
    let facts = [
        tool("tool.result", json!({"output": fits})),
        tool("tool.result", json!({"output": {"a": large.clone()}})),
        fact("state.snapshot", json!({"state": {"list": [1, large]}})),
    ];
    let expected = [
        "2: tool.result holds 32777 bytes inline at /payload/output, the limit is 32768",
        "3: state.snapshot holds 32769 bytes inline at /payload/state/list/1, the limit is 32768",
    ];
    assert_findings("large-inline", &facts, expected);
}

#[test]
fn an_artifact_s_body_is_only_in_the_event_of_its_version() {
    let facts = ["artifact.updated", "artifact.version.created", "artifact.preview.ready"]
        .map(|class| fact(class, json!({"markdown": "# all of it", "^": {"artifactId": "a"}})));
    let expected = [
        "1: artifact.updated of artifact a contains the body in markdown",
        "3: artifact.preview.ready of artifact a contains the body in markdown",
    ];
    assert_findings("artifact-body", &facts, expected);
}

#[test]
fn diagnostics_and_internals_are_not_for_users() {
    let facts = [
        fact("diagnostic.changed", json!({"^": {"audience": "user"}})),
        fact("state.snapshot", json!({"state": {"extensions": {"__runtime.x": 1}}})),
    ];
    assert_findings("diagnostics-audience", &facts, ["1: diagnostic.changed has the audience user"]);
    assert_findings(
        "runtime-internals",
        &facts,
        ["2: state.snapshot has the audience user and contains runtime internals (__runtime)"],
    );
}

#[test]
fn client_state_is_not_a_fact() {
    let facts = [
        fact("state.delta", json!({"^": {"owner": "ui_projection"}})),
        fact("state.delta", json!({"^": {"persistence": "ui_local"}})),
    ];
    assert_findings(
        "screen-state",
        &facts,
        ["1: state.delta is a client's own state (ui_projection)", "2: state.delta is a client's own state (ui_local)"],
    );
}

#[test]
fn a_compaction_that_starts_completes() {
    let facts = [start(), fact("context.compaction.started", json!({"compactionId": "k"})), finish()];
    assert_findings(
        "compaction-never-ended",
        &facts,
        ["2: compaction k is still open when the run ends with run.finished at sequence 3"],
    );
    let facts = [
        fact("run.started", json!({"^": {"agentId": "lead"}})),
        fact("context.compaction.started", json!({"^": {"agentId": "lead"}})),
        fact("context.compaction.started", json!({"^": {"agentId": "mate"}})),
        fact("context.compaction.completed", json!({})),
        finish(),
    ];
    let expected = ["3: compaction mate is still open when the run ends with run.finished at sequence 5"];
    assert_findings("compaction-never-ended", &facts, expected);
}

#[test]
fn diagnostics_of_the_server_are_reported() {
    let facts = clean_run_with([
        diagnostic("malformed_event", json!({"eventType": "text_delta", "expected": "delta as text"})),
        diagnostic("unknown_outcome", json!({"eventType": "tool_call_done", "outcome": "maybe"})),
        diagnostic("interleaved_run", json!({"eventType": "run_start", "openRun": "r"})),
        diagnostic("of_tomorrow", json!({})),
    ]);
    let expected = [
        "3: the adapter could not map text_delta: expected delta as text",
        "4: the adapter could not map tool_call_done: the outcome \"maybe\" is unknown",
    ];
    assert_findings("malformed-event", &facts, expected);
    assert_findings("interleaved-run", &facts, ["5: run_start of another run came while run r was open"]);
}

#[test]
fn patches_apply_to_the_current_content() {
    let activity = |payload: Value| tool("tool.progress", payload);
    let facts = [
        start(),
        activity(json!({"activityType": "plan", "content": {"steps": []}})),
        activity(json!({"activityType": "plan", "patch": [{"op": "add", "path": "/steps/-", "value": 1}]})),
        activity(json!({"activityType": "plan", "patch": [{"op": "add", "path": "/gone/-", "value": 1}]})),
    ];
    let report = report(&facts);
    let found = findings_of(&report, "patch-not-applied");
    assert!(found.len() == 1 && found[0].starts_with("4: a patch of plan c does not apply: "), "{found:?}");
    assert_eq!(report.findings.iter().find(|f| f.rule == "patch-not-applied").unwrap().thing.as_deref(), Some("c"));
    assert_findings("patch-not-applied", &facts[..3], []);
}

// ── arbitrary input ──

/// Generates a log of the clean run's envelopes in any order, some of them damaged.
fn damaged() -> impl Strategy<Value = Vec<Value>> {
    let odd = prop_oneof![
        Just(json!(null)),
        Just(json!(7)),
        Just(json!("")),
        Just(json!([[]])),
        Just(json!({"a": {}})),
        Just(json!("run.failed"))
    ];
    let one = (proptest::sample::select(envelopes(&clean())), any::<prop::sample::Index>(), prop::option::of(odd), any::<bool>());
    let one = one.prop_map(|(mut envelope, member, odd, is_payload)| {
        let target = if is_payload { envelope.pointer_mut("/payload") } else { Some(&mut envelope) };
        if let Some(map) = target.and_then(Value::as_object_mut).filter(|map| !map.is_empty()) {
            let name = map.keys().nth(member.index(map.len())).unwrap().clone();
            // An envelope must keep its type and its sequence.
            let fits = |odd: &Value| name != "sequence" && (name != "type" || odd == "run.failed");
            map.extend(odd.filter(fits).map(|odd| (name.clone(), odd)));
        }
        envelope
    });
    prop::collection::vec(one, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_envelopes_do_not_stop_the_linter_and_findings_are_deterministic(
        log in damaged(),
        is_numbered: bool,
    ) {
        let numbered = |(n, mut envelope): (usize, Value)| {
            if is_numbered {
                envelope["sequence"] = json!(n + 1);
            }
            envelope.to_string()
        };
        let lines: Vec<String> = log.into_iter().enumerate().map(numbered).collect();
        let read = || CheckedLog::read(lines.iter().map(String::as_bytes), CheckOptions::default()).unwrap();
        let report = check(&read());
        prop_assert!(report.findings.is_sorted_by_key(|finding| finding.sequence));
        prop_assert_eq!(check(&read()), report);
    }
}

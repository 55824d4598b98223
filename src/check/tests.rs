//! Each rule by a log that breaks it, and one run that breaks none.

use super::*;
use crate::model::EventType;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Facts as envelopes of run `r`, in order: what a fact leaves out is what its class is.
fn envelopes(facts: &[Value]) -> Vec<Value> {
    let envelope = |(n, fact): (usize, &Value)| {
        let class = EventType::from(fact["type"].as_str().expect("a class"));
        let of = class.defaults();
        let mut envelope = json!({
            "type": class, "eventId": format!("e-{n}"), "sequence": n + 1, "receivedAt": "2026-01-01T00:00:00Z", "runId": "r",
            "sessionId": "s", "owner": of.owner, "scope": of.scope, "phase": of.phase, "surface": of.surface,
            "persistence": of.persistence, "audience": of.audience,
        });
        for (member, value) in fact.as_object().expect("an object") {
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

fn read(facts: &[Value], reading: Reading) -> Log {
    let lines: Vec<String> = envelopes(facts).iter().map(Value::to_string).collect();
    Log::read(lines.iter().map(String::as_bytes), reading).unwrap()
}

fn report(facts: &[Value]) -> Report {
    check(&read(facts, Reading::default()))
}

thread_local! {
    /// The rules that found something, in the tests that ran on this thread.
    static AT_WORK: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

fn of_rule(report: &Report, rule: &str) -> Vec<String> {
    assert!(RULES.iter().any(|known| known.id == rule), "{rule} is no rule");
    AT_WORK.with_borrow_mut(|rules| rules.extend(report.findings.iter().map(|f| f.rule).filter(|found| *found == rule)));
    report.findings.iter().filter(|f| f.rule == rule).map(|f| format!("{}: {}", f.sequence, f.message)).collect()
}

/// What a rule finds in these facts, as `sequence: message`.
#[track_caller]
fn finds<const N: usize>(rule: &str, facts: &[Value], expected: [&str; N]) {
    assert_eq!(of_rule(&report(facts), rule), expected);
}

/// A fact: its class, then its payload; members of the envelope itself stand under `^`.
fn fact(class: &str, payload: Value) -> Value {
    let mut fact = json!({ "type": class });
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

fn tool(class: &str, payload: Value) -> Value {
    let mut tool = fact(class, payload);
    tool["toolCallId"] = "c".into();
    tool
}

fn action(class: &str, payload: Value) -> Value {
    let mut action = fact(class, payload);
    action["actionId"] = "a".into();
    action
}

fn diagnostic(kind: &str, mut payload: Value) -> Value {
    payload["kind"] = kind.into();
    fact("diagnostic.changed", payload)
}

/// A run in which nothing is wrong: a bit of everything.
fn clean() -> Vec<Value> {
    let agent = |class: &str, payload: Value| {
        let mut agent = fact(class, payload);
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

/// The clean run with further facts after its start.
fn with<const N: usize>(facts: [Value; N]) -> Vec<Value> {
    let mut all = clean();
    all.splice(2..2, facts);
    all
}

#[test]
fn a_clean_run_is_clean() {
    let report = report(&clean());
    assert_eq!(report.findings, Vec::new());
    assert_eq!((report.run.as_deref(), report.envelopes, report.counts, report.omitted), (Some("r"), 28, Counts::default(), 0));
}

/// The tests of rules: each fails when one of its rules finds nothing.
const OF_RULES: &[fn()] = &[
    sequences_grow,
    no_sequence_is_missing_where_none_is_meant_to_be,
    a_log_is_of_one_run_and_has_each_event_once,
    work_comes_after_the_start,
    a_run_starts_again_only_after_its_end_or_where_it_waits,
    an_attempt_ends_once,
    nothing_of_the_work_comes_after_the_end,
    a_run_that_waits_for_nobody_ends,
    an_envelope_has_its_members_by_their_kinds,
    a_fact_has_the_id_of_what_it_is_about,
    a_chunk_names_its_part,
    dimensions_have_the_seed_s_values,
    classes_and_event_types_that_nobody_knows_are_told,
    audiences_are_three,
    what_failed_says_why,
    a_snapshot_of_messages_says_which_whose_and_of_what_parts,
    a_call_that_starts_ends_unless_it_waits_for_somebody,
    a_call_that_ends_began_or_says_that_it_never_did,
    a_call_ends_once_until_it_starts_again,
    a_call_is_named_and_its_result_says_what_came_out,
    progress_is_a_fraction_that_does_not_go_back,
    what_is_reported_after_a_call_s_end_is_worth_knowing,
    after_its_end_a_stream_takes_nothing_more,
    a_final_text_is_what_was_streamed,
    what_is_streamed_is_sealed,
    only_what_is_said_stands_in_the_conversation_and_nowhere_else,
    what_a_worker_reports_is_not_the_user_s_word,
    what_is_resolved_was_required_and_is_resolved_once,
    no_action_is_pending_when_its_run_ends,
    an_action_is_of_a_kind_and_shows_what_its_kind_must,
    a_delegated_approval_names_who_asks,
    a_resolution_says_how_it_came_out,
    a_child_says_whose_it_is,
    a_runtime_entity_has_the_fields_that_the_seed_requires,
    a_hand_off_says_from_whom_to_whom_why_and_where_it_goes_on,
    a_review_says_of_what_it_is_and_how_it_came_out,
    a_worker_s_notification_says_of_which_task_by_whom_and_what_came_of_it,
    a_team_says_how_its_work_is_organised_and_its_tasks_how_they_stand,
    what_is_referred_to_is_somewhere_in_the_log,
    nothing_looks_like_a_secret_and_no_finding_repeats_one,
    large_bodies_are_elsewhere,
    an_artifact_s_body_is_in_its_workspace,
    diagnostics_and_internals_are_not_for_users,
    what_a_screen_folds_away_is_no_fact,
    a_compaction_that_starts_completes,
    what_the_server_noted_is_told,
    patches_apply_to_what_readers_have,
];

#[test]
fn every_rule_finds_something_in_a_test_that_names_it() {
    AT_WORK.take();
    for test in OF_RULES {
        test();
    }
    let idle: Vec<_> = RULES.iter().map(|rule| rule.id).filter(|id| !AT_WORK.with_borrow(|rules| rules.contains(id))).collect();
    assert_eq!(idle, [""; 0], "no test expects anything of these rules");
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
fn every_demand_of_the_seed_is_held_by_rules_or_is_a_client_s_for_a_reason() {
    for demand in DEMANDS {
        assert!(!demand.rules.is_empty() || demand.of_a_client.is_some(), "{}", demand.sentence);
        for rule in demand.rules {
            assert!(RULES.iter().any(|known| known.id == *rule), "{rule} is no rule: {}", demand.sentence);
        }
    }
    // Clients are who the seed speaks to; a log shows what a producer did, and never what a screen made of it.
    let of_producers = [
        "Large output MUST be offloaded to a detail ref or artifact/evidence ref.",
        "Raw secrets MUST be redacted before entering projection state.",
    ];
    for demand in DEMANDS {
        let is_producers = of_producers.contains(&demand.sentence);
        assert_eq!(demand.of_a_client.is_none(), is_producers, "what a client must do shows in no log: {}", demand.sentence);
    }
    let count = |origin: &str| DEMANDS.iter().filter(|demand| demand.origin == origin).count();
    // 7 and 6 of compatible clients, and those that stand among the tables.
    assert_eq!((count("checklist"), count("MUST"), count("MUST NOT")), (19, 7 + 4, 6 + 1));
}

#[test]
fn findings_stand_in_the_order_of_the_log_and_are_counted_by_severity() {
    let facts = with([tool("tool.failed", json!({})), fact("run.status", json!({"^": {"owner": "moon"}}))]);
    let report = report(&facts);
    let seen: Vec<_> = report.findings.iter().map(|f| (f.sequence, f.rule, f.thing.as_deref())).collect();
    let expected =
        [(3, "failure-without-message", Some("c")), (3, "tool-end-without-start", Some("c")), (4, "unknown-dimension", None)];
    assert_eq!(seen, expected);
    assert_eq!(report.counts, Counts { error: 1, warning: 1, info: 1 });
}

#[test]
fn of_one_rule_so_many_findings_are_told_and_all_are_counted() {
    let facts: Vec<Value> = std::iter::once(start())
        .chain((0..FINDINGS_MAX + 7).map(|_| fact("metric.changed", json!({"^": {"audience": "user"}}))))
        .collect();
    let report = report(&facts);
    assert_eq!(of_rule(&report, "diagnostics-audience").len(), FINDINGS_MAX);
    assert_eq!((report.omitted, report.counts.error), (7, FINDINGS_MAX as u64 + 7));
}

#[test]
fn a_finding_repeats_no_secret_and_is_one_line_of_a_bounded_length() {
    let odd = |topology: &str| fact("run.status", json!({"^": {"topology": topology}}));
    let facts =
        [start(), odd(SECRET), tool("tool.failed", json!({"toolName": "\u{1b}[2J"})), odd(&"x".repeat(2 * MESSAGE_CHARS_MAX))];
    let report = report(&facts);
    let of = |rule: &str, n: usize| report.findings.iter().filter(|f| f.rule == rule).nth(n).unwrap().message.clone();
    assert_eq!(of("unknown-dimension", 0), "run.status: unknown dimension: topology is \"[redacted]\"");
    assert_eq!(of("tool-end-without-start", 0), "tool.failed of call c ( [2J) that never started");
    let long = of("unknown-dimension", 1);
    assert!(long.chars().count() == MESSAGE_CHARS_MAX + 1 && long.ends_with("x…"), "{long}");
}

#[test]
fn what_is_no_envelope_is_refused_by_its_line() {
    let refused = |text: &str, line: u64, why: &str| {
        let told = Log::read(text.split('\n').map(str::as_bytes), Reading::default()).unwrap_err();
        assert!(told.line == line && told.why.contains(why), "{told}");
    };
    let good = envelopes(&[start()])[0].to_string();
    refused(&format!("{good}\n\n{{\"type\":"), 3, "not JSON");
    refused("[]", 1, "this is an array, not an object");
    refused(r#"{"event_type":"run_start"}"#, 1, "no \"type\"");
    refused(r#"{"type":"run.started"}"#, 1, "\"sequence\" is none");
    refused(r#"{"type":"run.started","sequence":0}"#, 1, "\"sequence\" is 0, not a whole number from 1");
    refused(r#"{"type":"run.started","sequence":"1"}"#, 1, "--source");
}

// ── the order of the log and the boundaries of its run ──

#[test]
fn sequences_grow() {
    let mut facts = clean();
    facts[3]["sequence"] = 3.into();
    finds("sequence-increasing", &facts, ["3: sequence 3 comes after 3"]);
}

#[test]
fn no_sequence_is_missing_where_none_is_meant_to_be() {
    let mut facts = vec![start(), finish()];
    (facts[0]["sequence"], facts[1]["sequence"]) = (2.into(), 5.into());
    finds(
        "sequence-gapless",
        &facts,
        ["2: one envelope is missing: 1 comes next, this is 2", "5: 2 envelopes are missing: 3 comes next, this is 5"],
    );
    let users = Reading { audience: Audience::User, is_compacted: false };
    let compacted = Reading { is_compacted: true, ..Reading::default() };
    for reading in [users, compacted] {
        assert_eq!(check(&read(&facts, reading)).findings, Vec::new());
    }
}

#[test]
fn a_log_is_of_one_run_and_has_each_event_once() {
    let mut facts = clean();
    facts[4]["runId"] = "x".into();
    facts[5]["eventId"] = "e-1".into();
    finds("one-log", &facts, ["5: this is of run x, and the log of run r", "6: event e-1 was at sequence 2 already"]);
}

#[test]
fn work_comes_after_the_start() {
    finds(
        "work-before-start",
        &[delta("p", "a"), start()],
        ["1: text.delta comes before run.started, which comes at sequence 2"],
    );
    finds("work-before-start", &[finish()], ["1: run.finished comes before run.started, which never comes"]);
    // A turn that is refused never starts.
    finds("work-before-start", &[fact("run.failed", json!({"error": {"message": "no"}}))], []);
}

#[test]
fn a_run_starts_again_only_after_its_end_or_where_it_waits() {
    finds("start-inside-run", &[start(), delta("p", "a"), start()], ["3: run.started comes while attempt 1 is running"]);
    let waits = fact("run.status", json!({"^": {"phase": "waiting"}}));
    finds("start-inside-run", &[start(), waits, start(), finish(), start()], []);
}

#[test]
fn an_attempt_ends_once() {
    let failed = fact("run.failed", json!({"error": {"message": "no"}}));
    finds("one-terminal", &[start(), finish(), failed.clone()], ["3: run.failed comes after run.finished at sequence 2"]);
    finds("one-terminal", &[start(), failed.clone(), start(), finish()], []);
    // What the server settled, any fact reopens.
    let mut settled = failed;
    settled["payload"]["synthetic"] = true.into();
    finds("one-terminal", &[start(), settled.clone(), delta("p", "a"), finish()], []);
    finds("one-terminal", &[start(), settled, finish(), finish()], ["4: run.finished comes after run.finished at sequence 3"]);
}

#[test]
fn nothing_of_the_work_comes_after_the_end() {
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
        "4: text.delta comes after run.finished at sequence 2, and 1 more facts",
        "8: text.delta comes after run.finished at sequence 7",
    ];
    finds("work-after-end", &facts, expected);
}

#[test]
fn a_run_that_waits_for_nobody_ends() {
    finds("run-never-ended", &[start(), delta("p", "a")], ["2: the log ends with text.delta while the run is running"]);
    finds("run-never-ended", &[start(), action("action.required", json!({"kind": "clarification"}))], []);
    finds("run-never-ended", &[fact("session.opened", json!({"^": {"runId": "-"}}))], []);
    // What was only described was never known to go on.
    finds("run-never-ended", &[fact("team.changed", json!({"teamId": "d", "^": {"topology": "solo_run"}}))], []);
}

// ── what every envelope has, and what each class needs ──

#[test]
fn an_envelope_has_its_members_by_their_kinds() {
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
        "1: run.started: phase is a number, and must be text",
        "1: run.started: timestamp is text, and must be a time such as 2026-01-02T03:04:05Z",
        "1: run.started: payload is a number, and must be an object",
        "1: run.started: agentId: an id is empty; it must be 1 to 256 bytes long",
    ];
    let mut found = of_rule(&report(&facts), "envelope-members");
    found.sort();
    let mut sorted = expected;
    sorted.sort_unstable();
    assert_eq!(found, sorted);
}

#[test]
fn a_fact_has_the_id_of_what_it_is_about() {
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
    .map(|class| fact(class, json!({})));
    let expected = [
        "1: text.final has no messageId",
        "2: reasoning.summary has no messageId",
        "3: tool.args has no toolCallId",
        "4: tool.progress has no toolCallId",
        "5: action.resolved has no actionId",
        "6: artifact.failed has no artifactId",
        "7: evidence.changed has no evidenceId",
        "8: agent.changed has no agentId",
        "9: task.changed has no taskId, nor workItemId, nor remoteTaskId",
        "10: review.requested has no reviewId, nor evidenceId",
        "11: team.changed has no teamId, nor teamName",
    ];
    finds("required-ids", &facts, expected);
    let plain = [
        fact("task.changed", json!({"workItemId": "w"})),
        // Progress that nobody can pin on a call, and an activity of a message.
        fact("tool.progress", json!({"message": "half", "^": {"scope": "turn"}})),
        fact("tool.progress", json!({"activityType": "plan", "content": {}, "^": {"messageId": "m"}})),
        fact("tool.args", json!({"toolCallId": "in the payload", "input": {}})),
    ];
    finds("required-ids", &plain, []);
}

#[test]
fn a_chunk_names_its_part() {
    let mut chunk = delta("p", "a");
    chunk["partId"] = "-".into();
    finds("part-id", &[start(), chunk], ["2: text.delta has no partId"]);
}

#[test]
fn dimensions_have_the_seed_s_values() {
    let odd = fact("run.status", json!({"^": {"surface": "moon", "topology": "swarm", "phase": "unknown"}}));
    finds(
        "unknown-dimension",
        &with([odd]),
        ["3: run.status: unknown dimension: surface is \"moon\"", "3: run.status: unknown dimension: topology is \"swarm\""],
    );
}

#[test]
fn classes_and_event_types_that_nobody_knows_are_told() {
    let facts = with([fact("weather.changed", json!({})), diagnostic("unknown_event_type", json!({"eventType": "rain"}))]);
    let expected = [
        "3: nobody knows the class \"weather.changed\"",
        "4: the source has an event type that its adapter does not know: \"rain\"",
    ];
    finds("unknown-event-type", &facts, expected);
}

#[test]
fn audiences_are_three() {
    let carried = fact("run.status", json!({"^": {"audience": "internal", "sourceAudience": "friends"}}));
    let expected = [
        "3: run.status: nobody knows the audience \"everyone\"; it counts as internal",
        "4: run.status: nobody knows the audience \"friends\"; it counts as internal",
    ];
    finds("unknown-audience", &with([fact("run.status", json!({"^": {"audience": "everyone"}})), carried]), expected);
}

#[test]
fn what_failed_says_why() {
    let silent = tool("tool.failed", json!({"error": {"code": "E", "message": ""}, "neverStarted": true}));
    let withheld = tool("tool.failed", json!({"withheld": true}));
    finds(
        "failure-without-message",
        &[start(), silent, withheld, fact("run.failed", json!({}))],
        ["2: tool.failed has no error message", "4: run.failed has no error message"],
    );
}

#[test]
fn a_snapshot_of_messages_says_which_whose_and_of_what_parts() {
    let snapshot =
        fact("messages.snapshot", json!({"messages": [{"messageId": "m", "role": "user", "parts": []}, {"role": ""}]}));
    let expected = ["3: message 1 of the snapshot lacks messageId, role, parts", "4: messages.snapshot has no messages"];
    finds("snapshot-shape", &with([snapshot, fact("messages.snapshot", json!({}))]), expected);
}

// ── tool calls ──

#[test]
fn a_call_that_starts_ends_unless_it_waits_for_somebody() {
    let begun = || tool("tool.started", json!({"toolName": "rm"}));
    finds(
        "tool-never-ended",
        &[start(), begun(), finish()],
        ["2: call c (rm) is still open when the run ends with run.finished at sequence 3"],
    );
    finds("tool-never-ended", &[start(), begun()], ["2: call c (rm) is still open where the log ends"]);
    let asks = action("action.required", json!({"kind": "tool_approval", "^": {"toolCallId": "c"}}));
    finds("tool-never-ended", &[start(), begun(), asks], []);
    // What is only reported on, as a child's call is, was never said to begin.
    finds("tool-never-ended", &[start(), tool("tool.progress", json!({"progress": 0.5})), finish()], []);
    let awaits = tool("tool.progress", json!({"status": "pending", "awaits": "client"}));
    finds("tool-never-ended", &[start(), begun(), awaits, finish()], []);
}

#[test]
fn a_call_that_ends_began_or_says_that_it_never_did() {
    finds(
        "tool-end-without-start",
        &[start(), tool("tool.result", json!({"output": 1}))],
        ["2: tool.result of call c that never started"],
    );
    let never = tool("tool.failed", json!({"neverStarted": true, "error": {"message": "no"}}));
    finds("tool-end-without-start", &[start(), never], []);
}

#[test]
fn a_call_ends_once_until_it_starts_again() {
    let end = || tool("tool.result", json!({"output": 1}));
    let begun = || tool("tool.started", json!({"toolName": "rm"}));
    finds(
        "tool-ended-twice",
        &[start(), begun(), end(), end()],
        ["4: tool.result of call c (rm), which ended at sequence 3 already"],
    );
    finds("tool-ended-twice", &[start(), begun(), end(), begun(), end()], []);
}

#[test]
fn a_call_is_named_and_its_result_says_what_came_out() {
    let facts = [start(), tool("tool.started", json!({})), tool("tool.result", json!({"durationMs": 3})), finish()];
    finds("tool-without-name", &facts, ["2: tool.started of call c has no toolName"]);
    finds("result-without-output", &facts, ["3: tool.result of call c has neither output nor outputRef"]);
    let edge = tool("tool.result", json!({"withheld": true}));
    finds("result-without-output", &[edge], []);
}

#[test]
fn progress_is_a_fraction_that_does_not_go_back() {
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
    finds("progress-range", &facts, expected);
    finds("progress-backwards", &facts, ["3: progress of call c goes back from 0.5 to 0.25"]);
    let content = fact(
        "state.snapshot",
        json!({"activityType": "tool-call-progress", "content": {"progress": 2}, "^": {"toolCallId": "c"}}),
    );
    finds("progress-range", &[content], ["1: progress of call c is 2, not a fraction from 0 to 1"]);
}

#[test]
fn what_is_reported_after_a_call_s_end_is_worth_knowing() {
    let late = tool("tool.progress", json!({"message": "warning"}));
    let mut facts = clean();
    facts.insert(12, late);
    finds("progress-after-end", &facts, ["13: tool.progress of call c (rm), which ended at sequence 12"]);
    assert_eq!(report(&facts).counts, Counts { info: 1, ..Counts::default() });
}

// ── what is said ──

#[test]
fn after_its_end_a_stream_takes_nothing_more() {
    let ends = |part: Value| fact("text.final", json!({"^": {"messageId": "m", "partId": part}}));
    let facts = [start(), delta("p", "a"), ends(json!("p")), delta("p", "b"), delta("q", "c"), ends(json!("-")), delta("r", "d")];
    let expected =
        ["4: text.delta comes after the end of its message or part", "7: text.delta comes after the end of its message or part"];
    finds("write-after-seal", &facts, expected);
    let noted = diagnostic("write_after_seal", json!({"thing": "text:m/p", "eventType": "text.delta"}));
    finds("write-after-seal", &with([noted]), ["3: text.delta of text:m/p came after its end and was not applied"]);
    let output = tool("tool.output.delta", json!({"text": "late"}));
    finds(
        "write-after-seal",
        &[tool("tool.started", json!({"toolName": "rm"})), tool("tool.result", json!({"output": 1})), output],
        ["3: tool.output.delta of call c (rm), which has ended"],
    );
}

#[test]
fn a_final_text_is_what_was_streamed() {
    let says = |whole: &str, expected: &[&str]| {
        let last = fact("text.final", json!({"text": whole, "^": {"messageId": "m"}}));
        let found = of_rule(&report(&[start(), delta("p", "one "), delta("q", "two"), last]), "final-text");
        let told: Vec<String> = expected.iter().map(|how| format!("4: text.final of message m is not its text: {how}")).collect();
        assert_eq!(found, told, "{whole}");
    };
    says("one two", &[]);
    says(" one two\n", &[]);
    says("one twoone two", &["it says what was streamed twice (14 characters)"]);
    says("one two three", &["it goes on for 6 characters that were never streamed"]);
    says("two", &["it lacks 4 of the 7 characters that were streamed"]);
    says("one zwei", &["it differs from what was streamed after 4 characters"]);
    // Of one part, of nothing that was streamed, withheld, moved elsewhere, or without a text.
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
    finds("final-text", &plain, []);
    // What was repaired is not what was streamed before.
    let repair =
        fact("messages.snapshot", json!({"mode": "repair", "messages": [{"messageId": "m", "role": "assistant", "parts": []}]}));
    let again =
        [delta("p", "half"), repair, delta("q", "whole"), fact("text.final", json!({"text": "whole", "^": {"messageId": "m"}}))];
    finds("final-text", &again, []);
    finds("part-never-ended", &again, []);
}

#[test]
fn what_is_streamed_is_sealed() {
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
    finds("part-never-ended", &facts, expected);
    finds("part-never-ended", &facts[..2], ["2: text part m/p is still open where the log ends"]);
}

#[test]
fn only_what_is_said_stands_in_the_conversation_and_nowhere_else() {
    let thought =
        fact("reasoning.delta", json!({"text": "hm", "^": {"messageId": "m", "partId": "x", "surface": "conversation"}}));
    let card = fact("artifact.created", json!({"^": {"artifactId": "a", "surface": "conversation"}}));
    finds("only-text-in-conversation", &[start(), thought, card], ["2: reasoning.delta is meant for the conversation"]);
    let mut said = delta("p", "a");
    said["surface"] = "tool_ui".into();
    finds("text-surface", &[start(), said], ["2: text.delta is meant for the surface tool_ui"]);
}

#[test]
fn what_a_worker_reports_is_not_the_user_s_word() {
    let said = fact("text.final", json!({"role": "user", "origin": "worker", "text": "done", "^": {"messageId": "m"}}));
    let window = fact(
        "messages.snapshot",
        json!({"messages": [{"messageId": "w", "role": "user", "isWorkerNotification": true, "parts": []}]}),
    );
    let expected = ["2: text.final of a worker has the role of the user", "3: message w of a worker has the role of the user"];
    finds("worker-as-user", &[start(), said, window], expected);
}

// ── what waits for somebody ──

#[test]
fn what_is_resolved_was_required_and_is_resolved_once() {
    let resolved = || action("action.resolved", json!({"outcome": "approved"}));
    finds("action-never-required", &[start(), resolved()], ["2: action a is resolved and was never required"]);
    let required = || action("action.required", json!({"kind": "clarification", "message": "?"}));
    finds(
        "action-resolved-twice",
        &[start(), required(), resolved(), resolved()],
        ["4: action a was resolved at sequence 3 already"],
    );
    finds("action-resolved-twice", &[start(), required(), resolved(), required(), resolved()], []);
}

#[test]
fn no_action_is_pending_when_its_run_ends() {
    let required = action("action.required", json!({"kind": "clarification", "message": "?"}));
    let facts = [start(), required, finish()];
    finds("action-pending-at-end", &facts, ["2: action a is still pending when the run ends with run.finished at sequence 3"]);
    finds("action-pending-at-end", &facts[..2], []);
}

#[test]
fn an_action_is_of_a_kind_and_shows_what_its_kind_must() {
    let asks = |payload: Value| action("action.required", payload);
    finds(
        "action-kind",
        &[asks(json!({})), asks(json!({"kind": "vote"}))],
        ["1: action a has no kind", "2: action a is of the kind \"vote\", which nobody knows"],
    );
    let facts = [
        asks(json!({"kind": "tool_approval", "toolName": "rm"})),
        asks(json!({"kind": "structured_input"})),
        asks(json!({"kind": "plan_decision"})),
    ];
    let expected = [
        "1: tool_approval a has no input or safeInput or parameters or toolCallId, no risk or scope or policyScope or payload",
        "2: structured_input a has no schema or options",
    ];
    finds("action-fields", &facts, expected);
}

#[test]
fn a_delegated_approval_names_who_asks() {
    let asks = action("action.required", json!({"kind": "delegated_permission"}));
    finds(
        "delegated-approval",
        std::slice::from_ref(&asks),
        ["1: delegated_permission a has no agentId: nobody knows which teammate asks"],
    );
    let mut named = asks;
    named["agentId"] = "kid".into();
    finds("delegated-approval", std::slice::from_ref(&named), []);
    finds(
        "delegated-details",
        &[named],
        ["1: delegated_permission a has no policyScope, no safeInput or input, no parentRouting"],
    );
}

#[test]
fn a_resolution_says_how_it_came_out() {
    let resolved = |payload: Value| action("action.resolved", payload);
    let facts = [resolved(json!({})), resolved(json!({"outcome": "maybe"})), resolved(json!({"withheld": true}))];
    finds(
        "action-outcome",
        &facts,
        ["1: action a is resolved without an outcome", "2: action a has the outcome \"maybe\", which nobody knows"],
    );
}

// ── teams ──

#[test]
fn a_child_says_whose_it_is() {
    let spawned = fact("agent.spawned", json!({"agentName": "kid", "^": {"agentId": "kid"}}));
    let completed = fact("agent.completed", json!({"^": {"agentId": "kid"}}));
    finds("agent-lineage", &[start(), spawned.clone(), completed.clone()], ["2: agent kid never says its parentSessionId"]);
    let mut named = completed;
    named["parentSessionId"] = "s".into();
    finds("agent-lineage", &[start(), spawned, named], []);
}

#[test]
fn a_runtime_entity_has_the_fields_that_the_seed_requires() {
    let job = fact("task.changed", json!({"runtimeEntity": "external_task", "status": "working", "^": {"taskId": "t"}}));
    let more = fact("task.changed", json!({"runtimeEntity": "external_task", "capabilityRef": "card", "^": {"taskId": "t"}}));
    let facts = [job, more];
    finds("entity-ids", &facts, ["1: external_task t never says its agentId, its remoteTaskId"]);
    finds("entity-details", &facts, ["1: external_task t never says its inputNeeds or authNeeds"]);
}

#[test]
fn a_hand_off_says_from_whom_to_whom_why_and_where_it_goes_on() {
    let facts = [fact("agent.handoff", json!({"from": "a", "^": {"agentId": "a"}}))];
    finds("handoff-fields", &facts, ["1: agent.handoff has no to, no reason"]);
    finds("handoff-details", &facts, ["1: agent.handoff has no resumeTarget, no memoryBoundary or contextBoundary"]);
}

#[test]
fn a_review_says_of_what_it_is_and_how_it_came_out() {
    let facts = [fact("review.requested", json!({"reviewId": "x"})), fact("review.completed", json!({"reviewId": "x"}))];
    let expected = [
        "1: review.requested has no target or artifactId or artifactRefs or taskId",
        "2: review.completed has no verdict, no target",
    ];
    finds("review-fields", &facts, expected);
    finds("review-details", &facts, ["2: review.completed has no reviewer or agentId, no evidenceRefs or evidenceId"]);
}

#[test]
fn a_worker_s_notification_says_of_which_task_by_whom_and_what_came_of_it() {
    let facts = [fact("worker.notification", json!({"status": "failed"}))];
    finds("worker-notification-fields", &facts, ["1: worker.notification has no taskId, no agentId, no summary or text"]);
    finds(
        "worker-notification-details",
        &facts,
        ["1: worker.notification has no resultRef or transcriptRef or artifactRefs or refs"],
    );
}

#[test]
fn a_team_says_how_its_work_is_organised_and_its_tasks_how_they_stand() {
    let team = fact("team.changed", json!({"teamId": "x"}));
    let task = fact("task.changed", json!({"status": "vibing", "^": {"taskId": "t"}}));
    finds("team-topology", &[team], ["1: team x never says its topology"]);
    finds("task-status", &[task], ["1: task.changed: status is \"vibing\", which the seed does not name"]);
}

#[test]
fn what_is_referred_to_is_somewhere_in_the_log() {
    let review = fact(
        "review.completed",
        json!({"reviewId": "x", "evidenceRefs": ["ev", {"evidenceId": "gone"}], "artifactRefs": ["lost"]}),
    );
    let expected = [
        "4: review.completed refers to gone by evidenceRefs, of which no fact tells",
        "4: review.completed refers to lost by artifactRefs, of which no fact tells",
    ];
    let evidence = fact("evidence.changed", json!({"^": {"evidenceId": "ev"}}));
    finds("dangling-ref", &[start(), evidence, fact("run.status", json!({})), review], expected);
}

// ── what must not be in a log, or not for everybody ──

const SECRET: &str = "sk-live-abcdef0123456789abcdef";

#[test]
fn nothing_looks_like_a_secret_and_no_finding_repeats_one() {
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
        "2: tool.started holds what looks like a secret at /payload/input/env/0/apiKey",
        "4: what is streamed as text part m/p holds what looks like a secret",
        "6: the output streamed of call c holds what looks like a secret",
        "7: diagnostic.changed holds what looks like a secret at /payload/[the name of a member]",
        "8: run.status holds what looks like a secret at /note",
    ];
    finds("secret", &facts, expected);
    let told = serde_json::to_string(&report(&facts)).unwrap();
    assert!(!told.contains("hunter2") && !told.contains("abcdef"), "{told}");
}

#[test]
fn large_bodies_are_elsewhere() {
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
    finds("large-inline", &facts, expected);
}

#[test]
fn an_artifact_s_body_is_in_its_workspace() {
    let facts = [fact("artifact.updated", json!({"markdown": "# all of it", "^": {"artifactId": "a"}}))];
    finds("artifact-body", &facts, ["1: artifact.updated of artifact a holds its body in markdown"]);
}

#[test]
fn diagnostics_and_internals_are_not_for_users() {
    let facts = [
        fact("diagnostic.changed", json!({"^": {"audience": "user"}})),
        fact("state.snapshot", json!({"state": {"extensions": {"__runtime.x": 1}}})),
    ];
    finds("diagnostics-audience", &facts, ["1: diagnostic.changed is for users"]);
    finds("runtime-internals", &facts, ["2: state.snapshot for the audience user holds a runtime's internals (__runtime)"]);
}

#[test]
fn what_a_screen_folds_away_is_no_fact() {
    let facts = [
        fact("state.delta", json!({"^": {"owner": "ui_projection"}})),
        fact("state.delta", json!({"^": {"persistence": "ui_local"}})),
    ];
    finds(
        "screen-state",
        &facts,
        ["1: state.delta is a client's own state (ui_projection)", "2: state.delta is a client's own state (ui_local)"],
    );
}

#[test]
fn a_compaction_that_starts_completes() {
    let facts = [start(), fact("context.compaction.started", json!({"compactionId": "k"})), finish()];
    finds("compaction-never-ended", &facts, ["2: compaction k is still open when the run ends with run.finished at sequence 3"]);
    let facts = [
        fact("run.started", json!({"^": {"agentId": "lead"}})),
        fact("context.compaction.started", json!({"^": {"agentId": "lead"}})),
        fact("context.compaction.started", json!({"^": {"agentId": "mate"}})),
        fact("context.compaction.completed", json!({})),
        finish(),
    ];
    let expected = ["3: compaction mate is still open when the run ends with run.finished at sequence 5"];
    finds("compaction-never-ended", &facts, expected);
}

#[test]
fn what_the_server_noted_is_told() {
    let facts = with([
        diagnostic("malformed_event", json!({"eventType": "text_delta", "expected": "delta as text"})),
        diagnostic("unknown_outcome", json!({"eventType": "tool_call_done", "outcome": "maybe"})),
        diagnostic("interleaved_run", json!({"eventType": "run_start", "openRun": "r"})),
        diagnostic("of_tomorrow", json!({})),
    ]);
    let expected = [
        "3: text_delta could not be told: expected delta as text",
        "4: tool_call_done could not be told: nobody knows the outcome \"maybe\"",
    ];
    finds("malformed-event", &facts, expected);
    finds("interleaved-run", &facts, ["5: run_start of another run came while run r was open"]);
}

#[test]
fn patches_apply_to_what_readers_have() {
    let activity = |payload: Value| tool("tool.progress", payload);
    let facts = [
        start(),
        activity(json!({"activityType": "plan", "content": {"steps": []}})),
        activity(json!({"activityType": "plan", "patch": [{"op": "add", "path": "/steps/-", "value": 1}]})),
        activity(json!({"activityType": "plan", "patch": [{"op": "add", "path": "/gone/-", "value": 1}]})),
    ];
    let report = report(&facts);
    let found = of_rule(&report, "patch-not-applied");
    assert!(found.len() == 1 && found[0].starts_with("4: a patch of plan c does not apply: "), "{found:?}");
    assert_eq!(report.findings.iter().find(|f| f.rule == "patch-not-applied").unwrap().thing.as_deref(), Some("c"));
    finds("patch-not-applied", &facts[..3], []);
}

// ── whatever it is given ──

/// A log of the clean run's envelopes, any of them, in any order, each damaged or not.
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
            // Without its class and its place it is no envelope.
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
    fn no_envelope_however_damaged_stops_the_linter_and_the_same_log_gives_the_same_findings(
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
        let read = || Log::read(lines.iter().map(String::as_bytes), Reading::default()).unwrap();
        let report = check(&read());
        prop_assert!(report.findings.is_sorted_by_key(|finding| finding.sequence));
        prop_assert_eq!(check(&read()), report);
    }
}

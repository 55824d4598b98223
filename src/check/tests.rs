//! Tests each rule with a log that breaks it, and all rules with a clean run.

mod runs;
mod safety;
mod subjects;

use super::*;
use crate::model::EventType;
use proptest::prelude::*;
use runs::*;
use safety::*;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use subjects::*;

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
    an_approval_with_options_has_one_for_a_plain_yes,
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

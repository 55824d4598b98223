//! Rules on the log, its runs, and the shape of envelopes.

use super::*;

#[test]
pub(super) fn sequences_increase() {
    let mut facts = clean();
    facts[3]["sequence"] = 3.into();
    assert_findings("sequence-increasing", &facts, ["3: sequence 3 follows 3"]);
}

#[test]
pub(super) fn sequences_have_no_gaps_in_a_complete_log() {
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
pub(super) fn a_log_has_one_run_and_each_event_once() {
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
pub(super) fn work_follows_the_start() {
    assert_findings("work-before-start", &[delta("p", "a"), start()], ["1: text.delta comes before run.started (at sequence 2)"]);
    let asked = fact("text.final", json!({"role": "user", "text": "Hello", "^": {"messageId": "u"}}));
    assert_findings("work-before-start", &[asked, start()], []);
    assert_findings("work-before-start", &[finish()], ["1: run.finished comes before run.started (the log has none)"]);
    // A rejected turn never starts.
    assert_findings("work-before-start", &[fact("run.failed", json!({"error": {"message": "no"}}))], []);
}

#[test]
pub(super) fn a_run_restarts_only_after_its_end_or_while_it_waits() {
    assert_findings(
        "start-inside-run",
        &[start(), delta("p", "a"), start()],
        ["3: run.started comes while attempt 1 is running"],
    );
    let waits = fact("run.status", json!({"^": {"phase": "waiting"}}));
    assert_findings("start-inside-run", &[start(), waits, start(), finish(), start()], []);
}

#[test]
pub(super) fn an_attempt_ends_once() {
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
pub(super) fn no_work_follows_the_end() {
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
pub(super) fn a_run_that_does_not_wait_ends() {
    assert_findings("run-never-ended", &[start(), delta("p", "a")], ["2: the log ends with text.delta while the run is running"]);
    assert_findings("run-never-ended", &[start(), action("action.required", json!({"kind": "clarification"}))], []);
    assert_findings("run-never-ended", &[fact("session.opened", json!({"^": {"runId": "-"}}))], []);
    // A log without a run boundary does not show an active run.
    assert_findings("run-never-ended", &[fact("team.changed", json!({"teamId": "d", "^": {"topology": "solo_run"}}))], []);
}

// ── envelope members, and the members that each event type requires ──

#[test]
pub(super) fn an_envelope_has_its_members_with_their_types() {
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
pub(super) fn a_fact_has_the_id_of_its_subject() {
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
pub(super) fn a_chunk_names_its_part() {
    let mut chunk = delta("p", "a");
    chunk["partId"] = "-".into();
    assert_findings("part-id", &[start(), chunk], ["2: text.delta has no partId"]);
}

#[test]
pub(super) fn dimensions_have_values_of_the_seed() {
    let odd = fact("run.status", json!({"^": {"surface": "moon", "topology": "swarm", "phase": "unknown"}}));
    assert_findings(
        "unknown-dimension",
        &clean_run_with([odd]),
        ["3: run.status: surface has the unknown value \"moon\"", "3: run.status: topology has the unknown value \"swarm\""],
    );
}

#[test]
pub(super) fn unknown_event_types_are_reported() {
    let facts =
        clean_run_with([fact("weather.changed", json!({})), diagnostic("unknown_event_type", json!({"eventType": "rain"}))]);
    let expected = [
        "3: the event type \"weather.changed\" is unknown",
        "4: the source sent an event type that its adapter does not support: \"rain\"",
    ];
    assert_findings("unknown-event-type", &facts, expected);
}

#[test]
pub(super) fn an_unknown_audience_is_reported() {
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
pub(super) fn a_failure_has_a_message() {
    let silent = tool("tool.failed", json!({"error": {"code": "E", "message": ""}, "neverStarted": true}));
    let withheld = tool("tool.failed", json!({"withheld": true}));
    assert_findings(
        "failure-without-message",
        &[start(), silent, withheld, fact("run.failed", json!({}))],
        ["2: tool.failed has no error message", "4: run.failed has no error message"],
    );
}

#[test]
pub(super) fn a_message_snapshot_has_ids_roles_and_parts() {
    let snapshot =
        fact("messages.snapshot", json!({"messages": [{"messageId": "m", "role": "user", "parts": []}, {"role": ""}]}));
    let expected = ["3: message 1 of the snapshot has no messageId, no role, no parts", "4: messages.snapshot has no messages"];
    assert_findings("snapshot-shape", &clean_run_with([snapshot, fact("messages.snapshot", json!({}))]), expected);
}

// ── tool calls ──

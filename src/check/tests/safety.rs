//! Rules on what a log must not contain.

use super::*;

pub(super) const SECRET: &str = "sk-live-abcdef0123456789abcdef";

#[test]
pub(super) fn text_like_a_secret_is_reported_and_not_repeated() {
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
pub(super) fn large_bodies_are_offloaded() {
    let (fits, large) = ("x".repeat(32 * 1024), "x".repeat(32 * 1024 + 1));
    let facts = [
        tool("tool.result", json!({"output": fits})),
        tool("tool.result", json!({"output": {"a": large.clone()}})),
        fact("state.snapshot", json!({"state": {"list": [1, large]}})),
        fact("text.final", json!({"text": large, "^": {"messageId": "m"}})),
    ];
    let expected = [
        "2: tool.result holds 32777 bytes inline at /payload/output, the limit is 32768",
        "3: state.snapshot holds 32769 bytes inline at /payload/state/list/1, the limit is 32768",
    ];
    assert_findings("large-inline", &facts, expected);
}

#[test]
pub(super) fn an_artifact_s_body_is_only_in_the_event_of_its_version() {
    let facts = ["artifact.updated", "artifact.version.created", "artifact.preview.ready"]
        .map(|class| fact(class, json!({"markdown": "# all of it", "^": {"artifactId": "a"}})));
    let expected = [
        "1: artifact.updated of artifact a contains the body in markdown",
        "3: artifact.preview.ready of artifact a contains the body in markdown",
    ];
    assert_findings("artifact-body", &facts, expected);
}

#[test]
pub(super) fn diagnostics_and_internals_are_not_for_users() {
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
pub(super) fn client_state_is_not_a_fact() {
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
pub(super) fn a_compaction_that_starts_completes() {
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
pub(super) fn diagnostics_of_the_server_are_reported() {
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
pub(super) fn patches_apply_to_the_current_content() {
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

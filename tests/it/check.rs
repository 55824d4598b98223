//! `proscenium check` at a terminal or in a pipeline: its findings, its output, and its exit code.

use super::cli::{Running, proscenium, recording, run, stderr, stdout};
use crate::harness::{list_recordings, part_of, repository};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

/// The findings of each source's recordings, by rule; recordings without a row have none.
///
/// A new source adds a row.
const RECORDINGS: &[(&str, &str, &[(&str, &[(&str, usize)])])] = &[
    (
        "awaken",
        "awaken",
        &[
            // A permanent error of the provider: the runtime stops without an end.
            ("error_unauthorized_no_terminal", &[("run-never-ended", 1)]),
            // Every variant that the runtime declares and never sends, in sequence; they include six ends of one run.
            ("handwritten-declared_but_unproduced", &[("one-terminal", 5), ("patch-not-applied", 1)]),
            // A string, and then a patch of a member of it: the runtime's documented pattern, which applies to nothing.
            ("long_40_steps", &[("patch-not-applied", 47)]),
            ("tool_progress_activity", &[("patch-not-applied", 3)]),
            // The runtime names a child by its run and not by its session.
            ("subagent_progress_forwarded", &[("entity-details", 1)]),
        ],
    ),
    (
        "awaken-canonical",
        "awaken",
        &[
            // The store keeps no end of a suspended run.
            ("hitl_approve.drafts", &[("run-never-ended", 1)]),
            ("hitl_cancel.drafts", &[("run-never-ended", 1)]),
            ("tool_progress_activity.drafts", &[("patch-not-applied", 3)]),
            ("subagent_progress_forwarded.drafts", &[("entity-details", 1)]),
        ],
    ),
    (
        "ethos",
        "ethos",
        &[
            // The provider broke off in the middle of the text, and no event ended it.
            ("abort_mid_text_provider_throws", &[("part-never-ended", 1)]),
            ("error_llm_midstream", &[("part-never-ended", 1)]),
            // Variants that no release sends, one of them of a future release, without context.
            (
                "handwritten-declared_but_unproduced",
                &[
                    ("action-never-required", 1),
                    ("review-details", 1),
                    ("review-fields", 1),
                    ("tool-end-without-start", 2),
                    ("unknown-audience", 1),
                    ("unknown-event-type", 1),
                ],
            ),
            // Two turns in one file, recorded to show this finding.
            ("two_sessions_interleaved", &[("interleaved-run", 14), ("work-after-end", 1)]),
        ],
    ),
    (
        "turn-runner",
        "turnrunner",
        &[
            // The executor broke off in the middle of a stream that was never sealed.
            ("handwritten-port-abort_domexception_looks_like_error", &[("part-never-ended", 1)]),
            ("handwritten-port-error_executor_throws", &[("part-never-ended", 1)]),
        ],
    ),
    (
        "ag-ui",
        "ag-ui",
        &[
            // AG-UI's interrupts state no risk; the patches are Awaken's, as above.
            ("scripted-sdk1.0-interrupt_resume", &[("action-fields", 1)]),
            ("awaken-encoder-hitl_approve", &[("action-fields", 1)]),
            ("awaken-encoder-hitl_cancel", &[("action-fields", 1)]),
            ("awaken-encoder-long_40_steps", &[("patch-not-applied", 47)]),
            ("awaken-encoder-multi_tool_parallel", &[("patch-not-applied", 5)]),
            ("awaken-encoder-tool_progress_activity", &[("patch-not-applied", 3)]),
        ],
    ),
    (
        "ai-sdk",
        "ai-sdk",
        &[
            // An abort or an error ends the stream at once: open parts and calls get no end.
            ("abort_mid_text", &[("part-never-ended", 1)]),
            ("abort_mid_tool", &[("tool-never-ended", 2)]),
            ("error_in_execute", &[("part-never-ended", 1)]),
            ("error_midstream_part", &[("part-never-ended", 1), ("work-after-end", 1)]),
            ("v5-abort_mid_text", &[("part-never-ended", 1)]),
            // Approvals state no risk.
            ("approval_approved", &[("action-fields", 1)]),
            ("approval_automatic", &[("action-fields", 1)]),
            ("approval_denied", &[("action-fields", 1)]),
            ("v6-approval_approved", &[("action-fields", 1)]),
            // The output of a client's tool is on no stream.
            ("client_tool_answered", &[("result-without-output", 1)]),
        ],
    ),
    (
        "openai-responses",
        "openai-responses",
        &[
            // The Agents SDK names its agents alone, and sends no end when it stops.
            ("agents-chatcmpl-cancel_immediate", &[("agent-lineage", 1), ("part-never-ended", 1), ("run-never-ended", 1)]),
            ("agents-chatcmpl-error_midstream", &[("agent-lineage", 1), ("part-never-ended", 1), ("run-never-ended", 1)]),
            ("agents-chatcmpl-handoff", &[("agent-lineage", 2), ("handoff-details", 2)]),
            ("agents-chatcmpl-one_tool", &[("agent-lineage", 1)]),
            ("agents-chatcmpl-parallel_tools", &[("agent-lineage", 1)]),
            ("agents-chatcmpl-reasoning_text", &[("agent-lineage", 1)]),
            ("agents-chatcmpl-tool_approval_mixed", &[("agent-lineage", 1)]),
            ("agents-chatcmpl-tool_failures_soft", &[("agent-lineage", 1)]),
            ("agents-chatcmpl-two_turns", &[("agent-lineage", 1)]),
            ("agents-responses-mcp_approval_callback", &[("agent-lineage", 1)]),
            // The caller runs a function now, and its next request is not in the file.
            ("endpoint-custom_tool_and_shell", &[("run-never-ended", 1), ("tool-never-ended", 1)]),
            ("endpoint-dialect_no_sequence_numbers", &[("run-never-ended", 1), ("tool-never-ended", 1)]),
            ("endpoint-unicode_split", &[("run-never-ended", 1), ("tool-never-ended", 1)]),
            // An error ends the stream at once.
            ("endpoint-error_event_flat", &[("part-never-ended", 1)]),
            ("endpoint-error_event_nested", &[("part-never-ended", 1)]),
            ("endpoint-failed_midstream", &[("part-never-ended", 1)]),
            // The output of a function is on no stream.
            ("endpoint-one_function_tool_two_responses", &[("result-without-output", 1)]),
        ],
    ),
    (
        "a2a",
        "a2a",
        // A stream does not name its agent, whose card says what it can do.
        &[
            ("rest-text_artifact", &[("entity-details", 1), ("entity-ids", 1)]),
            ("v0.3-text_artifact", &[("entity-details", 1), ("entity-ids", 1)]),
            ("v1-cancel", &[("entity-details", 1), ("entity-ids", 1)]),
            ("v1-executor_raises", &[("entity-details", 1), ("entity-ids", 1)]),
            ("v1-input_required_then_answer", &[("entity-details", 1), ("entity-ids", 1)]),
            // The table of the second artifact is small, and stays in its envelope.
            ("v1-multi_artifacts_unicode", &[("artifact-body", 1), ("entity-details", 1), ("entity-ids", 1)]),
            ("v1-text_artifact", &[("entity-details", 1), ("entity-ids", 1)]),
            ("v1-two_tasks_one_context", &[("entity-details", 2), ("entity-ids", 2)]),
        ],
    ),
    (
        "acp",
        "acp",
        &[
            // The agent leaves open calls as they are at the end of a turn.
            ("claude-agent-cancel_pending_permission", &[("tool-never-ended", 1)]),
            // Images come in the message itself.
            ("scripted-content_blocks", &[("artifact-body", 3), ("result-without-output", 1)]),
            // The agent says that a call is complete, and not what it returned.
            ("scripted-diffs", &[("result-without-output", 2)]),
            ("scripted-error_midstream", &[("tool-never-ended", 1)]),
            ("scripted-fs_through_client", &[("result-without-output", 1)]),
            ("scripted-permission_always_two_turns", &[("result-without-output", 2)]),
            ("scripted-python-edit_with_permission", &[("result-without-output", 1)]),
            ("scripted-streamed_tool_title_and_input", &[("result-without-output", 1)]),
            // A kind of a future release, and a call that the agent leaves open.
            ("scripted-unknown_update_and_extensions", &[("tool-never-ended", 1), ("unknown-event-type", 1)]),
            // The whole message corrects its chunks.
            ("scripted-v2draft-turn", &[("final-text", 1), ("result-without-output", 1)]),
        ],
    ),
    (
        "claude-stream-json",
        "claude-stream-json",
        &[
            // A child or a background command states little of itself.
            ("background_bash", &[("entity-details", 1)]),
            ("subagent_background_second_turn", &[("entity-details", 1)]),
            ("subagent_foreground", &[("entity-details", 1)]),
        ],
    ),
    (
        "langgraph",
        "langgraph",
        &[
            // The run stream has no end.
            ("all_modes_one_tool", STOPS),
            ("breakpoint_interrupt_before", STOPS),
            ("cancel_mid_text", &[("part-never-ended", 1), ("run-never-ended", 1)]),
            ("custom_progress", STOPS),
            ("empty_model_output", STOPS),
            // A model that breaks off leaves its message open.
            ("error_midstream", &[("part-never-ended", 1)]),
            ("fanout_send_same_node", STOPS),
            // The first of two runs has no end.
            ("finish_length_and_content_filter", &[("run-never-ended", 1), ("start-inside-run", 1)]),
            ("hidden_model_call_and_message_edits", STOPS),
            ("hitl_middleware_edit", STOPS),
            ("hitl_per_call_edit_and_reject", STOPS),
            ("interrupt_approve", STOPS),
            // A namespace is all that is known of a subgraph.
            ("interrupt_in_nested_subgraph", &[("entity-details", 2), ("run-never-ended", 1)]),
            ("interrupt_reject", STOPS),
            ("interrupt_two_one_by_one", STOPS),
            ("js-stream_sse_one_tool", STOPS),
            ("one_tool", STOPS),
            ("parallel_tools_same_name", STOPS),
            ("raw-v3-tool_progress_all_transformers", STOPS),
            ("reasoning_standard_blocks", STOPS),
            ("reasoning_text", STOPS),
            ("regenerate_from_checkpoint", &[("run-never-ended", 1), ("start-inside-run", 1)]),
            ("resumable_with_ids", STOPS),
            ("short_text", STOPS),
            ("short_text_messages_mode", STOPS),
            ("state_values_updates", STOPS),
            ("subgraphs_nested", &[("entity-details", 2), ("run-never-ended", 1)]),
            ("supervisor_two_agents_as_tools", &[("entity-details", 2), ("run-never-ended", 1)]),
            ("tool_errors_handled", STOPS),
            // A tool that raises leaves its call open.
            ("tool_raises_run_error", &[("tool-never-ended", 1)]),
            ("two_turns_one_thread", &[("run-never-ended", 1), ("start-inside-run", 1)]),
            ("v3-cancel_mid_text", &[("part-never-ended", 1)]),
            ("v3-error_midstream", &[("part-never-ended", 1)]),
            ("v3-subgraphs_nested", &[("agent-lineage", 2), ("entity-details", 2)]),
            ("v3-supervisor_two_agents_as_tools", &[("agent-lineage", 2), ("entity-details", 2)]),
        ],
    ),
];

/// The finding of a stream that stops without an end.
const STOPS: &[(&str, usize)] = &[("run-never-ended", 1)];

fn run_check(arguments: &[&str]) -> Output {
    let mut all = vec!["check"];
    all.extend(arguments);
    run(&mut proscenium(&all))
}

/// Returns the report of a check as JSON, and its exit code.
fn check_as_json(arguments: &[&str]) -> (Value, Option<i32>) {
    let mut all = arguments.to_vec();
    all.extend(["--format", "json"]);
    let output = run_check(&all);
    let report = serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (report, output.status.code())
}

/// Counts a report's findings by rule.
fn count_by_rule(report: &Value) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for finding in report["findings"].as_array().unwrap() {
        *found.entry(finding["rule"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    found
}

fn write_file(directory: &TempDir, name: &str, text: &str) -> PathBuf {
    let file = directory.path().join(name);
    std::fs::write(&file, text).unwrap();
    file
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Builds an envelope without errors.
fn envelope(sequence: u64, event_type: &str) -> Value {
    json!({
        "type": event_type, "eventId": format!("e-{sequence}"), "sequence": sequence, "receivedAt": "2026-01-01T00:00:00Z", "runId": "r",
        "owner": "runtime", "scope": "run", "phase": "accepted", "surface": "runtime_status", "persistence": "snapshot", "audience": "user",
    })
}

#[test]
fn every_recording_has_exactly_its_expected_findings() {
    let mut differences = Vec::new();
    for (folder, source, shown) in RECORDINGS {
        let names = list_recordings(folder);
        assert!(shown.iter().all(|(name, _)| names.iter().any(|of| of == name)), "every row of {folder} has a recording");
        for name in part_of(names, 4) {
            let expected = shown.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, found)| *found);
            let file = repository(&format!("tests/recordings/{folder}/{name}.ndjson"));
            let (report, code) = check_as_json(&[text(&file), "--source", source]);
            let expected: BTreeMap<String, usize> = expected.iter().map(|(rule, n)| ((*rule).to_owned(), *n)).collect();
            let found = count_by_rule(&report);
            if found != expected {
                differences.push(format!("{folder}/{name}: {found:?}, expected {expected:?}"));
            }
            assert_eq!(code, Some(i32::from(report["counts"]["error"] != 0)), "{folder}/{name}");
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn exit_codes_are_0_without_findings_1_with_errors_and_strict_makes_warnings_errors() {
    let directory = TempDir::new().unwrap();
    let (start, end) = (envelope(1, "run.started"), envelope(2, "run.finished"));
    let well = write_file(&directory, "well", &format!("{start}\n\n{end}\n"));
    let odd = write_file(&directory, "odd", &start.to_string());
    let wrong = write_file(&directory, "wrong", &format!("{start}\n{end}\n{}", envelope(3, "run.finished")));
    let known = write_file(&directory, "known", &{
        let mut end = end;
        end["topology"] = "swarm".into();
        format!("{start}\n{end}")
    });
    for (file, plain, strict) in [(&well, 0, 0), (&known, 0, 0), (&odd, 0, 1), (&wrong, 1, 1)] {
        assert_eq!(run_check(&[text(file)]).status.code(), Some(plain), "{}", file.display());
        assert_eq!(run_check(&[text(file), "--strict"]).status.code(), Some(strict), "{}", file.display());
    }
}

#[test]
fn findings_are_printed_as_blocks_for_people_and_as_one_object_for_programs() {
    let directory = TempDir::new().unwrap();
    let mut failed = envelope(2, "tool.failed");
    failed["toolCallId"] = "c".into();
    failed["payload"] = json!({"neverStarted": true});
    let file =
        write_file(&directory, "log", &format!("{}\n{failed}\n{}", envelope(1, "run.started"), envelope(3, "run.finished")));
    let output = run_check(&[text(&file)]);
    let expected = "\
error[failure-without-message] seq 2: tool.failed has no error message
  remedy: send error: { message, code? }
run r: 3 envelopes, 1 error, 0 warnings, 0 notes
";
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str(), output.status.code()), (expected, "", Some(1)));
    let expected = json!({
        "run": "r", "envelopes": 3,
        "findings": [{
            "rule": "failure-without-message", "severity": "error", "sequence": 2, "thing": "c",
            "message": "tool.failed has no error message", "remedy": "send error: { message, code? }",
        }],
        "counts": {"error": 1, "warning": 0, "info": 0},
    });
    assert_eq!(check_as_json(&[text(&file)]), (expected, Some(1)));
}

#[tokio::test]
async fn a_run_is_checked_the_same_from_a_server_a_file_or_a_pipe() {
    let server = Running::serve();
    let name = "tool_progress_activity";
    server.record(name, &recording(&format!("{name}.ndjson"))).await;
    // The directory has no file with the run's name.
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("export");
    let exported = run(&mut proscenium(&["export", name, "-o", text(&file), "--url", &server.url]));
    assert_eq!(exported.status.code(), Some(0));
    let (live, code) = check_as_json(&[name, "--server", &server.url]);
    assert_eq!((live["run"].as_str(), code, count_by_rule(&live)["patch-not-applied"]), (Some(name), Some(0), 3));
    assert_eq!(check_as_json(&[text(&file)]), (live.clone(), Some(0)));
    let piped = run(proscenium(&["check", "-", "--format", "json"]).stdin(std::fs::File::open(&file).unwrap()));
    assert_eq!(serde_json::from_str::<Value>(&stdout(&piped)).unwrap(), live);
    // A check that adapts the runtime's facts gives the same findings as the server's log.
    let (adapted, _) = check_as_json(&[text(&recording(&format!("{name}.ndjson"))), "--source", "awaken"]);
    assert_eq!((&adapted["findings"], &adapted["envelopes"]), (&live["findings"], &live["envelopes"]));
}

#[tokio::test]
async fn gaps_between_a_wider_audience_s_envelopes_are_no_findings() {
    let server = Running::serve();
    server.record("r", &recording("multi_tool_sequential.ndjson")).await;
    let (report, code) = check_as_json(&["r", "--url", &server.url, "--audience", "user"]);
    assert_eq!((count_by_rule(&report), code), (BTreeMap::new(), Some(0)));
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("r");
    let exported = run(&mut proscenium(&["export", "r", "--audience", "user", "-o", text(&file), "--url", &server.url]));
    assert_eq!(exported.status.code(), Some(0));
    assert_eq!(run_check(&[text(&file), "--audience", "user"]).status.code(), Some(0));
    assert_eq!(run_check(&[text(&file), "--compacted"]).status.code(), Some(0));
    let gaps = run_check(&[text(&file)]);
    assert!(gaps.status.code() == Some(1) && stdout(&gaps).contains("error[sequence-gapless]"), "{}", stdout(&gaps));
}

#[test]
fn a_file_takes_precedence_over_a_run_with_the_same_name() {
    let directory = TempDir::new().unwrap();
    write_file(&directory, "my-run", &format!("{}\n{}", envelope(1, "run.started"), envelope(2, "run.finished")));
    // Nothing listens on that port, and the command does not connect to it.
    let output = run(proscenium(&["check", "my-run", "--url", "http://127.0.0.1:9"]).current_dir(directory.path()));
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn unreadable_input_exits_with_2_and_names_the_line_and_the_expected_form() {
    let directory = TempDir::new().unwrap();
    let good = envelope(1, "run.started").to_string();
    let bad = |name: &str, lines: &[&str], further: &[&str], at: &str, why: &[&str]| {
        let file = write_file(&directory, name, &lines.join("\n"));
        let mut arguments = vec![text(&file)];
        arguments.extend(further);
        let output = run_check(&arguments);
        let errors = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{errors}");
        assert!(errors.contains(&format!("{}{at}: ", file.display())) && why.iter().all(|why| errors.contains(why)), "{errors}");
    };
    bad("cut", &[&good, "", "{\"type\":"], &[], ":3", &["not JSON", "an envelope"]);
    bad("list", &["[]"], &[], ":1", &["an array", "an envelope"]);
    bad("facts", &[r#"{"event_type":"run_start"}"#], &[], ":1", &["no \"type\"", "--source"]);
    bad("unplaced", &[r#"{"type":"run.started"}"#], &[], ":1", &["\"sequence\"", "--source"]);
    bad("empty", &["", " "], &[], "", &["no envelope"]);
    let awaken = ["--source", "awaken"];
    bad("fact", &[r#"{"event_type":"step_end"}"#, "", "{}"], &awaken, ":3", &["\"event_type\"", "--source awaken"]);
    bad("text", &["", "\"run_start\""], &awaken, ":2", &["is text", "a JSON object"]);
}

#[test]
fn an_unknown_source_and_an_unknown_name_exit_with_the_remedy() {
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let directory = TempDir::new().unwrap();
    let missing =
        run(proscenium(&["check", "my-run.ndjson", "--url", &format!("http://{unused_address}")]).current_dir(directory.path()));
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        stderr(&missing).contains("the file \"my-run.ndjson\" does not exist") && stderr(&missing).contains("proscenium serve"),
        "{}",
        stderr(&missing)
    );
    let server = Running::serve();
    let unknown = run(proscenium(&["check", "never", "--url", &server.url]).current_dir(directory.path()));
    assert!(unknown.status.code() == Some(2) && stderr(&unknown).contains("no_such_run"), "{}", stderr(&unknown));
    let source = run_check(&["facts.ndjson", "--source", "moon"]);
    assert!(source.status.code() == Some(2) && stderr(&source).contains("agentui, awaken"), "{}", stderr(&source));
    let missing_file = run_check(&["missing_file.ndjson", "--source", "awaken"]);
    assert!(
        missing_file.status.code() == Some(2) && stderr(&missing_file).contains("missing_file.ndjson: "),
        "{}",
        stderr(&missing_file)
    );
    let nothing = run_check(&[]);
    assert!(nothing.status.code() == Some(2) && stderr(&nothing).contains("FILE|RUN"), "{}", stderr(&nothing));
}

#[test]
fn rules_lists_every_rule_and_the_demands_that_no_log_can_show() {
    let listed = run_check(&["--rules"]);
    assert_eq!(listed.status.code(), Some(0));
    let shown = stdout(&listed);
    assert!(shown.contains("error[final-text] ") && shown.contains("only a client can show: "), "{shown}");
    let (rules, code) = check_as_json(&["--rules"]);
    assert_eq!(code, Some(0));
    let ids: Vec<&str> = rules["rules"].as_array().unwrap().iter().map(|rule| rule["rule"].as_str().unwrap()).collect();
    assert!(ids.iter().all(|id| shown.contains(&format!("[{id}]"))), "{ids:?}");
    assert_eq!(rules["demands"].as_array().unwrap().iter().filter(|demand| demand["origin"] == "checklist").count(), 19);
}

#[test]
fn a_secret_in_a_file_is_found_and_not_printed_and_facts_are_redacted_as_by_a_server() {
    let directory = TempDir::new().unwrap();
    let mut start = envelope(1, "run.started");
    start["payload"] = json!({"input": {"apiKey": "hunter2"}});
    let file = write_file(&directory, "log", &format!("{start}\n{}", envelope(2, "run.finished")));
    let output = run_check(&[text(&file)]);
    assert!(
        stdout(&output).contains("error[secret] seq 1: ") && stdout(&output).contains("/payload/input/apiKey"),
        "{}",
        stdout(&output)
    );
    assert!(!stdout(&output).contains("hunter2"));
    let facts = write_file(
        &directory,
        "facts",
        &format!("{}\n{}", json!({"type": "run.started", "input": {"apiKey": "hunter2"}}), json!({"type": "run.finished"})),
    );
    let (report, code) = check_as_json(&[text(&facts), "--source", "agentui"]);
    assert_eq!((count_by_rule(&report), code), (BTreeMap::new(), Some(0)));
}

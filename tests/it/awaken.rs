//! The Awaken adapter over its recordings, fact by fact: nothing that the runtime sent is lost.

use proscenium::model::{Audience, Draft, EventType, Ids, Phase, RunId, ToolCallId};
use proscenium::source::{DryRun, Fact, SourceKind, by_name};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The largest adapter memory of a recording, in bytes.
///
/// Ids, counters and lengths of a real run fit; a body would not.
const MEMORY_BYTES_MAX: usize = 8 * 1024;

fn source() -> &'static SourceKind {
    by_name("awaken").unwrap()
}

fn given() -> Ids {
    Ids { run: Some(RunId::new("run").unwrap()), ..Ids::default() }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/awaken")
}

/// Reads the facts of a recording.
fn recording(name: &str) -> Vec<Fact> {
    let text = std::fs::read_to_string(folder().join(format!("{name}.ndjson"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn recordings() -> Vec<(String, Vec<Fact>)> {
    let mut names: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 19, "recordings are missing: {names:?}");
    names.into_iter().map(|name| (name.clone(), recording(&name))).collect()
}

fn adapt_with(adapter: &mut DryRun, fact: Fact) -> Vec<Draft> {
    adapter.adapt(fact, &given()).unwrap()
}

fn drafts_of(facts: Vec<Fact>) -> Vec<Draft> {
    let mut adapter = DryRun::new(source());
    facts.into_iter().flat_map(|fact| adapt_with(&mut adapter, fact)).collect()
}

fn drafts(name: &str) -> Vec<Draft> {
    drafts_of(recording(name))
}

fn of_type(drafts: &[Draft], class: EventType) -> Vec<&Draft> {
    drafts.iter().filter(|d| d.event_type == class).collect()
}

/// Formats as `type phase` the drafts that report the state of the run, its actions and its calls.
fn lifecycle(drafts: &[Draft]) -> Vec<String> {
    let is_lifecycle = |d: &&Draft| {
        let class = d.event_type.as_str();
        !d.payload.contains_key("step")
            && ["run.", "action.", "permission.", "agent.", "worker."].iter().any(|family| class.starts_with(family))
            || matches!(d.event_type, EventType::ToolStarted | EventType::ToolResult | EventType::ToolFailed)
    };
    drafts.iter().filter(is_lifecycle).map(|d| format!("{} {}", d.event_type, d.phase)).collect()
}

/// Returns the text of each message as a reader sees it: chunks by part, emptied by a repair.
fn texts(drafts: &[Draft], class: &EventType) -> String {
    let mut parts: Vec<(String, String, String)> = Vec::new();
    for draft in drafts {
        if draft.event_type == *class {
            let (message, part) = (draft.ids.message.as_ref().unwrap().to_string(), draft.ids.part.as_ref().unwrap().to_string());
            let chunk = draft.text("text").unwrap();
            match parts.iter_mut().find(|(m, p, _)| *m == message && *p == part) {
                Some((.., text)) => text.push_str(chunk),
                None => parts.push((message, part, chunk.to_owned())),
            }
        }
        if draft.text("mode") == Some("repair") {
            let repaired = draft.payload.get("messages").unwrap().list().unwrap()[0]["messageId"].as_str().unwrap();
            parts.retain(|(message, ..)| message != repaired);
        }
    }
    parts.into_iter().map(|(.., text)| text).collect()
}

fn calls(drafts: &[Draft], classes: &[EventType]) -> BTreeSet<String> {
    let of = |d: &Draft| d.ids.tool_call.as_ref().map(ToolCallId::to_string);
    drafts.iter().filter(|d| classes.contains(&d.event_type)).filter_map(of).collect()
}

#[test]
fn no_recorded_fact_is_rejected_and_none_is_unknown() {
    for (name, facts) in recordings() {
        for draft in drafts_of(facts) {
            let kind = draft.text("kind").unwrap_or_default();
            assert!(
                draft.event_type != EventType::DiagnosticChanged || kind == "reasoning_encrypted_value",
                "{name}: {kind} {:?}",
                draft.payload
            );
            assert_eq!(draft.ids.run.as_ref().map(RunId::as_str), Some("run"), "{name}");
            assert!(draft.extra.is_empty(), "{name}: unmapped members: {:?}", draft.extra);
        }
    }
}

#[test]
fn unknown_members_survive_on_every_event() {
    for (name, facts) in recordings() {
        let count = facts.len();
        let marked = facts.into_iter().enumerate().map(|(n, mut fact)| {
            fact.insert("ofTomorrow".into(), json!({ "n": n }));
            fact
        });
        let carried: BTreeSet<u64> = drafts_of(marked.collect())
            .iter()
            .filter_map(|d| d.extra.get("ofTomorrow").or_else(|| d.payload.get("event")?.get("ofTomorrow"))?["n"].as_u64())
            .collect();
        assert_eq!(carried.len(), count, "{name}");
    }
}

#[test]
fn readers_get_the_streamed_text() {
    for (name, facts) in recordings() {
        for (event, class) in [("text_delta", EventType::TextDelta), ("reasoning_delta", EventType::ReasoningDelta)] {
            let mut streamed = String::new();
            let mut step = 0;
            for fact in &facts {
                match fact["event_type"].as_str().unwrap() {
                    "step_start" => step = streamed.len(),
                    "stream_reset" => streamed.truncate(step),
                    kind if kind == event => streamed.push_str(fact["delta"].as_str().unwrap()),
                    _ => {}
                }
            }
            let drafts = drafts_of(facts.clone());
            assert_eq!(texts(&drafts, &class), streamed, "{name} {class}");
        }
    }
}

#[test]
fn every_streamed_message_is_sealed_once_and_not_written_afterwards() {
    for (name, facts) in recordings() {
        let mut sealed = BTreeSet::new();
        let mut open = BTreeSet::new();
        for draft in drafts_of(facts) {
            let message = draft.ids.message.as_ref().map(std::string::ToString::to_string);
            match draft.event_type {
                EventType::TextDelta => {
                    let message = message.unwrap();
                    assert!(!sealed.contains(&message), "{name}: {message} is written after its end");
                    open.insert(message);
                }
                EventType::TextFinal => {
                    let message = message.unwrap();
                    assert!(draft.text("text").is_none(), "{name}: the final draft repeats no text");
                    assert!(open.remove(&message) && sealed.insert(message), "{name}");
                }
                _ => {}
            }
        }
        assert!(open.is_empty(), "{name}: {open:?} never ends");
    }
}

#[test]
fn every_call_that_starts_also_ends() {
    for (name, facts) in recordings() {
        let drafts = drafts_of(facts);
        let started = calls(&drafts, &[EventType::ToolStarted]);
        let ended = calls(&drafts, &[EventType::ToolResult, EventType::ToolFailed]);
        assert_eq!(started.difference(&ended).collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
    }
}

#[test]
fn an_adapter_restored_between_any_two_facts_gives_the_same_drafts() {
    for (name, facts) in recordings() {
        let mut lasting = DryRun::new(source());
        let mut restored = DryRun::new(source());
        for (n, fact) in facts.into_iter().enumerate() {
            assert_eq!(adapt_with(&mut restored, fact.clone()), adapt_with(&mut lasting, fact), "{name}, fact {n}");
            let memory = restored.save();
            assert_eq!(memory, lasting.save(), "{name}, fact {n}");
            let bytes = memory.len();
            assert!(bytes <= MEMORY_BYTES_MAX, "{name}, fact {n}: memory is {bytes} bytes, the limit is {MEMORY_BYTES_MAX}");
            restored.restore(&memory).unwrap();
        }
    }
}

#[test]
fn drafts_for_wider_audiences_contain_no_runtime_internals() {
    for (name, facts) in recordings() {
        for draft in drafts_of(facts).iter().filter(|d| d.audience != Audience::Internal) {
            let shown = format!("{:?} {:?}", draft.payload, draft.extra);
            assert!(!shown.contains("__runtime"), "{name}: {} shows {shown}", draft.event_type);
        }
    }
}

#[test]
fn hitl_approve_waits_continues_and_completes() {
    let drafts = drafts("hitl_approve");
    let expected = [
        "run.started accepted",
        "tool.started acting",
        "action.required waiting",
        "run.status waiting",
        "run.status acting",
        "action.resolved acting",
        "tool.result completed",
        "run.finished completed",
    ];
    assert_eq!(lifecycle(&drafts), expected);
    let [asked, answered] = [EventType::ActionRequired, EventType::ActionResolved].map(|class| of_type(&drafts, class)[0]);
    assert_eq!(asked.ids.action, answered.ids.action);
    assert_eq!(asked.ids.action.as_ref().unwrap().as_str(), "perm_call_del");
    assert_eq!((&asked.payload.to_value()["kind"], &asked.payload.to_value()["risk"]), (&json!("tool_approval"), &json!("high")));
    assert_eq!(asked.payload.to_value()["input"], json!({"branch": "feat/old"}));
    assert_eq!(asked.payload.to_value().get("parameters"), None, "the arguments are not repeated");
    assert_eq!(answered.payload.to_value()["outcome"], "approved");
    assert_eq!(
        of_type(&drafts, EventType::ToolResult)[0].payload.to_value()["output"],
        json!({"by": "d-1", "deleted": "feat/old"})
    );
}

#[test]
fn hitl_cancel_means_the_tool_never_ran() {
    let drafts = drafts("hitl_cancel");
    assert_eq!(lifecycle(&drafts)[5..], ["action.resolved acting", "tool.failed cancelled", "run.finished completed"]);
    let answered = of_type(&drafts, EventType::ActionResolved)[0];
    assert_eq!(
        (&answered.payload.to_value()["outcome"], &answered.payload.to_value()["value"]),
        (&json!("rejected"), &json!({"approved": false}))
    );
    assert_eq!(of_type(&drafts, EventType::ToolFailed)[0].payload.to_value()["neverStarted"], true);
}

#[test]
fn hitl_reject_result_is_an_approved_tool_that_failed() {
    let drafts = drafts("hitl_reject_result");
    assert_eq!(lifecycle(&drafts)[5..], ["action.resolved acting", "tool.failed failed", "run.finished completed"]);
    assert_eq!(of_type(&drafts, EventType::ActionResolved)[0].payload.to_value()["outcome"], "approved");
    assert_eq!(of_type(&drafts, EventType::ToolFailed)[0].payload.to_value()["error"]["message"], "user rejected the deletion");
}

#[test]
fn recovery_continue_text_is_one_message_with_both_halves() {
    let drafts = drafts("recovery_continue_text");
    assert_eq!(texts(&drafts, &EventType::TextDelta), "The first half of the answer, and the second half.");
    assert_eq!(of_type(&drafts, EventType::TextFinal).len(), 1);
    let parts: BTreeSet<_> = of_type(&drafts, EventType::TextDelta).iter().map(|d| d.ids.part.clone()).collect();
    assert_eq!(parts.len(), 1);
}

#[test]
fn recovery_stream_reset_leaves_only_the_last_attempt() {
    let drafts = drafts("recovery_stream_reset");
    assert_eq!(texts(&drafts, &EventType::TextDelta), "Third time lucky.");
    assert_eq!(texts(&drafts, &EventType::ReasoningDelta), "");
    assert_eq!(of_type(&drafts, EventType::MessagesSnapshot).len(), 2);
    assert_eq!(of_type(&drafts, EventType::ReasoningSummary).len(), 0, "a retracted message has no end of its own");
    let half = of_type(&drafts, EventType::ToolFailed);
    assert_eq!(half.len(), 1);
    assert_eq!((half[0].phase.clone(), &half[0].payload.to_value()["neverStarted"]), (Phase::Cancelled, &json!(true)));
}

#[test]
fn three_turns_of_one_thread_are_three_attempts() {
    let drafts = drafts("three_turns_one_thread");
    let starts = of_type(&drafts, EventType::RunStarted);
    let attempts: Vec<_> = starts.iter().map(|d| d.payload.to_value()["attempt"].as_u64().unwrap()).collect();
    let natives: BTreeSet<_> = starts.iter().map(|d| d.refs.as_ref().unwrap()["runId"].to_string()).collect();
    assert_eq!((attempts, natives.len()), (vec![1, 2, 3], 3));
    assert_eq!(of_type(&drafts, EventType::RunFinished).len(), 3);
    assert!(drafts.iter().all(|d| d.ids.thread.as_ref().unwrap().as_str() == "thread-conv"));
}

#[test]
fn a_subagent_s_progress_is_its_own_call_under_the_delegating_call() {
    let drafts = drafts("subagent_progress_forwarded");
    let child: Vec<_> = drafts.iter().filter(|d| d.ids.tool_call.as_ref().is_some_and(|id| id.as_str() == "child_idx")).collect();
    assert_eq!(child.len(), 8);
    for draft in child {
        assert_eq!((draft.event_type.clone(), draft.surface.as_str()), (EventType::ToolProgress, "task_capsule"));
        assert_eq!(draft.refs.as_ref().unwrap()["parentToolCallId"], "call_deleg");
        assert_eq!((&draft.ids.agent, &draft.payload.to_value()["runtimeEntity"]), (&None, &json!("subagent_turn")));
    }
    let own = of_type(&drafts, EventType::ToolProgress).into_iter().filter(|d| d.refs.is_none()).count();
    assert_eq!(own, 2);
    assert_eq!(of_type(&drafts, EventType::AgentCompleted)[0].ids.agent.as_ref().unwrap().as_str(), "researcher");
}

#[test]
fn each_tool_error_has_its_own_failure() {
    let drafts = drafts("tool_errors");
    let failures: BTreeMap<_, _> = of_type(&drafts, EventType::ToolFailed)
        .iter()
        .map(|d| {
            let error = &d.payload.to_value()["error"];
            let code = error.get("code").and_then(Value::as_str).unwrap_or("-");
            (d.ids.tool_call.as_ref().unwrap().to_string(), format!("{} {code}", d.phase))
        })
        .collect();
    let expected = [
        ("c_ca", "cancelled cancelled"),
        ("c_dn", "failed -"),
        ("c_inv", "failed -"),
        ("c_nf", "failed -"),
        ("c_to", "failed timeout"),
    ];
    assert_eq!(failures, expected.map(|(call, failure)| (call.to_owned(), failure.to_owned())).into());
}

#[test]
fn a_run_blocked_by_policy_fails_with_owner_policy_and_names_the_refused_call() {
    let drafts = drafts("blocked_by_policy");
    let permission = of_type(&drafts, EventType::PermissionChanged);
    assert_eq!(permission.len(), 1);
    assert_eq!(permission[0].ids.tool_call.as_ref().unwrap().as_str(), "c_bad");
    let end = drafts.last().unwrap();
    assert_eq!((end.event_type.clone(), end.owner.as_str()), (EventType::RunFailed, "policy"));
    assert_eq!(end.payload.to_value()["error"], json!({"code": "blocked", "message": "rm_rf is forbidden by policy"}));
}

#[test]
fn a_call_with_malformed_arguments_ends_with_its_step() {
    let drafts = drafts("malformed_tool_args_orphan_call");
    let expected = [
        "run.started accepted",
        "tool.started acting",
        "tool.failed cancelled",
        "tool.started acting",
        "tool.result completed",
        "run.finished completed",
    ];
    assert_eq!(lifecycle(&drafts), expected);
}

#[test]
fn a_cancelled_run_and_its_tool_are_cancelled_and_not_failed() {
    let drafts = drafts("cancel_mid_tool");
    assert_eq!(lifecycle(&drafts)[2..], ["tool.failed cancelled", "run.finished cancelled"]);
}

#[test]
fn a_call_s_activities_are_distinguished_by_type_and_their_patches_are_unchanged() {
    let drafts = drafts("tool_progress_activity");
    let custom: Vec<_> = drafts.iter().filter(|d| d.payload.contains_key("activityType")).collect();
    assert_eq!(custom.len(), 9);
    assert!(custom.iter().all(|d| d.ids.tool_call.as_ref().unwrap().as_str() == "call_idx_1" && d.audience == Audience::User));
    assert_eq!(custom[0].payload.to_value()["content"], "opened index v3\n");
    assert_eq!(custom[1].payload.to_value()["patch"], json!([{"op": "add", "path": "/line", "value": "batch 1 ok"}]));
}

#[test]
fn the_mailbox_reports_a_broken_run_as_a_failure_of_the_same_agent() {
    let drafts = drafts("server_mailbox_error_permanent");
    let end = drafts.last().unwrap();
    assert_eq!(end.event_type, EventType::RunFailed);
    assert_eq!(end.payload.to_value()["error"]["message"], "inference failed: unauthorized: invalid api key");
    assert_eq!(end.ids.agent.as_ref().unwrap().as_str(), "assistant");
    assert_eq!(end.ids.session.as_ref().unwrap().as_str(), "01a1fff0-b63a-75b0-9b3e-f1e35ee82dd4");
}

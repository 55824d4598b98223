//! Tests of the A2A adapter, event by event.
//! `tests/it/runtimes.rs` replays the recordings.

use super::*;
use crate::FactError;
use crate::samples::{self, all, ends, find, object, payload, said};
use proscenium_model::{Audience, EventType, Owner, Phase};
use serde_json::json;

fn rpc(result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

fn task(id: &str, state: &str, members: Value) -> Value {
    let mut task = object(members);
    task.extend(object(json!({"id": id, "contextId": "ctx", "status": {"state": format!("TASK_STATE_{state}")}})));
    rpc(json!({"task": task}))
}

fn status(state: &str, text: Option<&str>) -> Value {
    let message = text.map(|text| json!({"messageId": "sm", "role": "ROLE_AGENT", "parts": [{"text": text}]}));
    let status = json!({"state": format!("TASK_STATE_{state}"), "message": message, "timestamp": "2026-01-01T00:00:00Z"});
    rpc(json!({"statusUpdate": {"taskId": "t", "contextId": "ctx", "status": status}}))
}

fn artifact(id: &str, parts: Value, flags: Value) -> Value {
    let mut update = object(flags);
    update
        .extend(object(json!({"taskId": "t", "contextId": "ctx", "artifact": {"artifactId": id, "name": "N", "parts": parts}})));
    rpc(json!({"artifactUpdate": update}))
}

fn append(id: &str, text: &str) -> Value {
    artifact(id, json!([{"text": text}]), json!({"append": true}))
}

fn replace(id: &str, text: &str) -> Value {
    artifact(id, json!([{"text": text}]), json!({}))
}

fn start() -> Value {
    task("t", "SUBMITTED", json!({}))
}

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

/// Returns `event type phase` of each draft that users see, without the task's card.
fn seen(drafts: &[Draft]) -> Vec<String> {
    let is_seen = |draft: &&Draft| draft.audience == Audience::User && draft.event_type != EventType::TaskChanged;
    drafts.iter().filter(is_seen).map(|draft| format!("{} {}", draft.event_type, draft.phase)).collect()
}

#[test]
fn a_task_streams_its_artifact_and_ends() {
    let facts = [
        task("t", "SUBMITTED", json!({"history": [{"role": "ROLE_USER", "parts": [{"text": "my question"}]}]})),
        status("WORKING", Some("Let me look.")),
        replace("a", "The "),
        append("a", "answer"),
        artifact("a", json!([{"text": "."}]), json!({"append": true, "lastChunk": true})),
        status("COMPLETED", Some("Finished.")),
    ];
    let drafts = adapt(facts);
    assert_eq!(
        said(&drafts),
        ["text.delta t/a/text-1 The ", "text.delta t/a/text-1 answer", "text.delta t/a/text-1 .", "text.final t/a/text-1 -"]
    );
    assert_eq!(all(&drafts, EventType::RunStatus)[1..], [json!({"message": "Let me look."})]);
    assert_eq!(payload(drafts.last().unwrap()), json!({"message": "Finished.", "status": "completed"}));
    assert!(drafts.iter().all(|draft| draft.ids.thread.as_ref().unwrap().as_str() == "ctx"));
    assert_eq!(drafts.last().unwrap().timestamp.as_deref(), Some("2026-01-01T00:00:00Z"));
    let history = find(&drafts, EventType::DiagnosticChanged);
    assert_eq!(
        (history.audience, history.payload.to_value()["event"]["history"].as_array().unwrap().len()),
        (Audience::Internal, 1)
    );
    assert!(!drafts.iter().any(|draft| draft.audience == Audience::User && format!("{draft:?}").contains("my question")));
    let card: Vec<_> = all(&drafts, EventType::TaskChanged).iter().map(|card| card["status"].clone()).collect();
    assert_eq!(card, ["submitted", "running", "completed"]);
}

#[test]
fn both_versions_and_rest_say_the_same() {
    let status = |kind: &str, state: &str| json!({"kind": kind, "taskId": "t", "contextId": "ctx", "final": true, "status": {"state": state}});
    let old = [
        rpc(json!({"kind": "task", "id": "t", "contextId": "ctx", "status": {"state": "submitted"}})),
        rpc(json!({"kind": "artifact-update", "taskId": "t", "contextId": "ctx", "append": false, "lastChunk": false,
            "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}})),
        rpc(status("status-update", "completed")),
    ];
    let rest = [
        json!({"task": {"id": "t", "contextId": "ctx", "status": {"state": "TASK_STATE_SUBMITTED"}}}),
        json!({"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": "x"}]}}}),
        json!({"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}),
    ];
    let (old, rest) = (adapt(old), adapt(rest));
    assert_eq!((seen(&old), said(&old)), (seen(&rest), said(&rest)));
    assert_eq!(ends(&old), ["run.finished completed"]);
}

#[test]
fn an_artifact_without_append_replaces_and_the_end_of_the_task_seals() {
    let drafts = adapt([
        start(),
        replace("a", "one"),
        replace("b", "x"),
        replace("a", "two"),
        append("a", "!"),
        status("COMPLETED", None),
    ]);
    let parts = json!([{"partId": "text-1", "kind": "assistant_text", "text": ["two"]}]);
    let repaired = json!({"mode": "repair", "messages": [{"messageId": "t/a", "role": "assistant", "parts": parts}]});
    assert_eq!(all(&drafts, EventType::MessagesSnapshot), [repaired]);
    let expected = [
        "text.delta t/a/text-1 one",
        "text.delta t/b/text-1 x",
        "text.delta t/a/text-1 !",
        "text.final t/b/text-1 -",
        "text.final t/a/text-1 -",
    ];
    assert_eq!(said(&drafts), expected);
}

#[test]
fn text_after_the_last_chunk_begins_another_part() {
    let last = artifact("a", json!([{"text": "one"}]), json!({"lastChunk": true}));
    let drafts = adapt([start(), last, append("a", "two"), status("COMPLETED", None)]);
    assert_eq!(
        said(&drafts),
        ["text.delta t/a/text-1 one", "text.final t/a/text-1 -", "text.delta t/a/text-2 two", "text.final t/a/text-2 -"]
    );
}

#[test]
fn a_task_that_comes_again_repairs_its_artifacts_and_repeats_no_state() {
    let artifacts = json!({"artifacts": [{"artifactId": "a", "parts": [{"text": "one two"}]}, {"artifactId": "b", "parts": [{"text": "new"}]}]});
    let drafts = adapt([
        start(),
        status("WORKING", None),
        replace("a", "one"),
        task("t", "WORKING", artifacts),
        status("COMPLETED", None),
    ]);
    assert_eq!(all(&drafts, EventType::MessagesSnapshot)[0]["messages"][0]["parts"][0]["text"], json!(["one two"]));
    assert!(said(&drafts).contains(&"text.delta t/b/text-1 new".to_owned()));
    assert_eq!((all(&drafts, EventType::RunStarted).len(), ends(&drafts).len()), (1, 1));
    assert_eq!(all(&drafts, EventType::RunStatus).len(), 2, "submitted and working, each once");
    let late = adapt([start(), status("CANCELED", None), task("t", "CANCELED", json!({}))]);
    assert_eq!(ends(&late), ["run.finished cancelled"], "the answer to a cancellation is the whole task");
}

#[test]
fn a_whole_task_at_once_is_a_whole_run() {
    let artifacts = json!({"artifacts": [{"artifactId": "a", "parts": [{"text": "done"}]}]});
    let drafts = adapt([task("t", "COMPLETED", artifacts)]);
    assert_eq!(said(&drafts), ["text.delta t/a/text-1 done", "text.final t/a/text-1 -"]);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
}

#[test]
fn a_question_pauses_the_run_and_the_next_update_answers_it() {
    let drafts =
        adapt([start(), status("INPUT_REQUIRED", Some("Which city?")), status("WORKING", None), status("COMPLETED", None)]);
    assert_eq!(all(&drafts, EventType::ActionRequired), [json!({"kind": "clarification", "message": "Which city?"})]);
    let asked = find(&drafts, EventType::ActionRequired);
    assert_eq!((asked.ids.action.as_ref().unwrap().as_str(), &asked.owner), ("t/1", &Owner::Runtime));
    assert_eq!(all(&drafts, EventType::ActionResolved), [json!({"outcome": "answered"})]);
    let phases: Vec<_> =
        drafts.iter().filter(|draft| draft.event_type == EventType::RunStatus).map(|draft| draft.phase.clone()).collect();
    assert_eq!(phases, [Phase::Submitted, Phase::Waiting, Phase::Acting, Phase::Acting]);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
    assert!(ends(&adapt([start(), status("INPUT_REQUIRED", None)])).is_empty());
}

#[test]
fn a_second_question_answers_the_first() {
    let drafts = adapt([start(), status("INPUT_REQUIRED", Some("Who?")), status("INPUT_REQUIRED", Some("When?"))]);
    assert_eq!(all(&drafts, EventType::ActionResolved).len(), 1);
    let ids: Vec<_> = drafts
        .iter()
        .filter(|draft| draft.event_type == EventType::ActionRequired)
        .map(|d| d.ids.action.clone().unwrap())
        .collect();
    assert_eq!(ids, [ActionId::new("t/1").unwrap(), ActionId::new("t/2").unwrap()]);
}

#[test]
fn a_request_to_sign_in_shows_its_text_and_no_link() {
    let parts = json!([{"text": "Sign in."}, {"url": "https://id.example/?state=secret"}, {"data": {"token": "secret"}}]);
    let auth = json!({"state": "TASK_STATE_AUTH_REQUIRED", "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}});
    let drafts = adapt([start(), rpc(json!({"statusUpdate": {"taskId": "t", "status": auth}}))]);
    assert_eq!(all(&drafts, EventType::ActionRequired), [json!({"kind": "credential_request", "message": "Sign in."})]);
    assert!(drafts.iter().all(|draft| draft.audience == Audience::Internal || !format!("{draft:?}").contains("secret")));
}

#[test]
fn the_data_of_a_question_comes_with_it() {
    let parts = json!([{"text": "Which?"}, {"data": {"options": ["a", "b"]}}]);
    let input = json!({"state": "input-required", "message": {"messageId": "m", "role": "agent", "parts": parts}});
    let drafts = adapt([start(), rpc(json!({"kind": "status-update", "taskId": "t", "status": input}))]);
    assert_eq!(
        find(&drafts, EventType::ActionRequired).payload.to_value()["payload"],
        json!({"parts": [{"data": {"options": ["a", "b"]}}]})
    );
}

#[test]
fn each_end_has_its_meaning() {
    for (state, end, message, owner) in [
        ("COMPLETED", "run.finished completed", json!({"status": "completed"}), Owner::Runtime),
        ("FAILED", "run.failed failed", json!({"status": "failed", "error": {"message": "why"}}), Owner::Runtime),
        ("CANCELED", "run.finished cancelled", json!({"status": "cancelled", "message": "why"}), Owner::Runtime),
        (
            "REJECTED",
            "run.failed failed",
            json!({"status": "rejected", "error": {"message": "why"}, "refused": true}),
            Owner::Policy,
        ),
    ] {
        let drafts = adapt([start(), status(state, Some("why")), status("FAILED", None)]);
        assert_eq!(ends(&drafts), [end]);
        let reported =
            drafts.iter().find(|draft| draft.event_type.is_run_boundary() && draft.event_type != EventType::RunStarted).unwrap();
        assert_eq!((payload(reported), &reported.owner), (message, &owner), "{state}");
    }
    let answer = adapt([start(), status("COMPLETED", Some("42"))]);
    assert_eq!(said(&answer), ["text.final sm/- 42"], "an agent without artifacts answers in its last message");
    for state in ["UNSPECIFIED", "OF_TOMORROW"] {
        let drafts = adapt([start(), status(state, None)]);
        assert_eq!((ends(&drafts).len(), &drafts.last().unwrap().phase), (0, &Phase::Unknown));
    }
}

#[test]
fn an_error_of_the_server_ends_the_task() {
    let error =
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "model overloaded", "data": {"trace": "x"}}});
    for facts in [vec![start(), replace("a", "Half"), error.clone(), error.clone()], vec![error.clone()]] {
        let drafts = adapt(facts);
        assert_eq!(ends(&drafts), ["run.failed failed"]);
        assert_eq!(
            find(&drafts, EventType::RunFailed).payload.to_value()["error"],
            json!({"code": "-32603", "message": "model overloaded"})
        );
        assert_eq!(find(&drafts, EventType::DiagnosticChanged).audience, Audience::Internal);
    }
}

#[test]
fn a_message_without_a_task_is_a_whole_run() {
    let message = json!({"messageId": "m", "contextId": "ctx", "role": "ROLE_AGENT", "parts": [{"text": "Hi"}]});
    let drafts = adapt([rpc(json!({"message": message}))]);
    assert_eq!(seen(&drafts), ["run.started accepted", "text.final reconciling", "run.finished completed"]);
    assert_eq!(said(&drafts), ["text.final m/- Hi"]);
    assert_eq!(adapt([message_of_0_3()]).len(), 3);
}

fn message_of_0_3() -> Value {
    rpc(json!({"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "Hi"}]}))
}

#[test]
fn two_tasks_of_one_context_are_two_attempts_with_artifacts_of_their_own() {
    let second = |mut fact: Value| {
        for update in ["statusUpdate", "artifactUpdate"] {
            if let Some(update) = fact["result"].get_mut(update) {
                update["taskId"] = "u".into();
            }
        }
        fact
    };
    let drafts = adapt([
        start(),
        replace("a", "one"),
        status("COMPLETED", None),
        task("u", "SUBMITTED", json!({})),
        second(replace("a", "two")),
        second(status("COMPLETED", None)),
        status("WORKING", None),
    ]);
    assert_eq!(ends(&drafts), ["run.finished completed"; 2]);
    assert_eq!(said(&drafts)[2..], ["text.delta u/a/text-1 two", "text.final u/a/text-1 -"]);
    assert_eq!(drafts.last().unwrap().payload.to_value()["kind"], "interleaved_run");
}

#[test]
fn parts_that_are_not_text_are_artifacts_of_their_own() {
    let parts =
        json!([{"data": {"rows": [1]}}, {"raw": "AA==", "mediaType": "image/png"}, {"url": "https://e.example/p?sig=secret"}]);
    let old = json!([{"kind": "file", "file": {"bytes": "AA==", "mimeType": "image/png", "name": "p.png"}}]);
    let drafts = adapt([
        start(),
        artifact("a", parts, json!({})),
        artifact("a", json!([{"data": 2}]), json!({})),
        artifact("b", old, json!({})),
    ]);
    let files: Vec<_> = drafts.iter().filter(|draft| draft.event_type.as_str().starts_with("artifact.")).collect();
    let ids: Vec<_> =
        files.iter().map(|draft| format!("{} {}", draft.event_type, draft.ids.artifact.as_ref().unwrap())).collect();
    assert_eq!(
        ids,
        [
            "artifact.created t/a",
            "artifact.created t/a/2",
            "artifact.created t/a/3",
            "artifact.updated t/a",
            "artifact.created t/b"
        ]
    );
    assert_eq!(payload(files[0]), json!({"title": "N", "kind": "data", "content": {"rows": [1]}}));
    assert_eq!(files[1].payload.to_value()["body"], "data:image/png;base64,AA==");
    assert_eq!(files[2].payload.to_value()["url"], "https://e.example/p", "the query of a URL may hold credentials");
    assert_eq!(
        (&files[4].payload.to_value()["title"], &files[4].payload.to_value()["mediaType"]),
        (&json!("p.png"), &json!("image/png"))
    );
    let internal = find(&drafts, EventType::DiagnosticChanged);
    assert_eq!(
        (internal.audience, &internal.payload.to_value()["event"]["url"]),
        (Audience::Internal, &json!("https://e.example/p?sig=secret"))
    );
}

#[test]
fn text_that_replaces_data_deletes_the_artifact() {
    let drafts = adapt([start(), artifact("a", json!([{"data": 1}]), json!({})), replace("a", "short")]);
    assert_eq!(find(&drafts, EventType::ArtifactDeleted).ids.artifact.as_ref().unwrap().as_str(), "t/a");
    assert_eq!(said(&drafts), ["text.delta t/a/text-1 short"]);
}

#[test]
fn more_artifacts_than_the_limit_seal_the_oldest() {
    let artifacts = (0..=artifact::ARTIFACTS_MAX).map(|n| replace(&n.to_string(), "x"));
    let drafts = adapt([start()].into_iter().chain(artifacts));
    assert_eq!(said(&drafts).last().unwrap(), "text.final t/0/text-1 -");
}

#[test]
fn unknown_events_stay_whole_and_only_a_fact_without_an_object_is_refused() {
    let facts = [
        rpc(json!({"ofTomorrow": {"x": 1}})),
        rpc(json!({"kind": "of-tomorrow"})),
        json!({"ofTomorrow": {"x": 1}}),
        rpc(json!({"statusUpdate": {"taskId": "t"}})),
    ];
    for draft in adapt(facts) {
        assert_eq!((draft.event_type, draft.audience), (EventType::DiagnosticChanged, Audience::Internal));
    }
    let refused = |fact: Value| (SOURCE.parse)(object(fact)).err();
    assert_eq!(refused(json!({"x": 1})), Some(FactError::NoType { member: "result" }));
    assert!(matches!(refused(json!({"jsonrpc": "2.0", "id": 1})), Some(FactError::BadMember { member: "result", .. })));
}

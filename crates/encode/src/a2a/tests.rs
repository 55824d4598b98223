//! How a run ends, waits and fails as a task.

use super::*;
use crate::frames::{Delta, Frame};
use crate::{Dialect, Flow};
use proscenium_model::Sequence;
use proscenium_projection::operations;

fn options(version: A2aVersion) -> A2aOptions {
    A2aOptions { version, context: "c".into(), task: "t".into(), request: 1.into() }
}

fn activity(kind: &str, id: &str, opened: u64, content: Value) -> ActivityView {
    let Value::Object(content) = content else { panic!("a content is an object") };
    ActivityView {
        run: Some("t".into()),
        kind: kind.into(),
        id: id.into(),
        opened: Sequence(opened),
        agent: None,
        content: content.into(),
    }
}

fn run(content: Value) -> ActivityView {
    activity("run", "t", 1, content)
}

#[test]
fn a_task_fails_or_is_cancelled_with_what_the_run_said() {
    for (status, state) in
        [("failed", "TASK_STATE_FAILED"), ("cancelled", "TASK_STATE_CANCELED"), ("completed", "TASK_STATE_COMPLETED")]
    {
        let content = json!({ "status": status, "attempt": 1, "error": { "message": "It broke." } });
        let task = options(A2aVersion::V10).task(&[run(content)], 0);
        assert_eq!(task["status"]["state"], state);
        let said = task.pointer("/status/message/parts/0/text").and_then(Value::as_str);
        assert_eq!(said, (status == "failed").then_some("It broke."));
    }
}

#[test]
fn a_result_is_the_message_of_a_completed_task() {
    let of = |result: Value| {
        let content = json!({ "status": "completed", "attempt": 1, "result": result });
        options(A2aVersion::V03).task(&[run(content)], 0)["status"]["message"]["parts"].clone()
    };
    assert_eq!(of("Done.".into()), json!([{ "kind": "text", "text": "Done." }]));
    assert_eq!(of(json!({ "n": 1 })), json!([{ "kind": "data", "data": { "n": 1 } }]));
}

#[test]
fn a_task_that_lacks_a_credential_alone_asks_for_it() {
    let ask = |id: &str, kind: &str, opened| {
        activity("action", id, opened, json!({ "status": "pending", "kind": kind, "message": "Key?" }))
    };
    let waits = run(json!({ "status": "waiting", "attempt": 1 }));
    let state = |actions: &[ActivityView]| {
        let all: Vec<_> = std::iter::once(waits.clone()).chain(actions.iter().cloned()).collect();
        options(A2aVersion::V03).task(&all, 0)["status"]["state"].clone()
    };
    assert_eq!(state(&[ask("a", "credential_request", 2)]), "auth-required");
    assert_eq!(state(&[ask("a", "credential_request", 2), ask("b", "tool_approval", 3)]), "input-required");
}

#[test]
fn an_artifact_is_one_data_part_that_its_changes_replace() {
    let artifact = activity("artifact", "page", 2, json!({ "title": "Page", "status": "created" }));
    let at_work = run(json!({ "status": "running", "attempt": 1 }));
    let task = options(A2aVersion::V10).task(&[at_work, artifact], 0);
    assert_eq!(task["artifacts"][0]["name"], "Page");
    assert_eq!(task["artifacts"][0]["parts"][0]["data"]["status"], "created");
    assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
}

#[test]
fn a_stream_that_fails_is_an_error_of_the_request_and_not_of_the_task() {
    let (mut dialect, mut events) = (A2a::new(options(A2aVersion::V10), Begin::Replay), Vec::new());
    let flow = dialect.frame(&Frame::Error { problem: json!({ "detail": "The agent refused." }) }, &mut events);
    assert_eq!(flow, Flow::End);
    assert_eq!((&events[0]["error"]["message"], events.len()), (&json!("The agent refused."), 1));
}

fn message(id: &str, role: &str, opened: u64, text: &str) -> ActivityView {
    let part = json!({ "partId": "0", "kind": format!("{role}_text"), "text": [text], "status": "streaming", "opened": opened });
    activity("message", id, opened, json!({ "role": role, "parts": [part] }))
}

#[test]
fn a_client_that_was_cut_inside_messages_gets_their_rest_as_one_that_was_not() {
    let at_work = run(json!({ "status": "running", "attempt": 1 }));
    let rest_for = |mut client: A2a| {
        let mut events = Vec::new();
        for id in ["asked", "said"] {
            let grows = operations::read(json!({ "op": "add", "path": "/parts/0/text/-", "value": "cause" }));
            let (run, kind, operations) = (Some("t".into()), "message".into(), Arc::new([grows]));
            let delta = Frame::ActivityDelta(Delta { run, kind, id: id.into(), operations });
            assert_eq!(client.frame(&delta, &mut events), Flow::Continue);
        }
        assert_eq!(client.end_batch(&mut events), Flow::Continue);
        events
    };
    let known = [at_work, message("asked", "user", 2, "Why "), message("said", "assistant", 3, "Be")];
    let mut resumed = A2a::new(options(A2aVersion::V10), Begin::Replay);
    resumed.resume(Sequence(3), known.to_vec());
    for begin in [Begin::Replay, Begin::Snapshot] {
        let (mut whole, mut events) = (A2a::new(options(A2aVersion::V10), begin), Vec::new());
        for frame in known.iter().cloned().map(Frame::ActivitySnapshot).chain([Frame::Hydrated {}]) {
            assert_eq!(whole.frame(&frame, &mut events), Flow::Continue);
        }
        let rest = rest_for(whole);
        let [event] = &rest[..] else { panic!("the question is no artifact, and the answer grows: {rest:#?}") };
        let update = &event["result"]["artifactUpdate"];
        assert_eq!((&update["artifact"]["artifactId"], &update["append"]), (&json!("said"), &json!(true)), "{begin:?}: {event}");
        assert_eq!(update["artifact"]["parts"][0]["text"], "cause");
        assert_eq!(rest_for(resumed.clone()), rest, "{begin:?}");
    }
}

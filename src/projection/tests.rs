//! The fold of each fact. A model reader applies every frame, and its copy is compared with the view.

use super::*;
use crate::model::RunId;
use serde_json::json;
use std::collections::HashMap;

/// A view, and a reader that applies its frames.
struct Watched {
    view: View,
    copies: HashMap<(String, String), Value>,
    /// The frames of the last envelope: `type id: snapshot` or `type id: <patch>`.
    frames: Vec<String>,
}

impl Watched {
    fn new() -> Self {
        let view = View::new(&LogId::Run(RunId::new("r").unwrap()), Audience::User);
        Self { view, copies: HashMap::new(), frames: Vec::new() }
    }

    fn of_session() -> Self {
        let mut watched = Self::new();
        watched.view = View::new(&LogId::Session(crate::model::SessionId::new("s").unwrap()), Audience::User);
        watched
    }

    /// Folds an envelope of this class with these members.
    fn fold(&mut self, class: &str, members: Value) -> &mut Self {
        let phase = EventType::from(class).defaults().phase.clone();
        let mut envelope = json!({"type": class, "phase": phase.as_str(), "surface": EventType::from(class).defaults().surface});
        envelope.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let folded = self.view.fold(self.view.through.next(), Some(envelope.to_string().as_bytes()));
        self.frames.clear();
        for change in &folded.changes {
            let activity = self.view.changed_activity(change);
            let key = (activity.kind.to_string(), activity.id.to_string());
            let name = format!("{} {}", activity.kind, activity.id);
            if change.is_snapshot {
                self.copies.insert(key.clone(), Value::Object(activity.content.clone()));
                self.frames.push(format!("{name}: snapshot"));
            } else {
                let patch = serde_json::to_value(&change.patch).unwrap();
                let copy = self.copies.get_mut(&key).expect("the first frame of an activity is a snapshot");
                json_patch::patch(copy, &serde_json::from_value::<json_patch::Patch>(patch.clone()).unwrap()).unwrap();
                self.frames.push(format!("{name}: {patch}"));
            }
            assert_eq!(joined(&self.copies[&key], activity.is_custom), Value::Object(activity.content.clone()), "{name}");
        }
        self
    }

    fn get(&self, kind: &str, id: &str) -> Value {
        let found = self.view.activities().iter().find(|a| *a.kind == *kind && *a.id == *id);
        found.map_or(Value::Null, |activity| Value::Object(activity.content.clone()))
    }

    fn surface(&self, kind: &str, id: &str) -> &str {
        self.view.activities().iter().find(|a| *a.kind == *kind && *a.id == *id).unwrap().surface.as_str()
    }

    /// `status` of an activity.
    fn status(&self, kind: &str, id: &str) -> String {
        self.get(kind, id)["status"].as_str().unwrap_or("-").to_owned()
    }

    /// The texts of a message's parts.
    fn texts_of(&self, id: &str) -> Vec<String> {
        let message = self.get("message", id);
        let parts = message["parts"].as_array().unwrap().iter();
        parts.map(|part| part["text"].get(0).and_then(Value::as_str).unwrap_or_default().to_owned()).collect()
    }
}

/// A content as a reader has it, with its texts joined.
fn joined(content: &Value, is_custom: bool) -> Value {
    let mut content = content.clone();
    let join = |of: &mut Value| {
        for member in ["text", "input_text", "output_text"] {
            if let Some(Value::Array(chunks)) = of.get_mut(member) {
                *chunks =
                    activity_set::text(&chunks.iter().filter_map(Value::as_str).collect::<String>()).as_array().unwrap().clone();
            }
        }
    };
    if !is_custom {
        join(&mut content);
        content.get_mut("parts").and_then(Value::as_array_mut).into_iter().flatten().for_each(join);
    }
    content
}

fn delta(part: &str, text: &str) -> Value {
    json!({"messageId": "m", "partId": part, "payload": {"text": text}})
}

#[test]
fn a_final_text_without_a_part_is_compared_with_all_parts_and_not_appended() {
    let end = |streamed: &[&str], whole: &str| {
        let mut watched = Watched::new();
        for (n, text) in streamed.iter().enumerate() {
            watched.fold("text.delta", delta(&format!("p{n}"), text));
        }
        watched.fold("text.final", json!({"messageId": "m", "payload": {"text": whole}}));
        assert_eq!(watched.status("message", "m"), "complete");
        watched.texts_of("m")
    };
    assert_eq!(end(&["one ", "two"], "one two"), ["one ", "two"], "equal");
    assert_eq!(end(&["one ", "two"], "two"), ["one ", "two"], "only the tail");
    assert_eq!(end(&["one ", "two\n"], "two"), ["one ", "two\n"], "only the tail, trimmed");
    assert_eq!(end(&["one ", "two"], "one two three"), ["one ", "two three"], "a continuation");
    assert_eq!(end(&["one ", "two"], "one 2"), ["one ", "2"], "a difference from the second part on");
    assert_eq!(end(&["one ", "two"], "none"), ["none", ""], "a difference from the start");
    assert_eq!(end(&["Nothing is wrong"], "is"), ["is"], "a word in the middle is not a tail");
    assert_eq!(end(&[], "whole"), ["whole"], "nothing was streamed");
}

#[test]
fn a_final_text_of_a_part_covers_that_part() {
    let mut watched = Watched::new();
    watched.fold("text.delta", delta("p1", "on")).fold("text.delta", delta("p2", "x"));
    watched.fold("text.final", delta("p1", "one"));
    assert_eq!(
        watched.frames[0],
        r#"message m: [{"op":"add","path":"/parts/0/text/-","value":"e"},{"op":"replace","path":"/parts/0/status","value":"complete"}]"#
    );
    assert_eq!((watched.texts_of("m"), watched.status("message", "m")), (vec!["one".into(), "x".into()], "streaming".into()));
    watched.fold("text.final", delta("p2", "y"));
    assert_eq!((watched.texts_of("m"), watched.status("message", "m")), (vec!["one".into(), "y".into()], "complete".into()));
}

#[test]
fn a_withheld_end_completes_the_streamed_text() {
    let mut watched = Watched::new();
    watched.fold("text.delta", delta("p", "one"));
    watched.fold("text.final", json!({"messageId": "m", "payload": {"withheld": true}}));
    let message = watched.get("message", "m");
    assert_eq!(
        (&message["status"], &message["withheld"], &message["parts"][0]["text"]),
        (&json!("complete"), &json!(true), &json!(["one"]))
    );
    watched.fold("reasoning.delta", json!({"messageId": "m", "partId": "r", "payload": {"text": "hm"}}));
    watched.fold("reasoning.summary", json!({"messageId": "m", "partId": "r", "payload": {"withheld": true}}));
    let thought = watched.get("reasoning", "m/r");
    assert_eq!((&thought["status"], &thought["withheld"], &thought["text"]), (&json!("complete"), &json!(true), &json!(["hm"])));
}

#[test]
fn a_repair_empties_and_interrupts_unnamed_parts_and_removes_none() {
    let mut watched = Watched::new();
    watched.fold("text.delta", delta("p1", "one")).fold("text.delta", delta("p2", "two"));
    for part in ["r1", "r2"] {
        watched.fold("reasoning.delta", json!({"messageId": "m", "partId": part, "payload": {"text": "hm"}}));
    }
    let parts = json!([{"partId": "p2", "text": "2"}, {"partId": "r2", "kind": "reasoning_summary", "text": ["ah"]}]);
    watched.fold("messages.snapshot", json!({"payload": {"mode": "repair", "messages": [{"messageId": "m", "parts": parts}]}}));
    assert_eq!(watched.texts_of("m"), ["", "2"]);
    assert_eq!(watched.get("message", "m")["parts"][0]["status"], "interrupted");
    assert_eq!(watched.status("message", "m"), "complete");
    assert_eq!(
        (watched.status("reasoning", "m/r1"), watched.status("reasoning", "m/r2")),
        ("interrupted".into(), "complete".into())
    );
    assert_eq!(
        (&watched.get("reasoning", "m/r1")["text"], &watched.get("reasoning", "m/r2")["text"]),
        (&json!([]), &json!(["ah"]))
    );
    watched.fold("text.delta", delta("p3", "again"));
    assert_eq!(
        (watched.texts_of("m"), watched.status("message", "m")),
        (vec![String::new(), "2".into(), "again".into()], "streaming".into())
    );
}

#[test]
fn history_does_not_override_live_facts() {
    let mut watched = Watched::new();
    watched.fold("text.delta", delta("p", "live"));
    let messages = json!([{"messageId": "m", "parts": [{"partId": "p", "text": "old"}]}, {"messageId": "u", "role": "user", "parts": [{"text": "hello"}]}]);
    watched.fold("messages.snapshot", json!({"payload": {"mode": "window", "messages": messages}}));
    assert_eq!((watched.texts_of("m"), watched.texts_of("u")), (vec!["live".into()], vec!["hello".into()]));
    assert_eq!(watched.get("message", "u")["parts"][0]["kind"], "user_text");
}

#[test]
fn parts_and_calls_interleave_by_when_they_appeared() {
    let mut watched = Watched::new();
    watched.fold("text.delta", delta("p1", "a"));
    watched.fold("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}}));
    watched.fold("text.delta", delta("p2", "b"));
    let parts = watched.get("message", "m")["parts"].clone();
    let call = watched.view.activities().iter().find(|a| &*a.kind == "tool-call-progress").unwrap().opened;
    assert_eq!((&parts[0]["opened"], call, &parts[1]["opened"]), (&json!(1), Sequence(2), &json!(3)));
}

#[test]
fn a_teammates_messages_have_its_prefix_and_its_transcript_surface() {
    let mut watched = Watched::new();
    watched.fold("run.started", json!({"agentId": "lead"}));
    for agent in ["lead", "mate"] {
        watched.fold("text.delta", json!({"agentId": agent, "messageId": "m", "partId": "p", "payload": {"text": agent}}));
    }
    assert_eq!((watched.texts_of("m"), watched.texts_of("mate/m")), (vec!["lead".into()], vec!["mate".into()]));
    assert_eq!((watched.surface("message", "m"), watched.surface("message", "mate/m")), ("conversation", "teammate_transcript"));
}

#[test]
fn a_call_that_starts_again_is_sent_as_a_snapshot() {
    let mut watched = Watched::new();
    let call = |payload: Value| json!({"toolCallId": "c", "payload": payload});
    watched.fold("tool.started", call(json!({"toolName": "x", "parentToolCallId": "p"})));
    watched.fold("tool.output.delta", call(json!({"text": "half"})));
    watched.fold("tool.failed", call(json!({"error": {"message": "no"}})));
    watched.fold("tool.started", call(json!({"parentToolCallId": "p"})));
    assert!(watched.frames.contains(&"tool-call-progress c: snapshot".into()), "{:?}", watched.frames);
    let again = watched.get("tool-call-progress", "c");
    assert_eq!((&again["tool_name"], &again["parent_call_id"], &again["state"]), (&json!("x"), &json!("p"), &json!("running")));
    assert_eq!((again.get("error"), again.get("output_text")), (None, None));
}

#[test]
fn late_progress_of_an_ended_call_changes_only_its_message() {
    let mut watched = Watched::new();
    watched.fold("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}}));
    watched.fold("tool.progress", json!({"toolCallId": "c", "payload": {"progress": 0.5}}));
    watched.fold("tool.result", json!({"toolCallId": "c", "payload": {"output": 1}}));
    let mut expected = watched.get("tool-call-progress", "c");
    watched.fold(
        "tool.progress",
        json!({"toolCallId": "c", "payload": {"progress": 0.9, "status": "running", "toolName": "y", "message": "late"}}),
    );
    expected["message"] = json!("late");
    assert_eq!(watched.get("tool-call-progress", "c"), expected);
    assert_eq!(expected["progress"], 0.5, "the last reported value");
}

#[test]
fn a_report_may_be_members_a_state_or_a_patch_and_changes_only_reported_members() {
    let mut watched = Watched::new();
    watched.fold("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x", "input": {"a": 1}}}));
    let report = |payload: Value| {
        let mut payload = payload;
        payload["activityType"] = json!("tool-call-progress");
        json!({"toolCallId": "c", "payload": payload})
    };
    watched.fold(
        "tool.progress",
        report(json!({"content": {"call_id": "c", "status": "running", "progress": 0.25, "message": "a"}})),
    );
    watched.fold("state.delta", report(json!({"patch": {"op": "replace", "path": "/progress", "value": 0.5}})));
    assert_eq!(watched.get("tool-call-progress", "c")["progress"], 0.5);
    watched.fold("tool.progress", report(json!({"patch": [{"op": "remove", "path": "/input"}]})));
    assert_eq!(watched.get("tool-call-progress", "c")["input"], json!({"a": 1}));
    assert_eq!(watched.get("diagnostics", "diagnostics")["entries"][0]["kind"], "patch_not_applied");
    watched.fold("tool.progress", json!({"toolCallId": "c", "payload": {"progress": 42}}));
    assert_eq!(watched.get("tool-call-progress", "c")["progress"], 0.5, "42 is not a fraction");
}

#[test]
fn a_run_end_closes_everything_and_late_facts_open_nothing() {
    let mut watched = Watched::new();
    let open = |watched: &mut Watched, n: u32| {
        watched.fold("text.delta", json!({"messageId": format!("m{n}"), "partId": "p", "payload": {"text": "a"}}));
        watched.fold("plan.delta", json!({"messageId": format!("m{n}"), "partId": "q", "payload": {"text": "a"}}));
        watched.fold("tool.started", json!({"toolCallId": format!("c{n}")}));
        watched.fold("action.required", json!({"actionId": format!("a{n}"), "payload": {"kind": "tool_approval"}}));
        watched.fold("context.compaction.started", json!({"payload": {"compactionId": format!("k{n}")}}));
        watched.fold("task.changed", json!({"taskId": format!("t{n}"), "payload": {"status": "running"}}));
        watched.fold("agent.spawned", json!({"agentId": format!("g{n}")}));
    };
    open(watched.fold("run.started", json!({})), 1);
    watched.fold("control.changed", json!({"actionId": "a1", "payload": {"status": "submitted"}}));
    assert_eq!(
        (watched.status("action", "a1"), &watched.get("action", "a1")["control"]),
        ("pending".into(), &json!("submitted"))
    );
    watched.fold("run.finished", json!({}));
    assert!(watched.frames.last().unwrap().starts_with("run r"), "the run ends last: {:?}", watched.frames);
    open(&mut watched, 2);
    for n in [1, 2] {
        let call = watched.get("tool-call-progress", &format!("c{n}"));
        assert_eq!((&call["status"], &call["state"]), (&json!("cancelled"), &json!("cancelled")));
        for (kind, id) in [
            ("message", format!("m{n}")),
            ("plan", format!("m{n}/q")),
            ("action", format!("a{n}")),
            ("compaction", format!("k{n}")),
        ] {
            assert_eq!(watched.status(kind, &id), "interrupted", "{kind} {id}");
        }
        assert_eq!(watched.get("action", &format!("a{n}")).get("control"), None);
        // An open activity becomes stale. A later fact makes one current.
        let outlives = if n == 1 { "unknown" } else { "running" };
        for (kind, id) in [("task", format!("t{n}")), ("agent", format!("g{n}"))] {
            assert_eq!((&*watched.status(kind, &id), watched.get(kind, &id)["stale"] == true), (outlives, n == 1), "{kind} {id}");
        }
    }
    watched.fold("run.failed", json!({"payload": {"error": {"message": "late"}}}));
    assert_eq!(
        (watched.status("run", "r"), watched.get("run", "r").get("error")),
        ("completed".into(), None),
        "only the first end counts"
    );
    watched.fold("tool.result", json!({"toolCallId": "c1", "payload": {"output": 1}}));
    assert_eq!(watched.get("tool-call-progress", "c1")["state"], "output-available", "a late result is shown");
    open(watched.fold("run.started", json!({})), 3);
    assert_eq!((watched.status("message", "m3"), &watched.get("run", "r")["attempt"]), ("streaming".into(), &json!(2)));
}

#[test]
fn a_reported_end_of_an_unannounced_call_holds_at_the_run_end() {
    let mut watched = Watched::new();
    for (id, status) in [("c1", "done"), ("c2", "failed"), ("c3", "weird")] {
        watched.fold("tool.progress", json!({"toolCallId": id, "payload": {"status": status}}));
    }
    watched.fold("run.finished", json!({}));
    let state = |id: &str| watched.get("tool-call-progress", id)["state"].clone();
    assert_eq!([state("c1"), state("c2"), state("c3")], ["output-available", "output-error", "cancelled"]);
}

#[test]
fn the_kind_of_a_credential_is_a_member_of_its_source() {
    let mut watched = Watched::new();
    let payload = json!({"kind": "credential_request", "credentialKind": "oauth", "credentialKey": "KEY"});
    watched.fold("action.required", json!({"actionId": "a", "payload": payload}));
    let expected = json!({"kind": "credential_request", "status": "pending", "payload": {"credentialKind": "oauth"}});
    assert_eq!(watched.get("action", "a"), expected);
    watched.fold("action.required", json!({"actionId": "a", "payload": {"credentialKind": "text", "payload": {"own": 1}}}));
    assert_eq!(watched.get("action", "a")["payload"], json!({"own": 1}));
}

#[test]
fn only_the_owner_resolves_an_action_and_a_repeated_request_is_a_new_one() {
    let mut watched = Watched::new();
    watched.fold(
        "action.required",
        json!({"actionId": "a", "agentId": "mate", "taskId": "t", "payload": {"kind": "delegated_permission", "risk": "high", "safeInput": {"path": "/tmp"}, "parentRouting": "lead", "policyScope": "run"}}),
    );
    let asked = watched.get("action", "a");
    for (member, value) in [
        ("agentId", json!("mate")),
        ("taskId", json!("t")),
        ("safeInput", json!({"path": "/tmp"})),
        ("parentRouting", json!("lead")),
    ] {
        assert_eq!(asked[member], value, "the member {member} identifies the author and the subject");
    }
    watched.fold("control.changed", json!({"actionId": "a", "payload": {"status": "submitted"}}));
    watched.fold("control.changed", json!({"actionId": "a", "payload": {"status": "expired"}}));
    assert_eq!((watched.status("action", "a"), watched.get("action", "a").get("control")), ("pending".into(), None));
    watched.fold("action.resolved", json!({"actionId": "a", "payload": {"outcome": "approved", "value": 1}}));
    assert_eq!((watched.status("action", "a"), &watched.get("action", "a")["outcome"]), ("resolved".into(), &json!("approved")));
    watched.fold("action.resolved", json!({"actionId": "a", "payload": {"outcome": "answered"}}));
    assert_eq!(watched.get("action", "a")["outcome"], "approved", "an inferred answer does not replace a decision");
    watched.fold("action.required", json!({"actionId": "a", "payload": {"message": "really?"}}));
    assert_eq!(watched.get("action", "a"), json!({"status": "pending", "kind": "unknown", "message": "really?"}));
    watched.fold("action.resolved", json!({"actionId": "a", "payload": {"withheld": true}}));
    assert_eq!((watched.status("action", "a"), &watched.get("action", "a")["withheld"]), ("resolved".into(), &json!(true)));
}

#[test]
fn an_answer_in_transit_is_shown_until_it_is_lost_and_resolves_nothing() {
    let mut watched = Watched::new();
    watched.fold("action.required", json!({"actionId": "a", "payload": {"kind": "tool_approval"}}));
    for (payload, control) in [
        (json!({"status": "submitted"}), Some("submitted")),
        (json!({"status": "claimed", "attempt": 1}), Some("submitted")),
        (json!({"status": "nacked", "attempt": 1, "requeued": true}), Some("submitted")),
        (json!({"status": "nacked", "attempt": 2}), None),
        (json!({"status": "submitted"}), Some("submitted")),
        (json!({"status": "expired"}), None),
        (json!({"status": "submitted"}), Some("submitted")),
        (json!({"status": "acked", "attempt": 1}), Some("submitted")),
    ] {
        watched.fold("control.changed", json!({"actionId": "a", "payload": payload.clone()}));
        let shown = watched.get("action", "a").get("control").cloned();
        assert_eq!((watched.status("action", "a"), shown), ("pending".into(), control.map(Value::from)), "{payload}");
    }
    watched.fold("control.changed", json!({"actionId": "unknown", "payload": {"status": "submitted"}}));
    watched.fold("action.resolved", json!({"actionId": "a", "payload": {"outcome": "approved"}}));
    watched.fold("control.changed", json!({"actionId": "a", "payload": {"status": "acked"}}));
    assert_eq!((watched.status("action", "a"), watched.get("action", "a").get("control")), ("resolved".into(), None));
}

fn activity(payload: Value) -> Value {
    let mut payload = payload;
    payload["activityType"] = json!("search");
    json!({"messageId": "x", "payload": payload})
}

#[test]
fn a_patch_that_does_not_apply_is_reported_and_the_next_snapshot_corrects_it() {
    let mut watched = Watched::new();
    watched.fold("tool.progress", activity(json!({"content": "fn main() {}"})));
    assert_eq!(watched.get("search", "x"), json!({"text": ["fn main() {}"]}), "bare text");
    watched.fold("tool.progress", activity(json!({"patch": {"op": "add", "path": "/line", "value": 1}})));
    assert_eq!(watched.get("search", "x")["line"], 1, "a bare operation is wrapped");
    watched.fold(
        "tool.progress",
        activity(json!({"patch": [{"op": "replace", "path": "/line", "value": 2}, {"op": "remove", "path": "/none"}]})),
    );
    assert_eq!(watched.get("search", "x")["line"], 1);
    let note = &watched.get("diagnostics", "diagnostics")["entries"][0];
    assert_eq!(
        (&note["kind"], &note["activityType"], &note["sequence"]),
        (&json!("patch_not_applied"), &json!("search"), &json!(3))
    );
    watched.fold("state.snapshot", activity(json!({"state": {"line": 7}})));
    assert_eq!(watched.get("search", "x"), json!({"line": 7}));
    watched.fold("tool.progress", activity(json!({"content": {"line": 9}, "replace": false})));
    assert_eq!(watched.get("search", "x"), json!({"line": 7}), "`replace: false` does not change a known activity");
    watched.fold("tool.progress", activity(json!({"message": "neither content nor patch"})));
    assert_eq!(watched.get("search", "x"), json!({"line": 7}));
    assert_eq!(watched.surface("search", "x"), "tool_ui");
}

#[test]
fn a_source_activity_with_our_type_and_id_gets_a_prefix() {
    let mut watched = Watched::new();
    watched.fold("tool.progress", json!({"messageId": "m", "payload": {"activityType": "message", "content": {"parts": 7}}}));
    assert_eq!(watched.get("message", "m"), json!({"parts": 7}), "the source's own type");
    watched.fold("text.delta", delta("p", "a"));
    assert_eq!((watched.get("custom:message", "m"), watched.texts_of("m")), (json!({"parts": 7}), vec!["a".into()]));
    watched.fold("tool.progress", json!({"messageId": "m", "payload": {"activityType": "custom:message", "content": {"b": 1}}}));
    assert_eq!(watched.get("custom:custom:message", "m"), json!({"b": 1}));
    watched.fold("tool.progress", json!({"messageId": "m", "payload": {"activityType": "message", "content": {"parts": 8}}}));
    assert_eq!((watched.get("custom:message", "m"), watched.texts_of("m")), (json!({"parts": 8}), vec!["a".into()]));
    watched.fold("tool.progress", json!({"toolCallId": "c", "payload": {"activityType": "plan", "content": {"steps": 1}}}));
    assert_eq!(watched.get("plan", "c"), json!({"steps": 1}));
}

#[test]
fn a_fact_without_ids_shows_nothing() {
    let mut watched = Watched::of_session();
    for class in EventType::NAMES {
        let without = ["queue.changed", "context.", "permission.", "state.", "session.", "diagnostic.", "metric."];
        if !without.iter().any(|family| class.starts_with(family)) {
            watched.fold(
                class,
                json!({"payload": {"activityType": "x", "content": 1, "reviewId": "", "handoffId": {"a": 1}, "teamId": true}}),
            );
            assert_eq!(watched.frames, Vec::<String>::new(), "{class}");
        }
    }
    watched.fold("queue.changed", json!({})).fold("session.opened", json!({}));
    assert_eq!(
        (watched.status("session", "s"), watched.view.activities().len()),
        ("open".into(), 2),
        "a session's log has its own session's activity"
    );
}

#[test]
fn the_state_is_below_its_member_and_patches_are_moved_there() {
    let mut watched = Watched::new();
    watched.fold("state.delta", json!({"payload": {"patch": [{"op": "add", "path": "/a", "value": {"text": ["x", "y"]}}]}}));
    assert_eq!(watched.get("state", "state"), json!({"state": {"a": {"text": ["x", "y"]}}}), "texts are not joined");
    watched.fold("state.delta", json!({"payload": {"patch": {"op": "move", "from": "/a", "path": "/b"}}}));
    assert_eq!(watched.frames[0], r#"state state: [{"op":"move","from":"/state/a","path":"/state/b"}]"#);
    watched.fold("state.delta", json!({"payload": {"patch": {"op": "remove", "path": "/zzz"}}}));
    assert_eq!(watched.get("diagnostics", "diagnostics")["entries"][0]["activityType"], "state");
    watched.fold("state.delta", json!({"payload": {"patch": {"op": "replace", "path": "", "value": 7}}}));
    assert_eq!(watched.get("state", "state"), json!({"state": 7}));
    watched.fold("state.snapshot", json!({"payload": {"state": [1]}}));
    assert_eq!((watched.get("state", "state"), watched.frames[0].as_str()), (json!({"state": [1]}), "state state: snapshot"));
}

#[test]
fn a_task_has_its_surface_and_keeps_its_failed_attempts() {
    let mut watched = Watched::new();
    for (fact, id, surface) in [
        (json!({"taskId": "t1", "payload": {"runtimeEntity": "work_item"}}), "t1", "work_board"),
        (json!({"payload": {"workItemId": "w1"}}), "w1", "work_board"),
        (json!({"taskId": "t2", "payload": {"runtimeEntity": "automation_job"}}), "t2", "background_teammate"),
        (json!({"payload": {"remoteTaskId": "r1"}}), "r1", "remote_teammate"),
        (json!({"taskId": "t3", "payload": {"runtimeEntity": "agent_turn"}}), "t3", "task_capsule"),
    ] {
        watched.fold("task.changed", fact);
        assert_eq!((watched.surface("task", id), watched.status("task", id)), (surface, "unknown".into()));
    }
    let change = |payload: Value| json!({"taskId": "t", "payload": payload});
    watched.fold("task.changed", change(json!({"title": "Index", "runtimeStatus": "running", "blocker": "disk"})));
    watched.fold("task.changed", change(json!({"status": "failed", "error": {"message": "full"}, "blocker": null})));
    watched.fold("task.changed", change(json!({"status": "failed"})));
    watched.fold("task.changed", change(json!({"status": "running", "workItemId": "w"})));
    let task = watched.get("task", "t");
    assert_eq!(
        (&task["title"], &task["status"], task.get("error"), task.get("blocker")),
        (&json!("Index"), &json!("running"), None, None)
    );
    assert_eq!(task["attempts"], json!([{"sequence": 7, "status": "failed", "error": {"message": "full"}}]));
    assert_eq!(watched.surface("task", "t"), "task_capsule", "the surface does not change");
    for _ in 0..60 {
        watched
            .fold("task.changed", change(json!({"status": "failed"})))
            .fold("task.changed", change(json!({"status": "running"})));
    }
    assert_eq!(watched.get("task", "t")["attempts"].as_array().unwrap().len(), 20);
}

#[test]
fn a_run_has_the_session_of_its_start_and_never_a_childs() {
    let mut watched = Watched::new();
    watched
        .fold("text.delta", json!({"messageId": "m", "sessionId": "child", "parentSessionId": "lead", "payload": {"text": "x"}}));
    assert_eq!(watched.get("run", "r").get("sessionId"), None);
    watched.fold("run.started", json!({"sessionId": "own", "threadId": "t", "parentSessionId": "lead"}));
    watched.fold("text.delta", json!({"messageId": "m", "sessionId": "other", "payload": {"text": "y"}}));
    assert_eq!((&watched.get("run", "r")["sessionId"], &watched.get("run", "r")["threadId"]), (&json!("own"), &json!("t")));
}

#[test]
fn an_agent_card_has_lineage_and_usage() {
    let mut watched = Watched::new();
    watched.fold(
        "agent.spawned",
        json!({"agentId": "g", "taskId": "t", "sessionId": "child", "parentSessionId": "lead", "parentThreadId": "lt", "payload": {"agentName": "researcher", "teamName": "d", "role": "r", "model": "m", "policy": {"mode": "plan"}, "usage": {"inputTokens": 2}}}),
    );
    watched.fold(
        "agent.changed",
        json!({"agentId": "g", "sessionId": "lead", "payload": {"runtimeStatus": "needs_input", "queuedTurnCount": 1}}),
    );
    watched.fold("metric.changed", json!({"agentId": "g", "payload": {"usage": {"inputTokens": 3, "outputTokens": 1}}}));
    let card = watched.get("agent", "g");
    let expected = json!({
        "agentName": "researcher", "status": "needs_input", "teamName": "d", "role": "r", "model": "m", "policy": {"mode": "plan"},
        "parentSessionId": "lead", "parentThreadId": "lt", "taskId": "t", "sessionId": "child",
        "usage": {"inputTokens": 5, "outputTokens": 1}, "runtimeStatus": "needs_input", "queuedTurnCount": 1,
    });
    assert_eq!(card, expected);
    watched.fold("agent.completed", json!({"agentId": "g", "phase": "failed", "payload": {"withheld": true}}));
    assert_eq!((watched.status("agent", "g"), &watched.get("agent", "g")["withheld"]), ("failed".into(), &json!(true)));
    watched.fold("agent.changed", json!({"agentId": "nameless"}));
    assert_eq!(
        (watched.status("agent", "nameless"), &watched.get("agent", "nameless")["agentName"]),
        ("unknown".into(), &json!("nameless"))
    );
}

#[test]
fn a_review_is_one_activity_from_request_to_verdict() {
    let mut watched = Watched::new();
    watched.fold("review.requested", json!({"payload": {"reviewId": 7, "reviewer": "v", "target": "a"}}));
    assert_eq!(watched.status("review", "7"), "requested");
    watched
        .fold("review.completed", json!({"payload": {"reviewId": 7, "verdict": "changes_requested", "requestedFixes": ["x"]}}));
    assert_eq!(
        (watched.status("review", "7"), &watched.get("review", "7")["reviewer"]),
        ("changes_requested".into(), &json!("v"))
    );
    watched.fold("review.requested", json!({"payload": {"reviewId": 7}}));
    assert_eq!((watched.status("review", "7"), watched.get("review", "7").get("verdict")), ("requested".into(), None));
    watched.fold("review.completed", json!({"payload": {"reviewId": 7, "withheld": true}}));
    assert_eq!((watched.status("review", "7"), &watched.get("review", "7")["withheld"]), ("completed".into(), &json!(true)));
}

#[test]
fn handoffs_teams_and_worker_notifications_have_the_seed_members() {
    let mut watched = Watched::new();
    watched.fold(
        "team.changed",
        json!({"topology": "review_team", "payload": {"teamId": "d", "teamPhase": "active", "teamActiveCount": 2}}),
    );
    assert_eq!(watched.get("team", "d"), json!({"topology": "review_team", "teamPhase": "active", "teamActiveCount": 2}));
    let handoff = json!({"handoffId": "h", "from": "a", "to": "b", "reason": "x", "resumeTarget": "t", "memoryBoundary": "m", "acceptedAt": "2026-01-01T00:00:00Z"});
    watched.fold("agent.handoff", json!({"payload": handoff}));
    assert_eq!((watched.status("handoff", "h"), &watched.get("handoff", "h")["resumeTarget"]), ("accepted".into(), &json!("t")));
    let worker = |payload: Value| json!({"taskId": "t", "agentId": "g", "payload": payload});
    watched.fold(
        "worker.notification",
        worker(json!({"workerNotificationId": "n", "status": "completed", "summary": "done", "usage": {"a": 1}, "toolCount": 3})),
    );
    let notification = watched.get("worker-notification", "n");
    assert_eq!(
        (&notification["summary"], &notification["taskId"], &notification["agentId"]),
        (&json!("done"), &json!("t"), &json!("g"))
    );
    for (text, summary) in [("do", None), ("ne", None), ("done", Some("done"))] {
        let mut payload = json!({"workerNotificationId": "chunks", "role": "user", "text": text});
        payload.as_object_mut().unwrap().extend(summary.map(|summary| ("summary".to_owned(), json!(summary))));
        watched.fold("worker.notification", worker(payload));
    }
    assert_eq!(watched.get("worker-notification", "chunks")["text"], json!(["done"]));
}

#[test]
fn an_artifact_has_versions_and_refs_and_no_body() {
    let mut watched = Watched::new();
    let of = |payload: Value| json!({"artifactId": "a", "payload": payload});
    watched.fold("artifact.created", of(json!({"title": "Report", "kind": "document", "body": "secret", "content": "c", "text": "t", "preview": {"ref": "p", "text": "t"}})));
    assert_eq!(
        watched.get("artifact", "a"),
        json!({"status": "created", "title": "Report", "kind": "document", "preview": {"ref": "p"}})
    );
    for n in 0..60 {
        watched.fold("artifact.version.created", of(json!({"version": n, "ref": "r", "body": "b"})));
    }
    let versions = watched.get("artifact", "a")["versions"].as_array().unwrap().clone();
    assert_eq!(
        (versions.len(), &versions[49]),
        (50, &json!({"sequence": 61, "at": "1970-01-01T00:00:00.000Z", "version": 59, "ref": "r"}))
    );
    for (class, status) in [
        ("preview.ready", "preview_ready"),
        ("diff.ready", "diff_ready"),
        ("export.started", "exporting"),
        ("export.completed", "exported"),
        ("failed", "failed"),
        ("updated", "updated"),
        ("changed", "approved"),
        ("deleted", "deleted"),
    ] {
        let payload = if status == "approved" { json!({"status": "approved"}) } else { json!({}) };
        watched.fold(&format!("artifact.{class}"), of(payload));
        assert_eq!(watched.status("artifact", "a"), status);
    }
    watched.fold("evidence.changed", json!({"evidenceId": "e", "refs": [{"rel": "trace", "href": "/t"}], "payload": {"kind": "citation", "verdict": "passed", "body": "b"}}));
    assert_eq!(
        watched.get("evidence", "e"),
        json!({"kind": "citation", "verdict": "passed", "refs": [{"rel": "trace", "href": "/t"}], "status": "passed"})
    );
}

#[test]
fn a_compaction_without_an_id_lasts_until_the_next_start() {
    let mut watched = Watched::new();
    watched.fold("context.compaction.started", json!({"payload": {"preTokens": 9}}));
    watched.fold("context.compaction.completed", json!({"payload": {"postTokens": 3, "status": "completed"}}));
    assert_eq!(watched.get("compaction", "compaction"), json!({"status": "completed", "preTokens": 9, "postTokens": 3}));
    watched.fold("context.compaction.started", json!({}));
    assert_eq!(watched.get("compaction", "compaction"), json!({"status": "running"}));
    watched.fold("context.compaction.completed", json!({"phase": "failed", "payload": {"withheld": true}}));
    assert_eq!(watched.get("compaction", "compaction"), json!({"status": "failed", "withheld": true}));
}

#[test]
fn named_contexts_and_permissions_are_separate_and_bounded() {
    let mut watched = Watched::new();
    watched.fold("context.changed", json!({"payload": {"budget": {"used": 1}, "content": "body"}}));
    watched.fold("context.changed", json!({"payload": {"contextId": "k", "missing": ["a"]}}));
    assert_eq!(
        (watched.get("context", "context"), &watched.get("context", "k")["missing"]),
        (json!({"budget": {"used": 1}}), &json!(["a"]))
    );
    for n in 0..100 {
        watched.fold("context.changed", json!({"payload": {format!("m{n}"): n}}));
    }
    assert_eq!(watched.get("context", "context").as_object().unwrap().len(), 64);
    watched.fold("run.started", json!({"agentId": "lead"}));
    watched.fold(
        "permission.changed",
        json!({"agentId": "lead", "toolCallId": "c", "payload": {"decision": "denied", "mode": "plan"}}),
    );
    watched.fold("permission.changed", json!({"agentId": "mate", "payload": {"mode": "ask"}}));
    watched.fold("permission.changed", json!({"agentId": "lead", "payload": {"sandbox": "on"}}));
    assert_eq!(watched.get("permission", "permission"), json!({"mode": "plan", "agentId": "lead", "sandbox": "on"}));
    assert_eq!(watched.get("permission", "mate")["mode"], "ask");
}

#[test]
fn a_queue_drops_items_that_contradict_its_count() {
    let mut watched = Watched::new();
    let of = |payload: Value| json!({"sessionId": "s", "payload": payload});
    watched.fold("queue.changed", of(json!({"items": [1, 2], "queueReason": "busy", "providerParallelBudget": 4})));
    assert_eq!(
        watched.get("queue", "s"),
        json!({"queueReason": "busy", "providerParallelBudget": 4, "items": [1, 2], "queuedTurnCount": 2})
    );
    watched.fold("queue.changed", of(json!({"queuedTurnCount": 0})));
    assert_eq!(watched.get("queue", "s"), json!({"providerParallelBudget": 4, "queuedTurnCount": 0}));
    assert_eq!(watched.surface("queue", "s"), "composer");
}

#[test]
fn metrics_and_diagnostics_keep_the_newest_entries() {
    let mut watched = Watched::new();
    for n in 0..60 {
        watched.fold("metric.changed", json!({"payload": {"name": "ttft", "value": n}}));
        watched.fold("diagnostic.changed", json!({"payload": {"kind": "k", "message": "m"}}));
    }
    for (kind, last) in [
        ("metrics", json!({"sequence": 119, "name": "ttft", "value": 59})),
        ("diagnostics", json!({"sequence": 120, "kind": "k", "message": "m"})),
    ] {
        let entries = watched.get(kind, kind)["entries"].as_array().unwrap().clone();
        assert_eq!((entries.len(), entries.last().unwrap()), (50, &last));
    }
}

#[test]
fn a_restored_view_continues_like_the_saved_one() {
    let log = LogId::Run(RunId::new("r").unwrap());
    let mut watched = Watched::new();
    watched.fold("run.started", json!({"agentId": "lead"})).fold("text.delta", delta("p", "a"));
    watched.fold("tool.progress", activity(json!({"content": {"list": ["a", "b"]}})));
    let saved = watched.view.save();
    watched.view = View::restore(&log, Audience::User, &saved).unwrap().unwrap();
    assert_eq!(watched.view.save(), saved);
    watched.fold("text.delta", delta("p", "b")).fold("run.finished", json!({}));
    assert_eq!((watched.texts_of("m"), watched.status("message", "m")), (vec!["ab".into()], "interrupted".into()));
    assert!(View::restore(&log, Audience::User, b"{\"version\":1}").unwrap().is_none());
    assert!(View::restore(&log, Audience::User, b"{\"version").is_err());
}

#[test]
fn a_view_of_an_older_version_is_not_restored() {
    let log = LogId::Run(RunId::new("r").unwrap());
    let mut watched = Watched::new();
    watched.fold("run.started", json!({})).fold("text.delta", delta("p", "a"));
    let mut saved: Value = serde_json::from_slice(&watched.view.save()).unwrap();
    assert!(View::restore(&log, Audience::User, saved.to_string().as_bytes()).unwrap().is_some());
    saved["version"] = json!(VERSION - 1);
    assert!(View::restore(&log, Audience::User, saved.to_string().as_bytes()).unwrap().is_none(), "with the same shape");
    for activity in saved["activities"].as_array_mut().unwrap() {
        for member in ["opened_at", "updated_at"] {
            activity.as_object_mut().unwrap().remove(member).expect("a time");
        }
    }
    assert!(View::restore(&log, Audience::User, saved.to_string().as_bytes()).unwrap().is_none(), "without times");
}

#[test]
fn an_activity_keeps_its_first_end_and_loses_it_when_it_reopens() {
    let mut watched = Watched::new();
    let ends = |watched: &Watched, kind: &str| {
        let activity = watched.view.activities().iter().find(|activity| *activity.kind == *kind).unwrap();
        (activity.updated_at.to_string()[20..23].to_owned(), activity.ended_at.map(|at| at.to_string()[20..23].to_owned()))
    };
    let at = |ms: u32| format!("2026-11-21T10:00:00.{ms:03}Z");
    let task = |ms: u32, payload: Value| json!({"taskId": "t", "receivedAt": at(ms), "payload": payload});
    for (ms, payload, ended) in [
        (1, json!({"status": "running"}), None),
        (2, json!({"status": "failed"}), Some("002")),
        (3, json!({"summary": "more"}), Some("002")),
        (4, json!({"status": "completed"}), Some("002")),
        (5, json!({"status": "running"}), None),
        (6, json!({"status": "done"}), Some("006")),
    ] {
        watched.fold("task.changed", task(ms, payload));
        assert_eq!(ends(&watched, "task"), (format!("{ms:03}"), ended.map(str::to_owned)));
    }
    // A fact that changes no member does not change the times.
    watched.fold("task.changed", task(7, json!({"status": "done"})));
    assert_eq!(ends(&watched, "task"), ("006".into(), Some("006".into())));
    let saved = watched.view.save();
    watched.view = View::restore(&LogId::Run(RunId::new("r").unwrap()), Audience::User, &saved).unwrap().unwrap();
    assert_eq!(ends(&watched, "task"), ("006".into(), Some("006".into())));
}

#[test]
fn streamed_arguments_are_parsed_once_they_are_complete() {
    let end = |chunks: &[&str]| {
        let mut watched = Watched::new();
        watched.fold("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}}));
        for chunk in chunks {
            watched.fold("tool.args", json!({"toolCallId": "c", "payload": {"inputText": chunk}}));
        }
        assert!(chunks.is_empty() || watched.get("tool-call-progress", "c")["state"] == "input-streaming");
        watched.fold("tool.args", json!({"toolCallId": "c", "payload": {"state": "input-available"}}));
        let call = watched.get("tool-call-progress", "c");
        assert_eq!((&call["state"], &call["status"]), (&json!("input-available"), &json!("running")));
        (call.get("input").cloned(), call.get("input_text").cloned())
    };
    assert_eq!(end(&["{\"a\":", "[1]}"]), (Some(json!({"a": [1]})), None));
    assert_eq!(end(&["{\"a\":"]), (None, Some(json!(["{\"a\":"]))), "invalid JSON stays text");
    let deep = "[".repeat(100) + &"]".repeat(100);
    assert_eq!(end(&[&deep]), (None, Some(json!([deep]))), "JSON that is too deep for a checkpoint stays text");
    assert_eq!(end(&[]), (None, None));
}

#[test]
fn a_call_that_awaits_a_result_outlives_its_run() {
    let mut watched = Watched::new();
    let call = |payload: Value| json!({"toolCallId": "c", "payload": payload});
    watched.fold("run.started", json!({})).fold("tool.started", call(json!({"toolName": "x"})));
    watched.fold("tool.args", call(json!({"input": {"a": 1}})));
    watched.fold("tool.progress", call(json!({"status": "pending", "awaits": "client"})));
    watched.fold("run.finished", json!({}));
    let waiting = watched.get("tool-call-progress", "c");
    assert_eq!(
        (&waiting["status"], &waiting["state"], &waiting["awaits"]),
        (&json!("pending"), &json!("input-available"), &json!("client"))
    );
    watched.fold("run.started", json!({})).fold("run.failed", json!({}));
    assert_eq!(watched.get("tool-call-progress", "c"), waiting, "a second end changes nothing");
    watched.fold("tool.result", call(json!({"output": "blue"})));
    let ended = watched.get("tool-call-progress", "c");
    assert_eq!(
        (&ended["status"], &ended["state"], &ended["output"], ended.get("awaits")),
        (&json!("done"), &json!("output-available"), &json!("blue"), None)
    );
}

#[test]
fn a_call_that_awaited_and_then_ran_ends_with_its_run() {
    let works = [
        ("tool.progress", json!({"progress": 0.5})),
        ("tool.output.delta", json!({"text": "x"})),
        ("tool.started", json!({"toolName": "x"})),
    ];
    for (class, payload) in works {
        let mut watched = Watched::new();
        watched.fold("run.started", json!({})).fold("tool.started", json!({"toolCallId": "c"}));
        watched.fold("tool.progress", json!({"toolCallId": "c", "payload": {"awaits": "client"}}));
        watched.fold(class, json!({"toolCallId": "c", "payload": payload}));
        assert_eq!(watched.get("tool-call-progress", "c").get("awaits"), None, "{class}");
        watched.fold("run.finished", json!({}));
        assert_eq!(watched.status("tool-call-progress", "c"), "cancelled", "{class}");
    }
}

#[test]
fn a_restart_within_an_attempt_closes_open_activities_unless_the_run_waits() {
    let begun = |waits: bool| {
        let mut watched = Watched::new();
        watched.fold("run.started", json!({}));
        watched.fold("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": "half"}}));
        watched.fold("tool.started", json!({"toolCallId": "c"}));
        if waits {
            watched.fold("run.status", json!({"phase": "waiting"}));
        }
        watched.fold("run.started", json!({}));
        (watched.status("message", "m"), watched.status("tool-call-progress", "c"))
    };
    assert_eq!(begun(false), ("interrupted".into(), "cancelled".into()));
    assert_eq!(begun(true), ("streaming".into(), "running".into()));
}

#[test]
fn a_run_beyond_the_activity_limit_continues_marks_it_and_can_still_ask() {
    let task = |view: &mut View, n: usize, status: &str| {
        let text = format!(
            r#"{{"type":"task.changed","phase":"acting","surface":"work_board","taskId":"t{n}","payload":{{"status":"{status}"}}}}"#
        );
        let through = view.through.next();
        view.fold(through, Some(text.as_bytes())).changes.len()
    };
    let mut watched = Watched::new();
    // The run is one of the activities.
    let tasks = activity_set::ACTIVITIES_MAX - 1_000 - 1;
    for n in 0..tasks {
        assert!(task(&mut watched.view, n, "open") > 0);
    }
    assert_eq!((watched.view.activities().len(), watched.view.state.activities.has_omissions()), (tasks + 1, false));
    let log = LogId::Run(RunId::new("r").unwrap());
    let mut again = View::restore(&log, Audience::User, &watched.view.save()).unwrap().unwrap();
    for view in [&mut watched.view, &mut again] {
        assert_eq!(task(view, tasks, "open"), 2, "the task is left out; `run` and `diagnostics` change");
        assert_eq!(task(view, tasks, "done"), 0, "the omission is reported once");
        assert_eq!(task(view, 7, "done"), 1, "existing activities continue");
    }
    assert!(watched.view.save() == again.save(), "a restored view continues identically");
    let mut again = View::restore(&log, Audience::User, &again.save()).unwrap().unwrap();
    assert_eq!(task(&mut again, tasks + 1, "open"), 0, "the omission was reported before");
    assert_eq!(
        (watched.get("task", &format!("t{tasks}")), &watched.get("run", "r")["activitiesOmitted"]),
        (Value::Null, &json!(true))
    );
    assert_eq!(watched.get("diagnostics", "diagnostics")["entries"][0]["kind"], "too_many_activities");
    let ask = json!({"actionId": "a", "surface": "hitl", "payload": {"kind": "approval"}});
    watched.copies.extend(
        watched
            .view
            .activities()
            .iter()
            .map(|activity| ((activity.kind.to_string(), activity.id.to_string()), Value::Object(activity.content.clone()))),
    );
    watched.fold("action.required", ask);
    assert_eq!(watched.status("action", "a"), "pending");
    watched.fold(
        "state.delta",
        json!({"messageId": "m", "payload": {"activityType": "x", "patch": [{"op": "remove", "path": "/a"}]}}),
    );
    assert!(watched.frames.is_empty(), "a patch of an omitted activity does not fail: {:?}", watched.frames);
    watched.fold("run.finished", json!({}));
    assert_eq!((watched.status("run", "r"), watched.status("action", "a")), ("completed".into(), "interrupted".into()));
}

#[test]
fn a_text_grows_up_to_its_limit_without_a_gap() {
    let mut watched = Watched::new();
    let chunk = "\u{e4}".repeat(256 * 1024);
    let delta = |watched: &mut Watched, text: &str| {
        watched.fold("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": text}}));
    };
    delta(&mut watched, "x");
    for _ in 0..8 {
        delta(&mut watched, &chunk);
    }
    let part = |watched: &Watched| watched.get("message", "m")["parts"][0].clone();
    assert_eq!(part(&watched)["clipped"], true);
    let said = watched.texts_of("m").remove(0);
    assert_eq!(said.len(), activity_set::TEXT_BYTES_MAX - 1, "a character that does not fit is cut as a whole");
    delta(&mut watched, "y");
    assert_eq!(watched.texts_of("m"), [said], "a short text must not follow a cut");
    assert!(watched.frames.is_empty(), "{:?}", watched.frames);
    watched.fold("text.final", json!({"messageId": "m", "partId": "p", "payload": {"text": "short"}}));
    assert_eq!((watched.texts_of("m"), part(&watched).get("clipped")), (vec!["short".to_owned()], None));
}

#[test]
fn a_message_has_a_part_limit_and_marks_omissions() {
    let mut watched = Watched::new();
    for n in 0..message::PARTS_MAX + 2 {
        let text = format!(
            r#"{{"type":"text.delta","phase":"producing","surface":"conversation","messageId":"m","partId":"{n}","payload":{{"text":"x"}}}}"#
        );
        let through = watched.view.through.next();
        watched.view.fold(through, Some(text.as_bytes()));
    }
    let message = watched.get("message", "m");
    assert_eq!((message["parts"].as_array().unwrap().len(), &message["clipped"]), (message::PARTS_MAX, &json!(true)));
}

#[test]
fn patches_grow_a_content_up_to_its_limit_and_removals_free_space() {
    let mut watched = Watched::new();
    let mut send = |payload: Value| {
        let mut payload = payload;
        payload["activityType"] = json!("x");
        watched.fold("state.delta", json!({"messageId": "m", "payload": payload}));
        let failed = watched.get("diagnostics", "diagnostics")["entries"].as_array().map_or(0, Vec::len);
        (watched.get("x", "m")["list"].as_array().map_or(0, Vec::len), failed)
    };
    send(json!({"content": {"list": []}}));
    let add = json!({"op": "add", "path": "/list/-", "value": "x".repeat(4 * 1024 * 1024 - 100)});
    assert_eq!(send(json!({"patch": [add, add, add]})), (3, 0));
    assert_eq!(send(json!({"patch": [add, add]})), (3, 1), "a patch applies completely or not at all");
    assert_eq!(send(json!({"patch": [add]})), (4, 1));
    // The limit is on the current size, not on the sum of additions.
    for _ in 0..3 {
        assert_eq!(send(json!({"patch": [{"op": "remove", "path": "/list/0"}]})), (3, 1));
        assert_eq!(send(json!({"patch": [add]})), (4, 1));
    }
    assert_eq!(send(json!({"patch": [add]})), (4, 2));
}

#[test]
fn a_patch_beyond_the_step_limit_is_not_applied_and_is_reported() {
    let mut watched = Watched::new();
    watched.fold("state.snapshot", json!({"payload": {"state": {"list": vec![1; 100_000], "a": 1}}}));
    let mut patch = vec![json!({"op": "replace", "path": "/a", "value": 2})];
    patch.extend(vec![json!({"op": "move", "from": "/list/0", "path": "/list/99999"}); 2_000]);
    watched.fold("state.delta", json!({"payload": {"patch": patch}}));
    assert_eq!(watched.get("state", "state")["state"]["a"], 1);
    let entry = watched.get("diagnostics", "diagnostics")["entries"][0].clone();
    assert_eq!((&entry["kind"], &entry["activityType"]), (&json!("patch_not_applied"), &json!("state")));
    assert!(entry["error"].as_str().unwrap().contains("1048576"), "{entry}");
    watched.fold("state.delta", json!({"payload": {"patch": [{"op": "remove", "path": "/list/0"}]}}));
    assert_eq!(watched.get("state", "state")["state"]["list"].as_array().unwrap().len(), 99_999);
}

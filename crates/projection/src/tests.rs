//! The fold of each fact. A model reader applies every frame, and its copy is compared with the view.

mod limits;
mod subjects;
mod surfaces;

use super::*;
use proscenium_model::RunId;
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
        watched.view = View::new(&LogId::Session(proscenium_model::SessionId::new("s").unwrap()), Audience::User);
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
                let patch = serde_json::to_value(&change.operations).unwrap();
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
                *chunks = members::text(&chunks.iter().filter_map(Value::as_str).collect::<String>()).as_array().unwrap().clone();
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

fn activity(payload: Value) -> Value {
    let mut payload = payload;
    payload["activityType"] = json!("search");
    json!({"messageId": "x", "payload": payload})
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
fn a_result_before_its_call_and_the_call_are_one_ended_call_in_any_order_of_its_pieces() {
    let pieces = [
        ("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "ls"}})),
        ("tool.args", json!({"toolCallId": "c", "payload": {"inputText": "{\"n\": 1}"}})),
        ("tool.args", json!({"toolCallId": "c", "payload": {"state": "input-available"}})),
    ];
    let result = ("tool.result", json!({"toolCallId": "c", "payload": {"output": "a.txt"}}));
    for at in 0..=pieces.len() {
        let mut facts = pieces.to_vec();
        facts.insert(at, result.clone());
        let mut watched = Watched::new();
        for (class, members) in facts {
            watched.fold(class, members);
        }
        watched.fold("run.finished", json!({}));
        let call = watched.get("tool-call-progress", "c");
        let members = ["tool_name", "input", "output", "state", "status"].map(|member| call[member].clone());
        let expected = [json!("ls"), json!({"n": 1}), json!("a.txt"), json!("output-available"), json!("done")];
        assert_eq!((members, call.get("unannounced")), (expected, None), "the result came at {at}");
    }
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
fn arguments_may_follow_a_report() {
    let mut watched = Watched::new();
    let state = |watched: &Watched| watched.get("tool-call-progress", "c")["state"].clone();
    watched.fold("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}}));
    watched.fold("tool.progress", json!({"toolCallId": "c", "payload": {"message": "in_progress"}}));
    assert_eq!(state(&watched), "progress");
    for chunk in ["{\"a\":", "1}"] {
        watched.fold("tool.args", json!({"toolCallId": "c", "payload": {"inputText": chunk}}));
        assert_eq!(state(&watched), "input-streaming");
    }
    watched.fold("tool.args", json!({"toolCallId": "c", "payload": {"state": "input-available"}}));
    assert_eq!(state(&watched), "input-available");
    watched.fold("tool.progress", json!({"toolCallId": "c", "payload": {"message": "working"}}));
    watched.fold("tool.args", json!({"toolCallId": "c", "payload": {"input": {"a": 2}}}));
    assert_eq!(state(&watched), "progress", "the tool works on arguments that it already has");
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

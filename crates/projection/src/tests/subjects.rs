//! Activities that are no message and no call: tasks, agents, artifacts, reviews, and those of a source.

use super::*;

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

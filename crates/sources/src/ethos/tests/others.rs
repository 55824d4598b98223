//! Tests of usage, of the web server's events, and of unknown input.

use super::*;

// ── usage, and other edge cases ──

#[test]
fn usage_is_reported_and_a_tool_s_cost_is_no_model_call() {
    let llm = event(
        "usage",
        json!({"inputTokens": 812, "outputTokens": 9, "estimatedCostUsd": 0.0026, "cacheReadTokens": 700, "cacheCreationTokens": 5}),
    );
    let drafts = adapt([llm, call("c", "x"), ended("c", "x", "1"), usage(0, 0, 0.005), usage(0, 0, 0.005)]);
    let used = json!({"inputTokens": 812, "outputTokens": 9, "cacheReadTokens": 700, "cacheCreationTokens": 5, "costUsd": 0.0026, "llmCalls": 1});
    assert_eq!(payload(&drafts[0]), json!({"kind": "llm_call", "usage": used}));
    assert_eq!(
        (drafts[0].scope.clone(), drafts[0].phase.clone(), drafts[0].audience),
        (Scope::Turn, Phase::Producing, Audience::Dashboard)
    );
    let paid = json!({"kind": "tool_cost", "usage": {"inputTokens": 0, "outputTokens": 0, "costUsd": 0.005}});
    assert_eq!((payload(&drafts[3]), drafts[3].ids.tool_call.as_ref().unwrap().as_str()), (paid.clone(), "c"));
    assert_eq!(
        (&drafts[4].payload.to_value()["kind"], drafts[4].ids.tool_call.clone()),
        (&json!("cost"), None),
        "only a cost event directly after the end bills the call"
    );
    assert_eq!(
        last([usage(0, 0, 0.0)]).payload.to_value()["kind"],
        "llm_call",
        "an event without tokens and cost is a model call"
    );
    let odd = last([event("usage", json!({"inputTokens": "many", "of_tomorrow": 3}))]);
    assert_eq!((&odd.payload.to_value()["usage"], &odd.extra["inputTokens"]), (&json!({"llmCalls": 1}), &json!("many")));
}

#[test]
fn the_cost_of_a_hidden_call_is_visible_only_to_readers_of_the_call() {
    let draft = last([seen_by("internal", call("c", "x")), ended("c", "x", "1"), usage(0, 0, 0.005)]);
    assert_eq!((draft.audience, draft.ids.tool_call.unwrap().as_str()), (Audience::Internal, "c"));
}

#[test]
fn context_metadata_is_internal() {
    let draft = last([event("context_meta", json!({"data": {"skillFilesUsed": ["skills/git.md"]}}))]);
    assert_eq!(payload(&draft), json!({"meta": {"skillFilesUsed": ["skills/git.md"]}}));
    assert_eq!(
        (draft.event_type, draft.audience, draft.surface),
        (EventType::ContextChanged, Audience::Internal, Surface::Diagnostics)
    );
}

#[test]
fn a_review_passes_if_all_evaluators_pass_and_has_no_verdict_if_one_abstains() {
    let verdict = |results: Value| {
        let draft = last([event("evaluators_complete", json!({"results": results}))]);
        assert_eq!((draft.event_type.clone(), draft.audience), (EventType::ReviewCompleted, Audience::Dashboard));
        assert_eq!(
            (&draft.payload.to_value()["reviewId"], &draft.payload.to_value()["results"]),
            (&json!("ethos-review-1"), &results)
        );
        draft.payload.to_value().get("verdict").cloned()
    };
    assert_eq!(verdict(json!([{"name": "a", "pass": true}, {"name": "b", "pass": true}])), Some(json!("passed")));
    assert_eq!(verdict(json!([{"name": "a", "pass": true}, {"name": "b", "pass": false, "score": 0.4}])), Some(json!("failed")));
    assert_eq!(verdict(json!([{"name": "a"}])), None);
    assert_eq!(verdict(json!([])), None);
}

// ── events of the web server ──

#[test]
fn a_web_server_approval_is_pending_until_its_answer() {
    let request = json!({"approvalId": "ap", "sessionId": "s", "toolCallId": "c", "toolName": "bash", "args": {"cmd": "ls"},
        "reason": "destructive", "ofTomorrow": 1});
    let ask = event("tool.approval_required", json!({"request": request}));
    let resolve =
        |decision: &str| event("approval.resolved", json!({"approvalId": "ap", "decision": decision, "decidedBy": "tab"}));
    let drafts = adapt([start(), ask.clone(), resolve("deny")]);
    let expected = json!({"kind": "tool_approval", "toolName": "bash", "input": {"cmd": "ls"}, "message": "destructive"});
    assert_eq!(
        (classes(&drafts[1..2]), payload(&drafts[1]), drafts[1].owner.clone()),
        (vec!["action.required waiting".into()], expected, Owner::Policy)
    );
    assert_eq!(drafts[1].extra["ofTomorrow"], 1);
    for draft in &drafts[1..] {
        assert_eq!((draft.ids.action.as_ref().unwrap().as_str(), draft.ids.tool_call.as_ref().unwrap().as_str()), ("ap", "c"));
    }
    assert_eq!(payload(&drafts[2]), json!({"outcome": "rejected", "decision": "deny", "decidedBy": "tab"}));
    assert_eq!(last([ask.clone(), resolve("allow")]).payload.to_value()["outcome"], "approved");
    let tomorrow = last([ask, resolve("of_tomorrow")]);
    assert_eq!(
        (tomorrow.payload.to_value().get("outcome"), &tomorrow.payload.to_value()["decision"]),
        (None, &json!("of_tomorrow"))
    );
}

#[test]
fn a_question_includes_its_default_and_deadline() {
    let ask = event(
        "clarify.request",
        json!({"requestId": "q", "question": "Which?", "options": ["a", "b"], "default": "a", "jobId": "j", "defaultDeadlineAt": "2026-01-01T00:00:00.000Z"}),
    );
    let draft = last([ask.clone()]);
    let expected = json!({"kind": "clarification", "message": "Which?", "options": ["a", "b"], "default": "a", "expiresAt": "2026-01-01T00:00:00Z"});
    assert_eq!((payload(&draft), draft.owner.clone(), draft.ids.task.clone().unwrap().as_str()), (expected, Owner::Runtime, "j"));
    for (source, outcome) in
        [("user", "answered"), ("timeout-default", "expired"), ("timeout-no-default", "expired"), ("cancel", "cancelled")]
    {
        let answered = last([ask.clone(), event("clarify.resolved", json!({"requestId": "q", "source": source}))]);
        assert_eq!(payload(&answered), json!({"outcome": outcome, "resolvedBy": source}));
        assert_eq!(answered.ids.action, draft.ids.action);
    }
    let endless = last([event("clarify.request", json!({"requestId": "q", "question": "?", "defaultDeadlineAt": null}))]);
    assert_eq!((payload(&endless), endless.extra.len()), (json!({"kind": "clarification", "message": "?"}), 0));
    let odd = last([event("clarify.request", json!({"requestId": "q", "question": "?", "defaultDeadlineAt": "soon"}))]);
    assert_eq!(odd.extra["defaultDeadlineAt"], "soon");
}

#[test]
fn jobs_are_tasks_and_notifications_belong_to_the_session() {
    let job = event(
        "run.update",
        json!({"jobId": "j", "runner": "local", "status": "running", "now": "reads", "elapsedMs": 5, "spendUsd": 0.1, "toolCount": 2}),
    );
    let draft = last([start_of("trc"), job]);
    let expected = json!({"runtimeEntity": "automation_job", "status": "running", "message": "reads", "durationMs": 5, "toolCount": 2,
        "runner": "local", "usage": {"costUsd": 0.1}});
    assert_eq!(
        (payload(&draft), draft.event_type.clone(), draft.ids.task.unwrap().as_str()),
        (expected, EventType::TaskChanged, "j")
    );
    assert_eq!(draft.ids.turn, None, "a job does not belong to the turn");
    let cron = last([event(
        "cron.fired",
        json!({"jobId": "j", "ranAt": "2026-01-01T00:00:00.000Z", "outputPath": null, "sessionKey": "k"}),
    )]);
    assert_eq!(
        payload(&cron),
        json!({"runtimeEntity": "automation_job", "wakeReason": "cron", "ranAt": "2026-01-01T00:00:00.000Z"})
    );
    assert_eq!((cron.timestamp.as_deref(), cron.refs), (Some("2026-01-01T00:00:00Z"), Some(json!({"sessionKey": "k"}))));
    let notice = last([event(
        "notification_received",
        json!({"pluginId": "linear", "sessionKey": "k", "message": "done", "startTurn": false, "payload": {"issue": 7}}),
    )]);
    let expected =
        json!({"notification": {"message": "done", "pluginId": "linear", "startTurn": false, "payload": {"issue": 7}}});
    assert_eq!(
        (payload(&notice), notice.event_type, notice.surface),
        (expected, EventType::SessionUpdated, Surface::WorkerNotifications)
    );
    let push = last([event("notification", json!({"message": "hi", "source": "cron"}))]);
    assert_eq!(payload(&push), json!({"notification": {"message": "hi", "source": "cron"}}));
}

#[test]
fn the_server_s_message_id_does_not_change_the_adapter_s() {
    let persisted = |role: &str| event("message_persisted", json!({"messageId": "msg_1", "role": role}));
    let drafts = adapt([start(), text("a"), done("a"), persisted("assistant"), persisted("user")]);
    assert_eq!(payload(&drafts[4]), json!({"persisted": {"messageId": "msg_1", "role": "assistant"}}));
    assert_eq!((drafts[4].ids.message.as_ref().unwrap().as_str(), drafts[5].ids.message.clone()), ("ethos-message-1", None));
}

#[test]
fn server_events_are_kept_as_diagnostics() {
    for name in SERVER_EVENTS {
        let draft = last([event(name, json!({"requestId": "r"}))]);
        assert_eq!((draft.event_type, draft.audience), (EventType::DiagnosticChanged, Audience::Internal));
        assert_eq!(
            (&draft.payload.to_value()["kind"], &draft.payload.to_value()["event"]),
            (&json!(name), &json!({"requestId": "r"}))
        );
    }
}

// ── unknown input ──

#[test]
fn unknown_and_malformed_events_are_kept_internal_and_never_an_error() {
    let unknown = last([event("of_tomorrow", json!({"foo": 1}))]);
    assert_eq!(
        (&unknown.payload.to_value()["kind"], &unknown.payload.to_value()["event"]),
        (&json!("unknown_event_type"), &json!({"foo": 1}))
    );
    for broken in [
        event("text_delta", json!({"text": 7})),
        event("thinking_delta", json!({})),
        event("tool_start", json!({"toolCallId": 7, "toolName": "x"})),
        event("tool_end", json!({"toolCallId": "c", "result": "whether it is well?"})),
        event("tool_progress", json!({"message": "of what?"})),
        event("tool_approval_required", json!({})),
        event("tool_approval_response", json!({"toolCallId": "c", "approved": "yes"})),
        event("credential_required", json!({"pluginId": "p"})),
        event("evaluators_complete", json!({"results": "good"})),
        event("dry_run_summary", json!({})),
        event("message_persisted", json!({"messageId": null})),
        event("tool.approval_required", json!({"request": {"approvalId": ""}})),
        event("tool.approval_required", json!({"request": "please"})),
        event("approval.resolved", json!({})),
        event("clarify.request", json!({})),
        event("clarify.resolved", json!({})),
        event("run.update", json!({"jobId": 7})),
        event("cron.fired", json!({})),
    ] {
        let draft = last([broken.clone()]);
        assert_eq!(
            (&draft.payload.to_value()["kind"], draft.audience),
            (&json!("malformed_event"), Audience::Internal),
            "{broken}"
        );
        let mut event = object(broken);
        event.shift_remove(TYPE);
        assert_eq!(draft.payload.to_value()["event"], Value::Object(event), "the diagnostic keeps the whole event");
    }
    for fact in [json!({"event": "text_delta"}), json!({"type": 7}), json!({"type": ""})] {
        assert_eq!(DryRun::new(&SOURCE).adapt(object(fact), &given()), Err(FactError::NoType { member: TYPE }));
    }
}

#[test]
fn an_audience_on_an_event_without_one_can_only_narrow_it() {
    let of = |fact: Value, audience: Value| last([start(), seen_by(audience, fact)]).audience;
    for said in [json!("internal"), json!("admin"), json!(7)] {
        assert_eq!(of(text("a"), said), Audience::Internal);
    }
    assert_eq!(of(text("a"), json!("dashboard")), Audience::Dashboard);
    assert_eq!(of(text("a"), Value::Null), Audience::User);
    assert_eq!(of(thought("a"), json!("user")), Audience::Dashboard);
    assert_eq!(of(event("context_meta", json!({})), json!("user")), Audience::Internal);
    assert_eq!(last([seen_by("admin", text("a"))]).extra["sourceAudience"], "admin");
}

#[test]
fn an_absent_url_is_not_reported_as_withheld() {
    let mut fact = credential();
    fact.as_object_mut().unwrap().shift_remove("authUrl");
    assert_eq!(last([fact]).payload.to_value().get("hasWithheldAddress"), None);
}

#[test]
fn an_action_id_is_built_from_a_name_of_any_length() {
    let long = "x".repeat(1000);
    let mut fact = credential();
    fact["credentialKey"] = long.as_str().into();
    let action = |fact: Value| last([fact]).ids.action.unwrap().as_str().to_owned();
    assert_eq!((action(credential()).as_str(), action(fact).len()), ("cred:linear:LINEAR_TOKEN", 5 + 64));
}

#[test]
fn memory_is_bounded_with_many_open_items() {
    let mut run = DryRun::new(&SOURCE);
    let mut take = |fact: Value| drop(run.adapt(object(fact), &given()).unwrap());
    take(start());
    for n in 0..CALLS_OPEN_MAX + RESULTS_MAX {
        take(call(&format!("c{n}"), &"x".repeat(1000)));
        take(ended(&format!("r{n}"), "y", &n.to_string()));
        take(event("clarify.request", json!({"requestId": format!("q{n}")})));
        take(event("halt", json!({"rule": "r".repeat(1000)})));
    }
    for n in 0..=CONCURRENT_TURNS_MAX {
        take(start_of(&format!("{n}{}", "t".repeat(1000))));
    }
    let expected = [CALLS_OPEN_MAX, RESULTS_MAX, PENDING_MAX, CONCURRENT_TURNS_MAX];
    assert_eq!(lengths(&run, ["calls", "results", "pending", "rivals"]), expected);
    let state = run.adapter.describe();
    for name in [&state["calls"][0]["name"], &state["rivals"][0], &state["halted"]] {
        assert_eq!(name.as_str().map(str::len), Some(NAME_CHARS_MAX));
    }
}

//! Tests of state, activities and sub-agents.

use super::*;

// ── state and activities ──

#[test]
fn state_is_for_users_unless_it_holds_runtime_internals() {
    let snapshot = |state: Value| event("STATE_SNAPSHOT", json!({"snapshot": state}));
    let delta = || event("STATE_DELTA", json!({"delta": [{"op": "add", "path": "/x", "value": 1}]}));
    let internals = json!({"revision": 1, "extensions": {"__runtime.run_lifecycle": {}}});
    let drafts = adapt([delta(), snapshot(internals), delta(), snapshot(json!({"x": 0})), delta()]);
    let audiences: Vec<_> = drafts.iter().map(|d| d.audience).collect();
    use Audience::{Internal, User};
    assert_eq!(audiences, [User, Internal, Internal, User, User]);
    assert_eq!(drafts[1].surface, Surface::Diagnostics);
    assert_eq!(payload(&drafts[0]), json!({"patch": [{"op": "add", "path": "/x", "value": 1}]}));
    for operation in [
        json!({"op": "add", "path": "/extensions/__runtime.x", "value": 1}),
        json!({"op": "copy", "from": "/extensions/__runtime.x", "path": "/y"}),
        json!({"op": "replace", "path": "", "value": {"extensions": {"__runtime.x": 1}}}),
        json!({"op": "add", "path": "/extensions", "value": {"__runtime.x": 1}}),
    ] {
        let drafts = adapt([event("STATE_DELTA", json!({"delta": operation})), delta()]);
        assert!(drafts.iter().all(|d| d.audience == Internal), "{operation}");
        assert_eq!(drafts[0].payload.to_value()["patch"], json!([operation]), "a bare operation is wrapped");
    }
}

#[test]
fn activities_keep_their_id_and_type() {
    let snapshot = |members: Value| {
        let mut activity = json!({"messageId": "a", "activityType": "plan", "content": {"n": 1}});
        activity.as_object_mut().unwrap().extend(object(members));
        last([event("ACTIVITY_SNAPSHOT", activity)])
    };
    let draft = snapshot(json!({}));
    assert_eq!(payload(&draft), json!({"activityType": "plan", "content": {"n": 1}}), "the default of replace is true");
    assert_eq!((draft.event_type.clone(), message_of(&draft), draft.audience), (EventType::StateSnapshot, "a", Audience::User));
    assert_eq!((draft.phase.clone(), draft.surface.clone()), (Phase::Acting, Surface::InlineProcess));
    assert_eq!(snapshot(json!({"replace": false})).payload.to_value()["replace"], false);
    assert_eq!(snapshot(json!({"replace": null})).payload.to_value().get("replace"), None);
    let operation = json!({"op": "add", "path": "/line", "value": "x"});
    for (patch, expected) in [(operation.clone(), json!([operation])), (json!([]), json!([])), (Value::Null, json!([null]))] {
        let draft = last([event("ACTIVITY_DELTA", json!({"messageId": "a", "activityType": "plan", "patch": patch}))]);
        assert_eq!(
            (draft.event_type.clone(), payload(&draft)),
            (EventType::StateDelta, json!({"activityType": "plan", "patch": expected}))
        );
    }
    let [begin, ..] = call("a");
    let of_call = last([begin, event("ACTIVITY_SNAPSHOT", json!({"messageId": "a", "activityType": "log", "content": {}}))]);
    assert_eq!(of_call.ids.tool_call.unwrap().as_str(), "a", "Awaken puts the call in the message's place");
}

#[test]
fn awaken_s_tool_output_activity_is_tool_output() {
    let output =
        |patch: Value| event("ACTIVITY_DELTA", json!({"messageId": "c", "activityType": "tool-stream-output", "patch": patch}));
    let [begin, ..] = call("c");
    let draft = last([begin, output(json!([{"op": "add", "path": "/delta", "value": "line\n"}]))]);
    assert_eq!(
        (draft.event_type.clone(), payload(&draft), draft.audience),
        (EventType::ToolOutputDelta, json!({"text": "line\n"}), Audience::User)
    );
    assert_eq!(draft.ids.tool_call.unwrap().as_str(), "c");
    let odd = last([output(json!([{"op": "add", "path": "/other", "value": "x"}]))]);
    assert_eq!(odd.event_type, EventType::StateDelta);
}

#[test]
fn a_progress_report_belongs_to_its_call() {
    let content = json!({"schema": "tool-call-progress.v1", "call_id": "c", "tool_name": "rm", "status": "running", "progress": 0.5, "run_id": "r"});
    let draft = last([start("r"), progress("c", content.clone())]);
    let expected = json!({"toolName": "rm", "schema": "tool-call-progress.v1", "call_id": "c", "status": "running", "progress": 0.5, "run_id": "r"});
    assert_eq!((draft.event_type.clone(), payload(&draft), draft.refs), (EventType::ToolProgress, expected, None));
    assert_eq!((draft.audience, draft.ids.tool_call.unwrap().as_str()), (Audience::User, "c"));
    let patch = event("ACTIVITY_DELTA", json!({"messageId": "progress:c", "activityType": "tool-call-progress", "patch": []}));
    let patched = last([progress("progress:c", content.clone()), patch]);
    assert_eq!((patched.event_type, patched.ids.tool_call.unwrap().as_str()), (EventType::StateDelta, "c"));
    let mut kept = progress("c", content);
    kept["replace"] = false.into();
    let kept = last([kept]);
    assert_eq!((kept.event_type, &kept.payload.to_value()["replace"]), (EventType::StateSnapshot, &json!(false)));
}

#[test]
fn custom_events_are_for_operators() {
    let draft = last([event("CUSTOM", json!({"name": "PredictState", "value": [1]}))]);
    assert_eq!(
        (payload(&draft), draft.audience),
        (json!({"kind": "custom", "name": "PredictState", "value": [1]}), Audience::Dashboard)
    );
    let raw = last([event("RAW", json!({"event": {"x": 1}, "source": "lang"}))]);
    assert_eq!((payload(&raw), raw.audience), (json!({"kind": "raw", "event": {"x": 1}, "source": "lang"}), Audience::Internal));
}

// ── sub-agents ──

#[test]
fn a_sub_agent_is_spawned_and_completes() {
    let begin = event(
        "SUBAGENT_STARTED",
        json!({"subagentRunId": "kid", "name": "researcher", "description": "digs", "parentToolCallId": "c", "parentSubagentRunId": "mid"}),
    );
    let drafts = adapt([begin, event("SUBAGENT_FINISHED", json!({"subagentRunId": "kid", "result": {"n": 1}}))]);
    assert_eq!(classes(&drafts), ["agent.spawned acting", "agent.completed completed"]);
    assert!(drafts.iter().all(|d| agent_of(d) == "kid"));
    let expected = json!({"runtimeEntity": "subagent_turn", "status": "running", "runtimeStatus": "running", "agentName": "researcher", "description": "digs"});
    assert_eq!(payload(&drafts[0]), expected);
    assert_eq!(drafts[0].refs, Some(json!({"parentAgentId": "mid", "parentToolCallId": "c"})));
    assert_eq!(
        (&drafts[1].payload.to_value()["status"], &drafts[1].payload.to_value()["result"]),
        (&json!("completed"), &json!({"n": 1}))
    );
    let suspended =
        event("SUBAGENT_FINISHED", json!({"subagentRunId": "kid", "outcome": {"type": "suspended", "interruptIds": ["i"]}}));
    let draft = last([suspended]);
    assert_eq!(
        (draft.event_type.clone(), draft.phase.clone(), &draft.payload.to_value()["interruptIds"]),
        (EventType::AgentChanged, Phase::Waiting, &json!(["i"]))
    );
    let failed = last([event("SUBAGENT_ERROR", json!({"subagentRunId": "kid", "message": "no", "code": "E"}))]);
    assert_eq!((failed.event_type.clone(), failed.phase.clone()), (EventType::AgentCompleted, Phase::Failed));
    assert_eq!(failed.payload.to_value()["error"], json!({"code": "E", "message": "no"}));
}

#[test]
fn events_after_a_sub_agent_s_start_belong_to_it_without_naming_it() {
    let [begin, args, end] = call("c");
    let drafts = adapt([
        of("kid", message("START", "m")),
        content("m", "a"),
        message("START", "own"),
        content("own", "b"),
        message("END", "m"),
        of("kid", begin),
        args,
        end,
        result("c"),
        of("kid", event("STEP_STARTED", json!({"stepName": "s"}))),
        of("kid", chunk(json!({"messageId": "n", "delta": "c"}))),
        finish("r"),
    ]);
    let agents: Vec<_> = drafts.iter().map(agent_of).collect();
    let expected = ["kid", "kid", "-", "-", "kid", "kid", "kid", "kid", "kid", "kid", "kid", "kid", "-", "-"];
    assert_eq!(agents, expected);
    assert!([0, 1, 4, 10, 11].iter().all(|at| drafts[*at].surface == Surface::TeammateTranscript));
    assert_eq!(drafts[2].surface, Surface::Conversation);
}

#[test]
fn the_same_message_id_of_two_agents_is_two_messages() {
    let drafts = adapt([
        message("START", "m"),
        of("kid", message("START", "m")),
        of("kid", content("m", "a")),
        of("kid", message("END", "m")),
        content("m", "b"),
    ]);
    let agents: Vec<_> = drafts.iter().map(agent_of).collect();
    assert_eq!(agents, ["-", "kid", "kid", "kid", "-"]);
    assert!(drafts.iter().all(|d| d.ids.part.as_ref().unwrap().as_str() == "text"));
}

#[test]
fn a_sub_agent_s_state_is_not_the_run_s() {
    let internals = event("STATE_SNAPSHOT", json!({"snapshot": {"extensions": {"__runtime.x": 1}}}));
    let delta = || event("STATE_DELTA", json!({"delta": []}));
    let drafts = adapt([of("kid", internals), delta(), of("kid", delta())]);
    let audiences: Vec<_> = drafts.iter().map(|d| d.audience).collect();
    assert_eq!(audiences, [Audience::Internal, Audience::User, Audience::Internal]);
    assert_eq!((&drafts[2].payload.to_value()["activityType"], message_of(&drafts[2])), (&json!("subagent-state"), "kid"));
    assert_eq!(drafts[1].payload.to_value().get("activityType"), None);
}

#[test]
fn a_failed_run_ends_its_sub_agents_and_a_pause_does_not() {
    let begin = |id: &str| event("SUBAGENT_STARTED", json!({"subagentRunId": id, "name": id}));
    let drafts = adapt([
        start("r"),
        begin("a"),
        begin("b"),
        event("SUBAGENT_FINISHED", json!({"subagentRunId": "a"})),
        event("RUN_ERROR", json!({"message": "x"})),
    ]);
    assert_eq!(classes(&drafts)[4..], ["agent.completed interrupted", "run.failed failed"]);
    assert_eq!(agent_of(&drafts[4]), "b");
    let drafts = adapt([begin("a"), finish_as("r", json!({"type": "cancelled"}))]);
    assert_eq!(classes(&drafts)[1..], ["agent.completed cancelled", "run.finished cancelled"]);
    assert_eq!(classes(&adapt([begin("a"), finish_as("r", json!("interrupt"))]))[1..], ["run.status waiting"]);
}

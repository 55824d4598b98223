//! Tests of the native source.

use super::SOURCE;
use super::event::{parse, parse_text};
use super::map::SPEAKERS_MAX;
use crate::members::RESERVED;
use crate::samples::{self, given, lengths, message_of, object, part_of};
use crate::{DryRun, FactError};
use proscenium_model::{Audience, Control, Draft, EventType, Ids, Owner, Phase, Topology};
use serde_json::{Map, Value, json};

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

fn one(fact: Value) -> Draft {
    adapt([fact]).remove(0)
}

fn refusal(fact: Value) -> FactError {
    DryRun::new(&SOURCE).adapt(object(fact), &given()).unwrap_err()
}

/// Returns `message/part` of each draft, `-` for a missing id.
fn names(facts: impl IntoIterator<Item = Value>) -> Vec<String> {
    let name = |d: &Draft| format!("{}/{}", message_of(d), part_of(d)).replace("agentui-", "");
    adapt(facts).iter().map(name).collect()
}

#[test]
fn the_text_of_a_fact_gives_what_its_map_gives() {
    for text in [
        r#"{"type":"text.delta","messageId":"m","payload":{"text":"a\n\u00e9"},"vendor":[1,{"x":null}]}"#,
        r#"{"payload":"bare","runId":"other","type":"run.status","sequence":3,"refs":{"a":1},"timestamp":"yesterday"}"#,
        r#"{"type":"text.final","role":"user","origin":"worker","text":"done","payload":null}"#,
        r#"{"type":"run.status","payload":5}"#,
        r#"{"type":"tool.result","payload":{"durationMs":12345678901234567890123,"toolName":5,"output":1e99,"output":[1]}}"#,
        r#"{"payload":{"text":"x","b":1},"type":"text.delta"}"#,
        r#"{"type":"action.required","scope":{"x":1},"phase":"waiting","actionId":"a"}"#,
        r#"{"type":"text.delta","messageId":7,"partId":null,"taskId":""}"#,
        r#"{"type":"text.delta","messageId":"","partId":"\n"}"#,
        r#"{"type":"text.delta","messageId":"","messageId":"m"}"#,
        r#"{"type":"text.delta","messageId":"m","messageId":""}"#,
        r#"{"type":"text.delta","messageId":"m","messageId":7,"type":"text.final","payload":1,"payload":{}}"#,
        r#"{"type":"text.delta","messageId":7,"messageId":"m","x":1,"y":2,"x":3}"#,
        r#"{"t\u0079pe":"text.delta","type":""}"#,
        r#"{"type":7}"#,
        "{}",
    ] {
        let map = || parse(serde_json::from_str(text).unwrap());
        assert_eq!(parse_text(text.as_bytes()).unwrap_or_else(map), map(), "{text}");
    }
    for text in ["", "7", "[]", "{", r#"{"type":"text.delta"} x"#] {
        assert!(parse_text(text.as_bytes()).is_none(), "{text}");
    }
}

#[test]
fn hidden_facts_do_not_change_generated_ids_of_visible_drafts() {
    let ids = |facts: Vec<Value>| -> Vec<Ids> {
        adapt(facts).into_iter().filter(|draft| draft.audience == Audience::User).map(|draft| draft.ids).collect()
    };
    let seen = || vec![json!({"type": "text.delta", "text": "a"}), json!({"type": "text.delta", "text": "b"})];
    let mut between = seen();
    between.insert(1, json!({"type": "tool.started", "toolCallId": "t", "audience": "internal"}));
    between.insert(1, json!({"type": "text.delta", "text": "hidden", "audience": "dashboard"}));
    between.insert(0, json!({"type": "reasoning.delta", "text": "hidden", "audience": "internal"}));
    assert_eq!(ids(between), ids(seen()));
}

#[test]
fn each_member_maps_to_its_place() {
    let draft = one(json!({
        "type": "tool.started", "sequence": 7, "timestamp": "2026-01-02T03:04:05.5+02:00", "toolCallId": "c",
        "owner": "model", "scope": "tool_call", "phase": "preparing", "surface": "custom", "persistence": "ui_local",
        "control": "stop", "topology": "review_team", "audience": "dashboard", "payload": {"toolName": "x", "new": 1},
        "refs": [{"rel": "docs", "href": "/d"}], "rawEventRef": "raw/1", "flavour": {"sweet": true},
    }));
    assert_eq!(draft.source_sequence, Some(7));
    assert_eq!(draft.timestamp.as_deref(), Some("2026-01-02T01:04:05.5Z"));
    assert_eq!(draft.ids.tool_call.as_ref().unwrap().as_str(), "c");
    assert_eq!((draft.owner, draft.phase.as_str()), (Owner::Model, "preparing"));
    assert_eq!((draft.control, draft.topology), (Some(Control::Stop), Some(Topology::ReviewTeam)));
    assert_eq!(draft.audience, Audience::Dashboard);
    assert_eq!(draft.payload.to_value(), json!({"toolName": "x", "new": 1}));
    assert_eq!(draft.refs, Some(json!([{"rel": "docs", "href": "/d"}])));
    assert_eq!(draft.raw_event_ref, Some(json!("raw/1")));
    assert_eq!(Value::Object(draft.extra), json!({"flavour": {"sweet": true}}));
}

#[test]
fn times_become_utc_and_invalid_times_are_carried() {
    let time = |value: Value| {
        let draft = one(json!({"type": "run.started", "timestamp": value}));
        (draft.timestamp.map(String::from), draft.extra.get("sourceTimestamp").cloned())
    };
    assert_eq!(time(json!(1_767_225_600_000_i64)), (Some("2026-01-01T00:00:00Z".into()), None));
    assert_eq!(time(json!(1_767_225_600_000.25)), (Some("2026-01-01T00:00:00.00025Z".into()), None));
    assert_eq!(time(json!("2026-01-01T01:00:00+01:00")), (Some("2026-01-01T00:00:00Z".into()), None));
    for bad in [json!("yesterday"), json!("2026-01-01"), json!(1e300), json!(i64::MAX), json!([1])] {
        assert_eq!(time(bad.clone()), (None, Some(bad)));
    }
    assert_eq!(time(Value::Null), (None, None));
}

#[test]
fn an_unknown_audience_is_internal_and_an_absent_one_is_the_event_type_s() {
    for unknown in [json!("public"), json!("User"), json!(7), json!(["user"]), Value::Null] {
        let draft = one(json!({"type": "text.delta", "text": "x", "audience": unknown}));
        assert_eq!(draft.audience, Audience::Internal);
        assert_eq!(draft.extra["sourceAudience"], unknown);
    }
    assert_eq!(one(json!({"type": "text.delta"})).audience, Audience::User);
    assert_eq!(one(json!({"type": "tool.progress"})).audience, Audience::Internal);
    assert_eq!(one(json!({"type": "tool.progress", "audience": "user"})).audience, Audience::User);
}

#[test]
fn stamped_members_cannot_be_forged_and_survive_export_and_import() {
    let exported = json!({
        "type": "run.status", "eventId": "e", "sequence": 12, "sourceSequence": 3, "receivedAt": "2026-01-01T00:00:00Z",
        "startAudience": "user", "audience": "internal",
    });
    let draft = one(exported.clone());
    assert_eq!(draft.source_sequence, Some(3));
    assert_eq!(draft.start_audience, None);
    let carried = json!({
        "sourceLogSequence": 12, "sourceEventId": "e", "sourceReceivedAt": "2026-01-01T00:00:00Z",
        "sourceStartAudience": "user",
    });
    assert_eq!(Value::Object(draft.extra), carried);
    let mut again = object(exported);
    again.insert("eventId".into(), "f".into());
    again.insert("sourceEventId".into(), "e".into());
    assert_eq!(one(Value::Object(again)).extra["sourceEventId"], "e");
}

#[test]
fn no_carried_member_takes_an_envelope_member_s_name() {
    let mut fact = Map::from_iter([("type".to_owned(), json!("text.delta"))]);
    for member in RESERVED.iter().chain(Ids::MEMBERS).filter(|m| **m != "type") {
        fact.insert((*member).to_owned(), json!({"odd": 1}));
    }
    let draft = one(Value::Object(fact));
    for member in RESERVED.iter().chain(Ids::MEMBERS) {
        assert!(!draft.extra.contains_key(*member), "{member}");
    }
    assert_eq!(draft.extra["sourceToolCallId"], json!({"odd": 1}));
    assert_eq!(draft.extra["sourceOwner"], json!({"odd": 1}));
    assert_eq!(draft.extra["sourceSourceSequence"], json!({"odd": 1}));
}

#[test]
fn a_fact_without_a_type_or_with_a_bad_id_is_rejected_by_member() {
    for no_type in [json!({}), json!({"type": 7}), json!({"type": ""})] {
        assert_eq!(refusal(no_type), FactError::NoType { member: "type" });
    }
    let error = refusal(json!({"type": "text.delta", "messageId": "a\nb"}));
    assert_eq!(error.member(), Some("messageId"));
    let kept = one(json!({"type": "text.delta", "payload": {"messageId": "a\nb", "text": "x"}}));
    assert_eq!(kept.payload.to_value()["messageId"], "a\nb");
}

#[test]
fn payload_ids_are_read_and_stay_in_the_payload() {
    let draft = one(json!({"type": "tool.result", "toolCallId": "top", "payload": {"toolCallId": "low", "taskId": "t"}}));
    assert_eq!(draft.ids.tool_call.unwrap().as_str(), "top");
    assert_eq!(draft.ids.task.unwrap().as_str(), "t");
    assert_eq!(draft.payload.to_value(), json!({"toolCallId": "low", "taskId": "t"}));
}

#[test]
fn the_run_is_the_run_of_the_request() {
    let own = one(json!({"type": "run.started", "runId": "native", "refs": {"docs": "/d"}}));
    assert_eq!(own.ids.run.unwrap().as_str(), "run");
    assert_eq!(own.refs, Some(json!({"docs": "/d", "runId": "native"})));
    assert_eq!(one(json!({"type": "run.started", "runId": "run"})).refs, None);
}

#[test]
fn top_level_payload_members_move_and_a_bare_payload_is_wrapped() {
    let draft = one(json!({"type": "tool.started", "toolName": "x", "input": {}, "vendor": 1}));
    assert_eq!(draft.payload.to_value(), json!({"toolName": "x", "input": {}}));
    assert_eq!(Value::Object(draft.extra), json!({"vendor": 1}));
    let both = one(json!({"type": "text.delta", "text": "top", "payload": {"text": "low"}}));
    assert_eq!((&both.payload.to_value()["text"], &both.extra["text"]), (&json!("low"), &json!("top")));
    assert_eq!(one(json!({"type": "run.status", "payload": "busy"})).payload.to_value()["value"], "busy");
}

#[test]
fn an_explicit_payload_status_sets_the_phase_unless_the_fact_has_one() {
    let phase = |fact: Value| one(fact).phase;
    assert_eq!(phase(json!({"type": "run.finished", "payload": {"status": "cancelled"}})), Phase::Cancelled);
    assert_eq!(phase(json!({"type": "run.finished", "status": "interrupted"})), Phase::Interrupted);
    assert_eq!(phase(json!({"type": "run.finished", "payload": {"status": "fine"}})), Phase::Completed);
    assert_eq!(phase(json!({"type": "run.status", "payload": {"status": "waiting"}})), Phase::Waiting);
    assert_eq!(phase(json!({"type": "run.status", "payload": {"status": "odd"}})), Phase::Acting);
    assert_eq!(phase(json!({"type": "agent.completed", "payload": {"status": "failed"}})), Phase::Failed);
    assert_eq!(phase(json!({"type": "tool.failed", "payload": {"error": {"code": "cancelled"}}})), Phase::Cancelled);
    assert_eq!(phase(json!({"type": "run.finished", "phase": "completed", "status": "cancelled"})), Phase::Completed);
}

fn said(class: &str) -> Value {
    json!({"type": class, "text": "x"})
}

#[test]
fn a_message_continues_until_its_final_and_a_part_until_a_tool_or_channel_change() {
    let facts = [
        said("reasoning.delta"),
        said("text.delta"),
        said("text.delta"),
        json!({"type": "tool.started", "toolCallId": "c"}),
        said("text.delta"),
        said("reasoning.summary"),
        said("text.final"),
        said("text.delta"),
        json!({"type": "run.started"}),
        said("text.delta"),
        said("text.final"),
        said("text.final"),
    ];
    let expected = [
        "message-1/part-1",
        "message-1/part-2",
        "message-1/part-2",
        "-/-",
        "message-1/part-3",
        "message-1/part-1",
        "message-1/-",
        "message-2/part-4",
        "-/-",
        "message-3/part-5",
        "message-3/-",
        "message-4/-",
    ];
    assert_eq!(names(facts), expected);
}

#[test]
fn each_agent_and_role_has_its_own_message() {
    let by = |agent: &str, role: &str| json!({"type": "text.delta", "text": "x", "agentId": agent, "role": role});
    let facts = [by("a", "assistant"), by("b", "assistant"), by("a", "user"), by("a", "assistant"), by("b", "assistant")];
    let expected = ["message-1/part-1", "message-2/part-2", "message-3/part-3", "message-1/part-1", "message-2/part-2"];
    assert_eq!(names(facts), expected);
}

#[test]
fn a_producer_s_own_ids_are_kept_and_continued() {
    let facts = [
        json!({"type": "text.delta", "messageId": "m", "partId": "p", "text": "x"}),
        said("text.delta"),
        json!({"type": "text.final", "messageId": "other"}),
        said("text.delta"),
        json!({"type": "text.final", "messageId": "m"}),
        said("text.delta"),
    ];
    assert_eq!(names(facts), ["m/p", "m/p", "other/-", "m/p", "m/-", "message-1/part-1"]);
}

#[test]
fn ids_generated_before_an_export_are_not_generated_again() {
    let facts = [
        json!({"type": "text.final", "messageId": "agentui-message-4", "text": "x"}),
        json!({"type": "reasoning.delta", "messageId": "m", "partId": "agentui-part-9", "text": "x"}),
        json!({"type": "run.started"}),
        said("text.delta"),
    ];
    assert_eq!(names(facts)[3], "message-5/part-10");
}

#[test]
fn memory_is_bounded_and_evicts_the_longest_silent_speaker() {
    let by = |agent: usize| json!({"type": "text.delta", "text": "x", "agentId": format!("a{agent}"), "role": "r".repeat(9999)});
    let mut run = DryRun::new(&SOURCE);
    for agent in 0..SPEAKERS_MAX + 5 {
        run.adapt(object(by(agent)), &given()).unwrap();
    }
    assert_eq!(lengths(&run, ["speakers"]), [SPEAKERS_MAX]);
    assert_eq!(run.adapter.describe()["speakers"][0]["agent"], "a5");
    assert!(run.save().len() < SPEAKERS_MAX * 256);
}

#[test]
fn a_worker_s_message_in_the_user_role_is_a_notification() {
    for mark in ["isWorkerNotification", "origin", "source"] {
        let value = if mark == "isWorkerNotification" { json!(true) } else { json!("subagent") };
        let draft =
            one(json!({"type": "text.final", "messageId": "m", "payload": {"role": "user", "text": "done", mark: value}}));
        assert_eq!(draft.event_type, EventType::WorkerNotification);
        assert_eq!(draft.surface.as_str(), "worker_notifications");
        assert_eq!(
            (&draft.payload.to_value()["summary"], &draft.payload.to_value()["workerNotificationId"]),
            (&json!("done"), &json!("m"))
        );
    }
    let user = one(json!({"type": "text.final", "payload": {"role": "user", "text": "I am a worker"}}));
    assert_eq!(user.event_type, EventType::TextFinal);
    let native = one(json!({"type": "worker.notification", "messageId": "m", "summary": "done"}));
    assert_eq!(native.payload.to_value().get("workerNotificationId"), None, "the sequence identifies the notification");
    let window = one(json!({"type": "messages.snapshot", "messages": [
        {"messageId": "m", "role": "user", "origin": "worker", "parts": [{"partId": "p", "kind": "user_text", "text": ["x"]}]},
    ]}));
    assert_eq!(window.payload.to_value()["messages"][0]["role"], "notification");
    assert_eq!(window.payload.to_value()["messages"][0]["parts"][0]["kind"], "worker_notification");
}

#[test]
fn an_unknown_event_type_is_carried_and_internal() {
    let draft = one(json!({"type": "weather.changed", "payload": {"sky": "clear"}}));
    assert_eq!((draft.event_type.as_str(), draft.audience), ("weather.changed", Audience::Internal));
    assert_eq!(draft.payload.to_value()["sky"], "clear");
}

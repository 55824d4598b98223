//! Tests of the audience rule for subjects that start, change and end, and of the run's status.

use super::subject::SUBJECT_KEY_BYTES_MAX;
use super::*;
use proscenium_model::{ActionId, AgentId, MessageId, PartId, Phase, RunId, Sequence, SessionId, Visibility};
use std::borrow::Cow;

fn tool(class: EventType, id: &str) -> Draft {
    Draft::new(class).with_call(ToolCallId::new(id).unwrap())
}

fn text(class: EventType, message: &str, part: Option<&str>) -> Draft {
    let part = part.map(|p| PartId::new(p).unwrap());
    Draft::new(class).with("text", "x").with_message(MessageId::new(message).unwrap()).with_part(part)
}

fn envelope(draft: Draft) -> Envelope<'static> {
    Envelope { sequence: Sequence(1), event_id: uuid::Uuid::nil(), received_at: "", draft: Cow::Owned(draft) }
}

/// Returns what user, dashboard and internal readers get of each draft, in order.
fn visibilities(ledger: &mut Ledger, drafts: Vec<Draft>) -> Vec<[Visibility; 3]> {
    let record = |mut draft: Draft| {
        ledger.record(&mut draft, 0);
        let envelope = envelope(draft);
        Audience::ALL.map(|reader| reader.visibility(&envelope))
    };
    drafts.into_iter().map(record).collect()
}

use Visibility::{Body, Counted, Hidden, Stub, Trimmed};

#[test]
fn readers_of_a_call_s_start_see_its_end_without_a_withheld_body() {
    let seen = visibilities(
        &mut Ledger::default(),
        vec![tool(EventType::ToolStarted, "c"), tool(EventType::ToolProgress, "c"), tool(EventType::ToolResult, "c")],
    );
    assert_eq!(seen, [[Body, Body, Body], [Hidden, Hidden, Body], [Stub, Stub, Body]]);
}

#[test]
fn a_hidden_call_stays_hidden_despite_wider_later_facts() {
    let start = tool(EventType::ToolStarted, "c").with_audience(Audience::Internal);
    let progress = tool(EventType::ToolProgress, "c").with_audience(Audience::User);
    let stopped = tool(EventType::ToolFailed, "c").with_phase(Phase::Cancelled);
    let seen = visibilities(&mut Ledger::default(), vec![start, progress, tool(EventType::ToolFailed, "c"), stopped]);
    let hidden = [Hidden, Hidden, Body];
    assert_eq!(seen, [hidden, hidden, [Counted, Counted, Body], hidden], "only the failure itself is counted");
}

#[test]
fn a_counted_hidden_failure_reveals_no_detail_of_the_failure() {
    let mut failed = tool(EventType::ToolFailed, "c").with("toolName", "secret").with("error", "secret").with("durationMs", 7);
    (failed.ids.run, failed.ids.session) = (RunId::new("r").ok(), SessionId::new("child").ok());
    failed.ids.agent = AgentId::new("ghost").ok();
    (failed.refs, failed.timestamp, failed.source_sequence) =
        (Some(json!({"x": 1})), Some("2020-01-01T00:00:00Z".into()), Some(4));
    failed.extra.insert("secret".into(), json!(1));
    let counted = serde_json::to_value(proscenium_model::visibility::hidden_failure(&envelope(failed))).unwrap();
    let members: Vec<&String> = counted.as_object().unwrap().keys().collect();
    let expected = [
        "type",
        "eventId",
        "sequence",
        "receivedAt",
        "runId",
        "owner",
        "scope",
        "phase",
        "surface",
        "persistence",
        "audience",
        "payload",
    ];
    assert_eq!(members, expected);
    assert_eq!(counted["payload"], json!({"kind": "hidden_failure", "withheld": true}));
}

#[test]
fn envelopes_before_a_call_s_start_keep_their_own_audience() {
    let of = |class: EventType, audience: Audience| tool(class, "c").with_audience(audience);
    use Audience::{Internal, User};
    use EventType::{ToolArgs, ToolFailed, ToolProgress, ToolResult, ToolStarted};
    let (all, none, edge) = ([Body; 3], [Hidden, Hidden, Body], [Stub, Stub, Body]);
    for (story, expected) in [
        (vec![of(ToolProgress, Internal), of(ToolProgress, User), of(ToolFailed, Internal)], vec![none, all, all]),
        (vec![of(ToolProgress, Internal), of(ToolStarted, User), of(ToolResult, Internal)], vec![none, all, edge]),
        (vec![of(ToolProgress, User), of(ToolResult, Internal)], vec![all, edge]),
        (vec![of(ToolProgress, User), of(ToolStarted, Internal), of(ToolArgs, User)], vec![all, none, none]),
        (vec![of(ToolResult, Internal), of(ToolStarted, User), of(ToolArgs, User)], vec![none, all, all]),
    ] {
        let mut ledger = Ledger::default();
        assert_eq!(visibilities(&mut ledger, story.clone()), expected);
        // The same with a restart between any two drafts.
        let mut ledger = Ledger::default();
        for (draft, expected) in story.into_iter().zip(expected) {
            assert_eq!(visibilities(&mut ledger, vec![draft]), [expected]);
            let saved = ledger.take_changed();
            let all = SubjectKind::ALL.into_iter().flat_map(|kind| {
                ledger.subjects[kind as usize].iter().map(move |(id, state)| (Subject::new(kind, id).to_key(), state.to_byte()))
            });
            let saved: Vec<_> = all.chain(saved).collect();
            ledger = Ledger::restore(ledger.run.clone(), Speakers::default(), saved.iter().map(|(key, byte)| (&**key, *byte)));
        }
    }
}

#[test]
fn a_failure_reaches_readers_of_the_start_or_users_without_a_start() {
    let mut fail = tool(EventType::ToolFailed, "c").with_audience(Audience::Internal);
    let seen = visibilities(&mut Ledger::default(), vec![tool(EventType::ToolStarted, "c"), fail.clone()]);
    assert_eq!(seen[1], [Body, Body, Body]);
    assert_eq!(visibilities(&mut Ledger::default(), vec![fail.clone()]), [[Body, Body, Body]]);
    fail.refs = Some(json!({"parentToolCallId": "p"}));
    assert_eq!(visibilities(&mut Ledger::default(), vec![fail]), [[Counted, Counted, Body]], "nested and marked narrower");
}

#[test]
fn readers_of_a_control_s_target_see_its_progress() {
    let mut ledger = Ledger::default();
    let spy = tool(EventType::ToolStarted, "spy").with_audience(Audience::Internal);
    let asks = |action: &str, audience: Audience| {
        Draft::new(EventType::ActionRequired).with_action(ActionId::new(action).ok()).with_audience(audience)
    };
    let mut mole = Draft::new(EventType::AgentSpawned);
    (mole.ids.agent, mole.audience) = (AgentId::new("mole").ok(), Audience::Dashboard);
    visibilities(&mut ledger, vec![spy, mole, asks("shown", Audience::User), asks("hidden", Audience::Dashboard)]);
    let control = |action: Option<&str>, call: Option<&str>, agent: Option<&str>| {
        let draft = Draft::new(EventType::ControlChanged).with("status", "submitted");
        let draft = draft.with_action(action.and_then(|id| ActionId::new(id).ok()));
        let draft = draft.with_call(call.and_then(|id| ToolCallId::new(id).ok()));
        draft.with_agent(agent.and_then(|id| AgentId::new(id).ok()))
    };
    let seen = visibilities(
        &mut ledger,
        vec![
            control(None, None, None),
            control(Some("shown"), None, Some("unknown")),
            control(Some("shown"), Some("spy"), None),
            control(Some("hidden"), None, None),
            control(None, Some("spy"), None),
            control(Some("shown"), None, Some("mole")),
        ],
    );
    let dashboard = [Hidden, Body, Body];
    let expected = [[Body; 3], [Body; 3], [Trimmed, Trimmed, Body], dashboard, [Hidden, Hidden, Body], dashboard];
    assert_eq!(seen, expected);
}

#[test]
fn events_of_a_hidden_agent_are_hidden() {
    let events = [
        Draft::new(EventType::AgentSpawned).with_audience(Audience::Dashboard),
        text(EventType::TextDelta, "m", Some("p")),
        tool(EventType::ToolStarted, "c"),
        Draft::new(EventType::RunStatus),
    ];
    let events = events.map(|draft| draft.with_agent(AgentId::new("ghost").unwrap()));
    let seen = visibilities(&mut Ledger::default(), events.to_vec());
    assert_eq!(seen, [[Hidden, Body, Body]; 4]);
}

#[test]
fn an_action_on_a_hidden_call_loses_the_call_s_members() {
    let start = tool(EventType::ToolStarted, "c").with_audience(Audience::Internal);
    let ask = tool(EventType::ActionRequired, "c").with("input", json!({"rm": "-rf"})).with_action(ActionId::new("a").unwrap());
    let mut ledger = Ledger::default();
    assert_eq!(visibilities(&mut ledger, vec![start, ask.clone()])[1], [Trimmed, Trimmed, Body]);
    let trimmed = proscenium_model::visibility::without_call(&envelope(ask), Audience::User);
    assert_eq!(trimmed.draft.ids.tool_call, None);
    assert!(!trimmed.draft.payload.contains_key("input"));
}

#[test]
fn starts_and_ends_of_runs_reach_everyone() {
    let seen = [EventType::RunStarted, EventType::RunFinished, EventType::RunFailed].map(|class| {
        let draft = Draft::new(class).with_audience(Audience::Internal);
        visibilities(&mut Ledger::default(), vec![draft])[0]
    });
    assert_eq!(seen, [[Stub, Stub, Body], [Stub, Stub, Body], [Body, Body, Body]]);
}

#[test]
fn a_chunk_after_the_seal_becomes_a_named_diagnostic() {
    let mut ledger = Ledger::default();
    ledger.record(&mut text(EventType::TextDelta, "m", Some("p")), 0);
    ledger.record(&mut text(EventType::TextFinal, "m", None), 1);
    let mut late = text(EventType::TextDelta, "m", Some("p"));
    let violation = ledger.record(&mut late, 2).expect("sealed");
    assert_eq!((violation.index, violation.code), (2, "write_after_seal"));
    assert_eq!(late.event_type, EventType::DiagnosticChanged);
    assert_eq!(late.payload.to_value()["event"]["text"], "x");
    assert!(ledger.record(&mut text(EventType::TextDelta, "m2", Some("p")), 3).is_none(), "another message is open");
}

#[test]
fn a_final_of_one_part_leaves_the_other_parts_open() {
    let mut ledger = Ledger::default();
    ledger.record(&mut text(EventType::TextDelta, "m", Some("p1")), 0);
    ledger.record(&mut text(EventType::TextFinal, "m", Some("p1")), 0);
    assert!(ledger.record(&mut text(EventType::TextDelta, "m", Some("p2")), 0).is_none());
    assert!(ledger.record(&mut text(EventType::TextDelta, "m", Some("p1")), 0).is_some());
}

#[test]
fn the_end_of_a_hidden_message_does_not_end_parts_that_start_later_for_a_reader() {
    let mut hidden = text(EventType::TextDelta, "m", Some("p1")).with_audience(Audience::Dashboard);
    let delta = |part: &str| text(EventType::TextDelta, "m", Some(part));
    let mut ledger = Ledger::default();
    let drafts = vec![hidden.clone(), text(EventType::TextFinal, "m", None), delta("p0"), delta("p0")];
    let two = [Hidden, Body, Body];
    assert_eq!(visibilities(&mut ledger, drafts), [two, two, [Body; 3], [Body; 3]]);
    ledger.record(&mut text(EventType::TextFinal, "m", None), 0);
    assert!(
        ledger.record(&mut delta("p2"), 0).is_some() && ledger.record(&mut hidden, 0).is_some(),
        "the message has now ended for all readers"
    );
}

#[test]
fn a_restarted_call_accepts_output_again() {
    let mut ledger = Ledger::default();
    for class in [EventType::ToolStarted, EventType::ToolFailed] {
        ledger.record(&mut tool(class, "c"), 0);
    }
    assert!(ledger.record(&mut tool(EventType::ToolOutputDelta, "c"), 0).is_some());
    ledger.record(&mut tool(EventType::ToolStarted, "c"), 0);
    assert!(ledger.record(&mut tool(EventType::ToolOutputDelta, "c"), 0).is_none());
}

#[test]
fn output_after_a_hidden_restart_reaches_only_readers_of_the_restart() {
    let of = |class: EventType, audience: Audience| tool(class, "c").with_audience(audience);
    use Audience::{Dashboard, User};
    use EventType::{ToolFailed, ToolOutputDelta, ToolStarted};
    let story = [
        (ToolStarted, User),
        (ToolFailed, User),
        (ToolStarted, Dashboard),
        (ToolOutputDelta, User),
        (ToolFailed, User),
        (ToolStarted, User),
        (ToolOutputDelta, User),
    ];
    let seen = visibilities(&mut Ledger::default(), story.map(|(class, audience)| of(class, audience)).to_vec());
    let (all, two) = ([Body, Body, Body], [Hidden, Body, Body]);
    assert_eq!(seen, [all, all, two, two, [Counted, Body, Body], all, all]);
}

#[test]
fn the_n_th_call_under_an_id_has_an_id_of_its_own_after_any_restart() {
    let mut ledger = Ledger::default();
    for n in 1..=40 {
        for class in [EventType::ToolStarted, EventType::ToolArgs, EventType::ToolResult, EventType::ToolProgress] {
            let mut draft = tool(class, "c");
            ledger.record(&mut draft, 0);
            let expected = if n == 1 { "c".to_owned() } else { format!("c~{n}") };
            assert_eq!(draft.ids.tool_call.as_ref().map(ToolCallId::as_str), Some(&*expected));
            let own = draft.extra.get("sourceToolCallId").map_or("c", |own| own.as_str().unwrap());
            assert_eq!((own, draft.extra.len()), ("c", usize::from(n > 1)));
        }
        let saved: Vec<_> = ledger.subjects[SubjectKind::Tool as usize]
            .iter()
            .map(|(id, state)| (Subject::new(SubjectKind::Tool, id).to_key(), state.to_byte()))
            .collect();
        ledger = Ledger::restore(ledger.run.clone(), Speakers::default(), saved.iter().map(|(key, byte)| (&**key, *byte)));
    }
    assert_eq!(ledger.len(), 40);
}

#[test]
fn a_call_under_the_longest_id_has_a_valid_id_the_second_time() {
    let (mut ledger, long) = (Ledger::default(), "x".repeat(256));
    let ids = [EventType::ToolStarted, EventType::ToolResult, EventType::ToolStarted].map(|class| {
        let mut draft = tool(class, &long);
        ledger.record(&mut draft, 0);
        draft.ids.tool_call.unwrap()
    });
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
}

#[test]
fn a_run_waits_while_an_action_is_pending_and_ends_only_at_its_end_event() {
    let mut ledger = Ledger::default();
    let ask = Draft::new(EventType::ActionRequired).with_action(ActionId::new("a").unwrap());
    let answer = Draft::new(EventType::ActionResolved).with_action(ActionId::new("a").unwrap());
    let mut states = Vec::new();
    for mut draft in [
        Draft::new(EventType::RunStarted),
        Draft::new(EventType::ToolStarted),
        ask,
        answer,
        Draft::new(EventType::RunFinished),
        Draft::new(EventType::TextDelta),
        Draft::new(EventType::RunStarted),
    ] {
        ledger.record(&mut draft, 0);
        states.push((ledger.run.status, ledger.run.attempt));
    }
    use Status::{Accepted, Completed, Running, Waiting};
    let expected = [(Accepted, 1), (Running, 1), (Waiting, 1), (Running, 1), (Completed, 1), (Completed, 1), (Accepted, 2)];
    assert_eq!(states, expected);
}

#[test]
fn a_run_whose_last_request_the_server_closed_waits_until_its_runtime_continues() {
    let action = || ActionId::new("a").unwrap();
    let closed = || Draft::new(EventType::ActionResolved).with_action(action()).with("synthetic", true);
    let by_user = text(EventType::TextFinal, "u", None).with("role", "user");
    for (next, status) in [
        (text(EventType::TextDelta, "m", None), Status::Running),
        (Draft::new(EventType::RunStarted).with("continues", true), Status::Running),
        (Draft::new(EventType::RunFinished), Status::Completed),
    ] {
        let mut ledger = Ledger::default();
        let asks = Draft::new(EventType::ActionRequired).with_action(action());
        let states = [Draft::new(EventType::RunStarted), asks, closed(), by_user.clone(), next].map(|mut draft| {
            ledger.record(&mut draft, 0);
            (ledger.run.status, ledger.run.pending.len())
        });
        use Status::{Accepted, Waiting};
        assert_eq!(states, [(Accepted, 0), (Waiting, 1), (Waiting, 0), (Waiting, 0), (status, 0)]);
    }
}

#[test]
fn a_run_stays_accepted_until_its_agent_works() {
    let mut ledger = Ledger::default();
    let answer = text(EventType::TextDelta, "a", None);
    let by_user = text(EventType::TextFinal, "u", None).with("role", "user");
    let states = [Draft::new(EventType::RunStarted), by_user, answer].map(|mut draft| {
        ledger.record(&mut draft, 0);
        ledger.run.status
    });
    assert_eq!(states, [Status::Accepted, Status::Accepted, Status::Running]);
}

/// A change of an activity of call `c`, or of the state if `activity` is empty.
fn change(activity: &str, member: &str, audience: Audience) -> Draft {
    let class = if member == "patch" { EventType::StateDelta } else { EventType::StateSnapshot };
    let draft = Draft::new(class).with(member, json!([])).with_audience(audience);
    if activity.is_empty() { draft } else { draft.with("activityType", activity).with_call(ToolCallId::new("c").unwrap()) }
}

#[test]
fn a_reader_that_missed_a_change_gets_no_patch_until_a_visible_snapshot() {
    use Audience::{Dashboard, Internal, User};
    for activity in ["", "search", "tool-call-progress"] {
        let of = |member: &str, audience: Audience| change(activity, member, audience);
        let seen = visibilities(
            &mut Ledger::default(),
            vec![
                of("state", User),
                of("patch", User),
                of("patch", Dashboard),
                of("patch", User),
                of("patch", Internal),
                of("patch", User),
                of("state", Dashboard),
                of("patch", User),
                of("state", Internal),
                of("patch", Dashboard),
                of("state", User),
                of("patch", User),
            ],
        );
        let (all, two, one) = ([Body, Body, Body], [Hidden, Body, Body], [Hidden, Hidden, Body]);
        assert_eq!(seen, [all, all, two, two, one, one, two, two, one, one, all, all], "{activity:?}");
    }
}

#[test]
fn a_snapshot_with_replace_false_does_not_change_who_missed_what() {
    let keep = |audience: Audience| change("search", "content", audience).with("replace", false);
    let patch = |audience: Audience| change("search", "patch", audience);
    let mut ledger = Ledger::default();
    let seen = visibilities(&mut ledger, vec![keep(Audience::User), keep(Audience::Internal), patch(Audience::User)]);
    assert_eq!(seen[2], [Body, Body, Body]);
    let seen = visibilities(&mut ledger, vec![patch(Audience::Internal), keep(Audience::User), patch(Audience::User)]);
    assert_eq!(seen[2], [Hidden, Hidden, Body]);
}

#[test]
fn the_missed_audience_survives_a_save_and_old_bytes_are_readable() {
    let mut ledger = Ledger::default();
    visibilities(&mut ledger, vec![change("", "state", Audience::User), change("", "patch", Audience::Internal)]);
    let saved = ledger.take_changed();
    let mut restored = Ledger::restore(RunState::default(), Speakers::default(), saved.iter().map(|(key, byte)| (&**key, *byte)));
    assert_eq!(visibilities(&mut restored, vec![change("", "patch", Audience::User)]), [[Hidden, Hidden, Body]]);
    for start in Audience::ALL {
        for (sealed, narrowest) in [(false, start), (true, Audience::Internal)] {
            let old = start as u8 | u8::from(sealed) << 2 | (narrowest as u8) << 3;
            assert_eq!(
                SubjectState::from_byte(old),
                Some(SubjectState { start, narrowest, sealed, missed: None, unstarted: false })
            );
            for (missed, unstarted) in [(None, true), (Some(Audience::User), false), (Some(Audience::Dashboard), true)] {
                let subject = SubjectState { start, narrowest, sealed, missed, unstarted };
                assert_eq!(SubjectState::from_byte(subject.to_byte()), Some(subject));
            }
        }
    }
}

#[test]
fn a_progress_report_has_its_call_s_audience() {
    let start = tool(EventType::ToolStarted, "c").with_audience(Audience::Internal);
    let mut report = Draft::new(EventType::StateSnapshot).with("activityType", "tool-call-progress");
    report.ids.message = Some(MessageId::new("c").unwrap());
    let named =
        Draft::new(EventType::StateSnapshot).with("activityType", "tool-call-progress").with("content", json!({"call_id": "c"}));
    assert_eq!(visibilities(&mut Ledger::default(), vec![start, report, named])[1..], [[Hidden, Hidden, Body]; 2]);
}

#[test]
fn the_stub_of_a_review_s_end_names_the_review() {
    let mut ledger = Ledger::default();
    for id in [json!("v"), json!(7)] {
        let mut end = Draft::new(EventType::ReviewCompleted).with("reviewId", id.clone()).with("verdict", "secret");
        end.audience = Audience::Internal;
        let seen =
            visibilities(&mut ledger, vec![Draft::new(EventType::ReviewRequested).with("reviewId", id.clone()), end.clone()]);
        assert_eq!(seen[1], [Stub, Stub, Body]);
        let edge = proscenium_model::visibility::stub(&envelope(end)).draft.into_owned().payload;
        assert_eq!(edge.to_value(), json!({"reviewId": id, "withheld": true}));
    }
}

#[test]
fn a_restored_ledger_stamps_like_the_saved_one() {
    let mut ledger = Ledger::default();
    let mut start = tool(EventType::ToolStarted, "c").with_audience(Audience::Dashboard);
    ledger.record(&mut start, 0);
    let saved = ledger.take_changed();
    assert_eq!(saved.len(), 1);
    assert!(ledger.take_changed().is_empty());
    let mut restored = Ledger::restore(ledger.run.clone(), Speakers::default(), saved.iter().map(|(key, byte)| (&**key, *byte)));
    let mut end = tool(EventType::ToolResult, "c");
    restored.record(&mut end, 0);
    assert_eq!(end.start_audience, Some(Audience::Dashboard));
}

#[test]
fn a_long_name_has_a_bounded_key() {
    let mut ledger = Ledger::default();
    let mut draft = tool(EventType::ToolProgress, "c").with("activityType", "x".repeat(100_000));
    ledger.record(&mut draft, 0);
    assert!(ledger.take_changed().iter().all(|(key, _)| key.len() <= SUBJECT_KEY_BYTES_MAX));
}

#[test]
fn a_messages_snapshot_reveals_no_hidden_calls_or_agents() {
    let mut ledger = Ledger::default();
    let mut start = tool(EventType::ToolStarted, "c").with_audience(Audience::Internal);
    ledger.record(&mut start, 0);
    let snapshot = Draft::new(EventType::MessagesSnapshot).with(
        "messages",
        json!([{"messageId": "1", "parts": [{"kind": "tool_call", "toolCallId": "c"}, {"kind": "assistant_text"}]}, {"messageId": "2", "toolCallId": "c"}]),
    );
    let envelope = envelope(snapshot);
    assert_eq!(ledger.messages_for(&envelope, Audience::Internal), None);
    let seen = ledger.messages_for(&envelope, Audience::User).unwrap();
    assert_eq!(seen.draft.payload.to_value()["messages"], json!([{"messageId": "1", "parts": [{"kind": "assistant_text"}]}]));
}

#[test]
fn a_chunk_that_reopens_its_part_is_accepted_and_the_part_stays_sealed_for_others() {
    let mut ledger = Ledger::default();
    ledger.record(&mut text(EventType::TextFinal, "m", Some("p")), 0);
    let mut late = text(EventType::TextDelta, "m", Some("p"));
    late.reopens = true;
    assert!(ledger.record(&mut late, 1).is_none());
    assert!(ledger.record(&mut text(EventType::TextDelta, "m", Some("p")), 2).is_some());
}

#[test]
fn a_message_keeps_the_agent_that_its_producer_named_once() {
    let mut ledger = Ledger::default();
    let mut record = |message: &str, agent: Option<&str>| {
        let mut draft = text(EventType::TextDelta, message, Some("p")).with_agent(agent.and_then(|id| AgentId::new(id).ok()));
        ledger.add_speaker(&mut draft, agent.is_some());
        ledger.record(&mut draft, 0);
        draft.ids.agent.map(|agent| agent.to_string())
    };
    assert_eq!(record("m", Some("a")).as_deref(), Some("a"));
    assert_eq!(record("m", None).as_deref(), Some("a"));
    assert_eq!(record("n", None), None);
    record("n", Some("a"));
    assert_eq!(record("n", None), None, "the message without an agent is another one");
}

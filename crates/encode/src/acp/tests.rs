//! The dialect by itself: frames in, updates out.

use super::*;
use proscenium_model::{Epoch, Sequence};
use proscenium_projection::operations;
use serde_json::json;

fn snapshot(kind: &str, id: &str, opened: u64, content: Value) -> Frame {
    let content = Arc::new(content.as_object().unwrap().clone());
    let (run, kind, id) = (Some("r".into()), kind.into(), id.into());
    Frame::ActivitySnapshot(ActivityView { run, kind, id, opened: Sequence(opened), agent: None, content })
}

fn delta(kind: &str, id: &str, patch: Value) -> Frame {
    let operations = patch.as_array().unwrap().iter().cloned().map(operations::read).collect();
    Frame::ActivityDelta(Delta { run: Some("r".into()), kind: kind.into(), id: id.into(), operations })
}

fn at(position: u64) -> Cursor {
    Cursor::at(Epoch::from_random(7), Sequence(position))
}

/// Translates the frames of one round.
fn round(acp: &mut Acp, frames: Vec<Frame>, cursor: Option<u64>) -> Vec<AcpEvent> {
    let last = frames.len() - 1;
    let decoded = |(n, frame)| DecodedFrame { frame, cursor: cursor.map(at).filter(|_| n == last) };
    acp.translate(&frames.into_iter().enumerate().map(decoded).collect::<Vec<_>>())
}

/// The updates among events, with their positions.
fn updates(events: &[AcpEvent]) -> Vec<(Value, Option<String>)> {
    let update = |event: &AcpEvent| match event {
        AcpEvent::Update(update, position) => Some((update.clone(), position.as_ref().map(ToString::to_string))),
        _ => None,
    };
    events.iter().filter_map(update).collect()
}

fn message(parts: Value) -> Value {
    json!({ "role": "assistant", "status": "streaming", "parts": parts })
}

fn part(id: &str, opened: u64, text: &str) -> Value {
    json!({ "partId": id, "kind": "assistant_text", "opened": opened, "status": "streaming", "text": [text] })
}

fn texts(updates: &[(Value, Option<String>)]) -> Vec<&str> {
    updates.iter().filter_map(|(update, _)| update["content"]["text"].as_str()).collect()
}

#[test]
fn parts_and_calls_come_in_the_order_in_which_they_appeared() {
    let mut acp = Acp::new("s", AcpOptions::default());
    let call = json!({ "tool_name": "read", "status": "done", "state": "output-available", "output": "x" });
    let frames = vec![
        snapshot("run", "r", 1, json!({ "status": "running", "attempt": 1 })),
        snapshot("message", "m", 2, message(json!([part("a", 2, "One"), part("b", 4, "two")]))),
        snapshot("tool-call-progress", "c", 3, call),
        Frame::Hydrated {},
    ];
    let events = round(&mut acp, frames, Some(9));
    let shown = updates(&events);
    let kinds: Vec<_> = shown.iter().map(|(update, _)| update["sessionUpdate"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["agent_message_chunk", "tool_call", "agent_message_chunk"]);
    assert_eq!(texts(&shown), ["One", "two"]);
    assert_eq!(shown[1].0["status"], "completed");
    assert_eq!(shown[2].1.as_deref(), Some(&*at(9).to_string()), "the last update of the round has its cursor");
    assert!(matches!(events[..], [.., AcpEvent::Run(_), AcpEvent::Round]), "{events:?}");
}

#[test]
fn a_client_that_is_cut_off_at_any_update_gets_no_chunk_twice() {
    let whole = |text: &str| snapshot("message", "m", 2, message(json!([part("a", 2, text)])));
    let push = |text: &str| delta("message", "m", json!([{ "op": "add", "path": "/parts/0/text/-", "value": text }]));
    let known = |text: &str| match whole(text) {
        Frame::ActivitySnapshot(activity) => vec![activity],
        _ => unreachable!(),
    };
    let mut live = Acp::new("s", AcpOptions::default());
    round(&mut live, vec![whole("Zug"), Frame::Hydrated {}], Some(1));
    let shown = updates(&round(&mut live, vec![push(" nach"), push(" Köln"), push("!")], Some(2)));
    assert_eq!(texts(&shown), [" nach", " Köln", "!"]);
    for (cut, (_, position)) in shown.iter().enumerate() {
        let position: Position = position.as_ref().unwrap().parse().unwrap();
        let is_complete = position.cursor() == at(2);
        let had = if is_complete { "Zug nach Köln!" } else { "Zug" };
        // The next frames come as deltas, or, to a reader that fell behind, as a snapshot.
        let rest = if is_complete { vec![push(" Bald.")] } else { vec![push(" nach"), push(" Köln!"), push(" Bald.")] };
        for frames in [rest, vec![whole("Zug nach Köln! Bald.")]] {
            let mut resumed = Acp::new("s", AcpOptions::default());
            resumed.resume(vec![known(had)], position.clone());
            let more = updates(&round(&mut resumed, frames, Some(3)));
            let all = texts(&shown)[..=cut].concat() + &texts(&more).concat();
            assert_eq!(all, " nach Köln! Bald.", "cut after update {cut}");
        }
    }
}

#[test]
fn a_call_sends_what_changed_and_takes_back_what_is_gone() {
    let mut acp = Acp::new("s", AcpOptions::default());
    let call = json!({ "tool_name": "x", "title": "Edit", "status": "running", "state": "running", "input": { "a": 1 } });
    let first = updates(&round(&mut acp, vec![snapshot("tool-call-progress", "c", 1, call)], Some(1)));
    let expected = json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Edit", "status": "pending", "rawInput": { "a": 1 },
    });
    assert_eq!(first[0].0, expected);
    let blocks =
        json!([{ "type": "diff", "path": "/a", "oldText": null, "newText": "n" }, { "type": "terminal", "terminalId": "t" }]);
    let patch =
        json!([{ "op": "add", "path": "/blocks", "value": blocks }, { "op": "replace", "path": "/state", "value": "progress" }]);
    let second = updates(&round(&mut acp, vec![delta("tool-call-progress", "c", patch)], Some(2)));
    let expected = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress",
        "content": [{ "type": "diff", "path": "/a", "oldText": null, "newText": "n" }],
    });
    assert_eq!(second[0].0, expected);
    let patch = json!([{ "op": "remove", "path": "/blocks" }]);
    let third = updates(&round(&mut acp, vec![delta("tool-call-progress", "c", patch)], Some(3)));
    assert_eq!(third[0].0, json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [] }));
}

#[test]
fn a_question_is_asked_once_and_settled_by_any_answer() {
    let mut acp = Acp::new("s", AcpOptions { decides: true, ..AcpOptions::default() });
    let options = json!([
        { "optionId": "y", "label": "Yes", "kind": "allow_once", "effect": "allow", "width": "once" },
        { "optionId": "w", "label": "In this turn", "effect": "allow", "width": "turn" },
        { "optionId": "n", "label": "No", "effect": "reject", "width": "unknown" },
    ]);
    let run = snapshot("run", "r", 1, json!({ "status": "waiting", "attempt": 1 }));
    let action = json!({ "kind": "tool_approval", "status": "pending", "title": "Delete?", "options": options });
    let events = round(&mut acp, vec![run, snapshot("action", "a", 2, action), Frame::Hydrated {}], Some(1));
    let [AcpEvent::Ask(question), AcpEvent::Run(run), ..] = &events[..] else { panic!("{events:?}") };
    let Ask::Permission(params) = &question.ask else { panic!("{question:?}") };
    let kinds: Vec<_> = params["options"].as_array().unwrap().iter().map(|option| &option["kind"]).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    assert_eq!(params["toolCall"]["title"], "Delete?");
    assert!(!acp.rests(run), "the client can be asked");
    let key = Key::of(Some("r"), "action", "a");
    let submitted = delta("action", "a", json!([{ "op": "add", "path": "/control", "value": "submitted" }]));
    assert_eq!(round(&mut acp, vec![submitted], None), [AcpEvent::Settled(key.clone())]);
    assert!(!acp.rests(run), "the answer is on its way");
    let back = delta("action", "a", json!([{ "op": "remove", "path": "/control" }]));
    assert!(matches!(round(&mut acp, vec![back], None)[..], [AcpEvent::Ask(_)]), "the answer was not taken");
    let resolved = delta("action", "a", json!([{ "op": "replace", "path": "/status", "value": "resolved" }]));
    assert_eq!(round(&mut acp, vec![resolved], None), [AcpEvent::Settled(key)]);
    assert!(acp.rests(run));
}

#[test]
fn a_client_without_forms_is_asked_no_form() {
    let action = |schema: Value| {
        snapshot(
            "action",
            "a",
            2,
            json!({ "kind": "structured_input", "status": "pending", "message": "Which?", "schema": schema }),
        )
    };
    let form = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
    let mut without = Acp::new("s", AcpOptions { decides: true, ..AcpOptions::default() });
    assert_eq!(round(&mut without, vec![action(form.clone()), Frame::Hydrated {}], None), []);
    let with = AcpOptions { decides: true, form: true, ..AcpOptions::default() };
    for (schema, is_plain) in [(form.clone(), false), (json!({ "type": "string" }), true)] {
        let events = round(&mut Acp::new("s", with), vec![action(schema), Frame::Hydrated {}], None);
        let [AcpEvent::Ask(question), ..] = &events[..] else { panic!("{events:?}") };
        assert_eq!(question.is_plain_answer, is_plain);
        assert_eq!(question.ask.params()["requestedSchema"]["type"], "object");
    }
}

#[test]
fn a_position_is_read_as_it_is_written() {
    let mut position = Position::at(at(3));
    position.advance(u64::MAX, 12);
    position.advance(1, 7);
    assert_eq!(position.to_string().parse::<Position>(), Ok(position));
    for wrong in ["", "x", "1:2~", "1:2~z.1", "1:2~1.-1"] {
        assert!(wrong.parse::<Position>().is_err(), "{wrong}");
    }
}

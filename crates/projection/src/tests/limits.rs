//! The limits of activities and patches.

use super::*;

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
    assert_eq!(said.len(), proscenium_model::TEXT_BYTES_MAX - 1, "a character that does not fit is cut as a whole");
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

#[test]
fn a_text_of_which_the_envelope_has_the_beginning_takes_nothing_back() {
    let link = |bytes: usize| json!([{"rel": "output", "href": "/v1/blobs/b", "bytes": bytes, "member": "/payload/text"}]);
    let last = |part: Value, bytes: usize| {
        let mut members = json!({"messageId": "m", "refs": link(bytes), "payload": {"text": "Hello w…"}});
        members.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        members
    };
    for part in [json!({}), json!({"partId": "p"})] {
        let mut watched = Watched::new();
        watched.fold("text.delta", delta("p", "Hello wor"));
        watched.fold("text.delta", delta("p", "ld"));
        watched.fold("text.final", last(part.clone(), 11));
        let shown = watched.get("message", "m")["parts"][0].clone();
        assert_eq!((watched.texts_of("m"), shown.get("clipped")), (vec!["Hello world".to_owned()], None), "{part}");
        watched.fold("text.final", last(part, 12));
        assert_eq!(watched.get("message", "m")["parts"][0]["clipped"], true);
    }
    let mut watched = Watched::new();
    watched.fold("text.final", last(json!({}), 11));
    let shown = watched.get("message", "m")["parts"][0].clone();
    assert_eq!((watched.texts_of("m"), &shown["clipped"]), (vec!["Hello w".to_owned()], &json!(true)));
    watched.fold("reasoning.summary", last(json!({"partId": "r"}), 11));
    let thought = watched.get("reasoning", "m/r");
    assert_eq!((&thought["text"], &thought["clipped"]), (&json!(["Hello w"]), &json!(true)));
}

#[test]
fn a_new_value_of_a_member_forgets_where_the_old_one_was() {
    let mut watched = Watched::new();
    let moved = |member: &str| json!([{"rel": "output", "href": "/v1/blobs/b", "bytes": 9, "member": member}]);
    watched
        .fold("tool.started", json!({"toolCallId": "c", "payload": {"input": {"a": "x…"}}, "refs": moved("/payload/input/a")}));
    watched.fold("tool.result", json!({"toolCallId": "c", "payload": {"output": "y…"}, "refs": moved("/payload/output")}));
    let call = watched.get("tool-call-progress", "c");
    let bodies: Vec<_> = call["bodies"].as_object().unwrap().keys().cloned().collect();
    assert_eq!((bodies, &call["clipped"]), (vec!["/input/a".to_owned(), "/output".to_owned()], &json!(true)));
    watched.fold("tool.args", json!({"toolCallId": "c", "payload": {"input": {"a": "whole"}}}));
    watched.fold("tool.result", json!({"toolCallId": "c", "payload": {"output": "short"}}));
    let call = watched.get("tool-call-progress", "c");
    assert_eq!((call.get("bodies"), call.get("clipped")), (None, None));
}

#[test]
fn what_is_decided_names_the_bodies_of_its_previews_though_they_read_the_same() {
    let mut watched = Watched::new();
    let link = |id: &str, member: &str| json!({"href": format!("/v1/blobs/{id}"), "bytes": 9, "member": format!("/payload/input/{member}")});
    let input = json!({"file_path": "a.txt", "old_string": "same…", "new_string": "same…"});
    let refs = json!([link("b1", "old_string"), link("b2", "new_string")]);
    watched.fold("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "edit", "input": input}, "refs": refs}));
    watched.fold("action.required", json!({"actionId": "a", "toolCallId": "c", "payload": {"kind": "tool_approval"}}));
    let action = watched.get("action", "a");
    let href = |pointer: &str| action["bodies"][pointer]["href"].clone();
    assert_eq!((href("/parameters/old_string"), href("/parameters/new_string")), (json!("/v1/blobs/b1"), json!("/v1/blobs/b2")));
    assert_eq!(
        (href("/subject/diffs/0/oldText"), href("/subject/diffs/0/newText")),
        (json!("/v1/blobs/b1"), json!("/v1/blobs/b2"))
    );
    assert_eq!((&action["subject"]["diffs"][0]["newText"], &action["title"]), (&json!("same…"), &json!("Edit a.txt?")));
    watched.fold(
        "tool.args",
        json!({"toolCallId": "c", "payload": {"input": {"file_path": "a.txt", "old_string": "a", "new_string": "b"}}}),
    );
    assert_eq!(watched.get("tool-call-progress", "c").get("bodies"), None);
}

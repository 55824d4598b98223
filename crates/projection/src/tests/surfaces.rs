//! Surfaces: the state that A2UI messages lead to.

use super::*;
use crate::surface::{COMPONENTS_MAX, KIND, continued, messages, shown};
use serde_json::Map;

/// A fact with A2UI messages, as AG-UI's activity has them.
fn fact(id: &str, messages: Value) -> Value {
    json!({"messageId": id, "payload": {"activityType": KIND, "content": {"a2ui_operations": messages}}})
}

fn create(surface: &str) -> Value {
    json!({"version": "v0.9", "createSurface": {"surfaceId": surface, "catalogId": "basic", "ofTomorrow": 1}})
}

fn components(surface: &str, components: Value) -> Value {
    json!({"updateComponents": {"surfaceId": surface, "components": components}})
}

fn data(surface: &str, path: &str, value: Value) -> Value {
    json!({"updateDataModel": {"surfaceId": surface, "path": path, "value": value}})
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

/// The last note about a message that was not applied.
fn fault(watched: &Watched) -> String {
    let entries = watched.get("diagnostics", "diagnostics");
    entries["entries"].as_array().and_then(|all| all.last()?["error"].as_str().map(str::to_owned)).unwrap_or_default()
}

#[test]
fn a_surface_is_its_state_and_each_change_is_a_small_patch() {
    let mut watched = Watched::new();
    let root = json!({"id": "root", "component": "Column", "children": ["a/b"]});
    watched.fold("state.snapshot", fact("a2ui-surface-call", json!([create("s"), components("s", json!([root]))])));
    assert_eq!(watched.frames[0], "a2ui-surface call: snapshot");
    let expected = json!({
        "surfaceId": "s", "version": "v0.9", "created": true, "catalogId": "basic", "surface": {"ofTomorrow": 1},
        "components": {"root": root}, "status": "ready",
    });
    assert_eq!(watched.get(KIND, "call"), expected);
    let text = json!({"id": "a/b", "component": "Text", "text": ["x", "y"]});
    watched.fold("state.snapshot", fact("m", json!([components("s", json!([text])), data("s", "/form/name", json!("Ada"))])));
    assert_eq!(watched.get(KIND, "m"), Value::Null, "a later message reaches the surface where it is");
    assert_eq!(watched.frames.len(), 1, "{:?}", watched.frames);
    assert!(watched.frames[0].contains(r#"{"op":"add","path":"/components/a~1b","value""#), "{:?}", watched.frames);
    assert_eq!(watched.get(KIND, "call")["dataModel"], json!({"form": {"name": "Ada"}}));
    let list = |changed: Value| {
        json!([create("s"), components("s", json!([root, changed])), data("s", "/", json!({"form": {"name": "Ada"}}))])
    };
    watched.fold("state.snapshot", fact("a2ui-surface-call", list(text.clone())));
    assert!(watched.frames.is_empty(), "the same list again changes nothing: {:?}", watched.frames);
    let changed = json!({"id": "a/b", "text": "z"});
    watched.fold("state.snapshot", fact("a2ui-surface-call", list(json!({"id": "a/b", "component": "Text", "text": "z"}))));
    let component =
        json!([{"op": "replace", "path": "/components/a~1b", "value": {"id": "a/b", "component": "Text", "text": "z"}}]);
    assert_eq!(watched.frames, [format!("a2ui-surface call: {component}")]);
    watched.fold("state.snapshot", fact("a2ui-surface-call", json!([components("s", json!([changed]))])));
    assert!(watched.frames.is_empty(), "a component without its type keeps it");
    let written = messages(&object(watched.get(KIND, "call")));
    let names: Vec<_> = written.iter().map(|message| message.as_object().unwrap().keys().next_back().unwrap().as_str()).collect();
    assert_eq!(names, ["createSurface", "updateComponents", "updateDataModel"]);
    let before = watched.get(KIND, "call");
    let mut again = Watched::new();
    again.fold("state.snapshot", fact("a2ui-surface-call", written.into()));
    assert_eq!(again.get(KIND, "call"), before, "the messages lead to the state");
}

#[test]
fn the_data_model_changes_as_renderers_change_it() {
    for (path, value, expected) in [
        ("", json!({"b": 1}), json!({"b": 1})),
        ("/", json!({"b": 1}), json!({"b": 1})),
        ("/a/n", json!(2), json!({"a": {"n": 2}, "list": [1, null], "t": "x"})),
        ("list/0", json!(7), json!({"a": {"n": 1}, "list": [7, null], "t": "x"})),
        ("/list/1/deep", json!(7), json!({"a": {"n": 1}, "list": [1, {"deep": 7}], "t": "x"})),
        ("/list/2", json!(7), json!({"a": {"n": 1}, "list": [1, null, 7], "t": "x"})),
        ("/new/0/x~1y", json!(7), json!({"a": {"n": 1}, "list": [1, null], "t": "x", "new": [{"x/y": 7}]})),
        ("/list/9", json!(7), Value::Null),
        ("/list/x", json!(7), Value::Null),
        ("/t/x", json!(7), Value::Null),
        ("/new/3", json!(7), Value::Null),
    ] {
        let mut watched = Watched::new();
        let model = json!({"a": {"n": 1}, "list": [1, null], "t": "x"});
        watched.fold("state.snapshot", fact("m", json!([create("s"), data("s", "", model.clone())])));
        watched.fold("state.snapshot", fact("m", json!([data("s", path, value)])));
        let is_refused = expected.is_null();
        assert_eq!(watched.get(KIND, "m")["dataModel"], if is_refused { model } else { expected }, "{path}");
        assert_eq!(fault(&watched).is_empty(), !is_refused, "{path}: {}", fault(&watched));
    }
    let mut watched = Watched::new();
    watched.fold("state.snapshot", fact("m", json!([create("s"), data("s", "", json!({"a": {"b": 1}, "list": [1, 2]}))])));
    let removal = |path: &str| json!({"updateDataModel": {"surfaceId": "s", "path": path}});
    watched.fold("state.snapshot", fact("m", json!([removal("/a/b"), removal("/a/none"), removal("/list/0")])));
    assert_eq!(watched.get(KIND, "m")["dataModel"], json!({"a": {}, "list": [null, 2]}));
}

#[test]
fn a_message_that_cannot_be_read_or_does_not_fit_takes_nothing_from_the_others() {
    let mut watched = Watched::new();
    let list = json!([create("s"), 7, components("s", json!([{"component": "Text"}, {"id": "a", "component": "Text"}]))]);
    watched.fold("state.snapshot", fact("m", list));
    assert_eq!(watched.get(KIND, "m")["components"], json!({"a": {"id": "a", "component": "Text"}}));
    assert_eq!(fault(&watched), "The message is not an object.");
    let many: Vec<_> = (0..=COMPONENTS_MAX).map(|n| json!({"id": n.to_string(), "component": "Text"})).collect();
    watched.fold("state.snapshot", fact("m", json!([components("s", many.into()), data("s", "/n", json!(1))])));
    assert!(fault(&watched).contains("2000 components"), "{}", fault(&watched));
    assert_eq!(watched.get(KIND, "m")["dataModel"], json!({"n": 1}));
    let huge = "x".repeat(crate::surface::SURFACE_BYTES_MAX);
    watched.fold("state.snapshot", fact("m", json!([data("s", "/text", json!(huge)), data("s", "/n", json!(2))])));
    assert_eq!(watched.get(KIND, "m")["dataModel"], json!({"n": 2}));
    let deep = format!("{}{}", "/a".repeat(200), "/b");
    watched.fold("state.snapshot", fact("m", json!([data("s", &deep, json!(1))])));
    assert!(fault(&watched).contains("deeper"), "{}", fault(&watched));
    assert_eq!(watched.get(KIND, "m")["dataModel"], json!({"n": 2}));
}

#[test]
fn a_patch_appends_messages_and_sets_what_stands_beside_them() {
    let mut watched = Watched::new();
    let building = json!({"messageId": "a2ui-surface-c", "payload": {"activityType": KIND, "content": {"status": "building", "progressTokens": 7}}});
    watched.fold("state.snapshot", building);
    assert_eq!(watched.get(KIND, "c"), json!({"status": "building", "details": {"progressTokens": 7}}));
    let patch =
        |operations: Value| json!({"messageId": "a2ui-surface-c", "payload": {"activityType": KIND, "patch": operations}});
    watched.fold(
        "state.delta",
        patch(json!([{"op": "add", "path": "/a2ui_operations", "value": [create("s")]}, {"op": "remove", "path": "/status"}])),
    );
    let append = |message: Value| patch(json!([{"op": "add", "path": "/a2ui_operations/-", "value": message}]));
    watched.fold("state.delta", append(data("s", "/n", json!(1))));
    let surface = watched.get(KIND, "c");
    assert_eq!((&surface["dataModel"], &surface["status"]), (&json!({"n": 1}), &json!("ready")));
    watched.fold("state.delta", patch(json!([{"op": "replace", "path": "/a2ui_operations/0/createSurface", "value": {}}])));
    assert!(fault(&watched).contains("were applied"), "{}", fault(&watched));
    assert_eq!(watched.get(KIND, "c"), surface);
    let mut with_status = fact("a2ui-surface-c", json!([]));
    with_status["payload"]["content"] = json!({"status": "failed", "error": "no"});
    watched.fold("state.snapshot", with_status);
    assert_eq!(watched.get(KIND, "c"), json!({"surfaceId": "s", "status": "failed", "details": {"error": "no"}}));
}

#[test]
fn a_deleted_surface_says_so_and_may_be_created_again() {
    let mut watched = Watched::new();
    let delete = json!({"version": "v0.9", "deleteSurface": {"surfaceId": "s"}});
    watched.fold("state.snapshot", fact("s", json!([create("s"), data("s", "/n", json!(1)), delete])));
    assert_eq!(watched.get(KIND, "s"), json!({"surfaceId": "s", "version": "v0.9", "status": "deleted"}));
    assert_eq!(messages(&object(watched.get(KIND, "s"))), [delete]);
    watched.fold("state.snapshot", fact("s", json!([data("s", "/n", json!(2))])));
    assert_eq!((watched.status(KIND, "s").as_str(), fault(&watched).as_str()), ("deleted", "The surface was deleted."));
    watched.fold("state.snapshot", fact("s", json!([create("s")])));
    assert_eq!(watched.status(KIND, "s"), "ready");
}

#[test]
fn a_fact_with_several_surfaces_has_one_activity_for_each() {
    let mut watched = Watched::new();
    watched.fold("state.snapshot", fact("a2ui-surface-c", json!([create("a"), create("b"), data("b", "/n", json!(1))])));
    watched.fold("tool.progress", fact("a2ui-surface-c", json!([data("a", "/n", json!(2))])));
    assert_eq!(watched.get(KIND, "c")["dataModel"], json!({"n": 2}));
    assert_eq!(watched.get(KIND, "c/b")["dataModel"], json!({"n": 1}));
    let many: Vec<_> = (0..100).map(|n| create(&n.to_string())).collect();
    watched.fold("state.snapshot", fact("many", many.into()));
    assert!(fault(&watched).contains("64 surfaces"));
}

#[test]
fn what_a_later_run_changes_continues_the_state_of_the_earlier_one() {
    let (mut earlier, mut later) = (Watched::new(), Watched::new());
    let text = |text: &str| json!({"id": "t", "component": "Text", "text": text});
    let model = json!({"a": {"n": 1, "m": 1}, "list": [{"x": 1}, 2]});
    earlier.fold("state.snapshot", fact("s", json!([create("s"), components("s", json!([text("one")])), data("s", "/", model)])));
    later.fold("state.snapshot", fact("s", json!([data("s", "/a/n", json!(2)), data("s", "/list/0/x", json!(2))])));
    let news = json!([components("s", json!([text("two")])), data("s", "/a", json!({"n": 3})), {"updateDataModel": {"surfaceId": "s", "path": "/list/1"}}]);
    later.fold("state.snapshot", fact("s", news));
    let partial = later.get(KIND, "s");
    assert_eq!(
        partial["dataUpdates"],
        json!([{"path": "/list/0/x", "value": 2}, {"path": "/a", "value": {"n": 3}}, {"path": "/list/1"}])
    );
    let whole = continued(&object(earlier.get(KIND, "s")), &object(partial.clone()));
    assert_eq!(whole["dataModel"], json!({"a": {"n": 3}, "list": [{"x": 2}, null]}));
    assert_eq!((&whole["components"]["t"]["text"], &whole["catalogId"]), (&json!("two"), &json!("basic")));
    later.fold("state.snapshot", fact("s", json!([create("s")])));
    let again = later.get(KIND, "s");
    assert_eq!(Value::Object(continued(&object(earlier.get(KIND, "s")), &object(again.clone()))), again, "it was made anew");
}

#[test]
fn a_message_of_another_version_stays_as_it_is() {
    let mut watched = Watched::new();
    let begin = json!({"beginRendering": {"surfaceId": "s", "root": "r"}});
    watched.fold("state.snapshot", fact("s", json!([begin])));
    assert_eq!(shown(&object(watched.get(KIND, "s"))), object(json!({"a2ui_operations": [begin]})));
    for n in 0..40 {
        watched.fold("state.snapshot", fact("s", json!([{"surfaceUpdate": {"surfaceId": "s", "n": n}}])));
    }
    let kept = watched.get(KIND, "s")["messages"].clone();
    assert_eq!((kept.as_array().unwrap().len(), &kept[31]["surfaceUpdate"]["n"]), (32, &json!(39)));
}

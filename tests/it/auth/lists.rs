//! List streams under tokens.

use super::{AuthServer, Ws, admin, bearer, reader};
use crate::harness::{Transport, fact};
use crate::lists::{Entries, apply};
use serde_json::{Value, json};

/// A pending action for this audience.
fn asks(action: &str, audience: &str) -> Value {
    fact("action.required", json!({ "actionId": action, "audience": audience, "payload": { "kind": "tool_approval" } }))
}

fn keys(entries: &Entries) -> Vec<&str> {
    entries.keys().map(|(_, key)| &**key).collect()
}

#[tokio::test]
async fn a_list_stream_has_what_the_token_may_list_and_never_names_anything_else() {
    let guarded = AuthServer::start().await;
    for (run, session) in [("r", "s"), ("q", "t")] {
        let facts = [asks("seen", "user"), asks("operator", "dashboard"), asks("inner", "internal")];
        guarded.publish(run, &format!("sessionId={session}"), &admin(), &facts).await.ok();
    }
    let user = reader(json!({ "sessions": ["s"], "audience": "user" }));
    let dashboard = reader(json!({ "sessions": ["s"], "audience": "dashboard" }));
    let cases = [
        (user, "user", vec!["run/r/seen", "s"]),
        (dashboard, "dashboard", vec!["run/r/operator", "run/r/seen", "s"]),
        (
            admin(),
            "internal",
            vec!["run/q/inner", "run/q/operator", "run/q/seen", "run/r/inner", "run/r/operator", "run/r/seen", "s", "t"],
        ),
    ];
    for (token, audience, expected) in cases {
        let path = format!("/v1/lists/stream?attention=true&sessions=true&audience={audience}");
        let mut sse = guarded.open_stream(Transport::Hyper, &path, &token, None).await;
        let (mut entries, mut cursor) = (Entries::new(), String::new());
        loop {
            let frame = sse.next_frame().await;
            if apply(&mut entries, &frame.data) {
                cursor.push_str(frame.id());
                break;
            }
        }
        assert_eq!(keys(&entries), expected, "{audience}");

        let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&token))]).await.unwrap();
        let lists = json!({ "attention": true, "sessions": true, "audience": audience });
        ws.send(json!({ "op": "subscribe", "id": "l", "lists": lists })).await;
        let answer = ws.receive().await.unwrap();
        assert_eq!((&answer["op"], &answer["recovered"]), (&json!("subscribed"), &json!(false)), "{answer}");
        let mut over_socket = Entries::new();
        loop {
            let frame = ws.receive().await.unwrap();
            assert_eq!(frame["sub"], "l");
            if apply(&mut over_socket, &frame) {
                break;
            }
        }
        assert_eq!(over_socket, entries, "{audience}");

        // Everything changes, and a client that resumes learns the ends of its own entries alone.
        let mut resumed = guarded.open_stream(Transport::Hyper, &path, &token, Some(&cursor)).await;
        for run in ["q", "r"] {
            let resolved = |action: &str, audience: &str| {
                fact("action.resolved", json!({ "actionId": action, "audience": audience, "payload": { "outcome": "approved" } }))
            };
            let facts = [resolved("inner", "internal"), resolved("operator", "dashboard"), resolved("seen", "user")];
            guarded.publish(run, "", &admin(), &facts).await.ok();
        }
        let has_actions = |entries: &Entries| entries.keys().any(|(list, _)| list == "attention");
        while has_actions(&entries) {
            let frame = resumed.next_frame().await.data;
            assert!(expected.contains(&frame["key"].as_str().unwrap()), "{audience}: {frame}");
            apply(&mut entries, &frame);
        }
        for (run, session) in [("r", "s"), ("q", "t")] {
            let facts = [asks("seen", "user"), asks("operator", "dashboard"), asks("inner", "internal")];
            guarded.publish(run, &format!("sessionId={session}"), &admin(), &facts).await.ok();
        }
    }
    let user = reader(json!({ "sessions": ["s"] }));
    let wide = guarded.get("/v1/lists/stream?sessions=true&audience=internal", &user).await;
    wide.problem(403, "forbidden");
    let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&user))]).await.unwrap();
    for (lists, code) in [
        (json!({ "attention": true, "audience": "internal" }), "forbidden"),
        (json!({}), "bad_query"),
        (json!(["attention"]), "bad_query"),
    ] {
        ws.send(json!({ "op": "subscribe", "id": 1, "lists": lists })).await;
        assert_eq!(ws.receive().await.unwrap()["code"], code, "{lists}");
    }
}

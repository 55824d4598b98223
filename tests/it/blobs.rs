//! Offloaded bodies: what is too large for an envelope is moved out, readable by those who see the envelope and nobody else.

use crate::harness::{AUDIENCES, fact, local};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Well above the 32 KiB that stay inline, and nowhere equal to itself.
fn large(seed: &str) -> String {
    (0..8000).map(|n| format!("{seed} line {n}\n")).collect()
}

/// The body that an event refers to: its address, size and digest.
fn link(event: &Value) -> Value {
    let refs = &event["refs"];
    let links: Vec<&Value> = match refs {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    };
    let mut of_bodies = links.into_iter().filter(|link| link["href"].as_str().is_some_and(|href| href.starts_with("/v1/blobs/")));
    let link = of_bodies.next().unwrap_or_else(|| panic!("a link to a body in {refs} of {}", event["type"])).clone();
    assert!(of_bodies.next().is_none(), "one body: {refs}");
    link
}

fn href(event: &Value) -> String {
    link(event)["href"].as_str().expect("an address").to_owned()
}

#[tokio::test]
async fn a_large_output_is_moved_out_and_leaves_a_preview_and_a_link() {
    let client = local().await;
    let body = large("out");
    let facts = [
        fact("tool.started", json!({"toolCallId": "c"})),
        fact("tool.result", json!({"toolCallId": "c", "payload": {"output": body}})),
    ];
    client.accept("r", &facts).await;
    let event = client.events("r", "audience=internal", 10).await.remove(1);
    let preview = event["payload"]["output"].as_str().expect("a preview");
    assert!(preview.len() <= 32 * 1024 && body.starts_with(&preview[..100]), "{} bytes", preview.len());
    let link = link(&event);
    let digest: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&link["rel"], &link["bytes"], &link["sha256"]), (&json!("output"), &json!(body.len()), &json!(digest)));
    let answer = client.get_with(&format!("{}?audience=internal", href(&event)), &[]).await;
    assert_eq!((answer.status, answer.body.len()), (200, body.len()));
    assert!(answer.body == body.as_bytes());
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers["content-security-policy"], "sandbox");
}

#[tokio::test]
async fn a_large_output_of_any_shape_is_json() {
    let client = local().await;
    let output = json!((0..4000).map(|n| json!({"row": n})).collect::<Vec<_>>());
    client.accept("r", &[fact("tool.result", json!({"toolCallId": "c", "payload": {"output": output}}))]).await;
    let event = client.events("r", "audience=internal", 10).await.remove(0);
    assert!(event.to_string().len() < 64 * 1024);
    let answer = client.get_with(&format!("{}?audience=internal", href(&event)), &[]).await;
    assert_eq!((answer.headers["content-type"].to_str().ok(), answer.json()), (Some("application/json"), output));
}

#[tokio::test]
async fn what_is_small_stays_where_it_is() {
    let client = local().await;
    let body = "x".repeat(30 * 1024);
    client.accept("r", &[fact("tool.result", json!({"toolCallId": "c", "payload": {"output": body}}))]).await;
    let event = client.events("r", "audience=internal", 10).await.remove(0);
    assert_eq!((&event["payload"]["output"], event.get("refs")), (&json!(body), None));
}

#[tokio::test]
async fn a_body_is_readable_by_whoever_sees_the_envelope_that_refers_to_it() {
    for (n, audience) in AUDIENCES.into_iter().enumerate() {
        let client = local().await;
        client.accept("r", &[fact("task.changed", json!({"audience": audience, "payload": {"output": large("task")}}))]).await;
        let address = href(&client.events("r", "audience=internal", 10).await[0]);
        for (m, reader) in AUDIENCES.into_iter().enumerate() {
            let answer = client.get_with(&format!("{address}?audience={reader}"), &[]).await;
            match m >= n {
                true => assert_eq!(answer.status, 200, "{reader} reads what is for {audience}"),
                false => drop(answer.problem(404, "no_such_blob")),
            }
        }
        // Who does not say is a user.
        assert_eq!(client.get_with(&address, &[]).await.status, if n == 0 { 200 } else { 404 });
        client.get_with(&format!("{address}?audience=everyone"), &[]).await.problem(400, "bad_audience");
    }
}

#[tokio::test]
async fn an_edge_tells_nothing_of_the_body_behind_it() {
    let client = local().await;
    let facts = [
        fact("tool.started", json!({"toolCallId": "c"})),
        fact("tool.result", json!({"toolCallId": "c", "payload": {"output": large("out")}})),
    ];
    client.accept("r", &facts).await;
    let edge = client.events("r", "", 10).await.remove(1);
    assert_eq!((&edge["payload"], edge.get("refs")), (&json!({"withheld": true}), None));
}

#[tokio::test]
async fn equal_bodies_for_different_audiences_are_different_bodies() {
    let client = local().await;
    let facts = ["user", "internal"]
        .map(|audience| fact("task.changed", json!({"audience": audience, "payload": {"output": large("same")}})));
    client.accept("r", &facts).await;
    let events = client.events("r", "audience=internal", 10).await;
    assert_ne!(href(&events[0]), href(&events[1]));
    assert_eq!(client.get_with(&href(&events[0]), &[]).await.status, 200);
    client.get_with(&href(&events[1]), &[]).await.problem(404, "no_such_blob");
}

#[tokio::test]
async fn a_part_of_a_body_can_be_had() {
    let client = local().await;
    let body = large("ranged");
    client.accept("r", &[fact("task.changed", json!({"payload": {"output": body}}))]).await;
    let address = href(&client.events("r", "", 10).await[0]);
    let total = body.len();
    for (range, from, to) in
        [("bytes=0-9", 0, 10), ("bytes=100-", 100, total), ("bytes=-5", total - 5, total), ("bytes=7-99999999", 7, total)]
    {
        let answer = client.get_with(&address, &[("range", range)]).await;
        assert_eq!(answer.status, 206, "{range}");
        assert_eq!(answer.headers["content-range"], format!("bytes {from}-{}/{total}", to - 1));
        assert!(answer.body == body.as_bytes()[from..to], "{range}");
    }
    let answer = client.get_with(&address, &[("range", "bytes=99999999-")]).await;
    assert_eq!(answer.headers["content-range"], format!("bytes */{total}"));
    answer.problem(416, "bad_range");
    for range in ["bytes=0-1,5-6", "lines=1-2", "nonsense"] {
        let answer = client.get_with(&address, &[("range", range)]).await;
        assert_eq!((answer.status, answer.body.len()), (200, total), "{range}");
    }
}

#[tokio::test]
async fn an_atomic_body_that_is_refused_leaves_no_bodies() {
    let client = local().await;
    client
        .facts("r", &json!([fact("task.changed", json!({"payload": {"output": large("gone")}})), 7]))
        .await
        .problem(422, "not_an_object");
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
}

#[tokio::test]
async fn what_a_snapshot_of_messages_holds_of_a_hidden_call_is_not_to_be_had_as_a_body_either() {
    let client = local().await;
    let messages = json!([{"messageId": "m", "role": "tool", "toolCallId": "c", "content": large("hidden")}]);
    let snapshot = || fact("messages.snapshot", json!({"payload": {"messages": messages}}));
    let hidden = fact("tool.started", json!({"toolCallId": "c", "audience": "internal"}));
    for (run, facts, status) in [("open", vec![snapshot()], 200), ("shut", vec![hidden, snapshot()], 404)] {
        client.accept(run, &facts).await;
        let address = href(client.events(run, "audience=internal", 10).await.last().expect("a snapshot"));
        assert_eq!(client.get(&address).await.status, status, "{run}");
        assert_eq!(client.get(&format!("{address}?audience=internal")).await.status, 200, "{run}");
    }
}

//! Offloaded bodies.
//!
//! A body too large for its envelope moves to a blob, readable by the envelope's readers only.

use crate::harness::{AUDIENCES, fact, start_local};
use proscenium::model::TEXT_BYTES_MAX;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Builds a text well above the 32 KiB that stay inline, without repetition.
fn large_text(seed: &str) -> String {
    (0..8000).map(|n| format!("{seed} line {n}\n")).collect()
}

/// Returns an event's only link to a body: its address, size and digest.
fn link(event: &Value) -> Value {
    let refs = &event["refs"];
    let links: Vec<&Value> = match refs {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    };
    let mut of_bodies = links.into_iter().filter(|link| link["href"].as_str().is_some_and(|href| href.starts_with("/v1/blobs/")));
    let link = of_bodies.next().unwrap_or_else(|| panic!("no link to a body in {refs} of {}", event["type"])).clone();
    assert!(of_bodies.next().is_none(), "more than one body: {refs}");
    link
}

fn href(event: &Value) -> String {
    link(event)["href"].as_str().expect("a link has an address").to_owned()
}

#[tokio::test]
async fn a_large_output_is_offloaded_and_leaves_a_preview_and_a_link() {
    let client = start_local().await;
    let body = large_text("out");
    let facts = [
        fact("tool.started", json!({"toolCallId": "c"})),
        fact("tool.result", json!({"toolCallId": "c", "payload": {"output": body}})),
    ];
    client.append("r", &facts).await;
    let event = client.read_events("r", "audience=internal", 10).await.remove(1);
    let preview = event["payload"]["output"].as_str().expect("the envelope has a preview");
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
async fn a_large_output_that_is_not_text_is_offloaded_as_json() {
    let client = start_local().await;
    let output = json!((0..4000).map(|n| json!({"row": n})).collect::<Vec<_>>());
    client.append("r", &[fact("tool.result", json!({"toolCallId": "c", "payload": {"output": output}}))]).await;
    let event = client.read_events("r", "audience=internal", 10).await.remove(0);
    assert!(event.to_string().len() < 64 * 1024);
    let answer = client.get_with(&format!("{}?audience=internal", href(&event)), &[]).await;
    assert_eq!((answer.headers["content-type"].to_str().ok(), answer.json()), (Some("application/json"), output));
}

#[tokio::test]
async fn a_small_output_stays_inline() {
    let client = start_local().await;
    let body = "x".repeat(30 * 1024);
    client.append("r", &[fact("tool.result", json!({"toolCallId": "c", "payload": {"output": body}}))]).await;
    let event = client.read_events("r", "audience=internal", 10).await.remove(0);
    assert_eq!((&event["payload"]["output"], event.get("refs")), (&json!(body), None));
}

#[tokio::test]
async fn a_body_is_readable_by_the_audiences_of_its_envelope() {
    for (n, audience) in AUDIENCES.into_iter().enumerate() {
        let client = start_local().await;
        client
            .append("r", &[fact("task.changed", json!({"audience": audience, "payload": {"output": large_text("task")}}))])
            .await;
        let address = href(&client.read_events("r", "audience=internal", 10).await[0]);
        for (m, reader) in AUDIENCES.into_iter().enumerate() {
            let answer = client.get_with(&format!("{address}?audience={reader}"), &[]).await;
            match m >= n {
                true => assert_eq!(answer.status, 200, "{reader} reads a body for {audience}"),
                false => drop(answer.problem(404, "no_such_blob")),
            }
        }
        // The default audience is user.
        assert_eq!(client.get_with(&address, &[]).await.status, if n == 0 { 200 } else { 404 });
        client.get_with(&format!("{address}?audience=everyone"), &[]).await.problem(400, "bad_audience");
    }
}

#[tokio::test]
async fn a_stub_reveals_nothing_about_its_body() {
    let client = start_local().await;
    let facts = [
        fact("tool.started", json!({"toolCallId": "c"})),
        fact("tool.result", json!({"toolCallId": "c", "payload": {"output": large_text("out")}})),
    ];
    client.append("r", &facts).await;
    let stub = client.read_events("r", "", 10).await.remove(1);
    assert_eq!((&stub["payload"], stub.get("refs")), (&json!({"withheld": true}), None));
}

#[tokio::test]
async fn equal_bodies_for_different_audiences_are_different_blobs() {
    let client = start_local().await;
    let facts = ["user", "internal"]
        .map(|audience| fact("task.changed", json!({"audience": audience, "payload": {"output": large_text("same")}})));
    client.append("r", &facts).await;
    let events = client.read_events("r", "audience=internal", 10).await;
    assert_ne!(href(&events[0]), href(&events[1]));
    assert_eq!(client.get_with(&href(&events[0]), &[]).await.status, 200);
    client.get_with(&href(&events[1]), &[]).await.problem(404, "no_such_blob");
}

#[tokio::test]
async fn a_range_of_a_body_is_readable() {
    let client = start_local().await;
    let body = large_text("ranged");
    client.append("r", &[fact("task.changed", json!({"payload": {"output": body}}))]).await;
    let address = href(&client.read_events("r", "", 10).await[0]);
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
async fn a_rejected_atomic_post_stores_no_bodies() {
    let client = start_local().await;
    client
        .post_facts("r", &json!([fact("task.changed", json!({"payload": {"output": large_text("gone")}})), 7]))
        .await
        .problem(422, "not_an_object");
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
}

#[tokio::test]
async fn a_hidden_call_s_content_in_a_messages_snapshot_is_hidden_as_a_body_too() {
    let client = start_local().await;
    let content = "hidden ".repeat(TEXT_BYTES_MAX / 7 + 1);
    let messages = json!([{"messageId": "m", "role": "tool", "toolCallId": "c", "content": content}]);
    let snapshot = || fact("messages.snapshot", json!({"payload": {"messages": messages}}));
    let hidden = fact("tool.started", json!({"toolCallId": "c", "audience": "internal"}));
    for (run, facts, status) in [("open", vec![snapshot()], 200), ("shut", vec![hidden, snapshot()], 404)] {
        client.append(run, &facts).await;
        let address = href(client.read_events(run, "audience=internal", 10).await.last().expect("the run has a snapshot"));
        assert_eq!(client.get(&address).await.status, status, "{run}");
        assert_eq!(client.get(&format!("{address}?audience=internal")).await.status, 200, "{run}");
    }
}

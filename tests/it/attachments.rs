//! Files that people attach to messages: added to a session, named by a message, and gone with the session.

use crate::harness::{Client, ClockedProcess, Process, Response, fact, start_local};
use proscenium::attachments::{ATTACHMENT_BYTES_MAX, ATTACHMENTS_PER_SESSION_MAX};
use serde_json::json;
use std::time::Duration;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const PNG: [(&str, &str); 1] = [("content-type", "image/png")];

async fn attach(client: &Client, session: &str, name: &str, bytes: impl Into<reqwest::Body>) -> Response {
    client.post(&format!("/v1/sessions/{session}/attachments?name={name}"), &PNG, bytes).await
}

async fn href(client: &Client, session: &str, bytes: impl Into<reqwest::Body>) -> String {
    let added = attach(client, session, "a.png", bytes).await;
    assert_eq!(added.status, 201, "{added:?}");
    added.json()["href"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_attachment_is_the_bytes_that_were_sent_and_never_shown_in_place() {
    let client = start_local().await;
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    // Also a text keeps its byte order mark.
    for (name, kind, bytes) in [("a%20%C3%A4.png", "image/png; x=1", bytes), ("b", "text/plain", b"\xef\xbb\xbfHi".to_vec())] {
        let path = format!("/v1/sessions/s/attachments?name={name}");
        let added = client.post(&path, &[("content-type", kind)], bytes.clone()).await;
        let (status, added) = (added.status, added.json());
        assert_eq!((status, &added["bytes"]), (201, &json!(bytes.len())), "{added}");
        let read = client.get(added["href"].as_str().unwrap()).await;
        assert_eq!((read.status, read.body == bytes), (200, true));
        let header = |name: &str| read.headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), kind.split(';').next().unwrap());
        assert_eq!(header("x-content-type-options"), "nosniff");
        let encoded = name.replace('.', "%2E");
        assert_eq!(header("content-disposition"), format!("attachment; filename*=UTF-8''{encoded}"));
        let part = client.get_with(added["href"].as_str().unwrap(), &[("range", "bytes=1-2")]).await;
        assert_eq!((part.status, &part.body[..]), (206, &bytes[1..3]));
        assert!(part.headers.contains_key("content-disposition"));
    }
    // The session exists from then on, as after a message.
    client.get("/v1/sessions/s").await.ok();
}

#[tokio::test]
async fn what_is_no_attachment_is_refused_and_adds_nothing() {
    let client = start_local().await;
    attach(&client, "s", "a", "").await.problem(400, "empty_body");
    let large = attach(&client, "s", "a", vec![1; ATTACHMENT_BYTES_MAX + 1]).await.problem(413, "body_too_large");
    assert_eq!(large["limit"], json!(ATTACHMENT_BYTES_MAX));
    attach(&client, "s", "a%0Ab", "x").await.problem(400, "bad_query");
    attach(&client, "s", &"a".repeat(256), "x").await.problem(400, "bad_query");
    attach(&client, "%00", "a", "x").await.problem(400, "bad_id");
    for kind in ["png", "image/", "text/html\"", "a b/c"] {
        let refused = client.post("/v1/sessions/s/attachments", &[("content-type", kind)], "x").await;
        refused.problem(415, "unsupported_media_type");
    }
    client.get("/v1/sessions/s").await.problem(404, "no_such_session");
    assert_eq!(attach(&client, "s", "a", vec![1; ATTACHMENT_BYTES_MAX]).await.status, 201, "the limit itself");
}

#[tokio::test]
async fn a_session_has_a_limited_number_of_new_attachments_and_its_neighbour_its_own() {
    let client = start_local().await;
    for _ in 0..ATTACHMENTS_PER_SESSION_MAX {
        assert_eq!(attach(&client, "s", "a", "x").await.status, 201);
    }
    let problem = attach(&client, "s", "a", "x").await.problem(429, "too_many_attachments");
    assert_eq!(problem["limit"], json!(ATTACHMENTS_PER_SESSION_MAX));
    // Also for requests at once.
    let at_once = (0..ATTACHMENTS_PER_SESSION_MAX + 20).map(|_| attach(&client, "u", "a", "x"));
    let added = futures_util::future::join_all(at_once).await;
    assert_eq!(added.iter().filter(|answer| answer.status == 201).count(), ATTACHMENTS_PER_SESSION_MAX);
    for neighbour in ["s:x", "S", "t"] {
        assert_eq!(attach(&client, neighbour, "a", "x").await.status, 201, "{neighbour}");
    }
}

#[tokio::test]
async fn an_attachment_is_erased_with_its_session_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let (gone, kept) = (href(&client, "s", "of s").await, href(&client, "t", "of t").await);
    assert_eq!(client.delete("/v1/sessions/s").await.status, 204);
    client.get(&gone).await.problem(404, "no_such_blob");
    attach(&client, "s", "a", "x").await.problem(410, "erased");
    drop(server);
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    client.get(&gone).await.problem(404, "no_such_blob");
    assert_eq!(client.get(&kept).await.body, b"of t");
}

#[tokio::test]
async fn after_a_day_only_attachments_remain_that_an_envelope_or_a_waiting_message_names() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = ClockedProcess::start(dir.path(), &["--stale-after", "604800", "--settle-after", "604800"]);
    let client = clocked.client.clone();
    let mut hrefs = Vec::new();
    for text in ["named in a run", "named in a control", "unnamed", "unnamed too", "in a branch", "in a branch's control"] {
        hrefs.push(href(&client, "s", text).await);
    }
    let attachments = |href: &str| json!([{ "type": "binary", "mimeType": "image/png", "url": href }]);
    let payload = json!({ "role": "user", "text": "See", "attachments": attachments(&hrefs[0]) });
    let said = fact("text.final", json!({ "messageId": "m", "payload": payload }));
    client.post("/v1/runs/r/facts?sessionId=s", &JSON, said.to_string()).await.ok();
    let value = json!({ "text": "See", "attachments": [{ "href": hrefs[1], "mediaType": "image/png" }] });
    let queued = json!({ "control": "queue", "value": value, "agentId": "a", "ttlSeconds": 604_800 }).to_string();
    let queued = client.post("/v1/sessions/s/controls", &JSON, queued).await;
    assert_eq!(queued.status, 202, "{queued:?}");
    let branch = json!({ "after": { "messageId": "m" }, "sessionId": "b" }).to_string();
    assert_eq!(client.post("/v1/sessions/s/branches", &JSON, branch).await.status, 201);
    let payload = json!({ "role": "user", "text": "Again", "attachments": attachments(&hrefs[4]) });
    let said = fact("text.final", json!({ "messageId": "again", "payload": payload }));
    client.post("/v1/runs/of-branch/facts?sessionId=b", &JSON, said.to_string()).await.ok();
    let value = json!({ "text": "See", "attachments": [{ "href": hrefs[5], "mediaType": "image/png" }] });
    let queued = json!({ "control": "queue", "value": value, "agentId": "a", "ttlSeconds": 604_800 }).to_string();
    assert_eq!(client.post("/v1/sessions/b/controls", &JSON, queued).await.status, 202);

    let status = async |client: &Client, href: &str| client.get(href).await.status;
    clocked.advance(Duration::from_hours(23)).await;
    for href in &hrefs {
        assert_eq!(status(&client, href).await, 200, "before a day");
    }
    let late = href(&client, "s", "of a later day").await;
    let is_gone = async || status(&client, &hrefs[2]).await == 404;
    clocked.advance_until("the removal", Duration::from_mins(10), is_gone).await;
    let mut left = Vec::new();
    for href in hrefs.iter().chain([&late]) {
        left.push(status(&client, href).await);
    }
    assert_eq!(left, [200, 200, 404, 404, 200, 200, 200]);
}

#[tokio::test]
async fn a_message_shows_the_files_that_it_names() {
    let client = start_local().await;
    let file = href(&client, "s", "bytes").await;
    let part = json!({ "type": "binary", "mimeType": "image/png", "url": file, "filename": "a.png" });
    let payload = json!({ "role": "user", "text": "See", "attachments": [part] });
    let said = fact("text.final", json!({ "messageId": "m", "payload": payload }));
    client.post("/v1/runs/r/facts?sessionId=s", &JSON, said.to_string()).await.ok();
    let shown = client.get("/v1/sessions/s/activities?type=message").await.ok();
    assert_eq!(shown["activities"][0]["content"]["attachments"], json!([part]));
    let of_chat = client.get("/ai-sdk/a/s").await.ok();
    let file_part = json!({ "type": "file", "mediaType": "image/png", "url": file, "filename": "a.png" });
    assert_eq!(of_chat["messages"][0]["parts"], json!([{ "type": "text", "text": "See" }, file_part]));
    let of_thread = client.get("/ag-ui/a?threadId=s").await.ok();
    assert_eq!(of_thread["messages"][0]["content"], json!([{ "type": "text", "text": "See" }, part]), "{of_thread}");
}

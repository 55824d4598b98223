//! The files of a message reach an agent in the form of its protocol, or the user reads why not.

use super::endpoint::{Endpoint, Reply, activities, post, start_server, wait_for_status};
use super::protocols::program;
use crate::acp_face::editor::Editor;
use crate::harness::Client;
use serde_json::{Value, json};
use std::path::Path;

/// `AB` in base64.
const DATA: &str = "QUI=";

/// Attaches a file and sends a message that names it.
async fn send_file(client: &Client, name: &str, media_type: &str) {
    let path = format!("/v1/sessions/s/attachments?name={name}");
    let added = client.post(&path, &[("content-type", media_type)], "AB").await;
    assert_eq!(added.status, 201, "{added:?}");
    let attachments = json!([{ "href": added.json()["href"], "mediaType": media_type, "name": name }]);
    let send = json!({ "control": "send", "agentId": "helper", "controlId": "c", "value": { "text": "See", "attachments": attachments } });
    let sent = post(client, "/v1/sessions/s/controls", &send).await;
    assert_eq!(sent.status, 202, "{sent:?}");
}

/// What an agent over HTTP gets of a message with a file.
async fn received(agent: &str, name: &str, media_type: &str) -> Value {
    let endpoint = Endpoint::start(vec![Reply::Other(400, "text/plain", "no")]).await;
    let client = start_server(&format!("[helper]\n{agent}\nurl = \"{}\"\nretries = 0\n", endpoint.url)).await;
    send_file(&client, name, media_type).await;
    endpoint.received().await.body
}

#[tokio::test]
async fn an_agent_over_http_gets_the_bytes_in_the_form_of_its_protocol() {
    let url = |media_type: &str| format!("data:{media_type};base64,{DATA}");
    let text = |kind: &str| json!({ "type": kind, "text": "See" });
    let agent = "protocol = \"ag-ui\"";
    let file = json!({ "type": "binary", "mimeType": "image/png", "url": url("image/png"), "filename": "a.png" });
    assert_eq!(received(agent, "a.png", "image/png").await["messages"][0]["content"], json!([text("text"), file]));

    let agent = "protocol = \"ai-sdk\"";
    let file = json!({ "type": "file", "mediaType": "image/png", "url": url("image/png"), "filename": "a.png" });
    assert_eq!(received(agent, "a.png", "image/png").await["messages"][0]["parts"], json!([text("text"), file]));

    let agent = "protocol = \"langgraph\"\noptions = { assistant = \"agent\" }";
    let image = json!({ "type": "image_url", "image_url": { "url": url("image/png") } });
    let body = received(agent, "a.png", "image/png").await;
    assert_eq!(body["input"]["messages"][0]["content"], json!([text("text"), image]), "{body}");
    let file =
        json!({ "type": "file", "mime_type": "application/pdf", "filename": "a.pdf", "source_type": "base64", "data": DATA });
    let body = received(agent, "a.pdf", "application/pdf").await;
    assert_eq!(body["input"]["messages"][0]["content"][1], file);

    let agent = "protocol = \"openai-responses\"\noptions = { model = \"m\" }";
    let image = json!({ "type": "input_image", "image_url": url("image/png") });
    let body = received(agent, "a.png", "image/png").await;
    assert_eq!(body["input"][0]["content"], json!([text("input_text"), image]), "{body}");
    let file = json!({ "type": "input_file", "filename": "a.pdf", "file_data": url("application/pdf") });
    assert_eq!(received(agent, "a.pdf", "application/pdf").await["input"][0]["content"][1], file);

    let file = json!({ "kind": "file", "file": { "bytes": DATA, "mimeType": "image/png", "name": "a.png" } });
    let body = received("protocol = \"a2a\"\noptions = { version = \"0.3\" }", "a.png", "image/png").await;
    assert_eq!(body["params"]["message"]["parts"], json!([{ "kind": "text", "text": "See" }, file]), "{body}");
    let file = json!({ "raw": DATA, "mediaType": "image/png", "filename": "a.png" });
    let body = received("protocol = \"a2a\"", "a.png", "image/png").await;
    assert_eq!(body["params"]["message"]["parts"], json!([{ "text": "See" }, file]), "{body}");
}

#[tokio::test]
async fn an_agent_that_keeps_no_conversation_gets_the_files_of_earlier_messages_too() {
    let answer = || Reply::Events(vec![json!({ "type": "start", "messageId": "a" }), json!({ "type": "finish" })]);
    let endpoint = Endpoint::start(vec![answer(), answer()]).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ai-sdk\"\nurl = \"{}\"\n", endpoint.url)).await;
    send_file(&client, "a.png", "image/png").await;
    endpoint.received().await;
    wait_for_status(&client, "c", "completed").await;
    let again = json!({ "control": "send", "agentId": "helper", "value": "And now?" });
    assert_eq!(post(&client, "/v1/sessions/s/controls", &again).await.status, 202);
    let messages = endpoint.received().await.body["messages"].clone();
    assert_eq!(messages[0]["parts"][1]["url"], format!("data:image/png;base64,{DATA}"), "{messages}");
    assert_eq!(messages.as_array().unwrap().last().unwrap()["parts"][0]["text"], "And now?");
}

/// The last line that a program reads.
fn last_line(directory: &Path) -> Value {
    let read = std::fs::read_to_string(directory.join("read")).unwrap();
    serde_json::from_str(read.lines().last().unwrap()).unwrap()
}

/// An ACP agent that states these abilities, and keeps the line that it reads after its session began.
fn acp_program(abilities: &str, kept: &Path) -> String {
    let abilities = format!("{{\"promptCapabilities\":{abilities}}}");
    let answer = |id: u8, result: String| format!("printf '%s\\n' '{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}'");
    let offer = answer(0, format!("{{\"protocolVersion\":1,\"agentCapabilities\":{abilities}}}"));
    let session = answer(1, "{\"sessionId\":\"s\"}".into());
    format!("read -r line; {offer}\nread -r line; {session}\nhead -n 1 > {}", kept.display())
}

/// Whether an editor is offered to send images.
async fn offers_images(client: &Client, query: &str) -> bool {
    let mut editor = Editor::connect(client, query, &[]).await.unwrap();
    let offer = editor.ok("initialize", json!({ "protocolVersion": 1 })).await;
    offer["agentCapabilities"]["promptCapabilities"]["image"].as_bool().unwrap()
}

#[tokio::test]
async fn an_editor_may_send_images_once_the_program_behind_has_said_that_it_takes_them() {
    for (abilities, takes) in [(r#"{"image":true}"#, true), (r#"{"embeddedContext":true}"#, true), ("{}", false)] {
        let dir = tempfile::tempdir().unwrap();
        let client = start_server(&program(dir.path(), "acp", &acp_program(abilities, &dir.path().join("read")))).await;
        assert!(!offers_images(&client, "?agentId=helper").await, "it has not started");
        send_file(&client, "a.txt", "text/plain").await;
        wait_for_status(&client, "c", "failed").await;
        assert_eq!(offers_images(&client, "?agentId=helper").await, takes, "{abilities}");
        for query in ["", "?agentId=worker"] {
            assert!(offers_images(&client, query).await, "other agents decide for themselves");
        }
    }
}

#[tokio::test]
async fn a_program_gets_the_bytes_in_a_line_of_its_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("read");
    let script = format!("head -n 1 > {}", kept.display());
    let client = start_server(&program(dir.path(), "claude-stream-json", &script)).await;
    send_file(&client, "a.png", "image/png").await;
    wait_for_status(&client, "c", "failed").await;
    let image = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": DATA } });
    assert_eq!(last_line(dir.path())["message"]["content"], json!([{ "type": "text", "text": "See" }, image]));

    for (abilities, name, media_type, expected) in [
        (r#"{"image":true}"#, "a.png", "image/png", json!({ "type": "image", "mimeType": "image/png", "data": DATA })),
        (
            r#"{"embeddedContext":true}"#,
            "a.png",
            "image/png",
            json!({ "type": "resource", "resource": { "uri": "attachment:a%2Epng", "mimeType": "image/png", "blob": DATA } }),
        ),
        (
            r#"{"embeddedContext":true}"#,
            "a.txt",
            "text/plain",
            json!({ "type": "resource", "resource": { "uri": "attachment:a%2Etxt", "mimeType": "text/plain", "text": "AB" } }),
        ),
    ] {
        let client = start_server(&program(dir.path(), "acp", &acp_program(abilities, &kept))).await;
        send_file(&client, name, media_type).await;
        wait_for_status(&client, "c", "failed").await;
        assert_eq!(last_line(dir.path())["params"]["prompt"][1], expected);
    }
}

/// The error of the run that a user sees.
async fn error_of(client: &Client) -> Value {
    wait_for_status(client, "c", "failed").await;
    activities(client, "c", "user", "run").await[0]["error"].clone()
}

#[tokio::test]
async fn a_user_reads_why_an_agent_cannot_get_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let client = start_server(&program(dir.path(), "claude-stream-json", "cat")).await;
    send_file(&client, "a.zip", "application/zip").await;
    let error = error_of(&client).await;
    assert_eq!(error["code"], "file_refused", "{error}");
    assert!(error["message"].as_str().unwrap().contains("a.zip (application/zip)"), "{error}");
}

#[tokio::test]
async fn a_part_of_a_message_that_is_neither_text_nor_a_file_ends_the_run_with_its_reason() {
    for part in [json!({ "type": "binary", "id": "7", "mimeType": "image/png" }), json!({ "type": "hologram" })] {
        let endpoint = Endpoint::start(Vec::new()).await;
        let client = start_server(&format!("[helper]\nprotocol = \"langgraph\"\nurl = \"{}\"\n", endpoint.url)).await;
        let message = json!({ "id": "u", "role": "user", "content": [{ "type": "text", "text": "See" }, part] });
        let send = json!({ "control": "send", "agentId": "helper", "controlId": "c", "value": { "messages": [message] } });
        assert_eq!(post(&client, "/v1/sessions/s/controls", &send).await.status, 202);
        let error = error_of(&client).await;
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == "file_refused" && message.contains(part["type"].as_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn an_attachment_of_another_session_reaches_no_agent() {
    let endpoint = Endpoint::start(Vec::new()).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ag-ui\"\nurl = \"{}\"\n", endpoint.url)).await;
    let added = client.post("/v1/sessions/other/attachments", &[("content-type", "image/png")], "secret").await;
    let attachments = json!([{ "href": added.json()["href"], "mediaType": "image/png" }]);
    let send = json!({ "control": "send", "agentId": "helper", "controlId": "c", "value": { "text": "See", "attachments": attachments } });
    assert_eq!(post(&client, "/v1/sessions/s/controls", &send).await.status, 202);
    let error = error_of(&client).await;
    assert_eq!(error["code"], "file_refused", "{error}");
    assert!(error["message"].as_str().unwrap().contains("the session does not have it"), "{error}");
    assert_eq!(endpoint.unread().await, 0);
}

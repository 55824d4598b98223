//! Input that the protocol does not allow, and what a token does not cover.

use super::editor::{Editor, prompt_of};
use crate::auth::{admin, start_as_admin, token};
use crate::harness::{start_local, start_local_with};
use proscenium::feed::FeedConfig;
use proscenium::serve::Limits;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

/// What an editor gets of a message: the code and the text of the error.
async fn refused_text(editor: &mut Editor, text: &str) -> (Value, i64, String) {
    editor.send_text(text.to_owned()).await;
    let message = editor.message().await.unwrap();
    let error = &message["error"];
    (message["id"].clone(), error["code"].as_i64().expect("an error"), error["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn bad_messages_get_errors_of_the_protocol_that_name_what_and_where() {
    let client = start_local().await;
    let mut editor = Editor::connect(&client, "", &[]).await.unwrap();
    let early = editor.refused("session/list", json!({})).await;
    assert_eq!(early["code"], -32600, "{early}");
    for (params, code) in [(json!({}), -32602), (json!({ "protocolVersion": "1" }), -32602)] {
        assert_eq!(editor.refused("initialize", params).await["code"], code);
    }
    // A client of a later version gets the one that the server speaks.
    assert_eq!(editor.ok("initialize", json!({ "protocolVersion": 99 })).await["protocolVersion"], 1);
    for (text, code, part) in [
        ("{", -32700, "not JSON"),
        ("[]", -32600, "batch"),
        ("7", -32600, "no JSON-RPC message"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, -32600, "jsonrpc"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/set_mode"}"#, -32601, "session/set_mode"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":[]}"#, -32602, "params is an array"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"mcpServers":[]}}"#, -32602, "cwd is missing"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":7}}"#, -32602, "mcpServers"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":""}}"#, -32602, "sessionId is empty"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"never"}}"#, -32002, "never"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"never"}}"#, -32002, "not open"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"cursor":"x"}}"#, -32602, "cursor"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"authenticate","params":{"methodId":"x"}}"#, -32602, "methodId"),
    ] {
        let (_, is, message) = refused_text(&mut editor, text).await;
        assert_eq!(is, code, "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
    assert_eq!(editor.ok("authenticate", json!({ "methodId": "token" })).await, json!({}));
    let session = editor.new_session().await;
    for (prompt, part) in [
        (json!([]), "empty"),
        (json!([{ "type": "audio", "data": "", "mimeType": "audio/wav" }]), "prompt[0]"),
        (json!([{ "type": "text", "text": "x" }, { "type": "text" }]), "prompt[1] has no text"),
    ] {
        let error = editor.refused("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await;
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    let cursor = json!({ "sessionId": session, "cwd": "/", "_meta": { "proscenium": { "cursor": "x" } } });
    assert_eq!(editor.refused("session/resume", cursor).await["code"], -32602);
    let elsewhere = json!({ "sessionId": session, "cwd": "/", "_meta": { "proscenium": { "cursor": "0000000000000001:3" } } });
    let error = editor.refused("session/resume", elsewhere).await;
    assert_eq!(json!([error["code"], error["data"]["code"]]), json!([-32002, "epoch_changed"]));
    // Answers to nothing, and unknown notifications, change nothing.
    editor.send(json!({ "jsonrpc": "2.0", "id": 77, "result": {} })).await;
    editor.send(json!({ "jsonrpc": "2.0", "method": "_vendor/notice", "params": {} })).await;
    editor.ok("session/list", json!({})).await;
}

#[tokio::test]
async fn servers_of_mcp_are_refused_and_nothing_of_them_is_stored() {
    let client = start_local().await;
    let mut editor = Editor::open(&client).await;
    let server = json!({ "name": "evil", "command": "/bin/evil-command", "args": [], "env": [] });
    let params = json!({ "cwd": "/", "mcpServers": [server], "_meta": { "proscenium": { "sessionId": "with-servers" } } });
    let error = editor.refused("session/new", params).await;
    assert_eq!(json!([error["code"], error["data"]["member"]]), json!([-32602, "mcpServers"]));
    client.get("/v1/sessions/with-servers").await.problem(404, "no_such_session");
    let begun = json!({ "cwd": "/srv/of-the-editor", "mcpServers": [], "_meta": { "proscenium": { "sessionId": "begun" } } });
    assert_eq!(editor.ok("session/new", begun).await["sessionId"], "begun");
    let events = client.get("/v1/sessions/begun/events").await.ok();
    assert_eq!(events["events"][0]["payload"]["cwd"], "/srv/of-the-editor", "{events}");
}

#[tokio::test]
async fn a_message_beyond_its_limit_is_refused_and_one_beyond_the_server_s_closes_the_connection() {
    let client = start_local().await;
    let mut editor = Editor::open(&client).await;
    let long = |method: &str, bytes: usize| {
        json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": { "sessionId": "s", "x": "y".repeat(bytes) } }).to_string()
    };
    let (id, code, message) = refused_text(&mut editor, &long("session/list", 1024 * 1024)).await;
    assert_eq!((id, code), (json!(5), -32602), "{message}");
    let (_, code, message) = refused_text(&mut editor, &long("session/prompt", 8 * 1024 * 1024)).await;
    assert_eq!(code, -32602, "{message}");
    let (refusal, close) = editor.send_too_much(long("session/prompt", 32 * 1024 * 1024)).await;
    assert_eq!(json!([refusal["id"], refusal["error"]["code"]]), json!([null, -32600]));
    assert_eq!(close, 1009);
}

#[tokio::test]
async fn a_connection_has_a_limited_number_of_open_sessions() {
    let limits = Limits { subscriptions_max: 2, ..Limits::default() };
    let client = start_local_with(FeedConfig::default(), limits).await;
    let mut editor = Editor::open(&client).await;
    let first = editor.new_session().await;
    editor.new_session().await;
    let error = editor.refused("session/new", json!({ "cwd": "/", "mcpServers": [] })).await;
    assert_eq!(error["data"]["limit"], 2, "{error}");
    editor.ok("session/close", json!({ "sessionId": first })).await;
    editor.new_session().await;
}

#[tokio::test]
async fn a_token_comes_with_the_upgrade_and_covers_what_it_names() {
    let (client, _dir) = start_as_admin().await;
    let client = &client;
    let Err(Error::Http(refused)) = Editor::connect(client, "", &[]).await else { panic!("no token was needed") };
    assert_eq!(refused.status(), 401);
    let bearer = |token: &str| format!("Bearer {token}");
    let all = bearer(&admin());
    let mut owner = Editor::open_with(client, "", &[("authorization", &all)]).await;
    let session = owner.new_session().await;
    let named = |can: Value, sessions: Value| bearer(&token(&json!({ "can": can, "sessions": sessions, "agents": ["*"] })));

    let other = named(json!(["read", "control", "erase"]), json!(["other"]));
    let mut stranger = Editor::open_with(client, "", &[("authorization", &other)]).await;
    let load = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    for method in ["session/load", "session/resume", "session/delete"] {
        assert_eq!(stranger.refused(method, load.clone()).await["code"], -32002, "{method}");
    }
    assert_eq!(stranger.ok("session/list", json!({})).await["sessions"], json!([]));
    let new = json!({ "cwd": "/", "mcpServers": [] });
    assert_eq!(
        stranger.refused("session/new", new.clone()).await["code"],
        -32002,
        "a new session has an id that it does not cover"
    );
    let mut chosen = new.clone();
    chosen["_meta"] = json!({ "proscenium": { "sessionId": "other" } });
    assert_eq!(stranger.ok("session/new", chosen).await["sessionId"], "other");

    let reading = named(json!(["read"]), json!(["*"]));
    let mut reader = Editor::open_with(client, "", &[("authorization", &reading)]).await;
    reader.ok("session/load", load.clone()).await;
    for (method, params) in [("session/new", new), ("session/prompt", prompt_of(&session, "x")), ("session/delete", load)] {
        let error = reader.refused(method, params).await;
        assert_eq!(error["code"], -32000, "{method}: {error}");
    }
}

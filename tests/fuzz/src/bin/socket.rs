//! Fuzzes the messages on a WebSocket at `/v1/ws`, over a connection inside this process.
//!
//! ```text
//! input := how message { "\n" message }
//! how   := bit 0: the server requires a token, and the first message contains it; bit 1: the handshake contains it instead
//! message := text; after a 0x01 a binary message, after a 0x02 a ping, after a 0x03 a pong
//! ```
//! `TOKEN` is a placeholder for a valid token.
//!
//! Properties: nothing panics. Each text message has one response, and none is an internal error. The server closes the
//! connection only after a message that requires it.

#![no_main]

use futures_util::{SinkExt, StreamExt};
use http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use libfuzzer_sys::fuzz_target;
use proscenium::auth::Authenticator;
use proscenium::auth::keys::TokenSigner;
use proscenium::serve::Limits;
use proscenium_fuzz::{EXPIRY_SECS, SECRET, TestServer, assert_valid, authenticator, block_on};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

/// The maximum number of messages of one input, below the server's limit of queued responses.
const MESSAGES_MAX: usize = 32;

static TOKEN: LazyLock<String> = LazyLock::new(|| {
    let rights =
        json!({ "audience": "dashboard", "sessions": ["s"], "runs": ["r"], "agents": ["*"], "can": ["read", "publish"] });
    let claims = json!({ "sub": "fuzzer", "exp": EXPIRY_SECS, "proscenium": rights });
    TokenSigner::from_file(SECRET.as_bytes()).expect("a key").sign(&claims, None).expect("it signs")
});

static AUTHENTICATOR: LazyLock<Arc<Authenticator>> = LazyLock::new(|| authenticator(SECRET, &json!({ "keys": [] })));

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let (requires_token, in_handshake) = (how & 1 != 0, how & 2 != 0);
    let mut messages: Vec<Message> = rest.split(|byte| *byte == b'\n').take(MESSAGES_MAX).map(message).collect();
    if requires_token && !in_handshake {
        messages.insert(0, Message::text(json!({ "op": "auth", "token": *TOKEN }).to_string()));
    }
    block_on(async {
        let server = TestServer::start(Limits::default(), requires_token.then(|| AUTHENTICATOR.clone())).await;
        exchange(&server, messages, requires_token && in_handshake).await;
        server.stop().await;
    });
});

fn message(bytes: &[u8]) -> Message {
    match bytes {
        [1, rest @ ..] => Message::Binary(rest.to_vec().into()),
        [2, rest @ ..] => Message::Ping(rest[..rest.len().min(125)].to_vec().into()),
        [3, rest @ ..] => Message::Pong(rest[..rest.len().min(125)].to_vec().into()),
        text => Message::text(String::from_utf8_lossy(text).replace("TOKEN", &TOKEN)),
    }
}

async fn exchange(server: &TestServer, messages: Vec<Message>, in_handshake: bool) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let service = TowerToHyperService::new(server.router.clone());
    let serving = tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(theirs), service).with_upgrades());
    let mut request = Request::get("ws://t/v1/ws")
        .header("host", "t")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", generate_key());
    if in_handshake {
        request = request.header("authorization", format!("Bearer {}", *TOKEN));
    }
    let request = request.body(()).expect("a request");
    let (socket, _) = tokio_tungstenite::client_async(request, ours).await.expect("a WebSocket");
    let (mut sender, mut receiver) = socket.split();
    let may_close = messages.iter().any(|message| message.is_binary() || has_invalid_token(message));
    let texts = messages.iter().filter(|message| message.is_text()).count();
    // A final ping marks the end, but responses to facts and controls may follow its response.
    let last = Message::text(json!({ "op": "ping", "id": "the last" }).to_string());
    let sending = async {
        for message in messages.into_iter().chain([last]) {
            if sender.send(message).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let receiving = async {
        let mut answers = 0;
        while answers <= texts {
            match receiver.next().await {
                Some(Ok(Message::Text(text))) => answers += usize::from(is_response(&text)),
                Some(Ok(Message::Close(_)) | Err(_)) | None => {
                    assert!(may_close, "only binary messages and invalid tokens end a connection");
                    return;
                }
                Some(Ok(_)) => {}
            }
        }
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
    }
    drop((sender, receiver));
    // The server notices the closed connection, if it has not closed it itself.
    let _ = serving.await.expect("the connection does not panic");
}

/// Returns whether the message may end the connection because its token is not the valid one.
fn has_invalid_token(message: &Message) -> bool {
    let request = message.to_text().ok().and_then(|text| serde_json::from_str::<Value>(text).ok());
    request.is_some_and(|request| request["op"] == "auth" && request["token"] != **TOKEN)
}

/// Returns whether the text is a response, as opposed to a frame or a delivered control.
fn is_response(text: &str) -> bool {
    let received: Value = serde_json::from_str(text).expect("JSON");
    if received["frame"].is_string() {
        assert!(received["sub"].is_string() || received["sub"].is_number(), "{received}");
        return false;
    }
    let op = received["op"].as_str().unwrap_or_else(|| panic!("{received}"));
    if op == "error" {
        let status = received["status"].as_u64().unwrap_or_else(|| panic!("{received}"));
        assert!((400..500).contains(&status) || [501, 503].contains(&status), "{received}");
        let mut problem = received.clone();
        problem.as_object_mut().expect("an object").retain(|name, _| !["op", "id"].contains(&name.as_str()));
        assert_valid("problem.schema.json", &problem);
    }
    op != "control"
}

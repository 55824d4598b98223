//! Messages on a WebSocket: `/v1/ws`, on a connection that ends in this process.
//!
//! ```text
//! input := how message { "\n" message }
//! how   := bit 0: whether the server asks who is there, and is told with the first message; bit 1: in the handshake
//! message := text; after a 0x01 a binary message, after a 0x02 a ping, after a 0x03 a pong
//! ```
//! `TOKEN` stands for a good token. Nothing panics; each text message is answered once; no answer is a mistake of the server; and
//! the connection ends for what ends it, and for nothing else.

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
use proscenium_fuzz::{LATER, SECRET, Served, assert_valid, authority, wait};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

/// Messages of one input: fewer than those whose answers may wait.
const MESSAGES_MAX: usize = 32;

static TOKEN: LazyLock<String> = LazyLock::new(|| {
    let here = json!({ "audience": "dashboard", "sessions": ["s"], "runs": ["r"], "agents": ["*"], "can": ["read", "publish"] });
    let claims = json!({ "sub": "somebody", "exp": LATER, "proscenium": here });
    TokenSigner::from_file(SECRET.as_bytes()).expect("a key").sign(&claims, None).expect("it signs")
});

static AUTHORITY: LazyLock<Arc<Authenticator>> = LazyLock::new(|| authority(SECRET, &json!({ "keys": [] })));

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let (asks, in_handshake) = (how & 1 != 0, how & 2 != 0);
    let mut messages: Vec<Message> = rest.split(|byte| *byte == b'\n').take(MESSAGES_MAX).map(message).collect();
    if asks && !in_handshake {
        messages.insert(0, Message::text(json!({ "op": "auth", "token": *TOKEN }).to_string()));
    }
    wait(async {
        let served = Served::start(Limits::default(), asks.then(|| AUTHORITY.clone())).await;
        talk(&served, messages, asks && in_handshake).await;
        served.stop().await;
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

async fn talk(served: &Served, messages: Vec<Message>, in_handshake: bool) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let service = TowerToHyperService::new(served.router.clone());
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
    let (mut say, mut hear) = socket.split();
    let ends_by_itself = messages.iter().any(|message| message.is_binary() || is_auth(message));
    let texts = messages.iter().filter(|message| message.is_text()).count();
    // The one that ends it has an answer of its own; but those of facts, and of controls, may be later.
    let last = Message::text(json!({ "op": "ping", "id": "the last" }).to_string());
    let saying = async {
        for message in messages.into_iter().chain([last]) {
            if say.send(message).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let hearing = async {
        let mut answers = 0;
        while answers <= texts {
            match hear.next().await {
                Some(Ok(Message::Text(text))) => answers += usize::from(is_answer(&text)),
                Some(Ok(Message::Close(_)) | Err(_)) | None => {
                    assert!(ends_by_itself, "nothing else ends a connection");
                    return;
                }
                Some(Ok(_)) => {}
            }
        }
    };
    tokio::select! {
        () = saying => {}
        () = hearing => {}
    }
    drop((say, hear));
    // It was told that we are gone, if it had not gone before.
    let _ = serving.await.expect("the connection does not panic");
}

/// Whether it may end the connection: with a token that is not good.
fn is_auth(message: &Message) -> bool {
    let asked = message.to_text().ok().and_then(|text| serde_json::from_str::<Value>(text).ok());
    asked.is_some_and(|asked| asked["op"] == "auth" && asked["token"] != **TOKEN)
}

/// Whether it answers a message; it may also be a frame, or a control that came.
fn is_answer(text: &str) -> bool {
    let told: Value = serde_json::from_str(text).expect("JSON");
    if told["frame"].is_string() {
        assert!(told["sub"].is_string() || told["sub"].is_number(), "{told}");
        return false;
    }
    let op = told["op"].as_str().unwrap_or_else(|| panic!("{told}"));
    if op == "error" {
        let status = told["status"].as_u64().unwrap_or_else(|| panic!("{told}"));
        assert!((400..500).contains(&status) || [501, 503].contains(&status), "{told}");
        let mut problem = told.clone();
        problem.as_object_mut().expect("an object").retain(|name, _| !["op", "id"].contains(&name.as_str()));
        assert_valid("problem.schema.json", &problem);
    }
    op != "control"
}

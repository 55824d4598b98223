//! An editor by the protocol, and the worker of its agent.

use crate::harness::{Client, fact, with_timeout};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::{Error, Message};

/// An editor's connection.
pub struct Editor {
    socket: WebSocketStream<TcpStream>,
    next_id: u64,
    /// What the server sent beside answers, in order.
    pub received: VecDeque<Value>,
}

impl Editor {
    /// Connects without a word of the protocol.
    pub async fn connect(client: &Client, query: &str, headers: &[(&str, &str)]) -> Result<Self, Error> {
        let mut request = http::Request::get(format!("ws://{}/acp{query}", client.at))
            .header("host", client.at.to_string())
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let socket = TcpStream::connect(client.at).await.expect("the server accepts the connection");
        let handshake = tokio_tungstenite::client_async(request.body(()).expect("the request is valid"), socket);
        let (socket, _) = with_timeout("a handshake", handshake).await?;
        Ok(Self { socket, next_id: 0, received: VecDeque::new() })
    }

    /// Connects and initializes, as an editor that shows forms.
    pub async fn open(client: &Client) -> Self {
        Self::open_with(client, "", &[]).await
    }

    pub async fn open_with(client: &Client, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut editor = Self::connect(client, query, headers).await.expect("the handshake succeeds");
        let abilities = json!({ "elicitation": { "form": {} } });
        editor.ok("initialize", json!({ "protocolVersion": 1, "clientCapabilities": abilities })).await;
        editor
    }

    pub async fn send(&mut self, message: Value) {
        self.send_text(message.to_string()).await;
    }

    pub async fn send_text(&mut self, text: String) {
        with_timeout("the sending of a message", self.socket.send(Message::text(text))).await.expect("the connection is open");
    }

    /// The next message, or the close code.
    pub async fn message(&mut self) -> Result<Value, u16> {
        loop {
            match with_timeout("a message", self.socket.next()).await.expect("a close precedes the end").expect("it is valid") {
                Message::Text(text) => return Ok(serde_json::from_str(&text).expect("a message is JSON")),
                Message::Close(close) => return Err(close.expect("a close has a code").code.into()),
                _ => {}
            }
        }
    }

    /// Sends a message that the server does not read to its end. Returns its answer and the close code.
    pub async fn send_too_much(self, text: String) -> (Value, u16) {
        let (mut sending, mut receiving) = self.socket.split();
        // It fails once the server has closed.
        let sent = tokio::spawn(async move { sending.send(Message::text(text)).await });
        let mut received = Vec::new();
        loop {
            match with_timeout("a refusal", receiving.next()).await.expect("a close precedes the end").expect("it is valid") {
                Message::Text(text) => received.push(serde_json::from_str(&text).expect("a message is JSON")),
                Message::Close(close) => {
                    sent.abort();
                    return (received.pop().expect("a refusal"), close.expect("a close has a code").code.into());
                }
                _ => {}
            }
        }
    }

    /// Sends a request. Returns its id.
    pub async fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send(json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params })).await;
        self.next_id
    }

    /// Waits for the answer to a request, and keeps what comes before it.
    pub async fn finish(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let message = self.message().await.expect("the connection is open");
            if message.get("method").is_none() && message["id"] == id {
                return if message.get("error").is_some() {
                    Err(message["error"].clone())
                } else {
                    Ok(message["result"].clone())
                };
            }
            self.received.push_back(message);
        }
    }

    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.begin(method, params).await;
        self.finish(id).await
    }

    pub async fn ok(&mut self, method: &str, params: Value) -> Value {
        self.call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    pub async fn refused(&mut self, method: &str, params: Value) -> Value {
        self.call(method, params).await.expect_err(method)
    }

    /// The next message of this method, with those before it dropped.
    pub async fn next(&mut self, method: &str) -> Value {
        loop {
            let message = match self.received.pop_front() {
                Some(message) => message,
                None => self.message().await.expect("the connection is open"),
            };
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The updates that came so far.
    pub fn updates(&self) -> Vec<Value> {
        let updates = self.received.iter().filter(|message| message["method"] == "session/update");
        updates.map(|message| message["params"].clone()).collect()
    }

    pub async fn new_session(&mut self) -> String {
        let made = self.ok("session/new", json!({ "cwd": "/srv/demo", "mcpServers": [] })).await;
        made["sessionId"].as_str().expect("a session has an id").to_owned()
    }

    pub async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.begin("session/prompt", prompt_of(session, text)).await
    }

    /// Goes away without a word.
    pub fn kill(self) {
        drop(self);
    }
}

pub fn prompt_of(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] })
}

/// The texts of chunks of this kind.
pub fn texts(updates: &[Value], kind: &str) -> String {
    let chunks = updates.iter().map(|params| &params["update"]).filter(|update| update["sessionUpdate"] == kind);
    chunks.map(|update| update["content"]["text"].as_str().unwrap()).collect()
}

/// Claims the next control of the default agent, and acknowledges it.
pub async fn claim(client: &Client) -> Value {
    let claimed = client.post("/v1/agents/default/controls/claim?wait=60&max=1", &[], "").await.ok();
    let control = claimed["controls"][0].clone();
    assert!(control.is_object(), "no control came: {claimed}");
    let lease = json!({ "lease": control["lease"] }).to_string();
    client.post(&format!("/v1/controls/{}/ack", control["controlId"].as_str().unwrap()), &[], lease).await.ok();
    control
}

/// Takes the next prompt as the worker of the agent: its run begins, and repeats what the user said.
pub async fn begin_turn(client: &Client) -> String {
    let control = claim(client).await;
    assert_eq!(control["control"], "send", "{control}");
    let run = control["value"]["runId"].as_str().expect("a prompt names its run").to_owned();
    let said = &control["value"]["messages"][0]["content"];
    let user = json!({ "messageId": format!("{run}-u"), "payload": { "role": "user", "text": said } });
    client.append(&run, &[fact("run.started", json!({ "sessionId": control["sessionId"] })), fact("text.final", user)]).await;
    run
}

pub fn chunk(text: &str) -> Value {
    fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } }))
}

pub async fn say(client: &Client, run: &str, texts: &[&str]) {
    client.append(run, &texts.iter().map(|text| chunk(text)).collect::<Vec<_>>()).await;
}

pub async fn end_turn(client: &Client, run: &str) {
    client.append(run, &[fact("run.finished", json!({}))]).await;
}

/// Asks for the approval of a call.
pub async fn ask(client: &Client, run: &str, action: &str) {
    let options = json!([
        { "optionId": "ever", "label": "Always", "kind": "allow_always" },
        { "optionId": "once", "label": "Allow", "kind": "allow_once" },
        { "optionId": "no", "label": "Reject", "kind": "reject_once" },
    ]);
    let call = json!({ "toolCallId": "c", "payload": { "toolName": "delete", "input": { "path": "a.txt" } } });
    let asked = json!({ "actionId": action, "toolCallId": "c", "payload": { "kind": "tool_approval", "options": options } });
    client.append(run, &[fact("tool.started", call), fact("action.required", asked)]).await;
}

pub async fn resolve(client: &Client, run: &str, action: &str) {
    let payload = json!({ "outcome": "approved" });
    client.append(run, &[fact("action.resolved", json!({ "actionId": action, "payload": payload }))]).await;
}

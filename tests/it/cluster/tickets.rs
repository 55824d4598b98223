//! Tickets of a cluster, and sockets on its followers.

use super::{Cluster, eventually};
use crate::auth::{SECRET, admin, token};
use crate::harness::{Client, fact, with_timeout};
use crate::nats::Nats;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

type Socket = WebSocketStream<TcpStream>;

fn text(number: u64) -> Value {
    fact("text.delta", json!({ "messageId": "m", "payload": { "text": format!("{number} ") } }))
}

/// A cluster of nodes that ask for tokens, with the key's file.
async fn start(nats: &Nats, name: &str, count: usize) -> (Cluster, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--cluster-allow-r1", "--auth-key", key.to_str().unwrap()];
    (Cluster::start_with(nats, name, count, &flags, true, Some(&admin())).await, dir)
}

async fn issue(client: &Client, asked: Value) -> String {
    let issued = client.post("/v1/tickets", &[("content-type", "application/json")], asked.to_string()).await.ok();
    issued["ticket"].as_str().unwrap().to_owned()
}

/// Opens a socket with a ticket; returns the status if the node refuses it.
async fn open_socket(at: SocketAddr, ticket: &str) -> Result<Socket, u16> {
    let socket = with_timeout("a connection", TcpStream::connect(at)).await.unwrap();
    let url = format!("ws://{at}/v1/ws?ticket={ticket}");
    match with_timeout("a handshake", tokio_tungstenite::client_async(url, socket)).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// The next message that is no ping.
async fn receive(socket: &mut Socket) -> Value {
    loop {
        match with_timeout("a message", socket.next()).await.unwrap().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Sends a message, and waits for its reply. Frames and replies to other messages go to `others`.
async fn call(socket: &mut Socket, message: Value, others: &mut Vec<Value>) -> Value {
    socket.send(Message::text(message.to_string())).await.unwrap();
    loop {
        let received = receive(socket).await;
        if received["id"] == message["id"] && received["op"] != "control" {
            return received;
        }
        others.push(received);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_of_any_node_is_valid_once_on_any_node() {
    let nats = Nats::start(1);
    let (cluster, _dir) = start(&nats, "tickets", 3).await;
    cluster.client(0).append("r", &[text(1)]).await;
    for issuer in 0..3 {
        let opener = (issuer + 1) % 3;
        let ticket = issue(cluster.client(issuer), json!({ "for": "ws" })).await;
        let mut socket = open_socket(cluster.client(opener).at, &ticket).await.unwrap();
        assert_eq!(call(&mut socket, json!({ "op": "ping", "id": 1 }), &mut Vec::new()).await["op"], "pong");
        for node in 0..3 {
            assert_eq!(open_socket(cluster.client(node).at, &ticket).await.err(), Some(401), "{issuer} {node}");
        }
    }
    // Another purpose, another signature, and a time that has passed get the same answer.
    let anonymous = |node: usize| Client::new(cluster.client(node).at);
    let stream = |ticket: &str| format!("/v1/runs/r/stream?ticket={ticket}");
    let used = issue(cluster.client(0), json!({ "for": "stream", "run": "r" })).await;
    assert_eq!(anonymous(1).get_head(&stream(&used), &[]).await.status, 200);
    let refused = anonymous(2).get(&stream(&used)).await.problem(401, "unauthenticated");
    let socket_ticket = issue(cluster.client(0), json!({ "for": "ws" })).await;
    let (statement, _) = used.rsplit_once('.').unwrap();
    let (_, signature) = socket_ticket.rsplit_once('.').unwrap();
    let late = issue(cluster.client(0), json!({ "for": "stream", "run": "r", "ttlSeconds": 1 })).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for ticket in [&socket_ticket, &format!("{statement}.{signature}"), &late, "0123"] {
        let answer = anonymous(1).get(&stream(ticket)).await.problem(401, "unauthenticated");
        assert_eq!(answer["detail"], refused["detail"], "{ticket}");
    }
    // A ticket permits no more than its token.
    let narrow = Client::with_token(cluster.client(1).at, &token(&json!({ "sessions": ["t"], "can": ["read"] })));
    let ticket = issue(&narrow, json!({ "for": "ws" })).await;
    let mut socket = open_socket(cluster.client(2).at, &ticket).await.unwrap();
    let publish = json!({ "op": "publish", "id": 1, "runId": "r", "facts": [text(2)] });
    assert_eq!(call(&mut socket, publish, &mut Vec::new()).await["code"], "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_on_a_follower_reads_there_and_goes_on_when_the_leader_is_killed() {
    let nats = Nats::start(1);
    let (mut cluster, _dir) = start(&nats, "sockets", 3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let ticket = issue(cluster.client(leader), json!({ "for": "ws" })).await;
    let mut socket = open_socket(cluster.client(follower).at, &ticket).await.unwrap();
    let mut others = Vec::new();
    let publish = |id: u64, number: u64| {
        let producer = json!({ "id": "p", "epoch": 0, "seq": number });
        json!({ "op": "publish", "id": id, "runId": "r", "producer": producer, "facts": [text(number)] })
    };
    assert_eq!(call(&mut socket, publish(1, 0), &mut others).await["accepted"], 1);
    let subscribe = json!({ "op": "subscribe", "id": 2, "run": "r", "frames": "events", "audience": "internal" });
    assert_eq!(call(&mut socket, subscribe, &mut others).await["op"], "subscribed");
    // A claim, its control, and its answer pass the leader.
    assert_eq!(call(&mut socket, json!({ "op": "claim", "id": 3, "agentId": "a" }), &mut others).await["op"], "claiming");
    cluster.client(follower).append("work", &[fact("run.started", json!({ "agentId": "a" }))]).await;
    let json_type = [("content-type", "application/json")];
    let control = cluster.client(follower).post("/v1/runs/work/controls", &json_type, r#"{"control":"interrupt"}"#).await;
    assert!(control.status < 300, "{control:?}");
    let control = loop {
        let received = receive(&mut socket).await;
        if received["op"] == "control" {
            break received;
        }
        others.push(received);
    };
    let ack = json!({ "op": "ack", "id": 4, "control": control["controlId"], "lease": control["lease"] });
    assert_eq!(call(&mut socket, ack, &mut others).await["op"], "acked");
    cluster.nodes[leader].kill();
    // The claim ends with the leader; the subscription does not.
    let mut id = 10;
    eventually("a message is accepted", async || {
        id += 1;
        let answer = call(&mut socket, publish(id, 1), &mut others).await;
        assert!(answer["op"] == "ack" || answer["code"] == "no_leader", "{answer}");
        answer["op"] == "ack"
    })
    .await;
    let is_second = |frame: &Value| frame["event"]["payload"]["text"] == "1 ";
    while !others.iter().any(is_second) {
        others.push(receive(&mut socket).await);
    }
    let ended: Vec<_> = others.iter().filter(|other| other["op"] == "error" && other["id"] == 3).collect();
    assert!(matches!(&ended[..], [ended] if ended["code"] == "no_leader"), "{others:#?}");
    let texts = others.iter().filter(|frame| frame["event"]["type"] == "text.delta");
    assert_eq!(texts.map(|frame| &frame["event"]["payload"]["text"]).collect::<Vec<_>>(), ["0 ", "1 "], "{others:#?}");
}

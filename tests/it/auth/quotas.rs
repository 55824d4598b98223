//! Limits by a token's `sub`: rate and open connections, for all tokens of the `sub` from any address.

use super::{AuthServer, SECRET, Ws, bearer, now, token_with_claims};
use crate::harness::{Client, ClockedProcess, Response, Sse, TRANSPORTS, Transport, fact, to_ndjson, with_timeout};
use futures_util::{FutureExt, StreamExt};
use proscenium::serve::Limits;
use proscenium::serve::access::quota::RateLimit;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Error;

/// A token of this `sub`; each number gives another token.
fn token_of_sub(sub: &str, number: u32) -> String {
    let here = json!({ "sessions": ["*"], "agents": ["*"], "can": ["read", "publish"] });
    token_with_claims(&json!({ "sub": sub, "jti": format!("{sub}-{number}"), "exp": now() + 3600, "proscenium": here }))
}

fn status_facts(count: usize) -> Vec<Value> {
    vec![fact("run.status", json!({})); count]
}

/// Posts to the server from another address of this machine.
async fn post_from_other_address(client: &Client, path: &str, token: &str, body: &Value) -> u16 {
    let http = reqwest::Client::builder().no_proxy().local_address(Some("127.0.0.2".parse().unwrap())).build().unwrap();
    let request = http.post(format!("http://{}{path}", client.at)).header("authorization", bearer(token)).json(body);
    with_timeout("an answer", request.send()).await.unwrap().status().as_u16()
}

/// A burst that a rate of one fact a second needs ten minutes to allow again.
const BURST: u32 = 600;

#[tokio::test]
async fn the_publish_rate_is_shared_by_all_tokens_of_a_sub() {
    let guarded =
        AuthServer::start_with_limits(Limits { publish: Some(RateLimit { facts: 1, burst: BURST }), ..Limits::default() }).await;
    guarded.publish("r", "", &token_of_sub("anna", 1), &status_facts(BURST as usize)).await.ok();
    // Another token, run, producer and address share the same rate.
    guarded.publish("s", "", &token_of_sub("anna", 2), &status_facts(BURST as usize)).await.problem(429, "publish_rate");
    let headers = [
        ("authorization", &*bearer(&token_of_sub("anna", 3))),
        ("content-type", "application/json"),
        ("producer-id", "new"),
        ("producer-epoch", "1"),
        ("producer-seq", "0"),
    ];
    let numbered = guarded.client.post("/v1/runs/t/facts", &headers, json!(status_facts(BURST as usize)).to_string()).await;
    numbered.problem(429, "publish_rate");
    assert_eq!(
        post_from_other_address(
            &guarded.client,
            "/v1/runs/u/facts",
            &token_of_sub("anna", 1),
            &json!(status_facts(BURST as usize))
        )
        .await,
        429
    );
    let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&token_of_sub("anna", 4)))]).await.unwrap();
    let refused = ws.request(json!({ "op": "publish", "id": 1, "runId": "v", "facts": status_facts(BURST as usize) })).await;
    assert_eq!((&refused["code"], &refused["limit"]), (&json!("publish_rate"), &json!(1)));
    // Subs that share an address have their own rates, also for the same run and the same producer name.
    for other in ["bob", "carl"] {
        guarded.publish("r", "", &token_of_sub(other, 1), &status_facts(BURST as usize)).await.ok();
        guarded.publish("r", "", &token_of_sub(other, 2), &status_facts(BURST as usize)).await.problem(429, "publish_rate");
    }
}

#[tokio::test]
async fn nothing_open_outlasts_its_token_also_a_body_that_its_rate_delays() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--auth-key", key.to_str().unwrap(), "--publish-rate", "1", "--publish-burst", "1"];
    let clocked = ClockedProcess::start(dir.path(), &flags);
    let client = &clocked.client;
    let here = json!({ "sessions": ["*"], "runs": ["*"], "can": ["publish", "read"] });
    let header = bearer(&token_with_claims(&json!({ "sub": "anna", "exp": now() + 600, "proscenium": here })));
    let stream = TcpStream::connect(clocked.server.at).await.unwrap();
    let mut stream = Sse::open(stream, Transport::Raw, "/v1/runs/never/stream", &[("authorization", &header)]).await;
    let mut socket = Ws::connect(client, "", &[("authorization", &header)]).await.unwrap();
    assert_eq!(socket.request(json!({ "op": "subscribe", "id": 1, "run": "never" })).await["op"], "subscribed");
    // A burst is paid for afterwards: the fact after it has to wait for 1024 s, and the token lives for 600.
    let (more, next) = tokio::sync::oneshot::channel::<String>();
    let lines = futures_util::stream::iter([Ok(to_ndjson(&status_facts(1024)))]).chain(next.into_stream());
    let sending = tokio::spawn({
        let (client, header, body) = (client.clone(), header.clone(), reqwest::Body::wrap_stream(lines));
        async move {
            let headers = [("authorization", &*header), ("content-type", "application/x-ndjson")];
            client.post("/v1/runs/r/facts", &headers, body).await
        }
    });
    let has_begun = async || client.get_with("/v1/runs/r", &[("authorization", &*header)]).await.status == 200;
    with_timeout("the burst", async { while !has_begun().await {} }).await;
    more.send(to_ndjson(&status_facts(1))).unwrap();
    clocked.advance(Duration::from_secs(601)).await;
    let problem = with_timeout("the body's end", sending).await.unwrap().problem(401, "unauthenticated");
    assert!(problem["reason"] == "expired" && problem["accepted"].as_u64().unwrap() <= 1024, "{problem}");
    assert_eq!(super::read_error(&mut stream).await["reason"], "expired");
    let told = loop {
        let told = socket.receive().await.unwrap();
        if told["op"] == "error" {
            break told;
        }
    };
    assert_eq!(json!([told["code"], told["reason"]]), json!(["unauthenticated", "expired"]));
    assert_eq!(socket.receive().await, Err(4401));
}

/// Opens a stream of run `r`.
async fn open_run_stream(guarded: &AuthServer, via: Transport, token: &str) -> Sse {
    guarded.open_stream(via, "/v1/runs/r/stream", token, None).await
}

async fn open_websocket(guarded: &AuthServer, token: &str) -> Result<Ws, u16> {
    match Ws::connect(&guarded.client, "", &[("authorization", &bearer(token))]).await {
        Ok(ws) => Ok(ws),
        Err(Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

/// Retries until the server has noticed a closed connection.
async fn open_when_a_slot_is_free(guarded: &AuthServer, token: &str) -> Sse {
    with_timeout("a free slot", async {
        loop {
            let stream = open_run_stream(guarded, Transport::Raw, token).await;
            if stream.status == 200 {
                return stream;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn open_connections_are_counted_for_all_tokens_of_a_sub() {
    let guarded = AuthServer::start_with_limits(Limits { connections_per_token_max: 3, ..Limits::default() }).await;
    let ticket = guarded.ticket(&token_of_sub("anna", 9), json!({ "for": "stream", "run": "r" })).await;
    let socket_ticket = guarded.ticket(&token_of_sub("anna", 9), json!({ "for": "ws" })).await;
    let first = open_run_stream(&guarded, Transport::Raw, &token_of_sub("anna", 1)).await;
    let second = open_run_stream(&guarded, Transport::Hyper, &token_of_sub("anna", 2)).await;
    let mut third = open_websocket(&guarded, &token_of_sub("anna", 3)).await.expect("the third connection is allowed");
    assert_eq!((first.status, second.status), (200, 200));
    // A WebSocket counts as one connection, with any number of subscriptions.
    for id in 1..5 {
        assert_eq!(third.request(json!({ "op": "subscribe", "id": id, "run": "r" })).await["op"], "subscribed");
    }
    let fourth = token_of_sub("anna", 4);
    for via in TRANSPORTS {
        let mut refused = open_run_stream(&guarded, via, &fourth).await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.headers["retry-after"], "2");
        let problem: Value = serde_json::from_slice(&refused.body().await).unwrap();
        assert_eq!((&problem["code"], &problem["limit"]), (&json!("too_many_connections_of_token"), &json!(3)));
    }
    assert_eq!(open_websocket(&guarded, &fourth).await.err(), Some(429));
    assert_eq!(guarded.client.get(&format!("/v1/runs/r/stream?ticket={ticket}")).await.status, 429);
    assert!(matches!(
        Ws::connect(&guarded.client, &format!("?ticket={socket_ticket}"), &[]).await.err(),
        Some(Error::Http(answer)) if answer.status() == 429
    ));
    let mut ws = Ws::open(&guarded.client).await;
    assert_eq!(ws.request(json!({ "op": "auth", "id": 1, "token": fourth })).await["code"], "too_many_connections_of_token");
    assert_eq!(ws.receive().await, Err(1013));
    let too_many = |answer: Response| answer.problem(429, "too_many_connections_of_token");
    too_many(guarded.post("/v1/agents/a/controls/claim?wait=1", &fourth, &json!({})).await);
    let headers = [("authorization", &*bearer(&fourth)), ("content-type", "application/x-ndjson")];
    too_many(guarded.client.post("/v1/runs/r/facts", &headers, to_ndjson(&status_facts(1))).await);
    assert_eq!(post_from_other_address(&guarded.client, "/v1/agents/a/controls/claim?wait=1", &fourth, &json!({})).await, 429);
    let elsewhere = TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let socket: TcpStream = elsewhere.connect(guarded.client.at).await.unwrap();
    let header = bearer(&fourth);
    assert_eq!(Sse::open(socket, Transport::Raw, "/v1/runs/r/stream", &[("authorization", &header)]).await.status, 429);

    // Requests that end are not counted, and other subs have their own limit.
    guarded.get("/v1/runs", &fourth).await.ok();
    guarded.publish("q", "", &fourth, &status_facts(1)).await.ok();
    guarded.post("/v1/agents/a/controls/claim", &fourth, &json!({})).await.ok();
    assert_eq!(open_run_stream(&guarded, Transport::Raw, &token_of_sub("bob", 1)).await.status, 200);

    // A closed connection of any kind frees a slot for any other kind.
    drop(third);
    let again = open_when_a_slot_is_free(&guarded, &fourth).await;
    assert_eq!(open_run_stream(&guarded, Transport::Raw, &fourth).await.status, 429);
    drop(first);
    let one_more = open_when_a_slot_is_free(&guarded, &fourth).await;
    drop((second, again, one_more));
    open_when_a_slot_is_free(&guarded, &fourth).await;
}

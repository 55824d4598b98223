//! What one token's `sub` may use: so fast, and so much at once, however many tokens it has and wherever they are sent from.

use super::{Guarded, SOON_OVER, Ws, bearer, now, token_of};
use crate::harness::{Answer, BOTH, Client, Sse, Via, fact, lines, soon};
use proscenium::serve::Limits;
use proscenium::serve::shares::Rate;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Error;

/// A token of this `sub`: another one for each number.
fn of(sub: &str, number: u32) -> String {
    let here = json!({ "sessions": ["*"], "agents": ["*"], "can": ["read", "publish"] });
    token_of(&json!({ "sub": sub, "jti": format!("{sub}-{number}"), "exp": now() + 3600, "proscenium": here }))
}

fn facts(count: usize) -> Vec<Value> {
    vec![fact("run.status", json!({})); count]
}

/// The same server, asked from another address of this machine.
async fn from_elsewhere(client: &Client, path: &str, token: &str, body: &Value) -> u16 {
    let http = reqwest::Client::builder().no_proxy().local_address(Some("127.0.0.2".parse().unwrap())).build().unwrap();
    let request = http.post(format!("http://{}{path}", client.at)).header("authorization", bearer(token)).json(body);
    soon("an answer", request.send()).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn the_rate_is_that_of_whom_the_tokens_are_for() {
    let guarded = Guarded::limited(Limits { publish: Some(Rate { facts: 1, burst: 4 }), ..Limits::default() }).await;
    guarded.publish("r", "", &of("anna", 1), &facts(4)).await.ok();
    // Another token, another run, a producer of any name, another address: it is still the same one.
    guarded.publish("s", "", &of("anna", 2), &facts(4)).await.problem(429, "publish_rate");
    let headers = [
        ("authorization", &*bearer(&of("anna", 3))),
        ("content-type", "application/json"),
        ("producer-id", "new"),
        ("producer-epoch", "1"),
        ("producer-seq", "0"),
    ];
    let numbered = guarded.client.post("/v1/runs/t/facts", &headers, json!(facts(4)).to_string()).await;
    numbered.problem(429, "publish_rate");
    assert_eq!(from_elsewhere(&guarded.client, "/v1/runs/u/facts", &of("anna", 1), &json!(facts(4))).await, 429);
    let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&of("anna", 4)))]).await.unwrap();
    let refused = ws.ask(json!({ "op": "publish", "id": 1, "runId": "v", "facts": facts(4) })).await;
    assert_eq!((&refused["code"], &refused["limit"]), (&json!("publish_rate"), &json!(1)));
    // Many share an address, and each has his own; also the same run, and the name of a producer that another one has.
    for other in ["bob", "carl"] {
        guarded.publish("r", "", &of(other, 1), &facts(4)).await.ok();
        guarded.publish("r", "", &of(other, 2), &facts(4)).await.problem(429, "publish_rate");
    }
}

#[tokio::test]
async fn a_body_that_waits_for_its_rate_does_not_outlast_its_token() {
    let guarded = Guarded::limited(Limits { publish: Some(Rate { facts: 1, burst: 1 }), ..Limits::default() }).await;
    let here = json!({ "sessions": ["*"], "can": ["publish"] });
    let short = token_of(&json!({ "sub": "anna", "exp": now() + SOON_OVER, "proscenium": here }));
    // A burst of sixty is paid for afterwards: the next fact would have to wait for a minute.
    let headers = [("authorization", &*bearer(&short)), ("content-type", "application/x-ndjson")];
    guarded.client.post("/v1/runs/r/facts", &headers, lines(&facts(60))).await.ok();
    let begun = std::time::Instant::now();
    let problem = guarded.client.post("/v1/runs/r/facts", &headers, lines(&facts(1))).await.problem(401, "unauthenticated");
    assert_eq!((&problem["reason"], &problem["accepted"]), (&json!("expired"), &json!(0)));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// How a stream is answered, and the stream.
async fn stream(guarded: &Guarded, via: Via, token: &str) -> Sse {
    guarded.stream(via, "/v1/runs/r/stream", token, None).await
}

async fn upgrade(guarded: &Guarded, token: &str) -> Result<Ws, u16> {
    match Ws::connect(&guarded.client, "", &[("authorization", &bearer(token))]).await {
        Ok(ws) => Ok(ws),
        Err(Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

/// Asks until the server has noticed that something was let go of.
async fn until_there_is_room(guarded: &Guarded, token: &str) -> Sse {
    soon("room", async {
        loop {
            let stream = stream(guarded, Via::Raw, token).await;
            if stream.status == 200 {
                return stream;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn what_is_open_counts_for_whom_the_tokens_are_for() {
    let guarded = Guarded::limited(Limits { connections_per_token_max: 3, ..Limits::default() }).await;
    let ticket = guarded.ticket(&of("anna", 9), json!({ "for": "stream", "run": "r" })).await;
    let socket_ticket = guarded.ticket(&of("anna", 9), json!({ "for": "ws" })).await;
    let first = stream(&guarded, Via::Raw, &of("anna", 1)).await;
    let second = stream(&guarded, Via::Hyper, &of("anna", 2)).await;
    let mut third = upgrade(&guarded, &of("anna", 3)).await.expect("it is the third");
    assert_eq!((first.status, second.status), (200, 200));
    // One WebSocket is one, whatever is subscribed to on it.
    for id in 1..5 {
        assert_eq!(third.ask(json!({ "op": "subscribe", "id": id, "run": "r" })).await["op"], "subscribed");
    }
    let fourth = of("anna", 4);
    for via in BOTH {
        let mut refused = stream(&guarded, via, &fourth).await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.headers["retry-after"], "2");
        let problem: Value = serde_json::from_slice(&refused.body().await).unwrap();
        assert_eq!((&problem["code"], &problem["limit"]), (&json!("too_many_connections_of_token"), &json!(3)));
    }
    assert_eq!(upgrade(&guarded, &fourth).await.err(), Some(429));
    assert_eq!(guarded.client.get(&format!("/v1/runs/r/stream?ticket={ticket}")).await.status, 429);
    assert!(matches!(
        Ws::connect(&guarded.client, &format!("?ticket={socket_ticket}"), &[]).await.err(),
        Some(Error::Http(answer)) if answer.status() == 429
    ));
    let mut ws = Ws::open(&guarded.client).await;
    assert_eq!(ws.ask(json!({ "op": "auth", "id": 1, "token": fourth })).await["code"], "too_many_connections_of_token");
    assert_eq!(ws.hear().await, Err(1013));
    let too_many = |answer: Answer| answer.problem(429, "too_many_connections_of_token");
    too_many(guarded.post("/v1/agents/a/controls/claim?wait=1", &fourth, &json!({})).await);
    let headers = [("authorization", &*bearer(&fourth)), ("content-type", "application/x-ndjson")];
    too_many(guarded.client.post("/v1/runs/r/facts", &headers, lines(&facts(1))).await);
    assert_eq!(from_elsewhere(&guarded.client, "/v1/agents/a/controls/claim?wait=1", &fourth, &json!({})).await, 429);
    let elsewhere = TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let socket: TcpStream = elsewhere.connect(guarded.client.at).await.unwrap();
    let header = bearer(&fourth);
    assert_eq!(Sse::ask(socket, Via::Raw, "/v1/runs/r/stream", &[("authorization", &header)]).await.status, 429);

    // What does not last is not counted, and others have their own.
    guarded.get("/v1/runs", &fourth).await.ok();
    guarded.publish("q", "", &fourth, &facts(1)).await.ok();
    guarded.post("/v1/agents/a/controls/claim", &fourth, &json!({})).await.ok();
    assert_eq!(stream(&guarded, Via::Raw, &of("bob", 1)).await.status, 200);

    // Whatever is let go of makes room for whatever else.
    drop(third);
    let again = until_there_is_room(&guarded, &fourth).await;
    assert_eq!(stream(&guarded, Via::Raw, &fourth).await.status, 429);
    drop(first);
    let one_more = until_there_is_room(&guarded, &fourth).await;
    drop((second, again, one_more));
    until_there_is_room(&guarded, &fourth).await;
}

//! The edge: who is let in, and what is answered at addresses that bring no facts and give no frames.

use crate::harness::{Client, local, local_with, soon};
use proscenium::feed::Sizes;
use proscenium::serve::Limits;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Says this to the server on a connection of its own, and reads until the server ends it.
async fn say(client: &Client, what: &str) -> String {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    socket.write_all(what.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    soon("the server to end the connection", socket.read_to_end(&mut said)).await.unwrap();
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_the_others_go_on() {
    let client = local_with(Sizes::default(), Limits { connections_max: 2, ..Limits::default() }).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(client.at).await.unwrap();
        socket.write_all(b"GET /v1/runs/r/stream?frames=events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 15];
        soon("a stream to open", socket.read_exact(&mut first)).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        held.push(socket);
    }
    let refused = say(&client, "").await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\"code\":\"too_many_connections\"") && refused.contains("\"limit\":2"), "{refused}");
    held.pop();
    // As soon as the server has noticed that one has gone, there is room.
    loop {
        let answer = say(&client, "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}

#[tokio::test]
async fn a_head_that_never_ends_or_is_too_long_holds_no_connection() {
    let limits = Limits { head_time_max: Duration::from_millis(50), head_bytes_max: 2000, ..Limits::default() };
    let client = local_with(Sizes::default(), limits).await;
    for method in ["GET /v1/runs/r/stream", "POST /v1/runs/r/facts", "PUT /"] {
        let cut = say(&client, &format!("{method} HTTP/1.1\r\nhost: localhost\r\nx-half: ")).await;
        assert!(cut.is_empty() || cut.starts_with("HTTP/1.1 4"), "{method}: {cut}");
    }
    let long =
        say(&client, &format!("GET /v1/runs/r/stream HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n", "x".repeat(500_000))).await;
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 4"), "{long}");
    client.get("/healthz").await.ok();
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_the_server_goes_on() {
    let client = local().await;
    for noise in ["\0\0\0\0", "GET\r\n\r\n", "HELO there\r\n\r\n", "POST /v1/runs/r/facts HTTP/1.1\r\ncontent-length: x\r\n\r\n"]
    {
        let answer = say(&client, noise).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{noise:?}: {answer}");
    }
    client.get("/healthz").await.ok();
}

#[tokio::test]
async fn one_connection_takes_posts_and_anything_else_in_turn() {
    let client = local().await;
    let fact = r#"{"type":"run.started"}"#;
    let post = |run: &str| {
        format!(
            "POST /v1/runs/{run}/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{fact}",
            fact.len()
        )
    };
    let rest = "GET /v1/runs/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let last = "GET /v1/runs/b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answers = say(&client, &[post("a"), post("b"), rest.into(), post("a"), last.into()].concat()).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 5, "{answers}");
    assert_eq!(answers.matches("\"accepted\":1").count(), 3, "{answers}");
    assert_eq!(client.get("/v1/runs/a").await.ok()["lastSequence"], 2);
}

#[tokio::test]
async fn an_address_with_a_fragment_is_the_same_whoever_carries_it() {
    let client = local().await;
    client.accept("r", &[json!({"type": "run.started"})]).await;
    for more in ["", "content-length: 0\r\n"] {
        let answer =
            say(&client, &format!("GET /v1/runs/r#/stream HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"runId\":\"r\""), "{answer}");
    }
}

#[tokio::test]
async fn health_readiness_and_schemas_are_served_and_other_addresses_are_problems() {
    let client = local().await;
    assert_eq!(client.get("/healthz").await.ok()["status"], "ok");
    assert_eq!(client.get("/readyz").await.ok()["status"], "ready");
    let schema = client.get("/schema/agentui-event.schema.json").await;
    assert_eq!(schema.headers["content-type"], "application/schema+json");
    assert_eq!(schema.ok()["type"], "object");
    client.get("/schema/none.json").await.problem(404, "no_such_schema");
    client.get("/nowhere").await.problem(404, "no_such_address");
    client.post("/v1/runs", &[], "").await.problem(405, "method_not_allowed");
    client.get("/v1/runs/r/stream?format=morse").await.problem(501, "not_served");
}

#[tokio::test]
async fn the_page_runs_only_its_own_scripts() {
    let client = local().await;
    let page = client.get("/").await;
    assert_eq!((page.status, &page.headers["content-type"]), (200, &"text/html; charset=utf-8".parse().unwrap()));
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("script-src 'self'") && !policy.contains("unsafe"),
        "{policy}"
    );
    let script = client.get("/assets/app.js").await;
    assert_eq!(&script.headers["content-type"], "text/javascript; charset=utf-8");
    let module = client.get("/assets/client/index.js").await;
    assert_eq!((module.status, &module.headers["content-type"]), (200, &script.headers["content-type"]));
    assert!(module.body == include_bytes!("../../web-demo/client/index.js"), "a module is served as it stands");
    assert_eq!(client.get("/assets/client/store.js").await.status, 200);
    for hidden in [
        "package.json",
        "node_modules/typescript/package.json",
        "client",
        "client/",
        "client/README.md",
        "client/absent.js",
        "client/../package.json",
        "client/..%2fpackage.json",
        "../Cargo.toml",
        "..%2fCargo.toml",
    ] {
        assert_eq!(client.get(&format!("/assets/{hidden}")).await.status, 404, "{hidden}");
    }
}

#[tokio::test]
async fn a_stop_ends_streams_and_loses_nothing_that_was_acknowledged() {
    let mut server = crate::harness::Process::start();
    let client = Client::new(server.at);
    client.accept("r", &[json!({"type": "run.started"})]).await;
    let mut stream = client.stream(crate::harness::Via::Raw, "r", "", None).await;
    assert_eq!(stream.frame().await.sequence(), 1);
    server.terminate();
    assert!(stream.next().await.is_none(), "the stream ends");
    assert!(server.wait().success(), "a stop that was asked for is no failure");
}

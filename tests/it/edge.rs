//! Connections and addresses without facts or frames.
//!
//! Limits, malformed requests, static files, and the stop.

use crate::harness::{Client, start_local, start_local_with, with_timeout};
use proscenium::feed::FeedConfig;
use proscenium::serve::Limits;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends these bytes on a new connection, and reads until the server closes it.
async fn send_raw(client: &Client, text: &str) -> String {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    socket.write_all(text.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    with_timeout("the server's close", socket.read_to_end(&mut response)).await.unwrap();
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn a_connection_above_the_limit_is_rejected_and_the_others_continue() {
    let client = start_local_with(FeedConfig::default(), Limits { connections_max: 2, ..Limits::default() }).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(client.at).await.unwrap();
        socket.write_all(b"GET /v1/runs/r/stream?frames=events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 15];
        with_timeout("the stream's head", socket.read_exact(&mut first)).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        held.push(socket);
    }
    let refused = send_raw(&client, "").await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\"code\":\"too_many_connections\"") && refused.contains("\"limit\":2"), "{refused}");
    held.pop();
    // The slot is free as soon as the server has noticed the close.
    loop {
        let answer = send_raw(&client, "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}

#[tokio::test]
async fn an_endless_or_oversized_request_head_holds_no_connection() {
    let limits = Limits { head_time_max: Duration::from_millis(50), head_bytes_max: 2000, ..Limits::default() };
    let client = start_local_with(FeedConfig::default(), limits).await;
    for method in ["GET /v1/runs/r/stream", "POST /v1/runs/r/facts", "PUT /"] {
        let cut = send_raw(&client, &format!("{method} HTTP/1.1\r\nhost: localhost\r\nx-half: ")).await;
        assert!(cut.is_empty() || cut.starts_with("HTTP/1.1 4"), "{method}: {cut}");
    }
    let long =
        send_raw(&client, &format!("GET /v1/runs/r/stream HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n", "x".repeat(500_000))).await;
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 4"), "{long}");
    client.get("/healthz").await.ok();
}

#[tokio::test]
async fn bytes_that_are_not_http_are_rejected_and_the_server_continues() {
    let client = start_local().await;
    for noise in ["\0\0\0\0", "GET\r\n\r\n", "HELO there\r\n\r\n", "POST /v1/runs/r/facts HTTP/1.1\r\ncontent-length: x\r\n\r\n"]
    {
        let answer = send_raw(&client, noise).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{noise:?}: {answer}");
    }
    client.get("/healthz").await.ok();
}

#[tokio::test]
async fn one_connection_carries_posts_and_other_requests_in_turn() {
    let client = start_local().await;
    let fact = r#"{"type":"run.started"}"#;
    let post = |run: &str| {
        format!(
            "POST /v1/runs/{run}/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{fact}",
            fact.len()
        )
    };
    let rest = "GET /v1/runs/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let last = "GET /v1/runs/b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answers = send_raw(&client, &[post("a"), post("b"), rest.into(), post("a"), last.into()].concat()).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 5, "{answers}");
    assert_eq!(answers.matches("\"accepted\":1").count(), 3, "{answers}");
    assert_eq!(client.get("/v1/runs/a").await.ok()["lastSequence"], 2);
}

#[tokio::test]
async fn a_target_with_a_fragment_is_routed_the_same_on_both_transports() {
    let client = start_local().await;
    client.append("r", &[json!({"type": "run.started"})]).await;
    for more in ["", "content-length: 0\r\n"] {
        let answer =
            send_raw(&client, &format!("GET /v1/runs/r#/stream HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n"))
                .await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"runId\":\"r\""), "{answer}");
    }
}

#[tokio::test]
async fn health_readiness_and_schemas_are_served_and_unknown_addresses_are_problems() {
    let client = start_local().await;
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
    let client = start_local().await;
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
    assert!(module.body == include_bytes!("../../web-demo/client/index.js"), "a module is served unchanged");
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
async fn the_service_worker_covers_the_page_and_is_asked_for_again_after_an_update() {
    let client = start_local().await;
    let worker = client.get("/push-worker.js").await;
    assert_eq!((worker.status, &worker.headers["content-type"]), (200, &"text/javascript; charset=utf-8".parse().unwrap()));
    let text = String::from_utf8(worker.body).unwrap();
    assert!(text.contains("addEventListener(\"push\"") && !text.contains("/**") && !text.contains("import"), "{text}");
    assert_eq!(worker.headers["cache-control"], "no-cache");
    let known = client.get_with("/push-worker.js", &[("if-none-match", worker.headers["etag"].to_str().unwrap())]).await;
    assert_eq!(known.status, 304);
}

#[tokio::test]
async fn the_elements_for_other_pages_have_one_address_and_are_small() {
    let client = start_local().await;
    let script = client.get("/embed.js").await;
    assert_eq!((script.status, &script.headers["content-type"]), (200, &"text/javascript; charset=utf-8".parse().unwrap()));
    assert_eq!(script.headers["cache-control"], "no-cache");
    let known = client.get_with("/embed.js", &[("if-none-match", script.headers["etag"].to_str().unwrap())]).await;
    assert_eq!(known.status, 304);

    // It leads to the chunks of this build. The first has decisions and the inbox.
    let text = String::from_utf8(script.body).unwrap();
    let path = addresses(&text, "from\"./")[0];
    let chunk = client.get_with(&format!("/{path}"), &[("accept-encoding", "gzip")]).await;
    assert_eq!((chunk.status, &chunk.headers["cache-control"]), (200, &"public, max-age=31536000, immutable".parse().unwrap()));
    assert!(chunk.body.len() < 60_000, "decisions and the inbox have {} bytes", chunk.body.len());
    let plain = String::from_utf8(client.get(&format!("/{path}")).await.body).unwrap();
    assert!(!plain.contains("\nimport{") && plain.contains("export const{") && plain.contains("setStrings"), "it is alone");
}

/// Returns the addresses that the page names between these two texts.
fn addresses<'p>(page: &'p str, before: &str) -> Vec<&'p str> {
    page.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[tokio::test]
async fn a_browser_keeps_the_files_of_the_page_and_asks_for_the_page_each_time() {
    let client = start_local().await;
    let page = client.get("/").await;
    assert_eq!(&page.headers["cache-control"], "no-cache");
    let text = String::from_utf8(page.body.clone()).unwrap();
    let files = [addresses(&text, "href=\"/assets/"), addresses(&text, "src=\"/assets/")].concat();
    assert_eq!(files.len(), 2, "one style sheet and one script: {text}");
    for file in files {
        let kept = client.get(&format!("/assets/{file}")).await;
        assert_eq!(
            (kept.status, &kept.headers["cache-control"]),
            (200, &"public, max-age=31536000, immutable".parse().unwrap()),
            "{file}"
        );
        let (_, path) = file.split_once('/').unwrap();
        let unversioned = client.get(&format!("/assets/{path}")).await;
        assert_eq!(&unversioned.headers["cache-control"], "no-cache", "{path}");
        assert_eq!(kept.body, unversioned.body, "{path}");
    }
    client.get("/assets/0123456789abcdef/app.js").await.problem(404, "no_such_asset");

    let tag = page.headers["etag"].to_str().unwrap();
    for known in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".into()] {
        let answer = client.get_with("/", &[("if-none-match", &known)]).await;
        assert_eq!((answer.status, answer.body.len(), &answer.headers["etag"]), (304, 0, &page.headers["etag"]), "{known}");
    }
    assert_eq!(client.get_with("/", &[("if-none-match", "\"other\"")]).await.status, 200);
}

#[tokio::test]
async fn the_page_has_the_smallest_encoding_that_a_client_accepts() {
    let client = start_local().await;
    for (accepted, encoding) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, deflate", Some("gzip")),
        ("br", Some("br")),
        ("br;q=0.5, GZIP;q=0.8", Some("gzip")),
        ("*", Some("br")),
        ("br;q=0, *;q=0.1", Some("gzip")),
        ("gzip;q=0, br;q=0, *", None),
        ("identity", None),
    ] {
        let script = client.get_with("/assets/app.js", &[("accept-encoding", accepted)]).await;
        assert_eq!(script.headers.get("content-encoding").map(|value| value.to_str().unwrap()), encoding, "{accepted}");
        assert_eq!(&script.headers["vary"], "accept-encoding");
        assert_eq!(script.body.starts_with(&[0x1f, 0x8b]), encoding == Some("gzip"), "{accepted}");
    }
    let mut tags = BTreeSet::new();
    for (accepted, limit) in [("identity", 450_000), ("gzip", 130_000), ("br", 115_000)] {
        let accepted = [("accept-encoding", accepted)];
        let page = client.get_with("/", &accepted).await;
        tags.insert(page.headers["etag"].to_str().unwrap().to_owned());
        let mut bytes = page.body.len();
        for file in ["page.css", "app.js", "surfaces/team.css", "surfaces/team.js", "tools/tools.css", "tools/scrubber.js"] {
            let answer = client.get_with(&format!("/assets/{file}"), &accepted).await;
            assert_eq!(answer.status, 200, "{file}");
            bytes += answer.body.len();
        }
        assert!(bytes < limit, "the files of the first load have {bytes} bytes, {limit} are the limit: {accepted:?}");
    }
    assert_eq!(tags.len(), 3, "each encoding has its own entity tag");
}

/// What a page of others loads for a pending approval: `tests/clients/embed.test.mjs` checks that it loads nothing else.
#[tokio::test]
async fn a_decision_on_a_page_of_others_loads_at_most_40_kb() {
    let client = start_local().await;
    let mut bytes = 0;
    for file in ["/embed.js", "/assets/embed/embed.js", "/assets/embed/surfaces/decision-record.js"] {
        let answer = client.get_with(file, &[("accept-encoding", "gzip")]).await;
        assert_eq!(answer.status, 200, "{file}");
        bytes += answer.body.len();
    }
    println!("A decision on a page of others loads {bytes} bytes.");
    assert!(bytes <= 40 * 1024, "a decision on a page of others loads {bytes} bytes");
}

#[tokio::test]
async fn a_stop_ends_streams_and_keeps_every_acknowledged_fact() {
    let mut server = crate::harness::Process::start();
    let client = Client::new(server.at);
    client.append("r", &[json!({"type": "run.started"})]).await;
    let mut stream = client.open_stream(crate::harness::Transport::Raw, "r", "", None).await;
    assert_eq!(stream.next_frame().await.sequence(), 1);
    server.terminate();
    assert!(stream.next().await.is_none(), "the stream has not ended");
    assert!(server.wait().success(), "a requested stop exits with success");
}

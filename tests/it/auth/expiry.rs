//! No permission outlasts its token.
//!
//! Slow reads, reads during a change of session, and requests to a stopping server.

use super::{AuthServer, HIDDEN, SECRET, SHORT_TTL_S, admin, bearer, now, reader, test_clock, token_with_claims};
use crate::harness::{Client, Process, Transport, fact, to_ndjson, with_timeout};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

#[tokio::test]
async fn an_export_that_is_read_slowly_is_cut_off_when_its_token_expires() {
    let clock = test_clock!();
    let guarded = AuthServer::start_with_clock(clock).await;
    let text = "x".repeat(900);
    let text_fact = fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } }));
    let headers = [("authorization", &*bearer(&admin())), ("content-type", "application/x-ndjson")];
    guarded.client.post("/v1/runs/r/facts", &headers, to_ndjson(&vec![text_fact; 12_000])).await.ok();
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let short = token_with_claims(&json!({ "sub": "user-1", "exp": now() + SHORT_TTL_S, "proscenium": here }));
    let mut ends = Vec::new();
    for token in [short, admin()] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut socket: TcpStream = socket.connect(guarded.client.at).await.unwrap();
        let request = format!(
            "GET /v1/runs/r/export HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: {}\r\n\r\n",
            bearer(&token)
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        with_timeout("the start of the export", socket.read_buf(&mut read)).await.unwrap();
        assert!(read.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&read));
        if ends.is_empty() {
            // All that the first token holds open ends at once.
            let mut other = guarded.open_stream(Transport::Raw, "/v1/runs/never/stream", &token, None).await;
            clock.expire_short_tokens();
            assert_eq!(super::read_error(&mut other).await["reason"], "expired");
        }
        // The connection may end with a reset.
        let _ = with_timeout("the end", socket.read_to_end(&mut read)).await;
        ends.push((read.ends_with(b"\r\n0\r\n\r\n"), read.len()));
    }
    let [(is_whole, cut), (other_is_whole, all)] = ends[..] else { unreachable!("there are two readers") };
    assert!(!is_whole && other_is_whole && cut < all, "{ends:?}");
}

/// The minimum number of session changes and of reads.
const ROUNDS_MIN: usize = 30;

/// A run moves between sessions `s` and `t` again and again.
///
/// In `t` it has a text that readers of `s` must not see.
#[tokio::test]
async fn a_reader_gets_no_text_of_another_session_while_a_run_changes_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--auth-key", key.to_str().unwrap(), "--workers", "2", "--sync", "never"];
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    let over = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    let paths = [
        "/v1/runs/r",
        "/v1/runs/r/events",
        "/v1/runs/r/activities",
        "/v1/runs/r/export",
        "/v1/sessions/s",
        "/v1/sessions/s/window",
    ];
    for path in paths {
        let (client, over, reads) = (client.clone(), over.clone(), reads.clone());
        readers.push(tokio::spawn(async move {
            let token = bearer(&reader(json!({ "sessions": ["s"] })));
            while !over.load(Ordering::SeqCst) {
                let answer = client.get_with(path, &[("authorization", &token)]).await;
                let text = String::from_utf8_lossy(&answer.body);
                assert!(!text.contains(HIDDEN), "{path}: {}", text.chars().take(600).collect::<String>());
                reads.fetch_add(usize::from(text.contains("for all of s")), Ordering::SeqCst);
            }
        }));
    }
    let header = bearer(&admin());
    let headers = [("authorization", &*header), ("content-type", "application/json")];
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut rounds = 0;
    while rounds < ROUNDS_MIN || reads.load(Ordering::SeqCst) < ROUNDS_MIN {
        for (session, text) in [("s", "for all of s"), ("t", HIDDEN)] {
            let text_fact = |n: u32| fact("text.final", json!({ "messageId": format!("m{n}"), "payload": { "text": text } }));
            let text_fact: Vec<Value> = (0..20).map(text_fact).collect();
            client.post(&format!("/v1/runs/r/facts?sessionId={session}"), &headers, json!(text_fact).to_string()).await.ok();
            let erase = http.delete(format!("http://{}/v1/runs/r", server.at)).header("authorization", &header);
            assert_eq!(with_timeout("the erasure", erase.send()).await.unwrap().status(), 204);
        }
        rounds += 1;
    }
    over.store(true, Ordering::SeqCst);
    for reader in readers {
        with_timeout("a reader", reader).await.unwrap();
    }
}

#[tokio::test]
async fn a_stopping_server_gives_its_metrics_only_to_tokens_that_may_read_them() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let mut server = Process::start_with(dir.path(), &["--auth-key", key.to_str().unwrap(), "--drain-ms", "8000"]);
    // The server stays up while a connection is open.
    let mut streams = Vec::new();
    for _ in 0..32 {
        let socket = TcpStream::connect(server.at).await.unwrap();
        let header = bearer(&admin());
        streams.push(
            crate::harness::Sse::open(socket, crate::harness::Transport::Raw, "/v1/runs/r/stream", &[("authorization", &header)])
                .await,
        );
    }
    server.terminate();
    let probe = async |path: &str, token: Option<&str>| {
        let mut socket = TcpStream::connect(server.at).await.unwrap();
        let token = token.map(|token| format!("authorization: {}\r\n", bearer(token))).unwrap_or_default();
        socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{token}\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        // A connection stays open for the next request until the signal has arrived.
        let _ = tokio::time::timeout(Duration::from_millis(300), socket.read_to_string(&mut answer)).await;
        answer
    };
    with_timeout("the server's reaction to the signal", async {
        while !probe("/readyz", None).await.starts_with("HTTP/1.1 503") {}
    })
    .await;
    assert!(probe("/healthz", None).await.starts_with("HTTP/1.1 200"));
    assert!(probe("/metrics", Some(&admin())).await.contains("proscenium_build_info"));
    let reads = reader(json!({ "sessions": ["*"] }));
    for token in [None, Some("a.b.c"), Some(&*reads)] {
        let response = probe("/metrics", token).await;
        assert!(response.starts_with("HTTP/1.1 503") && !response.contains("proscenium_"), "{response}");
    }
    drop(streams);
    assert!(server.wait().success());
}

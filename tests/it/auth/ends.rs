//! Nothing outlasts the right to it: what is read slowly, what is read while it changes hands, and what is asked of a server that
//! stops.

use super::{Guarded, HIDDEN, SECRET, SOON_OVER, admin, bearer, now, reader, token_of};
use crate::harness::{Client, PATIENCE, Process, fact, lines, soon};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

#[tokio::test]
async fn an_export_that_is_read_slowly_is_cut_off_when_its_token_is_over() {
    let guarded = Guarded::start().await;
    let text = "x".repeat(900);
    let said = fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } }));
    let headers = [("authorization", &*bearer(&admin())), ("content-type", "application/x-ndjson")];
    guarded.client.post("/v1/runs/r/facts", &headers, lines(&vec![said; 12_000])).await.ok();
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let short = token_of(&json!({ "sub": "somebody", "exp": now() + SOON_OVER, "proscenium": here }));
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
        soon("the beginning", socket.read_buf(&mut read)).await.unwrap();
        assert!(read.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&read));
        // The first token is over by then, and so is the clock's next look at it.
        if ends.is_empty() {
            tokio::time::sleep(Duration::from_secs(SOON_OVER.unsigned_abs() + 1)).await;
        }
        // It may end with a reset.
        let _ = soon("the end", socket.read_to_end(&mut read)).await;
        ends.push((read.ends_with(b"\r\n0\r\n\r\n"), read.len()));
    }
    let [(is_whole, cut), (other_is_whole, all)] = ends[..] else { unreachable!("there were two") };
    assert!(!is_whole && other_is_whole && cut < all, "{ends:?}");
}

/// How often a run changes hands at least, and how often something of it is read.
const ENOUGH: usize = 11;

/// A run changes hands again and again: now it is of session `s`, now of `t`, where something is said that nobody in `s` may hear.
#[tokio::test]
async fn what_is_read_while_a_run_changes_hands_is_of_the_one_who_reads() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--auth-key", key.to_str().unwrap(), "--workers", "2", "--sync", "never"];
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    let over = Arc::new(AtomicBool::new(false));
    let heard = Arc::new(AtomicUsize::new(0));
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
        let (client, over, heard) = (client.clone(), over.clone(), heard.clone());
        readers.push(tokio::spawn(async move {
            let token = bearer(&reader(json!({ "sessions": ["s"] })));
            while !over.load(Ordering::SeqCst) {
                let answer = client.get_with(path, &[("authorization", &token)]).await;
                let text = String::from_utf8_lossy(&answer.body);
                assert!(!text.contains(HIDDEN), "{path}: {}", text.chars().take(600).collect::<String>());
                heard.fetch_add(usize::from(text.contains("for all of s")), Ordering::SeqCst);
            }
        }));
    }
    let header = bearer(&admin());
    let headers = [("authorization", &*header), ("content-type", "application/json")];
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let begun = std::time::Instant::now();
    let mut rounds = 0;
    // For a while, and until enough was read in it, however slow the machine.
    while begun.elapsed() < Duration::from_secs(3) || rounds < ENOUGH || heard.load(Ordering::SeqCst) < ENOUGH {
        assert!(begun.elapsed() < PATIENCE, "{rounds} rounds, {heard:?} heard");
        for (session, text) in [("s", "for all of s"), ("t", HIDDEN)] {
            let said = |n: u32| fact("text.final", json!({ "messageId": format!("m{n}"), "payload": { "text": text } }));
            let said: Vec<Value> = (0..20).map(said).collect();
            client.post(&format!("/v1/runs/r/facts?sessionId={session}"), &headers, json!(said).to_string()).await.ok();
            let erase = http.delete(format!("http://{}/v1/runs/r", server.at)).header("authorization", &header);
            assert_eq!(soon("it to be erased", erase.send()).await.unwrap().status(), 204);
        }
        rounds += 1;
    }
    over.store(true, Ordering::SeqCst);
    for reader in readers {
        soon("a reader", reader).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_stops_gives_its_metrics_to_nobody_else_than_before() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let mut server = Process::start_with(dir.path(), &["--auth-key", key.to_str().unwrap(), "--drain-ms", "8000"]);
    // For as long as there are some, the server is there.
    let mut streams = Vec::new();
    for _ in 0..32 {
        let socket = TcpStream::connect(server.at).await.unwrap();
        let header = bearer(&admin());
        streams.push(
            crate::harness::Sse::ask(socket, crate::harness::Via::Raw, "/v1/runs/r/stream", &[("authorization", &header)]).await,
        );
    }
    server.terminate();
    let probe = async |path: &str, token: Option<&str>| {
        let mut socket = TcpStream::connect(server.at).await.unwrap();
        let token = token.map(|token| format!("authorization: {}\r\n", bearer(token))).unwrap_or_default();
        socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{token}\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        // Until the signal has come a connection stays open for the next request.
        let _ = tokio::time::timeout(Duration::from_millis(300), socket.read_to_string(&mut answer)).await;
        answer
    };
    soon("the server to hear of it", async { while !probe("/readyz", None).await.starts_with("HTTP/1.1 503") {} }).await;
    assert!(probe("/healthz", None).await.starts_with("HTTP/1.1 200"));
    assert!(probe("/metrics", Some(&admin())).await.contains("proscenium_build_info"));
    let reads = reader(json!({ "sessions": ["*"] }));
    for token in [None, Some("a.b.c"), Some(&*reads)] {
        let told = probe("/metrics", token).await;
        assert!(told.starts_with("HTTP/1.1 503") && !told.contains("proscenium_"), "{told}");
    }
    drop(streams);
    assert!(server.wait().success());
}

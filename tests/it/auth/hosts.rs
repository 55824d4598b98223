//! By which names the server may be asked: where nobody is asked who they are, a name that anybody can give to this machine
//! (DNS rebinding) opens nothing.

use super::{FRIEND, Guarded, admin, bearer};
use crate::harness::{Client, Process, fact, local, prepare, serve_it, soon, world};
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::log::AnyStore;
use proscenium::log::memory::MemoryStore;
use proscenium::serve::origin::{Hosts, Origins};
use proscenium::serve::tls::{Files, Tls};
use proscenium::serve::{Limits, Pulse, Server};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn server() -> Server {
    let (sizes, limits, pulse) = (Sizes::default(), Limits::default(), Pulse::default());
    let store = AnyStore::Memory(MemoryStore::new());
    Server::new(store, Policy::default(), sizes, limits, pulse, world(jiff::Timestamp::now)).unwrap()
}

async fn client(server: Server) -> Client {
    serve_it(server, std::future::pending()).await.0
}

/// The status of the answer to a request with this head, and its body.
async fn ask(client: &Client, line: &str, headers: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    socket.write_all(format!("{line}\r\n{headers}\r\n{body}").as_bytes()).await.unwrap();
    let mut said = Vec::new();
    soon("an answer", async {
        // A stream goes on: its head is enough.
        while !(said.ends_with(b"}") || String::from_utf8_lossy(&said).contains("\r\n\r\n") && !said.starts_with(b"HTTP/1.1 4")) {
            if socket.read_buf(&mut said).await.unwrap() == 0 {
                break;
            }
        }
    })
    .await;
    let said = String::from_utf8(said).unwrap();
    let status = said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{said:?}"));
    (status, said)
}

/// Every way in: the server's own sockets for a stream and for facts, hyper for the rest, and a WebSocket's handshake.
const WAYS: [(&str, &str, &str); 7] = [
    ("GET /v1/runs/r/stream HTTP/1.1", "", ""),
    ("POST /v1/runs/w/facts HTTP/1.1", "content-length: 24\r\n", r#"[{"type":"run.started"}]"#),
    ("POST /v1/runs/w/facts HTTP/1.1", "transfer-encoding: chunked\r\n", "0\r\n\r\n"),
    ("GET /v1/runs HTTP/1.1", "", ""),
    ("GET / HTTP/1.1", "", ""),
    ("GET /healthz HTTP/1.1", "", ""),
    (
        "GET /v1/ws HTTP/1.1",
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "",
    ),
];

async fn is_let_in(client: &Client, host: &str) -> bool {
    let mut let_in = Vec::new();
    for (line, headers, body) in WAYS {
        // As a page of that name would: its own origin is the host that it asks.
        for origin in ["", "sec-fetch-site: same-origin\r\n", &format!("origin: http://{host}\r\n")] {
            let (status, said) = ask(client, line, &format!("host: {host}\r\n{origin}{headers}"), body).await;
            let is_in = !said.contains("\"code\":\"unknown_host\"");
            assert_eq!(is_in, status != 403, "{line} {host}: {said}");
            if !is_in {
                let (_, body) = said.split_once("\r\n\r\n").unwrap();
                let problem: Value = serde_json::from_str(body).unwrap();
                crate::schema::assert_valid("problem.schema.json", &problem);
                assert_eq!(problem["host"], host);
                let detail = problem["detail"].as_str().unwrap();
                assert!(detail.contains(host) && detail.contains(&format!("--cors-origin http://{host}")), "{detail}");
                assert!(detail.contains("--auth-key"), "{detail}");
            }
            let_in.push(is_in);
        }
    }
    assert!(let_in.windows(2).all(|pair| pair[0] == pair[1]), "every way in says the same of {host}: {let_in:?}");
    let_in[0]
}

#[tokio::test]
async fn a_name_that_anybody_can_give_to_this_machine_opens_nothing() {
    let client = local().await;
    let port = client.at.port();
    client.accept("r", &[fact("run.started", json!({}))]).await;
    for other in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example"] {
        assert!(!is_let_in(&client, other).await && !is_let_in(&client, &format!("{other}:{port}")).await, "{other}");
    }
    assert_eq!(client.get("/v1/runs/w").await.status, 404, "nothing was written");
    for own in ["127.0.0.1", "localhost", "app.localhost", "[::1]", "192.168.1.7", "LOCALHOST."] {
        assert!(is_let_in(&client, own).await && is_let_in(&client, &format!("{own}:{port}")).await, "{own}");
    }
    // Where the target names a host, that one counts, too; and two hosts are one too many.
    for (line, headers) in [
        ("GET http://evil.example/healthz HTTP/1.1", "host: localhost\r\n"),
        ("GET http://evil.example/v1/runs/r/stream HTTP/1.1", "host: localhost\r\n"),
        ("GET /v1/runs/r/stream HTTP/1.1", "host: localhost\r\nhost: evil.example\r\n"),
    ] {
        let (status, said) = ask(&client, line, headers, "").await;
        assert!(matches!(status, 400 | 403), "{said}");
    }
    // Whoever says no host at all is no browser.
    assert_eq!(ask(&client, "GET /healthz HTTP/1.0", "", "").await.0, 200);
}

#[tokio::test]
async fn names_that_the_operator_gives_are_the_servers_own() {
    let named = client(server().known_as(Hosts::of_listen("box.example:8787"))).await;
    assert!(is_let_in(&named, "Box.example").await && is_let_in(&named, "box.example:1").await);
    assert!(!is_let_in(&named, "a.box.example").await);
    let friendly = client(server().asking(None, Origins::new([FRIEND]).unwrap())).await;
    assert!(is_let_in(&friendly, "app.example").await && !is_let_in(&friendly, "evil.example").await);
    let open = client(server().known_as(Hosts::Any)).await;
    assert!(is_let_in(&open, "evil.example").await);
}

#[tokio::test]
async fn where_everybody_is_asked_a_name_does_not_matter() {
    let guarded = Guarded::start().await;
    let admin = bearer(&admin());
    let answer = guarded.client.get_with("/v1/runs", &[("host", "evil.example"), ("authorization", &admin)]).await;
    assert_eq!(answer.ok()["runs"], json!([]));
    guarded.client.get_with("/v1/runs", &[("host", "evil.example")]).await.problem(401, "unauthenticated");
}

#[tokio::test]
async fn the_binary_holds_to_it_unless_it_is_told_to_be_insecure() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, status) in [(&[][..], 403), (&["--insecure"], 200), (&["--cors-origin", "https://evil.example"], 200)] {
        let server = Process::start_with(dir.path(), flags);
        let client = Client::new(server.at);
        assert_eq!(client.get_with("/v1/runs", &[("host", "evil.example")]).await.status, status, "{flags:?}");
        assert_eq!(client.get("/v1/runs").await.status, 200);
    }
}

#[tokio::test]
async fn over_http_2_the_name_is_in_the_address_and_counts_as_well() {
    prepare();
    let dir = tempfile::tempdir().unwrap();
    let files = Files { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    let names = ["evil.example".to_owned(), "localhost".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    let at = client(server().over(Some(Arc::new(Tls::load(files).unwrap())))).await.at;
    let certificate = reqwest::Certificate::from_pem(cert.pem().as_bytes()).unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).resolve("evil.example", at).build().unwrap();
    for (host, status) in [("evil.example", 403), ("localhost", 200)] {
        let answer = soon("an answer", http.get(format!("https://{host}:{}/v1/runs", at.port())).send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (status, reqwest::Version::HTTP_2), "{host}");
        let body: Value = soon("a body", answer.json()).await.unwrap();
        assert_eq!(body["code"] == "unknown_host", status == 403, "{body}");
    }
}

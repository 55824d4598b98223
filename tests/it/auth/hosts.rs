//! Host names of the server.
//!
//! Without authentication, a name that an attacker can point at this machine (DNS rebinding) is rejected.

use super::{AuthServer, FRIEND, admin, bearer};
use crate::harness::{Client, Process, environment, fact, install_crypto_provider, serve_until, start_local, with_timeout};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::access::origin::{Hosts, Origins};
use proscenium::serve::transport::tls::{Files, Tls};
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn server() -> Server {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let store = Storage::memory();
    Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now)).unwrap()
}

async fn serve_client(server: Server) -> Client {
    serve_until(server, std::future::pending()).await.0
}

/// Sends a request with this head and body; returns the response's status and text.
async fn send_request(client: &Client, line: &str, headers: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    socket.write_all(format!("{line}\r\n{headers}\r\n{body}").as_bytes()).await.unwrap();
    let mut response = Vec::new();
    with_timeout("an answer", async {
        // A stream goes on: its head is enough.
        while !(response.ends_with(b"}")
            || String::from_utf8_lossy(&response).contains("\r\n\r\n") && !response.starts_with(b"HTTP/1.1 4"))
        {
            if socket.read_buf(&mut response).await.unwrap() == 0 {
                break;
            }
        }
    })
    .await;
    let response = String::from_utf8(response).unwrap();
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{response:?}"));
    (status, response)
}

/// Every entry point.
///
/// The server's own socket code for a stream and for facts, hyper for the rest, and a WebSocket's handshake.
const ENTRY_POINTS: [(&str, &str, &str); 7] = [
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

async fn is_accepted(client: &Client, host: &str) -> bool {
    let mut accepted = Vec::new();
    for (line, headers, body) in ENTRY_POINTS {
        // As a page of that name would: its origin is the host that it requests.
        for origin in ["", "sec-fetch-site: same-origin\r\n", &format!("origin: http://{host}\r\n")] {
            let (status, response) = send_request(client, line, &format!("host: {host}\r\n{origin}{headers}"), body).await;
            let is_accepted_here = !response.contains("\"code\":\"unknown_host\"");
            assert_eq!(is_accepted_here, status != 403, "{line} {host}: {response}");
            if !is_accepted_here {
                let (_, body) = response.split_once("\r\n\r\n").unwrap();
                let problem: Value = serde_json::from_str(body).unwrap();
                crate::schema::assert_valid("problem.schema.json", &problem);
                assert_eq!(problem["host"], host);
                let detail = problem["detail"].as_str().unwrap();
                assert!(detail.contains(host) && detail.contains(&format!("--cors-origin http://{host}")), "{detail}");
                assert!(detail.contains("--auth-key"), "{detail}");
            }
            accepted.push(is_accepted_here);
        }
    }
    assert!(accepted.windows(2).all(|pair| pair[0] == pair[1]), "the entry points disagree on {host}: {accepted:?}");
    accepted[0]
}

#[tokio::test]
async fn a_name_that_an_attacker_can_point_at_this_machine_is_rejected() {
    let client = start_local().await;
    let port = client.at.port();
    client.append("r", &[fact("run.started", json!({}))]).await;
    for other in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example"] {
        assert!(!is_accepted(&client, other).await && !is_accepted(&client, &format!("{other}:{port}")).await, "{other}");
    }
    assert_eq!(client.get("/v1/runs/w").await.status, 404, "the server wrote nothing");
    for own in ["127.0.0.1", "localhost", "app.localhost", "[::1]", "192.168.1.7", "LOCALHOST."] {
        assert!(is_accepted(&client, own).await && is_accepted(&client, &format!("{own}:{port}")).await, "{own}");
    }
    // A host in the request target counts, too; and two different hosts are rejected.
    for (line, headers) in [
        ("GET http://evil.example/healthz HTTP/1.1", "host: localhost\r\n"),
        ("GET http://evil.example/v1/runs/r/stream HTTP/1.1", "host: localhost\r\n"),
        ("GET /v1/runs/r/stream HTTP/1.1", "host: localhost\r\nhost: evil.example\r\n"),
    ] {
        let (status, response) = send_request(&client, line, headers, "").await;
        assert!(matches!(status, 400 | 403), "{response}");
    }
    // A client that sends no host is not a browser.
    assert_eq!(send_request(&client, "GET /healthz HTTP/1.0", "", "").await.0, 200);
}

#[tokio::test]
async fn names_configured_by_the_operator_are_accepted() {
    let named = serve_client(server().with_hosts(Hosts::of_listen("box.example:8787"))).await;
    assert!(is_accepted(&named, "Box.example").await && is_accepted(&named, "box.example:1").await);
    assert!(!is_accepted(&named, "a.box.example").await);
    let friendly = serve_client(server().with_auth(None, Origins::new([FRIEND]).unwrap())).await;
    assert!(is_accepted(&friendly, "app.example").await && !is_accepted(&friendly, "evil.example").await);
    let open = serve_client(server().with_hosts(Hosts::Any)).await;
    assert!(is_accepted(&open, "evil.example").await);
}

#[tokio::test]
async fn with_authentication_the_host_name_does_not_matter() {
    let guarded = AuthServer::start().await;
    let admin = bearer(&admin());
    let answer = guarded.client.get_with("/v1/runs", &[("host", "evil.example"), ("authorization", &admin)]).await;
    assert_eq!(answer.ok()["runs"], json!([]));
    guarded.client.get_with("/v1/runs", &[("host", "evil.example")]).await.problem(401, "unauthenticated");
}

#[tokio::test]
async fn the_binary_checks_the_host_name_unless_it_is_insecure() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, status) in [(&[][..], 403), (&["--insecure"], 200), (&["--cors-origin", "https://evil.example"], 200)] {
        let server = Process::start_with(dir.path(), flags);
        let client = Client::new(server.at);
        assert_eq!(client.get_with("/v1/runs", &[("host", "evil.example")]).await.status, status, "{flags:?}");
        assert_eq!(client.get("/v1/runs").await.status, 200);
    }
}

#[tokio::test]
async fn over_http_2_the_name_in_the_authority_is_checked() {
    install_crypto_provider();
    let dir = tempfile::tempdir().unwrap();
    let files = Files { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    let names = ["evil.example".to_owned(), "localhost".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    let at = serve_client(server().with_tls(Some(Arc::new(Tls::load(files).unwrap())))).await.at;
    let certificate = reqwest::Certificate::from_pem(cert.pem().as_bytes()).unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).resolve("evil.example", at).build().unwrap();
    for (host, status) in [("evil.example", 403), ("localhost", 200)] {
        let answer = with_timeout("an answer", http.get(format!("https://{host}:{}/v1/runs", at.port())).send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (status, reqwest::Version::HTTP_2), "{host}");
        let body: Value = with_timeout("a body", answer.json()).await.unwrap();
        assert_eq!(body["code"] == "unknown_host", status == 403, "{body}");
    }
}

#[tokio::test]
async fn only_pages_of_embed_origins_frame_the_page_and_they_may_send_requests() {
    let origins = Origins::new([FRIEND]).unwrap().with_embedders(["https://shop.example"]).unwrap();
    let client = serve_client(server().with_auth(None, origins)).await;
    let page = client.get("/").await;
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.ends_with("; frame-ancestors https://shop.example"), "{policy}");
    assert!(policy.contains("manifest-src 'self'; worker-src 'self'"), "{policy}");
    assert!(!page.headers.contains_key("x-frame-options"), "it cannot name an origin");
    for path in ["/embed.js", "/healthz"] {
        let answer = client.get_with(path, &[("origin", "https://shop.example")]).await;
        assert_eq!(
            (answer.status, &answer.headers["access-control-allow-origin"]),
            (200, &"https://shop.example".parse().unwrap())
        );
        client.get_with(path, &[("origin", "https://evil.example")]).await.problem(403, "foreign_origin");
    }
    let refused = Origins::default().with_embedders(["https://app.example; script-src *"]).unwrap_err();
    assert!(refused.contains("is not an origin; use scheme://host"), "{refused}");
}

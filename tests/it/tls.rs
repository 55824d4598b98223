//! TLS and HTTP/2: the behaviour of plain sockets, and the errors of handshakes.

use crate::cli::{proscenium, run};
use crate::harness::{Process, TIMEOUT, environment, fact, install_crypto_provider, to_ndjson, with_timeout};
use futures_util::{SinkExt, StreamExt};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::transport::tls::{Files, Tls};
use proscenium::serve::{KeepAlive, Limits, Server};
use proscenium_reporter::Reporter;
use reqwest::{Response, Version};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::Message;

const TRANSPORTS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

/// A self-signed certificate and its key, as PEM.
struct Pair {
    cert: String,
    key: String,
}

impl Pair {
    fn new() -> Self {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
        Self { cert: cert.pem(), key: signing_key.serialize_pem() }
    }

    /// Writes both to a directory.
    fn write(&self, dir: &Path) -> Files {
        let files = Files { cert: dir.join("cert.pem"), key: dir.join("key.pem") };
        std::fs::write(&files.cert, &self.cert).unwrap();
        std::fs::write(&files.key, &self.key).unwrap();
        files
    }

    /// Builds a client that trusts only this certificate and speaks this version.
    fn client(&self, version: Version) -> reqwest::Client {
        install_crypto_provider();
        let certificate = reqwest::Certificate::from_pem(self.cert.as_bytes()).unwrap();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).timeout(TIMEOUT);
        let client = if version == Version::HTTP_11 { client.http1_only() } else { client };
        client.build().unwrap()
    }

    /// Opens a TLS connection.
    async fn connect(&self, at: SocketAddr, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        install_crypto_provider();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let socket = TcpStream::connect(at).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::from(at.ip()), socket).await
    }
}

/// A server in this test with TLS.
struct Secure {
    at: SocketAddr,
    pair: Pair,
    tls: Arc<Tls>,
    dir: TempDir,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Secure {
    async fn start() -> Self {
        Self::start_with_limits(Limits::default()).await
    }

    async fn start_with_limits(limits: Limits) -> Self {
        let (dir, pair) = (tempfile::tempdir().unwrap(), Pair::new());
        let tls = Arc::new(Tls::load(pair.write(dir.path())).unwrap());
        let pulse = KeepAlive { drain: Duration::from_millis(50), ..KeepAlive::default() };
        let store = Storage::memory();
        let server =
            Server::new(store, Policy::default(), FeedConfig::default(), limits, pulse, environment(jiff::Timestamp::now));
        let server = server.unwrap().with_tls(Some(tls.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move { server.run(listener, async { drop(stopped.await) }).await.unwrap() });
        Self { at, pair, tls, dir, stop: Some(stop), serving }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.at)
    }

    async fn post(&self, client: &reqwest::Client, run: &str, facts: &[Value]) -> Value {
        let request = client.post(self.url(&format!("/v1/runs/{run}/facts"))).json(&facts);
        let answer = with_timeout("a response", request.send()).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    }

    async fn open_stream(&self, client: &reqwest::Client, run: &str) -> Stream {
        let url = self.url(&format!("/v1/runs/{run}/stream?frames=events"));
        let answer = with_timeout("a stream", client.get(url).send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.headers()["content-type"]), (200, &"text/event-stream".parse().unwrap()));
        Stream { answer, text: String::new() }
    }

    async fn assert_healthy(&self) {
        let answer = self.pair.client(Version::HTTP_11).get(self.url("/healthz")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}

/// A stream, and the text read so far.
struct Stream {
    answer: Response,
    text: String,
}

impl Stream {
    /// Reads until the text contains `what`.
    async fn read_until(&mut self, what: &str) {
        while !self.text.contains(what) {
            let chunk = with_timeout(what, self.answer.chunk())
                .await
                .unwrap()
                .unwrap_or_else(|| panic!("the stream ended before {what}"));
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Reads to the end, and asserts a clean end.
    async fn read_to_end(mut self) -> String {
        while let Some(chunk) = with_timeout("the end of a stream", self.answer.chunk()).await.expect("the stream ends cleanly") {
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        self.text
    }
}

fn text_delta(words: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "payload": {"text": words}}))
}

fn finished() -> Value {
    fact("run.finished", json!({}))
}

#[tokio::test]
async fn facts_streams_and_pages_are_the_same_over_both_http_versions() {
    let server = Secure::start().await;
    for version in TRANSPORTS {
        let (client, run) = (server.pair.client(version), format!("{version:?}").replace(['/', '.'], "-"));
        let mut stream = server.open_stream(&client, &run).await;
        assert_eq!(stream.answer.version(), version);
        let receipt = server.post(&client, &run, &[text_delta("one")]).await;
        assert_eq!((&receipt["accepted"], &receipt["lastSequence"]), (&json!(1), &json!(1)));
        stream.read_until("\"sequence\":1,").await;

        // A streamed body: each line is sent after the stream has shown the one before.
        let (sender, receiver) = tokio::sync::mpsc::channel::<String>(1);
        let body = futures_util::stream::unfold(receiver, async |mut receiver| {
            let line = receiver.recv().await?;
            Some((Ok::<_, Infallible>(line), receiver))
        });
        let request = client
            .post(server.url(&format!("/v1/runs/{run}/facts")))
            .header("content-type", "application/x-ndjson")
            .body(reqwest::Body::wrap_stream(body));
        let answer = tokio::spawn(request.send());
        for (fact, sequence) in [(text_delta("two"), 2), (text_delta("three"), 3), (finished(), 4)] {
            sender.send(to_ndjson(&[fact])).await.unwrap();
            stream.read_until(&format!("\"sequence\":{sequence},")).await;
        }
        drop(sender);
        let receipt: Value = with_timeout("a receipt", answer).await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(receipt["accepted"], 3, "{receipt}");
        let text = stream.read_to_end().await;
        assert_eq!((text.matches("\"frame\":\"Event\"").count(), text.matches("\"frame\":\"End\"").count()), (4, 1), "{text}");

        let page = client.get(server.url(&format!("/v1/runs/{run}/events"))).send().await.unwrap();
        assert_eq!(page.version(), version);
        assert_eq!(page.json::<Value>().await.unwrap()["events"].as_array().unwrap().len(), 4);
        let missing = client.get(server.url("/v1/runs/never")).send().await.unwrap();
        assert_eq!(
            (missing.status().as_u16(), missing.json::<Value>().await.unwrap()["code"].as_str()),
            (404, Some("no_such_run"))
        );
    }
}

#[tokio::test]
async fn a_hundred_streams_share_one_connection() {
    let server = Secure::start_with_limits(Limits { connections_max: 1, ..Limits::default() }).await;
    let client = server.pair.client(Version::HTTP_2);
    // From here on one connection exists, and the limit permits no other.
    assert_eq!(client.get(server.url("/healthz")).send().await.unwrap().version(), Version::HTTP_2);
    let mut streams = Vec::new();
    for n in 0..100 {
        streams.push(server.open_stream(&client, &format!("r{n}")).await);
    }
    for n in (0..100).rev() {
        server.post(&client, &format!("r{n}"), &[text_delta(&format!("of {n}")), finished()]).await;
    }
    for (n, stream) in streams.into_iter().enumerate() {
        let text = stream.read_to_end().await;
        assert!(text.contains(&format!("\"of {n}\"")) && text.contains("\"frame\":\"End\""), "{text}");
    }
}

#[tokio::test]
async fn a_stream_above_the_limit_waits_until_another_has_ended() {
    let server = Secure::start_with_limits(Limits { streams_max: 2, ..Limits::default() }).await;
    let client = server.pair.client(Version::HTTP_2);
    client.get(server.url("/healthz")).send().await.unwrap();
    let (first, _second) = (server.open_stream(&client, "a").await, server.open_stream(&client, "b").await);
    let mut third = Box::pin(server.open_stream(&client, "c"));
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut third).await.is_err(), "no slot is free");
    drop(first);
    with_timeout("the third stream", third).await.read_until(":\n").await;
}

#[tokio::test]
async fn a_websocket_needs_http_1_1() {
    let server = Secure::start().await;
    let socket = server.pair.connect(server.at, &["http/1.1"]).await.unwrap();
    let request = format!("wss://{}/v1/ws", server.at);
    let (mut socket, _) = with_timeout("a handshake", Box::pin(tokio_tungstenite::client_async(request, socket))).await.unwrap();
    let mut ask = async |what: Value| {
        socket.send(Message::text(what.to_string())).await.unwrap();
        match with_timeout("an answer", socket.next()).await.unwrap().unwrap() {
            Message::Text(text) => serde_json::from_str::<Value>(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let ack = ask(json!({"op": "publish", "id": 1, "runId": "r", "facts": [text_delta("hello")]})).await;
    assert_eq!((&ack["op"], &ack["accepted"]), (&json!("ack"), &json!(1)));
    assert_eq!(ask(json!({"op": "subscribe", "id": "s", "run": "r"})).await["op"], "subscribed");
    // HTTP/2 has no upgrade here: the server answers 426.
    let answer = server.pair.client(Version::HTTP_2).get(server.url("/v1/ws")).send().await.unwrap();
    assert_eq!((answer.version(), answer.status().as_u16()), (Version::HTTP_2, 426));
}

#[tokio::test]
async fn a_renewed_certificate_applies_to_new_connections_only() {
    let server = Secure::start().await;
    let old = server.pair.client(Version::HTTP_2);
    let mut stream = server.open_stream(&old, "r").await;
    let renewed = Pair::new();
    let get = async |client: reqwest::Client| client.get(server.url("/healthz")).send().await;
    assert!(get(renewed.client(Version::HTTP_2)).await.is_err());
    renewed.write(server.dir.path());
    assert_eq!(server.tls.reload(), Ok(true));
    get(renewed.client(Version::HTTP_2)).await.unwrap();
    assert!(get(server.pair.client(Version::HTTP_2)).await.is_err());
    server.post(&old, "r", &[text_delta("still here")]).await;
    stream.read_until("still here").await;
}

#[tokio::test]
async fn a_changed_certificate_is_reloaded_by_itself_and_on_sighup() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new();
    let files = pair.write(dir.path());
    let [cert, key] = [&files.cert, &files.key].map(|file| file.to_str().unwrap());
    let server = Process::start_with(dir.path(), &["--store", "memory", "--tls-cert", cert, "--tls-key", key]);
    let url = format!("https://{}/healthz", server.at);
    for signal in [Some("HUP"), None] {
        pair.client(Version::HTTP_11).get(&url).send().await.unwrap();
        pair = Pair::new();
        pair.write(dir.path());
        if let Some(signal) = signal {
            server.signal(signal);
        }
        let begun = Instant::now();
        while pair.client(Version::HTTP_11).get(&url).send().await.is_err() {
            assert!(begun.elapsed() < TIMEOUT, "the certificate was not reloaded");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_stop_ends_streams_cleanly_over_both_http_versions() {
    for version in TRANSPORTS {
        let mut server = Secure::start().await;
        let client = server.pair.client(version);
        server.post(&client, "r", &[text_delta("so far")]).await;
        let mut stream = server.open_stream(&client, "r").await;
        stream.read_until("so far").await;
        server.stop.take().unwrap().send(()).unwrap();
        let text = stream.read_to_end().await;
        assert!(!text.contains("\"frame\":\"End\""), "End would mean that the run has ended: {text}");
        drop(client);
        with_timeout("the server's stop", server.serving).await.unwrap();
    }
}

#[tokio::test]
async fn plain_http_to_a_tls_port_gets_a_problem_with_the_remedy() {
    let server = Secure::start().await;
    for request in
        ["GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", "POST /v1/runs/r/facts HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"]
    {
        let mut socket = TcpStream::connect(server.at).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        // The client reads after it has sent its request.
        socket.shutdown().await.unwrap();
        let mut response = String::new();
        with_timeout("the rejection", socket.read_to_string(&mut response)).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 400 ") && response.contains("\"code\":\"tls_required\""), "{response}");
    }
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(format!("http://{}/healthz", server.at)).send().await.unwrap();
    assert_eq!(answer.json::<Value>().await.unwrap()["code"], "tls_required");
}

#[tokio::test]
async fn tls_to_a_plain_port_fails_at_once_and_the_command_line_names_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--store", "memory"]);
    let pair = Pair::new();
    with_timeout("the rejection", pair.connect(server.at, &[])).await.unwrap_err();
    let url = format!("https://{}", server.at);
    let output = run(&mut proscenium(&["tail", "r", "--url", &url, "--ca", pair.write(dir.path()).cert.to_str().unwrap()]));
    let response = String::from_utf8(output.stderr).unwrap();
    assert!(response.contains("does not speak TLS") && response.contains("http://"), "{response}");
}

#[tokio::test]
async fn an_unfinished_handshake_or_a_silent_connection_is_closed() {
    let limits = Limits {
        handshake_time_max: Duration::from_millis(100),
        head_time_max: Duration::from_millis(100),
        connections_max: 1,
        ..Limits::default()
    };
    let server = Secure::start_with_limits(limits).await;
    // No byte; the first byte; and the start of a hello of 512 bytes.
    for beginning in [&b""[..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]] {
        let mut socket = TcpStream::connect(server.at).await.unwrap();
        socket.write_all(beginning).await.unwrap();
        let mut response = Vec::new();
        // The connection may end with a reset.
        let _ = with_timeout("the close of the connection", socket.read_to_end(&mut response)).await;
        assert!(response.is_empty(), "{response:?}");
    }
    for alpn in ["h2", "http/1.1"] {
        let begun = Instant::now();
        // The slot of the connection before may not be free yet.
        let mut socket = loop {
            match server.pair.connect(server.at, &[alpn]).await {
                Ok(socket) => break socket,
                Err(error) => assert!(begun.elapsed() < TIMEOUT, "{error}"),
            }
        };
        let mut response = Vec::new();
        let _ = with_timeout("the close of the connection", socket.read_to_end(&mut response)).await;
        assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 408"), "{alpn}: {response:?}");
    }
}

#[tokio::test]
async fn a_failed_handshake_affects_no_other_connection() {
    let server = Secure::start().await;
    assert!(Pair::new().connect(server.at, &[]).await.is_err(), "an unknown certificate");
    assert!(server.pair.connect(server.at, &["spdy/3"]).await.is_err(), "no common protocol");
    let mut socket = TcpStream::connect(server.at).await.unwrap();
    socket.write_all(&[0x16, 3, 1, 0, 4, 1, 2, 3, 4]).await.unwrap();
    let mut response = Vec::new();
    let _ = with_timeout("the close of the connection", socket.read_to_end(&mut response)).await;
    server.assert_healthy().await;
}

#[tokio::test]
async fn the_command_line_and_the_reporter_trust_the_given_authority() {
    let (dir, pair) = (tempfile::tempdir().unwrap(), Pair::new());
    let files = pair.write(dir.path());
    let [cert, key] = [&files.cert, &files.key].map(|file| file.to_str().unwrap());
    let server = Process::start_with(dir.path(), &["--store", "memory", "--tls-cert", cert, "--tls-key", key]);
    let url = format!("https://{}", server.at);

    let reporter = Reporter::builder(&url, "r").with_authority(pair.cert.as_bytes()).start().unwrap();
    reporter.call("c", "search").report_activity("notes", "found").await;
    with_timeout("the flush of the reports", reporter.close()).await.unwrap();
    let client = pair.client(Version::HTTP_11);
    let ended = client.post(format!("{url}/v1/runs/r/facts")).json(&[finished()]).send().await.unwrap();
    assert_eq!(ended.status(), 200);

    let file = dir.path().join("r.ndjson");
    let file = file.to_str().unwrap();
    let import = ["import", file, "--run", "copy"];
    for arguments in [&["tail", "r"][..], &["export", "r", "-o", file], &import, &["check", "r"], &["health"]] {
        let output = run(proscenium(arguments).args(["--url", &url, "--ca", cert]));
        let response = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {response}");
    }
    let copy: Value = client.get(format!("{url}/v1/runs/copy")).send().await.unwrap().json().await.unwrap();
    assert_eq!(copy["status"], "completed");

    let refused = run(&mut proscenium(&["tail", "r", "--url", &url]));
    let response = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && response.contains("UnknownIssuer") && response.contains("--ca"), "{response}");
    let plain = run(&mut proscenium(&["tail", "r", "--url", &format!("http://{}", server.at)]));
    let response = String::from_utf8(plain.stderr).unwrap();
    assert!(response.contains("tls_required") && response.contains("https://"), "{response}");
}

#[test]
fn a_server_with_an_invalid_certificate_does_not_start_and_names_the_file() {
    let (dir, pair, other) = (tempfile::tempdir().unwrap(), Pair::new(), Pair::new());
    let files = pair.write(dir.path());
    std::fs::write(&files.key, &other.key).unwrap();
    let [cert, key] = [&files.cert, &files.key].map(|file| file.to_str().unwrap());
    let output =
        run(&mut proscenium(&["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--tls-cert", cert, "--tls-key", key]));
    let response = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{response}");
    assert!(
        response.contains(cert) && response.contains(key) && response.contains("does not match the certificate"),
        "{response}"
    );
}

#[tokio::test]
async fn an_oversized_request_head_is_rejected_in_both_versions_and_an_ambiguous_one_in_http_1() {
    let server = Secure::start().await;
    for version in TRANSPORTS {
        let client = server.pair.client(version);
        let ask = |bytes: usize| client.get(server.url("/healthz")).header("x", "x".repeat(bytes)).send();
        let refused = with_timeout("a response", ask(20_000)).await.unwrap();
        assert_eq!((refused.status().as_u16(), refused.version()), (431, version));
        if version == Version::HTTP_11 {
            assert_eq!(refused.json::<Value>().await.unwrap()["code"], "head_too_large");
        }
        assert_eq!(with_timeout("a response", ask(15_000)).await.unwrap().status(), 200, "{version:?}");
    }
    let mut socket = server.pair.connect(server.at, &["http/1.1"]).await.unwrap();
    let first = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    socket.write_all(format!("{first}{}", first.replace("\r\n", "\n")).as_bytes()).await.unwrap();
    let mut response = Vec::new();
    with_timeout("the server's close", socket.read_to_end(&mut response)).await.unwrap();
    let response = String::from_utf8(response).unwrap();
    assert!(
        response.starts_with("HTTP/1.1 200 ") && response.contains("HTTP/1.1 400 ") && response.contains("bad_head"),
        "{response}"
    );
    server.assert_healthy().await;
}

#[test]
fn an_authoritys_own_certificate_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    // As `openssl req -x509` makes it.
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let (cert_file, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert_file, parameters.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let (cert, key) = (cert_file.to_str().unwrap(), key_file.to_str().unwrap());
    let server = crate::harness::Process::start_with(dir.path(), &["--tls-cert", cert, "--tls-key", key]);
    let url = format!("https://{}", server.at);
    let export = ["export", "r", "--url", &url, "--ca", cert];
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_proscenium")).args(export).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("basicConstraints=CA:FALSE"), "{error}");
}

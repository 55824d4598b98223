//! TLS and HTTP/2: what the server promises on a bare socket it promises there, and what only a handshake can break.

use crate::cli::{proscenium, run};
use crate::harness::{PATIENCE, Process, fact, lines, prepare, soon, world};
use futures_util::{SinkExt, StreamExt};
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::log::AnyStore;
use proscenium::log::memory::MemoryStore;
use proscenium::reporter::Reporter;
use proscenium::serve::tls::{Files, Tls};
use proscenium::serve::{Limits, Pulse, Server};
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

const BOTH: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

/// A certificate of this machine, and its key, as PEM.
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

    /// Writes both into a directory.
    fn write(&self, dir: &Path) -> Files {
        let files = Files { cert: dir.join("cert.pem"), key: dir.join("key.pem") };
        std::fs::write(&files.cert, &self.cert).unwrap();
        std::fs::write(&files.key, &self.key).unwrap();
        files
    }

    /// A client that believes this certificate and no other, and speaks this version.
    fn client(&self, version: Version) -> reqwest::Client {
        prepare();
        let certificate = reqwest::Certificate::from_pem(self.cert.as_bytes()).unwrap();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).timeout(PATIENCE);
        let client = if version == Version::HTTP_11 { client.http1_only() } else { client };
        client.build().unwrap()
    }

    /// A bare connection, after its handshake.
    async fn connect(&self, at: SocketAddr, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        prepare();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let socket = TcpStream::connect(at).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::from(at.ip()), socket).await
    }
}

/// A server in this test that speaks TLS.
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
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        let (dir, pair) = (tempfile::tempdir().unwrap(), Pair::new());
        let tls = Arc::new(Tls::load(pair.write(dir.path())).unwrap());
        let pulse = Pulse { drain: Duration::from_millis(50), ..Pulse::default() };
        let store = AnyStore::Memory(MemoryStore::new());
        let server = Server::new(store, Policy::default(), Sizes::default(), limits, pulse, world(jiff::Timestamp::now));
        let server = server.unwrap().over(Some(tls.clone()));
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
        let answer = soon("an answer", request.send()).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    }

    async fn stream(&self, client: &reqwest::Client, run: &str) -> Stream {
        let url = self.url(&format!("/v1/runs/{run}/stream?frames=events"));
        let answer = soon("a stream", client.get(url).send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.headers()["content-type"]), (200, &"text/event-stream".parse().unwrap()));
        Stream { answer, text: String::new() }
    }

    async fn is_fine(&self) {
        let answer = self.pair.client(Version::HTTP_11).get(self.url("/healthz")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}

/// A stream, as far as it was read.
struct Stream {
    answer: Response,
    text: String,
}

impl Stream {
    /// Reads until this has come.
    async fn until(&mut self, what: &str) {
        while !self.text.contains(what) {
            let chunk = soon(what, self.answer.chunk()).await.unwrap().unwrap_or_else(|| panic!("{what} before the end"));
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Reads to the end, which has to be a proper one.
    async fn end(mut self) -> String {
        while let Some(chunk) = soon("the end of a stream", self.answer.chunk()).await.expect("no stream is cut off") {
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        self.text
    }
}

fn told(words: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "payload": {"text": words}}))
}

fn finished() -> Value {
    fact("run.finished", json!({}))
}

#[tokio::test]
async fn facts_streams_and_pages_are_the_same_over_either_version_of_http() {
    let server = Secure::start().await;
    for version in BOTH {
        let (client, run) = (server.pair.client(version), format!("{version:?}").replace(['/', '.'], "-"));
        let mut stream = server.stream(&client, &run).await;
        assert_eq!(stream.answer.version(), version);
        let receipt = server.post(&client, &run, &[told("one")]).await;
        assert_eq!((&receipt["accepted"], &receipt["lastSequence"]), (&json!(1), &json!(1)));
        stream.until("\"sequence\":1,").await;

        // A body that goes on: each line is written once the stream has shown the one before.
        let (say, said) = tokio::sync::mpsc::channel::<String>(1);
        let body = futures_util::stream::unfold(said, async |mut said| {
            let line = said.recv().await?;
            Some((Ok::<_, Infallible>(line), said))
        });
        let request = client
            .post(server.url(&format!("/v1/runs/{run}/facts")))
            .header("content-type", "application/x-ndjson")
            .body(reqwest::Body::wrap_stream(body));
        let answer = tokio::spawn(request.send());
        for (fact, sequence) in [(told("two"), 2), (told("three"), 3), (finished(), 4)] {
            say.send(lines(&[fact])).await.unwrap();
            stream.until(&format!("\"sequence\":{sequence},")).await;
        }
        drop(say);
        let receipt: Value = soon("a receipt", answer).await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(receipt["accepted"], 3, "{receipt}");
        let text = stream.end().await;
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
    let server = Secure::with(Limits { connections_max: 1, ..Limits::default() }).await;
    let client = server.pair.client(Version::HTTP_2);
    // From here on there is a connection to share, and room for no other.
    assert_eq!(client.get(server.url("/healthz")).send().await.unwrap().version(), Version::HTTP_2);
    let mut streams = Vec::new();
    for n in 0..100 {
        streams.push(server.stream(&client, &format!("r{n}")).await);
    }
    for n in (0..100).rev() {
        server.post(&client, &format!("r{n}"), &[told(&format!("of {n}")), finished()]).await;
    }
    for (n, stream) in streams.into_iter().enumerate() {
        let text = stream.end().await;
        assert!(text.contains(&format!("\"of {n}\"")) && text.contains("\"frame\":\"End\""), "{text}");
    }
}

#[tokio::test]
async fn a_stream_too_many_waits_until_another_has_ended() {
    let server = Secure::with(Limits { streams_max: 2, ..Limits::default() }).await;
    let client = server.pair.client(Version::HTTP_2);
    client.get(server.url("/healthz")).send().await.unwrap();
    let (first, _second) = (server.stream(&client, "a").await, server.stream(&client, "b").await);
    let mut third = Box::pin(server.stream(&client, "c"));
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut third).await.is_err(), "there is no room for it");
    drop(first);
    soon("the third stream", third).await.until(":\n").await;
}

#[tokio::test]
async fn a_websocket_is_carried_by_http_1_1() {
    let server = Secure::start().await;
    let socket = server.pair.connect(server.at, &["http/1.1"]).await.unwrap();
    let request = format!("wss://{}/v1/ws", server.at);
    let (mut socket, _) = soon("a handshake", Box::pin(tokio_tungstenite::client_async(request, socket))).await.unwrap();
    let mut ask = async |what: Value| {
        socket.send(Message::text(what.to_string())).await.unwrap();
        match soon("an answer", socket.next()).await.unwrap().unwrap() {
            Message::Text(text) => serde_json::from_str::<Value>(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let ack = ask(json!({"op": "publish", "id": 1, "runId": "r", "facts": [told("hello")]})).await;
    assert_eq!((&ack["op"], &ack["accepted"]), (&json!("ack"), &json!(1)));
    assert_eq!(ask(json!({"op": "subscribe", "id": "s", "run": "r"})).await["op"], "subscribed");
    // HTTP/2 has no upgrade, and says so.
    let answer = server.pair.client(Version::HTTP_2).get(server.url("/v1/ws")).send().await.unwrap();
    assert_eq!((answer.version(), answer.status().as_u16()), (Version::HTTP_2, 426));
}

#[tokio::test]
async fn a_renewed_certificate_is_for_new_connections_and_breaks_no_old_one() {
    let server = Secure::start().await;
    let old = server.pair.client(Version::HTTP_2);
    let mut stream = server.stream(&old, "r").await;
    let renewed = Pair::new();
    let get = async |client: reqwest::Client| client.get(server.url("/healthz")).send().await;
    assert!(get(renewed.client(Version::HTTP_2)).await.is_err());
    renewed.write(server.dir.path());
    assert_eq!(server.tls.reload(), Ok(true));
    get(renewed.client(Version::HTTP_2)).await.unwrap();
    assert!(get(server.pair.client(Version::HTTP_2)).await.is_err());
    server.post(&old, "r", &[told("still here")]).await;
    stream.until("still here").await;
}

#[tokio::test]
async fn a_certificate_is_read_again_when_it_changes_and_at_a_hangup() {
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
            assert!(begun.elapsed() < PATIENCE, "the certificate is not renewed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_stop_ends_streams_cleanly_over_either_version() {
    for version in BOTH {
        let mut server = Secure::start().await;
        let client = server.pair.client(version);
        server.post(&client, "r", &[told("so far")]).await;
        let mut stream = server.stream(&client, "r").await;
        stream.until("so far").await;
        server.stop.take().unwrap().send(()).unwrap();
        let text = stream.end().await;
        assert!(!text.contains("\"frame\":\"End\""), "the run has not ended: {text}");
        drop(client);
        soon("the server to have stopped", server.serving).await.unwrap();
    }
}

#[tokio::test]
async fn plain_http_to_a_tls_port_is_told_where_it_is() {
    let server = Secure::start().await;
    for request in
        ["GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", "POST /v1/runs/r/facts HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"]
    {
        let mut socket = TcpStream::connect(server.at).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        // Done with its request, it reads.
        socket.shutdown().await.unwrap();
        let mut said = String::new();
        soon("a refusal", socket.read_to_string(&mut said)).await.unwrap();
        assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("\"code\":\"tls_required\""), "{said}");
    }
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(format!("http://{}/healthz", server.at)).send().await.unwrap();
    assert_eq!(answer.json::<Value>().await.unwrap()["code"], "tls_required");
}

#[tokio::test]
async fn tls_to_a_plain_port_fails_at_once_and_the_command_line_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--store", "memory"]);
    let pair = Pair::new();
    soon("a refusal", pair.connect(server.at, &[])).await.unwrap_err();
    let url = format!("https://{}", server.at);
    let output = run(&mut proscenium(&["tail", "r", "--url", &url, "--ca", pair.write(dir.path()).cert.to_str().unwrap()]));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("does not speak TLS") && said.contains("http://"), "{said}");
}

#[tokio::test]
async fn who_never_finishes_a_handshake_or_says_nothing_after_it_is_cut() {
    let limits = Limits {
        handshake_time_max: Duration::from_millis(100),
        head_time_max: Duration::from_millis(100),
        connections_max: 1,
        ..Limits::default()
    };
    let server = Secure::with(limits).await;
    // Nothing; the first byte; and the beginning of a hello of 512 bytes.
    for beginning in [&b""[..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]] {
        let mut socket = TcpStream::connect(server.at).await.unwrap();
        socket.write_all(beginning).await.unwrap();
        let mut said = Vec::new();
        // It may be a reset.
        let _ = soon("the connection to be cut", socket.read_to_end(&mut said)).await;
        assert!(said.is_empty(), "{said:?}");
    }
    for alpn in ["h2", "http/1.1"] {
        let begun = Instant::now();
        // The place of the one before may not be free yet.
        let mut socket = loop {
            match server.pair.connect(server.at, &[alpn]).await {
                Ok(socket) => break socket,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
        };
        let mut said = Vec::new();
        let _ = soon("the connection to be cut", socket.read_to_end(&mut said)).await;
        assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 408"), "{alpn}: {said:?}");
    }
}

#[tokio::test]
async fn a_handshake_that_fails_harms_nobody_else() {
    let server = Secure::start().await;
    assert!(Pair::new().connect(server.at, &[]).await.is_err(), "another's certificate");
    assert!(server.pair.connect(server.at, &["spdy/3"]).await.is_err(), "no protocol in common");
    let mut socket = TcpStream::connect(server.at).await.unwrap();
    socket.write_all(&[0x16, 3, 1, 0, 4, 1, 2, 3, 4]).await.unwrap();
    let mut said = Vec::new();
    let _ = soon("the connection to be cut", socket.read_to_end(&mut said)).await;
    server.is_fine().await;
}

#[tokio::test]
async fn the_command_line_and_the_reporter_believe_the_authority_that_they_are_given() {
    let (dir, pair) = (tempfile::tempdir().unwrap(), Pair::new());
    let files = pair.write(dir.path());
    let [cert, key] = [&files.cert, &files.key].map(|file| file.to_str().unwrap());
    let server = Process::start_with(dir.path(), &["--store", "memory", "--tls-cert", cert, "--tls-key", key]);
    let url = format!("https://{}", server.at);

    let reporter = Reporter::to(&url, "r").authority(pair.cert.as_bytes()).start().unwrap();
    reporter.call("c", "search").report_activity("notes", "found").await;
    soon("reports to be durable", reporter.close()).await.unwrap();
    let client = pair.client(Version::HTTP_11);
    let ended = client.post(format!("{url}/v1/runs/r/facts")).json(&[finished()]).send().await.unwrap();
    assert_eq!(ended.status(), 200);

    let file = dir.path().join("r.ndjson");
    let file = file.to_str().unwrap();
    for arguments in [&["tail", "r"][..], &["export", "r", "-o", file], &["import", file, "--run", "copy"], &["check", "r"]] {
        let output = run(proscenium(arguments).args(["--url", &url, "--ca", cert]));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
    let copy: Value = client.get(format!("{url}/v1/runs/copy")).send().await.unwrap().json().await.unwrap();
    assert_eq!(copy["status"], "completed");

    let refused = run(&mut proscenium(&["tail", "r", "--url", &url]));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("UnknownIssuer") && said.contains("--ca"), "{said}");
    let plain = run(&mut proscenium(&["tail", "r", "--url", &format!("http://{}", server.at)]));
    let said = String::from_utf8(plain.stderr).unwrap();
    assert!(said.contains("tls_required") && said.contains("https://"), "{said}");
}

#[test]
fn a_server_that_cannot_speak_tls_does_not_start_and_names_the_file() {
    let (dir, pair, other) = (tempfile::tempdir().unwrap(), Pair::new(), Pair::new());
    let files = pair.write(dir.path());
    std::fs::write(&files.key, &other.key).unwrap();
    let [cert, key] = [&files.cert, &files.key].map(|file| file.to_str().unwrap());
    let output =
        run(&mut proscenium(&["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--tls-cert", cert, "--tls-key", key]));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{said}");
    assert!(said.contains(cert) && said.contains(key) && said.contains("not that of the certificate"), "{said}");
}

#[tokio::test]
async fn a_request_head_above_the_limit_is_refused_in_both_versions_and_one_with_two_readings_in_the_first() {
    let server = Secure::start().await;
    for version in BOTH {
        let client = server.pair.client(version);
        let ask = |bytes: usize| client.get(server.url("/healthz")).header("x", "x".repeat(bytes)).send();
        let refused = soon("an answer", ask(20_000)).await.unwrap();
        assert_eq!((refused.status().as_u16(), refused.version()), (431, version));
        if version == Version::HTTP_11 {
            assert_eq!(refused.json::<Value>().await.unwrap()["code"], "head_too_large");
        }
        assert_eq!(soon("an answer", ask(15_000)).await.unwrap().status(), 200, "{version:?}");
    }
    let mut socket = server.pair.connect(server.at, &["http/1.1"]).await.unwrap();
    let first = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    socket.write_all(format!("{first}{}", first.replace("\r\n", "\n")).as_bytes()).await.unwrap();
    let mut said = Vec::new();
    soon("the server to end the connection", socket.read_to_end(&mut said)).await.unwrap();
    let said = String::from_utf8(said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("HTTP/1.1 400 ") && said.contains("bad_head"), "{said}");
    server.is_fine().await;
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

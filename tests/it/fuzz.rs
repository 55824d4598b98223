//! Fuzzing of the real binary: random and almost valid input on every interface.
//!
//! No thread panics; no response is 5xx except the documented ones (501, 503); no connection waits forever; and the way
//! in which bytes are split makes no difference. The cases are the same each time, or as many new ones as
//! `PROPTEST_CASES` says.

use crate::cli::{Running, proscenium};
use crate::harness::repository;
use futures_util::{SinkExt, StreamExt};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proscenium::auth::keys::TokenSigner;
use proscenium::serve::contract::members::ParameterLocation;
use proscenium::serve::contract::operations::{OPERATIONS, Operation};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

/// The time after which an operation counts as hanging.
///
/// Far longer than the limits that the server gets.
const HANG_TIMEOUT: Duration = crate::harness::TIMEOUT;

/// The server and its log.
struct Server {
    running: Running,
    /// One for all cases: it takes longer to build a client than to send a request.
    http: reqwest::Client,
    log: PathBuf,
    _dir: tempfile::TempDir,
    /// The number of runs used.
    runs: AtomicU64,
    /// The number of bytes of the log that were checked.
    read: AtomicUsize,
}

impl Server {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), &[])
    }

    fn start_in(dir: tempfile::TempDir, more: &[&OsStr]) -> Self {
        let log = dir.path().join("log");
        let flags = ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--log", "error", "--head-time-ms", "200"];
        let limits = ["--fact-max", "4KiB", "--body-max", "16KiB", "--head-max", "4KiB", "--heartbeat-ms", "100"];
        let file = std::fs::File::create(&log).unwrap();
        let running = Running::start_logging(proscenium(&flags).args(limits).args(more), Stdio::from(file));
        // Each case may have a runtime of its own, with which its connections end.
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { running, http, log, _dir: dir, runs: AtomicU64::new(0), read: AtomicUsize::new(0) }
    }

    fn at(&self) -> &str {
        self.running.url.strip_prefix("http://").unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at()).await.unwrap()
    }

    /// Returns the id of a new run.
    fn run(&self) -> String {
        format!("run-{}", self.runs.fetch_add(1, Ordering::Relaxed))
    }

    /// Panics if a thread of the server has panicked, or if the server has ended.
    async fn assert_healthy(&self) {
        let response = std::fs::read_to_string(&self.log).unwrap();
        let new = &response[self.read.swap(response.len(), Ordering::Relaxed)..];
        assert!(!new.contains("panicked"), "{new}");
        let answer = self.http.get(format!("{}/healthz", self.running.url)).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}

/// Checks a property over random cases on a new server.
fn check_property<T: Debug>(cases: u32, any: impl Strategy<Value = T>, check: impl AsyncFn(&Server, T)) {
    check_property_on(&Server::start(), cases, any, check);
}

/// Checks a property over random cases on this server.
fn check_property_on<T: Debug>(server: &Server, cases: u32, any: impl Strategy<Value = T>, check: impl AsyncFn(&Server, T)) {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config { cases: asked.unwrap_or(cases), failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = match asked {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runner.run(&any, |case| {
        runtime.block_on(async {
            tokio::time::timeout(HANG_TIMEOUT, check(server, case)).await.expect("no connection waits forever");
            server.assert_healthy().await;
        });
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Generates texts that are hard for parsers.
fn odd_text() -> impl Strategy<Value = String> {
    let picked = [
        "",
        "0",
        "1",
        "-1",
        "00",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775808",
        "start",
        "now",
        "user",
        "internal",
        "events",
        "activities",
        "deltas",
        "agentui",
        "awaken",
        "true",
        "%",
        "%0",
        "%00",
        "%zz",
        "%ff",
        "%c3%28",
        "%2F..%2f..",
        "..",
        "a,b,,c",
        "0123456789abcdef:4",
        "0123456789abcdef:",
        ":4",
        "0123456789abcdef:99999999999999999999",
        "0123456789ABCDEF:-1",
        "1-1-1",
        "1-1",
        "1-1-1-1",
        "18446744073709551615-18446744073709551615-18446744073709551615",
        "bytes=0-",
        "bytes=-1",
        "bytes=5-1",
        "bytes=0-0,2-2",
        "\u{0}",
        "é",
        "走🎭",
        "\u{202e}",
        "null",
        "{}",
        "[]",
        "+",
        "&",
        "=",
        "#",
        "?",
    ];
    prop_oneof![
        4 => proptest::sample::select(picked.to_vec()).prop_map(str::to_owned),
        2 => "[a-z0-9:_.%-]{0,20}",
        1 => ".{0,12}",
        1 => (200..400usize).prop_map(|n| "x".repeat(n)),
    ]
}

/// Generates JSON of a few levels.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        odd_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((odd_text(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Generates a valid or almost valid fact.
fn any_fact() -> impl Strategy<Value = Value> {
    let classes = ["run.started", "text.delta", "text.final", "tool.started", "tool.args", "tool.result", "run.finished", "x.y"];
    let ids = ["toolCallId", "messageId", "partId", "actionId", "agentId", "sessionId", "payload", "audience", "refs", "surface"];
    let member = (proptest::sample::select(ids.to_vec()), any_json());
    let fact =
        (proptest::sample::select(classes.to_vec()), proptest::collection::vec(member, 0..4)).prop_map(|(class, members)| {
            let mut fact = Map::from_iter([("type".to_owned(), json!(class))]);
            fact.extend(members.into_iter().map(|(name, value)| (name.to_owned(), value)));
            Value::Object(fact)
        });
    prop_oneof![4 => fact, 1 => any_json()]
}

/// Generates an address with odd segments, and a query with documented names and odd values.
fn target() -> impl Strategy<Value = String> {
    let paths: Vec<&'static str> = OPERATIONS.iter().map(|operation| operation.path).collect();
    let names: Vec<&'static str> = OPERATIONS
        .iter()
        .flat_map(Operation::parameters)
        .filter(|member| member.location == ParameterLocation::Query)
        .map(|member| member.name)
        .collect();
    let id = prop_oneof![2 => Just("r".to_owned()), 1 => odd_text()];
    let query = proptest::collection::vec((proptest::sample::select(names), odd_text()), 0..5);
    (proptest::sample::select(paths), id, query).prop_map(|(path, id, query)| {
        let part = |segment: &str| if segment.starts_with('{') { id.clone() } else { segment.to_owned() };
        let path: Vec<String> = path.split('/').map(part).collect();
        let query: Vec<String> = query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}?{}", path.join("/"), query.join("&"))
    })
}

/// A change to bytes before they are sent.
#[derive(Debug, Clone)]
enum Mutation {
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index),
    Truncate(prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<prop::sample::Index>(), 1..=255u8).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        (any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        any::<prop::sample::Index>().prop_map(Mutation::Cut),
        any::<prop::sample::Index>().prop_map(Mutation::Truncate),
    ]
}

fn mutate(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        if bytes.is_empty() {
            break;
        }
        match mutation {
            Mutation::Flip(at, bits) => {
                let at = at.index(bytes.len());
                bytes[at] ^= bits;
            }
            Mutation::Insert(at, more) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, more.iter().copied());
            }
            Mutation::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Mutation::Truncate(at) => drop(bytes.remove(at.index(bytes.len()))),
        }
    }
    bytes
}

/// The positions at which bytes are split.
type Splits = Vec<prop::sample::Index>;

fn splits(most: usize) -> impl Strategy<Value = Splits> {
    proptest::collection::vec(any::<prop::sample::Index>(), 0..most)
}

fn split_at<'b>(bytes: &'b [u8], cuts: &Splits) -> Vec<&'b [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
    at.sort_unstable();
    at.dedup();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// Generates a request's text: a valid one in which any part may be missing or doubled.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        6 => proptest::sample::select(&["GET", "POST", "DELETE", "HEAD", "PUT", "OPTIONS", "CONNECT"][..]).prop_map(str::to_owned),
        1 => "[A-Za-z ]{0,8}",
    ];
    let version = proptest::sample::select(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", ""][..]);
    let known = [
        "host: localhost",
        "content-length: 0",
        "content-length: 2",
        "content-length: 20",
        "content-length: -1",
        "content-length: 99999999999999999999",
        "content-length: 1073741824",
        "transfer-encoding: chunked",
        "transfer-encoding: gzip, chunked",
        "connection: close",
        "connection: keep-alive",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        "expect: 100-continue",
        "content-encoding: gzip",
        "content-type: application/json",
        "content-type: application/x-ndjson",
        "content-type: text/plain",
        "content-type: \u{7f}",
        "producer-id: p",
        "producer-epoch: 0",
        "producer-seq: 0",
        "producer-seq: x",
        "origin: http://elsewhere",
        "folded: a\r\n b",
    ];
    let header = prop_oneof![
        6 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => odd_text().prop_map(|value| format!("last-event-id: {value}")),
        1 => odd_text().prop_map(|value| format!("range: {value}")),
        1 => ("[ -~]{0,12}", odd_text()).prop_map(|(name, value)| format!("{name}: {value}")),
    ];
    let body = prop_oneof![
        proptest::collection::vec(any_fact(), 0..3).prop_map(|facts| Value::from(facts).to_string().into_bytes()),
        any_fact().prop_map(|fact| format!("{fact}\n").into_bytes()),
        any_json().prop_map(|body| format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.to_string().len()).into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..64),
        Just(Vec::new()),
    ];
    let ends = (any::<bool>(), proptest::sample::select(&["\r\n", "\r\n", "\r\n", "\n"][..]));
    (method, target(), version, proptest::collection::vec(header, 0..8), body, ends).prop_map(
        |(method, target, version, headers, body, (says_length, end))| {
            let mut head = format!("{method} {target} {version}{end}");
            for header in headers {
                head.push_str(&format!("{header}{end}"));
            }
            if says_length {
                head.push_str(&format!("content-length: {}{end}", body.len()));
            }
            [head.as_bytes(), end.as_bytes(), &body].concat()
        },
    )
}

/// Sends bytes in pieces and reads the response: until the connection ends, or until `is_over`.
async fn exchange(server: &Server, pieces: &[&[u8]], is_over: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let socket = server.connect().await;
    socket.set_nodelay(true).unwrap();
    let (mut reads, mut writes) = socket.into_split();
    let writing = async {
        for piece in pieces {
            if writes.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = writes.shutdown().await;
        // The writing half stays open: dropping it would close the connection.
        std::future::pending::<()>().await;
    };
    let mut response = Vec::new();
    let reading = async {
        while !is_over(&response) {
            match reads.read_buf(&mut response).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
    }
    response
}

fn contains(text: &[u8], what: &str) -> bool {
    memchr::memmem::find(text, what.as_bytes()).is_some()
}

/// Panics if the response is an error of the server.
fn assert_no_server_error(response: &[u8]) {
    for (at, _) in response.windows(11).enumerate().filter(|(_, bytes)| bytes.starts_with(b"HTTP/1.") && &bytes[8..10] == b" 5") {
        let status = String::from_utf8_lossy(&response[at..response.len().min(at + 12)]).into_owned();
        assert!(status.ends_with("501") || status.ends_with("503"), "{}", String::from_utf8_lossy(response));
    }
}

#[test]
fn no_malformed_request_makes_the_server_fail_or_hang() {
    let requests = proptest::collection::vec(request(), 1..3);
    let case = (requests, proptest::collection::vec(mutation(), 0..4), splits(6));
    check_property(600, case, async |server, (requests, mutations, cuts)| {
        let text = mutate(requests.concat(), &mutations);
        let goes_on = |response: &[u8]| contains(response, "text/event-stream") || contains(response, "HTTP/1.1 101");
        assert_no_server_error(&exchange(server, &split_at(&text, &cuts), goes_on).await);
    });
}

#[test]
fn no_query_and_no_cursor_makes_the_server_fail() {
    let header = prop_oneof![Just(None), odd_text().prop_map(Some)];
    check_property(400, (target(), header), async |server, (target, resumed)| {
        let clean: String = target.chars().map(|c| if c.is_ascii_graphic() { c } else { '~' }).collect();
        let resumed = resumed.filter(|id| id.bytes().all(|b| (32..127).contains(&b)));
        let resumed = resumed.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        // Stream requests go to the server's own socket code first; the others go to hyper.
        for more in ["", "content-length: 0\r\n"] {
            let text = format!("GET {clean} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{resumed}{more}\r\n");
            let response = exchange(server, &[text.as_bytes()], |response| contains(response, "text/event-stream")).await;
            assert!(response.starts_with(b"HTTP/1.1 "), "{text}: {}", String::from_utf8_lossy(&response));
            assert_no_server_error(&response);
        }
    });
}

/// Posts lines as one body of these chunks; returns status and body.
async fn post_lines(server: &Server, run: &str, chunks: &[&[u8]]) -> (u16, Value) {
    let head = format!(
        "POST /v1/runs/{run}/facts HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let mut pieces = vec![head.into_bytes()];
    for chunk in chunks {
        pieces.push([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    pieces.push(b"0\r\n\r\n".to_vec());
    let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    let response = exchange(server, &pieces, |_| false).await;
    assert_no_server_error(&response);
    let text = String::from_utf8(response).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text:?}"));
    let body = text.rsplit("\r\n\r\n").next().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text:?}")))
}

#[test]
fn the_splitting_of_lines_makes_no_difference() {
    let line = prop_oneof![
        8 => any_fact().prop_map(|fact| fact.to_string().into_bytes()),
        2 => Just(Vec::new()),
        1 => Just(b"  \t".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ];
    let end = proptest::sample::select(&["\n", "\n", "\r\n"][..]);
    let text = (proptest::collection::vec((line, end), 0..12), any::<bool>()).prop_map(|(lines, is_ended)| {
        let mut text: Vec<u8> = lines.iter().flat_map(|(line, end)| [line.as_slice(), end.as_bytes()].concat()).collect();
        if !is_ended {
            text.pop();
        }
        text
    });
    check_property(200, (text, splits(24)), async |server, (text, cuts)| {
        let (whole, cut_up) = (server.run(), server.run());
        let all: Vec<&[u8]> = if text.is_empty() { Vec::new() } else { vec![&text] };
        let expected = post_lines(server, &whole, &all).await;
        let got = post_lines(server, &cut_up, &split_at(&text, &cuts)).await;
        // The ids and the epoch differ in every answer.
        let plain = |(status, mut answer): (u16, Value), run: &str| {
            for member in ["runId", "epoch", "requestId"] {
                answer.as_object_mut().unwrap().shift_remove(member);
            }
            (status, answer.to_string().replace(run, "r"))
        };
        assert_eq!(plain(got, &cut_up), plain(expected, &whole));
        let events = async |run: &str| -> Vec<Value> {
            let url = format!("{}/v1/runs/{run}/events?audience=internal", server.running.url);
            let page: Value = server.http.get(url).send().await.unwrap().json().await.unwrap();
            let mut events = page["events"].as_array().cloned().unwrap_or_default();
            for event in &mut events {
                for member in ["eventId", "receivedAt", "runId"] {
                    event.as_object_mut().unwrap().shift_remove(member);
                }
            }
            events
        };
        assert_eq!(events(&cut_up).await, events(&whole).await);
    });
}

/// Generates a WebSocket message: an op with odd members, or something else.
fn message() -> impl Strategy<Value = Message> {
    let ops = ["subscribe", "unsubscribe", "publish", "ping", "auth", "claim", ""];
    let names = [
        "id",
        "run",
        "session",
        "frames",
        "audience",
        "surfaces",
        "type",
        "agentId",
        "replay",
        "after",
        "children",
        "runId",
        "sessionId",
        "source",
        "ids",
        "producer",
        "token",
    ];
    let value = prop_oneof![
        3 => odd_text().prop_map(Value::from),
        2 => (0..4u64).prop_map(Value::from),
        1 => any_json(),
    ];
    let members = proptest::collection::vec((proptest::sample::select(names.to_vec()), value), 0..6);
    let facts = prop_oneof![
        Just(None),
        proptest::collection::vec(any_fact(), 0..4).prop_map(|facts| Some(Value::from(facts))),
        any_json().prop_map(Some),
    ];
    let op = (proptest::sample::select(ops.to_vec()), members, facts).prop_map(|(op, members, facts)| {
        let mut message = Map::from_iter([("op".to_owned(), json!(op))]);
        message.extend(members.into_iter().map(|(name, value)| (name.to_owned(), value)));
        message.extend(facts.map(|facts| ("facts".to_owned(), facts)));
        Value::Object(message).to_string()
    });
    let text = (op, proptest::collection::vec(mutation(), 0..3), any::<bool>()).prop_map(|(text, mutations, is_harmed)| {
        let bytes = if is_harmed { mutate(text.into_bytes(), &mutations) } else { text.into_bytes() };
        Message::text(String::from_utf8_lossy(&bytes).into_owned())
    });
    prop_oneof![
        12 => text,
        1 => any_json().prop_map(|value| Message::text(value.to_string())),
        1 => proptest::collection::vec(any::<u8>(), 0..100).prop_map(|bytes| Message::Ping(bytes.into())),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Message::Binary(bytes.into())),
    ]
}

#[test]
fn no_websocket_message_makes_the_server_fail_or_stop_answering() {
    check_property(300, proptest::collection::vec(message(), 1..12), async |server, messages| {
        let socket = server.connect().await;
        let url = format!("ws://{}/v1/ws", server.at());
        let (socket, _) = Box::pin(tokio_tungstenite::client_async(url, socket)).await.unwrap();
        let (mut sender, mut receiver) = socket.split();
        let is_binary = messages.iter().any(Message::is_binary);
        // The last message has an answer of its own.
        let last = Message::text(json!({"op": "ping", "id": "the last"}).to_string());
        let saying = async {
            for message in messages.into_iter().chain([last]) {
                if sender.send(message).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let hearing = async {
            loop {
                match receiver.next().await {
                    Some(Ok(Message::Text(text))) => {
                        let answer: Value = serde_json::from_str(&text).expect("a message is JSON");
                        assert!(answer["op"].is_string() || answer["frame"].is_string(), "{answer}");
                        let status = answer["status"].as_u64().filter(|_| answer["op"] == "error").unwrap_or(400);
                        assert!((400..500).contains(&status) || [501, 503].contains(&status), "{answer}");
                        if answer["op"] == "pong" && answer["id"] == "the last" {
                            break;
                        }
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => {
                        assert!(is_binary, "a message that is not binary ended the connection");
                        break;
                    }
                    Some(Ok(_)) => {}
                }
            }
        };
        tokio::select! {
            () = saying => {}
            () = hearing => {}
        }
    });
}

/// The secret and the other keys, in PEM, of a server in these tests.
const SECRET: &[u8] = b"a secret of these tests, of more than thirty-two bytes";
const ED: [&str; 2] = ["tests/keys/ed25519.private.pem", "tests/keys/ed25519.public.pem"];
const RSA: [&str; 2] = ["tests/keys/rsa.private.pem", "tests/keys/rsa.public.pem"];

fn key_file(path: &str) -> Vec<u8> {
    std::fs::read(repository(path)).unwrap()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]));
        }
    }
    text
}

/// Returns the public Ed25519 key as in a JWKS: the end of the PEM's content.
fn ed25519_x() -> String {
    let pem = String::from_utf8(key_file(ED[1])).unwrap();
    let digits: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    // 12 bytes of DER precede the key: 16 digits.
    digits[16..].trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// Starts a server with authentication by a secret, an Ed25519 key and an RSA key.
///
/// It has run `r` of session `mine`, and run `q` of session `theirs`.
fn start_with_auth() -> Server {
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set");
    let keys = json!({ "keys": [
        { "kty": "oct", "kid": "secret", "k": base64(SECRET) },
        { "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": ed25519_x() },
    ]});
    std::fs::write(&set, keys.to_string()).unwrap();
    let rsa = repository(RSA[1]);
    let server = Server::start_in(dir, &[OsStr::new("--auth-key"), rsa.as_ref(), OsStr::new("--auth-jwks"), set.as_ref()]);
    let admin = token(SECRET, &claims_of(&json!({ "sessions": ["*"], "can": ["admin"] })));
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        for (run, session) in [("r", "mine"), ("q", "theirs")] {
            let url = format!("{}/v1/runs/{run}/facts?sessionId={session}", server.running.url);
            let request = reqwest::Client::new().post(url).header("content-type", "application/json").bearer_auth(&admin);
            assert_eq!(request.body(r#"{"type":"run.started"}"#).send().await.unwrap().status(), 200);
        }
    });
    server
}

fn claims_of(here: &Value) -> Value {
    json!({ "sub": "user-1", "exp": 4_000_000_000_u64, "proscenium": here })
}

fn token(key: &[u8], claims: &Value) -> String {
    TokenSigner::from_file(key).unwrap().sign(claims, None).unwrap()
}

/// Builds the claims of a valid token: it may read session `mine` as a user.
fn good_claims() -> Value {
    claims_of(&json!({ "sessions": ["mine"], "can": ["read"] }))
}

/// A presented token, and its claims if one of the server's keys has signed them.
#[derive(Debug, Clone)]
struct Presented {
    token: Vec<u8>,
    signed_claims: Option<Value>,
}

/// Generates a mutated token of one of the server's keys.
fn mutated_token() -> impl Strategy<Value = Presented> {
    let good: Vec<String> =
        [SECRET.to_vec(), key_file(ED[0]), key_file(RSA[0])].iter().map(|key| token(key, &good_claims())).collect();
    (proptest::sample::select(good), proptest::collection::vec(mutation(), 0..3)).prop_map(|(good, mutations)| {
        let mut token = mutate(good.clone().into_bytes(), &mutations);
        // A line break would start another header.
        token.retain(|byte| !b"\r\n".contains(byte));
        // White space around a token does not belong to it.
        let signed_claims = std::str::from_utf8(&token).is_ok_and(|token| token.trim() == good).then(good_claims);
        Presented { token, signed_claims }
    })
}

/// Generates claims with valid and invalid members.
fn odd_claims() -> impl Strategy<Value = Value> {
    let sub = prop_oneof![3 => Just(json!("user-1")), 1 => any_json()];
    let seconds = prop_oneof![
        6 => Just(json!(4_000_000_000_u64)),
        1 => proptest::sample::select(vec![json!(0), json!(-1), json!(1.5e9), json!(1e300), json!("4000000000"), json!(u64::MAX)]),
        1 => any_json(),
    ];
    let names = proptest::sample::select(vec![json!(["mine"]), json!(["theirs", "r", "a"]), json!(["*"]), json!([]), json!("*")]);
    let list = || prop_oneof![4 => names.clone(), 1 => any_json()];
    let verbs =
        proptest::sample::select(vec![json!(["read"]), json!(["publish", "read"]), json!(["admin"]), json!(["all"]), json!([])]);
    let audience = prop_oneof![
        2 => proptest::sample::select(vec![json!("user"), json!("internal"), json!("Internal"), json!(null)]),
        1 => any_json(),
    ];
    let here = (list(), list(), list(), prop_oneof![4 => verbs, 1 => any_json()], proptest::option::of(audience));
    let more = proptest::collection::vec(
        (proptest::sample::select(vec!["nbf", "aud", "iss", "jti", "proscenium", "x"]), any_json()),
        0..2,
    );
    (sub, seconds, here, more).prop_map(|(sub, exp, (sessions, runs, agents, can, audience), more)| {
        let mut here = json!({ "sessions": sessions, "runs": runs, "agents": agents, "can": can });
        here.as_object_mut().unwrap().extend(audience.map(|audience| ("audience".to_owned(), audience)));
        let mut claims = json!({ "sub": sub, "exp": exp, "proscenium": here });
        claims.as_object_mut().unwrap().extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        claims
    })
}

/// Generates a token with its own idea of the algorithm, signed with a key that an attacker may have.
fn forged_token() -> impl Strategy<Value = Presented> {
    let algorithms = ["HS256", "HS256", "HS384", "none", "None", "", "EdDSA", "RS256", "PS256", "ES256", "hs256"];
    let algorithm = prop_oneof![8 => proptest::sample::select(algorithms.to_vec()).prop_map(Value::from), 1 => any_json()];
    let names = ["kid", "crit", "jwk", "jku", "x5c", "b64"];
    let more = proptest::collection::vec((proptest::sample::select(names.to_vec()), any_json()), 0..2);
    let stolen = token(SECRET, &claims_of(&json!({ "can": ["read"] })));
    let stolen = stolen.rsplit('.').next().unwrap().to_owned();
    let public =
        [key_file(RSA[1]), key_file(RSA[1]).trim_ascii().to_vec(), key_file(ED[1]), ed25519_x().into_bytes(), Vec::new()];
    let secrets = public.into_iter().map(Some).chain([Some(SECRET.to_vec()), Some(SECRET.to_vec()), None]).collect::<Vec<_>>();
    let all = claims_of(&json!({ "audience": "internal", "sessions": ["*"], "agents": ["*"], "can": ["admin"] }));
    (algorithm, more, proptest::sample::select(secrets), 0..3u8).prop_map(move |(algorithm, more, secret, end)| {
        let mut header = json!({ "alg": algorithm, "typ": "JWT" });
        header.as_object_mut().unwrap().extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let message = format!("{}.{}", base64(header.to_string().as_bytes()), base64(all.to_string().as_bytes()));
        let signature = match &secret {
            Some(secret) => {
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
                base64(ring::hmac::sign(&key, message.as_bytes()).as_ref())
            }
            // The signature of another token, none, or no base64.
            None => [stolen.clone(), String::new(), "=!".to_owned()][usize::from(end)].clone(),
        };
        let is_ours = secret.as_deref() == Some(SECRET) && header["alg"] == "HS256";
        Presented { token: format!("{message}.{signature}").into_bytes(), signed_claims: is_ours.then(|| all.clone()) }
    })
}

fn presented() -> impl Strategy<Value = Presented> {
    let keys = [SECRET.to_vec(), key_file(ED[0])];
    let signed = (proptest::sample::select(keys.to_vec()), odd_claims())
        .prop_map(|(key, claims)| Presented { token: token(&key, &claims).into_bytes(), signed_claims: Some(claims) });
    let text = |text: String| Presented { token: text.into_bytes(), signed_claims: None };
    prop_oneof![
        4 => mutated_token(),
        4 => signed,
        4 => forged_token(),
        1 => odd_text().prop_map(text),
        1 => "[A-Za-z0-9_.=-]{0,80}".prop_map(text),
        1 => (0..20_000usize, "[a.]").prop_map(move |(length, of)| text(of.repeat(length))),
        1 => proptest::collection::vec(32..=255u8, 0..60).prop_map(|token| Presented { token, signed_claims: None }),
    ]
}

/// The requests and their permissions: a verb, an audience, and a session, run or agent.
const REQUESTS: [(&str, &str, &str, &str, &str); 7] = [
    ("GET", "/v1/runs/r/stream", "read", "user", "r"),
    ("GET", "/v1/runs/q/stream?frames=events", "read", "user", "q"),
    ("GET", "/v1/runs/q", "read", "user", "q"),
    ("GET", "/v1/runs/r/events?audience=internal", "read", "internal", "r"),
    ("POST", "/v1/runs/r/facts", "publish", "user", "r"),
    ("POST", "/v1/agents/a/controls/claim", "publish", "user", "a"),
    ("GET", "/metrics", "admin", "user", ""),
];

/// Returns whether the claims permit the request. A member that cannot be understood permits nothing.
fn allows(claims: &Value, verb: &str, audience: &str, about: &str) -> bool {
    let here = &claims["proscenium"];
    let lists = |member: &str, name: &str| {
        here[member].as_array().is_some_and(|names| names.iter().any(|known| known == name || known == "*"))
    };
    let can = here["can"].as_array().is_some_and(|can| can.iter().any(|permission| permission == verb || permission == "admin"));
    let has = match about {
        "r" => lists("runs", "r") || lists("sessions", "mine"),
        "q" => lists("runs", "q") || lists("sessions", "theirs"),
        "a" => lists("agents", "a"),
        _ => true,
    };
    let is_good =
        claims["sub"].as_str().is_some_and(|sub| !sub.is_empty()) && claims["exp"].as_f64().is_some_and(|exp| exp > 1.7e9);
    is_good && can && has && (audience == "user" || here["audience"] == audience)
}

/// The ways to present a token.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// In a header after this prefix, this many times.
    Header(&'static str, usize),
    /// As a ticket.
    Ticket,
    /// In the first message on a WebSocket.
    Message,
}

fn way() -> impl Strategy<Value = Way> {
    let ways = [Way::Header("Bearer ", 2), Way::Header("Basic ", 1), Way::Header("", 1), Way::Ticket];
    prop_oneof![
        8 => Just(Way::Header("Bearer ", 1)),
        1 => Just(Way::Header("bEARER   ", 1)),
        2 => proptest::sample::select(ways.to_vec()),
        3 => Just(Way::Message),
    ]
}

/// Returns whether the server permits the request with this token.
async fn is_accepted(
    server: &Server,
    brought: &Presented,
    way: Way,
    (method, target, _, audience, about): (&str, &str, &str, &str, &str),
) -> bool {
    let (scheme, count) = match way {
        Way::Header(scheme, count) => (scheme, count),
        Way::Ticket => ("", 0),
        Way::Message => return is_accepted_by_message(server, &brought.token, audience, about).await,
    };
    let mut text = format!("{method} {target}").into_bytes();
    if let Way::Ticket = way {
        let ticket: String = brought.token.iter().map(|byte| format!("%{byte:02x}")).collect();
        text.extend(format!("{}ticket={ticket}", if target.contains('?') { '&' } else { '?' }).bytes());
    }
    text.extend(b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for _ in 0..count {
        text.extend([b"authorization: ", scheme.as_bytes(), &brought.token, b"\r\n"].concat());
    }
    text.extend(if method == "POST" { &b"content-length: 2\r\n\r\n[]"[..] } else { b"\r\n" });
    let response = exchange(server, &[&text], |response| contains(response, "text/event-stream")).await;
    assert_no_server_error(&response);
    let status = std::str::from_utf8(response.get(9..12).unwrap_or_default()).unwrap().parse::<u16>();
    status.is_ok_and(|status| status < 300)
}

/// Returns whether the server permits a subscription after this token in the first message of a WebSocket.
async fn is_accepted_by_message(server: &Server, token: &[u8], audience: &str, run: &str) -> bool {
    let url = format!("ws://{}/v1/ws", server.at());
    let (socket, _) = Box::pin(tokio_tungstenite::client_async(url, server.connect().await)).await.unwrap();
    let (mut sender, mut receiver) = socket.split();
    let auth = json!({ "op": "auth", "token": String::from_utf8_lossy(token) });
    let subscribe = json!({ "op": "subscribe", "id": "s", "run": run, "audience": audience });
    for message in [auth, subscribe, json!({ "op": "ping", "id": "the last" })] {
        // The server may have closed the socket already.
        let _ = sender.send(Message::text(message.to_string())).await;
    }
    let mut is_subscribed = false;
    while let Some(Ok(message)) = receiver.next().await {
        let Message::Text(text) = message else { continue };
        let answer: Value = serde_json::from_str(&text).expect("a message is JSON");
        let status = answer["status"].as_u64().filter(|_| answer["op"] == "error").unwrap_or(400);
        assert!((400..500).contains(&status), "{answer}");
        is_subscribed |= answer["op"] == "subscribed";
        if answer["op"] == "pong" {
            break;
        }
    }
    is_subscribed
}

#[test]
fn no_token_makes_the_server_fail_or_permits_more_than_its_signed_claims() {
    let server = start_with_auth();
    let accepted = AtomicU64::new(0);
    check_property_on(&server, 600, (presented(), way(), 0..REQUESTS.len()), async |server, (brought, way, asked)| {
        let asked = REQUESTS[asked];
        let (_, _, verb, audience, about) = asked;
        // On a WebSocket the request is a subscription.
        let verb = if let Way::Message = way { "read" } else { verb };
        let about = if let (Way::Message, "a" | "") = (way, about) { "q" } else { about };
        let asked = (asked.0, asked.1, verb, audience, about);
        let is_presented = matches!(way, Way::Header("Bearer " | "bEARER   ", 1) | Way::Message);
        let may = is_presented && brought.signed_claims.as_ref().is_some_and(|claims| allows(claims, verb, audience, about));
        let is_subscribed = is_accepted(server, &brought, way, asked).await;
        assert!(may || !is_subscribed, "{asked:?}");
        accepted.fetch_add(is_subscribed.into(), Ordering::Relaxed);
    });
    assert!(accepted.into_inner() > 0, "no token was accepted: the test tried nothing");
}

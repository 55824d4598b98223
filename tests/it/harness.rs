//! What every test needs: a server, a client, and a reader of streams that sees each byte.
//!
//! [`Process`] is the real binary; [`local`] the same server inside the test, for limits and sizes that no flag should reach.
//! [`Sse`] parses strictly: whatever is not one of the lines that the protocol allows, in its order, is a failure, so every
//! test that reads a stream also holds its grammar.

use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::ingest::World;
use proscenium::log::AnyStore;
use proscenium::log::memory::MemoryStore;
use proscenium::serve::{Limits, Pulse, Server};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::future::Future;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How long a test waits for what must happen. Only a hang takes as long.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The three audiences, widest first.
pub const AUDIENCES: [&str; 3] = ["user", "dashboard", "internal"];

/// Waits for `what`, and fails by name when it does not come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for {what}"))
}

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The facts of a recording of Awaken, in order.
pub fn recording(name: &str) -> Vec<Value> {
    facts_in(&format!("awaken/{name}"))
}

fn facts_in(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(repository(&format!("tests/recordings/{name}.ndjson"))).expect("a recording");
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The names of the recordings in one of their directories, in order.
pub fn recordings_in(directory: &str) -> Vec<String> {
    let files = std::fs::read_dir(repository("tests/recordings").join(directory)).expect("recordings");
    let mut names: Vec<_> = files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Every recording: its source, its directory and name, and its facts.
pub fn recordings() -> Vec<(&'static str, String, Vec<Value>)> {
    let directories = [
        ("awaken", "awaken"),
        ("awaken-canonical", "awaken"),
        ("ethos", "ethos"),
        ("turn-runner", "turnrunner"),
        ("ag-ui", "ag-ui"),
    ];
    let named = directories.iter().flat_map(|(directory, source)| {
        recordings_in(directory).into_iter().map(move |name| (*source, format!("{directory}/{name}")))
    });
    let all: Vec<_> = named.map(|(source, name)| (source, name.clone(), facts_in(&name))).collect();
    assert!(all.len() > 80, "the recordings are there");
    all
}

/// One JSON text a line.
pub fn lines(facts: &[Value]) -> String {
    facts.iter().map(|fact| format!("{fact}\n")).collect()
}

/// A fact of the native source: its type, and further members.
pub fn fact(class: &str, members: Value) -> Value {
    let mut fact = Map::from_iter([("type".to_owned(), json!(class))]);
    if let Value::Object(members) = members {
        fact.extend(members);
    }
    Value::Object(fact)
}

/// Names the cryptography that this process speaks TLS with: without, no client of its own can be made.
pub fn prepare() {
    // Another test may have been first.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}

/// The real binary on a free port. Ends with the value.
pub struct Process {
    pub at: SocketAddr,
    child: Child,
    /// Removed with the value.
    dir: Option<tempfile::TempDir>,
}

impl Process {
    /// Starts it on a data directory of its own, and waits until it says where it listens.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut started = Self::start_in(dir.path());
        started.dir = Some(dir);
        started
    }

    /// Starts it on this directory, which outlives it.
    pub fn start_in(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    /// The same, with further flags.
    pub fn start_with(dir: &Path, flags: &[&str]) -> Self {
        prepare();
        // Figures of a release build are taken with the same tests.
        let binary = std::env::var_os("PROSCENIUM_TEST_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_proscenium").into());
        let mut child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--data-dir"])
            .arg(dir.join("data"))
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        std::io::BufReader::new(stdout).read_line(&mut line).expect("a first line");
        let address = line.trim().strip_prefix("listening on ").and_then(|url| url.split_once("://"));
        let at = address.and_then(|(_, at)| at.parse().ok());
        Self { at: at.unwrap_or_else(|| panic!("the first line says where it listens: {line:?}")), child, dir: None }
    }

    /// SIGTERM: it is asked to stop.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends it this signal.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// What it has in memory, in KiB; 0 where the system does not tell.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// How long its threads have had a processor, in milliseconds; 0 where the system does not tell.
    pub fn cpu_ms(&self) -> u64 {
        /// Linux counts in hundredths of a second.
        const TICK_MS: u64 = 10;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // Behind the name, which may hold spaces: `utime` and `stime` are the 14th and the 15th of all fields.
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * TICK_MS
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("a child of ours")
    }

    /// `kill -9`: it gets no chance to put anything in order.
    pub fn kill(self) {}
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of a server in this test, with the sizes that users get.
pub async fn local() -> Client {
    local_with(Sizes::default(), Limits::default()).await
}

/// A client of a server in this test whose streams beat this often.
pub async fn local_beating(heartbeat: Duration) -> Client {
    serve(Sizes::default(), Limits::default(), Pulse { heartbeat, ..Pulse::default() }).await
}

/// A client of a server in this test, with sizes and limits of its own.
pub async fn local_with(sizes: Sizes, limits: Limits) -> Client {
    serve(sizes, limits, Pulse::default()).await
}

/// A server on a new store in memory. It ends with the test's runtime.
async fn serve(sizes: Sizes, limits: Limits, pulse: Pulse) -> Client {
    let store = AnyStore::Memory(MemoryStore::new());
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, world(jiff::Timestamp::now));
    serve_it(server.expect("an empty store opens"), std::future::pending()).await.0
}

/// The system's randomness, and this clock.
pub fn world(now: fn() -> jiff::Timestamp) -> World {
    let random = || {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).expect("the system has randomness");
        u128::from_ne_bytes(bits)
    };
    World { now, random }
}

/// A client of this server, which serves until it is told to stop; and what ends when it has stopped.
pub async fn serve_it(server: Server, stop: impl Future<Output = ()> + Send + 'static) -> (Client, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let at = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move { server.run(listener, stop).await.expect("a store that does not fail") });
    (Client::new(at), serving)
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as JSON, of an answer that has to be 200.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The problem document of an answer that has to be one of this status and code.
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.headers["cache-control"], "no-store");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{text}");
        assert_eq!(problem["status"], status, "{text}");
        crate::schema::assert_valid("problem.schema.json", &problem);
        problem
    }
}

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    pub at: SocketAddr,
    http: reqwest::Client,
}

impl Client {
    /// A client of the server at this address.
    pub fn new(at: SocketAddr) -> Self {
        prepare();
        let http = reqwest::Client::builder().no_proxy().build().expect("a plain client");
        Self { at, http }
    }

    /// The same client, of another server: to make one takes longer than to start a server.
    pub fn of(&self, at: SocketAddr) -> Self {
        Self { at, http: self.http.clone() }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let sending = async {
            let response = request.send().await.expect("an answer");
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Answer { status, headers, body: response.bytes().await.expect("a whole answer").to_vec() }
        };
        soon("an answer", sending).await
    }

    /// `GET path`
    pub async fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[]).await
    }

    /// `GET path` with headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = self.http.get(format!("http://{}{path}", self.at));
        self.send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    }

    /// `GET path` with headers, of whose answer only the beginning is wanted: a stream goes on.
    pub async fn head_of(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = self.http.get(format!("http://{}{path}", self.at));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = soon("an answer", request.send()).await.expect("an answer");
        Answer { status: answer.status().as_u16(), headers: answer.headers().clone(), body: Vec::new() }
    }

    /// `POST path` with a body and headers.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Answer {
        let mut request = self.http.post(format!("http://{}{path}", self.at)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request).await
    }

    /// `DELETE path`
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.http.delete(format!("http://{}{path}", self.at))).await
    }

    /// Posts JSON facts to a run.
    pub async fn facts(&self, run: &str, facts: &Value) -> Answer {
        self.post(&format!("/v1/runs/{run}/facts"), &[("content-type", "application/json")], facts.to_string()).await
    }

    /// Posts lines to a path.
    pub async fn lines(&self, path: &str, text: impl Into<reqwest::Body>) -> Answer {
        self.post(path, &[("content-type", "application/x-ndjson")], text).await
    }

    /// Posts native facts that have to be taken; the receipt.
    pub async fn accept(&self, run: &str, facts: &[Value]) -> Value {
        let receipt = self.facts(run, &json!(facts)).await.ok();
        assert_eq!(receipt["accepted"], facts.len(), "{receipt}");
        receipt
    }

    /// All events of a run that a query selects, page by page.
    pub async fn events(&self, run: &str, query: &str, limit: usize) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/v1/runs/{run}/events?limit={limit}&after={after}&{query}")).await.ok();
            let events = page["events"].as_array().expect("events");
            assert!(events.len() <= limit);
            all.extend(events.iter().cloned());
            assert_eq!(page["truncated"].as_bool(), Some(page["nextCursor"].is_string()), "{page}");
            match page["nextCursor"].as_str() {
                Some(next) => after = next.to_owned(),
                None => return all,
            }
        }
    }

    /// All events of a run that a query selects, page by page from the end; in order.
    pub async fn events_backward(&self, run: &str, query: &str, limit: usize) -> Vec<Value> {
        let (mut all, mut before) = (Vec::new(), u64::MAX.to_string());
        loop {
            let page = self.get(&format!("/v1/runs/{run}/events?limit={limit}&before={before}&{query}")).await.ok();
            let events = page["events"].as_array().expect("events");
            assert!(events.len() <= limit);
            all.splice(0..0, events.iter().cloned());
            match page["nextCursor"].as_str() {
                Some(next) => before = next.to_owned(),
                None => return all,
            }
        }
    }

    /// The lines of a run's export.
    pub async fn export(&self, run: &str, query: &str) -> Vec<Value> {
        let answer = self.get(&format!("/v1/runs/{run}/export?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/x-ndjson");
        let text = String::from_utf8(answer.body).expect("UTF-8");
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON text a line")).collect()
    }

    /// Opens a run's stream of events.
    pub async fn stream(&self, via: Via, run: &str, query: &str, resume: Option<&str>) -> Sse {
        self.open(via, &format!("/v1/runs/{run}/stream?frames=events&{query}"), resume).await
    }

    /// Opens a run's stream of activities.
    pub async fn activities(&self, run: &str, query: &str, resume: Option<&str>) -> Sse {
        self.open(Via::Raw, &format!("/v1/runs/{run}/stream?{query}"), resume).await
    }

    /// Opens any stream.
    pub async fn open(&self, via: Via, path: &str, resume: Option<&str>) -> Sse {
        let headers: Vec<_> = resume.iter().map(|id| ("last-event-id", *id)).collect();
        let socket = soon("a connection", TcpStream::connect(self.at)).await.expect("a connection");
        Sse::ask(socket, via, path, &headers).await
    }
}

/// Who carries a stream at the server's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The server's own sockets: a plain request for a stream, first on its connection.
    Raw,
    /// hyper: the request says how long its body is, which the server's own sockets leave to hyper.
    Hyper,
}

pub const BOTH: [Via; 2] = [Via::Raw, Via::Hyper];

/// One frame as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Heartbeats that stood before it.
    pub beats: usize,
    pub retry: Option<u64>,
    pub data: Value,
    pub id: Option<String>,
    /// All of its bytes.
    pub text: String,
}

impl Frame {
    /// `frame`.
    pub fn kind(&self) -> &str {
        self.data["frame"].as_str().expect("every frame says what it is")
    }

    /// `sequence`.
    pub fn sequence(&self) -> u64 {
        self.data["sequence"].as_u64().expect("every frame has a sequence")
    }

    /// `prev`.
    pub fn prev(&self) -> u64 {
        self.data["prev"].as_u64().expect("an event has a prev")
    }

    /// The cursor.
    pub fn id(&self) -> &str {
        self.id.as_deref().expect("this frame has a cursor")
    }

    /// Reads one block, which stands before an empty line. Strict: beats, retry, one data line, id, in this order.
    fn parse(text: &str) -> Self {
        let mut rest: Vec<&str> = text.strip_suffix("\n\n").expect("a block").split('\n').collect();
        let beats = rest.iter().take_while(|line| **line == ":").count();
        rest.drain(..beats);
        let retry = rest[0].strip_prefix("retry: ").map(|ms| ms.parse().expect("milliseconds"));
        if retry.is_some() {
            rest.remove(0);
        }
        let data = rest.remove(0).strip_prefix("data: ").unwrap_or_else(|| panic!("a data line: {text:?}"));
        let data = serde_json::from_str(data).expect("JSON");
        let id = (!rest.is_empty())
            .then(|| rest.remove(0).strip_prefix("id: ").unwrap_or_else(|| panic!("an id: {text:?}")).to_owned());
        assert!(rest.is_empty(), "nothing after the id: {text:?}");
        Self { beats, retry, data, id, text: text.to_owned() }
    }
}

/// A stream on a socket of its own.
pub struct Sse {
    socket: TcpStream,
    pub status: u16,
    pub headers: HashMap<String, String>,
    /// Every byte of the body so far.
    pub bytes: Vec<u8>,
    parsed: usize,
    /// What came and is not decoded yet; of a body in chunks.
    raw: Vec<u8>,
    chunked: bool,
    ended: bool,
}

impl Sse {
    /// Asks for `path` on this connection, and reads the answer's head.
    pub async fn ask(mut socket: TcpStream, via: Via, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if via == Via::Hyper {
            head.push_str("content-length: 0\r\n");
        }
        head.push_str("\r\n");
        socket.write_all(head.as_bytes()).await.expect("a request");
        let mut raw = Vec::new();
        let end = loop {
            if let Some(at) = find(&raw, b"\r\n\r\n") {
                break at;
            }
            let read = soon("a head", socket.read_buf(&mut raw)).await.expect("a head");
            assert!(read > 0, "the head ends early: {:?}", String::from_utf8_lossy(&raw));
        };
        let head = String::from_utf8(raw[..end].to_vec()).expect("a head is text");
        raw.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok()).expect("a status");
        let headers: HashMap<_, _> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let chunked = headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked");
        let ended = status == 204;
        let mut sse = Self { socket, status, headers, bytes: Vec::new(), parsed: 0, raw, chunked, ended };
        sse.decode();
        sse
    }

    /// Moves what is decoded to `bytes`.
    fn decode(&mut self) {
        if !self.chunked {
            self.bytes.append(&mut self.raw);
            return;
        }
        while let Some(line) = find(&self.raw, b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..line]).expect("a size"), 16).expect("a size");
            if self.raw.len() < line + 2 + size + 2 {
                return;
            }
            self.bytes.extend_from_slice(&self.raw[line + 2..][..size]);
            self.raw.drain(..line + 2 + size + 2);
            if size == 0 {
                self.ended = true;
                return;
            }
        }
    }

    /// Reads once; false at the end.
    async fn read(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let read = soon("more of a stream", self.socket.read_buf(&mut self.raw)).await.expect("a stream");
        assert!(read > 0 || !self.chunked, "a body in chunks was cut");
        self.ended |= read == 0;
        self.decode();
        !self.ended || read > 0
    }

    /// The next frame; `None` once the response is over.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = find(&self.bytes[self.parsed..], b"\n\n") {
                let block = &self.bytes[self.parsed..][..end + 2];
                self.parsed += end + 2;
                return Some(Frame::parse(std::str::from_utf8(block).expect("UTF-8")));
            }
            if !self.read().await {
                let rest = String::from_utf8_lossy(&self.bytes[self.parsed..]);
                assert!(rest.chars().all(|c| ":\n".contains(c)), "the stream ends inside a frame: {rest:?}");
                return None;
            }
        }
    }

    /// The next frame, which has to be there.
    pub async fn frame(&mut self) -> Frame {
        self.next().await.expect("a frame, not the end")
    }

    /// Everything up to the end of the response.
    pub async fn all(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// The first byte of the body, once it is there.
    pub async fn opened(&mut self) {
        while self.bytes.is_empty() {
            assert!(self.read().await, "the stream ends before its first byte");
        }
    }

    /// Reads once more, of a stream that goes on.
    pub async fn more(&mut self) {
        assert!(self.read().await, "the stream ends");
    }

    /// The body, whole, of an answer that has a length.
    pub async fn body(&mut self) -> Vec<u8> {
        let length = self.headers.get("content-length").map_or(0, |n| n.parse().expect("a length"));
        while self.bytes.len() < length {
            assert!(self.read().await, "the body ends early");
        }
        self.bytes.clone()
    }

    /// Reads frames by number only, for streams too large to look into: their sequences up to the end, which has to come.
    pub async fn sequences(&mut self) -> Vec<u64> {
        while self.read().await {}
        let text = std::str::from_utf8(&self.bytes).expect("UTF-8");
        let number = |line: &str| {
            let from = line.find("\"sequence\":").expect("a sequence") + 11;
            line[from..].split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).expect("a number")
        };
        let data: Vec<&str> = text.lines().filter(|line| line.starts_with("data: ")).collect();
        assert!(data.last().is_some_and(|line| line.starts_with("data: {\"frame\":\"End\"")), "ends with End");
        data[..data.len() - 1].iter().map(|line| number(line)).collect()
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

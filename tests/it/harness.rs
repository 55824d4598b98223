//! The tests' server, client and strict stream reader.
//!
//! [`Process`] runs the real binary, and [`ClockedProcess`] on a clock that the test sets forward. [`start_local`] runs the same server inside the test, with limits and sizes that
//! no flag should reach. [`Sse`] parses strictly: it fails on any line, or order of lines, that the protocol does not
//! allow. Every test that reads a stream therefore also checks its grammar.

use proscenium::cluster::Membership;
use proscenium::environment::Environment;
pub use proscenium::environment::install_crypto_provider;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::embedded::Sync;
use proscenium::log::{Storage, StoreError};
use proscenium::serve::api::documentation::Documentation;
use proscenium::serve::cluster::Cluster;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;

/// The longest time that a test waits for an event. Only a hang takes this long.
pub const TIMEOUT: Duration = Duration::from_mins(5);

/// The three audiences, widest first.
pub const AUDIENCES: [&str; 3] = ["user", "dashboard", "internal"];

/// Waits for `future`, and panics with `what` if it does not complete within [`TIMEOUT`].
pub async fn with_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("{what}: not received within {TIMEOUT:?}"))
}

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Reads the facts of an Awaken recording, in order.
pub fn recording(name: &str) -> Vec<Value> {
    facts_in(&format!("awaken/{name}"))
}

/// Reads the facts of a recording by its `directory/name`, in order.
pub fn facts_in(name: &str) -> Vec<Value> {
    let text =
        std::fs::read_to_string(repository(&format!("tests/recordings/{name}.ndjson"))).expect("the recording is readable");
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).expect("every line is JSON"))
        .collect()
}

/// Lists the names of the recordings in one directory, sorted.
pub fn list_recordings(directory: &str) -> Vec<String> {
    let files = std::fs::read_dir(repository("tests/recordings").join(directory)).expect("the directory is readable");
    let mut names: Vec<_> = files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// A directory of recordings, and the source of its facts.
pub const FOLDERS: &[(&str, &str)] = &[
    ("awaken", "awaken"),
    ("awaken-canonical", "awaken"),
    ("ethos", "ethos"),
    ("turn-runner", "turnrunner"),
    ("ag-ui", "ag-ui"),
    ("ai-sdk", "ai-sdk"),
    ("openai-responses", "openai-responses"),
    ("acp", "acp"),
    ("claude-stream-json", "claude-stream-json"),
    ("a2a", "a2a"),
    ("langgraph", "langgraph"),
];

/// Reads every recording: its source, its `directory/name`, and its facts.
pub fn recordings() -> Vec<(&'static str, String, Vec<Value>)> {
    let named = FOLDERS.iter().flat_map(|(directory, source)| {
        list_recordings(directory).into_iter().map(move |name| (*source, format!("{directory}/{name}")))
    });
    let all: Vec<_> = named.map(|(source, name)| (source, name.clone(), facts_in(&name))).collect();
    assert!(all.len() > 250, "found only {} recordings", all.len());
    all
}

/// Returns whether `PROSCENIUM_FULL=1` asks for all of what long tests can do.
pub fn is_full() -> bool {
    std::env::var("PROSCENIUM_FULL").is_ok_and(|full| full == "1")
}

/// Picks one of so many parts of the recordings: the one that this run of the gate reads in a long test.
///
/// `PROSCENIUM_PART` selects it, which `scripts/test` sets by the commit and prints. `PROSCENIUM_FULL=1` selects all.
pub fn part_of<T>(recordings: Vec<T>, parts: usize) -> Vec<T> {
    if is_full() {
        return recordings;
    }
    let part = std::env::var("PROSCENIUM_PART").map_or(0, |part| part.parse().expect("PROSCENIUM_PART is a number"));
    recordings.into_iter().skip(part % parts).step_by(parts).collect()
}

/// Writes each fact as one line of NDJSON.
pub fn to_ndjson(facts: &[Value]) -> String {
    facts.iter().map(|fact| format!("{fact}\n")).collect()
}

/// Builds a fact of the native source from its type and further members.
pub fn fact(event_type: &str, members: Value) -> Value {
    let mut fact = Map::from_iter([("type".to_owned(), json!(event_type))]);
    if let Value::Object(members) = members {
        fact.extend(members);
    }
    Value::Object(fact)
}

/// The real binary on a free port. Dropping the value kills it.
pub struct Process {
    pub at: SocketAddr,
    child: Child,
    /// A temporary directory, removed on drop.
    dir: Option<tempfile::TempDir>,
}

impl Process {
    /// Starts the binary on its own data directory, and waits until it prints its address.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be created");
        let mut started = Self::start_in(dir.path());
        started.dir = Some(dir);
        started
    }

    /// Starts the binary on `dir`, which outlives it.
    pub fn start_in(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    /// Starts the binary on `dir` with further flags.
    pub fn start_with(dir: &Path, flags: &[&str]) -> Self {
        Self::start_with_env(dir, flags, &[])
    }

    /// The same, with further variables in its environment.
    pub fn start_with_env(dir: &Path, flags: &[&str], envs: &[(&str, &str)]) -> Self {
        let mut command = Self::command(dir, "warn,proscenium::access=error");
        command.args(flags).envs(envs.iter().copied());
        Self::spawn(command)
    }

    /// Starts the binary on `dir` with these limits of open files, as a shell sets them.
    pub fn start_with_files(dir: &Path, soft_max: usize, hard_max: usize) -> Self {
        let mut command = Command::new("sh");
        let script = format!("ulimit -Sn {soft_max} && ulimit -Hn {hard_max} && exec \"$@\"");
        let started = Self::command(dir, "error");
        command.args(["-c", &script, "sh"]).arg(started.get_program()).args(started.get_args());
        command.stdout(Stdio::piped());
        Self::spawn(command)
    }

    /// The command that starts the binary on `dir` with this log filter.
    pub fn command(dir: &Path, log: &str) -> Command {
        // A measurement of a release build uses the same tests.
        let binary = std::env::var_os("PROSCENIUM_TEST_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_proscenium").into());
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", log, "--data-dir"]).arg(dir.join("data"));
        command.stdout(Stdio::piped());
        command
    }

    /// Starts the binary by its command, and waits until it prints its address.
    pub fn spawn(mut command: Command) -> Self {
        install_crypto_provider();
        let mut child = command.spawn().expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        std::io::BufReader::new(stdout).read_line(&mut line).expect("stdout is readable");
        let address = line.trim().strip_prefix("listening on ").and_then(|url| url.split_once("://"));
        let at = address.and_then(|(_, at)| at.parse().ok());
        Self { at: at.unwrap_or_else(|| panic!("the first line does not state the address: {line:?}")), child, dir: None }
    }

    /// Sends SIGTERM: a graceful stop.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends this signal.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Returns the resident memory in KiB, or 0 where `/proc` is missing.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processor time of the process, in milliseconds; 0 where the system does not report it.
    pub fn cpu_ms(&self) -> u64 {
        cpu_ms_of(self.id())
    }

    /// Waits until the process has ended, and returns its log. Its command must have piped standard error.
    pub fn take_log(&mut self) -> String {
        let mut log = String::new();
        let stderr = self.child.stderr.take().expect("standard error is piped");
        std::io::Read::read_to_string(&mut { stderr }, &mut log).expect("the log is UTF-8");
        self.wait();
        log
    }

    /// Waits until the process has ended.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("the process is a child of this one")
    }

    /// Kills the process with SIGKILL, so that it cannot clean up.
    pub fn kill(self) {}
}

/// The real binary on a clock that the test sets forward: what takes a day takes no time.
pub struct ClockedProcess {
    pub server: Process,
    /// It opens a connection for each request, because the server closes idle ones when its clock is set forward.
    pub client: Client,
    clock: PathBuf,
}

impl ClockedProcess {
    /// Starts the binary on `dir` with further flags.
    pub fn start(dir: &Path, flags: &[&str]) -> Self {
        let mut command = Process::command(dir, "warn,proscenium::access=error");
        command.args(flags);
        Self::spawn(dir, command)
    }

    /// Starts the binary by its command.
    pub fn spawn(dir: &Path, mut command: Command) -> Self {
        let clock = dir.join("clock");
        // That of a process before, which may have been killed.
        let _ = std::fs::remove_file(&clock);
        let server = Process::spawn({
            command.env("PROSCENIUM_TEST_CLOCK", &clock);
            command
        });
        let client = Client::without_pool(server.at);
        Self { server, client, clock }
    }

    /// Sets the server's clocks forward.
    pub async fn advance(&self, by: Duration) {
        advance_clock(&self.clock, by).await;
    }

    /// Sets the server's clocks forward by `step` until `is_done`. Returns how far, which is at most a step more than it
    /// took the server, and the time that this machine took less.
    pub async fn advance_until(&self, what: &str, step: Duration, mut is_done: impl AsyncFnMut() -> bool) -> Duration {
        with_timeout(what, async {
            let mut advanced = Duration::ZERO;
            while !is_done().await {
                self.advance(step).await;
                advanced += step;
                // The server works on what became due.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            advanced
        })
        .await
    }
}

/// Sets the clocks of the server forward that obeys this socket.
pub async fn advance_clock(socket: &Path, by: Duration) {
    let mut clock = UnixStream::connect(socket).await.expect("the server obeys its test's clock");
    clock.write_all(format!("advance {}\n", by.as_millis()).as_bytes()).await.expect("the server reads");
    let mut answer = [0; 3];
    with_timeout("the clock", clock.read_exact(&mut answer)).await.expect("the server answers");
    assert_eq!(&answer, b"ok\n");
}

/// Returns the processor time of a process, in milliseconds; 0 where the system does not report it.
pub fn cpu_ms_of(process: u32) -> u64 {
    cpu_ms_in(&format!("/proc/{process}/stat"))
}

/// Returns the processor time of a process's first thread, in milliseconds: the one on which a server with one worker
/// serves.
pub fn serving_cpu_ms_of(process: u32) -> u64 {
    cpu_ms_in(&format!("/proc/{process}/task/{process}/stat"))
}

fn cpu_ms_in(stat: &str) -> u64 {
    /// Linux counts in hundredths of a second.
    const TICK_MS: u64 = 10;
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    // After the name, which may contain spaces: `utime` and `stime` are fields 14 and 15.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * TICK_MS
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server in this test with the default sizes, and returns its client.
pub async fn start_local() -> Client {
    start_local_with(FeedConfig::default(), Limits::default()).await
}

/// Starts a server in this test with this heartbeat interval, and returns its client.
pub async fn start_local_with_heartbeat(heartbeat: Duration) -> Client {
    serve(FeedConfig::default(), Limits::default(), KeepAlive { heartbeat, ..KeepAlive::default() }).await
}

/// Starts a server in this test with these sizes and limits, and returns its client.
pub async fn start_local_with(sizes: FeedConfig, limits: Limits) -> Client {
    serve(sizes, limits, KeepAlive::default()).await
}

/// Starts a server on a new in-memory store. It ends with the test's runtime.
async fn serve(sizes: FeedConfig, limits: Limits, pulse: KeepAlive) -> Client {
    let store = Storage::memory();
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now));
    let server = server.expect("an empty store opens").with_documentation(DOCUMENTATION);
    serve_until(server, std::future::pending()).await.0
}

/// Starts a server in this test on a store in this directory, and returns its client.
pub async fn start_local_in(dir: &Path) -> Client {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let store = storage_in(dir, Sync::Never).await;
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now));
    let server = server.expect("an empty store opens").with_documentation(DOCUMENTATION);
    serve_until(server, std::future::pending()).await.0
}

/// Starts a server in this test that is a node of a cluster without other nodes, and returns its client.
pub async fn start_local_node() -> Client {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let server = Server::new(Storage::memory(), Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now));
    let membership = Arc::new(Membership::new("test".into(), "node".into(), "http://127.0.0.1".into()));
    let server = server.expect("an empty store opens").with_cluster(Cluster::new(membership).expect("the HTTP client builds"));
    serve_until(server, std::future::pending()).await.0
}

/// The files below a directory, with what they have.
pub fn files_below(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => drop(files.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    files
}

/// Copies a directory recursively.
pub fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, to) = (entry.unwrap().path(), to.to_owned());
        let target = to.join(entry.file_name().unwrap());
        match entry.is_dir() {
            true => copy_directory(&entry, &target),
            false => drop(std::fs::copy(&entry, &target).unwrap()),
        }
    }
}

/// Builds an environment of the system's randomness and this clock.
pub fn environment(now: fn() -> jiff::Timestamp) -> Environment {
    Environment { now, ..Environment::SYSTEM }
}

/// A small documentation: that of the project would build the tests again with each of its changes.
pub const DOCUMENTATION: Documentation = Documentation::new(
    &[
        ("SUMMARY.md", "# Summary\n\n[The start](index.md)\n\n# Guides\n\n- [Ask](guides/ask.md)\n"),
        ("index.md", "# The start\n\nSee [how to ask](guides/ask.md#how-to-ask-twice) & [the code](../../src/lib.rs).\n"),
        (
            "guides/ask.md",
            "# Ask <b>\n\n## How to ask, `twice`\n\n## How to ask, twice\n\n| code | meaning |\n| --- | --- |\n| `no_such_run` | It is \\\n \
             not there |\n\n![A \"card\"](../pictures/card.png) ![Never](../pictures/never.png) [back](../index.md) [out](https://example.com)\n",
        ),
        ("llms.txt", "# Test\n\n- [The start](index.md): all\n- [Out](https://example.com): else\n"),
    ],
    &[
        ("pictures/card.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x06\x40\0\0\x03\xe8"),
        ("pictures/card-dark.png", b"dark"),
        ("pictures/growth.svg", b"<svg/>"),
    ],
);

/// Serves until `stop` completes. Returns a client, and a handle that ends with the server.
pub async fn serve_until(server: Server, stop: impl Future<Output = ()> + Send + 'static) -> (Client, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port exists");
    let at = listener.local_addr().expect("the listener has an address");
    let serving = tokio::spawn(async move { server.run(listener, stop).await.expect("the store does not fail") });
    (Client::new(at), serving)
}

/// One HTTP response with its whole body.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Vec<u8>,
}

impl Response {
    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts status 200, and parses the body as JSON.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// Asserts a problem document with this status and code, and returns it.
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
    /// The token of its streams, which have connections of their own.
    bearer: Option<String>,
    /// Whether it sends a request again that found no leader, as clients of a cluster do.
    awaits_leader: bool,
}

impl Client {
    /// A client of the server at this address.
    pub fn new(at: SocketAddr) -> Self {
        install_crypto_provider();
        // The server closes a connection that was idle for 75 s; a test must not meet that moment.
        // A body may wait for the server longer than reqwest lets a connection stand still.
        let builder = reqwest::Client::builder().no_proxy().pool_idle_timeout(Duration::from_secs(30));
        let http = builder.tcp_user_timeout(None).build();
        Self { at, http: http.expect("the HTTP client builds"), bearer: None, awaits_leader: false }
    }

    /// Creates a client that opens a connection for each request: a server closes idle ones when its clock is set forward.
    pub fn without_pool(at: SocketAddr) -> Self {
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).tcp_user_timeout(None).build();
        Self { at, http: http.expect("the HTTP client builds"), bearer: None, awaits_leader: false }
    }

    /// A client that sends this token with each request.
    pub fn with_token(at: SocketAddr, token: &str) -> Self {
        install_crypto_provider();
        let bearer = format!("Bearer {token}");
        let value = bearer.parse().expect("a token is a header value");
        let headers = [(http::header::AUTHORIZATION, value)].into_iter().collect();
        let http = reqwest::Client::builder().no_proxy().default_headers(headers).build();
        Self { at, http: http.expect("the HTTP client builds"), bearer: Some(bearer), awaits_leader: false }
    }

    /// Returns this client for another server: to build a client takes longer than to start a server.
    pub fn for_server(&self, at: SocketAddr) -> Self {
        Self { at, ..self.clone() }
    }

    /// Returns this client, so that it sends a request again that found no leader: nothing of it was stored.
    pub fn awaiting_leader(&self) -> Self {
        Self { awaits_leader: true, ..self.clone() }
    }

    /// Returns this client, so that it takes the first answer.
    pub fn at_once(&self) -> Self {
        Self { awaits_leader: false, ..self.clone() }
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> Response {
        let sending = async {
            loop {
                let again = request.try_clone().filter(|_| self.awaits_leader);
                let response = request.send().await.expect("a response arrives");
                let (status, headers) = (response.status().as_u16(), response.headers().clone());
                let body = response.bytes().await.expect("the whole body arrives").to_vec();
                let has_no_leader = status == 503 && memchr::memmem::find(&body, b"\"no_leader\"").is_some();
                match again.filter(|_| has_no_leader) {
                    Some(again) => request = again,
                    None => return Response { status, headers, body },
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // Boxed, so that tests with many requests stay small.
        with_timeout("a response", Box::pin(sending)).await
    }

    /// Sends `GET path`.
    pub async fn get(&self, path: &str) -> Response {
        self.get_with(path, &[]).await
    }

    /// Sends `GET path` with headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.http.get(format!("http://{}{path}", self.at));
        self.send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    }

    /// Sends `GET path` with headers and reads only the response's head, since a stream does not end.
    pub async fn get_head(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.http.get(format!("http://{}{path}", self.at));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = with_timeout("a response head", request.send()).await.expect("a response arrives");
        Response { status: answer.status().as_u16(), headers: answer.headers().clone(), body: Vec::new() }
    }

    /// Sends `POST path` with a body and headers.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Response {
        self.request(http::Method::POST, path, headers, body).await
    }

    /// Sends a body and headers by any method.
    pub async fn request(
        &self,
        method: http::Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Response {
        let request = self.http.request(method, format!("http://{}{path}", self.at)).body(body);
        self.send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    }

    /// Sends `DELETE path`.
    pub async fn delete(&self, path: &str) -> Response {
        self.send(self.http.delete(format!("http://{}{path}", self.at))).await
    }

    /// Sends `PATCH path` with JSON.
    pub async fn patch(&self, path: &str, body: &Value) -> Response {
        self.request(http::Method::PATCH, path, &[], body.to_string()).await
    }

    /// Sends `PUT path` with JSON.
    pub async fn put(&self, path: &str, body: &Value) -> Response {
        self.request(http::Method::PUT, path, &[], body.to_string()).await
    }

    /// Posts a JSON body of facts to a run.
    pub async fn post_facts(&self, run: &str, facts: &Value) -> Response {
        self.post(&format!("/v1/runs/{run}/facts"), &[("content-type", "application/json")], facts.to_string()).await
    }

    /// Posts NDJSON to a path.
    pub async fn post_lines(&self, path: &str, text: impl Into<reqwest::Body>) -> Response {
        self.post(path, &[("content-type", "application/x-ndjson")], text).await
    }

    /// Posts native facts, asserts that the server accepts all of them, and returns the receipt.
    pub async fn append(&self, run: &str, facts: &[Value]) -> Value {
        let receipt = self.post_facts(run, &json!(facts)).await.ok();
        assert_eq!(receipt["accepted"], facts.len(), "{receipt}");
        receipt
    }

    /// All events of a run that a query selects, page by page.
    pub async fn read_events(&self, run: &str, query: &str, limit: usize) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/v1/runs/{run}/events?limit={limit}&after={after}&{query}")).await.ok();
            let events = page["events"].as_array().expect("a page has events");
            assert!(events.len() <= limit);
            all.extend(events.iter().cloned());
            assert_eq!(page["truncated"].as_bool(), Some(page["nextCursor"].is_string()), "{page}");
            match page["nextCursor"].as_str() {
                Some(next) => after = next.to_owned(),
                None => return all,
            }
        }
    }

    /// Reads every event of a run that `query` selects, page by page from the end; in log order.
    pub async fn read_events_backward(&self, run: &str, query: &str, limit: usize) -> Vec<Value> {
        let (mut all, mut before) = (Vec::new(), u64::MAX.to_string());
        loop {
            let page = self.get(&format!("/v1/runs/{run}/events?limit={limit}&before={before}&{query}")).await.ok();
            let events = page["events"].as_array().expect("a page has events");
            assert!(events.len() <= limit);
            all.splice(0..0, events.iter().cloned());
            match page["nextCursor"].as_str() {
                Some(next) => before = next.to_owned(),
                None => return all,
            }
        }
    }

    /// Reads the lines of a run's export.
    pub async fn export(&self, run: &str, query: &str) -> Vec<Value> {
        let answer = self.get(&format!("/v1/runs/{run}/export?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/x-ndjson");
        let text = String::from_utf8(answer.body).expect("an export is UTF-8");
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
    }

    /// Opens a run's stream of events.
    pub async fn open_stream(&self, via: Transport, run: &str, query: &str, resume: Option<&str>) -> Sse {
        self.open(via, &format!("/v1/runs/{run}/stream?frames=events&{query}"), resume).await
    }

    /// Opens a run's stream of activities.
    pub async fn open_activities(&self, run: &str, query: &str, resume: Option<&str>) -> Sse {
        self.open(Transport::Raw, &format!("/v1/runs/{run}/stream?{query}"), resume).await
    }

    /// Opens any stream.
    pub async fn open(&self, via: Transport, path: &str, resume: Option<&str>) -> Sse {
        let mut headers: Vec<_> = resume.iter().map(|id| ("last-event-id", *id)).collect();
        headers.extend(self.bearer.iter().map(|bearer| ("authorization", &**bearer)));
        let socket =
            with_timeout("a TCP connection", TcpStream::connect(self.at)).await.expect("the server accepts the connection");
        Sse::open(socket, via, path, &headers).await
    }
}

/// A text that a compressed block has as it is.
///
/// LZ4 leaves out what stood in the block before, from four bytes on. No four bytes of this text stand in it twice, nor in
/// any other data. So its first copy in a block is whole.
pub const LITERAL_MARKER: &str = "ꙬᚠⴳꔀᠷⰃꡀᎠ";

/// Whether these bytes, compressed or not, have [`LITERAL_MARKER`], or the word that the index of texts has for it.
pub fn has_literal_marker(bytes: &[u8]) -> bool {
    let word = LITERAL_MARKER.to_lowercase();
    [LITERAL_MARKER, &word].iter().any(|marker| memchr::memmem::find(bytes, marker.as_bytes()).is_some())
}

/// The server code that carries a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The server's own socket code: it takes a plain stream request that is the first on its connection.
    Raw,
    /// hyper: a request with a `content-length`, which the server's own socket code leaves to hyper.
    Hyper,
}

pub const TRANSPORTS: [Transport; 2] = [Transport::Raw, Transport::Hyper];

/// One frame as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Heartbeats that stood before it.
    pub heartbeats: usize,
    pub retry: Option<u64>,
    pub data: Value,
    pub id: Option<String>,
    /// All bytes of the frame.
    pub text: String,
}

impl Frame {
    /// Returns the member `frame`.
    pub fn kind(&self) -> &str {
        self.data["frame"].as_str().expect("every frame has a kind")
    }

    /// Returns the member `sequence`.
    pub fn sequence(&self) -> u64 {
        self.data["sequence"].as_u64().expect("every frame has a sequence")
    }

    /// Returns the member `prev`.
    pub fn prev(&self) -> u64 {
        self.data["prev"].as_u64().expect("an event has a prev")
    }

    /// Returns the cursor.
    pub fn id(&self) -> &str {
        self.id.as_deref().expect("this frame has a cursor")
    }

    /// Parses one block that ends with an empty line. Strict order: heartbeats, retry, one data line, id.
    fn parse(text: &str) -> Self {
        let mut rest: Vec<&str> = text.strip_suffix("\n\n").expect("a block ends with an empty line").split('\n').collect();
        let heartbeats = rest.iter().take_while(|line| **line == ":").count();
        rest.drain(..heartbeats);
        let retry = rest[0].strip_prefix("retry: ").map(|ms| ms.parse().expect("retry is a number of milliseconds"));
        if retry.is_some() {
            rest.remove(0);
        }
        let data = rest.remove(0).strip_prefix("data: ").unwrap_or_else(|| panic!("expected a data line: {text:?}"));
        let data = serde_json::from_str(data).expect("the data is JSON");
        let id = (!rest.is_empty())
            .then(|| rest.remove(0).strip_prefix("id: ").unwrap_or_else(|| panic!("expected an id: {text:?}")).to_owned());
        assert!(rest.is_empty(), "unexpected line after the id: {text:?}");
        Self { heartbeats, retry, data, id, text: text.to_owned() }
    }
}

/// An SSE stream on its own socket.
pub struct Sse {
    socket: TcpStream,
    pub status: u16,
    pub headers: HashMap<String, String>,
    /// All bytes of the body so far.
    pub bytes: Vec<u8>,
    parsed: usize,
    /// Received bytes of a chunked body that are not decoded yet.
    raw: Vec<u8>,
    chunked: bool,
    ended: bool,
}

impl Sse {
    /// Requests `path` on this connection, and reads the response's head.
    pub async fn open(socket: TcpStream, via: Transport, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if via == Transport::Hyper {
            head.push_str("content-length: 0\r\n");
        }
        head.push_str("\r\n");
        Self::begin(socket, &head).await
    }

    /// Posts a JSON body on this connection, and reads the response's head.
    pub async fn post(socket: TcpStream, path: &str, body: &str) -> Self {
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        Self::begin(socket, &format!("{head}content-length: {}\r\n\r\n{body}", body.len())).await
    }

    /// Sends a request, and reads the response's head.
    async fn begin(mut socket: TcpStream, request: &str) -> Self {
        socket.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut raw = Vec::new();
        let end = loop {
            if let Some(at) = find(&raw, b"\r\n\r\n") {
                break at;
            }
            let read = with_timeout("a response head", socket.read_buf(&mut raw)).await.expect("the socket is readable");
            assert!(read > 0, "the head ends early: {:?}", String::from_utf8_lossy(&raw));
        };
        let head = String::from_utf8(raw[..end].to_vec()).expect("the head is UTF-8");
        raw.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|code| code.parse().ok())
            .expect("the head has a status");
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

    /// Sends these bytes after the request.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.expect("the bytes are sent");
    }

    /// Returns the connection, for what no reader sends.
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Moves decoded bytes from `raw` to `bytes`.
    fn decode(&mut self) {
        if !self.chunked {
            self.bytes.append(&mut self.raw);
            return;
        }
        while let Some(line) = find(&self.raw, b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..line]).expect("a chunk size is ASCII"), 16)
                .expect("a chunk size is hexadecimal");
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

    /// Reads once. Returns false at the end of the body.
    async fn read(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let read = with_timeout("more of a stream", self.socket.read_buf(&mut self.raw)).await.expect("the socket is readable");
        assert!(read > 0 || !self.chunked, "the chunked body ended early");
        self.ended |= read == 0;
        self.decode();
        !self.ended || read > 0
    }

    /// Reads the next frame; `None` after the response has ended.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = find(&self.bytes[self.parsed..], b"\n\n") {
                let block = &self.bytes[self.parsed..][..end + 2];
                self.parsed += end + 2;
                return Some(Frame::parse(std::str::from_utf8(block).expect("a frame is UTF-8")));
            }
            if !self.read().await {
                let rest = String::from_utf8_lossy(&self.bytes[self.parsed..]);
                assert!(rest.chars().all(|c| ":\n".contains(c)), "the stream ends inside a frame: {rest:?}");
                return None;
            }
        }
    }

    /// Reads the next frame, and panics if the response has ended.
    pub async fn next_frame(&mut self) -> Frame {
        self.next().await.expect("expected a frame, but the response has ended")
    }

    /// Reads every frame up to the end of the response.
    pub async fn read_all(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Waits for the first byte of the body.
    pub async fn wait_until_open(&mut self) {
        while self.bytes.is_empty() {
            assert!(self.read().await, "the stream ends before its first byte");
        }
    }

    /// Reads once more from a stream that goes on.
    pub async fn read_more(&mut self) {
        assert!(self.read().await, "the stream ends");
    }

    /// Reads a stream to its end.
    pub async fn read_to_end(&mut self) {
        while self.read().await {}
    }

    /// Reads the whole body of a response that has a `content-length`.
    pub async fn body(&mut self) -> Vec<u8> {
        let length = self.headers.get("content-length").map_or(0, |n| n.parse().expect("the content length is a number"));
        while self.bytes.len() < length {
            assert!(self.read().await, "the body ends early");
        }
        self.bytes.clone()
    }

    /// Reads the whole stream and returns only the sequences, for streams that are too large to parse.
    ///
    /// Asserts that the last frame is `End`.
    pub async fn sequences(&mut self) -> Vec<u64> {
        self.read_to_end().await;
        let text = std::str::from_utf8(&self.bytes).expect("a stream is UTF-8");
        let number = |line: &str| {
            let from = line.find("\"sequence\":").expect("every frame has a sequence") + 11;
            line[from..].split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).expect("a sequence is a number")
        };
        let data: Vec<&str> = text.lines().filter(|line| line.starts_with("data: ")).collect();
        assert!(data.last().is_some_and(|line| line.starts_with("data: {\"frame\":\"End\"")), "the last frame is End");
        data[..data.len() - 1].iter().map(|line| number(line)).collect()
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// Opens the storage of a directory, once its last user has released it.
pub async fn storage_in(dir: &Path, sync: Sync) -> Storage {
    loop {
        match Storage::open(dir, sync) {
            Err(StoreError::Locked { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
            opened => return opened.unwrap(),
        }
    }
}

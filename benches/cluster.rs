//! Measures a cluster on loopback beside one server with a local journal: ingest, latency, lag, take-over, readers.
//!
//! ```text
//! cargo bench --bench cluster -- [seconds of each measurement, 5]
//! ```
//! NATS servers, nodes and the load share the cores of one machine, so the figures say what a machine can do at least. The
//! servers are those of `scripts/nats`; `STORE_BENCH_DIR` selects the disk. Under `cargo test` it is a short smoke test.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

use nats::Nats;
use proscenium::environment::Environment;
use proscenium::record::signing::SigningKey;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader as AsyncReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

#[path = "../tests/it/nats.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "the tests, for which it is written, use more of it")]
mod nats;

/// What the NATS servers of the tests need.
mod harness {
    pub const TIMEOUT: std::time::Duration = std::time::Duration::from_mins(1);

    pub fn repository(path: &str) -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
    }
}

/// Facts of one body, and connections, of the ingest.
const BODY_FACTS: usize = 1000;
const PRODUCERS: usize = 8;
/// Runs with a reader each, and the posts to all of them in a second.
const RUNS: usize = 500;
const POSTS_PER_SEC: usize = 1000;
const READERS: usize = 300;

/// The server, unless `PROSCENIUM_BENCH_BIN` names another build.
const PROGRAM: &str = env!("CARGO_BIN_EXE_proscenium");

/// A server: one of its own, or a node.
struct Server {
    at: SocketAddr,
    child: Child,
}

impl Server {
    fn start(dir: &Path, flags: &[&str]) -> Self {
        let program = std::env::var_os("PROSCENIUM_BENCH_BIN").unwrap_or_else(|| PROGRAM.into());
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--data-dir"])
            .arg(dir)
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("the server says its address");
        let at = line.rsplit("http://").next().expect("an address").trim().parse().expect("an address");
        Self { at, child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::var("STORE_BENCH_DIR").unwrap_or_else(|_| ".".into())).expect("a directory")
}

/// A connection for one request after another.
struct Http(AsyncReader<TcpStream>);

impl Http {
    async fn connect(at: SocketAddr) -> std::io::Result<Self> {
        let socket = TcpStream::connect(at).await?;
        socket.set_nodelay(true)?;
        Ok(Self(AsyncReader::new(socket)))
    }

    /// Sends a request; returns the status and the body.
    async fn send(&mut self, method: &str, path: &str, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
        let length = body.len();
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
            self.0.get_ref().peer_addr()?
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.0.get_mut().write_all(&request).await?;
        let (mut status, mut length, mut line) = (0, 0, String::new());
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let lower = line.to_ascii_lowercase();
            if let Some(text) = lower.strip_prefix("http/1.1 ") {
                status = text[..3].parse().expect("a status");
            } else if let Some(text) = lower.strip_prefix("content-length:") {
                length = text.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        Ok((status, body))
    }
}

fn fact(text: &str) -> String {
    format!(r#"{{"type":"text.delta","messageId":"m","partId":"p","payload":{{"text":"{text}"}}}}"#)
}

/// Posts facts of one run that must be stored.
async fn post(http: &mut Http, run: &str, facts: &[u8]) {
    let (status, body) = http.send("POST", &format!("/v1/runs/{run}/facts"), facts).await.expect("the server answers");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
}

/// Reads a run's stream, and reports the text of each fact with the time of its arrival, from `begun` on.
fn follow(at: SocketAddr, run: String, begun: Instant, arrived: mpsc::UnboundedSender<(u64, u64)>) {
    tokio::spawn(async move {
        let mut socket = TcpStream::connect(at).await.expect("the server accepts");
        let head = format!("GET /v1/runs/{run}/stream?frames=events HTTP/1.1\r\nhost: {at}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.expect("the server reads");
        let (mut bytes, marker) = (Vec::new(), br#""text":""#);
        while socket.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            let now = micros(begun);
            let mut from = 0;
            while let Some(found) = memchr::memmem::find(&bytes[from..], marker) {
                let start = from + found + marker.len();
                let Some(length) = memchr::memchr(b'"', &bytes[start..]) else { break };
                if let Ok(sent) = String::from_utf8_lossy(&bytes[start..start + length]).parse()
                    && arrived.send((sent, now)).is_err()
                {
                    return;
                }
                from = start + length;
            }
            bytes.drain(..from);
        }
    });
}

fn micros(begun: Instant) -> u64 {
    begun.elapsed().as_micros() as u64
}

/// `p50 p99` of microseconds, in milliseconds.
fn percentiles(mut micros: Vec<u64>) -> String {
    micros.sort_unstable();
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    if micros.is_empty() { "none".into() } else { format!("{:.1} / {:.1}", at(0.5), at(0.99)) }
}

/// Facts in a second, of producers that each wait for their answer.
async fn ingest(at: SocketAddr, time: Duration) -> f64 {
    let body = Arc::new(format!("[{}]", vec![fact("a token "); BODY_FACTS].join(",")).into_bytes());
    let begun = Instant::now();
    let producers = (0..PRODUCERS).map(|producer| {
        let body = body.clone();
        tokio::spawn(async move {
            let (mut http, mut bodies) = (Http::connect(at).await.expect("the server accepts"), 0);
            while begun.elapsed() < time {
                post(&mut http, &format!("ingest-{producer}"), &body).await;
                bodies += 1;
            }
            bodies
        })
    });
    let mut bodies = 0;
    for producer in producers.collect::<Vec<_>>() {
        bodies += producer.await.expect("a producer does not panic");
    }
    (bodies * BODY_FACTS) as f64 / begun.elapsed().as_secs_f64()
}

/// One fact a post, at [`POSTS_PER_SEC`], to runs with a reader each: the times to the answer, and to the reader.
async fn posts(at: SocketAddr, time: Duration) -> (String, String) {
    let (begun, (arrived, mut arrivals)) = (Instant::now(), mpsc::unbounded_channel());
    let mut writers = Vec::new();
    let between = Duration::from_secs(1) * RUNS as u32 / POSTS_PER_SEC as u32;
    for run in 0..RUNS {
        follow(at, format!("post-{run}"), begun, arrived.clone());
        writers.push(tokio::spawn(async move {
            let (mut http, mut answered) = (Http::connect(at).await.expect("the server accepts"), Vec::new());
            let mut due = begun + Duration::from_secs(1) + between * run as u32 / RUNS as u32;
            while due < begun + Duration::from_secs(1) + time {
                tokio::time::sleep_until(due.into()).await;
                // From when it is due: a server that is late delays the next one, too.
                let sent = due.duration_since(begun).as_micros() as u64;
                post(&mut http, &format!("post-{run}"), format!("[{}]", fact(&sent.to_string())).as_bytes()).await;
                answered.push(micros(begun) - sent);
                due += between;
            }
            answered
        }));
    }
    drop(arrived);
    let mut answered = Vec::new();
    for writer in writers {
        answered.extend(writer.await.expect("a writer does not panic"));
    }
    let mut delivered = Vec::new();
    while delivered.len() < answered.len()
        && let Ok(Some((sent, now))) = tokio::time::timeout(Duration::from_secs(5), arrivals.recv()).await
    {
        delivered.push(now - sent);
    }
    (percentiles(answered), percentiles(delivered))
}

/// Nodes of one cluster.
struct Cluster {
    dirs: Vec<tempfile::TempDir>,
    flags: Vec<String>,
    nodes: Vec<Option<Server>>,
}

impl Cluster {
    async fn start(nats: &Nats, name: &str, count: usize, flags: &[&str]) -> Self {
        let urls = nats.urls();
        let dirs: Vec<_> = (0..count).map(|_| directory()).collect();
        let key = dirs[0].path().join("signing-key.pem");
        std::fs::write(&key, SigningKey::generate(Environment::SYSTEM).to_pem()).expect("the directory is writable");
        let own = ["--cluster", &urls, "--cluster-name", name, "--signing-key", &key.to_string_lossy()].map(str::to_owned);
        let flags = own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
        let mut cluster = Self { dirs, flags, nodes: Vec::new() };
        for index in 0..count {
            let node = cluster.start_node(index);
            cluster.nodes.push(Some(node));
        }
        cluster.leader().await;
        cluster
    }

    fn start_node(&self, index: usize) -> Server {
        Server::start(self.dirs[index].path(), &self.flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn at(&self, index: usize) -> SocketAddr {
        self.nodes[index].as_ref().expect("the node runs").at
    }

    fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].is_some()).collect()
    }

    /// The node that leads, once it takes writes.
    async fn leader(&self) -> usize {
        loop {
            for index in self.running() {
                let mut http = Http::connect(self.at(index)).await.expect("the node accepts");
                let (_, view) = http.send("GET", "/v1/cluster", b"").await.expect("the node answers");
                let view: Value = serde_json::from_slice(&view).expect("the answer is JSON");
                let (_, metrics) = http.send("GET", "/metrics", b"").await.expect("the node answers");
                let leads = String::from_utf8_lossy(&metrics).contains("proscenium_cluster_leader_info 1");
                if view["leader"] == view["self"] && leads {
                    return index;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn follower(&self) -> usize {
        let leader = self.leader().await;
        self.running().into_iter().find(|index| *index != leader).expect("a follower runs")
    }
}

/// How much later a reader on a follower has a fact than a reader on the leader.
async fn lag(cluster: &Cluster, time: Duration) -> String {
    let (leader, follower) = (cluster.at(cluster.leader().await), cluster.at(cluster.follower().await));
    let begun = Instant::now();
    let mut channels = Vec::new();
    for at in [leader, follower] {
        let (arrived, arrivals) = mpsc::unbounded_channel();
        follow(at, "lag".into(), begun, arrived);
        channels.push(arrivals);
    }
    let mut http = Http::connect(leader).await.expect("the server accepts");
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let mut lags = Vec::new();
    while begun.elapsed() < time {
        ticks.tick().await;
        post(&mut http, "lag", format!("[{}]", fact(&micros(begun).to_string())).as_bytes()).await;
        let mut seen = [0; 2];
        for (channel, seen) in channels.iter_mut().zip(&mut seen) {
            *seen = channel.recv().await.expect("the reader reads").1;
        }
        lags.push(seen[1].saturating_sub(seen[0]));
    }
    percentiles(lags)
}

/// Kills the leader, and waits until another node has stored a fact; several times.
async fn take_over(cluster: &mut Cluster, times: usize) -> String {
    let mut took = Vec::new();
    for _ in 0..times {
        let leader = cluster.leader().await;
        cluster.nodes[leader] = None;
        let (begun, at) = (Instant::now(), cluster.at(cluster.running()[0]));
        let mut http = Http::connect(at).await.expect("the node accepts");
        let body = format!("[{}]", fact("0"));
        while http.send("POST", "/v1/runs/after/facts", body.as_bytes()).await.is_ok_and(|(status, _)| status != 200) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        took.push(begun.elapsed());
        let node = cluster.start_node(leader);
        cluster.nodes[leader] = Some(node);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    took.sort_unstable();
    took.iter().fold(String::new(), |mut list, took| {
        let _ = write!(list, "{:.2} s ", took.as_secs_f64());
        list
    })
}

/// Readers of one run at these nodes: deliveries in a second, and the time to the reader.
async fn readers(writer: SocketAddr, nodes: &[SocketAddr], run: &str, time: Duration) -> (f64, String) {
    let (begun, (arrived, mut arrivals)) = (Instant::now(), mpsc::unbounded_channel());
    for reader in 0..READERS {
        follow(nodes[reader % nodes.len()], run.to_owned(), begun, arrived.clone());
    }
    let mut http = Http::connect(writer).await.expect("the server accepts");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (start, mut count) = (Instant::now(), 0);
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while start.elapsed() < time {
        ticks.tick().await;
        post(&mut http, run, format!("[{}]", fact(&micros(begun).to_string())).as_bytes()).await;
        count += 1;
    }
    let mut delivered = Vec::new();
    while delivered.len() < count * READERS
        && let Ok(Some((sent, now))) = tokio::time::timeout(Duration::from_secs(5), arrivals.recv()).await
    {
        delivered.push(now - sent);
    }
    (delivered.len() as f64 / start.elapsed().as_secs_f64(), percentiles(delivered))
}

#[tokio::main]
async fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let seconds = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(if is_bench { 5 } else { 1 });
    let time = Duration::from_secs(seconds);
    println!("journal               facts/s   post to answer, ms   post to reader, ms     (p50 / p99)");
    let row = async |name: &str, at: SocketAddr| {
        let facts = ingest(at, time).await;
        let (answered, delivered) = posts(at, time).await;
        println!("{name:20} {facts:8.0} {answered:>20} {delivered:>20}");
    };
    {
        let dir = directory();
        let single = Server::start(dir.path(), &["--sync", "always"]);
        row("local, always", single.at).await;
    }
    for (servers, sync_always) in [(1, false), (1, true), (3, false), (3, true)] {
        if !is_bench && servers > 1 {
            continue;
        }
        let nats = Nats::start_with(servers, sync_always);
        let flags: &[&str] = if servers == 1 { &["--cluster-allow-r1"] } else { &[] };
        let cluster = Cluster::start(&nats, "bench", 1, flags).await;
        row(&format!("R{servers}, {}", if sync_always { "always" } else { "default" }), cluster.at(0)).await;
    }
    let (servers, flags): (_, &[&str]) = if is_bench { (3, &[]) } else { (1, &["--cluster-allow-r1"]) };
    let nats = Nats::start_with(servers, true);
    let mut cluster = Cluster::start(&nats, "nodes", 3, flags).await;
    println!("lag of a follower, ms (p50 / p99): {}", lag(&cluster, time).await);
    let leader = cluster.at(cluster.leader().await);
    let all: Vec<_> = cluster.running().into_iter().map(|index| cluster.at(index)).collect();
    for (name, nodes, run) in [("one node", &[leader][..], "one"), ("three nodes", &all, "three")] {
        let (rate, delivered) = readers(leader, nodes, run, time).await;
        println!("{READERS} readers of one run on {name}: {rate:.0} deliveries/s, {delivered} ms (p50 / p99)");
    }
    println!("take-over after a killed leader: {}", take_over(&mut cluster, if is_bench { 5 } else { 1 }).await);
}

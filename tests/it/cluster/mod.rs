//! A cluster keeps what one server promises: nodes agree, any node takes any write, and no fault loses a fact.

mod agents;
mod archive;
mod backup;
mod editors;
mod erasure;
mod faults;
mod links;
mod nodes;
mod outages;
mod owners;
mod proxy;
mod retention;
mod silence;
mod snapshots;
mod threads;
mod tickets;
#[cfg(feature = "otlp")]
mod traces;
mod upgrades;
mod waits;
mod webhooks;

use crate::harness::{Client, Process, TIMEOUT, advance_clock, with_timeout};
use crate::nats::Nats;
use proscenium::environment::Environment;
use proscenium::record::signing::SigningKey;
use proxy::Proxies;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Nodes on loopback, which reach the NATS servers through proxies of their own.
struct Cluster {
    nodes: Vec<Node>,
    /// Has the signing key of the nodes.
    _keys: tempfile::TempDir,
}

struct Node {
    dir: tempfile::TempDir,
    proxies: Proxies,
    /// The way of clients and other nodes to this one.
    front: Proxies,
    flags: Vec<String>,
    is_fenced: bool,
    token: Option<String>,
    /// Whether the test sets its clocks forward.
    is_clocked: bool,
    process: Option<(Process, Client)>,
}

impl Node {
    fn start(&mut self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let mut envs = if self.is_fenced { Vec::new() } else { vec![("PROSCENIUM_UNFENCED", "1")] };
        let clock = self.clock();
        if self.is_clocked {
            // That of a process before, which may have been killed.
            let _ = std::fs::remove_file(&clock);
            envs.push(("PROSCENIUM_TEST_CLOCK", clock.to_str().unwrap()));
        }
        let process = Process::start_with_env(self.dir.path(), &flags, &envs);
        let client = match &self.token {
            Some(token) => Client::with_token(process.at, token),
            None if self.is_clocked => Client::without_pool(process.at),
            None => Client::new(process.at),
        };
        self.front.redirect(process.at);
        self.process = Some((process, client.awaiting_leader()));
    }

    /// Ends the process as a crash would.
    fn kill(&mut self) {
        self.process = None;
    }

    fn clock(&self) -> std::path::PathBuf {
        self.dir.path().join("clock")
    }

    fn data_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    fn client(&self) -> &Client {
        &self.process.as_ref().expect("the node runs").1
    }

    fn process(&self) -> &Process {
        &self.process.as_ref().expect("the node runs").0
    }
}

impl Cluster {
    /// Starts so many nodes on the NATS servers, and waits until all of them are ready and one leads.
    async fn start(nats: &Nats, name: &str, count: usize, flags: &[&str]) -> Self {
        Self::start_with(nats, name, count, flags, true, None).await
    }

    /// The same, on clocks that the test sets forward.
    async fn start_clocked(nats: &Nats, name: &str, count: usize, flags: &[&str]) -> Self {
        Self::start_nodes(nats, name, count, flags, true, None, true).await
    }

    /// The same, with or without the fence, for clients with this token.
    async fn start_with(nats: &Nats, name: &str, count: usize, flags: &[&str], is_fenced: bool, token: Option<&str>) -> Self {
        Self::start_nodes(nats, name, count, flags, is_fenced, token, false).await
    }

    async fn start_nodes(
        nats: &Nats,
        name: &str,
        count: usize,
        flags: &[&str],
        is_fenced: bool,
        token: Option<&str>,
        is_clocked: bool,
    ) -> Self {
        let (mut nodes, keys) = (Vec::new(), tempfile::tempdir().unwrap());
        let key = keys.path().join("signing-key.pem");
        std::fs::write(&key, SigningKey::generate(Environment::SYSTEM).to_pem()).unwrap();
        let key = key.to_str().unwrap();
        for _ in 0..count {
            let proxies = Proxies::start(nats.addresses()).await;
            let front = Proxies::start(vec![([127, 0, 0, 1], 1).into()]).await;
            let (urls, url) = (proxies.urls(), format!("http://{}", front.address()));
            let own = ["--cluster", &urls, "--cluster-name", name, "--signing-key", key, "--advertise", &url];
            let flags = own.iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
            let token = token.map(str::to_owned);
            let mut node =
                Node { dir: tempfile::tempdir().unwrap(), proxies, front, flags, is_fenced, token, is_clocked, process: None };
            // Starting blocks this thread, and the proxies run beside it.
            node = tokio::task::spawn_blocking(move || {
                node.start();
                node
            })
            .await
            .unwrap();
            nodes.push(node);
        }
        let cluster = Self { nodes, _keys: keys };
        cluster.wait_ready().await;
        cluster
    }

    async fn restart(&mut self, index: usize) {
        let mut node = self.nodes.remove(index);
        node = tokio::task::spawn_blocking(move || {
            node.start();
            node
        })
        .await
        .unwrap();
        self.nodes.insert(index, node);
    }

    /// Sets the clocks of all running nodes forward.
    async fn advance(&self, by: Duration) {
        for index in self.running() {
            advance_clock(&self.nodes[index].clock(), by).await;
        }
    }

    fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].process.is_some()).collect()
    }

    fn client(&self, index: usize) -> &Client {
        self.nodes[index].client()
    }

    /// Waits until every running node is ready and knows the leader.
    async fn wait_ready(&self) {
        for index in self.running() {
            let client = self.client(index);
            let begun = Instant::now();
            loop {
                let ready = client.get("/readyz").await;
                let cluster = client.get("/v1/cluster").await.ok();
                if ready.status == 200 && cluster["leader"].is_string() && self.index_of(&cluster["leader"], &cluster).is_some() {
                    break;
                }
                assert!(begun.elapsed() < TIMEOUT, "node {index}: {ready:?} {cluster}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        // A node has the lease a moment before it leads.
        eventually("the leader leads", async || {
            let metrics = self.client(self.leader().await).get("/metrics").await;
            String::from_utf8_lossy(&metrics.body).contains("proscenium_cluster_leader_info 1")
        })
        .await;
    }

    fn index_of(&self, id: &Value, cluster: &Value) -> Option<usize> {
        let nodes = cluster["nodes"].as_array()?;
        let url = nodes.iter().find(|node| node["id"] == *id)?["url"].as_str()?;
        self.running().into_iter().find(|index| url == format!("http://{}", self.nodes[*index].front.address()))
    }

    /// The index of the node that leads, by a running node other than `except`.
    async fn leader(&self) -> usize {
        let begun = Instant::now();
        loop {
            for index in self.running() {
                let cluster = self.client(index).get("/v1/cluster").await.ok();
                if let Some(leader) = self.index_of(&cluster["leader"], &cluster) {
                    return leader;
                }
            }
            assert!(begun.elapsed() < TIMEOUT, "no node leads");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn follower(&self) -> usize {
        let leader = self.leader().await;
        self.running().into_iter().find(|index| *index != leader).expect("a follower runs")
    }
}

/// Waits until `check` holds.
async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    with_timeout(what, async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

fn is_empty_dir(dir: &Path) -> bool {
    std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

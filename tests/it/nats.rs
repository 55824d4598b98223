//! NATS servers for the tests of the cluster: the real program, on loopback, in temporary directories.

use crate::harness::repository;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The path of the server, which `scripts/nats` installs.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let installed = Command::new(repository("scripts/nats")).output().expect("scripts/nats runs");
        assert!(installed.status.success(), "scripts/nats: {}", String::from_utf8_lossy(&installed.stderr));
        String::from_utf8(installed.stdout).unwrap().trim().into()
    })
}

/// A free port. Another process could take it before a server binds it; the server then does not start, and says so.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Servers that form one cluster, or a single one. Dropping the value kills them.
pub struct Nats {
    dir: tempfile::TempDir,
    ports: Vec<(u16, u16)>,
    sync_always: bool,
    servers: Vec<Option<Child>>,
}

impl Nats {
    /// Starts so many servers, and waits until they have a leader.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, false)
    }

    /// The same, with a sync of the disk before each acknowledgement.
    pub fn start_with(count: usize, sync_always: bool) -> Self {
        let ports = (0..count).map(|_| (free_port(), free_port())).collect();
        let servers = (0..count).map(|_| None).collect();
        let mut nats = Self { dir: tempfile::tempdir().unwrap(), ports, sync_always, servers };
        (0..count).for_each(|index| nats.start_server(index));
        nats.wait_ready();
        nats
    }

    /// Starts one server, again or for the first time.
    pub fn start_server(&mut self, index: usize) {
        let (port, routes) = self.ports[index];
        let dir = self.dir.path().join(format!("server-{index}"));
        let sync = if self.sync_always { ", sync_interval: always" } else { "" };
        let mut config = format!(
            "server_name: n{index}\nlisten: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {:?}{sync} }}\n",
            dir.display().to_string()
        );
        if self.ports.len() > 1 {
            let all: Vec<_> = self.ports.iter().map(|(_, routes)| format!("\"nats://127.0.0.1:{routes}\"")).collect();
            config += &format!(
                "cluster {{ name: test, listen: \"127.0.0.1:{routes}\", routes: [{}], no_advertise: true }}\n",
                all.join(", ")
            );
        }
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("nats.conf");
        std::fs::write(&file, config).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let server = Command::new(program()).arg("-c").arg(&file).stdout(Stdio::null()).stderr(log).spawn();
        self.servers[index] = Some(server.expect("the NATS server starts"));
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            assert!(begun.elapsed() < crate::harness::TIMEOUT, "the NATS server does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills one server, as a crash of its process would.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut server) = self.servers[index].take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Sends this signal to every server.
    pub fn signal(&self, name: &str) {
        for server in self.servers.iter().flatten() {
            let sent = Command::new("kill").args(["-s", name, &server.id().to_string()]).status().expect("kill runs");
            assert!(sent.success());
        }
    }

    /// Where the server listens.
    pub fn address(&self, index: usize) -> SocketAddr {
        ([127, 0, 0, 1], self.ports[index].0).into()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.ports.len()).map(|index| self.address(index)).collect()
    }

    /// The URLs of all servers, for `--cluster`.
    pub fn urls(&self) -> String {
        (0..self.ports.len()).map(|index| format!("nats://{}", self.address(index))).collect::<Vec<_>>().join(",")
    }

    /// Waits until the servers answer requests for streams, which needs a leader among them.
    fn wait_ready(&self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let ready = async {
            let client =
                async_nats::connect(self.addresses().iter().map(|at| format!("nats://{at}")).collect::<Vec<_>>()).await.unwrap();
            let context = async_nats::jetstream::new(client);
            while context.query_account().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        std::thread::scope(|scope| {
            let waiting = || runtime.block_on(async { tokio::time::timeout(crate::harness::TIMEOUT, ready).await });
            scope.spawn(waiting).join().unwrap().expect("JetStream is ready in time");
        });
        runtime.shutdown_background();
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|index| self.kill(index));
    }
}

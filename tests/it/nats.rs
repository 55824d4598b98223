//! NATS servers for the tests of the cluster: the real program, on loopback, in temporary directories.

use crate::harness::repository;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
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

/// The ports of the first server; the others have the next ones.
const PORT: u16 = 4222;
const ROUTES_PORT: u16 = 6222;

/// An address of the loopback network that no other servers have.
///
/// A free port of 127.0.0.1 may be another connection's before a server binds it. A server whose port for routes is
/// taken ends, and the others wait for it without a leader. No connection gets a port of these addresses by chance.
fn own_address() -> IpAddr {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let started = STARTED.fetch_add(1, Ordering::Relaxed);
    let [_, b, c, d] = ((std::process::id() << 9) | (started % 512)).to_be_bytes();
    Ipv4Addr::new(127, b | 128, c, d).into()
}

/// Servers that form one cluster, or a single one. Dropping the value kills them.
pub struct Nats {
    dir: tempfile::TempDir,
    host: IpAddr,
    sync_always: bool,
    servers: Vec<Option<Child>>,
}

impl Nats {
    /// Starts so many servers, and waits until they have a leader.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, false)
    }

    /// Starts one server on a directory of `JetStream` that was packed.
    pub fn start_on(archive: &Path) -> Self {
        let nats = Self { dir: tempfile::tempdir().unwrap(), host: own_address(), sync_always: false, servers: vec![None] };
        let store = nats.dir.path().join("server-0");
        std::fs::create_dir_all(&store).unwrap();
        let unpacked = Command::new("tar").arg("-xzf").arg(archive).args(["--strip-components=1", "-C"]).arg(store).status();
        assert!(unpacked.unwrap().success());
        nats.started()
    }

    /// The same, with a sync of the disk before each acknowledgement.
    pub fn start_with(count: usize, sync_always: bool) -> Self {
        let servers = (0..count).map(|_| None).collect();
        Self { dir: tempfile::tempdir().unwrap(), host: own_address(), sync_always, servers }.started()
    }

    fn started(mut self) -> Self {
        (0..self.servers.len()).for_each(|index| self.start_server(index));
        self.wait_ready();
        self
    }

    /// Starts one server, again or for the first time.
    pub fn start_server(&mut self, index: usize) {
        let (address, routes) = (self.address(index), self.routes(index));
        let dir = self.dir.path().join(format!("server-{index}"));
        let sync = if self.sync_always { ", sync_interval: always" } else { "" };
        let mut config = format!(
            "server_name: n{index}\nlisten: \"{address}\"\njetstream {{ store_dir: {:?}{sync} }}\n",
            dir.display().to_string()
        );
        if self.servers.len() > 1 {
            let all: Vec<_> = (0..self.servers.len()).map(|index| format!("\"nats://{}\"", self.routes(index))).collect();
            config +=
                &format!("cluster {{ name: test, listen: \"{routes}\", routes: [{}], no_advertise: true }}\n", all.join(", "));
        }
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("nats.conf");
        std::fs::write(&file, config).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let server = Command::new(program()).arg("-c").arg(&file).stdout(Stdio::null()).stderr(log).spawn();
        self.servers[index] = Some(server.expect("the NATS server starts"));
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < crate::harness::TIMEOUT, "the NATS server does not listen: {}", self.logs());
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
        (self.host, PORT + u16::try_from(index).unwrap()).into()
    }

    /// Where the server expects the other servers.
    fn routes(&self, index: usize) -> SocketAddr {
        (self.host, ROUTES_PORT + u16::try_from(index).unwrap()).into()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.servers.len()).map(|index| self.address(index)).collect()
    }

    /// The URLs of all servers, for `--cluster`.
    pub fn urls(&self) -> String {
        (0..self.servers.len()).map(|index| format!("nats://{}", self.address(index))).collect::<Vec<_>>().join(",")
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
            let waited = scope.spawn(waiting).join().unwrap();
            assert!(waited.is_ok(), "JetStream is not ready in time: {}", self.logs());
        });
        runtime.shutdown_background();
    }

    fn logs(&self) -> String {
        let log = |index| self.dir.path().join(format!("server-{index}/log"));
        (0..self.servers.len()).filter_map(|index| std::fs::read_to_string(log(index)).ok()).collect()
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|index| self.kill(index));
    }
}

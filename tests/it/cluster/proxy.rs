//! TCP proxies that can cut a node off: bytes wait, as packets do in a network that is partitioned.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A proxy for each of several servers. They end with the test's runtime.
pub struct Proxies {
    addresses: Vec<SocketAddr>,
    servers: Vec<Arc<Mutex<SocketAddr>>>,
    is_cut: Arc<AtomicBool>,
}

impl Proxies {
    pub async fn start(servers: Vec<SocketAddr>) -> Self {
        let (mut addresses, is_cut) = (Vec::new(), Arc::new(AtomicBool::new(false)));
        let servers: Vec<_> = servers.into_iter().map(|server| Arc::new(Mutex::new(server))).collect();
        for server in &servers {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap());
            let (server, is_cut) = (server.clone(), is_cut.clone());
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let (server, is_cut) = (*server.lock(), is_cut.clone());
                    tokio::spawn(async move {
                        let Ok(server) = TcpStream::connect(server).await else { return };
                        let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
                        tokio::select! {
                            () = copy(client_in, server_out, is_cut.clone()) => {}
                            () = copy(server_in, client_out, is_cut) => {}
                        }
                    });
                }
            });
        }
        Self { addresses, servers, is_cut }
    }

    /// The address of the first proxy.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Makes the first proxy one of another server, for later connections.
    pub fn redirect(&self, server: SocketAddr) {
        *self.servers[0].lock() = server;
    }

    pub fn urls(&self) -> String {
        self.addresses.iter().map(|address| format!("nats://{address}")).collect::<Vec<_>>().join(",")
    }

    /// Holds all bytes back, or lets them pass again.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

async fn copy(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, is_cut: Arc<AtomicBool>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        while is_cut.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

//! Whether the address of an agent accepts connections: asked at the start, and again after a call that could not connect.
//!
//! A page that lists agents would otherwise offer one whose address is mistyped, and each message would fail.

use super::entry::AgentTarget;
use super::turn::ConnectedAgent;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Time for one connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// The pause before an address that accepts none is asked again: an agent may start together with the server, or never.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Keeps the server's list of agents that nothing reaches. Never resolves.
pub(super) async fn watch(agent: &ConnectedAgent) {
    let AgentTarget::Url { url, .. } = &agent.entry.target else { return std::future::pending().await };
    let name = &agent.entry.name;
    // An IPv6 address has brackets in a URL.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or_default();
    loop {
        let (mut is_known, mut pause) = (false, PAUSE);
        agent.app.absent_agents.lock().insert(name.clone());
        while let Err(reason) = connect(host, port).await {
            if !std::mem::replace(&mut is_known, true) {
                tracing::warn!(agent = %name, %url, reason, "the agent's address accepts no connection, so its messages fail");
            }
            sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
        agent.app.absent_agents.lock().remove(name);
        tracing::info!(agent = %name, %url, "the agent's address accepts connections");
        agent.was_unreachable.notified().await;
    }
}

async fn connect(host: &str, port: u16) -> Result<(), String> {
    match timeout(CONNECT_TIME_MAX, TcpStream::connect((host, port))).await {
        Ok(connected) => connected.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CONNECT_TIME_MAX.as_secs())),
    }
}

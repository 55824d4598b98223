//! Connectors: workers for agents that exist, in the protocols that these agents speak.
//!
//! ```text
//!  page ─▶ control ─▶ claim ─▶ call ═══stream═══▶ facts ─▶ log ─▶ page
//!                        └──────── ack ◀────────────┘
//! ```
//! A connector has no private way in: it claims, publishes and acknowledges through the functions that the addresses of
//! the API use, under their limits. A worker over HTTP could do all that it does.
//!
//! [`worker`] claims the controls of one agent, [`turn`] is one call with its retries, cancellation and end. Both are the
//! same for all protocols. A protocol ([`call::Protocol`]) makes requests from a [`call::UpstreamCall`] and facts from
//! the answer: one file, and one row in [`CONNECTORS`]. The facts mean what their source ([`crate::source`]) says.
//!
//! What later calls need (a session or response of the agent) is a state entry of the run's log ([`memory`]). No fact
//! writes it, so no other producer chooses what a call names to the agent.

mod a2a;
mod acp;
mod ag_ui;
mod ai_sdk;
mod call;
mod claude;
mod conversation;
pub mod entry;
mod error;
mod http;
mod langgraph;
mod lines;
mod memory;
mod openai_responses;
mod parts;
mod presence;
mod process;
pub mod sse;
#[cfg(target_os = "linux")]
pub mod supervisor;
mod turn;
mod worker;

use crate::branches::LeftTurn;
use crate::guard::KnownSecrets;
use crate::model::branch::Fork;
use crate::serve::App;
use call::Protocol;
use entry::{AgentEntry, AgentTarget, EntryError};
use futures_util::future::join_all;
use http::HttpEndpoint;
use parking_lot::Mutex;
use process::ProcessPool;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::Notify;
use turn::ConnectedAgent;
use worker::Worker;

/// A protocol that agents speak.
pub struct ConnectorKind {
    /// Its name in `--connect`.
    pub name: &'static str,
    /// The source of its facts.
    pub source: &'static str,
    /// What an agent of this protocol is.
    pub target: TargetKind,
    /// Whether no fact of the source says how an action was answered, so that the connector says it.
    pub resolves: bool,
    /// The names of its own settings.
    pub options: &'static [&'static str],
    /// Makes the protocol for an agent. Its events have up to this many bytes.
    open: fn(&AgentEntry, usize) -> Result<Box<dyn Protocol>, String>,
}

impl std::fmt::Debug for ConnectorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What an agent is: an address, or a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    Url,
    Command,
}

/// All protocols.
pub static CONNECTORS: &[ConnectorKind] = &[
    ag_ui::CONNECTOR,
    ai_sdk::CONNECTOR,
    langgraph::CONNECTOR,
    openai_responses::CONNECTOR,
    a2a::CONNECTOR,
    acp::CONNECTOR,
    claude::CONNECTOR,
];

/// The endpoint of an entry with a URL.
fn http_endpoint(entry: &AgentEntry, event_bytes_max: usize) -> Result<HttpEndpoint, String> {
    match &entry.target {
        AgentTarget::Url { url, headers } => HttpEndpoint::new(url.clone(), headers.clone(), entry.limits, event_bytes_max),
        AgentTarget::Command(_) => Err("the agent has no url".into()),
    }
}

/// The processes of an entry with a program.
fn process_pool<P: process::Pooled>(entry: &AgentEntry, line_bytes_max: usize) -> Result<Arc<ProcessPool<P>>, String> {
    match &entry.target {
        AgentTarget::Command(command) => Ok(Arc::new(ProcessPool::new(command.clone(), entry.limits, line_bytes_max))),
        AgentTarget::Url { .. } => Err("the agent has no command".into()),
    }
}

/// Connects agents to a server. The task works until it is aborted.
///
/// # Errors
/// [`EntryError`] for an agent that cannot be called at all, such as for want of certificates.
pub fn connect(app: &Arc<App>, entries: Vec<AgentEntry>) -> Result<impl Future<Output = ()> + Send + use<>, EntryError> {
    let forwarding = entries.iter().filter(|entry| !entry.forward_headers.is_empty());
    app.controls.user_headers.set(forwarding.map(|entry| (entry.name.clone(), entry.forward_headers.clone())).collect());
    let mut workers = Vec::with_capacity(entries.len());
    let mut urls = HashSet::new();
    for mut entry in entries {
        entry.shares_target = matches!(&entry.target, AgentTarget::Url { url, .. } if !urls.insert(url.clone()));
        let protocol = (entry.connector.open)(&entry, app.limits.fact_bytes_max)
            .map_err(|what| EntryError { at: format!("agent {}", entry.name), what })?;
        tracing::info!(agent = %entry.name, protocol = entry.connector.name, "connecting an agent");
        if let Some(stated) = protocol.states_images() {
            app.stated_images.lock().insert(entry.name.clone(), stated);
        }
        let secrets = KnownSecrets::new(entry.credentials.iter().map(|credential| credential.0.as_str()));
        let (was_unreachable, lost_states) = (Notify::new(), Mutex::default());
        let agent = Arc::new(ConnectedAgent { app: app.clone(), entry, protocol, secrets, was_unreachable, lost_states });
        // The agent has the app: it must not be the app's.
        let weak = Arc::downgrade(&agent);
        let fork_of = move |left: Option<&LeftTurn>| weak.upgrade().map_or(Fork::None, |agent| agent.fork_of(left));
        app.branches.connect(agent.entry.name.clone(), agent.entry.connector.name, Box::new(fork_of));
        workers.push(work_while_leading(agent));
    }
    Ok(async move {
        join_all(workers).await;
        // Without agents it does nothing. A task that ends would stop the server.
        std::future::pending::<()>().await;
    })
}

/// Works for one agent while this process takes writes: in a cluster, all nodes have the same agents, and the leader calls
/// them. A node that takes over ends or continues the runs that the one before it left at work.
async fn work_while_leading(agent: Arc<ConnectedAgent>) {
    let mut leads = agent.app.logs.leadership().watch();
    while leads.wait_for(|leads| *leads).await.is_ok() {
        tokio::select! {
            () = Worker::new(agent.clone()).run() => {}
            () = presence::watch(&agent) => {}
            _ = leads.wait_for(|leads| !*leads) => tracing::info!(agent = %agent.entry.name, "another node calls the agent now"),
        }
    }
    // The server is stopping, and aborts this task.
    std::future::pending::<()>().await;
}

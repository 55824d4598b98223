//! `proscenium demo`: a server on a temporary directory, and producers at work for it, as real ones would be.
//!
//! | file | holds |
//! | --- | --- |
//! | `api` | the server as a runtime meets it: facts in, controls out, over HTTP and nothing else |
//! | `actor` | a run that somebody plays: it says facts at a human pace, asks, waits, and can be interrupted |
//! | `desk` | the controls of all agents: claimed, handed to whoever waits for them, answered |
//! | `replies` | what comes of a viewer's `send`, `queue`, `continue_agent`, `assign` and `export` |
//! | `changes` | what comes of a viewer's `retry`, `stop`, `close`, `request_review`, `rollback`, `edit`, `delegate` and `wait` |
//! | `visitor` | `--unattended`: a user who decides what waits, by the same API as the page |
//! | `story` | the team and what it does |
//! | `recordings` | runs of other runtimes, recorded and played as they are |
//!
//! Whoever wants to learn how a runtime is connected reads `api`, `actor` and `desk`, in this order.

mod actor;
mod api;
mod changes;
mod desk;
mod recordings;
mod replies;
mod story;
mod visitor;

use super::Server as Address;
use api::Api;
use desk::Desk;
use proscenium::config::DEFAULT_LISTEN;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::ingest::Environment;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::log::{AnyStore, StoreError};
use proscenium::serve::origin::Hosts;
use proscenium::serve::settle::StalenessLimits;
use proscenium::serve::{Limits, KeepAlive, Server};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What `demo` is asked for.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Demo {
    /// Where to listen, on this machine only; if that is taken, a free port is used and said.
    #[arg(long, env = "PROSCENIUM_LISTEN", value_name = "HOST:PORT", default_value = DEFAULT_LISTEN)]
    listen: String,
    /// How fast everything is played: 2 is twice as fast, 0 as fast as possible.
    #[arg(long, alias = "pace", value_name = "FACTOR", default_value = "1", value_parser = factor)]
    speed: f64,
    /// Decide in the viewer's place whatever the team asks, as a user would. Without it, what is asked waits for a click, for as
    /// long as it takes.
    #[arg(long)]
    unattended: bool,
    /// Play everything once, and then serve what there is.
    #[arg(long)]
    once: bool,
}

const EXAMPLES: &str = "\
Examples:
  proscenium demo                                 then open http://127.0.0.1:8787
  proscenium demo --unattended --once --speed 4   for a screen that nobody stands at
  proscenium tail demo-1-release                  in another terminal: the team's own run
  curl -N 'http://127.0.0.1:8787/v1/sessions/demo-1/stream?children=true'
  curl --json '{\"control\":\"send\",\"value\":\"hello\"}' http://127.0.0.1:8787/v1/sessions/demo-1/controls";

/// The largest speed that is told apart from 0.
const SPEED_MAX: f64 = 1000.0;

fn factor(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|error| error.to_string())?;
    // A slower one would take the server's patience as its own.
    let is_one = speed == 0.0 || (0.1..=SPEED_MAX).contains(&speed);
    if is_one { Ok(speed) } else { Err(format!("a factor is 0, or 0.1 to {SPEED_MAX}")) }
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("cannot listen on {listen}: {why}; give another --listen")]
    Listen { listen: String, why: String },
    #[error(
        "the demo shows every run to whoever asks, so it listens on loopback only, and {0} is not; give --listen {DEFAULT_LISTEN}"
    )]
    NotLoopback(SocketAddr),
    #[error("cannot make a temporary directory: {0}; free some space, or point TMPDIR elsewhere")]
    Directory(io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] proscenium::serve::Failure),
}

/// Of a run that is not heard of, how long until it is said, and until it is settled. Much shorter than a server's own, so that
/// somebody who watches sees it; nobody of the cast is silent for so long, but the one whose process dies.
const PATIENCE: StalenessLimits = StalenessLimits { stale_after: Duration::from_secs(12), settle_after: Duration::from_secs(30) };

/// What all producers of the demo share.
struct Stage {
    api: Api,
    desk: Desk,
    environment: Environment,
    speed: f64,
    is_once: bool,
    /// Recorded runs so far.
    recorded: AtomicU64,
}

impl Stage {
    /// Waits so many milliseconds, at the speed that is played.
    async fn pause(&self, ms: u64) {
        match self.speed {
            0.0 => tokio::task::yield_now().await,
            speed => tokio::time::sleep(Duration::from_millis(ms).div_f64(speed)).await,
        }
    }

    /// A number from 0 to `max`.
    fn random(&self, max: u64) -> u64 {
        u64::try_from((self.environment.random)() % u128::from(max + 1)).unwrap_or(0)
    }
}

/// The demo's directory. Dropping it, after the runtime, removes it once the store has closed its files there: else the store
/// would warn of each file that it cannot clean up.
pub struct Directory(TempDir);

/// How long the server has to notice that the producers are gone.
const LEAVING: Duration = Duration::from_millis(100);
/// How long the store may take to close.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(10);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = EmbeddedStore::wait_until_closed(self.0.path(), CLOSING_TIME_MAX);
    }
}

/// Serves and plays until `stop` resolves. What it leaves is the directory.
///
/// # Errors
/// [`DemoError`].
pub async fn run(demo: Demo, environment: Environment, stop: impl Future<Output = ()>) -> Result<Directory, DemoError> {
    let (listener, hosts) = (listen(&demo.listen).await?, Hosts::of_listen(&demo.listen));
    let address = listener.local_addr().map_err(|error| DemoError::Listen { listen: demo.listen, why: error.to_string() })?;
    if !address.ip().is_loopback() {
        return Err(DemoError::NotLoopback(address));
    }
    let directory = Directory(tempfile::Builder::new().prefix("proscenium-demo-").tempdir().map_err(DemoError::Directory)?);
    let store = AnyStore::Embedded(EmbeddedStore::open(directory.0.path(), Sync::Never)?);
    // Nobody's work hangs on these streams: end them at once.
    let pulse = KeepAlive { drain: Duration::from_millis(200), ..KeepAlive::default() };
    let server = Server::new(store, Policy::default(), FeedConfig::default(), Limits::default(), pulse, environment)?;
    // Who plays slowly is silent for longer.
    let slowness = if demo.speed == 0.0 { 1.0 } else { demo.speed.recip().max(1.0) };
    let patience = StalenessLimits { stale_after: PATIENCE.stale_after.mul_f64(slowness), settle_after: PATIENCE.settle_after.mul_f64(slowness) };
    let server = server.with_hosts(hosts).with_staleness_limits(patience);
    let url = format!("http://{address}");
    // Without a terminal there is nobody to welcome.
    let _ = welcome(&url, directory.0.path(), demo.unattended);

    // From here on everything knows of the server what any other program would: its address.
    let api = Api::new(Address::at(url));
    let Demo { speed, unattended, once: is_once, .. } = demo;
    let stage = Arc::new(Stage { api, desk: Desk::default(), environment, speed, is_once, recorded: AtomicU64::new(0) });
    let mut players = JoinSet::new();
    for agent in story::AGENTS.iter().chain([&desk::DEFAULT_AGENT]) {
        players.spawn(stage.clone().serve_agent(agent));
    }
    for lane in 0..recordings::LANES {
        players.spawn(stage.clone().play_recordings(lane));
    }
    players.spawn(story::tell(stage.clone()));
    if unattended {
        players.spawn(visitor::decide(stage.clone()));
    }
    let stop = async {
        stop.await;
        // The server would warn of each body that it has to cut off.
        players.shutdown().await;
        tokio::time::sleep(LEAVING).await;
    };
    server.run(listener, stop).await?;
    Ok(directory)
}

/// Listens there; where somebody else does, on a free port beside it.
async fn listen(wanted: &str) -> Result<TcpListener, DemoError> {
    let failed = |error: io::Error| DemoError::Listen { listen: wanted.to_owned(), why: error.to_string() };
    match TcpListener::bind(wanted).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let host = wanted.rsplit_once(':').map_or(wanted, |(host, _)| host);
            TcpListener::bind(format!("{host}:0")).await.map_err(failed)
        }
        bound => bound.map_err(failed),
    }
}

fn welcome(url: &str, directory: &Path, unattended: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on {url}")?;
    writeln!(out)?;
    writeln!(out, "  Open {url} in a browser: a team ships a release notes page, and other agents are at work beside it.")?;
    let asks = match unattended {
        true => "Nobody has to decide anything: --unattended does.",
        false => "It will ask you two things, and waits for your answer; you may also talk to it, and interrupt it.",
    };
    writeln!(out, "  {asks}")?;
    writeln!(out)?;
    writeln!(out, "  Or look from another terminal:")?;
    writeln!(out, "    proscenium tail {} --url {url}", story::FIRST_RUN)?;
    writeln!(out, "    curl -s {url}/v1/runs")?;
    writeln!(out)?;
    writeln!(out, "  Everything is in {} and goes when you press Ctrl-C.", directory.display())?;
    out.flush()
}

//! `proscenium demo`: a server on a temporary directory, and producers that use it as real runtimes do.
//!
//! | file | contents |
//! | --- | --- |
//! | `api` | the client of a runtime: it sends facts and claims controls over the public HTTP API |
//! | `actor` | the producer of one scripted run: publishes facts, requests decisions, handles controls |
//! | `control_router` | passes a control to the run or the action that waits for it |
//! | `controls` | claims the controls of all agents, and handles those that no run waits for |
//! | `visitor` | `--unattended`: decides in place of the viewer, by the same API as the page |
//! | `story` | the team and its work: scenes in NDJSON, and their player |
//! | `recordings` | plays recorded runs of other runtimes |
//!
//! To learn how to connect a runtime, read `api`, `actor` and `controls`, in this order.

mod actor;
mod api;
mod control_router;
mod controls;
mod recordings;
mod story;
mod visitor;

use super::Endpoint;
use super::documentation::DOCUMENTATION;
use api::Api;
use control_router::ControlRouter;
use proscenium::config::DEFAULT_LISTEN;
use proscenium::environment::Environment;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::log::{Storage, StoreError};
use proscenium::serve::access::origin::Hosts;
use proscenium::serve::maintenance::settle::StalenessLimits;
use proscenium::serve::{KeepAlive, Limits, Server};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The arguments of `demo`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Demo {
    /// The loopback address to listen on. If its port is in use, a free port is used and printed.
    #[arg(long, env = "PROSCENIUM_LISTEN", value_name = "HOST:PORT", default_value = DEFAULT_LISTEN)]
    listen: String,
    /// The speed of the demo: 2 is twice as fast, 0 is as fast as possible.
    #[arg(long, alias = "pace", value_name = "FACTOR", default_value = "1", value_parser = factor)]
    speed: f64,
    /// Answer the team's questions automatically. Without this flag, each question waits for a click.
    #[arg(long)]
    unattended: bool,
    /// Play everything once, then keep serving.
    #[arg(long)]
    once: bool,
}

const EXAMPLES: &str = "\
Examples:
  proscenium demo                                 then open http://127.0.0.1:8787
  proscenium demo --unattended --once --speed 4   for an unattended screen
  proscenium tail demo-1-release                  in another terminal: the run of the team
  curl -N 'http://127.0.0.1:8787/v1/sessions/demo-1/stream?children=true'
  curl --json '{\"control\":\"send\",\"value\":\"hello\"}' http://127.0.0.1:8787/v1/sessions/demo-1/controls";

/// The largest speed other than 0, which means no pauses.
const SPEED_MAX: f64 = 1000.0;

fn factor(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|error| error.to_string())?;
    // At a lower speed, the server would mark waiting runs as stale.
    let is_valid = speed == 0.0 || (0.1..=SPEED_MAX).contains(&speed);
    if is_valid { Ok(speed) } else { Err(format!("the factor must be 0, or 0.1 to {SPEED_MAX}")) }
}

/// The reason why the demo could not start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("cannot listen on {listen}: {reason}; pass another address with --listen")]
    Listen { listen: String, reason: String },
    #[error(
        "{0} is not a loopback address; the demo requires no tokens, so it listens on loopback only; \
         pass --listen {DEFAULT_LISTEN}"
    )]
    NotLoopback(SocketAddr),
    #[error("cannot create a temporary directory: {0}; free some disk space, or set TMPDIR to another directory")]
    Directory(io::Error),
    #[error(transparent)]
    Scene(#[from] story::SceneError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] proscenium::serve::Failure),
}

/// The times after which the server marks a silent run as stale and settles it.
///
/// They are much shorter than the defaults, so that a viewer sees both. Only the run whose process dies is silent for
/// so long.
const STALENESS_LIMITS: StalenessLimits =
    StalenessLimits { stale_after: Duration::from_secs(12), settle_after: Duration::from_secs(30) };

/// The state that all producers of the demo share.
struct Context {
    api: Api,
    router: ControlRouter,
    environment: Environment,
    scenes: story::Scenes,
    speed: f64,
    is_unattended: bool,
    is_once: bool,
    /// The number of recorded runs so far.
    recorded: AtomicU64,
}

impl Context {
    /// Waits for this many milliseconds at the speed of the demo.
    async fn pause(&self, ms: u64) {
        match self.speed {
            0.0 => tokio::task::yield_now().await,
            speed => tokio::time::sleep(Duration::from_millis(ms).div_f64(speed)).await,
        }
    }

    /// Returns a random number from 0 to `max`.
    fn random(&self, max: u64) -> u64 {
        u64::try_from((self.environment.random)() % u128::from(max + 1)).unwrap_or(0)
    }
}

/// The demo's data directory. Dropping it removes the directory.
///
/// The caller must drop it after the async runtime. The drop waits until the store has closed its files; otherwise the
/// store would log a warning for each file that it cannot clean up.
pub struct Directory(TempDir);

/// The time that the server gets to notice the closed connections of the producers.
const DRAIN_TIME: Duration = Duration::from_millis(100);
/// The time limit for closing the store.
const STORE_CLOSE_TIME_MAX: Duration = Duration::from_secs(10);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = EmbeddedStore::wait_until_closed(self.0.path(), STORE_CLOSE_TIME_MAX);
    }
}

/// Serves the demo until `stop` resolves; returns its directory.
///
/// # Errors
/// [`DemoError`] if the server cannot start or fails.
pub async fn run(demo: Demo, environment: Environment, stop: impl Future<Output = ()>) -> Result<Directory, DemoError> {
    let (listener, hosts) = (listen(&demo.listen).await?, Hosts::of_listen(&demo.listen));
    let address = listener.local_addr().map_err(|error| DemoError::Listen { listen: demo.listen, reason: error.to_string() })?;
    if !address.ip().is_loopback() {
        return Err(DemoError::NotLoopback(address));
    }
    let directory = Directory(tempfile::Builder::new().prefix("proscenium-demo-").tempdir().map_err(DemoError::Directory)?);
    let store = Storage::open(directory.0.path(), Sync::Never)?;
    // The demo needs no graceful end of its streams.
    let keep_alive = KeepAlive { drain: Duration::from_millis(200), ..KeepAlive::default() };
    let server = Server::new(store, Policy::default(), FeedConfig::default(), Limits::default(), keep_alive, environment)?;
    // At a low speed, the pauses between facts are longer.
    let slowness = if demo.speed == 0.0 { 1.0 } else { demo.speed.recip().max(1.0) };
    let limits = StalenessLimits {
        stale_after: STALENESS_LIMITS.stale_after.mul_f64(slowness),
        settle_after: STALENESS_LIMITS.settle_after.mul_f64(slowness),
    };
    let server = server.with_documentation(DOCUMENTATION).with_hosts(hosts).with_staleness_limits(limits);
    let url = format!("http://{address}");
    // A closed standard output only loses the instructions.
    let _ = print_instructions(&url, directory.0.path(), demo.unattended);

    // From here on, the producers know only the server's address.
    let api = Api::new(Endpoint::new(url));
    let Demo { speed, unattended: is_unattended, once: is_once, .. } = demo;
    let (router, scenes, recorded) = (ControlRouter::default(), story::Scenes::load()?, AtomicU64::new(0));
    let context = Arc::new(Context { api, router, environment, scenes, speed, is_unattended, is_once, recorded });
    let mut producers = JoinSet::new();
    for agent in story::AGENTS.iter().chain([&control_router::DEFAULT_AGENT]) {
        producers.spawn(context.clone().serve_agent(agent));
    }
    for lane in 0..recordings::CONCURRENT_RECORDINGS {
        producers.spawn(context.clone().play_recordings(lane));
    }
    producers.spawn(story::play(context.clone()));
    for errand in story::ERRANDS {
        producers.spawn(story::play_errand(context.clone(), errand));
    }
    let stop = async {
        stop.await;
        // The server would log a warning for each request body that it has to cut off.
        producers.shutdown().await;
        tokio::time::sleep(DRAIN_TIME).await;
    };
    server.run(listener, stop).await?;
    Ok(directory)
}

/// Listens on this address, or on a free port of the same host if the port is in use.
async fn listen(wanted: &str) -> Result<TcpListener, DemoError> {
    let failed = |error: io::Error| DemoError::Listen { listen: wanted.to_owned(), reason: error.to_string() };
    match TcpListener::bind(wanted).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let host = wanted.rsplit_once(':').map_or(wanted, |(host, _)| host);
            TcpListener::bind(format!("{host}:0")).await.map_err(failed)
        }
        bound => bound.map_err(failed),
    }
}

fn print_instructions(url: &str, directory: &Path, unattended: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on {url}")?;
    writeln!(out)?;
    writeln!(out, "  Open {url} in a browser: a team ships a release notes page, and other agents run beside it.")?;
    let hint = match unattended {
        true => "--unattended answers the team's questions for you.",
        false => {
            "The team will ask you two questions, and three small sessions one each. They wait for your answers. You can \
             also message or interrupt them."
        }
    };
    writeln!(out, "  {hint}")?;
    writeln!(out)?;
    writeln!(out, "  Or watch it from another terminal:")?;
    writeln!(out, "    proscenium tail {} --url {url}", story::FIRST_RUN)?;
    writeln!(out, "    curl -s {url}/v1/runs")?;
    writeln!(out)?;
    writeln!(out, "  All data is in {}; Ctrl-C stops the demo and deletes it.", directory.display())?;
    out.flush()
}

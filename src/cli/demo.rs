//! `proscenium demo`: a server on a temporary directory, and real recordings played to it for ever.
//!
//! The player is an ordinary producer: one streamed POST a run, a fact a line, at the pace of a person watching. What it
//! plays was recorded from the Awaken runtime (`tests/recordings/awaken`) and is sent as it is; only the pauses are ours.

use super::Server as Address;
use bytes::Bytes;
use proscenium::config::DEFAULT_LISTEN;
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::ingest::World;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::log::{AnyStore, StoreError};
use proscenium::serve::origin::Hosts;
use proscenium::serve::{Limits, Pulse, Server};
use rust_embed::RustEmbed;
use serde_json::Value;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

/// What `demo` is asked for.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Demo {
    /// Where to listen, on this machine only; if that is taken, a free port is used and said.
    #[arg(long, env = "PROSCENIUM_LISTEN", value_name = "HOST:PORT", default_value = DEFAULT_LISTEN)]
    listen: String,
}

const EXAMPLES: &str = "\
Examples:
  proscenium demo                                 then open http://127.0.0.1:8787
  proscenium tail demo-1-tool-progress            in another terminal
  curl -N 'http://127.0.0.1:8787/v1/runs/demo-1-tool-progress/stream?frames=events'";

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
}

/// The recordings.
#[derive(RustEmbed)]
#[folder = "tests/recordings/awaken/"]
#[include = "*.ndjson"]
struct Recordings;

/// What is played, in this order and then again: the recording, and what its runs are called. Left out are those in which
/// nothing happens, one that never ends, and one that no runtime made.
const PLAYLIST: &[(&str, &str)] = &[
    ("tool_progress_activity.ndjson", "tool-progress"),
    ("short_text_reasoning.ndjson", "reasoning"),
    ("hitl_approve.ndjson", "approval"),
    ("tool_errors.ndjson", "tool-errors"),
    ("subagent_progress_forwarded.ndjson", "subagent"),
    ("recovery_stream_reset.ndjson", "recovery"),
    ("multi_tool_sequential.ndjson", "several-tools"),
    ("cancel_mid_tool.ndjson", "cancelled"),
    ("three_turns_one_thread.ndjson", "conversation"),
    ("hitl_reject_result.ndjson", "rejected"),
    ("blocked_by_policy.ndjson", "blocked"),
    ("recovery_continue_text.ndjson", "continued"),
    ("malformed_tool_args_orphan_call.ndjson", "malformed-call"),
    ("hitl_cancel.ndjson", "declined"),
    ("long_40_steps.ndjson", "long"),
];

/// Recordings that play at once.
const LANES: usize = 3;

/// Serves and plays until `stop` resolves.
///
/// # Errors
/// [`DemoError`].
pub async fn run(demo: Demo, world: World, stop: impl Future<Output = ()>) -> Result<(), DemoError> {
    let (listener, hosts) = (listen(&demo.listen).await?, Hosts::of_listen(&demo.listen));
    let address = listener.local_addr().map_err(|error| DemoError::Listen { listen: demo.listen, why: error.to_string() })?;
    if !address.ip().is_loopback() {
        return Err(DemoError::NotLoopback(address));
    }
    // Deleted when it goes out of scope, which is after the server.
    let directory = tempfile::Builder::new().prefix("proscenium-demo-").tempdir().map_err(DemoError::Directory)?;
    let store = AnyStore::Embedded(EmbeddedStore::open(directory.path(), Sync::Never)?);
    // Nobody's work hangs on these streams: end them at once.
    let pulse = Pulse { drain: Duration::from_millis(200), ..Pulse::default() };
    let server = Server::new(store, Policy::default(), Sizes::default(), Limits::default(), pulse, world)?;
    let server = server.known_as(hosts);
    let url = format!("http://{address}");
    // Without a terminal there is nobody to welcome.
    let _ = welcome(&url, directory.path());

    let address = Address::at(url);
    let client = address.client().expect("a plain address needs nobody to vouch for it");
    let stage = Arc::new(Stage { address, client, world, next: AtomicUsize::new(0), runs: AtomicU64::new(0) });
    let lanes: Vec<_> = (0..LANES).map(|lane| tokio::spawn(stage.clone().lane(lane))).collect();
    let stop = async {
        stop.await;
        lanes.iter().for_each(tokio::task::JoinHandle::abort);
    };
    server.run(listener, stop).await?;
    Ok(())
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

fn welcome(url: &str, directory: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on {url}")?;
    writeln!(out)?;
    writeln!(out, "  Open {url} in a browser: three agents are at work, recorded from a real runtime.")?;
    writeln!(out, "  The page shows the newest live run; the switch shows it as a user, an operator or a developer sees it.")?;
    writeln!(out)?;
    writeln!(out, "  Or look from another terminal:")?;
    writeln!(out, "    proscenium tail demo-1-{} --url {url}", PLAYLIST[0].1)?;
    writeln!(out, "    curl -s {url}/v1/runs")?;
    writeln!(out)?;
    writeln!(out, "  Everything is in {} and goes when you press Ctrl-C.", directory.display())?;
    out.flush()
}

/// What the lanes share.
struct Stage {
    address: Address,
    client: reqwest::Client,
    world: World,
    /// The next place in the playlist, and how many runs there were.
    next: AtomicUsize,
    runs: AtomicU64,
}

impl Stage {
    /// Plays one recording after another, for ever.
    async fn lane(self: Arc<Self>, lane: usize) {
        // The first run begins at once, so that there is something to see; the others join it.
        self.pause(Pause::new(1500 * lane as u64, 400)).await;
        loop {
            let (file, name) = PLAYLIST[self.next.fetch_add(1, Ordering::Relaxed) % PLAYLIST.len()];
            for facts in runs_of(file) {
                let run = format!("demo-{}-{name}", self.runs.fetch_add(1, Ordering::Relaxed) + 1);
                if let Err(why) = self.clone().play(&run, name, facts).await {
                    tracing::warn!(run, why, "a run of the demo broke off");
                }
                self.pause(Pause::new(2500, 1500)).await;
            }
        }
    }

    /// Plays one run: one streamed body, a fact a line.
    async fn play(self: Arc<Self>, run: &str, session: &str, facts: Vec<Fact>) -> Result<(), String> {
        let url = format!("{}?source=awaken&sessionId=demo-{session}", self.address.run(run, "facts"));
        let client = self.client.clone();
        let lines = futures_util::stream::unfold((self.clone(), facts.into_iter()), async |(stage, mut facts)| {
            let fact = facts.next()?;
            stage.pause(fact.before).await;
            Some((Ok::<_, std::convert::Infallible>(fact.line), (stage, facts)))
        });
        let request = client.post(url).header("content-type", "application/x-ndjson").body(reqwest::Body::wrap_stream(lines));
        let answer = request.send().await.map_err(|error| self.address.failed(&error).to_string())?;
        self.address.accepted(answer).await.map(drop).map_err(|error| error.to_string())
    }

    async fn pause(&self, pause: Pause) {
        let extra = u64::try_from((self.world.random)() % u128::from(pause.jitter_ms + 1)).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(pause.least_ms + extra)).await;
    }
}

/// How long to wait: this long, and up to so much longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    least_ms: u64,
    jitter_ms: u64,
}

impl Pause {
    const fn new(least_ms: u64, jitter_ms: u64) -> Self {
        Self { least_ms, jitter_ms }
    }

    /// The pause before a fact of this type.
    fn before(event_type: &str) -> Self {
        match event_type {
            "activity_snapshot" | "activity_delta" => Self::new(180, 140),
            other if other.ends_with("_delta") => Self::new(30, 50),
            "run_start" | "tool_call_done" | "tool_call_resumed" | "stream_reset" => Self::new(300, 300),
            "step_start" => Self::new(250, 250),
            _ => Self::new(5, 15),
        }
    }

    /// How long a person thinks before saying yes or no.
    const HUMAN: Self = Self::new(3500, 2000);
}

/// One line to send, and how long to wait before it.
struct Fact {
    before: Pause,
    line: Bytes,
}

/// The runs of a recording: a file may hold several, one after another. A run that was suspended and goes on is one.
fn runs_of(file: &str) -> Vec<Vec<Fact>> {
    let recording = Recordings::get(file).expect("the playlist names recordings that are built in");
    let recording = Bytes::from(recording.data.into_owned());
    let mut runs: Vec<Vec<Fact>> = Vec::new();
    let mut of = Value::Null;
    for line in recording.split_inclusive(|byte| *byte == b'\n') {
        let event: Value = serde_json::from_slice(line).expect("every recorded line is JSON");
        let event_type = event["event_type"].as_str().unwrap_or_default();
        let mut before = Pause::before(event_type);
        if event_type == "run_start" {
            if !runs.is_empty() && event["run_id"] == of {
                before = Pause::HUMAN;
            } else {
                runs.push(Vec::new());
            }
            of = event["run_id"].clone();
        }
        let run = runs.last_mut().expect("a recording begins with a run's start");
        run.push(Fact { before, line: recording.slice_ref(line) });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(run: &[Fact]) -> Vec<String> {
        let kind = |fact: &Fact| serde_json::from_slice::<Value>(&fact.line).unwrap()["event_type"].as_str().unwrap().to_owned();
        run.iter().map(kind).collect()
    }

    #[test]
    fn every_run_of_the_playlist_begins_with_a_start_and_comes_to_an_end() {
        for (file, _) in PLAYLIST {
            for run in runs_of(file) {
                let kinds = kinds(&run);
                assert_eq!((kinds[0].as_str(), kinds.last().unwrap().as_str()), ("run_start", "run_finish"), "{file}");
                let last: Value = serde_json::from_slice(&run.last().unwrap().line).unwrap();
                assert_ne!(last["termination"]["type"], "suspended", "{file}");
            }
        }
    }

    #[test]
    fn a_suspended_run_goes_on_after_somebody_has_thought_about_it() {
        let runs = runs_of("hitl_approve.ndjson");
        assert_eq!(runs.len(), 1);
        let pauses: Vec<_> = runs[0].iter().map(|fact| fact.before).collect();
        assert_eq!(pauses.iter().filter(|pause| **pause == Pause::HUMAN).count(), 1);
    }

    #[test]
    fn a_conversation_of_three_turns_is_three_runs() {
        assert_eq!(runs_of("three_turns_one_thread.ndjson").len(), 3);
    }
}

//! The command line. The only place that reads the environment, the clock and the machine's entropy.

mod cli;

use clap::{Parser, Subcommand};
#[cfg(feature = "otlp")]
use cli::otlp;
use cli::{check, demo, doctor, tail, token, transfer};
use proscenium::auth::Authority;
use proscenium::config::{Config, LogFormat, StoreKind};
use proscenium::ingest::{LARGE_AT_ONCE, World};
use proscenium::log::embedded::EmbeddedStore;
use proscenium::log::memory::MemoryStore;
use proscenium::log::run::STORE_THREADS;
use proscenium::log::{AnyStore, StoreError};
use proscenium::serve::Server;
use proscenium::serve::tls::Tls;
use std::future::Future;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_log::{AsLog, LogTracer};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The agent-UI projection server: runtime facts in, one ordered, durable, filtered picture out.
///
/// Agent runtimes POST what happens; every screen reads the same run, live, from any point, as its audience may see it.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  proscenium demo                        see it work: a server, live runs and a page to watch them
  proscenium serve                       serve on http://127.0.0.1:8787, logs in ./data
  proscenium tail my-run                 watch a run in the terminal
  proscenium export my-run -o my-run.ndjson
  proscenium import my-run.ndjson --run a-copy
  proscenium check my-run                is everything in it as it should be?
  proscenium doctor --data-dir data      is everything in this store as it was written?
  proscenium token --key secret --generate --sessions '*' --can read,publish

Send a first fact to a server:
  curl -d '{\"type\":\"text.delta\",\"payload\":{\"text\":\"hello\"}}' -H 'content-type: application/json' \\
    http://127.0.0.1:8787/v1/runs/my-run/facts";

const SERVE_EXAMPLES: &str = "\
Examples:
  proscenium serve
  proscenium serve --listen 127.0.0.1:0 --store memory         a free port, nothing on disk
  proscenium serve --data-dir /var/lib/proscenium --log-format json
  PROSCENIUM_LISTEN=127.0.0.1:9000 proscenium serve            every flag is a variable, too

The first line on standard output is `listening on http://HOST:PORT` (with --tls-cert, https); logs go to standard error.
SIGTERM and Ctrl-C finish what is under way and exit with 0. A store or a task that fails exits with 1 and says why.";

#[derive(Subcommand)]
enum Command {
    /// Serve: take facts, keep them, show them.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Config>),
    /// Serve a temporary directory with a team of agents at work for it, to see what this is.
    Demo(demo::Demo),
    /// Watch a run in the terminal, live or from its start.
    Tail(tail::Tail),
    /// Write a run to a file, an envelope a line.
    Export(transfer::Export),
    /// Send an exported file to a server, as a run of its own.
    Import(transfer::Import),
    /// Make a token that says who somebody is and what they may, or the key to sign them with.
    Token(token::Token),
    /// Check a run, an export or a runtime's facts against what the Agent UI seed demands.
    Check(check::Check),
    /// List what is wrong in the data directory of a server that is stopped.
    Doctor(doctor::Doctor),
}

/// What the world outside is like: the clock and the operating system's randomness.
const WORLD: World = World {
    now: jiff::Timestamp::now,
    random: || {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).expect("an operating system without randomness cannot name anything");
        u128::from_ne_bytes(bits)
    },
};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(config) => serve(&config),
        Command::Demo(asked) => log_to_stderr("warn", LogFormat::Text)
            .and_then(|()| in_runtime(1, || async { Ok(demo::run(asked, WORLD, told_to_stop()?).await?) }))
            .map(drop),
        Command::Tail(asked) => {
            let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stdout().is_terminal();
            in_runtime(1, || async { Ok(tail::run(asked, colour).await?) })
        }
        Command::Export(asked) => in_runtime(1, || async { Ok(transfer::export(asked).await?) }),
        Command::Import(asked) => in_runtime(1, || async { Ok(transfer::import(asked).await?) }),
        Command::Token(asked) => token::run(&asked, WORLD).map_err(Into::into),
        Command::Doctor(asked) => {
            let examined = log_to_stderr("warn", LogFormat::Text).and_then(|()| Ok(doctor::run(&asked)?));
            return examined.map_or_else(|error| failed(&error, ExitCode::from(2)), |is_well| u8::from(!is_well).into());
        }
        Command::Check(asked) => {
            let checked = in_runtime(1, || async { Ok(check::run(asked, WORLD).await?) });
            // 1 says that something is wrong with the log, 2 that nobody knows.
            return checked.map_or_else(|error| failed(&error, ExitCode::from(2)), |is_well| u8::from(!is_well).into());
        }
    };
    result.map_or_else(|error| failed(&error, ExitCode::FAILURE), |()| ExitCode::SUCCESS)
}

/// Tells why a command failed. That nobody reads its output any more is no failure.
fn failed(error: &Failure, code: ExitCode) -> ExitCode {
    if error.downcast_ref::<cli::CliError>().is_some_and(cli::CliError::is_closed_pipe) {
        return ExitCode::SUCCESS;
    }
    // With standard error closed there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "proscenium: {error}");
    code
}

/// Threads that may wait: those that read the store, those that take large bodies, and some for files, the disk's probe and names.
const BLOCKING_THREADS: usize = STORE_THREADS + LARGE_AT_ONCE + 2;

type Failure = Box<dyn std::error::Error>;

fn in_runtime<T, F: Future<Output = Result<T, Failure>>>(workers: u16, work: impl FnOnce() -> F) -> Result<T, Failure> {
    let mut builder = match workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if workers > 1 {
        builder.worker_threads(workers.into());
    }
    // Blocking work is short reads of the store; a thread for each of a thousand at once would cost more than their turn.
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS).build()?.block_on(work())
}

/// What is logged.
fn log_filter(filter: &str) -> Result<EnvFilter, Failure> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| {
        format!("--log {filter:?} is no filter: {error}; give a level such as info, or info,proscenium::feed=debug")
    })?;
    // The spans of traces are for a collector alone.
    #[cfg(feature = "otlp")]
    let parsed = parsed.add_directive(format!("{}=off", proscenium::serve::otlp::TARGET).parse()?);
    Ok(parsed)
}

fn log_to_stderr(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let log = tracing_subscriber::fmt().with_env_filter(log_filter(filter)?).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => tracing::subscriber::set_global_default(log.with_ansi(std::io::stderr().is_terminal()).finish())?,
        LogFormat::Json => tracing::subscriber::set_global_default(log.json().flatten_event(true).finish())?,
    }
    take_other_logs()
}

/// What libraries log by other means stands among our lines, too.
fn take_other_logs() -> Result<(), Failure> {
    // At its lowest level tungstenite logs what it carries: payloads, and tokens.
    let others = LogTracer::builder().ignore_crate("tungstenite").ignore_crate("tokio_tungstenite");
    Ok(others.with_max_level(LevelFilter::current().as_log()).init()?)
}

fn serve(config: &Config) -> Result<(), Failure> {
    #[cfg(not(feature = "otlp"))]
    log_to_stderr(&config.log, config.log_format)?;
    // What is left of them is sent at the end, whatever that is.
    #[cfg(feature = "otlp")]
    let _traces = otlp::begin(config)?;
    in_runtime(config.workers, || async {
        // Before anybody can know that we are there: a signal that comes right after must find its handler.
        let stop = told_to_stop()?;
        let tls = config.tls().map(Tls::load).transpose()?.map(Arc::new);
        let renewal = tls.clone().map(renew_at_hangup).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = listen(config).await?;
        let address = listener.local_addr()?;
        let server = Server::new(open_store(config)?, config.policy(), config.sizes(), config.limits(), config.pulse(), WORLD)?
            .compacting(config.compact_after())
            .bearing(config.patience())
            .over(tls)
            .reserving(config.reserve())
            .naming(config.agents.clone())
            .asking(Authority::open(config.auth(), WORLD)?, config.origins())
            .known_as(config.hosts())
            .panicking_in(panicking_task());
        let server = match renewal {
            Some(renewal) => server.beside("certificate-renewal-at-hangup", renewal),
            None => server,
        };
        // Whoever started us without a standard output does not want to know.
        let _ = writeln!(std::io::stdout(), "listening on {scheme}://{address}").and_then(|()| std::io::stdout().flush());
        tracing::info!(%address, store = ?config.store, workers = config.workers, "serving");
        server.run(listener, stop).await?;
        tracing::info!("stopped");
        Ok(())
    })
}

fn open_store(config: &Config) -> Result<AnyStore, StoreError> {
    Ok(match config.store {
        StoreKind::Memory => AnyStore::Memory(MemoryStore::new()),
        StoreKind::Embedded => AnyStore::Embedded(EmbeddedStore::open(&config.data_dir, config.sync())?),
    })
}

/// The socket, on the first of the host's addresses that can be had and may be.
async fn listen(config: &Config) -> Result<TcpListener, Failure> {
    let given = &config.listen;
    let failed =
        |error: std::io::Error| format!("cannot listen on {given}: {error}; give --listen as HOST:PORT, port 0 for a free one");
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(given).await.map_err(failed)?.collect();
    for address in &addresses {
        config.admits(*address)?;
    }
    Ok(TcpListener::bind(addresses.as_slice()).await.map_err(failed)?)
}

/// Reads the certificate again at each SIGHUP, which is what programs that renew one send.
fn renew_at_hangup(tls: Arc<Tls>) -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            tls.renew();
        }
    })
}

/// The task that a test has panic. Programs that are built to be used do not look.
fn panicking_task() -> Option<String> {
    if cfg!(debug_assertions) { std::env::var("PROSCENIUM_PANIC_IN").ok() } else { None }
}

/// Resolves at the first SIGTERM or SIGINT. From this call on neither ends the process by itself, until one has come: the
/// second means that somebody will not wait.
fn told_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; a second signal stops at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    })
}

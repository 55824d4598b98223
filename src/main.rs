//! The command line. Here the environment, the time of envelopes and the machine's entropy enter the server.

mod cli;

use clap::{CommandFactory, Parser, Subcommand};
#[cfg(feature = "cluster")]
use cli::cluster_seed;
use cli::documentation::DOCUMENTATION;
use cli::log_output::LogOutput;
#[cfg(feature = "otlp")]
use cli::otlp;
#[cfg(target_os = "linux")]
use cli::supervise;
use cli::{check, conform, demo, doctor, follow, health, help_files, remote, restore, tail, token, transfer, verify};
#[cfg(feature = "cluster")]
use futures_util::FutureExt;
use proscenium::auth::Authenticator;
#[cfg(feature = "cluster")]
use proscenium::cluster::{ClusterNode, ClusterOptions};
use proscenium::config::{Config, LogFormat, StoreKind, file};
use proscenium::connect;
use proscenium::environment::Environment;
#[cfg(feature = "test-clock")]
use proscenium::environment::test_clock;
use proscenium::ingest::LARGE_DELIVERIES_MAX;
use proscenium::log::commit::STORE_THREADS;
use proscenium::log::embedded::FORMAT;
use proscenium::log::{Storage, StoreError};
use proscenium::meter::Counter;
use proscenium::notify::subscription::PushServices;
use proscenium::serve::Server;
#[cfg(feature = "cluster")]
use proscenium::serve::cluster::Cluster;
use proscenium::serve::transport::descriptors::raise_limit;
use proscenium::serve::transport::tls::Tls;
use std::future::Future;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
#[cfg(feature = "cluster")]
use std::time::Duration;
use tokio::net::TcpListener;
#[cfg(feature = "cluster")]
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
#[cfg(feature = "cluster")]
use tokio::time::Instant;
use tracing_log::{AsLog, LogTracer};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What `--version` prints.
static VERSION: LazyLock<String> = LazyLock::new(|| format!("{}, store format {FORMAT})", env!("PROSCENIUM_VERSION")));

/// The agent-UI projection server: runtime facts in, one ordered, durable, filtered picture out.
///
/// Agent runtimes POST facts; every screen reads the same run: live, from any point, filtered for its audience.
#[derive(Parser)]
#[command(version = VERSION.as_str(), after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  proscenium demo                        start a demo: a server, live runs and a page to watch them
  proscenium serve                       serve on http://127.0.0.1:8787, logs in ./data
  proscenium tail my-run                 watch a run in the terminal
  proscenium export my-run -o my-run.ndjson
  proscenium import my-run.ndjson --run a-copy
  claude -p Hello --output-format stream-json --verbose | proscenium publish my-run --source claude-stream-json
  proscenium inbox                       list what waits for a decision; approve, reject and answer decide
  proscenium decisions my-run            print what the run asked, what was decided, and by whom
  proscenium verify my-run.ndjson        check that an export with proofs is what the server stored
  proscenium check my-run                check the run against the Agent UI rules
  proscenium doctor --data-dir data      check the store of a stopped server for damage
  proscenium token --key secret --generate --sessions '*' --can read,publish
  proscenium health                      check whether a server is ready

Send a first fact to a server:
  curl -d '{\"type\":\"text.delta\",\"payload\":{\"text\":\"hello\"}}' -H 'content-type: application/json' \\
    http://127.0.0.1:8787/v1/runs/my-run/facts";

const SERVE_EXAMPLES: &str = "\
Examples:
  proscenium serve
  proscenium serve --listen 127.0.0.1:0 --store memory         a free port, nothing on disk
  proscenium serve --data-dir /var/lib/proscenium --log-format json
  proscenium serve --connect 'support=ag-ui:http://127.0.0.1:8000/agent' --connect 'coder=acp:codex-acp'
  PROSCENIUM_LISTEN=127.0.0.1:9000 proscenium serve            every flag is also a variable
  proscenium serve --config proscenium.toml                    and a key of a file

The first line on standard output is `listening on http://HOST:PORT` (with --tls-cert, https); logs go to standard error.
SIGTERM and Ctrl-C finish the requests in progress and exit with 0. A failed store or task exits with 1 and an error.";

#[derive(Subcommand)]
enum Command {
    /// Serve: accept facts, store them, stream them.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Config>),
    /// Serve a temporary directory with a demo team of agents.
    Demo(demo::Demo),
    /// Watch a run in the terminal, live or from its start.
    Tail(tail::Tail),
    /// Write a run to a file, one envelope per line.
    Export(transfer::Export),
    /// Send an exported file to a server as a new run.
    Import(transfer::Import),
    /// Publish standard input as a run, line by line as it comes.
    Publish(follow::Publish),
    /// Make a token for a client, or a key to sign tokens with.
    Token(token::Token),
    /// Check a run, an export or a runtime's facts against the Agent UI seed.
    Check(check::Check),
    /// Check that an export with proofs is what the server stored.
    Verify(verify::Verify),
    /// Check that a stream can be resumed anywhere, without loss and doubles.
    Conform(conform::Conform),
    #[command(flatten)]
    Remote(remote::RemoteCommand),
    /// Make a data directory from a backup.
    Restore(restore::Restore),
    /// List the damage in the data directory of a stopped server.
    Doctor(doctor::Doctor),
    /// Move the data of a stopped server into a new cluster.
    #[cfg(feature = "cluster")]
    ClusterSeed(cluster_seed::ClusterSeed),
    /// Check whether a server is ready, for health checks.
    Health(health::Health),
    /// Run an agent's program, and end everything that it started. The server calls it.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Supervise(supervise::Supervise),
    /// Print a script with which a shell completes commands and flags.
    Completions(help_files::Completions),
    /// Print the man page, or write the man pages of all commands.
    Man(help_files::ManPages),
}

/// The process's environment.
const ENVIRONMENT: Environment = Environment::SYSTEM;

fn main() -> ExitCode {
    let args = match file::expand(&Cli::command(), std::env::args_os().collect(), &variable) {
        Ok(args) => args,
        Err(error) => return failed(&error.into(), ExitCode::FAILURE),
    };
    let result = match Cli::parse_from(args).command {
        Command::Serve(config) => serve(&config),
        Command::Demo(args) => log_to_stderr("warn", LogFormat::Text)
            .and_then(|_| {
                raise_limit();
                in_runtime(1, || async { Ok(demo::run(args, ENVIRONMENT, stop_signal()?).await?) })
            })
            .map(drop),
        Command::Tail(args) => {
            let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stdout().is_terminal();
            in_runtime(1, || async { Ok(tail::run(args, colour).await?) })
        }
        Command::Export(args) => in_runtime(1, || async { Ok(transfer::export(args).await?) }),
        Command::Import(args) => in_runtime(1, || async { Ok(transfer::import(args).await?) }),
        Command::Publish(args) => in_runtime(1, || async { Ok(follow::publish(args).await?) }),
        Command::Token(args) => token::run(&args, ENVIRONMENT).map_err(Into::into),
        Command::Health(args) => in_runtime(1, || async { Ok(health::run(args).await?) }),
        #[cfg(feature = "cluster")]
        Command::ClusterSeed(args) => log_to_stderr("warn", LogFormat::Text).and_then(|_| Ok(cluster_seed::run(&args)?)),
        Command::Completions(args) => help_files::completions(&args, Cli::command()).map_err(Into::into),
        Command::Man(args) => help_files::man(&args, Cli::command()).map_err(Into::into),
        #[cfg(target_os = "linux")]
        Command::Supervise(args) => return supervise::run(&args),
        Command::Doctor(args) => {
            // The engine reports each damaged block that a salvage meets.
            let examined = log_to_stderr("warn,log=off,lsm_tree=off", LogFormat::Text).and_then(|_| Ok(doctor::run(&args)?));
            return examined.map_or_else(|error| failed(&error, ExitCode::from(2)), |is_well| u8::from(!is_well).into());
        }
        Command::Restore(args) => {
            log_to_stderr("warn", LogFormat::Text).and_then(|_| in_runtime(1, || async { Ok(restore::run(args).await?) }))
        }
        Command::Remote(command) => in_runtime(1, || async { Ok(remote::run(command).await?) }),
        Command::Verify(args) => {
            let verified = in_runtime(1, || async { Ok(verify::run(args).await?) });
            // Exit code 1 means that a row does not fit, 2 that the file could not be checked.
            return verified.map_or_else(|error| failed(&error, ExitCode::from(2)), |is_well| u8::from(!is_well).into());
        }
        Command::Conform(args) => {
            let checked = in_runtime(1, || async { Ok(conform::run(args).await?) });
            // Exit code 1 means that a check fails, 2 that the server could not be checked.
            return checked.map_or_else(|error| failed(&error, ExitCode::from(2)), |is_well| u8::from(!is_well).into());
        }
        Command::Check(args) => {
            let checked = in_runtime(1, || async { Ok(check::run(args, ENVIRONMENT).await?) });
            // Exit code 1 means that the run has errors, 2 that the check could not read it.
            return checked.map_or_else(|error| failed(&error, ExitCode::from(2)), |is_well| u8::from(!is_well).into());
        }
    };
    result.map_or_else(|error| failed(&error, ExitCode::FAILURE), |()| ExitCode::SUCCESS)
}

/// Reads a variable of the environment.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reports why a command failed. A closed output pipe is not a failure.
fn failed(error: &Failure, code: ExitCode) -> ExitCode {
    if error.downcast_ref::<cli::CliError>().is_some_and(cli::CliError::is_closed_pipe) {
        return ExitCode::SUCCESS;
    }
    // If standard error is closed too, the error cannot be reported.
    let _ = writeln!(std::io::stderr(), "proscenium: {error}");
    code
}

/// Threads for blocking work.
///
/// Those for the store, those for large bodies, and those for everything else: renewals of keys and certificates, the
/// disk probe, files, a snapshot of a cluster, and name look-ups. A writer that opens its log waits for none of them.
const BLOCKING_THREADS: usize = STORE_THREADS + LARGE_DELIVERIES_MAX + 6;

type Failure = Box<dyn std::error::Error>;

/// The worker threads: one if a test sets the clock.
fn workers(config: &Config) -> u16 {
    #[cfg(feature = "test-clock")]
    if test_clock::socket().is_some() {
        return 1;
    }
    config.workers
}

fn in_runtime<T, F: Future<Output = Result<T, Failure>>>(workers: u16, work: impl FnOnce() -> F) -> Result<T, Failure> {
    let mut builder = match workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if workers > 1 {
        builder.worker_threads(workers.into());
    }
    // Blocking work is mostly short store reads. A thread for each of a thousand reads would cost more than the wait.
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS).build()?.block_on(work())
}

/// Parses the log filter of the command line.
fn log_filter(filter: &str) -> Result<Targets, Failure> {
    let parsed: Targets = filter.parse().map_err(|error| {
        format!("--log {filter:?} is not a filter: {error}; give a level such as info, or info,proscenium::feed=debug")
    })?;
    // Trace spans are for a collector only.
    #[cfg(feature = "otlp")]
    let parsed = parsed.with_target(proscenium::serve::telemetry::otlp::TARGET, LevelFilter::OFF);
    Ok(parsed)
}

/// Starts logging. Returns the count of lines that could not be written.
fn log_to_stderr(filter: &str, format: LogFormat) -> Result<Arc<Counter>, Failure> {
    let (filter, output) = (log_filter(filter)?, LogOutput::default());
    let lost_lines = output.lost_lines.clone();
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || output.clone());
    let log = log.log_internal_errors(false);
    match format {
        LogFormat::Text => {
            let log = log.with_ansi(std::io::stderr().is_terminal()).finish();
            tracing::subscriber::set_global_default(log.with(filter))?;
        }
        LogFormat::Json => tracing::subscriber::set_global_default(log.json().flatten_event(true).finish().with(filter))?,
    }
    capture_library_logs()?;
    Ok(lost_lines)
}

/// Captures the log lines of libraries that use the `log` crate.
fn capture_library_logs() -> Result<(), Failure> {
    // At its lowest level, tungstenite logs payloads and tokens.
    let others = LogTracer::builder().ignore_crate("tungstenite").ignore_crate("tokio_tungstenite");
    Ok(others.with_max_level(LevelFilter::current().as_log()).init()?)
}

/// How long a node starts again because the stream is shortened meanwhile.
#[cfg(feature = "cluster")]
const NODE_START_TIME_MAX: Duration = Duration::from_secs(15);

/// Opens a node and its server.
///
/// The other nodes may shorten the stream until they know of this one, and the server reads all of it: then both begin
/// again.
#[cfg(feature = "cluster")]
fn open_node(
    options: &ClusterOptions,
    open: impl Fn(Storage) -> Result<Server, StoreError>,
) -> Result<(Server, ClusterNode), StoreError> {
    let begun = Instant::now();
    let mut is_again = false;
    loop {
        // It connects to NATS, and may read a snapshot.
        let opened = ClusterNode::open(options.clone()).and_then(|(node, storage)| Ok((open(storage)?, node)));
        match opened {
            Err(error @ StoreError::Forgotten { .. }) if begun.elapsed() < NODE_START_TIME_MAX => {
                tracing::warn!(%error, "the stream was shortened during the start; starting again");
                is_again = true;
            }
            // The thread of the last attempt may still hold the directory.
            Err(StoreError::Locked { .. }) if is_again && begun.elapsed() < NODE_START_TIME_MAX => {
                Handle::current().block_on(tokio::time::sleep(Duration::from_millis(50)));
            }
            opened => return opened,
        }
    }
}

/// A server, and its node if it belongs to a cluster.
struct Opened {
    server: Server,
    #[cfg(feature = "cluster")]
    node: Option<ClusterNode>,
}

/// Opens the store and the server. With many runs it takes seconds, and blocks.
fn open(config: &Config, #[cfg(feature = "cluster")] cluster: Option<ClusterOptions>) -> Result<Opened, StoreError> {
    let open = |storage: Storage| {
        let archive = config.archive(storage.dir())?;
        let (policy, sizes, limits) = (config.policy(), config.sizes(), config.limits());
        Server::with_archive(storage, archive, policy, sizes, limits, config.keep_alive(), ENVIRONMENT)
    };
    #[cfg(feature = "cluster")]
    if let Some(options) = cluster {
        let (server, node) = open_node(&options, open)?;
        return Ok(Opened { server, node: Some(node) });
    }
    let server = open(open_store(config)?)?;
    Ok(Opened {
        server,
        #[cfg(feature = "cluster")]
        node: None,
    })
}

fn serve(config: &Config) -> Result<(), Failure> {
    #[cfg(not(feature = "otlp"))]
    let lost_lines = log_to_stderr(&config.log, config.log_format)?;
    // Dropping the traces sends the remaining ones, however the server ends.
    #[cfg(feature = "otlp")]
    let (lost_lines, _traces) = otlp::start(config)?;
    raise_limit();
    in_runtime(workers(config), || async {
        #[cfg(feature = "test-clock")]
        test_clock::start()?;
        // Before the server announces itself: a signal that arrives right after that must find its handler.
        let mut stop = std::pin::pin!(stop_signal()?);
        let tls = config.tls().map(Tls::load).transpose()?.map(Arc::new);
        let renewal = tls.clone().map(renew_on_sighup).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = listen(config).await?;
        let address = listener.local_addr()?;
        // Before the store, where it is given: a node without its key must not join.
        let given_key = config.signing_key.is_some().then(|| config.open_signing_key(ENVIRONMENT)).transpose()?;
        #[cfg(feature = "cluster")]
        let cluster = config.cluster(scheme, address, ENVIRONMENT.random)?;
        #[cfg(feature = "cluster")]
        let cluster = cluster.map(|options| ClusterOptions { is_fenced: is_fenced(), ..options });
        let of = config.clone();
        let opening = tokio::task::spawn_blocking(move || {
            open(
                &of,
                #[cfg(feature = "cluster")]
                cluster,
            )
        });
        let opened = tokio::select! {
            biased;
            opened = opening => opened??,
            () = &mut stop => {
                tracing::info!("stopped during the start");
                // Each commit is whole whenever the process ends, and nothing else of it has begun.
                std::process::exit(0);
            }
        };
        let server = opened.server;
        let webhooks = config.webhooks(&variable)?;
        let waits = config.wait_rules(&webhooks)?;
        let retention = config.retention_rules()?;
        let authenticator = Authenticator::open(config.auth()?, ENVIRONMENT)?;
        if let Some(authenticator) = &authenticator {
            authenticator.fetch_keys().await;
        }
        let server = server
            .with_compaction(config.compact_after())
            .with_archiving(config.archive_after)
            .with_erase_within(config.erase_within())
            .with_staleness_limits(config.staleness_limits())
            .with_tls(tls)
            .with_disk_reserve(config.reserve())
            .with_agents(config.agents.clone())
            .with_notifier(webhooks, PushServices::with(config.push_host.clone()), config.public_url.clone())
            .with_waits(waits)
            .with_retention(retention)
            .with_auth(authenticator.clone(), config.origins())
            .with_hosts(config.hosts())
            .with_documentation(DOCUMENTATION)
            .with_signing_key(given_key.map_or_else(|| config.open_signing_key(ENVIRONMENT), Ok)?)
            .with_lost_log_lines(lost_lines)
            .with_panic_in(panicking_task());
        let server = match renewal {
            Some(renewal) => server.with_task("certificate-renewal-at-hangup", renewal),
            None => server,
        };
        #[cfg(feature = "otlp")]
        let server = match config.trace_collector()? {
            Some(collector) => server.with_traces(collector, config.genai_content),
            None => server,
        };
        let agents = config.agents_to_connect(&variable)?;
        #[cfg(target_os = "linux")]
        let agents = agents.into_iter().map(|agent| agent.with_supervisor(&[OWN_BINARY, "supervise"])).collect();
        #[cfg(feature = "cluster")]
        let (server, leaving) = match opened.node {
            Some(mut node) => {
                if let (Some(authenticator), Some(tickets)) = (authenticator, node.take_tickets()) {
                    authenticator.share_tickets(tickets);
                }
                let server = server.with_cluster(Cluster::new(node.membership())?);
                let (stopped, stopping) = tokio::sync::watch::channel(false);
                let running = tokio::spawn(node.run(server.logs(), stopping)).map(drop).shared();
                (server.with_task("cluster", running.clone()), Some((stopped, running)))
            }
            None => (server, None),
        };
        // The agents share the state of a server, so it is configured before.
        let connecting = connect::connect(&server.app(), agents)?;
        let server = server.with_task("connectors", connecting);
        // A parent process without a standard output does not need the line.
        let _ = writeln!(std::io::stdout(), "listening on {scheme}://{address}").and_then(|()| std::io::stdout().flush());
        tracing::info!(%address, store = ?config.store, workers = config.workers, "serving");
        let served = server.run(listener, stop).await;
        // The lease ends with the server, not before: until then this node is the one that appends.
        #[cfg(feature = "cluster")]
        if let Some((stopped, running)) = leaving {
            let _ = stopped.send(true);
            running.await;
        }
        served?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// The binary of this process, also once an upgrade has replaced the file.
#[cfg(target_os = "linux")]
const OWN_BINARY: &str = "/proc/self/exe";

fn open_store(config: &Config) -> Result<Storage, StoreError> {
    match config.store {
        StoreKind::Memory => Ok(Storage::memory()),
        StoreKind::Embedded => Storage::open(&config.data_dir, config.sync()),
    }
}

/// Binds the socket to the first address of the host that is free and that the configuration admits.
async fn listen(config: &Config) -> Result<TcpListener, Failure> {
    let given = &config.listen;
    let failed =
        |error: std::io::Error| format!("cannot listen on {given}: {error}; give --listen as HOST:PORT, port 0 for a free one");
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(given).await.map_err(failed)?.collect();
    for address in &addresses {
        config.check_listen_address(*address)?;
    }
    Ok(TcpListener::bind(addresses.as_slice()).await.map_err(failed)?)
}

/// Reloads the certificate at each SIGHUP, the signal that renewal programs send.
fn renew_on_sighup(tls: Arc<Tls>) -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            tls.renew();
        }
    })
}

/// Whether appends are fenced. A test turns the fence off, to show that it finds what then goes wrong.
#[cfg(feature = "cluster")]
fn is_fenced() -> bool {
    !cfg!(debug_assertions) || std::env::var_os("PROSCENIUM_UNFENCED").is_none()
}

/// The task that a test wants to panic. Release builds ignore the variable.
fn panicking_task() -> Option<String> {
    if cfg!(debug_assertions) { std::env::var("PROSCENIUM_PANIC_IN").ok() } else { None }
}

/// Resolves at the first SIGTERM or SIGINT. A second signal ends the process at once.
///
/// From this call on, the first signal does not end the process by itself.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; send a second signal to stop at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    })
}

//! Every knob of `proscenium serve`: name, unit, default, bounds, and which stage's limits it fills.
//!
//! Each flag `--some-name` is also the variable `PROSCENIUM_SOME_NAME`; a flag wins over its variable. Values are checked as
//! they are parsed: a [`Config`] that exists is within its bounds. Reading the command line and the environment is for `main`.

use crate::auth::Setup;
use crate::feed::Sizes;
use crate::guard::Policy;
use crate::ingest::Load;
use crate::log::embedded::Sync;
use crate::model::AgentId;
use crate::serve::disk::Reserve;
use crate::serve::origin::{Hosts, Origins, origin};
use crate::serve::settle::Patience;
use crate::serve::shares::Rate;
use crate::serve::tls::Files;
use crate::serve::{Limits, Pulse};
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// What a server is started with.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Address")]
pub struct Config {
    /// Where to listen; port 0 takes a free one, and the first line on standard output says which.
    #[arg(long, env = "PROSCENIUM_LISTEN", value_name = "HOST:PORT", default_value = DEFAULT_LISTEN)]
    pub listen: String,
    /// Listen on an address that is not loopback, although nobody is asked who they are.
    #[arg(long, env = "PROSCENIUM_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,
    /// Speak TLS, with this certificate: PEM, the server's own first, then the chain. Renewed files are taken over within
    /// seconds, or at once on SIGHUP.
    #[arg(long, env = "PROSCENIUM_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key: PEM, not encrypted.
    #[arg(long, env = "PROSCENIUM_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Ask who is there, and take tokens that this key has signed: a secret of 32 bytes or more (HS256), or PEM of a public
    /// Ed25519 (EdDSA) or RSA key (RS256).
    #[arg(long, env = "PROSCENIUM_AUTH_KEY", value_name = "FILE", help_heading = "Who may")]
    pub auth_key: Option<PathBuf>,
    /// Ask who is there, and take tokens that a key of this JSON Web Key Set has signed. The file is read again when it changes;
    /// a key that is gone from it ends what is open under its tokens.
    #[arg(long, env = "PROSCENIUM_AUTH_JWKS", value_name = "FILE", help_heading = "Who may")]
    pub auth_jwks: Option<PathBuf>,
    /// Tokens that are taken no more: a `jti` or a `sub` a line. The file is read again when it changes.
    #[arg(long, env = "PROSCENIUM_AUTH_REVOKED", value_name = "FILE", help_heading = "Who may")]
    pub auth_revoked: Option<PathBuf>,
    /// What a token's `aud` has to name, where it has one.
    #[arg(long, env = "PROSCENIUM_AUTH_AUDIENCE", value_name = "NAME", default_value = "proscenium", help_heading = "Who may")]
    pub auth_audience: String,
    /// What a token's `iss` has to be. Anything, unless given.
    #[arg(long, env = "PROSCENIUM_AUTH_ISSUER", value_name = "NAME", help_heading = "Who may")]
    pub auth_issuer: Option<String>,
    /// An origin whose pages may ask, besides our own, such as `https://app.example`; may be given more than once, or with commas.
    #[arg(long, env = "PROSCENIUM_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', help_heading = "Who may",
          value_parser = |text: &str| origin(text).map(|_| text.to_owned()))]
    pub cors_origin: Vec<String>,

    /// An agent that clients are told of, whether or not it is there; may be given more than once, or with commas. Clients are told
    /// anyway of `default`, of those that wait for controls, and of those of recent runs.
    #[arg(long = "agent", env = "PROSCENIUM_AGENT", value_name = "NAME", value_delimiter = ',', help_heading = "Clients",
          value_parser = AgentId::new)]
    pub agents: Vec<AgentId>,

    /// Where logs are kept: on disk under --data-dir, or in memory until the process ends.
    #[arg(long, env = "PROSCENIUM_STORE", value_enum, default_value_t = StoreKind::Embedded, help_heading = "Storage")]
    pub store: StoreKind,
    /// The directory of the embedded store; it is created if need be, and belongs to one process at a time.
    #[arg(long, env = "PROSCENIUM_DATA_DIR", value_name = "DIR", default_value = "./data", help_heading = "Storage")]
    pub data_dir: PathBuf,
    /// When what was written reaches the disk: before each answer, every --sync-interval-ms, or when the operating system
    /// likes. Only `always` keeps an acknowledged fact through a power cut.
    #[arg(long, env = "PROSCENIUM_SYNC", value_enum, default_value_t = SyncMode::Always, help_heading = "Storage")]
    pub sync: SyncMode,
    /// How often `--sync interval` syncs, in milliseconds: 1 to 60000.
    #[arg(long, env = "PROSCENIUM_SYNC_INTERVAL_MS", value_name = "MS", default_value_t = 100, help_heading = "Storage",
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub sync_interval_ms: u64,

    /// How long after its last fact an ended run is compacted, in seconds: 1 to 3153600000. Facts that were of use only while it
    /// was live, and diagnostics, are then taken out of its log; what it comes to stays the same. Never, unless given.
    #[arg(long, env = "PROSCENIUM_COMPACT_AFTER", value_name = "SECONDS", help_heading = "Storage",
          value_parser = clap::value_parser!(u64).range(1..=3_153_600_000))]
    pub compact_after: Option<u64>,

    /// What is kept free on the disk of --data-dir: 0 to 1024GiB. While less is free, writes are answered with 507 and reads go on.
    #[arg(long, env = "PROSCENIUM_DISK_RESERVE", value_name = "SIZE", default_value = "128MiB", help_heading = "Storage",
          value_parser = |text: &str| size(text, 0, 1024 * GIB))]
    pub disk_reserve: u64,
    /// Runs, and sessions with a log of their own, that are kept: 1 to 100000000. Of each some bytes stay in memory. A fact that
    /// would begin one more is answered with 507.
    #[arg(long, env = "PROSCENIUM_RUNS_MAX", value_name = "COUNT", default_value_t = 1_000_000, help_heading = "Storage",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub runs_max: u64,

    /// The largest string or tool output that stays in its envelope: 1KiB to 16MiB. What is larger is moved to a blob.
    #[arg(long, env = "PROSCENIUM_INLINE_MAX", value_name = "SIZE", default_value = "32KiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, 16 * MIB))]
    pub inline_max: u64,
    /// The largest fact, and the longest line of a streamed body: 1KiB to 256MiB.
    #[arg(long, env = "PROSCENIUM_FACT_MAX", value_name = "SIZE", default_value = "16MiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, 256 * MIB))]
    pub fact_max: u64,
    /// The largest JSON body: 1KiB to 1GiB. Streamed bodies (application/x-ndjson) have no limit.
    #[arg(long, env = "PROSCENIUM_BODY_MAX", value_name = "SIZE", default_value = "32MiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, GIB))]
    pub body_max: u64,
    // The JSON parser gives up at 128 levels, of which a body's own array is one.
    /// How deep the JSON of a fact may nest: 4 to 120 levels.
    #[arg(long, env = "PROSCENIUM_DEPTH_MAX", value_name = "LEVELS", default_value_t = 64, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(4..=120))]
    pub depth_max: u64,
    /// The largest head of a request: 1KiB to 1MiB.
    #[arg(long, env = "PROSCENIUM_HEAD_MAX", value_name = "SIZE", default_value = "16KiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, MIB))]
    pub head_max: u64,
    /// How long a request's head may take to come, in milliseconds: 100 to 600000.
    #[arg(long, env = "PROSCENIUM_HEAD_TIME_MS", value_name = "MS", default_value_t = 10_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub head_time_ms: u64,
    /// How long a TLS handshake may take, in milliseconds: 100 to 600000.
    #[arg(long, env = "PROSCENIUM_HANDSHAKE_TIME_MS", value_name = "MS", default_value_t = 10_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub handshake_time_ms: u64,
    /// Requests and streams of one HTTP/2 connection at once: 1 to 65536. What is more waits, or is refused for the client to
    /// try again.
    #[arg(long, env = "PROSCENIUM_STREAMS_MAX", value_name = "COUNT", default_value_t = 256, help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub streams_max: u32,
    /// How long a JSON body may take to come, beside a second for each 16KiB of it, in milliseconds: 100 to 600000.
    #[arg(long, env = "PROSCENIUM_BODY_TIME_MS", value_name = "MS", default_value_t = 10_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub body_time_ms: u64,
    /// How long a streamed body may say nothing, not even a blank line, in milliseconds: 100 to 86400000.
    #[arg(long, env = "PROSCENIUM_LINE_TIME_MS", value_name = "MS", default_value_t = 600_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(100..=86_400_000))]
    pub line_time_ms: u64,
    /// How fast one producer may publish, in facts a second: 1 to 1000000. A JSON body beyond it is answered with 429, a streamed
    /// one is read no faster. Producers are told apart by their token's sub; where nobody is asked who
    /// they are, by Producer-Id, and without one by their run. No limit, unless given.
    #[arg(long, env = "PROSCENIUM_PUBLISH_RATE", value_name = "FACTS", help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub publish_rate: Option<u32>,
    /// How many facts a producer may publish at once after a pause: 1 to 10000000. As many as in a second, unless given.
    #[arg(long, env = "PROSCENIUM_PUBLISH_BURST", value_name = "FACTS", requires = "publish_rate", help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub publish_burst: Option<u32>,
    /// Memory of facts under way to the store, counted before they are parsed: 1MiB to 64GiB. Beyond it producers wait.
    #[arg(long, env = "PROSCENIUM_IN_FLIGHT_MAX", value_name = "SIZE", default_value = "128MiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, MIB, 64 * GIB))]
    pub in_flight_max: u64,
    /// How long they wait until they are answered with 503, in milliseconds: 0 to 600000.
    #[arg(long, env = "PROSCENIUM_BUSY_AFTER_MS", value_name = "MS", default_value_t = 10_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub busy_after_ms: u64,
    /// From how much under way on diagnostics and metrics are left out, and counted in the answer: 0 to 64GiB.
    #[arg(long, env = "PROSCENIUM_SHED_ABOVE", value_name = "SIZE", default_value = "64MiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, 0, 64 * GIB))]
    pub shed_above: u64,
    /// Connections of one client (an IPv4 address, 64 bits of an IPv6 one) at once: 1 to 1000000. One more is answered with 429.
    /// Behind a proxy all are the proxy's: it has to count them then.
    #[arg(long, env = "PROSCENIUM_CONNECTIONS_PER_CLIENT_MAX", value_name = "COUNT", default_value_t = 65_536,
          help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub connections_per_client_max: u64,
    /// What is open at once under tokens of one `sub` (streams, sockets, streamed bodies, claims): 1 to 1000000. One more is
    /// answered with 429.
    #[arg(long, env = "PROSCENIUM_CONNECTIONS_PER_TOKEN_MAX", value_name = "COUNT", default_value_t = 65_536,
          help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub connections_per_token_max: u64,
    /// Connections at once: 1 to 1000000. One more is answered with 503.
    #[arg(long, env = "PROSCENIUM_CONNECTIONS_MAX", value_name = "COUNT", default_value_t = 65_536, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub connections_max: u64,
    /// Subscriptions of one WebSocket at once: 1 to 65536. One more is refused, and the others go on.
    #[arg(long, env = "PROSCENIUM_SUBSCRIPTIONS_MAX", value_name = "COUNT", default_value_t = 256, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub subscriptions_max: u64,

    /// How often a quiet stream says that it is alive, in milliseconds: 10 to 60000. Proxies often cut after 60 s. A WebSocket
    /// that leaves two pings unanswered is closed.
    #[arg(long, env = "PROSCENIUM_HEARTBEAT_MS", value_name = "MS", default_value_t = 15_000, help_heading = "Streams",
          value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub heartbeat_ms: u64,
    /// Over how long streams are ended when the server stops, each at its own moment, in milliseconds: 0 to 10000.
    #[arg(long, env = "PROSCENIUM_DRAIN_MS", value_name = "MS", default_value_t = 2000, help_heading = "Streams",
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub drain_ms: u64,
    /// The shortest time between two writes to the readers of one run, in milliseconds: 0 to 1000.
    #[arg(long, env = "PROSCENIUM_TICK_MS", value_name = "MS", default_value_t = 8, help_heading = "Streams",
          value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub tick_ms: u64,
    /// What each run that is being read keeps of its newest frames for every audience: 64KiB to 1GiB.
    #[arg(long, env = "PROSCENIUM_RING_MAX", value_name = "SIZE", default_value = "256KiB", help_heading = "Streams",
          value_parser = |text: &str| size(text, 64 * KIB, GIB))]
    pub ring_max: u64,
    /// The cache of older frames, shared by all readers who catch up: 1MiB to 64GiB.
    #[arg(long, env = "PROSCENIUM_PAGES_MAX", value_name = "SIZE", default_value = "64MiB", help_heading = "Streams",
          value_parser = |text: &str| size(text, MIB, 64 * GIB))]
    pub pages_max: u64,

    /// How long nothing may be heard of a run that goes on until it is said to be stale, in seconds: 1 to 31536000. Any delivery
    /// counts, also an empty array, and an open streamed body.
    #[arg(long, env = "PROSCENIUM_STALE_AFTER", value_name = "SECONDS", default_value_t = 60, help_heading = "Runs",
          value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub stale_after: u64,
    /// How long until it is settled: everything open is closed and the run ends as failed, in seconds: 1 to 31536000. Any later
    /// fact reopens it. A run that waits for a decision is never settled by itself.
    #[arg(long, env = "PROSCENIUM_SETTLE_AFTER", value_name = "SECONDS", default_value_t = 300, help_heading = "Runs",
          value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub settle_after: u64,

    /// Threads that serve: 1 to 256. One runs everything on a single thread, beside the store's own.
    #[arg(long, env = "PROSCENIUM_WORKERS", value_name = "COUNT", default_value_t = 1, help_heading = "Process",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// What is logged to standard error: a level, or levels by module as in `info,proscenium::feed=debug`.
    #[arg(
        long,
        env = "PROSCENIUM_LOG",
        value_name = "FILTER",
        default_value = "info,fjall=warn,lsm_tree=warn",
        help_heading = "Process"
    )]
    pub log: String,
    /// How it is logged.
    #[arg(long, env = "PROSCENIUM_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, help_heading = "Process")]
    pub log_format: LogFormat,
    /// A collector of traces, such as `http://127.0.0.1:4318`: each request becomes a span, sent to its `/v1/traces` by OTLP
    /// (protobuf over HTTP). Nothing, unless given. It takes a binary that was built with the feature `otlp`.
    #[arg(long, env = "PROSCENIUM_OTLP_ENDPOINT", value_name = "URL", help_heading = "Process",
          value_parser = |text: &str| collector(text, cfg!(feature = "otlp")))]
    pub otlp_endpoint: Option<String>,
}

/// Where a server listens, and where clients look for it, unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8787";

/// Which store a server is started on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    Embedded,
    Memory,
}

/// When what was written is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SyncMode {
    Always,
    Interval,
    Never,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Why an address is not listened on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to listen on {0}: nobody is asked who they are, so whoever reaches that address may read and write every run; \
     ask them with --auth-key or --auth-jwks, listen on loopback ({DEFAULT_LISTEN}) behind a proxy that authenticates (--cors-origin says by which name), or give --insecure if that whole network is to be trusted"
)]
pub struct NotLoopback(pub SocketAddr);

impl Config {
    /// Whether this address may be listened on.
    ///
    /// # Errors
    /// [`NotLoopback`] for one that others can reach, unless they are asked who they are, or `--insecure` says that this is meant.
    pub fn admits(&self, address: SocketAddr) -> Result<(), NotLoopback> {
        let is_asked = self.auth_key.is_some() || self.auth_jwks.is_some();
        if address.ip().to_canonical().is_loopback() || is_asked || self.insecure { Ok(()) } else { Err(NotLoopback(address)) }
    }

    /// Where the keys are, and what is demanded of tokens.
    #[must_use]
    pub fn auth(&self) -> Setup {
        Setup {
            key: self.auth_key.clone(),
            jwks: self.auth_jwks.clone(),
            revoked: self.auth_revoked.clone(),
            service: self.auth_audience.as_str().into(),
            issuer: self.auth_issuer.as_deref().map(Into::into),
        }
    }

    /// Whose pages may ask.
    #[must_use]
    pub fn origins(&self) -> Origins {
        Origins::new(self.cors_origin.iter().map(String::as_str)).expect("each was looked at when it was parsed")
    }

    /// By which names the server may be asked for, where nobody is asked who they are.
    #[must_use]
    pub fn hosts(&self) -> Hosts {
        if self.insecure { Hosts::Any } else { Hosts::of_listen(&self.listen) }
    }

    /// When the embedded store syncs.
    #[must_use]
    pub const fn sync(&self) -> Sync {
        match self.sync {
            SyncMode::Always => Sync::Always,
            SyncMode::Interval => Sync::Interval(Duration::from_millis(self.sync_interval_ms)),
            SyncMode::Never => Sync::Never,
        }
    }

    /// The files to speak TLS with, if that is asked for.
    #[must_use]
    pub fn tls(&self) -> Option<Files> {
        Some(Files { cert: self.tls_cert.clone()?, key: self.tls_key.clone()? })
    }

    /// How long after its last fact an ended run is compacted, if ever.
    #[must_use]
    pub fn compact_after(&self) -> Option<Duration> {
        self.compact_after.map(Duration::from_secs)
    }

    /// What the guard is told.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy { inline_bytes_max: in_memory(self.inline_max) }
    }

    /// How the read path is sized.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let tick = Duration::from_millis(self.tick_ms);
        Sizes { tick, ring_bytes_max: in_memory(self.ring_max), pages_bytes_max: self.pages_max }
    }

    /// What clients may send.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            fact_bytes_max: in_memory(self.fact_max),
            body_bytes_max: in_memory(self.body_max),
            depth_max: in_memory(self.depth_max),
            head_bytes_max: in_memory(self.head_max),
            head_time_max: Duration::from_millis(self.head_time_ms),
            handshake_time_max: Duration::from_millis(self.handshake_time_ms),
            streams_max: self.streams_max,
            body_time_max: Duration::from_millis(self.body_time_ms),
            line_time_max: Duration::from_millis(self.line_time_ms),
            connections_max: in_memory(self.connections_max),
            connections_per_client_max: in_memory(self.connections_per_client_max),
            connections_per_token_max: in_memory(self.connections_per_token_max),
            subscriptions_max: in_memory(self.subscriptions_max),
            publish: self.publish_rate.map(|facts| Rate { facts, burst: self.publish_burst.unwrap_or(facts) }),
            load: Load {
                in_flight_bytes_max: in_memory(self.in_flight_max),
                wait_max: Duration::from_millis(self.busy_after_ms),
                shed_bytes_min: in_memory(self.shed_above),
                logs_max: self.runs_max,
                ..Load::default()
            },
        }
    }

    /// What is kept free of the store's disk, where it has one.
    #[must_use]
    pub fn reserve(&self) -> Option<Reserve> {
        (self.store == StoreKind::Embedded).then(|| Reserve::of(&self.data_dir, self.disk_reserve))
    }

    /// How long the silence of a run is borne.
    #[must_use]
    pub const fn patience(&self) -> Patience {
        Patience { stale: Duration::from_secs(self.stale_after), settle: Duration::from_secs(self.settle_after) }
    }

    /// How streams live and end.
    #[must_use]
    pub const fn pulse(&self) -> Pulse {
        Pulse { heartbeat: Duration::from_millis(self.heartbeat_ms), drain: Duration::from_millis(self.drain_ms) }
    }
}

/// A bound that this machine cannot even address is none.
fn in_memory(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The address of a collector, for a binary that has something for it. A variable that nobody reads would be worse than an error.
fn collector(text: &str, has_otlp: bool) -> Result<String, String> {
    if !has_otlp {
        return Err("this binary sends no traces; build one that does, with `cargo build --release --features otlp`".into());
    }
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}; give one such as http://127.0.0.1:4318"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.query().is_none() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("it must be an http or https address without a query, such as http://127.0.0.1:4318".into()),
    }
}

/// Bytes from text such as `65536`, `64KiB` or `64 kib`; a unit is 1024 of the one before.
fn size(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        other => return Err(format!("{other:?} is no unit of size; give bytes, KiB, MiB or GiB")),
    };
    let count: u64 =
        digits.trim().parse().map_err(|_| format!("{text:?} is no size; give a whole number of bytes, KiB, MiB or GiB"))?;
    match count.checked_mul(unit) {
        Some(bytes) if (min..=max).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{text} is out of bounds; it must be {} to {}", shown(min), shown(max))),
    }
}

fn shown(bytes: u64) -> String {
    match bytes {
        GIB.. if bytes.is_multiple_of(GIB) => format!("{}GiB", bytes / GIB),
        MIB.. if bytes.is_multiple_of(MIB) => format!("{}MiB", bytes / MIB),
        KIB.. if bytes.is_multiple_of(KIB) => format!("{}KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Server {
        #[command(flatten)]
        config: Config,
    }

    fn config(arguments: &[&str]) -> Result<Config, clap::Error> {
        Server::try_parse_from([&["serve"], arguments].concat()).map(|server| server.config)
    }

    #[test]
    fn the_defaults_of_the_command_line_are_those_of_the_stages() {
        let config = config(&[]).unwrap();
        assert_eq!(format!("{:?}", config.limits()), format!("{:?}", Limits::default()));
        assert_eq!(format!("{:?}", config.pulse()), format!("{:?}", Pulse::default()));
        assert_eq!(format!("{:?}", config.sizes()), format!("{:?}", Sizes::default()));
        assert_eq!(format!("{:?}", config.policy()), format!("{:?}", Policy::default()));
        assert_eq!((config.listen.as_str(), config.data_dir.to_str()), ("127.0.0.1:8787", Some("./data")));
        assert_eq!(config.compact_after(), None);
    }

    #[test]
    fn every_flag_is_also_a_variable_of_the_same_name() {
        for argument in Server::command().get_arguments().filter(|argument| argument.get_id() != "help") {
            let flag = argument.get_long().expect("every knob has a long flag");
            let variable = argument.get_env().and_then(|name| name.to_str());
            assert_eq!(variable, Some(format!("PROSCENIUM_{}", flag.replace('-', "_").to_uppercase()).as_str()));
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_a_unit_and_are_bounded() {
        let check = |text: &str, expected: Result<u64, &str>| {
            assert_eq!(
                size(text, KIB, 16 * MIB).map_err(|why| why.contains(expected.unwrap_err())),
                expected.map_err(|_| true),
                "{text}"
            );
        };
        check("4096", Ok(4096));
        check("32KiB", Ok(32 * KIB));
        check("1 mib", Ok(MIB));
        check("1023", Err("1KiB to 16MiB"));
        check("1GiB", Err("out of bounds"));
        check("99999999999999999999GiB", Err("no size"));
        check("18446744073709551615GiB", Err("out of bounds"));
        check("12parsecs", Err("no unit"));
        check("-1", Err("no size"));
        check("", Err("no size"));
    }

    #[test]
    fn an_address_that_others_can_reach_is_refused_with_the_remedy() {
        let check = |arguments: &[&str], address: &str, admitted: bool| {
            let answer = config(arguments).unwrap().admits(address.parse().unwrap());
            assert_eq!(answer.is_ok(), admitted, "{address}");
            assert!(answer.is_ok() || answer.unwrap_err().to_string().contains("--insecure"));
        };
        check(&[], "127.0.0.1:0", true);
        check(&[], "[::1]:0", true);
        check(&[], "[::ffff:127.0.0.1]:0", true);
        check(&[], "0.0.0.0:0", false);
        check(&[], "[::]:0", false);
        check(&[], "192.168.1.7:0", false);
        check(&["--insecure"], "0.0.0.0:0", true);
        check(&["--auth-key", "key"], "0.0.0.0:0", true);
        check(&["--auth-jwks", "keys.json"], "[::]:0", true);
        check(&["--auth-revoked", "names"], "0.0.0.0:0", false);
    }

    #[test]
    fn a_collector_is_an_address_and_refused_by_a_binary_that_has_nothing_for_it() {
        for (address, taken) in [
            ("http://127.0.0.1:4318/", Some("http://127.0.0.1:4318")),
            ("https://collector.example/otlp", Some("https://collector.example/otlp")),
            ("127.0.0.1:4318", None),
            ("grpc://127.0.0.1:4317", None),
            ("/v1/traces", None),
            ("http://collector.example?key=1", None),
        ] {
            match (collector(address, true), taken) {
                (Ok(address), Some(taken)) => assert_eq!(address, taken),
                (Err(why), None) => assert!(why.contains("http://127.0.0.1:4318"), "{why}"),
                (got, _) => panic!("{address}: {got:?}"),
            }
            assert!(collector(address, false).unwrap_err().contains("--features otlp"));
        }
        let given = config(&["--otlp-endpoint", "http://127.0.0.1:4318"]);
        assert_eq!(given.is_ok(), cfg!(feature = "otlp"));
        assert_eq!(config(&[]).unwrap().otlp_endpoint, None);
    }

    #[test]
    fn a_certificate_and_its_key_come_together() {
        assert!(config(&["--tls-cert", "c.pem"]).is_err() && config(&["--tls-key", "k.pem"]).is_err());
        let files = config(&["--tls-cert", "c.pem", "--tls-key", "k.pem"]).unwrap().tls().expect("both are there");
        assert_eq!((files.cert, files.key), ("c.pem".into(), "k.pem".into()));
        assert!(config(&[]).unwrap().tls().is_none());
    }

    #[test]
    fn a_value_out_of_bounds_is_refused_where_it_is_given() {
        for arguments in [
            ["--depth-max", "121"],
            ["--workers", "0"],
            ["--drain-ms", "10001"],
            ["--sync", "sometimes"],
            ["--publish-burst", "9"],
        ] {
            assert!(config(&arguments).is_err(), "{arguments:?}");
        }
    }
}

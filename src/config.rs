//! The configuration of `proscenium serve`: names, units, defaults and ranges.
//!
//! Each flag `--some-name` is also the environment variable `PROSCENIUM_SOME_NAME`, and the key `some-name` of the file of
//! `--config`; the flag wins over the variable, and both over the file. clap checks values
//! as it parses them, so every [`Config`] is within its ranges. `main` reads the command line and the environment.

pub mod file;
mod parse;
#[cfg(test)]
mod tests;

use crate::auth::claim_map::{ClaimMap, ClaimMapping};
use crate::auth::provider::{ProviderConfig, ProviderUrl, SignIn, SignInToken};
use crate::auth::proxy::{ProxyClaim, ProxyConfig, parse_header};
use crate::auth::{AuthConfig, AuthConfigError};
#[cfg(feature = "cluster")]
use crate::cluster::ClusterOptions;
use crate::connect::entry::{AgentEntry, EntryError, ReadVariable};
use crate::environment::Environment;
use crate::feed::FeedConfig;
use crate::guard::Policy;
use crate::ingest::{IngestLimits, OwnerQuotas};
use crate::log::StoreError;
use crate::log::archive::{self, Archive};
use crate::log::embedded::Sync;
#[cfg(feature = "cluster")]
use crate::log::journal::jetstream::StreamConnection;
use crate::model::{AgentId, Audience};
use crate::notify::subscription::SUBSCRIPTIONS_RECEIVER;
use crate::notify::webhook::Webhook;
use crate::record::signing::{KEY_FILE, SigningKey};
use crate::retention_rules::RetentionRules;
use crate::serve::access::origin::{Hosts, Origins, parse_origin};
use crate::serve::access::quota::RateLimit;
use crate::serve::maintenance::disk::DiskReserve;
use crate::serve::maintenance::settle::StalenessLimits;
use crate::serve::transport::tls::Files;
use crate::serve::{KeepAlive, Limits};
#[cfg(feature = "otlp")]
use crate::traces::{Collector, parse_headers};
use crate::waits::{WaitRules, parse_duration};
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use file::FileError;
#[cfg(feature = "otlp")]
use http::HeaderMap;
use http::HeaderName;
use parse::{
    advertised_url, audience, cluster_name, cluster_urls, collector_url, public_url, push_host, sign_in_parameter, size,
    traces_url,
};
use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// The configuration of a server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Address")]
pub struct Config {
    /// TOML file of flags by their names, and of `[[agents]]`, `[[webhooks]]`, `[[waits]]` and `[[retention]]`. A flag
    /// wins over its variable, and both over the file.
    #[arg(id = file::CONFIG, long = "config", env = "PROSCENIUM_CONFIG", value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Address to listen on. Port 0 picks a free port, which the first line on standard output names.
    #[arg(long, env = "PROSCENIUM_LISTEN", value_name = "HOST:PORT", default_value = DEFAULT_LISTEN)]
    pub listen: String,
    /// Allow an address other than loopback without authentication.
    #[arg(long, env = "PROSCENIUM_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,
    /// TLS certificate chain as PEM, the server's own certificate first. The server reloads changed files within
    /// seconds, or at once on SIGHUP.
    #[arg(long, env = "PROSCENIUM_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key as unencrypted PEM.
    #[arg(long, env = "PROSCENIUM_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Require tokens, signed by this key: a secret of at least 32 bytes (HS256), or a public Ed25519 (EdDSA), RSA
    /// (RS256) or P-256 key (ES256) as PEM.
    #[arg(long, env = "PROSCENIUM_AUTH_KEY", value_name = "FILE", help_heading = "Access")]
    pub auth_key: Option<PathBuf>,
    /// Require tokens, signed by a key of this JSON Web Key Set: a file, or an `https://` address. The server reloads a
    /// changed file, and fetches an address every 10 minutes and for an unknown `kid`. Removing a key ends what is open
    /// under its tokens.
    #[arg(long, env = "PROSCENIUM_AUTH_JWKS", value_name = "FILE|URL", help_heading = "Access")]
    pub auth_jwks: Option<KeySetPlace>,
    /// Revoked tokens: one `jti` or `sub` per line. The server reloads a changed file.
    #[arg(long, env = "PROSCENIUM_AUTH_REVOKED", value_name = "FILE", help_heading = "Access")]
    pub auth_revoked: Option<PathBuf>,
    /// Service name that a token's `aud` must contain, if the token has one.
    #[arg(long, env = "PROSCENIUM_AUTH_AUDIENCE", value_name = "NAME", default_value = "proscenium", help_heading = "Access")]
    pub auth_audience: String,
    /// Required `iss` of a token. Default: any. Without --auth-key and --auth-jwks it is the `https://` address of an
    /// identity provider, whose keys the server discovers.
    #[arg(long, env = "PROSCENIUM_AUTH_ISSUER", value_name = "NAME|URL", help_heading = "Access")]
    pub auth_issuer: Option<String>,
    /// Rights for the tokens of an identity provider, as CLAIM=VALUE:MEMBER=VALUE,…, such as
    /// `groups=ops:audience=internal,can=read+control`, or for all as `owner={org}`. Repeatable, or one a line.
    #[arg(long, env = "PROSCENIUM_AUTH_CLAIM", value_name = "MAPPING", value_delimiter = '\n', help_heading = "Access")]
    pub auth_claim: Vec<ClaimMapping>,
    /// Header in which an authenticating proxy names the user. The proxy proves itself by the secret in
    /// `x-proscenium-proxy-secret`.
    #[arg(long, env = "PROSCENIUM_AUTH_PROXY_HEADER", value_name = "NAME", requires = "auth_proxy_secret",
          help_heading = "Access", value_parser = parse_header)]
    pub auth_proxy_header: Option<HeaderName>,
    /// The proxy's secret, of at least 32 bytes. The server reloads a changed file.
    #[arg(
        long,
        env = "PROSCENIUM_AUTH_PROXY_SECRET",
        value_name = "FILE",
        requires = "auth_proxy_header",
        help_heading = "Access"
    )]
    pub auth_proxy_secret: Option<PathBuf>,
    /// Header of the proxy that becomes a claim for --auth-claim, as CLAIM=HEADER. Repeatable, or comma-separated.
    /// Default: `groups`, `email` and `preferred_username` from the `x-forwarded-` headers of these names.
    #[arg(
        long,
        env = "PROSCENIUM_AUTH_PROXY_CLAIM",
        value_name = "CLAIM",
        value_delimiter = ',',
        requires = "auth_proxy_header",
        help_heading = "Access"
    )]
    pub auth_proxy_claim: Vec<ProxyClaim>,
    /// Client id of the page at the identity provider of --auth-issuer. The page then signs people in there, by the
    /// authorization code flow with PKCE, as a public client with the redirect URI `https://HOST/`.
    #[arg(long, env = "PROSCENIUM_SIGN_IN_CLIENT_ID", value_name = "ID", requires = "auth_issuer", help_heading = "Access")]
    pub sign_in_client_id: Option<String>,
    /// Scopes that the page requests. Add `offline_access` where the provider gives refresh tokens only with it.
    #[arg(
        long,
        env = "PROSCENIUM_SIGN_IN_SCOPE",
        value_name = "SCOPES",
        default_value = "openid profile",
        help_heading = "Access"
    )]
    pub sign_in_scope: String,
    /// Which of the provider's tokens the page sends to the server. It must be a JWT; set --auth-audience to its `aud`.
    #[arg(long, env = "PROSCENIUM_SIGN_IN_TOKEN", value_enum, default_value_t = SignInToken::Access, help_heading = "Access")]
    pub sign_in_token: SignInToken,
    /// Further parameter of the sign-in, as NAME=VALUE, such as `audience=https://agents.example` for Auth0, or
    /// `resource=…`. Repeatable, or one a line.
    #[arg(long, env = "PROSCENIUM_SIGN_IN_PARAMETER", value_name = "PARAMETER", value_delimiter = '\n',
          requires = "sign_in_client_id", help_heading = "Access", value_parser = sign_in_parameter)]
    pub sign_in_parameter: Vec<(Box<str>, Box<str>)>,
    /// Origin whose pages may send requests, besides the server's own, such as `https://app.example`. Repeatable, or
    /// comma-separated.
    #[arg(long, env = "PROSCENIUM_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', help_heading = "Access",
          value_parser = |text: &str| parse_origin(text).map(|_| text.to_owned()))]
    pub cors_origin: Vec<String>,
    /// Origin whose pages may embed the elements of `/embed.js`, and show the page in a frame, such as
    /// `https://app.example`. Implies --cors-origin for it. Repeatable, or comma-separated.
    #[arg(long, env = "PROSCENIUM_EMBED_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', help_heading = "Access",
          value_parser = |text: &str| parse_origin(text).map(|_| text.to_owned()))]
    pub embed_origin: Vec<String>,
    /// Address at which people open the page, such as `https://agents.example.com/`, for links in messages and in shared
    /// links. Default: links are relative.
    #[arg(long, env = "PROSCENIUM_PUBLIC_URL", value_name = "URL", help_heading = "Access", value_parser = public_url)]
    pub public_url: Option<reqwest::Url>,
    /// Host of a push service that browsers may subscribe at, `host` or `host:port`, besides those of Chromium, Firefox,
    /// Safari and Edge. It may be private, and may take push notifications of A2A. Repeatable, or comma-separated.
    #[arg(long, env = "PROSCENIUM_PUSH_HOST", value_name = "HOST", value_delimiter = ',', help_heading = "Access", value_parser = push_host)]
    pub push_host: Vec<Box<str>>,
    /// Request header that pages of --cors-origin may send, besides those of the API and of common tracing libraries.
    /// Repeatable, or comma-separated.
    #[arg(long, env = "PROSCENIUM_CORS_HEADER", value_name = "NAME", value_delimiter = ',', help_heading = "Access")]
    pub cors_header: Vec<HeaderName>,

    /// Agent to list for clients, present or not. Repeatable, or comma-separated. The list always has `default`, agents
    /// that wait for controls, and agents of recent runs.
    #[arg(long = "agent", env = "PROSCENIUM_AGENT", value_name = "NAME", value_delimiter = ',', help_heading = "Clients",
          value_parser = AgentId::new)]
    pub agents: Vec<AgentId>,

    /// Agent to connect, as NAME=PROTOCOL:TARGET, such as `support=ag-ui:http://127.0.0.1:8000/agent`. The server calls
    /// it for each message and stores what it streams. Repeatable.
    #[arg(long, env = "PROSCENIUM_CONNECT", value_name = "AGENT", help_heading = "Agents")]
    pub connect: Vec<String>,
    /// TOML file of agents to connect, one table for each, with credentials and limits.
    #[arg(long, env = "PROSCENIUM_CONNECT_FILE", value_name = "FILE", help_heading = "Agents")]
    pub connect_file: Option<PathBuf>,

    /// Where to store logs: on disk in --data-dir, or in memory until the process ends.
    #[arg(long, env = "PROSCENIUM_STORE", value_enum, default_value_t = StoreKind::Embedded, help_heading = "Storage")]
    pub store: StoreKind,
    /// Directory of the embedded store. The server creates it. One process may use it at a time.
    #[arg(long, env = "PROSCENIUM_DATA_DIR", value_name = "DIR", default_value = "./data", help_heading = "Storage")]
    pub data_dir: PathBuf,
    /// Ed25519 key that signs heads of logs and exports with proofs, as PKCS#8 PEM. The server makes a missing file, but
    /// not in a cluster, whose nodes share one key. Default: `signing-key.pem` in --data-dir; with `--store memory`, a
    /// key of this process.
    #[arg(long, env = "PROSCENIUM_SIGNING_KEY", value_name = "FILE", help_heading = "Storage")]
    pub signing_key: Option<PathBuf>,
    /// When to sync writes to disk: before each answer, every --sync-interval-ms, or when the operating system does.
    /// Only `always` keeps acknowledged facts through a power failure.
    #[arg(long, env = "PROSCENIUM_SYNC", value_enum, default_value_t = SyncMode::Always, help_heading = "Storage")]
    pub sync: SyncMode,
    /// Interval of `--sync interval`, in milliseconds: 1 to 60000.
    #[arg(long, env = "PROSCENIUM_SYNC_INTERVAL_MS", value_name = "MS", default_value_t = 100, help_heading = "Storage",
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub sync_interval_ms: u64,

    /// Time from an ended run's last fact to its compaction, in seconds: 1 to 3153600000. Compaction removes
    /// diagnostics and facts that mattered only while the run was live; its final activities stay the same. Default:
    /// never.
    #[arg(long, env = "PROSCENIUM_COMPACT_AFTER", value_name = "SECONDS", help_heading = "Storage",
          value_parser = clap::value_parser!(u64).range(1..=3_153_600_000))]
    pub compact_after: Option<u64>,

    /// Object storage for the envelopes of old runs: the address of a directory (file:), of S3 (s3:), Google Cloud Storage
    /// (gs:) or Azure (az:), with the credentials of the provider's environment variables. Needed as long as one run is
    /// archived.
    #[arg(long, env = "PROSCENIUM_ARCHIVE_TO", value_name = "URL", help_heading = "Storage")]
    pub archive_to: Option<String>,

    /// Time from an ended run's last fact to its archiving: 90s, 15m, 24h, 30d or seconds; at least 1. Default: never.
    #[arg(long, env = "PROSCENIUM_ARCHIVE_AFTER", value_name = "TIME", help_heading = "Storage", requires = "archive_to",
          value_parser = parse_duration)]
    pub archive_after: Option<Duration>,

    /// Bytes on this machine of archived runs that were read lately: 0 to 1024GiB. The run that is being read may have more.
    #[arg(long, env = "PROSCENIUM_ARCHIVE_CACHE_BYTES", value_name = "SIZE", default_value = "1GiB", help_heading = "Storage",
          value_parser = |text: &str| size(text, 0, 1024 * GIB))]
    pub archive_cache_bytes: u64,

    /// Time from an erasure until its bytes have left the files of the store, in seconds: 2 to 31536000. The server
    /// rewrites its tables at most once in half of it, if anything was erased.
    #[arg(long, env = "PROSCENIUM_ERASE_WITHIN", value_name = "SECONDS", default_value_t = 86_400, help_heading = "Storage",
          value_parser = clap::value_parser!(u64).range(2..=31_536_000))]
    pub erase_within: u64,
    /// Free space to keep on the disk of --data-dir: 0 to 1024GiB. Below it the server answers writes with 507 and
    /// still serves reads.
    #[arg(long, env = "PROSCENIUM_DISK_RESERVE", value_name = "SIZE", default_value = "128MiB", help_heading = "Storage",
          value_parser = |text: &str| size(text, 0, 1024 * GIB))]
    pub disk_reserve: u64,
    /// Maximum number of runs, and of sessions with their own log: 1 to 100000000. Each takes some bytes of memory. A
    /// fact that would create one more gets 507.
    #[arg(long, env = "PROSCENIUM_RUNS_MAX", value_name = "COUNT", default_value_t = 1_000_000, help_heading = "Storage",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub runs_max: u64,

    /// Maximum size of a tool's input or output, or of a text in a state, inside an envelope: 1KiB to 16MiB. Larger ones
    /// move to a blob. Texts of messages stay up to 4MiB.
    #[arg(long, env = "PROSCENIUM_INLINE_MAX", value_name = "SIZE", default_value = "32KiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, 16 * MIB))]
    pub inline_max: u64,
    /// Maximum size of a fact, and of a line of a streamed body: 1KiB to 256MiB.
    #[arg(long, env = "PROSCENIUM_FACT_MAX", value_name = "SIZE", default_value = "16MiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, 256 * MIB))]
    pub fact_max: u64,
    /// Maximum size of a JSON body: 1KiB to 1GiB. Streamed bodies (application/x-ndjson) have no limit.
    #[arg(long, env = "PROSCENIUM_BODY_MAX", value_name = "SIZE", default_value = "32MiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, GIB))]
    pub body_max: u64,
    // The JSON parser fails at 128 levels; the body's own array is one of them.
    /// Maximum nesting depth of a fact's JSON: 4 to 120 levels.
    #[arg(long, env = "PROSCENIUM_DEPTH_MAX", value_name = "LEVELS", default_value_t = 64, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(4..=120))]
    pub depth_max: u64,
    /// Maximum size of a request's head: 1KiB to 1MiB.
    #[arg(long, env = "PROSCENIUM_HEAD_MAX", value_name = "SIZE", default_value = "16KiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, MIB))]
    pub head_max: u64,
    /// Time to receive a request's head, in milliseconds: 100 to 600000.
    #[arg(long, env = "PROSCENIUM_HEAD_TIME_MS", value_name = "MS", default_value_t = 10_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub head_time_ms: u64,
    /// Maximum time of a TLS handshake, in milliseconds: 100 to 600000.
    #[arg(long, env = "PROSCENIUM_HANDSHAKE_TIME_MS", value_name = "MS", default_value_t = 10_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub handshake_time_ms: u64,
    /// Maximum concurrent requests and streams of one HTTP/2 connection: 1 to 65536. Further ones wait, or are refused
    /// for the client to retry.
    #[arg(long, env = "PROSCENIUM_STREAMS_MAX", value_name = "COUNT", default_value_t = 256, help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub streams_max: u32,
    /// Time to receive a JSON body, in milliseconds: 100 to 600000. Each 16KiB of the body adds one second.
    #[arg(long, env = "PROSCENIUM_BODY_TIME_MS", value_name = "MS", default_value_t = 10_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub body_time_ms: u64,
    /// Maximum silence of a streamed body, in milliseconds: 100 to 86400000. A blank line counts as activity.
    #[arg(long, env = "PROSCENIUM_LINE_TIME_MS", value_name = "MS", default_value_t = 600_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(100..=86_400_000))]
    pub line_time_ms: u64,
    /// Maximum publish rate of one producer, in facts per second: 1 to 1000000. Above it a JSON body gets 429, and a
    /// streamed body is read more slowly. A producer is its token's sub; without authentication its Producer-Id, else
    /// its run. Default: unlimited.
    #[arg(long, env = "PROSCENIUM_PUBLISH_RATE", value_name = "FACTS", help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub publish_rate: Option<u32>,
    /// Facts that a producer may publish at once after a pause: 1 to 10000000. Default: one second's worth.
    #[arg(long, env = "PROSCENIUM_PUBLISH_BURST", value_name = "FACTS", requires = "publish_rate", help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub publish_burst: Option<u32>,
    /// Maximum number of sessions of one owner: 1 to 100000000. One more gets 429. Default: unlimited.
    #[arg(long, env = "PROSCENIUM_OWNER_SESSIONS_MAX", value_name = "COUNT", help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub owner_sessions_max: Option<u64>,
    /// Maximum size of the envelopes and bodies of one owner, before compression: 1KiB to 1048576GiB. Above it, facts and
    /// messages get 429. Default: unlimited.
    #[arg(long, env = "PROSCENIUM_OWNER_BYTES_MAX", value_name = "SIZE", help_heading = "Limits",
          value_parser = |text: &str| size(text, KIB, 1_048_576 * GIB))]
    pub owner_bytes_max: Option<u64>,
    /// Maximum number of runs of one owner at work, and of messages that wait for an agent, together: 1 to 1000000. One
    /// more message gets 429. Default: unlimited.
    #[arg(long, env = "PROSCENIUM_OWNER_TURNS_MAX", value_name = "COUNT", help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub owner_turns_max: Option<u64>,
    /// Maximum publish rate of one owner, in facts per second: 1 to 1000000. Above it a JSON body gets 429, and a
    /// streamed body is read more slowly. Default: unlimited.
    #[arg(long, env = "PROSCENIUM_OWNER_PUBLISH_RATE", value_name = "FACTS", help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub owner_publish_rate: Option<u32>,
    /// Maximum memory of facts in flight to the store, counted before parsing: 1MiB to 64GiB. Above it producers wait.
    #[arg(long, env = "PROSCENIUM_IN_FLIGHT_MAX", value_name = "SIZE", default_value = "128MiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, MIB, 64 * GIB))]
    pub in_flight_max: u64,
    /// How long producers wait before the server answers 503, in milliseconds: 0 to 600000.
    #[arg(long, env = "PROSCENIUM_BUSY_AFTER_MS", value_name = "MS", default_value_t = 10_000, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub busy_after_ms: u64,
    /// Memory in flight above which the server drops diagnostics and metrics, and counts them in the answer: 0 to
    /// 64GiB.
    #[arg(long, env = "PROSCENIUM_SHED_ABOVE", value_name = "SIZE", default_value = "64MiB", help_heading = "Limits",
          value_parser = |text: &str| size(text, 0, 64 * GIB))]
    pub shed_above: u64,
    /// Maximum concurrent connections of one client (an IPv4 address, or an IPv6 /64): 1 to 1000000. One more gets 429.
    /// Behind a proxy all connections are the proxy's; let the proxy limit clients then.
    #[arg(long, env = "PROSCENIUM_CONNECTIONS_PER_CLIENT_MAX", value_name = "COUNT", default_value_t = 65_536,
          help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub connections_per_client_max: u64,
    /// Maximum of open streams, sockets, streamed bodies and claims of one `sub`: 1 to 1000000. One more gets 429.
    #[arg(long, env = "PROSCENIUM_CONNECTIONS_PER_TOKEN_MAX", value_name = "COUNT", default_value_t = 65_536,
          help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub connections_per_token_max: u64,
    /// Maximum concurrent connections: 1 to 1000000. One more gets 503.
    #[arg(long, env = "PROSCENIUM_CONNECTIONS_MAX", value_name = "COUNT", default_value_t = 65_536, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub connections_max: u64,
    /// Maximum concurrent subscriptions of one WebSocket: 1 to 65536. One more is refused; the others continue.
    #[arg(long, env = "PROSCENIUM_SUBSCRIPTIONS_MAX", value_name = "COUNT", default_value_t = 256, help_heading = "Limits",
          value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub subscriptions_max: u64,

    /// Heartbeat interval of a quiet stream, in milliseconds: 10 to 60000. Proxies often cut idle connections after 60
    /// s. A WebSocket closes after two unanswered pings.
    #[arg(long, env = "PROSCENIUM_HEARTBEAT_MS", value_name = "MS", default_value_t = 15_000, help_heading = "Streams",
          value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub heartbeat_ms: u64,
    /// Time over which a stopping server ends its streams, each at a random moment, in milliseconds: 0 to 10000.
    #[arg(long, env = "PROSCENIUM_DRAIN_MS", value_name = "MS", default_value_t = 2000, help_heading = "Streams",
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub drain_ms: u64,
    /// Minimum time between two writes to the readers of one run, in milliseconds: 0 to 1000.
    #[arg(long, env = "PROSCENIUM_TICK_MS", value_name = "MS", default_value_t = 8, help_heading = "Streams",
          value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub tick_ms: u64,
    /// Buffer of the newest frames that each run with readers keeps per audience: 64KiB to 1GiB.
    #[arg(long, env = "PROSCENIUM_RING_MAX", value_name = "SIZE", default_value = "256KiB", help_heading = "Streams",
          value_parser = |text: &str| size(text, 64 * KIB, GIB))]
    pub ring_max: u64,
    /// Cache of older frames, shared by all readers that catch up: 1MiB to 64GiB.
    #[arg(long, env = "PROSCENIUM_PAGES_MAX", value_name = "SIZE", default_value = "64MiB", help_heading = "Streams",
          value_parser = |text: &str| size(text, MIB, 64 * GIB))]
    pub pages_max: u64,

    /// Be a node of a cluster, whose commits lie in a stream of these NATS servers: URLs, comma-separated. Needs
    /// --cluster-name and --signing-key.
    #[arg(long, env = "PROSCENIUM_CLUSTER", value_name = "URLS", requires_all = ["cluster_name", "signing_key"],
          help_heading = "Cluster",
          value_parser = |text: &str| cluster_urls(text, cfg!(feature = "cluster")))]
    pub cluster: Option<String>,
    /// Name of the cluster: 1 to 32 letters, digits, `-` and `_`. All nodes give the same.
    #[arg(long, env = "PROSCENIUM_CLUSTER_NAME", value_name = "NAME", requires = "cluster", help_heading = "Cluster",
          value_parser = cluster_name)]
    pub cluster_name: Option<String>,
    /// URL at which other nodes reach this one, such as `http://10.0.0.5:8787`. Default: the address of --listen, if it
    /// is a concrete one.
    #[arg(long, env = "PROSCENIUM_ADVERTISE", value_name = "URL", requires = "cluster", help_heading = "Cluster",
          value_parser = advertised_url)]
    pub advertise: Option<String>,
    /// Credentials of a NATS user.
    #[arg(long, env = "PROSCENIUM_CLUSTER_CREDS", value_name = "FILE", requires = "cluster", help_heading = "Cluster")]
    pub cluster_creds: Option<PathBuf>,
    /// Accept a stream with a single replica. The loss of its NATS server then loses acknowledged facts.
    #[arg(long, env = "PROSCENIUM_CLUSTER_ALLOW_R1", requires = "cluster", value_parser = BoolishValueParser::new(),
          help_heading = "Cluster")]
    pub cluster_allow_r1: bool,
    /// Commits after which a node writes a snapshot and shortens the stream: 100 to 1000000000.
    #[arg(long, env = "PROSCENIUM_CLUSTER_SNAPSHOT_COMMITS", value_name = "COUNT", default_value_t = 200_000,
          help_heading = "Cluster", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    pub cluster_snapshot_commits: u64,

    /// Silence after which an active run is stale, in seconds: 1 to 31536000. Any delivery counts as activity, even an
    /// empty array, and so does an open streamed body.
    #[arg(long, env = "PROSCENIUM_STALE_AFTER", value_name = "SECONDS", default_value_t = 60, help_heading = "Runs",
          value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub stale_after: u64,
    /// Silence after which the server settles an active run, in seconds: 1 to 31536000. Settling closes everything open
    /// and ends the run as failed. A later fact reopens it. A run that waits for a decision never settles by itself.
    #[arg(long, env = "PROSCENIUM_SETTLE_AFTER", value_name = "SECONDS", default_value_t = 300, help_heading = "Runs",
          value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub settle_after: u64,

    /// Number of server threads: 1 to 256. With 1, everything but the store runs on a single thread.
    #[arg(long, env = "PROSCENIUM_WORKERS", value_name = "COUNT", default_value_t = 1, help_heading = "Process",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Log filter for standard error: a level, or levels by module as in `info,proscenium::feed=debug`.
    #[arg(
        long,
        env = "PROSCENIUM_LOG",
        value_name = "FILTER",
        default_value = "info,fjall=warn,lsm_tree=warn,async_nats=warn",
        help_heading = "Process"
    )]
    pub log: String,
    /// Log format.
    #[arg(long, env = "PROSCENIUM_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, help_heading = "Process")]
    pub log_format: LogFormat,
    /// Trace collector, such as `http://127.0.0.1:4318`. Each request becomes a span, sent to its `/v1/traces` by OTLP
    /// (protobuf over HTTP). Default: none.
    #[arg(long, env = "PROSCENIUM_OTLP_ENDPOINT", value_name = "URL", help_heading = "Process",
          value_parser = |text: &str| collector_url(text, cfg!(feature = "otlp")))]
    pub otlp_endpoint: Option<String>,
    /// Collector that gets each run as a trace when it ends, such as `http://127.0.0.1:4318`, by OTLP (protobuf over HTTP)
    /// at its `/v1/traces`, with OpenTelemetry's names for generative AI. Default: none.
    #[arg(long, env = "PROSCENIUM_GENAI_ENDPOINT", value_name = "URL", help_heading = "Process",
          value_parser = |text: &str| traces_url(text, cfg!(feature = "otlp")))]
    pub genai_endpoint: Option<String>,
    /// Headers for that collector, as in `OTEL_EXPORTER_OTLP_HEADERS`: NAME=VALUE with commas between, values
    /// percent-encoded. Better in the variable, or in the file as `{ file = … }`, than on a command line.
    #[arg(
        long,
        env = "PROSCENIUM_GENAI_HEADERS",
        value_name = "HEADERS",
        help_heading = "Process",
        hide_env_values = true,
        requires = "genai_endpoint"
    )]
    pub genai_headers: Option<HeadersText>,
    /// Audience whose view of texts, arguments and results the traces have: user, dashboard or internal. Default: none, so
    /// that traces have no content.
    #[arg(long, env = "PROSCENIUM_GENAI_CONTENT", value_name = "AUDIENCE", help_heading = "Process",
          requires = "genai_endpoint", value_parser = audience)]
    pub genai_content: Option<Audience>,
}

/// The text of `--genai-headers`, which holds credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct HeadersText(String);

impl fmt::Debug for HeadersText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeadersText(…)")
    }
}

impl From<String> for HeadersText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Default address of the server, and of the clients in this crate.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8787";

/// Where a key set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySetPlace {
    File(PathBuf),
    Address(ProviderUrl),
}

impl FromStr for KeySetPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains("://") {
            true => text.parse().map(Self::Address),
            false => Ok(Self::File(text.into())),
        }
    }
}

/// The kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    Embedded,
    Memory,
}

/// When writes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SyncMode {
    Always,
    Interval,
    Never,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// The server refuses to listen on an address that others can reach without authentication.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to listen on {0} without authentication: any client that reaches this address could read and write every run. \
     Require tokens (--auth-key, --auth-jwks or --auth-issuer), listen on loopback ({DEFAULT_LISTEN}) behind an authenticating proxy (name it with --cors-origin), or pass --insecure if you trust that network"
)]
pub struct NotLoopback(pub SocketAddr);

/// Other nodes cannot reach the address that a node listens on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("other nodes cannot reach {0}; give the URL at which they reach this one, as --advertise http://10.0.0.5:8787")]
pub struct NoAdvertise(pub SocketAddr);

impl Config {
    /// Checks that the server may listen on this address.
    ///
    /// # Errors
    /// [`NotLoopback`] for an address that others can reach, without authentication and without `--insecure`.
    pub fn check_listen_address(&self, address: SocketAddr) -> Result<(), NotLoopback> {
        let authenticates =
            self.auth_key.is_some() || self.auth_jwks.is_some() || self.auth_issuer.is_some() || self.auth_proxy_header.is_some();
        if address.ip().to_canonical().is_loopback() || authenticates || self.insecure {
            Ok(())
        } else {
            Err(NotLoopback(address))
        }
    }

    /// Who may use the server: keys, the claims that tokens must carry, and the proxy that names users.
    ///
    /// # Errors
    /// [`AuthConfigError`] for an issuer that has no address where its keys must be discovered.
    pub fn auth(&self) -> Result<AuthConfig, AuthConfigError> {
        let (jwks, key_set) = match &self.auth_jwks {
            Some(KeySetPlace::File(file)) => (Some(file.clone()), None),
            Some(KeySetPlace::Address(address)) => (None, Some(address.clone())),
            None => (None, None),
        };
        let has_other_keys = self.auth_key.is_some() || self.auth_jwks.is_some();
        let is_discovered = !has_other_keys || self.sign_in_client_id.is_some();
        let issuer = self.auth_issuer.as_deref().filter(|_| is_discovered).map(str::parse::<ProviderUrl>).transpose();
        let issuer = issuer.map_err(|why| {
            let remedy =
                "It is where the server discovers the issuer's keys, without --auth-key and --auth-jwks, and its sign-in.";
            AuthConfigError::of_flag("--auth-issuer", format!("{why}. {remedy}"))
        })?;
        let has_other_keys = has_other_keys && key_set.is_none();
        let is_used = key_set.is_some() || issuer.is_some();
        let provider = is_used.then_some(ProviderConfig { key_set, issuer, has_other_keys });
        let proxy = self.auth_proxy_header.clone().zip(self.auth_proxy_secret.clone());
        Ok(AuthConfig {
            key: self.auth_key.clone(),
            jwks,
            provider,
            sign_in: self.sign_in_client_id.as_deref().map(|client_id| SignIn {
                client_id: client_id.into(),
                scope: self.sign_in_scope.as_str().into(),
                token: self.sign_in_token,
                parameters: self.sign_in_parameter.clone(),
            }),
            mappings: ClaimMap(self.auth_claim.clone()),
            proxy: proxy.map(|(header, secret)| ProxyConfig {
                header,
                secret,
                claims: if self.auth_proxy_claim.is_empty() { ProxyClaim::defaults() } else { self.auth_proxy_claim.clone() },
            }),
            revoked: self.auth_revoked.clone(),
            service: self.auth_audience.as_str().into(),
            issuer: self.auth_issuer.as_deref().map(Into::into),
        })
    }

    /// The origins whose pages may send requests.
    #[must_use]
    pub fn origins(&self) -> Origins {
        let origins = Origins::new(self.cors_origin.iter().map(String::as_str))
            .and_then(|origins| origins.with_embedders(self.embed_origin.iter().map(String::as_str)))
            .expect("clap validated each origin");
        origins.with_headers(&self.cors_header)
    }

    /// The host names that requests may use without authentication.
    #[must_use]
    pub fn hosts(&self) -> Hosts {
        if self.insecure { Hosts::Any } else { Hosts::of_listen(&self.listen) }
    }

    /// The agents to connect. `variable` reads the environment, where credentials may stand.
    ///
    /// # Errors
    /// [`EntryError`] for an entry that is not valid, and for two agents of one name.
    pub fn agents_to_connect(&self, variable: ReadVariable<'_>) -> Result<Vec<AgentEntry>, EntryError> {
        let mut entries = Vec::new();
        for flag in &self.connect {
            entries.push(AgentEntry::parse(flag, variable)?);
        }
        if let Some(file) = &self.connect_file {
            entries.extend(AgentEntry::read_file(file, variable)?);
        }
        if let Some(file) = &self.config_file {
            entries.extend(file::agents(file, variable)?);
        }
        let mut names = HashSet::new();
        match entries.iter().find(|entry| !names.insert(entry.name.clone())) {
            Some(twice) => Err(EntryError {
                at: format!("agent {}", twice.name),
                what: "it is connected twice; give each agent its own name".into(),
            }),
            None => Ok(entries),
        }
    }

    /// The webhooks of the configuration file. `variable` reads the environment, where their secrets may stand.
    ///
    /// # Errors
    /// [`FileError`] for a webhook that is not valid.
    pub fn webhooks(&self, variable: ReadVariable<'_>) -> Result<Vec<Webhook>, FileError> {
        self.config_file.as_deref().map_or_else(|| Ok(Vec::new()), |file| file::webhooks(file, variable))
    }

    /// The rules for actions that wait, which may name these webhooks.
    ///
    /// # Errors
    /// [`FileError`] that names the rule and its key.
    pub fn wait_rules(&self, webhooks: &[Webhook]) -> Result<WaitRules, FileError> {
        let has_keys = self.auth_key.is_some() || self.auth_jwks.is_some() || self.auth_issuer.is_some();
        let has_tokens = has_keys || self.auth_proxy_header.is_some();
        let is_receiver = |name: &str| name == SUBSCRIPTIONS_RECEIVER || webhooks.iter().any(|webhook| *webhook.id == *name);
        let waits = |file| file::waits(file, is_receiver, has_tokens);
        self.config_file.as_deref().map_or_else(|| Ok(WaitRules::default()), waits)
    }

    /// The rules of retention.
    ///
    /// # Errors
    /// [`FileError`] that names the rule, its line and its key.
    pub fn retention_rules(&self) -> Result<RetentionRules, FileError> {
        let rules = |file| Ok(file::retention(file, true)?.0);
        self.config_file.as_deref().map_or_else(|| Ok(RetentionRules::default()), rules)
    }

    /// The collector of traces, if configured.
    ///
    /// # Errors
    /// The flag, and why it cannot be used.
    #[cfg(feature = "otlp")]
    pub fn trace_collector(&self) -> Result<Option<Collector>, String> {
        let Some(endpoint) = &self.genai_endpoint else { return Ok(None) };
        let headers = self.genai_headers.as_ref().map_or_else(|| Ok(HeaderMap::new()), |text| parse_headers(&text.0));
        let headers = headers.map_err(|error| format!("--genai-headers: {error}"))?;
        Collector::new(endpoint, headers).map(Some).map_err(|error| format!("--genai-endpoint {endpoint}: {error}"))
    }

    /// The sync mode of the embedded store.
    #[must_use]
    pub const fn sync(&self) -> Sync {
        match self.sync {
            SyncMode::Always => Sync::Always,
            SyncMode::Interval => Sync::Interval(Duration::from_millis(self.sync_interval_ms)),
            SyncMode::Never => Sync::Never,
        }
    }

    /// The TLS files, if configured.
    #[must_use]
    pub fn tls(&self) -> Option<Files> {
        Some(Files { cert: self.tls_cert.clone()?, key: self.tls_key.clone()? })
    }

    /// The key that signs heads of logs and exports.
    ///
    /// # Errors
    /// The file, and why it cannot be used.
    pub fn open_signing_key(&self, environment: Environment) -> Result<SigningKey, String> {
        let default = || (self.store == StoreKind::Embedded).then(|| self.data_dir.join(KEY_FILE));
        match self.signing_key.clone().or_else(default) {
            // Each node would make a key of its own.
            Some(file) if self.cluster.is_some() => SigningKey::open(&file),
            Some(file) => SigningKey::open_or_create(&file, environment),
            None => Ok(SigningKey::generate(environment)),
        }
    }

    /// The time from an ended run's last fact to its compaction, if any.
    #[must_use]
    pub fn compact_after(&self) -> Option<Duration> {
        self.compact_after.map(Duration::from_secs)
    }

    /// The archive of a store in `dir`. `None`: the store is in memory. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// Why the address cannot be used.
    pub fn archive(&self, dir: Option<&Path>) -> Result<Archive, StoreError> {
        let failed = |why: &dyn std::fmt::Display| StoreError::failed("using --archive-to", why);
        match (&self.archive_to, dir) {
            (None, _) => Ok(Archive::none()),
            (Some(_), None) => Err(failed(&"a store in memory keeps no archived runs")),
            (Some(address), Some(dir)) => {
                let cache = dir.join(archive::CACHE_DIR);
                Archive::open(address, &cache, self.archive_cache_bytes).map_err(|error| failed(&error))
            }
        }
    }

    /// The time from an erasure until its bytes have left the files.
    #[must_use]
    pub const fn erase_within(&self) -> Duration {
        Duration::from_secs(self.erase_within)
    }

    /// The settings of the guard.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy { inline_bytes_max: to_usize(self.inline_max) }
    }

    /// The settings of the read path.
    #[must_use]
    pub fn sizes(&self) -> FeedConfig {
        let tick = Duration::from_millis(self.tick_ms);
        FeedConfig { tick, ring_bytes_max: to_usize(self.ring_max), pages_bytes_max: self.pages_max }
    }

    /// The limits on what clients may send.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            fact_bytes_max: to_usize(self.fact_max),
            body_bytes_max: to_usize(self.body_max),
            depth_max: to_usize(self.depth_max),
            head_bytes_max: to_usize(self.head_max),
            head_time_max: Duration::from_millis(self.head_time_ms),
            handshake_time_max: Duration::from_millis(self.handshake_time_ms),
            streams_max: self.streams_max,
            body_time_max: Duration::from_millis(self.body_time_ms),
            line_time_max: Duration::from_millis(self.line_time_ms),
            connections_max: to_usize(self.connections_max),
            connections_per_client_max: to_usize(self.connections_per_client_max),
            connections_per_token_max: to_usize(self.connections_per_token_max),
            subscriptions_max: to_usize(self.subscriptions_max),
            publish: self.publish_rate.map(|facts| RateLimit { facts, burst: self.publish_burst.unwrap_or(facts) }),
            publish_of_owner: self.owner_publish_rate.map(|facts| RateLimit { facts, burst: facts }),
            ingest: IngestLimits {
                in_flight_bytes_max: to_usize(self.in_flight_max),
                wait_max: Duration::from_millis(self.busy_after_ms),
                shed_bytes_min: to_usize(self.shed_above),
                logs_max: self.runs_max,
                quotas: OwnerQuotas {
                    sessions: self.owner_sessions_max,
                    bytes: self.owner_bytes_max,
                    turns: self.owner_turns_max,
                },
                ..IngestLimits::default()
            },
        }
    }

    /// The disk space that the server keeps free, for a store on disk.
    #[must_use]
    pub fn reserve(&self) -> Option<DiskReserve> {
        (self.store == StoreKind::Embedded).then(|| DiskReserve::of(&self.data_dir, self.disk_reserve))
    }

    /// What makes the server a node of a cluster; `address` is where it listens. `None` without `--cluster`.
    ///
    /// # Errors
    /// When the other nodes could not reach the address, and `--advertise` gives no better one.
    #[cfg(feature = "cluster")]
    pub fn cluster(
        &self,
        scheme: &str,
        address: SocketAddr,
        random: fn() -> u128,
    ) -> Result<Option<ClusterOptions>, NoAdvertise> {
        let (Some(urls), Some(name)) = (&self.cluster, &self.cluster_name) else { return Ok(None) };
        let url = match &self.advertise {
            Some(url) => url.clone(),
            None if address.ip().is_unspecified() => return Err(NoAdvertise(address)),
            None => format!("{scheme}://{address}"),
        };
        Ok(Some(ClusterOptions {
            connection: StreamConnection { urls: urls.clone(), credentials: self.cluster_creds.clone() },
            name: name.clone(),
            url,
            allows_one_replica: self.cluster_allow_r1,
            data_dir: self.data_dir.clone(),
            snapshot_commits: self.cluster_snapshot_commits,
            random: random() as u64,
            secret: format!("{:032x}{:032x}", random(), random()),
            is_fenced: true,
        }))
    }

    /// When silent runs become stale and are settled.
    #[must_use]
    pub const fn staleness_limits(&self) -> StalenessLimits {
        StalenessLimits {
            stale_after: Duration::from_secs(self.stale_after),
            settle_after: Duration::from_secs(self.settle_after),
        }
    }

    /// Heartbeat and drain of streams.
    #[must_use]
    pub const fn keep_alive(&self) -> KeepAlive {
        KeepAlive { heartbeat: Duration::from_millis(self.heartbeat_ms), drain: Duration::from_millis(self.drain_ms) }
    }
}

/// Converts a limit. One beyond this machine's address space means unlimited.
fn to_usize(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

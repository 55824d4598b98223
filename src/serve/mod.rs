//! The HTTP server.
//!
//! Each folder handles one concern, and its handlers call `ingest`, `feed` or `control`.
//!
//! This module decides nothing about order, durability or audience. Only [`transport`] knows whether this crate or
//! hyper carries a connection.
//!
//! | folder | its concern |
//! | --- | --- |
//! | [`contract`] | every address as a table: access rule, parameters, bodies and problems |
//! | [`http`] | reading requests and formatting answers |
//! | [`access`] | authorization, tickets, origins and quotas |
//! | [`telemetry`] | metrics, the access log and trace spans |
//! | [`api`] | the handlers of the server's own API |
//! | [`clients`] | the handlers of existing clients, in their own protocols |
//! | [`transport`] | connections, request heads and TLS |
//! | [`socket`] | WebSocket connections |
//! | [`mod@cluster`] | requests that another node must answer, or that this node cannot answer yet |
//! | [`maintenance`] | tasks that run beside the requests |
//! | [`mod@router`] | the handler of each address |

pub mod access;
pub mod acp;
pub mod api;
pub mod clients;
pub mod cluster;
pub mod contract;
pub mod http;
pub mod maintenance;
pub mod router;
pub mod socket;
pub mod stop_signal;
pub mod telemetry;
pub mod transport;

use crate::attachments::Attachments;
use crate::auth::Authenticator;
use crate::branches::Branches;
use crate::control::Controls;
use crate::encode::placeholders::Placeholders;
use crate::environment::Environment;
use crate::feed::{Feed, FeedConfig};
use crate::feedback::Feedback;
use crate::guard::Policy;
use crate::holds::Holds;
use crate::ingest::{Ingest, IngestLimits};
use crate::links::Links;
use crate::log::archive::Archive;
use crate::log::commit::{CommittedGroup, Logs};
use crate::log::{Storage, StoreError};
use crate::marks::Marks;
use crate::meter::Counter;
use crate::model::AgentId;
#[cfg(feature = "otlp")]
use crate::model::Audience;
use crate::notify::subscription::PushServices;
use crate::notify::webhook::Webhook;
use crate::notify::{Engine, Notifier, Reads};
use crate::record::signing::SigningKey;
use crate::retention_rules::RetentionRules;
use crate::search::{self, Search};
use crate::traces::TraceMeters;
#[cfg(feature = "otlp")]
use crate::traces::{Collector, Exporter, ExporterParts};
use crate::waits::WaitRules;
use access::origin::{Hosts, Origins};
use access::quota::{Client, ConnectionQuota, PublishLimits, RateLimit};
use api::backup::BACKUPS_MAX;
use api::documentation::Documentation;
use api::entry_cache::EntryCache;
use axum::Router;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use maintenance::archive::Archiver;
use maintenance::compact::Compactor;
use maintenance::controls::ControlMaintenance;
use maintenance::disk::{self, Disk, DiskReserve};
use maintenance::erase::Eraser;
use maintenance::purge::Purger;
use maintenance::retain::{Retainer, Retention};
use maintenance::settle::{Settler, StalenessLimits};
use maintenance::tasks::{TaskEnded, Tasks};
use parking_lot::Mutex;
use router::router;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stop_signal::StopSignal;
use telemetry::meters::Meters;
use telemetry::trace;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use transport::connection::Connections;
use transport::refusal;
use transport::tls::Tls;
use transport::writers::Writers;

/// Limits on what clients may send. Each has its own problem code.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum size of one fact, in bytes.
    pub fact_bytes_max: usize,
    /// Maximum size of one JSON body, in bytes.
    ///
    /// A streamed body has no limit; each line obeys [`Self::fact_bytes_max`].
    pub body_bytes_max: usize,
    /// Maximum nesting depth of objects and arrays.
    pub depth_max: usize,
    /// Maximum size of a request's head, in bytes, and the time to receive it.
    pub head_bytes_max: usize,
    pub head_time_max: Duration,
    /// Maximum time of a TLS handshake.
    pub handshake_time_max: Duration,
    /// Maximum concurrent requests and streams of one HTTP/2 connection.
    pub streams_max: u32,
    /// Time to receive a JSON body, plus one second for each [`BODY_BYTES_PER_SEC_MIN`] of it.
    pub body_time_max: Duration,
    /// Maximum time that a streamed body may send nothing, not even a blank line.
    pub line_time_max: Duration,
    /// Maximum concurrent connections, in total and per client.
    pub connections_max: usize,
    pub connections_per_client_max: usize,
    /// Maximum of open streams, sockets, streamed bodies and claims under the tokens of one `sub`.
    pub connections_per_token_max: usize,
    /// Maximum concurrent subscriptions of one WebSocket.
    pub subscriptions_max: usize,
    /// Rate limit of one producer. `None`: unlimited.
    pub publish: Option<RateLimit>,
    /// Rate limit of one owner. `None`: unlimited.
    pub publish_of_owner: Option<RateLimit>,
    /// Limits on data in flight to the store, and on the number of stored logs.
    pub ingest: IngestLimits,
}

/// Minimum rate of a JSON body after [`Limits::body_time_max`], in bytes per second.
pub const BODY_BYTES_PER_SEC_MIN: u64 = 16 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            fact_bytes_max: 16 * 1024 * 1024,
            body_bytes_max: 32 * 1024 * 1024,
            depth_max: 64,
            head_bytes_max: 16 * 1024,
            head_time_max: Duration::from_secs(10),
            handshake_time_max: Duration::from_secs(10),
            streams_max: 256,
            body_time_max: Duration::from_secs(10),
            line_time_max: Duration::from_mins(10),
            connections_max: 65_536,
            connections_per_client_max: 65_536,
            connections_per_token_max: 65_536,
            subscriptions_max: 256,
            publish: None,
            publish_of_owner: None,
            ingest: IngestLimits::default(),
        }
    }
}

/// Heartbeat and shutdown of streams.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlive {
    /// Interval of SSE comments from the first byte on, and of WebSocket pings.
    ///
    /// A WebSocket closes after two unanswered pings.
    pub heartbeat: Duration,
    /// Maximum time that streams stay open after the stop signal. Each ends at its own random moment.
    pub drain: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(15), drain: Duration::from_secs(2) }
    }
}

/// The state that all request handlers share.
pub struct App {
    /// Whether clients reach the server by TLS alone.
    pub is_https: bool,
    pub logs: Arc<Logs>,
    pub ingest: Arc<Ingest>,
    pub feed: Arc<Feed>,
    pub controls: Controls,
    pub notifier: Arc<Notifier>,
    pub trace_meters: Arc<TraceMeters>,
    pub limits: Limits,
    pub keep_alive: KeepAlive,
    pub environment: Environment,
    pub placeholders: Placeholders,
    pub meters: Arc<Meters>,
    pub disk: Disk,
    /// The backups that clients may read at once.
    pub backups: Arc<Semaphore>,
    /// Open connections, per client address.
    pub client_connections: Arc<ConnectionQuota<Client>>,
    /// Open streams, sockets, streamed bodies and claims, per `sub`.
    pub token_connections: Arc<ConnectionQuota<Box<str>>>,
    /// The limits on publish rates.
    pub publish_limits: PublishLimits,
    /// Agents that `/copilotkit/info` lists besides the agents that the server has seen.
    pub agents: Vec<AgentId>,
    /// Log lines that could not be written.
    lost_log_lines: Arc<Counter>,
    /// Connected agents whose address accepted no connection when it was asked last, or was not asked yet.
    pub absent_agents: Mutex<BTreeSet<AgentId>>,
    /// Connected agents whose programs say whether they take images, and whether they do. All others are called anyway.
    pub stated_images: Mutex<BTreeMap<AgentId, Arc<AtomicBool>>>,
    request_ids: trace::RequestIds,
    started: jiff::Timestamp,
    /// The share links.
    pub links: Arc<Links>,
    /// What each person has read and pinned.
    pub marks: Arc<Marks>,
    /// The files that people attach to messages.
    pub attachments: Attachments,
    /// The legal holds.
    pub holds: Arc<Holds>,
    /// The rules of retention, and what they did.
    pub retention: Retention,
    pub branches: Branches,
    /// What people say of messages and runs.
    pub feedback: Feedback,
    /// The index of texts.
    pub search: Arc<Search>,
    /// What was read lately for the entries of sessions.
    entries: Arc<EntryCache>,
    /// Verifies tokens. `None`: every client is anonymous and may do everything.
    pub authenticator: Option<Arc<Authenticator>>,
    /// What `/docs/` shows.
    pub documentation: Documentation,
    /// Signs heads of logs, and exports.
    pub signing_key: Arc<SigningKey>,
    /// Other origins whose pages may send requests.
    pub origins: Origins,
    /// Host names that requests may use.
    hosts: Hosts,
    /// The cluster that the server belongs to, if any.
    pub cluster: Option<cluster::Cluster>,
    stopping: Arc<StopSignal>,
}

/// A configured server, ready to run.
pub struct Server {
    app: Arc<App>,
    groups: UnboundedReceiver<CommittedGroup>,
    /// Time from a run's last fact to its compaction. `None`: never.
    compact_after: Option<Duration>,
    /// Time from a run's last fact to its archiving. `None`: never.
    archive_after: Option<Duration>,
    /// Time from an erasure until its bytes have left the files.
    erase_within: Duration,
    staleness: StalenessLimits,
    tls: Option<Arc<Tls>>,
    reserve: Option<DiskReserve>,
    /// Further tasks, with their names.
    extra_tasks: Vec<(&'static str, BoxFuture<'static, ()>)>,
    /// The task that panics, for tests.
    panicking_task: Option<String>,
}

/// Why a server stopped without a stop signal. The process must report it and exit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

impl Server {
    /// Creates a server on a store. Call it, and run it, inside a tokio runtime.
    ///
    /// # Errors
    /// The store's failure.
    pub fn new(
        storage: Storage,
        policy: Policy,
        sizes: FeedConfig,
        limits: Limits,
        keep_alive: KeepAlive,
        environment: Environment,
    ) -> Result<Self, StoreError> {
        Self::with_archive(storage, Archive::none(), policy, sizes, limits, keep_alive, environment)
    }

    /// The same, with the archive of the store's old runs.
    ///
    /// # Errors
    /// The store's failure.
    pub fn with_archive(
        storage: Storage,
        archive: Archive,
        policy: Policy,
        sizes: FeedConfig,
        limits: Limits,
        keep_alive: KeepAlive,
        environment: Environment,
    ) -> Result<Self, StoreError> {
        let search_dir = storage.dir().map(|dir| dir.join(search::DIR));
        let opened = match storage {
            Storage::Memory(store, journal) => Logs::open_with(store, Arc::new(journal), archive)?,
            Storage::Embedded(store, journal) => Logs::open_with(store, Arc::new(journal), archive)?,
            #[cfg(feature = "cluster")]
            Storage::Replica(store, journal) => Logs::open_with(store, journal, archive)?,
        };
        Ok(Self::on_logs(opened, search_dir, policy, sizes, limits, keep_alive, environment))
    }

    /// Creates a server on logs that are open, with the index of texts in this directory, or in memory.
    #[must_use]
    pub fn on_logs(
        (logs, groups): (Arc<Logs>, UnboundedReceiver<CommittedGroup>),
        search_dir: Option<PathBuf>,
        policy: Policy,
        sizes: FeedConfig,
        limits: Limits,
        keep_alive: KeepAlive,
        environment: Environment,
    ) -> Self {
        let ingest = Arc::new(Ingest::new(logs.clone(), policy, environment).with_limits(limits.ingest));
        let feed = Feed::new(logs.clone(), sizes);
        let links = Arc::new(Links::new(environment, logs.clone(), ingest.clone()));
        let marks = Arc::new(Marks::new(environment, logs.clone(), ingest.clone()));
        let holds = Arc::new(Holds::new(environment, logs.clone(), ingest.clone()));
        let attachments = Attachments::new(environment, logs.clone(), ingest.clone(), holds.clone());
        let branches = Branches::new(environment, logs.clone(), ingest.clone(), feed.clone());
        let feedback = Feedback::new(environment, feed.clone(), ingest.clone());
        let search = Arc::new(Search::open(search_dir, &logs));
        let app = App {
            is_https: false,
            logs,
            ingest,
            feed,
            controls: Controls::new(environment),
            notifier: Arc::new(Notifier::new(environment)),
            trace_meters: Arc::default(),
            limits,
            keep_alive,
            environment,
            placeholders: Placeholders::new((environment.random)()),
            meters: Arc::default(),
            disk: Disk::default(),
            backups: Arc::new(Semaphore::new(BACKUPS_MAX)),
            client_connections: ConnectionQuota::per_client(limits.connections_per_client_max),
            token_connections: ConnectionQuota::per_subject(limits.connections_per_token_max),
            publish_limits: PublishLimits::new(limits.publish, limits.publish_of_owner),
            agents: Vec::new(),
            lost_log_lines: Arc::default(),
            absent_agents: Mutex::default(),
            stated_images: Mutex::default(),
            request_ids: trace::RequestIds::new((environment.random)() as u32),
            started: (environment.now)(),
            links,
            marks,
            attachments,
            holds,
            retention: Retention::default(),
            branches,
            feedback,
            search,
            entries: Arc::default(),
            authenticator: None,
            documentation: Documentation::default(),
            signing_key: Arc::new(SigningKey::generate(environment)),
            origins: Origins::default(),
            hosts: Hosts::default(),
            cluster: None,
            stopping: Arc::default(),
        };
        Self {
            app: Arc::new(app),
            groups,
            compact_after: None,
            archive_after: None,
            erase_within: ERASE_WITHIN,
            staleness: StalenessLimits::default(),
            tls: None,
            reserve: None,
            extra_tasks: Vec::new(),
            panicking_task: None,
        }
    }

    /// Sets the time from a run's last fact to its compaction. `None`: never.
    #[must_use]
    pub const fn with_compaction(mut self, after: Option<Duration>) -> Self {
        self.compact_after = after;
        self
    }

    /// Sets the time from a run's last fact to its archiving. `None`: never.
    #[must_use]
    pub const fn with_archiving(mut self, after: Option<Duration>) -> Self {
        self.archive_after = after;
        self
    }

    /// Sets the time from an erasure until its bytes have left the files.
    #[must_use]
    pub const fn with_erase_within(mut self, time: Duration) -> Self {
        self.erase_within = time;
        self
    }

    /// Sets when silent runs become stale and are settled.
    #[must_use]
    pub const fn with_staleness_limits(mut self, staleness: StalenessLimits) -> Self {
        self.staleness = staleness;
        self
    }

    /// Serves TLS only.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Arc<Tls>>) -> Self {
        let app = Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared");
        app.is_https = tls.is_some();
        self.tls = tls;
        self
    }

    /// Sets the free disk space below which the server refuses writes.
    #[must_use]
    pub fn with_disk_reserve(mut self, reserve: Option<DiskReserve>) -> Self {
        self.reserve = reserve;
        self
    }

    /// Adds a task. The server stops when the task ends.
    #[must_use]
    pub fn with_task(mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> Self {
        self.extra_tasks.push((name, task.boxed()));
        self
    }

    /// Makes the server a node of a cluster.
    #[must_use]
    pub fn with_cluster(mut self, cluster: cluster::Cluster) -> Self {
        Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared").cluster = Some(cluster);
        self
    }

    /// The logs of the server.
    #[must_use]
    pub fn logs(&self) -> Arc<Logs> {
        self.app.logs.clone()
    }

    /// Makes the task of this name panic, or `committer` at its next append. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_panic_in(mut self, task: Option<String>) -> Self {
        self.panicking_task = task;
        self
    }

    /// Sets the authenticator and the other origins whose pages may send requests.
    ///
    /// Without an authenticator every client may do everything.
    #[must_use]
    pub fn with_auth(mut self, authenticator: Option<Arc<Authenticator>>, origins: Origins) -> Self {
        let app = Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared");
        if let Some(authenticator) = &authenticator {
            authenticator.use_links(app.links.clone());
        }
        (app.authenticator, app.origins) = (authenticator, origins);
        self
    }

    /// Sets the documentation. Default: none.
    #[must_use]
    pub fn with_documentation(mut self, documentation: Documentation) -> Self {
        Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared").documentation = documentation;
        self
    }

    /// Sets the key that signs heads of logs and exports. Default: one of this process.
    #[must_use]
    pub fn with_signing_key(mut self, key: SigningKey) -> Self {
        Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared").signing_key = Arc::new(key);
        self
    }

    /// Sets the host names that requests may use on a server without an authenticator.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Hosts) -> Self {
        Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared").hosts = hosts;
        self
    }

    /// Sets the count of log lines that could not be written, which metrics report.
    #[must_use]
    pub fn with_lost_log_lines(mut self, lost: Arc<Counter>) -> Self {
        Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared").lost_log_lines = lost;
        self
    }

    /// Sets agents that `/copilotkit/info` lists, present or not.
    #[must_use]
    pub fn with_agents(mut self, agents: Vec<AgentId>) -> Self {
        let app = Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared");
        app.agents = agents;
        self
    }

    /// Sets the webhooks of the configuration file, the push services, and the address of the page in messages.
    #[must_use]
    pub fn with_notifier(mut self, webhooks: Vec<Webhook>, services: PushServices, public_url: Option<reqwest::Url>) -> Self {
        let app = Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared");
        app.notifier = Arc::new(Notifier::new(app.environment).with(webhooks, services, public_url));
        self
    }

    /// Sends each run that ends to a collector of traces, with the contents that an audience sees, if any.
    #[cfg(feature = "otlp")]
    #[must_use]
    pub fn with_traces(self, collector: Collector, content: Option<Audience>) -> Self {
        let parts = ExporterParts {
            environment: self.app.environment,
            logs: self.app.logs.clone(),
            feed: self.app.feed.clone(),
            ingest: self.app.ingest.clone(),
            meters: self.app.trace_meters.clone(),
        };
        self.with_task("trace-exporter", Exporter::new(parts, collector, content).run())
    }

    /// Sets the rules for actions that wait.
    #[must_use]
    pub fn with_waits(self, rules: WaitRules) -> Self {
        self.app.logs.deadlines().set_rules(rules);
        self
    }

    /// Sets the rules of retention.
    #[must_use]
    pub fn with_retention(mut self, rules: RetentionRules) -> Self {
        let app = Arc::get_mut(&mut self.app).expect("the server is configured before its state is shared");
        app.retention = Retention::new(rules);
        self
    }

    /// The shared state, for tasks that work as a client does. The configuration must be complete.
    #[must_use]
    pub fn app(&self) -> Arc<App> {
        self.app.clone()
    }

    /// The router, for requests without a connection.
    ///
    /// Commits and readers make progress only while [`Self::run`] runs.
    pub fn router(&self) -> Router {
        router(self.app.clone())
    }

    /// Creates the task that settles silent runs; the caller supplies the time.
    #[must_use]
    pub fn settler(&self, staleness: StalenessLimits) -> Settler {
        Settler::new(self.app.clone(), staleness)
    }

    /// Creates the task that expires controls and leases; the caller supplies the time.
    #[must_use]
    pub fn control_maintenance(&self) -> ControlMaintenance {
        ControlMaintenance::new(self.app.clone())
    }

    /// Creates the task that compacts ended runs.
    #[must_use]
    pub fn compactor(&self, after: Duration) -> Compactor {
        Compactor::new(self.app.clone(), after)
    }

    /// Creates the task that archives ended runs.
    #[must_use]
    pub fn archiver(&self, after: Duration) -> Archiver {
        Archiver::new(self.app.clone(), Some(after))
    }

    /// Serves until `stop` resolves, then drains and returns.
    ///
    /// The drain refuses new connections, lets requests in progress finish, ends the streams within
    /// [`KeepAlive::drain`], and makes every append durable.
    ///
    /// # Errors
    /// The store's failure, or the end of a task that must not end. Both are final: the process must report them and
    /// exit.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let Running { app, tasks, connections, router, tls } = self.start();
        let is_plain = tls.is_none();
        let accepting = connections.accept(&listener, &app, &router, tls);
        // A load balancer must learn from `/readyz` that the server is not ready.
        let refusing = refusal::refuse_while_stopping(&listener, &app, is_plain);
        let ended = serve_until(&app, tasks, &connections, accepting, refusing, stop).await;
        drop(listener);
        finish(&app, ended).await
    }

    /// Like [`Self::run`], on connections that the caller accepts, without TLS.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_on<S>(self, sockets: impl Stream<Item = S>, stop: impl Future<Output = ()>) -> Result<(), Failure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Running { app, tasks, connections, router, .. } = self.start();
        let accepting = connections.serve_all(sockets, &app, &router);
        let ended = serve_until(&app, tasks, &connections, accepting, std::future::pending(), stop).await;
        finish(&app, ended).await
    }

    /// Starts the tasks. Commits and readers make progress from now on.
    fn start(self) -> Running {
        let Self {
            app,
            groups,
            compact_after,
            archive_after,
            erase_within,
            staleness,
            tls,
            reserve,
            extra_tasks,
            panicking_task,
        } = self;
        if panicking_task.as_deref() == Some("committer") {
            app.logs.panic_in_committer();
        }
        if let Some(reserve) = &reserve {
            disk::refresh(&app.disk, reserve, || 0);
        }
        let mut tasks = Tasks::with_panic_in(panicking_task);
        for (name, task) in app.feed.tasks(groups).into_iter().chain(extra_tasks) {
            tasks.spawn(name, task);
        }
        tasks.spawn("search-indexer", app.search.clone().run(app.logs.clone()));
        tasks.spawn("sweeper", sweep(app.clone()));
        tasks.spawn("eraser", Eraser::new(app.clone()).run());
        tasks.spawn("purger", Purger::new(app.clone(), erase_within).run());
        tasks.spawn("settler", Settler::new(app.clone(), staleness).run());
        let engine = Engine::new(
            app.notifier.clone(),
            Reads {
                logs: app.logs.clone(),
                feed: app.feed.clone(),
                signing_key: app.signing_key.clone(),
                authenticator: app.authenticator.clone(),
            },
            app.ingest.clone(),
        );
        tasks.spawn("notifier", engine.run());
        tasks.spawn("control-keeper", ControlMaintenance::new(app.clone()).run());
        if let Some(reserve) = reserve {
            tasks.spawn("disk-watch", disk::monitor(app.clone(), reserve));
        }
        if let Some(after) = compact_after {
            tasks.spawn("compactor", Compactor::new(app.clone(), after).run());
        }
        if app.logs.archive().is_open() {
            tasks.spawn("archiver", Archiver::new(app.clone(), archive_after).run());
        }
        if !app.retention.rules.0.is_empty() {
            tasks.spawn("retainer", Retainer::new(app.clone()).run());
        }
        if let Some(tls) = tls.clone() {
            tasks.spawn("certificate-renewal", tls.run());
        }
        if let Some(authenticator) = app.authenticator.clone() {
            tasks.spawn("key-renewal", authenticator.run());
        }
        let writers = Writers::new(tokio::runtime::Handle::current().metrics().num_workers(), app.logs.clone());
        for writer in writers.tasks() {
            tasks.spawn("writer", writer);
        }
        let connections = Connections::new(app.limits.connections_max, writers);
        let router = router(app.clone());
        Running { app, tasks, connections, router, tls }
    }
}

/// A server whose tasks run.
struct Running {
    app: Arc<App>,
    tasks: Tasks,
    connections: Connections,
    router: Router,
    tls: Option<Arc<Tls>>,
}

/// Serves until `stop` resolves, and drains.
async fn serve_until(
    app: &App,
    mut tasks: Tasks,
    connections: &Connections,
    accepting: impl Future<Output = ()>,
    refusing: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let ended: Result<(), Failure> = tokio::select! {
        biased;
        error = app.logs.failed() => Err(error.into()),
        ended = tasks.ended() => Err(ended.into()),
        () = stop => Ok(()),
        () = accepting => Ok(()),
    };
    app.stopping.request();
    ended?;
    tokio::select! {
        biased;
        error = app.logs.failed() => Err(error.into()),
        ended = tasks.ended() => Err(ended.into()),
        () = connections.wait_closed(app.keep_alive.drain + FINISH_TIME_MAX) => Ok(()),
        () = refusing => Ok(()),
    }
}

/// Makes every append durable, unless the server failed.
async fn finish(app: &App, mut ended: Result<(), Failure>) -> Result<(), Failure> {
    if ended.is_ok() {
        ended = app.logs.close().await.map_err(Failure::from);
        let (search, logs) = (app.search.clone(), app.logs.clone());
        app.logs.index(move |_| search.close(&logs)).await;
    }
    // The committer's end also ends the tasks that follow it. This code may have seen theirs, or the stop signal,
    // first.
    if let Some(error) = app.logs.failure() {
        ended = Err(error.into());
    }
    if let Err(error) = &ended {
        tracing::error!(%error, "stopping");
    }
    ended
}

/// The default time from an erasure until its bytes have left the files.
pub const ERASE_WITHIN: Duration = Duration::from_hours(24);

/// Time that requests in progress get to finish after the drain.
const FINISH_TIME_MAX: Duration = Duration::from_secs(8);

impl App {
    /// Whether an agent may take images.
    #[must_use]
    pub fn takes_images(&self, agent: &AgentId) -> bool {
        self.stated_images.lock().get(agent).is_none_or(|stated| stated.load(Ordering::Relaxed))
    }

    /// The reconnect delay of a reader, in milliseconds.
    ///
    /// It is random, so that the readers of a stopped server do not all reach the next server in the same instant.
    fn reconnect_delay_ms(&self) -> u64 {
        1000 + u64::try_from((self.environment.random)() % 1000).unwrap_or(0)
    }

    /// The random moment in the drain at which one reader is disconnected, for the same reason.
    fn drain_delay(&self) -> Duration {
        let thousandths = u32::try_from((self.environment.random)() % 1000).unwrap_or(0);
        self.keep_alive.drain.mul_f64(f64::from(thousandths) / 1000.0)
    }
}

/// Frees unused state periodically, so that memory follows the live logs.
async fn sweep(app: Arc<App>) {
    let mut every = tokio::time::interval(Duration::from_secs(10));
    loop {
        every.tick().await;
        app.feed.sweep();
        app.ingest.sweep();
        app.logs.sweep();
        app.entries.sweep(app.logs.sessions(), app.logs.runs());
        app.publish_limits.sweep(tokio::time::Instant::now());
    }
}

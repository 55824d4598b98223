//! The edge: HTTP in and out. One file a way of talking to us; each turns a request into a call of `ingest` or `feed`.
//!
//! Decides nothing about order, durability or audience: it asks. Nothing here, except [`wire`], knows whether a connection is
//! ours or hyper's.

pub mod access;
pub mod clients;
pub mod compact;
pub mod controls;
pub mod disk;
pub mod erase;
pub mod facts;
pub mod head;
pub mod hydrate;
pub mod kinds;
pub mod meters;
pub mod openapi;
pub mod ops;
pub mod origin;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod problem;
pub mod request;
pub mod routes;
pub mod sessions;
pub mod settle;
pub mod shares;
pub mod socket;
pub mod stream;
pub mod tasks;
pub mod tickets;
pub mod tls;
pub mod trace;
pub mod wire;
pub mod workbench;

use crate::auth::Authority;
use crate::control::Controls;
use crate::feed::{Feed, Sizes};
use crate::guard::Policy;
use crate::ingest::{Ingest, Load, World};
use crate::log::run::Logs;
use crate::log::{AnyStore, StoreError};
use crate::model::AgentId;
use axum::Router;
use axum::middleware::from_fn_with_state;
use compact::Compactor;
use controls::Keeper;
use disk::{Disk, Reserve};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use meters::Meters;
use origin::{Hosts, Origins};
use settle::{Patience, Settler};
use shares::{Client, Rate, Rates, Shares};
use std::sync::Arc;
use std::time::Duration;
use tasks::{TaskEnded, Tasks};
use tls::Tls;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Limits of what a client may send; each has its own error.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// One fact, in bytes.
    pub fact_bytes_max: usize,
    /// One JSON body, in bytes; a streamed body has no limit, its lines have [`Self::fact_bytes_max`].
    pub body_bytes_max: usize,
    /// How deep objects and arrays may nest.
    pub depth_max: usize,
    /// A request's head, in bytes, and how long it may take to come.
    pub head_bytes_max: usize,
    pub head_time_max: Duration,
    /// How long a TLS handshake may take.
    pub handshake_time_max: Duration,
    /// Requests and streams of one HTTP/2 connection at once.
    pub streams_max: u32,
    /// How long a JSON body may take to come, beside a second for each [`BODY_BYTES_A_SECOND`] of it.
    pub body_time_max: Duration,
    /// How long a streamed body may say nothing, not even a blank line.
    pub line_time_max: Duration,
    /// Connections at once, and of one client.
    pub connections_max: usize,
    pub connections_per_client_max: usize,
    /// What may be open at once under the tokens of one `sub`: streams, sockets, streamed bodies and claims.
    pub connections_per_token_max: usize,
    /// Subscriptions of one WebSocket at once.
    pub subscriptions_max: usize,
    /// How fast one producer may publish; as fast as it can where there is none.
    pub publish: Option<Rate>,
    /// What may be under way to the store, and how much it may be given to keep.
    pub load: Load,
}

/// The slowest that a JSON body may come once [`Limits::body_time_max`] is over, in bytes a second.
pub const BODY_BYTES_A_SECOND: u64 = 16 * 1024;

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
            load: Load::default(),
        }
    }
}

/// How a stream is kept alive and how it ends.
#[derive(Debug, Clone, Copy)]
pub struct Pulse {
    /// A comment this often, from the first byte; on a WebSocket a ping, of which two may stay unanswered.
    pub heartbeat: Duration,
    /// The longest that streams go on once the server is told to stop; each ends at its own moment in it.
    pub drain: Duration,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(15), drain: Duration::from_secs(2) }
    }
}

/// What every request can reach.
pub struct App {
    pub logs: Arc<Logs<AnyStore>>,
    pub ingest: Ingest<AnyStore>,
    pub feed: Arc<Feed<AnyStore>>,
    pub controls: Controls,
    pub limits: Limits,
    pub pulse: Pulse,
    pub world: World,
    pub meters: Arc<Meters>,
    pub disk: Disk,
    /// The connections that are open.
    pub shares: Arc<Shares<Client>>,
    /// What is open under tokens, by their `sub`.
    pub opened: Arc<Shares<Box<str>>>,
    /// How fast producers publish, where that has a limit.
    pub rates: Option<Rates>,
    /// Agents that clients are told of, beside those that show themselves.
    pub agents: Vec<AgentId>,
    ids: trace::Ids,
    started: jiff::Timestamp,
    /// Who says who is who; without it nobody is asked.
    pub authority: Option<Arc<Authority>>,
    /// Whose pages may ask, besides our own.
    pub origins: Origins,
    /// By which names it may be asked for.
    hosts: Hosts,
    /// When the server was told to stop.
    stopping: watch::Sender<Option<tokio::time::Instant>>,
}

/// A server that is ready to be run.
pub struct Server {
    app: Arc<App>,
    groups: tokio::sync::mpsc::UnboundedReceiver<crate::log::run::Group>,
    /// How long after a run's last fact it is compacted; never unless given.
    compact_after: Option<Duration>,
    patience: Patience,
    tls: Option<Arc<Tls>>,
    reserve: Option<Reserve>,
    /// Further tasks, by their names.
    beside: Vec<(&'static str, BoxFuture<'static, ()>)>,
    /// The task that is to panic, for tests.
    panics: Option<String>,
}

/// Why a server stopped although nothing told it to. The process must stop, too, and say so.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

impl Server {
    /// A server on this store. Must be called, and run, inside a tokio runtime.
    ///
    /// # Errors
    /// The store's failure.
    pub fn new(
        store: AnyStore,
        policy: Policy,
        sizes: Sizes,
        limits: Limits,
        pulse: Pulse,
        world: World,
    ) -> Result<Self, StoreError> {
        let (logs, groups) = Logs::open(store)?;
        let ingest = Ingest::new(logs.clone(), policy, world).bearing(limits.load);
        let feed = Feed::new(logs.clone(), sizes);
        let app = App {
            logs,
            ingest,
            feed,
            controls: Controls::new(world),
            limits,
            pulse,
            world,
            meters: Arc::default(),
            disk: Disk::default(),
            shares: Shares::of_clients(limits.connections_per_client_max),
            opened: Shares::of_subjects(limits.connections_per_token_max),
            rates: limits.publish.map(Rates::new),
            agents: Vec::new(),
            ids: trace::Ids::new((world.random)() as u32),
            started: (world.now)(),
            authority: None,
            origins: Origins::default(),
            hosts: Hosts::default(),
            stopping: watch::Sender::new(None),
        };
        Ok(Self {
            app: Arc::new(app),
            groups,
            compact_after: None,
            patience: Patience::default(),
            tls: None,
            reserve: None,
            beside: Vec::new(),
            panics: None,
        })
    }

    /// The same, which compacts ended runs this long after their last fact.
    #[must_use]
    pub const fn compacting(mut self, after: Option<Duration>) -> Self {
        self.compact_after = after;
        self
    }

    /// The same, which bears the silence of runs this long.
    #[must_use]
    pub const fn bearing(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// The same, which speaks TLS, and nothing else.
    #[must_use]
    pub fn over(mut self, tls: Option<Arc<Tls>>) -> Self {
        self.tls = tls;
        self
    }

    /// The same, which keeps this much of its store's disk free.
    #[must_use]
    pub fn reserving(mut self, reserve: Option<Reserve>) -> Self {
        self.reserve = reserve;
        self
    }

    /// The same, beside which this runs: when it ends, so does the server.
    #[must_use]
    pub fn beside(mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> Self {
        self.beside.push((name, task.boxed()));
        self
    }

    /// The same, of which the task of this name panics, or `committer` at its next append: for tests of what follows.
    #[doc(hidden)]
    #[must_use]
    pub fn panicking_in(mut self, task: Option<String>) -> Self {
        self.panics = task;
        self
    }

    /// The same, which asks who is there, and lets pages of these origins in. Anybody may do anything unless there is somebody to
    /// say who is who.
    #[must_use]
    pub fn asking(mut self, authority: Option<Arc<Authority>>, origins: Origins) -> Self {
        let app = Arc::get_mut(&mut self.app).expect("a server is put together before anything else has a part of it");
        (app.authority, app.origins) = (authority, origins);
        self
    }

    /// The same, which may be asked for by these names while nobody is asked who they are.
    #[must_use]
    pub fn known_as(mut self, hosts: Hosts) -> Self {
        Arc::get_mut(&mut self.app).expect("a server is put together before anything else has a part of it").hosts = hosts;
        self
    }

    /// The same, which tells clients of these agents, whether or not they are there.
    #[must_use]
    pub fn naming(mut self, agents: Vec<AgentId>) -> Self {
        let app = Arc::get_mut(&mut self.app).expect("a server is put together before anything else has a part of it");
        app.agents = agents;
        self
    }

    /// Whoever answers at every address, to be asked without a connection. What comes of it is durable, and readers are told, only
    /// while [`Self::run`] runs.
    pub fn router(&self) -> Router {
        router(self.app.clone())
    }

    /// What settles this server's runs, to be told what time it is.
    #[must_use]
    pub fn settler(&self, patience: Patience) -> Settler {
        Settler::new(self.app.clone(), patience)
    }

    /// What keeps this server's controls in order, to be told what time it is.
    #[must_use]
    pub fn keeper(&self) -> Keeper {
        Keeper::new(self.app.clone())
    }

    /// What compacts this server's runs, to be told when.
    #[must_use]
    pub fn compactor(&self, after: Duration) -> Compactor {
        Compactor::new(self.app.clone(), after)
    }

    /// Serves until `stop` resolves; then turns new connections away, lets what is under way finish, ends the streams over
    /// [`Pulse::drain`], makes everything durable, and returns.
    ///
    /// # Errors
    /// The store's failure, or the end of a task that none is to have: both are final, and the process must stop and say so.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let Self { app, groups, compact_after, patience, tls, reserve, beside, panics } = self;
        if panics.as_deref() == Some("committer") {
            app.logs.panic_in_committer();
        }
        if let Some(reserve) = &reserve {
            disk::look(&app.disk, reserve, || 0);
        }
        let mut tasks = Tasks::panicking_in(panics);
        for (name, task) in app.feed.tasks(groups).into_iter().chain(beside) {
            tasks.spawn(name, task);
        }
        tasks.spawn("sweeper", sweep(app.clone()));
        tasks.spawn("settler", Settler::new(app.clone(), patience).keep());
        tasks.spawn("control-keeper", Keeper::new(app.clone()).keep());
        if let Some(reserve) = reserve {
            tasks.spawn("disk-watch", disk::watch(app.clone(), reserve));
        }
        if let Some(after) = compact_after {
            tasks.spawn("compactor", Compactor::new(app.clone(), after).keep());
        }
        if let Some(tls) = tls.clone() {
            tasks.spawn("certificate-renewal", tls.keep());
        }
        if let Some(authority) = app.authority.clone() {
            tasks.spawn("key-renewal", authority.keep());
        }
        let is_plain = tls.is_none();
        let connections = wire::Connections::new(app.limits.connections_max);
        let accepting = connections.accept(&listener, app.clone(), tls);
        let mut ended: Result<(), Failure> = tokio::select! {
            error = app.logs.failed() => Err(error.into()),
            ended = tasks.ended() => Err(ended.into()),
            () = accepting => Ok(()),
            () = stop => Ok(()),
        };
        app.stopping.send_replace(Some(tokio::time::Instant::now()));
        if ended.is_ok() {
            ended = tokio::select! {
                error = app.logs.failed() => Err(error.into()),
                ended = tasks.ended() => Err(ended.into()),
                () = connections.drained(app.pulse.drain + FINISH_TIME_MAX) => Ok(()),
                // Whoever asks whether we are ready has to hear that we are not.
                () = wire::turn_away(&listener, &app, is_plain) => Ok(()),
            };
        }
        drop(listener);
        if ended.is_ok() {
            ended = app.logs.close().await.map_err(Failure::from);
        }
        // Its end ends the tasks that follow the committer, and may have been seen after theirs, or after the signal to stop.
        if let Some(error) = app.logs.failure() {
            ended = Err(error.into());
        }
        if let Err(error) = &ended {
            tracing::error!(%error, "stopping");
        }
        ended
    }
}

/// How long what was under way when the drain was over may take to finish.
const FINISH_TIME_MAX: Duration = Duration::from_secs(8);

/// When a server that stops may be followed by another, in seconds.
const SUCCESSOR_AFTER: u64 = 1;

/// 503 for whoever wants something of a server that is stopping.
fn stopping() -> problem::Problem {
    let detail = "the server is stopping; use another one, or come back";
    problem::Problem::new(http::StatusCode::SERVICE_UNAVAILABLE, "stopping", detail).retry_after(SUCCESSOR_AFTER)
}

impl App {
    /// How long a reader that loses us is to wait before it comes back, in milliseconds: spread, so that readers who lost one server
    /// do not all meet the next in the same instant.
    fn retry(&self) -> u64 {
        1000 + u64::try_from((self.world.random)() % 1000).unwrap_or(0)
    }

    /// How far into the drain one reader is let go: each at a moment of its own, or all would meet the next server at once.
    fn moment_in_drain(&self) -> Duration {
        let thousandths = u32::try_from((self.world.random)() % 1000).unwrap_or(0);
        self.pulse.drain.mul_f64(f64::from(thousandths) / 1000.0)
    }
}

/// Resolves this long after the server was told to stop.
async fn stopped(stopping: &mut watch::Receiver<Option<tokio::time::Instant>>, after: Duration) {
    let told = told_to_stop(stopping).await;
    tokio::time::sleep_until(told + after).await;
}

/// Waits until the server is told to stop, and says when that was.
async fn told_to_stop(stopping: &mut watch::Receiver<Option<tokio::time::Instant>>) -> tokio::time::Instant {
    let told = stopping.wait_for(Option::is_some).await.ok().and_then(|at| *at);
    match told {
        Some(at) => at,
        // The server is gone altogether; so will this task be.
        None => std::future::pending().await,
    }
}

/// Lets go of what nobody uses, so that memory follows what is live and not what ever was.
async fn sweep(app: Arc<App>) {
    let mut every = tokio::time::interval(Duration::from_secs(10));
    loop {
        every.tick().await;
        app.feed.sweep();
        app.ingest.sweep();
        app.logs.sweep();
        if let Some(rates) = &app.rates {
            rates.sweep(tokio::time::Instant::now());
        }
    }
}

/// Whoever answers at every address, and what is answered anywhere else.
pub fn router(app: Arc<App>) -> Router {
    routes::mount(&app)
        .fallback(ops::no_such_address)
        .method_not_allowed_fallback(ops::method_not_allowed)
        .layer(from_fn_with_state(app.clone(), origin::check))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(ops::panicked))
        .layer(from_fn_with_state(app.clone(), trace::layer))
        .with_state(app)
}

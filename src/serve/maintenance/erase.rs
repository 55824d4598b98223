//! Erasure of sessions and of owners, on the node that leads.
//!
//! ```text
//!   session:  stop its runs ─▶ refuse it ─▶ ( refuse a batch of runs ─▶ erase their logs )… ─▶ sweep what was about it
//!   owner:    ( begin a batch of sessions ─▶ each is erased )… ─▶ its runs without a session
//!   rule:     refuse sessions ─▶ did something come to them? ─┬─ no ─▶ as a session that is refused
//!                                                             └─ yes ─▶ refuse them no more
//! ```
//! A request only commits the [`ErasureRecord`]s, with the audit, and waits until they are gone. Every step here may be
//! repeated, so after a crash, or with another leader, the erasure goes on from its records. The erasure of a single run
//! is one commit, which the request itself makes ([`erase_alone`]): it has an [`ErasedRecord`] alone.

use crate::audit::AuditEntry;
use crate::control::Requester;
use crate::control::rules::ControlRequest;
use crate::environment::sabotage;
use crate::holds::Held;
use crate::ingest::{BeginOwner, Verdict};
use crate::log::commit::Summary;
use crate::log::control::DEFAULT_AGENT;
use crate::log::erased::{ERASED_TIME, ErasedRecord, ErasureRecord, ErasureStage, ErasureTarget};
use crate::log::server_state::EntryChange;
use crate::log::{LogId, LogKind, StoreError};
use crate::model::decided_by::{Decider, Via};
use crate::model::{AgentId, Audience, Control, OwnerId, RunId, SessionId};
use crate::notify::delivery::Notification;
use crate::notify::task_push::TaskPush;
use crate::serve::App;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Time that the runtime of a run has to end it after the interrupt. Then the server settles it.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Logs that one round of a session erases.
const LOGS_PER_ROUND: usize = 256;
/// Erasures that begin in one commit.
const TARGETS_PER_BATCH: usize = 1024;
/// Sessions of an owner that are erased at once, and all sessions.
pub const SESSIONS_AT_ONCE: usize = 16;
/// Runs of one list.
const LIST_PAGE_RUNS: usize = 256;
/// Interval between two checks for work that no request announced.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two sweeps of erased ids and of attachments, and how many ids one frees.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
const FREED_PER_SWEEP: usize = 65_536;

/// Erases a log, durably, with everything that is in it, and with the last log of a session what people marked there;
/// `false` when it was never written.
///
/// # Errors
/// [`StoreError`] from the store.
pub async fn erase_log(app: &Arc<App>, log: &LogId) -> Result<bool, StoreError> {
    let (app, log) = (app.clone(), log.clone());
    // A separate task, so that a caller that goes away does not stop the erasure halfway.
    let erasing = tokio::spawn(async move {
        let session = match &log {
            LogId::Session(session) => Some(session.clone()),
            LogId::Run(_) => app.logs.log(&log).await.ok().and_then(|log| log.tail().summary.session_id.clone()),
        };
        let is_erased = app.ingest.erase(&log).await;
        app.feed.forget(&log).await;
        if let Some(session) = session.filter(|session| app.logs.sessions().created_order(session).is_none()) {
            app.marks.forget(&session).await?;
            app.attachments.forget(&session).await?;
        }
        is_erased
    });
    erasing.await.expect("the erase task panicked")
}

/// Why an erasure does not begin. Then it has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    /// Holds keep some of it.
    #[error("{} of what would be erased is held", .0.len())]
    Held(Vec<Held>),
    /// A hold on this keeps the run.
    #[error("the run is held by a hold on {0}")]
    RunHeld(ErasureTarget),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Erases a run alone, durably and with its audit; `false` when it was never written. Later facts begin it again.
///
/// # Errors
/// [`EraseError`] for a run that is held, or from the store.
pub async fn erase_alone(app: &Arc<App>, run: &RunId, audit: AuditEntry) -> Result<bool, EraseError> {
    let gate = app.holds.gate().await;
    let log = LogId::Run(run.clone());
    // A run whose state is unreadable can be erased, too.
    let summary = app
        .logs
        .log(&log)
        .await
        .map(|log| log.tail())
        .map_or_else(|_| Some(Summary::default()), |tail| tail.epoch.is_some().then(|| (*tail.summary).clone()));
    let Some(summary) = summary else { return Ok(false) };
    let (session, owner) = (summary.session_id, summary.extension.owner);
    if let Some(on) = app.holds.covering_run(session.as_ref(), owner.as_ref()) {
        return Err(EraseError::RunHeld(on));
    }
    let erased = ErasedRecord { until: erased_until(app), session, owner, is_reusable: true };
    // First, so that readers which miss the run find out why. A crash before the erasure leaves the run, and the record
    // is of no effect.
    append(app, vec![EntryChange::set(&ErasedRecord::key(&log), &erased)], &[audit]).await?;
    drop(gate);
    let is_erased = erase_log(app, &log).await?;
    append(app, pushes_of(app, &HashSet::from([&log])), &[]).await?;
    Ok(is_erased)
}

/// Begins erasures, durably and each with its audit, unless they are under way. They complete, also after a crash.
///
/// # Errors
/// [`EraseError`] if one of them is held, or from the store.
pub async fn begin(app: &App, targets: &[ErasureTarget], audit: &[AuditEntry]) -> Result<(), EraseError> {
    let _gate = app.holds.gate().await;
    let held = app.holds.among(targets);
    if !held.is_empty() {
        return Err(EraseError::Held(held));
    }
    for (targets, audit) in targets.chunks(TARGETS_PER_BATCH).zip(audit.chunks(TARGETS_PER_BATCH)) {
        begin_batch(app, targets, audit).await?;
    }
    Ok(())
}

async fn begin_batch(app: &App, targets: &[ErasureTarget], audit: &[AuditEntry]) -> Result<(), StoreError> {
    let state = app.logs.server_state();
    let created = app.logs.mark().created;
    let record = ErasureRecord { stage: ErasureStage::Stopping, created };
    let new = targets.iter().filter(|target| !target.is_being_erased(state));
    append(app, new.map(|target| EntryChange::set(&target.key(), &record)).collect(), audit).await
}

/// Begins the erasure of these sessions for a rule, durably and each with its audit, while `is_due` holds; else `false`.
///
/// A fact that is acknowledged is not erased unseen: the sessions are refused first, and then judged once more.
///
/// # Errors
/// [`EraseError`] if one of them is held, or from the store.
pub async fn begin_if(
    app: &App,
    sessions: &[SessionId],
    audit: &[AuditEntry],
    is_due: impl Fn() -> bool,
) -> Result<bool, EraseError> {
    let _gate = app.holds.gate().await;
    let targets: Vec<_> = sessions.iter().cloned().map(ErasureTarget::Session).collect();
    let held = app.holds.among(&targets);
    if !held.is_empty() {
        return Err(EraseError::Held(held));
    }
    let state = app.logs.server_state();
    if targets.iter().any(|target| target.is_being_erased(state)) || !is_due() {
        return Ok(false);
    }
    let record = |stage| ErasureRecord { stage, created: 0 };
    let refused = sessions.iter().zip(&targets).flat_map(|(session, target)| {
        let owner = app.logs.sessions().owner_of(session);
        let erased = ErasedRecord { until: erased_until(app), session: None, owner, is_reusable: false };
        let own = ErasedRecord::key(&LogId::Session(session.clone()));
        [EntryChange::set(&own, &erased), EntryChange::set(&target.key(), &record(ErasureStage::Confirming))]
    });
    append(app, refused.collect(), &[]).await?;
    if is_due() {
        let begun = targets.iter().map(|target| EntryChange::set(&target.key(), &record(ErasureStage::Erasing)));
        append(app, begun.collect(), audit).await?;
        return Ok(true);
    }
    append(app, targets.iter().flat_map(accepted_again).collect(), &[]).await?;
    Ok(false)
}

/// The changes after which the server accepts facts of a session that it was about to erase.
fn accepted_again(target: &ErasureTarget) -> Vec<EntryChange> {
    let own = match target {
        ErasureTarget::Session(session) => Some(ErasedRecord::key(&LogId::Session(session.clone()))),
        ErasureTarget::Owner(_) => None,
    };
    let own = own.map(|own| EntryChange::remove::<ErasedRecord>(&own));
    own.into_iter().chain([EntryChange::remove::<ErasureRecord>(&target.key())]).collect()
}

/// Erases these runs without a session for a rule, those that `is_due` takes, durably and each with its audit. Returns how
/// many it erased. What is held stays.
///
/// # Errors
/// [`StoreError`] from the store.
pub async fn erase_runs_if(
    app: &Arc<App>,
    runs: &[RunId],
    audit: impl Fn(&LogId) -> AuditEntry,
    is_due: impl Fn(&Summary) -> bool,
) -> Result<usize, StoreError> {
    let gate = app.holds.gate().await;
    let summary_of = async |log: &LogId| {
        let tail = app.logs.log(log).await?.tail();
        Ok::<_, StoreError>(tail.epoch.map(|_| tail.summary))
    };
    let mut due = Vec::new();
    for log in runs.iter().cloned().map(LogId::Run) {
        let Some(summary) = summary_of(&log).await? else { continue };
        let owner = summary.extension.owner.clone();
        if is_due(&summary) && app.holds.covering_run(summary.session_id.as_ref(), owner.as_ref()).is_none() {
            due.push((log, owner));
        }
    }
    if due.is_empty() {
        return Ok(0);
    }
    let refused = due.iter().map(|(log, owner)| {
        let erased = ErasedRecord { until: erased_until(app), session: None, owner: owner.clone(), is_reusable: false };
        EntryChange::set(&ErasedRecord::key(log), &erased)
    });
    append(app, refused.collect(), &[]).await?;
    let (mut erased, mut kept) = (Vec::new(), Vec::new());
    for (log, _) in due {
        match summary_of(&log).await? {
            Some(summary) if is_due(&summary) => erased.push(log),
            _ => kept.push(EntryChange::remove::<ErasedRecord>(&ErasedRecord::key(&log))),
        }
    }
    append(app, kept, &erased.iter().map(audit).collect::<Vec<_>>()).await?;
    drop(gate);
    for log in &erased {
        erase_log(app, log).await?;
    }
    sweep_about(app, &erased).await?;
    Ok(erased.len())
}

/// Waits until erasures are complete.
///
/// # Errors
/// `NotLeader` when another node goes on with them.
pub async fn complete(app: &App, targets: &[ErasureTarget]) -> Result<(), StoreError> {
    let state = app.logs.server_state();
    let mut changes = state.watch();
    loop {
        changes.mark_unchanged();
        if !targets.iter().any(|target| target.is_being_erased(state)) {
            return Ok(());
        }
        // The sender lives as long as the logs.
        let _ = app.logs.while_leading(changes.changed()).await?;
    }
}

async fn append(app: &App, entries: Vec<EntryChange>, audit: &[AuditEntry]) -> Result<(), StoreError> {
    if entries.is_empty() && audit.is_empty() {
        return Ok(());
    }
    let drafts: Vec<_> = audit.iter().map(AuditEntry::draft).collect();
    app.ingest.append_to_server(&drafts, &entries).await
}

/// Erases what requests have begun to erase.
pub struct Eraser {
    app: Arc<App>,
    under_way: HashSet<ErasureTarget>,
    erasing: JoinSet<ErasureTarget>,
    swept: Instant,
}

impl Eraser {
    pub(in crate::serve) fn new(app: Arc<App>) -> Self {
        let mut under_way = HashSet::new();
        if sabotage::is(59) {
            let known = app.logs.server_state().all::<ErasureRecord>("");
            under_way.extend(known.iter().filter_map(|(key, _)| ErasureTarget::parse(key)));
        }
        Self { app, under_way, erasing: JoinSet::new(), swept: Instant::now() }
    }

    /// Works while this node leads, until the task is aborted.
    pub(in crate::serve) async fn run(mut self) {
        let mut changes = self.app.logs.server_state().watch();
        loop {
            changes.mark_unchanged();
            if self.app.logs.leadership().leads() {
                self.begin_pending();
                if let Err(error) = self.undo_unconfirmed().await {
                    tracing::warn!(%error, "cannot accept again what a rule was about to erase");
                }
                let is_due = self.swept.elapsed() >= SWEEP_INTERVAL;
                if is_due && let Err(error) = self.sweep().await {
                    // A failure of the store stops the server elsewhere.
                    tracing::warn!(%error, "cannot free the ids of what was erased, or remove attachments that nothing names");
                }
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                _ = changes.changed() => {}
                Some(ended) = self.erasing.join_next() => drop(self.under_way.take(&ended.expect("an erasure panicked"))),
            }
        }
    }

    fn begin_pending(&mut self) {
        for (key, record) in self.app.logs.server_state().all::<ErasureRecord>("") {
            let Some(target) = ErasureTarget::parse(&key).filter(|target| !self.under_way.contains(target)) else { continue };
            if record.stage == ErasureStage::Confirming {
                continue;
            }
            // An owner's erasure waits for those of its sessions.
            if matches!(target, ErasureTarget::Session(_)) && self.under_way.len() >= 2 * SESSIONS_AT_ONCE {
                continue;
            }
            self.under_way.insert(target.clone());
            let app = self.app.clone();
            self.erasing.spawn(async move {
                let erased = match &target {
                    ErasureTarget::Session(session) => erase_session(&app, session, record.stage).await,
                    ErasureTarget::Owner(owner) => erase_owner(&app, owner, record.created).await,
                };
                if let Err(error) = erased {
                    tracing::warn!(%error, target = target.key(), "an erasure is not complete; trying again");
                    tokio::time::sleep(CHECK_INTERVAL).await;
                }
                target
            });
        }
    }

    /// Accepts again what a rule was about to erase when the leader that judged it ended.
    async fn undo_unconfirmed(&self) -> Result<(), StoreError> {
        let state = self.app.logs.server_state();
        let is_unconfirmed = |(_, record): &(String, ErasureRecord)| record.stage == ErasureStage::Confirming;
        if !state.all::<ErasureRecord>("").iter().any(is_unconfirmed) {
            return Ok(());
        }
        // A task of this process that judges it has the gate, and goes on.
        let Some(_gate) = self.app.holds.try_gate() else { return Ok(()) };
        let left = state.all::<ErasureRecord>("").into_iter().filter(is_unconfirmed);
        let left: Vec<_> = left.filter_map(|(key, _)| ErasureTarget::parse(&key)).collect();
        if left.is_empty() { Ok(()) } else { append(&self.app, left.iter().flat_map(accepted_again).collect(), &[]).await }
    }

    async fn sweep(&mut self) -> Result<(), StoreError> {
        self.swept = Instant::now();
        self.free_past_ids().await?;
        self.app.attachments.sweep().await
    }

    /// Lets the ids be used again that were erased a day ago.
    async fn free_past_ids(&self) -> Result<(), StoreError> {
        let erased = self.app.logs.server_state().erased();
        if erased.count() == 0 {
            return Ok(());
        }
        let past = erased.past((self.app.environment.now)().as_millisecond(), FREED_PER_SWEEP);
        let entries: Vec<_> = past.iter().map(|log| EntryChange::remove::<ErasedRecord>(&ErasedRecord::key(log))).collect();
        if entries.is_empty() { Ok(()) } else { append(&self.app, entries, &[]).await }
    }
}

/// When ids that are erased now may be used again, in milliseconds since 1970.
fn erased_until(app: &App) -> i64 {
    let time = i64::try_from(ERASED_TIME.as_millis()).expect("a day fits");
    (app.environment.now)().as_millisecond().saturating_add(time)
}

async fn erase_session(app: &Arc<App>, session: &SessionId, stage: ErasureStage) -> Result<(), StoreError> {
    let target = ErasureTarget::Session(session.clone());
    let own = LogId::Session(session.clone());
    let owner = app.logs.server_state().erased().get(&own).map_or_else(|| app.logs.sessions().owner_of(session), |of| of.owner);
    if stage == ErasureStage::Stopping {
        stop_runs(app, session).await?;
        let refused = ErasedRecord { until: erased_until(app), session: None, owner: owner.clone(), is_reusable: false };
        let record = ErasureRecord { stage: ErasureStage::Erasing, created: 0 };
        let entries = vec![EntryChange::set(&ErasedRecord::key(&own), &refused), EntryChange::set(&target.key(), &record)];
        append(app, entries, &[]).await?;
    }
    while let Some((logs, _)) = app.logs.sessions().logs_of(session, LOGS_PER_ROUND) {
        let logs: Vec<_> = logs.into_iter().map(|(_, log)| log).collect();
        erase_logs(app, &logs, Some(session), owner.as_ref()).await?;
    }
    // Also after a crash between the erasure of the last logs and this.
    sweep_about(app, &[own]).await?;
    append(app, vec![EntryChange::remove::<ErasureRecord>(&target.key())], &[]).await
}

/// Refuses these logs, and then erases them.
async fn erase_logs(
    app: &Arc<App>,
    logs: &[LogId],
    session: Option<&SessionId>,
    owner: Option<&OwnerId>,
) -> Result<(), StoreError> {
    let (session, owner) = (session.cloned(), owner.cloned());
    let refused = ErasedRecord { until: erased_until(app), session, owner, is_reusable: false };
    let runs = logs.iter().filter(|log| log.kind() == LogKind::Run);
    let entries: Vec<_> = runs.map(|log| EntryChange::set(&ErasedRecord::key(log), &refused)).collect();
    if !entries.is_empty() {
        append(app, entries, &[]).await?;
    }
    for log in logs {
        erase_log(app, log).await?;
    }
    sweep_about(app, logs).await
}

/// The removal of the push addresses of these runs.
fn pushes_of(app: &App, runs: &HashSet<&LogId>) -> Vec<EntryChange> {
    let pushes = app.logs.server_state().all::<TaskPush>("").into_iter();
    let pushes = pushes.filter(|(_, push)| runs.contains(&LogId::Run(push.task.clone())));
    pushes.map(|(id, _)| EntryChange::remove::<TaskPush>(&id)).collect()
}

/// Removes what the server keeps about erased logs, and about erased sessions: share links, push addresses, deliveries.
async fn sweep_about(app: &App, logs: &[LogId]) -> Result<(), StoreError> {
    let erased: HashSet<&LogId> = logs.iter().collect();
    app.links.remove_of(|log| erased.contains(log)).await?;
    let is_about = |Notification { event, .. }: &Notification| {
        let session = event.session.clone().map(LogId::Session);
        erased.contains(&event.log) || session.is_some_and(|session| erased.contains(&session))
    };
    let deliveries = app.logs.server_state().all::<Notification>("").into_iter();
    let keys: Vec<_> = deliveries.filter(|(_, delivery)| is_about(delivery)).map(|(key, _)| key).collect();
    let mut gone = pushes_of(app, &erased);
    gone.extend(keys.iter().map(|key| EntryChange::remove::<Notification>(key)));
    if gone.is_empty() {
        return Ok(());
    }
    append(app, gone, &[]).await?;
    for key in &keys {
        app.notifier.delivery_changed(key);
    }
    Ok(())
}

/// Ends the session's runs at work: by their runtimes, and those that no runtime ends, by settling them.
async fn stop_runs(app: &Arc<App>, session: &SessionId) -> Result<(), StoreError> {
    let until = Instant::now() + STOP_TIME_MAX;
    let mut stopping = JoinSet::new();
    for run in app.logs.sessions().runs_of(session) {
        let log = app.logs.log(&LogId::Run(run.clone())).await;
        // A log that cannot be read has no runtime that could go on with it.
        let Ok(log) = log else { continue };
        if log.tail().epoch.is_some() && !log.tail().summary.run.status.is_end() {
            let app = app.clone();
            stopping.spawn(async move { stop_run(&app, run, until).await });
        }
    }
    while let Some(stopped) = stopping.join_next().await {
        stopped.expect("stopping a run panicked")?;
    }
    Ok(())
}

async fn stop_run(app: &App, run: RunId, until: Instant) -> Result<(), StoreError> {
    let id = LogId::Run(run.clone());
    let log = app.logs.log(&id).await?;
    let agent = log.tail().summary.agent.clone().unwrap_or_else(|| DEFAULT_AGENT.parse().expect("the default agent has an id"));
    if has_owner(app, &agent) {
        let by = Requester {
            audience: Audience::Internal,
            has_session: true,
            owner: BeginOwner::default(),
            scope: None,
            decider: Decider::anonymous(Via::Rule),
        };
        let interrupt = ControlRequest::of(Control::Interrupt, BTreeMap::new());
        // A run that takes no interrupt is settled.
        if app.controls.submit(&app.logs, &app.ingest, &id, &interrupt, &by).await.is_ok() {
            while Instant::now() < until && !log.tail().summary.run.status.is_end() {
                tokio::time::sleep(STOP_POLL_INTERVAL).await;
            }
        }
    }
    let verdict = Verdict::Settled { code: "erased", message: "the session of the run is being erased".into() };
    app.ingest.declare(&run, &verdict, None).await.map(drop)
}

/// Whether a worker or a connector takes the controls of an agent.
fn has_owner(app: &App, agent: &AgentId) -> bool {
    app.logs.queues().agents().get(agent).copied().unwrap_or(false)
}

async fn erase_owner(app: &Arc<App>, owner: &OwnerId, created: u64) -> Result<(), StoreError> {
    loop {
        let sessions = app.logs.sessions().list_of(owner, Some(created + 1), SESSIONS_AT_ONCE);
        let targets: Vec<_> = sessions.into_iter().map(|(_, session)| ErasureTarget::Session(session)).collect();
        if targets.is_empty() {
            break;
        }
        // Nothing of the owner was held when its erasure began, and nothing can be until it ends.
        begin_batch(app, &targets, &[]).await?;
        complete(app, &targets).await?;
    }
    let mut before = Some(created + 1);
    loop {
        let listed = app.logs.list(LogKind::Run, before, LIST_PAGE_RUNS).await?;
        before = listed.last().map(|last| last.created);
        let is_last = listed.len() < LIST_PAGE_RUNS;
        let is_owned = |summary: &Summary| summary.session_id.is_none() && summary.extension.owner.as_ref() == Some(owner);
        let owned = listed.into_iter().filter(|listed| Summary::from_listed(listed).is_some_and(|summary| is_owned(&summary)));
        let owned: Vec<_> = owned.map(|listed| listed.log).collect();
        erase_logs(app, &owned, None, Some(owner)).await?;
        if is_last {
            break;
        }
    }
    append(app, vec![EntryChange::remove::<ErasureRecord>(&ErasureTarget::Owner(owner.clone()).key())], &[]).await
}

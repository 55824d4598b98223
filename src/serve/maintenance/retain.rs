//! Retention: the leader does what the rules of `[[retention]]` are due for.
//!
//! [`due`](super::due) finds it. This module does it, in bounded steps with rests: an erasure goes the way of a request to
//! erase ([`erase`](super::erase)), and a compaction that of `--compact-after` ([`compact`](super::compact)). Nothing of a
//! look is kept: after a crash, or with another leader, the next look finds the rest.

use super::compact::Compactor;
use super::due::{DueItem, DueItems, DueTarget, is_run_due, tree_due};
use super::ended_runs::rest_after;
use super::erase::{EraseError, SESSIONS_AT_ONCE, begin_if, complete, erase_runs_if};
use crate::audit::{AuditEntry, Deed};
use crate::log::erased::ErasureTarget;
use crate::log::{LogId, StoreError};
use crate::meter::{Counter, Gauge};
use crate::model::decided_by::{Decider, Via};
use crate::model::{RunId, SessionId};
use crate::retention_rules::RetentionRules;
use crate::serve::App;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The time between two looks: a quarter of the shortest `after` of a rule, within this range.
const LOOK_INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(10);
/// Runs without a session that one step erases.
const RUNS_AT_ONCE: usize = 64;

/// The rules of retention of one server, and what they did.
#[derive(Default)]
pub struct Retention {
    pub rules: Arc<RetentionRules>,
    /// By the rules' places in the list.
    pub counts: Vec<RuleCounts>,
    /// Held by a dry run, so that one at a time looks at everything.
    pub looking: tokio::sync::Mutex<()>,
}

/// What a rule did on this node, and what it was due for at its last look.
#[derive(Debug, Default)]
pub struct RuleCounts {
    pub erased_sessions: Counter,
    pub erased_runs: Counter,
    pub compacted_runs: Counter,
    /// Sessions with those below them, and runs, that a hold keeps.
    pub held: Gauge,
    /// The same, that wait for their erasure or compaction.
    pub due: Gauge,
    /// For how long the first of them has been due, in milliseconds.
    pub overdue_ms: Gauge,
}

impl Retention {
    #[must_use]
    pub fn new(rules: RetentionRules) -> Self {
        let counts = rules.0.iter().map(|_| RuleCounts::default()).collect();
        Self { rules: Arc::new(rules), counts, looking: tokio::sync::Mutex::default() }
    }
}

/// What one look found of a rule.
#[derive(Debug, Default, Clone, Copy)]
struct Look {
    held: u64,
    /// Found and not done yet.
    due: u64,
    overdue_ms: i64,
}

/// The task.
pub struct Retainer {
    app: Arc<App>,
    looks: Vec<Look>,
    /// What is under way: the erasures of sessions.
    erasing: Vec<ErasureTarget>,
}

impl Retainer {
    pub(in crate::serve) fn new(app: Arc<App>) -> Self {
        Self { app, looks: Vec::new(), erasing: Vec::new() }
    }

    /// Works while this node leads, until the task is aborted.
    pub(in crate::serve) async fn run(mut self) {
        let shortest = self.app.retention.rules.0.iter().map(|rule| rule.after).min().unwrap_or(*LOOK_INTERVAL.end());
        loop {
            if !self.app.logs.leadership().leads() {
                self.looks.clear();
                self.show_looks();
                tokio::time::sleep(*LOOK_INTERVAL.start()).await;
                continue;
            }
            if let Err(error) = self.look().await {
                // A failure of the store stops the server elsewhere; with another leader, that one looks.
                tracing::warn!(%error, "cannot do what the rules of retention say");
                self.erasing.clear();
            }
            tokio::time::sleep((shortest / 4).clamp(*LOOK_INTERVAL.start(), *LOOK_INTERVAL.end())).await;
        }
    }

    /// Looks at everything once, and does what is due.
    async fn look(&mut self) -> Result<(), StoreError> {
        self.looks = vec![Look::default(); self.app.retention.rules.0.len()];
        let mut findings = DueItems::new(self.app.clone(), self.app.retention.rules.clone());
        while let Some(page) = findings.next().await? {
            let now = self.now();
            for finding in &page {
                let rule = &self.app.retention.rules.0[finding.rule];
                let look = &mut self.looks[finding.rule];
                match finding.hold {
                    Some(_) => look.held += 1,
                    None => {
                        look.due += 1;
                        look.overdue_ms = look.overdue_ms.max(now.saturating_sub(rule.due_at(finding.last_activity)));
                    }
                }
            }
            self.show_looks();
            self.act(page.into_iter().filter(|finding| finding.hold.is_none())).await?;
        }
        self.finish_erasures().await?;
        for look in self.looks.iter_mut().filter(|look| look.due == 0) {
            look.overdue_ms = 0;
        }
        self.show_looks();
        Ok(())
    }

    fn now(&self) -> i64 {
        (self.app.environment.now)().as_millisecond()
    }

    fn show_looks(&self) {
        for (at, counts) in self.app.retention.counts.iter().enumerate() {
            let look = self.looks.get(at).copied().unwrap_or_default();
            counts.held.set(look.held);
            counts.due.set(look.due);
            counts.overdue_ms.set(u64::try_from(look.overdue_ms).unwrap_or(0));
        }
    }

    async fn act(&mut self, findings: impl Iterator<Item = DueItem>) -> Result<(), StoreError> {
        let mut runs: Vec<(usize, RunId)> = Vec::new();
        for DueItem { rule, found, .. } in findings {
            let started = Instant::now();
            match found {
                DueTarget::Tree { root, sessions, runs } => self.erase_tree(rule, &root, &sessions, runs).await?,
                DueTarget::EndedRun(run) => self.compact(rule, run).await?,
                DueTarget::Run(run) => {
                    if runs.len() == RUNS_AT_ONCE || runs.first().is_some_and(|(of, _)| *of != rule) {
                        self.erase_runs(std::mem::take(&mut runs)).await?;
                    }
                    runs.push((rule, run));
                }
            }
            // At most half of the time is work.
            rest_after(started).await;
        }
        self.erase_runs(runs).await
    }

    /// Who erases: the rule.
    fn entry(&self, rule: usize) -> AuditEntry {
        let name = self.app.retention.rules.0[rule].name.clone();
        let by = Decider { name: Some(name), ..Decider::anonymous(Via::Rule) };
        AuditEntry::new(Deed::Erase, by, (self.app.environment.now)())
    }

    async fn erase_tree(&mut self, rule: usize, root: &SessionId, sessions: &[SessionId], runs: usize) -> Result<(), StoreError> {
        let entry = self.entry(rule);
        let audit: Vec<_> = sessions.iter().map(|session| entry.clone().about(&LogId::Session(session.clone()))).collect();
        let (app, rules) = (&self.app, &self.app.retention.rules);
        let is_due = || {
            let now = (app.environment.now)().as_millisecond();
            let due = tree_due(app, rules, root, now);
            due.is_some_and(|due| {
                due.rule == rule && matches!(&due.found, DueTarget::Tree { sessions: tree, .. } if tree == sessions)
            })
        };
        match begin_if(app, sessions, &audit, is_due).await {
            // The next look judges it again.
            Ok(false) | Err(EraseError::Held(_) | EraseError::RunHeld(_)) => return Ok(()),
            Ok(true) => {}
            Err(EraseError::Store(error)) => return Err(error),
        }
        let counts = &self.app.retention.counts[rule];
        counts.erased_sessions.add(sessions.len() as u64);
        counts.erased_runs.add(runs as u64);
        self.looks[rule].due = self.looks[rule].due.saturating_sub(1);
        self.erasing.extend(sessions.iter().cloned().map(ErasureTarget::Session));
        if self.erasing.len() >= SESSIONS_AT_ONCE {
            self.finish_erasures().await?;
        }
        Ok(())
    }

    /// Waits for the erasures of sessions, so that few are under way.
    async fn finish_erasures(&mut self) -> Result<(), StoreError> {
        let erasing = std::mem::take(&mut self.erasing);
        complete(&self.app, &erasing).await
    }

    async fn erase_runs(&mut self, runs: Vec<(usize, RunId)>) -> Result<(), StoreError> {
        let Some((rule, _)) = runs.first().cloned() else { return Ok(()) };
        let runs: Vec<_> = runs.into_iter().map(|(_, run)| run).collect();
        let entry = self.entry(rule);
        let (app, of) = (self.app.clone(), self.app.retention.rules.0[rule].clone());
        let is_due = |summary: &_| is_run_due(&of, summary, (app.environment.now)().as_millisecond());
        let erased = erase_runs_if(&self.app, &runs, |log| entry.clone().about(log), is_due).await?;
        self.app.retention.counts[rule].erased_runs.add(erased as u64);
        self.looks[rule].due = self.looks[rule].due.saturating_sub(erased as u64);
        Ok(())
    }

    async fn compact(&mut self, rule: usize, run: RunId) -> Result<(), StoreError> {
        let compactor = Compactor::new(self.app.clone(), self.app.retention.rules.0[rule].after);
        // A task of its own, so that dropping this future does not stop a step halfway.
        let compacting = tokio::spawn(async move { compactor.compact_run(&LogId::Run(run)).await });
        match compacting.await.expect("the compaction task panicked") {
            Ok(Some(_)) => {}
            // It got a fact or a hold meanwhile, or was archived.
            Ok(None) => return Ok(()),
            Err(error) if error.affects_one_log() => {
                tracing::error!(%error, "cannot compact a run");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.app.retention.counts[rule].compacted_runs.add(1);
        self.looks[rule].due = self.looks[rule].due.saturating_sub(1);
        Ok(())
    }
}

//! How runs ended: their numbers and their durations by agent, of the ends that this process committed.

use super::run_index::millis;
use super::summary::Summary;
use crate::model::AgentId;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The upper bounds of durations, in seconds: a second to a week.
pub const RUN_BOUNDS_SECS: [u32; 10] = [1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400, 604_800];
/// Agents that are counted by name. Those that come later, and runs without an agent, have an empty name.
pub const COUNTED_AGENTS_MAX: usize = 100;

/// How the runs of one agent ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentOutcomes {
    /// By status.
    pub ended: BTreeMap<&'static str, u64>,
    /// One for each bound, and one for longer runs; not cumulative.
    pub durations: [u64; RUN_BOUNDS_SECS.len() + 1],
    /// The sum of the durations, in milliseconds.
    pub took_ms: u64,
}

/// How the runs of each agent ended.
#[derive(Default)]
pub struct RunOutcomes(Mutex<BTreeMap<Box<str>, AgentOutcomes>>);

impl RunOutcomes {
    /// Counts a run if it ends with this commit. `before` is `None` for a new one.
    pub fn apply(&self, before: Option<&Summary>, now: &Summary) {
        let had_ended = before.is_some_and(|before| before.run.status.is_end() && before.run.attempt == now.run.attempt);
        if had_ended || !now.run.status.is_end() {
            return;
        }
        let (started, ended) = (millis(now.started_at.as_deref()), millis(now.ended_at.as_deref()));
        // A run that began without a start has no time of it.
        let took_ms = if started > 0 { u64::try_from(ended - started).unwrap_or(0) } else { 0 };
        let mut all = self.0.lock();
        let agent = now.agent.as_ref().map_or("", AgentId::as_str);
        let is_counted = all.contains_key(agent) || all.len() < COUNTED_AGENTS_MAX;
        let of = all.entry(if is_counted { agent.into() } else { "".into() }).or_default();
        *of.ended.entry(now.run.status.as_str()).or_default() += 1;
        of.durations[RUN_BOUNDS_SECS.partition_point(|bound| u64::from(*bound) * 1000 < took_ms)] += 1;
        of.took_ms += took_ms;
    }

    /// The agents by name, each with how its runs ended.
    #[must_use]
    pub fn all(&self) -> Vec<(Box<str>, AgentOutcomes)> {
        self.0.lock().iter().map(|(agent, of)| (agent.clone(), of.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ledger::{RunState, Status};

    fn summary(agent: &str, status: Status, attempt: u32) -> Summary {
        let run = RunState { status, attempt, ..RunState::default() };
        let [started_at, ended_at] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:05.001Z"].map(|at| Some(at.into()));
        Summary { agent: AgentId::new(agent).ok(), run, started_at, ended_at, ..Summary::default() }
    }

    #[test]
    fn a_run_counts_once_for_each_attempt_that_ends() {
        let outcomes = RunOutcomes::default();
        let [running, failed, again, done] =
            [(Status::Running, 1), (Status::Failed, 1), (Status::Running, 2), (Status::Completed, 2)]
                .map(|(status, attempt)| summary("coder", status, attempt));
        let steps = [
            (None, &running),
            (Some(&running), &failed),
            (Some(&failed), &failed),
            (Some(&failed), &again),
            (Some(&again), &done),
        ];
        for (before, now) in steps {
            outcomes.apply(before, now);
        }
        let [(agent, of)] = &outcomes.all()[..] else { panic!("one agent") };
        assert_eq!((&**agent, of.took_ms, of.durations[2]), ("coder", 2 * 5001, 2));
        assert_eq!(of.ended, BTreeMap::from([("completed", 1), ("failed", 1)]));
    }

    #[test]
    fn agents_beyond_the_limit_share_one_name() {
        let outcomes = RunOutcomes::default();
        for n in 0..COUNTED_AGENTS_MAX + 5 {
            outcomes.apply(None, &summary(&format!("agent-{n:04}"), Status::Completed, 1));
        }
        let all = outcomes.all();
        assert_eq!((all.len(), &*all[0].0, all[0].1.ended["completed"]), (COUNTED_AGENTS_MAX + 1, "", 5));
    }
}

//! The active runs.
//!
//! Runs that no user decision holds up, so that silence of their producer means something.
//!
//! An in-memory index over the logs' summaries. The server reads it from the store at start; the applier updates it.
//! It costs one run id per active run. A run that waits or has ended costs nothing.

use super::LogId;
use super::summary::Summary;
use crate::model::RunId;
use parking_lot::Mutex;
use std::collections::HashSet;

/// The active runs of one store.
#[derive(Default)]
pub struct ActiveRuns {
    runs: Mutex<HashSet<RunId>>,
}

impl ActiveRuns {
    /// Replaces a log's previous summary by its new one. `before` is `None` for a new log.
    pub fn apply(&self, log: &LogId, before: Option<&Summary>, now: &Summary) {
        let LogId::Run(run) = log else { return };
        match (before.is_some_and(|before| before.run.can_go_stale()), now.run.can_go_stale()) {
            (false, true) => drop(self.runs.lock().insert(run.clone())),
            (true, false) => drop(self.runs.lock().remove(run)),
            _ => {}
        }
    }

    /// Removes an erased log.
    pub fn forget(&self, log: &LogId) {
        if let LogId::Run(run) = log {
            self.runs.lock().remove(run);
        }
    }

    /// The runs, unordered.
    #[must_use]
    pub fn runs(&self) -> Vec<RunId> {
        self.runs.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionId;
    use crate::source::ledger::{RunState, Status};

    #[test]
    fn a_run_is_listed_while_it_is_active_and_a_session_log_never_is() {
        let active_runs = ActiveRuns::default();
        let run = LogId::Run(RunId::new("r").unwrap());
        let summary_of = |status| Summary { run: RunState { status, ..RunState::default() }, ..Summary::default() };
        let mut before = None;
        let mut seen = Vec::new();
        for status in [Status::Unknown, Status::Accepted, Status::Running, Status::Waiting, Status::Running, Status::Failed] {
            let now = summary_of(status);
            active_runs.apply(&run, before.as_ref(), &now);
            seen.push(active_runs.runs().len());
            before = Some(now);
        }
        assert_eq!(seen, [0, 1, 1, 0, 1, 0]);
        active_runs.apply(&LogId::Session(SessionId::new("s").unwrap()), None, &summary_of(Status::Running));
        assert!(active_runs.runs().is_empty());
        active_runs.apply(&run, None, &summary_of(Status::Running));
        active_runs.forget(&run);
        assert!(active_runs.runs().is_empty());
    }
}

//! Which runs go on without anybody's decision: those whose silence means something.
//!
//! An index in memory of what the logs' summaries say, read from the store when it is opened and kept by the committer from
//! then on. It costs a run's id for as long as the run goes on; a run that waits or has ended costs nothing.

use super::LogId;
use super::run::Summary;
use crate::model::RunId;
use parking_lot::Mutex;
use std::collections::HashSet;

/// The runs of one store that go on.
#[derive(Default)]
pub struct Ongoing {
    runs: Mutex<HashSet<RunId>>,
}

impl Ongoing {
    /// Takes in what a log says now, and no longer what it said `before`, if it was there.
    pub fn note(&self, log: &LogId, before: Option<&Summary>, now: &Summary) {
        let LogId::Run(run) = log else { return };
        match (before.is_some_and(|before| before.run.ages()), now.run.ages()) {
            (false, true) => drop(self.runs.lock().insert(run.clone())),
            (true, false) => drop(self.runs.lock().remove(run)),
            _ => {}
        }
    }

    /// Forgets a log that was erased.
    pub fn forget(&self, log: &LogId) {
        if let LogId::Run(run) = log {
            self.runs.lock().remove(run);
        }
    }

    /// The runs, in no order.
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
    fn a_run_is_there_while_it_goes_on_and_a_session_s_own_log_never_is() {
        let ongoing = Ongoing::default();
        let run = LogId::Run(RunId::new("r").unwrap());
        let says = |status| Summary { run: RunState { status, ..RunState::default() }, ..Summary::default() };
        let mut before = None;
        let mut seen = Vec::new();
        for status in [Status::Unknown, Status::Accepted, Status::Running, Status::Waiting, Status::Running, Status::Failed] {
            let now = says(status);
            ongoing.note(&run, before.as_ref(), &now);
            seen.push(ongoing.runs().len());
            before = Some(now);
        }
        assert_eq!(seen, [0, 1, 1, 0, 1, 0]);
        ongoing.note(&LogId::Session(SessionId::new("s").unwrap()), None, &says(Status::Running));
        assert!(ongoing.runs().is_empty());
        ongoing.note(&run, None, &says(Status::Running));
        ongoing.forget(&run);
        assert!(ongoing.runs().is_empty());
    }
}

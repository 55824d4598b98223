//! The deadlines of pending actions, ordered by time.
//!
//! An in-memory index over the logs' summaries. The server reads it from the store at start, so that it also finds the
//! deadlines that passed while it was down; the applier updates it. It costs two ids and two numbers per deadline, of at
//! most [`PENDING_ACTIONS_MAX`](super::control::PENDING_ACTIONS_MAX) actions per log.

use super::LogId;
use super::summary::Summary;
use crate::model::ActionId;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use tokio::sync::broadcast;

/// Expired actions that a slow subscriber may still receive.
const ANNOUNCED_MAX: usize = 4096;

/// A pending action of a log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionOfLog {
    pub log: LogId,
    pub action: ActionId,
}

/// The deadlines of one store. Times are milliseconds since 1970.
pub struct Deadlines {
    inner: Mutex<DeadlineTable>,
    expired: broadcast::Sender<ActionOfLog>,
}

#[derive(Default)]
struct DeadlineTable {
    /// The actions by the time of their next check.
    by_time: BTreeSet<(i64, ActionOfLog)>,
    actions: HashMap<ActionOfLog, Deadline>,
}

struct Deadline {
    at: i64,
    /// Later than the deadline for an action that an owner has answered.
    check_at: i64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { inner: Mutex::default(), expired: broadcast::Sender::new(ANNOUNCED_MAX) }
    }
}

impl Deadlines {
    /// Replaces a log's previous summary by its new one. `before` is `None` for a new log.
    pub fn apply(&self, log: &LogId, before: Option<&Summary>, now: &Summary) {
        let before = before.map_or(&[][..], |before| &before.pending_actions);
        if before == now.pending_actions {
            return;
        }
        let of_log = |action: &ActionId| ActionOfLog { log: log.clone(), action: action.clone() };
        let mut inner = self.inner.lock();
        let pending: HashSet<_> = now.pending_actions.iter().map(|pending| &pending.action).collect();
        for gone in before.iter().filter(|before| !pending.contains(&before.action)) {
            inner.remove(&of_log(&gone.action));
        }
        for pending in &now.pending_actions {
            inner.set(of_log(&pending.action), pending.expires_at);
        }
    }

    /// Removes the deadlines of an erased log.
    pub fn forget(&self, log: &LogId) {
        let mut inner = self.inner.lock();
        inner.by_time.retain(|(_, action)| action.log != *log);
        inner.actions.retain(|action, _| action.log != *log);
    }

    /// Up to `max` actions whose deadline or next check has passed, the oldest first.
    #[must_use]
    pub fn due(&self, now: i64, max: usize) -> Vec<ActionOfLog> {
        let inner = self.inner.lock();
        inner.by_time.iter().take_while(|(at, _)| *at <= now).take(max).map(|(_, action)| action.clone()).collect()
    }

    /// Checks an action again at a later time.
    pub fn postpone(&self, action: &ActionOfLog, until: i64) {
        let mut inner = self.inner.lock();
        let DeadlineTable { by_time, actions } = &mut *inner;
        if let Some(deadline) = actions.get_mut(action) {
            by_time.remove(&(deadline.check_at, action.clone()));
            deadline.check_at = until;
            by_time.insert((until, action.clone()));
        }
    }

    /// Tells the subscribers that the server resolved an action as expired.
    pub fn announce(&self, action: ActionOfLog) {
        // It fails without subscribers.
        let _ = self.expired.send(action);
    }

    /// The actions that the server resolves as expired from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<ActionOfLog> {
        self.expired.subscribe()
    }
}

impl DeadlineTable {
    fn set(&mut self, action: ActionOfLog, at: Option<i64>) {
        if self.actions.get(&action).map(|known| known.at) == at {
            return;
        }
        self.remove(&action);
        if let Some(at) = at {
            self.by_time.insert((at, action.clone()));
            self.actions.insert(action, Deadline { at, check_at: at });
        }
    }

    fn remove(&mut self, action: &ActionOfLog) {
        if let Some(deadline) = self.actions.remove(action) {
            self.by_time.remove(&(deadline.check_at, action.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::control::PendingAction;
    use crate::model::RunId;

    fn action(id: &str) -> ActionId {
        ActionId::new(id).unwrap()
    }

    fn summary_of(actions: &[(&str, Option<i64>)]) -> Summary {
        let pending = |(id, expires_at): &(&str, Option<i64>)| PendingAction {
            action: action(id),
            agent: None,
            kind: None,
            expires_at: *expires_at,
            options: Vec::new(),
        };
        Summary { pending_actions: actions.iter().map(pending).collect(), ..Summary::default() }
    }

    fn due(deadlines: &Deadlines, now: i64) -> Vec<String> {
        deadlines.due(now, 9).into_iter().map(|due| due.action.to_string()).collect()
    }

    #[test]
    fn the_index_follows_the_pending_actions_and_lists_those_that_are_due_by_time() {
        let (deadlines, log) = (Deadlines::default(), LogId::Run(RunId::new("r").unwrap()));
        let first = summary_of(&[("late", Some(30)), ("soon", Some(10)), ("never", None)]);
        deadlines.apply(&log, None, &first);
        assert_eq!((due(&deadlines, 9), due(&deadlines, 10)), (vec![], vec!["soon".into()]));
        assert_eq!(due(&deadlines, 30), ["soon", "late"]);
        let second = summary_of(&[("late", Some(5)), ("never", Some(20))]);
        deadlines.apply(&log, Some(&first), &second);
        assert_eq!(due(&deadlines, 30), ["late", "never"]);
        let late = ActionOfLog { log: log.clone(), action: action("late") };
        deadlines.postpone(&late, 40);
        assert_eq!((due(&deadlines, 30), due(&deadlines, 40)), (vec!["never".into()], vec!["never".into(), "late".into()]));
        deadlines.apply(&log, Some(&second), &summary_of(&[("never", Some(20))]));
        assert_eq!(due(&deadlines, 99), ["never"]);
        deadlines.forget(&log);
        let inner = deadlines.inner.lock();
        assert!(inner.by_time.is_empty() && inner.actions.is_empty(), "no trace of the log is left");
    }
}

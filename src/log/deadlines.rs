//! The deadlines of pending actions, and the steps of rules on them, ordered by time.
//!
//! An in-memory index over the logs' summaries. The server reads it from the store at start, so that it also finds what
//! fell due while it was down; the applier updates it. It costs what rules must know per pending action, of at most [`PENDING_ACTIONS_MAX`](super::control::PENDING_ACTIONS_MAX) actions per log.

use super::LogId;
use super::summary::Summary;
use crate::environment::sabotage;
use crate::model::ActionId;
use crate::waits::{WaitRules, WaitingAction};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
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
    rules: Arc<WaitRules>,
    /// The actions by the time of their next check.
    by_time: BTreeSet<(i64, ActionOfLog)>,
    actions: HashMap<ActionOfLog, Deadline>,
}

struct Deadline {
    action: WaitingAction,
    /// Later than what is due, for an action that an owner has answered. `None`: nothing will be due.
    check_at: Option<i64>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { inner: Mutex::default(), expired: broadcast::Sender::new(ANNOUNCED_MAX) }
    }
}

impl Deadlines {
    /// Replaces a log's previous summary by its new one. `before` is `None` for a new log.
    pub fn apply(&self, log: &LogId, before: Option<&Summary>, now: &Summary) {
        let is_same = |before: &Summary| {
            before.pending_actions == now.pending_actions
                && before.extension.actions == now.extension.actions
                && before.agent == now.agent
        };
        if before.map_or_else(|| now.pending_actions.is_empty() || sabotage::is(51), is_same) {
            return;
        }
        let before = before.map_or(&[][..], |before| &before.pending_actions);
        let of_log = |action: &ActionId| ActionOfLog { log: log.clone(), action: action.clone() };
        let mut inner = self.inner.lock();
        let pending: HashSet<_> = now.pending_actions.iter().map(|pending| &pending.action).collect();
        for gone in before.iter().filter(|before| !pending.contains(&before.action)) {
            inner.remove(&of_log(&gone.action));
        }
        for pending in &now.pending_actions {
            inner.set(of_log(&pending.action), now.waiting(pending));
        }
    }

    /// Removes the deadlines of an erased log.
    pub fn forget(&self, log: &LogId) {
        let mut inner = self.inner.lock();
        inner.by_time.retain(|(_, action)| action.log != *log);
        inner.actions.retain(|action, _| action.log != *log);
    }

    /// Sets the rules for actions that wait.
    pub fn set_rules(&self, rules: WaitRules) {
        let mut inner = self.inner.lock();
        inner.rules = Arc::new(rules);
        for (action, deadline) in std::mem::take(&mut inner.actions) {
            deadline.check_at.map(|at| inner.by_time.remove(&(at, action.clone())));
            inner.set(action, deadline.action);
        }
    }

    /// The rules for actions that wait.
    #[must_use]
    pub fn rules(&self) -> Arc<WaitRules> {
        self.inner.lock().rules.clone()
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
        let DeadlineTable { by_time, actions, .. } = &mut *inner;
        if let Some(deadline) = actions.get_mut(action) {
            deadline.check_at.map(|at| by_time.remove(&(at, action.clone())));
            deadline.check_at = Some(until);
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
    fn set(&mut self, action: ActionOfLog, waiting: WaitingAction) {
        if self.actions.get(&action).is_some_and(|known| known.action == waiting) {
            return;
        }
        self.remove(&action);
        let check_at = self.rules.next_at(&waiting);
        self.by_time.extend(check_at.map(|at| (at, action.clone())));
        self.actions.insert(action, Deadline { action: waiting, check_at });
    }

    fn remove(&mut self, action: &ActionOfLog) {
        if let Some(Deadline { check_at: Some(at), .. }) = self.actions.remove(action) {
            self.by_time.remove(&(at, action.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::control::{PendingAction, PendingDetail};
    use crate::model::{RunId, Sequence};

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

    #[test]
    fn rules_that_are_set_later_make_steps_of_the_actions_that_wait() {
        let (deadlines, log) = (Deadlines::default(), LogId::Run(RunId::new("r").unwrap()));
        let mut summary = summary_of(&[("a", None)]);
        let detail = |asked_at| PendingDetail { asked_at, sequence: Sequence(1), control: None, options: Vec::new(), wait: None };
        summary.extension.actions.insert(action("a"), detail(1000));
        deadlines.apply(&log, None, &summary);
        assert_eq!(due(&deadlines, i64::MAX), [""; 0]);
        let rule = serde_json::from_str(r#"{"after": 2, "then": "remind"}"#).unwrap();
        deadlines.set_rules(WaitRules::new(vec![rule], |_| false, true).unwrap());
        assert_eq!((due(&deadlines, 2999), due(&deadlines, 3000)), (vec![], vec!["a".into()]));
        let mut decided = summary.clone();
        decided.extension.actions.get_mut(&action("a")).unwrap().control = "c".parse().ok();
        deadlines.apply(&log, Some(&summary), &decided);
        assert_eq!(due(&deadlines, i64::MAX), [""; 0], "a step stops with the decision");
    }
}

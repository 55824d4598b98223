//! The pending actions of all logs.
//!
//! An in-memory index over the logs' summaries. The server reads it from the store at start; the applier updates it. It
//! costs one entry per remembered action ([`PENDING_ACTIONS_MAX`](super::control::PENDING_ACTIONS_MAX) of each log).
//!
//! It answers which messages must wait: see [`PendingActions::holds_back`]. It lists what waits for a person, oldest
//! first.

use super::LogId;
use super::summary::Summary;
use crate::model::{ActionId, AgentId, Audience, ControlId, OwnerId, RunId, Sequence, SessionId};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::Bound;
use std::sync::Arc;

/// The place of an action among all pending ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActionPlace {
    pub asked_at: i64,
    pub log: LogId,
    pub sequence: Sequence,
    pub action: ActionId,
}

/// One pending action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAction {
    pub log: LogId,
    pub session: Option<SessionId>,
    /// Whose the log is.
    pub owner: Option<OwnerId>,
    pub action: ActionId,
    /// The agent that takes the decision.
    pub agent: AgentId,
    /// The widest audience that sees the action.
    pub audience: Audience,
    /// In milliseconds since 1970.
    pub asked_at: i64,
    /// The envelope that asked.
    pub sequence: Sequence,
    /// The decision under way.
    pub control: Option<ControlId>,
}

impl OpenAction {
    /// Its place among all pending actions.
    #[must_use]
    pub fn place(&self) -> ActionPlace {
        let Self { asked_at, log, sequence, action, .. } = self;
        ActionPlace { asked_at: *asked_at, log: log.clone(), sequence: *sequence, action: action.clone() }
    }
}

/// The pending actions of one store.
#[derive(Default)]
pub struct PendingActions {
    inner: RwLock<PendingTable>,
}

#[derive(Default)]
struct PendingTable {
    logs: HashMap<LogId, AskingLog>,
    /// The logs with pending actions, by scope.
    scopes: HashMap<LogId, BTreeSet<LogId>>,
    /// Those with an owner, by owner.
    owners: HashMap<OwnerId, BTreeSet<LogId>>,
    by_place: BTreeMap<ActionPlace, Arc<OpenAction>>,
    /// The actions without a decision under way, per audience.
    unanswered: [u64; 3],
}

/// A log with pending actions.
#[derive(PartialEq, Eq)]
struct AskingLog {
    scope: LogId,
    session: Option<SessionId>,
    owner: Option<OwnerId>,
    actions: Vec<Arc<OpenAction>>,
    /// Pending actions beyond the remembered ones, per audience. The log's own agent takes the decisions.
    others: [u64; 3],
    own_agent: AgentId,
    /// The actions without a decision under way, per audience.
    unanswered: [u64; 3],
}

/// What a log no longer asks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// The scope in which it asked: messages there may have become free.
    pub freed: Option<LogId>,
    pub closed: Vec<Arc<OpenAction>>,
}

impl AskingLog {
    /// `None` for a log without pending actions.
    fn of(log: &LogId, summary: &Summary) -> Option<Self> {
        if summary.run.pending.is_empty() {
            return None;
        }
        let session = match log {
            LogId::Session(id) => Some(id.clone()),
            LogId::Run(_) => summary.session_id.clone(),
        };
        let owner = summary.extension.owner.clone();
        let asked = summary.pending_actions.iter().map(|pending| {
            let detail = summary.extension.actions.get(&pending.action);
            Arc::new(OpenAction {
                log: log.clone(),
                session: session.clone(),
                owner: owner.clone(),
                agent: summary.decider(pending.agent.as_ref()),
                audience: summary.audience_of_pending(&pending.action),
                // A store of an earlier version has no detail: its actions are the oldest.
                asked_at: detail.map_or(0, |detail| detail.asked_at),
                sequence: detail.map_or(Sequence::NONE, |detail| detail.sequence),
                control: detail.and_then(|detail| detail.control.clone()),
                action: pending.action.clone(),
            })
        });
        let actions: Vec<_> = asked.collect();
        let others = Audience::ALL.map(|audience| {
            let remembered = actions.iter().filter(|asked| audience.admits(asked.audience)).count();
            summary.run_for(audience).pending.len().saturating_sub(remembered) as u64
        });
        let unanswered = Audience::ALL.map(|audience| summary.unanswered(audience) as u64);
        let (scope, own_agent) = (summary.scope(log), summary.decider(None));
        Some(Self { scope, session, owner, actions, others, own_agent, unanswered })
    }

    fn asks(&self, agent: &AgentId) -> bool {
        self.actions.iter().any(|asked| asked.agent == *agent) || self.others != [0; 3] && self.own_agent == *agent
    }
}

impl PendingActions {
    /// Updates a log. `None`: its pending actions are the same.
    pub fn apply(&self, log: &LogId, now: &Summary) -> Option<Replaced> {
        let asking = AskingLog::of(log, now);
        if self.inner.read().logs.get(log) == asking.as_ref() {
            return None;
        }
        Some(self.inner.write().replace(log, asking))
    }

    /// Removes an erased log.
    pub fn forget(&self, log: &LogId) -> Replaced {
        self.inner.write().replace(log, None)
    }

    /// The remembered pending actions of a log.
    #[must_use]
    pub fn of_log(&self, log: &LogId) -> Vec<Arc<OpenAction>> {
        self.inner.read().logs.get(log).map_or_else(Vec::new, |asking| asking.actions.clone())
    }

    /// Whether an action of this agent is pending in the scope, so that a message to the agent must wait.
    #[must_use]
    pub fn holds_back(&self, scope: &LogId, agent: &AgentId) -> bool {
        let inner = self.inner.read();
        inner.logs_of(scope).any(|asking| asking.asks(agent))
    }

    /// The remembered pending actions of an agent in a scope, log by log.
    #[must_use]
    pub fn of_agent(&self, scope: &LogId, agent: &AgentId) -> Vec<Arc<OpenAction>> {
        let inner = self.inner.read();
        inner.logs_of(scope).flat_map(|asking| &asking.actions).filter(|asked| asked.agent == *agent).cloned().collect()
    }

    /// Up to `limit` actions after a place, oldest first.
    #[must_use]
    pub fn list(&self, after: Option<&ActionPlace>, limit: usize) -> Vec<Arc<OpenAction>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.inner
            .read()
            .by_place
            .range::<ActionPlace, _>((from, Bound::Unbounded))
            .take(limit)
            .map(|(_, asked)| asked.clone())
            .collect()
    }

    /// The number of actions that an audience sees and that have no decision under way.
    #[must_use]
    pub fn unanswered(&self, audience: Audience) -> u64 {
        self.inner.read().unanswered[audience.index()]
    }

    /// The logs with pending actions of these owners, of these sessions, and among these runs.
    #[must_use]
    pub fn logs_among(&self, owners: &[OwnerId], sessions: &[SessionId], runs: &[RunId]) -> BTreeSet<LogId> {
        let inner = self.inner.read();
        let owned = owners.iter().filter_map(|owner| inner.owners.get(owner)).flatten();
        let of_sessions = sessions.iter().filter_map(|session| inner.scopes.get(&LogId::Session(session.clone()))).flatten();
        let named = runs.iter().filter_map(|run| inner.logs.get_key_value(&LogId::Run(run.clone()))).map(|(log, _)| log);
        owned.chain(of_sessions).chain(named).cloned().collect()
    }

    /// The number for an agent's actions, or in some logs only. `among`: where to look; `None`: in all, which takes time in
    /// proportion to their number.
    #[must_use]
    pub fn unanswered_where(
        &self,
        audience: Audience,
        agent: Option<&AgentId>,
        among: Option<&BTreeSet<LogId>>,
        covers: impl Fn(&LogId, Option<&SessionId>, Option<&OwnerId>) -> bool,
    ) -> u64 {
        let inner = self.inner.read();
        let is_agent = |of: &AgentId| agent.is_none_or(|agent| agent == of);
        let looked_at: Vec<(&LogId, &AskingLog)> = match among {
            None => inner.logs.iter().collect(),
            Some(among) => among.iter().filter_map(|log| inner.logs.get_key_value(log)).collect(),
        };
        let looked_at = looked_at.into_iter();
        let covered = looked_at.filter(|(log, asking)| covers(log, asking.session.as_ref(), asking.owner.as_ref()));
        let count = |asking: &AskingLog| {
            let open =
                |asked: &&Arc<OpenAction>| asked.control.is_none() && audience.admits(asked.audience) && is_agent(&asked.agent);
            let others = if is_agent(&asking.own_agent) { asking.others[audience.index()] } else { 0 };
            asking.actions.iter().filter(open).count() as u64 + others
        };
        covered.map(|(_, asking)| count(asking)).sum()
    }
}

impl PendingTable {
    fn logs_of(&self, scope: &LogId) -> impl Iterator<Item = &AskingLog> {
        self.scopes.get(scope).into_iter().flatten().filter_map(|log| self.logs.get(log))
    }

    /// Replaces what a log asks.
    fn replace(&mut self, log: &LogId, now: Option<AskingLog>) -> Replaced {
        let before = self.logs.remove(log);
        let asks = |action: &ActionId| now.iter().flat_map(|now| &now.actions).any(|asked| asked.action == *action);
        let asked_before = before.iter().flat_map(|before| &before.actions);
        let closed = asked_before.filter(|asked| !asks(&asked.action)).cloned().collect();
        if let Some(before) = &before {
            for (total, count) in self.unanswered.iter_mut().zip(before.unanswered) {
                *total -= count;
            }
            for asked in &before.actions {
                self.by_place.remove(&asked.place());
            }
            remove_from(&mut self.scopes, &before.scope, log);
            if let Some(owner) = &before.owner {
                remove_from(&mut self.owners, owner, log);
            }
        }
        if let Some(now) = now {
            for (total, count) in self.unanswered.iter_mut().zip(now.unanswered) {
                *total += count;
            }
            self.by_place.extend(now.actions.iter().map(|asked| (asked.place(), asked.clone())));
            self.scopes.entry(now.scope.clone()).or_default().insert(log.clone());
            if let Some(owner) = &now.owner {
                self.owners.entry(owner.clone()).or_default().insert(log.clone());
            }
            self.logs.insert(log.clone(), now);
        }
        Replaced { freed: before.map(|before| before.scope), closed }
    }
}

/// Removes a log from the logs of a key.
fn remove_from<K: Eq + Hash>(logs: &mut HashMap<K, BTreeSet<LogId>>, key: &K, log: &LogId) {
    if let Some(of_key) = logs.get_mut(key) {
        of_key.remove(log);
        if of_key.is_empty() {
            logs.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::control::{PendingAction, PendingDetail};
    use crate::model::{Draft, EventType};
    use crate::source::ledger::RunState;

    fn run(name: &str) -> LogId {
        LogId::Run(name.parse().unwrap())
    }

    /// A run of a session that asks these actions: their names, agents and times.
    fn asking(session: &str, asked: &[(&str, &str, i64)]) -> Summary {
        let mut summary = Summary { session_id: session.parse().ok(), ..Summary::default() };
        for (n, (action, agent, asked_at)) in asked.iter().enumerate() {
            let mut draft = Draft::new(EventType::ActionRequired).with_action(ActionId::new(action).unwrap());
            draft.ids.agent = agent.parse().ok();
            let pending = PendingAction::of(&draft).unwrap();
            summary.run.pending.insert(pending.action.as_str());
            let sequence = Sequence(n as u64 + 1);
            let detail = PendingDetail { asked_at: *asked_at, sequence, control: None, options: Vec::new(), wait: None };
            summary.extension.actions.insert(pending.action.clone(), detail);
            summary.pending_actions.push(pending);
        }
        summary
    }

    fn listed(pending: &PendingActions) -> Vec<String> {
        pending.list(None, 9).iter().map(|asked| asked.action.to_string()).collect()
    }

    #[test]
    fn an_agent_is_held_back_in_a_session_while_any_run_asks_for_it() {
        let (pending, session) = (PendingActions::default(), LogId::Session("s".parse().unwrap()));
        let holds = |agent: &str| pending.holds_back(&session, &agent.parse().unwrap());
        let freed = |replaced: Option<Replaced>| replaced.and_then(|replaced| replaced.freed);
        assert_eq!(freed(pending.apply(&run("r1"), &asking("s", &[("a", "x", 1)]))), None);
        pending.apply(&run("r2"), &asking("s", &[("b", "x", 2), ("c", "y", 3)]));
        pending.apply(&run("r3"), &asking("t", &[("d", "z", 4)]));
        assert_eq!([holds("x"), holds("y"), holds("z"), holds("w")], [true, true, false, false]);
        let replaced = pending.apply(&run("r1"), &asking("s", &[])).unwrap();
        assert_eq!((replaced.freed, replaced.closed.len()), (Some(session.clone()), 1), "messages may be free");
        assert!(holds("x"));
        assert_eq!(freed(pending.apply(&run("r2"), &asking("s", &[("c", "y", 3)]))), Some(session.clone()));
        assert_eq!([holds("x"), holds("y")], [false, true]);
        assert_eq!(pending.forget(&run("r2")).freed, Some(session.clone()));
        assert_eq!((holds("y"), pending.unanswered(Audience::User)), (false, 1));
        pending.forget(&run("r3"));
        let inner = pending.inner.read();
        assert!(inner.logs.is_empty() && inner.scopes.is_empty() && inner.by_place.is_empty());
    }

    #[test]
    fn actions_are_listed_by_age_and_counted_by_audience_until_a_decision_is_under_way() {
        let pending = PendingActions::default();
        pending.apply(&run("r1"), &asking("s", &[("late", "x", 9), ("early", "x", 1)]));
        let mut second = asking("t", &[("seen", "x", 5), ("hidden", "y", 5)]);
        let mut seen = RunState::default();
        seen.pending.insert("seen");
        second.run_for_user = Some(Box::new(seen));
        pending.apply(&run("r2"), &second);
        assert_eq!(listed(&pending), ["early", "seen", "hidden", "late"]);
        let counts = || [Audience::User, Audience::Internal].map(|audience| pending.unanswered(audience));
        assert_eq!(counts(), [3, 4]);
        let of_agent =
            |agent: &str| pending.unanswered_where(Audience::Internal, agent.parse().ok().as_ref(), None, |_, _, _| true);
        assert_eq!([of_agent("x"), of_agent("y")], [3, 1]);
        let in_run = pending.unanswered_where(Audience::User, None, None, |log, _, _| *log == run("r2"));
        assert_eq!(in_run, 1);
        second.extension.actions.values_mut().for_each(|detail| detail.control = "c".parse().ok());
        pending.apply(&run("r2"), &second);
        assert_eq!(counts(), [2, 2]);
        let first = pending.list(None, 1).pop().unwrap().place();
        assert_eq!(pending.list(Some(&first), 1)[0].action.as_str(), "seen");
    }
}

//! The control queues: the open controls of all logs, one queue per agent, with their leases.
//!
//! An in-memory index over the logs' summaries. The server reads it from the store at start; the applier updates it.
//! So every queued control is durable. The index costs an id and a few numbers per open control.
//!
//! * A queue is first in, first out, over all runs of its agent. A released control returns to its old position.
//! * A leased control belongs to one claimant until the lease ends. Leases exist only here: a starting server knows
//!   none, and every control that was leased is queued again, one attempt older.
//! * An approval that others must join is not leased until they have.
//! * No claimant gets an obsolete control ([`OpenControl::obsolete_reason`]).
//! * A message that waits ([`WaitTerms`]) is not leased while an action of its agent is pending in its session; the
//!   caller says which agents ask (`super::pending_actions`). Its time to live starts when nothing holds it back.
//! * A claimant that does a limited amount of work at once ([`WorkRoom`]) leaves the rest in the queue, in order.

use super::LogId;
use super::control::{NOT_STARTED, OpenControl, WaitTerms};
use super::summary::Summary;
use crate::environment::sabotage;
use crate::model::{AgentId, ControlId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The queues of one store.
#[derive(Default)]
pub struct Queues {
    inner: Mutex<QueueTable>,
    /// Signals that a control may be due.
    due: Notify,
}

#[derive(Default)]
struct QueueTable {
    items: BTreeMap<u64, QueuedControl>,
    /// The queued controls of each agent, by position.
    queues: HashMap<AgentId, BTreeSet<u64>>,
    leases: HashMap<Box<str>, u64>,
    watchers: HashMap<AgentId, watch::Sender<u64>>,
    /// The last assigned position.
    last: u64,
}

struct QueuedControl {
    log: LogId,
    /// The session of the control, or a run that has none.
    scope: LogId,
    open: OpenControl,
    is_obsolete: bool,
    /// Whether the last claim did not reach its claimant.
    is_undelivered: bool,
    lease: Option<Lease>,
    wait: Option<Wait>,
    /// Whether it is an approval that is not handed out.
    is_approval: bool,
}

/// How a message waits for the pending actions of its agent.
#[derive(Clone, PartialEq, Eq)]
struct Wait {
    terms: WaitTerms,
    /// Whether an action has held it back since its time to live started.
    was_held: bool,
}

impl QueuedControl {
    /// Whether an action holds the control back.
    fn is_held(&self, holds_back: &impl Fn(&LogId, &AgentId) -> bool) -> bool {
        self.wait.is_some() && holds_back(&self.scope, &self.open.agent)
    }

    /// Whether a claimant of limited room must have room for it. What a message supersedes ends the work that is in its way.
    fn needs_room(&self) -> bool {
        self.open.asks_for_work() && !self.wait.as_ref().is_some_and(|wait| wait.terms.supersedes)
    }

    /// Whether its time to live has yet to start.
    fn is_unstarted(&self) -> bool {
        self.wait.as_ref().is_some_and(|wait| self.open.expires_at == NOT_STARTED || wait.was_held && wait.terms.ttl.is_some())
    }
}

/// The new work that a claimant can begin now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkRoom {
    pub turns: usize,
    /// The scopes that have as much as they can begin.
    pub busy: HashSet<LogId>,
}

/// The terms on which a claimant takes controls.
pub struct LeaseTerms {
    /// The most controls.
    pub max: usize,
    /// When the leases end.
    pub until: Instant,
    /// The work that the claimant can begin. `None`: any.
    pub room: Option<WorkRoom>,
}

impl WorkRoom {
    /// Takes the room of one turn. `false`: there is none in this scope.
    fn take(&mut self, scope: &LogId) -> bool {
        let is_free = self.turns > 0 && self.busy.insert(scope.clone());
        self.turns -= usize::from(is_free);
        is_free
    }
}

/// What has to be done with an open control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// It may have to be closed: it is obsolete, expired, or was never answered.
    Close(LogId, ControlId),
    /// Nothing holds it back now, so its time to live starts.
    Start(LogId, ControlId),
}

struct Lease {
    token: Box<str>,
    /// `None` while an answer is on its way to the store.
    until: Option<Instant>,
}

/// One control that a claimant has leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedControl {
    pub queue_position: u64,
    pub log: LogId,
    pub id: ControlId,
    /// The agent whose queue held it.
    pub agent: AgentId,
    pub lease: Box<str>,
    /// Whether the claim before this one did not reach its claimant.
    pub follows_undelivered: bool,
}

impl Queues {
    /// Replaces a log's previous summary by its new one. `before` is `None` for a new log.
    pub fn apply(&self, log: &LogId, before: Option<&Summary>, now: &Summary) {
        let before = before.map_or(&[][..], |before| &before.controls);
        if before.is_empty() && now.controls.is_empty() || sabotage::is(25) && before.is_empty() && now.controls.len() == 1 {
            return;
        }
        let mut inner = self.inner.lock();
        for gone in before.iter().filter(|open| !now.controls.iter().any(|now| now.queue_position == open.queue_position)) {
            inner.remove(gone.queue_position);
        }
        let mut is_due = false;
        for open in &now.controls {
            let terms = now.extension.waiting.get(&open.queue_position);
            let wait = terms.map(|terms| Wait { terms: *terms, was_held: false });
            is_due |= inner.upsert((log, now.scope(log)), open, wait, open.obsolete_reason(&now.run).is_some());
            inner.hold_approval(open, now.extension.held.contains(&open.queue_position));
        }
        drop(inner);
        if is_due {
            self.due.notify_one();
        }
    }

    /// Wakes those who may take or free the messages of this scope: an action there is no longer pending.
    pub fn wake(&self, scope: &LogId) {
        let inner = self.inner.lock();
        let waiting = |item: &&QueuedControl| item.wait.is_some() && item.scope == *scope;
        let agents: BTreeSet<_> = inner.items.values().filter(waiting).map(|item| &item.open.agent).collect();
        for agent in &agents {
            inner.notify(agent);
        }
        if !agents.is_empty() {
            self.due.notify_one();
        }
    }

    /// Removes the controls of an erased log.
    pub fn forget(&self, log: &LogId) {
        let mut inner = self.inner.lock();
        let gone: Vec<_> =
            inner.items.iter().filter(|(_, item)| item.log == *log).map(|(queue_position, _)| *queue_position).collect();
        for queue_position in gone {
            inner.remove(queue_position);
        }
    }

    /// A position behind all others.
    ///
    /// `now` is the time in microseconds, so that positions also grow across restarts.
    pub fn next_position(&self, now: u64) -> u64 {
        let mut inner = self.inner.lock();
        inner.last = now.max(inner.last + 1);
        inner.last
    }

    /// A counter of the controls that join an agent's queue.
    pub fn watch(&self, agent: &AgentId) -> watch::Receiver<u64> {
        self.inner.lock().watchers.entry(agent.clone()).or_default().subscribe()
    }

    /// The agents with a waiting claimant or a queued control, and whether a claimant waits.
    #[must_use]
    pub fn agents(&self) -> BTreeMap<AgentId, bool> {
        let inner = self.inner.lock();
        let queued = inner.queues.keys().map(|agent| (agent.clone(), false));
        let waiting = inner.watchers.iter().filter(|(_, arrivals)| arrivals.receiver_count() > 0);
        queued.chain(waiting.map(|(agent, _)| (agent.clone(), true))).collect()
    }

    /// Leases controls of an agent's queue, oldest first.
    ///
    /// `lease` makes each lease token. `covers` tells of which sessions, and runs without one, the claimant may take
    /// controls. `holds_back` tells whether an action of an agent is pending in a scope.
    pub fn lease(
        &self,
        agent: &AgentId,
        terms: LeaseTerms,
        covers: impl Fn(&LogId) -> bool,
        holds_back: impl Fn(&LogId, &AgentId) -> bool,
        mut lease: impl FnMut() -> Box<str>,
    ) -> Vec<LeasedControl> {
        let LeaseTerms { max, until, mut room } = terms;
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(queue) = inner.queues.get_mut(agent) else { return Vec::new() };
        let mut taken = Vec::new();
        for queue_position in queue.iter() {
            if taken.len() == max {
                break;
            }
            let Some(item) = inner.items.get_mut(queue_position) else { continue };
            if item.is_obsolete || item.is_approval || item.is_unstarted() || !covers(&item.scope) || item.is_held(&holds_back) {
                continue;
            }
            if item.needs_room() && room.as_mut().is_some_and(|room| !room.take(&item.scope)) {
                continue;
            }
            let token = lease();
            item.lease = Some(Lease { token: token.clone(), until: Some(until) });
            inner.leases.insert(token.clone(), *queue_position);
            let (log, id) = (item.log.clone(), item.open.id.clone());
            let follows_undelivered = std::mem::take(&mut item.is_undelivered);
            let (queue_position, agent) = (*queue_position, agent.clone());
            taken.push(LeasedControl { queue_position, log, id, agent, lease: token, follows_undelivered });
        }
        for one in &taken {
            queue.remove(&one.queue_position);
        }
        taken
    }

    /// Returns a leased control to its position in the queue, if this lease still holds it.
    pub fn release(&self, lease: &str) {
        self.inner.lock().release(lease);
        self.due.notify_one();
    }

    /// Returns a control as [`Self::release`] does, because the claim did not reach its claimant.
    pub fn release_undelivered(&self, lease: &str) {
        let mut inner = self.inner.lock();
        if let Some(position) = inner.leases.get(lease).copied()
            && let Some(item) = inner.items.get_mut(&position)
        {
            item.is_undelivered = true;
        }
        inner.release(lease);
        drop(inner);
        self.due.notify_one();
    }

    /// Suspends the expiry of a lease while its answer is on its way to the store.
    ///
    /// `None` for a lease that has ended or that holds another control. [`Self::resume_lease`] undoes it.
    pub fn suspend_lease(&self, lease: &str, id: &ControlId, now: Instant) -> Option<(LeasedControl, Instant)> {
        let mut inner = self.inner.lock();
        let queue_position = *inner.leases.get(lease)?;
        let item = inner.items.get_mut(&queue_position).filter(|item| item.open.id == *id)?;
        let held = item.lease.as_mut()?;
        let until = held.until.filter(|until| *until > now)?;
        held.until = None;
        let (log, agent) = (item.log.clone(), item.open.agent.clone());
        let follows_undelivered = item.is_undelivered;
        Some((LeasedControl { queue_position, log, id: id.clone(), agent, lease: lease.into(), follows_undelivered }, until))
    }

    /// Resumes the expiry of a lease.
    pub fn resume_lease(&self, lease: &str, until: Instant) {
        let mut inner = self.inner.lock();
        let Some(queue_position) = inner.leases.get(lease).copied() else { return };
        if let Some(held) = inner.items.get_mut(&queue_position).and_then(|item| item.lease.as_mut()) {
            held.until = Some(until);
        }
    }

    /// Whether a claimant holds the control at this position.
    #[must_use]
    pub fn is_leased(&self, queue_position: u64) -> bool {
        self.inner.lock().items.get(&queue_position).is_some_and(|item| item.lease.is_some())
    }

    /// Whether a control is open at this position.
    #[must_use]
    pub fn is_open(&self, queue_position: u64) -> bool {
        self.inner.lock().items.contains_key(&queue_position)
    }

    /// Releases the leases that ended by `now`, and lists the queued controls that are due.
    ///
    /// To close are obsolete controls, controls that expired by `wall` (milliseconds since 1970), and controls that were
    /// claimed `attempts_max` times without an answer. A message that is held back does not expire, unless its end is
    /// fixed. `holds_back` is as in [`Self::lease`].
    pub fn collect_due(
        &self,
        now: Instant,
        wall: i64,
        attempts_max: u32,
        holds_back: impl Fn(&LogId, &AgentId) -> bool,
    ) -> Vec<Due> {
        let mut inner = self.inner.lock();
        let is_over = |item: &QueuedControl| item.lease.as_ref().and_then(|lease| lease.until).is_some_and(|until| until <= now);
        let over: Vec<_> = inner.items.values().filter(|item| is_over(item)).filter_map(|item| item.lease.as_ref()).collect();
        let over: Vec<Box<str>> = over.into_iter().map(|lease| lease.token.clone()).collect();
        for lease in over {
            inner.release(&lease);
        }
        let mut due = Vec::new();
        for item in inner.items.values_mut().filter(|item| item.lease.is_none()) {
            let is_held = item.is_held(&holds_back);
            if let Some(wait) = &mut item.wait {
                wait.was_held |= is_held;
            }
            let place = || (item.log.clone(), item.open.id.clone());
            let expires = !item.is_unstarted() && item.open.expires_at <= wall;
            if item.is_obsolete || item.open.attempt >= attempts_max || expires {
                let (log, id) = place();
                due.push(Due::Close(log, id));
            } else if !is_held && item.is_unstarted() {
                let (log, id) = place();
                due.push(Due::Start(log, id));
            }
        }
        due
    }

    /// Frees a message whose time to live has started.
    pub fn free(&self, queue_position: u64) {
        let mut inner = self.inner.lock();
        let Some(item) = inner.items.get_mut(&queue_position) else { return };
        if let Some(wait) = &mut item.wait {
            wait.was_held = false;
        }
        let agent = item.open.agent.clone();
        inner.notify(&agent);
    }

    /// Waits until a control may be due before its time.
    pub async fn wakeup(&self) {
        self.due.notified().await;
    }

    /// Removes the counters that no claimant watches.
    pub fn sweep(&self) {
        self.inner.lock().watchers.retain(|_, arrivals| arrivals.receiver_count() > 0);
    }

    /// The log with an open control of this id. Searches all open controls.
    #[must_use]
    pub fn log_of(&self, id: &ControlId) -> Option<LogId> {
        self.inner.lock().items.values().find(|item| item.open.id == *id).map(|item| item.log.clone())
    }

    /// The open controls of an agent that ask for work in sessions and runs: their logs, their ids and their positions.
    #[must_use]
    pub fn asking_for_work(&self, agent: &AgentId) -> Vec<(LogId, ControlId, u64)> {
        let inner = self.inner.lock();
        let asking = inner.items.iter().filter(|(_, item)| item.open.agent == *agent && item.open.asks_for_work());
        asking.map(|(position, item)| (item.log.clone(), item.open.id.clone(), *position)).collect()
    }

    /// The number of open controls that no claimant holds.
    #[must_use]
    pub fn unclaimed(&self) -> usize {
        self.inner.lock().items.values().filter(|item| item.lease.is_none()).count()
    }

    /// The number of open controls.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.lock().items.len()
    }
}

impl QueueTable {
    /// Adds or updates a control; whether it has just become obsolete.
    fn upsert(&mut self, (log, scope): (&LogId, LogId), open: &OpenControl, wait: Option<Wait>, is_obsolete: bool) -> bool {
        self.last = self.last.max(open.queue_position);
        if let Some(item) = self.items.get_mut(&open.queue_position) {
            let was_held = item.wait.as_ref().is_some_and(|wait| wait.was_held);
            item.wait = wait.map(|wait| Wait { was_held, ..wait });
            item.scope = scope;
            if item.open != *open {
                item.open.clone_from(open);
            }
            let is_news = is_obsolete && !item.is_obsolete;
            // An action that is asked again makes its control useful again.
            let is_back = !is_obsolete && item.is_obsolete && item.lease.is_none();
            item.is_obsolete = is_obsolete;
            if is_back {
                self.notify(&open.agent);
            }
            return is_news;
        }
        let log = log.clone();
        let item = QueuedControl {
            log,
            scope,
            open: open.clone(),
            is_obsolete,
            is_undelivered: false,
            lease: None,
            wait,
            is_approval: false,
        };
        let is_due = is_obsolete || item.is_unstarted();
        self.items.insert(open.queue_position, item);
        self.enqueue(open.queue_position, &open.agent);
        is_due
    }

    /// Holds an approval back, or releases it.
    fn hold_approval(&mut self, open: &OpenControl, is_held: bool) {
        let Some(item) = self.items.get_mut(&open.queue_position) else { return };
        let is_released = std::mem::replace(&mut item.is_approval, is_held) && !is_held;
        if is_released {
            self.notify(&open.agent);
        }
    }

    fn remove(&mut self, queue_position: u64) {
        let Some(item) = self.items.remove(&queue_position) else { return };
        if let Some(lease) = item.lease {
            self.leases.remove(&lease.token);
        }
        if let Some(queue) = self.queues.get_mut(&item.open.agent) {
            queue.remove(&queue_position);
            if queue.is_empty() {
                self.queues.remove(&item.open.agent);
            }
        }
    }

    fn release(&mut self, lease: &str) {
        let Some(queue_position) = self.leases.remove(lease) else { return };
        let Some(item) = self.items.get_mut(&queue_position) else { return };
        item.lease = None;
        let agent = item.open.agent.clone();
        self.enqueue(queue_position, &agent);
    }

    fn enqueue(&mut self, queue_position: u64, agent: &AgentId) {
        self.queues.entry(agent.clone()).or_default().insert(queue_position);
        self.notify(agent);
    }

    fn notify(&self, agent: &AgentId) {
        if let Some(arrivals) = self.watchers.get(agent) {
            arrivals.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ActionId, RunId, SessionId};
    use crate::source::ledger::{RunState, Status};
    use std::time::Duration;

    fn agent(name: &str) -> AgentId {
        AgentId::new(name).unwrap()
    }

    fn run(name: &str) -> LogId {
        LogId::Run(RunId::new(name).unwrap())
    }

    fn open(queue_position: u64, agent_name: &str) -> OpenControl {
        OpenControl {
            id: ControlId::new(&format!("c{queue_position}")).unwrap(),
            agent: agent(agent_name),
            queue_position,
            expires_at: 1000,
            attempt: 0,
            action: None,
            of_attempt: None,
        }
    }

    fn summary_of(controls: &[OpenControl], status: Status) -> Summary {
        Summary { controls: controls.to_vec(), run: RunState { status, ..RunState::default() }, ..Summary::default() }
    }

    /// Leases from a queue; the lease tokens are numbered.
    fn take(queues: &Queues, of: &str, max: usize, until: Instant) -> Vec<String> {
        let mut made = queues.inner.lock().leases.len();
        let lease = || {
            made += 1;
            format!("lease-{made}").into()
        };
        queues
            .lease(&agent(of), LeaseTerms { max, until, room: None }, |_| true, |_, _| false, lease)
            .into_iter()
            .map(|taken| format!("{} {}", taken.id, taken.lease))
            .collect()
    }

    /// The ids of the controls that are due while no action holds a message back; `+` marks a time to live that starts.
    fn due_of(queues: &Queues, now: Instant, wall: i64, attempts_max: u32) -> Vec<String> {
        let name = |due| match due {
            Due::Close(_, id) => id.to_string(),
            Due::Start(_, id) => format!("+{id}"),
        };
        queues.collect_due(now, wall, attempts_max, |_, _| false).into_iter().map(name).collect()
    }

    #[test]
    fn a_held_message_is_passed_does_not_expire_and_starts_to_live_when_it_is_free() {
        let (queues, now) = (Queues::default(), Instant::now());
        let mut held = open(1, "a");
        held.expires_at = NOT_STARTED;
        let mut summary = summary_of(&[held, open(2, "a"), open(3, "a")], Status::Running);
        let terms = |ttl| WaitTerms { ttl, supersedes: false };
        summary.extension.waiting.extend([(1, terms(Some(60))), (3, terms(None))]);
        queues.apply(&run("r"), None, &summary);
        let lease = |holds: bool| {
            let leased = queues.lease(
                &agent("a"),
                LeaseTerms { max: 9, until: now, room: None },
                |_| true,
                |scope, _| holds && *scope == run("r"),
                || "l".into(),
            );
            leased.into_iter().map(|one| one.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(lease(true), ["c2"], "a control that does not wait passes");
        let due = queues.collect_due(now - Duration::from_secs(1), 1000, 9, |_, _| true);
        assert_eq!(due, [Due::Close(run("r"), open(3, "a").id)], "a fixed end counts");
        assert_eq!(lease(false), ["c3"], "the other has not started to live");
        assert_eq!(due_of(&queues, now - Duration::from_secs(1), 0, 9), ["+c1"]);
        let mut started = summary.clone();
        started.controls[0].expires_at = 2000;
        queues.apply(&run("r"), Some(&summary), &started);
        queues.free(1);
        assert_eq!(lease(false), ["c1"]);
    }

    #[test]
    fn a_queue_is_fifo_over_all_logs_and_a_released_control_returns_to_its_position() {
        let (queues, now) = (Queues::default(), Instant::now());
        let until = now + Duration::from_secs(30);
        let second = summary_of(&[open(2, "a")], Status::Running);
        queues.apply(&run("r2"), None, &second);
        queues.apply(&run("r1"), None, &summary_of(&[open(1, "a"), open(3, "a"), open(4, "b")], Status::Running));
        assert_eq!(take(&queues, "a", 2, until), ["c1 lease-1", "c2 lease-2"]);
        assert_eq!(take(&queues, "a", 9, until), ["c3 lease-3"]);
        assert_eq!((take(&queues, "a", 9, until), take(&queues, "other", 9, until)), (vec![], vec![]));
        queues.release("lease-3");
        queues.release("lease-1");
        queues.release("lease-1");
        let again = until + Duration::from_secs(1);
        assert_eq!(take(&queues, "a", 1, again), ["c1 lease-2"].map(|_| "c1 lease-2".to_owned()));
        queues.apply(&run("r2"), Some(&second), &summary_of(&[], Status::Running));
        assert_eq!(queues.count(), 3);
        queues.forget(&run("r1"));
        let inner = queues.inner.lock();
        assert!(inner.items.is_empty() && inner.queues.is_empty() && inner.leases.is_empty(), "no trace of the log is left");
    }

    #[test]
    fn a_claimant_without_room_leaves_new_work_in_the_queue_and_takes_what_its_turns_wait_for() {
        let (queues, now) = (Queues::default(), Instant::now());
        let session =
            |name: &str| Summary { session_id: Some(SessionId::new(name).unwrap()), ..summary_of(&[], Status::Running) };
        let asks = |name: &str, controls: &[OpenControl]| Summary { controls: controls.to_vec(), ..session(name) };
        let (mut answer, mut steer) = (open(5, "a"), open(6, "a"));
        answer.action = ActionId::new("asked").ok();
        steer.of_attempt = Some(1);
        let mut running = asks("s1", &[open(1, "a"), open(2, "a"), answer, steer, open(7, "a")]);
        running.run.pending.insert("asked");
        running.extension.waiting.insert(7, WaitTerms { ttl: None, supersedes: true });
        queues.apply(&run("r1"), None, &running);
        queues.apply(&run("r2"), None, &asks("s2", &[open(3, "a")]));
        queues.apply(&run("r3"), None, &asks("s3", &[open(4, "a")]));
        let lease = |turns: usize, busy: &[&str]| {
            let busy = busy.iter().map(|name| LogId::Session(SessionId::new(name).unwrap())).collect();
            let mut made = queues.inner.lock().leases.len();
            let token = || {
                made += 1;
                format!("lease-{made}").into()
            };
            let leased = queues.lease(
                &agent("a"),
                LeaseTerms { max: 9, until: now, room: Some(WorkRoom { turns, busy }) },
                |_| true,
                |_, _| false,
                token,
            );
            leased.into_iter().map(|one| one.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(lease(0, &[]), ["c5", "c6", "c7"], "an answer, a message to a turn, and one that ends a turn");
        assert_eq!(lease(1, &["s1"]), ["c3"], "the oldest of a session that has none at work");
        assert_eq!(lease(9, &["s2"]), ["c1", "c4"], "one of each session");
        assert_eq!(lease(9, &[]), ["c2"]);
    }

    #[test]
    fn a_lease_expires_unless_its_answer_is_on_its_way() {
        let (queues, now) = (Queues::default(), Instant::now());
        queues.apply(&run("r"), None, &summary_of(&[open(1, "a"), open(2, "a")], Status::Running));
        let until = now + Duration::from_secs(30);
        take(&queues, "a", 2, until);
        let id = |n: u64| open(n, "a").id;
        assert!(queues.suspend_lease("lease-1", &id(2), now).is_none(), "the lease holds another control");
        assert!(queues.suspend_lease("lease-1", &id(1), until).is_none(), "the lease has expired");
        let (held, was) = queues.suspend_lease("lease-1", &id(1), now).unwrap();
        assert_eq!((held.queue_position, was), (1, until));
        assert!(queues.suspend_lease("lease-1", &id(1), now).is_none(), "one answer at a time");
        assert_eq!(due_of(&queues, until, 0, 9), [""; 0]);
        assert_eq!((queues.is_leased(1), queues.is_leased(2)), (true, false));
        queues.resume_lease("lease-1", until);
        assert_eq!(due_of(&queues, until, 0, 9), [""; 0]);
        assert!(!queues.is_leased(1) && queues.suspend_lease("lease-1", &id(1), now).is_none());
    }

    #[test]
    fn expired_obsolete_and_repeatedly_claimed_controls_are_due_unless_leased() {
        let (queues, now) = (Queues::default(), Instant::now());
        let mut tired = open(3, "a");
        tired.attempt = 5;
        let mut decides = open(4, "a");
        decides.action = ActionId::new("asked").ok();
        let mut before = summary_of(&[open(1, "a"), tired, decides], Status::Running);
        before.run.pending.insert("asked");
        queues.apply(&run("r"), None, &before);
        let due = |wall: i64| due_of(&queues, now, wall, 5);
        assert_eq!((due(999), due(1000)), (vec!["c3".into()], vec!["c1".into(), "c3".into(), "c4".into()]));
        let mut resolved = before.clone();
        resolved.run.pending.clear();
        take(&queues, "a", 9, now + Duration::from_secs(1));
        queues.apply(&run("r"), Some(&before), &resolved);
        assert_eq!(due(1000), [""; 0], "all are leased");
        assert_eq!(due_of(&queues, now + Duration::from_secs(1), 0, 5).len(), 2, "the often claimed one and the obsolete one");
        assert_eq!(take(&queues, "a", 9, now).len(), 2, "an obsolete control is not leased");
    }

    #[tokio::test]
    async fn a_watcher_is_notified_of_new_and_of_released_controls() {
        let queues = Queues::default();
        let (mut mine, other) = (queues.watch(&agent("a")), queues.watch(&agent("b")));
        queues.apply(&run("r"), None, &summary_of(&[open(1, "a")], Status::Running));
        assert!(mine.has_changed().unwrap() && !other.has_changed().unwrap());
        mine.mark_unchanged();
        take(&queues, "a", 1, Instant::now() + Duration::from_secs(1));
        assert!(!mine.has_changed().unwrap());
        queues.release("lease-1");
        assert!(mine.has_changed().unwrap());
        drop(mine);
        queues.sweep();
        assert_eq!(queues.inner.lock().watchers.len(), 1);
        assert_eq!((queues.next_position(7), queues.next_position(7), queues.next_position(5)), (7, 8, 9));
    }
}

//! Who waits for what: the open controls of all logs, in one line an agent, and who has taken which.
//!
//! An index in memory of what the logs' summaries say, read from the store when it is opened and kept by the committer from
//! then on: what is in a line here is durable. It costs an id and a few numbers a control, for as long as that is open.
//!
//! * A line is first in, first out, over all runs of its agent. A control that comes back stands where it stood.
//! * What was taken is nobody else's until its lease ends. Leases are here alone: a server that starts knows of none, and what
//!   was out is in the line again, one attempt older.
//! * What means nothing any more ([`OpenControl::pointless`]) is not handed over.

use super::LogId;
use super::control::OpenControl;
use super::run::Summary;
use crate::model::{AgentId, ControlId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The lines of one store.
#[derive(Default)]
pub struct Queues {
    inner: Mutex<Inner>,
    /// Something may be due.
    due: Notify,
}

#[derive(Default)]
struct Inner {
    items: BTreeMap<u64, Item>,
    /// What each agent's line has, by place.
    lines: HashMap<AgentId, BTreeSet<u64>>,
    leases: HashMap<Box<str>, u64>,
    watched: HashMap<AgentId, watch::Sender<u64>>,
    /// The last place that was given.
    last: u64,
}

struct Item {
    log: LogId,
    open: OpenControl,
    pointless: bool,
    lease: Option<Lease>,
}

struct Lease {
    token: Box<str>,
    /// `None` while an answer is on its way to the store.
    until: Option<Instant>,
}

/// One control that was taken out of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub number: u64,
    pub log: LogId,
    pub id: ControlId,
    pub lease: Box<str>,
}

impl Queues {
    /// Takes in what a log says now, and no longer what it said `before`, if it was there.
    pub fn note(&self, log: &LogId, before: Option<&Summary>, now: &Summary) {
        let before = before.map_or(&[][..], |before| &before.controls);
        if before.is_empty() && now.controls.is_empty() {
            return;
        }
        let mut inner = self.inner.lock();
        for gone in before.iter().filter(|open| !now.controls.iter().any(|now| now.number == open.number)) {
            inner.remove(gone.number);
        }
        let mut is_due = false;
        for open in &now.controls {
            is_due |= inner.put(log, open, open.pointless(&now.run).is_some());
        }
        drop(inner);
        if is_due {
            self.due.notify_one();
        }
    }

    /// Forgets a log that was erased.
    pub fn forget(&self, log: &LogId) {
        let mut inner = self.inner.lock();
        let gone: Vec<_> = inner.items.iter().filter(|(_, item)| item.log == *log).map(|(number, _)| *number).collect();
        for number in gone {
            inner.remove(number);
        }
    }

    /// A place behind all others; `now` is the time in microseconds, so that places grow over restarts, too.
    pub fn number(&self, now: u64) -> u64 {
        let mut inner = self.inner.lock();
        inner.last = now.max(inner.last + 1);
        inner.last
    }

    /// Counts what comes into an agent's line.
    pub fn watch(&self, agent: &AgentId) -> watch::Receiver<u64> {
        self.inner.lock().watched.entry(agent.clone()).or_default().subscribe()
    }

    /// The agents that wait for something, or have something in their lines.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentId> {
        let inner = self.inner.lock();
        let waiting = inner.watched.iter().filter(|(_, came)| came.receiver_count() > 0).map(|(agent, _)| agent);
        waiting.chain(inner.lines.keys()).cloned().collect()
    }

    /// Takes up to `max` controls out of an agent's line, the oldest first, until then; each under a lease that `lease` makes up.
    pub fn take(&self, agent: &AgentId, max: usize, until: Instant, mut lease: impl FnMut() -> Box<str>) -> Vec<Taken> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(line) = inner.lines.get_mut(agent) else { return Vec::new() };
        let mut taken = Vec::new();
        for number in line.iter() {
            if taken.len() == max {
                break;
            }
            let Some(item) = inner.items.get_mut(number).filter(|item| !item.pointless) else { continue };
            let token = lease();
            item.lease = Some(Lease { token: token.clone(), until: Some(until) });
            inner.leases.insert(token.clone(), *number);
            taken.push(Taken { number: *number, log: item.log.clone(), id: item.open.id.clone(), lease: token });
        }
        for one in &taken {
            line.remove(&one.number);
        }
        taken
    }

    /// Puts a control that was taken back to its place, if it is still out under this lease.
    pub fn release(&self, lease: &str) {
        self.inner.lock().release(lease);
        self.due.notify_one();
    }

    /// Holds on to a lease for as long as its answer is on its way; `None` for one that is not held, or of another control.
    /// [`Self::resume`] undoes it.
    pub fn hold(&self, lease: &str, id: &ControlId, now: Instant) -> Option<(Taken, Instant)> {
        let mut inner = self.inner.lock();
        let number = *inner.leases.get(lease)?;
        let item = inner.items.get_mut(&number).filter(|item| item.open.id == *id)?;
        let held = item.lease.as_mut()?;
        let until = held.until.filter(|until| *until > now)?;
        held.until = None;
        Some((Taken { number, log: item.log.clone(), id: id.clone(), lease: lease.into() }, until))
    }

    /// A lease goes on as before.
    pub fn resume(&self, lease: &str, until: Instant) {
        let mut inner = self.inner.lock();
        let Some(number) = inner.leases.get(lease).copied() else { return };
        if let Some(held) = inner.items.get_mut(&number).and_then(|item| item.lease.as_mut()) {
            held.until = Some(until);
        }
    }

    /// Whether somebody has the control at this place.
    #[must_use]
    pub fn is_taken(&self, number: u64) -> bool {
        self.inner.lock().items.get(&number).is_some_and(|item| item.lease.is_some())
    }

    /// Whether anything is open at this place.
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        self.inner.lock().items.contains_key(&number)
    }

    /// Puts back what was taken until now or before, and says what of the lines has to be closed: what means nothing any more,
    /// what was due by `wall` (in milliseconds since 1970), and what was handed over `attempts_max` times in vain.
    pub fn due(&self, now: Instant, wall: i64, attempts_max: u32) -> Vec<(LogId, ControlId)> {
        let mut inner = self.inner.lock();
        let is_over = |item: &Item| item.lease.as_ref().and_then(|lease| lease.until).is_some_and(|until| until <= now);
        let over: Vec<_> = inner.items.values().filter(|item| is_over(item)).filter_map(|item| item.lease.as_ref()).collect();
        let over: Vec<Box<str>> = over.into_iter().map(|lease| lease.token.clone()).collect();
        for lease in over {
            inner.release(&lease);
        }
        let is_due = |item: &&Item| {
            item.lease.is_none() && (item.pointless || item.open.expires_at <= wall || item.open.attempt >= attempts_max)
        };
        inner.items.values().filter(is_due).map(|item| (item.log.clone(), item.open.id.clone())).collect()
    }

    /// Waits until something may be due before its time.
    pub async fn sooner(&self) {
        self.due.notified().await;
    }

    /// Forgets what nobody waits for.
    pub fn sweep(&self) {
        self.inner.lock().watched.retain(|_, came| came.receiver_count() > 0);
    }

    /// A log in which a control of this id is open: looked for among all that are.
    #[must_use]
    pub fn log_of(&self, id: &ControlId) -> Option<LogId> {
        self.inner.lock().items.values().find(|item| item.open.id == *id).map(|item| item.log.clone())
    }

    /// How many controls are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.lock().items.len()
    }
}

impl Inner {
    /// Adds a control, or what has changed of it; whether it has just become pointless.
    fn put(&mut self, log: &LogId, open: &OpenControl, pointless: bool) -> bool {
        self.last = self.last.max(open.number);
        if let Some(item) = self.items.get_mut(&open.number) {
            if item.open != *open {
                item.open.clone_from(open);
            }
            let is_news = pointless && !item.pointless;
            // What was asked again is a question again.
            let is_back = !pointless && item.pointless && item.lease.is_none();
            item.pointless = pointless;
            if is_back {
                self.tell(&open.agent);
            }
            return is_news;
        }
        self.items.insert(open.number, Item { log: log.clone(), open: open.clone(), pointless, lease: None });
        self.line_up(open.number, &open.agent);
        pointless
    }

    fn remove(&mut self, number: u64) {
        let Some(item) = self.items.remove(&number) else { return };
        if let Some(lease) = item.lease {
            self.leases.remove(&lease.token);
        }
        if let Some(line) = self.lines.get_mut(&item.open.agent) {
            line.remove(&number);
            if line.is_empty() {
                self.lines.remove(&item.open.agent);
            }
        }
    }

    fn release(&mut self, lease: &str) {
        let Some(number) = self.leases.remove(lease) else { return };
        let Some(item) = self.items.get_mut(&number) else { return };
        item.lease = None;
        let agent = item.open.agent.clone();
        self.line_up(number, &agent);
    }

    fn line_up(&mut self, number: u64, agent: &AgentId) {
        self.lines.entry(agent.clone()).or_default().insert(number);
        self.tell(agent);
    }

    fn tell(&self, agent: &AgentId) {
        if let Some(came) = self.watched.get(agent) {
            came.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ActionId, RunId};
    use crate::source::ledger::{RunState, Status};
    use std::time::Duration;

    fn agent(name: &str) -> AgentId {
        AgentId::new(name).unwrap()
    }

    fn run(name: &str) -> LogId {
        LogId::Run(RunId::new(name).unwrap())
    }

    fn open(number: u64, agent_name: &str) -> OpenControl {
        OpenControl {
            id: ControlId::new(&format!("c{number}")).unwrap(),
            agent: agent(agent_name),
            number,
            expires_at: 1000,
            attempt: 0,
            action: None,
            of_attempt: None,
        }
    }

    fn says(controls: &[OpenControl], status: Status) -> Summary {
        Summary { controls: controls.to_vec(), run: RunState { status, ..RunState::default() }, ..Summary::default() }
    }

    /// Takes from a line; the leases are the ids.
    fn take(queues: &Queues, of: &str, max: usize, until: Instant) -> Vec<String> {
        let mut made = queues.inner.lock().leases.len();
        let lease = || {
            made += 1;
            format!("lease-{made}").into()
        };
        queues.take(&agent(of), max, until, lease).into_iter().map(|taken| format!("{} {}", taken.id, taken.lease)).collect()
    }

    #[test]
    fn a_line_is_first_in_first_out_over_all_logs_and_what_comes_back_stands_where_it_stood() {
        let (queues, now) = (Queues::default(), Instant::now());
        let until = now + Duration::from_secs(30);
        let second = says(&[open(2, "a")], Status::Running);
        queues.note(&run("r2"), None, &second);
        queues.note(&run("r1"), None, &says(&[open(1, "a"), open(3, "a"), open(4, "b")], Status::Running));
        assert_eq!(take(&queues, "a", 2, until), ["c1 lease-1", "c2 lease-2"]);
        assert_eq!(take(&queues, "a", 9, until), ["c3 lease-3"]);
        assert_eq!((take(&queues, "a", 9, until), take(&queues, "nobody", 9, until)), (vec![], vec![]));
        queues.release("lease-3");
        queues.release("lease-1");
        queues.release("lease-1");
        let again = until + Duration::from_secs(1);
        assert_eq!(take(&queues, "a", 1, again), ["c1 lease-2"].map(|_| "c1 lease-2".to_owned()));
        queues.note(&run("r2"), Some(&second), &says(&[], Status::Running));
        assert_eq!(queues.count(), 3);
        queues.forget(&run("r1"));
        let inner = queues.inner.lock();
        assert!(inner.items.is_empty() && inner.lines.is_empty() && inner.leases.is_empty(), "nothing is left of it");
    }

    #[test]
    fn a_lease_that_runs_out_is_lost_and_one_whose_answer_is_on_its_way_does_not_run_out() {
        let (queues, now) = (Queues::default(), Instant::now());
        queues.note(&run("r"), None, &says(&[open(1, "a"), open(2, "a")], Status::Running));
        let until = now + Duration::from_secs(30);
        take(&queues, "a", 2, until);
        let id = |n: u64| open(n, "a").id;
        assert!(queues.hold("lease-1", &id(2), now).is_none(), "it is another control's");
        assert!(queues.hold("lease-1", &id(1), until).is_none(), "it has run out");
        let (held, was) = queues.hold("lease-1", &id(1), now).unwrap();
        assert_eq!((held.number, was), (1, until));
        assert!(queues.hold("lease-1", &id(1), now).is_none(), "one answer at a time");
        assert_eq!(queues.due(until, 0, 9), []);
        assert_eq!((queues.is_taken(1), queues.is_taken(2)), (true, false));
        queues.resume("lease-1", until);
        assert_eq!(queues.due(until, 0, 9), []);
        assert!(!queues.is_taken(1) && queues.hold("lease-1", &id(1), now).is_none());
    }

    #[test]
    fn what_is_expired_pointless_or_handed_over_too_often_is_due_unless_somebody_has_it() {
        let (queues, now) = (Queues::default(), Instant::now());
        let mut tired = open(3, "a");
        tired.attempt = 5;
        let mut decides = open(4, "a");
        decides.action = ActionId::new("asked").ok();
        let mut before = says(&[open(1, "a"), tired, decides], Status::Running);
        before.run.pending.insert("asked".into());
        queues.note(&run("r"), None, &before);
        let due = |wall: i64| queues.due(now, wall, 5).into_iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>();
        assert_eq!((due(999), due(1000)), (vec!["c3".into()], vec!["c1".into(), "c3".into(), "c4".into()]));
        let mut resolved = before.clone();
        resolved.run.pending.clear();
        take(&queues, "a", 9, now + Duration::from_secs(1));
        queues.note(&run("r"), Some(&before), &resolved);
        assert_eq!(due(1000), [""; 0], "somebody has them");
        assert_eq!(queues.due(now + Duration::from_secs(1), 0, 5).len(), 2, "the tired one and the one that decides nothing");
        assert_eq!(take(&queues, "a", 9, now).len(), 2, "what means nothing is not handed over");
    }

    #[tokio::test]
    async fn who_waits_for_a_line_is_told_of_what_comes_and_of_what_comes_back() {
        let queues = Queues::default();
        let (mut mine, other) = (queues.watch(&agent("a")), queues.watch(&agent("b")));
        queues.note(&run("r"), None, &says(&[open(1, "a")], Status::Running));
        assert!(mine.has_changed().unwrap() && !other.has_changed().unwrap());
        mine.mark_unchanged();
        take(&queues, "a", 1, Instant::now() + Duration::from_secs(1));
        assert!(!mine.has_changed().unwrap());
        queues.release("lease-1");
        assert!(mine.has_changed().unwrap());
        drop(mine);
        queues.sweep();
        assert_eq!(queues.inner.lock().watched.len(), 1);
        assert_eq!((queues.number(7), queues.number(7), queues.number(5)), (7, 8, 9));
    }
}

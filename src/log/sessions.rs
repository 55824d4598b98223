//! Which sessions there are, which runs each has, and which sessions are children of which.
//!
//! Logs say so themselves, in their summaries; this is an index of what they say, in memory: read from the store when it is
//! opened, kept by the committer from then on, before an append is answered. So whatever is visible is found here, too.
//!
//! * A session is there when a log says that it belongs to it: a run, or the session's own.
//! * It stands where the first of its logs stands in the order of their creation. That number belongs to no other session
//!   and is the same after a restart; it changes only when that first log is erased, or when an older run turns out to
//!   belong to the session.
//! * Its parent is the one that the first of its logs to name one names. A parent need not be there itself.
//!
//! A run of a session costs 40 bytes here and its id's text; a run of no session costs nothing. Nobody holds the lock for
//! longer than it takes to copy the ids of one session's runs or children: the committer waits for it.

use super::run::Summary;
use super::{LogId, LogKind, Store, StoreError};
use crate::model::{RunId, SessionId};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap, HashSet};
use tokio::sync::watch;

/// Logs that are listed at once when the index is built.
const PAGE: usize = 1024;

/// The sessions of one store.
#[derive(Default)]
pub struct Sessions {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    known: HashMap<SessionId, Session>,
    places: BTreeMap<u64, SessionId>,
    children: HashMap<SessionId, HashSet<SessionId>>,
    /// Counts what happens to a session and to those below it, for those who wait for that.
    watched: HashMap<SessionId, watch::Sender<u64>>,
}

#[derive(Default)]
struct Session {
    place: u64,
    /// The place of the log that names the parent first, and the parent.
    parent: Option<(u64, SessionId)>,
    /// Its own log's place, and the parent that it names.
    own: Option<(u64, Option<SessionId>)>,
    /// In the order of creation.
    runs: Vec<Run>,
}

struct Run {
    created: u64,
    id: RunId,
    parent: Option<SessionId>,
}

impl Session {
    /// The place of its first log; `None` when it has none any more.
    fn first(&self) -> Option<u64> {
        let run = self.runs.first().map(|run| run.created);
        self.own.as_ref().map(|(created, _)| *created).into_iter().chain(run).min()
    }

    /// The first of its logs that names a parent, and the parent.
    fn named(&self) -> Option<(u64, SessionId)> {
        let own = self.own.as_ref().and_then(|(created, parent)| Some((*created, parent.clone()?)));
        let run = self.runs.iter().find_map(|run| Some((run.created, run.parent.clone()?)));
        own.into_iter().chain(run).min_by_key(|(created, _)| *created)
    }

    /// Adds a log, or changes the parent that it names.
    fn put(&mut self, log: &LogId, created: u64, parent: Option<SessionId>) {
        let is_namer = self.parent.as_ref().is_some_and(|(namer, _)| *namer == created);
        match log {
            LogId::Session(_) => self.own = Some((created, parent.clone())),
            LogId::Run(id) => match self.runs.binary_search_by_key(&created, |run| run.created) {
                Ok(at) => self.runs[at].parent.clone_from(&parent),
                Err(at) => self.runs.insert(at, Run { created, id: id.clone(), parent: parent.clone() }),
            },
        }
        match parent {
            Some(parent) if self.parent.as_ref().is_none_or(|(namer, _)| created <= *namer) => {
                self.parent = Some((created, parent));
            }
            None if is_namer => self.parent = self.named(),
            _ => {}
        }
    }

    /// Removes a log.
    fn take(&mut self, log: &LogId) {
        match log {
            LogId::Session(_) => self.own = None,
            LogId::Run(id) => self.runs.retain(|run| run.id != *id),
        }
        self.parent = self.named();
    }
}

/// Who waits for what has changed. Telling them takes as long as there are many; nobody is to wait for that.
#[must_use]
#[derive(Default)]
pub struct Changed(HashMap<SessionId, watch::Sender<u64>>);

impl Changed {
    /// Adds what else has changed.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Tells those who wait.
    pub fn tell(self) {
        for changes in self.0.into_values() {
            changes.send_modify(|count| *count += 1);
        }
    }
}

/// The session that a log belongs to as its summary says.
fn session_of<'a>(log: &'a LogId, summary: &'a Summary) -> Option<&'a SessionId> {
    match log {
        LogId::Session(id) => Some(id),
        LogId::Run(_) => summary.session_id.as_ref(),
    }
}

impl Sessions {
    /// Reads what the store's logs say. `also` is told it, too: it is read only once. A log whose summary cannot be read is named
    /// in the server's log, and is in no session.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn load(store: &impl Store, also: impl Fn(&LogId, Option<&Summary>)) -> Result<Self, StoreError> {
        let mut logs = Vec::new();
        for kind in [LogKind::Run, LogKind::Session] {
            let mut before = None;
            loop {
                let page = store.list(kind, before, PAGE).await?;
                before = page.last().map(|log| log.created);
                let is_last = page.len() < PAGE;
                logs.extend(page.into_iter().filter_map(|listed| {
                    let summary = Summary::listed(&listed);
                    also(&listed.log, summary.as_ref());
                    let summary = summary?;
                    let session = session_of(&listed.log, &summary)?.clone();
                    Some((listed.created, session, listed.log, summary.parent_session_id))
                }));
                if is_last {
                    break;
                }
            }
        }
        let mut inner = Inner::default();
        // Oldest first, so that each goes to the end of what is there.
        for (created, session, log, parent) in logs.into_iter().rev() {
            inner.put(&session, &log, created, parent.as_ref());
        }
        Ok(Self { inner: RwLock::new(inner) })
    }

    /// Whether a log that said `before` of itself says something else of sessions now.
    #[must_use]
    pub fn differ(before: &Summary, now: &Summary) -> bool {
        before.session_id != now.session_id || before.parent_session_id != now.parent_session_id
    }

    /// Takes in what a log of this place of creation says now, and no longer what it said `before`, if it was there.
    pub fn note(&self, log: &LogId, created: u64, before: Option<&Summary>, now: &Summary) -> Changed {
        let mut inner = self.inner.write();
        let mut changed = Changed::default();
        let session = session_of(log, now);
        if let Some(old) = before.and_then(|before| session_of(log, before)).filter(|old| Some(*old) != session) {
            inner.concerned(old, &mut changed);
            inner.take(old, log);
            inner.concerned(old, &mut changed);
        }
        if let Some(session) = session {
            // Those above it before this and those above it after.
            inner.concerned(session, &mut changed);
            inner.put(session, log, created, now.parent_session_id.as_ref());
            inner.concerned(session, &mut changed);
        }
        changed
    }

    /// Forgets a log that was erased, and that said this of itself.
    pub fn forget(&self, log: &LogId, said: &Summary) -> Changed {
        let mut changed = Changed::default();
        let Some(session) = session_of(log, said) else { return changed };
        let mut inner = self.inner.write();
        inner.concerned(session, &mut changed);
        inner.take(session, log);
        inner.concerned(session, &mut changed);
        changed
    }

    /// Up to `limit` sessions before a place, the newest created first, each with its place.
    #[must_use]
    pub fn list(&self, before: Option<u64>, limit: usize) -> Vec<(u64, SessionId)> {
        let inner = self.inner.read();
        let older = inner.places.range(..before.unwrap_or(u64::MAX)).rev().take(limit);
        older.map(|(place, session)| (*place, session.clone())).collect()
    }

    /// The place of a session; `None` when it is not there.
    #[must_use]
    pub fn place_of(&self, session: &SessionId) -> Option<u64> {
        self.inner.read().known.get(session).map(|session| session.place)
    }

    /// The session's runs, in the order of their creation.
    #[must_use]
    pub fn runs_of(&self, session: &SessionId) -> Vec<RunId> {
        let inner = self.inner.read();
        inner.known.get(session).map(|session| session.runs.iter().map(|run| run.id.clone()).collect()).unwrap_or_default()
    }

    /// The session's own log and its runs, each with its place of creation, the newest run first and its own log before all;
    /// and how many runs there are in all.
    #[must_use]
    pub fn logs_of(&self, session: &SessionId, runs_max: usize) -> Option<(Vec<(u64, LogId)>, usize)> {
        let inner = self.inner.read();
        let known = inner.known.get(session)?;
        let own = known.own.iter().map(|(created, _)| (*created, LogId::Session(session.clone())));
        let runs = known.runs.iter().rev().take(runs_max).map(|run| (run.created, LogId::Run(run.id.clone())));
        Some((own.chain(runs).collect(), known.runs.len()))
    }

    /// Whether the session has a log of its own.
    #[must_use]
    pub fn has_own_log(&self, session: &SessionId) -> bool {
        self.inner.read().known.get(session).is_some_and(|session| session.own.is_some())
    }

    /// The session's parent.
    #[must_use]
    pub fn parent_of(&self, session: &SessionId) -> Option<SessionId> {
        self.inner.read().parent_of(session).cloned()
    }

    /// All that are below a session, each once, whatever circles there are: its children, then theirs, and so on; those of
    /// one parent in the order of their creation.
    #[must_use]
    pub fn children_of(&self, session: &SessionId) -> Vec<SessionId> {
        let mut found = Vec::new();
        let mut seen = HashSet::from([session.clone()]);
        let mut next = Some(session.clone());
        let mut at = 0;
        while let Some(parent) = next {
            let mut children = self.inner.read().placed_children(&parent);
            children.sort_unstable();
            found.extend(children.into_iter().map(|(_, child)| child).filter(|child| seen.insert(child.clone())));
            next = found.get(at).cloned();
            at += 1;
        }
        found
    }

    /// Counts on when the session, which need not be there yet, or one below it gains or loses a log, a child or a parent.
    pub fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
        self.inner.write().watched.entry(session.clone()).or_default().subscribe()
    }

    /// Forgets what nobody waits for.
    pub fn sweep(&self) {
        self.inner.write().watched.retain(|_, changes| changes.receiver_count() > 0);
    }
}

impl Inner {
    fn parent_of(&self, session: &SessionId) -> Option<&SessionId> {
        self.known.get(session)?.parent.as_ref().map(|(_, parent)| parent)
    }

    fn placed_children(&self, parent: &SessionId) -> Vec<(u64, SessionId)> {
        let children = self.children.get(parent).into_iter().flatten();
        children.map(|child| (self.known.get(child).map_or(0, |session| session.place), child.clone())).collect()
    }

    /// Who waits for the session, or for one above it.
    fn concerned(&self, session: &SessionId, changed: &mut Changed) {
        if self.watched.is_empty() {
            return;
        }
        let mut seen = HashSet::new();
        let mut next = Some(session);
        while let Some(session) = next.filter(|session| seen.insert(*session)) {
            if let Some(changes) = self.watched.get(session) {
                changed.0.insert(session.clone(), changes.clone());
            }
            next = self.parent_of(session);
        }
    }

    fn put(&mut self, session: &SessionId, log: &LogId, created: u64, parent: Option<&SessionId>) {
        // Nobody is a child of itself. And one text of an id will do.
        let parent = parent.filter(|parent| *parent != session);
        let parent = parent.map(|parent| self.children.get_key_value(parent).map_or(parent, |(known, _)| known).clone());
        self.change(session, |session| session.put(log, created, parent));
    }

    fn take(&mut self, session: &SessionId, log: &LogId) {
        self.change(session, |session| session.take(log));
    }

    /// Changes a session, and what is derived from it.
    fn change(&mut self, id: &SessionId, change: impl FnOnce(&mut Session)) {
        let session = self.known.entry(id.clone()).or_default();
        let (place, parent) = (session.place, session.parent.as_ref().map(|(_, parent)| parent.clone()));
        change(session);
        let first = session.first();
        let now = session.parent.as_ref().map(|(_, parent)| parent.clone());
        session.place = first.unwrap_or(0);
        if first != Some(place) {
            // Of a session that is new there is nothing at place 0.
            self.places.remove(&place);
            self.places.extend(first.map(|first| (first, id.clone())));
        }
        if first.is_none() {
            self.known.remove(id);
        }
        if now != parent {
            if let Some(parent) = parent
                && let Some(children) = self.children.get_mut(&parent)
            {
                children.remove(id);
                if children.is_empty() {
                    self.children.remove(&parent);
                }
            }
            if let Some(now) = now {
                self.children.entry(now).or_default().insert(id.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::memory::MemoryStore;
    use crate::log::{Append, META};
    use crate::model::{Epoch, Sequence};
    use bytes::Bytes;

    fn id(name: &str) -> SessionId {
        SessionId::new(name).unwrap()
    }

    fn run(name: &str) -> LogId {
        LogId::Run(RunId::new(name).unwrap())
    }

    fn own(name: &str) -> LogId {
        LogId::Session(id(name))
    }

    /// A summary that names this session and this parent; `""` names none.
    fn says(session: &str, parent: &str) -> Summary {
        let named = |name: &str| (!name.is_empty()).then(|| id(name));
        Summary { session_id: named(session), parent_session_id: named(parent), ..Summary::default() }
    }

    fn names(sessions: impl IntoIterator<Item = SessionId>) -> Vec<String> {
        sessions.into_iter().map(|session| session.to_string()).collect()
    }

    fn runs(sessions: &Sessions, session: &str) -> Vec<String> {
        sessions.runs_of(&id(session)).iter().map(ToString::to_string).collect()
    }

    fn below(sessions: &Sessions, session: &str) -> Vec<String> {
        names(sessions.children_of(&id(session)))
    }

    #[test]
    fn sessions_are_listed_newest_first_by_the_place_of_their_first_log() {
        let sessions = Sessions::default();
        for (n, session) in (1..).zip(["s", "t", "s", "u", "t", "v"]) {
            sessions.note(&run(&format!("r{n}")), n, None, &says(session, "")).tell();
        }
        sessions.note(&run("nobody's"), 7, None, &says("", "")).tell();
        sessions.note(&own("w"), 8, None, &says("", "")).tell();
        sessions.note(&own("t"), 9, None, &says("t", "")).tell();
        let first = sessions.list(None, 3);
        assert_eq!(first, [(8, id("w")), (6, id("v")), (4, id("u"))]);
        sessions.note(&run("late"), 10, None, &says("x", "")).tell();
        assert_eq!(sessions.list(Some(4), 3), [(2, id("t")), (1, id("s"))]);
        assert_eq!(sessions.list(Some(1), 3), []);
        assert_eq!(
            (runs(&sessions, "s"), runs(&sessions, "t")),
            (vec!["r1".into(), "r3".into()], vec!["r2".into(), "r5".into()])
        );
        assert_eq!(["s", "t", "w"].map(|session| sessions.has_own_log(&id(session))), [false, true, true]);
        assert_eq!((runs(&sessions, "w"), runs(&sessions, "never")), (vec![], vec![]));
    }

    #[test]
    fn a_run_that_shows_its_session_late_or_changes_it_stands_where_it_was_created() {
        let sessions = Sessions::default();
        sessions.note(&run("a"), 1, None, &says("", "")).tell();
        sessions.note(&run("b"), 2, None, &says("s", "")).tell();
        assert_eq!(sessions.list(None, 9), [(2, id("s"))]);
        sessions.note(&run("a"), 1, Some(&says("", "")), &says("s", "")).tell();
        assert_eq!((runs(&sessions, "s"), sessions.place_of(&id("s"))), (vec!["a".into(), "b".into()], Some(1)));
        sessions.note(&run("a"), 1, Some(&says("s", "")), &says("t", "s")).tell();
        assert_eq!((runs(&sessions, "s"), runs(&sessions, "t")), (vec!["b".into()], vec!["a".into()]));
        assert_eq!(sessions.list(None, 9), [(2, id("s")), (1, id("t"))]);
        assert_eq!(below(&sessions, "s"), ["t"]);
    }

    #[test]
    fn the_first_log_that_names_a_parent_decides_and_erasing_it_leaves_it_to_the_next() {
        let sessions = Sessions::default();
        sessions.note(&run("a"), 1, None, &says("s", "")).tell();
        sessions.note(&run("b"), 5, None, &says("s", "late")).tell();
        sessions.note(&own("s"), 3, None, &says("s", "own")).tell();
        assert_eq!((below(&sessions, "own"), below(&sessions, "late")), (vec!["s".into()], vec![]));
        assert_eq!(sessions.place_of(&id("own")), None, "it is named, and not there");
        sessions.note(&run("a"), 1, Some(&says("s", "")), &says("s", "first")).tell();
        assert_eq!(sessions.parent_of(&id("s")), Some(id("first")));
        for (log, parent) in [(run("a"), Some(id("own"))), (own("s"), Some(id("late"))), (run("b"), None)] {
            assert!(sessions.place_of(&id("s")).is_some());
            sessions.forget(&log, &says("s", "")).tell();
            assert_eq!(sessions.parent_of(&id("s")), parent);
        }
        assert_eq!((sessions.list(None, 9), below(&sessions, "late")), (vec![], vec![]));
        let inner = sessions.inner.read();
        assert!(inner.known.is_empty() && inner.children.is_empty(), "nothing is left of it");
    }

    #[test]
    fn those_below_a_session_are_found_once_each_whatever_circles_there_are() {
        let sessions = Sessions::default();
        for (n, (session, parent)) in
            (1..).zip([("root", "leaf"), ("b", "root"), ("a", "root"), ("leaf", "a"), ("self", "self"), ("c", "b")])
        {
            sessions.note(&run(session), n, None, &says(session, parent)).tell();
        }
        assert_eq!(below(&sessions, "root"), ["b", "a", "c", "leaf"]);
        assert_eq!(below(&sessions, "leaf"), ["root", "b", "a", "c"]);
        assert_eq!((below(&sessions, "self"), sessions.parent_of(&id("self"))), (vec![], None));
        let mut waiting = sessions.watch(&id("b"));
        sessions.note(&run("more"), 9, None, &says("leaf", "")).tell();
        assert!(!waiting.has_changed().unwrap(), "it is not above leaf");
        sessions.note(&run("more"), 10, None, &says("c", "")).tell();
        assert!(waiting.has_changed().unwrap());
        assert_eq!(*waiting.borrow_and_update(), 1);
    }

    #[test]
    fn who_waits_for_a_session_learns_what_happens_to_it_and_below_it() {
        let sessions = Sessions::default();
        let mut above = sessions.watch(&id("above"));
        let mut other = sessions.watch(&id("other"));
        let mut told = |what: &str| {
            assert!(!other.has_changed().unwrap(), "{what} is not of its doing");
            let is_told = above.has_changed().unwrap();
            above.mark_unchanged();
            is_told
        };
        sessions.note(&run("a"), 1, None, &says("s", "")).tell();
        assert!(!told("a session of nobody's"));
        sessions.note(&run("b"), 2, None, &says("s", "above")).tell();
        assert!(told("a child"));
        sessions.note(&run("c"), 3, None, &says("deep", "s")).tell();
        assert!(told("a child's child"));
        sessions.forget(&run("c"), &says("deep", "s")).tell();
        assert!(told("its end"));
        sessions.note(&run("b"), 2, Some(&says("s", "above")), &says("t", "")).tell();
        assert!(told("a child that is one no more"));
        sessions.note(&run("d"), 4, None, &says("s", "")).tell();
        assert!(!told("who was a child"));
        sessions.note(&own("other"), 5, None, &says("", "")).tell();
        assert!(other.has_changed().unwrap());
        other.mark_unchanged();
        drop(above);
        sessions.sweep();
        assert_eq!(sessions.inner.read().watched.len(), 1);
    }

    #[tokio::test]
    async fn what_is_read_from_a_store_is_what_was_kept_while_it_was_written() {
        let store = MemoryStore::new();
        let kept = Sessions::default();
        for n in 0..3000_u64 {
            let log = if n % 50 == 7 { own(&format!("s{}", n % 90)) } else { run(&format!("r{n}")) };
            let parent = if n % 4 == 1 { format!("s{}", n % 7) } else { String::new() };
            let said = match n % 3 {
                0 => says("", ""),
                _ => says(&format!("s{}", n % 90), &parent),
            };
            let expected = Sequence::NONE;
            let meta = Bytes::from(serde_json::to_vec(&said).unwrap());
            let state = vec![(Bytes::from_static(META), Some(meta))];
            let (epoch, rows) = (Epoch::from_random(1), Bytes::new());
            let append = Append { log: log.clone(), epoch, expected, last: expected, rows, blobs: Vec::new(), state };
            let outcomes = store.commit(&[append]).await.unwrap();
            let crate::log::Outcome::Committed { created, .. } = outcomes[0] else { panic!("{outcomes:?}") };
            kept.note(&log, created, None, &said).tell();
        }
        let read = Sessions::load(&store, |_, _| {}).await.unwrap();
        let all = kept.list(None, usize::MAX);
        assert!(all.len() > 50);
        assert_eq!(read.list(None, usize::MAX), all);
        for (_, session) in &all {
            assert_eq!(read.runs_of(session), kept.runs_of(session), "{session}");
            assert_eq!(read.parent_of(session), kept.parent_of(session), "{session}");
            assert_eq!(read.children_of(session), kept.children_of(session), "{session}");
            assert_eq!(read.has_own_log(session), kept.has_own_log(session), "{session}");
        }
    }
}

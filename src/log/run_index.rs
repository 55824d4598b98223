//! The index of runs: what lists of many runs filter, sort and count by.
//!
//! ```text
//!   summaries ─▶ applier ─▶ RunIndex: a row for each run, by the order of creation ─▶ lists, facets, statistics
//! ```
//!
//! The index lies in memory and derives from the logs' summaries, like the index of [sessions](super::sessions): the server
//! reads it from the store at start, and the applier updates it with every commit, of this process and of any other.
//!
//! A row is about 100 bytes, and the ids of its run and session. Names that many runs share (agents, sources, owners) are
//! kept once. Usage and waits are kept for runs that have some. The committer waits for readers, so a reader
//! visits a few thousand rows at a time.

use super::figures::{RunFigures, Usage, Wait};
use super::summary::Summary;
use crate::model::{AgentId, Audience, OwnerId, RunId, Sequence, SessionId};
use crate::source::ledger::Status;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::num::NonZeroU32;
use std::ops::{Bound, ControlFlow};

/// Rows that a reader visits before it lets the committer go on.
const ROWS_AT_ONCE: usize = 2048;

/// The runs of one store.
#[derive(Default)]
pub struct RunIndex {
    inner: RwLock<RunTable>,
}

#[derive(Default)]
struct RunTable {
    /// By the order of creation.
    rows: BTreeMap<u64, RunRow>,
    agents: Names<AgentId>,
    sources: Names<Box<str>>,
    owners: Names<OwnerId>,
    /// The number of rows by status, as internal readers see it.
    by_status: [usize; Status::ALL.len()],
    /// The number of updates of rows so far.
    updates: u64,
}

struct RunRow {
    run: RunId,
    session: Option<SessionId>,
    agent: Option<NameNumber>,
    source: Option<NameNumber>,
    owner: Option<NameNumber>,
    /// Per audience.
    status: [Status; 3],
    /// In milliseconds since 1970; 0 for a time that is not known.
    started: i64,
    /// The same; 0 for a run that has not ended.
    ended: i64,
    /// Whether a compaction has considered all its rows.
    is_compacted: bool,
    archived: ArchivedRows,
    version: u64,
    costs: Option<Box<RunCosts>>,
}

/// What only runs with usage or decisions have.
struct RunCosts {
    /// Per audience.
    usage: [Option<Usage>; 3],
    waits: Box<[Wait]>,
}

impl RunCosts {
    fn of(figures: &RunFigures) -> Option<Box<Self>> {
        let usage = Audience::ALL.map(|audience| figures.usage(audience));
        let is_empty = usage.iter().all(Option::is_none) && figures.waits().is_empty();
        (!is_empty).then(|| Box::new(Self { usage, waits: figures.waits().iter().copied().collect() }))
    }

    fn is_of(&self, figures: &RunFigures) -> bool {
        self.waits.iter().eq(figures.waits())
            && Audience::ALL.iter().all(|audience| figures.usage(*audience) == self.usage[audience.index()])
    }
}

/// A run, as a reader of the index sees it.
#[derive(Clone, Copy)]
pub struct IndexedRun<'t> {
    /// Its place in the order of creation.
    pub created: u64,
    table: &'t RunTable,
    row: &'t RunRow,
}

impl<'t> IndexedRun<'t> {
    #[must_use]
    pub const fn run(&self) -> &'t RunId {
        &self.row.run
    }

    #[must_use]
    pub const fn session(&self) -> Option<&'t SessionId> {
        self.row.session.as_ref()
    }

    #[must_use]
    pub fn agent(&self) -> Option<&'t AgentId> {
        self.row.agent.map(|number| self.table.agents.name(number))
    }

    #[must_use]
    pub fn source(&self) -> Option<&'t str> {
        self.row.source.map(|number| &**self.table.sources.name(number))
    }

    #[must_use]
    pub fn owner(&self) -> Option<&'t OwnerId> {
        self.row.owner.map(|number| self.table.owners.name(number))
    }

    #[must_use]
    pub const fn status(&self, audience: Audience) -> Status {
        self.row.status[audience.index()]
    }

    /// When it started, in milliseconds since 1970.
    #[must_use]
    pub fn started(&self) -> Option<i64> {
        Some(self.row.started).filter(|at| *at > 0)
    }

    /// When it ended, in milliseconds since 1970. `None`: it has not.
    #[must_use]
    pub fn ended(&self) -> Option<i64> {
        Some(self.row.ended).filter(|at| *at > 0)
    }

    /// How long it took, in milliseconds. `None`: it has not ended.
    #[must_use]
    pub fn duration(&self) -> Option<u64> {
        let (started, ended) = self.started().zip(self.ended())?;
        Some(u64::try_from(ended - started).unwrap_or(0))
    }

    /// The usage that an audience sees.
    #[must_use]
    pub fn usage(&self, audience: Audience) -> Option<Usage> {
        self.row.costs.as_ref()?.usage[audience.index()]
    }

    /// How long its actions waited for their decisions, in milliseconds, as an audience sees it: the newest ones.
    pub fn waits(&self, audience: Audience) -> impl Iterator<Item = u64> {
        let waits = self.row.costs.as_ref().map(|costs| &*costs.waits).unwrap_or_default();
        waits.iter().filter(move |wait| wait.is_seen_by(audience)).map(|wait| wait.ms)
    }

    /// Identifies the run's state: any commit to its log changes it.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.row.version
    }
}

/// How many of a run's rows are archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchivedRows {
    None,
    Some,
    All,
}

/// Whether nothing is left of a run for compaction, and how far it is archived.
fn upkeep_of(Summary { compacted, last_sequence, extension, .. }: &Summary) -> (bool, ArchivedRows) {
    let archived = match extension.archived_through {
        Sequence::NONE => ArchivedRows::None,
        archived if archived < *last_sequence => ArchivedRows::Some,
        _ => ArchivedRows::All,
    };
    (compacted.considered >= *last_sequence || archived != ArchivedRows::None, archived)
}

/// What is done with runs some time after their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upkeep {
    Compaction,
    Archive,
}

/// The milliseconds since 1970 of a time; 0 for one that is not known.
pub(super) fn millis(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<jiff::Timestamp>().ok()).map_or(0, jiff::Timestamp::as_millisecond)
}

impl RunIndex {
    /// Replaces the row of a run by what its summary says now.
    pub fn apply(&self, created: u64, run: &RunId, before: Option<&Summary>, now: &Summary) {
        let mut inner = self.inner.write();
        let table = &mut *inner;
        table.updates += 1;
        let version = table.updates;
        let Some(row) = table.rows.get_mut(&created) else {
            let row = table.new_row(run, now, version);
            recount(&mut table.by_status, None, Some(row.status));
            table.rows.insert(created, row);
            return;
        };
        row.version = version;
        let status = Audience::ALL.map(|audience| now.run_for(audience).status);
        recount(&mut table.by_status, Some(row.status), Some(status));
        row.status = status;
        (row.is_compacted, row.archived) = upkeep_of(now);
        // Times are texts. Most commits change none.
        if before.is_none_or(|before| before.started_at != now.started_at) {
            row.started = millis(now.started_at.as_deref());
        }
        if before.is_none_or(|before| before.ended_at != now.ended_at) {
            row.ended = millis(now.ended_at.as_deref());
        }
        if row.session != now.session_id {
            row.session.clone_from(&now.session_id);
        }
        table.agents.replace(&mut row.agent, now.agent.as_ref());
        table.owners.replace(&mut row.owner, now.extension.owner.as_ref());
        if let Some(figures) = now.figures.as_deref() {
            table.sources.replace(&mut row.source, figures.source().map(Box::from).as_ref());
            if !row.costs.as_ref().is_some_and(|costs| costs.is_of(figures)) {
                row.costs = RunCosts::of(figures);
            }
        }
    }

    /// Removes an erased run.
    pub fn forget(&self, created: u64) {
        let mut inner = self.inner.write();
        let table = &mut *inner;
        let Some(mut row) = table.rows.remove(&created) else { return };
        recount(&mut table.by_status, Some(row.status), None);
        table.agents.replace(&mut row.agent, None);
        table.sources.replace(&mut row.source, None);
        table.owners.replace(&mut row.owner, None);
    }

    /// The number of runs.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.read().rows.len()
    }

    /// The number of runs with this status, as internal readers see it.
    #[must_use]
    pub fn count_of(&self, status: Status) -> usize {
        self.inner.read().by_status[status as usize]
    }

    /// The bytes of the rows, without the ids and names that they refer to.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        let inner = self.inner.read();
        let costs = inner.rows.values().filter_map(|row| row.costs.as_ref());
        let of_costs = |costs: &RunCosts| size_of::<RunCosts>() + size_of_val(&*costs.waits);
        inner.rows.len() * size_of::<(u64, RunRow)>() + costs.map(|costs| of_costs(costs)).sum::<usize>()
    }

    /// Visits the runs from the newest to the oldest, until `visit` breaks.
    ///
    /// Runs that are created meanwhile are not visited.
    pub fn visit(&self, mut visit: impl FnMut(IndexedRun<'_>) -> ControlFlow<()>) {
        let mut before = Bound::Unbounded;
        loop {
            let inner = self.inner.read();
            let mut last = None;
            for (created, row) in inner.rows.range((Bound::Unbounded, before)).rev().take(ROWS_AT_ONCE) {
                last = Some(*created);
                if visit(IndexedRun { created: *created, table: &inner, row }).is_break() {
                    return;
                }
            }
            match last {
                Some(last) => before = Bound::Excluded(last),
                None => return,
            }
        }
    }

    /// The runs that ended by a time, in milliseconds since 1970, and whose last rows still wait for this work: the next ones
    /// that were created after `after`, with the place that was reached. `None`: there are no more.
    #[must_use]
    pub fn waiting(&self, work: Upkeep, after: u64, ended_by: i64) -> (Vec<RunId>, Option<u64>) {
        let (inner, mut reached) = (self.inner.read(), None);
        let mut runs = Vec::new();
        for (created, row) in inner.rows.range((Bound::Excluded(after), Bound::Unbounded)).take(ROWS_AT_ONCE) {
            reached = Some(*created);
            let is_done = match work {
                Upkeep::Compaction => row.is_compacted,
                Upkeep::Archive => row.archived == ArchivedRows::All,
            };
            if row.status[Audience::Internal.index()].is_end() && !is_done && row.ended <= ended_by {
                runs.push(row.run.clone());
            }
        }
        (runs, reached)
    }

    /// The next run that was created after `after` and has archived rows, with its place.
    #[must_use]
    pub fn next_archived(&self, mut after: u64) -> Option<(u64, RunId)> {
        loop {
            let inner = self.inner.read();
            let mut rows = inner.rows.range((Bound::Excluded(after), Bound::Unbounded)).take(ROWS_AT_ONCE);
            let found =
                rows.by_ref().inspect(|(created, _)| after = **created).find(|(_, row)| row.archived != ArchivedRows::None);
            match found {
                Some((created, row)) => return Some((*created, row.run.clone())),
                None if inner.rows.range((Bound::Excluded(after), Bound::Unbounded)).next().is_none() => return None,
                None => {}
            }
        }
    }

    /// Visits up to `limit` runs before a place in the order of creation, newest first. Returns the place of the last one.
    pub fn visit_before(&self, before: Option<u64>, limit: usize, mut visit: impl FnMut(IndexedRun<'_>)) -> Option<u64> {
        let inner = self.inner.read();
        let mut last = None;
        for (created, row) in inner.rows.range(..before.unwrap_or(u64::MAX)).rev().take(limit) {
            last = Some(*created);
            visit(IndexedRun { created: *created, table: &inner, row });
        }
        last
    }

    /// Reads one run by its place in the order of creation. `None`: it was erased.
    pub fn with<T>(&self, created: u64, read: impl FnOnce(IndexedRun<'_>) -> T) -> Option<T> {
        let inner = self.inner.read();
        inner.rows.get(&created).map(|row| read(IndexedRun { created, table: &inner, row }))
    }
}

/// Counts a row whose status changes.
fn recount(by_status: &mut [usize; Status::ALL.len()], before: Option<[Status; 3]>, now: Option<[Status; 3]>) {
    let place = |status: [Status; 3]| status[Audience::Internal.index()] as usize;
    if let Some(before) = before {
        by_status[place(before)] -= 1;
    }
    if let Some(now) = now {
        by_status[place(now)] += 1;
    }
}

impl RunTable {
    fn new_row(&mut self, run: &RunId, now: &Summary, version: u64) -> RunRow {
        let figures = now.figures.as_deref();
        let (mut agent, mut source, mut owner) = (None, None, None);
        self.agents.replace(&mut agent, now.agent.as_ref());
        self.sources.replace(&mut source, figures.and_then(RunFigures::source).map(Box::from).as_ref());
        self.owners.replace(&mut owner, now.extension.owner.as_ref());
        let (is_compacted, archived) = upkeep_of(now);
        RunRow {
            run: run.clone(),
            session: now.session_id.clone(),
            agent,
            source,
            owner,
            status: Audience::ALL.map(|audience| now.run_for(audience).status),
            started: millis(now.started_at.as_deref()),
            ended: millis(now.ended_at.as_deref()),
            is_compacted,
            archived,
            version,
            costs: figures.and_then(RunCosts::of),
        }
    }
}

/// The number of a name, plus 1.
type NameNumber = NonZeroU32;

/// Names that rows share, each with the number of its rows. A name without a row is forgotten.
struct Names<N> {
    numbers: HashMap<N, NameNumber>,
    entries: Vec<Option<(N, u32)>>,
    free: Vec<NameNumber>,
}

impl<N> Default for Names<N> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), entries: Vec::new(), free: Vec::new() }
    }
}

const fn place(number: NameNumber) -> usize {
    number.get() as usize - 1
}

impl<N: Clone + Eq + Hash> Names<N> {
    fn name(&self, number: NameNumber) -> &N {
        &self.entries[place(number)].as_ref().expect("a row's name is kept").0
    }

    /// Gives a row another name.
    fn replace(&mut self, of: &mut Option<NameNumber>, name: Option<&N>) {
        if of.map(|number| self.name(number)) == name {
            return;
        }
        if let Some(number) = std::mem::replace(of, name.map(|name| self.add(name))) {
            self.release(number);
        }
    }

    fn add(&mut self, name: &N) -> NameNumber {
        if let Some(number) = self.numbers.get(name) {
            if let Some((_, rows)) = &mut self.entries[place(*number)] {
                *rows += 1;
            }
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            let number = u32::try_from(self.entries.len()).ok().and_then(NonZeroU32::new);
            number.expect("a store has fewer runs than numbers")
        });
        self.entries[place(number)] = Some((name.clone(), 1));
        self.numbers.insert(name.clone(), number);
        number
    }

    fn release(&mut self, number: NameNumber) {
        let entry = &mut self.entries[place(number)];
        let Some((name, rows)) = entry else { return };
        *rows -= 1;
        if *rows == 0 {
            self.numbers.remove(name);
            *entry = None;
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ledger::RunState;
    use std::sync::Arc;

    fn summary(agent: Option<&str>, status: Status) -> Summary {
        let run = RunState { status, ..RunState::default() };
        let agent = agent.map(|agent| agent.parse().unwrap());
        Summary { run, agent, started_at: Some("2026-01-01T00:00:01Z".into()), ..Summary::default() }
    }

    fn run(n: u64) -> RunId {
        format!("r{n}").parse().unwrap()
    }

    fn shown(index: &RunIndex) -> Vec<(u64, Option<String>, Status)> {
        let mut rows = Vec::new();
        index.visit(|row| {
            rows.push((row.created, row.agent().map(ToString::to_string), row.status(Audience::User)));
            ControlFlow::Continue(())
        });
        rows
    }

    #[test]
    fn each_run_has_one_row_that_follows_its_summary_until_it_is_erased() {
        let index = RunIndex::default();
        let first = summary(Some("coder"), Status::Running);
        index.apply(1, &run(1), None, &first);
        index.apply(2, &run(2), None, &summary(None, Status::Waiting));
        let mut ended = summary(Some("writer"), Status::Failed);
        ended.ended_at = Some("2026-01-01T00:00:03.500Z".into());
        let mut figures = RunFigures::begin(Some("acp"), true);
        figures.add_wait(7, [true, true, true]);
        ended.figures = Some(Arc::new(figures));
        index.apply(1, &run(1), Some(&first), &ended);
        assert_eq!(shown(&index), [(2, None, Status::Waiting), (1, Some("writer".into()), Status::Failed)]);
        let read = |row: IndexedRun<'_>| {
            (row.source().map(str::to_owned), row.duration(), row.waits(Audience::User).sum::<u64>(), row.version())
        };
        assert_eq!(index.with(1, read), Some((Some("acp".into()), Some(2500), 7, 3)));
        index.forget(1);
        index.forget(1);
        assert_eq!((index.count(), index.with(1, read)), (1, None));
    }

    #[test]
    fn a_name_is_kept_once_and_only_while_a_run_has_it() {
        let index = RunIndex::default();
        for n in 1..=4 {
            index.apply(n, &run(n), None, &summary(Some(if n < 4 { "a" } else { "b" }), Status::Running));
        }
        let names = || {
            let inner = index.inner.read();
            (inner.agents.numbers.len(), inner.agents.entries.len(), inner.agents.free.len())
        };
        assert_eq!(names(), (2, 2, 0));
        index.forget(4);
        assert_eq!(names(), (1, 2, 1));
        index.apply(5, &run(5), None, &summary(Some("c"), Status::Running));
        assert_eq!(names(), (2, 2, 0));
        assert_eq!(shown(&index)[0].1.as_deref(), Some("c"));
    }

    #[test]
    fn a_run_waits_for_its_compaction_from_its_end_on_until_all_its_rows_are_considered() {
        let index = RunIndex::default();
        let count = ROWS_AT_ONCE as u64 + 3;
        for n in 1..=count {
            let status = if n == 2 { Status::Running } else { Status::Completed };
            let mut summary = Summary { last_sequence: Sequence(9), ..summary(None, status) };
            summary.ended_at = Some(if n == 3 { "2026-01-01T00:01:00Z".into() } else { "2026-01-01T00:00:10Z".into() });
            index.apply(n, &run(n), None, &summary);
            if n == 4 {
                let mut compacted = summary.clone();
                compacted.compacted.considered = Sequence(9);
                index.apply(n, &run(n), Some(&summary), &compacted);
            }
        }
        let minute = millis(Some("2026-01-01T00:00:59Z"));
        let (due, reached) = index.waiting(Upkeep::Compaction, 0, minute);
        assert_eq!((&due[..2], due.len(), reached), (&[run(1), run(5)][..], ROWS_AT_ONCE - 3, Some(ROWS_AT_ONCE as u64)));
        assert_eq!(
            index.waiting(Upkeep::Compaction, ROWS_AT_ONCE as u64, minute),
            ((count - 2..=count).map(run).collect(), Some(count))
        );
        assert_eq!(index.waiting(Upkeep::Compaction, count, minute), (Vec::new(), None));
    }

    #[test]
    fn a_reader_visits_more_rows_than_it_locks_at_once_and_may_stop() {
        let index = RunIndex::default();
        let count = 3 * ROWS_AT_ONCE as u64 + 5;
        for n in 1..=count {
            index.apply(n, &run(n), None, &summary(None, Status::Running));
        }
        let all: Vec<u64> = shown(&index).into_iter().map(|(created, ..)| created).collect();
        assert!(all.iter().copied().eq((1..=count).rev()));
        let mut seen = 0;
        index.visit(|_| {
            seen += 1;
            if seen == 3000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(seen, 3000);
    }
}

//! What was erased within the last day: its ids are refused.

use super::LogId;
use crate::model::{OwnerId, RunId, SessionId};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long the id of an erased session or run is refused.
pub const ERASED_TIME: Duration = Duration::from_hours(24);
/// Erased ids that are remembered. Beyond, the oldest may be used again before their time.
pub const ERASED_IDS_MAX: usize = 1 << 18;

/// A session or run that was erased. Its id is [`ErasedRecord::key`]. It has ids and no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasedRecord {
    /// When the id may be used again, in milliseconds since 1970.
    pub until: i64,
    /// The session of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Whose it was: for others, the id stays what it was to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Whether facts may begin it again before that time: a run that was erased alone. Its record is of no effect then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reusable: bool,
}

impl ErasedRecord {
    /// The name of the table of these records in the server's own state.
    pub const TABLE: &'static str = "erased";

    /// The id of the record of a log.
    #[must_use]
    pub fn key(log: &LogId) -> String {
        match log {
            LogId::Run(run) => format!("r:{run}"),
            LogId::Session(session) => format!("s:{session}"),
        }
    }

    /// The log of a record's id.
    #[must_use]
    pub fn parse(key: &str) -> Option<LogId> {
        match key.split_once(':')? {
            ("r", run) => run.parse::<RunId>().ok().map(LogId::Run),
            ("s", session) => session.parse::<SessionId>().ok().map(LogId::Session),
            _ => None,
        }
    }
}

/// The sessions and runs that were erased lately.
#[derive(Default)]
pub struct ErasedLogs {
    records: RwLock<HashMap<LogId, ErasedRecord>>,
    /// The number of records, so that a server without erasures takes no lock.
    count: AtomicUsize,
}

impl ErasedLogs {
    /// Sets or removes a record.
    pub(super) fn set(&self, log: LogId, record: Option<ErasedRecord>) {
        let mut records = self.records.write();
        match record {
            Some(record) => records.insert(log, record),
            None => records.remove(&log),
        };
        self.count.store(records.len(), Ordering::Release);
    }

    /// The number of records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The record of a log.
    #[must_use]
    pub fn get(&self, log: &LogId) -> Option<ErasedRecord> {
        if self.count() == 0 { None } else { self.records.read().get(log).cloned() }
    }

    /// The log because of which the server accepts nothing for `log`: itself, or its session.
    #[must_use]
    pub fn refuses(&self, log: &LogId, session: Option<&SessionId>) -> Option<LogId> {
        if self.count() == 0 {
            return None;
        }
        let session = session.cloned().map(LogId::Session);
        let records = self.records.read();
        [Some(log.clone()), session].into_iter().flatten().find(|log| records.get(log).is_some_and(|record| !record.is_reusable))
    }

    /// Up to `limit` logs whose time is over, or, beyond [`ERASED_IDS_MAX`], whose time is over next.
    #[must_use]
    pub fn past(&self, now: i64, limit: usize) -> Vec<LogId> {
        let records = self.records.read();
        let excess = records.len().saturating_sub(ERASED_IDS_MAX);
        let of_interest = records.iter().filter(|(_, record)| excess > 0 || record.until <= now);
        let mut by_time: Vec<_> = of_interest.map(|(log, record)| (record.until, log)).collect();
        by_time.sort_unstable_by_key(|(until, _)| *until);
        let is_past = |(n, (until, _)): &(usize, (i64, &LogId))| *n < excess || *until <= now;
        by_time.into_iter().enumerate().take_while(is_past).map(|(_, (_, log))| log.clone()).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str) -> LogId {
        LogId::Run(id.parse().unwrap())
    }

    const fn until(until: i64) -> ErasedRecord {
        ErasedRecord { until, session: None, owner: None, is_reusable: false }
    }

    #[test]
    fn a_log_is_refused_for_itself_or_for_its_session() {
        let (erased, session) = (ErasedLogs::default(), "s".parse::<SessionId>().unwrap());
        assert_eq!(erased.refuses(&run("r"), Some(&session)), None);
        erased.set(LogId::Session(session.clone()), Some(until(9)));
        assert_eq!(erased.refuses(&run("r"), Some(&session)), Some(LogId::Session(session.clone())));
        assert_eq!(erased.refuses(&run("r"), None), None);
        erased.set(run("r"), Some(until(9)));
        assert_eq!(erased.refuses(&run("r"), None), Some(run("r")));
        erased.set(LogId::Session(session.clone()), None);
        erased.set(run("r"), None);
        assert_eq!((erased.refuses(&run("r"), Some(&session)), erased.count()), (None, 0));
    }

    #[test]
    fn a_run_that_was_erased_alone_is_known_and_not_refused() {
        let erased = ErasedLogs::default();
        erased.set(run("r"), Some(ErasedRecord { is_reusable: true, ..until(9) }));
        assert_eq!((erased.refuses(&run("r"), None), erased.get(&run("r")).is_some()), (None, true));
        assert_eq!(erased.past(9, 1), [run("r")]);
    }

    #[test]
    fn ids_are_free_after_their_time_the_oldest_first() {
        let erased = ErasedLogs::default();
        for (id, time) in [("c", 30), ("a", 10), ("b", 20)] {
            erased.set(run(id), Some(until(time)));
        }
        assert_eq!(erased.past(20, 9), [run("a"), run("b")]);
        assert_eq!(erased.past(99, 1), [run("a")]);
        assert_eq!(erased.past(9, 9), []);
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        for log in [run("a:b"), LogId::Session("s".parse().unwrap())] {
            assert_eq!(ErasedRecord::parse(&ErasedRecord::key(&log)), Some(log));
        }
        assert_eq!(ErasedRecord::parse("x:y"), None);
    }
}

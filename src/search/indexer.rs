//! The indexer: reads commits in their order, and gives out the parts that they complete.

use super::parts::{PartReader, TextPart};
use crate::log::row::Row;
use crate::log::{LogId, LogKind, Store, StoreError};
use crate::model::{RunId, SessionId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Logs that the indexer remembers. It looks up another one again, and takes the open texts of those that it forgets as
/// complete.
pub const READ_LOGS_MAX: usize = 16_384;
/// The bytes of open texts that the indexer holds, of all logs. Beyond, it takes all of them as complete.
pub const OPEN_BYTES_MAX: usize = 16 << 20;

/// A part, with its log.
pub type LogPart = (u64, LogKind, TextPart);

/// What is remembered of one log.
struct ReadLog {
    number: u64,
    reader: PartReader,
    /// How many logs had been erased when the store was last asked for its number; `None`: it was not asked.
    checked: Option<u64>,
}

/// The open texts of a log, as they are saved.
#[derive(Serialize, Deserialize)]
pub struct SavedReader {
    is_session: bool,
    id: Box<str>,
    number: u64,
    reader: PartReader,
}

/// What the indexer knows of the logs that it has read.
#[derive(Default)]
pub struct Indexer {
    logs: HashMap<LogId, ReadLog>,
}

impl Indexer {
    /// Goes on with the open texts of an earlier process.
    pub fn load(saved: Vec<SavedReader>) -> Self {
        let log = |SavedReader { is_session, id, number, reader }| {
            let log = match is_session {
                true => LogId::Session(SessionId::stored(&id).ok()?),
                false => LogId::Run(RunId::new(&id).ok()?),
            };
            Some((log, ReadLog { number, reader, checked: None }))
        };
        Self { logs: saved.into_iter().filter_map(log).collect() }
    }

    /// The open texts.
    pub fn open(&self) -> Vec<SavedReaderRef<'_>> {
        let open = self.logs.iter().filter(|(_, log)| !log.reader.is_idle());
        let saved = open.map(|(id, ReadLog { number, reader, .. })| {
            let (is_session, id) = match id {
                LogId::Run(id) => (false, id.as_str()),
                LogId::Session(id) => (true, id.as_str()),
            };
            SavedReaderRef { is_session, id, number: *number, reader }
        });
        saved.collect()
    }

    /// Reads appends, in the order of their positions. `erasures`: how many logs were erased before the last of them, or more.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn read(
        &mut self,
        store: &dyn Store,
        erasures: u64,
        appends: Vec<(u64, Bytes)>,
        out: &mut Vec<LogPart>,
    ) -> Result<(), StoreError> {
        for (position, rows) in appends {
            self.read_append(store, erasures, position, rows, out)?;
        }
        self.limit(out);
        Ok(())
    }

    fn read_append(
        &mut self,
        store: &dyn Store,
        erasures: u64,
        position: u64,
        rows: Bytes,
        out: &mut Vec<LogPart>,
    ) -> Result<(), StoreError> {
        let Ok(rows) = Row::decode_all(rows) else { return Ok(()) };
        let Some(last) = rows.last().filter(|_| rows.iter().any(PartReader::is_of_interest)) else { return Ok(()) };
        let Some(id) = last.log().filter(|id| !id.is_of_server()) else { return Ok(()) };
        let kind = id.kind();
        let log = match self.logs.entry(id) {
            Entry::Occupied(known) if known.get().checked == Some(erasures) => known.into_mut(),
            entry => {
                // The rows of an erased log may still be there, and another log may have its name.
                let head = store.head(entry.key())?;
                match (entry, head) {
                    (Entry::Occupied(known), None) => {
                        known.remove();
                        return Ok(());
                    }
                    (Entry::Vacant(_), None) => return Ok(()),
                    (Entry::Occupied(known), Some(head)) if known.get().number == head.number => {
                        let known = known.into_mut();
                        known.checked = Some(erasures);
                        known
                    }
                    (entry, Some(head)) => {
                        if store.position_of(entry.key(), head.epoch, last.sequence())? != Some(position) {
                            return Ok(());
                        }
                        let (number, reader) = (head.number, PartReader::default());
                        entry.insert_entry(ReadLog { number, reader, checked: Some(erasures) }).into_mut()
                    }
                }
            }
        };
        let mut parts = Vec::new();
        for row in &rows {
            log.reader.read(row, &mut parts);
        }
        let number = log.number;
        out.extend(parts.into_iter().map(|part| (number, kind, part)));
        if self.logs.len() > READ_LOGS_MAX {
            self.give_open(false, out);
            self.logs.clear();
        }
        Ok(())
    }

    /// Gives out what is open as if it were complete; see [`PartReader::give_open`].
    pub fn give_open(&mut self, only_quiet: bool, out: &mut Vec<LogPart>) {
        for (id, log) in &mut self.logs {
            let (number, mut parts) = (log.number, Vec::new());
            log.reader.give_open(only_quiet, &mut parts);
            out.extend(parts.into_iter().map(|part| (number, id.kind(), part)));
        }
    }

    /// Takes everything that is open as complete if it is too much to hold.
    fn limit(&mut self, out: &mut Vec<LogPart>) {
        if self.logs.values().map(|log| log.reader.bytes()).sum::<usize>() > OPEN_BYTES_MAX {
            self.give_open(false, out);
            self.logs.clear();
        }
    }

    /// Forgets the logs that the store no longer has.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn forget_erased(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let mut gone = Vec::new();
        for (id, log) in &self.logs {
            if store.head(id)?.is_none_or(|head| head.number != log.number) {
                gone.push(id.clone());
            }
        }
        for id in gone {
            self.logs.remove(&id);
        }
        Ok(())
    }
}

/// The same as [`SavedReader`], to be saved.
#[derive(Serialize)]
pub struct SavedReaderRef<'i> {
    is_session: bool,
    id: &'i str,
    number: u64,
    reader: &'i PartReader,
}

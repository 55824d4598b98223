//! The server's own state: what it keeps beside sessions and runs.
//!
//! ```text
//!   append to the server's own log ─▶ commit ─▶ applier ─▶ ServerState, on every node
//! ```
//!
//! Each entry is a state entry of the log [`LogId::of_server`], so it is as durable as a fact and in the same order, and
//! a cluster's nodes agree on it. The memory has every entry: the tables are small and bounded where they are written.

use super::erased_logs::{ErasedLogs, ErasedRecord};
use super::{LoadedLog, LogId, StoreError};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use tokio::sync::watch;

/// The prefix of the entries' keys; the table and the id follow.
const KEY_PREFIX: &str = "server:";
/// The bytes of a hash in an id.
const HASH_BYTES: usize = 16;

/// A kind of entry.
pub trait StateRecord: Serialize + DeserializeOwned {
    /// The name of the table of these entries, without a colon.
    const TABLE: &'static str;
}

/// A change of one entry.
#[derive(Debug, Clone)]
pub struct EntryChange {
    pub(crate) key: Bytes,
    /// `None` removes the entry.
    pub(crate) value: Option<Bytes>,
}

impl EntryChange {
    /// Sets the entry with this id.
    ///
    /// # Panics
    /// When the record cannot be JSON, which plain data always can.
    #[must_use]
    pub fn set<R: StateRecord>(id: &str, record: &R) -> Self {
        let value = serde_json::to_vec(record).expect("plain data serializes");
        Self { key: key::<R>(id).into(), value: Some(value.into()) }
    }

    /// Removes the entry with this id.
    #[must_use]
    pub fn remove<R: StateRecord>(id: &str) -> Self {
        Self { key: key::<R>(id).into(), value: None }
    }
}

/// A prefix of ids for the entries about a person or a session, whose own id may have any length and characters.
#[must_use]
pub fn hashed_prefix(of: &str) -> String {
    let hash = Sha256::digest(of);
    HEXLOWER.encode(&hash[..HASH_BYTES]) + ":"
}

/// The id of an entry of this table; `None` for any other state entry.
#[must_use]
pub fn id_of<R: StateRecord>(key: &[u8]) -> Option<&str> {
    let key = key.strip_prefix(KEY_PREFIX.as_bytes())?.strip_prefix(R::TABLE.as_bytes())?.strip_prefix(b":")?;
    std::str::from_utf8(key).ok()
}

fn key<R: StateRecord>(id: &str) -> String {
    format!("{KEY_PREFIX}{}:{id}", R::TABLE)
}

/// The table of an entry's key.
fn table_of(key: &str) -> &str {
    key[KEY_PREFIX.len()..].split(':').next().unwrap_or_default()
}

/// The entries of all tables.
#[derive(Default)]
pub struct ServerState {
    tables: RwLock<Tables>,
    changes: watch::Sender<u64>,
    erased: ErasedLogs,
}

#[derive(Default)]
struct Tables {
    entries: BTreeMap<String, Bytes>,
    counts: HashMap<Box<str>, TableCounts>,
}

#[derive(Default, Clone, Copy)]
struct TableCounts {
    entries: usize,
    /// Changes since the start.
    changes: u64,
}

impl Tables {
    fn set(&mut self, key: &str, value: Option<Bytes>) {
        let has = value.is_some();
        let had = match value {
            Some(value) => self.entries.insert(key.to_owned(), value).is_some(),
            None => self.entries.remove(key).is_some(),
        };
        let counts = self.counts.entry(table_of(key).into()).or_default();
        counts.changes += 1;
        counts.entries = counts.entries + usize::from(has) - usize::from(had);
    }

    fn counts_of<R: StateRecord>(&self) -> TableCounts {
        self.counts.get(R::TABLE).copied().unwrap_or_default()
    }
}

impl ServerState {
    /// Takes the entries that the store has.
    ///
    /// # Errors
    /// `Unreadable` for an entry that is no text.
    pub(super) fn load(&self, loaded: &LoadedLog) -> Result<(), StoreError> {
        for (key, value) in &loaded.state {
            let name = std::str::from_utf8(key).map_err(|error| StoreError::unreadable(&LogId::of_server(), key, &error))?;
            if name.starts_with(KEY_PREFIX) {
                self.note_erased(name, Some(value));
                self.tables.write().set(name, Some(value.clone()));
            }
        }
        Ok(())
    }

    /// Applies the state entries of a committed append.
    pub(super) fn apply(&self, state: &[(Bytes, Option<Bytes>)]) {
        let ours = state.iter().filter_map(|(key, value)| Some((std::str::from_utf8(key).ok()?, value)));
        let ours: Vec<_> = ours.filter(|(key, _)| key.starts_with(KEY_PREFIX)).collect();
        if ours.is_empty() {
            return;
        }
        let mut tables = self.tables.write();
        for (key, value) in ours {
            self.note_erased(key, value.as_ref());
            tables.set(key, value.clone());
        }
        drop(tables);
        self.changes.send_modify(|count| *count += 1);
    }

    /// The entry with this id; `None` also for one that this version cannot read.
    #[must_use]
    pub fn get<R: StateRecord>(&self, id: &str) -> Option<R> {
        let value = self.tables.read().entries.get(&key::<R>(id)).cloned()?;
        read::<R>(id, &value)
    }

    /// All entries of a table whose ids begin with `prefix`, by id.
    #[must_use]
    pub fn all<R: StateRecord>(&self, prefix: &str) -> Vec<(String, R)> {
        let (table, from) = (key::<R>(""), key::<R>(prefix));
        let tables = self.tables.read();
        let found = tables.entries.range(from.clone()..).take_while(|(key, _)| key.starts_with(&from));
        let found: Vec<_> = found.map(|(key, value)| (key[table.len()..].to_owned(), value.clone())).collect();
        drop(tables);
        found.into_iter().filter_map(|(id, value)| read::<R>(&id, &value).map(|record| (id, record))).collect()
    }

    /// The number of entries of a table whose ids begin with `prefix`.
    #[must_use]
    pub fn count<R: StateRecord>(&self, prefix: &str) -> usize {
        let from = key::<R>(prefix);
        self.tables.read().entries.range(from.clone()..).take_while(|(key, _)| key.starts_with(&from)).count()
    }

    /// The number of entries of a table.
    #[must_use]
    pub fn length<R: StateRecord>(&self) -> usize {
        self.tables.read().counts_of::<R>().entries
    }

    /// The ids of a table's entries that `wanted` takes.
    #[must_use]
    pub fn ids<R: StateRecord>(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let table = key::<R>("");
        let tables = self.tables.read();
        let keys = tables.entries.range(table.clone()..).map_while(|(key, _)| key.strip_prefix(&table));
        keys.filter(|id| wanted(id)).map(str::to_owned).collect()
    }

    /// A number that grows with each change of an entry of a table.
    #[must_use]
    pub fn version<R: StateRecord>(&self) -> u64 {
        self.tables.read().counts_of::<R>().changes
    }

    /// What was erased lately.
    #[must_use]
    pub const fn erased(&self) -> &ErasedLogs {
        &self.erased
    }

    fn note_erased(&self, key: &str, value: Option<&Bytes>) {
        let table = key.strip_prefix(KEY_PREFIX).and_then(|key| key.strip_prefix(ErasedRecord::TABLE)?.strip_prefix(':'));
        if let Some((id, log)) = table.and_then(|id| Some((id, ErasedRecord::parse(id)?))) {
            self.erased.set(log, value.and_then(|value| read(id, value)));
        }
    }

    /// A receiver that changes with each change of an entry.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

fn read<R: StateRecord>(id: &str, value: &[u8]) -> Option<R> {
    let read = serde_json::from_slice(value);
    read.inspect_err(|error| tracing::error!(%error, table = R::TABLE, id, "an entry of the server cannot be read")).ok()
}

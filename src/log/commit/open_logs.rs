//! The open logs of a server.

use super::tail::{Log, Tail};
use crate::log::summary::summary_of;
use crate::log::{LoadedLog, LogId, StoreError};
use dashmap::DashMap;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The open logs. An empty cell belongs to a log that is being loaded.
#[derive(Default)]
pub(super) struct OpenLogs(DashMap<LogId, Arc<OnceCell<Arc<Log>>>>);

impl OpenLogs {
    /// Returns the log, and opens it with what `load` returns if necessary.
    ///
    /// It is loaded once for all concurrent callers. Only an open log can be written or erased, so a tail is never older
    /// than its log.
    ///
    /// # Errors
    /// Those of `load`, and `Unreadable` for a log without a summary that can be read.
    pub async fn open(
        &self,
        id: &LogId,
        load: impl AsyncFnOnce() -> Result<Option<LoadedLog>, StoreError>,
    ) -> Result<Arc<Log>, StoreError> {
        let known = self.0.get(id).map(|cell| cell.clone());
        let cell = known.unwrap_or_else(|| self.0.entry(id.clone()).or_default().clone());
        let opened = cell.get_or_try_init(async || {
            let tail = match load().await? {
                None => Tail::default(),
                Some(loaded) => {
                    let summary = Arc::new(summary_of(id, &loaded)?);
                    Tail { epoch: Some(loaded.epoch), last: loaded.last, summary }
                }
            };
            Ok(Arc::new(Log::new(id.clone(), tail)))
        });
        opened.await.cloned()
    }

    /// Returns the log if it is open.
    pub fn get(&self, id: &LogId) -> Option<Arc<Log>> {
        self.0.get(id).and_then(|cell| cell.get().cloned())
    }

    /// Closes logs that no caller holds.
    pub fn sweep(&self) {
        let is_held = |cell: &Arc<OnceCell<Arc<Log>>>| {
            Arc::strong_count(cell) > 1 || cell.get().is_some_and(|log| Arc::strong_count(log) > 1)
        };
        self.0.retain(|_, cell| is_held(cell));
    }

    /// The number of open logs, without the server's own.
    pub fn len(&self) -> usize {
        self.0.len() - usize::from(self.0.contains_key(&LogId::of_server()))
    }
}

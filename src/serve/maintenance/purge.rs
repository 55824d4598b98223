//! The pass that removes what erasures left in files, on every node: at the latest each half of `--erase-within`.

use crate::log::StoreError;
use crate::serve::App;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two looks at what waits: an eighth of `--erase-within`, within this range.
const CHECK_INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(1);

/// Removes the bytes of what was erased from the files of one server.
pub struct Purger {
    app: Arc<App>,
    within: Duration,
}

impl Purger {
    pub(in crate::serve) const fn new(app: Arc<App>, within: Duration) -> Self {
        Self { app, within }
    }

    /// Works until the task is aborted.
    pub(in crate::serve) async fn run(self) {
        loop {
            tokio::time::sleep((self.within / 8).clamp(*CHECK_INTERVAL.start(), *CHECK_INTERVAL.end())).await;
            if let Err(error) = self.run_once().await {
                // A failure of the store stops the server elsewhere.
                tracing::warn!(%error, "cannot remove the bytes of what was erased");
            }
        }
    }

    /// Runs a pass if something has waited for half of the time.
    async fn run_once(&self) -> Result<(), StoreError> {
        let remains = self.app.logs.remains();
        let half = i64::try_from(self.within.as_millis() / 2).unwrap_or(i64::MAX);
        let now = (self.app.environment.now)().as_millisecond();
        // In a cluster, the tables are done, and the stream waits for its nodes.
        let is_rewritten = remains.rewritten >= remains.commit;
        if remains.since.is_none_or(|since| since.saturating_add(half) > now || is_rewritten) {
            return Ok(());
        }
        // First: a pass over the store's files ends what waits, and this one would not be tried again. What is erased
        // meanwhile waits for the next pass.
        let (search, logs) = (self.app.search.clone(), self.app.logs.clone());
        self.app.logs.index(move |store| search.purge(store, &logs)).await?;
        let is_complete = self.app.logs.purge(remains).await?;
        tracing::info!(bytes = remains.bytes, is_complete, "removed the bytes of what was erased from the tables");
        Ok(())
    }
}

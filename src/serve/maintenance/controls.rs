//! Expiry of controls that are not claimed or not answered in time, and what falls due for actions that wait.

use crate::log::StoreError;
use crate::serve::App;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time between two expiry checks.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// Requeues controls whose lease expired, closes expired or obsolete controls, and does what is due for actions that wait.
pub struct ControlMaintenance {
    app: Arc<App>,
}

impl ControlMaintenance {
    pub(in crate::serve) const fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    /// Runs the checks until the task is aborted.
    pub(in crate::serve) async fn run(self) {
        loop {
            // Wakes for the next check, or at once for a control that is due.
            let _ = tokio::time::timeout(CHECK_INTERVAL_MAX, self.app.logs.queues().wakeup()).await;
            if !self.app.logs.leadership().leads() {
                // A control that is due wakes this task again at once.
                tokio::time::sleep(CHECK_INTERVAL_MAX).await;
                continue;
            }
            if let Err(error) = self.run_once(Instant::now(), (self.app.environment.now)()).await {
                // A failure of the store stops the server elsewhere.
                tracing::warn!(%error, "cannot expire controls");
            }
        }
    }

    /// Checks once.
    ///
    /// `now` and `wall` are the same moment on the two clocks. Returns the number of closed controls.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn run_once(&self, now: Instant, wall: jiff::Timestamp) -> Result<usize, StoreError> {
        let App { controls, logs, ingest, .. } = &*self.app;
        let closed = controls.expire_due(logs, ingest, now, wall).await?;
        controls.act_on_waits(logs, ingest, wall).await?;
        Ok(closed)
    }
}

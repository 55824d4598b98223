//! Runs that a client requested and that are not written yet.

use crate::log::{LogId, StoreError};
use crate::model::{AgentId, ControlId, RunId, SessionId};
use crate::serve::App;

/// The id of the `send` control that requests a run.
///
/// `None`: the run's id is too long to be contained in it.
#[must_use]
pub fn request_control_id(run: &RunId) -> Option<ControlId> {
    ControlId::new(&format!("{REQUEST_PREFIX}{run}")).ok()
}

/// What such an id begins with.
const REQUEST_PREFIX: &str = "run:";

/// A run that a client requested and that is not written.
pub struct RequestedRun {
    pub run: RunId,
    pub thread: SessionId,
    /// When it was requested, in milliseconds since 1970.
    pub at: i64,
}

/// The runs that were requested of an agent and are neither written nor refused yet.
///
/// # Errors
/// The store's failure.
pub async fn requested_of_agent(app: &App, agent: &AgentId) -> Result<Vec<RequestedRun>, StoreError> {
    let mut requested = Vec::new();
    for (log, control, position) in app.logs.queues().asking_for_work(agent) {
        let run = control.as_str().strip_prefix(REQUEST_PREFIX).and_then(|run| RunId::new(run).ok());
        let (LogId::Session(thread), Some(run)) = (log, run) else { continue };
        if app.logs.log(&LogId::Run(run.clone())).await?.tail().epoch.is_none() {
            // Positions in queues are the microseconds of their time.
            requested.push(RequestedRun { run, thread, at: i64::try_from(position / 1000).unwrap_or(i64::MAX) });
        }
    }
    Ok(requested)
}

/// The thread that requested this run, if the run is neither written nor refused yet.
#[must_use]
pub fn requested_in_thread(app: &App, run: &RunId) -> Option<SessionId> {
    match app.logs.queues().log_of(&request_control_id(run)?)? {
        LogId::Session(session) => Some(session),
        LogId::Run(_) => None,
    }
}

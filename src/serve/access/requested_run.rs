//! Runs that a client requested and that are not written yet.

use crate::log::LogId;
use crate::model::{ControlId, RunId, SessionId};
use crate::serve::App;

/// The id of the `send` control that requests a run.
///
/// `None`: the run's id is too long to be contained in it.
#[must_use]
pub fn request_control_id(run: &RunId) -> Option<ControlId> {
    ControlId::new(&format!("run:{run}")).ok()
}

/// The thread that requested this run, if the run is neither written nor refused yet.
#[must_use]
pub fn requested_in_thread(app: &App, run: &RunId) -> Option<SessionId> {
    match app.logs.queues().log_of(&request_control_id(run)?)? {
        LogId::Session(session) => Some(session),
        LogId::Run(_) => None,
    }
}

//! A session that a client has open: how it is opened, and what the connection knows of it.

use super::prompt::Prompt;
use super::rpc::{NOT_FOUND, RpcError};
use crate::auth::rights::Verb;
use crate::encode::acp::{Acp, AcpEvent, AcpOptions, Position, TurnState};
use crate::encode::frames::ActivityView;
use crate::feed::{AnyReader, Filter, Frames, LogSet, ReadRequest, StartAt, merged_reader};
use crate::log::LogId;
use crate::model::{Audience, Cursor, RunId, SessionId};
use crate::projection::activity_set::Activity;
use crate::serve::App;
use crate::serve::access::authorization::{OpenAccess, Principal, Resource, authorize};
use crate::serve::api::sessions::activities_at;
use crate::serve::clients::bodies::BodyReader;
use crate::serve::http::problem::Problem;
use crate::serve::telemetry::meters::{Counted, Transport};
use futures_util::future::AbortHandle;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

/// A session that a client has open.
pub(super) struct OpenSession {
    pub acp: Acp,
    /// Ends the reading.
    pub reading: AbortHandle,
    /// How the runs stand, as the client knows it.
    pub runs: HashMap<Box<str>, TurnState>,
    pub prompts: Vec<Prompt>,
    pub bodies: BodyReader,
}

/// From where a client is shown a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Start {
    /// It is shown the state of the session.
    Load,
    /// It has the session as it is now.
    Now,
    /// It has the session up to here.
    After(Box<Position>),
}

/// A session that is ready to be read.
pub(super) struct Opening {
    pub acp: Acp,
    pub bodies: BodyReader,
    pub reader: AnyReader,
    pub access: OpenAccess,
    pub counted: Counted,
    /// What the client gets before its request is answered, and what after.
    pub events: Vec<AcpEvent>,
}

/// Opens a session that exists for a reader.
///
/// # Errors
/// Why the client may not read it, or the store's failure.
pub(super) async fn open(
    app: &Arc<App>,
    principal: &Principal,
    session: &SessionId,
    audience: Audience,
    start: Start,
    options: AcpOptions,
) -> Result<Opening, RpcError> {
    let authorization = authorize(app, principal, Verb::Read, Resource::Session(session), Some(audience)).await?;
    let decides = authorize(app, principal, Verb::Control, Resource::Session(session), Some(audience)).await.is_ok();
    let store_epoch = app.logs.store_epoch();
    let now = Cursor::at(store_epoch, merged_reader::now(&app.logs));
    let position = match &start {
        Start::After(position) => (**position).clone(),
        Start::Load | Start::Now => Position::at(now),
    };
    let cursor = position.cursor();
    if cursor.epoch != store_epoch {
        let detail = "The cursor is of another store, so the client's copy of the session is void. Load the session.";
        return Err(
            RpcError::new(NOT_FOUND, detail).with(json!({ "code": "epoch_changed", "member": "_meta.proscenium.cursor" }))
        );
    }
    let known = activities_at(app, session, audience, cursor.after).await?;
    let mut bodies = BodyReader::new(app, audience, Vec::new());
    let mut acp = Acp::new(session.as_str(), AcpOptions { decides, ..options });
    let mut logs = Vec::with_capacity(known.len());
    for (log, activities) in known {
        if let LogId::Run(run) = &log {
            bodies.cover(run);
        }
        logs.push(views(app, &log, activities));
    }
    let events = match start {
        Start::Load => {
            let events = logs.into_iter().flat_map(|log| acp.load(log)).collect();
            acp.end_load(cursor);
            events
        }
        Start::Now | Start::After(_) => acp.resume(logs, position),
    };
    let request = ReadRequest { filter: Filter::all(audience), frames: Frames::Activities, replay: false };
    let members = LogSet::of_session(app.logs.clone(), session.clone(), false, authorization.session_filter());
    let reader = AnyReader::Merged(Box::new(app.feed.read_merged(members, request, StartAt::After(cursor))));
    let counted = app.meters.reader(audience, Transport::WebSocket);
    Ok(Opening { acp, bodies, reader, access: authorization.into_open_access(), counted, events })
}

/// The activities of a log as dialects read them.
pub(super) fn views(app: &App, log: &LogId, activities: Vec<Activity>) -> Vec<ActivityView> {
    let view = |activity: &Activity| {
        let view = match log {
            LogId::Run(run) => ActivityView::of(run, activity),
            LogId::Session(_) => ActivityView::from(activity),
        };
        app.placeholders.mark_activity(view)
    };
    activities.iter().map(view).collect()
}

/// The current state of an activity. `None`: it is gone.
pub(super) async fn view_of(
    app: &App,
    log: &LogId,
    audience: Audience,
    kind: &str,
    id: &str,
) -> Result<Option<ActivityView>, Problem> {
    let view = app.feed.activities(log, audience, None).await?;
    let activities = view.map(crate::projection::View::into_activities).unwrap_or_default();
    let found = activities.into_iter().find(|activity| *activity.kind == *kind && *activity.id == *id);
    Ok(found.and_then(|activity| views(app, log, vec![activity]).pop()))
}

/// The log of an activity's run, or of the session itself.
pub(super) fn log_of(session: &SessionId, run: &str) -> LogId {
    RunId::new(run).map_or_else(|_| LogId::Session(session.clone()), LogId::Run)
}

//! The streams of the AI SDK's addresses: of a run that exists, and of one that was requested.

use super::{DialectStream, PendingOpening, Start, Started, StreamOpening, ag_ui, requests};
use crate::auth::rights::Verb;
use crate::encode::ai_sdk::{AiSdk, AiSdkOptions};
use crate::encode::translator::{IdPosition, PlainDialect};
use crate::encode::{Begin, Until};
use crate::model::{Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Resource, authorize};
use crate::serve::http::problem::Problem;
use std::sync::Arc;

/// The translation of a run for a client of this version, up to the run's end or its next pause.
#[must_use]
pub fn dialect(run: &RunId, version: u8, begin: Begin) -> Box<dyn PlainDialect> {
    Box::new(AiSdk::new(AiSdkOptions { message: run.to_string(), version, begin, until: Until::Pause }))
}

/// The translation of a stream whose chunks the client counts.
#[must_use]
pub fn counted_dialect(run: &RunId, version: u8) -> Box<dyn PlainDialect> {
    dialect(run, version, Begin::Replay)
}

/// Streams an existing run.
pub async fn open_run(
    app: &Arc<App>,
    authorization: &Authorization,
    run: RunId,
    audience: Audience,
    dialect: Box<dyn PlainDialect>,
) -> Result<DialectStream, Problem> {
    let authorization = authorize(app, authorization.principal(), Verb::Read, Resource::Run(&run), Some(audience)).await?;
    let opening =
        StreamOpening { run, audience, after: None, replay: false, ids: IdPosition::Last, earlier: Vec::new(), dialect };
    DialectStream::open(app, authorization, opening).await
}

/// Streams a requested run once it exists.
pub async fn open_requested_run(
    app: &Arc<App>,
    authorization: Authorization,
    chat: &SessionId,
    run: RunId,
    audience: Audience,
    dialect: Box<dyn PlainDialect>,
) -> Result<DialectStream, Problem> {
    let principal = authorization.principal().clone();
    let start = {
        let (app, chat) = (app.clone(), chat.clone());
        Box::pin(async move {
            let run = requests::wait_until_written(&app, chat.clone(), run).await?;
            let started = ag_ui::prepare(&app, &principal, &chat, run, audience, true).await?;
            Ok(Start::Run(Started { earlier: None, ..started }))
        })
    };
    DialectStream::after(app, authorization, PendingOpening { start, audience, ids: IdPosition::Last, meanwhile: None, dialect })
        .await
}

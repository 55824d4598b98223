//! Erasing a run: its log, bodies and checkpoints, permanently. Requires `admin`.

use super::controls::via;
use super::hydrate::no_such_run;
use crate::audit::{AuditEntry, Deed};
use crate::log::LogId;
use crate::model::RunId;
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::path_id;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{StatusCode, header};
use std::sync::Arc;

/// `DELETE /v1/runs/{run}`: erases a run.
///
/// The answer comes once no data of the run can return to a reader, even after a crash.
pub async fn run(State(app): State<Arc<App>>, authorization: Authorization, parts: Parts) -> Result<Response, Problem> {
    let run: RunId = path_id("runId", &parts.uri)?;
    let log = LogId::Run(run.clone());
    if app.logs.log(&log).await.is_ok_and(|log| log.tail().epoch.is_none()) {
        return Err(no_such_run(&run));
    }
    let by = authorization.decider(via(&parts.headers));
    // Before the erasure: a crash between the two must not hide who asked for it.
    AuditEntry::new(Deed::Erase, by, (app.environment.now)()).about(&log).record(&app.ingest).await?;
    // A separate task, so that a disconnecting client does not stop the erasure halfway.
    let erasing = tokio::spawn(async move {
        let erased = app.ingest.erase(&log).await;
        app.feed.forget(&log).await;
        erased
    });
    match erasing.await.expect("the erase task panicked")? {
        true => Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response()),
        false => Err(no_such_run(&run)),
    }
}

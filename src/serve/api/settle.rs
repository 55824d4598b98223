//! Settling a run on request.

use super::controls::via;
use super::hydrate::no_such_run;
use crate::audit::{AuditEntry, Deed};
use crate::ingest::Verdict;
use crate::log::LogId;
use crate::log::commit::Tail;
use crate::model::{Epoch, RunId};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::path_id;
use crate::serve::http::response::no_store_json;
use axum::extract::State;
use axum::response::Response;
use http::request::Parts;
use serde_json::json;
use std::sync::Arc;

/// `POST /v1/runs/{run}/settle`: ends a run whose runtime is gone, even a waiting one.
///
/// A run that has ended stays unchanged.
pub async fn post(State(app): State<Arc<App>>, authorization: Authorization, parts: Parts) -> Result<Response, Problem> {
    let run: RunId = path_id("runId", &parts.uri)?;
    app.disk.check_space()?;
    let log = app.logs.log(&LogId::Run(run.clone())).await?;
    if log.tail().epoch.is_none() {
        return Err(no_such_run(&run));
    }
    let verdict =
        Verdict::Settled { code: "settled", message: "a client settled the run because its runtime will not end it".into() };
    let settled = app.ingest.declare(&run, &verdict, None).await?;
    if settled {
        let by = authorization.decider(via(&parts.headers));
        AuditEntry::new(Deed::Settle, by, (app.environment.now)()).about(&log.id).record(&app.ingest).await?;
    }
    let Tail { epoch, last, summary } = log.tail();
    let epoch = epoch.as_ref().map(Epoch::to_string);
    Ok(no_store_json(json!({
        "runId": run,
        "epoch": epoch,
        "status": summary.run.status,
        "phase": summary.run.phase,
        "lastSequence": last,
        "settled": settled,
    })))
}

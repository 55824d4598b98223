//! Health, readiness, schemas, and the answers to unknown addresses.

use crate::log::panic_message;
use crate::serve::App;
use crate::serve::api::workbench::SCHEMAS;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::Query;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri, header};
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET /healthz`: 200 while the process answers.
pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// `GET /readyz`: 200 while the server accepts facts and readers.
///
/// 503 once the server is stopping, its store has failed, or its disk is nearly full; in a cluster also while the node
/// does not follow. With `for=reads`, a nearly full disk does not count: it stops facts, and no reader.
pub async fn ready(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Value>, Problem> {
    let is_for_reads = match Query::from_uri(&uri).get("for") {
        None => false,
        Some("reads") => true,
        Some(other) => {
            let detail = format!("for={other} is unknown. Send for=reads, or omit it.");
            return Err(Problem::bad_request("bad_query", detail).with("member", "for"));
        }
    };
    if app.stopping.is_requested() {
        return Err(Problem::stopping());
    }
    if let Some(error) = app.logs.failure() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_failed", error.to_string()));
    }
    if !is_for_reads {
        app.disk.check_space().map_err(|full| Problem { status: StatusCode::SERVICE_UNAVAILABLE, ..full })?;
    }
    let mut ready = json!({ "status": "ready", "openLogs": app.logs.open_count(), "readers": app.feed.reader_count() });
    if let Some(cluster) = &app.cluster {
        let (membership, (lag, _)) = (&cluster.membership, cluster.membership.lag(app.logs.mark().applied));
        let is_following = membership.is_following();
        if !is_following || !membership.has_caught_up() {
            let detail = format!("The node is behind its cluster by {lag} commits that it knows of.");
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_following", detail);
            return Err(problem.with("following", is_following).with("lag", lag));
        }
        ready["following"] = is_following.into();
        ready["lag"] = lag.into();
    }
    Ok(Json(ready))
}

/// `GET /schema/{file}`: the schemas of the wire format.
pub async fn schema(uri: Uri) -> Result<Response, Problem> {
    let name = uri.path().trim_start_matches("/schema/");
    let (_, file) = SCHEMAS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known: Vec<_> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        Problem::not_found("no_such_schema", format!("Schema {name} does not exist. The schemas are {}.", known.join(", ")))
    })?;
    let kind = if name.ends_with(".schema.json") { "application/schema+json" } else { "application/json" };
    Ok(([(header::CONTENT_TYPE, kind)], *file).into_response())
}

/// The answer to an unknown path.
pub async fn no_such_address(method: Method, uri: Uri) -> Problem {
    Problem::not_found("no_such_address", format!("No operation exists for {method} {}. See /openapi.json.", uri.path()))
}

/// The answer to a known path with an unsupported method.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not accept {method}. See /openapi.json.", uri.path()),
    )
}

/// The answer of a handler that panicked. Other requests are unaffected.
#[expect(clippy::needless_pass_by_value, reason = "the layer hands it over")]
pub fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    tracing::error!(why = panic_message(&*panic), "a handler panicked");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "The server failed to answer. Its log has the details.")
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::feed::FeedConfig;
    use crate::guard::Policy;
    use crate::ingest::ServerAppend;
    use crate::log::{LogId, Storage};
    use crate::model::{Draft, EventType, RunId};
    use crate::serve::{KeepAlive, Limits, Server};

    #[tokio::test]
    async fn readiness_ends_when_the_committer_fails() {
        let store = Storage::memory();
        let environment = Environment { now: || jiff::Timestamp::UNIX_EPOCH, random: || 7 };
        let server =
            Server::new(store, Policy::default(), FeedConfig::default(), Limits::default(), KeepAlive::default(), environment)
                .unwrap();
        let (app, uri) = (server.app.clone(), Uri::from_static("/readyz"));
        assert!(ready(State(app.clone()), uri.clone()).await.is_ok());
        app.logs.panic_in_committer();
        let run = LogId::Run(RunId::new("r").unwrap());
        let drafts = || vec![Draft::new(EventType::RunStatus)];
        app.ingest
            .append_as_server(&run, |_| ((), ServerAppend { drafts: drafts(), ..ServerAppend::default() }))
            .await
            .unwrap_err();
        app.logs.failed().await;
        let problem = ready(State(app), uri).await.unwrap_err();
        assert_eq!((problem.status.as_u16(), problem.code), (503, "store_failed"));
        assert!(problem.detail.contains("the committer panicked"), "{}", problem.detail);
    }
}

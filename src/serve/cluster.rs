//! What a node of a cluster does with requests that it cannot answer by itself.
//!
//! * **Writes** go to the leader, as the caller sent them and with its authorization. The leader's answer is the answer.
//!   A socket that publishes, claims or answers a control sends that to the leader: see `serve::socket`.
//! * **Reads** are answered from this node's store. A request with a cursor that this node has not reached yet waits
//!   until it has. So a reader that moves from one node to another misses nothing, and a producer reads its own writes.
//!
//! On a server without a cluster, none of this runs.

use super::App;
use super::api::durable::offset::cursor_of;
use super::contract::kinds::find;
use super::contract::operations::Operation;
use super::http::problem::Problem;
use super::http::request::Query;
use crate::cluster::Membership;
use crate::environment;
use crate::feed::merged::position_and_rows;
use crate::log::LogId;
use crate::model::{Cursor, RunId};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use futures_util::{FutureExt, StreamExt};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

/// Marks a request that a node has forwarded. A node that gets one and does not lead refuses it, so none goes in circles.
const FORWARDED: HeaderName = HeaderName::from_static("proscenium-forwarded");
/// `retryAfter` while the cluster has no leader, in seconds: a take-over takes less than five.
const NO_LEADER_RETRY_AFTER_SECS: u64 = 1;
/// How long a request waits until this node has reached its cursor.
const CURSOR_TIME_MAX: Duration = Duration::from_secs(5);
const CURSOR_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time to connect to the leader.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// Time after which a connection to the leader counts as broken, if no packet of it arrives.
const UNREACHABLE_TIME_MAX: Duration = Duration::from_secs(5);

/// The cluster that a server belongs to, and the client with which it reaches the leader.
pub struct Cluster {
    pub membership: Arc<Membership>,
    client: reqwest::Client,
}

impl Cluster {
    /// A node of this cluster.
    ///
    /// # Errors
    /// When no HTTP client can be built.
    pub fn new(membership: Arc<Membership>) -> Result<Self, reqwest::Error> {
        environment::install_crypto_provider();
        let client = reqwest::Client::builder().connect_timeout(CONNECT_TIME_MAX).no_proxy().http1_only();
        // A network that drops packets must not keep a request waiting, and neither must a peer without power.
        #[cfg(target_os = "linux")]
        let client = client.tcp_user_timeout(UNREACHABLE_TIME_MAX);
        let client = client
            .tcp_keepalive(UNREACHABLE_TIME_MAX / 5)
            .tcp_keepalive_interval(UNREACHABLE_TIME_MAX / 5)
            .tcp_keepalive_retries(4);
        // The client gets the leader's answer, also if that is a redirect.
        let client = client.redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { membership, client })
    }

    /// The id and the URL of the node that leads, which is not this one.
    fn other_leader(&self) -> Result<(String, String), Problem> {
        let leader = self.membership.leader().filter(|(id, _)| *id != self.membership.id);
        leader.ok_or_else(|| match self.membership.refused() {
            Some(why) => no_leader(&format!("Nothing was stored. {why}")),
            None => no_leader("The cluster has no leader. Nothing was stored. Send the request again after a second."),
        })
    }

    /// Opens a WebSocket to an address of the leader, with a query; returns its id, and the connection.
    ///
    /// # Errors
    /// 503 when no leader can be reached.
    pub async fn open_socket(&self, path: &str, query: &[(&str, &str)]) -> Result<(String, reqwest::Upgraded), Problem> {
        let (id, url) = self.other_leader()?;
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let request = self
            .client
            .get(format!("{url}{path}?{query}"))
            .header(FORWARDED, "1")
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, generate_key());
        let opening = async { request.send().await?.upgrade().await };
        tokio::select! {
            opened = opening => opened.map(|upgraded| (id.clone(), upgraded)).map_err(|error| {
                tracing::debug!(%error, "the leader opens no WebSocket");
                no_leader("The leader does not answer. Nothing was stored. Send the message again.")
            }),
            () = self.membership.loses_leader(&id) => {
                Err(no_leader("The cluster has another leader now. Nothing was stored. Send the message again."))
            }
        }
    }
}

/// The answer while no node of the cluster leads.
#[must_use]
pub fn no_leader(detail: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_leader", detail).with_retry_after(NO_LEADER_RETRY_AFTER_SECS)
}

/// Whether only the leader can answer an operation.
#[must_use]
pub fn is_for_leader(operation: &Operation) -> bool {
    match operation.id {
        // Two only read, although clients send them with POST. For the other, every node has the key that signs tickets.
        "copilotConnect" | "makeBackup" | "makeTicket" => false,
        _ => !operation.method.is_safe(),
    }
}

/// Passes a request on to the leader, or answers it here.
pub async fn layer(State((app, is_for_leader)): State<(Arc<App>, bool)>, request: Request<Body>, next: Next) -> Response {
    let Some(cluster) = &app.cluster else { return next.run(request).await };
    if is_forwarded(request.headers()) && !app.logs.leadership().leads() {
        return no_leader("The node that received this request from another one does not lead. Send it again.").into_response();
    }
    // Only the leader is sure to have all that a client has counted.
    let is_for_leader = is_for_leader || is_counted(request.uri());
    if !is_for_leader {
        if let Err(problem) = wait_for_cursor(&app, request.uri(), request.headers()).await {
            return problem.into_response();
        }
        return next.run(request).await;
    }
    if app.logs.leadership().leads() {
        return next.run(request).await;
    }
    match forward(cluster, request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

/// Whether a client of the AI SDK resumes a stream by the number of chunks that it has.
fn is_counted(uri: &Uri) -> bool {
    uri.path().starts_with("/ai-sdk/") && Query::from_uri_unchecked(uri).get("startIndex").is_some()
}

/// Whether another node has forwarded a request.
#[must_use]
pub fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED)
}

/// Sends a request to the leader, and streams both bodies.
async fn forward(cluster: &Cluster, request: Request<Body>) -> Result<Response, Problem> {
    let (id, url) = cluster.other_leader()?;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = parts.headers;
    remove_connection_headers(&mut headers);
    // This node has checked the origin, and the leader knows itself by its own name.
    for name in [header::HOST, header::ORIGIN, HeaderName::from_static("sec-fetch-site")] {
        headers.remove(name);
    }
    headers.insert(FORWARDED, HeaderValue::from_static("1"));
    let sent = cluster.client.request(parts.method, format!("{url}{path}")).headers(headers);
    let sent = sent.body(reqwest::Body::wrap_stream(body.into_data_stream())).send();
    let sent = tokio::select! {
        sent = sent => sent.map_err(|error| tracing::debug!(%error, "the leader does not answer")),
        // A leader that is paused or cut off keeps its connections open, and answers after any time.
        () = cluster.membership.loses_leader(&id) => Err(()),
    };
    let mut answer = sent.map_err(|()| {
        no_leader(
            "The leader does not answer, so it is unknown whether the request was stored. Producer numbers make a repeat safe.",
        )
    })?;
    let (status, mut headers) = (answer.status(), std::mem::take(answer.headers_mut()));
    if !status.is_success()
        && headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == b"application/problem+json")
    {
        // As a problem of this node, so that its log and its counters name it.
        let document = answer.json().await.unwrap_or_default();
        return Err(problem_of(status, document));
    }
    remove_connection_headers(&mut headers);
    // The origin layer of this node writes its own.
    let of_origin = |name: &HeaderName| name.as_str().starts_with("access-control-") || name == header::VARY;
    for name in headers.keys().filter(|name| of_origin(name)).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    let membership = cluster.membership.clone();
    let lost = async move { membership.loses_leader(&id).await }.boxed();
    let body = unfold(Some((answer.bytes_stream(), lost)), async |state| {
        let (mut body, mut lost) = state?;
        tokio::select! {
            chunk = body.next() => Some((chunk?.map_err(io::Error::other), Some((body, lost)))),
            // The client must not take what it has for all.
            () = &mut lost => Some((Err(io::Error::other("the leader does not answer")), None)),
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    Ok(response)
}

/// The problem that another node has answered with.
fn problem_of(status: StatusCode, document: Value) -> Problem {
    let known = document["code"].as_str().and_then(|code| find(status, code));
    let (Some(kind), Value::Object(mut members)) = (known, document) else {
        return no_leader("The leader's answer is unknown to this node; its version may be newer.");
    };
    let detail = members.get("detail").and_then(Value::as_str).unwrap_or_default().to_owned();
    for member in ["type", "title", "status", "code", "detail", "requestId"] {
        members.shift_remove(member);
    }
    Problem { status, code: kind.code, detail, members }
}

/// Removes the headers that concern one connection only (RFC 9110, section 7.6.1).
fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    let keep_alive = HeaderName::from_static("keep-alive");
    for name in [header::CONNECTION, header::UPGRADE, header::TRANSFER_ENCODING, header::TE, header::TRAILER, keep_alive] {
        headers.remove(name);
    }
}

/// Waits until this node has applied what the request's cursor names.
pub async fn wait_for_cursor(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if app.cluster.is_none() {
        return Ok(());
    }
    let query = Query::from_uri_unchecked(uri);
    let named = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let texts = ["after", "last_event_id", "until", "at"].map(|member| query.get(member));
    let cursors = texts.into_iter().chain([named]).flatten().filter_map(|text| text.parse().ok());
    let offset = query.get("offset").filter(|_| uri.path().ends_with("/durable")).and_then(cursor_of);
    let cursors: Vec<Cursor> = cursors.chain(offset).collect();
    let run = uri.path().strip_prefix("/v1/runs/").and_then(|rest| rest.split('/').next());
    let run = run.map(|run| percent_encoding::percent_decode_str(run).decode_utf8_lossy());
    wait_until_reached(app, run.as_deref(), &cursors).await
}

/// Waits until this node has applied what cursors of a run name, or, without one, cursors of several runs.
///
/// # Errors
/// 503 after [`CURSOR_TIME_MAX`].
pub async fn wait_until_reached(app: &App, run: Option<&str>, cursors: &[Cursor]) -> Result<(), Problem> {
    if app.cluster.is_none() {
        return Ok(());
    }
    let begun = Instant::now();
    for cursor in cursors {
        while !has_reached(app, run, *cursor).await? {
            if begun.elapsed() > CURSOR_TIME_MAX || app.logs.leadership().leads() {
                // The leader has everything: the cursor names what does not exist.
                break;
            }
            tokio::time::sleep(CURSOR_POLL_INTERVAL).await;
        }
        if begun.elapsed() > CURSOR_TIME_MAX {
            let detail = "This node has not received the commits up to the cursor yet. Retry, or use another node.";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "behind", detail).with_retry_after(1));
        }
    }
    Ok(())
}

async fn has_reached(app: &App, run: Option<&str>, cursor: Cursor) -> Result<bool, Problem> {
    let Some(run) = run else {
        return Ok(app.logs.position() >= position_and_rows(cursor.after).0 && app.logs.position() > 0);
    };
    let Ok(run) = RunId::new(run) else { return Ok(true) };
    let tail = app.logs.log(&LogId::Run(run)).await?.tail();
    // A run of another epoch was erased, here or, later, there.
    Ok(tail.epoch.is_some_and(|epoch| epoch != cursor.epoch || tail.last >= cursor.after))
}

/// `GET /v1/cluster`: the nodes of the cluster, on every node.
pub async fn get(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let Some(cluster) = &app.cluster else {
        return Err(Problem::not_found("no_cluster", "This server belongs to no cluster. Start it with --cluster."));
    };
    let membership = &cluster.membership;
    let leader = membership.leader().map(|(id, _)| id);
    let nodes: Vec<Value> = membership
        .nodes()
        .into_iter()
        .map(|(id, node)| {
            let role = if Some(&id) == leader.as_ref() { "leader" } else { "follower" };
            json!({
                "id": id, "url": node.url, "role": role, "position": node.position, "lagMs": node.lag.as_millis() as u64,
            })
        })
        .collect();
    Ok(Json(json!({
        "name": membership.name,
        "self": membership.id,
        "leader": leader,
        "position": app.logs.mark().applied,
        "nodes": nodes,
    })))
}

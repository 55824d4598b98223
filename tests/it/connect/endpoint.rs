//! Agents for tests: HTTP endpoints that answer each request as the test says, and keep what they received.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use proscenium::connect;
use proscenium::connect::entry::AgentEntry;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::harness::{Client, environment, serve_until, with_timeout};

/// What happens after the text of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ending {
    Regular,
    Broken,
    Open,
}

/// One answer of an endpoint.
pub enum Reply {
    /// A stream of these events, to its regular end.
    Events(Vec<Value>),
    /// A stream of these events that breaks.
    Cut(Vec<Value>),
    /// A stream of these events that then stays open.
    Open(Vec<Value>),
    /// A stream of these events, and of more once the test says so.
    Paused(Vec<Value>, tokio::sync::oneshot::Receiver<()>, Vec<Value>),
    /// A stream of this text, which ends once the test says so.
    Held(String, tokio::sync::oneshot::Receiver<()>),
    /// A stream of this text, which then ends, breaks or stays open.
    Text(String, Ending),
    /// A stream of these events with their names, in the line ends of LangGraph's server; `true`: it stays open.
    Named(Vec<(&'static str, Value)>, bool),
    /// The same, but its events come once the test says so. It stays open.
    Late(tokio::sync::oneshot::Receiver<()>, Vec<(&'static str, Value)>),
    /// A JSON document.
    Json(Value),
    /// Another status, content type and body.
    Other(u16, &'static str, &'static str),
    /// A redirect to this address.
    Redirect(String),
    /// No answer at all.
    Silence,
}

/// A request that an endpoint received.
#[derive(Debug)]
pub struct Received {
    pub path: String,
    pub headers: http::HeaderMap,
    pub body: Value,
}

/// An endpoint on a free port.
pub struct Endpoint {
    pub url: String,
    requests: tokio::sync::Mutex<mpsc::UnboundedReceiver<Received>>,
    /// The number of answers that the client closed before their end.
    closed: watch::Receiver<usize>,
}

struct State {
    replies: Mutex<VecDeque<Reply>>,
    received: mpsc::UnboundedSender<Received>,
    closed: watch::Sender<usize>,
}

impl Endpoint {
    /// Starts an endpoint that gives these answers, one for each request.
    pub async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port exists");
        let url = format!("http://{}/agent", listener.local_addr().expect("the listener has an address"));
        let (received, requests) = mpsc::unbounded_channel();
        let (closed, was_closed) = watch::channel(0);
        let state = Arc::new(State { replies: Mutex::new(replies.into()), received, closed });
        let router = Router::new().fallback(move |request: Request| answer(state.clone(), request));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, requests: tokio::sync::Mutex::new(requests), closed: was_closed }
    }

    /// Waits for the next request.
    pub async fn received(&self) -> Received {
        with_timeout("a request to the endpoint", async { self.requests.lock().await.recv().await })
            .await
            .expect("the endpoint runs")
    }

    /// The number of requests that the test has not looked at.
    pub async fn unread(&self) -> usize {
        self.requests.lock().await.len()
    }

    /// Waits until the client closed an answer that was still open.
    pub async fn wait_until_closed(&self) {
        let mut closed = self.closed.clone();
        with_timeout("the end of the connection", closed.wait_for(|count| *count > 0)).await.expect("the endpoint runs");
    }
}

/// Counts an answer that is dropped before its end.
struct OpenAnswer(Arc<State>);

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        self.0.closed.send_modify(|count| *count += 1);
    }
}

/// A body that begins with this text and does not end.
fn open_body(state: Arc<State>, text: String) -> Body {
    let open = OpenAnswer(state);
    let first = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(text))]);
    let never = futures_util::stream::once(async move {
        let _open = open;
        std::future::pending().await
    });
    Body::from_stream(first.chain(never))
}

/// Events with their names, in the line ends of LangGraph's server.
fn named(list: &[(&'static str, Value)]) -> String {
    list.iter().map(|(name, data)| format!("event: {name}\r\ndata: {data}\r\n\r\n")).collect()
}

/// A body that begins with this text and breaks.
fn broken_body(text: String) -> Body {
    let parts = vec![Ok(Bytes::from(text)), Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))];
    Body::from_stream(futures_util::stream::iter(parts))
}

async fn answer(state: Arc<State>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let reply = state.replies.lock().pop_front();
    let _ = state.received.send(Received { path: head.uri.path().to_owned(), headers: head.headers, body });
    let events = |events: Vec<Value>| -> String { events.iter().map(|event| format!("data: {event}\n\n")).collect() };
    let stream = |body: Body| Response::builder().header("content-type", "text/event-stream; charset=utf-8").body(body);
    let response = match reply.expect("the test gives an answer for each request") {
        // AI SDK clients need the mark at the end; it means nothing to others.
        Reply::Events(list) if list.last().is_some_and(|last| last["type"] == "finish") => {
            stream(format!("{}data: [DONE]\n\n", events(list)).into())
        }
        Reply::Events(list) => stream(events(list).into()),
        Reply::Paused(list, released, more) => {
            let first = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(events(list)))]);
            let rest = format!("{}data: [DONE]\n\n", events(more));
            let rest = futures_util::stream::once(async move {
                released.await.expect("the test releases it");
                Ok(Bytes::from(rest))
            });
            stream(Body::from_stream(first.chain(rest)))
        }
        Reply::Held(text, released) => {
            let first = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(text))]);
            let rest = futures_util::stream::once(async move {
                released.await.expect("the test releases it");
                Ok(Bytes::new())
            });
            stream(Body::from_stream(first.chain(rest)))
        }
        Reply::Text(text, Ending::Regular) => stream(text.into()),
        Reply::Text(text, Ending::Broken) => stream(broken_body(text)),
        Reply::Text(text, Ending::Open) => stream(open_body(state, text)),
        Reply::Json(document) => Response::builder().header("content-type", "application/json").body(document.to_string().into()),
        Reply::Named(list, is_open) => stream(if is_open { open_body(state, named(&list)) } else { named(&list).into() }),
        Reply::Late(released, list) => {
            let first = futures_util::stream::once(async move {
                released.await.expect("the test releases it");
                Ok::<_, std::io::Error>(Bytes::from(named(&list)))
            });
            stream(Body::from_stream(
                first.chain(open_body(state, String::new()).into_data_stream().map(|rest| Ok(rest.unwrap()))),
            ))
        }
        Reply::Cut(list) => stream(broken_body(events(list))),
        Reply::Open(list) => stream(open_body(state, events(list))),
        Reply::Other(status, kind, body) => Response::builder().status(status).header("content-type", kind).body(body.into()),
        Reply::Redirect(to) => Response::builder().status(307).header("location", to).body(Body::empty()),
        Reply::Silence => {
            let _open = OpenAnswer(state);
            std::future::pending().await
        }
    };
    response.expect("the answer is valid")
}

/// Starts a server with these agents, given as `--connect-file` has them.
pub async fn start_server(agents: &str) -> Client {
    start_server_on(Storage::memory(), agents, std::future::pending()).await.0
}

/// Starts a server on a store until `stop`.
pub async fn start_server_on(
    store: Storage,
    agents: &str,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (Client, tokio::task::JoinHandle<()>) {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now)).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), agents).unwrap();
    let entries = AgentEntry::read_file(file.path(), &|name| std::env::var(name).ok()).unwrap();
    let connecting = connect::connect(&server.app(), entries).unwrap();
    serve_until(server.with_task("connectors", connecting), stop).await
}

/// Posts JSON and returns the answer.
pub async fn post(client: &Client, path: &str, body: &Value) -> crate::harness::Response {
    client.post(path, &[("content-type", "application/json")], body.to_string()).await
}

/// The events of a stream that has ended.
pub fn events(response: &crate::harness::Response) -> Vec<Value> {
    let text = String::from_utf8(response.body.clone()).unwrap();
    assert_eq!(response.status, 200, "{text}");
    text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

/// A message of an AG-UI page, and the events of its answer.
pub async fn say(client: &Client, thread: &str, run: &str, messages: Value) -> Vec<Value> {
    events(&post(client, "/ag-ui/helper", &json!({ "threadId": thread, "runId": run, "messages": messages })).await)
}

/// The text of an AG-UI answer.
pub fn text_of(events: &[Value]) -> String {
    events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT").filter_map(|event| event["delta"].as_str()).collect()
}

/// The activities of a run for an audience, by type.
pub async fn activities(client: &Client, run: &str, audience: &str, kind: &str) -> Vec<Value> {
    let all = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    let all = all["activities"].as_array().expect("a list of activities").clone();
    all.into_iter().filter(|activity| activity["activityType"] == kind).map(|activity| activity["content"].clone()).collect()
}

/// Waits until a run has this status.
pub async fn wait_for_status(client: &Client, run: &str, status: &str) {
    let reaching = async {
        loop {
            let answer = client.get(&format!("/v1/runs/{run}")).await;
            if answer.status == 200 && answer.json()["status"] == status {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    with_timeout(status, reaching).await;
}

/// Waits until a control of a run has this status, and returns it.
pub async fn wait_for_control(client: &Client, run: &str, id: &Value, status: &str) -> Value {
    let reaching = async {
        loop {
            let controls = client.get(&format!("/v1/runs/{run}/controls")).await.ok()["controls"].clone();
            let found =
                controls.as_array().unwrap().iter().find(|control| control["controlId"] == *id && control["status"] == status);
            if let Some(found) = found {
                return found.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    with_timeout(status, reaching).await
}

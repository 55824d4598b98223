//! A collector of OTLP that decodes what it gets.

use crate::harness::with_timeout;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

type Answers = Box<dyn FnMut(&[Span]) -> Response + Send>;

/// What the collector has, and how it answers.
struct Inner {
    answers: Answers,
    requests: usize,
    headers: Vec<HeaderMap>,
    bodies: Vec<Bytes>,
    /// The spans of the requests that it took.
    taken: Vec<Span>,
}

/// A collector. It keeps what it gets while a server is restarted.
#[derive(Clone)]
pub struct TraceCollector {
    pub url: String,
    inner: Arc<Mutex<Inner>>,
}

impl TraceCollector {
    /// A collector that takes everything.
    pub async fn start() -> Self {
        let answers: Answers = Box::new(|_| StatusCode::OK.into_response());
        let inner = Inner { answers, requests: 0, headers: Vec::new(), bodies: Vec::new(), taken: Vec::new() };
        let inner = Arc::new(Mutex::new(inner));
        let app = Router::new().fallback(receive).with_state(inner.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, inner }
    }

    /// Answers as `answer` says from now on.
    pub fn answer(&self, answer: impl FnMut(&[Span]) -> Response + Send + 'static) {
        self.inner.lock().answers = Box::new(answer);
    }

    /// The requests so far.
    pub fn requests(&self) -> usize {
        self.inner.lock().requests
    }

    /// The headers of the last request.
    pub fn headers(&self) -> HeaderMap {
        self.inner.lock().headers.last().cloned().unwrap_or_default()
    }

    /// Whether a text was sent, by its bytes.
    pub fn was_sent(&self, text: &str) -> bool {
        self.inner.lock().bodies.iter().any(|body| memchr::memmem::find(body, text.as_bytes()).is_some())
    }

    /// The spans that it took.
    pub fn spans(&self) -> Vec<Span> {
        self.inner.lock().taken.clone()
    }

    /// The roots that it took, by the ids of their runs.
    pub fn roots(&self) -> BTreeMap<String, Vec<Span>> {
        let mut roots = BTreeMap::<String, Vec<Span>>::new();
        for span in self.spans() {
            if let Some(run) = attributes(&span.attributes)["proscenium.run.id"].as_str() {
                roots.entry(run.to_owned()).or_default().push(span);
            }
        }
        roots
    }

    /// Waits until this is so.
    pub async fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        with_timeout(what, async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    /// Waits for the root of a run.
    pub async fn root(&self, run: &str) -> Span {
        self.wait_for("the trace", |collector| collector.roots().contains_key(run)).await;
        self.roots()[run][0].clone()
    }

    /// The spans of the trace of a root, by name.
    pub fn named(&self, name: &str) -> Span {
        let spans = self.spans();
        spans.iter().find(|span| span.name == name).cloned().unwrap_or_else(|| panic!("no {name}: {spans:#?}"))
    }
}

async fn receive(State(inner): State<Arc<Mutex<Inner>>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    assert_eq!((uri.path(), headers["content-type"].to_str().unwrap()), ("/v1/traces", "application/x-protobuf"));
    let request = ExportTraceServiceRequest::decode(&*body).expect("the request is OTLP");
    let resources = request.resource_spans;
    for of in &resources {
        let resource = attributes(&of.resource.as_ref().unwrap().attributes);
        assert_eq!(resource["service.name"], "proscenium");
    }
    let spans: Vec<Span> = resources.into_iter().flat_map(|of| of.scope_spans).flat_map(|of| of.spans).collect();
    let mut inner = inner.lock();
    inner.requests += 1;
    inner.headers.push(headers);
    let answer = (inner.answers)(&spans);
    if answer.status() == StatusCode::OK {
        inner.bodies.push(body);
        inner.taken.extend(spans);
    }
    answer
}

/// Attributes as an object.
pub fn attributes(of: &[KeyValue]) -> Value {
    let value = |of: &KeyValue| match of.value.clone().and_then(|any| any.value) {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::IntValue(number)) => json!(number),
        Some(Any::DoubleValue(number)) => json!(number),
        Some(Any::BoolValue(flag)) => json!(flag),
        other => panic!("no attribute has {other:?}"),
    };
    Value::Object(of.iter().map(|of| (of.key.clone(), value(of))).collect::<Map<_, _>>())
}

//! Traces: the spans that a collector gets, the data that it never gets, and the flush at the server's end.

use crate::cli::{Running, proscenium};
use crate::harness::with_timeout;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use proscenium::auth::keys::TokenSigner;
use prost::Message;
use serde_json::{Map, Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "a secret of the tests, of more than thirty-two bytes";

/// A trace collector that keeps the received requests, head and body.
#[derive(Clone, Default)]
struct Collector {
    requests: Arc<Mutex<Vec<(String, Vec<u8>)>>>,
    connections: Arc<AtomicUsize>,
}

impl Collector {
    /// Starts a collector that accepts every request, or one that never answers.
    ///
    /// Returns it and its address.
    async fn start(answers: bool) -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let of = collector.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                of.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(of.clone().serve_connection(socket, answers));
            }
        });
        (collector, url)
    }

    async fn serve_connection(self, mut socket: TcpStream, answers: bool) {
        let mut read = Vec::new();
        while let Ok(count @ 1..) = socket.read_buf(&mut read).await {
            let _ = count;
            let Some(end) = memchr::memmem::find(&read, b"\r\n\r\n") else { continue };
            let head = String::from_utf8(read[..end].to_vec()).unwrap().to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse::<usize>().unwrap();
            if !answers || read.len() < end + 4 + length {
                continue;
            }
            self.requests.lock().push((head, read[end + 4..].to_vec()));
            read.clear();
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
    }

    /// Returns the received spans and their resources.
    fn spans(&self) -> (Vec<Resource>, Vec<Span>) {
        let (mut resources, mut spans) = (Vec::new(), Vec::new());
        for (head, body) in &*self.requests.lock() {
            assert!(head.starts_with("post /v1/traces http/1.1\r\n") && head.contains("content-type: application/x-protobuf"));
            for of in ExportTraceServiceRequest::decode(&body[..]).unwrap().resource_spans {
                resources.extend(of.resource);
                spans.extend(of.scope_spans.into_iter().flat_map(|of| of.spans));
            }
        }
        (resources, spans)
    }
}

fn attributes(of: &[KeyValue]) -> Value {
    let value = |of: &KeyValue| match of.value.clone().and_then(|any| any.value) {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::IntValue(number)) => json!(number),
        other => json!(format!("{other:?}")),
    };
    Value::Object(of.iter().map(|of| (of.key.clone(), value(of))).collect::<Map<_, _>>())
}

/// Starts a server that sends traces to this collector at its end only.
fn serve(collector: &str, further: &[&str], log: Stdio) -> Running {
    let mut command = proscenium(&["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--drain-ms", "0"]);
    command.args(["--otlp-endpoint", collector, "--log-format", "json", "--log", "trace"]).args(further);
    Running::start_logging(command.env("OTEL_BSP_SCHEDULE_DELAY", "3600000"), log)
}

#[tokio::test]
async fn each_request_is_a_span_in_its_client_s_trace_without_any_content() {
    let (collector, url) = Collector::start(true).await;
    let dir = tempfile::tempdir().unwrap();
    let (key, log) = (dir.path().join("key"), dir.path().join("log"));
    std::fs::write(&key, SECRET).unwrap();
    let claims = json!({ "sub": "user-1", "exp": jiff::Timestamp::now().as_second() + 3600,
        "proscenium": { "audience": "internal", "sessions": ["*"], "can": ["admin"] } });
    let token = TokenSigner::from_file(SECRET.as_bytes()).unwrap().sign(&claims, None).unwrap();
    let stderr = std::fs::File::create(&log).unwrap();
    let mut server = serve(&url, &["--auth-key", key.to_str().unwrap()], stderr.into());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |method: &str, path: &str, headers: &[(&str, &str)], body: String| {
        let mut request = http.request(method.parse().unwrap(), format!("{}{path}", server.url)).bearer_auth(&token).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = with_timeout("a response", request.send()).await.unwrap();
        (answer.status().as_u16(), with_timeout("the body", answer.bytes()).await.unwrap())
    };

    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let traced = |id: &'static str| [("traceparent", format!("00-{trace}-{parent}-01")), ("x-request-id", id.to_owned())];
    let headers = traced("req-1");
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let facts = json!([
        { "type": "text.delta", "messageId": "m", "payload": { "text": "a payload's words" } },
        { "type": "run.finished" },
    ]);
    assert_eq!(ask("POST", "/v1/runs/r1/facts?sessionId=asked", &headers, facts.to_string()).await.0, 200);
    // Requests that hyper handles.
    let headers = traced("req-2");
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(ask("GET", "/v1/runs/r1?activation=asked", &headers, String::new()).await.0, 200);
    assert_eq!(ask("GET", "/v1/runs/r1/stream?audience=internal", &[], String::new()).await.0, 200);
    let (status, ticket) = ask("POST", "/v1/tickets", &[], json!({ "for": "stream", "run": "r1" }).to_string()).await;
    assert_eq!(status, 200);
    let ticket = serde_json::from_slice::<Value>(&ticket).unwrap()["ticket"].as_str().unwrap().to_owned();
    let stream = reqwest::get(format!("{}/v1/runs/r1/stream?ticket={ticket}", server.url)).await.unwrap();
    assert_eq!(stream.status(), 200);
    with_timeout("the stream's end", stream.bytes()).await.unwrap();
    assert_eq!(ask("HUSH", "/v1/runs/asked/nowhere", &[], String::new()).await.0, 404);
    assert!(collector.requests.lock().is_empty(), "the server sends spans at its end");

    server.terminate();
    assert_eq!(tokio::task::spawn_blocking(move || server.exit_code()).await.unwrap(), Some(0));

    let (resources, spans) = collector.spans();
    for resource in resources {
        let attributes = attributes(&resource.attributes);
        assert_eq!(
            json!([attributes["service.name"], attributes["service.version"]]),
            json!(["proscenium", env!("CARGO_PKG_VERSION")])
        );
    }
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let requests: Vec<_> = spans.iter().filter(|span| span.kind == SpanKind::Server as i32).collect();
    let names: Vec<_> = requests.iter().map(|span| span.name.as_str()).collect();
    let stream = "GET /v1/runs/{run}/stream";
    assert_eq!(names, ["POST /v1/runs/{run}/facts", "GET /v1/runs/{run}", stream, "POST /v1/tickets", stream, "_OTHER"]);
    for (span, id, method, route) in
        [(requests[0], "req-1", "POST", "/v1/runs/{run}/facts"), (requests[1], "req-2", "GET", "/v1/runs/{run}")]
    {
        assert_eq!((&*hex(&span.trace_id), &*hex(&span.parent_span_id)), (trace, parent));
        let expected = json!({
            "http.request.method": method, "http.route": route, "http.response.status_code": 200,
            "proscenium.request": id, "proscenium.run": "r1",
        });
        assert_eq!(attributes(&span.attributes), expected);
        assert!(span.start_time_unix_nano < span.end_time_unix_nano);
    }
    for name in ["append", "commit"] {
        let steps = named(name);
        let [step] = steps.as_slice() else { panic!("{name}: {steps:?}") };
        assert_eq!((&step.trace_id, &step.parent_span_id), (&requests[0].trace_id, &requests[0].span_id), "{name}");
    }
    assert!(
        requests[2].parent_span_id.is_empty() && requests[2].trace_id != requests[0].trace_id,
        "a request without a trace starts one"
    );
    let nowhere = attributes(&requests[5].attributes);
    let expected = json!(["_OTHER", null, 404, null, "no_such_address"]);
    let members = ["http.request.method", "http.route", "http.response.status_code", "proscenium.run", "proscenium.code"];
    assert_eq!(json!(members.map(|member| nowhere[member].clone())), expected);
    assert_eq!(spans.len(), requests.len() + 2, "{spans:#?}");

    for (_, body) in &*collector.requests.lock() {
        for secret in [&*token, &*ticket, "asked", "payload", "HUSH", "nowhere", "user-1", "src/"] {
            assert!(memchr::memmem::find(body, secret.as_bytes()).is_none(), "{secret:?} was sent to the collector");
        }
    }
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("\"answered\"") && !log.contains("otel."), "the log has no span attributes of the exporter");
}

#[tokio::test]
async fn a_collector_that_never_answers_delays_nothing() {
    let (collector, url) = Collector::start(false).await;
    let mut server = serve(&url, &[], Stdio::null());
    server.post("r", "agentui", "application/json", r#"{"type":"run.started"}"#).await;
    server.terminate();
    assert_eq!(tokio::task::spawn_blocking(move || server.exit_code()).await.unwrap(), Some(0));
    assert_eq!(collector.connections.load(Ordering::Relaxed), 1, "the server tried to connect");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

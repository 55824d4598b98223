//! The collector: one trace as requests of OTLP, protobuf over HTTP, and what their answers mean.

use crate::encode::gen_ai::{Attribute, Span, SpanEvent, Trace};
use crate::model::ReceivedAt;
use crate::notify::address;
use http::{HeaderMap, StatusCode, header};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1 as proto;
use prost::Message;
use reqwest::{Client, Response, Url};
use std::time::Duration;

/// The spans of one request, in bytes. Collectors take some MiB.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// What is read of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// What is shown of a collector's words, in characters.
const REFUSAL_CHARS_MAX: usize = 200;
/// The longest pause that a collector can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(10);

/// Why the collector does not have a trace.
#[derive(Debug)]
pub(super) enum SendError {
    /// It does not take this trace.
    Refused(String),
    /// It takes nothing now.
    Unavailable { why: String, retry_after: Option<Duration> },
}

/// A collector of traces.
pub struct Collector {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl Collector {
    /// The collector at this address, without `/v1/traces`, with these headers in each request.
    ///
    /// # Errors
    /// Why it cannot be called.
    pub fn new(endpoint: &str, headers: HeaderMap) -> Result<Self, String> {
        let url = Url::parse(&format!("{endpoint}/v1/traces")).map_err(|error| error.to_string())?;
        // The certificates of the system may be missing, where a plain address needs none.
        let builder = address::builder();
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        Ok(Self { client: builder.build().map_err(|error| error.to_string())?, url, headers })
    }

    /// Sends a trace.
    ///
    /// # Errors
    /// [`SendError`]. Some of the spans may be there.
    pub(super) async fn send(&self, trace: &Trace) -> Result<(), SendError> {
        for spans in requests(trace) {
            self.post(spans).await?;
        }
        Ok(())
    }

    async fn post(&self, spans: Vec<proto::Span>) -> Result<(), SendError> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let request = request.header(header::CONTENT_TYPE, "application/x-protobuf").body(message(spans).encode_to_vec());
        let unavailable = |error: reqwest::Error| SendError::Unavailable { why: reason(&error), retry_after: None };
        let answer = request.send().await.map_err(unavailable)?;
        let (status, retry_after) = (answer.status(), retry_after(answer.headers()));
        let body = body(answer).await;
        match status {
            _ if status.is_success() => {
                let partial = ExportTraceServiceResponse::decode(&*body).ok().and_then(|answer| answer.partial_success);
                match partial.filter(|partial| partial.rejected_spans > 0) {
                    None => Ok(()),
                    Some(partial) => {
                        let words = shown(&partial.error_message);
                        Err(SendError::Refused(format!("it rejected {} spans: {words}", partial.rejected_spans)))
                    }
                }
            }
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Err(SendError::Refused(format!("HTTP {status}: {}", words(&body)))),
            // Wrong credentials or a wrong address, too: the operator can set them right, and nothing is lost meanwhile.
            _ => Err(SendError::Unavailable { why: format!("HTTP {status}: {}", words(&body)), retry_after }),
        }
    }
}

/// The innermost reason of a failed request, without its address.
fn reason(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    if error.is_timeout() { "no answer in time".to_owned() } else { inner.to_string() }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

async fn body(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < ANSWER_BYTES_MAX
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES_MAX - body.len())]);
    }
    body
}

/// An error as OTLP has it: `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}

/// The words of an answer: the message of its status, or its text.
fn words(body: &[u8]) -> String {
    match RpcStatus::decode(body) {
        Ok(status) if !status.message.is_empty() => shown(&status.message),
        _ => shown(&String::from_utf8_lossy(body)),
    }
}

fn shown(words: &str) -> String {
    format!("{:?}", words.trim().chars().take(REFUSAL_CHARS_MAX).collect::<String>())
}

/// The spans of each request.
fn requests(trace: &Trace) -> Vec<Vec<proto::Span>> {
    let (mut requests, mut bytes) = (Vec::new(), REQUEST_BYTES_MAX);
    for span in &trace.spans {
        let span = proto_span(trace, span);
        let size = span.encoded_len();
        if bytes.saturating_add(size) > REQUEST_BYTES_MAX {
            (bytes, requests) = (0, {
                requests.push(Vec::new());
                requests
            });
        }
        bytes += size;
        requests.last_mut().expect("the first span begins a request").push(span);
    }
    requests
}

fn message(spans: Vec<proto::Span>) -> ExportTraceServiceRequest {
    let named = |name: &str, value: &str| key_value(name, &Attribute::Text(value.to_owned()));
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let resource =
        Resource { attributes: vec![named("service.name", name), named("service.version", version)], ..Resource::default() };
    let scope = InstrumentationScope { name: name.into(), version: version.into(), ..InstrumentationScope::default() };
    let scope_spans = vec![proto::ScopeSpans { scope: Some(scope), spans, ..proto::ScopeSpans::default() }];
    let resource_spans = vec![proto::ResourceSpans { resource: Some(resource), scope_spans, ..proto::ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }
}

fn proto_span(trace: &Trace, span: &Span) -> proto::Span {
    let status = span.failure.as_ref().map(|failure| proto::Status {
        message: failure.message.clone().unwrap_or_default(),
        code: proto::status::StatusCode::Error.into(),
    });
    proto::Span {
        trace_id: trace.id.to_vec(),
        span_id: span.id.to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: span.name.clone(),
        kind: proto::span::SpanKind::Internal.into(),
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end.unwrap_or(span.start)),
        attributes: key_values(&span.attributes),
        events: span.events.iter().map(proto_event).collect(),
        status,
        ..proto::Span::default()
    }
}

fn proto_event(event: &SpanEvent) -> proto::span::Event {
    proto::span::Event {
        time_unix_nano: nanos(event.at),
        name: event.name.into(),
        attributes: key_values(&event.attributes),
        ..proto::span::Event::default()
    }
}

fn nanos(time: ReceivedAt) -> u64 {
    u64::try_from(time.ms_since(ReceivedAt::default())).unwrap_or(0).saturating_mul(1_000_000)
}

fn key_values(attributes: &[(&'static str, Attribute)]) -> Vec<KeyValue> {
    attributes.iter().map(|(name, value)| key_value(name, value)).collect()
}

fn key_value(name: &str, value: &Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => Any::StringValue(text.clone()),
        Attribute::Count(count) => Any::IntValue(i64::try_from(*count).unwrap_or(i64::MAX)),
        Attribute::Amount(amount) => Any::DoubleValue(*amount),
        Attribute::Flag(flag) => Any::BoolValue(*flag),
    };
    KeyValue { key: name.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: usize) -> Span {
        Span {
            id: [1; 8],
            parent: None,
            name: "n".into(),
            start: ReceivedAt::default(),
            end: None,
            attributes: vec![("text", Attribute::Text("x".repeat(bytes)))],
            events: Vec::new(),
            failure: None,
        }
    }

    #[test]
    fn a_large_trace_leaves_in_several_requests() {
        let sizes = |spans| requests(&Trace { id: [2; 16], spans }).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(Vec::new()), [0; 0]);
        assert_eq!(sizes(vec![span(10), span(10)]), [2]);
        let half = REQUEST_BYTES_MAX / 2 - 100;
        assert_eq!(sizes(vec![span(half), span(half), span(half), span(2 * REQUEST_BYTES_MAX), span(1)]), [2, 1, 1, 1]);
    }

    #[test]
    fn the_words_of_a_refusal_are_those_of_its_status_or_its_text() {
        let status = RpcStatus { message: "spans have no\nname".into() };
        assert_eq!(words(&status.encode_to_vec()), r#""spans have no\nname""#);
        assert_eq!(words(b"{\"error\":\"bad\"}"), r#""{\"error\":\"bad\"}""#);
        assert_eq!(words(&[0xff; 1000]).chars().count(), REFUSAL_CHARS_MAX + 2);
    }
}

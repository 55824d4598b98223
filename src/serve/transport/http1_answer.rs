//! HTTP/1.1 answers on the crate's own sockets.

use crate::ingest::Receipt;
use crate::serve::api::stream::HEADERS;
use crate::serve::http::problem::{CHALLENGE, Problem};
use crate::serve::telemetry::trace;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// The room for a head, in bytes: enough for most.
const HEAD_BYTES: usize = 256;

/// The answer to one request: what does not depend on its outcome.
pub struct Http1Answer<'r> {
    now: jiff::Timestamp,
    id: Option<&'r HeaderValue>,
    headers: HeaderMap,
}

impl<'r> Http1Answer<'r> {
    /// The answer at this time, to the request with this id.
    #[must_use]
    pub fn new(now: jiff::Timestamp, id: Option<&'r HeaderValue>) -> Self {
        Self { now, id, headers: HeaderMap::new() }
    }

    /// Adds headers.
    #[must_use]
    pub fn with(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Formats a complete answer. After the last one the connection closes.
    #[must_use]
    pub fn whole(mut self, outcome: Result<Receipt, Problem>, is_last: bool) -> Vec<u8> {
        if is_last {
            self.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let (status, kind, body) = match outcome {
            Ok(receipt) => {
                (StatusCode::OK, "application/json", serde_json::to_vec(&receipt).expect("a receipt serializes to JSON"))
            }
            Err(problem) => {
                self.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                if problem.status == StatusCode::UNAUTHORIZED {
                    self.headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
                }
                if let Some(seconds) = problem.retry_after_secs() {
                    self.headers.insert(header::RETRY_AFTER, seconds.into());
                }
                let problem = match self.id {
                    Some(id) => problem.with("requestId", trace::text(id)),
                    None => problem,
                };
                (problem.status, "application/problem+json", problem.to_json().to_string().into())
            }
        };
        let mut answer = self.head(status, Some((kind, body.len()))).into_bytes();
        answer.extend_from_slice(&body);
        answer
    }

    /// Formats an answer without a body, after which the connection closes.
    #[must_use]
    pub fn no_content(mut self) -> Vec<u8> {
        self.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        self.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.head(StatusCode::NO_CONTENT, None).into_bytes()
    }

    /// Formats the head of a stream. The body ends with the connection.
    #[must_use]
    pub fn stream(mut self) -> Bytes {
        self.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        for (name, value) in HEADERS {
            self.headers.insert(name, HeaderValue::from_static(value));
        }
        self.head(StatusCode::OK, None).into()
    }

    /// Formats the head of a stream in chunks, with these headers of its format.
    #[must_use]
    pub fn chunked_stream(mut self, further: &'static [(&'static str, &'static str)]) -> Bytes {
        self.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        for (name, value) in further {
            self.headers.insert(*name, HeaderValue::from_static(value));
        }
        self.stream()
    }

    /// Formats the head, with the type and length of a body. It has room for a small body.
    fn head(&self, status: StatusCode, body: Option<(&str, usize)>) -> String {
        let mut head = String::with_capacity(HEAD_BYTES + body.map_or(0, |(_, length)| length));
        head.extend(["HTTP/1.1 ", status.as_str(), " ", status.canonical_reason().unwrap_or_default(), "\r\n"]);
        let mut line = |name: &str, value: &str| head.extend([name, ": ", value, "\r\n"]);
        if let Some((kind, length)) = body {
            line("content-type", kind);
            line("content-length", itoa::Buffer::new().format(length));
        }
        if let Some(id) = self.id {
            line("x-request-id", trace::text(id));
        }
        // A value that is not text is left out; the server makes none.
        for (name, value) in self.headers.iter().filter_map(|(name, value)| Some((name, value.to_str().ok()?))) {
            line(name.as_str(), value);
        }
        // An HTTP date begins in 1970.
        line("date", &httpdate::fmt_http_date(self.now.max(jiff::Timestamp::UNIX_EPOCH).into()));
        head.push_str("\r\n");
        head
    }
}

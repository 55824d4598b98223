//! Calls over HTTP: the client, what an answer must be, and the stream of its events.

use super::call::{Step, Upstream};
use super::entry::CallLimits;
use super::error::{RetryHint, UpstreamError, excerpt};
use super::sse::{SseMessage, SseParser};
use crate::environment;
use crate::log::agent_memory::Remembered;
use crate::model::halves;
use futures_util::FutureExt;
use http::{HeaderMap, Method, StatusCode, header};
use reqwest::{Client, RequestBuilder, Response, Url, redirect};
use serde_json::Value;
use std::time::Duration;

/// Time to open a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Time for a request beside the stream: a cancellation, a look-up.
const SIDE_CALL_TIME_MAX: Duration = Duration::from_secs(10);
/// The most bytes of an answer that is not a stream.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most redirects of one call.
const REDIRECTS_MAX: usize = 3;
const EVENT_STREAM: &str = "text/event-stream";
/// The code of a call that could not connect.
pub(super) const ENDPOINT_UNREACHABLE: &str = "endpoint_unreachable";
/// The code of an answer that is no stream of events.
pub(super) const NO_STREAM: &str = "endpoint_content_type";

/// An address to call, with its credentials.
#[derive(Clone)]
pub(super) struct HttpEndpoint {
    client: Client,
    pub url: Url,
    headers: HeaderMap,
    pub limits: CallLimits,
    /// The most bytes of one event.
    event_bytes_max: usize,
}

impl HttpEndpoint {
    /// # Errors
    /// Why no client can be built, such as missing certificates of the system.
    pub fn new(url: Url, headers: HeaderMap, limits: CallLimits, event_bytes_max: usize) -> Result<Self, String> {
        environment::install_crypto_provider();
        // Credentials go only to the host that the entry names.
        let redirects = redirect::Policy::custom(|attempt| {
            let is_same = |from: &Url| from.origin() == attempt.url().origin();
            match attempt.previous() {
                before if before.len() > REDIRECTS_MAX => attempt.stop(),
                before if before.last().is_some_and(is_same) => attempt.follow(),
                _ => attempt.stop(),
            }
        });
        let client = Client::builder().no_proxy().connect_timeout(CONNECT_TIME_MAX).redirect(redirects);
        let client = client.build().map_err(|error| innermost(&error))?;
        Ok(Self { client, url, headers, limits, event_bytes_max })
    }

    /// The address with further path segments; a `/` at its end does not count.
    pub fn address(&self, segments: &[&str]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// This endpoint for a call with further headers.
    pub fn with_headers(&self, headers: &HeaderMap) -> Self {
        let mut endpoint = self.clone();
        endpoint.headers.extend(headers.clone());
        endpoint
    }

    /// A request with the endpoint's headers.
    pub fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url).headers(self.headers.clone())
    }

    /// Opens a stream of events.
    ///
    /// # Errors
    /// [`UpstreamError`] for any answer other than a stream of events.
    pub async fn open(&self, request: RequestBuilder) -> Result<EventStream, UpstreamError> {
        let request = request.header(header::ACCEPT, EVENT_STREAM);
        let response = self.send(request, self.limits.first_byte).await?;
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("none").to_owned();
        if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(EVENT_STREAM)) {
            let body = document(response, SIDE_CALL_TIME_MAX).await.unwrap_or_default();
            let reason =
                format!("The answer of {} has the content type {kind}. It must be {EVENT_STREAM}. {}", self.url, excerpt(&body));
            return Err(UpstreamError::new(NO_STREAM, reason.trim_end()));
        }
        let parser = SseParser::new(self.event_bytes_max);
        Ok(EventStream {
            url: self.url.clone(),
            response,
            parser,
            silence: self.limits.silence,
            is_first: Some(self.limits.first_byte),
        })
    }

    /// Sends a request that is answered with one JSON document.
    ///
    /// # Errors
    /// [`UpstreamError`] for any other answer.
    pub async fn fetch(&self, request: RequestBuilder) -> Result<Value, UpstreamError> {
        let response = self.send(request, SIDE_CALL_TIME_MAX).await?;
        let text = document(response, SIDE_CALL_TIME_MAX).await?;
        halves::parse(text.as_bytes()).map_err(|error| {
            UpstreamError::new(
                "endpoint_not_json",
                format!("The answer of {} is not JSON: {error}. {}", self.url, excerpt(&text)),
            )
        })
    }

    async fn send(&self, request: RequestBuilder, time_max: Duration) -> Result<Response, UpstreamError> {
        let sent = tokio::time::timeout(time_max, request.send()).await;
        let response = sent.map_err(|_| self.too_slow(time_max))?.map_err(|error| {
            let reason = innermost(&error);
            match error.is_connect() {
                true => UpstreamError::new(ENDPOINT_UNREACHABLE, format!("{} cannot be reached: {reason}.", self.url))
                    .with_retry(RetryHint::Backoff),
                // The work may have begun.
                false => UpstreamError::cut(format!("{} closed the connection without an answer: {reason}.", self.url)),
            }
        })?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status if status.is_redirection() => {
                let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
                let reason =
                    format!("{} redirects to {to}. Redirects to other hosts are not followed. Name the final address.", self.url);
                Err(UpstreamError::new("endpoint_redirects", reason))
            }
            status => Err(self.refusal(status, response).await),
        }
    }

    async fn refusal(&self, status: StatusCode, response: Response) -> UpstreamError {
        let after = response.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        let body = document(response, SIDE_CALL_TIME_MAX).await.unwrap_or_default();
        let code = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "endpoint_denies_access",
            status if status.is_client_error() => "endpoint_refused",
            _ => "endpoint_failed",
        };
        let mut error = UpstreamError::new(code, format!("{} answered {status}. {}", self.url, excerpt(&body)).trim_end());
        error.is_missing = [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&status);
        match status {
            // These say that the work did not begin.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                error.with_retry(after.map_or(RetryHint::Backoff, |seconds| RetryHint::After(Duration::from_secs(seconds))))
            }
            _ => error,
        }
    }

    fn too_slow(&self, limit: Duration) -> UpstreamError {
        UpstreamError::new("endpoint_silent", format!("{} sent nothing for {} s, the limit.", self.url, limit.as_secs_f64()))
    }
}

/// Reads the body of an answer that is not a stream.
async fn document(mut response: Response, time_max: Duration) -> Result<String, UpstreamError> {
    let reading = async {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| UpstreamError::cut(innermost(&error)))? {
            body.extend_from_slice(&chunk);
            if body.len() > DOCUMENT_BYTES_MAX {
                return Err(UpstreamError::new(
                    "endpoint_too_large",
                    format!("The answer is larger than {DOCUMENT_BYTES_MAX} bytes."),
                ));
            }
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    tokio::time::timeout(time_max, reading).await.unwrap_or_else(|_| Err(UpstreamError::cut("The answer did not end in time.")))
}

/// The root cause of an error: "Connection refused" rather than "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map_or_else(String::new, ToString::to_string)
}

/// An open stream of events.
pub(super) struct EventStream {
    url: Url,
    response: Response,
    parser: SseParser,
    silence: Duration,
    /// The limit until the first byte.
    is_first: Option<Duration>,
}

impl EventStream {
    /// The next events; empty for a sign of life. `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Vec<SseMessage>>, UpstreamError> {
        let limit = self.is_first.unwrap_or(self.silence);
        let chunk = tokio::time::timeout(limit, self.response.chunk()).await.map_err(|_| {
            UpstreamError::new("endpoint_silent", format!("{} sent nothing for {} s, the limit.", self.url, limit.as_secs_f64()))
        })?;
        self.is_first = None;
        let chunk =
            chunk.map_err(|error| UpstreamError::cut(format!("The stream of {} broke: {}.", self.url, innermost(&error))))?;
        let Some(chunk) = chunk else {
            // The last event of some servers has no blank line.
            let rest = self.parser.push(b"\n\n").unwrap_or_default();
            return Ok(Some(rest).filter(|rest| !rest.is_empty()));
        };
        self.parser.push(&chunk).map(Some).map_err(|error| UpstreamError::new("endpoint_too_large", error.to_string()))
    }
}

/// How a protocol reads a stream of events.
pub(super) trait EventReader: Send {
    /// Reads one event into facts, each a line of JSON.
    ///
    /// # Errors
    /// Why the event means nothing in this protocol.
    fn read(&mut self, message: SseMessage, facts: &mut Vec<String>) -> Result<(), UpstreamError>;

    /// Asks the endpoint, after the end of the stream, for facts that the stream did not have; `None`: none are left.
    fn read_missed<'a>(&'a mut self, _endpoint: &'a HttpEndpoint) -> Step<'a, Option<Vec<String>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// See [`Upstream::conclude`].
    fn conclude<'a>(&'a mut self, _endpoint: &'a HttpEndpoint) -> Step<'a, Vec<Value>> {
        let why = "The endpoint closed its stream before the run ended.";
        Box::pin(std::future::ready(Err(UpstreamError::cut(why))))
    }

    /// The request that cancels the call, where closing the connection does not. The stream then ends by itself.
    fn cancellation(&self, _endpoint: &HttpEndpoint) -> Option<RequestBuilder> {
        None
    }

    /// See [`Upstream::news`].
    fn news(&mut self) -> Remembered {
        Remembered::default()
    }
}

/// A live call over HTTP.
pub(super) struct HttpUpstream<R> {
    pub endpoint: HttpEndpoint,
    pub stream: EventStream,
    pub reader: R,
}

impl<R: EventReader> Upstream for HttpUpstream<R> {
    fn next(&mut self) -> Step<'_, Option<Vec<String>>> {
        async {
            let Some(messages) = self.stream.next().await? else { return self.reader.read_missed(&self.endpoint).await };
            let mut facts = Vec::new();
            for message in messages {
                self.reader.read(message, &mut facts)?;
            }
            Ok(Some(facts))
        }
        .boxed()
    }

    fn conclude(&mut self) -> Step<'_, Vec<Value>> {
        self.reader.conclude(&self.endpoint)
    }

    fn cancel(&mut self) -> Step<'_, bool> {
        let request = self.reader.cancellation(&self.endpoint);
        async move {
            let Some(request) = request else { return Ok(false) };
            self.endpoint.send(request, SIDE_CALL_TIME_MAX).await?;
            Ok(true)
        }
        .boxed()
    }

    fn news(&mut self) -> Remembered {
        self.reader.news()
    }
}

/// The data of an event as one line. The log's own parser judges whether it is JSON.
///
/// A new line within JSON stands between its tokens only.
pub(super) fn line_of(data: String) -> String {
    if data.contains('\n') { data.replace('\n', " ") } else { data }
}

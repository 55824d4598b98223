//! The commands of the binary.
//!
//! They use a server only by its HTTP API, as any other program does. Four commands need more: `demo` starts a server,
//! `check` runs the library's linter, `doctor` reads the store of a stopped server, and `restore` makes one.

mod backup_manifest;
mod backups;
pub mod check;
#[cfg(feature = "cluster")]
pub mod cluster_seed;
pub mod conform;
pub mod demo;
pub mod doctor;
pub mod documentation;
pub mod follow;
pub mod health;
pub mod help_files;
mod import_file;
pub mod log_output;
#[cfg(feature = "otlp")]
pub mod otlp;
mod owner_import;
pub mod remote;
pub mod restore;
mod screen;

#[cfg(target_os = "linux")]
pub mod supervise;
pub mod tail;
pub mod token;
pub mod transfer;
pub mod verify;

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use proscenium_reporter::trust::{self, TrustError};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};
use tokio::time::Instant;
use tokio_rustls::rustls as tls;

/// The time limit for connecting to a server.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// The time limit for silence: no byte from the server, not even a heartbeat.
///
/// In an upload, it also limits the time in which the server reads nothing.
const SILENCE_MAX: Duration = Duration::from_secs(75);

/// The server's address and the credentials for it.
#[derive(Debug, Clone, clap::Args)]
pub struct Endpoint {
    /// The server's address.
    #[arg(
        long,
        alias = "server",
        global = true,
        env = "PROSCENIUM_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8787"
    )]
    url: String,
    /// The PEM file of the certificate authority for an https URL; by default the system's authorities.
    #[arg(long, global = true, env = "PROSCENIUM_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The access token. Prefer the variable: other users of this machine can see flags.
    #[arg(long, global = true, env = "PROSCENIUM_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<Secret>,
}

/// An `Authorization` value that debug output hides.
#[derive(Clone)]
struct Secret(HeaderValue);

impl std::str::FromStr for Secret {
    type Err = &'static str;

    fn from_str(token: &str) -> Result<Self, Self::Err> {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| "a token has only visible ASCII characters")?;
        bearer.set_sensitive(true);
        Ok(Self(bearer))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The audience of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Audience {
    /// Only the content for end users.
    User,
    /// Also the content for operators.
    Dashboard,
    /// All content.
    Internal,
}

impl Audience {
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Dashboard => "dashboard",
            Self::Internal => "internal",
        }
    }
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("no server answers at {url}: {reason}; start one with `proscenium serve`, or pass its address with --url")]
    Unreachable { url: String, reason: String },
    #[error("the certificate of the server at {url} is not trusted: {reason}; pass the certificate of its authority with --ca")]
    Untrusted { url: String, reason: String },
    /// The default certificate of `openssl req -x509`.
    ///
    /// TLS clients reject it even if they trust it as an authority.
    #[error(
        "the certificate of the server at {url} belongs to an authority ({reason}), and --ca cannot help; give the server a \
         certificate with basicConstraints=CA:FALSE (openssl req -x509 … -addext basicConstraints=critical,CA:FALSE), or one \
         that the authority signed"
    )]
    AuthorityCertificate { url: String, reason: String },
    #[error("{url} does not speak TLS; use http:// in the URL")]
    NotTls { url: String },
    #[error("{0}")]
    Trust(#[from] TrustError),
    #[error("the connection to {url} failed: {reason}; run the same command again")]
    Disconnected { url: String, reason: String },
    #[error("the server rejected the request: {detail} ({code})")]
    Rejected { code: String, detail: String },
    #[error("the server at {url} is not ready: {detail} ({code})")]
    NotReady { url: String, code: String, detail: String },
    #[error("{url} answered {status}, but not as a proscenium server: {body:?}; check --url")]
    UnexpectedResponse { url: String, status: StatusCode, body: String },
    #[error("{url} sent an invalid frame: {reason}; check --url and the version of the server")]
    InvalidFrame { url: String, reason: String },
    #[error("{}:{line}: {reason}", file.display())]
    Line { file: PathBuf, line: u64, reason: String },
    #[error("{}: {reason}", file.display())]
    File { file: PathBuf, reason: String },
    #[error("{0}")]
    Usage(String),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl CliError {
    /// Returns whether the reader of the output has closed the pipe, as in `proscenium tail … | head`.
    ///
    /// This is no failure.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl Endpoint {
    /// Creates an endpoint without a certificate authority and without a token.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), ca: None, token: None }
    }

    /// Returns the URL of a run's resource, such as `stream`; with an empty resource, the URL of the run.
    fn run_url(&self, run: &str, resource: &str) -> String {
        self.resource_url("runs", run, resource)
    }

    /// Returns the URL of an item's resource in `runs`, `sessions`, `agents` or `controls`.
    fn resource_url(&self, collection: &str, id: &str, resource: &str) -> String {
        let base = self.url.trim_end_matches('/');
        let slash = if resource.is_empty() { "" } else { "/" };
        format!("{base}/v1/{collection}/{}{slash}{resource}", encoded(id))
    }

    fn client(&self) -> Result<reqwest::Client, CliError> {
        self.client_with(|client| client.read_timeout(SILENCE_MAX))
    }

    /// Creates a client for [`Self::upload`].
    ///
    /// It has no read timeout: reqwest starts that at the first byte of the request, so it would end every long upload.
    fn uploading_client(&self) -> Result<reqwest::Client, CliError> {
        self.client_with(|client| client)
    }

    fn client_with(
        &self,
        timeouts: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
    ) -> Result<reqwest::Client, CliError> {
        let unreadable = |file: &Path, error: std::io::Error| CliError::File { file: file.to_owned(), reason: error.to_string() };
        let read = |file: &PathBuf| std::fs::read(file).map_err(|error| unreadable(file, error));
        let authority = self.ca.as_ref().map(read).transpose()?;
        let client = trust::client(&self.url, authority.as_deref())?;
        let mut headers = HeaderMap::new();
        headers.extend(self.token.as_ref().map(|Secret(bearer)| (AUTHORIZATION, bearer.clone())));
        let client = timeouts(client.connect_timeout(CONNECT_TIME_MAX).default_headers(headers));
        Ok(client.build().expect("the TLS configuration is complete, and a client needs nothing else"))
    }

    /// Converts a failed request into an error with a remedy.
    fn request_error(&self, error: &reqwest::Error) -> CliError {
        let (url, reason) = (self.url.clone(), innermost(error));
        match find_tls_error(error) {
            // The library has no variant for it, only a name.
            Some(tls::Error::InvalidCertificate(_)) if reason.contains("CaUsedAsEndEntity") => {
                return CliError::AuthorityCertificate { url, reason };
            }
            Some(tls::Error::InvalidCertificate(_)) => return CliError::Untrusted { url, reason },
            Some(tls::Error::InvalidMessage(_)) => return CliError::NotTls { url },
            _ => {}
        }
        if error.is_connect() || error.is_builder() {
            CliError::Unreachable { url, reason }
        } else {
            CliError::Disconnected { url, reason }
        }
    }

    /// Sends a streamed body and returns the whole response.
    ///
    /// It fails if the server neither reads nor answers for [`SILENCE_MAX`]. The time in which the body produces its
    /// next chunk does not count.
    async fn upload(&self, request: RequestBuilder, body: impl Chunks) -> Result<Response, CliError> {
        self.upload_within(request, body, SILENCE_MAX).await
    }

    async fn upload_within(
        &self,
        request: RequestBuilder,
        body: impl Chunks,
        silence_max: Duration,
    ) -> Result<Response, CliError> {
        let waiting_since = Arc::new(Mutex::new(Some(Instant::now())));
        let request =
            request.body(reqwest::Body::wrap_stream(TimedBody { body: Box::pin(body), waiting_since: waiting_since.clone() }));
        let answered = async {
            let answer = request.send().await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            *waiting_since.lock() = Some(Instant::now());
            let mut whole = http::Response::new(answer.bytes().await?);
            (*whole.status_mut(), *whole.headers_mut()) = (status, headers);
            Ok(Response::from(whole))
        };
        let silent = async {
            loop {
                let since = *waiting_since.lock();
                let left = silence_max.saturating_sub(since.map_or(Duration::ZERO, |since| since.elapsed()));
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left).await;
            }
        };
        tokio::select! {
            answer = answered => answer.map_err(|error| self.request_error(&error)),
            () = silent => {
                let reason = format!("the server neither read nor sent any data for {} s", silence_max.as_secs_f64());
                Err(CliError::Disconnected { url: self.url.clone(), reason })
            }
        }
    }

    /// Returns a response with a success status; converts any other into an error.
    async fn require_success(&self, answer: Response) -> Result<Response, CliError> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(self.read_rejection(answer).await.0)
    }

    /// Reads an error response; returns the error and its problem document.
    ///
    /// The document is null if the body is not one.
    async fn read_rejection(&self, answer: Response) -> (CliError, Value) {
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let error = match (problem["code"].as_str(), problem["detail"].as_str()) {
            (Some(code), Some(detail)) => CliError::Rejected { code: code.into(), detail: detail.into() },
            _ => CliError::UnexpectedResponse { url: self.url.clone(), status, body: text.chars().take(200).collect() },
        };
        (error, problem)
    }
}

/// The chunks of a streamed body.
trait Chunks: Stream<Item = Result<Bytes, io::Error>> + Send + 'static {}

impl<S: Stream<Item = Result<Bytes, io::Error>> + Send + 'static> Chunks for S {}

/// A body that records since when the client waits for the server.
///
/// The time is `None` while the body produces its next chunk.
struct TimedBody<S> {
    body: Pin<Box<S>>,
    waiting_since: Arc<Mutex<Option<Instant>>>,
}

impl<S: Chunks> Stream for TimedBody<S> {
    type Item = Result<Bytes, io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.body.as_mut().poll_next(context);
        *self.waiting_since.lock() = next.is_ready().then(Instant::now);
        next
    }
}

/// Encodes a part of a path or of a query: an id may have any character.
fn encoded(text: &str) -> PercentEncode<'_> {
    // The unreserved characters of RFC 3986 need no encoding.
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, RESERVED)
}

/// Returns the TLS error among the causes of an error.
fn find_tls_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e tls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // `source` of an I/O error skips the error that it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = wrapped.map(|wrapped| wrapped as &(dyn std::error::Error + 'static)).or_else(|| error.source());
    }
    None
}

/// Returns the root cause of an error: "Connection refused" rather than "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Whether a directory has a store, of any format.
fn is_data_dir(dir: &std::path::Path) -> bool {
    ["journal", "trees", "log", "replica"].iter().any(|entry| dir.join(entry).exists())
}

/// Creates a progress bar on standard error. Indicatif hides it if standard error is not a terminal.
fn progress(length: Option<u64>, template: &str) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::with_draw_target(length, indicatif::ProgressDrawTarget::stderr());
    bar.set_style(
        indicatif::ProgressStyle::with_template(template).expect("the built-in templates are valid").progress_chars("━╸ "),
    );
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Starts a server on a free port that handles one connection.
    async fn serve_once<F: Future<Output = ()> + Send + 'static>(
        handle: impl FnOnce(tokio::net::TcpStream) -> F + Send + 'static,
    ) -> Endpoint {
        proscenium::environment::install_crypto_provider();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { handle(listener.accept().await.unwrap().0).await });
        Endpoint::new(url)
    }

    /// Generates chunks of 64 KiB; a socket's buffers hold at most a few hundred of them.
    fn chunks(pause: Duration, count: usize) -> impl Chunks {
        futures_util::stream::unfold(count, move |left| async move {
            tokio::time::sleep(pause).await;
            Some((Ok(Bytes::from_static(&[b' '; 65_536])), left.checked_sub(1)?))
        })
    }

    #[tokio::test]
    async fn time_to_produce_a_chunk_does_not_count_as_silence() {
        let server = serve_once(async |mut socket| {
            let (mut read, mut some) = (Vec::new(), [0; 1024]);
            while !read.ends_with(b"0\r\n\r\n") {
                let count = socket.read(&mut some).await.unwrap();
                read.extend_from_slice(&some[..count]);
            }
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        })
        .await;
        let request = server.uploading_client().unwrap().post(&server.url);
        // Each pause is longer than the limit of silence.
        let answer = server.upload_within(request, chunks(Duration::from_secs(3), 1), Duration::from_secs(2)).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.text().await.unwrap()), (200, "{}".into()));
    }

    #[tokio::test]
    async fn an_upload_fails_if_the_server_neither_reads_nor_answers() {
        let (endless, whole) = (usize::MAX, 3);
        for count in [endless, whole] {
            let server = serve_once(async |_unread| std::future::pending().await).await;
            let request = server.uploading_client().unwrap().post(&server.url);
            let sending = server.upload_within(request, chunks(Duration::ZERO, count), Duration::from_millis(200));
            let error = tokio::time::timeout(Duration::from_mins(1), sending).await.unwrap().unwrap_err();
            assert!(matches!(error, CliError::Disconnected { .. }), "{error}");
        }
    }

    #[test]
    fn a_run_url_encodes_reserved_characters() {
        let server = Endpoint::new("http://h:1/");
        assert_eq!(server.run_url("a/b ?#%é", "facts"), "http://h:1/v1/runs/a%2Fb%20%3F%23%25%C3%A9/facts");
        assert_eq!(server.run_url("demo-3_x.y~z", ""), "http://h:1/v1/runs/demo-3_x.y~z");
    }
}

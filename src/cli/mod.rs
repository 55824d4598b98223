//! The commands that talk to a server, as any other program would: over HTTP, and nothing else.
//!
//! They belong to the binary and see nothing of the server's inside, except that `demo` starts one, that `check` is the
//! linter of the library, and that `doctor` reads a store that no server has open.

pub mod check;
pub mod demo;
pub mod doctor;
#[cfg(feature = "otlp")]
pub mod otlp;
mod screen;
mod sse;
pub mod tail;
pub mod token;
pub mod transfer;

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proscenium::reporter::trust::{self, TrustError};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, io};
use tokio_rustls::rustls as tls;

/// How long a server may take to be reached.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a server may say nothing, not even a heartbeat; and take nothing of what is sent to it.
const SILENCE_MAX: Duration = Duration::from_secs(75);

/// Where the server is.
#[derive(Debug, Clone, clap::Args)]
pub struct Server {
    /// The server's address.
    #[arg(long, alias = "server", env = "PROSCENIUM_URL", value_name = "URL", default_value = "http://127.0.0.1:8787")]
    url: String,
    /// The certificates of the authority that vouches for the server at an https address, as PEM; else those that the system
    /// trusts.
    #[arg(long, env = "PROSCENIUM_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The token that says who you are, to a server that asks. Rather set the variable: others on this machine may see the
    /// flags of a command.
    #[arg(long, env = "PROSCENIUM_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<Secret>,
}

/// What nobody else is to see.
#[derive(Clone)]
struct Secret(HeaderValue);

impl std::str::FromStr for Secret {
    type Err = &'static str;

    fn from_str(token: &str) -> Result<Self, Self::Err> {
        let mut bearer =
            HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| "a token is visible ASCII only")?;
        bearer.set_sensitive(true);
        Ok(Self(bearer))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Who is looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Audience {
    /// What end users may see.
    User,
    /// What operators may see as well.
    Dashboard,
    /// Everything.
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

/// Why a command could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("nothing answers at {url}: {why}; start a server with `proscenium serve`, or say where it is with --url")]
    Unreachable { url: String, why: String },
    #[error("the server at {url} is not who it says it is, as far as is known here: {why}; name its authority with --ca")]
    Untrusted { url: String, why: String },
    /// What `openssl req -x509` makes by default. TLS clients refuse it even where it is trusted as an authority.
    #[error(
        "the certificate of the server at {url} is an authority's ({why}); --ca cannot help: give the server a certificate made with \
         basicConstraints=CA:FALSE (openssl req -x509 … -addext basicConstraints=critical,CA:FALSE), or one that the authority signed"
    )]
    Authority { url: String, why: String },
    #[error("{url} does not speak TLS; is it http:// that is meant?")]
    Plain { url: String },
    #[error("{0}")]
    Trust(#[from] TrustError),
    #[error("the connection to {url} broke: {why}; run the same command again")]
    Broken { url: String, why: String },
    #[error("the server refused: {detail} ({code})")]
    Refused { code: String, detail: String },
    #[error("{url} answered {status}, and not as a proscenium server would: {body:?}; is --url right?")]
    Stranger { url: String, status: StatusCode, body: String },
    #[error("{url} sends what is no frame: {why}; is --url right, and the server of this version?")]
    Garbled { url: String, why: String },
    #[error("{}:{line}: {why}", file.display())]
    Line { file: PathBuf, line: u64, why: String },
    #[error("{}: {why}", file.display())]
    File { file: PathBuf, why: String },
    #[error("{0}")]
    Usage(String),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl CliError {
    /// Whether nobody reads our output any more, as in `proscenium tail … | head`: that is no failure.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl Server {
    /// A server at this address.
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), ca: None, token: None }
    }

    /// The address of a run's resource, such as its `stream`; with no resource, of the run itself.
    fn run(&self, run: &str, resource: &str) -> String {
        self.of("runs", run, resource)
    }

    /// The address of something that has an id: `runs`, `sessions`, `agents`, `controls`; or of a resource of it.
    fn of(&self, things: &str, id: &str, resource: &str) -> String {
        // RFC 3986's unreserved characters stand for themselves; an id may have any other.
        const ID: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
        let base = self.url.trim_end_matches('/');
        let slash = if resource.is_empty() { "" } else { "/" };
        format!("{base}/v1/{things}/{}{slash}{resource}", utf8_percent_encode(id, ID))
    }

    fn client(&self) -> Result<reqwest::Client, CliError> {
        self.client_with(|client| client.read_timeout(SILENCE_MAX))
    }

    /// A client for [`Self::upload`]. A read timeout counts from the request's first byte: it would end every upload that takes
    /// longer, for the answer comes last.
    fn uploading_client(&self) -> Result<reqwest::Client, CliError> {
        self.client_with(|client| client)
    }

    fn client_with(
        &self,
        timeouts: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
    ) -> Result<reqwest::Client, CliError> {
        let unreadable = |file: &Path, error: std::io::Error| CliError::File { file: file.to_owned(), why: error.to_string() };
        let read = |file: &PathBuf| std::fs::read(file).map_err(|error| unreadable(file, error));
        let authority = self.ca.as_ref().map(read).transpose()?;
        let client = trust::client(&self.url, authority.as_deref())?;
        let mut headers = HeaderMap::new();
        headers.extend(self.token.as_ref().map(|Secret(bearer)| (AUTHORIZATION, bearer.clone())));
        let client = timeouts(client.connect_timeout(CONNECT_TIME_MAX).default_headers(headers));
        Ok(client.build().expect("whom to believe is settled, and nothing else is needed from the machine"))
    }

    /// What a failed request means to whoever gave the command.
    fn failed(&self, error: &reqwest::Error) -> CliError {
        let (url, why) = (self.url.clone(), innermost(error));
        match fault_of_tls(error) {
            // The library has no variant for it, only a name.
            Some(tls::Error::InvalidCertificate(_)) if why.contains("CaUsedAsEndEntity") => {
                return CliError::Authority { url, why };
            }
            Some(tls::Error::InvalidCertificate(_)) => return CliError::Untrusted { url, why },
            Some(tls::Error::InvalidMessage(_)) => return CliError::Plain { url },
            _ => {}
        }
        if error.is_connect() || error.is_builder() { CliError::Unreachable { url, why } } else { CliError::Broken { url, why } }
    }

    /// Sends a streamed body, for as long as there is more of it, and gives the whole answer. It breaks off when it is the
    /// server's turn, to take more or to answer, and nothing comes of that for [`SILENCE_MAX`].
    async fn upload(&self, request: RequestBuilder, body: impl Chunks) -> Result<Response, CliError> {
        self.upload_within(request, body, SILENCE_MAX).await
    }

    async fn upload_within(
        &self,
        request: RequestBuilder,
        body: impl Chunks,
        silence_max: Duration,
    ) -> Result<Response, CliError> {
        let turn = Arc::new(Mutex::new(Some(Instant::now())));
        let request = request.body(reqwest::Body::wrap_stream(Taken { body: Box::pin(body), turn: turn.clone() }));
        let answered = async {
            let answer = request.send().await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            *turn.lock() = Some(Instant::now());
            let mut whole = http::Response::new(answer.bytes().await?);
            (*whole.status_mut(), *whole.headers_mut()) = (status, headers);
            Ok(Response::from(whole))
        };
        let silent = async {
            loop {
                let since = *turn.lock();
                let left = silence_max.saturating_sub(since.map_or(Duration::ZERO, |since| since.elapsed()));
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left).await;
            }
        };
        tokio::select! {
            answer = answered => answer.map_err(|error| self.failed(&error)),
            () = silent => {
                let why = format!("the server took nothing and said nothing for {} s", silence_max.as_secs_f64());
                Err(CliError::Broken { url: self.url.clone(), why })
            }
        }
    }

    /// The answer, unless it is a refusal.
    async fn accepted(&self, answer: Response) -> Result<Response, CliError> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(self.refusal(answer).await.0)
    }

    /// What a refusal says, and the problem document that says it (null, if none does).
    async fn refusal(&self, answer: Response) -> (CliError, Value) {
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let error = match (problem["code"].as_str(), problem["detail"].as_str()) {
            (Some(code), Some(detail)) => CliError::Refused { code: code.into(), detail: detail.into() },
            _ => CliError::Stranger { url: self.url.clone(), status, body: text.chars().take(200).collect() },
        };
        (error, problem)
    }
}

/// The chunks of a streamed body.
trait Chunks: Stream<Item = Result<Bytes, io::Error>> + Send + 'static {}

impl<S: Stream<Item = Result<Bytes, io::Error>> + Send + 'static> Chunks for S {}

/// A body that notes since when it is the server's turn: not while the next chunk is being made.
struct Taken<S> {
    body: Pin<Box<S>>,
    turn: Arc<Mutex<Option<Instant>>>,
}

impl<S: Chunks> Stream for Taken<S> {
    type Item = Result<Bytes, io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.body.as_mut().poll_next(context);
        *self.turn.lock() = next.is_ready().then(Instant::now);
        next
    }
}

/// What TLS had to say, if the error is of its making.
fn fault_of_tls<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e tls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(fault) = error.downcast_ref() {
            return Some(fault);
        }
        // What an I/O error wraps is not among its sources.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = wrapped.map(|wrapped| wrapped as &(dyn std::error::Error + 'static)).or_else(|| error.source());
    }
    None
}

/// The cause at the bottom of an error: "Connection refused" rather than "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// A progress bar on standard error, where somebody may see it; silent elsewhere.
fn progress(length: Option<u64>, template: &str) -> indicatif::ProgressBar {
    // Standard error's target hides itself where there is no terminal.
    let bar = indicatif::ProgressBar::with_draw_target(length, indicatif::ProgressDrawTarget::stderr());
    bar.set_style(
        indicatif::ProgressStyle::with_template(template).expect("our own templates are well-formed").progress_chars("━╸ "),
    );
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Accepts one request on a free port and handles its connection; the server's address.
    async fn served_by<F: Future<Output = ()> + Send + 'static>(
        handle: impl FnOnce(tokio::net::TcpStream) -> F + Send + 'static,
    ) -> Server {
        // Another test may have been first.
        let _ = tls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { handle(listener.accept().await.unwrap().0).await });
        Server::at(url)
    }

    /// Chunks of 64 KiB: more than a few hundred of them fit into no socket's buffers.
    fn chunks(pause: Duration, count: usize) -> impl Chunks {
        futures_util::stream::unfold(count, move |left| async move {
            tokio::time::sleep(pause).await;
            Some((Ok(Bytes::from_static(&[b' '; 65_536])), left.checked_sub(1)?))
        })
    }

    #[tokio::test]
    async fn an_upload_may_take_as_long_as_its_chunks_do() {
        let server = served_by(async |mut socket| {
            let (mut read, mut some) = (Vec::new(), [0; 1024]);
            while !read.ends_with(b"0\r\n\r\n") {
                let count = socket.read(&mut some).await.unwrap();
                read.extend_from_slice(&some[..count]);
            }
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        })
        .await;
        let request = server.uploading_client().unwrap().post(&server.url);
        // Each pause is longer than a server may be silent.
        let answer = server.upload_within(request, chunks(Duration::from_secs(3), 1), Duration::from_secs(2)).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.text().await.unwrap()), (200, "{}".into()));
    }

    #[tokio::test]
    async fn an_upload_to_a_server_that_takes_nothing_or_never_answers_breaks_off() {
        let (endless, whole) = (usize::MAX, 3);
        for count in [endless, whole] {
            let server = served_by(async |_unread| std::future::pending().await).await;
            let request = server.uploading_client().unwrap().post(&server.url);
            let sending = server.upload_within(request, chunks(Duration::ZERO, count), Duration::from_millis(200));
            let error = tokio::time::timeout(Duration::from_mins(1), sending).await.unwrap().unwrap_err();
            assert!(matches!(error, CliError::Broken { .. }), "{error}");
        }
    }

    #[test]
    fn a_run_is_addressed_whatever_its_name_has() {
        let server = Server::at("http://h:1/");
        assert_eq!(server.run("a/b ?#%é", "facts"), "http://h:1/v1/runs/a%2Fb%20%3F%23%25%C3%A9/facts");
        assert_eq!(server.run("demo-3_x.y~z", ""), "http://h:1/v1/runs/demo-3_x.y~z");
    }
}

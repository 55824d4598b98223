//! The common parts of the fuzz targets.
//!
//! They are a server inside the process, used without connections, and a deterministic environment.
//!
//! A target converts bytes into requests and asserts properties of the responses. A panic in any thread is a finding:
//! libFuzzer's hook ends the process.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::BodyExt;
use jsonschema::{Registry, Validator};
use proscenium::auth::{AuthConfig, Authenticator};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::environment::Environment;
use proscenium::log::{Storage};
use proscenium::model::schema;
use proscenium::projection;
use proscenium::serve::access::origin::Origins;
use proscenium::serve::{Failure, KeepAlive, Limits, Server};
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// The time limit of any operation.
const TIME_MAX: Duration = Duration::from_secs(20);

/// The start of the targets' clock, in milliseconds since 1970: the beginning of 2026.
///
/// Each read advances it by 1 ms.
pub const CLOCK_START_MS: i64 = 1_767_225_600_000;

static CLOCK_READS: AtomicU64 = AtomicU64::new(0);
static RANDOM_DRAWS: AtomicU64 = AtomicU64::new(0);

/// A deterministic environment: the same input has the same result.
pub const ENVIRONMENT: Environment = Environment {
    now: || {
        let reads = i64::try_from(CLOCK_READS.fetch_add(1, Ordering::Relaxed)).expect("the number of reads fits");
        jiff::Timestamp::from_millisecond(CLOCK_START_MS + reads).expect("the time is in this century")
    },
    random: || {
        let half = |n: u64| {
            // SplitMix64.
            let mut bits = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^ (bits >> 31)
        };
        let n = RANDOM_DRAWS.fetch_add(2, Ordering::Relaxed);
        u128::from(half(n + 1)) << 64 | u128::from(half(n + 2))
    },
};

/// An expiry that this clock never reaches, in seconds since 1970.
pub const EXPIRY_SECS: u64 = 4_000_000_000;

/// Runs a future on the only runtime thread; the store has its own threads.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().max_blocking_threads(2).build().expect("a runtime")
    });
    RUNTIME.block_on(async { tokio::time::timeout(TIME_MAX, future).await.expect("the operation ends within the time limit") })
}

/// Splits the input at the first of these bytes.
pub fn split(input: &[u8], at: u8) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == at) {
        Some(position) => (&input[..position], &input[position + 1..]),
        None => (input, &[]),
    }
}

/// A complete response.
#[derive(Debug)]
pub struct ReceivedResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl ReceivedResponse {
    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Returns the body as JSON; panics for any status but 200.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    fn text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// A running server. The caller ends it with [`Self::stop`].
pub struct TestServer {
    pub router: axum::Router,
    /// The address that it listens on, for targets that connect; the others use the router.
    pub at: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), Failure>>,
}

impl TestServer {
    /// Starts an empty server and resets the environment. The caller must run this inside [`block_on`].
    pub async fn start(limits: Limits, authenticator: Option<Arc<Authenticator>>) -> Self {
        CLOCK_READS.store(0, Ordering::Relaxed);
        RANDOM_DRAWS.store(0, Ordering::Relaxed);
        let store = Storage::memory();
        let sizes = FeedConfig { tick: Duration::from_millis(1), ..FeedConfig::default() };
        // Small enough for the fuzz inputs to have offloaded bodies.
        let policy = Policy { inline_bytes_max: 512 };
        let keep_alive = KeepAlive { drain: Duration::ZERO, ..KeepAlive::default() };
        let server = Server::new(store, policy, sizes, limits, keep_alive, ENVIRONMENT).expect("an empty store opens");
        let server = server.with_auth(authenticator, Origins::default());
        let router = server.router();
        let (stop, stopped) = oneshot::channel();
        // The server runs its periodic tasks only while it listens.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let stopped = async {
            // A dropped sender also stops the server.
            let _ = stopped.await;
        };
        Self { router, at, stop, running: tokio::spawn(server.run(listener, stopped)) }
    }

    /// Sends a request and returns the head of the response; `None` if the bytes are not a valid request.
    pub async fn open(&self, method: Method, target: &[u8], headers: &[(&str, &[u8])], body: Body) -> Option<Response> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::try_from(target).ok().filter(|uri| uri.path().starts_with('/'))?;
        request.headers_mut().insert("host", HeaderValue::from_static("t"));
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).expect("the target uses valid header names");
            request.headers_mut().append(name, HeaderValue::from_bytes(value).ok()?);
        }
        let Ok(response) = self.router.clone().oneshot(request).await;
        let status = response.status().as_u16();
        assert!(status < 500 || [501, 503].contains(&status), "{status} for {}", String::from_utf8_lossy(target));
        Some(response)
    }

    /// Sends a request and returns the whole response; `None` if the bytes are not a valid request.
    pub async fn request(
        &self,
        method: Method,
        target: &[u8],
        headers: &[(&str, &[u8])],
        body: Body,
    ) -> Option<ReceivedResponse> {
        let (head, body) = self.open(method, target, headers, body).await?.into_parts();
        let body = body.collect().await.expect("the response is complete").to_bytes().to_vec();
        let answer = ReceivedResponse { status: head.status.as_u16(), headers: head.headers, body };
        if answer.status >= 400 && answer.headers.get("content-type").is_some_and(|kind| kind == "application/problem+json") {
            assert_valid("problem.schema.json", &answer.json());
        }
        Some(answer)
    }

    /// Sends a GET request to a valid path.
    pub async fn get(&self, target: &str) -> ReceivedResponse {
        self.request(Method::GET, target.as_bytes(), &[], Body::empty()).await.expect("an address")
    }

    /// Posts JSON to a valid path.
    pub async fn post(&self, target: &str, body: impl Into<Body>) -> ReceivedResponse {
        let headers = [("content-type", &b"application/json"[..])];
        self.request(Method::POST, target.as_bytes(), &headers, body.into()).await.expect("an address")
    }

    /// Reads all events of a run that an audience sees.
    pub async fn events(&self, run: &str, audience: &str) -> Vec<Value> {
        let (mut events, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/v1/runs/{run}/events?audience={audience}&after={after}")).await.ok();
            events.extend(page["events"].as_array().expect("events").iter().cloned());
            match page["nextCursor"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None => return events,
            }
        }
    }

    /// Stops the server and its tasks.
    pub async fn stop(self) {
        // If the server has already failed, the next line reports that.
        let _ = self.stop.send(());
        self.running.await.expect("the server does not panic").expect("the server stops without an error");
    }
}

/// The three audiences, widest last.
pub const AUDIENCES: [&str; 3] = ["user", "dashboard", "internal"];

/// The signing secret of the targets with authentication.
pub const SECRET: &str = "a secret of the targets, of more than thirty-two bytes";

/// Creates an authenticator with a key and a key set.
pub fn authenticator(key: &str, set: &Value) -> Arc<Authenticator> {
    let dir = tempfile::tempdir().expect("a folder");
    let put = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("a file can be written");
        Some(dir.path().join(name))
    };
    let setup = AuthConfig {
        key: put("key", key),
        jwks: put("set", &set.to_string()),
        service: "proscenium".into(),
        ..AuthConfig::default()
    };
    Authenticator::open(setup, ENVIRONMENT).expect("keys that can be read").expect("there is a key")
}

/// Reads a file of the repository.
pub fn read_repository_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The validators of the schema documents, by the file names in `schema/`.
static VALIDATORS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let wire = schema::documents().into_iter().map(|(name, document)| (name.to_owned(), document));
    let contents =
        projection::schemas().into_iter().map(|(kind, document)| (format!("activities/{kind}.schema.json"), document));
    let documents: Vec<(String, Value)> = wire.chain(contents).collect();
    let registry = documents.iter().fold(Registry::new(), |registry, (_, document)| {
        registry.add(document["$id"].as_str().expect("an $id"), document.clone()).expect("a document")
    });
    let registry = registry.prepare().expect("references resolve");
    let build = |document: &Value| {
        jsonschema::options().with_registry(&registry).should_validate_formats(true).build(document).expect("a schema")
    };
    documents.iter().map(|(name, document)| (name.clone(), build(document))).collect()
});

/// Asserts that a value matches the schema in this file; panics with all errors.
pub fn assert_valid(schema: &str, value: &Value) {
    let errors: Vec<String> =
        VALIDATORS[schema].iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{schema}: {errors:#?}\n{value:#}");
}

/// Asserts that an activity's content matches its schema. A custom type may have any content.
pub fn assert_activity(kind: &str, is_custom: bool, content: &Value) {
    let name = format!("activities/{}.schema.json", if is_custom { "custom" } else { kind });
    assert_valid(&name, content);
}

//! What the targets share: a server inside the process, asked without a connection, with a clock and dice of its own.
//!
//! A target takes bytes, makes requests of them, and holds laws over what is answered. Any panic, in any thread, is a finding:
//! libFuzzer's hook ends the process with it.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::BodyExt;
use jsonschema::{Registry, Validator};
use proscenium::auth::{Authenticator, AuthConfig};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::ingest::Environment;
use proscenium::log::{AnyStore, StoreError, memory::MemoryStore};
use proscenium::model::schema;
use proscenium::projection::schema as activities;
use proscenium::serve::origin::Origins;
use proscenium::serve::{Limits, KeepAlive, Server};
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

/// How long anything may take before it counts as never.
const NEVER: Duration = Duration::from_secs(20);

/// When it is by the targets' clock, in milliseconds since 1970: the beginning of 2026, and one more each time somebody looks.
pub const BEGINNING: i64 = 1_767_225_600_000;

static LOOKS: AtomicU64 = AtomicU64::new(0);
static THROWS: AtomicU64 = AtomicU64::new(0);

/// A world in which the same bytes come to the same.
pub const ENVIRONMENT: Environment = Environment {
    now: || {
        let looks = i64::try_from(LOOKS.fetch_add(1, Ordering::Relaxed)).expect("nobody looks so often");
        jiff::Timestamp::from_millisecond(BEGINNING + looks).expect("a moment of this century")
    },
    random: || {
        let half = |n: u64| {
            // SplitMix64.
            let mut bits = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^ (bits >> 31)
        };
        let n = THROWS.fetch_add(2, Ordering::Relaxed);
        u128::from(half(n + 1)) << 64 | u128::from(half(n + 2))
    },
};

/// An expiry that never comes by this clock, in seconds since 1970.
pub const LATER: u64 = 4_000_000_000;

/// Waits for something; for all of it one thread, beside those of the store.
pub fn wait<T>(what: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().max_blocking_threads(2).build().expect("a runtime")
    });
    RUNTIME.block_on(async { tokio::time::timeout(NEVER, what).await.expect("nothing takes for ever") })
}

/// The input up to the first of these bytes, and what follows it.
pub fn split(input: &[u8], at: u8) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == at) {
        Some(place) => (&input[..place], &input[place + 1..]),
        None => (input, &[]),
    }
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body of an answer that has to be 200.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    fn text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// A server, from its beginning to [`Self::stop`].
pub struct Served {
    pub router: axum::Router,
    /// Where it listens, for those targets that connect; the others ask the router.
    pub at: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), StoreError>>,
}

impl Served {
    /// An empty one, at the beginning of the world. Must be called inside of [`wait`].
    pub async fn start(limits: Limits, authority: Option<Arc<Authenticator>>) -> Self {
        LOOKS.store(0, Ordering::Relaxed);
        THROWS.store(0, Ordering::Relaxed);
        let store = AnyStore::Memory(MemoryStore::new());
        let sizes = FeedConfig { tick: Duration::from_millis(1), ..FeedConfig::default() };
        // Small enough for bodies to be moved out of inputs as they are here.
        let policy = Policy { inline_bytes_max: 512 };
        let pulse = KeepAlive { drain: Duration::ZERO, ..KeepAlive::default() };
        let server = Server::new(store, policy, sizes, limits, pulse, ENVIRONMENT).expect("an empty store opens");
        let server = server.with_auth(authority, Origins::default());
        let router = server.router();
        let (stop, stopped) = oneshot::channel();
        // What the server does by itself, it does while it listens.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let stopped = async {
            // Whoever drops the other end has stopped, too.
            let _ = stopped.await;
        };
        Self { router, at, stop, running: tokio::spawn(server.run(listener, stopped)) }
    }

    /// Sends a request, and gives the answer's head; `None` where the bytes make no request at all.
    pub async fn open(&self, method: Method, target: &[u8], headers: &[(&str, &[u8])], body: Body) -> Option<Response> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::try_from(target).ok().filter(|uri| uri.path().starts_with('/'))?;
        request.headers_mut().insert("host", HeaderValue::from_static("t"));
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).expect("a name of ours");
            request.headers_mut().append(name, HeaderValue::from_bytes(value).ok()?);
        }
        let Ok(response) = self.router.clone().oneshot(request).await;
        let status = response.status().as_u16();
        assert!(status < 500 || [501, 503].contains(&status), "{status} for {}", String::from_utf8_lossy(target));
        Some(response)
    }

    /// The same with the whole answer.
    pub async fn ask(&self, method: Method, target: &[u8], headers: &[(&str, &[u8])], body: Body) -> Option<Answer> {
        let (head, body) = self.open(method, target, headers, body).await?.into_parts();
        let body = body.collect().await.expect("an answer does not break off").to_bytes().to_vec();
        let answer = Answer { status: head.status.as_u16(), headers: head.headers, body };
        if answer.status >= 400 && answer.headers.get("content-type").is_some_and(|kind| kind == "application/problem+json") {
            assert_valid("problem.schema.json", &answer.json());
        }
        Some(answer)
    }

    /// Asks for something at an address of ours.
    pub async fn get(&self, target: &str) -> Answer {
        self.ask(Method::GET, target.as_bytes(), &[], Body::empty()).await.expect("an address")
    }

    /// Posts JSON to an address of ours.
    pub async fn post(&self, target: &str, body: impl Into<Body>) -> Answer {
        let headers = [("content-type", &b"application/json"[..])];
        self.ask(Method::POST, target.as_bytes(), &headers, body.into()).await.expect("an address")
    }

    /// All events of a run that an audience sees.
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

    /// Ends it, with everything that it has begun.
    pub async fn stop(self) {
        // It may have failed by itself; then that is told here.
        let _ = self.stop.send(());
        self.running.await.expect("the server does not panic").expect("a store in memory does not fail");
    }
}

/// The three audiences, widest last.
pub const AUDIENCES: [&str; 3] = ["user", "dashboard", "internal"];

/// The secret of those targets that ask who is there.
pub const SECRET: &str = "a secret of the targets, of more than thirty-two bytes";

/// Says who is who, by these keys: one of its own, and a set.
pub fn authority(key: &str, set: &Value) -> Arc<Authenticator> {
    let dir = tempfile::tempdir().expect("a folder");
    let put = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("a file can be written");
        Some(dir.path().join(name))
    };
    let setup =
        AuthConfig { key: put("key", key), jwks: put("set", &set.to_string()), service: "proscenium".into(), ..AuthConfig::default() };
    Authenticator::open(setup, ENVIRONMENT).expect("keys that can be read").expect("there is a key")
}

/// A file of the repository.
pub fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A validator for each document of the contract, by the name of its file in `schema/`.
static VALIDATORS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let of_wire = schema::documents().into_iter().map(|(name, document)| (name.to_owned(), document));
    let of_activities =
        activities::documents().into_iter().map(|(kind, document)| (format!("activities/{kind}.schema.json"), document));
    let documents: Vec<(String, Value)> = of_wire.chain(of_activities).collect();
    let registry = documents.iter().fold(Registry::new(), |registry, (_, document)| {
        registry.add(document["$id"].as_str().expect("an $id"), document.clone()).expect("a document")
    });
    let registry = registry.prepare().expect("references resolve");
    let build = |document: &Value| {
        jsonschema::options().with_registry(&registry).should_validate_formats(true).build(document).expect("a schema")
    };
    documents.iter().map(|(name, document)| (name.clone(), build(document))).collect()
});

/// Fails with every complaint when a value is not what the schema in this file says.
pub fn assert_valid(schema: &str, value: &Value) {
    let complaints: Vec<String> =
        VALIDATORS[schema].iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(complaints.is_empty(), "{schema}: {complaints:#?}\n{value:#}");
}

/// The same for an activity's content. A type that a source names is anything.
pub fn assert_activity(kind: &str, is_custom: bool, content: &Value) {
    let name = format!("activities/{}.schema.json", if is_custom { "custom" } else { kind });
    assert_valid(&name, content);
}

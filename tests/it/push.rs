//! Web Push, through the binary: whose devices hear of what, and when a subscription ends.
//!
//! The push service of these tests checks the signature of each request and decrypts its message, as a browser does.

use crate::auth::SECRET;
use crate::harness::{Client, ClockedProcess, Process, Response, fact, with_timeout};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as Place, State};
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use proscenium::auth::keys::TokenSigner;
use proscenium::notify::subscription::{MUTED_MAX, SUBSCRIPTION_DAYS, SUBSCRIPTIONS_PER_PERSON_MAX};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use web_push_native::{Auth, p256};

const DAY: Duration = Duration::from_hours(24);
/// The secret that the browser of a test shares.
const AUTH: [u8; 16] = [9; 16];

fn secret_key() -> p256::SecretKey {
    p256::SecretKey::from_slice(&[7; 32]).unwrap()
}

/// A message that a push service took.
pub struct Pushed {
    pub device: String,
    headers: HeaderMap,
    /// The decrypted text.
    text: Value,
}

impl Pushed {
    pub fn title(&self) -> &str {
        self.text["notification"]["title"].as_str().unwrap()
    }
}

type Answers = Arc<Mutex<Vec<StatusCode>>>;

/// A push service on this machine.
pub struct PushService {
    pub host: String,
    pushed: mpsc::UnboundedReceiver<Pushed>,
    /// What it answers next; then 201.
    answers: Answers,
}

impl PushService {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (sender, pushed) = mpsc::unbounded_channel();
        let answers = Answers::default();
        let router =
            Router::new().route("/{device}", axum::routing::post(take)).with_state((host.clone(), sender, answers.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { host, pushed, answers }
    }

    /// What the browser of a device says of its subscription.
    pub fn subscription(&self, device: &str) -> Value {
        let point = secret_key().public_key().to_sec1_bytes();
        let keys = json!({ "p256dh": BASE64URL_NOPAD.encode(&point), "auth": BASE64URL_NOPAD.encode(&AUTH) });
        json!({ "endpoint": format!("http://{}/{device}", self.host), "expirationTime": null, "keys": keys })
    }

    pub async fn next(&mut self) -> Pushed {
        with_timeout("a push message", self.pushed.recv()).await.expect("the service runs")
    }

    /// The devices and titles of what it took and the test has not read.
    fn rest(&mut self) -> Vec<(String, String)> {
        let rest = std::iter::from_fn(|| self.pushed.try_recv().ok());
        rest.map(|pushed| (pushed.device.clone(), pushed.title().to_owned())).collect()
    }
}

async fn take(
    State((host, sender, answers)): State<(String, mpsc::UnboundedSender<Pushed>, Answers)>,
    Place(device): Place<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let signed = headers["authorization"].to_str().unwrap().strip_prefix("vapid t=").unwrap();
    let (token, key) = signed.split_once(", k=").unwrap();
    let (claims, signature) = token.rsplit_once('.').unwrap();
    let key = BASE64URL_NOPAD.decode(key.as_bytes()).unwrap();
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(claims.as_bytes(), &signature).expect("the server signed it");
    let claims = BASE64URL_NOPAD.decode(claims.split('.').nth(1).unwrap().as_bytes()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["aud"], format!("http://{host}"));
    assert!(claims["sub"].as_str().unwrap().starts_with("mailto:"));
    assert!(body.len() <= 4096, "{} bytes", body.len());
    let text = web_push_native::decrypt(body.to_vec(), &secret_key(), &Auth::clone_from_slice(&AUTH)).unwrap();
    let answer = answers.lock().pop().unwrap_or(StatusCode::CREATED);
    let _ = sender.send(Pushed { device, headers, text: serde_json::from_slice(&text).unwrap() });
    answer
}

pub fn token(sub: &str, here: &Value) -> String {
    let claims = json!({ "sub": sub, "jti": format!("token-of-{sub}"), "exp": 4_000_000_000u64, "proscenium": here });
    TokenSigner::from_file(SECRET.as_bytes()).unwrap().sign(&claims, None).unwrap()
}

pub fn admin() -> String {
    token("admin", &json!({ "audience": "internal", "sessions": ["*"], "agents": ["*"], "owners": ["*"], "can": ["admin"] }))
}

/// The flags of a server with tokens, that sends messages to this host, too.
pub fn flags(dir: &Path, host: &str) -> Vec<String> {
    let (key, revoked) = (dir.join("key"), dir.join("revoked"));
    std::fs::write(&key, SECRET).unwrap();
    if !revoked.exists() {
        std::fs::write(&revoked, "").unwrap();
    }
    let [key, revoked] = [key, revoked].map(|file| file.to_str().unwrap().to_owned());
    ["--auth-key", &key, "--auth-revoked", &revoked, "--push-host", host].map(str::to_owned).to_vec()
}

fn start(dir: &Path, service: &PushService) -> Process {
    let flags = flags(dir, &service.host);
    Process::start_with(dir, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

async fn subscribe(client: &Client, wanted: &Value) -> Response {
    client.request(Method::PUT, "/v1/push", &[], wanted.to_string()).await
}

async fn subscribed(client: &Client, wanted: &Value) -> Value {
    let answer = subscribe(client, wanted).await;
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    answer.json()
}

async fn subscriptions(client: &Client) -> Vec<Value> {
    client.get("/v1/push").await.ok()["subscriptions"].as_array().unwrap().clone()
}

async fn until_none_is_left(client: &Client) {
    with_timeout("the end of the subscription", async {
        while !subscriptions(client).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

fn started(session: &str, agent: &str) -> Value {
    fact("run.started", json!({ "sessionId": session, "agentId": agent, "phase": "acting", "audience": "user" }))
}

fn asks(action: &str, title: &str) -> Value {
    fact(
        "action.required",
        json!({ "actionId": action, "audience": "user", "payload": { "kind": "tool_approval", "title": title } }),
    )
}

fn resolved(action: &str) -> Value {
    fact("action.resolved", json!({ "actionId": action, "payload": { "outcome": "approved" } }))
}

#[tokio::test]
async fn a_device_hears_that_a_run_waits_by_a_signed_and_encrypted_message_that_opens_the_action() {
    let (dir, mut service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let process = Process::start_with(dir.path(), &["--push-host", &service.host, "--public-url", "http://agents.example/ui"]);
    let client = Client::new(process.at);
    let key = client.get("/v1/push").await.ok()["publicKey"].clone();
    assert_eq!(BASE64URL_NOPAD.decode(key.as_str().unwrap().as_bytes()).unwrap().len(), 65, "a point of P-256");
    let made = subscribe(&client, &service.subscription("phone")).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    assert_eq!(
        json!([made["events"], made["muted"], made["host"]]),
        json!([["run.waiting"], { "sessions": [], "agents": [] }, "127.0.0.1"])
    );
    assert!(!made.to_string().contains("/phone"), "the address is a secret of the device");
    client.append("r", &[started("s", "coder"), asks("a", "Delete the table?")]).await;
    let pushed = service.next().await;
    let header = |name: &str| pushed.headers[name].to_str().unwrap();
    assert_eq!(
        [header("content-encoding"), header("content-type"), header("ttl"), header("urgency")],
        ["aes128gcm", "application/octet-stream", "86400", "high"]
    );
    assert!(header("authorization").ends_with(&format!(", k={}", key.as_str().unwrap())));
    let address = "http://agents.example/ui/#session=s&run=r&action=a&audience=internal";
    let notification =
        json!({ "title": "Delete the table?", "body": "coder waits for you", "navigate": address, "tag": "run r, action a" });
    assert_eq!(json!([pushed.text["web_push"], pushed.text["notification"]]), json!([8030, notification]));
    assert_eq!(json!([pushed.text["type"], pushed.text["data"]["url"]]), json!(["run.waiting", address]));
    let topic = header("topic").to_owned();
    assert!(topic.len() <= 32 && topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')));
    // Only what it subscribed to.
    client.append("r", &[resolved("a"), fact("run.finished", json!({ "phase": "completed" }))]).await;
    let mut wanted = service.subscription("phone");
    wanted["events"] = json!(["run.waiting", "run.failed"]);
    assert_eq!(subscribe(&client, &wanted).await.status, 200);
    client.append("q", &[started("s", "coder"), fact("run.failed", json!({ "payload": { "message": "No disk" } }))]).await;
    let failed = service.next().await;
    assert_eq!(failed.text["notification"]["body"], "coder has failed");
    assert_eq!(failed.headers["urgency"], "normal");
    assert_ne!(failed.headers["topic"].to_str().unwrap(), topic);
    assert!(service.rest().is_empty());
}

#[tokio::test]
async fn a_device_hears_of_what_its_token_covers_and_its_audience_sees() {
    let (dir, mut service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let process = start(dir.path(), &service);
    let all = Client::with_token(process.at, &admin());
    let people = [
        ("ann", json!({ "sessions": ["acme/*"], "can": ["read"] })),
        ("bob", json!({ "sessions": [], "owners": ["widgets"], "can": ["read"] })),
        ("eve", json!({ "sessions": ["acme/*"], "owners": ["widgets"], "can": ["publish"], "agents": ["*"] })),
    ];
    for (sub, here) in &people {
        let client = Client::with_token(process.at, &token(sub, here));
        let made = subscribe(&client, &service.subscription(sub)).await;
        match *sub {
            "eve" => drop(made.problem(403, "forbidden")),
            _ => assert_eq!((made.status, &made.json()["audience"]), (201, &json!("user"))),
        }
        let mut wider = service.subscription(sub);
        wider["audience"] = json!("internal");
        if *sub != "eve" {
            assert_eq!(subscribe(&client, &wider).await.problem(422, "bad_member")["member"], "audience");
        }
    }
    let hidden = fact("action.required", json!({ "actionId": "h", "audience": "internal", "payload": { "title": "Hidden?" } }));
    all.append("other", &[started("other/1", "coder"), asks("o", "Of others?")]).await;
    all.post_lines("/v1/runs/w/facts?owner=widgets", crate::harness::to_ndjson(&[started("w1", "coder"), asks("w", "Widgets?")]))
        .await
        .ok();
    all.append("r", &[started("acme/1", "coder"), hidden, asks("a", "Acme?")]).await;
    let mut told = [service.next().await, service.next().await].map(|pushed| (pushed.device.clone(), pushed.title().to_owned()));
    told.sort();
    assert_eq!(told, [("ann", "Acme?"), ("bob", "Widgets?")].map(|(device, title)| (device.to_owned(), title.to_owned())));
    all.append("r", &[resolved("a"), asks("z", "The last?")]).await;
    let last = service.next().await;
    assert_eq!((&*last.device, last.title()), ("ann", "The last?"), "and nothing between");
    // Each person sees its own devices only, and ends only those.
    let [ann, bob] = [0, 1].map(|n| Client::with_token(process.at, &token(people[n].0, &people[n].1)));
    assert_eq!((subscriptions(&ann).await.len(), subscriptions(&bob).await.len()), (1, 1));
    let of_ann = json!({ "endpoint": service.subscription("ann")["endpoint"] });
    bob.request(Method::DELETE, "/v1/push", &[], of_ann.to_string()).await.problem(404, "no_such_subscription");
    assert_eq!(ann.request(Method::DELETE, "/v1/push", &[], of_ann.to_string()).await.status, 204);
    ann.request(Method::DELETE, "/v1/push", &[], of_ann.to_string()).await.problem(404, "no_such_subscription");
    assert!(subscriptions(&ann).await.is_empty());
}

#[tokio::test]
async fn a_subscription_ends_when_its_token_is_revoked_and_when_its_service_says_so() {
    let (dir, mut service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let process = start(dir.path(), &service);
    let all = Client::with_token(process.at, &admin());
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let ann = Client::with_token(process.at, &token("ann", &here));
    for (round, answer) in [StatusCode::GONE, StatusCode::NOT_FOUND].into_iter().enumerate() {
        subscribed(&ann, &service.subscription("phone")).await;
        service.answers.lock().push(answer);
        all.append(&format!("r{round}"), &[started("s", "coder"), asks("a", "Go?")]).await;
        service.next().await;
        until_none_is_left(&ann).await;
    }
    let bob = Client::with_token(process.at, &token("bob", &here));
    for (client, device) in [(&ann, "phone"), (&bob, "tablet")] {
        assert_eq!(subscribe(client, &service.subscription(device)).await.status, 201);
    }
    std::fs::write(dir.path().join("revoked"), "token-of-ann\n").unwrap();
    with_timeout("the revocation", async { while ann.get("/v1/me").await.status != 401 {} }).await;
    all.append("q", &[started("s", "coder"), asks("b", "Go on?")]).await;
    let told = service.next().await;
    assert_eq!((&*told.device, told.title()), ("tablet", "Go on?"));
    // The same person with another token: the old subscription is gone.
    let claims = json!({ "sub": "ann", "exp": 4_000_000_000u64, "proscenium": here });
    let again = TokenSigner::from_file(SECRET.as_bytes()).unwrap().sign(&claims, None).unwrap();
    until_none_is_left(&Client::with_token(process.at, &again)).await;
    assert!(service.rest().is_empty());
}

#[tokio::test]
async fn a_subscription_outlives_its_token_and_restarts_and_ends_after_thirty_days_without_renewal() {
    let (dir, mut service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let flags = ["--push-host", &service.host, "--stale-after", "31536000", "--settle-after", "31536000"];
    let process = ClockedProcess::start(dir.path(), &flags);
    let first = subscribed(&process.client, &service.subscription("phone")).await;
    subscribed(&process.client, &service.subscription("tablet")).await;
    let key = process.client.get("/v1/push").await.ok()["publicKey"].clone();
    process.advance(20 * DAY).await;
    let renewed = subscribed(&process.client, &service.subscription("phone")).await;
    assert_eq!(renewed["createdAt"], first["createdAt"]);
    assert!(renewed["until"].as_str().unwrap() > first["until"].as_str().unwrap());
    assert_eq!(subscribed(&process.client, &service.subscription("phone")).await, renewed, "renewed once a day");
    process.server.terminate();
    drop(process);
    let process = ClockedProcess::start(dir.path(), &flags);
    assert_eq!(process.client.get("/v1/push").await.ok()["publicKey"], key);
    // A restart takes the test's clock back to the machine's.
    process.advance(u32::try_from(SUBSCRIPTION_DAYS).unwrap() * DAY).await;
    process.client.append("r", &[started("s", "coder"), asks("a", "Go?")]).await;
    assert_eq!(service.next().await.device, "phone");
    assert_eq!(subscriptions(&process.client).await.len(), 1, "the tablet was not renewed");
    assert!(service.rest().is_empty());
}

#[tokio::test]
async fn muted_sessions_and_agents_are_silent_until_they_are_not() {
    let (dir, mut service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let process = Process::start_with(dir.path(), &["--push-host", &service.host]);
    let client = Client::new(process.at);
    let mut wanted = service.subscription("phone");
    wanted["muted"] = json!({ "sessions": ["loud"], "agents": ["chatty"] });
    subscribed(&client, &wanted).await;
    let kept = subscribed(&client, &service.subscription("phone")).await;
    assert_eq!(kept["muted"], wanted["muted"], "a renewal keeps it");
    client.append("r1", &[started("loud", "coder"), asks("a1", "Loud?")]).await;
    client.append("r2", &[started("calm", "chatty"), asks("a2", "Chatty?")]).await;
    client.append("r3", &[started("calm", "coder"), asks("a3", "Calm?")]).await;
    assert_eq!(service.next().await.title(), "Calm?");
    wanted["muted"] = json!({});
    subscribed(&client, &wanted).await;
    client.append("r4", &[started("loud", "chatty"), asks("a4", "Again?")]).await;
    assert_eq!(service.next().await.title(), "Again?");
    assert!(service.rest().is_empty());
}

#[tokio::test]
async fn a_message_that_failed_is_repeated_unless_the_action_was_decided_meanwhile() {
    let (dir, mut service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let process = ClockedProcess::start(dir.path(), &["--push-host", &service.host]);
    subscribed(&process.client, &service.subscription("phone")).await;
    service.answers.lock().extend([StatusCode::BAD_GATEWAY; 2]);
    process.client.append("r", &[started("s", "coder"), asks("a", "First?")]).await;
    assert_eq!(service.next().await.title(), "First?");
    process.client.append("q", &[started("s", "coder"), asks("b", "Second?")]).await;
    assert_eq!(service.next().await.title(), "Second?");
    process.client.append("r", &[resolved("a")]).await;
    let mut told = Vec::new();
    let again = async || {
        told.extend(service.rest());
        !told.is_empty()
    };
    process.advance_until("the repetition", Duration::from_secs(1), again).await;
    assert_eq!(told, [("phone".to_owned(), "Second?".to_owned())]);
}

#[tokio::test]
async fn rules_name_devices_as_receivers_and_a_reminder_replaces_the_first_message() {
    let (dir, mut service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let file = dir.path().join("proscenium.toml");
    let rule = "[[waits]]\nkind = \"tool_approval\"\nafter = \"10m\"\nthen = \"escalate\"\nto = [\"push\"]\n";
    std::fs::write(&file, rule).unwrap();
    let process = ClockedProcess::start(dir.path(), &["--push-host", &service.host, "--config", file.to_str().unwrap()]);
    let mut wanted = service.subscription("phone");
    wanted["events"] = json!([]);
    subscribed(&process.client, &wanted).await;
    subscribed(&process.client, &service.subscription("tablet")).await;
    process.client.append("r", &[started("s", "coder"), asks("a", "Go?")]).await;
    let first = service.next().await;
    assert_eq!(first.device, "tablet", "the phone wants nothing by itself");
    let mut told = Vec::new();
    let twice = async || {
        told.extend(std::iter::from_fn(|| service.pushed.try_recv().ok()));
        told.len() >= 2
    };
    process.advance_until("the escalation", Duration::from_secs(10), twice).await;
    for pushed in &told {
        assert_eq!(pushed.text["notification"]["body"], "coder still waits for you");
        assert_eq!(pushed.headers["topic"], first.headers["topic"]);
    }
}

#[tokio::test]
async fn long_ids_leave_a_message_that_fits_and_still_opens_the_page() {
    let (dir, mut service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let process = Process::start_with(dir.path(), &["--push-host", &service.host]);
    let client = Client::new(process.at);
    subscribed(&client, &service.subscription("phone")).await;
    let long = |letter: char| letter.to_string().repeat(120);
    let title = "€".repeat(5000);
    client.append(&long('\u{e9}'), &[started(&long('\u{df}'), &long('\u{f8}')), asks(&long('\u{e5}'), &title)]).await;
    let pushed = service.next().await;
    assert_eq!(pushed.title().chars().count(), 200);
    assert!(pushed.text["notification"]["navigate"].as_str().unwrap().starts_with("/#"));
}

#[tokio::test]
async fn a_person_has_sixteen_devices_and_the_next_one_of_a_browser_takes_its_subscription_over() {
    let (dir, service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let process = start(dir.path(), &service);
    let here = json!({ "sessions": ["s"], "can": ["read"] });
    let [ann, bob] = ["ann", "bob"].map(|sub| Client::with_token(process.at, &token(sub, &here)));
    for n in 0..SUBSCRIPTIONS_PER_PERSON_MAX {
        let mut wanted = service.subscription(&format!("device-{n}"));
        wanted["muted"] = json!({ "agents": ["of-ann"] });
        assert_eq!(subscribe(&ann, &wanted).await.status, 201);
    }
    let refused = subscribe(&ann, &service.subscription("one-more")).await.problem(429, "too_many_devices");
    assert_eq!(refused["limit"], SUBSCRIPTIONS_PER_PERSON_MAX);
    let taken = subscribe(&bob, &service.subscription("device-0")).await;
    assert_eq!((taken.status, &taken.json()["muted"]["agents"]), (201, &json!([])));
    assert_eq!(subscriptions(&ann).await.len(), SUBSCRIPTIONS_PER_PERSON_MAX - 1);
    assert_eq!(subscribe(&ann, &service.subscription("one-more")).await.status, 201);
}

#[tokio::test]
async fn a_subscription_that_cannot_be_used_is_refused_with_its_member_and_why() {
    let (dir, service) = (tempfile::tempdir().unwrap(), PushService::start().await);
    let process = Process::start_with(dir.path(), &["--push-host", &service.host]);
    let client = Client::new(process.at);
    let many: Vec<_> = (0..=MUTED_MAX).map(|n| format!("s{n}")).collect();
    let cases = [
        ("/endpoint", json!("http://169.254.169.254/latest"), "endpoint", "no known push service"),
        ("/endpoint", json!("https://127.0.0.1/x"), "endpoint", "no known push service"),
        ("/endpoint", json!("/x"), "endpoint", "not an absolute URL"),
        ("/endpoint", json!(format!("https://fcm.googleapis.com/{}", "x".repeat(2048))), "endpoint", "the limit is 2048"),
        ("/keys/p256dh", json!("AAAA"), "keys.p256dh", "point of P-256"),
        ("/keys/auth", json!("AAAA"), "keys.auth", "16 bytes"),
        ("/events", json!(["log.head"]), "events", "not sent to devices"),
        ("/events", json!(["run.sleeping"]), "body", "run.sleeping"),
        ("/muted", json!({ "sessions": many }), "muted.sessions", "the limit is 256"),
        ("/muted", json!({ "people": [] }), "body", "people"),
        ("/colour", json!("red"), "body", "colour"),
    ];
    for (pointer, value, member, why) in cases {
        let mut wanted = service.subscription("phone");
        wanted["events"] = json!([]);
        wanted["muted"] = json!({});
        match wanted.pointer_mut(pointer) {
            Some(found) => *found = value,
            None => wanted[&pointer[1..]] = value,
        }
        let refused = subscribe(&client, &wanted).await.problem(422, "bad_member");
        assert_eq!(refused["member"], member, "{pointer}: {refused}");
        assert!(refused["detail"].as_str().unwrap().contains(why), "{pointer}: {refused}");
    }
    client.request(Method::PUT, "/v1/push", &[], json!([]).to_string()).await.problem(400, "not_json");
    assert_eq!(
        client.request(Method::DELETE, "/v1/push", &[], json!({}).to_string()).await.problem(422, "bad_member")["member"],
        "endpoint"
    );
    assert!(subscriptions(&client).await.is_empty());
}

//! Keys of an identity provider, against a provider of the test's own.

use super::*;
use crate::auth::provider::UNKNOWN_KEY_INTERVAL;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A provider that answers each path with a fixed answer.
struct FakeProvider {
    url: String,
    answers: Arc<Mutex<HashMap<String, String>>>,
    requests: Arc<AtomicUsize>,
}

impl FakeProvider {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let this = Self { url, answers: Arc::default(), requests: Arc::default() };
        let (answers, requests) = (this.answers.clone(), this.requests.clone());
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(socket.read_u8().await.unwrap());
                }
                let path = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
                requests.fetch_add(1, Ordering::Relaxed);
                // A path without an answer is one that never answers.
                let answer = answers.lock().get(&path).cloned();
                match answer {
                    Some(answer) => drop(socket.write_all(answer.as_bytes()).await),
                    None => drop(tokio::spawn(async move { drop(socket.read_u8().await) })),
                }
            }
        });
        this
    }

    fn answer(&self, path: &str, status: &str, head: &str, body: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{head}content-length: {}\r\n\r\n{body}", body.len());
        self.answers.lock().insert(path.to_owned(), answer);
    }

    fn serve_keys(&self, keys: &[Value]) {
        self.answer("/keys", "200 OK", "", &json!({ "keys": keys }).to_string());
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    fn config(&self) -> AuthConfig {
        let key_set = Some(format!("{}/keys", self.url).parse().unwrap());
        AuthConfig { provider: Some(ProviderConfig { key_set, ..ProviderConfig::default() }), ..AuthConfig::default() }
    }

    fn discovering(&self) -> AuthConfig {
        let issuer = Some(self.url.parse().unwrap());
        let provider = Some(ProviderConfig { issuer, ..ProviderConfig::default() });
        AuthConfig { provider, issuer: Some(self.url.as_str().into()), ..AuthConfig::default() }
    }
}

fn ed_jwk(kid: &str) -> Value {
    let digits: String = ED_PUBLIC.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = data_encoding::BASE64.decode(digits.as_bytes()).unwrap();
    json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": base64(&der[der.len() - 32..]) })
}

async fn rejected(authenticator: &Arc<Authenticator>, token: &str) -> TokenError {
    authenticator.authenticate(token).await.expect_err("the token must be rejected")
}

/// Sets the clock of the timers forward.
async fn pass(time: std::time::Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn an_unknown_kid_fetches_the_keys_again_at_most_once_a_minute() {
    let (files, provider) = (Files::new(), FakeProvider::start().await);
    provider.serve_keys(&[ed_jwk("one")]);
    let authenticator = files.with(provider.config()).unwrap();
    authenticator.fetch_keys().await;
    let token = |key: &str, kid: &str| sign(key, &claims(json!({ "jti": kid })), Some(kid));
    let old = authenticator.authenticate(&token(ED_PRIVATE, "one")).await.unwrap();
    assert_eq!(provider.requests(), 1, "known keys are not fetched again");

    // The provider rotates: it signs with a new key, and still serves the old one.
    provider.serve_keys(&[ed_jwk("one"), p256_jwk("two")]);
    assert!(authenticator.authenticate(&token(P256_PRIVATE, "two")).await.is_ok(), "the token waits for the new key");
    assert_eq!((provider.requests(), old.watch().end_reason()), (2, None));

    for _ in 0..3 {
        assert_eq!(rejected(&authenticator, &token(P256_PRIVATE, "three")).await, TokenError::UnknownKey);
    }
    assert_eq!(provider.requests(), 2, "not within a minute");
    pass(UNKNOWN_KEY_INTERVAL).await;
    assert_eq!(rejected(&authenticator, &token(P256_PRIVATE, "three")).await, TokenError::UnknownKey);
    assert_eq!(provider.requests(), 3);
    let (bad, nameless) = (token(RSA_PRIVATE, "one"), sign(RSA_PRIVATE, &claims(json!({})), None));
    pass(UNKNOWN_KEY_INTERVAL).await;
    for token in [bad, nameless] {
        assert_eq!(rejected(&authenticator, &token).await, TokenError::UnknownKey);
    }
    assert_eq!(provider.requests(), 3, "only an unknown kid may be of a new key");

    // Once the old key is gone, what is open under it ends.
    provider.serve_keys(&[p256_jwk("two")]);
    let mut ends = old.watch();
    assert_eq!(rejected(&authenticator, &token(ED_PRIVATE, "four")).await, TokenError::UnknownKey);
    assert_eq!(ends.ended().await, EndReason::KeyRemoved);
    assert!(authenticator.authenticate(&token(P256_PRIVATE, "two")).await.is_ok());
}

#[tokio::test]
async fn requests_with_an_unknown_kid_wait_for_one_fetch_together() {
    let (files, provider) = (Files::new(), FakeProvider::start().await);
    provider.serve_keys(&[ed_jwk("one")]);
    let authenticator = files.with(provider.config()).unwrap();
    authenticator.fetch_keys().await;
    provider.serve_keys(&[p256_jwk("two")]);
    let tokens: Vec<String> =
        (0..20).map(|n| sign(P256_PRIVATE, &claims(json!({ "jti": n.to_string() })), Some("two"))).collect();
    let all = futures_util::future::join_all(tokens.iter().map(|token| authenticator.authenticate(token))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(provider.requests(), 2);
}

#[tokio::test]
async fn a_provider_that_is_down_at_the_start_gives_503_until_it_answers_and_later_changes_nothing() {
    let (files, provider) = (Files::new(), FakeProvider::start().await);
    provider.answer("/keys", "502 Bad Gateway", "", "");
    let with_own_key = AuthConfig { key: Some(files.write("key", SECRET)), ..provider.config() };
    let authenticator = files.with(with_own_key).unwrap();
    authenticator.fetch_keys().await;
    let token = sign(P256_PRIVATE, &claims(json!({})), Some("two"));
    assert_eq!(rejected(&authenticator, &token).await, TokenError::NoKeys);
    assert_eq!(rejected(&authenticator, "a.b.c").await, TokenError::Malformed);
    assert!(authenticator.authenticate(&sign(SECRET, &claims(json!({})), None)).await.is_ok(), "its own key works");
    provider.serve_keys(&[p256_jwk("two")]);
    authenticator.fetch_keys().await;
    let grant = authenticator.authenticate(&token).await.unwrap();
    provider.answer("/keys", "500 Internal Server Error", "", "");
    authenticator.fetch_keys().await;
    assert_eq!(grant.watch().end_reason(), None);
    assert!(authenticator.authenticate(&token).await.is_ok(), "the keys stay in force");
}

#[tokio::test]
async fn answers_of_a_provider_are_bounded_and_checked() {
    let (files, provider) = (Files::new(), FakeProvider::start().await);
    let token = sign(P256_PRIVATE, &claims(json!({})), Some("two"));
    let good = json!({ "keys": [p256_jwk("two")] }).to_string();
    let elsewhere = |to: &str| format!("location: {to}\r\n");
    let long = " ".repeat(usize::try_from(KEYS_BYTES_MAX).unwrap() + 1) + &good;
    let secret = json!({ "keys": [oct("two", &[b'1'; 32])] }).to_string();
    for (status, head, body, is_used) in [
        ("200 OK", String::new(), &*good, true),
        ("200 OK", String::new(), &*long, false),
        ("200 OK", String::new(), "<html>", false),
        ("200 OK", String::new(), "{}", false),
        ("404 Not Found", String::new(), &*good, false),
        ("302 Found", elsewhere("/moved"), "", true),
        ("302 Found", elsewhere("/loop"), "", false),
        ("302 Found", elsewhere("ftp://127.0.0.1/keys"), "", false),
        ("302 Found", elsewhere("http://login.example/keys"), "", false),
    ] {
        provider.answer("/keys", status, &head, body);
        provider.answer("/moved", "200 OK", "", &good);
        provider.answer("/loop", "302 Found", &elsewhere("/loop"), "");
        let authenticator = files.with(provider.config()).unwrap();
        authenticator.fetch_keys().await;
        let verified = authenticator.verify(&token);
        assert_eq!(verified.is_ok(), is_used, "{status} {head} {}", body.len());
    }
    // Anyone can read a secret at an address, and sign with it.
    provider.answer("/keys", "200 OK", "", &secret);
    let authenticator = files.with(provider.config()).unwrap();
    authenticator.fetch_keys().await;
    let forged = sign([b'1'; 32], &claims(json!({})), Some("two"));
    assert_eq!(rejected(&authenticator, &forged).await, TokenError::UnknownKey);
}

#[tokio::test]
async fn a_silent_provider_delays_a_request_by_a_limited_time() {
    let (files, provider) = (Files::new(), FakeProvider::start().await);
    let authenticator = files.with(provider.config()).unwrap();
    let token = sign(P256_PRIVATE, &claims(json!({})), Some("two"));
    let waiting = tokio::spawn(async move { rejected(&authenticator, &token).await });
    while provider.requests() == 0 {
        tokio::task::yield_now().await;
    }
    // From here on time passes whenever nothing else happens.
    tokio::time::pause();
    assert_eq!(waiting.await.unwrap(), TokenError::NoKeys);
}

#[tokio::test]
async fn an_issuer_is_discovered_and_must_be_the_one_that_answers() {
    const PATH: &str = "/.well-known/openid-configuration";
    let (files, provider) = (Files::new(), FakeProvider::start().await);
    provider.serve_keys(&[p256_jwk("two")]);
    let document = |issuer: &str, keys: &str| json!({ "issuer": issuer, "jwks_uri": keys, "token_endpoint": "t" }).to_string();
    let token = sign(P256_PRIVATE, &claims(json!({ "iss": provider.url })), Some("two"));
    let keys = format!("{}/keys", provider.url);
    for (document, is_used) in [
        (document(&provider.url, &keys), true),
        (document(&format!("{}/", provider.url), &keys), false),
        (document("https://login.example", &keys), false),
        (document(&provider.url, "http://login.example/keys"), false),
        (document(&provider.url, "keys"), false),
        (json!({ "keys": [] }).to_string(), false),
    ] {
        provider.answer(PATH, "200 OK", "", &document);
        let authenticator = files.with(provider.discovering()).unwrap();
        authenticator.fetch_keys().await;
        assert_eq!(authenticator.verify(&token).is_ok(), is_used, "{document}");
        let of_others = sign(P256_PRIVATE, &claims(json!({ "iss": "other" })), Some("two"));
        assert_eq!(refused(&authenticator, &of_others) == TokenError::WrongIssuer, is_used);
        let endpoint = authenticator.discovered().and_then(|found| found.token_endpoint);
        assert!(!is_used || endpoint.as_deref() == Some("t"));
    }
}

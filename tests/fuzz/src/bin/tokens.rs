//! Fuzzes the `Authorization` header, against a server with a secret, an Ed25519 key and an RSA key.
//!
//! ```text
//! input := how rest
//! how   := 'a': rest is the header's value
//!          'b': rest is the claims of a token, signed with the secret
//!          'c': rest is header "\n" claims, signed with public data or unsigned, by the first byte of the header
//! ```
//! `SIGNED` is a placeholder for a valid token.
//!
//! Properties: nothing panics. The server accepts only a token that one of its keys has signed, with the algorithm of
//! that key, within its validity. It grants only the rights in the claims. The target verifies this independently, with
//! `ring` and plain JSON.

#![no_main]

use axum::body::Body;
use http::Method;
use libfuzzer_sys::fuzz_target;
use proscenium::auth::keys::TokenSigner;
use proscenium::auth::rights::{CLOCK_SKEW, Verb};
use proscenium::auth::{Authenticator, Grant};
use proscenium::model::{Audience, RunId, SessionId};
use proscenium::serve::Limits;
use proscenium_fuzz::{
    CLOCK_START_MS, ENVIRONMENT, EXPIRY_SECS, SECRET, TestServer, authenticator, block_on, read_repository_file, split,
};
use ring::hmac;
use ring::signature::{ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// A public key, as PEM and as the bytes that verify signatures.
struct PublicKey {
    pem: String,
    /// An Ed25519 point, or an RSA key in DER.
    raw: Vec<u8>,
}

impl PublicKey {
    /// Reads a PEM file; `head` is the number of DER bytes before the key.
    fn read(file: &str, head: usize) -> Self {
        let pem = read_repository_file(file);
        let digits: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = from_base64(&digits.replace('+', "-").replace('/', "_")).expect("base64");
        Self { pem, raw: der[head..].to_vec() }
    }
}

struct Keys {
    ed: PublicKey,
    rsa: PublicKey,
    authenticator: Arc<Authenticator>,
    valid_token: String,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let ed = PublicKey::read("tests/keys/ed25519.public.pem", 12);
    let rsa = PublicKey::read("tests/keys/rsa.public.pem", 24);
    let secret = json!({ "kty": "oct", "kid": "secret", "k": base64(SECRET.as_bytes()) });
    let point = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": base64(&ed.raw) });
    let authenticator = authenticator(&rsa.pem, &json!({ "keys": [secret, point] }));
    let rights = json!({ "audience": "dashboard", "sessions": ["s"], "can": ["read"] });
    let claims = json!({ "sub": "fuzzer", "exp": EXPIRY_SECS, "proscenium": rights });
    let valid_token = TokenSigner::from_file(SECRET.as_bytes()).expect("a key").sign(&claims, None).expect("it signs");
    Keys { ed, rsa, authenticator, valid_token }
});

/// All inputs share the server, because no request writes to it.
static SERVER: LazyLock<TestServer> =
    LazyLock::new(|| block_on(TestServer::start(Limits::default(), Some(KEYS.authenticator.clone()))));

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let header = match how.wrapping_sub(b'a') % 3 {
        0 => String::from_utf8_lossy(rest).replace("SIGNED", &KEYS.valid_token).into_bytes(),
        1 => {
            let message = format!("{}.{}", base64(br#"{"alg":"HS256","typ":"JWT"}"#), base64(rest));
            signed(&message, SECRET.as_bytes())
        }
        _ => {
            let (header, claims) = split(rest, b'\n');
            let message = format!("{}.{}", base64(header), base64(claims));
            match header.first().copied().unwrap_or_default() % 6 {
                0 => signed(&message, KEYS.rsa.pem.as_bytes()),
                1 => signed(&message, &KEYS.rsa.raw),
                2 => signed(&message, KEYS.ed.pem.as_bytes()),
                3 => signed(&message, &KEYS.ed.raw),
                4 => signed(&message, b""),
                _ => format!("Bearer {message}.").into_bytes(),
            }
        }
    };
    LazyLock::force(&SERVER);
    block_on(assert_access(&header));
});

fn signed(message: &str, secret: &[u8]) -> Vec<u8> {
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("Bearer {message}.{}", base64(signature.as_ref())).into_bytes()
}

async fn assert_access(header: &[u8]) {
    let token = bearer_token(header);
    let verified = token.and_then(verified_claims);
    // The request, the verb that it requires, its session or agent, and its audience.
    let requests = [
        (Method::GET, "/v1/sessions/s?audience=dashboard", Verb::Read, Resource::Session("s"), Audience::Dashboard),
        (Method::GET, "/v1/sessions/t", Verb::Read, Resource::Session("t"), Audience::User),
        (Method::GET, "/v1/runs?audience=internal", Verb::Read, Resource::Nothing, Audience::Internal),
        (Method::POST, "/v1/agents/a/controls/claim", Verb::Publish, Resource::Agent("a"), Audience::User),
        (Method::POST, "/v1/sessions/s/controls", Verb::Control, Resource::Session("s"), Audience::User),
        (Method::GET, "/metrics", Verb::Admin, Resource::Nothing, Audience::User),
    ];
    for (method, target, verb, resource, audience) in requests {
        let credentials = [("authorization", header)];
        let Some(answer) = SERVER.request(method, target.as_bytes(), &credentials, Body::empty()).await else { return };
        let is_admitted = ![401, 403].contains(&answer.status);
        let is_allowed = verified.as_ref().is_some_and(|claims| allows(claims, verb, &resource, audience));
        assert!(!is_admitted || is_allowed, "{} at {target} with {}", answer.status, String::from_utf8_lossy(header));
    }
    // Verify the token without HTTP, and compare all granted rights.
    if let Some(token) = token
        && let Ok(grant) = KEYS.authenticator.verify(token)
    {
        assert_grant(&grant, verified.as_ref().expect("one of the keys has signed the token"));
    }
}

/// The resource of a request.
enum Resource {
    Nothing,
    Session(&'static str),
    Agent(&'static str),
}

/// Returns the bearer token of a header.
fn bearer_token(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the claims of a token that one of the keys has signed and that is valid now.
fn verified_claims(token: &str) -> Option<Value> {
    let (message, signature) = token.rsplit_once('.')?;
    let (head, claims) = message.split_once('.')?;
    let signature = from_base64(signature)?;
    let head = json(head)?;
    let is_signed = match head["alg"].as_str()? {
        "HS256" => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
            hmac::verify(&key, message.as_bytes(), &signature).is_ok()
        }
        "EdDSA" => UnparsedPublicKey::new(&ED25519, &KEYS.ed.raw).verify(message.as_bytes(), &signature).is_ok(),
        "RS256" => {
            let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &KEYS.rsa.raw);
            key.verify(message.as_bytes(), &signature).is_ok()
        }
        _ => false,
    };
    let claims = json(claims)?;
    // The server may cache a valid token, and the clock advances meanwhile.
    let latest = (ENVIRONMENT.now)().as_second() as f64 + CLOCK_SKEW as f64 + 1.0;
    let is_current = claims["exp"].as_f64()? > CLOCK_START_MS as f64 / 1000.0 && claims["nbf"].as_f64().unwrap_or(0.0) < latest;
    (is_signed && is_current && claims["sub"].is_string()).then_some(claims)
}

/// Parses a part of a token. Members that the server does not read may contain invalid UTF-8.
fn json(part: &str) -> Option<Value> {
    serde_json::from_str(&String::from_utf8_lossy(&from_base64(part)?)).ok()
}

fn lists(rights: &Value, member: &str, name: &str) -> bool {
    rights[member].as_array().is_some_and(|names| names.iter().any(|known| known == "*" || known == name))
}

/// Returns the audience in the rights; without a valid one, the narrowest.
fn audience_of(rights: &Value) -> Audience {
    rights["audience"].as_str().and_then(Audience::parse).unwrap_or(Audience::User)
}

/// Returns whether the claims permit a request.
fn allows(claims: &Value, verb: Verb, resource: &Resource, audience: Audience) -> bool {
    let rights = &claims["proscenium"];
    let can = rights["can"].as_array().is_some_and(|can| can.iter().any(|name| *name == verb.as_str() || name == "admin"));
    let has = match resource {
        Resource::Nothing => true,
        Resource::Session(session) => lists(rights, "sessions", session),
        Resource::Agent(agent) => lists(rights, "agents", agent),
    };
    can && has && audience <= audience_of(rights)
}

fn assert_grant(grant: &Grant, claims: &Value) {
    let (granted, rights) = (&grant.rights, &claims["proscenium"]);
    assert_eq!(Some(&*grant.subject), claims["sub"].as_str());
    assert!(granted.audience <= audience_of(rights));
    for verb in Verb::ALL {
        assert!(!granted.can(verb) || allows(claims, verb, &Resource::Nothing, Audience::User), "{claims}");
    }
    for name in ["r", "s", "t", "*"] {
        let (run, session) = (RunId::new(name).expect("an id"), SessionId::new(name).expect("an id"));
        assert!(!granted.has_session(&session) || lists(rights, "sessions", name), "{claims}");
        assert!(!granted.has_agent(name) || lists(rights, "agents", name), "{claims}");
        assert!(!granted.has_run(&run, None) || lists(rights, "runs", name) || lists(rights, "sessions", "*"), "{claims}");
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes base64url without padding.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]));
        }
    }
    text
}

/// Decodes base64url; ignores padding and unused bits.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = DIGITS.iter().position(|known| *known == digit)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 255) as u8);
        }
    }
    Some(bytes)
}

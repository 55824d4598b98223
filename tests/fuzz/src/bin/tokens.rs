//! Tokens: whatever stands in an `Authorization` header, before a server with a secret, an Ed25519 and an RSA key.
//!
//! ```text
//! input := how rest
//! how   := 'a': rest is the header's value
//!          'b': rest is a token's content, signed with the secret
//!          'c': rest is header "\n" content; signed with what others know, or with nothing, as the header's first byte says
//! ```
//! `SIGNED` stands for a good token. Nothing panics. Whoever is let in has brought something that one of the keys has signed, by the
//! algorithm of that key, in time; and gets nothing that does not stand in it. This is found out here by other code: `ring` and
//! plain JSON.

#![no_main]

use axum::body::Body;
use http::Method;
use libfuzzer_sys::fuzz_target;
use proscenium::auth::keys::TokenSigner;
use proscenium::auth::rights::{CLOCK_SKEW, Verb};
use proscenium::auth::{Authenticator, Grant};
use proscenium::model::{Audience, RunId, SessionId};
use proscenium::serve::Limits;
use proscenium_fuzz::{BEGINNING, LATER, SECRET, Served, ENVIRONMENT, authority, repository, split, wait};
use ring::hmac;
use ring::signature::{ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// A key that everybody knows, as the bytes that its signatures are checked with.
struct Public {
    pem: String,
    /// An Ed25519 point, or an RSA key in DER.
    raw: Vec<u8>,
}

impl Public {
    /// Out of PEM; what stands before the key itself is so long.
    fn of(file: &str, head: usize) -> Self {
        let pem = repository(file);
        let digits: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = from_base64(&digits.replace('+', "-").replace('/', "_")).expect("base64");
        Self { pem, raw: der[head..].to_vec() }
    }
}

struct Keys {
    ed: Public,
    rsa: Public,
    authority: Arc<Authenticator>,
    good: String,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let ed = Public::of("tests/keys/ed25519.public.pem", 12);
    let rsa = Public::of("tests/keys/rsa.public.pem", 24);
    let secret = json!({ "kty": "oct", "kid": "secret", "k": base64(SECRET.as_bytes()) });
    let point = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": base64(&ed.raw) });
    let authority = authority(&rsa.pem, &json!({ "keys": [secret, point] }));
    let here = json!({ "audience": "dashboard", "sessions": ["s"], "can": ["read"] });
    let claims = json!({ "sub": "somebody", "exp": LATER, "proscenium": here });
    let good = TokenSigner::from_file(SECRET.as_bytes()).expect("a key").sign(&claims, None).expect("it signs");
    Keys { ed, rsa, authority, good }
});

/// Nobody writes here: all inputs share it.
static SERVED: LazyLock<Served> = LazyLock::new(|| wait(Served::start(Limits::default(), Some(KEYS.authority.clone()))));

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let header = match how.wrapping_sub(b'a') % 3 {
        0 => String::from_utf8_lossy(rest).replace("SIGNED", &KEYS.good).into_bytes(),
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
    LazyLock::force(&SERVED);
    wait(come(&header));
});

fn signed(message: &str, secret: &[u8]) -> Vec<u8> {
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("Bearer {message}.{}", base64(signature.as_ref())).into_bytes()
}

async fn come(header: &[u8]) {
    let token = bearer_of(header);
    let brought = token.and_then(vouched);
    // What is asked, the verb that it takes, and the session or run that it is about.
    let asked = [
        (Method::GET, "/v1/sessions/s?audience=dashboard", Verb::Read, About::Session("s"), Audience::Dashboard),
        (Method::GET, "/v1/sessions/t", Verb::Read, About::Session("t"), Audience::User),
        (Method::GET, "/v1/runs?audience=internal", Verb::Read, About::Nothing, Audience::Internal),
        (Method::POST, "/v1/agents/a/controls/claim", Verb::Publish, About::Agent("a"), Audience::User),
        (Method::POST, "/v1/sessions/s/controls", Verb::Control, About::Session("s"), Audience::User),
        (Method::GET, "/metrics", Verb::Admin, About::Nothing, Audience::User),
    ];
    for (method, target, verb, about, audience) in asked {
        let credentials = [("authorization", header)];
        let Some(answer) = SERVED.ask(method, target.as_bytes(), &credentials, Body::empty()).await else { return };
        let is_in = ![401, 403].contains(&answer.status);
        let has = brought.as_ref().is_some_and(|claims| allows(claims, verb, &about, audience));
        assert!(!is_in || has, "{} at {target} with {}", answer.status, String::from_utf8_lossy(header));
    }
    // The same without HTTP, and all that is granted.
    if let Some(token) = token
        && let Ok(grant) = KEYS.authority.verify(token)
    {
        grants_what_stands_there(&grant, brought.as_ref().expect("one of the keys has signed it"));
    }
}

/// What an address is about.
enum About {
    Nothing,
    Session(&'static str),
    Agent(&'static str),
}

/// The token that a header brings.
fn bearer_of(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The content of a token, if one of the keys has signed it, and it is in time.
fn vouched(token: &str) -> Option<Value> {
    let (message, signature) = token.rsplit_once('.')?;
    let (head, claims) = message.split_once('.')?;
    let signature = from_base64(signature)?;
    let head = json(head)?;
    let is_right = match head["alg"].as_str()? {
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
    // What is good may be remembered, and our clock goes on.
    let latest = (ENVIRONMENT.now)().as_second() as f64 + CLOCK_SKEW as f64 + 1.0;
    let stands = claims["exp"].as_f64()? > BEGINNING as f64 / 1000.0 && claims["nbf"].as_f64().unwrap_or(0.0) < latest;
    (is_right && stands && claims["sub"].is_string()).then_some(claims)
}

/// A part of a token. What is no text may stand where nobody reads it.
fn json(part: &str) -> Option<Value> {
    serde_json::from_str(&String::from_utf8_lossy(&from_base64(part)?)).ok()
}

fn lists(here: &Value, member: &str, name: &str) -> bool {
    here[member].as_array().is_some_and(|names| names.iter().any(|known| known == "*" || known == name))
}

/// What the least audience is that a token's content names.
fn audience_of(here: &Value) -> Audience {
    here["audience"].as_str().and_then(Audience::parse).unwrap_or(Audience::User)
}

/// Whether a token's content says that its holder may.
fn allows(claims: &Value, verb: Verb, about: &About, audience: Audience) -> bool {
    let here = &claims["proscenium"];
    let can = here["can"].as_array().is_some_and(|can| can.iter().any(|said| *said == verb.as_str() || said == "admin"));
    let has = match about {
        About::Nothing => true,
        About::Session(session) => lists(here, "sessions", session),
        About::Agent(agent) => lists(here, "agents", agent),
    };
    can && has && audience <= audience_of(here)
}

fn grants_what_stands_there(grant: &Grant, claims: &Value) {
    let (rights, here) = (&grant.rights, &claims["proscenium"]);
    assert_eq!(Some(&*grant.subject), claims["sub"].as_str());
    assert!(rights.audience <= audience_of(here));
    for verb in Verb::ALL {
        assert!(!rights.can(verb) || allows(claims, verb, &About::Nothing, Audience::User), "{claims}");
    }
    for name in ["r", "s", "t", "*"] {
        let (run, session) = (RunId::new(name).expect("an id"), SessionId::new(name).expect("an id"));
        assert!(!rights.has_session(&session) || lists(here, "sessions", name), "{claims}");
        assert!(!rights.has_agent(name) || lists(here, "agents", name), "{claims}");
        assert!(!rights.has_run(&run, None) || lists(here, "runs", name) || lists(here, "sessions", "*"), "{claims}");
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64url without padding.
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

/// The same back; bits that are left over are left out, and so is padding.
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

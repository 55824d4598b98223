//! Tests of tokens, keys and tickets, on a clock that each test sets.

mod provider;
mod proxy;

use super::keys::{KEYS_MAX, SECRET_BYTES_MIN, TOKEN_BYTES_MAX, TokenSigner};
use super::shared_tickets::{REFRESH_SECS, SharedTickets, TicketRecord, TicketUse};
use super::tickets::{Purpose, RESUME_SECS, TICKETS_MAX, TICKETS_PER_TOKEN_MAX, TicketScope, TooManyTickets};
use super::*;
use crate::auth::rights::Verb;
use crate::model::{Audience, RunId};
use futures_util::future::{BoxFuture, FutureExt, ready};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::Write;
use tempfile::TempDir;

thread_local! {
    /// The test clock, in seconds since 1970. Each test runs on its own thread.
    static NOW: Cell<i64> = const { Cell::new(1_000_000) };
}

const ENVIRONMENT: Environment = Environment { now: || jiff::Timestamp::from_second(NOW.get()).unwrap(), ..Environment::SYSTEM };

const SECRET: &[u8] = b"a secret of more than thirty-two bytes\n";

/// Ed25519, RSA and elliptic test keys, made with `openssl genpkey`.
const ED_PRIVATE: &str = include_str!("../../tests/keys/ed25519.private.pem");
const ED_PUBLIC: &str = include_str!("../../tests/keys/ed25519.public.pem");
const RSA_PRIVATE: &str = include_str!("../../tests/keys/rsa.private.pem");
const RSA_PUBLIC: &str = include_str!("../../tests/keys/rsa.public.pem");
const P256_PRIVATE: &str = include_str!("../../tests/keys/p256.private.pem");
const P256_PUBLIC: &str = include_str!("../../tests/keys/p256.public.pem");
/// A public key of another curve, whose point is as long.
const OTHER_CURVE: &str = include_str!("../../tests/keys/secp256k1.public.pem");
const P384_PRIVATE: &str = include_str!("../../tests/keys/p384.private.pem");
const RSA_SHORT: &str = include_str!("../../tests/keys/rsa1024.public.pem");

/// Key files in a temporary directory.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file by renaming a complete new file over it.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let mut file = tempfile::NamedTempFile::new_in(self.0.path()).unwrap();
        file.write_all(bytes.as_ref()).unwrap();
        let path = self.0.path().join(name);
        file.persist(&path).unwrap();
        path
    }

    fn with_key(&self, bytes: impl AsRef<[u8]>) -> Result<Arc<Authenticator>, String> {
        self.with(AuthConfig { key: Some(self.write("key", bytes)), ..AuthConfig::default() })
    }

    fn with(&self, config: AuthConfig) -> Result<Arc<Authenticator>, String> {
        let config = AuthConfig { service: "proscenium".into(), ..config };
        Authenticator::open(config, ENVIRONMENT)
            .map(|authenticator| authenticator.expect("the config names a key"))
            .map_err(|error| error.to_string())
    }
}

fn claims(more: Value) -> Value {
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let mut claims = json!({ "sub": "alice", "jti": "t1", "exp": NOW.get() + 60, "proscenium": here });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

fn redeem(at: &Authenticator, ticket: &str, purpose: Purpose, resumes: bool) -> Result<Arc<Grant>, TokenError> {
    pollster::block_on(at.redeem(ticket, purpose, resumes))
}

fn sign(key: impl AsRef<[u8]>, claims: &Value, kid: Option<&str>) -> String {
    TokenSigner::from_file(key.as_ref()).unwrap().sign(claims, kid).unwrap()
}

/// A token with this header, signed by HMAC with this secret.
fn forged(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let part = |value: &Value| base64(value.to_string().as_bytes());
    let message = format!("{}.{}", part(header), part(claims));
    let key = jsonwebtoken::EncodingKey::from_secret(secret);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, jsonwebtoken::Algorithm::HS256).unwrap();
    format!("{message}.{signature}")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]));
        }
    }
    text
}

fn refused(authenticator: &Authenticator, token: &str) -> TokenError {
    authenticator.verify(token).expect_err("the token must be rejected")
}

#[test]
fn a_token_verifies_with_its_own_key_and_with_no_other() {
    let files = Files::new();
    let pem = [(ED_PRIVATE, ED_PUBLIC), (RSA_PRIVATE, RSA_PUBLIC), (P256_PRIVATE, P256_PUBLIC)];
    let pem = pem.map(|(private, public)| (private.as_bytes(), public.as_bytes()));
    let kinds = [(SECRET, SECRET), pem[0], pem[1], pem[2]];
    for (n, (private, _)) in kinds.iter().enumerate() {
        let token = sign(private, &claims(json!({})), Some("any"));
        for (m, (_, public)) in kinds.iter().enumerate() {
            let authenticator = files.with_key(public).unwrap();
            match n == m {
                true => {
                    let grant = authenticator.verify(&token).unwrap();
                    assert_eq!((&*grant.subject, grant.expires, grant.rights.audience), ("alice", 1_000_060, Audience::User));
                    let broken = format!("{}{}", &token[..token.len() - 8], "AAAAAAAA");
                    assert_eq!(refused(&authenticator, &broken), TokenError::BadSignature);
                }
                false => assert_eq!(refused(&authenticator, &token), TokenError::UnknownKey),
            }
        }
    }
    let other = sign(b"another secret of more than 32 bytes", &claims(json!({})), None);
    assert_eq!(refused(&files.with_key(SECRET).unwrap(), &other), TokenError::BadSignature);
}

#[test]
fn a_token_cannot_choose_how_it_is_verified() {
    let files = Files::new();
    let claims = claims(json!({}));
    for (public, own) in [(ED_PUBLIC, "EdDSA"), (RSA_PUBLIC, "RS256"), (P256_PUBLIC, "ES256")] {
        let authenticator = files.with_key(public).unwrap();
        // Algorithm confusion: the public key, used as an HMAC secret.
        for secret in [public, public.trim(), ""] {
            for algorithm in ["HS256", own] {
                let token = forged(&json!({ "alg": algorithm, "typ": "JWT" }), &claims, secret.as_bytes());
                assert!(
                    matches!(refused(&authenticator, &token), TokenError::UnknownKey | TokenError::BadSignature),
                    "{algorithm}"
                );
            }
        }
    }
    let authenticator = files.with_key(SECRET).unwrap();
    let secret = SECRET.trim_ascii();
    let header = |more: Value| {
        let mut header = json!({ "alg": "HS256", "typ": "JWT" });
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        header
    };
    assert!(authenticator.verify(&forged(&header(json!({})), &claims, secret)).is_ok(), "the forged token is otherwise valid");
    for none in ["none", "None", "NONE", "nOnE", ""] {
        let token = forged(&header(json!({ "alg": none })), &claims, secret);
        assert_eq!(refused(&authenticator, &token), TokenError::Malformed);
        let bare = token.rsplit_once('.').unwrap().0;
        assert_eq!(refused(&authenticator, &format!("{bare}.")), TokenError::Malformed);
    }
    for other in ["HS384", "HS512", "RS256", "PS256", "ES256", "EdDSA"] {
        assert_eq!(
            refused(&authenticator, &forged(&header(json!({ "alg": other })), &claims, secret)),
            TokenError::UnknownKey,
            "{other}"
        );
    }
    let critical = header(json!({ "crit": ["b64"], "b64": false }));
    assert_eq!(refused(&authenticator, &forged(&critical, &claims, secret)), TokenError::UnsupportedCritical);
    let own_key = header(json!({ "jwk": { "kty": "oct", "k": base64(b"my own") } }));
    assert_eq!(refused(&authenticator, &forged(&own_key, &claims, b"my own")), TokenError::BadSignature);
    for text in ["", ".", "..", "a.b.c", "a.b", "a.b.c.d", "\u{0}.\u{0}.\u{0}"] {
        assert_eq!(refused(&authenticator, text), TokenError::Malformed, "{text:?}");
    }
    let long = "a".repeat(TOKEN_BYTES_MAX + 1);
    assert_eq!(refused(&authenticator, &long), TokenError::TooLong);
}

#[test]
fn errors_never_quote_the_token_and_only_describe_signed_claims() {
    let files = Files::new();
    let authenticator = files.with_key(SECRET).unwrap();
    let bad = claims(json!({ "proscenium": { "can": ["xyzzy"] } }));
    let signed = refused(&authenticator, &sign(SECRET, &bad, None)).to_string();
    assert!(signed.contains("unknown variant"), "{signed}");
    let unsigned = sign(b"another secret of more than 32 bytes", &bad, None);
    let message = refused(&authenticator, &unsigned).to_string();
    assert_eq!(message, "The token's signature is wrong.");
    assert!(!signed.contains(unsigned.split('.').nth(1).unwrap()));
}

#[test]
fn a_token_is_valid_from_nbf_until_exp_by_the_server_clock() {
    let files = Files::new();
    let authenticator = files.with_key(SECRET).unwrap();
    let token = sign(SECRET, &claims(json!({ "nbf": NOW.get() + 31 })), None);
    assert_eq!(refused(&authenticator, &token), TokenError::NotYetValid);
    NOW.set(NOW.get() + 1);
    assert!(authenticator.verify(&token).is_ok(), "nbf within the allowed clock skew");
    NOW.set(NOW.get() + 58);
    assert!(authenticator.verify(&token).is_ok(), "valid until its last second");
    NOW.set(NOW.get() + 1);
    assert_eq!(refused(&authenticator, &token), TokenError::Ended(EndReason::Expired), "the cached grant expires, too");
    let late = files.with_key(SECRET).unwrap();
    assert_eq!(refused(&late, &token), TokenError::Ended(EndReason::Expired));
    assert!(matches!(refused(&late, &sign(SECRET, &claims(json!({ "exp": null })), None)), TokenError::Claim(_)));
}

#[test]
fn a_clock_that_was_ahead_for_a_moment_ends_no_token_for_good() {
    let files = Files::new();
    let authenticator = files.with_key(SECRET).unwrap();
    let token = sign(SECRET, &claims(json!({})), None);
    let grant = authenticator.verify(&token).unwrap();
    NOW.set(NOW.get() + 1_000_000);
    authenticator.expire_due();
    assert_eq!(refused(&authenticator, &token), TokenError::Ended(EndReason::Expired));
    NOW.set(NOW.get() - 1_000_000);
    assert!(authenticator.verify(&token).is_ok());
    assert!(grant.watch().end_reason().is_some(), "what was open has ended");
}

#[test]
fn an_unusable_key_file_is_rejected_with_the_remedy() {
    let files = Files::new();
    let check = |bytes: &[u8], why: &str| {
        let message = files.with_key(bytes).expect_err("the file holds no usable key");
        assert!(message.contains(why), "{message}");
    };
    check(b"short", "at least 32");
    check(&[b'x'; SECRET_BYTES_MIN - 1], "has 31 bytes");
    check(b"\n\n", "has 0 bytes");
    check(ED_PRIVATE.as_bytes(), "-pubout");
    check(RSA_PRIVATE.as_bytes(), "-pubout");
    check(RSA_SHORT.as_bytes(), "fewer than 2048 bits");
    check(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "the PEM is a CERTIFICATE");
    check(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "neither an Ed25519 nor an RSA nor a P-256 key");
    check(OTHER_CURVE.as_bytes(), "nor a P-256 key");
    check(P256_PRIVATE.as_bytes(), "-pubout");
    check(b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", "openssl pkcs8 -topk8");
    // A public value must not become a secret.
    check(br#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#, "--auth-jwks");
    check(b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2 user@host", "not PEM");
    check(b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "not PEM");
    assert!(files.with_key([b'x'; SECRET_BYTES_MIN]).is_ok());
    let set = |set: Value| files.with(AuthConfig { jwks: Some(files.write("set", set.to_string())), ..AuthConfig::default() });
    assert!(set(json!({})).unwrap_err().contains("no `keys` array"));
    let elliptic = |crv: &str| json!({ "keys": [{ "kty": "EC", "crv": crv, "x": "AA", "y": "AA" }] });
    assert!(set(elliptic("P-384")).unwrap_err().contains("key 0: its kty or crv is not supported"));
    assert!(set(elliptic("P-256")).unwrap_err().contains("key 0: the key type is not supported"), "its point is too short");
    let other = TokenSigner::from_file(P384_PRIVATE.as_bytes()).unwrap().sign(&claims(json!({})), None);
    assert!(other.is_err_and(|why| why.contains("not of the curve P-256")));
    assert!(TokenSigner::from_file(ED_PUBLIC.as_bytes()).is_err_and(|why| why.contains("give the private key")));
}

fn oct(kid: &str, secret: &[u8]) -> Value {
    json!({ "kty": "oct", "kid": kid, "k": base64(secret) })
}

#[test]
fn a_key_of_a_set_verifies_only_tokens_of_its_kid_and_algorithm() {
    let files = Files::new();
    let (one, two) = ([b'1'; 32], [b'2'; 32]);
    let mut encrypts = oct("enc", &one);
    encrypts["use"] = "enc".into();
    let mut other = oct("other", &one);
    other["alg"] = "HS512".into();
    let set = json!({ "keys": [oct("a", &one), oct("b", &two), encrypts, other, { "kty": "EC" }, 7] });
    let authenticator =
        files.with(AuthConfig { jwks: Some(files.write("set", set.to_string())), ..AuthConfig::default() }).unwrap();
    let token = |secret: &[u8], kid: Option<&str>| sign(secret, &claims(json!({})), kid);
    assert!(authenticator.verify(&token(&one, Some("a"))).is_ok());
    assert!(authenticator.verify(&token(&two, Some("b"))).is_ok());
    assert!(authenticator.verify(&token(&two, None)).is_ok(), "without a kid, any key of the algorithm may match");
    assert_eq!(refused(&authenticator, &token(&one, Some("b"))), TokenError::BadSignature);
    for kid in ["c", "enc", "other", ""] {
        assert_eq!(refused(&authenticator, &token(&one, Some(kid))), TokenError::UnknownKey, "{kid}");
    }
}

/// The public P-256 key as a JWK.
fn p256_jwk(kid: &str) -> Value {
    let digits: String = P256_PUBLIC.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = data_encoding::BASE64.decode(digits.as_bytes()).unwrap();
    let point = &der[der.len() - 64..];
    json!({ "kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256", "x": base64(&point[..32]), "y": base64(&point[32..]) })
}

#[test]
fn an_elliptic_key_of_a_set_verifies_es256() {
    let files = Files::new();
    let set = json!({ "keys": [p256_jwk("ec")] });
    let authenticator =
        files.with(AuthConfig { jwks: Some(files.write("set", set.to_string())), ..AuthConfig::default() }).unwrap();
    let token = sign(P256_PRIVATE, &claims(json!({})), Some("ec"));
    assert!(authenticator.verify(&token).is_ok());
    // An empty or zero signature, which careless verifiers accept (CVE-2022-21449).
    let message = token.rsplit_once('.').unwrap().0;
    for signature in [vec![0; 64], Vec::new(), vec![0; 63]] {
        assert_eq!(refused(&authenticator, &format!("{message}.{}", base64(&signature))), TokenError::BadSignature);
    }
}

#[tokio::test]
async fn a_removed_key_ends_only_its_own_grants() {
    let files = Files::new();
    let (one, two) = ([b'1'; 32], [b'2'; 32]);
    let both = json!({ "keys": [oct("a", &one), oct("b", &two)] });
    let jwks = Some(files.write("set", both.to_string()));
    let authenticator = files.with(AuthConfig { jwks, key: Some(files.write("key", SECRET)), ..AuthConfig::default() }).unwrap();
    let tokens = [&one[..], &two[..], SECRET].map(|secret| sign(secret, &claims(json!({})), None));
    let grants = tokens.each_ref().map(|token| authenticator.verify(token).unwrap());
    let mut watches = grants.each_ref().map(|grant| grant.watch());
    files.write("set", "{ half a fil");
    authenticator.reload_if_changed();
    assert!(watches.iter().all(|watch| watch.end_reason().is_none()), "an unreadable file changes nothing");
    files.write("set", json!({ "keys": [oct("b", &two)] }).to_string());
    authenticator.reload_if_changed();
    assert_eq!(watches[0].ended().await, EndReason::KeyRemoved);
    assert_eq!(watches[1..].iter().map(GrantWatch::end_reason).collect::<Vec<_>>(), [None, None]);
    assert!(matches!(refused(&authenticator, &tokens[0]), TokenError::BadSignature | TokenError::UnknownKey));
    assert!(authenticator.verify(&tokens[1]).is_ok() && authenticator.verify(&tokens[2]).is_ok());
    files.write("set", json!({ "keys": [oct("a", &one), oct("b", &two)] }).to_string());
    authenticator.reload_if_changed();
    assert!(authenticator.verify(&tokens[0]).is_ok(), "the key is back");
}

#[tokio::test]
async fn a_revoked_grant_ends_and_its_token_is_rejected() {
    let files = Files::new();
    let revoked = files.write("revoked", "# empty\n");
    let key = Some(files.write("key", SECRET));
    let authenticator = files.with(AuthConfig { key, revoked: Some(revoked), ..AuthConfig::default() }).unwrap();
    let token = |sub: &str, jti: &str| sign(SECRET, &claims(json!({ "sub": sub, "jti": jti })), None);
    let tokens = [token("alice", "t1"), token("alice", "t2"), token("bob", "t3"), token("carol", "t4")];
    let mut watches = tokens.each_ref().map(|token| authenticator.verify(token).unwrap().watch());
    let grants = tokens.each_ref().map(|token| authenticator.verify(token).unwrap());
    files.write("revoked", "\n t1 \n# t4\nbob\n");
    authenticator.reload_if_changed();
    assert_eq!((watches[0].ended().await, watches[2].ended().await), (EndReason::Revoked, EndReason::Revoked));
    assert_eq!((watches[1].end_reason(), watches[3].end_reason()), (None, None));
    for n in [0, 2] {
        assert_eq!(refused(&authenticator, &tokens[n]), TokenError::Ended(EndReason::Revoked));
        assert_eq!(authenticator.ensure_valid(&grants[n]), Err(TokenError::Ended(EndReason::Revoked)));
    }
    assert!(authenticator.verify(&tokens[1]).is_ok());
    assert_eq!(refused(&authenticator, &token("bob", "new")), TokenError::Ended(EndReason::Revoked));
}

#[tokio::test]
async fn expired_grants_end_and_dropped_grants_are_removed() {
    let files = Files::new();
    let authenticator = files.with_key(SECRET).unwrap();
    let short = authenticator.verify(&sign(SECRET, &claims(json!({ "exp": NOW.get() + 5 })), None)).unwrap();
    let long = authenticator.verify(&sign(SECRET, &claims(json!({})), None)).unwrap();
    let (mut ends, lasts) = (short.watch(), long.watch());
    NOW.set(NOW.get() + 4);
    authenticator.expire_due();
    assert_eq!(ends.end_reason(), None);
    NOW.set(NOW.get() + 1);
    authenticator.expire_due();
    assert_eq!((ends.ended().await, lasts.end_reason()), (EndReason::Expired, None));
    for n in 0..2 * DEAD_GRANTS_MAX {
        authenticator.verify(&sign(SECRET, &claims(json!({ "jti": n.to_string() })), None)).unwrap();
    }
    authenticator.cached_grants.clear();
    authenticator.expire_due();
    assert_eq!(authenticator.grants.lock().by_expiry.len(), 1, "only held grants stay indexed");
}

#[test]
fn a_ticket_is_valid_once_for_its_purpose_and_its_lifetime() {
    let files = Files::new();
    let authenticator = files.with_key(SECRET).unwrap();
    let here = json!({ "sessions": ["*"], "agents": ["*"], "can": ["admin"], "audience": "internal" });
    let grant = authenticator.verify(&sign(SECRET, &claims(json!({ "proscenium": here })), None)).unwrap();
    let ticket = |purpose, seconds| authenticator.ticket(&grant, purpose, None, seconds).unwrap();
    let refused =
        |ticket: &str, purpose| redeem(&authenticator, ticket, purpose, false).expect_err("the ticket must be rejected");

    let (stream, until) = ticket(Purpose::Stream, 30);
    assert_eq!(until, 1_000_030);
    assert_eq!(refused(&stream, Purpose::Socket), TokenError::Ticket);
    assert_eq!(refused(&stream.to_uppercase(), Purpose::Stream), TokenError::Ticket);
    assert_eq!(refused("", Purpose::Stream), TokenError::Ticket);
    let reads = redeem(&authenticator, &stream, Purpose::Stream, false).unwrap();
    assert!(reads.rights.can(Verb::Read) && !Verb::ALL[1..].iter().any(|verb| reads.rights.can(*verb)));
    assert_eq!((reads.rights.audience, reads.expires), (Audience::Internal, grant.expires));
    assert_eq!(refused(&stream, Purpose::Stream), TokenError::Ticket);

    let (socket, _) = ticket(Purpose::Socket, 30);
    assert!(redeem(&authenticator, &socket, Purpose::Socket, true).unwrap().rights.can(Verb::Admin));
    assert_eq!(redeem(&authenticator, &socket, Purpose::Socket, true).unwrap_err(), TokenError::Ticket);

    let (late, _) = ticket(Purpose::Stream, 30);
    NOW.set(NOW.get() + 30);
    assert_eq!(refused(&late, Purpose::Stream), TokenError::Ticket);
    assert_eq!(ticket(Purpose::Stream, 60).1, grant.expires, "a ticket never outlives its token");
    NOW.set(1_000_060);
    assert_eq!(refused(&stream, Purpose::Stream), TokenError::Ended(EndReason::Expired));
}

#[tokio::test]
async fn a_cut_off_client_resumes_with_the_same_ticket_and_replaces_its_stream() {
    let files = Files::new();
    let authenticator = files.with_key(SECRET).unwrap();
    let exp = NOW.get() + 100_000;
    let grant = authenticator.verify(&sign(SECRET, &claims(json!({ "exp": exp })), None)).unwrap();
    let (ticket, _) = authenticator.ticket(&grant, Purpose::Stream, None, 10).unwrap();
    assert_eq!(redeem(&authenticator, &ticket, Purpose::Stream, false).map(drop), Ok(()));
    // The stream stays open for hours, and the sweep sees it open.
    let first = redeem(&authenticator, &ticket, Purpose::Stream, true).unwrap();
    let mut watch = first.watch();
    NOW.set(NOW.get() + 10_000);
    authenticator.expire_due();
    let second = redeem(&authenticator, &ticket, Purpose::Stream, true).unwrap();
    assert_eq!(
        watch.ended().await,
        EndReason::ResumedElsewhere,
        "the server may not have noticed that the first connection broke"
    );
    drop((first, second));
    NOW.set(NOW.get() + i64::try_from(RESUME_SECS).unwrap());
    authenticator.expire_due();
    assert!(redeem(&authenticator, &ticket, Purpose::Stream, true).is_ok());
    NOW.set(NOW.get() + i64::try_from(RESUME_SECS).unwrap() + 1);
    authenticator.expire_due();
    assert_eq!(redeem(&authenticator, &ticket, Purpose::Stream, true).unwrap_err(), TokenError::Ticket);
    assert_eq!(authenticator.tickets.lock().len(), 0);
}

#[test]
fn one_token_has_a_limited_number_of_unused_tickets() {
    let files = Files::new();
    let authenticator = files.with_key(SECRET).unwrap();
    let [one, other] = ["1", "2"].map(|jti| authenticator.verify(&sign(SECRET, &claims(json!({ "jti": jti })), None)).unwrap());
    let made: Vec<_> =
        (0..TICKETS_PER_TOKEN_MAX).map(|_| authenticator.ticket(&one, Purpose::Socket, None, 10).unwrap().0).collect();
    let refused = authenticator.ticket(&one, Purpose::Socket, None, 10);
    assert_eq!(refused.unwrap_err(), TooManyTickets(TICKETS_PER_TOKEN_MAX));
    assert!(authenticator.ticket(&other, Purpose::Socket, None, 10).is_ok());
    redeem(&authenticator, &made[0], Purpose::Socket, false).unwrap();
    assert!(authenticator.ticket(&one, Purpose::Socket, None, 10).is_ok());
    NOW.set(NOW.get() + 10);
    authenticator.expire_due();
    assert_eq!(authenticator.tickets.lock().len(), 0);
}

#[test]
fn all_tokens_together_have_a_limited_number_of_tickets() {
    let files = Files::new();
    let authenticator = files.with_key(SECRET).unwrap();
    let grant = |n: usize| authenticator.verify(&sign(SECRET, &claims(json!({ "jti": n.to_string() })), None)).unwrap();
    let grants: Vec<_> = (0..=TICKETS_MAX / TICKETS_PER_TOKEN_MAX).map(grant).collect();
    let (last, others) = grants.split_last().unwrap();
    for grant in others {
        for _ in 0..TICKETS_PER_TOKEN_MAX {
            authenticator.ticket(grant, Purpose::Socket, None, 10).unwrap();
        }
    }
    assert_eq!(authenticator.ticket(last, Purpose::Socket, None, 10).unwrap_err(), TooManyTickets(TICKETS_MAX));
    NOW.set(NOW.get() + 10);
    authenticator.expire_due();
    assert!(authenticator.ticket(last, Purpose::Socket, None, 10).is_ok());
}

#[test]
fn file_sizes_are_bounded() {
    let files = Files::new();
    let keys = |count: usize| json!({ "keys": vec![oct("a", &[b'1'; 32]); count] }).to_string();
    let set = |text: String| files.with(AuthConfig { jwks: Some(files.write("set", text)), ..AuthConfig::default() });
    assert!(set(keys(KEYS_MAX)).is_ok());
    assert!(set(keys(KEYS_MAX + 1)).unwrap_err().contains("the limit is 256"));
    let long = |bytes: u64| " ".repeat(usize::try_from(bytes).unwrap() + 1);
    assert!(set(long(KEYS_BYTES_MAX)).unwrap_err().contains("the limit is 1048576"));
    let revoked = Some(files.write("revoked", long(REVOKED_BYTES_MAX)));
    let message = files.with(AuthConfig { key: Some(files.write("key", SECRET)), revoked, ..AuthConfig::default() }).unwrap_err();
    assert!(message.contains("the limit is 16777216"), "{message}");
}

#[tokio::test]
async fn a_ticket_ends_with_its_token_and_is_limited_to_its_scope() {
    let files = Files::new();
    let (key, revoked) = (Some(files.write("key", SECRET)), Some(files.write("revoked", "")));
    let authenticator = files.with(AuthConfig { key, revoked, ..AuthConfig::default() }).unwrap();
    let grant = authenticator.verify(&sign(SECRET, &claims(json!({})), None)).unwrap();
    let run = RunId::new("r").unwrap();
    let (open, _) = authenticator.ticket(&grant, Purpose::Stream, Some(TicketScope::Run(run.clone())), 60).unwrap();
    let (waits, _) = authenticator.ticket(&grant, Purpose::Stream, None, 60).unwrap();
    let reads = redeem(&authenticator, &open, Purpose::Stream, false).unwrap();
    assert!(reads.rights.has_run(&run, None, None) && !reads.rights.has_run(&RunId::new("q").unwrap(), None, None));
    let mut watch = reads.watch();
    files.write("revoked", "t1");
    authenticator.reload_if_changed();
    assert_eq!(watch.ended().await, EndReason::Revoked);
    assert_eq!(redeem(&authenticator, &waits, Purpose::Stream, false).unwrap_err(), TokenError::Ended(EndReason::Revoked));
}

/// A record of used tickets, shared by the servers of a test.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<HashMap<String, TicketUse>>>);

impl TicketRecord for Record {
    fn read<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<TicketUse>, TokenError>> {
        ready(Ok(self.0.lock().get(id).copied())).boxed()
    }

    fn write<'a>(&'a self, id: &'a str, seen: u64, revision: u64) -> BoxFuture<'a, Result<Option<u64>, TokenError>> {
        let mut entries = self.0.lock();
        let is_expected = entries.get(id).map_or(0, |entry| entry.revision) == revision;
        let written = is_expected.then_some(revision + 1);
        if let Some(revision) = written {
            entries.insert(id.to_owned(), TicketUse { seen, revision });
        }
        ready(Ok(written)).boxed()
    }
}

/// Two servers of one cluster, which trust the same tokens.
fn two_servers(files: &Files) -> [Arc<Authenticator>; 2] {
    let record = Record::default();
    [0, 1].map(|_| {
        let authenticator = files.with_key(SECRET).unwrap();
        authenticator.share_tickets(SharedTickets::new(b"the secret of the cluster", record.clone()));
        authenticator
    })
}

#[test]
fn a_ticket_of_a_cluster_is_valid_once_on_any_server() {
    let files = Files::new();
    let [one, other] = two_servers(&files);
    let grant = one.verify(&sign(SECRET, &claims(json!({})), None)).unwrap();
    let refused = |at, ticket: &str, purpose| redeem(at, ticket, purpose, false).expect_err("the ticket must be rejected");
    let (ticket, until) = one.ticket(&grant, Purpose::Socket, None, 30).unwrap();
    assert_eq!(until, 1_000_030);
    assert_eq!(refused(&other, &ticket, Purpose::Stream), TokenError::Ticket);
    let opened = redeem(&other, &ticket, Purpose::Socket, false).unwrap();
    assert_eq!((&opened.rights, &opened.subject, opened.expires), (&grant.rights, &grant.subject, grant.expires));
    for at in [&one, &other] {
        assert_eq!(refused(at, &ticket, Purpose::Socket), TokenError::Ticket, "it was used");
    }
    let forged = SharedTickets::new(b"the secret of another cluster", Record::default());
    let forged = forged.issue("id", &grant, Purpose::Socket, None, until);
    assert_eq!(refused(&one, &forged, Purpose::Socket), TokenError::Ticket);
    let token = sign(SECRET, &claims(json!({})), None);
    assert_eq!(refused(&one, &token, Purpose::Socket), TokenError::Ticket);
    assert!(one.verify(&ticket).is_err(), "a ticket is no token");
    let (late, _) = one.ticket(&grant, Purpose::Stream, None, 30).unwrap();
    NOW.set(NOW.get() + 30);
    assert_eq!(refused(&other, &late, Purpose::Stream), TokenError::Ticket);
    NOW.set(1_000_060);
    assert_eq!(refused(&other, &late, Purpose::Stream), TokenError::Ended(EndReason::Expired));
}

#[tokio::test]
async fn a_stream_goes_on_with_its_ticket_on_another_server_which_ends_the_first_one() {
    let files = Files::new();
    let [one, other] = two_servers(&files);
    let grant = one.verify(&sign(SECRET, &claims(json!({ "exp": NOW.get() + 100_000 })), None)).unwrap();
    let scope = TicketScope::Run(RunId::new("r").unwrap());
    let (ticket, _) = one.ticket(&grant, Purpose::Stream, Some(scope), 10).unwrap();
    let first = one.redeem(&ticket, Purpose::Stream, false).await.unwrap();
    assert!(first.rights.can(Verb::Read) && !first.rights.has_run(&RunId::new("q").unwrap(), None, None));
    let mut watch = first.watch();
    let refresh = async |after: u64| {
        NOW.set(NOW.get() + i64::try_from(after).unwrap());
        one.shared_tickets.get().unwrap().refresh(one.now()).await;
    };
    // The stream stays open for longer than a client may be away.
    for _ in 0..4 {
        refresh(REFRESH_SECS).await;
    }
    assert_eq!(watch.end_reason(), None);
    let second = other.redeem(&ticket, Purpose::Stream, true).await.unwrap();
    refresh(REFRESH_SECS).await;
    assert_eq!(watch.ended().await, EndReason::ResumedElsewhere);
    drop((first, second));
    NOW.set(NOW.get() + i64::try_from(RESUME_SECS).unwrap() + 1);
    assert_eq!(one.redeem(&ticket, Purpose::Stream, true).await.unwrap_err(), TokenError::Ticket);
}

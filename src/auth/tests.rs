//! Tokens, keys and tickets, by a clock of the test's own.

use super::keys::{KEYS_MAX, SECRET_BYTES_MIN, Signing, TOKEN_BYTES_MAX};
use super::tickets::{Only, Purpose, RESUME, TICKETS_MAX, TICKETS_OF_ONE_MAX, TooMany};
use super::*;
use crate::auth::rights::Verb;
use crate::model::{Audience, RunId};
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::Write;
use tempfile::TempDir;

thread_local! {
    /// In seconds since 1970; each test has a thread.
    static NOW: Cell<i64> = const { Cell::new(1_000_000) };
}

const WORLD: World = World {
    now: || jiff::Timestamp::from_second(NOW.get()).unwrap(),
    random: || {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).unwrap();
        u128::from_ne_bytes(bits)
    },
};

const SECRET: &[u8] = b"a secret of more than thirty-two bytes\n";

/// Ed25519 and RSA keys that nobody uses: `openssl genpkey`.
const ED_PRIVATE: &str = include_str!("../../tests/keys/ed25519.private.pem");
const ED_PUBLIC: &str = include_str!("../../tests/keys/ed25519.public.pem");
const RSA_PRIVATE: &str = include_str!("../../tests/keys/rsa.private.pem");
const RSA_PUBLIC: &str = include_str!("../../tests/keys/rsa.public.pem");
const RSA_SHORT: &str = include_str!("../../tests/keys/rsa1024.public.pem");

/// Files of keys, until it goes out of scope.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file as one should: another takes its place.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let mut file = tempfile::NamedTempFile::new_in(self.0.path()).unwrap();
        file.write_all(bytes.as_ref()).unwrap();
        let path = self.0.path().join(name);
        file.persist(&path).unwrap();
        path
    }

    fn with_key(&self, bytes: impl AsRef<[u8]>) -> Result<Arc<Authority>, String> {
        self.with(Setup { key: Some(self.write("key", bytes)), ..Setup::default() })
    }

    fn with(&self, setup: Setup) -> Result<Arc<Authority>, String> {
        let setup = Setup { service: "proscenium".into(), ..setup };
        Authority::open(setup, WORLD).map(|authority| authority.expect("there is a key")).map_err(|error| error.to_string())
    }
}

fn claims(more: Value) -> Value {
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let mut claims = json!({ "sub": "alice", "jti": "t1", "exp": NOW.get() + 60, "proscenium": here });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

fn sign(key: impl AsRef<[u8]>, claims: &Value, kid: Option<&str>) -> String {
    Signing::of_file(key.as_ref()).unwrap().sign(claims, kid).unwrap()
}

/// A token whose header says this, and whose signature is what a secret makes of it.
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

fn refused(authority: &Authority, token: &str) -> Refusal {
    authority.verify(token).expect_err("it is no good token")
}

#[test]
fn a_token_of_each_kind_of_key_is_taken_and_of_another_key_refused() {
    let files = Files::new();
    let kinds: [(&[u8], &[u8]); 3] =
        [(SECRET, SECRET), (ED_PRIVATE.as_bytes(), ED_PUBLIC.as_bytes()), (RSA_PRIVATE.as_bytes(), RSA_PUBLIC.as_bytes())];
    for (n, (private, _)) in kinds.iter().enumerate() {
        let token = sign(private, &claims(json!({})), Some("any"));
        for (m, (_, public)) in kinds.iter().enumerate() {
            let authority = files.with_key(public).unwrap();
            match n == m {
                true => {
                    let grant = authority.verify(&token).unwrap();
                    assert_eq!((&*grant.subject, grant.expires, grant.rights.audience), ("alice", 1_000_060, Audience::User));
                    let broken = format!("{}{}", &token[..token.len() - 8], "AAAAAAAA");
                    assert_eq!(refused(&authority, &broken), Refusal::Signature);
                }
                false => assert_eq!(refused(&authority, &token), Refusal::NoKey),
            }
        }
    }
    let other = sign(b"another secret of more than 32 bytes", &claims(json!({})), None);
    assert_eq!(refused(&files.with_key(SECRET).unwrap(), &other), Refusal::Signature);
}

#[test]
fn nothing_in_a_token_decides_how_it_is_checked() {
    let files = Files::new();
    let claims = claims(json!({}));
    for (public, own) in [(ED_PUBLIC, "EdDSA"), (RSA_PUBLIC, "RS256")] {
        let authority = files.with_key(public).unwrap();
        // The classic: what everybody knows, taken for a secret.
        for secret in [public, public.trim(), ""] {
            for algorithm in ["HS256", own] {
                let token = forged(&json!({ "alg": algorithm, "typ": "JWT" }), &claims, secret.as_bytes());
                assert!(matches!(refused(&authority, &token), Refusal::NoKey | Refusal::Signature), "{algorithm}");
            }
        }
    }
    let authority = files.with_key(SECRET).unwrap();
    let secret = SECRET.trim_ascii();
    let header = |more: Value| {
        let mut header = json!({ "alg": "HS256", "typ": "JWT" });
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        header
    };
    assert!(authority.verify(&forged(&header(json!({})), &claims, secret)).is_ok(), "the forger knows his trade");
    for none in ["none", "None", "NONE", "nOnE", ""] {
        let token = forged(&header(json!({ "alg": none })), &claims, secret);
        assert_eq!(refused(&authority, &token), Refusal::NoToken);
        let bare = token.rsplit_once('.').unwrap().0;
        assert_eq!(refused(&authority, &format!("{bare}.")), Refusal::NoToken);
    }
    for other in ["HS384", "HS512", "RS256", "PS256", "ES256", "EdDSA"] {
        assert_eq!(refused(&authority, &forged(&header(json!({ "alg": other })), &claims, secret)), Refusal::NoKey, "{other}");
    }
    let critical = header(json!({ "crit": ["b64"], "b64": false }));
    assert_eq!(refused(&authority, &forged(&critical, &claims, secret)), Refusal::Critical);
    let own_key = header(json!({ "jwk": { "kty": "oct", "k": base64(b"my own") } }));
    assert_eq!(refused(&authority, &forged(&own_key, &claims, b"my own")), Refusal::Signature);
    for text in ["", ".", "..", "a.b.c", "a.b", "a.b.c.d", "\u{0}.\u{0}.\u{0}"] {
        assert_eq!(refused(&authority, text), Refusal::NoToken, "{text:?}");
    }
    let long = "a".repeat(TOKEN_BYTES_MAX + 1);
    assert_eq!(refused(&authority, &long), Refusal::TooLong);
}

#[test]
fn no_refusal_repeats_the_token_and_only_a_signed_one_is_looked_into() {
    let files = Files::new();
    let authority = files.with_key(SECRET).unwrap();
    let bad = claims(json!({ "proscenium": { "can": ["xyzzy"] } }));
    let signed = refused(&authority, &sign(SECRET, &bad, None)).to_string();
    assert!(signed.contains("unknown variant"), "{signed}");
    let unsigned = sign(b"another secret of more than 32 bytes", &bad, None);
    let told = refused(&authority, &unsigned).to_string();
    assert_eq!(told, "the token's signature is wrong");
    assert!(!signed.contains(unsigned.split('.').nth(1).unwrap()));
}

#[test]
fn a_token_is_good_from_nbf_until_exp_by_our_clock() {
    let files = Files::new();
    let authority = files.with_key(SECRET).unwrap();
    let token = sign(SECRET, &claims(json!({ "nbf": NOW.get() + 31 })), None);
    assert_eq!(refused(&authority, &token), Refusal::NotYet);
    NOW.set(NOW.get() + 1);
    assert!(authority.verify(&token).is_ok(), "so far ahead another clock may be");
    NOW.set(NOW.get() + 58);
    assert!(authority.verify(&token).is_ok(), "it is good to its last second");
    NOW.set(NOW.get() + 1);
    assert_eq!(refused(&authority, &token), Refusal::Ended(End::Expired), "although it is remembered");
    let late = files.with_key(SECRET).unwrap();
    assert_eq!(refused(&late, &token), Refusal::Ended(End::Expired));
    assert!(matches!(refused(&late, &sign(SECRET, &claims(json!({ "exp": null })), None)), Refusal::Claim(_)));
}

#[test]
fn a_file_that_holds_no_key_for_this_is_refused_with_the_remedy() {
    let files = Files::new();
    let check = |bytes: &[u8], why: &str| {
        let told = files.with_key(bytes).expect_err("it is no key");
        assert!(told.contains(why), "{told}");
    };
    check(b"short", "needs 32 or more");
    check(&[b'x'; SECRET_BYTES_MIN - 1], "has 31 bytes");
    check(b"\n\n", "has 0 bytes");
    check(ED_PRIVATE.as_bytes(), "-pubout");
    check(RSA_PRIVATE.as_bytes(), "-pubout");
    check(RSA_SHORT.as_bytes(), "less than 2048 bits");
    check(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "PEM of CERTIFICATE");
    check(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "neither an Ed25519 nor an RSA key");
    // What others know must not become a secret.
    check(br#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#, "--auth-jwks");
    check(b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2 somebody@somewhere", "as PEM");
    check(b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "as PEM");
    assert!(files.with_key([b'x'; SECRET_BYTES_MIN]).is_ok());
    let set = |set: Value| files.with(Setup { jwks: Some(files.write("set", set.to_string())), ..Setup::default() });
    assert!(set(json!({})).unwrap_err().contains("no array of keys"));
    let elliptic = json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" });
    assert!(set(json!({ "keys": [elliptic] })).unwrap_err().contains("key 0: its kind is not taken"));
    assert!(Signing::of_file(ED_PUBLIC.as_bytes()).is_err_and(|why| why.contains("give the private one")));
}

fn oct(kid: &str, secret: &[u8]) -> Value {
    json!({ "kty": "oct", "kid": kid, "k": base64(secret) })
}

#[test]
fn a_key_of_a_set_vouches_only_under_its_name_and_for_what_it_is() {
    let files = Files::new();
    let (one, two) = ([b'1'; 32], [b'2'; 32]);
    let mut encrypts = oct("enc", &one);
    encrypts["use"] = "enc".into();
    let mut other = oct("other", &one);
    other["alg"] = "HS512".into();
    let set = json!({ "keys": [oct("a", &one), oct("b", &two), encrypts, other, { "kty": "EC" }, 7] });
    let authority = files.with(Setup { jwks: Some(files.write("set", set.to_string())), ..Setup::default() }).unwrap();
    let token = |secret: &[u8], kid: Option<&str>| sign(secret, &claims(json!({})), kid);
    assert!(authority.verify(&token(&one, Some("a"))).is_ok());
    assert!(authority.verify(&token(&two, Some("b"))).is_ok());
    assert!(authority.verify(&token(&two, None)).is_ok(), "without a name any of its kind may have signed");
    assert_eq!(refused(&authority, &token(&one, Some("b"))), Refusal::Signature);
    for kid in ["c", "enc", "other", ""] {
        assert_eq!(refused(&authority, &token(&one, Some(kid))), Refusal::NoKey, "{kid}");
    }
}

#[tokio::test]
async fn a_key_that_goes_out_of_the_set_ends_what_is_open_under_it_and_no_other() {
    let files = Files::new();
    let (one, two) = ([b'1'; 32], [b'2'; 32]);
    let both = json!({ "keys": [oct("a", &one), oct("b", &two)] });
    let jwks = Some(files.write("set", both.to_string()));
    let authority = files.with(Setup { jwks, key: Some(files.write("key", SECRET)), ..Setup::default() }).unwrap();
    let tokens = [&one[..], &two[..], SECRET].map(|secret| sign(secret, &claims(json!({})), None));
    let grants = tokens.each_ref().map(|token| authority.verify(token).unwrap());
    let mut leases = grants.each_ref().map(|grant| grant.lease());
    files.write("set", "{ half a fil");
    authority.look_again();
    assert!(leases.iter().all(|lease| lease.has_ended().is_none()), "what cannot be read changes nothing");
    files.write("set", json!({ "keys": [oct("b", &two)] }).to_string());
    authority.look_again();
    assert_eq!(leases[0].ended().await, End::KeyGone);
    assert_eq!(leases[1..].iter().map(Lease::has_ended).collect::<Vec<_>>(), [None, None]);
    assert!(matches!(refused(&authority, &tokens[0]), Refusal::Signature | Refusal::NoKey));
    assert!(authority.verify(&tokens[1]).is_ok() && authority.verify(&tokens[2]).is_ok());
    files.write("set", json!({ "keys": [oct("a", &one), oct("b", &two)] }).to_string());
    authority.look_again();
    assert!(authority.verify(&tokens[0]).is_ok(), "it is back");
}

#[tokio::test]
async fn who_is_revoked_is_told_and_comes_in_no_more() {
    let files = Files::new();
    let revoked = files.write("revoked", "# nobody yet\n");
    let key = Some(files.write("key", SECRET));
    let authority = files.with(Setup { key, revoked: Some(revoked), ..Setup::default() }).unwrap();
    let token = |sub: &str, jti: &str| sign(SECRET, &claims(json!({ "sub": sub, "jti": jti })), None);
    let tokens = [token("alice", "t1"), token("alice", "t2"), token("bob", "t3"), token("carol", "t4")];
    let mut leases = tokens.each_ref().map(|token| authority.verify(token).unwrap().lease());
    let grants = tokens.each_ref().map(|token| authority.verify(token).unwrap());
    files.write("revoked", "\n t1 \n# t4\nbob\n");
    authority.look_again();
    assert_eq!((leases[0].ended().await, leases[2].ended().await), (End::Revoked, End::Revoked));
    assert_eq!((leases[1].has_ended(), leases[3].has_ended()), (None, None));
    for n in [0, 2] {
        assert_eq!(refused(&authority, &tokens[n]), Refusal::Ended(End::Revoked));
        assert_eq!(authority.stands(&grants[n]), Err(Refusal::Ended(End::Revoked)));
    }
    assert!(authority.verify(&tokens[1]).is_ok());
    assert_eq!(refused(&authority, &token("bob", "new")), Refusal::Ended(End::Revoked));
}

#[tokio::test]
async fn the_clock_tells_who_has_expired_and_forgets_who_is_gone() {
    let files = Files::new();
    let authority = files.with_key(SECRET).unwrap();
    let short = authority.verify(&sign(SECRET, &claims(json!({ "exp": NOW.get() + 5 })), None)).unwrap();
    let long = authority.verify(&sign(SECRET, &claims(json!({})), None)).unwrap();
    let (mut ends, lasts) = (short.lease(), long.lease());
    NOW.set(NOW.get() + 4);
    authority.tick();
    assert_eq!(ends.has_ended(), None);
    NOW.set(NOW.get() + 1);
    authority.tick();
    assert_eq!((ends.ended().await, lasts.has_ended()), (End::Expired, None));
    for n in 0..2 * STALE_MAX {
        authority.verify(&sign(SECRET, &claims(json!({ "jti": n.to_string() })), None)).unwrap();
    }
    authority.known.clear();
    authority.tick();
    assert_eq!(authority.granted.lock().by_expiry.len(), 1, "only who holds something is remembered");
}

#[test]
fn a_ticket_is_good_once_for_its_purpose_and_for_its_time() {
    let files = Files::new();
    let authority = files.with_key(SECRET).unwrap();
    let here = json!({ "sessions": ["*"], "agents": ["*"], "can": ["admin"], "audience": "internal" });
    let grant = authority.verify(&sign(SECRET, &claims(json!({ "proscenium": here })), None)).unwrap();
    let ticket = |purpose, seconds| authority.ticket(&grant, purpose, None, seconds).unwrap();
    let refused = |ticket: &str, purpose| authority.redeem(ticket, purpose, false).expect_err("it is no good ticket");

    let (stream, until) = ticket(Purpose::Stream, 30);
    assert_eq!(until, 1_000_030);
    assert_eq!(refused(&stream, Purpose::Socket), Refusal::Ticket);
    assert_eq!(refused(&stream.to_uppercase(), Purpose::Stream), Refusal::Ticket);
    assert_eq!(refused("", Purpose::Stream), Refusal::Ticket);
    let reads = authority.redeem(&stream, Purpose::Stream, false).unwrap();
    assert!(reads.rights.can(Verb::Read) && !Verb::ALL[1..].iter().any(|verb| reads.rights.can(*verb)));
    assert_eq!((reads.rights.audience, reads.expires), (Audience::Internal, grant.expires));
    assert_eq!(refused(&stream, Purpose::Stream), Refusal::Ticket);

    let (socket, _) = ticket(Purpose::Socket, 30);
    assert!(authority.redeem(&socket, Purpose::Socket, true).unwrap().rights.can(Verb::Admin));
    assert_eq!(authority.redeem(&socket, Purpose::Socket, true).unwrap_err(), Refusal::Ticket);

    let (late, _) = ticket(Purpose::Stream, 30);
    NOW.set(NOW.get() + 30);
    assert_eq!(refused(&late, Purpose::Stream), Refusal::Ticket);
    assert_eq!(ticket(Purpose::Stream, 60).1, grant.expires, "and not longer than the token");
    NOW.set(1_000_060);
    assert_eq!(refused(&stream, Purpose::Stream), Refusal::Ended(End::Expired));
}

#[tokio::test]
async fn who_was_cut_off_comes_back_with_the_same_ticket_and_alone() {
    let files = Files::new();
    let authority = files.with_key(SECRET).unwrap();
    let exp = NOW.get() + 100_000;
    let grant = authority.verify(&sign(SECRET, &claims(json!({ "exp": exp })), None)).unwrap();
    let (ticket, _) = authority.ticket(&grant, Purpose::Stream, None, 10).unwrap();
    assert_eq!(authority.redeem(&ticket, Purpose::Stream, false).map(drop), Ok(()));
    // Its stream is open for hours, and the clock sees it.
    let first = authority.redeem(&ticket, Purpose::Stream, true).unwrap();
    let mut lease = first.lease();
    NOW.set(NOW.get() + 10_000);
    authority.tick();
    let second = authority.redeem(&ticket, Purpose::Stream, true).unwrap();
    assert_eq!(lease.ended().await, End::Resumed, "the server may not have noticed that the first was cut");
    drop((first, second));
    NOW.set(NOW.get() + i64::try_from(RESUME).unwrap());
    authority.tick();
    assert!(authority.redeem(&ticket, Purpose::Stream, true).is_ok());
    NOW.set(NOW.get() + i64::try_from(RESUME).unwrap() + 1);
    authority.tick();
    assert_eq!(authority.redeem(&ticket, Purpose::Stream, true).unwrap_err(), Refusal::Ticket);
    assert_eq!(authority.tickets.lock().len(), 0);
}

#[test]
fn one_token_has_so_many_tickets_and_no_more_until_they_are_used() {
    let files = Files::new();
    let authority = files.with_key(SECRET).unwrap();
    let [one, other] = ["1", "2"].map(|jti| authority.verify(&sign(SECRET, &claims(json!({ "jti": jti })), None)).unwrap());
    let made: Vec<_> = (0..TICKETS_OF_ONE_MAX).map(|_| authority.ticket(&one, Purpose::Socket, None, 10).unwrap().0).collect();
    let refused = authority.ticket(&one, Purpose::Socket, None, 10);
    assert_eq!(refused.unwrap_err(), TooMany(TICKETS_OF_ONE_MAX));
    assert!(authority.ticket(&other, Purpose::Socket, None, 10).is_ok());
    authority.redeem(&made[0], Purpose::Socket, false).unwrap();
    assert!(authority.ticket(&one, Purpose::Socket, None, 10).is_ok());
    NOW.set(NOW.get() + 10);
    authority.tick();
    assert_eq!(authority.tickets.lock().len(), 0);
}

#[test]
fn all_tokens_together_have_so_many_tickets() {
    let files = Files::new();
    let authority = files.with_key(SECRET).unwrap();
    let grant = |n: usize| authority.verify(&sign(SECRET, &claims(json!({ "jti": n.to_string() })), None)).unwrap();
    let grants: Vec<_> = (0..=TICKETS_MAX / TICKETS_OF_ONE_MAX).map(grant).collect();
    let (last, others) = grants.split_last().unwrap();
    for grant in others {
        for _ in 0..TICKETS_OF_ONE_MAX {
            authority.ticket(grant, Purpose::Socket, None, 10).unwrap();
        }
    }
    assert_eq!(authority.ticket(last, Purpose::Socket, None, 10).unwrap_err(), TooMany(TICKETS_MAX));
    NOW.set(NOW.get() + 10);
    authority.tick();
    assert!(authority.ticket(last, Purpose::Socket, None, 10).is_ok());
}

#[test]
fn files_are_bounded() {
    let files = Files::new();
    let keys = |count: usize| json!({ "keys": vec![oct("a", &[b'1'; 32]); count] }).to_string();
    let set = |text: String| files.with(Setup { jwks: Some(files.write("set", text)), ..Setup::default() });
    assert!(set(keys(KEYS_MAX)).is_ok());
    assert!(set(keys(KEYS_MAX + 1)).unwrap_err().contains("256 is the limit"));
    let long = |bytes: u64| " ".repeat(usize::try_from(bytes).unwrap() + 1);
    assert!(set(long(KEYS_BYTES_MAX)).unwrap_err().contains("1048576 is the limit"));
    let revoked = Some(files.write("revoked", long(REVOKED_BYTES_MAX)));
    let told = files.with(Setup { key: Some(files.write("key", SECRET)), revoked, ..Setup::default() }).unwrap_err();
    assert!(told.contains("16777216 is the limit"), "{told}");
}

#[tokio::test]
async fn a_ticket_ends_with_its_token_and_sees_what_it_was_made_for() {
    let files = Files::new();
    let (key, revoked) = (Some(files.write("key", SECRET)), Some(files.write("revoked", "")));
    let authority = files.with(Setup { key, revoked, ..Setup::default() }).unwrap();
    let grant = authority.verify(&sign(SECRET, &claims(json!({})), None)).unwrap();
    let run = RunId::new("r").unwrap();
    let (open, _) = authority.ticket(&grant, Purpose::Stream, Some(Only::Run(run.clone())), 60).unwrap();
    let (waits, _) = authority.ticket(&grant, Purpose::Stream, None, 60).unwrap();
    let reads = authority.redeem(&open, Purpose::Stream, false).unwrap();
    assert!(reads.rights.has_run(&run, None) && !reads.rights.has_run(&RunId::new("q").unwrap(), None));
    let mut lease = reads.lease();
    files.write("revoked", "t1");
    authority.look_again();
    assert_eq!(lease.ended().await, End::Revoked);
    assert_eq!(authority.redeem(&waits, Purpose::Stream, false).unwrap_err(), Refusal::Ended(End::Revoked));
}

//! Users whom an authenticating proxy names.

use super::*;
use crate::auth::proxy::{ProxyClaim, SECRET_HEADER, USER_BYTES_MAX, parse_header};
use http::{HeaderName, HeaderValue};

const PROXY_SECRET: &str = "the secret of the proxy, of 32 bytes or more";

fn config(files: &Files) -> AuthConfig {
    let proxy = ProxyConfig {
        header: HeaderName::from_static("x-forwarded-user"),
        secret: files.write("proxy", PROXY_SECRET),
        claims: ProxyClaim::defaults(),
    };
    let mappings = ["groups=ops:audience=internal,can=read,sessions=*", "can=control"].map(|text| text.parse().unwrap());
    AuthConfig {
        proxy: Some(proxy),
        mappings: ClaimMap(mappings.into()),
        revoked: Some(files.write("revoked", "")),
        ..AuthConfig::default()
    }
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    list.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect()
}

const SECRET_NAME: &str = "x-proscenium-proxy-secret";

#[test]
fn the_header_of_the_proxy_is_the_sub_and_further_headers_are_claims() {
    let files = Files::new();
    let authenticator = files.with(config(&files)).unwrap();
    assert_eq!(SECRET_HEADER.as_str(), SECRET_NAME);
    let all = [
        ("x-forwarded-user", "alice"),
        (SECRET_NAME, PROXY_SECRET),
        ("x-forwarded-groups", "dev, ops"),
        ("x-forwarded-email", "alice@example.com"),
        ("x-forwarded-preferred-username", "Alice"),
    ];
    let grant = authenticator.proxied(&headers(&all)).unwrap().unwrap();
    assert_eq!((&*grant.subject, grant.name.as_deref(), grant.rights.audience), ("alice", Some("Alice"), Audience::Internal));
    assert!(grant.rights.can(Verb::Read) && grant.rights.can(Verb::Control));
    let other = authenticator.proxied(&headers(&all[..2])).unwrap().unwrap();
    assert!(!other.rights.can(Verb::Read) && other.rights.can(Verb::Control), "without the group");
    assert!(authenticator.proxied(&headers(&all[1..])).is_none(), "the proxy names no user");
    assert!(authenticator.proxied(&headers(&all[2..])).is_none());
}

#[test]
fn without_the_right_secret_the_header_of_the_proxy_is_refused() {
    let files = Files::new();
    let authenticator = files.with(config(&files)).unwrap();
    let user = ("x-forwarded-user", "alice");
    let right = (SECRET_NAME, PROXY_SECRET);
    let refused = |list: &[(&'static str, &str)]| authenticator.proxied(&headers(list)).unwrap().unwrap_err();
    for wrong in ["", "wrong", &PROXY_SECRET[1..], &format!("{PROXY_SECRET}x"), &PROXY_SECRET.to_uppercase()] {
        assert_eq!(refused(&[user, (SECRET_NAME, wrong)]), TokenError::ProxySecret);
    }
    assert_eq!(refused(&[user]), TokenError::ProxySecret);
    assert_eq!(refused(&[user, right, right]), TokenError::ProxySecret);
    assert_eq!(refused(&[user, user, right]), TokenError::ProxyUser, "a client's own header beside that of the proxy");
    assert_eq!(refused(&[("x-forwarded-user", " "), right]), TokenError::ProxyUser);
    let long = "a".repeat(USER_BYTES_MAX + 1);
    assert_eq!(refused(&[("x-forwarded-user", &long), right]), TokenError::ProxyUser);
    let invalid = HeaderMap::from_iter([
        (HeaderName::from_static("x-forwarded-user"), HeaderValue::from_bytes(b"\xff").unwrap()),
        (SECRET_HEADER, HeaderValue::from_static(PROXY_SECRET)),
    ]);
    assert_eq!(authenticator.proxied(&invalid).unwrap().unwrap_err(), TokenError::ProxyUser);
}

#[tokio::test]
async fn a_revoked_user_or_another_secret_ends_what_is_open() {
    let files = Files::new();
    let authenticator = files.with(config(&files)).unwrap();
    let list = |user| headers(&[("x-forwarded-user", user), (SECRET_NAME, PROXY_SECRET)]);
    let [alice, bob] = ["alice", "bob"].map(|user| authenticator.proxied(&list(user)).unwrap().unwrap());
    let mut ends = [alice.watch(), bob.watch()];
    files.write("revoked", "alice\n");
    authenticator.reload_if_changed();
    assert_eq!(ends[0].ended().await, EndReason::Revoked);
    assert_eq!(authenticator.proxied(&list("alice")).unwrap().unwrap_err(), TokenError::Ended(EndReason::Revoked));
    assert_eq!(ends[1].end_reason(), None);
    files.write("proxy", "another secret of the proxy, of 32 bytes");
    authenticator.reload_if_changed();
    assert_eq!(ends[1].ended().await, EndReason::KeyRemoved);
    assert_eq!(authenticator.proxied(&list("bob")).unwrap().unwrap_err(), TokenError::ProxySecret);
}

#[test]
fn an_unusable_configuration_of_the_proxy_is_refused() {
    let files = Files::new();
    for (secret, why) in
        [("short", "has 5 bytes; it must have at least 32"), ("ü-this secret is more than thirty-two bytes", "printable")]
    {
        let mut config = config(&files);
        files.write("proxy", secret);
        config.revoked = None;
        let error = files.with(config).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    for (text, why) in [
        ("groups", "is not CLAIM=HEADER"),
        ("=x-groups", "is not CLAIM=HEADER"),
        ("sub=x-user", "the claim sub cannot come from a header"),
        ("proscenium=x-rights", "the claim proscenium cannot"),
        ("groups=x groups", "is not the name of a header"),
        ("groups=cookie", "has another meaning"),
    ] {
        let error = text.parse::<ProxyClaim>().unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(parse_header("authorization").is_err() && parse_header(SECRET_NAME).is_err() && parse_header("x-user").is_ok());
}

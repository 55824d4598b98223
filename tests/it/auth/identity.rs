//! Users of an identity provider, and users whom an authenticating proxy names.

use super::{AuthServer, FRIEND, SECRET, Ws, admin, bearer, now, read_error, replace_file, token_with_claims};
use crate::harness::{Process, Sse, Transport, fact};
use http::HeaderName;
use proscenium::auth::claim_map::ClaimMap;
use proscenium::auth::provider::ProviderConfig;
use proscenium::auth::proxy::{ProxyClaim, ProxyConfig};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Error;

const PROXY_SECRET: &str = "the secret of the proxy, of 32 bytes or more";
const USER: (&str, &str) = ("x-forwarded-user", "alice");
const PROOF: (&str, &str) = ("x-proscenium-proxy-secret", PROXY_SECRET);
const OPS: (&str, &str) = ("x-forwarded-groups", "ops");
const JSON: (&str, &str) = ("content-type", "application/json");

fn mappings(texts: &[&str]) -> ClaimMap {
    ClaimMap(texts.iter().map(|text| text.parse().unwrap()).collect())
}

/// A server behind a proxy, whose operators may do everything.
async fn behind_proxy() -> AuthServer {
    AuthServer::start_with_config(|config| {
        let secret = config.revoked.as_ref().unwrap().with_file_name("proxy-secret");
        replace_file(&secret, PROXY_SECRET);
        let header = HeaderName::from_static(USER.0);
        config.proxy = Some(ProxyConfig { header, secret, claims: ProxyClaim::defaults() });
        config.mappings = mappings(&["groups=ops:audience=internal,can=admin,sessions=*,agents=*"]);
    })
    .await
}

#[tokio::test]
async fn the_header_of_a_proxy_counts_only_with_its_secret_and_never_makes_a_request_anonymous() {
    let guarded = behind_proxy().await;
    let client = &guarded.client;
    client.get_with("/v1/runs", &[USER, PROOF, OPS]).await.ok();
    let problem = client.get_with("/v1/runs", &[USER, PROOF]).await.problem(403, "forbidden");
    assert!(problem["detail"].as_str().unwrap().contains("no --auth-claim mapping applies"), "{problem}");
    let token = bearer(&admin());
    for wrong in
        [vec![USER, OPS], vec![USER, ("x-proscenium-proxy-secret", "guessed"), OPS], vec![USER, ("authorization", &token)]]
    {
        client.get_with("/v1/runs", &wrong).await.problem(401, "unauthenticated");
        client.get_with("/v1/runs/r/stream", &wrong).await.problem(401, "unauthenticated");
        client.get_with("/metrics", &wrong).await.problem(401, "unauthenticated");
    }
    for none in [&[PROOF, OPS][..], &[OPS], &[]] {
        client.get_with("/v1/runs", none).await.problem(401, "unauthenticated");
    }
    client.get_with("/v1/runs", &[("authorization", &token)]).await.ok();
}

#[tokio::test]
async fn a_write_for_a_user_of_a_proxy_needs_the_origin_of_a_known_page() {
    let guarded = behind_proxy().await;
    let client = &guarded.client;
    let own = format!("http://{}", client.at);
    let facts = || json!([fact("run.started", json!({}))]).to_string();
    let post = async |more: &[(&str, &str)]| {
        let headers = [&[USER, PROOF, OPS, JSON], more].concat();
        client.post("/v1/runs/r/facts", &headers, facts()).await
    };
    let problem = post(&[]).await.problem(403, "foreign_origin");
    assert!(problem["detail"].as_str().unwrap().contains("must have an Origin"), "{problem}");
    for foreign in ["https://evil.example", "null"] {
        post(&[("origin", foreign)]).await.problem(403, "foreign_origin");
    }
    post(&[("sec-fetch-site", "same-origin")]).await.problem(403, "foreign_origin");
    client.get_with("/v1/runs/r", &[USER, PROOF, OPS]).await.problem(404, "no_such_run");
    for known in [&*own, FRIEND] {
        post(&[("origin", known)]).await.ok();
    }
    // A token is in no cookie, so its requests need no origin.
    guarded.publish("r", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    for (more, status) in [(&[][..], 403), (&[("origin", "https://evil.example")], 403), (&[("origin", &own)], 101)] {
        match Ws::connect(client, "", &[&[USER, PROOF, OPS], more].concat()).await {
            Ok(mut ws) => {
                let answer = ws.request(json!({ "op": "subscribe", "id": 1, "run": "r" })).await;
                assert_eq!((status, &answer["op"]), (101, &json!("subscribed")), "{answer}");
            }
            Err(Error::Http(refused)) => assert_eq!(refused.status().as_u16(), status),
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_stream_of_a_user_of_a_proxy_ends_when_the_user_is_revoked() {
    let guarded = behind_proxy().await;
    let mut streams = Vec::new();
    for user in ["alice", "bob"] {
        let socket = TcpStream::connect(guarded.client.at).await.unwrap();
        let mut stream = Sse::open(socket, Transport::Raw, "/v1/runs/r/stream", &[(USER.0, user), PROOF, OPS]).await;
        stream.wait_until_open().await;
        streams.push(stream);
    }
    replace_file(&guarded.file("revoked"), "alice\n");
    assert_eq!(read_error(&mut streams[0]).await["reason"], "revoked");
    guarded.client.get_with("/v1/runs", &[USER, PROOF, OPS]).await.problem(401, "unauthenticated");
    guarded.client.get_with("/v1/runs", &[("x-forwarded-user", "bob"), PROOF, OPS]).await.ok();
    replace_file(&guarded.dir.path().join("proxy-secret"), "another secret of the proxy, of 32 bytes");
    assert_eq!(read_error(&mut streams[1]).await["reason"], "key_removed");
}

#[tokio::test]
async fn a_token_without_a_mapping_covers_nothing_and_one_with_a_mapping_covers_what_it_says() {
    let start =
        async |texts: &'static [&'static str]| AuthServer::start_with_config(|config| config.mappings = mappings(texts)).await;
    let of_provider = |groups: Value| token_with_claims(&json!({ "sub": "carol", "exp": now() + 3600, "groups": groups }));
    let none = start(&[]).await;
    let problem = none.get("/v1/runs", &of_provider(json!(["ops"]))).await.problem(403, "forbidden");
    assert_eq!(problem["missing"], "read");
    assert!(problem["detail"].as_str().unwrap().starts_with("The token permits nothing"), "{problem}");
    let some = start(&["groups=ops:can=read,sessions=s"]).await;
    some.publish("r", "sessionId=s", &admin(), &[fact("run.started", json!({}))]).await.ok();
    some.publish("q", "sessionId=t", &admin(), &[fact("run.started", json!({}))]).await.ok();
    let token = of_provider(json!(["ops"]));
    some.get("/v1/runs/r", &token).await.ok();
    some.get("/v1/runs/q", &token).await.problem(403, "forbidden");
    some.get("/v1/runs/r", &of_provider(json!(["dev"]))).await.problem(403, "forbidden");
}

#[tokio::test]
async fn while_the_provider_has_not_answered_its_tokens_get_503_and_others_work() {
    // It accepts connections, and closes them.
    let provider = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/keys", provider.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            drop(provider.accept().await);
        }
    });
    let guarded = AuthServer::start_with_config(|config| {
        config.jwks = None;
        let key_set = Some(address.parse().unwrap());
        config.provider = Some(ProviderConfig { key_set, ..ProviderConfig::default() });
    })
    .await;
    let foreign = super::signed(super::OTHER_SECRET, &json!({ "sub": "carol", "exp": now() + 3600 }), Some("new"));
    let problem = guarded.get("/v1/runs", &foreign).await.problem(503, "keys_unavailable");
    assert_eq!(problem["retryAfter"], 5);
    guarded.get("/v1/runs", &admin()).await.ok();
    guarded.client.get("/v1/runs").await.problem(401, "unauthenticated");
    let mut ws = Ws::open(&guarded.client).await;
    assert_eq!(ws.request(json!({ "op": "auth", "id": 1, "token": foreign })).await["code"], "keys_unavailable");
}

#[tokio::test]
async fn the_server_starts_without_its_provider_and_refuses_what_can_never_work() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let dir = tempfile::tempdir().unwrap();
    let mut command = Process::command(dir.path(), "warn");
    command.args(["--auth-issuer", &issuer]).stderr(std::process::Stdio::piped());
    let mut server = Process::spawn(command);
    let client = crate::harness::Client::new(server.at);
    client.get("/v1/runs").await.problem(401, "unauthenticated");
    let token = super::signed(SECRET, &json!({ "sub": "carol", "exp": now() + 3600 }), Some("new"));
    client.get_with("/v1/runs", &[("authorization", &bearer(&token))]).await.problem(503, "keys_unavailable");
    server.terminate();
    let log = server.take_log();
    assert_eq!(log.matches("cannot fetch from the identity provider").count(), 1, "{log}");
    assert!(log.contains(&issuer), "{log}");
    for (flags, why) in [
        (&["--auth-issuer", "a name"][..], "--auth-issuer: \"a name\" is not a URL"),
        (&["--auth-jwks", "http://login.example/keys"], "not protected by TLS"),
        (&["--auth-claim", "groups=ops:can=fly"], "unknown variant `fly`"),
        (&["--auth-claim", "groups=ops"], "\"groups\" is not a member of a mapping"),
        (&["--auth-claim", "sessions={org}*"], "put a separator before the *"),
        (&["--auth-proxy-header", "x-user"], "--auth-proxy-secret"),
        (&["--auth-proxy-header", "x-user", "--auth-proxy-secret", "/nowhere"], "/nowhere: No such file"),
    ] {
        let refused = crate::cli::run(&mut crate::cli::proscenium(&[&["serve", "--store", "memory"], flags].concat()));
        let text = crate::cli::stderr(&refused);
        assert!(!refused.status.success() && text.contains(why), "{flags:?}: {text}");
    }
}

//! The `OpenAPI` description matches the server.
//!
//! Every served address is described, and every described address is served.
//!
//! The router is built from the same table as the description, and in tests the server panics on an answer, or on a
//! query member that it reads, without a row. These tests check the other direction: every member, status and code of
//! each row occurs.

use crate::harness::{
    Client, Response, fact, repository, start_local, start_local_in, start_local_node, start_local_with, with_timeout,
};
use http::Method;
use proscenium::attachments::ATTACHMENT_BYTES_MAX;
use proscenium::feed::FeedConfig;
use proscenium::serve::Limits;
use proscenium::serve::contract::kinds::{KINDS, ProblemKind};
use proscenium::serve::contract::members::{self, ParameterLocation};
use proscenium::serve::contract::openapi::document;
use proscenium::serve::contract::operations::{
    self, CONNECTION_PROBLEMS, Content, NO_ADDRESS_PROBLEMS, OBSERVER, OPERATIONS, Observer, Operation, SOCKET_PROBLEMS,
};
use proscenium::serve::contract::shapes::SHAPES;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Codes that no request in this file can cause, and their reason or their test.
const TESTED_ELSEWHERE: &[(&str, &str)] = &[
    ("internal_error", "needs a bug in the server"),
    ("store_failed", "needs a store that fails"),
    ("stored_state_unreadable", "`supervision` damages a store"),
    ("archive_unavailable", "`archive`"),
    ("stopping", "needs a server that stops during a request"),
    ("too_many_producers", "needs ten thousand requests"),
    ("unauthenticated", "`auth` requests every address without a token"),
    ("forbidden", "`auth` requests every address with an insufficient token"),
    ("quota_exceeded", "`auth::owners`"),
    ("other_owner", "`auth::owners`"),
    ("keys_unavailable", "`auth`"),
    ("busy", "`limits`"),
    ("publish_rate", "`limits`"),
    ("body_silent", "`limits`"),
    ("body_too_slow", "`limits`"),
    ("disk_full", "`limits`"),
    ("too_many_runs", "`limits`"),
    ("too_many_subjects", "`limits`"),
    ("session_too_large", "`listing`"),
    ("too_many_controls", "`control`"),
    ("too_many_secrets", "`connect::user_headers`"),
    ("too_many_tickets", "`auth`"),
    ("approval_not_counted", "`waits`"),
    ("too_many_attachments", "`attachments`"),
    ("too_much_feedback", "`auth::feedback`"),
    ("too_many_webhooks", "`webhooks`"),
    ("too_many_backups", "`backup_online`"),
    ("too_many_devices", "`push`"),
    ("too_many_push_addresses", "`a2a_push`"),
    ("webhook_configured", "`webhooks`"),
    ("too_many_links", "`auth::links`"),
    ("erased", "`erase_sessions`"),
    ("compacted", "`counted`"),
    ("activities_too_large", "`durable`"),
    ("has_children", "`erase_sessions`"),
    ("held", "`retention_rules`"),
    ("erasure_under_way", "`retention_rules`"),
    ("too_many_holds", "`retention_rules`"),
    ("has_branches", "`branches`"),
    ("too_many_branches", "`branches`"),
    ("link_rate", "`auth::links`"),
    ("link_has_decided", "`auth::links`"),
    ("too_many_connections_of_token", "`auth`"),
    ("control_refused", "`clients`, in a stream"),
    ("control_expired", "`clients`, in a stream"),
    ("no_leader", "`cluster`"),
    ("behind", "needs a node that is cut off"),
    ("not_following", "needs a node that is cut off"),
];

/// Answers that no request in this file can cause in time, and their test.
const ANSWERED_ELSEWHERE: &[(&str, u16, &str)] = &[("readSession", 204, "`durable`, on a clock that it sets forward")];

thread_local! {
    /// The answers sent, and the query members read per path.
    ///
    /// A test's server runs on the test's own thread.
    static ANSWERED: RefCell<BTreeSet<(&'static str, u16, &'static str)>> = const { RefCell::new(BTreeSet::new()) };
    static READ: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

fn install_observer() {
    OBSERVER.get_or_init(|| Observer {
        on_response: |operation, status, code| {
            ANSWERED.with_borrow_mut(|seen| seen.insert((operation.id, status.as_u16(), code.unwrap_or_default())));
        },
        on_query_read: |_, member| {
            READ.with_borrow_mut(|seen| seen.insert(member.to_owned()));
        },
    });
}

/// Returns an operation's address, with `name` in place of its path parameters.
fn address(operation: &Operation, name: &str) -> String {
    let part = |segment: &str| if segment.starts_with('{') { name.to_owned() } else { segment.to_owned() };
    operation.path.split('/').map(part).collect::<Vec<_>>().join("/")
}

async fn send_request(client: &Client, operation: &Operation, path: &str, headers: &[(&str, &str)]) -> Response {
    match operation.method {
        // A stream does not end: its head is enough.
        Method::GET => client.get_head(path, headers).await,
        Method::DELETE => client.delete(path).await,
        ref method => {
            let body = if operation.accepts_ids { "[]" } else { "{}" };
            client.request(method.clone(), path, headers, body).await
        }
    }
}

/// Sends these parts on a new connection, and reads until the server closes it.
async fn send_raw(client: &Client, parts: &[&str]) -> String {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    for part in parts {
        socket.write_all(part.as_bytes()).await.unwrap();
    }
    socket.shutdown().await.unwrap();
    let mut response = Vec::new();
    with_timeout("the response", socket.read_to_end(&mut response)).await.unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

/// A request for a WebSocket, with more lines in its head.
fn upgrade_at(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

#[tokio::test]
async fn every_described_status_and_code_occurs() {
    install_observer();
    let client = start_local().await;
    let large = "x".repeat(100_000);
    let facts = [
        fact("run.started", json!({"sessionId": "s"})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "t", "input": large}})),
        fact("run.finished", json!({})),
    ];
    client.append("r", &facts).await;
    let event = client.read_events("r", "audience=internal", 10).await;
    let blob =
        event.iter().find_map(|event| event["refs"][0]["href"].as_str()).expect("the run has an offloaded body").to_owned();
    let (_, blob) = blob.rsplit_once('/').unwrap();

    // Requests to every address, and every error in its parameters.
    for operation in OPERATIONS {
        let name = match operation.path {
            "/schema/{*file}" => "frames.schema.json",
            "/assets/{*file}" => "app.js",
            "/docs/{*page}" => "guides/ask",
            "/v1/blobs/{blob}" => blob,
            path if path.starts_with("/v1/sessions/") || path.starts_with("/copilotkit/threads/") => "s",
            _ => "r",
        };
        let named = match operation.id {
            "streamRuns" => "runs=r&",
            "streamLists" => "attention=true&sessions=true&",
            _ => "",
        };
        if operation.method != Method::DELETE {
            send_request(&client, operation, &format!("{}?{named}audience=internal", address(operation, name)), &[]).await;
        }
        for kind in operation.problems() {
            let to = |query: &str| format!("{}?{query}", address(operation, name));
            match kind.code {
                "bad_id" => {
                    let _ = match operation.path {
                        "/v1/stream" => send_request(&client, operation, "/v1/stream?runs=%00", &[]).await,
                        "/v1/attention" => send_request(&client, operation, "/v1/attention?agentId=%00", &[]).await,
                        "/v1/sessions" => send_request(&client, operation, "/v1/sessions?owner=%00", &[]).await,
                        "/copilotkit/threads" => send_request(&client, operation, "/copilotkit/threads?agentId=%00", &[]).await,
                        "/v1/lists/stream" => {
                            send_request(&client, operation, "/v1/lists/stream?attention=true&agentId=%00", &[]).await
                        }
                        _ => send_request(&client, operation, &address(operation, "%00"), &[]).await,
                    };
                }
                "bad_audience" => drop(send_request(&client, operation, &to("runs=r&audience=unknown"), &[]).await),
                "bad_cursor" => {
                    let query = "runs=r&after=x&cursor=x&offset=x";
                    drop(send_request(&client, operation, &to(query), &[("last-event-id", "x")]).await);
                    // Addresses with query parameters only.
                    drop(send_request(&client, operation, &to(query), &[]).await);
                }
                // Without an error, it would erase.
                "bad_query" if operation.method == Method::DELETE => {
                    drop(send_request(&client, operation, &to("children=x&wait=x"), &[]).await);
                }
                "bad_query" => {
                    drop(send_request(&client, operation, &to("surfaces=x"), &[]).await);
                    drop(
                        send_request(
                            &client,
                            operation,
                            &to("limit=x&messages=x&at=x&frames=x&cursor=x&wait=x&version=x&since=x"),
                            &[],
                        )
                        .await,
                    );
                }
                "no_such_run" | "no_such_session" | "no_such_schema" | "no_such_asset" | "no_such_blob" | "no_such_page" => {
                    drop(send_request(&client, operation, &address(operation, "never"), &[]).await);
                }
                "not_served" => drop(send_request(&client, operation, &to("runs=r&format=morse"), &[]).await),
                "epoch_changed" => {
                    drop(send_request(&client, operation, &to("after=0123456789abcdef:4&at=0123456789abcdef:4"), &[]).await);
                    drop(send_request(&client, operation, &to("offset=0123456789abcdef_00000000000000000004"), &[]).await);
                }
                "unknown_source" => drop(send_request(&client, operation, &to("source=moon"), &[]).await),
                "bad_producer" => drop(send_request(&client, operation, &to(""), &[("producer-id", "p")]).await),
                // Without an error, it would erase.
                "unsupported_media_type" if operation.method == Method::DELETE => {}
                "unsupported_media_type" => {
                    drop(send_request(&client, operation, &to(""), &[("content-type", "text/plain")]).await);
                }
                "foreign_origin" if operation.method == Method::DELETE => {
                    send_raw(
                        &client,
                        &[&format!(
                            "DELETE {} HTTP/1.1\r\nhost: localhost\r\norigin: http://a\r\nconnection: close\r\n\r\n",
                            to("")
                        )],
                    )
                    .await;
                }
                "unknown_host" if operation.method == Method::DELETE => {
                    send_raw(&client, &[&format!("DELETE {} HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n", to(""))])
                        .await;
                }
                "unknown_host" => drop(send_request(&client, operation, &to(""), &[("host", "elsewhere.example")]).await),
                "foreign_origin" => drop(send_request(&client, operation, &to(""), &[("origin", "http://elsewhere")]).await),
                "bad_range" => {
                    drop(send_request(&client, operation, &to("audience=internal"), &[("range", "bytes=9999999-")]).await);
                }
                _ => {}
            }
        }
    }

    // Errors of facts.
    for path in ["/v1/runs/f/facts", "/v1/sessions/f/facts"] {
        let long = "i".repeat(256);
        let many = |count: usize| format!("[{}]", vec!["{\"type\":\"x\"}"; count].join(","));
        client.post(path, &[], many(65_537)).await.problem(413, "too_many_facts");
        let ids = format!("{path}?turnId={long}&taskId={long}&messageId={long}&partId={long}");
        client.post(&ids, &[], many(65_536)).await.problem(413, "envelopes_too_large");
        let deep = format!("[{}{}]", "[".repeat(70), "]".repeat(70));
        for body in ["{", "[1]", "[{}]", r#"[{"type":"tool.started","toolCallId":""}]"#, &deep] {
            client.post(path, &[], body.to_owned()).await;
        }
        client.post_lines(path, "{\n").await;
        let numbered =
            |epoch: &'static str, seq: &'static str| [("producer-id", "p"), ("producer-epoch", epoch), ("producer-seq", seq)];
        let body = json!([fact("run.started", json!({}))]).to_string();
        client.post(path, &numbered("1", "5"), body.clone()).await.problem(409, "producer_gap");
        client.post(path, &numbered("2", "0"), body.clone()).await.ok();
        client.post(path, &numbered("1", "0"), body).await.problem(403, "producer_fenced");
        let cut = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nexpect: nothing\r\ncontent-length: 100\r\n\r\n[");
        send_raw(&client, &[&cut]).await;
    }
    let small = Limits { fact_bytes_max: 1000, body_bytes_max: 2000, ..Limits::default() };
    let small = start_local_with(FeedConfig::default(), small).await;
    for path in ["/v1/runs/f/facts", "/v1/sessions/f/facts"] {
        for bytes in [1500, 2500] {
            let body = json!([fact("text.delta", json!({"payload": {"text": "x".repeat(bytes)}}))]).to_string();
            small.post(path, &[], body).await;
        }
    }
    exercise_erasure_during_a_body(&client).await;
    exercise_controls(&client).await;
    exercise_clients(&client, &small).await;
    for body in ["{", r#"{"for":"stream"}"#, r#"{"for":"stream","run":""}"#, &format!("{{\"for\":\"{}\"}}", "x".repeat(5000))] {
        client.post("/v1/tickets", &[], body.to_owned()).await;
    }
    exercise_links(&client).await;
    exercise_push(&client).await;
    exercise_session_updates(&client).await;
    exercise_attachments(&client).await;
    exercise_backup(&client).await;
    exercise_branches(&client).await;
    exercise_feedback(&client).await;
    exercise_holds(&client).await;
    exercise_copilot_threads(&client, &small).await;
    exercise_a2a(&client, &small).await;
    let [made, ..] = exercise_webhooks(&client).await;
    let webhook = format!("/v1/webhooks/{}", made["id"].as_str().expect("the webhook has an id"));
    let redelivery = format!("{webhook}/redeliver");
    let of_controls = ["/v1/runs/r/controls", "/v1/sessions/s/controls", "/v1/controls/c/ack", "/v1/controls/c/nack"];
    let posted = ["/v1/tickets", "/v1/links", "/v1/links/exchange", "/v1/webhooks", &redelivery];
    let posted = of_controls.into_iter().chain(posted).map(|path| format!("POST {path}"));
    let sent = [
        "PUT /v1/push",
        "DELETE /v1/push",
        "PATCH /v1/sessions/s",
        "PUT /v1/sessions/s/marks",
        "PUT /v1/sessions/s/hold",
        "PUT /v1/owners/o/hold",
        "POST /v1/retention/dry-run",
        "POST /v1/sessions/s/attachments",
        "POST /v1/sessions/s/branches",
        "POST /v1/runs/r/feedback",
        "POST /v1/backup",
    ];
    for request in posted.chain(sent.map(str::to_owned)) {
        send_raw(&client, &[&format!("{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{")]).await;
    }

    for path in ["/v1/runs/r/durable", "/v1/sessions/s/durable"] {
        client.get_with(path, &[("if-none-match", "*")]).await;
    }
    client.get("/v1/runs/r/durable?offset=now&live=long-poll").await;
    // A stream whose end was read, a part of a body, a WebSocket handshake and a malformed one, and the end of a run.
    let end = client
        .open_activities("r", "", None)
        .await
        .read_all()
        .await
        .pop()
        .and_then(|last| last.id)
        .expect("the end has a cursor");
    client.get(&format!("/v1/runs/r/stream?after={end}")).await;
    client.get_with(&format!("/v1/blobs/{blob}?audience=internal"), &[("range", "bytes=0-3")]).await;
    for path in ["/", "/assets/app.js", "/push-worker.js", "/embed.js", "/docs", "/docs/", "/docs/guides/ask.md", "/llms.txt"] {
        client.get_with(path, &[("if-none-match", "*")]).await;
    }
    for path in ["/v1/ws", "/acp"] {
        for more in ["", "origin: http://elsewhere\r\n", "sec-websocket-protocol: telex\r\n"] {
            send_raw(&client, &[&upgrade_at(path, more)]).await;
        }
        send_raw(&client, &[&upgrade_at(path, "").replace("localhost", "elsewhere")]).await;
        client.get(path).await;
        if path == "/acp" {
            for query in ["agentId=%00", "audience=all", "owner=*"] {
                send_raw(&client, &[&upgrade_at(&format!("/acp?{query}"), "")]).await;
            }
        }
    }
    client.get("/readyz?for=x").await;
    client.delete("/v1/runs/r").await;
    client.append("e", &[fact("run.started", json!({"sessionId": "erased"}))]).await;
    assert_eq!(client.delete("/v1/sessions/erased").await.status, 204);
    assert_eq!(client.delete("/v1/owners/nothing?wait=0").await.status, 202);
    assert_eq!(client.delete("/v1/owners/nothing").await.status, 204);
    assert_eq!(client.delete(&webhook).await.status, 204);
    client.delete(&webhook).await.problem(404, "no_such_webhook");
    start_local_node().await.get("/v1/cluster").await.ok();

    let met = ANSWERED.with_borrow(Clone::clone);
    let mut unmet = Vec::new();
    for operation in OPERATIONS {
        let problems = operation.problems();
        let problems = problems.iter().filter(|kind| TESTED_ELSEWHERE.iter().all(|(code, _)| *code != kind.code));
        let answers = operation.responses.iter().map(|answer| (operation.id, answer.status, ""));
        let answers =
            answers.filter(|(id, status, _)| ANSWERED_ELSEWHERE.iter().all(|(of, known, _)| (of, known) != (id, status)));
        let described = answers.chain(problems.map(|kind| (operation.id, kind.status, kind.code)));
        unmet.extend(described.filter(|described| !met.contains(described)));
    }
    assert!(unmet.is_empty(), "described, but never sent: {unmet:#?}");
}

/// A time within a link's longest life.
fn tomorrow() -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24)).to_string()
}

/// A subscription of a device that hears of nothing: no message of a test leaves this machine.
fn silent_subscription(device: &str) -> Value {
    let keys = json!({
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    });
    json!({ "endpoint": format!("https://fcm.googleapis.com/fcm/send/{device}"), "keys": keys, "events": [] })
}

/// Subscribes devices, renews and ends their subscriptions, with and without errors. Returns one that is left.
async fn exercise_push(client: &Client) -> Value {
    let put = async |body: &str| client.request(Method::PUT, "/v1/push", &[], body.to_owned()).await;
    let end = async |body: &str| client.request(Method::DELETE, "/v1/push", &[], body.to_owned()).await;
    for call in [put("{").await, end("{").await] {
        call.problem(400, "not_json");
    }
    let long = format!("{{\"endpoint\":\"{}\"}}", "x".repeat(300_000));
    for call in [put(&long).await, end(&long).await] {
        call.problem(413, "body_too_large");
    }
    for call in [put("{}").await, end("{}").await] {
        call.problem(422, "bad_member");
    }
    let [first, second] = ["first", "second"].map(|device| silent_subscription(device).to_string());
    assert_eq!([put(&first).await.status, put(&first).await.status, put(&second).await.status], [201, 200, 201]);
    assert_eq!(end(&second).await.status, 204);
    end(&second).await.problem(404, "no_such_subscription");
    put(&first).await.ok()
}

/// Makes, opens and revokes links, with and without errors. Returns the answers.
async fn exercise_links(client: &Client) -> [Value; 4] {
    let make = async |target: &str, id: &str| {
        client.post("/v1/links", &[], json!({ target: id, "until": tomorrow() }).to_string()).await
    };
    make("runId", "never").await.problem(404, "no_such_run");
    make("sessionId", "never").await.problem(404, "no_such_session");
    make("runId", "").await.problem(400, "bad_id");
    for path in ["/v1/links", "/v1/links/exchange"] {
        client.post(path, &[], "{").await.problem(400, "not_json");
        client.post(path, &[], format!("{{\"secret\":\"{}\"}}", "x".repeat(20_000))).await.problem(413, "body_too_large");
    }
    let made = make("runId", "r").await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let (_, secret) = made["url"].as_str().unwrap().split_once('=').unwrap();
    let opened = client.post("/v1/links/exchange", &[], json!({ "secret": secret }).to_string()).await.ok();
    let listed = client.get("/v1/links").await.ok();
    assert_eq!(client.delete(&format!("/v1/links/{}", made["id"].as_str().unwrap())).await.status, 204);
    client.post("/v1/links/exchange", &[], json!({ "secret": secret }).to_string()).await.problem(404, "no_such_link");
    client.delete("/v1/links/never").await.problem(404, "no_such_link");
    let link = listed["links"][0].clone();
    [made, opened, listed, link]
}

/// Sets and lifts holds and looks at rules, with and without errors. Returns answers.
async fn exercise_holds(client: &Client) -> [Value; 3] {
    let put = async |path: &str, body: &str| client.request(Method::PUT, path, &[], body.to_owned()).await;
    let reason = json!({ "reason": "Case 1" }).to_string();
    put("/v1/sessions/never/hold", &reason).await.problem(404, "no_such_session");
    for path in ["/v1/sessions/s/hold", "/v1/owners/o/hold"] {
        put(path, "{").await.problem(400, "not_json");
        put(path, "{}").await.problem(422, "bad_member");
        put(path, &" ".repeat(17 * 1024)).await.problem(413, "body_too_large");
        put(path, &reason).await.ok();
    }
    let post = async |body: String| client.post("/v1/retention/dry-run", &[], body).await;
    post("{".into()).await.problem(400, "not_json");
    post(" ".repeat(257 * 1024)).await.problem(413, "body_too_large");
    post(json!({ "rules": 1 }).to_string()).await.problem(422, "bad_member");
    let rule = json!({ "owner": "a", "status": "failed", "after": "1s", "then": "erase" });
    let due = post(json!({ "rules": [rule] }).to_string()).await.ok();
    let listed = client.get("/v1/holds").await.ok();
    for path in ["/v1/sessions/s/hold", "/v1/owners/o/hold"] {
        assert_eq!(client.delete(path).await.status, 204);
        client.delete(path).await.problem(404, "no_such_hold");
    }
    [listed["holds"][0].clone(), listed, due]
}

/// Reads a backup, with and without errors.
async fn exercise_backup(client: &Client) {
    let (path, dir) = ("/v1/backup", tempfile::tempdir().unwrap());
    client.post(path, &[], "{").await.problem(400, "not_json");
    client.post(path, &[], r#"{"have":1}"#).await.problem(400, "bad_query");
    client.post(path, &[], r#"{"bytesPerSecond":0}"#).await.problem(400, "bad_query");
    client.post(path, &[], vec![b' '; 16 * 1024 * 1024 + 1]).await.problem(413, "body_too_large");
    client.post(path, &[], "{}").await.problem(409, "no_files");
    // The server ends after this function.
    let backup = start_local_in(&dir.keep()).await.post(path, &[], "{}").await;
    assert_eq!(backup.status, 200);
    assert!(backup.body.ends_with(b"{\"end\":true}\n"));
}

/// Attaches files to a session, with and without errors. Returns an answer.
async fn exercise_attachments(client: &Client) -> Value {
    let path = "/v1/sessions/s/attachments";
    client.post(path, &[], "").await.problem(400, "empty_body");
    client.post(&format!("{path}?name=a%0Ab"), &[], "x").await.problem(400, "bad_query");
    client.post(path, &[("content-type", "x")], "x").await.problem(415, "unsupported_media_type");
    client.post(path, &[], vec![1; ATTACHMENT_BYTES_MAX + 1]).await.problem(413, "body_too_large");
    let added = client.post(&format!("{path}?name=a.png"), &[("content-type", "image/png")], "x").await;
    assert_eq!(added.status, 201, "{added:?}");
    added.json()
}

/// Branches off a session, with and without errors. Returns the request and its answer.
async fn exercise_branches(client: &Client) -> [Value; 3] {
    let facts = [fact("run.started", json!({})), fact("run.finished", json!({}))];
    client
        .post("/v1/runs/branched/facts?sessionId=tree", &[("content-type", "application/json")], json!(facts).to_string())
        .await
        .ok();
    let path = "/v1/sessions/tree/branches";
    let send = async |body: Value| client.post(path, &[], body.to_string()).await;
    send(json!({})).await.problem(422, "bad_member");
    client.post(path, &[], "{").await.problem(400, "not_json");
    client.post(path, &[], " ".repeat(17 * 1024)).await.problem(413, "body_too_large");
    let nowhere = json!({ "after": { "runId": "branched", "sequence": 1 } });
    client.post("/v1/sessions/never/branches", &[], nowhere.to_string()).await.problem(404, "no_such_session");
    send(json!({ "after": { "runId": "branched", "sequence": 99 } })).await.problem(404, "no_such_point");
    send(json!({ "after": { "messageId": "none" } })).await.problem(404, "no_such_message");
    let wanted = json!({ "after": { "runId": "branched", "sequence": 1 }, "sessionId": "tree-branch" });
    let begun = send(wanted.clone()).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    send(json!({ "after": { "runId": "branched", "sequence": 2 }, "sessionId": "tree-branch" }))
        .await
        .problem(409, "session_exists");
    let shell = client.get("/v1/sessions/tree").await.ok();
    [wanted, begun.json(), shell["branches"][0].clone()]
}

/// Gives feedback, with and without errors. Returns the answers.
async fn exercise_feedback(client: &Client) -> [Value; 2] {
    let path = "/v1/runs/r/feedback";
    client.post(path, &[], "{").await.problem(400, "not_json");
    client.post(path, &[], " ".repeat(65 * 1024)).await.problem(413, "body_too_large");
    client.post(path, &[], r#"{"thumb":"left"}"#).await.problem(422, "bad_member");
    client.post(path, &[], r#"{"thumb":"up","messageId":"never"}"#).await.problem(404, "no_such_message");
    client.post("/v1/runs/never/feedback", &[], r#"{"thumb":"up"}"#).await.problem(404, "no_such_run");
    let given = client.post(path, &[], r#"{"thumb":"up","text":"Good"}"#).await;
    assert_eq!(given.status, 201, "{given:?}");
    assert_eq!(client.post(path, &[], r#"{"thumb":"up","text":"Good"}"#).await.status, 200);
    [given.json(), client.get(&format!("{path}?activation=1")).await.ok()]
}

/// Renames and marks a session, with and without errors. Returns the answers.
async fn exercise_session_updates(client: &Client) -> [Value; 2] {
    let (session, marks) = ("/v1/sessions/s", "/v1/sessions/s/marks");
    for (method, path) in [(Method::PATCH, session), (Method::PUT, marks)] {
        let send = async |body: String| client.request(method.clone(), path, &[], body).await;
        send("{".into()).await.problem(400, "not_json");
        send(" ".repeat(17 * 1024)).await.problem(413, "body_too_large");
    }
    client.patch("/v1/sessions/never", &json!({ "title": "T" })).await.problem(404, "no_such_session");
    client.put("/v1/sessions/never/marks", &json!({ "pinned": true })).await.problem(404, "no_such_session");
    client.put(marks, &json!({ "readTo": "x" })).await.problem(400, "bad_cursor");
    client.put(marks, &json!({ "pinned": true })).await.problem(409, "marks_need_token");
    let renamed = client.patch(session, &json!({ "title": "T" })).await.ok();
    assert_eq!(client.get("/v1/sessions/s/export").await.status, 200);
    // Only a server with authentication keeps marks.
    let (guarded, _files) = crate::auth::start_as_admin().await;
    guarded.append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
    let page = guarded.get("/v1/sessions/s/events").await.ok();
    [renamed, guarded.put(marks, &json!({ "pinned": true, "readTo": page["cursors"][0] })).await.ok()]
}

/// Reads, changes and erases threads of CopilotKit, with and without errors. Returns the answers, by their shapes.
async fn exercise_copilot_threads(client: &Client, small: &Client) -> Vec<(&'static str, Value)> {
    let json = [("content-type", "application/json")];
    let call = |kind: &str, payload: Value| fact(kind, json!({ "toolCallId": "c", "audience": "user", "payload": payload }));
    let facts = [
        fact("run.started", json!({ "sessionId": "thread", "agentId": "a" })),
        call("tool.started", json!({ "toolName": "t", "input": { "a": 1 } })),
        call("tool.result", json!({ "output": "x" })),
        fact("state.snapshot", json!({ "audience": "user", "payload": { "state": { "n": 1 } } })),
    ];
    client.append("of-thread", &facts).await;
    let (thread, archive) = ("/copilotkit/threads/thread", "/copilotkit/threads/thread/archive");
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(70), "]".repeat(70));
    for (method, path) in [(Method::PATCH, thread), (Method::DELETE, thread), (Method::POST, archive)] {
        for (body, status, code) in [
            ("{", 400, "not_json"),
            ("[]", 422, "not_an_object"),
            (&*deep, 422, "too_deep"),
            (r#"{"agentId":7}"#, 422, "bad_member"),
        ] {
            client.request(method.clone(), path, &json, body.to_owned()).await.problem(status, code);
        }
        let text = [("content-type", "text/plain")];
        client.request(method.clone(), path, &text, "{}").await.problem(415, "unsupported_media_type");
        let large = format!("\"{}\"", "x".repeat(3000));
        small.request(method.clone(), path, &json, large).await.problem(413, "body_too_large");
        send_raw(client, &[&format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{")]).await;
    }
    client.patch("/copilotkit/threads/never", &json!({ "name": "N" })).await.problem(404, "no_such_session");
    let calling = async |client: &Client, method: &str, path: &str| {
        let call = json!({ "method": "resource/request", "params": { "path": path, "httpMethod": method } });
        client.post("/copilotkit", &json, call.to_string()).await
    };
    calling(client, "GET", "/threads?cursor=x").await.problem(400, "bad_query");
    calling(client, "GET", "/threads/%00/messages").await.problem(400, "bad_id");
    calling(client, "DELETE", "/threads/never").await.problem(404, "no_such_session");
    calling(client, "POST", "/threads/subscribe").await.problem(422, "no_live_list");
    let read = async |what: &str| client.get(&format!("{thread}/{what}")).await.ok();
    let answers = vec![
        ("CopilotThreads", client.get("/copilotkit/threads?agentId=a").await.ok()),
        ("CopilotMessages", read("messages").await),
        ("CopilotEvents", read("events").await),
        ("CopilotState", read("state").await),
        ("CopilotThread", client.patch(thread, &json!({ "agentId": "a", "name": "N" })).await.ok()),
        ("CopilotThreadArchived", client.post(archive, &json, r#"{"agentId":"a"}"#).await.ok()),
        ("CopilotThreadDeleted", client.request(Method::DELETE, thread, &json, r#"{"agentId":"a"}"#).await.ok()),
    ];
    // Only a server with authentication knows whose threads it has.
    let (guarded, _files) = crate::auth::start_as_admin().await;
    assert_eq!(guarded.post("/copilotkit/threads/clear", &[], "").await.status, 204);
    assert_eq!(calling(&guarded, "POST", "/threads/clear").await.status, 204);
    answers
}

/// Sends the requests of another agent, with and without errors. `small` accepts small bodies only.
async fn exercise_a2a(client: &Client, small: &Client) -> Vec<(&'static str, Value)> {
    let json = [("content-type", "application/json")];
    small.post("/a2a/a", &json, format!("\"{}\"", "x".repeat(3000))).await.problem(413, "body_too_large");
    send_raw(client, &["POST /a2a/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"]).await;
    client.append("of-task", &[fact("run.started", json!({ "sessionId": "of-task" })), fact("run.finished", json!({}))]).await;
    let mut answers = vec![("A2aCard", client.get("/a2a/a/.well-known/agent-card.json").await.ok())];
    for call in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": { "id": "of-task" } }),
        json!({ "jsonrpc": "2.0", "id": "x", "method": "GetTask", "params": { "id": "never" } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "ListTasks" }),
    ] {
        answers.push(("A2aAnswer", client.post("/a2a/a", &json, call.to_string()).await.ok()));
    }
    answers
}

/// A question whose deadline has passed, one that changed, and one that can be decided.
fn questions() -> Value {
    let asks = |action: &str, payload: Value| fact("action.required", json!({"actionId": action, "payload": payload}));
    json!([
        asks("late", json!({"kind": "tool_approval", "expiresAt": "2026-01-01T00:00:00Z"})),
        asks("changed", json!({"kind": "tool_approval", "message": "One?"})),
        asks("changed", json!({"kind": "tool_approval", "message": "Two?"})),
        asks("taken", json!({"kind": "tool_approval"})),
    ])
}

/// Messages to an agent that waits for a decision, and withdrawals.
async fn exercise_messages_over_a_question(client: &Client) {
    let ids = json!({ "agentId": "asker", "sessionId": "asked" });
    client.append("asking", &[fact("run.started", ids), fact("action.required", json!({ "actionId": "over" }))]).await;
    let body = |control: &str| json!({ "control": control, "agentId": "asker", "value": "x", "controlId": control }).to_string();
    for path in ["/v1/runs/asking/controls", "/v1/sessions/asked/controls"] {
        client.post(path, &[], body("send")).await.problem(409, "would_supersede");
    }
    client.post("/v1/sessions/asked/controls", &[], body("queue")).await;
    client.post("/v1/sessions/asked/controls", &[], body("delegate")).await;
    client.post("/v1/agents/asker/controls/claim", &[], "").await.ok();
    client.delete("/v1/controls/delegate").await.problem(409, "control_claimed");
    assert_eq!(client.delete("/v1/controls/queue").await.status, 204);
    client.delete("/v1/controls/queue").await.problem(404, "no_such_control");
}

/// Makes a webhook whose address is refused, and sends a message to it: the webhook, a test, its deliveries, and one that
/// is repeated.
async fn exercise_webhooks(client: &Client) -> [Value; 4] {
    let json_body = [("content-type", "application/json")];
    let wanted = json!({ "url": "http://localhost:9/", "events": ["run.waiting"] }).to_string();
    let made = client.post("/v1/webhooks", &json_body, wanted).await.json();
    let path = format!("/v1/webhooks/{}", made["id"].as_str().expect("the webhook has an id"));
    let tested = client.post(&format!("{path}/test"), &[], "").await.ok();
    client.append("told", &[fact("run.started", json!({})), fact("action.required", json!({ "actionId": "told" }))]).await;
    let deliveries = with_timeout("the attempt", async {
        loop {
            let listed = client.get(&format!("{path}/deliveries?limit=1")).await.ok();
            if listed["deliveries"][0]["last"].is_object() {
                return listed;
            }
        }
    })
    .await;
    let again = json!({ "deliveryId": deliveries["deliveries"][0]["id"] }).to_string();
    let repeated = client.post(&format!("{path}/redeliver"), &json_body, again).await;
    assert_eq!(repeated.status, 202);
    for to in ["", "/redeliver"] {
        let path = if to.is_empty() { "/v1/webhooks".to_owned() } else { format!("{path}{to}") };
        client.post(&path, &json_body, "[").await.problem(400, "not_json");
        client.post(&path, &json_body, "{}").await.problem(422, "bad_member");
        client.post(&path, &json_body, " ".repeat(65 * 1024)).await.problem(413, "body_too_large");
    }
    let none = json!({ "deliveryId": "none" }).to_string();
    client.post(&format!("{path}/redeliver"), &json_body, none).await.problem(404, "no_such_delivery");
    [made, tested, deliveries, repeated.json()]
}

/// Submits, claims and settles controls, with and without errors.
async fn exercise_controls(client: &Client) {
    exercise_messages_over_a_question(client).await;
    let json = [("content-type", "application/json")];
    let started = fact("run.started", json!({"sessionId": "cs"}));
    client.append("c", std::slice::from_ref(&started)).await;
    client.append("over", &[started, fact("run.finished", json!({}))]).await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(70), "]".repeat(70));
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(2_000_000));
    let bad = ["{".to_owned(), "[]".to_owned(), deep, large];
    let steer = |id: &str, control: &str, value: &str| json!({ "controlId": id, "control": control, "value": value }).to_string();
    for (path, other) in
        [("/v1/runs/c/controls", "/v1/runs/never/controls"), ("/v1/sessions/cs/controls", "/v1/sessions/never/controls")]
    {
        for body in bad.clone() {
            client.post(path, &json, body).await;
        }
        client.post(other, &json, steer("o", "rollback", "x")).await;
        client.post(path, &json, r#"{"control":"approve","actionId":"none"}"#).await;
        for value in ["x", "y"] {
            client.post(path, &json, steer(path, "delegate", value)).await;
        }
        client.get(path).await.ok();
    }
    client.post("/v1/runs/over/controls", &json, steer("late", "steer", "x")).await.problem(409, "run_ended");
    for how in ["ack", "nack"] {
        let claimed = client.post("/v1/agents/default/controls/claim?max=1", &[], "").await.ok();
        let control = &claimed["controls"][0];
        let id = control["controlId"].as_str().expect("the control has an id").replace('/', "%2F");
        for body in bad
            .clone()
            .into_iter()
            .chain([json!({ "lease": "another" }).to_string(), json!({ "lease": control["lease"] }).to_string()])
        {
            client.post(&format!("/v1/controls/{id}/{how}"), &json, body).await;
        }
    }
    // A pending action holds messages back, so these come last.
    for path in ["/v1/runs/c/controls", "/v1/sessions/cs/controls"] {
        client.post(&path.replace("controls", "facts"), &json, questions().to_string()).await.ok();
        client.post(path, &json, r#"{"control":"approve","actionId":"late"}"#).await.problem(409, "action_expired");
        let outdated = r#"{"control":"approve","actionId":"changed","seenSequence":0}"#;
        client.post(path, &json, outdated).await.problem(409, "action_changed");
    }
}

/// Sends the requests of existing clients, with and without errors. `small` accepts small bodies only.
async fn exercise_clients(client: &Client, small: &Client) {
    let json = [("content-type", "application/json")];
    // The run with decisions continues; the other one has ended, so that its streams end.
    let started = fact("run.started", json!({"sessionId": "live"}));
    client.append("live", std::slice::from_ref(&started)).await;
    let asked = json!({ "messageId": "hello", "payload": { "role": "user", "text": "Hello" } });
    let ended = [fact("run.started", json!({"sessionId": "done"})), fact("text.final", asked), fact("run.finished", json!({}))];
    client.append("done", &ended).await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(70), "]".repeat(70));
    let done = json!({ "threadId": "done", "runId": "done" });
    let large = json!({ "threadId": "t", "runId": "new", "state": "x".repeat(5_000_000) }).to_string();
    let elsewhere = json!({ "threadId": "done", "runId": "live" }).to_string();
    let unasked = json!({ "threadId": "done", "runId": "new", "resume": [{ "interruptId": "i", "status": "resolved" }] });
    let call = |body: &str| format!("{{\"method\":\"agent/run\",\"params\":{{\"agentId\":\"a\"}},\"body\":{body}}}");
    let other = json!({ "threadId": "done", "runId": "done", "messages": [{ "id": "v", "role": "user", "content": "Again" }] });
    let runs = [done.to_string(), large, elsewhere, unasked.to_string(), other.to_string()];
    for path in [
        "/ag-ui/a",
        "/copilotkit/agent/a/run",
        "/copilotkit/agent/a/connect",
        "/copilotkit/agent/a/stop/done",
        "/copilotkit",
        "/ai-sdk/a",
    ] {
        for body in ["{", "[]", &deep, "{\"id\":7,\"runId\":7}"] {
            client.post(path, &json, body.to_owned()).await;
        }
        small.post(path, &json, format!("\"{}\"", "x".repeat(3000))).await.problem(413, "body_too_large");
        let cut = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{");
        send_raw(client, &[&cut]).await;
        for body in &runs {
            let body = if path == "/copilotkit" { call(body) } else { body.clone() };
            // A chat of the AI SDK has no run of its own to name: its message would wait for an agent.
            let is_chat = path == "/ai-sdk/a" && body.contains("Again");
            if !is_chat && (!path.ends_with("connect") || body.contains("\"runId\":\"done\"")) {
                client.post(path, &json, body).await;
            }
        }
    }
    client.post("/v1/runs/asked/facts?sessionId=asked", &json, questions().to_string()).await.ok();
    client.post("/v1/runs/asked/controls", &json, r#"{"control":"reject","actionId":"taken"}"#).await;
    for (action, code) in [("late", "action_expired"), ("changed", "action_changed"), ("taken", "action_not_pending")] {
        let resume = json!([{ "interruptId": action, "status": "resolved", "payload": { "approved": true } }]);
        let body = json!({ "threadId": "asked", "runId": "resumed", "resume": resume }).to_string();
        let part = json!({ "type": "dynamic-tool", "state": "approval-responded", "toolCallId": "c", "toolName": "t",
            "approval": { "id": action, "approved": true } });
        let chat = json!({ "id": "asked", "messages": [{ "id": "m", "role": "assistant", "parts": [part] }] }).to_string();
        for (path, body) in [
            ("/ag-ui/a", body.clone()),
            ("/copilotkit/agent/a/run", body.clone()),
            ("/copilotkit", call(&body)),
            ("/ai-sdk/a", chat),
        ] {
            client.post(path, &json, body).await.problem(409, code);
        }
    }
    let message = |text: &str| json!({ "id": "done", "messages": [{ "id": "u", "role": "user", "parts": [text] }] }).to_string();
    client.post("/ai-sdk/a", &json, message(&"x".repeat(5_000_000))).await.problem(413, "control_too_large");
    let regenerates = json!({ "id": "live", "trigger": "regenerate-message" }).to_string();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let asking = http.post(format!("http://{}/ai-sdk/a", client.at)).header("content-type", "application/json");
    assert_eq!(with_timeout("a response head", asking.body(regenerates).send()).await.unwrap().status(), 200);
    assert_eq!(client.get_head("/ai-sdk/a/live/stream", &[]).await.status, 200);
    client.get("/ai-sdk/a/never~7~user/stream?startIndex=0").await.problem(404, "no_such_run");
    client.get("/ai-sdk/a/done~7~user~000000000000feed:2/stream?startIndex=0").await.problem(410, "epoch_changed");
    client.get("/ag-ui/a?threadId=live").await.ok();
}

/// Streams a body, and erases its run in the middle of it.
async fn exercise_erasure_during_a_body(client: &Client) {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    let line = format!("{}\n", fact("run.started", json!({})));
    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
    let head = "POST /v1/runs/gone/facts HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(format!("{head}{chunk}").as_bytes()).await.unwrap();
    while client.get("/v1/runs/gone").await.status != 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.delete("/v1/runs/gone").await.status, 204);
    socket.write_all(format!("{chunk}0\r\n\r\n").as_bytes()).await.unwrap();
    let mut response = String::new();
    with_timeout("the response", socket.read_to_string(&mut response)).await.unwrap();
    assert!(response.contains("\"code\":\"run_erased\""), "{response}");
}

#[tokio::test]
async fn every_described_query_member_is_read() {
    install_observer();
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({"sessionId": "s"}))]).await;
    for operation in OPERATIONS {
        let name = match operation.method {
            Method::DELETE => "never",
            _ if operation.path.starts_with("/v1/sessions/") => "s",
            _ => "r",
        };
        let queries = match operation.id {
            "streamRuns" => &["?runs=r"][..],
            "streamLists" => &["?runs=all", "?attention=true&sessions=true"],
            "streamRun" => &["", "?format=ag-ui", "?format=ai-sdk"],
            "agUiGet" => &["?threadId=r"],
            "readRun" => &["?offset=-1&live=sse", "?format=ag-ui", "?format=ai-sdk"],
            "readSession" => &["?offset=-1&live=sse"],
            _ => &[""],
        };
        READ.take();
        for query in queries {
            send_request(&client, operation, &format!("{}{query}", address(operation, name)), &[]).await;
        }
        if operation.id == "connectAcp" {
            send_raw(&client, &[&upgrade_at(operation.path, "")]).await;
        }
        let read = READ.take();
        // The authorization reads the ticket, and only in a server with keys.
        let of_query =
            operation.parameters().filter(|member| member.location == ParameterLocation::Query && member.name != "ticket");
        let described = of_query.map(|member| member.name.to_owned());
        let ids = members::ids().map(|(id, _)| id.to_owned()).filter(|_| operation.accepts_ids);
        assert_eq!(read, described.chain(ids).collect::<BTreeSet<_>>(), "{}", operation.id);
    }
}

#[tokio::test]
async fn an_address_accepts_exactly_its_described_methods() {
    let client = start_local().await;
    for operation in OPERATIONS {
        let path = address(operation, "r");
        let described: Vec<&Method> = operations::at(&path).map(|operation| &operation.method).collect();
        assert!(described.contains(&&operation.method), "{path}");
        let is_described = |method: &str| described.iter().any(|known| known.as_str() == method);
        for method in ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"].into_iter().filter(|method| !is_described(method)) {
            let request =
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            let response = send_raw(&client, &[&request]).await;
            assert!(
                response.starts_with("HTTP/1.1 405 ") && response.contains("\"code\":\"method_not_allowed\""),
                "{request}: {response}"
            );
        }
    }
    client.get("/v1/nowhere").await.problem(404, "no_such_address");
}

#[tokio::test]
async fn answers_have_their_described_shapes() {
    let node = start_local_node().await;
    let client = start_local().await;
    let facts = [
        fact("run.started", json!({"sessionId": "s", "threadId": "t"})),
        fact("session.changed", json!({"sessionId": "s", "payload": {"title": "A title"}})),
        fact("text.final", json!({"messageId": "m", "payload": {"text": "Hello"}})),
        fact("action.required", json!({"actionId": "a", "payload": {"kind": "approve"}})),
        fact("agent.spawned", json!({"agentId": "w", "payload": {"agentName": "W", "teamName": "T"}})),
    ];
    client.append("r", &facts).await;
    let description = document();
    let get = async |path: &str| client.get(path).await.ok();
    let control = json!({ "control": "send", "value": "hello", "ttlSeconds": 60, "agentId": "w" }).to_string();
    let asked = client.post("/v1/runs/r/controls", &[], control).await;
    assert_eq!(asked.status, 202);
    let listed = get("/v1/runs/r/controls?activation=1").await;
    let claimed = client.post("/v1/agents/w/controls/claim", &[], "").await.ok();
    let (id, lease) = (&claimed["controls"][0]["controlId"], &claimed["controls"][0]["lease"]);
    let ack = format!("/v1/controls/{}/ack", id.as_str().expect("the control has an id"));
    let webhooks = exercise_webhooks(&client).await;
    let subscription = exercise_push(&client).await;
    let [made, opened, links, link] = exercise_links(&client).await;
    let [renamed, marks] = exercise_session_updates(&client).await;
    let [branch_wanted, _, branch] = exercise_branches(&client).await;
    let [given, feedback] = exercise_feedback(&client).await;
    let small = start_local_with(FeedConfig::default(), Limits { body_bytes_max: 2000, ..Limits::default() }).await;
    let threads = exercise_copilot_threads(&client, &small).await;
    let tasks = exercise_a2a(&client, &small).await;
    let [hold, holds, due] = exercise_holds(&client).await;
    let mut answers = vec![
        ("Hold", hold),
        ("Holds", holds),
        ("RetentionDue", due),
        ("Attachment", exercise_attachments(&client).await),
        ("BranchWanted", branch_wanted),
        ("Branch", branch),
        ("Feedback", given),
        ("FeedbackList", feedback),
        ("SessionLine", renamed),
        ("Marks", marks),
        ("LinkMade", made),
        ("LinkOpened", opened),
        ("Links", links),
        ("Link", link),
        ("ControlQueued", asked.json()),
        ("Controls", listed.clone()),
        ("Control", listed["controls"][0].clone()),
        ("Claimed", claimed.clone()),
        ("Attention", get("/v1/attention?activation=1").await),
        ("Decisions", get("/v1/runs/r/decisions?activation=1").await),
        ("ControlHanded", claimed["controls"][0].clone()),
        ("ControlAnswered", client.post(&ack, &[], json!({ "lease": lease }).to_string()).await.ok()),
        ("Webhook", webhooks[0].clone()),
        ("WebhookTested", webhooks[1].clone()),
        ("Deliveries", webhooks[2].clone()),
        ("Delivery", webhooks[3].clone()),
        ("Webhooks", get("/v1/webhooks").await),
        ("PushSubscription", subscription),
        ("Push", get("/v1/push").await),
        ("Audit", get("/v1/audit").await),
        ("SignIn", client.get("/v1/sign-in").await.ok()),
        ("Me", client.get("/v1/me").await.ok()),
        ("Keys", client.get("/v1/keys").await.ok()),
        ("Ticket", client.post("/v1/tickets", &[], r#"{"for":"ws"}"#).await.ok()),
        ("Receipt", client.post_facts("r", &json!([fact("run.status", json!({}))])).await.ok()),
        ("Sessions", get("/v1/sessions?activation=1").await),
        ("Session", get("/v1/sessions/s?activation=1").await),
        ("Window", get("/v1/sessions/s/window?activation=1").await),
        ("Timeline", get("/v1/sessions/s/timeline?activation=1").await),
        ("Runs", get("/v1/runs?activation=1").await),
        ("Runs", get("/v1/runs?filter=status:completed,running&sort=-started&activation=1&audience=internal").await),
        ("Stats", get("/v1/stats?by=hour,agent&audience=internal&activation=1").await),
        ("Run", get("/v1/runs/r?activation=1").await),
        ("DurableItems", get("/v1/runs/r/durable?audience=internal").await),
        ("DurableItems", get("/v1/sessions/s/durable?frames=activities").await),
        ("DurableItems", get("/v1/runs/r/durable?format=ag-ui").await),
        ("DurableItems", get("/v1/runs/r/durable?format=ai-sdk").await),
        ("Events", get("/v1/runs/r/events?limit=1&activation=1&audience=internal").await),
        ("Activities", get("/v1/runs/r/activities?activation=1").await),
        ("SessionEvents", get("/v1/sessions/s/events?limit=1&activation=1&audience=internal").await),
        ("SessionActivities", get("/v1/sessions/s/activities?activation=1").await),
        ("ThreadAtRest", get("/ag-ui/a?threadId=s&activation=1").await),
        ("CopilotInfo", get("/copilotkit/info").await),
        ("ChatAtRest", get("/ai-sdk/a/s?activation=1").await),
        ("Chats", get("/ai-sdk/a?activation=1").await),
        ("Stopped", client.post("/ai-sdk/a/s/stop", &[], "").await.ok()),
        ("Stopped", client.post("/copilotkit/agent/a/stop/never", &[], "").await.ok()),
        ("OwnerErasure", client.delete("/v1/owners/nothing?wait=0").await.json()),
        ("Health", get("/healthz").await),
        ("Ready", get("/readyz").await),
        // A node that has heard nothing for a while is not ready, so it begins here.
        ("Ready", start_local_node().await.get("/readyz").await.ok()),
        ("Cluster", node.get("/v1/cluster").await.ok()),
        ("Description", get("/openapi.json").await),
        ("Settled", client.post("/v1/runs/r/settle", &[], "").await.ok()),
    ];
    answers.extend(threads);
    answers.extend(tasks);
    let export = client.export("r", "proof=true&audience=user").await;
    let proofs = export.into_iter().filter(|line| line.get("proof").is_some());
    let head = proofs.clone().next_back().map(|line| line["proof"]["end"]["head"].clone());
    answers.extend(proofs.map(|line| ("ProofLine", line)).chain(head.map(|head| ("SignedHead", head))));
    for (name, answer) in &answers {
        let schema = json!({ "$ref": format!("#/components/schemas/{name}"), "components": description["components"] });
        let complaints: Vec<String> = jsonschema::validator_for(&schema)
            .expect("the shape is a schema")
            .iter_errors(answer)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}\n{answer:#}");
        // Every member of the answer is described.
        let Some(answer) = answer.as_object() else { continue };
        let known = description.pointer(&format!("/components/schemas/{name}/properties")).and_then(Value::as_object).unwrap();
        let foreign: Vec<_> = answer.keys().filter(|member| !known.contains_key(*member)).collect();
        assert!(*name == "Description" || foreign.is_empty(), "{name} has undescribed members: {foreign:?}");
    }
    // The list above contains every shape of a whole answer.
    let whole = OPERATIONS.iter().flat_map(|operation| operation.responses).flat_map(|answer| answer.content);
    for (_, content) in whole {
        if let Content::Json(name) = content {
            assert!(*name == "Any" || answers.iter().any(|(held, _)| held == name), "{name}");
        }
    }
}

/// Collects the values of members with this name, at any depth.
fn values<'v>(value: &'v Value, member: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if name == member {
                    found.push(value);
                }
                values(value, member, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| values(value, member, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_description_is_complete_and_is_served() {
    let client = start_local().await;
    let description = document();
    let served = client.get("/openapi.json").await;
    assert_eq!(served.headers["content-type"], "application/json");
    assert!(served.ok() == description, "the server serves another description");
    // `schema.rs` compares the file with the code.
    assert_eq!(client.get("/schema/openapi.json").await.ok()["openapi"], "3.1.0");

    let mut targets = Vec::new();
    values(&description, "$ref", &mut targets);
    assert!(targets.len() > 50);
    for target in targets.iter().filter_map(|target| target.as_str()) {
        let pointer = target.strip_prefix('#').unwrap_or_else(|| panic!("{target} leaves the document"));
        assert!(description.pointer(pointer).is_some(), "{target} does not exist");
    }
    for (name, schema) in description["components"]["schemas"].as_object().unwrap() {
        assert!(jsonschema::meta::is_valid(schema), "{name}");
    }
    let ids: HashSet<&str> = OPERATIONS.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), OPERATIONS.len(), "an operationId occurs twice");
    let shapes: HashSet<&str> = SHAPES.iter().map(|(name, _)| *name).chain(["AgentUiEvent", "Frame"]).collect();
    for operation in OPERATIONS {
        let in_path: Vec<&str> = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let in_path: Vec<&str> = in_path.iter().map(|name| name.trim_start_matches('*')).collect();
        let described: Vec<&str> = operation
            .parameters()
            .filter(|member| member.location == ParameterLocation::Path)
            .map(|member| member.name)
            .collect();
        assert_eq!(in_path, described, "{}", operation.path);
        let bodies = operation.body.iter().flat_map(|body| body.content);
        for (_, content) in operation.responses.iter().flat_map(|answer| answer.content).chain(bodies) {
            if let Content::Json(name) | Content::Each(name) = content {
                assert!(shapes.contains(name), "{}: {name} is not a shape", operation.id);
            }
        }
    }
}

/// Collects every Rust file below a folder.
fn collect_sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect_sources(&path, found),
            false => found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap_or_default())),
        }
    }
}

#[test]
fn every_problem_has_a_row_and_every_row_is_used() {
    let mut files = Vec::new();
    collect_sources(&repository("src"), &mut files);
    // The code of every problem that the sources construct.
    let mut made = HashSet::new();
    for (file, text) in &files {
        for maker in ["Problem::new(", "Problem::bad_request(", "Problem::not_found("] {
            for (at, _) in text.match_indices(maker) {
                let rest = &text[at + maker.len()..];
                let argument = rest.split(';').next().unwrap_or_default();
                let Some(code) = argument.split('"').nth(1) else { continue };
                let is_code = !code.is_empty() && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                if is_code {
                    assert!(
                        KINDS.iter().any(|kind| kind.code == code),
                        "{file}: {code} has no row in src/serve/contract/kinds.rs"
                    );
                    made.insert(code);
                }
            }
        }
    }
    assert!(made.len() > 30, "{made:?}");
    let elsewhere: Vec<&String> = files.iter().filter(|(file, _)| !file.ends_with("kinds.rs")).map(|(_, text)| text).collect();
    let of_operations: Vec<ProblemKind> = OPERATIONS.iter().flat_map(Operation::problems).collect();
    let described: Vec<&ProblemKind> = of_operations
        .iter()
        .chain(NO_ADDRESS_PROBLEMS)
        .chain(CONNECTION_PROBLEMS)
        .chain(SOCKET_PROBLEMS.iter().copied().flatten())
        .collect();
    for kind in KINDS {
        let quoted = format!("\"{}", kind.code);
        assert!(elsewhere.iter().any(|text| text.contains(&quoted)), "no source uses {}", kind.code);
        assert!(described.contains(&kind), "{} is described by no operation", kind.code);
        assert!(KINDS.iter().filter(|other| (other.status, other.code) == (kind.status, kind.code)).count() == 1);
    }
    for (file, text) in &files {
        assert!(!text.contains(".route(\""), "{file}: an address outside of the table in src/serve/contract/operations.rs");
    }
}

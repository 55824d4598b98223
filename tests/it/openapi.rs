//! The description of the addresses is true: what is served is described, what is described is served, and nothing else.
//!
//! The router is made of the table that the description is made of, and every test of this program stops at an answer or a read
//! member of a query that its row does not describe. Here is the other direction: each member, status and code of each row is met.

use crate::harness::{Answer, Client, fact, local, local_with, repository, soon};
use http::Method;
use proscenium::feed::Sizes;
use proscenium::serve::Limits;
use proscenium::serve::kinds::{KINDS, Kind};
use proscenium::serve::openapi::document;
use proscenium::serve::routes::{self, CONNECTION, Content, NOWHERE, OPERATIONS, Operation, Place, SHAPES, SOCKET, WATCH, Watch};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What no request brings about, and who else holds it.
const NOT_HERE: &[(&str, &str)] = &[
    ("internal_error", "it takes a mistake of ours"),
    ("store_failed", "it takes a store that fails"),
    ("stored_state_unreadable", "`supervision` damages a store"),
    ("stopping", "it takes a server that is told to stop in the middle of a request"),
    ("too_many_producers", "it takes ten thousand requests"),
    ("unauthenticated", "`auth` asks every address without a token"),
    ("forbidden", "`auth` asks every address with a token that is not enough"),
    ("busy", "`limits`"),
    ("publish_rate", "`limits`"),
    ("body_silent", "`limits`"),
    ("body_too_slow", "`limits`"),
    ("disk_full", "`limits`"),
    ("too_many_runs", "`limits`"),
    ("too_many_subjects", "`limits`"),
    ("session_too_large", "`listing`"),
    ("too_many_controls", "`control`"),
    ("too_many_tickets", "`auth`"),
    ("too_many_connections_of_token", "`auth`"),
    ("control_refused", "`clients`, in a stream"),
    ("control_expired", "`clients`, in a stream"),
];

thread_local! {
    /// What was answered, and which members were read of which path's query. A test's server runs on the test's own thread.
    static ANSWERED: RefCell<BTreeSet<(&'static str, u16, &'static str)>> = const { RefCell::new(BTreeSet::new()) };
    static READ: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

fn watch() {
    WATCH.get_or_init(|| Watch {
        answered: |operation, status, code| {
            ANSWERED.with_borrow_mut(|seen| seen.insert((operation.id, status.as_u16(), code.unwrap_or_default())));
        },
        read: |_, member| {
            READ.with_borrow_mut(|seen| seen.insert(member.to_owned()));
        },
    });
}

/// The address of an operation, with this in the place of what its path names.
fn address(operation: &Operation, name: &str) -> String {
    let part = |segment: &str| if segment.starts_with('{') { name.to_owned() } else { segment.to_owned() };
    operation.path.split('/').map(part).collect::<Vec<_>>().join("/")
}

async fn ask(client: &Client, operation: &Operation, path: &str, headers: &[(&str, &str)]) -> Answer {
    match operation.method {
        // A stream would go on for ever: what it begins with is enough.
        Method::GET => client.head_of(path, headers).await,
        Method::DELETE => client.delete(path).await,
        _ => client.post(path, headers, if operation.takes_ids { "[]" } else { "{}" }).await,
    }
}

/// Says this on a connection of its own, and gives what comes until it ends.
async fn say(client: &Client, parts: &[&str]) -> String {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    for part in parts {
        socket.write_all(part.as_bytes()).await.unwrap();
    }
    socket.shutdown().await.unwrap();
    let mut said = Vec::new();
    soon("an answer", socket.read_to_end(&mut said)).await.unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn every_status_and_code_that_is_described_is_met() {
    watch();
    let client = local().await;
    let large = "x".repeat(100_000);
    let facts = [
        fact("run.started", json!({"sessionId": "s"})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "t", "input": large}})),
        fact("run.finished", json!({})),
    ];
    client.accept("r", &facts).await;
    let event = client.events("r", "audience=internal", 10).await;
    let blob = event.iter().find_map(|event| event["refs"][0]["href"].as_str()).expect("an offloaded body").to_owned();
    let (_, blob) = blob.rsplit_once('/').unwrap();

    // What every address can be asked, and what can be wrong with what it takes.
    for operation in OPERATIONS {
        let name = match operation.path {
            "/schema/{*file}" => "frames.schema.json",
            "/assets/{*file}" => "app.js",
            "/v1/blobs/{blob}" => blob,
            path if path.starts_with("/v1/sessions/") => "s",
            _ => "r",
        };
        let named = match operation.id {
            "streamRuns" => "runs=r&",
            _ => "",
        };
        if operation.method != Method::DELETE {
            ask(&client, operation, &format!("{}?{named}audience=internal", address(operation, name)), &[]).await;
        }
        for kind in operation.problems() {
            let to = |query: &str| format!("{}?{query}", address(operation, name));
            match kind.code {
                "bad_id" => {
                    let _ = match operation.path {
                        "/v1/stream" => ask(&client, operation, "/v1/stream?runs=%00", &[]).await,
                        _ => ask(&client, operation, &address(operation, "%00"), &[]).await,
                    };
                }
                "bad_audience" => drop(ask(&client, operation, &to("runs=r&audience=nobody"), &[]).await),
                "bad_cursor" => {
                    let query = "runs=r&after=x&cursor=x&offset=x";
                    drop(ask(&client, operation, &to(query), &[("last-event-id", "x")]).await);
                    // What goes by the query alone.
                    drop(ask(&client, operation, &to(query), &[]).await);
                }
                "bad_query" => {
                    drop(ask(&client, operation, &to("limit=x&messages=x&at=x&frames=x&cursor=x&wait=x&version=x"), &[]).await);
                }
                "no_such_run" | "no_such_session" | "no_such_schema" | "no_such_asset" | "no_such_blob" => {
                    drop(ask(&client, operation, &address(operation, "never"), &[]).await);
                }
                "not_served" => drop(ask(&client, operation, &to("runs=r&format=morse"), &[]).await),
                "epoch_changed" => {
                    drop(ask(&client, operation, &to("after=0123456789abcdef:4&at=0123456789abcdef:4"), &[]).await);
                }
                "unknown_source" => drop(ask(&client, operation, &to("source=moon"), &[]).await),
                "bad_producer" => drop(ask(&client, operation, &to(""), &[("producer-id", "p")]).await),
                "unsupported_media_type" => drop(ask(&client, operation, &to(""), &[("content-type", "text/plain")]).await),
                "foreign_origin" if operation.method == Method::DELETE => {
                    say(
                        &client,
                        &[&format!(
                            "DELETE {} HTTP/1.1\r\nhost: localhost\r\norigin: http://a\r\nconnection: close\r\n\r\n",
                            to("")
                        )],
                    )
                    .await;
                }
                "unknown_host" if operation.method == Method::DELETE => {
                    say(&client, &[&format!("DELETE {} HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n", to(""))]).await;
                }
                "unknown_host" => drop(ask(&client, operation, &to(""), &[("host", "elsewhere.example")]).await),
                "foreign_origin" => drop(ask(&client, operation, &to(""), &[("origin", "http://elsewhere")]).await),
                "bad_range" => drop(ask(&client, operation, &to("audience=internal"), &[("range", "bytes=9999999-")]).await),
                _ => {}
            }
        }
    }

    // What only facts can have wrong.
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
        client.lines(path, "{\n").await;
        let numbered =
            |epoch: &'static str, seq: &'static str| [("producer-id", "p"), ("producer-epoch", epoch), ("producer-seq", seq)];
        let body = json!([fact("run.started", json!({}))]).to_string();
        client.post(path, &numbered("1", "5"), body.clone()).await.problem(409, "producer_gap");
        client.post(path, &numbered("2", "0"), body.clone()).await.ok();
        client.post(path, &numbered("1", "0"), body).await.problem(403, "producer_fenced");
        let cut = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nexpect: nothing\r\ncontent-length: 100\r\n\r\n[");
        say(&client, &[&cut]).await;
    }
    let small = Limits { fact_bytes_max: 1000, body_bytes_max: 2000, ..Limits::default() };
    let small = local_with(Sizes::default(), small).await;
    for path in ["/v1/runs/f/facts", "/v1/sessions/f/facts"] {
        for bytes in [1500, 2500] {
            let body = json!([fact("text.delta", json!({"payload": {"text": "x".repeat(bytes)}}))]).to_string();
            small.post(path, &[], body).await;
        }
    }
    erased_meanwhile(&client).await;
    about_controls(&client).await;
    about_clients(&client, &small).await;
    for body in ["{", r#"{"for":"stream"}"#, r#"{"for":"stream","run":""}"#, &format!("{{\"for\":\"{}\"}}", "x".repeat(5000))] {
        client.post("/v1/tickets", &[], body.to_owned()).await;
    }
    say(&client, &["POST /v1/tickets HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"]).await;

    // A stream whose end was seen, a part of a body, a WebSocket and what is none, and the end of a run.
    let end = client.activities("r", "", None).await.all().await.pop().and_then(|last| last.id).expect("a cursor");
    client.get(&format!("/v1/runs/r/stream?after={end}")).await;
    client.get_with(&format!("/v1/blobs/{blob}?audience=internal"), &[("range", "bytes=0-3")]).await;
    let upgrade = |more: &str| {
        format!(
            "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        )
    };
    for more in ["", "origin: http://elsewhere\r\n", "sec-websocket-protocol: telex\r\n"] {
        say(&client, &[&upgrade(more)]).await;
    }
    say(&client, &[&upgrade("").replace("localhost", "elsewhere")]).await;
    client.delete("/v1/runs/r").await;

    let met = ANSWERED.with_borrow(Clone::clone);
    let mut unmet = Vec::new();
    for operation in OPERATIONS {
        let problems = operation.problems();
        let problems = problems.iter().filter(|kind| NOT_HERE.iter().all(|(code, _)| *code != kind.code));
        let answers = operation.answers.iter().map(|answer| (operation.id, answer.status, ""));
        let described = answers.chain(problems.map(|kind| (operation.id, kind.status, kind.code)));
        unmet.extend(described.filter(|described| !met.contains(described)));
    }
    assert!(unmet.is_empty(), "described, and never answered: {unmet:#?}");
}

/// Asks for controls, takes and answers them, well and badly.
async fn about_controls(client: &Client) {
    let json = [("content-type", "application/json")];
    let started = fact("run.started", json!({"sessionId": "cs"}));
    client.accept("c", std::slice::from_ref(&started)).await;
    client.accept("over", &[started, fact("run.finished", json!({}))]).await;
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
            client.post(path, &json, steer(path, "send", value)).await;
        }
        client.get(path).await.ok();
    }
    client.post("/v1/runs/over/controls", &json, steer("late", "steer", "x")).await.problem(409, "run_ended");
    for how in ["ack", "nack"] {
        let claimed = client.post("/v1/agents/default/controls/claim?max=1", &[], "").await.ok();
        let control = &claimed["controls"][0];
        let id = control["controlId"].as_str().expect("a control").replace('/', "%2F");
        for body in bad
            .clone()
            .into_iter()
            .chain([json!({ "lease": "another" }).to_string(), json!({ "lease": control["lease"] }).to_string()])
        {
            client.post(&format!("/v1/controls/{id}/{how}"), &json, body).await;
        }
    }
}

/// Comes as clients that exist already do, well and badly. `small` takes small bodies.
async fn about_clients(client: &Client, small: &Client) {
    let json = [("content-type", "application/json")];
    // The one that takes decisions goes on; the other one has ended, so that its streams end.
    let started = fact("run.started", json!({"sessionId": "live"}));
    client.accept("live", std::slice::from_ref(&started)).await;
    let ended = [fact("run.started", json!({"sessionId": "done"})), fact("run.finished", json!({}))];
    client.accept("done", &ended).await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(70), "]".repeat(70));
    let done = json!({ "threadId": "done", "runId": "done" });
    let large = json!({ "threadId": "t", "runId": "new", "state": "x".repeat(5_000_000) }).to_string();
    let elsewhere = json!({ "threadId": "done", "runId": "live" }).to_string();
    let unasked = json!({ "threadId": "done", "runId": "new", "resume": [{ "interruptId": "i", "status": "resolved" }] });
    let call = |body: &str| format!("{{\"method\":\"agent/run\",\"params\":{{\"agentId\":\"a\"}},\"body\":{body}}}");
    let runs = [done.to_string(), large, elsewhere, unasked.to_string()];
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
        say(client, &[&cut]).await;
        for body in &runs {
            let body = if path == "/copilotkit" { call(body) } else { body.clone() };
            if !path.ends_with("connect") || body.contains("\"runId\":\"done\"") {
                client.post(path, &json, body).await;
            }
        }
    }
    let message = |text: &str| json!({ "id": "done", "messages": [{ "id": "u", "role": "user", "parts": [text] }] }).to_string();
    client.post("/ai-sdk/a", &json, message(&"x".repeat(5_000_000))).await.problem(413, "control_too_large");
    let regenerates = json!({ "id": "live", "trigger": "regenerate-message" }).to_string();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let asking = http.post(format!("http://{}/ai-sdk/a", client.at)).header("content-type", "application/json");
    assert_eq!(soon("a head", asking.body(regenerates).send()).await.unwrap().status(), 200);
    assert_eq!(client.head_of("/ai-sdk/a/live/stream", &[]).await.status, 200);
    client.get("/ag-ui/a?threadId=live").await.ok();
}

/// Streams a body whose run is erased in the middle of it.
async fn erased_meanwhile(client: &Client) {
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
    let mut said = String::new();
    soon("an answer", socket.read_to_string(&mut said)).await.unwrap();
    assert!(said.contains("\"code\":\"run_erased\""), "{said}");
}

#[tokio::test]
async fn every_member_of_a_query_that_is_described_is_read() {
    watch();
    let client = local().await;
    client.accept("r", &[fact("run.started", json!({"sessionId": "s"}))]).await;
    for operation in OPERATIONS {
        let name = match operation.method {
            Method::DELETE => "never",
            _ if operation.path.starts_with("/v1/sessions/") => "s",
            _ => "r",
        };
        let queries = match operation.id {
            "streamRuns" => &["?runs=r"][..],
            "streamRun" => &["", "?format=ag-ui", "?format=ai-sdk"],
            "agUiGet" => &["?threadId=r"],
            _ => &[""],
        };
        READ.take();
        for query in queries {
            ask(&client, operation, &format!("{}{query}", address(operation, name)), &[]).await;
        }
        let read = READ.take();
        // A ticket is read by whoever guards the address, and only where there are keys.
        let of_query = operation.members().filter(|member| member.place == Place::Query && member.name != "ticket");
        let described = of_query.map(|member| member.name.to_owned());
        let ids = routes::ids().map(|(id, _)| id.to_owned()).filter(|_| operation.takes_ids);
        assert_eq!(read, described.chain(ids).collect::<BTreeSet<_>>(), "{}", operation.id);
    }
}

#[tokio::test]
async fn an_address_takes_the_methods_that_are_described_and_no_others() {
    let client = local().await;
    for operation in OPERATIONS {
        let path = address(operation, "r");
        let described: Vec<&Method> = routes::at(&path).map(|operation| &operation.method).collect();
        assert!(described.contains(&&operation.method), "{path}");
        let is_described = |method: &str| described.iter().any(|known| known.as_str() == method);
        for method in ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"].into_iter().filter(|method| !is_described(method)) {
            let request =
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            let said = say(&client, &[&request]).await;
            assert!(said.starts_with("HTTP/1.1 405 ") && said.contains("\"code\":\"method_not_allowed\""), "{request}: {said}");
        }
    }
    client.get("/v1/nowhere").await.problem(404, "no_such_address");
}

#[tokio::test]
async fn answers_are_of_the_shape_that_is_described() {
    let client = local().await;
    let facts = [
        fact("run.started", json!({"sessionId": "s", "threadId": "t"})),
        fact("session.changed", json!({"sessionId": "s", "payload": {"title": "A title"}})),
        fact("text.final", json!({"messageId": "m", "payload": {"text": "Hello"}})),
        fact("action.required", json!({"actionId": "a", "payload": {"kind": "approve"}})),
        fact("agent.spawned", json!({"agentId": "w", "payload": {"agentName": "W", "teamName": "T"}})),
    ];
    client.accept("r", &facts).await;
    let description = document();
    let get = async |path: &str| client.get(path).await.ok();
    let control = json!({ "control": "send", "value": "hello", "ttlSeconds": 60, "agentId": "w" }).to_string();
    let asked = client.post("/v1/runs/r/controls", &[], control).await;
    assert_eq!(asked.status, 202);
    let listed = get("/v1/runs/r/controls?activation=1").await;
    let claimed = client.post("/v1/agents/w/controls/claim", &[], "").await.ok();
    let (id, lease) = (&claimed["controls"][0]["controlId"], &claimed["controls"][0]["lease"]);
    let ack = format!("/v1/controls/{}/ack", id.as_str().expect("a control"));
    let answers = [
        ("ControlQueued", asked.json()),
        ("Controls", listed.clone()),
        ("Control", listed["controls"][0].clone()),
        ("Claimed", claimed.clone()),
        ("ControlHanded", claimed["controls"][0].clone()),
        ("ControlAnswered", client.post(&ack, &[], json!({ "lease": lease }).to_string()).await.ok()),
        ("Ticket", client.post("/v1/tickets", &[], r#"{"for":"ws"}"#).await.ok()),
        ("Receipt", client.facts("r", &json!([fact("run.status", json!({}))])).await.ok()),
        ("Sessions", get("/v1/sessions?activation=1").await),
        ("Session", get("/v1/sessions/s?activation=1").await),
        ("Window", get("/v1/sessions/s/window?activation=1").await),
        ("Timeline", get("/v1/sessions/s/timeline?activation=1").await),
        ("Runs", get("/v1/runs?activation=1").await),
        ("Run", get("/v1/runs/r?activation=1").await),
        ("Events", get("/v1/runs/r/events?limit=1&activation=1&audience=internal").await),
        ("Activities", get("/v1/runs/r/activities?activation=1").await),
        ("SessionEvents", get("/v1/sessions/s/events?limit=1&activation=1&audience=internal").await),
        ("SessionActivities", get("/v1/sessions/s/activities?activation=1").await),
        ("ThreadAtRest", get("/ag-ui/a?threadId=s&activation=1").await),
        ("CopilotInfo", get("/copilotkit/info").await),
        ("ChatAtRest", get("/ai-sdk/a/s?activation=1").await),
        ("Stopped", client.post("/ai-sdk/a/s/stop", &[], "").await.ok()),
        ("Stopped", client.post("/copilotkit/agent/a/stop/never", &[], "").await.ok()),
        ("Health", get("/healthz").await),
        ("Ready", get("/readyz").await),
        ("Description", get("/openapi.json").await),
        ("Settled", client.post("/v1/runs/r/settle", &[], "").await.ok()),
    ];
    for (name, answer) in &answers {
        let schema = json!({ "$ref": format!("#/components/schemas/{name}"), "components": description["components"] });
        let complaints: Vec<String> = jsonschema::validator_for(&schema)
            .expect("a schema")
            .iter_errors(answer)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}\n{answer:#}");
        // Each member that is there is described.
        let known = description.pointer(&format!("/components/schemas/{name}/properties")).and_then(Value::as_object).unwrap();
        let foreign: Vec<_> = answer.as_object().unwrap().keys().filter(|member| !known.contains_key(*member)).collect();
        assert!(*name == "Description" || foreign.is_empty(), "{name} has members that nobody describes: {foreign:?}");
    }
    // Every shape of a whole answer is held here.
    let whole = OPERATIONS.iter().flat_map(|operation| operation.answers).flat_map(|answer| answer.content);
    for (_, content) in whole {
        if let Content::Json(name) = content {
            assert!(*name == "Any" || answers.iter().any(|(held, _)| held == name), "{name}");
        }
    }
}

/// Every value of a member of this name, at any depth.
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
async fn the_description_is_whole_and_is_served() {
    let client = local().await;
    let description = document();
    let served = client.get("/openapi.json").await;
    assert_eq!(served.headers["content-type"], "application/json");
    assert!(served.ok() == description, "what is served is another description");
    // The file is held against the code where the other files of `schema/` are.
    assert_eq!(client.get("/schema/openapi.json").await.ok()["openapi"], "3.1.0");

    let mut targets = Vec::new();
    values(&description, "$ref", &mut targets);
    assert!(targets.len() > 50);
    for target in targets.iter().filter_map(|target| target.as_str()) {
        let pointer = target.strip_prefix('#').unwrap_or_else(|| panic!("{target} leaves the document"));
        assert!(description.pointer(pointer).is_some(), "{target} leads nowhere");
    }
    for (name, schema) in description["components"]["schemas"].as_object().unwrap() {
        assert!(jsonschema::meta::is_valid(schema), "{name}");
    }
    let ids: HashSet<&str> = OPERATIONS.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), OPERATIONS.len(), "an operationId is of one operation");
    let shapes: HashSet<&str> = SHAPES.iter().map(|(name, _)| *name).chain(["AgentUiEvent", "Frame"]).collect();
    for operation in OPERATIONS {
        let in_path: Vec<&str> = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let in_path: Vec<&str> = in_path.iter().map(|name| name.trim_start_matches('*')).collect();
        let described: Vec<&str> =
            operation.members().filter(|member| member.place == Place::Path).map(|member| member.name).collect();
        assert_eq!(in_path, described, "{}", operation.path);
        let bodies = operation.body.iter().flat_map(|body| body.content);
        for (_, content) in operation.answers.iter().flat_map(|answer| answer.content).chain(bodies) {
            if let Content::Json(name) | Content::Each(name) = content {
                assert!(shapes.contains(name), "{}: {name} is no shape", operation.id);
            }
        }
    }
}

/// Every file of Rust under a folder.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap_or_default())),
        }
    }
}

#[test]
fn every_problem_is_a_row_of_the_table_and_every_row_is_told_somewhere() {
    let mut files = Vec::new();
    sources(&repository("src"), &mut files);
    // Each code that a problem is made with, wherever it is made.
    let mut made = HashSet::new();
    for (file, text) in &files {
        for maker in ["Problem::new(", "Problem::bad_request(", "Problem::not_found("] {
            for (at, _) in text.match_indices(maker) {
                let rest = &text[at + maker.len()..];
                let argument = rest.split(';').next().unwrap_or_default();
                let Some(code) = argument.split('"').nth(1) else { continue };
                let is_code = !code.is_empty() && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                if is_code {
                    assert!(KINDS.iter().any(|kind| kind.code == code), "{file}: {code} is in no row of src/serve/kinds.rs");
                    made.insert(code);
                }
            }
        }
    }
    assert!(made.len() > 30, "{made:?}");
    let elsewhere: Vec<&String> = files.iter().filter(|(file, _)| !file.ends_with("kinds.rs")).map(|(_, text)| text).collect();
    let of_operations: Vec<Kind> = OPERATIONS.iter().flat_map(Operation::problems).collect();
    let told: Vec<&Kind> =
        of_operations.iter().chain(NOWHERE).chain(CONNECTION).chain(SOCKET.iter().copied().flatten()).collect();
    for kind in KINDS {
        let said = format!("\"{}", kind.code);
        assert!(elsewhere.iter().any(|text| text.contains(&said)), "nobody answers {}", kind.code);
        assert!(told.contains(&kind), "{} is told by nobody", kind.code);
        assert!(KINDS.iter().filter(|other| (other.status, other.code) == (kind.status, kind.code)).count() == 1);
    }
    for (file, text) in &files {
        let is_table = file.ends_with("serve/routes/mod.rs");
        assert!(is_table || !text.contains(".route(\""), "{file}: an address stands outside of the table of src/serve/routes");
    }
}

//! Headers of the page's user reach the agent if its entry names them, and nothing else.

use super::endpoint::{Endpoint, Reply, activities, start_server, start_server_on, wait_for_status};
use crate::harness::{Client, Response, storage_in};
use proscenium::log::embedded::Sync;
use serde_json::{Value, json};
use std::io::BufRead;
use std::process::{Command, Stdio};

const NAMES: &str = r#"forward-headers = ["authorization", "X-Tenant"]"#;

fn agent(endpoint: &Endpoint, settings: &str) -> String {
    format!("[helper]\nprotocol = \"ag-ui\"\nurl = \"{}\"\n{settings}\n", endpoint.url)
}

fn started(run: &str) -> Value {
    json!({ "type": "RUN_STARTED", "threadId": "t", "runId": run })
}

fn answer(run: &str) -> Reply {
    Reply::Events(vec![started(run), json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": run })])
}

async fn send(client: &Client, path: &str, headers: &[(&str, &str)], body: Value) -> Response {
    let headers = [&[("content-type", "application/json")], headers].concat();
    client.post(path, &headers, body.to_string()).await
}

async fn say(client: &Client, run: &str, headers: &[(&str, &str)]) -> Response {
    let messages = json!([{ "id": run, "role": "user", "content": "Go" }]);
    send(client, "/ag-ui/helper", headers, json!({ "threadId": "t", "runId": run, "messages": messages })).await
}

/// The values of the headers `authorization`, `x-tenant` and `x-other` that the endpoint received.
async fn received(endpoint: &Endpoint) -> [Option<String>; 3] {
    let headers = endpoint.received().await.headers;
    ["authorization", "x-tenant", "x-other"].map(|name| Some(headers.get(name)?.to_str().unwrap().to_owned()))
}

fn some(values: [&str; 3]) -> [Option<String>; 3] {
    values.map(|value| (!value.is_empty()).then(|| value.to_owned()))
}

#[tokio::test]
async fn each_call_has_the_named_headers_of_the_user_who_asked_for_it() {
    let endpoint = Endpoint::start(vec![answer("r1"), answer("r2"), answer("r3")]).await;
    let client = start_server(&agent(&endpoint, NAMES)).await;
    say(&client, "r1", &[("authorization", "Bearer of-ada"), ("x-tenant", "north"), ("x-other", "no")]).await;
    assert_eq!(received(&endpoint).await, some(["Bearer of-ada", "north", ""]));
    say(&client, "r2", &[("x-tenant", "south")]).await;
    assert_eq!(received(&endpoint).await, some(["", "south", ""]), "a header that the user did not send is not sent");
    let value = json!({ "runId": "r3", "messages": [{ "id": "u3", "role": "user", "content": "Go" }] });
    let control = json!({ "control": "send", "agentId": "helper", "value": value });
    send(&client, "/v1/sessions/t/controls", &[("authorization", "Bearer of-bo")], control).await;
    assert_eq!(received(&endpoint).await, some(["Bearer of-bo", "", ""]));
}

#[tokio::test]
async fn without_names_no_header_reaches_the_agent() {
    let endpoint = Endpoint::start(vec![answer("r1")]).await;
    let client = start_server(&agent(&endpoint, "")).await;
    say(&client, "r1", &[("authorization", "Bearer of-ada"), ("x-tenant", "north")]).await;
    assert_eq!(received(&endpoint).await, some(["", "", ""]));
}

#[tokio::test]
async fn an_answer_has_the_headers_of_the_user_who_gave_it() {
    let interrupts = json!([{ "id": "ask", "reason": "confirmation", "message": "May I?" }]);
    let asks = json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r1", "outcome": { "type": "interrupt", "interrupts": interrupts } });
    let endpoint = Endpoint::start(vec![Reply::Events(vec![started("r1"), asks]), answer("r1")]).await;
    let client = start_server(&agent(&endpoint, NAMES)).await;
    say(&client, "r1", &[("authorization", "Bearer of-ada")]).await;
    assert_eq!(received(&endpoint).await, some(["Bearer of-ada", "", ""]));
    let approve = json!({ "control": "approve", "actionId": "ask" });
    send(&client, "/v1/runs/r1/controls", &[("authorization", "Bearer of-bo")], approve).await;
    assert_eq!(received(&endpoint).await, some(["Bearer of-bo", "", ""]));
}

#[tokio::test]
async fn a_page_of_another_origin_may_send_the_named_headers() {
    let endpoint = Endpoint::start(vec![]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), agent(&endpoint, NAMES)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--connect-file", file.path().to_str().unwrap(), "--cors-origin", "https://page.example"];
    let server = crate::harness::Process::start_with(dir.path(), &flags);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.request(reqwest::Method::OPTIONS, format!("http://{}/ag-ui/helper", server.at));
    let request = request.header("origin", "https://page.example").header("access-control-request-method", "POST");
    let answer = request.send().await.unwrap();
    let allowed = answer.headers()["access-control-allow-headers"].to_str().unwrap();
    assert!(allowed.split(", ").any(|name| name == "x-tenant"), "{allowed}");
}

#[tokio::test]
async fn the_values_are_in_no_log_no_envelope_no_control_and_no_file() {
    let endpoint = Endpoint::start(vec![Reply::Open(vec![started("r1")])]).await;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("agents.toml"), agent(&endpoint, NAMES)).unwrap();
    let errors = std::fs::File::create(path("stderr")).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_proscenium"))
        .args(["serve", "--listen", "127.0.0.1:0", "--log", "trace", "--data-dir"])
        .arg(path("data"))
        .arg("--connect-file")
        .arg(path("agents.toml"))
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let client = Client::new(line.trim().strip_prefix("listening on http://").unwrap().parse().unwrap());
    let secret = "plain-words-of-the-user";
    let value = json!({ "runId": "r1", "messages": [{ "id": "u", "role": "user", "content": "Go" }] });
    let control = json!({ "control": "send", "agentId": "helper", "value": value });
    send(&client, "/v1/sessions/t/controls", &[("authorization", secret), ("x-tenant", secret)], control.clone()).await;
    assert_eq!(received(&endpoint).await, some([secret, secret, ""]));
    // A second turn waits for the first, with its headers.
    let mut second = control;
    second["value"]["runId"] = json!("r2");
    send(&client, "/v1/sessions/t/controls", &[("authorization", secret)], second).await;
    wait_for_status(&client, "r1", "accepted").await;
    for path in ["/v1/runs/r1/events?audience=internal", "/v1/sessions/t/events?audience=internal", "/v1/sessions/t/controls"] {
        let shown = client.get(path).await;
        assert_eq!(shown.status, 200, "{path}");
        assert!(!String::from_utf8_lossy(&shown.body).contains(secret), "{path}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let mut files = vec![path("stderr")];
    let mut folders = vec![path("data")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() { folders.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    assert!(files.len() > 2, "the server wrote its data: {files:?}");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(memchr::memmem::find(&bytes, secret.as_bytes()).is_none(), "{}", file.display());
    }
}

#[tokio::test]
async fn a_message_that_waited_over_a_restart_fails_and_says_that_its_headers_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::start(vec![Reply::Open(vec![started("r1")]), answer("r3")]).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let store = storage_in(dir.path(), Sync::Never).await;
    let (client, serving) = start_server_on(store, &agent(&endpoint, NAMES), async { drop(stopped.await) }).await;
    let control = |run: &str| json!({ "control": "send", "agentId": "helper", "value": { "runId": run, "messages": [{ "id": run, "role": "user", "content": "Go" }] } });
    send(&client, "/v1/sessions/t/controls", &[("x-tenant", "north")], control("r1")).await;
    endpoint.received().await;
    send(&client, "/v1/sessions/t/controls", &[("x-tenant", "north")], control("r2")).await;
    stop.send(()).unwrap();
    serving.await.unwrap();
    let store = storage_in(dir.path(), Sync::Never).await;
    let (client, _serving) = start_server_on(store, &agent(&endpoint, NAMES), std::future::pending()).await;
    for (run, code) in [("r1", "server_restarted"), ("r2", "user_headers_lost")] {
        wait_for_status(&client, run, "failed").await;
        let entries = activities(&client, run, "dashboard", "diagnostics").await[0]["entries"].clone();
        let entry = entries.as_array().unwrap().last().unwrap().clone();
        assert_eq!(entry["code"], code, "{entry}");
    }
    let entries = activities(&client, "r2", "dashboard", "diagnostics").await[0]["entries"].clone();
    assert!(entries.as_array().unwrap().last().unwrap()["message"].as_str().unwrap().contains("authorization, x-tenant"));
    assert_eq!(endpoint.unread().await, 0, "the agent is not called without them");
    let texts = activities(&client, "r2", "user", "message").await;
    assert_eq!(texts[0]["parts"][0]["text"], json!(["Go"]), "the user's message is in the log");
    send(&client, "/v1/sessions/t/controls", &[("x-tenant", "north")], control("r3")).await;
    assert_eq!(received(&endpoint).await, some(["", "north", ""]));
    wait_for_status(&client, "r3", "completed").await;
}

#[tokio::test]
async fn secrets_of_one_sender_do_not_displace_the_headers_of_others() {
    let endpoint = Endpoint::start(vec![answer("r1")]).await;
    let client = start_server(&agent(&endpoint, NAMES)).await;
    let value = json!({ "password": "x".repeat(255 * 1024 - 200) });
    let mut refused = Vec::new();
    // Two logs of one session: a log has 64 open controls at most.
    send(&client, "/v1/runs/of-greedy/facts?sessionId=greedy", &[], json!([{ "type": "run.started" }])).await.ok();
    for path in ["/v1/sessions/greedy/controls", "/v1/runs/of-greedy/controls"] {
        for _ in 0..33 {
            let answer = send(&client, path, &[], json!({ "control": "send", "agentId": "absent", "value": value })).await;
            if answer.status != 202 {
                refused.push(answer.problem(429, "too_many_secrets"));
            }
        }
    }
    assert!(refused.len() > 50 && refused[0]["limit"].is_number(), "{}", refused.len());
    assert!(refused[0]["detail"].as_str().unwrap().contains("nothing was recorded"), "{}", refused[0]);
    say(&client, "r1", &[("authorization", "Bearer of-ada")]).await;
    assert_eq!(received(&endpoint).await, some(["Bearer of-ada", "", ""]));
}

#[tokio::test]
async fn an_agent_that_echoes_its_credentials_and_the_user_s_headers_puts_them_into_no_envelope() {
    let (own, users) = ("plain words of the operator", "plain-words-of-the-user");
    let echo = format!("I got {own} and {users}, which is tenant/{users}.");
    // A model gives its words in pieces.
    let pieces = |text: &str| [text.get(..text.len() - 9).unwrap().to_owned(), text[text.len() - 9..].to_owned()];
    let [text, thought] = ["TEXT_MESSAGE_CHUNK", "REASONING_MESSAGE_CHUNK"].map(|kind| {
        pieces(own).map(|delta| json!({ "type": kind, "messageId": kind, "role": if kind.starts_with('T') { "assistant" } else { "reasoning" }, "delta": delta }))
    });
    let args = pieces(&json!({ "seen": users }).to_string().replace("\"}", ""))
        .map(|delta| json!({ "type": "TOOL_CALL_CHUNK", "toolCallId": "d", "toolCallName": "env", "delta": delta }));
    let says = [
        json!({ "type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": echo }),
        json!({ "type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "env", "delta": json!({ "seen": own }).to_string() }),
    ]
    .into_iter()
    .chain(text)
    .chain(thought)
    .chain(args)
    .chain([
        json!({ "type": "RUN_ERROR", "message": echo }),
    ]);
    let replies = vec![
        Reply::Events([started("r1")].into_iter().chain(says).collect()),
        Reply::Other(422, "text/plain", "plain words of the operator, plain-words-of-the-user"),
    ];
    let endpoint = Endpoint::start(replies).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credential");
    std::fs::write(&file, format!("{own}\n")).unwrap();
    let headers = format!("headers = {{ x-own = {{ file = {:?}, prefix = \"Key \" }} }}", file.to_str().unwrap());
    let client = start_server(&agent(&endpoint, &format!("forward-headers = [\"x-tenant\"]\n{headers}"))).await;
    for run in ["r1", "r2"] {
        say(&client, run, &[("x-tenant", users)]).await;
        let received = endpoint.received().await.headers;
        assert_eq!(
            json!([received["x-own"].to_str().unwrap(), received["x-tenant"].to_str().unwrap()]),
            json!([format!("Key {own}"), users])
        );
        wait_for_status(&client, run, "failed").await;
        for path in ["events", "activities"] {
            let shown = client.get(&format!("/v1/runs/{run}/{path}?audience=internal")).await.ok().to_string();
            assert!(!shown.contains(own) && !shown.contains(users), "{shown}");
            assert!(shown.contains("[redacted]"), "{shown}");
        }
    }
}

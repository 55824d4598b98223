//! Push addresses of tasks, through the binary: what a client of the Agent2Agent protocol hears, and what it may name.

use crate::a2a::{JSON, ask, call, error};
use crate::harness::{Client, Process, fact, with_timeout};
use crate::push::{admin, flags, token};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use proscenium::notify::task_push::{TASK_PUSH_TEXT_BYTES_MAX, TASK_PUSHES_PER_TASK_MAX};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A client's receiver, and what it got.
pub struct Receiver {
    pub host: String,
    received: mpsc::UnboundedReceiver<(HeaderMap, Value)>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (host, (sender, received)) = (listener.local_addr().unwrap().to_string(), mpsc::unbounded_channel());
        let take = async |State(sender): State<mpsc::UnboundedSender<(HeaderMap, Value)>>, headers: HeaderMap, body: Bytes| {
            let _ = sender.send((headers, serde_json::from_slice(&body).unwrap()));
            StatusCode::OK
        };
        let router = Router::new().fallback(take).with_state(sender);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { host, received }
    }

    pub fn url(&self) -> String {
        format!("http://{}/tasks", self.host)
    }

    pub async fn next(&mut self) -> (HeaderMap, Value) {
        with_timeout("a notification", self.received.recv()).await.expect("the receiver runs")
    }
}

pub fn begun(session: &str) -> [Value; 2] {
    let shown = |members: Value| {
        let mut all = json!({ "audience": "user" });
        all.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        all
    };
    let question = json!({ "kind": "question", "message": "Which one?" });
    [
        fact("run.started", shown(json!({ "sessionId": session, "agentId": "helper", "phase": "acting" }))),
        fact("action.required", shown(json!({ "actionId": "a", "payload": question }))),
    ]
}

pub fn ended() -> [Value; 2] {
    [
        fact("action.resolved", json!({ "actionId": "a", "payload": { "outcome": "approved" } })),
        fact("run.finished", json!({ "phase": "completed" })),
    ]
}

/// The parameters that name an address for a task, in the form of each version.
fn named(method: &str, task: &str, address: &Value) -> Value {
    let mut address = address.clone();
    if method.starts_with("tasks/") {
        return json!({ "taskId": task, "pushNotificationConfig": address });
    }
    address["taskId"] = task.into();
    address
}

const SET: [&str; 2] = ["tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig"];

#[tokio::test]
async fn a_client_hears_that_its_task_waits_and_that_it_has_ended_in_both_versions() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let process = Process::start_with(dir.path(), &["--push-host", &receiver.host]);
    let client = Client::new(process.at);
    let card = client.get("/a2a/helper/.well-known/agent-card.json").await.ok();
    assert_eq!(card["capabilities"]["pushNotifications"], true);
    for (set, task, authentication, state) in [
        (SET[0], "old", json!({ "schemes": ["Bearer"], "credentials": "secret" }), ["input-required", "completed"]),
        (
            SET[1],
            "new",
            json!({ "scheme": "Bearer", "credentials": "secret" }),
            ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"],
        ),
    ] {
        let [starts, asks] = begun("s");
        client.append(task, &[starts]).await;
        let address = json!({ "id": "mine", "url": receiver.url(), "token": "known", "authentication": authentication });
        let made = ask(&client, set, &named(set, task, &address)).await;
        assert!(!made.to_string().contains("secret"), "{made}");
        for (facts, state) in [vec![asks], ended().to_vec()].into_iter().zip(state) {
            // It waits no longer once it has ended, and then nothing says that it did.
            client.append(task, &facts).await;
            let (headers, body) = receiver.next().await;
            assert_eq!(headers["x-a2a-notification-token"], "known");
            assert_eq!(headers["authorization"], "Bearer secret");
            let (about, id) = if task == "old" { (&body, "id") } else { (&body["statusUpdate"], "taskId") };
            assert_eq!(
                (&about[id], &about["contextId"], &about["status"]["state"]),
                (&json!(task), &json!("s"), &json!(state)),
                "{body}"
            );
            assert_eq!(body.to_string().contains("Which one?"), facts.len() == 1, "{body}");
        }
    }
    // The address of a task that has ended is forgotten, and none is taken.
    with_timeout("the end of the address", async {
        let list = json!({ "taskId": "new" });
        while ask(&client, "ListTaskPushNotificationConfigs", &list).await["result"]["configs"] != json!([]) {}
    })
    .await;
    let late = error(&client, SET[1], &named(SET[1], "new", &json!({ "url": receiver.url() }))).await;
    assert_eq!(late.0, -32004, "{late:?}");
}

#[tokio::test]
async fn a_message_names_the_address_of_the_task_that_it_begins() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let process = Process::start_with(dir.path(), &["--push-host", &receiver.host]);
    let client = Client::new(process.at);
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "Go." }] });
    let configuration = |url: &str| json!({ "returnImmediately": true, "taskPushNotificationConfig": { "url": url } });
    let refused = json!({ "message": message, "configuration": configuration("http://10.1.2.3/") });
    assert_eq!(error(&client, "SendMessage", &refused).await.0, -32602);
    let params = json!({ "message": message, "configuration": configuration(&receiver.url()) });
    let task = ask(&client, "SendMessage", &params).await["result"]["task"].clone();
    let id = task["id"].as_str().unwrap();
    client.append(id, &begun(task["contextId"].as_str().unwrap())).await;
    let (_, body) = receiver.next().await;
    assert_eq!(body["statusUpdate"]["taskId"], id, "{body}");
}

#[tokio::test]
async fn an_address_is_public_or_of_the_operator_and_few_belong_to_a_task() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let process = Process::start_with(dir.path(), &["--push-host", &receiver.host]);
    let client = Client::new(process.at);
    client.append("r", &begun("s")[..1]).await;
    for (address, names) in [
        (json!({}), "url is missing"),
        (json!({ "url": 7 }), "url is a number"),
        (json!({ "url": "tasks" }), "absolute"),
        (json!({ "url": "http://example.com/" }), "https"),
        (json!({ "url": "https://127.0.0.1:9/" }), "not public"),
        (json!({ "url": "https://169.254.169.254/" }), "not public"),
        (json!({ "url": "https://me:secret@example.com/" }), "password"),
        (json!({ "url": "https://example.com/", "token": "a\nb" }), "token"),
        (json!({ "url": "https://example.com/", "token": "x".repeat(TASK_PUSH_TEXT_BYTES_MAX + 1) }), "limit"),
        (json!({ "url": "https://example.com/", "authentication": "Bearer" }), "authentication"),
        (
            json!({ "url": "https://example.com/", "authentication": { "scheme": "Bearer", "credentials": "\u{1}" } }),
            "credentials",
        ),
    ] {
        for set in SET {
            let (code, why) = error(&client, set, &named(set, "r", &address)).await;
            assert!(code == -32602 && why.contains(names), "{address}: {code} {why}");
        }
    }
    for n in 0..TASK_PUSHES_PER_TASK_MAX {
        ask(&client, SET[1], &named(SET[1], "r", &json!({ "id": n.to_string(), "url": receiver.url() }))).await;
    }
    let more = call(SET[1], &named(SET[1], "r", &json!({ "id": "more", "url": receiver.url() })));
    let refused = client.post("/a2a/helper", &JSON, more).await.problem(429, "too_many_push_addresses");
    assert_eq!(refused["limit"], TASK_PUSHES_PER_TASK_MAX);
    // One of the same id takes the place of the other.
    ask(&client, SET[1], &named(SET[1], "r", &json!({ "id": "0", "url": "https://example.com/" }))).await;
    let of = |id: &str| json!({ "taskId": "r", "id": id });
    assert_eq!(ask(&client, "GetTaskPushNotificationConfig", &of("0")).await["result"]["url"], "https://example.com/");
    for _ in 0..2 {
        assert_eq!(ask(&client, "DeleteTaskPushNotificationConfig", &of("0")).await["result"], json!({}));
    }
    assert_eq!(error(&client, "GetTaskPushNotificationConfig", &of("0")).await.0, -32602);
    let listed = ask(&client, "tasks/pushNotificationConfig/list", &json!({ "id": "r" })).await;
    assert_eq!(listed["result"].as_array().unwrap().len(), TASK_PUSHES_PER_TASK_MAX - 1);
    // What is erased leaves no address behind.
    client.delete("/v1/runs/r").await;
    client.append("r", &begun("s")[..1]).await;
    let listed = ask(&client, "tasks/pushNotificationConfig/list", &json!({ "id": "r" })).await;
    assert_eq!(listed["result"], json!([]));
}

#[tokio::test]
async fn an_address_is_of_one_person_and_ends_with_the_token() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let flags = flags(dir.path(), &receiver.host);
    let process = Process::start_with(dir.path(), &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let all = Client::with_token(process.at, &admin());
    let here = json!({ "sessions": ["*"], "agents": ["*"], "can": ["read"] });
    let [ann, bob] = ["ann", "bob"].map(|sub| Client::with_token(process.at, &token(sub, &here)));
    all.append("r", &begun("s")[..1]).await;
    for (client, secret) in [(&ann, "of-ann"), (&bob, "of-bob")] {
        ask(client, SET[1], &named(SET[1], "r", &json!({ "id": "mine", "url": receiver.url(), "token": secret }))).await;
    }
    let own = ask(&bob, "ListTaskPushNotificationConfigs", &json!({ "taskId": "r" })).await;
    assert_eq!((own["result"]["configs"].as_array().unwrap().len(), own.to_string().contains("of-ann")), (1, false), "{own}");
    std::fs::write(dir.path().join("revoked"), "token-of-ann\n").unwrap();
    with_timeout("the revocation", async { while ann.get("/v1/me").await.status != 401 {} }).await;
    for (facts, state) in [(begun("s")[1..].to_vec(), "TASK_STATE_INPUT_REQUIRED"), (ended().to_vec(), "TASK_STATE_COMPLETED")] {
        all.append("r", &facts).await;
        let (headers, body) = receiver.next().await;
        assert_eq!(headers["x-a2a-notification-token"], "of-bob");
        assert_eq!(body["statusUpdate"]["status"]["state"], state);
    }
    assert!(receiver.received.try_recv().is_err(), "nothing goes to the other");
}

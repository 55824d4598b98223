//! The threads of `CopilotKit`: its list, what is in a thread, and what people do to one. Rights are in `auth::threads`,
//! the published packages in `tests/clients/copilotkit-threads.test.mjs`.

use crate::harness::{Client, Process, environment, fact, serve_until, start_local, with_timeout};
use http::Method;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::access::origin::Origins;
use proscenium::serve::clients::threads::RUNS_MAX;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::time::Duration;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Publishes a turn of an agent: a question, an answer, and the end.
async fn turn(client: &Client, thread: &str, run: &str, agent: &str) {
    let said = |id: &str, role: &str| {
        fact(
            "text.final",
            json!({ "messageId": format!("{run}-{id}"), "payload": { "role": role, "text": format!("{id} of {run}") } }),
        )
    };
    let facts = [
        fact("run.started", json!({ "agentId": agent })),
        said("question", "user"),
        said("answer", "assistant"),
        fact("run.finished", json!({})),
    ];
    publish(client, thread, run, &facts).await;
    // Times in lists have milliseconds.
    tokio::time::sleep(Duration::from_millis(3)).await;
}

async fn publish(client: &Client, thread: &str, run: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?sessionId={thread}");
    client.post(&path, &JSON, Value::from(facts).to_string()).await.ok();
}

async fn list(client: &Client, query: &str) -> Vec<Value> {
    client.get(&format!("/copilotkit/threads?{query}")).await.ok()["threads"].as_array().unwrap().clone()
}

async fn ids(client: &Client, query: &str) -> Vec<String> {
    list(client, query).await.iter().map(|thread| thread["id"].as_str().unwrap().to_owned()).collect()
}

async fn read(client: &Client, thread: &str, what: &str) -> Value {
    client.get(&format!("/copilotkit/threads/{thread}/{what}")).await.ok()[what.split('?').next().unwrap()].clone()
}

async fn patch(client: &Client, thread: &str, body: Value) -> crate::harness::Response {
    client.patch(&format!("/copilotkit/threads/{thread}"), &body).await
}

async fn archive(client: &Client, thread: &str) -> crate::harness::Response {
    client.post(&format!("/copilotkit/threads/{thread}/archive"), &JSON, r#"{"agentId":"a"}"#).await
}

/// Deletes a thread as `CopilotKit` does: the request has a body.
async fn delete(client: &Client, thread: &str) -> crate::harness::Response {
    client.request(Method::DELETE, &format!("/copilotkit/threads/{thread}"), &JSON, r#"{"agentId":"a"}"#).await
}

#[tokio::test]
async fn the_list_has_the_threads_of_an_agent_with_the_newest_activity_first() {
    let client = start_local().await;
    turn(&client, "one", "r1", "a").await;
    turn(&client, "two", "r2", "a").await;
    turn(&client, "other", "r3", "b").await;
    assert_eq!(ids(&client, "agentId=a").await, ["two", "one"]);
    turn(&client, "one", "r4", "b").await;
    assert_eq!(ids(&client, "agentId=a").await, ["one", "two"], "the newest activity counts, of any agent");
    assert_eq!(ids(&client, "agentId=b").await, ["one", "other"]);
    assert_eq!(ids(&client, "").await, ["one", "other", "two"]);
    assert_eq!(ids(&client, "agentId=c").await, Vec::<String>::new());

    let of = async |agent: &str| list(&client, &format!("agentId={agent}")).await;
    let (a, b) = (of("a").await[0].clone(), of("b").await[0].clone());
    assert_eq!(json!([a["agentId"], b["agentId"]]), json!(["a", "b"]), "a thread of several agents is of the one asked for");
    assert_eq!(list(&client, "").await[0]["agentId"], "b", "else of the newest");
    let members: Vec<_> = a.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["id", "organizationId", "agentId", "createdById", "name", "archived", "createdAt", "updatedAt", "lastRunAt"];
    assert_eq!(members, expected);
    assert_eq!(
        json!([a["organizationId"], a["createdById"], a["name"], a["archived"]]),
        json!(["default", "anonymous", "question of r1", false])
    );
    let first = client.get("/v1/runs/r1").await.ok();
    let last = client.get("/v1/runs/r4").await.ok();
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    assert_eq!(time(&a["createdAt"]), time(&first["startedAt"]), "a thread begins with its first run");
    assert_eq!(time(&a["lastRunAt"]), time(&last["lastActivity"]));
    assert_eq!(a["updatedAt"], a["lastRunAt"]);

    // Runs that name no agent are of the default agent.
    publish(&client, "nameless", "r5", &[fact("run.started", json!({}))]).await;
    assert_eq!(ids(&client, "agentId=default").await, ["nameless"]);
    assert_eq!(list(&client, "agentId=default").await[0]["agentId"], "default");
}

#[tokio::test]
async fn the_list_goes_by_what_the_audience_sees() {
    let client = start_local().await;
    for (thread, run) in [("one", "r1"), ("two", "r2")] {
        publish(&client, thread, run, &[fact("run.started", json!({ "agentId": "a" }))]).await;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let before = list(&client, "").await;
    let hidden = fact("text.final", json!({ "messageId": "h", "audience": "internal", "payload": { "text": "hidden" } }));
    publish(&client, "one", "r1", &[hidden]).await;
    assert_eq!(ids(&client, "").await, ["two", "one"]);
    assert_eq!(list(&client, "").await[1]["lastRunAt"], before[1]["lastRunAt"]);
    assert_eq!(ids(&client, "audience=internal").await, ["one", "two"]);
    for (query, sees) in [("", false), ("?audience=internal", true)] {
        for what in ["messages", "events"] {
            let shown = read(&client, "one", &format!("{what}{query}")).await.to_string();
            assert_eq!(shown.contains("hidden"), sees, "{what}{query}: {shown}");
        }
    }
    client.get("/copilotkit/threads?audience=all").await.problem(400, "bad_audience");
}

#[tokio::test]
async fn a_page_goes_on_where_the_page_before_ended_and_no_cursor_of_another_list_is_taken() {
    let client = start_local().await;
    for n in 0..5 {
        turn(&client, &format!("t{n}"), &format!("r{n}"), if n == 2 { "b" } else { "a" }).await;
    }
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/copilotkit/threads?agentId=a&limit=2&cursor={cursor}")).await.ok();
        let threads = page["threads"].as_array().unwrap();
        assert!(threads.len() <= 2, "{page}");
        found.extend(threads.iter().map(|thread| thread["id"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!(found, ["t4", "t3", "t1", "t0"]);

    let created = client.get("/v1/sessions?limit=1").await.ok()["nextCursor"].as_str().unwrap().to_owned();
    let window = client.get("/v1/runs?limit=1").await.ok()["nextCursor"].as_str().unwrap().to_owned();
    for foreign in [&created, &window, "x", "1-2-3"] {
        let problem = client.get(&format!("/copilotkit/threads?cursor={foreign}")).await.problem(400, "bad_query");
        assert_eq!(problem["member"], "cursor");
    }
    for query in ["limit=x", "agentId=%00", "agentId="] {
        assert_eq!(client.get(&format!("/copilotkit/threads?{query}")).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn a_renamed_thread_has_that_name_for_all() {
    let client = start_local().await;
    turn(&client, "t", "r", "a").await;
    let before = list(&client, "agentId=a").await[0].clone();
    let renamed = patch(&client, "t", json!({ "agentId": "a", "name": "  Mine " })).await.ok();
    let mut expected = before.clone();
    expected["name"] = "Mine".into();
    assert_eq!(renamed, expected, "a rename is no activity");
    assert_eq!(list(&client, "agentId=a").await, [expected]);
    let session = client.get("/v1/sessions/t").await.ok();
    assert_eq!(json!([session["title"], session["titleFrom"]]), json!(["Mine", "user"]));
    let events = client.get("/v1/sessions/t/events").await.ok()["events"].clone();
    let by = &events.as_array().unwrap().iter().find(|event| event["type"] == "session.updated").unwrap()["payload"]["updatedBy"];
    assert_eq!(by["via"], "copilotkit");

    let native = client.patch("/v1/sessions/t", &json!({ "title": "Native" })).await.ok();
    assert_eq!(list(&client, "").await[0]["name"], native["title"]);
    assert_eq!(patch(&client, "t", json!({ "name": null })).await.ok()["name"], before["name"], "null gives it back");
    let of_another = patch(&client, "t", json!({ "agentId": "b", "name": "N" })).await.ok();
    assert_eq!(of_another["agentId"], "a", "the thread has no run of agent b");
}

#[tokio::test]
async fn an_archived_thread_is_in_no_list_until_it_comes_back() {
    let client = start_local().await;
    for thread in ["one", "two"] {
        turn(&client, thread, &format!("r-{thread}"), "a").await;
    }
    assert_eq!(archive(&client, "one").await.ok(), json!({ "threadId": "one", "archived": true }));
    assert_eq!(archive(&client, "one").await.status, 200, "a repeated request has the same answer");
    assert_eq!(ids(&client, "agentId=a").await, ["two"]);
    assert_eq!(ids(&client, "agentId=a&includeArchived=false").await, ["two"]);
    let all = list(&client, "agentId=a&includeArchived=true").await;
    let archived: Vec<_> = all.iter().map(|thread| json!([thread["id"], thread["archived"]])).collect();
    assert_eq!(archived, [json!(["two", false]), json!(["one", true])]);
    turn(&client, "one", "more", "a").await;
    assert_eq!(ids(&client, "agentId=a").await, ["two"], "a new run does not bring it back");
    let back = patch(&client, "one", json!({ "agentId": "a", "archived": false })).await.ok();
    assert_eq!(json!([back["id"], back["archived"]]), json!(["one", false]));
    assert_eq!(ids(&client, "agentId=a").await, ["one", "two"]);
}

#[tokio::test]
async fn a_deleted_thread_is_gone_with_its_child_sessions_and_its_run_at_work() {
    let client = start_local().await;
    turn(&client, "t", "r1", "a").await;
    publish(&client, "t", "r2", &[fact("run.started", json!({ "agentId": "a" }))]).await;
    client
        .post("/v1/runs/c/facts?sessionId=child&parentSessionId=t", &JSON, json!([fact("run.started", json!({}))]).to_string())
        .await
        .ok();
    turn(&client, "kept", "k", "a").await;
    client.delete("/v1/sessions/t").await.problem(409, "has_children");
    assert_eq!(delete(&client, "t").await.ok(), json!({ "threadId": "t", "deleted": true }));
    assert_eq!(ids(&client, "includeArchived=true").await, ["kept"]);
    for gone in ["t", "child"] {
        client.get(&format!("/v1/sessions/{gone}")).await.problem(410, "erased");
        for what in ["messages", "events", "state"] {
            client.get(&format!("/copilotkit/threads/{gone}/{what}")).await.problem(410, "erased");
        }
        patch(&client, gone, json!({ "name": "N" })).await.problem(410, "erased");
        archive(&client, gone).await.problem(410, "erased");
        delete(&client, gone).await.problem(410, "erased");
    }
    let audit = client.get("/v1/audit").await.ok();
    let entry = audit["entries"].as_array().unwrap().iter().find(|entry| entry["sessionId"] == "t").expect("it is audited");
    assert_eq!(json!([entry["what"], entry["by"]["via"]]), json!(["erase", "copilotkit"]), "{entry}");
}

#[tokio::test]
async fn a_thread_is_read_as_its_messages_its_events_and_its_state() {
    let client = start_local().await;
    turn(&client, "t", "r1", "a").await;
    let call = |kind: &str, payload: Value| fact(kind, json!({ "toolCallId": "c", "audience": "user", "payload": payload }));
    let facts = [
        fact("run.started", json!({ "agentId": "a" })),
        call("tool.started", json!({ "toolName": "look", "input": { "at": "it" } })),
        call("tool.result", json!({ "output": "seen" })),
        fact("state.snapshot", json!({ "audience": "user", "payload": { "state": { "count": 1 } } })),
        fact(
            "state.delta",
            json!({ "audience": "user", "payload": { "patch": [{ "op": "replace", "path": "/count", "value": 2 }] } }),
        ),
        fact("task.changed", json!({ "taskId": "k", "audience": "user", "payload": { "title": "A task" } })),
    ];
    publish(&client, "t", "r2", &facts).await;
    let messages = read(&client, "t", "messages").await;
    let messages = messages.as_array().unwrap();
    let said = |role: &str| messages.iter().filter(|message| message["role"] == role).cloned().collect::<Vec<_>>();
    assert_eq!(said("user"), [json!({ "id": "r1-question", "role": "user", "content": "question of r1" })]);
    assert_eq!(
        said("assistant"),
        [
            json!({ "id": "r1-answer", "role": "assistant", "content": "answer of r1" }),
            json!({ "id": "c", "role": "assistant", "toolCalls": [{ "id": "c", "name": "look", "args": r#"{"at":"it"}"# }] }),
        ]
    );
    assert_eq!(said("tool"), [json!({ "id": "result:c", "role": "tool", "content": "seen", "toolCallId": "c" })]);
    assert_eq!(said("activity"), [json!({ "id": "task:k", "role": "activity", "activityType": "task" })]);
    assert_eq!(read(&client, "t", "state").await, json!({ "count": 2 }));

    let events = read(&client, "t", "events").await;
    let types = |events: &Value| {
        events.as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let ends = |events: &Value| {
        events
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["type"] == "RUN_FINISHED")
            .map(|event| event["runId"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        types(&events)[..8],
        [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ]
    );
    for event in ["STATE_SNAPSHOT", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "ACTIVITY_SNAPSHOT"]
    {
        assert!(types(&events).contains(&event.to_owned()), "{event}: {events:#}");
    }
    assert_eq!(ends(&events), ["r1"], "a run at work has no end");
    publish(
        &client,
        "t",
        "r2",
        &[fact("action.required", json!({ "actionId": "ask", "audience": "user", "payload": { "kind": "tool_approval" } }))],
    )
    .await;
    let events = read(&client, "t", "events").await;
    assert_eq!(events.as_array().unwrap().last().unwrap()["outcome"]["interrupts"][0]["id"], "ask");
    publish(
        &client,
        "t",
        "r2",
        &[
            fact("action.resolved", json!({ "actionId": "ask", "audience": "user", "payload": {} })),
            fact("run.finished", json!({})),
        ],
    )
    .await;
    assert_eq!(ends(&read(&client, "t", "events").await), ["r1", "r2"]);

    // A thread without a state, and an unknown one.
    turn(&client, "plain", "p", "a").await;
    assert_eq!(read(&client, "plain", "state").await, Value::Null);
    for (what, nothing) in [("messages", json!([])), ("events", json!([])), ("state", Value::Null)] {
        assert_eq!(client.get(&format!("/copilotkit/threads/never/{what}")).await.ok(), json!({ what: nothing }));
    }
}

#[tokio::test]
async fn a_large_body_is_in_the_messages_whole_and_old_runs_are_not() {
    let client = start_local().await;
    let large = "long text ".repeat(20_000);
    let facts = [
        fact("run.started", json!({ "agentId": "a" })),
        fact("tool.started", json!({ "toolCallId": "c", "audience": "user", "payload": { "toolName": "look" } })),
        fact("tool.result", json!({ "toolCallId": "c", "audience": "user", "payload": { "output": large } })),
    ];
    publish(&client, "t", "r", &facts).await;
    for what in ["messages", "events"] {
        assert!(read(&client, "t", what).await.to_string().contains(&large), "{what} has the whole output");
    }
    for n in 0..RUNS_MAX {
        publish(&client, "t", &format!("r{n}"), &[fact("run.started", json!({})), fact("run.finished", json!({}))]).await;
    }
    let events = read(&client, "t", "events").await;
    let runs: Vec<_> =
        events.as_array().unwrap().iter().filter(|event| event["type"] == "RUN_STARTED").map(|event| &event["runId"]).collect();
    assert_eq!((runs.len(), runs[0]), (RUNS_MAX, &json!("r0")));
}

#[tokio::test]
async fn a_run_without_a_session_is_read_and_deleted_and_has_no_title() {
    let client = start_local().await;
    let said = fact("text.final", json!({ "messageId": "m", "payload": { "role": "user", "text": "Alone" } }));
    client.append("alone", &[fact("run.started", json!({ "agentId": "a" })), said]).await;
    assert_eq!(ids(&client, "includeArchived=true").await, Vec::<String>::new(), "no list has it");
    assert_eq!(read(&client, "alone", "messages").await, json!([{ "id": "m", "role": "user", "content": "Alone" }]));
    assert_eq!(read(&client, "alone", "events").await[0]["threadId"], "alone");
    for refused in [patch(&client, "alone", json!({ "name": "N" })).await, archive(&client, "alone").await] {
        let problem = refused.problem(404, "no_such_session");
        assert!(problem["detail"].as_str().unwrap().contains("a run without a session"), "{problem}");
    }
    assert_eq!(delete(&client, "alone").await.ok(), json!({ "threadId": "alone", "deleted": true }));
    client.get("/v1/runs/alone").await.problem(410, "erased");
    delete(&client, "alone").await.problem(404, "no_such_session");
    assert_eq!(read(&client, "alone", "messages").await, json!([]));
}

#[tokio::test]
async fn bad_input_is_refused_and_changes_nothing() {
    let client = start_local().await;
    turn(&client, "t", "r", "a").await;
    let before = client.get("/v1/sessions/t/events").await.ok();
    for (body, member) in [
        (json!({}), "name"),
        (json!({ "agentId": "a" }), "name"),
        (json!({ "name": "" }), "name"),
        (json!({ "name": 7 }), "name"),
        (json!({ "name": "two\nlines" }), "name"),
        (json!({ "name": "x".repeat(161) }), "name"),
        (json!({ "name": "x".repeat(1024 * 1024) }), "name"),
        (json!({ "archived": "no" }), "archived"),
        (json!({ "title": "T" }), "title"),
        (json!({ "agentId": 7, "name": "N" }), "agentId"),
        (json!({ "agentId": "", "name": "N" }), "agentId"),
    ] {
        let problem = patch(&client, "t", body.clone()).await.problem(422, "bad_member");
        let text = body.to_string();
        assert_eq!(problem["member"], member, "{}", &text[..text.len().min(80)]);
    }
    let long = patch(&client, "t", json!({ "name": "x".repeat(1024 * 1024) })).await.problem(422, "bad_member");
    assert_eq!(long["limit"], 160);
    assert!(long["detail"].as_str().unwrap().len() < 200, "the detail does not repeat it: {long}");
    patch(&client, "t", json!([])).await.problem(422, "not_an_object");
    for path in ["/copilotkit/threads/t/archive", "/copilotkit/threads/t"] {
        let method = if path.ends_with("archive") { Method::POST } else { Method::DELETE };
        for (body, status, code) in
            [("{", 400, "not_json"), ("[]", 422, "not_an_object"), (r#"{"agentId":7}"#, 422, "bad_member")]
        {
            client.request(method.clone(), path, &JSON, body).await.problem(status, code);
        }
    }
    patch(&client, "never", json!({ "name": "N" })).await.problem(404, "no_such_session");
    archive(&client, "never").await.problem(404, "no_such_session");
    delete(&client, "never").await.problem(404, "no_such_session");
    for path in ["%00", "%00/messages"] {
        assert_eq!(
            client
                .request(
                    if path.len() > 3 { Method::GET } else { Method::DELETE },
                    &format!("/copilotkit/threads/{path}"),
                    &[],
                    ""
                )
                .await
                .status,
            400
        );
    }
    patch(&client, "t?audience=all", json!({ "name": "N" })).await.problem(400, "bad_audience");
    let problem = client.post("/copilotkit/threads/clear", &[], "").await.problem(403, "forbidden");
    assert_eq!(problem["missing"], "sub", "without tokens, the server does not know whose threads these are");
    client.post("/copilotkit/threads/subscribe", &JSON, "{}").await.problem(422, "no_live_list");
    assert_eq!(client.get("/v1/sessions/t/events").await.ok(), before);
    assert_eq!(ids(&client, "includeArchived=true").await, ["t"]);
}

#[tokio::test]
async fn the_threads_are_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    for thread in ["renamed", "archived", "deleted"] {
        turn(&client, thread, &format!("r-{thread}"), "a").await;
    }
    patch(&client, "renamed", json!({ "name": "Mine" })).await.ok();
    archive(&client, "archived").await.ok();
    delete(&client, "deleted").await.ok();
    let before = (
        list(&client, "includeArchived=true").await,
        read(&client, "renamed", "messages").await,
        read(&client, "renamed", "events").await,
    );
    assert_eq!(before.0.len(), 2);
    server.kill();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    assert_eq!(
        (
            list(&client, "includeArchived=true").await,
            read(&client, "renamed", "messages").await,
            read(&client, "renamed", "events").await
        ),
        before
    );
    delete(&client, "deleted").await.problem(410, "erased");
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_rename_and_delete() {
    let environment = environment(jiff::Timestamp::now);
    let server = Server::new(
        Storage::memory(),
        Policy::default(),
        FeedConfig::default(),
        Limits::default(),
        KeepAlive::default(),
        environment,
    )
    .unwrap();
    let server = server.with_auth(None, Origins::new(["https://app.example"]).unwrap());
    let (client, _) = serve_until(server, std::future::pending()).await;
    turn(&client, "t", "r", "a").await;
    for method in ["PATCH", "DELETE"] {
        let preflight = [
            ("origin", "https://app.example"),
            ("access-control-request-method", method),
            ("access-control-request-headers", "content-type, x-copilotcloud-public-api-key"),
        ];
        let answer = with_timeout("an answer", client.request(Method::OPTIONS, "/copilotkit/threads/t", &preflight, "")).await;
        assert_eq!(answer.status, 204);
        assert!(answer.headers["access-control-allow-methods"].to_str().unwrap().contains(method));
        let headers = answer.headers["access-control-allow-headers"].to_str().unwrap();
        for header in ["content-type", "authorization", "x-copilotcloud-public-api-key"] {
            assert!(headers.split(", ").any(|allowed| allowed == header), "{header}");
        }
        let sent = [("origin", "https://app.example"), ("content-type", "application/json")];
        let answer =
            client.request(method.parse().unwrap(), "/copilotkit/threads/t", &sent, r#"{"agentId":"a","name":"N"}"#).await;
        assert_eq!(
            (answer.status, &answer.headers["access-control-allow-origin"]),
            (200, &"https://app.example".parse().unwrap()),
            "{method}"
        );
        let foreign = [("origin", "https://evil.example"), ("content-type", "application/json")];
        client
            .request(method.parse().unwrap(), "/copilotkit/threads/t", &foreign, r#"{"name":"E"}"#)
            .await
            .problem(403, "foreign_origin");
    }
}

#[tokio::test]
async fn the_single_endpoint_takes_every_request_for_threads() {
    let client = start_local().await;
    turn(&client, "a/b", "r", "a").await;
    let call = async |method: &str, path: &str, body: Value| {
        let mut call = json!({ "method": "resource/request", "params": { "path": path, "httpMethod": method } });
        if !body.is_null() {
            call["body"] = body;
        }
        client.post("/copilotkit", &JSON, call.to_string()).await
    };
    for path in ["/threads?agentId=a", "/threads/a%2Fb/messages", "/threads/a%2Fb/events", "/threads/a%2Fb/state"] {
        let direct = client.get(&format!("/copilotkit{path}")).await.ok();
        assert_eq!(call("GET", path, Value::Null).await.ok(), direct, "{path}");
    }
    let renamed = call("PATCH", "/threads/a%2Fb", json!({ "agentId": "a", "name": "Mine" })).await.ok();
    assert_eq!([renamed], *list(&client, "").await);
    let archived = call("POST", "/threads/a%2Fb/archive", json!({ "agentId": "a" })).await.ok();
    assert_eq!(archived, json!({ "threadId": "a/b", "archived": true }));
    call("PATCH", "/threads/a%2Fb", json!({ "name": 7 })).await.problem(422, "bad_member");
    call("POST", "/threads/clear", Value::Null).await.problem(403, "forbidden");
    call("POST", "/threads/subscribe", json!({})).await.problem(422, "no_live_list");
    for (method, path, member) in [
        ("GET", "", "path"),
        ("GET", "/info", "path"),
        ("GET", "/memories", "path"),
        ("GET", "/../v1/audit", "path"),
        ("GET", "@evil", "path"),
        ("GET", " /threads", "path"),
        ("GET", "/threads/a/b/c/d", "path"),
        ("", "/threads", "httpMethod"),
        ("DELETE", "/threads", "httpMethod"),
        ("get", "/threads", "httpMethod"),
        ("GET", "/threads/t/archive", "httpMethod"),
        ("DELETE", "/threads/clear", "httpMethod"),
    ] {
        let problem = call(method, path, Value::Null).await.problem(422, "bad_member");
        assert_eq!(problem["member"], member, "{method} {path:?}");
    }
    call("GET", "/threads?limit=x", Value::Null).await.problem(400, "bad_query");
    let deleted = call("DELETE", "/threads/a%2Fb", json!({ "agentId": "a" })).await.ok();
    assert_eq!(deleted, json!({ "threadId": "a/b", "deleted": true }));
    call("GET", "/threads/a%2Fb/state", Value::Null).await.problem(410, "erased");
}

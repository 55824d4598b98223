//! Permissions on the addresses of AG-UI and AI SDK clients.

use super::{AuthServer, OWN, SHORT_TTL_S, admin, bearer, now, test_clock, token, token_with_claims, write_example_runs};
use crate::harness::{fact, with_timeout};
use serde_json::{Value, json};

/// A token of a page that uses agent `a` in these sessions and runs.
fn chat_token(sessions: &[&str], runs: &[&str]) -> String {
    token(&json!({ "sessions": sessions, "runs": runs, "agents": ["a"], "can": ["read", "control"] }))
}

/// Parses the last event of a stream that ends.
fn last_event(answer: &crate::harness::Response) -> Value {
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("the stream has an event");
    serde_json::from_str(last).unwrap()
}

#[tokio::test]
async fn a_reader_in_a_session_gets_only_that_session_s_runs_from_any_writer() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let token = chat_token(&["s"], &[]);
    let body = |run: &str| json!({ "threadId": "s", "runId": run });
    let waits = {
        let (client, bearer, body) = (guarded.client.clone(), bearer(&token), body("new").to_string());
        let headers = async move |path: &str| {
            client.post(path, &[("authorization", &bearer), ("content-type", "application/json")], body).await
        };
        tokio::spawn(async move { headers("/ag-ui/a").await })
    };
    let claimed = guarded.post("/v1/agents/a/controls/claim?wait=30", &admin(), &json!({})).await.ok();
    assert_eq!(claimed["controls"][0]["value"]["runId"], "new");
    // A token for the session may wait for the run that was requested in it; other tokens may not.
    assert_eq!(guarded.client.get_head("/ag-ui/a?runId=new", &[("authorization", &bearer(&token))]).await.status, 200);
    guarded.get("/ag-ui/a?runId=new", &chat_token(&["t"], &[])).await.problem(403, "forbidden");
    guarded.get("/ag-ui/a?runId=newer", &token).await.problem(403, "forbidden");
    // The worker writes the run in a session that the page may not read.
    let facts = [fact("text.final", json!({ "messageId": "m", "payload": { "text": OWN } })), fact("run.finished", json!({}))];
    guarded.publish("new", "sessionId=t", &admin(), &facts).await.ok();
    let response = waits.await.unwrap();
    assert_eq!(json!([last_event(&response)["type"], last_event(&response)["code"]]), json!(["RUN_ERROR", "forbidden"]));
    assert!(!String::from_utf8_lossy(&response.body).contains(OWN));
    for (path, body, missing) in [
        ("/ag-ui/a", body("new"), "run"),
        ("/ag-ui/a", json!({ "threadId": "t", "runId": "mine" }), "session"),
        ("/ag-ui/b", body("mine"), "agent"),
        ("/ag-ui/a?audience=internal", body("mine"), "audience:internal"),
        ("/copilotkit/agent/a/connect", json!({ "threadId": "t" }), "session"),
        ("/copilotkit/agent/b/stop/s", json!({}), "agent"),
        ("/copilotkit/agent/a/stop/t", json!({}), "session"),
        ("/copilotkit", json!({ "method": "agent/run", "params": { "agentId": "b" }, "body": body("mine") }), "agent"),
        ("/copilotkit?audience=dashboard", json!({ "method": "info" }), "audience:dashboard"),
        ("/ai-sdk/a", json!({ "id": "t" }), "session"),
        ("/ai-sdk/b", json!({ "id": "s" }), "agent"),
        ("/ai-sdk/a/t/stop", json!({}), "session"),
    ] {
        let problem = guarded.post(path, &token, &body).await.problem(403, "forbidden");
        assert_eq!(problem["missing"], missing, "{path} {body}");
    }
    // A run that is a thread by itself is covered by its own name; a run that does not exist yet is not.
    guarded.publish("loose", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    let token = chat_token(&[], &["loose", "never"]);
    assert_eq!(guarded.get("/ag-ui/a?threadId=loose", &token).await.ok()["activeRun"]["runId"], "loose");
    assert_eq!(guarded.post("/ai-sdk/a/loose/stop", &token, &json!({})).await.ok()["runId"], "loose");
    for thread in ["never", "s"] {
        guarded.get(&format!("/ag-ui/a?threadId={thread}"), &token).await.problem(403, "forbidden");
        let asks = json!({ "threadId": thread, "runId": "never" });
        assert_eq!(guarded.post("/ag-ui/a", &token, &asks).await.problem(403, "forbidden")["missing"], "session");
    }
}

#[tokio::test]
async fn a_waiting_page_gets_an_error_when_its_token_expires_and_a_ticket_reads_its_target() {
    let clock = test_clock!();
    let guarded = AuthServer::start_with_clock(clock).await;
    write_example_runs(&guarded).await;
    let claims = json!({ "sub": "page", "exp": now() + SHORT_TTL_S,
        "proscenium": { "sessions": ["s"], "agents": ["a"], "can": ["read", "control"] } });
    let (short, asks) = (token_with_claims(&claims), json!({ "threadId": "s", "runId": "new" }));
    let expire = async {
        while guarded.get("/v1/sessions/s/controls", &admin()).await.ok()["controls"].as_array().is_none_or(Vec::is_empty) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        clock.expire_short_tokens();
    };
    let asking = guarded.post("/ag-ui/a", &short, &asks);
    let (response, ()) = with_timeout("the page", Box::pin(async { tokio::join!(asking, expire) })).await;
    assert_eq!(json!([last_event(&response)["type"], last_event(&response)["code"]]), json!(["RUN_ERROR", "unauthenticated"]));

    let token = chat_token(&["s", "t"], &[]);
    for (asked, path) in [
        (json!({ "for": "stream", "session": "s" }), "/ag-ui/a?threadId=s"),
        (json!({ "for": "stream", "run": "r" }), "/ag-ui/a?runId=r"),
        (json!({ "for": "stream", "session": "s" }), "/ai-sdk/a/s/stream?version=5"),
    ] {
        let ticket = guarded.ticket(&token, asked.clone()).await;
        let elsewhere = path.replace("Id=s", "Id=t").replace("Id=r", "Id=q").replace("a/s/", "a/t/");
        assert_eq!(guarded.client.get_head(&format!("{path}&ticket={ticket}"), &[]).await.status, 200, "{path}");
        let ticket = guarded.ticket(&token, asked).await;
        guarded.client.get(&format!("{elsewhere}&ticket={ticket}")).await.problem(403, "forbidden");
        let ticket = guarded.ticket(&token, json!({ "for": "stream", "session": "s" })).await;
        let asks = guarded.client.post(&format!("/ag-ui/a?ticket={ticket}"), &[], r#"{"threadId":"s","runId":"x"}"#).await;
        asks.problem(401, "unauthenticated");
    }
}

//! What those who talk to agents by the addresses of existing clients may, and are told.

use super::{Guarded, OWN, SOON_OVER, admin, bearer, filled, now, token, token_of};
use crate::harness::fact;
use serde_json::{Value, json};

/// A token of a page that talks to agent `a` in these sessions and runs.
fn talker(sessions: &[&str], runs: &[&str]) -> String {
    token(&json!({ "sessions": sessions, "runs": runs, "agents": ["a"], "can": ["read", "control"] }))
}

/// The last event of a stream that ends.
fn last_event(answer: &crate::harness::Answer) -> Value {
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("an event");
    serde_json::from_str(last).unwrap()
}

#[tokio::test]
async fn who_talks_in_a_session_is_told_of_its_runs_and_of_no_other_whoever_writes_them() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let token = talker(&["s"], &[]);
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
    // Who has the session may wait for what was asked for in it, and nobody else.
    assert_eq!(guarded.client.head_of("/ag-ui/a?runId=new", &[("authorization", &bearer(&token))]).await.status, 200);
    guarded.get("/ag-ui/a?runId=new", &talker(&["t"], &[])).await.problem(403, "forbidden");
    guarded.get("/ag-ui/a?runId=newer", &token).await.problem(403, "forbidden");
    // Its worker writes it where the page has no business.
    let facts = [fact("text.final", json!({ "messageId": "m", "payload": { "text": OWN } })), fact("run.finished", json!({}))];
    guarded.publish("new", "sessionId=t", &admin(), &facts).await.ok();
    let told = waits.await.unwrap();
    assert_eq!(json!([last_event(&told)["type"], last_event(&told)["code"]]), json!(["RUN_ERROR", "forbidden"]));
    assert!(!String::from_utf8_lossy(&told.body).contains(OWN));
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
    // A run that is a thread by itself is had by its own name; what is not there yet is not.
    guarded.publish("loose", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    let token = talker(&[], &["loose", "never"]);
    assert_eq!(guarded.get("/ag-ui/a?threadId=loose", &token).await.ok()["activeRun"]["runId"], "loose");
    assert_eq!(guarded.post("/ai-sdk/a/loose/stop", &token, &json!({})).await.ok()["runId"], "loose");
    for thread in ["never", "s"] {
        guarded.get(&format!("/ag-ui/a?threadId={thread}"), &token).await.problem(403, "forbidden");
        let asks = json!({ "threadId": thread, "runId": "never" });
        assert_eq!(guarded.post("/ag-ui/a", &token, &asks).await.problem(403, "forbidden")["missing"], "session");
    }
}

#[tokio::test]
async fn a_page_that_waits_is_told_when_its_token_is_over_and_a_ticket_reads_what_it_is_for() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let claims = json!({ "sub": "page", "exp": now() + SOON_OVER,
        "proscenium": { "sessions": ["s"], "agents": ["a"], "can": ["read", "control"] } });
    let told = guarded.post("/ag-ui/a", &token_of(&claims), &json!({ "threadId": "s", "runId": "new" })).await;
    assert_eq!(json!([last_event(&told)["type"], last_event(&told)["code"]]), json!(["RUN_ERROR", "unauthenticated"]));

    let token = talker(&["s", "t"], &[]);
    for (asked, path) in [
        (json!({ "for": "stream", "session": "s" }), "/ag-ui/a?threadId=s"),
        (json!({ "for": "stream", "run": "r" }), "/ag-ui/a?runId=r"),
        (json!({ "for": "stream", "session": "s" }), "/ai-sdk/a/s/stream?version=5"),
    ] {
        let ticket = guarded.ticket(&token, asked.clone()).await;
        let elsewhere = path.replace("Id=s", "Id=t").replace("Id=r", "Id=q").replace("a/s/", "a/t/");
        assert_eq!(guarded.client.head_of(&format!("{path}&ticket={ticket}"), &[]).await.status, 200, "{path}");
        let ticket = guarded.ticket(&token, asked).await;
        guarded.client.get(&format!("{elsewhere}&ticket={ticket}")).await.problem(403, "forbidden");
        let ticket = guarded.ticket(&token, json!({ "for": "stream", "session": "s" })).await;
        let asks = guarded.client.post(&format!("/ag-ui/a?ticket={ticket}"), &[], r#"{"threadId":"s","runId":"x"}"#).await;
        asks.problem(401, "unauthenticated");
    }
}

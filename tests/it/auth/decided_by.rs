//! Every decision names its maker, by its token and its face, and only the server writes that.

use super::*;

fn person(sub: &str, name: &str, audience: &str, can: &[&str]) -> String {
    token_with_claims(&json!({ "sub": sub, "name": name, "exp": now() + 3600,
        "proscenium": { "audience": audience, "sessions": ["*"], "agents": ["*"], "can": can } }))
}

fn ask(action: &str) -> Value {
    fact("action.required", json!({"actionId": action, "payload": {"kind": "tool_approval"}}))
}

async fn events(server: &AuthServer, (token, audience): (&str, &str), kind: &str) -> Vec<Value> {
    let page = server.get(&format!("/v1/runs/r/events?type={kind}&audience={audience}"), token).await.ok();
    page["events"].as_array().unwrap().iter().map(|event| event["payload"].clone()).collect()
}

#[tokio::test]
async fn a_decision_names_its_maker_to_operators_and_only_the_face_to_users() {
    let server = AuthServer::start().await;
    let (operator, alice, bob) =
        (admin(), person("alice", "Alice A.", "user", &["read", "control"]), person("bob", "Bob", "user", &["read", "control"]));
    let facts = json!([fact("run.started", json!({"sessionId": "s", "threadId": "t"})), ask("a"), ask("b")]);
    server.post("/v1/runs/r/facts", &operator, &facts).await.ok();
    let seen = 2;
    let decided =
        server.post("/v1/runs/r/controls", &alice, &json!({"control": "approve", "actionId": "a", "seenSequence": seen})).await;
    assert_eq!(decided.status, 202, "{decided:?}");
    let id = decided.json()["controlId"].clone();

    let claimed = server.post("/v1/agents/default/controls/claim", &operator, &json!({})).await.ok()["controls"][0].clone();
    let whole = json!({"sub": "alice", "name": "Alice A.", "via": "rest", "at": claimed["createdAt"], "seen": seen});
    let public = json!({"via": "rest", "at": claimed["createdAt"], "seen": seen});
    assert_eq!(json!([claimed["runId"], claimed["sessionId"], claimed["threadId"]]), json!(["r", "s", "t"]));
    assert_eq!(claimed["decidedBy"], whole);

    // The worker claims that another person decided.
    let resolved =
        fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "approved", "decidedBy": {"sub": "mallory"}}}));
    server.post("/v1/runs/r/facts", &operator, &json!([resolved])).await.ok();
    let alone = fact("action.resolved", json!({"actionId": "b", "payload": {"outcome": "rejected"}}));
    server.post("/v1/runs/r/facts", &operator, &json!([alone])).await.ok();
    for (token, audience, expected) in [(&operator, "internal", &whole), (&bob, "user", &public)] {
        for change in events(&server, (token, audience), "control.changed").await {
            assert_eq!((&change["decidedBy"], &change["controlId"]), (expected, &id));
        }
        let resolved = events(&server, (token, audience), "action.resolved").await;
        assert_eq!(json!([resolved[0]["decidedBy"], resolved[0]["controlId"]]), json!([expected, id]));
        assert_eq!(resolved[0]["resolvedBy"], json!({"sub": "mallory"}));
        assert_eq!(resolved[1]["decidedBy"]["via"], "runtime");
        let shown = server.get(&format!("/v1/runs/r/activities?audience={audience}"), token).await.ok();
        let action =
            shown["activities"].as_array().unwrap().iter().find(|shown| shown["activityId"] == "a").unwrap()["content"].clone();
        assert_eq!(json!([action["decidedBy"], action["controlId"]]), json!([expected, id]));
    }
    let mut other = public.clone();
    other["other"] = json!(true);
    for (token, query, expected) in [(&operator, "?audience=internal", &whole), (&alice, "", &whole), (&bob, "", &other)] {
        let listed = server.get(&format!("/v1/runs/r/controls{query}"), token).await.ok();
        assert_eq!(listed["controls"][0]["decidedBy"], *expected);
    }
}

#[tokio::test]
async fn only_the_verb_impersonate_lets_a_token_decide_for_another_person() {
    let server = AuthServer::start().await;
    let operator = admin();
    server.post("/v1/runs/r/facts", &operator, &json!([fact("run.started", json!({})), ask("a")])).await.ok();
    let decision = json!({"control": "approve", "actionId": "a", "onBehalfOf": "carol"});
    let refused = server.post("/v1/runs/r/controls", &operator, &decision).await.problem(403, "forbidden");
    assert_eq!(refused["missing"], "impersonate");
    let bridge = person("bridge", "Chat bridge", "internal", &["read", "control", "impersonate"]);
    assert_eq!(server.post("/v1/runs/r/controls", &bridge, &decision).await.status, 202);
    let changes = events(&server, (&operator, "internal"), "control.changed").await;
    assert_eq!(json!([changes[0]["decidedBy"]["sub"], changes[0]["decidedBy"]["onBehalfOf"]]), json!(["bridge", "carol"]));
}

#[tokio::test]
async fn the_face_of_a_decision_follows_from_its_address() {
    let server = AuthServer::start().await;
    let token = admin();
    let faces = ["page", "cli", "rest", "ag-ui", "tanstack", "copilotkit", "ai-sdk"];
    let mut facts = vec![fact("run.started", json!({"sessionId": "t", "threadId": "t"}))];
    facts.extend(faces.map(ask));
    server.post("/v1/runs/r/facts", &token, &json!(facts)).await.ok();
    let asked = |face: &str| faces.iter().position(|known| *known == face).map(|place| place + 2);
    let authorization = bearer(&token);
    for face in faces {
        let mut headers = vec![("authorization", &*authorization), ("content-type", "application/json")];
        let resume = json!({"threadId": "t", "runId": format!("of {face}"), "messages": [],
            "resume": [{"interruptId": face, "status": "resolved", "payload": {"approved": true}}]});
        let (path, body) = match face {
            "ag-ui" => ("/ag-ui/default", resume),
            "tanstack" => {
                headers.push(("x-run-id", "of tanstack"));
                ("/ag-ui/default", resume)
            }
            "copilotkit" => ("/copilotkit/agent/default/run", resume),
            "ai-sdk" => (
                "/ai-sdk/default",
                json!({"id": "t", "messages": [{"id": "m", "role": "assistant", "parts": [
                {"type": "dynamic-tool", "toolName": "rm", "toolCallId": "c", "state": "approval-responded", "input": {},
                 "approval": {"id": face, "approved": true}}]}]}),
            ),
            native => {
                headers.push(("x-proscenium-client", native));
                ("/v1/runs/r/controls", json!({"control": "approve", "actionId": face, "seenSequence": asked(face)}))
            }
        };
        // The streams of existing clients stay open until the run goes on.
        let mut socket = TcpStream::connect(server.client.at).await.unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{headers}content-length: {}\r\n\r\n{body}",
            server.client.at,
            body.len()
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 10];
        socket.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 2", "{face}");
        let listed = server.get("/v1/runs/r/controls?audience=internal", &token).await.ok();
        let control = listed["controls"].as_array().unwrap().iter().find(|of| of["actionId"] == face).unwrap().clone();
        assert_eq!(control["decidedBy"]["via"], face);
    }
    let record = server.get("/v1/runs/r/decisions?audience=internal", &token).await.ok();
    for face in faces {
        let decided = record["decisions"].as_array().unwrap().iter().find(|one| one["actionId"] == face).unwrap();
        let by = &decided["decidedBy"];
        assert_eq!(json!([by["sub"], by["via"], by["seen"]]), json!(["user-1", face, asked(face)]), "{decided}");
    }
}

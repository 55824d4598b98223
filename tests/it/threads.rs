//! What people do to a session: they rename it and archive it. Marks, which need tokens, are in `auth::threads`.

use crate::harness::{Client, Process, fact, start_local};
use serde_json::{Value, json};

async fn post(client: &Client, run: &str, session: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?sessionId={session}");
    client.post(&path, &[("content-type", "application/json")], Value::from(facts).to_string()).await.ok();
}

/// A message of this audience.
fn message(role: &str, id: &str, text: &str, audience: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "audience": audience, "payload": { "role": role, "text": text } }))
}

async fn list(client: &Client, query: &str) -> Vec<Value> {
    client.get(&format!("/v1/sessions?{query}")).await.ok()["sessions"].as_array().unwrap().clone()
}

async fn names(client: &Client, query: &str) -> Vec<String> {
    list(client, query).await.iter().map(|line| line["sessionId"].as_str().unwrap().to_owned()).collect()
}

async fn line(client: &Client, session: &str, query: &str) -> Value {
    let found = list(client, &format!("archived=all&{query}")).await;
    found.into_iter().find(|line| line["sessionId"] == session).unwrap_or_default()
}

async fn events(client: &Client, session: &str, query: &str) -> Vec<Value> {
    let page = client.get(&format!("/v1/sessions/{session}/events?{query}")).await.ok();
    page["events"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_renamed_session_has_that_title_for_all_until_it_is_given_back() {
    let client = start_local().await;
    post(&client, "r", "s", &[fact("session.updated", json!({ "payload": { "title": "By the agent" } }))]).await;
    let titled = |line: &Value| (line["title"].clone(), line["titleFrom"].clone());
    assert_eq!(titled(&line(&client, "s", "").await), (json!("By the agent"), json!("source")));

    let answer = client.patch("/v1/sessions/s", &json!({ "title": "  Mine " })).await.ok();
    assert_eq!((titled(&answer), &answer["sessionId"]), ((json!("Mine"), json!("user")), &json!("s")));
    // A later title of the runtime, in its run or beside it, does not replace it.
    post(&client, "r", "s", &[fact("session.updated", json!({ "payload": { "title": "Again" } }))]).await;
    let beside = fact("session.updated", json!({ "payload": { "title": "Beside", "status": "open" } }));
    client.post("/v1/sessions/s/facts", &[("content-type", "application/json")], beside.to_string()).await.ok();
    for audience in ["user", "dashboard", "internal"] {
        let found = line(&client, "s", &format!("audience={audience}")).await;
        assert_eq!(titled(&found), (json!("Mine"), json!("user")), "{audience}");
        let shell = client.get(&format!("/v1/sessions/s?audience={audience}")).await.ok();
        assert_eq!(titled(&shell), (json!("Mine"), json!("user")), "{audience}");
    }
    let activities = client.get("/v1/sessions/s/activities?type=session").await.ok();
    let own = activities["activities"].as_array().unwrap().iter().find(|activity| activity["sessionId"] == "s").unwrap().clone();
    assert_eq!((&own["content"]["title"], &own["content"]["sourceTitle"]), (&json!("Mine"), &json!("Beside")), "{own}");

    let answer = client.patch("/v1/sessions/s", &json!({ "title": null })).await.ok();
    assert_eq!(titled(&answer), (json!("Beside"), json!("source")));
    let activities = client.get("/v1/sessions/s/activities?type=session").await.ok();
    let own = activities["activities"].as_array().unwrap().iter().find(|activity| activity["sessionId"] == "s").unwrap().clone();
    assert_eq!((&own["content"]["title"], &own["content"]["sourceTitle"]), (&json!("Beside"), &Value::Null));
}

#[tokio::test]
async fn a_rename_is_one_fact_of_the_sessions_own_log_and_says_who_did_it() {
    let client = start_local().await;
    post(&client, "r", "s", &[fact("run.started", json!({}))]).await;
    for body in
        [json!({ "title": "A" }), json!({ "title": "A" }), json!({ "archived": true }), json!({ "title": "A", "archived": true })]
    {
        client.patch("/v1/sessions/s", &body).await.ok();
    }
    let facts: Vec<_> = events(&client, "s", "").await.into_iter().filter(|event| event["type"] == "session.updated").collect();
    assert_eq!(facts.len(), 2, "what is already so adds no fact: {facts:?}");
    let said = |fact: &Value| (fact["payload"]["title"].clone(), fact["payload"]["archived"].clone());
    assert_eq!(facts.iter().map(said).collect::<Vec<_>>(), [(json!("A"), Value::Null), (Value::Null, json!(true))]);
    for fact in &facts {
        assert_eq!(fact["payload"]["updatedBy"]["via"], "rest", "{fact}");
        assert_eq!((&fact["sessionId"], &fact["runId"]), (&json!("s"), &Value::Null));
    }
}

#[tokio::test]
async fn a_runtime_cannot_speak_for_a_person() {
    let client = start_local().await;
    let claimed = json!({ "title": "T", "titleFrom": "user", "archived": true, "updatedBy": { "via": "page", "sub": "ann" } });
    let body = fact("session.updated", json!({ "payload": claimed })).to_string();
    client.post("/v1/sessions/s/facts", &[("content-type", "application/json")], body).await.ok();
    let found = line(&client, "s", "").await;
    assert_eq!((&found["titleFrom"], &found["archived"]), (&json!("source"), &Value::Null), "{found}");
    let event = &events(&client, "s", "audience=internal").await[0]["payload"];
    assert_eq!((&event["updatedBy"], &event["archived"], &event["sourceArchived"]), (&Value::Null, &Value::Null, &json!(true)));
}

#[tokio::test]
async fn an_archived_session_is_hidden_by_default_and_goes_on() {
    let client = start_local().await;
    for session in ["a", "b", "c"] {
        post(&client, &format!("r-{session}"), session, &[fact("run.started", json!({}))]).await;
    }
    assert_eq!(client.patch("/v1/sessions/b", &json!({ "archived": true })).await.ok()["archived"], true);
    assert_eq!(names(&client, "").await, ["c", "a"]);
    assert_eq!(names(&client, "archived=false&sort=updated").await, ["c", "a"]);
    assert_eq!(names(&client, "archived=true").await, ["b"]);
    assert_eq!(names(&client, "archived=all").await, ["c", "b", "a"]);
    post(&client, "r-b", "b", &[message("assistant", "m", "more", "user")]).await;
    assert_eq!(names(&client, "archived=true").await, ["b"], "news does not bring it back");
    assert_eq!(client.get("/v1/sessions/b").await.ok()["archived"], true);
    assert_eq!(client.patch("/v1/sessions/b", &json!({ "archived": false })).await.ok()["archived"], Value::Null);
    assert_eq!(names(&client, "archived=true").await, Vec::<String>::new());
    assert_eq!(names(&client, "").await, ["c", "b", "a"]);
}

#[tokio::test]
async fn a_list_is_sorted_by_what_the_audience_last_saw() {
    let client = start_local().await;
    for session in ["a", "b", "c"] {
        post(&client, &format!("r-{session}"), session, &[fact("run.started", json!({}))]).await;
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    let before = line(&client, "a", "").await["lastActivity"].clone();
    post(&client, "r-a", "a", &[message("assistant", "m", "hidden", "internal")]).await;
    assert_eq!(names(&client, "sort=updated").await, ["c", "b", "a"], "a user does not see the message");
    assert_eq!(line(&client, "a", "").await["lastActivity"], before);
    assert_eq!(names(&client, "sort=updated&audience=internal").await, ["a", "c", "b"]);
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    post(&client, "r-b", "b", &[message("assistant", "m", "shown", "user")]).await;
    assert_eq!(names(&client, "sort=updated").await, ["b", "c", "a"]);
    assert_eq!(names(&client, "").await, ["c", "b", "a"]);
    client.patch("/v1/sessions/a", &json!({ "title": "Renamed" })).await.ok();
    assert_eq!(names(&client, "sort=updated").await, ["b", "c", "a"], "a rename is no news");
    let since = line(&client, "c", "").await["lastActivity"].as_str().unwrap().to_owned();
    for sort in ["updated", "created"] {
        assert_eq!(names(&client, &format!("updatedAfter={since}&sort={sort}")).await, ["b"]);
    }

    // Pages go on where they were, although a session of the first page changes.
    let first = client.get("/v1/sessions?sort=updated&limit=1").await.ok();
    post(&client, "r-b", "b", &[message("assistant", "m2", "more", "user")]).await;
    let next = first["nextCursor"].as_str().unwrap();
    assert_eq!(names(&client, &format!("sort=updated&limit=5&cursor={next}")).await, ["c", "a"]);
    client.get(&format!("/v1/sessions?sort=created&cursor={next}")).await.problem(400, "bad_query");
}

#[tokio::test]
async fn a_session_without_a_title_has_one_from_the_first_message_of_a_user_that_the_reader_sees() {
    let client = start_local().await;
    let facts = [
        message("assistant", "a", "Hello", "user"),
        message("user", "h", "A secret plan", "internal"),
        message("user", "u", "Plan\n a trip to the mountains", "user"),
    ];
    post(&client, "r", "s", &facts).await;
    let of = async |audience: &str| {
        let found = line(&client, "s", &format!("audience={audience}")).await;
        (found["title"].clone(), found["titleFrom"].clone())
    };
    assert_eq!(of("user").await, (json!("Plan a trip to the mountains"), json!("message")));
    assert_eq!(of("internal").await, (json!("A secret plan"), json!("message")));
    assert_eq!(names(&client, "q=mountains&in=title").await, ["s"]);
    assert_eq!(names(&client, "q=secret").await, Vec::<String>::new());
    assert_eq!(names(&client, "q=hello&in=title").await, Vec::<String>::new());
    client.patch("/v1/sessions/s", &json!({ "title": "Holidays" })).await.ok();
    assert_eq!(of("user").await, (json!("Holidays"), json!("user")));
    client.patch("/v1/sessions/s", &json!({ "title": null })).await.ok();
    assert_eq!(of("user").await, (json!("Plan a trip to the mountains"), json!("message")));
}

#[tokio::test]
async fn an_entry_names_the_agents_and_what_needs_a_look() {
    let client = start_local().await;
    let started = |agent: &str| fact("run.started", json!({ "agentId": agent }));
    post(&client, "r1", "s", &[started("coder"), fact("run.finished", json!({}))]).await;
    post(&client, "r2", "s", &[started("writer")]).await;
    let asks =
        fact("action.required", json!({ "actionId": "x", "payload": { "kind": "tool_approval", "title": "Deploy now?" } }));
    let hidden = fact("action.required", json!({ "actionId": "h", "audience": "internal", "payload": { "title": "Hidden?" } }));
    post(&client, "r3", "t", &[started("coder"), asks]).await;
    post(&client, "r4", "u", &[started("coder"), hidden]).await;
    let error = json!({ "error": { "code": "boom", "message": "The disk\nis full" } });
    post(&client, "r5", "v", &[started("writer"), fact("run.failed", json!({ "payload": error }))]).await;
    assert_eq!(line(&client, "s", "").await["agents"], json!(["writer", "coder"]));
    assert_eq!(names(&client, "agentId=writer").await, ["v", "s"]);
    assert_eq!(names(&client, "agentId=coder&sort=updated").await.len(), 3);
    assert_eq!(names(&client, "agentId=another").await, Vec::<String>::new());
    let highlight = async |session: &str, query: &str| line(&client, session, query).await["highlight"].clone();
    assert_eq!(highlight("t", "").await, json!({ "kind": "question", "text": "Deploy now?" }));
    assert_eq!(highlight("u", "").await, Value::Null);
    assert_eq!(highlight("u", "audience=internal").await, json!({ "kind": "question", "text": "Hidden?" }));
    assert_eq!(highlight("v", "").await, json!({ "kind": "error", "text": "The disk is full" }));
    assert_eq!(highlight("s", "").await, Value::Null);
}

#[tokio::test]
async fn an_entry_that_was_listed_follows_every_change_of_its_session() {
    let client = start_local().await;
    let shown = async || {
        let of = async |query: &str| {
            let line = line(&client, "s", query).await;
            json!([line["title"], line["preview"], line["highlight"]["text"]])
        };
        [of("").await, of("audience=internal").await]
    };
    post(&client, "r1", "s", &[message("user", "u1", "Hidden", "internal")]).await;
    assert_eq!(shown().await, [json!([null, null, null]), json!(["Hidden", null, null])]);
    post(&client, "r1", "s", &[message("user", "u2", "Plan it", "user"), fact("run.finished", json!({}))]).await;
    assert_eq!(shown().await, [json!(["Plan it", "Plan it", null]), json!(["Hidden", "Plan it", null])]);
    let asks = fact("action.required", json!({ "actionId": "a", "payload": { "title": "Send it?" } }));
    post(&client, "r2", "s", &[message("user", "u3", "Later", "user"), asks]).await;
    assert_eq!(shown().await[0], json!(["Plan it", "Later", "Send it?"]));
    post(&client, "r2", "s", &[fact("action.resolved", json!({ "actionId": "a", "payload": { "decision": "approve" } }))]).await;
    assert_eq!(shown().await[0], json!(["Plan it", "Later", null]));
    post(&client, "r2", "s", &[fact("run.failed", json!({ "payload": { "error": { "message": "Broken" } } }))]).await;
    assert_eq!(shown().await[0], json!(["Plan it", "Later", "Broken"]));
    assert_eq!(client.delete("/v1/runs/r1").await.status, 204);
    assert_eq!(shown().await, [json!(["Later", "Later", "Broken"]), json!(["Later", "Later", "Broken"])]);
    // A new session under the same id has nothing of the erased one.
    assert_eq!(client.delete("/v1/runs/r2").await.status, 204);
    post(&client, "r2", "s", &[fact("run.started", json!({}))]).await;
    assert_eq!(shown().await, [json!([null, null, null]), json!([null, null, null])]);
}

#[tokio::test]
async fn bad_input_is_refused_and_changes_nothing() {
    let client = start_local().await;
    post(&client, "r", "s", &[fact("run.started", json!({}))]).await;
    let cases = [
        (json!({}), "title"),
        (json!({ "title": "" }), "title"),
        (json!({ "title": "  " }), "title"),
        (json!({ "title": 7 }), "title"),
        (json!({ "title": "two\nlines" }), "title"),
        (json!({ "title": "a\u{0}b" }), "title"),
        (json!({ "title": "x".repeat(161) }), "title"),
        (json!({ "archived": "yes" }), "archived"),
        (json!({ "archived": null }), "archived"),
        (json!({ "title": "T", "head": "h" }), "head"),
    ];
    for (body, member) in cases {
        let problem = client.patch("/v1/sessions/s", &body).await.problem(422, "bad_member");
        assert_eq!(problem["member"], member, "{body}");
    }
    let long = client.patch("/v1/sessions/s", &json!({ "title": "x".repeat(161) })).await.problem(422, "bad_member");
    assert_eq!(long["limit"], 160);
    let huge = client.patch("/v1/sessions/s", &json!({ "title": "x".repeat(1024 * 1024) })).await.problem(413, "body_too_large");
    assert!(huge["limit"].is_u64(), "{huge}");
    for body in [json!([]), json!("title"), json!(null)] {
        client.patch("/v1/sessions/s", &body).await.problem(400, "not_json");
    }
    client.patch("/v1/sessions/never", &json!({ "title": "T" })).await.problem(404, "no_such_session");
    client.patch("/v1/sessions/s?audience=all", &json!({ "title": "T" })).await.problem(400, "bad_audience");
    for query in ["sort=name", "archived=maybe", "updatedAfter=yesterday", "in=everything", "cursor=x", "sort=updated&cursor=7"] {
        client.get(&format!("/v1/sessions?{query}")).await.problem(400, "bad_query");
    }
    client.put("/v1/sessions/s/marks", &json!({ "pinned": true })).await.problem(409, "marks_need_token");
    assert_eq!(events(&client, "s", "").await.len(), 1);
    let found = line(&client, "s", "").await;
    assert_eq!((&found["title"], &found["pinned"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_secret_in_a_title_is_stored_nowhere() {
    let client = start_local().await;
    post(&client, "r", "s", &[fact("run.started", json!({}))]).await;
    let secret = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
    let answer = client.patch("/v1/sessions/s", &json!({ "title": format!("Key {secret}") })).await.ok();
    assert!(!answer.to_string().contains(secret), "{answer}");
    assert!(!line(&client, "s", "audience=internal").await.to_string().contains(secret));
}

#[tokio::test]
async fn of_renames_at_once_all_are_answered_and_the_last_one_in_the_log_stands() {
    let client = start_local().await;
    post(&client, "r", "s", &[fact("run.started", json!({}))]).await;
    let renames = (0..16).map(|n| {
        let client = client.clone();
        tokio::spawn(async move { client.patch("/v1/sessions/s", &json!({ "title": format!("T{n}") })).await.ok() })
    });
    for rename in renames.collect::<Vec<_>>() {
        assert!(rename.await.unwrap()["title"].as_str().unwrap().starts_with('T'));
    }
    let titles: Vec<_> = events(&client, "s", "").await.into_iter().map(|event| event["payload"]["title"].clone()).collect();
    assert_eq!(titles.iter().filter(|title| title.is_string()).count(), 16);
    assert_eq!(line(&client, "s", "").await["title"], *titles.last().unwrap());
}

#[tokio::test]
async fn what_people_did_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    for session in ["a", "b", "c"] {
        let facts = [message("user", "u", &format!("Plan {session}"), "user"), message("assistant", "h", "hidden", "internal")];
        post(&client, &format!("r-{session}"), session, &facts).await;
    }
    client.patch("/v1/sessions/a", &json!({ "title": "Mine" })).await.ok();
    client.patch("/v1/sessions/b", &json!({ "archived": true })).await.ok();
    let queries = ["", "archived=true", "sort=updated&archived=all", "sort=updated&audience=internal&archived=all"];
    let all = async |client: &Client| {
        let mut lists = Vec::new();
        for query in queries {
            lists.push(list(client, query).await);
        }
        lists
    };
    let before = all(&client).await;
    assert_eq!((&before[0][1]["title"], &before[1][0]["title"]), (&json!("Mine"), &json!("Plan b")));
    server.kill();
    let server = Process::start_in(dir.path());
    let client = client.for_server(server.at);
    assert_eq!(all(&client).await, before);
}

//! Feedback about a run or a message: a fact of the run's log, of which the last of each person stands.

use crate::harness::{AUDIENCES, Client, Process, fact, start_local, to_ndjson};
use crate::retention::start_with_stopped_clock;
use proscenium::feedback::WORDS_CHARS_MAX;
use serde_json::{Value, json};

pub const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

pub fn says(message: &str, text: &str) -> Value {
    fact("text.final", json!({ "messageId": message, "payload": { "text": text } }))
}

pub async fn give(client: &Client, body: Value) -> Value {
    let answer = client.post("/v1/runs/r/feedback", &JSON, body.to_string()).await;
    assert!(answer.status < 300, "{answer:?}");
    let mut given = answer.json();
    given["status"] = answer.status.into();
    given
}

/// The feedback in the content of an activity.
async fn shown(client: &Client, audience: &str, kind: &str, id: &str) -> Value {
    let view = client.get(&format!("/v1/runs/r/activities?audience={audience}")).await.ok();
    let of = |activity: &&Value| activity["activityType"] == kind && activity["activityId"] == id;
    let found = view["activities"].as_array().unwrap().iter().find(of).cloned();
    found.map_or(Value::Null, |activity| activity["content"]["feedback"].clone())
}

async fn events(client: &Client) -> Vec<Value> {
    let all = client.read_events("r", "audience=internal", 100).await;
    all.into_iter().filter(|event| event["type"] == "feedback.given").collect()
}

#[tokio::test]
async fn feedback_is_a_fact_of_which_the_last_stands_also_once_the_run_has_ended() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({})), says("m", "Blue."), fact("run.finished", json!({}))]).await;
    let before = client.get("/v1/runs/r").await.ok();
    let up = give(&client, json!({ "messageId": "m", "thumb": "up" })).await;
    assert_eq!(
        (&up["status"], &up["thumb"], &up["own"], &up["messageId"]),
        (&json!(201), &json!("up"), &json!(true), &json!("m"))
    );
    assert_eq!(up["givenBy"]["via"], "rest");
    // The same again adds no fact.
    assert_eq!(give(&client, json!({ "messageId": "m", "thumb": "up" })).await["sequence"], up["sequence"]);
    let down = give(&client, json!({ "messageId": "m", "thumb": "down", "text": " It was green. " })).await;
    assert_eq!((&down["status"], &down["feedbackId"], &down["text"]), (&json!(200), &up["feedbackId"], &json!("It was green.")));
    let of_run = give(&client, json!({ "text": "Too slow" })).await;
    assert_eq!((&of_run["messageId"], &of_run["thumb"]), (&Value::Null, &Value::Null));

    let told = shown(&client, "internal", "message", "m").await;
    assert_eq!(json!([told[0]["thumb"], told[0]["text"], told[1]]), json!(["down", "It was green.", null]));
    assert_eq!(shown(&client, "internal", "run", "r").await[0]["text"], "Too slow");
    // Users see neither words nor persons; in an answer, they see their own.
    let of_user = shown(&client, "user", "message", "m").await;
    assert_eq!(of_user[0]["thumb"], "down");
    assert!(!of_user.to_string().contains("green"), "{of_user}");
    for audience in ["user", "dashboard"] {
        let text = client.read_events("r", &format!("audience={audience}"), 100).await;
        assert_eq!(json!(text).to_string().contains("green"), audience != "user");
    }
    let listed = client.get("/v1/runs/r/feedback").await.ok();
    assert_eq!(json!([listed["feedback"][0]["text"], listed["feedback"][1]["text"]]), json!(["Too slow", "It was green."]));

    // It is no news, and changes nothing of the run.
    let after = client.get("/v1/runs/r").await.ok();
    for member in ["status", "phase", "attempt", "lastActivity", "endedAt", "preview"] {
        assert_eq!(after[member], before[member], "{member}");
    }
    assert_eq!(give(&client, json!({ "messageId": "m", "thumb": null })).await["thumb"], Value::Null);
    assert_eq!(shown(&client, "internal", "message", "m").await, Value::Null);
    assert_eq!(client.get("/v1/runs/r/feedback").await.ok()["feedback"].as_array().unwrap().len(), 1);
    // What was withdrawn is withdrawn, and the log has it all.
    give(&client, json!({ "messageId": "m", "thumb": null })).await;
    assert_eq!(events(&client).await.len(), 4);
    let metrics = String::from_utf8(client.get("/metrics").await.body).unwrap();
    for thumb in ["up", "down", "none", "withdrawn"] {
        assert!(metrics.contains(&format!("proscenium_feedback_total{{thumb=\"{thumb}\"}} 1\n")), "{metrics}");
    }
}

#[tokio::test]
async fn feedback_about_what_is_hidden_unknown_or_too_long_is_refused() {
    let client = start_local().await;
    let hidden = fact("text.final", json!({ "messageId": "secret", "audience": "internal", "payload": { "text": "Hm." } }));
    client.append("r", &[fact("run.started", json!({})), says("m", "Blue."), hidden]).await;
    let post = async |path: &str, body: Value| client.post(path, &JSON, body.to_string()).await;
    let path = "/v1/runs/r/feedback";
    for id in ["secret", "never", "m/never"] {
        post(path, json!({ "messageId": id, "thumb": "up" })).await.problem(404, "no_such_message");
    }
    post("/v1/runs/never/feedback", json!({ "thumb": "up" })).await.problem(404, "no_such_run");
    client.get("/v1/runs/never/feedback").await.problem(404, "no_such_run");
    for body in [json!({}), json!({ "messageId": "m" }), json!({ "thumb": "left" }), json!({ "thumb": "up", "stars": 3 })] {
        post(path, body).await.problem(422, "bad_member");
    }
    let long = "ä".repeat(WORDS_CHARS_MAX);
    assert_eq!(post(path, json!({ "text": format!("{long}b") })).await.problem(422, "bad_member")["limit"], WORDS_CHARS_MAX);
    // It stays in its envelope, whose other parts users see.
    assert_eq!(give(&client, json!({ "messageId": "m", "text": long })).await["text"], long);
    assert_eq!(shown(&client, "dashboard", "message", "m").await[0]["text"], long);
    // A secret is no more in the log than that of a message.
    let secret = "the key was sk-0123456789abcdef0123456789abcdef";
    let given = give(&client, json!({ "text": secret })).await;
    assert!(given["text"].as_str().unwrap().contains("[redacted]"), "{given}");
    assert_eq!(give(&client, json!({ "text": secret })).await["sequence"], given["sequence"], "the same again");
    // For those who see the message, feedback about it is for them alone.
    post(&format!("{path}?audience=internal"), json!({ "messageId": "secret", "thumb": "down" })).await;
    assert_eq!(shown(&client, "internal", "message", "secret").await[0]["thumb"], "down");
    for audience in ["user", "dashboard"] {
        let seen = json!(client.read_events("r", &format!("audience={audience}"), 100).await).to_string();
        assert!(!seen.contains("secret\""), "{audience}: {seen}");
    }
    // A producer gives none.
    let forged = fact(
        "feedback.given",
        json!({ "messageId": "m", "payload": { "feedbackId": "f", "thumb": "up", "givenBy": { "via": "page" } } }),
    );
    client.append("r", &[forged]).await;
    assert_eq!(shown(&client, "internal", "message", "m").await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_message_is_named_as_any_face_shows_it() {
    let client = start_local().await;
    let of_teammate = fact("text.final", json!({ "messageId": "m", "agentId": "mate", "payload": { "text": "Red." } }));
    let part = |part: &str| {
        fact("text.delta", json!({ "messageId": "m", "agentId": "lead", "partId": part, "payload": { "text": part } }))
    };
    let started = fact("run.started", json!({ "agentId": "lead" }));
    client.append("r", &[started, part("a"), part("b"), of_teammate]).await;
    for (shown_as, id) in [("m", "m"), ("m/b", "m"), ("r/m", "m"), ("mate/m", "mate/m")] {
        let given = give(&client, json!({ "messageId": shown_as, "thumb": "up", "text": shown_as })).await;
        assert_eq!(given["messageId"], id, "{shown_as}");
        assert_eq!(shown(&client, "internal", "message", id).await[0]["text"], shown_as);
    }
    assert_eq!(client.get("/v1/runs/r/activities").await.ok()["activities"].as_array().unwrap().len(), 3, "no activity is made");
}

#[tokio::test]
async fn compaction_a_restart_and_every_reader_keep_feedback_and_erasure_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_in(dir.path());
    let client = Client::new(process.at);
    client.append("r", &[fact("run.started", json!({})), says("m", "Blue."), fact("run.finished", json!({}))]).await;
    let mut live = client.open_activities("r", "after=now&audience=internal", None).await;
    give(&client, json!({ "messageId": "m", "thumb": "down", "text": "Green" })).await;
    drop(live.read_all().await);
    let listed = client.get("/v1/runs/r/feedback").await.ok();
    process.kill();
    let process = Process::start_in(dir.path());
    let client = Client::new(process.at);
    assert_eq!(client.get("/v1/runs/r/feedback").await.ok(), listed);
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
    client.get("/v1/runs/r/feedback").await.problem(410, "erased");
    drop(process);

    let (client, compactor) = start_with_stopped_clock().await;
    let deltas: Vec<_> =
        (0..50).map(|n| fact("text.delta", json!({ "messageId": "m", "payload": { "text": format!("{n} ") } }))).collect();
    client.post_lines("/v1/runs/r/facts", to_ndjson(&deltas)).await.ok();
    give(&client, json!({ "messageId": "m", "thumb": "up" })).await;
    client
        .append(
            "r",
            &[
                says("m", &(0..50).map(|n| format!("{n} ")).collect::<String>()),
                fact("run.status", json!({"phase": "acting"})),
                fact("run.finished", json!({})),
            ],
        )
        .await;
    give(&client, json!({ "thumb": "down", "text": "long" })).await;
    let before = [events(&client).await, vec![client.get("/v1/runs/r/feedback").await.ok()]];
    compactor.run_once().await.unwrap();
    assert_eq!(client.get("/v1/runs/r").await.ok()["compacted"], true);
    assert_eq!([events(&client).await, vec![client.get("/v1/runs/r/feedback").await.ok()]], before);
    for audience in AUDIENCES {
        assert_eq!(shown(&client, audience, "message", "m").await[0]["thumb"], "up");
    }
}

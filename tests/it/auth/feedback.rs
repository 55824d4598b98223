//! Feedback of several people: each has one that stands, and sees of others' only the thumb.

use super::{AuthServer, admin, token_with_claims};
use crate::feedback::{JSON, give, says};
use crate::harness::{Client, fact};
use proscenium::projection::feedback::FEEDBACK_MAX;
use serde_json::{Value, json};

fn person(sub: &str, audience: &str) -> String {
    let here = json!({ "sessions": ["s"], "audience": audience, "can": ["read", "control", "publish"] });
    token_with_claims(&json!({ "sub": sub, "name": sub.to_uppercase(), "exp": super::now() + 3600, "proscenium": here }))
}

#[tokio::test]
async fn each_person_has_feedback_of_its_own_and_sees_the_thumbs_of_others() {
    let guarded = AuthServer::start().await;
    guarded.publish("r", "sessionId=s", &admin(), &[says("m", "Blue.")]).await.ok();
    let by = |sub: &str, audience: &str| Client::with_token(guarded.client.at, &person(sub, audience));
    let (ann, bob, ops) = (by("ann", "user"), by("bob", "user"), by("ops", "internal"));
    give(&ann, json!({ "messageId": "m", "thumb": "down", "text": "It was green" })).await;
    assert_eq!(give(&bob, json!({ "messageId": "m", "thumb": "up" })).await["status"], 201, "ann's stands beside it");
    let listed = async |client: &Client, query: &str| {
        let list = client.get(&format!("/v1/runs/r/feedback{query}")).await.ok()["feedback"].as_array().unwrap().clone();
        list.iter().map(|one| json!([one["thumb"], one["text"], one["own"], one["givenBy"]["name"]])).collect::<Vec<_>>()
    };
    let (words, none) = ("It was green", Value::Null);
    assert_eq!(listed(&ann, "").await, [json!(["down", words, true, "ANN"]), json!(["up", none, false, none])]);
    assert_eq!(listed(&bob, "").await, [json!(["down", none, false, none]), json!(["up", none, true, "BOB"])]);
    let all = listed(&ops, "?audience=internal").await;
    assert_eq!(all, [json!(["down", words, false, "ANN"]), json!(["up", none, false, "BOB"])]);
    // Nothing that users read has the words or a person.
    for path in ["events", "activities", "export"] {
        let text = String::from_utf8(bob.get(&format!("/v1/runs/r/{path}")).await.body).unwrap();
        assert!(
            text.contains("givenBy") && !text.contains("green") && !text.contains("ANN") && !text.contains("ann"),
            "{path}: {text}"
        );
    }
    // A person's feedback moves nothing that says who has read what.
    let unread = async |client: &Client| client.get("/v1/sessions").await.ok()["sessions"][0]["unread"].clone();
    let cursor = bob.get("/v1/sessions/s/events").await.ok()["cursors"].as_array().unwrap().last().unwrap().clone();
    bob.put("/v1/sessions/s/marks", &json!({ "readTo": cursor })).await.ok();
    give(&ann, json!({ "messageId": "m", "thumb": null })).await;
    assert_eq!((unread(&bob).await, listed(&bob, "").await.len()), (json!(0), 1));
}

#[tokio::test]
async fn a_share_link_gives_no_feedback() {
    let guarded = AuthServer::start().await;
    guarded.publish("r", "sessionId=s", &admin(), &[says("m", "Blue.")]).await.ok();
    let (_, secret) = super::links::make(&guarded, &admin(), json!({ "runId": "r", "can": ["control"] })).await;
    let reader = super::links::open(&guarded, &secret).await;
    guarded.post("/v1/runs/r/feedback", &reader, &json!({ "thumb": "up" })).await.problem(403, "forbidden");
    assert_eq!(guarded.get("/v1/runs/r/feedback", &reader).await.ok(), json!({ "feedback": [] }));
}

#[tokio::test]
async fn one_message_takes_feedback_of_a_limited_number_of_people() {
    let guarded = AuthServer::start().await;
    let of = |sub: usize| Client::with_token(guarded.client.at, &person(&format!("user-{sub}"), "user"));
    let facts = json!([fact("run.started", json!({ "sessionId": "s" })), says("m", "Blue.")]);
    of(0).post("/v1/runs/r/facts?sessionId=s", &JSON, facts.to_string()).await.ok();
    for sub in 0..FEEDBACK_MAX {
        assert_eq!(give(&of(sub), json!({ "messageId": "m", "thumb": "up" })).await["status"], 201);
    }
    let full = of(FEEDBACK_MAX).post("/v1/runs/r/feedback", &JSON, json!({ "messageId": "m", "thumb": "up" }).to_string()).await;
    assert_eq!(full.problem(409, "too_much_feedback")["limit"], FEEDBACK_MAX);
    // Those who gave some may change it, and about the run there is room.
    assert_eq!(give(&of(3), json!({ "messageId": "m", "thumb": "down", "text": "why" })).await["status"], 200);
    assert_eq!(give(&of(FEEDBACK_MAX), json!({ "thumb": "up" })).await["status"], 201);
    let listed = of(3).get("/v1/runs/r/feedback").await.ok();
    let own: Vec<_> = listed["feedback"].as_array().unwrap().iter().filter(|one| one["own"] == true).collect();
    assert_eq!(json!([own.len(), own[0]["text"], own[0]["givenBy"]["sub"]]), json!([1, "why", "user-3"]));
    let of_other = of(4).get("/v1/runs/r/feedback").await.ok().to_string();
    assert!(!of_other.contains("why") && !of_other.contains("user-3") && of_other.contains("user-4"), "{of_other}");
    give(&of(5), json!({ "messageId": "m", "thumb": null })).await;
    assert_eq!(give(&of(FEEDBACK_MAX), json!({ "messageId": "m", "thumb": "up" })).await["status"], 201);
}

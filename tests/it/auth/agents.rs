//! For which agents a token may take controls: a lease alone is not enough, and no wait outlasts a token.

use super::matrix::leased;
use super::{Guarded, SOON_OVER, Ws, admin, bearer, filled, now, token, token_of};
use crate::harness::Answer;
use serde_json::{Value, json};

/// Whoever publishes everywhere, and speaks for these agents.
fn worker(agents: &[&str]) -> String {
    token(&json!({ "audience": "internal", "sessions": ["*"], "agents": agents, "can": ["publish"] }))
}

async fn answer(guarded: &Guarded, token: &str, how: &str, (id, lease): &(String, String)) -> Answer {
    guarded.post(&format!("/v1/controls/{id}/{how}"), token, &json!({ "lease": lease })).await
}

#[tokio::test]
async fn a_lease_is_of_no_use_to_who_may_not_speak_for_the_agent() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let (of_a, of_b, of_none) = (worker(&["a"]), worker(&["b"]), worker(&[]));
    for (how, done) in [("ack", "acked"), ("nack", "nacked")] {
        let control = leased(&guarded, "b").await;
        for foreign in [&of_a, &of_none] {
            for how in ["ack", "nack"] {
                let problem = answer(&guarded, foreign, how, &control).await.problem(403, "forbidden");
                assert_eq!(problem["missing"], "agent");
                assert!(!problem.to_string().contains(&control.1), "{problem}");
                let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(foreign))]).await.unwrap();
                let said = json!({ "op": how, "id": 7, "control": control.0, "lease": control.1 });
                let refused = ws.ask(said).await;
                assert_eq!(json!([refused["id"], refused["code"], refused["missing"]]), json!([7, "forbidden", "agent"]));
            }
        }
        // Nothing came of it: the lease is as good as it was, for whoever it is of.
        assert_eq!(answer(&guarded, &of_b, how, &control).await.ok()["status"], done);
        // What it came to is not told to others, either.
        answer(&guarded, &of_a, how, &control).await.problem(403, "forbidden");
        assert_eq!(answer(&guarded, &of_b, how, &control).await.ok()["status"], done, "said again");
    }
    // Who has no lease learns nothing, whoever it is.
    let (id, _) = leased(&guarded, "b").await;
    let told = async |token: &str, id: &str| {
        let mut problem = answer(&guarded, token, "ack", &(id.to_owned(), "none".into())).await.problem(409, "lease_lost");
        problem.as_object_mut().unwrap().shift_remove("requestId");
        problem.to_string().replace(id, "*")
    };
    let first = told(&of_b, &id).await;
    for (token, id) in [(&of_b, "never"), (&of_a, &*id), (&of_a, "never")] {
        assert_eq!(told(token, id).await, first);
    }
}

#[tokio::test]
async fn who_may_not_speak_for_an_agent_cannot_claim_its_controls() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    for foreign in [worker(&["a"]), worker(&[])] {
        let claimed = guarded.post("/v1/agents/b/controls/claim", &foreign, &json!({})).await;
        assert_eq!(claimed.problem(403, "forbidden")["missing"], "agent");
        let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&foreign))]).await.unwrap();
        let refused = ws.ask(json!({ "op": "claim", "id": 1, "agentId": "b" })).await;
        assert_eq!(json!([refused["code"], refused["missing"]]), json!(["forbidden", "agent"]));
    }
}

#[tokio::test]
async fn a_claim_that_waits_ends_with_its_token_and_takes_nothing() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let here = json!({ "sessions": ["*"], "agents": ["a"], "can": ["publish"] });
    let short = token_of(&json!({ "sub": "somebody", "exp": now() + SOON_OVER, "proscenium": here }));
    let problem = guarded.post("/v1/agents/a/controls/claim?wait=60", &short, &json!({})).await.problem(401, "unauthenticated");
    assert_eq!(problem["reason"], "expired");
    let (id, lease) = leased(&guarded, "a").await;
    assert_eq!(answer(&guarded, &worker(&["a"]), "ack", &(id, lease)).await.ok()["status"], "acked");
}

#[tokio::test]
async fn an_administrator_speaks_for_the_agents_that_he_names_and_no_others() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let all_but_agents = token(&json!({ "audience": "internal", "sessions": ["*"], "can": ["admin"] }));
    let control = leased(&guarded, "b").await;
    answer(&guarded, &all_but_agents, "ack", &control).await.problem(403, "forbidden");
    answer(&guarded, &admin(), "ack", &control).await.ok();
    let events: Value = guarded.get("/v1/runs/r/events?type=control.changed&audience=internal", &admin()).await.ok();
    let steps: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| event["payload"]["status"].clone()).collect();
    assert_eq!(steps, ["submitted", "claimed", "acked"], "what was refused is in no log");
}

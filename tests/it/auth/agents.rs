//! Tokens and the agents they may act for: a lease alone is not enough, and no wait outlasts a token.

use super::matrix::lease_control;
use super::{AuthServer, SHORT_TTL_S, Ws, admin, bearer, now, test_clock, token, token_with_claims, write_example_runs};
use crate::harness::{Response, with_timeout};
use serde_json::{Value, json};

/// A token that publishes in every session and acts for these agents.
fn worker(agents: &[&str]) -> String {
    token(&json!({ "audience": "internal", "sessions": ["*"], "agents": agents, "can": ["publish"] }))
}

async fn answer(guarded: &AuthServer, token: &str, how: &str, (id, lease): &(String, String)) -> Response {
    guarded.post(&format!("/v1/controls/{id}/{how}"), token, &json!({ "lease": lease })).await
}

#[tokio::test]
async fn a_lease_is_useless_to_a_token_that_may_not_act_for_the_agent() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let (of_a, of_b, of_none) = (worker(&["a"]), worker(&["b"]), worker(&[]));
    for (how, done) in [("ack", "acked"), ("nack", "nacked")] {
        let control = lease_control(&guarded, "b").await;
        for foreign in [&of_a, &of_none] {
            for how in ["ack", "nack"] {
                let problem = answer(&guarded, foreign, how, &control).await.problem(403, "forbidden");
                assert_eq!(problem["missing"], "agent");
                assert!(!problem.to_string().contains(&control.1), "{problem}");
                let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(foreign))]).await.unwrap();
                let message = json!({ "op": how, "id": 7, "control": control.0, "lease": control.1 });
                let refused = ws.request(message).await;
                assert_eq!(json!([refused["id"], refused["code"], refused["missing"]]), json!([7, "forbidden", "agent"]));
            }
        }
        // The rejected answers changed nothing: the lease is still valid for its agent's token.
        assert_eq!(answer(&guarded, &of_b, how, &control).await.ok()["status"], done);
        // A settled control's outcome is hidden from other tokens, too.
        answer(&guarded, &of_a, how, &control).await.problem(403, "forbidden");
        assert_eq!(answer(&guarded, &of_b, how, &control).await.ok()["status"], done, "repeated");
    }
    // A token without the lease learns nothing, whichever token it is.
    let (id, _) = lease_control(&guarded, "b").await;
    let problem_for = async |token: &str, id: &str| {
        let mut problem = answer(&guarded, token, "ack", &(id.to_owned(), "none".into())).await.problem(409, "lease_lost");
        problem.as_object_mut().unwrap().shift_remove("requestId");
        problem.to_string().replace(id, "*")
    };
    let first = problem_for(&of_b, &id).await;
    for (token, id) in [(&of_b, "never"), (&of_a, &*id), (&of_a, "never")] {
        assert_eq!(problem_for(token, id).await, first);
    }
}

#[tokio::test]
async fn a_token_cannot_claim_controls_of_agents_it_may_not_act_for() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    for foreign in [worker(&["a"]), worker(&[])] {
        let claimed = guarded.post("/v1/agents/b/controls/claim", &foreign, &json!({})).await;
        assert_eq!(claimed.problem(403, "forbidden")["missing"], "agent");
        let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&foreign))]).await.unwrap();
        let refused = ws.request(json!({ "op": "claim", "id": 1, "agentId": "b" })).await;
        assert_eq!(json!([refused["code"], refused["missing"]]), json!(["forbidden", "agent"]));
    }
}

#[tokio::test]
async fn a_control_reaches_only_an_agent_that_its_token_covers_whichever_way_it_comes() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let holder = |agents: &[&str]| token(&json!({ "sessions": ["*"], "agents": agents, "can": ["control"] }));
    let (own, other) = (holder(&["a"]), holder(&[]));
    for control in ["send", "queue", "delegate", "continue_agent", "steer", "stop", "request_review", "rollback"] {
        for (member, log) in [("runId", "r"), ("sessionId", "s")] {
            if member == "sessionId" && control == "steer" {
                continue;
            }
            let path = format!("/v1/{}s/{log}/controls", member.trim_end_matches("Id"));
            let asked = |agent: &str| json!({ "control": control, "agentId": agent, "value": "hello" });
            for (token, agent) in [(&own, "b"), (&other, "a")] {
                let refused = guarded.post(&path, token, &asked(agent)).await.problem(403, "forbidden");
                assert_eq!(refused["missing"], "agent", "{control} to {path}");
                let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(token))]).await.unwrap();
                let mut message = asked(agent);
                message
                    .as_object_mut()
                    .unwrap()
                    .extend([("op", "submit"), (member, log), ("id", "1")].map(|(k, v)| (k.into(), v.into())));
                let refused = ws.request(message).await;
                assert_eq!(json!([refused["code"], refused["missing"]]), json!(["forbidden", "agent"]), "{control} to {path}");
            }
            let accepted = guarded.post(&path, &own, &asked("a")).await;
            assert_eq!(accepted.status, 202, "{control} to {path}: {accepted:?}");
        }
    }
    // No other agent is addressed: the control goes to the agent of the run, which its session includes.
    let unnamed = guarded.post("/v1/runs/r/controls", &other, &json!({ "control": "steer", "value": "hello" })).await;
    assert_eq!(unnamed.status, 202, "{unnamed:?}");
    let claimed = guarded.post("/v1/agents/b/controls/claim", &admin(), &json!({})).await.ok();
    assert_eq!(claimed["controls"], json!([]), "no refused control waits for its agent");
}

#[tokio::test]
async fn a_waiting_claim_ends_with_its_token_and_claims_nothing() {
    let clock = test_clock!();
    let guarded = AuthServer::start_with_clock(clock).await;
    write_example_runs(&guarded).await;
    let here = json!({ "sessions": ["*"], "agents": ["a"], "can": ["publish"] });
    let short = token_with_claims(&json!({ "sub": "user-1", "exp": now() + SHORT_TTL_S, "proscenium": here }));
    let empty = json!({});
    let expire = async {
        while guarded.get("/copilotkit/info", &admin()).await.ok()["agents"]["a"]["present"] != true {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        clock.expire_short_tokens();
    };
    let claim = guarded.post("/v1/agents/a/controls/claim?wait=600", &short, &empty);
    let (claimed, ()) = with_timeout("the claim", Box::pin(async { tokio::join!(claim, expire) })).await;
    assert_eq!(claimed.problem(401, "unauthenticated")["reason"], "expired");
    let (id, lease) = lease_control(&guarded, "a").await;
    assert_eq!(answer(&guarded, &worker(&["a"]), "ack", &(id, lease)).await.ok()["status"], "acked");
}

#[tokio::test]
async fn an_admin_token_acts_only_for_the_agents_it_names() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let all_but_agents = token(&json!({ "audience": "internal", "sessions": ["*"], "can": ["admin"] }));
    let control = lease_control(&guarded, "b").await;
    answer(&guarded, &all_but_agents, "ack", &control).await.problem(403, "forbidden");
    answer(&guarded, &admin(), "ack", &control).await.ok();
    let events: Value = guarded.get("/v1/runs/r/events?type=control.changed&audience=internal", &admin()).await.ok();
    let steps: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| event["payload"]["status"].clone()).collect();
    assert_eq!(steps, ["submitted", "claimed", "acked"], "no log records the rejected request");
}

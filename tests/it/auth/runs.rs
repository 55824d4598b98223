//! Lists of runs under tokens: what a token does not cover is in no page, no total, no facet and no figure.

use super::{AuthServer, admin, token};
use crate::harness::{Client, Transport, fact};
use crate::lists::{Entries, apply};
use crate::search::until_indexed;
use serde_json::{Value, json};

fn person(owner: &str, audience: &str) -> String {
    let verbs = ["read", "control", "publish"];
    token(&json!({ "owner": owner, "owners": [owner], "agents": ["a"], "audience": audience, "can": verbs }))
}

/// A run that costs so many dollars, and asks and says something.
fn run_of(agent: &str, cost: u64) -> [Value; 4] {
    let usage = json!({ "inputTokens": 100 * cost, "costUsd": cost });
    let asks = |action: &str, audience: &str| json!({ "actionId": action, "audience": audience, "payload": { "kind": "tool_approval", "title": "Secret question?" } });
    [
        fact("run.started", json!({ "agentId": agent })),
        fact("text.final", json!({ "messageId": "m", "payload": { "role": "user", "text": "common words" } })),
        fact("metric.changed", json!({ "audience": "dashboard", "payload": { "usage": usage } })),
        fact("action.required", asks("q", "internal")),
    ]
}

fn names(answer: &Value) -> Vec<&str> {
    answer["runs"].as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_owner_learns_nothing_of_the_runs_of_another_from_pages_totals_and_facets() {
    let guarded = AuthServer::start().await;
    for (owner, count) in [("alice", 2), ("bob", 5)] {
        for n in 0..count {
            let query = format!("sessionId={owner}-s{n}&owner={owner}");
            guarded.publish(&format!("{owner}-{n}"), &query, &admin(), &run_of(&format!("{owner}-agent"), n)).await.ok();
        }
    }
    until_indexed(&Client::with_token(guarded.client.at, &admin())).await;
    for (owner, expected) in [("alice", 2), ("bob", 5)] {
        let client = Client::with_token(guarded.client.at, &person(owner, "dashboard"));
        for filter in ["", "agent:*", "status:waiting,accepted", "cost:>=0", "since:1h", "common", "owner:*", "session:*"] {
            for sort in ["", "-cost", "started"] {
                let filter = filter.replace(' ', "%20");
                let answer = client.get(&format!("/v1/runs?filter={filter}&sort={sort}&audience=dashboard")).await.ok();
                assert!(names(&answer).iter().all(|run| run.starts_with(owner)), "{owner} {filter}: {answer}");
                assert_eq!((names(&answer).len(), &answer["total"]), (expected, &json!(expected)), "{owner} {filter} {sort}");
                assert_eq!(answer["facets"]["agent"], json!({ format!("{owner}-agent"): expected }), "{owner} {filter}");
                assert_eq!(answer["facets"]["owner"], json!({ owner: expected }), "{owner} {filter}");
            }
        }
        let other = if owner == "alice" { "bob" } else { "alice" };
        for filter in [format!("agent:{other}-agent"), format!("run:{other}*"), format!("owner:{other}")] {
            let answer = client.get(&format!("/v1/runs?filter={filter}&audience=dashboard")).await.ok();
            assert_eq!((names(&answer), &answer["total"]), (vec![], &json!(0)), "{owner} {filter}");
            assert_eq!(answer["facets"]["status"], json!({}), "{owner} {filter}");
        }
    }
    let all = Client::with_token(guarded.client.at, &admin());
    for (filter, expected) in [
        ("", json!({ "alice": 2, "bob": 5 })),
        ("agent:bob-agent", json!({ "bob": 5 })),
        ("owner:a*", json!({ "alice": 2, "bob": 5 })),
    ] {
        let answer = all.get(&format!("/v1/runs?filter={filter}")).await.ok();
        assert_eq!(answer["facets"]["owner"], expected, "{filter}: an owner is counted among what meets the other terms");
    }
}

#[tokio::test]
async fn a_narrow_audience_finds_and_sorts_by_nothing_that_it_does_not_see() {
    let guarded = AuthServer::start().await;
    for n in 0..3 {
        guarded.publish(&format!("r{n}"), "sessionId=s&owner=alice", &admin(), &run_of("a", n)).await.ok();
    }
    let user = Client::with_token(guarded.client.at, &person("alice", "user"));
    let answer = user.get("/v1/runs?filter=cost:>0").await.ok();
    assert_eq!((names(&answer), &answer["total"]), (vec![], &json!(0)));
    let answer = user.get("/v1/runs?sort=-cost").await.ok();
    assert_eq!(names(&answer), ["r2", "r1", "r0"], "by creation: no run has a cost for users");
    assert_eq!(answer["facets"]["status"], json!({ "accepted": 3 }), "the question is internal");
    assert!(!answer.to_string().contains("Secret") && !answer.to_string().contains("usage"), "{answer}");
    user.get("/v1/runs?sort=-cost&audience=dashboard").await.problem(403, "forbidden");
    let all = Client::with_token(guarded.client.at, &admin()).get("/v1/runs?sort=-cost&audience=internal").await.ok();
    assert_eq!(all["facets"]["status"], json!({ "waiting": 3 }));
}

#[tokio::test]
async fn a_token_for_one_session_or_one_run_counts_those_alone() {
    let guarded = AuthServer::start().await;
    for (run, session) in [("r1", "s"), ("r2", "s"), ("r3", "t"), ("r4", "u")] {
        guarded.publish(run, &format!("sessionId={session}"), &admin(), &run_of("a", 1)).await.ok();
    }
    for (here, expected) in [
        (json!({ "sessions": ["s"], "can": ["read"] }), vec!["r2", "r1"]),
        (json!({ "sessions": ["t"], "runs": ["r1"], "can": ["read"] }), vec!["r3", "r1"]),
        (json!({ "runs": ["r4"], "can": ["read"] }), vec!["r4"]),
        (json!({ "sessions": ["never"], "can": ["read"] }), vec![]),
    ] {
        let answer = guarded.get("/v1/runs?filter=", &token(&here)).await.ok();
        assert_eq!((names(&answer), &answer["total"]), (expected.clone(), &json!(expected.len())), "{here}");
    }
}

#[tokio::test]
async fn the_tasks_of_an_agent_are_those_that_the_token_covers_page_by_page() {
    let guarded = AuthServer::start().await;
    for n in 0..3 {
        for owner in ["alice", "bob"] {
            let query = format!("sessionId={owner}-s{n}&owner={owner}");
            guarded.publish(&format!("{owner}-{}", 2 - n), &query, &admin(), &run_of("a", n)).await.ok();
        }
    }
    let (alice, mut seen, mut tokens) = (person("alice", "user"), Vec::new(), vec![String::new()]);
    loop {
        let params = json!({ "pageSize": 1, "pageToken": tokens.last() });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params });
        let page = guarded.post("/a2a/a", &alice, &call).await.ok()["result"].clone();
        assert_eq!(page["totalSize"], 3, "{page}");
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        let token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
        tokens.push(token);
    }
    assert_eq!(seen, ["alice-0", "alice-1", "alice-2"]);
    // A token is the place of the task that the client has, without a number of others.
    let place = String::from_utf8(data_encoding::BASE64URL_NOPAD.decode(tokens[1].as_bytes()).unwrap()).unwrap();
    assert!(place.ends_with("alice-0") && place.split(' ').count() == 3, "{place}");
}

#[tokio::test]
async fn statistics_and_list_streams_are_of_what_the_token_covers_alone() {
    let guarded = AuthServer::start().await;
    let (alice, bob) = (person("alice", "dashboard"), person("bob", "dashboard"));
    guarded.publish("alice-0", "sessionId=a", &alice, &run_of("a-agent", 3)).await.ok();
    let shown = async |token: &str| {
        let mut shown = Vec::new();
        for query in ["", "&by=hour", "&by=agent", "&by=status", "&filter=owner:*"] {
            let mut answer = guarded.get(&format!("/v1/stats?audience=dashboard{query}"), token).await.ok();
            answer.as_object_mut().unwrap().remove("since");
            shown.push(answer);
        }
        shown
    };
    let before = shown(&alice).await;
    assert_eq!((&before[0]["total"]["runs"], &before[0]["total"]["usage"]["costUsd"]), (&json!(1), &json!(3.0)));
    let mut lists = guarded.open_stream(Transport::Hyper, "/v1/lists/stream?runs=&audience=dashboard", &alice, None).await;
    let mut entries = Entries::new();
    while !apply(&mut entries, &lists.next_frame().await.data) {}
    assert_eq!(entries.keys().map(|(_, key)| &**key).collect::<Vec<_>>(), ["runs", "alice-0"]);
    for n in 0..5 {
        guarded.publish(&format!("bob-{n}"), &format!("sessionId=b{n}"), &bob, &run_of("b-agent", 7)).await.ok();
    }
    assert_eq!(Client::with_token(guarded.client.at, &admin()).delete("/v1/runs/bob-3").await.status, 204);
    assert_eq!(shown(&alice).await, before);
    assert_eq!(shown(&bob).await[2]["buckets"].as_array().unwrap().len(), 1);
    guarded.publish("alice-1", "sessionId=a", &alice, &[fact("run.started", json!({}))]).await.ok();
    let change = lists.next_frame().await.data;
    assert_eq!((&change["op"], &change["key"]), (&json!("put"), &json!("alice-1")), "the first change is the owner's own");
    while entries[&("runTotals".to_owned(), "runs".to_owned())]["total"] != 2 {
        let frame = lists.next_frame().await.data;
        assert!(!frame.to_string().contains("bob"), "{frame}");
        apply(&mut entries, &frame);
    }
}

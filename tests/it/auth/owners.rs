//! Owners: whose sessions are, what their tokens cover, and what one owner learns of another.

use super::{AuthServer, OWN, SECRET, Ws, admin, bearer, now, signed, token};
use crate::harness::{Client, Process, Response, Transport, fact, start_local, to_ndjson, with_timeout};
use proscenium::ingest::{IngestLimits, OwnerQuotas};
use proscenium::serve::Limits;
use proscenium::serve::access::quota::RateLimit;
use serde_json::{Value, json};

/// A person's token of this owner: chats of its own with agent `a`, and nothing by name.
fn person(owner: &str) -> String {
    let verbs = ["read", "control", "publish", "erase"];
    token(&json!({ "owner": owner, "owners": [owner], "agents": ["a"], "can": verbs }))
}

/// A worker that begins sessions for these owners.
fn worker(owners: &[&str]) -> String {
    token(&json!({ "owners": owners, "agents": ["a"], "can": ["publish"] }))
}

fn says(text: &str) -> Value {
    fact("text.final", json!({ "messageId": "m", "payload": { "text": text } }))
}

async fn erase(guarded: &AuthServer, token: &str, path: &str) {
    assert_eq!(Client::with_token(guarded.client.at, token).delete(path).await.status, 204, "{path}");
}

async fn sessions_of(guarded: &AuthServer, query: &str, token: &str) -> Vec<String> {
    let listed = guarded.get(&format!("/v1/sessions?{query}"), token).await.ok();
    listed["sessions"].as_array().unwrap().iter().map(|line| line["sessionId"].as_str().unwrap().to_owned()).collect()
}

/// Asserts that a token covers a session and its run, or neither.
async fn assert_covers(guarded: &AuthServer, token: &str, session: &str, run: &str, covers: bool) {
    for path in [format!("/v1/sessions/{session}"), format!("/v1/runs/{run}"), format!("/v1/runs/{run}/events")] {
        let answer = guarded.get(&path, token).await;
        match covers {
            true => drop(answer.ok()),
            false => drop(answer.problem(403, "forbidden")),
        }
    }
    assert_eq!(sessions_of(guarded, "", token).await.contains(&session.to_owned()), covers, "{session}");
}

#[tokio::test]
async fn what_a_token_begins_belongs_to_its_owner_by_every_way_of_beginning() {
    let guarded = AuthServer::start().await;
    let (alice, bob) = (person("alice"), person("bob"));
    guarded.publish("r1", "sessionId=by-facts", &alice, &[says("hello")]).await.ok();
    guarded.post("/v1/sessions/by-own-log/facts", &alice, &json!([fact("session.opened", json!({}))])).await.ok();
    let send = json!({ "control": "send", "value": "hello", "agentId": "a" });
    assert_eq!(guarded.post("/v1/sessions/by-control/controls", &alice, &send).await.status, 202);
    let lines = to_ndjson(&[says("one"), says("two"), says("three")]);
    let headers = [("authorization", &*bearer(&alice)), ("content-type", "application/x-ndjson")];
    guarded.client.post("/v1/runs/r2/facts?sessionId=by-lines", &headers, lines).await.ok();
    guarded.publish("r3", "", &alice, &[fact("run.started", json!({ "sessionId": "by-member" }))]).await.ok();
    let mut expected = ["by-facts", "by-own-log", "by-control", "by-lines", "by-member"];
    expected.reverse();
    assert_eq!(sessions_of(&guarded, "", &alice).await, expected);
    assert_eq!(sessions_of(&guarded, "", &bob).await, Vec::<String>::new());
    for session in expected {
        guarded.get(&format!("/v1/sessions/{session}"), &alice).await.ok();
        guarded.get(&format!("/v1/sessions/{session}"), &bob).await.problem(403, "forbidden");
        let outside = guarded.post(&format!("/v1/sessions/{session}/controls"), &bob, &send).await.problem(403, "forbidden");
        assert_eq!(outside["missing"], "session");
        let joins = guarded.publish("bobs", &format!("sessionId={session}"), &bob, &[says("me, too")]).await;
        assert_eq!(joins.problem(403, "forbidden")["missing"], "session", "{session}");
    }
    // A run without a session is its owner's, too, and takes its session along.
    guarded.publish("loose", "", &alice, &[fact("run.started", json!({}))]).await.ok();
    guarded.get("/v1/runs/loose", &alice).await.ok();
    guarded.get("/v1/runs/loose", &bob).await.problem(403, "forbidden");
    guarded.publish("loose", "sessionId=later", &admin(), &[says("more")]).await.ok();
    assert_covers(&guarded, &alice, "later", "loose", true).await;
    assert_covers(&guarded, &bob, "later", "loose", false).await;
    // A session without an owner is covered by name alone.
    guarded.publish("plain", "sessionId=unowned", &admin(), &[says("x")]).await.ok();
    assert_covers(&guarded, &alice, "unowned", "plain", false).await;
    guarded.publish("second", "sessionId=unowned", &alice, &[says("x")]).await.problem(403, "forbidden");
}

#[tokio::test]
async fn a_new_chat_needs_no_new_token_in_any_existing_client() {
    let guarded = AuthServer::start().await;
    let (alice, bob) = (person("alice"), person("bob"));
    let chats = [
        ("/ag-ui/a", json!({ "threadId": "c1", "runId": "k1" }), "c1"),
        ("/copilotkit/agent/a/run", json!({ "threadId": "c2", "runId": "k2" }), "c2"),
        (
            "/ai-sdk/a",
            json!({ "id": "c3", "messages": [{ "id": "u", "role": "user", "parts": [{ "type": "text", "text": "hi" }] }] }),
            "c3",
        ),
    ];
    // What these clients load before the first message of a chat.
    for path in ["/ag-ui/a?threadId=c1", "/ai-sdk/a/c3"] {
        guarded.get(path, &alice).await.ok();
    }
    assert_eq!(guarded.get("/ai-sdk/a/c3/stream", &alice).await.status, 204);
    for (path, body, thread) in chats {
        let asking = guarded.post(path, &alice, &body);
        let serving = async {
            let claimed = guarded.post("/v1/agents/a/controls/claim?wait=30", &admin(), &json!({})).await.ok();
            let control = &claimed["controls"][0];
            assert_eq!(control["sessionId"], thread, "{claimed}");
            let run = control["value"]["runId"].as_str().map_or_else(|| format!("run-of-{thread}"), str::to_owned);
            let facts = [fact("run.started", json!({})), says(OWN), fact("run.finished", json!({}))];
            guarded.publish(&run, &format!("sessionId={thread}"), &admin(), &facts).await.ok();
            let ack = json!({ "lease": control["lease"] });
            guarded.post(&format!("/v1/controls/{}/ack", control["controlId"].as_str().unwrap()), &admin(), &ack).await.ok();
            run
        };
        let (answer, run) = with_timeout("the chat", Box::pin(async { tokio::join!(asking, serving) })).await;
        assert!(String::from_utf8_lossy(&answer.body).contains(OWN), "{path}: {answer:?}");
        assert_covers(&guarded, &alice, thread, &run, true).await;
        assert_covers(&guarded, &bob, thread, &run, false).await;
        assert_eq!(guarded.post(path, &bob, &body).await.problem(403, "forbidden")["missing"], "session");
    }
}

#[tokio::test]
async fn children_have_the_owner_of_their_parent_and_a_worker_begins_sessions_for_owners_that_it_covers() {
    let guarded = AuthServer::start().await;
    let (alice, bob, works) = (person("alice"), person("bob"), worker(&["alice", "team/*"]));
    guarded.publish("r1", "sessionId=top&owner=alice", &works, &[says("x")]).await.ok();
    guarded.publish("r2", "sessionId=child&parentSessionId=top", &works, &[says("x")]).await.ok();
    guarded.publish("r3", "sessionId=child-of-admin&parentSessionId=top", &admin(), &[says("x")]).await.ok();
    guarded.publish("r4", "sessionId=red&owner=team/red", &works, &[says("x")]).await.ok();
    for (session, run) in [("top", "r1"), ("child", "r2"), ("child-of-admin", "r3")] {
        assert_covers(&guarded, &alice, session, run, true).await;
        assert_covers(&guarded, &bob, session, run, false).await;
    }
    assert_eq!(sessions_of(&guarded, "owner=team/red", &works_reads()).await, ["red"]);
    assert_eq!(sessions_of(&guarded, "owner=alice", &works_reads()).await, ["child-of-admin", "child", "top"]);
    // An owner that the worker does not cover, no owner at all, and the owner of others.
    let refused = guarded.publish("r5", "sessionId=new&owner=bob", &works, &[says("x")]).await.problem(403, "forbidden");
    assert_eq!(refused["missing"], "owner");
    guarded.publish("r5", "sessionId=new", &works, &[says("x")]).await.problem(403, "forbidden");
    let other = guarded.publish("r5", "sessionId=top&owner=team/red", &works, &[says("x")]).await.problem(409, "other_owner");
    assert_eq!(other["member"], "owner");
    guarded
        .publish("r5", "sessionId=grandchild&parentSessionId=child&owner=team/red", &works, &[says("x")])
        .await
        .problem(409, "other_owner");
    guarded.publish("r5", "sessionId=new&owner=a*b", &works, &[says("x")]).await.problem(400, "bad_id");
    guarded.publish("r5", "sessionId=new&owner=", &works, &[says("x")]).await.problem(400, "bad_id");
    // A parent of others neither inherits nor is joined.
    guarded.publish("r6", "sessionId=intruder&parentSessionId=top", &bob, &[says("x")]).await.problem(403, "forbidden");
    assert_eq!(sessions_of(&guarded, "", &bob).await, Vec::<String>::new());
    // The same for a message, over HTTP and over a WebSocket.
    let send = json!({ "control": "send", "value": "hello", "agentId": "a" });
    let operator = token(&json!({ "owners": ["alice"], "agents": ["a"], "can": ["control"] }));
    assert_eq!(guarded.post("/v1/sessions/by-message/controls?owner=alice", &operator, &send).await.status, 202);
    guarded.post("/v1/sessions/by-message/controls?owner=bob", &operator, &send).await.problem(403, "forbidden");
    guarded.get("/v1/sessions/by-message", &alice).await.ok();
    let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&works))]).await.unwrap();
    let facts = json!([says("x")]);
    let answer = ws
        .request(json!({ "op": "publish", "id": 1, "runId": "r7", "sessionId": "by-socket", "owner": "alice", "facts": facts }))
        .await;
    assert_eq!(answer["op"], "ack", "{answer}");
    assert_covers(&guarded, &alice, "by-socket", "r7", true).await;
}

fn works_reads() -> String {
    token(&json!({ "owners": ["alice", "team/*"], "can": ["read"] }))
}

#[tokio::test]
async fn a_worker_of_an_owner_claims_no_control_of_another_owner() {
    let guarded = AuthServer::start().await;
    let send = json!({ "control": "send", "value": "hello", "agentId": "a" });
    assert_eq!(guarded.post("/v1/sessions/hers/controls", &person("alice"), &send).await.status, 202);
    let claims = async |token: &str| {
        let claimed = guarded.post("/v1/agents/a/controls/claim?wait=0", token, &json!({})).await.ok();
        claimed["controls"].as_array().unwrap().iter().map(|control| control["sessionId"].clone()).collect::<Vec<_>>()
    };
    let works = |owner: &str| token(&json!({ "owners": [owner], "agents": ["a"], "can": ["publish"] }));
    assert_eq!(claims(&works("bob")).await, Vec::<Value>::new());
    let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&works("bob")))]).await.unwrap();
    assert_eq!(ws.request(json!({ "op": "claim", "id": 1, "agentId": "a" })).await["op"], "claiming");
    assert_eq!(guarded.post("/v1/sessions/his/controls", &person("bob"), &send).await.status, 202);
    assert_eq!(ws.receive().await.unwrap()["sessionId"], "his");
    assert_eq!(claims(&works("alice")).await, ["hers"]);
}

#[tokio::test]
async fn of_two_owners_that_begin_one_session_at_once_one_has_it_and_the_other_is_refused() {
    let guarded = AuthServer::start().await;
    let tokens = ["alice", "bob"].map(person);
    for n in 0..40 {
        let session = format!("s{n}");
        let send = json!({ "control": "send", "value": "hello", "agentId": "a" });
        let begin = |which: usize| {
            let (guarded, session, token, send) = (&guarded, &session, &tokens[which], &send);
            async move {
                // By facts, by a message, or by one of each.
                match (n + which * (n % 3)) % 2 {
                    0 => guarded.publish(&format!("r{n}-{which}"), &format!("sessionId={session}"), token, &[says("mine")]).await,
                    _ => guarded.post(&format!("/v1/sessions/{session}/controls"), token, send).await,
                }
            }
        };
        let (first, second): (Response, Response) = tokio::join!(begin(0), begin(1));
        let statuses = [first.status, second.status];
        assert!(statuses.iter().filter(|status| **status < 300).count() == 1 && statuses.contains(&403), "{statuses:?}");
        let winner = usize::from(first.status == 403);
        guarded.get(&format!("/v1/sessions/{session}"), &tokens[winner]).await.ok();
        guarded.get(&format!("/v1/sessions/{session}"), &tokens[1 - winner]).await.problem(403, "forbidden");
    }
}

#[tokio::test]
async fn an_owner_learns_nothing_of_another_from_lists_counts_streams_and_errors() {
    let guarded = AuthServer::start().await;
    let (alice, bob) = (person("alice"), person("bob"));
    let asks = |action: &str| fact("action.required", json!({ "actionId": action, "payload": { "kind": "tool_approval" } }));
    guarded.publish("a1", "sessionId=a-chat", &alice, &[asks("mine")]).await.ok();
    let shown = async |token: &str| {
        let mut shown = Vec::new();
        for path in ["/v1/sessions", "/v1/sessions?needsAction=true", "/v1/sessions?q=chat", "/v1/runs", "/v1/attention"] {
            let mut answer = guarded.get(path, token).await.ok();
            for entry in ["sessions", "runs", "items"].iter().filter_map(|list| answer[list].as_array().cloned()).flatten() {
                assert!(entry["sessionId"].as_str().unwrap().starts_with(if token == alice { "a-" } else { "b-" }), "{entry}");
            }
            answer.as_object_mut().unwrap().remove("activation");
            shown.push(answer);
        }
        shown
    };
    let before = shown(&alice).await;
    assert_eq!(before[4]["total"], 1);
    let mut lists = guarded.open_stream(Transport::Hyper, "/v1/lists/stream?attention=true&sessions=true", &alice, None).await;
    while lists.next_frame().await.data["frame"] != "Hydrated" {}
    for n in 0..5 {
        guarded.publish(&format!("b{n}"), &format!("sessionId=b-chat-{n}"), &bob, &[asks("theirs")]).await.ok();
        guarded
            .publish(&format!("c{n}"), &format!("sessionId=b-child-{n}&parentSessionId=b-chat-{n}"), &bob, &[asks("x")])
            .await
            .ok();
    }
    assert_eq!(shown(&alice).await, before);
    assert_eq!(shown(&bob).await[4]["total"], 10);
    guarded.publish("a2", "sessionId=a-next", &alice, &[fact("run.started", json!({}))]).await.ok();
    let change = lists.next_frame().await.data;
    assert_eq!((&change["op"], &change["key"]), (&json!("put"), &json!("a-next")), "the first change is the owner's own");
    // By name, by pattern, by the run alone, and by a pattern of owners, a client finds its own in the same order.
    let found = async |here: Value, limit: usize| {
        let (token, mut cursor, mut found) = (token(&here), String::new(), Vec::new());
        loop {
            let page = guarded.get(&format!("/v1/attention?limit={limit}{cursor}"), &token).await.ok();
            found.extend(page["items"].as_array().unwrap().iter().map(|item| item["runId"].as_str().unwrap().to_owned()));
            assert!(page["total"].as_u64() >= Some(found.len() as u64), "{page}");
            match page["nextCursor"].as_str() {
                None => return found,
                Some(next) => cursor = format!("&cursor={next}"),
            }
        }
    };
    for limit in [1, 2, 50] {
        for (here, runs) in [
            (json!({ "owners": ["bob"], "can": ["read"] }), vec!["b0", "c0", "b1", "c1", "b2", "c2", "b3", "c3", "b4", "c4"]),
            (
                json!({ "owners": ["b*"], "sessions": ["a-chat"], "can": ["read"] }),
                vec!["a1", "b0", "c0", "b1", "c1", "b2", "c2", "b3", "c3", "b4", "c4"],
            ),
            (json!({ "sessions": ["b-child*", "a-chat"], "can": ["read"] }), vec!["a1", "c0", "c1", "c2", "c3", "c4"]),
            (json!({ "runs": ["b3", "a1", "none"], "can": ["read"] }), vec!["a1", "b3"]),
            (json!({ "runs": ["c*"], "can": ["read"] }), vec!["c0", "c1", "c2", "c3", "c4"]),
            (json!({ "can": ["read"] }), vec![]),
        ] {
            assert_eq!(found(here.clone(), limit).await, runs, "{here}");
        }
    }
    // A run and a session of others, and a run that does not exist, have the same answers.
    let answer = async |path: &str| {
        let mut problem = guarded.get(path, &alice).await.problem(403, "forbidden");
        problem.as_object_mut().unwrap().remove("requestId");
        problem.to_string().replace("b0", "*").replace("zz", "*")
    };
    assert_eq!(answer("/v1/runs/b0").await, answer("/v1/runs/zz").await);
    guarded.get("/v1/runs/b0/decisions", &alice).await.problem(403, "forbidden");
    let call = guarded.post("/v1/controls/none/ack", &bob, &json!({ "lease": "x" })).await;
    assert_eq!(call.status, 409);
}

#[tokio::test]
async fn what_was_erased_and_begun_by_another_owner_reaches_no_reader_of_the_former_one() {
    let guarded = AuthServer::start().await;
    let (alice, bob) = (person("alice"), person("bob"));
    guarded.publish("r", "sessionId=s", &alice, &[says("hers")]).await.ok();
    let ticket = guarded.ticket(&alice, json!({ "for": "stream", "session": "s" })).await;
    let mut stream = guarded.open_stream(Transport::Hyper, "/v1/sessions/s/stream?frames=events", &alice, None).await;
    assert_eq!(stream.next_frame().await.data["frame"], "Event");
    let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &bearer(&alice))]).await.unwrap();
    assert_eq!(ws.request(json!({ "op": "subscribe", "id": 1, "session": "s", "frames": "events" })).await["op"], "subscribed");
    erase(&guarded, &alice, "/v1/runs/r").await;
    guarded.get("/v1/runs/r", &alice).await.problem(410, "erased");
    guarded.publish("r", "sessionId=s", &bob, &[says(OWN)]).await.ok();
    for path in ["/v1/sessions/s", "/v1/runs/r", "/v1/sessions/s/events"] {
        guarded.get(path, &alice).await.problem(403, "forbidden");
        guarded.get(path, &bob).await.ok();
    }
    guarded.client.get(&format!("/v1/sessions/s/stream?ticket={ticket}")).await.problem(403, "forbidden");
    guarded.publish("r", "", &bob, &[says(OWN)]).await.ok();
    // The connections stay, and deliver what is the owner's again.
    erase(&guarded, &bob, "/v1/runs/r").await;
    guarded.publish("again", "sessionId=s", &alice, &[says("hers again")]).await.ok();
    let (mut over_sse, mut over_ws) = (String::new(), String::new());
    while !over_sse.contains("hers again") {
        over_sse.push_str(&stream.next_frame().await.data.to_string());
    }
    while !over_ws.contains("hers again") {
        over_ws.push_str(&ws.receive().await.unwrap().to_string());
    }
    assert!(!over_sse.contains(OWN) && !over_ws.contains(OWN), "{over_sse}\n{over_ws}");
}

#[tokio::test]
async fn a_pattern_covers_the_ids_that_begin_with_it_and_a_star_elsewhere_is_refused() {
    let guarded = AuthServer::start().await;
    for (run, session) in [("acme/r1", "acme/s1"), ("acme/r2", "acme/s2"), ("acm", "acm"), ("x", "other/s")] {
        let query = format!("sessionId={}", session.replace('/', "%2F"));
        guarded.publish(&run.replace('/', "%2F"), &query, &admin(), &[says("x")]).await.ok();
    }
    let acme =
        token(&json!({ "sessions": ["acme/*"], "runs": ["x*"], "agents": ["bot-*"], "can": ["read", "control", "publish"] }));
    assert_eq!(sessions_of(&guarded, "", &acme).await, ["acme/s2", "acme/s1"]);
    assert_eq!(sessions_of(&guarded, "limit=1", &acme).await, ["acme/s2"]);
    for (path, status) in [
        ("/v1/sessions/acme%2Fs1", 200),
        ("/v1/sessions/acme%2Fnew", 404),
        ("/v1/sessions/acm", 403),
        ("/v1/sessions/acme", 403),
        ("/v1/runs/acme%2Fr1", 200),
        ("/v1/runs/x", 200),
        ("/v1/runs/acm", 403),
    ] {
        assert_eq!(guarded.get(path, &acme).await.status, status, "{path}");
    }
    guarded.publish("new", "sessionId=acme%2Fnew", &acme, &[says("x")]).await.ok();
    let send = json!({ "control": "send", "value": "hello", "agentId": "bot-7" });
    assert_eq!(guarded.post("/v1/sessions/acme%2Fnew/controls", &acme, &send).await.status, 202);
    let other = json!({ "control": "send", "value": "hello", "agentId": "bob" });
    assert_eq!(
        guarded.post("/v1/sessions/acme%2Fnew/controls", &acme, &other).await.problem(403, "forbidden")["missing"],
        "agent"
    );
    for here in [
        json!({ "sessions": ["a*b"] }),
        json!({ "sessions": ["*a"] }),
        json!({ "runs": ["**"] }),
        json!({ "agents": ["a*/x*"] }),
        json!({ "owners": ["*/x"] }),
        json!({ "owner": "team/*" }),
        json!({ "owner": "*" }),
        json!({ "owner": "" }),
        json!({ "owner": ["a"] }),
    ] {
        let refused = guarded.get("/v1/me", &token(&here)).await.problem(401, "unauthenticated");
        assert!(refused["detail"].as_str().unwrap().contains("proscenium"), "{here}: {refused}");
    }
}

#[tokio::test]
async fn an_owner_s_quotas_are_its_own_and_name_what_is_used_up() {
    let quotas = OwnerQuotas { sessions: Some(3), bytes: Some(20_000), turns: Some(2) };
    let limits = Limits { ingest: IngestLimits { quotas, ..IngestLimits::default() }, ..Limits::default() };
    let guarded = AuthServer::start_with_limits(limits).await;
    let (alice, bob) = (person("alice"), person("bob"));
    let assert_exceeded = |answer: Response, quota: &str, limit: u64| {
        let problem = answer.problem(429, "quota_exceeded");
        assert_eq!((&problem["quota"], &problem["limit"]), (&json!(quota), &json!(limit)), "{problem}");
    };
    let send = json!({ "control": "send", "value": "hello", "agentId": "a" });
    // Two turns: a run at work, and a message that waits.
    guarded.publish("r1", "sessionId=s1", &alice, &[fact("run.started", json!({}))]).await.ok();
    assert_eq!(guarded.post("/v1/sessions/s2/controls", &alice, &send).await.status, 202);
    assert_exceeded(guarded.post("/v1/sessions/s2/controls", &alice, &send).await, "turns", 2);
    assert_exceeded(guarded.post("/ag-ui/a", &alice, &json!({ "threadId": "s1", "runId": "k" })).await, "turns", 2);
    assert_exceeded(guarded.post("/v1/runs/r1/controls", &alice, &send).await, "turns", 2);
    // What does not ask for work goes on, and so do other owners.
    assert_eq!(guarded.post("/v1/runs/r1/controls", &alice, &json!({ "control": "interrupt" })).await.status, 202);
    assert_eq!(guarded.post("/v1/sessions/b1/controls", &bob, &send).await.status, 202);
    guarded.publish("r1", "", &alice, &[fact("run.finished", json!({}))]).await.ok();
    assert_eq!(guarded.post("/v1/sessions/s1/controls", &alice, &send).await.status, 202);
    // Three sessions, by any way of beginning; more at once get no further.
    guarded.publish("r3", "sessionId=s3", &alice, &[fact("run.status", json!({}))]).await.ok();
    assert_exceeded(guarded.publish("r4", "sessionId=s4", &alice, &[says("x")]).await, "sessions", 3);
    assert_exceeded(guarded.publish("r4", "sessionId=s4&owner=alice", &admin(), &[says("x")]).await, "sessions", 3);
    guarded.publish("r5", "sessionId=s3", &alice, &[says("x")]).await.ok();
    erase(&guarded, &alice, "/v1/runs/r3").await;
    erase(&guarded, &alice, "/v1/runs/r5").await;
    guarded.publish("r4", "sessionId=s4", &alice, &[says("x")]).await.ok();
    // Bytes: the first delivery beyond them is the last one.
    let long = says(&"long text ".repeat(3000));
    guarded.publish("r4", "", &alice, std::slice::from_ref(&long)).await.ok();
    assert_exceeded(guarded.publish("r4", "", &alice, std::slice::from_ref(&long)).await, "bytes", 20_000);
    assert_exceeded(guarded.publish("r4", "", &admin(), &[says("x")]).await, "bytes", 20_000);
    guarded.publish("b2", "sessionId=b2", &bob, &[says("x")]).await.ok();
    erase(&guarded, &alice, "/v1/runs/r4").await;
    guarded.publish("r6", "sessionId=s1", &alice, &[says("x")]).await.ok();
    let metrics = String::from_utf8(guarded.get("/metrics", &admin()).await.body).unwrap();
    let shown =
        |name: &str| metrics.lines().find(|line| line.starts_with(&format!("{name}{{owner=\"alice\"}}"))).map(str::to_owned);
    assert_eq!(shown("proscenium_owner_sessions").as_deref(), Some("proscenium_owner_sessions{owner=\"alice\"} 2"), "{metrics}");
    // Two messages that wait, and run `r6`, which its first text has begun.
    assert_eq!(shown("proscenium_owner_turns").as_deref(), Some("proscenium_owner_turns{owner=\"alice\"} 3"));
}

#[tokio::test]
async fn the_publish_rate_of_an_owner_counts_all_of_its_producers() {
    let limits = Limits { publish_of_owner: Some(RateLimit { facts: 1, burst: 600 }), ..Limits::default() };
    let guarded = AuthServer::start_with_limits(limits).await;
    let many = vec![fact("run.status", json!({})); 600];
    guarded.publish("r", "sessionId=s", &person("alice"), &many).await.ok();
    let other = token(&json!({ "owner": "alice", "owners": ["alice"], "can": ["publish"] }));
    let refused = guarded.publish("q", "sessionId=t", &other, &many).await.problem(429, "quota_exceeded");
    assert_eq!((&refused["quota"], &refused["limit"]), (&json!("facts"), &json!(1)));
    assert!(refused["retryAfter"].as_u64().is_some_and(|seconds| seconds > 0), "{refused}");
    // A worker's facts count to the owner of the session that it names.
    let works = worker(&["alice", "bob"]);
    guarded.publish("q", "sessionId=s", &works, &many).await.problem(429, "quota_exceeded");
    guarded.publish("q", "sessionId=b&owner=bob", &works, &many).await.ok();
    guarded.publish("p", "sessionId=u", &admin(), &many).await.ok();
}

#[tokio::test]
async fn a_client_learns_who_it_is_and_what_it_may_do() {
    let guarded = AuthServer::start().await;
    let mut me = guarded.get("/v1/me", &person("alice")).await.ok();
    assert!(me.as_object_mut().unwrap().remove("expiresAt").is_some_and(|at| at.as_str().unwrap().ends_with('Z')));
    let expected = json!({ "sub": "user-1", "audience": "user", "can": ["read", "publish", "control", "erase"], "sessions": [],
        "runs": [], "agents": ["a"], "owner": "alice", "owners": ["alice"] });
    assert_eq!(me, expected);
    let all = guarded.get("/v1/me", &admin()).await.ok();
    assert_eq!(all["can"], json!(["read", "publish", "control", "erase", "share", "admin"]), "admin never includes impersonate");
    assert_eq!(all["sessions"], json!(["*"]));
    guarded.client.get("/v1/me").await.problem(401, "unauthenticated");
    let open = start_local().await;
    let anonymous = open.get("/v1/me").await.ok();
    assert_eq!((&anonymous["audience"], &anonymous["sessions"], anonymous.get("sub")), (&json!("internal"), &json!(["*"]), None));
}

#[tokio::test]
async fn owners_stay_through_a_crash_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--auth-key", key.to_str().unwrap()];
    let process = Process::start_with(dir.path(), &flags);
    let by = |token: &str, process: &Process| Client::with_token(process.at, token);
    let (alice, bob) = (person("alice"), person("bob"));
    let sends = json!([says("x")]).to_string();
    let json = [("content-type", "application/json")];
    by(&alice, &process).post("/v1/runs/r/facts?sessionId=s", &json, sends.clone()).await.ok();
    by(&alice, &process).post("/v1/runs/loose/facts", &json, sends.clone()).await.ok();
    let send = json!({ "control": "send", "value": "hello", "agentId": "a" }).to_string();
    assert_eq!(by(&alice, &process).post("/v1/sessions/asked/controls", &json, send).await.status, 202);
    process.kill();
    let process = Process::start_with(dir.path(), &flags);
    for path in ["/v1/sessions/s", "/v1/runs/r", "/v1/runs/loose", "/v1/sessions/asked"] {
        by(&alice, &process).get(path).await.ok();
        by(&bob, &process).get(path).await.problem(403, "forbidden");
    }
    let listed = by(&alice, &process).get("/v1/sessions").await.ok();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2, "{listed}");
    by(&bob, &process).post("/v1/runs/q/facts?sessionId=s", &json, sends.clone()).await.problem(403, "forbidden");
    by(&alice, &process).post("/v1/runs/q/facts?sessionId=s", &json, sends).await.ok();
}

#[tokio::test]
async fn older_tokens_keep_their_meaning_and_a_token_with_an_unknown_member_is_refused() {
    let guarded = AuthServer::start().await;
    guarded.publish("r", "sessionId=s&owner=acme", &admin(), &[says("x")]).await.ok();
    // A session by name is covered, with any owner.
    let by_name = token(&json!({ "sessions": ["s"], "can": ["read", "publish"] }));
    guarded.get("/v1/sessions/s", &by_name).await.ok();
    guarded.publish("q", "sessionId=s", &by_name, &[says("x")]).await.ok();
    let claims = json!({ "sub": "u", "exp": now() + 60, "proscenium": { "owned": ["x"] } });
    guarded.get("/v1/me", &signed(SECRET, &claims, None)).await.problem(401, "unauthenticated");
    // The owner alone covers nothing: it says whose new sessions are.
    let begins = token(&json!({ "owner": "acme", "sessions": ["mine"], "can": ["read", "publish"] }));
    guarded.get("/v1/sessions/s", &begins).await.problem(403, "forbidden");
    guarded.publish("m", "sessionId=mine", &begins, &[says("x")]).await.ok();
    guarded.get("/v1/sessions/mine", &token(&json!({ "owners": ["acme"], "can": ["read"] }))).await.ok();
}

#[tokio::test]
async fn only_a_token_that_covers_an_owner_erases_what_the_owner_has_and_others_learn_nothing() {
    let guarded = AuthServer::start().await;
    let (alice, bob) = (person("alice"), person("bob"));
    guarded.publish("r", "sessionId=s", &alice, &[says("hello")]).await.ok();
    guarded.publish("below", "sessionId=child&parentSessionId=s", &alice, &[says("hello")]).await.ok();
    guarded.publish("q", "sessionId=t", &bob, &[says("hello")]).await.ok();
    let reads_all = token(&json!({ "sessions": ["*"], "can": ["read"] }));
    let delete = async |path: &str, token: &str| Client::with_token(guarded.client.at, token).delete(path).await;
    for path in ["/v1/owners/alice", "/v1/sessions/s", "/v1/sessions/s?children=true"] {
        delete(path, &bob).await.problem(403, "forbidden");
        delete(path, &reads_all).await.problem(403, "forbidden");
    }
    assert_eq!(delete("/v1/owners/alice", &bob).await.problem(403, "forbidden")["missing"], "owner");
    delete("/v1/sessions/s", &alice).await.problem(409, "has_children");
    // A token of one session neither learns of its children nor erases them.
    let only_s = token(&json!({ "sessions": ["s"], "can": ["read", "erase"] }));
    erase(&guarded, &only_s, "/v1/sessions/s?children=true").await;
    assert_eq!(sessions_of(&guarded, "", &alice).await, ["child"]);
    for path in ["/v1/sessions/s", "/v1/runs/r", "/v1/runs/r/events"] {
        guarded.get(path, &alice).await.problem(410, "erased");
        guarded.get(path, &bob).await.problem(403, "forbidden");
    }
    guarded.publish("late", "sessionId=s", &alice, &[says("late")]).await.problem(410, "erased");
    guarded.publish("late", "sessionId=s", &bob, &[says("mine")]).await.problem(403, "forbidden");
    erase(&guarded, &alice, "/v1/owners/alice").await;
    assert!(sessions_of(&guarded, "", &alice).await.is_empty());
    assert_eq!(sessions_of(&guarded, "", &bob).await, ["t"]);
}

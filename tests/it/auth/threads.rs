//! Marks, and who began a session: what one person sees of a session, and no other.

use super::{AuthServer, Ws, admin, bearer, token_with_claims};
use crate::harness::{Client, Response, Transport, fact};
use crate::lists::{Entries, apply};
use proscenium::model::{Cursor, Sequence};
use serde_json::{Value, json};

/// A token of this person for sessions `s` and `t`, with these verbs.
fn person(sub: &str, audience: &str) -> String {
    let here = json!({ "sessions": ["s", "t"], "audience": audience, "can": ["read", "control", "publish"] });
    token_with_claims(&json!({ "sub": sub, "exp": super::now() + 3600, "proscenium": here }))
}

fn by(guarded: &AuthServer, token: &str) -> Client {
    Client::with_token(guarded.client.at, token)
}

fn text(id: &str, audience: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "audience": audience, "payload": { "text": id } }))
}

async fn line(client: &Client, session: &str, query: &str) -> Value {
    let page = client.get(&format!("/v1/sessions?{query}")).await.ok();
    let lines = page["sessions"].as_array().unwrap();
    lines.iter().find(|line| line["sessionId"] == session).cloned().unwrap_or_default()
}

/// The cursor of the last envelope of a session.
async fn cursor(client: &Client, session: &str) -> String {
    let page = client.get(&format!("/v1/sessions/{session}/events")).await.ok();
    page["cursors"].as_array().unwrap().last().unwrap().as_str().unwrap().to_owned()
}

async fn mark(client: &Client, session: &str, body: Value) -> Response {
    client.put(&format!("/v1/sessions/{session}/marks"), &body).await
}

#[tokio::test]
async fn a_session_is_unread_for_a_person_when_it_has_news_after_what_that_person_read() {
    let guarded = AuthServer::start().await;
    guarded.publish("r", "sessionId=s", &admin(), &[text("a", "user")]).await.ok();
    let (ann, bob) = (by(&guarded, &person("ann", "internal")), by(&guarded, &person("bob", "user")));
    let unread = async |client: &Client, query: &str| line(client, "s", query).await["unread"].clone();
    assert_eq!(unread(&ann, "").await, Value::Null, "nothing was read, and the source gives no number");

    let first = cursor(&ann, "s").await;
    let answer = mark(&ann, "s", json!({ "readTo": first, "pinned": true })).await.ok();
    assert_eq!(answer, json!({ "sessionId": "s", "readTo": first, "pinned": true }));
    assert_eq!((unread(&ann, "").await, unread(&bob, "").await), (json!(0), Value::Null));
    guarded.publish("r", "", &admin(), &[text("h", "internal")]).await.ok();
    assert_eq!((unread(&ann, "").await, unread(&ann, "audience=internal").await), (json!(0), json!(1)), "a user does not see it");
    by(&guarded, &admin()).patch("/v1/sessions/s", &json!({ "title": "T" })).await.ok();
    assert_eq!(unread(&ann, "").await, 0, "a rename is no news");
    guarded.publish("r2", "sessionId=s", &admin(), &[text("b", "user")]).await.ok();
    assert_eq!(unread(&ann, "").await, 1);

    let second = cursor(&ann, "s").await;
    mark(&ann, "s", json!({ "readTo": second })).await.ok();
    let answer = mark(&ann, "s", json!({ "readTo": first })).await.ok();
    assert_eq!((&answer["readTo"], unread(&ann, "").await), (&json!(second), json!(0)), "what was read stays read");
    mark(&ann, "s", json!({ "readTo": null })).await.ok();
    let found = line(&ann, "s", "").await;
    assert_eq!((&found["unread"], &found["pinned"]), (&json!(1), &json!(true)));
    assert_eq!(line(&bob, "s", "").await["pinned"], Value::Null);
}

#[tokio::test]
async fn a_person_reads_up_to_a_cursor_of_the_session_and_no_other() {
    let guarded = AuthServer::start().await;
    guarded.publish("r", "sessionId=s", &admin(), &[text("a", "user"), text("b", "user")]).await.ok();
    guarded.publish("q", "sessionId=t", &admin(), &[text("a", "user")]).await.ok();
    let ann = by(&guarded, &person("ann", "user"));
    let run = guarded.get("/v1/runs/r", &admin()).await.ok();
    let of_run =
        |run: &Value, sequence: u64| Cursor::at(run["epoch"].as_str().unwrap().parse().unwrap(), Sequence(sequence)).to_string();
    mark(&ann, "s", json!({ "readTo": of_run(&run, 1) })).await.ok();
    assert_eq!(line(&ann, "s", "").await["unread"], 1, "the second message of the same append came after it");
    mark(&ann, "s", json!({ "readTo": of_run(&run, 2) })).await.ok();
    assert_eq!(line(&ann, "s", "").await["unread"], 0);

    let other = guarded.get("/v1/runs/q", &admin()).await.ok();
    let known = cursor(&ann, "s").await;
    let (epoch, after) = known.split_once(':').unwrap();
    let beyond = format!("{epoch}:{}", after.parse::<u64>().unwrap() + (1 << 40));
    for refused in [of_run(&run, 9), of_run(&other, 1), beyond, "never".into()] {
        let problem = mark(&ann, "s", json!({ "readTo": refused })).await.problem(400, "bad_cursor");
        assert_eq!(problem["member"], "readTo", "{refused}");
    }
    for body in [json!({}), json!({ "pinned": "yes" }), json!({ "readTo": 7 }), json!({ "unread": true })] {
        mark(&ann, "s", body).await.problem(422, "bad_member");
    }
    mark(&ann, "s", json!([])).await.problem(400, "not_json");
    mark(&by(&guarded, &admin()), "never", json!({ "pinned": true })).await.problem(404, "no_such_session");
}

#[tokio::test]
async fn a_list_stream_has_the_marks_of_its_person_and_changes_with_them() {
    let guarded = AuthServer::start().await;
    guarded.publish("r", "sessionId=s", &admin(), &[text("a", "user")]).await.ok();
    let [ann, bob] = ["ann", "bob"].map(|sub| person(sub, "user"));
    let mut streams = Vec::new();
    for token in [&ann, &bob] {
        let mut sse = guarded.open_stream(Transport::Hyper, "/v1/lists/stream?sessions=true", token, None).await;
        let mut entries = Entries::new();
        while !apply(&mut entries, &sse.next_frame().await.data) {}
        streams.push(sse);
    }
    let ann = by(&guarded, &ann);
    mark(&ann, "s", json!({ "pinned": true, "readTo": cursor(&ann, "s").await })).await.ok();
    let frame = streams[0].next_frame().await.data;
    assert_eq!((&frame["op"], &frame["entry"]["pinned"], &frame["entry"]["unread"]), (&json!("put"), &json!(true), &json!(0)));
    ann.patch("/v1/sessions/s", &json!({ "title": "Renamed" })).await.ok();
    for sse in &mut streams {
        let frame = sse.next_frame().await.data;
        assert_eq!(frame["entry"]["title"], "Renamed", "the first change that both see: {frame}");
    }
    ann.patch("/v1/sessions/s", &json!({ "archived": true })).await.ok();
    for sse in &mut streams {
        let frame = sse.next_frame().await.data;
        assert_eq!((&frame["op"], &frame["key"]), (&json!("remove"), &json!("s")));
    }
}

#[tokio::test]
async fn a_user_sees_of_whom_began_a_session_and_renamed_it_only_itself() {
    let guarded = AuthServer::start().await;
    let [ann, bob, operator] =
        [("ann", "user"), ("bob", "user"), ("op", "dashboard")].map(|(sub, audience)| by(&guarded, &person(sub, audience)));
    ann.post("/v1/runs/r/facts?sessionId=s", &[("content-type", "application/json")], json!([text("a", "user")]).to_string())
        .await
        .ok();
    bob.post("/v1/sessions/t/controls", &[("content-type", "application/json")], r#"{"control":"send","value":"hi"}"#).await;
    // A later run of another person does not change who began it.
    bob.post("/v1/runs/r2/facts?sessionId=s", &[("content-type", "application/json")], json!([text("b", "user")]).to_string())
        .await
        .ok();
    let creators = async |client: &Client, query: &str| {
        [line(client, "s", query).await["createdBy"].clone(), line(client, "t", query).await["createdBy"].clone()]
    };
    assert_eq!(creators(&ann, "").await, [json!("ann"), Value::Null]);
    assert_eq!(creators(&bob, "").await, [Value::Null, json!("bob")]);
    assert_eq!(creators(&operator, "audience=dashboard").await, [json!("ann"), json!("bob")]);
    assert_eq!(creators(&operator, "").await, [Value::Null, Value::Null], "as a user, an operator sees what users see");
    let began = async |client: &Client, query: &str| {
        let page = client.get(&format!("/v1/sessions?{query}")).await.ok();
        page["sessions"].as_array().unwrap().iter().map(|line| line["sessionId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for sort in ["created", "updated"] {
        assert_eq!(began(&ann, &format!("createdBy=ann&sort={sort}")).await, ["s"]);
        assert_eq!(began(&ann, &format!("createdBy=bob&sort={sort}")).await, Vec::<String>::new());
        assert_eq!(began(&operator, &format!("createdBy=bob&audience=dashboard&sort={sort}")).await, ["t"]);
    }

    ann.patch("/v1/sessions/s", &json!({ "title": "T" })).await.ok();
    let updated_by = async |client: &Client, query: &str| {
        let page = client.get(&format!("/v1/sessions/s/events?{query}")).await.ok();
        page["events"].as_array().unwrap().last().unwrap()["payload"]["updatedBy"].clone()
    };
    for client in [&ann, &bob] {
        let by = updated_by(client, "").await;
        assert_eq!((&by["sub"], &by["via"]), (&Value::Null, &json!("rest")), "{by}");
    }
    assert_eq!(updated_by(&operator, "audience=dashboard").await["sub"], "ann");
}

#[tokio::test]
async fn a_person_with_very_many_sessions_lists_all_of_them_and_no_others() {
    const SESSIONS: usize = 4200;
    let guarded = AuthServer::start().await;
    let here = json!({ "owner": "ann", "owners": ["ann"], "can": ["read", "control", "publish"] });
    let token = token_with_claims(&json!({ "sub": "ann", "exp": super::now() + 3600, "proscenium": here }));
    let (ann, operator) = (by(&guarded, &token), by(&guarded, &admin()));
    let mut expected = Vec::new();
    let write = async |token: &str, sessions: &[String]| {
        let mut socket = Ws::connect(&guarded.client, "", &[("authorization", &bearer(token))]).await.unwrap();
        for many in sessions.chunks(50) {
            for session in many {
                let facts = [fact("run.started", json!({ "sessionId": session }))];
                socket.send(json!({ "op": "publish", "id": session, "runId": format!("r-{session}"), "facts": facts })).await;
            }
            for _ in many {
                assert_eq!(socket.receive().await.unwrap()["op"], "ack");
            }
        }
    };
    for part in 0..2 {
        let own: Vec<_> = (0..SESSIONS / 2).map(|n| format!("ann-{part}-{n}")).collect();
        write(&token, &own).await;
        expected.extend(own);
        write(&admin(), &[format!("other-{part}")]).await;
    }
    expected.sort_unstable();
    for (client, query) in [(&ann, "sort=updated"), (&ann, "sort=created"), (&operator, "createdBy=ann&audience=internal")] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/v1/sessions?{query}&cursor={cursor}")).await.ok();
            let names = page["sessions"].as_array().unwrap().iter().map(|line| line["sessionId"].as_str().unwrap().to_owned());
            seen.extend(names);
            match page["nextCursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, expected, "{query}");
    }
}

#[tokio::test]
async fn a_share_link_keeps_no_marks_and_renames_nothing() {
    let guarded = AuthServer::start().await;
    guarded.publish("r", "sessionId=s", &admin(), &[text("a", "user")]).await.ok();
    let until = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string();
    let wanted = json!({ "sessionId": "s", "until": until, "can": ["control"] });
    let made = guarded.post("/v1/links", &admin(), &wanted).await.json();
    let (_, secret) = made["url"].as_str().unwrap().split_once("#link=").unwrap();
    let body = json!({ "secret": secret }).to_string();
    let opened = guarded.client.post("/v1/links/exchange", &[("content-type", "application/json")], body).await.ok();
    let link = by(&guarded, opened["token"].as_str().unwrap());
    link.get("/v1/sessions/s").await.ok();
    mark(&link, "s", json!({ "pinned": true })).await.problem(403, "forbidden");
    link.patch("/v1/sessions/s", &json!({ "title": "T" })).await.problem(403, "forbidden");
}

#[tokio::test]
async fn marks_are_bounded_and_end_with_their_session() {
    let guarded = AuthServer::start().await;
    let of_all = json!({ "sessions": ["*"], "can": ["read", "publish", "erase"] });
    let ann = by(&guarded, &token_with_claims(&json!({ "sub": "ann", "exp": super::now() + 3600, "proscenium": of_all })));
    guarded.publish("r", "sessionId=s", &admin(), &[text("a", "user")]).await.ok();
    mark(&ann, "s", json!({ "pinned": true })).await.ok();
    assert_eq!(line(&ann, "s", "").await["pinned"], true);
    assert_eq!(ann.delete("/v1/runs/r").await.status, 204);
    guarded.publish("r", "sessionId=s", &admin(), &[text("a", "user")]).await.ok();
    assert_eq!(line(&ann, "s", "").await["pinned"], Value::Null, "another session of that id has no mark");

    let marks_max = proscenium::marks::MARKS_PER_SUB_MAX;
    for n in 0..=marks_max {
        let (run, query) = (format!("r{n}"), format!("sessionId=s{n}"));
        guarded.publish(&run, &query, &admin(), &[fact("run.started", json!({}))]).await.ok();
        mark(&ann, &format!("s{n}"), json!({ "pinned": n < 2 })).await.ok();
    }
    let page =
        guarded.client.get_with("/v1/sessions?sort=created&limit=1000", &[("authorization", &bearer(&admin()))]).await.ok();
    assert_eq!(page["sessions"].as_array().unwrap().len(), 1000);
    let pinned = async |session: &str| line(&ann, session, &format!("q={session}&limit=1000")).await["pinned"].clone();
    assert_eq!([pinned("s0").await, pinned("s1").await], [true, true], "a mark that pins stays");
    assert_eq!([pinned("s2").await, pinned("s3").await], [Value::Null, json!(false)], "the oldest of the others went");
}

#[tokio::test]
async fn clearing_the_threads_of_copilotkit_erases_those_that_the_person_began_and_the_token_covers() {
    let guarded = AuthServer::start().await;
    let may = |sub: &str, sessions: Value, can: Value| {
        let here = json!({ "sessions": sessions, "can": can });
        by(&guarded, &token_with_claims(&json!({ "sub": sub, "exp": super::now() + 3600, "proscenium": here })))
    };
    let all = |sub: &str| may(sub, json!(["*"]), json!(["read", "control", "publish", "erase"]));
    let (ann, bob) = (all("ann"), all("bob"));
    let begin = async |client: &Client, session: &str, query: &str| {
        let path = format!("/v1/runs/run-{session}/facts?sessionId={session}{query}");
        client.post(&path, &[("content-type", "application/json")], json!([text("a", "user")]).to_string()).await.ok();
    };
    for session in ["ann-1", "ann-2", "ann-3"] {
        begin(&ann, session, "").await;
    }
    begin(&bob, "bob-1", "").await;
    // What the agent of another token began below one of them.
    begin(&bob, "below", "&parentSessionId=ann-1").await;
    begin(&bob, "apart", "&parentSessionId=ann-3").await;
    let left = async |client: &Client| {
        let page = client.get("/copilotkit/threads?includeArchived=true").await.ok();
        let mut ids: Vec<_> =
            page["threads"].as_array().unwrap().iter().map(|thread| thread["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    let everything = ["ann-1", "ann-2", "ann-3", "apart", "below", "bob-1"];
    let clear = async |client: &Client| client.post("/copilotkit/threads/clear", &[], "").await;
    let problem = clear(&may("ann", json!(["*"]), json!(["read", "control"]))).await.problem(403, "forbidden");
    assert_eq!(problem["missing"], "erase");
    assert_eq!(left(&ann).await, everything);
    let some = may("ann", json!(["ann-1", "below", "ann-2"]), json!(["read", "erase"]));
    assert_eq!(clear(&some).await.status, 204);
    assert_eq!(left(&ann).await, ["ann-3", "apart", "bob-1"]);
    assert_eq!(clear(&some).await.status, 204, "a repeated request finds nothing");
    assert_eq!(clear(&ann).await.status, 204);
    assert_eq!(left(&bob).await, ["bob-1"]);
    ann.get("/v1/sessions/below").await.problem(410, "erased");
    let audit = guarded.get("/v1/audit", &admin()).await.ok();
    let erased: std::collections::BTreeSet<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["what"] == "erase")
        .map(|entry| &entry["sessionId"])
        .map(Value::to_string)
        .collect();
    assert_eq!(erased.len(), 5, "{audit}");
}

#[tokio::test]
async fn a_person_learns_through_copilotkit_of_no_thread_of_others() {
    let guarded = AuthServer::start().await;
    let user = |sub: &str, sessions: Value| {
        let here = json!({ "sessions": sessions, "can": ["read", "control", "publish", "erase"] });
        by(&guarded, &token_with_claims(&json!({ "sub": sub, "exp": super::now() + 3600, "proscenium": here })))
    };
    let (ann, bob) = (user("ann", json!(["s", "shared"])), user("bob", json!(["t", "shared"])));
    for (client, session) in [(&ann, "s"), (&bob, "t"), (&ann, "shared")] {
        let path = format!("/v1/runs/run-{session}/facts?sessionId={session}");
        client.post(&path, &[("content-type", "application/json")], json!([text("a", "user")]).to_string()).await.ok();
    }
    let makers = async |client: &Client, query: &str| {
        let page = client.get(&format!("/copilotkit/threads?{query}")).await.ok();
        let threads = page["threads"].as_array().unwrap();
        let mut all: Vec<_> =
            threads.iter().map(|thread| format!("{}: {}", thread["id"], thread["createdById"]).replace('"', "")).collect();
        all.sort();
        all
    };
    assert_eq!(makers(&ann, "").await, ["s: ann", "shared: ann"]);
    assert_eq!(makers(&bob, "").await, ["shared: anonymous", "t: bob"], "a user learns only that it began a thread itself");
    let operator = by(&guarded, &admin());
    assert_eq!(makers(&operator, "audience=dashboard").await, ["s: ann", "shared: ann", "t: bob"]);
    assert_eq!(makers(&operator, "").await, ["s: anonymous", "shared: anonymous", "t: anonymous"]);

    for thread in ["t", "never"] {
        let path = format!("/copilotkit/threads/{thread}");
        let json = [("content-type", "application/json")];
        let mut refused = vec![
            ann.patch(&path, &json!({ "name": "Mine" })).await,
            ann.post(&format!("{path}/archive"), &json, "{}").await,
            ann.request(http::Method::DELETE, &path, &json, "{}").await,
        ];
        for what in ["messages", "events", "state"] {
            refused.push(ann.get(&format!("{path}/{what}")).await);
        }
        for answer in refused {
            let problem = answer.problem(403, "forbidden");
            assert_eq!(problem["missing"], "session", "the same whether it exists or not: {problem}");
        }
    }
    assert_eq!(makers(&bob, "").await.len(), 2);
    let [renamed, page] = [
        bob.patch("/copilotkit/threads/shared", &json!({ "name": "Ours" })).await.ok(),
        ann.get("/copilotkit/threads").await.ok(),
    ];
    assert_eq!(renamed["createdById"], "anonymous");
    assert!(page["threads"].as_array().unwrap().iter().any(|thread| thread["name"] == "Ours"), "{page}");
}

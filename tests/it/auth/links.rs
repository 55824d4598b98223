//! Share links: what they show, to whom, until when, and what they may decide.

use super::{
    AuthServer, HIDDEN, OWN, SECRET, Ws, admin, fact, now, read_error, replace_file, signed, test_clock, token,
    token_with_claims, write_example_runs,
};
use crate::harness::{Client, Process, Response, Transport, start_local, with_timeout};
use proscenium::links::{EXCHANGES_PER_MINUTE_MAX, LINK_DAYS_MAX, LINKS_PER_MAKER_MAX};
use proscenium::serve::Limits;
use serde_json::{Value, json};

/// A time that is so many seconds away, as requests spell it.
fn after(seconds: i64) -> String {
    jiff::Timestamp::from_second(now() + seconds).unwrap().to_string()
}

fn maker(sub: &str, here: &Value) -> String {
    token_with_claims(&json!({ "sub": sub, "jti": format!("token-of-{sub}"), "exp": now() + 3600, "proscenium": here }))
}

/// A person who may share session `s`, and decide in it.
fn sharer() -> String {
    maker("sharer", &json!({ "sessions": ["s"], "can": ["read", "control", "share"] }))
}

/// Makes a link; returns its id and its secret.
pub async fn make(guarded: &AuthServer, token: &str, mut wanted: Value) -> (String, String) {
    if wanted.get("until").is_none() {
        wanted["until"] = json!(after(3600));
    }
    made(&guarded.post("/v1/links", token, &wanted).await)
}

fn made(answer: &Response) -> (String, String) {
    assert_eq!(answer.status, 201, "{answer:?}");
    let link = answer.json();
    let secret = link["url"].as_str().unwrap().strip_prefix("/#link=").unwrap();
    assert_eq!(secret.len(), 43, "32 random bytes");
    (link["id"].as_str().unwrap().to_owned(), secret.to_owned())
}

async fn exchange(client: &Client, secret: &str) -> Response {
    let body = json!({ "secret": secret }).to_string();
    client.post("/v1/links/exchange", &[("content-type", "application/json")], body).await
}

/// Opens a link; returns its token.
pub async fn open(guarded: &AuthServer, secret: &str) -> String {
    exchange(&guarded.client, secret).await.ok()["token"].as_str().unwrap().to_owned()
}

/// Waits until a request is answered with this status: the server reads its files again and again.
async fn until_status(guarded: &AuthServer, path: &str, token: &str, status: u16) {
    let waiting = async { while guarded.get(path, token).await.status != status {} };
    with_timeout("the files are read again", waiting).await;
}

fn asks(action: &str, payload: &Value) -> Value {
    let mut whole = json!({ "kind": "tool_approval", "toolName": "deploy" });
    whole.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
    fact("action.required", json!({ "actionId": action, "payload": whole }))
}

#[tokio::test]
async fn an_opened_link_reads_what_it_leads_to_and_nothing_beside_it() {
    let guarded = AuthServer::start().await;
    let [_, own_blob] = write_example_runs(&guarded).await;
    let asking = |action: &str| [fact("run.started", json!({})), asks(action, &json!({ "risk": "low" }))];
    guarded.publish("beside", "sessionId=s&owner=acme", &admin(), &asking("beside-asks")).await.ok();
    guarded.publish("q", "", &admin(), &asking("q-asks")).await.ok();
    for (wanted, readable, hidden) in [
        (
            json!({ "runId": "r" }),
            &["/v1/runs/r", "/v1/runs/r/events", "/v1/runs/r/activities", "/v1/runs/r/export", "/v1/runs/r/decisions"][..],
            &["/v1/sessions/s", "/v1/sessions/s/events", "/v1/runs/beside", "/v1/runs/q"][..],
        ),
        (
            json!({ "sessionId": "s" }),
            &["/v1/sessions/s", "/v1/sessions/s/window", "/v1/sessions/s/activities", "/v1/runs/r", "/v1/runs/beside"],
            &["/v1/sessions/t", "/v1/runs/q", "/v1/sessions/t/events"],
        ),
    ] {
        for token in [sharer(), maker("all", &json!({ "audience": "internal", "sessions": ["*"], "can": ["admin"] }))] {
            let (_, secret) = make(&guarded, &token, wanted.clone()).await;
            let opened = exchange(&guarded.client, &secret).await.ok();
            assert_eq!((&opened["can"], opened.get("at")), (&json!(["read"]), None));
            for (member, id) in wanted.as_object().unwrap() {
                assert_eq!(&opened[member], id);
            }
            let reader = opened["token"].as_str().unwrap();
            for path in readable {
                let text = guarded.get(path, reader).await;
                assert_eq!(text.status, 200, "{path}: {text:?}");
                assert!(!String::from_utf8_lossy(&text.body).contains(HIDDEN), "{path}");
            }
            assert_eq!(guarded.get(&own_blob, reader).await.status, 200);
            for path in hidden {
                guarded.get(path, reader).await.problem(403, "forbidden");
            }
            assert_eq!(
                guarded.get("/v1/runs/r?audience=internal", reader).await.problem(403, "forbidden")["missing"],
                "audience:internal"
            );
            let is_of_run = wanted.get("runId").is_some();
            let asked = guarded.get("/v1/attention", reader).await.ok();
            assert_eq!(
                json!([asked["items"].as_array().unwrap().len(), asked["total"]]),
                json!([u8::from(!is_of_run), u8::from(!is_of_run)])
            );
            assert!(!asked.to_string().contains("q-asks"), "{asked}");
            let listed = guarded.get("/v1/sessions", reader).await.ok();
            let listed: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|line| line["sessionId"].clone()).collect();
            assert_eq!(listed, if is_of_run { vec![] } else { vec![json!("s")] });
            let mut lists =
                guarded.open_stream(Transport::Raw, "/v1/lists/stream?attention=true&sessions=true", reader, None).await;
            loop {
                let frame = with_timeout("a frame", lists.next()).await.unwrap().data;
                assert!((!is_of_run || frame["frame"] != "List") && !frame.to_string().contains("q-asks"), "{frame}");
                if frame["frame"] == "Hydrated" {
                    break;
                }
            }
            let runs = guarded.get("/v1/runs", reader).await.ok();
            assert!(runs["runs"].as_array().unwrap().iter().all(|run| run["runId"] != "q"), "{runs}");
            let me = guarded.get("/v1/me", reader).await.ok();
            let target = wanted.as_object().unwrap().values().next().unwrap();
            let [sessions, runs] =
                if wanted.get("runId").is_some() { [json!([]), json!([target])] } else { [json!([target]), json!([])] };
            assert_eq!(json!([me["can"], me["sessions"], me["runs"], me["audience"]]), json!([["read"], sessions, runs, "user"]));
            // It writes nothing, and makes no links of its own.
            let text = [fact("text.delta", json!({ "messageId": "m", "payload": { "text": "x" } }))];
            guarded.publish("r", "", reader, &text).await.problem(403, "forbidden");
            guarded.post("/v1/runs/r/controls", reader, &json!({ "control": "interrupt" })).await.problem(403, "forbidden");
            guarded.post("/v1/runs/r/settle", reader, &json!({})).await.problem(403, "forbidden");
            guarded.post("/v1/links", reader, &json!({ "runId": "r", "until": after(60) })).await.problem(403, "forbidden");
            guarded.get("/v1/links", reader).await.problem(403, "forbidden");
            let mut stream = guarded.open_stream(Transport::Raw, "/v1/runs/r/stream", reader, None).await;
            assert!(with_timeout("a frame", stream.next()).await.unwrap().data.to_string().contains("run"));
            let ticket = guarded.ticket(reader, json!({ "for": "stream", "run": "r" })).await;
            assert_eq!(guarded.client.get(&format!("/v1/runs/q/stream?ticket={ticket}")).await.status, 403);
        }
    }
}

#[tokio::test]
async fn only_who_may_share_and_read_something_makes_a_link_to_it() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let wanted = json!({ "runId": "r", "until": after(3600) });
    for (here, missing) in [
        (json!({ "sessions": ["s"], "can": ["read", "control"] }), "share"),
        (json!({ "sessions": ["s"], "can": ["share"] }), "read"),
        (json!({ "sessions": ["t"], "can": ["read", "share"] }), "run"),
        (json!({ "owners": ["other"], "can": ["admin"] }), "run"),
    ] {
        let refused = guarded.post("/v1/links", &token(&here), &wanted).await.problem(403, "forbidden");
        assert_eq!(refused["missing"], missing, "{here}");
    }
    let decides = json!({ "runId": "r", "until": after(3600), "can": ["control"] });
    let reader = token(&json!({ "sessions": ["s"], "can": ["read", "share"] }));
    assert_eq!(guarded.post("/v1/links", &reader, &decides).await.problem(403, "forbidden")["missing"], "control");
    // Whose session it is shares it, too.
    make(&guarded, &token(&json!({ "owners": ["acme"], "can": ["read", "share"] })), json!({ "sessionId": "s" })).await;
    guarded.post("/v1/links", &admin(), &json!({ "runId": "never", "until": after(60) })).await.problem(404, "no_such_run");
    guarded
        .post("/v1/links", &admin(), &json!({ "sessionId": "never", "until": after(60) }))
        .await
        .problem(404, "no_such_session");
}

#[tokio::test]
async fn a_bad_request_for_a_link_names_the_member_and_what_it_may_be() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let last = guarded.get("/v1/runs/r?audience=internal", &admin()).await.ok()["lastSequence"].as_u64().unwrap();
    let too_far = i64::try_from(LINK_DAYS_MAX).unwrap() * 86_400 + 60;
    for (more, member) in [
        (json!({ "until": null }), "until"),
        (json!({ "until": "tomorrow" }), "until"),
        (json!({ "until": after(-1) }), "until"),
        (json!({ "until": after(too_far) }), "until"),
        (json!({ "sessionId": "s" }), "runId"),
        (json!({ "runId": 7 }), "runId"),
        (json!({ "at": 0 }), "at"),
        (json!({ "at": last + 1 }), "at"),
        (json!({ "at": "2" }), "at"),
        (json!({ "at": 2, "can": ["control"] }), "can"),
        (json!({ "can": ["send"] }), "can"),
        (json!({ "can": "control" }), "can"),
        (json!({ "title": "x" }), "title"),
    ] {
        let mut wanted = json!({ "runId": "r", "until": after(3600) });
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = guarded.post("/v1/links", &admin(), &wanted).await.problem(422, "bad_member");
        assert_eq!(refused["member"], member, "{more}: {refused}");
    }
    let of_session = json!({ "sessionId": "s", "at": 1, "until": after(60) });
    assert_eq!(guarded.post("/v1/links", &admin(), &of_session).await.problem(422, "bad_member")["member"], "at");
    let headers = [("content-type", "application/json")];
    guarded.client.post("/v1/links/exchange", &headers, "{}").await.problem(422, "bad_member");
    guarded.client.post("/v1/links/exchange", &headers, "x").await.problem(400, "not_json");
    assert_eq!(guarded.get("/v1/links", &admin()).await.ok()["links"], json!([]));
}

#[tokio::test]
async fn a_link_to_a_moment_shows_nothing_of_what_came_later() {
    let guarded = AuthServer::start().await;
    let text = |text: &str| fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } }));
    let early = [fact("run.started", json!({ "payload": { "title": "early" } })), text("early")];
    let at = guarded.publish("r", "sessionId=s", &admin(), &early).await.ok()["lastSequence"].as_u64().unwrap();
    let before = guarded.get("/v1/runs/r", &admin()).await.ok();
    let late = [
        text(OWN),
        asks("a", &json!({ "risk": "low", "title": OWN })),
        fact("run.started", json!({ "payload": { "title": OWN } })),
        fact("run.failed", json!({ "payload": { "error": { "message": OWN } } })),
    ];
    guarded.publish("r", "", &admin(), &late).await.ok();
    let whole = guarded.get("/v1/runs/r", &admin()).await.ok();
    let (_, secret) = make(&guarded, &sharer(), json!({ "runId": "r", "at": at })).await;
    let opened = exchange(&guarded.client, &secret).await.ok();
    assert_eq!(opened["at"], at);
    let reader = opened["token"].as_str().unwrap();
    let run = guarded.get("/v1/runs/r", reader).await.ok();
    for member in ["status", "phase", "attempt", "epoch", "lastSequence", "counts", "sessionId", "startedAt", "lastActivity"] {
        assert_eq!(run[member], before[member], "{member}: {run}");
        assert!(
            whole[member] != before[member] || !["status", "lastSequence", "counts"].contains(&member),
            "{member} tells nothing"
        );
    }
    let paths =
        ["", "/events", "/events?after=0", "/events?before=1000", "/events?limit=1", "/activities", "/activities?at=1000"];
    for path in paths {
        let answer = guarded.get(&format!("/v1/runs/r{path}"), reader).await.ok();
        assert!(!answer.to_string().contains(OWN), "{path}: {answer}");
        let activities = answer["activities"].as_array().into_iter().flatten();
        let sequences = activities.chain(answer["events"].as_array().into_iter().flatten()).map(|shown| &shown["sequence"]);
        assert!(sequences.clone().all(|sequence| sequence.as_u64().unwrap() <= at), "{path}: {answer}");
        assert!(path.is_empty() || sequences.count() > 0, "{path}: {answer}");
    }
    let beyond = guarded.get(&format!("/v1/runs/r/events?after={at}"), reader).await.ok();
    assert_eq!(json!([beyond["events"], beyond["nextCursor"], beyond["holes"]]), json!([[], null, null]));
    assert!(guarded.get("/v1/me", reader).await.status == 200);
    // What is not bound to the moment is refused.
    for path in [
        "/v1/runs/r/stream",
        "/v1/runs/r/export",
        "/v1/runs/r/controls",
        "/v1/runs/r/decisions",
        "/v1/runs",
        "/v1/attention",
        "/v1/sessions",
        "/v1/sessions/s",
        "/v1/stream?runs=r",
        "/v1/lists/stream?sessions=true",
        "/v1/blobs/b",
        "/ag-ui/a?runId=r",
        "/copilotkit/info",
        "/copilotkit/threads",
        "/copilotkit/threads/s/messages",
        "/ai-sdk/a/s",
        "/v1/links",
    ] {
        assert_eq!(guarded.get(path, reader).await.problem(403, "forbidden")["missing"], "present", "{path}");
    }
    for (path, body) in [("/v1/tickets", json!({ "for": "stream", "run": "r" })), ("/copilotkit", json!({ "method": "info" }))] {
        assert_eq!(guarded.post(path, reader, &body).await.problem(403, "forbidden")["missing"], "present", "{path}");
    }
    let mut ws = Ws::open(&guarded.client).await;
    let refused = ws.request(json!({ "op": "auth", "token": reader })).await;
    assert_eq!(json!([refused["op"], refused["code"]]), json!(["error", "forbidden"]));
}

#[tokio::test]
async fn a_link_ends_with_its_time_its_revocation_and_the_rights_of_its_maker() {
    let clock = test_clock!();
    let guarded = AuthServer::start_with_clock(clock).await;
    write_example_runs(&guarded).await;
    let is_over = async |reader: &str, secret: &str, reason: &str| {
        assert_eq!(guarded.get("/v1/runs/r", reader).await.problem(401, "unauthenticated")["reason"], reason);
        exchange(&guarded.client, secret).await.problem(404, "no_such_link");
    };
    // Revoked: also what it has open ends.
    let (id, secret) = make(&guarded, &sharer(), json!({ "runId": "r" })).await;
    let reader = open(&guarded, &secret).await;
    let mut of_link = guarded.open_stream(Transport::Raw, "/v1/runs/r/stream?after=now", &reader, None).await;
    let own = Client::with_token(guarded.client.at, &sharer());
    assert_eq!(own.delete(&format!("/v1/links/{id}")).await.status, 204);
    assert_eq!(read_error(&mut of_link).await["reason"], "link_ended");
    is_over(&reader, &secret, "link_ended").await;
    own.delete(&format!("/v1/links/{id}")).await.problem(404, "no_such_link");
    // The maker's token, or the maker, is revoked.
    for name in ["token-of-gone", "gone"] {
        let gone = maker("gone", &json!({ "sessions": ["s"], "can": ["read", "share"] }));
        let (_, secret) = make(&guarded, &gone, json!({ "runId": "r" })).await;
        let reader = open(&guarded, &secret).await;
        guarded.get("/v1/runs/r", &reader).await.ok();
        let mut of_link = guarded.open_stream(Transport::Raw, "/v1/runs/r/stream?after=now", &reader, None).await;
        replace_file(&guarded.file("revoked"), name);
        assert_eq!(read_error(&mut of_link).await["reason"], "revoked");
        is_over(&reader, &secret, "revoked").await;
        replace_file(&guarded.file("revoked"), "");
        // The revocation is lifted once the server has read the file again.
        until_status(&guarded, "/v1/me", &gone, 200).await;
    }
    // The maker's key is removed.
    let rotated =
        json!({ "keys": [{ "kty": "oct", "kid": "rotated", "k": data_encoding::BASE64URL_NOPAD.encode(OTHER_KEY.as_bytes()) }] });
    replace_file(&guarded.file("jwks"), &rotated.to_string());
    let claims = json!({ "sub": "m", "exp": now() + 3600, "proscenium": { "sessions": ["s"], "can": ["read", "share"] } });
    let by_key = signed(OTHER_KEY, &claims, Some("rotated"));
    until_status(&guarded, "/v1/me", &by_key, 200).await;
    let (_, secret) = make(&guarded, &by_key, json!({ "sessionId": "s" })).await;
    let reader = open(&guarded, &secret).await;
    guarded.get("/v1/runs/r", &reader).await.ok();
    replace_file(&guarded.file("jwks"), r#"{"keys":[]}"#);
    until_status(&guarded, "/v1/runs/r", &reader, 401).await;
    is_over(&reader, &secret, "key_removed").await;
    // Its time is over. A token of it ends first, and the secret gives another.
    let (id, secret) = make(&guarded, &sharer(), json!({ "runId": "r", "until": after(1000) })).await;
    let opened = exchange(&guarded.client, &secret).await.ok();
    let reader = opened["token"].as_str().unwrap();
    let left = opened["expiresAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second() - now();
    assert!((890..=900).contains(&left), "{opened}");
    clock.ahead_s.fetch_add(901, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(guarded.get("/v1/runs/r", reader).await.problem(401, "unauthenticated")["reason"], "expired");
    let reader = open(&guarded, &secret).await;
    guarded.get("/v1/runs/r", &reader).await.ok();
    clock.ahead_s.fetch_add(100, std::sync::atomic::Ordering::Relaxed);
    let ended = guarded.get("/v1/runs/r", &reader).await.problem(401, "unauthenticated");
    assert!(["expired", "link_ended"].contains(&ended["reason"].as_str().unwrap()), "{ended}");
    exchange(&guarded.client, &secret).await.problem(404, "no_such_link");
    let listed = guarded.get("/v1/links", &admin()).await.ok();
    assert!(!listed.to_string().contains(&id), "{listed}");
}

const OTHER_KEY: &str = "a key that is rotated, of more than thirty-two bytes";

#[tokio::test]
async fn a_link_ends_with_the_run_or_the_session_that_it_leads_to() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let (_, of_run) = make(&guarded, &sharer(), json!({ "runId": "r" })).await;
    let (_, of_session) =
        make(&guarded, &maker("t", &json!({ "sessions": ["t"], "can": ["read", "share"] })), json!({ "sessionId": "t" })).await;
    let (reader, session_reader) = (open(&guarded, &of_run).await, open(&guarded, &of_session).await);
    let erases = Client::with_token(guarded.client.at, &admin());
    for run in ["r", "q"] {
        assert_eq!(erases.delete(&format!("/v1/runs/{run}")).await.status, 204);
    }
    let written_again = async |run: &str, session: &str| {
        let start = [fact("run.started", json!({ "payload": { "title": OWN } }))];
        guarded.publish(run, &format!("sessionId={session}"), &admin(), &start).await.ok();
    };
    for (run, session, reader, secret) in [("r", "s", &reader, &of_run), ("q", "t", &session_reader, &of_session)] {
        exchange(&guarded.client, secret).await.problem(404, "no_such_link");
        assert_eq!(guarded.get(&format!("/v1/runs/{run}"), reader).await.problem(401, "unauthenticated")["reason"], "link_ended");
        // Another run has the id.
        written_again(run, session).await;
        guarded.get(&format!("/v1/runs/{run}"), reader).await.problem(401, "unauthenticated");
        exchange(&guarded.client, secret).await.problem(404, "no_such_link");
    }
    assert_eq!(guarded.get("/v1/links", &admin()).await.ok()["links"], json!([]));
}

#[tokio::test]
async fn makers_see_their_own_links_and_an_administrator_of_everything_sees_all() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let other = maker("other", &json!({ "sessions": ["t"], "can": ["admin"] }));
    let (theirs, secret) = make(&guarded, &other, json!({ "sessionId": "t" })).await;
    let mut own = Vec::new();
    for _ in 0..5 {
        own.push(make(&guarded, &sharer(), json!({ "runId": "r", "can": ["control"] })).await.0);
    }
    for _ in 0..3 {
        open(&guarded, &secret).await;
    }
    let list = async |token: &str, limit: usize| {
        let (mut ids, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = guarded.get(&format!("/v1/links?limit={limit}&cursor={cursor}"), token).await.ok();
            let links = page["links"].as_array().unwrap().clone();
            assert!(links.len() <= limit && !page.to_string().contains(&secret), "{page}");
            ids.extend(links.iter().map(|link| link["id"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => return ids,
            }
        }
    };
    for limit in [1, 2, 5, 100] {
        let mut listed = list(&sharer(), limit).await;
        listed.sort();
        own.sort();
        assert_eq!(listed, own, "by {limit}");
    }
    assert_eq!(list(&other, 9).await, std::slice::from_ref(&theirs), "an administrator of some sessions sees its own");
    assert_eq!(list(&admin(), 4).await.len(), 6);
    let link = guarded.get("/v1/links", &other).await.ok()["links"][0].clone();
    assert_eq!(json!([link["uses"], link["sessionId"], link["sub"], link["can"]]), json!([3, "t", "other", ["read"]]));
    guarded.get("/v1/links?cursor=x", &other).await.problem(400, "bad_cursor");
    let path = format!("/v1/links/{theirs}");
    Client::with_token(guarded.client.at, &sharer()).delete(&path).await.problem(404, "no_such_link");
    assert_eq!(Client::with_token(guarded.client.at, &admin()).delete(&path).await.status, 204);
    exchange(&guarded.client, &secret).await.problem(404, "no_such_link");
}

#[tokio::test]
async fn the_links_of_a_maker_and_the_openings_of_a_link_have_limits() {
    // The minute of a limit must not end during the test.
    fn stands_still() -> jiff::Timestamp {
        static AT: std::sync::LazyLock<jiff::Timestamp> = std::sync::LazyLock::new(jiff::Timestamp::now);
        *AT
    }
    let guarded = AuthServer::start_with_all(|_| {}, Limits::default(), stands_still).await;
    write_example_runs(&guarded).await;
    let mut last = String::new();
    for _ in 0..LINKS_PER_MAKER_MAX {
        last = make(&guarded, &sharer(), json!({ "runId": "r" })).await.1;
    }
    let wanted = json!({ "runId": "r", "until": after(60) });
    let refused = guarded.post("/v1/links", &sharer(), &wanted).await.problem(429, "too_many_links");
    assert_eq!(refused["limit"], LINKS_PER_MAKER_MAX);
    make(&guarded, &admin(), json!({ "runId": "r" })).await;
    for _ in 0..EXCHANGES_PER_MINUTE_MAX {
        open(&guarded, &last).await;
    }
    exchange(&guarded.client, &last).await.problem(429, "link_rate");
}

#[tokio::test]
async fn a_forged_token_or_secret_opens_nothing() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let (id, secret) = make(&guarded, &sharer(), json!({ "runId": "r" })).await;
    let reader = open(&guarded, &secret).await;
    let (head, signature) = reader.rsplit_once('.').unwrap();
    let (header, claims) = head.split_once('.').unwrap();
    let other = data_encoding::BASE64URL_NOPAD.encode(format!(r#"{{"link":"{id}","exp":{}}}"#, now() + 90_000).as_bytes());
    let by_our_key = signed(SECRET, &json!({ "link": id, "exp": now() + 60 }), Some("proscenium-links"));
    let as_person = signed(
        SECRET,
        &json!({ "sub": "x", "exp": now() + 60, "proscenium": { "sessions": ["*"], "can": ["admin"] } }),
        Some("proscenium-links"),
    );
    let unsigned = data_encoding::BASE64URL_NOPAD.encode(br#"{"alg":"none","kid":"proscenium-links"}"#);
    for forged in [
        format!("{header}.{other}.{signature}"),
        format!("{header}.{claims}."),
        format!("{unsigned}.{claims}."),
        by_our_key,
        as_person,
    ] {
        guarded.get("/v1/runs/r", &forged).await.problem(401, "unauthenticated");
    }
    let other = secret.chars().rev().collect::<String>();
    for secret in ["", &id, &secret[1..], &other, &format!("{secret}=")] {
        exchange(&guarded.client, secret).await.problem(404, "no_such_link");
    }
    guarded.get("/v1/runs/r", &reader).await.ok();
}

#[tokio::test]
async fn a_link_decides_one_action_once_and_says_so() {
    let guarded = AuthServer::start().await;
    let once = json!([{ "optionId": "now", "name": "Now", "kind": "allow_once" }, { "optionId": "ever", "name": "Ever", "kind": "allow_always" }]);
    let facts = [
        fact("run.started", json!({})),
        asks("a", &json!({ "risk": "low", "options": once })),
        asks("b", &json!({ "risk": "low" })),
        asks("high", &json!({ "risk": "high" })),
        asks("unstated", &json!({})),
        asks("unknown", &json!({ "risk": "spicy" })),
        asks("hidden", &json!({ "risk": "low" })),
    ];
    guarded.publish("r", "sessionId=s", &admin(), &facts).await.ok();
    let (id, secret) = make(&guarded, &sharer(), json!({ "sessionId": "s", "can": ["control"] })).await;
    let opened = exchange(&guarded.client, &secret).await.ok();
    assert_eq!(opened["can"], json!(["read", "control"]));
    let reader = opened["token"].as_str().unwrap();
    let decide = async |body: Value| guarded.post("/v1/runs/r/controls", reader, &body).await;
    for refused in [
        json!({ "control": "approve", "actionId": "high" }),
        json!({ "control": "reject", "actionId": "unstated" }),
        json!({ "control": "approve", "actionId": "unknown" }),
        json!({ "control": "send", "value": "hello" }),
        json!({ "control": "steer", "value": "hello" }),
        json!({ "control": "interrupt" }),
        json!({ "control": "approve", "actionId": "a", "value": { "optionId": "ever" } }),
        json!({ "control": "approve", "actionId": "a", "value": "ever" }),
        json!({ "control": "approve", "actionId": "a", "onBehalfOf": "carol" }),
    ] {
        decide(refused).await.problem(403, "forbidden");
    }
    decide(json!({ "control": "approve", "actionId": "never" })).await.problem(409, "action_not_pending");
    // A control that is refused leaves the link its decision.
    decide(json!({ "control": "approve", "actionId": "a", "value": { "approved": false } })).await.problem(422, "bad_control");
    decide(json!({ "control": "approve", "actionId": "a", "seenSequence": 1 })).await.problem(409, "action_changed");
    let decision = json!({ "control": "approve", "actionId": "a", "controlId": "mine" });
    assert_eq!(decide(decision.clone()).await.status, 202);
    assert_eq!(decide(decision).await.status, 202, "a repeated request is the same decision");
    for more in
        [json!({ "control": "approve", "actionId": "b" }), json!({ "control": "reject", "actionId": "b", "controlId": "mine" })]
    {
        assert_eq!(decide(more).await.problem(409, "link_has_decided")["controlId"], "mine");
    }
    let link = guarded.get("/v1/links", &sharer()).await.ok()["links"][0].clone();
    assert_eq!(link["decided"], json!({ "actionId": "a", "controlId": "mine" }));
    assert_eq!(exchange(&guarded.client, &secret).await.ok()["can"], json!(["read"]));
    let listed = guarded.get("/v1/runs/r/controls?audience=internal", &admin()).await.ok();
    assert_eq!(listed["controls"].as_array().unwrap().len(), 1, "{listed}");
    let by = &listed["controls"][0]["decidedBy"];
    assert_eq!(json!([by["via"], by["sub"]]), json!(["link", format!("link:{id}")]));
    let chosen = guarded.post("/v1/agents/default/controls/claim", &admin(), &json!({})).await.ok()["controls"][0].clone();
    assert_eq!(chosen["value"]["optionId"], "now", "{chosen}");
    // A link that may only read decides nothing.
    let (_, secret) = make(&guarded, &sharer(), json!({ "runId": "r" })).await;
    let reads = open(&guarded, &secret).await;
    let refused = guarded.post("/v1/runs/r/controls", &reads, &json!({ "control": "approve", "actionId": "b" })).await;
    assert_eq!(refused.problem(403, "forbidden")["missing"], "control");
}

#[tokio::test]
async fn of_decisions_of_one_link_that_race_one_counts() {
    let guarded = AuthServer::start().await;
    let actions: Vec<String> = (0..12).map(|n| format!("a{n}")).collect();
    let mut facts = vec![fact("run.started", json!({}))];
    facts.extend(actions.iter().map(|action| asks(action, &json!({ "risk": "low" }))));
    guarded.publish("r", "sessionId=s", &admin(), &facts).await.ok();
    guarded.publish("q", "sessionId=s", &admin(), &facts).await.ok();
    let (_, secret) = make(&guarded, &sharer(), json!({ "sessionId": "s", "can": ["control"] })).await;
    let reader = open(&guarded, &secret).await;
    let deciding = actions.iter().enumerate().map(|(n, action)| {
        let (guarded, reader, run) = (&guarded, &reader, if n % 2 == 0 { "r" } else { "q" });
        let body = json!({ "control": "approve", "actionId": action });
        async move { guarded.post(&format!("/v1/runs/{run}/controls"), reader, &body).await }
    });
    let answers = futures_util::future::join_all(deciding).await;
    let accepted = answers.iter().filter(|answer| answer.status == 202).count();
    assert_eq!(accepted, 1, "{answers:?}");
    for refused in answers.iter().filter(|answer| answer.status != 202) {
        refused.problem(409, "link_has_decided");
    }
    let mut decided = 0;
    for run in ["r", "q"] {
        let listed = guarded.get(&format!("/v1/runs/{run}/controls"), &admin()).await.ok();
        decided += listed["controls"].as_array().unwrap().len();
    }
    assert_eq!(decided, 1);
}

#[tokio::test]
async fn a_restart_keeps_links_their_tokens_and_what_they_have_decided() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--auth-key", key.to_str().unwrap()];
    let process = Process::start_with(dir.path(), &flags);
    let by = |token: &str, process: &Process| Client::with_token(process.at, token);
    let facts = json!([
        fact("run.started", json!({ "sessionId": "s" })),
        asks("a", &json!({ "risk": "low" })),
        asks("b", &json!({ "risk": "low" }))
    ]);
    by(&admin(), &process).post_facts("r", &facts).await.ok();
    let headers = [("content-type", "application/json")];
    let wanted = json!({ "runId": "r", "until": after(3600), "can": ["control"] });
    let (_, secret) = made(&by(&sharer(), &process).post("/v1/links", &headers, wanted.to_string()).await);
    let reader = exchange(&Client::new(process.at), &secret).await.ok()["token"].as_str().unwrap().to_owned();
    let decide = async |process: &Process, action: &str| {
        let body = json!({ "control": "approve", "actionId": action }).to_string();
        by(&reader, process).post("/v1/runs/r/controls", &headers, body).await
    };
    assert_eq!(decide(&process, "a").await.status, 202);
    drop(process);
    let process = Process::start_with(dir.path(), &flags);
    by(&reader, &process).get("/v1/runs/r/events").await.ok();
    decide(&process, "b").await.problem(409, "link_has_decided");
    exchange(&Client::new(process.at), &secret).await.ok();
    let listed = by(&sharer(), &process).get("/v1/links").await.ok();
    assert_eq!(json!([listed["links"][0]["uses"], listed["links"][0]["decided"]["actionId"]]), json!([2, "a"]));
}

#[tokio::test]
async fn without_authentication_a_link_only_leads_to_what_it_names() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({}))]).await;
    let headers = [("content-type", "application/json")];
    let post = async |wanted: Value| client.post("/v1/links", &headers, wanted.to_string()).await;
    for member in [json!({ "at": 1 }), json!({ "can": ["control"] })] {
        let mut wanted = json!({ "runId": "r", "until": after(60) });
        wanted.as_object_mut().unwrap().extend(member.as_object().unwrap().clone());
        let refused = post(wanted).await.problem(422, "bad_member");
        assert!(refused["detail"].as_str().unwrap().contains("no authentication"), "{refused}");
    }
    let (id, secret) = made(&post(json!({ "runId": "r", "until": after(60) })).await);
    let opened = exchange(&client, &secret).await.ok();
    assert_eq!(json!([opened["runId"], opened.get("token"), opened["can"]]), json!(["r", null, ["read"]]));
    assert_eq!(client.delete(&format!("/v1/links/{id}")).await.status, 204);
    exchange(&client, &secret).await.problem(404, "no_such_link");
}

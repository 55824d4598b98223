//! Search in texts: an audience and an owner find what they may read, and learn nothing of the rest.

use super::{AuthServer, admin, token_with_claims};
use crate::harness::{Client, fact};
use crate::search::{names, search, until_indexed};
use serde_json::{Value, json};

fn message(id: &str, text: &str, audience: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "audience": audience, "payload": { "text": text } }))
}

#[tokio::test]
async fn an_audience_and_an_owner_find_only_what_they_may_read() {
    let guarded = AuthServer::start().await;
    let person = |owner: &str, audience: &str| {
        let here = json!({ "owner": owner, "owners": [owner], "agents": ["a"], "audience": audience, "can": ["read", "publish", "control"] });
        let claims = json!({ "sub": owner, "exp": super::now() + 3600, "proscenium": here });
        Client::with_token(guarded.client.at, &token_with_claims(&claims))
    };
    let audiences = ["user", "dashboard", "internal"];
    for owner in ["ann", "bob"] {
        for n in 0..4 {
            let say = |audience| message(&format!("{audience}-m"), &format!("common {audience}word {owner}word{n}"), audience);
            let query = format!("sessionId={owner}-s{n}&owner={owner}");
            guarded.publish(&format!("{owner}-r{n}"), &query, &self::admin(), &audiences.map(say)).await.ok();
        }
    }
    let admin = Client::with_token(guarded.client.at, &self::admin());
    until_indexed(&admin).await;
    let all = ["s3", "s2", "s1", "s0"];
    for (owner, other) in [("ann", "bob"), ("bob", "ann")] {
        for (level, audience) in audiences.iter().enumerate() {
            let client = person(owner, audience);
            let query = format!("audience={audience}");
            let own: Vec<_> = all.iter().map(|session| format!("{owner}-{session}")).collect();
            assert_eq!(names(&client, "common", &query).await, own, "{owner} {audience}");
            assert_eq!(names(&client, &format!("{other}word1"), &query).await, Vec::<String>::new(), "{owner} {audience}");
            assert_eq!(names(&client, &format!("{owner}word1"), &query).await, [format!("{owner}-s1")]);
            for (needed, word) in audiences.iter().enumerate() {
                let expected = if needed <= level { own.clone() } else { Vec::new() };
                for words in [format!("{word}word"), format!("{word}wo"), format!("common {word}word")] {
                    assert_eq!(names(&client, &words, &query).await, expected, "{owner} {audience} {words}");
                }
            }
            // Highlights are of the newest message that this audience sees.
            let found = search(&client, "common", &query).await;
            assert!(found.iter().all(|line| line["highlight"]["messageId"] == format!("{audience}-m")), "{found:?}");
            assert!(found.iter().all(|line| line["highlight"]["text"].as_str().unwrap().contains(audience)), "{found:?}");
            // Pages end where they end without the sessions of others.
            let page = client.get(&format!("/v1/sessions?in=text&q=common&limit=4&{query}")).await.ok();
            assert_eq!(page["nextCursor"], Value::Null, "{page}");
            let page = client.get(&format!("/v1/sessions?in=text&q=common&limit=3&{query}")).await.ok();
            let next = page["nextCursor"].as_str().unwrap();
            let rest = client.get(&format!("/v1/sessions?in=text&q=common&limit=3&{query}&cursor={next}")).await.ok();
            assert_eq!((rest["sessions"].as_array().unwrap().len(), &rest["nextCursor"]), (1, &Value::Null));
        }
    }
    assert_eq!(names(&admin, "internalword", "audience=internal").await.len(), 8);
    assert_eq!(names(&admin, "internalword", "audience=dashboard").await.len(), 0);
}

//! Mappings: what they grant, and which are refused at the start or for a token.

use super::*;
use crate::auth::rights::{Rights, Verb};
use crate::model::{RunId, SessionId};

fn map(mappings: &[&str]) -> ClaimMap {
    ClaimMap(mappings.iter().map(|text| text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))).collect())
}

/// The rights of a token with these claims.
fn read(mappings: &[&str], claims: &Value) -> Result<Rights, String> {
    let mut all = json!({ "sub": "s", "exp": 1 });
    all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
    map(mappings).read(&all.to_string()).map(|claims| claims.rights).map_err(|error| error.to_string())
}

fn rights(mappings: &[&str], claims: &Value) -> Rights {
    read(mappings, claims).unwrap()
}

fn permits_nothing(rights: &Rights) -> bool {
    Verb::ALL.iter().all(|verb| !rights.can(*verb))
}

fn has_session(rights: &Rights, session: &str) -> bool {
    let session = SessionId::new(session).unwrap();
    rights.has_run(&RunId::new("any").unwrap(), Some(&session), None)
}

#[test]
fn without_a_mapping_the_token_of_an_identity_provider_permits_nothing() {
    let claims = json!({ "groups": ["ops"], "scope": "read admin", "roles": ["admin"] });
    assert!(permits_nothing(&rights(&[], &claims)));
    assert!(permits_nothing(&rights(&["groups=others:can=admin"], &claims)));
}

#[test]
fn a_claim_that_equals_or_contains_the_value_grants_the_members() {
    let ops = ["groups=ops:audience=internal,can=read+control,sessions=*,agents=a+b"];
    for groups in [json!("ops"), json!(["dev", "ops"])] {
        let rights = rights(&ops, &json!({ "groups": groups }));
        assert_eq!(rights.audience, Audience::Internal);
        assert!(rights.can(Verb::Read) && rights.can(Verb::Control) && !rights.can(Verb::Publish));
        assert!(rights.is_unrestricted() && rights.has_agent("b") && !rights.has_agent("c"));
    }
    for groups in [json!("opsx"), json!(["op", "s"]), json!({ "ops": true }), json!([["ops"]]), json!(null), json!("dev ops")] {
        assert!(permits_nothing(&rights(&ops, &json!({ "groups": groups }))), "{groups}");
    }
    assert!(rights(&["email_verified=true:can=read"], &json!({ "email_verified": true })).can(Verb::Read));
    assert!(rights(&["level=3:can=read"], &json!({ "level": 3 })).can(Verb::Read));
}

#[test]
fn a_claim_is_named_by_its_path_and_names_may_have_dots_and_colons() {
    for (mapping, claims) in [
        ("realm_access.roles=ops:can=read", json!({ "realm_access": { "roles": ["ops"] } })),
        ("resource_access.my.client.roles=ops:can=read", json!({ "resource_access": { "my.client": { "roles": ["ops"] } } })),
        ("https://app.example/roles=ops:can=read", json!({ "https://app.example/roles": ["ops"] })),
        ("https://app.example/claims.roles=ops:can=read", json!({ "https://app.example/claims": { "roles": "ops" } })),
        ("role=urn:acme:ops:can=read", json!({ "role": "urn:acme:ops" })),
    ] {
        assert!(rights(&[mapping], &claims).can(Verb::Read), "{mapping}");
    }
    let of_url = rights(&["sessions={https://app.example/org}/main,can=read"], &json!({ "https://app.example/org": "acme" }));
    assert!(has_session(&of_url, "acme/main") && of_url.can(Verb::Read));
}

#[test]
fn the_text_of_a_claim_stands_for_its_placeholder() {
    let mapping = ["can=read,sessions={org}/{team}+home-{sub}"];
    let rights = rights(&mapping, &json!({ "org": "acme", "team": ["a", "b"] }));
    assert!(["acme/a", "acme/b", "home-s"].iter().all(|session| has_session(&rights, session)));
    assert!(!has_session(&rights, "acme/c") && !has_session(&rights, "acme"));
    assert!(has_session(&super::tests::rights(&["sessions={n}"], &json!({ "n": 7 })), "7"));
}

#[test]
fn a_missing_claim_grants_nothing_of_its_mapping() {
    for org in [json!(null), json!(""), json!([]), json!([""]), json!({ "a": "b" }), json!(true)] {
        let claims = json!({ "org": org });
        let rights = rights(&["can=read,sessions=shared+{org}/x", "can=control"], &claims);
        assert!(!rights.can(Verb::Read) && !has_session(&rights, "shared"), "{claims}");
        assert!(rights.can(Verb::Control), "the other mapping stands");
    }
}

#[test]
fn mappings_and_the_own_claim_of_a_token_add_up() {
    let mappings = ["groups=a:audience=dashboard,can=read,sessions=s1", "groups=b:audience=user,can=control,sessions=s2"];
    let own = json!({ "audience": "user", "can": ["publish", "read"], "sessions": ["s3"] });
    let rights = rights(&mappings, &json!({ "groups": ["b", "a"], "proscenium": own }));
    assert_eq!(rights.audience, Audience::Dashboard);
    assert!([Verb::Read, Verb::Control, Verb::Publish].iter().all(|verb| rights.can(*verb)));
    assert!(["s1", "s2", "s3"].iter().all(|session| has_session(&rights, session)));
    // What the own claim says is read as strictly as without mappings.
    for (own, why) in [
        (json!({ "xyz": 1 }), "unknown field `xyz`"),
        (json!({ "sessions": "*" }), "invalid type"),
        (json!({ "audience": "all" }), "unknown variant `all`"),
        (json!(["internal"]), "proscenium is not an object"),
    ] {
        let error = read(&mappings, &json!({ "groups": "a", "proscenium": own })).unwrap_err();
        assert!(error.contains(why), "{own}: {error}");
    }
}

#[test]
fn the_text_of_a_claim_never_becomes_a_pattern() {
    let error = |mapping: &str, org: Value| read(&[mapping], &json!({ "org": org })).unwrap_err();
    for org in [json!("*"), json!("acme/*"), json!("a*b"), json!(["acme", "*"])] {
        let why = error("can=read,sessions={org}", org.clone());
        assert!(why.contains("org has a `*`"), "{org}: {why}");
        assert!(error("can=read,agents=x-{org}", org).contains("org has a `*`"));
    }
    // `acme/sub` is not a part of `acme` that its own administrator controls.
    assert!(error("can=read,sessions=t/{org}/*", json!("acme/sub")).contains("org has a `/`"));
    assert!(read(&["can=read,sessions=t/{org}/x"], &json!({ "org": "acme/sub" })).is_ok(), "a whole id is no pattern");
}

#[test]
fn an_entry_expands_to_a_limited_number_of_values() {
    let many: Vec<String> = (0..=EXPANSIONS_MAX).map(|n| n.to_string()).collect();
    let error = read(&["sessions={many}"], &json!({ "many": many })).unwrap_err();
    assert!(error.contains("more than 256 values"), "{error}");
    assert!(read(&["sessions={many}"], &json!({ "many": many[1..] })).is_ok());
}

#[test]
fn a_bad_mapping_is_refused_with_what_and_where() {
    for (text, why) in [
        ("groups=ops", "\"groups\" is not a member of a mapping"),
        ("groups=ops:audiance=internal", "\"audiance\" is not a member of a mapping"),
        ("groups=ops:audience=everyone", "unknown variant `everyone`"),
        ("groups=ops:can=read+write", "unknown variant `write`"),
        ("can=", "can has an empty value"),
        ("can=read+", "can has an empty value"),
        ("", "names no member"),
        ("read", "names no member"),
        ("can=read,", "names no member"),
        ("=ops:can=read", "the condition \"=ops\" has an empty claim or value"),
        ("groups=:can=read", "the condition \"groups=\" has an empty claim or value"),
        ("can={roles}", "can cannot have a placeholder"),
        ("audience={level}", "audience cannot have a placeholder"),
        ("audience=user+internal", "audience has one value, not 2"),
        ("owner={org}+x", "owner has one value, not 2"),
        ("sessions={org", "the placeholder in sessions={org is not complete"),
        ("sessions={}", "is not complete"),
        ("sessions=org}", "is not complete"),
        ("sessions={org}*", "would also cover longer names"),
        ("sessions=a\u{1}", "sessions: an id has a control character"),
    ] {
        let error = text.parse::<ClaimMapping>().expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn an_owner_is_one_and_that_of_the_token_stands() {
    let owner =
        |mappings: &[&str], claims: Value| read(mappings, &claims).map(|rights| rights.owner.map(|owner| owner.to_string()));
    let of_org = ["can=read,owner={org},owners={org}", "org=acme:owners=shared/*"];
    let rights = rights(&of_org, &json!({ "org": "acme" }));
    assert_eq!(rights.owner.as_ref().map(ToString::to_string), Some("acme".to_owned()));
    assert!(["acme", "shared/x"].iter().all(|owner| rights.owners.contains(owner)) && !rights.owners.contains("other"));
    assert_eq!(owner(&of_org, json!({})), Ok(None));
    assert_eq!(owner(&of_org, json!({ "org": ["a", "b"] })), Ok(None), "the owner is one");
    let own = json!({ "org": "acme", "proscenium": { "owner": "mine" } });
    assert_eq!(owner(&of_org, own), Ok(Some("mine".to_owned())));
    let two = ["owner={org}", "owner={team}"];
    assert_eq!(owner(&two, json!({ "org": "acme", "team": "acme" })), Ok(Some("acme".to_owned())));
    let error = owner(&two, json!({ "org": "acme", "team": "other" })).unwrap_err();
    assert!(error.contains("two owners, acme and other"), "{error}");
    assert!(owner(&of_org, json!({ "org": "ac*me" })).unwrap_err().contains("org has a `*`"));
    assert!("owner=a*".parse::<ClaimMapping>().unwrap_err().contains('*'));
}

//! `GET /v1/me`: who the client is, and what it may do.

use crate::auth::rights::{EXPIRES_MAX, Rights, Verb};
use crate::model::Audience;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::response::no_store_json;
use axum::response::Response;
use serde_json::{Value, json};

/// Describes the token of the request. Without authentication, every client may do everything.
pub async fn me(authorization: Authorization) -> Response {
    let grant = authorization.principal().grant();
    let can: Vec<&str> = Verb::ALL.into_iter().filter(|verb| authorization.can(*verb)).map(Verb::as_str).collect();
    let Some(grant) = grant else {
        let all = ["*"];
        return no_store_json(json!({ "audience": Audience::Internal, "can": can, "sessions": all, "runs": all, "agents": all }));
    };
    let Rights { audience, sessions, runs, agents, owner, owners, .. } = &grant.rights;
    // The user of a proxy has no end of its own.
    let expires = Some(grant.expires).filter(|expires| *expires < EXPIRES_MAX);
    let expires =
        expires.and_then(|expires| i64::try_from(expires).ok()).and_then(|expires| jiff::Timestamp::from_second(expires).ok());
    let mut me = json!({
        "sub": grant.subject,
        "name": grant.name,
        "audience": audience,
        "can": can,
        "sessions": sessions.to_list(),
        "runs": runs.to_list(),
        "agents": agents.to_list(),
        "owner": owner,
        "owners": if owners.is_empty() { None } else { Some(owners.to_list()) },
        "expiresAt": expires.map(|expires| expires.to_string()),
    });
    if let Value::Object(members) = &mut me {
        members.retain(|_, value| !value.is_null());
    }
    no_store_json(me)
}

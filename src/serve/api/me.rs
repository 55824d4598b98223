//! `GET /v1/me`: who the client is, and what it may do.

use crate::auth::rights::{EXPIRES_MAX, Rights, Scope, Verb};
use crate::log::LogId;
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
    // A link covers of its maker's rights only what it leads to.
    let of_link = grant.link().map(|link| match link.terms.target.log() {
        LogId::Run(run) => [vec![], vec![run.to_string()]],
        LogId::Session(session) => [vec![session.to_string()], vec![]],
    });
    let of_token = || [sessions, runs].map(|scope| scope.to_list().into_iter().map(str::to_owned).collect::<Vec<_>>());
    let [sessions, runs] = of_link.unwrap_or_else(of_token);
    let owners = Some(owners).filter(|owners| grant.link().is_none() && !owners.is_empty());
    // The user of a proxy has no end of its own.
    let expires = Some(grant.expires).filter(|expires| *expires < EXPIRES_MAX);
    let expires =
        expires.and_then(|expires| i64::try_from(expires).ok()).and_then(|expires| jiff::Timestamp::from_second(expires).ok());
    let mut me = json!({
        "sub": grant.subject,
        "name": grant.name,
        "audience": audience,
        "can": can,
        "sessions": sessions,
        "runs": runs,
        "agents": agents.to_list(),
        "owner": owner,
        "owners": owners.map(Scope::to_list),
        "expiresAt": expires.map(|expires| expires.to_string()),
    });
    if let Value::Object(members) = &mut me {
        members.retain(|_, value| !value.is_null());
    }
    no_store_json(me)
}

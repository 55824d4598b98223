//! `GET /v1/sign-in`: what a page needs to sign a person in at the identity provider.

use super::authorization::unauthenticated;
use crate::auth::TokenError;
use crate::serve::App;
use crate::serve::http::problem::Problem;
use crate::serve::http::response::no_store_json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Describes the sign-in; an empty object if the server has none.
pub async fn get(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let configured = app.authenticator.as_ref().and_then(|authenticator| Some((authenticator, authenticator.sign_in()?)));
    let Some((authenticator, sign_in)) = configured else { return Ok(no_store_json(json!({}))) };
    let found = authenticator.discovered().ok_or_else(|| unauthenticated(&TokenError::NoKeys))?;
    let parameters: Map<String, Value> =
        sign_in.parameters.iter().map(|(name, value)| (name.to_string(), (**value).into())).collect();
    let mut provider = json!({
        "issuer": found.issuer,
        "authorizationEndpoint": found.authorization_endpoint,
        "tokenEndpoint": found.token_endpoint,
        "endSessionEndpoint": found.end_session_endpoint,
        "clientId": sign_in.client_id,
        "scope": sign_in.scope,
        "token": sign_in.token.as_str(),
        "parameters": parameters,
    });
    if let Value::Object(members) = &mut provider {
        members.retain(|_, value| !value.is_null());
    }
    Ok(no_store_json(json!({ "provider": provider })))
}

/// The origins that the page connects to while a person signs in: those of the issuer and of its token endpoint.
#[must_use]
pub fn provider_origins(app: &App) -> BTreeSet<String> {
    let Some(authenticator) = app.authenticator.as_ref().filter(|authenticator| authenticator.sign_in().is_some()) else {
        return BTreeSet::new();
    };
    authenticator.discovered().iter().flat_map(crate::auth::provider::Discovered::origins).collect()
}

//! The public key of what the server signs.

use crate::serve::App;
use crate::serve::http::response::no_store_json;
use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;

/// `GET /v1/keys`: the public keys that verify what the server signs, as a JSON Web Key Set.
pub async fn keys(State(app): State<Arc<App>>) -> Response {
    no_store_json(json!({ "keys": [app.signing_key.public_key().to_jwk()] }))
}

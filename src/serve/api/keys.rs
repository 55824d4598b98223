//! The key with which the server signs, and the heads of logs that it signs.

use crate::log::hash_chain::ChainRecord;
use crate::log::{LogId, StoreError};
use crate::record::signing::SignedHead;
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

impl App {
    /// The head of a log's hash chain, signed now; `None` for a log without a chain.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn signed_head(&self, log: &LogId) -> Result<Option<SignedHead>, StoreError> {
        let Some(loaded) = self.logs.load(log).await? else { return Ok(None) };
        let record = ChainRecord::read(log, &loaded.state)?;
        let now = (self.environment.now)();
        Ok(record.map(|ChainRecord { head: (sequence, value), .. }| {
            SignedHead::sign(&self.signing_key, log, loaded.epoch, (sequence, &value), now)
        }))
    }
}

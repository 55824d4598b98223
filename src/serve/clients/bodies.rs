//! Puts bodies into answers to existing clients, in the places of their placeholders.
//!
//! Their protocols have no previews. An answer is sent piece by piece, so that one body at a time is in memory, however
//! many an answer has.

use crate::encode::placeholders::Placeholder;
use crate::ingest::BlobMeta;
use crate::model::json::escape_line_ends;
use crate::model::{Audience, BlobId, RunId};
use crate::serve::App;
use crate::serve::http::response::no_store_json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;

/// The most bytes of bodies in what an agent is sent, or an action is compared with.
///
/// The newest get in. The others keep their previews, because the request is built in memory.
const SENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Reads the bodies to which the activities of some runs refer, for an audience.
///
/// A producer may name any body in a fact. So bodies of other runs are not read.
pub struct BodyReader {
    app: Arc<App>,
    audience: Audience,
    runs: Vec<RunId>,
}

/// A text that is being sent.
pub struct FilledText {
    text: Bytes,
    at: usize,
}

impl FilledText {
    /// Starts to send a text.
    #[must_use]
    pub fn of(text: impl Into<Bytes>) -> Self {
        Self { text: text.into(), at: 0 }
    }

    /// Whether all of it was returned.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.at == self.text.len()
    }

    /// Returns the next piece; `None` at the end. Cancel safe.
    pub async fn next(&mut self, bodies: &BodyReader) -> Option<Bytes> {
        if self.is_done() {
            return None;
        }
        let found = bodies.app.placeholders.find(&self.text, self.at);
        let (end, piece) = match found {
            Some(found) if found.place.start == self.at => (found.place.end, bodies.fill(&found, &self.text).await.into()),
            found => {
                let end = found.map_or(self.text.len(), |found| found.place.start);
                (end, self.text.slice(self.at..end))
            }
        };
        self.at = end;
        Some(piece)
    }
}

impl BodyReader {
    /// Reads for the readers of these runs.
    #[must_use]
    pub fn new(app: &Arc<App>, audience: Audience, runs: Vec<RunId>) -> Self {
        Self { app: app.clone(), audience, runs }
    }

    /// Adds a run.
    pub fn cover(&mut self, run: &RunId) {
        if !self.runs.contains(run) {
            self.runs.push(run.clone());
        }
    }

    /// The body, if it belongs to one of the runs and the audience may read it.
    async fn read(&self, id: &BlobId) -> Option<Bytes> {
        let blob = match self.app.logs.blob(id).await {
            Ok(blob) => blob?,
            Err(error) => {
                tracing::warn!(%id, %error, "a body cannot be read; its preview is sent");
                return None;
            }
        };
        let meta = BlobMeta::read(&blob).ok()?;
        let is_readable = self.audience.admits(meta.audience) && meta.run.is_some_and(|run| self.runs.contains(&run));
        is_readable.then_some(blob.body)
    }

    async fn fill(&self, found: &Placeholder, text: &[u8]) -> Vec<u8> {
        let body = self.read(&found.body).await;
        let filled = found.fill(text, body.as_deref());
        escape_line_ends(&filled).unwrap_or(filled)
    }

    /// A value with its bodies, the newest up to [`SENT_BYTES_MAX`].
    pub async fn fill_value<T: serde::Serialize + DeserializeOwned>(&self, value: T) -> T {
        let text = serde_json::to_vec(&value).expect("JSON values serialize");
        let mut found = Vec::new();
        while let Some(next) = self.app.placeholders.find(&text, found.last().map_or(0, |last: &Placeholder| last.place.end)) {
            found.push(next);
        }
        if found.is_empty() {
            return value;
        }
        let (mut filled, mut room) = (Vec::with_capacity(found.len()), SENT_BYTES_MAX);
        for found in found.iter().rev() {
            let body = self.read(&found.body).await.filter(|body| body.len() <= room);
            room -= body.as_ref().map_or(0, Bytes::len);
            filled.push(found.fill(&text, body.as_deref()));
        }
        let (mut whole, mut at) = (Vec::with_capacity(text.len()), 0);
        for (found, filled) in found.iter().zip(filled.into_iter().rev()) {
            whole.extend_from_slice(&text[at..found.place.start]);
            whole.extend(filled);
            at = found.place.end;
        }
        whole.extend_from_slice(&text[at..]);
        serde_json::from_slice(&whole).unwrap_or(value)
    }

    /// Answers with JSON that no cache may store.
    #[must_use]
    pub fn respond(self, answer: Value) -> Response {
        let text = serde_json::to_vec(&answer).expect("JSON values serialize");
        if !self.app.placeholders.is_in(&text) {
            return no_store_json(answer);
        }
        drop(answer);
        let pieces = futures_util::stream::unfold((self, FilledText::of(text)), async |(bodies, mut text)| {
            let piece = text.next(&bodies).await?;
            Some((Ok::<_, Infallible>(piece), (bodies, text)))
        });
        let headers = [(header::CACHE_CONTROL, "no-store"), (header::CONTENT_TYPE, "application/json")];
        (headers, Body::from_stream(pieces)).into_response()
    }
}

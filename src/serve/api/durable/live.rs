//! Live answers of durable streams: one that waits for an item, and one that goes on for a minute.

use super::array_of;
use super::offset::offset_of;
use super::reader::{DurableBatch, DurableReader};
use crate::encode::native::heartbeat;
use crate::model::Audience;
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, OpenAccess};
use crate::serve::api::stream::HEADERS;
use crate::serve::http::problem::Problem;
use crate::serve::stop_signal::StopWaiter;
use crate::serve::telemetry::meters::{Counted, Transport};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Maximum time that a long poll waits. Proxies commonly cut an idle answer off after 60 s.
pub const POLL_TIME_MAX: Duration = Duration::from_secs(20);
/// Time after which an answer of events ends, so that a cache in between can join its readers again.
pub const EVENTS_TIME_MAX: Duration = Duration::from_mins(1);

/// Waits until a read has an item, or the stream is closed, at most [`POLL_TIME_MAX`].
///
/// # Errors
/// 401 when the token ends, 429 at the token's connection limit, or the reader's problem.
pub async fn poll(
    app: &App,
    authorization: &Authorization,
    mut reader: DurableReader,
    mut batch: DurableBatch,
) -> Result<DurableBatch, Problem> {
    if !batch.items.is_empty() || batch.is_closed {
        return Ok(batch);
    }
    let mut access = authorization.clone().open_counted(app)?;
    let stopping = app.stopping.waiter();
    let until = Instant::now() + POLL_TIME_MAX;
    while batch.items.is_empty() && !batch.is_closed {
        tokio::select! {
            biased;
            // The client asks again, and reaches another server.
            _ = stopping.requested() => break,
            problem = access.ended() => return Err(problem),
            waited = reader.wait() => waited?,
            () = sleep_until(until) => break,
        }
        batch = reader.read().await?;
    }
    Ok(batch)
}

/// An answer of server-sent events.
pub struct LiveAnswer {
    reader: DurableReader,
    access: OpenAccess,
    /// `None`: the reader counts itself.
    counted: Option<Counted>,
    cursor: u64,
    heartbeat: Duration,
    until: Instant,
    drain: Duration,
    stopping: StopWaiter,
    /// Whether the last batch ended the answer.
    is_over: bool,
    /// Whether the last batch was not all.
    has_more: bool,
}

impl LiveAnswer {
    /// An answer that begins now, and lasts while `access` does.
    #[must_use]
    pub fn new(app: &Arc<App>, reader: DurableReader, access: OpenAccess, audience: Audience, cursor: u64) -> Self {
        Self {
            counted: (!reader.is_formatted()).then(|| app.meters.reader(audience, Transport::Sse)),
            reader,
            access,
            cursor,
            heartbeat: app.keep_alive.heartbeat,
            until: Instant::now() + EVENTS_TIME_MAX,
            drain: app.drain_delay(),
            stopping: app.stopping.waiter(),
            is_over: false,
            has_more: false,
        }
    }

    /// The response, which begins with this batch.
    #[must_use]
    pub fn respond(mut self, first: &DurableBatch) -> Response {
        let first = self.events(first);
        let events = futures_util::stream::unfold((self, Some(first)), async |(mut answer, first)| {
            let text = match first {
                Some(first) => first,
                None => answer.next().await?,
            };
            Some((Ok::<_, Infallible>(text), (answer, None)))
        });
        (HEADERS, Body::from_stream(events)).into_response()
    }

    /// The next bytes; `None` at the end. The client then asks again from its offset, and learns why.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        if !self.has_more {
            tokio::select! {
                biased;
                () = self.stopping.elapsed(self.drain) => return None,
                _ = self.access.ended() => return None,
                () = sleep_until(self.until) => return None,
                waited = self.reader.wait() => waited.ok()?,
                () = tokio::time::sleep(self.heartbeat) => return Some(heartbeat().into_bytes()),
            }
        }
        let batch = self.reader.read().await.ok()?;
        self.access.check().ok()?;
        if self.access.end_reason().is_some() {
            return None;
        }
        Some(self.events(&batch))
    }

    /// The events of a batch: its items, if it has some, and where they end.
    fn events(&mut self, batch: &DurableBatch) -> Bytes {
        (self.is_over, self.has_more) = (batch.is_closed, !batch.is_up_to_date);
        if let Some(counted) = &self.counted {
            counted.delivered();
        }
        let mut text = Vec::new();
        if !batch.items.is_empty() {
            text.extend_from_slice(b"event: data\ndata: ");
            text.extend_from_slice(&array_of(&batch.items));
            text.extend_from_slice(b"\n\n");
        }
        let mut control = json!({ "streamNextOffset": offset_of(batch.next), "streamCursor": self.cursor.to_string() });
        if batch.is_up_to_date {
            control["upToDate"] = true.into();
        }
        if batch.is_closed {
            control["streamClosed"] = true.into();
        }
        text.extend_from_slice(format!("event: control\ndata: {control}\n\n").as_bytes());
        text.into()
    }
}

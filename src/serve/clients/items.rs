//! A run in another client's format as items with positions, for answers that a client asks for one by one.
//!
//! The events are those of the format's stream of every change. They depend only on the log, but for a snapshot that AG-UI
//! needs in between: it has the state of the time of the read. An item counts once all events of its envelope are there:
//! the position after it is that envelope's cursor.

use super::counted::{compacted, is_compacted};
use super::view::Format;
use super::{DialectStream, StreamOpening};
use crate::encode::dialect_cursor::DialectCursor;
use crate::encode::translator::IdPosition;
use crate::encode::{Begin, Until};
use crate::model::{Audience, Cursor, RunId};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::Query;
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;

/// An event, with the position after it if a client can resume there.
pub type Item = (Bytes, Option<Cursor>);

/// The reader of one run in a format.
pub struct ItemReader {
    stream: DialectStream,
    /// What was read and is no whole event.
    text: Vec<u8>,
    must_be_whole: bool,
}

impl ItemReader {
    /// Opens the run in the format that the query names, after a cursor. Items up to the cursor may come again.
    ///
    /// # Errors
    /// 400 for the query, 410 for a position after which the format cannot go on, or the store's failure.
    pub async fn open(
        app: &Arc<App>,
        authorization: Authorization,
        run: &RunId,
        (format, query): (Format, &Query),
        audience: Audience,
        after: Option<Cursor>,
    ) -> Result<Self, Problem> {
        if after.is_some_and(|cursor| cursor.knows_end) {
            return Err(went_on());
        }
        // A client that resumes in the AI SDK's stream gets its start again. So the stream is made from the run's start.
        let is_from_start = format == Format::AiSdk;
        let must_be_whole = is_from_start && is_compacted(app, run).await?;
        if must_be_whole && after.is_some() {
            return Err(compacted(run));
        }
        let dialect = format.dialect(app, run, query, (Begin::Replay, Until::End)).await?;
        let after = after.filter(|_| !is_from_start).map(DialectCursor::from);
        let ids = IdPosition::Last;
        let opening = StreamOpening { run: run.clone(), audience, after, replay: true, ids, earlier: Vec::new(), dialect };
        let stream = DialectStream::open_within(app, authorization.into_open_access(), opening).await?;
        Ok(Self { stream, text: Vec::new(), must_be_whole })
    }

    /// Whether a client cannot go on from a position: the run was compacted, and made from its start it differs.
    #[must_use]
    pub const fn must_be_whole(&self) -> bool {
        self.must_be_whole
    }

    /// Whether the run has ended, and all of it was read.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.stream.is_over
    }

    /// Returns the next items; `None` at the end, or once all that the log has now was read. Cancel safe.
    ///
    /// `waits`: it waits for more instead.
    ///
    /// # Errors
    /// The problem with which the stream ends.
    pub async fn next(&mut self, waits: bool) -> Result<Option<Vec<Item>>, Problem> {
        loop {
            let Some(text) = self.stream.next_text(waits).await? else { return Ok(None) };
            if let Some(problem) = self.stream.problem() {
                return Err(problem);
            }
            let items = self.take(&text);
            if !items.is_empty() {
                return Ok(Some(items));
            }
        }
    }

    /// Takes the events that are whole with this text.
    fn take(&mut self, text: &[u8]) -> Vec<Item> {
        self.text.extend_from_slice(text);
        let (mut items, mut at) = (Vec::new(), 0);
        while let Some(length) = memchr::memmem::find(&self.text[at..], b"\n\n") {
            items.extend(item_of(&self.text[at..at + length]));
            at += length + 2;
        }
        self.text.drain(..at);
        items
    }
}

/// The item of an event; `None` for what has no data, and for the text that ends a stream of the AI SDK.
fn item_of(event: &[u8]) -> Option<Item> {
    let field = |name: &[u8]| event.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
    let data = field(b"data: ").filter(|data| data.starts_with(b"{"))?;
    let id = field(b"id: ").and_then(|id| str::from_utf8(id).ok()?.parse::<DialectCursor>().ok());
    Some((Bytes::copy_from_slice(data), id.filter(|id| id.sent.count == 0).map(|id| id.cursor)))
}

/// 410 for the position behind the end of a run that went on.
fn went_on() -> Problem {
    let detail = "The query's offset is behind the end of the run, which went on. What a client of this format has is complete. Start again at -1.";
    Problem::new(StatusCode::GONE, "epoch_changed", detail).with("member", "offset")
}

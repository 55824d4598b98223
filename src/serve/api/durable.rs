//! The read side of Durable Streams: runs and sessions as streams of JSON items.
//!
//! The reader, its rights and its filter are those of the other streams. Only the form differs: a client names an
//! offset, and gets an array of items and the offset after them. With `live` it waits for more, in one answer
//! (`long-poll`) or in several (`sse`). The protocol's write side is not served: facts have their own addresses.
//!
//! **A closed stream is a run that has ended**, which is what `End` says on other streams. It opens again if the run
//! starts again, or if the server had settled it and its runtime comes back: a reader that asks again from its offset
//! gets what followed. A session is never closed.

mod live;
pub mod offset;
pub mod reader;

use crate::feed::{Frames, ReadRequest};
use crate::model::Cursor;
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::clients::view::Format;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id, quoted};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use live::LiveAnswer;
use offset::{DurableOffset, offset_of, stream_cursor};
use reader::{DurableBatch, DurableItems, DurableReader, DurableTarget, end_of};
use std::sync::Arc;

pub const NEXT_OFFSET: HeaderName = HeaderName::from_static("stream-next-offset");
pub const UP_TO_DATE: HeaderName = HeaderName::from_static("stream-up-to-date");
pub const CLOSED: HeaderName = HeaderName::from_static("stream-closed");
pub const STREAM_CURSOR: HeaderName = HeaderName::from_static("stream-cursor");

/// Only the client's own cache may keep it, and must ask before each use: rights end, and runs are erased.
const REVALIDATED: HeaderValue = HeaderValue::from_static("private, no-cache");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const TRUE: HeaderValue = HeaderValue::from_static("true");
/// Bytes of the content hash in an entity tag.
const HASH_BYTES: usize = 8;

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LiveMode {
    /// With what is there.
    CatchUp,
    /// With the next item, or after a time.
    LongPoll,
    /// After a minute.
    Sse,
}

impl LiveMode {
    fn read(query: &Query) -> Result<Self, Problem> {
        match query.get("live") {
            None => Ok(Self::CatchUp),
            Some("long-poll") => Ok(Self::LongPoll),
            Some("sse") => Ok(Self::Sse),
            Some(other) => {
                let detail = format!("The query's live is {}. It must be long-poll or sse, or absent.", quoted(other));
                Err(Problem::bad_request("bad_query", detail)
                    .with("member", "live")
                    .with("expected", ["long-poll", "sse"].as_slice()))
            }
        }
    }
}

/// `GET …/durable`: the items after an offset.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn get(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let mode = LiveMode::read(&query)?;
    let offset = read_offset(&query, mode)?;
    let target = target_of(&uri, Some(&query))?;
    let (request, items) = read_items(&query, &target, offset)?;
    let audience = request.filter.audience;
    let cursor = match mode {
        LiveMode::CatchUp => None,
        LiveMode::LongPoll | LiveMode::Sse => Some(cursor_now(&app, &query)?),
    };
    let mut reader = DurableReader::open(&app, &authorization, &target, request, items, offset).await?;
    let batch = reader.read().await?;
    match cursor {
        None => Ok(caught_up(&offset, &batch, &headers)),
        Some(cursor) if mode == LiveMode::Sse => {
            let access = authorization.open_counted(&app)?;
            Ok(LiveAnswer::new(&app, reader, access, audience, cursor).respond(&batch))
        }
        Some(cursor) => {
            let batch = live::poll(&app, &authorization, reader, batch).await?;
            Ok(polled(&offset, &batch, cursor))
        }
    }
}

/// `HEAD …/durable`: where the stream ends, and whether it is closed.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn head(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    query.audience()?;
    let (next, is_closed) = end_of(&app, &target_of(&uri, None)?).await?;
    let mut response = (json_headers(NO_STORE), Body::empty()).into_response();
    set_position(response.headers_mut(), next, false, is_closed);
    Ok(response)
}

/// The stream of a request. Where it ends does not depend on the query.
fn target_of(uri: &Uri, query: Option<&Query>) -> Result<DurableTarget, Problem> {
    if uri.path().starts_with("/v1/runs/") {
        return path_id("runId", uri).map(DurableTarget::Run);
    }
    Ok(DurableTarget::Session {
        session: path_id("sessionId", uri)?,
        children: query.is_some_and(|query| query.is_set("children")),
    })
}

fn read_offset(query: &Query, mode: LiveMode) -> Result<DurableOffset, Problem> {
    match query.get("offset") {
        Some(text) => DurableOffset::parse(text),
        None if mode == LiveMode::CatchUp => Ok(DurableOffset::Start),
        None => {
            let detail = "The query has live, but no offset. Add the Stream-Next-Offset of the last answer, -1 or now.";
            Err(Problem::bad_request("bad_cursor", detail).with("member", "offset"))
        }
    }
}

/// What the items are, and which frames their reader makes.
fn read_items<'q>(
    query: &'q Query,
    target: &DurableTarget,
    offset: DurableOffset,
) -> Result<(ReadRequest, DurableItems<'q>), Problem> {
    let mut request = query.read_request()?;
    let Some(format) = query.get("format") else {
        let items = if query.get("frames").is_some() { DurableItems::Frames } else { DurableItems::Envelopes };
        if matches!(items, DurableItems::Envelopes) {
            request.frames = Frames::Events;
        }
        return Ok((request, items));
    };
    if matches!(target, DurableTarget::Session { .. }) {
        let detail = format!("The format {} is only available for one run. Omit it, or ask for one run.", quoted(format));
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "not_served", detail).with("member", "format"));
    }
    if offset == DurableOffset::Now {
        let detail = "A stream with a format cannot start at offset=now, because its client cannot continue without the earlier events. Start at -1, or omit format.";
        return Err(Problem::bad_request("bad_cursor", detail).with("member", "offset"));
    }
    Ok((request, DurableItems::Format(Format::read(format)?, query)))
}

fn cursor_now(app: &App, query: &Query) -> Result<u64, Problem> {
    stream_cursor((app.environment.now)().as_second(), query.get("cursor"), (app.environment.random)())
}

/// The answer to a read without `live`.
fn caught_up(offset: &DurableOffset, batch: &DurableBatch, request: &HeaderMap) -> Response {
    let body = array_of(&batch.items);
    let tag = entity_tag(offset, batch, &body);
    let has_it = tag.as_ref().is_some_and(|tag| matches_tag(request, tag));
    let mut response = match has_it {
        true => ([(header::CACHE_CONTROL, REVALIDATED)], StatusCode::NOT_MODIFIED).into_response(),
        false => (json_headers(if tag.is_some() { REVALIDATED } else { NO_STORE }), body).into_response(),
    };
    response.headers_mut().extend(tag.map(|tag| (header::ETAG, tag)));
    set_position(response.headers_mut(), batch.next, batch.is_up_to_date, batch.is_closed);
    response
}

/// The answer to a read that waited for an item.
fn polled(offset: &DurableOffset, batch: &DurableBatch, cursor: u64) -> Response {
    let mut response = match batch.items.is_empty() {
        true => {
            let mut response = ([(header::CACHE_CONTROL, NO_STORE)], StatusCode::NO_CONTENT).into_response();
            set_position(response.headers_mut(), batch.next, batch.is_up_to_date, batch.is_closed);
            response
        }
        false => caught_up(offset, batch, &HeaderMap::new()),
    };
    response.headers_mut().insert(STREAM_CURSOR, HeaderValue::from(cursor));
    response
}

fn json_headers(cache: HeaderValue) -> [(HeaderName, HeaderValue); 3] {
    [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, cache),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]
}

fn set_position(headers: &mut HeaderMap, next: Cursor, is_up_to_date: bool, is_closed: bool) {
    let next = HeaderValue::from_str(&offset_of(next)).expect("an offset has only digits, letters and _");
    headers.insert(NEXT_OFFSET, next);
    headers.extend(is_up_to_date.then_some((UP_TO_DATE, TRUE)));
    headers.extend(is_closed.then_some((CLOSED, TRUE)));
}

/// The items as a JSON array.
fn array_of(items: &[Bytes]) -> Bytes {
    let mut text = BytesMut::with_capacity(items.iter().map(|item| item.len() + 1).sum::<usize>() + 1);
    text.put_u8(b'[');
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            text.put_u8(b',');
        }
        text.put_slice(item);
    }
    text.put_u8(b']');
    text.freeze()
}

/// The tag of an answer: its range, its content, and `c` if the stream is closed. `None` for what names no range.
///
/// The range alone does not name the content: a compaction deletes envelopes, and a session loses erased runs.
fn entity_tag(offset: &DurableOffset, batch: &DurableBatch, body: &[u8]) -> Option<HeaderValue> {
    let from = match offset {
        DurableOffset::Now => return None,
        DurableOffset::Start => "-1".to_owned(),
        DurableOffset::After(from) => offset_of(*from),
    };
    let hash = data_encoding::HEXLOWER.encode(&blake3::hash(body).as_bytes()[..HASH_BYTES]);
    let closed = if batch.is_closed { ":c" } else { "" };
    let tag = format!("\"{from}:{}:{hash}{closed}\"", offset_of(batch.next));
    Some(HeaderValue::from_str(&tag).expect("a tag has only digits, letters and a few signs"))
}

/// Whether a request has the answer with this tag.
fn matches_tag(request: &HeaderMap, tag: &HeaderValue) -> bool {
    let named = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = named.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|known| known == "*" || known.trim_start_matches("W/").as_bytes() == tag.as_bytes())
}

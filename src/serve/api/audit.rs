//! `GET /v1/audit`: who decided, erased, settled, shared and configured.

use crate::feed::Feed;
use crate::log::row::Row;
use crate::log::{Limit, LogId, StoreError};
use crate::model::{Audience, Epoch, Sequence};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, forbidden};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, quoted};
use crate::serve::http::response::no_store_json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Uri, header};
use serde_json::{Value, json};
use std::sync::Arc;

/// What one read of the store fetches.
const READ_LIMIT: Limit = Limit { rows: 1000, bytes: 1024 * 1024 };

/// The epoch and the end of the audit; `None` before its first entry.
async fn end(app: &App, authorization: &Authorization) -> Result<Option<(Epoch, Sequence)>, Problem> {
    if !authorization.is_unrestricted() {
        let detail = "The token does not cover all sessions. Webhooks and the audit concern all of them.".into();
        return Err(forbidden("sessions:*", detail));
    }
    let tail = app.logs.log(&LogId::of_server()).await?.tail();
    Ok(tail.epoch.map(|epoch| (epoch, tail.last)))
}

/// A page of entries, newest first.
pub async fn list(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let limit = query.page_size()?;
    let before = query.get("cursor").map(|text| text.parse().map_err(|_| bad_cursor(text))).transpose()?;
    let Some((epoch, last)) = end(&app, &authorization).await? else {
        return Ok(no_store_json(json!({ "entries": [], "nextCursor": null })));
    };
    let until = before.map_or(last.0, |before: u64| before.saturating_sub(1).min(last.0));
    let from = until.saturating_sub(limit as u64);
    let (mut entries, mut after) = (Vec::new(), Sequence(from));
    while after.0 < until {
        let rows = app.feed.rows(&LogId::of_server(), epoch, after, READ_LIMIT).await?;
        let Some(read) = rows.last().map(Row::sequence) else { break };
        entries.extend(rows.iter().filter(|row| row.sequence().0 <= until).filter_map(entry));
        after = read;
    }
    entries.reverse();
    let next = (from > 0).then(|| (from + 1).to_string());
    Ok(no_store_json(json!({ "entries": entries, "nextCursor": next })))
}

/// All entries, one per line, oldest first.
pub async fn export(State(app): State<Arc<App>>, authorization: Authorization) -> Result<Response, Problem> {
    let end = end(&app, &authorization).await?;
    let feed = app.feed.clone();
    let pages = futures_util::stream::try_unfold((feed, Sequence::NONE), move |(feed, after)| page(feed, end, after));
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(pages)).into_response())
}

type Page = Option<(Bytes, (Arc<Feed>, Sequence))>;

async fn page(feed: Arc<Feed>, end: Option<(Epoch, Sequence)>, after: Sequence) -> Result<Page, StoreError> {
    let Some((epoch, last)) = end.filter(|(_, last)| after < *last) else { return Ok(None) };
    let rows = feed.rows(&LogId::of_server(), epoch, after, READ_LIMIT).await?;
    let Some(read) = rows.last().map(Row::sequence) else { return Ok(None) };
    let lines = rows.iter().filter(|row| row.sequence() <= last).filter_map(entry).map(|entry| format!("{entry}\n"));
    Ok(Some((lines.collect::<String>().into(), (feed, read))))
}

/// An entry: its number, its time, and what it says.
fn entry(row: &Row) -> Option<Value> {
    let mut envelope: Value = serde_json::from_slice(row.view(Audience::Internal)?).ok()?;
    let mut entry = json!({ "number": row.sequence(), "at": envelope["receivedAt"].take() });
    let Value::Object(members) = envelope["payload"].take() else { return None };
    entry.as_object_mut()?.extend(members);
    Some(entry)
}

fn bad_cursor(text: &str) -> Problem {
    let detail = format!("The query's cursor is {}. It must be a nextCursor of this list.", quoted(text));
    Problem::bad_request("bad_cursor", detail).with("member", "cursor")
}

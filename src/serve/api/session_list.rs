//! The list of sessions: which ones a client may list, and their entries.
//!
//! Pages and list streams ask here, so both have the same sessions for a token, an audience and a filter.

use crate::log::commit::{Preview, Summary};
use crate::log::sessions::{PendingBelow, PreviewSources, SessionOverview, Sessions};
use crate::log::{LogKind, StoreError};
use crate::model::{Audience, OwnerId, SessionId, SessionOwner};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Enumerated};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of};
use crate::serve::http::response::{echo, no_store_json};
use crate::source::ledger::Status;
use axum::extract::State;
use axum::response::Response;
use http::Uri;
use serde_json::{Value, json};
use std::sync::Arc;

/// Sessions that a list examines in one step.
const SCAN_STEP: usize = 1024;
/// Maximum sessions that one filtered list examines in the index.
const FILTER_SCANNED_MAX: usize = 64 * SCAN_STEP;
/// Maximum sessions that one search examines: it reads their texts from the store.
const SEARCH_SCANNED_MAX: usize = 4 * SCAN_STEP;

/// The filter of a session list.
struct SessionFilter {
    /// The accepted statuses; all if empty.
    statuses: Vec<Status>,
    /// Only sessions with an unanswered action, their own or of a descendant.
    needs_action: bool,
    /// The search text, in lower case.
    text: Option<String>,
}

impl SessionFilter {
    fn from_query(query: &Query) -> Result<Self, Problem> {
        let status = |name: Box<str>| {
            serde_json::from_value(Value::from(&*name)).map_err(|_| {
                let detail = format!("The status is {name:?}. It must be a session status, or several separated by commas.");
                Problem::bad_request("bad_query", detail).with("member", "status")
            })
        };
        Ok(Self {
            statuses: query.list("status")?.into_iter().map(status).collect::<Result<_, _>>()?,
            needs_action: query.is_set("needsAction"),
            text: query.get("q").map(|text| text.trim().to_lowercase()).filter(|text| !text.is_empty()),
        })
    }

    /// Returns whether a session matches by its index entry.
    fn takes(&self, session: &ListedSession) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&session.line.status))
            && (!self.needs_action || session.line.unanswered + session.below.unanswered > 0)
    }

    /// Returns whether a session matches by its texts.
    fn finds(&self, session: &SessionId, shown: &Preview) -> bool {
        let Some(text) = &self.text else { return true };
        let preview = shown.message.as_ref().map(|(_, preview)| &**preview);
        [Some(session.as_str()), shown.title.as_deref(), preview].into_iter().flatten().any(|of| of.to_lowercase().contains(text))
    }

    /// Sessions to examine in one step of a page of this size.
    fn step(&self, limit: usize) -> usize {
        let is_all = self.statuses.is_empty() && !self.needs_action && self.text.is_none();
        if is_all { limit + 1 } else { SCAN_STEP }
    }

    /// Maximum sessions that one answer examines.
    ///
    /// The answer then has a cursor, however few sessions it found.
    const fn scanned_max(&self) -> usize {
        if self.text.is_some() { SEARCH_SCANNED_MAX } else { FILTER_SCANNED_MAX }
    }
}

/// A candidate of a session list.
struct ListedSession {
    place: u64,
    session: SessionId,
    line: SessionOverview,
    below: Below,
}

/// The pending actions of a session's descendants.
#[derive(Clone, Copy)]
pub(super) struct Below {
    pending: u64,
    /// Those of them without a decision under way.
    unanswered: u64,
}

impl Below {
    pub(super) fn of(below: &PendingBelow, session: &SessionId, audience: Audience) -> Self {
        Self { pending: below.of(session, audience), unanswered: below.unanswered_of(session, audience) }
    }
}

/// The pending actions of each session's descendants that the client may see.
pub(super) async fn pending_below(app: &App, authorization: &Authorization) -> Arc<PendingBelow> {
    let (logs, authorization) = (app.logs.clone(), authorization.clone());
    // With thousands of pending sessions this takes milliseconds.
    app.logs
        .work(move |_| {
            let index = logs.sessions();
            if authorization.is_unrestricted() {
                return index.pending_below();
            }
            let mut readable = match Candidates::of(index, &authorization, None) {
                Candidates::All => index.with_pending(),
                Candidates::Some { placed, owners } => {
                    let owned = owners.iter().flat_map(|owner| index.list_of(owner, None, usize::MAX));
                    placed.into_iter().chain(owned).map(|(_, session)| session).collect()
                }
            };
            readable.retain(|session| authorization.has_session(session));
            Arc::new(index.pending_below_among(readable))
        })
        .await
}

/// Where to look for the sessions that a client may list.
enum Candidates {
    /// Among all.
    All,
    Some {
        /// Newest first, with their places in the order of creation.
        placed: Vec<(u64, SessionId)>,
        /// Further ones are those of these owners.
        owners: Vec<OwnerId>,
    },
}

impl Candidates {
    /// `owner`: the client asks for those of this owner only.
    fn of(index: &Sessions, authorization: &Authorization, owner: Option<&OwnerId>) -> Self {
        if let Some(owner) = owner {
            return Self::Some { placed: Vec::new(), owners: vec![owner.clone()] };
        }
        let Some(Enumerated { owners, sessions, .. }) = authorization.enumerated() else { return Self::All };
        let placed = sessions.into_iter().filter_map(|session| Some((index.created_order(&session)?, session)));
        let mut placed: Vec<_> = placed.collect();
        placed.sort_unstable_by(|a, b| b.cmp(a));
        placed.dedup();
        Self::Some { placed, owners }
    }

    /// Up to `limit` of them that were created before `before`, newest first.
    fn page(&self, index: &Sessions, before: Option<u64>, limit: usize) -> Vec<(u64, SessionId)> {
        let Self::Some { placed, owners } = self else { return index.list(before, limit) };
        let named = placed.iter().filter(|(place, _)| before.is_none_or(|before| *place < before)).take(limit).cloned();
        let mut page: Vec<_> = named.chain(owners.iter().flat_map(|owner| index.list_of(owner, before, limit))).collect();
        page.sort_unstable_by(|a, b| b.cmp(a));
        page.dedup();
        page.truncate(limit);
        page
    }
}

/// `GET /v1/sessions`: sessions, newest first.
pub async fn sessions(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let limit = query.page_size()?;
    let (list, at) = (SessionList::from_query(&query, authorization)?, query.number("cursor")?);
    let (page, next) = list.page(&app, at, limit).await?;
    let lines: Vec<Value> = page.into_iter().map(|(_, entry)| entry).collect();
    let next = next.map(|next| next.to_string());
    Ok(no_store_json(echo(&query, json!({ "sessions": lines, "nextCursor": next }))))
}

/// The sessions that a client asks for and may list.
pub(super) struct SessionList {
    audience: Audience,
    owner: Option<OwnerId>,
    filter: SessionFilter,
    authorization: Authorization,
}

impl SessionList {
    pub(super) fn from_query(query: &Query, authorization: Authorization) -> Result<Self, Problem> {
        let owner = query.get("owner").map(|owner| id_of("owner", owner)).transpose()?;
        Ok(Self { audience: query.audience()?, owner, filter: SessionFilter::from_query(query)?, authorization })
    }

    /// Whether the client may know of a session, and asks for those of its owner.
    pub(super) fn covers(&self, app: &App, session: &SessionId) -> bool {
        let is_owner = |owner: &OwnerId| app.logs.sessions().with_owner(session, |of| of == SessionOwner::Of(owner));
        self.authorization.has_session(session) && self.owner.as_ref().is_none_or(is_owner)
    }

    /// A page of entries, newest first, and the place before which the next page begins.
    pub(super) async fn page(
        &self,
        app: &App,
        mut at: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<(SessionId, Value)>, Option<u64>), StoreError> {
        let below = pending_below(app, &self.authorization).await;
        let index = app.logs.sessions();
        let candidates = Candidates::of(index, &self.authorization, self.owner.as_ref());
        let (mut entries, mut scanned, step) = (Vec::new(), 0, self.filter.step(limit));
        loop {
            let mut page = candidates.page(index, at, step);
            let (count, last) = (page.len(), page.last().map(|(place, _)| *place));
            page.retain(|(_, session)| self.covers(app, session));
            // A search may reject any number of them.
            let needed = if self.filter.text.is_some() { usize::MAX } else { limit + 1 - entries.len() };
            for (place, session, entry) in self.matching(app, &below, page, needed).await? {
                if entries.len() == limit {
                    return Ok((entries, at));
                }
                at = Some(place);
                entries.push((session, entry));
            }
            if count < step {
                return Ok((entries, None));
            }
            (at, scanned) = (last, scanned + count);
            if scanned >= self.filter.scanned_max() {
                return Ok((entries, at));
            }
        }
    }

    /// The entries of those of these sessions that are in the list.
    pub(super) async fn entries(&self, app: &App, of: &[SessionId]) -> Result<Vec<(SessionId, Value)>, StoreError> {
        let below = pending_below(app, &self.authorization).await;
        let covered = of.iter().filter(|session| self.covers(app, session)).map(|session| (0, session.clone())).collect();
        let matching = self.matching(app, &below, covered, usize::MAX).await?;
        Ok(matching.into_iter().map(|(_, session, entry)| (session, entry)).collect())
    }

    /// Those of these sessions that match, at most `needed` by their index entries, with their places and entries.
    async fn matching(
        &self,
        app: &App,
        below: &PendingBelow,
        of: Vec<(u64, SessionId)>,
        needed: usize,
    ) -> Result<Vec<(u64, SessionId, Value)>, StoreError> {
        let listed = of.into_iter().filter_map(|(place, session)| {
            // It may have been erased since it was listed.
            let line = app.logs.sessions().overview(&session, self.audience)?;
            let below = Below::of(below, &session, self.audience);
            Some(ListedSession { place, session, line, below })
        });
        let listed: Vec<ListedSession> = listed.filter(|listed| self.filter.takes(listed)).take(needed).collect();
        let shown = load_previews(app, listed.iter().map(|listed| listed.line.preview_sources).collect()).await?;
        let found = listed.into_iter().zip(shown).filter(|(listed, shown)| self.filter.finds(&listed.session, shown));
        let entry = |(listed, shown): (ListedSession, Preview)| {
            let entry = session_json(&listed.session, &listed.line, &shown, listed.below);
            (listed.place, listed.session, entry)
        };
        Ok(found.map(entry).collect())
    }
}

/// Reads the previews of sessions from the logs that the index names.
pub(super) async fn load_previews(app: &App, of: Vec<PreviewSources>) -> Result<Vec<Preview>, StoreError> {
    app.logs
        .work(move |store| {
            let read = |kind: LogKind, created: u64| {
                let found = store.list(kind, Some(created + 1), 1)?.pop();
                // The log may have been erased just now.
                let summary = found.filter(|found| found.created == created).as_ref().and_then(Summary::from_listed);
                Ok(summary.map(|summary| summary.preview).unwrap_or_default())
            };
            let one = |logs: PreviewSources| {
                let mut known: Vec<((LogKind, u64), Preview)> = Vec::new();
                for (kind, created) in logs.into_iter().flatten() {
                    if known.iter().all(|(place, _)| *place != (kind, created)) {
                        known.push(((kind, created), read(kind, created)?));
                    }
                }
                let of = |at: usize| known.iter().find(|(place, _)| Some(*place) == logs[at]).map(|(_, shown)| shown);
                Ok(Preview {
                    title: of(0).and_then(|shown| shown.title.clone()),
                    message: of(1).and_then(|shown| shown.message.clone()),
                    unread: of(2).and_then(|shown| shown.unread),
                    pinned: of(3).and_then(|shown| shown.pinned),
                    stale: of(4).and_then(|shown| shown.stale),
                })
            };
            of.into_iter().map(one).collect()
        })
        .await
}

/// A session as JSON, for lists and for its shell.
pub(super) fn session_json(session: &SessionId, line: &SessionOverview, shown: &Preview, below: Below) -> Value {
    let counts = json!({
        "runs": line.runs,
        "pendingActions": line.pending + below.pending,
        "pendingActionsBelow": below.pending,
        "unanswered": line.unanswered + below.unanswered,
    });
    let mut session_json = json!({
        "sessionId": session,
        "title": shown.title,
        "status": line.status,
        "preview": shown.message.as_ref().map(|(_, text)| text),
        "counts": counts,
        "unread": shown.unread,
        "pinned": shown.pinned,
        "stale": if line.is_stale { Some(true) } else { shown.stale },
        "lastActivity": line.last_activity.map(|time| format!("{time:.3}")),
        "parentSessionId": line.parent,
    });
    if let Value::Object(members) = &mut session_json {
        members.retain(|_, value| !value.is_null());
    }
    session_json
}

//! The list of sessions: which ones a client may list, and their entries.
//!
//! Pages and list streams ask here, so both have the same sessions for a token, an audience and a filter.

use super::session_entry::{Below, EntryReader, EntryTexts, entry_json, highlight, hold_for, load_texts};
use super::session_search::{FoundTexts, TextReader};
use crate::auth::rights::Verb;
use crate::control::DEFAULT_AGENT;
use crate::log::StoreError;
use crate::log::sessions::{ListPlace, PendingBelow, SessionOverview, SessionSort, Sessions};
use crate::model::{AgentId, Audience, OwnerId, SessionId, SessionOwner};
use crate::search::{self, QUERY_WORDS_MAX};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Enumerated};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of, quoted};
use crate::serve::http::response::{echo, no_store_json};
use crate::source::ledger::Status;
use axum::extract::State;
use axum::response::Response;
use futures_util::future::try_join_all;
use http::Uri;
use serde_json::{Value, json};
use std::sync::Arc;

/// Sessions that a list examines in one step.
const SCAN_STEP: usize = 1024;
/// Maximum sessions that one filtered list examines in the index.
const FILTER_SCANNED_MAX: usize = 64 * SCAN_STEP;
/// Maximum sessions that one search examines: it reads their texts from the store.
const SEARCH_SCANNED_MAX: usize = 4 * SCAN_STEP;

/// Sessions that a list places one by one, or a part of all sessions, whichever is more.
const NAMED_MAX: usize = 4 * SCAN_STEP;
const NAMED_PART: usize = 64;

/// The filter of a session list.
#[derive(Default)]
struct SessionFilter {
    /// The accepted statuses; all if empty.
    statuses: Vec<Status>,
    /// Only sessions with an unanswered action, their own or of a descendant.
    needs_action: bool,
    /// The search text, in lower case.
    text: Option<String>,
    /// Whether the text must be in the title.
    is_for_title: bool,
    /// The words that the texts of a session must have.
    words: Option<search::WordQuery>,
    /// Only sessions that are archived, or are not. `None`: both.
    archived: Option<bool>,
    /// Only sessions of which one of the newest runs is of this agent.
    agent: Option<AgentId>,
    /// Only sessions that a token of this `sub` began.
    created_by: Option<Box<str>>,
    /// Only sessions with news after this time.
    updated_after: Option<jiff::Timestamp>,
}

/// Whether one of the newest runs of a session is of an agent. Runs that name none are of the default agent.
fn is_of(line: &SessionOverview, agent: &AgentId) -> bool {
    line.agents.contains(agent) || line.agents.is_empty() && line.runs > 0 && agent.as_str() == DEFAULT_AGENT
}

/// 400 for a member of the query that has none of the expected values.
fn bad_value(member: &'static str, value: &str, expected: &str) -> Problem {
    let detail = format!("{member} is {}. It must be {expected}.", quoted(value));
    Problem::bad_request("bad_query", detail).with("member", member)
}

impl SessionFilter {
    fn from_query(query: &Query) -> Result<Self, Problem> {
        let status = |name: Box<str>| {
            serde_json::from_value(Value::from(&*name)).map_err(|_| {
                let detail = format!("The status is {name:?}. It must be a session status, or several separated by commas.");
                Problem::bad_request("bad_query", detail).with("member", "status")
            })
        };
        let q = query.get("q").map(str::trim).filter(|text| !text.is_empty());
        let parse_words = |text: &str| {
            search::WordQuery::parse(text).map_err(|count| {
                let detail = format!("q has {count} different words. The limit is {QUERY_WORDS_MAX}.");
                Problem::bad_request("bad_query", detail).with("member", "q").with("limit", QUERY_WORDS_MAX)
            })
        };
        let is_for_texts = query.get("in") == Some("text");
        let time = |text: &str| text.parse().map_err(|_| bad_value("updatedAfter", text, "a time as RFC 3339"));
        Ok(Self {
            statuses: query.list("status")?.into_iter().map(status).collect::<Result<_, _>>()?,
            needs_action: query.is_set("needsAction"),
            text: q.filter(|_| !is_for_texts).map(str::to_lowercase),
            words: q.filter(|_| is_for_texts).map(parse_words).transpose()?,
            is_for_title: match query.get("in") {
                None | Some("text") => false,
                Some("title") => true,
                Some(other) => return Err(bad_value("in", other, "title, text, or absent")),
            },
            archived: match query.get("archived") {
                None | Some("false" | "0") => Some(false),
                Some("true" | "1") => Some(true),
                Some("all") => None,
                Some(other) => return Err(bad_value("archived", other, "true, false or all")),
            },
            agent: query.get("agentId").map(|agent| id_of("agentId", agent)).transpose()?,
            created_by: query.get("createdBy").filter(|sub| !sub.is_empty()).map(Into::into),
            updated_after: query.get("updatedAfter").map(time).transpose()?,
        })
    }

    /// Returns whether a session matches by its index entry.
    fn takes(&self, session: &ListedSession, reader: &EntryReader) -> bool {
        let line = &session.line;
        (self.statuses.is_empty() || self.statuses.contains(&line.status))
            && (!self.needs_action || line.unanswered + session.below.unanswered > 0)
            && self.archived.is_none_or(|archived| line.archived == archived)
            && self.agent.as_ref().is_none_or(|agent| is_of(line, agent))
            && self.created_by.as_deref().is_none_or(|sub| reader.creator(line) == Some(sub))
            && self.updated_after.is_none_or(|after| line.last_activity > Some(after))
    }

    /// Returns whether a session matches by its texts.
    fn finds(&self, session: &SessionId, texts: &EntryTexts) -> bool {
        let Some(text) = &self.text else { return true };
        let title = texts.title.as_ref().map(|(title, _)| &**title);
        let others = [Some(session.as_str()), texts.preview.as_deref()].into_iter().filter(|_| !self.is_for_title);
        others.chain([title]).flatten().any(|of| of.to_lowercase().contains(text))
    }

    /// Whether it takes every session that is archived as it asks for.
    fn is_open(&self) -> bool {
        let Self { statuses, needs_action, text, is_for_title: _, words, archived: _, agent, created_by, updated_after } = self;
        statuses.is_empty()
            && !needs_action
            && text.is_none()
            && words.is_none()
            && agent.is_none()
            && created_by.is_none()
            && updated_after.is_none()
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
    place: ListPlace,
    session: SessionId,
    line: SessionOverview,
    below: Below,
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
            Arc::new(index.pending_below_for(|session| authorization.has_session(session)))
        })
        .await
}

/// Where to look for the sessions that a client may list.
enum Candidates {
    /// Among all.
    All,
    Some {
        /// Newest first.
        placed: Vec<(ListPlace, SessionId)>,
        /// Further ones are those of these owners, in the order of creation.
        owners: Vec<OwnerId>,
    },
}

impl Candidates {
    /// The sessions of a client. `owner`, `creator`: the client asks for those of this owner, or that this `sub` began.
    fn of(
        index: &Sessions,
        authorization: &Authorization,
        sort: SessionSort,
        owner: Option<&OwnerId>,
        creator: Option<&str>,
    ) -> Self {
        // Many are found sooner in the list of all.
        let named_max = NAMED_MAX.max(index.count() / NAMED_PART);
        let (owners, sessions) = match (creator, owner) {
            (Some(sub), _) if index.count_created_by(sub) > named_max => return Self::All,
            (Some(sub), _) => (Vec::new(), index.created_by(sub)),
            (None, Some(owner)) => (vec![owner.clone()], Vec::new()),
            (None, None) => match authorization.enumerated() {
                None => return Self::All,
                Some(Enumerated { owners, sessions, .. }) => (owners, sessions),
            },
        };
        let owned = || owners.iter().map(|owner| index.use_of(owner).sessions as usize).sum::<usize>();
        if sessions.len() > named_max || matches!(sort, SessionSort::Updated(_)) && sessions.len() + owned() > named_max {
            return Self::All;
        }
        match sort {
            SessionSort::Created => Self::Some { placed: index.placed(sessions, sort), owners },
            // The index has the sessions of an owner in the order of creation only.
            SessionSort::Updated(_) => {
                let owned = owners.iter().flat_map(|owner| index.list_of(owner, None, usize::MAX)).map(|(_, session)| session);
                Self::Some { placed: index.placed(sessions.into_iter().chain(owned), sort), owners: Vec::new() }
            }
        }
    }

    /// Up to `limit` of them before a place, newest first.
    fn page(
        &self,
        index: &Sessions,
        sort: SessionSort,
        archived: Option<bool>,
        before: Option<ListPlace>,
        limit: usize,
    ) -> Vec<(ListPlace, SessionId)> {
        let Self::Some { placed, owners } = self else { return index.list(sort, archived, before, limit) };
        let named = placed.iter().filter(|(place, _)| before.is_none_or(|before| *place < before)).take(limit).cloned();
        let owned = owners.iter().flat_map(|owner| index.list_of(owner, before.map(|before| before.created), limit));
        let owned = owned.map(|(created, session)| (ListPlace { at: 0, created }, session));
        let mut page: Vec<_> = named.chain(owned).collect();
        page.sort_unstable_by(|a, b| b.cmp(a));
        page.dedup();
        page.truncate(limit);
        page
    }
}

/// Reads a place from a cursor of a list in this order.
fn place_of(text: &str, sort: SessionSort) -> Option<ListPlace> {
    match (sort, text.split_once('-')) {
        (SessionSort::Created, None) => Some(ListPlace { at: 0, created: text.parse().ok()? }),
        (SessionSort::Updated(_), Some((at, created))) => {
            Some(ListPlace { at: at.parse().ok()?, created: created.parse().ok()? })
        }
        _ => None,
    }
}

fn place_text(place: ListPlace, sort: SessionSort) -> String {
    match sort {
        SessionSort::Created => place.created.to_string(),
        SessionSort::Updated(_) => format!("{}-{}", place.at, place.created),
    }
}

/// `GET /v1/sessions`: sessions, newest first.
pub async fn sessions(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let limit = query.page_size()?;
    let list = SessionList::from_query(&query, authorization)?;
    let (page, next) = list.page_at(&app, query.get("cursor"), limit).await?;
    let lines: Vec<Value> = page.into_iter().map(|(_, entry)| entry).collect();
    Ok(no_store_json(echo(&query, json!({ "sessions": lines, "nextCursor": next }))))
}

/// The entry of one session for a client that may read it. `None`: it does not exist.
pub(in crate::serve) async fn entry_of(
    app: &App,
    authorization: &Authorization,
    audience: Audience,
    session: &SessionId,
) -> Result<Option<Value>, StoreError> {
    let reader = EntryReader::new(audience, authorization);
    let may_see = |branch: &SessionId| authorization.has_session(branch);
    let Some(line) = app.logs.sessions().tree_overview(session, audience, may_see) else { return Ok(None) };
    let (texts, highlight) = match authorization.can(Verb::Read) {
        true => {
            let sources = vec![(session.clone(), line.version, line.preview_sources)];
            let texts = load_texts(app, &reader, sources).await?.pop().unwrap_or_default();
            (texts, highlight(app, session, &line, audience).await?)
        }
        // A token that may change a session and not read it learns no text of it.
        false => (EntryTexts::default(), None),
    };
    let below = Below::of(&*pending_below(app, authorization).await, session, audience);
    Ok(Some(entry_json(session, &line, &texts, below, &reader, highlight, hold_for(app, session, audience))))
}

/// The sessions that a client asks for and may list.
pub(in crate::serve) struct SessionList {
    reader: EntryReader,
    sort: SessionSort,
    owner: Option<OwnerId>,
    filter: SessionFilter,
    authorization: Authorization,
}

impl SessionList {
    pub(super) fn from_query(query: &Query, authorization: Authorization) -> Result<Self, Problem> {
        let owner = query.get("owner").map(|owner| id_of("owner", owner)).transpose()?;
        let reader = EntryReader::new(query.audience()?, &authorization);
        let sort = match query.get("sort") {
            None | Some("created") => SessionSort::Created,
            Some("updated") => SessionSort::Updated(reader.audience),
            Some(other) => return Err(bad_value("sort", other, "updated or created")),
        };
        Ok(Self { reader, sort, owner, filter: SessionFilter::from_query(query)?, authorization })
    }

    /// The list of an existing client: the sessions of an agent, with the newest activity first.
    pub(in crate::serve) fn of_agent(
        authorization: Authorization,
        audience: Audience,
        agent: Option<AgentId>,
        archived: Option<bool>,
    ) -> Self {
        let reader = EntryReader::new(audience, &authorization);
        let filter = SessionFilter { archived, agent, ..SessionFilter::default() };
        Self { reader, sort: SessionSort::Updated(audience), owner: None, filter, authorization }
    }

    /// The page that a client's cursor names, and the cursor of the next one.
    ///
    /// # Errors
    /// 400 for a cursor of another list, or the store's failure.
    pub(in crate::serve) async fn page_at(
        &self,
        app: &App,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(SessionId, Value)>, Option<String>), Problem> {
        let refused = |text| bad_value("cursor", text, "a nextCursor of this list, with the same sort");
        let place = |text| place_of(text, self.sort).ok_or_else(|| refused(text));
        let at = cursor.filter(|text| !text.is_empty()).map(place).transpose()?;
        let (page, next) = self.page(app, at, limit).await?;
        Ok((page, next.map(|next| place_text(next, self.sort))))
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
        mut at: Option<ListPlace>,
        limit: usize,
    ) -> Result<(Vec<(SessionId, Value)>, Option<ListPlace>), StoreError> {
        let below = pending_below(app, &self.authorization).await;
        let (index, archived, creator) = (app.logs.sessions(), self.filter.archived, self.filter.created_by.as_deref());
        let found = self.found(app).await?;
        let candidates = match found.as_ref().and_then(|found| found.sessions.as_ref()) {
            Some(sessions) => Candidates::Some { placed: index.placed(sessions.iter().cloned(), self.sort), owners: Vec::new() },
            None => Candidates::of(index, &self.authorization, self.sort, self.owner.as_ref(), creator),
        };
        let takes_all = self.filter.is_open() && self.owner.is_none() && self.authorization.is_unrestricted();
        let (mut entries, mut scanned, step) = (Vec::new(), 0, if takes_all { limit + 1 } else { SCAN_STEP });
        loop {
            let mut page = candidates.page(index, self.sort, archived, at, step);
            let (count, last) = (page.len(), page.last().map(|(place, _)| *place));
            page.retain(|(_, session)| self.covers(app, session));
            if let Some(found) = &found {
                index.retain_with_log(&mut page, |log| found.matches.has(log));
            }
            // A search may reject any number of them. One in texts rejects few, so it reads the texts of a page at a time.
            let needed = if self.filter.text.is_some() || found.is_some() { usize::MAX } else { limit + 1 - entries.len() };
            let at_once = if found.is_some() { limit + 1 } else { usize::MAX };
            while !page.is_empty() {
                let rest = page.split_off(page.len().min(at_once));
                for (place, session, entry) in self.matching(app, &below, page, needed, found.as_ref()).await? {
                    if entries.len() == limit {
                        return Ok((entries, at));
                    }
                    at = Some(place);
                    entries.push((session, entry));
                }
                page = rest;
            }
            if count < step || self.is_past(last) {
                return Ok((entries, None));
            }
            (at, scanned) = (last, scanned + count);
            if scanned >= self.filter.scanned_max() {
                return Ok((entries, at));
            }
        }
    }

    /// What the index of texts has for the words of the query. `None`: it asks for none.
    async fn found(&self, app: &App) -> Result<Option<FoundTexts>, StoreError> {
        match &self.filter.words {
            Some(words) => FoundTexts::find(app, words, self.reader.audience).await.map(Some),
            None => Ok(None),
        }
    }

    /// Who reads the texts of matches.
    fn reader_of_texts(&self) -> TextReader {
        TextReader { audience: self.reader.audience, may_see: self.authorization.session_filter() }
    }

    /// Whether it searches in texts.
    pub(super) const fn is_in_texts(&self) -> bool {
        self.filter.words.is_some()
    }

    /// Whether no session at or after this place has news after the time that the client asks for.
    fn is_past(&self, place: Option<ListPlace>) -> bool {
        let after = self.filter.updated_after.filter(|_| self.sort != SessionSort::Created);
        place.zip(after).is_some_and(|(place, after)| place.at <= after.as_millisecond())
    }

    /// The entries of those of these sessions that are in the list.
    pub(super) async fn entries(&self, app: &App, of: &[SessionId]) -> Result<Vec<(SessionId, Value)>, StoreError> {
        let below = pending_below(app, &self.authorization).await;
        let covered = of.iter().filter(|session| self.covers(app, session)).cloned();
        let matching = self.matching(app, &below, app.logs.sessions().placed(covered, self.sort), usize::MAX, None).await?;
        Ok(matching.into_iter().map(|(_, session, entry)| (session, entry)).collect())
    }

    /// Those of these sessions that match, at most `needed` by their index entries, with their places and entries.
    async fn matching(
        &self,
        app: &App,
        below: &PendingBelow,
        of: Vec<(ListPlace, SessionId)>,
        needed: usize,
        in_texts: Option<&FoundTexts>,
    ) -> Result<Vec<(ListPlace, SessionId, Value)>, StoreError> {
        let audience = self.reader.audience;
        let listed = of.into_iter().filter_map(|(place, session)| {
            // It may have been erased since it was listed.
            let may_see = |branch: &SessionId| self.authorization.has_session(branch);
            let line = app.logs.sessions().tree_overview(&session, audience, may_see)?;
            let below = Below::of(below, &session, audience);
            Some(ListedSession { place, session, line, below })
        });
        let listed: Vec<ListedSession> = listed.filter(|listed| self.filter.takes(listed, &self.reader)).take(needed).collect();
        let sources = |ListedSession { session, line, .. }: &ListedSession| (session.clone(), line.version, line.preview_sources);
        let texts = load_texts(app, &self.reader, listed.iter().map(sources).collect()).await?;
        let mut found: Vec<_> = listed.into_iter().zip(texts).collect();
        found.retain(|(listed, texts)| self.filter.finds(&listed.session, texts));
        let matches = match (in_texts, &self.filter.words) {
            (Some(in_texts), Some(words)) => {
                let of =
                    found.iter().map(|(listed, texts)| (listed.session.clone(), texts.title.as_ref().map(|it| it.0.clone())));
                let matches = in_texts.read(app, words, &self.reader_of_texts(), of.collect()).await?;
                let mut is_match = matches.iter().map(Option::is_some);
                found.retain(|_| is_match.next() == Some(true));
                matches.into_iter().flatten().collect()
            }
            _ => vec![None; found.len()],
        };
        let highlights = found.iter().zip(matches).map(async |((listed, _), of_match)| match of_match {
            Some(of_match) => Ok(Some(of_match)),
            None => highlight(app, &listed.session, &listed.line, audience).await,
        });
        let highlights = try_join_all(highlights).await?;
        let entry = |((listed, texts), highlight): ((ListedSession, EntryTexts), Option<Value>)| {
            let ListedSession { place, session, line, below } = listed;
            let hold = hold_for(app, &session, audience);
            let entry = entry_json(&session, &line, &texts, below, &self.reader, highlight, hold);
            (place, session, entry)
        };
        Ok(found.into_iter().zip(highlights).map(entry).collect())
    }
}

//! Streams of lists: the sessions and the pending actions that a client may list, pushed as they change.
//!
//! ```text
//!                 ┌────────────── Reset: the client is too far behind ◀──────────────┐
//!   a request ─▶ Start ─▶ Attention ─▶ Sessions ─▶ Hydrated ─▶ Live: list changes ───┘
//!                 └─ it resumes ─────────────────────────────▶
//! ```
//!
//! The pages of [`attention`](super::attention) and [`session_list`](super::session_list) decide which entries a client
//! gets. A reader is the number of the last change that it has, with a hash of each entry that it sent, so that an entry
//! is not sent twice and no client receives the end of an entry that it never had. It looks when its connection takes
//! more, and finds each changed entry once, however often that changed meanwhile.

use super::attention::AttentionFilter;
use super::session_list::SessionList;
use crate::encode::encoded::{EncodedFrames, FrameBuffer};
use crate::encode::lists::{self, ListFrame};
use crate::environment;
use crate::feed::merged::position_and_rows;
use crate::feed::{AnyReader, StartAt, merged_reader};
use crate::log::list_changes::ListChange;
use crate::log::pending_actions::{ActionPlace, OpenAction};
use crate::log::sessions::ListPlace;
use crate::log::{LogId, StoreError};
use crate::model::{ActionId, Cursor};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::api::stream::{Stream, start_param};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, start_at};
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt;
use http::{HeaderMap, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Entries of each list before `Hydrated`: the oldest actions and the newest sessions.
pub const LIST_ENTRIES_MAX: usize = 10_000;
/// Changes that one look takes, and actions after which it takes no further change. A page has as many entries.
const ENTRIES_AT_ONCE: usize = 128;
/// The time between two looks. Changes in between are sent once.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Entries of which a reader remembers that it sent them.
const SENT_ENTRIES_MAX: usize = 65_536;

/// The characters that separate the parts of an action's key, or its escapes.
const KEY_ESCAPED: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

const ATTENTION: &str = "attention";
const SESSIONS: &str = "sessions";

/// `GET /v1/lists/stream`: the entries of lists, then their changes.
pub async fn get(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let (audience, start) = (query.audience()?, start_at(start_param(&query, &headers))?);
    let reader = open(&app, authorization.clone(), &query, start)?;
    let stream = Stream::new(&app, reader, audience, authorization.open_counted(&app)?);
    Ok(Box::new(stream).respond())
}

/// Opens the reader of the lists that a query names.
///
/// # Errors
/// 400 for a query that names no list, or one that this version does not serve.
pub fn open(app: &Arc<App>, authorization: Authorization, query: &Query, start: StartAt) -> Result<AnyReader, Problem> {
    if query.get("runs").is_some() {
        let detail = "The query asks for the list runs, which this version does not serve. Omit runs.";
        return Err(Problem::bad_request("bad_query", detail).with("member", "runs"));
    }
    let attention = query.is_set(ATTENTION).then(|| AttentionFilter::from_query(query, authorization.clone())).transpose()?;
    let sessions = query.is_set(SESSIONS).then(|| SessionList::from_query(query, authorization)).transpose()?;
    if attention.is_none() && sessions.is_none() {
        let detail = "The query names no list. Ask for attention=true, for sessions=true, or for both.";
        return Err(Problem::bad_request("bad_query", detail).with("member", ATTENTION));
    }
    let sessions_max = query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LIST_ENTRIES_MAX);
    let reader = ListReader {
        wake: app.logs.list_changes().watch(),
        cursor: now(app),
        app: app.clone(),
        attention,
        sessions,
        sessions_max: sessions_max.clamp(1, LIST_ENTRIES_MAX),
        stage: Stage::Start(start),
        number: 0,
        sent: SentEntries::default(),
        next_look: None,
    };
    let frames = futures_util::stream::unfold(reader, async |mut reader| Some((reader.next().await, reader)));
    Ok(AnyReader::Lists(frames.boxed()))
}

/// The number from which a client goes on with this cursor, or why it begins anew.
///
/// # Errors
/// The reason of the `Reset`.
pub fn resume(app: &App, cursor: Cursor) -> Result<u64, &'static str> {
    let now = now(app);
    if cursor.epoch != now.epoch {
        return Err("epoch");
    }
    let number = app.logs.list_changes().resume(position_and_rows(cursor.after).0);
    number.filter(|_| cursor.after <= now.after).ok_or("expired")
}

fn now(app: &App) -> Cursor {
    Cursor::at(app.logs.store_epoch(), merged_reader::now(&app.logs))
}

/// What a reader does next.
enum Stage {
    Start(StartAt),
    /// Sends the actions after a place; it has sent this many.
    Attention(Option<ActionPlace>, usize),
    /// Sends the sessions before a place; it has sent this many.
    Sessions(Option<ListPlace>, usize),
    Hydrated,
    Live,
}

struct ListReader {
    app: Arc<App>,
    attention: Option<AttentionFilter>,
    sessions: Option<SessionList>,
    /// The sessions before `Hydrated`.
    sessions_max: usize,
    wake: watch::Receiver<()>,
    stage: Stage,
    /// The last change that the client has.
    number: u64,
    /// A client that resumes there misses nothing.
    cursor: Cursor,
    sent: SentEntries,
    next_look: Option<Instant>,
}

/// What has become of an entry.
struct Update {
    list: &'static str,
    key: String,
    /// `None`: it has left the list.
    entry: Option<Value>,
    /// Whether the client may know that the entry exists.
    may_know: bool,
}

impl Update {
    const fn put(list: &'static str, key: String, entry: Value) -> Self {
        Self { list, key, entry: Some(entry), may_know: true }
    }
}

impl ListReader {
    async fn next(&mut self) -> Result<EncodedFrames, StoreError> {
        loop {
            let frames = match &self.stage {
                Stage::Start(start) => self.start(*start),
                Stage::Attention(after, sent) => self.send_attention(after.clone(), *sent).await?,
                Stage::Sessions(before, sent) => self.send_sessions(*before, *sent).await?,
                Stage::Hydrated => {
                    self.stage = Stage::Live;
                    Some(lists::hydrated(self.cursor, self.sent.is_truncated))
                }
                Stage::Live => self.send_changes().await?,
            };
            if let Some(frames) = frames {
                return Ok(frames);
            }
        }
    }

    fn start(&mut self, start: StartAt) -> Option<EncodedFrames> {
        let resumed = match start {
            StartAt::After(cursor) => resume(&self.app, cursor).map(|number| Some((cursor, number))),
            StartAt::Start | StartAt::Now => Ok(None),
        };
        if let Ok(Some((cursor, number))) = resumed {
            (self.cursor, self.number, self.stage) = (cursor, number, Stage::Live);
            self.sent = SentEntries { is_partial: true, ..SentEntries::default() };
            return None;
        }
        // First: what was committed up to there is among the changes up to the number, and in the lists.
        self.cursor = now(&self.app);
        self.number = self.app.logs.list_changes().last();
        self.sent = SentEntries { is_partial: matches!(start, StartAt::Now), ..SentEntries::default() };
        self.stage = if matches!(start, StartAt::Now) { Stage::Hydrated } else { Stage::Attention(None, 0) };
        resumed.err().map(lists::reset)
    }

    async fn send_attention(&mut self, after: Option<ActionPlace>, sent: usize) -> Result<Option<EncodedFrames>, StoreError> {
        let Some(filter) = &self.attention else {
            self.stage = Stage::Sessions(None, 0);
            return Ok(None);
        };
        let (page, next) = filter.page(&self.app, after, ENTRIES_AT_ONCE.min(LIST_ENTRIES_MAX - sent)).await;
        let sent = sent + page.len();
        self.sent.is_truncated |= next.is_some() && sent >= LIST_ENTRIES_MAX;
        let items = filter.items(&self.app, page).await?;
        self.stage = match next.filter(|_| sent < LIST_ENTRIES_MAX) {
            Some(next) => Stage::Attention(Some(next), sent),
            None => Stage::Sessions(None, 0),
        };
        let puts = items.into_iter().map(|(asked, item)| Update::put(ATTENTION, action_key(&asked.log, &asked.action), item));
        Ok(self.frames(puts.collect(), None))
    }

    async fn send_sessions(&mut self, before: Option<ListPlace>, sent: usize) -> Result<Option<EncodedFrames>, StoreError> {
        let Some(list) = &self.sessions else {
            self.stage = Stage::Hydrated;
            return Ok(None);
        };
        let (page, next) = list.page(&self.app, before, ENTRIES_AT_ONCE.min(self.sessions_max - sent)).await?;
        let sent = sent + page.len();
        self.sent.is_truncated |= next.is_some() && sent >= self.sessions_max;
        self.stage = match next.filter(|_| sent < self.sessions_max) {
            Some(next) => Stage::Sessions(Some(next), sent),
            None => Stage::Hydrated,
        };
        let puts = page.into_iter().map(|(session, entry)| Update::put(SESSIONS, session.to_string(), entry));
        Ok(self.frames(puts.collect(), None))
    }

    async fn send_changes(&mut self) -> Result<Option<EncodedFrames>, StoreError> {
        if let Some(at) = self.next_look.take() {
            sleep_until(at).await;
        }
        self.wake.borrow_and_update();
        // First: what was committed up to there is among the changes.
        let now = now(&self.app);
        let Some(mut changes) = self.app.logs.list_changes().after(self.number, ENTRIES_AT_ONCE) else {
            self.stage = Stage::Start(StartAt::Start);
            return Ok(Some(lists::reset("expired")));
        };
        if changes.is_empty() {
            if self.wake.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            return Ok(None);
        }
        let (updates, taken) = self.updates(&changes).await?;
        let is_all = taken == changes.len() && taken < ENTRIES_AT_ONCE;
        self.number = changes.swap_remove(taken - 1).0;
        self.next_look = is_all.then(|| Instant::now() + LOOK_INTERVAL);
        Ok(self.frames(updates, Some(if is_all { now } else { self.cursor })))
    }

    /// What has become of the entries that changed, and how many changes that covers.
    async fn updates(&self, changes: &[(u64, ListChange)]) -> Result<(Vec<Update>, usize), StoreError> {
        let pending = self.app.logs.pending_actions();
        let (mut sessions, mut asked, mut closed, mut taken) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (_, change) in changes {
            match change {
                ListChange::Session(session) => sessions.push(session.clone()),
                ListChange::AskingLog(log) => asked.extend(pending.of_log(log)),
                ListChange::Closed(action) => closed.push(action.clone()),
            }
            taken += 1;
            if asked.len() >= ENTRIES_AT_ONCE {
                break;
            }
        }
        let mut updates = Vec::new();
        if let Some(filter) = &self.attention {
            closed.retain(|closed| !pending.of_log(&closed.log).iter().any(|asked| asked.action == closed.action));
            let (listed, hidden): (Vec<_>, Vec<_>) = asked.into_iter().partition(|asked| filter.takes(asked));
            let mut left: Vec<(Arc<OpenAction>, bool)> = hidden.into_iter().map(|asked| (asked, false)).collect();
            left.extend(closed.into_iter().map(|closed| (closed.clone(), filter.takes(&closed))));
            let items = filter.items(&self.app, listed.clone()).await?;
            let shown: BTreeSet<ActionPlace> = items.iter().map(|(asked, _)| asked.place()).collect();
            left.extend(listed.into_iter().filter(|asked| !shown.contains(&asked.place())).map(|asked| (asked, true)));
            let key = |asked: &OpenAction| action_key(&asked.log, &asked.action);
            updates.extend(items.into_iter().map(|(asked, item)| Update::put(ATTENTION, key(&asked), item)));
            let leave =
                |(asked, may_know): (Arc<OpenAction>, bool)| Update { list: ATTENTION, key: key(&asked), entry: None, may_know };
            updates.extend(left.into_iter().map(leave));
        }
        if let Some(list) = &self.sessions {
            let mut entries: HashMap<_, _> = list.entries(&self.app, &sessions).await?.into_iter().collect();
            updates.extend(sessions.into_iter().map(|session| Update {
                list: SESSIONS,
                key: session.to_string(),
                entry: entries.remove(&session),
                may_know: list.covers(&self.app, &session),
            }));
        }
        Ok((updates, taken))
    }

    /// The frames of updates, without those that the client has. The last one leads to `reached`; `None`: none has a cursor.
    fn frames(&mut self, mut updates: Vec<Update>, reached: Option<Cursor>) -> Option<EncodedFrames> {
        updates.retain(|update| self.sent.note(update));
        let (epoch, before) = (reached.unwrap_or(self.cursor).epoch, self.cursor.after);
        let (mut out, count) = (FrameBuffer::new(epoch), updates.len());
        for (at, Update { list, key, entry, .. }) in updates.iter().enumerate() {
            let cursor = reached.map(|reached| if at + 1 == count { reached } else { Cursor::at(epoch, before) });
            ListFrame { list, key, entry: entry.as_ref() }.append(&mut out, cursor);
        }
        self.cursor = reached.unwrap_or(self.cursor);
        (count > 0).then(|| out.finish())
    }
}

/// The entries that a client was sent, as hashes.
struct SentEntries {
    hasher: RandomState,
    by_key: HashMap<u64, u64>,
    /// Whether the client may have entries that are not among these.
    is_partial: bool,
    /// Whether a list had more entries at the start.
    is_truncated: bool,
}

impl Default for SentEntries {
    fn default() -> Self {
        Self { hasher: environment::hash_keys(), by_key: HashMap::new(), is_partial: false, is_truncated: false }
    }
}

impl SentEntries {
    /// Notes an update. Returns whether the client needs it.
    fn note(&mut self, update: &Update) -> bool {
        let key = self.hasher.hash_one((update.list, &update.key));
        let Some(entry) = &update.entry else {
            return self.by_key.remove(&key).is_some() || self.is_partial && update.may_know;
        };
        if self.by_key.len() >= SENT_ENTRIES_MAX && !self.by_key.contains_key(&key) {
            self.by_key.clear();
            self.is_partial = true;
        }
        let version = self.hasher.hash_one(entry.to_string());
        self.by_key.insert(key, version) != Some(version)
    }
}

/// The key of a pending action: its log and its id.
fn action_key(log: &LogId, action: &ActionId) -> String {
    let (kind, id) = match log {
        LogId::Run(id) => ("run", id.as_str()),
        LogId::Session(id) => ("session", id.as_str()),
    };
    let escaped = |text| utf8_percent_encode(text, KEY_ESCAPED);
    format!("{kind}/{}/{}", escaped(id), escaped(action.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_client_gets_an_entry_when_it_changes_and_the_end_of_one_that_it_has() {
        let mut sent = SentEntries::default();
        let update = |entry: Option<u64>, may_know| Update {
            list: SESSIONS,
            key: "s".into(),
            entry: entry.map(|n| json!({ "n": n })),
            may_know,
        };
        assert!(!sent.note(&update(None, true)), "it never had the entry");
        assert!(sent.note(&update(Some(1), true)));
        assert!(!sent.note(&update(Some(1), true)), "the entry has not changed");
        assert!(sent.note(&update(Some(2), true)));
        assert!(sent.note(&update(None, false)));
        let mut resumed = SentEntries { is_partial: true, ..SentEntries::default() };
        assert!(resumed.note(&update(None, true)) && !resumed.note(&update(None, false)), "it may know only what it may see");
    }

    #[test]
    fn different_actions_have_different_keys() {
        let key = |run: &str, action: &str| action_key(&LogId::Run(run.parse().unwrap()), &action.parse().unwrap());
        assert_eq!(key("r", "a"), "run/r/a");
        assert_ne!(key("a/b", "c"), key("a", "b/c"));
        assert_ne!(key("a%2Fb", "c"), key("a/b", "c"));
    }
}

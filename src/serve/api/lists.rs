//! Streams of lists: the sessions, the runs and the pending actions that a client may list, pushed as they change.
//!
//! ```text
//!                 ┌────────────── Reset: the client is too far behind ◀───────────────┐
//!   a request ─▶ Start ─▶ Attention ─▶ Sessions ─▶ Runs ─▶ Hydrated ─▶ Live: changes ─┘
//!                 └─ it resumes ──────────────────────────────────────▶
//! ```
//!
//! The pages of [`attention`](super::attention), [`session_list`](super::session_list) and [`run_list`](super::run_list)
//! decide which entries a client gets. A reader is the number of the last change that it has, with a hash of each entry
//! that it sent, so that an entry is not sent twice and no client receives the end of an entry that it never had. It looks
//! when its connection takes more, and finds each changed entry once, however often that changed meanwhile.
//!
//! A run that changed is judged alone. The total and the facets of a list of runs need all of them, so a reader counts
//! again at most once a second, and less often where counting takes long.

use super::attention::AttentionFilter;
use super::run_list::{RunList, RunPlace};
use super::session_list::SessionList;
use crate::encode::encoded::{EncodedFrames, FrameBuffer};
use crate::encode::lists::{self, ListFrame};
use crate::environment;
use crate::feed::merged::position_and_rows;
use crate::feed::{AnyReader, StartAt, merged_reader};
use crate::log::list_changes::{ChangedRun, ListChange};
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
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Entries of each list before `Hydrated`: the oldest actions, the newest sessions, and the first runs of their order.
pub const LIST_ENTRIES_MAX: usize = 10_000;
/// Changes that one look takes, and actions after which it takes no further change. A page has as many entries.
const ENTRIES_AT_ONCE: usize = 128;
/// The time between two looks. Changes in between are sent once.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The time between two counts of a list of runs, and how many times as long as the count it is at least.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
const COUNT_INTERVAL_FACTOR: u32 = 20;
/// Entries of which a reader remembers that it sent them.
const SENT_ENTRIES_MAX: usize = 65_536;

/// The characters that separate the parts of an action's key, or its escapes.
const KEY_ESCAPED: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

const ATTENTION: &str = "attention";
const SESSIONS: &str = "sessions";
const RUNS: &str = "runs";
/// The list of one entry: the total and the facets of the runs.
const RUN_TOTALS: &str = "runTotals";

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
    let attention = query.is_set(ATTENTION).then(|| AttentionFilter::from_query(query, authorization.clone())).transpose()?;
    let sessions = query.is_set(SESSIONS).then(|| SessionList::from_query(query, authorization.clone())).transpose()?;
    let runs = query.get(RUNS).is_some().then(|| RunList::from_query(app, query, [RUNS, "runsSort"], authorization));
    let runs = runs.transpose()?.map(Arc::new);
    if runs.as_ref().is_some_and(|runs| runs.is_in_texts()) {
        let detail = "runs has words. The live list does not search in texts. Ask GET /v1/runs, or use terms with names.";
        return Err(Problem::bad_request("bad_query", detail).with("member", RUNS));
    }
    if sessions.as_ref().is_some_and(SessionList::is_in_texts) {
        let detail = "in is text. The live list does not search in texts. Ask GET /v1/sessions, or omit in.";
        return Err(Problem::bad_request("bad_query", detail).with("member", "in"));
    }
    if attention.is_none() && sessions.is_none() && runs.is_none() {
        let detail =
            "The query names no list. Ask for attention=true, for sessions=true, for runs with a filter, or for several.";
        return Err(Problem::bad_request("bad_query", detail).with("member", ATTENTION));
    }
    let entries_max = query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LIST_ENTRIES_MAX);
    let reader = ListReader {
        wake: app.logs.list_changes().watch(),
        cursor: now(app),
        app: app.clone(),
        attention,
        sessions,
        runs,
        entries_max: entries_max.clamp(1, LIST_ENTRIES_MAX),
        next_count: None,
        count_from: Instant::now(),
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
    /// Sends the runs at these places; before it has any, it looks for them.
    Runs(Option<VecDeque<RunPlace>>),
    Hydrated,
    Live,
}

struct ListReader {
    app: Arc<App>,
    attention: Option<AttentionFilter>,
    sessions: Option<SessionList>,
    runs: Option<Arc<RunList>>,
    /// The sessions, and the runs, before `Hydrated`.
    entries_max: usize,
    /// When to count the runs again. `None`: nothing has changed since.
    next_count: Option<Instant>,
    /// The earliest time of the next count.
    count_from: Instant,
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
                Stage::Runs(_) => {
                    // Taken: the reader sets its next stage before it reads anything.
                    let Stage::Runs(places) = std::mem::replace(&mut self.stage, Stage::Hydrated) else { unreachable!() };
                    self.send_runs(places).await?
                }
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
        self.next_count = self.runs.is_some().then(Instant::now);
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
            self.stage = Stage::Runs(None);
            return Ok(None);
        };
        let (page, next) = list.page(&self.app, before, ENTRIES_AT_ONCE.min(self.entries_max - sent)).await?;
        let sent = sent + page.len();
        self.sent.is_truncated |= next.is_some() && sent >= self.entries_max;
        self.stage = match next.filter(|_| sent < self.entries_max) {
            Some(next) => Stage::Sessions(Some(next), sent),
            None => Stage::Runs(None),
        };
        let puts = page.into_iter().map(|(session, entry)| Update::put(SESSIONS, session.to_string(), entry));
        Ok(self.frames(puts.collect(), None))
    }

    async fn send_runs(&mut self, places: Option<VecDeque<RunPlace>>) -> Result<Option<EncodedFrames>, StoreError> {
        let Some(list) = self.runs.clone() else {
            self.stage = Stage::Hydrated;
            return Ok(None);
        };
        let Some(mut places) = places else {
            let (places, totals) = list.first(&self.app, self.entries_max).await;
            self.sent.is_truncated |= totals.total() > places.len();
            self.stage = Stage::Runs(Some(places.into()));
            self.next_count = None;
            return Ok(self.frames(vec![Update::put(RUN_TOTALS, RUNS.into(), totals.to_json())], None));
        };
        let page: Vec<u64> = places.drain(..places.len().min(ENTRIES_AT_ONCE)).map(RunPlace::created).collect();
        self.stage = if places.is_empty() { Stage::Hydrated } else { Stage::Runs(Some(places)) };
        let entries = list.entries(&self.app, page).await?;
        let puts = entries.into_iter().map(|(_, run, entry)| Update::put(RUNS, run.to_string(), entry));
        Ok(self.frames(puts.collect(), None))
    }

    /// Counts the runs again, if they have changed and the time has come.
    async fn send_totals(&mut self) -> Result<Option<EncodedFrames>, StoreError> {
        let Some(list) = self.runs.clone() else { return Ok(None) };
        let begun = Instant::now();
        if self.next_count.is_none_or(|at| at > begun) {
            return Ok(None);
        }
        let totals = list.totals(&self.app).await;
        self.count_from = Instant::now() + COUNT_INTERVAL.max(begun.elapsed() * COUNT_INTERVAL_FACTOR);
        self.next_count = None;
        Ok(self.frames(vec![Update::put(RUN_TOTALS, RUNS.into(), totals.to_json())], None))
    }

    async fn send_changes(&mut self) -> Result<Option<EncodedFrames>, StoreError> {
        if let Some(frames) = self.send_totals().await? {
            return Ok(Some(frames));
        }
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
            self.changed().await;
            return Ok(None);
        }
        let (updates, taken) = self.updates(&changes).await?;
        if changes[..taken].iter().any(|(_, change)| matches!(change, ListChange::Run(_))) && self.runs.is_some() {
            self.next_count.get_or_insert(self.count_from);
        }
        let is_all = taken == changes.len() && taken < ENTRIES_AT_ONCE;
        self.number = changes.swap_remove(taken - 1).0;
        self.next_look = is_all.then(|| Instant::now() + LOOK_INTERVAL);
        Ok(self.frames(updates, Some(if is_all { now } else { self.cursor })))
    }

    /// Waits for the next change, or until the runs are to be counted again.
    async fn changed(&mut self) {
        let next_count = self.next_count;
        let count_is_due = async {
            match next_count {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = self.wake.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = count_is_due => {}
        }
    }

    /// What has become of the entries that changed, and how many changes that covers.
    async fn updates(&self, changes: &[(u64, ListChange)]) -> Result<(Vec<Update>, usize), StoreError> {
        let pending = self.app.logs.pending_actions();
        let (mut sessions, mut runs, mut asked, mut closed, mut taken) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0);
        for (_, change) in changes {
            match change {
                ListChange::Session(session) => sessions.push(session.clone()),
                ListChange::AskingLog(log) => asked.extend(pending.of_log(log)),
                ListChange::Closed(action) => closed.push(action.clone()),
                ListChange::Run(run) => runs.push(run.clone()),
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
        if let Some(list) = &self.runs {
            updates.extend(self.run_updates(list, runs).await?);
        }
        Ok((updates, taken))
    }

    /// What has become of runs. One that was erased is known by what it was.
    async fn run_updates(&self, list: &Arc<RunList>, changed: Vec<Arc<ChangedRun>>) -> Result<Vec<Update>, StoreError> {
        let entries = list.entries(&self.app, changed.iter().map(|run| run.created).collect()).await?;
        let mut entries: HashMap<u64, Value> = entries.into_iter().map(|(created, _, entry)| (created, entry)).collect();
        let update = |run: Arc<ChangedRun>| Update {
            list: RUNS,
            key: run.run.to_string(),
            entry: entries.remove(&run.created),
            may_know: list.covers_changed(&run),
        };
        Ok(changed.into_iter().map(update).collect())
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

//! The list of runs: which ones a client may list, filtered, sorted and counted, and their entries.
//!
//! ```text
//!   filter ─▶ RunFilter ─┐                                   ┌─▶ total and facets
//!   token  ─▶ covers ────┼─▶ index of runs, row by row ──────┤
//!   words  ─▶ Search ────┘                                   └─▶ places in the order ─▶ a page ─▶ logs, titles, highlights
//! ```
//!
//! What the token does not cover is left out before anything is counted. The index has all that the filter and the order
//! need, so only the runs of a page are read from the store. Words are looked up in the index of texts; the text of a match
//! is read in the form that the audience has, before its run is shown.

use super::entry_cache::FINAL;
use super::hydrate::run_json;
use super::run_filter::{Judgement, RunFilter, agent_name, of_member};
use super::session_entry::{ERROR, QUESTION, highlight_of_log, made_title};
use super::session_search::{RunMatch, match_in_run};
use crate::log::commit::Summary;
use crate::log::list_changes::ChangedRun;
use crate::log::run_index::IndexedRun;
use crate::log::{LogId, LogKind, Store, StoreError, log_of_number};
use crate::model::{Audience, Epoch, RunId};
use crate::search::{Found, PartPlace};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{PAGE_ITEMS_MAX, Query, quoted};
use crate::serve::http::response::{echo, no_store_json};
use crate::source::ledger::Status;
use axum::extract::State;
use axum::response::Response;
use futures_util::future::try_join_all;
use http::Uri;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Maximum runs that one list without a filter examines. It then answers with what it found, and a cursor.
const SCANNED_MAX: usize = 4 * PAGE_ITEMS_MAX;
/// Names of one facet, those of the most runs.
pub const FACET_NAMES_MAX: usize = 256;
/// Runs of which one page reads the matching texts. The answer then has a cursor, however few it found.
const READ_RUNS_MAX: usize = 4096;

/// What runs are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SortKey {
    Started,
    Ended,
    Cost,
    Tokens,
    Duration,
}

impl SortKey {
    const ALL: [(&'static str, Self); 5] = [
        ("started", Self::Started),
        ("ended", Self::Ended),
        ("cost", Self::Cost),
        ("tokens", Self::Tokens),
        ("duration", Self::Duration),
    ];

    fn of(self, run: &IndexedRun<'_>, audience: Audience) -> Option<u64> {
        let millis = |at: i64| u64::try_from(at).unwrap_or(0);
        match self {
            Self::Started => run.started().map(millis),
            Self::Ended => run.ended().map(millis),
            Self::Cost => run.usage(audience)?.cost_nanos,
            Self::Tokens => run.usage(audience)?.tokens(),
            Self::Duration => run.duration(),
        }
    }
}

/// The order of a list. Runs that have no value come last, and newer runs before older ones of the same value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RunOrder {
    /// `None`: by creation, the newest first.
    key: Option<(&'static str, SortKey)>,
    is_descending: bool,
}

/// A place in an order; the smaller one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunPlace {
    has_no_value: bool,
    /// The value, or its complement in a descending order.
    value: u64,
    /// The complement of the place in the order of creation.
    created: u64,
}

impl RunPlace {
    pub(super) const fn created(self) -> u64 {
        u64::MAX - self.created
    }
}

impl RunOrder {
    fn parse(member: &'static str, text: Option<&str>) -> Result<Self, Problem> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Self::default()) };
        let (is_descending, name) = text.strip_prefix('-').map_or((false, text), |name| (true, name));
        let key = SortKey::ALL.into_iter().find(|(known, _)| *known == name);
        if key.is_none() {
            let names = SortKey::ALL.map(|(name, _)| name).join(", ");
            let detail = format!("{member} is {}. It must be one of {names}, with - before it for descending.", quoted(text));
            return Err(Problem::bad_request("bad_query", detail).with("member", member));
        }
        Ok(Self { key, is_descending })
    }

    fn place(self, run: &IndexedRun<'_>, audience: Audience) -> RunPlace {
        let value = self.key.map_or(Some(0), |(_, key)| key.of(run, audience));
        self.place_of(value, run.created)
    }

    fn place_of(self, value: Option<u64>, created: u64) -> RunPlace {
        let placed = |value| if self.is_descending { u64::MAX - value } else { value };
        RunPlace { has_no_value: value.is_none(), value: value.map_or(0, placed), created: u64::MAX - created }
    }

    /// The cursor of the page after a place.
    fn cursor(self, place: RunPlace) -> String {
        let Some((name, _)) = self.key else { return place.created().to_string() };
        let sign = if self.is_descending { "-" } else { "" };
        let value = if self.is_descending { u64::MAX - place.value } else { place.value };
        let value = if place.has_no_value { String::new() } else { value.to_string() };
        format!("{sign}{name}.{value}.{}", place.created())
    }

    fn place_at(self, cursor: &str) -> Option<RunPlace> {
        let Some((name, _)) = self.key else { return Some(self.place_of(Some(0), cursor.parse().ok()?)) };
        let sign = if self.is_descending { "-" } else { "" };
        let (value, created) = cursor.strip_prefix(sign)?.strip_prefix(name)?.strip_prefix('.')?.split_once('.')?;
        let value = if value.is_empty() { None } else { Some(value.parse().ok()?) };
        Some(self.place_of(value, created.parse().ok()?))
    }
}

/// How many runs have each status.
#[derive(Debug, Default)]
pub(super) struct StatusCounts([usize; Status::ALL.len()]);

impl StatusCounts {
    pub(super) fn count(&mut self, status: Status) {
        let at = Status::ALL.iter().position(|of| *of == status);
        self.0[at.unwrap_or_default()] += 1;
    }

    /// The counts by name, without those that are 0.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let counted = Status::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0);
        counted.map(|(status, count)| (status.as_str().to_owned(), count.into())).collect()
    }
}

/// How many runs a list has, and of which kinds.
#[derive(Debug, Default)]
pub(super) struct RunTotals {
    total: usize,
    status: StatusCounts,
    agents: HashMap<Box<str>, usize>,
    sources: HashMap<Box<str>, usize>,
    owners: HashMap<Box<str>, usize>,
}

impl RunTotals {
    fn count(&mut self, run: &IndexedRun<'_>, judged: Judgement, audience: Audience) {
        if !judged.others {
            return;
        }
        let Judgement { status, agent, source, owner, .. } = judged;
        self.total += usize::from(judged.is_met());
        if agent && source && owner {
            self.status.count(run.status(audience));
        }
        if status && source && owner {
            add(&mut self.agents, agent_name(run));
        }
        if let Some(name) = run.source().filter(|_| status && agent && owner) {
            add(&mut self.sources, name);
        }
        if let Some(name) = run.owner().filter(|_| status && agent && source) {
            add(&mut self.owners, name.as_str());
        }
    }

    pub(super) const fn total(&self) -> usize {
        self.total
    }

    pub(super) fn to_json(&self) -> Value {
        let [agents, sources, owners] = [&self.agents, &self.sources, &self.owners].map(largest);
        let facets = json!({ "status": self.status.to_json(), "agent": agents, "source": sources, "owner": owners });
        json!({ "total": self.total, "facets": facets })
    }
}

fn add(counts: &mut HashMap<Box<str>, usize>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(counts.insert(name.into(), 1)),
    }
}

/// The names of the most runs, the largest first.
fn largest(counts: &HashMap<Box<str>, usize>) -> Value {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_unstable_by(|(a, of_a), (b, of_b)| (of_b, a).cmp(&(of_a, b)));
    counts
        .into_iter()
        .take(FACET_NAMES_MAX)
        .map(|(name, count)| (name.to_string(), (*count).into()))
        .collect::<Map<_, _>>()
        .into()
}

/// A run of a page, as its log and the index have it.
struct ListedRun {
    created: u64,
    run: RunId,
    epoch: Epoch,
    summary: Summary,
    version: u64,
    title: Option<Box<str>>,
    /// The text that matched, if it is not the title.
    of_match: Option<Value>,
}

/// A page of the list.
struct Page {
    runs: Vec<ListedRun>,
    /// The place after which the next page begins.
    next: Option<RunPlace>,
}

/// Where a page of the list begins.
#[derive(Debug, Clone, Copy, Default)]
struct PageStart {
    /// The place before it. `None`: it is the first one.
    after: Option<RunPlace>,
    /// How many runs it leaves out from there on.
    offset: usize,
}

/// The runs that a client asks for and may list.
pub(super) struct RunList {
    audience: Audience,
    order: RunOrder,
    filter: RunFilter,
    authorization: Authorization,
}

/// `GET /v1/runs`: runs, in an order, of a filter.
pub async fn runs(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    if ["filter", "sort", "offset"].iter().all(|member| query.get(member).is_none()) {
        return newest_runs(&app, &authorization, &query).await;
    }
    let limit = query.page_size()?;
    let list = Arc::new(RunList::from_query(&app, &query, ["filter", "sort"], authorization)?);
    let after = query.get("cursor").filter(|text| !text.is_empty()).map(|text| list.place_at(text)).transpose()?;
    let start = PageStart { after, offset: list.offset(&query)? };
    let (runs, next, totals) = list.page(&app, start, limit).await?;
    let mut answer = totals.to_json();
    answer["runs"] = runs.into_iter().map(|(_, entry)| entry).collect();
    answer["nextCursor"] = next.map(|next| list.order.cursor(next)).into();
    Ok(no_store_json(echo(&query, answer)))
}

/// `GET /v1/runs` without a filter and a sort: runs, newest first.
async fn newest_runs(app: &App, authorization: &Authorization, query: &Query) -> Result<Response, Problem> {
    let (limit, audience) = (query.page_size()?, query.audience()?);
    // A client with limited rights finds its runs among all others.
    let page = if authorization.is_unrestricted() { limit + 1 } else { PAGE_ITEMS_MAX + 1 };
    let (mut runs, mut at, mut scanned) = (Vec::new(), query.number("cursor")?, 0);
    let next = 'pages: loop {
        let listed = app.logs.list(LogKind::Run, at, page).await?;
        for run in &listed {
            let LogId::Run(id) = &run.log else { unreachable!("the list was restricted to runs") };
            if let Some(summary) = Summary::from_listed(run).filter(|summary| authorization.has_run(id, summary)) {
                if runs.len() == limit {
                    break 'pages at;
                }
                runs.push(run_json(id.as_str(), run.epoch, &summary, audience));
            }
            at = Some(run.created);
        }
        scanned += listed.len();
        if listed.len() < page {
            break None;
        }
        if scanned >= SCANNED_MAX {
            break at;
        }
    };
    let next = next.map(|next| next.to_string());
    Ok(no_store_json(echo(query, json!({ "runs": runs, "nextCursor": next }))))
}

impl RunList {
    /// Reads the filter and the order, which are in these members of the query.
    ///
    /// # Errors
    /// 400, which names the member, and the term of the filter.
    pub(super) fn from_query(
        app: &App,
        query: &Query,
        [filter, sort]: [&'static str; 2],
        authorization: Authorization,
    ) -> Result<Self, Problem> {
        let now = (app.environment.now)();
        Ok(Self {
            audience: query.audience()?,
            order: RunOrder::parse(sort, query.get(sort))?,
            // A flag is no word: it asks for all runs.
            filter: RunFilter::parse(query.get(filter).filter(|_| !query.is_set(filter)).unwrap_or_default(), now)
                .map_err(|bad| of_member(bad, filter))?,
            authorization,
        })
    }

    fn place_at(&self, cursor: &str) -> Result<RunPlace, Problem> {
        self.order.place_at(cursor).ok_or_else(|| {
            let detail = format!("cursor is {}. It must be a nextCursor of this list, with the same sort.", quoted(cursor));
            Problem::bad_request("bad_query", detail).with("member", "cursor")
        })
    }

    /// How many runs a page leaves out.
    fn offset(&self, query: &Query) -> Result<usize, Problem> {
        let Some(offset) = query.number("offset")? else { return Ok(0) };
        // Which of the found runs still match is known only once their texts are read.
        if self.is_in_texts() && offset > 0 {
            let detail = format!(
                "offset is {offset}. A search in texts has none. Remove the words from the filter, or follow nextCursor."
            );
            return Err(Problem::bad_request("bad_query", detail).with("member", "offset"));
        }
        Ok(usize::try_from(offset).unwrap_or(usize::MAX))
    }

    /// Whether the client may know of a run.
    fn covers(&self, run: &IndexedRun<'_>) -> bool {
        self.authorization.covers_run(run.run(), run.session(), run.owner())
    }

    /// A page of entries, the place after which the next page begins, and the totals of the list.
    ///
    /// # Errors
    /// [`StoreError`] from the store and the index of texts.
    async fn page(
        self: &Arc<Self>,
        app: &Arc<App>,
        start: PageStart,
        limit: usize,
    ) -> Result<(Vec<(RunId, Value)>, Option<RunPlace>, RunTotals), StoreError> {
        let (list, of) = (self.clone(), app.clone());
        let (page, totals) = app.logs.work(move |store| list.read_page(&of, store, start, limit)).await?;
        Ok((self.entries_of(app, page.runs).await?, page.next, totals))
    }

    fn read_page(&self, app: &App, store: &dyn Store, start: PageStart, limit: usize) -> Result<(Page, RunTotals), StoreError> {
        let found = self.filter.words.as_ref().map(|words| app.search.find(words, self.audience)).transpose()?;
        // A run of which no text matches now leaves its place to the next one.
        let needed = if found.is_some() { usize::MAX } else { limit + 1 };
        let (mut places, totals) = self.select(app, found.as_ref(), start, needed);
        let (mut runs, mut read, mut last) = (Vec::new(), 0, None);
        let mut rest = places.drain(..);
        loop {
            let batch: Vec<RunPlace> = rest.by_ref().take(limit + 1 - runs.len()).collect();
            if batch.is_empty() {
                return Ok((Page { runs, next: None }, totals));
            }
            if read >= READ_RUNS_MAX {
                return Ok((Page { runs, next: last }, totals));
            }
            read += batch.len();
            let matches = found.as_ref().map(|found| found.parts_of(&batch.iter().map(|place| place.created()).collect()));
            for place in batch {
                if runs.len() == limit {
                    return Ok((Page { runs, next: last }, totals));
                }
                last = Some(place);
                let matches = matches.as_ref().map(|matches| matches.get(&place.created()).map_or(&[][..], Vec::as_slice));
                runs.extend(self.read_run(app, store, place.created(), matches)?);
            }
        }
    }

    /// The first places of a page, in order, and the totals of the whole list.
    fn select(&self, app: &App, found: Option<&Found>, start: PageStart, needed: usize) -> (Vec<RunPlace>, RunTotals) {
        let (mut places, mut totals) = (Vec::new(), RunTotals::default());
        app.logs.runs().visit(|run| {
            if found.is_none_or(|found| found.has(run.created)) && self.covers(&run) {
                let judged = self.filter.judge(&run, self.audience);
                totals.count(&run, judged, self.audience);
                let place = self.order.place(&run, self.audience);
                if judged.is_met() && start.after.is_none_or(|after| place > after) {
                    places.push(place);
                }
            }
            ControlFlow::Continue(())
        });
        let skipped = start.offset.min(places.len());
        if skipped > 0 {
            places.select_nth_unstable(skipped - 1);
            places.drain(..skipped);
        }
        if needed < places.len() {
            places.select_nth_unstable(needed);
            places.truncate(needed);
        }
        places.sort_unstable();
        (places, totals)
    }

    /// Whether it searches in texts.
    pub(super) const fn is_in_texts(&self) -> bool {
        self.filter.words.is_some()
    }

    /// Whether the client may know of a run that has changed or was erased.
    pub(super) fn covers_changed(&self, run: &ChangedRun) -> bool {
        self.authorization.covers_run(&run.run, run.session.as_ref(), run.owner.as_ref())
    }

    /// The first places of the list, which has no words, and its totals.
    pub(super) async fn first(self: &Arc<Self>, app: &Arc<App>, limit: usize) -> (Vec<RunPlace>, RunTotals) {
        let (list, of) = (self.clone(), app.clone());
        app.logs.work(move |_| list.select(&of, None, PageStart::default(), limit)).await
    }

    /// How many runs the list has now, and of which kinds.
    pub(super) async fn totals(self: &Arc<Self>, app: &Arc<App>) -> RunTotals {
        self.first(app, 0).await.1
    }

    /// The entries of those of these runs that are in the list, which has no words, with their places in the order of
    /// creation.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub(super) async fn entries(self: &Arc<Self>, app: &Arc<App>, of: Vec<u64>) -> Result<Vec<(u64, RunId, Value)>, StoreError> {
        let (list, reader) = (self.clone(), app.clone());
        let read = move |store: &dyn Store| {
            let is_listed = |created: &u64| {
                let takes = |run: IndexedRun<'_>| list.covers(&run) && list.filter.judge(&run, list.audience).is_met();
                reader.logs.runs().with(*created, takes).unwrap_or(false)
            };
            let listed = of.into_iter().filter(is_listed);
            let runs = listed.map(|created| list.read_run(&reader, store, created, None));
            runs.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()
        };
        let runs = app.logs.work(read).await?;
        let created: Vec<u64> = runs.iter().map(|run| run.created).collect();
        let entries = self.entries_of(app, runs).await?;
        Ok(created.into_iter().zip(entries).map(|(created, (run, entry))| (created, run, entry)).collect())
    }

    /// Reads a run of a page. `None`: it was erased, or none of its texts matches.
    fn read_run(
        &self,
        app: &App,
        store: &dyn Store,
        created: u64,
        matches: Option<&[PartPlace]>,
    ) -> Result<Option<ListedRun>, StoreError> {
        // First: a commit that comes meanwhile is of a later version.
        let Some(version) = app.logs.runs().with(created, |run| run.version()) else { return Ok(None) };
        let Some(listed) = log_of_number(store, LogKind::Run, created)? else { return Ok(None) };
        let LogId::Run(run) = &listed.log else { unreachable!("the list was restricted to runs") };
        let Some(summary) = Summary::from_listed(&listed).filter(|summary| self.authorization.has_run(run, summary)) else {
            return Ok(None);
        };
        let title = match summary.preview.title.clone() {
            None => self.title_of(app, store, created, version)?,
            title => title,
        };
        let mut of_match = None;
        if let (Some(words), Some(matches)) = (&self.filter.words, matches) {
            match match_in_run(store, words, &listed.log, matches, title.as_deref(), self.audience)? {
                Some(RunMatch::Text(highlight)) => of_match = Some(highlight),
                Some(RunMatch::WithoutText) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(ListedRun { created, run: run.clone(), epoch: listed.epoch, summary, version, title, of_match }))
    }

    /// The title that the server makes of a run: of its first message of a user.
    fn title_of(&self, app: &App, store: &dyn Store, created: u64, version: u64) -> Result<Option<Box<str>>, StoreError> {
        if let Some(title) = app.entries.run_titles.get(&created, self.audience, version) {
            return Ok(title);
        }
        let title = made_title(store, &[(LogKind::Run, created)], self.audience)?;
        // The first message stays the first.
        let version = if title.is_some() { FINAL } else { version };
        app.entries.run_titles.keep(created, self.audience, version, title.clone());
        Ok(title)
    }

    async fn entries_of(&self, app: &App, runs: Vec<ListedRun>) -> Result<Vec<(RunId, Value)>, StoreError> {
        let entry = async |listed: ListedRun| {
            let highlight = match listed.of_match {
                Some(of_match) => Some(of_match),
                None => self.highlight_of(app, &listed).await?,
            };
            let mut entry = run_json(listed.run.as_str(), listed.epoch, &listed.summary, self.audience);
            for (member, value) in [("title", listed.title.as_deref().map(Value::from)), ("highlight", highlight)] {
                if let Some(value) = value {
                    entry[member] = value;
                }
            }
            Ok((listed.run, entry))
        };
        try_join_all(runs.into_iter().map(entry)).await
    }

    /// Why a run needs a look: the question that it asks, or the error that it ended with.
    async fn highlight_of(&self, app: &App, listed: &ListedRun) -> Result<Option<Value>, StoreError> {
        let state = listed.summary.run_for(self.audience);
        let kind = match state.status {
            Status::Waiting if !state.pending.is_empty() => QUESTION,
            Status::Failed => ERROR,
            _ => return Ok(None),
        };
        let cache = &app.entries.run_highlights;
        let found = match cache.get(&listed.created, self.audience, listed.version) {
            Some(found) => found,
            None => {
                let found = highlight_of_log(app, &LogId::Run(listed.run.clone()), kind, self.audience).await?;
                cache.keep(listed.created, self.audience, listed.version, found.clone());
                found
            }
        };
        Ok(found.map(|(kind, text)| json!({ "kind": kind, "text": text })))
    }
}

//! The matches of a search in texts, for the lists of sessions and of runs.
//!
//! The index says which logs may match. The text of a match is read from its log in the form that the audience has, and
//! only a text with all words counts. So an entry never shows what a compaction has removed, or a title that was replaced.

use super::session_entry::HIGHLIGHT_CHARS_MAX;
use crate::feed::SessionPredicate;
use crate::log::commit::Summary;
use crate::log::{LogId, Store, StoreError, log_of_number};
use crate::model::{Audience, SessionId};
use crate::search::{Found, PartKind, PartPlace, Search, TextPart, WordQuery, excerpt};
use crate::serve::App;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Logs with a match of which the list looks up the sessions one by one. With more, it looks into each session's logs.
const RARE_LOGS_MAX: usize = 512;
/// Matches of one session that are read, the newest first.
const READ_MATCHES_MAX: usize = 16;

/// Who reads the texts of matches.
pub struct TextReader {
    pub audience: Audience,
    /// Decides about each branch of a session. `None`: the reader may see all.
    pub may_see: Option<SessionPredicate>,
}

/// What the index has for one query.
pub struct FoundTexts {
    pub matches: Arc<Found>,
    /// The sessions of the logs that match, if they are few.
    pub sessions: Option<BTreeSet<SessionId>>,
}

impl FoundTexts {
    /// Asks the index.
    ///
    /// # Errors
    /// [`StoreError`] from the store and the index.
    pub async fn find(app: &App, words: &WordQuery, audience: Audience) -> Result<Self, StoreError> {
        let (search, words, index) = (app.search.clone(), words.clone(), app.logs.clone());
        app.logs
            .work(move |store| {
                let found = search.find(&words, audience)?;
                let Some(logs) = found.logs(RARE_LOGS_MAX) else { return Ok(Self { matches: found.into(), sessions: None }) };
                let mut sessions = BTreeSet::new();
                for (number, kind) in logs {
                    let Some(listed) = log_of_number(store, kind, number)? else { continue };
                    match &listed.log {
                        LogId::Session(session) => _ = sessions.insert(session.clone()),
                        LogId::Run(_) => sessions.extend(Summary::from_listed(&listed).and_then(|summary| summary.session_id)),
                    }
                }
                // A list shows the branches of a tree as one entry.
                let sessions = sessions.iter().map(|session| index.sessions().root_of(session)).collect();
                Ok(Self { matches: found.into(), sessions: Some(sessions) })
            })
            .await
    }

    /// Reads the matches of sessions, each with its title.
    ///
    /// Of each: `None` if nothing matches now, else its highlight, unless the match is the title or cannot be read.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(
        &self,
        app: &App,
        words: &WordQuery,
        reader: &TextReader,
        of: Vec<(SessionId, Option<Box<str>>)>,
    ) -> Result<Vec<Option<Option<Value>>>, StoreError> {
        let (matches, words, audience) = (self.matches.clone(), words.clone(), reader.audience);
        let may_see = |branch: &SessionId| reader.may_see.as_ref().is_none_or(|may_see| may_see(branch));
        let tree_logs = |(session, _): &(SessionId, _)| app.logs.sessions().tree_logs(session, may_see);
        let sessions: Vec<_> = of.iter().map(tree_logs).collect();
        let index = app.logs.clone();
        app.logs
            .work(move |store| {
                let wanted: HashSet<u64> = sessions.iter().flatten().map(|(number, _)| *number).collect();
                let parts = matches.parts_of(&wanted);
                let one = |(logs, (session, title)): (&Vec<(u64, LogId)>, &(SessionId, Option<Box<str>>))| {
                    let has_title = title.as_deref().is_some_and(|title| words.places(title).is_some());
                    Ok(match first_match(store, &words, newest(logs, &parts), audience)? {
                        FirstMatch::Text(log, part, places) => {
                            let of = index.sessions().branch_with(session, log);
                            Some(Some(highlight(of.as_ref(), log, &part, &places)))
                        }
                        FirstMatch::Unread => Some(None),
                        FirstMatch::None => has_title.then_some(None),
                    })
                };
                sessions.iter().zip(&of).map(one).collect()
            })
            .await
    }
}

/// What a read of matches finds.
enum FirstMatch<'l> {
    None,
    /// The index has a match in an archived run that cannot be read. A list without it would say that nothing matches.
    Unread,
    /// A text that has the words: its log, and the places of the words in it.
    Text(&'l LogId, TextPart, Vec<(usize, usize)>),
}

/// The first of these matches of which the text has the words now. Titles are the caller's.
fn first_match<'l>(
    store: &dyn Store,
    words: &WordQuery,
    matches: Vec<(&'l LogId, &PartPlace)>,
    audience: Audience,
) -> Result<FirstMatch<'l>, StoreError> {
    let mut found = FirstMatch::None;
    for (log, place) in matches.into_iter().filter(|(_, place)| place.kind != PartKind::Title).take(READ_MATCHES_MAX) {
        let parts = match Search::text(store, log, place, audience) {
            Err(error @ StoreError::Archived { .. }) => {
                tracing::debug!(%error, "a match of a search has no text");
                found = FirstMatch::Unread;
                continue;
            }
            parts => parts?,
        };
        for part in parts {
            if let Some(places) = words.places(&part.text) {
                return Ok(FirstMatch::Text(log, part, places));
            }
        }
    }
    Ok(found)
}

/// What of a run has the words.
pub enum RunMatch {
    /// The title, or a text that cannot be read now.
    WithoutText,
    /// A text, with the highlight of it.
    Text(Value),
}

/// Reads the matches of one run, which has this title. `None` if nothing matches now.
///
/// # Errors
/// [`StoreError`] from the store.
pub fn match_in_run(
    store: &dyn Store,
    words: &WordQuery,
    run: &LogId,
    matches: &[PartPlace],
    title: Option<&str>,
    audience: Audience,
) -> Result<Option<RunMatch>, StoreError> {
    Ok(match first_match(store, words, matches.iter().map(|place| (run, place)).collect(), audience)? {
        FirstMatch::Text(log, part, places) => Some(RunMatch::Text(highlight(None, log, &part, &places))),
        FirstMatch::Unread => Some(RunMatch::WithoutText),
        FirstMatch::None => {
            let has_title = title.is_some_and(|title| words.places(title).is_some());
            has_title.then_some(RunMatch::WithoutText)
        }
    })
}

/// The matches in these logs, the newest first.
fn newest<'l>(logs: &'l [(u64, LogId)], parts: &'l HashMap<u64, Vec<PartPlace>>) -> Vec<(&'l LogId, &'l PartPlace)> {
    let mut placed: Vec<_> = logs
        .iter()
        .filter_map(|(number, log)| Some((log, parts.get(number)?)))
        .flat_map(|(log, parts)| parts.iter().map(move |part| (log, part)))
        .collect();
    placed.sort_by_key(|(_, place)| std::cmp::Reverse((place.log, place.last)));
    placed
}

/// What an entry shows of a match, and where a page finds it.
fn highlight(branch: Option<&SessionId>, log: &LogId, part: &TextPart, places: &[(usize, usize)]) -> Value {
    let mut highlight = json!({
        "kind": "match",
        "text": excerpt(&part.text, places, HIGHLIGHT_CHARS_MAX),
        "sequence": part.first,
    });
    if let LogId::Run(run) = log {
        highlight["runId"] = json!(run);
    }
    if let Some(branch) = branch {
        highlight["sessionId"] = json!(branch);
    }
    if let Some(message) = &part.message {
        highlight["messageId"] = json!(message);
    }
    highlight
}

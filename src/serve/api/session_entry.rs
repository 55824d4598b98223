//! The entry of a session in lists and in its shell: what one reader sees of it.

use crate::feed::merged::sequence_at;
use crate::log::archive::{ArchiveEntry, ListTexts};
use crate::log::commit::Summary;
use crate::log::row::Rows;
use crate::log::sessions::{PendingBelow, PreviewSources, SessionOverview};
use crate::log::{Limit, LogId, LogKind, Store, StoreError, log_of_number};
use crate::model::{Audience, Sequence, SessionId};
use crate::projection::{View, action};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::source::ledger::Status;
use memchr::memmem;
use serde_json::{Value, json};
use std::sync::Arc;

/// The longest title that the server makes of a message, and the longest highlight, in characters.
pub const MADE_TITLE_CHARS_MAX: usize = 80;
pub const HIGHLIGHT_CHARS_MAX: usize = 160;
/// The kind and the text of a highlight. `None`: the entry has none.
pub type FoundHighlight = Option<(&'static str, Box<str>)>;
/// The kinds of highlights that are not matches of a search.
pub const QUESTION: &str = "question";
pub const ERROR: &str = "error";
/// The oldest logs of a session, and the first rows of each, in which the server looks for its first message of a user.
const FIRST_LOGS: usize = 3;
const FIRST_ROWS: Limit = Limit { rows: 32, bytes: 64 * 1024 };

/// Who reads entries.
#[derive(Debug, Clone)]
pub struct EntryReader {
    pub audience: Audience,
    /// The `sub` of the token. `None`: anonymous.
    pub sub: Option<Box<str>>,
}

impl EntryReader {
    pub fn new(audience: Audience, authorization: &Authorization) -> Self {
        Self { audience, sub: authorization.subject() }
    }

    /// The `sub` that began a session, as far as this reader may know it: a user knows only its own.
    pub fn creator<'l>(&self, line: &'l SessionOverview) -> Option<&'l str> {
        let is_own = |sub: &&str| self.sub.as_deref() == Some(sub);
        line.created_by.as_deref().filter(|sub| self.audience != Audience::User || is_own(sub))
    }
}

/// The pending actions of a session's descendants.
#[derive(Clone, Copy)]
pub struct Below {
    pub pending: u64,
    /// Those of them without a decision under way.
    pub unanswered: u64,
}

impl Below {
    pub fn of(below: &PendingBelow, session: &SessionId, audience: Audience) -> Self {
        Self { pending: below.of(session, audience), unanswered: below.unanswered_of(session, audience) }
    }
}

/// Whose a title is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TitleFrom {
    User,
    Source,
    /// The server made it of the first message of a user.
    Message,
}

impl TitleFrom {
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Source => "source",
            Self::Message => "message",
        }
    }
}

/// What an entry has beside its line of the index.
#[derive(Debug, Clone, Default)]
pub struct EntryTexts {
    pub title: Option<(Box<str>, TitleFrom)>,
    pub preview: Option<Box<str>>,
    unread: Option<u64>,
    pinned: Option<bool>,
    stale: Option<bool>,
}

impl EntryTexts {
    pub fn bytes(&self) -> usize {
        self.title.as_ref().map_or(0, |(title, _)| title.len()) + self.preview.as_ref().map_or(0, |text| text.len())
    }
}

/// A session whose texts are to be read: its version, and the logs that supply them.
pub type TextSources = (SessionId, u64, PreviewSources);

/// Reads what the entries of these sessions have beside their lines.
pub async fn load_texts(app: &App, reader: &EntryReader, of: Vec<TextSources>) -> Result<Vec<EntryTexts>, StoreError> {
    if of.is_empty() {
        return Ok(Vec::new());
    }
    let (logs, marks, entries, reader) = (app.logs.clone(), app.marks.clone(), app.entries.clone(), reader.clone());
    app.logs
        .work(move |store| {
            let load = |session: &SessionId, sources| {
                let mut texts = texts_of(store, sources)?;
                if texts.title.is_none() {
                    let oldest = logs.sessions().oldest_logs(session, FIRST_LOGS);
                    texts.title = made_title(store, &oldest, reader.audience)?.map(|title| (title, TitleFrom::Message));
                }
                Ok::<_, StoreError>(Arc::new(texts))
            };
            let one = |(session, version, sources): TextSources| {
                let texts = match entries.texts.get(&session, reader.audience, version) {
                    Some(texts) => texts,
                    None => {
                        let texts = load(&session, sources)?;
                        entries.texts.keep(session.clone(), reader.audience, version, texts.clone());
                        texts
                    }
                };
                let mut texts = Arc::unwrap_or_clone(texts);
                let mark = reader.sub.as_deref().and_then(|sub| marks.of(sub, &session)).unwrap_or_default();
                texts.pinned = mark.pinned.or(texts.pinned);
                if let Some(read_to) = mark.read_to {
                    let newest = logs.sessions().news_logs(&session, reader.audience);
                    texts.unread = Some(u64::from(has_news(store, &newest, reader.audience, read_to)?));
                }
                Ok(texts)
            };
            of.into_iter().map(one).collect()
        })
        .await
}

/// When these sessions began, by the oldest log of each. `None`: it was erased.
pub async fn began_at(app: &App, of: Vec<SessionId>) -> Result<Vec<Option<jiff::Timestamp>>, StoreError> {
    let logs = app.logs.clone();
    app.logs
        .work(move |store| {
            let one = |session: &SessionId| -> Result<Option<jiff::Timestamp>, StoreError> {
                let Some((kind, created)) = logs.sessions().oldest_logs(session, 1).pop() else { return Ok(None) };
                let summary = log_of_number(store, kind, created)?.as_ref().and_then(Summary::from_listed);
                Ok(summary.and_then(|summary| summary.started_at?.parse().ok()))
            };
            of.iter().map(one).collect()
        })
        .await
}

/// The texts of a session, from the logs that the index names.
fn texts_of(store: &dyn Store, logs: PreviewSources) -> Result<EntryTexts, StoreError> {
    let mut known: Vec<((LogKind, u64), Summary)> = Vec::new();
    for (kind, created) in logs.into_iter().flatten() {
        if known.iter().all(|(place, _)| *place != (kind, created)) {
            let summary = log_of_number(store, kind, created)?.as_ref().and_then(Summary::from_listed);
            known.push(((kind, created), summary.unwrap_or_default()));
        }
    }
    let of = |at: usize| known.iter().find(|(place, _)| Some(*place) == logs[at]).map(|(_, summary)| summary);
    let title = of(0).and_then(|summary| {
        let of_user = summary.extension.title.clone().map(|title| (title, TitleFrom::User));
        of_user.or_else(|| summary.preview.title.clone().map(|title| (title, TitleFrom::Source)))
    });
    Ok(EntryTexts {
        title,
        preview: of(1).and_then(|summary| summary.preview.message.as_ref()).map(|(_, text)| text.clone()),
        unread: of(2).and_then(|summary| summary.preview.unread),
        pinned: of(3).and_then(|summary| summary.preview.pinned),
        stale: of(4).and_then(|summary| summary.preview.stale),
    })
}

/// Whether one of these logs has news for the audience after a position in the order of commits.
fn has_news(store: &dyn Store, logs: &[(LogKind, u64)], audience: Audience, read_to: Sequence) -> Result<bool, StoreError> {
    for (kind, created) in logs {
        let Some(listed) = log_of_number(store, *kind, *created)? else { continue };
        let Some(summary) = Summary::from_listed(&listed) else { continue };
        let (read, _) = sequence_at(store, &listed.log, listed.epoch, read_to)?;
        if summary.news().last[audience.index()] > read {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A title from the first message of a user that the audience sees.
pub(in crate::serve) fn made_title(
    store: &dyn Store,
    logs: &[(LogKind, u64)],
    audience: Audience,
) -> Result<Option<Box<str>>, StoreError> {
    for (kind, created) in logs {
        let Some(listed) = log_of_number(store, *kind, *created)? else { continue };
        if let Some(archived) = ArchiveEntry::of(store, &listed.log, listed.epoch)? {
            match &archived.texts[audience.index()].title {
                Some(title) => return Ok(Some(title.clone())),
                None => continue,
            }
        }
        let appends = store.read(&listed.log, listed.epoch, Sequence::NONE, FIRST_ROWS)?;
        let rows: Vec<_> = appends.into_iter().flat_map(|append| Rows(append.rows)).collect();
        let views = rows.iter().filter_map(|row| row.view(audience));
        if let Some(title) = first_user_text(views).map(|text| one_line(&text, MADE_TITLE_CHARS_MAX)).filter(|it| !it.is_empty())
        {
            return Ok(Some(title.into()));
        }
    }
    Ok(None)
}

/// The text of the first message of a user among envelopes.
fn first_user_text<'v>(views: impl Iterator<Item = &'v [u8]>) -> Option<String> {
    let of_user = memmem::Finder::new(br#""role":"user""#);
    let mut found: Option<(String, String)> = None;
    for view in views {
        let begins = of_user.find(view).is_some();
        if found.is_none() && !begins {
            continue;
        }
        let Ok(envelope) = serde_json::from_slice::<Value>(view) else { continue };
        let (payload, message) = (&envelope["payload"], envelope["messageId"].as_str().unwrap_or_default());
        let text = payload["text"].as_str();
        match (envelope["type"].as_str()?, &mut found) {
            ("messages.snapshot", None) => {
                if let Some(text) = snapshot_text(&payload["messages"]) {
                    return Some(text);
                }
            }
            ("text.final", None) if payload["role"] == "user" && text.is_some_and(|text| !text.trim().is_empty()) => {
                return text.map(str::to_owned);
            }
            ("text.final", Some((of, _))) if of == message => {
                return text.map(str::to_owned).or_else(|| found.map(|(_, streamed)| streamed));
            }
            ("text.delta", None) if payload["role"] == "user" => {
                found = text.map(|text| (message.to_owned(), text.to_owned()));
            }
            ("text.delta", Some((of, streamed))) if of == message => streamed.push_str(text.unwrap_or_default()),
            _ => {}
        }
    }
    found.map(|(_, streamed)| streamed)
}

/// The text of the first message of a user in a snapshot of messages.
fn snapshot_text(messages: &Value) -> Option<String> {
    let of_user = messages.as_array()?.iter().filter(|message| message["role"] == "user");
    let texts = of_user.filter_map(|message| {
        let parts = message["parts"].as_array()?.iter();
        Some(parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join(" "))
    });
    texts.into_iter().find(|text| !text.trim().is_empty())
}

/// A text in one line of at most so many characters.
fn one_line(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().nth(chars_max).is_some() {
            let kept: String = line.chars().take(chars_max - 1).collect();
            return kept.trim_end().to_owned() + "…";
        }
    }
    line
}

/// Why a session needs a look: the question that it asks, or the error that its newest run ended with.
pub async fn highlight(
    app: &App,
    session: &SessionId,
    line: &SessionOverview,
    audience: Audience,
) -> Result<Option<Value>, StoreError> {
    if !matches!(line.status, Status::Waiting | Status::Failed) {
        return Ok(None);
    }
    let found = match app.entries.highlights.get(session, audience, line.version) {
        Some(found) => found,
        None => {
            let found = find_highlight(app, session, line, audience).await?;
            app.entries.highlights.keep(session.clone(), audience, line.version, found.clone());
            found
        }
    };
    Ok(found.map(|(kind, text)| json!({ "kind": kind, "text": text })))
}

/// The kind and the text of a highlight.
async fn find_highlight(
    app: &App,
    session: &SessionId,
    line: &SessionOverview,
    audience: Audience,
) -> Result<FoundHighlight, StoreError> {
    let index = app.logs.sessions();
    // Of a tree, the question or the error of its head.
    let session = line.head.as_ref().unwrap_or(session);
    let (kind, log) = match line.status {
        Status::Waiting if line.pending > 0 => {
            let run = index.runs_with_pending(session, audience, 1).pop().map(|(_, run)| LogId::Run(run));
            (QUESTION, run.or_else(|| Some(LogId::Session(session.clone()))))
        }
        Status::Failed => {
            let newest = index.logs_of(session, 1).into_iter().flat_map(|(logs, _)| logs);
            (ERROR, newest.map(|(_, log)| log).find(|log| log.kind() == LogKind::Run))
        }
        _ => return Ok(None),
    };
    match log {
        Some(log) => highlight_of_log(app, &log, kind, audience).await,
        None => Ok(None),
    }
}

/// The question that a log asks, or the error that its run ended with, as `kind` says.
pub(in crate::serve) async fn highlight_of_log(
    app: &App,
    log: &LogId,
    kind: &'static str,
    audience: Audience,
) -> Result<FoundHighlight, StoreError> {
    if kind == ERROR {
        let log = log.clone();
        let archived = app.logs.work(move |store| archived_texts(store, &log, audience)).await?;
        if let Some(texts) = archived {
            return Ok(texts.error.map(|text| (ERROR, text)));
        }
    }
    let Some(view) = app.feed.activities(log, audience, None).await? else { return Ok(None) };
    let text = if kind == QUESTION { question_of(&view) } else { error_of(&view) };
    let line = text.map(|text| one_line(&text, HIGHLIGHT_CHARS_MAX)).filter(|line| !line.is_empty());
    Ok(line.map(|text| (kind, text.into())))
}

/// What lists show of an archived log. `None`: the log is not archived as it is now.
fn archived_texts(store: &dyn Store, log: &LogId, audience: Audience) -> Result<Option<ListTexts>, StoreError> {
    let Some(head) = store.head(log)? else { return Ok(None) };
    let archived = ArchiveEntry::of(store, log, head.epoch)?.filter(|entry| entry.through >= head.last);
    Ok(archived.map(|entry| entry.texts[audience.index()].clone()))
}

fn question_of(view: &View) -> Option<String> {
    let pending = view.activities().iter().find(|activity| action::is_pending(activity));
    pending.map(|activity| action::title(&activity.content))
}

fn error_of(view: &View) -> Option<String> {
    let run = view.activities().iter().rev().find(|activity| &*activity.kind == "run")?;
    let error = run.content.get("error")?;
    error.as_str().or_else(|| error["message"].as_str()).or_else(|| error["code"].as_str()).map(str::to_owned)
}

/// The legal hold that covers a session. Users do not see it.
pub fn hold_for(app: &App, session: &SessionId, audience: Audience) -> Option<Value> {
    let on = app.holds.covering(session).filter(|_| audience > Audience::User)?;
    Some(app.holds.get(&on)?.to_json(&on))
}

/// A session as JSON, for lists and for its shell.
pub fn entry_json(
    session: &SessionId,
    line: &SessionOverview,
    texts: &EntryTexts,
    below: Below,
    reader: &EntryReader,
    highlight: Option<Value>,
    hold: Option<Value>,
) -> Value {
    let counts = json!({
        "runs": line.runs,
        "pendingActions": line.pending + below.pending,
        "pendingActionsBelow": below.pending,
        "unanswered": line.unanswered + below.unanswered,
    });
    let mut entry = json!({
        "sessionId": session,
        "title": texts.title.as_ref().map(|(title, _)| title),
        "titleFrom": texts.title.as_ref().map(|(_, from)| from.as_str()),
        "status": line.status,
        "preview": texts.preview,
        "counts": counts,
        "agents": line.agents,
        "unread": texts.unread,
        "pinned": texts.pinned,
        "archived": line.archived.then_some(true),
        "stale": if line.is_stale { Some(true) } else { texts.stale },
        "highlight": highlight,
        "lastActivity": line.last_activity.map(|time| format!("{time:.3}")),
        "createdBy": reader.creator(line),
        "parentSessionId": line.parent,
        "parent": line.origin.as_ref().map(|origin| &origin.parent),
        "fork": line.origin.as_ref().map(|origin| origin.fork),
        "head": line.head,
        "hold": hold,
    });
    if let Value::Object(members) = &mut entry {
        members.retain(|_, value| !value.is_null());
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_within_its_limit() {
        assert_eq!(one_line("  Plan\n\tthe\u{7} trip ", 80), "Plan the trip");
        let long = one_line(&"äöü ".repeat(60), 10);
        assert_eq!((long.as_str(), long.chars().count()), ("äöü äöü ä…", 10));
        assert_eq!(one_line(" \n", 80), "");
    }

    #[test]
    fn the_first_message_of_a_user_is_found_in_every_form() {
        let of = |envelopes: &[Value]| {
            let texts: Vec<_> = envelopes.iter().map(Value::to_string).collect();
            first_user_text(texts.iter().map(String::as_bytes))
        };
        let text = |event_type: &str, message: &str, payload: Value| json!({ "type": event_type, "messageId": message, "payload": payload });
        let hello = text("text.final", "a", json!({ "role": "assistant", "text": "Hello" }));
        let whole = text("text.final", "u", json!({ "role": "user", "text": "Plan it" }));
        assert_eq!(of(&[hello.clone(), whole.clone()]).as_deref(), Some("Plan it"));
        let chunks =
            [text("text.delta", "u", json!({ "role": "user", "text": "Pl" })), text("text.delta", "u", json!({ "text": "an" }))];
        assert_eq!(of(&chunks).as_deref(), Some("Plan"));
        assert_eq!(of(&[&chunks[..], &[hello.clone(), whole]].concat()).as_deref(), Some("Plan it"));
        let messages = json!([{ "role": "system", "parts": [{ "text": "x" }] }, { "role": "user", "parts": [{ "text": "Go" }] }]);
        let snapshot = json!({ "type": "messages.snapshot", "payload": { "messages": messages } });
        assert_eq!(of(&[snapshot]).as_deref(), Some("Go"));
        assert_eq!(of(&[hello]), None);
    }
}

//! What people do to a session: they rename it, archive it, pin it, and note how far they have read.
//!
//! A title and the archive are for all who see the session, so they are facts of its own log. A mark is of one person, so
//! it is an entry of the server's own state.

use super::branches::take_head;
use super::controls::via;
use super::link_decision::bad_member;
use super::session_list::entry_of;
use super::sessions::no_such_session;
use crate::feed::merged::{FIRST_POSITION, order_of};
use crate::feed::merged_reader;
use crate::ingest::{ServerAppend, WriterView};
use crate::log::LogId;
use crate::log::commit::SESSION_TITLE_CHARS_MAX;
use crate::marks::{MarkChange, ReadTo};
use crate::model::decided_by::{Decider, UPDATED_BY, written_by};
use crate::model::{Cursor, Draft, EventType, Sequence, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, forbidden};
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, cursor, path_id, quoted};
use crate::serve::http::response::no_store_json;
use crate::source::kind_of;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// The newest logs of a session whose cursors `readTo` takes, beside those of the session.
const MARK_LOGS_MAX: usize = 64;

/// The title that a session is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TitleChange {
    Given(Box<str>),
    /// The source's title counts again.
    OfSource,
}

/// What a person changes for all who see the session.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionChange {
    title: Option<TitleChange>,
    archived: Option<bool>,
}

/// Checks that a body has some of these members and no others.
pub(super) fn check_members(body: &Map<String, Value>, members: &[&str]) -> Result<(), Problem> {
    let refused = |member: &str, detail: String| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", detail).with("member", member).with("expected", members)
    };
    let names = members.join(", ");
    match body.keys().find(|member| !members.contains(&member.as_str())) {
        Some(other) => Err(refused(other, format!("The body has {}, which is none of {names}. Remove it.", quoted(other)))),
        None if body.is_empty() => Err(refused(members[0], format!("The body changes nothing. Send one or more of {names}."))),
        None => Ok(()),
    }
}

fn flag_of(body: &Map<String, Value>, member: &'static str) -> Result<Option<bool>, Problem> {
    match body.get(member) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(bad_member(member, format!("{member} is {}. It must be true or false.", kind_of(other)))),
    }
}

/// The title in this member of a body, without white space around it.
fn title_of(body: &Map<String, Value>, member: &'static str) -> Result<Option<TitleChange>, Problem> {
    let expected =
        format!("1 to {SESSION_TITLE_CHARS_MAX} characters without control characters, or null for the title of the source");
    let refused =
        |why: String| bad_member(member, format!("{member} {why}. Send {expected}.")).with("expected", expected.clone());
    let text = match body.get(member) {
        None => return Ok(None),
        Some(Value::Null) => return Ok(Some(TitleChange::OfSource)),
        Some(Value::String(text)) => text.trim(),
        Some(other) => return Err(refused(format!("is {}", kind_of(other)))),
    };
    let count = text.chars().count();
    if count > SESSION_TITLE_CHARS_MAX {
        return Err(refused(format!("has {count} characters")).with("limit", SESSION_TITLE_CHARS_MAX));
    }
    match text.chars().find(|c| c.is_control()) {
        _ if text.is_empty() => Err(refused("is empty".into())),
        Some(control) => Err(refused(format!("has the control character U+{:04X}", u32::from(control)))),
        None => Ok(Some(TitleChange::Given(text.into()))),
    }
}

impl TitleChange {
    fn given(&self) -> Option<&str> {
        match self {
            Self::Given(title) => Some(title),
            Self::OfSource => None,
        }
    }
}

impl SessionChange {
    /// Reads a body. `title`: the member with the title.
    fn from_body(body: &Map<String, Value>, title: &'static str) -> Result<Self, Problem> {
        check_members(body, &[title, "archived"])?;
        Ok(Self { title: title_of(body, title)?, archived: flag_of(body, "archived")? })
    }

    /// The fact of what it changes. `None`: the session is already so.
    fn draft(&self, view: &WriterView<'_>, by: &Decider, now: jiff::Timestamp) -> Option<Draft> {
        let known = &view.summary.extension;
        let title = self.title.as_ref().map(TitleChange::given).filter(|title| *title != known.title.as_deref());
        let archived = self.archived.filter(|archived| *archived != known.archived);
        if title.is_none() && archived.is_none() {
            return None;
        }
        let mut draft = Draft::new(EventType::SessionUpdated);
        if let Some(title) = title {
            let from_source = view.summary.preview.title.as_deref();
            draft.payload.insert("title", title.or(from_source).into());
            draft.payload.insert("titleFrom", if title.is_some() { "user" } else { "source" }.into());
            if title.is_none() {
                // Of no use to readers beside the same title.
                draft.payload.insert("sourceTitle", Value::Null);
            }
        }
        if let Some(archived) = archived {
            draft.payload.insert("archived", archived.into());
        }
        draft.payload.insert(UPDATED_BY, written_by(by, now));
        Some(draft)
    }
}

/// `PATCH /v1/sessions/{session}`: renames or archives a session, for all who see it.
pub async fn patch(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    let audience = Query::from_uri(request.uri()).audience()?;
    let session: SessionId = path_id("sessionId", request.uri())?;
    let by = authorization.decider(via(request.headers()));
    let mut body = read_object(&app, request, BODY_BYTES_MAX).await?;
    let has_head = take_head(&app, &session, &mut body, &by).await?;
    if !has_head || !body.is_empty() {
        update(&app, &session, &body, "title", &by).await?;
    }
    let entry = entry_of(&app, &authorization, audience, &session).await?;
    entry.map(no_store_json).ok_or_else(|| no_such_session(&session))
}

/// Changes what a body says of a session, for all who see it. `title`: the member with the title.
///
/// # Errors
/// 422 for a body that changes nothing or has another member, 404 for an unknown session, or the store's failure.
pub(in crate::serve) async fn update(
    app: &App,
    session: &SessionId,
    body: &Map<String, Value>,
    title: &'static str,
    by: &Decider,
) -> Result<(), Problem> {
    let change = SessionChange::from_body(body, title)?;
    app.disk.check_space()?;
    let (logs, now) = (app.logs.clone(), (app.environment.now)());
    let decide = |view: &WriterView<'_>| {
        // Under the lock of the writer: a session that was erased meanwhile does not begin again.
        let exists = logs.sessions().created_order(session).is_some();
        let drafts = change.draft(view, by, now).filter(|_| exists).into_iter().collect();
        (exists, ServerAppend { drafts, ..ServerAppend::default() })
    };
    match app.ingest.append_as_server(&LogId::Session(session.clone()), decide).await? {
        true => Ok(()),
        false => Err(no_such_session(session)),
    }
}

/// `PUT /v1/sessions/{session}/marks`: how far the holder of the token has read a session, and whether it is pinned.
pub async fn put_marks(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    let session: SessionId = path_id("sessionId", request.uri())?;
    if authorization.link().is_some() {
        return Err(forbidden("token", "A share link is not a person, and keeps no marks. Use a token of your own.".into()));
    }
    let body = read_object(&app, request, BODY_BYTES_MAX).await?;
    check_members(&body, &["readTo", "pinned"])?;
    let pinned = flag_of(&body, "pinned")?;
    let read_to = match body.get("readTo") {
        None => None,
        Some(Value::Null) => Some(ReadTo::Nothing),
        Some(Value::String(text)) => Some(ReadTo::AtLeast(position_of(&app, &session, text).await?)),
        Some(other) => return Err(bad_member("readTo", format!("readTo is {}. It must be a cursor, or null.", kind_of(other)))),
    };
    if app.logs.sessions().created_order(&session).is_none() {
        return Err(no_such_session(&session));
    }
    let sub = authorization.subject().ok_or_else(|| {
        let detail = "This server has no authentication, so it does not know whose marks these are. The page keeps them itself.";
        Problem::new(StatusCode::CONFLICT, "marks_need_token", detail)
    })?;
    app.disk.check_space()?;
    let mark = app.marks.change(&sub, &session, MarkChange { read_to, pinned }).await?;
    let mark = mark.ok_or_else(|| no_such_session(&session))?;
    let read_to = mark.read_to.filter(|at| *at > Sequence::NONE).map(|at| Cursor::at(app.logs.store_epoch(), at).to_string());
    let mut answer = Map::from_iter([("sessionId".to_owned(), json!(session))]);
    answer.extend(read_to.map(|read_to| ("readTo".to_owned(), read_to.into())));
    answer.extend(mark.pinned.map(|pinned| ("pinned".to_owned(), pinned.into())));
    Ok(no_store_json(answer.into()))
}

/// The position in commit order of a cursor of the session, of a list, or of one of the session's newest logs.
async fn position_of(app: &App, session: &SessionId, text: &str) -> Result<Sequence, Problem> {
    let given: Cursor = cursor("readTo", text)?;
    let refused = |what: &str| {
        let detail = format!("readTo is {text}, {what}. Send a cursor of session {session}, of one of its runs, or of a list.");
        Problem::bad_request("bad_cursor", detail).with("member", "readTo")
    };
    let is_of_store = given.epoch == app.logs.store_epoch();
    let (logs, _) = app.logs.sessions().logs_of(session, MARK_LOGS_MAX).ok_or_else(|| no_such_session(session))?;
    for (_, log) in logs {
        let tail = app.logs.log(&log).await?.tail();
        // The store has the epoch of its first log, whose sequences end below all positions unless it is huge.
        if tail.epoch == Some(given.epoch) && (!is_of_store || given.after < FIRST_POSITION) {
            let position = app.logs.work(move |store| order_of(store, &log, given.epoch, given.after)).await?;
            return position.ok_or_else(|| refused("which is beyond the end"));
        }
    }
    match is_of_store {
        true if given.after <= merged_reader::now(&app.logs) => Ok(given.after),
        true => Err(refused("which is beyond the end")),
        false => Err(refused("which is of none of the session's newest logs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(body: &Value) -> Result<SessionChange, Problem> {
        SessionChange::from_body(body.as_object().unwrap(), "title")
    }

    #[test]
    fn a_title_is_one_line_within_its_limit_or_null() {
        let long = "ä".repeat(SESSION_TITLE_CHARS_MAX);
        assert_eq!(
            change(&json!({ "title": format!(" {long}\n") })).unwrap().title,
            Some(TitleChange::Given(long.clone().into()))
        );
        assert_eq!(
            change(&json!({ "title": null })).unwrap(),
            SessionChange { title: Some(TitleChange::OfSource), archived: None }
        );
        for refused in [json!(""), json!(" \t"), json!("a\nb"), json!("a\u{7f}"), json!(7), json!(["a"]), json!(long + "b")] {
            let problem = change(&json!({ "title": refused })).unwrap_err();
            assert_eq!((problem.status, problem.code), (StatusCode::UNPROCESSABLE_ENTITY, "bad_member"), "{refused}");
        }
    }

    #[test]
    fn a_change_has_known_members_and_at_least_one() {
        for refused in
            [json!({}), json!({ "archived": "yes" }), json!({ "archived": null }), json!({ "title": "a", "pinned": true })]
        {
            assert_eq!(change(&refused).unwrap_err().code, "bad_member", "{refused}");
        }
        assert_eq!(change(&json!({ "archived": false })).unwrap(), SessionChange { title: None, archived: Some(false) });
    }
}

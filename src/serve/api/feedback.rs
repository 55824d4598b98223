//! Feedback over HTTP: a person gives it about a run or a message, and reads what stands.

use super::controls::via;
use super::hydrate::no_such_run;
use super::link_decision::bad_member;
use super::session_updates::check_members;
use crate::feedback::{FeedbackError, Opinion, Person, Thumb, WORDS_CHARS_MAX};
use crate::model::RunId;
use crate::projection::feedback::FEEDBACK_MAX;
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, forbidden};
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use crate::serve::http::response::{echo, no_store_json};
use crate::source::kind_of;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The largest body of a request, in bytes: it fits the longest words, however they are escaped.
const FEEDBACK_BODY_BYTES_MAX: usize = 64 * 1024;

/// The text of a member, if the body has one.
fn text_of<'b>(body: &'b Map<String, Value>, member: &'static str) -> Result<Option<&'b str>, Problem> {
    match body.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(bad_member(member, format!("{member} is {}. Send a string, or omit it.", kind_of(other)))),
    }
}

fn opinion_of(body: &Map<String, Value>) -> Result<Opinion, Problem> {
    let thumb = match text_of(body, "thumb")? {
        None => None,
        Some("up") => Some(Thumb::Up),
        Some("down") => Some(Thumb::Down),
        Some(_) => {
            let problem = bad_member("thumb", "thumb is none of up, down and null.");
            return Err(problem.with("expected", json!(["up", "down", null])));
        }
    };
    let words = text_of(body, "text")?.map(str::trim).filter(|words| !words.is_empty());
    if let Some(count) = words.map(|words| words.chars().count()).filter(|count| *count > WORDS_CHARS_MAX) {
        let problem = bad_member("text", format!("text has {count} characters. It may have at most {WORDS_CHARS_MAX}."));
        return Err(problem.with("limit", WORDS_CHARS_MAX));
    }
    if thumb.is_none() && words.is_none() && !body.contains_key("thumb") {
        let detail = "The body says nothing. Send thumb, text or both; thumb null withdraws what you said before.";
        return Err(bad_member("thumb", detail));
    }
    Ok(Opinion { thumb, words: words.map(Into::into) })
}

fn refused(run: &RunId, error: FeedbackError) -> Problem {
    match error {
        FeedbackError::NoSuchRun => no_such_run(run),
        FeedbackError::NoSuchMessage => {
            Problem::not_found("no_such_message", format!("Run {run} has no such message that you may see."))
                .with("member", "messageId")
        }
        FeedbackError::TooMany => {
            let detail = format!("{FEEDBACK_MAX} people have given feedback about this, the limit. Nothing was recorded.");
            Problem::new(StatusCode::CONFLICT, "too_much_feedback", detail).with("limit", FEEDBACK_MAX)
        }
        FeedbackError::Store(error) => error.into(),
    }
}

/// `POST /v1/runs/{run}/feedback`: gives feedback about the run, or about one of its messages.
pub async fn post(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    let run: RunId = path_id("runId", request.uri())?;
    if authorization.link().is_some() {
        return Err(forbidden("token", "A share link is not a person, and gives no feedback. Use a token of your own.".into()));
    }
    let audience = Query::from_uri(request.uri()).audience()?;
    let giver = Person { audience, decider: authorization.decider(via(request.headers())) };
    let body = read_object(&app, request, FEEDBACK_BODY_BYTES_MAX).await?;
    check_members(&body, &["thumb", "text", "messageId"])?;
    let (opinion, message) = (opinion_of(&body)?, text_of(&body, "messageId")?);
    app.disk.check_space()?;
    let (feedback, is_new) = app.feedback.give(&run, message, opinion, &giver).await.map_err(|error| refused(&run, error))?;
    let status = if is_new && feedback.get("feedbackId").is_some() { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, no_store_json(feedback)).into_response())
}

/// `GET /v1/runs/{run}/feedback`: the feedback that stands.
pub async fn list(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let (run, query): (RunId, _) = (path_id("runId", &uri)?, Query::from_uri(&uri));
    let reader = Person { audience: query.audience()?, decider: authorization.decider(crate::model::decided_by::Via::Rest) };
    let at = authorization.moment().map(|moment| moment.sequence);
    let listed = app.feedback.list(&run, &reader, at).await.map_err(|error| refused(&run, error))?;
    Ok(no_store_json(echo(&query, json!({ "feedback": listed }))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opinion(body: &Value) -> Result<Opinion, Problem> {
        opinion_of(body.as_object().unwrap())
    }

    #[test]
    fn an_opinion_has_a_thumb_or_words_or_withdraws_with_null() {
        let words = "ä".repeat(WORDS_CHARS_MAX);
        let given = opinion(&json!({ "thumb": "down", "text": format!(" {words}\n") })).unwrap();
        assert_eq!(given, Opinion { thumb: Some(Thumb::Down), words: Some(words.clone().into()) });
        assert_eq!(opinion(&json!({ "thumb": null, "text": " " })).unwrap(), Opinion::default());
        assert_eq!(opinion(&json!({ "text": "why" })).unwrap().thumb, None);
        for refused in
            [json!({}), json!({ "text": "" }), json!({ "thumb": "UP" }), json!({ "thumb": true }), json!({ "text": words + "b" })]
        {
            let problem = opinion(&refused).unwrap_err();
            assert_eq!((problem.status, problem.code), (StatusCode::UNPROCESSABLE_ENTITY, "bad_member"), "{refused}");
        }
    }
}

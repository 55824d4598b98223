//! Bodies of requests, read leniently: members that nobody knows stay, and what is missing is told by name.

use crate::model::id::IdError;
use crate::serve::App;
use crate::serve::facts::{Pace, check_depth, is_lines, read_whole};
use crate::serve::problem::Problem;
use crate::source::kind_of;
use axum::body::Body;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use std::str::FromStr;

/// A body that is one JSON object. An empty one has no members.
///
/// # Errors
/// The [`Problem`] of what is none, or is too large, too deep or too slow.
pub async fn object(app: &App, headers: &HeaderMap, body: Body) -> Result<Map<String, Value>, Problem> {
    if is_lines(headers)? {
        let detail = "the body is lines of JSON; send application/json, one object";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail));
    }
    let text = read_whole(body, app.limits.body_bytes_max, &Pace::new(app.limits.body_time_max)).await?;
    if text.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    check_depth(&text, app.limits.depth_max)?;
    match serde_json::from_slice(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => {
            let detail = format!("the body is {}; it must be an object", kind_of(&other));
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_an_object", detail).with("expected", "one JSON object"))
        }
        Err(error) => {
            let detail = format!("the body is not JSON: {error}; nothing came of it");
            Err(Problem::bad_request("not_json", detail).with("expected", "one JSON object"))
        }
    }
}

/// 422 for a member that is missing, or is not what it must be.
#[must_use]
pub fn bad(member: &str, found: &str, expected: &str) -> Problem {
    let detail = format!("{member} is {found}; it must be {expected}");
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", detail).with("member", member).with("expected", expected)
}

/// What a member is: nothing where it is null.
fn found(value: Option<&Value>) -> &'static str {
    value.map_or("missing", kind_of)
}

/// The text of a member; `None` where it is absent or null.
///
/// # Errors
/// 422 for what is no text.
pub fn text<'b>(body: &'b Map<String, Value>, member: &str) -> Result<Option<&'b str>, Problem> {
    match body.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        other => Err(bad(member, found(other), "text")),
    }
}

/// The id that a member has to have.
///
/// # Errors
/// 422 that names the member.
pub fn id<T: FromStr<Err = IdError>>(body: &Map<String, Value>, member: &str) -> Result<T, Problem> {
    let text = text(body, member)?.ok_or_else(|| bad(member, "missing", "an id"))?;
    text.parse().map_err(|error: IdError| bad(member, &format!("no id ({error})"), "an id"))
}

/// The objects that a member lists; none where it is absent or null.
///
/// # Errors
/// 422 for what is no list of objects.
pub fn objects(body: &Map<String, Value>, member: &str) -> Result<Vec<Value>, Problem> {
    match body.get(member) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => match list.iter().find(|item| !item.is_object()) {
            None => Ok(list.clone()),
            Some(item) => Err(bad(member, &format!("a list with {} in it", kind_of(item)), "a list of objects")),
        },
        other => Err(bad(member, found(other), "a list of objects")),
    }
}

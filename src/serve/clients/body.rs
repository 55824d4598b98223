//! Lenient request bodies: unknown members are kept, and errors name the missing member.

use crate::model::halves;
use crate::model::id::IdError;
use crate::serve::App;
use crate::serve::http::body::{BodyDeadline, check_depth, is_lines, read_body};
use crate::serve::http::problem::Problem;
use crate::source::kind_of;
use axum::body::Body;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use std::str::FromStr;

/// Maximum JSON values of a body: a value takes a hundred bytes of memory, but two bytes of text.
const VALUES_MAX: usize = 500_000;
/// Maximum size of a body that is parsed at once. A larger one is parsed where it delays no other request.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Reads a body that is one JSON object. An empty body has no members.
///
/// # Errors
/// The [`Problem`] of a body that is not an object, or is too large, too deep or too slow.
pub async fn object(app: &App, headers: &HeaderMap, body: Body) -> Result<Map<String, Value>, Problem> {
    if is_lines(headers)? {
        let detail = "The body is NDJSON. Send one JSON object as application/json.";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail));
    }
    let text = read_body(body, app.limits.body_bytes_max, &BodyDeadline::new(app.limits.body_time_max)).await?;
    if text.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    let depth_max = app.limits.depth_max;
    match text.len() {
        ..=INLINE_BYTES_MAX => parsed(&text, depth_max),
        _ => app.logs.work(move |_| parsed(&text, depth_max)).await,
    }
}

/// Parses a body within its limits.
fn parsed(text: &[u8], depth_max: usize) -> Result<Map<String, Value>, Problem> {
    check_depth(text, depth_max)?;
    check_values(text)?;
    match halves::parse(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => {
            let detail = format!("The body is {}. It must be an object.", kind_of(&other));
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_an_object", detail).with("expected", "one JSON object"))
        }
        Err(error) => {
            let detail = format!("The body is not JSON: {error}. The server did nothing.");
            Err(Problem::bad_request("not_json", detail).with("expected", "one JSON object"))
        }
    }
}

/// Rejects a body with too many values, before a parser allocates them.
fn check_values(text: &[u8]) -> Result<(), Problem> {
    // Each value but the first follows one of these bytes. Most bodies end here.
    if memchr::memchr3_iter(b',', b'[', b'{', text).nth(VALUES_MAX).is_none() {
        return Ok(());
    }
    let (mut values, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    if values <= VALUES_MAX {
        return Ok(());
    }
    let detail =
        format!("The body has {values} JSON values. The limit is {VALUES_MAX}. Send fewer messages, such as the newest.");
    Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).with("limit", VALUES_MAX))
}

/// 422 for a member that is missing or invalid.
#[must_use]
pub fn bad(member: &str, found: &str, expected: &str) -> Problem {
    let detail = format!("{member} is {found}. It must be {expected}.");
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", detail).with("member", member).with("expected", expected)
}

/// Names what a member holds.
fn found(value: Option<&Value>) -> &'static str {
    value.map_or("missing", kind_of)
}

/// Reads a text member. `None`: absent or null.
///
/// # Errors
/// 422 for any other type.
pub fn text<'b>(body: &'b Map<String, Value>, member: &str) -> Result<Option<&'b str>, Problem> {
    match body.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        other => Err(bad(member, found(other), "text")),
    }
}

/// Reads a required id.
///
/// # Errors
/// 422 that names the member.
pub fn id<T: FromStr<Err = IdError>>(body: &Map<String, Value>, member: &str) -> Result<T, Problem> {
    let text = text(body, member)?.ok_or_else(|| bad(member, "missing", "an id"))?;
    text.parse().map_err(|error: IdError| bad(member, &format!("not a valid id ({error})"), "an id"))
}

/// Takes a list of objects out of the body. Empty: absent or null.
///
/// # Errors
/// 422 for any other type.
pub fn take_objects(body: &mut Map<String, Value>, member: &str) -> Result<Vec<Value>, Problem> {
    match body.shift_remove(member) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => match list.iter().find(|item| !item.is_object()) {
            None => Ok(list),
            Some(item) => Err(bad(member, &format!("a list with {} in it", kind_of(item)), "a list of objects")),
        },
        other => Err(bad(member, found(other.as_ref()), "a list of objects")),
    }
}

//! What every request has: ids in its path, members in its query, or in an object where it is a message. Parsed here, once,
//! into types that need no second look.

use super::problem::Problem;
use crate::feed::reader::Frames;
use crate::feed::{Selection, Wanted};
use crate::model::cursor::CursorError;
use crate::model::id::IdError;
use crate::model::{Audience, Cursor, Ids};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use std::str::FromStr;

/// The longest text of a client that an error repeats, in characters.
const QUOTED_CHARS_MAX: usize = 64;

/// What a request says by name, each member by its first value.
#[derive(Debug, Clone, Default)]
pub struct Query {
    members: Vec<(String, String)>,
    /// Whose query it is, in a program that is built to find our mistakes.
    #[cfg(debug_assertions)]
    path: Option<Box<str>>,
}

impl Query {
    /// The query of a URI.
    #[must_use]
    pub fn of(uri: &http::Uri) -> Self {
        Self {
            members: form_urlencoded::parse(uri.query().unwrap_or("").as_bytes()).into_owned().collect(),
            #[cfg(debug_assertions)]
            path: Some(uri.path().into()),
        }
    }

    /// The same for who asks at any address, and reads what its row need not tell of.
    #[must_use]
    pub fn of_any(uri: &http::Uri) -> Self {
        Self {
            #[cfg(debug_assertions)]
            path: None,
            ..Self::of(uri)
        }
    }

    /// The members of an object, as if they stood in a query: a list of texts is one text with commas, null is absent.
    ///
    /// # Errors
    /// 400 for a member that is anything else than text, a number or a list of texts.
    pub fn of_object(object: &Map<String, Value>) -> Result<Self, Problem> {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Array(list) => Some(list.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.join(",")),
            Value::Null | Value::Object(_) => None,
        };
        let present = object.iter().filter(|(_, value)| !value.is_null());
        let read = present.map(|(member, value)| match text(value) {
            Some(text) => Ok((member.clone(), text)),
            None => {
                let detail = format!("{member} is {}; it must be text", crate::source::kind_of(value));
                Err(Problem::bad_request("bad_query", detail).with("member", member.as_str()))
            }
        });
        Ok(Self { members: read.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// A member's value.
    #[must_use]
    pub fn get(&self, member: &str) -> Option<&str> {
        #[cfg(debug_assertions)]
        if let Some(path) = &self.path {
            super::routes::hold_read(path, member);
        }
        self.members.iter().find(|(name, _)| name == member).map(|(_, value)| value.as_str())
    }

    /// Whether a flag is set: by its name alone, `true` or `1`.
    #[must_use]
    pub fn is_set(&self, member: &str) -> bool {
        matches!(self.get(member), Some("" | "true" | "1"))
    }

    /// A comma-separated member's values; none if it is absent.
    #[must_use]
    pub fn list(&self, member: &str) -> Vec<Box<str>> {
        self.get(member)
            .into_iter()
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .map(Into::into)
            .collect()
    }

    /// A number.
    ///
    /// # Errors
    /// 400 for what is none.
    pub fn number(&self, member: &'static str) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get(member) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let detail = format!("{member} is {}; it must be a whole number from 0", quoted(text));
            Problem::bad_request("bad_query", detail).with("member", member)
        })
    }

    /// The audience that is asked for: `user` unless the query says otherwise.
    ///
    /// # Errors
    /// 400 for a name that we do not know: a reader that asks for more than there is must not get less unseen.
    pub fn audience(&self) -> Result<Audience, Problem> {
        let Some(name) = self.get("audience") else { return Ok(Audience::User) };
        Audience::parse(name).ok_or_else(|| {
            let detail = format!("audience is {}; it must be user, dashboard or internal", quoted(name));
            Problem::bad_request("bad_audience", detail).with("member", "audience")
        })
    }

    /// What of a log is asked for.
    ///
    /// # Errors
    /// 400 for an unknown audience.
    pub fn selection(&self) -> Result<Selection, Problem> {
        let mut surfaces = self.list("surfaces");
        surfaces.extend(self.list("surface"));
        Ok(Selection {
            audience: self.audience()?,
            surfaces,
            types: self.list("type"),
            agent: self.get("agentId").map(Into::into),
        })
    }

    /// What of a log is asked for, and in what shape.
    ///
    /// # Errors
    /// 400 for an audience, a kind of frames or a replay that we do not know.
    pub fn wanted(&self) -> Result<Wanted, Problem> {
        let frames = match self.get("frames") {
            None | Some("activities") => Frames::Activities,
            Some("events") => Frames::Events,
            Some(other) => {
                let detail = format!("frames is {}; it must be activities or events", quoted(other));
                return Err(Problem::bad_request("bad_query", detail).with("member", "frames"));
            }
        };
        let replay = match self.get("replay") {
            None | Some("snapshots") => false,
            Some("deltas") => true,
            Some(other) => {
                let detail = format!("replay is {}; it must be deltas or snapshots", quoted(other));
                return Err(Problem::bad_request("bad_query", detail).with("member", "replay"));
            }
        };
        Ok(Wanted { selection: self.selection()?, frames, replay })
    }

    /// The ids that a producer gives for its facts.
    ///
    /// # Errors
    /// 400 for text that cannot be an id.
    pub fn ids(&self) -> Result<Ids, Problem> {
        let named = |member: &&str| Some(((*member).to_owned(), Value::from(self.get(member)?)));
        let mut map = Ids::MEMBERS.iter().filter(|member| **member != "runId").filter_map(named).collect();
        let mut ids = Ids::default();
        ids.take_from(&mut map).map_err(|(member, error)| bad_id(member, &error.to_string()))?;
        Ok(ids)
    }
}

/// A client's text as an error repeats it: its beginning, for it may be as long as a message.
#[must_use]
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((at, _)) => format!("{:?}…", &text[..at]),
    }
}

/// 400 for an id that cannot be one.
#[must_use]
pub fn bad_id(member: &'static str, why: &str) -> Problem {
    Problem::bad_request("bad_id", format!("{member}: {why}")).with("member", member)
}

/// The id in a path such as `/v1/runs/{id}/stream`: its third segment, decoded and checked.
///
/// # Errors
/// 400 for what cannot be an id.
pub fn path_id<T: FromStr<Err = IdError>>(member: &'static str, uri: &http::Uri) -> Result<T, Problem> {
    segment(member, uri, 3)
}

/// The id in a path's `nth` segment, counted from 1.
///
/// # Errors
/// 400 for what cannot be an id.
pub fn segment<T: FromStr<Err = IdError>>(member: &'static str, uri: &http::Uri, nth: usize) -> Result<T, Problem> {
    let segment = uri.path().split('/').nth(nth).unwrap_or_default();
    let text = percent_decode_str(segment).decode_utf8().map_err(|_| bad_id(member, "an id is UTF-8 text"))?;
    id_of(member, &text)
}

/// The id that a member names.
///
/// # Errors
/// 400 for what cannot be an id.
pub fn id_of<T: FromStr<Err = IdError>>(member: &'static str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: IdError| bad_id(member, &error.to_string()))
}

/// Whether the path is that of a run's stream.
#[must_use]
pub fn is_stream(path: &str) -> bool {
    let run = path.strip_prefix("/v1/runs/").and_then(|rest| rest.strip_suffix("/stream"));
    run.is_some_and(|run| !run.is_empty() && !run.contains('/'))
}

/// Where a reader wants to begin.
///
/// # Errors
/// 400 for what is no cursor.
pub fn from(text: Option<&str>) -> Result<crate::feed::From, Problem> {
    use crate::feed::From;
    match text {
        None | Some("" | "start") => Ok(From::Start),
        Some("now") => Ok(From::Now),
        Some(text) => cursor::<Cursor>("after", text).map(From::After),
    }
}

/// A cursor that a client has from us.
///
/// # Errors
/// 400 `bad_cursor`, with the member that it was in.
pub fn cursor<T: FromStr<Err = CursorError>>(member: &'static str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: CursorError| Problem::bad_request("bad_cursor", error.to_string()).with("member", member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_repeats_no_more_than_the_beginning_of_a_text() {
        assert_eq!(quoted("a\"b"), r#""a\"b""#);
        let long = "\u{e4}".repeat(QUOTED_CHARS_MAX);
        assert_eq!(quoted(&long), format!("{long:?}"));
        assert_eq!(quoted(&format!("{long}x")), format!("{long:?}\u{2026}"));
        let query = Query { members: vec![("audience".into(), "x".repeat(1_000_000))], ..Query::default() };
        assert!(query.audience().unwrap_err().detail.len() < 200);
    }
}

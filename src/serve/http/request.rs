//! Parsing of paths, queries and WebSocket messages into typed values.

use super::problem::Problem;
use crate::feed::Frames;
use crate::feed::{Filter, ReadRequest};
use crate::model::cursor::CursorError;
use crate::model::id::IdError;
use crate::model::{Audience, Cursor, Ids, Surface};
#[cfg(debug_assertions)]
use crate::serve::contract::operations::assert_query_described;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::str::FromStr;

/// Maximum characters of a client's text that an error quotes.
const QUOTED_CHARS_MAX: usize = 64;

/// Maximum names of a list that a client sends, and maximum bytes of one of them.
///
/// A stream keeps its lists as long as it is open, and looks into them for each frame.
const NAMES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 256;

/// Maximum items of one page.
pub const PAGE_ITEMS_MAX: usize = 1000;

/// The members of a query or message. If a member repeats, the first value counts.
#[derive(Debug, Clone, Default)]
pub struct Query {
    members: Vec<(String, String)>,
    /// The request's path, for the checks of debug builds.
    #[cfg(debug_assertions)]
    path: Option<Box<str>>,
}

impl Query {
    /// Parses the query of a URI.
    #[must_use]
    pub fn from_uri(uri: &http::Uri) -> Self {
        Self {
            members: form_urlencoded::parse(uri.query().unwrap_or("").as_bytes()).into_owned().collect(),
            #[cfg(debug_assertions)]
            path: Some(uri.path().into()),
        }
    }

    /// Parses a query without the debug check that the address's row describes each member read.
    #[must_use]
    pub fn from_uri_unchecked(uri: &http::Uri) -> Self {
        Self {
            #[cfg(debug_assertions)]
            path: None,
            ..Self::from_uri(uri)
        }
    }

    /// Adds the members that another query has and this one lacks.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        let more = other.members.iter().filter(|(member, _)| self.get(member).is_none()).cloned().collect::<Vec<_>>();
        self.members.extend(more);
        self
    }

    /// Reads the members of an object like a query.
    ///
    /// A list of texts becomes comma-separated text, and null is absent.
    ///
    /// # Errors
    /// 400 for a member that is not text, a number, a boolean or a list of texts.
    pub fn from_object(object: &Map<String, Value>) -> Result<Self, Problem> {
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
                let detail = format!("{member} is {}. It must be text.", crate::source::kind_of(value));
                Err(Problem::bad_request("bad_query", detail).with("member", member.as_str()))
            }
        });
        Ok(Self { members: read.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Returns a member's value.
    #[must_use]
    pub fn get(&self, member: &str) -> Option<&str> {
        #[cfg(debug_assertions)]
        if let Some(path) = &self.path {
            assert_query_described(path, member);
        }
        self.members.iter().find(|(name, _)| name == member).map(|(_, value)| value.as_str())
    }

    /// Returns whether a flag is set: by its name alone, `true` or `1`.
    #[must_use]
    pub fn is_set(&self, member: &str) -> bool {
        matches!(self.get(member), Some("" | "true" | "1"))
    }

    /// Returns the names of a comma-separated member; empty if it is absent.
    ///
    /// # Errors
    /// 400 for too many names, or one that is too long.
    pub fn list(&self, member: &'static str) -> Result<Vec<Box<str>>, Problem> {
        let text = self.get(member).unwrap_or_default();
        limited_names(member, text.split(',').map(str::trim))
    }

    /// Returns the ids of a comma-separated member, unchanged. If the member repeats, each of its values is one id.
    ///
    /// # Errors
    /// 400 for too many ids, or one that is too long.
    pub fn ids_of(&self, member: &'static str) -> Result<Vec<Box<str>>, Problem> {
        let first = self.get(member).unwrap_or_default();
        let values = || self.members.iter().filter(|(name, _)| name == member).map(|(_, value)| value.as_str());
        match values().nth(1) {
            None => limited_names(member, first.split(',')),
            Some(_) => limited_names(member, values()),
        }
    }

    /// Returns a member as a number.
    ///
    /// # Errors
    /// 400 for any other text.
    pub fn number(&self, member: &'static str) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get(member) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let detail = format!("{member} is {}. It must be a whole number of at least 0.", quoted(text));
            Problem::bad_request("bad_query", detail).with("member", member)
        })
    }

    /// Returns the requested number of items of a page: 1 to [`PAGE_ITEMS_MAX`], which is also the default.
    ///
    /// # Errors
    /// 400 for a limit that is not a number.
    pub fn page_size(&self) -> Result<usize, Problem> {
        let limit = self.number("limit")?.unwrap_or(PAGE_ITEMS_MAX as u64);
        Ok(usize::try_from(limit).unwrap_or(PAGE_ITEMS_MAX).clamp(1, PAGE_ITEMS_MAX))
    }

    /// Returns the requested audience; default `user`.
    ///
    /// # Errors
    /// 400 for an unknown name: a client that asks for more must not silently get less.
    pub fn audience(&self) -> Result<Audience, Problem> {
        let Some(name) = self.get("audience") else { return Ok(Audience::User) };
        Audience::parse(name).ok_or_else(|| {
            let detail = format!("audience is {}. It must be user, dashboard or internal.", quoted(name));
            Problem::bad_request("bad_audience", detail).with("member", "audience")
        })
    }

    /// Returns the requested filter of a log.
    ///
    /// # Errors
    /// 400 for an unknown audience or surface, an invalid agent, or a list beyond its limits.
    pub fn filter(&self) -> Result<Filter, Problem> {
        let agent = self.get("agentId").map(|agent| id_of("agentId", agent)).transpose()?;
        Ok(Filter { audience: self.audience()?, surfaces: self.surfaces()?, types: self.list("type")?.into(), agent })
    }

    /// Returns the requested surfaces, without duplicates; empty: all.
    fn surfaces(&self) -> Result<Vec<Surface>, Problem> {
        let mut surfaces = Vec::new();
        for member in ["surfaces", "surface"] {
            for name in self.list(member)? {
                // A fact may have any surface. A reader that misspells one would wait for frames that never come.
                let surface = Surface::from(&*name);
                if matches!(surface, Surface::Other(_)) {
                    let detail =
                        format!("{member} names {}. It must name one or more of {}.", quoted(&name), Surface::NAMES.join(", "));
                    return Err(Problem::bad_request("bad_query", detail)
                        .with("member", member)
                        .with("expected", Surface::NAMES));
                }
                if !surfaces.contains(&surface) {
                    surfaces.push(surface);
                }
            }
        }
        Ok(surfaces)
    }

    /// Returns the requested filter and form of a stream.
    ///
    /// # Errors
    /// 400 for an unknown audience, kind of frames or replay.
    pub fn read_request(&self) -> Result<ReadRequest, Problem> {
        let frames = match self.get("frames") {
            None | Some("activities") => Frames::Activities,
            Some("events") => Frames::Events,
            Some(other) => {
                let detail = format!("frames is {}. It must be activities or events.", quoted(other));
                return Err(Problem::bad_request("bad_query", detail).with("member", "frames"));
            }
        };
        let replay = match self.get("replay") {
            None | Some("snapshots") => false,
            Some("deltas") => true,
            Some(other) => {
                let detail = format!("replay is {}. It must be deltas or snapshots.", quoted(other));
                return Err(Problem::bad_request("bad_query", detail).with("member", "replay"));
            }
        };
        Ok(ReadRequest { filter: self.filter()?, frames, replay })
    }

    /// Returns the ids that a producer sets for its facts.
    ///
    /// # Errors
    /// 400 for an invalid id.
    pub fn ids(&self) -> Result<Ids, Problem> {
        let named = |member: &&str| self.get(member).map(|id| ((*member).to_owned(), Value::from(id)));
        let mut map = Ids::MEMBERS.iter().filter(|member| **member != "runId").filter_map(named).collect();
        let mut ids = Ids::default();
        ids.take_from(&mut map).map_err(|(member, error)| bad_id(member, &error.to_string()))?;
        Ok(ids)
    }
}

/// The names that are not empty, within [`NAMES_MAX`] and [`NAME_BYTES_MAX`].
fn limited_names<'q>(member: &'static str, names: impl Iterator<Item = &'q str>) -> Result<Vec<Box<str>>, Problem> {
    let bad_list =
        |detail: String, limit: usize| Problem::bad_request("bad_query", detail).with("member", member).with("limit", limit);
    let mut limited = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        if name.len() > NAME_BYTES_MAX {
            let detail = format!("{member} has a name of {} bytes. A name may have at most {NAME_BYTES_MAX}.", name.len());
            return Err(bad_list(detail, NAME_BYTES_MAX));
        }
        if limited.len() == NAMES_MAX {
            let detail = format!("{member} has more than {NAMES_MAX} names, the limit. Name fewer, or omit {member} for all.");
            return Err(bad_list(detail, NAMES_MAX));
        }
        limited.push(name.into());
    }
    Ok(limited)
}

/// Quotes a client's text for an error. Only its beginning, because it may be as long as a message.
#[must_use]
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((at, _)) => format!("{:?}…", &text[..at]),
    }
}

/// 400 for an invalid id.
#[must_use]
pub fn bad_id(member: &'static str, why: &str) -> Problem {
    Problem::bad_request("bad_id", format!("{member}: {why}")).with("member", member)
}

/// Reads the id in a path such as `/v1/runs/{id}/stream`: its third segment, decoded.
///
/// # Errors
/// 400 for an invalid id.
pub fn path_id<T: FromStr<Err = IdError>>(member: &'static str, uri: &http::Uri) -> Result<T, Problem> {
    segment(member, uri, 3)
}

/// Reads the id in a path's `nth` segment, counted from 1.
///
/// # Errors
/// 400 for an invalid id.
pub fn segment<T: FromStr<Err = IdError>>(member: &'static str, uri: &http::Uri, nth: usize) -> Result<T, Problem> {
    id_of(member, &decoded_segment(member, uri, nth)?)
}

/// The text of a path's `nth` segment, counted from 1.
///
/// # Errors
/// 400 for other bytes than UTF-8.
pub fn decoded_segment<'u>(member: &'static str, uri: &'u http::Uri, nth: usize) -> Result<Cow<'u, str>, Problem> {
    let segment = uri.path().split('/').nth(nth).unwrap_or_default();
    percent_decode_str(segment).decode_utf8().map_err(|_| bad_id(member, "an id is UTF-8 text"))
}

/// Parses the id in a member.
///
/// # Errors
/// 400 for an invalid id.
pub fn id_of<T: FromStr<Err = IdError>>(member: &'static str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: IdError| bad_id(member, &error.to_string()))
}

/// The path template of a stream of frames; `None` for any other path.
#[must_use]
pub fn stream_route(path: &str) -> Option<&'static str> {
    let (kind, id) = path.strip_prefix("/v1/")?.strip_suffix("stream")?.split_once('/').unwrap_or_default();
    let has_id = id.strip_suffix('/').is_some_and(|id| !id.is_empty() && !id.contains('/'));
    match kind {
        "runs" if has_id => Some("/v1/runs/{run}/stream"),
        "sessions" if has_id => Some("/v1/sessions/{session}/stream"),
        "" if path == "/v1/stream" => Some("/v1/stream"),
        _ => None,
    }
}

/// Parses the position where a reader wants to start.
///
/// # Errors
/// 400 for an invalid cursor.
pub fn start_at(text: Option<&str>) -> Result<crate::feed::StartAt, Problem> {
    use crate::feed::StartAt;
    match text {
        None | Some("" | "start") => Ok(StartAt::Start),
        Some("now") => Ok(StartAt::Now),
        Some(text) => cursor::<Cursor>("after", text).map(StartAt::After),
    }
}

/// Parses a cursor.
///
/// # Errors
/// 400 `bad_cursor`, which names the member.
pub fn cursor<T: FromStr<Err = CursorError>>(member: &'static str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: CursorError| Problem::bad_request("bad_cursor", error.to_string()).with("member", member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_route_of_its_path() {
        for (path, route) in [
            ("/v1/runs/r/stream", Some("/v1/runs/{run}/stream")),
            ("/v1/sessions/s/stream", Some("/v1/sessions/{session}/stream")),
            ("/v1/stream", Some("/v1/stream")),
            ("/v1//stream", None),
            ("/v1/runs//stream", None),
            ("/v1/runs/stream", None),
            ("/v1/runs/a/b/stream", None),
            ("/v1/runs/r/xstream", None),
            ("/v1/tickets/t/stream", None),
            ("/ai-sdk/a/c/stream", None),
        ] {
            assert_eq!(stream_route(path), route, "{path}");
        }
    }

    #[test]
    fn an_error_quotes_only_the_beginning_of_a_text() {
        assert_eq!(quoted("a\"b"), r#""a\"b""#);
        let long = "\u{e4}".repeat(QUOTED_CHARS_MAX);
        assert_eq!(quoted(&long), format!("{long:?}"));
        assert_eq!(quoted(&format!("{long}x")), format!("{long:?}\u{2026}"));
        let query = Query { members: vec![("audience".into(), "x".repeat(1_000_000))], ..Query::default() };
        assert!(query.audience().unwrap_err().detail.len() < 200);
    }
}

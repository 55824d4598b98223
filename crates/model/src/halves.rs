//! Halves of UTF-16 pairs.
//!
//! JavaScript may cut a text between the two halves of a pair: `JSON.stringify` then writes `"\ud83d"` into one delta and
//! `"\udc4b"` into the next. A strict JSON parser refuses both, and no Rust text can hold a half.
//!
//! [`parse_marked`] reads such a fact. Two characters mark each half at the edge of a streamed text: a noncharacter, which
//! no text has by chance, and one of private use. The guard, which knows where each stream ends, joins the marks of one
//! stream. U+FFFD replaces every other half at once.

use serde_json::{Map, Value};
use std::ops::Range;

/// Whether texts of a fact may have marks of halves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Halves {
    /// The text has no half.
    #[default]
    Absent,
    /// The text has halves, and marks for them.
    Marked,
}

/// The first character of a mark, a noncharacter. The second is U+10D800 for the half 0xD800, and so on.
const LEAD: char = '\u{10ffff}';
const PLANE: u32 = 0x10_0000;
/// The length of a mark in UTF-8, in bytes, and the first of them. Few other characters have it.
const MARK_BYTES: usize = 8;
const MARK_BYTE: u8 = 0xf4;

/// The names of members that runtimes stream. A half at the edge of another text has no other half to wait for.
#[rustfmt::skip]
const STREAMED_MEMBERS: &[&str] = &[
    "text", "delta", "content", "inputText", "inputTextDelta", "aDelta", "full", "args", "args_delta", "arguments",
    "partial_json", "thinking", "reasoning", "reasoning_content", "stdout", "stderr",
];

/// The first half of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FirstHalf(u16);

impl FirstHalf {
    /// The half with this number in UTF-16. `None`: the number is another one.
    #[must_use]
    pub fn new(unit: u16) -> Option<Self> {
        is_first(unit).then_some(Self(unit))
    }

    /// The number of the half in UTF-16.
    #[must_use]
    pub const fn unit(self) -> u16 {
        self.0
    }
}

const fn is_first(unit: u16) -> bool {
    unit >= 0xd800 && unit < 0xdc00
}

const fn is_half(unit: u16) -> bool {
    unit >= 0xd800 && unit < 0xe000
}

/// Appends the mark of a half.
fn push_mark(text: &mut String, half: u16) {
    text.push(LEAD);
    text.extend(char::from_u32(PLANE + u32::from(half)));
}

/// The half whose mark a text begins with.
fn leading_half(text: &str) -> Option<u16> {
    let mark = text.strip_prefix(LEAD)?.chars().next()?;
    let unit = u16::try_from(u32::from(mark).checked_sub(PLANE)?).ok()?;
    is_half(unit).then_some(unit)
}

/// Whether a text may have marks.
#[must_use]
pub fn may_have_marks(text: &[u8]) -> bool {
    memchr::memchr(MARK_BYTE, text).is_some()
}

/// Joins the marks in a chunk of a stream, behind the half that the stream `held`. Holds the half at the chunk's end.
#[must_use]
pub fn join(held: &mut Option<FirstHalf>, chunk: &str) -> String {
    let mut joined = String::with_capacity(chunk.len() + char::REPLACEMENT_CHARACTER.len_utf8());
    let mut rest = chunk;
    while let Some(c) = rest.chars().next() {
        let half = leading_half(rest);
        rest = &rest[half.map_or(c.len_utf8(), |_| MARK_BYTES)..];
        match (held.take(), half) {
            (Some(FirstHalf(first)), Some(second)) if !is_first(second) => {
                joined.extend(char::decode_utf16([first, second]).map(|pair| pair.unwrap_or(char::REPLACEMENT_CHARACTER)));
                continue;
            }
            (Some(_), _) => joined.push(char::REPLACEMENT_CHARACTER),
            (None, _) => {}
        }
        match half {
            Some(first) if is_first(first) => *held = Some(FirstHalf(first)),
            Some(_) => joined.push(char::REPLACEMENT_CHARACTER),
            None => joined.push(c),
        }
    }
    joined
}

/// Joins the marks in a whole text, and replaces those that stay alone.
pub fn settle_text(text: &mut String) {
    if may_have_marks(text.as_bytes()) {
        let mut held = None;
        *text = join(&mut held, text);
        text.extend(held.map(|_| char::REPLACEMENT_CHARACTER));
    }
}

/// Settles every text and key of a value, as [`settle_text`].
pub fn settle(value: &mut Value) {
    match value {
        Value::String(text) => settle_text(text),
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Object(map) => settle_map(map),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Settles every text and key of an object, as [`settle_text`].
pub fn settle_map(map: &mut Map<String, Value>) {
    map.values_mut().for_each(settle);
    settle_keys(map);
}

fn settle_keys(map: &mut Map<String, Value>) {
    if map.keys().any(|key| may_have_marks(key.as_bytes())) {
        let settled = std::mem::take(map).into_iter().map(|(mut key, value)| {
            settle_text(&mut key);
            (key, value)
        });
        *map = settled.collect();
    }
}

/// Settles all but the marks at the edges of streamed texts. `name` is the member that has the value.
fn settle_unstreamed(value: &mut Value, name: &str) {
    match value {
        Value::String(text) if STREAMED_MEMBERS.contains(&name) => settle_inside(text),
        Value::String(text) => settle_text(text),
        Value::Array(items) => items.iter_mut().for_each(|item| settle_unstreamed(item, name)),
        Value::Object(map) => {
            map.iter_mut().for_each(|(member, value)| settle_unstreamed(value, member));
            settle_keys(map);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Settles a text between its edges.
fn settle_inside(text: &mut String) {
    let begins_with_second = leading_half(text).is_some_and(|half| !is_first(half));
    let from = if begins_with_second { MARK_BYTES } else { 0 };
    let mut first = None;
    let inside = join(&mut first, &text[from..]);
    text.truncate(from);
    text.push_str(&inside);
    if let Some(FirstHalf(half)) = first {
        push_mark(text, half);
    }
}

/// Parses JSON in which U+FFFD replaces each lone half.
///
/// # Errors
/// For text that is not JSON.
pub fn parse(text: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(text).or_else(|error| with_lone_halves(text, push_replacement).ok_or(error))
}

/// Parses JSON with lone halves, those at the edges of streamed texts as marks.
///
/// `None`: the text has no lone half, or is not JSON for another reason.
#[must_use]
pub fn parse_marked(text: &[u8]) -> Option<(Value, Halves)> {
    // A text of the producer that has these characters itself must keep them.
    let plain = with_lone_halves(text, push_replacement)?;
    if has_marks(&plain) {
        return Some((plain, Halves::Absent));
    }
    let mut marked = with_lone_halves(text, push_mark)?;
    settle_unstreamed(&mut marked, "");
    Some((marked, Halves::Marked))
}

/// Whether a text or key of a value has a mark.
fn has_marks(value: &Value) -> bool {
    let has = |text: &str| text.match_indices(LEAD).any(|(at, _)| leading_half(&text[at..]).is_some());
    match value {
        Value::String(text) => has(text),
        Value::Array(items) => items.iter().any(has_marks),
        Value::Object(map) => map.iter().any(|(key, value)| has(key) || has_marks(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn push_replacement(text: &mut String, _half: u16) {
    text.push(char::REPLACEMENT_CHARACTER);
}

/// Parses JSON with what `push` appends in place of each lone half.
fn with_lone_halves(text: &[u8], push: impl Fn(&mut String, u16)) -> Option<Value> {
    let lone = lone_halves(text);
    if lone.is_empty() {
        return None;
    }
    let (mut replaced, mut from, mut piece) = (Vec::with_capacity(text.len()), 0, String::new());
    for (at, half) in lone {
        piece.clear();
        push(&mut piece, half);
        replaced.extend_from_slice(&text[from..at.start]);
        replaced.extend_from_slice(piece.as_bytes());
        from = at.end;
    }
    replaced.extend_from_slice(&text[from..]);
    serde_json::from_slice(&replaced).ok()
}

/// Finds the escapes of lone halves in a JSON text.
fn lone_halves(text: &[u8]) -> Vec<(Range<usize>, u16)> {
    let mut lone: Vec<(Range<usize>, u16)> = Vec::new();
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        at += found;
        let Some(half) = escaped_half(&text[at..]) else {
            at += 2;
            continue;
        };
        match lone.last() {
            Some((before, first)) if before.end == at && is_first(*first) && !is_first(half) => drop(lone.pop()),
            _ => lone.push((at..at + 6, half)),
        }
        at += 6;
    }
    lone
}

/// Reads the half of a pair that an escape at the start of the text stands for.
fn escaped_half(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(digits, 16).ok().filter(|unit| is_half(*unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mark_of(half: u16) -> String {
        let mut mark = String::new();
        push_mark(&mut mark, half);
        assert_eq!(mark.len(), MARK_BYTES);
        mark
    }

    #[test]
    fn only_the_edges_of_streamed_texts_keep_a_mark() {
        let text = br#"{"id":"a\ud83d","delta":"\udc4b b\ud83dc \ud83d","\udc4b":[1],"content":["\ud83d\udc4b\ud83d"]}"#;
        let (value, halves) = parse_marked(text).unwrap();
        let (first, second) = (mark_of(0xd83d), mark_of(0xdc4b));
        let expected = json!({
            "id": "a\u{fffd}", "delta": format!("{second} b\u{fffd}c {first}"), "\u{fffd}": [1], "content": [format!("👋{first}")],
        });
        assert_eq!((value, halves), (expected, Halves::Marked));
    }

    #[test]
    fn marks_are_joined_over_chunks_and_a_half_that_stays_alone_is_replaced() {
        let (first, second) = (mark_of(0xd83d), mark_of(0xdc4b));
        let mut held = None;
        let chunks = [format!("Hi {first}"), format!("{second}!{first}"), first.clone(), format!("x{second}"), String::new()];
        let joined: Vec<_> = chunks.iter().map(|chunk| join(&mut held, chunk)).collect();
        assert_eq!((joined.concat(), held), ("Hi 👋!\u{fffd}\u{fffd}x\u{fffd}".to_owned(), None));
        assert_eq!((join(&mut held, &first), held), (String::new(), FirstHalf::new(0xd83d)));
    }

    #[test]
    fn a_text_that_has_a_mark_of_its_own_keeps_it() {
        let own = mark_of(0xd83d);
        let (value, halves) = parse_marked(format!(r#"{{"delta":"{own}\ud83d"}}"#).as_bytes()).unwrap();
        assert_eq!((value, halves), (json!({ "delta": format!("{own}\u{fffd}") }), Halves::Absent));
    }

    #[test]
    fn other_text_is_left_to_the_strict_parser() {
        for text in [r#"{"a":"\ud83d\udc4b"}"#, r#"{"a":"\\ud83d"}"#, r#"{"a":"\ud83d"#, r#"{"a":"\u+83d"}"#] {
            assert!(parse_marked(text.as_bytes()).is_none(), "{text}");
        }
        assert_eq!(parse(br#"{"a\ud83d":"\ud83d\udc4b"}"#).unwrap(), json!({ "a\u{fffd}": "👋" }));
        assert!(parse(br#"{"a":"\ud83d"#).is_err());
    }
}

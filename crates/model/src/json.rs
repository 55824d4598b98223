//! JSON text that is written, read or changed without a serializer between, and hashes of values.

use data_encoding::HEXLOWER;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The byte order mark that some editors write before a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Skips a byte order mark before a text.
#[must_use]
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// The characters that end a line for some readers (Python's `splitlines`), with their escapes. JSON has them in strings
/// only.
const LINE_ENDS: [(&[u8], &[u8]); 3] =
    [("\u{2028}".as_bytes(), br"\u2028"), ("\u{2029}".as_bytes(), br"\u2029"), ("\u{85}".as_bytes(), br"\u0085")];

/// Finds the first such character, and returns its length and its escape, too.
fn find_line_end(json: &[u8]) -> Option<(usize, usize, &'static [u8])> {
    memchr::memchr2_iter(LINE_ENDS[0].0[0], LINE_ENDS[2].0[0], json).find_map(|at| {
        let (raw, escape) = LINE_ENDS.iter().find(|(raw, _)| json[at..].starts_with(raw))?;
        Some((at, raw.len(), *escape))
    })
}

/// Escapes the characters in a JSON text that cut its line for some readers. Returns the text if it has any.
#[must_use]
pub fn escape_line_ends(mut json: &[u8]) -> Option<Vec<u8>> {
    let mut escaped = Vec::new();
    while let Some((at, length, escape)) = find_line_end(json) {
        escaped.reserve(json.len() + escape.len());
        escaped.extend_from_slice(&json[..at]);
        escaped.extend_from_slice(escape);
        json = &json[at + length..];
    }
    (!escaped.is_empty()).then(|| {
        escaped.extend_from_slice(json);
        escaped
    })
}

/// Returns the index of the closing quote of the JSON string whose content starts at `at`.
///
/// The text's length without one.
#[must_use]
pub fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        at += 2;
    }
    text.len()
}

/// A hash of a value that does not depend on the order of members.
#[must_use]
pub fn hash_sorted(value: &Value) -> String {
    let mut text = String::new();
    write_sorted(value, &mut text);
    HEXLOWER.encode(&Sha256::digest(text)[..16])
}

/// Writes a value's JSON with the members of objects sorted, so that their order does not matter.
fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in members {
                out.push_str(&Value::from(name.as_str()).to_string());
                write_sorted(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_sorted(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

/// Writes a text as JSON.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    if needs_escape(text.as_bytes()) {
        return write_plain(out, text);
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Whether JSON escapes a byte of this text. It looks at eight bytes at once, since nearly every text needs none.
fn needs_escape(text: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    let (words, rest) = text.as_chunks::<8>();
    let has_byte_below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & (ONES << 7) != 0;
    let has_byte = |word: u64, byte: u8| has_byte_below(word ^ (ONES * u64::from(byte)), 1);
    words
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .any(|word| has_byte_below(word, b' ') || has_byte(word, b'"') || has_byte(word, b'\\'))
        || rest.iter().any(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\'))
}

/// Writes any value as JSON.
pub fn write_plain<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("JSON has only string keys, and a Vec takes every byte");
}

/// Writes an object as JSON.
pub fn write_object(out: &mut Vec<u8>, object: &Map<String, Value>) {
    out.push(b'{');
    for (n, (member, value)) in object.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write_text(out, member);
        out.push(b':');
        write_value(out, value);
    }
    out.push(b'}');
}

/// Writes a value as JSON.
pub fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        Value::Object(object) => write_object(out, object),
        other => write_plain(out, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_that_json_permits_are_escaped() {
        let json = "\"a\u{2028}\u{2029}b\u{85}\u{2027}\u{86}é\"";
        let escaped = escape_line_ends(json.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(&escaped).unwrap(), "\"a\\u2028\\u2029b\\u0085\u{2027}\u{86}é\"");
        assert_eq!(escape_line_ends("\"\u{2027}\"".as_bytes()), None);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_once() {
        assert_eq!(without_mark("\u{feff}\u{feff}{}".as_bytes()), "\u{feff}{}".as_bytes());
        assert_eq!(without_mark(b"{}"), b"{}");
    }

    #[test]
    fn text_is_written_as_serde_writes_it() {
        for byte in 0..=255_u8 {
            for at in 0..17 {
                let mut text = "é234567890abcdefgh".to_owned();
                text.insert(text.char_indices().nth(at).map_or(0, |(at, _)| at), char::from(byte));
                let mut written = Vec::new();
                write_text(&mut written, &text);
                assert_eq!(written, serde_json::to_vec(&text).unwrap());
                let escapes = text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\'));
                assert_eq!(needs_escape(text.as_bytes()), escapes, "{text:?}");
            }
        }
    }
}

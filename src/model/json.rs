//! JSON text that is read without parsing it.

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

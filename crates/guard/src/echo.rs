//! Values that a producer must not repeat, known exactly: the credentials of an agent, and the headers of its user. A tool
//! may print its environment, an endpoint may echo a header.
//!
//! The scanner knows what secrets look like. These it could not know: they are masked by their exact values. Whole texts
//! are masked by [`KnownSecrets::mask`]. Between the chunks of a stream, [`Echoes`] holds back what may be the beginning of
//! a value, in memory alone: a crash loses it, with the turn that it belongs to.

use super::HOLDING_STREAMS_MAX;
use super::secrets::REDACTED;
use super::stream::{Skeleton, StreamKey, Streamed};
use http::HeaderMap;
use proscenium_model::Draft;
use std::borrow::Cow;

/// Shorter values are left alone: they would mask ordinary words.
const SECRET_BYTES_MIN: usize = 8;

/// Values, as they stand in text and within JSON text; those that contain others first.
#[derive(Debug, Clone, Default)]
pub struct KnownSecrets(Vec<String>);

impl KnownSecrets {
    /// Takes the values that are long enough to be secrets.
    pub fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut known = Self::default();
        known.extend(values);
        known
    }

    /// Adds the values of headers, and the credentials after their schemes.
    #[must_use]
    pub fn with_headers(mut self, headers: &HeaderMap) -> Self {
        let values = headers.values().filter_map(|value| value.to_str().ok());
        self.extend(values.flat_map(|value| [Some(value), value.split_once(' ').map(|(_, credential)| credential)]).flatten());
        self
    }

    fn extend<'v>(&mut self, values: impl IntoIterator<Item = &'v str>) {
        for value in values.into_iter().map(str::trim).filter(|value| value.len() >= SECRET_BYTES_MIN) {
            let quoted = serde_json::Value::from(value).to_string();
            let inner = &quoted[1..quoted.len() - 1];
            // Some encoders escape slashes.
            self.0.extend([value.to_owned(), inner.to_owned(), inner.replace('/', "\\/")]);
        }
        self.0.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        self.0.dedup();
    }

    /// Masks the values in text, or in JSON text.
    #[must_use]
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.read(text, true).0
    }

    /// Masks the values in a text: of those at one place the longest. Unless the text is the last of its stream, its end may
    /// be the beginning of a value: returns the masked text before, and that end.
    fn read<'t>(&self, text: &'t str, is_last: bool) -> (Cow<'t, str>, &'t str) {
        let is_in = |value: &String| memchr::memmem::find(text.as_bytes(), value.as_bytes()).is_some();
        let has_value = self.0.iter().any(is_in);
        if !has_value && is_last {
            return (Cow::Borrowed(text), "");
        }
        let longest = self.0.first().map_or(0, String::len);
        let mut at = if has_value { 0 } else { text.floor_char_boundary(text.len().saturating_sub(longest)) };
        let (mut masked, mut kept_from) = (String::new(), 0);
        while at < text.len() {
            let rest = &text[at..];
            if !is_last && self.0.iter().any(|value| value.len() > rest.len() && value.starts_with(rest)) {
                break;
            }
            match self.0.iter().find(|value| rest.starts_with(value.as_str())) {
                Some(value) => {
                    masked.push_str(&text[kept_from..at]);
                    masked.push_str(REDACTED);
                    at += value.len();
                    kept_from = at;
                }
                None => at += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        let masked = if masked.is_empty() { Cow::Borrowed(&text[..at]) } else { Cow::Owned(masked + &text[kept_from..at]) };
        (masked, &text[at..])
    }
}

/// The ends of streams that may be beginnings of known values, the oldest first. At most [`HOLDING_STREAMS_MAX`].
#[derive(Debug, Default)]
pub(super) struct Echoes(Vec<(StreamKey, Held)>);

#[derive(Debug)]
struct Held {
    /// The draft that brought it.
    draft: Skeleton,
    text: String,
    /// How much of it has passed: a single letter, which alone must not seem lost.
    shown: usize,
}

/// The part of a text that has not passed. A masked value stands behind its letter that has.
fn unshown(text: &str, shown: usize) -> &str {
    if text.starts_with(REDACTED) { text } else { text.get(shown..).unwrap_or_default() }
}

impl Held {
    /// The held text, which no more text of its stream decides.
    fn into_draft(self, known: &KnownSecrets) -> Draft {
        self.draft.with_text(unshown(&known.mask(&self.text), self.shown).to_owned())
    }
}

impl Echoes {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Masks the values in a stream's next chunk, and holds back its end where that may begin another.
    ///
    /// Returns held text that must pass before the chunk: it is for another audience, or too many streams hold some.
    pub(super) fn feed(&mut self, known: &KnownSecrets, draft: &Draft, streamed: &mut Streamed) -> Vec<Draft> {
        let key = StreamKey::of(draft);
        let (mut before, mut shown) = (Vec::new(), 0);
        let mut text = std::mem::take(&mut streamed.text);
        if let Some(at) = self.0.iter().position(|(held, _)| *held == key) {
            let mut held = self.0.remove(at).1;
            let joined = held.text.clone() + &text;
            if held.draft.is_seen_as(draft) {
                (text, shown) = (joined, held.shown);
            } else {
                if let Some(rest) = known.mask(&joined).strip_prefix(REDACTED) {
                    (held.text, text) = (REDACTED.to_owned(), rest.to_owned());
                }
                before.push(held.into_draft(known));
            }
        }
        let (masked, tail) = known.read(&text, false);
        unshown(&masked, shown).clone_into(&mut streamed.text);
        if !tail.is_empty() {
            let shown = if masked.is_empty() && shown > 0 {
                shown
            } else if tail.chars().nth(1).is_none() {
                streamed.text.push_str(tail);
                tail.len()
            } else {
                0
            };
            self.0.push((key, Held { draft: Skeleton::of(draft, streamed.member), text: tail.to_owned(), shown }));
        }
        if self.0.len() > HOLDING_STREAMS_MAX {
            before.push(self.0.remove(0).1.into_draft(known));
        }
        before
    }

    /// Takes the text of streams that end.
    pub(super) fn end(&mut self, known: &KnownSecrets, ended: impl Fn(&StreamKey) -> bool) -> Vec<Draft> {
        self.0.extract_if(.., |(key, _)| ended(key)).map(|(_, held)| held.into_draft(known)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_masked_with_and_without_its_scheme_and_a_short_one_is_not() {
        let headers = HeaderMap::from_iter([
            (http::header::AUTHORIZATION, "Bearer words/of-ada".parse().unwrap()),
            (http::HeaderName::from_static("x-tenant"), "north".parse().unwrap()),
        ]);
        let known = KnownSecrets::new(["a \"quoted\" value"]).with_headers(&headers);
        let masked = |text: &str| known.mask(text).into_owned();
        assert_eq!(masked(r#"{"a":"Bearer words/of-ada","b":"words\/of-ada!"}"#), r#"{"a":"[redacted]","b":"[redacted]!"}"#);
        assert_eq!(masked(r#"["a \"quoted\" value","north"]"#), r#"["[redacted]","north"]"#);
        assert!(matches!(known.mask("{}"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_end_that_may_begin_a_value_is_held_and_the_longest_value_is_masked() {
        let known = KnownSecrets::new(["abcabcab", "abcabcab-and-more", "ünder-cover"]);
        for (text, masked, tail) in [
            ("", "", ""),
            ("x", "x", ""),
            ("an a", "an ", "a"),
            ("xabcabcab", "x", "abcabcab"),
            ("abcabcab,abc", "[redacted],", "abc"),
            ("abcabcab-and-more", "[redacted]", ""),
            ("abcabcabc", "[redacted]c", ""),
            ("so ün", "so ", "ün"),
        ] {
            assert_eq!(known.read(text, false), (masked.into(), tail), "{text}");
        }
        assert_eq!(known.mask("abcabcab"), REDACTED);
    }
}

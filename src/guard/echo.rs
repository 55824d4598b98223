//! The credentials that an agent gets, so that no fact repeats them: a tool that prints its environment, an endpoint that
//! echoes a header.
//!
//! The guard knows what secrets look like. These it could not know: they are masked by their exact values.

use http::HeaderMap;
use std::borrow::Cow;

/// What stands for a masked value.
const MASK: &str = "[redacted]";
/// Shorter values are left alone: they would mask ordinary words.
const SECRET_BYTES_MIN: usize = 8;

/// Values, as they stand within JSON text; those that contain others first.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownSecrets(Vec<String>);

impl KnownSecrets {
    pub fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut known = Self::default();
        known.extend(values);
        known
    }

    /// Adds the values of headers, and the credentials after their schemes.
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
            self.0.extend([inner.to_owned(), inner.replace('/', "\\/")]);
        }
        self.0.sort_by_key(|value| std::cmp::Reverse(value.len()));
        self.0.dedup();
    }

    /// Masks the values in JSON text.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let is_in = |value: &&String| memchr::memmem::find(text.as_bytes(), value.as_bytes()).is_some();
        if self.0.iter().find(is_in).is_none() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(self.0.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), MASK)))
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
}

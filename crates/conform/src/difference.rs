//! The first place where two documents differ.

use crate::transcript::shortened;
use serde_json::Value;

/// Says where `found` differs from `expected`, or `None`.
#[must_use]
pub fn first_difference(expected: &Value, found: &Value) -> Option<String> {
    let mut path = String::new();
    let (expected, found) = differing(expected, found, &mut path)?;
    let text = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), |value| shortened(&value.to_string()));
    Some(format!("at {} it has {} instead of {}", if path.is_empty() { "/" } else { &path }, text(found), text(expected)))
}

fn differing<'v>(expected: &'v Value, found: &'v Value, path: &mut String) -> Option<(Option<&'v Value>, Option<&'v Value>)> {
    let mut below = |name: &str, expected: Option<&'v Value>, found: Option<&'v Value>| {
        let length = path.len();
        path.push('/');
        path.push_str(name);
        let different = match (expected, found) {
            (Some(expected), Some(found)) => differing(expected, found, path),
            (None, None) => None,
            one => Some(one),
        };
        if different.is_none() {
            path.truncate(length);
        }
        different
    };
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
            names.into_iter().find_map(|name| below(name, expected.get(name), found.get(name)))
        }
        (Value::Array(expected), Value::Array(found)) => {
            (0..expected.len().max(found.len())).find_map(|n| below(&n.to_string(), expected.get(n), found.get(n)))
        }
        _ if expected == found => None,
        _ => Some((Some(expected), Some(found))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_names_its_place_and_both_values() {
        let whole = json!({ "a": [1, { "b": "x" }], "c": true });
        assert_eq!(first_difference(&whole, &whole), None);
        let text = |found| first_difference(&whole, &found).unwrap();
        assert_eq!(text(json!({ "a": [1, { "b": "y" }], "c": true })), r#"at /a/1/b it has "y" instead of "x""#);
        assert_eq!(text(json!({ "a": [1], "c": true })), r#"at /a/1 it has nothing instead of {"b":"x"}"#);
        assert_eq!(text(json!({ "a": [1, { "b": "x" }], "c": true, "d": 1 })), "at /d it has 1 instead of nothing");
        assert_eq!(text(json!(7)), r#"at / it has 7 instead of {"a":[1,{"b":"x"}],"c":true}"#);
    }
}

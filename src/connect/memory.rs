//! What later calls need of the agent's answers: ids, mostly. The log stores it (`log::agent_memory`).

use crate::guard::redact_value;
use crate::log::agent_memory::Remembered;
use serde_json::{Map, Value};

/// The longest id that is remembered, in bytes.
const ID_BYTES_MAX: usize = 1024;
/// The largest other value, as JSON, in bytes.
const VALUE_BYTES_MAX: usize = 256 * 1024;

/// A remembered id.
pub(super) fn id<'m>(values: &'m Map<String, Value>, name: &str) -> Option<&'m str> {
    values.get(name)?.as_str()
}

/// Values by their names.
pub(super) fn named<const N: usize>(values: [(&str, Option<&str>); N]) -> Map<String, Value> {
    values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect()
}

/// Takes over what the agent gave; `null` forgets a value. Returns the names of values that no later call could carry:
/// they are forgotten, too.
pub(super) fn update(known: &mut Remembered, newer: Remembered) -> Vec<String> {
    let mut unusable = Vec::new();
    for (known, newer) in [(&mut known.run, newer.run), (&mut known.session, newer.session)] {
        for (name, value) in newer {
            if value.is_null() {
                known.shift_remove(&name);
                continue;
            }
            match usable(value) {
                Some(value) => drop(known.insert(name, value)),
                None => {
                    known.shift_remove(&name);
                    unusable.push(name);
                }
            }
        }
    }
    unusable
}

/// A value that later calls can carry.
///
/// An id stands in paths, headers and messages: it has no control characters, and is no relative path segment. Of other
/// values the secrets are redacted, as in every fact.
fn usable(mut value: Value) -> Option<Value> {
    let is_redacted = redact_value(&mut value);
    let is_usable = match &value {
        Value::String(id) => {
            let is_segment = !matches!(id.as_str(), "" | "." | "..");
            is_segment && !is_redacted && id.len() <= ID_BYTES_MAX && !id.contains(char::is_control)
        }
        other => other.to_string().len() <= VALUE_BYTES_MAX,
    };
    is_usable.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_no_later_call_could_carry_is_forgotten() {
        let of = |id: &str| Remembered { run: named([("id", Some(id))]), ..Remembered::default() };
        let mut known = Remembered::default();
        assert!(update(&mut known, of("a/b?c")).is_empty());
        assert_eq!(known, of("a/b?c"));
        let forgets = Remembered { run: Map::from_iter([("id".to_owned(), Value::Null)]), ..Remembered::default() };
        assert!(update(&mut known, forgets).is_empty(), "that is meant");
        assert_eq!(known, Remembered::default());
        for unusable in ["", ".", "..", "a\nb", "a\u{0}", "Bearer q7w8e9r0t1y2", &"x".repeat(ID_BYTES_MAX + 1)] {
            let mut known = of("old");
            assert_eq!(update(&mut known, of(unusable)), ["id"], "{unusable:?}");
            assert_eq!(id(&known.run, "id"), None, "the older id no longer belongs to the agent");
        }
    }
}

//! Carrying a fact's members into an activity.
//!
//! Members that a projection names are carried as they came: a later fact changes what it tells, JSON's null takes a member
//! away, and what it does not tell stays. Where only the source knows the names, everything is carried in brief: bounded, and
//! without bodies, which are read where they are kept.

use super::seen::Seen;
use super::stage::Edit;
use crate::model::{EvidenceId, Ids};
use serde_json::{Map, Value};

/// Members of a content whose names only the source knows.
const MEMBERS_MAX: usize = 64;
/// Items that are kept of a list in brief; the first ones.
const ITEMS_MAX: usize = 100;

/// Members that hold a body.
#[rustfmt::skip]
const BODIES: &[&str] = &[
    "body", "content", "contents", "text", "data", "base64", "html", "markdown", "raw", "messages", "input_text", "output_text",
];

/// Carries the members of these names.
pub(super) fn members(seen: &Seen, edit: &mut Edit<'_>, names: &[&str]) {
    for name in names {
        match seen.said(name) {
            Some(Value::Null) => edit.remove(name),
            Some(value) => edit.set(name, value.clone()),
            None => {}
        }
    }
}

/// Carries the members of these names in brief.
pub(super) fn members_in_brief(seen: &Seen, edit: &mut Edit<'_>, names: &[&str]) {
    for name in names {
        match seen.said(name) {
            Some(Value::Null) => edit.remove(name),
            Some(value) => edit.set(name, brief(value)),
            None => {}
        }
    }
}

/// Carries every member of the payload in brief, but those that the caller carries itself.
pub(super) fn all_in_brief(seen: &Seen, edit: &mut Edit<'_>, but: &[&str]) {
    for (name, value) in &seen.payload {
        let name = name.as_str();
        if but.contains(&name) || BODIES.contains(&name) || Ids::MEMBERS.contains(&name) || name == "withheld" {
            continue;
        }
        match value {
            Value::Null => edit.remove(name),
            value if edit.get(name).is_some() || edit.member_count() < MEMBERS_MAX => edit.set(name, brief(value)),
            _ => {}
        }
    }
}

/// Carries the ids of these names.
pub(super) fn ids(seen: &Seen, edit: &mut Edit<'_>, names: &[&str]) {
    seen.ids.for_each(|name, id| {
        if names.contains(&name) {
            edit.say(name, id);
        }
    });
}

/// Carries what the fact refers to: links, never bodies.
pub(super) fn refs(seen: &Seen, edit: &mut Edit<'_>) {
    edit.set_some("refs", seen.refs.as_ref().filter(|refs| !refs.is_null()).map(brief));
}

/// The first of these members that can name something: text that can be an id, or a whole number.
pub(super) fn name(seen: &Seen, names: &[&str]) -> Option<String> {
    let named = names.iter().find_map(|name| match seen.get(name) {
        Some(Value::String(text)) => EvidenceId::new(text).is_ok().then(|| text.clone()),
        Some(Value::Number(number)) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    });
    named.filter(|name| !name.is_empty())
}

/// A value with its lists and maps bounded, and without bodies.
pub(super) fn brief(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().take(ITEMS_MAX).map(brief).collect(),
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, _)| !BODIES.contains(&name.as_str())).take(MEMBERS_MAX);
            Value::Object(kept.map(|(name, value)| (name.clone(), brief(value))).collect::<Map<_, _>>())
        }
        plain => plain.clone(),
    }
}

/// The last items of a list, as many as may be kept.
pub(super) fn newest(items: &[Value], max: usize) -> Value {
    Value::Array(items[items.len().saturating_sub(max)..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_carried_in_brief_has_no_bodies_and_is_bounded() {
        let long: Vec<u32> = (0..500).collect();
        let value = json!({"ref": "r", "body": "b", "list": long, "deep": [{"text": "t", "ref": 1}]});
        let brief = brief(&value);
        assert_eq!((&brief["ref"], &brief["deep"], brief.get("body")), (&json!("r"), &json!([{"ref": 1}]), None));
        assert_eq!(brief["list"].as_array().unwrap().len(), ITEMS_MAX);
        assert_eq!(newest(&[json!(1), json!(2), json!(3)], 2), json!([2, 3]));
    }
}

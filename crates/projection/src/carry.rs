//! Copies a fact's members into an activity.
//!
//! Members that a projection names are copied unchanged: a later fact overwrites the members that it has, null removes
//! a member, and the other members stay. Where only the source knows the names, all members are copied in brief:
//! bounded, and without bodies, which clients load from their own place.

use super::activity_set::Edit;
use super::envelope_view::EnvelopeView;
use super::members::{CLIPPED, Member, REFS, Str, WITHHELD};
use proscenium_model::fact::FactFamily;
use proscenium_model::{EvidenceId, Ids, MemberRef};
use serde_json::{Map, Value};

/// The most members of a content whose names only the source knows.
const MEMBERS_MAX: usize = 64;
/// The most items of a list in brief; the first ones stay.
const ITEMS_MAX: usize = 100;

/// Members that contain a body.
#[rustfmt::skip]
const BODIES: &[&str] = &[
    "body", "content", "contents", "text", "data", "base64", "html", "markdown", "raw", "messages", "input_text", "output_text",
];

/// Copies the members that a content has of this family.
pub(super) fn copied<F: FactFamily>(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    for (name, _) in F::COPIED {
        match envelope.member(name) {
            Some(value) if value.is_null() => edit.remove_named(name),
            Some(value) => edit.set_named(name, value.into_value()),
            None => {}
        }
    }
}

/// Copies the members that a content has of this family, in brief.
pub(super) fn copied_in_brief<F: FactFamily>(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    for (name, _) in F::COPIED {
        member_in_brief(edit, name, envelope.member(name));
    }
}

/// Copies a member in brief.
pub(super) fn member_in_brief<'m>(edit: &mut Edit<'_>, name: &str, value: Option<impl Into<MemberRef<'m>>>) {
    match value.map(Into::into) {
        Some(value) if value.is_null() => edit.remove_named(name),
        Some(value) => edit.set_named(name, brief(value)),
        None => {}
    }
}

/// Copies every member of the payload in brief, except the ones that the caller copies itself.
pub(super) fn all_in_brief(envelope: &EnvelopeView, edit: &mut Edit<'_>, but: &[&str]) {
    envelope.payload.each(|name, value| {
        if but.contains(&name) || BODIES.contains(&name) || Ids::MEMBERS.contains(&name) || name == WITHHELD.name() {
            return;
        }
        match value {
            value if value.is_null() => edit.remove_named(name),
            value if edit.get_named(name).is_some() || edit.member_count() < MEMBERS_MAX => edit.set_named(name, brief(value)),
            _ => {}
        }
    });
}

/// Copies the ids of these names.
pub(super) fn ids(envelope: &EnvelopeView, edit: &mut Edit<'_>, names: &[&str]) {
    envelope.ids.for_each(|name, id| {
        if names.contains(&name) {
            edit.set(Member::<Str>::new(name), id);
        }
    });
}

/// Copies the fact's references: links, never bodies.
pub(super) fn refs(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    edit.set_some(REFS, envelope.refs.as_ref().filter(|refs| !refs.is_null()).map(brief));
}

/// Marks a text of which the fact has only the beginning.
pub(super) fn clipped_text(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    if envelope.moved("/payload/text").next().is_some() {
        edit.set(CLIPPED, true);
    }
}

/// The first of these members that can serve as an id: a string that is a valid id, or a whole number.
pub(super) fn name<'f>(members: impl IntoIterator<Item = &'f Option<Box<Value>>>) -> Option<String> {
    first_name(members.into_iter().filter_map(|member| member.as_deref().map(MemberRef::from)))
}

/// As [`name`], for members without a field.
pub(super) fn named(envelope: &EnvelopeView, members: &[&str]) -> Option<String> {
    first_name(members.iter().filter_map(|member| envelope.get(member)))
}

fn first_name<'f>(mut members: impl Iterator<Item = MemberRef<'f>>) -> Option<String> {
    let named = members.find_map(|member| match member {
        MemberRef::Text(text) => EvidenceId::new(text).is_ok().then(|| text.to_owned()),
        MemberRef::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    });
    named.filter(|name| !name.is_empty())
}

/// A copy of a value with bounded lists and maps, and without bodies.
pub(super) fn brief<'m>(value: impl Into<MemberRef<'m>>) -> Value {
    match value.into() {
        MemberRef::Value(Value::Array(items)) => items.iter().take(ITEMS_MAX).map(brief).collect(),
        MemberRef::Value(Value::Object(map)) => {
            let kept = map.iter().filter(|(name, _)| !BODIES.contains(&name.as_str())).take(MEMBERS_MAX);
            Value::Object(kept.map(|(name, value)| (name.clone(), brief(value))).collect::<Map<_, _>>())
        }
        plain => plain.into_value(),
    }
}

/// The last items of a list, at most `max`.
pub(super) fn newest(items: &[Value], max: usize) -> Vec<Value> {
    items[items.len().saturating_sub(max)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_in_brief_has_no_bodies_and_is_bounded() {
        let long: Vec<u32> = (0..500).collect();
        let value = json!({"ref": "r", "body": "b", "list": long, "deep": [{"text": "t", "ref": 1}]});
        let brief = brief(&value);
        assert_eq!((&brief["ref"], &brief["deep"], brief.get("body")), (&json!("r"), &json!([{"ref": 1}]), None));
        assert_eq!(brief["list"].as_array().unwrap().len(), ITEMS_MAX);
        assert_eq!(newest(&[json!(1), json!(2), json!(3)], 2), [2, 3]);
    }
}

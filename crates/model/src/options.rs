//! The options of a decision: what each one does, and how far a yes reaches.
//!
//! Sources list their options in any order and shape. Claude's ACP agent lists the widest yes first. Every reader gets
//! them in one order: allow, reject, answer, and within an effect from narrow to wide. An option's effect and width
//! follow from what its source declares, never from its label.

use super::id::ActionId;
use serde_json::{Map, Value, json};

/// The most options of one action; the protocol's order decides which ones stay.
pub const OPTIONS_MAX: usize = 64;

/// What an option does to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The request is granted.
    Allow,
    /// The request is refused.
    Reject,
    /// It gives an answer of the source's own.
    Answer,
}

/// How far an option reaches, from narrow to wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// For this request alone.
    Once,
    /// For the rest of the turn.
    Turn,
    /// For the rest of the session.
    Session,
    /// For all later requests.
    Always,
    /// The source does not say.
    Unknown,
}

impl Effect {
    /// Every name on the wire, in the order of showing.
    pub const NAMES: &[&str] = &["allow", "reject", "answer"];

    fn parse(name: &str) -> Option<Self> {
        Some([Self::Allow, Self::Reject, Self::Answer][Self::NAMES.iter().position(|known| *known == name)?])
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether it allows (true) or rejects (false) the request; `None` for an answer.
    #[must_use]
    pub const fn approval(self) -> Option<bool> {
        match self {
            Self::Allow => Some(true),
            Self::Reject => Some(false),
            Self::Answer => None,
        }
    }
}

impl Width {
    /// Every name on the wire, from narrow to wide.
    pub const NAMES: &[&str] = &["once", "turn", "session", "always", "unknown"];

    fn parse(name: &str) -> Option<Self> {
        let all = [Self::Once, Self::Turn, Self::Session, Self::Always, Self::Unknown];
        Some(all[Self::NAMES.iter().position(|known| *known == name)?])
    }

    const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// An option that a control can name, as the log remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedOption {
    /// The id by which a control names it.
    pub id: Box<str>,
    /// What it does to the request.
    pub effect: Effect,
    /// How far it reaches.
    pub width: Width,
}

/// The options in the protocol's form and order. `None`: the source did not send a list.
#[must_use]
pub fn normalize(options: &Value) -> Option<Vec<Value>> {
    Some(sorted(options.as_array()?).map(|(effect, width, option)| normalized(option, effect, width)).collect())
}

/// The options that a control can name, in the protocol's order.
#[must_use]
pub fn offered(options: &Value) -> Vec<OfferedOption> {
    let list = options.as_array().map_or(&[][..], Vec::as_slice);
    sorted(list)
        .filter_map(|(effect, width, option)| Some(OfferedOption { id: stated_id(option)?.into(), effect, width }))
        .collect()
}

/// Whether the options decide the request: one allows or rejects it.
#[must_use]
pub fn decide(options: &[OfferedOption]) -> bool {
    options.iter().any(|option| option.effect != Effect::Answer)
}

/// The option that a plain yes (`true`) or no takes, of options in the protocol's order.
///
/// A yes takes the option that allows once, or the only one, if its width is unknown. A no takes the narrowest.
#[must_use]
pub fn plain_choice(options: &[OfferedOption], approval: bool) -> Option<&OfferedOption> {
    let mut fitting = options.iter().filter(|option| option.effect.approval() == Some(approval));
    let (narrowest, is_only) = (fitting.next()?, fitting.next().is_none());
    let is_narrow = narrowest.width == Width::Once || is_only && narrowest.width == Width::Unknown;
    (is_narrow || !approval).then_some(narrowest)
}

/// The options for readers that cannot see the call: only what each one does, and how far it reaches.
///
/// A label may repeat the call's arguments ("Always allow `rm -r src`").
#[must_use]
pub fn reduce(options: &Value) -> Option<Vec<Value>> {
    Some(sorted(options.as_array()?).map(|(effect, width, option)| reduced(option, effect, width)).collect())
}

/// The options with their effects and widths, in the protocol's order.
fn sorted(options: &[Value]) -> impl Iterator<Item = (Effect, Width, &Value)> {
    let mut options: Vec<_> = options.iter().map(|option| (effect_of(option), width_of(option), option)).collect();
    options.sort_by_key(|(effect, width, _)| (*effect, *width));
    options.into_iter().take(OPTIONS_MAX)
}

fn text<'o>(option: &'o Value, member: &str) -> Option<&'o str> {
    option.get(member).and_then(Value::as_str)
}

/// The two halves of a kind such as `allow_once`.
fn halves(option: &Value) -> (&str, &str) {
    let kind = text(option, "kind").unwrap_or_default();
    kind.split_once('_').unwrap_or((kind, ""))
}

/// The effect of an option. Its kind takes precedence, because existing clients and runtimes go by it.
fn effect_of(option: &Value) -> Effect {
    let by_kind = Effect::parse(halves(option).0).filter(|effect| *effect != Effect::Answer);
    by_kind.or_else(|| Effect::parse(text(option, "effect")?)).unwrap_or(Effect::Answer)
}

/// The width of an option. A stated width takes precedence, because no kind says `session` or `turn`.
fn width_of(option: &Value) -> Width {
    let stated = || Width::parse(text(option, "width")?);
    let by_kind = || Width::parse(halves(option).1).filter(|_| effect_of(option) != Effect::Answer);
    stated().or_else(by_kind).unwrap_or(Width::Unknown)
}

/// The id by which a control names the option.
fn stated_id(option: &Value) -> Option<&str> {
    let id = text(option, "optionId").or_else(|| option.as_str())?;
    ActionId::new(id).is_ok().then_some(id)
}

fn normalized(option: &Value, effect: Effect, width: Width) -> Value {
    let mut members = match option {
        Value::Object(members) => members.clone(),
        // The answer is the value itself, as the source wrote it.
        plain => {
            let label = plain.as_str().map_or_else(|| plain.to_string(), str::to_owned);
            let mut members = Map::from_iter([("label".to_owned(), label.into()), ("value".to_owned(), plain.clone())]);
            members.extend(stated_id(plain).map(|id| ("optionId".to_owned(), id.into())));
            members
        }
    };
    let named = ["name", "title", "optionId"].iter().find_map(|member| text(option, member));
    if let (Some(name), false) = (named, members.contains_key("label")) {
        members.insert("label".into(), name.into());
    }
    members.insert("effect".into(), effect.as_str().into());
    members.insert("width".into(), width.as_str().into());
    members.into()
}

fn reduced(option: &Value, effect: Effect, width: Width) -> Value {
    let mut members = Map::from_iter([("label".to_owned(), label_of(effect, width).into())]);
    let kind = text(option, "kind").filter(|kind| {
        kind.split_once('_').is_some_and(|(effect, width)| Effect::parse(effect).is_some() && Width::parse(width).is_some())
    });
    for (member, value) in [("optionId", stated_id(option).filter(|_| option.is_object())), ("kind", kind)] {
        members.extend(value.map(|value| (member.to_owned(), json!(value))));
    }
    members.insert("effect".into(), effect.as_str().into());
    members.insert("width".into(), width.as_str().into());
    members.into()
}

const fn label_of(effect: Effect, width: Width) -> &'static str {
    match (effect, width) {
        (Effect::Allow, Width::Once) => "Allow once",
        (Effect::Allow, Width::Turn) => "Allow for this turn",
        (Effect::Allow, Width::Session) => "Allow for this session",
        (Effect::Allow, Width::Always) => "Always allow",
        (Effect::Allow, Width::Unknown) => "Allow",
        (Effect::Reject, Width::Turn) => "Reject for this turn",
        (Effect::Reject, Width::Session) => "Reject for this session",
        (Effect::Reject, Width::Always) => "Always reject",
        (Effect::Reject, Width::Once | Width::Unknown) => "Reject",
        (Effect::Answer, _) => "Answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(options: &Value) -> Vec<Value> {
        normalize(options).unwrap().into_iter().map(|option| option["optionId"].clone()).collect()
    }

    #[test]
    fn options_are_ordered_by_effect_and_then_from_narrow_to_wide() {
        let option = |id: &str, kind: &str| json!({"optionId": id, "kind": kind, "label": id});
        let options = json!([
            option("never", "reject_always"),
            option("edit", "edit"),
            option("odd", "allow"),
            option("always", "allow_always"),
            option("no", "reject_once"),
            option("session", "allow_session"),
            option("yes", "allow_once"),
        ]);
        assert_eq!(ids(&options), ["yes", "session", "always", "odd", "no", "never", "edit"]);
        let first = &normalize(&options).unwrap()[0];
        let expected = json!({"optionId": "yes", "kind": "allow_once", "label": "yes", "effect": "allow", "width": "once"});
        assert_eq!(*first, expected);
        assert_eq!(normalize(&json!(normalize(&options).unwrap())), normalize(&options), "the form is stable");
    }

    #[test]
    fn a_label_says_nothing_about_effect_and_width() {
        let trick =
            json!([{"optionId": "a", "label": "Allow once", "kind": "allow_always"}, {"optionId": "b", "label": "Allow once"}]);
        let offered = offered(&trick);
        assert_eq!((offered[0].effect, offered[0].width), (Effect::Allow, Width::Always));
        assert_eq!((offered[1].effect, offered[1].width), (Effect::Answer, Width::Unknown));
    }

    #[test]
    fn a_source_may_state_effect_and_width_where_no_kind_says_them() {
        let options = json!([
            {"optionId": "s", "kind": "allow_always", "width": "session"}, {"optionId": "t", "effect": "reject", "width": "turn"},
            {"optionId": "x", "kind": "reject_once", "effect": "allow", "width": "sideways"},
        ]);
        let all: Vec<_> = offered(&options).into_iter().map(|option| (option.id, option.effect, option.width)).collect();
        let expected =
            [("s", Effect::Allow, Width::Session), ("x", Effect::Reject, Width::Once), ("t", Effect::Reject, Width::Turn)];
        assert_eq!(all, expected.map(|(id, effect, width)| (id.into(), effect, width)));
    }

    #[test]
    fn a_bare_text_is_an_answer_that_keeps_its_value() {
        let expected = json!([{"label": "yes", "value": "yes", "optionId": "yes", "effect": "answer", "width": "unknown"}]);
        assert_eq!(json!(normalize(&json!(["yes"])).unwrap()), expected);
        assert_eq!(normalize(&json!({"yes": 1})), None);
    }

    #[test]
    fn at_most_64_options_stay_the_narrowest_yes_among_them() {
        let mut options = vec![json!({"optionId": "w", "kind": "allow_always"}); 100];
        options.push(json!({"optionId": "n", "kind": "allow_once"}));
        let normal = normalize(&json!(options)).unwrap();
        assert_eq!((normal.len(), &normal[0]["optionId"]), (OPTIONS_MAX, &json!("n")));
    }

    #[test]
    fn readers_without_the_call_get_no_text_of_an_option() {
        let options = json!([
            {"optionId": "a", "kind": "allow_always", "label": "Always allow rm -r src", "description": "d", "suggestion": {"x": 1}},
            {"optionId": "k", "kind": "rm -r src"}, "rm -r src",
        ]);
        let reduced = reduce(&options).unwrap();
        assert_eq!(
            reduced[0],
            json!({"label": "Always allow", "optionId": "a", "kind": "allow_always", "effect": "allow", "width": "always"})
        );
        assert!(!json!(reduced).to_string().contains("rm -r"), "{reduced:?}");
    }
}

//! Mappings of `--auth-claim`: how the claims of an identity provider become rights.
//!
//! A mapping gives members of the `proscenium` claim, if a claim has a value. The result is the JSON of such a claim, and
//! the one parser of [`rights`](super::rights) reads it: a mapping can grant nothing that a token could not name.

use super::TokenError;
use super::rights::{Claims, RawClaims};
use crate::model::Audience;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::str::FromStr;

/// The member that a token has for this server.
const OWN_CLAIM: &str = "proscenium";
/// Maximum entries that the placeholders of one entry expand to.
const EXPANSIONS_MAX: usize = 256;

/// A member that a mapping gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Audience,
    Owner,
    /// A list, by its name.
    List(&'static str),
}

const MEMBERS: [(&str, Member); 7] = [
    ("audience", Member::Audience),
    ("can", Member::List("can")),
    ("sessions", Member::List("sessions")),
    ("runs", Member::List("runs")),
    ("agents", Member::List("agents")),
    ("owner", Member::Owner),
    ("owners", Member::List("owners")),
];

/// A part of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// The text of this claim.
    Claim(Box<str>),
}

/// One value of a member.
type Entry = Vec<Piece>;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimMapping {
    /// A claim, and the text that it must equal or contain as a list.
    condition: Option<(Box<str>, Box<str>)>,
    grants: Vec<(Member, Vec<Entry>)>,
}

impl FromStr for ClaimMapping {
    type Err = String;

    /// Parses `CLAIM=VALUE:MEMBER=VALUE+VALUE,MEMBER=VALUE`, or the members alone.
    fn from_str(text: &str) -> Result<Self, String> {
        let (condition, grants) = match split_condition(text) {
            Some((condition, grants)) => (Some(condition), grants),
            None => (None, text),
        };
        let condition = condition.map(|text| match text.split_once('=') {
            Some((claim, value)) if !claim.is_empty() && !value.is_empty() => Ok((claim.into(), value.into())),
            _ => Err(format!("the condition {text:?} has an empty claim or value; write CLAIM=VALUE")),
        });
        let grants = split(grants, ',').into_iter().map(parse_grant).collect::<Result<Vec<_>, _>>()?;
        let mapping = Self { condition: condition.transpose()?, grants };
        mapping.check()?;
        Ok(mapping)
    }
}

/// Splits the condition from the members: at the first colon behind a `=`, and before `NAME=`.
///
/// The names of claims may have colons, as URLs do, and so may values.
fn split_condition(text: &str) -> Option<(&str, &str)> {
    let starts_grant = |rest: &str| {
        let name = rest.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        name.len() < rest.len() && name.starts_with('=')
    };
    outside_braces(text).filter(|(_, c)| *c == ':').find_map(|(at, _)| {
        let (before, rest) = (&text[..at], &text[at + 1..]);
        (before.contains('=') && starts_grant(rest)).then_some((before, rest))
    })
}

/// The characters outside of placeholders, with their positions.
fn outside_braces(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut depth = 0usize;
    text.char_indices().filter(move |(_, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

/// Splits a text at a character, except within placeholders.
fn split(text: &str, at: char) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for (position, _) in outside_braces(text).filter(|(_, c)| *c == at) {
        parts.push(&text[start..position]);
        start = position + at.len_utf8();
    }
    parts.push(&text[start..]);
    parts
}

fn parse_grant(text: &str) -> Result<(Member, Vec<Entry>), String> {
    let (name, values) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} names no member; write MEMBER=VALUE, such as can=read+control, or owner={{org}}"))?;
    let member = MEMBERS.iter().find(|(known, _)| *known == name).map(|(_, member)| *member).ok_or_else(|| {
        let known = MEMBERS.map(|(name, _)| name).join(", ");
        format!("{name:?} is not a member of a mapping. The members are {known}; a condition comes first, as CLAIM=VALUE:")
    })?;
    let entries = split(values, '+').into_iter().map(|value| parse_entry(name, value)).collect::<Result<Vec<_>, _>>()?;
    let is_fixed = member == Member::Audience || member == Member::List("can");
    if is_fixed && entries.iter().flatten().any(|piece| matches!(piece, Piece::Claim(_))) {
        return Err(format!("{name} cannot have a placeholder: a claim's text must not name a right"));
    }
    if matches!(member, Member::Audience | Member::Owner) && entries.len() != 1 {
        return Err(format!("{name} has one value, not {}", entries.len()));
    }
    Ok((member, entries))
}

fn parse_entry(name: &str, text: &str) -> Result<Entry, String> {
    let (mut pieces, mut rest) = (Entry::new(), text);
    while !rest.is_empty() {
        let literal = rest.find(['{', '}']).unwrap_or(rest.len());
        if literal > 0 {
            pieces.push(Piece::Text(rest[..literal].into()));
            rest = &rest[literal..];
            continue;
        }
        let claim = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        match claim {
            Some((claim, after)) if !claim.is_empty() && !claim.contains('{') => {
                pieces.push(Piece::Claim(claim.into()));
                rest = after;
            }
            _ => return Err(format!("the placeholder in {name}={text} is not complete; write {{CLAIM}}")),
        }
    }
    if pieces.is_empty() {
        return Err(format!("{name} has an empty value"));
    }
    let is_glued = pieces.windows(2).any(|pair| match pair {
        [Piece::Claim(_), Piece::Text(text)] => text.starts_with('*'),
        _ => false,
    });
    match is_glued {
        true => Err(format!("{name}={text} would also cover longer names; put a separator before the *, such as /*")),
        false => Ok(pieces),
    }
}

impl ClaimMapping {
    /// Checks the mapping with the parser of the claim, as if each claim were `x`.
    fn check(&self) -> Result<(), String> {
        let example = |entry: &Entry| -> String {
            let texts = entry.iter().map(|piece| if let Piece::Text(text) = piece { text } else { "x" });
            texts.collect()
        };
        let mut rights = Map::new();
        for (member, entries) in &self.grants {
            add(&mut rights, *member, entries.iter().map(example).collect())
                .map_err(|twice| format!("owner is given twice: {twice}"))?;
        }
        let claims = json!({ "sub": "x", "exp": 1, OWN_CLAIM: rights });
        let raw: RawClaims = serde_json::from_value(claims).map_err(|error| error.to_string())?;
        match Claims::from_raw(raw) {
            Ok(_) => Ok(()),
            Err(TokenError::Claim(why)) => Err(why.trim_start_matches(OWN_CLAIM).trim_start_matches([':', '.', ' ']).to_owned()),
            Err(other) => Err(other.to_string()),
        }
    }

    fn applies_to(&self, claims: &Map<String, Value>) -> bool {
        let Some((claim, value)) = &self.condition else { return true };
        let is_it = |found: &Value| match found {
            Value::String(text) => **text == **value,
            Value::Number(number) => number.to_string() == **value,
            Value::Bool(is_true) => is_true.to_string() == **value,
            _ => false,
        };
        match find(claims, claim) {
            Some(Value::Array(items)) => items.iter().any(is_it),
            Some(found) => is_it(found),
            None => false,
        }
    }

    /// The members with the texts of the claims. `None`: a claim is missing, so that the mapping gives nothing.
    fn expand(&self, claims: &Map<String, Value>) -> Result<Option<Vec<(Member, Vec<String>)>>, TokenError> {
        let mut members = Vec::new();
        for (member, entries) in &self.grants {
            let mut values = Vec::new();
            for entry in entries {
                let expanded = expand(entry, claims)?;
                // The owner is one.
                if expanded.is_empty() || *member == Member::Owner && expanded.len() > 1 {
                    return Ok(None);
                }
                values.extend(expanded);
            }
            members.push((*member, values));
        }
        Ok(Some(members))
    }
}

/// Finds a claim by its name, or by names within each other with dots between.
///
/// Names may have dots themselves, as URLs do: at each level, an exact name comes first, then the shortest.
fn find<'c>(claims: &'c Map<String, Value>, path: &str) -> Option<&'c Value> {
    claims
        .get(path)
        .or_else(|| path.match_indices('.').find_map(|(at, _)| find(claims.get(&path[..at])?.as_object()?, &path[at + 1..])))
}

/// The texts of a claim: one, or those of a list. Empty if it is missing, empty or something else.
fn texts(claim: &Value) -> Vec<String> {
    match claim {
        Value::String(text) if !text.is_empty() => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().filter(|item| !item.is_array()).flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn expand(entry: &Entry, claims: &Map<String, Value>) -> Result<Vec<String>, TokenError> {
    let is_pattern = entry.last().is_some_and(|last| matches!(last, Piece::Text(text) if text.ends_with('*')));
    let mut values = vec![String::new()];
    for (at, piece) in entry.iter().enumerate() {
        let (claim, texts) = match piece {
            Piece::Text(text) => ("", vec![text.to_string()]),
            Piece::Claim(claim) => (&**claim, find(claims, claim).map(texts).unwrap_or_default()),
        };
        // Within a pattern, the separator behind the claim must end its text: else `a/b` would reach into what is of `a`.
        let separator = match entry.get(at + 1) {
            Some(Piece::Text(next)) if is_pattern => next.chars().next(),
            _ => None,
        };
        for forbidden in [Some('*'), separator].into_iter().flatten() {
            if !claim.is_empty() && texts.iter().any(|text| text.contains(forbidden)) {
                let why = format!("{claim} has a `{forbidden}`, which an --auth-claim mapping must not put into a pattern");
                return Err(TokenError::Claim(why));
            }
        }
        if values.len() * texts.len() > EXPANSIONS_MAX {
            return Err(TokenError::Claim(format!("{claim} has more than {EXPANSIONS_MAX} values for one entry of a mapping")));
        }
        values = values.iter().flat_map(|value| texts.iter().map(move |text| format!("{value}{text}"))).collect();
    }
    Ok(values)
}

/// Adds values to a member: a list grows, an audience widens.
///
/// # Errors
/// The other owner, if the claim has one already.
fn add(rights: &mut Map<String, Value>, member: Member, values: Vec<String>) -> Result<(), String> {
    let parse = |audience: &Value| audience.as_str().and_then(Audience::parse);
    for value in values {
        match member {
            Member::List(name) => {
                // Another kind than a list is the token's own mistake, and the parser rejects it.
                if let Value::Array(list) = rights.entry(name).or_insert_with(|| json!([]))
                    && !list.iter().any(|known| *known == *value)
                {
                    list.push(value.into());
                }
            }
            Member::Audience => {
                let known = rights.get("audience");
                if known
                    .is_none_or(|known| parse(known).is_some_and(|known| Audience::parse(&value).is_none_or(|new| new > known)))
                {
                    rights.insert("audience".into(), value.into());
                }
            }
            Member::Owner => match rights.get("owner") {
                Some(known) if *known != *value => return Err(format!("{} and {value}", known.as_str().unwrap_or("another"))),
                _ => drop(rights.insert("owner".into(), value.into())),
            },
        }
    }
    Ok(())
}

/// All mappings of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimMap(pub Vec<ClaimMapping>);

impl ClaimMap {
    /// Reads the claims of a verified token, with the rights that the mappings add to its own.
    ///
    /// # Errors
    /// [`TokenError::Claim`].
    pub(super) fn read(&self, claims: &str) -> Result<Claims, TokenError> {
        let invalid = |error: serde_json::Error| TokenError::Claim(error.to_string());
        let mut raw: RawClaims = serde_json::from_str(claims).map_err(invalid)?;
        if !self.0.is_empty() {
            let claims: Map<String, Value> = serde_json::from_str(claims).map_err(invalid)?;
            if let Some(rights) = self.rights(&claims)? {
                raw.set_rights(RawValue::from_string(Value::Object(rights).to_string()).map_err(invalid)?);
            }
        }
        Claims::from_raw(raw)
    }

    /// The token's own rights with those of the mappings. `None`: its own claim stays as it is.
    fn rights(&self, claims: &Map<String, Value>) -> Result<Option<Map<String, Value>>, TokenError> {
        let own = match claims.get(OWN_CLAIM) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(own)) => own.clone(),
            Some(_) => return Ok(None),
        };
        let (names_owner, mut rights) = (own.contains_key("owner"), own);
        for mapping in self.0.iter().filter(|mapping| mapping.applies_to(claims)) {
            for (member, values) in mapping.expand(claims)?.into_iter().flatten() {
                if member == Member::Owner && names_owner {
                    continue;
                }
                add(&mut rights, member, values)
                    .map_err(|owners| TokenError::Claim(format!("the --auth-claim mappings give it two owners, {owners}")))?;
            }
        }
        Ok(Some(rights))
    }
}

#[cfg(test)]
mod tests;

//! The values of a content that are previews, because their whole moved to a body (`guard/offload.rs`).
//!
//! The member `bodies` has the location of each whole value, by its JSON Pointer in the content. A reader that needs
//! whole values reads the bodies; the fold itself never does.

use super::activity_set::{Edit, escaped};
use super::envelope_view::EnvelopeView;
use super::members::{CLIPPED, Member, OUTPUT_CHANNELS, OUTPUT_TEXT, Object, TypedContent};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The member with the locations.
pub const BODIES: Member<Object> = Member::new("bodies");
pub(super) const ABOUT: &str = "The strings in this content that are previews, because the whole value moved to a body: its location by the JSON Pointer of the string. A link with the mediaType application/json leads to JSON, any other to text.";
/// What [`CLIPPED`] means beside them.
pub(super) const CLIPPED_ABOUT: &str = "A value is a preview; bodies names it.";

/// The schema of [`BODIES`].
pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": { "href": { "type": "string" }, "bytes": { "type": "integer" }, "mediaType": { "type": "string" } },
            "required": ["href"],
        },
    })
}

/// Stands at both ends of a mark.
const MARK: char = '\u{E003}';

/// Follows previews into what is made from a content.
///
/// Two previews may read the same, as those of the texts before and after an edit, so each gets a mark meanwhile.
#[derive(Default)]
pub(super) struct Traces(Vec<Trace>);

struct Trace {
    mark: String,
    /// The preview with its mark.
    marked: String,
    location: Value,
}

impl Traces {
    /// The content with marks in its previews.
    pub fn mark<'c>(&mut self, content: &'c Map<String, Value>) -> Cow<'c, Map<String, Value>> {
        let Some(bodies) = content.read(BODIES) else { return Cow::Borrowed(content) };
        let mut whole = Value::Object(content.clone());
        for (pointer, location) in bodies {
            if let Some(Value::String(preview)) = whole.pointer_mut(pointer) {
                let mark = format!("{MARK}{}{MARK}", self.0.len());
                preview.push_str(&mark);
                self.0.push(Trace { mark, marked: preview.clone(), location: location.clone() });
            }
        }
        let Value::Object(marked) = whole else { unreachable!("no pointer to a body is empty") };
        Cow::Owned(marked)
    }

    /// Removes the marks from a text.
    pub fn unmark(&self, text: &mut String) {
        if text.contains(MARK) {
            *text = self.0.iter().fold(std::mem::take(text), |text, trace| text.replace(&trace.mark, ""));
        }
    }

    /// Removes the marks from the value at a pointer, and adds the locations of its previews.
    pub fn take(&self, at: &str, value: &mut Value, bodies: &mut Map<String, Value>) {
        match value {
            _ if self.0.is_empty() => {}
            Value::String(text) => {
                let trace = self.0.iter().find(|trace| trace.marked == *text);
                bodies.extend(trace.map(|trace| (at.to_owned(), trace.location.clone())));
                self.unmark(text);
            }
            Value::Array(items) => {
                for (n, item) in items.iter_mut().enumerate() {
                    self.take(&format!("{at}/{n}"), item, bodies);
                }
            }
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    self.take(&format!("{at}/{}", escaped(name)), member, bodies);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Records which of the members that an envelope sets are previews.
///
/// `members` are the payload's names, and the content's. A member that the envelope lacks keeps its state.
pub(super) fn carry(envelope: &EnvelopeView, edit: &mut Edit<'_>, members: &[(&str, &str)]) {
    if envelope.refs.is_none() && !edit.has(BODIES) {
        return;
    }
    let mut bodies = known(edit);
    for (payload, content) in members.iter().filter(|(payload, _)| envelope.get(payload).is_some()) {
        let at = format!("/{content}");
        bodies.retain(|pointer, _| !is_within(pointer, &at));
        for (pointer, link) in envelope.moved(&format!("/payload/{payload}")) {
            bodies.insert(format!("{at}{pointer}"), location(link));
        }
    }
    set(edit, bodies);
}

/// What a link says of its body that a reader of the content needs.
fn location(link: &Value) -> Value {
    let members = ["href", "bytes", "mediaType"].into_iter();
    members.filter_map(|member| Some((member.to_owned(), link.get(member)?.clone()))).collect::<Map<_, _>>().into()
}

/// A copy of the locations of a content.
pub(super) fn copied(content: &Map<String, Value>) -> Map<String, Value> {
    content.read(BODIES).cloned().unwrap_or_default()
}

fn known(edit: &Edit<'_>) -> Map<String, Value> {
    edit.read(BODIES).cloned().unwrap_or_default()
}

/// Forgets the locations within a member that has another value now.
pub(super) fn forget(edit: &mut Edit<'_>, member: &str) {
    if edit.has(BODIES) {
        let mut bodies = known(edit);
        bodies.retain(|pointer, _| !is_within(pointer, member));
        set(edit, bodies);
    }
}

/// Sets the locations of a content, after its members. A location without its preview is left out.
pub(super) fn set(edit: &mut Edit<'_>, mut bodies: Map<String, Value>) {
    bodies.retain(|pointer, _| edit.pointer(pointer).is_some_and(Value::is_string));
    match bodies.is_empty() {
        false => {
            edit.set(BODIES, bodies);
            edit.set(CLIPPED, true);
        }
        true if edit.has(BODIES) => {
            edit.remove(BODIES);
            // A streamed output may be cut, too.
            if !edit.has(OUTPUT_TEXT) && !edit.has(OUTPUT_CHANNELS) {
                edit.remove(CLIPPED);
            }
        }
        true => {}
    }
}

/// The locations within a member of a content, with the pointers of the copy `to`.
pub(super) fn moved_to(content: &Map<String, Value>, from: &str, to: &str) -> Map<String, Value> {
    let within = copied(content).into_iter().filter(|(pointer, _)| is_within(pointer, from));
    within.map(|(pointer, link)| (format!("{to}{}", &pointer[from.len()..]), link)).collect()
}

/// Whether a pointer names the value at `at`, or one inside it.
#[must_use]
pub fn is_within(pointer: &str, at: &str) -> bool {
    pointer.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Adds the locations of a member of an envelope to a content that is made from it.
pub(super) fn add(envelope: &EnvelopeView, content: &mut Map<String, Value>, (payload, member): (&str, &str)) {
    let from = format!("/payload/{payload}");
    let bodies: Map<_, _> =
        envelope.moved(&from).map(|(pointer, link)| (format!("/{member}{pointer}"), location(link))).collect();
    if !bodies.is_empty() {
        BODIES.put(content, bodies);
        CLIPPED.put(content, true);
    }
}

/// Updates the locations of a content after a patch of it, which may bring previews too.
pub(super) fn follow_patch(envelope: &EnvelopeView, edit: &mut Edit<'_>, patch: &[Value]) {
    let mut bodies = known(edit);
    let links: Vec<_> = envelope.moved("/payload/patch").collect();
    if bodies.is_empty() && links.is_empty() {
        return;
    }
    for (n, op) in patch.iter().enumerate() {
        let later = || patch[n + 1..].iter().filter(|later| later.get("path") == op.get("path")).count();
        let text = |member: &str| op.get(member).and_then(Value::as_str).unwrap_or_default();
        let (path, from) = (text("path"), text("from"));
        let brought: Vec<(String, Value)> = match text("op") {
            "move" | "copy" => {
                let source = bodies.iter().filter(|(pointer, _)| is_within(pointer, from));
                source.map(|(pointer, link)| (pointer[from.len()..].to_owned(), link.clone())).collect()
            }
            _ => {
                let value = format!("/{n}/value");
                // A patch may be one bare operation.
                let rest = |pointer: &str| pointer.strip_prefix(&value).or(pointer.strip_prefix("/value")).map(str::to_owned);
                let own = links.iter().filter_map(|(pointer, link)| Some((rest(pointer)?, link)));
                own.map(|(rest, link)| (rest, location(link))).collect()
            }
        };
        match text("op") {
            "remove" => remove(edit, &mut bodies, path),
            "move" => {
                remove(edit, &mut bodies, from);
                insert(edit, &mut bodies, path, later(), brought);
            }
            "add" | "copy" => insert(edit, &mut bodies, path, later(), brought),
            "replace" => {
                bodies.retain(|pointer, _| !is_within(pointer, path));
                bodies.extend(brought.into_iter().map(|(rest, link)| (format!("{path}{rest}"), link)));
            }
            _ => {}
        }
    }
    set(edit, bodies);
    // A pointer with `-` does not say which place a preview took, so readers get the content.
    if !links.is_empty() {
        edit.resend();
    }
}

/// Forgets the locations within a removed value. Later items of its list move up.
fn remove(edit: &Edit<'_>, bodies: &mut Map<String, Value>, path: &str) {
    bodies.retain(|pointer, _| !is_within(pointer, path));
    if let Some((list, at)) = item(edit, path) {
        shift(bodies, list, |n| if n > at { n - 1 } else { n });
    }
}

/// Adds the locations within a new value. Later items of its list move down.
///
/// `later` is the number of values that the patch adds at this path afterwards.
fn insert(edit: &Edit<'_>, bodies: &mut Map<String, Value>, path: &str, later: usize, brought: Vec<(String, Value)>) {
    let mut to = path.to_owned();
    match item(edit, path) {
        Some((list, usize::MAX)) => {
            let count = edit.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
            to = format!("{list}/{}", count.saturating_sub(1 + later));
        }
        Some((list, at)) => shift(bodies, list, |n| if n >= at { n + 1 } else { n }),
        None => bodies.retain(|pointer, _| !is_within(pointer, path)),
    }
    bodies.extend(brought.into_iter().map(|(rest, link)| (format!("{to}{rest}"), link)));
}

/// The list of an item, and the item's index; `usize::MAX` for the place after the last one.
fn item<'p>(edit: &Edit<'_>, path: &'p str) -> Option<(&'p str, usize)> {
    let (list, at) = path.rsplit_once('/')?;
    edit.pointer(list).filter(|list| list.is_array())?;
    Some((list, if at == "-" { usize::MAX } else { at.parse().ok()? }))
}

/// Renumbers the items of a list.
fn shift(bodies: &mut Map<String, Value>, list: &str, to: impl Fn(usize) -> usize) {
    let renumbered = std::mem::take(bodies).into_iter().map(|(pointer, link)| {
        let rest = pointer.strip_prefix(list).and_then(|rest| rest.strip_prefix('/'));
        let (at, below) = rest.map_or(("", ""), |rest| rest.find('/').map_or((rest, ""), |end| rest.split_at(end)));
        match at.parse() {
            Ok(at) => (format!("{list}/{}{below}", to(at)), link),
            Err(_) => (pointer, link),
        }
    });
    *bodies = renumbered.collect();
}

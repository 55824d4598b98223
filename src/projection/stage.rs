//! The stage: the activities of one log as one audience sees them, and the only way to change them.
//!
//! Whoever changes an activity's content through an [`Edit`] makes the patch in the same stroke: what readers are sent and
//! what the server holds cannot differ, and a change costs what changed, however large the content.
//!
//! Text is kept joined: an array of at most one string. A delta appends a chunk (`add …/-`), readers may hold as many as they
//! were sent, and no delta ever addresses one by its index.

use super::patch;
use crate::model::{AgentId, ReceivedAt, Sequence, Surface};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// One evolving thing on a screen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// `activityType` on the wire.
    pub kind: Box<str>,
    /// `activityId`: unique within its kind.
    pub id: Box<str>,
    pub surface: Surface,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Whether it is one that a source named: its content is the source's, and no projection of ours touches it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_custom: bool,
    /// The envelope with which it appeared.
    pub opened: Sequence,
    /// The envelope that changed it last.
    pub sequence: Sequence,
    /// When the envelopes `opened` and `sequence` were received.
    pub opened_at: ReceivedAt,
    pub updated_at: ReceivedAt,
    /// When the envelope was received with which the activity ended; `None` while it has not, or goes on again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<ReceivedAt>,
    pub content: Map<String, Value>,
    /// How many bytes the content has, as patches count them, where that was worked out.
    #[serde(skip)]
    weight: Weight,
}

/// A figure that saves working it out: it says nothing of the activity.
#[derive(Debug, Clone, Copy, Default)]
struct Weight(Option<usize>);

impl PartialEq for Weight {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Activities of one log that an audience is shown. What would be one more is left out: its facts are in the log, and the `run`
/// activity says so.
pub const ACTIVITIES_MAX: usize = 20_000;
/// How many of them are kept for those that somebody waits for: a run that has done a lot may still ask.
const RESERVED: usize = 1_000;
/// The longest streamed text of an activity, in bytes. What goes on beyond it is left out, and the activity says so.
pub const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most bytes that one character takes.
pub(super) const LONGEST_CHAR: usize = 4;
/// Stands by a text that goes on in the log.
const CLIPPED: &str = "clipped";

/// One operation of a patch (RFC 6902).
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    Add(String, Value),
    Replace(String, Value),
    Remove(String),
    /// As the source sent it, for an activity of its own.
    Given(Value),
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (op, path, value) = match self {
            Self::Add(path, value) => ("add", path, Some(value)),
            Self::Replace(path, value) => ("replace", path, Some(value)),
            Self::Remove(path) => ("remove", path, None),
            Self::Given(op) => return op.serialize(to),
        };
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("op", op)?;
        map.serialize_entry("path", path)?;
        if let Some(value) = value {
            map.serialize_entry("value", value)?;
        }
        map.end()
    }
}

/// What one envelope did to one activity.
#[derive(Debug, Clone, Default)]
pub struct Touch {
    /// The activity's place on the stage.
    pub at: usize,
    /// Its content is new as a whole: readers get a snapshot.
    pub is_snapshot: bool,
    /// Else the patch, never empty once the fold is done.
    pub patch: Vec<Op>,
    /// Whether the activity has ended with this change, or goes on again; `None` where it is as before.
    pub ended: Option<bool>,
    /// The envelope that changed it before.
    was: Sequence,
}

type Places = HashMap<Box<str>, HashMap<Box<str>, usize>>;

/// What stands before the source's name of an activity where readers would take it for one of ours.
const FOREIGN: &str = "custom:";

fn foreign(kind: &str) -> Box<str> {
    format!("{FOREIGN}{kind}").into()
}

/// All activities, in the order in which they appeared. None ever leaves.
#[derive(Debug, Clone, Default)]
pub struct Stage {
    activities: Vec<Activity>,
    /// Ours: kind → id → place.
    places: Places,
    /// Those that sources name: by the source's name for the kind, which may not be the one that readers see.
    customs: Places,
    touched: Vec<Touch>,
    now: Sequence,
    received_at: ReceivedAt,
    /// Whether something was left out.
    is_over: bool,
    /// Where changes to what is left out go.
    void: Void,
}

#[derive(Debug, Clone, Default)]
struct Void {
    content: Map<String, Value>,
    touch: Touch,
}

impl Stage {
    /// A stage with these activities, in their order; whether others were left out.
    #[must_use]
    pub fn restore(activities: Vec<Activity>, is_over: bool) -> Self {
        let mut stage = Self { is_over, ..Self::default() };
        for (at, activity) in activities.iter().enumerate() {
            let kind = activity.kind.strip_prefix(FOREIGN).filter(|_| activity.is_custom).unwrap_or(&activity.kind);
            let places = if activity.is_custom { &mut stage.customs } else { &mut stage.places };
            places.entry(kind.into()).or_default().insert(activity.id.clone(), at);
        }
        Self { activities, ..stage }
    }

    /// The activities, in the order in which they appeared.
    #[must_use]
    pub fn activities(&self) -> &[Activity] {
        &self.activities
    }

    /// Whether there was more than there may be, and something was left out.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether there is room for one more of this kind.
    fn has_room(&self, kind: &str) -> bool {
        match kind {
            // Of these a log has one.
            "run" | "diagnostics" => true,
            "action" => self.activities.len() < ACTIVITIES_MAX,
            _ => self.activities.len() < ACTIVITIES_MAX - RESERVED,
        }
    }

    /// What takes the changes of an activity for which there is no room.
    fn leave_out(&mut self) -> Edit<'_> {
        self.is_over = true;
        let Void { content, touch } = &mut self.void;
        content.clear();
        *touch = Touch { at: usize::MAX, is_snapshot: true, ..Touch::default() };
        Edit { content, path: String::new(), touch, weight: None }
    }

    /// Begins the changes of one envelope.
    pub(super) fn begin(&mut self, sequence: Sequence, received_at: ReceivedAt) {
        (self.now, self.received_at) = (sequence, received_at);
    }

    /// The envelope that is being folded.
    pub(super) const fn now(&self) -> Sequence {
        self.now
    }

    /// Whether the envelope has reached any activity so far.
    pub(super) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// What the envelope changed, in the order of the first change to each activity. `has_ended` says so of one by its content.
    pub(super) fn finish(&mut self, has_ended: impl Fn(&Activity) -> bool) -> Vec<Touch> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain_mut(|touch| {
            let activity = &mut self.activities[touch.at];
            if !touch.is_snapshot && touch.patch.is_empty() {
                activity.sequence = touch.was;
                return false;
            }
            activity.updated_at = self.received_at;
            let has_ended = has_ended(activity);
            if has_ended != activity.ended_at.is_some() {
                touch.ended = Some(has_ended);
                activity.ended_at = has_ended.then_some(self.received_at);
            }
            true
        });
        touched
    }

    fn place(&self, kind: &str, id: &str) -> Option<usize> {
        self.places.get(kind)?.get(id).copied()
    }

    /// An activity of ours by its key.
    #[must_use]
    pub fn get(&self, kind: &str, id: &str) -> Option<&Activity> {
        self.place(kind, id).map(|at| &self.activities[at])
    }

    /// The ids of activities of ours of this kind that `wanted` takes, in the order in which they appeared.
    pub fn ids(&self, kind: &str, wanted: impl Fn(&Activity) -> bool) -> Vec<Box<str>> {
        if !self.places.contains_key(kind) {
            return Vec::new();
        }
        self.activities.iter().filter(|a| *a.kind == *kind && !a.is_custom && wanted(a)).map(|a| a.id.clone()).collect()
    }

    /// Changes an activity that is there.
    pub fn edit(&mut self, kind: &str, id: &str) -> Option<Edit<'_>> {
        let at = self.place(kind, id)?;
        Some(self.edit_at(at))
    }

    /// Changes an activity, which appears now if it was not there.
    pub fn open(&mut self, kind: &str, id: &str, surface: Surface, agent: Option<&AgentId>) -> Edit<'_> {
        if let Some(at) = self.place(kind, id) {
            return self.edit_at(at);
        }
        if !self.has_room(kind) {
            return self.leave_out();
        }
        self.make_way(kind, id);
        self.places.entry(kind.into()).or_default().insert(id.into(), self.activities.len());
        self.appear(kind.into(), id, surface, agent, false)
    }

    /// Gives a key that a source has taken to ours: the source's goes on under another name.
    fn make_way(&mut self, kind: &str, id: &str) {
        let Some(at) = self.customs.get(kind).and_then(|ids| ids.get(id)).copied() else { return };
        if *self.activities[at].kind == *kind {
            self.activities[at].kind = foreign(kind);
            let touch = self.edit_at(at).touch;
            (touch.is_snapshot, touch.patch) = (true, Vec::new());
        }
    }

    fn appear(&mut self, kind: Box<str>, id: &str, surface: Surface, agent: Option<&AgentId>, is_custom: bool) -> Edit<'_> {
        let at = self.activities.len();
        self.activities.push(Activity {
            kind,
            id: id.into(),
            surface,
            agent: agent.cloned(),
            is_custom,
            opened: self.now,
            sequence: self.now,
            opened_at: self.received_at,
            updated_at: self.received_at,
            ended_at: None,
            content: Map::new(),
            weight: Weight::default(),
        });
        self.touched.push(Touch { at, is_snapshot: true, was: self.now, ..Touch::default() });
        self.edit_at(at)
    }

    /// Changes an activity that a source named, which appears now if it was not there. Its name is the source's, unless readers
    /// would take it for one of ours.
    pub fn open_custom(&mut self, kind: &str, id: &str, surface: Surface, agent: Option<&AgentId>) -> Edit<'_> {
        if let Some(at) = self.customs.get(kind).and_then(|ids| ids.get(id)).copied() {
            return self.edit_at(at);
        }
        // Whatever it is called, it is none of those for which room is kept.
        if !self.has_room(FOREIGN) {
            return self.leave_out();
        }
        let is_taken = kind.starts_with(FOREIGN) || self.place(kind, id).is_some();
        let shown = if is_taken { foreign(kind) } else { kind.into() };
        self.customs.entry(kind.into()).or_default().insert(id.into(), self.activities.len());
        self.appear(shown, id, surface, agent, true)
    }

    /// Whether an activity that a source named is there.
    #[must_use]
    pub fn has_custom(&self, kind: &str, id: &str) -> bool {
        self.customs.get(kind).is_some_and(|ids| ids.contains_key(id))
    }

    fn edit_at(&mut self, at: usize) -> Edit<'_> {
        let activity = &mut self.activities[at];
        let known = match self.touched.last() {
            Some(last) if last.at == at => Some(self.touched.len() - 1),
            // Only what carries this envelope's number can have been touched by it.
            _ if activity.sequence == self.now => self.touched.iter().position(|touch| touch.at == at),
            _ => None,
        };
        let known = known.unwrap_or_else(|| {
            self.touched.push(Touch { at, was: activity.sequence, ..Touch::default() });
            self.touched.len() - 1
        });
        activity.sequence = self.now;
        let touch = &mut self.touched[known];
        Edit { content: &mut activity.content, path: String::new(), touch, weight: Some(&mut activity.weight) }
    }
}

/// A change to an object within one activity's content: the content and the patch, together.
pub struct Edit<'s> {
    content: &'s mut Map<String, Value>,
    /// Where the object is, as a JSON Pointer.
    path: String,
    touch: &'s mut Touch,
    /// Of a whole activity.
    weight: Option<&'s mut Weight>,
}

impl Edit<'_> {
    /// Whether there was no room for the activity, and nobody will see what becomes of it.
    #[must_use]
    pub const fn is_left_out(&self) -> bool {
        self.touch.at == usize::MAX
    }

    /// Whether the activity appeared with this envelope.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.touch.is_snapshot
    }

    /// A member as it is now.
    #[must_use]
    pub fn get(&self, member: &str) -> Option<&Value> {
        self.content.get(member)
    }

    /// How many members there are now.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.content.len()
    }

    /// A member as it is now, if it is text.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.get(member).and_then(Value::as_str)
    }

    fn at(&self, member: &str) -> String {
        format!("{}/{}", self.path, escaped(member))
    }

    /// Adds what `op` makes to the patch, unless readers get the whole.
    fn note(&mut self, op: impl FnOnce(&Self) -> Op) {
        self.forget_weight();
        if !self.touch.is_snapshot {
            let op = op(self);
            self.touch.patch.push(op);
        }
    }

    /// Sets a member. Nothing happens when it is so already.
    pub fn set(&mut self, member: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.content.get(member) {
            Some(known) if *known == value => return,
            Some(_) => self.note(|edit| Op::Replace(edit.at(member), value.clone())),
            None => self.note(|edit| Op::Add(edit.at(member), value.clone())),
        }
        self.content.insert(member.into(), value);
    }

    /// Sets a member to this text; costs next to nothing when it is so already.
    pub fn say(&mut self, member: &str, text: &str) {
        if self.text(member) != Some(text) {
            self.set(member, text);
        }
    }

    /// Sets a member to what is given, if anything is.
    pub fn set_some(&mut self, member: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(member, value);
        }
    }

    /// Removes a member, if it is there.
    pub fn remove(&mut self, member: &str) {
        if self.content.shift_remove(member).is_some() {
            self.note(|edit| Op::Remove(edit.at(member)));
        }
    }

    /// Appends to a list, which comes to be if it was not there.
    pub fn push(&mut self, list: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.content.get_mut(list) {
            Some(Value::Array(items)) => {
                items.push(value.clone());
                self.note(|edit| Op::Add(format!("{}/-", edit.at(list)), value));
            }
            _ => self.set(list, Value::Array(vec![value])),
        }
    }

    /// Appends to a list of at most `max` items: the oldest go.
    pub fn push_bounded(&mut self, list: &str, value: impl Into<Value>, max: usize) {
        if let Some(Value::Array(items)) = self.content.get_mut(list)
            && items.len() >= max
        {
            items.remove(0);
            self.note(|edit| Op::Remove(format!("{}/0", edit.at(list))));
        }
        self.push(list, value);
    }

    /// Appends a chunk of text to a text member, up to [`TEXT_BYTES_MAX`].
    pub fn append(&mut self, member: &str, chunk: &str) {
        let room = TEXT_BYTES_MAX.saturating_sub(self.joined(member).len());
        if chunk.len() > room {
            let whole = chunk.floor_char_boundary(room);
            // A text that was cut before a long character takes no short one after it.
            if room >= LONGEST_CHAR {
                self.append(member, &chunk[..whole]);
            }
            return self.set(CLIPPED, true);
        }
        if room < LONGEST_CHAR && self.get(CLIPPED).is_some() {
            return;
        }
        if chunk.is_empty() && self.content.contains_key(member) {
            return;
        }
        match self.content.get_mut(member) {
            Some(Value::Array(chunks)) => {
                match chunks.last_mut() {
                    Some(Value::String(joined)) => joined.push_str(chunk),
                    _ => chunks.push(chunk.into()),
                }
                self.note(|edit| Op::Add(format!("{}/-", edit.at(member)), chunk.into()));
            }
            _ => self.set(member, text(chunk)),
        }
    }

    /// Makes a text member say exactly this: the rest is appended where it goes on, else the whole is replaced.
    pub fn set_text(&mut self, member: &str, whole: &str) {
        let known = self.joined(member);
        if let Some(rest) = whole.strip_prefix(known).filter(|_| self.content.contains_key(member)) {
            let rest = rest.to_owned();
            self.append(member, &rest);
        } else {
            self.set(member, text(whole));
            self.remove(CLIPPED);
        }
    }

    /// What a text member says.
    #[must_use]
    pub fn joined(&self, member: &str) -> &str {
        joined(self.content.get(member))
    }

    /// An object in a list, to be changed in its place.
    pub fn item(&mut self, list: &str, index: usize) -> Option<Edit<'_>> {
        let path = format!("{}/{index}", self.at(list));
        let content = self.content.get_mut(list)?.get_mut(index)?.as_object_mut()?;
        Some(Edit { content, path, touch: self.touch, weight: None })
    }

    /// An object that is a member, to be changed in its place; empty if it was not there.
    pub fn object(&mut self, member: &str) -> Option<Edit<'_>> {
        if !self.content.contains_key(member) {
            self.set(member, Value::Object(Map::new()));
        }
        let path = self.at(member);
        let content = self.content.get_mut(member)?.as_object_mut()?;
        Some(Edit { content, path, touch: self.touch, weight: None })
    }

    /// Makes this the whole content; readers get a snapshot. Nothing happens when it is so already.
    pub fn replace(&mut self, content: Map<String, Value>) {
        if *self.content == content {
            return;
        }
        *self.content = content;
        self.forget_weight();
        self.touch.is_snapshot = true;
        self.touch.patch = Vec::new();
    }

    /// What the content weighs is worked out anew when that is asked for.
    const fn forget_weight(&mut self) {
        if let Some(weight) = &mut self.weight {
            weight.0 = None;
        }
    }

    /// Applies a patch of the source's own to the whole content.
    ///
    /// # Errors
    /// Why it does not apply. Then nothing has changed.
    pub fn apply(&mut self, patch: &[Value]) -> Result<(), String> {
        patch::apply(self.content, patch, self.weight.as_deref_mut().map_or(&mut None, |weight| &mut weight.0))?;
        if !self.touch.is_snapshot {
            self.touch.patch.extend(patch.iter().cloned().map(Op::Given));
        }
        Ok(())
    }
}

/// Text as activities hold it.
#[must_use]
pub fn text(whole: &str) -> Value {
    Value::Array(if whole.is_empty() { Vec::new() } else { vec![whole.into()] })
}

/// What a text member says: its one string.
#[must_use]
pub fn joined(member: Option<&Value>) -> &str {
    member.and_then(|chunks| chunks.get(0)).and_then(Value::as_str).unwrap_or_default()
}

/// A member's name as a JSON Pointer's token.
fn escaped(member: &str) -> std::borrow::Cow<'_, str> {
    if member.contains(['~', '/']) { member.replace('~', "~0").replace('/', "~1").into() } else { member.into() }
}

//! The set of activities of one log for one audience, and the only way to change them.
//!
//! An [`Edit`] changes an activity's content and builds the patch in one step. So the frames that readers get cannot
//! differ from the server's copy, and the cost of a change follows the change, not the content.
//!
//! The server keeps text joined: an array of at most one string. A delta appends a chunk (`add …/-`). Readers may hold
//! as many chunks as they received, and no delta addresses a chunk by its index.

use super::change::{Change, ContentOperation, MemberPlace, Within};
use super::envelope_view::FactText;
use super::members::{CLIPPED, Fits, List, Member, MemberType, Object, PARTS, TEXT, Text, TypedContent, joined, text};
use super::patch;
use super::source_clock::SourceClock;
use proscenium_model::{AgentId, ReceivedAt, Sequence, Surface, TEXT_BYTES_MAX};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// One object that a client shows and that changes over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// `activityType` on the wire.
    pub kind: Box<str>,
    /// `activityId`, unique within its type.
    pub id: Box<str>,
    /// Where clients show it.
    pub surface: Surface,
    /// The agent that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Whether a source named the activity.
    ///
    /// Its content is the source's, and no projection of ours changes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_custom: bool,
    /// The envelope that opened it.
    pub opened: Sequence,
    /// The envelope that last changed it.
    pub sequence: Sequence,
    /// The times at which the server received the envelopes `opened` and `sequence`.
    pub opened_at: ReceivedAt,
    /// When it last changed.
    pub updated_at: ReceivedAt,
    /// When the server received the envelope that ended the activity; `None` while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<ReceivedAt>,
    /// The same times by the clock of the activity's source, as far as it states times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_opened_at: Option<ReceivedAt>,
    /// When it ended, by its source's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ended_at: Option<ReceivedAt>,
    /// What clients show of it.
    pub content: Map<String, Value>,
    /// The cached size of the content, in bytes as patches count them; not part of the activity.
    #[serde(skip)]
    weight: CachedSize,
}

/// A cached size. It never affects equality.
#[derive(Debug, Clone, Copy, Default)]
struct CachedSize(Option<usize>);

impl PartialEq for CachedSize {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The most activities of one log for one audience.
///
/// Further ones are left out: their facts stay in the log, and the `run` activity says so (`activitiesOmitted`).
pub const ACTIVITIES_MAX: usize = 20_000;
/// The part of [`ACTIVITIES_MAX`] reserved for actions.
///
/// A run with many activities can still ask for a decision.
const ACTIVITIES_RESERVED: usize = 1_000;
/// The length of the longest character in UTF-8, in bytes.
pub(super) const CHAR_BYTES_MAX: usize = 4;

type Indexes = HashMap<Box<str>, HashMap<Box<str>, usize>>;

/// The prefix of a source's activity type that collides with one of ours.
const SOURCE_PREFIX: &str = "custom:";

fn with_source_prefix(kind: &str) -> Box<str> {
    format!("{SOURCE_PREFIX}{kind}").into()
}

/// All activities, in the order in which they appeared. None is ever removed.
#[derive(Debug, Clone, Default)]
pub struct ActivitySet {
    activities: Vec<Activity>,
    /// Our own activities: type → id → index.
    indexes: Indexes,
    /// Activities that sources named, by the source's name of the type; readers may see a prefixed one.
    custom_indexes: Indexes,
    changes: Vec<Change>,
    now: Sequence,
    received_at: ReceivedAt,
    clock: SourceClock,
    /// The time of the envelope by the clock of its source.
    source_time: Option<ReceivedAt>,
    /// Whether an activity was left out.
    has_omissions: bool,
    /// The discarded changes of activities that were left out.
    discarded: Discarded,
}

#[derive(Debug, Clone, Default)]
struct Discarded {
    content: Map<String, Value>,
    change: Change,
}

impl ActivitySet {
    /// Restores a set from its activities in order, the mark of whether others were left out, and its sources' clock.
    #[must_use]
    pub fn restore(activities: Vec<Activity>, has_omissions: bool, clock: SourceClock) -> Self {
        let mut set = Self { clock, has_omissions, ..Self::default() };
        for (at, activity) in activities.iter().enumerate() {
            let kind = activity.kind.strip_prefix(SOURCE_PREFIX).filter(|_| activity.is_custom).unwrap_or(&activity.kind);
            let indexes = if activity.is_custom { &mut set.custom_indexes } else { &mut set.indexes };
            indexes.entry(kind.into()).or_default().insert(activity.id.clone(), at);
        }
        Self { activities, ..set }
    }

    /// The activities alone, in the order in which they appeared.
    #[must_use]
    pub fn into_activities(self) -> Vec<Activity> {
        self.activities
    }

    /// The activities, in the order in which they appeared.
    #[must_use]
    pub fn activities(&self) -> &[Activity] {
        &self.activities
    }

    /// Whether the limit was reached and an activity was left out.
    #[must_use]
    pub const fn has_omissions(&self) -> bool {
        self.has_omissions
    }

    /// Whether another activity of this type fits within the limit.
    fn has_capacity(&self, kind: &str) -> bool {
        match kind {
            // A log has one of each.
            "run" | "diagnostics" => true,
            "action" => self.activities.len() < ACTIVITIES_MAX,
            _ => self.activities.len() < ACTIVITIES_MAX - ACTIVITIES_RESERVED,
        }
    }

    /// An edit that discards the changes of an activity beyond the limit.
    fn discard(&mut self) -> Edit<'_> {
        self.has_omissions = true;
        let Discarded { content, change } = &mut self.discarded;
        content.clear();
        *change = Change { index: usize::MAX, is_snapshot: true, ..Change::default() };
        Edit { content, within: Within::Content, change, weight: None }
    }

    /// Starts the changes of one envelope, whose source stated this time.
    pub(super) fn begin_envelope(&mut self, sequence: Sequence, received_at: ReceivedAt, stated: Option<ReceivedAt>) {
        (self.now, self.received_at) = (sequence, received_at);
        self.source_time = self.clock.read(received_at, stated);
    }

    /// The envelope that is being folded.
    pub(super) const fn now(&self) -> Sequence {
        self.now
    }

    /// When the server received the envelope that is being folded.
    pub(super) const fn received_at(&self) -> ReceivedAt {
        self.received_at
    }

    /// What the log says about the clock of its sources.
    pub(super) const fn clock(&self) -> SourceClock {
        self.clock
    }

    /// Whether the envelope has changed an activity so far.
    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Returns the changes of the envelope, in the order of the first change to each activity.
    ///
    /// `has_ended` decides from an activity's content whether it has ended.
    pub(super) fn finish_envelope(&mut self, has_ended: impl Fn(&Activity) -> bool) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.changes);
        changes.retain_mut(|change| {
            let activity = &mut self.activities[change.index];
            if !change.is_snapshot && change.operations.is_empty() {
                activity.sequence = change.previous;
                return false;
            }
            activity.updated_at = self.received_at;
            if activity.source_opened_at.is_none() {
                // What opened before the first stated time has that time: no earlier one is known.
                activity.source_opened_at = self.clock.first;
                change.is_source_time_new = self.clock.first.is_some();
            }
            let has_ended = has_ended(activity);
            if has_ended != activity.ended_at.is_some() {
                change.ended = Some(has_ended);
                activity.ended_at = has_ended.then_some(self.received_at);
                activity.source_ended_at = self.source_time.max(activity.source_opened_at).filter(|_| has_ended);
            }
            true
        });
        changes
    }

    fn index_of(&self, kind: &str, id: &str) -> Option<usize> {
        self.indexes.get(kind)?.get(id).copied()
    }

    /// One of our own activities.
    #[must_use]
    pub fn get(&self, kind: &str, id: &str) -> Option<&Activity> {
        self.index_of(kind, id).map(|at| &self.activities[at])
    }

    /// The ids of our own activities of this type that pass `wanted`, in the order in which they appeared.
    pub fn ids(&self, kind: &str, wanted: impl Fn(&Activity) -> bool) -> Vec<Box<str>> {
        if !self.indexes.contains_key(kind) {
            return Vec::new();
        }
        self.activities.iter().filter(|a| *a.kind == *kind && !a.is_custom && wanted(a)).map(|a| a.id.clone()).collect()
    }

    /// Edits an existing activity.
    pub fn edit(&mut self, kind: &str, id: &str) -> Option<Edit<'_>> {
        let at = self.index_of(kind, id)?;
        Some(self.edit_at(at))
    }

    /// Edits an activity; creates it if it does not exist.
    pub fn open(&mut self, kind: &str, id: &str, surface: Surface, agent: Option<&AgentId>) -> Edit<'_> {
        if let Some(at) = self.index_of(kind, id) {
            return self.edit_at(at);
        }
        if !self.has_capacity(kind) {
            return self.discard();
        }
        self.move_source_activity(kind, id);
        self.indexes.entry(kind.into()).or_default().insert(id.into(), self.activities.len());
        self.insert(kind.into(), id, surface, agent, false)
    }

    /// Frees a key that a source's activity occupies: the source's gets the prefixed type.
    fn move_source_activity(&mut self, kind: &str, id: &str) {
        let Some(at) = self.custom_indexes.get(kind).and_then(|ids| ids.get(id)).copied() else { return };
        if *self.activities[at].kind == *kind {
            self.activities[at].kind = with_source_prefix(kind);
            let change = self.edit_at(at).change;
            (change.is_snapshot, change.operations) = (true, Vec::new());
        }
    }

    fn insert(&mut self, kind: Box<str>, id: &str, surface: Surface, agent: Option<&AgentId>, is_custom: bool) -> Edit<'_> {
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
            source_opened_at: self.source_time,
            source_ended_at: None,
            content: Map::new(),
            weight: CachedSize::default(),
        });
        self.changes.push(Change { index: at, is_snapshot: true, previous: self.now, ..Change::default() });
        self.edit_at(at)
    }

    /// Edits an activity that a source named; creates it if it does not exist.
    ///
    /// It has the source's name of the type, unless an activity of ours has the same key.
    pub fn open_custom(&mut self, kind: &str, id: &str, surface: Surface, agent: Option<&AgentId>) -> Edit<'_> {
        if let Some(at) = self.custom_indexes.get(kind).and_then(|ids| ids.get(id)).copied() {
            return self.edit_at(at);
        }
        // The reserve is not for sources' activities, even if one has the type `action`.
        if !self.has_capacity(SOURCE_PREFIX) {
            return self.discard();
        }
        let is_taken = kind.starts_with(SOURCE_PREFIX) || self.index_of(kind, id).is_some();
        let shown = if is_taken { with_source_prefix(kind) } else { kind.into() };
        self.custom_indexes.entry(kind.into()).or_default().insert(id.into(), self.activities.len());
        self.insert(shown, id, surface, agent, true)
    }

    /// Whether an activity that a source named exists.
    #[must_use]
    pub fn has_custom(&self, kind: &str, id: &str) -> bool {
        self.custom_indexes.get(kind).is_some_and(|ids| ids.contains_key(id))
    }

    /// Appends a chunk to the text of an activity, or of one of its parts.
    pub(super) fn append_text(&mut self, at: usize, part: Option<usize>, chunk: &str) {
        let mut edit = self.edit_at(at);
        match part {
            None => edit.append(TEXT, chunk),
            Some(part) => edit.item(PARTS, part).expect("the caller knows the part").append(TEXT, chunk),
        }
    }

    fn edit_at(&mut self, at: usize) -> Edit<'_> {
        let activity = &mut self.activities[at];
        let known = match self.changes.last() {
            Some(last) if last.index == at => Some(self.changes.len() - 1),
            // Only an activity with this envelope's sequence can have been changed by it.
            _ if activity.sequence == self.now => self.changes.iter().position(|change| change.index == at),
            _ => None,
        };
        let known = known.unwrap_or_else(|| {
            self.changes.push(Change { index: at, previous: activity.sequence, ..Change::default() });
            self.changes.len() - 1
        });
        activity.sequence = self.now;
        let change = &mut self.changes[known];
        Edit { content: &mut activity.content, within: Within::Content, change, weight: Some(&mut activity.weight) }
    }
}

/// An edit of an object within one activity's content: it changes the content and builds the patch.
pub struct Edit<'s> {
    content: &'s mut Map<String, Value>,
    /// The object.
    within: Within,
    change: &'s mut Change,
    /// The cached size, for an edit of a whole activity.
    weight: Option<&'s mut CachedSize>,
}

impl Edit<'_> {
    /// Whether the activity is beyond the limit, so that its changes are discarded.
    #[must_use]
    pub const fn is_discarded(&self) -> bool {
        self.change.index == usize::MAX
    }

    /// Whether the activity appeared with this envelope.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.change.is_snapshot
    }

    /// The current value of a member, if it has its declared type.
    #[must_use]
    pub fn read<T: MemberType>(&self, member: Member<T>) -> Option<T::Read<'_>> {
        self.content.read(member)
    }

    /// Whether a member exists.
    #[must_use]
    pub fn has<T>(&self, member: Member<T>) -> bool {
        self.content.has(member)
    }

    /// The current value of a member that a source named.
    #[must_use]
    pub fn get_named(&self, member: &str) -> Option<&Value> {
        self.content.get(member)
    }

    /// The current value at a JSON Pointer of the content.
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        value_at(self.content, pointer)
    }

    /// The current content.
    #[must_use]
    pub const fn content(&self) -> &Map<String, Value> {
        self.content
    }

    /// The current number of members.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.content.len()
    }

    /// Records an operation on a member, unless readers get a snapshot.
    fn record(&mut self, member: impl Into<Cow<'static, str>>, operation: impl FnOnce(MemberPlace) -> ContentOperation) {
        self.drop_cached_size();
        if !self.change.is_snapshot {
            self.change.operations.push(operation(MemberPlace { within: self.within, member: member.into() }));
        }
    }

    /// Sets a member. Does nothing if it already has this value.
    pub fn set<T>(&mut self, member: Member<T>, value: impl Fits<T>) {
        if !self.content.get(member.name()).is_some_and(|known| value.is(known)) {
            self.put(member.name().into(), value.into_json());
        }
    }

    /// Sets a member, if a value is given.
    pub fn set_some<T>(&mut self, member: Member<T>, value: Option<impl Fits<T>>) {
        if let Some(value) = value {
            self.set(member, value);
        }
    }

    /// Sets a member that a source named. Does nothing if it already has this value.
    pub fn set_named(&mut self, member: &str, value: Value) {
        if self.content.get(member) != Some(&value) {
            self.put(member.to_owned().into(), value);
        }
    }

    /// Sets a member to another value than it has.
    fn put(&mut self, member: Cow<'static, str>, value: Value) {
        match self.content.contains_key(&*member) {
            true => self.record(member.clone(), |at| ContentOperation::Replace(at, value.clone())),
            false => self.record(member.clone(), |at| ContentOperation::Add(at, value.clone())),
        }
        self.content.insert(member.into(), value);
    }

    /// Removes a member, if it exists.
    pub fn remove<T>(&mut self, member: Member<T>) {
        if self.content.shift_remove(member.name()).is_some() {
            self.record(member.name(), ContentOperation::Remove);
        }
    }

    /// Removes a member that a source named, if it exists.
    pub fn remove_named(&mut self, member: &str) {
        if self.content.shift_remove(member).is_some() {
            self.record(member.to_owned(), ContentOperation::Remove);
        }
    }

    /// Appends to a list; creates it if it does not exist.
    pub fn push(&mut self, list: Member<List>, value: Value) {
        match self.content.get_mut(list.name()) {
            Some(Value::Array(items)) => {
                items.push(value.clone());
                self.record(list.name(), |at| ContentOperation::Push(at, value));
            }
            _ => self.put(list.name().into(), Value::Array(vec![value])),
        }
    }

    /// Appends to a list of at most `max` items; removes the oldest one if the list is full.
    pub fn push_bounded(&mut self, list: Member<List>, value: Value, max: usize) {
        if let Some(Value::Array(items)) = self.content.get_mut(list.name())
            && items.len() >= max
        {
            items.remove(0);
            self.record(list.name(), ContentOperation::RemoveFirst);
        }
        self.push(list, value);
    }

    /// Appends a chunk to a text, up to [`TEXT_BYTES_MAX`].
    pub fn append(&mut self, member: Member<Text>, chunk: &str) {
        self.append_to(member.name().into(), chunk);
    }

    /// Appends a chunk to a text that a source named, up to [`TEXT_BYTES_MAX`].
    pub fn append_named(&mut self, member: &str, chunk: &str) {
        self.append_to(member.to_owned().into(), chunk);
    }

    fn append_to(&mut self, member: Cow<'static, str>, chunk: &str) {
        let room = TEXT_BYTES_MAX.saturating_sub(joined(self.content.get(&*member)).len());
        if chunk.len() > room {
            let whole = chunk.floor_char_boundary(room);
            // After a cut before a long character, a later short one must not fill the gap.
            if room >= CHAR_BYTES_MAX {
                self.append_to(member, &chunk[..whole]);
            }
            return self.set(CLIPPED, true);
        }
        if room < CHAR_BYTES_MAX && self.has(CLIPPED) {
            return;
        }
        if chunk.is_empty() && self.content.contains_key(&*member) {
            return;
        }
        match self.content.get_mut(&*member) {
            Some(Value::Array(chunks)) => {
                match chunks.last_mut() {
                    Some(Value::String(joined)) => joined.push_str(chunk),
                    _ => chunks.push(chunk.into()),
                }
                self.record(member, |at| ContentOperation::Push(at, chunk.into()));
            }
            _ => self.put(member, text(chunk)),
        }
    }

    /// Sets a text: appends the rest if the text continues the current one, else replaces it.
    pub fn set_text(&mut self, member: Member<Text>, whole: &str) {
        let known = self.read(member).unwrap_or_default();
        if let Some(rest) = whole.strip_prefix(known).filter(|_| self.has(member)) {
            self.append(member, rest);
        } else {
            self.set(member, whole);
            self.remove(CLIPPED);
        }
    }

    /// Sets a text to the text of a fact.
    ///
    /// A streamed text stays where the fact has only a beginning of it.
    pub fn set_fact_text(&mut self, member: Member<Text>, whole: FactText<'_>) {
        match whole {
            FactText::Whole(whole) => self.set_text(member, whole),
            FactText::Beginning(beginning, bytes) => {
                if !self.read(member).unwrap_or_default().starts_with(beginning) {
                    self.set(member, beginning);
                }
                if self.read(member).unwrap_or_default().len() < bytes {
                    self.set(CLIPPED, true);
                }
            }
        }
    }

    /// An edit of an object in a list.
    pub fn item(&mut self, list: Member<List>, index: usize) -> Option<Edit<'_>> {
        let content = self.content.get_mut(list.name())?.get_mut(index)?.as_object_mut()?;
        Some(Edit { content, within: Within::Item(list.name(), index), change: self.change, weight: None })
    }

    /// An edit of an object member; creates an empty object if the member does not exist.
    pub fn object(&mut self, member: Member<Object>) -> Option<Edit<'_>> {
        if !self.has(member) {
            self.set(member, Map::new());
        }
        let content = self.content.get_mut(member.name())?.as_object_mut()?;
        Some(Edit { content, within: Within::Member(member.name()), change: self.change, weight: None })
    }

    /// Replaces the whole content; readers get a snapshot. Does nothing if the content is equal.
    pub fn replace(&mut self, content: Map<String, Value>) {
        if *self.content == content {
            return;
        }
        *self.content = content;
        self.drop_cached_size();
        self.resend();
    }

    /// Lets readers get the whole content as a snapshot.
    pub fn resend(&mut self) {
        self.change.is_snapshot = true;
        self.change.operations = Vec::new();
    }

    /// Drops the cached size; the next use computes it again.
    const fn drop_cached_size(&mut self) {
        if let Some(weight) = &mut self.weight {
            weight.0 = None;
        }
    }

    /// Applies a source's own patch to the whole content.
    ///
    /// # Errors
    /// The reason why the patch does not apply. The content is then unchanged.
    pub fn apply(&mut self, patch: &[Value]) -> Result<(), String> {
        self.apply_within(patch, patch::CONTENT_BYTES_MAX)
    }

    /// As [`Self::apply`], to a content of at most `bytes_max`.
    ///
    /// # Errors
    /// The same.
    pub fn apply_within(&mut self, patch: &[Value], bytes_max: usize) -> Result<(), String> {
        let mut unknown = None;
        let known = self.weight.as_deref_mut().map_or(&mut unknown, |weight| &mut weight.0);
        patch::apply_within(self.content, patch, bytes_max, known)?;
        if !self.change.is_snapshot {
            self.change.operations.extend(patch.iter().cloned().map(ContentOperation::FromSource));
        }
        Ok(())
    }
}

/// The value at a JSON Pointer of a content.
#[must_use]
pub fn value_at<'c>(content: &'c Map<String, Value>, pointer: &str) -> Option<&'c Value> {
    let pointer = pointer.strip_prefix('/')?;
    let (member, rest) = pointer.split_at(pointer.find('/').unwrap_or(pointer.len()));
    content.get(&*unescaped(member))?.pointer(rest)
}

/// The name of a member, from a token of a JSON Pointer.
#[must_use]
pub fn unescaped(token: &str) -> std::borrow::Cow<'_, str> {
    if token.contains('~') { token.replace("~1", "/").replace("~0", "~").into() } else { token.into() }
}

/// A member's name as a token of a JSON Pointer.
#[must_use]
pub fn escaped(member: &str) -> std::borrow::Cow<'_, str> {
    if member.contains(['~', '/']) { member.replace('~', "~0").replace('/', "~1").into() } else { member.into() }
}

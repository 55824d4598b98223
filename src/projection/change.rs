//! What one envelope did to one activity.

use crate::model::Sequence;
use serde_json::Value;
use std::borrow::Cow;

/// The effect of one envelope on one activity.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// The activity's index in the set.
    pub index: usize,
    /// Whether the whole content is new, so that readers get a snapshot.
    pub is_snapshot: bool,
    /// The operations, if `is_snapshot` is false; never empty once the fold has finished.
    pub operations: Vec<ContentOperation>,
    /// Whether the activity ended (true) or opened again (false) with this change; `None` if neither.
    pub ended: Option<bool>,
    /// Whether the activity got its `source_opened_at` with this change: its source stated no time before.
    pub is_source_time_new: bool,
    /// The envelope that changed the activity before.
    pub(super) previous: Sequence,
}

/// One operation on a content. The native dialect writes it as an operation of a JSON Patch.
#[derive(Debug, Clone, PartialEq)]
pub enum ContentOperation {
    /// Adds a member that the object did not have.
    Add(MemberPlace, Value),
    /// Sets a member that the object had.
    Replace(MemberPlace, Value),
    Remove(MemberPlace),
    /// Appends a chunk to a text.
    Append(MemberPlace, Box<str>),
    /// Appends a value to a list.
    Push(MemberPlace, Value),
    /// Removes the first value of a list.
    RemoveFirst(MemberPlace),
    /// An operation that the source sent for an activity of its own.
    FromSource(Value),
}

/// A member of a content, or of an object in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPlace {
    pub within: Within,
    pub member: Cow<'static, str>,
}

/// The object of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    Content,
    /// An object in a list of the content.
    Item(&'static str, usize),
    /// A member of the content.
    Member(&'static str),
}

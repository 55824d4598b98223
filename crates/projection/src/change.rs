//! What one envelope did to one activity.

use super::members::Member;
use proscenium_model::Sequence;
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
    /// Removes a member.
    Remove(MemberPlace),
    /// Appends a value to a list, or a chunk to a text.
    Push(MemberPlace, Value),
    /// Removes the first value of a list.
    RemoveFirst(MemberPlace),
    /// An operation that the source sent for an activity of its own.
    FromSource(Value),
}

impl ContentOperation {
    /// The place that it changes; `None` for a source's own operation.
    #[must_use]
    pub const fn place(&self) -> Option<&MemberPlace> {
        match self {
            Self::Add(at, _) | Self::Replace(at, _) | Self::Remove(at) | Self::Push(at, _) | Self::RemoveFirst(at) => Some(at),
            Self::FromSource(_) => None,
        }
    }

    /// The operation at another place.
    #[must_use]
    pub fn moved_to(self, at: MemberPlace) -> Self {
        match self {
            Self::Add(_, value) => Self::Add(at, value),
            Self::Replace(_, value) => Self::Replace(at, value),
            Self::Remove(_) => Self::Remove(at),
            Self::Push(_, value) => Self::Push(at, value),
            Self::RemoveFirst(_) => Self::RemoveFirst(at),
            Self::FromSource(op) => Self::FromSource(op),
        }
    }

    /// Whether it sets or removes this member of the content as a whole.
    #[must_use]
    pub fn is_about<T>(&self, member: Member<T>) -> bool {
        matches!(self, Self::Add(at, _) | Self::Replace(at, _) | Self::Remove(at) if at.is(member))
    }

    /// The value that it sets, as the value of this member of the content.
    #[must_use]
    pub fn sets<T>(&self, member: Member<T>) -> Option<&Value> {
        match self {
            Self::Add(at, value) | Self::Replace(at, value) if at.is(member) => Some(value),
            _ => None,
        }
    }
}

/// A member of a content, or of an object in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPlace {
    /// The object that has the member.
    pub within: Within,
    /// The member's name.
    pub member: Cow<'static, str>,
}

impl MemberPlace {
    /// Whether it is this member of the content.
    #[must_use]
    pub fn is<T>(&self, member: Member<T>) -> bool {
        self.within == Within::Content && self.member == member.name()
    }
}

/// The object of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// The content itself.
    Content,
    /// An object in a list of the content.
    Item(&'static str, usize),
    /// A member of the content.
    Member(&'static str),
}

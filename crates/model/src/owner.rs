//! Whose sessions are.

use super::OwnerId;

/// Whose a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOwner<'o> {
    /// The session does not exist.
    Absent,
    /// It exists, and has no owner.
    Unowned,
    /// It belongs to this owner.
    Of(&'o OwnerId),
}

impl<'o> SessionOwner<'o> {
    /// The owner of a session that exists.
    #[must_use]
    pub const fn of(owner: Option<&'o OwnerId>) -> Self {
        match owner {
            None => Self::Unowned,
            Some(owner) => Self::Of(owner),
        }
    }
}

//! The audiences of facts and of readers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The audience of a fact or of a reader: `user` ⊂ `dashboard` ⊂ `internal`.
///
/// The order is from wide to narrow: `Internal` is the narrowest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// End users.
    User,
    /// Operators; they also see everything that users see.
    Dashboard,
    /// Logs, telemetry and verbose modes; they see everything.
    ///
    /// The default, so that an unspecified audience fails closed.
    #[default]
    Internal,
}

impl Audience {
    /// All audiences, widest first, in the order of [`Self::index`].
    pub const ALL: [Self; 3] = [Self::User, Self::Dashboard, Self::Internal];

    /// The index of this audience in tables of three.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Dashboard => "dashboard",
            Self::Internal => "internal",
        }
    }

    /// The audience with this name; `None` for an unknown name.
    ///
    /// The caller decides about those: the unknown name of a producer fails closed to [`Internal`](Self::Internal),
    /// that of a reader is refused.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.as_str() == name)
    }

    /// Whether a reader of this audience may see a fact for the audience `fact`.
    #[must_use]
    pub fn admits(self, fact: Self) -> bool {
        fact <= self
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

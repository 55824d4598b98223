//! Where a client of a session resumes: after a round of frames, and within the texts of the next one.

use proscenium_model::Cursor;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The most texts of one round that a position can name. Beyond, updates have no position until the round is complete.
pub const AHEAD_MAX: usize = 256;

/// A position in a session, as opaque text: `<cursor>[~<part>.<bytes>]…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    cursor: Cursor,
    /// How many bytes of a part's text the client has, for those that grew after the cursor.
    ahead: BTreeMap<u64, u64>,
    is_exact: bool,
}

impl Position {
    /// The position after a complete round.
    #[must_use]
    pub const fn at(cursor: Cursor) -> Self {
        Self { cursor, ahead: BTreeMap::new(), is_exact: true }
    }

    /// The cursor of the last complete round.
    #[must_use]
    pub const fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The texts that the client has beyond the cursor: part, bytes.
    pub(super) fn ahead(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ahead.iter().map(|(part, bytes)| (*part, *bytes))
    }

    /// Whether it names all that the client has.
    pub(super) const fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Notes that the client has so many bytes of a part.
    pub(super) fn advance(&mut self, part: u64, bytes: u64) {
        self.ahead.insert(part, bytes);
        self.is_exact &= self.ahead.len() <= AHEAD_MAX;
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cursor.fmt(f)?;
        self.ahead.iter().try_for_each(|(part, bytes)| write!(f, "~{part:x}.{bytes}"))
    }
}

impl FromStr for Position {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "it is no position of this server";
        let mut parts = text.split('~');
        let cursor = parts.next().unwrap_or_default().parse().map_err(|_| WRONG)?;
        let mut position = Self::at(cursor);
        for part in parts {
            let (part, bytes) = part.split_once('.').ok_or(WRONG)?;
            let (part, bytes) = (u64::from_str_radix(part, 16).map_err(|_| WRONG)?, bytes.parse().map_err(|_| WRONG)?);
            position.advance(part, bytes);
        }
        if position.is_exact { Ok(position) } else { Err(WRONG) }
    }
}

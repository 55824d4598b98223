//! Places in a log: sequence, epoch, and the cursor that a reader keeps.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A place in one log: 1, 2, 3 … assigned by the server, gapless, never reused. [`Sequence::NONE`] (0) stands before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Before the first envelope.
    pub const NONE: Self = Self(0);
    /// After every envelope there can be.
    pub const MAX: Self = Self(u64::MAX >> 1);

    /// The sequence after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The sequence so many after this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of a log. A log that is deleted and written anew has another, and so has a new data directory: whoever sees
/// another epoch must forget what it knew.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    /// Makes an epoch of random bits; equal bits are the same epoch.
    #[must_use]
    pub const fn from_random(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits it was made of.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Epoch {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(());
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| ())
    }
}

/// Where a reader of one log stands: after the envelope `after`, and past the log's end or not.
///
/// On the wire it is `<epoch>:<position>`, opaque to clients. The position is a growing decimal: twice the sequence for an
/// envelope, one more once the reader has also been told that the run has ended. So a reader that knows of the end can be
/// told apart from one that merely saw the last envelope (the former is answered 204, the latter still gets its `End`).
///
/// A fraction is read over: an id of a stream in a client's own words may have one, which says how much of the next envelope
/// that client was told. Here that envelope counts as not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub epoch: Epoch,
    pub after: Sequence,
    pub knows_end: bool,
}

impl Cursor {
    /// The cursor of a reader that has seen everything up to and including `after`.
    #[must_use]
    pub const fn at(epoch: Epoch, after: Sequence) -> Self {
        Self { epoch, after, knows_end: false }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.after.0 * 2 + u64::from(self.knows_end))
    }
}

/// The text is no cursor of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cursor; send back an id of the stream unchanged, or leave it out to start anew")]
pub struct CursorError(pub String);

impl FromStr for Cursor {
    type Err = CursorError;
    fn from_str(text: &str) -> Result<Self, CursorError> {
        let bad = || CursorError(text.chars().take(80).collect());
        let (epoch, position) = text.split_once(':').ok_or_else(bad)?;
        let epoch = epoch.parse().map_err(|()| bad())?;
        let (position, fraction) = position.split_once('.').map_or((position, None), |(whole, rest)| (whole, Some(rest)));
        if [Some(position), fraction]
            .into_iter()
            .flatten()
            .any(|text| text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()))
        {
            return Err(bad());
        }
        let position: u64 = position.parse().map_err(|_| bad())?;
        Ok(Self { epoch, after: Sequence(position / 2), knows_end: position % 2 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_the_wire_and_its_position_grows() {
        let epoch = Epoch::from_random(0xfeed);
        let event = Cursor::at(epoch, Sequence(7));
        let end = Cursor { knows_end: true, ..event };
        let next = Cursor::at(epoch, Sequence(8));
        assert_eq!(event.to_string(), "000000000000feed:14");
        for cursor in [event, end, next] {
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }
        let position = |c: Cursor| c.to_string().split_once(':').unwrap().1.parse::<u64>().unwrap();
        assert!(position(event) < position(end) && position(end) < position(next));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for text in [
            "",
            "7",
            ":",
            "feed:7",
            "000000000000feed:",
            "000000000000feed:-1",
            "000000000000feed:1e3",
            "000000000000feed:1.",
            "000000000000feed:1.x",
            "+00000000000feed:1",
        ] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}

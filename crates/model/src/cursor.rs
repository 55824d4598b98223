//! Places in a log: sequence, epoch, and the cursor of a reader.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A place in one log: 1, 2, 3 … assigned by the server, gapless, never reused.
///
/// [`Sequence::NONE`] (0) is before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Before the first envelope.
    pub const NONE: Self = Self(0);
    /// After every possible envelope.
    pub const MAX: Self = Self(u64::MAX >> 1);

    /// The sequence after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The sequence `count` after this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl Sequence {
    /// Appends its decimal number.
    pub fn append_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(itoa::Buffer::new().format(self.0).as_bytes());
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The epoch of a log.
///
/// A log that is erased and written anew gets another epoch, and so does a log in a new data directory. A reader that
/// sees another epoch must discard its state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    /// Makes an epoch of random bits; equal bits are the same epoch.
    #[must_use]
    pub const fn from_random(bits: u64) -> Self {
        Self(bits)
    }

    /// The epoch's bits.
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

impl Serialize for Epoch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        text.parse().map_err(|()| serde::de::Error::custom("an epoch has 16 hexadecimal digits"))
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

/// The place of a reader in one log: after the envelope `after`, before or past the log's end.
///
/// On the wire it is `<epoch>:<position>`, opaque to clients. The position is a growing decimal number: twice the
/// sequence of an envelope, plus one once the reader has received the end of the run. So the server can tell a reader
/// that knows the end from one that only saw the last envelope: the former gets 204, the latter still gets its `End`.
///
/// The parser ignores a fraction. Ids in a client's own dialect may have one: it says how much of the next envelope the
/// client received. Here that envelope counts as not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The life of the log that `after` counts in.
    pub epoch: Epoch,
    /// The last envelope that the reader has.
    pub after: Sequence,
    /// Whether the reader also has the end of the run.
    pub knows_end: bool,
}

impl Cursor {
    /// The cursor of a reader that has seen everything up to and including `after`.
    #[must_use]
    pub const fn at(epoch: Epoch, after: Sequence) -> Self {
        Self { epoch, after, knows_end: false }
    }

    /// The growing number of its text.
    #[must_use]
    pub const fn position(self) -> u64 {
        self.after.0 * 2 + self.knows_end as u64
    }

    /// The cursor with this [`Self::position`].
    #[must_use]
    pub const fn from_position(epoch: Epoch, position: u64) -> Self {
        Self { epoch, after: Sequence(position / 2), knows_end: position % 2 == 1 }
    }

    /// Appends its text. The standard formatter takes longer.
    pub fn append_to(self, out: &mut Vec<u8>) {
        let mut epoch = [0; 16];
        HEXLOWER.encode_mut(&self.epoch.0.to_be_bytes(), &mut epoch);
        out.extend_from_slice(&epoch);
        out.push(b':');
        Sequence(self.position()).append_to(out);
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(40);
        self.append_to(&mut text);
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// The text is not a valid cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cursor; send an id of the stream back unchanged, or omit it to start from the beginning")]
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
        Ok(Self::from_position(epoch, position.parse().map_err(|_| bad())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_round_trips_and_its_position_grows() {
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
    fn an_invalid_cursor_is_refused() {
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

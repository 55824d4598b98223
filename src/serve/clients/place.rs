//! Where a reader of a dialect stands: after an envelope, and maybe after some of the events that the next one came to.
//!
//! A native reader goes on between envelopes, and what it hears twice changes nothing. To such a client an envelope may come to
//! several events, of which it appends each: one that is cut off between two of them must not hear the first again. So each has
//! an id. It says how many events there were since the last envelope, and by a digest which: whoever comes back is told that
//! envelope again, delta by delta as it was the first time, without those. Where it would come to others, for the reader was
//! brought forward then or the log was compacted since, it is shown everything instead.

use crate::model::Cursor;
use crate::model::cursor::CursorError;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A place that a dialect's reader names by an id.
///
/// On the wire it is the cursor; within an envelope a decimal fraction follows, so that the position still grows: the count, and
/// the digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub cursor: Cursor,
    pub told: Told,
}

/// Events that were said after an envelope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    pub count: usize,
    digest: u64,
}

/// Digits of a digest.
const DIGEST_DIGITS: usize = 10;
const DIGESTS: u64 = 10_000_000_000;
/// Digits of a count, at least.
const COUNT_DIGITS: usize = 6;

impl Told {
    /// These and one more.
    #[must_use]
    pub fn and(self, event: &[u8]) -> Self {
        Self { count: self.count + 1, digest: xxh3_64_with_seed(event, self.digest) % DIGESTS }
    }

    /// Whether it was with these that the events begin.
    #[must_use]
    pub fn begins(self, events: &[Value]) -> bool {
        let first = events.iter().take(self.count);
        first.fold(Self::default(), |told, event| told.and(event.to_string().as_bytes())) == self
    }
}

impl From<Cursor> for Place {
    fn from(cursor: Cursor) -> Self {
        Self { cursor, told: Told::default() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cursor, told } = self;
        match told.count {
            0 => write!(f, "{cursor}"),
            count => write!(f, "{cursor}.{count:0COUNT_DIGITS$}{:0DIGEST_DIGITS$}", told.digest),
        }
    }
}

impl FromStr for Place {
    type Err = CursorError;
    fn from_str(text: &str) -> Result<Self, CursorError> {
        // Which refuses all but digits.
        let cursor = text.parse()?;
        let Some((_, fraction)) = text.split_once('.') else { return Ok(Self::from(cursor)) };
        let told = fraction.len().checked_sub(DIGEST_DIGITS).map(|at| fraction.split_at(at));
        let told = told.and_then(|(count, digest)| Some(Told { count: count.parse().ok()?, digest: digest.parse().ok()? }));
        let told = told.filter(|told| told.count > 0);
        Ok(Self { cursor, told: told.ok_or_else(|| CursorError(text.chars().take(80).collect()))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Epoch, Sequence};
    use serde_json::json;

    #[test]
    fn a_place_survives_the_wire_and_its_number_grows() {
        let cursor = Cursor::at(Epoch::from_random(0xfeed), Sequence(7));
        let (one, two) = (Told::default().and(b"one"), Told::default().and(b"one").and(b"two"));
        let next = Cursor::at(cursor.epoch, Sequence(8));
        let places = [cursor.into(), Place { cursor, told: one }, Place { cursor, told: two }, next.into()];
        for place in places {
            assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
            assert_eq!(place.to_string().parse::<Cursor>().unwrap(), place.cursor, "to a native reader it is the envelope");
        }
        let numbers = places.map(|place| place.to_string().split_once(':').unwrap().1.parse::<f64>().unwrap());
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in
            ["feed:7.1", "000000000000feed:14.", "000000000000feed:14.1", "000000000000feed:14.x000001", "000000000000feed:.5"]
        {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        for fraction in ["99999999999999999999999999999999999999", "0000000000000001"] {
            assert!(format!("000000000000feed:14.{fraction}").parse::<Place>().is_err(), "{fraction}");
        }
    }

    #[test]
    fn events_are_told_apart_by_their_number_their_order_and_what_they_say() {
        let [one, two] = [json!({ "delta": "one" }), json!({ "delta": "two" })];
        let told = Told::default().and(one.to_string().as_bytes()).and(two.to_string().as_bytes());
        assert!(told.begins(&[one.clone(), two.clone()]) && told.begins(&[one.clone(), two.clone(), one.clone()]));
        assert!(!told.begins(&[two, one.clone()]) && !told.begins(&[one]) && !told.begins(&[]));
    }
}

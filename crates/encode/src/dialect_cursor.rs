//! The position of a dialect's reader: after an envelope, and after some of the events of the next one.
//!
//! A native reader resumes between envelopes, and a repeated frame changes nothing. For these clients one envelope may
//! become several events, and the client appends each. A client that is cut off between two of them must not receive
//! the first one again. So every event has an id: the cursor, the number of events sent since that envelope, and their
//! digest. On resume the server translates that envelope again, delta by delta as the first time, and skips those
//! events.
//!
//! A reader that joins gets the state of the log as events, and may be cut off between two of those. Their ids also name
//! the envelope of that state. On resume the server shows that state again, and skips the events that the client has.
//!
//! If the events now differ, because the log has been compacted since, the client gets a full snapshot.

use proscenium_model::cursor::CursorError;
use proscenium_model::{Cursor, Sequence};
use serde_json::Value;
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A position that a dialect's reader names by an id.
///
/// On the wire it is the cursor. Within an envelope a decimal fraction follows, so that the number still grows: the
/// count, then the digest. Within a state the position of its envelope follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialectCursor {
    /// The last envelope whose events were all sent.
    pub cursor: Cursor,
    /// The events of the next envelope, or of a state, that were sent.
    pub sent: SentEvents,
    /// The envelope of the state to which the sent events belong. `None`: they belong to the next envelope.
    pub state: Option<Sequence>,
}

/// The events already sent after an envelope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentEvents {
    /// How many were sent.
    pub count: usize,
    digest: u64,
}

/// Decimal digits of a digest.
const DIGEST_DIGITS: usize = 10;
const DIGESTS: u64 = 10_000_000_000;
/// Minimum decimal digits of a count.
const COUNT_DIGITS: usize = 6;
/// Decimal digits of the envelope of a state: those of the largest 64-bit number.
const STATE_DIGITS: usize = 20;
/// A longer fraction has the envelope of a state. No count is that long.
const ENVELOPE_FRACTION_MAX: usize = STATE_DIGITS + DIGEST_DIGITS;

impl SentEvents {
    /// Adds one event.
    #[must_use]
    pub fn with_event(self, event: &[u8]) -> Self {
        Self { count: self.count + 1, digest: xxh3_64_with_seed(event, self.digest) % DIGESTS }
    }

    /// Returns whether `events` begins with exactly these events.
    #[must_use]
    pub fn is_prefix_of(self, events: &[Value]) -> bool {
        let first = events.iter().take(self.count);
        first.fold(Self::default(), |sent, event| sent.with_event(event.to_string().as_bytes())) == self
    }
}

impl DialectCursor {
    /// The position before the first event of the state as of this envelope.
    #[must_use]
    pub fn before_state(of: Cursor) -> Self {
        let cursor = Cursor::at(of.epoch, Sequence::NONE);
        Self { state: Some(of.after), ..cursor.into() }
    }

    /// The envelope of the state that the reader has a part of.
    #[must_use]
    pub fn within_state(&self) -> Option<Cursor> {
        self.state.map(|state| Cursor::at(self.cursor.epoch, state))
    }

    /// Appends an `id:` line.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"id: ");
        self.append_to(out);
        out.push(b'\n');
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        let Self { cursor, sent, state } = self;
        cursor.append_to(out);
        if sent.count > 0 {
            write!(out, ".{:0COUNT_DIGITS$}{:0DIGEST_DIGITS$}", sent.count, sent.digest).expect("a Vec takes every byte");
            if let Some(state) = state {
                write!(out, "{:0STATE_DIGITS$}", state.0).expect("a Vec takes every byte");
            }
        }
    }
}

impl From<Cursor> for DialectCursor {
    fn from(cursor: Cursor) -> Self {
        Self { cursor, sent: SentEvents::default(), state: None }
    }
}

impl fmt::Display for DialectCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(64);
        self.append_to(&mut text);
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for DialectCursor {
    type Err = CursorError;
    fn from_str(text: &str) -> Result<Self, CursorError> {
        // Parsing the cursor already rejects a fraction with non-digits.
        let cursor = text.parse()?;
        let Some((_, fraction)) = text.split_once('.') else { return Ok(Self::from(cursor)) };
        let read = || {
            let (fraction, state) = match fraction.len() {
                ..=ENVELOPE_FRACTION_MAX => (fraction, None),
                length => fraction.split_at_checked(length - STATE_DIGITS).map(|(rest, state)| (rest, Some(state)))?,
            };
            let (count, digest) = fraction.split_at_checked(fraction.len().checked_sub(DIGEST_DIGITS)?)?;
            let sent = SentEvents { count: count.parse().ok().filter(|count| *count > 0)?, digest: digest.parse().ok()? };
            Some(Self { cursor, sent, state: state.map(str::parse).transpose().ok()?.map(Sequence) })
        };
        read().ok_or_else(|| CursorError(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proscenium_model::{Epoch, Sequence};
    use serde_json::json;

    #[test]
    fn a_position_survives_the_wire_and_its_number_grows() {
        let cursor = Cursor::at(Epoch::from_random(0xfeed), Sequence(7));
        let (one, two) = (SentEvents::default().with_event(b"one"), SentEvents::default().with_event(b"one").with_event(b"two"));
        let next = Cursor::at(cursor.epoch, Sequence(8));
        let places = [
            cursor.into(),
            DialectCursor { sent: one, ..cursor.into() },
            DialectCursor { sent: two, ..cursor.into() },
            next.into(),
        ];
        for cursor in places {
            assert_eq!(cursor.to_string().parse::<DialectCursor>().unwrap(), cursor);
            assert_eq!(
                cursor.to_string().parse::<Cursor>().unwrap(),
                cursor.cursor,
                "a native reader reads the envelope's cursor"
            );
        }
        let numbers = places.map(|cursor| cursor.to_string().split_once(':').unwrap().1.parse::<f64>().unwrap());
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }

    #[test]
    fn a_position_within_a_state_names_its_envelope_and_lies_before_every_envelope() {
        let cursor = Cursor::at(Epoch::from_random(0xfeed), Sequence(7));
        for (count, state) in [(1, Sequence(7)), (1_000_000, Sequence::MAX)] {
            let sent = SentEvents { count, digest: 5 };
            let position = DialectCursor { sent, ..DialectCursor::before_state(Cursor { after: state, ..cursor }) };
            let text = position.to_string();
            assert_eq!(text.parse::<DialectCursor>().unwrap(), position, "{text}");
            assert_eq!(position.within_state(), Some(Cursor { after: state, ..cursor }));
            assert_eq!(text.parse::<Cursor>().unwrap().after, Sequence::NONE, "a native reader begins");
        }
        assert_eq!(DialectCursor::from(cursor).within_state(), None);
    }

    #[test]
    fn malformed_positions_are_rejected() {
        for text in
            ["feed:7.1", "000000000000feed:14.", "000000000000feed:14.1", "000000000000feed:14.x000001", "000000000000feed:.5"]
        {
            assert!(text.parse::<DialectCursor>().is_err(), "{text}");
        }
        for fraction in [
            "99999999999999999999999999999999999999",
            "999999999999999999999999999999999999999999999999",
            "0000010000000005é0000000000000000000",
            "0000000000000001",
        ] {
            assert!(format!("000000000000feed:14.{fraction}").parse::<DialectCursor>().is_err(), "{fraction}");
        }
    }

    #[test]
    fn sent_events_differ_by_count_order_and_content() {
        let [one, two] = [json!({ "delta": "one" }), json!({ "delta": "two" })];
        let sent = SentEvents::default().with_event(one.to_string().as_bytes()).with_event(two.to_string().as_bytes());
        assert!(sent.is_prefix_of(&[one.clone(), two.clone()]) && sent.is_prefix_of(&[one.clone(), two.clone(), one.clone()]));
        assert!(!sent.is_prefix_of(&[two, one.clone()]) && !sent.is_prefix_of(&[one]) && !sent.is_prefix_of(&[]));
    }
}

//! The time at which the server received an envelope, in milliseconds, as in `receivedAt`.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::{Deserialize, Serialize};
use std::fmt;

const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Milliseconds since 1970, UTC. Formats to the same text as the `receivedAt` that it was parsed from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReceivedAt(i64);

impl ReceivedAt {
    /// Parses an RFC 3339 time; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(|time: Timestamp| Self(time.as_millisecond()))
    }

    /// Appends its text. The standard formatter takes longer.
    pub fn append_to(self, out: &mut Vec<u8>) {
        let time = Timestamp::from_millisecond(self.0).unwrap_or_default();
        PRINTER.print_timestamp(&time, out).expect("writing to a Vec cannot fail");
    }
}

impl From<Timestamp> for ReceivedAt {
    fn from(time: Timestamp) -> Self {
        Self(time.as_millisecond())
    }
}

impl fmt::Display for ReceivedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(24);
        self.append_to(&mut text);
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_round_trips_as_text() {
        for text in ["1970-01-01T00:00:00.000Z", "2026-11-21T10:00:00.007Z", "1969-12-31T23:59:59.999Z"] {
            assert_eq!(ReceivedAt::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(ReceivedAt::parse("2026-11-21T12:00:00+02:00").unwrap().to_string(), "2026-11-21T10:00:00.000Z");
        assert_eq!(ReceivedAt::parse("yesterday"), None);
    }

    #[test]
    fn a_time_is_stored_as_a_number() {
        let time = ReceivedAt::parse("2026-11-21T10:00:00.007Z").unwrap();
        let saved = serde_json::to_string(&time).unwrap();
        assert_eq!(saved, "1795255200007");
        assert_eq!(serde_json::from_str::<ReceivedAt>(&saved).unwrap(), time);
    }
}

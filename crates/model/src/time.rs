//! A time of an envelope in milliseconds: when the server received it, as in `receivedAt`, or its source's own.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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

    /// The time so many milliseconds later, within the range of the type.
    #[must_use]
    pub const fn after_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// The milliseconds since an earlier time, within the range of the type.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
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

/// From this number on, a time is in milliseconds instead of seconds: 10^11 seconds are in the year 5138.
const MILLIS_FROM: f64 = 1e11;

/// Reads a time as sources write it.
///
/// It is RFC 3339, where a time without a zone is UTC, or a number of Unix seconds, or of milliseconds from 10^11 on.
/// `None` for anything else.
#[must_use]
pub fn parse_time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => text.parse().ok().or_else(|| {
            // A date alone is no time.
            let time: DateTime = text.parse().ok().filter(|_| text.contains(':'))?;
            Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
        }),
        Value::Number(number) => {
            let number = number.as_f64()?;
            let millis = if number.abs() >= MILLIS_FROM { number } else { number * 1000.0 };
            #[expect(clippy::cast_possible_truncation, reason = "jiff refuses what is out of its range")]
            Timestamp::from_millisecond(millis.round() as i64).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_time_round_trips_as_text() {
        for text in ["1970-01-01T00:00:00.000Z", "2026-11-21T10:00:00.007Z", "1969-12-31T23:59:59.999Z"] {
            assert_eq!(ReceivedAt::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(ReceivedAt::parse("2026-11-21T12:00:00+02:00").unwrap().to_string(), "2026-11-21T10:00:00.000Z");
        assert_eq!(ReceivedAt::parse("yesterday"), None);
    }

    #[test]
    fn a_time_of_a_source_is_rfc_3339_or_unix_time_and_utc_without_a_zone() {
        for (value, expected) in [
            (json!("2026-01-01T00:00:00Z"), "2026-01-01T00:00:00Z"),
            (json!("2026-01-01T02:00:00+02:00"), "2026-01-01T00:00:00Z"),
            (json!("2026-01-01T00:00:00"), "2026-01-01T00:00:00Z"),
            (json!("2026-01-01 00:00:00.25"), "2026-01-01T00:00:00.25Z"),
            (json!(1_767_225_600), "2026-01-01T00:00:00Z"),
            (json!(1_767_225_600.5), "2026-01-01T00:00:00.5Z"),
            (json!(1_767_225_600_250_i64), "2026-01-01T00:00:00.25Z"),
            (json!(99_999_999_999_i64), "5138-11-16T09:46:39Z"),
            (json!(100_000_000_000_i64), "1973-03-03T09:46:40Z"),
            (json!(0), "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(parse_time(&value).map(|time| time.to_string()).as_deref(), Some(expected), "{value}");
        }
        for value in [json!("soon"), json!(""), json!("2026-01-01"), json!(1e300), json!(true), json!({"at": 1}), json!(null)] {
            assert_eq!(parse_time(&value), None, "{value}");
        }
    }

    #[test]
    fn a_time_is_stored_as_a_number() {
        let time = ReceivedAt::parse("2026-11-21T10:00:00.007Z").unwrap();
        let saved = serde_json::to_string(&time).unwrap();
        assert_eq!(saved, "1795255200007");
        assert_eq!(serde_json::from_str::<ReceivedAt>(&saved).unwrap(), time);
    }
}

//! Offsets of Durable Streams, and the `Stream-Cursor` of their live answers.
//!
//! An offset is a cursor in another form: `<epoch>_<position>`, with 20 digits, so that offsets sort as text. A run's
//! offsets count in its log and have the log's epoch. A session's offsets count in the commit order of all logs and have
//! the epoch of the store.

use crate::model::{Cursor, Epoch};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::quoted;
use http::StatusCode;

/// Digits of a position: those of the largest 64-bit number.
const DIGITS: usize = 20;
/// Length of the intervals that `Stream-Cursor` counts, in seconds.
const INTERVAL_SECS: i64 = 20;
/// Their first moment, 2024-10-09 in Unix seconds.
const FIRST_INTERVAL_AT: i64 = 1_728_432_000;
/// The most intervals by which a cursor moves past the client's: an hour.
const JITTER_INTERVALS_MAX: u64 = 180;

/// Where a read starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurableOffset {
    /// Before the first item.
    Start,
    /// After the last item.
    Now,
    After(Cursor),
}

impl DurableOffset {
    /// Reads the query's `offset`.
    ///
    /// # Errors
    /// 400 for any other text.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        match text {
            "-1" => Ok(Self::Start),
            "now" => Ok(Self::Now),
            _ => cursor_of(text).map(Self::After).ok_or_else(|| {
                let detail = format!(
                    "The query's offset is {}. It must be -1, now, or a Stream-Next-Offset of this stream, unchanged.",
                    quoted(text)
                );
                Problem::bad_request("bad_cursor", detail).with("member", "offset")
            }),
        }
    }
}

/// The text of the offset at a cursor.
#[must_use]
pub fn offset_of(cursor: Cursor) -> String {
    format!("{}_{:0DIGITS$}", cursor.epoch, cursor.position())
}

/// The cursor at an offset. `None`: the text is not an offset that this server made.
#[must_use]
pub fn cursor_of(text: &str) -> Option<Cursor> {
    let (epoch, position) = text.split_once('_')?;
    let position =
        Some(position).filter(|digits| digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let cursor = Cursor::from_position(epoch.parse::<Epoch>().ok()?, position.parse().ok()?);
    // One position has one text, or caches would hold it twice.
    Some(cursor).filter(|cursor| offset_of(*cursor) == text)
}

/// 410 for an offset of another epoch than that of the stream.
#[must_use]
pub fn other_epoch(given: Cursor, epoch: Epoch) -> Problem {
    let detail = format!(
        "The query's offset is of epoch {}, and this stream has epoch {epoch}. What was read may be gone. Start again at -1.",
        given.epoch
    );
    gone(detail, epoch)
}

/// 410 for an offset beyond the end of the stream, which was restored from an older backup.
#[must_use]
pub fn beyond_end(given: Cursor, end: Cursor) -> Problem {
    let detail = format!(
        "The query's offset is {}, and this stream ends at {}. What was read may be gone. Start again at -1.",
        offset_of(given),
        offset_of(end)
    );
    gone(detail, end.epoch)
}

/// 410 for a log that was erased and written anew during the read.
#[must_use]
pub fn was_reset() -> Problem {
    let detail = "The log was erased and written anew while it was read. Start again at -1.";
    Problem::new(StatusCode::GONE, "epoch_changed", detail).with("member", "offset")
}

fn gone(detail: String, epoch: Epoch) -> Problem {
    Problem::new(StatusCode::GONE, "epoch_changed", detail).with("member", "offset").with("expected", epoch.to_string())
}

/// The `Stream-Cursor` of a live answer at a time in Unix seconds: the interval's number, or one past the client's.
///
/// A cache keys live answers by it, so a client that repeats a cursor would get the same cached answer forever.
///
/// # Errors
/// 400 for a client's cursor that is not a number, or has no larger one.
pub fn stream_cursor(now: i64, given: Option<&str>, random: u128) -> Result<u64, Problem> {
    let interval = u64::try_from((now - FIRST_INTERVAL_AT) / INTERVAL_SECS).unwrap_or(0);
    let Some(given) = given else { return Ok(interval) };
    let bad = || {
        let detail = format!("The query's cursor is {}. It must be a Stream-Cursor of this stream, unchanged.", quoted(given));
        Problem::bad_request("bad_cursor", detail).with("member", "cursor")
    };
    let is_number = !given.is_empty() && given.bytes().all(|digit| digit.is_ascii_digit());
    let given_interval: u64 = given.parse().ok().filter(|_| is_number).ok_or_else(bad)?;
    if given_interval < interval {
        return Ok(interval);
    }
    let jitter = 1 + u64::try_from(random % u128::from(JITTER_INTERVALS_MAX)).unwrap_or(0);
    given_interval.checked_add(jitter).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Sequence;

    #[test]
    fn offsets_sort_as_text_and_come_back_as_the_same_cursor() {
        let epoch = Epoch::from_random(0xfeed);
        let at = |sequence, knows_end| Cursor { epoch, after: Sequence(sequence), knows_end };
        let cursors =
            [at(0, false), at(1, false), at(1, true), at(2, false), at(9, true), at(10, false), at(Sequence::MAX.0, true)];
        let texts = cursors.map(offset_of);
        assert!(texts.is_sorted());
        assert_eq!(texts.clone().map(|text| cursor_of(&text).unwrap()), cursors);
        assert_eq!(texts[1], "000000000000feed_00000000000000000002");
        assert_eq!(DurableOffset::parse(&texts[1]).unwrap(), DurableOffset::After(cursors[1]));
    }

    #[test]
    fn any_other_text_is_refused_by_the_name_of_its_member() {
        let odd = [
            "",
            "0",
            "-2",
            "NOW",
            "000000000000feed:2",
            "000000000000feed_2",
            "feed_00000000000000000002",
            "000000000000FEED_00000000000000000002",
            "000000000000feed_99999999999999999999",
            "000000000000feed_+0000000000000000002",
            "000000000000feed_00000000000000000002_",
            " -1",
        ];
        for text in odd {
            let problem = DurableOffset::parse(text).unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.members["member"].as_str()), (400, Some("offset")), "{text}");
        }
    }

    #[test]
    fn a_stream_cursor_counts_intervals_and_moves_past_the_clients() {
        let now = FIRST_INTERVAL_AT + 1000 * INTERVAL_SECS + 3;
        let cursor = |given| stream_cursor(now, given, 0).unwrap();
        assert_eq!((cursor(None), cursor(Some("0")), cursor(Some("999"))), (1000, 1000, 1000));
        assert_eq!((cursor(Some("1000")), cursor(Some("5000"))), (1001, 5001));
        let farthest = stream_cursor(now, Some("1000"), u128::from(JITTER_INTERVALS_MAX) - 1).unwrap();
        assert_eq!(farthest, 1000 + JITTER_INTERVALS_MAX);
        assert_eq!(stream_cursor(0, None, 0).unwrap(), 0, "a clock before the first interval");
        for odd in ["", "x", "+1", "-1", "1.5", "18446744073709551615", "99999999999999999999"] {
            assert_eq!(stream_cursor(now, Some(odd), 0).unwrap_err().members["member"], "cursor", "{odd}");
        }
    }
}

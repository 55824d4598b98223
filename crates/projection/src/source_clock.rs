//! The clock of a log's producers: the times of envelopes as their source states them.
//!
//! Few sources give each fact a time: Claude Code gives it to three lines of 40, a Responses endpoint to the first and
//! the last event. So an envelope without one gets its time of arrival, shifted by the difference that the last stated
//! time had to its own. In an import, where all facts arrive at once, that is the last stated time itself.

use proscenium_model::ReceivedAt;
use serde::{Deserialize, Serialize};

/// The resolution of sources that state whole seconds, in milliseconds.
const SECOND_MS: i64 = 1000;

/// What the stated times of a log say about its producers' clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceClock {
    /// The first time of the log by this clock; `None` until an envelope states one.
    pub first: Option<ReceivedAt>,
    /// The difference to the server's clock, in milliseconds.
    ahead_ms: i64,
}

impl SourceClock {
    /// The time of the next envelope by its source's clock; `None` before the first stated time.
    pub fn read(&mut self, received_at: ReceivedAt, stated: Option<ReceivedAt>) -> Option<ReceivedAt> {
        let expected = self.first.map(|_| received_at.after_ms(self.ahead_ms));
        let now = match (expected, stated) {
            (Some(expected), Some(stated)) if is_rounded(stated, expected) => expected,
            (_, Some(stated)) => stated,
            (expected, None) => expected?,
        };
        self.ahead_ms = now.ms_since(received_at);
        self.first.get_or_insert(now);
        Some(now)
    }
}

/// Whether a stated time is `expected`, rounded down to a second: it says less than the clock knows.
fn is_rounded(stated: ReceivedAt, expected: ReceivedAt) -> bool {
    stated.ms_since(ReceivedAt::default()) % SECOND_MS == 0 && (0..SECOND_MS).contains(&expected.ms_since(stated))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads envelopes as (arrival, stated time), in milliseconds; returns their times.
    fn read(envelopes: &[(i64, Option<i64>)]) -> Vec<Option<i64>> {
        let (mut clock, zero) = (SourceClock::default(), ReceivedAt::default());
        let times = envelopes.iter().map(|(at, stated)| clock.read(zero.after_ms(*at), stated.map(|ms| zero.after_ms(ms))));
        times.map(|time| time.map(|time| time.ms_since(zero))).collect()
    }

    #[test]
    fn an_envelope_without_a_time_has_the_last_stated_time_and_what_passed_since() {
        let live = read(&[(10, None), (20, Some(5)), (50, None), (60, Some(47)), (61, None)]);
        assert_eq!(live, [None, Some(5), Some(35), Some(47), Some(48)]);
        let import = read(&[(9_000, Some(1)), (9_000, None), (9_000, Some(400)), (9_000, None)]);
        assert_eq!(import, [Some(1), Some(1), Some(400), Some(400)]);
    }

    #[test]
    fn a_time_in_whole_seconds_keeps_a_clock_that_agrees_with_it() {
        assert_eq!(read(&[(1_300, Some(1_000)), (2_900, Some(2_000))]), [Some(1_000), Some(2_600)]);
        assert_eq!(read(&[(1_300, Some(1_000)), (1_300, Some(3_000))]), [Some(1_000), Some(3_000)]);
    }

    #[test]
    fn a_time_at_the_end_of_all_times_is_no_panic() {
        assert_eq!(read(&[(0, Some(i64::MAX)), (1, None), (0, Some(i64::MIN)), (-1, None)]).len(), 4);
    }
}

//! The pace of a log's flushes: at once after idleness, and fewer and larger ones the more they cost.

use std::time::{Duration, Instant};

/// The number of envelopes in one flush from which a log counts as written at full speed.
const BURST_ENVELOPES_MIN: u64 = 8;

/// The pause after a flush of a burst, as a multiple of the time that the flush took.
///
/// Flushes of a burst take at most a quarter of the time. The rest is left to incoming requests.
const BURST_PAUSE_FACTOR: u32 = 3;

/// The longest pause after a flush of a burst, in ticks: 48 ms for the default tick.
const BURST_PAUSE_TICKS_MAX: u32 = 6;

/// The size of a chunk from which a longer pause saves nothing, in bytes.
///
/// The kernel then spends more time on copying the bytes than on the call. A larger chunk could also overflow a socket's
/// buffer, the ring, or the rows that a log keeps in memory.
const BURST_CHUNK_BYTES: usize = 64 * 1024;

/// What one flush sent to each reader: the largest of its views.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flushed {
    pub envelopes: u64,
    pub bytes: usize,
}

impl Flushed {
    /// The earliest time of the next flush.
    ///
    /// `committed` is the commit of the first envelope, `begun` the begin of this flush, `ended` its arrival at the last
    /// reader.
    ///
    /// `is_behind`: the log has moved since this flush began.
    ///
    /// Two flushes begin at least one tick apart. If the log moves faster than its flushes arrive, a pause follows, which
    /// leaves time for incoming requests. In a burst the pause is longer: more writes would not deliver more.
    pub fn next_flush_at(
        self,
        committed: Option<Instant>,
        begun: Instant,
        ended: Instant,
        tick: Duration,
        is_behind: bool,
    ) -> Instant {
        let took = ended.saturating_duration_since(begun);
        let pause = match self.envelopes {
            BURST_ENVELOPES_MIN.. => {
                let pause = (took * BURST_PAUSE_FACTOR).min(tick * BURST_PAUSE_TICKS_MAX);
                // The time in which a chunk of this size comes together.
                let gathered = begun.saturating_duration_since(committed.unwrap_or(begun));
                let enough = gathered.mul_f64(BURST_CHUNK_BYTES as f64 / self.bytes.max(1) as f64);
                pause.min(enough.saturating_sub(took)).max(took.min(tick * 2))
            }
            _ if is_behind => (took / 4).min(tick / 2),
            _ => Duration::ZERO,
        };
        (begun + tick).max(ended + pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(8);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The time from the arrival of a flush to the next one. It took `took`, and began `gathered` after its first commit.
    fn pause(envelopes: u64, bytes: usize, gathered: Duration, took: Duration) -> Duration {
        pause_if(true, envelopes, bytes, gathered, took)
    }

    fn pause_if(is_behind: bool, envelopes: u64, bytes: usize, gathered: Duration, took: Duration) -> Duration {
        let committed = crate::environment::instant();
        let ended = committed + gathered + took;
        Flushed { envelopes, bytes }.next_flush_at(Some(committed), committed + gathered, ended, TICK, is_behind) - ended
    }

    #[test]
    fn two_flushes_begin_at_least_a_tick_apart() {
        for envelopes in [0, 1, BURST_ENVELOPES_MIN, 10_000] {
            assert_eq!(pause(envelopes, 300, ms(0), ms(1)), ms(7));
        }
    }

    #[test]
    fn a_log_whose_flush_takes_long_pauses_only_if_it_moved_meanwhile_and_for_half_a_tick_at_most() {
        // 1000 readers of 50 facts/s: a flush takes 12 ms, and the next fact comes 8 ms later.
        assert_eq!(pause_if(false, 1, 300, ms(0), ms(12)), ms(0));
        assert_eq!(pause_if(false, 1, 300, ms(0), ms(6)), ms(2), "a tick after it began");
        assert_eq!(pause(1, 300, ms(0), ms(8)), ms(2));
        assert_eq!(pause(BURST_ENVELOPES_MIN - 1, 2_100, ms(8), ms(100)), ms(4));
    }

    #[test]
    fn the_flushes_of_a_burst_take_a_quarter_of_the_time_and_pause_for_six_ticks_at_most() {
        assert_eq!(pause(20, 6_000, ms(40), ms(8)), ms(24));
        assert_eq!(pause(20, 6_000, ms(40), ms(16)), ms(48));
        assert_eq!(pause(20, 6_000, ms(200), ms(100)), ms(48));
    }

    #[test]
    fn a_pause_gathers_no_more_than_a_full_chunk_but_lasts_as_long_as_the_flush_up_to_two_ticks() {
        // 64 KiB in 20 ms: the next chunk is full 20 ms after this flush began.
        assert_eq!(pause(200, BURST_CHUNK_BYTES, ms(20), ms(8)), ms(12));
        // 1 MiB in 16 ms: each pause gathers more than a chunk.
        assert_eq!(pause(3000, 1 << 20, ms(16), ms(10)), ms(10));
        assert_eq!(pause(3000, 1 << 20, ms(16), ms(100)), ms(16));
        // The audience of this view may see none of the envelopes.
        assert_eq!(pause(3000, 0, ms(16), ms(10)), ms(30));
    }
}

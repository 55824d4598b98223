//! The chance of a simulation: a generator whose numbers follow from a seed.

use std::ops::Range;

/// A generator of random numbers (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The generator of a seed, and of one of its purposes: what one purpose draws does not change another.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ purpose.wrapping_mul(0x9fb2_1c65_1e98_df25));
        chance.bits();
        chance
    }

    /// The next number.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of a range that is not empty.
    pub fn in_range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.bits() % (range.end - range.start)
    }

    /// Whether something happens that happens once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.bits().is_multiple_of(times)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.in_range(0..from.len() as u64) as usize]
    }
}

//! What adapters remember of a text instead of the text: its length and its hash.
//!
//! The hash is FNV-1a: it takes a byte at a time, so that it is the same however the text was cut, goes on from where it stood,
//! and is saved as one number.

use serde::{Deserialize, Serialize};

/// Where a hash begins.
pub(super) const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of what was hashed before and of `bytes` after it.
pub(super) fn hashed(from: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(from, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// How long a text is, in bytes, and its hash: enough to know it again without keeping it. It proves nothing to an adversary: who
/// makes up a text of another one's print only hides its own answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Print(u64, u64);

impl Default for Print {
    fn default() -> Self {
        Self(0, HASH_START)
    }
}

impl Print {
    pub(super) fn of(text: &[u8]) -> Self {
        let mut print = Self::default();
        print.add(text);
        print
    }

    pub(super) fn add(&mut self, text: &[u8]) {
        self.0 += text.len() as u64;
        self.1 = hashed(self.1, text);
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `text` begins with the text of this print.
    pub(super) fn begins(self, text: &str) -> bool {
        let head = usize::try_from(self.0).ok().and_then(|bytes| text.as_bytes().get(..bytes));
        head.is_some_and(|head| Self::of(head) == self)
    }

    /// Whether `text` ends with it.
    pub(super) fn ends(self, text: &str) -> bool {
        let at = usize::try_from(self.0).ok().and_then(|bytes| text.len().checked_sub(bytes));
        at.is_some_and(|at| Self::of(&text.as_bytes()[at..]) == self)
    }
}

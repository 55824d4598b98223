//! Digests of streamed text: adapters store a length and a hash instead of the text.
//!
//! The hash is FNV-1a. It consumes one byte at a time, so the chunk boundaries do not matter. An adapter can store its
//! state as one number and continue later.

use proscenium_model::halves::{FirstHalf, join, may_have_marks};
use serde::{Deserialize, Serialize};

/// The FNV-1a offset basis: the state of a hash before the first byte.
pub(super) const FNV1A_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues an FNV-1a hash in state `from` with `bytes`.
pub(super) fn fnv1a(from: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(from, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Hashes a short text, to compare it.
pub(super) fn hash_of(text: &str) -> u64 {
    fnv1a(FNV1A_OFFSET_BASIS, text.as_bytes())
}

/// The lower bits of a digest's first number are the length, the others the first half of a pair at the text's end.
const LENGTH_BITS: u32 = 48;
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;

/// The length of a text in bytes, and its hash: enough to recognise the text without storing it.
///
/// Marks of [halves](proscenium_model::halves) count as the characters that they become, wherever the chunks were cut.
///
/// The digest is not secure against an adversary. A producer that forges a collision only hides its own answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TextDigest(u64, u64);

impl Default for TextDigest {
    fn default() -> Self {
        Self(0, FNV1A_OFFSET_BASIS)
    }
}

impl TextDigest {
    pub(super) fn of(text: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.update(text);
        digest
    }

    pub(super) fn update(&mut self, text: &[u8]) {
        let mut held = u16::try_from(self.0 >> LENGTH_BITS).ok().and_then(FirstHalf::new);
        let marked = if held.is_some() || may_have_marks(text) { std::str::from_utf8(text).ok() } else { None };
        let Some(marked) = marked.filter(|text| !text.is_empty()) else { return self.add(text) };
        let joined = join(&mut held, marked);
        self.0 &= LENGTH_MAX;
        self.add(joined.as_bytes());
        self.0 |= held.map_or(0, |half| u64::from(half.unit()) << LENGTH_BITS);
    }

    fn add(&mut self, text: &[u8]) {
        self.0 += text.len() as u64;
        self.1 = fnv1a(self.1, text);
    }

    /// The length of the digested text, in bytes.
    pub(super) fn len(self) -> usize {
        usize::try_from(self.0 & LENGTH_MAX).expect("the text was in memory")
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `text` starts with the digested text.
    pub(super) fn is_prefix_of(self, text: &str) -> bool {
        let head = text.as_bytes().get(..self.len());
        head.is_some_and(|head| Self::of(head) == self)
    }

    /// Whether `text` ends with the digested text.
    pub(super) fn is_suffix_of(self, text: &str) -> bool {
        let at = text.len().checked_sub(self.len());
        at.is_some_and(|at| Self::of(&text.as_bytes()[at..]) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proscenium_model::halves::parse_marked;

    #[test]
    fn halves_count_as_the_characters_that_they_become() {
        let marks = parse_marked(br#"{"text":["a\ud83d","\udc4bb","\ud83d"]}"#).unwrap().0;
        let chunk = |n: usize| marks["text"][n].as_str().unwrap().as_bytes();
        let mut digest = TextDigest::default();
        digest.update(chunk(0));
        assert_eq!(digest.len(), 1);
        digest.update(b"");
        digest.update(chunk(1));
        assert_eq!(digest, TextDigest::of("a👋b".as_bytes()));
        digest.update(chunk(2));
        digest.update(b"c");
        assert_eq!(digest, TextDigest::of("a👋b\u{fffd}c".as_bytes()));
    }
}

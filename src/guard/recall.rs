//! What a stream must remember of text that it has passed on: the beginnings of what a rule reads before its place.
//!
//! Remembering too much costs bytes, too little costs a secret; so these err towards too much, and never judge.

use super::names::NAME_BYTES_MAX;
use super::rules::{
    AUTHORIZATION, BACKSLASHES_MAX, DATA_URL, KEYS, LITERAL_BYTES_MAX, PEM_BEGINS, SPACE_BYTES_MAX, View, is_blank,
    is_header_mark, is_key_byte, is_name_byte, is_quote, is_space,
};

impl View<'_> {
    /// The first place at the end of the text, from `from` on, where a literal may be beginning.
    pub(super) fn begun_literal(&self, from: usize) -> Option<usize> {
        let len = self.bytes.len();
        let literals = || KEYS.iter().map(|rule| rule.literal).chain(PEM_BEGINS.iter().copied());
        (from.max(len.saturating_sub(LITERAL_BYTES_MAX - 1))..len).find(|&at| {
            let tail = &self.bytes[at..];
            matches!(tail[0], b's' | b'r' | b'g' | b'x' | b'A' | b'n' | b'h' | b'e' | b'-')
                && tail.iter().all(|b| is_key_byte(*b) || *b == b' ')
                && self.is_boundary(at)
                && literals().any(|literal| literal.len() > tail.len() && literal.as_bytes().starts_with(tail))
        })
    }

    /// How far back from `end` text may still matter to a rule whose place comes later: the beginning of a quoted name, of
    /// "Authorization: Bearer", of `scheme://`, of an escape. It has been passed on and is only remembered.
    pub(super) fn relevant_from(&self, end: usize) -> usize {
        [self.quoted_begun(end), self.bearer_begun(end), self.scheme_begun(end), self.escape_begun(end), self.data_begun(end)]
            .into_iter()
            .min()
            .expect("there are five")
    }

    fn quoted_begun(&self, end: usize) -> usize {
        let mut from = end;
        // Most text has no quote for as far back as the longest name and its escapes could reach.
        let reach = NAME_BYTES_MAX + 3 * BACKSLASHES_MAX + 2 * SPACE_BYTES_MAX;
        if memchr::memrchr2(b'"', b'\'', &self.bytes[end.saturating_sub(reach).max(self.floor)..end]).is_none() {
            return end;
        }
        let bare = self.back(end, BACKSLASHES_MAX, |b| b == b'\\');
        let closed = self.back(bare, SPACE_BYTES_MAX, is_space);
        // "name" :␣\
        if self.before(closed) == Some(b':')
            && let Some(start) = self.quoted_name(self.back(closed - 1, SPACE_BYTES_MAX, is_space))
        {
            from = from.min(start);
        }
        // "name"␣
        if let Some(start) = self.quoted_name(closed) {
            from = from.min(start);
        }
        // "na
        let name_start = self.back(bare, NAME_BYTES_MAX, is_name_byte);
        let opens = self.before(name_start).is_some_and(is_quote) && self.opens_name(name_start - 1);
        if opens { from.min(name_start - 1) } else { from }
    }

    fn bearer_begun(&self, end: usize) -> usize {
        let word_end = self.back(end, SPACE_BYTES_MAX, is_blank);
        let bearer = self.word_begun("bearer", word_end, word_end < end).map(|word| self.header_start(word).unwrap_or(word));
        let name_end = self.back(end, SPACE_BYTES_MAX, is_header_mark);
        let header = self.word_begun(AUTHORIZATION, name_end, name_end < end);
        bearer.into_iter().chain(header).min().unwrap_or(end)
    }

    /// Where a beginning of `word` begins that ends at `end`; all of it where it must be `whole`.
    fn word_begun(&self, word: &str, end: usize, whole: bool) -> Option<usize> {
        let bytes_min = if whole { word.len() } else { 1 };
        let initial = word.as_bytes()[0];
        (bytes_min..=word.len().min(end - self.floor)).rev().map(|n| end - n).find(|&start| {
            self.bytes[start] | 0x20 == initial
                && self.bytes[start..end].eq_ignore_ascii_case(&word.as_bytes()[..end - start])
                && self.is_boundary(start)
        })
    }

    fn scheme_begun(&self, end: usize) -> usize {
        let mut at = end;
        for _ in 0..2 {
            at = self.back(at, 3, |b| b == b'\\');
            if self.before(at) == Some(b'/') {
                at -= 1;
            }
        }
        at = self.back(at, 3, |b| b == b'\\');
        if self.before(at) == Some(b':') { at - 1 } else { end }
    }

    fn escape_begun(&self, end: usize) -> usize {
        let at = self.back(end, 4, |b| b.is_ascii_hexdigit());
        let at = if matches!(self.before(at), Some(b'u' | b'x')) { at - 1 } else { at };
        let begun = matches!(self.before(at), Some(b'\\')) || (matches!(self.before(at), Some(b'%')) && end - at < 2);
        if begun { at - 1 } else { end }
    }

    fn data_begun(&self, end: usize) -> usize {
        let seen = &self.bytes[self.floor..end];
        if matches!(seen.last(), Some(b'-' | b'_')) {
            return end - 1;
        }
        let tail = &seen[seen.len().saturating_sub(DATA_URL.len())..];
        match memchr::memrchr(DATA_URL[0], tail) {
            Some(at) if DATA_URL.starts_with(&tail[at..]) => end - (tail.len() - at),
            _ => end,
        }
    }
}

//! The context of passed text that a stream keeps for rules that read backwards.
//!
//! Too much context costs bytes, too little leaks a secret. So these functions err towards too much, and never judge.

use super::names::NAME_BYTES_MAX;
use super::rules::{
    AUTHORIZATION, BACKSLASHES_MAX, DATA_URL, KEYS, LITERAL_BYTES_MAX, PEM_BEGINS, SPACE_BYTES_MAX, ScanWindow, is_blank,
    is_header_mark, is_key_byte, is_name_byte, is_quote, is_space,
};

impl ScanWindow<'_> {
    /// The first position at the end of the text, from `from` on, where a key's literal may begin.
    pub(super) fn partial_literal_start(&self, from: usize) -> Option<usize> {
        let len = self.bytes.len();
        let literals = || KEYS.iter().map(|rule| rule.literal).chain(PEM_BEGINS.iter().copied());
        (from.max(len.saturating_sub(LITERAL_BYTES_MAX - 1))..len).find(|&at| {
            let tail = &self.bytes[at..];
            may_begin_literal(tail)
                && tail.iter().all(|b| is_key_byte(*b) || *b == b' ')
                && self.is_boundary(at)
                && literals().any(|literal| literal.len() > tail.len() && literal.as_bytes().starts_with(tail))
        })
    }

    /// The earliest position before `end` that a rule may still need for a later match.
    ///
    /// It covers the beginning of a quoted name, of "Authorization: Bearer", of `scheme://` and of an escape. That text
    /// has already been passed and is only remembered.
    pub(super) fn context_start(&self, end: usize) -> usize {
        [
            self.partial_name_start(end),
            self.partial_bearer_start(end),
            self.partial_scheme_start(end),
            self.partial_escape_start(end),
            self.partial_data_url_start(end),
        ]
        .into_iter()
        .min()
        .expect("the array has five elements")
    }

    fn partial_name_start(&self, end: usize) -> usize {
        let mut from = end;
        // Most text has no quote within reach of the longest name and its escapes.
        let reach = NAME_BYTES_MAX + 3 * BACKSLASHES_MAX + 2 * SPACE_BYTES_MAX;
        if memchr::memrchr2(b'"', b'\'', &self.bytes[end.saturating_sub(reach).max(self.floor)..end]).is_none() {
            return end;
        }
        let bare = self.skip_back(end, BACKSLASHES_MAX, |b| b == b'\\');
        let closed = self.skip_back(bare, SPACE_BYTES_MAX, is_space);
        // "name" :␣\
        if self.before(closed) == Some(b':')
            && let Some(start) = self.quoted_name(self.skip_back(closed - 1, SPACE_BYTES_MAX, is_space))
        {
            from = from.min(start);
        }
        // "name"␣
        if let Some(start) = self.quoted_name(closed) {
            from = from.min(start);
        }
        // "na
        let name_start = self.skip_back(bare, NAME_BYTES_MAX, is_name_byte);
        let opens = self.before(name_start).is_some_and(is_quote) && self.opens_name(name_start - 1);
        if opens { from.min(name_start - 1) } else { from }
    }

    fn partial_bearer_start(&self, end: usize) -> usize {
        let word_end = self.skip_back(end, SPACE_BYTES_MAX, is_blank);
        let bearer =
            self.partial_word_start("bearer", word_end, word_end < end).map(|word| self.header_start(word).unwrap_or(word));
        let name_end = self.skip_back(end, SPACE_BYTES_MAX, is_header_mark);
        let header = self.partial_word_start(AUTHORIZATION, name_end, name_end < end);
        bearer.into_iter().chain(header).min().unwrap_or(end)
    }

    /// The start of a beginning of `word` that ends at `end`; only of the whole word if `whole`.
    fn partial_word_start(&self, word: &str, end: usize, whole: bool) -> Option<usize> {
        let bytes_min = if whole { word.len() } else { 1 };
        let initial = word.as_bytes()[0];
        (bytes_min..=word.len().min(end - self.floor)).rev().map(|n| end - n).find(|&start| {
            self.bytes[start] | 0x20 == initial
                && self.bytes[start..end].eq_ignore_ascii_case(&word.as_bytes()[..end - start])
                && self.is_boundary(start)
        })
    }

    fn partial_scheme_start(&self, end: usize) -> usize {
        let mut at = end;
        for _ in 0..2 {
            at = self.skip_back(at, 3, |b| b == b'\\');
            if self.before(at) == Some(b'/') {
                at -= 1;
            }
        }
        at = self.skip_back(at, 3, |b| b == b'\\');
        if self.before(at) == Some(b':') { at - 1 } else { end }
    }

    fn partial_escape_start(&self, end: usize) -> usize {
        let at = self.skip_back(end, 4, |b| b.is_ascii_hexdigit());
        let at = if matches!(self.before(at), Some(b'u' | b'x')) { at - 1 } else { at };
        let begun = matches!(self.before(at), Some(b'\\')) || (matches!(self.before(at), Some(b'%')) && end - at < 2);
        if begun { at - 1 } else { end }
    }

    fn partial_data_url_start(&self, end: usize) -> usize {
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

/// Whether a literal may begin with the first two letters of `tail`. Nearly no word does.
const fn may_begin_literal(tail: &[u8]) -> bool {
    match tail {
        [one] => matches!(one, b's' | b'r' | b'g' | b'x' | b'A' | b'n' | b'h' | b'e' | b'-'),
        [b's' | b'r', b'k', ..]
        | [b'g', b'h' | b'i' | b'l', ..]
        | [b'x', b'o' | b'a', ..]
        | [b'A', b'K' | b'S' | b'I', ..]
        | [b'n', b'p', ..]
        | [b'h', b'f', ..]
        | [b'e', b'y', ..]
        | [b'-', b'-', ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_beginning_of_a_literal_may_begin_one() {
        for literal in KEYS.iter().map(|rule| rule.literal).chain(PEM_BEGINS.iter().copied()) {
            for end in 1..literal.len() {
                assert!(may_begin_literal(&literal.as_bytes()[..end]), "{literal}, cut at {end}");
            }
        }
    }
}

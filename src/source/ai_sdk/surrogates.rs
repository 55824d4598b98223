//! Halves of UTF-16 pairs.
//!
//! JavaScript may cut a text between the two halves of a pair: `JSON.stringify` then writes `"\ud83d"` into one delta and
//! `"\udc4b"` into the next. No strict JSON parser accepts such a line. This module reads it, and joins the halves.

use crate::source::Fact;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::ops::Range;

/// The text of a delta, and the halves of pairs at its edges.
#[derive(Debug, Default)]
pub(super) struct Delta {
    pub text: String,
    edges: Halves,
}

/// The halves at the edges of a text: the second of a pair at its start, and the first of a pair at its end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Halves {
    second: Option<u16>,
    first: Option<u16>,
}

impl Halves {
    /// Removes the characters that stand for the halves from the edges of a text.
    pub fn apply(self, mut text: String) -> Delta {
        let replacement = char::REPLACEMENT_CHARACTER;
        if self.first.is_some() {
            text.pop();
        }
        if self.second.is_some() && text.starts_with(replacement) {
            text.drain(..replacement.len_utf8());
        }
        Delta { text, edges: self }
    }
}

/// The first half of a pair that the last delta of a stream ended with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeldHalf(Option<u16>);

impl HeldHalf {
    /// Returns the delta's text behind the held half, and holds the half at its end.
    pub fn join(&mut self, delta: Delta) -> String {
        let Delta { text, edges } = delta;
        if text.is_empty() && edges.second.is_none() && edges.first.is_none() {
            return text;
        }
        let halves: Vec<u16> = self.0.take().into_iter().chain(edges.second).collect();
        self.0 = edges.first;
        if halves.is_empty() { text } else { String::from_utf16_lossy(&halves) + &text }
    }

    /// Returns the text of a half whose pair never came.
    pub fn end(&mut self) -> Option<String> {
        self.0.take().map(|_| char::REPLACEMENT_CHARACTER.to_string())
    }
}

/// A chunk whose lone halves are replaced, and the halves of its delta.
pub(super) struct Split {
    pub fact: Fact,
    pub halves: Halves,
}

/// Parses a chunk with lone halves. `None`: it has none, or is not JSON for another reason.
pub(super) fn parse(text: &[u8]) -> Option<Split> {
    let lone = lone_halves(text);
    if lone.is_empty() {
        return None;
    }
    let mut replaced = text.to_vec();
    for (at, _) in lone {
        replaced[at].copy_from_slice(br"\ufffd");
    }
    let fact = serde_json::from_slice(&replaced).ok()?;
    Some(Split { fact, halves: halves_of_delta(text) })
}

/// The member of a chunk that streams text.
#[derive(Deserialize)]
struct Streamed<'t> {
    #[serde(borrow, alias = "inputTextDelta")]
    delta: Option<&'t RawValue>,
}

fn halves_of_delta(text: &[u8]) -> Halves {
    let Ok(Streamed { delta: Some(delta) }) = serde_json::from_slice(text) else { return Halves::default() };
    let delta = delta.get().as_bytes();
    let lone = lone_halves(delta);
    let second = lone.first().filter(|(at, half)| at.start == 1 && !is_first(*half));
    let first = lone.last().filter(|(at, half)| at.end + 1 == delta.len() && is_first(*half));
    Halves { second: second.map(|(_, half)| *half), first: first.map(|(_, half)| *half) }
}

const fn is_first(half: u16) -> bool {
    half < 0xdc00
}

/// Finds the escapes of lone halves in a JSON text.
fn lone_halves(text: &[u8]) -> Vec<(Range<usize>, u16)> {
    let mut lone: Vec<(Range<usize>, u16)> = Vec::new();
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        at += found;
        let Some(half) = escaped_half(&text[at..]) else {
            at += 2;
            continue;
        };
        match lone.last() {
            Some((before, first)) if before.end == at && is_first(*first) && !is_first(half) => drop(lone.pop()),
            _ => lone.push((at..at + 6, half)),
        }
        at += 6;
    }
    lone
}

/// Reads the half of a pair that an escape at the start of the text stands for.
fn escaped_half(text: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(text.strip_prefix(br"\u")?.get(..4)?).ok()?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    (0xd800..0xe000).contains(&unit).then_some(unit)
}

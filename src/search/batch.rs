//! Batches: parts and the words of each, in memory and as rows of a table.
//!
//! A part has a number in its batch. A posting list has the numbers of the parts that have a word, ascending, each as the
//! difference to the one before, in seven bits a byte. So a posting of a common word takes a byte.

use super::parts::{AudienceSet, PartKind, TextPart};
use super::words::words;
use crate::environment::fast_hash_keys;
use crate::log::LogKind;
use crate::model::Sequence;
use std::collections::HashMap;

/// The most parts of one batch.
pub const BATCH_PARTS_MAX: usize = 65_536;
/// About what a word takes in memory besides its bytes.
const WORD_BYTES: usize = 72;

/// Where a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartPlace {
    /// The log's place in the order of creation; 0 once the log was erased.
    pub log: u64,
    pub log_kind: LogKind,
    pub kind: PartKind,
    pub first: Sequence,
    pub last: Sequence,
}

/// Appends a number in seven bits a byte.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes such a number. `None`: there is none.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

/// Maps signed differences to small numbers.
const fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// Encodes places, each after the log of the one before.
pub fn encode_places<'p>(places: impl IntoIterator<Item = &'p PartPlace>) -> Vec<u8> {
    let (mut out, mut before) = (Vec::new(), 0_u64);
    for place in places {
        let flags = (place.kind as u64) << 1 | u64::from(place.log_kind == LogKind::Session);
        put_number(&mut out, zigzag(place.log.wrapping_sub(before).cast_signed()));
        put_number(&mut out, flags);
        put_number(&mut out, place.first.0);
        put_number(&mut out, place.last.0.saturating_sub(place.first.0));
        before = place.log;
    }
    out
}

/// Decodes places. `None`: the bytes are damaged.
pub fn decode_places(mut bytes: &[u8]) -> Option<Vec<PartPlace>> {
    let (mut places, mut log) = (Vec::new(), 0_u64);
    while !bytes.is_empty() {
        log = log.wrapping_add(unzigzag(take_number(&mut bytes)?).cast_unsigned());
        let flags = take_number(&mut bytes)?;
        let first = take_number(&mut bytes)?;
        let last = first.checked_add(take_number(&mut bytes)?)?;
        let kind = *PartKind::ALL.get(usize::try_from(flags >> 1).ok()?)?;
        let log_kind = if flags & 1 == 1 { LogKind::Session } else { LogKind::Run };
        places.push(PartPlace { log, log_kind, kind, first: Sequence(first), last: Sequence(last) });
    }
    Some(places)
}

/// The numbers of the parts that have one word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Postings {
    /// The last number, and 1; 0 for none.
    end: u64,
    bytes: Vec<u8>,
}

impl Postings {
    /// Adds a number, unless it is the last one.
    fn push(&mut self, number: u64) {
        if self.end <= number {
            put_number(&mut self.bytes, number - self.end);
            self.end = number + 1;
        }
    }

    /// Reads what [`Self::as_bytes`] gave. `None`: the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let end = numbers(bytes).try_fold(0, |_, number| number.map(|number| number + 1))?;
        Some(Self { end, bytes: bytes.to_vec() })
    }

    /// The bytes of the same parts if `base` others precede them.
    pub fn after_others(&self, base: u64) -> Vec<u8> {
        let mut rest = &*self.bytes;
        let mut out = Vec::with_capacity(rest.len() + 2);
        if let Some(first) = take_number(&mut rest) {
            put_number(&mut out, base + first);
        }
        out.extend_from_slice(rest);
        out
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Without the numbers for which `is_gone`. `None`: none was.
    pub fn without(&self, is_gone: impl Fn(u64) -> bool) -> Option<Self> {
        let all = || numbers(&self.bytes).flatten();
        all().any(&is_gone).then(|| {
            let mut kept = Self::default();
            for number in all().filter(|number| !is_gone(*number)) {
                kept.push(number);
            }
            kept
        })
    }
}

/// The numbers of a posting list. One is `None` if the bytes are damaged.
fn numbers(mut bytes: &[u8]) -> impl Iterator<Item = Option<u64>> {
    let mut next = 0_u64;
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let number = take_number(&mut bytes).and_then(|gap| next.checked_add(gap));
        let number = number.filter(|number| *number < BATCH_PARTS_MAX as u64);
        match number {
            Some(number) => next = number + 1,
            None => bytes = &[],
        }
        Some(number)
    })
}

/// Parts of one batch, as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartSet(Vec<u64>);

impl Default for PartSet {
    fn default() -> Self {
        Self(vec![0; BATCH_PARTS_MAX / 64])
    }
}

impl PartSet {
    /// Adds the numbers of a posting list. `false`: its bytes are damaged.
    pub fn add(&mut self, postings: &[u8]) -> bool {
        for number in numbers(postings) {
            let Some(number) = number.and_then(|number| usize::try_from(number).ok()) else { return false };
            self.0[number / 64] |= 1 << (number % 64);
        }
        true
    }

    /// Keeps only the parts that another set has too.
    pub fn intersect(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, word)| **word != 0)
            .flat_map(|(at, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit))
    }
}

/// The key of a word: its audiences, then its bytes.
pub fn word_key(audiences: AudienceSet, word: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + word.len());
    key.push(audiences);
    key.extend_from_slice(word.as_bytes());
    key
}

/// Parts in memory.
#[derive(Debug)]
pub struct TextBatch {
    pub places: Vec<PartPlace>,
    /// By [`word_key`].
    pub postings: HashMap<Box<[u8]>, Postings, ahash::RandomState>,
    bytes: usize,
}

impl Default for TextBatch {
    fn default() -> Self {
        Self { places: Vec::new(), postings: HashMap::with_hasher(fast_hash_keys()), bytes: 0 }
    }
}

impl TextBatch {
    /// Adds a part of a log.
    pub fn push(&mut self, log: u64, log_kind: LogKind, part: &TextPart) {
        let number = self.places.len() as u64;
        let TextPart { kind, audiences, first, last, message: _, text } = part;
        self.places.push(PartPlace { log, log_kind, kind: *kind, first: *first, last: *last });
        self.bytes += size_of::<PartPlace>();
        let mut key = vec![*audiences];
        words(text, |word, _| {
            key.truncate(1);
            key.extend_from_slice(word.as_bytes());
            let postings = match self.postings.get_mut(&*key) {
                Some(postings) => postings,
                None => {
                    self.bytes += WORD_BYTES + key.len();
                    self.postings.entry(key.as_slice().into()).or_default()
                }
            };
            let before = postings.bytes.len();
            postings.push(number);
            self.bytes += postings.bytes.len() - before;
        });
    }

    /// About the bytes that it takes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub const fn is_full(&self) -> bool {
        self.places.len() >= BATCH_PARTS_MAX
    }

    /// Without the parts of the logs for which `is_gone`.
    pub fn without(&self, is_gone: impl Fn(&PartPlace) -> bool) -> Self {
        let gone: Vec<bool> = self.places.iter().map(is_gone).collect();
        let is_gone = |number: u64| gone[usize::try_from(number).expect("a part's number is small")];
        let mut places = self.places.clone();
        for (place, _) in places.iter_mut().zip(&gone).filter(|(_, gone)| **gone) {
            place.log = 0;
        }
        let mut postings = self.postings.clone();
        postings.retain(|_, postings| match postings.without(is_gone) {
            Some(kept) => {
                *postings = kept;
                !postings.bytes.is_empty()
            }
            None => true,
        });
        let words = postings.iter().map(|(key, postings)| WORD_BYTES + key.len() + postings.bytes.len()).sum::<usize>();
        Self { bytes: words + places.len() * size_of::<PartPlace>(), places, postings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> TextPart {
        TextPart {
            kind: PartKind::Message,
            audiences: 7,
            first: Sequence(3),
            last: Sequence(5),
            message: None,
            text: text.into(),
        }
    }

    #[test]
    fn places_and_postings_read_as_they_were_written_and_damage_is_noticed() {
        let place = |log, first, last| PartPlace {
            log,
            log_kind: LogKind::Session,
            kind: PartKind::Title,
            first: Sequence(first),
            last: Sequence(last),
        };
        let places = [place(900, 1, 1), place(2, 70_000, 70_200), place(u64::MAX, 1, u64::MAX), place(0, 5, 5)];
        assert_eq!(decode_places(&encode_places(&places)).unwrap(), places);
        assert_eq!(decode_places(&encode_places(&places)[..3]), None);
        let mut postings = Postings::default();
        for number in [0, 0, 7, 300, 300, 65_535] {
            postings.push(number);
        }
        let read = Postings::decode(postings.as_bytes()).unwrap();
        assert_eq!(read, postings);
        let mut set = PartSet::default();
        assert!(set.add(postings.as_bytes()));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 7, 300, 65_535]);
        assert!(Postings::decode(&[0xff]).is_none() && !PartSet::default().add(&[0xff, 0xff, 0xff, 0xff, 0x7f]));
        let moved = Postings::decode(&[0, 2]).unwrap().after_others(1000);
        assert_eq!(numbers(&moved).flatten().collect::<Vec<_>>(), [1000, 1003]);
    }

    #[test]
    fn a_batch_without_a_log_has_none_of_its_words() {
        let mut batch = TextBatch::default();
        batch.push(1, LogKind::Run, &part("alpha beta alpha"));
        batch.push(2, LogKind::Run, &part("beta gamma"));
        let kept = batch.without(|place| place.log == 1);
        let mut words: Vec<_> = kept.postings.keys().map(|key| String::from_utf8(key[1..].to_vec()).unwrap()).collect();
        words.sort();
        assert_eq!(words, ["beta", "gamma"]);
        assert_eq!(numbers(kept.postings[&*word_key(7, "beta")].as_bytes()).flatten().collect::<Vec<_>>(), [1]);
        assert!(kept.bytes() < batch.bytes() && kept.places[0].log == 0 && kept.places[1].log == 2);
    }
}

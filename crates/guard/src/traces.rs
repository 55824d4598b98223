//! One pass over a short text, which says what rules may match in it.
//!
//! Most texts of a fact are short: names of members, ids, words, the chunks of a model. For them the start of a
//! vectorized search costs more than the search. So one loop compares each byte with all beginnings at once, with a bit
//! for each of their letters (the algorithm Shift-And). The rules run only if one of them occurs.

/// The first three letters of every place that a rule judges, besides colons. Each letter is one of several.
const PLACES: &[[&[u8]; 3]] = &[
    [b"-", b"-", b"-"],
    [b"Rr", b"Ee", b"Rr"],
    [b"sr", b"k", b"-_"],
    [b"g", b"h", b"pousr"],
    [b"g", b"i", b"t"],
    [b"g", b"l", b"p"],
    [b"x", b"o", b"x"],
    [b"x", b"a", b"p"],
    [b"A", b"KS", b"I"],
    [b"A", b"I", b"z"],
    [b"n", b"p", b"m"],
    [b"h", b"f", b"_"],
    [b"e", b"y", b"J"],
];

/// Three letters of every name of a secret.
const NAMES: &[[&[u8]; 3]] = &[
    [b"Pp", b"Aa", b"Ss"],
    [b"Ss", b"Ee", b"Cc"],
    [b"Tt", b"Oo", b"Kk"],
    [b"Kk", b"Ee", b"Yy"],
    [b"Cc", b"Rr", b"Ee"],
    [b"Aa", b"Uu", b"Tt"],
    [b"Cc", b"Oo", b"Oo"],
];

struct Table {
    /// The letters that each byte may be.
    letters: [u64; 256],
    first: u64,
    last_of_places: u64,
    last_of_names: u64,
}

static TABLE: Table = Table::new();

impl Table {
    const fn new() -> Self {
        // The first bit is that of a colon.
        let mut table = Self { letters: [0; 256], first: 1, last_of_places: 1, last_of_names: 0 };
        table.letters[b':' as usize] |= 1;
        let (mut n, mut bit) = (0, 1);
        while n < PLACES.len() {
            table.last_of_places |= table.add(PLACES[n], bit);
            (n, bit) = (n + 1, bit + 3);
        }
        n = 0;
        while n < NAMES.len() {
            table.last_of_names |= table.add(NAMES[n], bit);
            (n, bit) = (n + 1, bit + 3);
        }
        table
    }

    /// Adds three letters from this bit on. Returns the bit of the last one.
    const fn add(&mut self, letters: [&[u8]; 3], bit: usize) -> u64 {
        self.first |= 1 << bit;
        let mut n = 0;
        while n < 3 {
            let mut i = 0;
            while i < letters[n].len() {
                self.letters[letters[n][i] as usize] |= 1 << (bit + n);
                i += 1;
            }
            n += 1;
        }
        1 << (bit + 2)
    }
}

/// The beginnings that occur in a text.
#[derive(Clone, Copy)]
pub(super) struct Traces(u64);

impl Traces {
    /// The traces of a text that may contain any place, and is no name.
    pub const UNKNOWN: Self = Self(Table::new().last_of_places);

    pub fn of(text: &str) -> Self {
        let (mut now, mut all) = (0, 0);
        for byte in text.bytes() {
            now = (now << 1 | TABLE.first) & TABLE.letters[usize::from(byte)];
            all |= now;
        }
        Self(all)
    }

    /// Whether the text may contain a place that a rule must judge.
    pub fn has_place(self) -> bool {
        self.0 & TABLE.last_of_places != 0
    }

    /// Whether the text contains letters of a secret's name.
    pub fn has_name(self) -> bool {
        self.0 & TABLE.last_of_names != 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::ANCHORS;
    use super::*;

    #[test]
    fn every_anchor_leaves_a_trace_anywhere_in_a_text_and_other_texts_leave_none() {
        for anchor in ANCHORS.iter().copied().chain([":"]) {
            for text in [anchor.to_owned(), format!("a{anchor}"), format!("{anchor}a"), format!("--A{anchor} eye")] {
                assert!(Traces::of(&text).has_place(), "{text}");
            }
        }
        for text in ["", "-", "--", "report", "m1", "toolName", "tool_call_id", "a digest", "Grüße / 走", "sK-", "x-ox"] {
            assert!(!Traces::of(text).has_place(), "{text}");
        }
    }

    #[test]
    fn letters_of_names_count_in_any_case() {
        for (text, has_name) in [("apiKey", true), ("PASSWORD", true), ("x-coOkie", true), ("toolName", false), ("to-ken", false)]
        {
            assert_eq!(Traces::of(text).has_name(), has_name, "{text}");
        }
    }
}

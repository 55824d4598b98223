//! Words: what a text is found by.
//!
//! A word is a run of letters and digits, without case and accents, in at most [`WORD_BYTES_MAX`] bytes. Chinese, Japanese
//! and Korean text has no such runs, or only long ones. So each of its characters is a word with the one after it, and the
//! last of a run is a word alone: `東京都` has `東京`, `京都` and `都`. A single character is found as the beginning of a word.

use icu_normalizer::DecomposingNormalizerBorrowed;

/// The longest word, in bytes of UTF-8. The rest of a longer one is left out.
pub const WORD_BYTES_MAX: usize = 64;
/// The most different words of one search.
pub const QUERY_WORDS_MAX: usize = 32;

/// Whether a character belongs to a script that puts no spaces between words.
const fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{2e80}'..='\u{2fdf}' // radicals
        | '\u{3005}'..='\u{3007}'
        | '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' // kana
        | '\u{3105}'..='\u{312f}' | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' // Han
        | '\u{ac00}'..='\u{d7a3}' // Hangul
        | '\u{e00}'..='\u{e7f}' | '\u{e80}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' // Thai to Khmer
        | '\u{20000}'..='\u{323af}')
}

/// Whether a character only changes the one before it.
const fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}'
        | '\u{3099}' | '\u{309a}' | '\u{fe00}'..='\u{fe0f}' | '\u{200c}' | '\u{200d}' | '\u{ad}')
}

/// Calls `found` with each word of a text, in order, and with the place of its first byte.
pub fn words(text: &str, mut found: impl FnMut(&str, usize)) {
    let mut scan = Scan { word: String::new(), start: 0, last: None };
    let normalizer = DecomposingNormalizerBorrowed::new_nfkd();
    let mut next = 0;
    while let Some(c) = text[next..].chars().next() {
        let at = next;
        next += c.len_utf8();
        if c.is_ascii_alphanumeric() {
            // The letters of ASCII that follow are looked at once, however long the word is. Most words are whole in them.
            let run = &text[at..at + text.as_bytes()[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count()];
            next = at + run.len();
            if scan.is_idle() && text.as_bytes().get(next).is_none_or(u8::is_ascii) {
                scan.take_whole(run, at, &mut found);
            } else {
                for (of_run, c) in run.char_indices() {
                    scan.take(c.to_ascii_lowercase(), at + of_run, &mut found);
                }
            }
        } else if c.is_ascii() {
            scan.take(c, at, &mut found);
        } else if is_unspaced(c) {
            scan.take_unspaced(c, at, &mut found);
        } else if !is_mark(c) {
            for part in normalizer.normalize_iter(std::iter::once(c)).filter(|part| !is_mark(*part)) {
                match part {
                    'ß' | 'ẞ' => {
                        scan.take('s', at, &mut found);
                        scan.take('s', at, &mut found);
                    }
                    'ς' => scan.take('σ', at, &mut found),
                    part if is_unspaced(part) => scan.take_unspaced(part, at, &mut found),
                    part => {
                        for lower in part.to_lowercase().filter(|lower| !is_mark(*lower)) {
                            scan.take(lower, at, &mut found);
                        }
                    }
                }
            }
        }
    }
    scan.end(&mut found);
}

/// What has been read of a word.
struct Scan {
    word: String,
    start: usize,
    /// The last character of a script without spaces.
    last: Option<(char, usize)>,
}

impl Scan {
    /// Whether no word has begun.
    const fn is_idle(&self) -> bool {
        self.word.is_empty() && self.last.is_none()
    }

    /// Takes a word of ASCII that ends.
    fn take_whole(&mut self, word: &str, at: usize, found: &mut impl FnMut(&str, usize)) {
        self.word.push_str(&word[..word.len().min(WORD_BYTES_MAX)]);
        self.word.make_ascii_lowercase();
        found(&self.word, at);
        self.word.clear();
    }

    fn take(&mut self, c: char, at: usize, found: &mut impl FnMut(&str, usize)) {
        if !c.is_alphanumeric() {
            return self.end(found);
        }
        if self.last.is_some() {
            self.end(found);
        }
        if self.word.is_empty() {
            self.start = at;
        }
        if self.word.len() + c.len_utf8() <= WORD_BYTES_MAX {
            self.word.push(c);
        }
    }

    fn take_unspaced(&mut self, c: char, at: usize, found: &mut impl FnMut(&str, usize)) {
        match self.last {
            Some((last, start)) => {
                self.word.clear();
                self.word.extend([last, c]);
                found(&self.word, start);
                self.word.clear();
            }
            None => self.end(found),
        }
        self.last = Some((c, at));
    }

    fn end(&mut self, found: &mut impl FnMut(&str, usize)) {
        if let Some((last, start)) = self.last.take() {
            self.word.push(last);
            self.start = start;
        }
        if !self.word.is_empty() {
            found(&self.word, self.start);
            self.word.clear();
        }
    }
}

/// What a person searches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordQuery(Vec<QueryWord>);

/// One word of a search.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueryWord {
    pub word: Box<str>,
    /// Whether a text has it that has a longer word which begins with it.
    pub is_beginning: bool,
}

impl QueryWord {
    fn is_in(&self, word: &str) -> bool {
        if self.is_beginning { word.starts_with(&*self.word) } else { word == &*self.word }
    }
}

impl WordQuery {
    /// Reads the words of a search. The last one may be a beginning.
    ///
    /// # Errors
    /// The number of words if it is above [`QUERY_WORDS_MAX`].
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut all: Vec<QueryWord> = Vec::new();
        words(text, |word, _| {
            // A character alone is found before each other one. After a pair it says nothing new.
            let is_alone = word.chars().count() == 1 && word.starts_with(is_unspaced);
            let ends_pair = all.last().is_some_and(|last| last.word.starts_with(is_unspaced) && last.word.ends_with(word));
            if !(is_alone && ends_pair) {
                all.push(QueryWord { word: word.into(), is_beginning: is_alone });
            }
        });
        // A person may go on typing a word that nothing follows.
        if let Some(last) = all.last_mut().filter(|_| text.ends_with(|c: char| c.is_alphanumeric() || is_mark(c))) {
            last.is_beginning = true;
        }
        all.sort_unstable();
        all.dedup();
        if all.len() > QUERY_WORDS_MAX { Err(all.len()) } else { Ok(Self(all)) }
    }

    /// Whether it names no word.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn words(&self) -> &[QueryWord] {
        &self.0
    }

    /// The places of its words in a text, in order, each with the number of its word. `None`: the text lacks one.
    #[must_use]
    pub fn places(&self, text: &str) -> Option<Vec<(usize, usize)>> {
        let (mut places, mut seen) = (Vec::new(), 0_u64);
        words(text, |word, at| {
            for (number, _) in self.0.iter().enumerate().filter(|(_, known)| known.is_in(word)) {
                places.push((at, number));
                seen |= 1 << number;
            }
        });
        (seen == (1 << self.0.len()) - 1 && !self.is_empty()).then_some(places)
    }
}

/// The part of a text in which most of the words stand, in one line of at most `chars_max` characters.
#[must_use]
pub fn excerpt(text: &str, places: &[(usize, usize)], chars_max: usize) -> String {
    // What is shown before the first word.
    let lead = chars_max / 4;
    let count_from = |first: usize| {
        let start = places[first].0;
        let near = places[first..].iter().take_while(|(at, _)| at - start < chars_max - lead);
        near.fold(0_u64, |seen, (_, number)| seen | 1 << number).count_ones()
    };
    let best = (0..places.len().min(256)).max_by_key(|first| (count_from(*first), std::cmp::Reverse(*first)));
    let start = best.map_or(0, |first| places[first].0);
    let from = text[..start].char_indices().rev().take(lead).last().map_or(start, |(at, _)| at);
    // It begins with a whole word if there is one.
    let from = if from == 0 { 0 } else { text[from..start].find(char::is_whitespace).map_or(from, |space| from + space) };
    let mut line = String::new();
    for c in text[from..].chars() {
        match c.is_whitespace() || c.is_control() {
            true if line.is_empty() || line.ends_with(' ') => {}
            true => line.push(' '),
            false => line.push(c),
        }
        if line.chars().nth(chars_max).is_some() {
            break;
        }
    }
    let mut kept: String = line.trim_end().to_owned();
    if from > 0 && kept.chars().count() < chars_max {
        kept.insert(0, '…');
    } else if from > 0 {
        kept = "…".chars().chain(kept.chars()).collect();
    }
    if kept.chars().nth(chars_max).is_some() {
        let cut: String = kept.chars().take(chars_max - 1).collect();
        kept = cut.trim_end().to_owned() + "…";
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        words(text, |word, _| all.push(word.to_owned()));
        all
    }

    #[test]
    fn words_have_neither_case_nor_accents_and_unspaced_scripts_are_read_in_pairs() {
        assert_eq!(all("The Quick-brown FOX, 42×!"), ["the", "quick", "brown", "fox", "42"]);
        assert_eq!(
            all("Ünïcode CAFE\u{301} café Straße ΣΊΣΥΦΟΣ ﬁn Ｆｕｌｌ İstanbul"),
            ["unicode", "cafe", "cafe", "strasse", "σισυφοσ", "fin", "full", "istanbul"]
        );
        assert_eq!(all("東京都 v2へ"), ["東京", "京都", "都", "v2", "へ"]);
        assert_eq!(all("한국어"), ["한국", "국어", "어"]);
        assert_eq!(all(&"x".repeat(100)), ["x".repeat(WORD_BYTES_MAX)]);
        assert_eq!(all(" … "), Vec::<String>::new());
        assert_eq!(all("naïve Zürich"), ["naive", "zurich"]);
    }

    #[test]
    fn a_long_word_is_looked_at_once_wherever_it_has_an_accent() {
        let long = "x".repeat(4 << 20);
        for text in [format!("é{long}"), format!("{long}é"), format!("x{long}é{long}"), format!("京{long}")] {
            assert_eq!(all(&text).last().map(String::len), Some(WORD_BYTES_MAX), "{} bytes", text.len());
        }
    }

    #[test]
    fn a_text_matches_when_it_has_all_words_and_the_beginning_of_the_last() {
        let has = |query: &str, text: &str| WordQuery::parse(query).unwrap().places(text).is_some();
        assert!(has("quick foX", "the FOX is Quick"));
        assert!(has("quick fo", "the fox is quick"));
        assert!(!has("quick fo ", "the fox is quick"), "a space ends the word");
        assert!(!has("qui fox", "the fox is quick"));
        assert!(has("fox fo", "fox"), "one word may be both");
        assert!(has("東京", "私は東京都に") && has("京都に", "私は東京都に") && !has("都京", "私は東京都に"));
        for one in ["東", "都", "に"] {
            assert!(has(one, "私は東京都に"), "{one}");
        }
        assert!(has("東京 plan", "a plan for 東京"));
        assert!(!has("", "text") && !has("?!", "text"));
        let many = (0..40).map(|n| format!("w{n} ")).collect::<String>();
        assert_eq!(WordQuery::parse(&many), Err(40));
    }

    #[test]
    fn an_excerpt_is_one_line_around_the_words_within_its_limit() {
        let of = |query: &str, text: &str, max| {
            let query = WordQuery::parse(query).unwrap();
            excerpt(text, &query.places(text).unwrap(), max)
        };
        assert_eq!(of("fox", "the\n  quick fox", 160), "the quick fox");
        let long = format!("{} the marked words {}", "before ".repeat(60), "after ".repeat(60));
        let line = of("words marked", &long, 80);
        assert!(line.contains("marked words") && line.starts_with("…") && line.ends_with('…'), "{line}");
        assert!(line.chars().count() <= 80, "{line}");
        let apart = format!("alpha {} beta {} alpha beta", "x ".repeat(100), "y ".repeat(100));
        assert!(of("alpha beta", &apart, 60).contains("alpha beta"));
        assert!(of("都", &"東京都".repeat(100), 20).chars().count() <= 20);
    }
}

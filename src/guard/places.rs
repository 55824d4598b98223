//! Where a text is worth a look at all. Nearly no text is: this is what every byte of every fact pays for.

use aho_corasick::packed::{Config, MatchKind, Searcher};
use aho_corasick::{AhoCorasick, Span};
use std::sync::LazyLock;

/// What makes a place worth a look, besides colons: the first bytes of every key, four dashes, and the end of "bearer" in all
/// eight of its cases. Everything with at least three bytes and fewer than 32 in all, so that Teddy takes them 32 bytes of
/// text at a time; colons (`scheme://`, `"name":`) are memchr's. A case-insensitive automaton over whole literals took a
/// fifth of all ingest CPU when it was measured.
static ANCHORS: &[&str] = &[
    "----",
    "rer",
    "reR",
    "rEr",
    "rER",
    "Rer",
    "ReR",
    "REr",
    "RER",
    "sk-",
    "sk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "xox",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "glpat-",
    "npm_",
    "hf_",
    "eyJ",
];

enum Finder {
    Teddy(Searcher),
    /// Where the CPU has no vectors that Teddy knows.
    Automaton(AhoCorasick),
}

static FINDER: LazyLock<Finder> = LazyLock::new(|| {
    let mut teddy = Config::new().match_kind(MatchKind::LeftmostFirst).builder();
    match teddy.extend(ANCHORS).build() {
        Some(searcher) => Finder::Teddy(searcher),
        None => Finder::Automaton(AhoCorasick::new(ANCHORS).expect("27 short patterns fit any automaton")),
    }
});

pub(super) fn next_anchor(text: &str, from: usize) -> Option<usize> {
    if from >= text.len() {
        return None;
    }
    let span = Span::from(from..text.len());
    match &*FINDER {
        Finder::Teddy(searcher) => searcher.find_in(text.as_bytes(), span).map(|found| found.start()),
        Finder::Automaton(automaton) => automaton.find(aho_corasick::Input::new(text).span(span)).map(|found| found.start()),
    }
}

fn next_colon(text: &str, from: usize) -> Option<usize> {
    text.as_bytes().get(from..).and_then(|rest| memchr::memchr(b':', rest)).map(|at| from + at)
}

/// The two kinds of places, merged from left to right.
pub(super) struct Places<'t> {
    text: &'t str,
    colon: Option<usize>,
    anchor: Option<usize>,
}

#[derive(Clone, Copy)]
pub(super) enum Place {
    Colon(usize),
    Anchor(usize),
}

impl<'t> Places<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, colon: next_colon(text, 0), anchor: next_anchor(text, 0) }
    }

    pub(super) fn next(&mut self) -> Option<Place> {
        match (self.colon, self.anchor) {
            (Some(colon), anchor) if anchor.is_none_or(|anchor| colon < anchor) => {
                self.colon = next_colon(self.text, colon + 1);
                Some(Place::Colon(colon))
            }
            (_, Some(anchor)) => {
                self.anchor = next_anchor(self.text, anchor + 1);
                Some(Place::Anchor(anchor))
            }
            _ => None,
        }
    }

    /// Forgets the places before `at`.
    pub(super) fn skip_to(&mut self, at: usize) {
        if self.colon.is_some_and(|colon| colon < at) {
            self.colon = next_colon(self.text, at);
        }
        if self.anchor.is_some_and(|anchor| anchor < at) {
            self.anchor = next_anchor(self.text, at);
        }
    }
}

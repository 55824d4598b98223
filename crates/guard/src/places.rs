//! Finds the positions in a text that a rule must look at.
//!
//! Every byte of every fact passes this search, and nearly none matches.

use super::traces::Traces;
use aho_corasick::packed::{Config, MatchKind, Searcher};
use aho_corasick::{AhoCorasick, Span};
use std::sync::LazyLock;

/// The patterns that mark a position, besides colons.
///
/// They are the start of every key, four dashes, and the end of "bearer" in all eight of its cases.
///
/// Each has at least three bytes, and they are fewer than 32 together, so that Teddy searches 32 bytes of text at a
/// time; memchr searches colons (`scheme://`, `"name":`). A case-insensitive automaton over whole literals took a fifth
/// of the ingest CPU when it was measured.
pub(super) static ANCHORS: &[&str] = &[
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

/// Up to this length a text is first searched for traces of any place. Beyond it the vectorized search is faster.
const SHORT_BYTES_MAX: usize = 32;

enum Finder {
    Teddy(Searcher),
    /// For CPUs without the vector instructions that Teddy needs.
    Automaton(AhoCorasick),
}

static FINDER: LazyLock<Finder> = LazyLock::new(|| {
    let mut teddy = Config::new().match_kind(MatchKind::LeftmostFirst).builder();
    match teddy.extend(ANCHORS).build() {
        Some(searcher) => Finder::Teddy(searcher),
        None => Finder::Automaton(AhoCorasick::new(ANCHORS).expect("27 short patterns fit into an automaton")),
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

/// Both kinds of positions, merged from left to right.
pub(super) struct Candidates<'t> {
    text: &'t str,
    colon: Option<usize>,
    anchor: Option<usize>,
}

#[derive(Clone, Copy)]
pub(super) enum Candidate {
    Colon(usize),
    Anchor(usize),
}

impl<'t> Candidates<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        if text.len() <= SHORT_BYTES_MAX && !Traces::of(text).has_place() {
            return Self { text, colon: None, anchor: None };
        }
        Self { text, colon: next_colon(text, 0), anchor: next_anchor(text, 0) }
    }

    pub(super) fn next(&mut self) -> Option<Candidate> {
        match (self.colon, self.anchor) {
            (Some(colon), anchor) if anchor.is_none_or(|anchor| colon < anchor) => {
                self.colon = next_colon(self.text, colon + 1);
                Some(Candidate::Colon(colon))
            }
            (_, Some(anchor)) => {
                self.anchor = next_anchor(self.text, anchor + 1);
                Some(Candidate::Anchor(anchor))
            }
            _ => None,
        }
    }

    /// Skips the positions before `at`.
    pub(super) fn skip_to(&mut self, at: usize) {
        if self.colon.is_some_and(|colon| colon < at) {
            self.colon = next_colon(self.text, at);
        }
        if self.anchor.is_some_and(|anchor| anchor < at) {
            self.anchor = next_anchor(self.text, at);
        }
    }
}

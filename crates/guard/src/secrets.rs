//! Finds secrets in text. One scanner reads whole texts and streams.
//!
//! [`scan`] moves from left to right and judges each position where a secret may begin: it passes, it is a secret, or
//! it is undecided until more text arrives. A verdict depends only on a bounded part of the text around its position,
//! never on a chunk's end. So a text has the same redacted form however it was cut, and a final text equals its deltas
//! (protocol, section 3, sealing). Undecided text is held back, at most
//! [`HELD_BYTES_MAX`](super::rules::HELD_BYTES_MAX); beyond that it counts as a secret.
//!
//! ```text
//!             kept          shown            held               text
//!  [ emitted, may matter ]  ─────▶ [ undecided, not emitted ] + [ the next chunk ]
//! ```
//!
//! The scanner ignores JSON structure, which `walk` handles; a quoted name inside text is just another position.

use super::places::Candidates;
use super::rules::{BACKSLASHES_MAX, Mode, ScanWindow, TokenTail, Verdict};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The text that replaces a secret.
pub(super) const REDACTED: &str = "[redacted]";

/// The shortest text that a rule can match, `a://:@`, in bytes; shorter texts are not searched.
const SECRET_BYTES_MIN: usize = 6;

/// A range of text that must not pass.
struct Redaction {
    from: usize,
    to: usize,
    /// Whether the mark replaces the range, or already stands before it.
    marked: bool,
}

/// The result of a scan.
struct ScanResult {
    redactions: Vec<Redaction>,
    mode: Mode,
    /// The text from here on is undecided.
    held_from: usize,
    /// The text before this can be forgotten.
    keep_from: usize,
    in_word: bool,
    risk: Option<Mode>,
    /// Whether only the last letter is undecided, because it may begin a key.
    holds_one_letter: bool,
}

/// Judges `text` from `decided` on, with the text before it as context.
///
/// If `last`, every verdict is final.
fn scan(text: &str, decided: usize, mode: Mode, in_word: bool, last: bool) -> ScanResult {
    let window = ScanWindow { text, bytes: text.as_bytes(), floor: 0, in_word, last };
    let candidates = Candidates::new(text);
    let mut scanner =
        Scanner { window, candidates, mode, at: decided, redactions: Vec::new(), held_from: text.len(), risk: None };
    while match scanner.mode {
        Mode::Text => scanner.read_text(),
        Mode::Token(rest) => scanner.read_token(rest),
        Mode::Quoted { quote, backslashes, marked } => scanner.read_quoted(quote, backslashes, marked),
        Mode::Pem => scanner.read_pem(),
    } {}
    scanner.finish()
}

struct Scanner<'t> {
    window: ScanWindow<'t>,
    candidates: Candidates<'t>,
    mode: Mode,
    /// The text before this is decided.
    at: usize,
    redactions: Vec<Redaction>,
    held_from: usize,
    risk: Option<Mode>,
}

/// Each `read` continues in one mode. It returns whether another mode follows.
impl Scanner<'_> {
    fn read_text(&mut self) -> bool {
        while let Some(place) = self.candidates.next() {
            match self.window.judge(place, self.at) {
                Verdict::Passes => {}
                Verdict::Opens { start, inside } => {
                    self.at = start;
                    self.mode = inside;
                    return true;
                }
                Verdict::Secret { start, end, then } => {
                    self.at = start;
                    self.mode = then;
                    self.hide(end, true);
                    return true;
                }
                Verdict::Undecided { start, risk } => {
                    self.held_from = start;
                    self.risk = risk;
                    return false;
                }
            }
        }
        false
    }

    fn read_token(&mut self, rest: TokenTail) -> bool {
        let text = self.window.text;
        self.hide(self.at + rest.len_in(&text[self.at..]), false);
        let ends = self.at < text.len();
        if ends {
            self.mode = Mode::Text;
        }
        ends
    }

    fn read_pem(&mut self) -> bool {
        let window = self.window;
        while let Some(dashes) = memchr::memmem::find(&window.bytes[self.at..], b"----").map(|i| self.at + i) {
            match window.judge_pem_end(dashes) {
                Verdict::Secret { end, then, .. } => {
                    self.mode = then;
                    self.hide(end, false);
                    return true;
                }
                Verdict::Undecided { start, .. } => {
                    self.hide(start, false);
                    self.held_from = start;
                    return false;
                }
                Verdict::Passes | Verdict::Opens { .. } => self.hide(dashes + 1, false),
            }
        }
        let dashes = if window.last { 0 } else { 3.min(window.text.len() - self.at) };
        self.held_from = window.skip_back(window.text.len(), dashes, |b| b == b'-');
        self.hide(self.held_from, false);
        false
    }

    fn read_quoted(&mut self, quote: u8, backslashes: usize, marked: bool) -> bool {
        let ScanWindow { bytes, last, .. } = self.window;
        let (end, close) = quoted_end(bytes, self.at, quote, backslashes, last);
        let value = &bytes[self.at..end];
        // An empty value stays, even if the text ends inside its closing quote.
        let is_cut_quote = close.is_none() && last && !marked && value.len() <= backslashes && value.iter().all(|b| *b == b'\\');
        if !value.is_empty() && !is_cut_quote {
            self.hide(end, !marked);
            self.mode = Mode::Quoted { quote, backslashes, marked: true };
        }
        match close {
            Some(close) => {
                self.mode = Mode::Text;
                self.continue_at(close);
                true
            }
            None => {
                self.held_from = end;
                false
            }
        }
    }

    /// Hides the text from here to `end`.
    fn hide(&mut self, end: usize, marked: bool) {
        match self.redactions.last_mut() {
            Some(redaction) if redaction.to == self.at && !marked => redaction.to = end,
            // A mark may replace no bytes yet: a token may be certain before its first byte.
            _ if end > self.at || marked => self.redactions.push(Redaction { from: self.at, to: end, marked }),
            _ => {}
        }
        self.continue_at(end);
    }

    /// Continues at `at`. Later rules must not read a token's last letters or a quoted value as context.
    fn continue_at(&mut self, at: usize) {
        self.at = at;
        self.window.floor = at;
        self.window.in_word = false;
        self.candidates.skip_to(at);
    }

    fn finish(mut self) -> ScanResult {
        let (mut keep_from, mut in_word, mut holds_one_letter) = (self.held_from, false, false);
        if self.mode == Mode::Text && !self.window.last {
            if let Some(begun) = self.window.partial_literal_start(self.at) {
                holds_one_letter = self.held_from == self.window.text.len() && begun + 1 == self.held_from;
                self.held_from = self.held_from.min(begun);
            }
            keep_from = self.window.context_start(self.held_from);
            in_word = !self.window.is_boundary(keep_from);
        }
        let Self { redactions, mode, held_from, risk, .. } = self;
        ScanResult { redactions, mode, held_from, keep_from, in_word, risk, holds_one_letter }
    }
}

/// The end of a quoted value from `from` on, and the position after its closing quote.
///
/// A value opened by a quote after `k` backslashes is closed by a quote after `n`, if none of the `n - k` is left to
/// escape it. Nested JSON doubles backslashes at every level, so an escape of this level has `2 (k + 1)` of them, in
/// pairs. Fewer than `k` close an outer string, and with it this one.
fn quoted_end(bytes: &[u8], from: usize, quote: u8, k: usize, last: bool) -> (usize, Option<usize>) {
    let run_before = |end: usize| bytes[from..end].iter().rev().take_while(|b| **b == b'\\').count();
    for at in memchr::memchr_iter(quote, &bytes[from..]) {
        let at = from + at;
        let run = run_before(at);
        if run < k || (run - k).is_multiple_of(2 * (k + 1)) {
            return (at - run.min(k), Some(at + 1));
        }
    }
    if last {
        return (bytes.len(), None);
    }
    // Backslashes at the end may belong to the closing quote, which keeps its own; whole pairs do not.
    let run = run_before(bytes.len());
    let pair = 2 * (k + 1);
    let held = if run >= k + pair { k + (run - k) % pair } else { run };
    (bytes.len() - held, None)
}

/// Renders the text from `from` to `to` with its redactions.
///
/// The `first` shown range also gets the marks of redactions that begin before it, the `last` one those that begin at
/// its end.
fn render(text: &str, from: usize, to: usize, redactions: &[Redaction], first: bool, last: bool) -> String {
    let mut out = String::with_capacity(to.saturating_sub(from) + REDACTED.len());
    let mut at = from;
    for redaction in redactions {
        if redaction.from > to || (redaction.from == to && !last) {
            break;
        }
        out.push_str(&text[at..redaction.from.max(at)]);
        if redaction.marked && (first || redaction.from >= from) {
            out.push_str(REDACTED);
        }
        at = at.max(redaction.to);
    }
    if at < to {
        out.push_str(&text[at..to]);
    }
    out
}

/// Redacts the secrets in `text`. Returns a borrowed text if it has none.
///
/// The function is idempotent, so an exported log imports unchanged.
///
/// ```
/// # use proscenium_guard::redact_text;
/// assert_eq!(redact_text("key: sk-live-abcdef0123456789abcdef."), "key: [redacted].");
/// assert_eq!(redact_text("postgres://app:hunter2@db/x"), "postgres://[redacted]@db/x");
/// ```
#[must_use]
pub fn redact_text(text: &str) -> Cow<'_, str> {
    if text.len() < SECRET_BYTES_MIN {
        return Cow::Borrowed(text);
    }
    let scanned = scan(text, 0, Mode::Text, false, true);
    if scanned.redactions.is_empty() {
        return Cow::Borrowed(text);
    }
    let redacted = render(text, 0, text.len(), &scanned.redactions, true, true);
    // Below a secret name the text may already be redacted.
    if redacted == text { Cow::Borrowed(text) } else { Cow::Owned(redacted) }
}

/// The memory of a text between its chunks.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScanState {
    mode: Mode,
    /// The end of the text so far: context that has been passed, then the held text.
    kept: String,
    /// The length of `kept` that has been passed.
    shown: usize,
    /// The length of `kept` that is decided; less than `shown` only if the tail was decided early.
    decided: usize,
    /// Whether `kept` begins inside a word.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    in_word: bool,
    /// The mode in which to continue without `kept`; set while `kept` may contain most of a secret.
    #[serde(skip)]
    risk: Option<Mode>,
}

/// The result of feeding a chunk, besides the text.
pub(super) struct FeedOutcome {
    /// The decided text of each part that was held before the chunk.
    pub parts: Vec<DecidedPart>,
    /// Whether only the last letter is held, because it may begin a key.
    pub holds_one_letter: bool,
}

/// The decided text of a part of the held text.
pub(super) struct DecidedPart {
    /// The text that may be shown.
    pub text: String,
    /// The number of bytes that are no longer held.
    pub passed: usize,
}

impl ScanState {
    /// A text of which nothing more may be shown.
    pub(super) fn suppressed() -> Self {
        Self { mode: Mode::Token(TokenTail::All), ..Self::default() }
    }

    /// Whether this is a consistent memory of a text held in `parts` of these lengths.
    pub(super) fn is_consistent(&self, mut parts: impl Iterator<Item = usize>) -> bool {
        let fits = |at: usize| self.kept.is_char_boundary(at);
        let depth = match self.mode {
            Mode::Quoted { backslashes, .. } => backslashes,
            Mode::Text | Mode::Token(_) | Mode::Pem => 0,
        };
        let mut at = self.shown;
        self.decided <= self.shown
            && fits(self.shown)
            && fits(self.decided)
            && depth <= BACKSLASHES_MAX
            && parts.all(|bytes| {
                at = at.saturating_add(bytes);
                fits(at)
            })
    }

    /// The length of the held text, in bytes.
    pub(super) const fn held_bytes(&self) -> usize {
        self.kept.len().saturating_sub(self.shown)
    }

    /// Whether the held text may be most of a secret.
    pub(super) const fn may_hold_secret(&self) -> bool {
        self.risk.is_some() && self.held_bytes() > 0
    }

    /// Whether the next text is read without context, except for a word that continues.
    pub(super) fn is_plain(&self) -> bool {
        self.mode == Mode::Text && self.kept.is_empty()
    }

    /// Whether forgetting this loses nothing.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_plain() && !self.in_word
    }

    /// Whether the next text may be the rest of a secret.
    pub(super) fn is_in_secret(&self) -> bool {
        self.mode != Mode::Text || self.risk.is_some()
    }

    /// Feeds the next chunk and leaves the text in it that may pass now.
    ///
    /// `parts` are the lengths of the held parts.
    pub(super) fn feed(&mut self, chunk: &mut String, last: bool, parts: impl Iterator<Item = usize>) -> FeedOutcome {
        let seam = self.kept.len();
        let fresh = seam == 0;
        if !fresh {
            self.kept.push_str(chunk);
        }
        let text: &str = if fresh { chunk } else { &self.kept };
        let scanned = scan(text, self.decided, self.mode, self.in_word, last);
        let redactions = &scanned.redactions;
        let (held_from, mut at) = (scanned.held_from, self.shown);
        let parts = parts.map(|bytes| {
            let (from, to) = (at, (at + bytes).min(held_from.max(at)));
            at += bytes;
            let text = render(text, from, to, redactions, from == self.shown, from < to && to == held_from && held_from < seam);
            DecidedPart { text, passed: to - from }
        });
        let parts: Vec<_> = parts.collect();
        let passed = (!redactions.is_empty() && held_from >= seam)
            .then(|| render(text, seam, held_from, redactions, seam == self.shown, true));
        let shown = self.shown.max(held_from);
        if fresh {
            self.kept.push_str(&chunk[scanned.keep_from..]);
        } else {
            self.kept.drain(..scanned.keep_from);
        }
        match passed {
            Some(passed) => *chunk = passed,
            None => chunk.truncate(held_from.saturating_sub(seam)),
        }
        self.mode = scanned.mode;
        self.in_word = scanned.in_word;
        self.risk = scanned.risk;
        self.decided = held_from - scanned.keep_from;
        self.shown = shown - scanned.keep_from;
        FeedOutcome { parts, holds_one_letter: scanned.holds_one_letter }
    }

    /// Decides the held text early: returns it if it is too short for a secret, else the mark.
    ///
    /// Later text is still recognised, so no more of a secret that is cut here passes.
    pub(super) fn decide_early(&mut self) -> String {
        if let Some(then) = self.risk.take() {
            *self = Self { mode: then, ..Self::default() };
            return REDACTED.into();
        }
        let text = self.kept[self.shown..].to_owned();
        self.shown = self.kept.len();
        text
    }

    /// The memory in the form for the disk, and whether the mark replaces the held text.
    ///
    /// It does if that text may be most of a secret.
    pub(super) fn for_storage(&self) -> (Self, bool) {
        let mut saved = self.clone();
        let gives_up = saved.may_hold_secret();
        if gives_up {
            saved.decide_early();
        }
        (saved, gives_up)
    }
}

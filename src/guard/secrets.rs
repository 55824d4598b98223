//! What looks like a secret in text. One machine reads whole texts and streams alike.
//!
//! [`scan`] goes from left to right and decides about each place where a secret may begin: it passes, it is a secret, or it
//! takes more text to know. The verdict on a place depends only on a bounded stretch of text around it, never on where a
//! chunk happened to end; so a text redacts to the same text however it was cut, and a final text compares equal to its
//! deltas (protocol, section 3, sealing). What a verdict still needs is held back, [`HELD_BYTES_MAX`] at most: what is
//! undecided beyond that is a secret.
//!
//! ```text
//!             kept          shown            held               text
//!  [ emitted, may matter ]  ─────▶ [ undecided, not emitted ] + [ the next chunk ]
//! ```
//!
//! Never looks at JSON structure: names and values are `walk`'s; a quoted name inside text is just another place.

use super::places::Places;
use super::rules::{BACKSLASHES_MAX, Mode, Rest, Verdict, View};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What stands in place of a secret.
pub(super) const MARK: &str = "[redacted]";

/// The longest tail that is held back, in bytes. Longer than every token's decisive part; short enough that 64 held tails
/// are nothing.
pub(super) const HELD_BYTES_MAX: usize = 256;

/// The shortest text that any rule below can act on, `a://:@`; shorter texts are not even searched.
const SECRET_BYTES_MIN: usize = 6;

/// A range that does not pass.
struct Edit {
    from: usize,
    to: usize,
    /// Whether the mark stands in its place, or stood there already.
    marked: bool,
}

/// What became of a text.
struct Scanned {
    edits: Vec<Edit>,
    mode: Mode,
    /// Everything from here on is undecided.
    held_from: usize,
    /// Everything before this can be forgotten.
    keep_from: usize,
    in_word: bool,
    risk: Option<Mode>,
    /// Whether nothing is undecided but the last letter, which may begin a key.
    holds_one_letter: bool,
}

/// Decides about `text` from `decided` on; what stands before only matters as context. Every verdict falls if it is the `last`.
fn scan(text: &str, decided: usize, mode: Mode, in_word: bool, last: bool) -> Scanned {
    let view = View { text, bytes: text.as_bytes(), floor: 0, in_word, last };
    let places = Places::new(text);
    let mut scanner = Scanner { view, places, mode, at: decided, edits: Vec::new(), held_from: text.len(), risk: None };
    while match scanner.mode {
        Mode::Text => scanner.read_text(),
        Mode::Token(rest) => scanner.read_token(rest),
        Mode::Quoted { quote, backslashes, marked } => scanner.read_quoted(quote, backslashes, marked),
        Mode::Pem => scanner.read_pem(),
    } {}
    scanner.finish()
}

struct Scanner<'t> {
    view: View<'t>,
    places: Places<'t>,
    mode: Mode,
    /// Everything before this has been decided.
    at: usize,
    edits: Vec<Edit>,
    held_from: usize,
    risk: Option<Mode>,
}

/// Each `read` goes on in one mode, and says whether there is another to go on in.
impl Scanner<'_> {
    fn read_text(&mut self) -> bool {
        while let Some(place) = self.places.next() {
            match self.view.judge(place, self.at) {
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

    fn read_token(&mut self, rest: Rest) -> bool {
        let text = self.view.text;
        self.hide(self.at + rest.len_in(&text[self.at..]), false);
        let ends = self.at < text.len();
        if ends {
            self.mode = Mode::Text;
        }
        ends
    }

    fn read_pem(&mut self) -> bool {
        let view = self.view;
        while let Some(dashes) = memchr::memmem::find(&view.bytes[self.at..], b"----").map(|i| self.at + i) {
            match view.judge_pem_end(dashes) {
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
        let dashes = if view.last { 0 } else { 3.min(view.text.len() - self.at) };
        self.held_from = view.back(view.text.len(), dashes, |b| b == b'-');
        self.hide(self.held_from, false);
        false
    }

    fn read_quoted(&mut self, quote: u8, backslashes: usize, marked: bool) -> bool {
        let View { bytes, last, .. } = self.view;
        let (end, close) = quoted_end(bytes, self.at, quote, backslashes, last);
        let value = &bytes[self.at..end];
        // An empty value stays, even when the text ends in the middle of its closing quote.
        let is_cut_quote = close.is_none() && last && !marked && value.len() <= backslashes && value.iter().all(|b| *b == b'\\');
        if !value.is_empty() && !is_cut_quote {
            self.hide(end, !marked);
            self.mode = Mode::Quoted { quote, backslashes, marked: true };
        }
        match close {
            Some(close) => {
                self.mode = Mode::Text;
                self.go_on_at(close);
                true
            }
            None => {
                self.held_from = end;
                false
            }
        }
    }

    /// Lets nothing pass from here to `end`.
    fn hide(&mut self, end: usize, marked: bool) {
        match self.edits.last_mut() {
            Some(edit) if edit.to == self.at && !marked => edit.to = end,
            // A mark may stand for nothing yet: a token that is known to be one before its first byte.
            _ if end > self.at || marked => self.edits.push(Edit { from: self.at, to: end, marked }),
            _ => {}
        }
        self.go_on_at(end);
    }

    /// What was read cannot be seen from what comes: nothing may be read into a token's last letters or a quoted value.
    fn go_on_at(&mut self, at: usize) {
        self.at = at;
        self.view.floor = at;
        self.view.in_word = false;
        self.places.skip_to(at);
    }

    fn finish(mut self) -> Scanned {
        let (mut keep_from, mut in_word, mut holds_one_letter) = (self.held_from, false, false);
        if self.mode == Mode::Text && !self.view.last {
            if let Some(begun) = self.view.begun_literal(self.at) {
                holds_one_letter = self.held_from == self.view.text.len() && begun + 1 == self.held_from;
                self.held_from = self.held_from.min(begun);
            }
            keep_from = self.view.relevant_from(self.held_from);
            in_word = !self.view.is_boundary(keep_from);
        }
        let Self { edits, mode, held_from, risk, .. } = self;
        Scanned { edits, mode, held_from, keep_from, in_word, risk, holds_one_letter }
    }
}

/// Where a quoted value ends that goes on at `from`, and where the text goes on after its closing quote, if that is there.
///
/// A quote behind `n` backslashes closes a value that was opened by one behind `k`, if none of the `n - k` is left to escape
/// it: nested JSON doubles backslashes at every level, so an escape of this level is `2 (k + 1)` of them in pairs. Fewer
/// than `k` close an outer string, and with it this one.
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
    // Backslashes at the end may belong to the closing quote, which keeps its own. Whole pairs of them do not.
    let run = run_before(bytes.len());
    let pair = 2 * (k + 1);
    let held = if run >= k + pair { k + (run - k) % pair } else { run };
    (bytes.len() - held, None)
}

/// The text from `from` to `to` without the edits. The `first` range that is shown also takes the marks of edits that begin before
/// it, the `last` those that begin at its end.
fn render(text: &str, from: usize, to: usize, edits: &[Edit], first: bool, last: bool) -> String {
    let mut out = String::with_capacity(to.saturating_sub(from) + MARK.len());
    let mut at = from;
    for edit in edits {
        if edit.from > to || (edit.from == to && !last) {
            break;
        }
        out.push_str(&text[at..edit.from.max(at)]);
        if edit.marked && (first || edit.from >= from) {
            out.push_str(MARK);
        }
        at = at.max(edit.to);
    }
    if at < to {
        out.push_str(&text[at..to]);
    }
    out
}

/// `text` without what looks like a secret. Borrowed if there is none.
///
/// Stable: redacting twice is redacting once, so an exported log imports unchanged.
///
/// ```
/// # use proscenium::guard::redact_text;
/// assert_eq!(redact_text("key: sk-live-abcdef0123456789abcdef."), "key: [redacted].");
/// assert_eq!(redact_text("postgres://app:hunter2@db/x"), "postgres://[redacted]@db/x");
/// ```
#[must_use]
pub fn redact_text(text: &str) -> Cow<'_, str> {
    if text.len() < SECRET_BYTES_MIN {
        return Cow::Borrowed(text);
    }
    let scanned = scan(text, 0, Mode::Text, false, true);
    if scanned.edits.is_empty() {
        return Cow::Borrowed(text);
    }
    let redacted = render(text, 0, text.len(), &scanned.edits, true, true);
    // Under a secret's name stands what was redacted before.
    if redacted == text { Cow::Borrowed(text) } else { Cow::Owned(redacted) }
}

/// What is remembered of a text between its chunks.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Scan {
    mode: Mode,
    /// The end of the text so far: context that has been passed on, then what is held.
    kept: String,
    /// Up to here `kept` has been passed on.
    shown: usize,
    /// Up to here `kept` has been decided; before `shown` only where showing was forced.
    decided: usize,
    /// Whether `kept` begins in the middle of a word.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    in_word: bool,
    /// How to go on if `kept` must be given up: set while it may hold most of a secret.
    #[serde(skip)]
    risk: Option<Mode>,
}

/// What feeding a chunk gave, besides the text.
pub(super) struct Fed {
    /// What became of each part of what was held before the chunk came.
    pub parts: Vec<Part>,
    /// Whether all that is held is the letter that came last, which may begin a key.
    pub holds_one_letter: bool,
}

/// What became of a part of the held text.
pub(super) struct Part {
    /// What may be seen of it now.
    pub text: String,
    /// How many bytes of it are no longer held.
    pub passed: usize,
}

impl Scan {
    /// A text of which nothing more may be seen.
    pub(super) fn muted() -> Self {
        Self { mode: Mode::Token(Rest::All), ..Self::default() }
    }

    /// Whether this can be a memory of a text that is held in `parts` of these lengths.
    pub(super) fn is_sound(&self, mut parts: impl Iterator<Item = usize>) -> bool {
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

    /// How much is held back.
    pub(super) const fn held_bytes(&self) -> usize {
        self.kept.len().saturating_sub(self.shown)
    }

    /// Whether what is held may be most of a secret.
    pub(super) const fn is_telling(&self) -> bool {
        self.risk.is_some() && self.held_bytes() > 0
    }

    /// Whether what comes next is read as if nothing had been before it, but for a word that goes on.
    pub(super) fn is_plain(&self) -> bool {
        self.mode == Mode::Text && self.kept.is_empty()
    }

    /// Whether forgetting this would forget nothing at all.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_plain() && !self.in_word
    }

    /// Whether what comes next may be the rest of a secret.
    pub(super) fn is_in_secret(&self) -> bool {
        self.mode != Mode::Text || self.risk.is_some()
    }

    /// Takes the next chunk and leaves in its place what may pass of it now. `parts` are the lengths of the parts of what is held.
    pub(super) fn feed(&mut self, chunk: &mut String, last: bool, parts: impl Iterator<Item = usize>) -> Fed {
        let seam = self.kept.len();
        let fresh = seam == 0;
        if !fresh {
            self.kept.push_str(chunk);
        }
        let text: &str = if fresh { chunk } else { &self.kept };
        let scanned = scan(text, self.decided, self.mode, self.in_word, last);
        let edits = &scanned.edits;
        let (held_from, mut at) = (scanned.held_from, self.shown);
        let parts = parts.map(|bytes| {
            let (from, to) = (at, (at + bytes).min(held_from.max(at)));
            at += bytes;
            let text = render(text, from, to, edits, from == self.shown, from < to && to == held_from && held_from < seam);
            Part { text, passed: to - from }
        });
        let parts: Vec<_> = parts.collect();
        let passed =
            (!edits.is_empty() && held_from >= seam).then(|| render(text, seam, held_from, edits, seam == self.shown, true));
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
        Fed { parts, holds_one_letter: scanned.holds_one_letter }
    }

    /// Decides what is held before its time: shows it where it is too short to be any secret, else gives the mark. What comes
    /// next is recognised as before, so that a secret which was cut here goes no further.
    pub(super) fn force(&mut self) -> String {
        if let Some(then) = self.risk.take() {
            *self = Self { mode: then, ..Self::default() };
            return MARK.into();
        }
        let text = self.kept[self.shown..].to_owned();
        self.shown = self.kept.len();
        text
    }

    /// The memory as it may be written to disk; the mark stands for what is held if it might be most of a secret.
    pub(super) fn for_disk(&self) -> (Self, bool) {
        let mut saved = self.clone();
        let gives_up = saved.is_telling();
        if gives_up {
            saved.force();
        }
        (saved, gives_up)
    }
}

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

/// The text from `shown` to `end` without what does not pass; and how much of it stems from before `seam`.
fn render(text: &str, shown: usize, end: usize, edits: &[Edit], seam: usize) -> (String, usize) {
    let mut out = String::with_capacity(end.saturating_sub(shown) + MARK.len());
    let (mut at, mut before_seam) = (shown, None);
    for edit in edits {
        let from = edit.from.max(at);
        if seam <= edit.from && before_seam.is_none() {
            before_seam = Some(out.len() + seam.saturating_sub(at));
        }
        out.push_str(&text[at..from]);
        if edit.marked {
            out.push_str(MARK);
        }
        at = at.max(edit.to);
    }
    let before_seam = before_seam.unwrap_or_else(|| out.len() + seam.saturating_sub(at).min(end.saturating_sub(at)));
    if at < end {
        out.push_str(&text[at..end]);
    }
    (out, before_seam)
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
    let redacted = render(text, 0, text.len(), &scanned.edits, 0).0;
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
    /// Whether `kept` begins in the middle of a word. Not saved: a word that is taken for a beginning can only hide more.
    #[serde(skip)]
    in_word: bool,
    /// How to go on if `kept` must be given up: set while it may hold most of a secret.
    #[serde(skip)]
    risk: Option<Mode>,
}

/// What feeding a chunk gave, besides the text.
pub(super) struct Fed {
    /// How much of the text that passed was held before the chunk came.
    pub before: usize,
    /// Whether some of what was held before still is.
    pub still_holds: bool,
    /// Whether all that is held is the letter that came last, which may begin a key.
    pub holds_one_letter: bool,
}

impl Scan {
    /// A text of which nothing more may be seen.
    pub(super) fn muted() -> Self {
        Self { mode: Mode::Token(Rest::All), ..Self::default() }
    }

    /// Whether this can be a memory: it may come from a disk that others wrote to.
    pub(super) fn is_sound(&self) -> bool {
        let fits = |at: usize| self.kept.is_char_boundary(at);
        let depth = match self.mode {
            Mode::Quoted { backslashes, .. } => backslashes,
            Mode::Text | Mode::Token(_) | Mode::Pem => 0,
        };
        self.decided <= self.shown && fits(self.shown) && fits(self.decided) && depth <= BACKSLASHES_MAX
    }

    /// How much is held back.
    pub(super) fn held_bytes(&self) -> usize {
        self.kept.len() - self.shown
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

    /// Takes the next chunk and leaves in its place what may pass now.
    pub(super) fn feed(&mut self, chunk: &mut String, last: bool) -> Fed {
        let held = self.held_bytes() > 0;
        let seam = self.kept.len();
        let fresh = seam == 0;
        if !fresh {
            self.kept.push_str(chunk);
        }
        let text: &str = if fresh { chunk } else { &self.kept };
        let scanned = scan(text, self.decided, self.mode, self.in_word, last);
        let shown = self.shown.max(scanned.held_from);
        let rendered =
            (held || !scanned.edits.is_empty()).then(|| render(text, self.shown, scanned.held_from, &scanned.edits, seam));
        if fresh {
            self.kept.push_str(&chunk[scanned.keep_from..]);
        } else {
            self.kept.drain(..scanned.keep_from);
        }
        let before = match rendered {
            Some((text, before)) => {
                *chunk = text;
                before
            }
            None => {
                chunk.truncate(scanned.held_from.saturating_sub(seam));
                0
            }
        };
        self.mode = scanned.mode;
        self.in_word = scanned.in_word;
        self.risk = scanned.risk;
        self.decided = scanned.held_from - scanned.keep_from;
        self.shown = shown - scanned.keep_from;
        Fed { before, still_holds: held && scanned.held_from < seam, holds_one_letter: scanned.holds_one_letter }
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
        let gives_up = saved.risk.is_some() && saved.held_bytes() > 0;
        if gives_up {
            saved.force();
        }
        (saved, gives_up)
    }
}

//! What looks like a secret at one place of a text: the rules, each a verdict.
//!
//! A verdict depends on a bounded stretch of text around its place, so that it falls the same however a stream is cut: on
//! [`HELD_BYTES_MAX`] bytes behind it, and before it on what `recall` remembers. A rule that reads further back than it used
//! to is changed there too; `every_text_here_reads_the_same_cut_at_any_two_places_and_a_letter_at_a_time` tells if it was not.

use super::names::{NAME_BYTES_MAX, bears_secret};
use super::places::{Place, next_anchor};
use super::secrets::HELD_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// A held tail with this many bytes of a token gives away too much of it to be written to disk.
const RISKY_BYTES: usize = 8;

pub(super) const SPACE_BYTES_MAX: usize = 8;
/// The deepest nesting of JSON in text that is followed: `\"` at depth 1, `\\\"` at 3, … each level doubles it.
pub(super) const BACKSLASHES_MAX: usize = 63;
const PEM_LABEL_BYTES_MAX: usize = 64;

/// What the machine is inside of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Mode {
    #[default]
    Text,
    /// Behind a mark: what belongs to the same token is swallowed.
    Token(Rest),
    /// In the quoted value of a secret-bearing name, until the quote that closes it.
    Quoted { quote: u8, backslashes: usize, marked: bool },
    /// In a private key, until its end line.
    Pem,
}

/// What still belongs to a token that was found to be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Rest {
    Key,
    Dotted,
    Bearer,
    Authority,
    Dashes,
    /// Everything: a stream that was lost track of.
    All,
}

impl Rest {
    /// How many bytes at the beginning of `text` belong to the token.
    pub(super) fn len_in(self, text: &str) -> usize {
        let outside: fn(u8) -> bool = match self {
            Self::All => return text.len(),
            Self::Authority => return text.find(ends_authority).unwrap_or(text.len()),
            Self::Key => |b| !is_key_byte(b),
            Self::Dotted => |b| !(is_key_byte(b) || b == b'.' || b == b'='),
            Self::Bearer => |b| !is_bearer_byte(b),
            Self::Dashes => |b| b != b'-',
        };
        text.bytes().position(outside).unwrap_or(text.len())
    }
}

pub(super) const fn is_key_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')
}

/// RFC 6750 section 2.1, `b64token`.
const fn is_bearer_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

/// Whether a URL's authority ends here. Quotes and brackets of prose end it too, as does CJK punctuation: a sentence goes on
/// after an address without a space there, and 256 bytes of it must not be held back for a `@` that never comes.
fn ends_authority(c: char) -> bool {
    matches!(c, '/' | '?' | '#' | '\\' | '"' | '\'' | '`' | '<' | '>')
        || c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{2000}'..='\u{206f}' | '\u{3000}'..='\u{303f}' | '\u{ff00}'..='\u{ff0f}')
}

/// Whether an unfinished authority may be a host and a port: `localhost:3000`, `[::1]:80`. The beginning of a password looks the
/// same only up to five digits, which give little away.
fn may_be_host_and_port(authority: &str) -> bool {
    let port = match authority.strip_prefix('[') {
        Some(rest) => {
            let address = rest.find(']').unwrap_or(rest.len());
            let is_address = rest.bytes().take(address).all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'));
            if !is_address || address > IP_BYTES_MAX {
                return false;
            }
            rest[address..].strip_prefix(']').unwrap_or_default()
        }
        None => authority.find(':').map_or("", |colon| &authority[colon..]),
    };
    let digits = port.strip_prefix(':').unwrap_or_default();
    (port.is_empty() || port.starts_with(':')) && digits.len() <= PORT_BYTES_MAX && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A provider's keys: how they begin, and how much more it takes to be one. The minima are below what providers issue, since
/// half a key is worth hiding too, and above what prose and code put behind the same letters.
pub(super) struct KeyRule {
    pub literal: &'static str,
    body: fn(u8) -> bool,
    body_bytes_min: usize,
    form: Form,
    rest: Rest,
}

#[derive(PartialEq)]
enum Form {
    /// So many bytes of its body.
    Plain,
    /// `sk-`: besides, a digit, a capital, or a label that only keys have, lest `sk-learn-contrib-packages` be one.
    Sk,
    /// `eyJ….…`: a dot after the body, and more behind it.
    Jwt,
}

const fn rule(literal: &'static str, body: fn(u8) -> bool, body_bytes_min: usize) -> KeyRule {
    KeyRule { literal, body, body_bytes_min, form: Form::Plain, rest: Rest::Key }
}

const fn is_alphanumeric(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

const fn is_capital_or_digit(b: u8) -> bool {
    b.is_ascii_uppercase() || b.is_ascii_digit()
}

pub(super) static KEYS: &[KeyRule] = &[
    KeyRule { literal: "sk-", body: is_key_byte, body_bytes_min: 16, form: Form::Sk, rest: Rest::Key },
    rule("sk_live_", is_key_byte, 10),
    rule("sk_test_", is_key_byte, 10),
    rule("rk_live_", is_key_byte, 10),
    rule("rk_test_", is_key_byte, 10),
    rule("ghp_", is_key_byte, 12),
    rule("gho_", is_key_byte, 12),
    rule("ghu_", is_key_byte, 12),
    rule("ghs_", is_key_byte, 12),
    rule("ghr_", is_key_byte, 12),
    rule("github_pat_", is_key_byte, 12),
    rule("xoxa-", is_key_byte, 10),
    rule("xoxb-", is_key_byte, 10),
    rule("xoxc-", is_key_byte, 10),
    rule("xoxd-", is_key_byte, 10),
    rule("xoxe-", is_key_byte, 10),
    rule("xoxp-", is_key_byte, 10),
    rule("xoxr-", is_key_byte, 10),
    rule("xoxs-", is_key_byte, 10),
    rule("xapp-", is_key_byte, 10),
    rule("AKIA", is_capital_or_digit, 16),
    rule("ASIA", is_capital_or_digit, 16),
    rule("AIza", is_key_byte, 24),
    KeyRule { literal: "glpat-", body: is_key_byte, body_bytes_min: 12, form: Form::Plain, rest: Rest::Dotted },
    // No underscore: npm_config_registry and hf_hub_download are names of variables and functions.
    rule("npm_", is_alphanumeric, 16),
    rule("hf_", is_alphanumeric, 16),
    KeyRule { literal: "eyJ", body: is_key_byte, body_bytes_min: 8, form: Form::Jwt, rest: Rest::Dotted },
];

/// Labels after `sk-` that need no digit to be believed.
const SK_LABELS: &[&str] = &["proj-", "ant-", "live-", "svcacct-"];

/// How a private key begins; one dash fewer serves SSH2's form and a key that is glued to a word.
pub(super) const PEM_BEGINS: &[&str] = &["-----BEGIN ", "----BEGIN ", "---- BEGIN "];

/// What is known about a place.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Passes,
    /// From `start` to `end` it is a secret, and so is what `then` says behind it.
    Secret {
        start: usize,
        end: usize,
        then: Mode,
    },
    /// From `start` on it is what `inside` says, which may be empty.
    Opens {
        start: usize,
        inside: Mode,
    },
    /// It takes more text to know about what is from `start` on. `risk` is set once that gives away too much of a secret to be
    /// saved: how to go on without it.
    Undecided {
        start: usize,
        risk: Option<Mode>,
    },
}

/// Text as the rules see it: nothing before `floor`, where the last secret ended.
#[derive(Clone, Copy)]
pub(super) struct View<'t> {
    pub text: &'t str,
    pub bytes: &'t [u8],
    pub floor: usize,
    /// Whether the text at `floor` goes on with a word that began before it.
    pub in_word: bool,
    /// Whether the text ends here, so that every verdict must fall.
    pub last: bool,
}

impl View<'_> {
    /// The verdict on what a place points at, unless that begins before `decided`.
    pub(super) fn judge(&self, place: Place, decided: usize) -> Verdict {
        let verdict = match place {
            Place::Colon(colon) => match self.authority_start(colon) {
                Some(start) => self.judge_authority(start),
                None => self.quoted_value(colon).unwrap_or(Verdict::Passes),
            },
            Place::Anchor(at) => match self.bytes[at..] {
                [b'-', ..] => self.judge_pem(at),
                [_, b'e' | b'E', ..] => match self.bearer_start(at) {
                    Some((start, is_header)) => self.judge_bearer(start, is_header),
                    None => Verdict::Passes,
                },
                _ => self.judge_key(at),
            },
        };
        match verdict {
            Verdict::Secret { start, .. } | Verdict::Opens { start, .. } | Verdict::Undecided { start, .. }
                if start < decided =>
            {
                Verdict::Passes
            }
            verdict => verdict,
        }
    }

    pub(super) fn before(&self, at: usize) -> Option<u8> {
        if at > self.floor { Some(self.bytes[at - 1]) } else { None }
    }

    /// Goes back over bytes that `is` accepts, `max` at most.
    pub(super) fn back(&self, mut at: usize, max: usize, is: impl Fn(u8) -> bool) -> usize {
        let stop = at.saturating_sub(max).max(self.floor);
        while at > stop && is(self.bytes[at - 1]) {
            at -= 1;
        }
        at
    }

    /// Goes on over bytes that `is` accepts, `max` at most.
    fn on(&self, at: usize, max: usize, is: impl Fn(u8) -> bool) -> usize {
        let run = self.bytes[at..].iter().take(max).take_while(|b| is(**b)).count();
        at + run
    }

    /// Whether a word may begin at `at`. A letter before it joins them into one word (`task-…` holds no `sk-…`), unless that
    /// letter is the end of an escape: in JSON in text a key follows `\n`, in a URL `%3D`.
    pub(super) fn is_boundary(&self, at: usize) -> bool {
        if at == self.floor {
            return !self.in_word;
        }
        let seen = &self.bytes[self.floor..at];
        let n = seen.len();
        if !seen[n - 1].is_ascii_alphanumeric() {
            return true;
        }
        let hex = |from: usize| seen[from..].iter().all(u8::is_ascii_hexdigit);
        (n >= 2 && seen[n - 2] == b'\\' && matches!(seen[n - 1], b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'0'))
            || (n >= 3 && seen[n - 3] == b'%' && hex(n - 2))
            || (n >= 4 && seen[n - 4..n - 2] == *b"\\x" && hex(n - 2))
            || (n >= 6 && seen[n - 6..n - 4] == *b"\\u" && hex(n - 4))
    }

    /// Where the user information would begin, if the colon at `colon` belongs to `scheme://`, or `scheme:\/\/` in JSON.
    fn authority_start(&self, colon: usize) -> Option<usize> {
        let mut at = colon + 1;
        for _ in 0..2 {
            at = self.on(at, 3, |b| b == b'\\');
            if self.bytes.get(at) != Some(&b'/') {
                return None;
            }
            at += 1;
        }
        Some(at)
    }

    /// `user:password@`: needs the end of the authority, since a password may hold a `@` and a port looks like one.
    fn judge_authority(&self, start: usize) -> Verdict {
        let rest = &self.text[start..];
        let (mut colon, mut at_sign, mut len) = (false, None, rest.len());
        for (i, c) in rest.char_indices() {
            if i >= HELD_BYTES_MAX || ends_authority(c) {
                len = i;
                break;
            }
            match c {
                ':' => colon = true,
                '@' if colon => at_sign = Some(i),
                _ => {}
            }
        }
        let overlong = len >= HELD_BYTES_MAX;
        if len == rest.len() && !overlong && !self.last {
            // "user" alone is no secret, but it may be a provider's key. Nor is what a host and a port begin with.
            let risky = (colon && !may_be_host_and_port(rest)) || next_anchor(rest, 0).is_some();
            return Verdict::Undecided { start, risk: risky.then_some(Mode::Token(Rest::Authority)) };
        }
        match at_sign {
            Some(i) => Verdict::Secret { start, end: start + i, then: Mode::Text },
            None if overlong && colon => Verdict::Secret { start, end: start, then: Mode::Token(Rest::Authority) },
            None => Verdict::Passes,
        }
    }

    /// If the colon at `colon` stands between a quoted secret-bearing name and an opening quote: where the value begins, and
    /// the mode in it. Quotes may be escaped, however deep the JSON is nested in text.
    fn quoted_value(&self, colon: usize) -> Option<Verdict> {
        let name_end = self.back(colon, SPACE_BYTES_MAX, is_space);
        self.quoted_name(name_end)?;
        let at = self.on(colon + 1, SPACE_BYTES_MAX, is_space);
        let open = self.on(at, BACKSLASHES_MAX, |b| b == b'\\');
        let quote = *self.bytes.get(open).filter(|b| is_quote(**b))?;
        let inside = Mode::Quoted { quote, backslashes: open - at, marked: false };
        Some(Verdict::Opens { start: open + 1, inside })
    }

    /// Where the quoted name begins that ends before `end`, if it bears a secret.
    pub(super) fn quoted_name(&self, end: usize) -> Option<usize> {
        let quote = self.before(end).filter(|b| is_quote(*b))?;
        let name_end = self.back(end - 1, BACKSLASHES_MAX, |b| b == b'\\');
        let name_start = self.back(name_end, NAME_BYTES_MAX, is_name_byte);
        let opens = self.before(name_start)? == quote && self.opens_name(name_start - 1);
        (opens && bears_secret(&self.text[name_start..name_end])).then(|| name_start - 1)
    }

    /// Whether the quote at `at` may open a name. An apostrophe in a word opens nothing: "don't".
    pub(super) fn opens_name(&self, at: usize) -> bool {
        self.bytes[at] == b'"' || self.is_boundary(at)
    }

    /// Where the token of `Bearer <token>` begins, if `anchor` is the end of that word; and whether a header's name stands
    /// before it.
    fn bearer_start(&self, anchor: usize) -> Option<(usize, bool)> {
        let word = anchor.checked_sub(3).filter(|word| *word >= self.floor)?;
        if !self.bytes[word..anchor].eq_ignore_ascii_case(b"bea") || !self.is_boundary(word) {
            return None;
        }
        let start = self.on(anchor + 3, SPACE_BYTES_MAX + 1, is_blank);
        let blanks = start - (anchor + 3);
        (1..=SPACE_BYTES_MAX).contains(&blanks).then(|| (start, self.header_start(word).is_some()))
    }

    /// Where "authorization" begins, if that and punctuation is all that stands before `end`.
    pub(super) fn header_start(&self, end: usize) -> Option<usize> {
        let name_end = self.back(end, SPACE_BYTES_MAX, is_header_mark);
        let start = name_end.checked_sub(AUTHORIZATION.len()).filter(|start| *start >= self.floor)?;
        let is_header = name_end < end && self.bytes[start..name_end].eq_ignore_ascii_case(AUTHORIZATION.as_bytes());
        (is_header && self.is_boundary(start)).then_some(start)
    }

    /// A bearer's token. Prose speaks of bearer tokens, authentication and bonds: behind no header's name a token needs what
    /// words lack, a digit, two dots inside, or two dozen letters on end.
    fn judge_bearer(&self, start: usize, is_header: bool) -> Verdict {
        let (mut digit, mut dots, mut letters, mut any) = (false, 0, 0, false);
        for (i, &b) in self.bytes[start..].iter().enumerate() {
            if !is_bearer_byte(b) {
                return Verdict::Passes;
            }
            let n = i + 1;
            digit |= b.is_ascii_digit();
            any |= b.is_ascii_alphanumeric();
            letters = if b.is_ascii_alphabetic() { letters + 1 } else { 0 };
            let after_dot = i >= 2 && self.bytes[start + i - 1] == b'.' && self.bytes[start + i - 2].is_ascii_alphanumeric();
            dots += usize::from(after_dot && b.is_ascii_alphanumeric());
            if (is_header && any) || (n >= 8 && (digit || dots >= 2)) || letters >= 24 || n >= HELD_BYTES_MAX {
                return Verdict::Secret { start, end: start + n, then: Mode::Token(Rest::Bearer) };
            }
        }
        self.undecided(start, self.bytes.len() - start, Mode::Token(Rest::Bearer))
    }

    fn undecided(&self, start: usize, token_bytes: usize, then: Mode) -> Verdict {
        if self.last {
            return Verdict::Passes;
        }
        Verdict::Undecided { start, risk: (token_bytes >= RISKY_BYTES).then_some(then) }
    }

    /// A private key's first line. "BEGIN CERTIFICATE" and "BEGIN PUBLIC KEY" pass.
    fn judge_pem(&self, start: usize) -> Verdict {
        if !self.is_boundary(start) {
            return Verdict::Passes;
        }
        let rest = &self.bytes[start..];
        let Some(begin) = PEM_BEGINS.iter().find(|begin| rest.starts_with(begin.as_bytes())) else {
            // A prefix of it at the end of the text is held like every literal's.
            return Verdict::Passes;
        };
        let label = start + begin.len();
        let end = self.on(label, PEM_LABEL_BYTES_MAX, is_label_byte);
        match self.text[label..end].find("PRIVATE KEY") {
            Some(at) => Verdict::Secret { start, end: label + at + "PRIVATE KEY".len(), then: Mode::Pem },
            None if end == self.bytes.len() && end - label < PEM_LABEL_BYTES_MAX => self.undecided(start, 0, Mode::Pem),
            None => Verdict::Passes,
        }
    }

    /// A private key's last line.
    pub(super) fn judge_pem_end(&self, start: usize) -> Verdict {
        let dashes = self.on(start, 5, |b| b == b'-');
        let end = self.on(dashes, 1, |b| b == b' ');
        let word = b"END ";
        let seen = &self.bytes[end..self.bytes.len().min(end + word.len())];
        if !word.starts_with(seen) {
            return Verdict::Passes;
        }
        let label = end + seen.len();
        let closing = self.on(label, PEM_LABEL_BYTES_MAX, is_label_byte);
        let closed = self.on(closing, 4, |b| b == b'-');
        if closed - closing == 4 {
            return Verdict::Secret { start, end: closed, then: Mode::Token(Rest::Dashes) };
        }
        if closed == self.bytes.len() { self.undecided(start, 0, Mode::Pem) } else { Verdict::Passes }
    }

    /// A provider's key.
    fn judge_key(&self, start: usize) -> Verdict {
        let rest = &self.bytes[start..];
        let Some(rule) = KEYS.iter().find(|rule| rest.starts_with(rule.literal.as_bytes())) else { return Verdict::Passes };
        if !self.is_boundary(start) || (rule.form == Form::Jwt && self.is_in_data_url(start)) {
            return Verdict::Passes;
        }
        // The middle of a long base64url text may look like the beginning of anything; without a dot it is no token.
        let is_joined = rule.form == Form::Jwt && matches!(self.before(start), Some(b'-' | b'_'));
        let body = &rest[rule.literal.len()..];
        let secret = |n: usize| Verdict::Secret { start, end: start + rule.literal.len() + n, then: Mode::Token(rule.rest) };
        let labelled = || SK_LABELS.iter().any(|label| body.starts_with(label.as_bytes()));
        let (mut telling, mut behind_dot) = (false, None);
        for (i, &b) in body.iter().enumerate() {
            let n = i + 1;
            if rule.form == Form::Jwt && b == b'.' && behind_dot.is_none() && i >= rule.body_bytes_min {
                behind_dot = Some(0);
            } else if !(rule.body)(b) {
                return Verdict::Passes;
            } else if let Some(behind) = &mut behind_dot {
                *behind += 1;
            }
            telling |= b.is_ascii_digit() || b.is_ascii_uppercase();
            let enough = match rule.form {
                Form::Plain => n >= rule.body_bytes_min,
                Form::Sk => n >= rule.body_bytes_min && (telling || labelled()),
                Form::Jwt => behind_dot.is_some_and(|behind| behind >= 4),
            };
            if enough {
                return secret(n);
            }
            if rule.literal.len() + n >= HELD_BYTES_MAX {
                return if is_joined { Verdict::Passes } else { secret(n) };
            }
        }
        self.undecided(start, body.len(), Mode::Token(rule.rest))
    }

    /// Whether `start` is where a data URL's data begin: an inline source map is `{"version":…` in base64, and looks like every
    /// JWT does.
    fn is_in_data_url(&self, start: usize) -> bool {
        self.bytes[self.floor..start].ends_with(DATA_URL)
    }
}

pub(super) const AUTHORIZATION: &str = "authorization";
pub(super) const DATA_URL: &[u8] = b";base64,";
pub(super) const LITERAL_BYTES_MAX: usize = 11;
/// The longest IPv6 address in text.
const IP_BYTES_MAX: usize = 45;
const PORT_BYTES_MAX: usize = 5;

pub(super) const fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b'\r')
}

pub(super) const fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t')
}

pub(super) const fn is_quote(b: u8) -> bool {
    matches!(b, b'"' | b'\'')
}

pub(super) const fn is_header_mark(b: u8) -> bool {
    is_blank(b) || is_quote(b) || matches!(b, b':' | b'=' | b'\\')
}

const fn is_label_byte(b: u8) -> bool {
    is_capital_or_digit(b) || b == b' '
}

/// What a name in text may be made of. Wide enough for headers, paths and words with spaces; a name in another script is no
/// name of ours to know.
pub(super) const fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b' ' | b'$' | b'/' | b'@')
}

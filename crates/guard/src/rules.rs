//! The rules: what looks like a secret at one position of a text, as a verdict.
//!
//! A verdict depends on a bounded part of the text around its position, so that it is the same however a stream is cut:
//! on [`HELD_BYTES_MAX`] bytes after the position, and on the context that `recall` keeps before it. A rule that reads
//! further back needs a change in `recall`; the test
//! `texts_read_the_same_with_any_two_cuts_and_letter_by_letter` fails without it.

use super::names::{NAME_BYTES_MAX, is_secret_name};
use super::places::{Candidate, next_anchor};
use serde::{Deserialize, Serialize};

/// The longest tail that is held back, in bytes.
///
/// It exceeds the decisive part of every token, and 64 such tails do not matter.
pub(super) const HELD_BYTES_MAX: usize = 256;

/// A held tail with this many bytes of a token reveals too much of it to be written to disk.
const RISKY_TOKEN_BYTES: usize = 8;

pub(super) const SPACE_BYTES_MAX: usize = 8;
/// The deepest nesting of JSON in text that the rules follow, in backslashes.
///
/// `\"` has depth 1, `\\\"` has 3; each level doubles it.
pub(super) const BACKSLASHES_MAX: usize = 63;
const PEM_LABEL_BYTES_MAX: usize = 64;

/// The scanner's mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Mode {
    #[default]
    Text,
    /// After a mark: the rest of the token is dropped.
    Token(TokenTail),
    /// In the quoted value of a secret name, until the closing quote.
    Quoted { quote: u8, backslashes: usize, marked: bool },
    /// In a private key, until its end line.
    Pem,
}

/// The bytes that still belong to a token that is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum TokenTail {
    Key,
    Dotted,
    Bearer,
    Authority,
    Dashes,
    /// Every byte: the guard has lost track of the stream.
    All,
}

impl TokenTail {
    /// The number of bytes at the beginning of `text` that belong to the token.
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

/// Whether a byte belongs to a bearer token (RFC 6750 section 2.1, `b64token`).
const fn is_bearer_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

/// Whether a URL's authority ends here.
///
/// Quotes and brackets of prose end it too, as does CJK punctuation: a sentence may continue after an address without a
/// space, and 256 bytes of it must not be held back for a `@` that never comes.
fn ends_authority(c: char) -> bool {
    matches!(c, '/' | '?' | '#' | '\\' | '"' | '\'' | '`' | '<' | '>')
        || c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{2000}'..='\u{206f}' | '\u{3000}'..='\u{303f}' | '\u{ff00}'..='\u{ff0f}')
}

/// Whether an unfinished authority may be a host and a port: `localhost:3000`, `[::1]:80`.
///
/// The beginning of a password looks the same only up to five digits, which reveal little.
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

/// Whether `host:port` before an `@` is a local address: `http://localhost:3000@latest` names a version of a package.
fn is_local_address(authority: &str) -> bool {
    let port = authority.strip_prefix("localhost:").or_else(|| authority.strip_prefix("127.0.0.1:"));
    port.is_some_and(|port| (1..=PORT_BYTES_MAX).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit()))
}

/// A provider's key: its literal, and the length that makes it one.
///
/// The minima are below real keys, because half a key is worth hiding too, and above what prose and code put after the
/// same letters.
pub(super) struct KeyRule {
    pub literal: &'static str,
    body: fn(u8) -> bool,
    body_bytes_min: usize,
    form: Form,
    rest: TokenTail,
}

#[derive(PartialEq)]
enum Form {
    /// A minimum number of body bytes.
    Plain,
    /// `sk-`: also a digit, a capital or a key's label, to exclude `sk-learn-contrib-packages`.
    Sk,
    /// `eyJ….…`: a dot after the body, and more bytes after it.
    Jwt,
}

const fn rule(literal: &'static str, body: fn(u8) -> bool, body_bytes_min: usize) -> KeyRule {
    KeyRule { literal, body, body_bytes_min, form: Form::Plain, rest: TokenTail::Key }
}

const fn is_alphanumeric(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

const fn is_capital_or_digit(b: u8) -> bool {
    b.is_ascii_uppercase() || b.is_ascii_digit()
}

pub(super) static KEYS: &[KeyRule] = &[
    KeyRule { literal: "sk-", body: is_key_byte, body_bytes_min: 16, form: Form::Sk, rest: TokenTail::Key },
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
    KeyRule { literal: "glpat-", body: is_key_byte, body_bytes_min: 12, form: Form::Plain, rest: TokenTail::Dotted },
    // Without underscore: npm_config_registry and hf_hub_download are names of variables and functions.
    rule("npm_", is_alphanumeric, 16),
    rule("hf_", is_alphanumeric, 16),
    KeyRule { literal: "eyJ", body: is_key_byte, body_bytes_min: 8, form: Form::Jwt, rest: TokenTail::Dotted },
];

/// Labels after `sk-` that make it a key without a digit.
const SK_LABELS: &[&str] = &["proj-", "ant-", "live-", "svcacct-"];

/// The beginnings of a private key.
///
/// One dash fewer covers SSH2's form and a key that directly follows a word.
pub(super) const PEM_BEGINS: &[&str] = &["-----BEGIN ", "----BEGIN ", "---- BEGIN "];

/// The judgement of a position.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Passes,
    /// The text from `start` to `end` is a secret, and `then` is the mode after it.
    Secret {
        start: usize,
        end: usize,
        then: Mode,
    },
    /// The text from `start` on is in the mode `inside`, and may be empty.
    Opens {
        start: usize,
        inside: Mode,
    },
    /// The text from `start` on is undecided until more arrives.
    ///
    /// `risk` is set once it reveals too much of a secret to be saved: the mode in which to continue without it.
    Undecided {
        start: usize,
        risk: Option<Mode>,
    },
}

/// The text that the rules may read: nothing before `floor`, where the last secret ended.
#[derive(Clone, Copy)]
pub(super) struct ScanWindow<'t> {
    pub text: &'t str,
    pub bytes: &'t [u8],
    pub floor: usize,
    /// Whether the text at `floor` continues a word that began before it.
    pub in_word: bool,
    /// Whether the text ends here, so that every verdict must be final.
    pub last: bool,
}

impl ScanWindow<'_> {
    /// Judges the position `place`. A match that starts before `decided` passes.
    pub(super) fn judge(&self, place: Candidate, decided: usize) -> Verdict {
        let verdict = match place {
            Candidate::Colon(colon) => match self.authority_start(colon) {
                Some(start) => self.judge_authority(start),
                None => self.quoted_value(colon).unwrap_or(Verdict::Passes),
            },
            Candidate::Anchor(at) => match self.bytes[at..] {
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

    /// Moves back over at most `max` bytes that `is` accepts.
    pub(super) fn skip_back(&self, mut at: usize, max: usize, is: impl Fn(u8) -> bool) -> usize {
        let stop = at.saturating_sub(max).max(self.floor);
        while at > stop && is(self.bytes[at - 1]) {
            at -= 1;
        }
        at
    }

    /// Moves forward over at most `max` bytes that `is` accepts.
    fn skip_forward(&self, at: usize, max: usize, is: impl Fn(u8) -> bool) -> usize {
        let run = self.bytes[at..].iter().take(max).take_while(|b| is(**b)).count();
        at + run
    }

    /// Whether a word may begin at `at`.
    ///
    /// A letter before it joins them into one word (`task-…` contains no `sk-…`), unless that letter ends an escape: in
    /// JSON in text a key may follow `\n`, in a URL `%3D`.
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

    /// The start of the user information after `scheme://`, or `scheme:\/\/` in JSON.
    fn authority_start(&self, colon: usize) -> Option<usize> {
        let mut at = colon + 1;
        for _ in 0..2 {
            at = self.skip_forward(at, 3, |b| b == b'\\');
            if self.bytes.get(at) != Some(&b'/') {
                return None;
            }
            at += 1;
        }
        Some(at)
    }

    /// Judges `user:password@`.
    ///
    /// It needs the end of the authority: a password may contain `@`, and a port looks like one.
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
            // "user" alone is not a secret, unless it is a provider's key; neither is the beginning of a host and a
            // port.
            let risky = (colon && !may_be_host_and_port(rest)) || next_anchor(rest, 0).is_some();
            return Verdict::Undecided { start, risk: risky.then_some(Mode::Token(TokenTail::Authority)) };
        }
        match at_sign {
            Some(i) if is_local_address(&rest[..i]) => Verdict::Passes,
            Some(i) => Verdict::Secret { start, end: start + i, then: Mode::Text },
            None if overlong && colon => Verdict::Secret { start, end: start, then: Mode::Token(TokenTail::Authority) },
            None => Verdict::Passes,
        }
    }

    /// The value of a quoted secret name, if `colon` stands between the name and an opening quote.
    ///
    /// Quotes may be escaped, at any depth of JSON in text.
    fn quoted_value(&self, colon: usize) -> Option<Verdict> {
        let name_end = self.skip_back(colon, SPACE_BYTES_MAX, is_space);
        self.quoted_name(name_end)?;
        let at = self.skip_forward(colon + 1, SPACE_BYTES_MAX, is_space);
        let open = self.skip_forward(at, BACKSLASHES_MAX, |b| b == b'\\');
        let quote = *self.bytes.get(open).filter(|b| is_quote(**b))?;
        let inside = Mode::Quoted { quote, backslashes: open - at, marked: false };
        Some(Verdict::Opens { start: open + 1, inside })
    }

    /// The start of the quoted name that ends before `end`, if it is a secret name.
    pub(super) fn quoted_name(&self, end: usize) -> Option<usize> {
        let quote = self.before(end).filter(|b| is_quote(*b))?;
        let name_end = self.skip_back(end - 1, BACKSLASHES_MAX, |b| b == b'\\');
        let name_start = self.skip_back(name_end, NAME_BYTES_MAX, is_name_byte);
        let opens = self.before(name_start)? == quote && self.opens_name(name_start - 1);
        (opens && is_secret_name(&self.text[name_start..name_end])).then(|| name_start - 1)
    }

    /// Whether the quote at `at` may open a name. An apostrophe inside a word does not: "don't".
    pub(super) fn opens_name(&self, at: usize) -> bool {
        self.bytes[at] == b'"' || self.is_boundary(at)
    }

    /// The start of the token of `Bearer <token>`, and whether a header name precedes it.
    ///
    /// `anchor` is the end of that word.
    fn bearer_start(&self, anchor: usize) -> Option<(usize, bool)> {
        let word = anchor.checked_sub(3).filter(|word| *word >= self.floor)?;
        if !self.bytes[word..anchor].eq_ignore_ascii_case(b"bea") || !self.is_boundary(word) {
            return None;
        }
        let start = self.skip_forward(anchor + 3, SPACE_BYTES_MAX + 1, is_blank);
        let blanks = start - (anchor + 3);
        (1..=SPACE_BYTES_MAX).contains(&blanks).then(|| (start, self.header_start(word).is_some()))
    }

    /// The start of "authorization", if only that and punctuation precede `end`.
    pub(super) fn header_start(&self, end: usize) -> Option<usize> {
        let name_end = self.skip_back(end, SPACE_BYTES_MAX, is_header_mark);
        let start = name_end.checked_sub(AUTHORIZATION.len()).filter(|start| *start >= self.floor)?;
        let is_header = name_end < end && self.bytes[start..name_end].eq_ignore_ascii_case(AUTHORIZATION.as_bytes());
        (is_header && self.is_boundary(start)).then_some(start)
    }

    /// Judges a bearer token.
    ///
    /// Prose also mentions bearer tokens, authentication and bonds: without a header name a token needs a digit, two
    /// dots inside, or 24 letters in a row, which words lack.
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
                return Verdict::Secret { start, end: start + n, then: Mode::Token(TokenTail::Bearer) };
            }
        }
        self.undecided(start, self.bytes.len() - start, Mode::Token(TokenTail::Bearer))
    }

    fn undecided(&self, start: usize, token_bytes: usize, then: Mode) -> Verdict {
        if self.last {
            return Verdict::Passes;
        }
        Verdict::Undecided { start, risk: (token_bytes >= RISKY_TOKEN_BYTES).then_some(then) }
    }

    /// Judges a private key's first line. "BEGIN CERTIFICATE" and "BEGIN PUBLIC KEY" pass.
    fn judge_pem(&self, start: usize) -> Verdict {
        if !self.is_boundary(start) {
            return Verdict::Passes;
        }
        let rest = &self.bytes[start..];
        let Some(begin) = PEM_BEGINS.iter().find(|begin| rest.starts_with(begin.as_bytes())) else {
            // A prefix of it at the end of the text is held back like that of any literal.
            return Verdict::Passes;
        };
        let label = start + begin.len();
        let end = self.skip_forward(label, PEM_LABEL_BYTES_MAX, is_label_byte);
        match self.text[label..end].find("PRIVATE KEY") {
            Some(at) => Verdict::Secret { start, end: label + at + "PRIVATE KEY".len(), then: Mode::Pem },
            None if end == self.bytes.len() && end - label < PEM_LABEL_BYTES_MAX => self.undecided(start, 0, Mode::Pem),
            None => Verdict::Passes,
        }
    }

    /// Judges a private key's last line.
    pub(super) fn judge_pem_end(&self, start: usize) -> Verdict {
        let dashes = self.skip_forward(start, 5, |b| b == b'-');
        let end = self.skip_forward(dashes, 1, |b| b == b' ');
        let word = b"END ";
        let seen = &self.bytes[end..self.bytes.len().min(end + word.len())];
        if !word.starts_with(seen) {
            return Verdict::Passes;
        }
        let label = end + seen.len();
        let closing = self.skip_forward(label, PEM_LABEL_BYTES_MAX, is_label_byte);
        let closed = self.skip_forward(closing, 4, |b| b == b'-');
        if closed - closing == 4 {
            return Verdict::Secret { start, end: closed, then: Mode::Token(TokenTail::Dashes) };
        }
        if closed == self.bytes.len() { self.undecided(start, 0, Mode::Pem) } else { Verdict::Passes }
    }

    /// Judges a provider's key.
    fn judge_key(&self, start: usize) -> Verdict {
        let rest = &self.bytes[start..];
        let Some(rule) = KEYS.iter().find(|rule| rest.starts_with(rule.literal.as_bytes())) else { return Verdict::Passes };
        if !self.is_boundary(start) || (rule.form == Form::Jwt && self.is_in_data_url(start)) {
            return Verdict::Passes;
        }
        // The middle of a long base64url text may look like any beginning; without a dot it is not a token.
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

    /// Whether the data of a data URL begin at `start`.
    ///
    /// An inline source map is `{"version":…` in base64, which looks like a JWT.
    fn is_in_data_url(&self, start: usize) -> bool {
        self.bytes[self.floor..start].ends_with(DATA_URL)
    }
}

pub(super) const AUTHORIZATION: &str = "authorization";
pub(super) const DATA_URL: &[u8] = b";base64,";
pub(super) const LITERAL_BYTES_MAX: usize = 11;
/// The longest IPv6 address in text, in bytes.
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

/// Whether a name in text may contain this byte: wide enough for headers, paths and words with spaces.
///
/// Names in other scripts are not recognised.
pub(super) const fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b' ' | b'$' | b'/' | b'@')
}

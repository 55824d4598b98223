//! Which member names denote secrets.
//!
//! The rule, for any case and separator style (`apiKey`, `api_key`, `API-KEY`, `x.api key`):
//! 1. Split the name into words at separators, camel humps and digits. Drop words at its end that only state how the
//!    value is stored (`value`, `hash`, `header`, … and numbers).
//! 2. The rest, written as one word, must *end* in a secret word: `password`, `secret`, `token`, `api key`, … So
//!    `dbPassword2` and `x-api-key` denote secrets; `cookiePolicy`, `tokenizer`, `secretName`, `token_type` do not.
//! 3. `key` alone is not a secret word (`sessionKey`, `primaryKey`, `monkey`); it needs `api`, `access`, `private`, …
//!    before it.
//! 4. `tokens` is a count, unless a word for issued tokens precedes it (`accessTokens`). A `token` after a word of
//!    counting, of tokenizers or of paging (`max_token`, `eosToken`, `next_page_token`) is not a secret either.
//! 5. `cookies` alone is not a secret: it is a list of names or a dish. `sessionCookies` is one.
//! 6. Under `token` alone, a single word (`"hello"`) is a piece of a model's text.
//!
//! In doubt a name denotes a secret: a redacted value costs a debugging session, a stored credential costs a rotation.

use super::traces::Traces;

/// Endings that denote a secret, with any words before them.
const SECRET_ENDINGS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "authorization",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "signingkey",
    "encryptionkey",
    "authkey",
];

/// Final words that state how a secret is stored; the name still denotes a secret.
const STORAGE_WORDS: &[&str] = &[
    "value",
    "values",
    "raw",
    "plain",
    "plaintext",
    "header",
    "headers",
    "hash",
    "hashed",
    "pem",
    "data",
    "base",
    "confirm",
    "confirmation",
];

/// Words before `token` that make it a count, a tokenizer's symbol or a place in a list.
const COUNT_WORDS: &[&str] = &[
    "input",
    "output",
    "total",
    "max",
    "min",
    "prompt",
    "completion",
    "cached",
    "cache",
    "reasoning",
    "num",
    "n",
    "used",
    "remaining",
    "per",
    "eos",
    "bos",
    "pad",
    "unk",
    "mask",
    "sep",
    "cls",
    "stop",
    "special",
    "page",
    "continuation",
    "cursor",
    "sync",
    "next",
    "previous",
    "prev",
];

/// The name under which models' runtimes stream pieces of text, and authors of tools pass credentials.
const PIECE_NAME: &str = "token";
/// The longest piece of text under it that is no credential, in bytes.
const PIECE_BYTES_MAX: usize = 16;

/// Words before `tokens` that make them credentials.
const ISSUED_TOKEN_WORDS: &[&str] =
    &["access", "refresh", "auth", "api", "bearer", "csrf", "xsrf", "personal", "device", "security", "secret"];

/// The longest name that is checked, in bytes.
///
/// Longer ones are prose used as a key, and are only scanned as text.
pub(super) const NAME_BYTES_MAX: usize = 128;

/// The traces of a member's name.
pub(super) fn traces_of(name: &str) -> Traces {
    if name.len() <= NAME_BYTES_MAX { Traces::of(name) } else { Traces::UNKNOWN }
}

/// Whether a member of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    is_secret(name, traces_of(name))
}

/// Whether a member of this name, which has these traces, holds a secret.
pub(super) fn is_secret(name: &str, traces: Traces) -> bool {
    traces.has_name() && has_secret_ending(name)
}

/// Whether a text under this secret name is a word or punctuation: a piece of a model's text and no credential.
pub(super) fn is_piece(name: &str, text: &str) -> bool {
    let is_plain = |c: char| !c.is_ascii() || c.is_ascii_alphabetic() || " \n.,;:!?'\"()".contains(c);
    name.eq_ignore_ascii_case(PIECE_NAME)
        && text.len() <= PIECE_BYTES_MAX
        && text.chars().all(is_plain)
        && text.split_whitespace().nth(1).is_none()
}

fn has_secret_ending(name: &str) -> bool {
    if name.eq_ignore_ascii_case("cookies") {
        return false;
    }
    let mut words = words(name);
    while words.last().is_some_and(|w| STORAGE_WORDS.contains(&w.as_str()) || w.as_bytes()[0].is_ascii_digit()) {
        words.pop();
    }
    let joined = words.concat();
    let stem = joined.strip_suffix('s').unwrap_or(&joined);
    if SECRET_ENDINGS.iter().any(|bearer| joined.ends_with(bearer) || stem.ends_with(bearer)) {
        return true;
    }
    if let Some(before) = joined.strip_suffix("tokens") {
        return ISSUED_TOKEN_WORDS.iter().any(|word| before.ends_with(word));
    }
    let Some(before) = joined.strip_suffix("token") else { return false };
    let previous = words.len().checked_sub(2).map_or("", |i| words[i].as_str());
    !COUNT_WORDS.contains(&previous) && !COUNT_WORDS.contains(&before)
}

/// The words of a name, in lower case.
fn words(name: &str) -> Vec<String> {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Gap,
        Lower,
        Upper,
        Digit,
    }
    let kind = |c: char| match c {
        '0'..='9' => Kind::Digit,
        _ if c.is_uppercase() => Kind::Upper,
        _ if c.is_alphanumeric() => Kind::Lower,
        _ => Kind::Gap,
    };
    let mut words: Vec<String> = Vec::new();
    let mut previous = Kind::Gap;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let this = kind(c);
        let starts = match (previous, this) {
            (_, Kind::Gap) | (Kind::Lower | Kind::Upper, Kind::Lower) | (Kind::Digit, Kind::Digit) => false,
            // In "APIKey" the last capital before a small letter starts the next word.
            (Kind::Upper, Kind::Upper) => chars.peek().is_some_and(|next| kind(*next) == Kind::Lower),
            _ => true,
        };
        if starts {
            words.push(String::new());
        }
        if let (Some(word), true) = (words.last_mut(), this != Kind::Gap) {
            word.extend(c.to_lowercase());
        }
        previous = this;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognised_in_any_case_and_separator_style() {
        for name in [
            "password",
            "PASSWORD",
            "pAsSwOrD",
            "passwd",
            "passphrase",
            "secret",
            "secrets",
            "token",
            "apiKey",
            "api_key",
            "API-KEY",
            "api key",
            "apikey",
            "APIKey",
            "x-api-key",
            "X-API-Key",
            "dbPassword",
            "db.password",
            "password2",
            "passwordHash",
            "access_token",
            "accessToken",
            "refreshToken",
            "id_token",
            "ACCESS_TOKEN",
            "accessTokens",
            "authorization",
            "Proxy-Authorization",
            "authorizationHeader",
            "cookie",
            "Set-Cookie",
            "sessionCookies",
            "credential",
            "credentials",
            "privateKey",
            "private_key_pem",
            "clientSecret",
            "client-secret",
            "OAuthToken",
            "oauth2Token",
            "AWS_SECRET_ACCESS_KEY",
            "secretValue",
            "pass_word",
            "apiKeys",
            "githubtoken",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn a_piece_of_text_is_one_short_word_under_the_name_of_a_token() {
        for text in ["hello", " the", ".", "\n", "", "Grüße"] {
            assert!(is_piece("token", text), "{text}");
        }
        for (name, text) in
            [("token", "correct horse"), ("token", "a1b2c3"), ("token", "abcdefghijklmnopq"), ("accessToken", "a")]
        {
            assert!(!is_piece(name, text), "{name} {text}");
        }
    }

    #[test]
    fn counts_and_other_keys_are_not_secret_names() {
        for name in [
            "inputTokens",
            "outputTokens",
            "input_tokens",
            "total_tokens",
            "maxTokens",
            "tokenCount",
            "token_budget",
            "tokens",
            "tokenizer",
            "token_type",
            "tokenUrl",
            "max_token",
            "eos_token",
            "sessionKey",
            "primaryKey",
            "publicKey",
            "cacheKey",
            "idempotencyKey",
            "key",
            "keys",
            "monkey",
            "turkey",
            "secretary",
            "secretName",
            "cookiePolicy",
            "cookieConsent",
            "credentialId",
            "authorizationUrl",
            "author",
            "passed",
            "pass",
            "compass",
            "text",
            "content",
            "keyboard",
            "",
            "accessKeyId",
            "cached_tokens",
            "promptTokens",
            "next_page_token",
            "nextPageToken",
            "pageToken",
            "continuationToken",
            "cookies",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}

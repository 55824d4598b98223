//! The content of an exception, and the part that the adapter may store until the turn ends.
//!
//! `JSON.stringify` omits the message of ADK's exceptions. The wire has `{name, code, status, fatal}`, or `{}` for a
//! plain `Error`. A producer that serialises them explicitly sends `{name, message, code?, cause?}`. The adapter reads
//! both forms and never invents missing members.
//!
//! The adapter's memory does not pass the guard. So the adapter stores only the plain words of a message, and sends the
//! whole exception at once as a diagnostic.

use crate::turn::error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The length of a stored message or code, in characters.
const CHARS_MAX: usize = 400;

/// The longest plain word, in characters.
const WORD_CHARS_MAX: usize = 20;

/// The longest name of an error, in characters.
const NAME_CHARS_MAX: usize = 64;

/// The most causes of an error that the adapter reads.
const CAUSES_MAX: usize = 16;

/// ADK's code for any exception of its executor.
const EXECUTOR_ERROR: &str = "E_LLM_EXECUTION_EXECUTOR_ERROR";

/// The replacement for an omitted word.
const OMITTED: &str = "…";

/// Words that often precede a secret.
const SECRET_PREFIX_WORDS: &[&str] =
    &["basic", "bearer", "credential", "key", "passphrase", "passwd", "password", "secret", "token"];

/// An error that may have ended a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Cause {
    code: Option<String>,
    message: Option<String>,
    /// Whether the error is explicitly an abort.
    pub is_abort: bool,
}

impl Cause {
    pub(super) fn of(error: &Value) -> Self {
        let code = match error.get("code") {
            Some(Value::String(code)) if !code.is_empty() => Some(code.clone()),
            Some(Value::Number(code)) => Some(code.to_string()),
            _ => text(error, "name"),
        };
        let message = error.as_str().map(str::to_owned).or_else(|| chain(error).find_map(|error| text(error, "message")));
        Self { code: code.as_deref().map(plain), message: message.as_deref().map(plain), is_abort: is_abort(error) }
    }

    /// Whether the error may be an abort that ADK did not recognise.
    ///
    /// Such an abort arrives as an executor error with ADK's own code and no message.
    pub(super) fn may_be_abort(&self) -> bool {
        self.message.is_none() && self.code.as_deref() == Some(EXECUTOR_ERROR)
    }

    /// Adds missing parts from a second report of the same error.
    pub(super) fn or(&mut self, again: Self) {
        self.code = self.code.take().or(again.code);
        self.message = self.message.take().or(again.message);
        self.is_abort |= again.is_abort;
    }

    /// Returns the run's `error` member.
    pub(super) fn to_error(&self) -> Value {
        let message = match (&self.message, &self.code) {
            (Some(message), _) => message.clone(),
            (None, Some(code)) => format!("the turn failed with {code}, without a message"),
            (None, None) => "the turn failed without saying why".into(),
        };
        error(self.code.as_deref(), message).into()
    }
}

/// Returns a member's non-empty text.
pub(super) fn text(error: &Value, member: &str) -> Option<String> {
    error.get(member).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Iterates over the error and its chain of causes.
fn chain(error: &Value) -> impl Iterator<Item = &Value> {
    std::iter::successors(Some(error), |error| error.get("cause")).take(CAUSES_MAX)
}

/// Whether the error is explicitly an abort.
///
/// ADK itself checks only the constructor's name, and so treats a `DOMException` of `fetch` as a failure.
fn is_abort(error: &Value) -> bool {
    chain(error).any(|error| {
        let says = |member: &str, what: &str| error.get(member).and_then(Value::as_str) == Some(what);
        says("name", "AbortError") || says("code", "ABORT_ERR") || error.get("code").and_then(Value::as_u64) == Some(20)
    })
}

/// Returns the text's plain words, separated by one space. It replaces all other words.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut is_announced = false;
    for word in text.split_whitespace() {
        let bare = word.trim_matches(|c: char| ".,;:!?()'\"`".contains(c));
        let shown = if !is_announced && is_plain(bare) { word } else { OMITTED };
        is_announced = SECRET_PREFIX_WORDS.contains(&bare.to_lowercase().as_str());
        if plain.chars().count() + shown.chars().count() > CHARS_MAX {
            break;
        }
        plain.push_str(if plain.is_empty() { "" } else { " " });
        plain.push_str(shown);
    }
    plain
}

/// Whether this is a natural-language word, a number, or the name of an error.
///
/// No key, token or URL passes.
fn is_plain(word: &str) -> bool {
    let (count, starts) = (word.chars().count(), word.chars().next().is_none_or(char::is_alphanumeric));
    let is_number = || word.bytes().all(|b| b.is_ascii_digit());
    let is_word = || word.chars().skip(1).all(|c| c.is_alphabetic() && !c.is_uppercase() || "-'’".contains(c));
    let is_constant = || {
        let is_all = |part: &str, of: fn(&u8) -> bool| part.bytes().all(|b| of(&b));
        word.split('_').all(|part| is_all(part, u8::is_ascii_uppercase) || part.len() <= 6 && is_all(part, u8::is_ascii_digit))
    };
    // For example `TypeError`: capitalised words without a separator.
    let is_class = || {
        let is_capital = |c: char| c.is_ascii_uppercase();
        word.starts_with(is_capital)
            && word.bytes().all(|b| b.is_ascii_alphabetic())
            && !word.as_bytes().windows(2).any(|two| two.iter().all(u8::is_ascii_uppercase))
    };
    starts && (count <= WORD_CHARS_MAX && (is_number() || is_word()) || count <= NAME_CHARS_MAX && (is_constant() || is_class()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_is_stored_as_its_plain_words() {
        assert_eq!(plain("The executor\nthrew an error: 529 overloaded"), "The executor threw an error: 529 overloaded");
        assert_eq!(plain("E_LLM_EXECUTION_EXECUTOR_ERROR"), "E_LLM_EXECUTION_EXECUTOR_ERROR");
        assert_eq!(plain("(TypeError) Über 走: \"n\" E_HTTP_429"), "(TypeError) Über 走: \"n\" E_HTTP_429");
        assert_eq!(plain("no route to https://u:p@host/x?k=v"), "no route to …");
        assert!(plain(&"long ".repeat(1000)).chars().count() <= CHARS_MAX);
    }

    #[test]
    fn a_possible_secret_is_not_stored() {
        for secret in [
            "sk-live-abcdef0123456789abcdef",
            "ghp_Zz0123456789abcdefghijABCDEFGHIJ0123",
            "AKIAZ7QXMPL4242WXYZ9",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJlLW9mLWEtdG9rZW4",
            "postgres://app:correct-horse-battery@db/x",
            "MIIEvPLANTEDkeymaterial",
            "{\"password\":\"staple-of-the-battery\"}",
        ] {
            assert_eq!(plain(&format!("failed: {secret}")), "failed: …", "{secret}");
        }
        assert_eq!(plain("Bearer abcdef was refused"), "Bearer … was refused");
        assert_eq!(plain("password: hunter"), "password: …");
    }

    #[test]
    fn both_forms_of_an_exception_are_read_and_nothing_is_invented() {
        let read = |error: Value| Cause::of(&error).to_error();
        let naive = json!({"name": "E_X", "code": "E_X", "status": 500, "fatal": false});
        assert_eq!(read(naive), json!({"code": "E_X", "message": "the turn failed with E_X, without a message"}));
        assert_eq!(read(json!({})), json!({"message": "the turn failed without saying why"}));
        assert_eq!(read(Value::Null), json!({"message": "the turn failed without saying why"}));
        assert_eq!(read(json!({"message": 7, "code": {}})), json!({"message": "the turn failed without saying why"}));
        let expanded = json!({"name": "E_X", "message": "it threw", "cause": {"message": "529 overloaded"}});
        assert_eq!(read(expanded), json!({"code": "E_X", "message": "it threw"}));
        assert_eq!(read(json!({"code": 7, "cause": {"message": "deep"}})), json!({"code": "7", "message": "deep"}));
        assert_eq!(read(json!("thrown")), json!({"message": "thrown"}));
    }

    #[test]
    fn an_abort_is_recognised_by_name_or_code_anywhere_in_the_chain() {
        for error in [
            json!({"name": "AbortError"}),
            json!({"code": 20}),
            json!({"code": "ABORT_ERR"}),
            json!({"name": "E_X", "cause": {"cause": {"name": "AbortError"}}}),
        ] {
            assert!(Cause::of(&error).is_abort, "{error}");
        }
        for error in
            [json!({}), json!({"name": "TimeoutError", "code": 23}), json!({"message": "AbortError"}), json!("AbortError")]
        {
            assert!(!Cause::of(&error).is_abort, "{error}");
        }
        let endless = (0..100).fold(json!({"name": "AbortError"}), |cause, _| json!({"cause": cause}));
        assert!(!Cause::of(&endless).is_abort, "the abort is below the depth limit");
    }
}

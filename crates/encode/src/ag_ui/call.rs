//! Tool calls in AG-UI: arguments and results as text, and the state retained between changes.

use crate::call_members::{is_kept, is_of_progress, makes_result, progress_members, streams_result};
use proscenium_projection::change::{ContentOperation, Within};
use proscenium_projection::members::{CallState, Member, MemberType, OUTPUT_CHANNELS, OUTPUT_TEXT, TypedContent, WITHHELD};
use proscenium_projection::tool_call::{
    ACTION_ID, APP, AWAITS, ERROR, INPUT, INPUT_TEXT, OUTPUT, OUTPUT_REF, REPORTED, STATE, STRUCTURED, TOOL_NAME, TRUNCATED,
    UNTRUSTED,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The tool name of a call that has none.
const UNKNOWN_TOOL: &str = "unknown";

/// A member's value is not available: it was sent earlier and not retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotRetained;

/// The name of the call's tool.
pub(super) fn name(content: &Map<String, Value>) -> &str {
    content.read(TOOL_NAME).filter(|name| !name.is_empty()).unwrap_or(UNKNOWN_TOOL)
}

/// Whether more arguments may arrive.
pub(super) fn is_live(content: &Map<String, Value>) -> bool {
    // An approval is about the arguments, so they are complete once it exists.
    let has_all = content.has(INPUT) || content.has(AWAITS) || content.has(ACTION_ID);
    !has_all
        && match content.read(STATE) {
            None | Some(CallState::Running | CallState::InputStreaming) => true,
            // A tool may report before its arguments arrive (Responses `in_progress`).
            Some(CallState::Progress) => !content.has(INPUT_TEXT),
            Some(CallState::InputAvailable | CallState::OutputAvailable | CallState::OutputError | CallState::Cancelled) => false,
        }
}

/// Whether the client has to supply the call's result.
pub(super) fn awaits_client_result(content: &Map<String, Value>) -> bool {
    content.has(AWAITS) && !has_ended(content)
}

pub(super) fn has_ended(content: &Map<String, Value>) -> bool {
    content.read(STATE).is_some_and(CallState::is_end)
}

/// The call's arguments as compact JSON text, streamed or not.
pub(super) fn arguments(content: &Map<String, Value>) -> (String, JsonCompactor) {
    let mut compactor = JsonCompactor::default();
    let text = match content.read(INPUT) {
        Some(input) => input.to_string(),
        None => chunks(content.get(INPUT_TEXT.name())).map(|chunk| compactor.push(chunk)).collect(),
    };
    (text, compactor)
}

/// The chunks of a text.
pub(super) fn chunks(text: Option<&Value>) -> impl Iterator<Item = &str> {
    text.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The result of a call, as a tool message carries it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CallResult {
    pub content: String,
    /// Members beside the text, for the message's metadata.
    pub metadata: Map<String, Value>,
}

/// Builds the result of an ended call; `None` while it runs.
///
/// Every end has one, because clients wait for calls without.
///
/// # Errors
/// A member of the result is not available.
pub(super) fn result_of<'c>(
    get: impl Fn(&str) -> Result<Option<&'c Value>, NotRetained>,
) -> Result<Option<CallResult>, NotRetained> {
    let Some(state) = get(STATE.name())?.and_then(CallState::read) else { return Ok(None) };
    let mut metadata = Map::new();
    if state != CallState::OutputAvailable {
        metadata.insert("state".into(), state.as_str().into());
    }
    let content = match state {
        end if end.is_end() && get(WITHHELD.name())? == Some(&Value::Bool(true)) => json!({ "withheld": true }).to_string(),
        CallState::OutputAvailable => {
            for (member, name) in [(OUTPUT_REF, "outputRef"), (TRUNCATED, "truncated"), (UNTRUSTED, "untrusted"), (APP, "app")] {
                metadata.extend(get(member.name())?.map(|value| (name.to_owned(), value.clone())));
            }
            match (get(OUTPUT.name())?, get(STRUCTURED.name())) {
                (Some(Value::String(text)), _) => text.clone(),
                (Some(output), _) => output.to_string(),
                (None, structured) => match structured? {
                    Some(structured) => structured.to_string(),
                    None => {
                        let channels = get(OUTPUT_CHANNELS.name())?.and_then(Value::as_object).map(|channels| {
                            let joined = |text: &Value| Value::from(chunks(Some(text)).collect::<String>());
                            channels.iter().map(|(name, text)| (name.clone(), joined(text))).collect::<Map<_, _>>()
                        });
                        metadata.extend(channels.map(|channels| ("outputChannels".to_owned(), channels.into())));
                        chunks(get(OUTPUT_TEXT.name())?).collect()
                    }
                },
            }
        }
        CallState::OutputError => {
            let nothing = json!({ "message": "The call failed without an error message." });
            json!({ "error": get(ERROR.name())?.unwrap_or(&nothing) }).to_string()
        }
        CallState::Cancelled => {
            let mut content = json!({ "cancelled": true });
            if let Some(error) = get(ERROR.name())? {
                content["error"] = error.clone();
            }
            content.to_string()
        }
        CallState::InputStreaming | CallState::InputAvailable | CallState::Running | CallState::Progress => return Ok(None),
    };
    Ok(Some(CallResult { content, metadata }))
}

/// The retained state of a call: the small members, and the names of the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct KnownCall(Arc<Map<String, Value>>);

/// The effect of one patch on a call.
#[derive(Debug, Default)]
pub(super) struct CallPatch {
    /// The members that it sets.
    set: Map<String, Value>,
    /// Whether it removes the arguments without a replacement.
    pub removes_input: bool,
    /// The argument chunks that it appends.
    pub arguments: Vec<String>,
    /// Whether it may change the result.
    pub affects_result: bool,
    /// Its operations on the progress report.
    pub report: Vec<ContentOperation>,
}

impl KnownCall {
    /// Retains the state of a content.
    pub fn of(content: &Map<String, Value>) -> Self {
        let mut call_state = Self::default();
        content.iter().for_each(|(member, value)| call_state.retain(member, value));
        call_state
    }

    fn retain(&mut self, member: &str, value: &Value) {
        let value = if is_kept(member) { value.clone() } else { Value::Null };
        Arc::make_mut(&mut self.0).insert(member.to_owned(), value);
    }

    /// The small members with their values, and the others with null.
    pub fn members(&self) -> &Map<String, Value> {
        &self.0
    }

    pub fn is_reported(&self) -> bool {
        self.0.has(REPORTED)
    }

    /// Applies the operations of a change.
    ///
    /// # Errors
    /// One changes the inside of a member, which no operation of the fold does.
    pub fn apply(&mut self, operations: &[ContentOperation]) -> Result<CallPatch, NotRetained> {
        use ContentOperation as Op;
        let mut change = CallPatch::default();
        for operation in operations {
            let at = operation.place().ok_or(NotRetained)?;
            match operation {
                Op::Push(_, Value::String(chunk)) if at.is(INPUT_TEXT) => change.arguments.push(chunk.clone()),
                Op::Push(..) if at.is(OUTPUT_TEXT) => {
                    let has_all = self.0.has(OUTPUT) || self.0.has(STRUCTURED) || self.0.has(WITHHELD);
                    change.affects_result |= !has_all;
                }
                _ if at.within == Within::Member(OUTPUT_CHANNELS.name()) => {
                    // The value that this change set is no longer complete.
                    change.set.shift_remove(OUTPUT_CHANNELS.name());
                }
                Op::Add(_, value) | Op::Replace(_, value) if at.within == Within::Content => {
                    self.retain(&at.member, value);
                    change.set.insert(at.member.clone().into_owned(), value.clone());
                    change.removes_input &= !at.is(INPUT);
                    change.affects_result |= makes_result(&at.member) && !streams_result(&at.member);
                }
                Op::Remove(_) if at.within == Within::Content => {
                    Arc::make_mut(&mut self.0).shift_remove(&*at.member);
                    change.set.shift_remove(&*at.member);
                    change.removes_input |= at.is(INPUT) || at.is(INPUT_TEXT);
                    change.affects_result |= makes_result(&at.member);
                }
                _ => return Err(NotRetained),
            }
            if at.within == Within::Content && is_of_progress(&at.member) {
                change.report.push(operation.clone());
            }
        }
        Ok(change)
    }

    /// The value of a member after a change.
    ///
    /// # Errors
    /// The member exists, but its value was sent earlier and not retained.
    pub fn get<'c>(&'c self, change: &'c CallPatch, member: &str) -> Result<Option<&'c Value>, NotRetained> {
        match (change.set.get(member), self.0.get(member)) {
            (Some(value), _) => Ok(Some(value)),
            (None, Some(value)) if is_kept(member) => Ok(Some(value)),
            (None, Some(_)) => Err(NotRetained),
            (None, None) => Ok(None),
        }
    }
}

impl CallPatch {
    /// The value of a member that the patch sets.
    pub fn value_of<T>(&self, member: Member<T>) -> Option<&Value> {
        self.set.get(member.name())
    }

    /// The whole progress report of a call that had none before.
    ///
    /// # Errors
    /// A part of the report was sent earlier and not retained.
    pub fn first_report(&self, call_state: &KnownCall) -> Result<Map<String, Value>, NotRetained> {
        let mut report = Map::new();
        for member in progress_members() {
            report.extend(call_state.get(self, member)?.map(|value| (member.to_owned(), value.clone())));
        }
        Ok(report)
    }
}

/// Compacts streamed JSON chunk by chunk.
///
/// The output equals the text of the parsed value, so streamed arguments and a later snapshot agree. It drops space
/// between tokens and normalises escapes in strings. Input that is neither an object nor an array passes through
/// unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct JsonCompactor {
    of: InputShape,
    in_text: bool,
    /// An incomplete escape: at most 11 characters.
    escape: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum InputShape {
    /// Only space so far.
    #[default]
    Unknown,
    Json,
    Other,
}

impl JsonCompactor {
    /// Compacts a further chunk.
    pub fn push(&mut self, chunk: &str) -> String {
        let mut out = String::with_capacity(chunk.len());
        for c in chunk.chars() {
            if self.of == InputShape::Unknown {
                self.of = match c {
                    '{' | '[' => InputShape::Json,
                    c if c.is_ascii_whitespace() => continue,
                    _ => InputShape::Other,
                };
            }
            match c {
                _ if self.of == InputShape::Other => out.push(c),
                _ if !self.escape.is_empty() => self.escaped(c, &mut out),
                '\\' if self.in_text => self.escape.push(c),
                ' ' | '\t' | '\r' | '\n' if !self.in_text => {}
                _ => {
                    self.in_text ^= c == '"';
                    out.push(c);
                }
            }
        }
        out
    }

    /// Takes a character of an escape, and appends the escape once it is complete.
    fn escaped(&mut self, c: char, out: &mut String) {
        self.escape.push(c);
        let is_unicode = |at: usize| self.escape.as_bytes().get(at) == Some(&b'u');
        let code_unit = |at: usize| self.escape.get(at..at + 4).and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let length = self.escape.len();
        let is_high = code_unit(2).is_some_and(|unit| (0xD800..0xDC00).contains(&unit));
        let is_whole = match length {
            2 => !is_unicode(1),
            6 => !is_high,
            // A second escape must follow the first half of a surrogate pair; any other character ends it.
            7 => c != '\\',
            8 => !is_unicode(7),
            12 => true,
            _ => !c.is_ascii_hexdigit(),
        };
        if is_whole {
            let whole = std::mem::take(&mut self.escape);
            match serde_json::from_str::<String>(&format!("\"{whole}\"")) {
                Ok(text) => {
                    let escaped = Value::from(text).to_string();
                    out.push_str(&escaped[1..escaped.len() - 1]);
                }
                // Not JSON: keep it unchanged.
                Err(_) => {
                    out.push_str(&whole);
                    // A quote that ends the escape early also ends the string, unless it was escaped itself.
                    self.in_text ^= c == '"' && length != 2 && length != 8;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compacted(chunks: &[&str]) -> String {
        let mut compactor = JsonCompactor::default();
        chunks.iter().map(|chunk| compactor.push(chunk)).collect()
    }

    #[test]
    fn input_that_is_neither_object_nor_array_passes_unchanged() {
        assert_eq!(compacted(&["ls -la ", "  \"a b\""]), "ls -la   \"a b\"");
        assert_eq!(compacted(&["  ", "\"a  b\" "]), "\"a  b\" ");
    }

    #[test]
    fn invalid_json_loses_no_characters() {
        assert_eq!(compacted(&["{\"a\": \"x\\q", "y\\u12\"}"]), "{\"a\":\"x\\qy\\u12\"}");
        assert_eq!(compacted(&["{\"a\": \"\\ud83d\", \"b\": 1}"]), "{\"a\":\"\\ud83d\",\"b\":1}");
        assert_eq!(compacted(&["{\"a\": \"\\ud83d\\n\"}"]), "{\"a\":\"\\ud83d\\n\"}");
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
            ".{0,12}".prop_map(Value::from),
        ];
        let tree = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((".{0,6}", inner), 0..4).prop_map(|members| members.into_iter().collect::<Value>()),
            ]
        });
        prop::collection::vec((".{0,6}", tree), 0..4).prop_map(|members| members.into_iter().collect::<Value>())
    }

    /// Writes the value as other encoders do: with space, and with non-ASCII characters escaped.
    fn widely(value: &Value) -> String {
        let pretty = format!("{value:#}").replace('/', "\\/");
        let mut text = String::new();
        for c in pretty.chars() {
            match c.is_ascii() {
                true => text.push(c),
                false => c.encode_utf16(&mut [0; 2]).iter().for_each(|update| text.push_str(&format!("\\u{update:04X}"))),
            }
        }
        text
    }

    proptest! {
        #[test]
        fn compacted_stream_equals_the_parsed_value_for_any_spacing_escapes_and_cuts(
            value in json(), sizes in prop::collection::vec(1..7_usize, 1..8)
        ) {
            let text = widely(&value);
            let chars: Vec<char> = text.chars().collect();
            let (mut at, mut compactor, mut out) = (0, JsonCompactor::default(), String::new());
            for size in sizes.iter().cycle() {
                let end = (at + size).min(chars.len());
                out.push_str(&compactor.push(&chars[at..end].iter().collect::<String>()));
                at = end;
                if at == chars.len() {
                    break;
                }
            }
            prop_assert_eq!(out, value.to_string());
        }
    }

    #[test]
    fn every_ended_call_has_a_result() {
        let of = |content: Value| {
            let content = content.as_object().unwrap().clone();
            result_of(|member| Ok(content.get(member))).unwrap().map(|result| (result.content, Value::Object(result.metadata)))
        };
        let expected = |content: &str, metadata: Value| Some((content.to_owned(), metadata));
        assert_eq!(of(json!({"state": "running", "output": 1})), None);
        assert_eq!(of(json!({})), None);
        let done = "output-available";
        assert_eq!(of(json!({"state": done, "output": "text", "output_text": ["x"]})), expected("text", json!({})));
        assert_eq!(
            of(json!({"state": done, "output": {"a": [1]}, "truncated": 7})),
            expected("{\"a\":[1]}", json!({"truncated": 7}))
        );
        assert_eq!(of(json!({"state": done, "structured": [1]})), expected("[1]", json!({})));
        assert_eq!(of(json!({"state": done, "output_text": ["a", "b"]})), expected("ab", json!({})));
        assert_eq!(of(json!({"state": done})), expected("", json!({})));
        assert_eq!(of(json!({"state": done, "withheld": true, "output": 1})), expected("{\"withheld\":true}", json!({})));
        assert_eq!(
            of(json!({"state": "output-error", "error": {"message": "no"}})),
            expected("{\"error\":{\"message\":\"no\"}}", json!({"state": "output-error"}))
        );
        assert_eq!(of(json!({"state": "cancelled"})), expected("{\"cancelled\":true}", json!({"state": "cancelled"})));
    }

    #[test]
    fn a_patch_reports_members_whose_values_were_not_retained() {
        let content = json!({"state": "progress", "tool_name": "x", "output_text": ["long"], "status": "running"});
        let mut call_state = KnownCall::of(content.as_object().unwrap());
        let ops = |value: Value| serde_json::from_value::<Vec<ContentOperation>>(value).unwrap();
        let change = call_state.apply(&ops(json!([{"op": "replace", "path": "/state", "value": "output-available"}]))).unwrap();
        assert!(change.affects_result);
        assert_eq!(result_of(|member| call_state.get(&change, member)), Err(NotRetained), "the output was streamed earlier");
        let change = call_state.apply(&ops(json!([{"op": "add", "path": "/output", "value": "whole"}]))).unwrap();
        assert_eq!(result_of(|member| call_state.get(&change, member)).unwrap().unwrap().content, "whole");
        assert!(call_state.apply(&ops(json!([{"op": "add", "path": "/output/a", "value": 1}]))).is_err());
    }
}

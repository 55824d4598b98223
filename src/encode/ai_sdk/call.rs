//! Tool calls and their approvals: the tool part that the reader should have, and the chunks that produce it.
//!
//! A call's part is a function of the call and of the latest action about it ([`Target`]). Whatever the reader has, the
//! chunks lead to that part. So a reader from the start and a late reader end with the same part.
//!
//! Every call is `dynamic`, because no client has types for the server's tools. Every call is `providerExecuted`,
//! because clients would otherwise execute it themselves.

use super::kept::{Kept, joined};
use super::page::{Page, hash};
use crate::model::Sequence;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};

/// The activity type of calls.
pub(super) const KIND: &str = "tool-call-progress";

/// Seed 002's `ToolCallProgressState`: the reported state of a running call.
#[rustfmt::skip]
const REPORTED: &[&str] = &[
    "schema", "node_id", "call_id", "tool_name", "status", "progress", "loaded", "total", "message", "parent_node_id",
    "parent_call_id",
];

/// Members that a call's data part omits: the tool part has them, or they are internal.
const NOT_IN_DATA: &[&str] =
    &["input", "input_text", "output", "output_text", "output_channels", "structured", "unannounced", REPORTED_AT];

/// The sequence of the first report of a call: its data part stands there.
const REPORTED_AT: &str = "reported";

/// Kinds of actions that ask for more than yes or no: a client's approval would not answer them.
const QUESTIONS: &[&str] = &["structured_input", "clarification", "credential_request"];

/// The decision on an action about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Pending,
    Yes,
    No,
    /// The action was decided, without a known outcome.
    Unknown,
}

/// An approval request about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    pub action: Box<str>,
    /// The sequence of the first request. The latest request counts.
    pub opened: Sequence,
    answer: Answer,
    /// The text of the request.
    message: Option<Box<str>>,
    /// The reason of a denial without a user's decision (`interrupted`, `cancelled`, `expired`).
    why: Option<Box<str>>,
}

impl Ask {
    /// Reads the approval from an action; `None` if the action is not an approval of a call.
    pub fn of<'c>(id: &str, opened: Sequence, content: &'c Map<String, Value>, version: u8) -> Option<(&'c str, Self)> {
        let text = |member: &str| content.get(member).and_then(Value::as_str);
        let call = text("toolCallId").filter(|_| version >= 6 && !text("kind").is_some_and(|kind| QUESTIONS.contains(&kind)))?;
        let (answer, why) = match (text("status"), text("outcome")) {
            (Some("pending"), _) => (Answer::Pending, None),
            (Some("interrupted"), _) => (Answer::No, Some("interrupted".into())),
            (_, Some("approved")) => (Answer::Yes, None),
            (_, Some("rejected")) => (Answer::No, None),
            (_, Some(other @ ("cancelled" | "expired"))) => (Answer::No, Some(other.into())),
            _ => (Answer::Unknown, None),
        };
        Some((call, Self { action: id.into(), opened, answer, message: text("message").map(Into::into), why }))
    }
}

impl Ask {
    /// Marks the request as withdrawn: no decision is expected.
    pub const fn is_void(&mut self) {
        self.answer = Answer::Unknown;
    }
}

#[derive(Debug)]
enum Input<'c> {
    /// Incomplete: the text so far.
    Streaming(Cow<'c, str>),
    Known(Cow<'c, Value>),
}

#[derive(Debug)]
enum Outcome<'c> {
    None,
    Preliminary(Value),
    Output(Cow<'c, Value>),
    Error(String),
    Denied,
}

/// The tool part that the reader should have.
#[derive(Debug)]
pub(super) struct Target<'c> {
    name: &'c str,
    input: Input<'c>,
    ask: Option<&'c Ask>,
    outcome: Outcome<'c>,
}

impl<'c> Target<'c> {
    /// Derives the part from a call and the latest approval about it.
    pub fn of(content: &'c Map<String, Value>, ask: Option<&'c Ask>) -> Self {
        let state = content.get("state").and_then(Value::as_str);
        Self {
            name: content.get("tool_name").and_then(Value::as_str).unwrap_or_default(),
            input: input(content, state, ask.is_some()),
            ask,
            outcome: outcome(content, state, ask),
        }
    }

    /// Derives the part from an approval whose call does not exist yet.
    pub fn asked(action: &'c Map<String, Value>, ask: &'c Ask) -> Self {
        let input = action.get("parameters").or_else(|| action.get("input")).map_or_else(|| Cow::Owned(json!({})), Cow::Borrowed);
        Self {
            name: action.get("toolName").and_then(Value::as_str).unwrap_or_default(),
            input: Input::Known(input),
            ask: Some(ask),
            outcome: if ask.answer == Answer::No { Outcome::Denied } else { Outcome::None },
        }
    }

    /// The part as JSON.
    pub fn part(&self, id: &str, version: u8) -> Value {
        let answer = self.ask.map(|ask| ask.answer);
        let state = match (&self.outcome, &self.input, answer) {
            (Outcome::Preliminary(_) | Outcome::Output(_), ..) => "output-available",
            (Outcome::Error(_), ..) => "output-error",
            (Outcome::Denied, ..) => "output-denied",
            (Outcome::None, _, Some(Answer::Pending)) => "approval-requested",
            (Outcome::None, _, Some(Answer::Yes | Answer::No)) if version >= 7 => "approval-responded",
            (Outcome::None, Input::Known(_), _) => "input-available",
            (Outcome::None, Input::Streaming(_), _) => "input-streaming",
        };
        let mut part = json!({
            "type": "dynamic-tool", "toolName": self.name, "toolCallId": id, "state": state, "providerExecuted": true,
        });
        match &self.input {
            Input::Known(input) => part["input"] = input.clone().into_owned(),
            Input::Streaming(text) if text.is_empty() => {}
            Input::Streaming(text) => part["rawInput"] = text.as_ref().into(),
        }
        match &self.outcome {
            Outcome::None | Outcome::Denied => {}
            Outcome::Preliminary(output) => {
                part["output"] = output.clone();
                part["preliminary"] = true.into();
            }
            Outcome::Output(output) => part["output"] = output.clone().into_owned(),
            Outcome::Error(text) => part["errorText"] = text.as_str().into(),
        }
        if let Some(ask) = self.ask {
            let mut approval = json!({ "id": ask.action });
            if let Some(message) = ask.message.as_deref().filter(|_| version >= 7) {
                approval["requestReason"] = message.into();
            }
            if let Answer::Yes | Answer::No = ask.answer {
                approval["approved"] = (ask.answer == Answer::Yes).into();
                if let Some(why) = ask.why.as_deref().filter(|_| version >= 7) {
                    approval["reason"] = why.into();
                }
            }
            part["approval"] = approval;
        }
        part
    }
}

fn input<'c>(content: &'c Map<String, Value>, state: Option<&str>, is_asked: bool) -> Input<'c> {
    if let Some(input) = content.get("input") {
        return Input::Known(Cow::Borrowed(input));
    }
    let text = joined(content.get("input_text"));
    let is_asked = is_asked || content.contains_key("action_id");
    let may_come = matches!(state, None | Some("running" | "input-streaming")) && !is_asked;
    match (may_come, text.is_empty()) {
        (true, _) => Input::Streaming(text),
        // The call has no arguments.
        (false, true) => Input::Known(Cow::Owned(json!({}))),
        // The arguments never became JSON.
        (false, false) => Input::Known(Cow::Owned(text.into_owned().into())),
    }
}

fn outcome<'c>(content: &'c Map<String, Value>, state: Option<&str>, ask: Option<&Ask>) -> Outcome<'c> {
    let answer = ask.map(|ask| ask.answer);
    match state {
        Some("output-available") => Outcome::Output(output(content)),
        Some("output-error" | "cancelled") if answer == Some(Answer::No) => Outcome::Denied,
        Some(end @ ("output-error" | "cancelled")) => Outcome::Error(error(content, end)),
        Some("progress") if answer != Some(Answer::Pending) => {
            let reported = REPORTED.iter().filter_map(|member| Some(((*member).to_owned(), content.get(*member)?.clone())));
            let mut output: Map<String, Value> = reported.collect();
            output.extend(put_out(content));
            Outcome::Preliminary(output.into())
        }
        _ => Outcome::None,
    }
}

/// The output of a call: `output`, else `structured`, else the streamed output, else a reference to it.
fn output(content: &Map<String, Value>) -> Cow<'_, Value> {
    let said = ["output", "structured"].iter().filter_map(|member| content.get(*member)).find(|said| !said.is_null());
    if let Some(said) = said {
        return Cow::Borrowed(said);
    }
    let mut put_out = put_out(content);
    match put_out.shift_remove("output_text") {
        Some(text) if put_out.is_empty() => return Cow::Owned(text),
        Some(text) => drop(put_out.shift_insert(0, "output_text".into(), text)),
        None => {}
    }
    if !put_out.is_empty() {
        return Cow::Owned(put_out.into());
    }
    let left = ["output_ref", "withheld"].iter().find_map(|member| Some((*member, content.get(*member)?)));
    Cow::Owned(left.map_or(Value::Null, |(member, value)| json!({ member: value })))
}

/// The streamed output of a call, by channel.
fn put_out(content: &Map<String, Value>) -> Map<String, Value> {
    let mut put_out = Map::new();
    let text = joined(content.get("output_text"));
    if !text.is_empty() {
        put_out.insert("output_text".into(), text.into());
    }
    if let Some(Value::Object(channels)) = content.get("output_channels") {
        let joined = channels.iter().map(|(name, text)| (name.clone(), Value::from(joined(Some(text)).into_owned())));
        put_out.insert("output_channels".into(), Value::Object(joined.collect()));
    }
    put_out
}

fn error(content: &Map<String, Value>, end: &str) -> String {
    let said = content.get("error").and_then(|error| error.get("message")).and_then(Value::as_str);
    let plain = if end == "cancelled" { "The call was cancelled." } else { "The tool failed." };
    said.filter(|said| !said.is_empty()).unwrap_or(plain).to_owned()
}

/// The sequence of the call's first progress report; `None` without a report.
pub(super) fn reported(content: &Map<String, Value>) -> Option<u64> {
    content.get(REPORTED_AT).and_then(Value::as_u64)
}

/// The content of a call's data part: seed 002's state, and the members that a tool part lacks.
pub(super) fn data(content: &Map<String, Value>) -> Value {
    let kept = content.iter().filter(|(member, _)| !NOT_IN_DATA.contains(&member.as_str()));
    Value::Object(kept.map(|(member, value)| (member.clone(), value.clone())).collect())
}

#[derive(Debug)]
enum SaidInput {
    /// The length in bytes and the hash of the sent text.
    Streaming(usize, DefaultHasher),
    Known(u64),
}

#[derive(Debug, PartialEq, Eq)]
enum SaidOutcome {
    None,
    Preliminary(u64),
    Output(u64),
    Error(u64),
    Denied,
}

/// The part as the reader has it.
#[derive(Debug)]
struct Said {
    name: Box<str>,
    input: SaidInput,
    ask: Option<Ask>,
    outcome: SaidOutcome,
}

/// One call.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub kept: Kept,
    /// The latest approval about it.
    pub ask: Option<Ask>,
    said: Option<Said>,
    /// Whether the call itself was sent, and not only an approval about it.
    pub is_told: bool,
    /// The hash of its data part, once that was sent.
    data: Option<u64>,
    /// The size of unsent changes, in bytes.
    pub unsaid: usize,
}

impl Call {
    /// Updates the reader's part to the call's content.
    pub fn bring(&mut self, id: &str, content: &Map<String, Value>, page: &mut Page) {
        (self.is_told, self.unsaid) = (true, 0);
        let ask = self.ask.take();
        self.lead(id, &Target::of(content, ask.as_ref()), page);
        self.ask = ask;
    }

    /// Updates the reader's data part to the progress report, if the call has one.
    pub fn report(&mut self, id: &str, content: &Map<String, Value>, page: &mut Page) {
        if reported(content).is_none() {
            return;
        }
        let data = data(content);
        let print = hash(&data);
        if self.data != Some(print) {
            page.data(KIND, id, data, self.data.is_none());
            self.data = Some(print);
        }
    }

    /// Updates the reader's part from the copy, if one is stored, and with `with_report` the data part too.
    pub fn bring_kept(&mut self, id: &str, with_report: bool, page: &mut Page) {
        let kept = std::mem::take(&mut self.kept);
        if let Some(content) = kept.content() {
            self.bring(id, content, page);
            if with_report {
                self.report(id, content, page);
            }
        }
        self.kept = kept;
    }

    /// Marks the sent state as uncertain, because the reader's copy may be older: the next update sends it again.
    pub fn doubt(&mut self) {
        self.unsaid = 1;
        self.data = self.data.map(|said| !said);
        let Some(said) = &mut self.said else { return };
        if let SaidInput::Known(input) = &mut said.input {
            *input = !*input;
        }
        if let SaidOutcome::Preliminary(outcome) | SaidOutcome::Output(outcome) | SaidOutcome::Error(outcome) = &mut said.outcome
        {
            *outcome = !*outcome;
        }
    }

    /// Whether the sent part is final.
    pub fn has_ended(&self) -> bool {
        let outcome = self.said.as_ref().map(|said| &said.outcome);
        matches!(outcome, Some(SaidOutcome::Output(_) | SaidOutcome::Error(_) | SaidOutcome::Denied))
    }

    /// Sends a chunk of streaming arguments. Returns false if the arguments are not streaming.
    pub fn stream(&mut self, id: &str, chunk: &str, page: &mut Page) -> bool {
        let Some(Said { input: SaidInput::Streaming(length, sum), .. }) = &mut self.said else { return false };
        page.say(json!({ "type": "tool-input-delta", "toolCallId": id, "inputTextDelta": chunk }));
        *length += chunk.len();
        sum.write(chunk.as_bytes());
        true
    }

    /// Sends the chunks that lead from the reader's part to this one.
    pub fn lead(&mut self, id: &str, target: &Target<'_>, page: &mut Page) {
        if self.said.is_none() {
            page.parts += 1;
            self.start(id, target, page);
        }
        self.lead_input(id, target, page);
        self.lead_ask(id, target, page);
        let said = self.said.as_mut().expect("the call was started above");
        let outcome = match &target.outcome {
            Outcome::None => SaidOutcome::None,
            Outcome::Preliminary(output) => SaidOutcome::Preliminary(hash(output)),
            Outcome::Output(output) => SaidOutcome::Output(hash(output)),
            Outcome::Error(text) => SaidOutcome::Error(hash(text)),
            Outcome::Denied => SaidOutcome::Denied,
        };
        if said.outcome == outcome {
            return;
        }
        let output =
            |output: &Value| json!({ "type": "tool-output-available", "toolCallId": id, "output": output, "dynamic": true });
        match &target.outcome {
            Outcome::None => {}
            Outcome::Preliminary(state) => {
                let mut chunk = output(state);
                chunk["preliminary"] = true.into();
                page.say(chunk);
            }
            Outcome::Output(all) => page.say(output(all)),
            Outcome::Error(text) => {
                page.say(json!({ "type": "tool-output-error", "toolCallId": id, "errorText": text, "dynamic": true }));
            }
            Outcome::Denied => page.say(json!({ "type": "tool-output-denied", "toolCallId": id })),
        }
        said.outcome = outcome;
    }

    /// Opens the part or reopens it. The reader then drops its arguments and output.
    fn start(&mut self, id: &str, target: &Target<'_>, page: &mut Page) {
        page.say(json!({
            "type": "tool-input-start", "toolCallId": id, "toolName": target.name, "dynamic": true, "providerExecuted": true,
        }));
        let input = SaidInput::Streaming(0, DefaultHasher::new());
        self.said = Some(Said { name: target.name.into(), input, ask: None, outcome: SaidOutcome::None });
    }

    fn lead_input(&mut self, id: &str, target: &Target<'_>, page: &mut Page) {
        let said = self.said.as_ref().expect("the caller has started the call");
        match &target.input {
            Input::Streaming(text) => {
                let begun = match &said.input {
                    // The tool's name may arrive later than its arguments.
                    SaidInput::Streaming(length, sum) if *said.name == *target.name => text.get(..*length).filter(|begun| {
                        let mut print = DefaultHasher::new();
                        print.write(begun.as_bytes());
                        print.finish() == sum.finish() && said.outcome == SaidOutcome::None
                    }),
                    _ => None,
                };
                let begun = begun.map(str::len);
                if begun.is_none() {
                    self.start(id, target, page);
                }
                let rest = &text[begun.unwrap_or(0)..];
                if !rest.is_empty() {
                    self.stream(id, rest, page);
                }
            }
            Input::Known(input) => {
                let print = hash(input);
                let is_said = matches!(said.input, SaidInput::Known(known) if known == print) && *said.name == *target.name;
                // Only another `tool-input-available` makes a client drop an output.
                let is_back = matches!(target.outcome, Outcome::None | Outcome::Denied)
                    && said.outcome != SaidOutcome::None
                    && !(matches!(target.outcome, Outcome::Denied) && said.outcome == SaidOutcome::Denied);
                if !is_said || is_back {
                    self.available(id, target.name, input, page);
                    let said = self.said.as_mut().expect("the caller has started the call");
                    said.ask = None;
                }
            }
        }
    }

    fn available(&mut self, id: &str, name: &str, input: &Value, page: &mut Page) {
        page.say(json!({
            "type": "tool-input-available", "toolCallId": id, "toolName": name, "input": input,
            "dynamic": true, "providerExecuted": true,
        }));
        let said = self.said.as_mut().expect("the caller has started the call");
        (said.name, said.input, said.outcome) = (name.into(), SaidInput::Known(hash(input)), SaidOutcome::None);
    }

    fn lead_ask(&mut self, id: &str, target: &Target<'_>, page: &mut Page) {
        let said = self.said.as_mut().expect("the caller has started the call");
        let Some(ask) = target.ask.filter(|ask| said.ask.as_ref() != Some(ask)) else { return };
        let asked = Ask { answer: Answer::Pending, why: None, ..ask.clone() };
        let is_open = said.ask.as_ref() == Some(&asked);
        if !is_open || ask.answer == Answer::Pending {
            let mut request = json!({ "type": "tool-approval-request", "approvalId": ask.action, "toolCallId": id });
            if let Some(message) = ask.message.as_deref().filter(|_| page.version >= 7) {
                request["reason"] = message.into();
            }
            page.say(request);
        }
        // The part's state now is the approval's.
        said.outcome = SaidOutcome::None;
        said.ask = Some(ask.clone());
        match (ask.answer, &target.input) {
            (Answer::Pending, _) => {}
            (Answer::Yes | Answer::No, _) if page.version >= 7 => {
                let approved = ask.answer == Answer::Yes;
                let mut response = json!({ "type": "tool-approval-response", "approvalId": ask.action, "approved": approved });
                if let Some(why) = ask.why.as_deref() {
                    response["reason"] = why.into();
                }
                page.say(response);
            }
            // These versions have no chunk for the decision: the part returns to its state before the request.
            (_, Input::Known(input)) => self.available(id, target.name, input, page),
            (_, Input::Streaming(_)) => {}
        }
    }
}

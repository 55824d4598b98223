//! Tool calls and their approvals: the reader's tool part, and the chunks that produce it.
//!
//! A call's part is a function of the call and of the latest action about it ([`Target`]). From any state of the
//! reader, the chunks lead to that part. So a reader from the start and a late reader end with the same part.
//!
//! Every call is `dynamic`, because no client has types for the server's tools. Every call is `providerExecuted`, because
//! clients would otherwise execute it themselves. A call that awaits the client is not, until its result is there: a
//! client offers the call to the page's tools when its input comes again without the mark.

use super::message_writer::{MessageWriter, hash};
use crate::call_members::{is_shown_beside, progress};
use crate::content_copy::{ContentCopy, joined};
use crate::failure_text;
use crate::sent_text::SentText;
use proscenium_model::Sequence;
use proscenium_model::version::versioned_id;
use proscenium_projection::action::{self, ACTION_KIND, MESSAGE, OUTCOME, PARAMETERS, QUESTION_VERSION};
use proscenium_projection::members::{
    ACTION_STATUS, ActionStatus, CallState, OUTPUT_CHANNELS, OUTPUT_TEXT, TOOL_CALL_ID, TypedContent, WITHHELD,
};
use proscenium_projection::tool_call::{
    self, ACTION_ID, APP, AWAITS, ERROR, INPUT, INPUT_TEXT, OUTPUT, OUTPUT_REF, REPORTED, STATE, STRUCTURED, TOOL_NAME,
};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The activity type of calls.
pub(super) const KIND: &str = tool_call::KIND;

/// Kinds of actions that ask for more than yes or no: a client's approval would not answer them.
const INPUT_REQUEST_KINDS: &[&str] = &["structured_input", "clarification", "credential_request"];

/// The decision on an action about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Pending,
    Approved,
    Denied,
    /// The action was decided, without a known outcome.
    Unknown,
}

/// An approval request about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Approval {
    pub action: Box<str>,
    /// The id that the client answers.
    id: Box<str>,
    /// The sequence of the first request. The latest request counts.
    pub opened: Sequence,
    decision: Decision,
    /// The text of the request.
    message: Option<Box<str>>,
    /// The reason of a denial without a user's decision (`interrupted`, `cancelled`, `expired`, `superseded`).
    reason: Option<Box<str>>,
}

impl Approval {
    /// Reads the approval from an action; `None` if the action is not an approval of a call.
    pub fn of<'c>(id: &str, opened: Sequence, content: &'c Map<String, Value>, version: u8) -> Option<(&'c str, Self)> {
        let call = content
            .read(TOOL_CALL_ID)
            .filter(|_| version >= 6 && !content.read(ACTION_KIND).is_some_and(|kind| INPUT_REQUEST_KINDS.contains(&kind)))?;
        let (decision, reason) = match (content.read(ACTION_STATUS), content.read(OUTCOME)) {
            (Some(ActionStatus::Pending), _) => (Decision::Pending, None),
            (Some(ActionStatus::Interrupted), _) => (Decision::Denied, Some("interrupted".into())),
            (_, Some("approved")) => (Decision::Approved, None),
            (_, Some("rejected")) => (Decision::Denied, None),
            (_, Some(other @ ("cancelled" | "expired" | "superseded"))) => (Decision::Denied, Some(other.into())),
            _ => (Decision::Unknown, None),
        };
        let version = content.read(QUESTION_VERSION).and_then(Value::as_u64).unwrap_or(1);
        let message = content.read(MESSAGE).and_then(Value::as_str).map(Into::into);
        Some((call, Self { action: id.into(), id: versioned_id(id, version).into(), opened, decision, message, reason }))
    }
}

impl Approval {
    /// Marks the request as withdrawn: no decision is expected.
    pub const fn withdraw(&mut self) {
        self.decision = Decision::Unknown;
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
    approval: Option<&'c Approval>,
    outcome: Outcome<'c>,
    /// Whether the client has to run the call.
    is_of_client: bool,
    /// The interface of the tool.
    app: Option<&'c Value>,
}

impl<'c> Target<'c> {
    /// Derives the part from a call and the latest approval about it.
    pub fn of(content: &'c Map<String, Value>, approval: Option<&'c Approval>) -> Self {
        let state = content.read(STATE);
        Self {
            name: content.read(TOOL_NAME).unwrap_or_default(),
            input: input(content, state, approval.is_some()),
            approval,
            outcome: outcome(content, state, approval),
            is_of_client: content.has(AWAITS),
            app: content.read(APP),
        }
    }

    /// Derives the part from an approval whose call does not exist yet.
    pub fn of_approval(request: &'c Map<String, Value>, approval: &'c Approval) -> Self {
        let input = request.read(PARAMETERS).or_else(|| request.read(INPUT)).map_or_else(|| Cow::Owned(json!({})), Cow::Borrowed);
        Self {
            name: request.read(action::TOOL_NAME).and_then(Value::as_str).unwrap_or_default(),
            input: Input::Known(input),
            approval: Some(approval),
            outcome: if approval.decision == Decision::Denied { Outcome::Denied } else { Outcome::None },
            is_of_client: false,
            app: None,
        }
    }

    /// Adds the interface of the tool, where the client knows the member.
    fn add_app(&self, to: &mut Value, version: u8) {
        if let Some(app) = self.app.filter(|_| version >= 6) {
            to["toolMetadata"] = json!({ "app": app });
        }
    }

    /// The part as JSON.
    pub fn part(&self, id: &str, version: u8) -> Value {
        let decision = self.approval.map(|approval| approval.decision);
        let state = match (&self.outcome, &self.input, decision) {
            (Outcome::Preliminary(_) | Outcome::Output(_), ..) => "output-available",
            (Outcome::Error(_), ..) => "output-error",
            (Outcome::Denied, ..) => "output-denied",
            (Outcome::None, _, Some(Decision::Pending)) => "approval-requested",
            (Outcome::None, _, Some(Decision::Approved | Decision::Denied)) if version >= 7 => "approval-responded",
            (Outcome::None, Input::Known(_), _) => "input-available",
            (Outcome::None, Input::Streaming(_), _) => "input-streaming",
        };
        let mut part = json!({
            "type": "dynamic-tool", "toolName": self.name, "toolCallId": id, "state": state,
            "providerExecuted": !self.is_of_client,
        });
        self.add_app(&mut part, version);
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
        if let Some(approval) = self.approval {
            let mut member = json!({ "id": approval.id });
            if let Some(message) = approval.message.as_deref().filter(|_| version >= 7) {
                member["requestReason"] = message.into();
            }
            if let Decision::Approved | Decision::Denied = approval.decision {
                member["approved"] = (approval.decision == Decision::Approved).into();
                if let Some(reason) = approval.reason.as_deref().filter(|_| version >= 7) {
                    member["reason"] = reason.into();
                }
            }
            part["approval"] = member;
        }
        part
    }
}

fn input(content: &Map<String, Value>, state: Option<CallState>, is_asked: bool) -> Input<'_> {
    if let Some(input) = content.read(INPUT) {
        return Input::Known(Cow::Borrowed(input));
    }
    let text = joined(content.get(INPUT_TEXT.name()));
    let is_asked = is_asked || content.has(ACTION_ID);
    let may_come = matches!(state, None | Some(CallState::Running | CallState::InputStreaming)) && !is_asked;
    match (may_come, text.is_empty()) {
        (true, _) => Input::Streaming(text),
        // The call has no arguments.
        (false, true) => Input::Known(Cow::Owned(json!({}))),
        // The arguments never became JSON.
        (false, false) => Input::Known(Cow::Owned(text.into_owned().into())),
    }
}

fn outcome<'c>(content: &'c Map<String, Value>, state: Option<CallState>, approval: Option<&Approval>) -> Outcome<'c> {
    let decision = approval.map(|approval| approval.decision);
    match state {
        Some(CallState::OutputAvailable) => Outcome::Output(output(content)),
        Some(CallState::OutputError | CallState::Cancelled) if decision == Some(Decision::Denied) => Outcome::Denied,
        Some(end @ (CallState::OutputError | CallState::Cancelled)) => {
            Outcome::Error(failure_text(content.get(ERROR.name()), end))
        }
        // The client does not run a call that has an output.
        Some(CallState::Progress) if decision != Some(Decision::Pending) && !content.has(AWAITS) => {
            let mut output = progress(content);
            output.extend(streamed_output(content));
            Outcome::Preliminary(output.into())
        }
        _ => Outcome::None,
    }
}

/// The output of a call: `output`, else `structured`, else the streamed output, else a reference to it.
fn output(content: &Map<String, Value>) -> Cow<'_, Value> {
    let stated = [OUTPUT, STRUCTURED].into_iter().filter_map(|member| content.read(member)).find(|value| !value.is_null());
    if let Some(stated) = stated {
        return Cow::Borrowed(stated);
    }
    let mut streamed_output = streamed_output(content);
    match streamed_output.shift_remove(OUTPUT_TEXT.name()) {
        Some(text) if streamed_output.is_empty() => return Cow::Owned(text),
        Some(text) => drop(streamed_output.shift_insert(0, OUTPUT_TEXT.name().into(), text)),
        None => {}
    }
    if !streamed_output.is_empty() {
        return Cow::Owned(streamed_output.into());
    }
    let left = [OUTPUT_REF.name(), WITHHELD.name()].into_iter().find_map(|member| Some((member, content.get(member)?)));
    Cow::Owned(left.map_or(Value::Null, |(member, value)| json!({ member: value })))
}

/// The streamed output of a call, by channel.
fn streamed_output(content: &Map<String, Value>) -> Map<String, Value> {
    let mut streamed_output = Map::new();
    let text = joined(content.get(OUTPUT_TEXT.name()));
    if !text.is_empty() {
        streamed_output.insert(OUTPUT_TEXT.name().into(), text.into());
    }
    if let Some(channels) = content.read(OUTPUT_CHANNELS) {
        let joined = channels.iter().map(|(name, text)| (name.clone(), Value::from(joined(Some(text)).into_owned())));
        streamed_output.insert(OUTPUT_CHANNELS.name().into(), Value::Object(joined.collect()));
    }
    streamed_output
}

/// The sequence of the call's first progress report; `None` without a report.
pub(super) fn reported(content: &Map<String, Value>) -> Option<Sequence> {
    content.read(REPORTED)
}

/// The content of a call's data part: seed 002's state, and the members that a tool part lacks.
pub(super) fn data(content: &Map<String, Value>) -> Value {
    let members = content.iter().filter(|(member, _)| is_shown_beside(member));
    Value::Object(members.map(|(member, value)| (member.clone(), value.clone())).collect())
}

#[derive(Debug, Clone, PartialEq)]
enum SentInput {
    Streaming(SentText),
    Known(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SentOutcome {
    None,
    Preliminary(u64),
    Output(u64),
    Error(u64),
    Denied,
}

/// The part as the reader has it.
#[derive(Debug, Clone, PartialEq)]
struct SentToolPart {
    name: Box<str>,
    input: SentInput,
    approval: Option<Approval>,
    outcome: SentOutcome,
    is_of_client: bool,
    /// The hash of the tool's interface.
    app: Option<u64>,
}

/// One call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Call {
    pub copy: ContentCopy,
    /// The latest approval about it.
    pub approval: Option<Approval>,
    sent: Option<SentToolPart>,
    /// Whether the call itself was sent, and not only an approval about it.
    pub is_sent: bool,
    /// The hash of its data part, once that was sent.
    data: Option<u64>,
    /// The size of unsent changes, in bytes.
    pub unsent_bytes: usize,
}

impl Call {
    /// Updates the reader's part to the call's content.
    pub fn update(&mut self, id: &str, content: &Map<String, Value>, writer: &mut MessageWriter) {
        (self.is_sent, self.unsent_bytes) = (true, 0);
        let approval = self.approval.take();
        self.send_changes(id, &Target::of(content, approval.as_ref()), writer);
        self.approval = approval;
    }

    /// Updates the reader's data part to the progress report, if the call has one.
    pub fn send_report(&mut self, id: &str, content: &Map<String, Value>, writer: &mut MessageWriter) {
        if reported(content).is_none() {
            return;
        }
        let data = data(content);
        let digest = hash(&data);
        if self.data != Some(digest) {
            writer.data(KIND, id, data, self.data.is_none());
            self.data = Some(digest);
        }
    }

    /// Updates the reader's part from the copy, if one is stored, and with `with_report` the data part too.
    pub fn update_from_copy(&mut self, id: &str, with_report: bool, writer: &mut MessageWriter) {
        let copy = std::mem::take(&mut self.copy);
        if let Some(content) = copy.content() {
            self.update(id, content, writer);
            if with_report {
                self.send_report(id, content, writer);
            }
        }
        self.copy = copy;
    }

    /// Marks the sent state as uncertain, so that the next update sends it again.
    ///
    /// The reader's copy may be older than the state.
    pub fn invalidate(&mut self) {
        self.unsent_bytes = 1;
        self.data = self.data.map(|digest| !digest);
        let Some(sent) = &mut self.sent else { return };
        if let SentInput::Known(input) = &mut sent.input {
            *input = !*input;
        }
        if let SentOutcome::Preliminary(outcome) | SentOutcome::Output(outcome) | SentOutcome::Error(outcome) = &mut sent.outcome
        {
            *outcome = !*outcome;
        }
    }

    /// Whether the sent part is final.
    pub fn has_ended(&self) -> bool {
        let outcome = self.sent.as_ref().map(|sent| &sent.outcome);
        matches!(outcome, Some(SentOutcome::Output(_) | SentOutcome::Error(_) | SentOutcome::Denied))
    }

    /// Sends a chunk of streaming arguments. Returns false if the arguments are not streaming.
    pub fn send_input_delta(&mut self, id: &str, chunk: &str, writer: &mut MessageWriter) -> bool {
        let Some(SentToolPart { input: SentInput::Streaming(text), .. }) = &mut self.sent else { return false };
        writer.push(json!({ "type": "tool-input-delta", "toolCallId": id, "inputTextDelta": chunk }));
        text.push(chunk);
        true
    }

    /// Sends the chunks that lead from the reader's part to this one.
    pub fn send_changes(&mut self, id: &str, target: &Target<'_>, writer: &mut MessageWriter) {
        if self.sent.is_none() {
            writer.parts += 1;
            self.send_start(id, target, writer);
        }
        self.send_input(id, target, writer);
        self.send_approval(id, target, writer);
        let sent = self.sent.as_mut().expect("the call was started above");
        let outcome = match &target.outcome {
            Outcome::None => SentOutcome::None,
            Outcome::Preliminary(output) => SentOutcome::Preliminary(hash(output)),
            Outcome::Output(output) => SentOutcome::Output(hash(output)),
            Outcome::Error(text) => SentOutcome::Error(hash(text)),
            Outcome::Denied => SentOutcome::Denied,
        };
        if sent.outcome == outcome {
            return;
        }
        // The mark comes with the output.
        let was_of_client = std::mem::replace(&mut sent.is_of_client, target.is_of_client) && !target.is_of_client;
        let push = |mut chunk: Value, writer: &mut MessageWriter| {
            if was_of_client {
                chunk["providerExecuted"] = true.into();
            }
            writer.push(chunk);
        };
        let output =
            |output: &Value| json!({ "type": "tool-output-available", "toolCallId": id, "output": output, "dynamic": true });
        match &target.outcome {
            Outcome::None => {}
            Outcome::Preliminary(state) => {
                let mut chunk = output(state);
                chunk["preliminary"] = true.into();
                push(chunk, writer);
            }
            Outcome::Output(all) => push(output(all), writer),
            Outcome::Error(text) => {
                push(json!({ "type": "tool-output-error", "toolCallId": id, "errorText": text, "dynamic": true }), writer);
            }
            Outcome::Denied => writer.push(json!({ "type": "tool-output-denied", "toolCallId": id })),
        }
        sent.outcome = outcome;
    }

    /// Opens the part or reopens it. The reader then drops its arguments and output.
    fn send_start(&mut self, id: &str, target: &Target<'_>, writer: &mut MessageWriter) {
        let mut chunk = json!({
            "type": "tool-input-start", "toolCallId": id, "toolName": target.name, "dynamic": true,
            "providerExecuted": !target.is_of_client,
        });
        target.add_app(&mut chunk, writer.version);
        writer.push(chunk);
        let (input, outcome) = (SentInput::Streaming(SentText::default()), SentOutcome::None);
        let (name, is_of_client, app) = (target.name.into(), target.is_of_client, target.app.map(hash));
        self.sent = Some(SentToolPart { name, input, approval: None, outcome, is_of_client, app });
    }

    fn send_input(&mut self, id: &str, target: &Target<'_>, writer: &mut MessageWriter) {
        let sent = self.sent.as_ref().expect("the caller has started the call");
        // A call returns from the client with its output, which tells so.
        let changes_hands = target.is_of_client != sent.is_of_client && matches!(target.outcome, Outcome::None | Outcome::Denied);
        let changes_app = sent.app != target.app.map(hash);
        match &target.input {
            Input::Streaming(text) => {
                let rest = match &sent.input {
                    // The tool's name may arrive later than its arguments.
                    SentInput::Streaming(had) if *sent.name == *target.name && !changes_hands && !changes_app => {
                        had.rest(text).filter(|_| sent.outcome == SentOutcome::None)
                    }
                    _ => None,
                };
                if rest.is_none() {
                    self.send_start(id, target, writer);
                }
                let rest = rest.unwrap_or(text);
                if !rest.is_empty() {
                    self.send_input_delta(id, rest, writer);
                }
            }
            Input::Known(input) => {
                let digest = hash(input);
                let is_sent_input =
                    matches!(sent.input, SentInput::Known(known) if known == digest) && *sent.name == *target.name;
                // Only another `tool-input-available` makes a client drop an output.
                let must_drop_output = matches!(target.outcome, Outcome::None | Outcome::Denied)
                    && sent.outcome != SentOutcome::None
                    && !(matches!(target.outcome, Outcome::Denied) && sent.outcome == SentOutcome::Denied);
                if !is_sent_input || must_drop_output || changes_hands || changes_app {
                    self.send_input_available(id, target, input, writer);
                    let sent = self.sent.as_mut().expect("the caller has started the call");
                    sent.approval = None;
                }
            }
        }
    }

    fn send_input_available(&mut self, id: &str, target: &Target<'_>, input: &Value, writer: &mut MessageWriter) {
        let mut chunk = json!({
            "type": "tool-input-available", "toolCallId": id, "toolName": target.name, "input": input,
            "dynamic": true, "providerExecuted": !target.is_of_client,
        });
        target.add_app(&mut chunk, writer.version);
        writer.push(chunk);
        let sent = self.sent.as_mut().expect("the caller has started the call");
        (sent.name, sent.input, sent.outcome) = (target.name.into(), SentInput::Known(hash(input)), SentOutcome::None);
        (sent.is_of_client, sent.app) = (target.is_of_client, target.app.map(hash));
    }

    fn send_approval(&mut self, id: &str, target: &Target<'_>, writer: &mut MessageWriter) {
        let sent = self.sent.as_mut().expect("the caller has started the call");
        let Some(approval) = target.approval.filter(|approval| sent.approval.as_ref() != Some(approval)) else { return };
        let requested = Approval { decision: Decision::Pending, reason: None, ..approval.clone() };
        let is_open = sent.approval.as_ref() == Some(&requested);
        if !is_open || approval.decision == Decision::Pending {
            let mut request = json!({ "type": "tool-approval-request", "approvalId": approval.id, "toolCallId": id });
            if let Some(message) = approval.message.as_deref().filter(|_| writer.version >= 7) {
                request["reason"] = message.into();
            }
            writer.push(request);
        }
        // The part's state now is the approval's.
        sent.outcome = SentOutcome::None;
        sent.approval = Some(approval.clone());
        match (approval.decision, &target.input) {
            (Decision::Pending, _) => {}
            (Decision::Approved | Decision::Denied, _) if writer.version >= 7 => {
                let approved = approval.decision == Decision::Approved;
                let mut response = json!({ "type": "tool-approval-response", "approvalId": approval.id, "approved": approved });
                if let Some(reason) = approval.reason.as_deref() {
                    response["reason"] = reason.into();
                }
                writer.push(response);
            }
            // These versions have no chunk for the decision: the part returns to its state before the request.
            (_, Input::Known(input)) => self.send_input_available(id, target, input, writer),
            (_, Input::Streaming(_)) => {}
        }
    }
}

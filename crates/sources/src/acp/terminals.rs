//! The output of commands.
//!
//! In protocol 1 the client runs a command and returns the whole output so far, so only its new tail is reported. In
//! protocol 2 the agent sends chunks of bytes. A call names the terminal that shows its output.

use super::EventHandler;
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{diagnostic, malformed, name_of, take_text};
use data_encoding::BASE64;
use proscenium_model::{Audience, EventType, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Terminal {
    pub id: String,
    call: Option<ToolCallId>,
    /// The output that was reported.
    output: TextDigest,
    /// The beginning of a character whose rest has not come.
    rest: Vec<u8>,
}

impl EventHandler<'_> {
    pub(super) fn terminal_key(&self, id: &str) -> String {
        name_of(&self.scoped(id))
    }

    pub(super) fn remember_terminal(&mut self, id: &str) {
        let id = self.terminal_key(id);
        if !self.memory.terminals.has(&id) {
            self.memory.terminals.add(Terminal { id, call: None, output: TextDigest::default(), rest: Vec::new() });
        }
    }

    /// Assigns a terminal's output to a call.
    pub(super) fn link_terminal(&mut self, id: &str, call: &ToolCallId) {
        self.remember_terminal(id);
        let id = self.terminal_key(id);
        if let Some(terminal) = self.memory.terminals.find_mut(&id) {
            terminal.call = Some(call.clone());
        }
    }

    /// Reports the new tail of a command's output.
    pub(super) fn terminal_output(&mut self, id: &str, result: Value) {
        let output = result.get("output").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_cut = result.get("truncated") == Some(&Value::Bool(true));
        let known = self.memory.terminals.find_mut(&id.to_owned()).and_then(|terminal| Some((terminal.call.clone()?, terminal)));
        let Some((call, terminal)) = known else {
            return self.push(diagnostic("terminal_output", "terminal/output", super::members_of(result, "result")));
        };
        // Where the client has dropped the beginning, the whole output is new.
        let tail = match terminal.output.is_prefix_of(&output) {
            true => output[terminal.output.len()..].to_owned(),
            false => output.clone(),
        };
        terminal.output = TextDigest::of(output.as_bytes());
        if !tail.is_empty() {
            self.output(call, tail, is_cut);
        }
    }

    fn output(&mut self, call: ToolCallId, text: String, is_cut: bool) {
        let draft = self.about(EventType::ToolOutputDelta, &call).call(|call| {
            call.text = Some(text);
            call.truncated = is_cut.then(|| Box::new(true.into()));
        });
        self.push(draft.with_audience(Audience::User));
    }

    pub(super) fn terminal_update(&mut self, update: Fact) {
        if let Some(id) = update.get("terminalId").and_then(Value::as_str) {
            self.remember_terminal(id);
        }
        self.push(diagnostic("terminal_update", "terminal_update", update));
    }

    pub(super) fn terminal_output_chunk(&mut self, mut update: Fact) {
        let id = update.get("terminalId").and_then(Value::as_str).map(|id| self.terminal_key(id));
        let data = update.get("data").and_then(Value::as_str).and_then(|data| BASE64.decode(data.as_bytes()).ok());
        let (Some(id), Some(data)) = (id, data) else {
            return self.push(malformed("terminal_output_chunk", update, "terminalId as text, and data in base64"));
        };
        let known = self.memory.terminals.find_mut(&id).and_then(|terminal| Some((terminal.call.clone()?, terminal)));
        let Some((call, terminal)) = known else {
            return self.push(diagnostic("terminal_output", "terminal_output_chunk", update));
        };
        let mut bytes = std::mem::take(&mut terminal.rest);
        bytes.extend(data);
        terminal.rest = bytes.split_off(whole_characters(&bytes));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        take_text(&mut update, "data");
        if !text.is_empty() {
            self.output(call, text, false);
        }
        update.shift_remove("terminalId");
        if !update.is_empty() {
            self.push(diagnostic("terminal_output", "terminal_output_chunk", Map::from_iter(update)));
        }
    }
}

/// The length of the bytes before a character that is cut off at their end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        // Bytes that are no text stay, so that they do not hold back what follows.
        _ => bytes.len(),
    }
}

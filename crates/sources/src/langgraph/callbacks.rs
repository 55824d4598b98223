//! Callables (dialect C): every model, tool and node reports its start and its end.
//!
//! An interrupt looks like a tool's failure and then like success of the graph. An error has no closing event.

use super::calls::{digest_of, is_interrupt};
use super::event::{Callback, Dialect, Message};
use super::{EventHandler, TurnState, id_from, internal};
use proscenium_model::ToolCallId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A tool at work: its end names the callable, and not always the call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ToolRun {
    pub run: String,
    call: ToolCallId,
}

impl EventHandler<'_> {
    pub(super) fn callback(&mut self, mut callback: Callback) {
        if let Some(thread) = callback.metadata.get("thread_id").and_then(Value::as_str) {
            self.learn_thread(thread);
        }
        let starts_root = callback.is_root && callback.event == "on_chain_start";
        if !starts_root {
            self.ensure_started();
        }
        if callback.is_hidden {
            return self.keep_callback(callback);
        }
        let agent = callback.metadata.get("lc_agent_name").and_then(Value::as_str).map(str::to_owned);
        let node = callback.metadata.get("langgraph_node").and_then(Value::as_str).map(str::to_owned);
        self.enter_child(agent.as_deref(), node.as_deref());
        match callback.event.as_str() {
            "on_chain_start" if callback.is_root => self.root_start(callback),
            "on_chain_stream" if callback.is_root => match callback.data.shift_remove("chunk") {
                Some(chunk) if chunk.as_object().is_some_and(is_bytes) => {}
                Some(chunk) => self.updates(chunk),
                None => {}
            },
            "on_chain_end" if callback.is_root && !self.memory.has_asked => {
                self.keep_callback(callback);
                self.complete(Map::new());
            }
            "on_chat_model_stream" => match callback.data.shift_remove("chunk") {
                Some(chunk) if chunk.as_object().is_some_and(is_bytes) => {}
                chunk => {
                    if let Some(message) = chunk.and_then(Message::of) {
                        self.message(message, Dialect::Callbacks);
                    }
                }
            },
            "on_chat_model_end" => {
                if let Some(message) = callback.data.shift_remove("output").and_then(Message::whole) {
                    self.message(message, Dialect::Callbacks);
                }
            }
            "on_tool_start" => self.tool_start(callback),
            "on_tool_end" => self.tool_end(callback),
            "on_tool_error" => self.tool_error(callback),
            "on_custom_event" => {
                let data =
                    callback.data.shift_remove("value").unwrap_or_else(|| Value::Object(std::mem::take(&mut callback.data)));
                self.custom_event(Some(&callback.name), data);
            }
            _ => self.keep_callback(callback),
        }
    }

    fn keep_callback(&mut self, callback: Callback) {
        let draft = internal("callback", &callback.event).with("name", callback.name).with("data", callback.data);
        self.push(draft);
    }

    fn root_start(&mut self, callback: Callback) {
        if self.memory.turn_state != TurnState::Open {
            let resume = callback.data.get("input").and_then(|input| input.get("resume")).filter(|resume| !resume.is_null());
            if let Some(resume) = resume {
                self.answer_all(resume);
            }
            self.close_messages();
            self.begin(Some(&callback.run), false);
        }
        self.keep_callback(callback);
    }

    fn tool_start(&mut self, mut callback: Callback) {
        let input = callback.data.shift_remove("input").unwrap_or_else(|| json!({}));
        let args = digest_of(&input);
        let name = crate::members::name_of(&callback.name);
        let named = super::text_of(&Value::Object(callback.data.clone()), "tool_call_id").map(id_from::<ToolCallId>);
        let taken: Vec<_> = self.memory.tool_runs.iter().map(|run| run.call.clone()).collect();
        let is_it = |call: &super::Call| call.name == name && call.args == args && !taken.contains(&call.id);
        let known = named.or_else(|| self.memory.calls.open.iter().find(|call| is_it(call)).map(|call| call.id.clone()));
        // A tool that no model called has no other id.
        let call = known.unwrap_or_else(|| id_from(&callback.run));
        self.memory.tool_runs.add(ToolRun { run: callback.run.clone(), call: call.clone() });
        self.call_runs(&call, &callback.name, Some(input));
    }

    fn tool_end(&mut self, mut callback: Callback) {
        let run = self.memory.tool_runs.take(&callback.run).map(|run| run.call);
        let output = callback.data.shift_remove("output").unwrap_or(Value::Null);
        match Message::of(output.clone()) {
            Some(mut message) => {
                let call = run.filter(|call| self.memory.calls.open.has(call)).or_else(|| message.call());
                if let Some(call) = call {
                    message.members.insert("tool_call_id".into(), call.as_str().into());
                    self.tool_message(&message);
                }
            }
            None => {
                let call = run.unwrap_or_else(|| id_from(&callback.run));
                self.result(&call, json!({ "content": output }));
            }
        }
    }

    fn tool_error(&mut self, callback: Callback) {
        let run = self.memory.tool_runs.take(&callback.run).map(|run| run.call);
        let data = Value::Object(callback.data.clone());
        let error = super::text_of(&data, "error").unwrap_or("the tool failed without saying why").to_owned();
        let named = super::text_of(&data, "tool_call_id").map(id_from::<ToolCallId>);
        match run.or(named).filter(|_| !is_interrupt(&error)) {
            Some(call) => self.call_failed(&call, &error),
            None => self.keep_callback(callback),
        }
    }
}

/// Whether a chunk is a text as a map of its bytes, as JavaScript writes it.
fn is_bytes(chunk: &Map<String, Value>) -> bool {
    !chunk.is_empty() && chunk.keys().all(|key| key.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;

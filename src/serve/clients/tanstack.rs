//! `TanStack` AI, which speaks AG-UI with habits of its own.
//!
//! It hydrates a thread and then joins the run that goes on: that one is told from its start, so the thread at rest ends before
//! it ([`at_rest`]). It takes only interrupts for its own that say what they are bound to ([`bound`]). And it forgets at every
//! snapshot what it had of a text that goes on: that is said once more ([`TanStack`]).

use crate::encode::ag_ui::AgUi;
use crate::encode::frames::{Frame, Shown};
use crate::encode::{Dialect, Flow};
use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The member of an interrupt's metadata by which its UI knows that it may answer.
const BINDING: &str = "tanstack:interruptBinding";

/// AG-UI as this client reads it.
pub struct TanStack {
    inner: AgUi,
}

impl TanStack {
    /// The same telling, for this client.
    #[must_use]
    pub const fn new(inner: AgUi) -> Self {
        Self { inner }
    }
}

impl Dialect for TanStack {
    fn recall(&mut self, earlier: Vec<Shown>) {
        self.inner.recall(earlier);
    }

    fn resume(&mut self, known: Vec<Shown>) {
        self.inner.resume(known);
    }

    fn frame(&mut self, frame: Frame, events: &mut Vec<Value>) -> Flow {
        let mut told = Vec::new();
        let flow = self.inner.frame(frame, &mut told);
        adapt(told, events);
        flow
    }

    fn retells(&self) -> bool {
        self.inner.retells()
    }

    fn settle(&mut self, events: &mut Vec<Value>) -> Flow {
        let mut told = Vec::new();
        let flow = self.inner.settle(&mut told);
        adapt(told, events);
        flow
    }
}

/// Says events as they are meant for this client.
fn adapt(told: Vec<Value>, events: &mut Vec<Value>) {
    // What a snapshot has of texts and arguments, by their ids.
    let mut shown = HashMap::new();
    for mut event in told {
        let again = match event["type"].as_str() {
            Some("MESSAGES_SNAPSHOT") => {
                if let Some(messages) = event["messages"].as_array_mut() {
                    // An activity would be an empty bubble.
                    messages.retain(|message| message["role"] != "activity");
                    shown = messages.iter().flat_map(texts).collect();
                }
                None
            }
            Some("TEXT_MESSAGE_START") => said_again(&shown, "TEXT_MESSAGE_CONTENT", "messageId", &event),
            Some("REASONING_MESSAGE_START") => said_again(&shown, "REASONING_MESSAGE_CONTENT", "messageId", &event),
            Some("TOOL_CALL_START") => said_again(&shown, "TOOL_CALL_ARGS", "toolCallId", &event),
            Some("RUN_FINISHED") => {
                let run = event["runId"].clone();
                if let Some(Value::Array(interrupts)) = event.pointer_mut("/outcome/interrupts") {
                    for interrupt in interrupts {
                        bind(interrupt, &run);
                    }
                }
                None
            }
            _ => None,
        };
        events.push(event);
        events.extend(again);
    }
}

/// The texts of a message that may go on, by the ids under which they do.
fn texts(message: &Value) -> Vec<(String, String)> {
    let text = |id: &Value, text: &Value| Some((id.as_str()?.to_owned(), text.as_str()?.to_owned()));
    let calls = message["toolCalls"].as_array().into_iter().flatten();
    let calls = calls.filter_map(|call| text(&call["id"], &call["function"]["arguments"]));
    calls.chain(text(&message["id"], &message["content"])).collect()
}

/// All that a snapshot has of what an event opens again, as an event.
fn said_again(shown: &HashMap<String, String>, class: &str, id: &str, opens: &Value) -> Option<Value> {
    let text = shown.get(opens[id].as_str()?).filter(|text| !text.is_empty())?;
    Some(json!({ "type": class, id: opens[id], "delta": text }))
}

/// The interrupts of a run, as ones that this client may answer.
#[must_use]
pub fn bound(mut interrupts: Vec<Value>, run: &str) -> Vec<Value> {
    let run = Value::from(run);
    for interrupt in &mut interrupts {
        bind(interrupt, &run);
    }
    interrupts
}

fn bind(interrupt: &mut Value, run: &Value) {
    let mut binding =
        json!({ "v": 1, "kind": "generic", "interruptId": interrupt["id"], "interruptedRunId": run, "generation": 0 });
    if let Some(schema) = interrupt.get("responseSchema") {
        binding["responseSchemaHash"] = format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(canonical(schema)))).into();
    }
    if !interrupt["metadata"].is_object() {
        interrupt["metadata"] = json!({});
    }
    interrupt["metadata"][BINDING] = binding;
}

/// Compact JSON with the members of objects in order, as this client hashes it. A number that it writes in another way than we
/// do has another hash there, and the interrupt is only shown.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
            let members = members.into_iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// A thread's messages as this client keeps them: with `parts`, thoughts and results in the assistant's message that they belong
/// to. `live` are the ids of messages of the run that is told from its start to whoever joins it, but for what the user said in
/// it.
#[must_use]
pub fn at_rest(messages: Vec<Value>, is_live: impl Fn(&Value) -> bool) -> Vec<Value> {
    let results: Map<String, Value> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| Some((message["toolCallId"].as_str()?.to_owned(), message.clone())))
        .collect();
    let (mut all, mut thoughts, mut was_live) = (Vec::<Value>::new(), Vec::new(), false);
    for mut message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "user" && is_live(&message) {
            was_live = true;
            continue;
        }
        match role {
            "tool" | "activity" => continue,
            "reasoning" => {
                thoughts.push((message["id"].clone(), thinking(&message)));
                continue;
            }
            "assistant" => {
                let thoughts = std::mem::take(&mut thoughts).into_iter().map(|(_, thought)| thought);
                message["parts"] = thoughts.chain(parts(&message, &results)).collect();
            }
            _ => {
                all.extend(of_thoughts(&mut thoughts));
                message["parts"] = parts(&message, &results).into();
            }
        }
        all.push(message);
    }
    all.extend(of_thoughts(&mut thoughts));
    // Of what is told anew it takes the last message away, if that is the assistant's.
    if was_live && all.last().is_some_and(|last| last["role"] == "assistant") {
        all.push(json!({ "id": LIVE, "role": "assistant", "parts": [] }));
    }
    all
}

/// The message that stands for a run that is about to be told.
const LIVE: &str = "agentui-live";

/// Thoughts that no message of the assistant followed, as one.
fn of_thoughts(thoughts: &mut Vec<(Value, Value)>) -> Option<Value> {
    let id = thoughts.first()?.0.clone();
    let parts: Vec<_> = std::mem::take(thoughts).into_iter().map(|(_, thought)| thought).collect();
    Some(json!({ "id": id, "role": "assistant", "parts": parts }))
}

fn thinking(message: &Value) -> Value {
    json!({ "type": "thinking", "content": message["content"], "stepId": message["id"] })
}

fn parts(message: &Value, results: &Map<String, Value>) -> Vec<Value> {
    let mut parts = Vec::new();
    match &message["content"] {
        Value::String(text) if !text.is_empty() => parts.push(json!({ "type": "text", "content": text })),
        Value::Array(content) => parts.extend(content.iter().map(|part| match part["type"].as_str() {
            Some("text") => json!({ "type": "text", "content": part["text"] }),
            _ => part.clone(),
        })),
        _ => {}
    }
    for call in message["toolCalls"].as_array().into_iter().flatten() {
        let (id, arguments) = (&call["id"], &call["function"]["arguments"]);
        let mut part = json!({ "type": "tool-call", "id": id, "name": call["function"]["name"], "arguments": arguments });
        if let Some(input) = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            part["input"] = input;
        }
        let result = id.as_str().and_then(|id| results.get(id));
        let state = match result {
            None => "input-complete",
            Some(result) if result["error"].is_null() => "complete",
            Some(_) => "error",
        };
        part["state"] = state.into();
        let Some(result) = result else {
            parts.push(part);
            continue;
        };
        let content = &result["content"];
        part["output"] = content.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| content.clone());
        let mut came = json!({
            "type": "tool-result", "id": result["id"], "toolCallId": id, "content": content, "state": state,
        });
        if !result["error"].is_null() {
            came["error"] = result["error"].clone();
        }
        parts.extend([part, came]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_snapshot_opens_again_is_said_once_more_and_activities_are_left_out() {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "look", "arguments": "{\"at\":" } });
        let snapshot = json!({ "type": "MESSAGES_SNAPSHOT", "messages": [
            { "id": "m", "role": "assistant", "content": "Hel" },
            { "id": "empty", "role": "assistant", "content": "" },
            { "id": "c", "role": "assistant", "toolCalls": [call] },
            { "id": "progress:c", "role": "activity", "activityType": "tool-call-progress", "content": {} },
            { "id": "reasoning:r", "role": "reasoning", "content": "Wh" },
        ] });
        let opens = [
            json!({ "type": "TEXT_MESSAGE_START", "messageId": "m" }),
            json!({ "type": "TEXT_MESSAGE_START", "messageId": "empty" }),
            json!({ "type": "TOOL_CALL_START", "toolCallId": "c" }),
            json!({ "type": "REASONING_MESSAGE_START", "messageId": "reasoning:r" }),
        ];
        let mut said = Vec::new();
        adapt([&[snapshot][..], &opens].concat(), &mut said);
        let shown: Vec<_> = said[0]["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
        assert_eq!(shown, ["m", "empty", "c", "reasoning:r"]);
        let [text, empty, call, thought] = opens;
        let content = json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hel" });
        let arguments = json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{\"at\":" });
        let thinking = json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": "reasoning:r", "delta": "Wh" });
        assert_eq!(said[1..], [text, content, empty, call, arguments, thought, thinking]);
        let (mut without, alone) = (Vec::new(), json!({ "type": "TEXT_MESSAGE_START", "messageId": "m" }));
        adapt(vec![alone.clone()], &mut without);
        assert_eq!(without, [alone], "only a snapshot is forgotten");
    }

    #[test]
    fn an_interrupt_says_what_it_is_bound_to_and_by_which_schema_it_is_answered() {
        let schema = json!({
            "type": "object", "required": ["a"],
            "properties": { "z": { "enum": ["é", null, true] }, "a": { "minimum": 0.5, "maximum": 10 } },
        });
        let interrupt = json!({ "id": "i", "responseSchema": schema, "metadata": { "proscenium": {} } });
        let told = json!({ "type": "RUN_FINISHED", "runId": "r", "outcome": { "type": "interrupt", "interrupts": [interrupt] } });
        let mut said = Vec::new();
        adapt(vec![told], &mut said);
        let metadata = &said[0]["outcome"]["interrupts"][0]["metadata"];
        let binding = json!({
            "v": 1, "kind": "generic", "interruptId": "i", "interruptedRunId": "r", "generation": 0,
            // As the client's own `digestInterruptJson` has it.
            "responseSchemaHash": "sha256:330ba512e883864acd10e35a39d0162f5c2792f9992fb7b63cc65334e2edabd2",
        });
        assert_eq!(*metadata, json!({ "proscenium": {}, BINDING: binding }));
    }

    #[test]
    fn a_thread_at_rest_ends_before_the_run_that_is_told_and_something_stands_for_that_after_another_answer() {
        let message = |id: &str, role: &str| json!({ "id": id, "role": role, "content": id });
        let thread = || ["u1", "u2"].map(|id| message(id, "user"));
        let [u1, u2] = thread();
        let ids = |messages: Vec<Value>| -> Vec<String> {
            messages.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect()
        };
        let is_live = |message: &Value| message["id"].as_str().is_some_and(|id| id.starts_with("live") || id == "u2");
        let all = || vec![u1.clone(), message("a1", "assistant"), u2.clone(), message("live", "assistant")];
        assert_eq!(ids(at_rest(all(), |_| false)), ["u1", "a1", "u2", "live"]);
        assert_eq!(ids(at_rest(all(), is_live)), ["u1", "a1", "u2"]);
        let unasked = vec![u1.clone(), message("a1", "assistant"), message("live", "assistant")];
        assert_eq!(ids(at_rest(unasked, is_live)), ["u1", "a1", LIVE], "the client takes the last answer away when it is told");
        let thoughts = vec![message("r1", "reasoning"), u1.clone(), message("r2", "reasoning"), message("a1", "assistant")];
        let rest = at_rest(thoughts, |_| false);
        assert_eq!(ids(rest.clone()), ["r1", "u1", "a1"]);
        assert_eq!(rest[2]["parts"][0], json!({ "type": "thinking", "content": "r2", "stepId": "r2" }));
    }
}

//! `TanStack` AI: AG-UI with its own conventions.
//!
//! It loads a thread and then joins the active run from its start, so the loaded thread ends before that run
//! ([`thread_messages`]). It only answers interrupts that carry its own binding ([`with_bindings`]). It drops an open
//! text at every snapshot, so the text is sent again ([`TanStack`]). It adds a reopened call or reasoning a second time,
//! so a snapshot leaves out those that follow it. It shows an activity of a snapshot as an empty message, so each is an
//! event of its own. It separates reasoning by step, not by message, so each reasoning message is a step. It shows a call
//! as failed only if its own metadata, or a message's `error`, say so ([`mark_failure`]).

use crate::encode::ag_ui::adapted::EventAdapter;
use crate::encode::failure_text;
use crate::projection::members::{CallState, MemberType};
use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};

/// The metadata member that marks an interrupt as answerable in its UI.
const BINDING: &str = "tanstack:interruptBinding";

/// The AG-UI dialect, adapted for this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TanStack;

impl EventAdapter for TanStack {
    fn adapt(&mut self, events_in: Vec<Value>, events: &mut Vec<Value>) {
        adapt(events_in, events);
    }
}

/// Adapts events for this client.
fn adapt(events_in: Vec<Value>, events: &mut Vec<Value>) {
    // The texts and arguments of a snapshot, by id.
    let mut shown = HashMap::new();
    let opened: HashSet<_> = events_in.iter().filter_map(|event| opened_outside_a_message(event)).map(str::to_owned).collect();
    for mut event in events_in {
        let (mut before, mut after, mut activities) = (None, None, Vec::new());
        match event["type"].as_str() {
            Some("MESSAGES_SNAPSHOT") => {
                if let Some(messages) = event["messages"].as_array_mut() {
                    shown = messages.iter().flat_map(texts).collect();
                    // As a message, the client would show an activity as an empty bubble.
                    activities = messages.extract_if(.., |message| message["role"] == "activity").map(as_event).collect();
                    messages.retain(|message| !is_reopened(message, &opened));
                    messages.iter_mut().for_each(mark_failure);
                }
            }
            Some("TEXT_MESSAGE_START") => after = repeat_text(&shown, "TEXT_MESSAGE_CONTENT", "messageId", &event),
            Some("REASONING_MESSAGE_START") => {
                before = Some(json!({ "type": "STEP_STARTED", "stepName": event["messageId"] }));
                after = repeat_text(&shown, "REASONING_MESSAGE_CONTENT", "messageId", &event);
            }
            Some("REASONING_MESSAGE_END") => {
                after = Some(json!({ "type": "STEP_FINISHED", "stepName": event["messageId"] }));
            }
            Some("TOOL_CALL_RESULT") => mark_failure(&mut event),
            Some("TOOL_CALL_START") => after = repeat_text(&shown, "TOOL_CALL_ARGS", "toolCallId", &event),
            Some("RUN_FINISHED") => {
                let run = event["runId"].clone();
                if let Some(Value::Array(interrupts)) = event.pointer_mut("/outcome/interrupts") {
                    for interrupt in interrupts {
                        add_binding(interrupt, &run);
                    }
                }
            }
            _ => {}
        }
        events.extend(before.into_iter().chain([event]).chain(after).chain(activities));
    }
}

/// An activity of a snapshot as an event of its own.
fn as_event(message: Value) -> Value {
    let Value::Object(mut event) = message else { return message };
    event.shift_remove("role");
    let id = event.shift_remove("id").unwrap_or_default();
    event.extend([("type".to_owned(), "ACTIVITY_SNAPSHOT".into()), ("messageId".to_owned(), id)]);
    Value::Object(event)
}

/// The id of the call or reasoning that an event opens: the client adds both to its newest message.
fn opened_outside_a_message(event: &Value) -> Option<&str> {
    match event["type"].as_str()? {
        "REASONING_MESSAGE_START" => event["messageId"].as_str(),
        "TOOL_CALL_START" => event["toolCallId"].as_str(),
        _ => None,
    }
}

/// Whether a snapshot's message has only a call or reasoning that later events open again.
fn is_reopened(message: &Value, opened: &HashSet<String>) -> bool {
    let is_opened = |id: &Value| id.as_str().is_some_and(|id| opened.contains(id));
    match message["toolCalls"].as_array() {
        Some(calls) => calls.iter().all(|call| is_opened(&call["id"])),
        None => message["role"] == "reasoning" && is_opened(&message["id"]),
    }
}

/// The texts of a message that later events may extend, with their ids.
fn texts(message: &Value) -> Vec<(String, String)> {
    let text = |id: &Value, text: &Value| Some((id.as_str()?.to_owned(), text.as_str()?.to_owned()));
    let calls = message["toolCalls"].as_array().into_iter().flatten();
    let calls = calls.filter_map(|call| text(&call["id"], &call["function"]["arguments"]));
    calls.chain(text(&message["id"], &message["content"])).collect()
}

/// The event that repeats a snapshot's text after an event reopens it.
fn repeat_text(shown: &HashMap<String, String>, class: &str, id: &str, opens: &Value) -> Option<Value> {
    let text = shown.get(opens[id].as_str()?).filter(|text| !text.is_empty())?;
    Some(json!({ "type": class, id: opens[id], "delta": text }))
}

/// Adds to a run's interrupts the binding that lets this client answer them.
#[must_use]
pub fn with_bindings(mut interrupts: Vec<Value>, run: &str) -> Vec<Value> {
    let run = Value::from(run);
    for interrupt in &mut interrupts {
        add_binding(interrupt, &run);
    }
    interrupts
}

fn add_binding(interrupt: &mut Value, run: &Value) {
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

/// Compact JSON with sorted members, as this client hashes it.
///
/// A number that the client formats differently has another hash there. The client then only shows the interrupt.
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

/// Marks the event, or the tool message, of a call that failed or was cancelled.
///
/// The client reads the outcome from its own metadata in an event, and from `error` in a message. It shows the member
/// `error` of an event's content if it is text. The other members of our error stand beside it.
fn mark_failure(result: &mut Value) {
    let state = result.pointer("/metadata/proscenium/state").and_then(CallState::read);
    let (Some(state), Some(content)) = (state, result["content"].as_str()) else { return };
    let mut content = serde_json::from_str::<Map<String, Value>>(content).unwrap_or_default();
    let error = failure_text(content.get("error"), state);
    let members = match content.shift_remove("error") {
        Some(Value::Object(error)) => error,
        _ => Map::new(),
    };
    let mut shown = Map::from_iter([("error".to_owned(), Value::from(error.as_str()))]);
    shown.extend(members.into_iter().filter(|(member, _)| member != "message").chain(content));
    result["content"] = Value::Object(shown).to_string().into();
    match result.get("type") {
        Some(_) => result["metadata"]["tanstack"]["state"] = "output-error".into(),
        None => result["error"] = error.into(),
    }
}

/// Converts a thread's messages into this client's form.
///
/// The result has `parts`, with reasoning and tool results inside their assistant message. `is_live` selects the
/// messages of the run that the client will stream from its start; they are left out, except the user's before the
/// first of the others: the client shows a streamed message that it does not have after those that it has.
#[must_use]
pub fn thread_messages(messages: Vec<Value>, is_live: impl Fn(&Value) -> bool) -> Vec<Value> {
    let result_of = |message: &Value| {
        let (call, mut result) = (message["toolCallId"].as_str()?.to_owned(), message.clone());
        mark_failure(&mut result);
        Some((call, result))
    };
    let results: Map<String, Value> = messages.iter().filter(|message| message["role"] == "tool").filter_map(result_of).collect();
    let (mut all, mut thoughts, mut was_live) = (Vec::<Value>::new(), Vec::new(), false);
    for mut message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if (was_live || role != "user") && is_live(&message) {
            was_live = true;
            continue;
        }
        match role {
            "tool" | "activity" => continue,
            "reasoning" => {
                thoughts.push((message["id"].clone(), thinking_part(&message)));
                continue;
            }
            "assistant" => {
                let thoughts = std::mem::take(&mut thoughts).into_iter().map(|(_, thought)| thought);
                message["parts"] = thoughts.chain(parts(&message, &results)).collect();
            }
            _ => {
                all.extend(thoughts_message(&mut thoughts));
                message["parts"] = parts(&message, &results).into();
            }
        }
        all.push(message);
    }
    all.extend(thoughts_message(&mut thoughts));
    // When a stream starts, the client removes the last message if it is the assistant's. A placeholder protects the
    // real one.
    if was_live && all.last().is_some_and(|last| last["role"] == "assistant") {
        all.push(json!({ "id": LIVE_MESSAGE_ID, "role": "assistant", "parts": [] }));
    }
    all
}

/// The id of the placeholder for a run about to be streamed.
const LIVE_MESSAGE_ID: &str = "agentui-live";

/// Reasoning that no assistant message followed, as one message.
fn thoughts_message(thoughts: &mut Vec<(Value, Value)>) -> Option<Value> {
    let id = thoughts.first()?.0.clone();
    let parts: Vec<_> = std::mem::take(thoughts).into_iter().map(|(_, thought)| thought).collect();
    Some(json!({ "id": id, "role": "assistant", "parts": parts }))
}

fn thinking_part(message: &Value) -> Value {
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
        let mut tool_result = json!({
            "type": "tool-result", "id": result["id"], "toolCallId": id, "content": content, "state": state,
        });
        if !result["error"].is_null() {
            tool_result["error"] = result["error"].clone();
        }
        parts.extend([part, tool_result]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reopened_text_is_repeated_and_a_snapshot_has_activities_beside_it_and_nothing_that_is_open() {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "look", "arguments": "{\"at\":" } });
        let snapshot = json!({ "type": "MESSAGES_SNAPSHOT", "messages": [
            { "id": "m", "role": "assistant", "content": "Hel" },
            { "id": "empty", "role": "assistant", "content": "" },
            { "id": "c", "role": "assistant", "toolCalls": [call] },
            { "id": "progress:c", "role": "activity", "activityType": "tool-call-progress", "content": {} },
            { "id": "reasoning:r", "role": "reasoning", "content": "Wh" },
            { "id": "ended", "role": "assistant", "toolCalls": [{ "id": "ended", "type": "function", "function": { "name": "look", "arguments": "{}" } }] },
            { "id": "reasoning:ended", "role": "reasoning", "content": "Why" },
        ] });
        let opens = [
            json!({ "type": "TEXT_MESSAGE_START", "messageId": "m" }),
            json!({ "type": "TEXT_MESSAGE_START", "messageId": "empty" }),
            json!({ "type": "TOOL_CALL_START", "toolCallId": "c" }),
            json!({ "type": "REASONING_MESSAGE_START", "messageId": "reasoning:r" }),
        ];
        let mut out = Vec::new();
        adapt([&[snapshot][..], &opens].concat(), &mut out);
        let shown: Vec<_> = out[0]["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
        assert_eq!(shown, ["m", "empty", "ended", "reasoning:ended"]);
        let progress = json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "progress:c", "activityType": "tool-call-progress", "content": {} });
        let [text, empty, call, thought] = opens;
        let step = json!({ "type": "STEP_STARTED", "stepName": "reasoning:r" });
        let content = json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hel" });
        let arguments = json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{\"at\":" });
        let thinking_part = json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": "reasoning:r", "delta": "Wh" });
        assert_eq!(out[1..], [progress, text, content, empty, call, arguments, step, thought, thinking_part]);
        let (mut without, alone) = (Vec::new(), json!({ "type": "TEXT_MESSAGE_START", "messageId": "m" }));
        adapt(vec![alone.clone()], &mut without);
        assert_eq!(without, [alone], "only a snapshot drops open texts");
    }

    #[test]
    fn a_failed_call_has_its_error_as_text_in_each_form() {
        for (state, content, error, shown) in [
            (
                "output-error",
                json!({ "error": { "code": "x", "message": "disk full" } }),
                "disk full",
                json!({ "error": "disk full", "code": "x" }),
            ),
            (
                "output-error",
                json!({ "withheld": true }),
                "The tool failed.",
                json!({ "error": "The tool failed.", "withheld": true }),
            ),
            (
                "cancelled",
                json!({ "cancelled": true }),
                "The call was cancelled.",
                json!({ "error": "The call was cancelled.", "cancelled": true }),
            ),
        ] {
            let metadata = json!({ "proscenium": { "state": state } });
            let result =
                json!({ "id": "r", "role": "tool", "toolCallId": "c", "content": content.to_string(), "metadata": metadata });
            let mut live = result.clone();
            live["type"] = "TOOL_CALL_RESULT".into();
            let call = json!({ "id": "m", "role": "assistant", "toolCalls": [{ "id": "c", "function": { "name": "f", "arguments": "{}" } }] });
            let mut out = Vec::new();
            adapt(vec![live, json!({ "type": "MESSAGES_SNAPSHOT", "messages": [result] })], &mut out);
            let shown = Value::from(shown.to_string());
            assert_eq!((&out[0]["content"], &out[0]["metadata"]["tanstack"]["state"]), (&shown, &json!("output-error")));
            assert_eq!((&out[1]["messages"][0]["content"], &out[1]["messages"][0]["error"]), (&shown, &json!(error)));
            let thread = thread_messages(vec![call, result], |_| false);
            let part = &thread[0]["parts"][1];
            assert_eq!(json!([part["state"], part["content"], part["error"]]), json!(["error", shown, error]));
        }
        let done = json!({ "type": "TOOL_CALL_RESULT", "toolCallId": "c", "content": "{\"error\":{}}", "metadata": {} });
        let mut out = Vec::new();
        adapt(vec![done.clone()], &mut out);
        assert_eq!(out, [done]);
    }

    #[test]
    fn each_reasoning_message_is_a_step() {
        let reasoning = |class: &str| json!({ "type": class, "messageId": "reasoning:r" });
        let step = |class: &str| json!({ "type": class, "stepName": "reasoning:r" });
        let [start, end] = ["REASONING_MESSAGE_START", "REASONING_MESSAGE_END"].map(reasoning);
        let mut out = Vec::new();
        adapt(vec![start.clone(), end.clone()], &mut out);
        assert_eq!(out, [step("STEP_STARTED"), start, end, step("STEP_FINISHED")]);
    }

    #[test]
    fn an_interrupt_carries_its_binding_and_the_hash_of_its_answer_schema() {
        let schema = json!({
            "type": "object", "required": ["a"],
            "properties": { "z": { "enum": ["é", null, true] }, "a": { "minimum": 0.5, "maximum": 10 } },
        });
        let interrupt = json!({ "id": "i", "responseSchema": schema, "metadata": { "proscenium": {} } });
        let events_in =
            json!({ "type": "RUN_FINISHED", "runId": "r", "outcome": { "type": "interrupt", "interrupts": [interrupt] } });
        let mut out = Vec::new();
        adapt(vec![events_in], &mut out);
        let metadata = &out[0]["outcome"]["interrupts"][0]["metadata"];
        let binding = json!({
            "v": 1, "kind": "generic", "interruptId": "i", "interruptedRunId": "r", "generation": 0,
            // The value of the client's own `digestInterruptJson`.
            "responseSchemaHash": "sha256:330ba512e883864acd10e35a39d0162f5c2792f9992fb7b63cc65334e2edabd2",
        });
        assert_eq!(*metadata, json!({ "proscenium": {}, BINDING: binding }));
    }

    #[test]
    fn stored_messages_end_before_the_live_run_with_a_placeholder_after_an_answer() {
        let message = |id: &str, role: &str| json!({ "id": id, "role": role, "content": id });
        let thread = || ["u1", "u2"].map(|id| message(id, "user"));
        let [u1, u2] = thread();
        let ids = |messages: Vec<Value>| -> Vec<String> {
            messages.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect()
        };
        let is_live = |message: &Value| message["id"].as_str().is_some_and(|id| id.starts_with("live") || id == "u2");
        let all = || vec![u1.clone(), message("a1", "assistant"), u2.clone(), message("live", "assistant")];
        assert_eq!(ids(thread_messages(all(), |_| false)), ["u1", "a1", "u2", "live"]);
        assert_eq!(ids(thread_messages(all(), is_live)), ["u1", "a1", "u2"]);
        let asked_again = [&all()[..], &[message("live-u3", "user"), message("live-a3", "assistant")]].concat();
        assert_eq!(ids(thread_messages(asked_again, is_live)), ["u1", "a1", "u2"], "a later question follows its answer");
        let unasked = vec![u1.clone(), message("a1", "assistant"), message("live", "assistant")];
        assert_eq!(
            ids(thread_messages(unasked, is_live)),
            ["u1", "a1", LIVE_MESSAGE_ID],
            "the client removes the last answer when the stream starts"
        );
        let thoughts = vec![message("r1", "reasoning"), u1.clone(), message("r2", "reasoning"), message("a1", "assistant")];
        let rest = thread_messages(thoughts, |_| false);
        assert_eq!(ids(rest.clone()), ["r1", "u1", "a1"]);
        assert_eq!(rest[2]["parts"][0], json!({ "type": "thinking", "content": "r2", "stepId": "r2" }));
    }
}

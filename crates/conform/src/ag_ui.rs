//! The state of an AG-UI client.
//!
//! It follows the rules by which `@ag-ui/client` verifies and reduces events: brackets open and close once, a run's
//! lifecycle does not begin inside another, and `MESSAGES_SNAPSHOT` replaces what it does not keep.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A lifecycle of runs.
#[derive(Debug, Default, Clone, PartialEq)]
enum RunState {
    #[default]
    NotStarted,
    Open,
    Over(Value),
}

/// What the next event of a response must be.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Expecting {
    #[default]
    Anything,
    /// The first event after a reconnect: the stream may go on, or begin again.
    First,
    /// The stream has begun again for a client that has a part of it, so a snapshot must replace that part.
    Snapshot,
}

/// The state of an AG-UI client.
#[derive(Debug, Default)]
pub struct AgUiState {
    run: RunState,
    expecting: Expecting,
    messages: BTreeMap<String, Value>,
    /// The ids of the messages in order, without reasoning and activities: snapshots need not place those.
    order: Vec<String>,
    state: Value,
    open: BTreeSet<(&'static str, String)>,
    /// Events that a client passes on, such as CUSTOM.
    passed: Vec<Value>,
}

fn text<'v>(event: &'v Value, member: &str) -> Result<&'v str, String> {
    event.get(member).and_then(Value::as_str).ok_or_else(|| format!("{} has no {member}", event["type"]))
}

impl AgUiState {
    /// Reads an event.
    ///
    /// # Errors
    /// What the client refuses.
    pub fn apply(&mut self, event: &Value) -> Result<(), String> {
        let kind = text(event, "type")?;
        let expecting = std::mem::take(&mut self.expecting);
        match (expecting, kind) {
            // A response may begin with its end.
            (Expecting::First, "RUN_ERROR") => {
                self.open.clear();
                return self.apply_in_run(kind, event);
            }
            (Expecting::First, "RUN_STARTED") if self.run != RunState::NotStarted && !self.is_paused() => {
                self.open.clear();
                (self.run, self.expecting) = (RunState::Open, Expecting::Snapshot);
                return Ok(());
            }
            (Expecting::Snapshot, "MESSAGES_SNAPSHOT") | (Expecting::Anything | Expecting::First, _) => {}
            (Expecting::Snapshot, "STATE_SNAPSHOT") => self.expecting = Expecting::Snapshot,
            (Expecting::Snapshot, _) => {
                return Err(format!("RUN_STARTED begins the lifecycle again, and {kind} follows instead of a snapshot"));
            }
        }
        match (&self.run, kind) {
            (RunState::Open, "RUN_STARTED") => return Err("RUN_STARTED comes while a run is open".into()),
            (_, "RUN_STARTED") => {
                self.run = RunState::Open;
                return Ok(());
            }
            (RunState::NotStarted, kind) if kind != "RUN_ERROR" => return Err(format!("{kind} comes before RUN_STARTED")),
            (RunState::Over(_), kind) => return Err(format!("{kind} comes after the run's end")),
            _ => {}
        }
        self.apply_in_run(kind, event)
    }

    /// Whether the run waits for a decision. The stream goes on after that with another lifecycle.
    fn is_paused(&self) -> bool {
        matches!(&self.run, RunState::Over(end) if end["outcome"]["type"] == "interrupt")
    }

    fn apply_in_run(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        match kind {
            "RUN_FINISHED" => {
                if let Some((what, id)) = self.open.first() {
                    return Err(format!("RUN_FINISHED comes while {what} {id} is open"));
                }
                self.run = RunState::Over(json!({ "outcome": event.get("outcome"), "result": event.get("result") }));
            }
            "RUN_ERROR" => {
                self.open.clear();
                self.run = RunState::Over(json!({ "error": event.get("message"), "code": event.get("code") }));
            }
            "STATE_SNAPSHOT" => self.state = event["snapshot"].clone(),
            "STATE_DELTA" => patch(&mut self.state, &event["delta"], kind)?,
            "MESSAGES_SNAPSHOT" => self.replace_messages(event)?,
            "ACTIVITY_SNAPSHOT" => self.replace_activity(event)?,
            "ACTIVITY_DELTA" => {
                let id = text(event, "messageId")?;
                let activity = self.messages.get_mut(id).ok_or_else(|| format!("ACTIVITY_DELTA names {id}, which is unknown"))?;
                patch(&mut activity["content"], &event["patch"], kind)?;
            }
            "STEP_STARTED" => self.begin("step", text(event, "stepName")?)?,
            "STEP_FINISHED" => self.end("step", text(event, "stepName")?)?,
            "SUBAGENT_STARTED" => self.begin("subagent", text(event, "subagentRunId")?)?,
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => self.end("subagent", text(event, "subagentRunId")?)?,
            "REASONING_START" => self.begin("reasoning span", text(event, "messageId")?)?,
            "REASONING_END" => self.end("reasoning span", text(event, "messageId")?)?,
            _ if kind.starts_with("TOOL_CALL_") => self.apply_call(kind, event)?,
            _ if kind.starts_with("TEXT_MESSAGE_") || kind.starts_with("REASONING_MESSAGE_") => self.apply_text(kind, event)?,
            _ => self.passed.push(without_volatile(event)),
        }
        Ok(())
    }

    fn apply_text(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        let id = text(event, "messageId")?;
        let is_reasoning = kind.starts_with("REASONING_");
        let what = if is_reasoning { "reasoning message" } else { "message" };
        let role = if is_reasoning { "reasoning" } else { event["role"].as_str().unwrap_or("assistant") };
        match kind.rsplit('_').next() {
            Some("START") => {
                self.begin(what, id)?;
                self.message(id, role);
            }
            Some("CONTENT") => {
                self.require(what, id, kind)?;
                append(self.message(id, role), "content", text(event, "delta")?);
            }
            Some("END") => self.end(what, id)?,
            Some("CHUNK") => append(self.message(id, role), "content", event["delta"].as_str().unwrap_or_default()),
            _ => return Err(format!("{kind} is unknown")),
        }
        Ok(())
    }

    fn apply_call(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        let id = text(event, "toolCallId")?;
        match kind {
            "TOOL_CALL_START" => {
                self.begin("tool call", id)?;
                let (parent, name) = (event["parentMessageId"].as_str().unwrap_or(id), text(event, "toolCallName")?);
                if self.call(id).is_none() {
                    let message = self.message(parent, "assistant");
                    let call = json!({ "id": id, "name": name, "arguments": "" });
                    match message.get_mut("toolCalls").and_then(Value::as_array_mut) {
                        Some(calls) => calls.push(call),
                        None => message["toolCalls"] = json!([call]),
                    }
                }
            }
            "TOOL_CALL_ARGS" => {
                self.require("tool call", id, kind)?;
                let delta = text(event, "delta")?;
                append(self.call(id).ok_or_else(|| format!("{kind} names {id}, which is unknown"))?, "arguments", delta);
            }
            "TOOL_CALL_END" => self.end("tool call", id)?,
            "TOOL_CALL_RESULT" => {
                let message = text(event, "messageId")?;
                if self.messages.contains_key(message) {
                    return Err(format!("TOOL_CALL_RESULT {message} comes twice"));
                }
                let result = self.message(message, "tool");
                result["toolCallId"] = id.into();
                result["content"] = event["content"].clone();
            }
            _ => return Err(format!("{kind} is not supported: send TOOL_CALL_START, _ARGS and _END")),
        }
        Ok(())
    }

    fn begin(&mut self, what: &'static str, id: &str) -> Result<(), String> {
        match self.open.insert((what, id.to_owned())) {
            true => Ok(()),
            false => Err(format!("{what} {id} starts while it is open")),
        }
    }

    fn end(&mut self, what: &'static str, id: &str) -> Result<(), String> {
        match self.open.remove(&(what, id.to_owned())) {
            true => Ok(()),
            false => Err(format!("{what} {id} ends while it is not open")),
        }
    }

    fn require(&self, what: &'static str, id: &str, kind: &str) -> Result<(), String> {
        match self.open.contains(&(what, id.to_owned())) {
            true => Ok(()),
            false => Err(format!("{kind} is for {what} {id}, which is not open")),
        }
    }

    /// The message with this id, which is made if it is new.
    fn message(&mut self, id: &str, role: &str) -> &mut Value {
        if !self.messages.contains_key(id) && !is_placed_freely(role) {
            self.order.push(id.to_owned());
        }
        self.messages.entry(id.to_owned()).or_insert_with(|| json!({ "role": role }))
    }

    fn call(&mut self, id: &str) -> Option<&mut Value> {
        let calls = self.messages.values_mut().filter_map(|message| message.get_mut("toolCalls")?.as_array_mut());
        calls.flatten().find(|call| call["id"] == id)
    }

    fn replace_activity(&mut self, event: &Value) -> Result<(), String> {
        let id = text(event, "messageId")?;
        let keeps = event.get("replace") == Some(&Value::Bool(false)) && self.messages.contains_key(id);
        if !keeps {
            let activity = json!({ "role": "activity", "activityType": event["activityType"], "content": event["content"] });
            self.messages.insert(id.to_owned(), activity);
        }
        Ok(())
    }

    fn replace_messages(&mut self, event: &Value) -> Result<(), String> {
        let listed = event["messages"].as_array().ok_or("MESSAGES_SNAPSHOT has no messages")?;
        let has = |role: &str| listed.iter().any(|message| message["role"] == role);
        let (has_reasoning, has_activity) = (has("reasoning"), has("activity"));
        self.messages.retain(|_, message| match message["role"].as_str() {
            Some("reasoning") => !has_reasoning,
            Some("activity") => !has_activity,
            _ => false,
        });
        self.order.clear();
        for message in listed {
            let (id, role) = (text(message, "id")?, text(message, "role")?);
            if !is_placed_freely(role) {
                self.order.push(id.to_owned());
            }
            self.messages.insert(id.to_owned(), reduced(message));
        }
        Ok(())
    }

    /// Begins another response.
    pub const fn reconnect(&mut self) {
        self.expecting = Expecting::First;
    }

    /// Whether the last event ended the run.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.run, RunState::Over(_))
    }

    /// What the client shows.
    #[must_use]
    pub fn document(&self) -> Value {
        let messages: Map<_, _> = self.messages.iter().map(|(id, message)| (id.clone(), without_empty(message))).collect();
        json!({
            "messages": messages,
            "order": self.order,
            "state": self.state,
            "open": self.open.iter().map(|(what, id)| format!("{what} {id}")).collect::<Vec<_>>(),
            "passed": self.passed,
            "run": if let RunState::Over(end) = &self.run { end.clone() } else { Value::Null },
        })
    }
}

/// Whether a message's place among the others does not count: a client shows the result of a call at the call.
const fn is_placed_freely(role: &str) -> bool {
    matches!(role.as_bytes(), b"reasoning" | b"activity" | b"tool")
}

/// A snapshot's message with the members that events give it.
fn reduced(message: &Value) -> Value {
    let mut reduced = Map::new();
    for member in ["role", "content", "toolCallId", "activityType"] {
        if let Some(value) = message.get(member) {
            reduced.insert(member.into(), value.clone());
        }
    }
    if let Some(calls) = message["toolCalls"].as_array() {
        let call = |call: &Value| json!({ "id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"] });
        reduced.insert("toolCalls".into(), calls.iter().map(call).collect());
    }
    reduced.into()
}

/// A message without what a snapshot may leave out.
fn without_empty(message: &Value) -> Value {
    let Value::Object(members) = message else { return message.clone() };
    let is_empty = |value: &Value| value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty);
    members
        .iter()
        .filter(|(_, value)| !is_empty(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect::<Map<_, _>>()
        .into()
}

fn without_volatile(event: &Value) -> Value {
    let mut event = event.clone();
    if let Value::Object(members) = &mut event {
        members.retain(|member, _| !matches!(member.as_str(), "timestamp" | "rawEvent" | "metadata"));
    }
    event
}

fn append(to: &mut Value, member: &str, delta: &str) {
    let before = to[member].as_str().unwrap_or_default();
    to[member] = format!("{before}{delta}").into();
}

fn patch(value: &mut Value, operations: &Value, kind: &str) -> Result<(), String> {
    let patch: json_patch::Patch =
        serde_json::from_value(operations.clone()).map_err(|error| format!("{kind} has no JSON Patch: {error}"))?;
    json_patch::patch(value, &patch).map_err(|error| format!("{kind} does not fit what the client has: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: &[Value]) -> Result<AgUiState, String> {
        let mut state = AgUiState::default();
        events.iter().try_for_each(|event| state.apply(event))?;
        Ok(state)
    }

    fn events() -> Vec<Value> {
        vec![
            json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" }),
            json!({ "type": "TEXT_MESSAGE_START", "messageId": "m" }),
            json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hel" }),
            json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "lo" }),
            json!({ "type": "TEXT_MESSAGE_END", "messageId": "m" }),
            json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" }),
        ]
    }

    #[test]
    fn deltas_give_what_a_snapshot_gives() {
        let snapshot =
            json!({ "type": "MESSAGES_SNAPSHOT", "messages": [{ "id": "m", "role": "assistant", "content": "Hello" }] });
        let [started, .., finished] = &events()[..] else { unreachable!() };
        let by_snapshot = after(&[started.clone(), snapshot.clone(), finished.clone()]).unwrap();
        let whole = after(&events()).unwrap();
        assert_eq!(by_snapshot.document(), whole.document());
        let mut resumed = after(&events()[..3]).unwrap();
        resumed.reconnect();
        [started, &snapshot, finished].into_iter().try_for_each(|event| resumed.apply(event)).unwrap();
        assert_eq!(resumed.document(), whole.document());
        assert!(resumed.is_over());
    }

    #[test]
    fn what_the_client_refuses_is_an_error_that_names_it() {
        let mut all = events();
        all.remove(4);
        assert_eq!(after(&all).err().unwrap(), "RUN_FINISHED comes while message m is open");
        all.insert(2, all[0].clone());
        assert_eq!(after(&all).err().unwrap(), "RUN_STARTED comes while a run is open");
        let mut again = after(&events()[..3]).unwrap();
        again.reconnect();
        again.apply(&events()[0]).unwrap();
        let error = again.apply(&events()[1]).unwrap_err();
        assert!(error.contains("begins the lifecycle again"), "{error}");
    }

    #[test]
    fn a_response_may_begin_with_its_end() {
        let mut resumed = after(&events()[..3]).unwrap();
        resumed.reconnect();
        let failed = json!({ "type": "RUN_ERROR", "message": "The run was erased.", "code": "erased" });
        resumed.apply(&failed).unwrap();
        assert!(resumed.is_over());
        assert_eq!(resumed.document()["open"], json!([]), "an error ends the open text");
        assert_eq!(resumed.document()["run"]["code"], "erased");
        assert!(after(&[failed]).unwrap().is_over(), "also the first response");
    }

    #[test]
    fn the_lifecycle_after_an_interrupt_needs_no_snapshot() {
        let mut paused = events();
        paused[5]["outcome"] = json!({ "type": "interrupt", "interrupts": [{ "id": "a" }] });
        let mut state = after(&paused).unwrap();
        state.reconnect();
        let goes_on = [&events()[0], &json!({ "type": "TEXT_MESSAGE_START", "messageId": "n" })];
        goes_on.into_iter().try_for_each(|event| state.apply(event)).unwrap();
        assert_eq!(state.document()["order"], json!(["m", "n"]));

        let mut finished = after(&events()).unwrap();
        finished.reconnect();
        finished.apply(&events()[0]).unwrap();
        let error = finished.apply(goes_on[1]).unwrap_err();
        assert!(error.contains("follows instead of a snapshot"), "{error}");
    }

    #[test]
    fn the_result_of_a_call_may_stand_anywhere_among_the_messages() {
        let message = |id: &str, role: &str| json!({ "id": id, "role": role, "content": id, "toolCallId": "c" });
        let shown = |messages: &[Value]| {
            let snapshot = json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages });
            after(&[events()[0].clone(), snapshot]).unwrap().document()
        };
        let [first, result, last] = [message("m", "assistant"), message("r", "tool"), message("n", "assistant")];
        assert_eq!(shown(&[first.clone(), result.clone(), last.clone()]), shown(&[first.clone(), last.clone(), result.clone()]));
        assert_ne!(shown(&[first.clone(), result.clone(), last.clone()]), shown(&[last, result, first]));
    }
}

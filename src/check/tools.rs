//! Tool calls: begun, reported, ended once.

use super::Out;
use super::log::{Entry, Log};
use super::things::{actions, calls, is_custom};
use crate::model::EventType;
use serde_json::Value;
use std::collections::HashMap;

/// A call that began ends, unless it waits for somebody: for an answer, or for a result that its frontend has to give.
pub(super) fn never_ended(log: &Log, out: &mut Out<'_>) {
    let actions = actions(log);
    let waits =
        |call: &str| actions.iter().any(|a| a.end.is_none() && a.cut.is_none() && a.begun.word("toolCallId") == Some(call));
    let awaits = |call: &str| {
        let of = |entry: &&Entry| entry.event_type == EventType::ToolProgress && entry.word("toolCallId") == Some(call);
        log.entries.iter().rev().find(of).is_some_and(|last| last.text("awaits").is_some())
    };
    for call in calls(log).iter().filter(|call| call.is_announced && call.end.is_none() && !awaits(&call.id)) {
        if call.cut.is_some() || !waits(&call.id) {
            out.say(call.begun, Some(&call.id), format!("call {} is {}", call.called(), call.left()));
        }
    }
}

/// A call that ends began, or says that it never did.
pub(super) fn end_without_start(log: &Log, out: &mut Out<'_>) {
    for call in calls(log).iter().filter(|call| !call.is_announced) {
        if let Some(end) = call.end.filter(|end| end.get("neverStarted").is_none_or(|never| *never != true)) {
            out.say(end, Some(&call.id), format!("{} of call {} that never started", end.event_type, call.called()));
        }
    }
}

/// A call ends once.
pub(super) fn ended_twice(log: &Log, out: &mut Out<'_>) {
    for call in &calls(log) {
        for again in &call.again {
            let first = call.end.map_or(0, |end| end.sequence);
            let told = format!("{} of call {}, which ended at sequence {first} already", again.event_type, call.called());
            out.say(again, Some(&call.id), told);
        }
    }
}

/// What comes after a call's end may only change its message.
pub(super) fn progress_after_end(log: &Log, out: &mut Out<'_>) {
    for call in &calls(log) {
        for late in call.late.iter().filter(|late| late.event_type != EventType::ToolOutputDelta) {
            let end = call.end.map_or(0, |end| end.sequence);
            out.say(late, Some(&call.id), format!("{} of call {}, which ended at sequence {end}", late.event_type, call.called()));
        }
    }
}

/// What an entry reports of how far a call is: the call, and the fraction.
fn reported(entry: &Entry) -> Option<(&str, &Value)> {
    let is_report = match entry.event_type {
        EventType::ToolProgress => !is_custom(entry),
        EventType::StateSnapshot => entry.text("activityType").is_some() && !is_custom(entry),
        _ => false,
    };
    let content = entry.get("content").and_then(|content| content.get("progress"));
    let progress = entry.get("progress").or(content).filter(|_| is_report)?;
    Some((entry.word("toolCallId").unwrap_or_default(), progress))
}

/// Progress is a fraction.
pub(super) fn progress_range(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        let Some((call, progress)) = reported(entry) else { continue };
        if !progress.as_f64().is_some_and(|fraction| (0.0..=1.0).contains(&fraction)) {
            out.say(entry, Some(call), format!("progress of call {call} is {progress}, not a fraction from 0 to 1"));
        }
    }
}

/// Progress does not go back while a call runs.
pub(super) fn progress_backwards(log: &Log, out: &mut Out<'_>) {
    let mut known: HashMap<&str, f64> = HashMap::new();
    for entry in &log.entries {
        if let (EventType::ToolStarted, Some(call)) = (&entry.event_type, entry.word("toolCallId")) {
            known.remove(call);
        }
        let Some((call, progress)) = reported(entry).filter(|(call, _)| !call.is_empty()) else { continue };
        let Some(progress) = progress.as_f64() else { continue };
        if let Some(before) = known.insert(call, progress).filter(|before| *before > progress) {
            out.say(entry, Some(call), format!("progress of call {call} goes back from {before} to {progress}"));
        }
    }
}

/// A call says which tool it is of.
pub(super) fn without_name(log: &Log, out: &mut Out<'_>) {
    for call in calls(log).iter().filter(|call| call.is_announced && call.name.is_none()) {
        out.say(call.begun, Some(&call.id), format!("tool.started of call {} has no toolName", call.id));
    }
}

/// A result says what came out, or where that is.
pub(super) fn without_output(log: &Log, out: &mut Out<'_>) {
    let results = log.entries.iter().filter(|entry| entry.event_type == EventType::ToolResult && !entry.seen.is_withheld());
    for entry in results {
        // A tool may give null: then it is said.
        let says =
            ["output", "structured", "outputRef", "result", "content"].iter().any(|member| entry.seen.member(member).is_some());
        if !says && entry.seen.refs.is_none() {
            let call = entry.word("toolCallId").unwrap_or_default();
            out.say(entry, Some(call), format!("tool.result of call {call} has neither output nor outputRef"));
        }
    }
}

//! Rules for tool calls: started, reported, ended once.

use super::Findings;
use super::lifecycles::{actions, calls, is_custom};
use super::log::{CheckedLog, Entry};
use crate::model::{EventType, MemberRef};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

/// Requires the end of a started call, unless it waits for a decision or the frontend's result.
pub(super) fn never_ended(log: &CheckedLog, findings: &mut Findings<'_>) {
    let actions = actions(log);
    let waits = |call: &str| {
        actions.iter().any(|a| a.end.is_none() && a.run_end.is_none() && a.first_entry.envelope_text("toolCallId") == Some(call))
    };
    let awaits = |call: &str| {
        let of = |entry: &&Entry| entry.event_type == EventType::ToolProgress && entry.envelope_text("toolCallId") == Some(call);
        log.entries.iter().rev().find(of).is_some_and(|last| last.payload_text("awaits").is_some())
    };
    for call in calls(log).iter().filter(|call| call.has_start && call.end.is_none() && !awaits(&call.id)) {
        if call.run_end.is_some() || !waits(&call.id) {
            findings.report(call.first_entry, Some(&call.id), format!("call {} is {}", call.label(), call.describe_open()));
        }
    }
}

/// Requires the start of a call that ends, or `neverStarted: true`.
pub(super) fn end_without_start(log: &CheckedLog, findings: &mut Findings<'_>) {
    for call in calls(log).iter().filter(|call| !call.has_start) {
        if let Some(end) = call.end.filter(|end| end.get("neverStarted").is_none_or(|never| never != MemberRef::Flag(true))) {
            findings.report(end, Some(&call.id), format!("{} of call {}, which never started", end.event_type, call.label()));
        }
    }
}

/// Requires at most one end per call.
pub(super) fn ended_twice(log: &CheckedLog, findings: &mut Findings<'_>) {
    for call in &calls(log) {
        for end in &call.repeated_ends {
            let first = call.end.map_or(0, |end| end.sequence);
            let message = format!("{} of call {}, which already ended at sequence {first}", end.event_type, call.label());
            findings.report(end, Some(&call.id), message);
        }
    }
}

/// Reports updates after the end of a call; they only change its message.
pub(super) fn progress_after_end(log: &CheckedLog, findings: &mut Findings<'_>) {
    for call in &calls(log) {
        for late in call.late.iter().filter(|late| late.event_type != EventType::ToolOutputDelta) {
            let end = call.end.map_or(0, |end| end.sequence);
            findings.report(
                late,
                Some(&call.id),
                format!("{} of call {}, which ended at sequence {end}", late.event_type, call.label()),
            );
        }
    }
}

/// Returns the call and the progress value that an entry reports.
fn reported_progress(entry: &Entry) -> Option<(&str, Cow<'_, Value>)> {
    let is_report = match entry.event_type {
        EventType::ToolProgress => !is_custom(entry),
        EventType::StateSnapshot => entry.payload_text("activityType").is_some() && !is_custom(entry),
        _ => false,
    };
    let content = entry.get("content").and_then(|content| content.get("progress")).map(MemberRef::from);
    let progress = entry.get("progress").or(content).filter(|_| is_report)?;
    Some((entry.envelope_text("toolCallId").unwrap_or_default(), progress.to_value()))
}

/// Requires progress as a fraction from 0 to 1.
pub(super) fn progress_range(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        let Some((call, progress)) = reported_progress(entry) else { continue };
        if !progress.as_f64().is_some_and(|fraction| (0.0..=1.0).contains(&fraction)) {
            findings.report(entry, Some(call), format!("progress of call {call} is {progress}, not a fraction from 0 to 1"));
        }
    }
}

/// Rejects decreasing progress while a call runs.
pub(super) fn progress_backwards(log: &CheckedLog, findings: &mut Findings<'_>) {
    let mut known: HashMap<&str, f64> = HashMap::new();
    for entry in &log.entries {
        if let (EventType::ToolStarted, Some(call)) = (&entry.event_type, entry.envelope_text("toolCallId")) {
            known.remove(call);
        }
        let Some((call, progress)) = reported_progress(entry).filter(|(call, _)| !call.is_empty()) else { continue };
        let Some(progress) = progress.as_f64() else { continue };
        if let Some(before) = known.insert(call, progress).filter(|before| *before > progress) {
            findings.report(entry, Some(call), format!("progress of call {call} decreases from {before} to {progress}"));
        }
    }
}

/// Requires the tool name of a call.
pub(super) fn without_name(log: &CheckedLog, findings: &mut Findings<'_>) {
    for call in calls(log).iter().filter(|call| call.has_start && call.name.is_none()) {
        findings.report(call.first_entry, Some(&call.id), format!("tool.started of call {} has no toolName", call.id));
    }
}

/// Requires the output of a result, or a reference to it.
pub(super) fn without_output(log: &CheckedLog, findings: &mut Findings<'_>) {
    let results = log.entries.iter().filter(|entry| entry.event_type == EventType::ToolResult && !entry.view.is_withheld());
    for entry in results {
        // A tool may return null, so a null output counts.
        let has_output =
            ["output", "structured", "outputRef", "result", "content"].iter().any(|member| entry.view.member(member).is_some());
        if !has_output && entry.view.refs.is_none() {
            let call = entry.envelope_text("toolCallId").unwrap_or_default();
            findings.report(entry, Some(call), format!("tool.result of call {call} has neither output nor outputRef"));
        }
    }
}

//! Rules for log order and run boundaries.

use super::Findings;
use super::log::{CheckedLog, Entry};
use crate::model::{Audience, EventType, MemberRef};
use crate::source::ledger::{RunState, Status};
use std::collections::HashMap;

/// Requires increasing sequences.
pub(super) fn increasing(log: &CheckedLog, findings: &mut Findings<'_>) {
    for pair in log.entries.windows(2) {
        if pair[1].sequence <= pair[0].sequence {
            findings.report(&pair[1], None, format!("sequence {} follows {}", pair[1].sequence, pair[0].sequence));
        }
    }
}

/// Requires every sequence, unless the audience hides some or compaction removed some.
pub(super) fn gapless(log: &CheckedLog, findings: &mut Findings<'_>) {
    if log.options.audience != Audience::Internal || log.options.is_compacted {
        return;
    }
    let mut expected = 1;
    for entry in &log.entries {
        if entry.sequence > expected {
            let missing = entry.sequence - expected;
            let count = if missing == 1 { "1 envelope is".to_owned() } else { format!("{missing} envelopes are") };
            findings.report(entry, None, format!("{count} missing: expected sequence {expected}, found {}", entry.sequence));
        }
        expected = expected.max(entry.sequence + 1);
    }
}

/// Requires one run per log, and each event once.
pub(super) fn one_run(log: &CheckedLog, findings: &mut Findings<'_>) {
    let run = log.run();
    let mut known: HashMap<&str, u64> = HashMap::new();
    for entry in &log.entries {
        if let (Some(run), Some(other)) = (run, entry.envelope_text("runId").filter(|id| Some(*id) != run)) {
            findings.report(entry, Some(other), format!("the envelope belongs to run {other}, the log to run {run}"));
        }
        let Some(event) = entry.envelope_text("eventId") else { continue };
        match known.get(event) {
            Some(first) => findings.report(entry, Some(event), format!("event {event} already occurs at sequence {first}")),
            None => drop(known.insert(event, entry.sequence)),
        }
    }
}

/// Returns whether the fact is the run's own work.
///
/// Facts about its queue, session, teammates or metrics are not, nor are the words of the user that began it.
fn is_work(entry: &Entry) -> bool {
    use EventType as E;
    let is_of_user = entry.is_in_family("text.") && entry.payload_text("role") == Some("user");
    let is_in_family = || ["text.", "reasoning.", "tool."].iter().any(|family| entry.is_in_family(family));
    !is_of_user && (is_in_family() || matches!(entry.event_type, E::PlanDelta | E::ActionRequired | E::RunFinished))
}

/// Requires `run.started` before the work of the run.
pub(super) fn work_before_start(log: &CheckedLog, findings: &mut Findings<'_>) {
    if log.run().is_none() {
        return;
    }
    let first = log.entries.iter().take_while(|entry| entry.event_type != EventType::RunStarted).find(|entry| is_work(entry));
    if let Some(entry) = first {
        let start = log.entries.iter().find(|entry| entry.event_type == EventType::RunStarted);
        let start = start.map_or_else(|| "the log has none".to_owned(), |start| format!("at sequence {}", start.sequence));
        findings.report(entry, log.run(), format!("{} comes before run.started ({start})", entry.event_type));
    }
}

/// Returns whether the server ended the run for lack of facts; then any fact reopens the run.
fn is_synthetic(entry: &Entry) -> bool {
    entry.get("synthetic") == Some(MemberRef::Flag(true))
}

/// Returns whether the fact is valid at any time and leaves the run's status unchanged.
fn is_aside(entry: &Entry) -> bool {
    entry.is_in_family("diagnostic.") || entry.is_in_family("metric.") || entry.is_in_family("control.")
}

/// Requires at most one end per attempt.
pub(super) fn one_terminal(log: &CheckedLog, findings: &mut Findings<'_>) {
    let mut end: Option<&Entry> = None;
    for entry in &log.entries {
        match end {
            _ if entry.event_type == EventType::RunStarted => end = None,
            Some(first) if is_synthetic(first) && !is_aside(entry) => end = Some(entry).filter(|entry| entry.view.ends_run()),
            Some(first) if entry.view.ends_run() => {
                let message = format!("{} comes after {} at sequence {}", entry.event_type, first.event_type, first.sequence);
                findings.report(entry, log.run(), message);
            }
            None if entry.view.ends_run() => end = Some(entry),
            _ => {}
        }
    }
}

/// Rejects work after the end of the run; reports one finding per end.
pub(super) fn work_after_end(log: &CheckedLog, findings: &mut Findings<'_>) {
    let mut end: Option<&Entry> = None;
    let mut late: Vec<&Entry> = Vec::new();
    let mut report = |end: Option<&Entry>, late: &mut Vec<&Entry>| {
        if let (Some(end), Some(first)) = (end, late.first()) {
            let more = match late.len() - 1 {
                0 => String::new(),
                1 => ", and 1 more fact".to_owned(),
                more => format!(", and {more} more facts"),
            };
            findings.report(
                first,
                log.run(),
                format!("{} comes after {} at sequence {}{more}", first.event_type, end.event_type, end.sequence),
            );
        }
        late.clear();
    };
    for entry in &log.entries {
        let reopens = entry.event_type == EventType::RunStarted || end.is_some_and(is_synthetic) && !is_aside(entry);
        if reopens {
            report(end.take(), &mut late);
        }
        if entry.view.ends_run() {
            end = end.or(Some(entry));
        } else if end.is_some() && (is_work(entry) || entry.event_type == EventType::RunStatus) {
            late.push(entry);
        }
    }
    report(end, &mut late);
}

/// Returns each envelope with the run's state before and after it.
fn states(log: &CheckedLog) -> impl Iterator<Item = (&Entry, RunState, RunState)> {
    let mut state = RunState::default();
    log.entries.iter().map(move |entry| {
        let before = state.clone();
        state.apply(&entry.event_type, &entry.view.phase, entry.view.ids.action.as_ref(), &entry.view.payload);
        (entry, before, state.clone())
    })
}

/// Requires an end, unless the run waits.
pub(super) fn never_ended(log: &CheckedLog, findings: &mut Findings<'_>) {
    let Some((entry, _, state)) = states(log).last().filter(|_| log.run().is_some()) else { return };
    if matches!(state.status, Status::Accepted | Status::Running) {
        let message = format!("the log ends with {} while the run is {}", entry.event_type, state.status.as_str());
        findings.report(entry, log.run(), message);
    }
}

/// Rejects `run.started` while an attempt is active; a waiting run may start again.
pub(super) fn start_inside_run(log: &CheckedLog, findings: &mut Findings<'_>) {
    for (entry, before, _) in states(log) {
        if entry.event_type == EventType::RunStarted
            && matches!(before.status, Status::Accepted | Status::Running)
            && before.attempt > 0
            && !before.is_continued_by(&entry.view.payload)
        {
            let message = format!("run.started comes while attempt {} is {}", before.attempt, before.status.as_str());
            findings.report(entry, log.run(), message);
        }
    }
}

//! The order of the log and the boundaries of its run: what comes first, what ends, and what comes after.

use super::Out;
use super::log::{Entry, Log};
use crate::model::{Audience, EventType};
use crate::source::ledger::{RunState, Status};
use std::collections::HashMap;

/// Sequences grow.
pub(super) fn increasing(log: &Log, out: &mut Out<'_>) {
    for pair in log.entries.windows(2) {
        if pair[1].sequence <= pair[0].sequence {
            out.say(&pair[1], None, format!("sequence {} comes after {}", pair[1].sequence, pair[0].sequence));
        }
    }
}

/// No sequence is missing, where none is hidden and none was taken out.
pub(super) fn gapless(log: &Log, out: &mut Out<'_>) {
    if log.reading.audience != Audience::Internal || log.reading.is_compacted {
        return;
    }
    let mut expected = 1;
    for entry in &log.entries {
        if entry.sequence > expected {
            let missing = entry.sequence - expected;
            let what = if missing == 1 { "one envelope is".to_owned() } else { format!("{missing} envelopes are") };
            out.say(entry, None, format!("{what} missing: {expected} comes next, this is {}", entry.sequence));
        }
        expected = expected.max(entry.sequence + 1);
    }
}

/// Each envelope is one event of its own, and all are of one run.
pub(super) fn one_run(log: &Log, out: &mut Out<'_>) {
    let run = log.run();
    let mut known: HashMap<&str, u64> = HashMap::new();
    for entry in &log.entries {
        if let (Some(run), Some(other)) = (run, entry.word("runId").filter(|id| Some(*id) != run)) {
            out.say(entry, Some(other), format!("this is of run {other}, and the log of run {run}"));
        }
        let Some(event) = entry.word("eventId") else { continue };
        match known.get(event) {
            Some(first) => out.say(entry, Some(event), format!("event {event} was at sequence {first} already")),
            None => drop(known.insert(event, entry.sequence)),
        }
    }
}

/// Whether the fact is the run's own work, and not something around it: its queue, its session, its teammates, its figures.
fn is_work(entry: &Entry) -> bool {
    use EventType as E;
    ["text.", "reasoning.", "tool."].iter().any(|family| entry.is_of(family))
        || matches!(entry.event_type, E::PlanDelta | E::ActionRequired | E::RunFinished)
}

/// The run's start comes before its work.
pub(super) fn work_before_start(log: &Log, out: &mut Out<'_>) {
    if log.run().is_none() {
        return;
    }
    let first = log.entries.iter().take_while(|entry| entry.event_type != EventType::RunStarted).find(|entry| is_work(entry));
    if let Some(entry) = first {
        let start = log.entries.iter().find(|entry| entry.event_type == EventType::RunStarted);
        let start = start.map_or_else(|| "never comes".to_owned(), |start| format!("comes at sequence {}", start.sequence));
        out.say(entry, log.run(), format!("{} comes before run.started, which {start}", entry.event_type));
    }
}

/// Whether the server ended the run because nothing came: any fact reopens it.
fn is_synthetic(entry: &Entry) -> bool {
    entry.get("synthetic").is_some_and(|synthetic| *synthetic == true)
}

/// Whether a fact can come at any time and changes nothing of how the run stands.
fn is_aside(entry: &Entry) -> bool {
    entry.is_of("diagnostic.") || entry.is_of("metric.") || entry.is_of("control.")
}

/// An attempt ends once.
pub(super) fn one_terminal(log: &Log, out: &mut Out<'_>) {
    let mut end: Option<&Entry> = None;
    for entry in &log.entries {
        match end {
            _ if entry.event_type == EventType::RunStarted => end = None,
            Some(first) if is_synthetic(first) && !is_aside(entry) => end = Some(entry).filter(|entry| entry.seen.ends_run()),
            Some(first) if entry.seen.ends_run() => {
                let told = format!("{} comes after {} at sequence {}", entry.event_type, first.event_type, first.sequence);
                out.say(entry, log.run(), told);
            }
            None if entry.seen.ends_run() => end = Some(entry),
            _ => {}
        }
    }
}

/// Nothing of the run's work comes after its end. One finding an end.
pub(super) fn work_after_end(log: &Log, out: &mut Out<'_>) {
    let mut end: Option<&Entry> = None;
    let mut late: Vec<&Entry> = Vec::new();
    let mut tell = |end: Option<&Entry>, late: &mut Vec<&Entry>| {
        if let (Some(end), Some(first)) = (end, late.first()) {
            let more = if late.len() > 1 { format!(", and {} more facts", late.len() - 1) } else { String::new() };
            out.say(first, log.run(), format!("{} comes after {} at sequence {}{more}", first.event_type, end.event_type, end.sequence));
        }
        late.clear();
    };
    for entry in &log.entries {
        let reopens = entry.event_type == EventType::RunStarted || end.is_some_and(is_synthetic) && !is_aside(entry);
        if reopens {
            tell(end.take(), &mut late);
        }
        if entry.seen.ends_run() {
            end = end.or(Some(entry));
        } else if end.is_some() && (is_work(entry) || entry.event_type == EventType::RunStatus) {
            late.push(entry);
        }
    }
    tell(end, &mut late);
}

/// How the run stands after each envelope.
fn states(log: &Log) -> impl Iterator<Item = (&Entry, RunState, RunState)> {
    let mut state = RunState::default();
    log.entries.iter().map(move |entry| {
        let before = state.clone();
        state.apply(&entry.event_type, &entry.seen.phase, entry.seen.ids.action.as_ref(), &entry.seen.payload);
        (entry, before, state.clone())
    })
}

/// A run that is not waiting for anybody ends.
pub(super) fn never_ended(log: &Log, out: &mut Out<'_>) {
    let Some((entry, _, state)) = states(log).last().filter(|_| log.run().is_some()) else { return };
    if matches!(state.status, Status::Accepted | Status::Running) {
        let told = format!("the log ends with {} while the run is {}", entry.event_type, state.status.as_str());
        out.say(entry, log.run(), told);
    }
}

/// A run starts again only after its end, or where it waits.
pub(super) fn start_inside_run(log: &Log, out: &mut Out<'_>) {
    for (entry, before, _) in states(log) {
        if entry.event_type == EventType::RunStarted
            && matches!(before.status, Status::Accepted | Status::Running)
            && before.attempt > 0
        {
            let told = format!("run.started comes while attempt {} is {}", before.attempt, before.status.as_str());
            out.say(entry, log.run(), told);
        }
    }
}

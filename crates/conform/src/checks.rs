//! The checks.

use crate::transcript::{parse, shortened, type_of};
use crate::{ClientState, ResumeDialect, StreamEnd, StreamEvent, Transcript, first_difference};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

/// What a driver proves of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The whole stream is one that a client of its dialect accepts, up to the end of the run.
    Whole,
    /// Each event has an id, and none has that of another.
    Ids,
    /// A client that is cut at any byte resumes after its last whole event.
    Bytes,
    /// A second reader gets the same.
    TwoReaders,
    /// A reader that falls behind gets the same.
    LaggingReader,
    /// A reader that comes back after the end of the run gets the rest.
    EndWhileAway,
    /// For each k, the first k events and the rest after them are the whole.
    Resume,
    /// The same for each k within the arguments of a tool call.
    ToolArguments,
    /// The same where the connection is cut for real.
    Reconnect,
}

impl Check {
    /// All checks, in their order.
    pub const ALL: [Self; 9] = [
        Self::Whole,
        Self::Ids,
        Self::Bytes,
        Self::TwoReaders,
        Self::LaggingReader,
        Self::EndWhileAway,
        Self::Resume,
        Self::ToolArguments,
        Self::Reconnect,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Ids => "ids",
            Self::Bytes => "bytes",
            Self::TwoReaders => "two-readers",
            Self::LaggingReader => "lagging-reader",
            Self::EndWhileAway => "end-while-away",
            Self::Resume => "resume",
            Self::ToolArguments => "tool-arguments",
            Self::Reconnect => "reconnect",
        }
    }
}

/// Where a server breaks the invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub check: Check,
    /// The number of events that the client had. `None`: it is about no cut.
    pub k: Option<usize>,
    /// The id after which the client resumed, or that of the event.
    pub id: Option<String>,
    /// What is different.
    pub difference: String,
}

impl Fault {
    fn new(check: Check, k: Option<usize>, id: Option<&str>, difference: impl Into<String>) -> Self {
        Self { check, k, id: id.map(str::to_owned), difference: difference.into() }
    }
}

/// Checks a whole stream: its grammar, its end and its ids.
#[must_use]
pub fn whole(dialect: ResumeDialect, whole: &Transcript) -> Vec<Fault> {
    let mut faults: Vec<_> = grammar(dialect, whole, Check::Whole).err().into_iter().collect();
    if dialect == ResumeDialect::AgUi {
        faults.extend(ids(whole));
    }
    faults
}

/// The document of a whole stream, or why a client does not get to its end.
fn grammar(dialect: ResumeDialect, transcript: &Transcript, check: Check) -> Result<serde_json::Value, Fault> {
    let mut state = ClientState::new(dialect);
    for (k, event) in transcript.events.iter().enumerate() {
        let applied = parse(event).and_then(|event| state.apply(&event));
        applied.map_err(|why| Fault::new(check, Some(k), event.id.as_deref(), why))?;
    }
    let count = transcript.events.len();
    let end = match &transcript.end {
        StreamEnd::Failed(why) => Some(why.clone()),
        StreamEnd::Complete if !state.is_over() => Some("the response ends, and the run has not ended".to_owned()),
        StreamEnd::Complete => None,
    };
    end.map_or_else(|| Ok(state.document()), |why| Err(Fault::new(check, Some(count), transcript.id_at(count), why)))
}

fn ids(whole: &Transcript) -> Option<Fault> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    whole.events.iter().enumerate().find_map(|(k, event)| {
        let Some(id) = event.id.as_deref().filter(|id| !id.is_empty()) else {
            let why = format!("event {k}, {}, has no id", type_of(event));
            return Some(Fault::new(Check::Ids, Some(k), None, why));
        };
        let first = seen.insert(id, k)?;
        Some(Fault::new(Check::Ids, Some(k), Some(id), format!("event {k} has the id of event {first}")))
    })
}

/// Checks that a reader of the same stream has the same state at the end.
#[must_use]
pub fn duplicate(dialect: ResumeDialect, whole: &Transcript, other: &Transcript, check: Check) -> Option<Fault> {
    let expected = grammar(dialect, whole, Check::Whole).ok()?;
    match grammar(dialect, other, check) {
        Err(fault) => Some(fault),
        Ok(found) => first_difference(&expected, &found).map(|difference| Fault::new(check, None, None, difference)),
    }
}

/// Checks that the first `k` events of a stream and what a client got after them are the whole.
#[must_use]
pub fn resumed(dialect: ResumeDialect, whole: &Transcript, k: usize, rest: &Transcript, check: Check) -> Option<Fault> {
    let id = whole.id_at(k);
    let fault = |why: String| Some(Fault::new(check, Some(k), id, why));
    if let StreamEnd::Failed(why) = &rest.end {
        return fault(why.clone());
    }
    let begins_again = rest.events.first().is_some_and(|first| matches!(&*type_of(first), "RUN_STARTED" | "start"));
    let has_ids = whole.events.iter().any(|event| event.id.is_some());
    let wrong = match (begins_again, has_ids) {
        (true, _) => None,
        (false, true) => wrong_id(whole, k, rest),
        (false, false) => wrong_chunk(whole, k, rest),
    };
    if let Some(why) = wrong {
        return fault(why);
    }
    let expected = grammar(dialect, whole, Check::Whole).ok()?;
    let mut state = ClientState::new(dialect);
    for event in &whole.events[..k] {
        let applied = parse(event).and_then(|event| state.apply(&event));
        applied.ok()?;
    }
    state.reconnect();
    for (n, event) in rest.events.iter().enumerate() {
        if let Err(why) = parse(event).and_then(|event| state.apply(&event)) {
            return fault(format!("event {n} of the rest: {why}"));
        }
    }
    if let Some(difference) = first_difference(&expected, &state.document()) {
        return fault(format!("prefix({k}) + resume({k}) is not the whole: {difference}"));
    }
    None
}

/// An id of a continuation that is not one of the events that the client lacks, in their order.
fn wrong_id(whole: &Transcript, k: usize, rest: &Transcript) -> Option<String> {
    let place = |id: &str| whole.events.iter().position(|event| event.id.as_deref() == Some(id));
    let mut last = None;
    for (n, event) in rest.events.iter().enumerate() {
        let Some(id) = event.id.as_deref() else { return Some(format!("event {n} of the rest, {}, has no id", type_of(event))) };
        match place(id) {
            None => return Some(format!("event {n} of the rest has the id {id}, which the whole stream does not have")),
            Some(at) if at < k => {
                return Some(format!("event {n} of the rest has the id {id}, which the client had as event {at}"));
            }
            Some(at) if last >= Some(at) => return Some(format!("event {n} of the rest has the id {id} again, or out of order")),
            at => last = at,
        }
    }
    None
}

/// The first chunk of a counted continuation that differs.
fn wrong_chunk(whole: &Transcript, k: usize, rest: &Transcript) -> Option<String> {
    let missing = &whole.events[k..];
    let found = |event: Option<&StreamEvent>| event.map_or_else(|| "nothing".to_owned(), |event| shortened(&event.data));
    let is_same = |one: &StreamEvent, other: &StreamEvent| parse(one).ok() == parse(other).ok();
    // A client that has all chunks is answered with one more `finish`.
    if missing.is_empty() && rest.events.iter().all(|event| type_of(event) == "finish") {
        return None;
    }
    (0..missing.len().max(rest.events.len())).find_map(|n| match (missing.get(n), rest.events.get(n)) {
        (Some(one), Some(other)) if is_same(one, other) => None,
        (expected, other) => Some(format!("chunk {} is {} instead of {}", k + n, found(other), found(expected))),
    })
}

/// Checks that a client that is cut at these bytes has a prefix of the events, and the id of its last one.
///
/// `read` parses the bytes of a response: its events, and the id after which the client would resume.
#[must_use]
pub fn bytes(
    whole: &Transcript,
    body: &[u8],
    cuts: &[usize],
    read: impl Fn(&[u8]) -> (Vec<StreamEvent>, Option<String>),
) -> Option<Fault> {
    cuts.iter().find_map(|cut| {
        let (events, id) = read(&body[..*cut]);
        let k = events.len();
        if whole.events.get(..k) != Some(&events[..]) {
            let why = format!("a client that is cut after {cut} bytes has {k} events that do not begin the stream");
            return Some(Fault::new(Check::Bytes, Some(k), id.as_deref(), why));
        }
        let expected = whole.id_at(k);
        (id.as_deref().filter(|id| !id.is_empty()) != expected).then(|| {
            let why = format!(
                "a client that is cut after {cut} bytes has {k} events and resumes after {}, which is not the id of its last event, {}",
                id.as_deref().unwrap_or("no id"),
                expected.unwrap_or("no id")
            );
            Fault::new(Check::Bytes, Some(k), id.as_deref(), why)
        })
    })
}

/// The cuts within the arguments of tool calls: a client there has begun a call, and lacks a part of it.
#[must_use]
pub fn tool_cuts(dialect: ResumeDialect, whole: &Transcript) -> BTreeSet<usize> {
    let (begins, ends): (&str, &[&str]) = match dialect {
        ResumeDialect::AgUi => ("TOOL_CALL_START", &["TOOL_CALL_END"]),
        ResumeDialect::AiSdk => ("tool-input-start", &["tool-input-available", "tool-input-error"]),
    };
    let (mut open, mut cuts) = (BTreeSet::new(), BTreeSet::new());
    for (n, event) in whole.events.iter().enumerate() {
        let Ok(event) = parse(event) else { continue };
        let (kind, call) = (event["type"].as_str().unwrap_or_default(), event["toolCallId"].as_str().unwrap_or_default());
        if kind == begins {
            open.insert(call.to_owned());
        } else if ends.contains(&kind) {
            open.remove(call);
        }
        if !open.is_empty() {
            cuts.insert(n + 1);
        }
    }
    cuts
}

/// At most `max` numbers of a range: all of them, or a sample at equal distances, with both ends.
#[must_use]
pub fn sample(range: RangeInclusive<usize>, max: usize) -> Vec<usize> {
    let (from, to) = range.into_inner();
    let count = to.saturating_sub(from) + 1;
    if count <= max || max < 2 {
        return (from..=to).take(max.max(1)).collect();
    }
    (0..max).map(|n| from + n * (count - 1) / (max - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn transcript(events: &[(&str, serde_json::Value)]) -> Transcript {
        let event = |(id, data): &(&str, serde_json::Value)| StreamEvent {
            id: Some((*id).to_owned()).filter(|id| !id.is_empty()),
            data: data.to_string(),
        };
        Transcript { events: events.iter().map(event).collect(), end: StreamEnd::Complete }
    }

    fn run() -> Transcript {
        transcript(&[
            ("1", json!({ "type": "RUN_STARTED" })),
            ("2", json!({ "type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "ls" })),
            ("3", json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{\"a\":" })),
            ("4", json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "1}" })),
            ("5", json!({ "type": "TOOL_CALL_END", "toolCallId": "c" })),
            ("6", json!({ "type": "RUN_FINISHED" })),
        ])
    }

    fn rest(k: usize) -> Transcript {
        Transcript { events: run().events.split_off(k), end: StreamEnd::Complete }
    }

    fn fault(k: usize, change: impl Fn(&mut Transcript)) -> Option<Fault> {
        let mut rest = rest(k);
        change(&mut rest);
        resumed(ResumeDialect::AgUi, &run(), k, &rest, Check::Resume)
    }

    #[test]
    fn the_rest_of_a_stream_and_its_prefix_are_the_whole() {
        assert_eq!(whole(ResumeDialect::AgUi, &run()), []);
        for k in 0..=6 {
            assert_eq!(fault(k, |_| {}), None, "{k}");
        }
        assert_eq!(tool_cuts(ResumeDialect::AgUi, &run()), BTreeSet::from([2, 3, 4]));
    }

    #[test]
    fn a_rest_with_a_fault_is_named_with_its_cut_and_its_id() {
        let named = |k, change: &dyn Fn(&mut Transcript)| {
            let fault = fault(k, change).expect("it is found");
            assert_eq!((fault.k, fault.id), (Some(k), run().id_at(k).map(str::to_owned)));
            fault.difference
        };
        let lost = named(2, &|rest| drop(rest.events.remove(0)));
        assert!(lost.contains("/messages/c/toolCalls/0/arguments"), "{lost}");
        assert!(named(3, &|rest| rest.events.insert(0, run().events[2].clone())).contains("had as event 2"));
        assert!(named(3, &|rest| drop(rest.events.pop())).contains("at /run"));
        assert!(named(3, &|rest| rest.events[0].id = Some("7".into())).contains("does not have"));
        assert!(named(3, &|rest| rest.events.insert(1, rest.events[0].clone())).contains("again"));
        assert!(named(3, &|rest| rest.events.splice(0..0, [run().events[0].clone()]).for_each(drop)).contains("lifecycle again"));
        assert!(named(3, &|rest| rest.end = StreamEnd::Failed("status 500".into())).contains("500"));
    }

    #[test]
    fn a_counted_rest_is_compared_chunk_by_chunk() {
        let chunks = [json!({ "type": "start" }), json!({ "type": "text-start", "id": "a" }), json!({ "type": "finish" })];
        let whole = transcript(&chunks.map(|chunk| ("", chunk)));
        let of = |range: std::ops::Range<usize>| Transcript { events: whole.events[range].to_vec(), end: StreamEnd::Complete };
        let check =
            |k, rest: &Transcript| resumed(ResumeDialect::AiSdk, &whole, k, rest, Check::Resume).map(|fault| fault.difference);
        assert_eq!(
            [check(0, &of(0..3)), check(1, &of(1..3)), check(3, &of(2..3)), check(1, &of(0..3))],
            [None, None, None, None]
        );
        assert_eq!(check(1, &of(2..3)).unwrap(), r#"chunk 1 is {"type":"finish"} instead of {"type":"text-start","id":"a"}"#);
    }

    #[test]
    fn an_id_without_an_event_moves_a_client_past_what_it_has() {
        let whole = run();
        let read = |bytes: &[u8]| {
            let events = whole.events[..bytes.len() / 2].to_vec();
            let id = if bytes.len() == 5 { Some("3".to_owned()) } else { events.last().and_then(|last| last.id.clone()) };
            (events, id)
        };
        let body = [0; 12];
        assert_eq!(bytes(&whole, &body, &[0, 1, 2, 3, 4, 12], read), None);
        let fault = bytes(&whole, &body, &[4, 5], read).unwrap();
        assert!(fault.difference.contains("after 5 bytes has 2 events and resumes after 3"), "{fault:?}");
    }

    #[test]
    fn a_sample_has_both_ends() {
        assert_eq!(sample(0..=3, 10), [0, 1, 2, 3]);
        assert_eq!(sample(0..=100, 5), [0, 25, 50, 75, 100]);
        assert_eq!(sample(7..=7, 5), [7]);
    }
}

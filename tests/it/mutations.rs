//! One run in many forms: what a recording says does not depend on its cuts, its ids, or the order of what may overtake.
//!
//! Each row of [`MUTATIONS`] changes the facts of a recording without changing what they say. The readers of every face
//! must end with the same texts, calls and results as with the plain recording.

use crate::harness::{FOLDERS, fact, part_of, recordings, to_ndjson};
use crate::projection::{Pipeline, block_on};
use crate::{format_ag_ui, format_ai_sdk};
use proscenium::encode::frames::ActivityView;
use proscenium::ingest::Facts;
use proscenium::log::LogId;
use proscenium::log::row::Row;
use proscenium::model::Audience;
use proscenium::projection::View;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The number of parts of the recordings that the gate tries in turn.
const PARTS: usize = 8;

/// A recording with more facts takes long.
const FACTS_MAX: usize = 400;

struct Recording {
    source: &'static str,
    name: String,
    facts: Vec<Value>,
}

/// Changes the facts of a recording. `None`: the recording has nothing to change in this way.
type Mutation = fn(&Recording) -> Option<Vec<Value>>;

const MUTATIONS: &[(&str, Mutation)] = &[
    ("texts in smaller pieces", |recording| cut_texts(recording, usize::MAX, "", "")),
    ("texts with a pair of halves in two pieces", |recording| cut_texts(recording, usize::MAX, FIRST_HALF, SECOND_HALF)),
    ("a long text", |recording| cut_texts(recording, 1, LONG, "")),
    ("ids that are too long", |recording| rename_calls(recording, |_, id| format!("{id}{}", "y".repeat(300)))),
    ("ids with control characters and spaces at the edges", |recording| rename_calls(recording, |_, id| format!(" {id}\n "))),
    ("one id for all calls, one after the other", |recording| {
        has_separate_calls(recording).then(|| rename_calls(recording, |_, _| "call_0".to_owned()))?
    }),
    ("no id for the only call", |recording| {
        (call_ids(recording).len() == 1).then(|| rename_calls(recording, |_, _| String::new()))?
    }),
    ("results before their calls", results_first),
];

/// Stand for the escapes of the halves of 👋 until the facts are text.
const FIRST_HALF: &str = "\u{f0000}";
const SECOND_HALF: &str = "\u{f0001}";
const PAIR: &str = "👋";

/// A text that storage does not keep in an envelope: 100 KiB.
const LONG: &str = match std::str::from_utf8(&[LONG_BYTE; 100 * 1024]) {
    Ok(text) => text,
    Err(_) => panic!("it is ASCII"),
};
const LONG_BYTE: u8 = b'\x16';

/// What a reader of a face has: texts and thoughts without the borders of their parts, and the calls.
#[derive(Debug, PartialEq)]
struct Shown {
    texts: String,
    calls: Vec<String>,
}

impl Shown {
    fn new(texts: &str, calls: impl IntoIterator<Item = Value>) -> Self {
        let mut calls: Vec<String> = calls.into_iter().map(|call| call.to_string()).collect();
        calls.sort();
        Self { texts: texts.replace(PAIR, "").replace(char::from(LONG_BYTE), ""), calls }
    }
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}

fn joined(chunks: Option<&Value>) -> String {
    chunks.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What native readers have.
fn native(log: &LogId, rows: &[Row], audience: Audience) -> Shown {
    let mut view = View::new(log, audience);
    for row in rows {
        view.fold(row.sequence(), row.view(audience));
    }
    let (mut texts, mut calls) = (String::new(), Vec::new());
    for activity in view.activities().iter().map(ActivityView::from) {
        let get = |member: &str| activity.content.get(member).cloned().unwrap_or_default();
        match &*activity.kind {
            "message" => texts.extend(get("parts").as_array().into_iter().flatten().map(|part| joined(part.get("text")))),
            "reasoning" => texts.push_str(&joined(Some(&get("text")))),
            "tool-call-progress" => {
                let input = activity.content.get("input").cloned().unwrap_or_else(|| joined(Some(&get("input_text"))).into());
                calls.push(json!([get("tool_name"), input, get("state"), get("output"), get("error"), get("withheld")]));
            }
            _ => {}
        }
    }
    Shown::new(&texts, calls)
}

/// What an AG-UI client has that reads live.
fn ag_ui(log: &LogId, rows: &[Row], audience: Audience) -> Shown {
    let messages = format_ag_ui::read_live(log, rows, audience);
    let said = messages.iter().filter(|message| ["assistant", "user", "reasoning"].map(Value::from).contains(&message["role"]));
    let texts: String = said.map(|message| text(message, "content")).collect();
    let results = |id: &Value| -> Vec<_> {
        messages.iter().filter(|message| message["toolCallId"] == *id).map(|result| result["content"].clone()).collect()
    };
    let calls = messages.iter().flat_map(|message| message["toolCalls"].as_array().into_iter().flatten());
    Shown::new(&texts, calls.map(|call| json!([call["function"]["name"], call["function"]["arguments"], results(&call["id"])])))
}

/// What a client of the AI SDK has that reads live.
fn ai_sdk(log: &LogId, rows: &[Row], audience: Audience) -> Shown {
    let message = format_ai_sdk::read_live(log, rows, audience);
    let parts = message["parts"].as_array().cloned().unwrap_or_default();
    let texts = parts.iter().filter(|part| part["type"] == "text" || part["type"] == "reasoning");
    let texts: String = texts.map(|part| text(part, "text")).collect();
    let calls = parts.iter().filter(|part| part.get("toolCallId").is_some());
    let members = ["toolName", "state", "input", "output", "errorText"];
    Shown::new(&texts, calls.map(|part| members.iter().map(|member| part.get(*member).cloned().unwrap_or_default()).collect()))
}

// ── mutations ──

/// Members that name a call in any vocabulary.
const CALL_MEMBERS: &[&str] = &["toolCallId", "tool_call_id", "call_id", "tool_use_id", "target_id"];

/// Whether the member `id` of this object names a call.
fn is_call(object: &Value) -> bool {
    let starts = |member: &str, with: &str| object[member].as_str().is_some_and(|text| text.starts_with(with));
    starts("event_type", "tool_call_")
        || starts("type", "tool_use")
        || object.get("args").is_some() && object.get("name").is_some()
}

fn collect_calls(value: &Value, ids: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_calls(item, ids)),
        Value::Object(members) => {
            let named = CALL_MEMBERS.iter().filter_map(|member| members.get(*member));
            let named = named.chain(members.get("id").filter(|_| is_call(value)));
            ids.extend(named.filter_map(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned));
            members.values().for_each(|value| collect_calls(value, ids));
        }
        _ => {}
    }
}

fn call_ids(recording: &Recording) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    recording.facts.iter().for_each(|fact| collect_calls(fact, &mut ids));
    ids
}

/// Replaces the ids of calls wherever they stand alone.
fn rename_calls(recording: &Recording, name: impl Fn(usize, &str) -> String) -> Option<Vec<Value>> {
    fn rename(value: &mut Value, names: &BTreeMap<String, String>) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
            Value::Object(members) => {
                // What this tool returns is a run of its own.
                let is_run = |value: &Value| value.get("parts").is_some();
                members.values_mut().filter(|value| !is_run(value)).for_each(|value| rename(value, names));
            }
            Value::String(text) => *text = names.get(text).cloned().unwrap_or_else(|| std::mem::take(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let ids = call_ids(recording);
    // Ids of nested calls contain those of their parents.
    if ids.is_empty() || ids.iter().any(|id| id.contains('#')) {
        return None;
    }
    let names = ids.into_iter().enumerate().map(|(n, id)| (id.clone(), name(n, &id)));
    // LangGraph's namespaces are of calls.
    let names = names.flat_map(|(id, name)| [(format!("tools:{id}"), format!("tools:{name}")), (id, name)]).collect();
    let mut facts = recording.facts.clone();
    for fact in &mut facts {
        rename(fact, &names);
    }
    Some(facts)
}

/// Whether each call of the recording ends before the next begins, and all have ids that start with the call.
fn has_separate_calls(recording: &Recording) -> bool {
    let (_, rows) = block_on(async { Pipeline::new().rows(&[(recording.source, &recording.facts)]).await });
    let (mut open, mut ended): (Option<String>, BTreeSet<String>) = (None, BTreeSet::new());
    for row in rows {
        let envelope: Value = serde_json::from_slice(row.view(Audience::Internal).unwrap_or(b"{}")).unwrap();
        let Some(call) = envelope["toolCallId"].as_str().map(str::to_owned) else { continue };
        let is_separate = match envelope["type"].as_str().unwrap_or_default() {
            "tool.started" => open.replace(call.clone()).is_none() && !ended.contains(&call),
            "tool.result" | "tool.failed" => open.take().as_ref() == Some(&call) && ended.insert(call),
            _ => open.as_ref() == Some(&call),
        };
        if !is_separate {
            return false;
        }
    }
    open.is_none() && ended.len() > 1 && ended.len() == call_ids(recording).len()
}

/// Where the pieces of texts stand: the member that has the kind of the fact, the kind, and the member with the piece.
#[rustfmt::skip]
const PIECES: &[(&str, &str, &str, &str)] = &[
    ("ag-ui", "/type", "TEXT_MESSAGE_CONTENT", "/delta"),
    ("ag-ui", "/type", "REASONING_MESSAGE_CONTENT", "/delta"),
    ("ai-sdk", "/type", "text-delta", "/delta"),
    ("ai-sdk", "/type", "reasoning-delta", "/delta"),
    ("awaken", "/event_type", "text_delta", "/delta"),
    ("awaken", "/event_type", "reasoning_delta", "/delta"),
    ("awaken", "/draft/payload/event_type", "text_delta", "/draft/payload/delta"),
    ("ethos", "/type", "text_delta", "/text"),
    ("ethos", "/type", "thinking_delta", "/thinking"),
    ("acp", "/message/params/update/sessionUpdate", "agent_message_chunk", "/message/params/update/content/text"),
    ("acp", "/message/params/update/sessionUpdate", "agent_thought_chunk", "/message/params/update/content/text"),
    ("openai-responses", "/type", "response.output_text.delta", "/delta"),
    ("openai-responses", "/data/type", "response.output_text.delta", "/data/delta"),
    ("openai-responses", "/type", "response.reasoning_summary_text.delta", "/delta"),
    ("claude-stream-json", "/event/delta/type", "text_delta", "/event/delta/text"),
    ("claude-stream-json", "/event/delta/type", "thinking_delta", "/event/delta/thinking"),
    ("langgraph", "/data/0/type", "AIMessageChunk", "/data/0/content"),
    ("a2a", "/result/artifactUpdate/artifact/parts/0/text", "", "/result/artifactUpdate/artifact/parts/0/text"),
    ("turnrunner", "/event", "message", "/payload/aDelta"),
    ("turnrunner", "/event", "thought", "/payload/aDelta"),
];

/// Cuts the first `max` pieces of texts in two, between two characters. `before` and `after` are added at the cut.
fn cut_texts(recording: &Recording, max: usize, before: &str, after: &str) -> Option<Vec<Value>> {
    // A replay repeats what the agent said before in other pieces.
    let is_plain = before.is_empty() && after.is_empty();
    if !is_plain && recording.facts.iter().any(|fact| fact.pointer("/message/method").is_some_and(|name| name == "session/load"))
    {
        return None;
    }
    let (mut facts, mut cuts) = (Vec::new(), 0);
    for fact in &recording.facts {
        let is_it = |(source, at, kind, _): &&(&str, &str, &str, &str)| {
            *source == recording.source
                && fact.pointer(at).and_then(Value::as_str).is_some_and(|found| found == *kind || kind.is_empty())
        };
        let piece = PIECES.iter().find(is_it).map_or("", |(.., piece)| *piece);
        let text = fact.pointer(piece).and_then(Value::as_str).unwrap_or_default();
        let is_alone = fact.pointer("/result/artifactUpdate/artifact/parts/1").is_none();
        let cut = text.char_indices().nth(text.chars().count().div_ceil(2));
        let Some((cut, _)) = cut.filter(|_| is_alone && cuts < max) else {
            facts.push(fact.clone());
            continue;
        };
        let (mut first, mut second) = (fact.clone(), fact.clone());
        *first.pointer_mut(piece).unwrap() = format!("{}{before}", &text[..cut]).into();
        *second.pointer_mut(piece).unwrap() = format!("{after}{}", &text[cut..]).into();
        // A message that grows has the text so far beside its newest piece.
        if let Some(full) = first.pointer_mut("/payload/full") {
            if !is_plain {
                return None;
            }
            *full = full.as_str().unwrap().strip_suffix(&text[cut..])?.into();
        }
        // The second piece repeats no event and adds to the first one, which is not the last.
        second.as_object_mut().unwrap().retain(|member, _| member != "uuid" && member != "sequence_number");
        if let Some(event) = second.get_mut("data").and_then(Value::as_object_mut) {
            event.shift_remove("sequence_number");
        }
        if let Some(artifact) = second.pointer_mut("/result/artifactUpdate") {
            artifact["append"] = true.into();
            first["result"]["artifactUpdate"]["lastChunk"] = false.into();
        }
        for last in ["/data/0/usage_metadata", "/data/0/chunk_position"] {
            first.pointer_mut(last).map(Value::take);
        }
        facts.extend([first, second]);
        cuts += 1;
    }
    (cuts > 0).then_some(facts)
}

/// Where the transport lets a result overtake its call: the member with the types, those of starts and of results, and the
/// member with the id.
#[rustfmt::skip]
const RESULTS: &[(&str, &str, &[&str], &[&str], &str)] = &[
    ("ag-ui", "type", &["TOOL_CALL_START"], &["TOOL_CALL_RESULT"], "toolCallId"),
    ("ai-sdk", "type", &["tool-input-start", "tool-input-available"], &["tool-output-available", "tool-output-error"], "toolCallId"),
    ("awaken", "event_type", &["tool_call_start"], &["tool_call_done"], "id"),
    ("ethos", "type", &["tool_start"], &["tool_end"], "toolCallId"),
];

/// Moves the results of calls before the calls.
fn results_first(recording: &Recording) -> Option<Vec<Value>> {
    let (_, member, starts, results, id) = RESULTS.iter().find(|(source, ..)| *source == recording.source)?;
    let is = |fact: &Value, names: &[&str]| names.contains(&fact[member].as_str().unwrap_or_default());
    // A question is no result, and what a result tells of the call's tool may come only while the call is open.
    let is_plain = |fact: &&Value| is(fact, results) && fact["outcome"] != "suspended" && fact.get("preliminary").is_none();
    let mut facts = recording.facts.clone();
    for result in recording.facts.iter().filter(is_plain) {
        let start = facts.iter().position(|fact| is(fact, starts) && fact[id] == result[id])?;
        let at = facts.iter().position(|fact| fact == result)?;
        if start < at {
            let result = facts.remove(at);
            facts.insert(start, result);
        }
    }
    (facts != recording.facts).then_some(facts)
}

// ── the property ──

/// Mutations that do change a recording, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "langgraph/v3-error_midstream",
    "no id for the only call",
    "Only the state has the result. It keeps the results of earlier turns too, so one without an id is of no call.",
)];

/// The facts as text, with escapes of halves.
fn to_facts(facts: &[Value]) -> Facts {
    let text = to_ndjson(facts).replace(FIRST_HALF, r"\ud83d").replace(SECOND_HALF, r"\udc4b");
    let mut end = 0;
    let ranges = text.split_inclusive('\n').map(|line| {
        end += line.len();
        end - line.len()..end
    });
    let ranges = ranges.collect();
    Facts::from_text(text.into(), ranges)
}

/// What the readers of each face have of a run, by audience.
fn read(source: &str, facts: &[Value]) -> [[Shown; 3]; 2] {
    let end = vec![fact("run.finished", json!({}))];
    let (log, rows) = block_on(async { Pipeline::new().rows_of([(source, to_facts(facts)), ("agentui", end.into())]).await });
    [Audience::User, Audience::Internal].map(|audience| [native, ag_ui, ai_sdk].map(|face| face(&log, &rows, audience)))
}

#[test]
fn readers_of_every_face_end_with_the_same_run_whatever_its_cuts_ids_and_order() {
    let all = recordings().into_iter().map(|(source, name, facts)| Recording { source, name, facts });
    let tried = part_of(all.filter(|recording| recording.facts.len() <= FACTS_MAX).collect(), PARTS);
    assert!(tried.len() > FOLDERS.len());
    let (mut failures, mut counts) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for recording in &tried {
        let plain = read(recording.source, &recording.facts);
        for (name, mutate) in MUTATIONS {
            let is_exception = EXCEPTIONS.iter().any(|(of, mutation, _)| *of == recording.name && mutation == name);
            let Some(facts) = mutate(recording).filter(|_| !is_exception) else { continue };
            *counts.entry(*name).or_default() += 1;
            let mutated = read(recording.source, &facts);
            for (audience, (mutated, plain)) in ["user", "internal"].iter().zip(mutated.iter().zip(&plain)) {
                for (face, (mutated, plain)) in ["native", "AG-UI", "AI SDK"].iter().zip(mutated.iter().zip(plain)) {
                    if mutated != plain {
                        failures.push(format!(
                            "{} with {name}, {face} as {audience}:\n{mutated:#?}\nplain:\n{plain:#?}",
                            recording.name
                        ));
                    }
                }
            }
        }
    }
    println!("{counts:?}");
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n\n"));
}

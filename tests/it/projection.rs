//! Properties of the fold, over random facts of every type and over every recording, for every audience.
//!
//! Facts pass through the real adapter, ledger and guard into a log's rows; views fold the rows. A reader that applies
//! only the frames must end with the view's state.

use crate::harness::{fact, part_of, recording, recordings, repository};
use crate::lifecycle::ticking;
use crate::schema::assert_activity;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proscenium::environment::Environment;
use proscenium::guard::Policy;
use proscenium::ingest::{Delivery, Facts, Ingest};
use proscenium::log::commit::{Logs, rows_after};
use proscenium::log::journal::MemoryJournal;
use proscenium::log::memory::MemoryStore;
use proscenium::log::row::Row;
use proscenium::log::{Limit, LogId};
use proscenium::model::{Audience, EventType, ReceivedAt, RunId, Sequence};
use proscenium::projection::View;
use proscenium::projection::activity_set::Activity;
use proscenium::projection::envelope_view::EnvelopeView;
use proscenium::source::by_name;
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The write path, on a store in memory.
pub struct Pipeline {
    logs: Arc<Logs>,
    ingest: Ingest,
    runs: Cell<u64>,
}

impl Pipeline {
    pub fn new() -> Self {
        Self::with_clock(ticking)
    }

    pub fn with_clock(now: fn() -> jiff::Timestamp) -> Self {
        let (logs, mut groups) =
            Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).expect("an empty store opens");
        // The part of the server that runs commits, without its readers.
        std::thread::spawn(move || {
            while let Some(group) = groups.blocking_recv() {
                group.acks.into_iter().for_each(|(ack, outcome)| drop(ack.send(outcome)));
            }
        });
        let environment = Environment { now, random: || 7 };
        Self { ingest: Ingest::new(logs.clone(), Policy::default(), environment), logs, runs: Cell::new(0) }
    }

    /// Sends facts to a new run, and reads its rows.
    pub async fn rows(&self, deliveries: &[(&str, &[Value])]) -> (LogId, Vec<Row>) {
        self.rows_of(deliveries.iter().map(|(source, facts)| (*source, facts.to_vec().into()))).await
    }

    /// Sends facts to a new run, as values or as text, and reads its rows.
    pub async fn rows_of(&self, deliveries: impl IntoIterator<Item = (&str, Facts)>) -> (LogId, Vec<Row>) {
        self.runs.set(self.runs.get() + 1);
        self.deliver(&format!("run-{}", self.runs.get()), deliveries).await
    }

    /// Sends native facts to a run, and reads all its rows.
    pub async fn append(&self, run: &str, facts: &[Value]) -> (LogId, Vec<Row>) {
        self.deliver(run, [("agentui", facts.to_vec().into())]).await
    }

    /// Releases the writers that no client uses.
    pub fn sweep(&self) {
        self.ingest.sweep();
    }

    async fn deliver(&self, run: &str, deliveries: impl IntoIterator<Item = (&str, Facts)>) -> (LogId, Vec<Row>) {
        let log = LogId::Run(RunId::new(run).unwrap());
        for (source, facts) in deliveries {
            let delivery = Delivery::new(log.clone(), by_name(source).unwrap(), facts);
            self.ingest.deliver(delivery).await.unwrap();
        }
        let (mut rows, tail) = (Vec::<Row>::new(), self.logs.log(&log).await.unwrap().tail());
        while rows.last().map_or(Sequence::NONE, Row::sequence) < tail.last {
            let after = rows.last().map_or(Sequence::NONE, Row::sequence);
            let limit = Limit { rows: 1000, bytes: 1 << 20 };
            rows.extend(rows_after(self.logs.read(&log, tail.epoch.unwrap(), after, limit).await.unwrap(), after));
        }
        (log, rows)
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Returns the activities of these native facts as an internal reader sees them.
pub fn fold_activities(facts: &[Value]) -> Vec<Activity> {
    let (log, rows) = block_on(Pipeline::with_clock(|| jiff::Timestamp::UNIX_EPOCH).rows(&[("agentui", facts)]));
    Reader::new(&log, Audience::Internal).read(&rows).view.activities().to_vec()
}

/// A view, and a reader that has only the view's frames.
struct Reader {
    log: LogId,
    view: View,
    /// The reader's contents by key, and whether the activity is a source's own.
    copies: HashMap<(String, String), (Value, bool)>,
    /// The times of the last change and of the end, by the frames.
    times: HashMap<(String, String), (ReceivedAt, Option<ReceivedAt>)>,
    frames: Vec<Value>,
    /// The number of rows after which the view is saved and restored; 0 for never.
    restore_every: u64,
}

impl Reader {
    fn new(log: &LogId, audience: Audience) -> Self {
        let view = View::new(log, audience);
        Self { log: log.clone(), view, copies: HashMap::new(), times: HashMap::new(), frames: Vec::new(), restore_every: 0 }
    }

    fn restoring(log: &LogId, audience: Audience, restore_every: u64) -> Self {
        Self { restore_every, ..Self::new(log, audience) }
    }

    /// Folds the rows. Asserts that every frame applies to the reader's state and names the frame before it.
    fn read(mut self, rows: &[Row]) -> Self {
        let mut framed = Sequence::NONE;
        for row in rows {
            let folded = self.view.fold(row.sequence(), row.view(self.view.audience));
            assert_eq!(folded.prev, framed);
            for change in &folded.changes {
                framed = row.sequence();
                let activity = self.view.changed_activity(change);
                let key = (activity.kind.to_string(), activity.id.to_string());
                let mut frame = json!({"kind": activity.kind, "id": activity.id, "sequence": row.sequence()});
                let ended = match (change.is_snapshot, change.ended) {
                    (true, _) => activity.ended_at,
                    (false, Some(ended)) => ended.then_some(activity.updated_at),
                    (false, None) => self.times[&key].1,
                };
                self.times.insert(key.clone(), (activity.updated_at, ended));
                if change.is_snapshot {
                    frame["content"] = Value::Object(activity.content.clone());
                    frame["surface"] = json!(activity.surface);
                    frame["opened"] = json!(activity.opened);
                    frame["agentId"] = json!(activity.agent);
                    self.copies.insert(key, (Value::Object(activity.content.clone()), activity.is_custom));
                } else {
                    assert!(!change.operations.is_empty());
                    let patch = serde_json::to_value(&change.operations).unwrap();
                    let parsed: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
                    let (copy, _) = self.copies.get_mut(&key).expect("a snapshot precedes its deltas");
                    json_patch::patch(copy, &parsed).unwrap_or_else(|error| panic!("{key:?}: {error}: {patch}"));
                    frame["patch"] = patch;
                }
                self.frames.push(frame);
            }
            if self.restore_every > 0 && row.sequence().0 % self.restore_every == 0 {
                self.view =
                    View::restore(&self.log, self.view.audience, &self.view.save()).unwrap().expect("the saved view is readable");
            }
        }
        self
    }

    /// Asserts that the reader's state equals the view's, and that it is valid by the schemas.
    fn check(&self) {
        let held = self.view.activities();
        assert_eq!(held.len(), self.copies.len());
        for activity in held {
            let content = Value::Object(activity.content.clone());
            let (copy, is_custom) = &self.copies[&(activity.kind.to_string(), activity.id.to_string())];
            assert_eq!(join_texts(copy, *is_custom), join_texts(&content, *is_custom), "{} {}", activity.kind, activity.id);
            let key = (activity.kind.to_string(), activity.id.to_string());
            assert_eq!(self.times[&key], (activity.updated_at, activity.ended_at), "{key:?}");
            assert!(activity.opened_at <= activity.updated_at && activity.ended_at.is_none_or(|at| at <= activity.updated_at));
            if !is_custom {
                assert_eq!(join_texts(&content, false), content, "the view keeps text joined");
            }
            assert_activity(if *is_custom { "custom" } else { &activity.kind }, &content);
        }
    }

    /// Asserts that no activity is open after the run's end.
    fn check_closed(&self) {
        for activity in self.view.activities().iter().filter(|activity| !activity.is_custom) {
            let is = |member: &str, open: &[&str]| {
                activity.content.get(member).and_then(Value::as_str).is_some_and(|is| open.contains(&is))
            };
            let open = match &*activity.kind {
                "message" => {
                    is("status", &["streaming"])
                        || activity.content["parts"].as_array().unwrap().iter().any(|p| p["status"] == "streaming")
                }
                "reasoning" | "plan" => is("status", &["streaming"]),
                "action" => is("status", &["pending"]),
                "compaction" => is("status", &["running"]),
                "tool-call-progress" => {
                    !is("state", &["output-available", "output-error", "cancelled"]) || is("status", &["running", "pending"])
                }
                "run" => !is("status", &["completed", "failed", "cancelled", "interrupted"]),
                _ => false,
            };
            assert!(!open, "open after the end: {activity:#?}");
        }
    }
}

/// Joins a content's text chunks, as a reader may.
fn join_texts(content: &Value, is_custom: bool) -> Value {
    let mut content = content.clone();
    let join = |of: &mut Value| {
        for member in ["text", "input_text", "output_text"] {
            if let Some(Value::Array(chunks)) = of.get_mut(member) {
                let whole: String = chunks.iter().map(|chunk| chunk.as_str().expect("a chunk is text")).collect();
                *chunks = if whole.is_empty() { Vec::new() } else { vec![whole.into()] };
            }
        }
    };
    if !is_custom {
        join(&mut content);
        content.get_mut("parts").and_then(Value::as_array_mut).into_iter().flatten().for_each(join);
    }
    content
}

/// Removes the members of a frame that depend on its position in the log.
fn without_position(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(name, _)| !["at", "sequence", "opened", "reported"].contains(&name.as_str()))
            .filter(|(name, _)| *name != "value" || map.get("path") != Some(&json!("/reported")))
            .map(|(n, v)| (n.clone(), without_position(v)))
            .collect(),
        Value::Array(items) => items.iter().map(without_position).collect(),
        plain => plain.clone(),
    }
}

fn audience() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![5 => Just(None), 3 => Just(Some("user")), 2 => Just(Some("dashboard")), 2 => Just(Some("internal")), 1 => Just(Some("everyone"))]
}

/// Generates patches of a source: applicable ones, inapplicable ones, and invalid ones.
fn patch() -> impl Strategy<Value = Value> {
    let op = prop_oneof![
        3 => (0..3u8, 0..9u8).prop_map(|(at, n)| json!({"op": "add", "path": format!("/k{at}"), "value": n})),
        3 => (0..9u8).prop_map(|n| json!({"op": "add", "path": "/list/-", "value": n})),
        1 => (0..3u8).prop_map(|at| json!({"op": "remove", "path": format!("/k{at}")})),
        1 => (0..3u8).prop_map(|at| json!({"op": "remove", "path": format!("/list/{at}")})),
        1 => (0..3u8).prop_map(|at| json!({"op": "replace", "path": format!("/k{at}"), "value": {"text": ["a", "b"]}})),
        1 => (0..3u8, 0..3u8).prop_map(|(a, b)| json!({"op": "move", "from": format!("/k{a}"), "path": format!("/k{b}/x")})),
        1 => (0..3u8).prop_map(|a| json!({"op": "copy", "from": "/list", "path": format!("/k{a}")})),
        1 => Just(json!({"op": "add", "path": "/text/-", "value": "more"})),
        1 => Just(json!({"op": "test", "path": "/k0", "value": 1})),
        1 => Just(json!({"op": "replace", "path": "", "value": {"list": []}})),
        1 => Just(json!({"op": "replace", "path": "", "value": 7})),
        1 => Just(json!({"op": "dance"})),
        1 => Just(json!({"op": "replace", "path": "/progress", "value": 0.75})),
    ];
    prop_oneof![3 => proptest::collection::vec(op.clone(), 0..3).prop_map(Value::Array), 1 => op, 1 => Just(json!("none"))]
}

/// Generates runs of native facts, the same ones each time.
pub fn generated_runs(count: usize) -> Vec<Vec<Value>> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let facts = proptest::collection::vec(any_fact(), 20..60);
    (0..count).map(|_| facts.new_tree(&mut runner).expect("the strategy refuses nothing").current()).collect()
}

/// Generates a fact of any type about one of a few subjects, so that facts interact.
fn any_fact() -> impl Strategy<Value = Value> {
    let families = prop_oneof![
        6 => proptest::sample::select(vec!["text.delta", "text.final", "reasoning.delta", "reasoning.summary", "plan.delta", "plan.final"]),
        6 => proptest::sample::select(vec!["tool.started", "tool.args", "tool.progress", "tool.output.delta", "tool.result", "tool.failed"]),
        4 => proptest::sample::select(vec!["tool.progress/activity", "state.snapshot/activity", "state.delta/activity"]),
        3 => proptest::sample::select(vec!["state.snapshot", "state.delta"]),
        3 => proptest::sample::select(vec!["action.required", "action.resolved", "control.changed"]),
        2 => proptest::sample::select(vec!["messages.snapshot", "run.started", "run.finished", "run.failed", "run.status"]),
        2 => proptest::sample::select(vec!["context.compaction.started", "context.compaction.completed", "review.requested", "review.completed"]),
        4 => proptest::sample::select(EventType::NAMES.to_vec()),
        1 => proptest::sample::select(vec!["weather.changed", "metric.new"]),
    ];
    let ids = (0..3u8, 0..3u8, proptest::option::weighted(0.3, 0..2u8), audience(), 0..8u8, patch());
    (families, ids)
        .prop_map(|(class, (one, other, agent, audience, flags, patch))| shaped(class, one, other, agent, audience, flags, patch))
}

fn shaped(family: &str, one: u8, other: u8, agent: Option<u8>, audience: Option<&str>, flags: u8, patch: Value) -> Value {
    let (class, is_activity) = family.split_once('/').map_or((family, false), |(class, _)| (class, true));
    let flag = |n: u8| flags >> n & 1 == 1;
    let mut map = Map::from_iter([("type".to_owned(), json!(class))]);
    let mut set = |member: &str, value: Value| drop(map.insert(member.into(), value));
    let mut payload = json!({"status": (["running", "failed", "completed"][one as usize]), "note": other});
    let mut set_payload = |member: &str, value: Value| payload[member] = value;
    match class {
        "tool.progress" | "state.snapshot" | "state.delta" if is_activity => {
            set(if flag(0) { "toolCallId" } else { "messageId" }, json!(format!("c{one}")));
            set_payload("activityType", Value::from(["search", "tool-call-progress", "message"][other as usize]));
            match flags {
                0..=3 => set_payload("patch", patch),
                4 => set_payload("content", json!("bare text")),
                5 => set_payload("content", json!({"list": [1], "k0": 1, "call_id": format!("c{one}"), "progress": 0.5})),
                6 => {
                    set_payload("content", json!({"list": []}));
                    set_payload("replace", json!(false));
                }
                _ => set_payload("state", json!([one])),
            }
        }
        "state.snapshot" => set_payload("state", json!({"list": ["a"], "text": ["x", "y"], "k0": 1})),
        "state.delta" => set_payload("patch", patch),
        class if class.starts_with("tool.") => {
            set("toolCallId", json!(format!("c{one}")));
            for (member, value) in [
                ("toolName", json!("t")),
                ("inputText", json!("{\"a\"")),
                ("text", json!(format!("out{other} "))),
                ("output", json!({"n": other})),
                ("error", json!({"message": "no"})),
                ("message", json!(format!("step {other}"))),
                ("progress", json!(f64::from(other) / 2.0)),
            ] {
                set_payload(member, value);
            }
            if flag(0) {
                set_payload("input", json!({"a": one}));
                set_payload("parentToolCallId", json!("c0"));
            }
        }
        class if ["text.", "reasoning.", "plan."].iter().any(|family| class.starts_with(family)) => {
            set("messageId", json!(format!("m{one}")));
            // Only a final text may name no part; any other fact without a part would get one, and so start a subject.
            if flag(0) || class != "text.final" {
                set("partId", json!(format!("p{other}")));
            }
            set_payload("text", Value::from(["one ", "two ", "one two "][flags as usize % 3]));
            if flag(1) {
                payload.as_object_mut().unwrap().remove("text");
            }
        }
        "messages.snapshot" => {
            let parts = json!([{"partId": format!("p{other}"), "text": "fixed"}, {"kind": "tool_call", "toolCallId": format!("c{one}"), "partId": "call"}]);
            set_payload(
                "messages",
                json!([{"messageId": format!("m{one}"), "role": "assistant", "parts": if flag(0) { parts } else { json!([]) }}, {"messageId": "m1", "agentId": "g0"}]),
            );
            set_payload("mode", json!(if flag(1) { "repair" } else { "window" }));
        }
        "action.required" | "action.resolved" | "control.changed" => {
            set("actionId", json!(format!("a{one}")));
            set("toolCallId", json!(format!("c{other}")));
            set_payload("input", json!("of the call"));
            set_payload("outcome", json!("approved"));
        }
        _ => {
            for (member, value) in [
                ("taskId", json!(format!("t{one}"))),
                ("artifactId", json!(format!("r{one}"))),
                ("evidenceId", json!(format!("e{one}"))),
                ("sessionId", json!("s")),
            ] {
                if !class.starts_with("run.") {
                    set(member, value);
                }
            }
            for member in ["handoffId", "workerNotificationId", "teamId", "reviewId"] {
                set_payload(member, json!(format!("{member}-{one}")));
            }
            set_payload("usage", json!({"inputTokens": one, "cost": 0.5}));
            set_payload("version", json!(other));
            set_payload("body", json!("never shown"));
            if flag(0) {
                set_payload("compactionId", json!(one));
                set_payload("workItemId", json!("w"));
                set_payload("title", json!("title"));
                set_payload("items", json!([1, 2]));
            }
            if flag(1) {
                set_payload("blocker", Value::Null);
                set_payload("queuedTurnCount", json!(other));
                set_payload("stale", json!(true));
            }
            if flag(2) {
                set_payload("attempts", json!([{"n": one}]));
                set_payload("permissionId", json!("p"));
                set_payload("verdict", json!("passed"));
            }
        }
    }
    let named = class.starts_with("agent.") && class != "agent.handoff";
    if let Some(agent) = agent.or(named.then_some(one % 2)) {
        set("agentId", json!(format!("g{agent}")));
    }
    if let Some(audience) = audience {
        set("audience", json!(audience));
    }
    set("payload", payload);
    Value::Object(map)
}

/// Whether a fact decides which call a later fact under its id is about.
fn counts_calls(fact: &Value) -> bool {
    ["tool.started", "tool.result", "tool.failed"].contains(&fact["type"].as_str().unwrap_or_default())
}

/// Returns the subjects that a fact may start.
///
/// Leaving out a subject's first fact changes the meaning of its later facts.
fn subjects(fact: &Value) -> Vec<String> {
    let id = |member: &str| fact[member].as_str().unwrap_or("-").to_owned();
    let class = fact["type"].as_str().unwrap();
    let activity = fact["payload"]["activityType"].as_str();
    match (class.split('.').next().unwrap(), activity) {
        (_, Some(activity)) => {
            // A report starts no call.
            let of = [&fact["toolCallId"], &fact["messageId"]].into_iter().find_map(Value::as_str).unwrap_or("-");
            if activity == "tool-call-progress" { Vec::new() } else { vec![format!("activity {activity} {of}")] }
        }
        ("tool", None) if class != "tool.started" => Vec::new(),
        ("tool", None) => vec![format!("tool {}", id("toolCallId"))],
        ("action", None) => vec![format!("action {}", id("actionId"))],
        ("review", None) => vec![format!("review {}", fact["payload"]["reviewId"])],
        ("context", None) if class.starts_with("context.compaction") => {
            vec![format!("compaction {}", fact["payload"]["compactionId"])]
        }
        (kind @ ("text" | "reasoning" | "plan"), None) => {
            let message = format!("{kind} {} {}", id("agentId"), id("messageId"));
            match fact["partId"].as_str() {
                Some(part) => vec![format!("{message} {part}"), message],
                None => vec![message],
            }
        }
        ("agent", None) if class != "agent.handoff" => vec![format!("agent {}", id("agentId"))],
        _ => Vec::new(),
    }
}

/// Checks a property over random facts.
///
/// The same facts each time, or as many new cases as `PROPTEST_CASES` says.
pub fn check_property(cases: u32, check: impl AsyncFn(&Pipeline, Vec<Value>)) {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config { cases: asked.unwrap_or(cases), failure_persistence: None, max_shrink_iters: 3000, ..Config::default() };
    let mut runner = match asked {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pipeline = runtime.block_on(async { Pipeline::new() });
    let outcome = runner.run(&proptest::collection::vec(any_fact(), 1..50), |facts| {
        runtime.block_on(check(&pipeline, facts));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_reader_that_applies_every_frame_has_the_view_s_state_and_it_is_valid() {
    check_property(150, async |pipeline, facts| {
        let (log, rows) = pipeline.rows(&[("agentui", &facts)]).await;
        for audience in Audience::ALL {
            Reader::new(&log, audience).read(&rows).check();
        }
    });
}

#[test]
fn a_view_restored_at_any_row_continues_unchanged() {
    check_property(100, async |pipeline, facts| {
        let (log, rows) = pipeline.rows(&[("agentui", &facts)]).await;
        for audience in Audience::ALL {
            let whole = Reader::new(&log, audience).read(&rows);
            for restore_every in [1, 2, 7] {
                let again = Reader::restoring(&log, audience, restore_every).read(&rows);
                assert_eq!(again.frames, whole.frames);
                assert_eq!(again.view.save(), whole.view.save());
            }
        }
    });
}

/// Folds the rows as [`View::fold`] does and by parsing each. Returns how many were compared, not parsed.
fn fold_in_both_ways(log: &LogId, rows: &[Row]) -> usize {
    let mut count = 0;
    for audience in Audience::ALL {
        let (mut compared, mut parsed) = (View::new(log, audience), View::new(log, audience));
        for row in rows {
            let text = row.view(audience);
            let chunk = text.and_then(|text| compared.fold_chunk(row.sequence(), text));
            count += usize::from(chunk.is_some());
            let outcome = chunk.unwrap_or_else(|| compared.fold(row.sequence(), text));
            let expected = match text {
                Some(text) => parsed.fold_envelope(&EnvelopeView::parse(row.sequence(), text).unwrap()),
                None => parsed.fold(row.sequence(), None),
            };
            assert_eq!(format!("{outcome:?}"), format!("{expected:?}"), "{}", String::from_utf8_lossy(text.unwrap_or_default()));
        }
        assert_eq!(compared.save(), parsed.save());
    }
    count
}

#[test]
fn a_chunk_that_is_compared_has_the_effect_of_a_parsed_one() {
    let repeated = AtomicUsize::new(0);
    check_property(150, async |pipeline, facts| {
        let again = facts.iter().enumerate().flat_map(|(n, fact)| {
            ["", "one", "\"}}", "\\ \n \u{7}", "ü😀", "one"].map(|text| {
                let mut fact = fact.clone();
                if let Some(payload) = fact["payload"].as_object_mut().filter(|payload| payload.contains_key("text")) {
                    payload["text"] = text.into();
                    if n % 3 == 0 {
                        // Another member of this name comes first, and only that one changes.
                        payload["text"] = "one".into();
                        payload.shift_insert(0, "more".to_owned(), json!({ "text": text }));
                    }
                }
                fact
            })
        });
        let (log, rows) = pipeline.rows(&[("agentui", &again.collect::<Vec<_>>())]).await;
        repeated.fetch_add(fold_in_both_ways(&log, &rows), Ordering::Relaxed);
    });
    block_on(async {
        let pipeline = Pipeline::new();
        for (source, name, facts) in part_of(recordings(), 8) {
            let (log, rows) = pipeline.rows(&[(source, &facts)]).await;
            println!("{name}: {} of {} rows", fold_in_both_ways(&log, &rows), rows.len() * Audience::ALL.len());
        }
    });
    let repeated = repeated.into_inner();
    println!("random facts: {repeated} rows");
    assert!(repeated > 100, "the random facts had {repeated} chunks that follow another");
}

#[test]
fn an_activity_s_times_are_those_of_its_visible_envelopes() {
    check_property(100, async |pipeline, facts| {
        let one_by_one: Vec<_> = facts.iter().map(|fact| ("agentui", std::slice::from_ref(fact))).collect();
        let (log, rows) = pipeline.rows(&one_by_one).await;
        for audience in Audience::ALL {
            let received: HashMap<_, _> = rows
                .iter()
                .filter_map(|row| {
                    let envelope: Value = serde_json::from_slice(row.view(audience)?).unwrap();
                    Some((row.sequence(), envelope["receivedAt"].as_str().unwrap().to_owned()))
                })
                .collect();
            let whole = Reader::new(&log, audience).read(&rows);
            whole.check();
            for activity in whole.view.activities() {
                let times = [activity.opened_at, activity.updated_at].map(|time| time.to_string());
                assert_eq!(times, [&received[&activity.opened], &received[&activity.sequence]].map(Clone::clone), "{activity:?}");
                let ended = activity.ended_at.map(|time| time.to_string());
                assert!(ended.is_none_or(|ended| received.values().any(|time| *time == ended)), "{activity:?}");
            }
            let again = Reader::restoring(&log, audience, 3).read(&rows);
            assert_eq!(again.times, whole.times);
        }
    });
}

#[test]
fn leaving_out_hidden_facts_changes_nothing_visible() {
    check_property(200, async |pipeline, facts| {
        let (log, rows) = pipeline.rows(&[("agentui", &facts)]).await;
        assert_eq!(rows.len(), facts.len(), "a fact is one envelope here, so its position is its sequence");
        for audience in Audience::ALL {
            let mut known = HashSet::new();
            let kept: Vec<Value> = facts
                .iter()
                .zip(&rows)
                .filter(|(fact, row)| {
                    let starts = subjects(fact).into_iter().filter(|subject| known.insert(subject.clone())).count() > 0;
                    starts || counts_calls(fact) || row.view(audience).is_some()
                })
                .map(|(fact, _)| fact.clone())
                .collect();
            let (less_log, less) = pipeline.rows(&[("agentui", &kept)]).await;
            let whole = Reader::new(&log, audience).read(&rows);
            let part = Reader::new(&less_log, audience).read(&less);
            let frames = |reader: &Reader| -> Vec<Value> {
                // The run's own id is the run's name, which differs here.
                reader
                    .frames
                    .iter()
                    .map(without_position)
                    .map(|mut frame| {
                        if frame["kind"] == "run" {
                            frame["id"] = Value::Null;
                        }
                        frame
                    })
                    .collect()
            };
            assert_eq!(frames(&whole), frames(&part), "as {audience}");
        }
    });
}

#[test]
fn a_shown_custom_activity_or_state_is_never_older_than_its_sequence() {
    check_property(150, async |pipeline, facts| {
        let (log, rows) = pipeline.rows(&[("agentui", &facts)]).await;
        let mut views = Audience::ALL.map(|audience| View::new(&log, audience));
        for row in &rows {
            let [user, dashboard, internal] = &mut views;
            internal.fold(row.sequence(), row.view(Audience::Internal));
            for view in [user, dashboard] {
                let changes = view.fold(row.sequence(), row.view(view.audience)).changes;
                let shown = changes.iter().map(|change| view.changed_activity(change));
                for shown in shown.filter(|activity| activity.is_custom || &*activity.kind == "state") {
                    let true_one = internal.activities().iter().find(|a| a.kind == shown.kind && a.id == shown.id).unwrap();
                    assert_eq!(shown.content, true_one.content, "as {}", view.audience);
                }
            }
        }
    });
}

#[test]
fn nothing_is_open_after_the_end_of_a_run_whatever_came_before_or_after() {
    check_property(150, async |pipeline, mut facts| {
        let late = facts.split_off(facts.len() / 2);
        facts.push(fact("run.finished", json!({})));
        facts.extend(late.into_iter().filter(|fact| fact["type"] != "run.started"));
        let (log, rows) = pipeline.rows(&[("agentui", &facts)]).await;
        for audience in Audience::ALL {
            Reader::new(&log, audience).read(&rows).check_closed();
        }
    });
}

#[test]
fn every_recording_satisfies_the_properties_for_every_audience() {
    let mut names: Vec<String> = std::fs::read_dir(repository("tests/recordings/awaken"))
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    assert_eq!(names.len(), 19);
    block_on(async {
        let pipeline = Pipeline::new();
        for name in names {
            // The test ends recordings without an end.
            let end = [fact("run.finished", json!({}))];
            let (log, rows) = pipeline.rows(&[("awaken", &recording(&name)), ("agentui", &end)]).await;
            for audience in Audience::ALL {
                let whole = Reader::new(&log, audience).read(&rows);
                assert!(whole.view.activities().len() > 1 || rows.len() < 5, "{name} has too few activities");
                whole.check();
                whole.check_closed();
                let again = Reader::restoring(&log, audience, 97).read(&rows);
                assert!(again.frames == whole.frames, "{name}");
                assert_eq!(again.view.save(), whole.view.save(), "{name}");
            }
        }
    });
}

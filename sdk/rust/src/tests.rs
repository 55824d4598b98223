//! Tests of the reporter against a scripted server.

use crate::error::{ReportError, StartError};
use crate::facts::{
    self, Fact, ProgressStatus, Role, TOOL_CALL_PROGRESS_ACTIVITY_TYPE, ToolCallProgressState, ToolProgressEvent,
};
use crate::queue::{BATCH_FACTS_MAX, Counters, Queue, QueueLimits};
use crate::recording::RECORDED_FACTS_MAX;
use crate::reporter::{Reporter, ReporterBuilder, next_epoch};
use crate::wire::script::{ScriptedRequest, name};
use crate::wire::{DeliveryOutcome, Sink};
use crate::worker::Backoff;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// A timeout that only a hang reaches.
const HANG: Duration = Duration::from_mins(1);
const LIMITS: QueueLimits = QueueLimits { facts: 8, bytes: 1 << 20 };
const FAST_BACKOFF: Backoff = Backoff { initial: Duration::from_millis(1), max: Duration::from_millis(2) };

fn later(why: &str) -> DeliveryOutcome {
    DeliveryOutcome::Retry { why: why.into(), after: None }
}

struct Script(mpsc::UnboundedReceiver<ScriptedRequest>);

impl Script {
    async fn next(&mut self) -> ScriptedRequest {
        soon(self.0.recv()).await.expect("the reporter is running")
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.expect("the future completes before the timeout")
}

fn scripted(limits: QueueLimits, stall_timeout: Duration) -> (Reporter, Script) {
    let (script, asked) = mpsc::unbounded_channel();
    (Reporter::start(Sink::Script(script), limits, stall_timeout, FAST_BACKOFF, 1).unwrap(), Script(asked))
}

fn facts_of(counters: Counters) -> (u64, u64, u64, u64, u64, u64) {
    let Counters { reported, acknowledged, coalesced, dropped, shed, waiting, .. } = counters;
    assert_eq!(reported, acknowledged + coalesced + dropped + shed + waiting, "{counters:?}");
    (reported, acknowledged, coalesced, dropped, shed, waiting)
}

/// Returns the facts of these reports, without timestamps.
async fn recorded(report: impl AsyncFnOnce(&Reporter)) -> Vec<Value> {
    let (reporter, recording) = Reporter::recording().unwrap();
    report(&reporter).await;
    soon(reporter.flush()).await.unwrap();
    let mut facts = recording.facts();
    for fact in &mut facts {
        let at = fact.as_object_mut().unwrap().shift_remove("timestamp").unwrap();
        assert!(at.as_str().unwrap().parse::<Timestamp>().is_ok(), "{at}");
    }
    facts
}

#[tokio::test]
async fn a_state_has_seed_002_s_form_and_is_for_users() {
    let facts = recorded(async |reporter| {
        let call = reporter.call("c", "index_docs");
        call.report_progress(ProgressStatus::Running, Some("Indexed batch 1/10"), Some(0.1)).await;
        call.report_progress(ProgressStatus::Pending, None, Some(f64::NAN)).await;
        let child = call.child("d", "fetch");
        child.report(child.state(ProgressStatus::Done).with_loaded(3).with_total(4).with_message("x").with_progress(0.75)).await;
        reporter
            .call("e", "fetch")
            .with_parent("c")
            .report(ToolCallProgressState::new("other", "t", ProgressStatus::Failed))
            .await;
    })
    .await;
    let state = |content: Value| {
        json!({
            "type": "tool.progress", "toolCallId": content["call_id"], "audience": "user",
            "payload": {"activityType": "tool-call-progress", "content": content, "replace": true},
        })
    };
    let of = |id: &str| json!({"schema": "tool-call-progress.v1", "node_id": id, "call_id": id, "tool_name": "index_docs"});
    let with = |mut state: Value, members: Value| {
        state.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        state
    };
    assert_eq!(facts[0], state(with(of("c"), json!({"status": "running", "progress": 0.1, "message": "Indexed batch 1/10"}))));
    assert_eq!(facts[1], state(with(of("c"), json!({"status": "pending"}))));
    let child = json!({
        "tool_name": "fetch", "status": "done", "progress": 0.75, "loaded": 3, "total": 4, "message": "x",
        "parent_node_id": "c", "parent_call_id": "c",
    });
    assert_eq!(facts[2], state(with(of("d"), child)));
    let other = &facts[3]["payload"]["content"];
    assert_eq!((&facts[3]["toolCallId"], &other["call_id"], &other["node_id"]), (&json!("e"), &json!("e"), &json!("other")));
}

#[test]
fn a_state_round_trips_and_statuses_have_seed_002_s_names() {
    use ProgressStatus::{Cancelled, Done, Failed, Pending, Running};
    let names = [(Pending, "pending"), (Running, "running"), (Done, "done"), (Failed, "failed"), (Cancelled, "cancelled")];
    for (status, name) in names {
        let state = ToolCallProgressState::new("c", "t", status).with_loaded(1).with_parent("p");
        let text = serde_json::to_value(&state).unwrap();
        assert_eq!(text["status"], name);
        assert_eq!(text.as_object().unwrap().len(), 8, "absent members are omitted: {text}");
        assert_eq!(serde_json::from_value::<ToolCallProgressState>(text).unwrap(), state);
    }
    let event = json!({"type": "progress", "toolName": "t", "message": "m", "percent": 40.0, "audience": "admin"});
    let read: ToolProgressEvent = serde_json::from_value(event.clone()).unwrap();
    assert_eq!(read, ToolProgressEvent::new("t", "m").with_percent(40.0).with_audience("admin"));
    assert_eq!(serde_json::to_value(&read).unwrap(), event);
}

#[tokio::test]
async fn activities_are_whole_or_patches_and_a_bare_patch_is_wrapped() {
    let facts = recorded(async |reporter| {
        let call = reporter.call("c", "t");
        call.report_activity("code-generation", "fn hello() {}").await;
        call.report_activity_delta("code-generation", json!({"op": "add", "path": "/line", "value": 1})).await;
        call.report_activity_delta("code-generation", json!([{"op": "remove", "path": "/line"}])).await;
    })
    .await;
    let activity = |payload: Value| json!({"type": "tool.progress", "toolCallId": "c", "audience": "user", "persistence": "snapshot", "payload": payload});
    let patches = ["add", "remove"].map(|op| facts.iter().find(|fact| fact["payload"]["patch"][0]["op"] == op).cloned());
    assert_eq!(facts[0], activity(json!({"activityType": "code-generation", "content": "fn hello() {}", "replace": true})));
    assert_eq!(
        patches[0].clone().unwrap(),
        activity(json!({"activityType": "code-generation", "patch": [{"op": "add", "path": "/line", "value": 1}]}))
    );
    assert_eq!(
        patches[1].clone().unwrap(),
        activity(json!({"activityType": "code-generation", "patch": [{"op": "remove", "path": "/line"}]}))
    );
}

#[tokio::test]
async fn an_event_is_internal_by_default_and_its_percentage_is_also_a_fraction() {
    let facts = recorded(async |reporter| {
        reporter.emit(ToolProgressEvent::new("t", "a"));
        let call = reporter.call("c", "t").with_known_start();
        call.emit(ToolProgressEvent::new("t", "b").with_percent(12.5).with_audience("user"));
        call.emit(ToolProgressEvent::new("t", "c").with_percent(130.0).with_audience("admin"));
        call.emit(ToolProgressEvent::new("t", "d").with_percent(f64::NAN).with_audience("dashboard"));
    })
    .await;
    let of = |audience: &str, payload: Value| json!({"type": "tool.progress", "toolCallId": "c", "audience": audience, "payload": payload});
    assert_eq!(facts[0], json!({"type": "tool.progress", "audience": "internal", "payload": {"toolName": "t", "message": "a"}}));
    assert_eq!(facts[1], of("user", json!({"toolName": "t", "message": "b", "percent": 12.5, "progress": 0.125})));
    assert_eq!(facts[2], of("admin", json!({"toolName": "t", "message": "c", "percent": 130.0, "progress": 1.0})));
    assert_eq!(facts[3], of("dashboard", json!({"toolName": "t", "message": "d"})));
}

#[tokio::test]
async fn an_event_never_starts_a_call_and_never_reopens_a_completed_one() {
    let facts = recorded(async |reporter| {
        let call = reporter.call("c", "t");
        let emit = |message: &str| call.emit(ToolProgressEvent::new("t", message));
        emit("early");
        call.report_activity("log", "not a report of the call itself").await;
        emit("still early");
        call.report_progress(ProgressStatus::Done, None, None).await;
        emit("late");
        let started = reporter.call("d", "t");
        started.started(json!({"path": "/"})).await;
        started.emit(ToolProgressEvent::new("t", "at once"));
    })
    .await;
    for at in [0, 2] {
        assert_eq!((&facts[at]["toolCallId"], &facts[at]["refs"]), (&Value::Null, &json!({"toolCallId": "c"})));
    }
    assert_eq!((&facts[4]["toolCallId"], &facts[4]["payload"]["status"]), (&json!("c"), &json!("done")));
    assert_eq!((&facts[6]["toolCallId"], &facts[6]["payload"].get("status")), (&json!("d"), &None));
}

#[tokio::test]
async fn a_call_without_a_runtime_has_start_and_end_events() {
    let facts = recorded(async |reporter| {
        let call = reporter.call("c", "t").child("d", "u");
        call.started(json!({"a": 1})).await;
        call.result("output").await;
        call.failed(Some("io"), "gone").await;
        call.failed(None, "gone").await;
    })
    .await;
    let of = |class: &str, payload: Value| json!({"type": class, "toolCallId": "d", "payload": payload});
    assert_eq!(facts[0], of("tool.started", json!({"toolName": "u", "input": {"a": 1}, "parentToolCallId": "c"})));
    assert_eq!(facts[1], of("tool.result", json!({"toolName": "u", "output": "output"})));
    assert_eq!(facts[2], of("tool.failed", json!({"toolName": "u", "error": {"message": "gone", "code": "io"}})));
    assert_eq!(facts[3], of("tool.failed", json!({"toolName": "u", "error": {"message": "gone"}})));
}

#[test]
fn a_disabled_reporter_does_nothing_and_needs_no_runtime() {
    // Without a runtime, every future is ready at once.
    let reporter = Reporter::default();
    let call = reporter.call("c", "t").with_parent("p").with_known_start();
    pollster::block_on(async {
        call.report_progress(ProgressStatus::Running, Some("x"), None).await;
        call.report(call.state(ProgressStatus::Done)).await;
        call.child("d", "t").report_activity("a", "x").await;
        call.report_activity_delta("a", json!([])).await;
        call.started(json!({})).await;
        call.result("x").await;
        call.failed(None, "x").await;
        call.emit(ToolProgressEvent::new("t", "m"));
        reporter.emit(ToolProgressEvent::new("t", "m"));
        assert_eq!(reporter.flush().await, Ok(()));
        assert_eq!(reporter.counters(), Counters::default());
        assert!(reporter.is_none());
        assert_eq!(reporter.close().await, Ok(()));
    });
    assert!(matches!(Reporter::builder("http://127.0.0.1:1", "r").start(), Err(StartError::NoRuntime)));
}

#[tokio::test]
async fn pending_facts_go_out_as_one_body_and_numbers_continue() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    let call = reporter.call("c", "t");
    call.report_activity("a", "1").await;
    let first = server.next().await;
    for n in ["2", "3", "4"] {
        call.report_activity("a", n).await;
    }
    assert_eq!((first.seq, first.take()), (0, vec!["1".to_owned()]));
    let second = server.next().await;
    assert_eq!((second.seq, second.names()), (1, ["2", "3", "4"].map(str::to_owned).to_vec()));
    assert_eq!(facts_of(reporter.counters()), (4, 1, 0, 0, 0, 3));
    second.take();
    soon(reporter.flush()).await.unwrap();
    call.report_activity("a", "5").await;
    assert_eq!(server.next().await.seq, 4);
}

#[tokio::test]
async fn a_body_is_limited_in_facts_and_bytes() {
    let (reporter, mut server) = scripted(QueueLimits { facts: 10_000, bytes: 100 << 20 }, HANG);
    let call = reporter.call("c", "t");
    call.report_activity("a", "first").await;
    let first = server.next().await;
    for _ in 0..=BATCH_FACTS_MAX {
        call.report_activity("a", "x").await;
    }
    let large = "x".repeat(600 * 1024);
    for _ in 0..2 {
        call.report_activity("a", large.as_str()).await;
    }
    call.report_activity("a", large.repeat(3)).await;
    call.report_activity("a", "last").await;
    first.take();
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let body = server.next().await;
        sizes.push(body.facts.len());
        body.take();
    }
    assert_eq!(sizes, [BATCH_FACTS_MAX, 2, 1, 1, 1], "one fact may be larger than a body");
    soon(reporter.flush()).await.unwrap();
}

#[tokio::test]
async fn a_body_without_a_response_is_sent_again_unchanged() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    let call = reporter.call("c", "t");
    call.report_activity("a", "1").await;
    let first = server.next().await;
    let sent = first.facts.clone();
    call.report_activity("a", "2").await;
    first.answer(later("cut off"));
    for _ in 0..20 {
        let again = server.next().await;
        assert_eq!((again.seq, &again.facts), (0, &sent));
        again.answer(later("cut off"));
    }
    server.next().await.answer(DeliveryOutcome::Accepted { duplicates: 1 });
    assert_eq!((server.next().await).take(), ["2"]);
    soon(reporter.flush()).await.unwrap();
    let counters = reporter.counters();
    assert_eq!((counters.sent, counters.acknowledged, counters.repeated), (23, 2, 1));
}

#[tokio::test]
async fn the_reporter_does_not_retry_before_retry_after() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    reporter.call("c", "t").report_activity("a", "1").await;
    let retry_after = Duration::from_millis(300);
    let first = server.next().await;
    let at = Instant::now();
    first.answer(DeliveryOutcome::Retry { why: "busy".into(), after: Some(retry_after) });
    server.next().await.take();
    assert!(at.elapsed() >= retry_after);
}

#[tokio::test]
async fn a_gap_goes_back_to_what_the_server_expects() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    let call = reporter.call("c", "t");
    for n in ["1", "2", "3"] {
        call.report_activity("a", n).await;
        server.next().await.take();
    }
    call.report_activity("a", "4").await;
    let fourth = server.next().await;
    assert_eq!(fourth.seq, 3);
    // The server has lost the last two facts.
    fourth.answer(DeliveryOutcome::Gap { expected: 1 });
    let again = server.next().await;
    assert_eq!((again.seq, again.take()), (1, vec!["4".to_owned()]));
    call.report_activity("a", "5").await;
    let fifth = server.next().await;
    assert_eq!(fifth.seq, 2);
    // The reporter retries after an impossible number.
    fifth.answer(DeliveryOutcome::Gap { expected: 9 });
    let again = server.next().await;
    assert_eq!(again.seq, 2);
    // An operator has erased the run.
    again.answer(DeliveryOutcome::Gap { expected: 0 });
    let again = server.next().await;
    assert_eq!((again.seq, again.take()), (0, vec!["5".to_owned()]));
}

#[tokio::test]
async fn a_fenced_reporter_stops_and_returns_the_error() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    let call = reporter.call("c", "t");
    call.report_activity("a", "1").await;
    let fenced = ReportError::Fenced { current: 7 };
    server.next().await.answer(DeliveryOutcome::Rejected(fenced.clone()));
    assert_eq!(soon(reporter.flush()).await, Err(fenced.clone()));
    for _ in 0..20 {
        soon(call.report_activity("a", "2")).await;
    }
    call.emit(ToolProgressEvent::new("t", "m"));
    assert_eq!(facts_of(reporter.counters()), (22, 0, 0, 22, 0, 0));
    assert_eq!(soon(reporter.flush()).await, Err(fenced.clone()), "the error is permanent");
    assert_eq!(soon(reporter.close()).await, Err(fenced));
    assert!(soon(server.0.recv()).await.is_none(), "the worker has ended");
}

#[tokio::test]
async fn a_rejected_fact_leaves_its_number_to_a_placeholder() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    let call = reporter.call("c", "t");
    call.report_activity("a", "1").await;
    let first = server.next().await;
    for n in ["2", "bad", "3"] {
        call.report_activity("a", n).await;
    }
    first.take();
    let body = server.next().await;
    assert_eq!(body.names(), ["2", "bad", "3"]);
    let bytes = body.facts[1].to_string().len();
    body.answer(DeliveryOutcome::Fact { index: 1, why: "too deep".into() });
    let body = server.next().await;
    assert_eq!((body.seq, body.names()), (1, ["2", "report_refused", "3"].map(str::to_owned).to_vec()));
    let instead = &body.facts[1];
    assert_eq!((&instead["type"], &instead["audience"]), (&json!("diagnostic.changed"), &json!("internal")));
    assert_eq!(instead["payload"], json!({"kind": "report_refused", "message": "too deep", "bytes": bytes}));
    body.take();
    assert_eq!(soon(reporter.flush()).await, Err(ReportError::Lost { count: 1, why: "too deep".into() }));
    assert_eq!(soon(reporter.flush()).await, Ok(()), "a loss is returned once");
    assert_eq!(facts_of(reporter.counters()), (4, 3, 0, 1, 0, 0));
    call.report_activity("a", "4").await;
    assert_eq!(server.next().await.seq, 4);
}

#[tokio::test]
async fn a_rejected_placeholder_leaves_its_number_to_the_next_fact() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    let call = reporter.call("c", "t");
    call.report_activity("a", "bad").await;
    for _ in 0..2 {
        server.next().await.answer(DeliveryOutcome::Body { why: "no".into() });
    }
    call.report_activity("a", "1").await;
    let body = server.next().await;
    assert_eq!((body.seq, body.take()), (0, vec!["1".to_owned()]));
    assert_eq!(soon(reporter.flush()).await, Err(ReportError::Lost { count: 1, why: "no".into() }));
    assert_eq!(facts_of(reporter.counters()), (2, 1, 0, 1, 0, 0));
}

#[tokio::test]
async fn a_rejected_body_is_halved_until_accepted_and_then_grows_again() {
    let (reporter, mut server) = scripted(QueueLimits { facts: 100, bytes: 1 << 20 }, HANG);
    let call = reporter.call("c", "t");
    call.report_activity("a", "0").await;
    let first = server.next().await;
    for n in 1..=40 {
        call.report_activity("a", n.to_string()).await;
    }
    first.take();
    let (mut sizes, mut taken) = (Vec::new(), Vec::new());
    while taken.len() < 40 {
        let body = server.next().await;
        assert_eq!(body.seq, 1 + taken.len() as u64);
        sizes.push(body.facts.len());
        if body.facts.len() > 8 {
            body.answer(DeliveryOutcome::Body { why: "too large".into() });
        } else {
            taken.extend(body.take());
        }
    }
    assert_eq!(sizes, [40, 20, 10, 5, 10, 5, 10, 5, 10, 5, 10, 5, 10, 5, 10, 5, 5]);
    assert_eq!(taken, (1..=40).map(|n| n.to_string()).collect::<Vec<_>>());
    soon(reporter.flush()).await.unwrap();
}

#[tokio::test]
async fn in_flight_facts_are_never_coalesced() {
    let (reporter, mut server) = scripted(QueueLimits { facts: 2, bytes: 1 << 20 }, HANG);
    let call = reporter.call("c", "t").with_known_start();
    let running = async |message: &str| call.report_progress(ProgressStatus::Running, Some(message), None).await;
    running("under way").await;
    let first = server.next().await;
    for message in ["repeated", "repeated too", "the newest"] {
        soon(running(message)).await;
    }
    assert_eq!(facts_of(reporter.counters()), (4, 0, 2, 0, 0, 2));
    first.answer(later("cut off"));
    let again = server.next().await;
    assert_eq!((again.seq, again.take()), (0, vec!["under way".to_owned()]));
    let body = server.next().await;
    assert_eq!((body.seq, body.take()), (1, vec!["the newest".to_owned()]));
    soon(reporter.flush()).await.unwrap();
}

#[test]
fn a_flush_waits_as_long_as_the_server_makes_progress() {
    let is_pending = |flush: std::pin::Pin<&mut dyn Future<Output = Result<(), ReportError>>>| {
        flush.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let queue = Queue::new(LIMITS, HANG);
    for n in 0..3 {
        queue.try_put(facts::activity(Timestamp::now(), &"c".into(), "a", n.into()));
    }
    assert_eq!(pollster::block_on(queue.batch(BATCH_FACTS_MAX)).unwrap().len(), 3);
    for _ in 0..2 {
        assert!(is_pending(std::pin::pin!(queue.flush())));
        queue.age(2 * HANG);
        let result = pollster::block_on(queue.flush());
        assert!(matches!(result, Err(ReportError::Unreachable { .. })), "{result:?}");
        queue.acknowledged(1, 0);
    }
    queue.age(2 * HANG);
    queue.refused(0, "no");
    assert!(is_pending(std::pin::pin!(queue.flush())), "a rejection counts as progress");
}

#[tokio::test]
async fn a_full_queue_makes_reports_wait_and_sheds_events() {
    let (reporter, mut server) = scripted(QueueLimits { facts: 3, bytes: 1 << 20 }, HANG);
    let call = reporter.call("c", "t").with_known_start();
    call.report_activity("a", "1").await;
    let first = server.next().await;
    for n in ["2", "3"] {
        call.report_activity("a", n).await;
    }
    call.emit(ToolProgressEvent::new("t", "no room"));
    let waits = call.clone();
    let mut fourth = tokio::spawn(async move { waits.report_activity("a", "4").await });
    assert!(tokio::time::timeout(Duration::from_millis(20), &mut fourth).await.is_err(), "the queue is full");
    assert_eq!(facts_of(reporter.counters()), (4, 0, 0, 0, 1, 3));
    first.take();
    soon(fourth).await.unwrap();
    let mut rest = Vec::new();
    while rest.len() + 1 < 4 {
        rest.extend(server.next().await.take());
    }
    assert_eq!(rest.last().unwrap(), "4");
    soon(reporter.flush()).await.unwrap();
    call.emit(ToolProgressEvent::new("t", "room"));
    assert_eq!(server.next().await.take(), ["room"]);
}

#[tokio::test]
async fn a_queue_is_also_limited_in_bytes_and_accepts_one_fact_of_any_size() {
    let (reporter, mut server) = scripted(QueueLimits { facts: 100, bytes: 1000 }, HANG);
    let call = reporter.call("c", "t").with_known_start();
    call.report_activity("a", "x".repeat(5000)).await;
    call.emit(ToolProgressEvent::new("t", "no room"));
    assert_eq!(facts_of(reporter.counters()), (2, 0, 0, 0, 1, 1));
    server.next().await.take();
    soon(reporter.flush()).await.unwrap();
    call.emit(ToolProgressEvent::new("t", "room"));
    assert_eq!(server.next().await.take(), ["room"]);
}

#[tokio::test]
async fn a_full_queue_coalesces_only_repeated_states() {
    use ProgressStatus::{Done, Running};
    let (reporter, mut server) = scripted(QueueLimits { facts: 10, bytes: 1 << 20 }, HANG);
    let call = reporter.call("c", "t");
    call.report_activity("a", "under way").await;
    let first = server.next().await;
    call.report_progress(Running, Some("the first word"), Some(0.0)).await;
    call.report_progress(Running, Some("repeated"), Some(0.1)).await;
    call.report_progress(Running, None, Some(0.2)).await;
    call.report_activity("a", "between").await;
    call.report(call.state(Running).with_loaded(1)).await;
    call.report_progress(Running, Some("base"), Some(0.3)).await;
    call.report_activity_delta(TOOL_CALL_PROGRESS_ACTIVITY_TYPE, json!(["a patch"])).await;
    call.report_progress(Done, Some("another status"), Some(1.0)).await;
    call.report_progress(Running, Some("once more"), Some(0.5)).await;
    call.emit(ToolProgressEvent::new("t", "room was made"));
    assert_eq!(facts_of(reporter.counters()), (11, 0, 2, 0, 0, 9));
    let other = reporter.call("d", "t");
    other.report_progress(Running, Some("another call"), None).await;
    // The queue is full again; the newest state itself repeats an older one.
    call.report_progress(Running, Some("the newest"), Some(0.6)).await;
    assert_eq!(facts_of(reporter.counters()), (13, 0, 3, 0, 0, 10));
    first.take();
    let body = server.next().await;
    let expected = [
        "the first word",
        "between",
        r#"{"schema":"tool-call-progress.v1","node_id":"c","call_id":"c","tool_name":"t","status":"running","loaded":1}"#,
        "base",
        r#"["a patch"]"#,
        "another status",
        "room was made",
        "another call",
        "the newest",
    ];
    let names: Vec<String> = body
        .facts
        .iter()
        .map(|fact| match &fact["payload"]["content"] {
            Value::Object(state) if !state.contains_key("message") => fact["payload"]["content"].to_string(),
            _ => name(fact),
        })
        .collect();
    assert_eq!(names, expected);
    body.take();
    soon(reporter.flush()).await.unwrap();
}

#[tokio::test]
async fn a_flush_of_a_coalesced_state_waits_for_the_repeating_one() {
    let (reporter, mut server) = scripted(QueueLimits { facts: 3, bytes: 1 << 20 }, HANG);
    let call = reporter.call("c", "t").with_known_start();
    call.report_activity("a", "under way").await;
    let first = server.next().await;
    call.report_progress(ProgressStatus::Running, Some("old"), None).await;
    let waits = reporter.clone();
    let mut flushed = tokio::spawn(async move { waits.flush().await });
    assert!(tokio::time::timeout(Duration::from_millis(20), &mut flushed).await.is_err(), "no report is acknowledged");
    call.report_activity("a", "between").await;
    call.report_progress(ProgressStatus::Running, Some("new"), None).await;
    first.take();
    let body = server.next().await;
    assert_eq!(body.names(), ["between", "new"]);
    assert!(
        tokio::time::timeout(Duration::from_millis(20), &mut flushed).await.is_err(),
        "the repeating state is not acknowledged"
    );
    body.take();
    soon(flushed).await.unwrap().unwrap();
}

#[tokio::test]
async fn no_caller_waits_longer_than_the_stall_timeout() {
    let (reporter, mut server) = scripted(QueueLimits { facts: 2, bytes: 1 << 20 }, Duration::from_millis(50));
    let call = reporter.call("c", "t");
    for n in 0..100 {
        soon(call.report_activity("a", n.to_string())).await;
    }
    let counters = facts_of(reporter.counters());
    assert_eq!(counters, (100, 0, 0, 98, 0, 2), "queued reports stay");
    server.next().await.answer(later("no route"));
    let result = flushed(&reporter, "the server has not answered yet").await;
    assert_eq!(result, Err(ReportError::Unreachable { waiting: 2, why: "no route".into() }));
    // The server returns: pending reports arrive, and new reports find room again.
    let mut there = server.next().await.take();
    while there.len() < 2 {
        there.extend(server.next().await.take());
    }
    assert_eq!(there, ["0", "1"]);
    let lost = "the queue was full and the server did not answer in time".to_owned();
    assert_eq!(flushed(&reporter, "no route").await, Err(ReportError::Lost { count: 98, why: lost }));
    call.report_activity("a", "after").await;
    assert_eq!(server.next().await.take(), ["after"]);
    assert_eq!(soon(reporter.flush()).await, Ok(()));
}

/// Flushes until the result is no longer `Unreachable` for this reason.
async fn flushed(reporter: &Reporter, of: &str) -> Result<(), ReportError> {
    loop {
        match soon(reporter.flush()).await {
            Err(ReportError::Unreachable { why, .. }) if why == of => tokio::task::yield_now().await,
            result => return result,
        }
    }
}

#[tokio::test]
async fn a_closed_reporter_sends_its_queue_accepts_nothing_more_and_ends() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    let (call, other) = (reporter.call("c", "t"), reporter.clone());
    call.report_activity("a", "1").await;
    let closing = tokio::spawn(reporter.close());
    server.next().await.take();
    assert_eq!(soon(closing).await.unwrap(), Ok(()));
    assert!(soon(server.0.recv()).await.is_none(), "the worker has ended");
    soon(call.report_activity("a", "2")).await;
    assert_eq!(facts_of(other.counters()), (2, 1, 0, 1, 0, 0));
    assert_eq!(soon(other.close()).await, Err(ReportError::Lost { count: 1, why: "the reporter is closed".into() }));
}

#[tokio::test]
async fn closing_with_an_unreachable_server_gives_up_after_the_stall_timeout() {
    let (reporter, mut server) = scripted(LIMITS, Duration::from_millis(50));
    let other = reporter.clone();
    reporter.call("c", "t").report_activity("a", "1").await;
    let closing = tokio::spawn(reporter.close());
    while let Some(asked) = soon(server.0.recv()).await {
        asked.answer(later("no route"));
    }
    let result = soon(closing).await.unwrap();
    // Either the timeout of the flush or the end of the worker comes first.
    let gone = ReportError::Lost { count: 1, why: "no route".into() };
    assert!(result == Err(gone.clone()) || matches!(result, Err(ReportError::Unreachable { waiting: 1, .. })), "{result:?}");
    if result != Err(gone.clone()) {
        assert_eq!(soon(other.flush()).await, Err(gone));
    }
    assert_eq!(facts_of(other.counters()), (1, 0, 0, 1, 0, 0));
}

#[tokio::test]
async fn pending_reports_go_out_after_the_last_handle_is_dropped() {
    let (reporter, mut server) = scripted(LIMITS, HANG);
    let call = reporter.call("c", "t");
    drop(reporter);
    call.report_activity("a", "1").await;
    let first = server.next().await;
    call.report_activity("a", "2").await;
    drop(call);
    first.take();
    assert_eq!(server.next().await.take(), ["2"]);
    assert!(soon(server.0.recv()).await.is_none(), "then the worker ends");
}

#[test]
fn the_end_of_the_runtime_loses_its_reports_and_wakes_waiting_callers() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (reporter, server) = first.block_on(async { scripted(QueueLimits { facts: 1, bytes: 1 << 20 }, HANG) });
    let call = reporter.call("c", "t");
    first.block_on(call.report_activity("a", "1"));
    drop((first, server));
    runtime().block_on(async {
        soon(call.report_activity("a", "2")).await;
        assert!(matches!(soon(reporter.flush()).await, Err(ReportError::Lost { count: 2, .. })));
        assert_eq!(soon(reporter.flush()).await, Ok(()));
    });
}

#[tokio::test]
async fn a_recording_keeps_the_newest_facts() {
    let (reporter, recording) = Reporter::recording().unwrap();
    let call = reporter.call("c", "t");
    for n in 0..RECORDED_FACTS_MAX + 3 {
        call.report_activity("a", n.to_string()).await;
    }
    soon(reporter.close()).await.unwrap();
    let facts = recording.facts();
    assert_eq!((facts.len(), name(&facts[0])), (RECORDED_FACTS_MAX, "3".to_owned()));
}

#[tokio::test]
async fn a_builder_reports_invalid_settings() {
    let error = |setup: ReporterBuilder| setup.start().unwrap_err().to_string();
    let server = "http://127.0.0.1:1";
    assert!(error(Reporter::builder("ftp://h", "r")).contains("the scheme is ftp"));
    assert!(error(Reporter::builder("https://h", "r").with_authority("none")).contains("-----BEGIN CERTIFICATE-----"));
    assert!(error(Reporter::builder("h:1", "r")).starts_with("\"h:1\" is not a valid server address"));
    assert!(error(Reporter::builder("", "r")).contains("is not a valid server address"));
    assert!(error(Reporter::builder(server, "")).starts_with("the reporter's run: an id is empty"));
    assert!(
        error(Reporter::builder(server, "r").with_agent("a\n"))
            .starts_with("the reporter's agentId: an id has a control character")
    );
    assert!(
        error(Reporter::builder(server, "r").with_producer_id(&"p".repeat(257)))
            .starts_with("the reporter's producer: an id is 257 bytes")
    );
    for setup in [Reporter::builder(server, "r").with_producer_id("é"), Reporter::builder(server, "r").with_token("a\nb")] {
        assert!(error(setup).ends_with("is not visible ASCII, which its HTTP header requires"));
    }
    let shown = format!("{:?}", Reporter::builder(server, "r").with_token("hidden"));
    assert!(!shown.contains("hidden"), "{shown}");
}

#[test]
fn producers_that_start_at_once_have_different_epochs() {
    let epochs: Vec<u64> = (0..1000).map(|_| next_epoch()).collect();
    assert!(epochs.is_sorted_by(|a, b| a < b));
    let now = Timestamp::now().as_microsecond() as u64;
    assert!(epochs[0].abs_diff(now) < 60_000_000, "microseconds");
}

/// Reads one request and answers it.
async fn answer_once(listener: &tokio::net::TcpListener, answer: &str) -> String {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    let mut bytes = [0; 4096];
    loop {
        let read = socket.read(&mut bytes).await.unwrap();
        assert!(read > 0, "{text}");
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        if text.ends_with("}]") {
            break;
        }
    }
    socket.write_all(answer.as_bytes()).await.unwrap();
    text
}

#[tokio::test]
async fn a_request_has_the_run_the_producer_and_the_first_number() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let setup = Reporter::builder(&url, "a/b ?é").with_session("s&1").with_session("s&2").with_agent("a");
    let reporter = setup.with_producer_id("p-1").with_epoch(12).with_token("t.o.k").start().unwrap();
    reporter.call("c", "t").report_activity("x", "1").await;
    let busy = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let first = soon(answer_once(&listener, busy)).await;
    let receipt = r#"{"accepted":1,"duplicates":0}"#;
    let taken = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{receipt}", receipt.len());
    let second = soon(answer_once(&listener, &taken)).await;
    assert_eq!(first, second, "the same facts under the same number");
    let (head, body) = first.split_once("\r\n\r\n").unwrap();
    let line = "POST /v1/runs/a%2Fb%20%3F%C3%A9/facts?source=agentui&sessionId=s%262&agentId=a HTTP/1.1\r\n";
    assert!(head.starts_with(line), "{head}");
    for header in [
        "producer-id: p-1",
        "producer-epoch: 12",
        "producer-seq: 0",
        "authorization: Bearer t.o.k",
        "content-type: application/json",
    ] {
        assert!(head.contains(&format!("\r\n{header}")), "{header} in {head}");
    }
    assert_eq!(serde_json::from_str::<Value>(body).unwrap()[0]["payload"]["content"], "1");
    soon(reporter.close()).await.unwrap();
}

/// The fate of one request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    /// The network loses the request.
    LostBefore,
    /// The network loses the response.
    LostAfter,
    /// A rejection does not name the fact.
    Vague,
}

/// A model of a server that follows the protocol.
#[derive(Default)]
struct Model {
    log: Vec<Value>,
    body_max: usize,
}

impl Model {
    fn take(&mut self, asked: &ScriptedRequest, fate: Fate) -> DeliveryOutcome {
        let next = self.log.len() as u64;
        if asked.seq > next {
            return DeliveryOutcome::Gap { expected: next };
        }
        if asked.facts.len() > self.body_max {
            return DeliveryOutcome::Body { why: "too large".into() };
        }
        let known = usize::try_from(next - asked.seq).unwrap().min(asked.facts.len());
        let tail = &asked.facts[known..];
        if let Some(at) = tail.iter().position(|fact| fact["payload"]["activityType"] == "poison") {
            let why = "poison".to_owned();
            return match fate {
                Fate::Vague => DeliveryOutcome::Body { why },
                _ => DeliveryOutcome::Fact { index: known + at, why },
            };
        }
        self.log.extend(tail.iter().cloned());
        DeliveryOutcome::Accepted { duplicates: known as u64 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Despite lost requests and responses, the log has every fact once and in order, or its placeholder.
    #[test]
    fn each_report_is_logged_once_and_in_order(
        poison in prop::collection::vec(prop::bool::weighted(0.15), 1..60),
        fates in prop::collection::vec(
            prop_oneof![3 => Just(Fate::Answered), 1 => Just(Fate::LostBefore), 2 => Just(Fate::LostAfter), 1 => Just(Fate::Vague)],
            1..80,
        ),
        facts_max in 1..12usize,
        body_max in 1..6usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (script, mut asked) = mpsc::unbounded_channel();
            let backoff = Backoff { initial: Duration::from_micros(1), max: Duration::from_micros(1) };
            let limits = QueueLimits { facts: facts_max, bytes: 1 << 20 };
            let reporter = Reporter::start(Sink::Script(script), limits, HANG, backoff, 3).unwrap();
            let serving = tokio::spawn(async move {
                let mut model = Model { log: Vec::new(), body_max };
                let mut fates = fates.into_iter();
                while let Some(asked) = asked.recv().await {
                    let fate = fates.next().unwrap_or(Fate::Answered);
                    let answer = match fate {
                        Fate::LostBefore => later("lost"),
                        Fate::LostAfter => {
                            model.take(&asked, fate);
                            later("lost")
                        }
                        Fate::Answered | Fate::Vague => model.take(&asked, fate),
                    };
                    asked.answer(answer);
                }
                model.log
            });
            let call = reporter.call("c", "t");
            for (n, is_poison) in poison.iter().enumerate() {
                let kind = if *is_poison { "poison" } else { "a" };
                soon(call.report_activity(kind, n.to_string())).await;
            }
            let bad = poison.iter().filter(|bad| **bad).count() as u64;
            let result = soon(reporter.flush()).await;
            prop_assert_eq!(result.is_err(), bad > 0, "{:?}", result);
            let counters = reporter.counters();
            prop_assert_eq!(facts_of(counters), (poison.len() as u64, poison.len() as u64 - bad, 0, bad, 0, 0));
            drop((call, reporter));
            let log = soon(serving).await.unwrap();
            let names: Vec<String> = log.iter().map(name).collect();
            let expected = poison.iter().enumerate().map(|(n, bad)| if *bad { "report_refused".into() } else { n.to_string() });
            prop_assert_eq!(names, expected.collect::<Vec<_>>());
            Ok::<(), TestCaseError>(())
        })?;
    }

    /// Coalescing changes neither the final state of a call, nor its statuses, nor the base of a patch.
    #[test]
    fn coalescing_loses_no_information(
        reports in prop::collection::vec((0..2usize, 0..9u8, 0..3usize, 0..16u8), 1..80),
        facts_max in 1..20usize,
    ) {
        use ProgressStatus::{Done, Pending, Running};
        let queue = Queue::new(QueueLimits { facts: facts_max, bytes: 1 << 20 }, HANG);
        let mut given = Vec::new();
        for (n, (call, kind, status, said)) in reports.into_iter().enumerate() {
            let call: Arc<str> = ["c", "d"][call].into();
            let at = Timestamp::UNIX_EPOCH;
            let fact = match kind {
                0 => facts::activity_delta(at, &call, TOOL_CALL_PROGRESS_ACTIVITY_TYPE, json!([n])),
                1 => facts::activity(at, &call, "a", n.into()),
                _ => {
                    let mut state = ToolCallProgressState::new(&call, "t", [Pending, Running, Done][status]);
                    state.progress = (said & 1 > 0).then_some(n as f64 / 100.0);
                    state.loaded = (said & 2 > 0).then_some(n as u64);
                    state.total = (said & 4 > 0).then_some(n as u64);
                    state.message = (said & 8 > 0).then(|| n.to_string());
                    facts::state(at, &call, state, kind == 2)
                }
            };
            let before = queue.counters().shed;
            queue.try_put(fact.clone());
            if queue.counters().shed == before {
                given.push(fact);
            }
        }
        let left = if given.is_empty() { Vec::new() } else { pollster::block_on(queue.batch(usize::MAX)).unwrap() };
        let left: Vec<Fact> = left.into_iter().map(|text| Fact { text, role: Role::Other }).collect();
        prop_assert_eq!(given.len() as u64, left.len() as u64 + queue.counters().coalesced);
        prop_assert!(left.len() <= facts_max);
        prop_assert_eq!(seen(&left), seen(&given));
    }
}

/// Returns each call's final state, with its statuses and patch bases in order, and all other facts.
fn seen(facts: &[Fact]) -> (BTreeMap<String, Vec<Value>>, Vec<Value>) {
    let mut calls: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
    let mut others = Vec::new();
    for fact in facts {
        let fact: Value = serde_json::from_slice(&fact.text).unwrap();
        let (state, history) = calls.entry(fact["toolCallId"].as_str().unwrap().to_owned()).or_insert((json!({}), Vec::new()));
        match &fact["payload"] {
            payload if payload["activityType"] != TOOL_CALL_PROGRESS_ACTIVITY_TYPE => others.push(fact),
            payload if payload["patch"].is_array() => history.push(json!([payload["patch"], state])),
            payload => {
                if state["status"] != payload["content"]["status"] {
                    history.push(payload["content"]["status"].clone());
                }
                state.as_object_mut().unwrap().extend(payload["content"].as_object().unwrap().clone());
            }
        }
    }
    let whole = calls.into_iter().map(|(call, (state, mut history))| {
        history.push(state);
        (call, history)
    });
    (whole.collect(), others)
}

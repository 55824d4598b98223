//! A tool's reports through the real server: where they land, who sees them, and that each is there once whatever breaks.

use crate::activities::Screen;
use crate::harness::{Client, Process, fact, start_local, start_local_with, with_timeout};
use proscenium::feed::Sizes;
use proscenium::reporter::{Counters, ProgressStatus, ReportError, Reporter, Setup, ToolCallReporter, ToolProgressEvent};
use proscenium::serve::Limits;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

fn to(at: SocketAddr, run: &str) -> Setup {
    Reporter::to(&format!("http://{at}"), run)
}

/// Seed 002's tool.
async fn index_docs(call: &ToolCallReporter) {
    call.report_progress(ProgressStatus::Running, Some("Starting indexing"), None).await;
    for i in 0..10 {
        let fraction = f64::from(i + 1) / 10.0;
        call.report_progress(ProgressStatus::Running, Some(&format!("Indexed batch {}/10", i + 1)), Some(fraction)).await;
    }
    call.report_progress(ProgressStatus::Done, Some("Indexing complete"), Some(1.0)).await;
}

/// What the n-th report says.
fn number(event: &Value) -> u64 {
    event["payload"]["patch"][0]["value"].as_u64().unwrap_or_else(|| panic!("no numbered report: {event}"))
}

async fn report(call: &ToolCallReporter, n: u64) {
    call.report_activity_delta("log", json!({"op": "add", "path": "/lines/-", "value": n})).await;
}

/// Waits until so many of the reporter's facts are acknowledged.
async fn acknowledged(reporter: &Reporter, least: u64) {
    let there = async {
        while reporter.counters().acknowledged < least {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    with_timeout("the server to acknowledge", there).await;
}

/// Stands between a reporter and its server: keeps the address while servers come and go, and breaks connections.
struct Between {
    at: SocketAddr,
    server: watch::Sender<Option<SocketAddr>>,
    /// How many answers are still to be swallowed, each with its connection.
    swallow: Arc<AtomicUsize>,
}

impl Between {
    /// In front of this server; none refuses every connection.
    async fn stand(server: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (server, to) = watch::channel(server);
        let swallow = Arc::new(AtomicUsize::new(0));
        let swallows = swallow.clone();
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let server = *to.borrow();
                if let Some(server) = server {
                    tokio::spawn(carry(near, server, swallows.clone()));
                }
            }
        });
        Self { at, server, swallow }
    }

    fn now(&self, server: Option<SocketAddr>) {
        self.server.send_replace(server);
    }
}

/// Carries bytes both ways until either side ends, or an answer is to be swallowed. That it came at all means that the server has
/// made everything durable.
async fn carry(mut near: TcpStream, server: SocketAddr, swallow: Arc<AtomicUsize>) {
    let Ok(mut far) = TcpStream::connect(server).await else { return };
    let (mut asked, mut answered) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        tokio::select! {
            read = near.read(&mut asked) => match read {
                Ok(n) if n > 0 => if far.write_all(&asked[..n]).await.is_err() { return },
                _ => return,
            },
            read = far.read(&mut answered) => match read {
                Ok(n) if n > 0 => {
                    let take_one = |left: usize| left.checked_sub(1);
                    if swallow.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one).is_ok() {
                        return;
                    }
                    if near.write_all(&answered[..n]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

fn tallied(counters: Counters) -> Counters {
    let Counters { reported, acknowledged, coalesced, dropped, shed, waiting, .. } = counters;
    assert_eq!(reported, acknowledged + coalesced + dropped + shed + waiting, "{counters:?}");
    counters
}

#[tokio::test]
async fn seed_002_s_tool_is_seen_running_and_then_done() {
    let client = start_local().await;
    let mut stream = client.open_activities("r", "", None).await;
    assert_eq!(stream.next_frame().await.kind(), "Hydrated");
    let reporter = to(client.at, "r").session("s").thread("t").agent("a").start().unwrap();
    let tool = tokio::spawn({
        let call = reporter.call("call-1", "index_docs");
        async move { index_docs(&call).await }
    });
    let mut screen = Screen::default();
    let mut statuses: Vec<(String, Option<f64>)> = Vec::new();
    while statuses.last().is_none_or(|(status, _)| status != "done") {
        let frame = stream.next_frame().await;
        screen.apply(&frame);
        if frame.data["activityType"] == "tool-call-progress" {
            let content = &screen.shown()[&("tool-call-progress".to_owned(), "call-1".to_owned())]["content"];
            statuses.push((content["status"].as_str().unwrap().to_owned(), content["progress"].as_f64()));
        }
    }
    with_timeout("the tool", tool).await.unwrap();
    assert_eq!(statuses[0].0, "running");
    assert!(statuses.is_sorted_by(|a, b| a.1 <= b.1), "{statuses:?}");
    assert_eq!(statuses.last().unwrap(), &("done".to_owned(), Some(1.0)));

    with_timeout("the reports", reporter.flush()).await.unwrap();
    assert_eq!(tallied(reporter.counters()).acknowledged, 12);
    let events = client.read_events("r", "", 100).await;
    let fractions: Vec<Option<f64>> = events.iter().map(|event| event["payload"]["content"]["progress"].as_f64()).collect();
    let tenths = (1..=10).map(|n| Some(f64::from(n) / 10.0));
    assert_eq!(fractions, std::iter::once(None).chain(tenths).chain([Some(1.0)]).collect::<Vec<_>>(), "each once, in order");
    for event in &events {
        let ids = ["sessionId", "threadId", "agentId", "toolCallId", "type", "audience", "startAudience", "surface", "owner"];
        let expected = ["s", "t", "a", "call-1", "tool.progress", "user", "user", "tool_ui", "tool"];
        assert_eq!(ids.map(|id| event[id].as_str().unwrap()), expected);
        assert!(event["timestamp"].is_string());
    }
    let shown = client.get("/v1/runs/r/activities").await.ok();
    let call = shown["activities"].as_array().unwrap().iter().find(|a| a["activityType"] == "tool-call-progress").unwrap();
    let expected = json!({
        "schema": "tool-call-progress.v1", "node_id": "call-1", "call_id": "call-1", "tool_name": "index_docs",
        "status": "done", "state": "progress", "message": "Indexing complete", "progress": 1.0,
        "reported": events[0]["sequence"], "unannounced": true,
    });
    assert_eq!(call["content"], expected);
}

#[tokio::test]
async fn activities_of_a_tool_s_own_stand_beside_the_call_and_grow_by_patches() {
    let client = start_local().await;
    let reporter = to(client.at, "r").start().unwrap();
    let call = reporter.call("c", "generate");
    call.report_activity("code-generation", "fn hello() {\n    println!(\"hi\");\n}").await;
    call.report_activity_delta("code-generation", json!([{"op": "add", "path": "/line", "value": "println!(\"world\");"}])).await;
    call.report_activity_delta("code-generation", json!({"op": "add", "path": "/more", "value": true})).await;
    let child = call.child("d", "format");
    child.report(child.state(ProgressStatus::Running).loaded(1).total(2)).await;
    with_timeout("the reports", reporter.close()).await.unwrap();
    let shown = client.get("/v1/runs/r/activities").await.ok();
    let content = |kind: &str, id: &str| {
        let is_it = |a: &&Value| a["activityType"] == kind && a["activityId"] == id;
        shown["activities"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{kind}: {shown}"))["content"].clone()
    };
    let code = json!({"text": ["fn hello() {\n    println!(\"hi\");\n}"], "line": "println!(\"world\");", "more": true});
    assert_eq!(content("code-generation", "c"), code);
    let child = content("tool-call-progress", "d");
    assert_eq!((&child["parent_call_id"], &child["parent_node_id"]), (&json!("c"), &json!("c")));
    assert_eq!((&child["loaded"], &child["total"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn users_see_what_is_reported_and_of_what_is_emitted_only_what_is_for_them() {
    let client = start_local().await;
    let reporter = to(client.at, "r").start().unwrap();
    let call = reporter.call("c", "read_file");
    let event = |message: &str| ToolProgressEvent::new("read_file", message);
    // Were it the call's first word, users would never see anything of the call.
    call.emit(event("bytes 0-65000"));
    call.report_progress(ProgressStatus::Running, Some("reading"), Some(0.1)).await;
    call.emit(event("bytes 65000-130000").percent(20.0));
    call.emit(event("a few seconds").percent(30.0).audience("user"));
    call.emit(event("for operators").audience("dashboard"));
    call.emit(event("for whom?").audience("admin"));
    reporter.emit(event("of no call"));
    call.report_progress(ProgressStatus::Done, Some("read"), Some(1.0)).await;
    call.emit(event("closed the file"));
    with_timeout("the reports", reporter.flush()).await.unwrap();
    let seen = async |audience: &str| -> Vec<String> {
        let events = client.read_events("r", &format!("audience={audience}"), 100).await;
        let message = |event: &Value| {
            let payload = &event["payload"];
            payload["message"].as_str().or(payload["content"]["message"].as_str()).expect("a message").to_owned()
        };
        events.iter().map(message).collect()
    };
    assert_eq!(seen("user").await, ["reading", "a few seconds", "read"]);
    assert_eq!(seen("dashboard").await, ["reading", "a few seconds", "for operators", "read"]);
    assert_eq!(seen("internal").await.len(), 9);
    let shown = async |audience: &str| {
        let shown = client.get(&format!("/v1/runs/r/activities?audience={audience}")).await.ok();
        let of = |kind: &str| {
            let activity = shown["activities"].as_array().unwrap().iter().find(|a| a["activityType"] == kind);
            activity.map(|a| a["content"].clone()).unwrap_or_default()
        };
        (of("tool-call-progress"), of("run"))
    };
    let (call, run) = shown("user").await;
    assert_eq!((&call["status"], &call["message"], &run["notices"]), (&json!("done"), &json!("read"), &Value::Null));
    let (call, run) = shown("internal").await;
    assert_eq!((&call["status"], &call["message"]), (&json!("done"), &json!("closed the file")), "done stays done");
    let notices: Vec<&str> = run["notices"].as_array().unwrap().iter().map(|n| n["message"].as_str().unwrap()).collect();
    assert_eq!(notices, ["bytes 0-65000", "of no call"]);
    let events = client.read_events("r", "audience=internal", 100).await;
    let twenty = events.iter().find(|event| event["payload"]["message"] == "bytes 65000-130000").unwrap();
    assert_eq!((&twenty["payload"]["percent"], &twenty["payload"]["progress"]), (&json!(20.0), &json!(0.2)));
    let whom = events.iter().find(|event| event["payload"]["message"] == "for whom?").unwrap();
    assert_eq!((&whom["audience"], &whom["sourceAudience"]), (&json!("internal"), &json!("admin")));
}

#[tokio::test]
async fn a_call_that_no_runtime_reports_starts_and_ends_for_users_without_its_output() {
    let client = start_local().await;
    let reporter = to(client.at, "r").start().unwrap();
    let call = reporter.call("c", "t");
    call.started(json!({"path": "/tmp"})).await;
    call.result(json!({"secretly": "large"})).await;
    let failing = reporter.call("d", "t");
    failing.started(json!({})).await;
    failing.failed(Some("io"), "gone").await;
    with_timeout("the reports", reporter.close()).await.unwrap();
    let shown = client.get("/v1/runs/r/activities?surfaces=tool_ui").await.ok();
    let of =
        |id: &str| shown["activities"].as_array().unwrap().iter().find(|a| a["activityId"] == id).unwrap()["content"].clone();
    let (done, failed) = (of("c"), of("d"));
    assert_eq!((&done["state"], &done["withheld"], done.get("output")), (&json!("output-available"), &json!(true), None));
    assert_eq!((&failed["state"], &failed["error"]), (&json!("output-error"), &json!({"message": "gone", "code": "io"})));
}

#[tokio::test]
async fn a_server_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing() {
    const REPORTS: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start_in(dir.path());
    let between = Between::stand(Some(server.at)).await;
    let reporter = to(between.at, "r").waiting_max(16).start().unwrap();
    let call = reporter.call("c", "t");
    call.report_activity("log", json!({"lines": []})).await;
    let tool = tokio::spawn(async move {
        for n in 0..REPORTS {
            report(&call, n).await;
        }
    });
    for share in 1..=4 {
        acknowledged(&reporter, share * REPORTS / 5).await;
        server.kill();
        server = Process::start_in(dir.path());
        between.now(Some(server.at));
    }
    with_timeout("the tool", tool).await.unwrap();
    with_timeout("the reports", reporter.flush()).await.unwrap();
    let counters = tallied(reporter.counters());
    assert_eq!((counters.acknowledged, counters.dropped), (REPORTS + 1, 0), "{counters:?}");
    let client = Client::new(server.at);
    let events = client.read_events("r", "", 1000).await;
    assert_eq!(events[1..].iter().map(number).collect::<Vec<_>>(), (0..REPORTS).collect::<Vec<_>>());
    let shown = client.get("/v1/runs/r/activities?surfaces=tool_ui").await.ok();
    assert_eq!(shown["activities"][0]["content"]["lines"].as_array().unwrap().len() as u64, REPORTS, "every patch applied");
}

#[tokio::test]
async fn what_was_taken_before_the_answer_was_lost_is_not_doubled() {
    let client = start_local().await;
    let between = Between::stand(Some(client.at)).await;
    let reporter = to(between.at, "r").start().unwrap();
    let call = reporter.call("c", "t");
    let mut expected = 0;
    for round in 1..=5 {
        between.swallow.store(round, Ordering::SeqCst);
        for n in 0..7 {
            report(&call, expected + n).await;
        }
        expected += 7;
        with_timeout("the reports", reporter.flush()).await.unwrap();
        assert_eq!(between.swallow.load(Ordering::SeqCst), 0, "answers were lost");
    }
    let events = client.read_events("r", "", 1000).await;
    assert_eq!(events.iter().map(number).collect::<Vec<_>>(), (0..expected).collect::<Vec<_>>());
    let counters = tallied(reporter.counters());
    assert_eq!(counters.acknowledged, expected);
    assert!(counters.repeated >= 5 && counters.sent > expected, "{counters:?}");
}

#[tokio::test]
async fn a_full_line_holds_reports_back_and_events_not_at_all() {
    let client = start_local().await;
    let between = Between::stand(None).await;
    let reporter = to(between.at, "r").waiting_max(4).start().unwrap();
    let call = reporter.call("c", "t");
    for n in 0..4 {
        report(&call, n).await;
    }
    call.emit(ToolProgressEvent::new("t", "no room"));
    let waiting = call.clone();
    let mut fifth = tokio::spawn(async move { report(&waiting, 4).await });
    assert!(tokio::time::timeout(Duration::from_millis(20), &mut fifth).await.is_err(), "there is no room");
    let counters = tallied(reporter.counters());
    assert_eq!((counters.waiting, counters.shed, counters.acknowledged), (4, 1, 0));
    between.now(Some(client.at));
    with_timeout("room", fifth).await.unwrap();
    with_timeout("the reports", reporter.flush()).await.unwrap();
    let events = client.read_events("r", "audience=internal", 1000).await;
    assert_eq!(events.iter().map(number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_server_that_is_not_there_holds_nobody_up_beyond_the_patience() {
    let between = Between::stand(None).await;
    let reporter = to(between.at, "r").waiting_max(2).patience(Duration::from_millis(100)).start().unwrap();
    let call = reporter.call("c", "t");
    for n in 0..500 {
        with_timeout("a report to be given up", report(&call, n)).await;
    }
    let told = with_timeout("a flush to be given up", reporter.flush()).await;
    assert!(matches!(told, Err(ReportError::Unreachable { waiting: 2, .. })), "{told:?}");
    assert_eq!(tallied(reporter.counters()).dropped, 498);
    let client = start_local().await;
    between.now(Some(client.at));
    acknowledged(&reporter, 2).await;
    let told = with_timeout("a flush", reporter.close()).await;
    assert!(matches!(told, Err(ReportError::Lost { count: 498, .. })), "{told:?}");
    assert_eq!(client.read_events("r", "", 10).await.iter().map(number).collect::<Vec<_>>(), [0, 1]);
}

#[tokio::test]
async fn a_newer_reporter_of_the_same_name_fences_the_older_one() {
    let client = start_local().await;
    let older = to(client.at, "r").producer("tools").epoch(1).start().unwrap();
    report(&older.call("c", "t"), 0).await;
    with_timeout("the reports", older.flush()).await.unwrap();
    let newer = to(client.at, "r").producer("tools").epoch(2).start().unwrap();
    report(&newer.call("c", "t"), 1).await;
    with_timeout("the reports", newer.flush()).await.unwrap();
    report(&older.call("c", "t"), 2).await;
    assert_eq!(with_timeout("the fence", older.flush()).await, Err(ReportError::Fenced { current: 2 }));
    with_timeout("a report to be dropped", report(&older.call("c", "t"), 3)).await;
    assert_eq!(tallied(older.counters()).dropped, 2);
    report(&newer.call("c", "t"), 4).await;
    with_timeout("the reports", newer.close()).await.unwrap();
    // A third one that starts now has the time for its epoch, as most will.
    let third = to(client.at, "r").producer("tools").start().unwrap();
    report(&third.call("c", "t"), 5).await;
    with_timeout("the reports", third.close()).await.unwrap();
    assert_eq!(client.read_events("r", "", 10).await.iter().map(number).collect::<Vec<_>>(), [0, 1, 4, 5]);
}

#[tokio::test]
async fn facts_that_the_server_refuses_harm_no_other() {
    let client = start_local_with(Sizes::default(), Limits { fact_bytes_max: 10_000, ..Limits::default() }).await;
    let between = Between::stand(None).await;
    let reporter = to(between.at, "r").start().unwrap();
    let call = reporter.call("c", "t");
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    for n in 0..6 {
        report(&call, 2 * n).await;
        report(&reporter.call("no\nid", "t"), n).await;
        call.report_activity("deep", deep.clone()).await;
        call.report_activity("huge", "x".repeat(10_001)).await;
        report(&call, 2 * n + 1).await;
        if n == 2 {
            // Everything before goes out together.
            between.now(Some(client.at));
        }
    }
    let told = with_timeout("the reports", reporter.flush()).await;
    assert!(matches!(&told, Err(ReportError::Lost { count: 18, .. })), "{told:?}");
    assert_eq!(tallied(reporter.counters()).acknowledged, 12);
    let events = client.read_events("r", "", 100).await;
    assert_eq!(events.iter().map(number).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    let notes = client.read_events("r", "audience=internal&type=diagnostic.changed", 100).await;
    let codes: Vec<&str> = notes
        .iter()
        .map(|note| {
            assert_eq!(note["payload"]["kind"], "report_refused");
            let why = note["payload"]["message"].as_str().unwrap();
            ["bad_member", "too_deep", "fact_too_large"].into_iter().find(|code| why.contains(code)).expect(why)
        })
        .collect();
    assert_eq!(codes, ["bad_member", "too_deep", "fact_too_large"].repeat(6));
}

#[tokio::test]
async fn a_run_that_is_erased_while_a_tool_reports_begins_anew_with_what_comes_next() {
    let client = start_local().await;
    let reporter = to(client.at, "r").start().unwrap();
    let call = reporter.call("c", "t");
    for n in 0..3 {
        report(&call, n).await;
    }
    with_timeout("the reports", reporter.flush()).await.unwrap();
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
    for n in 3..6 {
        report(&call, n).await;
    }
    with_timeout("the reports", reporter.close()).await.unwrap();
    assert_eq!(client.read_events("r", "", 10).await.iter().map(number).collect::<Vec<_>>(), [3, 4, 5]);
}

#[tokio::test]
async fn many_tools_of_one_run_report_at_once_and_each_keeps_its_order() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({}))]).await;
    let reporter = to(client.at, "r").waiting_max(8).start().unwrap();
    let tools: Vec<_> = (0..6)
        .map(|tool| {
            let call = reporter.call(&format!("c{tool}"), "t");
            tokio::spawn(async move {
                for n in 0..50 {
                    report(&call, n).await;
                }
            })
        })
        .collect();
    for tool in tools {
        with_timeout("a tool", tool).await.unwrap();
    }
    with_timeout("the reports", reporter.close()).await.unwrap();
    let events = client.read_events("r", "type=tool.progress", 1000).await;
    assert_eq!(events.len(), 300);
    for tool in 0..6 {
        let of: Vec<u64> = events.iter().filter(|event| event["toolCallId"] == format!("c{tool}")).map(number).collect();
        assert_eq!(of, (0..50).collect::<Vec<_>>());
    }
}

//! The reporter against the real server.
//!
//! Where reports arrive, who sees them, and that each arrives exactly once.

use crate::activities::Screen;
use crate::harness::{Client, Process, fact, start_local, start_local_with, with_timeout};
use proscenium::feed::FeedConfig;
use proscenium::model::RunId;
use proscenium::model::id::ID_BYTES_MAX;
use proscenium::serve::Limits;
use proscenium_reporter::{
    Counters, ProgressStatus, ReportError, Reporter, ReporterBuilder, StartError, ToolCallReporter, ToolProgressEvent,
};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

fn setup_for(at: SocketAddr, run: &str) -> ReporterBuilder {
    Reporter::builder(&format!("http://{at}"), run)
}

/// The tool of seed 002.
async fn index_docs(call: &ToolCallReporter) {
    call.report_progress(ProgressStatus::Running, Some("Starting indexing"), None).await;
    for i in 0..10 {
        let fraction = f64::from(i + 1) / 10.0;
        call.report_progress(ProgressStatus::Running, Some(&format!("Indexed batch {}/10", i + 1)), Some(fraction)).await;
    }
    call.report_progress(ProgressStatus::Done, Some("Indexing complete"), Some(1.0)).await;
}

/// Returns the number in the n-th report.
fn report_number(event: &Value) -> u64 {
    event["payload"]["patch"][0]["value"].as_u64().unwrap_or_else(|| panic!("no numbered report: {event}"))
}

async fn send_report(call: &ToolCallReporter, n: u64) {
    call.report_activity_delta("log", json!({"op": "add", "path": "/lines/-", "value": n})).await;
}

/// Waits until this many of the reporter's facts are acknowledged.
async fn wait_for_acknowledged(reporter: &Reporter, least: u64) {
    let there = async {
        while reporter.counters().acknowledged < least {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    with_timeout("the acknowledgements", there).await;
}

/// A proxy between a reporter and its server.
///
/// It keeps its address while servers change, and breaks connections.
struct Proxy {
    at: SocketAddr,
    server: watch::Sender<Option<SocketAddr>>,
    /// The number of responses to swallow, each with its connection.
    swallow: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy for this server; `None` rejects every connection.
    async fn start(server: Option<SocketAddr>) -> Self {
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
                    tokio::spawn(relay(near, server, swallows.clone()));
                }
            }
        });
        Self { at, server, swallow }
    }

    fn set_server(&self, server: Option<SocketAddr>) {
        self.server.send_replace(server);
    }
}

/// Copies bytes in both directions until a side ends or a response is to be swallowed.
///
/// A response means that the server has made every fact of the request durable.
async fn relay(mut near: TcpStream, server: SocketAddr, swallow: Arc<AtomicUsize>) {
    let Ok(mut far) = TcpStream::connect(server).await else { return };
    let (mut request, mut response) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        tokio::select! {
            read = near.read(&mut request) => match read {
                Ok(n) if n > 0 => if far.write_all(&request[..n]).await.is_err() { return },
                _ => return,
            },
            read = far.read(&mut response) => match read {
                Ok(n) if n > 0 => {
                    let take_one = |left: usize| left.checked_sub(1);
                    if swallow.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one).is_ok() {
                        return;
                    }
                    if near.write_all(&response[..n]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

fn checked_counters(counters: Counters) -> Counters {
    let Counters { reported, acknowledged, coalesced, dropped, shed, waiting, .. } = counters;
    assert_eq!(reported, acknowledged + coalesced + dropped + shed + waiting, "{counters:?}");
    counters
}

#[tokio::test]
async fn seed_002_s_tool_is_shown_running_and_then_done() {
    let client = start_local().await;
    let mut stream = client.open_activities("r", "", None).await;
    assert_eq!(stream.next_frame().await.kind(), "Hydrated");
    let reporter = setup_for(client.at, "r").with_session("s").with_thread("t").with_agent("a").start().unwrap();
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
    with_timeout("the tool's end", tool).await.unwrap();
    assert_eq!(statuses[0].0, "running");
    assert!(statuses.is_sorted_by(|a, b| a.1 <= b.1), "{statuses:?}");
    assert_eq!(statuses.last().unwrap(), &("done".to_owned(), Some(1.0)));

    with_timeout("the flush", reporter.flush()).await.unwrap();
    assert_eq!(checked_counters(reporter.counters()).acknowledged, 12);
    let events = client.read_events("r", "", 100).await;
    let fractions: Vec<Option<f64>> = events.iter().map(|event| event["payload"]["content"]["progress"].as_f64()).collect();
    let tenths = (1..=10).map(|n| Some(f64::from(n) / 10.0));
    assert_eq!(
        fractions,
        std::iter::once(None).chain(tenths).chain([Some(1.0)]).collect::<Vec<_>>(),
        "each report once, in order"
    );
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
async fn a_tool_s_own_activities_exist_beside_the_call_and_grow_by_patches() {
    let client = start_local().await;
    let reporter = setup_for(client.at, "r").start().unwrap();
    let call = reporter.call("c", "generate");
    call.report_activity("code-generation", "fn hello() {\n    println!(\"hi\");\n}").await;
    call.report_activity_delta("code-generation", json!([{"op": "add", "path": "/line", "value": "println!(\"world\");"}])).await;
    call.report_activity_delta("code-generation", json!({"op": "add", "path": "/more", "value": true})).await;
    let child = call.child("d", "format");
    child.report(child.state(ProgressStatus::Running).with_loaded(1).with_total(2)).await;
    with_timeout("the flush", reporter.close()).await.unwrap();
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
async fn users_see_reports_and_only_those_emitted_events_that_are_for_users() {
    let client = start_local().await;
    let reporter = setup_for(client.at, "r").start().unwrap();
    let call = reporter.call("c", "read_file");
    let event = |message: &str| ToolProgressEvent::new("read_file", message);
    // As the call's first fact, it would hide the whole call from users.
    call.emit(event("bytes 0-65000"));
    call.report_progress(ProgressStatus::Running, Some("reading"), Some(0.1)).await;
    call.emit(event("bytes 65000-130000").with_percent(20.0));
    call.emit(event("a few seconds").with_percent(30.0).with_audience("user"));
    call.emit(event("for operators").with_audience("dashboard"));
    call.emit(event("for whom?").with_audience("admin"));
    reporter.emit(event("of no call"));
    call.report_progress(ProgressStatus::Done, Some("read"), Some(1.0)).await;
    call.emit(event("closed the file"));
    with_timeout("the flush", reporter.flush()).await.unwrap();
    let seen = async |audience: &str| -> Vec<String> {
        let events = client.read_events("r", &format!("audience={audience}"), 100).await;
        let message = |event: &Value| {
            let payload = &event["payload"];
            payload["message"].as_str().or(payload["content"]["message"].as_str()).expect("a report has a message").to_owned()
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
    assert_eq!((&call["status"], &call["message"]), (&json!("done"), &json!("closed the file")), "a finished call stays done");
    let notices: Vec<&str> = run["notices"].as_array().unwrap().iter().map(|n| n["message"].as_str().unwrap()).collect();
    assert_eq!(notices, ["bytes 0-65000", "of no call"]);
    let events = client.read_events("r", "audience=internal", 100).await;
    let twenty = events.iter().find(|event| event["payload"]["message"] == "bytes 65000-130000").unwrap();
    assert_eq!((&twenty["payload"]["percent"], &twenty["payload"]["progress"]), (&json!(20.0), &json!(0.2)));
    let whom = events.iter().find(|event| event["payload"]["message"] == "for whom?").unwrap();
    assert_eq!((&whom["audience"], &whom["sourceAudience"]), (&json!("internal"), &json!("admin")));
}

#[tokio::test]
async fn a_call_without_a_runtime_s_facts_starts_and_ends_for_users_without_its_output() {
    let client = start_local().await;
    let reporter = setup_for(client.at, "r").start().unwrap();
    let call = reporter.call("c", "t");
    call.started(json!({"path": "/tmp"})).await;
    call.result(json!({"secretly": "large"})).await;
    let failing = reporter.call("d", "t");
    failing.started(json!({})).await;
    failing.failed(Some("io"), "gone").await;
    with_timeout("the flush", reporter.close()).await.unwrap();
    let shown = client.get("/v1/runs/r/activities?surfaces=tool_ui").await.ok();
    let of =
        |id: &str| shown["activities"].as_array().unwrap().iter().find(|a| a["activityId"] == id).unwrap()["content"].clone();
    let (done, failed) = (of("c"), of("d"));
    assert_eq!((&done["state"], &done["withheld"], done.get("output")), (&json!("output-available"), &json!(true), None));
    assert_eq!((&failed["state"], &failed["error"]), (&json!("output-error"), &json!({"message": "gone", "code": "io"})));
}

#[tokio::test]
async fn reports_arrive_exactly_once_across_server_kills() {
    const REPORTS: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start_in(dir.path());
    let proxy = Proxy::start(Some(server.at)).await;
    let reporter = setup_for(proxy.at, "r").with_queue_facts_max(16).start().unwrap();
    let call = reporter.call("c", "t");
    call.report_activity("log", json!({"lines": []})).await;
    let tool = tokio::spawn(async move {
        for n in 0..REPORTS {
            send_report(&call, n).await;
        }
    });
    for share in 1..=4 {
        wait_for_acknowledged(&reporter, share * REPORTS / 5).await;
        server.kill();
        server = Process::start_in(dir.path());
        proxy.set_server(Some(server.at));
    }
    with_timeout("the tool's end", tool).await.unwrap();
    with_timeout("the flush", reporter.flush()).await.unwrap();
    let counters = checked_counters(reporter.counters());
    assert_eq!((counters.acknowledged, counters.dropped), (REPORTS + 1, 0), "{counters:?}");
    let client = Client::new(server.at);
    let events = client.read_events("r", "", 1000).await;
    assert_eq!(events[1..].iter().map(report_number).collect::<Vec<_>>(), (0..REPORTS).collect::<Vec<_>>());
    let shown = client.get("/v1/runs/r/activities?surfaces=tool_ui").await.ok();
    assert_eq!(shown["activities"][0]["content"]["lines"].as_array().unwrap().len() as u64, REPORTS, "every patch applies");
}

#[tokio::test]
async fn facts_accepted_before_a_lost_response_are_not_duplicated() {
    let client = start_local().await;
    let proxy = Proxy::start(Some(client.at)).await;
    let reporter = setup_for(proxy.at, "r").start().unwrap();
    let call = reporter.call("c", "t");
    let mut expected = 0;
    for round in 1..=5 {
        proxy.swallow.store(round, Ordering::SeqCst);
        for n in 0..7 {
            send_report(&call, expected + n).await;
        }
        expected += 7;
        with_timeout("the flush", reporter.flush()).await.unwrap();
        assert_eq!(proxy.swallow.load(Ordering::SeqCst), 0, "the proxy swallowed the responses");
    }
    let events = client.read_events("r", "", 1000).await;
    assert_eq!(events.iter().map(report_number).collect::<Vec<_>>(), (0..expected).collect::<Vec<_>>());
    let counters = checked_counters(reporter.counters());
    assert_eq!(counters.acknowledged, expected);
    assert!(counters.repeated >= 5 && counters.sent > expected, "{counters:?}");
}

#[tokio::test]
async fn a_full_queue_delays_reports_and_sheds_events() {
    let client = start_local().await;
    let proxy = Proxy::start(None).await;
    let reporter = setup_for(proxy.at, "r").with_queue_facts_max(4).start().unwrap();
    let call = reporter.call("c", "t");
    for n in 0..4 {
        send_report(&call, n).await;
    }
    call.emit(ToolProgressEvent::new("t", "no room"));
    let waiting = call.clone();
    let mut fifth = tokio::spawn(async move { send_report(&waiting, 4).await });
    assert!(tokio::time::timeout(Duration::from_millis(20), &mut fifth).await.is_err(), "the queue is full");
    let counters = checked_counters(reporter.counters());
    assert_eq!((counters.waiting, counters.shed, counters.acknowledged), (4, 1, 0));
    proxy.set_server(Some(client.at));
    with_timeout("space in the queue", fifth).await.unwrap();
    with_timeout("the flush", reporter.flush()).await.unwrap();
    let events = client.read_events("r", "audience=internal", 1000).await;
    assert_eq!(events.iter().map(report_number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn an_unreachable_server_delays_a_tool_by_its_patience_at_most() {
    let proxy = Proxy::start(None).await;
    let reporter =
        setup_for(proxy.at, "r").with_queue_facts_max(2).with_stall_timeout(Duration::from_millis(100)).start().unwrap();
    let call = reporter.call("c", "t");
    for n in 0..500 {
        with_timeout("the drop of a report", send_report(&call, n)).await;
    }
    let outcome = with_timeout("the flush's failure", reporter.flush()).await;
    assert!(matches!(outcome, Err(ReportError::Unreachable { waiting: 2, .. })), "{outcome:?}");
    assert_eq!(checked_counters(reporter.counters()).dropped, 498);
    let client = start_local().await;
    proxy.set_server(Some(client.at));
    wait_for_acknowledged(&reporter, 2).await;
    let outcome = with_timeout("the close", reporter.close()).await;
    assert!(matches!(outcome, Err(ReportError::Lost { count: 498, .. })), "{outcome:?}");
    assert_eq!(client.read_events("r", "", 10).await.iter().map(report_number).collect::<Vec<_>>(), [0, 1]);
}

#[tokio::test]
async fn a_newer_reporter_with_the_same_producer_name_fences_the_older() {
    let client = start_local().await;
    let older = setup_for(client.at, "r").with_producer_id("tools").with_epoch(1).start().unwrap();
    send_report(&older.call("c", "t"), 0).await;
    with_timeout("the flush", older.flush()).await.unwrap();
    let newer = setup_for(client.at, "r").with_producer_id("tools").with_epoch(2).start().unwrap();
    send_report(&newer.call("c", "t"), 1).await;
    with_timeout("the flush", newer.flush()).await.unwrap();
    send_report(&older.call("c", "t"), 2).await;
    assert_eq!(with_timeout("the rejection", older.flush()).await, Err(ReportError::Fenced { current: 2 }));
    with_timeout("the drop of a report", send_report(&older.call("c", "t"), 3)).await;
    assert_eq!(checked_counters(older.counters()).dropped, 2);
    send_report(&newer.call("c", "t"), 4).await;
    with_timeout("the flush", newer.close()).await.unwrap();
    // The third one takes its start time as its epoch, as most reporters will.
    let third = setup_for(client.at, "r").with_producer_id("tools").start().unwrap();
    send_report(&third.call("c", "t"), 5).await;
    with_timeout("the flush", third.close()).await.unwrap();
    assert_eq!(client.read_events("r", "", 10).await.iter().map(report_number).collect::<Vec<_>>(), [0, 1, 4, 5]);
}

#[tokio::test]
async fn rejected_facts_do_not_affect_others() {
    let client = start_local_with(FeedConfig::default(), Limits { fact_bytes_max: 10_000, ..Limits::default() }).await;
    let proxy = Proxy::start(None).await;
    let reporter = setup_for(proxy.at, "r").start().unwrap();
    let call = reporter.call("c", "t");
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    for n in 0..6 {
        send_report(&call, 2 * n).await;
        send_report(&reporter.call("no\nid", "t"), n).await;
        call.report_activity("deep", deep.clone()).await;
        call.report_activity("huge", "x".repeat(10_001)).await;
        send_report(&call, 2 * n + 1).await;
        if n == 2 {
            // All facts before this point go out in one request.
            proxy.set_server(Some(client.at));
        }
    }
    let outcome = with_timeout("the flush", reporter.flush()).await;
    assert!(matches!(&outcome, Err(ReportError::Lost { count: 18, .. })), "{outcome:?}");
    assert_eq!(checked_counters(reporter.counters()).acknowledged, 12);
    let events = client.read_events("r", "", 100).await;
    assert_eq!(events.iter().map(report_number).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
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
async fn reports_after_an_erasure_start_the_run_anew() {
    let client = start_local().await;
    let reporter = setup_for(client.at, "r").start().unwrap();
    let call = reporter.call("c", "t");
    for n in 0..3 {
        send_report(&call, n).await;
    }
    with_timeout("the flush", reporter.flush()).await.unwrap();
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
    for n in 3..6 {
        send_report(&call, n).await;
    }
    with_timeout("the flush", reporter.close()).await.unwrap();
    assert_eq!(client.read_events("r", "", 10).await.iter().map(report_number).collect::<Vec<_>>(), [3, 4, 5]);
}

#[tokio::test]
async fn the_reporter_and_the_server_accept_the_same_ids() {
    // A reporter without reports never connects.
    const UNUSED: &str = "http://127.0.0.1:1";
    let (longest, too_long) = ("ü".repeat(ID_BYTES_MAX / 2), "ü".repeat(ID_BYTES_MAX / 2) + "x");
    for id in ["", "r", "Grüße / 走 #1", "a\nb", "a\u{7f}", "a\u{85}b", &longest, &too_long] {
        let expected = RunId::new(id).err().map(|error| error.to_string());
        for setup in [Reporter::builder(UNUSED, id), Reporter::builder(UNUSED, "r").with_session(id)] {
            let error = match setup.start() {
                Ok(_) => None,
                Err(StartError::Id { error, .. }) => Some(error.to_string()),
                Err(other) => panic!("{id:?}: {other}"),
            };
            assert_eq!(error, expected, "{id:?}");
        }
    }
}

#[tokio::test]
async fn concurrent_tools_of_one_run_keep_their_order() {
    let client = start_local().await;
    client.append("r", &[fact("run.started", json!({}))]).await;
    let reporter = setup_for(client.at, "r").with_queue_facts_max(8).start().unwrap();
    let tools: Vec<_> = (0..6)
        .map(|tool| {
            let call = reporter.call(&format!("c{tool}"), "t");
            tokio::spawn(async move {
                for n in 0..50 {
                    send_report(&call, n).await;
                }
            })
        })
        .collect();
    for tool in tools {
        with_timeout("a tool's end", tool).await.unwrap();
    }
    with_timeout("the flush", reporter.close()).await.unwrap();
    let events = client.read_events("r", "type=tool.progress", 1000).await;
    assert_eq!(events.len(), 300);
    for tool in 0..6 {
        let of: Vec<u64> = events.iter().filter(|event| event["toolCallId"] == format!("c{tool}")).map(report_number).collect();
        assert_eq!(of, (0..50).collect::<Vec<_>>());
    }
}

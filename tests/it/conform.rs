//! `proscenium conform`: the server passes for both dialects, and each planted fault fails the check that it is for.

use crate::harness::{Client, Process, fact, repository, with_timeout};
use crate::retention::start_with_stopped_clock;
use proscenium_conform::{AgUiState, ClientState, ResumeDialect, first_difference};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// A run of which every bracket is cut by some k: 11 events, of which those with k = 6, 7, 8 lack a part of a call.
fn events() -> Vec<Value> {
    vec![
        json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" }),
        json!({ "type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant" }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hel" }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "lo" }),
        json!({ "type": "TEXT_MESSAGE_END", "messageId": "m" }),
        json!({ "type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "ls" }),
        json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{\"path\":" }),
        json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "\".\"}" }),
        json!({ "type": "TOOL_CALL_END", "toolCallId": "c" }),
        json!({ "type": "TOOL_CALL_RESULT", "messageId": "res", "toolCallId": "c", "content": "a.txt" }),
        json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" }),
    ]
}

/// A message of the AI SDK.
fn chunks() -> Vec<Value> {
    vec![
        json!({ "type": "start", "messageId": "r" }),
        json!({ "type": "text-start", "id": "a" }),
        json!({ "type": "text-delta", "id": "a", "delta": "Hel" }),
        json!({ "type": "text-delta", "id": "a", "delta": "lo" }),
        json!({ "type": "text-end", "id": "a" }),
        json!({ "type": "tool-input-start", "toolCallId": "c", "toolName": "ls" }),
        json!({ "type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{}" }),
        json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "ls", "input": {} }),
        json!({ "type": "finish" }),
    ]
}

/// A fault of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    Nothing,
    NoEnd,
    NestedStart,
    NoId,
    SameId,
    IdAlone,
    SecondReader,
    LaggingReader,
    WhileAway,
    Skips,
    Repeats,
    LosesLast,
    ChangesId,
    RestartsLifecycle,
    Hangs,
    Answers500,
    WithinArguments,
    AfterReconnect,
    /// Of an AI SDK server: it skips a chunk.
    SkipsChunk,
    /// Of an AI SDK server: it always sends all, which is no fault.
    Replays,
}

use Planted::{
    AfterReconnect, Answers500, ChangesId, Hangs, IdAlone, LaggingReader, LosesLast, NestedStart, NoEnd, NoId, Nothing, Repeats,
    Replays, RestartsLifecycle, SameId, SecondReader, Skips, SkipsChunk, WhileAway, WithinArguments,
};

/// The requests so far. The driver opens four readers of the whole stream, resumes the one that went away, then each of
/// the cuts, and cuts connections last.
#[derive(Default)]
struct Requests {
    wholes: AtomicUsize,
    rests: AtomicUsize,
}

/// The part of the first rests: of the reader that went away, and of the cuts 0 to 11.
const CUTS: std::ops::RangeInclusive<usize> = 1..=12;

fn frame(n: usize, event: &Value) -> String {
    format!("data: {event}\nid: e-{}\n\n", n + 1)
}

fn frames(from: usize) -> Vec<String> {
    events().iter().enumerate().skip(from).map(|(n, event)| frame(n, event)).collect()
}

/// The whole stream for the nth of its readers.
fn whole(planted: Planted, nth: usize) -> Vec<String> {
    let mut frames = frames(0);
    match planted {
        NoEnd => drop(frames.pop()),
        NestedStart => frames[4] = frame(4, &events()[0]),
        NoId => frames[3] = format!("data: {}\n\n", events()[3]),
        SameId => frames[3] = frame(2, &events()[3]),
        IdAlone => frames[3] = format!("id: e-4\n\n{}", frames[3]),
        SecondReader if nth == 1 => drop(frames.remove(3)),
        LaggingReader if nth == 2 => drop(frames.remove(3)),
        _ => {}
    }
    frames
}

/// The rest for a client that has `k` events, by the nth request. An error is a status.
fn rest(planted: Planted, k: usize, nth: usize) -> Result<Vec<String>, u16> {
    let mut rest = frames(k);
    match (planted, k) {
        (WhileAway, _) if nth == 0 => return Err(404),
        (AfterReconnect, _) if nth > *CUTS.end() => return Err(404),
        _ if !CUTS.contains(&nth) => {}
        (Skips, 3) | (WithinArguments, 7) => drop(rest.remove(0)),
        (Repeats, 3) => rest.insert(0, frame(2, &events()[2])),
        (LosesLast, 3) => drop(rest.pop()),
        (ChangesId, 3) => rest[0] = frame(98, &events()[3]),
        (RestartsLifecycle, 3) => rest.insert(0, frame(0, &events()[0])),
        (Answers500, 3) => return Err(500),
        _ => {}
    }
    Ok(rest)
}

async fn answer(mut socket: TcpStream, planted: Planted, requests: Arc<Requests>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let number_after = |text: &str| {
        let digits = head.split(text).nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<usize>().ok()
    };
    let mut hangs = false;
    let answer = if head.starts_with("GET /missing") {
        Err(404)
    } else if head.starts_with("GET /chunks") {
        let from = number_after("from=").unwrap_or(0) * usize::from(planted != Replays);
        let chunks = chunks().into_iter().skip(from + usize::from(planted == SkipsChunk && from == 3));
        Ok(chunks.map(|chunk| format!("data: {chunk}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect())
    } else if head.starts_with("GET /whole") {
        Ok(whole(planted, requests.wholes.fetch_add(1, Ordering::Relaxed)))
    } else {
        let (k, nth) = (number_after("last-event-id: e-").unwrap_or(0), requests.rests.fetch_add(1, Ordering::Relaxed));
        hangs = planted == Hangs && k == 3 && CUTS.contains(&nth);
        rest(planted, k, nth)
    };
    let text = match answer {
        Err(status) => format!("HTTP/1.1 {status} No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"),
        Ok(frames) => {
            let frames = if hangs { String::new() } else { frames.concat() };
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n{frames}")
        }
    };
    // A client that was cut reads no more.
    let _ = socket.write_all(text.as_bytes()).await;
    if hangs {
        std::future::pending::<()>().await;
    }
}

/// Starts a server with this fault, and returns its address.
async fn start(planted: Planted) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let requests = Arc::new(Requests::default());
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer(socket, planted, requests.clone()));
        }
    });
    url
}

/// Runs the command, and returns its exit code and what it prints.
async fn conform(url: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let binary = std::env::var("PROSCENIUM_TEST_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_proscenium").to_owned());
    let mut command = Command::new(binary);
    command.current_dir(repository("")).args(["conform", "--url", url]).args(args).kill_on_drop(true);
    let output = with_timeout("the checks", command.output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The checks that fail, and the first fault.
fn failing(report: &str) -> (Vec<String>, Value) {
    let report: Value = serde_json::from_str(report).unwrap_or_else(|error| panic!("{error}: {report}"));
    let failing: Vec<_> = report["checks"].as_array().unwrap().iter().filter(|check| check["passes"] == false).collect();
    assert_eq!(report["conforms"], failing.is_empty(), "{report:#}");
    let fault = failing.first().map_or(Value::Null, |check| check["faults"][0].clone());
    (failing.iter().map(|check| check["check"].as_str().unwrap().to_owned()).collect(), fault)
}

const AG_UI: [&str; 8] = ["--dialect", "ag-ui", "--whole", "/whole", "--resume", "/rest", "--silence", "2"];
const COUNTED: [&str; 6] = ["--dialect", "ai-sdk", "--whole", "/chunks", "--resume", "/chunks?from={index}"];

#[tokio::test]
async fn each_planted_fault_fails_its_check_and_no_other() {
    for (planted, check, k, difference) in [
        (NoEnd, "whole", 10, "has not ended"),
        (NestedStart, "whole", 4, "while a run is open"),
        (NoId, "ids", 3, "has no id"),
        (SameId, "ids", 3, "has the id of event 2"),
        (IdAlone, "bytes", 3, "resumes after e-4"),
        (SecondReader, "two-readers", 99, "/messages/m/content"),
        (LaggingReader, "lagging-reader", 99, "/messages/m/content"),
        (WhileAway, "end-while-away", 11, "404"),
        (Skips, "resume", 3, "/messages/m/content it has \"Hel\" instead of \"Hello\""),
        (Repeats, "resume", 3, "has the id e-3, which the client had as event 2"),
        (LosesLast, "resume", 3, "/run"),
        (ChangesId, "resume", 3, "the id e-99, which the whole stream does not have"),
        (RestartsLifecycle, "resume", 3, "begins the lifecycle again"),
        (Hangs, "resume", 3, "does not end"),
        (Answers500, "resume", 3, "500"),
        (WithinArguments, "tool-arguments", 7, "/messages/c/toolCalls/0/arguments"),
        (AfterReconnect, "reconnect", 99, "404"),
    ] {
        let url = start(planted).await;
        let (code, report, errors) = conform(&url, &[&AG_UI[..], &["--json"]].concat()).await;
        let (failing, fault) = failing(&report);
        assert_eq!((code, failing), (Some(1), vec![check.to_owned()]), "{planted:?}: {report} {errors}");
        assert!(fault["difference"].as_str().unwrap().contains(difference), "{planted:?}: {fault}");
        // A fault of a whole reader has no k, and how far a reader that was cut had come is the network's.
        if k < 11 {
            assert_eq!(fault["k"], k, "{planted:?}: {fault}");
        }
        if check == "resume" {
            assert_eq!(fault["id"], "e-3", "{planted:?}: {fault}");
            let (_, text, _) = conform(&start(planted).await, &AG_UI).await;
            assert!(text.contains("FAIL  resume") && text.contains("k=3 id=e-3 "), "{planted:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_server_without_a_fault_passes_and_one_that_cannot_be_read_is_no_failure() {
    let url = start(Nothing).await;
    let (code, text, errors) = conform(&url, &AG_UI).await;
    assert_eq!(code, Some(0), "{text} {errors}");
    assert!(text.contains("9 of 12 cuts") || text.contains("12 of 12 cuts"), "{text}");
    assert!(text.ends_with("prefix(k) + resume(k) = whole\n"), "{text}");
    for planted in [Nothing, Replays] {
        let (code, text, errors) = conform(&start(planted).await, &COUNTED).await;
        assert_eq!(code, Some(0), "{planted:?}: {text} {errors}");
    }
    let (code, report, _) = conform(&start(SkipsChunk).await, &[&COUNTED[..], &["--json"]].concat()).await;
    let (failing, fault) = failing(&report);
    assert_eq!((code, &*failing[0], &fault["k"]), (Some(1), "resume", &json!(3)), "{report}");
    assert!(fault["difference"].as_str().unwrap().starts_with("chunk 3 is "), "{fault}");

    for args in [&["--dialect", "ag-ui"][..], &["--dialect", "ag-ui", "--whole", "/missing", "--resume", "/rest"]] {
        let (code, _, errors) = conform(&url, args).await;
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains("--run"), "{errors}");
    }
    assert_eq!(conform("http://127.0.0.1:1", &AG_UI).await.0, Some(2));
}

/// Facts of a run with text, reasoning, a call with streamed arguments, an activity and a question.
fn facts() -> Vec<Value> {
    let args = |text: &str| fact("tool.args", json!({ "toolCallId": "c", "payload": { "inputText": text } }));
    let text = |text: &str| fact("text.delta", json!({ "messageId": "m", "partId": "p", "payload": { "text": text } }));
    vec![
        fact("run.started", json!({ "sessionId": "s" })),
        fact("reasoning.delta", json!({ "messageId": "m", "partId": "t", "payload": { "text": "Let me look." } })),
        text("One "),
        text("moment."),
        fact("tool.started", json!({ "toolCallId": "c", "audience": "user", "payload": { "toolName": "ls" } })),
        args("{\"path\""),
        args(":\".\"}"),
        fact("tool.progress", json!({ "toolCallId": "c", "audience": "user", "payload": { "message": "half" } })),
        fact("tool.result", json!({ "toolCallId": "c", "audience": "user", "payload": { "output": "a.txt" } })),
        fact("plan.delta", json!({ "payload": { "text": "Then answer." } })),
        fact("text.delta", json!({ "messageId": "n", "partId": "p", "payload": { "text": "Only a.txt." } })),
        fact("run.finished", json!({})),
    ]
}

const DIALECTS: [&str; 2] = ["ag-ui", "ai-sdk"];

/// The address of an agent: its stream begins with the state of the run.
const OF_AGENT: [&str; 6] =
    ["--dialect", "ag-ui", "--whole", "/ag-ui/helper?runId={run}", "--resume", "/ag-ui/helper?runId={run}"];

async fn assert_conforms(url: &str, run: &str, args: &[&str]) {
    let (code, report, errors) = conform(url, &[&["--run", run, "--json"][..], args].concat()).await;
    assert_eq!(code, Some(0), "{run} {args:?}: {report} {errors}");
    let report: Value = serde_json::from_str(&report).unwrap();
    let events_min = if args == OF_AGENT { 3 } else { 9 };
    assert!(report["events"].as_u64() >= Some(events_min), "{report}");
}

#[tokio::test]
async fn the_server_passes_for_both_dialects() {
    let server = Process::start();
    let client = Client::new(server.at);
    let url = format!("http://{}", server.at);
    for fact in facts() {
        client.append("done", &[fact]).await;
    }
    // All in one commit: a cut lies within an envelope's events.
    client.append("at-once", &facts()).await;
    for run in ["done", "at-once"] {
        for dialect in DIALECTS {
            assert_conforms(&url, run, &["--dialect", dialect]).await;
        }
        assert_conforms(&url, run, &OF_AGENT).await;
    }
}

/// The events of a body, each with the last id that its client then has; empty for none.
fn events_of(body: &[u8]) -> Vec<(String, Value)> {
    let (mut last, mut events) = (String::new(), Vec::new());
    for lines in std::str::from_utf8(body).unwrap().split("\n\n").map(|block| block.lines().collect::<Vec<_>>()) {
        let field = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name));
        last = field("id: ").map_or(last, str::to_owned);
        events.extend(field("data: {").map(|rest| (last.clone(), serde_json::from_str(&format!("{{{rest}")).unwrap())));
    }
    events
}

#[tokio::test]
async fn a_strict_client_that_is_cut_within_the_first_events_of_a_run_goes_on() {
    let server = Process::start();
    let client = Client::new(server.at);
    client.append("r", &facts()).await;
    // It begins with the run's state in few events, which a cut in between does not find again.
    for address in ["/ag-ui/helper?runId=r", "/v1/runs/r/stream?format=ag-ui"] {
        let whole = events_of(&client.get(address).await.body);
        let mut uncut = AgUiState::default();
        for (_, event) in &whole {
            uncut.apply(event).unwrap();
        }
        for cut in 1..whole.len() {
            let rest = events_of(&client.get_with(address, &[("last-event-id", &whole[cut - 1].0)]).await.body);
            let mut state = AgUiState::default();
            for (_, event) in &whole[..cut] {
                state.apply(event).unwrap_or_else(|why| panic!("{address}, cut at {cut}: {why}"));
            }
            state.reconnect();
            for (_, event) in &rest {
                state.apply(event).unwrap_or_else(|why| panic!("{address}, cut at {cut}, in the rest: {why}"));
            }
            assert!(state.is_over(), "{address}, cut at {cut}: {rest:?}");
            assert_eq!(state.document(), uncut.document(), "{address}, cut at {cut}");
        }
    }
}

#[tokio::test]
async fn a_client_that_comes_back_to_a_compacted_run_has_each_text_once() {
    let (client, compactor) = start_with_stopped_clock().await;
    let mut facts = facts();
    let whole_text = json!({ "messageId": "m", "partId": "p", "payload": { "text": "One moment." } });
    facts.insert(facts.len() - 1, fact("text.final", whole_text));
    for fact in facts {
        client.append("r", &[fact]).await;
    }
    let ag_ui = ["/v1/runs/r/stream?format=ag-ui&replay=deltas", "/v1/runs/r/stream?format=ag-ui", "/ag-ui/helper?runId=r"];
    let addresses = ag_ui.map(|address| (ResumeDialect::AgUi, address));
    let ai_sdk = (ResumeDialect::AiSdk, "/v1/runs/r/stream?format=ai-sdk&version=7&replay=deltas");
    let mut read = Vec::new();
    for (dialect, address) in addresses.into_iter().chain([ai_sdk]) {
        read.push((dialect, address, events_of(&client.get(address).await.body)));
    }
    assert!(compactor.run_once().await.unwrap().rows > 0);
    for (dialect, address, whole) in read {
        let apply = |state: &mut ClientState, events: &[(String, Value)], cut: usize| {
            for (_, event) in events {
                state.apply(event).unwrap_or_else(|why| panic!("{address}, cut at {cut}, {event}: {why}"));
            }
        };
        let mut uncut = ClientState::new(dialect);
        apply(&mut uncut, &whole, 0);
        for cut in (1..whole.len()).filter(|cut| !whole[cut - 1].0.is_empty()) {
            let mut state = ClientState::new(dialect);
            apply(&mut state, &whole[..cut], cut);
            state.reconnect();
            let rest = events_of(&client.get_with(address, &[("last-event-id", &whole[cut - 1].0)]).await.body);
            apply(&mut state, &rest, cut);
            assert!(state.is_over(), "{address}, cut at {cut}: {rest:?}");
            let difference = first_difference(&uncut.document()["messages"], &state.document()["messages"]);
            assert_eq!(difference, None, "{address}, cut at {cut}: {rest:?}");
        }
    }
}

#[tokio::test]
async fn the_server_passes_while_the_run_is_at_work() {
    let server = Process::start();
    let client = Client::new(server.at);
    let url = format!("http://{}", server.at);
    for (run, args) in [("ag-ui", &["--dialect", "ag-ui"][..]), ("ai-sdk", &["--dialect", "ai-sdk"]), ("of-agent", &OF_AGENT)] {
        let facts = facts();
        let (first, rest) = facts.split_at(6);
        client.append(run, first).await;
        let checking = assert_conforms(&url, run, args);
        let working = async {
            // The readers of the whole stream are there.
            loop {
                let metrics = String::from_utf8(client.get("/metrics").await.body).unwrap();
                let readers = metrics.lines().filter(|line| line.starts_with("proscenium_readers{"));
                let count: f64 = readers.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
                if count >= 3.0 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            for fact in rest {
                client.append(run, std::slice::from_ref(fact)).await;
            }
        };
        Box::pin(with_timeout("the checks", async { tokio::join!(checking, working) })).await;
    }
}

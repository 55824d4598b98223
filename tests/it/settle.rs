//! Settling: a silent run ends for its readers, and an active run does not.

use crate::harness::{AUDIENCES, Client, ClockedProcess, Transport, environment, fact, serve_until, storage_in, with_timeout};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::log::embedded::Sync;
use proscenium::serve::maintenance::settle::{Settler, StalenessLimits};
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const STALENESS: StalenessLimits = StalenessLimits { stale_after: Duration::from_mins(1), settle_after: Duration::from_mins(5) };

fn server(store: Storage) -> Server {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now)).unwrap()
}

/// Starts a server in memory.
///
/// Returns its client, its settler, and the time of the settler's first pass.
async fn start_with_settler() -> (Client, Settler, Instant) {
    let server = server(Storage::memory());
    let settler = server.settler(STALENESS);
    (serve_until(server, std::future::pending()).await.0, settler, Instant::now())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn read_status(client: &Client, run: &str) -> Value {
    let run = client.get(&format!("/v1/runs/{run}?audience=internal")).await.ok();
    json!([run["status"], run["stale"], run["lastSequence"]])
}

async fn read_activities(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let answer = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    answer["activities"].as_array().unwrap().clone()
}

fn content_of<'a>(activities: &'a [Value], kind: &str) -> &'a Value {
    &activities.iter().find(|a| a["activityType"] == kind).unwrap_or_else(|| panic!("no {kind} in {activities:?}"))["content"]
}

/// A run with open activities of several kinds.
fn active_run() -> Vec<Value> {
    vec![
        fact("run.started", json!({"sessionId": "s", "threadId": "t"})),
        fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": "half an ans"}})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "build"}})),
        fact("tool.started", json!({"toolCallId": "hidden", "audience": "internal", "payload": {"toolName": "spy"}})),
    ]
}

#[tokio::test]
async fn a_silent_run_becomes_stale_and_then_failed_with_all_its_activities() {
    let (client, mut settler, begun) = start_with_settler().await;
    client.append("r", &active_run()).await;
    settler.run_once(begun).await.unwrap();
    settler.run_once(begun + seconds(59)).await.unwrap();
    assert_eq!(read_status(&client, "r").await, json!(["running", null, 4]));
    let mut screen = client.open_stream(Transport::Raw, "r", "", None).await;
    for _ in 0..3 {
        with_timeout("the first frame", screen.next()).await.unwrap();
    }

    settler.run_once(begun + seconds(60)).await.unwrap();
    assert_eq!(read_status(&client, "r").await, json!(["running", true, 5]));
    assert_eq!(content_of(&read_activities(&client, "r", "user").await, "run")["stale"], true);
    for later in [61, 200, 299] {
        settler.run_once(begun + seconds(later)).await.unwrap();
    }
    assert_eq!(read_status(&client, "r").await, json!(["running", true, 5]), "the server declares it once");

    settler.run_once(begun + seconds(300)).await.unwrap();
    settler.run_once(begun + seconds(9999)).await.unwrap();
    assert_eq!(read_status(&client, "r").await, json!(["failed", null, 6]));
    let frames: Vec<_> = screen.read_all().await.into_iter().map(|frame| frame.data).collect();
    let [stale, failed, end] = frames.as_slice() else { panic!("{frames:?}") };
    for (frame, class, sequence, payload) in [
        (stale, "run.status", 5, json!({"stale": true})),
        (
            failed,
            "run.failed",
            6,
            json!({
                "synthetic": true,
                "error": {"code": "not_heard_of", "message": "no activity for 300s; the run's runtime may be gone"},
                "retryable": true,
            }),
        ),
    ] {
        let event = &frame["event"];
        crate::schema::assert_valid("agentui-event.schema.json", event);
        let got =
            json!([event["type"], event["sequence"], event["owner"], event["sessionId"], event["threadId"], event["payload"]]);
        assert_eq!(got, json!([class, sequence, "diagnostics", "s", "t", payload]));
    }
    assert_eq!(json!([end["frame"], end["status"]]), json!(["End", "failed"]));
    for audience in AUDIENCES {
        let shown = read_activities(&client, "r", audience).await;
        let run = content_of(&shown, "run");
        assert_eq!(json!([run["status"], run["synthetic"], run["stale"]]), json!(["failed", true, null]));
        assert_eq!(content_of(&shown, "message")["parts"][0]["status"], "interrupted");
        let calls: Vec<_> = shown.iter().filter(|a| a["activityType"] == "tool-call-progress").collect();
        assert_eq!(calls.len(), if audience == "internal" { 2 } else { 1 });
        for call in calls {
            let call = &call["content"];
            assert_eq!(json!([call["status"], call["state"], call["synthetic"]]), json!(["cancelled", "cancelled", true]));
        }
    }
}

#[tokio::test]
async fn any_activity_of_a_producer_keeps_its_run_fresh_also_without_facts() {
    let (client, mut settler, begun) = start_with_settler().await;
    client.append("r", &active_run()).await;
    settler.run_once(begun).await.unwrap();

    assert_eq!(client.post_facts("r", &json!([])).await.ok()["accepted"], 0);
    settler.run_once(begun + seconds(59)).await.unwrap();
    client.post_lines("/v1/runs/r/facts", "\n").await.ok();
    settler.run_once(begun + seconds(118)).await.unwrap();
    settler.run_once(begun + seconds(177)).await.unwrap();
    assert_eq!(read_status(&client, "r").await, json!(["running", null, 4]));

    // A streamed body counts as a connected producer, however little it sends.
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Result<String, std::io::Error>>();
    let body = futures_util::stream::unfold(receiver, async |mut receiver| receiver.recv().await.map(|chunk| (chunk, receiver)));
    let streaming = tokio::spawn({
        let client = client.clone();
        async move { client.post_lines("/v1/runs/r/facts", reqwest::Body::wrap_stream(body)).await.ok() }
    });
    sender
        .send(Ok("{\"type\":\"text.delta\",\"messageId\":\"m\",\"partId\":\"p\",\"payload\":{\"text\":\"wer\"}}\n".into()))
        .unwrap();
    with_timeout("the first line", async {
        while read_status(&client, "r").await[2] != 5 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for later in [1000, 2000, 3000] {
        settler.run_once(begun + seconds(later)).await.unwrap();
    }
    assert_eq!(read_status(&client, "r").await, json!(["running", null, 5]));

    drop(sender);
    streaming.await.unwrap();
    settler.run_once(begun + seconds(3050)).await.unwrap();
    settler.run_once(begun + seconds(3109)).await.unwrap();
    assert_eq!(read_status(&client, "r").await, json!(["running", null, 5]), "silence starts at the end of the body");
    settler.run_once(begun + seconds(3110)).await.unwrap();
    assert_eq!(read_status(&client, "r").await, json!(["running", true, 6]));
    client.append("r", &[fact("metric.changed", json!({"payload": {"usage": {"inputTokens": 1}}}))]).await;
    assert_eq!(read_status(&client, "r").await, json!(["running", null, 7]), "any fact clears staleness");
}

#[tokio::test]
async fn a_waiting_run_never_becomes_stale_and_is_ended_by_a_settle_request() {
    let (client, mut settler, begun) = start_with_settler().await;
    let ask = fact("action.required", json!({"actionId": "a", "payload": {"kind": "tool_approval"}}));
    client.append("asks", &[fact("run.started", json!({})), ask]).await;
    client.append("pauses", &[fact("run.started", json!({})), fact("run.status", json!({"phase": "waiting"}))]).await;
    client.append("ended", &[fact("run.started", json!({})), fact("run.finished", json!({}))]).await;
    for later in [0, 60, 300, 100_000] {
        settler.run_once(begun + seconds(later)).await.unwrap();
    }
    let settle = async |run: &str| {
        let answer = client.post(&format!("/v1/runs/{run}/settle"), &[], "").await;
        assert_eq!(answer.headers["cache-control"], "no-store");
        answer.ok()
    };
    for run in ["asks", "pauses"] {
        assert_eq!(read_status(&client, run).await, json!(["waiting", null, 2]));
        let settled = settle(run).await;
        let outcome = json!([settled["runId"], settled["status"], settled["lastSequence"], settled["settled"]]);
        assert_eq!(outcome, json!([run, "failed", 3, true]));
        let again = settle(run).await;
        assert_eq!(json!([again["status"], again["lastSequence"], again["settled"]]), json!(["failed", 3, false]));
    }
    let shown = read_activities(&client, "asks", "user").await;
    assert_eq!(content_of(&shown, "action")["status"], "interrupted");
    assert_eq!(content_of(&shown, "run")["error"]["code"], "settled");
    let ended = settle("ended").await;
    assert_eq!(json!([ended["status"], ended["lastSequence"], ended["settled"]]), json!(["completed", 2, false]));
    client.post("/v1/runs/never/settle", &[], "").await.problem(404, "no_such_run");
    assert_eq!(client.get("/v1/runs/never").await.status, 404, "settling creates no run");
}

#[tokio::test]
async fn any_fact_reopens_a_settled_run_and_only_a_start_reopens_an_ended_one() {
    let (client, mut settler, begun) = start_with_settler().await;
    client.append("r", &active_run()).await;
    settler.run_once(begun).await.unwrap();
    settler.run_once(begun + seconds(300)).await.unwrap();
    let mut ended = client.open_stream(Transport::Raw, "r", "", None).await.read_all().await;
    let cursor = ended.pop().and_then(|end| end.id).unwrap();

    client
        .append("r", &[fact("tool.progress", json!({"toolCallId": "c", "audience": "user", "payload": {"progress": 0.5}}))])
        .await;
    let run = client.get("/v1/runs/r").await.ok();
    assert_eq!(json!([run["status"], run["attempt"], run["synthetic"], run["endedAt"]]), json!(["running", 1, null, null]));
    let shown = read_activities(&client, "r", "user").await;
    let (run, call) = (content_of(&shown, "run"), content_of(&shown, "tool-call-progress"));
    assert_eq!(json!([run["status"], run["synthetic"], run["error"], run["retryable"]]), json!(["running", null, null, null]));
    assert_eq!(json!([call["status"], call["progress"], call["synthetic"]]), json!(["running", 0.5, null]));
    let late = [
        fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": "wer"}})),
        fact("tool.result", json!({"toolCallId": "c", "audience": "user", "payload": {"output": "built"}})),
        fact("text.final", json!({"messageId": "m", "partId": "p", "payload": {"text": "half an answer"}})),
        fact("run.finished", json!({})),
    ];
    client.append("r", &late).await;
    let again = client.open_stream(Transport::Raw, "r", "", Some(&cursor)).await.read_all().await;
    assert_eq!(again.last().map(|end| end.data["status"].clone()), Some(json!("completed")), "a reader can resume the run");
    let shown = read_activities(&client, "r", "user").await;
    assert_eq!(
        content_of(&shown, "message")["parts"][0],
        json!({
            "partId": "p", "kind": "assistant_text", "opened": 2, "status": "complete", "text": ["half an answer"],
        })
    );
    assert_eq!(content_of(&shown, "tool-call-progress")["output"], "built");

    // The source ended the run: later facts do not reopen it.
    client.append("r", &[fact("text.delta", json!({"messageId": "n", "payload": {"text": "late"}}))]).await;
    assert_eq!(read_status(&client, "r").await[0], "completed");
    client.append("r", &[fact("run.started", json!({}))]).await;
    assert_eq!(client.get("/v1/runs/r").await.ok()["attempt"], 2);
}

#[tokio::test]
async fn a_restarted_server_measures_silence_anew_and_does_not_repeat_itself() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Storage::open(dir.path(), Sync::Never).unwrap();
    let first = server(open());
    let mut settler = first.settler(STALENESS);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (client, serving) = serve_until(first, async { stopped.await.unwrap() }).await;
    client.append("r", &active_run()).await;
    client.append("over", &[fact("run.started", json!({})), fact("run.finished", json!({}))]).await;
    let begun = Instant::now();
    settler.run_once(begun).await.unwrap();
    settler.run_once(begun + seconds(100)).await.unwrap();
    assert_eq!(read_status(&client, "r").await, json!(["running", true, 5]));
    stop.send(()).unwrap();
    with_timeout("the server's end", serving).await.unwrap();
    drop(settler);

    let again = server(storage_in(dir.path(), Sync::Never).await);
    let mut settler = again.settler(STALENESS);
    let (client, _serving) = serve_until(again, std::future::pending()).await;
    for later in [0, 100, 299] {
        settler.run_once(begun + seconds(1_000_000 + later)).await.unwrap();
    }
    assert_eq!(read_status(&client, "r").await, json!(["running", true, 5]));
    settler.run_once(begun + seconds(1_000_300)).await.unwrap();
    assert_eq!(read_status(&client, "r").await, json!(["failed", null, 6]));
    assert_eq!(read_status(&client, "over").await, json!(["completed", null, 2]));
}

#[tokio::test]
async fn the_binary_settles_after_the_times_of_its_flags() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = ClockedProcess::start(dir.path(), &["--stale-after", "600", "--settle-after", "7200"]);
    let client = &clocked.client;
    client.append("r", &active_run()).await;
    let mut stream = client.open_stream(Transport::Raw, "r", "audience=internal", None).await;
    let is_settled = async || read_status(client, "r").await[0] == "failed";
    let passed = clocked.advance_until("the run's end", seconds(300), is_settled).await;
    assert!(passed >= seconds(7200), "{passed:?}");
    let frames = with_timeout("the stream's end", stream.read_all()).await;
    let classes: Vec<_> = frames.iter().skip(4).map(|frame| frame.data["event"]["type"].clone()).collect();
    assert_eq!(classes, [json!("run.status"), json!("run.failed"), Value::Null]);
    let at = |index: usize| frames[index].data["event"]["receivedAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let [stale, settled] = [4, 5].map(|index| at(index).duration_since(at(3)).as_secs());
    assert!((600..7200).contains(&stale) && settled >= 7200, "stale after {stale} s, settled after {settled} s");
}

#[tokio::test]
async fn a_pass_over_many_runs_yields_to_other_tasks() {
    let (client, mut settler, begun) = start_with_settler().await;
    for n in 0..600 {
        client.append(&format!("r{n}"), &[fact("run.started", json!({}))]).await;
    }
    settler.run_once(begun).await.unwrap();
    let turns = Arc::new(AtomicU64::new(0));
    let other = tokio::spawn({
        let turns = turns.clone();
        async move {
            loop {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    settler.run_once(begun + seconds(1)).await.unwrap();
    assert!(turns.load(Ordering::Relaxed) > 0);
    other.abort();
}

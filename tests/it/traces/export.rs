//! What a collector gets of runs that end, go on, or are erased, and what an outage costs.

use super::collector::{TraceCollector, attributes};
use crate::harness::{Client, ClockedProcess, Process, fact, with_timeout};
use axum::response::IntoResponse;
use http::StatusCode;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

fn user(event_type: &str, mut members: Value) -> Value {
    members["audience"] = "user".into();
    fact(event_type, members)
}

fn started(session: &str) -> Value {
    user("run.started", json!({ "sessionId": session, "agentId": "coder", "payload": { "model": "m-1" } }))
}

fn call(id: &str) -> [Value; 2] {
    let begun = json!({ "toolCallId": id, "payload": { "toolName": "search", "input": { "query": "Public-query" } } });
    [user("tool.started", begun), user("tool.result", json!({ "toolCallId": id, "payload": { "output": "Public-result" } }))]
}

fn asks(action: &str) -> Value {
    let options = json!([{ "optionId": "ok", "label": "Yes", "kind": "allow_once" }, { "optionId": "no", "label": "No", "kind": "reject_once" }]);
    user(
        "action.required",
        json!({ "actionId": action, "payload": { "kind": "tool_approval", "title": "Go on?", "options": options } }),
    )
}

fn finished() -> Value {
    user("run.finished", json!({}))
}

async fn metric(client: &Client, name: &str) -> f64 {
    let text = client.get("/metrics").await;
    let text = String::from_utf8(text.body).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or(" 0");
    line.trim().parse().unwrap()
}

async fn wait_for_metric(client: &Client, name: &str, at_least: f64) {
    with_timeout(name, async {
        while metric(client, name).await < at_least {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_becomes_one_trace_when_it_ends_with_its_call_its_wait_and_who_decided() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), TraceCollector::start().await);
    let config = dir.path().join("proscenium.toml");
    std::fs::write(dir.path().join("secret"), "Authorization=Basic%20c2VjcmV0").unwrap();
    let secret = dir.path().join("secret");
    let text = format!("genai-endpoint = \"{}\"\ngenai-headers = {{ file = \"{}\" }}\n", collector.url, secret.display());
    std::fs::write(&config, text).unwrap();
    let process = Process::start_with(dir.path(), &["--config", config.to_str().unwrap()]);
    let client = Client::new(process.at);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut first = started("s");
    first["payload"]["traceparent"] = parent.into();
    let usage = json!({ "payload": { "usage": { "inputTokens": 12, "outputTokens": 5 }, "costUsd": 0.25 } });
    client.append("r", &[first, asks("a"), fact("metric.changed", usage)]).await;
    let approves = json!({ "control": "approve", "actionId": "a", "value": { "optionId": "ok" } });
    let path = "/v1/runs/r/controls";
    let decided = client.post(path, &[("content-type", "application/json")], approves.to_string()).await;
    assert_eq!(decided.status, 202, "{decided:?}");
    let claimed = client.post("/v1/agents/coder/controls/claim?wait=30", &[], "").await.ok()["controls"][0].clone();
    let ack = format!("/v1/controls/{}/ack", claimed["controlId"].as_str().unwrap());
    let lease = json!({ "lease": claimed["lease"] }).to_string();
    client.post(&ack, &[("content-type", "application/json")], lease).await.ok();
    let resolved =
        user("action.resolved", json!({ "actionId": "a", "payload": { "outcome": "approved", "value": { "optionId": "ok" } } }));
    let failed = [
        user("tool.started", json!({ "toolCallId": "f", "payload": { "toolName": "fetch" } })),
        user(
            "tool.failed",
            json!({ "toolCallId": "f", "payload": { "error": { "code": "timeout", "message": "Public-words" } } }),
        ),
    ];
    client.append("r", &[vec![resolved], call("c").to_vec(), failed.to_vec(), vec![finished()]].concat()).await;

    let root = collector.root("r").await;
    assert_eq!(collector.headers()["authorization"], "Basic c2VjcmV0");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        (hex(&root.trace_id), hex(&root.parent_span_id)),
        ("0af7651916cd43dd8448eb211c80319c".into(), "b7ad6b7169203331".into())
    );
    assert_eq!(root.name, "invoke_agent coder");
    let mut expected = json!({
        "gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s", "gen_ai.agent.id": "coder",
        "gen_ai.agent.name": "coder", "gen_ai.request.model": "m-1", "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5, "gen_ai.usage.cost": 0.25, "proscenium.run.id": "r", "proscenium.status": "completed",
    });
    assert_eq!(attributes(&root.attributes), expected);
    let spans = collector.spans();
    assert_eq!(spans.len(), 4, "{spans:#?}");
    assert!(spans.iter().all(|span| span.trace_id == root.trace_id && span.start_time_unix_nano <= span.end_time_unix_nano));
    let [wait, call, fetch] =
        ["wait tool_approval", "execute_tool search", "execute_tool fetch"].map(|name| collector.named(name));
    assert!([&wait, &call, &fetch].iter().all(|span| span.parent_span_id == root.span_id));
    expected = json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "c", "proscenium.status": "output-available" });
    assert_eq!(attributes(&call.attributes), expected);
    assert_eq!(fetch.status.map(|status| (status.code, status.message)), Some((SpanStatus::Error.into(), String::new())));
    assert_eq!(attributes(&fetch.attributes)["error.type"], "timeout");
    let decision = attributes(&wait.events[0].attributes);
    expected = json!({
        "proscenium.decision.outcome": "approved", "proscenium.decision.via": "rest", "proscenium.decision.option": "ok",
        "proscenium.decision.effect": "allow", "proscenium.decision.width": "once",
    });
    assert_eq!((&*wait.events[0].name, decision), ("decision", expected));
    for words in ["Public", "Go on?", "Yes"] {
        assert!(!collector.was_sent(words), "{words} is content");
    }
    wait_for_metric(&client, "proscenium_traces_total{result=\"exported\"}", 1.0).await;
}

#[tokio::test]
async fn contents_leave_only_as_the_audience_that_the_operator_names_sees_them() {
    for (audience, sees_hidden) in [("user", false), ("internal", true)] {
        let (dir, collector) = (tempfile::tempdir().unwrap(), TraceCollector::start().await);
        let process = Process::start_with(dir.path(), &["--genai-endpoint", &collector.url, "--genai-content", audience]);
        let client = Client::new(process.at);
        let says = |id: &str, words: &str, audience: &str| {
            fact("text.final", json!({ "messageId": id, "audience": audience, "payload": { "text": words } }))
        };
        let hidden =
            json!({ "toolCallId": "h", "audience": "internal", "payload": { "toolName": "look", "input": "Hidden-input" } });
        let facts = [
            vec![started("s"), fact("tool.started", hidden)],
            call("c").to_vec(),
            vec![says("m", "Public-words", "user"), says("n", "Hidden-words", "internal"), finished()],
        ];
        client.append("r", &facts.concat()).await;
        let root = collector.root("r").await;
        let call = attributes(&collector.named("execute_tool search").attributes);
        assert_eq!(call["gen_ai.tool.call.arguments"], "{\"query\":\"Public-query\"}");
        assert_eq!(call["gen_ai.tool.call.result"], "Public-result");
        let said: Value = serde_json::from_str(attributes(&root.attributes)["gen_ai.output.messages"].as_str().unwrap()).unwrap();
        assert_eq!(said[0]["parts"], json!([{ "type": "text", "content": "Public-words" }]));
        assert_eq!(collector.named("execute_tool look").parent_span_id, root.span_id, "the structure is the operator's");
        for words in ["Hidden-words", "Hidden-input"] {
            assert_eq!(collector.was_sent(words), sees_hidden, "{words} for {audience}");
        }
    }
}

/// Starts a server on a clock, with its log in a file.
fn start_logging(dir: &Path, collector: &TraceCollector) -> ClockedProcess {
    let mut command = Process::command(dir, "info,proscenium::access=error");
    let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    command.args(["--genai-endpoint", &collector.url]).stderr(Stdio::from(log));
    ClockedProcess::spawn(dir, command)
}

#[tokio::test]
async fn a_collector_that_is_away_loses_no_run_also_over_a_restart_and_each_is_one_whole_trace() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), TraceCollector::start().await);
    let process = start_logging(dir.path(), &collector);
    process.client.append("before", &[started("s"), finished()]).await;
    collector.root("before").await;
    collector.answer(|_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    for n in 0..20 {
        process.client.append(&format!("r{n:02}"), &[vec![started("s")], call("c").to_vec(), vec![finished()]].concat()).await;
    }
    wait_for_metric(&process.client, "proscenium_trace_failures_total", 1.0).await;
    process.advance(Duration::from_mins(30)).await;
    assert!(metric(&process.client, "proscenium_trace_lag_seconds").await > 1000.0);
    // Readers and writers do not wait for the collector.
    process.client.append("during", &[started("s"), finished()]).await;
    process.server.kill();
    assert_eq!(collector.roots().len(), 1);
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("does not take any")).collect();
    assert!(lines.len() == 1 && lines[0].contains("503"), "one line for an outage: {log}");
    // It comes back for some of them, and the server is killed in the middle.
    let mut left = 7;
    collector.answer(move |_| {
        left -= 1;
        if left > 0 { StatusCode::OK.into_response() } else { StatusCode::BAD_GATEWAY.into_response() }
    });
    let process = start_logging(dir.path(), &collector);
    collector.wait_for("some traces", |collector| collector.roots().len() >= 7).await;
    wait_for_metric(&process.client, "proscenium_trace_failures_total", 1.0).await;
    process.server.kill();
    collector.answer(|_| StatusCode::OK.into_response());
    let process = start_logging(dir.path(), &collector);
    collector.wait_for("all traces", |collector| collector.roots().len() == 22).await;
    let roots = collector.roots();
    for (run, roots) in &roots {
        let ids: HashSet<_> = roots.iter().map(|root| (&root.trace_id, &root.span_id)).collect();
        assert_eq!(ids.len(), 1, "{run} is one trace");
    }
    let whole: HashSet<_> = collector.spans().into_iter().map(|span| (span.trace_id, span.span_id)).collect();
    assert_eq!(whole.len(), 20 * 2 + 2, "each run with its call");
    with_timeout("the end of the lag", async {
        while metric(&process.client, "proscenium_trace_lag_seconds").await > 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_trace_that_the_collector_refuses_is_named_and_not_sent_again() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), TraceCollector::start().await);
    #[derive(Clone, PartialEq, Message)]
    struct RpcStatus {
        #[prost(string, tag = "2")]
        message: String,
    }
    collector.answer(|spans| match attributes(&spans[0].attributes)["proscenium.run.id"] == "bad" {
        true => (StatusCode::BAD_REQUEST, RpcStatus { message: "no such tenant".into() }.encode_to_vec()).into_response(),
        false => StatusCode::OK.into_response(),
    });
    let process = start_logging(dir.path(), &collector);
    process.client.append("bad", &[started("s"), finished()]).await;
    process.client.append("good", &[started("s"), finished()]).await;
    collector.root("good").await;
    process.advance(Duration::from_mins(5)).await;
    process.client.append("last", &[started("s"), finished()]).await;
    collector.root("last").await;
    assert_eq!(collector.requests(), 3, "one for each run");
    assert!((metric(&process.client, "proscenium_traces_total{result=\"refused\"}").await - 1.0).abs() < f64::EPSILON);
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let line = log.lines().find(|line| line.contains("the collector refused a trace")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("bad") && line.contains("400") && line.contains("no such tenant"), "{line}");
}

#[tokio::test]
async fn a_long_run_leaves_in_part_after_an_hour_and_its_end_completes_the_same_trace() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), TraceCollector::start().await);
    let process = ClockedProcess::start(dir.path(), &["--genai-endpoint", &collector.url]);
    // A run that waits does not age.
    process.client.append("r", &[vec![started("s")], call("c").to_vec(), vec![asks("a")]].concat()).await;
    let is_there = async || !collector.spans().is_empty();
    let after = process.advance_until("the partial trace", Duration::from_mins(5), is_there).await;
    assert!(after >= Duration::from_hours(1), "{after:?}");
    // The clock may end the time of a request that the collector took: then the same span is there again.
    let names = |collector: &TraceCollector| {
        let spans: BTreeMap<_, _> = collector.spans().into_iter().map(|span| (span.span_id, span.name)).collect();
        let mut names: Vec<_> = spans.into_values().collect();
        names.sort();
        names
    };
    assert_eq!(names(&collector), ["execute_tool search"], "what has ended");
    let trace = collector.spans()[0].trace_id.clone();
    let resolved = user("action.resolved", json!({ "actionId": "a", "payload": { "outcome": "approved" } }));
    process.client.append("r", &[vec![resolved], call("d").to_vec(), vec![finished()]].concat()).await;
    let root = collector.root("r").await;
    assert_eq!(names(&collector), ["execute_tool search", "execute_tool search", "invoke_agent coder", "wait tool_approval"]);
    assert!(collector.spans().iter().all(|span| span.trace_id == trace) && root.trace_id == trace);
}

#[tokio::test]
async fn a_run_that_is_erased_before_its_export_does_not_leave() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), TraceCollector::start().await);
    collector.answer(|_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    let flags = ["--genai-endpoint", &collector.url, "--genai-content", "internal"];
    let process = ClockedProcess::start(dir.path(), &flags);
    let client = &process.client;
    let says = user("text.final", json!({ "messageId": "m", "payload": { "text": "Erased-words" } }));
    client.append("gone", &[started("s"), says, finished()]).await;
    collector.wait_for("an attempt", |collector| collector.requests() > 0).await;
    assert_eq!(client.delete("/v1/runs/gone").await.status, 204);
    client.append("kept", &[started("t"), finished()]).await;
    collector.answer(|_| StatusCode::OK.into_response());
    let is_there = async || collector.roots().contains_key("kept");
    process.advance_until("the other trace", Duration::from_secs(2), is_there).await;
    assert_eq!(collector.roots().into_keys().collect::<Vec<_>>(), ["kept"]);
    assert!(!collector.was_sent("Erased-words") && !collector.was_sent("gone"));
    assert!((metric(client, "proscenium_traces_total{result=\"skipped\"}").await - 1.0).abs() < f64::EPSILON);
}

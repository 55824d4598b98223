//! A tool that reports its progress in three forms.
//!
//! It is seed 002's `IndexTool`, with a custom activity and an event in the form of Ethos' tools.
//!
//! `cargo run --example report_progress` starts a server in memory, reports to it, and prints the run as a user sees
//! it. `PROSCENIUM_URL=http://127.0.0.1:8787 cargo run --example report_progress` reports to a running server; watch
//! the run with `proscenium tail index-docs`.

use proscenium::environment::Environment;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::{KeepAlive, Limits, Server};
use proscenium_reporter::{ProgressStatus, Reporter, ToolCallReporter, ToolProgressEvent, trust};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;
use tokio::net::TcpListener;

const RUN: &str = "index-docs";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = match std::env::var("PROSCENIUM_URL") {
        Ok(url) => url,
        Err(_) => start_server().await?,
    };
    println!("reporting to {url}");

    let token = std::env::var("PROSCENIUM_TOKEN").ok();
    let mut headers = HeaderMap::new();
    if let Some(token) = &token {
        headers.insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}"))?);
    }
    let http = trust::client(&url, None)?.default_headers(headers).build()?;
    let publish = async |fact: Value| {
        let facts = format!("{url}/v1/runs/{RUN}/facts?sessionId=examples");
        http.post(facts).json(&fact).send().await?.error_for_status()
    };

    // A tool is called within a run, which its runtime begins and ends. Here this is both.
    publish(json!({ "type": "run.started" })).await?;
    // Create one reporter per run. Without a server, use `Reporter::none()`; the code below stays the same.
    let mut setup = Reporter::builder(&url, RUN).with_session("examples");
    if let Some(token) = &token {
        setup = setup.with_token(token);
    }
    let reporter = setup.start()?;
    index_docs(&reporter.call("call-1", "index_docs")).await;
    generate(&reporter.call("call-2", "generate")).await;

    let counters = reporter.counters();
    reporter.close().await?;
    publish(json!({ "type": "run.finished" })).await?;
    println!("{} reports, all durable\n", counters.reported);

    let shown: Value = http.get(format!("{url}/v1/runs/{RUN}/activities")).send().await?.json().await?;
    for activity in shown["activities"].as_array().into_iter().flatten() {
        println!("{} {}", activity["activityType"], activity["activityId"]);
        println!("{:#}\n", activity["content"]);
    }
    Ok(())
}

/// The tool of seed 002.
async fn index_docs(call: &ToolCallReporter) {
    call.report_progress(ProgressStatus::Running, Some("Starting indexing"), None).await;
    for i in 0..10 {
        tokio::time::sleep(Duration::from_millis(20)).await; // ... do work ...
        let fraction = f64::from(i + 1) / 10.0;
        call.report_progress(ProgressStatus::Running, Some(&format!("Indexed batch {}/10", i + 1)), Some(fraction)).await;
        // This event is for logs and telemetry; users do not see it.
        call.emit(ToolProgressEvent::new("index_docs", format!("batch {i}: 128 documents")).with_percent(fraction * 100.0));
    }
    call.report_progress(ProgressStatus::Done, Some("Indexing complete"), Some(1.0)).await;
}

/// A tool with a custom activity and a message to the user.
async fn generate(call: &ToolCallReporter) {
    call.report_progress(ProgressStatus::Running, None, None).await;
    call.emit(ToolProgressEvent::new("generate", "this takes a few seconds").with_audience("user"));
    call.report_activity("code-generation", "fn hello() {\n    println!(\"hi\");\n}").await;
    let patch = json!([{ "op": "add", "path": "/line", "value": "    println!(\"world\");" }]);
    call.report_activity_delta("code-generation", patch).await;
    call.report_progress(ProgressStatus::Done, None, None).await;
}

/// Starts a server with a store in memory and returns its URL.
async fn start_server() -> Result<String, Box<dyn Error>> {
    let store = Storage::memory();
    let server = Server::new(
        store,
        Policy::default(),
        FeedConfig::default(),
        Limits::default(),
        KeepAlive::default(),
        Environment::SYSTEM,
    )?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(server.run(listener, std::future::pending()));
    Ok(url)
}

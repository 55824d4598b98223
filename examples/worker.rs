//! An agent for any client: it claims its controls by long poll, and answers with facts.
//!
//! `cargo run --example worker -- --serve` starts a server in memory and an agent named `default`. To use a running
//! server, omit `--serve`. The guides in `docs/src/guides/` show clients for it; without a client, use `curl`: `curl
//! --json '{"control":"send","value":"hello"}' http://127.0.0.1:8787/v1/sessions/s1/controls`
//!
//! The script is in [`Turn::answer`] and [`Turn::resume`]: put your agent there. Its approval really waits, and the
//! worker keeps no state meanwhile: the decision may come days later, and to another worker.

#![expect(clippy::disallowed_methods, reason = "a worker is another process, with its own chance")]

use clap::Parser;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use proscenium::environment::Environment;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::{KeepAlive, Limits, Server};
use proscenium_reporter::trust;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

#[derive(Parser)]
struct Args {
    /// The URL of the server.
    #[arg(long, default_value = "http://127.0.0.1:8787", env = "PROSCENIUM_URL")]
    url: String,
    /// The name of this agent in controls.
    #[arg(long, default_value = "default")]
    agent: String,
    /// The access token, if required. It must permit reading, publishing and the agent's controls.
    #[arg(long, env = "PROSCENIUM_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The pause of the script after each fact, in milliseconds.
    #[arg(long, default_value_t = 60)]
    pace_ms: u64,
    /// Also start a server with a store in memory, at the address of the URL.
    #[arg(long)]
    serve: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if args.serve {
        serve(&args.url).await?;
    }
    let mut headers = HeaderMap::new();
    if let Some(token) = &args.token {
        headers.insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}"))?);
    }
    let worker = Worker {
        http: trust::client(&args.url, None)?.default_headers(headers).build()?,
        url: args.url.trim_end_matches('/').to_owned(),
        agent: args.agent,
        pace: Duration::from_millis(args.pace_ms),
        turns: Arc::default(),
    };
    println!("agent {} is at work for {}", worker.agent, worker.url);
    let mut tasks = JoinSet::new();
    loop {
        let controls = tokio::select! {
            controls = worker.claim() => controls,
            _ = tokio::signal::ctrl_c() => break,
        };
        match controls {
            Ok(controls) => controls.into_iter().for_each(|control| worker.handle(control, &mut tasks)),
            // The server may be restarting, or not running yet.
            Err(error) => {
                eprintln!("{error}");
                sleep(Duration::from_secs(1)).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
    // End the open turns. If the process is killed instead, the server detects that by its silence.
    for turn in worker.turns.lock().expect("no thread panics with the lock").values() {
        turn.send_replace(Some(EndReason::Stopped));
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// The reason why a turn stopped before its scripted end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    /// A control interrupted the turn.
    Interrupted,
    /// This process stops.
    Stopped,
    /// The server rejected a fact.
    Rejected,
}

#[derive(Clone)]
struct Worker {
    http: Client,
    url: String,
    agent: String,
    pace: Duration,
    /// The active runs, each with the sender that ends it.
    turns: Arc<Mutex<HashMap<String, watch::Sender<Option<EndReason>>>>>,
}

impl Worker {
    /// Claims the agent's controls; waits for the first one.
    async fn claim(&self) -> Result<Vec<Value>, reqwest::Error> {
        let url = format!("{}/v1/agents/{}/controls/claim?wait=30", self.url, segment(&self.agent));
        let mut claimed: Value = self.http.post(url).send().await?.error_for_status()?.json().await?;
        let controls = claimed["controls"].as_array_mut();
        Ok(controls.map(std::mem::take).unwrap_or_default())
    }

    fn handle(&self, control: Value, tasks: &mut JoinSet<()>) {
        let text = |member: &str| control[member].as_str();
        // A client that creates its own run ids sends the id with the control.
        let run = control["value"]["runId"].as_str().or(text("runId")).or(text("controlId")).unwrap_or_default().to_owned();
        let mut turns = self.turns.lock().expect("no thread panics with the lock");
        match (text("control").unwrap_or_default(), turns.get(&run)) {
            ("interrupt" | "stop", Some(turn)) => {
                turn.send_replace(Some(EndReason::Interrupted));
                tasks.spawn(self.clone().complete(control, Ok(())));
            }
            // Requeue the control, so that the server delivers it again after this turn.
            (_, Some(_)) => drop(tasks.spawn(self.clone().complete(control, Err(true)))),
            ("send" | "queue" | "approve" | "answer" | "reject" | "interrupt" | "stop", None) => {
                let (sender, end) = watch::channel(None);
                turns.insert(run.clone(), sender);
                let session = text("sessionId").map(str::to_owned);
                let turn = Turn { worker: self.clone(), run, session, producer: Uuid::now_v7().to_string(), published: 0, end };
                tasks.spawn(turn.play(control));
            }
            _ => drop(tasks.spawn(self.clone().complete(control, Err(false)))),
        }
    }

    /// Acknowledges a control, or rejects it; `Err(true)` also requeues it.
    async fn complete(self, control: Value, outcome: Result<(), bool>) {
        let (operation, body) = match outcome {
            Ok(()) => ("ack", json!({ "lease": control["lease"] })),
            Err(requeue) => {
                sleep(Duration::from_millis(if requeue { 500 } else { 0 })).await;
                ("nack", json!({ "lease": control["lease"], "reason": "this agent cannot do that now", "requeue": requeue }))
            }
        };
        let url = format!("{}/v1/controls/{}/{operation}", self.url, segment(control["controlId"].as_str().unwrap_or_default()));
        if let Err(error) = self.http.post(url).json(&body).send().await {
            eprintln!("{error}");
        }
    }
}

/// One turn of the agent.
struct Turn {
    worker: Worker,
    run: String,
    /// The session of a new run.
    session: Option<String>,
    /// The producer id. The server accepts each sequence number of a producer once.
    producer: String,
    /// The number of published facts, which is the next sequence number.
    published: usize,
    end: watch::Receiver<Option<EndReason>>,
}

impl Turn {
    /// Executes a control, up to the end of the run or its next question.
    async fn play(mut self, control: Value) {
        let played = match control["control"].as_str() {
            Some("send" | "queue") => self.answer(&control).await,
            Some("interrupt" | "stop") => {
                self.worker.clone().complete(control, Ok(())).await;
                Err(EndReason::Interrupted)
            }
            _ => self.resume(&control).await,
        };
        let last = match played {
            Err(EndReason::Interrupted) => Some(json!({ "type": "run.finished", "payload": { "status": "cancelled" } })),
            Err(EndReason::Stopped) => {
                let error = json!({ "code": "worker_stopped", "message": "The agent was stopped." });
                Some(json!({ "type": "run.failed", "payload": { "error": error, "retryable": true } }))
            }
            Ok(()) | Err(EndReason::Rejected) => None,
        };
        if let Some(last) = last {
            let _ = self.publish(&[last]).await;
        }
        self.worker.turns.lock().expect("no thread panics with the lock").remove(&self.run);
    }

    /// Plays a new turn: it starts the run with the user's messages, and requests an approval at the end.
    async fn answer(&mut self, control: &Value) -> Result<(), EndReason> {
        let run = self.run.clone();
        let value = &control["value"];
        let messages = value["messages"].as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let mut facts = vec![json!({ "type": "run.started" })];
        for (n, message) in
            messages.iter().enumerate().filter(|(_, message)| message.get("role").is_none_or(|role| role == "user"))
        {
            let id = message["id"].as_str().map_or_else(|| format!("{run}-user-{n}"), str::to_owned);
            facts.push(
                json!({ "type": "text.final", "messageId": id, "payload": { "role": "user", "text": message_text(message) } }),
            );
        }
        let published = self.publish(&facts).await;
        self.worker.clone().complete(control.clone(), published.map_err(|_| false)).await;
        published?;

        let (first, search, helper) = (format!("{run}-first"), format!("{run}-search"), format!("{run}-helper"));
        for text in ["They want ", "something; ", "I should ", "look around first."] {
            self.publish_and_pause(json!({ "type": "reasoning.delta", "messageId": first, "payload": { "text": text } })).await?;
        }
        self.publish_and_pause(json!({ "type": "reasoning.summary", "messageId": first })).await?;
        self.stream_text(&first, "Let me look around.").await?;

        let input = json!({ "path": "." });
        self.publish_and_pause(
            json!({ "type": "tool.started", "toolCallId": search, "payload": { "toolName": "search", "input": input } }),
        )
        .await?;
        for n in 1..=4 {
            let payload = json!({ "progress": f64::from(n) / 4.0, "message": format!("{n} of 4 folders") });
            // Users see a tool's progress and output only if its author sets their audience.
            self.publish_and_pause(
                json!({ "type": "tool.progress", "toolCallId": search, "audience": "user", "payload": payload }),
            )
            .await?;
        }
        let output = json!({ "output": { "files": ["a.txt", "b.txt"] }, "durationMs": 420 });
        self.publish_and_pause(json!({ "type": "tool.result", "toolCallId": search, "audience": "user", "payload": output }))
            .await?;

        let spawned = json!({ "agentName": "Helper", "runtimeEntity": "subagent", "spawnReason": "reads the files" });
        self.publish_and_pause(json!({ "type": "agent.spawned", "agentId": helper, "payload": spawned })).await?;
        for text in ["a.txt is empty, ", "b.txt is not."] {
            let id = format!("{run}-helped");
            self.publish_and_pause(
                json!({ "type": "text.delta", "agentId": helper, "messageId": id, "payload": { "text": text } }),
            )
            .await?;
        }
        self.publish_and_pause(json!({ "type": "text.final", "agentId": helper, "messageId": format!("{run}-helped") })).await?;
        self.publish_and_pause(json!({ "type": "agent.completed", "agentId": helper })).await?;

        let (delete, approval) = (format!("{run}-delete"), format!("{run}-approval"));
        let input = json!({ "path": "a.txt" });
        self.publish_and_pause(
            json!({ "type": "tool.args", "toolCallId": delete, "payload": { "toolName": "delete", "input": input } }),
        )
        .await?;
        let request = json!({ "kind": "tool_approval", "message": "May I delete a.txt?", "risk": "high" });
        self.publish_and_pause(
            json!({ "type": "action.required", "actionId": approval, "toolCallId": delete, "payload": request }),
        )
        .await
    }

    /// Resumes the run after the decision that it waits for.
    async fn resume(&mut self, control: &Value) -> Result<(), EndReason> {
        let run = self.run.clone();
        let (delete, approval) = (format!("{run}-delete"), format!("{run}-approval"));
        let is_ours = control["actionId"] == approval.as_str();
        let is_rejected = control["control"] == "reject" || control["value"]["approved"] == false;
        let outcome = if is_rejected { "rejected" } else { "approved" };
        let mut published = Err(EndReason::Rejected);
        if is_ours {
            let resolved = json!({ "outcome": outcome, "value": control["value"] });
            published = self.publish(&[json!({ "type": "action.resolved", "actionId": approval, "payload": resolved })]).await;
        }
        self.worker.clone().complete(control.clone(), published.map_err(|_| false)).await;
        published?;
        let end = match is_rejected {
            true => {
                let error = json!({ "code": "rejected", "message": "The user said no." });
                json!({ "type": "tool.failed", "toolCallId": delete, "payload": { "error": error, "neverStarted": true } })
            }
            false => {
                self.publish_and_pause(json!({ "type": "tool.started", "toolCallId": delete })).await?;
                json!({ "type": "tool.result", "toolCallId": delete, "audience": "user", "payload": { "output": "deleted" } })
            }
        };
        self.publish_and_pause(end).await?;
        self.stream_text(&format!("{run}-last"), if is_rejected { "Then a.txt stays." } else { "a.txt is gone. That was all." })
            .await?;
        self.publish_and_pause(json!({ "type": "run.finished" })).await
    }

    /// Streams a text word by word.
    async fn stream_text(&mut self, message: &str, text: &str) -> Result<(), EndReason> {
        for word in text.split_inclusive(' ') {
            self.publish_and_pause(json!({ "type": "text.delta", "messageId": message, "payload": { "text": word } })).await?;
        }
        self.publish_and_pause(json!({ "type": "text.final", "messageId": message, "payload": { "text": text } })).await
    }

    /// Publishes one fact, and pauses; a control can end the pause and the turn.
    async fn publish_and_pause(&mut self, fact: Value) -> Result<(), EndReason> {
        self.publish(&[fact]).await?;
        tokio::select! {
            () = sleep(self.worker.pace) => {}
            _ = self.end.changed() => {}
        }
        self.end.borrow().map_or(Ok(()), Err)
    }

    /// Publishes facts once and in order; repeats the request until the server answers.
    async fn publish(&mut self, facts: &[Value]) -> Result<(), EndReason> {
        let mut url = format!("{}/v1/runs/{}/facts?agentId={}", self.worker.url, segment(&self.run), segment(&self.worker.agent));
        if let Some(session) = &self.session {
            url += &format!("&sessionId={}", segment(session));
        }
        loop {
            let request = self.worker.http.post(&url).header("producer-id", &self.producer).header("producer-epoch", "0");
            match request.header("producer-seq", self.published.to_string()).json(facts).send().await {
                Ok(answer) if answer.status().is_success() => {
                    self.published += facts.len();
                    return Ok(());
                }
                Ok(answer) if answer.status().is_client_error() && answer.status() != StatusCode::TOO_MANY_REQUESTS => {
                    eprintln!("{}: {}", self.run, answer.text().await.unwrap_or_default());
                    return Err(EndReason::Rejected);
                }
                Ok(answer) => eprintln!("{}: {}", self.run, answer.status()),
                Err(error) => eprintln!("{}: {error}", self.run),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Returns the text of a message in the form of AG-UI, the AI SDK or `curl`.
///
/// It is a text, or the joined texts of the parts.
fn message_text(message: &Value) -> String {
    let content = [message, &message["content"], &message["parts"]];
    if let Some(text) = content.iter().find_map(|content| content.as_str()) {
        return text.to_owned();
    }
    let parts = content.iter().filter_map(|content| content.as_array()).flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Encodes an id as a path segment.
fn segment(id: &str) -> PercentEncode<'_> {
    utf8_percent_encode(id, NON_ALPHANUMERIC)
}

/// Starts a server with a store in memory.
async fn serve(url: &str) -> Result<(), Box<dyn Error>> {
    let store = Storage::memory();
    let server = Server::new(
        store,
        Policy::default(),
        FeedConfig::default(),
        Limits::default(),
        KeepAlive::default(),
        Environment::SYSTEM,
    )?;
    let listener = TcpListener::bind(url.trim_start_matches("http://").trim_end_matches('/')).await?;
    tokio::spawn(server.run(listener, std::future::pending()));
    Ok(())
}

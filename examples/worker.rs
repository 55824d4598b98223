//! An agent that any client can talk to: it claims what is asked of it by long poll, and answers in facts.
//!
//! `cargo run --example worker -- --serve` starts a server in memory, and an agent named `default` beside it. With a server that
//! runs already, leave `--serve` out. The guides in `docs/src/guides/` show clients to talk to it with; without any client:
//! `curl --json '{"control":"send","value":"hello"}' http://127.0.0.1:8787/v1/sessions/s1/controls`
//!
//! What it says is a script, [`Turn::answer`] and [`Turn::go_on`]: put your agent there. Its approval truly waits. While it
//! does, nothing is kept of it here: whoever decides may do so days later, and to another worker.

use clap::Parser;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::ingest::Environment;
use proscenium::log::AnyStore;
use proscenium::log::memory::MemoryStore;
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
    /// The server.
    #[arg(long, default_value = "http://127.0.0.1:8787", env = "PROSCENIUM_URL")]
    url: String,
    /// The name by which clients ask for this agent.
    #[arg(long, default_value = "default")]
    agent: String,
    /// Says who this is, where the server asks: it must be allowed to publish, to read and to take the agent's controls.
    #[arg(long, env = "PROSCENIUM_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// How long the script rests after each fact, in milliseconds.
    #[arg(long, default_value_t = 60)]
    pace_ms: u64,
    /// Start a server in memory, too, at the URL's address.
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
    println!("{} is at work for {}", worker.agent, worker.url);
    let mut tasks = JoinSet::new();
    loop {
        let controls = tokio::select! {
            controls = worker.claim() => controls,
            _ = tokio::signal::ctrl_c() => break,
        };
        match controls {
            Ok(controls) => controls.into_iter().for_each(|control| worker.take(control, &mut tasks)),
            // It is restarted, or not there yet.
            Err(error) => {
                eprintln!("{error}");
                sleep(Duration::from_secs(1)).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
    // Who leaves says so; of one that is killed, the server finds out by its silence.
    for turn in worker.turns.lock().expect("nobody panics with it").values() {
        turn.send_replace(Some(Why::Leaves));
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Why a turn is not played to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Somebody asked for that.
    Interrupted,
    /// This process stops.
    Leaves,
    /// The server does not take what is said.
    Refused,
}

#[derive(Clone)]
struct Worker {
    http: Client,
    url: String,
    agent: String,
    pace: Duration,
    /// The runs in which something is being said, and how to end that.
    turns: Arc<Mutex<HashMap<String, watch::Sender<Option<Why>>>>>,
}

impl Worker {
    /// What somebody asked of the agent, as soon as there is something.
    async fn claim(&self) -> Result<Vec<Value>, reqwest::Error> {
        let url = format!("{}/v1/agents/{}/controls/claim?wait=30", self.url, segment(&self.agent));
        let mut claimed: Value = self.http.post(url).send().await?.error_for_status()?.json().await?;
        let controls = claimed["controls"].as_array_mut();
        Ok(controls.map(std::mem::take).unwrap_or_default())
    }

    fn take(&self, control: Value, tasks: &mut JoinSet<()>) {
        let text = |member: &str| control[member].as_str();
        // A client that has runs of its own says which one this is to be.
        let run = control["value"]["runId"].as_str().or(text("runId")).or(text("controlId")).unwrap_or_default().to_owned();
        let mut turns = self.turns.lock().expect("nobody panics with it");
        match (text("control").unwrap_or_default(), turns.get(&run)) {
            ("interrupt" | "stop", Some(turn)) => {
                turn.send_replace(Some(Why::Interrupted));
                tasks.spawn(self.clone().settle(control, Ok(())));
            }
            // It comes again when this turn is over.
            (_, Some(_)) => drop(tasks.spawn(self.clone().settle(control, Err(true)))),
            ("send" | "queue" | "approve" | "answer" | "reject" | "interrupt" | "stop", None) => {
                let (told, end) = watch::channel(None);
                turns.insert(run.clone(), told);
                let session = text("sessionId").map(str::to_owned);
                let turn = Turn { worker: self.clone(), run, session, producer: Uuid::now_v7().to_string(), said: 0, end };
                tasks.spawn(turn.play(control));
            }
            _ => drop(tasks.spawn(self.clone().settle(control, Err(false)))),
        }
    }

    /// Answers a control: it is taken, or it is not, and whether it is to come again.
    async fn settle(self, control: Value, how: Result<(), bool>) {
        let (how, body) = match how {
            Ok(()) => ("ack", json!({ "lease": control["lease"] })),
            Err(requeue) => {
                sleep(Duration::from_millis(if requeue { 500 } else { 0 })).await;
                (
                    "nack",
                    json!({ "lease": control["lease"], "reason": "not something that this agent can do now", "requeue": requeue }),
                )
            }
        };
        let url = format!("{}/v1/controls/{}/{how}", self.url, segment(control["controlId"].as_str().unwrap_or_default()));
        if let Err(error) = self.http.post(url).json(&body).send().await {
            eprintln!("{error}");
        }
    }
}

/// One run in which the agent is speaking.
struct Turn {
    worker: Worker,
    run: String,
    /// Where it belongs, of a run that begins.
    session: Option<String>,
    /// Whose facts these are, and how many there were: sent twice, they are taken once.
    producer: String,
    said: usize,
    end: watch::Receiver<Option<Why>>,
}

impl Turn {
    /// Does what a control asks for, to the run's end or to its next question.
    async fn play(mut self, control: Value) {
        let played = match control["control"].as_str() {
            Some("send" | "queue") => self.answer(&control).await,
            Some("interrupt" | "stop") => {
                self.worker.clone().settle(control, Ok(())).await;
                Err(Why::Interrupted)
            }
            _ => self.go_on(&control).await,
        };
        let last = match played {
            Err(Why::Interrupted) => Some(json!({ "type": "run.finished", "payload": { "status": "cancelled" } })),
            Err(Why::Leaves) => {
                let error = json!({ "code": "worker_stopped", "message": "The agent was stopped." });
                Some(json!({ "type": "run.failed", "payload": { "error": error, "retryable": true } }))
            }
            Ok(()) | Err(Why::Refused) => None,
        };
        if let Some(last) = last {
            let _ = self.publish(&[last]).await;
        }
        self.worker.turns.lock().expect("nobody panics with it").remove(&self.run);
    }

    /// A new turn: the run starts, with what the user said, and ends or waits.
    async fn answer(&mut self, control: &Value) -> Result<(), Why> {
        let run = self.run.clone();
        let asked = &control["value"];
        let said = asked["messages"].as_array().map_or(std::slice::from_ref(asked), Vec::as_slice);
        let mut facts = vec![json!({ "type": "run.started" })];
        for (n, message) in said.iter().enumerate().filter(|(_, message)| message.get("role").is_none_or(|role| role == "user")) {
            let id = message["id"].as_str().map_or_else(|| format!("{run}-user-{n}"), str::to_owned);
            facts.push(json!({ "type": "text.final", "messageId": id, "payload": { "role": "user", "text": words(message) } }));
        }
        let taken = self.publish(&facts).await;
        self.worker.clone().settle(control.clone(), taken.map_err(|_| false)).await;
        taken?;

        let (first, search, helper) = (format!("{run}-first"), format!("{run}-search"), format!("{run}-helper"));
        for text in ["They want ", "something; ", "I should ", "look around first."] {
            self.say(json!({ "type": "reasoning.delta", "messageId": first, "payload": { "text": text } })).await?;
        }
        self.say(json!({ "type": "reasoning.summary", "messageId": first })).await?;
        self.speak(&first, "Let me look around.").await?;

        let input = json!({ "path": "." });
        self.say(json!({ "type": "tool.started", "toolCallId": search, "payload": { "toolName": "search", "input": input } }))
            .await?;
        for n in 1..=4 {
            let payload = json!({ "progress": f64::from(n) / 4.0, "message": format!("{n} of 4 folders") });
            // Of what a tool does and returns, users see what its author shows them.
            self.say(json!({ "type": "tool.progress", "toolCallId": search, "audience": "user", "payload": payload })).await?;
        }
        let output = json!({ "output": { "files": ["a.txt", "b.txt"] }, "durationMs": 420 });
        self.say(json!({ "type": "tool.result", "toolCallId": search, "audience": "user", "payload": output })).await?;

        let spawned = json!({ "agentName": "Helper", "runtimeEntity": "subagent", "spawnReason": "reads the files" });
        self.say(json!({ "type": "agent.spawned", "agentId": helper, "payload": spawned })).await?;
        for text in ["a.txt is empty, ", "b.txt is not."] {
            let id = format!("{run}-helped");
            self.say(json!({ "type": "text.delta", "agentId": helper, "messageId": id, "payload": { "text": text } })).await?;
        }
        self.say(json!({ "type": "text.final", "agentId": helper, "messageId": format!("{run}-helped") })).await?;
        self.say(json!({ "type": "agent.completed", "agentId": helper })).await?;

        let (delete, approval) = (format!("{run}-delete"), format!("{run}-approval"));
        let input = json!({ "path": "a.txt" });
        self.say(json!({ "type": "tool.args", "toolCallId": delete, "payload": { "toolName": "delete", "input": input } }))
            .await?;
        let asks = json!({ "kind": "tool_approval", "message": "May I delete a.txt?", "risk": "high" });
        self.say(json!({ "type": "action.required", "actionId": approval, "toolCallId": delete, "payload": asks })).await
    }

    /// Somebody decided what the run waits for.
    async fn go_on(&mut self, control: &Value) -> Result<(), Why> {
        let run = self.run.clone();
        let (delete, approval) = (format!("{run}-delete"), format!("{run}-approval"));
        let is_ours = control["actionId"] == approval.as_str();
        let said_no = control["control"] == "reject" || control["value"]["approved"] == false;
        let outcome = if said_no { "rejected" } else { "approved" };
        let mut taken = Err(Why::Refused);
        if is_ours {
            let resolved = json!({ "outcome": outcome, "value": control["value"] });
            taken = self.publish(&[json!({ "type": "action.resolved", "actionId": approval, "payload": resolved })]).await;
        }
        self.worker.clone().settle(control.clone(), taken.map_err(|_| false)).await;
        taken?;
        let end = match said_no {
            true => {
                let error = json!({ "code": "rejected", "message": "The user said no." });
                json!({ "type": "tool.failed", "toolCallId": delete, "payload": { "error": error, "neverStarted": true } })
            }
            false => {
                self.say(json!({ "type": "tool.started", "toolCallId": delete })).await?;
                json!({ "type": "tool.result", "toolCallId": delete, "audience": "user", "payload": { "output": "deleted" } })
            }
        };
        self.say(end).await?;
        self.speak(&format!("{run}-last"), if said_no { "Then a.txt stays." } else { "a.txt is gone. That was all." }).await?;
        self.say(json!({ "type": "run.finished" })).await
    }

    /// Says a text, word by word.
    async fn speak(&mut self, message: &str, text: &str) -> Result<(), Why> {
        for word in text.split_inclusive(' ') {
            self.say(json!({ "type": "text.delta", "messageId": message, "payload": { "text": word } })).await?;
        }
        self.say(json!({ "type": "text.final", "messageId": message, "payload": { "text": text } })).await
    }

    /// Says one thing, and rests, unless somebody asks for the end.
    async fn say(&mut self, fact: Value) -> Result<(), Why> {
        self.publish(&[fact]).await?;
        tokio::select! {
            () = sleep(self.worker.pace) => {}
            _ = self.end.changed() => {}
        }
        self.end.borrow().map_or(Ok(()), Err)
    }

    /// Gets facts into the run's log, once and in order, however often the server has to be asked.
    async fn publish(&mut self, facts: &[Value]) -> Result<(), Why> {
        let mut url = format!("{}/v1/runs/{}/facts?agentId={}", self.worker.url, segment(&self.run), segment(&self.worker.agent));
        if let Some(session) = &self.session {
            url += &format!("&sessionId={}", segment(session));
        }
        loop {
            let request = self.worker.http.post(&url).header("producer-id", &self.producer).header("producer-epoch", "0");
            match request.header("producer-seq", self.said.to_string()).json(facts).send().await {
                Ok(answer) if answer.status().is_success() => {
                    self.said += facts.len();
                    return Ok(());
                }
                Ok(answer) if answer.status().is_client_error() && answer.status() != StatusCode::TOO_MANY_REQUESTS => {
                    eprintln!("{}: {}", self.run, answer.text().await.unwrap_or_default());
                    return Err(Why::Refused);
                }
                Ok(answer) => eprintln!("{}: {}", self.run, answer.status()),
                Err(error) => eprintln!("{}: {error}", self.run),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

/// What a message says, as AG-UI, AI SDK or `curl` put it: a text, or parts of which some are.
fn words(message: &Value) -> String {
    let content = [message, &message["content"], &message["parts"]];
    if let Some(text) = content.iter().find_map(|content| content.as_str()) {
        return text.to_owned();
    }
    let parts = content.iter().filter_map(|content| content.as_array()).flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// An id as a part of an address.
fn segment(id: &str) -> PercentEncode<'_> {
    utf8_percent_encode(id, NON_ALPHANUMERIC)
}

/// Starts a server that forgets everything when this process ends.
async fn serve(url: &str) -> Result<(), Box<dyn Error>> {
    let random = || {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).expect("the system has randomness");
        u128::from_ne_bytes(bits)
    };
    let environment = Environment { now: jiff::Timestamp::now, random };
    let store = AnyStore::Memory(MemoryStore::new());
    let server =
        Server::new(store, Policy::default(), FeedConfig::default(), Limits::default(), KeepAlive::default(), environment)?;
    let listener = TcpListener::bind(url.trim_start_matches("http://").trim_end_matches('/')).await?;
    tokio::spawn(server.run(listener, std::future::pending()));
    Ok(())
}

//! The commands that list, decide and manage on a running server, by its HTTP API.
//!
//! ```text
//!   arguments ─▶ requests (here) ─▶ JSON ─┬─▶ --json: one object, as the server answered
//!                                         └─▶ a table in the window's width (`table`), or a sentence
//! ```

mod acp;
mod backup;
mod decide;
mod decisions;
mod erase;
mod holds;
mod lists;
mod manage;
mod retention;
mod send;
mod table;

use super::screen::one_line;
use super::{CliError, Endpoint, encoded};
use reqwest::Method;
use serde_json::{Map, Value};
use std::io::{self, Write};

/// Items of one page at most. A server may send fewer.
const PAGE_MAX: usize = 1000;

/// A command that a running server carries out.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum RemoteCommand {
    /// List runs: all, or those of a filter, in any order.
    Runs(lists::Runs),
    /// List sessions, those with the newest activity first, or find them by their texts.
    Sessions(lists::Sessions),
    /// List what waits for a decision, oldest first.
    Inbox(lists::Inbox),
    /// Approve a pending action.
    Approve(decide::Approve),
    /// Reject a pending action.
    Reject(decide::Reject),
    /// Answer a pending question.
    Answer(decide::Answer),
    /// Print what a run or a session asked, what was decided, and by whom.
    Decisions(decisions::Decisions),
    /// Speak the Agent Client Protocol on standard streams, for editors.
    Acp(acp::Acp),
    /// Back up the store of a running server to a directory.
    Backup(backup::Backup),
    /// Send a message to the agent of a session.
    Send(send::Send),
    /// Ask the runtime of a run to stop it.
    Stop(send::RunArgs),
    /// End a run whose runtime is gone.
    Settle(send::RunArgs),
    /// Erase a run, a session or all data of an owner, permanently.
    Erase(erase::Erase),
    /// List, set or lift legal holds.
    Holds(holds::Holds),
    /// Show what rules of retention would do now.
    Retention(retention::Retention),
    /// List, make or end share links.
    Links(manage::Links),
    /// List, make, test or remove webhooks.
    Webhooks(manage::Webhooks),
}

/// Carries out a command.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn run(command: RemoteCommand) -> Result<(), CliError> {
    match command {
        RemoteCommand::Runs(args) => lists::runs(args).await,
        RemoteCommand::Sessions(args) => lists::sessions(args).await,
        RemoteCommand::Inbox(args) => lists::inbox(args).await,
        RemoteCommand::Approve(args) => decide::approve(args).await,
        RemoteCommand::Reject(args) => decide::reject(args).await,
        RemoteCommand::Answer(args) => decide::answer(args).await,
        RemoteCommand::Decisions(args) => decisions::run(args).await,
        RemoteCommand::Acp(args) => acp::run(args).await,
        RemoteCommand::Backup(args) => backup::run(args).await,
        RemoteCommand::Send(args) => send::send(args).await,
        RemoteCommand::Stop(args) => send::stop(args).await,
        RemoteCommand::Settle(args) => send::settle(args).await,
        RemoteCommand::Erase(args) => erase::run(args).await,
        RemoteCommand::Holds(args) => holds::run(args).await,
        RemoteCommand::Retention(args) => retention::run(args).await,
        RemoteCommand::Links(args) => manage::links(args).await,
        RemoteCommand::Webhooks(args) => manage::webhooks(args).await,
    }
}

/// How a command prints.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Output {
    /// Print one JSON object.
    #[arg(long, global = true, env = "PROSCENIUM_JSON", value_parser = clap::builder::BoolishValueParser::new())]
    json: bool,
}

impl Output {
    /// Prints an answer: as one line of JSON, or as a person reads it.
    pub(super) fn print(self, answer: &Value, for_people: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        match self.json {
            true => writeln!(out, "{answer}")?,
            false => for_people(&mut out)?,
        }
        Ok(out.flush()?)
    }
}

/// A connection to the server, for requests with JSON answers.
struct Api<'e> {
    server: &'e Endpoint,
    client: reqwest::Client,
}

impl<'e> Api<'e> {
    fn new(server: &'e Endpoint) -> Result<Self, CliError> {
        Ok(Self { server, client: server.client()? })
    }

    /// Sends a request to `path`, which begins with `/`. The answer is null if it has no body.
    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CliError> {
        let url = format!("{}{path}", self.server.url.trim_end_matches('/'));
        let request = self.client.request(method, &url);
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        let answer = request.send().await.map_err(|error| self.server.request_error(&error))?;
        let answer = self.server.require_success(answer).await?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| self.server.request_error(&error))?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        let not_json = |_| CliError::UnexpectedResponse { url, status, body: text.chars().take(200).collect() };
        serde_json::from_str(&text).map_err(not_json)
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.request(Method::POST, path, Some(body)).await
    }

    /// Reads pages of a list until it has `limit` items: the first page's answer, with the items of all pages in
    /// `member`, and `nextCursor` if there are more.
    async fn list(&self, path: &str, query: &[(&str, String)], member: &str, limit: usize) -> Result<Value, CliError> {
        let mut listed: Option<Map<String, Value>> = None;
        let mut items: Vec<Value> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let left = (limit - items.len()).min(PAGE_MAX).to_string();
            let from = cursor.as_ref().map(|cursor| ("cursor", cursor.clone()));
            let all = query.iter().cloned().chain([("limit", left)]).chain(from);
            let query: Vec<_> = all.map(|(name, value)| format!("{name}={}", encoded(&value))).collect();
            let mut page = self.request(Method::GET, &format!("{path}?{}", query.join("&")), None).await?;
            match page[member].take() {
                Value::Array(of_page) => items.extend(of_page),
                _ => return Err(CliError::InvalidFrame { url: path.into(), reason: format!("the answer has no {member}") }),
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            let Value::Object(page) = page else { break };
            let listed = listed.get_or_insert(page);
            match &cursor {
                Some(cursor) => listed.insert("nextCursor".into(), cursor.as_str().into()),
                None => listed.remove("nextCursor"),
            };
            if cursor.is_none() || items.len() >= limit {
                break;
            }
        }
        let mut listed = listed.unwrap_or_default();
        listed.insert(member.into(), items.into());
        Ok(Value::Object(listed))
    }
}

/// The path of a resource of a run, or of a session, if one is named.
fn path_in_log(run: Option<&String>, session: Option<&String>, resource: &str) -> String {
    match session {
        Some(session) => format!("/v1/sessions/{}/{resource}", encoded(session)),
        None => format!("/v1/runs/{}/{resource}", encoded(run.map_or("", String::as_str))),
    }
}

/// A member's text, safe for a terminal and on one line; empty if there is none.
fn text(of: &Value, member: &str) -> String {
    one_line(of[member].as_str().unwrap_or_default())
}

/// The time since a member's moment, for people; empty if it has none.
fn age(of: &Value, member: &str) -> String {
    let moment = of[member].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let now = (proscenium::environment::Environment::SYSTEM.now)();
    moment.map_or_else(String::new, |moment| duration(u64::try_from(now.duration_since(moment).as_millis()).unwrap_or(0)))
}

/// A duration for people.
fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

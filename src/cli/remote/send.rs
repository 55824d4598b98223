//! `proscenium send`, `stop` and `settle`: a message to an agent, and the end of its work.

use super::{Api, Output, text};
use crate::cli::screen::one_line;
use crate::cli::{CliError, Endpoint, encoded};
use serde_json::{Value, json};

/// The arguments of `send`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium send my-session 'Try it with the other file'
  proscenium send new-chat 'Hello' --agent support        the message begins the session")]
pub struct Send {
    /// The session. The message begins it if none has this id.
    session: String,
    /// The message.
    text: String,
    /// The agent. By default the session's own.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    #[command(flatten)]
    server: Endpoint,
    #[command(flatten)]
    output: Output,
}

/// Sends a message to the agent of a session.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn send(args: Send) -> Result<(), CliError> {
    let mut body = json!({ "control": "send", "value": args.text });
    if let Some(agent) = args.agent {
        body["agentId"] = agent.into();
    }
    let path = format!("/v1/sessions/{}/controls", encoded(&args.session));
    let queued = Api::new(&args.server)?.post(&path, &body).await?;
    args.output.print(&queued, |out| {
        writeln!(out, "Queued for the agent of session {} (control {}).", one_line(&args.session), text(&queued, "controlId"))
    })
}

/// The run of `stop` and `settle`.
#[derive(Debug, Clone, clap::Args)]
pub struct RunArgs {
    /// The run.
    run: String,
    #[command(flatten)]
    server: Endpoint,
    #[command(flatten)]
    output: Output,
}

/// Asks the runtime of a run to stop it.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn stop(args: RunArgs) -> Result<(), CliError> {
    let path = format!("/v1/runs/{}/controls", encoded(&args.run));
    let queued = Api::new(&args.server)?.post(&path, &json!({ "control": "interrupt" })).await?;
    args.output.print(&queued, |out| {
        writeln!(out, "Queued for the agent: interrupt run {} (control {}).", one_line(&args.run), text(&queued, "controlId"))
    })
}

/// Ends a run whose runtime is gone.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn settle(args: RunArgs) -> Result<(), CliError> {
    let path = format!("/v1/runs/{}/settle", encoded(&args.run));
    let settled = Api::new(&args.server)?.post(&path, &Value::Null).await?;
    args.output.print(&settled, |out| {
        let (run, status) = (one_line(&args.run), text(&settled, "status"));
        match settled["settled"].as_bool() {
            Some(true) => writeln!(out, "Run {run} is settled: {status}."),
            _ => writeln!(out, "Run {run} had ended before: {status}. Nothing changed."),
        }
    })
}

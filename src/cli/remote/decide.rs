//! `proscenium approve`, `reject` and `answer`: the decision of one pending action.

use super::{Api, Output, path_in_log};
use crate::cli::screen::one_line;
use crate::cli::{CliError, Endpoint};
use serde_json::{Value, json};

/// The action, and where it is.
#[derive(Debug, Clone, clap::Args)]
struct ActionArgs {
    /// The run that asks.
    #[arg(required_unless_present = "session", conflicts_with = "session")]
    run: Option<String>,
    /// The action, as `proscenium inbox` lists it.
    action: String,
    /// The session that asks, for an action without a run.
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// The last envelope that you saw of the question: the server refuses a decision about an earlier version.
    #[arg(long, value_name = "SEQUENCE")]
    seen_sequence: Option<u64>,
    #[command(flatten)]
    server: Endpoint,
    #[command(flatten)]
    output: Output,
}

/// The arguments of `approve`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    allow_missing_positional = true,
    after_help = "\
Examples:
  proscenium approve my-run a1                        the narrowest yes that the runtime offers
  proscenium approve my-run a1 --option allow_always  another one, by its id"
)]
pub struct Approve {
    #[command(flatten)]
    action: ActionArgs,
    /// The option to take, by its id. By default the one that allows once.
    #[arg(long, value_name = "OPTION")]
    option: Option<String>,
}

/// The arguments of `reject`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    allow_missing_positional = true,
    after_help = "\
Examples:
  proscenium reject my-run a1 --reason 'Not on a Friday'"
)]
pub struct Reject {
    #[command(flatten)]
    action: ActionArgs,
    /// The option to take, by its id. By default the narrowest one that rejects.
    #[arg(long, value_name = "OPTION", conflicts_with = "reason")]
    option: Option<String>,
    /// Why, for the agent.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// The arguments of `answer`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    allow_missing_positional = true,
    after_help = "\
Examples:
  proscenium answer my-run a2 'Use the blue one'
  proscenium answer my-run a3 --value '{\"size\": 4}'    an answer in the form that the question states"
)]
pub struct Answer {
    #[command(flatten)]
    action: ActionArgs,
    /// The answer in words.
    #[arg(required_unless_present = "value", conflicts_with = "value")]
    text: Option<String>,
    /// The answer as JSON.
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    value: Option<Value>,
}

fn parse_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

/// Approves an action.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn approve(args: Approve) -> Result<(), CliError> {
    args.action.decide("approve", args.option.map(|option| json!({ "optionId": option }))).await
}

/// Rejects an action.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn reject(args: Reject) -> Result<(), CliError> {
    let option = args.option.map(|option| json!({ "optionId": option }));
    args.action.decide("reject", option.or_else(|| args.reason.map(|reason| json!({ "reason": reason })))).await
}

/// Answers an action.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn answer(args: Answer) -> Result<(), CliError> {
    args.action.decide("answer", args.value.or_else(|| args.text.map(Value::from))).await
}

impl ActionArgs {
    /// Submits a control about the action.
    async fn decide(&self, control: &str, value: Option<Value>) -> Result<(), CliError> {
        let mut body = json!({ "control": control, "actionId": self.action });
        if let Some(value) = value {
            body["value"] = value;
        }
        if let Some(sequence) = self.seen_sequence {
            body["seenSequence"] = sequence.into();
        }
        let path = path_in_log(self.run.as_ref(), self.session.as_ref(), "controls");
        let queued = Api::new(&self.server)?.post(&path, &body).await?;
        self.output.print(&queued, |out| {
            let approvals = match (queued["have"].as_u64(), queued["need"].as_u64()) {
                (Some(have), Some(need)) if have < need => format!(" {have} of {need} people have approved."),
                _ => String::new(),
            };
            let id = one_line(queued["controlId"].as_str().unwrap_or_default());
            writeln!(out, "Queued for the agent: {control} {} (control {id}).{approvals}", one_line(&self.action))
        })
    }
}

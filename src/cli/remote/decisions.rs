//! `proscenium decisions`: what a run or a session asked, what was decided, and by whom.

use super::{Api, Output, duration, path_in_log};
use crate::cli::screen::sanitize;
use crate::cli::{Audience, CliError, Endpoint};
use serde_json::Value;
use std::io::{self, Write};

/// The arguments of `decisions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Decisions {
    /// The run.
    #[arg(required_unless_present = "session")]
    run: Option<String>,
    /// The session, with all of its runs, instead of a run.
    #[arg(long, env = "PROSCENIUM_SESSION", value_name = "SESSION", conflicts_with = "run")]
    session: Option<String>,
    #[command(flatten)]
    server: Endpoint,
    /// The audience to print for. Users see no names of others.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::Internal)]
    audience: Audience,
    #[command(flatten)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  proscenium decisions my-run
  proscenium decisions --session my-session --json | jq -r '.decisions[].outcome'";

/// Prints the decisions, the oldest first.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn run(args: Decisions) -> Result<(), CliError> {
    let path = path_in_log(args.run.as_ref(), args.session.as_ref(), "decisions");
    let query = [("audience", args.audience.as_str().to_owned())];
    let listed = Api::new(&args.server)?.list(&path, &query, "decisions", usize::MAX).await?;
    let decisions = listed["decisions"].as_array().map_or(&[][..], Vec::as_slice);
    args.output.print(&listed, |out| print(out, decisions, args.session.is_some()))
}

fn print(out: &mut dyn Write, decisions: &[Value], names_runs: bool) -> io::Result<()> {
    if decisions.is_empty() {
        return writeln!(out, "No decisions yet");
    }
    for decision in decisions {
        let text = |member: &str| decision[member].as_str().map(sanitize);
        let action = text("actionId").unwrap_or_default();
        writeln!(out, "{}", text("title").unwrap_or_else(|| action.clone()))?;
        let run = text("runId").filter(|_| names_runs).map(|run| format!(" of run {run}")).unwrap_or_default();
        writeln!(out, "  action   {action}{run}")?;
        writeln!(out, "  decided  {}, {}", outcome(decision), decided_by(&decision["decidedBy"]))?;
        if let (Some(asked), Some(decided)) = (text("askedAt"), text("decidedAt")) {
            let waited = decision["waitedMs"].as_u64().map(|ms| format!(", after {}", duration(ms))).unwrap_or_default();
            writeln!(out, "  when     asked {asked}, decided {decided}{waited}")?;
        }
        let sequences = &decision["sequences"];
        let at = |member: &str| sequences[member].as_u64().map(|sequence| format!("{member} {sequence}"));
        let rows: Vec<_> = ["asked", "shown", "decided", "resolved"].into_iter().filter_map(at).collect();
        writeln!(out, "  rows     {}", rows.join(", "))?;
    }
    Ok(())
}

/// What was decided, and what the runtime then did.
fn outcome(decision: &Value) -> String {
    let text = |member: &str| decision[member].as_str().map(|text| sanitize(text).into_owned());
    let (control, outcome) = (text("control"), text("outcome"));
    match (control, outcome) {
        (Some(control), Some(outcome)) => format!("{control} (the runtime reports {outcome})"),
        (Some(control), None) => format!("{control} (the runtime has not reported an outcome)"),
        (None, Some(outcome)) => outcome,
        (None, None) => "unknown".into(),
    }
}

fn decided_by(by: &Value) -> String {
    let text = |member: &str| by[member].as_str().map(|text| sanitize(text).into_owned());
    let via = text("via").map(|via| format!(" via {via}")).unwrap_or_default();
    let name = match (text("name"), text("sub")) {
        (Some(name), Some(sub)) => format!("{name} ({sub})"),
        (Some(name), None) | (None, Some(name)) => name,
        (None, None) if by.is_null() => return "by the server".into(),
        (None, None) if text("via").as_deref() == Some("runtime") => return "by the runtime".into(),
        (None, None) => "an unnamed person".into(),
    };
    let behalf = text("onBehalfOf").map(|of| format!(" on behalf of {of}")).unwrap_or_default();
    format!("by {name}{behalf}{via}")
}

//! `proscenium decisions`: what a run or a session asked, what was decided, and by whom.

use super::screen::sanitize;
use super::{Audience, CliError, Endpoint};
use serde_json::{Value, json};
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
    /// Print one JSON object.
    #[arg(long, env = "PROSCENIUM_JSON", value_parser = clap::builder::BoolishValueParser::new())]
    json: bool,
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
    let (server, client) = (&args.server, args.server.client()?);
    let base = match (&args.session, &args.run) {
        (Some(session), _) => server.resource_url("sessions", session, "decisions"),
        (None, run) => server.run_url(run.as_deref().unwrap_or_default(), "decisions"),
    };
    let (mut all, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let from = cursor.map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
        let url = format!("{base}?audience={}{from}", args.audience.as_str());
        let answer = client.get(url).send().await.map_err(|error| server.request_error(&error))?;
        let mut page: Value = server.require_success(answer).await?.json().await.map_err(|error| server.request_error(&error))?;
        if let Value::Array(decisions) = page["decisions"].take() {
            all.extend(decisions);
        }
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", json!({ "decisions": all }))?,
        false => print(&mut out, &all, args.session.is_some())?,
    }
    Ok(out.flush()?)
}

fn print(out: &mut impl Write, decisions: &[Value], names_runs: bool) -> io::Result<()> {
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

/// A duration for people.
fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

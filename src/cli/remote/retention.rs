//! `proscenium retention --dry-run`: what rules of retention would do now.

use super::table::Table;
use super::{Api, Output, age, duration, text};
use crate::cli::{CliError, Endpoint};
use proscenium::config::file;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// The arguments of `retention`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium retention --dry-run                              the rules that the server acts by
  proscenium retention --dry-run --config proscenium.toml     the [[retention]] tables of a file, before they act
  proscenium retention --dry-run --json | jq '.rules[].due.sessions'

It needs a token with the verb `admin` for all sessions. Nothing is erased or compacted: that is what the server does by the
rules of `proscenium serve --config FILE`.")]
pub struct Retention {
    /// Only look. The command does nothing else, and demands the word so that no reader expects more.
    #[arg(long, required = true)]
    dry_run: bool,
    /// The file with the rules. By default the server's own.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How many of the oldest sessions and runs to name of each rule, at most 1000.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    limit: u64,
    #[command(flatten)]
    server: Endpoint,
    #[command(flatten)]
    output: Output,
}

/// Shows what the rules are due for.
///
/// # Errors
/// [`CliError`] for a file with an invalid rule, or if the server does not answer, or refuses.
pub async fn run(args: Retention) -> Result<(), CliError> {
    let mut wanted = json!({ "limit": args.limit });
    if let Some(config) = &args.config {
        let (_, tables) = file::retention(config, false).map_err(|error| CliError::Usage(error.to_string()))?;
        wanted["rules"] = serde_json::to_value(tables).expect("a table of TOML is JSON");
    }
    let due = Api::new(&args.server)?.post("/v1/retention/dry-run", &wanted).await?;
    let from = if args.config.is_some() { "file" } else { "server" };
    args.output.print(&due, |out| print(&due, from, out))
}

fn print(due: &Value, from: &str, out: &mut dyn Write) -> io::Result<()> {
    let rules = due["rules"].as_array().map_or(&[][..], Vec::as_slice);
    if rules.is_empty() {
        return writeln!(out, "The {from} has no rules of retention");
    }
    let number = |of: &Value| of.as_u64().unwrap_or(0).to_string();
    let row = |rule: &Value| {
        let (due, held) = (&rule["due"], &rule["held"]);
        let after = duration(rule["afterSeconds"].as_u64().unwrap_or(0).saturating_mul(1000));
        let counts = [&due["sessions"], &due["runs"], &held["sessions"], &held["runs"]].map(number);
        let [sessions, runs, held_sessions, held_runs] = counts;
        [text(rule, "name"), text(rule, "then"), after, sessions, runs, age(due, "oldest"), held_sessions, held_runs]
    };
    let heading = ["RULE", "THEN", "AFTER", "SESSIONS", "RUNS", "OLDEST", "HELD SESSIONS", "HELD RUNS"];
    Table::new(heading, rules.iter().map(row)).print(out)?;
    for rule in rules {
        for (part, what) in [("due", text(rule, "then")), ("held", "keep".to_owned())] {
            let first = rule[part]["first"].as_array().map_or(&[][..], Vec::as_slice);
            for found in first {
                writeln!(out, "{}: {what} {}", text(rule, "name"), found_text(found))?;
            }
        }
    }
    Ok(())
}

/// One of what a rule is due for.
fn found_text(found: &Value) -> String {
    let session = text(found, "sessionId");
    let what = match session.is_empty() {
        true => format!("run {}", text(found, "runId")),
        false => {
            let below = found["sessions"].as_u64().unwrap_or(1).saturating_sub(1);
            let below = if below > 0 { format!(", {below} sessions below it") } else { String::new() };
            format!("session {session} ({} runs{below})", found["runs"])
        }
    };
    let hold = &found["hold"];
    let held = match (text(hold, "ownerId"), text(hold, "sessionId")) {
        (owner, _) if !owner.is_empty() => format!("; held with owner {owner}: {}", text(hold, "reason")),
        (_, session) if !session.is_empty() => format!("; held with session {session}: {}", text(hold, "reason")),
        _ => String::new(),
    };
    format!("{what}, last active {}{held}", text(found, "lastActivity"))
}

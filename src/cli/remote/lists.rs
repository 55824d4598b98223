//! `proscenium runs`, `sessions` and `inbox`: what is on the server, and what waits for a decision.

use super::table::Table;
use super::{Api, Output, age, duration, text};
use crate::cli::{Audience, CliError, Endpoint};
use serde_json::Value;
use std::io::{self, Write};

/// Items that a list prints by default.
const LISTED_DEFAULT: u32 = 50;

/// What all lists take.
#[derive(Debug, Clone, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    server: Endpoint,
    /// The audience to list for.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::User)]
    audience: Audience,
    /// How many to list at most.
    #[arg(long, default_value_t = LISTED_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

impl ListArgs {
    /// Reads a list, and prints it.
    async fn print<const N: usize>(
        &self,
        path: &str,
        mut query: Vec<(&str, String)>,
        member: &str,
        shown: Shown<N>,
    ) -> Result<(), CliError> {
        query.push(("audience", self.audience.as_str().into()));
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let listed = Api::new(&self.server)?.list(path, &query, member, limit).await?;
        self.output.print(&listed, |out| shown.print(out, &listed, listed[member].as_array().map_or(&[], Vec::as_slice)))
    }
}

/// How a person sees a list.
struct Shown<const N: usize> {
    heading: [&'static str; N],
    row: fn(&Value) -> [String; N],
    /// What an empty list says.
    empty: &'static str,
    /// What follows a list with items.
    hint: &'static str,
}

impl<const N: usize> Shown<N> {
    fn print(&self, out: &mut dyn Write, listed: &Value, items: &[Value]) -> io::Result<()> {
        if items.is_empty() {
            return writeln!(out, "{}", self.empty);
        }
        Table::new(self.heading, items.iter().map(self.row)).print(out)?;
        if listed["nextCursor"].is_string() {
            let of = listed["total"].as_u64().map_or_else(String::new, |total| format!(" of {total}"));
            writeln!(out, "\n{}{of} listed; --limit lists more", items.len())?;
        }
        if !self.hint.is_empty() {
            writeln!(out, "\n{}", self.hint)?;
        }
        Ok(())
    }
}

/// The arguments of `runs`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium runs
  proscenium runs --filter 'status:failed agent:coder since:7d \"disk space\"'
  proscenium runs --filter 'duration:>5m' --sort=-cost --audience internal --json | jq -r '.runs[].runId'")]
pub struct Runs {
    /// Only runs that match, such as `status:failed agent:coder cost:>1 since:7d "disk space"`.
    #[arg(long, value_name = "FILTER", default_value = "")]
    filter: String,
    /// The order: started, ended, cost, tokens or duration, with `-` before it for descending.
    #[arg(long, value_name = "ORDER", default_value = "-started", allow_hyphen_values = true)]
    sort: String,
    #[command(flatten)]
    list: ListArgs,
}

/// Prints runs, by default the newest first.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn runs(args: Runs) -> Result<(), CliError> {
    let shown = Shown {
        heading: ["STATUS", "RUN", "TITLE", "WHY", "AGENT", "AGE", "TOOK", "COST", "SESSION"],
        row: |run| {
            let title = ["title", "preview"].map(|member| text(run, member)).into_iter().find(|title| !title.is_empty());
            let took = run["durationMs"].as_u64().map_or_else(String::new, duration);
            let cost = run["usage"]["costUsd"].as_f64().map_or_else(String::new, |dollars| format!("${dollars:.2}"));
            [
                text(run, "status"),
                text(run, "runId"),
                title.unwrap_or_default(),
                text(&run["highlight"], "text"),
                text(run, "agentId"),
                age(run, "startedAt"),
                took,
                cost,
                text(run, "sessionId"),
            ]
        },
        empty: "No runs",
        hint: "",
    };
    args.list.print("/v1/runs", vec![("filter", args.filter), ("sort", args.sort)], "runs", shown).await
}

/// The arguments of `sessions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium sessions
  proscenium sessions --search 'disk space'        words in messages, reasoning, questions and titles
  proscenium sessions --needs-action --audience internal")]
pub struct Sessions {
    /// Only sessions that have these words in a text.
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// Only sessions with a pending action.
    #[arg(long)]
    needs_action: bool,
    /// Only archived sessions.
    #[arg(long)]
    archived: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// Prints sessions, those with the newest activity first.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn sessions(args: Sessions) -> Result<(), CliError> {
    let mut query = vec![("sort", "updated".to_owned()), ("archived", args.archived.to_string())];
    if args.needs_action {
        query.push(("needsAction", "true".into()));
    }
    if let Some(words) = args.search {
        query.extend([("q", words), ("in", "text".into())]);
    }
    let shown = Shown {
        heading: ["STATUS", "SESSION", "TITLE", "LAST", "PENDING", "WHY"],
        row: |session| {
            let pending = session["counts"]["pendingActions"].as_u64().filter(|count| *count > 0);
            [
                text(session, "status"),
                text(session, "sessionId"),
                text(session, "title"),
                age(session, "lastActivity"),
                pending.map_or_else(String::new, |count| count.to_string()),
                text(&session["highlight"], "text"),
            ]
        },
        empty: "No sessions",
        hint: "",
    };
    args.list.print("/v1/sessions", query, "sessions", shown).await
}

/// The arguments of `inbox`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium inbox
  proscenium inbox --agent coder --json | jq -r '.items[].actionId'")]
pub struct Inbox {
    /// Only actions of this agent.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// Prints what waits for a decision, the oldest first.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn inbox(args: Inbox) -> Result<(), CliError> {
    let shown = Shown {
        heading: ["WAITS", "RISK", "QUESTION", "AGENT", "RUN", "ACTION"],
        row: |item| {
            let is_answered = item["control"].is_string();
            let waits = if is_answered { "answered".to_owned() } else { age(item, "askedAt") };
            let of_session = || format!("--session {}", text(item, "sessionId"));
            let run = Some(text(item, "runId")).filter(|run| !run.is_empty()).unwrap_or_else(of_session);
            [waits, text(item, "risk"), text(item, "title"), text(item, "agentId"), run, text(item, "actionId")]
        },
        empty: "Nothing waits for a decision",
        hint: "Decide: proscenium approve RUN ACTION, reject RUN ACTION, answer RUN ACTION TEXT",
    };
    args.list.print("/v1/attention", args.agent.map(|agent| ("agentId", agent)).into_iter().collect(), "items", shown).await
}

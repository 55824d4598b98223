//! `proscenium conform`: checks that a server's stream can be resumed anywhere, without loss and without doubles.
//!
//! The checks are those of `proscenium_conform`; this module reads the streams. Any server can be checked: `--whole` and
//! `--resume` name its addresses.
//!
//! The exit code is 0 if the server passes, 1 if a check fails, and 2 if the command could not check it.

mod reading;

use super::screen::sanitize;
use super::{CliError, Endpoint, encoded};
use clap::ValueEnum;
use futures_util::StreamExt;
use proscenium_conform::{
    Check, Fault, ResumeDialect, StreamEnd, Transcript, bytes, duplicate, resumed, sample, tool_cuts, whole,
};
use reading::{OpenRead, Reading, read_prefix};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;
use tokio::time::timeout;

/// Faults of one check that are reported.
const FAULTS_MAX: usize = 3;
/// Requests that are under way at once.
const REQUESTS_AT_ONCE: usize = 8;
/// Connections that are cut for real.
const RECONNECTS_MAX: usize = 16;

/// The arguments of `conform`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Conform {
    #[command(flatten)]
    server: Endpoint,
    /// The protocol of the stream.
    #[arg(long, env = "PROSCENIUM_CONFORM_DIALECT")]
    dialect: DialectName,
    /// The run to read. It may be at work: then the command waits for its end.
    #[arg(long, env = "PROSCENIUM_CONFORM_RUN", value_name = "RUN")]
    run: Option<String>,
    /// The agent of the run, for addresses that name it.
    #[arg(long, env = "PROSCENIUM_CONFORM_AGENT", value_name = "AGENT", default_value = "default")]
    agent: String,
    /// The address of the whole stream: a path below --url, or a URL. {run} and {agent} stand for the arguments.
    #[arg(long, env = "PROSCENIUM_CONFORM_WHOLE", value_name = "PATH")]
    whole: Option<String>,
    /// The address of the rest of the stream. {id} stands for the last event's id, {index} for the number of events; without
    /// both, the id is sent as Last-Event-ID.
    #[arg(long, env = "PROSCENIUM_CONFORM_RESUME", value_name = "PATH")]
    resume: Option<String>,
    /// The most cuts to resume at; above that, a sample at equal distances.
    #[arg(long, env = "PROSCENIUM_CONFORM_CUTS", value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    cuts: u32,
    /// The most bytes to cut at; above that, a sample at equal distances.
    #[arg(long, env = "PROSCENIUM_CONFORM_BYTES", value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    bytes: u32,
    /// The longest silence of a response, in seconds, before it counts as one that hangs.
    #[arg(long, env = "PROSCENIUM_CONFORM_SILENCE", value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    silence: u64,
    /// Print one JSON object.
    #[arg(long, env = "PROSCENIUM_JSON", value_parser = clap::builder::BoolishValueParser::new())]
    json: bool,
}

/// The protocol of a stream, as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DialectName {
    /// AG-UI events with ids.
    AgUi,
    /// The UI message stream of the AI SDK.
    AiSdk,
}

impl DialectName {
    const fn dialect(self) -> ResumeDialect {
        match self {
            Self::AgUi => ResumeDialect::AgUi,
            Self::AiSdk => ResumeDialect::AiSdk,
        }
    }

    /// The addresses of this server: of the whole stream, and of its rest.
    const fn addresses(self) -> [&'static str; 2] {
        match self {
            Self::AgUi => ["/v1/runs/{run}/stream?format=ag-ui&replay=deltas"; 2],
            Self::AiSdk => [
                "/ai-sdk/{agent}/{run}/stream?version=7&startIndex=0",
                "/ai-sdk/{agent}/{run}/stream?version=7&startIndex={index}",
            ],
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  proscenium conform --dialect ag-ui --run my-run
  proscenium conform --dialect ai-sdk --run my-run --json
  proscenium conform --dialect ag-ui --url https://agent.example --whole /runs/7/events --resume /runs/7/events

A run that is at work while the command starts is the better proof: its readers lag, and miss its end.
The exit code is 0 if the server passes, 1 if a check fails, and 2 if the command could not check it.";

/// The result of one check.
struct Outcome {
    check: Check,
    /// What was checked, for people.
    scope: String,
    faults: Vec<Fault>,
}

impl Outcome {
    fn new(check: Check, scope: impl Into<String>, faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { check, scope: scope.into(), faults: faults.into_iter().take(FAULTS_MAX).collect() }
    }
}

/// The streams of one server.
struct Subject {
    client: Client,
    server: Endpoint,
    dialect: ResumeDialect,
    whole: String,
    resume: String,
    silence: Duration,
}

/// Checks a server, prints the result, and returns whether it passes.
///
/// # Errors
/// [`CliError`] if the whole stream cannot be read.
pub async fn run(args: Conform) -> Result<bool, CliError> {
    let subject = Subject::new(&args)?;
    let (outcomes, events) = subject.check(&args).await?;
    let passes = outcomes.iter().all(|outcome| outcome.faults.is_empty());
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", report(&args, &outcomes, events, passes))?,
        false => print(&mut out, &outcomes, passes)?,
    }
    out.flush()?;
    Ok(passes)
}

fn report(args: &Conform, outcomes: &[Outcome], events: usize, passes: bool) -> Value {
    let check = |outcome: &Outcome| json!({ "check": outcome.check, "scope": outcome.scope, "passes": outcome.faults.is_empty(), "faults": outcome.faults });
    let dialect = args.dialect.to_possible_value().map(|value| value.get_name().to_owned());
    json!({ "conforms": passes, "dialect": dialect, "events": events, "checks": outcomes.iter().map(check).collect::<Vec<_>>() })
}

fn print(out: &mut impl Write, outcomes: &[Outcome], passes: bool) -> std::io::Result<()> {
    for Outcome { check, scope, faults } in outcomes {
        let verdict = if faults.is_empty() { "pass" } else { "FAIL" };
        writeln!(out, "{verdict}  {:<15} {scope}", check.as_str())?;
        for Fault { k, id, difference, .. } in faults {
            let k = k.map(|k| format!("k={k} ")).unwrap_or_default();
            let id = id.as_deref().map(|id| format!("id={id} ")).unwrap_or_default();
            writeln!(out, "      {}", sanitize(&format!("{k}{id}{difference}")))?;
        }
    }
    let verdict = if passes { "prefix(k) + resume(k) = whole" } else { "The stream cannot be resumed without a difference." };
    writeln!(out, "{verdict}")
}

impl Subject {
    fn new(args: &Conform) -> Result<Self, CliError> {
        let [whole, resume] = args.dialect.addresses();
        let of_both = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
        let address = |template: String| -> Result<String, CliError> {
            let run = match (&args.run, template.contains("{run}")) {
                (None, true) => {
                    return Err(CliError::Usage(
                        "the address names {run}: add --run, or name the addresses with --whole and --resume".into(),
                    ));
                }
                (run, _) => run.as_deref().unwrap_or_default(),
            };
            let filled =
                template.replace("{run}", &encoded(run).to_string()).replace("{agent}", &encoded(&args.agent).to_string());
            Ok(match filled.starts_with('/') {
                true => format!("{}{filled}", args.server.url.trim_end_matches('/')),
                false => filled,
            })
        };
        let silence = Duration::from_secs(args.silence);
        Ok(Self {
            client: args.server.client_with(|client| client)?,
            server: args.server.clone(),
            dialect: args.dialect.dialect(),
            whole: address(of_both(&args.whole, whole))?,
            resume: address(of_both(&args.resume, resume))?,
            silence,
        })
    }

    async fn check(&self, args: &Conform) -> Result<(Vec<Outcome>, usize), CliError> {
        let Readers { first, second, lagging, away } = self.read_live().await?;
        if let Some(why) = first.refusal() {
            return Err(self.unreadable(why));
        }
        let Reading { body, transcript } = first;
        let (count, dialect) = (transcript.events.len(), self.dialect);
        let faults = whole(dialect, &transcript);
        let (of_ids, of_whole): (Vec<_>, Vec<_>) = faults.into_iter().partition(|fault| fault.check == Check::Ids);
        let mut outcomes = vec![Outcome::new(Check::Whole, format!("{count} events, {} bytes", body.len()), of_whole)];
        if dialect == ResumeDialect::AgUi {
            outcomes.push(Outcome::new(Check::Ids, "every event", of_ids));
        }
        // Without a whole stream, nothing else means anything.
        if outcomes.iter().any(|outcome| !outcome.faults.is_empty()) {
            return Ok((outcomes, count));
        }
        let cuts = sample(0..=body.len(), number(args.bytes));
        let scope = format!("{} of {} bytes", cuts.len(), body.len() + 1);
        outcomes.push(Outcome::new(Check::Bytes, scope, bytes(&transcript, &body, &cuts, |bytes| read_prefix(bytes, dialect))));
        for (check, reading) in [(Check::TwoReaders, second), (Check::LaggingReader, lagging)] {
            outcomes.push(Outcome::new(check, "one reader", duplicate(dialect, &transcript, &reading.transcript, check)));
        }
        let rest = self.resume_at(&transcript, away).await;
        let fault = resumed(dialect, &transcript, away, &rest, Check::EndWhileAway);
        outcomes.push(Outcome::new(Check::EndWhileAway, format!("after {away} events"), fault));
        outcomes.extend(self.resume_everywhere(&transcript, number(args.cuts)).await);
        outcomes.push(self.reconnect(&transcript).await);
        Ok((outcomes, count))
    }

    /// Reads the whole stream by readers that are there at once, while the run may be at work.
    async fn read_live(&self) -> Result<Readers, CliError> {
        let mut readers = Vec::new();
        for _ in 0..4 {
            readers.push(self.open(&self.whole, None).await.map_err(|failure| match failure {
                OpenFailure::Request(error) => self.server.request_error(&error),
                OpenFailure::Silent(_) => self.unreadable(&failure.to_string()),
            })?);
        }
        let [first, second, mut lagging, mut away] = <[OpenRead; 4]>::try_from(readers).unwrap_or_else(|_| unreachable!());
        // One reader stops reading after its first bytes, and one goes away after its first events.
        lagging.read_some().await;
        away.read_some().await;
        let away_after = away.event_count();
        drop(away);
        let (first, second) = tokio::join!(first.read_to_end(), second.read_to_end());
        let away = away_after.min(first.transcript.events.len());
        Ok(Readers { first, second, lagging: lagging.read_to_end().await, away })
    }

    /// Resumes at each cut, or at a sample.
    async fn resume_everywhere(&self, whole: &Transcript, max: usize) -> [Outcome; 2] {
        let (count, within) = (whole.events.len(), tool_cuts(self.dialect, whole));
        let cuts = sample(0..=count, max);
        let of_tools: Vec<usize> =
            sample(0..=within.len().saturating_sub(1), max).into_iter().filter_map(|n| within.iter().nth(n).copied()).collect();
        let scope = format!("{} of {} cuts", cuts.len(), count + 1);
        let of_calls = format!("{} of {} cuts", of_tools.len(), within.len());
        let resume = self.faults_at(whole, cuts.into_iter().filter(|k| !within.contains(k)).collect(), Check::Resume).await;
        let tools = self.faults_at(whole, of_tools, Check::ToolArguments).await;
        [Outcome::new(Check::Resume, scope, resume), Outcome::new(Check::ToolArguments, of_calls, tools)]
    }

    async fn faults_at(&self, whole: &Transcript, cuts: Vec<usize>, check: Check) -> Vec<Fault> {
        let resuming = cuts.into_iter().map(|k| async move {
            let rest = self.resume_at(whole, k).await;
            resumed(self.dialect, whole, k, &rest, check)
        });
        let faults: Vec<_> = futures_util::stream::iter(resuming).buffered(REQUESTS_AT_ONCE).collect().await;
        faults.into_iter().flatten().collect()
    }

    /// Cuts connections within the stream, and resumes each at once.
    async fn reconnect(&self, whole: &Transcript) -> Outcome {
        let count = whole.events.len();
        let cuts = sample(1..=count.saturating_sub(1).max(1), RECONNECTS_MAX);
        let scope = format!("{} of {count} cuts", cuts.len());
        let mut faults = Vec::new();
        for k in cuts {
            let read = match self.open(&self.whole, None).await {
                Ok(mut reader) => {
                    reader.read_events(k).await;
                    // It may have read more than it wanted.
                    reader.event_count().min(count)
                }
                Err(error) => {
                    let difference = format!("the whole stream cannot be read again: {error}");
                    faults.push(Fault { check: Check::Reconnect, k: Some(k), id: None, difference });
                    continue;
                }
            };
            let rest = self.resume_at(whole, read).await;
            faults.extend(resumed(self.dialect, whole, read, &rest, Check::Reconnect));
        }
        Outcome::new(Check::Reconnect, scope, faults)
    }

    /// Reads the rest of the stream, for a client that has `k` events.
    async fn resume_at(&self, whole: &Transcript, k: usize) -> Transcript {
        let id = whole.id_at(k);
        let url = self.resume.replace("{id}", &encoded(id.unwrap_or_default()).to_string()).replace("{index}", &k.to_string());
        let by_header = id.filter(|_| !self.resume.contains("{id}") && !self.resume.contains("{index}"));
        match self.open(&url, by_header).await {
            Ok(opened) => opened.read_to_end().await.transcript,
            Err(failure) => Transcript::failed(failure.to_string()),
        }
    }

    async fn open(&self, url: &str, id: Option<&str>) -> Result<OpenRead, OpenFailure> {
        let mut request = self.client.request(Method::GET, url).header("accept", "text/event-stream");
        if let Some(id) = id {
            request = request.header("last-event-id", id);
        }
        match timeout(self.silence, request.send()).await {
            Ok(answer) => Ok(OpenRead::new(answer.map_err(OpenFailure::Request)?, self.dialect, self.silence)),
            Err(_) => Err(OpenFailure::Silent(self.silence)),
        }
    }

    fn unreadable(&self, why: &str) -> CliError {
        let url = &self.whole;
        CliError::Usage(format!("the whole stream at {url} cannot be read: {why}; check --run, --whole and the token"))
    }
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
enum OpenFailure {
    #[error("{}", super::innermost(.0))]
    Request(reqwest::Error),
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
}

/// The readers of a stream that were there at once.
struct Readers {
    first: Reading,
    second: Reading,
    lagging: Reading,
    /// The events of the one that went away.
    away: usize,
}

fn number(of: u32) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

impl Reading {
    /// Why a server sent no event at all: then there is nothing to check.
    fn refusal(&self) -> Option<&str> {
        match &self.transcript {
            Transcript { events, end: StreamEnd::Failed(why) } if events.is_empty() => Some(why),
            _ => None,
        }
    }
}

//! `proscenium check`: a log against the demands of seed 003, out of a file, out of a runtime's own facts, or of a live run.
//!
//! Exits with 0 where nothing is wrong, with 1 where something is, and with 2 where it could not be told.

use super::screen::clean;
use super::{Audience, CliError, Server};
use proscenium::check::{BadLine, DEMANDS, Log, RULES, Reading, Report, Severity, check, source};
use proscenium::ingest::{IngestError, Environment};
use proscenium::model;
use proscenium::source::{SOURCES, SourceKind, by_name, kind_of};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// What `check` is asked for.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// What to check: a file of envelopes as `proscenium export` writes it, `-` for standard input, or a run of a server. A file
    /// of that name wins.
    #[arg(value_name = "FILE|RUN", required_unless_present = "rules")]
    log: Option<String>,
    /// The file has a runtime's own facts, of this source: they are taken as a server would take them, in memory.
    #[arg(long, env = "PROSCENIUM_SOURCE", value_name = "SOURCE")]
    source: Option<String>,
    #[command(flatten)]
    server: Server,
    /// As whom to look: whoever sees less sees gaps, which are then none.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::Internal)]
    audience: Audience,
    /// The file is of a run that was compacted: what is missing is meant to be. A server says so itself.
    #[arg(long, env = "PROSCENIUM_COMPACTED", value_parser = clap::builder::BoolishValueParser::new())]
    compacted: bool,
    /// Count warnings as errors.
    #[arg(long, env = "PROSCENIUM_STRICT", value_parser = clap::builder::BoolishValueParser::new())]
    strict: bool,
    /// How to tell what was found.
    #[arg(long, env = "PROSCENIUM_FORMAT", value_enum, default_value_t = Format::Text)]
    format: Format,
    /// List the rules, and what the seed demands of clients, which no log can show.
    #[arg(long)]
    rules: bool,
}

const EXAMPLES: &str = "\
Examples:
  proscenium check my-run                                      a run of the server at --url
  proscenium check my-run.ndjson --strict                      an export; warnings count, too
  proscenium check facts.ndjson --source awaken                what a runtime said, before any server has it
  proscenium export my-run | proscenium check - --format json
  proscenium check --rules

The exit code is 0 where nothing is wrong (or only worth knowing), 1 for an error (with --strict: or a warning), 2 where the
log could not be checked.";

/// How findings are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// The largest log that is checked, in bytes: all of it is held in memory, several times over.
const LOG_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Checks a log; whether nothing is wrong with it.
///
/// # Errors
/// [`CliError`] where that cannot be told.
pub async fn run(asked: Check, environment: Environment) -> Result<bool, CliError> {
    let Some(name) = asked.log.as_deref().filter(|_| !asked.rules) else {
        list(&mut io::stdout(), asked.format)?;
        return Ok(true);
    };
    let log = read(name, &asked, environment).await?;
    let report = check(&log);
    let mut out = io::stdout().lock();
    match asked.format {
        Format::Text => tell(&mut out, &report)?,
        Format::Json => writeln!(out, "{}", serde_json::to_string(&report).expect("a report is plain data"))?,
    }
    out.flush()?;
    Ok(report.counts.error == 0 && (report.counts.warning == 0 || !asked.strict))
}

async fn read(name: &str, asked: &Check, environment: Environment) -> Result<Log, CliError> {
    let audience = match asked.audience {
        Audience::User => model::Audience::User,
        Audience::Dashboard => model::Audience::Dashboard,
        Audience::Internal => model::Audience::Internal,
    };
    let reading = Reading { audience, is_compacted: asked.compacted };
    let file = PathBuf::from(if name == "-" { "standard input" } else { name });
    let is_file = name == "-" || Path::new(name).exists();
    let bad_line = |BadLine { line, why }| CliError::Line { file: file.clone(), line, why };
    let log = match &asked.source {
        Some(source) => {
            let source = by_name(source).ok_or_else(|| no_source(source))?;
            let envelopes = take(&bytes_of(name, &file)?, &file, source, audience, environment).await?;
            Log::read(envelopes.iter().map(|envelope| &**envelope), reading).map_err(bad_line)?
        }
        None if is_file => Log::read(lines(&bytes_of(name, &file)?), reading).map_err(bad_line)?,
        None => {
            let (bytes, is_compacted) = fetch(name, asked).await?;
            Log::read(lines(&bytes), Reading { is_compacted, ..reading }).map_err(bad_line)?
        }
    };
    if log.entries.is_empty() {
        return Err(CliError::File { file, why: "there is no envelope in it".into() });
    }
    Ok(log)
}

fn no_source(name: &str) -> CliError {
    let known: Vec<&str> = SOURCES.iter().map(|source| source.name).collect();
    CliError::Usage(format!("--source {name:?} is none that is understood; these are: {}", known.join(", ")))
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

/// All of a file, or of standard input.
fn bytes_of(name: &str, file: &Path) -> Result<Vec<u8>, CliError> {
    let failed = |why: String| CliError::File { file: file.to_owned(), why };
    let from: Box<dyn Read> = match name {
        "-" => Box::new(io::stdin()),
        name => Box::new(File::open(name).map_err(|error| failed(error.to_string()))?),
    };
    bounded(from, LOG_BYTES_MAX).map_err(failed)
}

/// All of it, if it is not larger than that.
fn bounded(from: impl Read, bytes_max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("it is larger than {bytes_max} bytes, the limit; check a part of it"));
    }
    Ok(bytes)
}

/// The envelopes that a runtime's facts lead to.
async fn take(
    text: &[u8],
    file: &Path,
    source: &'static SourceKind,
    audience: model::Audience,
    environment: Environment,
) -> Result<Vec<bytes::Bytes>, CliError> {
    let (mut facts, mut numbers) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(lines(text)).filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace)) {
        let bad = |why: String| CliError::Line { file: file.to_owned(), line: number, why };
        match serde_json::from_slice(line) {
            Ok(fact @ Value::Object(_)) => facts.push(fact),
            Ok(other) => return Err(bad(format!("this is {}; a fact of {} is a JSON object", kind_of(&other), source.name))),
            Err(error) => return Err(bad(format!("this is not JSON: {error}; a fact of {} is a JSON object", source.name))),
        }
        numbers.push(number);
    }
    source::envelopes(source, facts, audience, environment).await.map_err(|error| match error {
        IngestError::Fact { index, error, .. } => {
            let line = numbers.get(index as usize).copied().unwrap_or_default();
            CliError::Line { file: file.to_owned(), line, why: format!("{error}; is --source {} right?", source.name) }
        }
        error => CliError::File { file: file.to_owned(), why: error.to_string() },
    })
}

/// The envelopes of a run, and whether it was compacted.
async fn fetch(run: &str, asked: &Check) -> Result<(Vec<u8>, bool), CliError> {
    let (server, client) = (&asked.server, asked.server.client()?);
    let get = async |resource: &str| {
        let url = format!("{}?audience={}", server.run(run, resource), asked.audience.as_str());
        server.accepted(client.get(url).send().await.map_err(|error| server.failed(&error))?).await
    };
    let summary = match get("").await {
        Ok(summary) => summary,
        // A name that was meant for a file is as likely as a run that is not there.
        Err(error @ (CliError::Unreachable { .. } | CliError::Refused { .. })) => {
            return Err(CliError::Usage(format!("there is no file {run:?}, and as a run of a server: {error}")));
        }
        Err(error) => return Err(error),
    };
    let summary: Value = summary.json().await.map_err(|error| server.failed(&error))?;
    let mut answer = get("export").await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| server.failed(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > LOG_BYTES_MAX {
            return Err(CliError::Usage(format!(
                "run {run} is larger than {LOG_BYTES_MAX} bytes, the limit; check a part of its export"
            )));
        }
    }
    Ok((bytes, asked.compacted || summary["compacted"] == true))
}

/// `3 errors`
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn tell(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    for finding in &report.findings {
        writeln!(out, "{}[{}] seq {}: {}", finding.severity.as_str(), finding.rule, finding.sequence, clean(&finding.message))?;
        writeln!(out, "  remedy: {}", finding.remedy)?;
    }
    if report.omitted > 0 {
        writeln!(out, "and {} more like these", counted(report.omitted, "finding"))?;
    }
    let of = report.run.as_ref().map_or_else(|| "the log".to_owned(), |run| format!("run {}", clean(run)));
    let counts = [
        counted(report.counts.error, "error"),
        counted(report.counts.warning, "warning"),
        format!("{} worth knowing", report.counts.info),
    ];
    writeln!(out, "{of}: {}, {}", counted(report.envelopes as u64, "envelope"), counts.join(", "))
}

/// The rules, and what they hold of the seed.
fn list(out: &mut dyn Write, format: Format) -> io::Result<()> {
    if format == Format::Json {
        let rule = |rule: &proscenium::check::Rule| serde_json::json!({ "rule": rule.id, "severity": rule.severity, "sentence": rule.sentence, "remedy": rule.remedy });
        let demand = |demand: &proscenium::check::Demand| {
            serde_json::json!({
                "origin": demand.origin, "sentence": demand.sentence, "rules": demand.rules, "ofAClient": demand.of_a_client,
            })
        };
        let rules: Vec<Value> = RULES.iter().map(rule).collect();
        let demands: Vec<Value> = DEMANDS.iter().map(demand).collect();
        return writeln!(out, "{}", serde_json::json!({ "rules": rules, "demands": demands }));
    }
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        for rule in RULES.iter().filter(|rule| rule.severity == severity) {
            writeln!(out, "{}[{}] {}\n  remedy: {}", severity.as_str(), rule.id, rule.sentence, rule.remedy)?;
        }
    }
    writeln!(out, "\nWhat seed 003 demands, and who holds it:")?;
    for demand in DEMANDS {
        writeln!(out, "{}: {}", demand.origin, demand.sentence)?;
        if !demand.rules.is_empty() {
            writeln!(out, "  rules: {}", demand.rules.join(", "))?;
        }
        if let Some(why) = demand.of_a_client {
            writeln!(out, "  of a client, not of a log: {why}")?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_told_a_finding_a_block_and_a_summary_at_the_end() {
        let envelope = r#"{"type":"run.started","eventId":"e","sequence":1,"receivedAt":"2026-01-01T00:00:00Z","runId":"r","owner":"moon","scope":"run","phase":"accepted","surface":"runtime_status","persistence":"snapshot","audience":"user"}"#;
        let log = Log::read([envelope.as_bytes()], Reading::default()).unwrap();
        let mut told = Vec::new();
        tell(&mut told, &check(&log)).unwrap();
        let expected = "\
warning[run-never-ended] seq 1: the log ends with run.started while the run is accepted
  remedy: send run.finished or run.failed, also for a runtime that is gone
info[unknown-dimension] seq 1: run.started: unknown dimension: owner is \"moon\"
  remedy: use a value of the seed, or unknown
run r: 1 envelope, 0 errors, 1 warning, 1 worth knowing
";
        assert_eq!(String::from_utf8(told).unwrap(), expected);
    }

    #[test]
    fn a_log_is_read_up_to_its_bound() {
        assert_eq!(bounded(&b"abc"[..], 3), Ok(b"abc".to_vec()));
        assert_eq!(bounded(&b"abcd"[..], 3), Err("it is larger than 3 bytes, the limit; check a part of it".into()));
    }

    #[test]
    fn the_list_names_every_rule_and_every_demand() {
        let mut listed = Vec::new();
        list(&mut listed, Format::Text).unwrap();
        let listed = String::from_utf8(listed).unwrap();
        assert!(RULES.iter().all(|rule| listed.contains(&format!("[{}] {}", rule.id, rule.sentence))));
        assert!(DEMANDS.iter().all(|demand| listed.contains(demand.sentence)));
        assert!(
            listed.contains(
                "checklist: Listener binding occurs before submit.\n  of a client, not of a log: which of two requests"
            )
        );
    }
}

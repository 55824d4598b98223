//! `proscenium check`: checks a log against seed 003.
//!
//! The log is a file, a runtime's own facts, or a run of a server.
//!
//! The exit code is 0 without errors, 1 with errors, and 2 if the command could not check the log.

use super::screen::sanitize;
use super::{Audience, CliError, Endpoint};
use proscenium::check::{CheckOptions, CheckedLog, DEMANDS, InvalidLine, RULES, Report, Severity, check, source};
use proscenium::environment::Environment;
use proscenium::ingest::IngestError;
use proscenium::model::{self, halves};
use proscenium::record::proof::LINE_START;
use proscenium::source::{SOURCES, SourceKind, by_name, kind_of};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The arguments of `check`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// The file to check (an export), `-` for standard input, or a run of a server. A file takes precedence over a run
    /// of the same name.
    #[arg(value_name = "FILE|RUN", required_unless_present = "rules")]
    log: Option<String>,
    /// Read the file as a runtime's own facts of this source, and process them in memory as a server does.
    #[arg(long, env = "PROSCENIUM_SOURCE", value_name = "SOURCE")]
    source: Option<String>,
    #[command(flatten)]
    server: Endpoint,
    /// The audience of the log. For an audience other than internal, gaps are not errors.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::Internal)]
    audience: Audience,
    /// The file is an export of a compacted run, so gaps are not errors. A server reports this itself.
    #[arg(long, env = "PROSCENIUM_COMPACTED", value_parser = clap::builder::BoolishValueParser::new())]
    compacted: bool,
    /// Count warnings as errors.
    #[arg(long, env = "PROSCENIUM_STRICT", value_parser = clap::builder::BoolishValueParser::new())]
    strict: bool,
    /// The output format of the findings.
    #[arg(long, env = "PROSCENIUM_FORMAT", value_enum, default_value_t = Format::Text)]
    format: Format,
    /// List the rules, and the demands of the seed on clients, which no log can show.
    #[arg(long)]
    rules: bool,
}

const EXAMPLES: &str = "\
Examples:
  proscenium check my-run                                      a run of the server at --url
  proscenium check my-run.ndjson --strict                      an export; warnings count as errors
  proscenium check facts.ndjson --source awaken                a runtime's facts, without a server
  proscenium export my-run | proscenium check - --format json
  proscenium check --rules

The exit code is 0 without errors, 1 with an error (with --strict also with a warning), and 2 if the log could not be checked.";

/// The output format of the findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text for people.
    Text,
    /// One JSON object.
    Json,
}

/// The largest log to check, in bytes. The command holds several copies of it in memory.
const LOG_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Checks a log, prints the report, and returns whether the log passes.
///
/// # Errors
/// [`CliError`] if the log cannot be read or is not valid.
pub async fn run(args: Check, environment: Environment) -> Result<bool, CliError> {
    let Some(name) = args.log.as_deref().filter(|_| !args.rules) else {
        list(&mut io::stdout(), args.format)?;
        return Ok(true);
    };
    let log = read(name, &args, environment).await?;
    let report = check(&log);
    let mut out = io::stdout().lock();
    match args.format {
        Format::Text => print(&mut out, &report)?,
        Format::Json => writeln!(out, "{}", serde_json::to_string(&report).expect("a report serializes"))?,
    }
    out.flush()?;
    Ok(report.counts.error == 0 && (report.counts.warning == 0 || !args.strict))
}

async fn read(name: &str, args: &Check, environment: Environment) -> Result<CheckedLog, CliError> {
    let audience = match args.audience {
        Audience::User => model::Audience::User,
        Audience::Dashboard => model::Audience::Dashboard,
        Audience::Internal => model::Audience::Internal,
    };
    let options = CheckOptions { audience, is_compacted: args.compacted };
    let file = PathBuf::from(if name == "-" { "standard input" } else { name });
    let is_file = name == "-" || Path::new(name).exists();
    let invalid_line = |InvalidLine { line, reason }| CliError::Line { file: file.clone(), line, reason };
    let log = match &args.source {
        Some(source) => {
            let source = by_name(source).ok_or_else(|| unknown_source(source))?;
            let envelopes = adapt(&bytes_of(name, &file)?, &file, source, audience, environment).await?;
            CheckedLog::read(envelopes.iter().map(|envelope| &**envelope), options).map_err(invalid_line)?
        }
        None if is_file => CheckedLog::read(lines(&bytes_of(name, &file)?), options).map_err(invalid_line)?,
        None => {
            let (bytes, is_compacted) = fetch(name, args).await?;
            CheckedLog::read(lines(&bytes), CheckOptions { is_compacted, ..options }).map_err(invalid_line)?
        }
    };
    if log.entries.is_empty() {
        return Err(CliError::File { file, reason: "the file contains no envelope".into() });
    }
    Ok(log)
}

fn unknown_source(name: &str) -> CliError {
    let known: Vec<&str> = SOURCES.iter().map(|source| source.name).collect();
    CliError::Usage(format!("--source {name:?} is unknown; the sources are {}", known.join(", ")))
}

/// The lines of an export; those of proofs are empty.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').map(|line| if line.starts_with(LINE_START) { &[] } else { line })
}

/// Reads a whole file, or standard input.
fn bytes_of(name: &str, file: &Path) -> Result<Vec<u8>, CliError> {
    let failed = |reason: String| CliError::File { file: file.to_owned(), reason };
    let from: Box<dyn Read> = match name {
        "-" => Box::new(io::stdin()),
        name => Box::new(File::open(name).map_err(|error| failed(error.to_string()))?),
    };
    read_bounded(from, LOG_BYTES_MAX).map_err(failed)
}

/// Reads to the end; fails for more than `bytes_max` bytes.
fn read_bounded(from: impl Read, bytes_max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("the log is larger than the limit of {bytes_max} bytes; check a part of it"));
    }
    Ok(bytes)
}

/// Converts a runtime's facts into envelopes.
async fn adapt(
    text: &[u8],
    file: &Path,
    source: &'static SourceKind,
    audience: model::Audience,
    environment: Environment,
) -> Result<Vec<bytes::Bytes>, CliError> {
    let (mut facts, mut numbers) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(lines(text)).filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace)) {
        let bad = |reason: String| CliError::Line { file: file.to_owned(), line: number, reason };
        match halves::parse(line) {
            Ok(fact @ Value::Object(_)) => facts.push(fact),
            Ok(other) => return Err(bad(format!("this is {}; a fact of {} is a JSON object", kind_of(&other), source.name))),
            Err(error) => return Err(bad(format!("this is not JSON: {error}; a fact of {} is a JSON object", source.name))),
        }
        numbers.push(number);
    }
    source::envelopes(source, facts, audience, environment).await.map_err(|error| match error {
        IngestError::Fact { index, error, .. } => {
            let line = numbers.get(index as usize).copied().unwrap_or_default();
            CliError::Line { file: file.to_owned(), line, reason: format!("{error}; check --source {}", source.name) }
        }
        error => CliError::File { file: file.to_owned(), reason: error.to_string() },
    })
}

/// Fetches the envelopes of a run, and whether it was compacted.
async fn fetch(run: &str, args: &Check) -> Result<(Vec<u8>, bool), CliError> {
    let (server, client) = (&args.server, args.server.client()?);
    let get = async |resource: &str| {
        let url = format!("{}?audience={}", server.run_url(run, resource), args.audience.as_str());
        server.require_success(client.get(url).send().await.map_err(|error| server.request_error(&error))?).await
    };
    let summary = match get("").await {
        Ok(summary) => summary,
        // The user may have meant a file, so the error covers both.
        Err(error @ (CliError::Unreachable { .. } | CliError::Rejected { .. })) => {
            return Err(CliError::Usage(format!("the file {run:?} does not exist, and no run of that name was read: {error}")));
        }
        Err(error) => return Err(error),
    };
    let summary: Value = summary.json().await.map_err(|error| server.request_error(&error))?;
    let mut response = get("export").await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| server.request_error(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > LOG_BYTES_MAX {
            return Err(CliError::Usage(format!(
                "run {run} is larger than the limit of {LOG_BYTES_MAX} bytes; check a part of its export"
            )));
        }
    }
    Ok((bytes, args.compacted || summary["compacted"] == true))
}

/// Formats a count with its noun: `3 errors`.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn print(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    for finding in &report.findings {
        writeln!(
            out,
            "{}[{}] seq {}: {}",
            finding.severity.as_str(),
            finding.rule,
            finding.sequence,
            sanitize(&finding.message)
        )?;
        writeln!(out, "  remedy: {}", finding.remedy)?;
    }
    if report.omitted > 0 {
        writeln!(out, "and {} more like these", counted(report.omitted, "finding"))?;
    }
    let subject = report.run.as_ref().map_or_else(|| "the log".to_owned(), |run| format!("run {}", sanitize(run)));
    let counts =
        [counted(report.counts.error, "error"), counted(report.counts.warning, "warning"), counted(report.counts.info, "note")];
    writeln!(out, "{subject}: {}, {}", counted(report.envelopes as u64, "envelope"), counts.join(", "))
}

/// Lists the rules, and the seed's demands with the rules that check them.
fn list(out: &mut dyn Write, format: Format) -> io::Result<()> {
    if format == Format::Json {
        let rule = |rule: &proscenium::check::Rule| serde_json::json!({ "rule": rule.id, "severity": rule.severity, "sentence": rule.sentence, "remedy": rule.remedy });
        let demand = |demand: &proscenium::check::Demand| {
            serde_json::json!({
                "origin": demand.origin, "sentence": demand.sentence, "rules": demand.rules, "ofAClient": demand.client_part,
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
    writeln!(out, "\nThe demands of seed 003, and the rules that check them:")?;
    for demand in DEMANDS {
        writeln!(out, "{}: {}", demand.origin, demand.sentence)?;
        if !demand.rules.is_empty() {
            writeln!(out, "  rules: {}", demand.rules.join(", "))?;
        }
        if let Some(reason) = demand.client_part {
            writeln!(out, "  only a client can show: {reason}")?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_one_block_per_finding_and_a_summary() {
        let envelope = r#"{"type":"run.started","eventId":"e","sequence":1,"receivedAt":"2026-01-01T00:00:00Z","runId":"r","owner":"moon","scope":"run","phase":"accepted","surface":"runtime_status","persistence":"snapshot","audience":"user"}"#;
        let log = CheckedLog::read([envelope.as_bytes()], CheckOptions::default()).unwrap();
        let mut printed = Vec::new();
        print(&mut printed, &check(&log)).unwrap();
        let expected = "\
warning[run-never-ended] seq 1: the log ends with run.started while the run is accepted
  remedy: send run.finished or run.failed, also when the runtime has stopped
info[unknown-dimension] seq 1: run.started: owner has the unknown value \"moon\"
  remedy: send a value of the seed, or unknown
run r: 1 envelope, 0 errors, 1 warning, 1 note
";
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
    }

    #[test]
    fn a_log_over_the_limit_is_rejected() {
        assert_eq!(read_bounded(&b"abc"[..], 3), Ok(b"abc".to_vec()));
        let error = "the log is larger than the limit of 3 bytes; check a part of it";
        assert_eq!(read_bounded(&b"abcd"[..], 3), Err(error.into()));
    }

    #[test]
    fn the_list_names_every_rule_and_every_demand() {
        let mut listed = Vec::new();
        list(&mut listed, Format::Text).unwrap();
        let listed = String::from_utf8(listed).unwrap();
        assert!(RULES.iter().all(|rule| listed.contains(&format!("[{}] {}", rule.id, rule.sentence))));
        assert!(DEMANDS.iter().all(|demand| listed.contains(demand.sentence)));
        assert!(
            listed.contains("checklist: Listener binding occurs before submit.\n  only a client can show: which of two requests")
        );
    }
}

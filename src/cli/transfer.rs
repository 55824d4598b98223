//! `proscenium export` and `proscenium import`: a log as a file with one envelope per line.
//!
//! An import is a producer that numbers its facts and takes its id from the content of the file. A repeated import
//! therefore adds only the missing facts. The command checks the whole file before it sends any of it.

use super::import_file::{LineReader, file_error, is_of_owner, parse_envelope, send_lines};
use super::{Audience, CliError, Endpoint, follow, owner_import, progress};
use data_encoding::HEXLOWER;
use proscenium::record::proof::LINE_START;
use reqwest::StatusCode;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The arguments of `export`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub struct Export {
    /// The run to export.
    #[arg(required_unless_present_any = ["session", "owner"])]
    run: Option<String>,
    /// The session whose own log to export, without its runs, instead of a run.
    #[arg(long, env = "PROSCENIUM_SESSION", conflicts_with = "run")]
    session: Option<String>,
    /// The owner of whom to export all sessions and runs, instead of a run.
    #[arg(long, value_name = "OWNER", conflicts_with_all = ["run", "session", "proof"])]
    owner: Option<String>,
    #[command(flatten)]
    server: Endpoint,
    /// The audience to export for. An export for users contains only what users may see.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::Internal)]
    audience: Audience,
    /// Add the proofs of all rows, for `proscenium verify`.
    #[arg(long, env = "PROSCENIUM_PROOF", value_parser = clap::builder::BoolishValueParser::new())]
    proof: bool,
    /// The file to write; by default standard output. The file appears when it is complete.
    #[arg(short, long, env = "PROSCENIUM_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  proscenium export my-run -o my-run.ndjson                    the whole run up to now
  proscenium export my-run --audience user | jq -r .type       the part that users may see
  proscenium export my-run --proof -o my-run.ndjson            with proofs: proscenium verify my-run.ndjson
  proscenium export --session my-session                       the session's own log, without its runs
  proscenium export --owner acme -o acme.ndjson                all sessions and runs of an owner

Offloaded bodies stay on the server; the envelopes refer to them.";

/// The arguments of `import`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub struct Import {
    /// The file to send, as `proscenium export` wrote it; with --follow, facts of any source, and `-` for standard
    /// input.
    file: PathBuf,
    /// Send each line as the file grows, until the command is stopped. Without --run the run has the file's name.
    #[arg(long, env = "PROSCENIUM_FOLLOW", value_parser = clap::builder::BoolishValueParser::new())]
    follow: bool,
    /// The vocabulary of the facts, for --follow.
    #[arg(long, env = "PROSCENIUM_SOURCE", value_name = "SOURCE", default_value = "agentui", requires = "follow")]
    source: String,
    /// The run to import into; by default the run that the file names.
    #[arg(long, env = "PROSCENIUM_RUN", value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    server: Endpoint,
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  proscenium import my-run.ndjson                              the run under its own name, on another server
  proscenium import my-run.ndjson --run a-copy                 the run under another name
  proscenium import acme.ndjson                                all that an owner had, of export --owner
  proscenium import --follow --source claude-stream-json claude.jsonl --run my-run

Repeat an interrupted import: the server skips the envelopes that it already has. The importing server assigns new sequences,
event ids and receive times.";

/// Writes the envelopes of a run, or of a session's own log.
///
/// # Errors
/// [`CliError`]; then the file does not exist.
pub async fn export(args: Export) -> Result<(), CliError> {
    let (server, client) = (&args.server, args.server.client()?);
    let audience = args.audience.as_str();
    let (kind, collection, id) = match (&args.owner, &args.session, &args.run) {
        (Some(owner), ..) => ("owner", "owners", owner.as_str()),
        (None, Some(session), _) => ("session", "sessions", session.as_str()),
        (None, None, run) => ("run", "runs", run.as_deref().unwrap_or_default()),
    };
    let get = async |resource: &str| {
        let proof = if args.proof && resource == "export" { "&proof=true" } else { "" };
        let url = format!("{}?audience={audience}{proof}", server.resource_url(collection, id, resource));
        server.require_success(client.get(url).send().await.map_err(|error| server.request_error(&error))?).await
    };
    // Of an owner, the number of envelopes is not known before.
    let summary: Value = match args.owner {
        Some(_) => Value::Null,
        None => get("").await?.json().await.map_err(|error| server.request_error(&error))?,
    };
    let mut answer = get("export").await?;

    let mut target = Target::create(args.output.as_deref())?;
    let bar = progress(summary["counts"]["events"].as_u64(), "{bar:32.cyan/dim} {pos} of {len} envelopes");
    let (mut lines, mut count) = (0, ProofCounter::default());
    while let Some(bytes) = answer.chunk().await.map_err(|error| server.request_error(&error))? {
        target.write(&bytes)?;
        lines += memchr::memchr_iter(b'\n', &bytes).count() - count.add(&bytes);
        bar.set_position(lines as u64);
    }
    bar.finish_and_clear();
    target.finish()?;
    if let Some(file) = &args.output {
        let what = if args.owner.is_some() { "lines" } else { "envelopes" };
        report(&format!("exported {lines} {what} of {kind} {id} to {}", file.display()));
    }
    Ok(())
}

/// Counts the lines of proofs in an export that comes in pieces.
#[derive(Default)]
struct ProofCounter {
    /// The first bytes of the current line, as many as tell a line of proofs.
    head: Vec<u8>,
}

impl ProofCounter {
    /// The lines of proofs that end in this piece.
    fn add(&mut self, piece: &[u8]) -> usize {
        let mut count = 0;
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            let missing = LINE_START.len() - self.head.len();
            self.head.extend_from_slice(&line[..line.len().min(missing)]);
            if line.ends_with(b"\n") {
                count += usize::from(self.head == LINE_START);
                self.head.clear();
            }
        }
        count
    }
}

/// Writes a notice to standard error. A closed standard error only loses the notice.
fn report(notice: &str) {
    let _ = writeln!(io::stderr(), "{notice}");
}

/// The destination of an export. A file has a temporary name until it is complete.
enum Target {
    Stdout(io::Stdout),
    File { part: File, part_name: PathBuf, name: PathBuf },
}

impl Target {
    fn create(name: Option<&Path>) -> Result<Self, CliError> {
        let Some(name) = name.filter(|name| *name != "-") else { return Ok(Self::Stdout(io::stdout())) };
        let mut part_name = name.as_os_str().to_owned();
        part_name.push(".part");
        let part_name = PathBuf::from(part_name);
        let part = File::create(&part_name).map_err(|error| file_error(&part_name, &error))?;
        Ok(Self::File { part, part_name, name: name.to_owned() })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        match self {
            Self::Stdout(out) => Ok(out.write_all(bytes)?),
            Self::File { part, part_name, .. } => part.write_all(bytes).map_err(|error| file_error(part_name, &error)),
        }
    }

    fn finish(mut self) -> Result<(), CliError> {
        match &mut self {
            Self::Stdout(out) => Ok(out.flush()?),
            Self::File { part, part_name, name } => {
                part.sync_all().map_err(|error| file_error(part_name, &error))?;
                std::fs::rename(part_name, &*name).map_err(|error| file_error(name, &error))
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Self::File { part_name, .. } = self {
            // After `finish` the file has its final name. Before it, the file is incomplete and must go.
            let _ = std::fs::remove_file(part_name);
        }
    }
}

/// Sends the envelopes of a file to a run.
///
/// # Errors
/// [`CliError`], with the number of the invalid line if a line is the cause.
pub async fn import(args: Import) -> Result<(), CliError> {
    if args.follow {
        let stem = args.file.file_stem().filter(|stem| *stem != "-").map(|stem| stem.to_string_lossy().into_owned());
        let Some(run) = args.run.clone().or(stem) else {
            return Err(CliError::Usage("standard input has no name for the run; pass --run".into()));
        };
        return follow::import(&args.server, &run, &args.source, &args.file).await;
    }
    if is_of_owner(&args.file)? {
        return match args.run {
            None => owner_import::import(&args.server, &args.file).await,
            Some(_) => Err(CliError::Usage("the file has all that an owner has, which is no single run; omit --run".into())),
        };
    }
    let (server, client) = (&args.server, args.server.client()?);
    let input = ImportFile::read(&args.file)?;
    let Some(run) = args.run.clone().or(input.run.clone()) else {
        let reason = format!("{} does not name its run; pass --run", args.file.display());
        return Err(CliError::Usage(reason));
    };
    reject_self_import(server, &client, &run, &input, &args.file).await?;

    let bar = progress(Some(input.bytes), "{bar:32.cyan/dim} {bytes} of {total_bytes}");
    let lines = LineReader::open(&args.file)?;
    let receipt = send_lines(server, &server.run_url(&run, "facts"), &input.producer, lines, &args.file, &bar).await?;
    bar.finish_and_clear();
    let (accepted, known) = (receipt["accepted"].as_u64().unwrap_or(0), receipt["duplicates"].as_u64().unwrap_or(0));
    let already = if known > 0 { format!("; {known} more were already imported from this file") } else { String::new() };
    report(&format!("imported {accepted} envelopes of {} into run {run}{already}", args.file.display()));
    Ok(())
}

/// Rejects the import of a run into itself, which would duplicate its events.
async fn reject_self_import(
    server: &Endpoint,
    client: &reqwest::Client,
    run: &str,
    input: &ImportFile,
    file: &Path,
) -> Result<(), CliError> {
    let url = format!("{}?audience=internal&limit=1", server.run_url(run, "events"));
    let answer = client.get(url).send().await.map_err(|error| server.request_error(&error))?;
    // A token that may publish but not read cannot look; then the command assumes another run.
    if matches!(answer.status(), StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) {
        return Ok(());
    }
    let page: Value = server.require_success(answer).await?.json().await.map_err(|error| server.request_error(&error))?;
    let first = page["events"][0]["eventId"].as_str();
    if first.is_some() && first == input.first_event.as_deref() {
        let reason =
            format!("run {run} on this server is the run that {} was exported from; pass another with --run", file.display());
        return Err(CliError::Usage(reason));
    }
    Ok(())
}

/// The facts about a valid import file.
#[derive(Debug)]
struct ImportFile {
    bytes: u64,
    /// The producer id, derived from the content of the file.
    producer: String,
    run: Option<String>,
    first_event: Option<String>,
}

impl ImportFile {
    fn read(file: &Path) -> Result<Self, CliError> {
        let mut lines = LineReader::open(file)?;
        let mut hash = Sha256::new();
        let mut first = None;
        while let Some(line) = lines.next_line().map_err(|error| file_error(file, &error))? {
            hash.update(line);
            let envelope =
                parse_envelope(line).map_err(|reason| CliError::Line { file: file.to_owned(), line: lines.number, reason })?;
            first = first.or(envelope);
        }
        let Some(first) = first else { return Err(file_error(file, &"the file contains no envelope")) };
        let text = |member: &str| first.get(member).and_then(Value::as_str).map(str::to_owned);
        let hex = HEXLOWER.encode(&hash.finalize());
        Ok(Self { bytes: lines.bytes, producer: format!("import-{hex}"), run: text("runId"), first_event: text("eventId") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn an_invalid_line_is_named_before_the_upload() {
        let check = |text: &str, expected: &str| {
            let file = file(text);
            let error = ImportFile::read(file.path()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}{expected}", file.path().display())), "{error}");
        };
        check("{\"type\":\"a\"}\n\n{\"type\":", ":3: this is not JSON");
        check("{\"type\":\"a\"}\n[]\n", ":2: this is not a JSON object");
        check("{\"typ\":\"a\"}", ":1: this object has no \"type\"");
        check("\n \n", ": the file contains no envelope");
    }

    #[test]
    fn the_producer_id_depends_on_the_content() {
        let producer = |text: &str| ImportFile::read(file(text).path()).unwrap().producer;
        assert_eq!(producer("{\"type\":\"a\"}\n"), producer("{\"type\":\"a\"}\n"));
        assert_ne!(producer("{\"type\":\"a\"}\n"), producer("{\"type\":\"b\"}\n"));
        assert!(producer("{\"type\":\"a\"}\n").len() <= 256);
    }

    #[test]
    fn members_of_the_server_are_omitted_and_lines_keep_their_numbers() {
        let file = file(
            "{\"type\":\"a\",\"eventId\":\"e\",\"sequence\":4,\"sourceSequence\":7,\"runId\":\"r\",\"x\":1.50}\n\n{\"type\":\"b\"}",
        );
        let sent = LineReader::open(file.path()).unwrap().next_chunk().unwrap().unwrap();
        assert_eq!(sent, "{\"type\":\"a\",\"sourceSequence\":7,\"x\":1.50}\n\n{\"type\":\"b\"}\n");
    }
}

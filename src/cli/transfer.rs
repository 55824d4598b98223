//! `proscenium export` and `proscenium import`: a run as a file, an envelope a line.
//!
//! An import is a producer that numbers its facts and is named after the file's content: sent again, whole, after it was
//! interrupted, it adds only what is missing. The file is checked before anything of it is sent.

use super::{Audience, CliError, Server, progress};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use reqwest::StatusCode;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// What `export` is asked for.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub struct Export {
    /// The run to write.
    run: String,
    #[command(flatten)]
    server: Server,
    /// As whom to look: an export for users holds what users may see.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::Internal)]
    audience: Audience,
    /// The file to write; standard output unless given. It appears once it is whole.
    #[arg(short, long, env = "PROSCENIUM_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  proscenium export my-run -o my-run.ndjson                    everything of the run, as far as it has come
  proscenium export my-run --audience user | jq -r .type       what a user may see

Bodies that were moved out of their envelopes stay on the server; the envelopes refer to them.";

/// What `import` is asked for.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub struct Import {
    /// The file to send, as `proscenium export` wrote it.
    file: PathBuf,
    /// The run to write it to; the run that the file says unless given.
    #[arg(long, env = "PROSCENIUM_RUN", value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    server: Server,
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  proscenium import my-run.ndjson                              the run under its own name, on another server
  proscenium import my-run.ndjson --run a-copy                 the run under a name of its own

An import that was interrupted is simply repeated: what is there already is not added again. Sequences, event ids and times
of arrival are the importing server's.";

/// The longest line of an import, in bytes: a fact at the server's largest bound.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How much is sent at once, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// What a server stamps on every envelope that it takes. As facts these would be somebody else's claims.
const STAMPS: [&str; 5] = ["runId", "eventId", "sequence", "receivedAt", "startAudience"];

/// Writes a run's envelopes.
///
/// # Errors
/// [`CliError`]; then there is no file.
pub async fn export(asked: Export) -> Result<(), CliError> {
    let (server, client) = (&asked.server, asked.server.client()?);
    let audience = asked.audience.as_str();
    let get = async |resource: &str| {
        let url = format!("{}?audience={audience}", server.run(&asked.run, resource));
        server.accepted(client.get(url).send().await.map_err(|error| server.failed(&error))?).await
    };
    let summary: Value = get("").await?.json().await.map_err(|error| server.failed(&error))?;
    let mut answer = get("export").await?;

    let mut target = Target::create(asked.output.as_deref())?;
    let bar = progress(summary["counts"]["events"].as_u64(), "{bar:32.cyan/dim} {pos} of {len} envelopes");
    let mut lines = 0;
    while let Some(bytes) = answer.chunk().await.map_err(|error| server.failed(&error))? {
        target.write(&bytes)?;
        lines += memchr::memchr_iter(b'\n', &bytes).count();
        bar.set_position(lines as u64);
    }
    bar.finish_and_clear();
    target.finish()?;
    if let Some(file) = &asked.output {
        tell(&format!("{lines} envelopes of run {} are in {}", asked.run, file.display()));
    }
    Ok(())
}

/// Says on standard error what was done. Whoever closed it does not want to know.
fn tell(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Where an export goes. A file has another name until it is whole.
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
        let part = File::create(&part_name).map_err(|error| in_file(&part_name, &error))?;
        Ok(Self::File { part, part_name, name: name.to_owned() })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        match self {
            Self::Stdout(out) => Ok(out.write_all(bytes)?),
            Self::File { part, part_name, .. } => part.write_all(bytes).map_err(|error| in_file(part_name, &error)),
        }
    }

    fn finish(mut self) -> Result<(), CliError> {
        match &mut self {
            Self::Stdout(out) => Ok(out.flush()?),
            Self::File { part, part_name, name } => {
                part.sync_all().map_err(|error| in_file(part_name, &error))?;
                std::fs::rename(part_name, &*name).map_err(|error| in_file(name, &error))
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Self::File { part_name, .. } = self {
            // After `finish` there is none; before it, half a run would pass for one.
            let _ = std::fs::remove_file(part_name);
        }
    }
}

fn in_file(file: &Path, why: &dyn std::fmt::Display) -> CliError {
    CliError::File { file: file.to_owned(), why: why.to_string() }
}

/// Sends a file's envelopes to a run.
///
/// # Errors
/// [`CliError`], with the line that is at fault if one is.
pub async fn import(asked: Import) -> Result<(), CliError> {
    let (server, client) = (&asked.server, asked.server.client()?);
    let uploading = server.uploading_client()?;
    let checked = Checked::read(&asked.file)?;
    let Some(run) = asked.run.clone().or(checked.run.clone()) else {
        let why = format!("{} does not say which run it is of; name one with --run", asked.file.display());
        return Err(CliError::Usage(why));
    };
    refuse_itself(server, &client, &run, &checked, &asked.file).await?;

    let bar = progress(Some(checked.bytes), "{bar:32.cyan/dim} {bytes} of {total_bytes}");
    let lines = Lines::open(&asked.file)?;
    let read = bar.clone();
    let body = futures_util::stream::try_unfold(lines, move |mut lines| {
        let chunk = lines.next_chunk();
        read.set_position(lines.bytes);
        std::future::ready(chunk.map(|chunk| chunk.map(|chunk| (chunk, lines))))
    });
    let request = uploading
        .post(format!("{}?source=agentui", server.run(&run, "facts")))
        .header("content-type", "application/x-ndjson")
        .header("producer-id", &checked.producer)
        .header("producer-epoch", "0")
        .header("producer-seq", "0");
    let answer = server.upload(request, body).await?;
    bar.finish_and_clear();
    if !answer.status().is_success() {
        let (error, problem) = server.refusal(answer).await;
        return Err(match (problem["line"].as_u64(), error) {
            (Some(line), CliError::Refused { code, detail }) => {
                CliError::Line { file: asked.file, line, why: format!("the server refused: {detail} ({code})") }
            }
            (_, error) => error,
        });
    }
    let receipt: Value = answer.json().await.map_err(|error| server.failed(&error))?;
    let (accepted, known) = (receipt["accepted"].as_u64().unwrap_or(0), receipt["duplicates"].as_u64().unwrap_or(0));
    let already = if known > 0 { format!("; {known} were there from an earlier import of this file") } else { String::new() };
    tell(&format!("{accepted} envelopes of {} are in run {run}{already}", asked.file.display()));
    Ok(())
}

/// Refuses to add a run to itself: the same events would be in it twice.
async fn refuse_itself(
    server: &Server,
    client: &reqwest::Client,
    run: &str,
    checked: &Checked,
    file: &Path,
) -> Result<(), CliError> {
    let url = format!("{}?audience=internal&limit=1", server.run(run, "events"));
    let answer = client.get(url).send().await.map_err(|error| server.failed(&error))?;
    // Whoever may write and not read cannot look; then it is taken for another run.
    if matches!(answer.status(), StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) {
        return Ok(());
    }
    let page: Value = server.accepted(answer).await?.json().await.map_err(|error| server.failed(&error))?;
    let first = page["events"][0]["eventId"].as_str();
    if first.is_some() && first == checked.first_event.as_deref() {
        let why = format!("run {run} on this server is the very run in {}; name another with --run", file.display());
        return Err(CliError::Usage(why));
    }
    Ok(())
}

/// What is known of a file that holds nothing but envelopes.
#[derive(Debug)]
struct Checked {
    bytes: u64,
    /// The producer: the file's own content.
    producer: String,
    run: Option<String>,
    first_event: Option<String>,
}

impl Checked {
    fn read(file: &Path) -> Result<Self, CliError> {
        let mut lines = Lines::open(file)?;
        let mut hash = Sha256::new();
        let mut first = None;
        while let Some(line) = lines.next_line().map_err(|error| in_file(file, &error))? {
            hash.update(line);
            let envelope = envelope(line).map_err(|why| CliError::Line { file: file.to_owned(), line: lines.number, why })?;
            first = first.or(envelope);
        }
        let Some(first) = first else { return Err(in_file(file, &"there is no envelope in it")) };
        let text = |member: &str| first.get(member).and_then(Value::as_str).map(str::to_owned);
        let hex = HEXLOWER.encode(&hash.finalize());
        Ok(Self { bytes: lines.bytes, producer: format!("import-{hex}"), run: text("runId"), first_event: text("eventId") })
    }
}

/// The envelope in a line; none in a blank one.
fn envelope(line: &[u8]) -> Result<Option<Map<String, Value>>, String> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    match serde_json::from_slice(line) {
        Ok(Value::Object(envelope)) if envelope.get("type").is_some_and(Value::is_string) => Ok(Some(envelope)),
        Ok(Value::Object(_)) => Err("this object has no \"type\"; a line of an export is an envelope".into()),
        Ok(_) => Err("this is no JSON object; a line of an export is an envelope".into()),
        Err(error) => Err(format!("this is not JSON: {error}")),
    }
}

/// A file's lines.
struct Lines {
    from: BufReader<File>,
    line: Vec<u8>,
    /// The number of the current line, from 1, and the bytes up to its end.
    number: u64,
    bytes: u64,
}

impl Lines {
    fn open(file: &Path) -> Result<Self, CliError> {
        let from = BufReader::with_capacity(CHUNK_BYTES, File::open(file).map_err(|error| in_file(file, &error))?);
        Ok(Self { from, line: Vec::new(), number: 0, bytes: 0 })
    }

    fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let read = self.from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)? as u64;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.bytes += read;
        if read == LINE_BYTES_MAX {
            return Err(io::Error::other(format!("line {} is longer than {LINE_BYTES_MAX} bytes, the limit", self.number)));
        }
        Ok(Some(&self.line))
    }

    /// The next lines as they are sent. Blank lines are sent too, so that the server counts as the file does.
    fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        while chunk.len() < CHUNK_BYTES {
            let Some(line) = self.next_line()? else { break };
            match envelope(line) {
                Ok(None) => {}
                Ok(Some(mut envelope)) => {
                    envelope.retain(|member, _| !STAMPS.contains(&member.as_str()));
                    serde_json::to_writer(&mut chunk, &envelope)?;
                }
                Err(why) => {
                    return Err(io::Error::other(format!("line {} has changed since it was checked: {why}", self.number)));
                }
            }
            chunk.push(b'\n');
        }
        Ok((!chunk.is_empty()).then(|| chunk.into()))
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
    fn a_file_is_checked_to_its_last_line_before_anything_is_sent() {
        let check = |text: &str, expected: &str| {
            let file = file(text);
            let told = Checked::read(file.path()).unwrap_err().to_string();
            assert!(told.starts_with(&format!("{}{expected}", file.path().display())), "{told}");
        };
        check("{\"type\":\"a\"}\n\n{\"type\":", ":3: this is not JSON");
        check("{\"type\":\"a\"}\n[]\n", ":2: this is no JSON object");
        check("{\"typ\":\"a\"}", ":1: this object has no \"type\"");
        check("\n \n", ": there is no envelope");
    }

    #[test]
    fn the_producer_is_the_files_content() {
        let producer = |text: &str| Checked::read(file(text).path()).unwrap().producer;
        assert_eq!(producer("{\"type\":\"a\"}\n"), producer("{\"type\":\"a\"}\n"));
        assert_ne!(producer("{\"type\":\"a\"}\n"), producer("{\"type\":\"b\"}\n"));
        assert!(producer("{\"type\":\"a\"}\n").len() <= 256);
    }

    #[test]
    fn what_a_server_stamps_anew_is_left_out_and_every_line_keeps_its_number() {
        let file = file(
            "{\"type\":\"a\",\"eventId\":\"e\",\"sequence\":4,\"sourceSequence\":7,\"runId\":\"r\",\"x\":1.50}\n\n{\"type\":\"b\"}",
        );
        let sent = Lines::open(file.path()).unwrap().next_chunk().unwrap().unwrap();
        assert_eq!(sent, "{\"type\":\"a\",\"sourceSequence\":7,\"x\":1.5}\n\n{\"type\":\"b\"}\n");
    }
}

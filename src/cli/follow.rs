//! `proscenium publish` and `proscenium import --follow`: the output of any process becomes a run, as it comes.
//!
//! The input goes to the server as one streamed body. Blank lines in pauses are signs of life. A growing file is read
//! from its start and its facts are numbered, so the same command may run again: the server skips what it has.

use super::{CliError, Endpoint};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, sleep, timeout_at};

/// The arguments of `publish`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = PUBLISH_EXAMPLES)]
pub struct Publish {
    /// The run to publish to.
    run: String,
    /// The vocabulary of the facts, one JSON object a line.
    #[arg(long, env = "PROSCENIUM_SOURCE", value_name = "SOURCE", default_value = "agentui")]
    source: String,
    /// The session of the run.
    #[arg(long, env = "PROSCENIUM_SESSION", value_name = "SESSION")]
    session: Option<String>,
    /// The agent of facts that name none.
    #[arg(long, env = "PROSCENIUM_AGENT_ID", value_name = "AGENT")]
    agent: Option<String>,
    #[command(flatten)]
    server: Endpoint,
}

const PUBLISH_EXAMPLES: &str = "\
Examples:
  claude -p 'Tidy up' --output-format stream-json --verbose | proscenium publish tidy --source claude-stream-json
  echo '{\"type\":\"run.started\"}' | proscenium publish my-run --session s1

The command reads standard input to its end. The server stores each line as it comes.";

/// Bytes of one chunk of the upload.
const CHUNK_BYTES: usize = 64 * 1024;
/// The pause after which a blank line tells the server that the input is only quiet.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How often a file is looked at for growth.
const POLL: Duration = Duration::from_millis(200);

/// Publishes standard input as a run's facts.
///
/// # Errors
/// [`CliError`], with the number of the line that the server rejected.
pub async fn publish(args: Publish) -> Result<(), CliError> {
    let Publish { run, source, session, agent, server } = args;
    let query = [("source", Some(source)), ("sessionId", session), ("agentId", agent)];
    let input = Input { from: tokio::io::stdin(), grows: false, is_at_line_start: true };
    send(&server, &run, &query, input, Path::new("standard input"), None).await
}

/// Publishes a growing file, or standard input for `-`, as a run's facts.
///
/// # Errors
/// [`CliError`], with the number of the line that the server rejected.
pub async fn import(server: &Endpoint, run: &str, source: &str, file: &Path) -> Result<(), CliError> {
    let query = [("source", Some(source.to_owned()))];
    if file == Path::new("-") {
        let input = Input { from: tokio::io::stdin(), grows: false, is_at_line_start: true };
        return send(server, run, &query, input, Path::new("standard input"), None).await;
    }
    let failed = |error: io::Error| CliError::File { file: file.to_owned(), reason: error.to_string() };
    let name = file.canonicalize().map_err(failed)?;
    let producer = HEXLOWER.encode(&Sha256::digest(name.as_os_str().as_encoded_bytes())[..16]);
    let input = Input { from: File::open(file).await.map_err(failed)?, grows: true, is_at_line_start: true };
    send(server, run, &query, input, file, Some(producer)).await
}

/// Sends an input as one streamed body. `producer`: numbers its facts under this id.
async fn send<R: AsyncRead + Unpin + Send + 'static>(
    server: &Endpoint,
    run: &str,
    query: &[(&str, Option<String>)],
    input: Input<R>,
    file: &Path,
    producer: Option<String>,
) -> Result<(), CliError> {
    let client = server.uploading_client()?;
    let body = futures_util::stream::try_unfold(input, async |mut input| Ok(input.next().await?.map(|chunk| (chunk, input))));
    let mut query_text = form_urlencoded::Serializer::new(String::new());
    query_text.extend_pairs(query.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))));
    let url = format!("{}?{}", server.run_url(run, "facts"), query_text.finish());
    let mut request = client.post(url).header("content-type", "application/x-ndjson");
    if let Some(producer) = producer {
        request = request.header("producer-id", producer).header("producer-epoch", "0").header("producer-seq", "0");
    }
    let answer = server.upload(request, body).await?;
    if !answer.status().is_success() {
        let (error, problem) = server.read_rejection(answer).await;
        return Err(match (problem["line"].as_u64(), error) {
            (Some(line), CliError::Rejected { code, detail }) => {
                let reason = format!("the server rejected the line: {detail} ({code})");
                CliError::Line { file: PathBuf::from(file), line, reason }
            }
            (_, error) => error,
        });
    }
    let receipt: Value = answer.json().await.map_err(|error| server.request_error(&error))?;
    let accepted = receipt["accepted"].as_u64().unwrap_or(0);
    // A closed standard error only loses the notice.
    let _ = writeln!(io::stderr(), "published {accepted} facts to run {run}");
    Ok(())
}

/// An input that arrives over time.
struct Input<R> {
    from: R,
    /// Whether more may follow its end.
    grows: bool,
    is_at_line_start: bool,
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// The next bytes, or a blank line in a pause; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let sign_of_life = Instant::now() + SIGN_OF_LIFE;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match timeout_at(sign_of_life, self.from.read(&mut chunk)).await {
                Ok(Ok(0)) if !self.grows => return Ok(None),
                Ok(Ok(0)) => sleep(POLL).await,
                Ok(Ok(count)) => {
                    chunk.truncate(count);
                    self.is_at_line_start = chunk.ends_with(b"\n");
                    return Ok(Some(chunk.into()));
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
            // Within a line it would cut the line in two.
            if Instant::now() >= sign_of_life && self.is_at_line_start {
                return Ok(Some(Bytes::from_static(b"\n")));
            }
        }
    }
}

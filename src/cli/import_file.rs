//! Files of envelopes, one per line, on their way to a server.

use super::{CliError, Endpoint};
use bytes::Bytes;
use indicatif::ProgressBar;
use proscenium::model::halves;
use proscenium::record::proof::LINE_START;
use proscenium::serve::api::owner_export::EXPORT_LINE_START;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// The size limit of an imported line, in bytes: a fact at the server's largest limit.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The size of a chunk of the upload, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// The members that a server assigns to every accepted envelope.
///
/// An import omits those of the exporting server.
const SERVER_MEMBERS: [&str; 5] = ["runId", "eventId", "sequence", "receivedAt", "startAudience"];

pub(super) fn file_error(file: &Path, reason: &dyn std::fmt::Display) -> CliError {
    CliError::File { file: file.to_owned(), reason: reason.to_string() }
}

/// Whether a file is the export of an owner.
pub(super) fn is_of_owner(file: &Path) -> Result<bool, CliError> {
    let mut lines = LineReader::open(file)?;
    let first = lines.next_line().map_err(|error| file_error(file, &error))?;
    Ok(first.is_some_and(|line| line.starts_with(EXPORT_LINE_START)))
}

/// Sends lines to an address for facts, as this producer. Returns the receipt.
pub(super) async fn send_lines(
    server: &Endpoint,
    url: &str,
    producer: &str,
    lines: LineReader,
    file: &Path,
    bar: &ProgressBar,
) -> Result<Value, CliError> {
    let (before, read) = (lines.number, bar.clone());
    let body = futures_util::stream::try_unfold(lines, move |mut lines| {
        let chunk = lines.next_chunk();
        read.set_position(lines.bytes);
        std::future::ready(chunk.map(|chunk| chunk.map(|chunk| (chunk, lines))))
    });
    let separator = if url.contains('?') { '&' } else { '?' };
    let request = server
        .uploading_client()?
        .post(format!("{url}{separator}source=agentui"))
        .header("content-type", "application/x-ndjson")
        .header("producer-id", producer)
        .header("producer-epoch", "0")
        .header("producer-seq", "0");
    let answer = server.upload(request, body).await?;
    if answer.status().is_success() {
        return answer.json().await.map_err(|error| server.request_error(&error));
    }
    let (error, problem) = server.read_rejection(answer).await;
    Err(match (problem["line"].as_u64(), error) {
        (Some(line), CliError::Rejected { code, detail }) => CliError::Line {
            file: file.to_owned(),
            line: before + line,
            reason: format!("the server rejected the line: {detail} ({code})"),
        },
        (_, error) => error,
    })
}

/// Parses the envelope in a line; returns `None` for a blank line, and for a line of proofs or of an owner's export.
pub(super) fn parse_envelope(line: &[u8]) -> Result<Option<Map<String, Value>>, String> {
    if line.iter().all(u8::is_ascii_whitespace) || line.starts_with(LINE_START) || line.starts_with(EXPORT_LINE_START) {
        return Ok(None);
    }
    match halves::parse(line) {
        Ok(Value::Object(envelope)) if envelope.get("type").is_some_and(Value::is_string) => Ok(Some(envelope)),
        Ok(Value::Object(_)) => Err("this object has no \"type\"; each line of an export is an envelope".into()),
        Ok(_) => Err("this is not a JSON object; each line of an export is an envelope".into()),
        Err(error) => Err(format!("this is not JSON: {error}")),
    }
}

/// Reads a file line by line.
pub(super) struct LineReader {
    from: BufReader<File>,
    line: Vec<u8>,
    /// The number of the current line, from 1, and the bytes up to its end.
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// The byte at which the part ends that it reads.
    until: u64,
}

impl LineReader {
    pub(super) fn open(file: &Path) -> Result<Self, CliError> {
        let from = BufReader::with_capacity(CHUNK_BYTES, File::open(file).map_err(|error| file_error(file, &error))?);
        Ok(Self { from, line: Vec::new(), number: 0, bytes: 0, until: u64::MAX })
    }

    /// Reads the part of a file between two bytes. `number`: the lines before it.
    pub(super) fn open_part(file: &Path, bytes: Range<u64>, number: u64) -> Result<Self, CliError> {
        let mut reader = Self::open(file)?;
        reader.from.seek(SeekFrom::Start(bytes.start)).map_err(|error| file_error(file, &error))?;
        Ok(Self { number, bytes: bytes.start, until: bytes.end, ..reader })
    }

    pub(super) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        if self.bytes >= self.until {
            return Ok(None);
        }
        let read = self.from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)? as u64;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.bytes += read;
        if read == LINE_BYTES_MAX {
            return Err(io::Error::other(format!("line {} is longer than the limit of {LINE_BYTES_MAX} bytes", self.number)));
        }
        Ok(Some(&self.line))
    }

    /// Returns the next chunk to send.
    ///
    /// It includes blank lines, so that the server's line numbers match the file.
    pub(super) fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        while chunk.len() < CHUNK_BYTES {
            let Some(line) = self.next_line()? else { break };
            match parse_envelope(line) {
                Ok(None) => {}
                Ok(Some(mut envelope)) => {
                    envelope.retain(|member, _| !SERVER_MEMBERS.contains(&member.as_str()));
                    serde_json::to_writer(&mut chunk, &envelope)?;
                }
                Err(reason) => {
                    return Err(io::Error::other(format!("line {} has changed since the check: {reason}", self.number)));
                }
            }
            chunk.push(b'\n');
        }
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }
}

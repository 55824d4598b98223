//! `proscenium backup`: the files of a running server's store, as they are after one commit, in a directory or in object
//! storage.

use super::Output;
use crate::cli::backup_manifest::{Hashes, Manifest};
use crate::cli::backups::Backups;
use crate::cli::{CliError, Endpoint, progress};
use bytes::{Buf, Bytes};
use indicatif::ProgressBar;
use reqwest::Response;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use tokio::time::Instant;

/// The arguments of `backup`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium backup --to /backup/proscenium
  proscenium backup --to s3://bucket/backups
  proscenium backup --to /backup/proscenium --keep 30 --url https://agents.example --ca ca.pem
  proscenium restore --from /backup/proscenium --data-dir /var/lib/proscenium

The token needs `admin` for all sessions. The server goes on meanwhile; the backup has every fact that was acknowledged
before it began. Files that the place has already are not sent again: in a directory they are checked first. A backup that
is cut off goes on when the command is repeated, and leaves earlier backups as they are.

Object storage is s3://bucket/…, gs://bucket/… or az://container/…, with the credentials of its provider's variables, such as
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT.

The signing key, keys of tokens and the configuration are not part of it, and do not leave the server: keep them apart. The
store has secrets of webhooks and the key of Web Push, so a server on another machine must be read over https. What is erased later stays in the backup until `--keep` removes it.")]
pub struct Backup {
    /// The directory for backups, which is made if it does not exist, or an address in object storage.
    #[arg(long, value_name = "PLACE")]
    to: PathBuf,
    /// The number of newest backups that stay. 0: all.
    #[arg(long, value_name = "COUNT", default_value_t = 7)]
    keep: usize,
    /// The most bytes that the server sends in a second.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 128 * 1024 * 1024)]
    rate: u64,
    /// Read and check each file in object storage. Files in a directory are always checked.
    #[arg(long)]
    check: bool,
    /// Read over http from another machine, without TLS.
    #[arg(long)]
    plain_http: bool,
    #[command(flatten)]
    server: Endpoint,
    #[command(flatten)]
    output: Output,
}

/// Content after which the notes of an unfinished backup are written again, in files.
const NOTE_INTERVAL: usize = 32;

/// Writes a backup.
///
/// # Errors
/// [`CliError`] if the server does not answer or refuses, or if the place cannot be written.
pub async fn run(args: Backup) -> Result<(), CliError> {
    if !args.plain_http && is_readable_on_the_way(&args.server.url) {
        let reason = format!(
            "a backup has secrets of webhooks and the key of Web Push, and {} is neither https nor this machine; use https, or \
             pass --plain-http if the network between is yours",
            args.server.url
        );
        return Err(CliError::Usage(reason));
    }
    let backups = Backups::open(&args.to)?;
    let lock = backups.lock().await?;
    let written = write(&args, &backups).await;
    let unlocked = backups.unlock(lock).await;
    // Why the backup failed counts more than a lock that stays.
    let (told, lines) = written?;
    unlocked?;
    args.output.print(&told, |out| out.write_all(lines.as_bytes()))
}

/// Writes a backup, and returns what is to be said about it, as an object and as lines.
async fn write(args: &Backup, backups: &Backups) -> Result<(Value, String), CliError> {
    let (server, begun) = (&args.server, Instant::now());
    let mut known = backups.known(args.check).await?;
    let have: Vec<&String> = known.keys().collect();
    let url = format!("{}/v1/backup", server.url.trim_end_matches('/'));
    let body = json!({ "have": have, "bytesPerSecond": args.rate }).to_string();
    let request = server.client()?.post(&url).header("content-type", "application/json").body(body);
    let answer = server.require_success(request.send().await.map_err(|error| server.request_error(&error))?).await?;
    let mut answer = Answer { server, response: answer, read: Bytes::new() };
    let bad_plan = |reason: String| CliError::InvalidFrame { url: url.clone(), reason };
    let mut manifest = Manifest::plan(&answer.line().await?).map_err(bad_plan)?;
    backups.note(&manifest).await?;
    let (sent_files, sent_bytes) =
        manifest.files.iter().filter(|file| file.sent).fold((0, 0), |sum, file| (sum.0 + 1, sum.1 + file.bytes));
    let bar = progress(Some(sent_bytes), "{bar:32.cyan/dim} {bytes} of {total_bytes}");
    let received = receive(&mut manifest, &mut answer, &mut known, backups, &bar).await;
    bar.finish_and_clear();
    if let Err(error) = received {
        // What has arrived is not sent again. The first error is the one that counts.
        let _ = backups.note(&manifest).await;
        return Err(error);
    }
    if answer.line().await? != *b"{\"end\":true}\n" {
        return Err(bad_plan("it has no end".into()));
    }
    let name = backups.finish(&manifest).await?;
    let removed = backups.keep_newest(if args.keep == 0 { usize::MAX } else { args.keep }).await?;
    let (files, bytes): (usize, u64) = (manifest.files.len(), manifest.files.iter().map(|file| file.bytes).sum());
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let told = json!({
        "backup": name, "place": backups.shown(), "position": manifest.position, "storeEpoch": manifest.store_epoch,
        "logs": manifest.logs, "files": files, "bytes": bytes, "sentFiles": sent_files, "sentBytes": sent_bytes,
        "removed": removed, "ms": ms,
    });
    let of_removed = if removed.is_empty() { String::new() } else { format!("Removed by --keep: {}.\n", removed.join(", ")) };
    let lines = format!(
        "Backup {name} in {}: everything up to commit {}.\n\
         It has {files} files with {bytes} bytes, of which {sent_files} with {sent_bytes} bytes were sent, in {ms} ms.\n{of_removed}\
         The signing key, keys of tokens and the configuration are not in it; keep them apart. Webhooks' secrets are in it.\n",
        backups.shown(),
        manifest.position
    );
    Ok((told, lines))
}

/// Receives the files that the server sends, and gives each file of the manifest its SHA-256.
async fn receive(
    manifest: &mut Manifest,
    answer: &mut Answer<'_>,
    known: &mut HashMap<String, String>,
    backups: &Backups,
    bar: &ProgressBar,
) -> Result<(), CliError> {
    let mut received = 0;
    for at in 0..manifest.files.len() {
        let file = &mut manifest.files[at];
        let content = file.content();
        if file.sent {
            let sha256 = answer.file(backups, &file.path, &content, file.bytes, bar).await?;
            known.insert(content.clone(), sha256);
            received += 1;
        }
        let lacks = || CliError::InvalidFrame { url: answer.server.url.clone(), reason: format!("it lacks {}", file.path) };
        let sha256 = known.get(&content).ok_or_else(lacks)?;
        file.sha256.clone_from(sha256);
        if received == NOTE_INTERVAL {
            received = 0;
            backups.note(manifest).await?;
        }
    }
    Ok(())
}

/// Whether others can read what comes from this address.
fn is_readable_on_the_way(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && !is_here
}

/// The answer of the server on its way.
struct Answer<'e> {
    server: &'e Endpoint,
    response: Response,
    /// What came and is not used yet.
    read: Bytes,
}

impl Answer<'_> {
    async fn more(&mut self) -> Result<(), CliError> {
        let chunk = self.response.chunk().await.map_err(|error| self.server.request_error(&error))?;
        self.read = chunk.ok_or_else(|| CliError::Disconnected {
            url: self.server.url.clone(),
            reason: "the backup ended too early".into(),
        })?;
        Ok(())
    }

    /// The next line, with its end.
    async fn line(&mut self) -> Result<Vec<u8>, CliError> {
        let mut line = Vec::new();
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.read) {
                line.extend_from_slice(&self.read[..=end]);
                self.read.advance(end + 1);
                return Ok(line);
            }
            line.extend_from_slice(&self.read);
            self.more().await?;
        }
    }

    /// Writes the next bytes as a content, and returns its SHA-256.
    async fn file(
        &mut self,
        backups: &Backups,
        path: &str,
        content: &str,
        bytes: u64,
        bar: &ProgressBar,
    ) -> Result<String, CliError> {
        let (mut upload, mut hashes) = (backups.upload(content), Hashes::new());
        while hashes.bytes < bytes {
            let written = match self.read.is_empty() {
                true => self.more().await,
                false => {
                    let count = self.read.len().min(usize::try_from(bytes - hashes.bytes).unwrap_or(usize::MAX));
                    let piece = self.read.split_to(count);
                    hashes.update(&piece);
                    bar.inc(count as u64);
                    upload.write(&piece).await.map_err(|error| backups.content_error(content, &error))
                }
            };
            if let Err(error) = written {
                upload.abort().await;
                return Err(error);
            }
        }
        let (sha256, found) = hashes.finish();
        if found != content {
            upload.abort().await;
            let reason = format!("{path} arrived with the checksum {found}, and the server announced {content}");
            return Err(backups.content_error(content, &reason));
        }
        backups.finish_upload(upload, &sha256).await?;
        Ok(sha256)
    }
}

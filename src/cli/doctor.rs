//! `proscenium doctor`: what is wrong in a data directory, while no server has it open. Changes nothing.
//!
//! The store finds what contradicts itself in its files and keyspaces; here are the contents: rows, state entries, bodies and
//! checkpoints of each log. Exits with 0 where nothing is wrong, with 1 where something is, and with 2 where it could not look.

use super::CliError;
use data_encoding::HEXLOWER;
use proscenium::ingest::{BlobMeta, unreadable_entries};
use proscenium::log::embedded::{EmbeddedStore, StoreInspection, Finding};
use proscenium::log::row::Row;
use proscenium::log::run::{Summary, summary_of};
use proscenium::log::{Limit, LoadedLog, LogId, LogKind, Store, StoreError};
use proscenium::model::{Audience, BlobId, Sequence};
use proscenium::projection::View;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::PathBuf;

/// What `doctor` is asked for.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// The data directory of a server that is stopped.
    #[arg(long, env = "PROSCENIUM_DATA_DIR", value_name = "DIR", default_value = "./data")]
    data_dir: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  proscenium doctor --data-dir /var/lib/proscenium

Each line names the log (or file), the entry, and what is wrong with it. Nothing in the directory is changed; it takes room in
the temporary directory (TMPDIR) for a copy of the journals, at most a few hundred MiB. The exit code is 0 where nothing is
wrong, 1 where something is, 2 where the directory could not be examined: no store is there, or a server has it open.";

/// Logs that are listed at once.
const LISTED: usize = 256;

/// What is read of a log at once.
const PAGE: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };

/// Examines a data directory; whether nothing is wrong with it.
///
/// # Errors
/// [`CliError`] where that cannot be told.
pub fn run(asked: &Doctor) -> Result<bool, CliError> {
    let failed = |error: StoreError| CliError::Usage(format!("{} cannot be examined: {error}", asked.data_dir.display()));
    let mut out = std::io::stdout().lock();
    let (findings, logs) = match StoreInspection::open(&asked.data_dir).map_err(failed)? {
        // A store with damaged files cannot be looked into.
        Err(findings) => (findings, None),
        Ok(examined) => {
            let mut findings = examined.findings().map_err(failed)?;
            let logs = pollster::block_on(examine(examined.store(), &mut findings)).map_err(failed)?;
            (findings, Some(logs))
        }
    };
    for finding in &findings {
        writeln!(out, "{}", super::screen::clean(&finding.to_string()))?;
    }
    match (findings.len(), logs) {
        (0, logs) => writeln!(out, "Nothing is wrong. Logs: {}.", logs.unwrap_or_default())?,
        (count, Some(logs)) => writeln!(out, "Findings: {count}. Logs: {logs}.")?,
        (count, None) => writeln!(out, "Findings: {count}. The logs could not be read.")?,
    }
    Ok(findings.is_empty())
}

/// Examines every log; how many there are.
async fn examine(store: &EmbeddedStore, findings: &mut Vec<Finding>) -> Result<usize, StoreError> {
    let mut logs = 0;
    for kind in [LogKind::Run, LogKind::Session] {
        let mut before = None;
        loop {
            let page = store.list(kind, before, LISTED).await?;
            for listed in &page {
                logs += 1;
                let mut log = Log { store, id: &listed.log, findings };
                match store.load(&listed.log).await {
                    Ok(Some(loaded)) => log.examine(&loaded).await?,
                    Ok(None) => log.find("name", "the list of logs has it, and it is not there"),
                    Err(error) => log.find("log", error),
                }
            }
            before = page.last().map(|listed| listed.created);
            if page.len() < LISTED {
                break;
            }
        }
    }
    Ok(logs)
}

/// One log that is examined.
struct Log<'d> {
    store: &'d EmbeddedStore,
    id: &'d LogId,
    findings: &'d mut Vec<Finding>,
}

/// What the rows of a log come to.
#[derive(Default)]
struct Seen {
    last: Sequence,
    /// Per audience: the last row that it sees, and how many it sees.
    last_for: [Sequence; 3],
    count_for: [u64; 3],
}

impl Log<'_> {
    fn find(&mut self, entry: impl Into<String>, what: impl ToString) {
        self.findings.push(Finding { at: self.id.to_string(), entry: entry.into(), what: what.to_string() });
    }

    async fn examine(&mut self, loaded: &LoadedLog) -> Result<(), StoreError> {
        for error in unreadable_entries(self.id, loaded) {
            match error {
                StoreError::Unreadable { entry, why, .. } => self.find(format!("state entry {entry}"), why),
                error => self.find("state", error),
            }
        }
        let summary = summary_of(self.id, loaded).ok();
        // Without it, nobody knows which rows compaction took away.
        let holes_to = summary.as_ref().map_or(Sequence::MAX, |summary| summary.compacted.through);
        let seen = self.rows(loaded, holes_to).await?;
        if let (Some(seen), Some(summary)) = (seen, &summary) {
            self.agrees(&seen, summary);
        }
        self.checkpoints(loaded).await
    }

    /// Goes through all rows; `None` where they could not be read to their end.
    async fn rows(&mut self, loaded: &LoadedLog, holes_to: Sequence) -> Result<Option<Seen>, StoreError> {
        let mut seen = Seen::default();
        loop {
            let page = match self.store.read(self.id, loaded.epoch, seen.last, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    self.find(format!("rows after sequence {}", seen.last), error);
                    return Ok(None);
                }
            };
            if page.is_empty() {
                break;
            }
            for placed in page {
                let rows = match Row::decode_all(placed.rows) {
                    Ok(rows) if !rows.is_empty() => rows,
                    checked => {
                        let what = checked.err().unwrap_or("it has no rows");
                        self.find(format!("append after sequence {}", placed.before), what);
                        return Ok(None);
                    }
                };
                if rows[0].sequence() <= seen.last {
                    let what = format!("it stands behind sequence {}", seen.last);
                    self.find(format!("sequence {}", rows[0].sequence()), what);
                    return Ok(None);
                }
                for row in rows {
                    self.row(&row, &mut seen, holes_to).await?;
                }
            }
        }
        if seen.last != loaded.last {
            let what = format!("the log ends at sequence {} by its index", loaded.last);
            self.find(format!("sequence {}, the last row", seen.last), what);
        }
        Ok(Some(seen))
    }

    async fn row(&mut self, row: &Row, seen: &mut Seen, holes_to: Sequence) -> Result<(), StoreError> {
        let sequence = row.sequence();
        let entry = || format!("sequence {sequence}");
        // What compaction took away lies before the place where the log ended then.
        if sequence != seen.last.next() && sequence > holes_to {
            let what = format!("nothing stands between it and sequence {}, and no compaction took that away", seen.last);
            self.find(entry(), what);
        }
        seen.last = sequence;
        for audience in Audience::ALL {
            let n = audience.index();
            let Some(view) = row.view(audience) else { continue };
            if row.prev(audience) != seen.last_for[n] {
                let what = format!(
                    "for {audience} it follows sequence {}, and sequence {} stands there",
                    row.prev(audience),
                    seen.last_for[n]
                );
                self.find(entry(), what);
            }
            (seen.last_for[n], seen.count_for[n]) = (sequence, seen.count_for[n] + 1);
            match serde_json::from_slice::<Value>(view) {
                Err(error) => self.find(entry(), format!("its text for {audience} is not JSON: {error}")),
                Ok(envelope) if envelope["sequence"] != sequence.0 => {
                    self.find(entry(), format!("its text for {audience} says sequence {}", envelope["sequence"]));
                }
                Ok(envelope) if audience == Audience::Internal => {
                    let mut links = Vec::new();
                    links_in(&envelope["refs"], &mut links);
                    for (blob, link) in links {
                        self.blob(&entry(), blob, link).await?;
                    }
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// A body that a row refers to.
    async fn blob(&mut self, entry: &str, id: &str, link: &Value) -> Result<(), StoreError> {
        let found = match BlobId::new(id) {
            Ok(id) => self.store.blob(&id).await,
            Err(_) => Ok(None),
        };
        match found {
            Ok(None) => self.find(entry, format!("it refers to body {id}, which is not there")),
            Ok(Some(blob)) => {
                if let Err(StoreError::Unreadable { why, .. }) = BlobMeta::read(&blob) {
                    self.find(entry, format!("what is stored beside body {id} cannot be read: {why}"));
                }
                if link["sha256"].as_str().is_some_and(|told| told != HEXLOWER.encode(&Sha256::digest(&blob.body))) {
                    self.find(entry, format!("body {id} is not the one that it refers to, by its SHA-256"));
                }
            }
            Err(error) => self.find(entry, format!("body {id}: {error}")),
        }
        Ok(())
    }

    /// Whether the summary says of the rows what they are.
    fn agrees(&mut self, seen: &Seen, summary: &Summary) {
        for audience in Audience::ALL {
            let n = audience.index();
            if summary.seen_last[n] != seen.last_for[n] {
                let what = format!(
                    "it says that the last row for {audience} is sequence {}, and that is {}",
                    summary.seen_last[n], seen.last_for[n]
                );
                self.find("state entry \"m\"", what);
            }
            if summary.seen_count[n] != seen.count_for[n] {
                let what =
                    format!("it counts {} rows for {audience}, and there are {}", summary.seen_count[n], seen.count_for[n]);
                self.find("state entry \"m\"", what);
            }
        }
    }

    async fn checkpoints(&mut self, loaded: &LoadedLog) -> Result<(), StoreError> {
        for audience in Audience::ALL {
            let mut at = loaded.last;
            while at > Sequence::NONE {
                let kind = u8::try_from(audience.index()).unwrap_or(u8::MAX);
                let Some((sequence, saved)) = self.store.checkpoint(self.id, loaded.epoch, kind, at).await? else { break };
                let entry = format!("checkpoint for {audience} at sequence {sequence}");
                match View::restore(self.id, audience, &saved) {
                    Ok(Some(view)) if view.through != sequence => {
                        self.find(entry, format!("it was made at sequence {}", view.through));
                    }
                    Ok(_) => {}
                    Err(error) => self.find(entry, format!("it cannot be read, and is made again when it is needed: {error}")),
                }
                at = Sequence(sequence.0.saturating_sub(1));
            }
        }
        Ok(())
    }
}

/// The links to bodies among an envelope's references, each with the body's id.
fn links_in<'v>(refs: &'v Value, links: &mut Vec<(&'v str, &'v Value)>) {
    if let Some(id) = refs.get("href").and_then(Value::as_str).and_then(|href| href.strip_prefix("/v1/blobs/")) {
        links.push((id, refs));
    }
    match refs {
        Value::Array(items) => items.iter().for_each(|item| links_in(item, links)),
        Value::Object(members) => members.values().for_each(|member| links_in(member, links)),
        _ => {}
    }
}

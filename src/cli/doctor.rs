//! `proscenium doctor`: lists the damage in the data directory of a stopped server. It changes nothing.
//!
//! The store checks its files and keyspaces. This module checks their contents: the rows, state entries, bodies and
//! checkpoints of each log. The exit code is 0 without damage, 1 with damage, and 2 if the command could not examine
//! the store.

use super::CliError;
use super::remote::Output;
use data_encoding::HEXLOWER;
use proscenium::ingest::{BlobMeta, unreadable_entries};
use proscenium::log::archive::{ARCHIVE, ArchiveEntry};
use proscenium::log::commit::{Summary, summary_of};
use proscenium::log::embedded::{Defect, EmbeddedStore, FORMAT, Loss, Salvaged, StoreInspection, salvage};
use proscenium::log::row::Row;
use proscenium::log::{Limit, LoadedLog, LogId, LogKind, Store, StoreError};
use proscenium::model::{Audience, BlobId, Sequence};
use proscenium::projection::View;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The arguments of `doctor`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// The data directory of a stopped server.
    #[arg(long, env = "PROSCENIUM_DATA_DIR", value_name = "DIR", default_value = "./data")]
    data_dir: PathBuf,
    /// Write everything that is readable to a new store in this directory, which does not exist or is empty.
    #[arg(long, value_name = "OUT")]
    salvage: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  proscenium doctor --data-dir /var/lib/proscenium
  proscenium doctor --data-dir /var/lib/proscenium --salvage ./salvaged

Each line names the log (or file), the entry, and its defect. The command changes nothing in the directory. It copies the
journals, at most a few hundred MiB, to the temporary directory (TMPDIR). The exit code is 0 without damage, 1 with damage,
and 2 if the directory could not be examined: it has no store, or a server uses it.

With --salvage, the exit code is 0 if nothing is lost and 1 if something is. The list is also in `salvage.json` in OUT, and
rows that the new store cannot hold are in `salvaged/`, for `proscenium import`.";

/// The number of logs per page of the list.
const LIST_PAGE: usize = 256;

/// The size of one read from a log.
const PAGE: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };

/// Examines a data directory, prints the findings, and returns whether it has none.
///
/// # Errors
/// [`CliError`] if the directory cannot be examined.
pub fn run(args: &Doctor) -> Result<bool, CliError> {
    if let Some(out) = &args.salvage {
        return salvage_to(args, out);
    }
    let failed = |error: StoreError| CliError::Usage(format!("cannot examine {}: {error}", args.data_dir.display()));
    let (findings, examined) = inspect(&args.data_dir).map_err(failed)?;
    let listed: Vec<_> =
        findings.iter().map(|found| json!({ "at": found.at, "entry": found.entry, "what": found.what })).collect();
    let answer = json!({
        "findings": listed, "logs": examined.map(|(logs, _)| logs), "storeFormat": examined.map(|(_, format)| format),
    });
    args.output.print(&answer, |out| {
        for finding in &findings {
            writeln!(out, "{}", super::screen::sanitize(&finding.to_string()))?;
        }
        match (findings.len(), examined) {
            (0, Some((logs, format))) => writeln!(out, "No damage found. Logs: {logs}. Store format: {format}.")?,
            (count, Some((logs, format))) => writeln!(out, "Findings: {count}. Logs: {logs}. Store format: {format}.")?,
            (count, None) => writeln!(out, "Findings: {count}. The logs could not be read.")?,
        }
        if let Some((_, format)) = examined.filter(|(_, format)| *format < FORMAT) {
            writeln!(out, "A server of this version migrates the store from format {format} to {FORMAT} when it starts.")?;
        }
        Ok(())
    })?;
    Ok(findings.is_empty())
}

/// The findings in a data directory, the number of its logs, and its format; neither if its files are damaged.
fn inspect(dir: &Path) -> Result<(Vec<Defect>, Option<(usize, u32)>), StoreError> {
    match StoreInspection::open(dir)? {
        // The logs of a store with damaged files are unreadable.
        Err(findings) => Ok((findings, None)),
        Ok(examined) => {
            let mut findings = examined.findings()?;
            let logs = examine(examined.store(), &mut findings)?;
            Ok((findings, Some((logs, examined.format()))))
        }
    }
}

/// Salvages a store, prints what is lost, and returns whether nothing is.
fn salvage_to(args: &Doctor, out: &Path) -> Result<bool, CliError> {
    let named = |path: &Path, reason: &str| CliError::File { file: path.to_owned(), reason: reason.into() };
    let absolute = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    let (from, to) = (absolute(&args.data_dir)?, absolute(out)?);
    if to.starts_with(&from) || from.starts_with(&to) {
        return Err(named(out, "the new store must lie outside of the damaged one; give --salvage another directory"));
    }
    if out.read_dir().is_ok_and(|mut entries| entries.next().is_some()) || out.is_file() {
        return Err(named(out, "it is not empty; give --salvage a directory that does not exist or is empty"));
    }
    let failed = |error: StoreError| CliError::Usage(format!("cannot salvage {}: {error}", args.data_dir.display()));
    let salvaged = salvage(&args.data_dir, out).map_err(failed)?;
    let (findings, _) = inspect(out).map_err(failed)?;
    let mut report = serde_json::to_value(&salvaged).expect("the report is plain data");
    report["findings"] = findings.iter().map(ToString::to_string).collect();
    let list = out.join("salvage.json");
    std::fs::write(&list, format!("{report}\n")).map_err(|e| named(&list, &e.to_string()))?;
    args.output.print(&report, |to| {
        for Loss { kind, at, from, to: until, what } in &salvaged.losses {
            let range = from.zip(*until).map_or_else(String::new, |(from, until)| {
                let of = if *kind == "commits" { "commits" } else { " sequences" };
                format!("{of} {from} to {until}")
            });
            writeln!(to, "{}", super::screen::sanitize(&format!("{at}{range}: {what}")))?;
        }
        for finding in &findings {
            writeln!(to, "{}: {}", out.display(), super::screen::sanitize(&finding.to_string()))?;
        }
        let Salvaged { whole, repaired, aside, position, .. } = salvaged;
        writeln!(
            to,
            "Salvaged to {}: {whole} logs whole, {repaired} with gaps, {aside} beside the store, up to commit {position}.",
            out.display()
        )?;
        writeln!(
            to,
            "Nothing else was changed. Keys are not copied. `proscenium doctor --data-dir {}` checks the new store.",
            out.display()
        )
    })?;
    Ok(salvaged.losses.is_empty() && findings.is_empty())
}

/// Examines every log and returns their number.
fn examine(store: &EmbeddedStore, findings: &mut Vec<Defect>) -> Result<usize, StoreError> {
    let mut logs = 0;
    for kind in [LogKind::Run, LogKind::Session] {
        let mut before = None;
        loop {
            let page = store.list(kind, before, LIST_PAGE)?;
            for listed in &page {
                logs += 1;
                let mut log = Log { store, id: &listed.log, findings };
                match store.load(&listed.log) {
                    Ok(Some(loaded)) => log.examine(&loaded)?,
                    Ok(None) => log.report("name", "the list of logs contains it, but the log does not exist"),
                    Err(error) => log.report("log", error),
                }
            }
            before = page.last().map(|listed| listed.created);
            if page.len() < LIST_PAGE {
                break;
            }
        }
    }
    Ok(logs)
}

/// The log under examination.
struct Log<'d> {
    store: &'d EmbeddedStore,
    id: &'d LogId,
    findings: &'d mut Vec<Defect>,
}

/// Totals over the rows of a log, to compare with its index and summary.
#[derive(Default)]
struct RowTotals {
    last: Sequence,
    /// The last visible row and the number of visible rows, per audience.
    last_for: [Sequence; 3],
    count_for: [u64; 3],
    /// The last row that lies on object storage, with all before it.
    archived: Sequence,
}

impl Log<'_> {
    fn report(&mut self, entry: impl Into<String>, what: impl ToString) {
        self.findings.push(Defect { at: self.id.to_string(), entry: entry.into(), what: what.to_string() });
    }

    fn examine(&mut self, loaded: &LoadedLog) -> Result<(), StoreError> {
        for error in unreadable_entries(self.id, loaded) {
            match error {
                StoreError::Unreadable { entry, why, .. } => self.report(format!("state entry {entry}"), why),
                error => self.report("state", error),
            }
        }
        let summary = summary_of(self.id, loaded).ok();
        // Without a summary, the range that compaction removed is unknown, so any gap is allowed.
        let gaps_through = summary.as_ref().map_or(Sequence::MAX, |summary| summary.compacted.through);
        let entry = loaded.state.iter().find(|(key, _)| key == ARCHIVE);
        let archived = match entry.map(|(_, value)| ArchiveEntry::read(self.id, value)).transpose() {
            Ok(entry) => entry.map_or(Sequence::NONE, |entry| entry.through),
            Err(error) => {
                self.report("state entry \"archive\"", error);
                return Ok(());
            }
        };
        if let (Some(totals), Some(summary)) = (self.examine_rows(loaded, gaps_through, archived), &summary) {
            self.compare_with_summary(&totals, summary);
        }
        self.examine_checkpoints(loaded)
    }

    /// Examines all rows; returns `None` if an unreadable row ends the examination.
    fn examine_rows(&mut self, loaded: &LoadedLog, gaps_through: Sequence, archived: Sequence) -> Option<RowTotals> {
        let mut totals = RowTotals { archived, ..RowTotals::default() };
        loop {
            let page = match self.store.read(self.id, loaded.epoch, totals.last, PAGE) {
                Ok(page) => page,
                Err(error) => {
                    self.report(format!("rows after sequence {}", totals.last), error);
                    return None;
                }
            };
            if page.is_empty() {
                break;
            }
            for append in page {
                let rows = match Row::decode_all(append.rows) {
                    Ok(rows) if !rows.is_empty() => rows,
                    checked => {
                        let what = checked.err().unwrap_or("the append has no rows");
                        self.report(format!("append after sequence {}", append.before), what);
                        return None;
                    }
                };
                if rows[0].sequence() <= totals.last {
                    let what = format!("the row follows sequence {}", totals.last);
                    self.report(format!("sequence {}", rows[0].sequence()), what);
                    return None;
                }
                for row in rows {
                    self.examine_row(&row, &mut totals, gaps_through);
                }
            }
        }
        if totals.last != loaded.last {
            let what = format!("the index says that the log ends at sequence {}", loaded.last);
            self.report(format!("sequence {}, the last row", totals.last), what);
        }
        Some(totals)
    }

    fn examine_row(&mut self, row: &Row, totals: &mut RowTotals, gaps_through: Sequence) {
        let sequence = row.sequence();
        let entry = || format!("sequence {sequence}");
        // Compaction removes rows only up to the end that the log had at that time.
        let before = totals.last.max(totals.archived);
        if sequence != before.next() && sequence > gaps_through.max(totals.archived) {
            let what = format!("the rows after sequence {before} are missing, and no compaction removed them");
            self.report(entry(), what);
        }
        totals.last = sequence;
        for audience in Audience::ALL {
            let n = audience.index();
            let Some(view) = row.view(audience) else { continue };
            let is_archived = row.prev(audience) > totals.last_for[n] && row.prev(audience) <= totals.archived;
            if row.prev(audience) != totals.last_for[n] && !is_archived {
                let what = format!(
                    "for {audience} it follows sequence {}, but the row before it is sequence {}",
                    row.prev(audience),
                    totals.last_for[n]
                );
                self.report(entry(), what);
            }
            (totals.last_for[n], totals.count_for[n]) = (sequence, totals.count_for[n] + 1);
            match serde_json::from_slice::<Value>(view) {
                Err(error) => self.report(entry(), format!("the envelope for {audience} is not JSON: {error}")),
                Ok(envelope) if envelope["sequence"] != sequence.0 => {
                    self.report(entry(), format!("the envelope for {audience} has the sequence {}", envelope["sequence"]));
                }
                Ok(envelope) if audience == Audience::Internal => {
                    let mut links = Vec::new();
                    collect_links(&envelope["refs"], &mut links);
                    for (blob, link) in links {
                        self.examine_blob(&entry(), blob, link);
                    }
                }
                Ok(_) => {}
            }
        }
    }

    /// Examines a body that a row refers to.
    fn examine_blob(&mut self, entry: &str, id: &str, link: &Value) {
        let found = match BlobId::new(id) {
            Ok(id) => self.store.blob(&id),
            Err(_) => Ok(None),
        };
        match found {
            Ok(None) => self.report(entry, format!("it refers to body {id}, which does not exist")),
            Ok(Some(blob)) => {
                if let Err(StoreError::Unreadable { why, .. }) = BlobMeta::read(&blob) {
                    self.report(entry, format!("the metadata of body {id} is unreadable: {why}"));
                }
                if link["sha256"].as_str().is_some_and(|sha256| sha256 != HEXLOWER.encode(&Sha256::digest(&blob.body))) {
                    self.report(entry, format!("the SHA-256 of body {id} differs from that of the reference"));
                }
            }
            Err(error) => self.report(entry, format!("body {id}: {error}")),
        }
    }

    /// Reports differences between the rows and the summary.
    fn compare_with_summary(&mut self, totals: &RowTotals, summary: &Summary) {
        for audience in Audience::ALL {
            let n = audience.index();
            if summary.seen_last[n] != totals.last_for[n] && summary.seen_last[n] > totals.archived {
                let what = format!(
                    "the last row for {audience} is sequence {} in the summary, but {} in the log",
                    summary.seen_last[n], totals.last_for[n]
                );
                self.report("state entry \"m\"", what);
            }
            if summary.seen_count[n] != totals.count_for[n] && totals.archived == Sequence::NONE {
                let what = format!(
                    "the summary counts {} rows for {audience}, but the log has {}",
                    summary.seen_count[n], totals.count_for[n]
                );
                self.report("state entry \"m\"", what);
            }
        }
    }

    fn examine_checkpoints(&mut self, loaded: &LoadedLog) -> Result<(), StoreError> {
        for audience in Audience::ALL {
            let mut at = loaded.last;
            while at > Sequence::NONE {
                let kind = u8::try_from(audience.index()).unwrap_or(u8::MAX);
                let Some((sequence, saved)) = self.store.checkpoint(self.id, loaded.epoch, kind, at)? else { break };
                let entry = format!("checkpoint for {audience} at sequence {sequence}");
                match View::restore(self.id, audience, &saved) {
                    Ok(Some(view)) if view.through != sequence => {
                        self.report(entry, format!("its content is from sequence {}", view.through));
                    }
                    Ok(_) => {}
                    Err(error) => self.report(entry, format!("it is unreadable; the server will rebuild it on demand: {error}")),
                }
                at = Sequence(sequence.0.saturating_sub(1));
            }
        }
        Ok(())
    }
}

/// Collects the links to bodies among an envelope's references, each with the id of the body.
fn collect_links<'v>(refs: &'v Value, links: &mut Vec<(&'v str, &'v Value)>) {
    if let Some(id) = refs.get("href").and_then(Value::as_str).and_then(|href| href.strip_prefix("/v1/blobs/")) {
        links.push((id, refs));
    }
    match refs {
        Value::Array(items) => items.iter().for_each(|item| collect_links(item, links)),
        Value::Object(members) => members.values().for_each(|member| collect_links(member, links)),
        _ => {}
    }
}

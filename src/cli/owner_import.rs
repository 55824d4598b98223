//! `proscenium import` of all that an owner had: each log of the file becomes a log of the server.
//!
//! A first pass checks the whole file and finds its logs. Each log is then sent as a producer of its own, whose id follows
//! from the content of the file, so a repeated import adds only what is missing.

use super::import_file::{LineReader, file_error, parse_envelope, send_lines};
use super::{CliError, Endpoint, encoded, progress};
use data_encoding::HEXLOWER;
use proscenium::serve::api::owner_export::EXPORT_LINE_START;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// The version of the form that this command reads.
const VERSION_READ: u64 = 1;

/// A log of the file.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    /// `runs` or `sessions`.
    collection: &'static str,
    id: String,
    bytes: Range<u64>,
    /// The lines before it.
    number: u64,
    envelopes: u64,
}

/// The content of a valid file.
#[derive(Debug)]
struct OwnerFile {
    owner: String,
    digest: String,
    bytes: u64,
    sections: Vec<Section>,
    /// The logs of which the server could not read all, each with the reason.
    missing: Vec<String>,
}

impl OwnerFile {
    fn read(file: &Path) -> Result<Self, CliError> {
        let mut lines = LineReader::open(file)?;
        let (mut hash, mut owner, mut is_whole) = (Sha256::new(), None, false);
        let (mut sections, mut missing) = (Vec::<Section>::new(), Vec::new());
        while let Some(line) = lines.next_line().map_err(|error| file_error(file, &error))? {
            let line = line.to_vec();
            hash.update(&line);
            let invalid = |reason: String| CliError::Line { file: file.to_owned(), line: lines.number, reason };
            if !line.starts_with(EXPORT_LINE_START) {
                if parse_envelope(&line).map_err(invalid)?.is_some() {
                    let section = sections.last_mut().ok_or_else(|| invalid("no line says which log this is of".into()))?;
                    section.envelopes += 1;
                    section.bytes.end = lines.bytes;
                }
                continue;
            }
            let begins: Value = serde_json::from_slice(&line).map_err(|error| invalid(format!("this is not JSON: {error}")))?;
            let id = |member: &str| {
                let id = begins[member].as_str().map(str::to_owned);
                id.ok_or_else(|| invalid(format!("the line has no {member}")))
            };
            let mut begin = |collection, id| {
                let bytes = lines.bytes..lines.bytes;
                sections.push(Section { collection, id, bytes, number: lines.number, envelopes: 0 });
            };
            match begins["export"].as_str().unwrap_or_default() {
                "owner" if begins["version"] == VERSION_READ => owner = Some(id("ownerId")?),
                "owner" => {
                    let reason = format!("the file has version {}; this command reads {VERSION_READ}", begins["version"]);
                    return Err(invalid(reason));
                }
                "session" => begin("sessions", id("sessionId")?),
                "run" => begin("runs", id("runId")?),
                "end" => is_whole = true,
                "unreadable" => missing.push(format!(
                    "{} is not whole after sequence {}: {}",
                    id("runId").or_else(|_| id("sessionId"))?,
                    begins["after"],
                    begins["why"].as_str().unwrap_or("no reason given")
                )),
                other => return Err(invalid(format!("{other:?} is no part of an owner's export"))),
            }
        }
        let owner = owner.ok_or_else(|| file_error(file, &"the file names no owner"))?;
        if !is_whole {
            return Err(file_error(file, &"the export is not whole: its last line is missing; export the owner again"));
        }
        sections.retain(|section| section.envelopes > 0);
        Ok(Self { owner, digest: HEXLOWER.encode(&hash.finalize()), bytes: lines.bytes, sections, missing })
    }
}

/// Sends all logs of a file.
///
/// # Errors
/// [`CliError`], with the number of the invalid line if a line is the cause. The logs before it are imported.
pub(super) async fn import(server: &Endpoint, file: &Path) -> Result<(), CliError> {
    let input = OwnerFile::read(file)?;
    let bar = progress(Some(input.bytes), "{bar:32.cyan/dim} {bytes} of {total_bytes}");
    let (mut accepted, mut known) = (0, 0);
    for (n, section) in input.sections.iter().enumerate() {
        let lines = LineReader::open_part(file, section.bytes.clone(), section.number)?;
        let url = server.resource_url(section.collection, &section.id, "facts");
        let url = format!("{url}?owner={}", encoded(&input.owner));
        let producer = format!("import-{}-{n}", input.digest);
        let receipt = send_lines(server, &url, &producer, lines, file, &bar).await?;
        accepted += receipt["accepted"].as_u64().unwrap_or(0);
        known += receipt["duplicates"].as_u64().unwrap_or(0);
    }
    bar.finish_and_clear();
    let already = if known > 0 { format!("; {known} more were already imported from this file") } else { String::new() };
    let (logs, owner) = (input.sections.len(), &input.owner);
    // A closed standard error only loses the notice.
    let _ = writeln!(
        std::io::stderr(),
        "imported {accepted} envelopes of {} into {logs} logs of owner {owner}{already}",
        file.display()
    );
    for missing in &input.missing {
        let _ = writeln!(std::io::stderr(), "warning: {missing}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<OwnerFile, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let path = file.path().display().to_string();
        OwnerFile::read(file.path()).map_err(|error| error.to_string().replace(&path, "FILE"))
    }

    const FIRST: &str = "{\"export\":\"owner\",\"version\":1,\"ownerId\":\"acme\"}\n";

    #[test]
    fn each_log_of_a_file_has_its_lines_and_one_without_envelopes_is_left_out() {
        let text = format!(
            "{FIRST}{{\"export\":\"session\",\"sessionId\":\"s\"}}\n{{\"export\":\"run\",\"runId\":\"r\"}}\n{{\"type\":\"a\"}}\n{{\"type\":\"b\"}}\n{{\"export\":\"end\"}}\n"
        );
        let read = read(&text).unwrap();
        assert_eq!((&*read.owner, read.sections.len(), read.bytes), ("acme", 1, text.len() as u64));
        let section = &read.sections[0];
        assert_eq!((section.collection, &*section.id, section.number, section.envelopes), ("runs", "r", 3, 2));
        let bytes = usize::try_from(section.bytes.start).unwrap()..usize::try_from(section.bytes.end).unwrap();
        assert_eq!(&text[bytes], "{\"type\":\"a\"}\n{\"type\":\"b\"}\n");
    }

    #[test]
    fn a_log_that_the_server_could_not_read_is_named_and_the_rest_is_read() {
        let run = "{\"export\":\"run\",\"runId\":\"r\"}\n{\"type\":\"a\"}\n";
        let lost = "{\"export\":\"unreadable\",\"runId\":\"r\",\"after\":1,\"why\":\"the object is lost\"}\n";
        let read = read(&format!("{FIRST}{run}{lost}{{\"export\":\"end\",\"unreadable\":1}}\n")).unwrap();
        assert_eq!((read.sections.len(), &*read.missing[0]), (1, "r is not whole after sequence 1: the object is lost"));
    }

    #[test]
    fn a_file_that_is_not_whole_or_not_in_this_form_is_refused_before_anything_is_sent() {
        for (text, why) in [
            (FIRST.to_owned(), "FILE: the export is not whole"),
            ("{\"export\":\"end\"}\n".to_owned(), "FILE: the file names no owner"),
            ("{\"export\":\"owner\",\"version\":2}\n".to_owned(), "FILE:1: the file has version 2"),
            (format!("{FIRST}{{\"type\":\"a\"}}\n"), "FILE:2: no line says which log"),
            (format!("{FIRST}{{\"export\":\"run\"}}\n"), "FILE:2: the line has no runId"),
            (format!("{FIRST}{{\"export\":\"song\"}}\n"), "FILE:2: \"song\" is no part of an owner's export"),
            (format!("{FIRST}{{\"export\":\"run\",\"runId\":\"r\"}}\n{{\"type\"\n"), "FILE:3: this is not JSON"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}

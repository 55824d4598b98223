//! What can be read of a damaged journal.
//!
//! A record that is not whole ends the reading of an intact journal. Here the search goes on: records are aligned, and
//! the checksum of a whole one cannot be met by chance, because the salt of its segment is in it. So the next record with
//! a later position and a right checksum is a record of this journal.

use super::local::{SEGMENT_HEADER_BYTES, decode_header, segment_files};
use super::record::{self, ALIGNMENT, HEADER_BYTES, stored_bytes};
use super::{Record, tail};
use crate::log::StoreError;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What a damaged journal has.
#[derive(Default)]
pub struct SalvagedJournal {
    pub defects: Vec<JournalDefect>,
    /// The position of the last commit that was acknowledged, as far as known.
    pub acknowledged: u64,
    /// The position of the first record that the journal should have; `None` without a segment.
    pub first: Option<u64>,
}

/// Bytes of a file that are no record.
pub struct JournalDefect {
    pub path: PathBuf,
    pub bytes: Range<u64>,
    pub what: &'static str,
}

/// Reads every whole record of the journal in `dir`, and gives it to `take`.
///
/// # Errors
/// `Failed` when the disk fails.
pub fn read_all(dir: &Path, mut take: impl FnMut(Record) -> Result<(), StoreError>) -> Result<SalvagedJournal, StoreError> {
    let mut found = SalvagedJournal::default();
    if !dir.is_dir() {
        return Ok(found);
    }
    match tail::read_mark(dir) {
        Ok(acknowledged) => found.acknowledged = acknowledged,
        Err(what) => found.defects.push(JournalDefect { path: dir.join(tail::FILE), bytes: 0..0, what }),
    }
    let mut last = 0;
    for path in segment_files(dir)? {
        let data = std::fs::read(&path)
            .map_err(|e| StoreError::failed("reading the journal", &format_args!("{}: {e}", path.display())))?;
        let mut defect = |bytes: Range<u64>, what| found.defects.push(JournalDefect { path: path.clone(), bytes, what });
        let named: Option<u64> = path.file_stem().and_then(|name| name.to_str()?.parse().ok());
        found.first = found.first.or(named);
        let header = data.first_chunk::<{ SEGMENT_HEADER_BYTES as usize }>();
        let salt = match header.and_then(decode_header) {
            Some((bytes, _, salt)) => {
                if (data.len() as u64) < bytes {
                    defect(data.len() as u64..bytes, "the segment ends too early");
                }
                salt
            }
            None => {
                defect(0..SEGMENT_HEADER_BYTES.min(data.len() as u64), "the header of the segment is damaged");
                // Its salt may still be right: then the checksums of the records are.
                let Some(salt) = data.get(24..32) else { continue };
                u64::from_le_bytes(salt.try_into().expect("eight bytes"))
            }
        };
        last = last.max(named.map_or(0, |first| first.saturating_sub(1)));
        let (mut at, mut skipped) = (SEGMENT_HEADER_BYTES as usize, None);
        while at + HEADER_BYTES <= data.len() {
            let position = u64::from_le_bytes(data[at + 8..at + 16].try_into().expect("eight bytes"));
            // Most bytes are no position that can follow, so that few need a checksum.
            let may_follow = position > last && position - last < 1 << 32;
            match may_follow.then(|| record::decode(&data[at..], salt)).flatten() {
                Some((position, body)) => {
                    if let Some(from) = skipped.take() {
                        defect(from..at as u64, "no record is readable here");
                    }
                    last = position;
                    at += stored_bytes(body.len());
                    take(Record { position, body: bytes::Bytes::copy_from_slice(body) })?;
                }
                None => {
                    skipped.get_or_insert(at as u64);
                    at += ALIGNMENT;
                }
            }
        }
        // What follows the last record of a segment is zeros, or what an older segment left: only the positions that
        // lack say whether a record was there.
        found.first = found.first.or(named);
    }
    found.acknowledged = found.acknowledged.max(last);
    Ok(found)
}

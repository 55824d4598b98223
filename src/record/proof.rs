//! The lines that an export with proofs has beside its envelopes.
//!
//! Each is a JSON object with the single member `proof`, so that a reader of envelopes can pass over it:
//!
//! ```text
//! {"proof":{"begin":{…}}}      the log, and which of its rows the chain has
//! {"proof":{"row":{…}}}        one row; if the export shows it, its envelope is the next line
//! {"proof":{"removed":{…}}}    rows that compaction removed, with the chain's value at both ends
//! {"proof":{"resume":{…}}}     the chain's value, where an earlier version compacted and kept no ends
//! {"proof":{"end":{…}}}        a digest of all bytes before, and the signed head of the chain
//! ```
//!
//! A row that is shown as it was written has its row key, which turns the envelope into its leaf. Any other has the leaf
//! alone, which confirms no guess about the text that is not shown, and the hash of what is shown instead.

use super::signing::{SignedHead, SigningKey, names_of};
use crate::log::LogId;
use crate::log::hash_chain::{self, ChainRecord, Hash};
use crate::log::row::Row;
use crate::model::json::escape_line_ends;
use crate::model::{Audience, Epoch, RunId, Sequence, SessionId};
use data_encoding::HEXLOWER;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The version of these lines.
pub const VERSION: u32 = 1;

/// How each of these lines begins.
pub const LINE_START: &[u8] = b"{\"proof\":";

/// A hash in 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hex(pub Hash);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut digits = [0; 64];
        HEXLOWER.encode_mut(&self.0, &mut digits);
        serializer.serialize_str(std::str::from_utf8(&digits).expect("digits are ASCII"))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = Hex;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 lower-case hexadecimal digits")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Hex, E> {
                let mut hash = [0; 32];
                match HEXLOWER.decode_len(text.len()) {
                    Ok(32) => HEXLOWER.decode_mut(text.as_bytes(), &mut hash).map_err(|_| E::custom("not hexadecimal"))?,
                    _ => return Err(E::invalid_length(text.len(), &self)),
                };
                Ok(Hex(hash))
            }
        }
        deserializer.deserialize_str(Digits)
    }
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofLine {
    pub proof: Proof,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Proof {
    Begin(ExportBegin),
    Row(RowProof),
    Removed(Removed),
    Resume(Resume),
    End(Box<ExportEnd>),
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportBegin {
    pub version: u32,
    /// The run of the log; exactly one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Box<str>>,
    /// The session of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Box<str>>,
    pub epoch: Box<str>,
    pub audience: Audience,
    /// The last row of the export.
    pub until: u64,
    /// The rows of the chain: all, unless an earlier version wrote some. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainRows>,
}

impl ExportBegin {
    /// The log of the export.
    ///
    /// # Errors
    /// Why it names none.
    pub fn log(&self) -> Result<LogId, String> {
        match (&self.run_id, &self.session_id) {
            (Some(run), None) => RunId::new(run).map(LogId::Run).map_err(|error| format!("the run's id is not valid: {error}")),
            (None, Some(session)) => {
                SessionId::stored(session).map(LogId::Session).map_err(|error| format!("the session's id is not valid: {error}"))
            }
            _ => Err("it names neither one run nor one session".into()),
        }
    }
}

/// The rows that a chain has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainRows {
    pub from: u64,
    pub until: u64,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowProof {
    pub sequence: u64,
    /// The key that turns the next line into the row's leaf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Hex>,
    /// The leaf of a row whose text the export does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<Hex>,
    /// The hash of the next line, where that is not the text of the leaf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Hex>,
    /// The chain's value after the row. Absent for a row outside of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Hex>,
}

/// How the line of a row begins.
const ROW_START: &[u8] = b"{\"proof\":{\"row\":{\"sequence\":";
/// How it ends.
const ROW_END: &[u8] = b"}}}";

impl RowProof {
    /// Reads the line of a row as [`ProofWriter`] writes it; `None` for other lines, and for other forms of this one.
    ///
    /// Nearly all lines of an export are these, and a general parser would take as long as the hashes of a short row.
    #[must_use]
    pub fn read_written(line: &[u8]) -> Option<Self> {
        let mut rest = line.strip_prefix(ROW_START)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, after) = rest.split_at(digits);
        // JSON has no leading zeros.
        let number = std::str::from_utf8(number).ok().filter(|number| !number.starts_with('0'))?;
        rest = after;
        let mut member = |start: &[u8]| {
            let Some(text) = rest.strip_prefix(start) else { return Some(None) };
            let (digits, after) = text.split_at_checked(64)?;
            rest = after.strip_prefix(b"\"")?;
            let mut hash = [0; 32];
            HEXLOWER.decode_mut(digits, &mut hash).ok()?;
            Some(Some(Hex(hash)))
        };
        let [key, leaf] = [member(b",\"key\":\"")?, member(b",\"leaf\":\"")?];
        let [shown, chain] = [member(b",\"shown\":\"")?, member(b",\"chain\":\"")?];
        (rest == ROW_END).then_some(Self { sequence: number.parse().ok()?, key, leaf, shown, chain })
    }
}

/// Rows that compaction removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removed {
    pub first: u64,
    pub last: u64,
    pub rows: u64,
    /// The chain's value before the first and after the last of them. Absent outside of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Hex>,
    /// Absent, if an earlier version removed them: the chain resumes later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Hex>,
}

/// The chain's value after a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    pub sequence: u64,
    pub chain: Hex,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportEnd {
    /// BLAKE3 of all bytes before this line.
    pub digest: Hex,
    pub kid: Box<str>,
    /// The signature of [`end_text`], in hexadecimal digits.
    pub signature: Box<str>,
    /// Absent for a log without a chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<SignedHead>,
}

/// The text that the last line signs.
#[must_use]
pub fn end_text(digest: &Hash) -> String {
    format!("proscenium-export-v1\n{}", HEXLOWER.encode(digest))
}

/// The hash of a line that is shown instead of a row's text.
#[must_use]
pub fn hash_of_line(line: &[u8]) -> Hash {
    *blake3::hash(line).as_bytes()
}

/// Writes an export with proofs.
pub struct ProofWriter {
    log: LogId,
    epoch: Epoch,
    record: Option<ChainRecord>,
    /// The last row that was written or passed over.
    at: Sequence,
    /// The chain's value after it; `None` outside of the chain, and where it is not known.
    value: Option<Hash>,
    digest: blake3::Hasher,
}

impl ProofWriter {
    /// Begins an export of a log's rows up to `until`, with the chain of the same moment.
    #[must_use]
    pub fn begin(
        log: LogId,
        epoch: Epoch,
        audience: Audience,
        until: Sequence,
        record: Option<ChainRecord>,
        out: &mut Vec<u8>,
    ) -> Self {
        let (run_id, session_id) = names_of(&log);
        let epoch = record.as_ref().map_or(epoch, |record| record.epoch_of(epoch));
        let begin = ExportBegin {
            version: VERSION,
            run_id,
            session_id,
            epoch: epoch.to_string().into(),
            audience,
            until: until.0,
            chain: record.as_ref().map(|record| ChainRows { from: record.from.0, until: record.head.0.0 }),
        };
        let mut writer = Self { log, epoch, record, at: Sequence::NONE, value: None, digest: blake3::Hasher::new() };
        writer.write(Proof::Begin(begin), out);
        writer.enter_chain();
        writer
    }

    /// Takes the chain of a later moment, which knows of ranges that a compaction removed meanwhile.
    pub fn update(&mut self, record: ChainRecord) {
        if let Some(known) = self.record.as_mut().filter(|known| known.key == record.key) {
            let head = std::mem::replace(known, record).head;
            known.head = head;
        }
    }

    /// Whether these rows have gaps whose ends the chain does not know.
    #[must_use]
    pub fn has_unknown_gap(&self, rows: &[Row]) -> bool {
        let Some(record) = &self.record else { return false };
        let before = std::iter::once(self.at).chain(rows.iter().map(Row::sequence));
        let mut gaps = before.zip(rows).filter(|(before, row)| before.next() < row.sequence());
        gaps.any(|(_, row)| {
            let last = Sequence(row.sequence().0 - 1);
            record.has(last) && record.value_at(last).is_none()
        })
    }

    /// Writes a row, and before it what compaction removed. `shown` is what the export shows of the row.
    pub fn row(&mut self, row: &Row, shown: Option<&[u8]>, out: &mut Vec<u8>) {
        let sequence = row.sequence();
        if self.at.next() < sequence {
            self.removed(self.at.next(), Sequence(sequence.0 - 1), out);
        }
        let is_whole = shown.is_some() && shown == row.view(Audience::Internal);
        let line = shown.map(|shown| escape_line_ends(shown).map_or(std::borrow::Cow::Borrowed(shown), Into::into));
        let hash_of_shown = || line.as_deref().map(hash_of_line).map(Hex);
        let mut proof = RowProof { sequence: sequence.0, key: None, leaf: None, shown: None, chain: None };
        let known = self.record.as_ref().filter(|record| record.has(sequence));
        let mut resumed = None;
        match (known, self.value) {
            (Some(record), Some(before)) => {
                let key = record.row_key(sequence);
                let leaf = hash_chain::leaf_of_row(&key, row);
                // A row that was changed in the store has another leaf: then what was saved at the next point differs.
                let value = record.value_at(sequence).unwrap_or_else(|| hash_chain::link(&before, &leaf));
                match is_whole {
                    true => proof.key = Some(Hex(key)),
                    false => (proof.leaf, proof.shown) = (Some(Hex(leaf)), hash_of_shown()),
                }
                (proof.chain, self.value) = (Some(Hex(value)), Some(value));
            }
            (known, _) => {
                proof.shown = hash_of_shown();
                resumed = known.and_then(|record| record.value_at(sequence));
            }
        }
        self.at = sequence;
        self.write(Proof::Row(proof), out);
        if let Some(line) = line {
            self.write_line(&line, out);
        }
        if let Some(value) = resumed {
            self.value = Some(value);
            self.write(Proof::Resume(Resume { sequence: sequence.0, chain: Hex(value) }), out);
        }
        self.enter_chain();
    }

    fn removed(&mut self, first: Sequence, last: Sequence, out: &mut Vec<u8>) {
        let mut write = |writer: &mut Self, first: Sequence, last: Sequence, ends: [Option<Hash>; 2]| {
            let [before, after] = ends.map(|end| end.map(Hex));
            let rows = last.0 - first.0 + 1;
            (writer.at, writer.value) = (last, ends[1]);
            writer.write(Proof::Removed(Removed { first: first.0, last: last.0, rows, before, after }), out);
            writer.enter_chain();
        };
        let from = self.record.as_ref().map(|record| record.from);
        let first = match from {
            // The chain begins within the range.
            Some(from) if first < from && from <= last => {
                write(self, first, Sequence(from.0 - 1), [None; 2]);
                from
            }
            _ => first,
        };
        let after = self.record.as_ref().filter(|record| record.has(last)).and_then(|record| record.value_at(last));
        let before = self.value;
        write(self, first, last, [before, before.and(after)]);
    }

    /// Takes the chain's first value before its first row, and none after its last.
    fn enter_chain(&mut self) {
        let Some(record) = &self.record else { return };
        if self.at.next() == record.from {
            self.value = Some(hash_chain::start(&self.log, self.epoch, record.from));
        } else if !record.has(self.at.next()) {
            self.value = None;
        }
    }

    /// Writes the last line.
    pub fn end(self, key: &SigningKey, now: jiff::Timestamp, out: &mut Vec<u8>) {
        let digest = *self.digest.finalize().as_bytes();
        let head = self.record.as_ref().map(|record| {
            let (sequence, value) = &record.head;
            SignedHead::sign(key, &self.log, self.epoch, (*sequence, value), now)
        });
        let signature = HEXLOWER.encode(&key.sign(end_text(&digest).as_bytes())).into();
        let end = ExportEnd { digest: Hex(digest), kid: key.kid().into(), signature, head };
        write_json(&ProofLine { proof: Proof::End(Box::new(end)) }, out);
    }

    fn write(&mut self, proof: Proof, out: &mut Vec<u8>) {
        let start = out.len();
        write_json(&ProofLine { proof }, out);
        self.digest.update(&out[start..]);
    }

    fn write_line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(line);
        out.push(b'\n');
        self.digest.update(&out[start..]);
    }
}

fn write_json(line: &ProofLine, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, line).expect("plain data serializes, and writing to a Vec cannot fail");
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_row_is_read_as_a_parser_of_json_reads_it() {
        let hash = |n: u8| Some(Hex([n; 32]));
        for present in 0..16_u8 {
            let member = |n: u8| hash(n).filter(|_| present & (1 << n) != 0);
            for sequence in [1, 10, u64::MAX] {
                let row = RowProof { sequence, key: member(0), leaf: member(1), shown: member(2), chain: member(3) };
                let mut line = Vec::new();
                write_json(&ProofLine { proof: Proof::Row(row.clone()) }, &mut line);
                line.pop();
                assert_eq!(RowProof::read_written(&line), Some(row));
                for at in 0..line.len() {
                    assert_eq!(RowProof::read_written(&line[..at]), None, "cut at {at}");
                    let mut changed = line.clone();
                    changed[at] ^= 1;
                    let Some(read) = RowProof::read_written(&changed) else { continue };
                    let parsed = serde_json::from_slice(&changed).map(|ProofLine { proof }| proof);
                    assert_eq!(parsed.unwrap(), Proof::Row(read), "{}", String::from_utf8_lossy(&changed));
                }
            }
        }
    }
}

//! Verification of an export with proofs, without a server.
//!
//! One thread reads the file in chunks and follows the chain. Several threads compute the leaves of a chunk, which is most
//! of the work. Envelopes are hashed and never parsed: their text is what the chain has.

use super::proof::{
    ExportBegin, ExportEnd, LINE_START, Proof, ProofLine, Removed, Resume, RowProof, VERSION, end_text, hash_of_line,
};
use super::signing::{PublicKey, SignedHead, is_signed};
use crate::log::hash_chain::{self, Hash};
use crate::model::{Audience, Epoch, Sequence};
use data_encoding::HEXLOWER;
use memchr::memmem;
use serde::Serialize;
use std::io::{self, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The bytes that are read at once.
const CHUNK_BYTES: usize = 8 * 1024 * 1024;
/// The parts of a chunk for each thread, so that none waits long for the others at its end.
const PARTS_PER_THREAD: usize = 8;
/// The longest group of lines: the largest fact of a server as an envelope, with its proof.
const LINE_OF_EXPORT_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// What an export proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Box<str>>,
    pub epoch: Box<str>,
    pub audience: Audience,
    /// Rows whose text is in the export and is what the chain has.
    pub checked_in_text: u64,
    /// Rows that the export does not show as they were written: the chain has their leaves.
    pub checked_by_leaf: u64,
    /// Rows that an earlier version wrote: no chain has them.
    pub outside_of_chain: u64,
    /// Rows that compaction removed.
    pub removed: u64,
    /// The signed head of the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<SignedHead>,
    /// Whether the signatures were checked; they are right then.
    pub signatures_checked: bool,
    /// Whether a head that the caller kept was compared.
    pub kept_head_checked: bool,
}

/// Why an export is not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It has no proofs at all.
    #[error("{0}")]
    NoProof(String),
    /// The first row that does not fit.
    #[error("{}{why} (line {line})", sequence.map(|sequence| format!("row {sequence} does not fit: ")).unwrap_or_default())]
    Misfit { line: u64, sequence: Option<u64>, why: String },
}

/// What a caller knows besides the file.
#[derive(Debug, Default)]
pub struct Known {
    /// Keys that verify signatures. `None`: signatures are not checked.
    pub keys: Option<Vec<PublicKey>>,
    /// A head of the same run that was signed earlier.
    pub head: Option<SignedHead>,
}

/// Verifies an export.
///
/// # Errors
/// [`VerifyError`]: the first row that does not fit, or why the file has no proofs.
pub fn verify(from: impl Read, known: &Known) -> Result<Verified, VerifyError> {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut chunks = Chunks { from, buffer: Vec::new(), is_at_end: false };
    let (mut check, mut digest, mut line) = (Check::new(known), blake3::Hasher::new(), 0);
    let mut next = chunks.next()?;
    while let Some(Chunk { text, is_last }) = next {
        let hashed = match is_last {
            // The last line signs the others.
            true => start_of_last_line(&text),
            false => text.len(),
        };
        let mut following = Ok(None);
        let read = read_parts(&split(&text, threads * PARTS_PER_THREAD), threads, || {
            digest.update(&text[..hashed]);
            following = chunks.next();
        });
        let mut left: usize = read.iter().map(|part| part.items.len()).sum();
        for part in read {
            for Item { line: of_part, what } in part.items {
                left -= 1;
                if matches!(what, What::End(_)) && (left > 0 || !is_last) {
                    let why = "lines were added after the last one".into();
                    return Err(VerifyError::Misfit { line: line + of_part + 1, sequence: None, why });
                }
                check.add(line + of_part, what, &digest)?;
            }
            line += part.lines;
        }
        next = following?;
    }
    check.end(line)
}

/// Reads the parts of a chunk by several threads. This thread helps them when it has done its other work.
fn read_parts(parts: &[&[u8]], threads: usize, other_work: impl FnOnce()) -> Vec<Part> {
    let read: Vec<OnceLock<Part>> = parts.iter().map(|_| OnceLock::new()).collect();
    let taken = AtomicUsize::new(0);
    let help = || {
        while let Some((text, part)) = {
            let n = taken.fetch_add(1, Ordering::Relaxed);
            parts.get(n).zip(read.get(n))
        } {
            part.get_or_init(|| read_part(text));
        }
    };
    thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(help)));
        other_work();
        help();
    });
    read.into_iter().map(|part| part.into_inner().expect("a part is taken once, and its thread has ended")).collect()
}

fn start_of_last_line(text: &[u8]) -> usize {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    memchr::memrchr(b'\n', text).map_or(0, |at| at + 1)
}

/// Whole groups of lines: a line of a proof, and what it is about.
struct Chunk {
    text: Vec<u8>,
    is_last: bool,
}

/// The chunks of a file.
struct Chunks<R> {
    from: R,
    buffer: Vec<u8>,
    is_at_end: bool,
}

impl<R: Read> Chunks<R> {
    fn next(&mut self) -> io::Result<Option<Chunk>> {
        let between = between_groups();
        loop {
            if self.is_at_end {
                return Ok(None);
            }
            let before = self.buffer.len();
            let read = self.from.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut self.buffer)?;
            if read < CHUNK_BYTES {
                self.is_at_end = true;
                return Ok(Some(Chunk { text: std::mem::take(&mut self.buffer), is_last: true }));
            }
            let new = before.saturating_sub(between.len());
            if let Some(at) = memmem::rfind(&self.buffer[new..], &between) {
                let rest = self.buffer.split_off(new + at + 1);
                return Ok(Some(Chunk { text: std::mem::replace(&mut self.buffer, rest), is_last: false }));
            }
            if self.buffer.len() > LINE_OF_EXPORT_BYTES_MAX {
                return Err(io::Error::other("it has a line that is longer than 1 GiB"));
            }
        }
    }
}

/// What separates two groups of lines.
fn between_groups() -> Vec<u8> {
    [b"\n", LINE_START].concat()
}

/// Cuts a chunk into parts of whole groups.
fn split(chunk: &[u8], count: usize) -> Vec<&[u8]> {
    let between = between_groups();
    let (mut parts, mut rest) = (Vec::with_capacity(count), chunk);
    for left in (2..=count).rev() {
        let Some(at) = memmem::find(&rest[rest.len() / left..], &between) else { break };
        let (part, after) = rest.split_at(rest.len() / left + at + 1);
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// A line of a proof, with the lines that belong to it.
struct Item {
    /// The number of its first line in its part, from 1.
    line: u64,
    what: What,
}

enum What {
    Begin(ExportBegin),
    Row(ReadRow),
    Removed(Removed),
    Resume(Resume),
    End(Box<ExportEnd>),
    /// What is wrong with the row, as far as it is known, or with the line.
    Bad(Option<u64>, String),
}

/// A row whose envelope fits its proof.
struct ReadRow {
    sequence: u64,
    /// Whether its text is in the export.
    is_in_text: bool,
    leaf: Option<Hash>,
    /// The chain's value after it, as its proof says.
    chain: Option<Hash>,
    /// The chain's value before it that leads to the value after it.
    before: Option<Hash>,
}

struct Part {
    items: Vec<Item>,
    lines: u64,
}

fn read_part(text: &[u8]) -> Part {
    let mut lines = Lines { rest: text, number: 0 };
    let mut items = Vec::with_capacity(text.len() / 512);
    let mut before: Option<Hash> = None;
    while let Some(line) = lines.next() {
        let number = lines.number;
        let mut what = read_item(line, &mut lines);
        let said_before = before.take();
        if let What::Row(row) = &mut what {
            let fits = |before: &Hash| row.leaf.as_ref().is_some_and(|leaf| Some(hash_chain::link(before, leaf)) == row.chain);
            row.before = said_before.filter(fits);
            before = row.chain;
        }
        items.push(Item { line: number, what });
    }
    Part { items, lines: lines.number }
}

/// The lines of a text, each with its end.
struct Lines<'t> {
    rest: &'t [u8],
    number: u64,
}

impl<'t> Lines<'t> {
    fn next(&mut self) -> Option<&'t [u8]> {
        let end = memchr::memchr(b'\n', self.rest).map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at_checked(end).filter(|(line, _)| !line.is_empty())?;
        (self.rest, self.number) = (rest, self.number + 1);
        Some(line)
    }

    fn is_at_envelope(&self) -> bool {
        !self.rest.is_empty() && !self.rest.starts_with(LINE_START)
    }
}

fn read_item(line: &[u8], lines: &mut Lines<'_>) -> What {
    let Some(text) = line.strip_suffix(b"\n") else {
        return What::Bad(None, "the file is cut off within this line".into());
    };
    if !text.starts_with(LINE_START) {
        return What::Bad(None, "no row's proof comes before this line, so it was added or its proof was cut out".into());
    }
    if let Some(row) = RowProof::read_written(text) {
        return read_row(row, lines);
    }
    let proof = match serde_json::from_slice(text) {
        Ok(ProofLine { proof }) => proof,
        Err(error) => return What::Bad(None, format!("this line is no proof: {error}")),
    };
    match proof {
        Proof::Begin(begin) => What::Begin(begin),
        Proof::Removed(removed) => What::Removed(removed),
        Proof::Resume(resume) => What::Resume(resume),
        // No digest has this line, so it must be as the server writes it.
        Proof::End(end) => {
            let again = serde_json::to_vec(&ProofLine { proof: Proof::End(end.clone()) }).expect("plain data serializes");
            match again == text {
                true => What::End(end),
                false => What::Bad(None, "the last line is not as a server writes it".into()),
            }
        }
        Proof::Row(proof) => read_row(proof, lines),
    }
}

fn read_row(RowProof { sequence, key, leaf, shown, chain }: RowProof, lines: &mut Lines<'_>) -> What {
    let read = |leaf: Option<Hash>| {
        let chain = chain.map(|chain| chain.0);
        What::Row(ReadRow { sequence, is_in_text: key.is_some(), leaf, chain, before: None })
    };
    let bad = |why: &str| What::Bad(Some(sequence), why.into());
    let leaf = leaf.map(|leaf| leaf.0);
    if key.is_none() && shown.is_none() {
        return read(leaf);
    }
    let line = if lines.is_at_envelope() { lines.next() } else { None };
    let Some(text) = line else { return bad("its envelope was cut out") };
    let Some(text) = text.strip_suffix(b"\n") else { return bad("the file is cut off within its envelope") };
    if shown.is_some_and(|shown| shown.0 != hash_of_line(text)) {
        return bad("its envelope was changed");
    }
    match (key, leaf) {
        (Some(_), Some(_)) => bad("it has both a key and a leaf"),
        (Some(key), None) => read(Some(hash_chain::leaf(&key.0, text))),
        (None, leaf) => read(leaf),
    }
}

/// Follows the chain from line to line.
struct Check<'k> {
    known: &'k Known,
    begin: Option<ExportBegin>,
    /// The last row that was seen, or passed over as removed.
    at: u64,
    /// The chain's value after it; `None` outside of the chain.
    value: Option<Hash>,
    /// The chain's value after its last row.
    head_value: Option<Hash>,
    /// The removed rows among which the row of the head that the caller kept was.
    kept_head_removed: Option<(u64, u64)>,
    verified: Verified,
    is_complete: bool,
}

/// Whether a head is of the log of an export.
fn is_of(head: &SignedHead, begin: &ExportBegin) -> bool {
    (&head.run_id, &head.session_id, &head.epoch) == (&begin.run_id, &begin.session_id, &begin.epoch)
}

impl<'k> Check<'k> {
    fn new(known: &'k Known) -> Self {
        let verified = Verified {
            run_id: None,
            session_id: None,
            epoch: Box::default(),
            audience: Audience::User,
            checked_in_text: 0,
            checked_by_leaf: 0,
            outside_of_chain: 0,
            removed: 0,
            head: None,
            signatures_checked: false,
            kept_head_checked: false,
        };
        Self { known, begin: None, at: 0, value: None, head_value: None, kept_head_removed: None, verified, is_complete: false }
    }

    fn add(&mut self, line: u64, what: What, digest: &blake3::Hasher) -> Result<(), VerifyError> {
        let misfit = |sequence, why: String| VerifyError::Misfit { line, sequence, why };
        let row = |sequence, why: &str| misfit(Some(sequence), why.to_owned());
        if self.begin.is_none() {
            return match what {
                What::Begin(begin) => self.begin(begin).map_err(|why| misfit(None, why)),
                _ if line == 1 => Err(VerifyError::NoProof(
                    "it has no proofs: its first line is not the beginning of an export with proofs; export it with --proof"
                        .into(),
                )),
                _ => Err(misfit(None, "the first line was cut out".into())),
            };
        }
        match what {
            What::Begin(_) => Err(misfit(None, "the first line comes again".into())),
            What::Bad(sequence, why) => Err(misfit(sequence, why)),
            What::Row(ReadRow { sequence, is_in_text, leaf, chain, before }) => {
                self.follows(sequence).map_err(|(sequence, why)| misfit(Some(sequence), why))?;
                match (self.value, leaf, chain) {
                    (Some(value), Some(leaf), Some(chain)) => {
                        if before != Some(value) && hash_chain::link(&value, &leaf) != chain {
                            return Err(row(
                                sequence,
                                match is_in_text {
                                    true => "its envelope, its key or its place is not what the chain has",
                                    false => "its leaf or its place is not what the chain has",
                                },
                            ));
                        }
                        self.value = Some(chain);
                        match is_in_text {
                            true => self.verified.checked_in_text += 1,
                            false => self.verified.checked_by_leaf += 1,
                        }
                    }
                    (None, None, None) => self.verified.outside_of_chain += 1,
                    (Some(_), ..) => return Err(row(sequence, "its proof lacks the leaf or the chain's value")),
                    (None, ..) => return Err(row(sequence, "it is outside of the chain, but its proof says otherwise")),
                }
                self.reach(sequence).map_err(|why| row(sequence, &why))
            }
            What::Removed(Removed { first, last, rows, before, after }) => {
                self.follows(first).map_err(|(sequence, why)| misfit(Some(sequence), why))?;
                if last < first || rows != last - first + 1 {
                    return Err(row(first, "the range of removed rows that begins here has another length"));
                }
                if before.map(|before| before.0) != self.value {
                    return Err(row(first, "the removed rows that begin here are not what the chain has"));
                }
                if before.is_none() && after.is_some() {
                    return Err(row(first, "the removed rows that begin here are outside of the chain"));
                }
                // The chain has a value for the last of them alone.
                let has_head = |head: &SignedHead| self.value.is_some() && (first..last).contains(&head.sequence);
                if self.known.head.as_ref().is_some_and(has_head) {
                    self.kept_head_removed = Some((first, last));
                }
                self.value = after.map(|after| after.0);
                self.verified.removed += rows;
                self.reach(last).map_err(|why| row(last, &why))
            }
            What::Resume(Resume { sequence, chain }) => {
                let has = self
                    .begin
                    .as_ref()
                    .and_then(|begin| begin.chain)
                    .is_some_and(|chain| (chain.from..=chain.until).contains(&sequence));
                if sequence != self.at || self.value.is_some() || !has {
                    return Err(row(sequence, "the chain does not resume here"));
                }
                self.value = Some(chain.0);
                Ok(())
            }
            What::End(end) => self.finish(*end, digest).map_err(|(sequence, why)| misfit(sequence, why)),
        }
    }

    fn begin(&mut self, begin: ExportBegin) -> Result<(), String> {
        if begin.version != VERSION {
            return Err(format!("the proofs are of version {}; this program reads version {VERSION}", begin.version));
        }
        let log = begin.log()?;
        if let Some(kept) = self.known.head.as_ref().filter(|kept| !is_of(kept, &begin)) {
            let (epoch, kept) = (&begin.epoch, &kept.epoch);
            return Err(format!("the head that was kept, of epoch {kept}, is not of {log} in epoch {epoch}"));
        }
        (self.verified.run_id, self.verified.session_id) = (begin.run_id.clone(), begin.session_id.clone());
        self.verified.epoch = begin.epoch.clone();
        self.verified.audience = begin.audience;
        self.begin = Some(begin);
        self.enter_chain()
    }

    /// Checks that a row is the next one.
    fn follows(&self, sequence: u64) -> Result<(), (u64, String)> {
        match sequence.checked_sub(self.at + 1) {
            Some(0) => Ok(()),
            Some(_) => Err((self.at + 1, format!("it was cut out: row {sequence} comes next"))),
            None => Err((sequence, format!("it was moved or added: row {} was expected", self.at + 1))),
        }
    }

    /// Takes the chain's first value before its first row, and none after its last.
    fn enter_chain(&mut self) -> Result<(), String> {
        let Some(begin @ ExportBegin { epoch, chain: Some(chain), .. }) = &self.begin else { return Ok(()) };
        if self.at + 1 == chain.from {
            let epoch: Epoch = epoch.parse().map_err(|()| format!("{epoch:?} is not an epoch"))?;
            self.value = Some(hash_chain::start(&begin.log()?, epoch, Sequence(chain.from)));
        }
        Ok(())
    }

    /// Takes a row as read, and compares the head that the caller kept.
    fn reach(&mut self, sequence: u64) -> Result<(), String> {
        self.at = sequence;
        if let Some(head) = self.known.head.as_ref().filter(|head| head.sequence == sequence)
            && let Some(value) = self.value
        {
            if *head.chain != HEXLOWER.encode(&value) {
                return Err("a row up to it differs from the head that was kept".into());
            }
            self.verified.kept_head_checked = true;
        }
        let is_last = self.begin.as_ref().and_then(|begin| begin.chain).is_some_and(|chain| sequence == chain.until);
        if is_last {
            self.head_value = self.value.take();
        }
        self.enter_chain()
    }

    fn finish(&mut self, end: ExportEnd, digest: &blake3::Hasher) -> Result<(), (Option<u64>, String)> {
        let begin = self.begin.as_ref().expect("the first line was read");
        if self.at != begin.until {
            return Err((Some(self.at + 1), format!("it was cut out, with all rows up to {}", begin.until)));
        }
        if end.digest.0 != *digest.finalize().as_bytes() {
            return Err((None, "the lines before are not those that the digest is of".into()));
        }
        if let Some(kept) = self.known.head.as_ref().filter(|_| !self.verified.kept_head_checked) {
            let row = kept.sequence;
            let why = match self.kept_head_removed {
                Some((first, last)) => format!(
                    "the head that was kept is of row {row}, and a compaction removed the rows {first} to {last}, so nothing can be \
                     compared with it; the head of a run's end stays comparable"
                ),
                None => format!("the head that was kept is of row {row}, where the export has no chain"),
            };
            return Err((None, why));
        }
        let head = end.head.as_ref();
        match (head, begin.chain) {
            (Some(head), Some(chain)) => {
                let is_of_chain = self.head_value.is_some_and(|value| *head.chain == HEXLOWER.encode(&value));
                if !is_of(head, begin) || head.sequence != chain.until || !is_of_chain {
                    return Err((None, "the signed head is not that of the rows".into()));
                }
            }
            (None, None) => {}
            _ => return Err((None, "the signed head is missing, or is of no chain".into())),
        }
        if let Some(keys) = &self.known.keys {
            if !keys.iter().any(|key| key.kid() == &*end.kid) {
                return Err((None, format!("it is signed with the key {}, which is none of those that --key has", end.kid)));
            }
            if !is_signed(keys, &end.kid, end_text(&end.digest.0).as_bytes(), &end.signature) {
                return Err((None, "the signature of the export is not right".into()));
            }
            if head.is_some_and(|head| !head.is_signed_by(keys)) {
                return Err((None, "the signature of the head is not right".into()));
            }
            if self.known.head.as_ref().is_some_and(|kept| !kept.is_signed_by(keys)) {
                return Err((None, "the signature of the head that was kept is not right".into()));
            }
            self.verified.signatures_checked = true;
        }
        self.verified.head = end.head;
        self.is_complete = true;
        Ok(())
    }

    fn end(self, lines: u64) -> Result<Verified, VerifyError> {
        let misfit = |sequence, why: &str| VerifyError::Misfit { line: lines, sequence, why: why.into() };
        if self.begin.is_none() {
            return Err(VerifyError::NoProof("it is empty; export a run or a session with --proof".into()));
        }
        if !self.is_complete {
            return Err(misfit(Some(self.at + 1), "the file ends before it"));
        }
        Ok(self.verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::log::LogId;
    use crate::log::hash_chain::{ChainEnd, ChainRecord, RemovedRange, StateEntry, add_removed, removed_entry};
    use crate::log::row::{Row, Rows};
    use crate::record::proof::ProofWriter;
    use crate::record::signing::SigningKey;
    use bytes::Bytes;

    fn run() -> LogId {
        LogId::Run("r".parse().unwrap())
    }

    fn epoch() -> Epoch {
        Epoch::from_random(7)
    }

    /// Rows of a log, and the state that its writer saved. The chain begins after `before` rows.
    fn log(before: u64, count: u64) -> (Vec<Row>, Vec<StateEntry>) {
        let mut chain = ChainEnd::begin(&run(), epoch(), Sequence(before), [9; 32]);
        let mut bytes = Vec::new();
        for n in 1..=count {
            let text = format!("{{\"sequence\":{n}}}");
            let text = text.as_bytes();
            Row::encode(&mut bytes, Sequence(n), [Sequence(n - 1); 3], [None, Some(text), Some(text)]);
            if n > before {
                chain.push(Sequence(n), text, n % 10 == 0);
            }
        }
        (Rows(bytes.into()).collect(), chain.take_changed())
    }

    fn record(state: Vec<StateEntry>) -> ChainRecord {
        let state: Vec<(Bytes, Bytes)> = state.into_iter().map(|(key, value)| (key, value.unwrap())).collect();
        ChainRecord::read(&run(), &state).unwrap().unwrap()
    }

    /// Exports the rows that `keep` says, and verifies the export.
    fn verified(rows: &[Row], record: ChainRecord, keep: impl Fn(u64) -> bool) -> Result<Verified, VerifyError> {
        verified_with(None, rows, record, keep)
    }

    /// The same, with a head that was kept.
    fn verified_with(
        head: Option<SignedHead>,
        rows: &[Row],
        record: ChainRecord,
        keep: impl Fn(u64) -> bool,
    ) -> Result<Verified, VerifyError> {
        let (mut out, key) = (Vec::new(), SigningKey::generate(Environment::SYSTEM));
        let until = rows.last().unwrap().sequence();
        let mut writer = ProofWriter::begin(run(), epoch(), Audience::Internal, until, Some(record), &mut out);
        for row in rows.iter().filter(|row| keep(row.sequence().0)) {
            writer.row(row, row.view(Audience::Internal), &mut out);
        }
        writer.end(&key, jiff::Timestamp::UNIX_EPOCH, &mut out);
        let keys = head.is_none().then(|| vec![key.public_key()]);
        verify(&out[..], &Known { keys, head })
    }

    fn counts(verified: &Verified) -> [u64; 3] {
        [verified.checked_in_text, verified.outside_of_chain, verified.removed]
    }

    #[test]
    fn a_chain_that_begins_and_ends_within_a_log_has_the_rows_between() {
        let (rows, state) = log(5, 30);
        assert_eq!(counts(&verified(&rows, record(state), |_| true).unwrap()), [25, 5, 0]);
        // Another version appended the last rows.
        let (_, state) = log(5, 28);
        assert_eq!(counts(&verified(&rows, record(state), |_| true).unwrap()), [23, 7, 0]);
    }

    #[test]
    fn a_range_that_an_earlier_version_removed_ends_the_chain_until_it_is_known_again() {
        let (rows, state) = log(0, 30);
        let verified = verified(&rows, record(state), |n| !(13..=16).contains(&n)).unwrap();
        // The rows 17 to 20 follow the range; row 20 is a point.
        assert_eq!(counts(&verified), [22, 4, 4]);
    }

    #[test]
    fn removed_ranges_may_touch_and_lie_across_the_begin_of_the_chain() {
        let (rows, mut state) = log(5, 30);
        let chain = record(state.clone());
        for step in [[4, 5, 6, 7, 20], [8, 9, 19, 21, 22]] {
            let (mut ranges, mut walk) = (Vec::<RemovedRange>::new(), hash_chain::ChainWalk::new(&run(), epoch(), &chain));
            for row in &rows {
                let ends = walk.row(row);
                if step.contains(&row.sequence().0) {
                    add_removed(&mut ranges, row.sequence(), ends);
                }
            }
            state.extend(removed_entry(&ranges));
        }
        let gone = [4, 5, 6, 7, 8, 9, 19, 20, 21, 22];
        let verified = verified(&rows, record(state), |n| !gone.contains(&n)).unwrap();
        assert_eq!(counts(&verified), [17, 3, 10]);
    }

    #[test]
    fn a_kept_head_fits_at_the_end_of_removed_rows_and_names_them_within() {
        let (rows, mut state) = log(0, 30);
        let chain = record(state.clone());
        let (mut ranges, mut walk) = (Vec::<RemovedRange>::new(), hash_chain::ChainWalk::new(&run(), epoch(), &chain));
        for row in &rows {
            let ends = walk.row(row);
            if (11..=14).contains(&row.sequence().0) {
                add_removed(&mut ranges, row.sequence(), ends);
            }
        }
        state.extend(removed_entry(&ranges));
        let later = |last: usize| {
            let earlier = verified(&rows[..last], record(log(0, last as u64).1), |_| true).unwrap();
            verified_with(earlier.head, &rows, record(state.clone()), |n| !(11..=14).contains(&n))
        };
        assert!(later(10).unwrap().kept_head_checked && later(14).unwrap().kept_head_checked);
        let error = later(12).unwrap_err().to_string();
        assert!(error.contains("of row 12, and a compaction removed the rows 11 to 14"), "{error}");
    }

    #[test]
    fn a_row_that_was_changed_in_the_store_is_found_at_the_next_place_that_was_saved() {
        let (mut rows, state) = log(0, 30);
        let mut bytes = Vec::new();
        let text: &[u8] = b"{\"sequence\":13,\"x\":1}";
        Row::encode(&mut bytes, Sequence(13), [Sequence(12); 3], [None, Some(text), Some(text)]);
        rows[12] = Rows(bytes.into()).next().unwrap();
        let error = verified(&rows, record(state), |_| true).unwrap_err();
        assert!(matches!(error, VerifyError::Misfit { sequence: Some(20), .. }), "{error}");
    }

    #[test]
    fn a_chunk_is_cut_between_groups_of_lines_only() {
        let group = b"{\"proof\":1}\n{\"a\":\"{\\\"proof\\\":\"}\n";
        let text = group.repeat(5);
        for count in 1..20 {
            let parts = split(&text, count);
            assert_eq!(parts.concat(), text, "{count}");
            assert!(parts.iter().all(|part| part.len().is_multiple_of(group.len())), "{count}");
        }
    }
}

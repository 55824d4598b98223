//! The object of an archived log: its appends in compressed blocks, with an index.
//!
//! ```text
//!   "proscenium log 2\n"
//!   block*    zstd of: position u64, last sequence before u64, bytes u32, rows          one after the other
//!   body*     zstd of a body
//!   index     for each block: its last sequence, offset, bytes     u64 each
//!   names     for each body: length of its id u8, its id; offset, bytes     u64 each
//!   end       offset of the index, blocks, offset of the names, bodies      u64 each
//! ```
//! Numbers are big-endian. An object never changes: its name ends with the hash of its bytes.

use crate::log::row::{Row, Rows};
use crate::log::{Blob, Limit, StoredAppend};
use crate::model::{BlobId, Sequence};
use blake3::{Hash, Hasher};
use bytes::{Buf, BufMut, Bytes};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;

const MAGIC: &[u8] = b"proscenium log 2\n";
/// The bytes of appends at which a block is full, unless its only append is larger.
const BLOCK_BYTES: usize = 256 * 1024;
/// The most bytes of one block or body, decompressed. An append and a body are smaller.
const BLOCK_BYTES_MAX: usize = 256 << 20;
const LEVEL: i32 = 3;
const INDEX_ENTRY_BYTES: usize = 24;
const END_BYTES: usize = 32;

/// Where a block is.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Its last sequence.
    last: Sequence,
    offset: u64,
    bytes: u64,
}

/// Where a body is: its offset and its bytes.
type Place = (u64, u64);

/// Writes an object.
pub struct ObjectWriter<W> {
    out: W,
    hash: Hasher,
    written: u64,
    /// Appends that are in no block yet.
    open: Vec<u8>,
    last: Sequence,
    blocks: Vec<Block>,
    bodies: Vec<(BlobId, Place)>,
}

impl<W: Write> ObjectWriter<W> {
    /// Begins an object.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn begin(out: W) -> io::Result<Self> {
        let (hash, open, blocks, bodies) = (Hasher::new(), Vec::new(), Vec::new(), Vec::new());
        let mut writer = Self { out, hash, written: 0, open, last: Sequence::NONE, blocks, bodies };
        writer.write(MAGIC)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Adds an append, in order.
    ///
    /// # Errors
    /// Those of the output.
    pub fn push(&mut self, append: &StoredAppend) -> io::Result<()> {
        let Some(last) = Rows(append.rows.clone()).last() else { return Ok(()) };
        self.last = last.sequence();
        self.open.put_u64(append.position);
        self.open.put_u64(append.before.0);
        self.open.put_u32(u32::try_from(append.rows.len()).map_err(|_| io::Error::from(ErrorKind::FileTooLarge))?);
        self.open.extend_from_slice(&append.rows);
        if self.open.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let packed = zstd::bulk::compress(&self.open, LEVEL)?;
        self.open.clear();
        let (offset, bytes) = (self.written, packed.len() as u64);
        self.blocks.push(Block { last: self.last, offset, bytes });
        self.write(&packed)
    }

    /// Adds a body, after all appends.
    ///
    /// # Errors
    /// Those of the output.
    pub fn push_body(&mut self, blob: &Blob) -> io::Result<()> {
        self.end_block()?;
        let packed = zstd::bulk::compress(&blob.body, LEVEL)?;
        self.bodies.push((blob.id.clone(), (self.written, packed.len() as u64)));
        self.write(&packed)
    }

    /// Ends the object. Returns the output, the number of bytes, and their hash.
    ///
    /// # Errors
    /// Those of the output.
    pub fn end(mut self) -> io::Result<(W, u64, Hash)> {
        self.end_block()?;
        let mut tail = Vec::with_capacity(self.blocks.len() * INDEX_ENTRY_BYTES + END_BYTES);
        for Block { last, offset, bytes } in &self.blocks {
            for number in [last.0, *offset, *bytes] {
                tail.put_u64(number);
            }
        }
        let names_at = self.written + tail.len() as u64;
        for (id, (offset, bytes)) in &self.bodies {
            let id = id.as_str().as_bytes();
            tail.put_u8(u8::try_from(id.len()).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?);
            tail.extend_from_slice(id);
            tail.put_u64(*offset);
            tail.put_u64(*bytes);
        }
        for number in [self.written, self.blocks.len() as u64, names_at, self.bodies.len() as u64] {
            tail.put_u64(number);
        }
        self.write(&tail)?;
        self.out.flush()?;
        Ok((self.out, self.written, self.hash.finalize()))
    }
}

/// An object in a file.
pub struct ArchivedObject {
    file: File,
    blocks: Vec<Block>,
    bodies: HashMap<BlobId, Place>,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

impl ArchivedObject {
    /// Opens an object, and reads its index.
    ///
    /// # Errors
    /// `InvalidData` for a file of another form; otherwise those of the file.
    pub fn open(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        let mut magic = [0; MAGIC.len()];
        let end_at = bytes.checked_sub(END_BYTES as u64).ok_or_else(|| damaged("it is too short"))?;
        file.read_exact_at(&mut magic, 0)?;
        if magic != MAGIC {
            return Err(damaged("it does not begin like an archived log of this version"));
        }
        let mut end = [0; END_BYTES];
        file.read_exact_at(&mut end, end_at)?;
        let mut end = &end[..];
        let [index_at, count, names_at, body_count] = std::array::from_fn(|_| end.get_u64());
        let index_bytes = count.checked_mul(INDEX_ENTRY_BYTES as u64);
        let is_placed = index_bytes.and_then(|bytes| index_at.checked_add(bytes)) == Some(names_at) && names_at <= end_at;
        if !is_placed {
            return Err(damaged("its index is at another place"));
        }
        let read = |from: u64, to: u64| {
            let mut part = vec![0; usize::try_from(to - from).map_err(|_| damaged("its index is too large"))?];
            file.read_exact_at(&mut part, from).map(|()| part)
        };
        let (index, names) = (read(index_at, names_at)?, read(names_at, end_at)?);
        let blocks = index.chunks_exact(INDEX_ENTRY_BYTES).map(|mut entry| {
            let [last, offset, bytes] = std::array::from_fn(|_| entry.get_u64());
            Block { last: Sequence(last), offset, bytes }
        });
        let blocks = blocks.collect::<Vec<_>>();
        let bodies = take_names(&names, body_count).ok_or_else(|| damaged("the names of its bodies are damaged"))?;
        let mut places = blocks.iter().map(|block| (block.offset, block.bytes)).chain(bodies.values().copied());
        if !places.all(|(offset, bytes)| offset.checked_add(bytes).is_some_and(|end| end <= index_at))
            || !blocks.is_sorted_by_key(|block| block.last)
        {
            return Err(damaged("its index names other bytes than its blocks"));
        }
        Ok(Self { file, blocks, bodies })
    }

    /// Rows after `after`, by append, as [`Store::read`](crate::log::Store::read) gives them.
    ///
    /// # Errors
    /// `InvalidData` for a damaged block; otherwise those of the file.
    pub fn read(&self, after: Sequence, limit: Limit) -> io::Result<Vec<StoredAppend>> {
        let from = self.blocks.partition_point(|block| block.last <= after);
        let (mut appends, mut rows, mut bytes) = (Vec::<StoredAppend>::new(), 0, 0);
        for block in &self.blocks[from..] {
            let mut open = self.unpack((block.offset, block.bytes))?;
            while !open.is_empty() {
                let append = take_append(&mut open).ok_or_else(|| damaged("a block ends within an append"))?;
                let decoded = Row::decode_all(append.rows.clone()).map_err(damaged)?;
                let new = decoded.iter().filter(|row| row.sequence() > after).count();
                if new == 0 {
                    continue;
                }
                (rows, bytes) = (rows + new, bytes + append.rows.len());
                if !appends.is_empty() && (rows > limit.rows || bytes > limit.bytes) {
                    return Ok(appends);
                }
                appends.push(append);
            }
        }
        Ok(appends)
    }

    /// A body of the log, if it is here.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn body(&self, id: &BlobId) -> io::Result<Option<Bytes>> {
        self.bodies.get(id).map(|place| self.unpack(*place)).transpose()
    }

    /// Decompresses a block or a body.
    fn unpack(&self, (offset, bytes): Place) -> io::Result<Bytes> {
        let mut packed = vec![0; usize::try_from(bytes).map_err(|_| damaged("a block is too large"))?];
        self.file.read_exact_at(&mut packed, offset)?;
        let stated = zstd::zstd_safe::get_frame_content_size(&packed).ok().flatten();
        match stated.and_then(|bytes| usize::try_from(bytes).ok()) {
            Some(bytes) if bytes <= BLOCK_BYTES_MAX => zstd::bulk::decompress(&packed, bytes).map(Bytes::from),
            _ => Err(damaged("a block does not say its size, or is too large")),
        }
    }
}

/// Reads the names of bodies; `None` if they are not exactly `count`.
fn take_names(mut names: &[u8], count: u64) -> Option<HashMap<BlobId, Place>> {
    let mut bodies = HashMap::new();
    while !names.is_empty() {
        let length = names.try_get_u8().ok()?;
        let id = names.split_off(..usize::from(length))?;
        let place = (names.try_get_u64().ok()?, names.try_get_u64().ok()?);
        bodies.insert(BlobId::new(std::str::from_utf8(id).ok()?).ok()?, place);
    }
    (bodies.len() as u64 == count).then_some(bodies)
}

fn take_append(open: &mut Bytes) -> Option<StoredAppend> {
    let (position, before) = (open.try_get_u64().ok()?, open.try_get_u64().ok()?);
    let bytes = open.try_get_u32().ok()? as usize;
    (bytes <= open.len()).then(|| StoredAppend { position, before: Sequence(before), rows: open.split_to(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn append(position: u64, before: u64, rows: u64, bytes: usize) -> StoredAppend {
        let mut out = Vec::new();
        for n in before + 1..=before + rows {
            let text = format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(bytes));
            Row::encode(&mut out, Sequence(n), [Sequence(n - 1); 3], [Some(text.as_bytes()); 3]);
        }
        StoredAppend { position, before: Sequence(before), rows: out.into() }
    }

    fn object_of(appends: &[StoredAppend]) -> ArchivedObject {
        let mut writer = ObjectWriter::begin(tempfile::tempfile().unwrap()).unwrap();
        for append in appends {
            writer.push(append).unwrap();
        }
        for bytes in BODIES {
            writer.push_body(&body(bytes)).unwrap();
        }
        let (file, bytes, _) = writer.end().unwrap();
        assert_eq!(file.metadata().unwrap().len(), bytes);
        ArchivedObject::open(file).unwrap()
    }

    /// The bytes of bodies.
    const BODIES: [usize; 3] = [0, 1, 100_000];

    fn body(bytes: usize) -> Blob {
        Blob { id: BlobId::new(&format!("b{bytes}")).unwrap(), meta: Bytes::new(), body: "y".repeat(bytes).into() }
    }

    proptest! {
        #[test]
        fn a_reader_gets_the_appends_in_order_whatever_it_takes_at_once(
            sizes in prop::collection::vec((1_u64..40, 0_usize..9000), 1..60), limit in 1_usize..300, after in 0_u64..400,
        ) {
            let mut before = 0;
            let appends: Vec<_> = sizes.iter().enumerate().map(|(at, (rows, bytes))| {
                let one = append(3 * at as u64 + 1, before, *rows, *bytes);
                before += rows;
                one
            }).collect();
            let object = object_of(&appends);
            let (mut at, mut read) = (Sequence(after), Vec::new());
            loop {
                let page = object.read(at, Limit { rows: limit, bytes: 100_000 }).unwrap();
                let Some(last) = page.last().and_then(|append| Rows(append.rows.clone()).last()) else { break };
                prop_assert!(page.iter().skip(1).all(|append| append.before >= at));
                at = last.sequence();
                read.extend(page);
            }
            let wanted: Vec<_> = appends.into_iter().filter(|one| Rows(one.rows.clone()).last().unwrap().sequence().0 > after).collect();
            prop_assert_eq!(read, wanted);
            for bytes in BODIES {
                let Blob { id, body, .. } = body(bytes);
                prop_assert_eq!(object.body(&id).unwrap(), Some(body));
            }
            prop_assert_eq!(object.body(&BlobId::new("never").unwrap()).unwrap(), None);
        }

        #[test]
        fn a_damaged_object_is_an_error_and_no_panic(at in 0_usize..4000, bit in 0_u8..8, cut in 0_usize..4000) {
            let mut writer = ObjectWriter::begin(Vec::new()).unwrap();
            for n in 0..40 {
                writer.push(&append(n + 1, n * 3, 3, 20)).unwrap();
            }
            writer.push_body(&body(1)).unwrap();
            let (mut bytes, _, _) = writer.end().unwrap();
            bytes.truncate(cut.max(1));
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            if let Ok(object) = ArchivedObject::open(file) {
                let _ = object.read(Sequence(5), Limit { rows: 1000, bytes: 1 << 20 });
                let _ = object.body(&BlobId::new("b1").unwrap());
            }
        }
    }
}

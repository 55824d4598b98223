//! The form of a record in a segment.
//!
//! ```text
//! record := body_bytes:u32  0:u32  position:u64  checksum:u64  body  zeros to a multiple of 8       little-endian
//! ```
//!
//! The checksum is the xxh3 of the sixteen bytes before it and the body, with the salt of the segment. A segment is
//! written over an older one; the salt makes every record of the older one invalid.

use bytes::Bytes;
use std::fs::File;
use std::io::{self, IoSlice};
use xxhash_rust::xxh3::Xxh3;

/// The bytes of a record before its body.
pub const HEADER_BYTES: usize = 24;
/// Where a record may begin: at a multiple of this many bytes.
pub const ALIGNMENT: usize = 8;
/// The most slices that one call of the operating system writes.
const SLICES_MAX: usize = 1024;

/// The largest body, in bytes: the length is a u32, and a record is aligned.
pub const BODY_BYTES_MAX: usize = u32::MAX as usize - ALIGNMENT;

/// The bytes that a record with a body of this length takes.
pub const fn stored_bytes(body_bytes: usize) -> usize {
    (HEADER_BYTES + body_bytes).next_multiple_of(ALIGNMENT)
}

/// Writes a record at `offset` whose body is these parts. It copies none of them.
pub fn write(file: &File, mut offset: u64, position: u64, parts: &[Bytes], salt: u64) -> io::Result<()> {
    let (header, padding) = frame(position, parts, salt);
    let mut slices = Vec::with_capacity(parts.len() + 2);
    slices.push(IoSlice::new(&header));
    slices.extend(parts.iter().map(|part| IoSlice::new(part)));
    slices.push(IoSlice::new(padding));
    let mut left = &mut slices[..];
    while !left.is_empty() {
        let next = &left[..left.len().min(SLICES_MAX)];
        let written = rustix::io::retry_on_intr(|| rustix::io::pwritev(file, next, offset))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        offset += written as u64;
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}

/// What stands before and behind the body of a record that is these parts.
fn frame(position: u64, parts: &[Bytes], salt: u64) -> ([u8; HEADER_BYTES], &'static [u8]) {
    let body_bytes: usize = parts.iter().map(Bytes::len).sum();
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&u32::try_from(body_bytes).expect("the caller checks BODY_BYTES_MAX").to_le_bytes());
    header[8..16].copy_from_slice(&position.to_le_bytes());
    let checksum = checksum(&header[..16], parts.iter().map(|part| &part[..]), salt);
    header[16..].copy_from_slice(&checksum.to_le_bytes());
    (header, &[0; ALIGNMENT][..stored_bytes(body_bytes) - HEADER_BYTES - body_bytes])
}

/// Decodes the record at the start of `bytes`: its position and its body. `None` if it is not whole.
pub fn decode(bytes: &[u8], salt: u64) -> Option<(u64, &[u8])> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let body_bytes = usize::try_from(word(0)).ok().filter(|bytes| *bytes <= BODY_BYTES_MAX)?;
    let padded = bytes.get(HEADER_BYTES..stored_bytes(body_bytes))?;
    let (body, padding) = padded.split_at(body_bytes);
    let is_whole = checksum(&header[..16], [body], salt) == word(16) && padding.iter().all(|byte| *byte == 0);
    is_whole.then(|| (word(8), body))
}

fn checksum<'p>(head: &[u8], body: impl IntoIterator<Item = &'p [u8]>, salt: u64) -> u64 {
    let mut hasher = Xxh3::with_seed(salt);
    hasher.update(head);
    body.into_iter().for_each(|part| hasher.update(part));
    hasher.digest()
}

/// Whether a whole record with a position after `last` begins anywhere in `bytes`.
///
/// `bytes` begin where a record begins.
pub fn has_record_after(bytes: &[u8], last: u64, salt: u64) -> bool {
    let starts = (ALIGNMENT..bytes.len().saturating_sub(HEADER_BYTES - 1)).step_by(ALIGNMENT);
    starts.into_iter().any(|at| {
        let position = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().expect("eight bytes"));
        // Most bytes are no position that can follow, so that few need a checksum.
        position > last && position - last < 1 << 32 && decode(&bytes[at..], salt).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn encode(position: u64, parts: &[Bytes], salt: u64) -> Vec<u8> {
        let (header, padding) = frame(position, parts, salt);
        [&header, &parts.concat()[..], padding].concat()
    }

    #[test]
    fn a_record_of_more_parts_than_one_call_writes_is_whole() {
        let parts: Vec<_> = (0..=2 * SLICES_MAX).map(|n| Bytes::from(n.to_string().repeat(n % 3))).collect();
        let file = tempfile::tempfile().unwrap();
        write(&file, 3, 7, &parts, 9).unwrap();
        let mut written = vec![0; stored_bytes(parts.concat().len())];
        file.read_exact_at(&mut written, 3).unwrap();
        assert_eq!(decode(&written, 9), Some((7, &parts.concat()[..])));
        assert_eq!(file.metadata().unwrap().len(), 3 + written.len() as u64);
    }

    #[test]
    fn a_record_with_any_changed_bit_is_not_whole() {
        let encoded = encode(7, &[Bytes::from_static(b"abc"), Bytes::from_static(b"de")], 9);
        assert_eq!(decode(&encoded, 9), Some((7, &b"abcde"[..])));
        assert_eq!(decode(&encoded, 8), None, "another segment's salt");
        for at in 0..encoded.len() {
            for bit in 0..8 {
                let mut damaged = encoded.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(decode(&damaged, 9), None, "bit {bit} of byte {at}");
            }
            assert_eq!(decode(&encoded[..at], 9), None, "cut at {at}");
        }
    }

    #[test]
    fn a_record_after_a_damaged_one_is_found() {
        let first = encode(7, &[Bytes::from_static(b"abc")], 9);
        let second = encode(8, &[Bytes::from_static(b"def")], 9);
        assert!(has_record_after(&[first.clone(), second.clone()].concat(), 6, 9));
        assert!(!has_record_after(&first, 6, 9), "a record does not follow itself");
        assert!(!has_record_after(&[first, second].concat(), 6, 10), "records of an older segment do not count");
    }
}

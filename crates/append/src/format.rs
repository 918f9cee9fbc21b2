//! The bytes of this crate on storage.
//!
//! 1. [`input`] reads the encodings of this module: numbers in as many bytes as they need (LEB128, the shortest form
//!    only), and the structures built of them.
//! 2. [`node`] is a node of a trie, which is a document of the table's node segments.
//! 3. [`record`] holds the records by which a trie is found again: the commit header, which is such a document too, the
//!    root record of a checkpoint, and the redo of a flush-end.
//!
//! Little-endian where the width is fixed. A version of a key is
//!
//! ```text
//! .  seq, a number
//! .  word, a number: bits 0 to 2 the kind, the rest the bytes of a value. Kind 1: a value, 2: a tombstone,
//!    3: a document, 4 and 5: as 1 and 3, and it expires
//! .  when it expires, a number, if it does
//! .  the value's bytes, or a pointer
//! ```
//!
//! and a pointer to a document or node
//!
//! ```text
//! .  segment, a number
//! .  offset in it over 8, a number
//! .  bytes of the payload, a number
//! .  CRC-32C of the document, 4 bytes
//! ```
//!
//! A pointer to a node below is followed by two fields. The first is the earliest time at which that node, or one below
//! it, is due ([`index::due`]): a number, in units of 1024 ms since 1970; 0: never. The second is the filter of that
//! node ([`crate::filter`]), as bytes: empty if there is none.

pub(crate) mod input;
pub(crate) mod node;
pub(crate) mod record;

use codec::put_number;
use doclog::DocPointer;
pub(crate) use index::Damage;
use index::due::Due;
use index::{Operation, Payload, Seq};

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 8 << 10;

/// Longer values become documents when they are applied. So a leaf has entries of many keys, and most of the index fits
/// in memory.
pub const INLINE_BYTES_MAX: usize = 256;

/// Bytes of the chunks that keys are cut into, unless a table says otherwise. Same as ForestDB. Measured by
/// `examples/node_bytes.rs`: URLs of 100 bytes take about two thirds of their space in a plain B+-tree. The sizes for
/// chunks of 2 to 24 bytes are within 6 % of each other, because a chunk that few keys share makes no node. Pairs of
/// numbers of 8 bytes take a fifth less than with chunks of 16. Shorter chunks make a higher trie.
pub const CHUNK_BYTES_DEFAULT: usize = 8;

/// Bytes of a node without the header of its document. Only a node with a single longer entry exceeds this.
pub(crate) const NODE_BYTES: usize = 4096 - 24;

const KIND_BITS: u32 = 3;
const VALUE: u64 = 1;
const TOMBSTONE: u64 = 2;
const DOCUMENT: u64 = 3;
/// A value that expires, and a document that does: the expiry is behind the word, as a number.
const VALUE_EXPIRING: u64 = 4;
const DOCUMENT_EXPIRING: u64 = 5;

/// Offsets of documents are multiples of this.
const ALIGNMENT: u64 = 8;

/// Most bytes of the filter in a link. So at least seven leaves fit in a node, whatever their chunks.
pub(crate) const FILTER_BYTES_MAX: usize = 480;

/// A decoded value, or the reason why the bytes do not check.
pub(crate) type Checked<T> = Result<T, Damage>;

/// Writes bytes behind their number.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a pointer.
pub(crate) fn put_pointer(out: &mut Vec<u8>, pointer: &DocPointer) {
    put_number(out, pointer.segment.0);
    put_number(out, pointer.offset / ALIGNMENT);
    put_number(out, pointer.length.bits());
    out.extend_from_slice(&pointer.crc.to_le_bytes());
}

/// A pointer to a node, the earliest time at which the node or one below is due, and the filter of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) pointer: DocPointer,
    pub(crate) due: Option<Due>,
    pub(crate) filter: Box<[u8]>,
}

/// Writes a link.
pub(crate) fn put_link(out: &mut Vec<u8>, link: &Link) {
    put_pointer(out, &link.pointer);
    put_number(out, Due::to_units(link.due));
    put_bytes(out, &link.filter);
}

/// Writes a version.
pub(crate) fn put_version(out: &mut Vec<u8>, seq: Seq, operation: &Operation<'_>) {
    put_number(out, seq.0);
    let expiry = operation.expiry();
    let put_expiry = |out: &mut Vec<u8>| expiry.iter().for_each(|expiry| put_number(out, expiry.millis()));
    match operation {
        Operation::Put(Payload::Inline(value), _) => {
            let kind = if expiry.is_some() { VALUE_EXPIRING } else { VALUE };
            put_number(out, (value.len() as u64) << KIND_BITS | kind);
            put_expiry(out);
            out.extend_from_slice(value);
        }
        Operation::Put(Payload::Document(document), _) => {
            put_number(out, if expiry.is_some() { DOCUMENT_EXPIRING } else { DOCUMENT });
            put_expiry(out);
            put_pointer(out, document);
        }
        Operation::Delete => put_number(out, TOMBSTONE),
    }
}

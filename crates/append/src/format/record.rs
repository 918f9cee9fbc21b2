//! The records by which a trie is found again: commit headers, root records, redos.
//!
//! A **commit header** is the last document that a batch appends to the node segments. The header describes a whole
//! version of the trie, and points to the header before it:
//!
//! ```text
//!  0  4  magic "BAPH"
//!  4  4  version, 2
//!  8  4  table
//! 12  4  bytes of a chunk
//! 16  8  number: that of the header before it, and one
//! 24  8  seq: everything up to it, of the keys that the batch was about, is there
//! 32  8  internal nodes
//! 40  8  bytes of them
//! 48  8  leaves
//! 56  8  bytes of them
//! 64  8  versions in leaves
//! 72  8  keys whose newest version is no tombstone
//! 80  8  live bytes of node segments, with headers of documents and padding, this one's own included
//! 88 28  pointer to the root; zeros: the trie is empty
//! 116 28 pointer to the commit header before this one; zeros: there was none
//! 144 8  when the first leaf is due, in units of 1024 ms since 1970; 0: never
//! 152 4  1 if anything that expires was put into the trie since it last had no keys, else 0
//! 156 4  zero
//! ```
//!
//! A **root record**, which a checkpoint keeps, and a **redo**, which a flush-end carries, begin alike:
//!
//! ```text
//!   0  4  magic "BAPR" or "BAPD"
//!   4  4  CRC-32C of the record without these four bytes
//!   8 28  pointer to the commit header; zeros: there is none yet
//!  36 160 the commit header
//! 196  .  root record: the image of the node segments
//! 196  .  redo: three lists, each behind its number of entries (4 bytes):
//!         segments of nodes that were made: per segment its number 8, their bytes 8 and where the last of them ends 8;
//!         segments of nodes that are no longer referred to: number 8 and bytes 8;
//!         segments of documents that were made of values: as the first list
//! ```

use codec::sized::{u32_at, u64_at};
use doclog::{DocImage, DocLength, DocPointer, Retained, SegmentId};
use index::due::{Due, UNITS_LIMIT};
use index::{Seq, TableId};

use super::{Checked, Damage, KEY_BYTES_MAX};

const HEADER_MAGIC: &[u8; 4] = b"BAPH";
const ROOT_MAGIC: &[u8; 4] = b"BAPR";
const REDO_MAGIC: &[u8; 4] = b"BAPD";
const VERSION: u32 = 2;

/// Bytes of a commit header.
pub(crate) const HEADER_BYTES: usize = 116 + DocPointer::BYTES + 16;
const RECORD_HEAD: usize = 8 + DocPointer::BYTES + HEADER_BYTES;

/// Counts and sizes of a trie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) internal_nodes: u64,
    pub(crate) internal_bytes: u64,
    pub(crate) leaves: u64,
    pub(crate) leaf_bytes: u64,
    pub(crate) versions: u64,
    pub(crate) keys: u64,
}

/// A version of a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) table: TableId,
    pub(crate) chunk_bytes: u32,
    pub(crate) number: u64,
    pub(crate) through: Seq,
    pub(crate) shape: Shape,
    pub(crate) live_bytes: u64,
    pub(crate) root: Option<DocPointer>,
    pub(crate) before: Option<DocPointer>,
    pub(crate) due: Option<Due>,
    /// Whether anything that expires was put into the trie since the trie last had no keys.
    pub(crate) expires: bool,
}

/// A version, and the place of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// None for a trie that nothing was written to.
    pub(crate) place: Option<DocPointer>,
    pub(crate) header: Header,
}

/// The record of a trie in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) commit: Commit,
    pub(crate) nodes: DocImage,
}

/// The record that brings recovery to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redo {
    pub(crate) commit: Commit,
    pub(crate) made: Vec<Retained>,
    pub(crate) dropped: Vec<(SegmentId, u64)>,
    pub(crate) documents: Vec<Retained>,
}

fn put_place(out: &mut Vec<u8>, pointer: Option<DocPointer>) {
    out.extend_from_slice(&pointer.map_or([0; DocPointer::BYTES], |pointer| pointer.encode()));
}

fn place_at(bytes: &[u8], at: usize) -> Option<DocPointer> {
    let bytes = bytes[at..].first_chunk::<{ DocPointer::BYTES }>()?;
    bytes.iter().any(|byte| *byte != 0).then(|| DocPointer::decode(bytes))
}

impl Header {
    /// The header of an empty trie.
    pub(crate) fn empty(table: TableId, chunk_bytes: usize) -> Self {
        let chunk_bytes = u32::try_from(chunk_bytes.clamp(1, KEY_BYTES_MAX)).expect("keys are short");
        let (shape, root, before, due) = (Shape::default(), None, None, None);
        let (number, through, live_bytes, expires) = (0, Seq(0), 0, false);
        Self { table, chunk_bytes, number, through, shape, live_bytes, root, before, due, expires }
    }

    /// Bytes that a header takes in its segment.
    pub(crate) fn stored_bytes() -> u64 {
        DocPointer { length: DocLength::from_bits(HEADER_BYTES as u64), ..DocPointer::default() }.stored_bytes()
    }

    pub(crate) const fn chunk_bytes(&self) -> usize {
        self.chunk_bytes as usize
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(HEADER_MAGIC);
        for field in [VERSION, self.table.0, self.chunk_bytes] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let Shape { internal_nodes, internal_bytes, leaves, leaf_bytes, versions, keys } = self.shape;
        let counts = [internal_nodes, internal_bytes, leaves, leaf_bytes, versions, keys];
        let fields = [self.number, self.through.0].into_iter().chain(counts).chain([self.live_bytes]);
        fields.for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
        put_place(&mut out, self.root);
        put_place(&mut out, self.before);
        out.extend_from_slice(&Due::to_units(self.due).to_le_bytes());
        out.extend_from_slice(&u64::from(self.expires).to_le_bytes());
        out
    }

    /// The header in `bytes`, which is of this table.
    pub(crate) fn decode(bytes: &[u8], table: TableId) -> Checked<Self> {
        if bytes.len() != HEADER_BYTES {
            return Err(Damage::new(0, "commit header", format!("{HEADER_BYTES} bytes"), bytes.len()));
        }
        if !bytes.starts_with(HEADER_MAGIC) {
            return Err(Damage::new(0, "commit header", HEADER_MAGIC.escape_ascii(), bytes[..4].escape_ascii()));
        }
        let [version, found, chunk_bytes] = [4, 8, 12].map(|at| u32_at(bytes, at));
        if version != VERSION {
            return Err(Damage::new(4, "version of a commit header", VERSION, version));
        }
        if found != table.0 {
            return Err(Damage::new(8, "table of a commit header", table.0, found));
        }
        if chunk_bytes == 0 || chunk_bytes as usize > KEY_BYTES_MAX {
            return Err(Damage::new(12, "bytes of a chunk", format!("1 to {KEY_BYTES_MAX}"), chunk_bytes));
        }
        let [internal_nodes, internal_bytes, leaves, leaf_bytes, versions, keys] =
            [32, 40, 48, 56, 64, 72].map(|at| u64_at(bytes, at));
        let (due, expires) = (u64_at(bytes, 144), u64_at(bytes, 152));
        if due >= UNITS_LIMIT {
            return Err(Damage::new(144, "time when a trie is due", format!("less than {UNITS_LIMIT}"), due));
        }
        if expires > 1 {
            return Err(Damage::new(152, "whether a trie has what expires", "0 or 1", expires));
        }
        Ok(Self {
            table,
            chunk_bytes,
            number: u64_at(bytes, 16),
            through: Seq(u64_at(bytes, 24)),
            shape: Shape { internal_nodes, internal_bytes, leaves, leaf_bytes, versions, keys },
            live_bytes: u64_at(bytes, 80),
            root: place_at(bytes, 88),
            before: place_at(bytes, 116),
            due: Due::from_units(due),
            expires: expires == 1,
        })
    }
}

impl Commit {
    fn put(&self, magic: &[u8; 4]) -> Vec<u8> {
        let mut out = [&magic[..], &[0; 4]].concat();
        put_place(&mut out, self.place);
        out.extend_from_slice(&self.header.encode());
        out
    }

    /// Reads the head of a record; returns the head and the bytes behind.
    fn read<'a>(bytes: &'a [u8], magic: &[u8; 4], table: TableId) -> Checked<(Self, &'a [u8])> {
        let Some((head, rest)) = bytes.split_at_checked(RECORD_HEAD) else {
            return Err(Damage::new(0, "record", format!("at least {RECORD_HEAD} bytes"), bytes.len()));
        };
        if !head.starts_with(magic) {
            return Err(Damage::new(0, "record", magic.escape_ascii(), head[..4].escape_ascii()));
        }
        let (expected, found) = (record_crc(bytes), u32_at(bytes, 4));
        if expected != found {
            return Err(Damage::new(4, "checksum of a record", expected, found));
        }
        let at = 8 + DocPointer::BYTES;
        let header =
            Header::decode(&head[at..], table).map_err(|damage| Damage { offset: at + damage.offset, ..damage })?;
        Ok((Self { place: place_at(head, 8), header }, rest))
    }
}

fn record_crc(bytes: &[u8]) -> u32 {
    checksum::crc32c_around(bytes, 4)
}

/// Puts the right checksum on a record.
pub(crate) fn sign(bytes: &mut [u8]) {
    let crc = record_crc(bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

impl Root {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.commit.put(ROOT_MAGIC);
        out.extend_from_slice(&self.nodes.encode());
        sign(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8], table: TableId) -> Checked<Self> {
        let (commit, rest) = Commit::read(bytes, ROOT_MAGIC, table)?;
        let nodes = DocImage::decode(rest)
            .map_err(|error| Damage::new(RECORD_HEAD, "image of node segments", "a whole one", error))?;
        Ok(Self { commit, nodes })
    }
}

impl Redo {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.commit.put(REDO_MAGIC);
        put_retained(&mut out, &self.made);
        put_count(&mut out, self.dropped.len());
        for (segment, bytes) in &self.dropped {
            [segment.0, *bytes].iter().for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
        }
        put_retained(&mut out, &self.documents);
        sign(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8], table: TableId) -> Checked<Self> {
        let (commit, mut rest) = Commit::read(bytes, REDO_MAGIC, table)?;
        let retained = |fields: &[u64]| Retained { segment: SegmentId(fields[0]), bytes: fields[1], end: fields[2] };
        let made = fields(bytes, &mut rest, 3)?.chunks_exact(3).map(retained).collect();
        let dropped = fields(bytes, &mut rest, 2)?.chunks_exact(2).map(|pair| (SegmentId(pair[0]), pair[1])).collect();
        let documents = fields(bytes, &mut rest, 3)?.chunks_exact(3).map(retained).collect();
        if !rest.is_empty() {
            return Err(Damage::new(bytes.len() - rest.len(), "end of a redo", "no more bytes", rest.len()));
        }
        Ok(Self { commit, made, dropped, documents })
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("segments are large, so there are few");
    out.extend_from_slice(&count.to_le_bytes());
}

fn put_retained(out: &mut Vec<u8>, list: &[Retained]) {
    put_count(out, list.len());
    for Retained { segment, bytes, end } in list {
        [segment.0, *bytes, *end].iter().for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
    }
}

/// A list behind its number; `of` fields make one entry.
fn fields(all: &[u8], rest: &mut &[u8], of: usize) -> Checked<Vec<u64>> {
    let short = |rest: &[u8]| Damage::new(all.len() - rest.len(), "list of a redo", "a whole one", "less");
    let (count, list) = rest.split_first_chunk().ok_or_else(|| short(rest))?;
    let count = u32::from_le_bytes(*count) as usize * of * 8;
    let (list, after) = list.split_at_checked(count).ok_or_else(|| short(rest))?;
    *rest = after;
    Ok(list.as_chunks::<8>().0.iter().map(|field| u64::from_le_bytes(*field)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(number: u64) -> DocPointer {
        DocPointer {
            segment: SegmentId(number),
            offset: 8 * number,
            length: DocLength::from_bits(100 + number),
            crc: 0x0102_0304,
        }
    }

    fn header() -> Header {
        let shape = Shape { internal_nodes: 3, internal_bytes: 4, leaves: 5, leaf_bytes: 6, versions: 7, keys: 8 };
        let header = Header::empty(TableId(9), 8);
        Header {
            number: 1,
            through: Seq(2),
            shape,
            live_bytes: 10,
            root: Some(pointer(1)),
            due: Due::from_units(3),
            ..header
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_header() {
        let bytes = header().encode();
        let numbers: String = (1..9).chain([10]).map(|number| format!("{number:02x}00000000000000")).collect();
        let root = "01000000000000000800000000000000650000000000000004030201";
        let expected = [
            "42415048",
            "02000000",
            "09000000",
            "08000000",
            &numbers,
            root,
            &"00".repeat(28),
            "0300000000000000",
            &"00".repeat(8),
        ]
        .concat();
        assert_eq!(hex(&bytes), expected);
        assert_eq!(Header::decode(&bytes, TableId(9)), Ok(header()));
        Header::decode(&bytes, TableId(8)).expect_err("of another table");
    }

    #[test]
    fn records_come_back_and_every_bit_counts() {
        let commit = Commit { place: Some(pointer(2)), header: header() };
        let retained = |segment| Retained { segment: SegmentId(segment), bytes: 64, end: 128 };
        let redo = Redo {
            commit,
            made: vec![retained(1), retained(2)],
            dropped: vec![(SegmentId(1), 32)],
            documents: vec![retained(5)],
        };
        let root = Root { commit: Commit { place: None, ..commit }, nodes: DocImage::default() };
        assert_eq!(Redo::decode(&redo.encode(), TableId(9)), Ok(redo.clone()));
        assert_eq!(Root::decode(&root.encode(), TableId(9)), Ok(root.clone()));
        let (redo, root) = (redo.encode(), root.encode());
        for bit in 0..redo.len() * 8 {
            let mut damaged = redo.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            Redo::decode(&damaged, TableId(9)).expect_err("damaged");
        }
        for length in 0..redo.len() {
            Redo::decode(&redo[..length], TableId(9)).expect_err("cut");
            Root::decode(&root[..length.min(root.len() - 1)], TableId(9)).expect_err("cut");
        }
        Redo::decode(&root, TableId(9)).expect_err("another record");
    }
}

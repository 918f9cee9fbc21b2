//! Gathers pairs and changes in blocks.
//!
//! [`Blocks`] fills a block until the next pair does not fit, then passes the block on. A value too long for one block
//! continues in blocks of its own.

use index::Expiry;
use parking_lot::Mutex;

use super::format::{BLOCK_HEADER_BYTES, Change, Counts, PAYLOAD_BYTES_MAX, Pair, kind};
use crate::error::Result;

/// A block with its whole payload, but without its header.
pub(super) struct Block {
    pub(super) kind: u8,
    /// Room for the header, and the payload.
    pub(super) bytes: Vec<u8>,
    /// Counts of the payload.
    pub(super) counts: Counts,
}

/// Destination of blocks.
pub(super) trait Take {
    /// Takes the next block.
    fn take(&mut self, block: Block) -> Result<()>;
}

impl<T: Take + ?Sized> Take for &mut T {
    fn take(&mut self, block: Block) -> Result<()> {
        (**self).take(block)
    }
}

/// Memory of written blocks, to be reused by new ones.
#[derive(Default)]
pub(super) struct Memory(Mutex<Vec<Vec<u8>>>);

impl Memory {
    fn empty(&self) -> Vec<u8> {
        let mut bytes =
            self.0.lock().pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_HEADER_BYTES + PAYLOAD_BYTES_MAX));
        bytes.clear();
        bytes.resize(BLOCK_HEADER_BYTES, 0);
        bytes
    }

    /// Returns the memory of a block for reuse.
    pub(super) fn emptied(&self, bytes: Vec<u8>) {
        self.0.lock().push(bytes);
    }
}

/// Makes blocks of pairs and changes.
pub(super) struct Blocks<'m, T> {
    memory: &'m Memory,
    block: Block,
    pub(super) out: T,
}

impl<'m, T: Take> Blocks<'m, T> {
    pub(super) fn new(memory: &'m Memory, out: T) -> Self {
        let block = Block { kind: kind::END, bytes: memory.empty(), counts: Counts::default() };
        Self { memory, block, out }
    }

    /// Adds a pair. Pairs come in the order of their keys.
    #[inline]
    pub(super) fn pair(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        let whole = Pair::whole(key, value).until(expiry);
        if whole.bytes() > PAYLOAD_BYTES_MAX {
            let long = Pair::long(key, value).until(expiry);
            self.room(kind::PAIRS, long.bytes())?;
            self.block.counts.pairs += 1;
            long.encode(&mut self.block.bytes);
            return self.pieces(value);
        }
        self.room(kind::PAIRS, whole.bytes())?;
        self.block.counts.pairs += 1;
        whole.encode(&mut self.block.bytes);
        Ok(())
    }

    /// Adds a change, behind those before.
    pub(super) fn change(&mut self, change: &Change<'_>) -> Result<()> {
        if let Change::Put(table, Pair { key, value: Some(value), expiry, .. }) = change
            && change.bytes() > PAYLOAD_BYTES_MAX
        {
            let long = Change::Put(*table, Pair::long(key, value).until(*expiry));
            self.room(kind::CHANGES, long.bytes())?;
            self.block.counts.changes += 1;
            long.encode(&mut self.block.bytes);
            return self.pieces(value);
        }
        self.room(kind::CHANGES, change.bytes())?;
        self.block.counts.changes += 1;
        change.encode(&mut self.block.bytes);
        Ok(())
    }

    /// Sends this payload in a separate block.
    pub(super) fn payload(&mut self, kind: u8, counts: Counts, payload: &[u8]) -> Result<()> {
        self.flush()?;
        self.block.counts = counts;
        self.block.bytes.extend_from_slice(payload);
        self.send(kind)
    }

    /// Sends the block unless its payload is empty.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.block.bytes.len() > BLOCK_HEADER_BYTES { self.send(self.block.kind) } else { Ok(()) }
    }

    /// Makes sure that the block is of this type and has room for these bytes.
    #[inline]
    fn room(&mut self, kind: u8, bytes: usize) -> Result<()> {
        if self.block.kind != kind || self.block.bytes.len() + bytes > BLOCK_HEADER_BYTES + PAYLOAD_BYTES_MAX {
            self.flush()?;
            self.block.kind = kind;
        }
        Ok(())
    }

    /// Sends the block, then the value of its last pair or change in pieces.
    fn pieces(&mut self, value: &[u8]) -> Result<()> {
        self.flush()?;
        for piece in value.chunks(PAYLOAD_BYTES_MAX) {
            self.block.bytes.extend_from_slice(piece);
            self.send(kind::VALUE)?;
        }
        Ok(())
    }

    #[cold]
    fn send(&mut self, kind: u8) -> Result<()> {
        let next = Block { kind, bytes: self.memory.empty(), counts: Counts::default() };
        let full = std::mem::replace(&mut self.block, next);
        self.out.take(Block { kind, ..full })
    }
}

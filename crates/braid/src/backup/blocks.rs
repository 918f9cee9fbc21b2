//! Pairs and changes gathered in blocks.
//!
//! [`Blocks`] fills a block until the next pair does not fit, and hands it on. A value that fits no block goes on in blocks of its own.

use index::Expiry;
use parking_lot::Mutex;

use super::format::{BLOCK_HEADER_BYTES, Change, Counts, PAYLOAD_BYTES_MAX, Pair, kind};
use crate::error::Result;

/// A block whose payload is whole and whose header is not.
pub(super) struct Block {
    pub(super) kind: u8,
    /// Room for the header, and the payload.
    pub(super) bytes: Vec<u8>,
    /// What is in it.
    pub(super) counts: Counts,
}

/// Where blocks go.
pub(super) trait Take {
    /// Takes the next block.
    fn take(&mut self, block: Block) -> Result<()>;
}

impl<T: Take + ?Sized> Take for &mut T {
    fn take(&mut self, block: Block) -> Result<()> {
        (**self).take(block)
    }
}

/// What blocks have been emptied, for those to come.
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

    /// Nobody needs the bytes of a block any more.
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

    /// A pair; pairs come in the order of their keys.
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

    /// A change, behind those before it.
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

    /// A block by itself.
    pub(super) fn payload(&mut self, kind: u8, counts: Counts, payload: &[u8]) -> Result<()> {
        self.flush()?;
        self.block.counts = counts;
        self.block.bytes.extend_from_slice(payload);
        self.send(kind)
    }

    /// Hands the block on if there is anything in it.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.block.bytes.len() > BLOCK_HEADER_BYTES { self.send(self.block.kind) } else { Ok(()) }
    }

    /// Sees to it that the block is of this type and has room.
    #[inline]
    fn room(&mut self, kind: u8, bytes: usize) -> Result<()> {
        if self.block.kind != kind || self.block.bytes.len() + bytes > BLOCK_HEADER_BYTES + PAYLOAD_BYTES_MAX {
            self.flush()?;
            self.block.kind = kind;
        }
        Ok(())
    }

    /// The value of what the block ends with.
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

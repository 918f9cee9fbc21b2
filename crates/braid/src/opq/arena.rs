//! Bytes of keys and values, appended in chunks that never move.
//!
//! Like all memory that grows with a queue, the chunks do not come from the general allocator ([`mapped`]).

use mapped::{MAPPED_MIN, Shared, SharedBytes};

const FIRST_CHUNK: usize = 4 << 10;
const LARGEST_CHUNK: usize = 256 << 10;
/// A new chunk has this part (as a divisor) of the arena's capacity, so little memory is taken and not used.
const GROWTH: usize = 4;

/// Bits of a place for the offset within the chunk; the others are the chunk's number.
const OFFSET_BITS: u32 = 18;

const _: () = assert!(LARGEST_CHUNK == 1 << OFFSET_BITS);

/// Bytes that an arena can always hold, for any operations. Each chunk but the first ones has the largest size, and
/// wastes less than one of the largest operations.
pub(crate) const ARENA_BYTES_MAX: u64 = 3 << 30;

/// Where bytes begin in the arena.
#[derive(Clone, Copy)]
pub(super) struct Place(u32);

impl Place {
    fn new(chunk: usize, offset: usize) -> Self {
        let chunk = u32::try_from(chunk).ok().filter(|chunk| *chunk < 1 << (u32::BITS - OFFSET_BITS));
        let offset = u32::try_from(offset).ok().filter(|offset| *offset < 1 << OFFSET_BITS);
        let chunk = chunk.expect("a write buffer is at most what an arena can hold");
        Self(chunk << OFFSET_BITS | offset.expect("a chunk is at most 256 KiB, and what it holds begins within it"))
    }

    const fn chunk(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    const fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize
    }
}

enum Memory {
    Shared(SharedBytes),
    Mapped(mapped::Memory),
}

impl Memory {
    /// Memory of so many bytes, or some more.
    fn new(size: usize) -> Self {
        if size < MAPPED_MIN {
            Self::Shared(Shared::zeroed(size))
        } else {
            Self::Mapped(mapped::Memory::used_before(size))
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

struct Chunk {
    memory: Memory,
    used: usize,
}

/// Append-only bytes in chunks: a place stays valid for the life of the arena.
#[derive(Default)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    capacity: usize,
}

impl Arena {
    /// Appends all three, contiguous.
    pub(super) fn append(&mut self, key: &[u8], value: &[u8], behind: &[u8]) -> Place {
        let length = key.len() + value.len() + behind.len();
        if self.chunks.last().is_none_or(|chunk| chunk.memory.bytes().len() - chunk.used < length) {
            let size =
                (self.capacity / GROWTH).next_multiple_of(FIRST_CHUNK).clamp(FIRST_CHUNK, LARGEST_CHUNK).max(length);
            let memory = Memory::new(size);
            self.capacity += memory.bytes().len();
            self.chunks.push(Chunk { memory, used: 0 });
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let place = Place::new(number, chunk.used);
        let mut free = &mut chunk.memory.bytes_mut()[chunk.used..chunk.used + length];
        for bytes in [key, value, behind] {
            let (here, rest) = free.split_at_mut(bytes.len());
            here.copy_from_slice(bytes);
            free = rest;
        }
        chunk.used += length;
        place
    }

    /// The `length` bytes from `skip` bytes behind `place`.
    pub(super) fn bytes(&self, place: Place, skip: usize, length: usize) -> &[u8] {
        let start = place.offset() + skip;
        &self.chunks[place.chunk()].memory.bytes()[start..start + length]
    }

    /// Memory held, in bytes.
    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }
}

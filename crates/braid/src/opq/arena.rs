//! Bytes of keys and values, appended in chunks that never move.

const FIRST_CHUNK: usize = 4 << 10;
const LARGEST_CHUNK: usize = 1 << 20;

/// Where bytes begin in the arena.
#[derive(Clone, Copy)]
pub(super) struct Place {
    chunk: u32,
    offset: u32,
}

/// Append-only bytes in chunks: a place stays good for the life of the arena.
#[derive(Default)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
    capacity: usize,
}

impl Arena {
    /// Appends `first` and then `second`, contiguous.
    pub(super) fn append(&mut self, first: &[u8], second: &[u8]) -> Place {
        let length = first.len() + second.len();
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < length) {
            let size = (FIRST_CHUNK << self.chunks.len().min(8)).min(LARGEST_CHUNK).max(length);
            self.capacity += size;
            self.chunks.push(Vec::with_capacity(size));
        }
        let chunk = self.chunks.len() - 1;
        let bytes = &mut self.chunks[chunk];
        let place = Place {
            chunk: u32::try_from(chunk).expect("an arena holds far fewer than 2^32 chunks"),
            offset: u32::try_from(bytes.len()).expect("a chunk is at most 1 MiB or one operation"),
        };
        bytes.extend_from_slice(first);
        bytes.extend_from_slice(second);
        place
    }

    /// The `length` bytes from `skip` bytes behind `place`.
    pub(super) fn bytes(&self, place: Place, skip: usize, length: usize) -> &[u8] {
        let start = place.offset as usize + skip;
        &self.chunks[place.chunk as usize][start..start + length]
    }

    /// Memory held.
    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }
}

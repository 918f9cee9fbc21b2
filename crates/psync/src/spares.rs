//! Buffers that reads use again and again.
//!
//! 1. A buffer whose bytes are no longer needed is kept. The next read takes a kept buffer that is large enough and not
//!    much larger.
//! 2. A kept buffer still holds the bytes of an earlier read, because zeroing would cost each read a pass over memory.
//!    So its user looks at the buffer only after its own read has succeeded, which means in full.
//! 3. Where there is no room for another buffer, the oldest go. So the kept sizes are those of the last reads.
//!
//! Invariant: the capacity of the kept buffers is at most the stated bytes. A buffer beyond that goes back to the
//! thread, as any freed [`Buffer`] does.

use std::collections::VecDeque;

use crate::Buffer;

/// Spare buffers for reads. The default keeps none.
#[derive(Debug, Default)]
pub struct Spares {
    /// Oldest first.
    buffers: VecDeque<Buffer>,
    bytes: usize,
    bytes_max: usize,
}

impl Spares {
    /// Keeps buffers of together at most `bytes_max` of capacity.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { buffers: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// The same, with at most `bytes_max` bytes; the oldest buffers go first.
    #[must_use]
    pub fn at_most(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self.make_room(0);
        self
    }

    fn make_room(&mut self, capacity: usize) {
        while self.bytes + capacity > self.bytes_max {
            let oldest = self.buffers.pop_front().expect("what is kept takes room");
            self.bytes -= oldest.capacity();
        }
    }

    /// A buffer of `len` bytes for a read to fill: a kept one whose capacity is at most twice `len`, with its earlier
    /// content, or another ([`Buffer::for_read`]).
    #[must_use]
    pub fn take(&mut self, len: usize) -> Buffer {
        let fits = |buffer: &Buffer| (len..=len.saturating_mul(2)).contains(&buffer.capacity());
        // The youngest are most likely to be in the processor's cache.
        let kept = self.buffers.iter().rposition(fits).and_then(|index| self.buffers.remove(index));
        let Some(buffer) = kept else { return Buffer::for_read(len) };
        self.bytes -= buffer.capacity();
        buffer.reused(len).expect("its capacity was compared with the length")
    }

    /// Keeps a buffer that is no longer needed, in place of older ones if there is no room.
    pub fn keep(&mut self, buffer: Buffer) {
        let capacity = buffer.capacity();
        if capacity > self.bytes_max {
            return;
        }
        self.make_room(capacity);
        self.bytes += capacity;
        self.buffers.push_back(buffer);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::BLOCK;

    #[test]
    fn a_buffer_comes_again_where_it_fits() {
        let mut spares = Spares::new(6 * BLOCK);
        let mut buffer = spares.take(2 * BLOCK);
        buffer.fill(7);
        let memory = buffer.as_ptr();
        spares.keep(buffer);
        // Too small, and far too large.
        assert_ne!(spares.take(2 * BLOCK + 1).as_ptr(), memory);
        assert_ne!(spares.take(10).as_ptr(), memory);
        let again = spares.take(BLOCK + 1);
        assert_eq!((again.as_ptr(), again.len()), (memory, BLOCK + 1));
        assert!(again.iter().all(|byte| *byte == 7));
        assert_ne!(spares.take(BLOCK + 1).as_ptr(), memory, "a buffer has one owner");
    }

    #[test]
    fn sizes_that_are_not_asked_for_any_more_go() {
        let mut spares = Spares::new(8 * BLOCK);
        spares.keep(Buffer::zeroed(8 * BLOCK));
        let small = spares.take(BLOCK);
        let memory = small.as_ptr();
        spares.keep(small);
        assert_eq!(spares.take(BLOCK).as_ptr(), memory);
        spares.keep(Buffer::zeroed(BLOCK));
        spares = spares.at_most(BLOCK);
        assert_eq!((spares.buffers.len(), spares.bytes), (1, BLOCK));
        spares = spares.at_most(0);
        spares.keep(Buffer::zeroed(9 * BLOCK));
        assert!(spares.buffers.is_empty(), "it is larger than all that may be kept");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_bounded(lens in prop::collection::vec((1..5 * BLOCK, any::<bool>()), 1..60)) {
            let mut spares = Spares::new(8 * BLOCK);
            let mut taken = Vec::new();
            for (len, keeps) in lens {
                let buffer = spares.take(len);
                prop_assert_eq!(buffer.len(), len);
                prop_assert!(buffer.capacity() < 2 * (len + BLOCK));
                taken.push(buffer);
                if keeps {
                    spares.keep(taken.swap_remove(0));
                }
                let bytes: usize = spares.buffers.iter().map(Buffer::capacity).sum();
                prop_assert!(bytes == spares.bytes && bytes <= 8 * BLOCK);
            }
        }
    }
}

//! Buffers that one series of reads uses again and again.
//!
//! 1. A buffer whose bytes nobody needs any more is kept; the next read takes one that is large enough and not much larger.
//! 2. A kept buffer is not made zero again, which would be a pass over memory for each read. What it still holds was read by the same
//!    owner, who looks only at reads that succeeded.
//!
//! Invariant: at most the stated bytes are kept; what is beyond goes back to the thread, as any freed [`Buffer`] does.

use crate::Buffer;

/// Spare buffers of one series of reads.
#[derive(Debug, Default)]
pub struct Spares {
    buffers: Vec<Buffer>,
    bytes: usize,
    bytes_max: usize,
}

impl Spares {
    /// Keeps buffers of together at most `bytes_max` of capacity.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { buffers: Vec::new(), bytes: 0, bytes_max }
    }

    /// A buffer of `len` bytes for a read to fill: a kept one of at most twice the capacity that it needs, with whatever it held, or a new
    /// one of zero.
    #[must_use]
    pub fn take(&mut self, len: usize) -> Buffer {
        let fits = |buffer: &Buffer| (len..=len.saturating_mul(2)).contains(&buffer.capacity());
        // The youngest are most likely to be in the processor's cache.
        let kept = self.buffers.iter().rposition(fits).map(|index| self.buffers.swap_remove(index));
        let Some(buffer) = kept else { return Buffer::zeroed(len) };
        self.bytes -= buffer.capacity();
        buffer.reused(len).expect("its capacity was compared with the length")
    }

    /// Keeps a buffer that is done with, if there is room.
    pub fn keep(&mut self, buffer: Buffer) {
        let bytes = self.bytes.saturating_add(buffer.capacity());
        if bytes <= self.bytes_max {
            self.bytes = bytes;
            self.buffers.push(buffer);
        }
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
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer.fill(7);
        let memory = buffer.as_ptr();
        spares.keep(buffer);
        // Too small, and far too large.
        assert!(spares.take(2 * BLOCK + 1).iter().all(|byte| *byte == 0));
        assert!(spares.take(10).iter().all(|byte| *byte == 0));
        let again = spares.take(BLOCK + 1);
        assert_eq!((again.as_ptr(), again.len()), (memory, BLOCK + 1));
        assert!(again.iter().all(|byte| *byte == 7));
        assert_ne!(spares.take(BLOCK + 1).as_ptr(), memory, "a buffer has one owner");
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

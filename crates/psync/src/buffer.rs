//! Memory that a device may read from or write into.
//!
//! A [`Buffer`] is heap memory aligned to [`BLOCK`], whose capacity is a multiple of it, as direct I/O wants it. It is always
//! initialised: a new one is zero, so a failed read shows zeros or part of the file, never foreign memory.

#![expect(
    unsafe_code,
    reason = "aligned allocation has no safe interface in the standard library"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of memory, offset and length for direct I/O, in bytes.
pub const BLOCK: usize = 4096;

/// Owned, aligned, initialised memory.
///
/// Shapes: `len` is any number of bytes; the capacity behind it is `len` at allocation, rounded up to a multiple of [`BLOCK`].
pub struct Buffer {
    memory: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: a Buffer owns its memory alone, as a Box<[u8]> does; sharing it gives out only `&[u8]`.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, BLOCK)
        .expect("a capacity is at most isize::MAX, checked at allocation")
}

impl Buffer {
    /// `len` bytes of zero.
    ///
    /// # Panics
    /// When `len` is larger than any object may be (`isize::MAX` less one block). Sizes that come from a disk or a network
    /// are checked by whoever read them.
    pub fn zeroed(len: usize) -> Self {
        assert!(
            len <= isize::MAX as usize - BLOCK,
            "a buffer of {len} bytes cannot exist"
        );
        let capacity = len.max(1).next_multiple_of(BLOCK);
        // SAFETY: the capacity is at least one block, so the layout is not of size zero.
        let memory = unsafe { alloc_zeroed(layout(capacity)) };
        let Some(memory) = NonNull::new(memory) else {
            handle_alloc_error(layout(capacity))
        };
        Self {
            memory,
            len,
            capacity,
        }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes in use: what a request transfers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes allocated, a multiple of [`BLOCK`].
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Keeps the first `len` bytes; does nothing if there are no more.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The memory, for a submission that outlives any borrow of this buffer.
    pub(crate) fn pointer(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout, and owned.
        unsafe { dealloc(self.memory.as_ptr(), layout(self.capacity)) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` is at most `capacity`, all of it initialised, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_cut() {
        for len in [0, 1, 511, 4096, 4097, 70_000] {
            let mut buffer = Buffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.pointer() as usize % BLOCK, 0);
            assert_eq!(buffer.capacity() % BLOCK, 0);
            assert!(buffer.capacity() >= len);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(0xA5);
        }
        // Memory that was used before is zero again.
        assert!(Buffer::zeroed(70_000).iter().all(|byte| *byte == 0));
        let mut buffer = Buffer::from_slice(b"braid");
        buffer.truncate(9);
        assert_eq!(&*buffer, b"braid");
        buffer.truncate(2);
        assert_eq!(&*buffer.clone(), b"br");
    }
}

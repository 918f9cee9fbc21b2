//! Memory that a device may read from or write into.
//!
//! 1. A [`Buffer`] is heap memory aligned to [`BLOCK`], whose capacity is a multiple of it, as direct I/O wants it. It is always
//!    initialised to its capacity: a new one is zero, so a failed read shows zeros or part of the file, or what its owner used it for
//!    before ([`Buffer::reused`]), never foreign memory; one that is made for a read alone may show what its thread read before
//!    ([`Buffer::for_read`]).
//! 2. A thread keeps up to [`KEPT_BYTES_MAX`] of freed buffers of up to [`KEPT_BLOCKS_MAX`] blocks for its next ones. Batches allocate and
//!    free megabytes at a time, which the allocator gives back to the system each time: the page faults of getting them again
//!    halve the rate of 16 KiB reads in batches of 128.

#![expect(unsafe_code, reason = "aligned allocation has no safe interface in the standard library")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of memory, offset and length with which direct I/O works on every file that is opened for it, in bytes.
pub const BLOCK: usize = 4096;

/// The least unit that any file has for direct I/O, in bytes.
pub const SECTOR: usize = 512;

const _: () = assert!(BLOCK.is_multiple_of(SECTOR));

/// Most bytes of freed buffers that a thread keeps: a batch of 128 buffers of 32 KiB.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Largest buffer that a thread keeps, in blocks.
const KEPT_BLOCKS_MAX: usize = 16;

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept::new()) };
}

/// Freed memory of one thread, by capacity.
struct Kept {
    by_blocks: [Vec<NonNull<u8>>; KEPT_BLOCKS_MAX],
    bytes: usize,
}

impl Kept {
    const fn new() -> Self {
        Self { by_blocks: [const { Vec::new() }; KEPT_BLOCKS_MAX], bytes: 0 }
    }

    fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        let memory = self.by_blocks.get_mut(capacity / BLOCK - 1)?.pop()?;
        self.bytes -= capacity;
        Some(memory)
    }

    /// Keeps memory; returns whether there was room for it.
    fn keep(&mut self, memory: NonNull<u8>, capacity: usize) -> bool {
        if self.bytes + capacity > KEPT_BYTES_MAX {
            return false;
        }
        let Some(same) = self.by_blocks.get_mut(capacity / BLOCK - 1) else {
            return false;
        };
        same.push(memory);
        self.bytes += capacity;
        true
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (index, same) in self.by_blocks.iter().enumerate() {
            for memory in same {
                // SAFETY: kept memory is owned by nobody else, and was allocated with this layout.
                unsafe { dealloc(memory.as_ptr(), layout((index + 1) * BLOCK)) }
            }
        }
    }
}

/// Memory of that capacity that a freed buffer of this thread had, initialised.
fn kept(capacity: usize) -> Option<NonNull<u8>> {
    // A thread that is ending has no kept memory.
    KEPT.try_with(|kept| kept.borrow_mut().take(capacity)).ok().flatten()
}

/// Memory of that capacity with whatever bytes, perhaps none written yet.
fn allocate(capacity: usize) -> NonNull<u8> {
    if let Some(memory) = kept(capacity) {
        return memory;
    }
    // SAFETY: the capacity is at least one block, so the layout is not of size zero.
    let memory = unsafe { alloc(layout(capacity)) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout(capacity)))
}

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
    Layout::from_size_align(capacity, BLOCK).expect("a capacity is at most isize::MAX, checked at allocation")
}

fn capacity(len: usize) -> usize {
    assert!(len <= isize::MAX as usize - BLOCK, "a buffer of {len} bytes cannot exist");
    len.max(1).next_multiple_of(BLOCK)
}

impl Buffer {
    /// `len` bytes of zero.
    ///
    /// # Panics
    /// When `len` is larger than any object may be (`isize::MAX` less one block). Sizes that come from a disk or a network
    /// are checked by whoever read them.
    pub fn zeroed(len: usize) -> Self {
        let capacity = capacity(len);
        let memory = allocate(capacity);
        // SAFETY: freshly allocated with that capacity.
        unsafe { memory.write_bytes(0, capacity) };
        Self { memory, len, capacity }
    }

    /// `len` bytes for a read to fill, to be looked at only when it has succeeded: zero, or what an earlier buffer of this thread held. To make
    /// memory zero that is read into right away takes longer than much of what else a read of a page does.
    ///
    /// # Panics
    /// As [`Buffer::zeroed`].
    pub fn for_read(len: usize) -> Self {
        let capacity = capacity(len);
        // What is kept was a buffer's, so it is initialised to its capacity.
        kept(capacity).map_or_else(|| Self::zeroed(len), |memory| Self { memory, len, capacity })
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Self {
        Self::gathered(&[bytes], bytes.len())
    }

    /// `len` bytes: copies of these, one behind the other, and zeros.
    ///
    /// # Panics
    /// When they are more than `len`, or as [`Buffer::zeroed`].
    pub fn gathered(parts: &[&[u8]], len: usize) -> Self {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!(bytes <= len, "{bytes} bytes do not fit into a buffer of {len}");
        let capacity = capacity(len);
        let (memory, mut end) = (allocate(capacity), 0);
        // SAFETY: freshly allocated with at least as many bytes as the parts have, so it does not overlap with any; what is left of the
        // capacity is written too.
        unsafe {
            for part in parts {
                memory.add(end).copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                end += part.len();
            }
            memory.add(end).write_bytes(0, capacity - end);
        }
        Self { memory, len, capacity }
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

    /// The same memory with another length; none where its capacity is less. Bytes that were not in use show what they once
    /// held in this buffer, or zero.
    pub fn reused(mut self, len: usize) -> Option<Self> {
        self.len = len;
        (len <= self.capacity).then_some(self)
    }

    /// The memory, for a submission that outlives any borrow of this buffer.
    pub(crate) fn pointer(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().keep(self.memory, self.capacity));
        if kept != Ok(true) {
            // SAFETY: allocated with the same layout, and owned.
            unsafe { dealloc(self.memory.as_ptr(), layout(self.capacity)) }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` is at most the capacity, which was initialised at allocation, and `self` is borrowed.
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
        let buffer = buffer.reused(6).expect("a block");
        assert_eq!(&*buffer, b"braid\0");
        assert!(buffer.reused(BLOCK + 1).is_none());
    }

    #[test]
    fn parts_are_gathered_before_zeros() {
        drop(Buffer::from_slice(&[0xA5; 2 * BLOCK]));
        let buffer = Buffer::gathered(&[b"bra", b"", b"id"], BLOCK + 1);
        assert_eq!((buffer.len(), buffer.capacity()), (BLOCK + 1, 2 * BLOCK));
        assert_eq!(&buffer[..5], b"braid");
        assert!(buffer.reused(2 * BLOCK).expect("two blocks")[5..].iter().all(|byte| *byte == 0));
    }

    #[test]
    #[should_panic(expected = "6 bytes do not fit into a buffer of 5")]
    fn parts_must_fit() {
        Buffer::gathered(&[b"braid", b"!"], 5);
    }

    #[test]
    fn what_is_read_into_need_not_be_zero() {
        let mut buffer = Buffer::zeroed(3 * BLOCK);
        buffer.fill(0xA5);
        let memory = buffer.as_ptr();
        drop(buffer);
        let again = Buffer::for_read(2 * BLOCK + 1);
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (memory, 2 * BLOCK + 1, 3 * BLOCK));
        assert!(again.iter().all(|byte| *byte == 0xA5));
        // There is no other one.
        assert!(Buffer::for_read(3 * BLOCK).iter().all(|byte| *byte == 0));
    }
}

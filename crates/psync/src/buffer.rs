//! Memory that a device may read from or write into.
//!
//! 1. A [`Buffer`] is aligned to [`BLOCK`] and its capacity is a multiple of [`BLOCK`], as direct I/O requires.
//! 2. A buffer is always initialised to its capacity, and never shows memory of another process.
//! 3. Buffers share memory that the process keeps for the next one, because batches take and free megabytes at a time.
//!    Taking them from the system each time would halve the rate of 16 KiB reads in batches of 128.
//! 4. Memory of up to [`PAGES_BYTES_MAX`] comes from huge pages ([`Pages`]). A thread keeps a few buffers of up to
//!    [`SMALL_BLOCKS_MAX`] blocks for itself ([`Small`]), and needs no lock for those.
//! 5. The general allocator serves no buffer. Given thousands of aligned pieces back at once, it would keep them,
//!    between others in use, for the threads that took them.
//!
//! A failed read shows part of the file, or the bytes from before the read:
//!
//! | buffer | bytes before the read |
//! |---|---|
//! | new | zeros |
//! | reused ([`Buffer::reused`]) | earlier content of the same buffer |
//! | made for a read alone ([`Buffer::for_read`]) | possibly earlier content of this process's memory |

#![expect(unsafe_code, reason = "aligned allocation has no safe interface in the standard library")]

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use mapped::{PAGES_BYTES_MAX, Pages, SMALL_BYTES_MAX};

/// Alignment of memory, offset and length with which direct I/O works on every file that is opened for direct I/O, in
/// bytes.
pub const BLOCK: usize = 4096;

/// The least unit that any file has for direct I/O, in bytes.
pub const SECTOR: usize = 512;

const _: () = assert!(BLOCK.is_multiple_of(SECTOR) && mapped::PAGE.is_multiple_of(BLOCK));

/// Largest buffer that a thread keeps, in blocks.
const SMALL_BLOCKS_MAX: usize = SMALL_BYTES_MAX / BLOCK;

/// Most bytes of small buffers that a thread keeps for itself. They suffice for some lookups without a lock, and many
/// threads still do not keep much.
const OWN_BYTES_MAX: usize = 32 << 10;

thread_local! {
    static OWN: RefCell<Small> = const { RefCell::new(Small::new(OWN_BYTES_MAX)) };
}

/// Memory of a buffer, initialised.
enum Memory {
    /// None only while the buffer is dropped.
    Pages(Option<Pages>),
    Large(mapped::Memory),
}

impl Memory {
    /// Memory of that capacity, zero.
    fn zeros(capacity: usize) -> Self {
        if is_large(capacity) {
            return Self::Large(mapped::Memory::zeroed(capacity));
        }
        let memory = Self::used_before(capacity);
        // SAFETY: the memory has that capacity, and nobody else uses it.
        unsafe { memory.start().write_bytes(0, capacity) };
        memory
    }

    /// Memory of that capacity, zero or with earlier content of this process.
    fn used_before(capacity: usize) -> Self {
        if is_large(capacity) {
            return Self::Large(mapped::Memory::used_before(capacity));
        }
        // A thread that is ending keeps nothing.
        let own = OWN.try_with(|own| own.borrow_mut().take(capacity)).ok().flatten();
        Self::Pages(own.or_else(|| Some(Pages::used_before(capacity))))
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Pages(memory) => memory.as_ref().map_or(0, Pages::capacity),
            Self::Large(memory) => memory.len(),
        }
    }

    const fn start(&self) -> NonNull<u8> {
        match self {
            Self::Pages(Some(memory)) => memory.start(),
            Self::Pages(None) => NonNull::dangling(),
            Self::Large(memory) => memory.start(),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Self::Pages(memory) = self {
            // A thread that is ending keeps nothing.
            let _ = OWN.try_with(|own| {
                // Dropped only after the borrow, because the returned memory may be mapped memory.
                let over = memory.take().and_then(|memory| own.borrow_mut().keep(memory));
                drop(over);
            });
        }
    }
}

const fn is_large(capacity: usize) -> bool {
    capacity > PAGES_BYTES_MAX
}

/// Memory of freed small buffers, by capacity.
struct Small {
    by_blocks: [Vec<Pages>; SMALL_BLOCKS_MAX],
    bytes: usize,
    bytes_max: usize,
}

impl Small {
    const fn new(bytes_max: usize) -> Self {
        Self { by_blocks: [const { Vec::new() }; SMALL_BLOCKS_MAX], bytes: 0, bytes_max }
    }

    fn take(&mut self, capacity: usize) -> Option<Pages> {
        let memory = self.by_blocks.get_mut(capacity / BLOCK - 1)?.pop()?;
        self.bytes -= capacity;
        Some(memory)
    }

    /// Keeps memory. Without room for it, the largest kept piece of a larger capacity makes way. Returns the piece that
    /// is not kept, or no longer.
    fn keep(&mut self, memory: Pages) -> Option<Pages> {
        let (mut left, capacity) = (None, memory.capacity());
        if capacity > SMALL_BLOCKS_MAX * BLOCK {
            return Some(memory);
        }
        if self.bytes + capacity > self.bytes_max {
            let others = self.by_blocks.iter().enumerate().skip(capacity / BLOCK);
            let Some(largest) = others.rev().find(|(_, same)| !same.is_empty()).map(|(index, _)| index) else {
                return Some(memory);
            };
            left = self.take((largest + 1) * BLOCK);
        }
        self.bytes += capacity;
        self.by_blocks[capacity / BLOCK - 1].push(memory);
        left
    }
}

/// Owned, aligned, initialised memory.
///
/// Shapes: `len` is any number of bytes. The capacity is `len` at allocation rounded up to a multiple of [`BLOCK`]; for
/// large buffers it may be up to a quarter more.
pub struct Buffer {
    memory: Memory,
    len: usize,
}

// SAFETY: sharing a Buffer gives out only `&[u8]`.
unsafe impl Sync for Buffer {}

fn capacity(len: usize) -> usize {
    assert!(len <= isize::MAX as usize / 2, "a buffer of {len} bytes cannot exist");
    let exact = len.max(1).next_multiple_of(BLOCK);
    if is_large(exact) { mapped::capacity(exact) } else { exact }
}

impl Buffer {
    /// `len` bytes of zero.
    ///
    /// # Panics
    /// When `len` is larger than an object may be, half of `isize::MAX` here. Check sizes that come from a disk or a
    /// network before this call.
    pub fn zeroed(len: usize) -> Self {
        Self { memory: Memory::zeros(capacity(len)), len }
    }

    /// `len` bytes for a read to fill, to be looked at only after the read has succeeded. They are zero or earlier
    /// content of the process's memory, of a buffer or not. Zeroing memory right before a read into it would cost more
    /// time than most other steps of a page read.
    ///
    /// # Panics
    /// As [`Buffer::zeroed`].
    pub fn for_read(len: usize) -> Self {
        Self { memory: Memory::used_before(capacity(len)), len }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Self {
        Self::gathered(&[bytes], bytes.len())
    }

    /// `len` bytes: copies of the parts, one behind the other, and then zeros.
    ///
    /// # Panics
    /// When the parts have more than `len` bytes, or as [`Buffer::zeroed`].
    pub fn gathered(parts: &[&[u8]], len: usize) -> Self {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!(bytes <= len, "{bytes} bytes do not fit into a buffer of {len}");
        let capacity = capacity(len);
        let memory = Memory::used_before(capacity);
        let (start, mut end) = (memory.start(), 0);
        // SAFETY: nobody else uses the memory, and it has at least as many bytes as the parts have, so it does not
        // overlap with any; the rest of the capacity is written too.
        unsafe {
            for part in parts {
                start.add(end).copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                end += part.len();
            }
            start.add(end).write_bytes(0, capacity - end);
        }
        Self { memory, len }
    }

    /// Bytes in use: those that a request transfers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes allocated, a multiple of [`BLOCK`].
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Keeps the first `len` bytes; does nothing if there are no more.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The same memory with another length; none where its capacity is less. Bytes that were not in use show their
    /// earlier content in this buffer, or zero.
    pub fn reused(mut self, len: usize) -> Option<Self> {
        self.len = len;
        (len <= self.capacity()).then_some(self)
    }

    /// The memory, for a submission that outlives any borrow of this buffer.
    pub(crate) fn pointer(&mut self) -> *mut u8 {
        self.memory.start().as_ptr()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` is at most the capacity, which was initialised at allocation, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr(), self.len) }
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
    }

    #[test]
    fn what_a_thread_does_not_keep_is_there_for_others() {
        // Of a size that no other test has.
        const LEN: usize = 37 * BLOCK;
        let memory = || {
            let mut buffers: Vec<_> = (0..4).map(|_| Buffer::zeroed(LEN)).collect();
            buffers.iter_mut().for_each(|buffer| buffer.fill(0xA5));
            buffers.iter().map(|buffer| buffer.as_ptr() as usize).collect::<Vec<_>>()
        };
        let before = std::thread::spawn(memory).join().expect("a thread ends");
        let again: Vec<_> = (0..4).map(|_| Buffer::for_read(LEN)).collect();
        let same = again.iter().filter(|buffer| before.contains(&(buffer.as_ptr() as usize)) && buffer[0] == 0xA5);
        let same = same.count();
        assert!(same >= 2, "{same} of 4");
        assert!(Buffer::zeroed(LEN).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_thread_keeps_small_buffers_within_its_bound() {
        let mut small = Small::new(6 * BLOCK);
        let [one, two, three] = [1, 2, 3].map(|blocks| Pages::used_before(blocks * BLOCK));
        let (second, third) = (two.start(), three.start());
        assert_eq!([one, two, three].map(|memory| small.keep(memory)), [None, None, None]);
        assert_eq!(small.take(4 * BLOCK), None);
        let two = small.take(2 * BLOCK).expect("two blocks");
        assert_eq!(two.start(), second);
        assert_eq!(small.keep(two), None);
        // There is no room: the largest piece goes, but none for a larger one.
        let three = small.keep(Pages::used_before(BLOCK)).expect("three blocks");
        assert_eq!(three.start(), third);
        assert_eq!((small.keep(three).map(|memory| memory.start()), small.bytes), (Some(third), 4 * BLOCK));
    }
}

//! Memory that is mapped from the system, and a store of freed memory for the next allocations.
//!
//! Some threads fill queues and large I/O buffers, other threads drop them. A general allocator keeps such freed
//! memory, in pieces of all sizes, for the threads that allocated it. A new mapping for each use costs a page fault for
//! each page. Therefore:
//!
//! 1. Memory has one of few sizes ([`capacity`]), and freed memory is kept for the next allocation of the same size.
//! 2. (kept bytes) + (bytes in use) stays near the most bytes that were in use lately, so keeping never takes more
//!    memory than there was use for. Memory is kept only for a moment, because memory in use again circulates faster.
//! 3. [`Memory`] is bytes. [`Mapped`] is an allocator for lists and tables, and takes small allocations from the heap
//!    of [`Shared`].
//! 4. [`Pages`] are for devices. They come from a few chunks, each of which is contiguous in physical memory.
//! 5. [`Shared`] is an allocator for small allocations that live long: one heap for all threads.
//! 6. A process may have a limited number of mappings. Memory that cannot be mapped comes from the general allocator,
//!    and a list notes these allocations.

#![expect(unsafe_code, reason = "neither mappings nor allocators have a safe interface")]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Braid runs on Linux alone: its durability rests on O_DIRECT, fdatasync and RWF_DSYNC as Linux keeps them"
);

mod allocator;
mod kept;
mod pages;
mod shared;
mod sizes;
mod system;

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

pub use allocator::{List, MAPPED_MIN, Mapped};
pub use pages::{PAGES_BYTES_MAX, Pages, SMALL_BYTES_MAX};
pub use shared::{Shared, SharedBytes};
pub use sizes::{PAGE, capacity};

use kept::{Holds, Piece};

/// Bytes that an allocation of `bytes` takes from [`Mapped`].
#[must_use]
pub fn taken(bytes: usize) -> usize {
    if bytes < MAPPED_MIN { Shared::taken(bytes) } else { capacity(bytes) }
}

/// Gives kept memory that was not wanted for long back to the system. For an idle thread to call.
pub fn trim() {
    kept::free_over(usize::MAX);
}

/// Mapped bytes, aligned to [`PAGE`] and initialised.
#[derive(Debug)]
pub struct Memory(Piece);

impl Memory {
    /// [`capacity`]`(len)` bytes of zero.
    ///
    /// # Panics
    /// As [`capacity`].
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let (piece, is_zero) = kept::take(capacity(len), Holds::Bytes);
        let mut memory = Self(piece);
        if !is_zero {
            memory.fill(0);
        }
        memory
    }

    /// As many bytes, which are zero or hold earlier content of this process.
    ///
    /// # Panics
    /// As [`capacity`].
    #[must_use]
    pub fn used_before(len: usize) -> Self {
        Self(kept::take(capacity(len), Holds::Bytes).0)
    }

    /// As `Memory::used_before`; none where there is no memory.
    ///
    /// # Panics
    /// As [`capacity`].
    #[must_use]
    pub fn try_used_before(len: usize) -> Option<Self> {
        kept::try_take(capacity(len), Holds::Bytes).map(|(piece, _)| Self(piece))
    }

    /// The start of the memory, for a device that reads or writes it beyond any borrow.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.0.start
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the piece was taken, and nobody can use the piece any more.
        unsafe { kept::leave(self.0, Holds::Bytes) }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the piece has `capacity` bytes, all of them are initialised, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.capacity) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.capacity) }
    }
}

// SAFETY: a `Memory` owns its bytes alone, as a Box<[u8]> does.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` gives out only `&[u8]`.
unsafe impl Sync for Memory {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_before_is_zero_where_that_is_asked() {
        // A size that no other test has.
        const LEN: usize = 3 << 20;
        let mut memory = Memory::zeroed(LEN);
        assert!(memory.iter().all(|byte| *byte == 0));
        memory.fill(7);
        let start = memory.start();
        drop(memory);
        let again = Memory::used_before(LEN);
        assert_eq!((again.start(), again.iter().all(|byte| *byte == 7)), (start, true));
        drop(again);
        let zeroed = Memory::zeroed(LEN);
        assert_eq!((zeroed.start(), zeroed.iter().all(|byte| *byte == 0)), (start, true));
    }
}

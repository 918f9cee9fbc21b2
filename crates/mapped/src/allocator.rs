//! An allocator for growing collections: lists, and hash tables.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::kept::{self, Holds, Piece};
use crate::{PAGE, Shared, capacity};

/// Least bytes of an allocation that is mapped. A smaller allocation comes from the heap that all threads share, so an
/// owner of many small lists needs no mappings for them.
pub const MAPPED_MIN: usize = 16 << 10;

/// A list in mapped memory.
pub type List<T> = allocator_api2::vec::Vec<T, Mapped>;

/// Allocates mapped memory for large allocations, and memory of [`Shared`] for small ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mapped;

fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED_MIN && layout.align() <= PAGE
}

// SAFETY: memory belongs to its owner until it is given back, from either allocator; the layout alone decides which
// one.
unsafe impl Allocator for Mapped {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if !is_mapped(layout) {
            return Shared.allocate(layout);
        }
        if layout.size() > isize::MAX as usize / 2 {
            return Err(AllocError);
        }
        let (piece, _) = kept::try_take(capacity(layout.size()), Holds::Nothing).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(piece.start, layout.size()))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: the memory was taken for this layout, and the caller gives the memory up.
            unsafe { kept::leave(Piece { start, capacity: capacity(layout.size()) }, Holds::Nothing) }
        } else {
            // SAFETY: the memory came from `Shared`, with this layout.
            unsafe { Shared.deallocate(start, layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_all_sizes_keep_what_they_hold() {
        let mut lists: Vec<List<u64>> = Vec::new();
        for length in [0, 1, 2047, 2048, 2049, 100_000] {
            let mut list = List::new_in(Mapped);
            (0..length).for_each(|number| list.push(number));
            lists.push(list);
        }
        lists[5].truncate(10);
        lists[5].shrink_to_fit();
        for list in &lists {
            assert!(list.iter().copied().eq(0..list.len() as u64));
        }
        assert_eq!(lists[5].capacity(), 10);
    }
}

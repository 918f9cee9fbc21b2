//! Memory of queues, which the system has back as soon as they are applied.
//!
//! Queues are filled by some threads and dropped by another. What a general allocator is given back in that way, in pieces of all sizes, it keeps for the
//! threads that took it. So all that grows with a queue is mapped, once it is some pages.
//!
//! A process may have so many mappings and no more. What cannot be mapped comes from the general allocator after all, and begins [`BESIDE`] bytes into a page,
//! which tells it from what is mapped.

#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use std::{alloc::Layout, ptr::NonNull};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// What is smaller is the general allocator's: a database of many idle tables has nothing else.
pub(super) const MAPPED: usize = 16 << 10;

/// What the system maps at a time.
const PAGE: usize = 4 << 10;

/// Where in a page memory begins that is not mapped.
const BESIDE: usize = 64;

/// A list in such memory.
pub(super) type List<T> = allocator_api2::vec::Vec<T, Mapped>;

/// Maps what is large.
#[derive(Clone, Copy, Default)]
pub(super) struct Mapped;

impl Mapped {
    /// Bytes that a list of that capacity takes, of which so many are in use: of what is mapped, pages that were never touched are none.
    pub(super) const fn bytes(used: usize, capacity: usize) -> usize {
        let touched = used.next_multiple_of(PAGE);
        if capacity >= MAPPED && touched < capacity { touched } else { capacity }
    }
}

fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED && layout.align() <= BESIDE
}

/// Memory that the general allocator gives in place of what is to be mapped for `layout`: it begins with bytes that nobody uses.
fn beside(layout: Layout) -> Result<Layout, AllocError> {
    Layout::from_size_align(layout.size() + BESIDE, PAGE).map_err(|_| AllocError)
}

fn allocate_beside(layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let memory = Global.allocate(beside(layout)?)?.cast::<u8>();
    // SAFETY: the memory has so many bytes more than the layout.
    let memory = unsafe { memory.add(BESIDE) };
    Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
}

// SAFETY: memory stays where it is until it is deallocated, whatever becomes of the allocator, which has no state; which way memory came is told by its layout
// and where it begins.
unsafe impl Allocator for Mapped {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if !is_mapped(layout) {
            return Global.allocate(layout);
        }
        let length = layout.size().next_multiple_of(PAGE);
        // SAFETY: nothing is mapped in place of anything else.
        let memory = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        match memory.ok().and_then(|memory| NonNull::new(memory.cast::<u8>())) {
            Some(memory) => Ok(NonNull::slice_from_raw_parts(memory, layout.size())),
            None => allocate_beside(layout),
        }
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        if !is_mapped(layout) {
            // SAFETY: it came from there, with this layout.
            unsafe { Global.deallocate(memory, layout) }
        } else if memory.addr().get().is_multiple_of(PAGE) {
            let (start, length) = (memory.as_ptr().cast(), layout.size().next_multiple_of(PAGE));
            // SAFETY: it was mapped with this layout, and the caller gives it up. Where the system has no room to note that it is not mapped any more, it has the
            // memory back all the same.
            unsafe {
                if munmap(start, length).is_err() {
                    let _ = madvise(start, length, Advice::LinuxDontNeed);
                }
            }
        } else if let Ok(layout) = beside(layout) {
            // SAFETY: it came from there, with this layout, and begins so far behind the beginning.
            unsafe { Global.deallocate(memory.sub(BESIDE), layout) }
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

    #[test]
    fn what_cannot_be_mapped_is_given_back_to_where_it_came_from() {
        for size in [MAPPED, MAPPED + 1, 1 << 20] {
            let layout = Layout::from_size_align(size, 8).expect("small");
            let memory = allocate_beside(layout).expect("memory");
            assert_eq!((memory.len(), memory.addr().get() % PAGE), (size, BESIDE));
            // SAFETY: nobody else has it.
            unsafe {
                memory.cast::<u8>().write_bytes(7, size);
                Mapped.deallocate(memory.cast(), layout);
            }
        }
    }

    #[test]
    fn what_is_mapped_and_not_touched_takes_nothing() {
        assert_eq!(Mapped::bytes(1, MAPPED - 1), MAPPED - 1);
        assert_eq!(Mapped::bytes(1, MAPPED), PAGE);
        assert_eq!(Mapped::bytes(MAPPED - 1, MAPPED), MAPPED);
    }
}

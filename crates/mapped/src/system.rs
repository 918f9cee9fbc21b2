//! Memory from the system, or from the general allocator where the system maps no more.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::PAGE;

/// The next larger page size of processors with pages of 4 KiB.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Start addresses of memory that could not be mapped.
static NOT_MAPPED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Length of that list, so that most calls need not lock the list.
static NOT_MAPPED_COUNT: AtomicUsize = AtomicUsize::new(0);

fn layout(capacity: usize) -> Option<Layout> {
    Layout::from_size_align(capacity, PAGE).ok().filter(|_| capacity > 0)
}

/// `capacity` bytes of zero; none where there is no memory.
pub(crate) fn take(capacity: usize) -> Option<NonNull<u8>> {
    map(capacity).or_else(|| take_not_mapped(capacity))
}

/// `capacity` bytes of zero; none where they cannot be mapped. A multiple of a huge page gets huge pages.
pub(crate) fn map(capacity: usize) -> Option<NonNull<u8>> {
    if !capacity.is_multiple_of(HUGE_PAGE) {
        return map_anywhere(capacity);
    }
    // A new mapping mostly comes right below the previous one, and is aligned as that one is. Then the system counts
    // both as one mapping, and the number of mappings of a process is limited.
    let mut start = map_anywhere(capacity)?;
    if !start.addr().get().is_multiple_of(HUGE_PAGE) {
        // SAFETY: the memory was just mapped.
        unsafe { unmap(start.as_ptr(), capacity) };
        let longer = map_anywhere(capacity + HUGE_PAGE)?;
        let before = longer.addr().get().wrapping_neg() % HUGE_PAGE;
        // SAFETY: the mapped bytes outside of those that are given out have no owner.
        unsafe {
            start = longer.add(before);
            if before > 0 {
                unmap(longer.as_ptr(), before);
            }
            unmap(start.add(capacity).as_ptr(), HUGE_PAGE - before);
        }
    }
    // SAFETY: the memory is mapped. Where the system refuses, as one without huge pages does, nothing changes.
    let _ = unsafe { madvise(start.as_ptr().cast(), capacity, Advice::LinuxHugepage) };
    Some(start)
}

fn map_anywhere(capacity: usize) -> Option<NonNull<u8>> {
    // SAFETY: nothing is mapped in place of anything else.
    let memory = unsafe {
        mmap_anonymous(std::ptr::null_mut(), capacity, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    memory.ok().and_then(|memory| NonNull::new(memory.cast()))
}

/// Gives mapped bytes back to the system. Returns whether the system took them.
///
/// # Safety
/// The bytes were mapped, with whole pages, and nobody uses them any more.
pub(crate) unsafe fn unmap(start: *mut u8, bytes: usize) -> bool {
    // SAFETY: as the caller says.
    unsafe { munmap(start.cast(), bytes) }.is_ok()
}

/// `capacity` bytes of zero from the general allocator, aligned to [`PAGE`]; none where there is no memory.
pub(crate) fn take_not_mapped(capacity: usize) -> Option<NonNull<u8>> {
    // SAFETY: the layout is not of size zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout(capacity)?) })?;
    let mut not_mapped = NOT_MAPPED.lock();
    not_mapped.push(start.addr().get());
    NOT_MAPPED_COUNT.store(not_mapped.len(), Ordering::Relaxed);
    Some(start)
}

/// Frees memory that could not be mapped. Returns whether the memory was on that list; if so, it is removed from the
/// list.
///
/// # Safety
/// The bytes were taken with that capacity, and nobody uses them any more.
pub(crate) unsafe fn free_not_mapped(start: NonNull<u8>, capacity: usize) -> bool {
    // The freeing thread has the memory from the thread that took it, which had noted the memory before.
    if NOT_MAPPED_COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut not_mapped = NOT_MAPPED.lock();
    let Some(place) = not_mapped.iter().position(|other| *other == start.addr().get()) else { return false };
    not_mapped.swap_remove(place);
    NOT_MAPPED_COUNT.store(not_mapped.len(), Ordering::Relaxed);
    if let Some(layout) = layout(capacity) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(start.as_ptr(), layout) }
    }
    true
}

/// Gives memory back to its source.
///
/// # Safety
/// The memory was taken with that capacity, and nobody uses the memory any more.
pub(crate) unsafe fn free(start: NonNull<u8>, capacity: usize) {
    // SAFETY: as the caller says.
    if unsafe { free_not_mapped(start, capacity) } {
        return;
    }
    let start = start.as_ptr().cast();
    // SAFETY: the memory was mapped with that length. Where the system has no room to note the end of the mapping, the
    // system gets the memory back all the same.
    unsafe {
        if munmap(start, capacity).is_err() {
            let _ = madvise(start, capacity, Advice::LinuxDontNeed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_mapped_goes_back_to_where_it_came_from() {
        let mapped = take(1 << 20).expect("memory");
        let not_mapped = take_not_mapped(1 << 20).expect("memory");
        assert!(NOT_MAPPED.lock().contains(&not_mapped.addr().get()));
        // SAFETY: nobody else has this memory.
        unsafe {
            not_mapped.write_bytes(7, 1 << 20);
            free(mapped, 1 << 20);
            free(not_mapped, 1 << 20);
        }
        assert!(!NOT_MAPPED.lock().contains(&not_mapped.addr().get()));
        // SAFETY: the memory is not accessed, because it is on no list.
        assert!(!unsafe { free_not_mapped(mapped, 1 << 20) });
    }
}

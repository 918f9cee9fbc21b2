//! One heap for memory that many threads put into a cache and other threads take out.
//!
//! The general allocator has an arena for each few threads, and freed memory goes back to its arena. Images that any
//! thread makes and any other evicts therefore leave holes in all arenas, and the process takes up to twice the bytes
//! in use. Here all threads share one heap, dlmalloc's, which takes the best-fitting hole and joins neighbouring holes.
//!
//! The heap grows by [`GROWTH`] at a time and so needs few mappings. When its end is free, the heap gives that memory
//! back. Where the heap cannot grow, the general allocator serves the request.

use std::alloc::Layout;
use std::num::NonZero;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use dlmalloc::Dlmalloc;
use parking_lot::Mutex;

use crate::{PAGE, system};

/// Bytes that the heap takes from the system at a time.
const GROWTH: usize = system::HUGE_PAGE;

/// Bytes that the heap adds to each allocation, on average, for its notes and for rounding up.
const OVERHEAD: usize = 16;

static HEAP: Mutex<Dlmalloc<Mappings>> = Mutex::new({
    let mut heap = Dlmalloc::new_with_allocator(Mappings);
    assert!(heap.set_granularity(GROWTH), "it is a power of two");
    heap
});

/// Allocates from the heap that all threads share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared;

/// Bytes of that heap.
pub type SharedBytes = allocator_api2::boxed::Box<[u8], Shared>;

impl Shared {
    /// A copy of `bytes`.
    #[must_use]
    pub fn copied(bytes: &[u8]) -> SharedBytes {
        // One copy, because the lists of this kind take bytes one by one.
        let mut copy = SharedBytes::new_uninit_slice_in(bytes.len(), Self);
        // SAFETY: the box has this number of bytes, and nobody else has the box; all bytes are written.
        unsafe {
            copy.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            copy.assume_init()
        }
    }

    /// `len` bytes of zero.
    #[must_use]
    pub fn zeroed(len: usize) -> SharedBytes {
        let mut bytes = SharedBytes::new_uninit_slice_in(len, Self);
        // SAFETY: as in `copied`.
        unsafe {
            bytes.as_mut_ptr().cast::<u8>().write_bytes(0, len);
            bytes.assume_init()
        }
    }

    /// Bytes that an allocation of `bytes` takes.
    #[must_use]
    pub const fn taken(bytes: usize) -> usize {
        if bytes == 0 { 0 } else { bytes + OVERHEAD }
    }
}

// SAFETY: memory belongs to its owner until the owner gives it back: to the same heap, of which there is one, or to the
// general allocator for memory from there.
unsafe impl Allocator for Shared {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let nowhere = NonZero::new(layout.align()).map_or(NonNull::dangling(), NonNull::without_provenance);
            return Ok(NonNull::slice_from_raw_parts(nowhere, 0));
        }
        // SAFETY: the layout is not of size zero.
        let start = unsafe { HEAP.lock().malloc(layout.size(), layout.align()) };
        let instead = || if layout.align() <= PAGE { system::take_not_mapped(layout.size()) } else { None };
        let start = NonNull::new(start).or_else(instead).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: the memory came from one of the two, with this layout, and the caller gives the memory up.
        unsafe {
            if layout.size() > 0 && !system::free_not_mapped(start, layout.size()) {
                HEAP.lock().free(start.as_ptr(), layout.size(), layout.align());
            }
        }
    }
}

/// The source of the heap's memory.
struct Mappings;

// SAFETY: mapped memory has no other owner until the heap gives it back, and is zero.
unsafe impl dlmalloc::Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        system::map(size).map_or((std::ptr::null_mut(), 0, 0), |start| (start.as_ptr(), size, 0))
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, start: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the heap owns the memory behind `new`, and gives that memory up.
        unsafe { system::unmap(start.add(new), old - new) }
    }

    fn free(&self, start: *mut u8, size: usize) -> bool {
        // SAFETY: the heap gives this memory up.
        unsafe { system::unmap(start, size) }
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_put_there_others_take_out() {
        let make = |seed: usize| {
            let bytes = move |number: usize| vec![(number + seed).to_le_bytes()[0]; (number * 37 + seed) % 5000];
            let made: Vec<_> = (0..500).map(|number| Shared::copied(&bytes(number))).collect();
            (seed, made)
        };
        let threads: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || make(seed))).collect();
        for thread in threads {
            let (seed, made) = thread.join().expect("it ends");
            for (number, bytes) in made.iter().enumerate() {
                assert_eq!(bytes.len(), (number * 37 + seed) % 5000);
                assert!(bytes.iter().all(|byte| *byte == (number + seed).to_le_bytes()[0]));
            }
        }
        let layout = Layout::new::<[u64; 100]>();
        let elsewhere = system::take_not_mapped(layout.size()).expect("memory");
        // SAFETY: nobody else has this memory.
        unsafe { Shared.deallocate(elsewhere, layout) };
        // SAFETY: the memory is not accessed, because it is on no list any more.
        assert!(!unsafe { system::free_not_mapped(elsewhere, layout.size()) });
        assert!(Shared::zeroed(5000).iter().all(|byte| *byte == 0));
        assert_eq!((Shared::zeroed(0).len(), Shared::copied(b"").len()), (0, 0));
    }
}

//! One heap for what many threads put into a cache and others take out of it.
//!
//! The general allocator has an arena for each few threads, and what is freed goes back to the arena that it came from. So images that any thread makes and any
//! other evicts leave holes in all of them, and the process has up to twice what is in use. Here all threads share one heap: dlmalloc's, which takes the hole that
//! fits best, and joins holes that are neighbours.
//!
//! It grows by [`GROWTH`] at a time, so it needs few mappings, and gives its end back when that is free. Where it cannot grow, the general allocator is asked after all.

use std::alloc::Layout;
use std::num::NonZero;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use dlmalloc::Dlmalloc;
use parking_lot::Mutex;

use crate::{PAGE, system};

/// Bytes that the heap takes from the system at a time.
const GROWTH: usize = system::HUGE_PAGE;

/// What the heap notes beside each allocation, and rounds it up by, on average.
const OVERHEAD: usize = 16;

static HEAP: Mutex<Dlmalloc<Mappings>> = Mutex::new({
    let mut heap = Dlmalloc::new_with_allocator(Mappings);
    assert!(heap.set_granularity(GROWTH), "it is a power of two");
    heap
});

/// Gives memory of the heap that all threads share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared;

/// Bytes of that heap.
pub type SharedBytes = allocator_api2::boxed::Box<[u8], Shared>;

impl Shared {
    /// A copy of `bytes`.
    #[must_use]
    pub fn copied(bytes: &[u8]) -> SharedBytes {
        // At once: the lists of this kind take bytes one by one.
        let mut copy = SharedBytes::new_uninit_slice_in(bytes.len(), Self);
        // SAFETY: it has so many bytes, and nobody else has it; all are written.
        unsafe {
            copy.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            copy.assume_init()
        }
    }

    /// So many bytes of zero.
    #[must_use]
    pub fn zeroed(len: usize) -> SharedBytes {
        let mut bytes = SharedBytes::new_uninit_slice_in(len, Self);
        // SAFETY: as in `copied`.
        unsafe {
            bytes.as_mut_ptr().cast::<u8>().write_bytes(0, len);
            bytes.assume_init()
        }
    }

    /// What an allocation of so many bytes takes.
    #[must_use]
    pub const fn taken(bytes: usize) -> usize {
        if bytes == 0 { 0 } else { bytes + OVERHEAD }
    }
}

// SAFETY: memory belongs to whoever got it until it is given back to the same heap, of which there is one, or to the general allocator where it came from that.
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
        // SAFETY: it came from one of the two, with this layout, and the caller gives it up.
        unsafe {
            if layout.size() > 0 && !system::free_not_mapped(start, layout.size()) {
                HEAP.lock().free(start.as_ptr(), layout.size(), layout.align());
            }
        }
    }
}

/// Where the heap grows.
struct Mappings;

// SAFETY: what is mapped is nobody else's until it is given back, and zero.
unsafe impl dlmalloc::Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        system::map(size).map_or((std::ptr::null_mut(), 0, 0), |start| (start.as_ptr(), size, 0))
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, start: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the heap has what is behind `new`, and gives it up.
        unsafe { system::unmap(start.add(new), old - new) }
    }

    fn free(&self, start: *mut u8, size: usize) -> bool {
        // SAFETY: the heap gives it up.
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
        // SAFETY: nobody else has it.
        unsafe { Shared.deallocate(elsewhere, layout) };
        // SAFETY: it is not looked at, for it is on no list any more.
        assert!(!unsafe { system::free_not_mapped(elsewhere, layout.size()) });
        assert!(Shared::zeroed(5000).iter().all(|byte| *byte == 0));
        assert_eq!((Shared::zeroed(0).len(), Shared::copied(b"").len()), (0, 0));
    }
}

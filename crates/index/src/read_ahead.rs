//! The memory that scans take to read ahead, and batches of lookups for their reads, bounded in sum.
//!
//! 1. Every open scan and every running batch has an equal [`Share`] of the memory.
//! 2. Before a scan reads more, it asks for its limit ([`Share::bytes_max`]), and reports the bytes that it has
//!    ([`Share::hold`]).
//! 3. A batch goes down in groups of as many keys as its share has room for ([`Share::lookups`]). So no scan or batch
//!    waits for another, and many batches at once keep as much in flight together as a few large ones.
//!
//! The sum may be passed for a while, for two reasons:
//!
//! - A scan that began before others gives its surplus back only as the scan goes on.
//! - Any scan needs its current piece and the next one, so two pieces a scan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Least lookups that go down together: a smaller group would be no batch.
const LOOKUPS_MIN: usize = 8;

/// The memory that all scans of a database read ahead, and that all batches of lookups read into.
#[derive(Debug)]
pub struct ReadAhead {
    capacity_bytes: u64,
    held_bytes: AtomicU64,
    scans: AtomicUsize,
}

impl ReadAhead {
    /// At most `capacity_bytes` for all of them together.
    #[must_use]
    pub const fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, held_bytes: AtomicU64::new(0), scans: AtomicUsize::new(0) }
    }

    /// Most bytes of all of them together.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Bytes that scans have read or requested, and not yet passed.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The share of a scan or a batch that begins.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> Share {
        self.scans.fetch_add(1, Ordering::Relaxed);
        Share { of: Arc::clone(self), held_bytes: 0 }
    }
}

/// The share of one scan or batch. Dropping a share gives its memory back.
#[derive(Debug)]
pub struct Share {
    of: Arc<ReadAhead>,
    held_bytes: u64,
}

impl Share {
    /// Most bytes that the scan should have ahead now.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        let scans = self.of.scans.load(Ordering::Relaxed).max(1) as u64;
        usize::try_from(self.of.capacity_bytes / scans).unwrap_or(usize::MAX)
    }

    /// Lookups of a batch that may go down together now, if each takes at most `bytes_each` bytes.
    #[must_use]
    pub fn lookups(&self, bytes_each: usize) -> usize {
        (self.bytes_max() / bytes_each).max(LOOKUPS_MIN)
    }

    /// Notes that the scan now has `bytes` bytes.
    pub fn hold(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        if bytes > self.held_bytes {
            self.of.held_bytes.fetch_add(bytes - self.held_bytes, Ordering::Relaxed);
        } else if bytes < self.held_bytes {
            self.of.held_bytes.fetch_sub(self.held_bytes - bytes, Ordering::Relaxed);
        }
        self.held_bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.hold(0);
        self.of.scans.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_share_what_there_is_and_give_it_back() {
        let all = Arc::new(ReadAhead::new(1000));
        let mut one = all.share();
        assert_eq!(one.bytes_max(), 1000);
        one.hold(900);
        let mut other = all.share();
        assert_eq!((one.bytes_max(), other.bytes_max(), all.held_bytes()), (500, 500, 900));
        one.hold(400);
        other.hold(450);
        assert_eq!(all.held_bytes(), 850);
        drop(one);
        assert_eq!((other.bytes_max(), all.held_bytes()), (1000, 450));
        assert_eq!((other.lookups(10), other.lookups(1000)), (100, LOOKUPS_MIN));
        drop(other);
        assert_eq!(all.held_bytes(), 0);
    }
}

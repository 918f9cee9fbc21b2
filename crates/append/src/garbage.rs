//! Garbage of a trie: which of its segments are to be swept, and when.
//!
//! A trie that is changed all over leaves a little alive in each of its segments, and a segment goes only as a whole.
//!
//! 1. A sweep begins when more than half as many bytes are dead as are alive, counted over segments in use ([`BUSY`]).
//! 2. It takes the segments with the fewest live bytes, and writes these bytes anew, stretch by stretch.
//! 3. It goes on until the dead bytes of the other segments are no more than a part of the live bytes ([`IDLE`]).
//!
//! So a trie seldom takes much more than one and a half times its live bytes, and the bytes that the sweep has written.
//! Where nobody writes, the lower limit holds in any case, because applying all waiting operations makes nearly every
//! leaf anew and leaves some of the old leaves in all segments.

use std::collections::BTreeSet;

use doclog::SegmentId;
use index::{Space, When};

/// How much garbage a trie may have: this part of the live bytes, or so many bytes, because less is not worth a sweep.
#[derive(Clone, Copy)]
struct Limit {
    part: u64,
    least_bytes: u64,
}

/// While others write: half as much as is alive, or two segments full.
const BUSY: Limit = Limit { part: 2, least_bytes: 32 << 20 };
/// When nobody writes, and the goal of a sweep.
const IDLE: Limit = Limit { part: 4, least_bytes: 4 << 20 };

impl Limit {
    /// Bytes of garbage above the limit.
    fn excess(self, space: &Space) -> u64 {
        space.garbage_bytes.saturating_sub(self.least_bytes.max(space.live_bytes / self.part))
    }
}

/// The bytes of garbage that a sweep has to take away; none where there is not too much.
pub(crate) fn excess(space: &Space, when: When) -> Option<u64> {
    let limit = match when {
        When::Busy => BUSY,
        When::Idle => IDLE,
    };
    (limit.excess(space) > 0).then(|| IDLE.excess(space))
}

/// Segments that a trie has chosen to be swept.
pub(crate) type Segments = BTreeSet<SegmentId>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_begins_late_while_others_write_and_goes_on_to_the_lower_limit() {
        let space = |live: u64, garbage: u64| Space {
            live_bytes: live << 20,
            garbage_bytes: garbage << 20,
            ..Space::default()
        };
        let megabytes = |live, garbage, when| excess(&space(live, garbage), when).map(|bytes| bytes >> 20);
        assert_eq!(megabytes(10, 4, When::Idle), None);
        assert_eq!(megabytes(10, 5, When::Idle), Some(1));
        assert_eq!(megabytes(10, 32, When::Busy), None);
        assert_eq!(megabytes(10, 33, When::Busy), Some(29));
        assert_eq!(megabytes(400, 200, When::Busy), None);
        assert_eq!(megabytes(400, 201, When::Busy), Some(101));
        assert_eq!(megabytes(400, 101, When::Idle), Some(1));
    }
}

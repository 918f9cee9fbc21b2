//! How long new documents of a table wait, as cleaning is behind ([`crate::upkeep::clean`]).

use std::sync::atomic::Ordering;

use doclog::Usage;

use crate::{engine::Engine, tables::catalog::TableCore};

/// Cleaning is behind.
pub(crate) const URGENT: u64 = 17;
/// It is not to come to this.
const BOUND: u64 = 19;
/// What a MiB of new documents is delayed by half way between the two, in nanoseconds, and at most.
const DELAY_NS_PER_MIB: u64 = 10_000_000;
const DELAY_NS_PER_MIB_MAX: u64 = 20 * DELAY_NS_PER_MIB;
/// Beside that, so many segments: those that are appended to, and those that wait for a checkpoint.
pub(crate) const SLACK_SEGMENTS: u64 = 4;
/// As long as readers of older states hold more dead bytes than this part of what lives, nothing is emptied.
const HELD_PART: u64 = 4;

/// How a table's segments are filled.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// Bytes of those in which something lives.
    pub(crate) bytes: u64,
    pub(crate) live_bytes: u64,
    /// Bytes of those in which nothing does: they wait for a checkpoint.
    pub(crate) dead_bytes: u64,
}

impl Filling {
    pub(crate) fn of(usage: &[Usage]) -> Self {
        let mut filling = Self::default();
        for segment in usage {
            match segment.live_bytes {
                0 if segment.is_settled => filling.dead_bytes += segment.bytes,
                live => {
                    filling.bytes += segment.bytes;
                    filling.live_bytes += live;
                }
            }
        }
        filling
    }

    /// Whether it is more than so many tenths of what lives.
    pub(crate) fn is_above(&self, tenths: u64, live_bytes: u64, segment_bytes: u64) -> bool {
        let limit = (live_bytes / 10).saturating_mul(tenths).saturating_add(SLACK_SEGMENTS * segment_bytes);
        self.bytes > limit
    }
}

/// Decides how long new documents of a table are to wait: not at all, unless cleaning is behind. By who writes many of them, and by the worker.
pub(crate) fn pace(engine: &Engine, table: &TableCore) {
    let mut usage = table.documents.usage();
    // Nobody is to wait for what cannot be cleaned.
    usage.retain(|segment| !engine.cleaning.is_left(table.id, segment));
    let filling = Filling::of(&usage);
    let queued = table.queued_documents.load(Ordering::Relaxed);
    // Nobody can say more than that of what the queues have replaced.
    let live = filling.live_bytes.saturating_sub(queued).max(filling.live_bytes / 2);
    let space = filling.bytes.saturating_sub(SLACK_SEGMENTS * engine.options.segment_bytes);
    let waits = !engine.options.background || engine.cleaning.is_waiting() || is_held(engine, table);
    let delay = if waits { 0 } else { delay_ns_per_mib(space, live) };
    table.document_pace.set(delay);
}

/// Nothing below [`URGENT`], and at [`BOUND`] the longest.
fn delay_ns_per_mib(space: u64, live_bytes: u64) -> u64 {
    let (from, to) = (live_bytes / 10 * URGENT, live_bytes / 10 * BOUND);
    match space.checked_sub(from) {
        None | Some(0) => 0,
        Some(_) if space >= to => DELAY_NS_PER_MIB_MAX,
        Some(over) => {
            let delay = u128::from(DELAY_NS_PER_MIB) * u128::from(over) / u128::from(to - space);
            u64::try_from(delay).unwrap_or(u64::MAX).min(DELAY_NS_PER_MIB_MAX)
        }
    }
}

/// Whether readers of older states of a table keep so much that is dead that emptying more would only add to it. What is kept of the log is no reason: that is
/// bounded by itself ([`crate::engine::retention`]), and goes on.
pub(crate) fn is_held(engine: &Engine, table: &TableCore) -> bool {
    if table.is_read_as_it_is() {
        return false;
    }
    let live = table.documents.stats().live_bytes;
    released_dead(engine, table) > live / HELD_PART + SLACK_SEGMENTS * engine.options.segment_bytes
}

/// Bytes of dead segments of documents that what is kept of the log does not need.
pub(crate) fn released_dead(engine: &Engine, table: &TableCore) -> u64 {
    let kept = engine.retention.kept();
    let released = table.documents.dead().into_iter().filter(|(last, _)| *last < kept.seq.0);
    released.map(|(_, bytes)| bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_documents_wait_the_longer_the_further_cleaning_is_behind() {
        let (from, to) = (100 * URGENT, 100 * BOUND);
        let middle = u64::midpoint(from, to);
        let delays = [0, from - 100, from, middle - 1, middle, to - 1, to, u64::MAX];
        let delays = delays.map(|space| delay_ns_per_mib(space, 1000));
        assert_eq!(delays[..3], [0; 3]);
        assert!(delays.is_sorted());
        assert_eq!(delays[4], DELAY_NS_PER_MIB, "half way");
        assert_eq!(delays[5..], [DELAY_NS_PER_MIB_MAX; 3]);
    }
}

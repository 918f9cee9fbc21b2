//! The delay of new documents of a table while cleaning is behind ([`crate::upkeep::clean`]).

use std::sync::atomic::Ordering;

use doclog::Usage;

use crate::{engine::Engine, tables::catalog::TableCore};

/// Tenths of the live bytes, for the space of a table's documents: above this, cleaning is behind.
pub(crate) const URGENT: u64 = 17;
/// In the same unit: the space is to stay below this.
const BOUND: u64 = 19;
/// The delay of a MiB of new documents half way between the two, in nanoseconds, and the longest delay.
const DELAY_NS_PER_MIB: u64 = 10_000_000;
const DELAY_NS_PER_MIB_MAX: u64 = 20 * DELAY_NS_PER_MIB;
/// Segments allowed beside that: those being appended to, and those that wait for a checkpoint.
pub(crate) const SLACK_SEGMENTS: u64 = 4;
/// Nothing is emptied while readers of older states hold more dead bytes than the live bytes divided by this.
const HELD_PART: u64 = 4;

/// The fill of a table's document segments.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// Bytes of segments with live bytes, or that are not settled.
    pub(crate) bytes: u64,
    pub(crate) live_bytes: u64,
    /// Bytes of settled segments without live bytes, which wait for a checkpoint.
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
                    filling.live_bytes = filling.live_bytes.saturating_add(live);
                }
            }
        }
        filling
    }

    /// Whether the bytes exceed so many tenths of the live bytes, and the slack.
    pub(crate) fn is_above(&self, tenths: u64, live_bytes: u64, segment_bytes: u64) -> bool {
        let limit = (live_bytes / 10).saturating_mul(tenths).saturating_add(SLACK_SEGMENTS * segment_bytes);
        self.bytes > limit
    }
}

/// Sets the delay of new documents of a table: none, unless cleaning is behind. Called by writers of many documents,
/// and by the worker.
pub(crate) fn pace(engine: &Engine, table: &TableCore) {
    let mut usage = table.documents.usage();
    // No writer waits for segments that cannot be cleaned.
    usage.retain(|segment| !engine.cleaning.is_left(table.id, segment));
    let filling = Filling::of(&usage);
    let queued = table.queued_documents.load(Ordering::Relaxed);
    // The queues tell no more than this about the documents that they have replaced.
    let live = filling.live_bytes.saturating_sub(queued).max(filling.live_bytes / 2);
    let space = filling.bytes.saturating_sub(SLACK_SEGMENTS * engine.options.segment_bytes);
    let waits = !engine.options.background || engine.cleaning.is_waiting() || is_held(engine, table);
    let delay = if waits { 0 } else { delay_ns_per_mib(space, live) };
    table.document_pace.set(delay);
}

/// Zero up to [`URGENT`], and the longest delay from [`BOUND`] on.
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

/// Whether readers of older states hold so many dead bytes that emptying more segments would only add to them. The kept
/// part of the log is no reason: its bytes are bounded by themselves ([`crate::engine::retention`]), and it moves on.
pub(crate) fn is_held(engine: &Engine, table: &TableCore) -> bool {
    if table.is_read_as_it_is() {
        return false;
    }
    let live = table.documents.stats().live_bytes;
    released_dead(engine, table) > live / HELD_PART + SLACK_SEGMENTS * engine.options.segment_bytes
}

/// Bytes of dead document segments that the kept log does not need.
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

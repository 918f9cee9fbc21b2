//! Segments with few live bytes, to be emptied.
//!
//! A segment is released as a whole. For each live node of the segment, one leaf below the node (or the node itself, if
//! it is a leaf) is rewritten. This takes all live nodes out of the segment, because each node on the way to a
//! rewritten leaf is written elsewhere.

use std::collections::BTreeSet;

use doclog::{SegmentId, Usage};
use index::is_below;

use crate::format::Link;
use crate::ordered::Span;

/// A segment that is fuller than this, in tenths, is left alone.
const FULL: u64 = 8;

/// Segments worth emptying, those with the fewest live bytes first.
fn candidates(mut usage: Vec<Usage>) -> Vec<Usage> {
    usage.retain(|segment| {
        segment.is_settled && segment.live_bytes > 0 && segment.live_bytes / FULL * 10 <= segment.bytes
    });
    usage.sort_by_key(|segment| segment.live_bytes);
    usage
}

/// The segments with the fewest live bytes, up to `bytes` live bytes together, or one segment.
pub(crate) fn chosen(usage: Vec<Usage>, bytes: u64) -> BTreeSet<SegmentId> {
    let usage = candidates(usage);
    let (mut live, mut chosen) = (0, BTreeSet::new());
    for segment in usage {
        live += segment.live_bytes;
        if live > bytes && !chosen.is_empty() {
            break;
        }
        chosen.insert(segment.segment);
    }
    chosen
}

/// The segments with the fewest live bytes, until `dead_bytes` are dead in them together.
pub(crate) fn sparse(usage: Vec<Usage>, dead_bytes: u64) -> BTreeSet<SegmentId> {
    let mut left = dead_bytes;
    let more = |segment: &Usage| {
        let is_wanted = left > 0;
        left = left.saturating_sub(segment.bytes - segment.live_bytes);
        is_wanted
    };
    candidates(usage).into_iter().take_while(more).map(|segment| segment.segment).collect()
}

/// Nodes of some segments under which a walk has met no key yet.
pub(crate) struct Waiting<'a> {
    segments: &'a BTreeSet<SegmentId>,
    nodes: Vec<Span>,
}

impl<'a> Waiting<'a> {
    pub(crate) const fn new(segments: &'a BTreeSet<SegmentId>) -> Self {
        Self { segments, nodes: Vec::new() }
    }

    /// The walk enters a node.
    pub(crate) fn enter(&mut self, span: &Span, link: &Link) {
        if self.segments.contains(&link.pointer.segment) {
            self.nodes.push(span.clone());
        }
    }

    /// The walk has met keys from `low` on. Whether nodes have waited for these keys; those nodes wait no more.
    pub(crate) fn meet(&mut self, low: &[u8]) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|span| low < span.low.as_slice() || !is_below(low, span.high.as_deref()));
        self.nodes.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_with_least_in_them_go_first_and_full_ones_stay() {
        let segment =
            |number, bytes, live_bytes, is_settled| Usage { segment: SegmentId(number), bytes, live_bytes, is_settled };
        let usage = [
            segment(1, 1000, 900, true),
            segment(2, 1000, 300, true),
            segment(3, 1000, 0, true),
            segment(4, 1000, 100, true),
            segment(5, 1000, 10, false),
            segment(6, 1000, 200, true),
        ];
        let chosen = |bytes| chosen(usage.to_vec(), bytes).into_iter().map(|segment| segment.0).collect::<Vec<_>>();
        assert_eq!(chosen(1), [4], "one at least");
        assert_eq!(chosen(300), [4, 6]);
        assert_eq!(chosen(u64::MAX), [2, 4, 6]);
        let sparse = |bytes| sparse(usage.to_vec(), bytes).into_iter().map(|segment| segment.0).collect::<Vec<_>>();
        assert_eq!(sparse(0), [0; 0]);
        assert_eq!(sparse(900), [4]);
        assert_eq!(sparse(901), [4, 6]);
        assert_eq!(sparse(u64::MAX), [2, 4, 6]);
    }
}

//! Segments in which little lives, to be emptied.
//!
//! A segment goes as a whole. To make the leaves anew that have a node on the way to them in a segment takes all that lives out of it: each node on the way is
//! written elsewhere.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::{DocPointer, SegmentId, Usage};
use index::{Error, Result, is_below};

use crate::format::Link;
use crate::format::node::Node;
use crate::ordered::{Groups, Span, Walk, walk};
use crate::version::Version;

/// A segment that is fuller than this, in tenths, is left alone.
const FULL: u64 = 8;

/// The segments in which least lives, up to so many bytes of it together, or one.
pub(crate) fn chosen(mut usage: Vec<Usage>, bytes: u64) -> BTreeSet<SegmentId> {
    usage.retain(|segment| {
        segment.is_settled && segment.live_bytes > 0 && segment.live_bytes / FULL * 10 <= segment.bytes
    });
    usage.sort_by_key(|segment| segment.live_bytes);
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

/// A key under each node of the segments.
pub(crate) fn keys(version: &Version, segments: &BTreeSet<SegmentId>) -> Result<Vec<Vec<u8>>> {
    let mut finder = Finder { segments, waiting: Vec::new(), found: Vec::new(), failed: None };
    walk(version, &mut finder);
    finder.failed.map_or(Ok(finder.found), Err)
}

struct Finder<'a> {
    segments: &'a BTreeSet<SegmentId>,
    /// Of nodes under which no key was met yet.
    waiting: Vec<Span>,
    found: Vec<Vec<u8>>,
    failed: Option<Error>,
}

impl Walk for Finder<'_> {
    fn enters(&mut self, span: &Span, link: &Link) -> bool {
        if self.segments.contains(&link.pointer.segment) {
            self.waiting.push(span.clone());
        }
        // What is below a node may be in any segment.
        true
    }

    fn fetch(&mut self, version: &Version, pointers: &[DocPointer]) -> Vec<Result<Arc<Node>>> {
        version.nodes_or_error(pointers)
    }

    fn leaf(&mut self, _leaf: &Node, _span: &Span) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn groups(&mut self, groups: &Groups) -> ControlFlow<()> {
        let low = groups.span.low.as_slice();
        let before = self.waiting.len();
        self.waiting.retain(|span| low < span.low.as_slice() || !is_below(low, span.high.as_deref()));
        if self.waiting.len() < before {
            let _ = groups.each_key(|key, _| {
                self.found.push(key);
                ControlFlow::Break(())
            });
        }
        ControlFlow::Continue(())
    }

    fn failed(&mut self, _span: &Span, why: Error) -> ControlFlow<()> {
        self.failed = Some(why);
        ControlFlow::Break(())
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
    }
}

//! The segments that hold the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file::SegmentFile;

/// The segments that hold the log, by number: the file of each, and the seq that the first sequenced record that begins
/// there has, or would have.
#[derive(Debug, Default)]
pub(crate) struct Live(pub(super) BTreeMap<u64, (Arc<SegmentFile>, u64)>);

impl Live {
    pub(crate) fn insert(&mut self, number: u64, segment: Arc<SegmentFile>, first_seq: u64) {
        let before = self.0.insert(number, (segment, first_seq));
        assert!(before.is_none(), "segment {number} is live already");
    }

    /// The file of a segment.
    pub(crate) fn file(&self, number: u64) -> Option<&Arc<SegmentFile>> {
        self.0.get(&number).map(|(segment, _)| segment)
    }

    /// Number and first seq of each segment, oldest first.
    pub(crate) fn starts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(number, (_, first_seq))| (*number, *first_seq))
    }

    /// The segment that holds the record of `seq`, or will; none where that segment was trimmed. Of several segments
    /// with the same first seq, only the last one can have the record with that seq.
    pub(crate) fn find(&self, seq: u64) -> Option<(u64, u64)> {
        self.0.iter().rev().map(|(number, (_, first_seq))| (*number, *first_seq)).find(|(_, first)| *first <= seq)
    }
}

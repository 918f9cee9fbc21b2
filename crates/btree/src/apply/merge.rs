//! Which versions of a key stay when a leaf is rewritten.
//!
//! 1. Entries are sorted by key, seq and age of their run. Of several with the same key and seq, the last stays: they are
//!    one version, written again.
//! 2. The newest version of a key stays, and each older one that a snapshot sees ([`Horizon::sees`]).
//! 3. A tombstone below which nothing stays has nothing to hide, whoever looks, and goes.
//! 4. The documents of what goes are reported, each once; a version written again with the same document keeps it.

use doclog::DocPointer;
use index::{Horizon, Operation, Payload, Update};

use crate::node::head;

fn document(update: &Update<'_>) -> Option<DocPointer> {
    match update.operation {
        Operation::Put(Payload::Document(document)) => Some(document),
        _ => None,
    }
}

/// Sorts entries, which are in the order of their runs, by key and seq; equal ones stay in that order.
pub(super) fn sort<'a>(entries: &[Update<'a>]) -> Vec<Update<'a>> {
    let mut order: Vec<_> = entries.iter().enumerate().map(|(index, entry)| (head(entry.key), index)).collect();
    order.sort_by(|one, other| {
        one.0.cmp(&other.0).then_with(|| {
            let (one, other) = (&entries[one.1], &entries[other.1]);
            (one.key, one.seq).cmp(&(other.key, other.seq))
        })
    });
    order.into_iter().map(|(_, index)| entries[index]).collect()
}

/// Removes what need not stay from sorted entries; documents of what goes are added to `dropped`.
pub(super) fn prune(entries: &mut Vec<Update<'_>>, horizon: &Horizon, dropped: &mut Vec<DocPointer>) {
    let mut kept = 0;
    let mut start = 0;
    while start < entries.len() {
        let key = entries[start].key;
        let mut end = start + 1;
        while end < entries.len() && entries[end].key == key {
            end += 1;
        }
        let versions = &mut entries[start..end];
        let distinct = collapse(versions, dropped);
        let (first, count) = seen(&mut versions[..distinct], horizon, dropped);
        entries.copy_within(start + first..start + first + count, kept);
        kept += count;
        start = end;
    }
    entries.truncate(kept);
}

/// Moves the last of each group of equal seqs to the front; gives how many there are.
fn collapse(versions: &mut [Update<'_>], dropped: &mut Vec<DocPointer>) -> usize {
    let mut distinct = 0;
    let mut start = 0;
    while start < versions.len() {
        let mut end = start + 1;
        while end < versions.len() && versions[end].seq == versions[start].seq {
            end += 1;
        }
        let last = versions[end - 1];
        let stays = document(&last);
        for index in start..end - 1 {
            let gone = document(&versions[index]);
            let again = versions[start..index].iter().any(|older| document(older) == gone);
            dropped.extend(gone.filter(|_| gone != stays && !again));
        }
        versions[distinct] = last;
        distinct += 1;
        start = end;
    }
    distinct
}

/// Moves the versions that stay to the back of `versions`, which rise by seq; gives where they begin and how many they are.
fn seen(versions: &mut [Update<'_>], horizon: &Horizon, dropped: &mut Vec<DocPointer>) -> (usize, usize) {
    let mut first = versions.len();
    let mut newer = None;
    for index in (0..versions.len()).rev() {
        let version = versions[index];
        if newer.is_none_or(|newer| horizon.sees(version.seq, newer)) {
            first -= 1;
            versions[first] = version;
        } else {
            dropped.extend(document(&version));
        }
        newer = Some(version.seq);
    }
    while first < versions.len() && versions[first].operation == Operation::Delete {
        first += 1;
    }
    (first, versions.len() - first)
}

#[cfg(test)]
mod tests {
    use doclog::SegmentId;
    use index::Seq;

    use super::*;

    fn pointer(offset: u64) -> DocPointer {
        DocPointer { segment: SegmentId(1), offset, length: 1, crc: 1 }
    }

    fn at<'a>(key: &'a [u8], seq: u64, operation: Operation<'a>) -> Update<'a> {
        Update { key, seq: Seq(seq), operation }
    }

    fn doc(offset: u64) -> Operation<'static> {
        Operation::Put(Payload::Document(pointer(offset)))
    }

    const PUT: Operation<'static> = Operation::Put(Payload::Inline(b""));

    fn pruned<'a>(entries: &[Update<'a>], snapshots: &[u64]) -> (Vec<Update<'a>>, Vec<u64>) {
        let horizon = Horizon { snapshots: snapshots.iter().copied().map(Seq).collect() };
        let (mut entries, mut dropped) = (sort(entries), Vec::new());
        prune(&mut entries, &horizon, &mut dropped);
        (entries, dropped.iter().map(|document| document.offset).collect())
    }

    #[test]
    fn the_newest_and_what_snapshots_see_stay() {
        let entries = [at(b"a", 1, doc(1)), at(b"a", 3, doc(3)), at(b"a", 5, doc(5)), at(b"b", 2, PUT)];
        assert_eq!(pruned(&entries, &[]), (vec![entries[2], entries[3]], vec![3, 1]));
        assert_eq!(pruned(&entries, &[4]), (vec![entries[1], entries[2], entries[3]], vec![1]));
        assert_eq!(pruned(&entries, &[1, 3]), (entries.to_vec(), vec![]));
    }

    #[test]
    fn a_tombstone_stays_only_above_something() {
        let entries = [at(b"a", 1, doc(1)), at(b"a", 3, Operation::Delete)];
        assert_eq!(pruned(&entries, &[]), (vec![], vec![1]));
        assert_eq!(pruned(&entries, &[3]), (vec![], vec![1]));
        assert_eq!(pruned(&entries, &[2]), (entries.to_vec(), vec![]));
        let again = [at(b"a", 1, Operation::Delete), at(b"a", 3, PUT), at(b"a", 5, Operation::Delete)];
        assert_eq!(pruned(&again, &[2]).0, vec![]);
        assert_eq!(pruned(&again, &[3]).0, vec![again[1], again[2]]);
    }

    #[test]
    fn of_equal_versions_the_last_stays() {
        let same = [at(b"a", 1, doc(1)), at(b"a", 1, doc(1))];
        assert_eq!(pruned(&same, &[]), (vec![same[0]], vec![]));
        let moved = [at(b"a", 1, doc(1)), at(b"a", 1, doc(1)), at(b"a", 1, doc(2))];
        assert_eq!(pruned(&moved, &[]), (vec![moved[2]], vec![1]));
        let back = [at(b"a", 1, doc(1)), at(b"a", 1, doc(2)), at(b"a", 1, doc(1))];
        assert_eq!(pruned(&back, &[]), (vec![back[2]], vec![2]));
    }
}

//! Decides which versions of a key stay when a part of a structure is rewritten.
//!
//! 1. Entries are sorted by key, seq and order of arrival. Of several entries with the same key and seq the last stays,
//!    because they are one version, written again.
//! 2. A version that arrived after a newer one of its key is **stale**. A leaf gets the versions of a key in rising
//!    order, so this version was there before and was removed: a batch is being applied again after a crash. The stale
//!    version goes without a report, because its document was reported when the version was removed.
//! 3. The newest version of a key stays, and each older version that a snapshot sees ([`Horizon::sees`]). There are two
//!    exceptions, both only for versions whose commits cannot be applied again:
//!
//!    - A version hidden by a range tombstone goes ([`Horizon::is_hidden`]).
//!    - A version whose value has expired for every reader that sees the version ([`Horizon::is_over`]) becomes a
//!      tombstone. If its commit may be applied again, the version stays unchanged, because the last of the two would
//!      be unknown.
//! 4. A tombstone that is the oldest remaining version of its key hides nothing from any reader, and goes. There are
//!    three exceptions:
//!
//!    - Older versions of its key may be elsewhere ([`Rules::is_all`]).
//!    - Its commit may be applied again. The tombstone stays, so that a version that it hid is stale when that version
//!      comes again.
//!    - A snapshot is older than the tombstone. The tombstone stays, because the snapshot's holder learns from it that
//!      the key was changed.
//! 5. The documents of removed versions are reported, each once. A version written again with the same document keeps
//!    that document.
//!
//! So each document is reported once, however often parts of a batch are applied. Rule 2 needs the newest version of
//! each key that may come again, and rules 3 and 4 keep that version.

use doclog::DocPointer;

use crate::{Horizon, Operation, Seq, Update, head};

/// The conditions under which a version has to stay.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The moments of snapshots and readers.
    pub horizon: &'a Horizon,
    /// Commits above this seq may be applied again.
    pub through: Seq,
    /// Whether the entries are all that the structure has of their keys. If not, older versions are elsewhere, and a
    /// tombstone stays because of what it may hide there.
    pub is_all: bool,
}

impl Rules<'_> {
    /// Whether the value of a version has expired for every reader, and that version does not come again. `newer` is
    /// the seq of the version that shadows this one.
    fn is_over(&self, version: &Update<'_>, newer: Option<Seq>) -> bool {
        let is_over = |expiry| self.horizon.is_over(expiry, version.seq, newer);
        version.seq <= self.through && version.operation.expiry().is_some_and(is_over)
    }

    /// Whether a version stays, perhaps as a tombstone. `newer` is the seq of the version that shadows this one.
    fn stays(&self, version: &mut Update<'_>, newer: Option<Seq>, dropped: &mut Vec<DocPointer>) -> bool {
        let is_hidden = version.seq <= self.through && self.horizon.is_hidden(version.key, version.seq);
        let stays = !is_hidden && newer.is_none_or(|newer| self.horizon.sees(version.seq, newer));
        let is_over = stays && self.is_over(version, newer);
        if !stays || is_over {
            dropped.extend(document(version));
        }
        if is_over {
            version.operation = Operation::Delete;
        }
        stays
    }

    /// Whether the oldest version of a key is a tombstone that goes.
    fn hides_nothing(&self, oldest: &Update<'_>) -> bool {
        let is_news = self.horizon.oldest().is_some_and(|snapshot| snapshot < oldest.seq);
        self.is_all && oldest.operation == Operation::Delete && oldest.seq <= self.through && !is_news
    }
}

/// An entry, and its position in the order of arrival.
type Arrived<'a> = (usize, Update<'a>);

/// Whether an update refers to a document.
#[must_use]
pub const fn is_document(update: &Update<'_>) -> bool {
    update.operation.document().is_some()
}

const fn document(update: &Update<'_>) -> Option<DocPointer> {
    update.operation.document()
}

/// Sorts entries, which are in order of arrival, and returns those that stay. Documents of the others are added to
/// `dropped`.
#[must_use]
pub fn merge<'a>(mut entries: Vec<Update<'a>>, rules: Rules<'_>, dropped: &mut Vec<DocPointer>) -> Vec<Update<'a>> {
    if entries.is_sorted_by(|one, next| one.key < next.key) {
        // One version of each key, as when a table is filled in order: nothing to sort.
        entries.retain_mut(|entry| rules.stays(entry, None, dropped) && !rules.hides_nothing(entry));
        return entries;
    }
    let sorted = sort(&entries);
    entries.clear();
    for versions in sorted.chunk_by(|(_, one), (_, other)| one.key == other.key) {
        let start = entries.len();
        stay(versions, rules, &mut entries, dropped);
        entries[start..].reverse();
    }
    entries
}

fn sort<'a>(entries: &[Update<'a>]) -> Vec<Arrived<'a>> {
    let mut order: Vec<_> = entries.iter().enumerate().map(|(index, entry)| (head(entry.key), index)).collect();
    order.sort_by(|one, other| {
        one.0.cmp(&other.0).then_with(|| {
            let (one, other) = (&entries[one.1], &entries[other.1]);
            (one.key, one.seq).cmp(&(other.key, other.seq))
        })
    });
    order.into_iter().map(|(_, index)| (index, entries[index])).collect()
}

/// Adds those versions of a key that stay to `out`, the newest first.
fn stay<'a>(versions: &[Arrived<'a>], rules: Rules<'_>, out: &mut Vec<Update<'a>>, dropped: &mut Vec<DocPointer>) {
    let start = out.len();
    let (mut newer, mut newer_came) = (None, usize::MAX);
    for same in versions.chunk_by(|(_, one), (_, other)| one.seq == other.seq).rev() {
        let came = same[0].0;
        if came > newer_came {
            continue;
        }
        newer_came = came;
        let mut version = last(same, dropped);
        if rules.stays(&mut version, newer, dropped) {
            out.push(version);
        }
        newer = Some(version.seq);
    }
    while out.len() > start && out.pop_if(|oldest| rules.hides_nothing(oldest)).is_some() {}
}

/// The last of equal versions.
fn last<'a>(same: &[Arrived<'a>], dropped: &mut Vec<DocPointer>) -> Update<'a> {
    let (_, last) = same[same.len() - 1];
    let stays = document(&last);
    for (index, (_, version)) in same.iter().enumerate() {
        let gone = document(version);
        let again = same[..index].iter().any(|(_, older)| document(older) == gone);
        dropped.extend(gone.filter(|_| gone != stays && !again));
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expiry, Moment, Payload, Time};
    use doclog::{DocLength, SegmentId};

    fn pointer(offset: u64) -> DocPointer {
        DocPointer { segment: SegmentId(1), offset, length: DocLength::plain(1), crc: 1 }
    }

    fn at<'a>(key: &'a [u8], seq: u64, operation: Operation<'a>) -> Update<'a> {
        Update { key, seq: Seq(seq), operation }
    }

    fn doc(offset: u64) -> Operation<'static> {
        Operation::Put(Payload::Document(pointer(offset)), None)
    }

    const PUT: Operation<'static> = Operation::Put(Payload::Inline(b""), None);

    fn pruned<'a>(entries: &[Update<'a>], snapshots: &[u64]) -> (Vec<Update<'a>>, Vec<u64>) {
        merged(entries, snapshots, u64::MAX)
    }

    fn merged<'a>(entries: &[Update<'a>], snapshots: &[u64], through: u64) -> (Vec<Update<'a>>, Vec<u64>) {
        let horizon: Horizon = snapshots.iter().copied().map(Seq).collect();
        kept(entries, &horizon, through)
    }

    fn kept<'a>(entries: &[Update<'a>], horizon: &Horizon, through: u64) -> (Vec<Update<'a>>, Vec<u64>) {
        let mut dropped = Vec::new();
        let rules = Rules { horizon, through: Seq(through), is_all: true };
        let entries = merge(entries.to_vec(), rules, &mut dropped);
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
        // A reader at seq 2 has to learn that the key was changed.
        assert_eq!(pruned(&again, &[2]).0, vec![again[2]]);
        assert_eq!(pruned(&again, &[5]).0, vec![]);
        assert_eq!(pruned(&again, &[3]).0, vec![again[1], again[2]]);
    }

    fn until(update: Update<'_>, expiry: u64) -> Update<'_> {
        match update.operation {
            Operation::Put(payload, _) => Update { operation: Operation::Put(payload, Expiry::at(expiry)), ..update },
            Operation::Delete => update,
        }
    }

    #[test]
    fn what_has_expired_for_all_who_see_it_is_a_tombstone() {
        let horizon = |snapshots: &[(u64, u64)], now| {
            let moment = |(seq, now): &(u64, u64)| Moment { seq: Seq(*seq), now: Time(*now) };
            Horizon::new(snapshots.iter().map(moment).collect(), Time(now))
        };
        let entries = [at(b"a", 1, doc(1)), until(at(b"a", 3, doc(3)), 100)];
        let gone = at(b"a", 3, Operation::Delete);
        // Not expired yet. Later the tombstone goes, and the version that it hid.
        assert_eq!(kept(&entries, &horizon(&[], 99), u64::MAX), (vec![entries[1]], vec![1]));
        assert_eq!(kept(&entries, &horizon(&[], 100), u64::MAX), (vec![], vec![3, 1]));
        // A snapshot at time 99 sees the value, a snapshot at time 100 does not.
        assert_eq!(kept(&entries, &horizon(&[(3, 99)], 200), u64::MAX), (vec![entries[1]], vec![1]));
        assert_eq!(kept(&entries, &horizon(&[(3, 100)], 200), u64::MAX), (vec![], vec![3, 1]));
        // The tombstone still hides the version that an older snapshot sees, and still shows that the key was changed.
        assert_eq!(kept(&entries, &horizon(&[(2, 50)], 200), u64::MAX), (vec![entries[0], gone], vec![3]));
        assert_eq!(kept(&entries[1..], &horizon(&[(2, 50)], 200), u64::MAX), (vec![gone], vec![3]));
        // A later version hides the value, but not from a snapshot between them.
        let later = [entries[0], entries[1], at(b"a", 5, PUT)];
        assert_eq!(kept(&later, &horizon(&[(4, 99)], 200), u64::MAX), (vec![later[1], later[2]], vec![1]));
        assert_eq!(kept(&later, &horizon(&[(4, 100)], 200), u64::MAX), (vec![later[2]], vec![3, 1]));
        // The version may come again unchanged.
        assert_eq!(kept(&entries, &horizon(&[], 200), 2), (vec![entries[1]], vec![1]));
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

    #[test]
    fn what_comes_after_something_newer_went_before() {
        let (old, new) = (at(b"a", 3, doc(3)), at(b"a", 5, doc(5)));
        assert_eq!(pruned(&[new, old, new], &[]), (vec![new], vec![]));
        assert_eq!(pruned(&[new, old], &[4]), (vec![new], vec![]));
        // A version that is there and comes again is not stale.
        assert_eq!(pruned(&[old, new, old, new], &[4]), (vec![old, new], vec![]));
        assert_eq!(pruned(&[old, new, old, new], &[]), (vec![new], vec![3]));
        // A version of another key.
        let other = at(b"b", 1, doc(1));
        assert_eq!(pruned(&[new, other], &[]), (vec![new, other], vec![]));
    }

    #[test]
    fn a_tombstone_stays_while_something_older_is_elsewhere() {
        let entries = [at(b"a", 3, doc(3)), at(b"a", 5, Operation::Delete), at(b"b", 4, Operation::Delete)];
        let (horizon, mut dropped) = (Horizon::default(), Vec::new());
        let rules = Rules { horizon: &horizon, through: Seq::MAX, is_all: false };
        assert_eq!(merge(entries.to_vec(), rules, &mut dropped), entries[1..]);
        assert_eq!(dropped, [pointer(3)]);
        assert_eq!(merge(entries[1..].to_vec(), Rules { is_all: true, ..rules }, &mut dropped), []);
    }

    #[test]
    fn a_tombstone_stays_while_what_it_hid_may_come_again() {
        let (old, gone) = (at(b"a", 3, doc(3)), at(b"a", 5, Operation::Delete));
        assert_eq!(merged(&[old, gone], &[], 4), (vec![gone], vec![3]));
        assert_eq!(merged(&[gone, old, gone], &[], 4), (vec![gone], vec![]));
        assert_eq!(merged(&[gone, old, gone], &[], 5), (vec![], vec![]));
        let older = at(b"a", 2, Operation::Delete);
        assert_eq!(merged(&[older, gone], &[2], 4).0, vec![gone]);
    }
}

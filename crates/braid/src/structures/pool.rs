//! The buffer pool: one sum of memory, divided among the caches of the kinds of structures and that of documents.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use cache::Part;
use index::{Kind, Lookups};
use parking_lot::Mutex;

use super::{documents::Documents, footprint::Footprint, kinds::Kinds};
use crate::words::structure::Structure;

/// The least share of the pool, as its divisor. Documents get at least this part of the pool if they can use that much,
/// and the structures together get at least this part. Each kind of structure in use gets at least this part of the
/// structures' share.
const PARTS: u64 = 8;

/// The buffer pool.
pub(super) struct Pool {
    kinds: Arc<Kinds>,
    documents: Arc<Documents>,
    bytes: u64,
    /// Bytes of these that each taker uses.
    taken: [AtomicU64; 2],
    lent: Mutex<Lent>,
    dividing: Mutex<()>,
}

/// Who may use a part of the pool for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taker {
    /// A commit longer than a segment of the log.
    Commit,
    /// Open transactions.
    Transactions,
}

/// Memory lent to the pool.
#[derive(Default)]
struct Lent {
    bytes: u64,
    /// The share of each part.
    shares: Vec<u64>,
}

/// A structure's part of the pool.
pub(crate) struct StructureCache {
    pub(crate) structure: Structure,
    pub(crate) cache: cache::Stats,
    pub(crate) lookups: Vec<Lookups>,
}

impl Pool {
    /// A pool that is the first kind's as long as there is no table.
    pub(super) fn new(kinds: &Arc<Kinds>, documents: &Arc<Documents>, bytes: u64) -> Self {
        let (kinds, documents) = (Arc::clone(kinds), Arc::clone(documents));
        let pool = Self {
            kinds,
            documents,
            bytes,
            taken: Default::default(),
            lent: Mutex::default(),
            dividing: Mutex::default(),
        };
        pool.divide(&[]);
        pool
    }

    /// All parts; that of the documents is the last.
    fn parts(&self) -> Vec<&dyn Part> {
        let kinds = self.kinds.iter().filter_map(|(_, kind)| kind.cache());
        kinds.chain([self.documents.cache()]).collect()
    }

    /// Divides the pool among the kinds of structures in use and the documents, by their bytes. Structures come first,
    /// because lookups reach documents through them. Documents get the rest, or at least one part.
    pub(super) fn divide(&self, tables: &[Footprint]) {
        let _alone = self.dividing.lock();
        let wanted: Vec<Option<u64>> =
            self.with_caches().map(|(structure, kind)| wanted(structure, kind, tables)).collect();
        let nodes = wanted.iter().flatten().sum();
        let taken: u64 = self.taken.iter().map(|taken| taken.load(Ordering::Relaxed)).sum();
        let bytes = self.bytes.saturating_sub(taken);
        let documents = documents_share(bytes, nodes, tables);
        let mut shares = kinds_shares(bytes - documents, &wanted);
        shares.push(documents);
        set(&self.parts(), &shares, |part| part.stats().capacity_bytes, |part, bytes| part.set_capacity(bytes));
        self.divide_loan(&mut self.lent.lock());
    }

    /// Takes so many bytes in place of those that `taker` took before, from the next division on. Returns whether that
    /// is another number.
    pub(super) fn take(&self, taker: Taker, bytes: u64) -> bool {
        self.taken[taker as usize].swap(bytes, Ordering::Relaxed) != bytes
    }

    fn with_caches(&self) -> impl Iterator<Item = (Structure, &dyn Kind)> {
        self.kinds.iter().filter(|(_, kind)| kind.cache().is_some())
    }

    /// Lends the pool so many bytes, in place of those lent before. Each part gets a share in proportion to its
    /// capacity.
    pub(super) fn lend(&self, bytes: u64) {
        let mut lent = self.lent.lock();
        lent.bytes = bytes;
        self.divide_loan(&mut lent);
    }

    fn divide_loan(&self, lent: &mut Lent) {
        let parts = self.parts();
        let share = |part: &&dyn Part| {
            let share =
                u128::from(lent.bytes) * u128::from(part.stats().capacity_bytes) / u128::from(self.bytes.max(1));
            u64::try_from(share).unwrap_or(lent.bytes).min(lent.bytes)
        };
        let shares: Vec<u64> = parts.iter().map(share).collect();
        let mut before = std::mem::replace(&mut lent.shares, shares).into_iter();
        set(&parts, &lent.shares, |_| before.next().unwrap_or(0), |part, bytes| part.lend(bytes));
    }

    /// Forgets everything that is cached.
    pub(super) fn clear(&self) {
        self.parts().into_iter().for_each(Part::clear);
    }

    /// Size and use of the structures' parts.
    pub(super) fn structures(&self) -> Vec<StructureCache> {
        let of_kind = |(structure, kind): (Structure, &dyn Kind)| {
            Some(StructureCache { structure, cache: kind.cache()?.stats(), lookups: kind.lookups() })
        };
        self.kinds.iter().filter_map(of_kind).collect()
    }
}

/// Gives each part its new bytes. Parts that shrink are set before parts that grow.
fn set(parts: &[&dyn Part], gets: &[u64], has: impl FnMut(&dyn Part) -> u64, set: impl Fn(&dyn Part, u64)) {
    let has: Vec<u64> = parts.iter().copied().map(has).collect();
    let all = || parts.iter().zip(has.iter().zip(gets));
    all().filter(|(_, (has, gets))| gets < has).for_each(|(part, (_, gets))| set(*part, *gets));
    all().filter(|(_, (has, gets))| gets > has).for_each(|(part, (_, gets))| set(*part, *gets));
}

/// Bytes that all nodes of a kind would take in its cache; none where no table has the kind.
fn wanted(structure: Structure, kind: &dyn Kind, tables: &[Footprint]) -> Option<u64> {
    Footprint::node_bytes_of(tables, structure).map(|bytes| kind.cached_bytes(bytes))
}

/// The share of documents in a pool of so many bytes.
fn documents_share(bytes: u64, nodes: u64, tables: &[Footprint]) -> u64 {
    let documents: u64 = tables.iter().map(|table| table.live_document_bytes).sum();
    let least = bytes / PARTS;
    let left = bytes.saturating_sub(nodes).clamp(least, bytes - least);
    // Half more than all documents, for the cache's own needs with each. For compressed documents all that is left is
    // taken, because their uncompressed length is not counted.
    let is_compressed = tables.iter().any(|table| table.is_compressed);
    if is_compressed && documents > 0 { left } else { (documents + documents / 2).min(left) }
}

/// The shares of the kinds in so many bytes: for kinds in use by what they want, at least a part each. The first kind
/// in use gets the rest; where none is in use, the first of all.
fn kinds_shares(bytes: u64, wanted: &[Option<u64>]) -> Vec<u64> {
    let (all, used) = (wanted.iter().flatten().sum::<u64>(), wanted.iter().flatten().count() as u64);
    let first = wanted.iter().position(Option::is_some).unwrap_or(0);
    let least = bytes / PARTS.max(used);
    let mut left = bytes;
    let mut to_come = used;
    let share = |(number, wanted): (usize, &Option<u64>)| match wanted {
        Some(wanted) if number != first => {
            to_come -= 1;
            let share = u128::from(bytes) * u128::from(*wanted) / u128::from(all.max(1));
            let share = u64::try_from(share).unwrap_or(bytes).clamp(least, left - least * to_come);
            left -= share;
            share
        }
        _ => 0,
    };
    let mut shares: Vec<u64> = wanted.iter().enumerate().map(share).collect();
    shares[first] = left;
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_get_what_they_want_in_proportion_and_none_too_little() {
        assert_eq!(kinds_shares(800, &[None, None]), [800, 0], "nothing is in use");
        assert_eq!(kinds_shares(800, &[None, Some(1)]), [0, 800]);
        assert_eq!(kinds_shares(800, &[Some(300), Some(100)]), [600, 200]);
        assert_eq!(kinds_shares(800, &[Some(1), Some(1_000_000)]), [100, 700]);
        assert_eq!(kinds_shares(800, &[Some(1_000_000), Some(0)]), [700, 100]);
        assert_eq!(kinds_shares(800, &[Some(0), Some(0)]), [700, 100]);
        assert_eq!(kinds_shares(800, &[Some(0), Some(1_000_000), Some(1)]), [100, 600, 100]);
    }

    proptest::proptest! {
        #[test]
        fn all_is_given_and_no_more(bytes in 0..1_000_000_u64, wanted in proptest::collection::vec(proptest::option::of(0..u64::MAX / 16), 1..12)) {
            let shares = kinds_shares(bytes, &wanted);
            proptest::prop_assert_eq!(shares.iter().sum::<u64>(), bytes);
            let least = bytes / PARTS.max(wanted.iter().flatten().count() as u64);
            let gets_least = |(share, wanted): (&u64, &Option<u64>)| wanted.is_none() || *share >= least;
            proptest::prop_assert!(shares.iter().zip(&wanted).all(gets_least));
        }
    }
}

//! The reads of a serializable transaction: keys, and ranges as far as they were walked.
//!
//! A key that was looked up and not found counts as read, and so does everything between the keys that a range showed.

use std::{cmp::Ordering, collections::HashSet, ops::Bound, sync::Arc};

use index::{Bounds, TableId};

use crate::{format::Logged, tables::catalog::TableCore};

/// Memory of a key that was read, besides its bytes, approximately.
const READ_BYTES: usize = 48;

struct TableReads {
    table: Arc<TableCore>,
    keys: HashSet<Vec<u8>>,
    ranges: Vec<Bounds>,
}

/// The reads of a transaction.
#[derive(Default)]
pub(crate) struct Reads {
    tables: Vec<TableReads>,
}

/// Memory for the read of a key.
pub(crate) const fn key_cost(key: &[u8]) -> u64 {
    (READ_BYTES + key.len()) as u64
}

/// Memory for the read of a range.
pub(crate) fn range_cost(bounds: &Bounds) -> u64 {
    let length = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.len(),
        Bound::Unbounded => 0,
    };
    (READ_BYTES + length(&bounds.lower) + length(&bounds.upper)) as u64
}

impl Reads {
    fn of(&mut self, table: &Arc<TableCore>) -> &mut TableReads {
        let known = self.tables.iter().position(|known| Arc::ptr_eq(&known.table, table));
        let known = known.unwrap_or_else(|| {
            self.tables.push(TableReads { table: Arc::clone(table), keys: HashSet::new(), ranges: Vec::new() });
            self.tables.len() - 1
        });
        &mut self.tables[known]
    }

    /// Notes that `key` was read. Returns whether the key is new here.
    pub(crate) fn add_key(&mut self, table: &Arc<TableCore>, key: &[u8]) -> bool {
        let keys = &mut self.of(table).keys;
        !keys.contains(key) && keys.insert(key.to_vec())
    }

    /// Notes that everything within the bounds was read.
    pub(crate) fn add_range(&mut self, table: &Arc<TableCore>, bounds: Bounds) {
        self.of(table).ranges.push(bounds);
    }

    /// Sorts the ranges, and joins those that overlap.
    pub(crate) fn join_ranges(&mut self) {
        for reads in &mut self.tables {
            reads.ranges.sort_by(|one, other| lower_order(&one.lower, &other.lower));
            reads.ranges.dedup_by(|next, joined| {
                let overlaps = match &next.lower {
                    Bound::Included(low) | Bound::Excluded(low) => joined.below_upper(low),
                    Bound::Unbounded => true,
                };
                if overlaps && upper_order(&joined.upper, &next.upper).is_lt() {
                    joined.upper = std::mem::replace(&mut next.upper, Bound::Unbounded);
                }
                overlaps
            });
        }
    }

    /// The tables that were read.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableCore>> {
        self.tables.iter().map(|reads| &reads.table)
    }

    /// The keys that were read.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&TableCore, &[u8])> {
        self.tables.iter().flat_map(|reads| reads.keys.iter().map(|key| (&*reads.table, key.as_slice())))
    }

    /// The ranges that were read.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Arc<TableCore>, &Bounds)> {
        self.tables.iter().flat_map(|reads| reads.ranges.iter().map(|bounds| (&reads.table, bounds)))
    }

    /// Whether this change of a commit lies in a range that was read. The ranges must be joined.
    pub(crate) fn is_changed_by(&self, table: TableId, logged: &Logged<'_>) -> bool {
        match logged {
            Logged::Update(update) => self.covers(table, update.key),
            Logged::DeleteRange { low, high } => self.meets(table, low, *high),
        }
    }

    /// Whether a range that was read may have keys from `low` to below `high`.
    fn meets(&self, table: TableId, low: &[u8], high: Option<&[u8]>) -> bool {
        let reads = self.tables.iter().filter(|reads| reads.table.id == table);
        reads.flat_map(|reads| &reads.ranges).any(|bounds| bounds.below_upper(low) && bounds.begins_below(high))
    }

    /// Whether a range that was read covers `key`. The ranges must be joined.
    fn covers(&self, table: TableId, key: &[u8]) -> bool {
        let reads = self.tables.iter().find(|reads| reads.table.id == table);
        reads.is_some_and(|reads| {
            let begun = reads.ranges.partition_point(|bounds| bounds.above_lower(key));
            begun > 0 && reads.ranges[begun - 1].below_upper(key)
        })
    }
}

/// The order of two lower bounds.
fn lower_order(one: &Bound<Vec<u8>>, other: &Bound<Vec<u8>>) -> Ordering {
    place(one, Ordering::Less).cmp(&place(other, Ordering::Less))
}

/// The order of two upper bounds.
fn upper_order(one: &Bound<Vec<u8>>, other: &Bound<Vec<u8>>) -> Ordering {
    place(one, Ordering::Greater).cmp(&place(other, Ordering::Greater))
}

/// The position of a bound: an end, or right before or behind a key.
fn place(bound: &Bound<Vec<u8>>, end: Ordering) -> (Ordering, &[u8], bool) {
    match bound {
        Bound::Unbounded => (end, &[], false),
        Bound::Included(key) => (Ordering::Equal, key, end.is_gt()),
        Bound::Excluded(key) => (Ordering::Equal, key, end.is_lt()),
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::OnceLock};

    use proptest::prelude::*;

    use super::*;

    fn table() -> &'static Arc<TableCore> {
        static TABLE: OnceLock<crate::handles::table::Table> = OnceLock::new();
        let table = TABLE.get_or_init(|| {
            let options = crate::options::Options::new().background(false);
            let db = options.open_on(psync::sim::SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
            db.table("table", crate::words::structure::Structure::BTree).expect("a table")
        });
        &table.core
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![
            4 => (0..20_u8).prop_map(|key| Bound::Included(vec![key])),
            4 => (0..20_u8).prop_map(|key| Bound::Excluded(vec![key])),
            1 => Just(Bound::Unbounded),
        ]
    }

    proptest! {
        #[test]
        fn joined_ranges_cover_what_they_covered(ranges in prop::collection::vec((bound(), bound()), 0..12)) {
            let table = table();
            let mut reads = Reads::default();
            let bounds: Vec<_> = ranges.into_iter().map(|(lower, upper)| Bounds { lower, upper }).collect();
            for bounds in bounds.iter().filter(|bounds| !bounds.is_empty()) {
                reads.add_range(table, bounds.clone());
            }
            reads.join_ranges();
            for key in 0..20_u8 {
                let expected = bounds.iter().any(|bounds| bounds.contains(&[key]));
                prop_assert_eq!(reads.covers(table.id, &[key]), expected, "key {}", key);
            }
        }
    }
}

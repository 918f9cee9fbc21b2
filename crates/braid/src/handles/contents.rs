//! What every map has: its ends, its emptiness, its size; and changes of one key that depend on its value.

use std::{
    convert::identity,
    ops::{Bound, RangeBounds},
};

use crate::{
    error::Result,
    handles::{database::Database, range::Range, table::Table},
    read::point,
    words::{clock::Expires, key_range::range_bounds},
};

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

/// A size is told in so many parts of the table, or in leaves.
const PARTS: usize = 1024;

impl Table {
    /// The pair with the smallest key.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let jobs = db.table("jobs", braid::Structure::BTree)?;
    /// assert!(jobs.is_empty()?);
    /// jobs.put("1", "wash")?;
    /// jobs.put("2", "dry")?;
    /// assert_eq!(jobs.last()?, Some((b"2".to_vec(), b"dry".to_vec())));
    /// assert_eq!(jobs.pop_first()?, Some((b"1".to_vec(), b"wash".to_vec())));
    /// assert_eq!(jobs.first()?, jobs.last()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn first(&self) -> Result<Option<Pair>> {
        self.iter().next().transpose()
    }

    /// The pair with the largest key, as in the example of [`Table::first`].
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn last(&self) -> Result<Option<Pair>> {
        self.iter().rev().next().transpose()
    }

    /// Whether the table has no pair, as in the example of [`Table::first`]. Values are not read.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.iter().keys_only().next_pair()?.is_none())
    }

    /// Removes the pair with the smallest key, and returns it. Each pair is returned to one caller. Callers at the same
    /// time get their pairs one after the other, each as soon as the delete before is as safe as the durability of this
    /// handle asks.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let jobs = db.table("jobs", braid::Structure::BTree)?;
    /// for (number, job) in ["wash", "dry", "fold"].iter().enumerate() {
    ///     jobs.put(number.to_be_bytes(), job)?;
    /// }
    /// let mut done = Vec::new();
    /// while let Some((_, job)) = jobs.pop_first()? {
    ///     done.push(job);
    /// }
    /// assert_eq!(done, [&b"wash"[..], b"dry", b"fold"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`] and [`Table::delete`].
    pub fn pop_first(&self) -> Result<Option<Pair>> {
        self.pop(identity)
    }

    /// Removes the pair with the largest key, and returns it, in the same way as [`Table::pop_first`].
    ///
    /// # Errors
    /// As [`Table::pop_first`].
    pub fn pop_last(&self) -> Result<Option<Pair>> {
        self.pop(Range::rev)
    }

    fn pop(&self, turn: impl Fn(Range) -> Range) -> Result<Option<Pair>> {
        Database::of(&self.handle).run_with(self.transaction_options(), |transaction| {
            transaction.lock_pops(self)?;
            let pair = turn(transaction.snapshot_of(self)).next().transpose()?;
            pair.iter().try_for_each(|(key, _)| transaction.delete(self, key))?;
            Ok(pair)
        })
    }

    /// Changes the value of `key` to what `change` makes of it; none is an absent key, before and after. Returns the
    /// new value. No other commit of the key comes between, and callers at the same time take turns. The expiry of the
    /// value stays.
    ///
    /// `change` runs once, unless the database fails. It must not write to `key` by other means, for which it would
    /// wait until the lock timeout.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let visits = db.table("visits", braid::Structure::BTree)?;
    /// for _ in 0..3 {
    ///     visits.update("ada", |old| Some(vec![old.map_or(0, |count| count[0]) + 1]))?;
    /// }
    /// assert_eq!(visits.get("ada")?, Some(vec![3]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`] and [`Table::put`].
    pub fn update(
        &self, key: impl AsRef<[u8]>, change: impl FnOnce(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        let mut transaction = Database::of(&self.handle).begin_with(self.transaction_options())?;
        let old = transaction.get_for_update(self, key)?;
        let new = change(old.as_deref());
        match &new {
            Some(value) => {
                let expiry = transaction.expiry(self, key)?;
                transaction.put_until(self, key, value, expiry.map(Expires::At))?;
            }
            None if old.is_some() => transaction.delete(self, key)?,
            None => {}
        }
        transaction.commit()?;
        Ok(new)
    }

    /// About how many pairs the table has. Values that expired, deletes and older versions count until they are
    /// removed, and operations that wait count each, so a table that was just overwritten or deleted has fewer.
    ///
    /// In a B-tree this reads the nodes above the leaves, about a thousandth of the table.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// for number in 0..100_u32 {
    ///     users.put_with(number.to_be_bytes(), "", braid::Durability::Os)?;
    /// }
    /// assert_eq!(users.approximate_len()?, 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn approximate_len(&self) -> Result<u64> {
        let (state, _) = point::moment(self.engine(), &self.core, None)?;
        Ok(state.view.stats()?.entries + state.operations())
    }

    /// About how many bytes of storage the pairs within `range` take, large values included, to a thousandth of the
    /// table or to a leaf. Puts that wait to be applied count with the bytes of key and value, and what they or deletes
    /// replace counts until it is removed.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// for number in 0..1000_u32 {
    ///     users.put_with(number.to_be_bytes(), [7; 100], braid::Durability::Os)?;
    /// }
    /// let all = users.size_of::<&[u8]>(..)?;
    /// assert!(all >= 100_000 && users.size_of(..500_u32.to_be_bytes())? < all);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn size_of<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        let bounds = range_bounds(&range);
        if bounds.is_empty() {
            return Ok(0);
        }
        let (state, _) = point::moment(self.engine(), &self.core, None)?;
        let stored_bytes = state.view.stats()?.stored_bytes + self.core.documents.stats().live_bytes;
        let fences = state.view.fences(PARTS)?;
        let parts = fences.len() as u64 + 1;
        let inside = fences.iter().filter(|fence| bounds.contains(fence)).count() as u64;
        // A range without both ends has the whole part at its open end; any other has half a part at each end.
        let is_open = |bound: &Bound<Vec<u8>>| u64::from(*bound == Bound::Unbounded);
        let open = is_open(&bounds.lower) + is_open(&bounds.upper);
        let halves = (2 * inside + open).min(2 * parts);
        let bytes = u128::from(stored_bytes) * u128::from(halves);
        let stored = u64::try_from(bytes / u128::from(2 * parts)).unwrap_or(u64::MAX);
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.sections().put_bytes(&bounds));
        Ok(stored.saturating_add(state.active.put_bytes(&bounds)).saturating_add(frozen))
    }
}

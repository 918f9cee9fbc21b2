//! The other end of a range, and places in it that are sought.
//!
//! What is taken from the back comes from a second range of the same moment, in reverse order. Each of the two stops
//! where the other is ([`Limit`]).

use index::Bounds;

use super::{
    Range,
    limit::{Limit, from_key},
};
use crate::error::Result;

impl Range {
    /// Goes to `key`: the next pair is the first at or behind it, in the order of the range, and within its bounds.
    /// Places before the present one can be gone to, too. The moment stays the same.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// for name in ["ada", "barbara", "grace"] {
    ///     users.put(name, "")?;
    /// }
    /// let mut range = users.iter();
    /// range.seek("b");
    /// assert_eq!(range.next().transpose()?, Some((b"barbara".to_vec(), vec![])));
    /// assert_eq!(range.next_back().transpose()?, Some((b"grace".to_vec(), vec![])));
    /// assert!(range.next().is_none(), "the two ends have met");
    /// # Ok(())
    /// # }
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        let mut sought = self.within(from_key(&self.bounds, key, self.direction), self.direction);
        // The walk has narrower bounds than the range, which can be gone back in.
        sought.walked = Some(std::mem::replace(&mut sought.bounds, self.bounds.clone()));
        (sought.limit, sought.other) = (std::mem::take(&mut self.limit), self.other.take());
        sought.has_begun = true;
        if let Some(other) = &mut sought.other {
            other.limit = Limit::Behind(key.to_vec());
        }
        *self = sought;
    }

    /// Whether nothing was taken from the other end.
    pub(super) const fn is_alone(&self) -> bool {
        self.other.is_none() && matches!(self.limit, Limit::None)
    }

    /// Whether the pair that the range stands on is before all that the other end has shown. Tells the other end.
    pub(super) fn meet(&mut self) -> Result<bool> {
        let Some((key, _)) = self.pair() else { return Ok(true) };
        if self.limit.excludes(key, self.direction) {
            // It is shown if the other end goes back from it.
            self.is_held = true;
            return Ok(false);
        }
        let limit = Limit::Before(key.to_vec());
        if let Some(other) = &mut self.other {
            other.limit = limit;
        }
        Ok(true)
    }

    /// The range from the other end.
    fn other(&mut self) -> &mut Self {
        if self.other.is_none() {
            let mut other = self.within(self.bounds.clone(), self.direction.reversed());
            let shown = self.pair().map(|(key, _)| key.to_vec()).or_else(|| self.given.take());
            let begin = || Limit::at_begin(self.walked(), self.direction);
            let is_through = self.ended && self.failed.is_none() && self.gathered.is_empty();
            other.limit = if is_through { Limit::Through } else { shown.map_or_else(begin, Limit::Before) };
            self.other = Some(Box::new(other));
        }
        self.other.as_mut().expect("it is there now")
    }

    /// The bounds of the walk.
    pub(super) fn walked(&self) -> &Bounds {
        self.walked.as_ref().unwrap_or(&self.bounds)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.other().next();
        if let Some(Ok((key, _))) = &next {
            self.limit = Limit::Before(key.clone());
        }
        next
    }
}

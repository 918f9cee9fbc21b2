//! Cursors: places between pairs, from which steps go both ways.

use std::{fmt, ops::Bound};

use index::{Bounds, Direction};

use crate::{
    error::Result,
    handles::{at::TableAt, range::Range, snapshot::Snapshot, table::Table},
};

/// A place between two pairs of a table, or at one of its ends. [`Cursor::next`] shows the pair behind the place and
/// passes over it; [`Cursor::prev`] shows the pair before, and passes over that. So a `prev` after a `next` shows the
/// same pair again.
///
/// A cursor shows one moment, as a [`Range`] does. Steps on in one direction cost as little as those of a range; the
/// first step after a turn, or after a `seek`, looks the place up.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let prices = db.table("prices", braid::Structure::BTree)?;
/// for (day, price) in [("mon", "7"), ("thu", "9"), ("tue", "8")] {
///     prices.put(day, price)?;
/// }
/// let mut cursor = prices.cursor();
/// cursor.seek("ra");
/// let before = cursor.prev()?.map(|(day, _)| day.to_vec());
/// cursor.seek("ra");
/// let behind = cursor.next()?.map(|(day, _)| day.to_vec());
/// assert_eq!((before, behind), (Some(b"mon".to_vec()), Some(b"thu".to_vec())));
/// # Ok(())
/// # }
/// ```
///
/// A walk is a loop, because a shown pair is borrowed until the next step:
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let jobs = db.table("jobs", braid::Structure::BTree)?;
/// for number in 1..=5_u8 {
///     jobs.put([number], "")?;
/// }
/// let (mut cursor, mut passed) = (jobs.cursor(), Vec::new());
/// cursor.seek_behind([2]); // `seek` goes before a key
/// while let Some((number, _)) = cursor.next()? {
///     passed.push(number[0]);
/// }
/// cursor.seek_last();
/// assert_eq!(cursor.prev()?.map(|(number, _)| number[0]), Some(5));
/// assert_eq!(passed, [3, 4, 5]);
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    /// All pairs.
    whole: Range,
    /// The last steps, and the pair that the last one passed over. None after a seek.
    steps: Option<Range>,
    /// The place before these steps.
    place: Place,
}

enum Place {
    First,
    Before(Vec<u8>),
    Behind(Vec<u8>),
    Last,
}

impl Place {
    /// The place that some steps led to.
    fn after(steps: &Range) -> Self {
        match (steps.pair(), steps.direction()) {
            (Some((key, _)), Direction::Forward) => Self::Behind(key.to_vec()),
            (Some((key, _)), Direction::Backward) => Self::Before(key.to_vec()),
            (None, Direction::Forward) => Self::Last,
            (None, Direction::Backward) => Self::First,
        }
    }

    /// What lies before or behind the place.
    fn bounds(&self, direction: Direction) -> Bounds {
        let bound = match (self, direction) {
            (Self::First, Direction::Forward) | (Self::Last, Direction::Backward) => Bound::Unbounded,
            (Self::First, Direction::Backward) | (Self::Last, Direction::Forward) => return Bounds::none(),
            (Self::Before(key), Direction::Forward) | (Self::Behind(key), Direction::Backward) => {
                Bound::Included(key.clone())
            }
            (Self::Before(key), Direction::Backward) | (Self::Behind(key), Direction::Forward) => {
                Bound::Excluded(key.clone())
            }
        };
        match direction {
            Direction::Forward => Bounds { lower: bound, upper: Bound::Unbounded },
            Direction::Backward => Bounds { lower: Bound::Unbounded, upper: bound },
        }
    }
}

impl Table {
    /// A cursor before the first pair, of the moment of this call.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.iter())
    }
}

impl Snapshot {
    /// A cursor before the first pair that `table` had.
    #[must_use]
    pub fn cursor(&self, table: &Table) -> Cursor {
        Cursor::new(self.iter(table))
    }
}

impl TableAt {
    /// A cursor before the first pair of the state.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.iter())
    }
}

impl Cursor {
    const fn new(whole: Range) -> Self {
        Self { whole, steps: None, place: Place::First }
    }

    /// Goes before `key`, whether there is such a pair or not.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.go(Place::Before(key.as_ref().to_vec()));
    }

    /// Goes behind `key`, whether there is such a pair or not.
    pub fn seek_behind(&mut self, key: impl AsRef<[u8]>) {
        self.go(Place::Behind(key.as_ref().to_vec()));
    }

    /// Goes before the first pair.
    pub fn seek_first(&mut self) {
        self.go(Place::First);
    }

    /// Goes behind the last pair.
    pub fn seek_last(&mut self) {
        self.go(Place::Last);
    }

    /// Passes over the pair behind the cursor, and shows it; none behind the last pair.
    ///
    /// # Errors
    /// As [`Range::next_pair`]. The cursor is then behind the last pair.
    #[expect(clippy::should_implement_trait, reason = "a pair is borrowed, and there is a way back")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.step(Direction::Forward)
    }

    /// Passes over the pair before the cursor, and shows it; none before the first pair.
    ///
    /// # Errors
    /// As [`Range::next_pair`]. The cursor is then before the first pair.
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.step(Direction::Backward)
    }

    fn go(&mut self, place: Place) {
        (self.steps, self.place) = (None, place);
    }

    fn step(&mut self, direction: Direction) -> Result<Option<(&[u8], &[u8])>> {
        let steps = match self.steps.take() {
            Some(steps) if steps.direction() == direction => steps,
            turned => {
                if let Some(steps) = turned {
                    self.place = Place::after(&steps);
                }
                self.whole.within(self.place.bounds(direction), direction)
            }
        };
        self.steps.insert(steps).next_pair()
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cursor").field("range", &self.whole).finish_non_exhaustive()
    }
}

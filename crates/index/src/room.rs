//! Changes on a full disk: those that give space back may have a share of the room that is kept for them.

use space::{Class, Reserve};

use crate::{Error, Result};

/// The share of the reserve that a change may have, in quarters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The change makes the structure larger.
    None = 0,
    /// Deletes wait behind the change.
    Quarter = 1,
    /// The change deletes. The other half is left to changes that empty files, because only these release whole files.
    Half = 2,
    /// The change empties files.
    All = 4,
}

impl Room {
    /// The share of a change of this class.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        match class {
            Class::Normal => Self::None,
            Class::Urgent => Self::Quarter,
            Class::Reclaim => Self::Half,
            Class::Emptying => Self::All,
        }
    }

    /// Makes a change, on a full disk with this share of the reserve. Free space fills the reserve first, so no change
    /// takes more than its share.
    ///
    /// # Errors
    /// Those of `make`; and when the reserve cannot be filled, unless the change may have a share of it.
    pub fn make<T>(self, reserve: &Reserve, make: impl Fn() -> Result<T>) -> Result<T> {
        match reserve.fill() {
            Err(error) if error.is_disk_full() && !error.is_flush_failure() && self != Self::None => {}
            filled => filled?,
        }
        loop {
            match make() {
                Err(error) if is_without_room(&error) && reserve.give(self as u64)? => {}
                outcome => return outcome,
            }
        }
    }
}

/// Whether a change found no room, and nothing of it is left.
fn is_without_room(error: &Error) -> bool {
    match error {
        Error::Document(error) => error.is_disk_full() && !error.is_flush_failure(),
        Error::Space(error) => error.is_disk_full() && !error.is_flush_failure(),
        _ => false,
    }
}

//! The purpose of a record, which decides how far the record may go on a full disk.

/// The purpose of a record. On a full disk, which allows no new segment, the purpose says how far the record may go
/// into the spare segments that are left.
///
/// | spares left | may be entered by |
/// |---|---|
/// | 3 or more | all |
/// | 2 | [`Claim::Delete`], [`Claim::Upkeep`] |
/// | 1 | [`Claim::Upkeep`] |
///
/// The rest of a segment belongs to the claims that could have entered that segment, so a put does not fill up a
/// segment that was entered for a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// Records that make the database larger. A put leaves at least two spare segments.
    Put,
    /// Records that make the database smaller in the end, such as deletes. They leave at least one spare segment.
    Delete,
    /// Records that must be logged before the log can be trimmed, such as the ends of flushes and of tables. They may
    /// take the last spare segment.
    Upkeep,
}

impl Claim {
    /// Spare segments that are left to other claims.
    pub(crate) const fn leaves(self) -> usize {
        match self {
            Self::Put => 2,
            Self::Delete => 1,
            Self::Upkeep => 0,
        }
    }
}

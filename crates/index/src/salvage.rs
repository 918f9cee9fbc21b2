//! What is left of a damaged structure.

use std::ops::ControlFlow;

use crate::{Error, PairRef};

/// Keys that a structure may have lost: from `low` to below `high`, or to the end.
#[derive(Debug)]
pub struct Lost {
    /// The first.
    pub low: Vec<u8>,
    /// Behind the last; none at the end of the structure.
    pub high: Option<Vec<u8>>,
    /// Whether some of them are shown all the same: they may be older than they should, or have been deleted.
    pub taken: bool,
    /// What does not check.
    pub why: Error,
}

/// Who is shown what is left of a structure.
pub trait Rescue {
    /// Pairs, in key order, behind all that were shown. It may end the walk.
    fn pairs(&mut self, pairs: &[PairRef<'_>]) -> ControlFlow<()>;

    /// Keys that may be lost. What is shown of them is shown next.
    fn lost(&mut self, lost: Lost);
}

//! The readable rest of a damaged structure.

use std::ops::ControlFlow;

use crate::{Error, PairRef};

/// Keys that a structure may have lost: from `low` to below `high`, or to the end.
#[derive(Debug)]
pub struct Lost {
    /// The first.
    pub low: Vec<u8>,
    /// Behind the last; none at the end of the structure.
    pub high: Option<Vec<u8>>,
    /// Whether some of these keys are shown all the same. A shown value may be older than the last one, or may have
    /// been deleted.
    pub taken: bool,
    /// The damage that was found.
    pub why: Error,
}

/// Receives the readable rest of a structure.
pub trait Rescue {
    /// Pairs, in key order, behind all pairs shown before. A break ends the walk.
    fn pairs(&mut self, pairs: &[PairRef<'_>]) -> ControlFlow<()>;

    /// Keys that may be lost. Their shown pairs, if any, come next.
    fn lost(&mut self, lost: Lost);
}

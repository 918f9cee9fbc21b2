//! The conflicts of transactions.

use crate::{
    commit::validate::Changed,
    error::{Error, ErrorKind},
};

/// A conflict after which another run may help.
pub(super) struct Conflict {
    /// The key that another commit changed, where the conflict is over one key.
    pub(super) changed: Changed,
}

impl Conflict {
    /// The conflict that is `error`, if it is one. A lock timeout is none, because the transaction has waited long
    /// enough.
    pub(super) fn of(error: &Error, changed: Changed) -> Option<Self> {
        let is_one = error.kind() == ErrorKind::Conflict && !matches!(error, Error::LockTimeout { .. });
        is_one.then_some(Self { changed })
    }
}

//! How a transaction is begun.

use std::time::Duration;

use crate::words::durability::Durability;

/// The isolation of a transaction from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Reads see one moment. Of two transactions that write the same key, the first to commit wins. Two transactions
    /// that each read a key which the other writes may both commit (write skew).
    #[default]
    Snapshot,
    /// As if serializable transactions ran one after the other: reads, ranges included, are checked too.
    Serializable,
}

/// How a transaction is begun.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionOptions {
    pub(super) isolation: Isolation,
    pub(super) durability: Option<Durability>,
    pub(super) lock_timeout: Option<Duration>,
    pub(super) read_only: bool,
}

impl TransactionOptions {
    /// Snapshot isolation, with the durability and the lock timeout of the database.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The isolation from other transactions.
    #[must_use]
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// When the commit counts as done.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// How long the transaction waits for a key that another transaction has locked.
    #[must_use]
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }

    /// The transaction will not write. Its reads are not noted, regardless of the isolation.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

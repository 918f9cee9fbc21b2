//! How a transaction is begun.

use std::time::Duration;

use crate::words::durability::Durability;

/// What a transaction is protected from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// It reads one moment, and of two that write the same key the first to commit wins. Two that each read what the other writes
    /// may both commit (write skew).
    #[default]
    Snapshot,
    /// As if serializable transactions ran one after the other: what was read, ranges included, is checked too.
    Serializable,
}

/// How a transaction is begun.
#[derive(Clone, Debug, Default)]
pub struct TransactionOptions {
    pub(super) isolation: Isolation,
    pub(super) durability: Option<Durability>,
    pub(super) lock_timeout: Option<Duration>,
    pub(super) read_only: bool,
}

impl TransactionOptions {
    /// Snapshot isolation, and durability and lock timeout of the database.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What it is protected from.
    #[must_use]
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// When its commit counts as done.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// How long it waits for a key that another transaction has locked.
    #[must_use]
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }

    /// It will not write; what it reads is not noted, whatever its isolation.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

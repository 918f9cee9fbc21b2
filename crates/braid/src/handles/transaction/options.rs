//! How a transaction is begun.

use std::time::Duration;

use crate::words::durability::Durability;

/// The isolation of a transaction from others.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{ErrorKind, Isolation, TransactionOptions};
///
/// let on_call = db.table("on call", braid::Structure::BTree)?;
/// on_call.put("ada", "")?;
/// on_call.put("grace", "")?;
/// let serializable = TransactionOptions::new().isolation(Isolation::Serializable);
/// let (mut one, mut other) = (db.begin_with(serializable)?, db.begin_with(serializable)?);
/// // Each sees two on call, and takes another one off: with snapshot isolation both would commit.
/// for (tx, name) in [(&mut one, "ada"), (&mut other, "grace")] {
///     if tx.iter(&on_call).count() == 2 {
///         tx.delete(&on_call, name)?;
///     }
/// }
/// one.commit()?;
/// assert_eq!(other.commit().expect_err("what it read has changed").kind(), ErrorKind::Conflict);
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use std::time::Duration;
///
/// use braid::{Durability, TransactionOptions};
///
/// # let visits = db.table("visits", braid::Structure::BTree)?;
/// let options = TransactionOptions::new().durability(Durability::Os).lock_timeout(Duration::from_millis(50));
/// db.run_with(options, |tx| tx.put(&visits, "ada", "1"))?;
/// let mut tx = db.begin_with(TransactionOptions::new().read_only(true))?; // one moment, as a snapshot
/// assert!(tx.contains_key(&visits, "ada")?);
/// assert!(tx.put(&visits, "ada", "2").is_err());
/// # Ok(())
/// # }
/// ```
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

//! The end of a transaction: commits, and rollbacks of all writes or of the newest.

use std::sync::Arc;

use index::Seq;
use parking_lot::Mutex;

use super::{Savepoint, Transaction};
use crate::{
    commit::{
        settle::Submitted,
        validate::{Changed, Check},
    },
    error::{Error, Result},
    handles::ticket::Ticket,
};

impl Transaction {
    /// A point to return to with [`Transaction::roll_back_to`].
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// let mut tx = db.begin()?;
    /// tx.put(&users, "ada", "1815")?;
    /// let savepoint = tx.savepoint();
    /// tx.put(&users, "grace", "1906")?;
    /// tx.roll_back_to(&savepoint)?;
    /// tx.commit()?;
    /// assert_eq!((users.contains_key("ada")?, users.contains_key("grace")?), (true, false));
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&mut self) -> Savepoint {
        self.writes.savepoint()
    }

    /// Undoes every write since `savepoint`, which can be used again: see the example of [`Transaction::savepoint`].
    /// Locks stay, and noted reads stay noted.
    ///
    /// # Errors
    /// [`Error::NoSavepoint`].
    pub fn roll_back_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let before = self.writes.bytes();
        if !self.writes.roll_back_to(savepoint) {
            return Err(Error::NoSavepoint);
        }
        self.let_go(before - self.writes.bytes());
        self.balance();
        Ok(())
    }

    /// Commits all writes or none, with the transaction's durability. Returns the seq of the commit, or the snapshot's
    /// seq where nothing was written.
    ///
    /// # Errors
    /// [`Error::Conflict`] when another commit was in the way; [`Error::LockTimeout`] or [`Error::Deadlock`] when a
    /// written key was locked; [`Error::TransactionTooLarge`] when a read could not be noted; as
    /// [`Database::write`](crate::Database::write).
    pub fn commit(self) -> Result<Seq> {
        let submitted = self.place(&mut None)?;
        self.settle(&submitted)?;
        Ok(submitted.seq())
    }

    /// Makes the placed commit as safe as asked, gives the locks back, and waits until the commit counts as done.
    pub(super) fn settle(self, submitted: &Submitted) -> Result<()> {
        self.engine().settle_at_once(submitted)?;
        drop(self);
        submitted.wait_for_turn();
        Ok(())
    }

    /// Gives the transaction its place in the order of commits, and returns a ticket for the rest of the commit: see
    /// [`Database::submit`](crate::Database::submit). The transaction's locks and its snapshot are released.
    ///
    /// Nobody sees the writes until the ticket is done. A later transaction that writes or locks one of their keys
    /// waits for the flush of this commit.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// let mut tx = db.begin()?;
    /// tx.put(&users, "ada", "1815")?;
    /// let ticket = tx.submit()?; // or an error, as of `commit`: a conflict, for one
    /// let seq = ticket.seq();
    /// assert_eq!(ticket.wait()?, seq);
    /// assert!(users.contains_key("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn submit(self) -> Result<Ticket> {
        let submitted = self.place(&mut None)?;
        if !self.renewed.lock().is_empty() {
            self.engine().settle_at_once(&submitted)?;
        }
        let handle = Arc::clone(self.pin.handle());
        // The locks go before the ticket may be delayed.
        drop(self);
        Ticket::new(&handle, submitted)
    }

    /// Checks the transaction for conflicts, and gives it its place. Sets `changed` to the key of a conflict.
    pub(super) fn place(&self, changed: &mut Changed) -> Result<Submitted> {
        if self.writes.is_empty() {
            return Ok(Submitted::nothing(self.seq()));
        }
        if let Some(error) = self.too_large.lock().take() {
            return Err(error);
        }
        let engine = self.engine();
        let mut reads = self.reads.as_ref().map(Mutex::lock);
        reads.iter_mut().for_each(|reads| reads.join_ranges());
        let renewals = self.renewals()?;
        let mut check = Check::new(&self.pin, self.owner, reads.as_deref());
        let durability = self.options.durability.unwrap_or(engine.options.durability);
        let items = self.writes.items(&renewals.values);
        let placed = engine.submit_items(&items, durability, self.lock_timeout(), Some(&mut check));
        *self.renewed.lock() = renewals.states;
        *changed = check.take_changed();
        placed
    }

    /// Forgets all writes, as dropping the transaction does.
    pub fn rollback(self) {}
}

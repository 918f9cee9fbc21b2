//! Commits that nobody waits for yet.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use index::Seq;

use crate::{
    commit::settle::Submitted,
    engine::handle::{Handle, Hold, Kind},
    error::Result,
    handles::{batch::WriteBatch, database::Database},
    words::durability::Durability,
};

/// A commit that has its place in the order of commits, and is not yet known to be as safe as asked.
///
/// The commit happens whether the ticket is kept or dropped. As a [`Future`], the ticket needs no runtime of its own:
/// the thread that flushed the log wakes the task. A waker must only have its task run elsewhere, as those of runtimes
/// do, because it is called with locks of the database held. A ticket keeps its database open.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{Durability, Structure, WriteBatch};
///
/// let users = db.table("users", Structure::BTree)?;
/// let mut batch = WriteBatch::new();
/// batch.put(&users, "ada", "1815");
/// let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime"); // or any other
/// let seq = runtime.block_on(async { db.submit(&batch, Durability::Sync)?.await })?;
/// let ticket = db.submit(&batch, Durability::Os)?; // a second commit
/// assert!(ticket.seq() > seq);
/// db.persist()?; // flushes the log, which `Durability::Os` does not ask for
/// assert!(ticket.is_durable());
/// ticket.wait()?; // needs no runtime
/// # Ok(())
/// # }
/// ```
#[must_use = "the ticket tells when the commit is done, and whether it failed"]
pub struct Ticket {
    handle: Hold,
    submitted: Submitted,
    /// A waker was left.
    is_polled: bool,
}

impl Database {
    /// Gives a batch its place in the order of commits, and returns at once. [`Ticket::wait`], or awaiting the ticket,
    /// tells when the commit is as safe as `durability` asks and visible to readers. One thread, or one task, can have
    /// thousands of commits under way. One flush serves all that were submitted before it.
    ///
    /// Commits become visible in the order in which they were submitted, together with those of other threads.
    ///
    /// Until a ticket is done, nobody sees its commit, the thread that submitted it neither. A later transaction that
    /// writes or locks a key of a commit under way ([`Table::update`](crate::Table::update) too), or is serializable
    /// and has read it, waits for the flush of that commit. So a counter that is kept in a key makes one flush a
    /// commit. Keep the counter in memory under a mutex, submit inside the mutex, and wait outside.
    ///
    /// A program that submits more than the database can apply is slowed down in two ways. Tickets are done later as
    /// the write buffer fills up. Beyond that, `submit` itself waits in these cases:
    ///
    /// - the write buffer is full;
    /// - two mebibytes of log wait for their flush;
    /// - a ticket would have to be delayed for more than a tenth of a second;
    /// - a transaction has locked a key, as for [`Database::write`];
    /// - it is a commit longer than a segment of the log ([`WriteBatch`]), which is flushed at once, or another thread
    ///   has one under way;
    /// - a table has nearly as many deleted ranges as it can have, which are swept away first.
    ///
    /// It also writes values above 2 KiB itself. [`Transaction::submit`](crate::Transaction::submit) waits for the
    /// flush of a commit that renews a value above 2 KiB. In an async runtime, call both where blocking is allowed, if
    /// that matters.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Durability, Structure, WriteBatch};
    ///
    /// let events = db.table("events", Structure::BTree)?;
    /// let mut tickets = Vec::new();
    /// for number in 0..100_u32 {
    ///     let mut batch = WriteBatch::new();
    ///     batch.put(&events, number.to_be_bytes(), "seen");
    ///     tickets.push(db.submit(&batch, Durability::Sync)?);
    /// }
    /// for ticket in tickets {
    ///     ticket.wait()?; // a few flushes served all hundred
    /// }
    /// assert_eq!(events.iter().count(), 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Database::write`]; no ticket means that the batch was not written. The exception is
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown).
    pub fn submit(&self, batch: &WriteBatch, durability: Durability) -> Result<Ticket> {
        batch.check_own(self.handle())?;
        Ticket::new(self.handle(), self.engine().submit(batch, durability)?)
    }
}

impl Ticket {
    pub(crate) fn new(handle: &Arc<Handle>, submitted: Submitted) -> Result<Self> {
        handle.engine.settle_later(&submitted)?;
        Ok(Self { handle: Hold::new(handle, Kind::Ticket), submitted, is_polled: false })
    }

    /// Seq of the commit. Where nothing was written, that of the newest commit which was visible then, or to the
    /// transaction.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.submitted.seq()
    }

    /// Whether the commit is on stable storage, whatever durability was asked for. A ticket for which nothing was
    /// written has nothing to be made durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.submitted.end().is_none_or(|end| self.handle.engine.wal.durable() >= end)
    }

    /// Waits until the commit is as safe as asked, and visible. The waiting thread flushes the log itself if no other
    /// thread does.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) when the log could not be written or flushed.
    pub fn wait(self) -> Result<Seq> {
        self.handle.engine.settle(&self.submitted)
    }
}

impl Future for Ticket {
    type Output = Result<Seq>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Seq>> {
        let polled = self.handle.engine.poll(&self.submitted, context.waker());
        self.is_polled |= polled.is_pending();
        polled
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_polled {
            self.handle.engine.forget_wakers(&self.submitted);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seq, is_durable) = (self.seq().0, self.is_durable());
        formatter.debug_struct("Ticket").field("seq", &seq).field("is_durable", &is_durable).finish_non_exhaustive()
    }
}

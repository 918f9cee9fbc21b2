//! Reads for callers that have no thread to wait in.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    engine::lookups::{Answer, Request, Values},
    error::Result,
    handles::table::Table,
    read::point,
};

/// The value of a key, on its way. Made by [`Table::lookup`].
#[must_use = "a lookup reads nothing before it is awaited"]
pub struct Lookup(LookupMany);

/// The values of many keys, on their way. Made by [`Table::lookup_many`].
#[must_use = "a lookup reads nothing before it is awaited"]
pub struct LookupMany {
    table: Table,
    /// Taken when first polled.
    keys: Vec<Vec<u8>>,
    answer: Option<Arc<Answer>>,
}

impl Table {
    /// As [`Table::get`], as a future that no thread waits for: a program with an async runtime can have thousands of
    /// them under way. The keys that all tasks want at the same time are read together, as [`Table::get_many`] reads
    /// its keys, so that many tasks are one batch for the device. The first poll asks; a dropped lookup is not read.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let ada = async { users.lookup("ada").await };
    /// # use std::{future::Future, task::{Context, Poll, Waker}};
    /// # let mut ada = std::pin::pin!(ada);
    /// # let found = loop {
    /// #     if let Poll::Ready(found) = ada.as_mut().poll(&mut Context::from_waker(Waker::noop())) { break found; }
    /// # };
    /// assert_eq!(found?.as_deref(), Some(&b"1815"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The future resolves to what [`Table::get`] returns, with its errors.
    pub fn lookup(&self, key: impl AsRef<[u8]>) -> Lookup {
        Lookup(self.lookup_many(&[key]))
    }

    /// As [`Table::get_many`], as a future: see [`Table::lookup`]. All values are of one moment.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime"); // or any other
    /// let found = runtime.block_on(users.lookup_many(&["ada", "grace"]))?;
    /// assert_eq!(found, [Some(b"1815".to_vec()), None]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lookup_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> LookupMany {
        let keys = keys.iter().map(|key| key.as_ref().to_vec()).collect();
        LookupMany { table: self.clone(), keys, answer: None }
    }
}

impl Future for LookupMany {
    type Output = Result<Values>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Values>> {
        if let Some(answer) = &self.answer {
            return answer.poll(context.waker());
        }
        let keys = std::mem::take(&mut self.keys);
        if let Err(error) = keys.iter().try_for_each(|key| self.table.core.check_key(key)) {
            return Poll::Ready(Err(error));
        }
        let engine = self.table.engine();
        let answer = Arc::new(Answer::default());
        let request = Request::new(Arc::clone(&self.table.core), keys, Arc::clone(&answer));
        let refused = if engine.threads.note_lookup() { engine.lookups.add(request) } else { Some(request) };
        if let Some(request) = refused {
            // No thread reads, so this one does.
            let keys: Vec<&[u8]> = request.keys.iter().map(Vec::as_slice).collect();
            return Poll::Ready(point::read_many(engine, &request.table, &keys, None));
        }
        let answered = answer.poll(context.waker());
        self.answer = Some(answer);
        answered
    }
}

impl Future for Lookup {
    type Output = Result<Option<Vec<u8>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>>> {
        let values = Pin::new(&mut self.0).poll(context);
        values.map_ok(|values| values.into_iter().next().flatten())
    }
}

impl fmt::Debug for LookupMany {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LookupMany").field("table", &self.table).finish_non_exhaustive()
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lookup").field("table", &self.0.table).finish_non_exhaustive()
    }
}

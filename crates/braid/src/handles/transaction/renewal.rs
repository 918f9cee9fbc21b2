//! New expiries for values that stay as they are.
//!
//! 1. A renewed key is locked, so its value stays as the transaction saw it. A value in a document may be moved
//!    meanwhile, because an open transaction holds no state of a table.
//! 2. The commit finds the documents again, and holds the states in which they are until it is visible.

use std::sync::Arc;

use index::Stored;

use crate::{
    commit::check_expires,
    error::{Error, Result},
    handles::{
        table::Table,
        transaction::{
            Transaction,
            writes::{self, Renewed},
        },
    },
    read::point,
    tables::catalog::TableState,
    words::clock::Expires,
};

/// The values of all renewed keys, in the order of the writes.
#[derive(Default)]
pub(super) struct Renewals {
    pub(super) values: Vec<Renewed>,
    /// As long as these are held, the documents stay where they are.
    pub(super) states: Vec<Arc<TableState>>,
}

impl Transaction {
    /// Gives the value of `key` another expiry when the transaction commits: as [`Table::renew`]. Returns whether there
    /// is a value. The key is locked until the transaction ends, as by [`Transaction::get_for_update`].
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::time::Duration;
    /// let sessions = db.table("sessions", braid::Structure::BTree)?;
    /// sessions.put_expiring("token", "ada", Duration::from_secs(60))?;
    /// let before = sessions.expiry("token")?;
    /// let mut tx = db.begin()?;
    /// assert!(tx.renew(&sessions, "token", Duration::from_secs(3600))?);
    /// tx.commit()?;
    /// assert!(sessions.expiry("token")? > before);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`]; [`crate::Error::Option`] for an expiry after a duration of zero.
    pub fn renew(&mut self, table: &Table, key: impl AsRef<[u8]>, expires: impl Into<Expires>) -> Result<bool> {
        let (key, expires) = (key.as_ref(), expires.into());
        check_expires(Some(expires))?;
        self.lock_for_update(table, &[key])?;
        if let Some(written) = self.writes.get(table.core.id, key) {
            let Some(value) = writes::value_of(written).map(<[u8]>::to_vec) else { return Ok(false) };
            self.put_until(table, key, &value, Some(expires))?;
            return Ok(true);
        }
        self.note_key(table, key)?;
        let (_, mut found) = point::find(table.engine(), &table.core, &[key], Some(&*self.pin))?;
        match found.pop().flatten() {
            None => return Ok(false),
            Some(Stored::Inline(value)) => self.put_until(table, key, &value, Some(expires))?,
            Some(Stored::Document(_)) => self.write(key, 0, |writes| writes.renew(table, key, expires))?,
        }
        Ok(true)
    }

    /// Finds the values of the keys that keep theirs.
    pub(super) fn renewals(&self) -> Result<Renewals> {
        let mut renewals = Renewals::default();
        for (table, keys) in self.writes.kept() {
            let (state, found) = point::find(table.engine(), &table.core, &keys, Some(&*self.pin))?;
            renewals.states.push(state);
            for (key, stored) in keys.into_iter().zip(found) {
                let gone = || Error::conflict(table.name(), "a renewed value", Some(key));
                renewals.values.push(Renewed::of(stored.ok_or_else(gone)?));
            }
        }
        Ok(renewals)
    }
}

//! New expiries for values that stay as they are.

use index::Stored;

use crate::{
    commit::check_expires,
    error::Result,
    handles::{
        table::Table,
        transaction::{Transaction, writes},
    },
    read::point,
    words::clock::Expires,
};

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
        let (state, found) = point::find(table.engine(), &table.core, key, Some(&*self.pin))?;
        match found {
            None => return Ok(false),
            Some(Stored::Inline(value)) => self.put_until(table, key, &value, Some(expires))?,
            Some(Stored::Document(document)) => self.write(key, document.encode().len(), |writes| {
                writes.renew(table, key, &document, expires, state);
            })?,
        }
        Ok(true)
    }
}

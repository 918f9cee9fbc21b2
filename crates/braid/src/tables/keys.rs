//! Which keys a table can have.

use crate::{
    error::{Error, Result},
    tables::catalog::TableCore,
};

impl TableCore {
    /// Fails for a key that the table cannot have.
    #[inline]
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        let limit = self.structure.facts().key_bytes_max;
        if key.is_empty() || key.len() > limit {
            return Err(Error::KeyLength { table: self.name.clone(), length: key.len(), limit });
        }
        Ok(())
    }
}

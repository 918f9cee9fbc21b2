//! Loads of structures, in terms of the database.

use std::cell::RefCell;

use index::{Expiry, Index, Loaded, Payload, Seq};

use crate::error::{Error, Result};

/// A structure under construction.
pub(crate) struct Load(Box<dyn index::Load>);

impl Load {
    /// Begins to load sorted entries, whose versions will have `seq`. None if the structure is not empty. Nothing else
    /// may change the structure until the load is dropped, installed or discarded.
    pub(crate) fn begin(index: &dyn Index, seq: Seq) -> Option<Self> {
        index.begin_load(seq).map(Self)
    }

    /// The key of the entry before; empty before the first.
    pub(crate) fn last_key(&self) -> &[u8] {
        self.0.last_key()
    }

    /// Takes the next entry. `ready` prepares for a write, or refuses to go on.
    pub(crate) fn push(
        &mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>, ready: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        until_refused(ready, |ready| self.0.push(key, payload, expiry, ready))
    }

    /// Writes the rest.
    pub(crate) fn finish(self, ready: &dyn Fn() -> Result<()>) -> Result<Loaded> {
        until_refused(ready, |ready| self.0.finish(ready))
    }
}

/// The error of `ready`, where that has ended the load.
fn until_refused<T>(
    ready: &dyn Fn() -> Result<()>, load: impl FnOnce(&index::Ready<'_>) -> index::Result<T>,
) -> Result<T> {
    let refused: RefCell<Option<Error>> = RefCell::default();
    let ready = || {
        ready().map_err(|error| {
            *refused.borrow_mut() = Some(error);
            index::Error::Refused
        })
    };
    let loaded = load(&ready);
    loaded.map_err(|error| refused.take().unwrap_or_else(|| error.into()))
}

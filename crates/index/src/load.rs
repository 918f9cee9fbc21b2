//! Loads: an empty structure that is filled with sorted entries.

use std::any::Any;

use psync::File;

use crate::{Expiry, Payload, Result};

/// Called before each write of a load, between taking space and writing to it. The load ends with the error where the
/// write must not happen.
pub type Ready<'a> = dyn Fn() -> Result<()> + 'a;

/// A structure under construction ([`crate::Index::begin_load`]).
pub trait Load: Send {
    /// The key of the entry before; empty before the first.
    fn last_key(&self) -> &[u8];

    /// Takes the next entry. Its key is above [`Load::last_key`], and key and value are within the limits.
    ///
    /// # Errors
    /// When storage fails or is full, or `ready` fails; the load cannot go on then.
    fn push(&mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>, ready: &Ready<'_>) -> Result<()>;

    /// Writes the rest.
    ///
    /// # Errors
    /// As [`Load::push`]. All space of the load is given back then.
    fn finish(self: Box<Self>, ready: &Ready<'_>) -> Result<Loaded>;
}

/// A structure that is written, for [`crate::Index::take_loaded`].
pub struct Loaded {
    /// The files that have to be flushed first.
    pub files: Vec<File>,
    content: Box<dyn Any + Send>,
}

impl Loaded {
    /// A loaded structure, in terms of its kind.
    pub fn new(files: Vec<File>, content: impl Any + Send) -> Self {
        Self { files, content: Box::new(content) }
    }

    /// The content that it was made with.
    ///
    /// # Panics
    /// When it was made by another kind of structure.
    #[must_use]
    pub fn into_content<T: Any>(self) -> T {
        *self.content.downcast().expect("a structure takes what it has loaded")
    }
}

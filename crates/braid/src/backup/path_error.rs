//! Errors of the file system around a backup.

use std::{path::Path, sync::Arc};

use crate::error::Error;

/// An error of the file system, in the form of psync's own errors.
pub(super) fn path_error<'a>(operation: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> Error + 'a {
    move |error| Error::Io(psync::Error::Path { operation, path: path.to_owned(), source: Arc::new(error) })
}

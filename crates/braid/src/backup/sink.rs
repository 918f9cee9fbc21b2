//! Destinations of a backup.

use std::{io::Write, path::Path};

use super::path_error::path_error;
use crate::error::Result;

/// Name of a stream in errors.
pub(super) const STREAM: &str = "the backup stream";

/// Destination of encoded bytes.
pub(super) trait Sink: Send {
    /// Takes the next bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Called after the last bytes.
    fn end(&mut self) -> Result<()>;
}

/// A stream of the caller.
pub(super) struct ToStream<W>(pub(super) W);

impl<W: Write + Send> Sink for ToStream<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(path_error("write", Path::new(STREAM)))
    }

    fn end(&mut self) -> Result<()> {
        self.0.flush().map_err(path_error("write", Path::new(STREAM)))
    }
}

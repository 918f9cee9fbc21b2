//! The progress of a backup, as it is reported.

use std::{ops::ControlFlow, sync::Arc};

/// Progress of a backup.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackupProgress {
    /// The table whose pairs are being written; none for changes.
    pub table: Option<Arc<str>>,
    /// Pairs and changes so far.
    pub records: u64,
    /// Bytes of blocks so far.
    pub bytes: u64,
    /// About the number of bytes of blocks in all; none for changes.
    pub total_bytes: Option<u64>,
}

/// Called after each block. [`ControlFlow::Break`] ends the backup with [`Error::Stopped`](crate::Error::Stopped).
pub type BackupReport<'a> = &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>;

//! The file of the figures that a database learned ([`crate::engine::learned`]): restored, and removed.

use std::path::Path;

use psync::{Psync, probe};

use crate::error::Result;

/// Restores the figures of earlier processes. Returns the reason if that failed.
pub(crate) fn recall(psync: &Psync, path: &Path) -> Option<String> {
    let error = probe::recall(psync, path).err()?;
    events::warn!(%error, "what was learned from requests is learned anew");
    Some(error.to_string())
}

/// Removes the saved figures from a directory.
pub(crate) fn forget(psync: &Psync, path: &Path) -> Result<()> {
    let file = path.join(probe::LEARNED_NAME);
    if psync.exists(&file)? {
        psync.remove(&file)?;
    }
    Ok(())
}

//! The levels of an FD-tree on the device.

use std::sync::Arc;

use super::page::Layout;
use super::run::Run;
use crate::trees::pending::partition;

/// The levels on the device, and the fences of the head.
pub(super) struct Levels {
    /// Level 1 first.
    pub(super) runs: Vec<Arc<Run>>,
    /// The first keys of the pages of level 1.
    pub(super) fences: Vec<u8>,
}

impl Levels {
    /// The page of level 1 that a key can be in.
    pub(super) fn first_page(&self, layout: Layout, key: &[u8]) -> Option<u32> {
        let key_bytes = layout.shape.key_bytes;
        let after =
            partition(self.fences.len() / key_bytes, |fence| &self.fences[fence * key_bytes..][..key_bytes] <= key);
        after.checked_sub(1).and_then(|page| u32::try_from(page).ok())
    }
}

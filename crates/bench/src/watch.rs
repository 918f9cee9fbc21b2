//! How a caller follows and stops a run.

use std::sync::atomic::AtomicBool;

/// Callbacks with which a caller follows and stops a run.
pub struct Watch<'a> {
    /// Set to stop soon; the report then covers the operations done.
    pub stop: &'a AtomicBool,
    /// Called about ten times a second with the operations done and, where known, the number intended.
    pub progress: &'a (dyn Fn(u64, Option<u64>) + Sync),
    /// Called at the start of each phase, with its name.
    pub phase: &'a (dyn Fn(&str) + Sync),
}

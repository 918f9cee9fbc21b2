//! Upkeep: the work that keeps a database small and quick, and the worker that does this work when due.

pub(crate) mod ahead;
pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod compact;
pub(crate) mod expiry;
pub(crate) mod full_disk;
pub(crate) mod relocate;
pub(crate) mod rest;
pub(crate) mod retain;
pub(crate) mod rewrite;
mod settled;
pub(crate) mod sweep;
pub(crate) mod wanted;
pub(crate) mod worker;

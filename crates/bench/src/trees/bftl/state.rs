//! The state of a tree on BFTL.

use super::page::Node;
use super::table::Table;
use crate::trees::pending::Pending;
use crate::{Error, Result};

pub(super) struct State {
    pub(super) table: Table,
    pub(super) root: Node,
    /// The level of the root; leaves are level 0.
    pub(super) height: usize,
    pub(super) reservation: Pending,
    /// A commit failed half way, so the state is no longer the tree.
    pub(super) has_failed: bool,
}

impl State {
    pub(super) fn check(&self) -> Result<()> {
        if self.has_failed {
            return Err(Error::Invalid("a commit of BFTL failed, so its tree is not whole: build it anew".to_owned()));
        }
        Ok(())
    }
}

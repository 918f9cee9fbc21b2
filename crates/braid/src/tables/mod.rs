//! One table: what it is, its state, states of it that are retained; and the catalog of all.

pub(crate) mod catalog;
pub(crate) mod gaps;
pub(crate) mod history;
pub(crate) mod pace;
pub(crate) mod traffic;
pub(crate) mod usage;

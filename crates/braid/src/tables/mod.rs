//! One table: its identity, its state, its retained states; and the catalog of all tables.

pub(crate) mod catalog;
pub(crate) mod gaps;
pub(crate) mod held;
pub(crate) mod history;
pub(crate) mod inline;
pub(crate) mod keys;
pub(crate) mod pace;
pub(crate) mod retained;
pub(crate) mod traffic;
pub(crate) mod usage;

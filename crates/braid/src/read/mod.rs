//! A moment of a table: walks over queues and structure, what range deletes hide, values that are kept without a copy.

pub(crate) mod hidden;
pub(crate) mod pin;
pub(crate) mod pinned;
pub(crate) mod point;
pub(crate) mod then;
pub(crate) mod walk;

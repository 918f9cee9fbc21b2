//! Reads of a table at one moment: walks over queues and structure, hidden versions, values that are kept without a
//! copy.

pub(crate) mod gather;
pub(crate) mod hidden;
pub(crate) mod pin;
pub(crate) mod pinned;
pub(crate) mod point;
pub(crate) mod then;
pub(crate) mod walk;

//! From queues to structures: the choice of queues, rounds, and tables that change as a whole.

pub(crate) mod choice;
pub(crate) mod install;
pub(crate) mod replace;
pub(crate) mod round;

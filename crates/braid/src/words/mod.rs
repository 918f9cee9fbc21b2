//! The words of every floor: time, durability, key ranges, structures, the applied commits of a structure, and
//! portions of lists.

pub(crate) mod applied;
pub(crate) mod clock;
pub(crate) mod durability;
pub(crate) mod key_range;
pub(crate) mod portions;
pub(crate) mod structure;
pub(crate) mod unforeseen;
pub(crate) mod verifies;
pub(crate) mod wake;

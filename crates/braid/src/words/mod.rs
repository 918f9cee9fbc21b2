//! What every floor says: the moment that it is, keys from one to another, and which commits a structure has.

pub(crate) mod applied;
pub(crate) mod clock;
pub(crate) mod durability;
pub(crate) mod fields;
pub(crate) mod key_range;
pub(crate) mod structure;

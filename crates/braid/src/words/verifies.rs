//! The switch of thorough assertions.

/// Whether assertions are on that take time in proportion to what they look at: the feature `verify`. The tests have it
/// on.
pub(crate) const VERIFIES: bool = cfg!(feature = "verify");

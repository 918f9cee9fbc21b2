//! The switch of thorough assertions.

/// Whether assertions are on that take time in proportion to what they look at: the feature `verify`, which
/// `make crash` and `make property` switch on.
pub(crate) const VERIFIES: bool = cfg!(feature = "verify");

//! The limits of keys, values and leaves.

/// The most bytes of a key.
pub const KEY_BYTES_MAX: usize = 1024;

/// The most bytes of a value inside a leaf; longer values are documents.
pub const INLINE_BYTES_MAX: usize = 2048;

/// The most pages of a leaf: 64 MiB.
pub const LEAF_PAGES_MAX: u32 = 16_384;

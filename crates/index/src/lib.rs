//! The trait of an index structure, and the words all structures share.

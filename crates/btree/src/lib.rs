//! The PIO B-tree: append-only leaf segments, batch update, multi-path search.

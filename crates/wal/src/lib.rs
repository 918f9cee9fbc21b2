//! The write-ahead log: segments, group commit, checksums, replay.

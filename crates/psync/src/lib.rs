//! Batched I/O on flash SSDs: many reads, writes and flushes in one call.

//! Objects on storage: files of a database directory, pages and the free list.
